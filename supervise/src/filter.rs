//! seccomp filters: which system calls stop, so that all others cost nothing.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, sock_filter,
};

/// What the compiler of filters is told to return, for it knows no user notification.
const MARK: u32 = 0x6e76;
/// `BPF_RET | BPF_K`.
const RETURN: u16 = 0x06;

/// The program, in the kernel's instructions: it returns `action` for calls that are always looked at and
/// for those that fulfil a rule, and `foreign` for programs of another architecture, whose calls have other
/// numbers. All else is allowed.
pub fn program(
    always: &[i64],
    rules: impl IntoIterator<Item = (i64, Vec<SeccompRule>)>,
    action: u32,
    foreign: u32,
) -> io::Result<BpfProgram> {
    let always = always.iter().map(|call| (*call, Vec::new()));
    let rules: BTreeMap<i64, Vec<SeccompRule>> = always.chain(rules).collect();
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
            instruction.k = foreign;
        }
    }
    Ok(program)
}

/// Calls of which the bits `mask` of an argument are `value`.
pub fn when(argument: u8, mask: u64, value: u64) -> io::Result<Vec<SeccompRule>> {
    let masked = SeccompCmpOp::MaskedEq(mask);
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, masked, value);
    let rule = SeccompRule::new(vec![condition.map_err(io::Error::other)?]);
    Ok(vec![rule.map_err(io::Error::other)?])
}

/// Calls of which an argument of 32 bits is none of these.
pub fn unless(argument: u8, values: &[u32]) -> io::Result<Vec<SeccompRule>> {
    let conditions: Result<Vec<_>, _> = (values.iter())
        .map(|value| {
            let (length, differs) = (SeccompCmpArgLen::Dword, SeccompCmpOp::Ne);
            SeccompCondition::new(argument, length, differs, u64::from(*value))
        })
        .collect();
    let rule = SeccompRule::new(conditions.map_err(io::Error::other)?);
    Ok(vec![rule.map_err(io::Error::other)?])
}

/// Puts this process, and what becomes of it, under a filter: 0, the descriptor of its listener if
/// `flags` ask for one, or a negative error.
///
/// Between `fork` and `exec` this may be called: it neither allocates nor locks.
///
/// # Safety
///
/// No call may seem to succeed to this process that was not made: safe code reads what such a call should have
/// written. What a filter hands to a listener is the listener's to answer by that rule.
pub unsafe fn load(program: &[sock_filter], flags: libc::c_ulong) -> i64 {
    #[repr(C)]
    struct Program {
        length: u16,
        instructions: *const sock_filter,
    }
    // The kernel refuses more than 4096 instructions.
    let length = u16::try_from(program.len()).unwrap_or(u16::MAX);
    let program = Program { length, instructions: program.as_ptr() };
    // SAFETY: the kernel reads one `struct sock_fprog`, which `Program` is laid out as, and as many
    // instructions as its length says: no more than there are, and both outlive the call. What the filter does to
    // later calls the caller vouches for. `errno` is this thread's own.
    unsafe {
        let result = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            std::ptr::from_ref(&program),
        );
        if result < 0 { -i64::from(*libc::__errno_location()) } else { result }
    }
}
