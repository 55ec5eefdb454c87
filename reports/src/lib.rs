//! Reports on locked driver facts, as data and as text.
//!
//! ```text
//! lock, specs (nvabi-pipeline) ─► diff     what changed between two tags, what a shim must do
//!                                 ranges   tags with the same layout or the same ABI
//!                                 list     every ioctl, command and class of a tag
//!                                 coverage whether specs and lock cover a table of supported calls
//!                                 decode   an strace log, the bytes of a struct, intercepted calls
//!                                 emit     the types in C, Go, Python, Rust or JSON
//!                                 render   a layout in pahole's columns
//!                                 atlas    all of it as a static site
//! ```
#![forbid(unsafe_code)]

pub mod atlas;
pub mod call;
mod callers;
pub mod coverage;
pub mod decode;
pub mod diff;
pub mod emit;
pub mod list;
pub mod ranges;
pub mod render;
pub mod terminal;
mod words;
