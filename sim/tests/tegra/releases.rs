//! Section 9: what other releases have otherwise than r36.

use nvabi::call::Ioctl;
use nvabi::driver::Record;
use nvabi::tegra::abi::{v32_7_1, v35_4_1};

use crate::client::*;
use crate::simulate_on;

/// Tests whose bodies run as clients of a release.
macro_rules! of_release {
    ($($release:literal: $name:ident $body:block)*) => {
        $(
            #[test]
            fn $name() {
                let name = concat!(module_path!(), "::", stringify!($name));
                simulate_on($release, name, &[], || $body);
            }
        )*
    };
}

/// The size that the driver tells, and the characteristics.
fn characteristics(ctrl: Fd) -> (u64, [u8; 512]) {
    let mut bytes = [0; 512];
    let mut args = nvgpu_gpu_get_characteristics {
        gpu_characteristics_buf_size: 512,
        gpu_characteristics_buf_addr: bytes.as_mut_ptr() as u64,
    };
    assert_eq!(call::<NVGPU_GPU_IOCTL_GET_CHARACTERISTICS>(ctrl, &mut args), Ok(0));
    (args.gpu_characteristics_buf_size, bytes)
}

fn ctrl_of_r32() -> Fd {
    open("/dev/nvhost-ctrl-gpu").unwrap()
}

/// Whether a request is one that the node has.
fn is_known(fd: Fd, request: u32) -> bool {
    raw(fd, request, edge(512)) != ENOTTY
}

#[test]
fn requests_of_another_release_are_told() {
    let name = concat!(module_path!(), "::requests_of_another_release_are_told");
    let report = simulate_on("r35.4", name, &[], || {
        let (ctrl, nvmap) = (ctrl(), nvmap());
        let refuse = |fd, request| assert!(raw(fd, request, edge(512)).is_err());
        refuse(nvmap, NVMAP_IOC_ALLOC::REQUEST);
        refuse(channel(ctrl), NVGPU_IOCTL_CHANNEL_SETUP_BIND::REQUEST);
        refuse(ctrl, request(3, b'G', 99, 8));
        let mut args = v35_4_1::nvgpu_gpu_open_tsg_args::zeroed();
        call::<v35_4_1::ioctl::NVGPU_GPU_IOCTL_OPEN_TSG>(ctrl, &mut args).unwrap();
        refuse(args.tsg_fd as Fd, NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT::REQUEST);
        // What is wrong with a right request is no other release's.
        refuse(nvmap, v35_4_1::ioctl::NVMAP_IOC_ALLOC::REQUEST);
    });
    let told: Vec<&str> = report
        .diagnostics
        .iter()
        .filter(|it| it.code == "unknown-call")
        .map(|it| &*it.text)
        .collect();
    assert_eq!(
        told,
        [
            "NVMAP_IOC_ALLOC of r36.4.3 has 20 bytes (0x40144e03), r35.4.1 has 16 (0x40104e03)",
            "NVGPU_IOCTL_CHANNEL_SETUP_BIND of r36.4.3 has 104 bytes (0xc0684880), r35.4.1 has 80 (0xc0504880)",
            "0xc0084763 is no request of ctrl in any release",
            "NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT (0xc0105412) is a request of tsg in r36.4.3; r35.4.1 has none",
        ]
    );
}

of_release! {
    "r35.3": characteristics_before_emc_en_mask {
        let (size, bytes) = characteristics(ctrl());
        assert_eq!((size, &bytes[148..153]), (312, &b"ga10b"[..]));
        assert_eq!(bytes[312..], [0; 200], "nothing behind them");
    }

    "r35.4": characteristics_with_emc_en_mask {
        let (size, bytes) = characteristics(ctrl());
        assert_eq!((size, &bytes[152..157]), (312, &b"ga10b"[..]));
    }

    "r32.7": characteristics_of_r32 {
        let (size, bytes) = characteristics(ctrl_of_r32());
        assert_eq!((size, bytes[256..].iter().any(|byte| *byte != 0)), (256, false));
        let found: v32_7_1::nvgpu_gpu_characteristics =
            unsafe { bytes.as_ptr().cast::<v32_7_1::nvgpu_gpu_characteristics>().read_unaligned() };
        assert_eq!((found.arch, found.compute_class, found.L2_cache_size), (0x170, 0xC7C0, 4 << 20));
        assert_eq!(&found.chipname[..5], b"ga10b");
    }

    "r35.4": requests_have_the_sizes_of_their_release {
        let (ctrl, nvmap) = (ctrl(), nvmap());
        assert!(!is_known(ctrl, NVGPU_GPU_IOCTL_OPEN_TSG::REQUEST), "24 bytes");
        assert!(is_known(ctrl, v35_4_1::ioctl::NVGPU_GPU_IOCTL_OPEN_TSG::REQUEST), "8 bytes");
        assert!(!is_known(nvmap, NVMAP_IOC_ALLOC::REQUEST), "20 bytes");
        assert!(is_known(nvmap, v35_4_1::ioctl::NVMAP_IOC_ALLOC::REQUEST), "16 bytes");
        let channel = channel(ctrl);
        let oversized = NVGPU_IOCTL_CHANNEL_SETUP_BIND::REQUEST;
        assert_eq!(raw(channel, oversized, edge(512)), EINVAL, "104 bytes are more than any has");
        let mut args = v35_4_1::nvgpu_gpu_open_tsg_args::zeroed();
        call::<v35_4_1::ioctl::NVGPU_GPU_IOCTL_OPEN_TSG>(ctrl, &mut args).unwrap();
        let create = NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT::REQUEST;
        assert_eq!(raw(args.tsg_fd as Fd, create, edge(512)), EINVAL, "a number past the last");
    }

    "r35.4": a_channel_is_set_up_in_80_bytes {
        let (ctrl, nvmap) = (ctrl(), nvmap());
        let (space, channel) = (space(ctrl), channel(ctrl));
        let mut group = v35_4_1::nvgpu_gpu_open_tsg_args::zeroed();
        call::<v35_4_1::ioctl::NVGPU_GPU_IOCTL_OPEN_TSG>(ctrl, &mut group).unwrap();
        bind_space(space, channel).unwrap();
        assert_eq!(bind_tsg(group.tsg_fd as Fd, channel, 7), Ok(0), "no subcontext is created");
        watchdog(channel, 1).unwrap();
        let allocate = |size| {
            let handle = create(nvmap, size).unwrap();
            let mut args = v35_4_1::nvmap_alloc_handle { handle, heap_mask: IOVMM, flags: 0x900 << 16, align: 4096 };
            call::<v35_4_1::ioctl::NVMAP_IOC_ALLOC>(nvmap, &mut args).unwrap();
            get_fd(nvmap, handle).unwrap()
        };
        let (ring, userd) = (allocate(8192), allocate(4096));
        let mut args = v35_4_1::nvgpu_channel_setup_bind_args::zeroed();
        (args.num_gpfifo_entries, args.flags) = (1024, 0xA);
        (args.gpfifo_dmabuf_fd, args.userd_dmabuf_fd) = (ring, userd);
        let end = edge(size_of_val(&args)) as *mut v35_4_1::nvgpu_channel_setup_bind_args;
        unsafe { end.write(args) };
        let request = v35_4_1::ioctl::NVGPU_IOCTL_CHANNEL_SETUP_BIND::REQUEST;
        assert_eq!(raw(channel, request, end as u64), Ok(0), "not a byte more is touched");
        let done = unsafe { end.read() };
        assert_eq!((done.work_submit_token, done.num_gpfifo_entries), (511, 1024));
    }

    "r35.4": kinds_may_be_given_outright {
        let (ctrl, nvmap) = (ctrl(), nvmap());
        let space = space(ctrl);
        let handle = create(nvmap, 4096).unwrap();
        let mut args = v35_4_1::nvmap_alloc_handle { handle, heap_mask: IOVMM, flags: 0x900 << 16, align: 4096 };
        call::<v35_4_1::ioctl::NVMAP_IOC_ALLOC>(nvmap, &mut args).unwrap();
        let fd = get_fd(nvmap, handle).unwrap();
        let map = |flags| {
            let mut args = nvgpu_as_map_buffer_ex_args { flags, ..map_args(fd) };
            call::<NVGPU_AS_IOCTL_MAP_BUFFER_EX>(space, &mut args)
        };
        assert_eq!(map(1 << 4 | 1 << 8), Ok(0));
        assert_eq!(map(1 << 13), EINVAL);
    }

    "r32.7": nodes_and_handles_of_r32 {
        assert_eq!(open("/dev/nvgpu/igpu0/ctrl"), Err(libc::ENOENT));
        assert_eq!(open("/dev/host1x-fence"), Err(libc::ENOENT));
        let nvmap = nvmap();
        let handle = create(nvmap, 4096).unwrap();
        assert!(is_open(handle as Fd), "a handle is a descriptor");
        let mut args = v32_7_1::nvmap_alloc_handle { handle, heap_mask: IOVMM, flags: 0x900 << 16, align: 4096 };
        assert_eq!(call::<v32_7_1::ioctl::NVMAP_IOC_ALLOC>(nvmap, &mut args), Ok(0));
        let other = get_fd(nvmap, handle).unwrap();
        assert_ne!(other, handle as Fd);
        assert_eq!(free(nvmap, handle), Ok(0));
        assert!(!is_open(handle as Fd), "which FREE closes");
        assert!(mmap(other, 4096, 0).is_ok());
        let unwritable = edge(8);
        let page = (unwritable & !4095) as *mut libc::c_void;
        unsafe {
            (unwritable as *mut u32).write(4096);
            libc::mprotect(page, 4096, libc::PROT_READ);
        }
        let next = unsafe { libc::dup(nvmap) };
        close(next);
        assert_eq!(raw(nvmap, NVMAP_IOC_CREATE::REQUEST, unwritable), EFAULT);
        assert!(!is_open(next), "one that cannot be told is never made");
    }

    "r32.7": own_pages_of_r32 {
        let (nvmap, pages) = (nvmap(), own_pages(1));
        let handle = from_va(nvmap, pages.at(0), (4096, 0), 0x900 << 16).unwrap();
        assert!(is_open(handle as Fd), "a handle is a descriptor");
        assert_eq!(free(nvmap, handle), Ok(0));
        assert!(!is_open(handle as Fd));
    }

    "r32.7": address_spaces_of_r32 {
        let ctrl = ctrl_of_r32();
        let mut args = v32_7_1::nvgpu_alloc_as_args::zeroed();
        assert_eq!(call::<v32_7_1::ioctl::NVGPU_GPU_IOCTL_ALLOC_AS>(ctrl, &mut args), Ok(0), "16 bytes");
        let space = args.as_fd;
        let mut args = v32_7_1::nvgpu_as_alloc_space_args::zeroed();
        (args.pages, args.page_size, args.flags) = (16, 4096, 1);
        args.o_a.offset = 0x1000_0000;
        fn reserve(space: Fd, args: &mut v32_7_1::nvgpu_as_alloc_space_args) -> Result {
            call::<v32_7_1::ioctl::NVGPU_AS_IOCTL_ALLOC_SPACE>(space, args)
        }
        assert_eq!(reserve(space, &mut args), Ok(0), "24 bytes");
        assert_eq!((args.pages, unsafe { args.o_a.offset }), (16, 0x1000_0000));
        assert_eq!(reserve(space, &mut args), ENOMEM, "it is taken");
        args.flags = 0;
        assert_eq!(reserve(space, &mut args), Ok(0));
        assert_ne!(unsafe { args.o_a.offset }, 0x1000_0000);
    }
}

#[test]
fn calls_of_other_releases_are_reported() {
    let name = concat!(module_path!(), "::calls_of_other_releases_are_reported");
    let report = simulate_on("r32.7", name, &[], || {
        let pin = v32_7_1::ioctl::NVMAP_IOC_PIN_MULT::REQUEST;
        assert_eq!(raw(nvmap(), pin, edge(64)), Err(libc::ENOSYS));
    });
    let told = report.diagnostics.iter().find(|d| d.code == "not-simulated");
    assert!(told.is_some_and(|told| told.text.contains("NVMAP_IOC_PIN_MULT")), "{report}");
}
