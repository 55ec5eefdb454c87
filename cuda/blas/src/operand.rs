//! Vectors and matrices of the program: where they are, and that they are inside an allocation.

use std::ffi::{CStr, c_void};
use std::mem::size_of;

use crate::context::{EXECUTION_FAILED, INVALID_VALUE, Result, print_message};

/// A function of the emulator's libcuda, as the program sees it.
fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: `name` ends with a zero byte, and RTLD_DEFAULT is a handle that is always valid.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The allocation of the device around an address.
fn allocation(address: u64) -> Option<(u64, u64)> {
    type Range = unsafe extern "C" fn(*mut u64, *mut usize, u64) -> u32;
    let function = find(c"cuMemGetAddressRange_v2")?;
    let (mut start, mut size) = (0, 0);
    // SAFETY: symbols of this name have the type that CUDA documents, which is `Range`; the results have room.
    let code = unsafe {
        std::mem::transmute::<*mut c_void, Range>(function)(&raw mut start, &raw mut size, address)
    };
    (code == 0).then(|| (start, start + size as u64))
}

/// Whether a stream adds to a graph what it is asked to do.
pub(crate) fn is_capturing(stream: usize) -> bool {
    type Capturing = unsafe extern "C" fn(usize, *mut u32) -> u32;
    let Some(function) = find(c"cuStreamIsCapturing") else { return false };
    let mut capturing = 0;
    // SAFETY: as in `allocation`.
    let code = unsafe {
        std::mem::transmute::<*mut c_void, Capturing>(function)(stream, &raw mut capturing)
    };
    code == 0 && capturing != 0
}

/// Tells the emulator that memory is written: what cuBLAS is given is not watched, be it read or written.
fn written(address: u64, bytes: u64) {
    type Written = unsafe extern "C" fn(u64, u64);
    if let Some(function) = find(c"nvabi_emu_written") {
        // SAFETY: the emulator's libcuda alone has this name, with this type.
        unsafe { std::mem::transmute::<*mut c_void, Written>(function)(address, bytes) };
    }
}

/// Work on memory of the device, as long as this lives: memory does not move meanwhile.
pub(crate) struct Work(());

impl Work {
    pub(crate) fn begin() -> Self {
        tell(c"nvabi_emu_work_begins");
        Self(())
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        tell(c"nvabi_emu_work_ends");
    }
}

/// Calls a function of the emulator's libcuda that takes nothing.
fn tell(name: &CStr) {
    type Told = unsafe extern "C" fn();
    if let Some(function) = find(name) {
        // SAFETY: the emulator's libcuda alone has these names, with this type.
        unsafe { std::mem::transmute::<*mut c_void, Told>(function)() };
    }
}

/// Says which argument is not where it must be.
pub(crate) fn check(name: &str, address: u64, bytes: u64, align: usize) -> Result {
    if bytes == 0 {
        return Ok(());
    }
    if address % align as u64 != 0 {
        print_message(&format!("cuBLAS: {name} at {address:#x} is not aligned to {align} bytes"));
        return Err(EXECUTION_FAILED);
    }
    match allocation(address) {
        Some((_, end)) if bytes <= end - address => {
            written(address, bytes);
            Ok(())
        }
        Some((start, end)) => {
            print_message(&format!(
                "cuBLAS: {name} has {bytes} bytes from {address:#x} on, but of the allocation of {} bytes {} are left",
                end - start,
                end - address
            ));
            Err(EXECUTION_FAILED)
        }
        None => {
            print_message(&format!("cuBLAS: {name} at {address:#x} is no memory of the device"));
            Err(EXECUTION_FAILED)
        }
    }
}

/// A matrix: its rows and columns, and elements from one row to the next and from one column to the next.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<T> {
    pub(crate) at: *mut T,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) row_step: isize,
    pub(crate) column_step: isize,
}

/// How many, as C counts them.
pub(crate) fn count(value: i64) -> Result<usize> {
    usize::try_from(value).map_err(|_| INVALID_VALUE)
}

impl<T> Matrix<T> {
    /// A matrix by columns, `lead` elements apart; transposed, if that is how it is used.
    pub(crate) fn new(
        name: &str,
        at: *const T,
        [rows, columns]: [usize; 2],
        lead: i64,
        transposed: bool,
    ) -> Result<Self> {
        let lead = count(lead)?;
        let (height, width) = if transposed { (columns, rows) } else { (rows, columns) };
        if lead < height.max(1) {
            print_message(&format!(
                "cuBLAS: {name} has {height} rows, but its columns are {lead} apart"
            ));
            return Err(INVALID_VALUE);
        }
        if height != 0 && width != 0 {
            let elements = (width - 1).checked_mul(lead).and_then(|all| all.checked_add(height));
            let bytes = elements.and_then(|all| all.checked_mul(size_of::<T>()));
            check(name, at.addr() as u64, bytes.ok_or(INVALID_VALUE)? as u64, align_of::<T>())?;
        }
        let (row_step, column_step) =
            if transposed { (lead as isize, 1) } else { (1, lead as isize) };
        Ok(Self { at: at.cast_mut(), rows, columns, row_step, column_step })
    }

    /// A vector as a matrix of one column. A negative step begins at its other end.
    pub(crate) fn vector(name: &str, at: *const T, length: usize, step: i64) -> Result<Self> {
        let apart = usize::try_from(step.unsigned_abs()).map_err(|_| INVALID_VALUE)?;
        let span = length.saturating_sub(1).checked_mul(apart).ok_or(INVALID_VALUE)?;
        if length != 0 {
            let bytes = span.checked_add(1).and_then(|all| all.checked_mul(size_of::<T>()));
            check(name, at.addr() as u64, bytes.ok_or(INVALID_VALUE)? as u64, align_of::<T>())?;
        }
        let first = if step < 0 { at.wrapping_add(span) } else { at };
        Ok(Self {
            at: first.cast_mut(),
            rows: length,
            columns: 1,
            row_step: step as isize,
            column_step: 1,
        })
    }

    pub(crate) fn transposed(self) -> Self {
        let Self { at, rows, columns, row_step, column_step } = self;
        Self { at, rows: columns, columns: rows, row_step: column_step, column_step: row_step }
    }

    /// Where an element is, which must be one of the matrix.
    pub(crate) fn place(&self, row: usize, column: usize) -> *mut T {
        self.at.wrapping_offset(row as isize * self.row_step + column as isize * self.column_step)
    }
}

impl<T: Copy> Matrix<T> {
    /// An element, which must be one of the matrix.
    pub(crate) fn get(&self, row: usize, column: usize) -> T {
        // SAFETY: `new` and `vector` have seen that every element is inside one allocation, which stays: it is the
        // program's to keep until the call returns, as cuBLAS documents its arguments.
        unsafe { self.place(row, column).read() }
    }

    pub(crate) fn set(&self, row: usize, column: usize, value: T) {
        // SAFETY: as in `get`; memory of the device may be written.
        unsafe { self.place(row, column).write(value) };
    }
}
