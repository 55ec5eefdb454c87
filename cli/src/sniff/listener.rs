//! By seccomp user notification, where nobody may be traced: calls are seen when they are made, and the
//! real kernel makes them. What comes of them is not known.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::ExitStatus;

use nvabi_supervise::{
    self as supervise, Listener, Next, Notification, open_process, wait_for_end,
};

use super::filter;
use super::launch::Launched;
use super::watch::{Caller, Watch};

/// Which filters can be had here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Support {
    /// Those with a listener.
    Given,
    /// There is one already, whose filter comes before ours.
    Taken,
    /// Those without a listener.
    Plain,
    /// None.
    Refused,
}

/// Tries it in a child: a filter cannot be got rid of.
pub(super) fn support() -> io::Result<Support> {
    // `BPF_RET | BPF_K`: all is allowed.
    let allow = [seccompiler::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW }];
    // SAFETY: other threads are not in the child, which may hold locks for ever: it makes system calls alone,
    // until it ends.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            let result = filter::install(&allow, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
            let code = match result {
                0.. => 0,
                error if error == -i64::from(libc::EBUSY) => 1,
                _ if filter::install(&allow, 0) >= 0 => 2,
                _ => 3,
            };
            // SAFETY: it ends the process, without what `exit` runs, and returns nowhere.
            unsafe { libc::_exit(code) }
        }
        _ => {}
    }
    Ok(match wait_for_end(pid)?.code() {
        Some(0) => Support::Given,
        Some(1) => Support::Taken,
        Some(2) => Support::Plain,
        _ => Support::Refused,
    })
}

/// Watches a program and all that comes of it until none is left; how the program ended.
pub(super) fn follow(
    launched: Launched,
    listener: OwnedFd,
    watch: &mut dyn Watch,
) -> io::Result<(Launched, ExitStatus)> {
    let listener = Listener::new(listener)?;
    let program = open_process(launched.pid as u32)?;
    let mut ended = None;
    loop {
        let program = if ended.is_none() { program.as_raw_fd() } else { -1 };
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut polls = [entry(listener.as_raw_fd()), entry(program)];
        // SAFETY: the kernel reads and writes as many entries as it is told: the two that are here.
        if unsafe { libc::poll(polls.as_mut_ptr(), 2, -1) } < 0 {
            match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => continue,
                error => return Err(error),
            }
        }
        if polls[0].revents & libc::POLLIN != 0 {
            // The caller may have been killed, or its call interrupted, before we look.
            if let Next::Call(call) = listener.next(false)? {
                one(&listener, &call, &launched, watch);
            }
        } else if polls[1].revents != 0 {
            ended = Some(wait_for_end(launched.pid)?);
            launched.family.program_ended();
        } else if let (true, Some(ended)) = (polls[0].revents != 0, ended) {
            return Ok((launched, ended));
        } else if polls[0].revents != 0 {
            // All are ending, and the program's end is told next.
            ended = Some(wait_for_end(launched.pid)?);
            launched.family.program_ended();
        }
    }
}

/// One call: looked at, and let go.
fn one(listener: &Listener, call: &Notification, launched: &Launched, watch: &mut dyn Watch) {
    let thread = call.thread;
    // Opened while the caller waits, or else dropped below: so it is of no stranger.
    let process = launched.family.is_new(thread).then(|| process_of(thread)).flatten();
    let pending = watch.enter(&Caller { thread, call: call.call, args: call.args });
    let is_valid = listener.is_valid(call);
    if let (true, Some(process)) = (is_valid, process) {
        launched.family.keep(thread, process);
    }
    // What was read is the caller's only if it still waits.
    if let (true, Some(pending)) = (is_valid, pending) {
        watch.leave(pending, None);
    }
    listener.pass(call);
    watch.settle();
}

/// The process that a thread is of: none where it cannot be had.
fn process_of(thread: u32) -> Option<OwnedFd> {
    let first = open_process(thread);
    first.or_else(|_| open_process(supervise::process_of(thread)?)).ok()
}
