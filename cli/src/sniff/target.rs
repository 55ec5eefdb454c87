//! Another process: its memory and its descriptors.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nvabi_supervise::{process_of, read_memory};

/// Threads that are remembered: each takes a descriptor of ours.
const MAX_KNOWN: usize = 256;

/// Threads that have made calls.
#[derive(Default)]
pub(super) struct Threads {
    known: HashMap<u32, Thread>,
}

struct Thread {
    /// Its folder in `/proc`, which stays that of this thread when its number is used again.
    folder: OwnedFd,
    process: u32,
}

/// A descriptor of another process.
pub(super) struct Link {
    /// What the kernel says that it stands for.
    pub(super) text: String,
    /// The process that has it.
    pub(super) process: u32,
}

impl Threads {
    /// What a descriptor stands for; nothing when it is closed.
    pub(super) fn link(&mut self, thread: u32, fd: i32) -> Option<Link> {
        self.read(thread, &CString::new(format!("fd/{fd}")).ok()?)
    }

    /// A path from the root on, as a thread means it; nothing where its folder is not known.
    pub(super) fn absolute(&mut self, thread: u32, folder: i32, path: String) -> Option<String> {
        if path.starts_with('/') {
            return Some(path);
        }
        let folder = match folder {
            libc::AT_FDCWD => self.read(thread, c"cwd"),
            fd => self.link(thread, fd),
        };
        Some(format!("{}/{path}", folder?.text))
    }

    /// What a path from the root on leads to, by symbolic links too, and the device that it is; nothing
    /// where the kernel would have to ask a file system for that, which one of the watched processes may be.
    pub(super) fn leads_to(&mut self, thread: u32, path: &str) -> Option<(String, Option<u64>)> {
        let path = CString::new(path).ok()?;
        let known = self.get(thread)?;
        let root = open_path(&known.folder, c"root", 0).ok()?;
        let file = open_path(&root, &path, libc::RESOLVE_IN_ROOT | libc::RESOLVE_CACHED).ok()?;
        let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
        Some((path.into_os_string().into_string().ok()?, device(&file, c"")))
    }

    /// The number of the device that a descriptor means, if that is one of characters.
    pub(super) fn device(&mut self, thread: u32, fd: i32) -> Option<u64> {
        let path = CString::new(format!("fd/{fd}")).ok()?;
        device(&self.get(thread)?.folder, &path)
    }

    /// A link in the folder of a thread.
    fn read(&mut self, thread: u32, path: &CStr) -> Option<Link> {
        let known = self.get(thread)?;
        match read_link(&known.folder, path) {
            Ok(text) => Some(Link { text, process: known.process }),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                // It has ended, and the number is another's.
                self.known.remove(&thread);
                let known = self.get(thread)?;
                let text = read_link(&known.folder, path).ok()?;
                Some(Link { text, process: known.process })
            }
            Err(_) => None,
        }
    }

    /// Which file a descriptor means, by its inode.
    pub(super) fn inode(&mut self, thread: u32, fd: i32) -> Option<u64> {
        let path = format!("fd/{fd}\0");
        let path = CStr::from_bytes_with_nul(path.as_bytes()).ok()?;
        let known = self.get(thread)?;
        // SAFETY: `stat` is of integers, so zeros are a value of it; the path ends with a zero byte, and the
        // kernel writes one `stat`, which is there.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            let result = libc::fstatat(known.folder.as_raw_fd(), path.as_ptr(), &mut stat, 0);
            (result == 0).then_some(stat.st_ino)
        }
    }

    /// The process that a thread is of.
    pub(super) fn process(&mut self, thread: u32) -> u32 {
        self.get(thread).map_or(thread, |thread| thread.process)
    }

    pub(super) fn forget(&mut self, thread: u32) {
        self.known.remove(&thread);
    }

    fn get(&mut self, number: u32) -> Option<&Thread> {
        if !self.known.contains_key(&number) {
            let thread = Thread::new(number).ok()?;
            if self.known.len() >= MAX_KNOWN {
                self.known.clear();
            }
            self.known.insert(number, thread);
        }
        self.known.get(&number)
    }
}

impl Thread {
    fn new(number: u32) -> io::Result<Self> {
        let folder = fs::File::open(format!("/proc/{number}"))?;
        Ok(Self { folder: folder.into(), process: process_of(number)? })
    }
}

fn read_link(folder: &OwnedFd, path: &CStr) -> io::Result<String> {
    let mut text = [0_u8; 512];
    // SAFETY: the path ends with a zero byte, and the kernel writes no more bytes than it is told, which is
    // as many as there are.
    let length = unsafe {
        libc::readlinkat(folder.as_raw_fd(), path.as_ptr(), text.as_mut_ptr().cast(), text.len())
    };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    Ok(String::from_utf8_lossy(&text[..length]).into_owned())
}

/// Copies memory of another process, up to the first page that is not there.
pub(super) fn read(thread: u32, address: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let done = read_memory(thread, address, &mut bytes);
    bytes.truncate(done);
    bytes
}

/// A path up to its zero.
pub(super) fn read_path(thread: u32, address: u64) -> Option<String> {
    // Most are short.
    [256, libc::PATH_MAX as usize].into_iter().find_map(|length| {
        let bytes = read(thread, address, length);
        let end = bytes.iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    })
}

/// The number of a device of characters, by what is known of it: to ask its file system would be to wait.
fn device(folder: &OwnedFd, path: &CStr) -> Option<u64> {
    let flags = libc::AT_STATX_DONT_SYNC | libc::AT_EMPTY_PATH;
    // SAFETY: `statx` is of integers, so zeros are a value of it; the path ends with a zero byte, and the
    // kernel writes one `statx`, which is there.
    let stat = unsafe {
        let mut stat: libc::statx = std::mem::zeroed();
        let (folder, mask) = (folder.as_raw_fd(), libc::STATX_TYPE);
        let result = libc::statx(folder, path.as_ptr(), flags, mask, &mut stat);
        (result == 0).then_some(stat)?
    };
    let is_device = u32::from(stat.stx_mode) & libc::S_IFMT == libc::S_IFCHR;
    is_device.then(|| libc::makedev(stat.stx_rdev_major, stat.stx_rdev_minor))
}

/// Opens a name alone, which asks nothing of a device.
fn open_path(folder: &OwnedFd, path: &CStr, resolve: u64) -> io::Result<OwnedFd> {
    // SAFETY: `open_how` is of integers, so zeros are a value of it; the kernel reads as many bytes of it as
    // it is told, which is its size, and a path that ends with a zero byte. It has just made the descriptor,
    // and returned it here alone.
    unsafe {
        let mut how: libc::open_how = std::mem::zeroed();
        how.flags = (libc::O_PATH | libc::O_CLOEXEC) as u64;
        how.resolve = resolve;
        let (folder, size) = (folder.as_raw_fd(), size_of_val(&how));
        match libc::syscall(libc::SYS_openat2, folder, path.as_ptr(), &raw const how, size) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd as i32)),
        }
    }
}

/// Which program a process runs has addresses of 32 bits.
pub(super) fn is_32_bit(process: u32) -> bool {
    use std::io::Read as _;
    let mut start = [0; 5];
    let file = fs::File::open(format!("/proc/{process}/exe"));
    let read = file.and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *b"\x7fELF\x01"
}
