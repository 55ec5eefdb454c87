//! Whose file a path means: the one place that tells for all calls.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use super::Run;
use super::calls::{LastLink, PathArgument};
use super::links::{self, Found, Leads, Way};
use super::target::Target;
use crate::Errno;
use crate::client::Client as _;
use crate::machine::EntryKind;
use nvabi_supervise::normal;

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
    /// The bytes that are there at most, where no zero is behind it.
    pub(super) room: Option<usize>,
    /// What a link at its end is.
    pub(super) last: LastLink,
    /// Whether an empty one means the folder itself, or the file that is in its place.
    pub(super) may_be_empty: bool,
    /// `RESOLVE_…` of `openat2`.
    pub(super) limits: u64,
}

impl NamedPath {
    /// As the arguments of a call have it; none where they have no path.
    pub(super) fn of(target: &Target<'_>, argument: &PathArgument) -> Option<Self> {
        let args = &target.notification.args;
        if argument.only_with.is_some_and(|(argument, bits)| args[argument] & bits == 0) {
            return None;
        }
        let flags = argument.flags.map_or(0, |flags| args[flags] as i32);
        let is_kept = flags & libc::AT_SYMLINK_NOFOLLOW != 0;
        let is_followed = flags & libc::AT_SYMLINK_FOLLOW != 0;
        let last = match argument.last {
            LastLink::Followed if is_kept => LastLink::Kept,
            LastLink::Kept if is_followed => LastLink::Followed,
            last => last,
        };
        let named = Self {
            folder: argument.folder.map_or(libc::AT_FDCWD, |folder| args[folder] as i32),
            text: args[argument.path],
            room: None,
            last,
            may_be_empty: flags & libc::AT_EMPTY_PATH != 0,
            limits: 0,
        };
        match argument.length {
            Some(length) => named.in_address(target, args[length]),
            None => Some(named),
        }
    }

    /// The path in a socket's address of this length; none where it has no file.
    fn in_address(self, target: &Target<'_>, length: u64) -> Option<Self> {
        const FAMILY: usize = size_of::<libc::sa_family_t>();
        let length = usize::try_from(length as i32).ok()?;
        let is_valid = (FAMILY + 1..=size_of::<libc::sockaddr_un>()).contains(&length);
        let mut family = [0; FAMILY];
        let is_there = is_valid && target.read(self.text, &mut family) == FAMILY;
        let is_file = is_there && family == (libc::AF_UNIX as libc::sa_family_t).to_ne_bytes();
        let text = self.text.checked_add(FAMILY as u64)?;
        is_file.then_some(Self { text, room: Some(length - FAMILY), ..self })
    }

    /// Whether its text is empty, or there is none.
    pub(super) fn is_empty(&self, target: &Target<'_>) -> bool {
        let mut first = [1];
        self.text == 0 || target.read(self.text, &mut first) == 1 && first == [0]
    }
}

/// What a path means that is not the real kernel's alone.
pub(super) enum Meant {
    Simulated(SimulatedPath),
    /// A name that a simulated folder does not have.
    Absent,
    /// No file: the way to it ends in simulated folders.
    Failed(Errno),
    /// A real file, by a path that goes through a simulated folder and leaves it, or below a folder that the machine has
    /// for itself: this is its own.
    Outside(PathBuf),
}

/// The folder that a path starts in.
struct Start {
    /// None where its own path is longer than one can be.
    folder: Option<PathBuf>,
    is_simulated: bool,
    /// The link of the process to it.
    link: PathBuf,
}

impl Run {
    /// What a path means; none for what the kernel finds without us. `makes`: the call may make a file there.
    pub(super) fn resolve(
        &self,
        target: &Target<'_>,
        named: NamedPath,
        makes: bool,
    ) -> Option<Meant> {
        let mut bytes = [0; PATH_MAX];
        let length = match read_path(target, &named, &mut bytes) {
            Some(length) => length,
            // Some calls take none for the descriptor's file.
            None if named.text == 0 && named.may_be_empty => 0,
            // The kernel says why it cannot be read, or waits for who answers its faults; and it may look at a process
            // that is not dumpable, which the simulator may not without CAP_SYS_PTRACE.
            None => return None,
        };
        let bytes = &bytes[..length];
        if bytes.is_empty() {
            return if named.may_be_empty { self.open_path(target, named.folder) } else { None };
        }
        let path = Path::new(OsStr::from_bytes(bytes));
        // What is behind the last separator is in the folder that a link leads to, be it nothing.
        let is_folder = [&b"/"[..], b"/."].iter().any(|end| bytes.ends_with(end));
        let last = path.components().next_back()?;
        let follows = named.last.is_followed(bytes) || last == Component::ParentDir;
        let tree = self.tree();
        let is_known = match last {
            Component::Normal(name) => tree.is_last_part(name),
            Component::CurDir | Component::ParentDir => true,
            Component::RootDir | Component::Prefix(_) => false,
        };
        let Start { folder, is_simulated, link } = self.start(target, &named, path)?;
        let path = path.strip_prefix("/").unwrap_or(path);
        let is_short =
            |folder: &PathBuf| folder.as_os_str().len() + path.as_os_str().len() < PATH_MAX;
        let Some(folder) = folder.filter(|folder| is_simulated || is_short(folder)) else {
            return self.far_away(target, &link, path, follows);
        };
        let whole = folder.join(path);
        let plain = normal(&whole);
        let simulated = |path: PathBuf| tree.kind(&path).map(|kind| SimulatedPath { path, kind });
        let meant = |place: SimulatedPath| match place.kind {
            EntryKind::Folder => Meant::Simulated(place),
            _ if is_folder && named.last != LastLink::NewName => Meant::Failed(Errno::ENOTDIR),
            _ => Meant::Simulated(place),
        };
        // Where no part means the one above, links can only lead to the same file by another way.
        let is_plain = !whole.components().any(|part| part == Component::ParentDir);
        if is_known && is_plain && named.limits == 0 {
            let end = if follows { links::end(&tree, &plain) } else { Some(plain.clone()) };
            if let Some(place) = end.and_then(simulated) {
                return Some(meant(place));
            }
        }
        let absent = || match follows && named.last == LastLink::NewName {
            // Behind it is what a link leads to, which is not there.
            true => Meant::Failed(Errno::ENOENT),
            false => Meant::Absent,
        };
        let is_in_folder = plain.parent().is_some_and(|folder| tree.is_folder(folder));
        if is_in_folder && is_plain && named.limits == 0 && tree.kind(&plain).is_none() {
            return Some(absent());
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
                // A link may lead there, where the real machine has nothing.
                Leads::Nowhere if is_known || self.own.is_made() => {}
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
            Found::Absent => Some(absent()),
            Found::Failed(errno) => Some(Meant::Failed(errno)),
            Found::Outside(path) => {
                Some(Meant::Outside(if is_folder { path.join("") } else { path }))
            }
            Found::Own(below) => Some(match self.own.place(&below, makes) {
                Ok(path) => Meant::Outside(if is_folder { path.join("") } else { path }),
                Err(error) => Meant::Failed(error.into()),
            }),
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

    /// What a path means from a folder on, where the two together are longer than a path can be. No simulated file is
    /// so far away, but by a link or by `..` it may be one.
    fn far_away(
        &self,
        target: &Target<'_>,
        folder: &Path,
        path: &Path,
        follows: bool,
    ) -> Option<Meant> {
        let place = match links::place(folder, path, follows, target.look) {
            Ok(place) => place?,
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                target.must_wait.set(true);
                return None;
            }
            Err(error) => return Some(Meant::Failed(error.into())),
        };
        let tree = self.tree();
        match tree.kind(&place) {
            Some(kind) => Some(Meant::Simulated(SimulatedPath { path: place, kind })),
            None if place.parent().is_some_and(|folder| tree.is_folder(folder)) => {
                Some(Meant::Absent)
            }
            None => None,
        }
    }

    /// Where a path starts; none where the kernel refuses it.
    fn start(&self, target: &Target<'_>, named: &NamedPath, path: &Path) -> Option<Start> {
        if path.is_absolute() && named.limits & libc::RESOLVE_BENEATH != 0 {
            return None;
        }
        let root = PathBuf::from("/");
        if path.is_absolute() && named.limits & libc::RESOLVE_IN_ROOT == 0 {
            return Some(Start { folder: Some(root.clone()), is_simulated: false, link: root });
        }
        let (inode, link) = match named.folder {
            libc::AT_FDCWD => (target.thread.current_folder(), "cwd".to_owned()),
            fd => (target.thread.inode(fd), format!("fd/{fd}")),
        };
        let link = PathBuf::from(format!("/proc/{}/{link}", target.notification.thread));
        if let Some(folder) = self.tree().folder(inode?) {
            return Some(Start { folder: Some(folder.to_owned()), is_simulated: true, link });
        }
        let folder = match fs::read_link(&link) {
            Ok(folder) => Some(folder),
            Err(error) if error.raw_os_error() == Some(libc::ENAMETOOLONG) => None,
            Err(_) => return None,
        };
        Some(Start { folder, is_simulated: false, link })
    }
}

impl LastLink {
    /// Whether a link at the end of this path is followed.
    fn is_followed(self, path: &[u8]) -> bool {
        let separators = path.iter().rev().take_while(|byte| **byte == b'/').count();
        let is_below = path[..path.len() - separators].ends_with(b"/.");
        match self {
            Self::Followed => true,
            Self::Kept => separators > 0 || is_below,
            Self::Name | Self::NewName => is_below,
        }
    }
}

/// A path in the caller's memory: how long it is; `None` when it is not there or too long.
fn read_path(target: &Target<'_>, named: &NamedPath, bytes: &mut [u8; PATH_MAX]) -> Option<usize> {
    let most = named.room.unwrap_or(PATH_MAX).min(PATH_MAX);
    // Most paths are short and end before their page does.
    let mut have = 0;
    for want in [most.min(256), most] {
        if have < want {
            have += target.read(named.text.checked_add(have as u64)?, &mut bytes[have..want]);
        }
        if let Some(end) = bytes[..have].iter().position(|byte| *byte == 0) {
            return Some(end);
        }
        if have < want {
            return None;
        }
    }
    named.room
}
