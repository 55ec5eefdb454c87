//! Device memory: the algebra, its explanations, layouts and bytes.

#![allow(clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

mod algebra;
mod allocations;
mod convert;
mod details;
mod explain;
mod fuzz;
mod header;
mod layout;
mod plugin;
mod random;
mod wire;

test_main!(header::cases());
