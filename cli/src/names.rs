//! Names that somebody asks about: in a file, in the derives of a crate, or in a Go package.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nvabi_pipeline::diagnostic::{Diagnostic, Report, SourceSpan};
use nvabi_pipeline::model;
use nvabi_reports::coverage::{Table, gvisor};
use nvabi_reports::ranges::{RequestedName, derives};

use crate::context::Context;

/// The most bytes of a file of names; those of a whole driver have fewer.
const LARGEST: u64 = 16 << 20;

/// The words of a file, each once; what stands behind a `#` is for people.
pub(crate) fn of_file(path: &Path) -> Result<Vec<RequestedName>, Report> {
    let text = text_of(path).map_err(|error| {
        let message = format!("cannot read {}: {error}", path.display());
        Diagnostic::error("names-unreadable", message)
            .help("give a file with one name per line; `#` starts a comment")
    })?;
    // Names share the text, which a place quotes.
    let text: Arc<str> = text.strip_prefix('\u{feff}').unwrap_or(&text).into();
    let (mut names, mut seen, mut at) = (Vec::new(), HashSet::new(), 0);
    for line in text.split_inclusive('\n') {
        let said = line.split('#').next().unwrap_or_default();
        let mut from = 0;
        for name in said.split_whitespace() {
            let start = from + said[from..].find(name).unwrap_or_default();
            from = start + name.len();
            if !seen.insert(name) {
                continue;
            }
            let span = at + start..at + from;
            let place = SourceSpan { path: path.display().to_string(), text: text.clone(), span };
            if model::number(name).is_some() {
                let message = format!("`{name}` is a number, not a name");
                let help = format!("`nvabi show {name}` tells the names of the calls that have it");
                return Err(Diagnostic::error("names-number", message).at(place).help(help).into());
            }
            names.push(RequestedName { name: name.to_owned(), place: Some(place) });
        }
        at += line.len();
    }
    match names.is_empty() {
        true => {
            let message = format!("{} contains no names", path.display());
            Err(Diagnostic::error("names-none", message).help("write one name per line").into())
        }
        false => Ok(names),
    }
}

/// The text of a file of 16 MiB at most, or of a shell's `<(…)`: other pipes and devices may never begin or end.
pub(crate) fn text_of(path: &Path) -> io::Result<String> {
    let kind = fs::metadata(path)?.file_type();
    let is_readable = kind.is_file() || kind.is_fifo() && is_shells_pipe(path);
    if !is_readable {
        return Err(io::Error::other("it is neither a regular file nor a shell's <(…)"));
    }
    let mut text = String::new();
    File::open(path)?.take(LARGEST + 1).read_to_string(&mut text)?;
    match text.len() as u64 > LARGEST {
        true => Err(io::Error::other(format!("it has more than {} MiB", LARGEST >> 20))),
        false => Ok(text),
    }
}

/// Whether a path is that of a file descriptor, as shells give for `<(…)` and for what is piped.
pub(crate) fn is_shells_pipe(path: &Path) -> bool {
    let is_below = |folder: &&str| path.starts_with(folder);
    ["/dev/fd", "/dev/stdin", "/proc/self/fd"].iter().any(is_below)
}

/// What the derives of a crate name.
pub(crate) fn of_crate(context: &Context<'_>, folder: &Path) -> Result<Vec<RequestedName>, Report> {
    let found = derives::of_crate(folder)?;
    let count = found.names.len();
    let derives = if count == 1 { "derive" } else { "derives" };
    context.status("Found", &format!("{count} {derives} in {}", folder.display()));
    if found.foreign > 0 {
        let what = format!("{} derives that name another table with `crate`", found.foreign);
        context.status("Left out", &what);
    }
    for file in &found.macros {
        context.status(
            "Left out",
            &format!("derives inside macros in {file}: macros are not expanded"),
        );
    }
    Ok(found.names)
}

/// What is wanted of who names another folder.
const PACKAGE: &str = "give the folder of a package, or a checkout of gVisor";

/// What a Go package declares under names that the driver may have, or, of a checkout of gVisor, what its proxy
/// supports.
pub(crate) fn of_go(folder: &Path) -> Result<Vec<RequestedName>, Report> {
    if folder.join(gvisor::VERSIONS).is_file() {
        return Ok(checkout(folder)?.names());
    }
    let files = go_files(folder, unreadable_package)?;
    if files.is_empty() {
        let message = format!("{} has no Go source", folder.display());
        return Err(Diagnostic::error("names-none", message).help(PACKAGE).into());
    }
    let names: BTreeSet<String> = gvisor::declared(&files)?;
    Ok(names.into_iter().map(|name| RequestedName { name, place: None }).collect())
}

/// The table of a checkout of gVisor.
pub(crate) fn checkout(folder: &Path) -> Result<Table, Report> {
    let versions = go_file(folder.join(gvisor::VERSIONS), unreadable_checkout)?;
    Table::from_gvisor(&go_files(&folder.join(gvisor::TYPES), unreadable_checkout)?, &versions)
}

/// What to say of a file that cannot be read.
type Unreadable = fn(&Path, io::Error) -> Report;

fn unreadable_package(path: &Path, error: io::Error) -> Report {
    let message = format!("cannot read {}: {error}", path.display());
    Diagnostic::error("names-unreadable", message).help(PACKAGE).into()
}

fn unreadable_checkout(path: &Path, error: io::Error) -> Report {
    let message = format!("cannot read {}: {error}", path.display());
    let help = format!("a checkout of gVisor has {} and {}", gvisor::VERSIONS, gvisor::TYPES);
    Diagnostic::error("coverage-unreadable", message).help(help).into()
}

fn go_file(path: PathBuf, unreadable: Unreadable) -> Result<gvisor::File, Report> {
    let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, error))?;
    Ok(gvisor::File { path: path.display().to_string(), text })
}

/// The files of a package, without its tests.
fn go_files(folder: &Path, unreadable: Unreadable) -> Result<Vec<gvisor::File>, Report> {
    let entries = fs::read_dir(folder).map_err(|error| unreadable(folder, error))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>();
    let mut paths = paths.map_err(|error| unreadable(folder, error))?;
    let is_source = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.ends_with(".go") && !name.ends_with("_test.go")
    };
    paths.retain(is_source);
    paths.sort();
    paths.into_iter().map(|path| go_file(path, unreadable)).collect()
}
