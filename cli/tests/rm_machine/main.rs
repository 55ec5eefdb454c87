//! `nvabi rm up`, `run`, `status`, `down`: one simulated machine for many programs, through the command.
//!
//! The programs are scripts, and clients: this test's own program, told by a variable which part it plays.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    clippy::undocumented_unsafe_blocks
)]

#[macro_use]
extern crate nvabi_test;

mod begins;
#[allow(dead_code)]
#[path = "../rm_sim/channel.rs"]
mod channel;
#[allow(dead_code)]
#[path = "../rm_sim/client.rs"]
mod client;
mod ends;
#[allow(dead_code)]
#[path = "../../../sim/tests/tegra/faulting.rs"]
mod faulting;
mod hostile;
mod inject;
mod lab;
#[allow(dead_code)]
#[path = "../rm_sim/mapping.rs"]
mod mapping;
mod real;
mod shared;

test_main!();
