//! The types, constants and ioctls of Tegra's drivers, generated from `abi-specs`.
//!
//! One module per release (`v36_4`) and one per branch (`r36`, its newest). A type stands once for
//! all releases that share its layout, in [`layouts`]; the modules of the releases only name it.
//! Names are the drivers' own.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(missing_docs, unreachable_pub, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/tegra.rs"));
