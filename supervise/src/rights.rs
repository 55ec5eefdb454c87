//! File descriptors that are sent from process to process, over Unix sockets.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Sends a descriptor beside one byte.
///
/// Between `fork` and `exec` this may be called: it neither allocates nor locks.
pub fn send_descriptor(socket: BorrowedFd<'_>, byte: u8, fd: BorrowedFd<'_>) -> io::Result<()> {
    let fds = [fd];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
    }
    let part = [byte];
    retry_on_intr(|| sendmsg(socket, &[IoSlice::new(&part)], &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives one byte and the one descriptor beside it, which `exec` closes.
///
/// # Errors
///
/// `UnexpectedEof` where the other end is closed, `InvalidData` where something else than one descriptor
/// came, which is closed then.
pub fn receive_descriptor(socket: BorrowedFd<'_>) -> io::Result<(u8, OwnedFd)> {
    let mut byte = [0];
    // The kernel fills up what alignment leaves free: there may come two where there is room for one.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut byte)];
    let message =
        retry_on_intr(|| recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    if message.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let mut fds = rights.flatten();
    let (first, second) = (fds.next(), fds.next());
    match (first, second) {
        (Some(fd), None) if !message.flags.contains(ReturnFlags::CTRUNC) => Ok((byte[0], fd)),
        (None, _) => Err(invalid("a message without a file descriptor")),
        _ => Err(invalid("a message with more than one file descriptor")),
    }
}

/// The byte that is received next, where it has come; it stays in the socket. None where the other end is
/// closed.
pub fn peek_byte(socket: BorrowedFd<'_>) -> io::Result<Option<u8>> {
    let mut byte = [0];
    let (_, read) = retry_on_intr(|| rustix::net::recv(socket, &mut byte, RecvFlags::PEEK))?;
    Ok((read == 1).then_some(byte[0]))
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::os::fd::{AsFd as _, AsRawFd as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Sends some descriptors of `/dev/null` in one message.
    fn send(socket: &UnixStream, count: usize) {
        let file = File::open("/dev/null").unwrap();
        let fds = vec![file.as_fd(); count];
        let mut space = vec![MaybeUninit::uninit(); 1024];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(count == 0 || control.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(socket, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
    }

    /// How many descriptors of `/dev/null` are open here.
    fn open() -> usize {
        let links = std::fs::read_dir("/proc/self/fd").unwrap();
        let targets = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
        targets.filter(|target| target.as_os_str() == "/dev/null").count()
    }

    #[test]
    fn one_descriptor_is_received_and_any_others_are_refused_and_closed() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let before = open();
        for count in [0, 2, 3, 60] {
            send(&ours, count);
            let error = receive_descriptor(theirs.as_fd()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{count}: {error}");
            assert_eq!(open(), before, "{count} descriptors are still open");
        }
        let file = File::open("/dev/null").unwrap();
        send_descriptor(ours.as_fd(), b'y', file.as_fd()).unwrap();
        assert_eq!(peek_byte(theirs.as_fd()).unwrap(), Some(b'y'));
        let (byte, fd) = receive_descriptor(theirs.as_fd()).unwrap();
        assert_eq!((byte, open()), (b'y', before + 2));
        // SAFETY: it says the flags of a descriptor that is open.
        assert_eq!(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) }, libc::FD_CLOEXEC);
        drop(ours);
        assert_eq!(peek_byte(theirs.as_fd()).unwrap(), None);
        let error = receive_descriptor(theirs.as_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn ancillary_data_of_another_kind_is_not_taken_for_a_descriptor() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        // From now on the kernel puts the sender's credentials beside each message.
        rustix::net::sockopt::set_socket_passcred(&theirs, true).unwrap();
        ours.write_all(b"x").unwrap();
        let error = receive_descriptor(theirs.as_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    }
}
