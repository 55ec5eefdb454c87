//! `nvabi rm`: the x86 driver's resource manager.

mod interface;
mod profile;
pub(crate) mod sim;
