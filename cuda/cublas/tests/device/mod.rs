//! Calls of libraries that cargo built for a test, and memory of the emulator's device.

use std::ffi::c_void;

#[path = "../../../shim/tests/load/mod.rs"]
mod load;

/// A function of a library that cargo built for this test.
pub(crate) fn function(name: &str) -> *mut c_void {
    let built = match name {
        _ if name.starts_with("cublasLt") => "libnvabi_cublaslt.so",
        _ if name.starts_with("cublas") => "libnvabi_cublas.so",
        _ => "libnvabi_cuda.so",
    };
    load::function(built, name)
}

/// Calls a function with arguments of at most 8 bytes, none of them a float; its status.
macro_rules! call {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        type Function = extern "C" fn($(call!(@word $arg)),*) -> u32;
        // SAFETY: integers and pointers of at most 8 bytes are passed as C passes them.
        let f = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Function>($crate::device::function(stringify!($name))) };
        f($($arg as usize),*)
    }};
    (@word $arg:expr) => { usize };
}

/// Values in memory of the device.
pub(crate) fn device<T: Copy>(values: &[T]) -> usize {
    let mut address = 0usize;
    let bytes = size_of_val(values);
    assert_eq!(call!(cuMemAlloc_v2(&raw mut address, bytes)), 0);
    assert_eq!(call!(cuMemcpyHtoD_v2(address, values.as_ptr(), bytes)), 0);
    address
}

pub(crate) fn host<T: Copy + Default>(address: usize, count: usize) -> Vec<T> {
    let mut out = vec![T::default(); count];
    assert_eq!(call!(cuMemcpyDtoH_v2(out.as_mut_ptr(), address, count * size_of::<T>())), 0);
    out
}
