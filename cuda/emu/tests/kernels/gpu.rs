//! The modules of `cuda/kernels` in every variant that can be had.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use nvabi_emu::{Device, Launch, Schedule};

pub(crate) use crate::bare::*;
use crate::sass;

/// How clang was asked to compile, and where the PTX is.
struct Variant {
    name: &'static str,
    folder: PathBuf,
}

/// What clang is asked for, beside the PTX of the repository.
const FLAGS: [(&str, [&str; 2]); 3] = [
    ("O0", ["-O0", "--cuda-gpu-arch=sm_80"]),
    ("O1", ["-O1", "--cuda-gpu-arch=sm_80"]),
    ("O3", ["-O3", "--cuda-gpu-arch=sm_90"]),
];

fn variants() -> &'static [Variant] {
    static VARIANTS: OnceLock<Vec<Variant>> = OnceLock::new();
    VARIANTS.get_or_init(|| {
        let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels");
        let mut out = vec![Variant { name: "committed", folder: kernels.join("ptx") }];
        for (name, flags) in FLAGS {
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kernels-{name}"));
            std::fs::create_dir_all(&folder).unwrap();
            let mut compile = Command::new(kernels.join("compile.sh"));
            let output = compile.arg(&folder).args(flags).output();
            if output.is_ok_and(|output| output.status.success()) {
                out.push(Variant { name, folder });
            }
        }
        out
    })
}

/// The variants that clang does not make here.
pub(crate) fn missing() -> Vec<&'static str> {
    let is_there = |name: &str| variants().iter().any(|variant| variant.name == name);
    FLAGS.iter().map(|(name, _)| *name).filter(|name| !is_there(name)).collect()
}

/// The module in every variant and under several schedules.
pub(crate) fn gpus(module: &'static str) -> impl Iterator<Item = Gpu> {
    let schedules = [
        (Schedule::InOrder, 1),
        (Schedule::InOrder, 3),
        (Schedule::Random(1), 2),
        (Schedule::Random(0xdead_beef), 1),
    ];
    let ptx = variants().iter().flat_map(move |variant| {
        schedules.into_iter().map(move |(schedule, threads)| {
            let path = variant.folder.join(format!("{module}.ptx"));
            let text = std::fs::read_to_string(path).unwrap();
            let mut device = Device::new();
            let name = format!("{module} {}, {schedule:?}", variant.name);
            let loaded = device.load(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            let launch = Launch { schedule, threads, ..Launch::default() };
            Gpu::new(device, loaded, launch, name)
        })
    });
    ptx.chain(sass::cubins(module).into_iter().flat_map(move |(name, cubin)| {
        let schedules = [(Schedule::InOrder, 1), (Schedule::Random(7), 2)];
        schedules.into_iter().map(move |(schedule, threads)| {
            let mut device = Device::new();
            let name = format!("{name}, {schedule:?}");
            let loaded =
                device.load_cubin(&cubin).unwrap_or_else(|error| panic!("{name}: {error}"));
            let module = device.load(&sass::ptx(module)).unwrap();
            let reference = Reference { module, compare: sass::compare };
            let launch = Launch { schedule, threads, ..Launch::default() };
            Gpu::new(device, loaded, launch, name).compared(reference)
        })
    }))
}
