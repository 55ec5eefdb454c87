//! Traces of GPU kernels, and where two of them part.

pub mod abi;
pub mod collect;
mod error;
pub mod event;
mod map;
pub mod records;
pub mod report;
mod v1;

pub use error::{Error, Problem};
pub use event::{Event, EventKind};
pub use v1::{V1Header, V1Writer};
