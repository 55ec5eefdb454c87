//! Files that nobody ever sees half written.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Writes beside the target, then renames; what was there stays when that fails.
///
/// A link leads to the file that is written, and a device or a pipe (`/dev/stdout`) gets the text itself: it would be
/// gone otherwise.
pub fn write(target: &Path, text: &str) -> io::Result<()> {
    write_all(&[(target.to_owned(), text)]).map_err(|(_, error)| error)
}

/// Writes several, each as [`write()`] does. The first is put in its place when all are written: where one cannot be,
/// nothing is new. An error says of which target.
pub fn write_all(files: &[(PathBuf, &str)]) -> Result<(), (PathBuf, io::Error)> {
    let mut staged = Vec::new();
    for (target, text) in files {
        staged.push(Staged::new(target, text).map_err(|error| (target.clone(), error))?);
    }
    for (new, (target, _)) in staged.into_iter().zip(files) {
        new.put().map_err(|error| (target.clone(), error))?;
    }
    Ok(())
}

/// What waits until all others are written.
enum Staged<'t> {
    /// A file beside the one that it becomes.
    File { beside: Beside, target: PathBuf },
    /// For what takes text and keeps none.
    Text { target: &'t Path, text: &'t str },
}

impl<'t> Staged<'t> {
    fn new(target: &'t Path, text: &'t str) -> io::Result<Self> {
        let target = match fs::metadata(target) {
            Ok(known) if known.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(known) if known.is_file() => fs::canonicalize(target)?,
            Ok(_) => return Ok(Self::Text { target, text }),
            Err(_) => target.to_owned(),
        };
        let mut beside = target.as_os_str().to_owned();
        beside.push(format!(".{}.new", std::process::id()));
        let beside = Beside(beside.into());
        fs::write(&beside.0, text)?;
        Ok(Self::File { beside, target })
    }

    fn put(self) -> io::Result<()> {
        match self {
            Self::File { beside, target } => fs::rename(&beside.0, target),
            Self::Text { target, text } => {
                OpenOptions::new().write(true).open(target)?.write_all(text.as_bytes())
            }
        }
    }
}

/// A file that is gone with this, unless it was renamed.
struct Beside(PathBuf);

impl Drop for Beside {
    fn drop(&mut self) {
        // Nothing to do when this fails: it may never have been made, or has its name by now.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt as _, symlink};

    use super::*;

    #[test]
    fn a_link_and_a_pipe_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, pipe] = ["file", "link", "pipe"].map(|name| folder.path().join(name));
        write(&file, "one").unwrap();
        symlink(&file, &link).unwrap();
        write(&link, "two").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        write(&pipe, "three").unwrap();
        assert_eq!(reader.join().unwrap(), "three");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3, "nothing else is left");
    }

    #[test]
    fn of_several_none_is_new_where_one_cannot_be() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
        write(&one, "old").unwrap();
        fs::create_dir(&two).unwrap();
        let files = [(one.clone(), "new"), (two.clone(), "new")];
        let (refused, error) = write_all(&files).unwrap_err();
        assert_eq!((refused, error.kind()), (two.clone(), io::ErrorKind::IsADirectory));
        assert_eq!(fs::read_to_string(&one).unwrap(), "old");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing else is left");
        fs::remove_dir(&two).unwrap();
        write_all(&files).unwrap();
        assert_eq!([one, two].map(|file| fs::read_to_string(file).unwrap()), ["new", "new"]);
    }
}
