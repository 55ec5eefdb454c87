//! Simulated paths as programs look for them: lists of folders, folders to be in, symbolic links.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;

use libc::{EACCES, EEXIST, EINVAL, ELOOP, ENOENT, ENOTDIR, EPERM};

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

/// What opening a file with these flags says, and how it then looks.
fn open_as(path: &str, flags: i32) -> Result<fs::File, i32> {
    let mut options = fs::OpenOptions::new();
    let options = options.read(true).write(flags & libc::O_CREAT != 0).custom_flags(flags);
    options.open(path).map_err(|error| error.raw_os_error().unwrap())
}

/// `readlinkat` with room for so many bytes.
fn read_link_at(folder: i32, path: &std::ffi::CStr, room: usize) -> Result<String, i32> {
    let mut text = vec![0; room];
    // SAFETY: the path ends with a zero byte, and the kernel writes no more bytes than the vector has.
    let length = unsafe { libc::readlinkat(folder, path.as_ptr(), text.as_mut_ptr().cast(), room) };
    let length = usize::try_from(length)
        .map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap())?;
    Ok(String::from_utf8_lossy(&text[..length]).into_owned())
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

    devices_of_the_bus_are_links {
        const LINK: &str = "/sys/bus/pci/devices/0000:01:00.0";
        const TARGET: &str = "../../../devices/pci0000:00/0000:00:0c.0/0000:01:00.0";
        let place = Path::new("/sys/devices/pci0000:00/0000:00:0c.0/0000:01:00.0");
        // The link itself.
        assert_eq!(fs::read_link(LINK).unwrap(), Path::new(TARGET));
        assert!(fs::symlink_metadata(LINK).unwrap().is_symlink());
        let listed = fs::read_dir("/sys/bus/pci/devices").unwrap().map(Result::unwrap);
        let types: Vec<_> = listed.map(|entry| entry.file_type().unwrap().is_symlink()).collect();
        assert_eq!(types, [true, true], "a GPU and its port");
        // What it leads to, as it is without the last separator.
        assert_eq!(fs::canonicalize(LINK).unwrap(), place);
        assert_eq!(fs::canonicalize(format!("{LINK}/driver/module")).unwrap(), Path::new("/sys/module/nvidia"));
        let there = fs::metadata(place).unwrap();
        for path in [LINK.to_owned(), format!("{LINK}/"), format!("{LINK}/."), format!("{LINK}/driver/../.")] {
            let found = fs::metadata(&path);
            assert!(found.as_ref().is_ok_and(fs::Metadata::is_dir), "{path}");
            assert_eq!(found.unwrap().ino() == there.ino(), !path.contains("driver"), "{path}");
        }
        assert!(fs::symlink_metadata(format!("{LINK}/")).unwrap().is_dir());
        for path in ["vendor", "driver/0000:01:00.0/vendor", "../0000:01:00.0/vendor", "subsystem/devices/0000:01:00.0/vendor"] {
            assert_eq!(fs::read_to_string(format!("{LINK}/{path}")).unwrap(), "0x10de\n", "{path}");
        }
        assert_eq!(go_to(LINK).as_deref(), Ok(place.to_str().unwrap()));
        assert_eq!(fs::read_to_string("../class").unwrap(), "0x060400\n", "its port's");
        assert_eq!(go_to("driver").as_deref(), Ok("/sys/bus/pci/drivers/nvidia"));
        // Openings that want no link, or a new file.
        assert_eq!(open_as(LINK, libc::O_NOFOLLOW).err(), Some(ELOOP));
        assert_eq!(open_as(LINK, libc::O_NOFOLLOW | libc::O_DIRECTORY).err(), Some(ENOTDIR));
        assert_eq!(open_as(LINK, libc::O_CREAT | libc::O_EXCL).err(), Some(EEXIST));
        assert!(open_as(LINK, libc::O_DIRECTORY).unwrap().metadata().unwrap().is_dir());
        // By its name alone, a link is a file like others.
        let name = open_as(LINK, libc::O_NOFOLLOW | libc::O_PATH).unwrap();
        assert!(name.metadata().unwrap().is_symlink());
        assert_eq!(read_link_at(name.as_raw_fd(), c"", 256).as_deref(), Ok(TARGET));
        let followed = open_as(LINK, libc::O_PATH).unwrap();
        assert!(followed.metadata().unwrap().is_dir());
        assert_eq!(read_link_at(followed.as_raw_fd(), c"", 256), Err(ENOENT), "it is no link");
        // As much as there is room for, of a link alone.
        assert_eq!(read_link_at(libc::AT_FDCWD, c"/sys/bus/pci/devices/0000:01:00.0", 8).as_deref(), Ok("../../.."));
        for (path, error) in [(c"/sys/bus/pci/devices/0000:01:00.0", EINVAL), (c"/sys/module/nvidia/version", EINVAL)] {
            let room = if path.to_bytes().ends_with(b"version") { 8 } else { 0 };
            assert_eq!(read_link_at(libc::AT_FDCWD, path, room), Err(error));
        }
    }

    what_is_not_simulated_in_a_simulated_folder_is_not_there {
        const BUS: &str = "/sys/bus/pci";
        const GPU: &str = "/sys/bus/pci/devices/0000:01:00.0";
        let here = format!("/proc/{}/task/{}", std::process::id(), std::process::id());
        let root = format!("/proc/self/{}{BUS}", "root");
        let error = |result: std::io::Result<()>| result.unwrap_err().raw_os_error().unwrap();
        let folder = fs::File::open("/sys/bus").unwrap();
        let (within, by_fd) = (format!("{here}/cwd/pci"), format!("fd/{}/pci", folder.as_raw_fd()));
        go_to("/sys/bus").unwrap();
        // Some of these the real machine has, and what is written to them would count there.
        let names = ["drivers_probe", "drivers_autoprobe", "uevent", "drivers/nvidia/new_id", "slots/3/power"];
        let own = ["driver_override", "enable", "power/control"].map(|name| format!("{GPU}/{name}"));
        let places = [BUS, "pci", "/sys/bus/../bus/pci", &root, "/proc/self/cwd/pci", &within];
        let by_fd = ["/proc/self", "/proc/thread-self", "/dev"].map(|place| format!("{place}/{by_fd}"));
        let places = places.into_iter().chain(by_fd.iter().map(String::as_str));
        let below: Vec<String> = places.clone().flat_map(|place| names.map(|name| format!("{place}/{name}"))).collect();
        for path in own.iter().chain(&below) {
            assert_eq!(error(fs::metadata(path).map(drop)), ENOENT, "{path}");
            assert_eq!(error(fs::symlink_metadata(path).map(drop)), ENOENT, "{path}");
            assert_eq!(error(fs::read_link(path).map(drop)), ENOENT, "{path}");
            assert_eq!(error(fs::OpenOptions::new().write(true).open(path).map(drop)), ENOENT, "{path}");
            let is_below_one = ["slots/3", "power/"].iter().any(|it| path.contains(it));
            let made = if is_below_one { ENOENT } else { EACCES };
            assert_eq!(error(fs::write(path, "")), made, "{path}");
            assert_eq!(go_to(path), Err(ENOENT), "{path}");
            let name = std::ffi::CString::new(path.as_str()).unwrap();
            // SAFETY: the path ends with a zero byte; no list is asked for.
            let [is_listed, can_be] = unsafe {
                let listed = libc::llistxattr(name.as_ptr(), std::ptr::null_mut(), 0);
                let listed = (listed, std::io::Error::last_os_error().raw_os_error());
                [listed, (libc::access(name.as_ptr(), 0) as isize, std::io::Error::last_os_error().raw_os_error())]
            };
            assert_eq!([is_listed, can_be], [(-1, Some(ENOENT)); 2], "{path}");
        }
        // By all these ways the simulated ones are found.
        for place in places {
            assert_eq!(fs::read_to_string(format!("{place}/devices/0000:01:00.0/vendor")).unwrap(), "0x10de\n", "{place}");
        }
        // A simulated folder that is open or that one is in is found by its process too.
        let devices = fs::File::open(format!("{BUS}/devices")).unwrap();
        go_to(format!("{BUS}/devices")).unwrap();
        for place in [format!("/proc/self/fd/{}", devices.as_raw_fd()), format!("/dev/fd/{}", devices.as_raw_fd()),
            "/proc/self/cwd".to_owned(), format!("{here}/cwd")]
        {
            assert!(fs::metadata(format!("{place}/0000:01:00.0")).unwrap().is_dir(), "{place}");
            assert_eq!(open(&format!("{place}/0000:09:00.0")), Err(ENOENT), "{place}");
        }
        // What is written alone says nothing, and files have nothing below them.
        for name in ["rescan", "drivers/nvidia/bind", "drivers/nvidia/unbind"] {
            assert_eq!(fs::read_to_string(format!("{BUS}/{name}")).unwrap(), "", "{name}");
        }
        for path in [format!("{GPU}/vendor/"), format!("{GPU}/vendor/x"), format!("{GPU}/vendor/.."), "/dev/nvidia0/".to_owned()] {
            assert_eq!(error(fs::metadata(&path).map(drop)), ENOTDIR, "{path}");
        }
        assert_eq!(open_as(&format!("{GPU}/vendor"), libc::O_DIRECTORY).err(), Some(ENOTDIR));
        // What is above a simulated folder is no folder of temporary files.
        let left = format!("nvabi-left-{}", std::process::id());
        assert_eq!(error(fs::create_dir(format!("../{left}"))), EPERM);
        assert!(!fs::exists(std::env::temp_dir().join(left)).unwrap());
    }

    devices_are_found_by_their_numbers {
        for (number, name) in [("195:0", "nvidia0"), ("195:255", "nvidiactl"), ("511:0", "nvidia-uvm")] {
            let path = format!("/dev/char/{number}");
            assert_eq!(fs::read_link(&path).unwrap(), Path::new(&format!("../{name}")));
            let numbers = |path: &str| fs::metadata(path).unwrap().rdev();
            assert_eq!(numbers(&path), numbers(&format!("/dev/{name}")));
            assert!(open(&path).is_ok(), "{path}");
            // NVIDIA's programs make it anew, which would be of the real machine's.
            assert_eq!(fs::remove_file(&path).unwrap_err().raw_os_error(), Some(EPERM), "{path}");
            assert_eq!(symlink("../null", &path).unwrap_err().raw_os_error(), Some(EEXIST), "{path}");
        }
        let caps = fs::read_link("/dev/char/510:2");
        assert_eq!(caps.unwrap(), Path::new("../nvidia-caps/nvidia-cap2"));
    }

    a_device_is_removed_and_found_again {
        const BUS: &str = "/sys/bus/pci";
        let port = format!("{BUS}/devices/0000:00:0c.0");
        let gpu = format!("{BUS}/devices/0000:01:00.0");
        let has = |path: &str| fs::symlink_metadata(path).is_ok();
        let in_use = open("/dev/nvidia0").unwrap();
        fs::write(format!("{gpu}/remove"), "1\n").unwrap();
        assert!(has(&gpu), "somebody has it");
        // SAFETY: nobody else has the descriptor, which is closed once.
        unsafe { libc::close(in_use) };
        // Who released it and who writes are the same thread: the release is seen first.
        fs::write(format!("{gpu}/remove"), "1\n").unwrap();
        assert!(!has(&gpu) && !has("/proc/driver/nvidia/gpus/0000:01:00.0") && has(&port));
        assert!(!has(&format!("{BUS}/drivers/nvidia/0000:01:00.0")));
        assert_eq!(open("/dev/nvidia0"), Err(libc::ENODEV), "its node stays");
        for place in [gpu.clone(), format!("{BUS}/../../devices/pci0000:00/0000:00:0c.0/0000:01:00.0")] {
            let again = fs::OpenOptions::new().write(true).open(format!("{place}/remove"));
            assert_eq!(again.unwrap_err().raw_os_error(), Some(ENOENT), "not even one of the real machine's");
        }
        fs::write(format!("{BUS}/rescan"), "1\n").unwrap();
        assert!(has(&gpu));
        let used = open("/dev/nvidia0").unwrap();
        // SAFETY: as above.
        unsafe { libc::close(used) };
        // The oldest call to open a file opens this one as well.
        fs::write(format!("{gpu}/remove"), "1\n").unwrap();
        assert!(!has(&gpu));
        // SAFETY: the path ends with a zero byte; the kernel reads two bytes, and the descriptor is closed once.
        unsafe {
            let file = libc::creat(c"/sys/bus/pci/rescan".as_ptr(), 0o644);
            assert_eq!(libc::write(file, c"1".as_ptr().cast(), 1), 1);
            libc::close(file);
        }
        assert!(has(&gpu));
        // Each write counts, by one opening as well, with calls between them or without, and to who asks the driver.
        let control = control_file();
        let cards = || {
            let mut cards = [0_u8; 72 * 32];
            raw(control, request(200, cards.len()), &mut cards).unwrap();
            cards[0]
        };
        let opened = |path: &str| fs::OpenOptions::new().write(true).open(path).unwrap();
        let (mut rescan, mut remove) = (opened(&format!("{BUS}/rescan")), opened(&format!("{gpu}/remove")));
        let count = |file: &mut fs::File, text: &str| {
            file.write_all(text.as_bytes()).unwrap();
            cards()
        };
        for text in ["1\n", "0x1", "01\n", "+1\n", "2\n"] {
            assert_eq!(count(&mut remove, text), 0, "{text:?}");
            assert_eq!(count(&mut rescan, "nothing\n0\n1 1\n"), 0);
            assert_eq!(count(&mut rescan, text), 1, "{text:?}");
            remove = opened(&format!("{gpu}/remove"));
        }
        // Far more than fits in a page.
        assert_eq!(count(&mut remove, "1"), 0);
        (0..3000).for_each(|_| rescan.write_all(b"0\n").unwrap());
        assert_eq!(count(&mut rescan, "0\n1\n"), 1);
        assert_eq!(open("/dev/nvidia0").map(|used| unsafe { libc::close(used) }), Ok(0));
        drop((rescan, remove));
        // A configuration space is written in place, and keeps what can be written of it.
        let config = format!("{port}/config");
        let before = fs::read(&config).unwrap();
        assert_eq!((before.len(), before[0x34], before[0x40]), (256, 0x40, 0x10));
        let file = fs::OpenOptions::new().write(true).open(&config).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[0x10, 0], 0x50).unwrap();
        drop(file);
        let after = fs::read(&config).unwrap();
        assert_eq!((after[0x50], after[0x53] & 0x20, before[0x53] & 0x20), (0x10, 0, 0x20));
        fs::write(format!("{BUS}/rescan"), "1\n").unwrap();
        assert_eq!(fs::read(&config).unwrap(), before);
    }

    links_to_simulated_files_are_followed {
        let folder = scratch("links");
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
        // A second name is one of the link, unless it is to be one of what the link leads to.
        let second = |flags| {
            let [old, new] = ["gpu", "second"].map(|name| std::ffi::CString::new(at(name)).unwrap());
            // SAFETY: both paths end with a zero byte.
            unsafe { libc::linkat(libc::AT_FDCWD, old.as_ptr(), libc::AT_FDCWD, new.as_ptr(), flags) }
        };
        assert_eq!((second(libc::AT_SYMLINK_FOLLOW), errno()), (-1, EPERM));
        assert_eq!(second(0), 0);
        for name in ["caps/", "driver/", "driver/."] {
            assert!(fs::read_dir(at(name)).unwrap().count() > 0, "{name}");
            assert!(fs::symlink_metadata(at(name)).unwrap().is_dir(), "{name}");
        }
        // Links in the middle lead there whatever the name behind them is, the real machine's too.
        symlink("/sys/bus/pci", at("bus")).unwrap();
        symlink("bus/devices", at("devices")).unwrap();
        for name in ["bus/drivers_probe", "bus/uevent", "bus/none", "devices/0000:09:00.0"] {
            let path = at(name);
            for result in [fs::metadata(&path).map(drop), fs::symlink_metadata(&path).map(drop), fs::remove_file(&path)] {
                assert_eq!(result.unwrap_err().raw_os_error(), Some(ENOENT), "{name}");
            }
            assert_eq!(fs::write(&path, "").unwrap_err().raw_os_error(), Some(EACCES), "{name}");
            assert_eq!(fs::create_dir(&path).unwrap_err().raw_os_error(), Some(EPERM), "{name}");
        }
        // Neither does a flag that means nothing for a descriptor of a place open what is there.
        let flags = libc::O_PATH | libc::O_CREAT | libc::O_EXCL;
        let opened = fs::OpenOptions::new().read(true).custom_flags(flags).open(at("bus/drivers_probe"));
        assert_eq!(opened.unwrap_err().raw_os_error(), Some(ENOENT));
        symlink("bus/drivers_probe", at("probe")).unwrap();
        let opened = fs::OpenOptions::new().read(true).custom_flags(flags).open(at("probe"));
        assert_eq!(opened.unwrap_err().raw_os_error(), Some(ENOENT));
        // A link by way of the process is one of the program's, and not of who answers it.
        symlink("/proc/self/cwd", at("here")).unwrap();
        let before = std::env::current_dir().unwrap();
        std::env::set_current_dir("/sys/bus/pci").unwrap();
        let probe = fs::metadata(at("here/drivers_probe"));
        assert_eq!(probe.unwrap_err().raw_os_error(), Some(ENOENT));
        std::env::set_current_dir("/dev").unwrap();
        assert!(fs::metadata(at("here/nvidia0")).is_ok());
        std::env::set_current_dir(before).unwrap();
        for number in 0..41 {
            let target = if number == 0 { at("driver") } else { (number - 1).to_string() };
            symlink(target, at(&number.to_string())).unwrap();
        }
        assert!(fs::exists(at("38/version")).unwrap(), "forty links");
        assert_eq!(fs::metadata(at("39/version")).unwrap_err().raw_os_error(), Some(ELOOP));
        assert_eq!(go_to(at("caps")).as_deref(), Ok("/dev/nvidia-caps"));
        assert!(open("nvidia-cap1").is_ok());
        fs::remove_dir_all(&folder).unwrap();
    }
}
