//! Memory of a GPU as a dma-buf.

use libc::{EINVAL, O_RDWR};

use crate::client::status::*;
use crate::client::*;
use crate::{rules, simulate};

const RECORD: &str = "nv_ioctl_export_to_dma_buf_fd_t";
const NEW: u64 = u32::MAX as u64;
const PAGE: u64 = 4096;
/// What the kernel says of a mapping that its driver does not make.
const ENOTSUPP: i32 = 524;

/// A client, the file of its GPU, its device, and some pages of the GPU's memory.
struct Exporter {
    client: Client,
    gpu: Fd,
    device: u32,
    subdevice: u32,
    memory: u32,
}

impl Exporter {
    fn new(pages: u64) -> Self {
        let (client, device, subdevice) = Client::with_device();
        let gpu = open("/dev/nvidia0").unwrap();
        let params = &mut memory_params(VIDEO_MEMORY, pages * PAGE);
        let memory = client.alloc(device, VIDEO_MEMORY, Some(params)).unwrap();
        Self { client, gpu, device, subdevice, memory }
    }

    /// A call about one part of a dma-buf of one part.
    fn args(&self, pages: u64) -> Struct {
        Struct::new(RECORD)
            .with("fd", NEW)
            .with("hClient", self.client.handle.into())
            .with("totalObjects", 1)
            .with("numObjects", 1)
            .with("totalSize", pages * PAGE)
            .with("handles[0]", self.memory.into())
            .with("sizes[0]", pages * PAGE)
            .with("status", 0xdead)
    }

    /// KiB of the GPU's memory that nobody has: HEAP_FREE.
    fn free_memory(&self) -> u64 {
        let params = &mut Struct::new("NV2080_CTRL_FB_GET_INFO_V2_PARAMS")
            .with("fbInfoListSize", 1)
            .with("fbInfoList[0].index", 22);
        let name = "NV2080_CTRL_CMD_FB_GET_INFO_V2";
        assert_eq!(self.client.control(self.subdevice, name, params), OK);
        params.get("fbInfoList[0].data")
    }

    /// The status of a call, and the descriptor where it is a success.
    fn export(&self, args: &Struct) -> Result<Fd, u32> {
        let mut args = args.clone();
        assert_eq!(escape(self.gpu, 217, &mut args), Ok(()));
        match args.get("status") as u32 {
            OK => Ok(args.get("fd") as Fd),
            status => Err(status),
        }
    }
}

fn size_of(fd: Fd) -> i64 {
    unsafe { libc::lseek(fd, 0, libc::SEEK_END) }
}

/// KiB that the simulator has in memory: it is the parent of this process.
fn simulator_memory() -> u64 {
    let path = format!("/proc/{}/status", std::os::unix::process::parent_id());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

rules! {
    memory_of_a_gpu_is_handed_on {
        let exporter = Exporter::new(4);
        let fd = exporter.export(&exporter.args(4)).unwrap();
        assert_eq!(size_of(fd), 4 * PAGE as i64);
        let flags = unsafe { (libc::fcntl(fd, libc::F_GETFL), libc::fcntl(fd, libc::F_GETFD)) };
        assert_eq!((flags.0 & libc::O_ACCMODE, flags.1), (O_RDWR, libc::FD_CLOEXEC));
        let mapped = unsafe {
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, fd, 0)
        };
        assert_eq!((mapped, errno()), (libc::MAP_FAILED, ENOTSUPP), "the CPU does not see it");
        // DMA_BUF_IOCTL_SYNC, and no other.
        assert_eq!(raw(fd, 0x4008_6200, &mut [0; 8]), Ok(()));
        assert_eq!(raw(fd, 0x4008_6207, &mut [0; 8]), Err(libc::ENOTTY));
    }

    a_dma_buf_keeps_its_memory {
        let exporter = Exporter::new(256);
        let before = exporter.free_memory();
        let fd = exporter.export(&exporter.args(256)).unwrap();
        assert_eq!(exporter.client.free(exporter.memory), OK);
        assert_eq!(exporter.free_memory(), before);
        unsafe { libc::close(fd) };
        // That nobody has it open is noticed a moment later.
        let is_back = |_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            exporter.free_memory() == before + 1024
        };
        assert!((0..500).any(is_back));
    }

    parts_that_may_come_take_no_memory {
        const FILES: u64 = 64;
        let exporter = Exporter::new(1);
        let args = exporter.args(1).with("totalObjects", 1 << 16).with("totalSize", 2 * PAGE);
        let before = simulator_memory();
        let files: Vec<Fd> = (0..FILES).map(|_| exporter.export(&args).unwrap()).collect();
        let grown = simulator_memory().saturating_sub(before);
        assert!(grown < FILES * 256, "{grown} KiB for {FILES} files of 65,536 parts");
        // Any of them can come.
        let last = args.with("fd", files[0] as u64).with("index", (1 << 16) - 1);
        assert_eq!(exporter.export(&last), Ok(files[0]));
        assert_eq!(exporter.export(&last), Err(IN_USE));
    }

    calls_are_on_the_file_of_a_gpu {
        let exporter = Exporter::new(1);
        assert_eq!(escape(exporter.client.fd, 217, &mut exporter.args(1)), Err(EINVAL));
        let bytes = exporter.args(1).bytes;
        let short = &mut bytes[..bytes.len() - 8].to_vec();
        assert_eq!(raw(exporter.gpu, request(217, short.len()), short), Err(EINVAL));
    }

    what_is_asked_for_must_fit {
        let exporter = Exporter::new(4);
        let refused = |field: &str, value: u64| exporter.export(&exporter.args(4).with(field, value));
        for (field, value, status) in [
            ("fd", u64::from(u32::MAX - 1), INVALID_ARGUMENT),
            ("totalSize", 0, INVALID_ARGUMENT),
            ("totalSize", 3 * PAGE, INVALID_ARGUMENT),
            ("totalObjects", 0, INVALID_ARGUMENT),
            ("numObjects", 0, INVALID_ARGUMENT),
            ("numObjects", 2, INVALID_ARGUMENT),
            ("index", 1, INVALID_ARGUMENT),
            ("offsets[0]", 1, INVALID_ARGUMENT),
            ("offsets[0]", 16 * PAGE, INVALID_ARGUMENT),
            ("offsets[0]", u64::MAX - PAGE + 1, INVALID_ARGUMENT),
            ("sizes[0]", 0, INVALID_ARGUMENT),
            ("sizes[0]", PAGE - 1, INVALID_ARGUMENT),
            ("handles[0]", 0x999, OBJECT_NOT_FOUND),
            ("handles[0]", exporter.device.into(), INVALID_OBJECT),
        ] {
            assert_eq!(refused(field, value), Err(status), "{field} {value:#x}");
        }
        let many = exporter.args(4).with("totalObjects", 200).with("numObjects", 129);
        assert_eq!(exporter.export(&many), Err(INVALID_ARGUMENT), "128 parts in one call");
        assert!(refused("hClient", 0x999).is_err());
    }

    memory_of_the_system_is_none_of_a_gpu {
        let mut exporter = Exporter::new(1);
        let params = &mut memory_params(SYSTEM_MEMORY, PAGE);
        exporter.memory = exporter.client.alloc(exporter.device, SYSTEM_MEMORY, Some(params)).unwrap();
        assert_eq!(exporter.export(&exporter.args(1)), Err(INVALID_ARGUMENT));
    }

    parts_come_one_after_the_other {
        let exporter = Exporter::new(4);
        let part = |fd: u64, index: u64, pages: u64| {
            let args = exporter.args(2).with("fd", fd).with("totalObjects", 2).with("totalSize", 4 * PAGE);
            args.with("index", index).with("offsets[0]", index * PAGE).with("sizes[0]", pages * PAGE)
        };
        let fd = exporter.export(&part(NEW, 0, 3)).unwrap();
        assert_eq!(size_of(fd), 4 * PAGE as i64);
        let add = |index, pages| exporter.export(&part(fd as u64, index, pages));
        assert_eq!(add(0, 1), Err(IN_USE));
        assert_eq!(add(2, 1), Err(INVALID_ARGUMENT), "there are two parts");
        assert_eq!(add(1, 2), Err(INVALID_ARGUMENT), "one page is left");
        assert_eq!(add(1, 1), Ok(fd));
        assert_eq!(add(1, 1), Err(IN_USE));
        let other = exporter.args(1).with("fd", exporter.gpu as u64);
        assert_eq!(exporter.export(&other), Err(OPERATING_SYSTEM), "no dma-buf");
        assert_eq!(exporter.export(&other.with("fd", 9999)), Err(OPERATING_SYSTEM));
    }

    a_call_that_fails_adds_nothing {
        let exporter = Exporter::new(4);
        let two = |second: u64| {
            let args = exporter.args(1).with("totalObjects", 2).with("numObjects", 2).with("totalSize", 2 * PAGE);
            args.with("handles[1]", exporter.memory.into()).with("sizes[1]", second)
        };
        assert_eq!(exporter.export(&two(1)), Err(INVALID_ARGUMENT));
        let one = two(0).with("numObjects", 1).with("index", 1);
        let fd = exporter.export(&one).unwrap() as u64;
        let fails = two(1).with("fd", fd).with("totalObjects", 2);
        assert!(exporter.export(&fails).is_err());
        assert_eq!(exporter.export(&one.with("fd", fd).with("index", 0)), Ok(fd as Fd), "the first is free yet");
    }

    mappings_are_those_of_machines_that_have_them {
        let exporter = Exporter::new(1);
        let refused = |field: &str, value: u64| exporter.export(&exporter.args(1).with(field, value));
        if is_since(&[570, 86, 15]) {
            assert_eq!(refused("mappingType", 1), Err(NOT_SUPPORTED));
            assert_eq!(refused("mappingType", 2), Err(INVALID_ARGUMENT));
        }
        if is_since(&[580, 65, 6]) {
            assert_eq!(refused("bAllowMmap", 1), Err(NOT_SUPPORTED));
            let fd = exporter.export(&exporter.args(1).with("totalObjects", 2).with("totalSize", 2 * PAGE)).unwrap();
            let more = exporter.args(1).with("fd", fd as u64).with("index", 1);
            assert_eq!(exporter.export(&more.clone().with("bAllowMmap", 1)), Err(INVALID_ARGUMENT));
            assert_eq!(exporter.export(&more), Ok(fd));
        }
    }
}

/// The memory is of the GPU whose file the call is made on.
#[test]
fn a_gpu_exports_its_own_memory() {
    let name = "rm_sim::dma_buf::a_gpu_exports_its_own_memory";
    simulate(name, "550.163.01", &["--gpus", "2"], || {
        let exporter = Exporter::new(1);
        let other = Exporter { gpu: open("/dev/nvidia1").unwrap(), ..Exporter::new(1) };
        assert_eq!(other.export(&other.args(1)), Err(INVALID_OBJECT_PARENT));
        // Nor does a part of another GPU's memory get into a dma-buf.
        let args = exporter.args(1).with("totalObjects", 2).with("totalSize", 2 * PAGE);
        let fd = exporter.export(&args).unwrap();
        let more = args.with("fd", fd as u64).with("index", 1);
        let (device, _) = exporter.client.device(1);
        let params = &mut memory_params(VIDEO_MEMORY, PAGE);
        let theirs = exporter.client.alloc(device, VIDEO_MEMORY, Some(params)).unwrap();
        let refused = exporter.export(&more.clone().with("handles[0]", theirs.into()));
        assert_eq!(refused, Err(INVALID_OBJECT_PARENT));
        assert_eq!(exporter.export(&more), Ok(fd));
    });
}
