//! Failures on demand, and files by their paths.

use nvabi::call::Ioctl;

use crate::client::*;
use nvabi_test::{Need, skip};

use crate::{rules, simulate};

#[test]
fn the_third_of_a_call_fails() {
    let name = concat!(module_path!(), "::the_third_of_a_call_fails");
    let faults = ["OPEN_CHANNEL:3:ENOMEM", "CREATE_SUBCONTEXT:1:EINTR", "NVMAP_IOC_CREATE:2:EIO"];
    let report = simulate(name, &faults, || {
        let (nvmap, ctrl) = (nvmap(), ctrl());
        assert!(open_channel(ctrl, -1).is_ok());
        assert!(open_channel(ctrl, -1).is_ok());
        assert_eq!(open_channel(ctrl, -1), Err(libc::ENOMEM));
        assert!(open_channel(ctrl, -1).is_ok());
        let (space, group) = (space(ctrl), tsg(ctrl));
        assert_eq!(subcontext(group, space, 1), Err(libc::EINTR));
        assert_eq!(subcontext(group, space, 1), Ok(1), "it did nothing");
        assert!(create(nvmap, 4096).is_ok());
        assert_eq!(create(nvmap, 4096), Err(libc::EIO));
    });
    let count = &report.calls["NVGPU_GPU_IOCTL_OPEN_CHANNEL"];
    assert_eq!((count.total, count.errors["ENOMEM"]), (4, 1));
}

#[test]
fn faults_that_never_occur_are_reported() {
    let name = concat!(module_path!(), "::faults_that_never_occur_are_reported");
    let report = simulate(name, &["open:1:EIO", "open:3:EIO", "ALLOC_AS:1:delay=1ms"], || {
        assert_eq!(open("/dev/nvmap"), Err(libc::EIO));
        assert!(open("/dev/nvmap").is_ok());
    });
    assert_eq!(report.unmet_faults, ["open:3:EIO", "ALLOC_AS:1:delay=1000us"]);
    assert_eq!((report.calls["open"].total, report.calls["open"].errors["EIO"]), (2, 1));
}

#[test]
fn a_fault_of_no_call_is_refused() {
    let faults = vec!["OPEN_CHANEL:1:EIO".parse().unwrap()];
    let options = nvabi_sim::tegra::Options { faults, ..Default::default() };
    let mut command = std::process::Command::new("/bin/true");
    let error = nvabi_sim::tegra::run(&mut command, &options).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn calls_of_another_architecture_are_reported() {
    if std::env::var_os(crate::CLIENT).is_some() {
        // `getpid` of 32-bit programs.
        unsafe { std::arch::asm!("int 0x80", inout("eax") 20 => _) };
        return;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "faults::calls_of_another_architecture_are_reported"]);
    command.env(crate::CLIENT, "1").stdout(std::process::Stdio::null());
    match nvabi_sim::tegra::run(&mut command, &Default::default()) {
        Ok(outcome) => {
            let found = outcome.report.diagnostics.iter().any(|d| d.code == "other-architecture");
            assert!(found && !outcome.status.success(), "{}", outcome.report);
        }
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
            skip(Need::Supervise, error);
        }
    }
}

#[test]
fn a_program_that_is_not_there() {
    let mut command = std::process::Command::new("/nonexistent");
    let error = nvabi_sim::tegra::run(&mut command, &Default::default()).unwrap_err();
    match error.kind() {
        std::io::ErrorKind::Unsupported => skip(Need::Supervise, error),
        kind => assert_eq!(kind, std::io::ErrorKind::NotFound),
    }
}

#[test]
fn opening_and_mapping_fail() {
    let name = concat!(module_path!(), "::opening_and_mapping_fail");
    simulate(name, &["open:2:EMFILE", "mmap:1:ENOMEM"], || {
        let ctrl = ctrl();
        assert_eq!(open("/dev/nvmap"), Err(libc::EMFILE));
        assert_eq!(mmap(ctrl, 4096, 0).err(), Some(libc::ENOMEM));
        assert!(mmap(ctrl, 4096, 0).is_ok());
    });
}

/// A locked scheduler, a driver that takes the channel away, a GPU without the region: nothing that
/// clients of a whole device can bring about.
#[test]
fn rules_that_only_faults_reach() {
    let name = concat!(module_path!(), "::rules_that_only_faults_reach");
    let faults = ["BIND_CHANNEL_EX:1:EPERM", "CHANNEL_WDT:1:ETIMEDOUT", "mmap:1:ENOSYS"];
    let report = simulate(name, &faults, || {
        let ctrl = ctrl();
        let (space, group, channel) = (space(ctrl), tsg(ctrl), channel(ctrl));
        let veid = subcontext(group, space, 1).unwrap();
        bind_space(space, channel).unwrap();
        let args =
            nvgpu_tsg_bind_channel_ex_args { channel_fd: channel, subcontext_id: veid, ..zeroed() };
        let locked = refused::<NVGPU_TSG_IOCTL_BIND_CHANNEL_EX>(group, args);
        assert_eq!(locked, Err(libc::EPERM), "the scheduler's control is locked");
        let mut fd = channel;
        let bind = NVGPU_TSG_IOCTL_BIND_CHANNEL::REQUEST;
        assert_eq!(raw(group, bind, (&raw mut fd) as u64), Ok(0), "no subcontext was left on it");
        assert_eq!(bind_tsg(group, channel, veid), EINVAL, "it is in the group");
        let args = nvgpu_channel_wdt_args { wdt_status: 1, timeout_ms: 0 };
        let gone = refused::<NVGPU_IOCTL_CHANNEL_WDT>(channel, args);
        assert_eq!(gone, Err(libc::ETIMEDOUT), "the channel is not there any more");
        assert_eq!(mmap(ctrl, 0x1_0000, 0).err(), Some(libc::ENOSYS), "no region");
        assert!(mmap(ctrl, 0x1_0000, 0).is_ok(), "the slot of the file is still free");
    });
    assert_eq!(report.unmet_faults, [""; 0]);
    let errors = &report.calls["mmap"].errors;
    assert_eq!((errors.len(), errors["ENOSYS"]), (1, 1));
}

/// So many calls end while one takes long.
const OTHERS: usize = 20;

#[test]
fn a_call_takes_long_and_others_do_not() {
    let name = concat!(module_path!(), "::a_call_takes_long_and_others_do_not");
    let report = simulate(name, &["ALLOC_AS:1:delay=1000ms"], || {
        let ctrl = ctrl();
        let (begins, begun) = std::sync::mpsc::channel();
        let slow = std::thread::spawn(move || {
            begins.send(()).unwrap();
            space(ctrl);
        });
        begun.recv().unwrap();
        let mut others = 0;
        while others < OTHERS && !slow.is_finished() {
            channel(ctrl);
            others += 1;
        }
        assert_eq!(others, OTHERS, "other calls wait for it");
        slow.join().unwrap();
    });
    assert_eq!(report.unmet_faults, [""; 0]);
}

rules! {
    nodes_look_like_devices {
        use std::os::unix::fs::FileTypeExt;
        for path in ["/dev/nvmap", "/dev/nvgpu/igpu0/ctrl", "/dev/host1x-fence"] {
            assert!(std::fs::metadata(path).unwrap().file_type().is_char_device(), "{path}");
        }
        assert!(std::fs::metadata("/dev/nvgpu/igpu0").unwrap().is_dir());
        let mut names: Vec<_> = std::fs::read_dir("/dev/nvgpu/igpu0")
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["as", "channel", "ctrl", "tsg"]);
        assert_eq!(open("/dev/nvgpu/igpu0/nothing"), Err(libc::ENOENT));
        assert_eq!(std::fs::canonicalize("/dev/nvmap").unwrap().to_str(), Some("/dev/nvmap"));
    }

    open_nodes_look_like_devices {
        use std::os::fd::FromRawFd;
        use std::os::unix::fs::{FileTypeExt, MetadataExt};
        // `File::metadata` is statx of a descriptor, fstat the older way.
        let both = |fd: Fd| {
            let file = std::mem::ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(fd) });
            let metadata = file.metadata().unwrap();
            let mut stat: libc::stat = unsafe { std::mem::zeroed() };
            assert_eq!(unsafe { libc::fstat(fd, &mut stat) }, 0);
            assert_eq!((metadata.mode(), metadata.rdev()), (stat.st_mode, stat.st_rdev));
            assert_eq!((metadata.size(), metadata.ino()), (stat.st_size as u64, stat.st_ino));
            metadata
        };
        for path in ["/dev/nvmap", "/dev/nvgpu/igpu0/ctrl", "/dev/nvgpu/igpu0/as", "/dev/host1x-fence"] {
            let (open, named) = (both(open(path).unwrap()), std::fs::metadata(path).unwrap());
            assert!(open.file_type().is_char_device(), "{path}");
            assert_eq!((open.mode(), open.rdev(), open.size()), (named.mode(), named.rdev(), 0));
        }
        let unnamed = both(space(ctrl()));
        assert_eq!((unnamed.mode(), unnamed.size(), unnamed.rdev()), (0o600, 0, 0));
        let memory = both(buffer(nvmap(), 8192));
        assert_eq!((memory.mode(), memory.size()), (0o600, 8192));
        let other = std::fs::File::open("/proc/self/exe").unwrap().metadata().unwrap();
        assert!(other.is_file() && other.size() > 0, "others are what they are");
        let null = std::fs::File::open("/dev/null").unwrap().metadata().unwrap();
        assert!(null.file_type().is_char_device() && null.rdev() == libc::makedev(1, 3));
    }

    a_name_alone_takes_no_calls {
        let name = open_with("/dev/nvmap", libc::O_PATH).unwrap();
        assert_eq!(raw(name, request(3, b'N', 0, 8), 8), EBADF);
        assert_eq!(open_with("/dev/nvmap", libc::O_PATH | libc::O_DIRECTORY), Err(libc::ENOTDIR));
        assert!(open_with("/dev/nvgpu", libc::O_PATH | libc::O_DIRECTORY).is_ok());
    }

    devfreq_lists_its_device {
        let list = |path: &str| -> Vec<String> {
            let entries = std::fs::read_dir(path).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        assert_eq!(list("/sys/class/devfreq"), ["17000000.gpu"]);
        assert_eq!(list("/sys/class/devfreq/17000000.gpu").len(), 5);
    }

    relative_paths_reach_the_same_files {
        std::env::set_current_dir("/dev").unwrap();
        assert!(open("nvmap").is_ok());
        assert!(open("./nvgpu/../nvgpu/igpu0/ctrl").is_ok());
        let folder = open_with("/dev/nvgpu", libc::O_RDONLY).unwrap();
        let fd = unsafe { libc::openat(folder, c"igpu0/ctrl".as_ptr(), libc::O_RDWR) };
        assert!(fd >= 0);
        assert!(tsg(fd) >= 0);
    }

    devfreq_reads_and_writes {
        let base = "/sys/class/devfreq/17000000.gpu";
        let read = |name: &str| std::fs::read_to_string(format!("{base}/{name}")).unwrap();
        let max = read("max_freq");
        assert_ne!(read("min_freq"), max);
        std::fs::write(format!("{base}/min_freq"), &max).unwrap();
        assert_eq!((read("min_freq"), read("cur_freq")), (max.clone(), max.clone()));
        assert!(read("available_frequencies").split_whitespace().any(|f| f == max.trim()));
        let cannot = std::fs::write(format!("{base}/cur_freq"), "1").unwrap_err();
        assert_eq!(cannot.raw_os_error(), Some(libc::EACCES));
        let mut file = std::fs::OpenOptions::new().write(true).open(format!("{base}/min_freq")).unwrap();
        std::io::Write::write_all(&mut file, b"408000000").unwrap();
        assert_eq!(read("min_freq"), "408000000\n", "before it is closed");
    }

    hostile_arguments_do_no_harm {
        let (nvmap, ctrl) = (nvmap(), ctrl());
        let (space, group, channel) = (space(ctrl), tsg(ctrl), channel(ctrl));
        for fd in [nvmap, ctrl, space, group, channel] {
            for magic in *b"NGATHX" {
                for nr in 0..=130 {
                    for size in [0, 1, 4, 8, 16, 24, 32, 40, 104, 264, 0x3fff] {
                        for address in [0, 8, u64::MAX, 1 << 47, 0xFFFF_8000_0000_0000] {
                            let _ = raw(fd, request(3, magic, nr, size), address);
                        }
                        if nr % 16 != 0 { break; }
                    }
                }
            }
        }
        assert_eq!(raw(-1, request(3, b'G', 5, 16), 8), EBADF);
        assert!(crate::client::open_channel(ctrl, -1).is_ok());
    }

    arguments_that_change_meanwhile_do_no_harm {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
        let (nvmap, ctrl) = (nvmap(), ctrl());
        let space = space(ctrl);
        let fd = buffer(nvmap, 8192);
        let at = reserve(space, 64, None).unwrap();
        let args = Arc::new([const { AtomicU64::new(0) }; 5]);
        let over = Arc::new(AtomicBool::new(false));
        let writer = {
            let (args, over) = (args.clone(), over.clone());
            std::thread::spawn(move || {
                let mut seed = 1_u64;
                while !over.load(Ordering::Relaxed) {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    args[(seed >> 33) as usize % 5].store(seed >> (seed % 64), Ordering::Relaxed);
                    args[0].store(1 | (fd as u64) << 32, Ordering::Relaxed);
                    args[4].store(at + (seed >> 40) % 64 * 4096, Ordering::Relaxed);
                }
            })
        };
        for _ in 0..3000 {
            let _ = raw(space, request(3, b'A', 7, 40), args.as_ptr() as u64);
        }
        over.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        assert!(map(space, fd).is_ok());
    }
}
