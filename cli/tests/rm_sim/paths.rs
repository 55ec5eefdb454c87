//! Simulated paths as programs look for them: lists of folders, folders to be in, symbolic links.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, symlink};
use std::path::Path;

use libc::{ELOOP, ENOENT, ENOTDIR};

use crate::client::*;
use crate::rules;

/// How often each name is in a folder, and whether it is a device there.
fn names(folder: &str) -> BTreeMap<String, (usize, bool)> {
    let mut names = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let (count, is_device) = names.entry(name).or_default();
        *count += 1;
        *is_device = entry.file_type().unwrap().is_char_device();
    }
    names
}

fn go_to(folder: impl AsRef<Path>) -> Result<String, i32> {
    std::env::set_current_dir(folder).map_err(|error| error.raw_os_error().unwrap())?;
    Ok(std::env::current_dir().unwrap().to_str().unwrap().to_owned())
}

rules! {
    folders_of_the_real_machine_list_simulated_files {
        for _ in 0..2 {
            let devices = names("/dev");
            for name in ["nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "null"] {
                assert_eq!(devices.get(name), Some(&(1, true)), "{name}");
            }
            assert_eq!(devices.get("nvidia-caps"), Some(&(1, false)));
            assert_eq!(devices.get("nvidia1"), None, "there is one GPU");
        }
        assert_eq!(names("/dev/nvidia-caps").get("nvidia-cap1"), Some(&(1, true)));
        for (folder, name) in [
            ("/sys/module", "nvidia"),
            ("/sys/module", "nvidia_uvm"),
            ("/sys/bus/pci/devices", "0000:01:00.0"),
            ("/proc/driver", "nvidia"),
            ("/proc/driver/nvidia", "version"),
            ("/proc/driver/nvidia/gpus/0000:01:00.0", "information"),
        ] {
            assert_eq!(names(folder).get(name), Some(&(1, false)), "{folder}/{name}");
        }
        assert!(!names("/").contains_key("nvidiactl"));
        assert_eq!(go_to("/dev").unwrap(), "/dev");
        assert_eq!(names(".").get("nvidiactl"), Some(&(1, true)));
    }

    a_process_can_be_in_a_simulated_folder {
        for folder in ["/dev/nvidia-caps", "/proc/driver/nvidia/gpus/0000:01:00.0", "/sys/module/nvidia"] {
            assert_eq!(go_to(folder).as_deref(), Ok(folder));
        }
        assert_eq!(fs::read_to_string("version").unwrap(), format!("{}\n", driver().tag()));
        go_to("/dev").unwrap();
        assert_eq!(go_to("nvidia-caps").as_deref(), Ok("/dev/nvidia-caps"));
        assert!(open("nvidia-cap1").is_ok() && open("../nvidia0").is_ok());
        assert_eq!(open("nvidia-cap3"), Err(ENOENT), "there is no such instance");
        assert_eq!(go_to("..").as_deref(), Ok("/dev"));
        assert_eq!((go_to("/dev/nvidiactl"), go_to("/dev/nvidia9")), (Err(ENOTDIR), Err(ENOENT)));
        go_to("/proc/driver/nvidia/gpus").unwrap();
        let mut shell = std::process::Command::new("sh");
        let there = shell.args(["-c", "test -e 0000:01:00.0/information"]).status();
        assert!(there.unwrap().success(), "children are there too");
    }

    links_to_simulated_files_are_followed {
        let folder = std::env::temp_dir().join(format!("nvabi-links-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        symlink("/dev/nvidia0", at("gpu")).unwrap();
        symlink("gpu", at("again")).unwrap();
        symlink("/dev/nvidia-caps", at("caps")).unwrap();
        symlink("/proc/driver/nvidia", at("driver")).unwrap();
        symlink("../../../../../../../../../../dev/nvidiactl", at("upwards")).unwrap();
        for name in ["gpu", "again", "caps/nvidia-cap2", "caps/../nvidia-uvm", "upwards"] {
            assert!(open(&at(name)).is_ok(), "{name}");
        }
        let version = fs::read_to_string("/proc/driver/nvidia/version").unwrap();
        assert_eq!(fs::read_to_string(at("driver/version")).unwrap(), version);
        assert_eq!(fs::canonicalize(at("again")).unwrap(), Path::new("/dev/nvidia0"));
        assert_eq!(fs::read_link(at("gpu")).unwrap(), Path::new("/dev/nvidia0"));
        let mut options = fs::OpenOptions::new();
        let refused = options.read(true).custom_flags(libc::O_NOFOLLOW).open(at("gpu"));
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(ELOOP));
        assert_eq!(go_to(at("caps")).as_deref(), Ok("/dev/nvidia-caps"));
        assert!(open("nvidia-cap1").is_ok());
        fs::remove_dir_all(&folder).unwrap();
    }
}
