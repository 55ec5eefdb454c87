//! The simulated paths, and the real files that stand for folders and for names.
//!
//! None of them has a name that a program could find and replace: a folder is removed as soon as it is open,
//! and a file is memory. So nothing is left behind either, however the supervisor ends.

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::own::temporary_folder;
use crate::machine::{Entry, EntryKind};
use crate::memory::{self, Inode};
use nvabi_supervise::check;

/// What there is by a path.
#[derive(Debug)]
pub(super) struct Tree {
    entries: HashMap<PathBuf, EntryKind>,
    /// The last parts of all paths: most calls are about others.
    last_parts: HashSet<OsString>,
    stands: HashMap<PathBuf, (Arc<OwnedFd>, Inode)>,
    /// What the files mean that stand for something.
    meant: HashMap<Inode, PathBuf>,
    /// Names in folders, those of the real machine too.
    children: HashMap<PathBuf, Vec<Child>>,
    /// Real folders in which simulated files are.
    parents: HashMap<Inode, PathBuf>,
    /// The paths of a folder that the machine has for itself, as a real one elsewhere.
    own: &'static [&'static str],
    /// The real file systems that have simulated files.
    devices: HashSet<libc::dev_t>,
}

/// What is in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Child {
    pub(super) name: OsString,
    pub(super) kind: EntryKind,
    pub(super) inode: Inode,
}

impl Tree {
    pub(super) fn new(entries: Vec<Entry>) -> io::Result<Self> {
        Self::of(entries, &HashMap::new())
    }

    /// The same of other entries: what stands for a path goes on to do so.
    pub(super) fn changed(&self, entries: Vec<Entry>) -> io::Result<Self> {
        Ok(Self::of(entries, &self.stands)?.with_own(self.own))
    }

    /// The same with a folder that the machine has for itself, by these paths.
    pub(super) fn with_own(self, own: &'static [&'static str]) -> Self {
        Self { own, ..self }
    }

    /// What a path is below a folder that the machine has for itself; empty: that folder.
    pub(super) fn below_own<'p>(&self, path: &'p Path) -> Option<&'p Path> {
        self.own.iter().find_map(|own| path.strip_prefix(own).ok())
    }

    /// Whether a part of a path is called as such a folder.
    pub(super) fn names_own(&self, path: &Path) -> bool {
        let mut names = self.own.iter().filter_map(|own| Path::new(own).file_name());
        names.any(|name| path.iter().any(|part| part == name))
    }

    fn of(
        entries: Vec<Entry>,
        stands: &HashMap<PathBuf, (Arc<OwnedFd>, Inode)>,
    ) -> io::Result<Self> {
        let mut tree = Self {
            entries: HashMap::new(),
            last_parts: HashSet::new(),
            stands: HashMap::new(),
            meant: HashMap::new(),
            children: HashMap::new(),
            parents: HashMap::new(),
            own: &[],
            devices: HashSet::new(),
        };
        for Entry { path, kind } in entries {
            let stands = stands.get(Path::new(&path)).cloned();
            tree.add(PathBuf::from(path), kind, stands)?;
        }
        for folder in tree.children.keys().filter(|folder| !tree.entries.contains_key(*folder)) {
            // One that this machine has not lists nothing.
            if let Ok(file) = fs::OpenOptions::new().read(true).open(folder) {
                let inode = Inode::of(&memory::stat(file.as_raw_fd())?);
                tree.devices.insert(inode.device());
                tree.parents.insert(inode, folder.clone());
            }
        }
        // Where this machine lacks the folder between, what is above it counts.
        let tops =
            tree.entries.keys().filter_map(|path| path.iter().nth(1)).collect::<HashSet<_>>();
        let tops = tops.into_iter().filter_map(|top| fs::metadata(Path::new("/").join(top)).ok());
        tree.devices.extend(tops.map(|top| top.dev()));
        Ok(tree)
    }

    fn add(
        &mut self,
        path: PathBuf,
        kind: EntryKind,
        stands: Option<(Arc<OwnedFd>, Inode)>,
    ) -> io::Result<()> {
        let (file, inode) = match stands {
            Some(stands) => stands,
            None => {
                let file = if kind == EntryKind::Folder { folder() } else { name() }?;
                let inode = Inode::of(&memory::stat(file.as_raw_fd())?);
                (Arc::new(file), inode)
            }
        };
        self.meant.insert(inode, path.clone());
        if let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
            let child = Child { name: name.to_owned(), kind: kind.clone(), inode };
            self.children.entry(parent.to_owned()).or_default().push(child);
            self.last_parts.insert(name.to_owned());
        }
        self.stands.insert(path.clone(), (file, inode));
        self.entries.insert(path, kind);
        Ok(())
    }

    /// What stands at a path.
    pub(super) fn kind(&self, path: &Path) -> Option<EntryKind> {
        self.entries.get(path).cloned()
    }

    /// Whether a simulated folder is at a path. All that is in it is simulated.
    pub(super) fn is_folder(&self, path: &Path) -> bool {
        self.entries.get(path) == Some(&EntryKind::Folder)
    }

    /// Whether a path may end so.
    pub(super) fn is_last_part(&self, name: &OsStr) -> bool {
        self.last_parts.contains(name)
    }

    /// What a file stands for: a folder, or a name on which no call of a driver can be made.
    pub(super) fn meaning(&self, inode: Inode) -> Option<(&Path, EntryKind)> {
        let path = self.meant.get(&inode)?;
        Some((path, self.kind(path)?))
    }

    /// The folder that a file is, when that is a simulated one.
    pub(super) fn folder(&self, inode: Inode) -> Option<&Path> {
        let (path, kind) = self.meaning(inode)?;
        (kind == EntryKind::Folder).then_some(path)
    }

    /// Whether a real file system has simulated files.
    pub(super) fn is_on_device(&self, device: libc::dev_t) -> bool {
        self.devices.contains(&device)
    }

    /// What is in a folder. A real one has more.
    pub(super) fn children(&self, folder: &Path) -> &[Child] {
        self.children.get(folder).map_or(&[], Vec::as_slice)
    }

    /// The real folder that a file is, when there are simulated files in it.
    pub(super) fn parent(&self, inode: Inode) -> Option<&Path> {
        self.parents.get(&inode).map(PathBuf::as_path)
    }

    /// Opens what stands for a path, to be read and no more.
    pub(super) fn open(&self, path: &Path, flags: i32) -> io::Result<OwnedFd> {
        let (file, _) = self.stands.get(path).ok_or(io::ErrorKind::NotFound)?;
        reopen(file, flags)
    }

    /// The inode of what stands for a path, which no two paths have.
    pub(super) fn inode(&self, path: &Path) -> Option<Inode> {
        self.stands.get(path).map(|(_, inode)| *inode)
    }
}

/// Another opening of a file that has no name.
fn reopen(file: &OwnedFd, flags: i32) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut options = fs::OpenOptions::new();
    Ok(options.read(true).custom_flags(flags & libc::O_DIRECTORY).open(path)?.into())
}

/// An empty folder that nobody finds. What is above it is as empty, as far up as paths lead out of simulated folders.
fn folder() -> io::Result<OwnedFd> {
    /// More than the parts of any simulated path.
    const DEPTH: usize = 12;
    let template = temporary_folder().join("nvabi-sim-XXXXXX");
    let mut template = template.into_os_string().into_vec();
    template.push(0);
    // SAFETY: the bytes end with the zero that was pushed, and are a vector's own: `mkdtemp` changes the
    // six letters at their end and no more.
    if unsafe { libc::mkdtemp(template.as_mut_ptr().cast()) }.is_null() {
        let error = io::Error::last_os_error();
        let text = format!("cannot make a folder in {}: {error}", temporary_folder().display());
        return Err(io::Error::new(error.kind(), text));
    }
    template.pop();
    let top = PathBuf::from(OsString::from_vec(template));
    let path: PathBuf = std::iter::once(top.as_os_str()).chain([OsStr::new("x"); DEPTH]).collect();
    let opened = fs::create_dir_all(&path).and_then(|()| open_folder(&path));
    fs::remove_dir_all(&top)?;
    opened
}

/// Opens a folder of the real machine.
pub(super) fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the path ends with a zero byte and outlives the call; the kernel has just made the descriptor, and
    // returned it here alone.
    Ok(unsafe { OwnedFd::from_raw_fd(check(libc::open(path.as_ptr(), flags))?) })
}

/// An empty file that nobody can write.
fn name() -> io::Result<OwnedFd> {
    // SAFETY: the name ends with a zero byte; the kernel has just made the descriptor, and returned it here alone.
    unsafe {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        let file = OwnedFd::from_raw_fd(check(libc::memfd_create(c"nvabi-name".as_ptr(), flags))?);
        let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        check(libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals))?;
        Ok(file)
    }
}
