//! Memory that lets who touches it wait for the program.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nvabi_test::{Need, skip};

/// Pages whose faults this process answers itself.
pub(crate) struct Faulting {
    uffd: i32,
    pub(crate) page: u64,
}

const UFFDIO_API: u64 = 0xC018_AA3F;
const UFFDIO_REGISTER: u64 = 0xC020_AA00;
const UFFDIO_COPY: u64 = 0xC028_AA03;

impl Faulting {
    /// One page that is not there; none where this machine does not permit it.
    pub(crate) fn new() -> Option<Self> {
        unsafe {
            let uffd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as i32;
            if uffd < 0 {
                eprintln!("userfaultfd: {}", io::Error::last_os_error());
                return None;
            }
            let mut api: [u64; 3] = [0xAA, 0, 0];
            assert_eq!(libc::ioctl(uffd, UFFDIO_API as _, api.as_mut_ptr()), 0);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let page = libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) as u64;
            let mut register: [u64; 4] = [page, 4096, 1, 0];
            assert_eq!(libc::ioctl(uffd, UFFDIO_REGISTER as _, register.as_mut_ptr()), 0);
            Some(Self { uffd, page })
        }
    }

    /// Puts text there, and lets those go on who wait for it.
    pub(crate) fn answer(&self, text: &str) {
        let mut page = vec![0_u8; 4096];
        page[..text.len()].copy_from_slice(text.as_bytes());
        let mut copy: [u64; 5] = [self.page, page.as_ptr() as u64, 4096, 0, 0];
        assert_eq!(unsafe { libc::ioctl(self.uffd, UFFDIO_COPY as _, copy.as_mut_ptr()) }, 0);
    }
}

/// A file system with one file, which a child of this process serves.
pub(crate) struct Served {
    pub(crate) folder: PathBuf,
    server: Option<i32>,
    pub(crate) file: i32,
    memory: u64,
    /// Milliseconds before what is read is answered.
    pause: &'static AtomicU32,
}

/// Requests of FUSE that are answered, by number (`enum fuse_opcode` in the kernel's `fuse.h`).
const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
/// FORGET, RELEASE, INTERRUPT, RELEASEDIR: nobody waits for an answer.
const UNANSWERED: [u32; 4] = [2, 18, 36, 29];

/// A pause that does not end.
const FOR_EVER: u32 = u32::MAX;

const PAGE: u64 = 4096;
/// The file's pages, each as long as what is read at once.
const PAGES: u64 = 16;

impl Served {
    /// Skips the test where no such file system can be mounted.
    pub(crate) fn needed() {
        match Self::mount() {
            Ok(mut served) => served.end(),
            Err(error) => skip(Need::Mount, format!("no FUSE: {error}")),
        }
    }

    pub(crate) fn mount() -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("nvabi-served-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
        let path = std::ffi::CString::new(folder.to_str().unwrap()).unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let options = std::ffi::CString::new(options).unwrap();
        let (name, kind) = (c"nvabi".as_ptr(), c"fuse".as_ptr());
        let mounted = unsafe { libc::mount(name, path.as_ptr(), kind, 0, options.as_ptr().cast()) };
        if mounted != 0 {
            let error = io::Error::last_os_error();
            std::fs::remove_dir(&folder)?;
            return Err(error);
        }
        let pause = unsafe {
            let (none, flags) = (std::ptr::null_mut(), libc::MAP_SHARED | libc::MAP_ANONYMOUS);
            let shared = libc::mmap(none, 4, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(shared, libc::MAP_FAILED, "{}", io::Error::last_os_error());
            &*shared.cast::<AtomicU32>()
        };
        let server = unsafe { libc::fork() };
        if server == 0 {
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            let _ = serve(device, pause);
            unsafe { libc::_exit(0) };
        }
        drop(device);
        let file = std::ffi::CString::new(folder.join("file").to_str().unwrap()).unwrap();
        let file = unsafe { libc::open(file.as_ptr(), libc::O_RDWR) };
        let (protection, size) = (libc::PROT_READ | libc::PROT_WRITE, (PAGES * PAGE) as usize);
        let memory = unsafe {
            let none = std::ptr::null_mut();
            let memory = libc::mmap(none, size, protection, libc::MAP_PRIVATE, file, 0);
            // Each page is asked for on its own.
            libc::madvise(memory, size, libc::MADV_RANDOM);
            memory
        };
        assert_ne!(memory, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        Ok(Self { folder, server: Some(server), file, memory: memory as u64, pause })
    }

    /// The address of a page of the file, which is not read yet.
    pub(crate) fn page(&self, number: u64) -> u64 {
        self.memory + number * PAGE
    }

    /// From now on nothing is answered.
    pub(crate) fn stop(&self) {
        self.pause.store(FOR_EVER, Ordering::Release);
    }

    /// From now on each page is answered after so many milliseconds.
    pub(crate) fn slow_down(&self, milliseconds: u32) {
        self.pause.store(milliseconds, Ordering::Release);
    }

    /// All pages have to be read again.
    pub(crate) fn forget(&self) {
        unsafe {
            let size = (PAGES * PAGE) as usize;
            assert_eq!(libc::madvise(self.memory as *mut _, size, libc::MADV_DONTNEED), 0);
            assert_eq!(libc::posix_fadvise(self.file, 0, 0, libc::POSIX_FADV_DONTNEED), 0);
        }
    }

    /// Those go on who wait.
    pub(crate) fn end(&mut self) {
        let Some(server) = self.server.take() else { return };
        unsafe {
            libc::kill(server, libc::SIGKILL);
            libc::waitpid(server, std::ptr::null_mut(), 0);
            let path = std::ffi::CString::new(self.folder.to_str().unwrap()).unwrap();
            libc::umount2(path.as_ptr(), libc::MNT_DETACH);
        }
        let _ = std::fs::remove_dir(&self.folder);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end();
    }
}

/// Answers requests, until it is told to stop.
fn serve(mut device: std::fs::File, pause: &AtomicU32) -> io::Result<()> {
    let mut request = vec![0_u8; 1 << 17];
    loop {
        let _ = device.read(&mut request)?;
        let number = |at: usize| u64::from_ne_bytes(request[at..at + 8].try_into().unwrap());
        let (what, unique, node) = ((number(0) >> 32) as u32, number(8), number(16));
        if UNANSWERED.contains(&what) {
            continue;
        }
        let answer = match what {
            INIT => init(),
            FLUSH => Vec::new(),
            _ if pause.load(Ordering::Acquire) == FOR_EVER => continue,
            // The node, its generation, and for how long the name and what is known of it hold.
            LOOKUP => [words(&[2, 0, 0, 0, 0]), attributes(2)].concat(),
            GETATTR => [words(&[0, 0]), attributes(node)].concat(),
            OPEN | OPENDIR => words(&[1, 0]),
            // Pages that begin with a number, for who takes them for an argument.
            READ => {
                let pause = pause.load(Ordering::Acquire);
                std::thread::sleep(Duration::from_millis(pause.into()));
                words(&[PAGE; PAGE as usize / 8])
            }
            _ => {
                send(&mut device, unique, -libc::ENOSYS, &[])?;
                continue;
            }
        };
        send(&mut device, unique, 0, &answer)?;
    }
}

fn send(device: &mut std::fs::File, unique: u64, error: i32, answer: &[u8]) -> io::Result<()> {
    let length = (16 + answer.len()) as u32;
    let head = [length.to_ne_bytes(), error.to_ne_bytes()].concat();
    device.write_all(&[&head, unique.to_ne_bytes().as_slice(), answer].concat())
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// `struct fuse_init_out` of version 7.31: as little as can be.
fn init() -> Vec<u8> {
    let mut bytes = [7_u32, 31, 0, 0, 0, 1 << 16].map(u32::to_ne_bytes).concat();
    bytes.resize(64, 0);
    bytes
}

/// `struct fuse_attr`: the folder, or the file.
fn attributes(node: u64) -> Vec<u8> {
    let mode = if node == 1 { libc::S_IFDIR | 0o755 } else { libc::S_IFREG | 0o644 };
    let size = PAGES * PAGE;
    let mut bytes = words(&[node, size, size / 512, 0, 0, 0]);
    let small = [0, 0, 0, mode, 1, 0, 0, 0, PAGE as u32, 0];
    bytes.extend(small.iter().flat_map(|word: &u32| word.to_ne_bytes()));
    bytes
}
