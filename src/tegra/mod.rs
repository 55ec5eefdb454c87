//! Jetson: the ioctl interface of nvgpu, nvmap and host1x in the releases of L4T.
//!
//! `driver = "tegra-r36"` in a derive compares with the types in [`abi`].

pub mod abi;

pub use abi::ABI;
#[cfg(feature = "tegra-r32")]
pub use abi::r32;
#[cfg(feature = "tegra-r34")]
pub use abi::r34;
#[cfg(feature = "tegra-r35")]
pub use abi::r35;
#[cfg(feature = "tegra-r36")]
pub use abi::r36;
// The derive finds both beside each other.
#[doc(hidden)]
pub use crate::check;
