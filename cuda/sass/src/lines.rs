//! Source lines of instructions: DWARF's line table, versions 2 to 4, as ptxas writes it.

use std::collections::BTreeMap;

use crate::cubin::{Section, SourceLine, number, relocations, text};

type Lines = BTreeMap<u64, SourceLine>;

/// The lines of each section with code, by its index. A table that cannot be read has none.
pub(crate) fn read(sections: &[Section<'_>]) -> BTreeMap<usize, Lines> {
    let mut lines = BTreeMap::new();
    if let Some(table) = sections.iter().find(|section| section.name == ".debug_line") {
        let places = places(sections, table.index);
        let mut at = 0;
        while let Some(end) = unit(table.bytes, at, &places, &mut lines) {
            at = end;
        }
    }
    lines
}

/// Where addresses in the section are filled in: the section that each points to.
fn places(sections: &[Section<'_>], target: usize) -> BTreeMap<usize, usize> {
    let mut places = BTreeMap::new();
    for table in sections.iter().filter(|section| section.info == target) {
        let symbols = sections.get(table.link).map_or(&[][..], |section| section.bytes);
        for relocation in relocations(table) {
            if let Some(section) =
                number(symbols, relocation.symbol.saturating_mul(24).saturating_add(6), 2)
            {
                places.insert(relocation.offset as usize, section as usize);
            }
        }
    }
    places
}

/// Reads the unit at `start`; returns where the next one begins.
fn unit(
    table: &[u8],
    start: usize,
    places: &BTreeMap<usize, usize>,
    lines: &mut BTreeMap<usize, Lines>,
) -> Option<usize> {
    let end = (start + 4)
        .checked_add(number(table, start, 4)? as usize)
        .filter(|&end| end <= table.len())?;
    let bytes = &table[..end];
    let version = number(bytes, start + 4, 2)?;
    if !(2..=4).contains(&version) {
        return Some(end);
    }
    let program = (start + 10).checked_add(number(bytes, start + 6, 4)? as usize)?;
    let mut reader = Reader { bytes, at: start + 10 };
    let step = reader.byte()?;
    if version == 4 {
        reader.byte()?;
    }
    reader.byte()?;
    let line_base = i64::from(reader.byte()? as i8);
    let line_range = reader.byte()?.max(1);
    let first_special = reader.byte()?;
    let lengths: Vec<u8> = (1..first_special).map(|_| reader.byte()).collect::<Option<_>>()?;
    while !reader.text()?.is_empty() {}
    let mut files = vec![String::new()];
    loop {
        let file = reader.text()?;
        if file.is_empty() {
            break;
        }
        (0..3).try_for_each(|_| reader.unsigned().map(drop))?;
        files.push(file);
    }
    reader.at = program;
    let new = State { section: None, address: 0, file: 1, line: 1 };
    let mut state = new;
    while reader.at < end {
        let op = reader.byte()?;
        if op >= first_special {
            let advance = op - first_special;
            state.address =
                state.address.wrapping_add(u64::from(advance / line_range) * u64::from(step));
            state.line = state.line.wrapping_add(line_base + i64::from(advance % line_range));
            state.record(&files, lines);
            continue;
        }
        match op {
            0 => {
                let length = reader.unsigned()? as usize;
                let next = reader.at.checked_add(length)?;
                match reader.byte()? {
                    1 => state = new,
                    2 => {
                        state.section = places.get(&reader.at).copied();
                        state.address = number(bytes, reader.at, length.checked_sub(1)?.min(8))?;
                    }
                    _ => {}
                }
                reader.at = next;
            }
            1 => state.record(&files, lines),
            2 => {
                state.address =
                    state.address.wrapping_add(reader.unsigned()?.wrapping_mul(u64::from(step)))
            }
            3 => state.line = state.line.wrapping_add(reader.signed()?),
            4 => state.file = reader.unsigned()? as usize,
            8 => {
                let advance = u64::from((255 - first_special) / line_range);
                state.address = state.address.wrapping_add(advance * u64::from(step));
            }
            9 => {
                state.address = state.address.wrapping_add(number(bytes, reader.at, 2)?);
                reader.at += 2;
            }
            _ => {
                let operands = lengths.get(usize::from(op) - 1)?;
                (0..*operands).try_for_each(|_| reader.unsigned().map(drop))?;
            }
        }
    }
    Some(end)
}

#[derive(Clone, Copy)]
struct State {
    section: Option<usize>,
    address: u64,
    file: usize,
    line: i64,
}

impl State {
    fn record(&self, files: &[String], lines: &mut BTreeMap<usize, Lines>) {
        if let (Some(section), Some(file), Ok(line)) =
            (self.section, files.get(self.file), u64::try_from(self.line))
        {
            lines
                .entry(section)
                .or_default()
                .insert(self.address, SourceLine { file: file.clone(), line });
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn text(&mut self) -> Option<String> {
        let text = text(self.bytes, self.at);
        self.at += self.bytes.get(self.at..)?.iter().position(|&byte| byte == 0)? + 1;
        Some(text)
    }

    /// LEB128, of which the lowest 64 bits count.
    fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0;
        let mut shift = 0;
        loop {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
    }

    fn signed(&mut self) -> Option<i64> {
        let start = self.at;
        let value = self.unsigned()?;
        let length = 7 * (self.at - start);
        let unused = 64_usize.saturating_sub(length) as u32;
        Some((value << unused) as i64 >> unused)
    }
}
