//! A trace's file, read by position into buffers.
//!
//! The file is not mapped into memory: when another process cuts a mapped file short, the next access to a
//! lost page ends the reader by SIGBUS. A read that finds fewer bytes than the file had is an error.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::error::{Error, Problem};

/// Bytes that [`Pages`] reads at once. Two of them fit into the first two levels of a processor's cache, so
/// that what was copied is still there when it is compared.
const PAGE: usize = 64 << 10;
/// Pages that are kept: where a comparison is, where it looks ahead, and one behind each.
const PAGES: usize = 4;

/// A file that is open for reading, and its length when it was opened.
#[derive(Debug)]
pub(crate) struct Input {
    path: PathBuf,
    file: File,
    len: u64,
}

impl Input {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let is_file = |found: &Metadata| match found.is_file() {
            true => Ok(()),
            false => {
                let why = "not a regular file: a trace is read at many places";
                Err(Error::io(path, io::Error::new(ErrorKind::InvalidInput, why)))
            }
        };
        // Opening a device may do something, and a FIFO that nobody writes to waits.
        is_file(&path.metadata().map_err(|error| Error::io(path, error))?)?;
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let file = file.map_err(|error| Error::io(path, error))?;
        let found = file.metadata().map_err(|error| Error::io(path, error))?;
        is_file(&found)?;
        Ok(Self { path: path.to_owned(), file, len: found.len() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file when it was opened.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The bytes from an offset to the end of the file.
    pub(crate) fn left(&self, at: u64) -> u64 {
        self.len.saturating_sub(at)
    }

    /// Fills `into` with the bytes from an offset on.
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        self.fits(at, "what is read", into.len() as u64)?;
        self.file.read_exact_at(into, at).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => self.cut_short(at),
            _ => self.error(at, Problem::Io(error)),
        })
    }

    /// The record at an offset; none where the file ends before it does.
    pub(crate) fn record<T>(&self, at: u64) -> Result<Option<T>, Error>
    where
        T: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        if self.left(at) < size_of::<T>() as u64 {
            return Ok(None);
        }
        let mut record = T::new_zeroed();
        self.read(at, record.as_mut_bytes())?;
        Ok(Some(record))
    }

    /// Refuses what ends behind the file.
    pub(crate) fn fits(&self, at: u64, what: &'static str, needs: u64) -> Result<(), Error> {
        let has = self.left(at);
        match needs <= has {
            true => Ok(()),
            false => Err(self.error(at, Problem::Truncated { what, needs, has })),
        }
    }

    pub(crate) fn error(&self, at: u64, problem: Problem) -> Error {
        Error::new(&self.path, at, problem)
    }

    /// The file ends before `at`, or shortly behind it, although it was longer when it was opened. The error is
    /// of the first byte that is missing.
    fn cut_short(&self, at: u64) -> Error {
        match self.file.metadata() {
            Ok(found) => {
                let (was, is) = (self.len, found.len());
                self.error(at.max(is), Problem::CutShort { was, is })
            }
            Err(error) => self.error(at, Problem::Io(error)),
        }
    }
}

/// Bytes of a file that lie side by side, read at once.
#[derive(Debug, Default)]
pub(crate) struct Window {
    start: u64,
    bytes: Vec<u8>,
}

/// A copy is empty: it reads for itself what it needs.
impl Clone for Window {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Window {
    /// At least `needs` bytes from an offset on, which must be in the file. Where they are not here, up to
    /// `most` bytes from there on are read, none of them behind `end`.
    pub(crate) fn get(
        &mut self,
        input: &Input,
        at: u64,
        needs: usize,
        most: usize,
        end: u64,
    ) -> Result<&[u8], Error> {
        if self.from(at).is_none_or(|bytes| bytes.len() < needs) {
            let len = end.saturating_sub(at).min(most as u64).max(needs as u64);
            self.load(input, at, len as usize)?;
        }
        Ok(self.from(at).unwrap_or_default())
    }

    /// The bytes from an offset on, where the first of them is here.
    #[inline]
    fn from(&self, at: u64) -> Option<&[u8]> {
        let skip = usize::try_from(at.checked_sub(self.start)?).ok()?;
        self.bytes.get(skip..).filter(|bytes| !bytes.is_empty())
    }

    fn load(&mut self, input: &Input, at: u64, len: usize) -> Result<(), Error> {
        self.start = at;
        self.bytes.resize(len, 0);
        let read = input.read(at, &mut self.bytes);
        if read.is_err() {
            self.bytes.clear();
        }
        read
    }
}

/// The pages of a file that were used last.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// The one that was used last is the first.
    windows: [Window; PAGES],
}

impl Pages {
    /// The bytes from an offset to the end of its page or of the file; the offset must be in the file.
    #[inline]
    pub(crate) fn get(&mut self, input: &Input, at: u64) -> Result<&[u8], Error> {
        // Two look-ups, for the borrow checker does not see that the first has returned.
        if self.windows[0].from(at).is_none() {
            self.bring(input, at)?;
        }
        Ok(self.windows[0].from(at).unwrap_or_default())
    }

    /// Makes the page of an offset the first.
    fn bring(&mut self, input: &Input, at: u64) -> Result<(), Error> {
        let known = self.windows.iter().position(|window| window.from(at).is_some());
        let used = known.unwrap_or(PAGES - 1);
        self.windows[..=used].rotate_right(1);
        match known {
            Some(_) => Ok(()),
            None => {
                let start = at - at % PAGE as u64;
                let len = input.left(start).min(PAGE as u64) as usize;
                self.windows[0].load(input, start, len)
            }
        }
    }
}

/// The record at an offset of some bytes.
pub(crate) fn record<T>(bytes: &[u8], at: usize) -> Option<T>
where
    T: FromBytes + KnownLayout + Immutable,
{
    T::read_from_prefix(bytes.get(at..)?).ok().map(|(record, _)| record)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(bytes: &[u8]) -> (tempfile::NamedTempFile, Input) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let input = Input::open(file.path()).unwrap();
        (file, input)
    }

    #[test]
    fn pages_have_the_bytes_of_the_file_in_whatever_order_they_are_read() {
        let bytes: Vec<u8> = (0..6 * PAGE + 100).map(|at| (at / 7 % 251) as u8).collect();
        let (_file, input) = input(&bytes);
        let mut pages = Pages::default();
        let mut at = 1;
        for _ in 0..1000 {
            at = (at * 48_271) % bytes.len();
            let got = pages.get(&input, at as u64).unwrap();
            let end = (at - at % PAGE + PAGE).min(bytes.len());
            assert!(got == &bytes[at..end], "byte {at}");
        }
    }

    #[test]
    fn windows_have_what_was_asked_for() {
        let bytes: Vec<u8> = (0..1000).map(|at| (at % 251) as u8).collect();
        let (_file, input) = input(&bytes);
        let mut window = Window::default();
        for (at, needs, len) in [(0, 8, 64), (60, 4, 4), (61, 4, 64), (990, 10, 10), (0, 100, 100)]
        {
            let got = window.get(&input, at, needs, 64, 1000).unwrap();
            assert_eq!(got, &bytes[at as usize..at as usize + len], "byte {at}");
        }
        assert!(window.get(&input, 995, 10, 64, 1000).is_err());
    }

    #[test]
    fn a_file_that_has_become_shorter_is_an_error_at_the_byte_that_is_missing() {
        let (file, input) = input(&[7; 1000]);
        file.as_file().set_len(300).unwrap();
        assert_eq!(input.record::<u64>(200).unwrap(), Some(0x0707_0707_0707_0707));
        let error = input.read(296, &mut [0; 8]).unwrap_err();
        assert_eq!((error.path(), error.offset()), (file.path(), 300));
        let text = format!(
            "{}: byte 300: the file was cut short while it was read: from 1000 bytes to 300",
            file.path().display()
        );
        assert_eq!(error.to_string(), text);
    }
}
