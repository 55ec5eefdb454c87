//! Calls that were caught with their memory: named, and shown field by field.
//!
//! ```text
//! Event (bytes) ─ tables (what is there to name) ─ parts (which memory is what) ─ Named ─ text, summary, audit
//! ```
//!
//! Whoever catches calls asks [`parts`] which memory to copy, and a record of it is named by the same
//! code later. Nothing here reads files or knows processes.

mod audit;
mod event;
mod leaves;
mod named;
mod objects;
mod parts;
pub mod record;
mod summary;
mod tables;
mod text;

pub use audit::{Audit, Finding, FindingKind, Gravity, Seen};
pub use event::{Event, File, How, Ioctl, Piece, What};
pub use named::{Detail, DetailKind, Field, Named, Namer, Status};
pub use parts::{MAX_PARTS, Part, Parts, parts};
pub use summary::{Line, Summary};
pub use tables::{Nodes, Tables};
pub use text::line;
