//! Whose file a path means: the one place that tells for all calls.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use super::Run;
use super::calls::PathArgument;
use super::links::{self, Found, Leads, Way};
use super::target::Target;
use crate::Errno;
use crate::client::Client as _;
use crate::machine::EntryKind;
use nvabi_supervise::{Notification, normal};

/// Longest path.
const PATH_MAX: usize = 4096;

/// A simulated path, and what stands there.
pub(super) struct SimulatedPath {
    pub(super) path: PathBuf,
    pub(super) kind: EntryKind,
}

/// A path as its caller gives it.
#[derive(Debug, Clone, Copy)]
pub(super) struct NamedPath {
    pub(super) folder: i32,
    /// The address of its text.
    pub(super) text: u64,
    /// Whether a link at its end is followed.
    pub(super) follows: bool,
    /// Whether an empty one means the folder itself, or the file that is in its place.
    pub(super) may_be_empty: bool,
    /// `RESOLVE_…` of `openat2`.
    pub(super) limits: u64,
}

impl NamedPath {
    /// As the arguments of a call have it.
    pub(super) fn of(n: &Notification, argument: &PathArgument) -> Self {
        let flags = argument.flags.map_or(0, |flags| n.args[flags] as i32);
        let is_kept = flags & libc::AT_SYMLINK_NOFOLLOW != 0;
        let is_followed = flags & libc::AT_SYMLINK_FOLLOW != 0;
        Self {
            folder: argument.folder.map_or(libc::AT_FDCWD, |folder| n.args[folder] as i32),
            text: n.args[argument.path],
            follows: argument.follows && !is_kept || is_followed,
            may_be_empty: flags & libc::AT_EMPTY_PATH != 0,
            limits: 0,
        }
    }

    /// Whether its text is empty.
    pub(super) fn is_empty(&self, target: &Target<'_>) -> bool {
        let mut first = [1];
        target.read(self.text, &mut first) == 1 && first == [0]
    }
}

/// What a path means that is not the real kernel's alone.
pub(super) enum Meant {
    Simulated(SimulatedPath),
    /// A name that a simulated folder does not have.
    Absent,
    /// No file: the way to it ends in simulated folders.
    Failed(Errno),
    /// A real file, by a path that goes through a simulated folder and leaves it: this is its own.
    Outside(PathBuf),
}

/// The folder that a path starts in.
struct Start {
    folder: PathBuf,
    is_simulated: bool,
}

impl Run {
    /// What a path means; none for what the kernel finds without us.
    pub(super) fn resolve(&self, target: &Target<'_>, named: NamedPath) -> Option<Meant> {
        let mut bytes = [0; PATH_MAX];
        let length = read_path(target, named.text, &mut bytes)?;
        let bytes = &bytes[..length];
        if bytes.is_empty() {
            return if named.may_be_empty { self.open_path(target, named.folder) } else { None };
        }
        let path = Path::new(OsStr::from_bytes(bytes));
        // What is behind the last separator is in the folder that a link leads to, be it nothing.
        let is_folder = [&b"/"[..], b"/."].iter().any(|end| bytes.ends_with(end));
        let last = path.components().next_back()?;
        let follows = named.follows || is_folder || last == Component::ParentDir;
        let tree = self.tree();
        let is_known = match last {
            Component::Normal(name) => tree.is_last_part(name),
            Component::CurDir | Component::ParentDir => true,
            Component::RootDir | Component::Prefix(_) => false,
        };
        let Start { folder, is_simulated } = self.start(target, &named, path)?;
        let path = path.strip_prefix("/").unwrap_or(path);
        let whole = folder.join(path);
        let plain = normal(&whole);
        let simulated = |path: PathBuf| tree.kind(&path).map(|kind| SimulatedPath { path, kind });
        let meant = |place: SimulatedPath| match place.kind {
            EntryKind::Device(_) | EntryKind::Text(_) if is_folder => Meant::Failed(Errno::ENOTDIR),
            _ => Meant::Simulated(place),
        };
        // Where no part means the one above, links can only lead to the same file by another way.
        let is_plain = !whole.components().any(|part| part == Component::ParentDir);
        if is_known && is_plain && named.limits == 0 {
            let is_end =
                |place: &SimulatedPath| !follows || !matches!(place.kind, EntryKind::Link(_));
            if let Some(place) = simulated(plain.clone()).filter(is_end) {
                return Some(meant(place));
            }
        }
        // With limits a simulated path is not answered by its text alone, so that it has to be followed here.
        let is_near = is_simulated || named.limits != 0 || links::is_near(&tree, &whole, &plain);
        if !is_near {
            // Links elsewhere could lead to simulated files as well; not those of processes.
            let leads = match whole.starts_with("/proc") {
                true => Leads::Nowhere,
                false => links::leads(&tree, &whole, follows, target.look),
            };
            match leads {
                Leads::Near => {}
                Leads::Nowhere if is_known => {}
                Leads::Nowhere | Leads::Elsewhere => return None,
                Leads::Unknown => {
                    target.must_wait.set(true);
                    return None;
                }
            }
        }
        let (look, caller) = (target.look, target.notification.thread);
        let way = Way { follows_last: follows, look, caller, limits: named.limits };
        match links::follow(&tree, &folder, path, way) {
            Found::Simulated(path) => simulated(path).map(meant),
            Found::Absent => Some(Meant::Absent),
            Found::Failed(errno) => Some(Meant::Failed(errno)),
            Found::Outside(path) => {
                Some(Meant::Outside(if is_folder { path.join("") } else { path }))
            }
            Found::Other => None,
            Found::Unknown => {
                target.must_wait.set(true);
                None
            }
        }
    }

    /// The simulated file that a descriptor stands for.
    fn open_path(&self, target: &Target<'_>, fd: i32) -> Option<Meant> {
        let inode = match fd {
            libc::AT_FDCWD => target.thread.current_folder(),
            fd => target.thread.inode(fd),
        };
        let tree = self.tree();
        let (path, kind) = tree.meaning(inode?)?;
        Some(Meant::Simulated(SimulatedPath { path: path.to_owned(), kind }))
    }

    /// Where a path starts; none where the kernel refuses it.
    fn start(&self, target: &Target<'_>, named: &NamedPath, path: &Path) -> Option<Start> {
        if path.is_absolute() && named.limits & libc::RESOLVE_BENEATH != 0 {
            return None;
        }
        if path.is_absolute() && named.limits & libc::RESOLVE_IN_ROOT == 0 {
            return Some(Start { folder: PathBuf::from("/"), is_simulated: false });
        }
        let (inode, link) = match named.folder {
            libc::AT_FDCWD => (target.thread.current_folder(), "cwd".to_owned()),
            fd => (target.thread.inode(fd), format!("fd/{fd}")),
        };
        if let Some(folder) = self.tree().folder(inode?) {
            return Some(Start { folder: folder.to_owned(), is_simulated: true });
        }
        let folder = fs::read_link(format!("/proc/{}/{link}", target.notification.thread)).ok()?;
        Some(Start { folder, is_simulated: false })
    }
}

/// A path in the caller's memory; `None` when it is not there or too long.
fn read_path(target: &Target<'_>, address: u64, bytes: &mut [u8; PATH_MAX]) -> Option<usize> {
    // Most paths are short and end before their page does.
    let mut have = 0;
    for want in [256, PATH_MAX] {
        have += target.read(address.checked_add(have as u64)?, &mut bytes[have..want]);
        if let Some(end) = bytes[..have].iter().position(|byte| *byte == 0) {
            return Some(end);
        }
    }
    None
}
