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
/// numbers, as those of x32 have. All else is allowed.
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
    // Jumps count from where they are: what is before them changes none.
    program.splice(0..0, of_x32(foreign));
    Ok(program)
}

/// Returns `foreign` for calls of x32, which are of the same architecture and have a bit in their number that no other
/// has. What is negative has that too and is no call of any.
#[cfg(target_arch = "x86_64")]
fn of_x32(foreign: u32) -> impl IntoIterator<Item = sock_filter> {
    /// `BPF_LD | BPF_W | BPF_ABS`, `BPF_ALU | BPF_AND | BPF_K` and `BPF_JMP | BPF_JEQ | BPF_K`.
    const CODES: [u16; 3] = [0x20, 0x54, 0x15];
    /// `__X32_SYSCALL_BIT`, and with it the bit of what is negative.
    const X32: u32 = 1 << 30;
    const BITS: u32 = 3 << 30;
    let [load, and, equal] = CODES;
    let is = |code, jf, k| sock_filter { code, jt: 0, jf, k };
    // The number is what the kernel's struct begins with.
    [is(load, 0, 0), is(and, 0, BITS), is(equal, 1, X32), is(RETURN, 0, foreign)]
}

#[cfg(not(target_arch = "x86_64"))]
fn of_x32(_: u32) -> impl IntoIterator<Item = sock_filter> {
    []
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

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use super::*;

    #[test]
    fn calls_of_x32_are_foreign() {
        const FOREIGN: i32 = 1999;
        let foreign = libc::SECCOMP_RET_ERRNO | FOREIGN as u32;
        let program = program(&[], [], libc::SECCOMP_RET_ALLOW, foreign).unwrap();
        // What is negative is a call that a tracer has left out.
        let calls = [libc::SYS_getpid | 1 << 30, libc::SYS_getpid, -1, i64::from(i32::MIN)];
        let expected = [FOREIGN, 0, libc::ENOSYS, libc::ENOSYS];
        // SAFETY: the child makes system calls alone, on memory that was there before it; its calls that do nothing
        // fail, or succeed as they do without a filter.
        let passed = unsafe {
            match libc::fork() {
                0 => {
                    libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                    let mut passed = load(&program, 0) == 0;
                    for (call, expected) in calls.into_iter().zip(expected) {
                        let failed = libc::syscall(call) < 0;
                        passed &= expected == if failed { *libc::__errno_location() } else { 0 };
                    }
                    libc::_exit(passed.into())
                }
                child => crate::wait_for_end(child).unwrap().code(),
            }
        };
        assert_eq!(passed, Some(1));
    }
}
