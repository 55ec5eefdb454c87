//! Where the pixels of an image are in memory.

use serde::{Deserialize, Serialize};

/// One plane of a [`Layout`], in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plane {
    /// Where it starts in the memory.
    pub offset: u64,
    /// From one row to the next.
    pub pitch: u64,
    /// From its start to its end.
    pub size: u64,
}

/// Where the pixels of an image are in memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// The DRM format modifier: 0 is linear, `DRM_FORMAT_MOD_INVALID` what only a driver knows.
    pub modifier: u64,
    /// The planes, in the order of the format.
    pub planes: Vec<Plane>,
    /// Bytes that all of it takes.
    pub size: u64,
}
