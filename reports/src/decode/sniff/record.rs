//! Recorded calls: one file, written as the calls come, readable up to the last whole record.
//!
//! ```text
//! file    "nvabi-sniff\n"  version: u32 = 2  record …
//! record  length of the body: u32   CRC-32 of the body: u32   body
//! body    kind: u8, then
//!   1 start    tags asked for, tags of the machine, the program's words: each a count, then texts
//!   2 text     a text; its number is how many came before it
//!   3 call     time since the last call (signed), process, thread, what, result, duration
//!   4 end      how the program ended: code (signed), signal
//! ```
//!
//! Numbers outside of the frame are LEB128, signed ones zigzag before that; texts are their length and
//! UTF-8. Memory is kept without the zeros at its end. A call's paths and nodes are numbers of texts.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Event, File, How, Ioctl, MAX_PARTS, Piece, What};

const MAGIC: &[u8; 12] = b"nvabi-sniff\n";
const VERSION: u32 = 2;
/// The oldest version that is read: its calls have no addresses.
const OLDEST: u32 = 1;
/// Bytes of a body: a call has at most `MAX_PARTS` pieces within the limits, before and after.
const MAX_BODY: u32 = 4 << 20;
/// Different paths and nodes of a record; a recording with more fails.
const MAX_TEXTS: usize = 1 << 16;
/// Bytes of a path or a name.
const MAX_TEXT: usize = 4096;
/// Bytes of memory of one call, as the limits of a recording have it.
pub const MAX_CALL: usize = 1 << 20;

/// What a record begins with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Start {
    /// Tags that were asked for.
    pub asked: Vec<String>,
    /// Tags that the machine said.
    pub machine: Vec<String>,
    /// The program and its arguments.
    pub command: Vec<String>,
}

/// How a program ended: its code or the signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It ended itself.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// Writes records: each is in the file before the next call is looked at.
#[derive(Debug)]
pub struct Writer<W> {
    file: W,
    texts: HashMap<Arc<str>, u64>,
    last: u64,
    body: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Writes what a record begins with.
    pub fn new(mut file: W, start: &Start) -> io::Result<Self> {
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&VERSION.to_le_bytes());
        file.write_all(&head)?;
        let mut writer = Self { file, texts: HashMap::new(), last: 0, body: Vec::new() };
        let mut body = vec![1];
        for texts in [&start.asked, &start.machine, &start.command] {
            number(&mut body, texts.len() as u64);
            texts.iter().for_each(|text| put_text(&mut body, text));
        }
        writer.record(&body)?;
        Ok(writer)
    }

    /// Adds a call.
    pub fn call(&mut self, event: &Event) -> io::Result<()> {
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        body.push(3);
        signed(&mut body, event.time.wrapping_sub(self.last) as i64);
        self.last = event.time;
        number(&mut body, event.process.into());
        number(&mut body, event.thread.into());
        match &event.what {
            What::Open { file, flags } => {
                body.push(0);
                self.file(&mut body, file)?;
                number(&mut body, *flags);
            }
            What::Close { fd, file } => {
                body.push(1);
                signed(&mut body, (*fd).into());
                self.file(&mut body, file)?;
            }
            What::Map { fd, file, length, offset } => {
                body.push(2);
                signed(&mut body, (*fd).into());
                self.file(&mut body, file)?;
                number(&mut body, *length);
                number(&mut body, *offset);
            }
            What::Ioctl(ioctl) => {
                body.push(3);
                self.ioctl(&mut body, ioctl)?;
            }
        }
        optional(&mut body, event.result.map(zigzag));
        optional(&mut body, event.duration);
        let result = self.record(&body);
        self.body = body;
        result
    }

    /// Adds how the program ended.
    pub fn end(&mut self, end: End) -> io::Result<()> {
        let (code, signal) = match end {
            End::Code(code) => (code, 0),
            End::Signal(signal) => (0, signal),
        };
        let mut body = vec![4];
        signed(&mut body, code.into());
        signed(&mut body, signal.into());
        self.record(&body)
    }

    fn ioctl(&mut self, body: &mut Vec<u8>, ioctl: &Ioctl) -> io::Result<()> {
        signed(body, ioctl.fd.into());
        self.file(body, &ioctl.file)?;
        number(body, ioctl.request.into());
        number(body, ioctl.argument);
        number(body, ioctl.pieces.len() as u64);
        for piece in &ioctl.pieces {
            number(body, piece.address);
            number(body, piece.length);
            memory(body, &piece.before);
            match &piece.after {
                None => body.push(0),
                Some(after) if *after == piece.before => body.push(1),
                Some(after) => {
                    body.push(2);
                    memory(body, after);
                }
            }
        }
        number(body, ioctl.fds.len() as u64);
        for (fd, file) in &ioctl.fds {
            signed(body, (*fd).into());
            self.file(body, file)?;
        }
        number(body, ioctl.addresses.len() as u64);
        ioctl.addresses.iter().for_each(|address| number(body, *address));
        Ok(())
    }

    fn file(&mut self, body: &mut Vec<u8>, file: &File) -> io::Result<()> {
        let (path, node) = (self.text(&file.path)?, self.text(&file.node)?);
        number(body, path);
        number(body, node);
        let how = How::ALL.iter().position(|how| *how == file.how).unwrap_or(0);
        body.push(how as u8);
        Ok(())
    }

    /// The number of a text, which stands in a record of its own before its first use.
    fn text(&mut self, text: &Arc<str>) -> io::Result<u64> {
        if let Some(number) = self.texts.get(text) {
            return Ok(*number);
        }
        if self.texts.len() >= MAX_TEXTS {
            return Err(io::Error::other("too many different paths to record"));
        }
        let mut body = vec![2];
        put_text(&mut body, text);
        self.record(&body)?;
        let number = self.texts.len() as u64;
        self.texts.insert(text.clone(), number);
        Ok(number)
    }

    /// One write: a record is in the file as a whole, or at its end.
    fn record(&mut self, body: &[u8]) -> io::Result<()> {
        if body.len() > MAX_BODY as usize {
            return Err(io::Error::other("the call is larger than a record may be"));
        }
        let mut record = Vec::with_capacity(body.len() + 8);
        record.extend_from_slice(&(body.len() as u32).to_le_bytes());
        record.extend_from_slice(&crc32fast::hash(body).to_le_bytes());
        record.extend_from_slice(body);
        self.file.write_all(&record)
    }
}

fn number(body: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        body.push(value as u8 | 0x80);
        value >>= 7;
    }
    body.push(value as u8);
}

fn signed(body: &mut Vec<u8>, value: i64) {
    number(body, zigzag(value));
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn optional(body: &mut Vec<u8>, value: Option<u64>) {
    body.push(u8::from(value.is_some()));
    if let Some(value) = value {
        number(body, value);
    }
}

fn put_text(body: &mut Vec<u8>, text: &str) {
    number(body, text.len() as u64);
    body.extend_from_slice(text.as_bytes());
}

fn memory(body: &mut Vec<u8>, bytes: &[u8]) {
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    number(body, bytes.len() as u64);
    number(body, used as u64);
    body.extend_from_slice(&bytes[..used]);
}

/// Why a record cannot be read on.
#[derive(Debug)]
pub enum Error {
    /// The file cannot be read.
    Unreadable(PathBuf, io::Error),
    /// It is no record.
    Foreign(PathBuf),
    /// It is of another version.
    Version(PathBuf, u32),
    /// It ends within the record at an offset.
    Cut(PathBuf, u64),
    /// The record at an offset is not what was written.
    Damaged(PathBuf, u64, &'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::Foreign(path) => write!(f, "{} is no record of nvabi sniff", path.display()),
            Self::Version(path, version) => {
                let path = path.display();
                write!(
                    f,
                    "{path} is a record of version {version}, and this reads versions {OLDEST} to \
                     {VERSION}"
                )
            }
            Self::Cut(path, at) => {
                write!(f, "{} ends within the record at byte {at}", path.display())
            }
            Self::Damaged(path, at, what) => {
                write!(f, "{}: the record at byte {at} is damaged: {what}", path.display())
            }
        }
    }
}

impl Error {
    /// Whether all before it is whole: a recording that did not come to its end.
    pub fn is_cut(&self) -> bool {
        matches!(self, Self::Cut(..))
    }
}

/// One record.
#[derive(Debug)]
pub enum Record {
    /// A call.
    Call(Event),
    /// The program's end.
    End(End),
}

/// Reads records one after the other; one at a time is in memory.
#[derive(Debug)]
pub struct Reader<R> {
    path: PathBuf,
    version: u32,
    input: R,
    at: u64,
    texts: Vec<Arc<str>>,
    last: u64,
}

impl<R: Read> Reader<R> {
    /// Reads what a record begins with; errors name `path`.
    pub fn new(path: &Path, mut input: R) -> Result<(Self, Start), Error> {
        let unreadable = |error| Error::Unreadable(path.to_owned(), error);
        let mut head = [0; MAGIC.len() + 4];
        let have = fill(&mut input, &mut head).map_err(unreadable)?;
        let (magic, version) = head.split_at(MAGIC.len());
        if have < head.len() || magic != MAGIC {
            return Err(Error::Foreign(path.to_owned()));
        }
        let version = version.iter().rev().fold(0, |version, byte| version << 8 | u32::from(*byte));
        if !(OLDEST..=VERSION).contains(&version) {
            return Err(Error::Version(path.to_owned(), version));
        }
        let at = head.len() as u64;
        let mut reader =
            Self { path: path.to_owned(), version, input, at, texts: Vec::new(), last: 0 };
        let start = reader.body()?.and_then(|(at, body)| {
            let mut bytes = Bytes(body.get(1..)?);
            let start = (body[0] == 1).then(|| bytes.start())??;
            bytes.0.is_empty().then_some((at, start))
        });
        match start {
            Some((_, start)) => Ok((reader, start)),
            None => Err(Error::Damaged(path.to_owned(), at, "it lacks the command line")),
        }
    }

    /// The next record; none at the end.
    pub fn read(&mut self) -> Result<Option<Record>, Error> {
        while let Some((at, body)) = self.body()? {
            let damaged = |what| Error::Damaged(self.path.clone(), at, what);
            let Some((kind, rest)) = body.split_first() else { return Err(damaged("it is empty")) };
            let mut bytes = Bytes(rest);
            match kind {
                2 => {
                    let has_room = self.texts.len() < MAX_TEXTS;
                    let text = bytes.text().filter(|text| has_room && text.len() <= MAX_TEXT);
                    let text = text.filter(|_| bytes.0.is_empty());
                    let Some(text) = text else { return Err(damaged("a text is not one")) };
                    self.texts.push(text.into());
                }
                3 => {
                    let call = bytes.call(&self.texts, self.last, self.version);
                    let call = call.filter(|_| bytes.0.is_empty());
                    let Some(event) = call else { return Err(damaged("a call is not one")) };
                    self.last = event.time;
                    return Ok(Some(Record::Call(event)));
                }
                4 => {
                    let end = bytes.end().filter(|_| bytes.0.is_empty());
                    let Some(end) = end else { return Err(damaged("an end is not one")) };
                    return Ok(Some(Record::End(end)));
                }
                _ => return Err(damaged("its kind is not known")),
            }
        }
        Ok(None)
    }

    /// The next body, with the offset of its record.
    fn body(&mut self) -> Result<Option<(u64, Vec<u8>)>, Error> {
        let at = self.at;
        let unreadable = |error| Error::Unreadable(self.path.clone(), error);
        let cut = || Error::Cut(self.path.clone(), at);
        let mut frame = [0; 8];
        match fill(&mut self.input, &mut frame).map_err(unreadable)? {
            0 => return Ok(None),
            8 => {}
            _ => return Err(cut()),
        }
        let [a, b, c, d, crc @ ..] = frame;
        let length = u32::from_le_bytes([a, b, c, d]);
        if length > MAX_BODY {
            return Err(Error::Damaged(self.path.clone(), at, "its length is more than one has"));
        }
        let mut body = vec![0; length as usize];
        if fill(&mut self.input, &mut body).map_err(unreadable)? < body.len() {
            return Err(cut());
        }
        if crc32fast::hash(&body) != u32::from_le_bytes(crc) {
            return Err(Error::Damaged(self.path.clone(), at, "its checksum is another"));
        }
        self.at += 8 + u64::from(length);
        Ok(Some((at, body)))
    }
}

/// Reads up to the end of the file; says how much there was.
fn fill(input: &mut impl Read, room: &mut [u8]) -> io::Result<usize> {
    let mut have = 0;
    while have < room.len() {
        match input.read(&mut room[have..]) {
            Ok(0) => break,
            Ok(more) => have += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(have)
}

/// What is left of a body. Nothing comes back where it is not what was written.
struct Bytes<'b>(&'b [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn small<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.number()?).ok()
    }

    fn signed(&mut self) -> Option<i64> {
        let value = self.number()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn descriptor(&mut self) -> Option<i32> {
        i32::try_from(self.signed()?).ok()
    }

    fn optional(&mut self) -> Option<Option<u64>> {
        match self.byte()? {
            0 => Some(None),
            1 => self.number().map(Some),
            _ => None,
        }
    }

    fn take(&mut self, length: usize) -> Option<&[u8]> {
        let taken = self.0.get(..length)?;
        self.0 = &self.0[length..];
        Some(taken)
    }

    fn text(&mut self) -> Option<String> {
        let length = self.small()?;
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }

    /// As many as are counted; each takes a byte at least.
    fn many<T>(&mut self, one: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count: usize = self.small()?;
        if count > self.0.len() {
            return None;
        }
        (0..count).map(|_| one(self)).collect()
    }

    fn start(&mut self) -> Option<Start> {
        let mut texts = || self.many(Self::text);
        Some(Start { asked: texts()?, machine: texts()?, command: texts()? })
    }

    fn end(&mut self) -> Option<End> {
        let (code, signal) = (self.descriptor()?, self.descriptor()?);
        Some(if signal == 0 { End::Code(code) } else { End::Signal(signal) })
    }

    /// Memory, of no more than a recording takes of one call.
    fn memory(&mut self, left: &mut usize) -> Option<Vec<u8>> {
        let (length, used): (usize, usize) = (self.small()?, self.small()?);
        *left = left.checked_sub(length)?;
        let mut bytes = self.take(used)?.to_vec();
        (used <= length).then(|| bytes.resize(length, 0))?;
        Some(bytes)
    }

    fn file(&mut self, texts: &[Arc<str>]) -> Option<File> {
        let mut text = || texts.get(self.small::<usize>()?).cloned();
        let (path, node) = (text()?, text()?);
        let how = *How::ALL.get(usize::from(self.byte()?))?;
        Some(File { path, node, how })
    }

    fn call(&mut self, texts: &[Arc<str>], last: u64, version: u32) -> Option<Event> {
        let time = last.wrapping_add(self.signed()? as u64);
        let (process, thread) = (self.small()?, self.small()?);
        let what = match self.byte()? {
            0 => What::Open { file: self.file(texts)?, flags: self.number()? },
            1 => What::Close { fd: self.descriptor()?, file: self.file(texts)? },
            2 => What::Map {
                fd: self.descriptor()?,
                file: self.file(texts)?,
                length: self.number()?,
                offset: self.number()?,
            },
            3 => What::Ioctl(self.ioctl(texts, version)?),
            _ => return None,
        };
        let result = self.optional()?.map(|value| (value >> 1) as i64 ^ -((value & 1) as i64));
        let duration = self.optional()?;
        Some(Event { time, process, thread, what, result, duration })
    }

    fn ioctl(&mut self, texts: &[Arc<str>], version: u32) -> Option<Ioctl> {
        let (fd, file) = (self.descriptor()?, self.file(texts)?);
        let (request, argument) = (self.small()?, self.number()?);
        let count: usize = self.small()?;
        if count > MAX_PARTS {
            return None;
        }
        // Before and after.
        let mut left = 2 * MAX_CALL;
        let mut pieces = Vec::new();
        for _ in 0..count {
            let (address, length) = (self.number()?, self.number()?);
            let before = self.memory(&mut left)?;
            let after = match self.byte()? {
                0 => None,
                1 => {
                    left = left.checked_sub(before.len())?;
                    Some(before.clone())
                }
                2 => Some(self.memory(&mut left)?),
                _ => return None,
            };
            pieces.push(Piece { address, length, before, after });
        }
        let fds = self.many(|bytes| Some((bytes.descriptor()?, bytes.file(texts)?)))?;
        let addresses = if version < 2 { Vec::new() } else { self.many(Self::number)? };
        Some(Ioctl { fd, file, request, argument, pieces, fds, addresses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> File {
        File { path: path.into(), node: "nvmap".into(), how: How::Open }
    }

    fn events() -> Vec<Event> {
        let event = |time, what, result: Option<i64>| Event {
            time,
            process: 10,
            thread: u32::MAX,
            what,
            result,
            duration: result.map(|_| 1 << 40),
        };
        let after = |after| Piece { address: u64::MAX, length: 9, before: vec![1, 0, 7, 0], after };
        let ioctl = Ioctl {
            fd: -1,
            file: file("/dev/nvmap"),
            request: u32::MAX,
            argument: 1 << 63,
            pieces: vec![after(None), after(Some(vec![1, 0, 7, 0])), after(Some(vec![0; 4]))],
            fds: vec![(3, file("/dev/zero")), (i32::MAX, file("/dev/nvmap"))],
            addresses: vec![1 << 40, u64::MAX],
        };
        vec![
            event(5, What::Open { file: file("/dev/nvmap"), flags: 2 }, Some(3)),
            // Calls come in the order in which they return.
            event(3, What::Ioctl(ioctl), Some(-25)),
            event(9, What::Close { fd: 3, file: file("/dev/nvmap") }, None),
            event(9, What::Map { fd: 3, file: file(""), length: 1, offset: 2 }, Some(i64::MIN)),
        ]
    }

    fn written() -> (Start, Vec<u8>) {
        let start = Start {
            asked: vec!["550.54.14".to_owned()],
            machine: Vec::new(),
            command: vec!["a b".to_owned(), String::new()],
        };
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, &start).unwrap();
        events().iter().for_each(|event| writer.call(event).unwrap());
        writer.end(End::Signal(9)).unwrap();
        (start, bytes)
    }

    fn read(bytes: &[u8]) -> Result<(Start, Vec<Event>, Option<End>), Error> {
        let (mut reader, start) = Reader::new(Path::new("a.sniff"), bytes)?;
        let (mut events, mut end) = (Vec::new(), None);
        while let Some(record) = reader.read()? {
            match record {
                Record::Call(event) => events.push(event),
                Record::End(ended) => end = Some(ended),
            }
        }
        Ok((start, events, end))
    }

    #[test]
    fn what_is_written_is_read() {
        let (start, bytes) = written();
        assert_eq!(read(&bytes).unwrap(), (start, events(), Some(End::Signal(9))));
    }

    #[test]
    fn every_cut_and_every_change_of_a_bit_is_noticed() {
        let (_, whole) = written();
        let mut whole_at = 0;
        for length in 0..whole.len() {
            match read(&whole[..length]) {
                Ok((_, events, None)) => whole_at += usize::from(events.len() <= 4),
                Ok(other) => panic!("{length}: {other:?}"),
                Err(Error::Cut(_, at)) => assert!(at <= length as u64, "{length}"),
                Err(Error::Foreign(_)) => assert!(length < 16, "{length}"),
                Err(Error::Damaged(_, 16, _)) => assert_eq!(length, 16),
                Err(other) => panic!("{length}: {other}"),
            }
        }
        // The ends of records: the start, four texts, four calls.
        assert_eq!(whole_at, 9);
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            assert!(read(&bytes).is_err(), "byte {at}");
        }
    }

    /// Bodies with the right checksum that nobody wrote.
    #[test]
    fn hostile_bodies_take_no_memory() {
        let (_, whole) = written();
        let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        for kind in [1_u8, 2, 3, 4, 9] {
            for lead in [
                &[][..],
                &[0],
                &[0, 1, 1, 3, 0, 0, 0, 0, 1, 1],
                &[0, 1, 1, 3, 0, 0, 0, 0, 1, 1, 1, 1, 1],
            ] {
                let mut body = vec![kind];
                body.extend_from_slice(lead);
                body.extend_from_slice(&huge);
                let mut bytes = whole.clone();
                bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
                bytes.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
                bytes.extend_from_slice(&body);
                let at = whole.len() as u64;
                assert!(matches!(read(&bytes), Err(Error::Damaged(_, place, _)) if place == at));
            }
        }
    }
}
