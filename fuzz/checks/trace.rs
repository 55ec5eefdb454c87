//! What holds for any bytes as a trace; the fuzz target and the tests of mutated files share it.

use std::io::Write;

use nvabi_trace::report::{Note, Status};
use nvabi_trace::{Options, Trace, diff};

/// Reads a trace and compares it with itself. Says what was noted, or nothing where it is refused.
pub(crate) fn compared(bytes: &[u8]) -> Option<Vec<Note>> {
    let mut file = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file");
    file.write_all(bytes).expect("room for the file");
    let options = Options { values: true, threads: Some(1), ..Options::default() };
    match Trace::open(file.path()).and_then(|trace| diff(&trace, &trace, &options)) {
        Ok(report) => {
            assert_ne!(report.status, Status::Different, "a trace differs from itself");
            Some(report.notes)
        }
        Err(error) => {
            assert_eq!(error.path(), file.path(), "{error}");
            None
        }
    }
}

const CHUNK: usize = 40;
const ENTRY: usize = 8 + CHUNK;
const FOOTER: usize = 24;
const INDEX: u16 = 5;
const STORED: u16 = 0;

/// Makes the checksums of a file of nvtrace v2 right, so that what is behind them is looked at: nobody
/// guesses a checksum.
pub(crate) fn seal(bytes: &mut Vec<u8>) {
    if !bytes.starts_with(b"NVTRACE\0") {
        return;
    }
    let chunks: Vec<usize> =
        (16..bytes.len()).step_by(8).filter(|at| bytes[*at..].starts_with(b"NVTC")).collect();
    let (index, others): (Vec<usize>, Vec<usize>) =
        chunks.iter().partition(|at| half(bytes, **at + 12) == Some(INDEX));
    // From behind, so that what looks like a chunk within another is ready when that is summed up.
    others.iter().rev().for_each(|at| seal_chunk(bytes, *at));
    for at in index {
        bring_up_to_date(bytes, at);
        seal_chunk(bytes, at);
    }
    if let Some(at) = bytes.len().checked_sub(FOOTER) {
        let check = crc32fast::hash(&bytes[at..at + 12]);
        put(bytes, at + 12, check);
    }
}

fn seal_chunk(bytes: &mut [u8], at: usize) {
    let payload = at + CHUNK;
    if payload > bytes.len() {
        return;
    }
    let stored = number(bytes, at + 24) as usize;
    if let Some(payload) = bytes.get(payload..payload.saturating_add(stored)) {
        let check = crc32fast::hash(payload);
        put(bytes, at + 8, check);
    }
    let check = crc32fast::hash(&bytes[at + 8..at + CHUNK]);
    put(bytes, at + 4, check);
}

/// Lets the index say of the chunks what their headers say; one that is compressed is taken away, and
/// the file is read without.
fn bring_up_to_date(bytes: &mut Vec<u8>, at: usize) {
    if half(bytes, at + 14) != Some(STORED) {
        bytes.truncate(at);
        return;
    }
    let end = (at + CHUNK).saturating_add(number(bytes, at + 24) as usize).min(bytes.len());
    for entry in (at + CHUNK..end.saturating_sub(ENTRY - 1)).step_by(ENTRY) {
        let offset = number(bytes, entry) as usize;
        if let Some(header) = bytes.get(offset..offset.saturating_add(CHUNK)).map(<[u8]>::to_vec) {
            bytes[entry + 8..entry + ENTRY].copy_from_slice(&header);
        }
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_le_bytes(*word))
}

fn put(bytes: &mut [u8], at: usize, number: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}
