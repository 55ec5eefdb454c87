//! This crate's own structs, checked against DRM's while they compile.
#![allow(missing_docs, reason = "DRM's headers say what the fields mean")]

use nvabi::{NvProxy, P64};

/// `DRM_IOCTL_VERSION`, under Rust names. The padding that C puts after three `int`s is spelled out.
#[derive(NvProxy, Clone, Copy, Debug, Default)]
#[nvproxy(name = "drm_version_t", crate = "crate::drm")]
#[repr(C)]
pub struct Version {
    #[nvproxy(name = "version_major")]
    pub major: i32,
    #[nvproxy(name = "version_minor")]
    pub minor: i32,
    #[nvproxy(name = "version_patchlevel")]
    pub patch: i32,
    pub _pad: u32,
    pub name_len: u64,
    pub name: P64,
    pub date_len: u64,
    pub date: P64,
    #[nvproxy(name = "desc_len")]
    pub description_len: u64,
    #[nvproxy(name = "desc")]
    pub description: P64,
}

/// `DRM_IOCTL_PRIME_HANDLE_TO_FD` and back.
#[derive(NvProxy, Clone, Copy, Debug, Default)]
#[nvproxy(name = "drm_prime_handle", crate = "crate::drm")]
#[repr(C)]
pub struct PrimeHandle {
    pub handle: u32,
    pub flags: u32,
    pub fd: i32,
}

/// A dumb buffer's shape, which is the same in several calls.
#[derive(NvProxy, Clone, Copy, Debug, Default)]
#[nvproxy(name = "drm_mode_create_dumb", crate = "crate::drm", flatten)]
#[repr(C)]
pub struct CreateDumb {
    pub height: u32,
    pub width: u32,
    #[nvproxy(name = "bpp")]
    pub bits_per_pixel: u32,
    pub flags: u32,
    pub handle: u32,
    pub pitch: u32,
    pub size: u64,
}
