//! By `ptrace`: calls stop when they are made, by the filter, and when they return.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::process::ExitStatus;

use nvabi_supervise::{AT_CALL, CallStop, Resume, Tracee, Waited, wait_for_any};

use super::launch::{Launched, Under};
use super::watch::{Caller, Pending, Watch};

/// Whether a process may be traced here: an error says why not, and the child still waits.
pub(super) fn seize(launched: &Launched) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_EXITKILL;
    Tracee(launched.pid).seize(options)
}

/// What is known of a thread.
#[derive(Default)]
struct Thread {
    /// The call that it is in.
    pending: Option<Pending>,
}

struct Tracer<'w> {
    launched: Launched,
    watch: &'w mut dyn Watch,
    threads: HashMap<i32, Thread>,
    /// All calls stop, not those of a filter alone.
    every_call: bool,
    ended: Option<ExitStatus>,
}

/// Follows a seized program and all that comes of it until none is left; how the program ended.
///
/// `every_call`: there is no filter of ours, or others come before it, so that it stops nothing.
pub(super) fn follow(
    mut launched: Launched,
    watch: &mut dyn Watch,
    every_call: bool,
) -> io::Result<(Launched, ExitStatus)> {
    if every_call {
        resume_at_every_call(launched.pid)?;
    }
    launched.go(if every_call { Under::Nothing } else { Under::Tracer })?;
    let threads = HashMap::new();
    let mut tracer = Tracer { launched, watch, threads, every_call, ended: None };
    loop {
        let Some((thread, waited)) = wait_for_any()? else {
            // Nobody is left.
            let ended = tracer.ended.ok_or_else(|| io::Error::from_raw_os_error(libc::ECHILD))?;
            return Ok((tracer.launched, ended));
        };
        tracer.changed(thread, waited)?;
        tracer.watch.settle();
    }
}

/// Brings a child that waits to a stop, and resumes it so that all of its calls stop.
fn resume_at_every_call(child: i32) -> io::Result<()> {
    let child = Tracee(child);
    child.interrupt()?;
    match child.wait()? {
        Waited::Stopped { .. } => child.resume(Resume::ToCall, 0),
        Waited::Ended(_) => Err(io::Error::other("the program was killed before it started")),
    }
}

impl Tracer<'_> {
    fn changed(&mut self, Tracee(thread): Tracee, waited: Waited) -> io::Result<()> {
        let (signal, event) = match waited {
            Waited::Stopped { signal, event } => (signal, event),
            Waited::Ended(status) => {
                self.gone(thread, status);
                return Ok(());
            }
        };
        if let Entry::Vacant(new) = self.threads.entry(thread) {
            new.insert(Thread::default());
            self.launched.family.add(thread as u32);
        }
        match self.stopped(thread, signal, event) {
            // It was killed meanwhile: its end is told next.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            result => result,
        }
    }

    fn gone(&mut self, thread: i32, status: ExitStatus) {
        if let Some(pending) = self.threads.remove(&thread).and_then(|thread| thread.pending) {
            self.watch.leave(pending, None);
        }
        self.launched.family.remove(thread as u32);
        self.watch.gone(thread as u32);
        if thread == self.launched.pid {
            self.launched.family.program_ended();
            self.ended = Some(status);
        }
    }

    fn stopped(&mut self, thread: i32, signal: i32, event: i32) -> io::Result<()> {
        match event {
            0 if signal == AT_CALL => self.at_call(thread)?,
            // It is on its way to the program.
            0 => return self.resume(thread, signal),
            libc::PTRACE_EVENT_SECCOMP if self.is_new(thread) => self.at_call(thread)?,
            libc::PTRACE_EVENT_EXEC => self.executed(thread)?,
            libc::PTRACE_EVENT_STOP if is_job_control(signal) => {
                // It stays stopped until it is continued, as without us.
                return Tracee(thread).listen();
            }
            _ => {}
        }
        self.resume(thread, 0)
    }

    /// Whether a call is not known yet: where every call stops, it may have been made before that.
    fn is_new(&self, thread: i32) -> bool {
        self.threads.get(&thread).is_none_or(|known| known.pending.is_none())
    }

    /// From now on all calls of all threads stop: those that run are resumed in the other way.
    fn stop_at_every_call(&mut self) {
        if std::mem::replace(&mut self.every_call, true) {
            return;
        }
        for thread in self.threads.keys() {
            // One that has ended meanwhile makes no call.
            let _ = Tracee(*thread).interrupt();
        }
    }

    fn resume(&mut self, thread: i32, signal: i32) -> io::Result<()> {
        let is_in_call = self.threads.get(&thread).is_some_and(|t| t.pending.is_some());
        let how = match is_in_call || self.every_call {
            true => Resume::ToCall,
            false => Resume::Freely,
        };
        Tracee(thread).resume(how, signal)
    }

    /// A call is made, or returns.
    fn at_call(&mut self, thread: i32) -> io::Result<()> {
        let stop = Tracee(thread).call_stop()?;
        let Some(known) = self.threads.get_mut(&thread) else { return Ok(()) };
        match stop {
            CallStop::Enter { arch, .. } if arch != ARCHITECTURE => {}
            CallStop::Enter { call, args, .. } if call == libc::SYS_seccomp as u64 => {
                if installs_listener(&args) {
                    self.stop_at_every_call();
                }
            }
            CallStop::Enter { call, args, .. } => {
                let caller = Caller { thread: thread as u32, call: call as i64, args };
                known.pending = self.watch.enter(&caller);
            }
            CallStop::Return(result) => {
                if let Some(pending) = known.pending.take() {
                    self.watch.leave(pending, Some(result));
                }
            }
            CallStop::Elsewhere => {}
        }
        Ok(())
    }

    /// A program was begun: of the threads of the process one is left, under its number.
    fn executed(&mut self, thread: i32) -> io::Result<()> {
        let before = Tracee(thread).event_message()?;
        // Nothing else that they were in returns: what does next is `execve`.
        for of in [before as i32, thread] {
            if let Some(pending) = self.threads.get_mut(&of).and_then(|known| known.pending.take())
            {
                self.watch.leave(pending, None);
            }
        }
        if before as i32 != thread {
            self.threads.remove(&(before as i32));
            self.launched.family.remove(before as u32);
        }
        self.watch.gone(before as u32);
        self.watch.gone(thread as u32);
        self.watch.executed(thread as u32);
        Ok(())
    }
}

/// Whether a call of `seccomp` makes a filter that others answer to.
fn installs_listener(args: &[u64; 6]) -> bool {
    args[0] == u64::from(libc::SECCOMP_SET_MODE_FILTER)
        && args[1] & libc::SECCOMP_FILTER_FLAG_NEW_LISTENER != 0
}

fn is_job_control(signal: i32) -> bool {
    matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU)
}

/// `AUDIT_ARCH_*` of this build.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
