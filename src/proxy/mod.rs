//! What a program that stands between an application and the driver does with a call: find the file
//! descriptors, addresses and handles in it, and carry it with everything it points to.
//!
//! What each call has in it are its roles ([`Info`]); this module walks them over bytes, so that
//! calls known by number alone and calls of a type are the same to it.
//!
//! [`Params`] is one set of parameters:
//!
#![cfg_attr(feature = "driver-550", doc = "```")]
#![cfg_attr(not(feature = "driver-550"), doc = "```ignore")]
//! use nvabi::driver::AnyDriver;
//! use nvabi::proxy::Params;
//!
//! let driver = AnyDriver::for_version("550.90.07")?;
//! // NV_ESC_REGISTER_FD: four bytes, which are a file descriptor.
//! let info = driver.frontend(201).ok_or("550 has no such ioctl")?;
//! let mut bytes = 7i32.to_ne_bytes();
//! Params::new(info, &mut bytes)?.visit_fds(|fd| {
//!     assert_eq!((fd.role(), fd.get()), ("ctl_fd", Some(7)));
//!     fd.set(42);
//! });
//! assert_eq!(bytes, 42i32.to_ne_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`marshal`] copies a call and what it points to into one buffer, a [`Message`]; [`unmarshal`] makes
//! the same of the bytes that arrive:
//!
//! ```text
//! the application's side                                 the side that has the device
//! marshal(driver, info, address, size, memory)
//!        Message::request()            ──── bytes ───►   unmarshal(driver, bytes)
//!                                                        Message::call(|address| ioctl(fd, …, address))
//! Message::take_reply(bytes)           ◄─── bytes ────   Message::reply()
//!        Message::write_back(memory)
//! ```
//!
//! What the driver only writes does not go there, what it only reads does not come back, and what lies
//! behind a pointer follows the roles of the call at hand: the parameters of a control command are
//! those of its number, with pointers of their own. How much that may be is [`Limits`]. Nothing here
//! trusts what it reads: lengths come from another program.
//!
//! The module makes no system call. [`Memory`] is how it reaches the application's memory.

mod field;
mod message;
mod visit;

use std::fmt;
use std::io;

use crate::call::CallKind;

pub use message::{Message, marshal, unmarshal};
pub use visit::{Fd, HandleField, Params, PointerField};

#[allow(unused_imports)]
use crate::call::{Info, Pointer};

/// The memory of the program that makes the calls: another process's, or one's own.
pub trait Memory {
    /// Fills `to` with what is at `address`.
    ///
    /// # Errors
    ///
    /// When it cannot be read there.
    fn read(&self, address: u64, to: &mut [u8]) -> io::Result<()>;

    /// Writes `from` to `address`.
    ///
    /// # Errors
    ///
    /// When it cannot be written there.
    fn write(&mut self, address: u64, from: &[u8]) -> io::Result<()>;
}

/// How much one call may point to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the parameters and all that they point to.
    pub bytes: usize,
    /// Pieces of memory, the parameters among them.
    pub parts: usize,
    /// Whether addresses go along that no part stands for ([`Pointer::opaque`]). The driver may pin or
    /// read what is there in the process that makes the call, so who lets them through translates them first,
    /// by [`Message::visit_pointers`]. Without, a call is refused that gives the driver one, and what the
    /// driver overwrites unseen is null over there.
    pub opaque: bool,
}

impl Default for Limits {
    /// 16 MiB in 64 pieces, and no opaque address. The driver itself takes 1 MiB behind a pointer, with
    /// few exceptions.
    fn default() -> Self {
        Self { bytes: 16 << 20, parts: 64, opaque: false }
    }
}

/// Why a call cannot be carried.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The driver has no such call, as far as this build knows, and so its roles are unknown.
    Unknown {
        /// Which table it would be in.
        kind: CallKind,
        /// Its number.
        number: u32,
    },
    /// The driver has the call, but no spec gives the roles of its fields ([`Info::roles_known`]): that it
    /// has no pointer or file descriptor is not known.
    RolesUnknown {
        /// The call.
        call: &'static str,
    },
    /// The call's parameters are of another size.
    Size {
        /// The call.
        call: &'static str,
        /// Bytes that there are.
        size: usize,
    },
    /// A pointer's length is not to be found in the parameters, or exceeds 64 bits.
    Length {
        /// The call.
        call: &'static str,
        /// The pointer's field.
        field: &'static str,
    },
    /// The call points to more than the limits allow.
    TooLarge {
        /// The call.
        call: &'static str,
        /// The pointer's field; empty where the parameters alone are too large.
        field: &'static str,
        /// Bytes that it would take, with what is there already.
        bytes: u64,
    },
    /// An address is not null that the driver is given and that the limits do not let through.
    Opaque {
        /// The call.
        call: &'static str,
        /// The pointer's field.
        field: &'static str,
    },
    /// The parameters of a command are a FINN message, which is carried for none.
    Serialized {
        /// The call that has them behind a pointer.
        call: &'static str,
    },
    /// The caller's memory cannot be read or written.
    Memory {
        /// Where.
        address: u64,
        /// How much.
        bytes: usize,
        /// Why.
        source: io::Error,
    },
    /// A message ends early, goes on behind its end, or begins with something else.
    Message {
        /// The byte where that shows.
        at: usize,
        /// What is wrong.
        why: &'static str,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { kind, number } => {
                let what = match kind {
                    CallKind::Frontend => "frontend ioctl",
                    CallKind::Uvm => "UVM ioctl",
                    CallKind::Control => "control command",
                    CallKind::Class => "class",
                    CallKind::Ioctl => "ioctl",
                };
                write!(f, "{what} {number:#x} is unknown, and so is what it points to")
            }
            Self::RolesUnknown { call } => {
                write!(f, "{call} is in no spec, so what its parameters hold is unknown")
            }
            Self::Size { call, size } => write!(f, "{call} does not take {size} bytes"),
            Self::Length { call, field } => write!(f, "{call}: {field} has no length that is one"),
            Self::TooLarge { call, field: "", bytes } => {
                write!(f, "{call}: {bytes} bytes of parameters exceed the limit")
            }
            Self::TooLarge { call, field, bytes } => {
                write!(f, "{call}: with what {field} points to, {bytes} bytes exceed the limits")
            }
            Self::Opaque { call, field } => {
                write!(
                    f,
                    "{call}: the driver may pin or read what {field} points to, so it must be null"
                )
            }
            Self::Serialized { call } => {
                write!(f, "{call}: parameters in FINN's form are not carried")
            }
            Self::Memory { address, bytes, source } => {
                write!(f, "cannot reach {bytes} bytes at {address:#x}: {source}")
            }
            Self::Message { at, why } => write!(f, "at byte {at} of the message: {why}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Memory { source, .. } => Some(source),
            _ => None,
        }
    }
}
