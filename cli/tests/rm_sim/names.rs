//! Calls that change files by their names: simulated ones stay as they are, and real ones change.

use std::ffi::{CStr, CString, c_char};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use libc::{
    AT_FDCWD, EACCES, EADDRINUSE, ECONNREFUSED, EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR,
    EOPNOTSUPP, EPERM, EXDEV,
};

use crate::client::*;
use crate::rules;

/// A call by a path from a folder on. Those that have no folder are called from the current one.
type ByPath = (&'static str, fn(i32, *const c_char) -> i64);

/// Another file, which is real and there, and a name that is not.
const REAL: &CStr = c"/proc/version";
const NO_NAME: &CStr = c"/proc/nvabi-no-name";

/// What is newer than libc's functions, by its number on every machine.
const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
const GETXATTRAT: i64 = 464;
const LISTXATTRAT: i64 = 465;
const REMOVEXATTRAT: i64 = 466;
const OPEN_TREE_ATTR: i64 = 467;
const FILE_GETATTR: i64 = 468;
const FILE_SETATTR: i64 = 469;

const MAKES: &[ByPath] = &[
    ("mkdir", |_, path| unsafe { libc::mkdir(path, 0o755).into() }),
    ("mkdirat", |folder, path| unsafe { libc::mkdirat(folder, path, 0o755).into() }),
    ("mknodat", |folder, path| unsafe {
        libc::mknodat(folder, path, libc::S_IFCHR | 0o644, libc::makedev(1, 3)).into()
    }),
    ("symlink", |_, path| unsafe { libc::symlink(REAL.as_ptr(), path).into() }),
    ("symlinkat", |folder, path| unsafe { libc::symlinkat(REAL.as_ptr(), folder, path).into() }),
    ("link", |_, path| unsafe { libc::link(REAL.as_ptr(), path).into() }),
    ("linkat", |folder, path| unsafe {
        libc::linkat(AT_FDCWD, REAL.as_ptr(), folder, path, 0).into()
    }),
    ("renameat2 to", |folder, path| unsafe {
        let flags = libc::RENAME_NOREPLACE;
        libc::syscall(libc::SYS_renameat2, AT_FDCWD, REAL.as_ptr(), folder, path, flags)
    }),
];

const REMOVES: &[ByPath] = &[
    ("unlink", |_, path| unsafe { libc::unlink(path).into() }),
    ("unlinkat", |folder, path| unsafe { libc::unlinkat(folder, path, 0).into() }),
];

const REMOVES_FOLDERS: &[ByPath] = &[
    ("rmdir", |_, path| unsafe { libc::rmdir(path).into() }),
    ("unlinkat, a folder", |folder, path| unsafe {
        libc::unlinkat(folder, path, libc::AT_REMOVEDIR).into()
    }),
];

const RENAMES: &[ByPath] = &[
    ("rename", |_, path| unsafe { libc::rename(path, NO_NAME.as_ptr()).into() }),
    ("renameat", |folder, path| unsafe {
        libc::renameat(folder, path, AT_FDCWD, NO_NAME.as_ptr()).into()
    }),
    ("link of", |_, path| unsafe { libc::link(path, NO_NAME.as_ptr()).into() }),
    ("renameat2", |folder, path| unsafe {
        libc::syscall(libc::SYS_renameat2, folder, path, AT_FDCWD, NO_NAME.as_ptr(), 0)
    }),
    ("linkat of", |folder, path| unsafe {
        libc::linkat(folder, path, AT_FDCWD, NO_NAME.as_ptr(), libc::AT_SYMLINK_FOLLOW).into()
    }),
];

const ATTRIBUTES: &[ByPath] = &[
    ("chmod", |_, path| unsafe { libc::chmod(path, 0o600).into() }),
    ("fchmodat", |folder, path| unsafe { libc::fchmodat(folder, path, 0o600, 0).into() }),
    ("chown", |_, path| unsafe { libc::chown(path, 1, 1).into() }),
    ("lchown", |_, path| unsafe { libc::lchown(path, 1, 1).into() }),
    ("fchownat", |folder, path| unsafe { libc::fchownat(folder, path, 1, 1, 0).into() }),
    ("utimensat", |folder, path| unsafe {
        libc::utimensat(folder, path, std::ptr::null(), 0).into()
    }),
];

const EXTENDED: &[ByPath] = &[
    ("setxattr", |_, path| unsafe {
        libc::setxattr(path, c"user.x".as_ptr(), c"1".as_ptr().cast(), 1, 0).into()
    }),
    ("lsetxattr", |_, path| unsafe {
        libc::lsetxattr(path, c"user.x".as_ptr(), c"1".as_ptr().cast(), 1, 0).into()
    }),
    ("removexattr", |_, path| unsafe { libc::removexattr(path, c"user.x".as_ptr()).into() }),
    ("lremovexattr", |_, path| unsafe { libc::lremovexattr(path, c"user.x".as_ptr()).into() }),
    ("getxattr", |_, path| unsafe {
        libc::getxattr(path, c"user.x".as_ptr(), std::ptr::null_mut(), 0) as i64
    }),
    ("lgetxattr", |_, path| unsafe {
        libc::lgetxattr(path, c"user.x".as_ptr(), std::ptr::null_mut(), 0) as i64
    }),
    ("listxattr", |_, path| unsafe { libc::listxattr(path, std::ptr::null_mut(), 0) as i64 }),
    ("llistxattr", |_, path| unsafe { libc::llistxattr(path, std::ptr::null_mut(), 0) as i64 }),
    ("getxattrat", |folder, path| unsafe {
        let args = [0_u64; 2];
        libc::syscall(GETXATTRAT, folder, path, 0, c"user.x".as_ptr(), args.as_ptr(), 16)
    }),
    ("listxattrat", |folder, path| unsafe { libc::syscall(LISTXATTRAT, folder, path, 0, 0, 0) }),
    ("removexattrat", |folder, path| unsafe {
        libc::syscall(REMOVEXATTRAT, folder, path, 0, c"user.x".as_ptr())
    }),
    ("setxattrat", |folder, path| unsafe {
        // `struct xattr_args`: a value, its size, flags.
        let args = [c"1".as_ptr() as u64, 1];
        libc::syscall(SETXATTRAT, folder, path, 0, c"user.x".as_ptr(), args.as_ptr(), 16)
    }),
];

const ACCESSES: &[ByPath] = &[
    ("access", |_, path| unsafe { libc::access(path, 0).into() }),
    ("faccessat", |folder, path| unsafe { libc::syscall(libc::SYS_faccessat, folder, path, 0) }),
    ("faccessat2", |folder, path| unsafe {
        libc::syscall(libc::SYS_faccessat2, folder, path, 0, libc::AT_EACCESS)
    }),
];

/// What the file systems of simulated files cannot.
const UNSUPPORTED: &[ByPath] = &[
    ("name_to_handle_at", |folder, path| unsafe {
        let (mut handle, mut mount) = ([128_u32; 64], 0);
        handle[0] = 128;
        libc::syscall(
            libc::SYS_name_to_handle_at,
            folder,
            path,
            handle.as_mut_ptr(),
            &raw mut mount,
            libc::AT_SYMLINK_FOLLOW,
        )
    }),
    ("file_getattr", |folder, path| unsafe {
        libc::syscall(FILE_GETATTR, folder, path, [0_u64; 8].as_mut_ptr(), 24, 0)
    }),
    ("file_setattr", |folder, path| unsafe {
        libc::syscall(FILE_SETATTR, folder, path, [0_u64; 8].as_ptr(), 24, 0)
    }),
];

/// What only root may, or who has the right to mount. `/` is what it would be done with.
const MOUNTS: &[ByPath] = &[
    ("mount on", |_, path| unsafe {
        let tmpfs = c"tmpfs".as_ptr();
        libc::mount(tmpfs, path, tmpfs, 0, std::ptr::null()).into()
    }),
    ("mount of", |_, path| unsafe {
        libc::mount(path, NO_NAME.as_ptr(), std::ptr::null(), libc::MS_BIND, std::ptr::null())
            .into()
    }),
    ("open_tree, a copy", |folder, path| unsafe {
        libc::syscall(libc::SYS_open_tree, folder, path, libc::OPEN_TREE_CLONE)
    }),
    ("move_mount of", |folder, path| unsafe {
        libc::syscall(libc::SYS_move_mount, folder, path, AT_FDCWD, NO_NAME.as_ptr(), 0)
    }),
    ("move_mount to", |folder, path| unsafe {
        libc::syscall(libc::SYS_move_mount, AT_FDCWD, REAL.as_ptr(), folder, path, 0)
    }),
    ("umount2", |_, path| unsafe { libc::umount2(path, 0).into() }),
    ("mount_setattr", |folder, path| unsafe {
        libc::syscall(libc::SYS_mount_setattr, folder, path, 0, [0_u64; 4].as_ptr(), 32)
    }),
    ("fspick", |folder, path| unsafe { libc::syscall(libc::SYS_fspick, folder, path, 0) }),
    ("chroot", |_, path| unsafe { libc::chroot(path).into() }),
    ("pivot_root", |_, path| unsafe { libc::syscall(libc::SYS_pivot_root, path, path) }),
    ("acct", |_, path| unsafe { libc::acct(path).into() }),
    ("swapon", |_, path| unsafe { libc::swapon(path, 0).into() }),
    ("swapoff", |_, path| unsafe { libc::swapoff(path).into() }),
];

/// What opens a place.
const PLACES: &[ByPath] = &[
    ("open_tree", |folder, path| unsafe {
        let fd = libc::syscall(libc::SYS_open_tree, folder, path, libc::OPEN_TREE_CLOEXEC);
        if fd < 0 { fd } else { libc::close(fd as i32).into() }
    }),
    ("open_tree_attr", |folder, path| unsafe {
        let fd = libc::syscall(OPEN_TREE_ATTR, folder, path, libc::AT_SYMLINK_NOFOLLOW, 0, 0);
        if fd < 0 { fd } else { libc::close(fd as i32).into() }
    }),
];

const BINDS: &[ByPath] = &[("bind", |_, path| unsafe { with_socket(path, libc::bind) })];
const CONNECTS: &[ByPath] = &[("connect", |_, path| unsafe { with_socket(path, libc::connect) })];

type WithAddress = unsafe extern "C" fn(i32, *const libc::sockaddr, libc::socklen_t) -> libc::c_int;

/// A call with a new socket and the address of a path.
unsafe fn with_socket(path: *const c_char, call: WithAddress) -> i64 {
    unsafe {
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        libc::strcpy(address.sun_path.as_mut_ptr(), path);
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
        let size = size_of_val(&address) as libc::socklen_t;
        let result = call(socket, (&raw const address).cast(), size);
        let errno = errno();
        libc::close(socket);
        *libc::__errno_location() = errno;
        result.into()
    }
}

const TRUNCATES: &[ByPath] = &[("truncate", |_, path| unsafe { libc::truncate(path, 0).into() })];

/// Calls that libc makes by newer ones, and what they do as these: they look or set times, or make a file.
#[cfg(target_arch = "x86_64")]
const OLDER: &[ByPath] = &[
    ("open", |_, path| unsafe {
        let fd = libc::syscall(libc::SYS_open, path, libc::O_PATH | libc::O_NOFOLLOW);
        if fd < 0 { fd } else { libc::close(fd as i32).into() }
    }),
    ("stat", |_, path| unsafe {
        libc::syscall(libc::SYS_stat, path, std::mem::zeroed::<[libc::stat; 1]>().as_mut_ptr())
    }),
    ("lstat", |_, path| unsafe {
        libc::syscall(libc::SYS_lstat, path, std::mem::zeroed::<[libc::stat; 1]>().as_mut_ptr())
    }),
    ("utime", |_, path| unsafe { libc::syscall(libc::SYS_utime, path, 0) }),
    ("utimes", |_, path| unsafe { libc::syscall(libc::SYS_utimes, path, 0) }),
    ("futimesat", |folder, path| unsafe { libc::syscall(libc::SYS_futimesat, folder, path, 0) }),
];
#[cfg(target_arch = "x86_64")]
const OLDER_MAKES: &[ByPath] = &[("mknod", |_, path| unsafe {
    libc::syscall(libc::SYS_mknod, path, libc::S_IFREG | 0o644, 0)
})];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[ByPath] = &[];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_MAKES: &[ByPath] = &[];

/// The same file, from the root on and from the folder that it is in, which is the current one too.
fn ways(path: &str) -> [(i32, CString, fs::File); 2] {
    let (folder, name) = path.rsplit_once('/').unwrap();
    std::env::set_current_dir(folder).unwrap();
    let folder = fs::File::open(folder).unwrap();
    let text = |text: &str| CString::new(text).unwrap();
    let same = folder.try_clone().unwrap();
    [(AT_FDCWD, text(path), same), (folder.as_raw_fd(), text(name), folder)]
}

/// Lets each call say what it says of a file.
fn expect(calls: &[ByPath], path: &str, expected: Result<i64, i32>) {
    for (folder, text, _open) in ways(path) {
        for (name, call) in calls {
            let result = call(folder, text.as_ptr());
            let result = if result < 0 { Err(errno()) } else { Ok(result) };
            assert_eq!(result, expected, "{name} {text:?}, {path}");
        }
    }
}

/// What can be seen of a file without opening it.
fn seen(path: &str) -> (u32, u32, u64, u64) {
    let seen = fs::symlink_metadata(path).unwrap();
    (seen.mode(), seen.uid(), seen.ino(), seen.len())
}

rules! {
    names_of_simulated_files_do_not_change {
        const DEVICE: &str = "/dev/nvidia0";
        const VERSION: &str = "/sys/module/nvidia/version";
        const RESCAN: &str = "/sys/bus/pci/rescan";
        const LINK: &str = "/sys/bus/pci/devices/0000:01:00.0";
        const FOLDERS: [&str; 3] = ["/dev/nvidia-caps", "/proc/driver/nvidia", "/sys/module/nvidia"];
        let files = [DEVICE, VERSION, RESCAN, LINK, "/proc/driver/nvidia/version"];
        let all = || files.iter().chain(&FOLDERS).map(|path| seen(path)).collect::<Vec<_>>();
        let before = all();
        for folder in FOLDERS {
            expect(MAKES, &format!("{folder}/none"), Err(EPERM));
            expect(OLDER_MAKES, &format!("{folder}/none"), Err(EPERM));
            for calls in [REMOVES, REMOVES_FOLDERS, RENAMES, ATTRIBUTES, ACCESSES, OLDER, EXTENDED, TRUNCATES, UNSUPPORTED, MOUNTS, PLACES, CONNECTS] {
                expect(calls, &format!("{folder}/none"), Err(ENOENT));
            }
            expect(BINDS, &format!("{folder}/none"), Err(EPERM));
            expect(MAKES, folder, Err(EEXIST));
            expect(REMOVES, folder, Err(EISDIR));
            expect(REMOVES_FOLDERS, folder, Err(EPERM));
            expect(TRUNCATES, folder, Err(EISDIR));
        }
        for file in files {
            expect(MAKES, file, Err(EEXIST));
            expect(REMOVES, file, Err(EPERM));
            expect(REMOVES_FOLDERS, file, Err(ENOTDIR));
        }
        for path in files.iter().chain(&FOLDERS) {
            expect(RENAMES, path, Err(EPERM));
            expect(ATTRIBUTES, path, Ok(0));
            expect(ACCESSES, path, Ok(0));
            expect(OLDER, path, Ok(0));
            expect(EXTENDED, path, Err(EOPNOTSUPP));
            expect(UNSUPPORTED, path, Err(EOPNOTSUPP));
            expect(MOUNTS, path, Err(EPERM));
            expect(PLACES, path, Ok(0));
            expect(BINDS, path, Err(EADDRINUSE));
            expect(CONNECTS, path, Err(ECONNREFUSED));
        }
        expect(TRUNCATES, VERSION, Err(EACCES));
        expect(TRUNCATES, RESCAN, Ok(0));
        expect(TRUNCATES, DEVICE, Err(EINVAL));
        // The way to a name is followed as in all calls.
        expect(MAKES, "/sys/module/nvidia/../nvidia/none", Err(EPERM));
        for path in ["/sys/bus/pci/slots/3/none", "/sys/module/nvidia/none/other"] {
            let path = CString::new(path).unwrap();
            for (name, call) in [MAKES, REMOVES, RENAMES, ATTRIBUTES].concat() {
                assert_eq!((call(AT_FDCWD, path.as_ptr()), errno()), (-1, ENOENT), "{name} {path:?}");
            }
        }
        for (name, call) in [MAKES, REMOVES, ATTRIBUTES].concat() {
            let path = c"/sys/module/nvidia/version/none";
            assert_eq!((call(AT_FDCWD, path.as_ptr()), errno()), (-1, ENOTDIR), "{name}");
        }
        // A link of another mode there is not.
        let link = CString::new(LINK).unwrap();
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        let changed = unsafe { libc::syscall(FCHMODAT2, AT_FDCWD, link.as_ptr(), 0o600, flags) };
        assert_eq!((changed, errno()), (-1, EOPNOTSUPP));
        // Where both names are simulated.
        let renamed = |old: &str, new: &str| fs::rename(old, new).map_err(|error| error.raw_os_error().unwrap());
        assert_eq!(renamed(VERSION, VERSION), Ok(()));
        assert_eq!(renamed(VERSION, "/sys/module/nvidia/initstate"), Err(EPERM));
        assert_eq!(renamed(VERSION, "/sys/module/nvidia/none"), Err(EPERM));
        assert_eq!(renamed(VERSION, DEVICE), Err(EXDEV));
        assert_eq!(renamed("/sys/module/nvidia/none", VERSION), Err(ENOENT));
        assert_eq!(fs::hard_link(VERSION, DEVICE).unwrap_err().raw_os_error(), Some(EEXIST));
        // Files that calls make by opening them, and openings that need a new one.
        for folder in FOLDERS {
            let made = fs::write(format!("{folder}/none"), "").unwrap_err();
            assert_eq!(made.raw_os_error(), Some(EACCES), "{folder}");
            let made = fs::write(format!("{folder}/none/none"), "").unwrap_err();
            assert_eq!(made.raw_os_error(), Some(ENOENT), "{folder}");
        }
        for path in [DEVICE, RESCAN, LINK, FOLDERS[0]] {
            let made = fs::OpenOptions::new().write(true).create_new(true).open(path).unwrap_err();
            assert_eq!(made.raw_os_error(), Some(EEXIST), "{path}");
        }
        assert_eq!(all(), before);
        assert!(open(DEVICE).is_ok());
    }

    names_of_real_files_change {
        let folder = scratch("names");
        std::env::set_current_dir(&folder).unwrap();
        let open = fs::File::open(&folder).unwrap();
        let real = folder.to_str().unwrap();
        for (at, prefix) in [(AT_FDCWD, format!("{real}/")), (open.as_raw_fd(), String::new())] {
            // Names of simulated files too, where they are not simulated.
            for name in ["file", "version", "rescan", "nvidia0"] {
                let text = |name: &str| CString::new(format!("{prefix}{name}")).unwrap();
                let (path, other) = (text(name), text("other"));
                let (path, other) = (path.as_ptr(), other.as_ptr());
                fs::write(folder.join(name), "text").unwrap();
                let done = |result: i32| assert_eq!(result, 0, "{name}: {}", errno());
                unsafe {
                    done(libc::fchmodat(at, path, 0o640, 0));
                    done(libc::utimensat(at, path, [libc::timespec { tv_sec: 7, tv_nsec: 0 }; 2].as_ptr(), 0));
                    let seen = fs::metadata(folder.join(name)).unwrap();
                    assert_eq!((seen.permissions().mode() & 0o777, seen.mtime()), (0o640, 7), "{name}");
                    done(libc::renameat(at, path, at, other));
                    done(libc::linkat(at, other, at, path, 0));
                    assert_eq!(fs::metadata(folder.join(name)).unwrap().nlink(), 2, "{name}");
                    done(libc::unlinkat(at, path, 0));
                    done(libc::symlinkat(c"other".as_ptr(), at, path));
                    assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), "text", "{name}");
                    done(libc::unlinkat(at, other, 0));
                    done(libc::unlinkat(at, path, 0));
                    done(libc::mkdirat(at, path, 0o755));
                    done(libc::unlinkat(at, path, libc::AT_REMOVEDIR));
                }
            }
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir(&folder).unwrap();
        assert!(!Path::new(real).exists());
    }
}
