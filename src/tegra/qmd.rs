//! Descriptions of kernels that are to run (QMD, version 3.0), as class 0xc7c0 takes them.

use super::error::{Error, Result};

/// Bytes of a description; it lies at a multiple of that.
pub const QMD_SIZE: usize = 256;

/// Banks of constants that a kernel can have.
pub const CONSTANT_BANKS: usize = 8;

/// Where code may begin.
pub(super) const PROGRAM_ALIGNMENT: u64 = 128;

/// KiB of an SM's memory that can be made shared memory, of SM 8.7.
const SHARED_SIZES: [u32; 8] = [0, 8, 16, 32, 64, 100, 132, 164];

/// The code's instruction set: SM 8.7.
const SASS_VERSION: u64 = 0x87;

/// Threads of a block.
const MOST_THREADS: u64 = 1024;

/// A field: what it is, its highest and its lowest bit.
type Field = (&'static str, usize, usize);

const QMD_GROUP_ID: Field = ("QMD_GROUP_ID", 133, 128);
const SM_GLOBAL_CACHING_ENABLE: Field = ("SM_GLOBAL_CACHING_ENABLE", 134, 134);
const INVALIDATE_CACHES: Field =
    ("INVALIDATE_TEXTURE_HEADER_CACHE to _SHADER_CONSTANT_CACHE", 191, 186);
const CWD_MEMBAR_TYPE: Field = ("CWD_MEMBAR_TYPE", 369, 368);
const API_VISIBLE_CALL_LIMIT: Field = ("API_VISIBLE_CALL_LIMIT", 378, 378);
const SAMPLER_INDEX: Field = ("SAMPLER_INDEX", 382, 382);
const CTA_RASTER: [Field; 3] = [
    ("CTA_RASTER_WIDTH", 415, 384),
    ("CTA_RASTER_HEIGHT", 431, 416),
    ("CTA_RASTER_DEPTH", 463, 448),
];
const SHARED_MEMORY_SIZE: Field = ("SHARED_MEMORY_SIZE", 561, 544);
const MIN_SM_CONFIG: Field = ("MIN_SM_CONFIG_SHARED_MEM_SIZE", 567, 562);
const MAX_SM_CONFIG: Field = ("MAX_SM_CONFIG_SHARED_MEM_SIZE", 574, 569);
const QMD_MAJOR_VERSION: Field = ("QMD_MAJOR_VERSION", 583, 580);
const CTA_THREAD_DIMENSION: [Field; 3] = [
    ("CTA_THREAD_DIMENSION0", 607, 592),
    ("CTA_THREAD_DIMENSION1", 623, 608),
    ("CTA_THREAD_DIMENSION2", 639, 624),
];
const REGISTER_COUNT: Field = ("REGISTER_COUNT_V", 656, 648);
const TARGET_SM_CONFIG: Field = ("TARGET_SM_CONFIG_SHARED_MEM_SIZE", 662, 657);
const LOCAL_LOW_SIZE: Field = ("SHADER_LOCAL_MEMORY_LOW_SIZE", 759, 736);
const BARRIER_COUNT: Field = ("BARRIER_COUNT", 767, 763);
const PROGRAM_ADDRESS: Field = ("PROGRAM_ADDRESS", 1584, 1536);
const LOCAL_HIGH_SIZE: Field = ("SHADER_LOCAL_MEMORY_HIGH_SIZE", 1623, 1600);
const SASS: Field = ("SASS_VERSION", 1663, 1656);

/// `CWD_MEMBAR_TYPE_L1_SYSMEMBAR`: what a kernel wrote is seen by all when it has ended.
const SYSMEMBAR: u64 = 1;
/// `QMD_GROUP_ID`: of no group.
const NO_GROUP: u64 = 0x3f;

/// Constants of a kernel, in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConstantBank {
    /// Where they lie: a multiple of 256.
    pub address: u64,
    /// How many bytes: a multiple of 16, up to 64 KiB.
    pub size: u32,
}

/// A kernel that is to run, and how.
///
/// ```
/// use nvabi::tegra::{ConstantBank, Launch};
///
/// let mut launch = Launch::new(0x4000_0000, [16, 1, 1], [128, 1, 1]);
/// launch.registers = 32;
/// launch.constants[0] = Some(ConstantBank { address: 0x4001_0000, size: 0x180 });
/// let bytes = launch.qmd()?;
/// # Ok::<(), nvabi::tegra::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Where its code begins: a multiple of 128.
    pub program: u64,
    /// Blocks in each direction.
    pub grid: [u32; 3],
    /// Threads of a block in each direction.
    pub block: [u32; 3],
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of shared memory of a block. A kernel of the CUDA compiler needs 1 KiB more than it declares.
    pub shared: u32,
    /// Bytes of local memory of a thread below and above its stack: [`Push::set_local_memory`] gives the memory.
    ///
    /// [`Push::set_local_memory`]: super::Push::set_local_memory
    pub local: [u32; 2],
    /// Barriers of a block.
    pub barriers: u32,
    /// Banks of constants, by their numbers.
    pub constants: [Option<ConstantBank>; CONSTANT_BANKS],
}

impl Launch {
    /// Code at an address, with one barrier and no memory of its own.
    pub fn new(program: u64, grid: [u32; 3], block: [u32; 3]) -> Self {
        let constants = [None; CONSTANT_BANKS];
        Self {
            program,
            grid,
            block,
            registers: 0,
            shared: 0,
            local: [0; 2],
            barriers: 1,
            constants,
        }
    }

    /// The description, for memory that [`Push::launch`] is given the address of.
    ///
    /// [`Push::launch`]: super::Push::launch
    ///
    /// # Errors
    ///
    /// When a size is 0, does not fit or is not aligned: which, and what would.
    pub fn qmd(&self) -> Result<[u8; QMD_SIZE]> {
        let mut qmd = Bits([0; QMD_SIZE]);
        qmd.put(QMD_MAJOR_VERSION, 3)?;
        qmd.put(QMD_GROUP_ID, NO_GROUP)?;
        qmd.put(SM_GLOBAL_CACHING_ENABLE, 1)?;
        // Another kernel, or the CPU, may have written what is still there.
        qmd.put(INVALIDATE_CACHES, 0x3f)?;
        qmd.put(CWD_MEMBAR_TYPE, SYSMEMBAR)?;
        qmd.put(API_VISIBLE_CALL_LIMIT, 1)?;
        qmd.put(SAMPLER_INDEX, 1)?;
        qmd.put(SASS, SASS_VERSION)?;
        qmd.put(PROGRAM_ADDRESS, aligned("the program", self.program, PROGRAM_ALIGNMENT)?)?;
        self.put_sizes(&mut qmd)?;
        self.put_memory(&mut qmd)?;
        for (number, bank) in self.constants.iter().enumerate() {
            if let Some(bank) = bank {
                put_bank(&mut qmd, number, *bank)?;
            }
        }
        Ok(qmd.0)
    }

    fn put_sizes(&self, qmd: &mut Bits) -> Result<()> {
        let threads: u64 = self.block.iter().map(|it| u64::from(*it)).product();
        let is_empty = self.grid.contains(&0) || self.block.contains(&0);
        if is_empty || threads > MOST_THREADS || self.block[2] > 64 {
            return Err(Error::invalid(format!(
                "a grid of {:?} blocks of {:?} threads cannot be: none may be 0, a block has at most {MOST_THREADS} \
                 threads, and 64 in the third direction",
                self.grid, self.block
            )));
        }
        for (field, count) in CTA_RASTER.into_iter().zip(self.grid) {
            qmd.put(field, count.into())?;
        }
        for (field, count) in CTA_THREAD_DIMENSION.into_iter().zip(self.block) {
            qmd.put(field, count.into())?;
        }
        qmd.put(REGISTER_COUNT, self.registers.into())?;
        qmd.put(BARRIER_COUNT, self.barriers.into())
    }

    fn put_memory(&self, qmd: &mut Bits) -> Result<()> {
        let most = SHARED_SIZES[SHARED_SIZES.len() - 1];
        let shared = self.shared.next_multiple_of(128);
        let Some(least) = SHARED_SIZES.iter().find(|size| **size << 10 >= shared) else {
            return Err(Error::invalid(format!(
                "{} bytes of shared memory cannot be: an SM has {most} KiB",
                self.shared
            )));
        };
        qmd.put(SHARED_MEMORY_SIZE, shared.into())?;
        // In units of 4 KiB, and one more.
        let config = |size: u32| u64::from(size / 4 + 1);
        qmd.put(MIN_SM_CONFIG, config(*least))?;
        qmd.put(TARGET_SM_CONFIG, config(*least))?;
        qmd.put(MAX_SM_CONFIG, config(most))?;
        qmd.put(LOCAL_LOW_SIZE, aligned("local memory", self.local[0].into(), 16)?)?;
        qmd.put(LOCAL_HIGH_SIZE, aligned("local memory", self.local[1].into(), 16)?)
    }
}

fn put_bank(qmd: &mut Bits, number: usize, bank: ConstantBank) -> Result<()> {
    if bank.size == 0 || bank.size > 1 << 16 {
        return Err(Error::invalid(format!(
            "a bank of {} bytes of constants cannot be: 16 to 65536 can",
            bank.size
        )));
    }
    let at = number * 64;
    let size = aligned("a bank of constants", bank.size.into(), 16)?;
    qmd.put(
        ("CONSTANT_BUFFER_ADDR", 1072 + at, 1024 + at),
        aligned("constants", bank.address, 256)?,
    )?;
    qmd.put(("CONSTANT_BUFFER_INVALIDATE", 1074 + at, 1074 + at), 1)?;
    qmd.put(("CONSTANT_BUFFER_SIZE_SHIFTED4", 1087 + at, 1075 + at), size >> 4)?;
    qmd.put(("CONSTANT_BUFFER_VALID", 640 + number, 640 + number), 1)
}

fn aligned(what: &str, value: u64, to: u64) -> Result<u64> {
    match value % to {
        0 => Ok(value),
        _ => Err(Error::invalid(format!("{what}: {value:#x} is no multiple of {to}"))),
    }
}

struct Bits([u8; QMD_SIZE]);

impl Bits {
    fn put(&mut self, (name, high, low): Field, value: u64) -> Result<()> {
        let width = high - low + 1;
        if width < 64 && value >> width != 0 {
            return Err(Error::invalid(format!(
                "{value:#x} does not fit into {width} bits of {name}"
            )));
        }
        for bit in 0..width {
            let (byte, mask) = ((low + bit) / 8, 1 << ((low + bit) % 8));
            match value >> bit & 1 {
                0 => self.0[byte] &= !mask,
                _ => self.0[byte] |= mask,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn word(qmd: &[u8; QMD_SIZE], index: usize) -> u32 {
        u32::from_le_bytes(qmd[index * 4..index * 4 + 4].try_into().unwrap())
    }

    #[test]
    fn fields_lie_where_the_class_has_them() {
        let mut launch = Launch::new(0x1_2345_6780, [7, 5, 3], [64, 4, 2]);
        (launch.registers, launch.shared, launch.local) = (40, 1025, [16, 0x240]);
        launch.constants[0] = Some(ConstantBank { address: 0x2_0000_0100, size: 0x160 });
        launch.constants[3] = Some(ConstantBank { address: 0xff00, size: 1 << 16 });
        let qmd = launch.qmd().unwrap();
        assert_eq!((word(&qmd, 48), word(&qmd, 49)), (0x2345_6780, 1), "program");
        assert_eq!((word(&qmd, 12), word(&qmd, 13), word(&qmd, 14)), (7, 5, 3), "grid");
        assert_eq!((word(&qmd, 18) >> 16, word(&qmd, 19)), (64, 4 | 2 << 16), "block");
        assert_eq!(word(&qmd, 17), 1152 | 3 << 18 | 42 << 25, "shared memory, of 8 and of 164 KiB");
        assert_eq!(word(&qmd, 18) & 0xffff, 0x30, "version");
        assert_eq!(word(&qmd, 20), 0b1001 | 40 << 8 | 3 << 17, "valid banks, registers");
        assert_eq!(
            (word(&qmd, 23), word(&qmd, 50)),
            (16 | 1 << 27, 0x240),
            "local memory, barriers"
        );
        assert_eq!((word(&qmd, 32), word(&qmd, 33)), (0x100, 2 | 1 << 18 | 0x16 << 19), "bank 0");
        assert_eq!((word(&qmd, 38), word(&qmd, 39)), (0xff00, 1 << 18 | 0x1000 << 19), "bank 3");
        assert_eq!(word(&qmd, 51) >> 24, 0x87);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let good = Launch::new(0x1000, [1; 3], [1; 3]);
        assert!(good.qmd().is_ok());
        let refused = |change: fn(&mut Launch)| {
            let mut launch = good.clone();
            change(&mut launch);
            launch.qmd().unwrap_err().to_string()
        };
        let bank = |address, size| Some(ConstantBank { address, size });
        assert!(refused(|it| it.grid[1] = 0).contains("none may be 0"));
        assert!(refused(|it| it.block = [32, 32, 2]).contains("at most 1024"));
        assert!(refused(|it| it.grid[2] = 1 << 16).contains("16 bits of CTA_RASTER_DEPTH"));
        assert!(refused(|it| it.program = 0x1040).contains("no multiple of 128"));
        assert!(refused(|it| it.program = 1 << 49).contains("49 bits of PROGRAM_ADDRESS"));
        assert!(refused(|it| it.registers = 512).contains("9 bits of REGISTER_COUNT_V"));
        assert!(refused(|it| it.shared = (164 << 10) + 1).contains("an SM has 164 KiB"));
        assert!(refused(|it| it.local[1] = 8).contains("no multiple of 16"));
        let refused_bank = |bank| {
            let mut launch = good.clone();
            launch.constants[7] = bank;
            launch.qmd().unwrap_err().to_string()
        };
        assert!(refused_bank(bank(0x80, 16)).contains("no multiple of 256"));
        assert!(refused_bank(bank(0x100, 8)).contains("no multiple of 16"));
        assert!(refused_bank(bank(0x100, 0)).contains("16 to 65536"));
        assert!(refused_bank(bank(0x100, 65552)).contains("16 to 65536"));
    }
}
