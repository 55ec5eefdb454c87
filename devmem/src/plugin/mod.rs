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
pub mod applications;
mod export;
mod load;
mod manifest;
mod raw;

#[doc(hidden)]
pub use export::export;
pub use load::Plugin;
pub use manifest::{Found, folders, load_all};
#[doc(hidden)]
pub use raw::details_of;

use super::driver::Driver;
use super::drivers::built_in;

/// Every driver there is, the built-in ones first, and what was wrong with plugins that are not
/// among them.
pub fn drivers() -> Found<Box<dyn Driver>> {
    // SAFETY: who may write to these folders is trusted as who installs programs is: root, and the user who runs
    // this one, or whoever sets the environment of a program without more rights than theirs.
    let Found { drivers: plugins, problems } = unsafe { load_all(&folders()) };
    let plugins = plugins.into_iter().map(|plugin| Box::new(plugin) as Box<dyn Driver>);
    Found { drivers: built_in().into_iter().chain(plugins).collect(), problems }
}
