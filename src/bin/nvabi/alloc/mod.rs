//! `nvabi alloc`: what has to do with device memory.

pub(crate) mod devices;
pub(crate) mod explain;
mod offers;
pub(crate) mod plan;
