//! The process between the supervisor and the program: when the supervisor ends, however that comes, it ends all
//! that the program has made.
//!
//! It is the program's parent, and orphans become its children (`PR_SET_CHILD_SUBREAPER`), so none of them can get
//! away. It has no files but the socket on which the supervisor is heard: that the socket is closed is how the end of
//! the supervisor is seen.
//!
//! All of this runs after a `fork` of a process with threads: it makes system calls and nothing else, on memory of its
//! own stack.

use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;

use nvabi_supervise::check;

/// The signal that the supervisor asks for to have everything ended, while it goes on to answer calls. Any other is
/// sent once, to all that are there.
pub(super) const END_ALL: i32 = libc::SIGKILL;

/// Milliseconds between two looks at whether all have ended.
const PAUSE: i32 = 5;

/// So many looks, when the supervisor has ended: what does not end by then waits for a device and cannot.
const LOOKS: u32 = 2000;

/// What the keeper and the program need of the supervisor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Files {
    /// The keeper's end of the socket to the supervisor.
    pub(super) control: RawFd,
    /// The program goes on when it can read a byte here, ...
    pub(super) go: RawFd,
    /// ... which the keeper writes here.
    pub(super) start: RawFd,
}

/// Becomes two processes: the keeper, for which this does not return, and the program, for which it does.
///
/// Between `fork` and `exec` this may be called.
pub(super) fn split(files: Files) -> io::Result<()> {
    // SAFETY: the calls take numbers alone. `fork` leaves the child a copy of this process with this thread, as the
    // `fork` before it did, and both go on with system calls alone.
    let (keeper, program) = unsafe {
        check(libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1))?;
        let keeper = libc::getpid();
        (keeper, check(libc::fork())?)
    };
    if program != 0 {
        keep(files, program);
    }
    end_with(keeper)?;
    // From then on no file of the supervisor is open in the keeper.
    let mut byte = [0_u8];
    // SAFETY: the kernel writes no more than the one byte that is there.
    match unsafe { libc::read(files.go, byte.as_mut_ptr().cast(), 1) } {
        1 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::ECANCELED)),
    }
}

/// Ends this process when its parent does, which alone can end what it will make.
fn end_with(parent: libc::pid_t) -> io::Result<()> {
    // SAFETY: both take numbers alone, and change no memory.
    unsafe {
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        if libc::getppid() == parent { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

/// The keeper's life. What fails here has nobody to be told, and nothing else to be tried.
fn keep(files: Files, program: libc::pid_t) -> ! {
    let children = prepare(files);
    send(files.control, program);
    let mut keeper = Keeper { control: files.control, program, has_ended: false };
    loop {
        if !keeper.reap() {
            exit();
        }
        let mut polls = [files.control, children].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        // SAFETY: the kernel reads and writes as many entries as it is told, which is as many as there are.
        unsafe { libc::poll(polls.as_mut_ptr(), 2, -1) };
        if polls[1].revents != 0 {
            let mut told = [0_u8; size_of::<libc::signalfd_siginfo>()];
            // SAFETY: the kernel writes no more bytes than it is told, which is the length of the array.
            unsafe { libc::read(children, told.as_mut_ptr().cast(), told.len()) };
        }
        if polls[0].revents != 0 {
            match receive(files.control) {
                Some(END_ALL) => keeper.end_all(u32::MAX),
                Some(signal) => signal_groups(signal),
                None => {
                    keeper.end_all(LOOKS);
                    exit();
                }
            }
        }
    }
}

/// Lets go of everything that is not the keeper's; returns what says that children have ended.
fn prepare(Files { control, start, .. }: Files) -> RawFd {
    // SAFETY: the calls take numbers, and local memory of the sizes that they expect; zeros are a value of a
    // `sigset_t`, which is of integers. No code of this process uses the files that are closed: it has none but this.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"nvabi-keeper".as_ptr());
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        // Children of who ignores it are not to be waited for.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let (low, high) = (control.min(start) as u32, control.max(start) as u32);
        for (first, last) in [(0, low.wrapping_sub(1)), (low + 1, high - 1), (high + 1, u32::MAX)] {
            if first <= last && last.wrapping_add(1) != first {
                libc::syscall(libc::SYS_close_range, first, last, 0);
            }
        }
        libc::chdir(c"/".as_ptr());
        libc::write(start, [1_u8].as_ptr().cast(), 1);
        libc::close(start);
        let mut ended: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut ended);
        libc::sigaddset(&mut ended, libc::SIGCHLD);
        libc::signalfd(-1, &ended, libc::SFD_NONBLOCK)
    }
}

/// Sends a number to the supervisor.
fn send(control: RawFd, number: libc::c_int) {
    let bytes = number.to_ne_bytes();
    // SAFETY: the kernel reads no more bytes than it is told, which is the length of the array.
    unsafe { libc::send(control, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
}

/// A signal that the supervisor asks for; none when it has ended.
fn receive(control: RawFd) -> Option<i32> {
    let mut byte = [0_u8];
    // SAFETY: the kernel writes no more than the one byte that is there.
    let read = unsafe { libc::recv(control, byte.as_mut_ptr().cast(), 1, libc::MSG_DONTWAIT) };
    (read == 1).then_some(i32::from(byte[0]))
}

fn exit() -> ! {
    // SAFETY: the process ends, and with it everything that it has.
    unsafe { libc::_exit(0) }
}

struct Keeper {
    control: RawFd,
    program: libc::pid_t,
    /// Whether the program has, and the supervisor was told.
    has_ended: bool,
}

impl Keeper {
    /// Waits for children that have ended; whether any is left.
    fn reap(&mut self) -> bool {
        loop {
            let mut status = 0;
            // SAFETY: the kernel writes one `int`, through a pointer to a local one.
            match unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::__WALL) } {
                0 => return true,
                -1 => return false,
                child if child == self.program && !self.has_ended => {
                    self.has_ended = true;
                    send(self.control, status);
                }
                _ => {}
            }
        }
    }

    /// Ends children, and those that they leave, until there are none.
    fn end_all(&mut self, looks: u32) {
        for _ in 0..looks {
            for_each_child(|child| {
                // SAFETY: it takes numbers alone, and the process is a child that was not waited for: its number
                // is its own.
                unsafe { libc::kill(child, libc::SIGKILL) };
            });
            if !self.reap() {
                return;
            }
            // SAFETY: there is no entry to read or write.
            unsafe { libc::poll(std::ptr::null_mut(), 0, PAUSE) };
        }
    }
}

/// Sends a signal to each child and to the group that it leads. Those that were stopped go on, to get it.
fn signal_groups(signal: i32) {
    for_each_child(|child| {
        // SAFETY: the calls take numbers alone, and the process is a child that was not waited for: its number is its
        // own, and so is that of its group.
        unsafe {
            if libc::kill(-child, signal) != 0 {
                libc::kill(child, signal);
            }
            libc::kill(-child, libc::SIGCONT);
            libc::kill(child, libc::SIGCONT);
        }
    });
}

/// All children.
fn for_each_child(mut each: impl FnMut(libc::pid_t)) {
    // SAFETY: it returns a number and has no effect.
    let own = unsafe { libc::getpid() };
    for_each_process(|process| {
        if parent_of(process) == Some(own) {
            each(process);
        }
    });
}

/// All processes, by the names in `/proc` that are numbers.
fn for_each_process(mut each: impl FnMut(libc::pid_t)) {
    let folder = open(c"/proc", libc::O_DIRECTORY);
    let mut bytes = [0_u8; 4096];
    loop {
        // SAFETY: the kernel writes no more bytes than it is told, which is the length of the array.
        let length =
            unsafe { libc::syscall(libc::SYS_getdents64, folder, bytes.as_mut_ptr(), bytes.len()) };
        let mut rest = usize::try_from(length).ok().and_then(|it| bytes.get(..it)).unwrap_or(&[]);
        if rest.is_empty() {
            break;
        }
        // `struct linux_dirent64`: the length is at 16, the name at 19.
        while let Some(length) = rest.get(16..18).map(|it| u16::from_ne_bytes([it[0], it[1]])) {
            let Some((entry, behind)) = rest.split_at_checked(usize::from(length).max(20)) else {
                break;
            };
            if let Some(process) =
                number(entry[19..].split(|byte| *byte == 0).next().unwrap_or(&[]))
            {
                each(process);
            }
            rest = behind;
        }
    }
    // SAFETY: the descriptor is this function's own.
    unsafe { libc::close(folder) };
}

/// The parent of a process, as `/proc` tells it.
fn parent_of(process: libc::pid_t) -> Option<libc::pid_t> {
    let mut path = *b"/proc/0000000000/stat\0";
    let mut rest = process;
    for digit in path[6..16].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    // Names of processes have no zeros before them.
    let skipped = path[6..15].iter().take_while(|digit| **digit == b'0').count();
    path.copy_within(6 + skipped.., 6);
    let file = open(CStr::from_bytes_until_nul(&path).ok()?, 0);
    let mut bytes = [0_u8; 512];
    // SAFETY: the kernel writes no more bytes than it is told, which is the length of the array; the descriptor is
    // this function's own.
    let length = unsafe {
        let length = libc::read(file, bytes.as_mut_ptr().cast(), bytes.len());
        libc::close(file);
        length
    };
    let text = bytes.get(..usize::try_from(length).ok()?)?;
    // Behind the name, which may hold anything, and its bracket: a space, the state, the parent.
    let behind = text.iter().rposition(|byte| *byte == b')')? + 1;
    number(text.get(behind..)?.split(|byte| *byte == b' ').nth(2)?)
}

fn open(path: &CStr, flags: libc::c_int) -> RawFd {
    // SAFETY: the path ends with a zero byte and outlives the call.
    unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC | flags) }
}

fn number(digits: &[u8]) -> Option<libc::pid_t> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        // SAFETY: it returns a number and has no effect.
        let own = unsafe { libc::getpid() };
        let mut found = Vec::new();
        for_each_process(|process| {
            if parent_of(process) == Some(own) {
                found.push(process as u32);
            }
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&child.id()), "{found:?}");
        assert!(!found.contains(&(own as u32)));
        assert_eq!(parent_of(1), Some(0));
    }
}
