//! The seccomp filter: which system calls the supervisor gets to see.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use seccompiler::{BpfProgram, sock_filter};

use super::calls::{PATH_CALLS, REFUSED};
use nvabi_supervise as supervise;
use nvabi_supervise::check;

/// A flag of `mmap` that has no effect on a mapping of a file: with it we make the call for a program.
pub(super) const OURS: u32 = 1 << 31;

/// System calls that are always looked at, besides those that name files by paths.
const ALWAYS: &[i64] = &[
    libc::SYS_fstat,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_ioctl,
    libc::SYS_exit_group,
    libc::SYS_fsopen,
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
    // Those that let us wait for answers to faults.
    let faults = supervise::when(0, supervise::USER_MODE_ONLY, 0)?;
    let rules = [(libc::SYS_mmap, files), (libc::SYS_userfaultfd, faults)];
    let paths: Vec<i64> = PATH_CALLS.iter().map(|call| call.number).collect();
    let always = [ALWAYS, &REFUSED, &paths, if with_polls { POLLS } else { &[] }].concat();
    supervise::program(&always, rules, libc::SECCOMP_RET_USER_NOTIF, foreign)
}

/// Puts this process, and what becomes of it, under a filter; returns what its calls are read from.
///
/// Between `fork` and `exec` this may be called: it neither allocates nor locks.
pub(super) fn install(program: &[sock_filter]) -> io::Result<OwnedFd> {
    let flags =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: this `prctl` takes numbers alone and changes what this process may gain, no memory.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    // SAFETY: `program` is what this module makes: it allows a call, or hands it to the supervisor, which writes what
    // a call that it answers with success has to write.
    let fd = unsafe { supervise::load(program, flags) };
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: `seccomp` has just made the descriptor, and returned it here alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
