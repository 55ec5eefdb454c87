//! NVIDIA's driver ioctl interface as checked Rust types, for every driver version.
//!
//! ```text
//! abi-specs/*.toml   specs, by hand: which headers to read, which calls exist, roles of their fields
//! abi-specs/lock/    the lock: facts of the headers, tag by tag; only `nvabi lock` writes it
//!        │  build.rs: no network, no libclang
//!        ▼
//! nvabi::r550        the newest tag of a branch; nvabi::abi::v550_90_07 one tag
//! #[derive(NvProxy)] your own struct, checked against them at compile time
//! ```
//!
//! # The driver's types
//!
#![cfg_attr(feature = "driver-550", doc = "```")]
#![cfg_attr(not(feature = "driver-550"), doc = "```ignore")]
//! use nvabi::call::Control;
//! use nvabi::r550::{self, NVOS54_PARAMETERS};
//! use nvabi::{Handle, P64};
//!
//! type Cmd = r550::control::NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION;
//! let call = NVOS54_PARAMETERS {
//!     hClient: Handle(0xc1d0_0001),
//!     hObject: Handle(0xc1d0_0001),
//!     cmd: Cmd::CMD,
//!     flags: 0,
//!     params: P64(0),
//!     paramsSize: size_of::<<Cmd as nvabi::call::Call>::Params>() as u32,
//!     status: 0,
//! };
//! assert_eq!((call.cmd, call.paramsSize), (0x101, 40));
//! ```
//!
//! # Your own types
//!
#![cfg_attr(feature = "driver-550", doc = "```")]
#![cfg_attr(not(feature = "driver-550"), doc = "```ignore")]
//! #[derive(nvabi::NvProxy)]
//! #[nvproxy(name = "NVOS00_PARAMETERS", driver = "550")]
//! #[repr(C)]
//! struct Free {
//!     #[nvproxy(name = "hRoot")]
//!     client: nvabi::Handle,
//!     #[nvproxy(name = "hObjectParent")]
//!     parent: nvabi::Handle,
//!     #[nvproxy(name = "hObjectOld")]
//!     object: nvabi::Handle,
//!     status: u32,
//! }
//! ```
//!
//! It does not compile when a field moves, has another width or kind, or is missing; see
//! [`NvProxy`].
//!
//! # Features
//!
//! `driver-515` … `driver-595` turn on a branch each, `all-drivers` all of them. `full` emits everything in
//! the lock, and each command and class whose parameters the driver's own tables give, not only the
//! specs' items and their types; [`call::Info::roles_known`] is false for calls that no spec describes.
//! `zerocopy` adds zerocopy's traits to the emitted types. `libclang` verifies the lock against the headers in `NVABI_HEADERS` during
//! the build. Nothing is on by default. The minimum Rust is 1.85.
//!
//! `rm` opens and calls the x86 driver, for the branches that are enabled: the resource manager
//! (`nvabi::rm`) and UVM (`nvabi::uvm`). Without a branch there is nothing to call.
//!
//! `tegra-r32` … `tegra-r36` turn on the ioctls of a Jetson; `tegra` opens its GPU and submits work
//! ([`tegra`]).
//!
//! # What it does not do
//!
//! Without the features `rm` and `tegra` it opens no device: it only describes bytes. It does not
//! describe the methods and registers of GPUs. Types are for 64-bit little-endian Linux.
#![deny(missing_docs)]

pub mod abi;
pub mod bits;
pub mod call;
pub mod check;
pub mod driver;
#[cfg(any(feature = "rm", feature = "tegra"))]
pub mod ioctl;
pub mod proxy;
#[cfg(all(feature = "rm", any_driver))]
pub mod rm;
mod scalar;
pub mod status;
pub mod tegra;
#[cfg(all(feature = "rm", any_driver))]
pub mod uvm;

pub use abi::ABI;
#[cfg(feature = "driver-515")]
pub use abi::r515;
#[cfg(feature = "driver-520")]
pub use abi::r520;
#[cfg(feature = "driver-525")]
pub use abi::r525;
#[cfg(feature = "driver-530")]
pub use abi::r530;
#[cfg(feature = "driver-535")]
pub use abi::r535;
#[cfg(feature = "driver-545")]
pub use abi::r545;
#[cfg(feature = "driver-550")]
pub use abi::r550;
#[cfg(feature = "driver-555")]
pub use abi::r555;
#[cfg(feature = "driver-560")]
pub use abi::r560;
#[cfg(feature = "driver-565")]
pub use abi::r565;
#[cfg(feature = "driver-570")]
pub use abi::r570;
#[cfg(feature = "driver-575")]
pub use abi::r575;
#[cfg(feature = "driver-580")]
pub use abi::r580;
#[cfg(feature = "driver-590")]
pub use abi::r590;
#[cfg(feature = "driver-595")]
pub use abi::r595;
pub use bits::BitRange;
pub use nvabi_macros::NvProxy;
pub use scalar::{Handle, P64, Uuid};
pub use status::NvStatus;
#[cfg(feature = "zerocopy")]
#[doc(hidden)]
pub use zerocopy;

/// What every emitted record has; called by the emitted code alone.
#[doc(hidden)]
#[macro_export]
macro_rules! records {
    ($($name:ident),*) => {
        $(
            impl ::core::marker::Copy for $name {}
            impl ::core::clone::Clone for $name {
                #[inline]
                fn clone(&self) -> Self {
                    *self
                }
            }
            impl $crate::check::FieldType for $name {
                const TYPE: $crate::check::Type = $crate::check::Type::Record(Self::LAYOUT);
            }
        )*
    };
}
