//! Symbolic links to simulated files, those of the real machine and simulated ones, which the kernel cannot follow to
//! their end.
//!
//! Looking for a real link must not wait for a file system that a program of ours serves. So the supervisor looks only
//! at what the kernel has in memory, and what it has not is looked for by a thread of its own.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use super::target::known_stat;
use super::tree::Tree;
use crate::Errno;
use crate::machine::EntryKind;
use crate::memory::Inode;
use nvabi_supervise::{check, normal};

/// The most links on the way to a file, as the kernel counts them.
const MOST_LINKS: usize = 40;

/// Longest text of a link.
const LINK_MAX: usize = 4096;

/// The roots of file systems of the kernel's, by which a path is told to leave one.
const MOUNTS: [&str; 3] = ["/dev", "/proc", "/sys"];

/// The folders of whoever looks.
const OWN: [&str; 2] = ["/proc/self", "/proc/thread-self"];

/// What a path was found to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A simulated file.
    Simulated(PathBuf),
    /// A name that a simulated folder does not have.
    Absent,
    /// No file, as the simulated folders on the way to it say: what the real machine has there is not it.
    Failed(Errno),
    /// A real file that only this path leads to, for the other one goes through simulated folders.
    Outside(PathBuf),
    /// A place below a folder that the machine has for itself, which is empty for that folder.
    Own(PathBuf),
    /// Nothing of ours.
    Other,
    /// Who looks has to wait for it.
    Unknown,
}

/// Where the real machine says that a path leads.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Leads {
    /// To a file system without simulated files.
    Elsewhere,
    /// To a link, or to a file system with simulated files.
    Near,
    /// Nowhere: links to simulated files can be on it that the real machine does not have. It makes nothing there.
    Nowhere,
    /// Who looks has to wait for it.
    Unknown,
}

/// How links are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Only where that takes no time.
    AtOnce,
    /// Everywhere.
    Waits,
}

/// How a path is followed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    /// Whether a link at its end is followed.
    pub(super) follows_last: bool,
    pub(super) look: Look,
    /// The thread that it is a path of.
    pub(super) caller: u32,
    /// `RESOLVE_…` of `openat2`.
    pub(super) limits: u64,
}

impl Way {
    fn is(&self, limit: u64) -> bool {
        self.limits & limit != 0
    }

    /// Whether the path must not leave the folder that it starts in.
    fn is_scoped(&self) -> bool {
        self.is(libc::RESOLVE_BENEATH | libc::RESOLVE_IN_ROOT)
    }
}

/// Whether a path that ends as no simulated one may nevertheless lead below a simulated folder: each part of it has to
/// be looked at. Links elsewhere lead there as well, and [`leads`] looks for these.
/// `plain` is the same without the parts that mean the one above.
pub(super) fn is_near(tree: &Tree, path: &Path, plain: &Path) -> bool {
    let is_below = |path: &Path| path.ancestors().skip(1).any(|folder| tree.is_folder(folder));
    plain.starts_with("/sys")
        || tree.names_own(path)
        || is_through_process(path, plain)
        || is_below(plain)
        || is_below(path)
}

/// Whether a path goes through what a process has open, or the folder that it is in.
fn is_through_process(path: &Path, plain: &Path) -> bool {
    let parts: Vec<&OsStr> = path.iter().skip_while(|part| *part != "proc").collect();
    let before = |last: usize| parts.iter().rev().skip(last);
    before(0).any(|part| *part == "cwd" || *part == "root")
        || before(1).any(|part| *part == "fd")
        || plain.starts_with("/dev/fd") && plain.iter().count() > 3
        || ["/dev/stdin", "/dev/stdout", "/dev/stderr"].iter().any(|it| plain.starts_with(it))
}

/// Where an absolute path leads whose text does not tell: to any file system by a link in its middle.
pub(super) fn leads(tree: &Tree, path: &Path, follows: bool, look: Look) -> Leads {
    // Behind a last separator would be what a link leads to.
    let path: PathBuf = path.components().collect();
    let of = |path: &Path, flags: i32| {
        let file = open_path(path, flags, look)?;
        let stat = known_stat(file.as_raw_fd(), c"", libc::AT_EMPTY_PATH);
        let stat = stat.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        // No link led to where its text says that it is. One file alone may be mounted from another device.
        let is_near = place_of(&file)?.is_some_and(|place| {
            let is_there = tree.is_on_device(stat.st_dev) || mount(&place).is_some();
            is_there && place != path
        });
        io::Result::Ok((is_near, stat.st_mode & libc::S_IFMT == libc::S_IFLNK))
    };
    let itself = || of(&path, libc::O_NOFOLLOW);
    let folder = || of(path.parent().unwrap_or(&path), 0);
    let found = match if follows { itself() } else { folder() } {
        // A file that is not there is where its folder is.
        Err(error) if follows && error.kind() == io::ErrorKind::NotFound => folder(),
        found => found,
    };
    match found {
        Ok((is_near, is_link)) if is_near || follows && is_link => Leads::Near,
        Ok(_) => Leads::Elsewhere,
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Leads::Unknown,
        // By a link of the process that asks, of which this one knows nothing.
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => Leads::Near,
        Err(_) => Leads::Nowhere,
    }
}

/// Where the real machine says that a path leads from a folder of a process on, of which nothing is simulated; none where
/// that has no path of its own.
pub(super) fn place(
    folder: &Path,
    path: &Path,
    follows: bool,
    look: Look,
) -> io::Result<Option<PathBuf>> {
    let folder = open_name(libc::AT_FDCWD, &CString::new(folder.as_os_str().as_bytes())?, 0, 0)?;
    let cached = if look == Look::AtOnce { libc::RESOLVE_CACHED } else { 0 };
    let of = |path: &Path, flags: i32| {
        let name = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let name = CString::new(name.as_os_str().as_bytes())?;
        let limits = cached | libc::RESOLVE_NO_MAGICLINKS;
        place_of(&open_name(folder.as_raw_fd(), &name, flags, limits)?)
    };
    match of(path, if follows { 0 } else { libc::O_NOFOLLOW }) {
        // A file that is not there is where its folder is, unless a link leads nowhere.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if follows && of(path, libc::O_NOFOLLOW).is_ok() {
                return Err(error);
            }
            let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(error);
            };
            Ok(of(folder, 0)?.map(|folder| folder.join(name)))
        }
        found => found,
    }
}

/// Where simulated links lead that begin at a path of a simulated file, which has no links before its end; none where
/// they leave simulated files.
pub(super) fn end(tree: &Tree, path: &Path) -> Option<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..=MOST_LINKS {
        let EntryKind::Link(target) = tree.kind(&path)? else { return Some(path) };
        // What has a simulated path has no links before its end.
        path = normal(&path.parent()?.join(target.as_ref()));
    }
    None
}

/// The simulated file that a path leads to from a folder on, which is absolute and has no links in it.
pub(super) fn follow(tree: &Tree, folder: &Path, path: &Path, way: Way) -> Found {
    let (at, was_inside) = (folder.to_owned(), tree.is_folder(folder));
    Walk { tree, way, start: folder, at, by: None, was_inside, rest: parts(path), links: 0 }.run()
}

/// A path that is followed part by part, as the kernel does it (`link_path_walk` in `fs/namei.c`).
struct Walk<'a> {
    tree: &'a Tree,
    way: Way,
    start: &'a Path,
    /// Where it has come to: no part of this is a link.
    at: PathBuf,
    /// The same by the last link of a process, where that led to a real file: what its text says may be none, and is
    /// not it for certain.
    by: Option<PathBuf>,
    /// Whether it was in a simulated folder.
    was_inside: bool,
    /// What is left, the first part at the end.
    rest: Vec<OsString>,
    links: usize,
}

impl Walk<'_> {
    fn run(mut self) -> Found {
        while let Some(part) = self.rest.pop() {
            if let Err(found) = self.step(&part) {
                return found;
            }
        }
        if let Some(below) = self.tree.below_own(&self.at) {
            return Found::Own(below.to_owned());
        }
        match self.tree.kind(&self.at) {
            Some(_) => Found::Simulated(self.at),
            None if self.is_in_folder() => Found::Absent,
            None if self.was_inside => Found::Outside(self.by.unwrap_or(self.at)),
            None => Found::Other,
        }
    }

    /// Goes on by one part; an error ends the walk.
    fn step(&mut self, part: &OsStr) -> Result<(), Found> {
        let before = self.at.clone();
        match Path::new(part).components().next() {
            Some(Component::ParentDir) if self.way.is_scoped() && self.at == self.start => {
                let is_kept = self.way.is(libc::RESOLVE_IN_ROOT);
                return if is_kept { Ok(()) } else { Err(Found::Failed(Errno::EXDEV)) };
            }
            Some(Component::ParentDir) => drop(self.at.pop()),
            Some(Component::Normal(name)) => self.at.push(name),
            _ => return Ok(()),
        }
        if let Some(by) = &mut self.by {
            by.push(part);
        }
        self.stay(&before)?;
        self.was_inside |= self.tree.is_folder(&self.at);
        if self.tree.below_own(&self.at).is_some() {
            // What links are there the kernel follows, where it really is.
            self.was_inside = true;
            return Ok(());
        }
        let is_last = self.rest.is_empty();
        let follows = !is_last || self.way.follows_last;
        let kind = self.tree.kind(&self.at);
        if kind.is_some() {
            self.by = None;
        }
        match kind {
            Some(EntryKind::Link(target)) if follows => self.go(Path::new(target.as_ref())),
            Some(kind) if is_last || kind == EntryKind::Folder => Ok(()),
            // There is nothing below a file.
            Some(_) => Err(Found::Failed(Errno::ENOTDIR)),
            None if self.is_in_folder() => {
                Err(if is_last { Found::Absent } else { Found::Failed(Errno::ENOENT) })
            }
            None if !follows => Ok(()),
            None => self.step_outside(),
        }
    }

    /// What the real machine has at this place.
    fn step_outside(&mut self) -> Result<(), Found> {
        if OWN.iter().any(|own| self.at == Path::new(own)) {
            let own = PathBuf::from(self.way.caller.to_string());
            return self.go(&own);
        }
        let target = link_of_process(self.tree, &self.at);
        match target.map_or_else(|| link_at(&self.at, self.way.look), |it| Ok(Some(it))) {
            Ok(None) => Ok(()),
            Ok(Some(target)) if is_of_process(&self.at) => self.jump(target),
            Ok(Some(target)) => self.go(&target),
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Err(Found::Unknown),
            // The kernel might find it from another folder on, where it need not be so long.
            Err(error) if error.raw_os_error() == Some(libc::ENAMETOOLONG) => {
                Err(Found::Failed(Errno::ENAMETOOLONG))
            }
            Err(_) if self.was_inside => {
                let rest = self.rest.iter().rev().map(OsString::as_os_str);
                let at = self.by.as_ref().unwrap_or(&self.at);
                Err(Found::Outside(at.iter().chain(rest).collect()))
            }
            Err(_) => Err(Found::Other),
        }
    }

    /// Goes where a link says.
    fn go(&mut self, target: &Path) -> Result<(), Found> {
        self.count_link()?;
        let before = self.at.clone();
        self.at.pop();
        if let Some(by) = &mut self.by {
            by.pop();
        }
        if target.is_absolute() {
            self.by = None;
            if self.way.is(libc::RESOLVE_BENEATH) {
                return Err(Found::Failed(Errno::EXDEV));
            }
            let is_in_root = self.way.is(libc::RESOLVE_IN_ROOT);
            self.at = if is_in_root { self.start.to_owned() } else { PathBuf::from("/") };
            self.stay(&before)?;
        }
        self.rest.extend(parts(target));
        Ok(())
    }

    /// Goes where a link of a process leads, whatever its text is (`nd_jump_link`).
    fn jump(&mut self, target: PathBuf) -> Result<(), Found> {
        if self.way.is(libc::RESOLVE_NO_MAGICLINKS) {
            return Err(Found::Failed(Errno::ELOOP));
        }
        self.count_link()?;
        if self.way.is_scoped() {
            return Err(Found::Failed(Errno::EXDEV));
        }
        let before = std::mem::replace(&mut self.at, target);
        let kind = self.tree.kind(&self.at);
        self.was_inside |= kind == Some(EntryKind::Folder);
        self.by = match kind {
            None => Some(self.by.take().unwrap_or_else(|| before.clone())),
            Some(EntryKind::Folder) => None,
            Some(_) if self.rest.is_empty() => None,
            Some(_) => return Err(Found::Failed(Errno::ENOTDIR)),
        };
        self.stay(&before)
    }

    fn count_link(&mut self) -> Result<(), Found> {
        self.links += 1;
        let is_refused = self.way.is(libc::RESOLVE_NO_SYMLINKS) || self.links > MOST_LINKS;
        if is_refused { Err(Found::Failed(Errno::ELOOP)) } else { Ok(()) }
    }

    /// Whether it may be here, when it was there before.
    fn stay(&self, before: &Path) -> Result<(), Found> {
        let is_left = mount(before) != mount(&self.at);
        let is_refused = is_left && self.way.is(libc::RESOLVE_NO_XDEV);
        if is_refused { Err(Found::Failed(Errno::EXDEV)) } else { Ok(()) }
    }

    /// Whether this place is in a simulated folder.
    fn is_in_folder(&self) -> bool {
        self.at.parent().is_some_and(|folder| self.tree.is_folder(folder))
    }
}

/// The file system of the kernel's that a path is on; none: of the others, which are one here.
pub(super) fn mount(path: &Path) -> Option<&'static str> {
    MOUNTS.into_iter().find(|mount| path.starts_with(mount))
}

/// Whether a link is one of a process to a file that it has.
fn is_of_process(path: &Path) -> bool {
    let is_link = ["cwd", "root", "exe"].iter().any(|name| path.ends_with(name))
        || path.parent().is_some_and(|folder| folder.ends_with("fd"));
    is_link && path.starts_with("/proc")
}

/// The parts of a path, the first at the end.
fn parts(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
}

/// The simulated file that a process has open by its name, or the folder that it is in, by the link to it, which says
/// where the file is that stands for it.
fn link_of_process(tree: &Tree, path: &Path) -> Option<PathBuf> {
    if !is_of_process(path) {
        return None;
    }
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let inode = Inode::of(&known_stat(libc::AT_FDCWD, &path, 0)?);
    tree.meaning(inode).map(|(path, _)| path.to_owned())
}

/// What a link says; none where something else is.
fn link_at(path: &Path, look: Look) -> io::Result<Option<PathBuf>> {
    let file = open_path(path, libc::O_NOFOLLOW, look)?;
    let mut text = vec![0_u8; LINK_MAX];
    // SAFETY: the kernel writes no more bytes than it is told, which is the length of the vector; the empty path
    // ends with a zero byte.
    let length = unsafe {
        libc::readlinkat(file.as_raw_fd(), c"".as_ptr(), text.as_mut_ptr().cast(), text.len())
    };
    // `ENOENT` is what it says of anything but a link.
    let Ok(length) = usize::try_from(length) else { return Ok(None) };
    text.truncate(length);
    Ok(Some(OsStr::from_bytes(&text).into()))
}

/// Where a file is that is open; none where that is longer than a path can be.
fn place_of(file: &OwnedFd) -> io::Result<Option<PathBuf>> {
    match std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) {
        Err(error) if error.raw_os_error() == Some(libc::ENAMETOOLONG) => Ok(None),
        place => place.map(Some),
    }
}

/// Opens a path by its name alone, and never by a link of a process: what those lead to depends on who asks.
fn open_path(path: &Path, flags: i32, look: Look) -> io::Result<OwnedFd> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    if look == Look::Waits {
        return open_name(libc::AT_FDCWD, &name, flags, libc::RESOLVE_NO_MAGICLINKS);
    }
    let cached = libc::RESOLVE_CACHED | libc::RESOLVE_NO_MAGICLINKS;
    let opened = open_name(libc::AT_FDCWD, &name, flags, cached);
    let is_unknown = matches!(&opened, Err(error) if error.raw_os_error() == Some(libc::EAGAIN));
    let is_kept = flags & libc::O_NOFOLLOW != 0;
    let (true, Some(folder), Some(name)) = (is_unknown && is_kept, path.parent(), path.file_name())
    else {
        return opened;
    };
    // The kernel does not remember which names a file system in memory lacks, and needs not wait for it.
    let folder = CString::new(folder.as_os_str().as_bytes())?;
    let folder = open_name(libc::AT_FDCWD, &folder, 0, cached)?;
    if !is_in_memory(&folder) {
        return opened;
    }
    let name = CString::new(name.as_bytes())?;
    open_name(folder.as_raw_fd(), &name, flags, libc::RESOLVE_NO_XDEV | libc::RESOLVE_NO_SYMLINKS)
}

/// Whether a file is of tmpfs.
fn is_in_memory(file: &OwnedFd) -> bool {
    // SAFETY: the struct is of integers, so zeros are a value of it; the kernel writes one, which is there, and `file`
    // keeps the descriptor open meanwhile.
    unsafe {
        let mut known: libc::statfs = std::mem::zeroed();
        libc::fstatfs(file.as_raw_fd(), &raw mut known) == 0 && known.f_type == libc::TMPFS_MAGIC
    }
}

/// Opens a name in a folder, without opening the file.
fn open_name(folder: i32, path: &CStr, flags: i32, limits: u64) -> io::Result<OwnedFd> {
    // SAFETY: the struct is of integers, and zeros are a value of it.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_PATH | libc::O_CLOEXEC | flags) as u64;
    how.resolve = limits;
    // SAFETY: the path ends with a zero byte, and the kernel reads as many bytes of `how` as it is told: its size.
    // The kernel has just made the descriptor, and returned it here alone.
    unsafe {
        let size = size_of::<libc::open_how>();
        let fd = libc::syscall(libc::SYS_openat2, folder, path.as_ptr(), &raw const how, size);
        Ok(OwnedFd::from_raw_fd(check(fd as libc::c_int)?))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::machine::{Entry, Text};

    fn way(follows_last: bool) -> Way {
        Way { follows_last, look: Look::Waits, caller: std::process::id(), limits: 0 }
    }

    #[test]
    fn links_are_followed_to_simulated_files() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let link = |target: &str| EntryKind::Link(target.into());
        let entries = [
            ("/made-up", EntryKind::Folder),
            ("/made-up/folder", EntryKind::Folder),
            ("/made-up/folder/inner", EntryKind::Folder),
            ("/made-up/down", link("folder/inner")),
            ("/made-up/folder/up", link("../down")),
            ("/made-up/round", link("folder/../round")),
            (
                "/made-up/text",
                EntryKind::Text(Text { id: 0, is_writable: false, is_binary: false }),
            ),
        ];
        let entries = entries.map(|(path, kind)| Entry { path: path.to_owned(), kind });
        let tree = Tree::new(entries.into()).unwrap();
        symlink("/made-up", at("link")).unwrap();
        symlink("link", at("again")).unwrap();
        symlink("loop", at("loop")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        let root = Path::new("/");
        let found = |name: &str, follows_last| follow(&tree, root, &at(name), way(follows_last));
        let simulated = |path: &str| Found::Simulated(PathBuf::from(path));
        assert_eq!(found("again", true), simulated("/made-up"));
        assert_eq!(found("again", false), Found::Other);
        assert_eq!(found("again/folder", false), simulated("/made-up/folder"));
        assert_eq!(found("link/../made-up/./folder", true), simulated("/made-up/folder"));
        assert_eq!(found("file/../link", true), simulated("/made-up"));
        for name in ["file", "none"] {
            assert_eq!(found(name, true), Found::Other, "{name}");
        }
        for name in ["loop", "loop/folder"] {
            assert_eq!(found(name, true), Found::Failed(Errno::ELOOP), "{name}");
        }
        // What is not in a simulated folder is not there, whatever the real machine has.
        for follows in [true, false] {
            for name in ["again/other", "again/folder/other"] {
                assert_eq!(found(name, follows), Found::Absent, "{name}");
            }
            assert_eq!(found("again/other/folder", follows), Found::Failed(Errno::ENOENT));
        }
        assert_eq!(found("link/text/other", true), Found::Failed(Errno::ENOTDIR));
        // Those of the tree are followed as well, and lead to where they are.
        assert_eq!(found("link/down", false), simulated("/made-up/down"));
        assert_eq!(found("link/down", true), simulated("/made-up/folder/inner"));
        assert_eq!(found("link/folder/up", true), simulated("/made-up/folder/inner"));
        assert_eq!(found("again/down/../up/..", true), simulated("/made-up/folder"));
        assert_eq!(found("link/round", true), Found::Failed(Errno::ELOOP));
        // What is left of a path that leaves them is the kernel's, without links as far as it was followed.
        let left =
            follow(&tree, Path::new("/made-up/folder"), Path::new("../../tmp/no/../x"), way(true));
        assert_eq!(left, Found::Outside(PathBuf::from("/tmp/no/../x")));
        for name in ["none", "file", "link"] {
            // By its text: as a path, it is the same with a separator behind it.
            let Found::Outside(left) = found(&format!("link/..{}", at(name).display()), false)
            else {
                panic!("{name}");
            };
            assert_eq!(left.as_os_str(), at(name).as_os_str());
        }
    }

    #[test]
    fn paths_lead_to_simulated_files_by_links_in_their_middle() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let entry = |path: &str| Entry { path: path.to_owned(), kind: EntryKind::Folder };
        // A folder that each machine has, with files that are not simulated.
        let tree = Tree::new(vec![entry("/proc/sys"), entry("/proc/made-up")]).unwrap();
        symlink("/proc/sys", at("link")).unwrap();
        symlink("/proc/made-up", at("dangling")).unwrap();
        symlink("file", at("short")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        let leads = |name: &str, follows| leads(&tree, &at(name), follows, Look::Waits);
        for follows in [true, false] {
            for name in ["link/kernel", "link/kernel/", "link/none", "link/kernel/none"] {
                assert_eq!(leads(name, follows), Leads::Near, "{name}");
            }
            for name in ["file", "none"] {
                assert_eq!(leads(name, follows), Leads::Elsewhere, "{name}");
            }
            for name in ["dangling/none", "none/none"] {
                assert_eq!(leads(name, follows), Leads::Nowhere, "{name}");
            }
        }
        for path in ["/proc/version", "/proc/none", "/proc/self/none"] {
            let led = super::leads(&tree, Path::new(path), false, Look::Waits);
            assert_eq!(led == Leads::Near, path.contains("self"), "{path}");
        }
        // Links of processes, and what is mounted from another device than the simulated files' folders.
        symlink("/proc/self/cwd", at("here")).unwrap();
        symlink("/dev", at("other")).unwrap();
        for name in ["here/none", "here/src", "other/null", "other/none"] {
            assert_eq!(leads(name, false), Leads::Near, "{name}");
        }
        for name in ["link", "short", "dangling", "short/"] {
            assert_eq!(leads(name, true), Leads::Near, "{name}");
            assert_eq!(leads(name, false), Leads::Elsewhere, "{name}");
        }
        let found = |name: &str| follow(&tree, Path::new("/"), &at(name), way(true));
        assert_eq!(found("link/kernel"), Found::Absent, "whatever the machine has there");
        // Such a file that was opened by another way is not there either.
        let open = std::fs::File::open("/proc/sys/kernel").unwrap();
        let path = format!("/proc/self/fd/{}", open.as_raw_fd());
        assert_eq!(follow(&tree, Path::new("/"), Path::new(&path), way(true)), Found::Absent);
        // A machine may lack the folder that a simulated one is in.
        let tree = Tree::new(vec![entry("/proc/no-folder/made-up")]).unwrap();
        assert_eq!(super::leads(&tree, &at("link/kernel"), true, Look::Waits), Leads::Near);
    }

    #[test]
    fn limits_of_a_path_are_kept() {
        const XDEV: u64 = libc::RESOLVE_NO_XDEV;
        const MAGIC: u64 = libc::RESOLVE_NO_MAGICLINKS;
        const LINKS: u64 = libc::RESOLVE_NO_SYMLINKS;
        const BENEATH: u64 = libc::RESOLVE_BENEATH;
        const IN_ROOT: u64 = libc::RESOLVE_IN_ROOT;
        let link = |target: &str| EntryKind::Link(target.into());
        let entries = [
            ("/sys/made-up", EntryKind::Folder),
            ("/sys/made-up/inner", EntryKind::Folder),
            ("/sys/made-up/inner/up", link("../inner")),
            ("/sys/made-up/inner/whole", link("/sys/made-up")),
            ("/sys/made-up/inner/inner", EntryKind::Folder),
            ("/dev/made-up", EntryKind::Folder),
        ];
        let entries = entries.map(|(path, kind)| Entry { path: path.to_owned(), kind });
        let tree = Tree::new(entries.into()).unwrap();
        let open = tree.open(Path::new("/sys/made-up"), libc::O_DIRECTORY).unwrap();
        let magic = format!("proc/self/fd/{}", open.as_raw_fd());
        let inner = || Found::Simulated("/sys/made-up/inner".into());
        let failed = Found::Failed;
        for (folder, path, limits, expected) in [
            ("/sys/made-up", "inner", XDEV | MAGIC | LINKS | BENEATH, inner()),
            ("/sys/made-up", "inner/up", XDEV | MAGIC | BENEATH, inner()),
            ("/sys/made-up", "inner/up", LINKS, failed(Errno::ELOOP)),
            ("/sys/made-up", "inner/..", BENEATH, Found::Simulated("/sys/made-up".into())),
            ("/sys/made-up", "..", BENEATH, failed(Errno::EXDEV)),
            ("/sys/made-up/inner", "up", BENEATH, failed(Errno::EXDEV)),
            ("/sys/made-up", "inner/whole/inner", BENEATH, failed(Errno::EXDEV)),
            ("/sys/made-up", "inner/whole/inner", 0, inner()),
            // From the new root on.
            ("/sys/made-up", "../../inner", IN_ROOT, inner()),
            ("/sys/made-up", "inner/whole/inner", IN_ROOT, failed(Errno::ENOENT)),
            ("/", "sys/made-up/inner", IN_ROOT, inner()),
            ("/tmp", "sys/made-up/inner", IN_ROOT, Found::Other),
            // To another file system and back.
            ("/", "sys/made-up/inner", XDEV, failed(Errno::EXDEV)),
            ("/sys/made-up", "../../dev/made-up", XDEV, failed(Errno::EXDEV)),
            ("/sys/made-up", "../made-up/inner", XDEV, inner()),
            ("/sys/made-up", "inner/whole/inner", XDEV, failed(Errno::EXDEV)),
            // By a process.
            ("/", &format!("{magic}/inner"), 0, inner()),
            ("/", &magic, 0, Found::Simulated("/sys/made-up".into())),
            ("/", &format!("{magic}/inner"), MAGIC, failed(Errno::ELOOP)),
            ("/", &format!("{magic}/inner"), LINKS, failed(Errno::ELOOP)),
            ("/", &format!("{magic}/inner"), BENEATH, failed(Errno::EXDEV)),
            ("/", &format!("{magic}/none"), 0, Found::Absent),
        ] {
            let found =
                follow(&tree, Path::new(folder), Path::new(path), Way { limits, ..way(true) });
            assert_eq!(found, expected, "{folder} {path} {limits:#x}");
        }
    }

    #[test]
    fn folders_of_processes_are_followed() {
        let entries = [
            Entry { path: "/made-up".to_owned(), kind: EntryKind::Folder },
            Entry { path: "/made-up/inner".to_owned(), kind: EntryKind::Folder },
        ];
        let tree = Tree::new(entries.into()).unwrap();
        let open = tree.open(Path::new("/made-up"), libc::O_DIRECTORY).unwrap();
        let fd = open.as_raw_fd();
        let caller = std::process::id();
        for folder in
            ["/proc/self", "/proc/thread-self", &format!("/proc/self/task/{caller}"), "/dev"]
        {
            for (name, expected) in [
                ("inner", Found::Simulated("/made-up/inner".into())),
                ("../made-up/inner", Found::Simulated("/made-up/inner".into())),
                ("other", Found::Absent),
            ] {
                let path = PathBuf::from(format!("{folder}/fd/{fd}/{name}"));
                assert!(is_near(&tree, &path, &normal(&path)), "{path:?}");
                assert_eq!(follow(&tree, Path::new("/"), &path, way(true)), expected, "{path:?}");
            }
        }
        let near = [
            "/sys/x",
            "/tmp/../sys/x",
            "/made-up/x/y",
            "/proc/1/cwd/x",
            &format!("/proc/self/task/1/{}/x", "root"),
            "/dev/stdin/x",
            "/tmp/../proc/self/cwd/../x",
            "/proc/self/cwd",
            "/proc/self/fd/3",
            "/dev/fd/3",
            "/dev/stdin",
        ];
        let far = [
            "/",
            "/srv/fd/x/y",
            "/proc/self/fd",
            "/dev/fd",
            "/proc/self/fdinfo/3",
            "/usr/lib/cwd/x",
        ];
        for path in near {
            assert!(is_near(&tree, Path::new(path), &normal(Path::new(path))), "{path}");
        }
        for path in far {
            assert!(!is_near(&tree, Path::new(path), &normal(Path::new(path))), "{path}");
        }
    }
}
