//! The x86 driver's resource manager (RM): clients, objects, commands, memory and events.
//!
//! Classes and commands are types of a driver's module; they carry their number and the type of their
//! parameters, so that a wrong one does not compile. Which driver the machine has turns out when a
//! client is opened: a call that it does not have, or has otherwise, is refused before it is made.
//!
#![cfg_attr(feature = "driver-550", doc = "```no_run")]
#![cfg_attr(not(feature = "driver-550"), doc = "```ignore")]
//! use nvabi::driver::Record;
//! use nvabi::r550::{self, class, control};
//! use nvabi::rm::RmClient;
//!
//! let client = RmClient::open()?;
//! println!("driver {}", client.driver().version());
//! for card in client.cards()? {
//!     // The GPU is up while its node is open.
//!     let _gpu = client.open_gpu(card.minor)?;
//!     let id = client.ask::<control::NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2>(|params| {
//!         params.gpuId = card.gpu_id;
//!     })?;
//!     let mut params = r550::NV0080_ALLOC_PARAMETERS {
//!         deviceId: id.deviceInstance,
//!         ..Record::zeroed()
//!     };
//!     let device = client.alloc::<class::NV01_DEVICE_0>(&mut params)?;
//!     let mut params = r550::NV2080_ALLOC_PARAMETERS { subDeviceId: id.subDeviceInstance };
//!     let subdevice = device.alloc::<class::NV20_SUBDEVICE_0>(&mut params)?;
//!     let gpu = subdevice.ask::<control::NV2080_CTRL_CMD_GPU_GET_GID_INFO>(|params| {
//!         params.flags = 2;
//!     })?;
//!     println!("{} has a UUID of {} bytes", card.pci, gpu.length);
//! }
//! # Ok::<(), nvabi::rm::Error>(())
//! ```
//!
//! The parameters of another command do not compile:
//!
#![cfg_attr(feature = "driver-550", doc = "```compile_fail,E0308")]
#![cfg_attr(not(feature = "driver-550"), doc = "```ignore")]
//! use nvabi::driver::Record;
//! use nvabi::r550::{self, control};
//! # fn f(client: nvabi::rm::RmClient) -> nvabi::rm::Result<()> {
//! let mut params = r550::NV2080_CTRL_GPU_GET_GID_INFO_PARAMS::zeroed();
//! client.control::<control::NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2>(&mut params)
//! # }
//! ```
//!
//! nor does a class where a command is wanted, nor a command with pointers where it is not said that
//! they are right:
//!
#![cfg_attr(feature = "driver-550", doc = "```compile_fail,E0277")]
#![cfg_attr(not(feature = "driver-550"), doc = "```ignore")]
//! # fn f(client: nvabi::rm::RmClient) -> nvabi::rm::Result<()> {
//! client.control::<nvabi::r550::class::NV20_SUBDEVICE_DIAG>(&mut ())
//! # }
//! ```
//!
#![cfg_attr(feature = "driver-550", doc = "```compile_fail,E0277")]
#![cfg_attr(not(feature = "driver-550"), doc = "```ignore")]
//! use nvabi::driver::Record;
//! use nvabi::r550::{self, control};
//! # pub fn f(client: nvabi::rm::RmClient) -> nvabi::rm::Result<()> {
//! let mut params = r550::NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_PARAMS::zeroed();
//! client.control::<control::NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION>(&mut params)
//! # }
//! # fn main() { let _ = f; }
//! ```
//!
//! # Objects
//!
//! An [`Object`] frees itself when it is dropped, and keeps what it is below: a child goes before its
//! parent, in whatever order the program lets go of them. Handles are chosen by the client, given back
//! with the object, and given out once whatever threads ask.
//!
//! # Versions
//!
//! [`RmClient::open`] takes the versions of the build alone. A program that says what it uses can be
//! let onto versions between two of them ([`Compat::SameAbi`](crate::driver::Compat)): the lock proves
//! item by item that both neighbours are alike in it, and what they differ in is refused by name.
//!
//! # Errors
//!
//! The kernel and the resource manager refuse in different ways, [`ErrorKind::Errno`] and
//! [`ErrorKind::Status`]; an [`Error`] names the call with its number and the object with its class, where
//! it was made on one, and the machine's driver as soon as that is known.
//!
//! # Cost
//!
//! [`ioctl::control`](crate::ioctl::control) is the instructions of the call written by hand, which
//! `benches/ioctl.sh` compares. [`Object::control`] reads the fd and two handles besides, and tests a bit
//! where only some drivers of the build have the command.

mod alloc;
mod client;
mod dma_buf;
mod error;
mod escape;
mod event;
mod handles;
mod map;
mod object;
mod version;

pub use crate::driver::installed;
pub(crate) use client::open;
pub use client::{Card, NodeName, Pci, RmClient};
pub use error::{Error, ErrorKind, ObjectName, Result};
pub use escape::CallName;
pub use event::{Event, OsEvent, Subscription};
pub use map::{Access, Mapping};
pub use object::Object;
