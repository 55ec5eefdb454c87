//! Every kernel of `cuda/kernels` against plain Rust, compiled in several ways where clang 19 is there,
//! under several schedules.

#![allow(clippy::unwrap_used, clippy::panic)]

mod classic;
mod control;
mod gpu;
mod halves;
mod memories;
mod mistakes;
mod numbers;
mod warps;
