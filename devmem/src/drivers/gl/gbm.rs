//! Mesa's generic buffer manager, loaded at run time.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use libloading::Library;
use nix::errno::Errno;
use nix::libc;

use super::super::SIDE;
use crate::{
    Description, Error, ErrorKind, Fourcc, Image, MODIFIER_INVALID, Operation, Result, Usage, uapi,
};

const LIBRARY: &str = "libgbm.so.1";

/// `GBM_BO_USE_SCANOUT` and `GBM_BO_USE_RENDERING`.
const SCANOUT: u32 = 1;
const RENDERING: u32 = 4;

/// What GBM hands out and takes back: devices and buffers.
type Object = *mut c_void;

/// The library's functions, as `gbm.h` declares them.
pub(super) struct Gbm {
    create_device: unsafe extern "C" fn(c_int) -> Object,
    destroy_device: unsafe extern "C" fn(Object),
    create: unsafe extern "C" fn(Object, u32, u32, u32, u32) -> Object,
    create_with: unsafe extern "C" fn(Object, u32, u32, u32, *const u64, u32, u32) -> Object,
    destroy: unsafe extern "C" fn(Object),
    modifier: unsafe extern "C" fn(Object) -> u64,
    planes: unsafe extern "C" fn(Object) -> c_int,
    pitch: unsafe extern "C" fn(Object, c_int) -> u32,
    offset: unsafe extern "C" fn(Object, c_int) -> u32,
    fd: unsafe extern "C" fn(Object, c_int) -> c_int,
    // The functions are its.
    _library: Library,
}

impl Gbm {
    /// # Errors
    ///
    /// When there is no such library, or an older one.
    pub(super) fn load() -> Result<Self> {
        let unloaded = |error: libloading::Error| Error::new(ErrorKind::Open, error.to_string());
        // SAFETY: libgbm is the system's; what its initialisers do is the word of who installed it.
        let library = unsafe { Library::new(LIBRARY) }.map_err(unloaded)?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the field that takes it has the type that `gbm.h` gives this function, and the library
                // stays as long as the field.
                *unsafe { library.get($name) }.map_err(unloaded)?
            };
        }
        Ok(Self {
            create_device: function!(b"gbm_create_device\0"),
            destroy_device: function!(b"gbm_device_destroy\0"),
            create: function!(b"gbm_bo_create\0"),
            create_with: function!(b"gbm_bo_create_with_modifiers2\0"),
            destroy: function!(b"gbm_bo_destroy\0"),
            modifier: function!(b"gbm_bo_get_modifier\0"),
            planes: function!(b"gbm_bo_get_plane_count\0"),
            pitch: function!(b"gbm_bo_get_stride_for_plane\0"),
            offset: function!(b"gbm_bo_get_offset\0"),
            fd: function!(b"gbm_bo_get_fd_for_plane\0"),
            _library: library,
        })
    }
}

/// GBM on an open node.
pub(super) struct Device {
    gbm: Arc<Gbm>,
    object: NonNull<c_void>,
    // GBM does not close it.
    _file: File,
}

// SAFETY: a device of GBM's belongs to no thread; who has a reference to this is alone with it, as it is behind a
// mutex.
unsafe impl Send for Device {}

impl Device {
    pub(super) fn new(gbm: Arc<Gbm>, file: File) -> Result<Self> {
        // SAFETY: the descriptor is open, and stays so as long as the device.
        let object = NonNull::new(unsafe { (gbm.create_device)(file.as_raw_fd()) });
        let refused = || Error::call("gbm_create_device", io::Error::last_os_error());
        Ok(Self { object: object.ok_or_else(refused)?, gbm, _file: file })
    }

    /// What EGL takes as a native display.
    pub(super) fn as_ptr(&self) -> *mut c_void {
        self.object.as_ptr()
    }

    /// Whether a small image of the format is made to be drawn.
    pub(super) fn draws(&self, format: Fourcc) -> Result<bool> {
        Errno::clear();
        // SAFETY: the device is alive.
        let made = unsafe { (self.gbm.create)(self.as_ptr(), SIDE, SIDE, format.0, RENDERING) };
        match self.made("gbm_bo_create", made) {
            Ok(_) => Ok(true),
            Err(error) if error.is_passing() => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// Makes memory for the image with the description's modifier; where that is implicit, as the driver sees fit.
    pub(super) fn make(&self, description: &Description) -> Result<Made> {
        let Image { width, height, format: Fourcc(format) } = description.usage.image;
        let flags = flags(&description.usage);
        let modifier = description.layout.modifier;
        // What an earlier call left says nothing of this one.
        Errno::clear();
        let (call, object) = match modifier {
            MODIFIER_INVALID => {
                // SAFETY: the device is alive.
                let made =
                    unsafe { (self.gbm.create)(self.as_ptr(), width, height, format, flags) };
                ("gbm_bo_create", made)
            }
            _ => {
                let (gbm, list) = (&self.gbm, &raw const modifier);
                // SAFETY: the device is alive, and the list has one modifier.
                let made = unsafe {
                    (gbm.create_with)(self.as_ptr(), width, height, format, list, 1, flags)
                };
                ("gbm_bo_create_with_modifiers2", made)
            }
        };
        self.made(call, object)
    }

    /// What a call has made. GBM does not always say why it makes nothing, and a node that may make nothing says so each
    /// time: neither is an error that passes.
    fn made(&self, call: &str, object: Object) -> Result<Made> {
        let refused = || match Errno::last_raw() {
            0 => Error::unsupported(format!("{call} refuses it")),
            libc::EACCES | libc::EPERM => {
                Error::unsupported(format!("{call}: {}", io::Error::last_os_error()))
            }
            _ => Error::call(call, io::Error::last_os_error()),
        };
        Ok(Made { object: NonNull::new(object).ok_or_else(refused)?, gbm: self.gbm.clone() })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: GBM gave it, and nothing else is made of it: `Made` outlives neither `Gpu::allocate` nor `draws`.
        unsafe { (self.gbm.destroy_device)(self.object.as_ptr()) };
    }
}

/// What memory is made for. Where nobody says, it can be drawn.
fn flags(usage: &Usage) -> u32 {
    let does = |operation| usage.uses.iter().any(|each| each.operation == operation);
    let sampled_alone = does(Operation::Texture) && !does(Operation::Render);
    let rendering = if sampled_alone { 0 } else { RENDERING };
    let scanout = if does(Operation::Scanout) { SCANOUT } else { 0 };
    rendering | scanout
}

/// A buffer of GBM's.
pub(super) struct Made {
    object: NonNull<c_void>,
    gbm: Arc<Gbm>,
}

/// Where a plane begins, in bytes of its memory, and its pitch.
pub(super) struct Start {
    pub(super) offset: u64,
    pub(super) pitch: u64,
}

impl Made {
    /// The modifier that GBM chose; `None` where it keeps that to itself.
    pub(super) fn modifier(&self) -> Option<u64> {
        // SAFETY: the buffer is alive.
        let modifier = unsafe { (self.gbm.modifier)(self.object.as_ptr()) };
        Some(modifier).filter(|modifier| *modifier != MODIFIER_INVALID)
    }

    /// The memory of each plane, and where it begins in it.
    pub(super) fn planes(&self) -> Result<Vec<(OwnedFd, Start)>> {
        let object = self.object.as_ptr();
        // SAFETY: the buffer is alive.
        let count = unsafe { (self.gbm.planes)(object) };
        let plane = |index: c_int| {
            let refused = |error| Error::call("gbm_bo_get_fd_for_plane", error);
            // SAFETY: the buffer is alive, and has so many planes.
            let (offset, pitch, fd) = unsafe {
                let gbm = &self.gbm;
                ((gbm.offset)(object, index), (gbm.pitch)(object, index), (gbm.fd)(object, index))
            };
            // SAFETY: GBM makes a descriptor for the caller, who alone knows it.
            let fd = unsafe { uapi::own(fd) }.map_err(refused)?;
            Ok((fd, Start { offset: offset.into(), pitch: pitch.into() }))
        };
        (0..count).map(plane).collect()
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // SAFETY: GBM gave it and nobody else has it; its device is alive, which who made it holds.
        unsafe { (self.gbm.destroy)(self.object.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Use;

    #[test]
    fn memory_is_made_for_what_is_done_with_it() {
        let of = |operations: &[Operation]| {
            let uses = operations.iter().map(|operation| Use::new("gl:renderD128", *operation));
            flags(&Usage::new(Image::new(64, 64, Fourcc::new(b"NV12")), uses.collect()))
        };
        assert_eq!(of(&[]), RENDERING);
        assert_eq!(of(&[Operation::Texture]), 0);
        assert_eq!(of(&[Operation::Texture, Operation::Render]), RENDERING);
        assert_eq!(of(&[Operation::Texture, Operation::Scanout]), SCANOUT);
        assert_eq!(of(&[Operation::Scanout]), RENDERING | SCANOUT);
    }
}
