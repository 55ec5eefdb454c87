//! Files with machine code: cubins, fatbins, and programs and libraries that have fatbins in them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::Arch;

const ELF: &[u8] = b"\x7fELF";
/// ELF's number for NVIDIA's GPUs.
const MACHINE: u64 = 190;
/// From this version of the ABI on, the architecture is in the second byte of the flags.
const ABI_WITH_WIDE_FLAGS: u64 = 8;

/// First four bytes of a fatbin.
const CONTAINER: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();
const KIND_PTX: u64 = 1;
const KIND_CUBIN: u64 = 2;
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;
/// Largest image that is unpacked.
const MAX_IMAGE: usize = 1 << 30;

/// Why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// Something reaches beyond the end.
    #[error("{what} at byte {at:#x} is cut off")]
    CutOff {
        /// What it is.
        what: &'static str,
        /// Where it begins.
        at: usize,
    },
    /// An image is packed in a way that is not read here.
    #[error(
        "the image at byte {at:#x} is packed with {method}: unpack it with `cuobjdump -xelf all FILE`"
    )]
    Packed {
        /// Where its header begins.
        at: usize,
        /// Its method.
        method: &'static str,
    },
    /// An image cannot be unpacked.
    #[error("the image at byte {at:#x} cannot be unpacked: {reason}")]
    Damaged {
        /// Where its header begins.
        at: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no machine code in the file.
    #[error("no cubin and no fatbin in this file")]
    NoImages,
    /// A cubin of an architecture that the table lacks.
    #[error("sm_{0} is not supported: expected {supported}", supported = supported())]
    Arch(u32),
}

fn supported() -> String {
    let names: Vec<String> = Arch::ALL.iter().map(Arch::to_string).collect();
    names.join(", ")
}

/// Code for one architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// Where it is in the file; a packed one where its header is.
    pub at: usize,
    /// The number behind `sm_`.
    pub arch: u32,
    /// Its bytes, unpacked.
    pub code: Code<'a>,
}

/// The two kinds of images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code<'a> {
    /// Machine code.
    Cubin(Cow<'a, [u8]>),
    /// Text of PTX.
    Ptx(String),
}

/// Every image of a file: the file itself where it is a cubin, else those of all its fatbins.
pub fn images(file: &[u8]) -> Result<Vec<Image<'_>>, FileError> {
    if let Some(elf) = Elf::read(file)?.filter(|elf| elf.machine == MACHINE) {
        return Ok(vec![Image { at: 0, arch: elf.arch, code: Code::Cubin(Cow::Borrowed(file)) }]);
    }
    let mut images = Vec::new();
    let mut at = 0;
    while let Some(found) =
        file.get(at..).and_then(|rest| rest.chunks(8).position(|word| word.starts_with(&CONTAINER)))
    {
        at += found * 8;
        at = container(file, at, &mut images)?;
    }
    if images.is_empty() { Err(FileError::NoImages) } else { Ok(images) }
}

/// Adds the images of the container at `start`; returns its end, or the next word where it is none.
fn container<'a>(
    file: &'a [u8],
    start: usize,
    images: &mut Vec<Image<'a>>,
) -> Result<usize, FileError> {
    let header = number(file, start + 6, 2).unwrap_or(0) as usize;
    let length = number(file, start + 8, 8).and_then(|length| usize::try_from(length).ok());
    let end = length.and_then(|length| start.checked_add(header)?.checked_add(length));
    let Some(end) = end.filter(|&end| header >= 16 && end <= file.len()) else {
        return Ok(start + 8);
    };
    let mut at = start + header;
    while at + 64 <= end {
        let cut_off = FileError::CutOff { what: "an image", at };
        let number = |offset, width| number(file, at + offset, width).ok_or(cut_off.clone());
        let payload = at + number(4, 4)? as usize;
        let next = usize::try_from(number(8, 8)?).ok().and_then(|size| payload.checked_add(size));
        let next = next.filter(|&next| payload >= at + 64 && next <= end).ok_or(cut_off.clone())?;
        let (kind, arch) = (number(0, 2)?, number(28, 4)? as u32);
        if kind == KIND_PTX || kind == KIND_CUBIN {
            let packed = match number(16, 4)? as usize {
                0 => &file[payload..next],
                size => file[payload..next].get(..size).ok_or(cut_off.clone())?,
            };
            let bytes = unpack(packed, number(40, 8)?, number(56, 8)?, at)?;
            let code = match kind {
                KIND_CUBIN => Code::Cubin(bytes),
                _ => Code::Ptx(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()),
            };
            images.push(Image { at, arch, code });
        }
        at = next;
    }
    // Containers begin at multiples of 8.
    Ok(end.next_multiple_of(8))
}

fn unpack(packed: &[u8], flags: u64, size: u64, at: usize) -> Result<Cow<'_, [u8]>, FileError> {
    if flags & ZSTD != 0 {
        return Err(FileError::Packed { at, method: "Zstandard" });
    }
    if flags & LZ4 == 0 {
        return Ok(Cow::Borrowed(packed));
    }
    let size = usize::try_from(size).unwrap_or(usize::MAX).min(MAX_IMAGE);
    // LZ4 makes at most 255 bytes of one.
    let size = size.min(packed.len().saturating_mul(255));
    let bytes = lz4_flex::block::decompress(packed, size)
        .map_err(|error| FileError::Damaged { at, reason: error.to_string() })?;
    Ok(Cow::Owned(bytes))
}

/// A cubin's functions.
#[derive(Clone, Debug)]
pub struct Cubin<'a> {
    /// What its instructions are for.
    pub arch: Arch,
    /// In the order of the file.
    pub functions: Vec<Function<'a>>,
}

/// A kernel or a function that kernels call.
#[derive(Clone, Debug)]
pub struct Function<'a> {
    /// Its mangled name.
    pub name: String,
    /// Its instructions, 16 bytes each.
    pub code: &'a [u8],
    /// Source lines, by the address of their first instruction.
    pub lines: BTreeMap<u64, SourceLine>,
}

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// The file's name.
    pub file: String,
    /// Its line, from 1.
    pub line: u64,
}

impl Function<'_> {
    /// The instructions as numbers, with their addresses.
    pub fn words(&self) -> impl Iterator<Item = (u64, u128)> + '_ {
        let words = self.code.chunks_exact(16).filter_map(|word| word.try_into().ok());
        words.map(u128::from_le_bytes).enumerate().map(|(index, word)| (index as u64 * 16, word))
    }
}

/// Reads the functions of a cubin.
pub fn cubin(file: &[u8]) -> Result<Cubin<'_>, FileError> {
    let elf = Elf::read(file)?.filter(|elf| elf.machine == MACHINE).ok_or(FileError::NoImages)?;
    let arch = Arch::from_number(elf.arch).ok_or(FileError::Arch(elf.arch))?;
    let sections = elf.sections(file)?;
    let mut lines = crate::lines::read(&sections);
    let functions = sections
        .iter()
        .filter_map(|section| {
            let name = section.name.strip_prefix(".text.")?.to_owned();
            let lines = lines.remove(&section.index).unwrap_or_default();
            Some(Function { name, code: section.bytes, lines })
        })
        .collect();
    Ok(Cubin { arch, functions })
}

/// The header of an ELF file of 64 bits.
struct Elf {
    machine: u64,
    arch: u32,
    table: usize,
    entry: usize,
    count: usize,
    names: usize,
}

/// A section of a cubin.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    /// Its number.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Its bytes; none where the file holds none of it.
    pub bytes: &'a [u8],
    /// As many bytes as it has in memory.
    pub size: u64,
    /// The section that this one is about, such as the one that relocations change.
    pub info: usize,
    /// The section with its symbols.
    pub link: usize,
}

/// A symbol of a cubin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// The section it is in; 0 where it is defined elsewhere.
    pub section: usize,
    /// Where it is in its section.
    pub value: u64,
    /// Its bytes.
    pub size: u64,
    /// Is it a name that other files see?
    pub global: bool,
    /// Is it a kernel?
    pub kernel: bool,
}

/// A place that is filled in when the cubin is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// The section that is changed.
    pub section: usize,
    /// Where in it.
    pub offset: u64,
    /// How.
    pub kind: u32,
    /// The number of the symbol whose address it is.
    pub symbol: usize,
    /// What is added to that; none where it is what the place holds.
    pub addend: Option<i64>,
}

/// All of a cubin that a loader needs.
#[derive(Clone, Debug)]
pub struct Object<'a> {
    /// What its instructions are for.
    pub arch: Arch,
    /// By number.
    pub sections: Vec<Section<'a>>,
    /// By number.
    pub symbols: Vec<Symbol>,
    /// In the order of the file.
    pub relocations: Vec<Relocation>,
    /// Source lines of each section with code, by the address of their first instruction.
    pub lines: BTreeMap<usize, BTreeMap<u64, SourceLine>>,
}

/// Reads all of a cubin that a loader needs.
pub fn object(file: &[u8]) -> Result<Object<'_>, FileError> {
    let elf = Elf::read(file)?.filter(|elf| elf.machine == MACHINE).ok_or(FileError::NoImages)?;
    let arch = Arch::from_number(elf.arch).ok_or(FileError::Arch(elf.arch))?;
    let sections = elf.sections(file)?;
    let table = sections.iter().find(|section| section.name == ".symtab");
    let symbols = table.map_or(Vec::new(), |table| {
        let names = sections.get(table.link).map_or(&[][..], |section| section.bytes);
        table.bytes.chunks_exact(24).map(|entry| symbol(entry, names)).collect()
    });
    let relocations = sections.iter().flat_map(relocations).collect();
    let lines = crate::lines::read(&sections);
    Ok(Object { arch, sections, symbols, relocations, lines })
}

fn symbol(entry: &[u8], names: &[u8]) -> Symbol {
    const FUNCTION: u64 = 2;
    const ENTRY: u64 = 0x10;
    let field = |at, width| number(entry, at, width).unwrap_or_default();
    Symbol {
        name: text(names, field(0, 4) as usize),
        section: field(6, 2) as usize,
        value: field(8, 8),
        size: field(16, 8),
        global: field(4, 1) >> 4 != 0,
        kernel: field(4, 1) & 0xf == FUNCTION && field(5, 1) & ENTRY != 0,
    }
}

/// The entries of a section of relocations; none of any other.
pub(crate) fn relocations(table: &Section<'_>) -> Vec<Relocation> {
    let entry = match &table.name {
        name if name.starts_with(".rela.") => 24,
        name if name.starts_with(".rel.") => 16,
        _ => return Vec::new(),
    };
    let read = |bytes: &[u8]| {
        let field = |at, width| number(bytes, at, width).unwrap_or_default();
        Relocation {
            section: table.info,
            offset: field(0, 8),
            kind: field(8, 4) as u32,
            symbol: field(12, 4) as usize,
            addend: number(bytes, 16, 8).map(|addend| addend as i64),
        }
    };
    table.bytes.chunks_exact(entry).map(read).collect()
}

impl Elf {
    /// None where the file is no ELF of 64 bits.
    fn read(file: &[u8]) -> Result<Option<Elf>, FileError> {
        if !file.starts_with(ELF) || file.get(4) != Some(&2) {
            return Ok(None);
        }
        let number = |at, width| {
            number(file, at, width)
                .ok_or(FileError::CutOff { what: "the header of the ELF file", at: 0 })
        };
        let flags = number(48, 4)?;
        let arch =
            if number(8, 1)? >= ABI_WITH_WIDE_FLAGS { flags >> 8 & 0xff } else { flags & 0xff };
        Ok(Some(Elf {
            machine: number(18, 2)?,
            arch: arch as u32,
            table: number(40, 8)? as usize,
            entry: number(58, 2)? as usize,
            count: number(60, 2)? as usize,
            names: number(62, 2)? as usize,
        }))
    }

    fn sections<'a>(&self, file: &'a [u8]) -> Result<Vec<Section<'a>>, FileError> {
        // Names, once the section that has them is known.
        let header = |index: usize| {
            let at =
                index.checked_mul(self.entry).and_then(|offset| offset.checked_add(self.table));
            at.ok_or(FileError::CutOff { what: "a section header", at: self.table })
        };
        let field = |index, offset, width| {
            let at = header(index)?;
            number(file, at.saturating_add(offset), width)
                .ok_or(FileError::CutOff { what: "a section header", at })
        };
        let bytes = |index| -> Result<&'a [u8], FileError> {
            const NO_BYTES: u64 = 8;
            if field(index, 4, 4)? == NO_BYTES {
                return Ok(&[]);
            }
            let (at, size) = (field(index, 24, 8)? as usize, field(index, 32, 8)? as usize);
            let end = at.checked_add(size).ok_or(FileError::CutOff { what: "a section", at })?;
            file.get(at..end).ok_or(FileError::CutOff { what: "a section", at })
        };
        if self.count == 0 {
            return Ok(Vec::new());
        }
        let names = bytes(self.names)?;
        (0..self.count)
            .map(|index| {
                Ok(Section {
                    index,
                    name: text(names, field(index, 0, 4)? as usize),
                    bytes: bytes(index)?,
                    size: field(index, 32, 8)?,
                    link: field(index, 40, 4)? as usize,
                    info: field(index, 44, 4)? as usize,
                })
            })
            .collect()
    }
}

/// Text up to its zero byte.
pub(crate) fn text(bytes: &[u8], at: usize) -> String {
    let rest = bytes.get(at..).unwrap_or_default();
    let end = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
    String::from_utf8_lossy(&rest[..end]).into_owned()
}

/// A little-endian number of up to 8 bytes.
pub(crate) fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(width)?)?;
    Some(field.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
}
