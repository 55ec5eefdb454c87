//! Ways out of simulated folders, and the limits of a way that `openat2` sets.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use libc::{EINVAL, ELOOP, ENOENT, ENOTDIR, EPERM, EXDEV};

use crate::client::errno;
use crate::client::scratch;
use crate::rules;

/// What a file says that is opened with limits.
fn opened(folder: &fs::File, path: &str, limits: u64) -> Result<String, i32> {
    let path = CString::new(path).unwrap();
    // SAFETY: the struct is of integers, and zeros are a value of it; the kernel reads a path that ends with a zero
    // byte and the struct, and has just made the descriptor.
    unsafe {
        let mut how: libc::open_how = std::mem::zeroed();
        (how.flags, how.resolve) = (libc::O_CLOEXEC as u64, limits);
        let fd = libc::syscall(
            libc::SYS_openat2,
            folder.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        );
        if fd < 0 {
            return Err(errno());
        }
        let (mut file, mut text) = (fs::File::from_raw_fd(fd as i32), String::new());
        if file.metadata().unwrap().is_file() {
            file.read_to_string(&mut text).unwrap();
        }
        Ok(text)
    }
}

rules! {
    ways_out_of_simulated_folders_lead_to_real_files {
        let folder = scratch("outside");
        fs::write(folder.join("file"), "real").unwrap();
        symlink("file", folder.join("link")).unwrap();
        for inside in ["/sys/module/nvidia", "/dev/nvidia-caps", "/proc/driver/nvidia/gpus"] {
            std::env::set_current_dir(inside).unwrap();
            let up = "../".repeat(inside.matches('/').count());
            let out = format!("{up}{}", folder.strip_prefix("/").unwrap().display());
            let at = |name: &str| format!("{out}/{name}");
            let seen = fs::metadata(at("file")).unwrap();
            assert_eq!(seen.ino(), fs::metadata(folder.join("file")).unwrap().ino(), "{inside}");
            assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink(), "{inside}");
            assert_eq!(fs::read_to_string(format!("{inside}/{}", at("link"))).unwrap(), "real", "{inside}");
            assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("file"), "{inside}");
            assert_eq!(fs::read_to_string(at("link")).unwrap(), "real", "{inside}");
            assert_eq!(fs::metadata(at("none")).unwrap_err().raw_os_error(), Some(ENOENT), "{inside}");
            assert_eq!(fs::metadata(at("file/")).unwrap_err().raw_os_error(), Some(ENOTDIR), "{inside}");
            // What makes and changes files does it there, and in the caller's name.
            fs::File::create(at("made")).unwrap().write_all(b"made").unwrap();
            assert_eq!(fs::read_to_string(folder.join("made")).unwrap(), "made", "{inside}");
            fs::rename(at("made"), at("moved")).unwrap();
            fs::hard_link(folder.join("moved"), at("again")).unwrap();
            fs::remove_file(at("moved")).unwrap();
            fs::create_dir(at("folder/")).unwrap();
            fs::remove_dir(folder.join("folder")).unwrap();
            fs::remove_file(folder.join("again")).unwrap();
            let names = fs::read_dir(format!("{out}/../{}", folder.file_name().unwrap().to_str().unwrap()));
            assert_eq!(names.unwrap().count(), 2, "{inside}");
            // By a descriptor as well, with another current folder.
            let open = fs::File::open(".").unwrap();
            std::env::set_current_dir(&out).unwrap();
            assert_eq!(std::env::current_dir().unwrap(), folder);
            assert_eq!(opened(&open, &at("link"), 0).as_deref(), Ok("real"), "{inside}");
            assert_eq!(opened(&open, &at("file"), libc::RESOLVE_NO_SYMLINKS).as_deref(), Ok("real"));
        }
        fs::remove_dir_all(&folder).unwrap();
        // By links of simulated folders, which the text does not show.
        let count = fs::read_dir("/sys/kernel").unwrap().count();
        for place in ["/sys/bus/pci/devices", "/tmp/../sys/bus/pci/devices", "/sys/../sys/bus/pci/slots/../devices"] {
            let kernel = format!("{place}/0000:01:00.0/../../../../kernel");
            assert_eq!(fs::read_dir(&kernel).unwrap().count(), count, "{kernel}");
            assert_eq!(fs::metadata(format!("{kernel}/none")).unwrap_err().raw_os_error(), Some(ENOENT));
        }
        // Simulated files beside the way are.
        std::env::set_current_dir("/sys/module/nvidia").unwrap();
        assert_eq!(fs::read_to_string("../nvidia_uvm/initstate").unwrap(), "live\n");
        assert_eq!(fs::create_dir("../nvidia_uvm/none").unwrap_err().raw_os_error(), Some(EPERM));
    }

    limits_of_a_way_are_kept {
        const XDEV: u64 = libc::RESOLVE_NO_XDEV;
        const MAGIC: u64 = libc::RESOLVE_NO_MAGICLINKS;
        const LINKS: u64 = libc::RESOLVE_NO_SYMLINKS;
        const BENEATH: u64 = libc::RESOLVE_BENEATH;
        const IN_ROOT: u64 = libc::RESOLVE_IN_ROOT;
        const GPU: &str = "devices/0000:01:00.0/vendor";
        let open = |path: &str| fs::File::open(path).unwrap();
        let [root, sys, bus, dev] = ["/", "/sys", "/sys/bus/pci", "/dev"].map(open);
        let version = fs::read_to_string("/sys/module/nvidia/version").unwrap();
        let by_process = format!("/proc/self/fd/{}/{GPU}", bus.as_raw_fd());
        let (vendor, version) = (Ok("0x10de\n"), Ok(version.as_str()));
        for (folder, path, limits, expected) in [
            (&bus, GPU, 0, vendor),
            (&bus, GPU, XDEV | MAGIC, vendor),
            (&bus, GPU, LINKS, Err(ELOOP)),
            (&bus, GPU, BENEATH, Err(EXDEV)),
            (&sys, "bus/pci/devices/0000:01:00.0/vendor", BENEATH, vendor),
            (&bus, "rescan", XDEV | MAGIC | LINKS | BENEATH, Ok("")),
            (&bus, "../../module/nvidia/version", XDEV | LINKS, version),
            (&bus, "../../module/nvidia/version", BENEATH, Err(EXDEV)),
            (&sys, "/module/nvidia/version", IN_ROOT, version),
            (&sys, "../../module/nvidia/version", IN_ROOT, version),
            (&sys, "/sys/module/nvidia/version", IN_ROOT, Err(ENOENT)),
            (&sys, "/sys/module/nvidia/version", BENEATH, Err(EXDEV)),
            (&bus, "../../kernel", XDEV | LINKS, Ok("")),
            (&root, "sys/module/nvidia/version", XDEV, Err(EXDEV)),
            (&root, "sys/module/nvidia/version", BENEATH | LINKS, version),
            (&root, "/sys/module/nvidia/version", XDEV, Err(EXDEV)),
            (&root, "/dev/nvidia0", XDEV, Err(EXDEV)),
            (&root, "/dev/nvidia0", LINKS, Ok("")),
            (&root, "dev/nvidia0", BENEATH, Ok("")),
            (&dev, "nvidia0", XDEV | LINKS | BENEATH, Ok("")),
            (&dev, "../../nvidia0", IN_ROOT, Ok("")),
            (&dev, "nvidia9", BENEATH, Err(ENOENT)),
            (&root, &by_process, 0, vendor),
            (&root, &by_process, MAGIC, Err(ELOOP)),
            (&root, &by_process, IN_ROOT, Err(EXDEV)),
            // What means nothing.
            (&bus, "rescan", 1 << 40, Err(EINVAL)),
            (&bus, "rescan", BENEATH | IN_ROOT, Err(EINVAL)),
        ] {
            assert_eq!(opened(folder, path, limits), expected.map(str::to_owned), "{path} {limits:#x}");
        }
        // Folders that look like the root of a machine have their own files.
        let folder = scratch("root");
        fs::create_dir_all(folder.join("sys/module/nvidia")).unwrap();
        fs::write(folder.join("sys/module/nvidia/version"), "another").unwrap();
        symlink(OsStr::from_bytes(b"/sys/module/nvidia/version"), folder.join("link")).unwrap();
        let root = fs::File::open(&folder).unwrap();
        for path in ["/sys/module/nvidia/version", "link"] {
            assert_eq!(opened(&root, path, IN_ROOT).as_deref(), Ok("another"), "{path}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
