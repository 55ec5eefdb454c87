//! The files behind the simulated ones: what a client's file descriptors really are.
//!
//! A simulated file is a memory file of its own, so that the client's `mmap` is the real one and the
//! file's inode says which simulated file a descriptor means, however it came to the process. The
//! client never gets the descriptor made here but another opening of the same file; while nobody but
//! us has the file open a write lease on it is granted, and so the last release is noticed, memory
//! mappings included. Files that a client polls are pipes.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt as _;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use nvabi_supervise::check;

use super::limits::{self, Place, Places};
use super::patience::Patience;

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// What lists of mappings call our memory.
pub(crate) const NODE_NAME: &str = "memfd:nvabi-sim";

/// Which file an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Inode {
    device: u64,
    number: u64,
}

impl Inode {
    /// Its number, which is told in more places than its device.
    pub(crate) fn number(self) -> u64 {
        self.number
    }

    /// The device that it is on.
    pub(crate) fn device(self) -> u64 {
        self.device
    }

    /// Of what `stat` says.
    pub(crate) fn of(stat: &libc::stat) -> Self {
        Self { device: stat.st_dev, number: stat.st_ino }
    }
}

/// How an opening of a file may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    Both,
}

impl Access {
    /// Of the flags of `open`.
    pub(crate) fn of(flags: i32) -> Self {
        match flags & libc::O_ACCMODE {
            libc::O_RDONLY => Self::Read,
            libc::O_WRONLY => Self::Write,
            _ => Self::Both,
        }
    }

    fn flags(self) -> i32 {
        match self {
            Self::Read => libc::O_RDONLY,
            Self::Write => libc::O_WRONLY,
            Self::Both => libc::O_RDWR,
        }
    }
}

/// A file of ours that clients can have open.
#[derive(Debug)]
pub(crate) enum Node {
    /// Memory of a fixed size.
    Memory(Memory),
    /// Readable when something has happened.
    Signal(Signal),
}

impl Node {
    /// Its inode.
    pub(crate) fn inode(&self) -> Inode {
        match self {
            Self::Memory(memory) => memory.inode,
            Self::Signal(signal) => signal.inode,
        }
    }

    /// The memory that it is.
    pub(crate) fn memory(&self) -> Option<&Memory> {
        match self {
            Self::Memory(memory) => Some(memory),
            Self::Signal(_) => None,
        }
    }

    /// Another opening, for a client.
    pub(crate) fn open(&self, access: Access) -> io::Result<OwnedFd> {
        match self {
            Self::Memory(memory) => reopen(memory.file.as_raw_fd(), access.flags()),
            Self::Signal(signal) => signal.open(access),
        }
    }

    /// A descriptor of ours, for watching it.
    pub(crate) fn descriptor(&self) -> RawFd {
        match self {
            Self::Memory(memory) => memory.file.as_raw_fd(),
            Self::Signal(signal) => signal.write.as_raw_fd(),
        }
    }

    /// Whether a client has it open or mapped.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::Memory(memory) => memory.is_open(),
            Self::Signal(signal) => signal.is_open(),
        }
    }
}

/// Shared memory that neither shrinks nor grows, whatever its other users try.
#[derive(Debug)]
pub(crate) struct Memory {
    file: Arc<File>,
    inode: Inode,
    /// Where in the file it begins.
    start: u64,
    size: u64,
    /// Whether others have the rest of the file.
    is_part: bool,
    map: OnceLock<Option<Map>>,
}

/// Parts of files of which this process has mappings. It may have 65,530 by default (`vm.max_map_count`), and needs
/// some itself: further parts are read and written by calls.
static MAPPED_PARTS: LazyLock<Places<()>> = LazyLock::new(|| Places::new(MOST_MAPPED_PARTS));
const MOST_MAPPED_PARTS: usize = 16_384;

/// Memory that this process, its clients and their children may change at any time.
///
/// It is only ever seen as atomic words of one size, whatever is copied: the accesses of this process's
/// threads are neither data races nor of two sizes at one place, which Rust's memory model has no meaning
/// for (`std::sync::atomic`, "Memory model for atomic accesses"). Other processes see each word change at once.
#[derive(Debug)]
struct Map {
    start: NonNull<u8>,
    length: usize,
    /// Counts it, when it is of a part.
    _place: Option<Place<()>>,
}

/// Bytes of a word.
const WORD: usize = size_of::<AtomicU64>();

// SAFETY: a mapping belongs to the process, not to the thread that made it, and `Drop` may unmap it from any.
unsafe impl Send for Map {}
// SAFETY: through a shared reference there is only `words`, of atomics, which are `Sync`.
unsafe impl Sync for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range is the one that `Memory::map` was given by the kernel, which nobody else unmaps;
        // references into it borrow `self`, and so are gone.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

impl Map {
    /// All of it; the last word may end behind the memory's size, in the same page.
    fn words(&self) -> &[AtomicU64] {
        let words = self.length.div_ceil(WORD);
        // SAFETY: `mmap` maps whole pages, of which the size of a word is a divisor: the words are aligned and
        // all of them are mapped, until `self` goes. Their file cannot shrink (`F_SEAL_SHRINK`), so touching
        // them does not fail. Any bytes are a value of an atomic integer, and the only references to this memory
        // are those made here.
        unsafe { std::slice::from_raw_parts(self.start.cast::<AtomicU64>().as_ptr(), words) }
    }
}

/// Copies from words, of which `skip` bytes of the first are left out. They are at least as many as are asked
/// for.
fn copy_out(words: &[AtomicU64], skip: usize, into: &mut [u8]) {
    let mut words = words.iter().map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
    let (first, rest) = into.split_at_mut(head(skip, into.len()));
    let partial = if first.is_empty() { None } else { words.next() };
    if let Some(word) = partial {
        first.copy_from_slice(&word[skip..skip + first.len()]);
    }
    let mut whole = rest.chunks_exact_mut(WORD);
    for (to, word) in whole.by_ref().zip(words.by_ref()) {
        to.copy_from_slice(&word);
    }
    let last = whole.into_remainder();
    if let Some(word) = words.next().filter(|_| !last.is_empty()) {
        last.copy_from_slice(&word[..last.len()]);
    }
}

/// Copies into words, as [`copy_out`] copies from them. Bytes beside those that are written stay as they are,
/// whoever changes them meanwhile.
fn copy_in(words: &[AtomicU64], skip: usize, from: &[u8]) {
    let mut words = words.iter();
    let (first, rest) = from.split_at(head(skip, from.len()));
    let partial = if first.is_empty() { None } else { words.next() };
    if let Some(word) = partial {
        replace(word, skip, first, Ordering::Relaxed);
    }
    let whole = rest.chunks_exact(WORD);
    let last = whole.remainder();
    for (from, word) in whole.zip(words.by_ref()) {
        let mut bytes = [0; WORD];
        bytes.copy_from_slice(from);
        word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    }
    if let Some(word) = words.next().filter(|_| !last.is_empty()) {
        replace(word, 0, last, Ordering::Relaxed);
    }
}

/// How many of `length` bytes are in the first word, when `skip` bytes of that come before them; none when it
/// is copied whole.
fn head(skip: usize, length: usize) -> usize {
    if skip == 0 { 0 } else { (WORD - skip).min(length) }
}

/// Replaces some bytes of a word; returns the word before.
fn replace(word: &AtomicU64, skip: usize, from: &[u8], order: Ordering) -> u64 {
    let mut now = word.load(Ordering::Relaxed);
    loop {
        let mut bytes = now.to_ne_bytes();
        bytes[skip..skip + from.len()].copy_from_slice(from);
        let wanted = u64::from_ne_bytes(bytes);
        match word.compare_exchange_weak(now, wanted, order, Ordering::Relaxed) {
            Ok(before) => return before,
            Err(other) => now = other,
        }
    }
}

/// Half a word.
fn half(word: u64, skip: usize) -> u32 {
    let bytes = word.to_ne_bytes();
    u32::from_ne_bytes([bytes[skip], bytes[skip + 1], bytes[skip + 2], bytes[skip + 3]])
}

impl Memory {
    /// `size` bytes of zeros, which cost nothing until they are written.
    pub(crate) fn new(size: u64) -> io::Result<Self> {
        let length = i64::try_from(size).map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM))?;
        // SAFETY: the name ends with a zero byte, and the kernel makes the descriptor for this call alone.
        let made = unsafe {
            owned(libc::memfd_create(
                c"nvabi-sim".as_ptr(),
                libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
            ))
        }?;
        // SAFETY: both calls take numbers alone, and `made` keeps the descriptor open meanwhile.
        unsafe {
            check(libc::ftruncate(made.as_raw_fd(), length))?;
            let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
            check(libc::fcntl(made.as_raw_fd(), libc::F_ADD_SEALS, seals))?;
        }
        // The first descriptor of a memory file is not counted among its openings, which leases need.
        let file = reopen(made.as_raw_fd(), libc::O_RDWR)?;
        if limits::is_spare(&file) {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let inode = Inode::of(&stat(file.as_raw_fd())?);
        let file = Arc::new(File::from(file));
        Ok(Self { file, inode, start: 0, size, is_part: false, map: OnceLock::new() })
    }

    /// A part of it, of whole pages, where it is that large.
    pub(crate) fn part(&self, start: u64, size: u64) -> Option<Self> {
        let end = start.checked_add(size).filter(|end| *end <= self.size)?;
        let (file, start) = (self.file.clone(), self.start + start);
        let (inode, map) = (self.inode, OnceLock::new());
        let part = Self { file, inode, start, size, is_part: true, map };
        (end > 0 && start % PAGE == 0).then_some(part)
    }

    /// Gives its pages back to the system: it is zeros again.
    pub(crate) fn clear(&self) {
        let (Ok(start), Ok(size)) = (self.start.try_into(), self.size.try_into()) else { return };
        let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the call takes numbers alone, and `self.file` keeps the descriptor open meanwhile. What is mapped
        // of the file stays mapped.
        unsafe { libc::fallocate(self.file.as_raw_fd(), how, start, size) };
    }

    /// The pages from one place in it to another that somebody has written or looked at, in order: other pages take
    /// no memory.
    pub(crate) fn written(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let seek = |at: u64, whence| {
            let at = (self.start + at).try_into().ok()?;
            // SAFETY: the call takes numbers alone, and `self.file` keeps the descriptor open meanwhile. Nobody reads or
            // writes at the place in the file that it moves.
            let found = unsafe { libc::lseek(self.file.as_raw_fd(), at, whence) };
            u64::try_from(found).ok()?.checked_sub(self.start)
        };
        let end = end.min(self.size);
        let (mut at, mut pages) = (start, Vec::new());
        while let Some(from) = seek(at, libc::SEEK_DATA).filter(|from| *from < end) {
            let to = seek(from, libc::SEEK_HOLE).map_or(end, |to| to.min(end)).max(from + 1);
            pages.push((from.max(start), to));
            at = to;
        }
        pages
    }

    fn is_open(&self) -> bool {
        let fd = self.file.as_raw_fd();
        // SAFETY: both calls take numbers alone, and `self.file` keeps the descriptor open meanwhile.
        unsafe {
            if libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK) != 0 {
                return true;
            }
            libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK);
        }
        false
    }

    /// Copies out; what is past the end is left alone. Returns whether all of it was inside.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        if !self.has(offset, into.len()) {
            return false;
        }
        match self.at(offset, into.len()) {
            Some((words, skip)) => copy_out(words, skip, into),
            None => return self.file.read_exact_at(into, self.start + offset).is_ok(),
        }
        true
    }

    /// Copies in, as [`Self::read`] copies out.
    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> bool {
        if !self.has(offset, from.len()) {
            return false;
        }
        match self.at(offset, from.len()) {
            Some((words, skip)) => copy_in(words, skip, from),
            None => return self.file.write_all_at(from, self.start + offset).is_ok(),
        }
        true
    }

    /// The aligned 32 bits at an offset; what their writer wrote before them is seen after this.
    pub(crate) fn load(&self, offset: u64) -> Option<u32> {
        if offset % 4 != 0 {
            return None;
        }
        if let Some((word, skip)) = self.word(offset, 4) {
            return Some(half(word.load(Ordering::Acquire), skip));
        }
        let mut bytes = [0; 4];
        self.read(offset, &mut bytes).then_some(u32::from_ne_bytes(bytes))
    }

    /// Stores aligned 32 bits at once, for clients that watch them: what was written before is seen before
    /// them. Whether they are inside and aligned.
    pub(crate) fn store(&self, offset: u64, value: u32) -> bool {
        self.swap(offset, value).is_some()
    }

    /// As [`Self::store`], and returns what was there; that is one step where the memory is no part.
    pub(crate) fn swap(&self, offset: u64, value: u32) -> Option<u32> {
        if offset % 4 != 0 {
            return None;
        }
        if let Some((word, skip)) = self.word(offset, 4) {
            return Some(half(replace(word, skip, &value.to_ne_bytes(), Ordering::AcqRel), skip));
        }
        let before = self.load(offset)?;
        self.write(offset, &value.to_ne_bytes()).then_some(before)
    }

    /// As [`Self::store`], of 64 bits.
    pub(crate) fn store64(&self, offset: u64, value: u64) -> bool {
        if offset % 8 != 0 {
            return false;
        }
        match self.word(offset, 8) {
            Some((word, _)) => word.store(value, Ordering::Release),
            None => return self.write(offset, &value.to_ne_bytes()),
        }
        true
    }

    /// Stores aligned bytes of one word where others are found; what was found. None where that is not one step, or
    /// not all of them are inside.
    pub(crate) fn compare_exchange(
        &self,
        offset: u64,
        width: usize,
        old: u64,
        new: u64,
    ) -> Option<u64> {
        let (word, skip) = self.word(offset, width).filter(|(_, skip)| skip + width <= WORD)?;
        let within = |word: u64| word >> (8 * skip) & u64::MAX >> (64 - 8 * width);
        let mut now = word.load(Ordering::Acquire);
        while within(now) == old {
            let mut bytes = now.to_le_bytes();
            bytes.get_mut(skip..skip + width)?.copy_from_slice(&new.to_le_bytes()[..width]);
            let wanted = u64::from_le_bytes(bytes);
            match word.compare_exchange_weak(now, wanted, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(old),
                Err(other) => now = other,
            }
        }
        Some(within(now))
    }

    /// As [`Self::write`], and words and double words at once, for clients that watch them.
    pub(crate) fn put(&self, offset: u64, bytes: &[u8]) -> bool {
        let word = bytes.try_into().map(u32::from_ne_bytes);
        let double = bytes.try_into().map(u64::from_ne_bytes);
        word.is_ok_and(|word| self.store(offset, word))
            || double.is_ok_and(|double| self.store64(offset, double))
            || self.write(offset, bytes)
    }

    /// Whether bytes are inside.
    fn has(&self, offset: u64, length: usize) -> bool {
        length == 0 || offset.checked_add(length as u64).is_some_and(|end| end <= self.size)
    }

    /// The word that an aligned offset is in, and how many bytes come before it.
    fn word(&self, offset: u64, length: usize) -> Option<(&AtomicU64, usize)> {
        let (words, skip) = self.at(offset, length)?;
        Some((words.first()?, skip))
    }

    /// The words from the one on that an offset is in, and how many bytes come before it; none where not all
    /// of the bytes are inside, or there are none, or it is a part that is not mapped.
    fn at(&self, offset: u64, length: usize) -> Option<(&[AtomicU64], usize)> {
        if length == 0 || !self.has(offset, length) {
            return None;
        }
        let map = self.map.get_or_init(|| self.map()).as_ref()?;
        let offset = usize::try_from(offset).ok()?;
        Some((map.words().get(offset / WORD..)?, offset % WORD))
    }

    fn map(&self) -> Option<Map> {
        let length = usize::try_from(self.size).ok()?;
        let start = i64::try_from(self.start).ok()?;
        let place = if self.is_part { Some(MAPPED_PARTS.take((), 1)?) } else { None };
        // SAFETY: no address is asked for, so no memory that is in use is replaced.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                self.file.as_raw_fd(),
                start,
            )
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        // A keeper is a copy of this process that stays: it keeps no memory of other simulations.
        // SAFETY: the range is the one that was just mapped; only children of this process do not have it.
        unsafe { libc::madvise(start, length, libc::MADV_DONTFORK) };
        NonNull::new(start.cast()).map(|start| Map { start, length, _place: place })
    }
}

/// The memory of a process from an address on, as long as that process has it.
#[derive(Debug)]
pub(crate) struct Pages {
    /// Its file in `/proc`, which stays that of the same memory whatever becomes of the process.
    memory: Arc<File>,
    address: u64,
    size: u64,
    patience: Arc<Patience>,
}

/// Bytes of a process's memory. Where that is gone the real driver still has the pages, until it lets go of them: nobody
/// sees what was in them, and they are no error of the GPU.
fn read_pinned(memory: &File, into: &mut [u8], at: u64) -> io::Result<()> {
    let mut done = 0;
    while done < into.len() {
        match memory.read_at(&mut into[done..], at + done as u64) {
            Ok(0) => {
                into[done..].fill(0);
                break;
            }
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The same, to it.
fn write_pinned(memory: &File, from: &[u8], at: u64) -> io::Result<()> {
    let mut done = 0;
    while done < from.len() {
        match memory.write_at(&from[done..], at + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Pages {
    /// So many bytes from an address on, in the file of a process's memory.
    pub(crate) fn new(memory: File, address: u64, size: u64, patience: Arc<Patience>) -> Self {
        Self { memory: Arc::new(memory), address, size, patience }
    }

    /// The address of bytes that are all among them.
    fn at(&self, offset: u64, length: usize) -> Option<u64> {
        let end = offset.checked_add(length as u64)?;
        self.address.checked_add(offset).filter(|_| end <= self.size)
    }

    /// Copies out; whether all of it was there.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        let Some(at) = self.at(offset, into.len()) else { return false };
        let memory = self.memory.clone();
        let read = move |into: &mut [u8]| read_pinned(&memory, into, at).map_or(0, |()| into.len());
        self.patience.read(into, read) == into.len()
    }

    /// Copies in, as [`Self::read`] copies out.
    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> bool {
        let Some(at) = self.at(offset, from.len()) else { return false };
        let memory = self.memory.clone();
        let write = move |from: &[u8]| write_pinned(&memory, from, at).map_or(0, |()| from.len());
        self.patience.write(from, write) == from.len()
    }
}

/// A pipe of which the client has the only end that is read.
#[derive(Debug)]
pub(crate) struct Signal {
    /// Until a client gets it.
    read: Mutex<Option<OwnedFd>>,
    write: OwnedFd,
    inode: Inode,
}

impl Signal {
    /// Nothing has happened yet.
    pub(crate) fn new() -> io::Result<Self> {
        let mut ends = [-1; 2];
        // SAFETY: `ends` has room for the two descriptors that the kernel writes, and makes for this call alone.
        let (read, write) = unsafe {
            check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK))?;
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        if limits::is_spare(&write) {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let inode = Inode::of(&stat(read.as_raw_fd())?);
        Ok(Self { read: Mutex::new(Some(read)), write, inode })
    }

    /// Makes it readable.
    pub(crate) fn raise(&self) {
        // A full pipe is readable already.
        // SAFETY: the kernel reads one byte, of an array of one that lives through the call.
        unsafe { libc::write(self.write.as_raw_fd(), [1_u8].as_ptr().cast(), 1) };
    }

    /// Makes it unreadable.
    pub(crate) fn lower(&self) {
        let Ok(read) = reopen(self.write.as_raw_fd(), libc::O_RDONLY | libc::O_NONBLOCK) else {
            return;
        };
        let mut bytes = [0_u8; 64];
        // SAFETY: the kernel writes at most 64 bytes, which is the size of the array.
        while unsafe { libc::read(read.as_raw_fd(), bytes.as_mut_ptr().cast(), 64) } > 0 {}
    }

    /// Only the first time: the client has all other openings from that one.
    fn open(&self, access: Access) -> io::Result<OwnedFd> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let read = read.take().ok_or_else(|| io::Error::from_raw_os_error(libc::EBUSY))?;
        match access {
            Access::Read => Ok(read),
            _ => reopen(read.as_raw_fd(), libc::O_RDWR | libc::O_NONBLOCK),
        }
    }

    fn is_open(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.write.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: the kernel reads and writes as many entries as it is told: the one that is here.
        unsafe { libc::poll(&mut poll, 1, 0) };
        poll.revents & libc::POLLERR == 0
    }
}

/// Another opening of an open file, with a description of its own.
fn reopen(fd: RawFd, flags: i32) -> io::Result<OwnedFd> {
    let path = std::ffi::CString::new(format!("/proc/self/fd/{fd}"))?;
    // SAFETY: the path ends with a zero byte, and the kernel makes the descriptor for this call alone.
    unsafe { owned(libc::open(path.as_ptr(), flags | libc::O_CLOEXEC)) }
}

/// What the kernel says of an open file.
pub(crate) fn stat(fd: RawFd) -> io::Result<libc::stat> {
    // SAFETY: `stat` is of integers, so zeros are a value of it; `fstat` writes one, which is there.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        check(libc::fstat(fd, &mut stat))?;
        Ok(stat)
    }
}

/// The descriptor that a call returned.
///
/// # Safety
///
/// When it is not negative, nobody else owns it.
unsafe fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    let fd = check(fd)?;
    // SAFETY: the caller promises that nobody else owns it, and it is not negative.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_have_what_plain_memory_has() {
        let memory = Memory::new(100).unwrap();
        let mut model = [0_u8; 100];
        let mut next = 0_u8;
        for offset in 0..100 {
            for length in 0..=(100 - offset).min(35) {
                let bytes: Vec<u8> =
                    (0..length).map(|_| (next = next.wrapping_add(7), next).1).collect();
                assert!(memory.write(offset as u64, &bytes));
                model[offset..offset + length].copy_from_slice(&bytes);
                let mut all = [0; 100];
                assert!(memory.read(0, &mut all));
                assert_eq!(all, model, "{length} bytes at {offset}");
                let mut part = vec![0; length];
                assert!(memory.read(offset as u64, &mut part));
                assert_eq!(part, bytes, "{length} bytes at {offset}");
            }
        }
    }

    #[test]
    fn what_is_not_inside_is_refused() {
        let memory = Memory::new(100).unwrap();
        assert!(!memory.write(93, &[1; 8]) && !memory.read(93, &mut [1; 8]));
        assert!(!memory.write(u64::MAX, &[1]) && memory.write(100, &[]));
        assert!(memory.store(96, 5) && !memory.store(97, 5) && !memory.store(100, 5));
        assert!(memory.store64(88, 5) && !memory.store64(92, 5) && !memory.store64(96, 5));
        assert_eq!((memory.load(96), memory.load(98), memory.load(100)), (Some(5), None, None));
    }

    #[test]
    fn a_part_is_where_it_is() {
        let memory = Memory::new(1 << 46).unwrap();
        let part = memory.part(1 << 45, 2 * PAGE).unwrap();
        assert!(part.write(PAGE, b"part") && !part.write(2 * PAGE - 1, b"part"));
        let other = memory.part((1 << 45) + PAGE, PAGE).unwrap();
        let mut bytes = [0; 4];
        assert!(other.read(0, &mut bytes) && &bytes == b"part");
        other.clear();
        assert!(part.read(PAGE, &mut bytes) && bytes == [0; 4]);
        for (start, size) in [(1 << 46, PAGE), ((1 << 46) - PAGE, 2 * PAGE), (1, PAGE), (0, 0)] {
            assert!(memory.part(start, size).is_none(), "{start:#x} {size:#x}");
        }
    }

    #[test]
    fn parts_without_a_mapping_have_the_same_bytes() {
        let memory = Memory::new(4 * PAGE).unwrap();
        let mapped = memory.part(PAGE, 2 * PAGE).unwrap();
        let called = memory.part(PAGE, 2 * PAGE).unwrap();
        assert!(called.map.set(None).is_ok());
        assert!(called.write(PAGE - 1, b"both") && called.write(2 * PAGE, b""));
        let mut bytes = [0; 4];
        assert!(mapped.read(PAGE - 1, &mut bytes) && &bytes == b"both");
        assert!(mapped.store(8, 5) && called.load(8) == Some(5) && called.swap(8, 6) == Some(5));
        assert!(called.store64(16, 7) && mapped.load(8) == Some(6) && mapped.load(16) == Some(7));
        assert!(called.put(20, &8_u32.to_ne_bytes()) && mapped.load(20) == Some(8));
        assert!(!called.write(2 * PAGE - 1, b"no") && !called.read(2 * PAGE, &mut bytes));
        assert!(!called.store(6, 1) && !called.store64(4, 1) && called.load(2 * PAGE).is_none());
        assert!(called.load(u64::MAX - 3).is_none());
    }

    #[test]
    fn no_more_parts_are_mapped_than_there_may_be() {
        let memory = Memory::new(PAGE).unwrap();
        let parts: Vec<Memory> =
            (0..MOST_MAPPED_PARTS + 8).map(|_| memory.part(0, PAGE).unwrap()).collect();
        assert!(parts.iter().all(|part| part.store(0, 7)));
        let mapped = parts.iter().filter(|part| matches!(part.map.get(), Some(Some(_)))).count();
        assert!(mapped <= MOST_MAPPED_PARTS && mapped > MOST_MAPPED_PARTS / 2, "{mapped}");
        drop(parts);
        let another = memory.part(0, PAGE).unwrap();
        assert!(another.load(0) == Some(7) && matches!(another.map.get(), Some(Some(_))));
    }

    #[test]
    fn words_are_found_by_their_offsets() {
        let memory = Memory::new(4096).unwrap();
        assert!(memory.store64(16, 0x8877_6655_4433_2211));
        assert_eq!((memory.load(16), memory.load(20)), (Some(0x4433_2211), Some(0x8877_6655)));
        assert_eq!(memory.swap(20, 9), Some(0x8877_6655));
        assert_eq!((memory.load(16), memory.load(20)), (Some(0x4433_2211), Some(9)));
        let mut bytes = [0; 8];
        assert!(memory.read(16, &mut bytes));
        assert_eq!(bytes, [0x11, 0x22, 0x33, 0x44, 9, 0, 0, 0]);
    }

    /// Each thread has bytes of its own; those of the others stay as they are. The thread sanitizer sees a
    /// race here where copies are not atomic.
    #[test]
    fn threads_that_write_side_by_side_lose_nothing() {
        let memory = Memory::new(4096).unwrap();
        let ranges = [(0, 3), (3, 2), (5, 14), (19, 5), (24, 4), (28, 1)];
        std::thread::scope(|scope| {
            for (at, length) in ranges {
                let memory = &memory;
                scope.spawn(move || {
                    for round in 0..2000_u32 {
                        let wanted = vec![round as u8; length];
                        memory.write(at, &wanted);
                        let (mut all, mut own) = ([0; 64], vec![0; length]);
                        assert!(memory.read(0, &mut all) && memory.read(at, &mut own));
                        assert_eq!(own, wanted);
                    }
                });
            }
            // One that writes over what the others read.
            scope.spawn(|| (0..2000).for_each(|round| assert!(memory.store(32, round))));
        });
    }
}
