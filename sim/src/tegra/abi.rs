//! The drivers' own types, constants and ioctls, as of r36.4.

pub(crate) use nvabi::call::Ioctl;
pub(crate) use nvabi::driver::{PlainRecord, Record};
pub(crate) use nvabi::tegra::abi::v36_4::ioctl::*;
pub(crate) use nvabi::tegra::abi::v36_4::*;

/// A cast in the header hides it from those who read it without a compiler.
pub(crate) const NVGPU_GPU_IOCTL_OPEN_TSG_FLAGS_SHARE: u32 = 1;
