//! A folder of text files, on disk or packed into a program.
//!
//! Specs and locks are read through this, so that their readers need not know where the text is kept.
//! Only a folder on disk has a path, and only what has a path is ever written to.

#[cfg(feature = "pack")]
mod pack;

use std::borrow::Cow;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(feature = "pack")]
pub use pack::{Pack, pack};

/// Text files below one folder, by their paths relative to it.
#[derive(Debug, Clone)]
pub struct TextFolder(Kept);

#[derive(Debug, Clone)]
enum Kept {
    OnDisk(PathBuf),
    #[cfg(feature = "pack")]
    Packed {
        pack: Pack,
        folder: String,
    },
}

impl TextFolder {
    /// What a pack holds below its root.
    #[cfg(feature = "pack")]
    pub fn packed(pack: Pack) -> Self {
        Self(Kept::Packed { pack, folder: String::new() })
    }

    /// A folder in this one; it need not exist.
    pub fn join(&self, name: &str) -> Self {
        Self(match &self.0 {
            Kept::OnDisk(folder) => Kept::OnDisk(folder.join(name)),
            #[cfg(feature = "pack")]
            Kept::Packed { pack, folder } => {
                Kept::Packed { pack: pack.clone(), folder: format!("{folder}{name}/") }
            }
        })
    }

    /// Where it is on disk; `None` for a packed one, which nobody can write to.
    pub fn path(&self) -> Option<&Path> {
        match &self.0 {
            Kept::OnDisk(folder) => Some(folder),
            #[cfg(feature = "pack")]
            Kept::Packed { .. } => None,
        }
    }

    /// The files that are directly in it: their names, sorted.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names: Vec<String> = match &self.0 {
            Kept::OnDisk(folder) => {
                let name = |entry: io::Result<fs::DirEntry>| Ok(text(&entry?.file_name()));
                fs::read_dir(folder)?.map(name).collect::<io::Result<_>>()?
            }
            #[cfg(feature = "pack")]
            Kept::Packed { pack, folder } => {
                let below = pack.below(folder).filter(|path| !path.contains('/'));
                below.map(str::to_owned).collect()
            }
        };
        names.sort_unstable();
        Ok(names)
    }

    /// The folders that are directly in it: their names, sorted.
    pub fn folders(&self) -> io::Result<Vec<String>> {
        let mut folders: Vec<String> = match &self.0 {
            Kept::OnDisk(folder) => {
                let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
                let folders = entries.iter().filter(|entry| entry.path().is_dir());
                folders.map(|entry| text(&entry.file_name())).collect()
            }
            #[cfg(feature = "pack")]
            Kept::Packed { pack, folder } => {
                let folders = pack.below(folder).filter_map(|path| path.split_once('/'));
                folders.map(|(folder, _)| folder.to_owned()).collect()
            }
        };
        folders.sort_unstable();
        folders.dedup();
        Ok(folders)
    }

    /// Every file below it: paths with slashes, sorted. Of a folder that does not exist, none.
    pub fn files(&self) -> io::Result<Vec<String>> {
        match &self.0 {
            Kept::OnDisk(folder) => walk(folder),
            #[cfg(feature = "pack")]
            Kept::Packed { pack, folder } => Ok(pack.below(folder).map(str::to_owned).collect()),
        }
    }

    /// Whether it has a file of that path.
    pub fn has(&self, path: &str) -> bool {
        match &self.0 {
            Kept::OnDisk(folder) => folder.join(path).exists(),
            #[cfg(feature = "pack")]
            Kept::Packed { pack, folder } => pack.has(&format!("{folder}{path}")),
        }
    }

    /// The text of a file.
    pub fn read(&self, path: &str) -> io::Result<Arc<str>> {
        match &self.0 {
            Kept::OnDisk(folder) => fs::read_to_string(folder.join(path)).map(Arc::from),
            #[cfg(feature = "pack")]
            Kept::Packed { pack, folder } => pack.read(&format!("{folder}{path}")),
        }
    }

    /// How a person calls a file in it.
    pub(crate) fn show(&self, path: &str) -> String {
        match &self.0 {
            Kept::OnDisk(folder) => folder.join(path).display().to_string(),
            #[cfg(feature = "pack")]
            Kept::Packed { .. } => format!("{self}{path}"),
        }
    }

    /// Its own name, without those of the folders above it.
    pub(crate) fn name(&self) -> Option<Cow<'_, str>> {
        match &self.0 {
            Kept::OnDisk(folder) => folder.file_name().map(|name| name.to_string_lossy()),
            #[cfg(feature = "pack")]
            Kept::Packed { folder, .. } => {
                let name = folder.trim_end_matches('/').rsplit('/').next();
                name.filter(|name| !name.is_empty()).map(Cow::Borrowed)
            }
        }
    }
}

impl fmt::Display for TextFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kept::OnDisk(folder) => write!(f, "{}", folder.display()),
            #[cfg(feature = "pack")]
            Kept::Packed { folder, .. } => write!(f, "embedded:{folder}"),
        }
    }
}

impl From<&Self> for TextFolder {
    fn from(folder: &Self) -> Self {
        folder.clone()
    }
}

impl From<&Path> for TextFolder {
    fn from(folder: &Path) -> Self {
        Self(Kept::OnDisk(folder.to_owned()))
    }
}

impl From<&PathBuf> for TextFolder {
    fn from(folder: &PathBuf) -> Self {
        folder.as_path().into()
    }
}

/// A name that is no text is that of none of our files; it is shown as well as can be.
fn text(name: &std::ffi::OsStr) -> String {
    name.to_string_lossy().into_owned()
}

/// Every file below a folder, sorted by the bytes of its path.
fn walk(folder: &Path) -> io::Result<Vec<String>> {
    let mut files = Vec::new();
    let mut pending = vec![(folder.to_owned(), String::new())];
    while let Some((path, below)) = pending.pop() {
        let Ok(entries) = fs::read_dir(&path) else { continue };
        for entry in entries {
            let entry = entry?;
            let name = format!("{below}{}", text(&entry.file_name()));
            // Told by the folder itself; asking each of 1,000 files takes longer than reading some.
            match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                true => pending.push((entry.path(), name + "/")),
                false => files.push(name),
            }
        }
    }
    files.sort_unstable();
    Ok(files)
}
