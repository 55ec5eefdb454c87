//! `nvabi rm`: what has to do with the desktop's resource manager.

mod interface;
pub(crate) mod sim;
