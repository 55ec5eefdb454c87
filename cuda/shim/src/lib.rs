//! The CUDA driver and runtime libraries for machines without a GPU: what programs call is answered by
//! nvabi's emulator.
//!
//! ```text
//! program ─► runtime (cuda*) ─┬─► state ─► nvabi_emu::Device
//!              driver (cu*) ──┘      ▲
//!              fatbin: the PTX that clang put into the program
//! ```
//!
//! A folder with the links `libcuda.so.1` to this library and `libcudart.so.12` to that of
//! `nvabi-cudart-shim`, first in `LD_LIBRARY_PATH`, takes the place of CUDA's. The runtime's functions are
//! here, beside the state that they share with the driver's: `cudaMalloc` of the other library jumps to
//! `nvabi_cudaMalloc` of this one. Every call does its work before it returns, so streams
//! are in order by themselves; `clocks` knows what a GPU would do at the same time. The runtime launches and synchronises through the driver's exported
//! functions, so that a preloaded library sees those calls.
//!
//! `NVABI_EMU_DEVICES` is the number of GPUs that there are, `CUDA_VISIBLE_DEVICES` says which of them programs see,
//! `NVABI_EMU_SCHEDULE` is `in-order` or `random:SEED`, `NVABI_EMU_THREADS` the number of threads that
//! run blocks, `NVABI_EMU_LIMIT` the instructions that a block's warps may run, `NVABI_EMU_REPORT` a file that
//! findings are appended to instead of stderr, `NVABI_EMU_FINDINGS` one for findings as JSON,
//! `NVABI_EMU_EXIT` the status of a program that ends with 0 in spite of a finding,
//! `NVABI_EMU_CODE` is `sass` to run the machine code of a fatbin that has PTX as well,
//! `NVABI_EMU_COUNTS` a file that gets a line for each launch: the kernel, the steps that its warps
//! executed (most instructions of PTX are one), and the same counted once per active lane.

mod abi;
mod arrays;
mod clocks;
mod devices;
mod driver;
mod fatbin;
mod graphs;
mod host_work;
mod ipc;
mod link;
mod managed;
mod mapped;
mod pools;
mod record;
mod report;
mod runtime;
mod shared_pools;
mod state;
mod unsupported;
