//! Pointers that programs hand in. CUDA's contract with its callers is what makes these safe; null is
//! all that can be checked.

use std::ffi::{CStr, c_char, c_void};

use crate::fatbin::{CONTAINER, WRAPPER};
use crate::state::{Code, INVALID_VALUE, NOT_FOUND, Result};

/// A call's answer.
pub(crate) fn done(result: Result) -> Code {
    result.err().unwrap_or(crate::state::SUCCESS)
}

/// Writes where the caller wants a result.
pub(crate) fn put<T>(at: *mut T, value: T) -> Result {
    if at.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller of the C function passes a place for a `T`, and it is not null.
    unsafe { at.write_unaligned(value) };
    Ok(())
}

/// Writes where the caller may want a result.
pub(crate) fn put_if_wanted<T>(at: *mut T, value: T) {
    if !at.is_null() {
        // SAFETY: as in `put`.
        unsafe { at.write_unaligned(value) };
    }
}

/// Reads what the caller passed by address.
pub(crate) fn get<T: Copy>(at: *const T) -> Result<T> {
    if at.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller of the C function passes the address of a `T`, and it is not null.
    Ok(unsafe { at.read_unaligned() })
}

/// A string of the caller.
pub(crate) fn text<'a>(at: *const c_char) -> Result<&'a CStr> {
    if at.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller of the C function passes a string, which it keeps during the call.
    Ok(unsafe { CStr::from_ptr(at) })
}

/// Bytes of the caller.
pub(crate) fn bytes<'a>(at: *const c_void, size: usize) -> Result<&'a [u8]> {
    if at.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller of the C function says that this many bytes are there.
    Ok(unsafe { std::slice::from_raw_parts(at.cast(), size) })
}

/// Copies between any two places of this process, which may overlap.
pub(crate) fn copy(to: u64, from: u64, size: usize) {
    // SAFETY: the ranges on the device were checked, those on the host are the caller's promise. A
    // device's memory is this process's, with its provenance exposed.
    unsafe {
        std::ptr::copy(
            std::ptr::with_exposed_provenance::<u8>(from as usize),
            std::ptr::with_exposed_provenance_mut::<u8>(to as usize),
            size,
        );
    }
}

/// Fills with a pattern of 1, 2 or 4 bytes.
pub(crate) fn fill(to: u64, pattern: &[u8], count: usize) {
    let start = std::ptr::with_exposed_provenance_mut::<u8>(to as usize);
    for at in 0..count {
        // SAFETY: the range was checked to be inside an allocation.
        unsafe {
            std::ptr::copy_nonoverlapping(
                pattern.as_ptr(),
                start.add(at * pattern.len()),
                pattern.len(),
            )
        };
    }
}

/// The arguments of a kernel: an array of pointers to them, or one buffer with its size.
pub(crate) fn arguments(
    params: &[(u64, u64)],
    pointers: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<Vec<u8>> {
    let size = params.last().map_or(0, |(at, size)| at + size) as usize;
    let mut out = vec![0; size];
    if !extra.is_null() {
        // CU_LAUNCH_PARAM_BUFFER_POINTER is 1, …_SIZE 2, …_END 0.
        let (mut buffer, mut length) = (std::ptr::null(), 0usize);
        for at in (0..8).step_by(2) {
            // SAFETY: the caller ends the list with CU_LAUNCH_PARAM_END.
            let entry = unsafe { extra.add(at) };
            match get(entry)?.addr() {
                0 => break,
                // SAFETY: a key that is not the end has a value behind it.
                1 => buffer = get(unsafe { entry.add(1) })?.cast_const(),
                // SAFETY: as above; the value points to the size.
                2 => length = get(get(unsafe { entry.add(1) })?.cast::<usize>())?,
                _ => return Err(INVALID_VALUE),
            }
        }
        let given = bytes(buffer, length)?;
        let size = size.min(length);
        out[..size].copy_from_slice(&given[..size]);
        return Ok(out);
    }
    for (number, (at, size)) in params.iter().enumerate() {
        if pointers.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the array has one pointer for each parameter of the kernel.
        let argument = get(unsafe { pointers.add(number) })?;
        let (at, size) = (*at as usize, *size as usize);
        out[at..at + size].copy_from_slice(bytes(argument, size)?);
    }
    Ok(out)
}

/// The images of a module: one, or those of the units that it was linked of (`-fgpu-rdc`).
pub(crate) fn images<'a>(at: *const c_void) -> Result<Vec<&'a [u8]>> {
    let wrapper: Wrapper = match u32::from_le_bytes(get(at.cast())?) {
        WRAPPER => get(at.cast())?,
        _ => return Ok(vec![image(at)?]),
    };
    let mut units = Vec::new();
    if wrapper.version == LINKED && !wrapper.units.is_null() {
        loop {
            // SAFETY: the list of units ends with null.
            let unit = get(unsafe { wrapper.units.add(units.len()) })?;
            if unit.is_null() {
                break;
            }
            units.push(image(unit)?);
        }
    }
    // What was linked is machine code: the units have the PTX.
    if units.is_empty() { Ok(vec![image(wrapper.data)?]) } else { Ok(units) }
}

/// `__fatBinC_Wrapper_t`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Wrapper {
    _magic: u32,
    version: u32,
    data: *const c_void,
    /// Of version 2: the units' containers, then null.
    units: *const *const c_void,
}

/// The wrapper's version where units were linked.
const LINKED: u32 = 2;

/// A whole image: text that ends with a zero byte, a container, or what `cuLinkComplete` made.
fn image<'a>(at: *const c_void) -> Result<&'a [u8]> {
    let magic = u32::from_le_bytes(get(at.cast())?);
    if magic == crate::link::MAGIC {
        return bytes(at, crate::link::length(get(at.cast())?));
    }
    if magic == CONTAINER {
        let header: [u8; 16] = get(at.cast())?;
        return bytes(at, crate::fatbin::length(&header).ok_or(INVALID_VALUE)?);
    }
    if magic == u32::from_le_bytes(*b"\x7fELF") {
        return bytes(at, 4);
    }
    Ok(text(at.cast())?.to_bytes())
}

/// The address of a function by its name, as the program sees it: a preloaded library's comes first.
pub(crate) fn find(name: &CStr) -> Result<*mut c_void> {
    // SAFETY: the name is a string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() { Err(NOT_FOUND) } else { Ok(found) }
}
