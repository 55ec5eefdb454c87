//! What is said between a machine's process and the commands: messages over a socket, each a letter, a length and
//! bytes.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nvabi_sim::GpuUse;
use nvabi_sim::rm::Injection;
use nvabi_supervise::{receive_descriptor, send_descriptor};
use serde::{Deserialize, Serialize};

use super::folder::Folder;

/// The most bytes of a message: more than a program may have of arguments and environment.
const MOST: u32 = 16 << 20;

/// What a message is, by its letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// To the machine: run a [`Request`]. Once it is taken descriptors follow, and then signals, each a byte.
    Run = b'r',
    /// From the machine: it has read the request.
    Taken = b't',
    /// From the machine: the program has begun.
    Begun = b'b',
    /// To the machine: what there is.
    Status = b's',
    /// To the machine: let something happen to a GPU, a [`ToInject`] as JSON. From the machine: what came of it.
    Inject = b'i',
    /// To the machine: go down. The connection is closed when it has.
    Down = b'd',
    /// From the machine: a diagnostic, as text.
    Diagnostic = b'g',
    /// From the machine: the program has ended, as JSON.
    Ended = b'e',
    /// From the machine: what was asked for cannot be, as text.
    Refused = b'x',
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Run,
        Self::Taken,
        Self::Begun,
        Self::Status,
        Self::Inject,
        Self::Down,
        Self::Diagnostic,
        Self::Ended,
        Self::Refused,
    ];
}

/// Sends a message.
pub(super) fn send(mut stream: &UnixStream, kind: Kind, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).ok().filter(|length| *length <= MOST);
    let length = length.ok_or_else(|| invalid(&format!("a message of {} bytes", body.len())))?;
    let head = [&[kind as u8], length.to_le_bytes().as_slice()].concat();
    // At once: one that is not read in time is not sent, rather than half of it.
    stream.write_all(&[head.as_slice(), body].concat())
}

/// Receives a message; none where the other end is closed.
pub(super) fn receive(mut stream: &UnixStream) -> io::Result<Option<(Kind, Vec<u8>)>> {
    let mut letter = [0];
    if stream.read(&mut letter)? == 0 {
        return Ok(None);
    }
    let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == letter[0]);
    let kind = kind.ok_or_else(|| invalid(&format!("a message of kind {:#x}", letter[0])))?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > MOST {
        return Err(invalid(&format!("a message of {length} bytes")));
    }
    // Only what comes takes memory.
    let mut body = Vec::new();
    if stream.take(length.into()).read_to_end(&mut body)? < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some((kind, body)))
}

pub(super) fn invalid(what: &str) -> io::Error {
    let text = format!("{what}, which this version of the command does not know");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// How long a machine may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Asks a machine: its answer is a message of the same kind.
pub(super) fn ask(folder: &Folder, kind: Kind, body: &[u8]) -> io::Result<Vec<u8>> {
    let stream = folder.connect()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let answer = send(&stream, kind, body)
        .and_then(|()| receive(&stream))
        .map_err(|error| in_words(error, &folder.name, PATIENCE))?;
    match answer {
        Some((answered, body)) if answered == kind => Ok(body),
        Some((Kind::Refused, body)) => Err(io::Error::other(String::from_utf8_lossy(&body))),
        _ => {
            let text = format!("machine `{}` closed the connection without an answer", folder.name);
            Err(io::Error::new(io::ErrorKind::ConnectionAborted, text))
        }
    }
}

/// What to say of a connection to a machine that fails.
pub(super) fn in_words(error: io::Error, machine: &str, patience: Duration) -> io::Error {
    match is_late(&error) {
        true => if_late(error, machine, patience),
        false => io::Error::new(error.kind(), format!("machine `{machine}`: {error}")),
    }
}

/// The same where a time is over, which has a name of its own; other errors stay what they are.
pub(super) fn if_late(error: io::Error, machine: &str, patience: Duration) -> io::Error {
    if !is_late(&error) {
        return error;
    }
    let text = format!("machine `{machine}` does not answer within {} s", patience.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

/// A program that is to be run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) umask: u32,
    /// The program and its arguments.
    pub(super) command: Vec<OsString>,
    /// Names with values.
    pub(super) environment: Vec<(OsString, OsString)>,
}

/// What a program gets besides: its folder, and its standard files.
pub(super) type Files = [OwnedFd; 4];

impl Request {
    /// Each part ends with the byte that none of them has in it.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{:o}\0{}\0", self.umask, self.command.len()).into_bytes();
        let pairs = self.environment.iter().flat_map(|(name, value)| [name, value]);
        for part in self.command.iter().chain(pairs) {
            bytes.extend_from_slice(part.as_bytes());
            bytes.push(0);
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> io::Result<Self> {
        let wrong = || invalid("a request to run a program");
        let mut parts = bytes.strip_suffix(&[0]).ok_or_else(wrong)?.split(|byte| *byte == 0);
        let mut number = |radix| {
            let text = std::str::from_utf8(parts.next()?).ok()?;
            u32::from_str_radix(text, radix).ok()
        };
        let (umask, count) = (number(8).ok_or_else(wrong)?, number(10).ok_or_else(wrong)?);
        let mut rest = parts.map(|part| OsString::from_vec(part.to_vec()));
        let command: Vec<OsString> = rest.by_ref().take(count as usize).collect();
        if command.is_empty() || command.len() < count as usize {
            return Err(wrong());
        }
        let mut environment = Vec::new();
        while let Some(name) = rest.next() {
            environment.push((name, rest.next().ok_or_else(wrong)?));
        }
        Ok(Self { umask, command, environment })
    }
}

/// Sends descriptors, each beside a byte.
pub(super) fn send_files(stream: &UnixStream, files: [BorrowedFd<'_>; 4]) -> io::Result<()> {
    files.into_iter().try_for_each(|file| send_descriptor(stream.as_fd(), b'f', file))
}

pub(super) fn receive_files(stream: &UnixStream) -> io::Result<Files> {
    let next = || receive_descriptor(stream.as_fd()).map(|(_, file)| file);
    Ok([next()?, next()?, next()?, next()?])
}

/// What is to happen, and to which GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ToInject {
    pub(super) gpu: usize,
    pub(super) what: Injection,
}

/// A machine that is up.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Status {
    pub(super) name: String,
    /// Its process.
    pub(super) pid: u32,
    pub(super) tag: String,
    /// What the driver calls itself.
    pub(super) version: String,
    pub(super) seconds: u64,
    pub(super) gpus: Vec<GpuUse>,
    pub(super) programs: Vec<Program>,
    /// Faults that were asked for and have not happened yet.
    pub(super) unmet_faults: Vec<String>,
}

/// A program on a machine.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Program {
    pub(super) pid: u32,
    pub(super) command: String,
    pub(super) seconds: u64,
    /// Bytes of GPU memory that it has with all that came of it.
    pub(super) gpu_memory: u64,
    pub(super) calls: u64,
    pub(super) diagnostics: u64,
    /// Whether it has ended, and processes are left that it began.
    pub(super) has_ended: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        let text = |text: &str| OsString::from(text);
        let strange = OsString::from_vec(vec![0xff, b'=', b'\n']);
        let request = Request {
            umask: 0o27,
            command: vec![text("./a b"), text(""), strange.clone()],
            environment: vec![(text("A"), text("")), (text("B"), strange)],
        };
        let bytes = request.to_bytes();
        assert_eq!(Request::from_bytes(&bytes).unwrap(), request);
        for wrong in ["", "22 ", "x 1 a ", "22 0 ", "22 2 a ", "22 1 a A "] {
            let wrong = wrong.replace(' ', "\0").into_bytes();
            assert!(Request::from_bytes(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn messages_are_bounded() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        send(&ours, Kind::Status, b"abc").unwrap();
        assert_eq!(receive(&theirs).unwrap(), Some((Kind::Status, b"abc".to_vec())));
        (&ours).write_all(&[b's', 0xff, 0xff, 0xff, 0xff]).unwrap();
        assert!(receive(&theirs).unwrap_err().to_string().contains("4294967295 bytes"));
        (&ours).write_all(b"?").unwrap();
        assert!(receive(&theirs).unwrap_err().to_string().contains("kind 0x3f"));
        (&ours).write_all(&[b's', 9, 0, 0, 0, 1]).unwrap();
        drop(ours);
        assert_eq!(receive(&theirs).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(receive(&theirs).unwrap(), None);
    }
}
