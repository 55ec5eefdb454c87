//! Which release of L4T the kernel is of, and what it says of its GPU.
//!
//! The driver does not tell its version, and the characteristics have had four layouts. They are
//! told apart by their size, and where two have the same by where the chip's name lies:
//!
//! | size | the name at | release |
//! |---|---|---|
//! | 256 | | r32 |
//! | 312 | 148 | r34.1 to r35.3.1 |
//! | 312 | 152 | r35.4.1 on: `emc_en_mask` came before it |
//! | 328 | | r36 |
//!
//! Anything else is refused: reading the wrong layout gives no error, only wrong numbers.

use std::mem::{offset_of, size_of};
use std::os::fd::BorrowedFd;

use super::abi::{v34_1, v35_4_1};
use super::call::call;
use super::error::{Error, ErrorKind, Result};
use super::{r32, r36};

/// A stretch of releases whose layouts are the same, for all that this module uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Release {
    /// r32.
    R32,
    /// r34.1 to r35.3.1.
    R34,
    /// r35.4.1 on.
    R35_4,
    /// r36.
    R36,
}

impl Release {
    /// The locked tags that it stands for.
    pub fn tags(self) -> &'static str {
        match self {
            Self::R32 => "tegra-r32.7.1",
            Self::R34 => "tegra-r34.1 to tegra-r35.3.1",
            Self::R35_4 => "tegra-r35.4.1 to tegra-r35.5",
            Self::R36 => "tegra-r36.2 to tegra-r36.4.3",
        }
    }
}

/// What a GPU is, in the words of `struct nvgpu_gpu_characteristics`, whichever layout it came in.
/// What an old release does not say is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)] // The driver's own names; its header says what they are.
pub struct Characteristics {
    pub arch: u32,
    pub impl_: u32,
    pub rev: u32,
    pub num_gpc: u32,
    pub l2_cache_size: u64,
    pub on_board_video_memory_size: u64,
    pub num_tpc_per_gpc: u32,
    pub bus_type: u32,
    pub big_page_size: u32,
    pub pde_coverage_bit_count: u32,
    pub available_big_page_sizes: u32,
    pub flags: u64,
    pub twod_class: u32,
    pub threed_class: u32,
    pub compute_class: u32,
    pub gpfifo_class: u32,
    pub inline_to_memory_class: u32,
    pub dma_copy_class: u32,
    pub gpc_mask: u32,
    pub sm_arch_sm_version: u32,
    pub sm_arch_spa_version: u32,
    pub sm_arch_warp_count: u32,
    pub gpu_va_bit_count: u8,
    pub max_freq: u64,
    pub chipname: [u8; 8],
    pub max_veid_count_per_tsg: u32,
    pub max_gpfifo_entries: u32,
    pub numa_domain_id: i32,
}

/// The fields that every layout has.
macro_rules! common {
    ($from:expr) => {{
        let from = $from;
        Characteristics {
            arch: from.arch,
            impl_: from.r#impl,
            rev: from.rev,
            num_gpc: from.num_gpc,
            l2_cache_size: from.L2_cache_size,
            on_board_video_memory_size: from.on_board_video_memory_size,
            num_tpc_per_gpc: from.num_tpc_per_gpc,
            bus_type: from.bus_type,
            big_page_size: from.big_page_size,
            pde_coverage_bit_count: from.pde_coverage_bit_count,
            available_big_page_sizes: from.available_big_page_sizes,
            flags: from.flags,
            twod_class: from.twod_class,
            threed_class: from.threed_class,
            compute_class: from.compute_class,
            gpfifo_class: from.gpfifo_class,
            inline_to_memory_class: from.inline_to_memory_class,
            dma_copy_class: from.dma_copy_class,
            gpc_mask: from.gpc_mask,
            sm_arch_sm_version: from.sm_arch_sm_version,
            sm_arch_spa_version: from.sm_arch_spa_version,
            sm_arch_warp_count: from.sm_arch_warp_count,
            gpu_va_bit_count: from.gpu_va_bit_count,
            max_freq: from.max_freq,
            chipname: from.chipname,
            numa_domain_id: -1,
            ..Characteristics::default()
        }
    }};
}

/// The same with what came after r32.
macro_rules! newer {
    ($from:expr) => {
        Characteristics {
            max_veid_count_per_tsg: $from.max_veid_count_per_tsg,
            max_gpfifo_entries: $from.max_gpfifo_entries,
            ..common!($from)
        }
    };
}

impl Characteristics {
    /// The chip's name, such as `ga10b`.
    pub fn chip(&self) -> String {
        let name = self.chipname.iter().take_while(|byte| **byte != 0);
        name.map(|byte| char::from(*byte)).collect()
    }

    /// Whether all bits of a flag are set (`NVGPU_GPU_FLAGS_*`).
    pub fn has(&self, flags: u64) -> bool {
        self.flags & flags == flags
    }
}

/// Asks the kernel what its GPU is.
pub(super) fn read(ctrl: BorrowedFd<'_>) -> Result<(Release, Characteristics)> {
    let mut bytes = Bytes([0; 512]);
    let size = ask(ctrl, &mut bytes, 0)?;
    if size > size_of::<Bytes>() as u64 {
        return Err(unknown(size));
    }
    ask(ctrl, &mut bytes, size)?;
    parse(&bytes, size)
}

/// As much as any layout takes, aligned for all of them.
#[repr(C, align(8))]
struct Bytes([u8; 512]);

impl Bytes {
    /// The record that the bytes begin with.
    fn record<T: crate::driver::Record>(&self) -> T {
        const { assert!(size_of::<T>() <= size_of::<Self>()) };
        // SAFETY: the assertion compares the sizes, `Bytes` is aligned to 8 as no record of the driver exceeds, all of
        // its bytes are initialised, and `Record` promises that any are a value.
        unsafe { std::ptr::from_ref(self).cast::<T>().read() }
    }

    /// Whether a chip's name stands at an offset: letters and digits, then zeros.
    fn spells_at(&self, at: usize) -> bool {
        let name = &self.0[at..at + 8];
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        end >= 4
            && name[0].is_ascii_alphabetic()
            && name[..end].iter().all(u8::is_ascii_alphanumeric)
            && name[end..].iter().all(|byte| *byte == 0)
    }
}

fn ask(ctrl: BorrowedFd<'_>, bytes: &mut Bytes, size: u64) -> Result<u64> {
    let mut args = r36::nvgpu_gpu_get_characteristics {
        gpu_characteristics_buf_size: size,
        gpu_characteristics_buf_addr: std::ptr::from_mut(bytes) as u64,
    };
    // SAFETY: the driver writes at most `size` bytes, and there are as many.
    unsafe { call::<r36::ioctl::NVGPU_GPU_IOCTL_GET_CHARACTERISTICS>(ctrl, &mut args) }?;
    Ok(args.gpu_characteristics_buf_size)
}

fn parse(bytes: &Bytes, size: u64) -> Result<(Release, Characteristics)> {
    const OLD: usize = offset_of!(v34_1::nvgpu_gpu_characteristics, chipname);
    const NEW: usize = offset_of!(v35_4_1::nvgpu_gpu_characteristics, chipname);
    const R32: u64 = size_of::<r32::nvgpu_gpu_characteristics>() as u64;
    const R34: u64 = size_of::<v34_1::nvgpu_gpu_characteristics>() as u64;
    const R36: u64 = size_of::<r36::nvgpu_gpu_characteristics>() as u64;
    Ok(match size {
        R32 => (Release::R32, common!(bytes.record::<r32::nvgpu_gpu_characteristics>())),
        R34 => match (bytes.spells_at(OLD), bytes.spells_at(NEW)) {
            (true, false) => {
                (Release::R34, newer!(bytes.record::<v34_1::nvgpu_gpu_characteristics>()))
            }
            (false, true) => {
                (Release::R35_4, newer!(bytes.record::<v35_4_1::nvgpu_gpu_characteristics>()))
            }
            _ => {
                let message = format!(
                    "these are characteristics of r34 or r35, but no chip's name stands at byte \
                     {OLD} or {NEW}, which would tell r35.3 from r35.4"
                );
                return Err(Error::new(ErrorKind::UnknownRelease, message));
            }
        },
        R36 => {
            let record = bytes.record::<r36::nvgpu_gpu_characteristics>();
            let numa_domain_id = record.numa_domain_id;
            (Release::R36, Characteristics { numa_domain_id, ..newer!(record) })
        }
        _ => return Err(unknown(size)),
    })
}

fn unknown(size: u64) -> Error {
    let message = format!(
        "the kernel has characteristics of {size} bytes; known are 256 (r32), 312 (r34, r35) and \
         328 (r36)"
    );
    Error::new(ErrorKind::UnknownRelease, message)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn spelled(at: usize, name: &[u8]) -> Bytes {
        let mut bytes = Bytes([0; 512]);
        bytes.0[at..at + name.len()].copy_from_slice(name);
        bytes.0[0] = 0x70;
        bytes
    }

    fn release(bytes: &Bytes, size: u64) -> Result<Release> {
        parse(bytes, size).map(|(release, _)| release)
    }

    #[test]
    fn the_size_tells_r32_and_r36() {
        assert_eq!(release(&spelled(148, b"gv11b"), 256).unwrap(), Release::R32);
        let (release, found) = parse(&spelled(160, b"ga10b"), 328).unwrap();
        assert_eq!((release, found.arch, found.chip().as_str()), (Release::R36, 0x70, "ga10b"));
    }

    #[test]
    fn the_place_of_the_name_tells_r35_3_from_r35_4() {
        let (release, found) = parse(&spelled(148, b"ga10b"), 312).unwrap();
        assert_eq!((release, found.chip().as_str()), (Release::R34, "ga10b"));
        let mut bytes = spelled(152, b"ga10b");
        assert_eq!(parse(&bytes, 312).unwrap().1.chip(), "ga10b");
        // A mask that happens to lie before the name.
        bytes.0[148] = 0x0f;
        assert_eq!(parse(&bytes, 312).unwrap().0, Release::R35_4);
    }

    #[test]
    fn what_cannot_be_told_is_refused() {
        for (bytes, size) in [
            (Bytes([0; 512]), 312),
            (spelled(148, b"abcdefgh"), 300),
            (spelled(148, b"abcdabcdabcd"), 312),
        ] {
            let error = parse(&bytes, size).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnknownRelease);
        }
    }
}
