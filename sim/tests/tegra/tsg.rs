//! Section 4: channel groups.

use nvabi::call::Ioctl;

use crate::client::*;
use crate::{reported, rules};

fn two() -> (Fd, Fd, Fd) {
    let ctrl = ctrl();
    (ctrl, space(ctrl), tsg(ctrl))
}

rules! {
    subcontext_type_and_space {
        let (ctrl, space, tsg) = two();
        assert_eq!(subcontext(tsg, space, 2), Err(libc::EINVAL));
        assert_eq!(subcontext(tsg, ctrl, 1), Err(libc::EINVAL));
        assert_eq!(subcontext(tsg, 999, 1), Err(libc::EINVAL));
    }

    subcontext_ids {
        let (_, space, tsg) = two();
        assert_eq!(subcontext(tsg, space, 1), Ok(1));
        assert_eq!(subcontext(tsg, space, 0), Ok(0), "SYNC is 0");
        assert_eq!(subcontext(tsg, space, 0), Err(libc::ENOSPC), "a second one");
        assert_eq!(subcontext(tsg, space, 1), Ok(2));
        let mut args = nvgpu_tsg_delete_subcontext_args { veid: 1, reserved: 0 };
        assert_eq!(call::<NVGPU_TSG_IOCTL_DELETE_SUBCONTEXT>(tsg, &mut args), Ok(0));
        assert_eq!(subcontext(tsg, space, 1), Ok(1), "the lowest free");
    }

    subcontext_64_are_all {
        let (_, space, tsg) = two();
        for veid in 1..64 {
            assert_eq!(subcontext(tsg, space, 1), Ok(veid));
        }
        assert_eq!(subcontext(tsg, space, 1), Ok(0), "falls back");
        assert_eq!(subcontext(tsg, space, 1), Err(libc::ENOSPC));
    }

    delete_subcontext {
        let (ctrl, space, tsg) = two();
        let delete = |veid| {
            let mut args = nvgpu_tsg_delete_subcontext_args { veid, reserved: 0 };
            call::<NVGPU_TSG_IOCTL_DELETE_SUBCONTEXT>(tsg, &mut args)
        };
        assert_eq!(delete(64), EINVAL);
        assert_eq!(delete(5), Ok(0), "never created");
        let channel = channel(ctrl);
        let veid = subcontext(tsg, space, 1).unwrap();
        bind_space(space, channel).unwrap();
        bind_tsg(tsg, channel, veid).unwrap();
        assert_eq!(delete(veid), EINVAL, "a channel is on it");
        close(channel);
        assert_eq!(delete(veid), Ok(0));
    }

    bind_ex_wants_a_channel_and_a_subcontext_below_64 {
        let (ctrl, _, tsg) = two();
        assert_eq!(bind_tsg(tsg, ctrl, 0), EINVAL);
        assert_eq!(bind_tsg(tsg, 999, 0), EINVAL);
        assert_eq!(bind_tsg(tsg, channel(ctrl), 64), EINVAL);
    }

    bind_ex_veid_0_when_sync_is_taken {
        let (ctrl, space, tsg) = two();
        let first = channel(ctrl);
        assert_eq!(bind_tsg(tsg, first, 0), Ok(0), "without a space the slot stays empty");
        let second = channel(ctrl);
        bind_space(space, second).unwrap();
        assert_eq!(bind_tsg(tsg, second, 0), Err(libc::ENOSPC));
    }

    bind_ex_spaces_must_match {
        let (ctrl, space, tsg) = two();
        let veid = subcontext(tsg, space, 1).unwrap();
        let first = channel(ctrl);
        assert_eq!(bind_tsg(tsg, first, veid), EINVAL, "none is not that one");
        bind_space(crate::client::space(ctrl), first).unwrap();
        assert_eq!(bind_tsg(tsg, first, veid), EINVAL, "another");
        let second = channel(ctrl);
        bind_space(space, second).unwrap();
        assert_eq!(bind_tsg(tsg, second, 7), EINVAL, "never created, so none");
        assert_eq!(bind_tsg(tsg, second, veid), Ok(0));
    }

    bind_ex_channel_is_in_a_group {
        let (ctrl, space, group) = two();
        let channel = channel(ctrl);
        bind_space(space, channel).unwrap();
        bind_tsg(group, channel, 0).unwrap();
        assert_eq!(bind_tsg(group, channel, 0), EINVAL);
        assert_eq!(bind_tsg(tsg(ctrl), channel, 0), EINVAL);
    }

    bind_ex_siblings_share_a_runlist {
        let (ctrl, space, tsg) = two();
        let first = open_channel(ctrl, 0).unwrap();
        let second = open_channel(ctrl, 1).unwrap();
        for channel in [first, second] {
            bind_space(space, channel).unwrap();
        }
        assert_eq!(bind_tsg(tsg, first, 0), Ok(0));
        assert_eq!(bind_tsg(tsg, second, 0), EINVAL);
    }

    bind_ex_group_is_full {
        let (ctrl, space, tsg) = two();
        for _ in 0..128 {
            let channel = channel(ctrl);
            bind_space(space, channel).unwrap();
            assert_eq!(bind_tsg(tsg, channel, 0), Ok(0));
        }
        let channel = channel(ctrl);
        bind_space(space, channel).unwrap();
        assert_eq!(bind_tsg(tsg, channel, 0), EINVAL);
    }

    failed_bind_leaves_the_subcontext_on_the_channel {
        let (ctrl, space, tsg) = two();
        let veid = subcontext(tsg, space, 1).unwrap();
        let channel = channel(ctrl);
        assert_eq!(bind_tsg(tsg, channel, veid), EINVAL);
        bind_space(space, channel).unwrap();
        let mut fd = channel;
        let bind = NVGPU_TSG_IOCTL_BIND_CHANNEL::REQUEST;
        assert_eq!(raw(tsg, bind, (&raw mut fd) as u64), Ok(0), "T:1 uses what was left there");
        let mut args = nvgpu_tsg_delete_subcontext_args { veid, reserved: 0 };
        assert_eq!(call::<NVGPU_TSG_IOCTL_DELETE_SUBCONTEXT>(tsg, &mut args), EINVAL);
    }

    bind_wants_a_channel {
        let (ctrl, _, tsg) = two();
        for mut fd in [-1, 999, ctrl] {
            let bind = NVGPU_TSG_IOCTL_BIND_CHANNEL::REQUEST;
            assert_eq!(raw(tsg, bind, (&raw mut fd) as u64), EINVAL);
        }
    }

    bind_of_a_channel_that_is_in_a_group {
        let (ctrl, space, group) = two();
        let member = channel(ctrl);
        bind_space(space, member).unwrap();
        let bind = |group| {
            let mut fd = member;
            raw(group, NVGPU_TSG_IOCTL_BIND_CHANNEL::REQUEST, (&raw mut fd) as u64)
        };
        assert_eq!(bind(group), Ok(0));
        assert_eq!(bind(group), EINVAL, "the same group");
        let other = tsg(ctrl);
        assert_eq!(bind(other), EINVAL, "another");
        assert_eq!(bind_tsg(other, member, 0), EINVAL);
        assert_eq!(subcontext(other, space, 0), Err(libc::ENOSPC), "its SYNC is taken all the same");
        let second = channel(ctrl);
        bind_space(space, second).unwrap();
        assert_eq!(bind_tsg(other, second, 0), Ok(0), "for this space");
        close(member);
        assert_eq!(bind_tsg(group, second, 0), EINVAL, "so is this one");
    }

    unbind_of_a_member_kills_the_channel {
        let (ctrl, space, group) = two();
        let channel = channel(ctrl);
        let unbind = |group, fd: Fd| {
            raw(group, NVGPU_TSG_IOCTL_UNBIND_CHANNEL::REQUEST, (&raw const fd) as u64)
        };
        let dead = || {
            let mut dead = 7_u32;
            raw(channel, NVGPU_IOCTL_CHANNEL_GET_TIMEDOUT::REQUEST, (&raw mut dead) as u64).unwrap();
            dead
        };
        assert_eq!(unbind(group, channel), EINVAL, "not a member");
        assert_eq!(unbind(group, -1), EINVAL);
        bind_space(space, channel).unwrap();
        bind_tsg(group, channel, 0).unwrap();
        assert_eq!(dead(), 0);
        assert_eq!(unbind(tsg(ctrl), channel), EINVAL, "of another");
        assert_eq!(unbind(group, channel), Ok(0));
        assert_eq!(dead(), 1);
    }

    timeslice_from_1000_to_50000 {
        let (_, _, tsg) = two();
        for timeslice_us in [0, 999, 50_001] {
            let args = nvgpu_timeslice_args { timeslice_us, reserved: 0 };
            assert_eq!(refused::<NVGPU_IOCTL_TSG_SET_TIMESLICE>(tsg, args), EINVAL);
        }
        for timeslice_us in [1000, 50_000] {
            let mut args = nvgpu_timeslice_args { timeslice_us, reserved: 0 };
            assert_eq!(call::<NVGPU_IOCTL_TSG_SET_TIMESLICE>(tsg, &mut args), Ok(0));
            args.timeslice_us = 0;
            assert_eq!(call::<NVGPU_IOCTL_TSG_GET_TIMESLICE>(tsg, &mut args), Ok(0));
            assert_eq!(args.timeslice_us, timeslice_us);
        }
    }

    events_are_pollable {
        let (_, _, tsg) = two();
        let args = nvgpu_event_id_ctrl_args { cmd: 1, event_id: 2, event_fd: 0, padding: 0 };
        let ask = |args| refused::<NVGPU_IOCTL_TSG_EVENT_ID_CTRL>(tsg, args);
        assert_eq!(ask(nvgpu_event_id_ctrl_args { event_id: 6, ..args }), EINVAL);
        assert_eq!(ask(nvgpu_event_id_ctrl_args { cmd: 0, ..args }), EINVAL);
        let mut args = args;
        assert_eq!(call::<NVGPU_IOCTL_TSG_EVENT_ID_CTRL>(tsg, &mut args), Ok(0));
        assert!(is_open(args.event_fd));
        assert!(!crate::nvmap::is_readable(args.event_fd), "nothing has happened");
    }
}

reported! {
    bind_without_a_space_is_accepted_and_told {
        let (ctrl, _, tsg) = two();
        assert_eq!(bind_tsg(tsg, channel(ctrl), 0), Ok(0));
    } gives "no-address-space"

    subcontext_of_a_space_that_is_gone {
        let (ctrl, space, tsg) = two();
        let veid = subcontext(tsg, space, 1).unwrap();
        close(space);
        let channel = channel(ctrl);
        bind_space(crate::client::space(ctrl), channel).unwrap();
        assert_eq!(bind_tsg(tsg, channel, veid), EINVAL);
    } gives "stale-subcontext"
}
