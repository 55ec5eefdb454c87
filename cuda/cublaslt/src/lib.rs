//! cuBLASLt, under the name that programs load: its functions are nvabi-blas's.

extern crate nvabi_blas as _;
