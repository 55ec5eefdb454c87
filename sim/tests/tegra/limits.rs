//! Many files and many threads: what a client may have, and that no call goes to the real kernel.

use std::process::{Command, Stdio};
use std::sync::Barrier;

use nvabi::call::Ioctl;

use crate::client::*;
use crate::rules;

fn limit() -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
    limit
}

fn set_limit(rlim_cur: u64) {
    let limit = libc::rlimit { rlim_cur, ..limit() };
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
}

/// The simulator has few descriptors itself: the limit is set before it starts.
#[test]
fn few_descriptors_are_no_limit_of_clients() {
    let tests = std::env::current_exe().unwrap();
    for name in
        ["limits::more_files_than_the_usual_limit", "limits::more_threads_than_are_remembered"]
    {
        let script = format!("ulimit -Sn 200 && exec {} --exact {name}", tests.display());
        let mut tests = Command::new("sh");
        tests.args(["-c", &script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = nvabi_sim::spawn(&mut tests).unwrap().wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        if said.contains(" 1 ignored") {
            nvabi_test::skip(nvabi_test::Need::Supervise, "the client was not run");
        }
        assert!(output.status.success() && said.contains("1 passed"), "{name}: {said}");
    }
}

rules! {
    no_more_memory_than_the_machine_has {
        let nvmap = nvmap();
        let info = std::fs::read_to_string("/proc/meminfo").unwrap();
        let total = info.lines().next().unwrap().split_whitespace().nth(1).unwrap();
        let total = total.parse::<u64>().unwrap() * 1024;
        let allocate = |size: u64| {
            let mut args = [size];
            raw(nvmap, NVMAP_IOC_CREATE_64::REQUEST, args.as_mut_ptr() as u64).unwrap();
            alloc(nvmap, args[0] as u32)
        };
        assert_eq!(allocate(total), ENOMEM);
        assert_eq!(allocate(64 << 20), Ok(0));
    }

    fence_files_are_reserved_before_work_is_submitted {
        let bound = bound();
        let mut args = nvgpu_channel_setup_bind_args { num_gpfifo_entries: 8, ..zeroed() };
        call::<NVGPU_IOCTL_CHANNEL_SETUP_BIND>(bound.channel, &mut args).unwrap();
        let submit = |flags, gpfifo| {
            let mut args = nvgpu_submit_gpfifo_args { gpfifo, num_entries: 1, flags, ..zeroed() };
            call::<NVGPU_IOCTL_CHANNEL_SUBMIT_GPFIFO>(bound.channel, &mut args)?;
            Ok(args.fence)
        };
        let nothing = [0_u64];
        let get = NVGPU_SUBMIT_GPFIFO_FLAGS_FENCE_GET;
        let file = NVGPU_SUBMIT_GPFIFO_FLAGS_SYNC_FENCE;
        let at = nothing.as_ptr() as u64;
        let first = submit(get, at).unwrap();
        set_limit(64);
        while unsafe { libc::dup(bound.nvmap) } >= 0 {}
        assert_eq!(submit(get | file, at).map(|_| ()), Err(libc::EMFILE));
        assert_eq!(submit(get | file, 8).map(|_| ()), Err(libc::EMFILE), "before the entries are read");
        let next = submit(get, at).unwrap();
        assert_eq!((next.id, next.value), (first.id, first.value + 1), "nothing came between");
    }

    descriptors_are_reserved_before_the_work {
        let (nvmap, ctrl) = (nvmap(), ctrl());
        let handle = create(nvmap, 4096).unwrap();
        let bad_space = nvgpu_alloc_as_args { va_range_start: 1, ..as_args() };
        assert_eq!(refused::<NVGPU_GPU_IOCTL_ALLOC_AS>(ctrl, bad_space), EINVAL);
        assert_eq!(open_channel(ctrl, 77), Err(libc::EINVAL));
        set_limit(64);
        while unsafe { libc::dup(nvmap) } >= 0 {}
        assert_eq!(refused::<NVGPU_GPU_IOCTL_ALLOC_AS>(ctrl, bad_space), Err(libc::EMFILE));
        assert_eq!(open_channel(ctrl, 77), Err(libc::EMFILE));
        assert_eq!(open_channel(ctrl, -1), Err(libc::EMFILE));
        assert_eq!(get_fd(nvmap, handle), Err(libc::EMFILE));
        assert_eq!(open("/dev/nvmap"), Err(libc::EMFILE));
    }

    descriptor_of_an_enormous_handle {
        let nvmap = nvmap();
        let mut args: [u64; 1] = [1 << 63];
        raw(nvmap, NVMAP_IOC_CREATE_64::REQUEST, args.as_mut_ptr() as u64).unwrap();
        let handle = args[0] as u32;
        assert!(get_fd(nvmap, handle).is_ok());
        assert_eq!(alloc(nvmap, handle), ENOMEM);
    }

    more_files_than_the_usual_limit {
        set_limit(limit().rlim_max);
        let nvmap = nvmap();
        let all: Vec<Fd> = (0..1500).map(|_| buffer(nvmap, 4096)).collect();
        assert!(open("/dev/nvmap").is_ok());
        assert_eq!(mmap(all[1499], 4096, 0).unwrap().read(0), 0);
    }

    more_threads_than_are_remembered {
        let nvmap = nvmap();
        let all = Barrier::new(1100);
        std::thread::scope(|scope| {
            for _ in 0..1100 {
                let call = || {
                    for _ in 0..2 {
                        all.wait();
                        assert!(create(nvmap, 4096).is_ok());
                    }
                };
                std::thread::Builder::new().stack_size(1 << 16).spawn_scoped(scope, call).unwrap();
            }
        });
    }
}
