//! Where plugins are: JSON manifests in a list of folders.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::load::Plugin;
use crate::error::{Error, ErrorKind, Result};

/// The folders of the system, in this order.
const SYSTEM: [&str; 2] = ["/etc", "/usr/share"];

/// Below each of them.
const BELOW: &str = "nvabi/devmem.d";

/// Names folders that are looked at instead of all others.
const VARIABLE: &str = "NVABI_DEVMEM_PLUGINS";

/// No manifest is longer.
const LONGEST: u64 = 1 << 16;

/// What was found, and what was wrong with the rest.
#[derive(Debug)]
pub struct Found<D> {
    /// What can be used.
    pub drivers: Vec<D>,
    /// Why manifests or libraries were passed over.
    pub problems: Vec<Error>,
}

/// The folders with manifests, in this order: those in `NVABI_DEVMEM_PLUGINS` (with colons between
/// them) and no other; without that, `nvabi/devmem.d` in `$XDG_DATA_HOME` (or `~/.local/share`),
/// `/etc` and `/usr/share`.
///
/// A program that has more rights than who started it (setuid, setgid, capabilities) looks at those
/// of the system alone.
pub fn folders() -> Vec<PathBuf> {
    // SAFETY: it takes and returns a number, and reads what the kernel gave the process when it began.
    let secure = unsafe { nix::libc::getauxval(nix::libc::AT_SECURE) } != 0;
    folders_of(secure, |name| env::var_os(name).filter(|value| !value.is_empty()))
}

fn folders_of(secure: bool, variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let variable = |name| if secure { None } else { variable(name) };
    if let Some(own) = variable(VARIABLE) {
        return env::split_paths(&own).filter(|folder| folder.is_absolute()).collect();
    }
    let home = || Some(PathBuf::from(variable("HOME")?).join(".local/share"));
    let user = variable("XDG_DATA_HOME").map(PathBuf::from).or_else(home);
    let user = user.filter(|folder| folder.is_absolute());
    let all = user.into_iter().chain(SYSTEM.map(PathBuf::from));
    all.map(|folder| folder.join(BELOW)).collect()
}

/// Loads what the manifests in these folders name, by file name. A file of a later folder counts
/// only where no earlier one has its name.
///
/// # Safety
///
/// As [`Plugin::load`], for every library that a manifest in one of the folders names.
pub unsafe fn load_all(folders: &[PathBuf]) -> Found<Plugin> {
    let mut found = Found { drivers: Vec::new(), problems: Vec::new() };
    let mut manifests: BTreeMap<OsString, PathBuf> = BTreeMap::new();
    for folder in folders {
        match list(folder) {
            Ok(paths) => {
                for path in paths {
                    let name = path.file_name().unwrap_or_default().to_owned();
                    manifests.entry(name).or_insert(path);
                }
            }
            Err(error) => found.problems.push(error),
        }
    }
    for path in manifests.values() {
        match read(path).and_then(|library| {
            // SAFETY: the caller vouches for what the manifests name.
            unsafe { load(path, &library) }
        }) {
            Ok(plugin) => found.drivers.push(plugin),
            Err(error) => found.problems.push(error),
        }
    }
    found
}

/// The manifests in a folder; none where there is no such folder.
fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = |error| {
        Error::io(ErrorKind::Open, format!("the folder {} of plugins", folder.display()), error)
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        if path.extension() == Some(OsStr::new("json")) {
            paths.push(path);
        }
    }
    Ok(paths)
}

#[derive(Deserialize)]
struct Manifest {
    file_format_version: String,
    devmem: Library,
}

#[derive(Deserialize)]
struct Library {
    library_path: PathBuf,
}

/// The library that a manifest names. What else is in it is for later versions.
fn read(path: &Path) -> Result<PathBuf> {
    let wrong = |what: String| Error::new(ErrorKind::Plugin, format!("{}: {what}", path.display()));
    let text = text(path).map_err(|error| wrong(error.to_string()))?;
    let manifest: Manifest =
        serde_json::from_str(&text).map_err(|error| wrong(format!("no manifest: {error}")))?;
    let version = &manifest.file_format_version;
    if version.split('.').next() != Some("1") {
        return Err(wrong(format!("file_format_version {version} is not 1")));
    }
    let library = manifest.devmem.library_path;
    if library.as_os_str().is_empty() {
        return Err(wrong("library_path is empty".to_owned()));
    }
    Ok(library)
}

/// The text of a file: what waits for somebody to write into it, or has no end, is none.
fn text(path: &Path) -> io::Result<String> {
    let file = File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut text = String::new();
    file.take(LONGEST + 1).read_to_string(&mut text)?;
    match text.len() as u64 > LONGEST {
        true => Err(io::Error::other(format!("it is longer than {LONGEST} bytes"))),
        false => Ok(text),
    }
}

/// # Safety
///
/// As [`Plugin::load`].
unsafe fn load(manifest: &Path, library: &Path) -> Result<Plugin> {
    let bare = library.components().count() == 1 && !library.is_absolute();
    let folder = manifest.parent().unwrap_or(Path::new("/"));
    let path = if bare { library.to_owned() } else { folder.join(library) };
    // SAFETY: the caller's promise is that of `Plugin::load`, for this very library.
    unsafe { Plugin::load(&path) }
        .map_err(|error| Error::new(ErrorKind::Plugin, format!("{}: {error}", manifest.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(secure: bool, variables: &[(&str, &str)]) -> Vec<String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        folders_of(secure, variable).iter().map(|folder| folder.display().to_string()).collect()
    }

    const SYSTEMS: [&str; 2] = ["/etc/nvabi/devmem.d", "/usr/share/nvabi/devmem.d"];

    #[test]
    fn the_users_folder_is_before_the_systems() {
        let home = "/home/a/.local/share/nvabi/devmem.d";
        assert_eq!(of(false, &[("HOME", "/home/a")]), [home, SYSTEMS[0], SYSTEMS[1]]);
        let data = "/data/nvabi/devmem.d";
        let both = [("HOME", "/home/a"), ("XDG_DATA_HOME", "/data")];
        assert_eq!(of(false, &both), [data, SYSTEMS[0], SYSTEMS[1]]);
        assert_eq!(of(false, &[("XDG_DATA_HOME", "data")]), SYSTEMS);
        assert_eq!(of(false, &[]), SYSTEMS);
    }

    #[test]
    fn the_variable_stands_for_all() {
        assert_eq!(of(false, &[("HOME", "/h"), (VARIABLE, "/a:b:/c")]), ["/a", "/c"]);
    }

    #[test]
    fn a_setuid_program_heeds_no_variable() {
        let all = [("HOME", "/h"), ("XDG_DATA_HOME", "/data"), (VARIABLE, "/a")];
        assert_eq!(of(true, &all), SYSTEMS);
    }
}
