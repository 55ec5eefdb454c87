//! A folder that each machine has for itself, where the real machine has one that all programs share: what its programs
//! make there is in a real folder that only they are led to.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use nvabi_supervise::check;

/// How the names of these folders begin.
const PREFIX: &str = "nvabi-own-";

/// A folder for temporary files whose path is short.
const SHORT: &str = "/tmp";

/// The bytes of a path in a socket's address, with a zero at its end.
pub(super) const SOCKET_PATH: usize = 108;

/// The longest path of a place in which a socket has room for a name.
const MOST_OF_PLACE: usize = SOCKET_PATH - "/nvabi-own-XXXXXX/own/".len() - 32;

/// The real folder, from when something is made there until the machine is over.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// Where it can be made, the best place first.
    places: Vec<PathBuf>,
    folder: Mutex<Option<Made>>,
}

/// A folder, and the lock by which others see that its machine is there.
#[derive(Debug)]
struct Made {
    path: PathBuf,
    _lock: File,
}

impl Own {
    /// For a machine that begins. What machines left that were killed is removed.
    pub(super) fn new() -> Self {
        let places = places(temporary_folder().to_owned());
        places.iter().for_each(|place| sweep(place));
        Self { places, folder: Mutex::default() }
    }

    /// Whether something was made there.
    pub(super) fn is_made(&self) -> bool {
        self.folder.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Where a place below the folder really is, which is made for who makes something there.
    pub(super) fn place(&self, below: &Path, makes: bool) -> io::Result<PathBuf> {
        let mut folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        let place = match (&*folder, makes) {
            (Some(made), _) => made.path.clone(),
            (None, true) => folder.insert(make_in(&self.places)?).path.clone(),
            (None, false) => return Err(io::Error::from_raw_os_error(libc::ENOENT)),
        };
        // The folder itself comes and goes as its programs like.
        let place = place.join("own");
        Ok(if below.as_os_str().is_empty() { place } else { place.join(below) })
    }

    /// Removes it, with what programs left in it.
    pub(super) fn remove(&self) {
        let folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(made) = folder {
            // What cannot be removed is told to nobody: the machine is over.
            let _ = fs::remove_dir_all(made.path);
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The folder for temporary files, as it was called where the first machine began: a process that has a machine for many
/// programs leaves the folder that it was begun in.
pub(super) fn temporary_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    // An empty name is the folder that the process is in, as for others that take the variable.
    let named = || std::path::absolute(std::env::temp_dir().join("."));
    FOLDER.get_or_init(|| named().unwrap_or_else(|_| PathBuf::from(SHORT)))
}

/// The folder for temporary files, behind one whose path is short where sockets would have no room in it.
fn places(temporary: PathBuf) -> Vec<PathBuf> {
    let is_long = temporary.as_os_str().len() > MOST_OF_PLACE;
    let short = is_long.then(|| PathBuf::from(SHORT));
    short.into_iter().chain([temporary]).collect()
}

/// Removes the folders of machines that were killed: nobody has their lock.
fn sweep(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()) {
            // One that cannot be removed is in nobody's way.
            let _ = remove_left(&entry.path());
        }
    }
}

/// Removes a folder of ours whose lock nobody has.
fn remove_left(path: &Path) -> io::Result<()> {
    let file = open(path)?;
    // SAFETY: the call has no arguments.
    if file.metadata()?.uid() == unsafe { libc::geteuid() } {
        lock(&file, libc::LOCK_NB)?;
        fs::remove_dir_all(path)?;
    }
    Ok(())
}

/// Makes the folder in the first place where that can be.
fn make_in(places: &[PathBuf]) -> io::Result<Made> {
    let mut made = Err(io::ErrorKind::NotFound.into());
    for place in places {
        made = made.or_else(|_| make(place));
    }
    made
}

/// Makes a folder that nobody else can list, but the programs can go through, whoever they become.
fn make(place: &Path) -> io::Result<Made> {
    /// Others may be there between two steps of ours.
    const TRIES: usize = 16;
    let mut last = io::ErrorKind::NotFound.into();
    for _ in 0..TRIES {
        let path = make_path(place)?;
        let locked = open(&path).and_then(|file| {
            // Where a file system has no locks nobody else can have one either, by which it would be removed.
            match lock(&file, libc::LOCK_NB) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
            fs::set_permissions(&path, Permissions::from_mode(0o711))?;
            Ok(file)
        });
        last = match locked {
            Ok(file) => return Ok(Made { path, _lock: file }),
            Err(error) => error,
        };
        let _ = fs::remove_dir(path);
        // Who removes what others left may have taken it before it was locked, or be about to.
        if ![io::ErrorKind::NotFound, io::ErrorKind::WouldBlock].contains(&last.kind()) {
            break;
        }
    }
    Err(last)
}

fn make_path(place: &Path) -> io::Result<PathBuf> {
    let mut template = place.join(format!("{PREFIX}XXXXXX")).into_os_string().into_vec();
    template.push(0);
    // SAFETY: the bytes end with the zero that was pushed, and are a vector's own: `mkdtemp` changes the six letters at
    // their end and no more.
    if unsafe { libc::mkdtemp(template.as_mut_ptr().cast()) }.is_null() {
        return Err(io::Error::last_os_error());
    }
    template.pop();
    Ok(PathBuf::from(OsString::from_vec(template)))
}

/// Opens a folder that is no link.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path)
}

/// Takes the lock of a folder, which is there until this process ends.
fn lock(file: &File, how: i32) -> io::Result<()> {
    // SAFETY: the call takes numbers alone, and `file` keeps the descriptor open meanwhile.
    check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | how) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(places: Vec<PathBuf>) -> Own {
        Own { places, folder: Mutex::default() }
    }

    #[test]
    fn it_is_there_from_when_something_is_made_until_the_end() {
        let own = own(places(temporary_folder().to_owned()));
        let missing = own.place(Path::new("socket"), false).unwrap_err();
        assert_eq!((missing.kind(), own.is_made()), (io::ErrorKind::NotFound, false));
        let place = own.place(Path::new(""), true).unwrap();
        assert!(own.is_made());
        fs::create_dir(&place).unwrap();
        let file = own.place(Path::new("socket"), false).unwrap();
        assert_eq!(file, place.join("socket"));
        fs::write(&file, "").unwrap();
        let above = place.parent().unwrap().to_owned();
        assert_eq!(fs::metadata(&above).unwrap().permissions().mode() & 0o777, 0o711);
        drop(own);
        assert!(!above.exists());
    }

    #[test]
    fn what_was_left_is_removed() {
        let outer = own(places(temporary_folder().to_owned()));
        let above = outer.place(Path::new(""), true).unwrap();
        fs::create_dir_all(above.join("nvabi-own-abcdef/own")).unwrap();
        fs::create_dir(above.join("nvabi-other")).unwrap();
        fs::write(above.join("nvabi-own-file"), "").unwrap();
        std::os::unix::fs::symlink("nvabi-other", above.join("nvabi-own-link")).unwrap();
        let ours = own(vec![above.clone()]);
        let place = ours.place(Path::new(""), true).unwrap();
        sweep(&above);
        let name = place.parent().unwrap().file_name().unwrap().to_str().unwrap();
        let left =
            fs::read_dir(&above).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
        let mut left: Vec<String> = left.collect();
        left.sort();
        let mut expected = ["nvabi-other", "nvabi-own-file", "nvabi-own-link", name];
        expected.sort_unstable();
        assert_eq!(left, expected);
    }

    #[test]
    fn it_is_where_sockets_have_room() {
        let long = PathBuf::from("/none".repeat(30));
        assert_eq!(places(long.clone()), [PathBuf::from("/tmp"), long.clone()]);
        assert_eq!(places(PathBuf::from("/none")), [PathBuf::from("/none")]);
        let made = own(vec![long, temporary_folder().to_owned()])
            .place(Path::new("socket"), true)
            .unwrap();
        assert!(made.starts_with(temporary_folder()) && made.as_os_str().len() < SOCKET_PATH);
    }
}
