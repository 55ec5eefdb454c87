//! Section 2: the control node.

use nvabi::call::Ioctl;

use crate::client::*;
use crate::rules;

/// The characteristics in a buffer of some size: result, size told, bytes.
fn characteristics(size: u64, address: u64) -> (Result, u64) {
    let mut args = nvgpu_gpu_get_characteristics {
        gpu_characteristics_buf_size: size,
        gpu_characteristics_buf_addr: address,
    };
    let result = call::<NVGPU_GPU_IOCTL_GET_CHARACTERISTICS>(ctrl(), &mut args);
    (result, args.gpu_characteristics_buf_size)
}

fn alloc_as(change: impl FnOnce(&mut nvgpu_alloc_as_args)) -> Result {
    let ctrl = ctrl();
    let mut args = as_args();
    change(&mut args);
    let before = open("/dev/null").unwrap();
    close(before);
    let result = refused::<NVGPU_GPU_IOCTL_ALLOC_AS>(ctrl, args);
    assert!(!is_open(before), "a failed call leaves no descriptor");
    result
}

/// What the clock is, of a kind.
fn clock(ctrl: Fd, kind: u32) -> u64 {
    let mut info: nvgpu_gpu_clk_info = zeroed();
    let mut args: nvgpu_gpu_clk_get_info_args = zeroed();
    (args.clk_type, args.num_entries) = (kind as _, 1);
    args.clk_info_entries = (&raw mut info) as u64;
    call::<NVGPU_GPU_IOCTL_CLK_GET_INFO>(ctrl, &mut args).unwrap();
    info.freq_hz
}

fn set_clock(ctrl: Fd, domain: u32, hz: u64, entries: u16, flags: u32) -> Result<Fd> {
    let mut info: nvgpu_gpu_clk_info = zeroed();
    (info.clk_domain, info.freq_hz) = (domain, hz);
    let mut args: nvgpu_gpu_clk_set_info_args = zeroed();
    (args.flags, args.num_entries) = (flags, entries);
    args.clk_info_entries = (&raw mut info) as u64;
    call::<NVGPU_GPU_IOCTL_CLK_SET_INFO>(ctrl, &mut args)?;
    Ok(args.completion_fd)
}

rules! {
    characteristics_are_those_of_an_orin {
        let mut gpu: nvgpu_gpu_characteristics = zeroed();
        let mut args = nvgpu_gpu_get_characteristics {
            gpu_characteristics_buf_size: size_of_val(&gpu) as u64,
            gpu_characteristics_buf_addr: (&raw mut gpu) as u64,
        };
        assert_eq!(call::<NVGPU_GPU_IOCTL_GET_CHARACTERISTICS>(ctrl(), &mut args), Ok(0));
        assert_eq!((gpu.numa_domain_id, gpu.sm_arch_warp_count), (-1, 96));
        assert_eq!((gpu.fbp_en_mask, gpu.max_ltc_per_fbp, gpu.num_ltc), (3, 1, 2));
        for flag in [
            u64::from(NVGPU_GPU_FLAGS_SUPPORT_CYCLE_STATS),
            u64::from(NVGPU_GPU_FLAGS_SUPPORT_CYCLE_STATS_SNAPSHOT),
            u64::from(NVGPU_GPU_FLAGS_SUPPORT_VPR),
            NVGPU_GPU_FLAGS_SUPPORT_GET_GR_CONTEXT,
        ] {
            assert_ne!(gpu.flags & flag, 0, "{flag:#x}");
        }
    }

    clock_is_set_by_the_highest_wish {
        let (ctrl, other) = (ctrl(), ctrl());
        let gpc = NVGPU_GPU_CLK_DOMAIN_GPCCLK;
        let (target, actual) = (NVGPU_GPU_CLK_TYPE_TARGET, NVGPU_GPU_CLK_TYPE_ACTUAL);
        assert_eq!(clock(ctrl, actual), 306_000_000);
        let done = set_clock(ctrl, gpc, 600_500_000, 1, 0).unwrap();
        assert!(crate::nvmap::is_readable(done));
        assert_eq!((clock(ctrl, target), clock(ctrl, actual)), (600_000_000, 612_000_000));
        assert_eq!((clock(other, target), clock(other, actual)), (306_000_000, 612_000_000));
        set_clock(other, gpc, 9_000_000_000, 1, 0).unwrap();
        assert_eq!(clock(ctrl, actual), 1_300_000_000);
        close(other);
        assert_eq!(clock(ctrl, actual), 612_000_000, "it goes with its file");
    }

    clock_is_not_set {
        let ctrl = ctrl();
        let gpc = NVGPU_GPU_CLK_DOMAIN_GPCCLK;
        let einval = Err(libc::EINVAL);
        assert_eq!(set_clock(ctrl, gpc, 1, 1, 1), einval, "a flag");
        assert_eq!(set_clock(ctrl, gpc, 1, 0, 0), einval, "nothing");
        assert_eq!(set_clock(ctrl, gpc, 1, 2, 0), einval, "more than there are");
        assert_eq!(set_clock(ctrl, gpc + 1, 1, 1, 0), einval, "another");
        let args = nvgpu_gpu_clk_set_info_args { num_entries: 1, clk_info_entries: 8, ..zeroed() };
        assert_eq!(refused::<NVGPU_GPU_IOCTL_CLK_SET_INFO>(ctrl, args), EFAULT);
    }

    doorbell_is_mapped_once_by_two_threads {
        let ctrl = ctrl();
        for _ in 0..200 {
            let start = std::sync::Barrier::new(2);
            let map = || {
                start.wait();
                mmap(ctrl, 4096, 0).map(|map| {
                    // Both must have tried before one lets go.
                    start.wait();
                    drop(map);
                }).inspect_err(|_| { start.wait(); })
            };
            let both = std::thread::scope(|scope| {
                [scope.spawn(map), scope.spawn(map)].map(|thread| thread.join().unwrap())
            });
            assert_eq!(both.iter().filter(|map| map.is_ok()).count(), 1);
        }
    }

    characteristics_buf_size_0_tells_328_alone {
        assert_eq!(characteristics(0, 8), (Ok(0), 328));
    }

    characteristics_fill_what_there_is_room_for {
        let mut buffer = [0xAA_u8; 512];
        assert_eq!(characteristics(512, buffer.as_mut_ptr() as u64), (Ok(0), 328));
        assert_eq!(buffer[..4], 0x170_u32.to_le_bytes());
        assert_eq!(buffer[4..8], 0xb_u32.to_le_bytes());
        assert_eq!(buffer[328], 0xAA);
        let mut buffer = [0xAA_u8; 512];
        assert_eq!(characteristics(6, buffer.as_mut_ptr() as u64), (Ok(0), 328));
        assert_eq!(buffer[4..8], [0xb, 0, 0xAA, 0xAA]);
    }

    characteristics_to_a_bad_address_return_what_was_left {
        assert_eq!(characteristics(328, 8), (Ok(328), 328));
        assert_eq!(characteristics(1000, edge(100)), (Ok(228), 1000), "size is not told then");
    }

    characteristics_are_those_of_the_trace {
        let mut gpu: nvgpu_gpu_characteristics = zeroed();
        assert_eq!(characteristics(328, (&raw mut gpu) as u64).0, Ok(0));
        assert_eq!((gpu.arch, gpu.r#impl, gpu.sm_arch_sm_version), (0x170, 0xb, 0x807));
        assert_eq!((gpu.compute_class, gpu.gpfifo_class, gpu.dma_copy_class), (0xC7C0, 0xC76F, 0xC7B5));
        assert_eq!((gpu.num_gpc, gpu.num_tpc_per_gpc, gpu.gpu_va_bit_count), (1, 4, 40));
        assert_eq!((gpu.L2_cache_size, gpu.big_page_size), (4 << 20, 0));
        assert_eq!((gpu.max_gpfifo_entries, gpu.max_freq), (1 << 28, 1_300_000_000));
        assert_eq!(&gpu.chipname[..6], b"ga10b\0");
        let flags = gpu.flags;
        for bit in [30, 42, 19, 22, 20] {
            assert!(flags >> bit & 1 != 0, "flag {bit}");
        }
        assert_eq!(flags >> 57 & 1, 0, "SUPPORT_GPU_MMIO");
    }

    caller_without_cap_sys_nice_cannot_reschedule {
        let may = || {
            let mut gpu: nvgpu_gpu_characteristics = zeroed();
            characteristics(328, (&raw mut gpu) as u64).0.unwrap();
            gpu.flags >> 21 & 1 != 0
        };
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        let has = u64::from_str_radix(line.trim(), 16).unwrap() >> 23 & 1 != 0;
        assert_eq!(may(), has);
        in_child(move || {
            // Whoever gives up all rights has not this one.
            if unsafe { libc::setuid(65534) } == 0 {
                assert!(!may());
            }
        });
    }

    tpc_masks_negotiate_their_size {
        let ask = |size, address| {
            let mut args =
                nvgpu_gpu_get_tpc_masks_args { mask_buf_size: size, reserved: 0, mask_buf_addr: address };
            let result = call::<NVGPU_GPU_IOCTL_GET_TPC_MASKS>(ctrl(), &mut args);
            (result, args.mask_buf_size)
        };
        let (result, size) = ask(0, 8);
        assert_eq!(result, Ok(0));
        assert!(size >= 4 && size % 4 == 0);
        let mut masks = [0_u32; 16];
        assert_eq!(ask(64, masks.as_mut_ptr() as u64), (Ok(0), size));
        assert_eq!(masks[0], 0xf, "four TPCs");
        assert_eq!(ask(4, 8), (Ok(4), 4));
    }

    l2_masks_negotiate_their_size {
        let mut args = nvgpu_gpu_get_fbp_l2_masks_args { mask_buf_size: 0, reserved: 0, mask_buf_addr: 8 };
        assert_eq!(call::<NVGPU_GPU_IOCTL_GET_FBP_L2_MASKS>(ctrl(), &mut args), Ok(0));
        assert!(args.mask_buf_size >= 4);
        args.mask_buf_size = 3;
        assert_eq!(call::<NVGPU_GPU_IOCTL_GET_FBP_L2_MASKS>(ctrl(), &mut args), Ok(3));
    }

    gpc_maps_want_their_exact_size {
        let ask = |size, address| {
            let mut args = nvgpu_gpu_get_gpc_physical_map_args {
                map_buf_size: size, reserved: 0, physical_gpc_buf_addr: address };
            call::<NVGPU_GPU_IOCTL_GET_GPC_LOCAL_TO_PHYSICAL_MAP>(ctrl(), &mut args)
        };
        let mut map = [7_u32; 2];
        assert_eq!(ask(0, 8), EINVAL);
        assert_eq!(ask(8, map.as_mut_ptr() as u64), EINVAL);
        assert_eq!(ask(4, 8), EFAULT);
        assert_eq!(ask(4, map.as_mut_ptr() as u64), Ok(0));
        assert_eq!(map, [0, 7]);
        let mut args = nvgpu_gpu_get_gpc_logical_map_args {
            map_buf_size: 4, reserved: 0, logical_gpc_buf_addr: 8 };
        assert_eq!(call::<NVGPU_GPU_IOCTL_GET_GPC_LOCAL_TO_LOGICAL_MAP>(ctrl(), &mut args), EFAULT);
    }

    time_correlation_wants_16_samples_and_a_source {
        let ask = |count, source_id| {
            let mut args = nvgpu_gpu_get_cpu_time_correlation_info_args { count, source_id, ..zeroed() };
            let result = call::<NVGPU_GPU_IOCTL_GET_CPU_TIME_CORRELATION_INFO>(ctrl(), &mut args);
            result.map(|_| args.samples.iter().filter(|s| s.gpu_timestamp != 0).count() as i64)
        };
        assert_eq!(ask(17, 1), EINVAL);
        assert_eq!(ask(1, 0), EINVAL);
        assert_eq!(ask(1, 3), EINVAL);
        assert_eq!(ask(16, 1), Ok(16));
        assert_eq!(ask(3, 2), Ok(3));
    }

    queries_of_the_trace_are_answered {
        let ctrl = ctrl();
        let mut size = 0_u32;
        raw(ctrl, NVGPU_GPU_IOCTL_ZCULL_GET_CTX_SIZE::REQUEST, (&raw mut size) as u64).unwrap();
        assert_eq!(size, 164_352);
        let mut vsms: nvgpu_gpu_num_vsms = zeroed();
        assert_eq!(call::<NVGPU_GPU_IOCTL_NUM_VSMS>(ctrl, &mut vsms), Ok(0));
        let mut map = [nvgpu_gpu_vsms_mapping_entry::zeroed_(); 16];
        let mut args = nvgpu_gpu_vsms_mapping { vsms_map_buf_addr: map.as_mut_ptr() as u64 };
        assert_eq!(call::<NVGPU_GPU_IOCTL_VSMS_MAPPING>(ctrl, &mut args), Ok(0));
        args.vsms_map_buf_addr = 8;
        let left = i64::from(vsms.num_vsms) * 6;
        assert_eq!(call::<NVGPU_GPU_IOCTL_VSMS_MAPPING>(ctrl, &mut args), Ok(left));
        let mut engines = nvgpu_gpu_get_engine_info_args {
            engine_info_buf_size: 0, reserved: 0, engine_info_buf_addr: 8 };
        assert_eq!(call::<NVGPU_GPU_IOCTL_GET_ENGINE_INFO>(ctrl, &mut engines), Ok(0));
        assert!(engines.engine_info_buf_size >= 16);
        let mut range: nvgpu_gpu_clk_range_args = zeroed();
        assert_eq!(call::<NVGPU_GPU_IOCTL_CLK_GET_RANGE>(ctrl, &mut range), Ok(0));
        assert_eq!(range.num_entries, 1);
        let mut points = nvgpu_gpu_clk_vf_points_args { clk_domain: 1, ..zeroed() };
        assert_eq!(call::<NVGPU_GPU_IOCTL_CLK_GET_VF_POINTS>(ctrl, &mut points), Ok(0));
        assert!(points.max_entries > 1);
        let mut time: nvgpu_gpu_get_gpu_time_args = zeroed();
        assert_eq!(call::<NVGPU_GPU_IOCTL_GET_GPU_TIME>(ctrl, &mut time), Ok(0));
        assert_ne!(time.gpu_timestamp, 0);
    }

    alloc_as_big_page_size_must_be_offered {
        assert_eq!(alloc_as(|args| args.big_page_size = 3), EINVAL, "not a power of two");
        assert_eq!(alloc_as(|args| args.big_page_size = 65536), EINVAL, "not offered");
    }

    alloc_as_start_zero_or_unaligned {
        assert_eq!(alloc_as(|args| args.va_range_start = 0), EINVAL);
        assert_eq!(alloc_as(|args| args.va_range_start = 0x20_0001), EINVAL);
        assert_eq!(alloc_as(|args| args.va_range_start = 0x10_0000), EINVAL);
    }

    alloc_as_end_zero_or_unaligned {
        assert_eq!(alloc_as(|args| args.va_range_end = 0), EINVAL);
        assert_eq!(alloc_as(|args| args.va_range_end -= 4096), EINVAL);
    }

    alloc_as_start_not_below_end {
        assert_eq!(alloc_as(|args| args.va_range_start = args.va_range_end), EINVAL);
        assert_eq!(alloc_as(|args| args.va_range_end = 0x20_0000), EINVAL);
    }

    alloc_as_split_without_big_pages {
        assert_eq!(alloc_as(|args| args.va_range_split = 0x40_0000), EINVAL);
        assert_eq!(alloc_as(|args| (args.flags, args.va_range_split) = (0, 1)), EINVAL);
    }

    alloc_as_beyond_the_aperture {
        let end = 1 << 49;
        assert_eq!(alloc_as(|args| args.va_range_end = end), ENOMEM);
        assert_eq!(alloc_as(|args| args.va_range_end = u64::MAX << 21), ENOMEM);
        let mut args = nvgpu_alloc_as_args { va_range_end: end - (4 << 30), ..as_args() };
        assert_eq!(call::<NVGPU_GPU_IOCTL_ALLOC_AS>(ctrl(), &mut args), Ok(0), "just inside");
    }

    alloc_as_unknown_flags_are_ignored {
        let mut args = nvgpu_alloc_as_args { flags: u32::MAX, ..as_args() };
        assert_eq!(call::<NVGPU_GPU_IOCTL_ALLOC_AS>(ctrl(), &mut args), Ok(0));
    }

    open_tsg_share_needs_both_and_no_share_neither {
        let ask = |flags, source, token| {
            let args = nvgpu_gpu_open_tsg_args {
                tsg_fd: 0, flags, source_device_instance_id: source, share_token: token };
            refused::<NVGPU_GPU_IOCTL_OPEN_TSG>(ctrl(), args)
        };
        assert_eq!(ask(0, 1, 0), EINVAL);
        assert_eq!(ask(0, 0, 1), EINVAL);
        assert_eq!(ask(1, 0, 1), EINVAL);
        assert_eq!(ask(1, 1, 0), EINVAL);
        assert_eq!(ask(1, 1, 1), EINVAL, "unknown token");
    }

    open_tsg_by_a_share_token {
        let id = |ctrl| {
            let mut gpu: nvgpu_gpu_characteristics = zeroed();
            let mut args = nvgpu_gpu_get_characteristics {
                gpu_characteristics_buf_size: 328,
                gpu_characteristics_buf_addr: (&raw mut gpu) as u64,
            };
            call::<NVGPU_GPU_IOCTL_GET_CHARACTERISTICS>(ctrl, &mut args).unwrap();
            gpu.device_instance_id
        };
        let (first, second) = (ctrl(), ctrl());
        let group = tsg(first);
        let mut token = nvgpu_tsg_get_share_token_args {
            source_device_instance_id: id(first), target_device_instance_id: id(second), share_token: 0 };
        assert_eq!(call::<NVGPU_TSG_IOCTL_GET_SHARE_TOKEN>(group, &mut token), Ok(0));
        let mut args = nvgpu_gpu_open_tsg_args {
            tsg_fd: 0, flags: 1, source_device_instance_id: id(first), share_token: token.share_token };
        assert_eq!(call::<NVGPU_GPU_IOCTL_OPEN_TSG>(first, &mut args), EINVAL, "not its target");
        assert_eq!(call::<NVGPU_GPU_IOCTL_OPEN_TSG>(second, &mut args), Ok(0));
        let shared = args.tsg_fd as Fd;
        assert_eq!(call::<NVGPU_GPU_IOCTL_OPEN_TSG>(second, &mut args), EINVAL, "once");
        let timeslice = |fd, us| {
            let mut args = nvgpu_timeslice_args { timeslice_us: us, reserved: 0 };
            if us != 0 { call::<NVGPU_IOCTL_TSG_SET_TIMESLICE>(fd, &mut args).unwrap(); }
            call::<NVGPU_IOCTL_TSG_GET_TIMESLICE>(fd, &mut args).unwrap();
            args.timeslice_us
        };
        timeslice(group, 4321);
        assert_eq!(timeslice(shared, 0), 4321, "it is the same group");
    }

    open_tsg_512_are_all {
        let ctrl = ctrl();
        let all: Vec<Fd> = (0..512).map(|_| tsg(ctrl)).collect();
        assert_eq!(refused::<NVGPU_GPU_IOCTL_OPEN_TSG>(ctrl, zeroed()), ENOMEM);
        close(all[17]);
        tsg(ctrl);
    }

    open_channel_runlists {
        let ctrl = ctrl();
        assert!(open_channel(ctrl, -1).is_ok());
        assert!(open_channel(ctrl, 0).is_ok());
        assert_eq!(open_channel(ctrl, 77), Err(libc::EINVAL));
    }

    open_channel_512_are_all {
        let ctrl = ctrl();
        let all: Vec<Fd> = (0..512).map(|_| channel(ctrl)).collect();
        assert_eq!(open_channel(ctrl, -1), Err(libc::ENOMEM));
        close(all[100]);
        channel(ctrl);
    }

    descriptors_of_calls_close_at_exec {
        let ctrl = ctrl();
        for fd in [space(ctrl), tsg(ctrl), channel(ctrl), buffer(nvmap(), 4096)] {
            assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFD) }, libc::FD_CLOEXEC);
        }
        let open = open_with("/dev/nvmap", libc::O_RDWR).unwrap();
        assert_eq!(unsafe { libc::fcntl(open, libc::F_GETFD) }, 0);
    }

    register_buffer_sizes_and_controls {
        let ctrl = ctrl();
        let fd = buffer(nvmap(), 4096);
        let args = nvgpu_gpu_register_buffer_args { dmabuf_fd: fd, ..zeroed() };
        let ask = |args| refused::<NVGPU_GPU_IOCTL_REGISTER_BUFFER>(ctrl, args);
        assert_eq!(ask(nvgpu_gpu_register_buffer_args { metadata_size: 257, dmabuf_fd: 99, ..args }), EINVAL);
        assert_eq!(ask(nvgpu_gpu_register_buffer_args { comptags_alloc_control: 3, ..args }), EINVAL);
        assert_eq!(ask(nvgpu_gpu_register_buffer_args { dmabuf_fd: 99, ..args }), EBADF);
        assert_eq!(ask(nvgpu_gpu_register_buffer_args { dmabuf_fd: ctrl, ..args }), EINVAL);
        assert_eq!(ask(nvgpu_gpu_register_buffer_args { metadata_size: 8, metadata_addr: 8, ..args }), EFAULT);
    }

    register_buffer_twice {
        let ctrl = ctrl();
        let fd = buffer(nvmap(), 4096);
        let mut args = nvgpu_gpu_register_buffer_args { dmabuf_fd: fd, ..zeroed() };
        assert_eq!(call::<NVGPU_GPU_IOCTL_REGISTER_BUFFER>(ctrl, &mut args), Ok(0));
        let again = |flags, size| {
            let mut args = nvgpu_gpu_register_buffer_args {
                dmabuf_fd: fd, flags, metadata_addr: 8, metadata_size: size, ..zeroed() };
            call::<NVGPU_GPU_IOCTL_REGISTER_BUFFER>(ctrl, &mut args)
        };
        assert_eq!(again(0, 0), EINVAL, "without MODIFY");
        assert_eq!(again(4, 8), EINVAL, "immutable, before the pointer is looked at");
        let fd = buffer(nvmap(), 4096);
        let mut args = nvgpu_gpu_register_buffer_args { dmabuf_fd: fd, flags: 2, ..zeroed() };
        assert_eq!(call::<NVGPU_GPU_IOCTL_REGISTER_BUFFER>(ctrl, &mut args), Ok(0));
        args.flags = 6;
        assert_eq!(call::<NVGPU_GPU_IOCTL_REGISTER_BUFFER>(ctrl, &mut args), Ok(0), "mutable");
    }

    set_deterministic_opts {
        let (bound, ring, userd) = ready();
        let plain = channel(bound.ctrl);
        let mut fds = [bound.channel, plain];
        let ask = |num_channels, channels: u64| {
            let mut args = nvgpu_gpu_set_deterministic_opts_args { num_channels, flags: 1, channels };
            call::<NVGPU_GPU_IOCTL_SET_DETERMINISTIC_OPTS>(bound.ctrl, &mut args)
        };
        assert_eq!(ask(513, 8), EINVAL);
        assert_eq!(ask(1, 8), EFAULT);
        assert_eq!(ask(1, fds.as_mut_ptr() as u64), EINVAL, "not deterministic yet");
        setup(bound.channel, ring, userd).unwrap();
        assert_eq!(ask(1, fds.as_mut_ptr() as u64), Ok(0));
        assert_eq!(ask(2, fds.as_mut_ptr() as u64), EINVAL);
    }

    doorbell_is_mapped_once_per_open_file {
        let ctrl = ctrl();
        let first = mmap(ctrl, 0x1_0000, 0).unwrap();
        assert_eq!(mmap(ctrl, 0x1_0000, 0).err(), Some(libc::EBUSY));
        assert_eq!(mmap(ctrl, 0x2_0000, 4096).err(), Some(libc::EBUSY), "before the size");
        let same = unsafe { libc::dup(ctrl) };
        assert_eq!(mmap(same, 4096, 0).err(), Some(libc::EBUSY), "dup is the same file");
        drop(first);
        assert!(mmap(ctrl, 4096, 0).is_ok(), "after munmap");
        let other = crate::client::ctrl();
        let _first = mmap(ctrl, 4096, 0).unwrap();
        assert!(mmap(other, 4096, 0).is_ok(), "another open has its own");
    }

    doorbell_length_and_offset {
        let ctrl = ctrl();
        assert_eq!(mmap(ctrl, 0x1_0001, 0).err(), Some(libc::EINVAL));
        assert_eq!(mmap(ctrl, 4096, 4096).err(), Some(libc::EINVAL));
        assert!(mmap(ctrl, 4096, 0).is_ok(), "shorter is legal");
    }

    timer_runs_in_the_mapped_region {
        let region = mmap(ctrl(), 4096, 0).unwrap();
        let time = || u64::from(region.read(0x84)) << 32 | u64::from(region.read(0x80));
        std::thread::sleep(std::time::Duration::from_millis(20));
        let first = time();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(time() > first, "{first}");
    }
}

trait Zeroed {
    fn zeroed_() -> Self;
}

impl Zeroed for nvgpu_gpu_vsms_mapping_entry {
    fn zeroed_() -> Self {
        zeroed()
    }
}
