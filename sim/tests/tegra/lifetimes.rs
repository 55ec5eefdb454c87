//! Section 7: what keeps what alive.

use nvabi::call::Ioctl;

use crate::client::*;
use crate::rules;

rules! {
    descriptors_of_calls_close_at_exec {
        let opened = open_with("/dev/nvgpu/igpu0/ctrl", libc::O_RDWR).unwrap();
        let closing = open("/dev/nvgpu/igpu0/ctrl").unwrap();
        let channel = channel(opened);
        let script = format!(
            "[ -e /proc/self/fd/{opened} ] && ! [ -e /proc/self/fd/{closing} ] && \
             ! [ -e /proc/self/fd/{channel} ]"
        );
        let status = std::process::Command::new("sh").args(["-c", &script]).status().unwrap();
        assert!(status.success());
    }

    nvmap_client_is_the_process {
        let (first, second) = (nvmap(), nvmap());
        let handle = create(first, 4096).unwrap();
        assert_eq!(alloc(second, handle), Ok(0), "shared by every open");
        close(first);
        assert!(get_fd(second, handle).is_ok(), "until the last close");
        close(second);
        let third = nvmap();
        assert_eq!(get_fd(third, handle), Err(libc::EBADF));
    }

    memory_outlives_its_handle_and_its_node {
        let nvmap = nvmap();
        let fd = buffer(nvmap, 4096);
        close(nvmap);
        let memory = mmap(fd, 4096, 0).unwrap();
        memory.write(0, 42);
        close(fd);
        assert_eq!(memory.read(0), 42);
    }

    a_cpu_mapping_keeps_memory {
        let (nvmap, space) = (nvmap(), space(ctrl()));
        let fd = buffer(nvmap, 4096);
        let at = map(space, fd).unwrap();
        let memory = mmap(fd, 4096, 0).unwrap();
        close(fd);
        let other = buffer(nvmap, 4096);
        assert_ne!(map(space, other), Ok(at), "the mapping holds buffer and address");
        memory.write(0, 1);
        assert_eq!(memory.read(0), 1);
    }

    a_notifier_keeps_memory {
        let (nvmap, channel) = (nvmap(), channel(ctrl()));
        let before = free_memory(nvmap);
        let fd = buffer(nvmap, 1 << 20);
        notifier(channel, fd, 0).unwrap();
        close(fd);
        assert_eq!(before - free_memory(nvmap), 1 << 20, "nothing else holds it");
        assert_eq!(raw(channel, NVGPU_IOCTL_CHANNEL_FORCE_RESET::REQUEST, 0), Ok(0), "it is told");
        let other = buffer(nvmap, 4096);
        notifier(channel, other, 0).unwrap();
        close(other);
        assert_eq!(before - free_memory(nvmap), 4096, "another takes its place");
        close(channel);
        assert_eq!(free_memory(nvmap), before);
    }

    a_ring_and_its_userd_are_kept_by_the_channel {
        let (bound, ring, userd) = ready();
        let with = free_memory(bound.nvmap);
        setup(bound.channel, ring, userd).unwrap();
        close(ring);
        close(userd);
        assert_eq!(free_memory(bound.nvmap), with, "nothing else holds them");
        close(bound.channel);
        assert_eq!(free_memory(bound.nvmap) - with, 8192 + 4096);
    }

    mappings_go_with_the_last_reference_of_a_space {
        let bound = bound();
        let before = free_memory(bound.nvmap);
        let mapped = buffer(bound.nvmap, 1 << 20);
        map(bound.space, mapped).unwrap();
        let at = reserve(bound.space, 16, None).unwrap();
        let fixed = buffer(bound.nvmap, 4096);
        map_at(bound.space, fixed, at).unwrap();
        close(mapped);
        close(fixed);
        let held = (1 << 20) + 4096;
        assert_eq!(before - free_memory(bound.nvmap), held, "the mappings hold it");
        close(bound.space);
        assert_eq!(before - free_memory(bound.nvmap), held, "the channel holds the space");
        close(bound.channel);
        assert_eq!(free_memory(bound.nvmap), before, "in the group's file is no reference");
    }

    a_space_lives_with_its_channels {
        let (nvmap, ctrl) = (nvmap(), ctrl());
        let (space, group, channel) = (space(ctrl), tsg(ctrl), channel(ctrl));
        bind_space(space, channel).unwrap();
        bind_tsg(group, channel, 0).unwrap();
        close(space);
        watchdog(channel, 1).unwrap();
        assert!(setup(channel, buffer(nvmap, 8192), buffer(nvmap, 4096)).is_ok());
        assert!(syncpoint(channel).is_ok());
    }

    channel_numbers_come_back_at_the_head {
        let ctrl = ctrl();
        let token = |channel| {
            let nvmap = nvmap();
            let (space, group) = (space(ctrl), tsg(ctrl));
            bind_space(space, channel).unwrap();
            bind_tsg(group, channel, 0).unwrap();
            watchdog(channel, 1).unwrap();
            setup(channel, buffer(nvmap, 8192), buffer(nvmap, 4096)).unwrap()
        };
        let all: Vec<Fd> = (0..3).map(|_| channel(ctrl)).collect();
        assert_eq!(token(all[0]), 511, "the first of a fresh device");
        assert_eq!(token(all[1]), 510);
        close(all[0]);
        close(all[1]);
        assert_eq!(token(channel(ctrl)), 510, "the last closed is the first again");
        assert_eq!(token(channel(ctrl)), 511);
        assert_eq!(token(channel(ctrl)), 508);
    }

    group_holds_ctrl_and_channels_hold_the_group {
        let ctrl = ctrl();
        let (space, group, channel) = (space(ctrl), tsg(ctrl), channel(ctrl));
        close(ctrl);
        bind_space(space, channel).unwrap();
        assert_eq!(bind_tsg(group, channel, 0), Ok(0));
        close(group);
        watchdog(channel, 1).unwrap();
        let nvmap = nvmap();
        assert!(setup(channel, buffer(nvmap, 8192), buffer(nvmap, 4096)).is_ok(), "still in it");
    }

    a_reused_syncpoint_starts_higher {
        let ctrl = ctrl();
        let space = space(ctrl);
        let take = || {
            let group = tsg(ctrl);
            let channel = channel(ctrl);
            bind_space(space, channel).unwrap();
            bind_tsg(group, channel, 0).unwrap();
            let point = syncpoint(channel).unwrap();
            (channel, point)
        };
        let (channel, first) = take();
        close(channel);
        let (_, second) = take();
        assert_eq!(second.syncpoint_id, first.syncpoint_id);
        assert_eq!(second.syncpoint_max, first.syncpoint_max + 2000, "at unbind and at destroy");
        assert_eq!(second.gpu_va, first.gpu_va, "its address is free again");
    }

    closing_a_channel_lets_waiters_go {
        let bound = bound();
        let point = syncpoint(bound.channel).unwrap();
        let fences = open("/dev/host1x-fence").unwrap();
        let mut fence = host1x_create_fence {
            id: point.syncpoint_id, threshold: point.syncpoint_max + 500, fence_fd: 0, reserved: [0] };
        call::<HOST1X_IOCTL_CREATE_FENCE>(fences, &mut fence).unwrap();
        assert!(!crate::nvmap::is_readable(fence.fence_fd));
        close(bound.channel);
        let mut poll = libc::pollfd { fd: fence.fence_fd, events: libc::POLLIN, revents: 0 };
        assert_eq!(unsafe { libc::poll(&mut poll, 1, 2000) }, 1);
    }

    any_close_order_is_safe {
        for seed in 0..24_usize {
            let (bound, ring, userd) = ready();
            setup(bound.channel, ring, userd).unwrap();
            let mut all = vec![bound.channel, bound.tsg, bound.space, bound.ctrl, ring, userd, bound.nvmap];
            let mut rest = seed;
            while !all.is_empty() {
                close(all.remove(rest % all.len()));
                rest /= 2;
                rest += 7 * seed;
            }
        }
    }

    fork_shares_open_files {
        let (nvmap, ctrl) = (nvmap(), ctrl());
        let space = space(ctrl);
        let handle = create(nvmap, 4096).unwrap();
        in_child(move || {
            assert_eq!(alloc(nvmap, handle), Ok(0), "the parent's client");
            assert!(map(space, get_fd(nvmap, handle).unwrap()).is_ok());
        });
        assert_eq!(alloc(nvmap, handle), Err(libc::EEXIST));
    }

    fork_does_not_copy_mappings {
        let (nvmap, ctrl) = (nvmap(), ctrl());
        let memory = mmap(buffer(nvmap, 8192), 8192, 0).unwrap();
        let doorbell = mmap(ctrl, 4096, 0).unwrap();
        for map in [&memory, &doorbell] {
            map.write(0, 1);
            let child = unsafe { libc::fork() };
            if child == 0 {
                unsafe {
                    libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                    libc::_exit(map.read(0) as i32);
                }
            }
            let mut status = 0;
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV);
            assert_eq!(map.read(0), 1, "the parent's stays");
        }
    }

    dup_is_the_same_file {
        let (ctrl, nvmap) = (ctrl(), nvmap());
        let first = space(ctrl);
        let second = unsafe { libc::dup(first) };
        let fd = buffer(nvmap, 4096);
        let at = map(first, fd).unwrap();
        close(first);
        assert_eq!(map(second, fd), Ok(at));
    }

    files_go_to_other_processes {
        let mut ends = [0; 2];
        unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_DGRAM, 0, ends.as_mut_ptr()) };
        let nvmap = nvmap();
        let fd = buffer(nvmap, 4096);
        mmap(fd, 4096, 0).unwrap().write(0, 77);
        send(ends[0], fd);
        close(fd);
        close(nvmap);
        in_child(move || {
            let fd = receive(ends[1]);
            assert_eq!(mmap(fd, 4096, 0).unwrap().read(0), 77);
            assert!(map(space(ctrl()), fd).is_ok());
        });
    }

    a_killed_child_leaves_nothing {
        let ctrl = ctrl();
        let mut ends = [0; 2];
        unsafe { libc::pipe(ends.as_mut_ptr()) };
        let child = unsafe { libc::fork() };
        if child == 0 {
            for _ in 0..512 {
                let _ = open_channel(ctrl, -1);
            }
            unsafe {
                libc::write(ends[1], [1_u8].as_ptr().cast(), 1);
                loop {
                    libc::pause();
                }
            }
        }
        let mut byte = [0_u8];
        unsafe { libc::read(ends[0], byte.as_mut_ptr().cast(), 1) };
        assert_eq!(open_channel(ctrl, -1), Err(libc::ENOMEM), "it has them all");
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        let all: Vec<Fd> = (0..512).map(|_| channel(ctrl)).collect();
        assert_eq!(all.len(), 512);
    }

    calls_of_many_threads {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                std::thread::spawn(|| {
                    let (nvmap, ctrl) = (nvmap(), ctrl());
                    let space = space(ctrl);
                    for _ in 0..50 {
                        let fd = buffer(nvmap, 4096);
                        let at = map(space, fd).unwrap();
                        unmap(space, at).unwrap();
                        close(fd);
                    }
                    close(space);
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

/// Bytes of system memory that nothing holds.
pub(crate) fn free_memory(nvmap: Fd) -> u64 {
    let mut heap = nvmap_query_heap_params { heap_mask: IOVMM, ..zeroed() };
    call::<NVMAP_IOC_QUERY_HEAP_PARAMS>(nvmap, &mut heap).unwrap();
    heap.free
}

pub(crate) fn send(socket: Fd, fd: Fd) {
    unsafe {
        let mut byte = [0_u8];
        let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        let mut control = [0_u64; 4];
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(4) as _;
        let first = libc::CMSG_FIRSTHDR(&header);
        (*first).cmsg_level = libc::SOL_SOCKET;
        (*first).cmsg_type = libc::SCM_RIGHTS;
        (*first).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(first).cast::<i32>().write(fd);
        assert_eq!(libc::sendmsg(socket, &header, 0), 1);
    }
}

pub(crate) fn receive(socket: Fd) -> Fd {
    unsafe {
        let mut byte = [0_u8];
        let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        let mut control = [0_u64; 4];
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = 32;
        assert_eq!(libc::recvmsg(socket, &mut header, 0), 1);
        libc::CMSG_DATA(libc::CMSG_FIRSTHDR(&header)).cast::<i32>().read()
    }
}

#[test]
fn leaks_at_exit_are_reported() {
    let name = concat!(module_path!(), "::leaks_at_exit_are_reported");
    let body = || {
        let (nvmap, ctrl) = (nvmap(), ctrl());
        let space = space(ctrl);
        create(nvmap, 4096).unwrap();
        let fd = buffer(nvmap, 4096);
        map(space, fd).unwrap();
        std::mem::forget(mmap(fd, 4096, 0).unwrap());
    };
    let report = crate::simulate(name, &[], body);
    let count = |kind: &str| {
        report.leaks.iter().find(|leak| leak.kind == kind).map_or(0, |leak| leak.count)
    };
    for kind in ["nvmap", "ctrl", "address space", "dma-buf", "nvmap handle"] {
        assert_eq!(count(kind), 1, "{kind}\n{report}");
    }
    assert_eq!((count("GPU mapping"), count("CPU mapping")), (1, 1), "{report}");
}

#[test]
fn who_closes_all_leaves_nothing() {
    let name = concat!(module_path!(), "::who_closes_all_leaves_nothing");
    let body = || {
        let (bound, ring, userd) = ready();
        for fd in [bound.channel, bound.tsg, bound.space, bound.ctrl, ring, userd, bound.nvmap] {
            close(fd);
        }
    };
    let report = crate::simulate(name, &[], body);
    assert_eq!(report.leaks, [], "{report}");
    let opened = &report.calls["NVGPU_GPU_IOCTL_OPEN_CHANNEL"];
    assert_eq!((opened.total, opened.errors.len()), (1, 0));
}
