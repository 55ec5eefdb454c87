//! Writes of other processes to memory of theirs, which they make without a system call.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::{fs, io};

/// What a process calls `userfaultfd` with, so that its writes can be watched. The kernel's own writes then fail while
/// a watch is armed, instead of waiting for who may have asked for them.
pub const WATCH_FLAGS: u64 = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64 | USER_MODE_ONLY;

/// `UFFD_USER_MODE_ONLY`: the kernel does not wait for answers to its own accesses, and no rights are needed.
pub const USER_MODE_ONLY: u64 = 1;
/// `UFFD_API`.
const API: u64 = 0xaa;
/// `UFFD_FEATURE_PAGEFAULT_FLAG_WP` and `UFFD_FEATURE_WP_HUGETLBFS_SHMEM`.
const SHARED_WRITES: u64 = 1 | 1 << 12;
/// `UFFDIO_REGISTER_MODE_WP`.
const WRITES: u64 = 1 << 1;
/// `UFFDIO_WRITEPROTECT_MODE_WP`.
const PROTECTED: u64 = 1;
const PAGE: u64 = 4096;

/// `struct uffdio_api`.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

/// `struct uffdio_writeprotect`.
#[repr(C)]
struct Protect {
    start: u64,
    len: u64,
    mode: u64,
}

nix::ioctl_readwrite!(api, API, 0x3f, Api);
nix::ioctl_readwrite!(register, API, 0x00, Register);
nix::ioctl_readwrite!(protect, API, 0x06, Protect);

/// Memory of another process, shared with somebody. When it is armed, the first write waits and makes this readable,
/// until it is let go. When this goes, nobody waits any more.
#[derive(Debug)]
pub struct WriteWatch {
    fd: OwnedFd,
    start: u64,
    len: u64,
}

impl AsFd for WriteWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl WriteWatch {
    /// By what the process's `userfaultfd` with [`WATCH_FLAGS`] returned, for pages of a mapping.
    ///
    /// # Errors
    ///
    /// The kernel's: before Linux 5.19 it cannot watch memory that is shared. And what is no such file: another process
    /// may have put another one in its place, which calls of ours might wait for.
    pub fn new(fd: OwnedFd, address: u64, length: u64) -> io::Result<Self> {
        let file = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
        if file != Path::new("anon_inode:[userfaultfd]") {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let len = length.next_multiple_of(PAGE);
        let mut api_of = Api { api: API, features: SHARED_WRITES, ioctls: 0 };
        let mut register_of = Register { start: address, len, mode: WRITES, ioctls: 0 };
        // SAFETY: the kernel reads and writes one of each struct, as they are laid out. What changes is how another
        // process's writes are answered, or nothing: a range that is none of its mappings is refused.
        unsafe {
            api(fd.as_raw_fd(), &mut api_of)?;
            register(fd.as_raw_fd(), &mut register_of)?;
        }
        Ok(Self { fd, start: address, len })
    }

    /// From now on the next write waits.
    ///
    /// # Errors
    ///
    /// When the mapping, or the process, is there no more.
    pub fn arm(&self) -> io::Result<()> {
        self.protect(PROTECTED)
    }

    /// Lets who waits go on, and does not watch until it is armed again.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn let_go(&self) -> io::Result<()> {
        self.protect(0)
    }

    fn protect(&self, mode: u64) -> io::Result<()> {
        let mut range = Protect { start: self.start, len: self.len, mode };
        // SAFETY: as above.
        unsafe { protect(self.fd.as_raw_fd(), &mut range) }?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::FromRawFd as _;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    use std::time::Duration;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn is_readable(watch: &WriteWatch, time: u16) -> bool {
        let mut files = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
        poll(&mut files, PollTimeout::from(time)).unwrap() > 0
    }

    #[test]
    fn a_write_waits_until_it_is_let_go() {
        // SAFETY: new memory, which stays to the end of the process; the call makes a descriptor, or none.
        let (word, fd) = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let start = libc::mmap(std::ptr::null_mut(), PAGE as usize, access, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            let word: &'static AtomicU64 = &*start.cast();
            (word, libc::syscall(libc::SYS_userfaultfd, WATCH_FLAGS))
        };
        let fd = i32::try_from(fd).unwrap();
        assert!(fd >= 0, "userfaultfd: {}", io::Error::last_os_error());
        // SAFETY: it was made just now, and returned here alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let watch = WriteWatch::new(fd, std::ptr::from_ref(word) as u64, 8).unwrap();
        word.store(1, Ordering::SeqCst);
        assert!(!is_readable(&watch, 0), "it is not armed yet");
        for value in [2, 3] {
            watch.arm().unwrap();
            assert_eq!(word.load(Ordering::SeqCst), value - 1, "reads do not wait");
            let writer = thread::spawn(move || word.store(value, Ordering::SeqCst));
            assert!(is_readable(&watch, 10_000));
            thread::sleep(Duration::from_millis(5));
            assert_eq!(word.load(Ordering::SeqCst), value - 1, "it waits");
            watch.let_go().unwrap();
            writer.join().unwrap();
            assert_eq!(word.load(Ordering::SeqCst), value);
            assert!(!is_readable(&watch, 0));
        }
        watch.arm().unwrap();
        drop(watch);
        word.store(4, Ordering::SeqCst);
    }

    #[test]
    fn what_is_no_mapping_is_refused() {
        // SAFETY: as above.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, WATCH_FLAGS) };
        // SAFETY: as above.
        let fd = unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).unwrap()) };
        let error = WriteWatch::new(fd, 1 << 20, PAGE).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn another_file_is_refused() {
        let file = fs::File::open("/dev/null").unwrap();
        let error = WriteWatch::new(file.into(), 1 << 20, PAGE).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
