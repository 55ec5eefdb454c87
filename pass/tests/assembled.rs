//! Instrumented code as far as it goes without a GPU: PTX that ptxas assembles, units that nvlink
//! links, sites that keep their keys.
#![allow(clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

mod common;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Site, compile, constant, plugin, sites_of_ptx, toolkit};

test_main!();

fn run(command: &mut Command) {
    let output = command.output().expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
}

fn events() -> PathBuf {
    Path::new(common::KERNELS).join("events.cu")
}

#[test]
fn ptxas_assembles_every_level_for_every_architecture() {
    let (plugin, cuda) = (plugin(), toolkit());
    let folder = tempfile::tempdir().expect("a folder");
    for arch in ["sm_80", "sm_90"] {
        for flags in [["-O0", "-g"], ["-O1", "-g"], ["-O2", "-g"], ["-O3", "-g0"]] {
            let arch_flag = format!("--cuda-gpu-arch={arch}");
            let ptx =
                compile(&plugin, &events(), Some("kinds=all"), &[flags[0], flags[1], &arch_flag]);
            let file = folder.path().join("events.ptx");
            fs::write(&file, &ptx).expect("a file");
            let to = folder.path().join("events.cubin");
            run(Command::new(cuda.join("bin/ptxas"))
                .arg("-arch")
                .arg(arch)
                .arg(&file)
                .arg("-o")
                .arg(to));
        }
    }
}

#[test]
fn a_site_needs_no_global_atomic() {
    let plugin = plugin();
    let ptx = compile(&plugin, &events(), Some("kinds=branch;functions=nested"), &["-O2"]);
    let atomics: Vec<_> = ptx.lines().filter(|line| line.contains("atom.global")).collect();
    // The kernels that have atomics of their own have them still, and nothing else has.
    let plain = compile(&plugin, &events(), None, &["-O2"]);
    let own = plain.lines().filter(|line| line.contains("atom.global")).count();
    assert!(atomics.len() == own && own > 1, "{atomics:?}");
    assert!(ptx.contains("atom.shared.add.u32"));
}

/// The text of a kernel in PTX.
fn kernel<'a>(ptx: &'a str, name: &str) -> &'a str {
    let start = ptx.find(&format!(".entry {name}(")).expect("the kernel");
    let text = &ptx[start..];
    &text[..text.find("\n}").expect("an end")]
}

const PARTS: &str = "#include \"cuda.h\"
__device__ u32 part(u32 value) { return value * 3; }
__device__ u32 other(u32 value) { if (value % 2) { return part(value); } return value; }
extern \"C\" __global__ void parts(u32 *out) { out[lane()] = part(lane()) + other(out[lane()]); }
";

#[test]
fn a_function_looks_up_its_warp_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("parts.cu");
    fs::write(&source, PARTS).expect("a file");
    let ptx = compile(&plugin(), &source, Some("kinds=branch"), &["-O2"]);
    let text = kernel(&ptx, "parts");
    assert!(!text.contains("call"), "not all is inlined\n{text}");
    let count = |what: &str| text.matches(what).count();
    // The kernel's beginning asks for the lanes below, too, and reads no cursor.
    let found = ["mov.pred", "%lanemask_lt", "ld.shared.b32 %"].map(count);
    assert_eq!(found, [1, 2, 1], "records, look-ups of lanes, reads of a cursor\n{text}");
}

#[test]
fn branches_take_their_conditions_from_their_records() {
    let ptx = compile(&plugin(), &events(), Some("kinds=branch"), &["-O2", "-fno-unroll-loops"]);
    // Of the second, LLVM has made a test for equality.
    for name in ["uniform", "divergent_loop"] {
        let text = kernel(&ptx, name);
        let records: Vec<&str> = text.split("mov.pred").skip(1).collect();
        assert!(!records.is_empty(), "{name}");
        for record in records {
            let taken = record.trim_start().split(',').next().expect("a register");
            let (_, behind) = record.split_once("// end inline asm").expect("the record's end");
            let branch = behind.lines().find(|line| line.contains("bra ")).expect("a branch");
            let guards = [format!("@{taken} bra"), format!("@!{taken} bra")];
            assert!(guards.iter().any(|guard| branch.contains(guard.as_str())), "{name}: {behind}");
        }
    }
}

#[test]
fn keys_do_not_depend_on_where_and_how_the_code_is_built() {
    let plugin = plugin();
    let text = fs::read_to_string(events()).expect("the source");
    let folder = tempfile::tempdir().expect("a folder");
    let mut keys = Vec::new();
    for place in ["one", "another/deeper"] {
        let folder = folder.path().join(place);
        fs::create_dir_all(&folder).expect("a folder");
        let source = folder.join("events.cu");
        fs::write(&source, &text).expect("a file");
        let sites = sites_of_ptx(&compile(&plugin, &source, Some("kinds=all"), &["-O0", "-g"]));
        assert!(sites.iter().any(|site| site.file == "events.cu"), "{sites:?}");
        keys.push(
            sites
                .iter()
                .filter(|site| site.file == "events.cu")
                .map(|site| site.key)
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(keys[0], keys[1]);
    // Lines above shift those below.
    let moved = folder.path().join("one/events.cu");
    fs::write(&moved, format!("\n{text}")).expect("a file");
    let sites = sites_of_ptx(&compile(&plugin, &moved, Some("kinds=all"), &["-O0", "-g"]));
    let now = sites.iter().filter(|site| site.file == "events.cu").map(|site| site.key);
    assert_eq!(now.clone().count(), keys[0].len());
    assert!(now.zip(&keys[0]).all(|(now, before)| now != *before));
}

#[test]
fn the_hash_of_a_module_is_that_of_its_code_alone() {
    let plugin = plugin();
    let text = fs::read_to_string(events()).expect("the source");
    let folder = tempfile::tempdir().expect("a folder");
    let hash = |place: &str, text: &str, options: &str, level: &str, debug: &str| {
        let folder = folder.path().join(place);
        fs::create_dir_all(&folder).expect("a folder");
        let source = folder.join(format!("{}.cu", place.len()));
        fs::write(&source, text).expect("a file");
        let ptx = compile(&plugin, &source, Some(options), &[level, debug]);
        constant(&ptx, "__nvabi_module_hash")
    };
    for level in ["-O0", "-O2"] {
        let first = hash("one", &text, "kinds=branch", level, "-g");
        assert!(first.len() == 32 && first.iter().any(|byte| *byte != 0));
        assert_eq!(first, hash("another/deeper", &text, "kinds=branch", level, "-g"));
        assert_eq!(first, hash("one", &text, "kinds=all", level, "-g"), "what is recorded");
        let comment = format!("// New.\n{text}");
        assert_eq!(first, hash("one", &comment, "kinds=branch", level, "-g"), "a comment");
        let changed = text.replacen("n > 3", "n > 4", 1);
        assert_ne!(first, hash("one", &changed, "kinds=branch", level, "-g"));
    }
    // A unit that is linked with others has it for each kernel.
    let ptx =
        |options: &str| compile(&plugin, &events(), Some(options), &["-O2", "-g", "-fgpu-rdc"]);
    let of = |ptx: &str, kernel: &str| constant(ptx, &format!("__nvabi_module_hash_{kernel}"));
    let (branches, all) = (ptx("kinds=branch;rdc"), ptx("kinds=all;functions=!*;rdc"));
    assert_ne!(of(&branches, "uniform"), [0; 32]);
    assert_eq!(of(&branches, "uniform"), of(&branches, "nested"));
    assert_eq!(of(&branches, "uniform"), of(&all, "uniform"), "what is recorded");
}

#[test]
fn a_root_tells_files_of_one_name_apart() {
    let plugin = plugin();
    let folder = tempfile::tempdir().expect("a folder");
    let text = fs::read_to_string(events()).expect("the source");
    let mut all: HashMap<u64, String> = HashMap::new();
    for unit in ["a", "b"] {
        fs::create_dir(folder.path().join(unit)).expect("a folder");
        let source = folder.path().join(unit).join("same.cu");
        fs::write(&source, &text).expect("a file");
        let options = format!("kinds=branch;root={}", folder.path().display());
        for site in sites_of_ptx(&compile(&plugin, &source, Some(&options), &["-O1", "-g"])) {
            assert_eq!(site.file, format!("{unit}/same.cu"));
            assert_eq!(all.insert(site.key, site.file.clone()), None, "{site:?}");
        }
    }
}

#[test]
fn keys_of_a_module_are_all_different_with_and_without_debug_information() {
    let plugin = plugin();
    for debug in ["-g", "-g0", "-gline-tables-only"] {
        for level in ["-O0", "-O2"] {
            let sites =
                sites_of_ptx(&compile(&plugin, &events(), Some("kinds=all"), &[level, debug]));
            let keys: HashSet<_> = sites.iter().map(|site| site.key).collect();
            assert_eq!(keys.len(), sites.len(), "{debug} {level}");
            let known = sites.iter().filter(|site| site.line > 0).count();
            match debug {
                "-g0" => assert_eq!(known, 0),
                _ => {
                    assert_eq!(known, sites.len(), "{:?}", sites.iter().find(|site| site.line == 0))
                }
            }
        }
    }
}

#[test]
fn what_comes_with_cuda_is_not_the_programs() {
    let plugin = plugin();
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(file, text).expect("a file");
    };
    write("cuda/crt/common_functions.h", "");
    write(
        "cuda/sm_9_atomics.h",
        "static __device__ void add_one(u32 *p) { __nvvm_atom_add_gen_i((int *)p, 1); }\n",
    );
    write(
        "cuda/loops.h",
        "template <class F> __device__ __forceinline__ void times(u32 n, F f) {\n\
           for (u32 i = 0; i < n; i++) f(i);\n}\n",
    );
    let text = "#include \"cuda.h\"\n#include \"sm_9_atomics.h\"\n#include \"loops.h\"\n\
         static __global__ void walk(u32 *out) {\n\
           times(out[9], [=](u32 i) {\n\
             if (out[i] > 3) add_one(out);\n\
           });\n}\n\
         auto used = walk;\n";
    let sites = |place: &str, level: &str| {
        let name = format!("{place}/sm_walk.cu");
        write(&name, text);
        let include = format!("-I{}", folder.path().join("cuda").display());
        let flags = [level, "-g", "-fgpu-rdc", "-std=c++17", &include];
        let options = "kinds=branch,atomic;rdc";
        sites_of_ptx(&compile(&plugin, &folder.path().join(name), Some(options), &flags))
    };
    for level in ["-O0", "-O2"] {
        let (near, far) = (sites("one", level), sites("two/three/four", level));
        let places: Vec<_> = near.iter().map(|site| (site.file.as_str(), site.line)).collect();
        assert_eq!(places, [("sm_walk.cu", 6); 2], "{level}: {near:?}");
        let keys = |sites: &[Site]| sites.iter().map(|site| site.key).collect::<Vec<_>>();
        assert_eq!(keys(&near), keys(&far), "{level}: {near:?} {far:?}");
    }
}

#[test]
fn units_that_are_linked_share_one_variable_and_keep_their_tables() {
    let (plugin, cuda) = (plugin(), toolkit());
    let folder = tempfile::tempdir().expect("a folder");
    let mut objects = Vec::new();
    for (unit, text) in [
        (
            "a",
            "#include \"cuda.h\"\nextern __device__ u32 other(u32);\n\
               extern \"C\" __global__ void k(u32 *out) { if (out[0] > 3) out[1] = other(out[2]); }\n",
        ),
        (
            "b",
            "#include \"cuda.h\"\n__device__ u32 other(u32 x) { u32 y = 0; while (x) { x /= 3; y += x; } return y; }\n",
        ),
    ] {
        let source = folder.path().join(format!("{unit}.cu"));
        fs::write(&source, text).expect("a file");
        for level in ["-O0", "-O2"] {
            let ptx = compile(&plugin, &source, Some("kinds=all;rdc"), &[level, "-g", "-fgpu-rdc"]);
            let file = folder.path().join(format!("{unit}.ptx"));
            fs::write(&file, &ptx).expect("a file");
            let to = folder.path().join(format!("{unit}.o"));
            run(Command::new(cuda.join("bin/ptxas"))
                .args(["-arch=sm_80", "-c"])
                .arg(&file)
                .arg("-o")
                .arg(&to));
            assert!(sites_of_ptx(&ptx).len() > 2);
        }
        objects.push(folder.path().join(format!("{unit}.o")));
    }
    let image = folder.path().join("image.cubin");
    run(Command::new(cuda.join("bin/nvlink"))
        .arg("-arch=sm_80")
        .args(&objects)
        .arg("-o")
        .arg(&image));
    let image = fs::read(&image).expect("the image");
    let has = |name: &[u8]| image.windows(name.len()).any(|window| window == name);
    assert!(has(b"__nvabi_trace\0") && has(b"__nvabi_units\0"));
}

#[test]
fn units_that_were_not_told_to_be_linked_are_refused() {
    let (plugin, cuda) = (plugin(), toolkit());
    let folder = tempfile::tempdir().expect("a folder");
    let mut objects = Vec::new();
    for unit in ["a", "b"] {
        let source = folder.path().join(format!("{unit}.cu"));
        let text = format!(
            "#include \"cuda.h\"\nextern \"C\" __global__ void {unit}(u32 *o) {{ if (*o) *o = 1; }}"
        );
        fs::write(&source, text).expect("a file");
        let ptx = compile(&plugin, &source, Some("kinds=branch"), &["-O1", "-fgpu-rdc"]);
        let (file, to) = (folder.path().join("x.ptx"), folder.path().join(format!("{unit}.o")));
        fs::write(&file, &ptx).expect("a file");
        run(Command::new(cuda.join("bin/ptxas"))
            .args(["-arch=sm_80", "-c"])
            .arg(&file)
            .arg("-o")
            .arg(&to));
        objects.push(to);
    }
    let mut command = Command::new(cuda.join("bin/nvlink"));
    let output =
        command.arg("-arch=sm_80").args(&objects).arg("-o").arg(folder.path().join("i")).output();
    let output = output.expect("nvlink runs");
    let error = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!output.status.success() && error.contains("__nvabi_"), "{error}");
}

#[test]
fn mistakes_in_the_options_stop_the_compiler_and_say_what_there_is() {
    let plugin = plugin();
    for (options, expected) in [
        (
            "kinds=brunch",
            "nvabi: NVABI_TRACE_PASS: unknown kind `brunch`; there are branch, store, atomic, entry, exit and all",
        ),
        (
            "kind=branch",
            "nvabi: NVABI_TRACE_PASS: unknown option `kind=branch`; there are kinds=LIST, functions=GLOBS, root=DIR, rdc",
        ),
    ] {
        let output = common::clang(&plugin, &events(), Some(options), &["-O1"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(expected), "{error}");
    }
}
