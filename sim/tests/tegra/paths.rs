//! Simulated paths as programs look for them: lists of folders, folders to be in, symbolic links.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::{Path, PathBuf};

use crate::client::*;
use crate::rules;

/// A folder for what a test makes.
fn temporary(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("nvabi-paths-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// How often each name is in a folder.
fn names(folder: impl AsRef<Path>) -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        *names.entry(name).or_default() += 1;
    }
    names
}

fn is_device(folder: &str, name: &str) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut found = entries.filter(|entry| entry.file_name() == name);
    found.next().unwrap().file_type().unwrap().is_char_device()
}

rules! {
    folders_of_the_real_machine_list_simulated_files {
        for _ in 0..2 {
            let names = names("/dev");
            for name in ["nvmap", "nvgpu", "host1x-fence", "nvhost-gpu", "null"] {
                assert_eq!(names.get(name), Some(&1), "{name}");
            }
        }
        assert!(is_device("/dev", "nvmap") && is_device("/dev/nvgpu/igpu0", "ctrl"));
        assert_eq!(names("/sys/class").get("devfreq"), Some(&1));
        assert!(!names("/").contains_key("nvmap"));
        assert!(!names("/proc").contains_key("nvmap"));
        std::env::set_current_dir("/dev").unwrap();
        assert_eq!(names(".").get("nvmap"), Some(&1));
        std::env::set_current_dir("/dev/nvgpu").unwrap();
        assert_eq!(names(".").get("igpu0"), Some(&1));
        assert_eq!(names("..").get("nvmap"), Some(&1));
    }

    a_list_can_be_read_again_from_the_beginning {
        let dir = unsafe { libc::opendir(c"/dev".as_ptr()) };
        assert!(!dir.is_null());
        let count = || {
            let mut found = 0;
            loop {
                let entry = unsafe { libc::readdir(dir) };
                if entry.is_null() {
                    return found;
                }
                let name = unsafe { std::ffi::CStr::from_ptr((*entry).d_name.as_ptr()) };
                found += usize::from(name == c"nvmap");
            }
        };
        assert_eq!((count(), count()), (1, 0));
        unsafe { libc::rewinddir(dir) };
        assert_eq!((count(), count()), (1, 0));
        unsafe { libc::closedir(dir) };
    }

    a_list_is_read_into_little_room {
        let folder = open_with("/dev/nvgpu/igpu0", libc::O_RDONLY | libc::O_DIRECTORY).unwrap();
        let read = |room: usize| {
            let mut bytes = vec![0_u8; room];
            let at = bytes.as_mut_ptr();
            let got = unsafe { libc::syscall(libc::SYS_getdents64, folder, at, room) };
            if got < 0 { Err(std::io::Error::last_os_error().raw_os_error().unwrap()) } else { Ok(got) }
        };
        assert_eq!(read(8), EINVAL);
        let mut steps = 0;
        while read(32).unwrap() > 0 {
            steps += 1;
        }
        assert!((4..=6).contains(&steps), "{steps}: one entry at a time");
        assert_eq!(read(4096), Ok(0));
        assert_eq!(unsafe { libc::lseek(folder, 0, libc::SEEK_SET) }, 0);
        assert!(read(4096).unwrap() > 96, "all at once");
    }

    files_of_the_tree_are_told_apart {
        use std::os::unix::fs::MetadataExt;
        let paths = ["/dev/nvgpu", "/dev/nvgpu/igpu0", "/dev/nvgpu/igpu0/as", "/dev/nvmap"];
        let inodes: Vec<u64> = paths.iter().map(|it| std::fs::metadata(it).unwrap().ino()).collect();
        assert_eq!(inodes.iter().collect::<std::collections::BTreeSet<_>>().len(), paths.len());
        let folder = std::fs::File::open("/dev/nvgpu").unwrap().metadata().unwrap();
        assert_eq!((folder.ino(), folder.is_dir()), (inodes[0], true), "as find compares them");
        for path in [c"/dev/nvmap", c"/dev/nvgpu"] {
            let name = c"system.posix_acl_access";
            let none = std::ptr::null_mut();
            let got = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), none, 0) };
            let error = std::io::Error::last_os_error().raw_os_error();
            assert_eq!((got, error), (-1, Some(libc::EOPNOTSUPP)), "as ls asks");
        }
    }

    a_process_can_be_in_a_simulated_folder {
        for folder in ["/dev/nvgpu", "/dev/nvgpu/igpu0", "/sys/class/devfreq/17000000.gpu"] {
            std::env::set_current_dir(folder).unwrap();
            assert_eq!(std::env::current_dir().unwrap().to_str(), Some(folder));
            let mut short = [0_u8; 4];
            let got = unsafe { libc::syscall(libc::SYS_getcwd, short.as_mut_ptr(), 4) };
            assert_eq!((got, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ERANGE)));
        }
        std::env::set_current_dir("/dev").unwrap();
        std::env::set_current_dir("nvgpu/igpu0").unwrap();
        assert!(open("ctrl").is_ok() && open("../igpu0/as").is_ok());
        std::env::set_current_dir("..").unwrap();
        assert_eq!(std::env::current_dir().unwrap().to_str(), Some("/dev/nvgpu"));
        std::env::set_current_dir("..").unwrap();
        assert_eq!(std::env::current_dir().unwrap().to_str(), Some("/dev"));
        let wrong = |folder: &str| std::env::set_current_dir(folder).unwrap_err().raw_os_error();
        assert_eq!(wrong("/dev/nvmap"), Some(libc::ENOTDIR));
        assert_eq!(wrong("/dev/nvgpu/igpu7"), Some(libc::ENOENT));
        std::env::set_current_dir("/dev/nvgpu").unwrap();
        let there = std::process::Command::new("sh").args(["-c", "test -e igpu0/ctrl"]).status();
        assert!(there.unwrap().success(), "children are there too");
        assert!(std::fs::File::create("/dev/nvgpu/new").is_err());
    }

    links_to_simulated_files_are_followed {
        use std::os::unix::fs::symlink;
        let folder = temporary("links");
        let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        symlink("/dev/nvmap", at("node")).unwrap();
        symlink("node", at("again")).unwrap();
        symlink("/dev/nvgpu", at("folder")).unwrap();
        symlink("/dev", at("dev")).unwrap();
        symlink("../../../../../../../../../../dev/nvmap", at("upwards")).unwrap();
        symlink(at("loop"), at("loop")).unwrap();
        for name in ["node", "again", "folder/igpu0/ctrl", "dev/nvmap", "upwards", "dev/../dev/nvmap"] {
            assert!(open(&at(name)).is_ok(), "{name}");
            assert!(std::fs::metadata(at(name)).is_ok(), "{name}");
        }
        assert_eq!(open(&at("loop")), Err(libc::ELOOP));
        assert_eq!(open(&at("none")), Err(libc::ENOENT));
        assert_eq!(std::fs::read_link(at("node")).unwrap(), Path::new("/dev/nvmap"));
        assert!(std::fs::symlink_metadata(at("node")).unwrap().file_type().is_symlink());
        assert_eq!(open_with(&at("node"), libc::O_RDWR | libc::O_NOFOLLOW), Err(libc::ELOOP));
        assert_eq!(std::fs::canonicalize(at("dev/nvmap")).unwrap(), Path::new("/dev/nvmap"));
        let path = CString::new(at("node")).unwrap();
        assert_eq!(unsafe { libc::access(path.as_ptr(), libc::R_OK | libc::W_OK) }, 0);
        std::env::set_current_dir(&folder).unwrap();
        assert!(open("again").is_ok() && open("folder/igpu0/as").is_ok());
        std::env::set_current_dir("folder").unwrap();
        assert!(open("igpu0/ctrl").is_ok());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    a_link_that_is_in_the_way_hides_the_file {
        use std::os::unix::fs::symlink;
        let folder = temporary("hides");
        std::fs::create_dir(folder.join("real")).unwrap();
        std::fs::create_dir(folder.join("real/dev")).unwrap();
        std::fs::write(folder.join("real/dev/nvmap"), "mine").unwrap();
        symlink(folder.join("real"), folder.join("link")).unwrap();
        let read = std::fs::read_to_string(folder.join("link/dev/nvmap"));
        assert_eq!(read.unwrap(), "mine", "a real file of the same name");
        // What is above a link is above what it means.
        symlink("/usr/bin", folder.join("deep")).unwrap();
        assert!(open(folder.join("deep/../../dev/nvmap").to_str().unwrap()).is_ok());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
