//! The calls that name files by paths, and those that ask about files which are open: their answers.

use std::ffi::CString;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use super::calls::{self, Action, LastLink, OpenFlags, PathArgument, PathCall, Removed};
use super::links::{self, Look};
use super::own::SOCKET_PATH;
use super::program::hold_forks;
use super::resolve::{Meant, NamedPath, SimulatedPath};
use super::target::{Target, known_stat};
use super::{Reply, Run};
use crate::Errno;
use crate::client::Client;
use crate::fault::Effect;
use crate::machine::{Device, EntryKind};
use crate::memory::{Access, Inode};
use nvabi_supervise::{AddFd, Notification};

/// The flags that mean something for a descriptor of a place (`build_open_flags` in `fs/open.c`).
const OF_PLACES: i32 = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;

/// How a file is opened.
#[derive(Debug, Clone, Copy)]
struct Opening {
    flags: i32,
    mode: u64,
    /// `RESOLVE_…` of `openat2`.
    limits: u64,
    /// Whether a mount of its own is made of the place.
    is_mount: bool,
}

/// A call that is made again with the paths of real files, to which its own go through simulated folders.
pub(super) struct Again {
    pub(super) number: i64,
    pub(super) args: [u64; 6],
    pub(super) paths: Vec<(PathArgument, PathBuf)>,
}

impl Again {
    /// Whether the call may wait, as for who opens the other end of a pipe: only then do signals end it. Else one that
    /// comes often would end each try before it is begun.
    pub(super) fn may_wait(&self) -> bool {
        let is_plain = |path: &PathBuf| {
            let path = CString::new(path.as_os_str().as_bytes()).ok();
            let stat = path.and_then(|path| known_stat(libc::AT_FDCWD, &path, 0));
            let kind = stat.map(|stat| stat.st_mode & libc::S_IFMT);
            kind.is_none_or(|kind| [libc::S_IFREG, libc::S_IFDIR].contains(&kind))
        };
        calls::WAITS.contains(&self.number) && !self.paths.iter().all(|(_, path)| is_plain(path))
    }
}

impl Run {
    /// A call that names files by paths, or is about one that is open; `None` when it is about no simulated one.
    pub(super) fn path_call(&self, target: &Target<'_>, n: &Notification) -> Option<Reply> {
        self.settle_texts();
        match n.call {
            libc::SYS_fstat => {
                let stat = self.open_stat(target, n.args[0] as i32)?;
                Some(Reply::Answer(put(target, n.args[1], &stat)))
            }
            libc::SYS_getcwd => self.current_folder(target),
            libc::SYS_getdents64 => self.list(target),
            number => self.named_call(target, n, PathCall::of(number)?),
        }
    }

    fn named_call(&self, target: &Target<'_>, n: &Notification, call: &PathCall) -> Option<Reply> {
        let named = |argument| NamedPath::of(target, argument);
        match (call.action, call.paths) {
            (Action::Open(flags), [path]) => self.open(target, n, flags, path),
            (action, [path]) => {
                let named = named(path)?;
                let named = match action {
                    Action::ReadLink { .. } => NamedPath { may_be_empty: named.text != 0, ..named },
                    _ => named,
                };
                if let Some(stat) = self.stat_without_path(target, action, named) {
                    return Some(Reply::Answer(put_stat(target, action, &stat)));
                }
                let makes = matches!(action, Action::Make | Action::Bind);
                match self.resolve(target, named, makes)? {
                    Meant::Outside(real) => self.again(target, n.call, n.args, vec![(*path, real)]),
                    meant => self.answer(target, action, named, meant),
                }
            }
            (action, [first, second]) => {
                let meant = [(first, false), (second, true)]
                    .map(|(path, makes)| self.resolve(target, named(path)?, makes));
                if target.must_wait.get() {
                    return None;
                }
                let real = |path: &PathArgument, meant: &Option<Meant>| match meant {
                    Some(Meant::Outside(real)) => Some((*path, real.clone())),
                    _ => None,
                };
                let [old, new] = meant;
                let is_real = |it: &Option<Meant>| matches!(it, None | Some(Meant::Outside(_)));
                if is_real(&old) && is_real(&new) {
                    let paths = [real(first, &old), real(second, &new)];
                    let paths: Vec<_> = paths.into_iter().flatten().collect();
                    let is_ours = !paths.is_empty();
                    return is_ours.then(|| self.again(target, n.call, n.args, paths)).flatten();
                }
                let flags = match action {
                    Action::Rename { flags: Some(flags) } => n.args[flags] as u32,
                    _ => 0,
                };
                Some(Reply::Answer(name_anew(action, flags, old, new)))
            }
            _ => None,
        }
    }

    /// Makes a call with the paths of real files. Their file systems may be a program's, which answers when it likes, and
    /// the call stops once more.
    fn again(
        &self,
        target: &Target<'_>,
        number: i64,
        args: [u64; 6],
        paths: Vec<(PathArgument, PathBuf)>,
    ) -> Option<Reply> {
        let is_long = |(argument, path): &&(PathArgument, PathBuf)| {
            argument.length.is_some() && path.as_os_str().len() >= SOCKET_PATH
        };
        if let Some((_, path)) = paths.iter().find(is_long) {
            let text = format!(
                "a socket's path has at most {} bytes, and is really {}: set TMPDIR to a shorter path",
                SOCKET_PATH - 1,
                path.display()
            );
            self.machine().log().diagnose(target.process(), "long-socket", text);
            return Some(Reply::Answer(Err(Errno::EINVAL)));
        }
        if target.look == Look::AtOnce {
            target.must_wait.set(true);
            return None;
        }
        Some(Reply::Again(Again { number, args, paths }))
    }

    /// What a call with one path answers that does not open the file.
    fn answer(
        &self,
        target: &Target<'_>,
        action: Action,
        named: NamedPath,
        meant: Meant,
    ) -> Option<Reply> {
        let args = &target.notification.args;
        let place = match meant {
            Meant::Simulated(place) => place,
            Meant::Failed(errno) => return Some(Reply::Answer(Err(errno))),
            Meant::Absent if matches!(action, Action::Make | Action::Bind) => {
                return Some(Reply::Answer(Err(Errno::EPERM)));
            }
            Meant::Absent | Meant::Outside(_) => return Some(Reply::Answer(Err(Errno::ENOENT))),
        };
        let kind = &place.kind;
        let result = match action {
            Action::Stat { .. } | Action::ExtendedStat { .. } => {
                put_stat(target, action, &self.stat(&place))
            }
            Action::Access { mode } => {
                let is_allowed = args[mode] as u32 & 7 & !(kind.mode() >> 6) == 0;
                if is_allowed { Ok(0) } else { Err(Errno::EACCES) }
            }
            Action::ReadLink { address, room } => match kind {
                EntryKind::Link(text) => put_link(target, text, args[address], args[room]),
                // The kernel says of a file without a path what it says of none.
                _ if named.is_empty(target) => return None,
                _ => Err(Errno::EINVAL),
            },
            Action::ChangeFolder => return Some(self.enter_place(&place)),
            action => change(action, kind, args),
        };
        Some(Reply::Answer(result))
    }

    fn open(
        &self,
        target: &Target<'_>,
        n: &Notification,
        flags: OpenFlags,
        path: &PathArgument,
    ) -> Option<Reply> {
        let opening = Opening::of(target, n, flags)?;
        let Opening { flags, mode, limits, is_mount } = opening;
        let only_new = libc::O_CREAT | libc::O_EXCL;
        let follows = flags & libc::O_NOFOLLOW == 0 && flags & only_new != only_new;
        let last = if follows { LastLink::Followed } else { LastLink::Kept };
        let named = NamedPath { last, limits, ..NamedPath::of(target, path)? };
        let failed = |errno| Some(Reply::Answer(Err(errno)));
        match self.resolve(target, named, flags & libc::O_CREAT != 0)? {
            Meant::Simulated(_) if is_mount => failed(Errno::EPERM),
            Meant::Simulated(place) => Some(self.open_place(target, n, place, flags)),
            // Nobody can make a file where all are simulated.
            Meant::Absent if flags & libc::O_CREAT != 0 => failed(Errno::EACCES),
            Meant::Absent => failed(Errno::ENOENT),
            Meant::Failed(errno) => failed(errno),
            Meant::Outside(real) if n.call == libc::SYS_openat2 => {
                // Its limits were kept on the way here, and do not hold from the root on.
                let args = [n.args[0], n.args[1], flags as u64, mode, 0, 0];
                self.again(target, libc::SYS_openat, args, vec![(*path, real)])
            }
            Meant::Outside(real) => self.again(target, n.call, n.args, vec![(*path, real)]),
        }
    }

    /// `chdir`.
    fn enter_place(&self, place: &SimulatedPath) -> Reply {
        if place.kind != EntryKind::Folder {
            return Reply::Answer(Err(Errno::ENOTDIR));
        }
        match self.tree().open(&place.path, libc::O_DIRECTORY) {
            Ok(folder) => Reply::Enter(folder),
            Err(error) => Reply::Answer(Err(error.into())),
        }
    }

    /// `getcwd`, which counts the zero byte at the end.
    fn current_folder(&self, target: &Target<'_>) -> Option<Reply> {
        let [address, room, ..] = target.notification.args;
        let tree = self.tree();
        let folder = tree.folder(target.thread.current_folder()?)?;
        let mut bytes = folder.as_os_str().as_bytes().to_vec();
        bytes.push(0);
        let result = if room < bytes.len() as u64 {
            Err(Errno::ERANGE)
        } else if target.write(address, &bytes) < bytes.len() {
            Err(Errno::EFAULT)
        } else {
            Ok(bytes.len() as i64)
        };
        Some(Reply::Answer(result))
    }

    fn open_place(
        &self,
        target: &Target<'_>,
        n: &Notification,
        place: SimulatedPath,
        flags: i32,
    ) -> Reply {
        let how = AddFd::Answer { cloexec: flags & libc::O_CLOEXEC != 0 };
        let only_new = libc::O_CREAT | libc::O_EXCL;
        let opened = match &place.kind {
            EntryKind::Link(_) if flags & libc::O_DIRECTORY != 0 => Err(Errno::ENOTDIR),
            _ if flags & libc::O_PATH != 0 => self.open_name(n, &place, flags, how),
            _ if flags & only_new == only_new => Err(Errno::EEXIST),
            // It is followed unless the caller wants no link.
            EntryKind::Link(_) => Err(Errno::ELOOP),
            EntryKind::Device(device) => self.open_device(target, n, *device, flags, how),
            EntryKind::Text(_) if flags & libc::O_DIRECTORY != 0 => Err(Errno::ENOTDIR),
            EntryKind::Text(text) => self.open_text(target, n, *text, flags, how),
            EntryKind::Folder if flags & libc::O_TMPFILE == libc::O_TMPFILE => {
                Err(Errno::EOPNOTSUPP)
            }
            EntryKind::Folder if flags & (libc::O_ACCMODE | libc::O_CREAT) != libc::O_RDONLY => {
                Err(Errno::EISDIR)
            }
            EntryKind::Folder => (self.tree().open(&place.path, libc::O_DIRECTORY))
                .map_err(Errno::from)
                .and_then(|folder| self.listener.add_fd(n, folder.as_fd(), how)),
        };
        match opened {
            Ok(_) => Reply::Done,
            Err(errno) => Reply::Answer(Err(errno)),
        }
    }

    /// A descriptor of the name alone, on which no call of a driver can be made. It is of a file that
    /// stands for it: descriptors that are names alone cannot be given.
    fn open_name(
        &self,
        n: &Notification,
        place: &SimulatedPath,
        flags: i32,
        how: AddFd,
    ) -> Result<i32, Errno> {
        let file = self.tree().open(&place.path, flags)?;
        self.listener.add_fd(n, file.as_fd(), how)
    }

    fn open_device(
        &self,
        target: &Target<'_>,
        n: &Notification,
        device: Device,
        flags: i32,
        how: AddFd,
    ) -> Result<i32, Errno> {
        if flags & libc::O_DIRECTORY != 0 {
            return Err(Errno::ENOTDIR);
        }
        let mut machine = self.machine();
        self.settle(&mut **machine);
        self.renew_tree(&mut machine);
        let opened = match machine.log().fault("open") {
            Some(Effect::Fail(errno)) => Err(errno),
            _ => machine.open(target, device),
        };
        machine.log().count("open", opened.err().map(|errno| errno.to_string()).as_deref());
        let id = opened?;
        let node = machine.file(id).map(|open| open.node).ok_or(Errno::EIO)?;
        let _forks = hold_forks();
        let given = node.open(Access::of(flags)).and_then(|file| {
            self.releases.watch(&node)?;
            Ok(file)
        });
        let given =
            given.map_err(Errno::from).and_then(|file| self.listener.add_fd(n, file.as_fd(), how));
        if given.is_err() {
            machine.release(id);
        }
        given
    }

    /// Of a simulated file.
    fn stat(&self, place: &SimulatedPath) -> libc::stat {
        let mut stat = stat_of(&place.kind);
        if let Some(inode) = self.tree().inode(&place.path) {
            (stat.st_dev, stat.st_ino) = (inode.device(), inode.number());
        }
        stat
    }

    /// Of a simulated file that is open, where a call names it by an empty path.
    fn stat_without_path(
        &self,
        target: &Target<'_>,
        action: Action,
        named: NamedPath,
    ) -> Option<libc::stat> {
        let is_stat = matches!(action, Action::Stat { .. } | Action::ExtendedStat { .. });
        let is_open = is_stat && named.may_be_empty && named.is_empty(target);
        if is_open { self.open_stat(target, named.folder) } else { None }
    }

    /// Of a simulated file that is open. Those that calls return have no type, as files without a
    /// name have.
    fn open_stat(&self, target: &Target<'_>, fd: i32) -> Option<libc::stat> {
        let mut stat = target.thread.file(fd)?;
        let inode = Inode::of(&stat);
        if let Some((_, kind)) = self.tree().meaning(inode) {
            let told = stat_of(&kind);
            (stat.st_mode, stat.st_rdev) = (told.st_mode, told.st_rdev);
            (stat.st_size, stat.st_nlink) = (told.st_size, told.st_nlink);
            return Some(stat);
        }
        let machine = self.machine();
        let open = machine.file(machine.file_of(inode)?)?;
        stat.st_mode = open.device.map_or(0o600, |device| EntryKind::Device(device).mode());
        stat.st_rdev = open.device.map_or(0, Device::number);
        stat.st_size = open.size as i64;
        stat.st_blocks = 0;
        Some(stat)
    }
}

impl Opening {
    /// As the arguments of a call have it; none where the kernel refuses them before it looks at the path.
    fn of(target: &Target<'_>, n: &Notification, flags: OpenFlags) -> Option<Self> {
        let (address, size) = match flags {
            OpenFlags::Argument(flags) => {
                let mut flags = n.args[flags] as i32;
                if flags & libc::O_PATH != 0 {
                    flags &= OF_PLACES;
                }
                return Some(Self::with(flags));
            }
            OpenFlags::Creat => {
                return Some(Self::with(libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC));
            }
            OpenFlags::Tree(flags) => {
                let given = n.args[flags] as i32;
                let is_kept = given & libc::AT_SYMLINK_NOFOLLOW != 0;
                let kept = if is_kept { libc::O_NOFOLLOW } else { 0 };
                // `OPEN_TREE_CLOEXEC` is the same bit.
                let flags = libc::O_PATH | kept | given & libc::O_CLOEXEC;
                let is_mount = given & libc::OPEN_TREE_CLONE as i32 != 0;
                return Some(Self { is_mount, ..Self::with(flags) });
            }
            OpenFlags::How { address, size } => (address, size),
        };
        let mut how = [0; size_of::<libc::open_how>()];
        if n.args[size] < how.len() as u64 || target.read(n.args[address], &mut how) < how.len() {
            return None;
        }
        let mut words = how
            .chunks_exact(8)
            .map(|word| word.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte)));
        let [flags, mode, limits] = [words.next()?, words.next()?, words.next()?];
        let opening = Self { mode, limits, ..Self::with(i32::try_from(flags).ok()?) };
        opening.is_valid().then_some(opening)
    }

    fn with(flags: i32) -> Self {
        Self { flags, mode: 0, limits: 0, is_mount: false }
    }

    /// Whether the kernel takes this from `openat2` (`build_open_flags` in `fs/open.c`).
    fn is_valid(self) -> bool {
        const LIMITS: u64 = libc::RESOLVE_NO_XDEV
            | libc::RESOLVE_NO_MAGICLINKS
            | libc::RESOLVE_NO_SYMLINKS
            | libc::RESOLVE_BENEATH
            | libc::RESOLVE_IN_ROOT
            | libc::RESOLVE_CACHED;
        const ONE_ROOT: u64 = libc::RESOLVE_BENEATH | libc::RESOLVE_IN_ROOT;
        // `O_TMPFILE` has another flag in it that is valid alone.
        let makes =
            self.flags & libc::O_CREAT != 0 || self.flags & libc::O_TMPFILE == libc::O_TMPFILE;
        let changes = makes || self.flags & libc::O_TRUNC != 0;
        self.limits & !LIMITS == 0
            && self.limits & ONE_ROOT != ONE_ROOT
            && (makes || self.mode == 0)
            && !(changes && self.limits & libc::RESOLVE_CACHED != 0)
    }
}

/// What a call answers that would change a simulated file: what the file systems of the kernel's say to root. Their
/// names are the kernel's alone (`fs/kernfs/dir.c` and `fs/proc/generic.c` have no such operations). What else of them
/// can be changed is not shown.
fn change(action: Action, kind: &EntryKind, args: &[u64; 6]) -> Result<i64, Errno> {
    let is_folder = *kind == EntryKind::Folder;
    let removes_folder = match action {
        Action::Remove(Removed::ByFlags(flags)) => args[flags] as i32 & libc::AT_REMOVEDIR != 0,
        Action::Remove(removed) => matches!(removed, Removed::Folder),
        _ => false,
    };
    match (action, kind) {
        (Action::ExtendedAttribute, _) => Err(Errno::EOPNOTSUPP),
        (Action::Refuse(errno), _) => Err(errno),
        (Action::Bind, _) => Err(Errno::EADDRINUSE),
        (Action::Connect, _) => Err(Errno::ECONNREFUSED),
        (Action::SetMode, EntryKind::Link(_)) => Err(Errno::EOPNOTSUPP),
        (Action::SetMode | Action::SetOwner | Action::SetTimes, _) => Ok(0),
        (Action::Truncate, EntryKind::Text(text)) if text.is_writable => Ok(0),
        (Action::Truncate, EntryKind::Text(_)) => Err(Errno::EACCES),
        (Action::Truncate, EntryKind::Folder) => Err(Errno::EISDIR),
        (Action::Truncate, _) => Err(Errno::EINVAL),
        (Action::Make, _) => Err(Errno::EEXIST),
        (Action::Remove(_), _) if is_folder && !removes_folder => Err(Errno::EISDIR),
        (Action::Remove(_), _) if !is_folder && removes_folder => Err(Errno::ENOTDIR),
        _ => Err(Errno::EPERM),
    }
}

/// What a call answers that gives a file another name, where one of the two is in a simulated folder or simulated.
fn name_anew(
    action: Action,
    flags: u32,
    old: Option<Meant>,
    new: Option<Meant>,
) -> Result<i64, Errno> {
    let mut mounts = [None; 2];
    for (at, meant) in [&old, &new].into_iter().enumerate() {
        mounts[at] = match meant {
            Some(Meant::Failed(errno)) => return Err(*errno),
            Some(Meant::Absent) if at == 0 || matches!(action, Action::Refuse(_)) => {
                return Err(Errno::ENOENT);
            }
            Some(Meant::Simulated(place)) => links::mount(&place.path),
            // Whether the other is a real file beside the first is not looked at.
            _ => None,
        };
    }
    if let Action::Refuse(errno) = action {
        return Err(errno);
    }
    match (&old, &new) {
        (Some(Meant::Simulated(old)), Some(Meant::Simulated(new))) if old.path == new.path => {
            let is_rename = matches!(action, Action::Rename { .. });
            if is_rename && flags & libc::RENAME_NOREPLACE == 0 {
                Ok(0)
            } else {
                Err(Errno::EEXIST)
            }
        }
        (_, Some(Meant::Simulated(_)))
            if matches!(action, Action::Link) || flags & libc::RENAME_NOREPLACE != 0 =>
        {
            Err(Errno::EEXIST)
        }
        (Some(Meant::Simulated(_)), Some(Meant::Simulated(_))) if mounts[0] != mounts[1] => {
            Err(Errno::EXDEV)
        }
        _ => Err(Errno::EPERM),
    }
}

/// Of what is not open.
fn stat_of(kind: &EntryKind) -> libc::stat {
    // SAFETY: `stat` is of integers and arrays of them: zeros are a value of it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_mode = kind.mode();
    stat.st_nlink = 1;
    stat.st_blksize = 4096;
    if let EntryKind::Device(device) = kind {
        stat.st_rdev = device.number();
    }
    stat.st_size = if stat.st_mode & libc::S_IFMT == libc::S_IFREG { 4096 } else { 0 };
    stat
}

/// The same in the newer form.
fn extended(stat: &libc::stat) -> libc::statx {
    // SAFETY: `statx` is of integers and structs of them: zeros are a value of it.
    let mut out: libc::statx = unsafe { std::mem::zeroed() };
    out.stx_mask = libc::STATX_BASIC_STATS;
    out.stx_mode = stat.st_mode as u16;
    out.stx_nlink = stat.st_nlink as u32;
    out.stx_blksize = stat.st_blksize as u32;
    out.stx_ino = stat.st_ino;
    (out.stx_uid, out.stx_gid) = (stat.st_uid, stat.st_gid);
    (out.stx_rdev_major, out.stx_rdev_minor) =
        (libc::major(stat.st_rdev), libc::minor(stat.st_rdev));
    (out.stx_dev_major, out.stx_dev_minor) = (libc::major(stat.st_dev), libc::minor(stat.st_dev));
    out.stx_size = stat.st_size as u64;
    out.stx_blocks = stat.st_blocks as u64;
    out
}

/// What can be seen as bytes.
///
/// # Safety
///
/// Each byte of it is of a field, and fields are integers: there is no padding, whose bytes a copy of a
/// struct need not keep.
unsafe trait Unpadded {}

// SAFETY: libc declares what lies between the kernel's fields as fields (`__pad0`, `__pad1`, `__unused`).
unsafe impl Unpadded for libc::stat {}
// SAFETY: as in `stat` (`__statx_pad1` and its like), and the kernel's struct has no holes on any machine.
unsafe impl Unpadded for libc::statx {}

/// Writes what is known of a file where a call wants it, and in its form.
fn put_stat(target: &Target<'_>, action: Action, stat: &libc::stat) -> Result<i64, Errno> {
    let args = &target.notification.args;
    match action {
        Action::Stat { address } => put(target, args[address], stat),
        Action::ExtendedStat { address } => put(target, args[address], &extended(stat)),
        _ => Err(Errno::EINVAL),
    }
}

/// Writes as much of a link's text as there is room for, which the kernel takes for an `int`.
fn put_link(target: &Target<'_>, text: &str, address: u64, room: u64) -> Result<i64, Errno> {
    let room = usize::try_from(room as i32).ok().filter(|room| *room > 0).ok_or(Errno::EINVAL)?;
    let text = &text.as_bytes()[..text.len().min(room)];
    let is_written = target.write(address, text) == text.len();
    if is_written { Ok(text.len() as i64) } else { Err(Errno::EFAULT) }
}

fn put<T: Unpadded>(target: &Target<'_>, address: u64, value: &T) -> Result<i64, Errno> {
    // SAFETY: all bytes of the value are initialised, by the promise of `Unpadded`, and it is borrowed for as
    // long as they are used.
    let bytes =
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) };
    if target.write(address, bytes) < bytes.len() { Err(Errno::EFAULT) } else { Ok(0) }
}
