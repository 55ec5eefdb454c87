//! Memory that this process uses: taken from descriptors, touched between two calls, waited for.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nvabi_devmem::plugin::abi::{RawImage, RawPlane};
use nvabi_devmem::plugin::applications::RawBuffer;
use nvabi_devmem::{Access, Buffer, Intent, Mapping, Operation, Plane, Result, wait_fence};

use crate::{Failure, answer, failed, hand_out, image_of, invalid, lent, struct_size_of};

const EBUSY: c_int = 16;
const EBADF: c_int = 9;

/// What [`nvabi_alloc_take`] gives.
#[derive(Debug)]
pub struct Memory {
    /// Once it was touched. It goes before what it borrows.
    view: Mutex<Option<View>>,
    /// Apart from this, so that who borrows it does not mind where this is.
    buffer: Arc<Buffer>,
}

/// The memory as the CPU sees it, and an access that lasts from one call to another.
struct View {
    /// Borrows what `mapping` leads to.
    access: Option<Access<'static>>,
    /// Out of a box. It borrows the buffer of the memory that this is kept in.
    mapping: NonNull<Mapping<'static>>,
}

// SAFETY: what the pointer leads to is this one's alone, and may go to another thread as a mapping may.
unsafe impl Send for View {}

/// Any function may be called from any thread, and several at once.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Memory>();
};

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.access.fmt(f)
    }
}

impl View {
    fn of(buffer: &Arc<Buffer>) -> Result<Self> {
        // SAFETY: the memory that keeps this keeps the buffer too, and drops this first.
        let buffer: &'static Buffer = unsafe { &*Arc::as_ptr(buffer) };
        Ok(Self { access: None, mapping: NonNull::from(Box::leak(Box::new(buffer.map()?))) })
    }

    /// Where the memory begins.
    fn begin(&mut self, intent: Intent) -> Result<*mut u8> {
        // SAFETY: the mapping is this one's alone, no access borrows it, and it goes after the one that will.
        let mapping = unsafe { &mut *self.mapping.as_ptr() };
        let access = match intent {
            Intent::Read => mapping.read()?,
            Intent::Write => mapping.write()?,
        };
        Ok(self.access.insert(access).as_ptr())
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.access = None;
        // SAFETY: it came out of a box, and what borrowed it is gone.
        drop(unsafe { Box::from_raw(self.mapping.as_ptr()) });
    }
}

impl Memory {
    fn view(&self) -> MutexGuard<'_, Option<View>> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an access: where each plane is.
    fn begin(&self, intent: Intent) -> std::result::Result<Vec<*mut c_void>, Failure> {
        let mut view = self.view();
        if view.is_none() {
            *view = Some(View::of(&self.buffer).map_err(failed)?);
        }
        let start = match view.as_mut() {
            Some(view) if view.access.is_none() => view.begin(intent).map_err(failed)?,
            _ => return Err((EBUSY, "an access has begun and not ended".to_owned())),
        };
        let planes = &self.buffer.description().layout.planes;
        Ok(planes.iter().map(|plane| start.wrapping_add(plane.offset as usize).cast()).collect())
    }

    fn end(&self) -> std::result::Result<(), Failure> {
        // Until it has ended nobody begins another one.
        let mut view = self.view();
        let access = view.as_mut().and_then(|view| view.access.take());
        access.ok_or_else(|| invalid("no access has begun"))?.end().map_err(failed)
    }
}

fn intent_of(operation: u32) -> std::result::Result<Intent, Failure> {
    match Operation::from_number(operation) {
        Some(Operation::CpuRead) => Ok(Intent::Read),
        Some(Operation::CpuWrite) => Ok(Intent::Write),
        _ => Err(invalid(&format!(
            "operation {operation} is neither NVABI_DEVMEM_CPU_READ nor NVABI_DEVMEM_CPU_WRITE"
        ))),
    }
}

/// # Safety
///
/// A descriptor that is open stays so while `'a` lasts.
unsafe fn descriptor<'a>(fd: c_int, what: &str) -> std::result::Result<BorrowedFd<'a>, Failure> {
    match fd {
        // SAFETY: it is not -1, and the caller's to keep open.
        0.. => Ok(unsafe { BorrowedFd::borrow_raw(fd) }),
        _ => Err((EBADF, format!("{what} is {fd}"))),
    }
}

/// # Safety
///
/// The first `plane_count` descriptors are open.
unsafe fn taken(image: &RawImage, raw: &RawBuffer) -> std::result::Result<Memory, Failure> {
    let planes = (raw.planes.iter().zip(raw.fds)).take(raw.plane_count as usize);
    if raw.plane_count == 0 || raw.plane_count as usize > raw.planes.len() {
        return Err(invalid(&format!("plane_count of the buffer is {}", raw.plane_count)));
    }
    let own = |(index, (plane, fd)): (usize, (&RawPlane, c_int))| {
        // SAFETY: the caller's promise.
        let fd = unsafe { descriptor(fd, &format!("the file descriptor of plane {index}"))? };
        let fd = fd.try_clone_to_owned();
        let fd = fd.map_err(|error| {
            let number = error.raw_os_error().unwrap_or(EBADF);
            (number, format!("the file descriptor of plane {index}: {error}"))
        })?;
        Ok((fd, Plane { offset: plane.offset, pitch: plane.pitch, size: plane.size }))
    };
    let planes = planes.enumerate().map(own).collect::<std::result::Result<_, Failure>>()?;
    let buffer = Buffer::of_planes(image_of(image)?, raw.modifier, planes).map_err(failed)?;
    Ok(Memory { view: Mutex::default(), buffer: Arc::new(buffer) })
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvabi_alloc_take(
    image: *const RawImage,
    buffer: *const RawBuffer,
    memory: *mut *mut Memory,
) -> c_int {
    answer(|| {
        // SAFETY: the header's promise, of as many bytes as the first field says.
        unsafe { struct_size_of(buffer)? };
        // SAFETY: the header's promise.
        let (image, buffer) = unsafe { (lent(image, "image")?, lent(buffer, "buffer")?) };
        if memory.is_null() {
            return Err(invalid("memory is null"));
        }
        // SAFETY: the header's promise.
        let taken = unsafe { taken(image, buffer)? };
        // SAFETY: the header's promise.
        unsafe { memory.write(Box::into_raw(Box::new(taken))) };
        Ok(0)
    })
}

/// # Safety
///
/// `memory` is what [`nvabi_alloc_take`] gave, and nobody uses it any more; or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvabi_alloc_release(memory: *mut Memory) {
    if !memory.is_null() {
        // SAFETY: it came out of a box, and the caller gives it back.
        drop(unsafe { Box::from_raw(memory) });
    }
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvabi_alloc_begin(
    memory: *mut Memory,
    operation: u32,
    planes: *mut *mut c_void,
    capacity: u32,
) -> c_int {
    answer(|| {
        // SAFETY: the header's promise.
        let memory = unsafe { lent(memory.cast_const(), "memory")? };
        // Before anything has begun.
        if capacity > 0 && planes.is_null() {
            return Err(invalid("planes is null"));
        }
        let places = memory.begin(intent_of(operation)?)?;
        // SAFETY: the header's promise.
        unsafe { hand_out(&places, planes, capacity) }
    })
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvabi_alloc_end(memory: *mut Memory) -> c_int {
    answer(|| {
        // SAFETY: the header's promise.
        let memory = unsafe { lent(memory.cast_const(), "memory")? };
        memory.end()?;
        Ok(0)
    })
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvabi_alloc_wait(
    memory: *const Memory,
    operation: u32,
    milliseconds: u32,
) -> c_int {
    answer(|| {
        // SAFETY: the header's promise.
        let memory = unsafe { lent(memory, "memory")? };
        let patience = Duration::from_millis(milliseconds.into());
        memory.buffer.wait(intent_of(operation)?, patience).map_err(failed)?;
        Ok(0)
    })
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvabi_alloc_export_fence(memory: *const Memory, operation: u32) -> c_int {
    answer(|| {
        // SAFETY: the header's promise.
        let memory = unsafe { lent(memory, "memory")? };
        let fence = memory.buffer.export_fence(intent_of(operation)?).map_err(failed)?;
        Ok(fence.into_raw_fd())
    })
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvabi_alloc_import_fence(
    memory: *const Memory,
    operation: u32,
    fence: c_int,
) -> c_int {
    answer(|| {
        // SAFETY: the header's promise.
        let (memory, fence) = unsafe { (lent(memory, "memory")?, descriptor(fence, "fence")?) };
        memory.buffer.import_fence(intent_of(operation)?, fence).map_err(failed)?;
        Ok(0)
    })
}

/// # Safety
///
/// `fence` is no descriptor that another thread closes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvabi_alloc_wait_fence(fence: c_int, milliseconds: u32) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let fence = unsafe { descriptor(fence, "fence")? };
        wait_fence(fence, Duration::from_millis(milliseconds.into())).map_err(failed)?;
        Ok(0)
    })
}
