//! A libcudart, of which there is one for each major version of CUDA: each of its functions jumps to one of nvabi's
//! libcuda, where the runtime is, beside the state that it shares with the driver.
//!
//! ```text
//! program ─► libcudart.so.13: cudaMemAdvise ─► slot ─► libcuda.so.1: nvabi_cudaMemAdvise_v2
//! ```
//!
//! The slots are filled when the library is loaded, before the program's start-up code registers its kernels.
//! What libcuda has no function for, prints its name and returns `cudaErrorNotSupported`. A program that has the
//! runtime in it is changed to do the same.

mod built_in;

use std::arch::naked_asm;
use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Where a function jumps to.
#[repr(C)]
#[derive(Debug)]
pub struct Slot {
    /// First, because the functions read it without knowing more.
    target: AtomicPtr<c_void>,
    name: &'static CStr,
    /// The function of libcuda, without its `nvabi_`.
    of_driver: &'static CStr,
    /// The function that jumps.
    entry: extern "C" fn(),
    told: AtomicBool,
}

impl Slot {
    /// Of a function that is called `name`, and in libcuda `of_driver`.
    pub const fn new(
        name: &'static CStr,
        of_driver: &'static CStr,
        entry: extern "C" fn(),
    ) -> Self {
        let target = AtomicPtr::new(unsupported as *mut c_void);
        Self { target, name, of_driver, entry, told: AtomicBool::new(false) }
    }
}

/// Whether the emulator's libcuda was found.
static CONNECTED: AtomicBool = AtomicBool::new(false);
/// What programs call this library.
static RUNTIME: OnceLock<&str> = OnceLock::new();

/// A runtime of a name: exports functions and has the loader fill their slots. `name = other` is a function that libcuda
/// has under another name: CUDA 13 dropped the numbers of newer forms.
#[macro_export]
macro_rules! runtime {
    ($runtime:literal: $($name:ident $(= $other:ident)?),* $(,)?) => {
        $(mod $name {
            pub(super) static SLOT: $crate::Slot = $crate::Slot::new(
                $crate::c_name!($name),
                $crate::c_name!($name $(= $other)?),
                $name,
            );

            /// Leaves everything as it is, stack and registers of arguments: it is the function that it jumps
            /// to that has been called.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
                std::arch::naked_asm!(
                    "lea r11, [rip + {slot}]",
                    "jmp qword ptr [r11]",
                    slot = sym SLOT,
                );
                #[cfg(target_arch = "aarch64")]
                std::arch::naked_asm!(
                    "adrp x16, {slot}",
                    "add x16, x16, :lo12:{slot}",
                    "ldr x17, [x16]",
                    "br x17",
                    slot = sym SLOT,
                );
            }
        })*

        /// Run by the loader before any code of the program, and of libraries that need this one.
        #[used]
        #[unsafe(link_section = ".init_array")]
        static CONNECT: extern "C" fn() = {
            extern "C" fn connect() {
                $crate::connect($runtime, &[$(&$name::SLOT),*]);
            }
            connect
        };
    };
}

/// The text of a name; of two, of the second.
#[doc(hidden)]
#[macro_export]
macro_rules! c_name {
    ($name:ident) => {
        match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a name has one zero byte, at its end"),
        }
    };
    ($name:ident = $other:ident) => {
        $crate::c_name!($other)
    };
}

/// What a slot has until there is something better: it finds the slot where the function left it, in a
/// register that no call keeps or passes arguments in.
#[unsafe(naked)]
extern "C" fn unsupported() {
    #[cfg(target_arch = "x86_64")]
    naked_asm!("mov rdi, r11", "jmp {report}", report = sym report);
    #[cfg(target_arch = "aarch64")]
    naked_asm!("mov x0, x16", "b {report}", report = sym report);
}

/// Says, once for each function, that it is not there; the answer is `cudaErrorNotSupported`.
extern "C" fn report(slot: &Slot) -> u32 {
    if !slot.told.swap(true, Ordering::Relaxed) {
        let name = slot.name.to_string_lossy();
        if CONNECTED.load(Ordering::Relaxed) {
            eprintln!("nvabi-emu: {name} is not supported: it returns error 801");
        } else {
            let runtime = RUNTIME.get().copied().unwrap_or("libcudart");
            eprintln!("nvabi-emu: {name}: libcuda.so.1 of the emulator is not beside {runtime}");
        }
    }
    801
}

/// Fills the slots of a library that programs call `runtime`.
pub fn connect(runtime: &'static str, slots: &[&'static Slot]) {
    RUNTIME.get_or_init(|| runtime);
    let Some(library) = libcuda() else { return };
    CONNECTED.store(true, Ordering::Relaxed);
    for slot in slots {
        let target =
            find(library, slot.of_driver).or_else(|| find(library, &of_any_thread(slot.of_driver)));
        if let Some(target) = target {
            slot.target.store(target, Ordering::Relaxed);
        }
    }
    built_in::replace(runtime, slots);
}

/// The emulator's libcuda: where the loader finds libcuda, or else beside this library.
fn libcuda() -> Option<*mut c_void> {
    let beside = own_path().map(|path| {
        let folder = |path: &PathBuf| path.parent().map(PathBuf::from).unwrap_or_default();
        let link = folder(&path).join("libcuda.so.1");
        let built = path.canonicalize().map(|path| folder(&path).join("libnvabi_cuda.so"));
        std::iter::once(link).chain(built)
    });
    let named = std::iter::once(PathBuf::from("libcuda.so.1"));
    named.chain(beside.into_iter().flatten()).find_map(|path| {
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        // SAFETY: `path` is a string of C. Of a library that is not the emulator's nothing is called; its
        // constructors are those of a libcuda, which the program asked for by loading the runtime.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        let is_ours = !library.is_null() && find(library, c"cudaMalloc").is_some();
        is_ours.then_some(library)
    })
}

/// The name without the ending of functions whose default stream is the thread's own: every call is done when
/// it returns, so that they do the same.
fn of_any_thread(name: &CStr) -> CString {
    let bytes = name.to_bytes();
    let plain = bytes.strip_suffix(b"_ptsz").or(bytes.strip_suffix(b"_ptds")).unwrap_or(bytes);
    CString::new(plain).unwrap_or_default()
}

/// A function of the runtime in libcuda.
fn find(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    let name = CString::new([b"nvabi_", name.to_bytes()].concat()).ok()?;
    // SAFETY: `library` is a handle that dlopen(3) gave and that nobody closes; `name` is a string of C.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The path that this library was loaded from.
fn own_path() -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr(3) takes any address, and fills in what the second argument points to; zeros are a valid
    // `Dl_info`, so that it is one in either case.
    let (found, info) =
        unsafe { (libc::dladdr(connect as *const c_void, info.as_mut_ptr()), info.assume_init()) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr(3) found the object: its name is a string that stays while the object is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())))
}
