//! Makes a system call in the place of another process, for what only it can do to itself.
//!
//! The drivers do not let their mappings be inherited by `fork`, and one of their calls closes a
//! descriptor of its caller: a process can do both to itself alone. So when the caller leaves its call
//! it is stopped, made to do it, and let go. It needs the rights of a debugger; where another debugger
//! has the process, nothing is done.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use super::paths::Again;
use super::watches::Watches;
use crate::Errno;
use nvabi_supervise::{
    AT_CALL, AddFd, Listener, Notification, Registers, Resume, Tracee, WATCH_FLAGS, Waited,
    descriptor_of, process_of, write_memory,
};

/// A system call that is made for another: its number and its arguments.
type Call = (libc::c_long, [u64; 6]);

/// Lets the real kernel make the caller's `mmap`, keeps the mapping from its children, and watches it for whom that is
/// of use.
pub(super) fn pass_unshared(
    listener: &Listener,
    notification: &Notification,
    watches: Option<&Watches>,
) {
    let [_, length, ..] = notification.args;
    let Ok(mut trace) = Trace::begin(notification.thread) else {
        return listener.pass(notification);
    };
    listener.pass(notification);
    // When it was killed meanwhile there is nothing to do, and nothing to tell.
    let _ = trace
        .after_call(|trace, registers| trace.keep(registers, registers.result(), length, watches));
}

/// Answers the caller's `mmap` with the same mapping of another file, from an offset on, which children
/// do not get, and watches it as above. `false`: the caller cannot be made to map it, and was not answered.
pub(super) fn map_instead(
    listener: &Listener,
    notification: &Notification,
    (file, offset): (&OwnedFd, u64),
    watches: Option<&Watches>,
) -> bool {
    let Ok(mut trace) = Trace::begin(notification.thread) else { return false };
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
    // As for other mappings: when it was killed there is nothing to tell.
    let _ = trace.in_place_of_call(|trace, registers, _| {
        let result = trace.call(registers, map)?;
        trace.keep(registers, result, length, watches)?;
        trace.call(registers, close(fd))?;
        Ok(result)
    });
    true
}

/// Answers the caller's `chdir` by letting it go to a folder. `false`: it cannot be made to, and was not answered.
pub(super) fn enter(listener: &Listener, notification: &Notification, folder: &OwnedFd) -> bool {
    let Ok(mut trace) = Trace::begin(notification.thread) else { return false };
    let fd = match listener.add_fd(notification, folder.as_fd(), AddFd::New { cloexec: true }) {
        Ok(fd) => fd,
        Err(errno) => {
            listener.answer(notification, Err(errno));
            return true;
        }
    };
    listener.answer(notification, Err(Errno::EINTR));
    let go = (libc::SYS_fchdir, [fd as u64, 0, 0, 0, 0, 0]);
    // As for a mapping.
    let _ = trace.in_place_of_call(|trace, registers, _| {
        let result = trace.call(registers, go)?;
        trace.call(registers, close(fd))?;
        Ok(result)
    });
    true
}

/// Lets the caller make its call by other paths, which it gets memory for meanwhile. It stops at that once more, where
/// another thread than this one lets it go on; signals end it where it may wait. `false`: it cannot be made to, and was
/// not answered.
pub(super) fn call_again(
    listener: &Listener,
    notification: &Notification,
    again: &Again,
    may_wait: bool,
) -> bool {
    let thread = notification.thread;
    let Ok(mut trace) = Trace::begin(thread) else { return false };
    listener.answer(notification, Err(Errno::EINTR));
    let mut args = again.args;
    let mut text = Vec::new();
    for (argument, path) in &again.paths {
        let start = text.len();
        args[argument.path] = start as u64;
        if argument.length.is_some() {
            text.extend((libc::AF_UNIX as libc::sa_family_t).to_ne_bytes());
        }
        text.extend_from_slice(path.as_os_str().as_bytes());
        text.push(0);
        if let Some(length) = argument.length {
            args[length] = (text.len() - start) as u64;
        }
    }
    let length = text.len() as u64;
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let memory = [0, length, access as u64, kind as u64, u64::MAX, 0];
    // As for a mapping.
    let _ = trace.in_place_of_call(|trace, registers, mask| {
        let address = trace.call(registers, (libc::SYS_mmap, memory))?;
        if (-4095..=0).contains(&address) {
            return Ok(-i64::from(libc::ENOMEM));
        }
        let address = address as u64;
        for (argument, _) in &again.paths {
            args[argument.path] += address;
        }
        let is_there = write_memory(thread, address, &text) == text.len();
        let call = (again.number, args);
        let result = match is_there {
            true if may_wait => trace.call_with_signals(registers, call, mask)?,
            true => trace.call(registers, call)?,
            false => -i64::from(libc::EFAULT),
        };
        trace.call(registers, (libc::SYS_munmap, [address, length, 0, 0, 0, 0]))?;
        Ok(result)
    });
    true
}

fn close(fd: i32) -> Call {
    (libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0])
}

/// Answers a call whose caller has closed a descriptor before it sees the answer. `false`: it cannot be
/// made to, and was not answered.
pub(super) fn answer_closed(
    listener: &Listener,
    notification: &Notification,
    result: Result<i64, Errno>,
    fd: i32,
) -> bool {
    answer_after(listener, notification, result, close(fd))
}

/// Answers a call whose caller is at another place of an open file when it sees the answer. `false`: as above.
pub(super) fn answer_moved(
    listener: &Listener,
    notification: &Notification,
    result: Result<i64, Errno>,
    (fd, position): (i32, i64),
) -> bool {
    let args = [fd as u64, position as u64, libc::SEEK_SET as u64, 0, 0, 0];
    answer_after(listener, notification, result, (libc::SYS_lseek, args))
}

/// Answers a call whose caller makes another one before it sees the answer.
fn answer_after(
    listener: &Listener,
    notification: &Notification,
    result: Result<i64, Errno>,
    call: Call,
) -> bool {
    let Ok(mut trace) = Trace::begin(notification.thread) else { return false };
    listener.answer(notification, result);
    // As for a mapping.
    let _ = trace.after_call(|trace, registers| trace.call(registers, call).map(drop));
    true
}

/// What `PTRACE_O_TRACESYSGOOD` makes stops at system calls differ by from all others.
const OPTIONS: libc::c_int = libc::PTRACE_O_TRACESYSGOOD;

/// `PTRACE_EVENT_STOP`: a thread has stopped because it was told to, by us or by job control.
const EVENT_STOP: i32 = libc::PTRACE_EVENT_STOP;

/// A thread that we trace, let go at the end.
struct Trace {
    thread: Tracee,
    /// Signals that came to it before the stop that was waited for.
    signals: Vec<i32>,
}

impl Drop for Trace {
    fn drop(&mut self) {
        // It may have ended meanwhile. If job control has stopped the process, it is stopped from here on.
        let _ = self.thread.detach();
        for signal in self.signals.drain(..) {
            // SAFETY: the call takes numbers alone: what a signal does to another process is its own matter.
            unsafe { libc::syscall(libc::SYS_tkill, self.thread.0, signal) };
        }
    }
}

impl Trace {
    /// From now on; the thread stops when it leaves the call that it is in.
    fn begin(thread: u32) -> io::Result<Self> {
        let thread = Tracee(thread as i32);
        thread.seize(OPTIONS)?;
        let trace = Self { thread, signals: Vec::new() };
        thread.interrupt()?;
        Ok(trace)
    }

    /// Makes calls for the thread when it leaves the one that it is in.
    fn after_call(
        &mut self,
        make: impl FnOnce(&mut Self, &Registers) -> io::Result<()>,
    ) -> io::Result<()> {
        self.wait_until_it_leaves()?;
        let registers = self.thread.registers()?;
        let mask = self.thread.replace_mask(u64::MAX)?;
        let made = make(self, &registers);
        self.thread.set_registers(&registers)?;
        self.thread.replace_mask(mask)?;
        made
    }

    /// Keeps the mapping that an `mmap` of the thread returned from its children, and watches it for whom that is of
    /// use.
    fn keep(
        &mut self,
        registers: &Registers,
        result: i64,
        length: u64,
        watches: Option<&Watches>,
    ) -> io::Result<()> {
        if (-4095..=0).contains(&result) {
            return Ok(());
        }
        let address = result as u64;
        let unshare = [address, length, libc::MADV_DONTFORK as u64, 0, 0, 0];
        self.call(registers, (libc::SYS_madvise, unshare))?;
        match watches {
            Some(watches) => self.watch(registers, address, length, watches),
            None => Ok(()),
        }
    }

    /// Watches a mapping, where the process may ask for that. A filter of its own may end it for the question.
    fn watch(
        &mut self,
        registers: &Registers,
        address: u64,
        length: u64,
        watches: &Watches,
    ) -> io::Result<()> {
        let thread = self.thread.0 as u32;
        if !watches.may_be_asked_for(thread) {
            return Ok(());
        }
        let fd = self.call(registers, (libc::SYS_userfaultfd, [WATCH_FLAGS, 0, 0, 0, 0, 0]))?;
        let Ok(fd @ 0..) = i32::try_from(fd) else { return Ok(()) };
        let file = process_of(thread).and_then(|process| descriptor_of(process, fd));
        self.call(registers, close(fd))?;
        // Without it, it is looked at as time goes by.
        if let Ok(file) = file {
            watches.add(file, address, length);
        }
        Ok(())
    }

    /// Makes calls for the thread, in place of the one that it is in, and gives that a result. The last argument of
    /// what makes them is the signals that the thread blocks but for that time.
    fn in_place_of_call(
        &mut self,
        make: impl FnOnce(&mut Self, &Registers, u64) -> io::Result<i64>,
    ) -> io::Result<()> {
        /// `ERESTARTSYS` to `ERESTART_RESTARTBLOCK`, which programs do not see.
        const INTERRUPTED: std::ops::RangeInclusive<i64> = -516..=-512;
        self.wait_until_it_leaves()?;
        let registers = self.thread.registers()?;
        let mask = self.thread.replace_mask(u64::MAX)?;
        let made = make(self, &registers, mask);
        let after = made.as_ref().map_or(registers, |made| match INTERRUPTED.contains(made) {
            true => registers.interrupted(),
            false => registers.with_result(*made),
        });
        self.thread.set_registers(&after)?;
        self.thread.replace_mask(mask)?;
        made.map(drop)
    }

    /// Makes a call for the thread, and leaves its registers as the call does.
    fn call(&mut self, registers: &Registers, (call, args): Call) -> io::Result<i64> {
        self.thread.set_registers(&registers.with_call(call as u64, args))?;
        // It stops where the call begins, and where it ends.
        self.go_to_call()?;
        self.go_to_call()?;
        Ok(self.thread.registers()?.result())
    }

    /// The same for a call that may wait: signals that are not in this mask end it, and come when all is done.
    fn call_with_signals(
        &mut self,
        registers: &Registers,
        (call, args): Call,
        mask: u64,
    ) -> io::Result<i64> {
        self.thread.set_registers(&registers.with_call(call as u64, args))?;
        self.go_to_call()?;
        // In a call no signal stops the thread before that has ended.
        self.thread.replace_mask(mask)?;
        let ended = self.go_to_call();
        self.thread.replace_mask(u64::MAX)?;
        ended?;
        Ok(self.thread.registers()?.result())
    }

    /// Until the thread begins or ends a call. Job control stops it in between as often as it likes.
    fn go_to_call(&mut self) -> io::Result<()> {
        let mut signal = 0;
        loop {
            self.thread.resume(Resume::ToCall, signal)?;
            signal = match self.wait()? {
                (AT_CALL, _) => return Ok(()),
                (_, EVENT_STOP) => 0,
                // SIGSTOP: all others are blocked. A SIGCONT that comes after it must find it delivered.
                (signal, _) => signal,
            }
        }
    }

    /// Until it stops for us: it was told to while it waited for the answer to its call.
    fn wait_until_it_leaves(&mut self) -> io::Result<()> {
        loop {
            match self.wait()? {
                (_, EVENT_STOP) => return Ok(()),
                (libc::SIGSTOP, _) => self.thread.resume(Resume::Freely, libc::SIGSTOP)?,
                // The kernel looks for signals later than for stops; should it ever not, none is lost.
                (signal, _) => {
                    self.signals.push(signal);
                    return Ok(());
                }
            }
        }
    }

    /// Until it stops: the signal and the event; an error when it has ended.
    fn wait(&self) -> io::Result<(i32, i32)> {
        match self.thread.wait()? {
            Waited::Stopped { signal, event } => Ok((signal, event)),
            Waited::Ended(_) => Err(io::ErrorKind::NotFound.into()),
        }
    }
}
