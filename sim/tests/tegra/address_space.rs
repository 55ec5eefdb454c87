//! Sections 3 and 8: address spaces, and where things go in them.

use crate::client::*;
use crate::rules;

fn map_refused(space: Fd, args: nvgpu_as_map_buffer_ex_args) -> Result {
    refused::<NVGPU_AS_IOCTL_MAP_BUFFER_EX>(space, args)
}

rules! {
    mapping_is_modified_from_its_beginning {
        let (space, fd) = (space(ctrl()), buffer(nvmap(), 4 * 4096));
        let map_address = map(space, fd).unwrap();
        let whole = nvgpu_as_mapping_modify_args {
            compr_kind: -1, incompr_kind: 6, map_address, buffer_size: 4 * 4096, ..zeroed() };
        let modify = |mut args| call::<NVGPU_AS_IOCTL_MAPPING_MODIFY>(space, &mut args);
        let with = |change: &dyn Fn(&mut nvgpu_as_mapping_modify_args)| {
            let mut args = whole;
            change(&mut args);
            refused::<NVGPU_AS_IOCTL_MAPPING_MODIFY>(space, args)
        };
        assert_eq!(modify(whole), Ok(0));
        assert_eq!(modify(nvgpu_as_mapping_modify_args { buffer_size: 4096, buffer_offset: 3 * 4096, ..whole }), Ok(0));
        assert_eq!(with(&|args| args.map_address += 4096), EINVAL, "inside");
        assert_eq!(with(&|args| args.buffer_offset = 4096), EINVAL, "past the end");
        assert_eq!(with(&|args| args.buffer_offset = u64::MAX - 4095), EINVAL);
        assert_eq!(with(&|args| args.buffer_size = 5 * 4096), EINVAL);
        assert_eq!(with(&|args| args.buffer_size = 100), EINVAL, "no whole pages");
        assert_eq!(with(&|args| args.incompr_kind = -1), EINVAL, "no kind");
    }

    map_batch_with_a_bad_second_entry {
        let (nvmap, space) = (nvmap(), space(ctrl()));
        let fd = buffer(nvmap, 4096);
        reserve(space, 16, Some(0x4000_0000)).unwrap();
        let map = nvgpu_as_map_buffer_ex_args { flags: 1, offset: 0x4000_0000, ..map_args(fd) };
        let size = size_of::<nvgpu_as_map_buffer_ex_args>();
        let maps = edge(size);
        unsafe { (maps as *mut nvgpu_as_map_buffer_ex_args).write(map) };
        let batch = nvgpu_as_map_buffer_batch_args { num_maps: 2, maps, ..zeroed() };
        assert_eq!(refused::<NVGPU_AS_IOCTL_MAP_BUFFER_BATCH>(space, batch), EFAULT);
        let other = buffer(nvmap, 4096);
        assert_eq!(map_at(space, other, 0x4000_0000), Err(libc::EINVAL), "the first is mapped");
    }

    a_fixed_range_is_carved_out_and_merged_again {
        let space = space_in(ctrl(), 0x20_0000, 0x40_0000);
        reserve(space, 1, Some(0x20_1000)).unwrap();
        let page = || reserve(space, 1, None).unwrap();
        assert_eq!([page(), page(), page(), page()], [0x20_0000, 0x20_2000, 0x20_3000, 0x20_4000]);
        assert_eq!(reserve(space, 256, None), Ok(0x30_0000));
        assert_eq!(reserve(space, 256, None), Err(libc::ENOMEM));
        for at in [0x20_0000, 0x20_1000, 0x20_2000, 0x20_3000, 0x20_4000, 0x30_0000] {
            assert_eq!(unreserve(space, at), Ok(0));
        }
        assert_eq!(reserve(space, 512, None), Ok(0x20_0000), "all of it is one block again");
    }

    bind_channel_wants_a_channel_without_a_space {
        let ctrl = ctrl();
        let (first, second, channel) = (space(ctrl), space(ctrl), channel(ctrl));
        assert_eq!(bind_space(first, 999), EINVAL);
        assert_eq!(bind_space(first, ctrl), EINVAL);
        assert_eq!(bind_space(first, channel), Ok(0));
        assert_eq!(bind_space(first, channel), EINVAL, "even this one");
        assert_eq!(bind_space(second, channel), EINVAL);
    }

    alloc_space_page_size {
        let space = space(ctrl());
        for page_size in [0, 65536, 8192] {
            let args = nvgpu_as_alloc_space_args { pages: 1, page_size, ..zeroed() };
            assert_eq!(refused::<NVGPU_AS_IOCTL_ALLOC_SPACE>(space, args), EINVAL);
        }
    }

    alloc_space_that_cannot_be {
        let space = space(ctrl());
        let at = 0x1000_0000;
        assert_eq!(reserve(space, 16, Some(at)), Ok(at));
        assert_eq!(reserve(space, 16, Some(at)), Err(libc::ENOMEM), "busy");
        assert_eq!(reserve(space, 1, Some(at + 0x8000)), Err(libc::ENOMEM), "inside");
        assert_eq!(reserve(space, 16, Some(0x1000)), Err(libc::ENOMEM), "outside");
        assert_eq!(reserve(space, 1, Some(at + 0x10_0800)), Err(libc::ENOMEM), "unaligned");
        assert_eq!(reserve(space, 0, None), Err(libc::ENOMEM), "zero pages");
        assert_eq!(reserve(space, 1 << 40, None), Err(libc::ENOMEM), "no room");
    }

    free_space_of_nothing_is_no_error {
        let space = space(ctrl());
        assert_eq!(unreserve(space, 0x1234), Ok(0));
    }

    map_wants_a_dmabuf {
        let ctrl = ctrl();
        let space = space(ctrl);
        assert_eq!(map_refused(space, map_args(999)), EBADF);
        assert_eq!(map_refused(space, map_args(ctrl)), EINVAL);
    }

    map_not_fixed_takes_neither_offset_nor_size {
        let (space, buffer) = (space(ctrl()), buffer(nvmap(), 8192));
        let args = map_args(buffer);
        assert_eq!(map_refused(space, nvgpu_as_map_buffer_ex_args { offset: 4096, ..args }), EINVAL);
        assert_eq!(map_refused(space, nvgpu_as_map_buffer_ex_args { buffer_offset: 4096, ..args }), EINVAL);
        assert_eq!(map_refused(space, nvgpu_as_map_buffer_ex_args { mapping_size: 4096, ..args }), EINVAL);
    }

    map_past_the_buffer {
        let (space, buffer) = (space(ctrl()), buffer(nvmap(), 8192));
        let at = reserve(space, 64, None).unwrap();
        let args = nvgpu_as_map_buffer_ex_args { flags: 1, offset: at, ..map_args(buffer) };
        let with = |mapping_size, buffer_offset| {
            map_refused(space, nvgpu_as_map_buffer_ex_args { mapping_size, buffer_offset, ..args })
        };
        assert_eq!(with(12288, 0), EINVAL);
        assert_eq!(with(8192, 4096), EINVAL);
        assert_eq!(with(0, 8193), EINVAL);
        assert_eq!(with(0, 4096), EINVAL, "the whole buffer from there");
        assert_eq!(with(4096, u64::MAX), EINVAL);
    }

    map_access_3_tegra_raw_and_unknown_flags {
        let (space, buffer) = (space(ctrl()), buffer(nvmap(), 4096));
        let with = |flags| map_refused(space, nvgpu_as_map_buffer_ex_args { flags, ..map_args(buffer) });
        assert_eq!(with(3 << 10), EINVAL);
        assert_eq!(with(1 << 12), EINVAL);
        for bit in [1, 3, 4, 8, 13, 14, 15, 31] {
            assert_eq!(with(1 << bit), EINVAL, "bit {bit}");
        }
        for bit in [2, 5, 6, 7, 9, 10, 11] {
            let mut args = nvgpu_as_map_buffer_ex_args { flags: 1 << bit, ..map_args(buffer) };
            assert_eq!(call::<NVGPU_AS_IOCTL_MAP_BUFFER_EX>(space, &mut args), Ok(0), "bit {bit}");
        }
    }

    map_needs_a_kind {
        let (space, buffer) = (space(ctrl()), buffer(nvmap(), 4096));
        let args = nvgpu_as_map_buffer_ex_args { incompr_kind: -1, ..map_args(buffer) };
        assert_eq!(map_refused(space, args), EINVAL);
        let mut args = nvgpu_as_map_buffer_ex_args { compr_kind: 8, ..args };
        assert_eq!(call::<NVGPU_AS_IOCTL_MAP_BUFFER_EX>(space, &mut args), Ok(0));
    }

    map_fixed_needs_a_reservation_that_fits {
        let (space, buffer) = (space(ctrl()), buffer(nvmap(), 8192));
        let at = 0x1000_0000;
        assert_eq!(map_at(space, buffer, at), Err(libc::EINVAL), "no area");
        reserve(space, 3, Some(at)).unwrap();
        assert_eq!(map_at(space, buffer, at + 1), Err(libc::EINVAL), "unaligned");
        assert_eq!(map_at(space, buffer, at + 8192), Err(libc::EINVAL), "runs past it");
        assert_eq!(map_at(space, buffer, u64::MAX - 4095), Err(libc::EINVAL), "wraps");
        assert_eq!(map_at(space, buffer, at), Ok(at));
        let other = crate::client::buffer(nvmap(), 4096);
        assert_eq!(map_at(space, other, at + 4096), Err(libc::EINVAL), "overlaps");
        assert_eq!(map_at(space, other, at + 8192), Ok(at + 8192));
    }

    map_fixed_does_not_span_two_reservations {
        let (space, buffer) = (space(ctrl()), buffer(nvmap(), 8192));
        let at = 0x1000_0000;
        reserve(space, 1, Some(at)).unwrap();
        reserve(space, 1, Some(at + 4096)).unwrap();
        assert_eq!(map_at(space, buffer, at), Err(libc::EINVAL));
    }

    map_without_room {
        let ctrl = ctrl();
        let space = space_in(ctrl, 0x20_0000, 0x40_0000);
        let nvmap = nvmap();
        assert_eq!(map(space, buffer(nvmap, 4 << 20)), Err(libc::ENOMEM));
        assert_eq!(map(space, buffer(nvmap, 2 << 20)), Ok(0x20_0000));
        assert_eq!(map(space, buffer(nvmap, 4096)), Err(libc::ENOMEM));
    }

    map_ignores_page_size {
        let (space, buffer) = (space(ctrl()), buffer(nvmap(), 4096));
        let mut args = nvgpu_as_map_buffer_ex_args { page_size: 12345, ..map_args(buffer) };
        assert_eq!(call::<NVGPU_AS_IOCTL_MAP_BUFFER_EX>(space, &mut args), Ok(0));
    }

    map_of_the_same_buffer_is_the_same_address {
        let (nvmap, space) = (nvmap(), space(ctrl()));
        let fd = buffer(nvmap, 4096);
        let first = map(space, fd).unwrap();
        assert_eq!(map(space, fd), Ok(first));
        let again = get_fd(nvmap, fd as u32).unwrap();
        assert_eq!(map(space, again), Ok(first), "by another descriptor");
        let mut args = nvgpu_as_map_buffer_ex_args { incompr_kind: 6, ..map_args(fd) };
        call::<NVGPU_AS_IOCTL_MAP_BUFFER_EX>(space, &mut args).unwrap();
        assert_ne!(args.offset, first, "another kind");
        for _ in 0..3 {
            assert_eq!(unmap(space, first), Ok(0), "drops one reference");
        }
        let other = buffer(nvmap, 4096);
        assert_eq!(map(space, other), Ok(first), "the address is free with the last");
    }

    unmap_of_nothing_is_no_error {
        let (space, buffer) = (space(ctrl()), buffer(nvmap(), 8192));
        assert_eq!(unmap(space, 0x1234), Ok(0));
        let at = map(space, buffer).unwrap();
        assert_eq!(unmap(space, at + 4096), Ok(0), "inside a mapping");
        assert_eq!(map(space, buffer), Ok(at), "which stays");
    }

    unmap_of_a_fixed_mapping_leaves_the_reservation {
        let (space, buffer) = (space(ctrl()), buffer(nvmap(), 4096));
        let at = 0x1000_0000;
        reserve(space, 16, Some(at)).unwrap();
        map_at(space, buffer, at).unwrap();
        unmap(space, at).unwrap();
        assert_eq!(reserve(space, 1, Some(at)), Err(libc::ENOMEM));
        assert_eq!(map_at(space, buffer, at), Ok(at));
    }

    unmap_of_a_shared_fixed_mapping_waits {
        let (space, buffer) = (space(ctrl()), buffer(nvmap(), 4096));
        let at = 0x1000_0000;
        reserve(space, 16, Some(at)).unwrap();
        map_at(space, buffer, at).unwrap();
        assert_eq!(map_at(space, buffer, at), Ok(at), "the same again");
        let start = std::time::Instant::now();
        unmap(space, at).unwrap();
        assert!(start.elapsed().as_millis() >= 100);
        unmap(space, at).unwrap();
        // What waits does so each time; what does not may be late on a busy machine.
        let mut takes = (0..20).map(|_| {
            map_at(space, buffer, at).unwrap();
            let start = std::time::Instant::now();
            unmap(space, at).unwrap();
            start.elapsed().as_millis()
        });
        assert!(takes.any(|took| took < 100), "a mapping that is not shared waits");
    }

    free_space_takes_its_mappings {
        let (space, buffer) = (space(ctrl()), buffer(nvmap(), 4096));
        let at = 0x1000_0000;
        reserve(space, 16, Some(at)).unwrap();
        map_at(space, buffer, at).unwrap();
        assert_eq!(unreserve(space, at + 0x3000), Ok(0), "any address inside will do");
        assert_eq!(map_at(space, buffer, at), Err(libc::EINVAL));
        assert_eq!(reserve(space, 16, Some(at)), Ok(at));
    }

    map_batch_limits_and_progress {
        let (space, buffer) = (space(ctrl()), buffer(nvmap(), 4096));
        let at = map(space, buffer).unwrap();
        let unmaps = [nvgpu_as_unmap_buffer_args { offset: at }];
        let maps = [map_args(buffer), map_args(999)];
        let args = nvgpu_as_map_buffer_batch_args {
            unmaps: unmaps.as_ptr() as u64, maps: maps.as_ptr() as u64,
            num_unmaps: 1, num_maps: 2, reserved: 0 };
        let ask = |args| refused::<NVGPU_AS_IOCTL_MAP_BUFFER_BATCH>(space, args);
        assert_eq!(ask(nvgpu_as_map_buffer_batch_args { num_unmaps: 257, ..args }), EINVAL);
        assert_eq!(ask(nvgpu_as_map_buffer_batch_args { num_maps: 257, ..args }), EINVAL);
        assert_eq!(ask(args), EBADF, "the counts are not told");
        assert_eq!(unmap(space, at), Ok(0));
        let mut good = nvgpu_as_map_buffer_batch_args { num_unmaps: 0, num_maps: 1, ..args };
        assert_eq!(call::<NVGPU_AS_IOCTL_MAP_BUFFER_BATCH>(space, &mut good), Ok(0));
    }

    va_regions_are_one_of_24_bytes {
        let space = space(ctrl());
        let mut region: nvgpu_as_va_region = zeroed();
        let mut args = nvgpu_as_get_va_regions_args { buf_addr: 8, buf_size: 0, reserved: 0 };
        assert_eq!(call::<NVGPU_AS_IOCTL_GET_VA_REGIONS>(space, &mut args), Ok(0));
        assert_eq!(args.buf_size, 24);
        args = nvgpu_as_get_va_regions_args {
            buf_addr: (&raw mut region) as u64, buf_size: 100, reserved: 0 };
        assert_eq!(call::<NVGPU_AS_IOCTL_GET_VA_REGIONS>(space, &mut args), Ok(0));
        assert_eq!(args.buf_size, 24);
        assert_eq!((region.offset, region.page_size), (0x20_0000, 4096));
        assert_eq!(region.pages, (0xFF_FFE0_0000 - 0x20_0000) / 4096);
        args.buf_addr = 8;
        assert_eq!(call::<NVGPU_AS_IOCTL_GET_VA_REGIONS>(space, &mut args), EFAULT);
    }

    sync_ro_map_is_64_mib_of_1024_points {
        let space = space(ctrl());
        let mut args: nvgpu_as_get_sync_ro_map_args = zeroed();
        assert_eq!(call::<NVGPU_AS_IOCTL_GET_SYNC_RO_MAP>(space, &mut args), Ok(0));
        assert_eq!((args.sync_size, args.num_syncpoints), (0x1_0000, 1024));
        let first = args.base_gpuva;
        assert_eq!(first, 0xFF_FFE0_0000, "the first of the kernel window");
        assert_eq!(call::<NVGPU_AS_IOCTL_GET_SYNC_RO_MAP>(space, &mut args), Ok(0));
        assert_eq!(args.base_gpuva, first);
    }

    addresses_are_those_of_the_driver {
        let (nvmap, ctrl) = (nvmap(), ctrl());
        let space = space(ctrl);
        assert_eq!(map(space, buffer(nvmap, 4096)), Ok(0xFF_FFA0_0000), "the trace's");
        assert_eq!(map(space, buffer(nvmap, 4096)), Ok(0xFF_FFA0_1000));
        assert_eq!(map(space, buffer(nvmap, 12288)), Ok(0xFF_FFA0_4000), "of a power of two");
        assert_eq!(map(space, buffer(nvmap, 8192)), Ok(0xFF_FFA0_2000));
        assert_eq!(map(space, buffer(nvmap, 8 << 20)), Ok(0xFF_FF20_0000));
    }

    the_syncpoint_of_the_trace {
        let (nvmap, ctrl) = (nvmap(), ctrl());
        let (space, group, channel) = (space(ctrl), tsg(ctrl), channel(ctrl));
        let veid = subcontext(group, space, 1).unwrap();
        assert_eq!(veid, 1);
        bind_space(space, channel).unwrap();
        bind_tsg(group, channel, veid).unwrap();
        watchdog(channel, 1).unwrap();
        assert_eq!(setup(channel, buffer(nvmap, 8192), buffer(nvmap, 4096)), Ok(511));
        let point = syncpoint(channel).unwrap();
        assert_eq!((point.syncpoint_id, point.syncpoint_max, point.gpu_va), (17, 30000, 0xFF_FFE1_0000));
    }

    large_requests_reach_the_shader_window {
        let space = space(ctrl());
        let mut all = Vec::new();
        while let Ok(at) = reserve(space, 0x2_0000, None) {
            all.push(at);
        }
        assert!(all.contains(&0xFE_0020_0000));
        for pair in all.windows(2) {
            assert_ne!(pair[0], pair[1]);
        }
    }

    freed_addresses_come_back_first {
        let (nvmap, space) = (nvmap(), space(ctrl()));
        let all: Vec<u64> = (0..4).map(|_| map(space, buffer(nvmap, 4096)).unwrap()).collect();
        unmap(space, all[2]).unwrap();
        unmap(space, all[0]).unwrap();
        assert_eq!(map(space, buffer(nvmap, 4096)), Ok(all[0]), "the last freed");
        assert_eq!(map(space, buffer(nvmap, 4096)), Ok(all[2]));
    }

    default_space_of_the_device_file {
        let space = open("/dev/nvgpu/igpu0/as").unwrap();
        let mut region: nvgpu_as_va_region = zeroed();
        let mut args = nvgpu_as_get_va_regions_args {
            buf_addr: (&raw mut region) as u64, buf_size: 24, reserved: 0 };
        call::<NVGPU_AS_IOCTL_GET_VA_REGIONS>(space, &mut args).unwrap();
        assert_eq!((region.offset, region.pages), (64 << 20, (128 << 30) / 4096));
    }
}
