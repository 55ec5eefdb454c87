//! The same ioctl twice: as a typed call, and as it is written by hand. `benches/ioctl.sh` compares
//! the instructions.

use std::ffi::{c_int, c_ulong};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nvabi::ioctl;
use nvabi::tegra::r36::ioctl::NVGPU_AS_IOCTL_MAP_BUFFER_EX as MapBuffer;
use nvabi::tegra::r36::nvgpu_as_map_buffer_ex_args as Args;

unsafe extern "C" {
    #[link_name = "ioctl"]
    fn libc_ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
}

#[unsafe(no_mangle)]
#[inline(never)]
fn cost_of_typed(fd: BorrowedFd<'_>, args: &mut Args) -> io::Result<c_int> {
    // SAFETY: `main` gives an fd that knows no such request and so does nothing.
    unsafe { ioctl::ioctl::<MapBuffer>(fd, args) }
}

#[unsafe(no_mangle)]
#[inline(never)]
fn cost_by_hand(fd: BorrowedFd<'_>, args: &mut Args) -> io::Result<c_int> {
    // SAFETY: as above.
    match unsafe { libc_ioctl(fd.as_raw_fd(), 0xc028_4107, args) } {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

fn main() -> io::Result<()> {
    use nvabi::driver::Record as _;

    let null = std::fs::File::open("/dev/null")?;
    let mut args = Args::zeroed();
    for result in [cost_of_typed(null.as_fd(), &mut args), cost_by_hand(null.as_fd(), &mut args)] {
        println!("{result:?}");
    }
    Ok(())
}
