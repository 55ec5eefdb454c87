//! The seccomp filter: which system calls the supervisor gets to see.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use seccompiler::{BpfProgram, sock_filter};

use nvabi_supervise as supervise;
use nvabi_supervise::check;

/// A flag of `mmap` that says nothing for a mapping of a file: with it we make the call for a program.
pub(super) const OURS: u32 = 1 << 31;

/// System calls that are always looked at.
const ALWAYS: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_ioctl,
    libc::SYS_exit_group,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
];

/// Those that wait for files, which some machines want to know of.
pub(super) const POLLS: &[i64] = &[
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// The program, in the kernel's instructions.
pub(super) fn program(with_polls: bool) -> io::Result<BpfProgram> {
    // Mappings of files.
    let files = supervise::when(3, libc::MAP_ANONYMOUS as u64 | u64::from(OURS), 0)?;
    let foreign = libc::SECCOMP_RET_KILL_PROCESS;
    let rules = [(libc::SYS_mmap, files)];
    let always = [ALWAYS, if with_polls { POLLS } else { &[] }].concat();
    supervise::program(&always, rules, libc::SECCOMP_RET_USER_NOTIF, foreign)
}

/// Puts this process, and what becomes of it, under a filter; returns what its calls are read from.
///
/// Between `fork` and `exec` this may be called: it neither allocates nor locks.
pub(super) fn install(program: &[sock_filter]) -> io::Result<OwnedFd> {
    let flags =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: plain numbers.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    let fd = RawFd::try_from(supervise::load(program, flags)).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the listener's descriptor is nobody's yet.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a descriptor over a socket.
///
/// Between `fork` and `exec` this may be called.
pub(super) fn send(socket: RawFd, fd: &OwnedFd) -> io::Result<()> {
    let mut message = Message::new();
    let header = message.header();
    // SAFETY: the header describes buffers of `message`, which hold one descriptor.
    unsafe {
        let control = libc::CMSG_FIRSTHDR(&header);
        if control.is_null() {
            return Err(io::ErrorKind::Other.into());
        }
        (*control).cmsg_level = libc::SOL_SOCKET;
        (*control).cmsg_type = libc::SCM_RIGHTS;
        (*control).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(control).cast::<RawFd>().write_unaligned(fd.as_raw_fd());
        check(libc::sendmsg(socket, &header, 0) as libc::c_int)?;
    }
    Ok(())
}

/// Receives a descriptor.
pub(super) fn receive(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut message = Message::new();
    let mut header = message.header();
    // SAFETY: as for `send`; the descriptor that arrives is ours.
    unsafe {
        check(libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC) as _)?;
        let control = libc::CMSG_FIRSTHDR(&header);
        if control.is_null() || (*control).cmsg_type != libc::SCM_RIGHTS {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(OwnedFd::from_raw_fd(libc::CMSG_DATA(control).cast::<RawFd>().read_unaligned()))
    }
}

/// Buffers of a message of one byte and one descriptor.
struct Message {
    byte: [u8; 1],
    part: libc::iovec,
    control: [u64; 4],
}

impl Message {
    fn new() -> Self {
        let part = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 1 };
        Self { byte: [0], part, control: [0; 4] }
    }

    fn header(&mut self) -> libc::msghdr {
        self.part.iov_base = self.byte.as_mut_ptr().cast();
        // SAFETY: zeros are a value of it.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &mut self.part;
        header.msg_iovlen = 1;
        header.msg_control = self.control.as_mut_ptr().cast();
        // SAFETY: plain arithmetic.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as _;
        header
    }
}
