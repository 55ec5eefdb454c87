//! Nodes, the version check, and what the driver's Linux part answers itself.

use std::fs;
use std::os::fd::FromRawFd;
use std::os::linux::fs::MetadataExt;

use libc::{EBADF, EBUSY, EFAULT, EINVAL, ENOENT, ENOTTY};

use crate::client::*;
use crate::rules;

/// What a version check answers: the errno, whether it was recognised, and the driver's version.
fn check(command: u32, version: &str) -> (Result<(), i32>, u64, String) {
    let mut args = Struct::new("nv_ioctl_rm_api_version_t").with("cmd", command.into());
    args.put("versionString", version.as_bytes());
    let done = escape(control_file(), 210, &mut args);
    (done, args.get("reply"), args.text("versionString"))
}

fn card_info(count: usize) -> (Result<(), i32>, Vec<Struct>) {
    let one = Struct::new("nv_ioctl_card_info_t");
    let size = one.bytes.len();
    let mut bytes = vec![0xff; size * count];
    let done = raw(control_file(), request(200, bytes.len()), &mut bytes);
    let cards = bytes.chunks(size).map(|bytes| {
        let mut card = one.clone();
        card.bytes.copy_from_slice(bytes);
        card
    });
    (done, cards.collect())
}

fn attach(fd: Fd, ids: &[u32]) -> Result<(), i32> {
    let mut bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    raw(fd, request(212, bytes.len()), &mut bytes)
}

fn register(fd: Fd, control: Fd) -> Result<(), i32> {
    let mut args =
        Struct::new("nv_ioctl_register_fd_t").with("ctl_fd", control as u64 & 0xffff_ffff);
    escape(fd, 201, &mut args)
}

fn block(bytes: u64) -> Result<(), i32> {
    let mut args = Struct::new("nv_ioctl_sys_params_t").with("memblock_size", bytes);
    escape(control_file(), 214, &mut args)
}

rules! {
    nodes_are_devices_with_the_drivers_numbers {
        for (path, major, minor) in [
            ("/dev/nvidiactl", Some(195), 255),
            ("/dev/nvidia0", Some(195), 0),
            ("/dev/nvidia-uvm", None, 0),
            ("/dev/nvidia-uvm-tools", None, 1),
        ] {
            let number = fs::metadata(path).unwrap().st_rdev();
            assert_eq!(libc::minor(number), minor, "{path}");
            assert!(major.is_none_or(|major| libc::major(number) == major), "{path}");
            let fd = open(path).unwrap();
            let open = unsafe { fs::File::from_raw_fd(fd) }.metadata().unwrap();
            assert_eq!(open.st_rdev(), number, "{path}");
        }
        assert_eq!(open("/dev/nvidia1"), Err(ENOENT), "there is one GPU");
    }

    the_kernel_answers_some_requests_itself {
        const CLOEXEC: i32 = libc::FD_CLOEXEC;
        for path in ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm"] {
            let fd = open(path).unwrap();
            let flags = || unsafe { libc::fcntl(fd, libc::F_GETFD) } & CLOEXEC;
            assert_eq!((raw_at(fd, libc::FIONCLEX, 0), flags()), (Ok(()), 0), "{path}");
            assert_eq!((raw_at(fd, libc::FIOCLEX, 0), flags()), (Ok(()), CLOEXEC), "{path}");
            let word = |request, on: i32| raw(fd, request, &mut on.to_le_bytes());
            assert_eq!([1, 0].map(|on| word(libc::FIONBIO, on)), [Ok(()); 2], "{path}");
            assert_eq!([0, 1].map(|on| word(libc::FIOASYNC, on)), [Ok(()), Err(ENOTTY)], "{path}");
            assert_eq!(raw_at(fd, libc::FIONBIO, 0), Err(EFAULT), "{path}");
        }
    }

    files_tell_of_the_driver {
        let tag = driver().tag();
        let version = fs::read_to_string("/proc/driver/nvidia/version").unwrap();
        assert!(version.starts_with("NVRM version: NVIDIA UNIX"), "{version}");
        assert!(version.contains(&format!("  {tag}  Release Build")), "{version}");
        assert_eq!(fs::read_to_string("/sys/module/nvidia/version").unwrap(), format!("{tag}\n"));
        let gpus: Vec<_> = fs::read_dir("/proc/driver/nvidia/gpus")
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(gpus, ["0000:01:00.0"]);
        let path = "/proc/driver/nvidia/gpus/0000:01:00.0/information";
        let information = fs::read_to_string(path).unwrap();
        assert!(information.contains("Device Minor: \t 0\n"), "{information}");
        assert!(fs::write("/proc/driver/nvidia/version", "1").is_err());
    }

    the_version_is_checked {
        let tag = driver().tag().to_owned();
        let (branch, _) = tag.split_once('.').unwrap();
        let (strict, relaxed, query) = (0, u32::from(b'1'), u32::from(b'2'));
        assert_eq!(check(strict, &tag), (Ok(()), 1, tag.clone()));
        assert_eq!(check(strict, "1.2.3"), (Err(EINVAL), 1, tag.clone()));
        assert_eq!(check(strict, ""), (Err(EINVAL), 1, tag.clone()));
        let near = format!("{branch}.1");
        assert_eq!(check(relaxed, &near), (Ok(()), 1, near.clone()), "what matches is left alone");
        assert_eq!(check(relaxed, "999.1"), (Err(EINVAL), 1, tag.clone()));
        let told = if is_since(&[530, 30, 2]) { tag.clone() } else { String::new() };
        assert_eq!(check(query, ""), (Ok(()), 1, told), "older drivers do not look, nor tell");
        let gpu = open("/dev/nvidia0").unwrap();
        let mut args = Struct::new("nv_ioctl_rm_api_version_t");
        assert_eq!(escape(gpu, 210, &mut args), Err(EINVAL), "on the control file alone");
        let mut short = [0; 8];
        assert_eq!(raw(control_file(), request(210, 8), &mut short), Err(EINVAL));
    }

    cards_are_told {
        let (done, cards) = card_info(32);
        assert_eq!(done, Ok(()));
        let told: Vec<u64> = cards.iter().map(|card| card.get("valid")).collect();
        assert_eq!((told[0], told[1..].iter().sum()), (1, 0_u64));
        let card = &cards[0];
        assert_eq!(card.get("gpu_id"), 0x100);
        assert_eq!((card.get("pci_info.bus"), card.get("pci_info.vendor_id")), (1, 0x10de));
        assert_eq!(card.get("minor_number"), 0);
        assert_eq!(card_info(0).0, Err(EINVAL), "no room for any");
    }

    gpus_are_attached_once {
        let fd = control_file();
        assert_eq!(attach(fd, &[]), Err(EINVAL));
        assert_eq!(attach(fd, &[0x700]), Err(EINVAL), "there is no such GPU");
        assert_eq!(attach(fd, &[0, 0x100]), Ok(()));
        assert_eq!(attach(fd, &[0x100]), Err(EINVAL), "again");
        assert_eq!(attach(open("/dev/nvidia0").unwrap(), &[0x100]), Err(EINVAL));
    }

    files_are_registered {
        let (gpu, control) = (open("/dev/nvidia0").unwrap(), control_file());
        assert_eq!(register(gpu, gpu), Err(EINVAL), "with a control file alone");
        assert_eq!(register(gpu, 999), Err(EINVAL));
        assert_eq!(register(control, control), Err(EINVAL), "not with itself");
        assert_eq!(register(gpu, control), Ok(()));
        assert_eq!(register(gpu, control), Err(EINVAL), "again");
        let (other, third) = (control_file(), control_file());
        assert_eq!(register(other, control), Ok(()));
        assert_eq!(register(third, other), Err(EINVAL), "not with one that is registered");
    }

    blocks_of_memory_have_one_size {
        assert_eq!(block(0x800_0000), Ok(()));
        assert_eq!(block(0x800_0000), Ok(()), "the same again");
        assert_eq!(block(0x100_0000), Err(EBUSY));
    }

    a_call_may_stand_behind_a_pointer {
        let mut inside = Struct::new("nv_ioctl_rm_api_version_t");
        let size = inside.bytes.len() as u64;
        let wrap = |number: u64, size: u64, at: u64| {
            Struct::new("nv_ioctl_xfer_t").with("cmd", number).with("size", size).with("ptr", at)
        };
        let fd = control_file();
        let mut args = wrap(210, size, inside.address());
        assert_eq!(escape(fd, 211, &mut args), Err(EINVAL), "no version is not the driver's");
        assert_eq!(inside.text("versionString"), driver().tag());
        assert_eq!(escape(fd, 211, &mut args), Ok(()));
        assert_eq!(escape(fd, 211, &mut wrap(210, 0x1_0000, 8)), Err(EINVAL), "too long");
        assert_eq!(escape(fd, 211, &mut wrap(210, size, 8)), Err(EFAULT));
        assert_eq!(raw(fd, request(211, 8), &mut [0; 8]), Err(EINVAL), "too short");
    }

    waiting_for_an_open_is_newer {
        let is_newer = is_since(&[550, 40, 7]);
        let size = driver().layout("nv_ioctl_wait_open_complete_t").map_or(8, |it| it.size as usize);
        let mut bytes = vec![0xff; size];
        let done = raw(open("/dev/nvidia0").unwrap(), request(218, size), &mut bytes);
        assert_eq!(done, if is_newer { Ok(()) } else { Err(EINVAL) });
        assert_eq!(bytes.iter().all(|byte| *byte == 0), is_newer);
    }

    what_is_unknown_is_refused {
        let fd = control_file();
        assert_eq!(raw(fd, request(0x77, 8), &mut [0; 8]), Err(EINVAL));
        assert_eq!(raw_at(fd, request(0x2a, 32), 8), Err(EFAULT));
        assert_eq!(raw_at(999, request(0x2a, 32), 8), Err(EBADF));
        let mut args = Struct::new("NVOS49_PARAMETERS");
        assert_eq!(escape(fd, 0x59, &mut args), Ok(()), "known, and not simulated");
        assert_eq!(args.get("status") as u32, status::NOT_SUPPORTED);
    }
}
