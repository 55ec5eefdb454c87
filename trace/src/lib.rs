//! Traces of GPU kernels, and where two of them diverge.
//!
//! ```text
//! records, abi    include/nvabi_trace.h, checked
//! v1, v2          the two formats ──► Trace, Launch, Warp, Event: the same for both
//! diff            two traces ──► findings ──► collect: a Report
//! render          a Report as text, CSV, SARIF, folded stacks, HTML
//! ```
//!
//! Files are taken for hostile: memory is bounded whatever they declare, and errors name the byte.
//! `docs/trace.md` has the formats.
//!
//! ```
//! use nvabi_trace::records::V1Event;
//! use nvabi_trace::{Options, Trace, V1Header, V1Writer, diff};
//!
//! # let folder = tempfile::tempdir()?;
//! // Two runs of a warp: in the second, lane 31 was not active at the last event.
//! for (name, mask) in [("good", u32::MAX), ("bad", u32::MAX >> 1)] {
//!     let header = V1Header {
//!         kernel: "reduce".to_owned(),
//!         grid: [1; 3],
//!         block: [32, 1, 1],
//!         warps: 1,
//!         events_per_warp: 16,
//!         fixed: false,
//!     };
//!     let event = V1Event { site: 7, kind: 0, direction: 1, reserved: 0, mask: u32::MAX, value: 0 };
//!     let mut out = V1Writer::new(std::fs::File::create(folder.path().join(name))?, &header)?;
//!     out.warp(&[event, V1Event { mask, ..event }], 0)?;
//!     out.finish()?;
//! }
//! let (good, bad) = (folder.path().join("good"), folder.path().join("bad"));
//! let report = diff(&Trace::open(good)?, &Trace::open(bad)?, &Options::default())?;
//! let [finding] = &report.findings[..] else { return Err("one finding".into()) };
//! assert_eq!((finding.kind.name(), finding.index_a), ("mask", 1));
//! assert_eq!(finding.lanes, Some(1 << 31));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod abi;
pub mod classify;
pub mod collect;
pub mod convert;
pub mod diff;
mod error;
pub mod event;
mod file;
mod input;
pub mod recording;
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
