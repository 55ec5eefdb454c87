//! cuBLASLt of CUDA 13, under the name that programs load: the functions are nvabi-cublas-shim's.

extern crate nvabi_cublas as _;
