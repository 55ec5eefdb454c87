//! Device memory: the algebra, its explanations, layouts and bytes.

#![allow(clippy::expect_used, clippy::panic)]

mod algebra;
mod allocations;
mod convert;
mod explain;
mod fuzz;
mod header;
mod layout;
mod plugin;
mod random;
mod wire;
