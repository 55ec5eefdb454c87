//! Pointers that programs hand in, as types that say what CUDA's documentation promises of them.
//!
//! Each type here has the layout of a C pointer and is only made by a C program: as a parameter of an
//! exported function. The functions are `unsafe`, and their contract is that each parameter keeps the
//! invariant of its type for the call. The C program upholds it, because CUDA documents the parameters so
//! (CUDA Driver API, CUDA Runtime API: "Parameters" of each function). The lifetime of a type is that of the
//! call, for any call, so that nothing can be kept longer. Of all that, only null can be checked.

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;

use crate::fatbin::{CONTAINER, WRAPPER};
use crate::state::{Code, INVALID_VALUE, NOT_FOUND, Result};

/// A call's answer.
pub(crate) fn status_of(result: Result) -> Code {
    result.err().unwrap_or(crate::state::SUCCESS)
}

/// Where a call gives a result: "Returned …" in CUDA's documentation.
///
/// Invariant: null, or valid for a write of a `T`, at any alignment, during the call.
#[repr(transparent)]
pub(crate) struct Out<'call, T>(*mut T, PhantomData<&'call mut T>);

impl<T> Out<'_, T> {
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Writes where the caller wants a result.
    pub(crate) fn put(self, value: T) -> Result {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the invariant of the type, and it is not null.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes where the caller may want a result.
    pub(crate) fn put_if_wanted(self, value: T) {
        // Null is how a caller says that it does not.
        let _ = self.put(value);
    }
}

impl<'call> Out<'call, c_void> {
    /// A result whose type another parameter decides.
    ///
    /// # Safety
    ///
    /// If it is not null, it is valid for a write of a `T`.
    pub(crate) unsafe fn of<T>(self) -> Out<'call, T> {
        Out(self.0.cast(), PhantomData)
    }
}

impl Out<'_, c_char> {
    /// Writes a string.
    ///
    /// # Safety
    ///
    /// If it is not null, it is valid for writes of `length` bytes.
    pub(crate) unsafe fn put_text(self, value: &CStr, length: usize) -> Result {
        let bytes = value.to_bytes_with_nul();
        if self.0.is_null() || length < bytes.len() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller promises `length` bytes, which are enough for the string. It is a constant of
        // this library, so that the program has no pointer to write to it with.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.cast(), bytes.len()) };
        Ok(())
    }
}

/// A record that a call reads.
///
/// Invariant: null, or valid for a read of an initialised `T`, at any alignment, during the call.
#[repr(transparent)]
pub(crate) struct In<'call, T>(*const T, PhantomData<&'call T>);

impl<T: Copy> In<'_, T> {
    pub(crate) fn get(&self) -> Result<T> {
        // SAFETY: the invariant of the type is what the function asks for.
        unsafe { get(self.0) }
    }

    /// What is there, or none where the caller gives null.
    pub(crate) fn get_if_given(&self) -> Result<Option<T>> {
        if self.0.is_null() { Ok(None) } else { self.get().map(Some) }
    }
}

/// A string: "… name", "… path" in CUDA's documentation.
///
/// Invariant: null, or a string of C that ends with a zero byte and that nobody writes to during the call.
#[repr(transparent)]
pub(crate) struct Text<'call>(*const c_char, PhantomData<&'call c_char>);

impl<'call> Text<'call> {
    pub(crate) fn get(&self) -> Result<&'call CStr> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the invariant of the type, and it is not null; the result lives as long as the call.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }
}

/// Reads a value of the program.
///
/// # Safety
///
/// `at` is null, or valid for a read of an initialised `T`, at any alignment.
pub(crate) unsafe fn get<T: Copy>(at: *const T) -> Result<T> {
    if at.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller promises a `T` there, and it is not null.
    Ok(unsafe { at.read_unaligned() })
}

/// Gives a list as CUDA does: where the program has no room, its length alone; else up to as many as it says, with
/// null for those that are not there.
///
/// # Safety
///
/// `count` is null or valid for reads and writes; `out` is null, or valid for writes of as many as it says.
pub(crate) unsafe fn put_list(
    list: &[*mut c_void],
    out: *mut *mut c_void,
    count: *mut usize,
) -> Result {
    // SAFETY: the caller promises that the length can be read, and that there is room for as many.
    unsafe {
        let room = get(count.cast_const())?;
        if !out.is_null() {
            for at in 0..room {
                let value = list.get(at).copied().unwrap_or(std::ptr::null_mut());
                out.add(at).write_unaligned(value);
            }
        }
        let given = if out.is_null() { list.len() } else { list.len().min(room) };
        count.write_unaligned(given);
    }
    Ok(())
}

/// Bytes of the program.
///
/// # Safety
///
/// `at` is null, or `size` initialised bytes are there, which nobody writes to during `'a`.
pub(crate) unsafe fn bytes<'a>(at: *const c_void, size: usize) -> Result<&'a [u8]> {
    // A slice is never larger than this.
    if at.is_null() || isize::try_from(size).is_err() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller promises the bytes, and they are not null nor too many.
    Ok(unsafe { std::slice::from_raw_parts(at.cast(), size) })
}

/// Copies between any two places of this process, which may overlap.
///
/// # Safety
///
/// `size` bytes at `from` are valid for reads and at `to` for writes, each in memory of the device, or in
/// memory of the host that no Rust code has a reference to. Provenance is not asked for: memory of the device
/// is exposed, and pointers of the C program are exposed when it passes them to this library as integers.
pub(crate) unsafe fn copy(to: u64, from: u64, size: usize) {
    // SAFETY: by this function's contract both ranges are valid for `size` bytes and nothing of Rust's borrows
    // them; `copy` lets them overlap, and bytes have no alignment.
    unsafe {
        std::ptr::copy(
            std::ptr::with_exposed_provenance::<u8>(from as usize),
            std::ptr::with_exposed_provenance_mut::<u8>(to as usize),
            size,
        );
    }
}

/// The arguments of a kernel: an array of pointers to them, or one buffer with its size.
///
/// # Safety
///
/// As CUDA documents `kernelParams` and `extra` of `cuLaunchKernel`: `pointers` is null, or an array with a
/// pointer to an argument for each of `params`, which has as many bytes as the parameter. `extra` is null,
/// or a list of keys and values that CU_LAUNCH_PARAM_END ends, where CU_LAUNCH_PARAM_BUFFER_POINTER has a
/// buffer with as many bytes as the `size_t` that CU_LAUNCH_PARAM_BUFFER_SIZE points to.
pub(crate) unsafe fn arguments(
    params: &[(u64, u64)],
    pointers: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<Vec<u8>> {
    let size = params.last().map_or(0, |(at, size)| at + size) as usize;
    let mut out = vec![0; size];
    if !extra.is_null() {
        // SAFETY: the caller promises the list.
        let given = unsafe { argument_buffer(extra)? };
        let size = size.min(given.len());
        out[..size].copy_from_slice(&given[..size]);
        return Ok(out);
    }
    for (number, (at, size)) in params.iter().enumerate() {
        if pointers.is_null() {
            return Err(INVALID_VALUE);
        }
        let (at, size) = (*at as usize, *size as usize);
        // SAFETY: the array is not null, so it has a pointer for this parameter, to `size` bytes.
        let argument = unsafe { bytes(get(pointers.add(number))?, size)? };
        out[at..at + size].copy_from_slice(argument);
    }
    Ok(out)
}

/// # Safety
///
/// Of `extra` as of [`arguments`]; it is not null.
unsafe fn argument_buffer<'a>(extra: *mut *mut c_void) -> Result<&'a [u8]> {
    // CU_LAUNCH_PARAM_BUFFER_POINTER is 1, …_SIZE 2, …_END 0.
    let (mut buffer, mut length) = (std::ptr::null(), 0usize);
    for at in (0..8).step_by(2) {
        // SAFETY: no key before this one was the end, so that this one is in the list, and unless it is the
        // end itself, so is a value behind it. The value of the size points to a `size_t`.
        unsafe {
            let entry = extra.add(at);
            match get(entry)?.addr() {
                0 => break,
                1 => buffer = get(entry.add(1))?.cast_const(),
                2 => length = get(get(entry.add(1))?.cast::<usize>())?,
                _ => return Err(INVALID_VALUE),
            }
        }
    }
    // SAFETY: the buffer has as many bytes as the list says.
    unsafe { bytes(buffer, length) }
}

/// Code that a program hands in: "Module data to load", or the fatbin that its start-up code registers.
///
/// Invariant: null, or during the call readable and not written to, and of a form that tells its own length:
/// a `__fatBinC_Wrapper_t`, a container with its header, PTX that ends with a zero byte, a whole ELF of 64 bits,
/// or an image that `cuLinkComplete` of this library gave. At least 4 bytes are there.
#[repr(transparent)]
pub(crate) struct Image<'call>(*const c_void, PhantomData<&'call c_void>);

// SAFETY: it is read only, and by its invariant nobody writes to what it points to while it lives.
unsafe impl Send for Image<'_> {}

impl Image<'_> {
    /// The images of a module: one, or those of the units that it was linked of (`-fgpu-rdc`).
    pub(crate) fn units(&self) -> Result<Vec<&[u8]>> {
        // SAFETY: the invariant of the type: one of the forms, each of which has 4 bytes.
        let magic = unsafe { get(self.0.cast::<[u8; 4]>())? };
        if u32::from_le_bytes(magic) != WRAPPER {
            // SAFETY: it is one of the forms, and no wrapper.
            return Ok(vec![unsafe { image(self.0)? }]);
        }
        // SAFETY: the magic says that it is a wrapper.
        let wrapper: Wrapper = unsafe { get(self.0.cast())? };
        let mut units = Vec::new();
        if wrapper.version == LINKED && !wrapper.units.is_null() {
            loop {
                // SAFETY: clang and nvcc end the list of units with null (`__fatBinC_Wrapper_t` of version
                // 2), and none of those before was. Each unit is a container.
                unsafe {
                    let unit = get(wrapper.units.add(units.len()))?;
                    if unit.is_null() {
                        break;
                    }
                    units.push(image(unit)?);
                }
            }
        }
        // What was linked is machine code: the units have the PTX.
        if units.is_empty() {
            // SAFETY: `data` of a wrapper points to a container.
            units.push(unsafe { image(wrapper.data)? });
        }
        Ok(units)
    }
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
///
/// # Safety
///
/// `at` keeps the invariant of [`Image`] during `'a`, and is no wrapper.
unsafe fn image<'a>(at: *const c_void) -> Result<&'a [u8]> {
    // SAFETY: every form has 4 bytes. An image of `cuLinkComplete` and a container have 16 bytes of header,
    // and as many bytes in all as the header says; an ELF has 64 bytes of header, and the tables and sections
    // that it tells of; what is none of them is text that ends with a zero byte.
    unsafe {
        match get(at.cast::<[u8; 4]>()).map(u32::from_le_bytes)? {
            crate::link::MAGIC => bytes(at, crate::link::length(get(at.cast())?)),
            CONTAINER => {
                let header: [u8; 16] = get(at.cast())?;
                bytes(at, crate::fatbin::length(&header).ok_or(INVALID_VALUE)?)
            }
            ELF => bytes(at, elf_length(at)?),
            _ => Ok(CStr::from_ptr(at.cast()).to_bytes()),
        }
    }
}

/// The length of an ELF: where the last of its tables and sections ends.
///
/// # Safety
///
/// At `at` is a whole ELF of 64 bits.
unsafe fn elf_length(at: *const c_void) -> Result<usize> {
    const HEADER: usize = 64;
    const SECTION: usize = 64;
    const NO_BYTES: u32 = 8;
    fn number<const N: usize>(bytes: &[u8; HEADER], at: usize) -> usize {
        let mut word = [0; 8];
        word[..N].copy_from_slice(&bytes[at..at + N]);
        u64::from_le_bytes(word) as usize
    }
    // SAFETY: an ELF has its header.
    let header: [u8; HEADER] = unsafe { get(at.cast())? };
    let end = |start: usize, count: usize, size: usize| {
        count.checked_mul(size).and_then(|bytes| bytes.checked_add(start)).ok_or(INVALID_VALUE)
    };
    let (table, count) = (number::<8>(&header, 40), number::<2>(&header, 60));
    if count != 0 && number::<2>(&header, 58) != SECTION {
        return Err(INVALID_VALUE);
    }
    let programs =
        end(number::<8>(&header, 32), number::<2>(&header, 56), number::<2>(&header, 54))?;
    let mut last = HEADER.max(programs).max(end(table, count, SECTION)?);
    for section in 0..count {
        // SAFETY: the table of an ELF has as many entries as its header says.
        let entry: [u8; SECTION] = unsafe { get(at.byte_add(table + section * SECTION).cast())? };
        if number::<4>(&entry, 4) as u32 != NO_BYTES {
            last = last.max(end(number::<8>(&entry, 24), 1, number::<8>(&entry, 32))?);
        }
    }
    Ok(last)
}

const ELF: u32 = u32::from_le_bytes(*b"\x7fELF");

/// The address of a function by its name, as the program sees it: a preloaded library's comes first.
pub(crate) fn find(name: &CStr) -> Result<*mut c_void> {
    // SAFETY: `name` ends with a zero byte (`CStr`), which is all that dlsym(3) asks of it; RTLD_DEFAULT is
    // a handle that is always valid.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() { Err(NOT_FOUND) } else { Ok(found) }
}
