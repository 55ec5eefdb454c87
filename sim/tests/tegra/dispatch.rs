//! Section 1: how requests are taken.

use nvabi::call::Ioctl;

use crate::client::*;
use crate::rules;

/// The nodes of nvgpu: descriptor, magic, last number, largest size.
fn nodes() -> [(Fd, u8, u32, u32); 4] {
    let ctrl = ctrl();
    let (space, tsg, channel) = (space(ctrl), tsg(ctrl), channel(ctrl));
    [(ctrl, b'G', 44, 264), (space, b'A', 14, 40), (tsg, b'T', 21, 32), (channel, b'H', 128, 104)]
}

rules! {
    unreadable_argument_has_no_effect {
        let ctrl = ctrl();
        assert_eq!(raw(ctrl, NVGPU_GPU_IOCTL_OPEN_CHANNEL::REQUEST, 8), EFAULT);
        let (bound, ring, userd) = ready();
        assert_eq!(setup(bound.channel, ring, userd), Ok(511), "the first channel");
    }

    failed_copy_back_of_a_descriptor_leaves_it {
        let ctrl = ctrl();
        let next = unsafe { libc::dup(ctrl) };
        close(next);
        let memory = edge(4096);
        unsafe {
            (memory as *mut i32).write(-1);
            libc::mprotect(memory as *mut libc::c_void, 4096, libc::PROT_READ);
        }
        assert_eq!(raw(ctrl, NVGPU_GPU_IOCTL_OPEN_CHANNEL::REQUEST, memory), Ok(4));
        assert_eq!(watchdog(next, 1), Ok(0), "the channel is there");
    }

    failed_copy_back_of_a_fence_is_efault {
        let fences = open("/dev/host1x-fence").unwrap();
        let memory = edge(4096);
        unsafe { libc::mprotect(memory as *mut libc::c_void, 4096, libc::PROT_READ) };
        assert_eq!(raw(fences, HOST1X_IOCTL_CREATE_FENCE::REQUEST, memory), EFAULT);
    }

    wrong_magic_nr_0_nr_past_last_or_oversize_is_einval {
        for (fd, magic, last, size) in nodes() {
            let bad = 8;
            assert_eq!(raw(fd, request(0, b'Z', 1, 0), bad), EINVAL, "magic");
            assert_eq!(raw(fd, request(0, magic, 0, 0), bad), EINVAL, "nr 0");
            assert_eq!(raw(fd, request(0, magic, last + 1, 0), bad), EINVAL, "nr past last");
            assert_eq!(raw(fd, request(3, magic, 1, size + 1), bad), EINVAL, "oversize");
        }
    }

    unreadable_argument_is_efault_before_the_request_is_known {
        for (fd, magic, _, size) in nodes() {
            assert_eq!(raw(fd, request(1, magic, 1, size), 8), EFAULT);
            assert_eq!(raw(fd, request(3, magic, 1, 8), edge(7)), EFAULT, "one byte short");
        }
    }

    known_number_with_wrong_size_or_direction_is_enotty {
        for (fd, magic, _, size) in nodes() {
            let memory = edge(512);
            assert_eq!(raw(fd, request(3, magic, 1, size - 1), memory), ENOTTY);
            assert_eq!(raw(fd, request(0, magic, 1, 0), memory), ENOTTY);
        }
    }

    a_number_that_no_call_has_is_enotty {
        let ctrl = ctrl();
        assert_eq!(raw(ctrl, request(0, b'G', 12, 0), 0), ENOTTY);
        assert_eq!(raw(channel(ctrl), request(0, b'H', 1, 0), 0), ENOTTY);
    }

    tty_requests_are_the_groups_own {
        // TCGETS is T:1 without direction or size: no group has that.
        assert_eq!(raw(tsg(ctrl()), 0x5401, 0), ENOTTY);
        assert_eq!(raw(tsg(ctrl()), 0x5403, 0), Ok(0), "TSG_ENABLE is T:3");
        assert_eq!(raw(ctrl(), 0x5401, 0), EINVAL, "and of ctrl it is not even the magic");
    }

    failed_copy_back_returns_what_was_left {
        let ctrl = ctrl();
        let request = NVGPU_GPU_IOCTL_ZCULL_GET_INFO::REQUEST;
        assert_eq!(raw(ctrl, request, 8), Ok(40), "all of it");
        assert_eq!(raw(ctrl, request, edge(12)), Ok(28), "the rest of it");
        let tsg = tsg(ctrl);
        assert_eq!(raw(tsg, NVGPU_IOCTL_TSG_GET_TIMESLICE::REQUEST, 8), Ok(8));
        let channel = channel(ctrl);
        assert_eq!(raw(channel, NVGPU_IOCTL_CHANNEL_GET_TIMEDOUT::REQUEST, edge(1)), Ok(3));
    }

    failed_copy_back_of_an_address_space_is_efault {
        let space = space(ctrl());
        assert_eq!(raw(space, NVGPU_AS_IOCTL_GET_SYNC_RO_MAP::REQUEST, 8), EFAULT);
    }

    reserved_fields_are_not_looked_at {
        let mut args = nvgpu_alloc_as_args { reserved: 7, padding: [7; 6], ..as_args() };
        assert_eq!(call::<NVGPU_GPU_IOCTL_ALLOC_AS>(ctrl(), &mut args), Ok(0));
    }

    nvmap_knows_no_einval_for_requests {
        let nvmap = nvmap();
        let memory = edge(512);
        assert_eq!(raw(nvmap, request(0, b'G', 1, 0), memory), ENOTTY, "magic");
        assert_eq!(raw(nvmap, request(0, b'N', 108, 0), memory), ENOTTY, "nr");
        assert_eq!(raw(nvmap, request(3, b'N', 0, 16), memory), ENOTTY, "size");
        assert_eq!(raw(nvmap, request(3, b'N', 2, 8), memory), ENOTTY, "FROM_ID");
        assert_eq!(raw(nvmap, request(3, b'N', 13, 8), memory), ENOTTY, "GET_ID");
        assert_eq!(raw(nvmap, request(3, b'N', 8, 16), memory), ENOTTY, "PARAM");
    }

    nvmap_looks_at_the_pointer_first {
        let nvmap = nvmap();
        assert_eq!(raw(nvmap, request(3, b'N', 0, 16), u64::MAX - 4), EFAULT);
        assert_eq!(raw(nvmap, request(0, b'N', 108, 0), u64::MAX - 4), ENOTTY, "after the nr");
    }

    nvmap_cannot_be_mapped {
        assert_eq!(mmap(nvmap(), 4096, 0).err(), Some(libc::EPERM));
    }

    other_files_keep_their_ioctls {
        let mut ends = [0; 2];
        unsafe { libc::pipe(ends.as_mut_ptr()) };
        assert_eq!(raw(ends[0], request(3, b'G', 5, 16), 8), ENOTTY);
        let mut left = 7;
        assert_eq!(raw(ends[0], libc::FIONREAD as u32, (&raw mut left) as u64), Ok(0));
        assert_eq!(left, 0);
    }

    fences_look_at_the_whole_request {
        let fences = open("/dev/host1x-fence").unwrap();
        assert_eq!(raw(fences, request(3, b'X', 2, 15), 8), ENOTTY);
        assert_eq!(raw(fences, request(0, b'Z', 0, 0), 8), ENOTTY);
    }
}
