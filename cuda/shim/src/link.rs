//! What `cuLinkComplete` hands out and `cuModuleLoadData` takes: the texts that are linked, with their
//! names. A GPU's driver has machine code in its place.
//!
//! Magic and length, 16 bytes; then for each text the lengths of its name and of itself, and both.

use crate::state::{INVALID_VALUE, Result};

/// Nothing else that is loaded begins so.
pub(crate) const MAGIC: u32 = 0x6b6e_6c6e;

const HEADER: usize = 16;

/// A text to be linked.
pub(crate) struct Unit {
    pub(crate) name: String,
    pub(crate) text: String,
}

pub(crate) fn image(units: &[Unit]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    for Unit { name, text } in units {
        for length in [name.len(), text.len()] {
            bytes.extend((length as u64).to_le_bytes());
        }
        bytes.extend(name.bytes());
        bytes.extend(text.bytes());
    }
    let length = bytes.len() as u64;
    bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[8..HEADER].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// The length of an image, from its header.
pub(crate) fn length(header: [u8; HEADER]) -> usize {
    let [.., a, b, c, d, e, f, g, h] = header;
    u64::from_le_bytes([a, b, c, d, e, f, g, h]) as usize
}

/// The texts of an image; None where it is something else.
pub(crate) fn units(image: &[u8]) -> Option<Result<Vec<Unit>>> {
    let rest = image.strip_prefix(&MAGIC.to_le_bytes())?.get(HEADER - 4..)?;
    Some(read(rest).ok_or(INVALID_VALUE))
}

fn read(mut rest: &[u8]) -> Option<Vec<Unit>> {
    let mut units = Vec::new();
    while !rest.is_empty() {
        let [name, text] = [take_length(&mut rest)?, take_length(&mut rest)?];
        let [name, text] = [take(&mut rest, name)?, take(&mut rest, text)?];
        let [name, text] = [name, text].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        units.push(Unit { name, text });
    }
    Some(units)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(head)
}

fn take_length(rest: &mut &[u8]) -> Option<usize> {
    let bytes = take(rest, 8)?.try_into().ok()?;
    Some(u64::from_le_bytes(bytes) as usize)
}
