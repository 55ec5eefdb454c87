//! Traces: files, damage, and where two of them part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

mod abi;
mod corpus;
mod diff;
mod formats;
mod pairs;

test_main!();
