//! The seccomp filter: which system calls the supervisor gets to see.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, sock_filter,
};

use crate::sim::memory::check;

/// What the compiler of filters is told to return, for it knows no user notification.
const MARK: u32 = 0x6e76;
/// A flag of `mmap` that says nothing for a mapping of a file: with it we make the call for a program.
pub(super) const OURS: u32 = 1 << 31;
/// `BPF_RET | BPF_K`.
const RETURN: u16 = 0x06;

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

/// The program, in the kernel's instructions.
pub(super) fn program() -> io::Result<BpfProgram> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALWAYS.iter().map(|call| (*call, Vec::new())).collect();
    // Mappings of files.
    rules.insert(libc::SYS_mmap, without(3, libc::MAP_ANONYMOUS as u64 | u64::from(OURS))?);
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Trace(MARK),
        std::env::consts::ARCH.try_into().map_err(io::Error::other)?,
    )
    .map_err(io::Error::other)?;
    let mut program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    for instruction in &mut program {
        if instruction.code == RETURN && instruction.k == libc::SECCOMP_RET_TRACE | MARK {
            instruction.k = libc::SECCOMP_RET_USER_NOTIF;
        }
    }
    Ok(program)
}

/// Calls of which an argument lacks some flags.
fn without(argument: u8, flags: u64) -> io::Result<Vec<SeccompRule>> {
    let condition =
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flags), 0);
    let rule = SeccompRule::new(vec![condition.map_err(io::Error::other)?]);
    Ok(vec![rule.map_err(io::Error::other)?])
}

/// Puts this process, and what becomes of it, under a filter; returns what its calls are read from.
///
/// Between `fork` and `exec` this may be called: it neither allocates nor locks.
pub(super) fn install(program: &[sock_filter]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Program {
        length: u16,
        instructions: *const sock_filter,
    }
    let program = Program { length: program.len() as u16, instructions: program.as_ptr() };
    let flags =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: plain numbers; then a program that outlives the call, and the descriptor that it
    // returns is nobody's yet.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        let fd = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            std::ptr::from_ref(&program),
        );
        check(fd as libc::c_int)?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
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
