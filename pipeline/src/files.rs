//! Files that nobody ever sees half written.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// Writes beside the target, then renames; what was there stays when that fails.
///
/// A link leads to the file that is written, and a device or a pipe (`/dev/stdout`) gets the text itself: it would be
/// gone otherwise.
pub fn write(target: &Path, text: &str) -> io::Result<()> {
    match fs::metadata(target) {
        Ok(known) if known.is_file() => replace(&fs::canonicalize(target)?, text),
        Ok(known) if !known.is_dir() => {
            OpenOptions::new().write(true).open(target)?.write_all(text.as_bytes())
        }
        _ => replace(target, text),
    }
}

fn replace(target: &Path, text: &str) -> io::Result<()> {
    let mut beside = target.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    fs::write(&beside, text).and_then(|()| fs::rename(&beside, target)).inspect_err(|_| {
        // Nothing to do when this fails as well: the file may never have been made.
        let _ = fs::remove_file(&beside);
    })
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
}
