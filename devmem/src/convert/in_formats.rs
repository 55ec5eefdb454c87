//! The blob of DRM's plane property `IN_FORMATS` (`struct drm_format_modifier_blob`, drm_mode.h):
//! formats, and for each modifier a mask of 64 of them. Native byte order is little-endian.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::FormatModifier;
use crate::usage::Fourcc;
use crate::wire::WireError;

const VERSION: u32 = 1;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    version: U32,
    flags: U32,
    formats: U32,
    formats_offset: U32,
    modifiers: U32,
    modifiers_offset: U32,
}

/// The bits are the formats from the one of index `first` on.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Modifier {
    formats: U64,
    first: U32,
    _pad: U32,
    modifier: U64,
}

/// Reads a blob: every format with every modifier that it has, by modifier.
///
/// # Errors
///
/// When the blob is of another version, or points outside of itself.
pub fn read(blob: &[u8]) -> Result<Vec<FormatModifier>, WireError> {
    let error = |offset, what: &str| WireError { offset, what: what.to_owned() };
    let Ok((head, _)) = Head::ref_from_prefix(blob) else {
        return Err(error(0, "a blob is cut off"));
    };
    if head.version.get() != VERSION {
        return Err(error(0, "a blob of a version that is not known"));
    }
    let formats: &[U32] = array(blob, head.formats_offset, head.formats)
        .ok_or_else(|| error(12, "formats outside of the blob"))?;
    let modifiers: &[Modifier] = array(blob, head.modifiers_offset, head.modifiers)
        .ok_or_else(|| error(20, "modifiers outside of the blob"))?;
    let mut list = Vec::new();
    for Modifier { formats: mask, first, modifier, .. } in modifiers {
        let first = usize::try_from(first.get()).unwrap_or(usize::MAX);
        for bit in (0..64).filter(|bit| mask.get() >> bit & 1 == 1) {
            let format = first.checked_add(bit).and_then(|at| formats.get(at));
            let format =
                format.ok_or_else(|| error(20, "a modifier of a format that is not there"))?;
            list.push(FormatModifier { format: Fourcc(format.get()), modifier: modifier.get() });
        }
    }
    Ok(list)
}

fn array<T: FromBytes + Immutable + KnownLayout>(
    blob: &[u8],
    offset: U32,
    count: U32,
) -> Option<&[T]> {
    let start = usize::try_from(offset.get()).ok()?;
    let count = usize::try_from(count.get()).ok()?;
    let (array, _) = <[T]>::ref_from_prefix_with_elems(blob.get(start..)?, count).ok()?;
    Some(array)
}

/// Writes a blob. Formats and modifiers are in the order in which the list first has them.
pub fn write(list: &[FormatModifier]) -> Vec<u8> {
    let formats = once(list.iter().map(|pair| pair.format));
    let mut entries = Vec::new();
    for modifier in once(list.iter().map(|pair| pair.modifier)) {
        for (window, formats) in formats.chunks(64).enumerate() {
            let has =
                |format: &Fourcc| list.contains(&FormatModifier { format: *format, modifier });
            let bits = formats.iter().enumerate().filter(|(_, format)| has(format));
            let mask = bits.fold(0, |mask, (bit, _)| mask | 1_u64 << bit);
            if mask != 0 {
                let first = U32::new(window as u32 * 64);
                let (formats, modifier) = (U64::new(mask), U64::new(modifier));
                entries.push(Modifier { formats, first, _pad: U32::ZERO, modifier });
            }
        }
    }
    let formats_offset = size_of::<Head>();
    let modifiers_offset = (formats_offset + 4 * formats.len()).next_multiple_of(8);
    let head = Head {
        version: U32::new(VERSION),
        flags: U32::ZERO,
        formats: U32::new(formats.len() as u32),
        formats_offset: U32::new(formats_offset as u32),
        modifiers: U32::new(entries.len() as u32),
        modifiers_offset: U32::new(modifiers_offset as u32),
    };
    let mut blob = head.as_bytes().to_vec();
    formats.iter().for_each(|format| blob.extend_from_slice(&format.0.to_le_bytes()));
    blob.resize(modifiers_offset, 0);
    entries.iter().for_each(|entry| blob.extend_from_slice(entry.as_bytes()));
    blob
}

fn once<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}
