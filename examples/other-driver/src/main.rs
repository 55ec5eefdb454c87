//! Prints DRM's ioctls as the headers of this machine have them, and the version of the first card.

use std::ffi::{c_int, c_ulong};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nvabi::P64;
use nvabi::call::Ioctl;
use nvabi::check::NvProxy;
use other_driver::drm::r1;
use other_driver::params::{CreateDumb, PrimeHandle, Version};

const CARD: &str = "/dev/dri/card0";

fn main() -> io::Result<()> {
    println!("{:<30} {:<10} {:>4}  parameters", "ioctl", "request", "size");
    for info in r1::ioctl::ALL.iter().copied().flatten() {
        // Linux keeps the size of the parameters in bits 16 to 29 of the request.
        let size = info.number >> 16 & 0x3fff;
        let params = info.params.join(", ");
        println!("{:<30} {:#010x} {size:>4}  {params}", info.name, info.number);
    }
    println!();
    println!("{:<30} {:<10} {:>4}  declared at", "struct", "own name", "size");
    row::<Version>();
    row::<PrimeHandle>();
    row::<CreateDumb>();
    println!();
    match File::open(CARD) {
        Ok(card) => {
            let (version, name) = version(&card)?;
            let Version { major, minor, patch, .. } = version;
            println!("{CARD} is {name} {major}.{minor}.{patch}");
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => println!("no {CARD} here"),
        Err(error) => println!("cannot open {CARD}: {error}"),
    }
    Ok(())
}

fn row<T: NvProxy>() {
    let (own, driver) = (T::OWN, T::LAYOUT);
    println!("{:<30} {:<10} {:>4}  {}", T::NAME, own.name, own.size, driver.source);
}

unsafe extern "C" {
    fn ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
}

/// The version and name of the driver behind a card.
fn version(card: &File) -> io::Result<(Version, String)> {
    let mut name = [0_u8; 64];
    let mut version = Version {
        name_len: name.len() as u64,
        name: P64(name.as_mut_ptr() as u64),
        ..Version::default()
    };
    let request = c_ulong::from(r1::ioctl::DRM_IOCTL_VERSION::REQUEST);
    // SAFETY: the request takes a drm_version, which `Version` was checked to be. The kernel writes
    // at most `name_len` bytes to `name`, which lives through the call, and nothing to the other
    // two buffers, whose lengths are 0.
    let result = unsafe { ioctl(card.as_raw_fd(), request, &raw mut version) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // The kernel gives the whole length, also when it wrote less.
    let len = usize::try_from(version.name_len).unwrap_or(usize::MAX).min(name.len());
    Ok((version, String::from_utf8_lossy(&name[..len]).into_owned()))
}
