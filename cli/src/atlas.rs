//! `nvabi atlas`: the lock as a static site.
//!
//! The site is written beside its folder and then takes the folder's place, so that there is either
//! the old one or the new one, whole. A file in it lists all the others: only a folder that has
//! this list, and nothing that is not in it, is ever replaced.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_reports::atlas as site;
use serde::Serialize;

use crate::Outcome;
use crate::args;
use crate::context::{Context, read};

/// The file that says that a folder is ours.
const MARKER: &str = "nvabi-atlas";
const MAGIC: &str = "nvabi-atlas 1";

/// What `--json` prints.
#[derive(Serialize)]
struct Summary {
    out: PathBuf,
    files: usize,
    bytes: u64,
}

pub(crate) fn atlas(context: &Context<'_>, args: &args::Atlas) -> Result<Outcome, Report> {
    let folder = absolute(&args.out)?;
    check_replaceable(&folder)?;
    let family = context.family(None)?;
    let locked = read(&family.lock)?;
    let pages = site::pages(&locked, &family.specs);
    let bar = context.progress(pages.len());
    bar.set_message("Drawing");
    let beside = Beside::new(&folder)?;
    let pages = pages.inspect(|_| bar.inc(1));
    let summary = beside.write(pages).and_then(|(files, bytes)| {
        // Somebody may have put something there meanwhile.
        check_replaceable(&folder)?;
        beside.take_place(&folder)?;
        Ok(Summary { out: args.out.clone(), files, bytes })
    })?;
    bar.finish_and_clear();
    if context.json() {
        context.print_json(&summary)?;
    }
    let (files, bytes) = (summary.files, summary.bytes / 1_000_000);
    context.status("Drawn", &format!("{}: {files} files, {bytes} MB", args.out.display()));
    Ok(Outcome::Same)
}

/// The folder as it is found from the root: a link is followed, so that it stays one.
fn absolute(out: &Path) -> Result<PathBuf, Report> {
    match fs::canonicalize(out) {
        Ok(found) => Ok(found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(std::path::absolute(out).map_err(|e| unwritable(out, &e))?)
        }
        Err(error) => Err(unwritable(out, &error).into()),
    }
}

/// Complains of a folder that has anything but an atlas in it.
fn check_replaceable(folder: &Path) -> Result<(), Report> {
    if !folder.exists() {
        return Ok(());
    }
    let refused = |why: String| {
        Diagnostic::error("atlas-occupied", format!("will not replace {}: {why}", folder.display()))
            .help("name a folder that is empty, that does not exist, or that an atlas is in")
    };
    if !folder.is_dir() {
        return Err(refused("it is not a folder".to_owned()).into());
    }
    let found = files(folder, "").map_err(|error| unwritable(folder, &error))?;
    if found.is_empty() {
        return Ok(());
    }
    let marker = fs::read_to_string(folder.join(MARKER)).unwrap_or_default();
    let mut lines = marker.lines();
    if lines.next() != Some(MAGIC) {
        return Err(refused("it is not empty, and no atlas".to_owned()).into());
    }
    let ours: BTreeSet<&str> = lines.chain([MARKER]).collect();
    match found.iter().find(|file| !ours.contains(file.as_str())) {
        Some(file) => Err(refused(format!("`{file}` in it is not the atlas's")).into()),
        None => Ok(()),
    }
}

/// Everything that is not a folder, below a folder, with slashes; empty folders as themselves.
fn files(folder: &Path, prefix: &str) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            let inner = files(&entry.path(), &format!("{name}/"))?;
            found.extend(if inner.is_empty() { vec![name] } else { inner });
        } else {
            found.push(name);
        }
    }
    found.sort();
    Ok(found)
}

/// A folder beside the one that is wanted; it is gone when this is, unless it took its place.
struct Beside {
    path: PathBuf,
    old: PathBuf,
}

impl Beside {
    fn new(folder: &Path) -> Result<Self, Report> {
        let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
            let message = format!("{} cannot be an atlas's folder", folder.display());
            return Err(Diagnostic::error("atlas-unwritable", message).into());
        };
        let (name, id) = (name.to_string_lossy(), std::process::id());
        let path = parent.join(format!(".{name}.{id}.new"));
        let old = parent.join(format!(".{name}.{id}.old"));
        fs::create_dir_all(parent).map_err(|error| unwritable(parent, &error))?;
        fs::create_dir(&path).map_err(|error| unwritable(&path, &error))?;
        Ok(Self { path, old })
    }

    /// Writes all files and the list of them: how many files and bytes.
    fn write(&self, pages: impl Iterator<Item = (String, String)>) -> Result<(usize, u64), Report> {
        let mut names = BTreeSet::new();
        let mut bytes = 0;
        for (name, text) in pages {
            self.file(&name, text.as_bytes())?;
            bytes += text.len() as u64;
            names.insert(name);
        }
        let mut list = format!("{MAGIC}\n");
        for name in &names {
            list.push_str(name);
            list.push('\n');
        }
        self.file(MARKER, list.as_bytes())?;
        Ok((names.len() + 1, bytes + list.len() as u64))
    }

    fn file(&self, name: &str, bytes: &[u8]) -> Result<(), Report> {
        let path = self.path.join(name);
        let write = || {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            let mut file = BufWriter::new(fs::File::create_new(&path)?);
            file.write_all(bytes)?;
            file.flush()
        };
        Ok(write().map_err(|error| unwritable(&path, &error))?)
    }

    /// Becomes the folder; what was there comes back when that fails.
    fn take_place(&self, folder: &Path) -> Result<(), Report> {
        let occupied = folder.exists();
        if occupied {
            fs::rename(folder, &self.old).map_err(|error| unwritable(folder, &error))?;
        }
        if let Err(error) = fs::rename(&self.path, folder) {
            if occupied {
                let _ = fs::rename(&self.old, folder);
            }
            return Err(unwritable(folder, &error).into());
        }
        // The new one stands; what is left of the old one is no reason to fail.
        let _ = fs::remove_dir_all(&self.old);
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Diagnostic {
    Diagnostic::error("atlas-unwritable", format!("cannot write {}: {error}", path.display()))
}
