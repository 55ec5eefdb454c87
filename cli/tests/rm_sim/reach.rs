//! Ways by which a path could miss the simulated file, or the call's real one: paths that cannot be read, folders that
//! are far away, links of processes, calls that wait, and writers that are killed.

use std::ffi::{CStr, CString};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{AT_FDCWD, EEXIST, EFAULT, EINTR, ENAMETOOLONG, ENOENT, ENOTDIR, EPERM};

use crate::client::*;
use crate::rules;

/// What calls of each kind say of a path at an address.
fn said(path: *const libc::c_char) -> Vec<i32> {
    let said = |result: i64| if result < 0 { errno() } else { 0 };
    let room: *mut libc::c_char = std::ptr::null_mut();
    unsafe {
        [
            libc::open(path, libc::O_RDONLY).into(),
            libc::access(path, 0).into(),
            libc::mkdir(path, 0o755).into(),
            libc::unlink(path).into(),
            libc::chdir(path).into(),
            libc::rename(path, c"/tmp/nvabi-none".as_ptr()).into(),
            libc::llistxattr(path, room, 0) as i64,
        ]
        .map(said)
        .to_vec()
    }
}

static ALARMS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_alarm(_: libc::c_int) {
    ALARMS.fetch_add(1, Ordering::Relaxed);
}

/// Counts alarms from now on, by a handler with these flags.
fn handle_alarms(flags: i32) {
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (count_alarm as *const () as usize, flags);
        assert_eq!(libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()), 0);
    }
}

rules! {
    paths_that_cannot_be_read_are_no_files {
        let all = |errno: i32| vec![errno; 7];
        assert_eq!(said(8 as *const libc::c_char), all(EFAULT));
        // A path that reaches to the end of its memory, and as long as one can be.
        let size = 3 * 4096;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let pages = unsafe { libc::mmap(std::ptr::null_mut(), size, access, kind, -1, 0) };
        assert_eq!(unsafe { libc::munmap(pages.byte_add(8192), 4096) }, 0);
        let bytes = unsafe { std::slice::from_raw_parts_mut(pages.cast::<u8>(), 8192) };
        let end = b"/dev/nvidia0";
        bytes.fill(b'/');
        bytes[8192 - end.len()..].copy_from_slice(end);
        let at = |start: usize| unsafe { pages.byte_add(start).cast_const().cast() };
        assert_eq!(said(at(8192 - 300)), all(EFAULT), "it does not end");
        assert_eq!(said(at(8192 - 4095)), all(EFAULT));
        assert_eq!(said(at(8192 - 4096)), all(ENAMETOOLONG), "however it ends");
        bytes[8191] = 0;
        bytes[8191 - end.len()..8191].copy_from_slice(end);
        let longest = unsafe { libc::open(at(8192 - 4096), libc::O_RDONLY) };
        assert!(longest >= 0, "{}", errno());
        assert_eq!(said(at(8192 - 4097)), all(ENAMETOOLONG));
        // A socket's address may end without a zero.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0) };
        for (to, from) in address.sun_path.iter_mut().zip(end) {
            *to = *from as libc::c_char;
        }
        address.sun_path[end.len()] = b'x' as libc::c_char;
        let length = (2 + end.len()) as libc::socklen_t;
        assert_eq!(unsafe { libc::bind(socket, (&raw const address).cast(), length) }, -1);
        assert_eq!(errno(), libc::EADDRINUSE);
    }

    files_are_found_from_far_away {
        let top = scratch("far");
        std::env::set_current_dir(&top).unwrap();
        let part = "x".repeat(250);
        for _ in 0..20 {
            fs::create_dir(&part).unwrap();
            std::env::set_current_dir(&part).unwrap();
        }
        symlink("/dev", "dev").unwrap();
        symlink("/sys/bus/pci", "bus").unwrap();
        symlink("/sys/module/nvidia/version", "dangling").unwrap();
        let back = "../".repeat(40);
        for path in ["dev/nvidia0", &format!("{back}dev/nvidia0")] {
            assert!(open(path).is_ok(), "{path}");
        }
        assert_eq!(open("dev/nvidia9"), Err(ENOENT));
        assert_eq!(open("none/none"), Err(ENOENT));
        // Some of these the real machine has.
        for name in ["bus/drivers_probe", "bus/uevent", "dangling"] {
            assert_eq!(fs::metadata(name).unwrap_err().raw_os_error(), Some(ENOENT), "{name}");
        }
        // Real files are, whatever their names.
        for name in ["version", "nvidia0", "other"] {
            fs::write(name, name).unwrap();
            assert_eq!(fs::read_to_string(name).unwrap(), name);
            fs::remove_file(name).unwrap();
        }
        assert!(fs::metadata("dev/null").is_ok());
        // Up to where the two together are just as long as a path can be, and beyond.
        std::env::set_current_dir(&top).unwrap();
        let down: Vec<&str> = std::iter::repeat_n(part.as_str(), 15).collect();
        std::env::set_current_dir(down.join("/")).unwrap();
        let rest = down[..5].join("/");
        assert!(fs::metadata(format!("{rest}/dev/nvidia0")).is_ok());
        std::env::set_current_dir("/").unwrap();
        fs::remove_dir_all(&top).unwrap();
    }

    links_of_processes_lead_to_their_files {
        let top = scratch("magic");
        // A file without a name is reached through a simulated folder as well, whatever its link says.
        let mut file = fs::OpenOptions::new().read(true).write(true).create_new(true).open(top.join("file")).unwrap();
        file.write_all(b"text").unwrap();
        let below = fs::File::open(&top).unwrap();
        fs::write(top.join("below"), "below").unwrap();
        fs::remove_file(top.join("file")).unwrap();
        std::env::set_current_dir("/sys/module/nvidia").unwrap();
        for (place, name) in [("../../..", ""), ("/sys/module/nvidia/../../..", "")] {
            let path = format!("{place}/proc/self/fd/{}{name}", file.as_raw_fd());
            assert_eq!(fs::read_to_string(&path).unwrap(), "text", "{path}");
            let path = format!("{place}/proc/self/fd/{}/below", below.as_raw_fd());
            assert_eq!(fs::read_to_string(&path).unwrap(), "below", "{path}");
            let path = format!("{place}/proc/self/fd/{}/../{}/below", below.as_raw_fd(), top.file_name().unwrap().to_str().unwrap());
            assert_eq!(fs::read_to_string(&path).unwrap(), "below", "{path}");
        }
        // From a simulated folder that is open, and one that one is in, back to real ones.
        let open_folder = fs::File::open(".").unwrap();
        let up = format!("../../../{}/below", top.strip_prefix("/").unwrap().display());
        for place in [format!("/proc/self/fd/{}", open_folder.as_raw_fd()), "/proc/self/cwd".to_owned()] {
            assert_eq!(fs::read_to_string(format!("{place}/{up}")).unwrap(), "below", "{place}");
        }
        // What a descriptor is of is the same by its link: a folder, and a name that can be opened.
        let of = |path: &str| {
            let seen = fs::metadata(path).unwrap();
            (seen.mode(), seen.nlink(), seen.ino(), seen.rdev())
        };
        for path in ["/sys/module/nvidia", "/dev/nvidia0", "/sys/module/nvidia/version"] {
            let name = fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).unwrap();
            for link in [format!("/proc/self/fd/{}", name.as_raw_fd()), format!("/dev/fd/{}", name.as_raw_fd())] {
                assert_eq!(of(&link), of(path), "{path}");
            }
            let again = fs::File::open(format!("/proc/self/fd/{}", name.as_raw_fd()));
            if path.ends_with("version") {
                let mut text = String::new();
                again.unwrap().read_to_string(&mut text).unwrap();
                assert_eq!(text, fs::read_to_string(path).unwrap());
            }
        }
        assert_eq!(of("/proc/self/cwd"), of("/sys/module/nvidia"));
        let name = fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open("/dev/nvidiactl").unwrap();
        let control = open(&format!("/proc/self/fd/{}", name.as_raw_fd())).unwrap();
        assert!(raw(control, request(200, 72 * 32), &mut [0; 72 * 32]).is_ok(), "a device that is open");
        let below_file = fs::metadata(format!("/proc/self/fd/{}/x", name.as_raw_fd()));
        assert_eq!(below_file.unwrap_err().raw_os_error(), Some(ENOTDIR));
        // No path is as good as an empty one.
        let device = fs::File::open("/dev/nvidia0").unwrap();
        for path in [c"".as_ptr(), std::ptr::null()] {
            let mut seen: libc::stat = unsafe { std::mem::zeroed() };
            let fd = device.as_raw_fd();
            let done = unsafe { libc::syscall(libc::SYS_newfstatat, fd, path, &raw mut seen, libc::AT_EMPTY_PATH) };
            assert_eq!((done, seen.st_mode & libc::S_IFMT), (0, libc::S_IFCHR));
            assert_eq!(seen.st_rdev, device.metadata().unwrap().rdev());
            let mut seen: libc::statx = unsafe { std::mem::zeroed() };
            let done = unsafe { libc::syscall(libc::SYS_statx, fd, path, libc::AT_EMPTY_PATH, libc::STATX_BASIC_STATS, &raw mut seen) };
            assert_eq!((done, u32::from(seen.stx_mode) & libc::S_IFMT), (0, libc::S_IFCHR));
            // Of the folder that one is in.
            let done = unsafe { libc::syscall(libc::SYS_statx, AT_FDCWD, path, libc::AT_EMPTY_PATH, libc::STATX_BASIC_STATS, &raw mut seen) };
            assert_eq!((done, u32::from(seen.stx_mode)), (0, fs::metadata("/sys/module/nvidia").unwrap().mode()));
        }
        fs::remove_dir_all(&top).unwrap();
    }

    separators_follow_no_name_that_is_made_or_removed {
        let top = scratch("names");
        let at = |name: &str| CString::new(top.join(name).into_os_string().into_encoded_bytes()).unwrap();
        for (name, target) in [("none", "/sys/module/nvidia/none"), ("folder", "/sys/module/nvidia"), ("device", "/dev/nvidia0")] {
            symlink(target, top.join(name)).unwrap();
        }
        let said = |result: i32| if result < 0 { Err(errno()) } else { Ok(()) };
        let make = |path: &CStr| said(unsafe { libc::mkdir(path.as_ptr(), 0o755) });
        let remove = |path: &CStr| said(unsafe { libc::rmdir(path.as_ptr()) });
        let unlink = |path: &CStr| said(unsafe { libc::unlink(path.as_ptr()) });
        let rename = |path: &CStr| said(unsafe { libc::rename(path.as_ptr(), at("new").as_ptr()) });
        for name in ["none/", "none//", "folder/", "device/"] {
            let path = at(name);
            assert_eq!((make(&path), remove(&path)), (Err(EEXIST), Err(ENOTDIR)), "{name}");
            assert_eq!((unlink(&path), rename(&path)), (Err(ENOTDIR), Err(ENOTDIR)), "{name}");
        }
        // Below a last point is what they lead to.
        assert_eq!((make(&at("none/.")), make(&at("folder/."))), (Err(ENOENT), Err(EEXIST)));
        // Simulated names and links as well.
        for path in [c"/dev/nvidia0/", c"/sys/bus/pci/devices/0000:01:00.0/"] {
            assert_eq!((make(path), remove(path)), (Err(EEXIST), Err(ENOTDIR)), "{path:?}");
            assert_eq!((unlink(path), rename(path)), (Err(ENOTDIR), Err(ENOTDIR)), "{path:?}");
        }
        assert_eq!((make(c"/dev/nvidia-caps/"), remove(c"/dev/nvidia-caps/")), (Err(EEXIST), Err(EPERM)));
        assert_eq!(make(c"/dev/nvidia-caps/none/"), Err(EPERM));
        fs::remove_dir_all(&top).unwrap();
    }

    calls_that_need_no_path_are_refused {
        let mut parameters = [0_u8; 120];
        let made = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
        assert_eq!((made, errno()), (-1, EPERM));
        // `struct file_handle`: no bytes, of no type.
        let opened = unsafe { libc::syscall(libc::SYS_open_by_handle_at, AT_FDCWD, [0_u32; 2].as_ptr(), 0) };
        assert_eq!((opened, errno()), (-1, EPERM));
    }

    sockets_have_real_names {
        let top = scratch("sockets");
        std::env::set_current_dir("/sys/module/nvidia").unwrap();
        for (number, place) in ["../../..", ""].into_iter().enumerate() {
            let path = format!("{place}{}/{number}", top.display());
            let listener = UnixListener::bind(&path).unwrap();
            let mut client = UnixStream::connect(&path).unwrap();
            client.write_all(b"x").unwrap();
            listener.accept().unwrap().0.read_exact(&mut [0]).unwrap();
            assert!(fs::metadata(top.join(number.to_string())).is_ok());
        }
        let long = format!("../../..{}/{}", top.display(), "x".repeat(120 - top.as_os_str().len() - 9));
        assert!(UnixListener::bind(&long).is_err());
        fs::remove_dir_all(&top).unwrap();
    }

    a_call_that_waits_is_ended_by_signals {
        let top = scratch("pipe");
        let pipe = CString::new(top.join("pipe").into_os_string().into_encoded_bytes()).unwrap();
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o644) }, 0);
        std::env::set_current_dir("/sys/module/nvidia").unwrap();
        let out = format!("../../..{}", pipe.to_str().unwrap());
        let out = CString::new(out).unwrap();
        let main = unsafe { libc::pthread_self() };
        // Signals this thread while it waits for another that opens the other end: how often it got one, and how often
        // that ended the call.
        let waited = |flags: i32| {
            handle_alarms(flags);
            let before = ALARMS.load(Ordering::Relaxed);
            let pipe = pipe.clone();
            let other = std::thread::spawn(move || {
                let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
                while std::time::Instant::now() < end {
                    if ALARMS.load(Ordering::Relaxed) - before >= 20 {
                        break;
                    }
                    unsafe { libc::pthread_kill(main, libc::SIGALRM) };
                    unsafe { libc::poll(std::ptr::null_mut(), 0, 2) };
                }
                unsafe { libc::close(libc::open(pipe.as_ptr(), libc::O_WRONLY)) }
            });
            let mut ended = 0;
            let opened = loop {
                match unsafe { libc::open(out.as_ptr(), libc::O_RDONLY) } {
                    -1 => assert_eq!(errno(), EINTR),
                    opened => break opened,
                }
                ended += 1;
            };
            assert_eq!(other.join().unwrap(), 0);
            unsafe { libc::close(opened) };
            (ALARMS.load(Ordering::Relaxed) - before, ended)
        };
        let (alarms, ended) = waited(0);
        assert!(alarms >= 20 && ended > 0, "{alarms} {ended}");
        // A handler may want the call to go on.
        let (alarms, ended) = waited(libc::SA_RESTART);
        let is_made_again = cfg!(target_arch = "x86_64");
        assert!(alarms >= 20 && (ended == 0) == is_made_again, "{alarms} {ended}");
        fs::remove_dir_all(&top).unwrap();
    }

    who_is_killed_has_written_before {
        const GPU: &str = "/sys/bus/pci/devices/0000:01:00.0";
        let has = || fs::symlink_metadata(GPU).is_ok();
        // Writes with the GPU in use, or not, and is killed before any other call.
        let killed = |is_used: bool| {
            let child = unsafe { libc::fork() };
            if child == 0 {
                let used = if is_used { Some(open("/dev/nvidia0")) } else { None };
                let mut file = fs::OpenOptions::new().write(true).open(format!("{GPU}/remove")).unwrap();
                assert!(used.is_none_or(|used| used.is_ok()));
                file.write_all(b"1").unwrap();
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
            let mut status = 0;
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert!(libc::WIFSIGNALED(status));
        };
        for _ in 0..5 {
            killed(true);
            assert!(has(), "it had the GPU when it wrote");
        }
        killed(false);
        assert!(!has());
        fs::write("/sys/bus/pci/rescan", "1").unwrap();
        assert!(has());
        assert!(Path::new("/dev/nvidia0").metadata().unwrap().permissions().mode() & 0o600 != 0);
    }
}
