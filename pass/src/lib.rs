//! An LLVM pass that instruments CUDA device code to record its control flow.
//!
//! Loaded with `-fpass-plugin` into clang 19 or with `-load-pass-plugin` into opt 19. Built where LLVM
//! 19 is installed; elsewhere this crate is empty.
#![cfg(llvm)]

mod asm;
mod branch;
mod debug;
mod exits;
mod hash;
mod instrument;
mod options;
mod paths;
mod prepare;
mod repair;
mod runtime;
mod select;
mod settle;
mod sites;
mod spots;

use std::error::Error;
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::panic::{self, AssertUnwindSafe};
use std::{ptr, slice};

use inkwell::llvm_sys::core::LLVMCreateMessage;
use inkwell::llvm_sys::prelude::LLVMModuleRef;
use inkwell::module::Module;

use options::Options;

/// What fails names the place itself: the message is all that is done with it.
type Failure = Box<dyn Error>;

/// `llvm::PassPluginLibraryInfo`.
#[repr(C)]
struct PluginInfo {
    version: u32,
    name: *const c_char,
    plugin_version: *const c_char,
    register: unsafe extern "C" fn(builder: *mut c_void),
}

unsafe extern "C" {
    /// In `register.cpp`.
    fn nvabi_register(builder: *mut c_void);
}

/// What LLVM looks for in a plugin.
#[unsafe(no_mangle)]
extern "C" fn llvmGetPassPluginInfo() -> PluginInfo {
    PluginInfo {
        version: 1,
        name: c"nvabi-trace".as_ptr(),
        plugin_version: c"1".as_ptr(),
        register: nvabi_register,
    }
}

/// Instruments a module as `options` say, or the environment where they are empty; if it is `deferred`,
/// [`nvabi_settle`] follows when LLVM has optimised it. 0 unchanged, 1 changed, 2 failed, with a message for
/// `LLVMDisposeMessage` in `error`.
///
/// # Safety
///
/// `module` is a module that nothing else uses meanwhile; `options` are `size` bytes; `error` may be
/// written.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvabi_instrument(
    module: LLVMModuleRef,
    options: *const u8,
    size: usize,
    deferred: bool,
    error: *mut *mut c_char,
) -> c_int {
    // SAFETY: `module` is a live module of this LLVM, which nobody else uses during the call: this function's
    // contract. LLVM owns it: it must not be dropped here.
    let module = ManuallyDrop::new(unsafe { Module::new(module) });
    let options = match size {
        0 => &[],
        // SAFETY: `options` points to `size` of them, which stay as they are during the call: this function's
        // contract.
        _ => unsafe { slice::from_raw_parts(options, size) },
    };
    // SAFETY: `error` may be written: this function's contract.
    unsafe { outcome_of(|| run(&module, options, deferred), error) }
}

/// The end of what [`nvabi_instrument`] deferred; returns as it does.
///
/// # Safety
///
/// As of [`nvabi_instrument`].
#[unsafe(no_mangle)]
unsafe extern "C" fn nvabi_settle(module: LLVMModuleRef, error: *mut *mut c_char) -> c_int {
    // SAFETY: as above.
    let module = ManuallyDrop::new(unsafe { Module::new(module) });
    // SAFETY: `error` may be written: this function's contract.
    unsafe { outcome_of(|| settle::all(&module), error) }
}

/// # Safety
///
/// `error` may be written.
unsafe fn outcome_of(
    work: impl FnOnce() -> Result<bool, Failure>,
    error: *mut *mut c_char,
) -> c_int {
    // A defect here must not take the compiler down without a word.
    let outcome =
        panic::catch_unwind(AssertUnwindSafe(|| work().map_err(|failure| failure.to_string())));
    match outcome.unwrap_or_else(|_| Err("the pass has a defect; its message is above".to_owned()))
    {
        Ok(changed) => c_int::from(changed),
        Err(failure) => {
            let message = CString::new(failure.replace('\0', " ")).unwrap_or_default();
            // SAFETY: `error` may be written, by this function's contract; LLVM copies the text.
            unsafe { ptr::write(error, LLVMCreateMessage(message.as_ptr())) };
            2
        }
    }
}

fn run(module: &Module<'_>, options: &[u8], deferred: bool) -> Result<bool, Failure> {
    let triple = module.get_triple();
    if !triple.as_str().to_bytes().starts_with(b"nvptx") || runtime::is_linked(module) {
        return Ok(false);
    }
    let options = match options {
        [] => Options::from_environment()?,
        given => std::str::from_utf8(given)?.parse()?,
    };
    for name in repair::reductions(module) {
        eprintln!("nvabi: clang's {name} hands on mask and value in the wrong order: repaired");
    }
    let hash = hash::of(module);
    // First, because functions go when they are inlined everywhere.
    prepare::inline_wrappers(module)?;
    let selected = select::functions(module, &options);
    let kernels: Vec<_> = select::defined(module)
        .filter(|function| instrument::is_kernel(module, *function))
        .collect();
    // What a kernel calls in another unit may be recorded.
    if selected.is_empty() && (!options.rdc || kernels.is_empty()) {
        return Ok(true);
    }
    prepare::lower_switches(module, &selected)?;
    let runtime = runtime::link(module, &options)?;
    if deferred {
        settle::defer(module);
    }
    let mut sites = sites::Sites::new(module, &options);
    for function in &selected {
        instrument::function(module, &runtime, &options, &mut sites, *function)?;
    }
    let rest: Vec<_> =
        select::defined(module).filter(|function| !selected.contains(function)).collect();
    // What a kernel calls may be recorded, and a function may end threads, if they are not recorded themselves.
    let nothing = Options::nothing();
    for function in rest {
        instrument::function(module, &runtime, &nothing, &mut sites, function)?;
    }
    runtime.embed(module, &sites, &hash, &kernels)?;
    module.verify().map_err(|error| format!("the pass has a defect: {error}"))?;
    Ok(true)
}
