//! Paths: which of them are simulated, and the calls that name files by them.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use super::links::{self, Found, Look, Way};
use super::program::hold_forks;
use super::target::Target;
use super::{Reply, Run, tree};
use crate::client::Client;
use crate::fault::Effect;
use crate::machine::{Device, EntryKind, Machine, Text};
use crate::memory::{Access, Inode};
use crate::{Errno, limits};
use nvabi_supervise::check;
use nvabi_supervise::{AddFd, Notification, normal};

/// Longest path.
const PATH_MAX: usize = 4096;

/// Longest text that is taken from a writer: sysfs takes one page.
const TEXT_MAX: usize = 4096;

/// A simulated path, and what stands there.
struct SimulatedPath {
    path: PathBuf,
    kind: EntryKind,
}

impl SimulatedPath {
    /// What it says, if it is a link.
    fn link(&self) -> Option<&str> {
        if let EntryKind::Link(target) = &self.kind { Some(target) } else { None }
    }
}

/// A file of text that somebody has opened to write it.
#[derive(Debug)]
pub(super) struct Writer {
    text: Text,
    file: OwnedFd,
    /// What it said last, where what is written lies among that; else each write is taken out of it.
    before: Option<Vec<u8>>,
}

impl Writer {
    /// What was written since this was asked last.
    fn take(&mut self) -> Vec<Vec<u8>> {
        let Some(before) = &mut self.before else { return lines(&take_out(&self.file)) };
        let mut now = bytes_of(&self.file, 0, TEXT_MAX);
        if !self.text.is_binary {
            let end = now.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            now.truncate(end);
        }
        if now == *before {
            return Vec::new();
        }
        before.clone_from(&now);
        vec![now]
    }
}

/// The arguments of a call that names a file.
#[derive(Clone, Copy)]
struct Named {
    folder: i32,
    path: u64,
    /// Whether a link at its end is followed.
    follows: bool,
}

impl Named {
    /// By the flags of calls that do not open the file.
    fn unless(self, flags: i32) -> Self {
        Self { follows: flags & libc::AT_SYMLINK_NOFOLLOW == 0, ..self }
    }

    /// By the flags of calls that open the file.
    fn unless_open(self, flags: i32) -> Self {
        let only_new = libc::O_CREAT | libc::O_EXCL;
        Self { follows: flags & libc::O_NOFOLLOW == 0 && flags & only_new != only_new, ..self }
    }
}

/// What a path means that is not the real kernel's alone.
enum Meant {
    Simulated(SimulatedPath),
    /// No file: the way to it ends in simulated folders.
    Failed(Errno),
    /// A real file, by a path that begins in a simulated folder and leaves it.
    Outside(PathBuf),
}

/// An absolute path, as far as it can be told without following links.
struct Absolute {
    path: PathBuf,
    /// Whether it begins in a folder that is simulated.
    is_inside: bool,
}

impl Run {
    /// A call that names a file by its path; `None` when it is not about a simulated one.
    pub(super) fn path_call(&self, target: &Target<'_>, n: &Notification) -> Option<Reply> {
        self.settle_texts();
        let at = |folder: usize, path: usize| Named {
            folder: n.args[folder] as i32,
            path: n.args[path],
            follows: true,
        };
        let here =
            |path: usize| Named { folder: libc::AT_FDCWD, path: n.args[path], follows: true };
        match n.call {
            libc::SYS_openat => self.open(target, n, at(0, 1), n.args[2] as i32),
            libc::SYS_openat2 => {
                let mut flags = [0; 8];
                let is_there = target.read(n.args[2], &mut flags) == flags.len();
                let flags = u64::from_le_bytes(flags) as i32;
                match is_there {
                    true => self.open(target, n, at(0, 1), flags),
                    false => {
                        self.resolve(target, at(0, 1))?;
                        Some(Reply::Answer(Err(Errno::EFAULT)))
                    }
                }
            }
            libc::SYS_fstat => {
                let stat = self.open_stat(target, n.args[0] as i32)?;
                Some(Reply::Answer(put(target, n.args[1], &stat)))
            }
            libc::SYS_newfstatat => {
                let stat = self.stat(target, at(0, 1), n.args[3] as i32)?;
                Some(Reply::Answer(stat.and_then(|stat| put(target, n.args[2], &stat))))
            }
            libc::SYS_statx => {
                let stat = self.stat(target, at(0, 1), n.args[2] as i32)?;
                Some(Reply::Answer(stat.and_then(|stat| put(target, n.args[4], &extended(&stat)))))
            }
            libc::SYS_faccessat => self.access(target, at(0, 1), n.args[2] as i32),
            libc::SYS_faccessat2 => {
                self.access(target, at(0, 1).unless(n.args[3] as i32), n.args[2] as i32)
            }
            libc::SYS_readlinkat => self.readlink(target, at(0, 1), n.args[2], n.args[3]),
            libc::SYS_getxattr | libc::SYS_listxattr => self.attributes(target, here(0)),
            libc::SYS_lgetxattr | libc::SYS_llistxattr => {
                self.attributes(target, Named { follows: false, ..here(0) })
            }
            libc::SYS_chdir => self.change_folder(target, here(0)),
            libc::SYS_getcwd => self.current_folder(target),
            libc::SYS_getdents64 => self.list(target),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => self.open(target, n, here(0), n.args[1] as i32),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_creat => {
                let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
                self.open(target, n, here(0), flags)
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_stat | libc::SYS_lstat => {
                let is_link = n.call == libc::SYS_lstat;
                let flags = if is_link { libc::AT_SYMLINK_NOFOLLOW } else { 0 };
                let stat = self.stat(target, here(0), flags)?;
                Some(Reply::Answer(stat.and_then(|stat| put(target, n.args[1], &stat))))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_access => self.access(target, here(0), n.args[1] as i32),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_readlink => self.readlink(target, here(0), n.args[1], n.args[2]),
            _ => None,
        }
    }

    /// The simulated file that a path means, or why there is none.
    fn place(&self, target: &Target<'_>, named: Named) -> Option<Result<SimulatedPath, Errno>> {
        match self.resolve(target, named)? {
            Meant::Simulated(place) => Some(Ok(place)),
            Meant::Failed(errno) => Some(Err(errno)),
            Meant::Outside(_) => None,
        }
    }

    /// What a path means; none for what the kernel finds without us.
    fn resolve(&self, target: &Target<'_>, named: Named) -> Option<Meant> {
        let mut bytes = [0; PATH_MAX];
        let length = read_path(target, named.path, &mut bytes)?;
        let path = Path::new(OsStr::from_bytes(&bytes[..length]));
        // What is behind the last separator is in the folder that a link leads to, be it nothing.
        let is_folder = [&b"/"[..], b"/."].iter().any(|end| bytes[..length].ends_with(end));
        let follows = named.follows || is_folder;
        let is_known = match path.components().next_back()? {
            Component::Normal(name) => self.tree().is_last_part(name),
            Component::CurDir | Component::ParentDir => true,
            Component::RootDir | Component::Prefix(_) => false,
        };
        let Absolute { path, is_inside } = self.absolute(target, named.folder, path)?;
        let tree = self.tree();
        let plain = normal(&path);
        let is_near = is_known || is_inside || links::is_near(&tree, &path, &plain);
        if !is_near && !follows {
            return None;
        }
        let simulated = |path: PathBuf| tree.kind(&path).map(|kind| SimulatedPath { path, kind });
        let meant = |place: SimulatedPath| match place.kind {
            EntryKind::Device(_) | EntryKind::Text(_) if is_folder => Meant::Failed(Errno::ENOTDIR),
            _ => Meant::Simulated(place),
        };
        // Where no part means the one above, links can only lead to the same file by another way.
        if is_near && !path.components().any(|part| part == Component::ParentDir) {
            let is_end = |place: &SimulatedPath| !follows || place.link().is_none();
            if let Some(place) = simulated(plain.clone()).filter(is_end) {
                return Some(meant(place));
            }
        }
        let caller = target.notification.thread;
        let way = Way { follows_last: follows, look: target.look, caller };
        let found = match is_near.then_some(true).or_else(|| links::is_link(&path, target.look)) {
            Some(true) => links::follow(&tree, &path, way),
            Some(false) => Found::Other,
            None => Found::Unknown,
        };
        match found {
            Found::Simulated(path) => simulated(path).map(meant),
            Found::Failed(errno) => Some(Meant::Failed(errno)),
            Found::Other => is_inside.then_some(Meant::Outside(plain)),
            Found::Unknown => {
                target.must_wait.set(true);
                None
            }
        }
    }

    /// A path from the root on: a relative one begins in a folder of the caller's.
    fn absolute(&self, target: &Target<'_>, folder: i32, path: &Path) -> Option<Absolute> {
        if path.is_absolute() {
            return Some(Absolute { path: path.to_owned(), is_inside: false });
        }
        let (inode, link) = match folder {
            libc::AT_FDCWD => (target.thread.current_folder(), "cwd".to_owned()),
            fd => (target.thread.inode(fd), format!("fd/{fd}")),
        };
        if let Some(folder) = self.tree().folder(inode?) {
            return Some(Absolute { path: folder.join(path), is_inside: true });
        }
        let folder = fs::read_link(format!("/proc/{}/{link}", target.notification.thread)).ok()?;
        Some(Absolute { path: folder.join(path), is_inside: false })
    }

    fn open(
        &self,
        target: &Target<'_>,
        n: &Notification,
        named: Named,
        flags: i32,
    ) -> Option<Reply> {
        match self.resolve(target, named.unless_open(flags))? {
            Meant::Simulated(place) => Some(self.open_place(target, n, place, flags)),
            // Nobody can make a file where all are simulated.
            Meant::Failed(Errno::ENOENT) if flags & libc::O_CREAT != 0 => {
                Some(Reply::Answer(Err(Errno::EACCES)))
            }
            Meant::Failed(errno) => Some(Reply::Answer(Err(errno))),
            Meant::Outside(_) if flags & libc::O_ACCMODE != libc::O_RDONLY => None,
            Meant::Outside(path) => {
                let folder = self.real_folder(target, &path)?;
                let how = AddFd::Answer { cloexec: flags & libc::O_CLOEXEC != 0 };
                let given = self.listener.add_fd(n, folder.as_fd(), how);
                Some(given.map_or_else(|errno| Reply::Answer(Err(errno)), |_| Reply::Done))
            }
        }
    }

    /// A real folder, by a path that begins in a simulated one: what the kernel has there is in another folder.
    fn real_folder(&self, target: &Target<'_>, path: &Path) -> Option<OwnedFd> {
        // Its file system may be a program's, which opens it when it likes.
        if target.look == Look::AtOnce {
            target.must_wait.set(true);
            return None;
        }
        // What is below a simulated folder is simulated or not there.
        let is_below = path.ancestors().skip(1).any(|folder| self.tree().kind(folder).is_some());
        if is_below { None } else { tree::open_folder(path).ok() }
    }

    /// `chdir`.
    fn change_folder(&self, target: &Target<'_>, named: Named) -> Option<Reply> {
        let place = match self.resolve(target, named)? {
            Meant::Simulated(place) => place,
            Meant::Failed(errno) => return Some(Reply::Answer(Err(errno))),
            Meant::Outside(path) => return self.real_folder(target, &path).map(Reply::Enter),
        };
        if place.kind != EntryKind::Folder {
            return Some(Reply::Answer(Err(Errno::ENOTDIR)));
        }
        Some(match self.tree().open(&place.path, libc::O_DIRECTORY) {
            Ok(folder) => Reply::Enter(folder),
            Err(error) => Reply::Answer(Err(error.into())),
        })
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
        let opened = match &place.kind {
            EntryKind::Link(_) if flags & libc::O_DIRECTORY != 0 => Err(Errno::ENOTDIR),
            _ if flags & libc::O_PATH != 0 => self.open_name(n, &place, flags, how),
            // It is followed unless the caller wants no link, or a new file.
            EntryKind::Link(_) if flags & libc::O_NOFOLLOW == 0 => Err(Errno::EEXIST),
            EntryKind::Link(_) => Err(Errno::ELOOP),
            EntryKind::Device(device) => self.open_device(target, n, *device, flags, how),
            EntryKind::Text(_) if flags & libc::O_DIRECTORY != 0 => Err(Errno::ENOTDIR),
            EntryKind::Text(text) => self.open_text(n, *text, flags, how),
            EntryKind::Folder if flags & libc::O_ACCMODE != libc::O_RDONLY => Err(Errno::EISDIR),
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
        if flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL {
            return Err(Errno::EEXIST);
        }
        let mut machine = self.machine();
        self.releases.settle(&mut **machine);
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

    /// A copy of what the file says. What is written to it counts when somebody looks next.
    fn open_text(
        &self,
        n: &Notification,
        text: Text,
        flags: i32,
        how: AddFd,
    ) -> Result<i32, Errno> {
        let access = Access::of(flags);
        if access != Access::Read && !text.is_writable {
            return Err(Errno::EACCES);
        }
        let machine = self.machine();
        let is_cut = flags & libc::O_TRUNC != 0 || access == Access::Write;
        // What is written alone is a value: it does not lie among what was there.
        let is_empty = is_cut && text.is_writable && !text.is_binary;
        let before = if is_empty { Vec::new() } else { machine.bytes(text) };
        let file = text_file(&before)?;
        if limits::is_spare(&file) {
            return Err(Errno::EMFILE);
        }
        let given = reopen(&file, access).map_err(Errno::from)?;
        if access != Access::Read {
            let before = (text.is_binary || !before.is_empty()).then_some(before);
            self.writers().push(Writer { text, file, before });
        }
        drop(machine);
        self.listener.add_fd(n, given.as_fd(), how)
    }

    /// Takes over what was written to files of text, which may change the files that there are.
    pub(super) fn settle_texts(&self) {
        if !self.writers().is_empty() {
            let mut machine = self.machine();
            // Who releases a file and then writes wants the effects in that order.
            self.releases.settle(&mut **machine);
            settle_writers(&mut **machine, &mut self.writers());
            self.renew_tree(&mut machine);
        }
    }

    /// Of a simulated file, by a path, or by a descriptor where the path may be empty.
    fn stat(
        &self,
        target: &Target<'_>,
        named: Named,
        flags: i32,
    ) -> Option<Result<libc::stat, Errno>> {
        if flags & libc::AT_EMPTY_PATH != 0 {
            let file = target.thread.file(named.folder);
            let is_folder = file.is_none_or(|file| file.st_mode & libc::S_IFMT == libc::S_IFDIR);
            if !is_folder {
                return self.open_stat(target, named.folder).map(Ok);
            }
        }
        let place = match self.place(target, named.unless(flags))? {
            Ok(place) => place,
            Err(errno) => return Some(Err(errno)),
        };
        let mut stat = stat_of(&place.kind);
        if let Some(inode) = self.tree().inode(&place.path) {
            (stat.st_dev, stat.st_ino) = (inode.device(), inode.number());
        }
        Some(Ok(stat))
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

    fn access(&self, target: &Target<'_>, named: Named, mode: i32) -> Option<Reply> {
        let place = self.place(target, named)?;
        Some(Reply::Answer(place.and_then(|place| {
            let bits = place.kind.mode() >> 6 & 7;
            let is_allowed = (mode as u32 & 7) & !bits == 0;
            if is_allowed { Ok(0) } else { Err(Errno::EACCES) }
        })))
    }

    /// Extended attributes, which no simulated file has.
    fn attributes(&self, target: &Target<'_>, named: Named) -> Option<Reply> {
        let place = self.place(target, named)?;
        Some(Reply::Answer(Err(place.err().unwrap_or(Errno::EOPNOTSUPP))))
    }

    fn readlink(
        &self,
        target: &Target<'_>,
        named: Named,
        address: u64,
        room: u64,
    ) -> Option<Reply> {
        let kind = match self.place(target, Named { follows: false, ..named }) {
            Some(Ok(place)) => place.kind,
            Some(Err(errno)) => return Some(Reply::Answer(Err(errno))),
            None => self.open_link(target, named)?,
        };
        let EntryKind::Link(told) = kind else { return Some(Reply::Answer(Err(Errno::EINVAL))) };
        // The kernel takes the room for an `int`, and writes as much as there is room for.
        let result = match usize::try_from(room as i32) {
            Err(_) | Ok(0) => Err(Errno::EINVAL),
            Ok(room) => {
                let told = &told.as_bytes()[..told.len().min(room)];
                let is_written = target.write(address, told) == told.len();
                if is_written { Ok(told.len() as i64) } else { Err(Errno::EFAULT) }
            }
        };
        Some(Reply::Answer(result))
    }

    /// A link that is open by its name alone, which a call without a path means.
    fn open_link(&self, target: &Target<'_>, named: Named) -> Option<EntryKind> {
        let mut first = [1];
        if named.folder < 0 || target.read(named.path, &mut first) == 0 || first != [0] {
            return None;
        }
        let inode = target.thread.inode(named.folder)?;
        let kind = self.tree().meaning(inode).map(|(_, kind)| kind)?;
        matches!(kind, EntryKind::Link(_)).then_some(kind)
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

/// Takes over what was written to files of text.
fn settle_writers(machine: &mut dyn Machine, writers: &mut Vec<Writer>) {
    writers.retain_mut(|writer| {
        // Whoever closes it has written before.
        let is_open = is_open(&writer.file);
        for written in writer.take() {
            machine.write_text(writer.text, &written);
        }
        is_open
    });
}

/// What a file of text says now, from an offset on. Its writers can make it as long as they like.
fn bytes_of(file: &OwnedFd, start: i64, most: usize) -> Vec<u8> {
    let mut bytes = vec![0; most];
    // SAFETY: the kernel writes no more bytes than it is told, which is the length of the vector, and `file`
    // keeps the descriptor open meanwhile.
    let length =
        unsafe { libc::pread(file.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), start) };
    bytes.truncate(usize::try_from(length).unwrap_or(0));
    bytes
}

/// Takes what was written out of a file, so that the same can be written again. Writers go on where they are: what lies
/// before them is a hole from then on.
fn take_out(file: &OwnedFd) -> Vec<u8> {
    /// So that nobody who writes faster than this reads is waited for.
    const MOST: usize = 1 << 20;
    let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let mut all = Vec::new();
    while all.len() < MOST {
        // SAFETY: the call takes numbers alone, and `file` keeps the descriptor open meanwhile.
        let start = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_DATA) };
        if start < 0 {
            break;
        }
        // A page of which a part was taken out begins with zeros.
        let bytes = bytes_of(file, start, 2 * TEXT_MAX);
        let Some(first) = bytes.iter().position(|byte| *byte != 0) else { break };
        all.extend_from_slice(&bytes[first..]);
        // SAFETY: as above. What is written meanwhile lies behind the hole.
        unsafe { libc::fallocate(file.as_raw_fd(), how, 0, start + bytes.len() as i64) };
    }
    all
}

/// The writes in what was written, each of which is a line: what was taken out before is zeros.
fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    let lines = bytes.split(|byte| [0, b'\n'].contains(byte));
    lines.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect()
}

/// Whether somebody else has the file open.
fn is_open(file: &OwnedFd) -> bool {
    // SAFETY: both calls take numbers alone, and `file` keeps the descriptor open meanwhile.
    unsafe {
        let is_alone = libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) == 0;
        libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK);
        !is_alone
    }
}

fn text_file(text: &[u8]) -> io::Result<OwnedFd> {
    use std::io::Write;
    use std::os::fd::FromRawFd;
    // SAFETY: the name ends with a zero byte; the kernel has just made the descriptor, and returned it here
    // alone.
    let mut file = unsafe {
        fs::File::from_raw_fd(check(libc::memfd_create(c"nvabi-text".as_ptr(), libc::MFD_CLOEXEC))?)
    };
    file.write_all(text)?;
    // The first descriptor of a memory file is not counted among its openings.
    reopen(&file.into(), Access::Both)
}

fn reopen(file: &OwnedFd, access: Access) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let (read, write) = (access != Access::Write, access != Access::Read);
    Ok(fs::OpenOptions::new().read(read).write(write).open(path)?.into())
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

fn put<T: Unpadded>(target: &Target<'_>, address: u64, value: &T) -> Result<i64, Errno> {
    // SAFETY: all bytes of the value are initialised, by the promise of `Unpadded`, and it is borrowed for as
    // long as they are used.
    let bytes =
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) };
    if target.write(address, bytes) < bytes.len() { Err(Errno::EFAULT) } else { Ok(0) }
}
