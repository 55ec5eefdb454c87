//! Traces of GPU kernels, and where two of them part.

pub mod abi;
pub mod classify;
pub mod collect;
pub mod convert;
pub mod diff;
mod error;
pub mod event;
mod file;
mod map;
pub mod records;
pub mod render;
pub mod report;
pub mod sources;
mod v1;
mod v2;

pub use diff::{Options, diff, diff_warp, site_map};
pub use error::{Error, Problem};
pub use event::{Event, EventKind};
pub use file::{Events, Found, Launch, Trace, Warp, Warps};
pub use v1::{V1Header, V1Writer};
pub use v2::{SiteRow, V2Writer};
