//! DRM's ioctls as checked types, by nvabi's pipeline and derive.
#![deny(missing_docs)]

pub mod params;

/// DRM's own types, constants and calls, from the headers that were found when this was built.
#[allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod drm {
    include!(concat!(env!("OUT_DIR"), "/drm.rs"));
}
