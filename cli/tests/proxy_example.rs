//! The example of a proxy: with a stub in the place of the system, and with two processes, one of them
//! on a simulated driver.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use nvabi::call::{Class, Frontend, Request, Uvm};
use nvabi::driver::{AnyDriver, Record};
use nvabi::r550::{
    NVC637_ALLOCATION_PARAMETERS, NVOS21_PARAMETERS, NVOS54_PARAMETERS, class, frontend,
    nv_ioctl_export_to_dma_buf_fd_t, nv_ioctl_nvos02_parameters_with_fd, nv_ioctl_register_fd_t,
    nv_ioctl_rm_api_version_t, uvm,
};
use nvabi::{Handle, P64};

#[path = "../../examples/proxy.rs"]
mod proxy;

use proxy::{Kernel, Piece, Remote, serve};

test_main!();

/// A system that knows a few ioctls. Each device is a file of its own.
struct Stub;

/// What a stub says of an ioctl that it does not know.
const UNKNOWN: i32 = -libc::ENOTTY;

impl Kernel for Stub {
    fn open(&self, path: &Path, takes_ioctls: bool) -> io::Result<OwnedFd> {
        match (path.to_str(), takes_ioctls) {
            (Some("/dev/nvidiactl" | "/dev/nvidia0" | "/dev/nvidia-uvm"), true)
            | (Some("/dev/nvidia-caps/nvidia-cap3"), false) => Ok(tempfile::tempfile()?.into()),
            _ => Err(io::Error::from_raw_os_error(libc::ENODEV)),
        }
    }

    fn ioctl(&self, fd: RawFd, request: u32, argument: *mut u8) -> i32 {
        // SAFETY: the argument is a message's part, as long as the request says.
        unsafe {
            match u32::from(Request(request).nr()) {
                frontend::NV_ESC_RM_ALLOC::NR => {
                    let call = &mut *argument.cast::<NVOS21_PARAMETERS>();
                    call.hObjectNew = Handle(0xc1d0_0001);
                    if call.hClass == class::AMPERE_SMC_PARTITION_REF::CLASS {
                        let params =
                            &mut *(call.pAllocParms.0 as *mut NVC637_ALLOCATION_PARAMETERS);
                        let right = BorrowedFd::borrow_raw(params.capDescriptor as RawFd);
                        params.swizzId = inode(right).1 as u32;
                    }
                    0
                }
                frontend::NV_ESC_RM_CONTROL::NR => control(&mut *argument.cast()),
                frontend::NV_ESC_RM_FREE::NR => 0,
                frontend::NV_ESC_RM_ALLOC_MEMORY::NR => {
                    let call = &mut *argument.cast::<nv_ioctl_nvos02_parameters_with_fd>();
                    let (at, length) = (call.params.pMemory.0, call.params.limit as usize + 1);
                    std::slice::from_raw_parts_mut(at as *mut u8, length).make_ascii_uppercase();
                    0
                }
                frontend::NV_ESC_REGISTER_FD::NR => {
                    let ctl = (*argument.cast::<nv_ioctl_register_fd_t>()).ctl_fd;
                    // The number is one of this process, and another device's.
                    let same =
                        inode(BorrowedFd::borrow_raw(ctl)) == inode(BorrowedFd::borrow_raw(fd));
                    if ctl != fd && !same { ctl } else { UNKNOWN }
                }
                frontend::NV_ESC_EXPORT_TO_DMABUF_FD::NR => {
                    let call = &mut *argument.cast::<nv_ioctl_export_to_dma_buf_fd_t>();
                    let made = tempfile::tempfile().unwrap();
                    call.totalSize = made.metadata().unwrap().ino();
                    call.fd = made.into_raw_fd();
                    0
                }
                frontend::NV_ESC_CHECK_VERSION_STR::NR => {
                    let call = &mut *argument.cast::<nv_ioctl_rm_api_version_t>();
                    call.versionString[..9].copy_from_slice(b"550.90.07");
                    -libc::EINVAL
                }
                _ => UNKNOWN,
            }
        }
    }
}

/// NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION: three strings into the memory of the caller.
fn control(call: &mut NVOS54_PARAMETERS) -> i32 {
    type Version = nvabi::r550::NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_PARAMS;
    assert_eq!((call.cmd, call.paramsSize as usize), (0x101, size_of::<Version>()));
    // SAFETY: the command's parameters lie in the message, as many bytes as was just looked at.
    let version = unsafe { &mut *(call.params.0 as *mut Version) };
    let pointers = [version.pDriverVersionBuffer, version.pVersionBuffer, version.pTitleBuffer];
    for (pointer, text) in pointers.into_iter().zip([&b"1.2.3"[..], b"branch", b"title"]) {
        assert!(version.sizeOfStrings as usize > text.len());
        // SAFETY: each string lies in the message and has sizeOfStrings bytes.
        unsafe { std::ptr::copy(text.as_ptr(), pointer.0 as *mut u8, text.len()) };
    }
    0
}

fn inode(fd: BorrowedFd<'_>) -> (u64, u64) {
    let file = File::from(fd.try_clone_to_owned().unwrap());
    let metadata = file.metadata().unwrap();
    (metadata.dev(), metadata.ino())
}

/// A client of a stub.
fn with_stub(client: impl FnOnce(&mut Remote)) {
    let driver = AnyDriver::for_version("550.90.07").unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    let served = thread::spawn(move || serve(there, driver, &Stub).map_err(|e| e.to_string()));
    client(&mut Remote::connect(here).unwrap());
    assert_eq!(served.join().unwrap(), Ok(()));
}

fn request<F: Frontend, P>() -> u32 {
    3 << 30 | (size_of::<P>() as u32) << 16 | u32::from(b'F') << 8 | F::NR
}

#[test]
fn calls_of_the_example_reach_the_system_and_come_back() {
    with_stub(|remote| {
        let mut output = Vec::new();
        proxy::ask(remote, &mut output).unwrap();
        assert_eq!(
            String::from_utf8(output).unwrap(),
            "driver 550.90.07\n\
             client true: status 0x0\n\
             version 1.2.3: status 0x0\n\
             unknown command: control command 0x12345678 is unknown, and so is what it points to\n\
             freed: status 0x0\n"
        );
    });
}

#[test]
fn file_descriptors_are_the_devices_over_there() {
    with_stub(|remote| {
        let ctl = remote.open("/dev/nvidiactl").unwrap();
        let gpu = remote.open("/dev/nvidia0").unwrap();
        let mut call = nv_ioctl_register_fd_t { ctl_fd: ctl.as_raw_fd() };
        let number = request::<frontend::NV_ESC_REGISTER_FD, nv_ioctl_register_fd_t>();
        let done = remote.ioctl(gpu.as_fd(), number, &raw mut call as u64).unwrap();
        assert_eq!((done > 0, call.ctl_fd), (true, ctl.as_raw_fd()));
    });
}

/// A right to use an instance of MIG is a file, which goes along with the call that names it.
#[test]
fn rights_are_the_files_over_there() {
    with_stub(|remote| {
        let ctl = remote.open("/dev/nvidiactl").unwrap();
        let right = remote.open("/dev/nvidia-caps/nvidia-cap3").unwrap();
        let number = right.as_raw_fd() as u64;
        let mut params = NVC637_ALLOCATION_PARAMETERS { capDescriptor: number, ..Record::zeroed() };
        let mut call = NVOS21_PARAMETERS {
            hClass: class::AMPERE_SMC_PARTITION_REF::CLASS,
            pAllocParms: P64(&raw mut params as u64),
            paramsSize: size_of_val(&params) as u32,
            ..Record::zeroed()
        };
        let request = request::<frontend::NV_ESC_RM_ALLOC, NVOS21_PARAMETERS>();
        remote.ioctl(ctl.as_fd(), request, &raw mut call as u64).unwrap();
        assert_eq!(params.swizzId, inode(right.as_fd()).1 as u32);
        assert_eq!(params.capDescriptor, number);
        // It takes no calls itself, and others are not opened.
        let refused = error_text(remote.ioctl(right.as_fd(), request, &raw mut call as u64));
        assert_eq!(refused, "Invalid argument (os error 22)");
        for other in ["", "x", "-1", "3/../../nvidia0"] {
            let refused = error_text(remote.open(&format!("/dev/nvidia-caps/nvidia-cap{other}")));
            assert_eq!(refused, "Permission denied (os error 13)", "{other}");
        }
    });
}

#[test]
fn a_file_descriptor_that_the_driver_makes_arrives() {
    with_stub(|remote| {
        let ctl = remote.open("/dev/nvidiactl").unwrap();
        let mut call = nv_ioctl_export_to_dma_buf_fd_t { fd: -1, ..Record::zeroed() };
        let number =
            request::<frontend::NV_ESC_EXPORT_TO_DMABUF_FD, nv_ioctl_export_to_dma_buf_fd_t>();
        remote.ioctl(ctl.as_fd(), number, &raw mut call as u64).unwrap();
        // SAFETY: the call made it for this process.
        let made = unsafe { OwnedFd::from_raw_fd(call.fd) };
        assert_eq!(inode(made.as_fd()).1, call.totalSize);
    });
}

#[test]
fn what_the_system_refuses_is_refused_here() {
    with_stub(|remote| {
        assert_eq!(error_text(remote.open("/dev/nvidia9")), "No such device (os error 19)");
        assert_eq!(
            error_text(remote.open("/dev/nvidia/../null")),
            "Permission denied (os error 13)"
        );
        assert_eq!(error_text(remote.open("/etc/passwd")), "Permission denied (os error 13)");
        let ctl = remote.open("/dev/nvidiactl").unwrap();
        let number = request::<frontend::NV_ESC_RM_FREE, [u8; 16]>();
        let refused = error_text(remote.ioctl(ctl.as_fd(), number, 8).map(drop).map(|()| ctl));
        assert_eq!(refused, "cannot reach 16 bytes at 0x8: Bad address (os error 14)");
    });
}

fn error_text<T>(result: Result<T, Box<dyn std::error::Error + Send + Sync>>) -> String {
    result.err().expect("it was not refused").to_string()
}

#[test]
fn what_the_driver_writes_with_an_error_arrives() {
    with_stub(|remote| {
        let ctl = remote.open("/dev/nvidiactl").unwrap();
        let mut call = nv_ioctl_rm_api_version_t::zeroed();
        let number = request::<frontend::NV_ESC_CHECK_VERSION_STR, nv_ioctl_rm_api_version_t>();
        let refused = error_text(remote.ioctl(ctl.as_fd(), number, &raw mut call as u64));
        assert_eq!(refused, "Invalid argument (os error 22)");
        assert_eq!(&call.versionString[..10], b"550.90.07\0");
    });
}

#[test]
fn a_call_is_made_on_the_node_that_has_it() {
    with_stub(|remote| {
        let ctl = remote.open("/dev/nvidiactl").unwrap();
        let memory = remote.open("/dev/nvidia-uvm").unwrap();
        let mut params = nvabi::r550::NVOS00_PARAMETERS::zeroed();
        let number = request::<frontend::NV_ESC_RM_FREE, nvabi::r550::NVOS00_PARAMETERS>();
        let mut free = |remote: &mut Remote, fd: BorrowedFd<'_>| {
            remote.ioctl(fd, number, &raw mut params as u64)
        };
        assert_eq!(free(remote, ctl.as_fd()).unwrap(), 0);
        let invalid = "Invalid argument (os error 22)";
        assert_eq!(error_text(free(remote, memory.as_fd())), invalid);
        // What the system answers on the right node is another error.
        let mut start = nvabi::r550::UVM_INITIALIZE_PARAMS::zeroed();
        let mut start = |remote: &mut Remote, fd: BorrowedFd<'_>| {
            error_text(remote.ioctl(fd, uvm::UVM_INITIALIZE::REQUEST, &raw mut start as u64))
        };
        assert_eq!(start(remote, ctl.as_fd()), invalid);
        assert!(start(remote, memory.as_fd()).contains("(os error 25)"));
        // On a file of the client's own nothing is done.
        let own: OwnedFd = tempfile::tempfile().unwrap().into();
        assert_eq!(error_text(free(remote, own.as_fd())), invalid);
        assert_eq!(
            error_text(remote.open("/dev/nvidia-modeset")),
            "Permission denied (os error 13)"
        );
    });
}

/// The driver knows an event by the number of its file: it is the same in each call, until the client closes its own.
#[test]
fn a_file_keeps_its_number() {
    with_stub(|remote| {
        let ctl = remote.open("/dev/nvidiactl").unwrap();
        let gpu = remote.open("/dev/nvidia0").unwrap();
        let registered = |remote: &mut Remote, fd: &OwnedFd| {
            let mut call = nv_ioctl_register_fd_t { ctl_fd: fd.as_raw_fd() };
            let number = request::<frontend::NV_ESC_REGISTER_FD, nv_ioctl_register_fd_t>();
            remote.ioctl(gpu.as_fd(), number, &raw mut call as u64).unwrap()
        };
        let first = registered(remote, &ctl);
        let other = remote.open("/dev/nvidiactl").unwrap();
        assert_ne!(registered(remote, &other), first);
        assert_eq!(registered(remote, &ctl), first);
        // Another file of the same number takes the place of the one before.
        let closed = ctl.as_raw_fd();
        remote.close(closed).unwrap();
        assert_ne!(registered(remote, &other), first);
    });
}

/// Memory that the driver pins is the client's own: what either side writes the other one reads.
#[test]
fn pinned_memory_is_shared() {
    use nvabi::r550::nv_ioctl_nvos02_parameters_with_fd as AllocMemory;

    with_stub(|remote| {
        let ctl = remote.open("/dev/nvidiactl").unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 * 4096).unwrap();
        file.write_all_at(b"from the client", 4096 + 16).unwrap();
        let mut call = AllocMemory::zeroed();
        (call.params.hClass, call.params.limit) = (0x71, 4095);
        call.params.pMemory = P64(0x1234_5000);
        let number = request::<frontend::NV_ESC_RM_ALLOC_MEMORY, AllocMemory>();
        let mut allocate = |remote: &mut Remote, pieces: Vec<(Piece, OwnedFd)>| {
            remote.ioctl_with(ctl.as_fd(), number, &raw mut call as u64, |address, length| {
                assert_eq!((address, length), (0x1234_5000, 4096));
                Ok(pieces)
            })
        };
        let piece = |offset, length| (Piece { offset, length }, file.try_clone().unwrap().into());
        assert_eq!(allocate(remote, vec![piece(4096, 4096)]).unwrap(), 0);
        let mut found = [0; 15];
        file.read_exact_at(&mut found, 4096 + 16).unwrap();
        assert_eq!(&found, b"FROM THE CLIENT");
        // It is not all there, or does not come.
        for pieces in [vec![piece(4096, 4095)], Vec::new()] {
            assert_eq!(error_text(allocate(remote, pieces)), "Invalid argument (os error 22)");
        }
        assert_eq!(call.params.pMemory, P64(0x1234_5000));
        // Of another class the address means something else, which is not carried.
        call.params.hClass = 0x81;
        let refused = error_text(remote.ioctl(ctl.as_fd(), number, &raw mut call as u64));
        assert_eq!(refused, "NV_ESC_RM_ALLOC_MEMORY: params.pMemory means memory of the caller's");
    });
}

/// Of a table whose length the driver tells afterwards, what it has filled comes back.
#[test]
fn what_is_filled_comes_back_and_no_more() {
    use nvabi::proxy::{Limits, Memory, marshal, unmarshal};
    use nvabi::r535::{UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS as Table, uvm};
    const TABLE: u64 = 0x1_0000;

    /// The parameters at 0, the table behind.
    struct Caller(Table, Vec<u8>);
    impl Memory for Caller {
        fn read(&self, address: u64, to: &mut [u8]) -> io::Result<()> {
            assert_eq!((address, to.len()), (0, size_of::<Table>()), "the table is not read");
            // SAFETY: a record is bytes, as many as were asked for.
            unsafe { to.as_mut_ptr().copy_from((&raw const self.0).cast(), to.len()) };
            Ok(())
        }

        fn write(&mut self, address: u64, from: &[u8]) -> io::Result<()> {
            if address == TABLE {
                self.1[..from.len()].copy_from_slice(from);
            }
            Ok(())
        }
    }

    let driver = AnyDriver::for_version("535.183.01").unwrap();
    let info = <uvm::UVM_TOOLS_GET_PROCESSOR_UUID_TABLE as nvabi::call::Call>::INFO;
    let mut caller = Caller(Table { tablePtr: TABLE, ..Record::zeroed() }, vec![0xff; 33 * 16]);
    let limits = Limits::default();
    let mut message = marshal(driver, info, 0, size_of::<Table>(), &caller, limits).unwrap();
    let mut there = unmarshal(driver, &message.request(), limits).unwrap();
    there.call(|argument| {
        // SAFETY: parameters and table lie in the message.
        unsafe {
            let params = &mut *argument.cast::<Table>();
            params.count = 2;
            std::slice::from_raw_parts_mut(params.tablePtr as *mut u8, 33 * 16).fill(0x11);
        }
    });
    message.take_reply(&there.reply()).unwrap();
    message.write_back(&mut caller).unwrap();
    assert_eq!(caller.1.iter().filter(|byte| **byte == 0x11).count(), 2 * 16);
}

mod simulated {
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use nvabi_test::{Need, only_as_child, skip};

    use super::*;

    const SOCKET: &str = "NVABI_TEST_PROXY_SOCKET";
    const TAG: &str = "NVABI_TEST_PROXY_TAG";
    const PATIENCE: Duration = Duration::from_secs(60);

    /// The side that has the device: this test again, below the simulator.
    #[test]
    fn device() {
        only_as_child(SOCKET);
        let (socket, tag) = (std::env::var(SOCKET).unwrap(), std::env::var(TAG).unwrap());
        let done = proxy::device(&socket, &tag);
        if let Err(error) = done {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }

    /// Starts it, and connects as soon as it listens. Nothing where no system call can be supervised.
    fn started(folder: &Path, tag: &str) -> (Child, UnixStream) {
        let (socket, log) = (folder.join("socket"), folder.join("log"));
        let mut child = Command::new(env!("CARGO_BIN_EXE_nvabi"))
            .args(["rm", "sim", "--tag", tag, "--"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "simulated::device", "--nocapture"])
            .env(SOCKET, &socket)
            .env(TAG, tag)
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let start = Instant::now();
        loop {
            if let Ok(stream) = UnixStream::connect(&socket) {
                return (child, stream);
            }
            if child.try_wait().unwrap().is_some() {
                let text = std::fs::read_to_string(&log).unwrap();
                assert!(text.contains("seccomp"), "{tag}: the device's side ended: {text}");
                skip(Need::Supervise, text.trim());
            }
            assert!(start.elapsed() < PATIENCE, "{tag}: nobody listens");
            thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn two_processes_on_four_drivers() {
        for tag in ["535.183.01", "550.90.07", "570.86.15", "595.45.04"] {
            let folder = tempfile::tempdir().unwrap();
            let (mut child, stream) = started(folder.path(), tag);
            let mut output = Vec::new();
            let mut remote = Remote::connect(stream).unwrap();
            let asked = proxy::ask(&mut remote, &mut output);
            asked
                .and_then(|()| proxy::ask_gpu(&mut remote, &mut output))
                .unwrap_or_else(|error| panic!("{tag}: {error}"));
            drop(remote);
            assert_eq!(
                String::from_utf8(output).unwrap(),
                format!(
                    "driver {tag}\n\
                     client true: status 0x0\n\
                     version {tag}: status 0x0\n\
                     unknown command: control command 0x12345678 is unknown, \
                     and so is what it points to\n\
                     freed: status 0x0\n\
                     registered: 0, the same fd: true\n\
                     device 0xcaf1: status 0x0\n\
                     classes: true, all are there: true\n\
                     UVM: status 0x0\n"
                )
            );
            assert!(child.wait().unwrap().success(), "{tag}");
            assert!(!folder.path().join("socket").exists(), "{tag}: the socket stays");
        }
    }
}
