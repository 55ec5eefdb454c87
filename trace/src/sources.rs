//! The text of source files, for showing the lines that a report names.
//!
//! A trace names files, and may come from anywhere: only what lies in the folders that were given is
//! read, and only regular files of a sane size.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

/// The largest file that is read, in bytes.
const LARGEST: u64 = 4 << 20;
/// How many files are read.
const FILES: usize = 64;

/// Source files by the name that a trace has for them.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    files: BTreeMap<String, Vec<String>>,
}

impl Sources {
    /// Reads the files that are found in the folders; those that are not are left out.
    pub fn load<'a>(names: impl IntoIterator<Item = &'a str>, folders: &[PathBuf]) -> Self {
        let mut sources = Self::default();
        for name in names {
            if sources.files.len() == FILES || sources.files.contains_key(name) {
                continue;
            }
            if let Some(text) = folders.iter().find_map(|folder| find(Path::new(name), folder)) {
                sources.add(name, &text);
            }
        }
        sources
    }

    /// Adds the text of a file.
    pub fn add(&mut self, name: &str, text: &str) {
        self.files.insert(name.to_owned(), text.lines().map(str::to_owned).collect());
    }

    /// Whether no file was found.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// All lines of a file; nothing where it was not found.
    pub fn lines(&self, file: &str) -> &[String] {
        self.files.get(file).map_or(&[], Vec::as_slice)
    }

    /// A line, from 1, with `around` lines before and after it, each with its number.
    pub fn excerpt(&self, file: &str, line: u32, around: u32) -> Vec<(u32, &str)> {
        let lines = self.lines(file);
        if line == 0 || line as usize > lines.len() {
            return Vec::new();
        }
        let first = line.saturating_sub(around).max(1);
        let last = line.saturating_add(around);
        (first..=last).zip(lines.iter().skip(first as usize - 1).map(String::as_str)).collect()
    }
}

/// Looks for a file by its path below the folder, then by its name alone.
fn find(name: &Path, folder: &Path) -> Option<String> {
    let below = name.strip_prefix(folder).unwrap_or(name);
    let plain = |part: &Component<'_>| matches!(part, Component::Normal(_));
    let path: PathBuf = below.components().filter(plain).collect();
    let file_name = Path::new(name.file_name()?);
    [path.as_path(), file_name].into_iter().find_map(|path| read(&folder.join(path)))
}

fn read(path: &Path) -> Option<String> {
    let about = std::fs::metadata(path).ok()?;
    if !about.is_file() || about.len() > LARGEST {
        return None;
    }
    let mut text = Vec::new();
    File::open(path).ok()?.take(LARGEST).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_below_the_folders_alone() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        std::fs::create_dir_all(inner.join("src")).unwrap();
        std::fs::write(folder.path().join("secret"), "out of reach").unwrap();
        std::fs::write(inner.join("src/kernel.cu"), "one\ntwo\nthree\n").unwrap();
        let names = ["src/kernel.cu", "/build/kernel.cu", "../secret", "src", "none.cu"];
        let folders = [inner.clone(), inner.join("src")];
        let sources = Sources::load(names, &folders);
        assert_eq!(sources.lines("src/kernel.cu"), ["one", "two", "three"]);
        assert_eq!(sources.lines("/build/kernel.cu").len(), 3);
        for name in ["../secret", "src", "none.cu"] {
            assert!(sources.lines(name).is_empty(), "{name}");
        }
        assert_eq!(sources.excerpt("src/kernel.cu", 1, 1), [(1, "one"), (2, "two")]);
        assert_eq!(sources.excerpt("src/kernel.cu", 3, 1), [(2, "two"), (3, "three")]);
        assert!(sources.excerpt("src/kernel.cu", 4, 1).is_empty());
        assert!(sources.excerpt("src/kernel.cu", 0, 1).is_empty());
    }
}
