//! A file as bytes, of which only windows lie in memory.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;

use memmap2::{Mmap, UncheckedAdvice};

use super::error::{Error, Problem};

/// The most that one access maps.
const LARGE_PAGE: usize = 2 << 20;

/// The bytes of a file.
#[derive(Debug)]
pub(crate) struct Map(Option<Mmap>);

impl Map {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|error| Error::io(path, error))?;
        let found = file.metadata().map_err(|error| Error::io(path, error))?;
        if !found.is_file() {
            let why = "not a regular file: a trace is read at many places";
            return Err(Error::io(path, io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        if found.len() == 0 {
            return Ok(Self(None));
        }
        // SAFETY: the map is read-only, and what it holds is taken for numbers alone, each checked
        // before it is used: bytes that another process changes meanwhile are as bad as bytes that
        // were wrong from the start. A file that shrinks ends the process with SIGBUS, as documented.
        let map = unsafe { Mmap::map(&file) }.map_err(|error| Error::io(path, error))?;
        Ok(Self(Some(map)))
    }

    /// Gives the memory of a range back; reading it again fetches it again.
    pub(crate) fn release(&self, range: Range<usize>) {
        if let Some(map) = &self.0 {
            // Touching one byte maps all of a large page, also what was given back before.
            let start = range.start - range.start % LARGE_PAGE;
            let end = range.end.next_multiple_of(LARGE_PAGE).min(map.len());
            let len = end.saturating_sub(start);
            // SAFETY: the pages are the file's and never written: what is dropped is read again.
            let dropped =
                unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, len) };
            // It is a hint: without it, the kernel takes the memory back when it needs it.
            let _ = dropped;
        }
    }
}

impl Deref for Map {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

/// The record at an offset.
pub(crate) fn record<T>(bytes: &[u8], at: usize) -> Option<T>
where
    T: zerocopy::FromBytes + zerocopy::KnownLayout + zerocopy::Immutable,
{
    T::read_from_prefix(bytes.get(at..)?).ok().map(|(record, _)| record)
}

/// Refuses what ends behind the file.
pub(crate) fn fits(
    path: &Path,
    bytes: &[u8],
    at: u64,
    what: &'static str,
    needs: u64,
) -> Result<(), Error> {
    let has = (bytes.len() as u64).saturating_sub(at);
    match needs <= has {
        true => Ok(()),
        false => Err(Error::new(path, at, Problem::Truncated { what, needs, has })),
    }
}
