//! The format table of Wayland's linux-dmabuf feedback: entries of 16 bytes (format, 4 bytes of
//! padding, modifier), and the tranches, which are indices into it of 2 bytes.

use super::FormatModifier;
use crate::usage::Fourcc;
use crate::wire::WireError;

const ENTRY: usize = 16;

/// Reads a table.
///
/// # Errors
///
/// When its last entry is cut off.
pub fn read(table: &[u8]) -> Result<Vec<FormatModifier>, WireError> {
    let mut list = Vec::new();
    for (at, entry) in table.chunks(ENTRY).enumerate() {
        let (format, modifier) =
            (entry.first_chunk::<4>(), entry.get(8..).and_then(<[u8]>::first_chunk));
        let (Some(format), Some(modifier)) = (format, modifier) else {
            return Err(WireError { offset: at * ENTRY, what: "an entry is cut off".to_owned() });
        };
        let format = Fourcc(u32::from_le_bytes(*format));
        list.push(FormatModifier { format, modifier: u64::from_le_bytes(*modifier) });
    }
    Ok(list)
}

/// Writes a table.
pub fn write(list: &[FormatModifier]) -> Vec<u8> {
    let mut table = Vec::with_capacity(list.len() * ENTRY);
    for FormatModifier { format, modifier } in list {
        table.extend_from_slice(&format.0.to_le_bytes());
        table.extend_from_slice(&[0; 4]);
        table.extend_from_slice(&modifier.to_le_bytes());
    }
    table
}

/// What a tranche has of a table.
///
/// # Errors
///
/// When an index is cut off, or outside of the table.
pub fn tranche(list: &[FormatModifier], indices: &[u8]) -> Result<Vec<FormatModifier>, WireError> {
    let entry = |(at, index): (usize, &[u8])| {
        let index = <[u8; 2]>::try_from(index).map(u16::from_le_bytes).ok();
        let entry = index.and_then(|index| list.get(usize::from(index)));
        let what = || "an index that is not in the table".to_owned();
        entry.copied().ok_or_else(|| WireError { offset: at * 2, what: what() })
    };
    indices.chunks(2).enumerate().map(entry).collect()
}

/// The tranche of a table that has these. What the table does not have is left out.
pub fn indices(list: &[FormatModifier], wanted: &[FormatModifier]) -> Vec<u8> {
    let index = |pair| list.iter().position(|known| known == pair);
    let indices = wanted.iter().filter_map(index).filter_map(|index| u16::try_from(index).ok());
    indices.flat_map(u16::to_le_bytes).collect()
}
