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
use nvabi_supervise::check;

/// The most links on the way to a file, as the kernel counts them.
const MOST_LINKS: usize = 40;

/// Longest text of a link.
const LINK_MAX: usize = 4096;

/// Folders without links to files that could be simulated, where looking costs most.
const WITHOUT: [&str; 2] = ["/proc", "/sys"];

/// The folders of whoever looks.
const OWN: [&str; 2] = ["/proc/self", "/proc/thread-self"];

/// What a path was found to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A simulated file.
    Simulated(PathBuf),
    /// No file, as the simulated folders on the way to it say: what the real machine has there is not it.
    Failed(Errno),
    /// Nothing of ours.
    Other,
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
}

/// Whether a path that ends as no simulated one may nevertheless lead below a simulated folder: each part of it has to
/// be looked at. Links elsewhere could lead there as well, but to look for them takes too long.
/// `plain` is the same without the parts that mean the one above.
pub(super) fn is_near(tree: &Tree, path: &Path, plain: &Path) -> bool {
    path.starts_with("/sys")
        || plain.starts_with("/sys")
        || is_through_process(path, plain)
        || plain.ancestors().skip(1).any(|folder| tree.is_folder(folder))
}

/// Whether a path goes through a folder that a process has open, or is in.
fn is_through_process(path: &Path, plain: &Path) -> bool {
    let parts: Vec<&OsStr> = path.iter().skip_while(|part| *part != "proc").collect();
    let before = |last: usize| parts.iter().rev().skip(last);
    before(1).any(|part| *part == "cwd" || *part == "root")
        || before(2).any(|part| *part == "fd")
        || plain.starts_with("/dev/fd") && plain.iter().count() > 4
        || plain.parent().is_some_and(|folder| {
            ["/dev/stdin", "/dev/stdout", "/dev/stderr"].iter().any(|it| folder.starts_with(it))
        })
}

/// Whether the last part of an absolute path is a link; none: who looks has to wait.
pub(super) fn is_link(path: &Path, look: Look) -> Option<bool> {
    if WITHOUT.iter().any(|folder| path.starts_with(folder)) {
        return Some(false);
    }
    // Behind a last separator would be what a link leads to.
    let path: PathBuf = path.components().collect();
    match link_at(&path, look) {
        Ok(target) => Some(target.is_some()),
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => None,
        Err(_) => Some(false),
    }
}

/// The simulated file that an absolute path leads to.
pub(super) fn follow(tree: &Tree, path: &Path, way: Way) -> Found {
    let Way { follows_last, look, caller } = way;
    let mut rest: Vec<OsString> = parts(path);
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(part) = rest.pop() {
        match Path::new(&part).components().next() {
            Some(Component::ParentDir) => drop(at.pop()),
            Some(Component::Normal(name)) => at.push(name),
            _ => continue,
        }
        let is_last = rest.is_empty();
        if !is_last && OWN.iter().any(|own| at == Path::new(own)) {
            at = PathBuf::from(format!("/proc/{caller}"));
            continue;
        }
        let target = match tree.kind(&at) {
            Some(EntryKind::Link(target)) if !is_last || follows_last => {
                PathBuf::from(target.as_ref())
            }
            Some(_) if is_last => return Found::Simulated(at),
            Some(EntryKind::Folder) => continue,
            // There is nothing below a file.
            Some(_) => return Found::Failed(Errno::ENOTDIR),
            None if at.parent().is_some_and(|folder| tree.is_folder(folder)) => {
                return Found::Failed(Errno::ENOENT);
            }
            None if is_last && !follows_last => return Found::Other,
            None => match link_of_process(tree, &at).map_or_else(|| link_at(&at, look), Ok) {
                Ok(None) => continue,
                Ok(Some(target)) => target,
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Found::Unknown,
                Err(_) => return Found::Other,
            },
        };
        links += 1;
        if links > MOST_LINKS {
            return Found::Failed(Errno::ELOOP);
        }
        at.pop();
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        rest.extend(parts(&target));
    }
    Found::Other
}

/// The parts of a path, the first at the end.
fn parts(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
}

/// The simulated folder that a process is in or has open, by the link to it, which says where the folder is that stands
/// for it.
fn link_of_process(tree: &Tree, path: &Path) -> Option<Option<PathBuf>> {
    let is_link = path.ends_with("cwd") || path.parent().is_some_and(|it| it.ends_with("fd"));
    if !is_link || !path.starts_with("/proc") {
        return None;
    }
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let inode = Inode::of(&known_stat(libc::AT_FDCWD, &path, 0)?);
    tree.folder(inode).map(|folder| Some(folder.to_owned()))
}

/// What a link says; none where something else is.
fn link_at(path: &Path, look: Look) -> io::Result<Option<PathBuf>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let file = open_itself(&path, look)?;
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

/// Opens what is at a path, without following it.
fn open_itself(path: &CStr, look: Look) -> io::Result<OwnedFd> {
    // SAFETY: the struct is of integers, and zeros are a value of it.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC) as u64;
    if look == Look::AtOnce {
        how.resolve = libc::RESOLVE_CACHED;
    }
    // SAFETY: the path ends with a zero byte, and the kernel reads as many bytes of `how` as it is told: its size.
    // The kernel has just made the descriptor, and returned it here alone.
    unsafe {
        let size = size_of::<libc::open_how>();
        let fd =
            libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, path.as_ptr(), &raw const how, size);
        Ok(OwnedFd::from_raw_fd(check(fd as libc::c_int)?))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nvabi_supervise::normal;

    use super::*;
    use crate::machine::{Entry, Text};

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
        let way =
            |follows_last| Way { follows_last, look: Look::Waits, caller: std::process::id() };
        let found = |name: &str, follows| follow(&tree, &at(name), way(follows));
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
        for name in ["again/other", "again/folder/other", "again/other/folder"] {
            for follows in [true, false] {
                assert_eq!(found(name, follows), Found::Failed(Errno::ENOENT), "{name}");
            }
        }
        assert_eq!(found("link/text/other", true), Found::Failed(Errno::ENOTDIR));
        // Those of the tree are followed as well, and lead to where they are.
        assert_eq!(found("link/down", false), simulated("/made-up/down"));
        assert_eq!(found("link/down", true), simulated("/made-up/folder/inner"));
        assert_eq!(found("link/folder/up", true), simulated("/made-up/folder/inner"));
        assert_eq!(found("again/down/../up/..", true), simulated("/made-up/folder"));
        assert_eq!(found("link/round", true), Found::Failed(Errno::ELOOP));
        assert_eq!(is_link(&at("again"), Look::Waits), Some(true));
        assert_eq!(is_link(&at("again/"), Look::Waits), Some(true));
        assert_eq!(is_link(&at("file"), Look::Waits), Some(false));
        assert_eq!(is_link(Path::new("/proc/self/exe"), Look::AtOnce), Some(false));
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
        let way = Way { follows_last: true, look: Look::Waits, caller };
        for folder in
            ["/proc/self", "/proc/thread-self", &format!("/proc/self/task/{caller}"), "/dev"]
        {
            for (name, expected) in [
                ("inner", Found::Simulated("/made-up/inner".into())),
                ("../made-up/inner", Found::Simulated("/made-up/inner".into())),
                ("other", Found::Failed(Errno::ENOENT)),
            ] {
                let path = PathBuf::from(format!("{folder}/fd/{fd}/{name}"));
                assert!(is_near(&tree, &path, &normal(&path)), "{path:?}");
                assert_eq!(follow(&tree, &path, way), expected, "{path:?}");
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
        ];
        let far = [
            "/",
            "/srv/fd/x/y",
            "/proc/self/cwd",
            "/proc/self/fd/3",
            "/dev/fd/3",
            "/dev/stdin",
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
