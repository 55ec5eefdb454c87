//! `nvabi rm`: the x86 driver's resource manager.

mod interface;
pub(crate) mod profile;
pub(crate) mod sim;
