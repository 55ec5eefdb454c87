//! Every kernel of `cuda/kernels` with the pass in it: against plain Rust, as the emulator's tests do it, and
//! its events against those of the code as it was.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

#[path = "../common/mod.rs"]
mod common;
mod gpu;

#[path = "../../../cuda/emu/tests/kernels/classic.rs"]
mod classic;
#[path = "../../../cuda/emu/tests/kernels/control.rs"]
mod control;
#[path = "../../../cuda/emu/tests/kernels/halves.rs"]
mod halves;
#[path = "../../../cuda/emu/tests/kernels/memories.rs"]
mod memories;
#[path = "../../../cuda/emu/tests/kernels/numbers.rs"]
mod numbers;
#[path = "../../../cuda/emu/tests/kernels/warps.rs"]
mod warps;

test_main!();
