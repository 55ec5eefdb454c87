//! cuBLAS and cuBLASLt: the functions that programs around it call most, computed on the host.
//!
//! ```text
//! program ─► cublasSgemm_v2 ─► operand: is it inside an allocation? ─► compute ─► done when it returns
//!                                   └─► libcuda: cuMemGetAddressRange
//! ```
//!
//! Memory of the emulator's device is memory of the process at the same address, so that matrices are computed where
//! they are. Every call is done when it returns, so that streams and math modes are remembered and make no
//! difference. Half and `bfloat16` are computed as `float`, and rounded once.

mod call;
mod compute;
mod context;
mod functions;
mod lt;
mod lu;
mod operand;
