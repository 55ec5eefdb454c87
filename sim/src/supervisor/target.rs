//! The process that made a call: its memory and its descriptors.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::Run;
use super::links::Look;
use super::program::hold_forks;
use crate::client::{Client, Descriptor, Mapped, Pin, Work};
use crate::log::RunId;
use crate::memory::{Access, Inode, NODE_NAME, Node, PAGE, Pages};
use crate::{Errno, limits};
use nvabi_supervise::check;
use nvabi_supervise::{
    AddFd, Notification, open_memory, process_of, read_memory, read_memory_at_once, write_memory,
    write_memory_at_once,
};

/// What is known of a thread.
#[derive(Debug)]
pub(super) struct Thread {
    /// Its folder in `/proc`, which stays that of this thread when the number is used again.
    folder: OwnedFd,
    pub(super) process: u32,
}

/// Threads that have made calls.
#[derive(Debug, Default)]
pub(super) struct Threads {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// With when they were last asked for.
    threads: HashMap<u32, (Arc<Thread>, u64)>,
    now: u64,
}

/// More are forgotten, those first that made no call for longest, and looked up again.
const MAX_KNOWN: usize = 512;

impl Threads {
    /// A thread that waits for an answer, so its number is its own.
    pub(super) fn get(&self, number: u32) -> io::Result<Arc<Thread>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.now += 1;
        let now = known.now;
        if let Some((thread, used)) = known.threads.get_mut(&number) {
            if thread.is_alive() {
                *used = now;
                return Ok(thread.clone());
            }
        }
        known.threads.remove(&number);
        let thread = Arc::new(Thread::new(number)?);
        if !limits::is_spare(&thread.folder) {
            known.add(number, thread.clone());
        }
        Ok(thread)
    }
}

impl Known {
    fn add(&mut self, number: u32, thread: Arc<Thread>) {
        if self.threads.len() >= MAX_KNOWN {
            let oldest = self.threads.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(number, _)| *number) {
                self.threads.remove(&oldest);
            }
        }
        self.threads.insert(number, (thread, self.now));
    }
}

impl Thread {
    fn new(thread: u32) -> io::Result<Self> {
        let path = CString::new(format!("/proc/{thread}"))?;
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: the path ends with a zero byte and outlives the call; the kernel has just made the
        // descriptor, and returned it here alone.
        let folder = unsafe { OwnedFd::from_raw_fd(check(libc::open(path.as_ptr(), flags))?) };
        Ok(Self { folder, process: process_of(thread)? })
    }

    fn is_alive(&self) -> bool {
        self.stat(c"status", libc::AT_SYMLINK_NOFOLLOW).is_some()
    }

    /// What the real kernel knows of a file in that folder.
    fn stat(&self, path: &std::ffi::CStr, flags: i32) -> Option<libc::stat> {
        known_stat(self.folder.as_raw_fd(), path, flags)
    }

    /// What the real kernel says of the file that a descriptor means.
    pub(super) fn file(&self, fd: i32) -> Option<libc::stat> {
        self.stat(&descriptor_path(fd), 0)
    }

    /// The file that a descriptor means.
    pub(super) fn inode(&self, fd: i32) -> Option<Inode> {
        Some(Inode::of(&self.file(fd)?))
    }

    /// The folder that it is in.
    pub(super) fn current_folder(&self) -> Option<Inode> {
        Some(Inode::of(&self.stat(c"cwd", 0)?))
    }

    /// How a descriptor was opened: the permissions of its link say so.
    fn access(&self, fd: i32) -> Access {
        let link = self.stat(&descriptor_path(fd), libc::AT_SYMLINK_NOFOLLOW);
        match link.map_or(0, |link| link.st_mode) & 0o600 {
            0o400 => Access::Read,
            0o200 => Access::Write,
            _ => Access::Both,
        }
    }
}

/// What the real kernel knows of a file, by a path from a folder on: a file system that a program serves is not asked.
pub(super) fn known_stat(folder: i32, path: &std::ffi::CStr, flags: i32) -> Option<libc::stat> {
    let flags = flags | libc::AT_STATX_DONT_SYNC;
    // SAFETY: `statx` is of integers, so zeros are a value of it; the path ends with a zero byte, and the kernel writes
    // one `statx`, which is there.
    let known = unsafe {
        let mut known: libc::statx = std::mem::zeroed();
        let mask = libc::STATX_BASIC_STATS;
        let result = libc::statx(folder, path.as_ptr(), flags, mask, &mut known);
        (result == 0).then_some(known)
    }?;
    Some(plain(&known))
}

/// The same in the older form.
fn plain(known: &libc::statx) -> libc::stat {
    // SAFETY: `stat` is of integers and arrays of them: zeros are a value of it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_dev = libc::makedev(known.stx_dev_major, known.stx_dev_minor);
    stat.st_rdev = libc::makedev(known.stx_rdev_major, known.stx_rdev_minor);
    (stat.st_ino, stat.st_mode) = (known.stx_ino, known.stx_mode.into());
    (stat.st_uid, stat.st_gid) = (known.stx_uid, known.stx_gid);
    stat.st_nlink = known.stx_nlink.into();
    stat.st_size = known.stx_size as _;
    stat.st_blocks = known.stx_blocks as _;
    stat.st_blksize = known.stx_blksize as _;
    (stat.st_atime, stat.st_atime_nsec) = (known.stx_atime.tv_sec, known.stx_atime.tv_nsec.into());
    (stat.st_mtime, stat.st_mtime_nsec) = (known.stx_mtime.tv_sec, known.stx_mtime.tv_nsec.into());
    (stat.st_ctime, stat.st_ctime_nsec) = (known.stx_ctime.tv_sec, known.stx_ctime.tv_nsec.into());
    stat
}

/// `fd/N`, without asking for memory: this is done for every call.
fn descriptor_path(fd: i32) -> DescriptorPath {
    let mut path = DescriptorPath { bytes: [0; 16] };
    path.bytes[..3].copy_from_slice(b"fd/");
    let mut digits = [0; 10];
    let mut at = digits.len();
    let mut rest = fd as u32;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let digits = &digits[at..];
    path.bytes[3..3 + digits.len()].copy_from_slice(digits);
    path
}

struct DescriptorPath {
    bytes: [u8; 16],
}

impl std::ops::Deref for DescriptorPath {
    type Target = std::ffi::CStr;

    fn deref(&self) -> &Self::Target {
        std::ffi::CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"fd")
    }
}

/// The caller.
pub(super) struct Target<'a> {
    pub(super) run: &'a Run,
    pub(super) notification: &'a Notification,
    pub(super) thread: Arc<Thread>,
    pub(super) delay: Cell<Duration>,
    pub(super) work: Cell<Option<Work>>,
    /// A descriptor that the call closes.
    pub(super) closed: Cell<Option<i32>>,
    /// How it may look for links.
    pub(super) look: Look,
    /// Whether the call has to be looked at again by a thread that may wait.
    pub(super) must_wait: Cell<bool>,
    /// What was read last, where it is short: a call is named by its argument before it is made of it, and both are to
    /// be of the same bytes.
    last_read: RefCell<Option<(u64, Vec<u8>)>>,
}

/// Bytes of the longest argument that is not read twice.
const SHORT: usize = 256;

impl Client for Target<'_> {
    fn process(&self) -> u32 {
        self.thread.process
    }

    fn run(&self) -> RunId {
        self.run.number
    }

    fn read(&self, address: u64, into: &mut [u8]) -> usize {
        let mut last = self.last_read.borrow_mut();
        if let Some((at, bytes)) = last.as_ref() {
            if *at == address && bytes.len() == into.len() {
                into.copy_from_slice(bytes);
                return bytes.len();
            }
        }
        let read = if self.run.faults_are_answered() { read_memory_at_once } else { read_memory };
        let done = self.run.patience.read(into, {
            let thread = self.notification.thread;
            move |into| read(thread, address, into)
        });
        // What was read is the caller's only if it still is the caller.
        if done > 0 && !self.run.listener.is_valid(self.notification) {
            return 0;
        }
        if done == into.len() && done <= SHORT {
            *last = Some((address, into.to_vec()));
        }
        done
    }

    fn write(&self, address: u64, from: &[u8]) -> usize {
        if !self.run.listener.is_valid(self.notification) {
            return 0;
        }
        self.last_read.take();
        let write =
            if self.run.faults_are_answered() { write_memory_at_once } else { write_memory };
        let thread = self.notification.thread;
        self.run.patience.write(from, move |from| write(thread, address, from))
    }

    fn pages(&self, address: u64, length: u64, pin: Pin) -> Option<Pages> {
        // They are taken whole.
        let end = address.checked_add(length)?.checked_next_multiple_of(PAGE)?;
        let length = usize::try_from(length).ok()?;
        let thread = self.notification.thread;
        let open = move || open_memory(thread, address, length, pin);
        let memory = OwnedFd::from(self.run.patience.look(open)??);
        let is_caller = self.run.listener.is_valid(self.notification);
        let is_kept = is_caller && !limits::is_spare(&memory);
        is_kept
            .then(|| Pages::new(memory.into(), address, end - address, self.run.patience.clone()))
    }

    fn descriptor(&self, fd: i32) -> Descriptor {
        if fd < 0 {
            return Descriptor::Closed;
        }
        let Some(inode) = self.thread.inode(fd) else { return Descriptor::Closed };
        Descriptor::Open(inode, self.thread.access(fd))
    }

    fn install(&self, node: &Node, access: Access) -> Result<i32, Errno> {
        let _forks = hold_forks();
        let file = node.open(access)?;
        self.run.releases.watch(node)?;
        let how = AddFd::New { cloexec: true };
        self.run.listener.add_fd(self.notification, file.as_fd(), how)
    }

    fn mappings_of(&self, process: u32, inode: Inode) -> Option<Vec<Range<u64>>> {
        let number = inode.number();
        self.run.mappings(process, move |is| is == number)
    }

    fn mapping_from(&self, address: u64) -> Option<Option<Mapped>> {
        let process = self.process();
        let maps = self.run.patience.look(move || maps(process))?;
        let mut mapped = maps.lines().filter_map(mapping);
        Some(mapped.find(|mapped| mapped.addresses.end > address))
    }

    fn has_room(&self) -> bool {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        let process = self.process() as libc::pid_t;
        let nofile = libc::RLIMIT_NOFILE;
        // SAFETY: no new limit is given, and the kernel writes one `rlimit`: the one that is here.
        let known = unsafe { libc::prlimit(process, nofile, std::ptr::null(), &mut limit) } == 0;
        let open = fs::read_dir(format!("/proc/{process}/fd"));
        !known || open.is_ok_and(|open| (open.count() as u64) < limit.rlim_cur)
    }

    fn close(&self, fd: i32) {
        self.closed.set(Some(fd));
    }

    fn may_reschedule(&self) -> bool {
        const CAP_SYS_NICE: u64 = 1 << 23;
        let status = fs::read_to_string(format!("/proc/{}/status", self.notification.thread));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let capabilities = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
        capabilities.unwrap_or(0) & CAP_SYS_NICE != 0
    }

    fn delay(&self, time: Duration) {
        self.delay.set(self.delay.get() + time);
    }

    fn go_on(&self, work: Work) {
        self.work.set(Some(work));
    }
}

impl<'a> Target<'a> {
    pub(super) fn new(
        run: &'a Run,
        notification: &'a Notification,
        thread: Arc<Thread>,
        look: Look,
    ) -> Self {
        Self {
            run,
            notification,
            thread,
            delay: Cell::new(Duration::ZERO),
            work: Cell::default(),
            closed: Cell::default(),
            look,
            must_wait: Cell::new(false),
            last_read: RefCell::default(),
        }
    }
}

impl Run {
    /// Where a process has mapped some files; none where it does not let that be seen.
    pub(super) fn mappings(
        &self,
        process: u32,
        is_meant: impl Fn(u64) -> bool,
    ) -> Option<Vec<Range<u64>>> {
        let maps = self.patience.look(move || maps(process))?;
        let range = |line: &str| {
            let inode = line.split_ascii_whitespace().nth(4)?.parse().ok()?;
            mapping(line).filter(|_| is_meant(inode)).map(|mapped| mapped.addresses)
        };
        Some(maps.lines().filter(|line| line.contains(NODE_NAME)).filter_map(range).collect())
    }
}

/// The list of a process's mappings, which it can let others wait for too.
fn maps(process: u32) -> String {
    fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default()
}

/// A line of a list of mappings.
fn mapping(line: &str) -> Option<Mapped> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let is_writable = words.next()?.contains('w');
    Some(Mapped { addresses: address(start)?..address(end)?, is_writable })
}
