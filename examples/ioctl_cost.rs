//! The same ioctls twice: as typed calls, and as they are written by hand. `benches/ioctl.sh` compares
//! the instructions, of each pair `NAME_typed` and `NAME_by_hand`.
#![allow(missing_docs, unsafe_code)]

use std::ffi::{c_int, c_ulong};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nvabi::driver::Record as _;
use nvabi::ioctl::{self, Failure};
use nvabi::r550::control::NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2 as GetIdInfo;
use nvabi::r550::frontend::NV_ESC_REGISTER_FD as RegisterFd;
use nvabi::r550::uvm::UVM_PAGEABLE_MEM_ACCESS as PageableMemAccess;
use nvabi::r550::{
    NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS, NVOS54_PARAMETERS, UVM_PAGEABLE_MEM_ACCESS_PARAMS,
    nv_ioctl_register_fd_t,
};
use nvabi::tegra::r36::ioctl::NVGPU_AS_IOCTL_MAP_BUFFER_EX as MapBuffer;
use nvabi::tegra::r36::nvgpu_as_map_buffer_ex_args;
use nvabi::{Handle, NvStatus, P64};

unsafe extern "C" {
    #[link_name = "ioctl"]
    fn libc_ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
}

/// Writes a pair. SAFETY: `main` gives an fd that knows no such request and so does nothing.
macro_rules! pair {
    ($typed:ident, $by_hand:ident, ($($arg:ident: $type:ty),*) -> $result:ty, $call:expr, $hand:block) => {
        #[unsafe(no_mangle)]
        #[inline(never)]
        fn $typed(fd: BorrowedFd<'_>, $($arg: $type),*) -> $result {
            // SAFETY: `main` passes an fd that has no such request: the kernel neither reads nor writes memory.
            unsafe { $call(fd, $($arg),*) }
        }

        #[unsafe(no_mangle)]
        #[inline(never)]
        fn $by_hand(fd: BorrowedFd<'_>, $($arg: $type),*) -> $result {
            let fd = fd.as_raw_fd();
            // SAFETY: `main` passes an fd that has no such request: the kernel neither reads nor writes memory.
            unsafe { ($hand)(fd, $($arg),*) }
        }
    };
}

pair!(
    tegra_typed, tegra_by_hand,
    (args: &mut nvgpu_as_map_buffer_ex_args) -> io::Result<c_int>,
    ioctl::ioctl::<MapBuffer>,
    {
        |fd, args: &mut nvgpu_as_map_buffer_ex_args| match libc_ioctl(fd, 0xc028_4107, args) {
            -1 => Err(io::Error::last_os_error()),
            result => Ok(result),
        }
    }
);

pair!(
    frontend_typed, frontend_by_hand,
    (args: &mut nv_ioctl_register_fd_t) -> io::Result<()>,
    ioctl::frontend::<RegisterFd, _>,
    {
        |fd, args: &mut nv_ioctl_register_fd_t| match libc_ioctl(fd, 0xc004_46c9, args) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
);

pair!(
    uvm_typed, uvm_by_hand,
    (args: &mut UVM_PAGEABLE_MEM_ACCESS_PARAMS) -> io::Result<()>,
    ioctl::uvm::<PageableMemAccess, _>,
    {
        |fd, args: &mut UVM_PAGEABLE_MEM_ACCESS_PARAMS| match libc_ioctl(fd, 39, args) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
);

pair!(
    control_typed, control_by_hand,
    (client: Handle, object: Handle, params: &mut NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS)
        -> Result<(), Failure>,
    ioctl::control::<GetIdInfo>,
    {
        |fd, client, object, params: &mut NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS| {
            let mut call = NVOS54_PARAMETERS {
                hClient: client,
                hObject: object,
                cmd: 0x205,
                flags: 0,
                params: P64(std::ptr::from_mut(params) as u64),
                paramsSize: 32,
                status: 0,
            };
            if libc_ioctl(fd, 0xc020_462a, &mut call) == -1 {
                let number = io::Error::last_os_error().raw_os_error();
                return Err(Failure::Errno(number.unwrap_or_default()));
            }
            match call.status {
                0 => Ok(()),
                status => Err(Failure::Status(NvStatus(status))),
            }
        }
    }
);

fn main() -> io::Result<()> {
    let null = std::fs::File::open("/dev/null")?;
    let fd = null.as_fd();
    let mut args = nvgpu_as_map_buffer_ex_args::zeroed();
    for result in [tegra_typed(fd, &mut args), tegra_by_hand(fd, &mut args)] {
        println!("{result:?}");
    }
    let mut args = nv_ioctl_register_fd_t::zeroed();
    for result in [frontend_typed(fd, &mut args), frontend_by_hand(fd, &mut args)] {
        println!("{result:?}");
    }
    let mut args = UVM_PAGEABLE_MEM_ACCESS_PARAMS::zeroed();
    for result in [uvm_typed(fd, &mut args), uvm_by_hand(fd, &mut args)] {
        println!("{result:?}");
    }
    let mut args = NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS::zeroed();
    let (client, object) = (Handle(1), Handle(2));
    let results = [
        control_typed(fd, client, object, &mut args),
        control_by_hand(fd, client, object, &mut args),
    ];
    for result in results {
        println!("{result:?}");
    }
    Ok(())
}
