//! Makes a system call in the place of another process, for what only it can do to itself.
//!
//! The drivers do not let their mappings be inherited by `fork`, and one of their calls closes a
//! descriptor of its caller: a process can do both to itself alone. So when the caller leaves its call
//! it is stopped, made to do it, and let go. It needs the rights of a debugger; where another debugger
//! has the process, nothing is done.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use crate::Errno;
use nvabi_supervise::{AddFd, Listener, Notification, Registers, Resume, Tracee, Waited};

/// A system call that is made for another: its number and its arguments.
type Call = (libc::c_long, [u64; 6]);

/// Lets the real kernel make the caller's `mmap`, and keeps the mapping from its children.
pub(super) fn pass_unshared(listener: &Listener, notification: &Notification, length: u64) {
    let advise = |result: i64| {
        let is_mapped = !(-4095..=0).contains(&result);
        is_mapped.then(|| unshare(result as u64, length))
    };
    let Ok(trace) = Trace::begin(notification.thread) else {
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
    let Ok(trace) = Trace::begin(notification.thread) else { return false };
    // It has the file for as long as it takes to map it.
    let fd = match listener.add_fd(notification, file.as_fd(), AddFd::New { cloexec: true }) {
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
    let Ok(trace) = Trace::begin(notification.thread) else { return false };
    listener.answer(notification, result);
    // As for a mapping.
    let _ = trace.after_call(|_| Some((libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0])));
    true
}

/// A thread that we trace, let go at the end.
struct Trace(Tracee);

impl Drop for Trace {
    fn drop(&mut self) {
        // It may have ended meanwhile.
        let _ = self.0.detach();
    }
}

impl Trace {
    /// From now on; the thread stops when it leaves the call that it is in.
    fn begin(thread: u32) -> io::Result<Self> {
        let thread = Tracee(thread as i32);
        thread.seize(0)?;
        let trace = Self(thread);
        thread.interrupt()?;
        Ok(trace)
    }

    /// Makes a call for the thread when it leaves the one that it is in, by what that one returned.
    fn after_call(&self, then: impl FnOnce(i64) -> Option<Call>) -> io::Result<()> {
        self.wait()?;
        let registers = self.0.registers()?;
        let Some(call) = then(registers.result()) else { return Ok(()) };
        let mask = self.0.replace_mask(u64::MAX)?;
        let done = self.call(&registers, call);
        self.0.set_registers(&registers)?;
        self.0.replace_mask(mask)?;
        done.map(drop)
    }

    /// Makes a call for the thread, whose result is that of the one that it is in, and others after it.
    fn instead_of_call(&self, call: Call, then: impl FnOnce(i64) -> Vec<Call>) -> io::Result<()> {
        self.wait()?;
        let registers = self.0.registers()?;
        let mask = self.0.replace_mask(u64::MAX)?;
        let made = self.call(&registers, call).and_then(|result| {
            then(result).into_iter().try_for_each(|call| self.call(&registers, call).map(drop))?;
            Ok(result)
        });
        self.0
            .set_registers(&made.as_ref().map_or(registers, |made| registers.with_result(*made)))?;
        self.0.replace_mask(mask)?;
        made.map(drop)
    }

    /// Makes a call for the thread, and leaves its registers as the call does.
    fn call(&self, registers: &Registers, (call, args): Call) -> io::Result<i64> {
        self.0.set_registers(&registers.with_call(call as u64, args))?;
        self.step()?;
        Ok(self.0.registers()?.result())
    }

    fn step(&self) -> io::Result<()> {
        self.0.resume(Resume::Step, 0)?;
        self.wait()
    }

    /// Until it stops; an error when it has ended.
    fn wait(&self) -> io::Result<()> {
        match self.0.wait()? {
            Waited::Stopped { .. } => Ok(()),
            Waited::Ended(_) => Err(io::ErrorKind::NotFound.into()),
        }
    }
}
