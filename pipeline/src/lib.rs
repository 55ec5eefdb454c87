//! From driver headers to checked Rust.
//!
//! ```text
//! spec → headers → extract (libclang) → model → lock / verify → emit
//! ```
#![forbid(unsafe_op_in_unsafe_fn)]

#[cfg(feature = "reports")]
pub mod atlas;
pub mod build;
#[cfg(feature = "libclang")]
pub mod calls;
pub mod compare;
#[cfg(feature = "reports")]
pub mod coverage;
#[cfg(feature = "reports")]
pub mod decode;
pub mod diagnostic;
#[cfg(feature = "reports")]
pub mod diff;
pub mod emit;
#[cfg(feature = "libclang")]
pub mod extract;
#[cfg(feature = "libclang")]
pub mod facts;
pub mod files;
mod globs;
#[cfg(feature = "headers")]
pub mod headers;
mod known;
pub mod lint;
#[cfg(feature = "reports")]
pub mod list;
pub mod lock;
pub mod model;
pub mod parallel;
#[cfg(feature = "reports")]
pub mod ranges;
pub mod render;
pub mod spec;
#[cfg(feature = "libclang")]
pub mod sweep;
pub mod tag;
#[cfg(feature = "libclang")]
pub mod verify;
