//! From driver headers to checked Rust.
//!
//! ```text
//! spec → headers → extract (libclang) → model → lock / verify → plan → emit
//! ```
#![forbid(unsafe_op_in_unsafe_fn)]

pub mod build;
#[cfg(feature = "libclang")]
pub mod calls;
pub mod compare;
pub mod diagnostic;
pub mod emit;
#[cfg(feature = "libclang")]
pub mod extract;
#[cfg(feature = "libclang")]
pub mod facts;
pub mod files;
pub mod globs;
#[cfg(feature = "headers")]
pub mod headers;
pub mod known;
pub mod lint;
pub mod lock;
pub mod model;
pub mod parallel;
pub mod plan;
pub mod spec;
#[cfg(feature = "libclang")]
pub mod sweep;
pub mod tag;
pub mod text_folder;
#[cfg(feature = "libclang")]
pub mod verify;
