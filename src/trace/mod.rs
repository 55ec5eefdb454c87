//! Traces of GPU kernels, and where two of them part.

pub mod abi;
mod error;
mod event;
mod map;
pub mod records;
mod v1;

pub use error::{Error, Problem};
pub use event::{Event, EventKind};
pub use v1::{V1Header, V1Writer};
