//! A folder that each machine has for itself, where the real machine has one that all programs share: what its programs
//! make there is in a real folder that only they are led to.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The real folder, from when something is made there until the machine is over.
#[derive(Debug, Default)]
pub(super) struct Own {
    folder: Mutex<Option<PathBuf>>,
}

impl Own {
    /// Where a place below the folder really is, which is made for who makes something there.
    pub(super) fn place(&self, below: &Path, makes: bool) -> io::Result<PathBuf> {
        let mut folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        let place = match (&*folder, makes) {
            (Some(folder), _) => folder.clone(),
            (None, true) => folder.insert(make()?).clone(),
            (None, false) => return Err(io::Error::from_raw_os_error(libc::ENOENT)),
        };
        // The folder itself comes and goes as its programs like.
        let place = place.join("own");
        Ok(if below.as_os_str().is_empty() { place } else { place.join(below) })
    }

    /// Removes it, with what programs left in it.
    pub(super) fn remove(&self) {
        let folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(folder) = folder {
            // What cannot be removed is told to nobody: the machine is over.
            let _ = fs::remove_dir_all(folder);
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Makes a folder that nobody else can list, but the programs can go through, whoever they become.
fn make() -> io::Result<PathBuf> {
    let mut template = std::env::temp_dir().join("nvabi-own-XXXXXX").into_os_string().into_vec();
    template.push(0);
    // SAFETY: the bytes end with the zero that was pushed, and are a vector's own: `mkdtemp` changes the six letters at
    // their end and no more.
    if unsafe { libc::mkdtemp(template.as_mut_ptr().cast()) }.is_null() {
        return Err(io::Error::last_os_error());
    }
    template.pop();
    let folder = PathBuf::from(OsString::from_vec(template));
    fs::set_permissions(&folder, Permissions::from_mode(0o711))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_there_from_when_something_is_made_until_the_end() {
        let own = Own::default();
        let missing = own.place(Path::new("socket"), false).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let place = own.place(Path::new(""), true).unwrap();
        fs::create_dir(&place).unwrap();
        let file = own.place(Path::new("socket"), false).unwrap();
        assert_eq!(file, place.join("socket"));
        fs::write(&file, "").unwrap();
        let above = place.parent().unwrap().to_owned();
        assert_eq!(fs::metadata(&above).unwrap().permissions().mode() & 0o777, 0o711);
        drop(own);
        assert!(!above.exists());
    }
}
