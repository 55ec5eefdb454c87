//! `nvabi tegra`: what has to do with Jetson.

pub(crate) mod probe;
pub(crate) mod sim;
