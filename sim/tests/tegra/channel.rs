//! Section 5: channels.

use nvabi::call::Ioctl;

use crate::client::*;
use crate::{reported, rules};

fn setup_refused(
    channel: Fd,
    ring: Fd,
    userd: Fd,
    change: impl FnOnce(&mut nvgpu_channel_setup_bind_args),
) -> Result {
    let mut args = setup_args(ring, userd);
    change(&mut args);
    refused::<NVGPU_IOCTL_CHANNEL_SETUP_BIND>(channel, args)
}

fn preemption(channel: Fd, graphics_preempt_mode: u32, compute_preempt_mode: u32) -> Result {
    let mut args = nvgpu_preemption_mode_args { graphics_preempt_mode, compute_preempt_mode };
    call::<NVGPU_IOCTL_CHANNEL_SET_PREEMPTION_MODE>(channel, &mut args)
}

rules! {
    notifier_is_lost_by_a_bad_offset {
        let bound = bound();
        let fd = buffer(bound.nvmap, 4096);
        notifier(bound.channel, fd, 0).unwrap();
        assert_eq!(notifier(bound.channel, fd, 4090), EINVAL);
        raw(bound.channel, NVGPU_IOCTL_CHANNEL_FORCE_RESET::REQUEST, 0).unwrap();
        assert_eq!(mmap(fd, 4096, 0).unwrap().read(12), 0, "it is told of nothing");
    }

    wdt_takes_one_of_two {
        let channel = channel(ctrl());
        assert_eq!(watchdog(channel, 0), EINVAL);
        assert_eq!(watchdog(channel, 3), EINVAL);
        assert_eq!(watchdog(channel, 4), EINVAL, "a flag is not enough");
        assert_eq!(watchdog(channel, 1), Ok(0));
        assert_eq!(watchdog(channel, 2 | 4), Ok(0));
    }

    wdt_of_a_deterministic_channel_stays_off {
        let (bound, ring, userd) = ready();
        setup(bound.channel, ring, userd).unwrap();
        assert_eq!(watchdog(bound.channel, 2), EINVAL);
        assert_eq!(watchdog(bound.channel, 1), Ok(0));
    }

    setup_entries {
        let (bound, ring, userd) = ready();
        let with = |entries, flags| {
            setup_refused(bound.channel, ring, userd, |args| {
                (args.num_gpfifo_entries, args.flags) = (entries, flags);
            })
        };
        assert_eq!(with(1, 0xA), EINVAL, "usermode from 2");
        assert_eq!(with(2, 0x2), EINVAL, "kernel mode from 4");
        assert_eq!(with(0, 0xA), EINVAL);
        assert_eq!(with(3, 0xA), EINVAL, "a power of two");
        assert_eq!(with(1 << 29, 0xA), EINVAL, "more than 2^32 bytes");
    }

    setup_needs_a_space_then_a_group {
        let (nvmap, ctrl) = (nvmap(), ctrl());
        let (ring, userd) = (buffer(nvmap, 8192), buffer(nvmap, 4096));
        let channel = channel(ctrl);
        watchdog(channel, 1).unwrap();
        assert_eq!(setup(channel, ring, userd), Err(libc::EINVAL));
        bind_space(space(ctrl), channel).unwrap();
        assert_eq!(setup(channel, ring, userd), Err(libc::EINVAL));
        bind_tsg(tsg(ctrl), channel, 0).unwrap();
        assert!(setup(channel, ring, userd).is_ok());
    }

    setup_twice {
        let (bound, ring, userd) = ready();
        setup(bound.channel, ring, userd).unwrap();
        assert_eq!(setup_refused(bound.channel, ring, userd, |_| ()), Err(libc::EEXIST));
        assert_eq!(setup_refused(bound.channel, ring, userd, |a| a.num_gpfifo_entries = 3), EINVAL);
    }

    setup_deterministic_with_the_watchdog_on {
        let (bound, ring, userd) = ready();
        watchdog(bound.channel, 2).unwrap();
        assert_eq!(setup_refused(bound.channel, ring, userd, |_| ()), EINVAL);
    }

    setup_usermode_without_deterministic {
        let (bound, ring, userd) = ready();
        assert_eq!(setup_refused(bound.channel, ring, userd, |args| args.flags = 8), EINVAL);
    }

    setup_vpr {
        let (bound, ring, userd) = ready();
        assert_eq!(setup_refused(bound.channel, ring, userd, |args| args.flags = 0xB), EINVAL);
    }

    setup_fd_0_is_refused {
        let (bound, ring, userd) = ready();
        close(0);
        assert_eq!(unsafe { libc::dup(ring) }, 0);
        assert_eq!(setup_refused(bound.channel, 0, userd, |_| ()), EINVAL);
        assert_eq!(setup_refused(bound.channel, ring, 0, |_| ()), EINVAL);
        assert!(setup(bound.channel, ring, userd).is_ok());
    }

    setup_offsets {
        let (bound, ring, userd) = ready();
        assert_eq!(setup_refused(bound.channel, ring, userd, |a| a.gpfifo_dmabuf_offset = 4096), EINVAL);
        assert_eq!(setup_refused(bound.channel, ring, userd, |a| a.userd_dmabuf_offset = 4096), EINVAL);
    }

    setup_descriptors {
        let (bound, ring, userd) = ready();
        assert_eq!(setup_refused(bound.channel, 999, userd, |_| ()), EBADF);
        assert_eq!(setup_refused(bound.channel, bound.ctrl, userd, |_| ()), EINVAL);
        assert_eq!(setup_refused(bound.channel, ring, 999, |_| ()), EBADF);
        assert_eq!(setup_refused(bound.channel, ring, bound.ctrl, |_| ()), EINVAL);
        let unallocated = get_fd(bound.nvmap, create(bound.nvmap, 8192).unwrap()).unwrap();
        assert_eq!(setup_refused(bound.channel, unallocated, userd, |_| ()), EINVAL);
        assert_eq!(setup_refused(bound.channel, ring, unallocated, |_| ()), EINVAL);
        assert!(setup(bound.channel, ring, userd).is_ok(), "nothing of that is left");
    }

    setup_ring_is_large_enough {
        let (bound, ring, userd) = ready();
        assert_eq!(setup_refused(bound.channel, ring, userd, |a| a.num_gpfifo_entries = 2048), EINVAL);
        let mut args = nvgpu_channel_setup_bind_args { num_gpfifo_entries: 2, ..setup_args(userd, userd) };
        assert_eq!(call::<NVGPU_IOCTL_CHANNEL_SETUP_BIND>(bound.channel, &mut args), Ok(0));
    }

    setup_kernel_window_is_full {
        let (nvmap, ctrl) = (nvmap(), ctrl());
        let (space, group) = (space_in(ctrl, 0x20_0000, 0x40_0000), tsg(ctrl));
        let userd = buffer(nvmap, 4096);
        let handle = {
            let mut args = 4_u64 << 30;
            raw(nvmap, NVMAP_IOC_CREATE_64::REQUEST, (&raw mut args) as u64).unwrap();
            args as u32
        };
        alloc(nvmap, handle).unwrap();
        let huge = get_fd(nvmap, handle).unwrap();
        let bind = || {
            let channel = channel(ctrl);
            bind_space(space, channel).unwrap();
            bind_tsg(group, channel, 0).unwrap();
            watchdog(channel, 1).unwrap();
            channel
        };
        let first = bind();
        assert!(setup(first, huge, userd).is_ok(), "all of it is mapped");
        assert_eq!(setup(bind(), buffer(nvmap, 8192), userd), Err(libc::ENOMEM));
    }

    setup_token_is_channel_and_runlist {
        let (bound, ring, userd) = ready();
        let mut args = nvgpu_channel_setup_bind_args {
            gpfifo_gpu_va: 7, userd_gpu_va: 7, usermode_mmio_gpu_va: 7, ..setup_args(ring, userd) };
        assert_eq!(call::<NVGPU_IOCTL_CHANNEL_SETUP_BIND>(bound.channel, &mut args), Ok(0));
        assert_eq!(args.work_submit_token, 511);
        assert_eq!((args.gpfifo_gpu_va, args.userd_gpu_va, args.usermode_mmio_gpu_va), (0, 0, 0));
        let other = open_channel(bound.ctrl, 1).unwrap();
        let group = tsg(bound.ctrl);
        bind_space(bound.space, other).unwrap();
        bind_tsg(group, other, 0).unwrap();
        watchdog(other, 1).unwrap();
        assert_eq!(setup(other, buffer(bound.nvmap, 8192), userd), Ok(510 | 1 << 16));
    }

    syncpoint_is_given_once {
        let bound = bound();
        let first = syncpoint(bound.channel).unwrap();
        assert_eq!(bytes(&syncpoint(bound.channel).unwrap()), bytes(&first));
        assert_eq!(first.syncpoint_max, 30000, "its current value");
    }

    object_needs_group_then_space_then_class {
        let (ctrl, compute) = (ctrl(), 0xC7C0);
        let channel = channel(ctrl);
        assert_eq!(object(channel, compute), EINVAL, "no group");
        bind_tsg(tsg(ctrl), channel, 0).unwrap();
        assert_eq!(object(channel, compute), EINVAL, "no space");
        let bound = bound();
        assert_eq!(object(bound.channel, 0x1234), EINVAL);
        for class in [0xC7C0, 0xC7B5, 0xC76F, 0xC797, 0xC637, 0xC5C0, 0xC3C0, 0x902D, 0xA140] {
            assert_eq!(object(bound.channel, class), Ok(0), "{class:#x}, without SETUP_BIND");
        }
    }

    notifier_mem_0 {
        assert_eq!(notifier(channel(ctrl()), 0, 0), EINVAL);
    }

    notifier_offset {
        let (fd, channel) = (buffer(nvmap(), 4096), channel(ctrl()));
        assert_eq!(notifier(channel, fd, 4096 - 15), EINVAL);
        assert_eq!(notifier(channel, fd, u64::MAX - 7), EINVAL);
        assert_eq!(notifier(channel, fd, 4096 - 16), Ok(0));
    }

    notifier_is_16_zeroed_bytes {
        let (fd, channel) = (buffer(nvmap(), 4096), channel(ctrl()));
        let memory = mmap(fd, 4096, 0).unwrap();
        memory.bytes().fill(0xAA);
        assert_eq!(notifier(channel, fd, 32), Ok(0));
        assert_eq!(memory.bytes()[32..48], [0; 16]);
        assert_eq!((memory.bytes()[31], memory.bytes()[48]), (0xAA, 0xAA));
    }

    notifier_is_lost_by_a_bad_descriptor {
        let (bound, memory_fd) = {
            let bound = bound();
            let fd = buffer(bound.nvmap, 4096);
            (bound, fd)
        };
        let memory = mmap(memory_fd, 4096, 0).unwrap();
        let reset = || raw(bound.channel, NVGPU_IOCTL_CHANNEL_FORCE_RESET::REQUEST, 0);
        notifier(bound.channel, memory_fd, 0).unwrap();
        assert_eq!(reset(), Ok(0));
        assert_eq!((memory.read(8), memory.read(12) >> 16), (43, 0xffff), "it is told");
        notifier(bound.channel, memory_fd, 0).unwrap();
        assert_eq!(notifier(bound.channel, 999, 0), EINVAL);
        assert_eq!(reset(), Ok(0));
        assert_eq!(memory.bytes()[..16], [0; 16], "nobody is told");
    }

    preemption_needs_a_class_then_a_group {
        let bound = bound();
        assert_eq!(preemption(bound.channel, 0, 2), EINVAL);
        object(bound.channel, 0xC7C0).unwrap();
        assert_eq!(preemption(bound.channel, 0, 2), Ok(0));
        let fd = bound.channel;
        raw(bound.tsg, NVGPU_TSG_IOCTL_UNBIND_CHANNEL::REQUEST, (&raw const fd) as u64).unwrap();
        assert_eq!(preemption(bound.channel, 0, 4), EINVAL);
    }

    preemption_same_lower_and_unsupported {
        let bound = bound();
        object(bound.channel, 0xC7C0).unwrap();
        assert_eq!(preemption(bound.channel, 0, 0), Ok(0), "both zero");
        assert_eq!(preemption(bound.channel, 1, 1), Ok(0), "same as now");
        assert_eq!(preemption(bound.channel, 4, 0), EINVAL, "unsupported");
        assert_eq!(preemption(bound.channel, 0, 8), EINVAL, "unsupported");
        assert_eq!(preemption(bound.channel, 0, 2), Ok(0));
        assert_eq!(preemption(bound.channel, 0, 1), EINVAL, "lower");
    }

    preemption_gfxp_with_cilp {
        let bound = bound();
        object(bound.channel, 0xC7C0).unwrap();
        assert_eq!(preemption(bound.channel, 2, 4), EINVAL);
        assert_eq!(preemption(bound.channel, 0, 4), Ok(0));
    }

    reschedule_without_cap_sys_nice {
        let channel = channel(ctrl());
        in_child(move || {
            if unsafe { libc::setuid(65534) } == 0 {
                let mut args: nvgpu_reschedule_runlist_args = zeroed();
                let result = call::<NVGPU_IOCTL_CHANNEL_RESCHEDULE_RUNLIST>(channel, &mut args);
                assert_eq!(result, Err(libc::EPERM));
            }
        });
    }
}

#[test]
fn a_gpfifo_below_40_bits_is_not_told() {
    let name = concat!(module_path!(), "::a_gpfifo_below_40_bits_is_not_told");
    let report = crate::simulate(name, &[], || {
        let (nvmap, ctrl) = (nvmap(), ctrl());
        // The window behind the first ends above 2^40, and what is mapped first is below it.
        for (end, size) in [(0xFF_FFE0_0000, 8192), (0xFF_0000_0000, 3 << 20)] {
            let (space, group, channel) =
                (space_in(ctrl, 0x20_0000, end), tsg(ctrl), channel(ctrl));
            bind_space(space, channel).unwrap();
            bind_tsg(group, channel, 0).unwrap();
            watchdog(channel, 1).unwrap();
            setup(channel, buffer(nvmap, size), buffer(nvmap, 4096)).unwrap();
        }
    });
    assert!(report.diagnostics.iter().all(|it| it.code != "gpfifo-too-high"), "{report}");
}

reported! {
    syncpoint_without_a_space_is_a_client_bug {
        assert!(syncpoint(channel(ctrl())).is_err());
    } gives "syncpoint-without-space"

    window_above_40_bits_is_told {
        let (nvmap, ctrl) = (nvmap(), ctrl());
        let (space, group, channel) = (space(ctrl), tsg(ctrl), channel(ctrl));
        bind_space(space, channel).unwrap();
        bind_tsg(group, channel, 0).unwrap();
        watchdog(channel, 1).unwrap();
        assert!(setup(channel, buffer(nvmap, 8192), buffer(nvmap, 4096)).is_ok(), "not an error");
    } gives "window-too-high"

    a_gpfifo_above_40_bits_is_told {
        let (nvmap, ctrl) = (nvmap(), ctrl());
        let (space, group, channel) = (space(ctrl), tsg(ctrl), channel(ctrl));
        bind_space(space, channel).unwrap();
        bind_tsg(group, channel, 0).unwrap();
        watchdog(channel, 1).unwrap();
        assert!(setup(channel, buffer(nvmap, 3 << 20), buffer(nvmap, 4096)).is_ok(), "not an error");
    } gives "gpfifo-too-high"

    userd_in_own_pages_is_refused {
        let bound = bound();
        let (ring, _) = bound.buffers();
        let pages = own_pages(1);
        let handle = from_va(bound.nvmap, pages.at(0), (4096, 0), 0x900 << 16).unwrap();
        let own = get_fd(bound.nvmap, handle).unwrap();
        assert_eq!(setup(bound.channel, ring, own), Err(libc::ENOSYS));
        assert!(setup(bound.channel, own, buffer(bound.nvmap, 4096)).is_err(), "too small for a ring");
        let userd = buffer(bound.nvmap, 4096);
        assert!(setup(bound.channel, ring, userd).is_ok(), "nothing of it is left");
    } gives "not-simulated"
}
