//! Every kernel of `cuda/kernels` against plain Rust, compiled in several ways where clang 19 is there,
//! under several schedules.

#![allow(clippy::unwrap_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

mod banks;
mod bare;
mod classic;
mod control;
mod fuzz;
mod gpu;
mod halves;
mod mbarrier;
mod memories;
mod mistakes;
mod numbers;
mod operations;
mod parted;
mod random;
mod sass;
mod sums;
mod textures;
mod times;
mod waiting;
mod warps;
mod watched;

test_main!();

/// The same tests run the machine code that ptxas makes here of that PTX.
#[test]
fn ptxas_assembles_them_for_every_architecture() {
    if let Some(why) = sass::missing() {
        nvabi_test::skip(nvabi_test::Need::Cuda, why);
    }
}

/// The other tests run what there is: the PTX of the repository, and what clang makes here.
#[test]
fn clang_compiles_them_in_several_ways() {
    let missing = gpu::missing();
    if !missing.is_empty() {
        let why = format!("clang 19 does not compile the kernels with {}", missing.join(", "));
        nvabi_test::skip(nvabi_test::Need::Llvm, why);
    }
}
