//! The library that `proxy run` loads into a program: `open` of the driver's files and their ioctls go through the
//! proxy, in the place of the C library's functions. All else is the kernel's: `mmap` and `poll` find the file of a
//! device that the other side has opened.
//!
//! What it does not see: system calls that are not made by the C library's functions, and a forked process
//! has no device that was opened before: its ioctls are refused, and it can open its own. Pages that the driver pins become those of a file: a forked process does
//! not copy them, and one that was forked before does not share them any more.
#![allow(dead_code, reason = "the other side of the proxy is in the same file")]

#[path = "proxy.rs"]
mod proxy;

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong};
use std::fs::{self, File};
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};

use nvabi::call::Uvm;

use proxy::{Identity, Piece, Remote, Result, identity};

/// The proxy of this process.
struct Front {
    /// A process that was forked has another number, and a connection of its own.
    process: u32,
    remote: Remote,
    devices: HashSet<Identity>,
    /// Those of the process that this one was forked from: the other side knows nothing of this one's use of them.
    inherited: HashSet<Identity>,
    /// Files that memory of this process has become a part of.
    shared: HashMap<u64, OwnedFd>,
}

static FRONT: Mutex<Option<Front>> = Mutex::new(None);

/// The proxy, connected; `None` in a program that `proxy run` has not begun.
fn front(guard: &mut MutexGuard<'_, Option<Front>>) -> Option<()> {
    if guard.as_ref().is_some_and(|front| front.process == std::process::id()) {
        return Some(());
    }
    let socket = std::env::var_os(proxy::SOCKET)?;
    let connected = UnixStream::connect(socket).map_err(Into::into).and_then(Remote::connect);
    match connected {
        Ok(remote) => {
            let before = guard.take();
            let inherited =
                before.map(|front| front.devices.union(&front.inherited).copied().collect());
            **guard = Some(Front {
                process: std::process::id(),
                remote,
                devices: HashSet::new(),
                inherited: inherited.unwrap_or_default(),
                shared: HashMap::new(),
            });
            Some(())
        }
        Err(error) => {
            eprintln!("proxy: {error}");
            None
        }
    }
}

/// Ends a function as the C library's end: −1 and the error's number, which the caller finds in `errno`.
fn ended(result: Result<c_int>) -> c_int {
    let error = match result {
        Ok(done) => return done,
        Err(error) => error,
    };
    let number = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
    if number.is_none() {
        eprintln!("proxy: refused: {error}");
    }
    nix::errno::Errno::from_raw(number.unwrap_or(libc::EINVAL)).set();
    -1
}

/// Opens a file over there, where it is one of the driver's.
fn open_there(path: *const c_char, flags: c_int) -> Option<c_int> {
    // SAFETY: the caller gives a path that ends with a zero byte, as `open` takes it.
    let path = unsafe { path.as_ref().map(|path| CStr::from_ptr(path)) }?.to_str().ok()?;
    if !path.starts_with("/dev/nvidia") {
        return None;
    }
    let takes_ioctls = !path.starts_with("/dev/nvidia-caps/");
    let mut guard = FRONT.lock().unwrap_or_else(PoisonError::into_inner);
    front(&mut guard)?;
    let front = guard.as_mut()?;
    Some(ended(front.remote.open(path).and_then(|fd| {
        if takes_ioctls {
            front.devices.insert(identity(fd.as_fd())?);
        }
        let fd = fd.into_raw_fd();
        Numbers::set(fd, takes_ioctls);
        // It was received with this flag.
        if flags & libc::O_CLOEXEC == 0 {
            // SAFETY: the call takes numbers alone.
            unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
        }
        Ok(fd)
    })))
}

fn open_here(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the arguments are those of the caller of `open` or `openat`, which this is in the place of.
    unsafe { libc::syscall(libc::SYS_openat, folder, path, flags, mode) as c_int }
}

/// The C library's `open`. It takes the mode where the flags ask for one; on x86-64 and arm64 an argument that is not
/// given is a register that is not looked at.
///
/// # Safety
///
/// As for `open` itself: the path ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    open_there(path, flags).unwrap_or_else(|| open_here(libc::AT_FDCWD, path, flags, mode))
}

/// The same, of files of any size.
///
/// # Safety
///
/// As for [`open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller keeps what this function asks for, which is the same.
    unsafe { open(path, flags, mode) }
}

/// The same, from a folder on.
///
/// # Safety
///
/// As for [`open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mode: c_uint,
) -> c_int {
    open_there(path, flags).unwrap_or_else(|| open_here(folder, path, flags, mode))
}

/// The C library's `fopen`, by which nvidia-smi looks whether it can open a GPU. The stream's own end is not seen: the
/// other side keeps the file until another one has its number.
///
/// # Safety
///
/// As for `fopen` itself: both texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    match open_there(path, libc::O_CLOEXEC) {
        // SAFETY: the file is this call's own, and the caller's mode ends with a zero byte.
        Some(fd) if fd >= 0 => unsafe { libc::fdopen(fd, mode) },
        Some(_) => std::ptr::null_mut(),
        None => fopen_here(path, mode),
    }
}

/// The same, of files of any size.
///
/// # Safety
///
/// As for [`fopen`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: the caller keeps what this function asks for, which is the same.
    unsafe { fopen(path, mode) }
}

fn fopen_here(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    type Fopen = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut libc::FILE;
    // SAFETY: the name ends with a zero byte.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"fopen".as_ptr()) };
    if next.is_null() {
        nix::errno::Errno::ENOSYS.set();
        return std::ptr::null_mut();
    }
    // SAFETY: it is the C library's function of this name, which takes and gives just this; its arguments are those of
    // the caller, which this is in the place of.
    unsafe { std::mem::transmute::<*mut std::ffi::c_void, Fopen>(next)(path, mode) }
}

/// The C library's `ioctl`, whose third argument is given as [`open`]'s.
///
/// # Safety
///
/// As for `ioctl` itself: the argument is what the request says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: u64) -> c_int {
    if let Some(done) = ioctl_there(fd, request as u32, argument) {
        return done;
    }
    // SAFETY: the arguments are those of the caller, which this is in the place of.
    unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) as c_int }
}

fn ioctl_there(fd: c_int, request: u32, argument: u64) -> Option<c_int> {
    let mut guard = FRONT.lock().unwrap_or_else(PoisonError::into_inner);
    let Front { process, remote, devices, inherited, shared } = guard.as_mut()?;
    if fd < 0 {
        return None;
    }
    // SAFETY: the caller has it open while it makes a call on it; one that is not open has no identity.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let identity = identity(fd).ok()?;
    let is_forked = *process != std::process::id();
    if inherited.contains(&identity) || is_forked && devices.contains(&identity) {
        let why = "the device was opened before this process was forked: open it again here";
        return Some(ended(Err(why.into())));
    }
    if is_forked || !devices.contains(&identity) {
        return None;
    }
    Some(ended(match is_initialize(remote, request) {
        true => initialize(remote, fd, request, argument),
        false => remote
            .ioctl_with(fd, request, argument, |address, length| share(shared, address, length)),
    }))
}

/// The C library's `close`.
///
/// # Safety
///
/// As for `close` itself: nobody uses the file of that number any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if Numbers::set(fd, false) {
        let mut guard = FRONT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(front) = guard.as_mut().filter(|front| front.process == std::process::id()) {
            if let Err(error) = front.remote.close(fd) {
                eprintln!("proxy: {error}");
            }
        }
    }
    // SAFETY: the number is the caller's, which this is in the place of.
    unsafe { libc::syscall(libc::SYS_close, fd) as c_int }
}

/// The numbers of files that are devices, without a lock: this library's own files are closed while it has the proxy.
struct Numbers;

static NUMBERS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

impl Numbers {
    /// Whether a number was one before.
    fn set(fd: c_int, is_device: bool) -> bool {
        let (word, bit) = (fd as usize / 64, 1 << (fd as usize % 64));
        let before = NUMBERS.get(word).map(|word| match is_device {
            true => word.fetch_or(bit, Ordering::Relaxed),
            false => word.fetch_and(!bit, Ordering::Relaxed),
        });
        before.is_some_and(|before| before & bit != 0)
    }
}

fn is_initialize(remote: &Remote, request: u32) -> bool {
    nvabi::with_driver!(remote.driver(), abi => request == abi::uvm::UVM_INITIALIZE::REQUEST)
}

/// UVM_INITIALIZE: the process that makes the calls is another than the one that maps the memory, which is permitted
/// where no process has the address space to itself.
fn initialize(
    remote: &mut Remote,
    fd: BorrowedFd<'_>,
    request: u32,
    argument: u64,
) -> Result<c_int> {
    /// `UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE`.
    const SHARING: u64 = 2;
    nvabi::with_driver!(remote.driver(), abi => {
        let theirs = argument as *mut abi::UVM_INITIALIZE_PARAMS;
        if theirs.is_null() {
            return Err(io::Error::from_raw_os_error(libc::EFAULT).into());
        }
        // SAFETY: the caller gives parameters of this request, which are of integers.
        let mut params = unsafe { theirs.read_unaligned() };
        let flags = params.flags;
        params.flags |= SHARING;
        let done = remote.ioctl(fd, request, &raw mut params as u64)?;
        params.flags = flags;
        // SAFETY: as above.
        unsafe { theirs.write_unaligned(params) };
        Ok(done)
    })
}

// --- Memory that the driver pins --------------------------------------------------------------

/// A mapping of this process: where it is, and the file that it is a part of.
struct Mapping {
    start: u64,
    end: u64,
    /// It is a part of a file, and not of its own pages or of nameless ones that children share.
    is_shared: bool,
    is_writable: bool,
    offset: u64,
    inode: u64,
    name: String,
}

impl Mapping {
    /// A line such as `7f0000-7f1000 rw-s 00001000 00:01 1234 /memfd:x`.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let hex = |word: &str| u64::from_str_radix(word, 16).ok();
        let (start, end) = words.next()?.split_once('-')?;
        let rights = words.next()?;
        let (offset, _device, inode) = (words.next()?, words.next()?, words.next()?);
        let name = words.next().unwrap_or_default().to_owned();
        let is_nameless = name == "/dev/zero";
        Some(Self {
            start: hex(start)?,
            end: hex(end)?,
            is_shared: rights.ends_with('s') && !is_nameless,
            is_writable: rights.starts_with("rw"),
            offset: hex(offset)?,
            inode: inode.parse().ok()?,
            name,
        })
    }

    /// The file that it is a part of: one that is known, or that still has its name.
    fn file(&self, known: &HashMap<u64, OwnedFd>) -> Result<OwnedFd> {
        if let Some(file) = known.get(&self.inode) {
            return Ok(file.try_clone()?);
        }
        let named = File::options().read(true).write(true).open(&self.name).map(OwnedFd::from);
        match named.ok().filter(|file| identity(file.as_fd()).is_ok_and(|it| it.1 == self.inode)) {
            Some(file) => Ok(file),
            None => Err(format!("{} is mapped, and cannot be passed on", self.name).into()),
        }
    }
}

/// Makes memory of this process a part of files: what is not yet becomes a copy of what it was, at the same place.
fn share(
    known: &mut HashMap<u64, OwnedFd>,
    address: u64,
    length: u64,
) -> Result<Vec<(Piece, OwnedFd)>> {
    const PAGE: u64 = 4096;
    let end = address.checked_add(length).and_then(|end| end.checked_next_multiple_of(PAGE));
    let end = end.ok_or("memory that ends beyond all addresses")?;
    let (mut pieces, mut next) = (Vec::new(), address);
    for mapping in fs::read_to_string("/proc/self/maps")?.lines().filter_map(Mapping::parse) {
        if mapping.end <= next || mapping.start >= end {
            continue;
        }
        if mapping.start > next || !mapping.is_writable {
            break;
        }
        let stop = mapping.end.min(end);
        let length = stop - next;
        let (file, offset) = match mapping.is_shared {
            true => (mapping.file(known)?, mapping.offset + (next - mapping.start)),
            false => (replace(next, length)?, 0),
        };
        let piece = (Piece { offset, length }, file.try_clone()?);
        known.insert(identity(file.as_fd())?.1, file);
        pieces.push(piece);
        next = stop;
    }
    match next >= end {
        true => Ok(pieces),
        // As the driver fails where the memory is not all there.
        false => Err(io::Error::from_raw_os_error(libc::EFAULT).into()),
    }
}

/// Puts a file with the same bytes in the place of private pages.
fn replace(address: u64, length: u64) -> Result<OwnedFd> {
    let file = File::from(memfd_create(c"proxy", MFdFlags::MFD_CLOEXEC)?);
    let size = NonZeroUsize::new(usize::try_from(length)?).ok_or("no memory")?;
    // SAFETY: the pages are mapped and readable, as the caller has looked up; who writes to them meanwhile loses what
    // it writes, as it would while the driver pins them.
    let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, size.get()) };
    file.write_all_at(bytes, 0)?;
    let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
    let place = NonZeroUsize::new(address as usize);
    // SAFETY: it takes the place of pages that hold the same.
    unsafe { mmap(place, size, both, flags, file.as_fd(), 0) }?;
    Ok(file.into())
}
