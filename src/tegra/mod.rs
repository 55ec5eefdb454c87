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

#[cfg(feature = "tegra")]
mod address_space;
#[cfg(feature = "tegra")]
mod call;
#[cfg(feature = "tegra")]
mod channel;
pub mod class;
#[cfg(feature = "tegra")]
mod devfreq;
#[cfg(feature = "tegra")]
mod device;
#[cfg(feature = "tegra")]
mod error;
#[cfg(feature = "tegra")]
mod memory;
#[cfg(feature = "tegra")]
mod module;
#[cfg(feature = "tegra")]
mod push;
#[cfg(feature = "tegra")]
mod qmd;
#[cfg(feature = "tegra")]
mod release;
#[cfg(feature = "tegra")]
pub mod rm;

#[cfg(feature = "tegra")]
use abi::v35_4_1;
#[cfg(feature = "tegra")]
pub use address_space::{AddressSpace, Buffer, Imported};
#[cfg(feature = "tegra")]
pub use channel::{Channel, ChannelOptions, Subcontext, Syncpoint, Ticket, Tsg, wait_for_fence};
#[cfg(feature = "tegra")]
pub use devfreq::Boost;
#[cfg(feature = "tegra")]
pub use device::Device;
#[cfg(feature = "tegra")]
pub use error::{Error, ErrorKind, Notification, Result};
#[cfg(feature = "tegra")]
pub use memory::{Access, Cache, Memory, PAGE};
#[cfg(feature = "tegra")]
pub use module::{Kernel, Module};
#[cfg(feature = "tegra")]
pub use push::{Lines, Push, Subchannel, SyncPoint};
#[cfg(feature = "tegra")]
pub use qmd::{CONSTANT_BANKS, ConstantBank, Launch, QMD_SIZE};
#[cfg(feature = "tegra")]
pub use release::{Characteristics, Release};
