//! The records and constants of `include/nvabi_trace.h`, generated from its lock. Names are the
//! header's own.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(missing_docs, unreachable_pub, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/trace.rs"));
