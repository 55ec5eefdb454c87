//! The drivers that are built in.

pub mod memfd;

use super::driver::Driver;

/// Every built-in driver. Those whose devices are not there enumerate none.
pub fn built_in() -> Vec<Box<dyn Driver>> {
    vec![Box::new(memfd::Memfd)]
}
