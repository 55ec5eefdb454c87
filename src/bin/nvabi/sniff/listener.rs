//! By seccomp user notification, where nobody may be traced: calls are seen when they are made, and the
//! real kernel makes them. What comes of them is not known.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::ExitStatus;

use super::filter;
use super::launch::{self, Launched};
use super::target;
use super::watch::{Caller, Watch};

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`: whoever waits runs on the processor of who wakes it.
const SYNC_WAKE_UP: u64 = 1;

/// Whether a filter with a listener can be had here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Support {
    /// It can.
    Given,
    /// There is one already, whose filter comes before ours.
    Taken,
    /// It cannot.
    Refused,
}

/// Tries it in a child: a filter cannot be got rid of.
pub(super) fn support() -> io::Result<Support> {
    // `BPF_RET | BPF_K`: all is allowed.
    let allow = seccompiler::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
    // SAFETY: the child makes system calls and nothing else.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            let result = filter::install(&[allow], libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
            let code = match result {
                0.. => 0,
                error if error == -i64::from(libc::EBUSY) => 1,
                _ => 2,
            };
            // SAFETY: a plain number.
            unsafe { libc::_exit(code) }
        }
        _ => {}
    }
    Ok(match launch::wait(pid)?.code() {
        Some(0) => Support::Given,
        Some(1) => Support::Taken,
        _ => Support::Refused,
    })
}

/// Watches a program and all that comes of it until none is left; how the program ended.
pub(super) fn follow(
    launched: Launched,
    listener: OwnedFd,
    watch: &mut dyn Watch,
) -> io::Result<(Launched, ExitStatus)> {
    // Kernels before 6.6 do not have it; they are slower, and that is all.
    // SAFETY: a plain number.
    unsafe {
        let set = libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS;
        libc::ioctl(listener.as_raw_fd(), set as _, SYNC_WAKE_UP);
    }
    let program = open_process(launched.pid)?;
    let mut ended = None;
    loop {
        let program = if ended.is_none() { program.as_raw_fd() } else { -1 };
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut polls = [entry(listener.as_raw_fd()), entry(program)];
        // SAFETY: two entries.
        if unsafe { libc::poll(polls.as_mut_ptr(), 2, -1) } < 0 {
            match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => continue,
                error => return Err(error),
            }
        }
        if polls[0].revents & libc::POLLIN != 0 {
            one(&listener, &launched, watch)?;
        } else if polls[1].revents != 0 {
            ended = Some(launch::wait(launched.pid)?);
            launched.family.program_ended();
        } else if let (true, Some(ended)) = (polls[0].revents != 0, ended) {
            return Ok((launched, ended));
        } else if polls[0].revents != 0 {
            // All are ending, and the program's end is told next.
            ended = Some(launch::wait(launched.pid)?);
            launched.family.program_ended();
        }
    }
}

/// One call: looked at, and let go.
fn one(listener: &OwnedFd, launched: &Launched, watch: &mut dyn Watch) -> io::Result<()> {
    // SAFETY: zeros are a value of it, and what the kernel wants.
    let mut raw: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    let receive = libc::SECCOMP_IOCTL_NOTIF_RECV;
    // SAFETY: the kernel writes one such struct.
    if unsafe { libc::ioctl(listener.as_raw_fd(), receive as _, &mut raw) } < 0 {
        return match io::Error::last_os_error() {
            // The caller was killed, or its call interrupted, before we looked.
            error if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => Ok(()),
            error => Err(error),
        };
    }
    // Opened while the caller waits, or else dropped below: so it is of no stranger.
    let process = launched.family.is_new(raw.pid).then(|| process_of(raw.pid)).flatten();
    let caller = Caller { thread: raw.pid, call: raw.data.nr.into(), args: raw.data.args };
    let pending = watch.enter(&caller);
    // SAFETY: the kernel reads one number.
    let is_valid = unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID as _, &raw.id) == 0
    };
    if let (true, Some(process)) = (is_valid, process) {
        launched.family.keep(raw.pid, process);
    }
    // What was read is the caller's only if it still waits.
    if let (true, Some(pending)) = (is_valid, pending) {
        watch.leave(pending, None);
    }
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    let response = libc::seccomp_notif_resp { id: raw.id, val: 0, error: 0, flags };
    // SAFETY: the kernel reads one such struct. A caller that is gone needs no answer.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND as _, &response) };
    watch.settle();
    Ok(())
}

/// The process that a thread is of: none where it cannot be had.
fn process_of(thread: u32) -> Option<OwnedFd> {
    let first = open_process(thread as libc::pid_t);
    first.or_else(|_| open_process(target::process(thread)? as libc::pid_t)).ok()
}

/// A descriptor that becomes readable when a process ends.
fn open_process(pid: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers, and the descriptor is ours.
    unsafe {
        match libc::syscall(libc::SYS_pidfd_open, pid, 0) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd as i32)),
        }
    }
}
