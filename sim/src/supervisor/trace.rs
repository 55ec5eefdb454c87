//! Makes a system call in the place of another process, for what only it can do to itself.
//!
//! The drivers do not let their mappings be inherited by `fork`, and one of their calls closes a
//! descriptor of its caller: a process can do both to itself alone. So when the caller leaves its call
//! it is stopped, made to do it, and let go. It needs the rights of a debugger; where another debugger
//! has the process, nothing is done.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::Errno;
use nvabi_supervise::check;
use nvabi_supervise::{Give, Listener, Notification};

/// A system call that is made for another: its number and its arguments.
type Call = (libc::c_long, [u64; 6]);

/// Lets the real kernel make the caller's `mmap`, and keeps the mapping from its children.
pub(super) fn pass_unshared(listener: &Listener, notification: &Notification, length: u64) {
    let advise = |result: i64| {
        let is_mapped = !(-4095..=0).contains(&result);
        is_mapped.then(|| unshare(result as u64, length))
    };
    let Ok(trace) = Trace::begin(notification.thread as libc::pid_t) else {
        return listener.pass(notification);
    };
    listener.pass(notification);
    // When it was killed meanwhile there is nothing to do, and nothing to tell.
    let _ = trace.after_call(advise);
}

/// Answers the caller's `mmap` with the same mapping of another file, from an offset on, which children
/// do not get. `false`: the caller cannot be made to map it, and was not answered.
pub(super) fn map_instead(
    listener: &Listener,
    notification: &Notification,
    file: &OwnedFd,
    offset: u64,
) -> bool {
    let Ok(trace) = Trace::begin(notification.thread as libc::pid_t) else { return false };
    // It has the file for as long as it takes to map it.
    let fd = match listener.give(notification, file.as_raw_fd(), Give::New { cloexec: true }) {
        Ok(fd) => fd,
        Err(errno) => {
            listener.answer(notification, Err(errno));
            return true;
        }
    };
    listener.answer(notification, Err(Errno::EINTR));
    let [address, length, protection, flags, ..] = notification.args;
    let flags = flags | u64::from(super::filter::OURS);
    let map = (libc::SYS_mmap, [address, length, protection, flags, fd as u64, offset]);
    let close = (libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0]);
    // As for other mappings: when it was killed there is nothing to tell.
    let _ = trace.instead_of_call(map, |result| {
        let is_mapped = !(-4095..=0).contains(&result);
        is_mapped.then(|| unshare(result as u64, length)).into_iter().chain([close]).collect()
    });
    true
}

/// Keeps a mapping from children.
fn unshare(address: u64, length: u64) -> Call {
    (libc::SYS_madvise, [address, length, libc::MADV_DONTFORK as u64, 0, 0, 0])
}

/// Answers a call whose caller has closed a descriptor before it sees the answer. `false`: it cannot be
/// made to, and was not answered.
pub(super) fn answer_closed(
    listener: &Listener,
    notification: &Notification,
    result: Result<i64, Errno>,
    fd: i32,
) -> bool {
    let Ok(trace) = Trace::begin(notification.thread as libc::pid_t) else { return false };
    listener.answer(notification, result);
    // As for a mapping.
    let _ = trace.after_call(|_| Some((libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0])));
    true
}

/// A thread that we trace, let go at the end.
struct Trace {
    thread: libc::pid_t,
}

impl Drop for Trace {
    fn drop(&mut self) {
        // SAFETY: plain numbers.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.thread, 0, 0) };
    }
}

impl Trace {
    /// From now on; the thread stops when it leaves the call that it is in.
    fn begin(thread: libc::pid_t) -> io::Result<Self> {
        // SAFETY: plain numbers.
        unsafe {
            ptrace(libc::PTRACE_SEIZE, thread, 0, 0)?;
            let trace = Self { thread };
            ptrace(libc::PTRACE_INTERRUPT, thread, 0, 0)?;
            Ok(trace)
        }
    }

    /// Makes a call for the thread when it leaves the one that it is in, by what that one returned.
    fn after_call(&self, then: impl FnOnce(i64) -> Option<Call>) -> io::Result<()> {
        self.wait()?;
        let registers = self.registers()?;
        let Some(call) = then(registers.result()) else { return Ok(()) };
        let mask = self.set_mask(u64::MAX)?;
        let done = self.call(&registers, call);
        self.set_registers(&registers)?;
        self.set_mask(mask)?;
        done.map(drop)
    }

    /// Makes a call for the thread, whose result is that of the one that it is in, and others after it.
    fn instead_of_call(&self, call: Call, then: impl FnOnce(i64) -> Vec<Call>) -> io::Result<()> {
        self.wait()?;
        let registers = self.registers()?;
        let mask = self.set_mask(u64::MAX)?;
        let made = self.call(&registers, call).and_then(|result| {
            then(result).into_iter().try_for_each(|call| self.call(&registers, call).map(drop))?;
            Ok(result)
        });
        self.set_registers(&made.as_ref().map_or(registers, |made| registers.with_result(*made)))?;
        self.set_mask(mask)?;
        made.map(drop)
    }

    /// Makes a call for the thread, and leaves its registers as the call does.
    fn call(&self, registers: &Registers, (call, args): Call) -> io::Result<i64> {
        self.set_registers(&registers.with_call(call as u64, args))?;
        self.step()?;
        Ok(self.registers()?.result())
    }

    fn step(&self) -> io::Result<()> {
        // SAFETY: plain numbers.
        unsafe { ptrace(libc::PTRACE_SINGLESTEP, self.thread, 0, 0)? };
        self.wait()
    }

    /// Until it stops; an error when it has ended.
    fn wait(&self) -> io::Result<()> {
        let mut status = 0;
        // SAFETY: the kernel writes one number.
        check(unsafe { libc::waitpid(self.thread, &mut status, libc::__WALL) })?;
        if libc::WIFSTOPPED(status) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Replaces the signals that it blocks.
    fn set_mask(&self, mask: u64) -> io::Result<u64> {
        const GET: libc::c_uint = 0x420a;
        const SET: libc::c_uint = 0x420b;
        let mut old = 0_u64;
        let size = size_of::<u64>();
        // SAFETY: both masks are of the size that is told.
        unsafe {
            ptrace(GET as _, self.thread, size, (&raw mut old) as usize)?;
            ptrace(SET as _, self.thread, size, (&raw const mask) as usize)?;
        }
        Ok(old)
    }

    fn registers(&self) -> io::Result<Registers> {
        // SAFETY: zeros are a value of them, and the kernel writes no more than they are.
        unsafe {
            let mut registers: Registers = std::mem::zeroed();
            let mut part = registers.part();
            let address = (&raw mut part) as usize;
            ptrace(libc::PTRACE_GETREGSET as _, self.thread, NT_PRSTATUS, address)?;
            Ok(registers)
        }
    }

    fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        let mut registers = *registers;
        let mut part = registers.part();
        let address = (&raw mut part) as usize;
        // SAFETY: the kernel reads no more than they are.
        unsafe {
            ptrace(libc::PTRACE_SETREGSET as _, self.thread, NT_PRSTATUS, address)?;
        }
        Ok(())
    }
}

/// General registers, as a register set.
const NT_PRSTATUS: usize = 1;

/// # Safety
///
/// As `ptrace(2)` has it for the request.
unsafe fn ptrace(
    request: libc::c_uint,
    thread: libc::pid_t,
    address: usize,
    data: usize,
) -> io::Result<()> {
    // SAFETY: the caller's.
    let result = unsafe { libc::ptrace(request as _, thread, address, data) };
    check(result as libc::c_int)?;
    Ok(())
}

/// The registers of a thread.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Registers(libc::user_regs_struct);

impl Registers {
    fn part(&mut self) -> libc::iovec {
        libc::iovec { iov_base: (&raw mut self.0).cast(), iov_len: size_of::<Self>() }
    }
}

#[cfg(target_arch = "x86_64")]
impl Registers {
    /// What the call returned.
    fn result(&self) -> i64 {
        self.0.rax as i64
    }

    /// As if the call had returned this.
    fn with_result(&self, result: i64) -> Self {
        let mut registers = *self;
        registers.0.rax = result as u64;
        registers
    }

    /// The same instruction again, for another call.
    fn with_call(&self, call: u64, args: [u64; 6]) -> Self {
        let mut registers = *self;
        registers.0.rip -= 2;
        registers.0.rax = call;
        // There is no call to restart.
        registers.0.orig_rax = u64::MAX;
        let it = &mut registers.0;
        [it.rdi, it.rsi, it.rdx, it.r10, it.r8, it.r9] = args;
        registers
    }
}

#[cfg(target_arch = "aarch64")]
impl Registers {
    /// What the call returned.
    fn result(&self) -> i64 {
        self.0.regs[0] as i64
    }

    /// As if the call had returned this.
    fn with_result(&self, result: i64) -> Self {
        let mut registers = *self;
        registers.0.regs[0] = result as u64;
        registers
    }

    /// The same instruction again, for another call.
    fn with_call(&self, call: u64, args: [u64; 6]) -> Self {
        let mut registers = *self;
        registers.0.pc -= 4;
        registers.0.regs[8] = call;
        registers.0.regs[..6].copy_from_slice(&args);
        registers
    }
}
