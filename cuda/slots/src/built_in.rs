//! Programs that have NVIDIA's runtime in them: nvcc links `libcudart_static` unless told otherwise. That runtime asks
//! the driver for private tables, which the emulator has not; its functions are replaced instead. Where this library is
//! loaded before the program (`LD_PRELOAD`, as `nvabi emu` does), each function of the runtime that the program's table
//! of symbols names becomes a jump to the one of the same name here, before the program registers its kernels.

use std::collections::HashMap;
use std::io::{Error, Result};
use std::{fs, ptr, slice};

use object::{Object as _, ObjectSymbol as _, SymbolKind};

use crate::Slot;

/// A jump to any address: the address is behind it.
#[cfg(target_arch = "x86_64")]
const JUMP: &[u8] = &[0xff, 0x25, 0, 0, 0, 0];
/// `ldr x16, #8` and `br x16`.
#[cfg(target_arch = "aarch64")]
const JUMP: &[u8] = &[0x50, 0, 0, 0x58, 0, 2, 0x1f, 0xd6];

const LENGTH: usize = JUMP.len() + size_of::<usize>();

/// A function that the runtime has since CUDA 13.
const SINCE_13: &[u8] = b"cudaLogsCurrent";

/// Replaces the program's own runtime, if it has one of the version that this one is: of other versions functions have
/// the same names and take other arguments.
pub(crate) fn replace(runtime: &str, slots: &[&Slot]) {
    let Some(file) = fs::read("/proc/self/exe").ok() else { return };
    let Some(Own { functions, is_13 }) = Own::of(&file, slots) else { return };
    let own = if is_13 { "libcudart.so.13" } else { "libcudart.so.12" };
    if own != runtime && !functions.is_empty() {
        eprintln!(
            "nvabi-emu: the runtime in the program is not replaced by {runtime}: it is {own}"
        );
        return;
    }
    for (offset, slot) in functions {
        let name = slot.name.to_string_lossy();
        if let Err(error) = patch(base().wrapping_add(offset), slot.entry as usize) {
            eprintln!("nvabi-emu: {name} in the program itself cannot be replaced: {error}");
            return;
        }
    }
}

/// What a file has of the runtime.
struct Own<'a> {
    /// Where its functions are, as far as they have room for a jump.
    functions: Vec<(usize, &'a Slot)>,
    is_13: bool,
}

impl<'a> Own<'a> {
    /// None of what is no program.
    fn of(file: &[u8], slots: &[&'a Slot]) -> Option<Self> {
        let file = object::File::parse(file).ok()?;
        let mut starts = Vec::new();
        let mut own = Self { functions: Vec::new(), is_13: false };
        let slots: HashMap<&[u8], &Slot> =
            slots.iter().map(|slot| (slot.name.to_bytes(), *slot)).collect();
        for symbol in file
            .symbols()
            .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text)
        {
            let address = usize::try_from(symbol.address()).ok()?;
            starts.push(address);
            let Ok(name) = symbol.name_bytes() else { continue };
            own.is_13 |= name == SINCE_13;
            if let Some(slot) = slots.get(name) {
                own.functions.push((address, *slot));
            }
        }
        starts.sort_unstable();
        let has_room = |address: usize| {
            let next = starts.partition_point(|&start| start <= address);
            starts.get(next).is_none_or(|next| next - address >= LENGTH)
        };
        own.functions.retain(|&(address, _)| has_room(address));
        Some(own)
    }
}

/// What is added to the addresses in the program's file.
fn base() -> usize {
    extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, base: *mut libc::c_void) -> i32 {
        // SAFETY: dl_iterate_phdr(3) hands out a valid description and the pointer that it was given, to `base` below.
        unsafe { *base.cast::<usize>() = (*info).dlpi_addr as usize };
        // The program itself is the first: no more are wanted.
        1
    }
    let mut base = 0usize;
    // SAFETY: the function has the type that is asked for, and `base` lives as long as the call.
    unsafe { libc::dl_iterate_phdr(Some(first), ptr::from_mut(&mut base).cast()) };
    base
}

/// Puts a jump to `target` where a function begins.
fn patch(function: usize, target: usize) -> Result<()> {
    // SAFETY: sysconf(3) reads a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let start = function / page * page;
    let length = (function + LENGTH).next_multiple_of(page) - start;
    let protect = |protection| {
        // SAFETY: the pages hold code of the program, which stays readable and executable.
        match unsafe { libc::mprotect(start as *mut libc::c_void, length, protection) } {
            0 => Ok(()),
            _ => Err(Error::last_os_error()),
        }
    };
    protect(libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC)?;
    // SAFETY: the function has so many bytes up to the next one, they are writable, and nothing runs in them: the
    // loader has not come to the program's own code yet.
    let code = unsafe { slice::from_raw_parts_mut(function as *mut u8, LENGTH) };
    code[..JUMP.len()].copy_from_slice(JUMP);
    code[JUMP.len()..].copy_from_slice(&target.to_ne_bytes());
    #[cfg(target_arch = "aarch64")]
    clear_cache(function);
    protect(libc::PROT_READ | libc::PROT_EXEC)
}

/// What was written becomes what is run: of the lines of a cache that the jump is in, each is written back and dropped.
#[cfg(target_arch = "aarch64")]
fn clear_cache(function: usize) {
    for address in [function, function + LENGTH - 1] {
        // SAFETY: the instructions have an effect on caches alone; the address is one of the program's.
        unsafe {
            std::arch::asm!("dc cvau, {0}", "dsb ish", "ic ivau, {0}", "dsb ish", "isb", in(reg) address);
        }
    }
}
