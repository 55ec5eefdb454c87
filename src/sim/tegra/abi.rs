//! The drivers' own types, constants and ioctls, as of r36.4.

pub(crate) use crate::call::Ioctl;
pub(crate) use crate::driver::Record;
pub(crate) use crate::tegra::abi::v36_4::ioctl::*;
pub(crate) use crate::tegra::abi::v36_4::*;

/// A cast in the header hides it from those who read it without a compiler.
pub(crate) const NVGPU_GPU_IOCTL_OPEN_TSG_FLAGS_SHARE: u32 = 1;
