//! The same kernels as machine code: assembled by ptxas, and compared with the PTX that they were made of.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

use nvabi_emu::{Device, Module};

pub(crate) const NO_TOOLKIT: &str = "no ptxas in CUDA_PATH, and cuda/toolkit.sh could not fetch it";

/// What is assembled: each architecture at one level, or at all with NVABI_SASS_ALL.
const SAMPLE: [(u32, u32); 5] = [(80, 3), (86, 2), (87, 1), (89, 0), (90, 3)];

/// Modules of which every kernel is compared. The mistakes are told with lines of the PTX, and have tests of their own.
const MODULES: [&str; 7] =
    ["classic", "control", "halves", "memories", "mistakes", "numbers", "warps"];

/// Kernels in which a special function is approximated: units in the last place by which the two may differ.
const APPROXIMATE: [(&str, u32); 3] = [("nbody", 64), ("softmax", 4), ("mandelbrot", 0)];

/// Kernels that change the sign of NaN of 16 bits: PTX leaves open which NaN comes of it.
const ANY_NAN: [&str; 2] = ["half_by_half", "brain_by_brain"];

type Cubins = BTreeMap<&'static str, Vec<(String, Vec<u8>)>>;

fn assembled() -> Result<&'static Cubins, &'static str> {
    static CUBINS: OnceLock<Option<Cubins>> = OnceLock::new();
    let cubins = CUBINS.get_or_init(|| toolkit().map(|cuda| assemble(&cuda)));
    cubins.as_ref().ok_or(NO_TOOLKIT)
}

pub(crate) fn missing() -> Option<&'static str> {
    assembled().err()
}

/// A module in every variant, with a name for messages.
pub(crate) fn cubins(module: &str) -> Vec<(String, Vec<u8>)> {
    assembled().ok().and_then(|cubins| cubins.get(module)).cloned().unwrap_or_default()
}

pub(crate) fn ptx(module: &str) -> String {
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/ptx");
    fs::read_to_string(kernels.join(format!("{module}.ptx"))).unwrap()
}

/// What is assembled.
pub(crate) fn variants() -> Vec<(u32, u32)> {
    let all = (0..5).flat_map(|at| (0..4).map(move |level| (SAMPLE[at].0, level)));
    match env::var_os("NVABI_SASS_ALL") {
        Some(_) => all.collect(),
        None => SAMPLE.to_vec(),
    }
}

fn assemble(cuda: &Path) -> Cubins {
    let variants = variants();
    let mut out = Cubins::new();
    for module in MODULES {
        for (arch, level) in &variants {
            // ptxas 12.3 takes bfloat16 comparisons for sm_90 only.
            if module == "halves" && *arch < 90 {
                continue;
            }
            let name = format!("{module} sm_{arch} -O{level}");
            let cubin = assemble_one(cuda, &ptx(module), *arch, *level, &name);
            out.entry(module).or_default().push((name, cubin));
        }
    }
    out
}

pub(crate) fn assemble_one(cuda: &Path, text: &str, arch: u32, level: u32, name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels-sass");
    fs::create_dir_all(&folder).unwrap();
    let stem = name.replace(' ', "");
    let (source, cubin) =
        (folder.join(format!("{stem}.ptx")), folder.join(format!("{stem}.cubin")));
    fs::write(&source, text.replace(".target sm_80", &format!(".target sm_{arch}"))).unwrap();
    let mut ptxas = Command::new(cuda.join("bin/ptxas"));
    ptxas.args([format!("-arch=sm_{arch}"), format!("-O{level}"), "-lineinfo".to_owned()]);
    let output = ptxas.arg(&source).arg("-o").arg(&cubin).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    fs::read(cubin).unwrap()
}

/// CUDA's tools, where there are any.
pub(crate) fn toolkit() -> Option<PathBuf> {
    nvabi_test::cuda_if_any(&["bin/ptxas"])
}

/// The same, or the test is skipped.
#[track_caller]
pub(crate) fn needed() -> PathBuf {
    toolkit().unwrap_or_else(|| nvabi_test::skip(nvabi_test::Need::Cuda, NO_TOOLKIT))
}

/// A text as PTX, and as machine code in every variant, with names for messages.
pub(crate) fn modules(device: &mut Device, text: &str, name: &str) -> Vec<(String, Module)> {
    let cuda = needed();
    let mut modules = vec![("PTX".to_owned(), device.load(text).unwrap())];
    for (arch, level) in variants() {
        let name = format!("{name} sm_{arch} -O{level}");
        let cubin = assemble_one(&cuda, text, arch, level, &name);
        modules.push((name, device.load_cubin(&cubin).unwrap()));
    }
    modules
}

/// Bit for bit, but for kernels with special functions.
pub(crate) fn compare(got: &[u8], wanted: &[u8], kernel: &str, what: &str) {
    let bound = APPROXIMATE.iter().find(|(name, _)| *name == kernel).map_or(0, |(_, bound)| *bound);
    let word = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).unwrap_or(0);
    for (at, (a, b)) in got.chunks(4).zip(wanted.chunks(4)).enumerate() {
        let distance = i64::from(word(a)) - i64::from(word(b));
        let half = |bytes: &[u8]| bytes.chunks(2).map(nan).collect::<Vec<_>>();
        if ANY_NAN.contains(&kernel) && half(a) == half(b) {
            continue;
        }
        let near = bound != 0 && distance.unsigned_abs() <= bound.into();
        assert!(a == b || near, "{what}, word {at}: {a:02x?} of machine code, {b:02x?} of PTX");
    }
}

/// A number of 16 bits, the same for every NaN.
fn nan(bytes: &[u8]) -> u16 {
    let bits = bytes.try_into().map(u16::from_le_bytes).unwrap_or(0);
    if bits & 0x7fff > 0x7f80 || bits & 0x7fff > 0x7c00 { 0x7fff } else { bits }
}
