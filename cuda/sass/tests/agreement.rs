//! Every instruction that ptxas makes of our kernels, and those of the files in NVABI_SASS_FILES, has the text that
//! nvdisasm writes.
//!
//! nvdisasm writes labels for addresses when it reads a cubin, so it gets the instructions alone.

#![allow(clippy::unwrap_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use nvabi_sass::cubin::{Code, cubin, images};
use nvabi_sass::{Arch, decode};
use nvabi_test::Need;

test_main!();

/// Control information without which some instructions are illegal stays; of two that differ in it, one is compared.
const CONTROL: u128 = 0x1ffff << 105;

/// As many instructions as nvdisasm reads at once.
const BATCH: usize = 20_000;

#[test]
fn our_kernels_have_the_text_of_nvdisasm() {
    let cuda = toolkit();
    let scratch = scratch("kernels");
    let mut agreement = Agreement::new(&cuda, &scratch);
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels");
    let folders = ["ptx", "by-hand"].map(|folder| fs::read_dir(kernels.join(folder)).unwrap());
    for kernel in folders.into_iter().flatten() {
        let kernel = kernel.unwrap().path();
        let text = fs::read_to_string(&kernel).unwrap();
        for arch in Arch::ALL {
            for level in 0..4 {
                // ptxas 12.3 takes bfloat16 comparisons for sm_90 only.
                let (source, target) = (scratch.join("kernel.ptx"), scratch.join("kernel.cubin"));
                fs::write(
                    &source,
                    text.replace(".target sm_80", &format!(".target sm_{}", arch.number())),
                )
                .unwrap();
                let mut ptxas = Command::new(cuda.join("bin/ptxas"));
                ptxas.arg(format!("-arch=sm_{}", arch.number())).arg(format!("-O{level}"));
                let output = ptxas.arg(&source).arg("-o").arg(&target).output().unwrap();
                let is_bfloat = kernel.ends_with("halves.ptx") && arch < Arch::Sm90;
                assert!(output.status.success() || is_bfloat, "{}: {output:?}", kernel.display());
                if output.status.success() {
                    agreement.add(&fs::read(&target).unwrap());
                }
            }
        }
    }
    agreement.finish(1.0);
}

#[test]
fn foreign_files_have_the_text_of_nvdisasm() {
    let Some(files) = env::var_os("NVABI_SASS_FILES") else {
        nvabi_test::skip(Need::Cubins, "NVABI_SASS_FILES names no folder")
    };
    let cuda = toolkit();
    let scratch = scratch("foreign");
    let mut agreement = Agreement::new(&cuda, &scratch);
    for file in fs::read_dir(files).unwrap() {
        agreement.add(&fs::read(file.unwrap().path()).unwrap());
    }
    agreement.finish(0.999);
}

struct Agreement<'a> {
    cuda: &'a Path,
    scratch: &'a Path,
    /// How often each instruction occurs.
    words: BTreeMap<Arch, HashMap<u128, (u128, u64)>>,
}

impl<'a> Agreement<'a> {
    fn new(cuda: &'a Path, scratch: &'a Path) -> Self {
        Agreement { cuda, scratch, words: BTreeMap::new() }
    }

    fn add(&mut self, file: &[u8]) {
        for image in images(file).unwrap() {
            let Code::Cubin(bytes) = &image.code else { continue };
            let Ok(cubin) = cubin(bytes) else { continue };
            let words = self.words.entry(cubin.arch).or_default();
            for (_, word) in cubin.functions.iter().flat_map(|function| function.words()) {
                words.entry(word & !CONTROL).or_insert((word, 0)).1 += 1;
            }
        }
    }

    /// Prints the share of instructions with the same text, and the others by opcode.
    fn finish(self, target: f64) {
        let (mut all, mut same) = (0, 0);
        let mut others: BTreeMap<String, u64> = BTreeMap::new();
        for (arch, words) in &self.words {
            let words: Vec<_> = words.values().copied().collect();
            for batch in words.chunks(BATCH) {
                let texts = self.nvdisasm(*arch, batch);
                for (index, (word, count)) in batch.iter().enumerate() {
                    let theirs =
                        texts.get(&(index as u64 * 16)).map_or("no instruction", String::as_str);
                    let ours = match decode(*arch, *word, index as u64 * 16) {
                        Ok(instruction) => instruction.to_string(),
                        Err(unknown) => unknown.to_string(),
                    };
                    all += count;
                    if ours == theirs {
                        same += count;
                    } else {
                        *others
                            .entry(format!("{arch} {:#05x} {theirs} | {ours}", word & 0xfff))
                            .or_default() += count;
                    }
                }
            }
        }
        let share = same as f64 / all as f64;
        println!("{same} of {all} instructions have the same text: {:.4} %", share * 100.0);
        for (what, count) in &others {
            println!("{count:8} {what}");
        }
        assert!(
            share >= target,
            "{:.4} % of the instructions agree, expected {:.4} %",
            share * 100.0,
            target * 100.0
        );
    }

    fn nvdisasm(&self, arch: Arch, batch: &[(u128, u64)]) -> HashMap<u64, String> {
        let path = self.scratch.join("words.bin");
        fs::write(
            &path,
            batch.iter().flat_map(|(word, _)| word.to_le_bytes()).collect::<Vec<u8>>(),
        )
        .unwrap();
        let mut nvdisasm = Command::new(self.cuda.join("bin/nvdisasm"));
        nvdisasm.args(["-ndf", "-b", &format!("SM{}", arch.number())]).arg(&path);
        let output = nvdisasm.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).lines().filter_map(instruction).collect()
    }
}

/// `        /*0010*/                   S2R R5, SR_TID.X ;`
fn instruction(line: &str) -> Option<(u64, String)> {
    let (address, text) = line.trim().strip_prefix("/*")?.split_once("*/")?;
    let text = text.trim().trim_end_matches(';').trim_end();
    Some((u64::from_str_radix(address, 16).ok()?, text.to_owned()))
}

fn toolkit() -> PathBuf {
    nvabi_test::cuda(&["bin/ptxas", "bin/nvdisasm"])
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sass-{name}"));
    fs::create_dir_all(&folder).unwrap();
    folder
}
