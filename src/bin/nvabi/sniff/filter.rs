//! The seccomp filter: which system calls stop, so that all others cost nothing.

use std::io;

use nvabi::supervise;
use seccompiler::{BpfProgram, sock_filter};

/// Calls that are always looked at.
const ALWAYS: &[i64] = &[
    libc::SYS_ioctl,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
];

/// The program, in the kernel's instructions: it returns `action` for what is looked at.
///
/// Programs of another architecture have other numbers: nothing of theirs stops.
pub(super) fn program(action: u32) -> io::Result<BpfProgram> {
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let rules = [
        // Mappings of files.
        (libc::SYS_mmap, supervise::when(3, libc::MAP_ANONYMOUS as u64, 0)?),
        // A filter with a listener of its own comes before ours.
        (libc::SYS_seccomp, supervise::when(1, listener, listener)?),
    ];
    supervise::program(ALWAYS, rules, action, libc::SECCOMP_RET_ALLOW)
}

/// Puts this process, and what becomes of it, under a filter: 0, the descriptor of its listener if
/// `flags` ask for one, or a negative error.
///
/// Rights may not be gained under a filter, unless one has them: so that is asked for only where the
/// kernel demands it. Between `fork` and `exec` this may be called: it neither allocates nor locks.
pub(super) fn install(program: &[sock_filter], flags: libc::c_ulong) -> i64 {
    match supervise::load(program, flags) {
        error if error == -i64::from(libc::EACCES) => {
            // SAFETY: plain numbers.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            supervise::load(program, flags)
        }
        result => result,
    }
}
