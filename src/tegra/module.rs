//! Cubins: kernels as the CUDA assembler writes them, in memory and ready to be launched.
//!
//! The emulator has a loader of its own (`cuda/emu/src/sass/load.rs`), which decodes instructions and fills in
//! addresses; a user of this crate has neither to compile. Both take a kernel, its parameters, its stack and its
//! architecture from the same places.

use std::collections::BTreeMap;
use std::ops::Range;

use object::read::elf::{ElfFile64, FileHeader as _, SectionHeader as _};
use object::{
    Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, SectionFlags, SymbolFlags,
};

use super::address_space::{AddressSpace, Buffer, WINDOWS};
use super::error::{Error, Result};
use super::memory::Cache;
use super::qmd::{CONSTANT_BANKS, ConstantBank, Launch, PROGRAM_ALIGNMENT};

/// `e_machine` of a cubin.
const EM_CUDA: u16 = 190;
/// From this version of the ABI on, the architecture is in the second byte of the flags.
const ABI_WITH_WIDE_FLAGS: u8 = 8;
/// In a symbol's `st_other`: what is launched, where other functions are called.
const STO_CUDA_ENTRY: u8 = 0x10;
/// Where code and banks of constants may begin.
const ALIGNED: usize = 256;
/// What the driver tells a kernel at the beginning of bank 0: block, grid, windows, and where the stack begins.
const TOLD: usize = 48;
/// The top of a thread's stack, in the window of local memory.
const STACK: u64 = 0xff_fdc0;
/// Bytes of local memory above the stack.
const ABOVE_STACK: u32 = 0x240;
/// Bytes of local memory that a thread can have, and of a bank of constants.
const MOST_LOCAL: u32 = 512 << 10;
const MOST_CONSTANTS: u64 = 64 << 10;
/// Shared memory that a kernel of the CUDA compiler has beyond what it declares.
const RESERVED_SHARED: u64 = 1024;

/// Attributes in `.nv.info` and in a kernel's own section of that name.
const PARAMETERS: u8 = 0x0a;
const FRAME: u8 = 0x11;
const LEAST_STACK: u8 = 0x12;
const MOST_STACK: u8 = 0x23;

/// The kernels of a cubin, in memory of an address space.
///
/// ```no_run
/// use nvabi::tegra::{AddressSpace, Cache, ConstantBank, Device, Module, Push};
///
/// let space = AddressSpace::new(&Device::open()?)?;
/// let module = Module::load(&space, &std::fs::read("add.cubin")?)?;
/// let kernel = module.kernel("add").ok_or("no such kernel")?;
/// let (grid, block, parameters) = ([4, 1, 1], [256, 1, 1], 0x4000_0000_u64.to_le_bytes());
/// let bank = kernel.bank(grid, block, &parameters)?;
/// let mut memory = space.allocate(4096, Cache::Inner)?;
/// memory.write(0, &bank)?;
/// let size = bank.len() as u32;
/// let mut launch = kernel.launch(grid, block);
/// launch.constants[0] = Some(ConstantBank { address: memory.gpu_address(), size });
/// memory.write(2048, &launch.qmd()?)?;
/// let mut push = Push::new();
/// push.launch(memory.gpu_address() + 2048)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Module {
    kernels: BTreeMap<String, Kernel>,
    /// Code and constants: kernels lie there as long as it does.
    _memory: Buffer,
}

/// A kernel of a [`Module`], and what it needs.
#[derive(Debug, Clone)]
pub struct Kernel {
    program: u64,
    registers: u32,
    shared: u32,
    stack: u32,
    barriers: u32,
    /// Bytes of bank 0, and where the parameters are in it.
    bank: usize,
    parameters: Range<usize>,
    constants: [Option<ConstantBank>; CONSTANT_BANKS],
}

impl Module {
    /// Puts the code and the constants of a cubin into memory.
    ///
    /// # Errors
    ///
    /// When it is no cubin or one of another architecture, and where it has addresses to be filled in: of functions that
    /// are called and of variables.
    pub fn load(space: &AddressSpace, cubin: &[u8]) -> Result<Self> {
        let file = Cubin::parse(cubin)?;
        file.check_architecture(space.device().characteristics().sm_arch_sm_version)?;
        let mut bytes = Vec::new();
        let mut places = BTreeMap::new();
        for (name, section) in &file.sections {
            if name.starts_with(".text.") || is_constant(name) {
                bytes.resize(bytes.len().next_multiple_of(ALIGNED), 0);
                places.insert(*name, bytes.len() as u64);
                bytes.extend_from_slice(section.bytes);
            }
        }
        let mut memory = space.allocate(bytes.len() as u64, Cache::Inner)?;
        memory.write(0, &bytes)?;
        let address = |name: &str| places.get(name).map(|at| memory.gpu_address() + at);
        let kernels = file.symbols.iter().map(|(number, (name, _))| {
            let kernel = file.kernel(*number, &address)?;
            Ok(((*name).to_owned(), kernel))
        });
        Ok(Self { kernels: kernels.collect::<Result<_>>()?, _memory: memory })
    }

    /// A kernel by its name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.get(name)
    }

    /// The names of all kernels.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.kernels.keys().map(String::as_str)
    }
}

impl Kernel {
    /// Its launch on a grid, which lacks bank 0: that has parameters, which are the caller's ([`Self::bank`]).
    pub fn launch(&self, grid: [u32; 3], block: [u32; 3]) -> Launch {
        let mut launch = Launch::new(self.program, grid, block);
        (launch.registers, launch.shared, launch.barriers) =
            (self.registers, self.shared, self.barriers);
        launch.local = [0, (self.stack + ABOVE_STACK).next_multiple_of(16)];
        launch.constants = self.constants;
        launch
    }

    /// Bytes of the parameters.
    pub fn parameter_size(&self) -> usize {
        self.parameters.len()
    }

    /// Bytes of local memory of a thread, of which [`Push::set_local_memory`](super::Push::set_local_memory) gives as
    /// much as all threads need.
    pub fn local_size(&self) -> u32 {
        (self.stack + ABOVE_STACK).next_multiple_of(16)
    }

    /// Bank 0 of a launch: what the driver tells a kernel, and its parameters. The windows are those that an
    /// [`AddressSpace`] keeps free: local memory at 0xfd_0000_0000, shared memory at 0xfe_0000_0000.
    ///
    /// # Errors
    ///
    /// When the parameters are not as long as the kernel's.
    pub fn bank(&self, grid: [u32; 3], block: [u32; 3], parameters: &[u8]) -> Result<Vec<u8>> {
        if parameters.len() != self.parameters.len() {
            return Err(Error::invalid(format!(
                "{} bytes are no parameters of this kernel: it has {}",
                parameters.len(),
                self.parameters.len()
            )));
        }
        let [local, shared] = WINDOWS;
        let mut bank: Vec<u8> =
            block.iter().chain(&grid).flat_map(|size| size.to_le_bytes()).collect();
        bank.extend([shared, local, STACK].iter().flat_map(|word| word.to_le_bytes()));
        bank.resize(self.bank.next_multiple_of(16), 0);
        bank[self.parameters.clone()].copy_from_slice(parameters);
        Ok(bank)
    }
}

/// Whether a section is a bank of constants, but for bank 0, which each launch has its own of.
fn is_constant(name: &str) -> bool {
    bank_of(name).is_some_and(|(number, _)| number != 0)
}

/// The number of a bank, and the kernel that it is of; the bank of all has none.
fn bank_of(name: &str) -> Option<(usize, Option<&str>)> {
    let rest = name.strip_prefix(".nv.constant")?;
    let (number, kernel) = match rest.split_once('.') {
        Some((number, kernel)) => (number, Some(kernel)),
        None => (rest, None),
    };
    let number = number.parse().ok().filter(|number| *number < CONSTANT_BANKS)?;
    Some((number, kernel))
}

/// What is read of a cubin.
struct Cubin<'a> {
    /// As in `sm_87`.
    architecture: u32,
    sections: BTreeMap<&'a str, Section<'a>>,
    /// The kernels, by the numbers of their symbols: their names, and where in their code they begin.
    symbols: BTreeMap<u32, (&'a str, u64)>,
}

struct Section<'a> {
    bytes: &'a [u8],
    size: u64,
    flags: u64,
    info: u32,
}

impl<'a> Cubin<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self> {
        let wrong = |error: object::Error| Error::invalid(format!("no cubin: {error}"));
        let file = ElfFile64::<Endianness>::parse(bytes).map_err(wrong)?;
        let machine = file.elf_header().e_machine(file.endian());
        if machine != EM_CUDA {
            let text = format!("no cubin: machine {machine}, where CUDA's is {EM_CUDA}");
            return Err(Error::invalid(text));
        }
        let mut sections = BTreeMap::new();
        for section in file.sections() {
            let name = section.name().map_err(wrong)?;
            let needs_address = name.strip_prefix(".rel").map(|it| it.trim_start_matches('a'));
            if needs_address.is_some_and(|of| of.starts_with(".text.") || bank_of(of).is_some()) {
                return Err(Error::invalid(format!(
                    "the cubin has addresses to be filled in ({name}): kernels that call functions or use variables \
                     cannot be loaded"
                )));
            }
            let header = section.elf_section_header();
            let SectionFlags::Elf { sh_flags: flags } = section.flags() else { continue };
            let (bytes, size) = (section.data().map_err(wrong)?, section.size());
            sections
                .insert(name, Section { bytes, size, flags, info: header.sh_info(file.endian()) });
        }
        let mut symbols = BTreeMap::new();
        for symbol in file.symbols() {
            let name = symbol.name().map_err(wrong)?;
            let SymbolFlags::Elf { st_other, .. } = symbol.flags() else { continue };
            if st_other & STO_CUDA_ENTRY != 0 && symbol.is_definition() {
                symbols.insert(symbol.index().0 as u32, (name, symbol.address()));
            }
        }
        let header = file.elf_header();
        let flags = header.e_flags(file.endian());
        let is_wide = header.e_ident().abi_version >= ABI_WITH_WIDE_FLAGS;
        let architecture = if is_wide { flags >> 8 & 0xff } else { flags & 0xff };
        Ok(Self { architecture, sections, symbols })
    }

    /// Machine code is of one Jetson's GPU alone: what runs on later ones is PTX.
    fn check_architecture(&self, sm_version: u32) -> Result<()> {
        let gpu = (sm_version >> 8) * 10 + (sm_version & 0xff);
        if self.architecture != gpu {
            return Err(Error::invalid(format!(
                "the cubin is of sm_{}, and the GPU is sm_{gpu}: assemble it for that",
                self.architecture
            )));
        }
        Ok(())
    }

    fn section(&self, name: &str) -> Option<&Section<'a>> {
        self.sections.get(name)
    }

    fn kernel(&self, number: u32, address: &dyn Fn(&str) -> Option<u64>) -> Result<Kernel> {
        let no_symbol = || Error::invalid(format!("the cubin has no kernel of number {number}"));
        let (name, begin) = *self.symbols.get(&number).ok_or_else(no_symbol)?;
        let lacks = |what: &str| Error::invalid(format!("`{name}` of the cubin has no {what}"));
        let too_many = |found: u64, what: &str, most: u64| {
            let text = format!("`{name}` of the cubin has {found} bytes of {what}: at most {most}");
            Error::invalid(text)
        };
        let code = format!(".text.{name}");
        let text = self.section(&code).ok_or_else(|| lacks("code"))?;
        let length = text.bytes.len() as u64;
        if begin % PROGRAM_ALIGNMENT != 0 || begin >= length {
            return Err(Error::invalid(format!(
                "`{name}` of the cubin begins at {begin:#x} of {length:#x} bytes of code: a multiple of \
                 {PROGRAM_ALIGNMENT} inside of them can be",
            )));
        }
        let program = address(&code).ok_or_else(|| lacks("code"))? + begin;
        let own = attributes(self.section(&format!(".nv.info.{name}")));
        let all = attributes(self.section(".nv.info"));
        let stack = [FRAME, LEAST_STACK, MOST_STACK].iter().filter_map(|wanted| {
            let mine =
                |(key, value): &&(u8, &[u8])| key == wanted && word(value, 0) == Some(number);
            all.iter().find(mine).and_then(|(_, value)| word(value, 4))
        });
        let place = own.iter().find(|(key, _)| *key == PARAMETERS);
        let place = place.and_then(|(_, value)| word(value, 4)).unwrap_or(0);
        let (first, size) = (place as usize & 0xffff, place as usize >> 16);
        let stack = stack.max().unwrap_or(0);
        if stack > MOST_LOCAL - ABOVE_STACK {
            return Err(too_many(stack.into(), "stack", (MOST_LOCAL - ABOVE_STACK).into()));
        }
        let bank_name = format!(".nv.constant0.{name}");
        let bank = self.section(&bank_name).map_or(0, |section| section.size);
        if bank > MOST_CONSTANTS {
            return Err(too_many(bank, &bank_name, MOST_CONSTANTS));
        }
        let bank = bank as usize;
        if first + size > bank || (size > 0 && first < TOLD) {
            return Err(lacks("parameters within bank 0"));
        }
        let shared = self.section(&format!(".nv.shared.{name}")).map_or(0, |section| section.size);
        let shared = shared.checked_add(RESERVED_SHARED).and_then(|it| u32::try_from(it).ok());
        Ok(Kernel {
            program,
            // Both are kept beside what ELF has there.
            registers: text.info >> 24,
            barriers: (text.flags >> 20) as u32 & 0x7f,
            shared: shared.ok_or_else(|| lacks("shared memory that a block can have"))?,
            stack,
            bank: bank.max(TOLD),
            parameters: first..first + size,
            constants: self.banks(name, address),
        })
    }

    /// The banks of constants of a kernel and of all kernels.
    fn banks(
        &self,
        kernel: &str,
        address: &dyn Fn(&str) -> Option<u64>,
    ) -> [Option<ConstantBank>; CONSTANT_BANKS] {
        let mut banks = [None; CONSTANT_BANKS];
        for (name, section) in &self.sections {
            let (Some((number, of)), Some(address)) = (bank_of(name), address(name)) else {
                continue;
            };
            if of.is_none_or(|of| of == kernel) {
                let size = (section.bytes.len() as u32).next_multiple_of(16);
                banks[number] = Some(ConstantBank { address, size });
            }
        }
        banks
    }
}

/// The attributes of a section: their numbers and values, where these have more than two bytes.
fn attributes<'a>(section: Option<&Section<'a>>) -> Vec<(u8, &'a [u8])> {
    /// The format of an attribute whose size comes before its value.
    const SIZED: u8 = 4;
    let mut rest = section.map_or(&[][..], |section| section.bytes);
    let mut found = Vec::new();
    while let [format, key, low, high, behind @ ..] = rest {
        let size =
            if *format == SIZED { usize::from(u16::from_le_bytes([*low, *high])) } else { 0 };
        let Some((value, after)) = behind.split_at_checked(size) else { break };
        if *format == SIZED {
            found.push((*key, value));
        }
        rest = after;
    }
    found
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_cubin_is_refused() {
        let text = |bytes: &[u8]| Cubin::parse(bytes).map(drop).unwrap_err().to_string();
        assert!(text(b"").starts_with("no cubin: "), "{}", text(b""));
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(text(&own).contains("CUDA's is 190"), "{}", text(&own));
        assert!(Cubin::parse(&own[..100]).is_err());
    }

    /// A cubin of sm_87 with one kernel `K`, some of its sections, each with its size; a size past what a file has is
    /// said, and takes no bytes.
    fn cubin(sections: &[(&str, u64, &[u8])], flags: u32) -> Vec<u8> {
        let [program, table, text, no_bytes] = [1, 2, 3, 8];
        let mut names = b"\0K\0.names\0.symbols\0".to_vec();
        let mut bytes = vec![0; 64];
        let mut headers = vec![[0; 64]];
        let mut put = |name: usize, kind: u32, size: u64, content: &[u8], link: u32, entry: u64| {
            let mut header = [0; 64];
            header[..4].copy_from_slice(&(name as u32).to_le_bytes());
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[24..32].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            header[32..40].copy_from_slice(&size.to_le_bytes());
            header[40..44].copy_from_slice(&link.to_le_bytes());
            header[44..48].copy_from_slice(&1_u32.to_le_bytes());
            header[56..64].copy_from_slice(&entry.to_le_bytes());
            bytes.extend_from_slice(content);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            headers.push(header);
        };
        let mut symbols = [0; 48];
        // The kernel's is in the first section.
        (symbols[24], symbols[28], symbols[29], symbols[30]) = (1, 0x12, STO_CUDA_ENTRY, 1);
        for (name, size, content) in sections {
            let kind = if content.is_empty() { no_bytes } else { program };
            put(names.len(), kind, *size, content, 0, 0);
            names.extend_from_slice(name.as_bytes());
            names.push(0);
        }
        let last = sections.len() as u32 + 2;
        put(10, table, 48, &symbols, last, 24);
        put(3, text, names.len() as u64, &names, 0, 0);
        bytes[..16].copy_from_slice(b"\x7fELF\x02\x01\x01\x33\x07\0\0\0\0\0\0\0");
        bytes[16..20].copy_from_slice(&[2, 0, EM_CUDA as u8, 0]);
        let at = bytes.len() as u64;
        bytes[40..48].copy_from_slice(&at.to_le_bytes());
        bytes[48..52].copy_from_slice(&flags.to_le_bytes());
        bytes[52..54].copy_from_slice(&[64, 0]);
        bytes[58..64].copy_from_slice(&[64, 0, last as u8 + 1, 0, last as u8, 0]);
        bytes.extend(headers.concat());
        bytes
    }

    const CODE: (&str, u64, &[u8]) = (".text.K", 16, &[0; 16]);

    fn kernel_of(sections: &[(&str, u64, &[u8])]) -> std::result::Result<Kernel, String> {
        let file = cubin(&[&[CODE], sections].concat(), 87);
        let file = Cubin::parse(&file).map_err(|error| error.to_string())?;
        let number = file.symbols.keys().next().unwrap();
        file.kernel(*number, &|_| Some(4096)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_kernel_has_what_its_sections_say() {
        let told = kernel_of(&[
            (".nv.constant0.K", 0x170, &[0; 0x170]),
            (".nv.info", 12, &[4, MOST_STACK, 8, 0, 1, 0, 0, 0, 64, 0, 0, 0]),
            (".nv.info.K", 12, &[4, PARAMETERS, 8, 0, 1, 0, 0, 0, 0x60, 1, 16, 0]),
        ]);
        let told = told.unwrap();
        assert_eq!((told.program, told.bank), (4096, 0x170));
        assert_eq!(told.parameters, 0x160..0x170);
        assert_eq!((told.stack, told.local_size()), (64, 64 + ABOVE_STACK));
    }

    #[test]
    fn more_than_a_gpu_has_is_refused() {
        let refused = |sections: &[(&str, u64, &[u8])]| kernel_of(sections).unwrap_err();
        assert_eq!(
            refused(&[(".nv.constant0.K", 1 << 60, &[])]),
            "`K` of the cubin has 1152921504606846976 bytes of .nv.constant0.K: at most 65536"
        );
        let stack = |size: u32| {
            let size = size.to_le_bytes();
            let bytes = [&[4, FRAME, 8, 0, 1, 0, 0, 0], size.as_slice()].concat();
            kernel_of(&[(".nv.info", 12, &bytes)]).map(|kernel| kernel.local_size())
        };
        let most = MOST_LOCAL - ABOVE_STACK;
        assert_eq!(stack(most), Ok(MOST_LOCAL));
        assert_eq!(
            stack(most + 1).unwrap_err(),
            "`K` of the cubin has 523713 bytes of stack: at most 523712"
        );
        for name in [".rel.nv.constant0.K", ".rela.nv.constant0.K", ".rel.text.K"] {
            let text = refused(&[(name, 16, &[0; 16])]);
            assert!(text.contains(&format!("addresses to be filled in ({name})")), "{text}");
        }
    }

    #[test]
    fn code_of_another_architecture_is_refused() {
        let check = |flags, abi: u8, sm_version| {
            let mut file = cubin(&[CODE], flags);
            file[8] = abi;
            let file = Cubin::parse(&file).unwrap();
            file.check_architecture(sm_version).map_err(|error| error.to_string())
        };
        assert_eq!(check(0x57_0557, 7, 0x807), Ok(()));
        assert_eq!(check(0x600_5702, 8, 0x807), Ok(()));
        assert_eq!(
            check(0x56_0556, 7, 0x807).unwrap_err(),
            "the cubin is of sm_86, and the GPU is sm_87: assemble it for that"
        );
        assert!(check(0x57_0557, 7, 0x503).unwrap_err().contains("the GPU is sm_53"));
    }

    #[test]
    fn functions_that_are_called_are_no_kernels() {
        let mut file = cubin(&[CODE], 87);
        let at = file.windows(6).position(|it| it == [1, 0, 0, 0, 0x12, STO_CUDA_ENTRY]).unwrap();
        assert_eq!(Cubin::parse(&file).unwrap().symbols.len(), 1);
        file[at + 5] = 0;
        assert_eq!(Cubin::parse(&file).unwrap().symbols.len(), 0);
    }

    #[test]
    fn a_kernel_begins_where_its_symbol_says() {
        let mut file = cubin(&[(".text.K", 384, &[0; 384])], 87);
        let symbol = [1, 0, 0, 0, 0x12, STO_CUDA_ENTRY];
        let at = file.windows(6).position(|it| it == symbol).unwrap();
        let mut begins = |value: u64| {
            file[at + 8..at + 16].copy_from_slice(&value.to_le_bytes());
            let file = Cubin::parse(&file).unwrap();
            let kernel = file.kernel(1, &|_| Some(4096));
            kernel.map(|kernel| kernel.program).map_err(|error| error.to_string())
        };
        assert_eq!((begins(0), begins(128), begins(256)), (Ok(4096), Ok(4224), Ok(4352)));
        assert_eq!(
            begins(64).unwrap_err(),
            "`K` of the cubin begins at 0x40 of 0x180 bytes of code: a multiple of 128 inside of them can be"
        );
        assert!(begins(384).is_err() && begins(u64::MAX - 127).is_err());
    }

    #[test]
    fn banks_are_told_by_their_names() {
        assert_eq!(bank_of(".nv.constant0.add"), Some((0, Some("add"))));
        assert_eq!(bank_of(".nv.constant3"), Some((3, None)));
        assert_eq!(bank_of(".nv.constant9"), None);
        assert!(is_constant(".nv.constant2.add") && !is_constant(".nv.constant0.add"));
    }

    #[test]
    fn attributes_end_where_their_section_does() {
        let bytes = [4, 0x11, 8, 0, 1, 0, 0, 0, 64, 0, 0, 0, 3, 0x1b, 9, 9, 4, 0x12, 8, 0, 1];
        let section = Section { bytes: &bytes, size: 0, flags: 0, info: 0 };
        let value = [1, 0, 0, 0, 64, 0, 0, 0];
        assert_eq!(attributes(Some(&section)), [(0x11, value.as_slice())]);
        assert_eq!((word(&value, 4), word(&value, 5)), (Some(64), None));
    }
}
