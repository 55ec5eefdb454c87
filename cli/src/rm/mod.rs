//! `nvabi rm`: the x86 driver's resource manager.

mod connection;
pub(crate) mod down;
mod folder;
mod host;
pub(crate) mod inject;
mod interface;
pub(crate) mod profile;
pub(crate) mod recorded;
pub(crate) mod run;
pub(crate) mod sim;
pub(crate) mod status;
pub(crate) mod up;
