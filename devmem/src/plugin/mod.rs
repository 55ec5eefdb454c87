//! Drivers in shared libraries: found by manifests, loaded, and used as built-in ones are.
//!
//! The interface is `include/nvabi-devmem.h`. A manifest is a file `NAME.json` in one of [`folders`]:
//!
//! ```json
//! { "file_format_version": "1.0.0", "devmem": { "library_path": "libexample.so" } }
//! ```
//!
//! A path with a slash is relative to the manifest's folder; a bare name is looked for where the
//! system looks for libraries. A Rust plugin is a `cdylib` that calls
//! [`devmem_plugin!`](crate::devmem_plugin).

pub mod abi;
mod export;
mod load;
mod manifest;
mod raw;

#[doc(hidden)]
pub use export::export;
pub use load::Plugin;
pub use manifest::{Found, folders, load_all};

use super::driver::Driver;
use super::drivers::built_in;

/// Every driver there is, the built-in ones first, and what was wrong with plugins that are not
/// among them.
pub fn drivers() -> Found<Box<dyn Driver>> {
    let Found { drivers: plugins, problems } = load_all(&folders());
    let plugins = plugins.into_iter().map(|plugin| Box::new(plugin) as Box<dyn Driver>);
    Found { drivers: built_in().into_iter().chain(plugins).collect(), problems }
}
