//! Traces: files, damage, and where two of them part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod abi;
mod corpus;
mod diff;
mod formats;
mod pairs;
