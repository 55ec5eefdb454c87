//! Where the machines of a user are: for each a folder with a socket, a log, and a lock that its process holds.
//!
//! A machine is up while somebody holds its lock, however its process ends. Who finds a folder without takes the lock
//! and removes it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;

/// The folder of a machine.
#[derive(Debug, Clone)]
pub(super) struct Folder {
    pub(super) name: String,
    path: PathBuf,
}

/// What a folder is found to be.
pub(super) enum State {
    /// There is none.
    Missing,
    /// Its process is there.
    Up,
    /// Its process has ended without removing it.
    Dead(Lock),
}

/// Held by the process of a machine, and by who removes its folder.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Folder {
    /// Of a machine, which need not be there.
    pub(super) fn of(name: &str) -> io::Result<Self> {
        let path = root();
        if path.exists() {
            check_own(&path)?;
        }
        Ok(Self { name: name.to_owned(), path: path.join(name) })
    }

    /// Of every machine of this user.
    pub(super) fn all() -> io::Result<Vec<Self>> {
        let path = root();
        let mut folders = Vec::new();
        if !path.exists() {
            return Ok(folders);
        }
        check_own(&path)?;
        for entry in fs::read_dir(&path).map_err(|error| at(&path, &error))? {
            let entry = entry?;
            if let (Ok(name), true) = (entry.file_name().into_string(), entry.path().is_dir()) {
                folders.push(Self { path: entry.path(), name });
            }
        }
        folders.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(folders)
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path.join("socket")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Makes the folder of a new machine; the machine is there for as long as the lock.
    pub(super) fn make(&self) -> io::Result<Lock> {
        /// Who removes a dead machine, or looks at it, has the lock for less than a millisecond.
        const TRIES: u32 = 20;
        make_own(&root())?;
        for _ in 0..TRIES {
            match make_own(&self.path) {
                // Somebody removed it just now.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                made => made?,
            }
            if let Some(lock) = self.lock(true)? {
                // What a process left that was killed.
                for path in [self.socket(), self.log()] {
                    let _ = fs::remove_file(path);
                }
                return Ok(lock);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let text = format!(
            "a machine `{}` is up: end it with `nvabi rm down {0}`, or choose another name",
            self.name
        );
        Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
    }

    pub(super) fn state(&self) -> io::Result<State> {
        if !self.path.exists() {
            return Ok(State::Missing);
        }
        match self.lock(false)? {
            Some(lock) if self.socket().exists() => return Ok(State::Dead(lock)),
            // Its process was killed before it was a machine, or is about to take the lock: then it tries again.
            Some(lock) => self.remove(lock),
            // The same before there was a lock: what is not empty stays.
            None => drop(fs::remove_dir(&self.path)),
        }
        Ok(if self.path.exists() { State::Up } else { State::Missing })
    }

    /// Takes the lock, where nobody has it.
    fn lock(&self, makes: bool) -> io::Result<Option<Lock>> {
        let path = self.path.join("lock");
        let opened =
            OpenOptions::new().read(true).write(true).create(makes).mode(0o600).open(&path);
        let file = match opened {
            Ok(file) => file,
            // A folder without a lock is one that somebody makes or removes.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(at(&path, &error)),
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(at(&path, &error.into())),
        }
        // Who removed the folder had the lock before.
        Ok(self.has(&file).then_some(Lock { file }))
    }

    /// Whether a file is the lock that there is.
    fn has(&self, file: &File) -> bool {
        fs::metadata(self.path.join("lock")).is_ok_and(|there| {
            file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (there.dev(), there.ino()))
        })
    }

    /// Removes the folder of a machine that is down; not one that somebody else has made in its place.
    pub(super) fn remove(&self, lock: Lock) {
        if !self.has(&lock.file) {
            return;
        }
        for name in ["socket", "log", "lock"] {
            let _ = fs::remove_file(self.path.join(name));
        }
        let _ = fs::remove_dir(&self.path);
        drop(lock);
    }

    /// Says whether the socket is still the one that there is now.
    pub(super) fn is_same(&self) -> impl Fn() -> bool + use<> {
        let path = self.socket();
        let found = move || fs::symlink_metadata(&path).ok().map(|it| (it.dev(), it.ino()));
        let now = found();
        move || found() == now
    }

    /// The last line that the machine's process wrote; after a panic there is one of advice.
    pub(super) fn last_words(&self) -> Option<String> {
        let log = fs::read(self.log()).ok()?;
        let text = String::from_utf8_lossy(&log);
        text.lines()
            .map(str::trim)
            .rfind(|line| !line.is_empty() && !line.starts_with("note: "))
            .map(str::to_owned)
    }

    /// A connection to the machine's process.
    pub(super) fn connect(&self) -> io::Result<UnixStream> {
        /// Milliseconds that a machine may need from its lock to its socket.
        const PATIENCE: u32 = 2000;
        for _ in 0..PATIENCE {
            if let Ok(stream) = UnixStream::connect(self.socket()) {
                return Ok(stream);
            }
            match self.state()? {
                State::Up => std::thread::sleep(Duration::from_millis(1)),
                State::Missing => return Err(self.missing()),
                State::Dead(lock) => {
                    let why = self.death();
                    self.remove(lock);
                    return Err(io::Error::new(io::ErrorKind::NotFound, why));
                }
            }
        }
        let text =
            format!("machine `{}` does not answer at {}", self.name, self.socket().display());
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    }

    /// What to say of a machine that is not there.
    pub(super) fn missing(&self) -> io::Error {
        let place = self.path.parent().unwrap_or(&self.path).display();
        let why = displacement().map(|why| format!("; {why}")).unwrap_or_default();
        let text = format!(
            "there is no machine `{}` in {place}: start it with `nvabi rm up {0}`, or see `nvabi rm status`{why}",
            self.name
        );
        io::Error::new(io::ErrorKind::NotFound, text)
    }

    /// What to say of one whose process has ended.
    pub(super) fn death(&self) -> String {
        let words = self.last_words().map(|words| format!("; it last wrote: {words}"));
        let words = words.unwrap_or_default();
        format!(
            "machine `{}` is dead: its process has ended without `nvabi rm down`, and its programs with it; its folder \
             is removed{words}",
            self.name
        )
    }
}

/// The folder of this user's machines, which nobody else can enter.
fn root() -> PathBuf {
    match runtime().filter(|path| is_usable(path)) {
        Some(runtime) => runtime.join("nvabi"),
        None => std::env::temp_dir().join(format!("nvabi-{}", geteuid().as_raw())),
    }
}

/// Where the user has files that last as long as a session.
fn runtime() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn is_usable(runtime: &Path) -> bool {
    runtime.is_absolute() && runtime.is_dir()
}

/// Why machines are not where XDG_RUNTIME_DIR says.
pub(super) fn displacement() -> Option<String> {
    let named = runtime().filter(|path| !is_usable(path))?;
    let text = "is no absolute path of a folder: machines are in";
    Some(format!("XDG_RUNTIME_DIR `{}` {text} {}", named.display(), root().display()))
}

/// Makes a folder, or checks one that is there.
fn make_own(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check_own(path),
        made => made.map_err(|error| at(path, &error)),
    }
}

/// Checks that a folder is this user's alone: others could take the socket's place.
fn check_own(path: &Path) -> io::Result<()> {
    let user = geteuid().as_raw();
    let found = fs::symlink_metadata(path).map_err(|error| at(path, &error))?;
    if found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let text = format!(
        "{} must be a folder of user {user} with mode 700, found one of user {} with mode {:o}: remove it, or set \
         XDG_RUNTIME_DIR to a folder of your own",
        path.display(),
        found.uid(),
        found.mode() & 0o7777
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// An error with the place that it is about.
fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
