//! `nvabi alloc`: what has to do with device memory.

pub(crate) mod devices;
