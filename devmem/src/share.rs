//! Memory from process to process: a file descriptor over a Unix socket, and what is known about it.
//!
//! A message is 32 bytes that come with the file descriptor (`nvabibuf`, the length of the description,
//! device and inode of the memory's file; each 64 bits, little-endian), then the description in the
//! format [`v1`](super::wire::v1). Memory in several files begins with `nvabifds`, that length, the number of
//! files and 0 instead; device and inode of each file are between these 32 bytes and the description.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::buffer::{Buffer, Description, Identity, MOST_PIECES, Piece, keeps_its_size};
use super::error::{Error, ErrorKind, Result};

const MAGIC: [u8; 8] = *b"nvabibuf";
const MAGIC_FILES: [u8; 8] = *b"nvabifds";
const HEADER: usize = 32;
/// Device and inode.
const IDENTITY: usize = 16;

/// No description is longer; a sender cannot make a receiver ask for more memory.
const LONGEST: u64 = 1 << 20;

/// File descriptors that one message can have (`SCM_MAX_FD`): all are taken, to close what is too
/// many.
const ROOM: usize = 253;

impl Buffer {
    /// Hands the memory to who reads the other end; both have it then.
    ///
    /// # Errors
    ///
    /// When the description cannot be written, and what the kernel says.
    pub fn send(&self, stream: &UnixStream) -> Result<()> {
        let description = self.description().to_bytes();
        let description = description.map_err(|error| Error::invalid(error.to_string()))?;
        if description.len() as u64 > LONGEST {
            let what = format!("a description of {} bytes is too long to send", description.len());
            return Err(Error::invalid(what));
        }
        let identities: Vec<Identity> = self.pieces().iter().map(Piece::identity).collect();
        let header = header(description.len() as u64, &identities);
        let fds: Vec<BorrowedFd<'_>> = self.pieces().iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_PIECES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        // There is room for as many as a buffer has.
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let parts = [IoSlice::new(&header)];
        let sent = retry_on_intr(|| sendmsg(stream, &parts, &mut control, SendFlags::NOSIGNAL));
        let sent = sent.map_err(|errno| Error::call("sendmsg of a buffer", errno.into()))?;
        // The file descriptor is on its way with the first byte; the rest is a stream.
        let mut stream = stream;
        stream
            .write_all(&header[sent..])
            .and_then(|()| stream.write_all(&description))
            .map_err(|error| Error::call("write of a buffer", error))
    }

    /// Takes memory that [`Self::send`] sent.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Format`] when something else was sent, [`ErrorKind::Mismatch`] when the memory is
    /// not what was announced, has no room for what is described, or is a file that its sender could
    /// make smaller: who touched it then would die of SIGBUS. Also what the kernel says.
    pub fn receive(stream: &UnixStream) -> Result<Self> {
        let (header, fds) = receive_header(stream)?;
        let (length, identities) = announced(&header)?.identities(stream, fds.len())?;
        let mut description = Vec::new();
        let read = stream.take(length).read_to_end(&mut description);
        read.map_err(|error| Error::call("read of a buffer", error))?;
        if (description.len() as u64) < length {
            let what = format!("{} bytes of a description of {length}", description.len());
            return Err(Error::new(ErrorKind::Format, what));
        }
        let description = Description::from_bytes(&description)
            .map_err(|error| Error::new(ErrorKind::Format, error.to_string()))?;
        let mismatch = |what: String| Error::new(ErrorKind::Mismatch, what);
        description.layout.holds(&description.usage.image).map_err(mismatch)?;
        // Before its size is asked: what is sealed keeps it.
        for fd in &fds {
            let stays = keeps_its_size(fd.as_fd()).map_err(|errno| {
                Error::call("asking a buffer for its file system and seals", errno.into())
            })?;
            if !stays {
                let what = "the sender could make the memory smaller: it is neither a dma-buf nor a memfd \
                    that can be sealed";
                return Err(mismatch(what.to_owned()));
            }
        }
        Self::identified_pieces(fds, description, &identities)
    }
}

fn header(length: u64, identities: &[Identity]) -> Vec<u8> {
    let numbers = |identity: &Identity| [identity.device, identity.inode];
    let values = match identities {
        [one] => [vec![u64::from_le_bytes(MAGIC), length], numbers(one).to_vec()].concat(),
        several => {
            let head = vec![u64::from_le_bytes(MAGIC_FILES), length, several.len() as u64, 0];
            [head, several.iter().flat_map(numbers).collect()].concat()
        }
    };
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The numbers of bytes, as they are sent.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|chunk| {
        let mut number = [0; 8];
        number.copy_from_slice(chunk);
        u64::from_le_bytes(number)
    })
}

/// What follows a header.
enum Announced {
    /// A description of so many bytes, of memory in this file.
    One(u64, Identity),
    /// The identities of so many files, and a description.
    Several(u64, usize),
}

fn announced(header: &[u8; HEADER]) -> Result<Announced> {
    let mut values = [0; HEADER / 8];
    values.iter_mut().zip(numbers(header)).for_each(|(to, number)| *to = number);
    let wrong = |what: String| Error::new(ErrorKind::Format, what);
    let [magic, length, first, second] = values;
    let is_one = match magic.to_le_bytes() {
        MAGIC => true,
        MAGIC_FILES => false,
        _ => return Err(wrong("what was sent is no buffer".to_owned())),
    };
    if length > LONGEST {
        return Err(wrong(format!("a description of {length} bytes, of {LONGEST} at most")));
    }
    match usize::try_from(first) {
        _ if is_one => Ok(Announced::One(length, Identity { device: first, inode: second })),
        Ok(count) if (2..=MOST_PIECES).contains(&count) && second == 0 => {
            Ok(Announced::Several(length, count))
        }
        _ => Err(wrong(format!("memory in {first} files, of 2 to {MOST_PIECES}"))),
    }
}

impl Announced {
    /// The length of the description, and which files there are, where so many came.
    fn identities(self, mut stream: &UnixStream, files: usize) -> Result<(u64, Vec<Identity>)> {
        let (length, found) = match self {
            Self::One(length, identity) => (length, vec![identity]),
            Self::Several(length, count) => {
                let mut bytes = vec![0; count * IDENTITY];
                let read = stream.read_exact(&mut bytes);
                read.map_err(|error| Error::call("read of a buffer", error))?;
                let mut all = numbers(&bytes);
                let next = || Some(Identity { device: all.next()?, inode: all.next()? });
                (length, std::iter::from_fn(next).collect())
            }
        };
        let what = match files {
            0 => "no file descriptor was sent".to_owned(),
            _ if files == found.len() => return Ok((length, found)),
            _ if found.len() == 1 => "more than one file descriptor".to_owned(),
            _ => format!("{files} file descriptors, of memory in {} files", found.len()),
        };
        Err(Error::new(ErrorKind::Format, what))
    }
}

/// The header, and the file descriptors that came with it.
fn receive_header(stream: &UnixStream) -> Result<([u8; HEADER], Vec<OwnedFd>)> {
    let mut header = [0; HEADER];
    let (got, fds) = receive_fds(stream, &mut header)?;
    if got == 0 {
        return Err(Error::new(ErrorKind::Format, "the sender has closed the socket"));
    }
    let mut rest = stream;
    rest.read_exact(&mut header[got..]).map_err(|error| Error::call("read of a buffer", error))?;
    Ok((header, fds))
}

/// Reads some bytes, and the file descriptors beside them. Those that did not fit are closed by the kernel, and
/// all others by this: what else a message carries leaves less room for them.
fn receive_fds(stream: &UnixStream, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>)> {
    let mut parts = [IoSliceMut::new(bytes)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ROOM))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message =
        retry_on_intr(|| recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC))
            .map_err(|errno| Error::call("recvmsg of a buffer", errno.into()))?;
    let rights = control.drain().filter_map(|beside| match beside {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fds = rights.flatten().collect();
    match message.flags.contains(ReturnFlags::CTRUNC) {
        true => Err(Error::new(ErrorKind::Format, "more beside a message than can be received")),
        false => Ok((message.bytes, fds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CapabilitySet, Fourcc, Image, Layout, MODIFIER_LINEAR, Plane, Usage};
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    fn description(size: u64) -> Description {
        let planes = vec![Plane { offset: 0, pitch: size, size }];
        Description {
            usage: Usage::new(Image::bytes(size as u32), Vec::new()),
            set: CapabilitySet::new(vec![], vec![]),
            layout: Layout { modifier: MODIFIER_LINEAR, planes, size },
            metadata: vec![("colour".to_owned(), b"bt709".to_vec())],
        }
    }

    fn buffer(size: u64) -> Buffer {
        let file = memfd_create("buffer", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, size).unwrap();
        Buffer::new(file, description(size)).unwrap()
    }

    fn receive(send: impl FnOnce(&UnixStream)) -> Result<Buffer> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        send(&ours);
        drop(ours);
        Buffer::receive(&theirs)
    }

    fn refusal(send: impl FnOnce(&UnixStream)) -> String {
        receive(send).unwrap_err().to_string()
    }

    fn send_raw(stream: &UnixStream, bytes: &[u8], files: &[&Buffer]) {
        let fds: Vec<_> = files.iter().map(|buffer| buffer.whole().unwrap()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ROOM))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
    }

    #[test]
    fn what_is_sent_arrives_with_its_description() {
        let sent = buffer(8192);
        let received = receive(|stream| sent.send(stream).unwrap()).unwrap();
        assert_eq!(received.identity(), sent.identity());
        assert_eq!(received.description(), sent.description());
        sent.map().unwrap().write().unwrap().store(8000, b"seen").unwrap();
        let mut seen = [0; 4];
        received.map().unwrap().read().unwrap().load(8000, &mut seen).unwrap();
        assert_eq!(&seen, b"seen");
    }

    /// Memory with a file for each of three planes, of which the first is larger than its plane.
    fn in_three_files() -> Buffer {
        let files = [8192, 4096, 4096].map(|size| {
            let file = memfd_create("plane", MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&file, size).unwrap();
            file
        });
        let image = Image::new(64, 64, crate::Fourcc::new(b"YU12"));
        let set = CapabilitySet::new(vec![], vec![crate::Capability::pitch_linear()]);
        let layout = crate::solve(&image, &set).unwrap();
        let usage = Usage::new(image, Vec::new());
        let description = Description { usage, set, layout, metadata: Vec::new() };
        Buffer::by_planes(files.into(), description).unwrap()
    }

    #[test]
    fn a_plane_is_in_a_file_of_its_own() {
        let sent = in_three_files();
        let offsets = |buffer: &Buffer| {
            buffer.description().layout.planes.iter().map(|plane| plane.offset).collect::<Vec<_>>()
        };
        assert_eq!((sent.size(), offsets(&sent)), (16384, vec![0, 8192, 12288]));
        assert_eq!(sent.export().unwrap_err().kind(), ErrorKind::Unsupported);
        let received = receive(|stream| sent.send(stream).unwrap()).unwrap();
        assert_eq!(received.description(), sent.description());
        assert_eq!(received.pieces().len(), 3);

        // One view of all of it, and one of each file.
        let mut mapping = sent.map().unwrap();
        mapping.write().unwrap().store(12288, b"red").unwrap();
        let mut seen = [0; 3];
        received.map().unwrap().read().unwrap().load(12288, &mut seen).unwrap();
        assert_eq!(&seen, b"red");
        let (fd, plane) = received.export_plane(2).unwrap();
        assert_eq!((plane.offset, plane.pitch), (0, 32));
        let mut file = std::fs::File::from(fd);
        std::io::Seek::rewind(&mut file).unwrap();
        file.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"red");
        assert!(received.export_plane(3).is_err());
    }

    #[test]
    fn a_plane_across_two_files_is_refused() {
        let sent = in_three_files();
        let refused = |change: &dyn Fn(&mut Description)| {
            let fds = sent.pieces().iter().map(|piece| piece.as_fd().try_clone_to_owned().unwrap());
            let mut description = sent.description().clone();
            change(&mut description);
            Buffer::in_pieces(fds.collect(), description).unwrap_err().to_string()
        };
        assert_eq!(
            refused(&|d| d.layout.planes[1].offset = 8192 - 32),
            "plane 1 is not in one file of the memory"
        );
        assert_eq!(
            refused(&|d| d.layout.size = 16385),
            "the buffer has 16384 bytes, but its layout takes 16385"
        );
        let none = Buffer::in_pieces(Vec::new(), sent.description().clone()).unwrap_err();
        assert_eq!(none.to_string(), "memory in 0 files");
    }

    #[test]
    fn as_many_files_come_as_are_announced() {
        let (sent, other) = (in_three_files(), buffer(4096));
        let description = sent.description().to_bytes().unwrap();
        let identities: Vec<Identity> = sent.pieces().iter().map(Piece::identity).collect();
        let send = |identities: &[Identity], extra: bool| {
            let bytes = [&header(description.len() as u64, identities)[..], &description].concat();
            refusal(|stream| {
                let mut fds: Vec<_> = sent.pieces().iter().map(AsFd::as_fd).collect();
                if extra {
                    fds.push(other.whole().unwrap());
                }
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ROOM))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
                sendmsg(stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::empty()).unwrap();
            })
        };
        assert_eq!(send(&identities, true), "4 file descriptors, of memory in 3 files");
        assert_eq!(send(&identities[..1], false), "more than one file descriptor");
        let swapped = [identities[0], identities[2], identities[1]];
        assert!(send(&swapped, false).starts_with("the buffer is Identity"));
        assert_eq!(send(&[identities[0]; 17], false), "memory in 17 files, of 2 to 16");
    }

    #[test]
    fn what_is_received_cannot_get_smaller() {
        let sent = buffer(8192);
        let received = receive(|stream| sent.send(stream).unwrap()).unwrap();
        assert_eq!(ftruncate(sent.whole().unwrap(), 4096), Err(rustix::io::Errno::PERM));
        received.map().unwrap().read().unwrap().load(8000, &mut [0; 4]).unwrap();

        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let unsealed = memfd_create("buffer", MemfdFlags::empty()).unwrap();
        ftruncate(&unsealed, 8192).unwrap();
        // Large pages can be taken away; a kernel without any has no such memfd.
        let large = MemfdFlags::HUGETLB | MemfdFlags::ALLOW_SEALING;
        let large = memfd_create("buffer", large).ok().filter(|it| ftruncate(it, 2 << 20).is_ok());
        for file in [file.into(), unsealed].into_iter().chain(large) {
            let sent = Buffer::new(file, description(8192)).unwrap();
            let error = receive(|stream| sent.send(stream).unwrap()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Mismatch);
            assert!(error.to_string().contains("could make the memory smaller"), "{error}");
        }
    }

    #[test]
    fn a_description_that_the_memory_has_no_room_for_is_refused() {
        let sent = buffer(8192);
        let send = |change: &dyn Fn(&mut Description)| {
            let mut description = description(8192);
            change(&mut description);
            let description = description.to_bytes().unwrap();
            let header = header(description.len() as u64, &[sent.identity()]);
            let bytes = [&header[..], &description].concat();
            receive(|stream| send_raw(stream, &bytes, &[&sent])).map_err(|error| error.to_string())
        };
        assert!(send(&|_| ()).is_ok());
        let refused = |change: &dyn Fn(&mut Description)| send(change).unwrap_err();
        assert_eq!(
            refused(&|d| d.layout.planes[0].offset = u64::MAX - 5),
            "plane 0 has 8192 bytes at 18446744073709551610, of 8192"
        );
        assert_eq!(
            refused(&|d| d.layout.planes[0].pitch = u64::MAX),
            "rows of plane 0 are 18446744073709551615 bytes apart, of 8192"
        );
        assert_eq!(refused(&|d| d.layout.planes.clear()), "0 planes, where R8 has 1");
        assert_eq!(
            refused(&|d| d.usage.image.height = 2),
            "plane 0 of 8192 bytes has no room for 2 rows of 8192 bytes, 8192 apart"
        );
        assert_eq!(
            refused(&|d| d.layout.planes[0].pitch = 4096),
            "plane 0 of 8192 bytes has no room for 1 rows of 8192 bytes, 4096 apart"
        );
        // Blocks of one GOB, which is 64 bytes wide and 8 rows high.
        let blocks = |pitch, height| {
            move |d: &mut Description| {
                d.layout.modifier = crate::modifier::BlockLinear::SINCE_TURING.modifier(0);
                d.usage.image = Image::new(1000, height, d.usage.image.format);
                d.layout.planes[0].pitch = pitch;
            }
        };
        assert!(send(&blocks(1024, 1)).is_ok() && send(&blocks(1024, 8)).is_ok());
        let has_no_room = "plane 0 of 8192 bytes has no room for";
        for (pitch, rows) in [(1024, 9), (1000, 1), (960, 8), (1088, 8)] {
            let tiles = format!("{rows} rows of 1000 bytes, {pitch} apart, in tiles of 64 x 8");
            assert_eq!(refused(&blocks(pitch, rows)), format!("{has_no_room} {tiles}"));
        }
        let unknown = |d: &mut Description| {
            d.usage.image.format = Fourcc::new(b"????");
            d.layout.planes.clear();
        };
        assert_eq!(refused(&unknown), "no planes");
    }

    #[test]
    fn several_follow_each_other() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let sent = [buffer(4096), buffer(8192)];
        sent.iter().for_each(|buffer| buffer.send(&ours).unwrap());
        for buffer in &sent {
            assert_eq!(Buffer::receive(&theirs).unwrap().identity(), buffer.identity());
        }
    }

    #[test]
    fn other_memory_than_was_announced_is_refused() {
        let (sent, other) = (buffer(4096), buffer(4096));
        let description = sent.description().to_bytes().unwrap();
        let bytes =
            [&header(description.len() as u64, &[sent.identity()])[..], &description].concat();
        let error = receive(|stream| send_raw(stream, &bytes, &[&other])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        receive(|stream| send_raw(stream, &bytes, &[&sent])).unwrap();
    }

    #[test]
    fn descriptors_of_a_message_that_is_cut_are_closed() {
        let open = || std::fs::read_dir("/proc/self/fdinfo").unwrap().count();
        let (ours, theirs) = UnixStream::pair().unwrap();
        // The kernel puts the sender's credentials first, and not all descriptors fit behind them.
        rustix::net::sockopt::set_socket_passcred(&theirs, true).unwrap();
        let sent = buffer(4096);
        send_raw(&ours, &header(8, &[sent.identity()]), &[&sent; ROOM]);
        let before = open();
        let error = Buffer::receive(&theirs).unwrap_err();
        assert_eq!(error.to_string(), "more beside a message than can be received");
        // Other tests open files meanwhile, but not by the hundred.
        assert!(open() < before + 100, "{} descriptors, {before} before", open());
    }

    #[test]
    fn what_is_no_buffer_is_refused() {
        let sent = buffer(4096);
        let identity = sent.identity();
        assert_eq!(refusal(|_| ()), "the sender has closed the socket");
        assert_eq!(
            refusal(|stream| send_raw(stream, &[7; HEADER], &[&sent])),
            "what was sent is no buffer"
        );
        assert_eq!(
            refusal(|stream| send_raw(stream, &header(8, &[identity]), &[])),
            "no file descriptor was sent"
        );
        assert_eq!(
            refusal(|stream| send_raw(stream, &header(8, &[identity]), &[&sent, &sent])),
            "more than one file descriptor"
        );
        assert_eq!(
            refusal(|stream| send_raw(stream, &header(8, &[identity]), &[&sent; ROOM])),
            "more than one file descriptor"
        );
        assert_eq!(
            refusal(|stream| send_raw(stream, &header(u64::MAX, &[identity]), &[&sent])),
            "a description of 18446744073709551615 bytes, of 1048576 at most"
        );
        assert_eq!(
            refusal(|stream| send_raw(stream, &header(8, &[identity]), &[&sent])),
            "0 bytes of a description of 8"
        );
    }
}
