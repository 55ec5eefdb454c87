//! The seccomp filter: which system calls stop, so that all others cost nothing.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, sock_filter,
};

/// What the compiler of filters is told to return; it knows no user notification.
const MARK: u32 = 0x6e76;
/// `BPF_RET | BPF_K`.
const RETURN: u16 = 0x06;

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
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALWAYS.iter().map(|call| (*call, Vec::new())).collect();
    // Mappings of files.
    rules.insert(libc::SYS_mmap, when(3, libc::MAP_ANONYMOUS as u64, 0)?);
    // A filter with a listener of its own comes before ours.
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    rules.insert(libc::SYS_seccomp, when(1, listener, listener)?);
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Trace(MARK),
        std::env::consts::ARCH.try_into().map_err(io::Error::other)?,
    )
    .map_err(io::Error::other)?;
    let mut program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    for instruction in program.iter_mut().filter(|instruction| instruction.code == RETURN) {
        if instruction.k == libc::SECCOMP_RET_TRACE | MARK {
            instruction.k = action;
        } else if instruction.k == libc::SECCOMP_RET_KILL_PROCESS {
            instruction.k = libc::SECCOMP_RET_ALLOW;
        }
    }
    Ok(program)
}

/// Calls of which the bits `mask` of an argument are `value`.
fn when(argument: u8, mask: u64, value: u64) -> io::Result<Vec<SeccompRule>> {
    let masked = SeccompCmpOp::MaskedEq(mask);
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, masked, value);
    let rule = SeccompRule::new(vec![condition.map_err(io::Error::other)?]);
    Ok(vec![rule.map_err(io::Error::other)?])
}

/// Puts this process, and what becomes of it, under a filter: 0, the descriptor of its listener if
/// `flags` ask for one, or a negative error.
///
/// Rights may not be gained under a filter, unless one has them: so that is asked for only where the
/// kernel demands it. Between `fork` and `exec` this may be called: it neither allocates nor locks.
pub(super) fn install(program: &[sock_filter], flags: libc::c_ulong) -> i64 {
    #[repr(C)]
    struct Program {
        length: u16,
        instructions: *const sock_filter,
    }
    let program = Program { length: program.len() as u16, instructions: program.as_ptr() };
    // SAFETY: plain numbers, and a program that outlives the call.
    let set = || unsafe {
        let result = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            std::ptr::from_ref(&program),
        );
        if result < 0 { -i64::from(*libc::__errno_location()) } else { result }
    };
    match set() {
        error if error == -i64::from(libc::EACCES) => {
            // SAFETY: plain numbers.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            set()
        }
        result => result,
    }
}
