//! What holds for any words and cubins; the fuzz targets and the emulator's tests share it.

use nvabi_emu::{Args, Device, Launch, Module};
use nvabi_sass::check::check;
use nvabi_sass::{Arch, cubin, decode};

/// Words are instructions with a text on each architecture, or unknown by a name or a number.
pub(crate) fn words(bytes: &[u8]) {
    for (at, word) in bytes.chunks_exact(16).enumerate() {
        let word = word.iter().rev().fold(0, |word, byte| word << 8 | u128::from(*byte));
        for arch in Arch::ALL {
            let text = match decode(arch, word, at as u64 * 16) {
                Ok(instruction) => instruction.to_string(),
                Err(unknown) => unknown.to_string(),
            };
            assert!(!text.is_empty());
        }
    }
}

/// A cubin is listed, checked and run, or refused with a reason; whether one of its kernels ran an instruction.
pub(crate) fn file(file: &[u8]) -> bool {
    if let Ok(cubin) = cubin::cubin(file) {
        for function in &cubin.functions {
            let known = function.words().filter_map(|(at, word)| decode(cubin.arch, word, at).ok());
            let instructions: Vec<_> = known.collect();
            assert!(check(&instructions).iter().all(|finding| !finding.to_string().is_empty()));
        }
    }
    let mut device = Device::new();
    let Ok(data) = device.alloc(1 << 13) else { return false };
    match device.load_cubin(file) {
        Ok(module) => run(&mut device, &module, data),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}

/// Runs every kernel for a while, with arguments that are addresses.
fn run(device: &mut Device, module: &Module, data: u64) -> bool {
    let launch =
        Launch { block: [48, 1, 1], threads: 1, max_warp_instructions: 2000, ..Launch::default() };
    let names: Vec<String> = module.kernels().map(str::to_owned).collect();
    let mut ran = false;
    for name in names {
        let args = (0..8).fold(Args::new(), |args, at| args.u64(data + 512 * at));
        ran |= device.launch(module, &name, &launch, &args).is_ok_and(|r| r.lane_instructions != 0);
    }
    ran
}
