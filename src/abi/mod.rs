//! The driver's own types, constants and calls, generated from `abi-specs`.
//!
//! One module per tag (`v550_90_07`) and one per branch (`r550`, its newest tag). A type stands
//! once for all tags that share its layout, in [`layouts`]; the modules of the tags only name it.
//! Names are the driver's own.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(missing_docs, unreachable_pub, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/abi.rs"));
