//! Where specs and lock come from, and where they may be written.
//!
//! | | reads | writes |
//! |---|---|---|
//! | `--specs DIR` | `DIR` | `DIR` |
//! | in a checkout, or a folder of one | its `abi-specs` | its `abi-specs` |
//! | anywhere else | what the command carries | nothing |
//!
//! A checkout is the nearest folder, from the current one upwards, with specs of drivers (`driver-N.toml`,
//! `FAMILY-N.toml`) in its `abi-specs`: crates that lock headers of their own have such a folder too, with one spec.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_pipeline::text_folder::{Pack, TextFolder};

/// Made by the build script.
static EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/specs.pack"));

/// The folder of the specs in a checkout.
const FOLDER: &str = "abi-specs";

/// Where the specs are on disk: as given, or in a checkout; `None` for those that the command carries.
pub(crate) fn on_disk(given: Option<&Path>) -> Option<PathBuf> {
    match given {
        Some(folder) => Some(folder.to_owned()),
        None => checkout(Path::new(FOLDER), env::current_dir().ok()?),
    }
}

/// The specs of the checkout that somebody stands in; its messages name them as he would.
fn checkout(here: &Path, current: PathBuf) -> Option<PathBuf> {
    if has_specs(here) {
        return Some(here.to_owned());
    }
    let above = current.ancestors().skip(1).map(|folder| folder.join(FOLDER));
    above.into_iter().find(|folder| has_specs(folder))
}

fn has_specs(folder: &Path) -> bool {
    let names = TextFolder::from(folder).names().unwrap_or_default();
    names.iter().any(|name| name.ends_with(".toml") && name.contains('-'))
}

/// Those that the command carries.
pub(crate) fn embedded() -> Result<TextFolder, Report> {
    // One for the process: it keeps what it has unpacked.
    static PACK: OnceLock<Result<Pack, String>> = OnceLock::new();
    let pack = PACK.get_or_init(|| Pack::open(EMBEDDED).map_err(|error| error.to_string()));
    match pack {
        Ok(pack) => Ok(TextFolder::packed(pack.clone())),
        Err(error) => Err(Diagnostic::error("specs-damaged", error).into()),
    }
}

/// Refuses to write: a command that is run anywhere must not change the checkout it was built from.
#[cfg(feature = "headers")]
pub(crate) fn nowhere_to_write() -> Diagnostic {
    let message =
        "there is no folder of specs to write to: the ones in this command cannot be changed";
    Diagnostic::error("specs-embedded", message)
        .note(format!("neither the current folder nor any above it has specs in {FOLDER}/"))
        .help("run it in a checkout of nvabi, or name the folder of the specs with --specs")
}
