//! The program: begun under a filter, told of signals, ended with us.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsString};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvabi_supervise::{peek_byte, receive_descriptor, send_descriptor, wait_for_end};
use seccompiler::sock_filter;

use super::filter;

/// Signals by which people and systems ask us to end.
const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];
/// Of a signal that no process has sent: a terminal did, to the program as well.
const SI_KERNEL: i32 = 0x80;

/// A program that waits to be let go.
pub(super) struct Launched {
    pub(super) pid: libc::pid_t,
    socket: UnixStream,
    pub(super) family: Family,
}

/// What went wrong in the child before the program began.
#[derive(Debug)]
pub(super) enum Unbegun {
    /// The filter was refused.
    Filter(io::Error),
    /// The program cannot be executed.
    Exec(io::Error),
}

/// How the child is to begin.
#[derive(Clone, Copy)]
pub(super) enum Under {
    /// With a tracer, and a filter that stops what it is to see.
    Tracer,
    /// With a tracer that stops every call.
    Nothing,
    /// With a listener, which comes over the socket.
    Listener,
}

/// The program and all that comes of it, for whoever has to end them.
#[derive(Clone, Default)]
pub(super) struct Family(Arc<Mutex<Members>>);

#[derive(Default)]
struct Members {
    program: libc::pid_t,
    has_ended: bool,
    /// Threads that we alone wait for: their numbers stay theirs until then.
    traced: BTreeSet<u32>,
    /// Processes of other threads, whose numbers may be a stranger's later.
    seen: BTreeMap<u32, OwnedFd>,
    /// As many of these are kept before those that have ended are looked for.
    room: usize,
}

/// Processes that are kept at least.
const MIN_SEEN: usize = 64;

impl Family {
    fn members(&self) -> MutexGuard<'_, Members> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread that is traced.
    pub(super) fn add(&self, thread: u32) {
        self.members().traced.insert(thread);
    }

    pub(super) fn remove(&self, thread: u32) {
        self.members().traced.remove(&thread);
    }

    /// Whether nothing is kept of a thread, or what is kept has ended and the number is another's.
    pub(super) fn is_new(&self, thread: u32) -> bool {
        self.members().seen.get(&thread).is_none_or(has_ended)
    }

    /// The process of a thread that nobody traces.
    pub(super) fn keep(&self, thread: u32, process: OwnedFd) {
        let mut members = self.members();
        if members.seen.len() >= members.room {
            members.seen.retain(|_, process| !has_ended(process));
            members.room = MIN_SEEN.max(2 * members.seen.len());
        }
        members.seen.insert(thread, process);
    }

    /// Its number may be another's from now on.
    pub(super) fn program_ended(&self) {
        self.members().has_ended = true;
    }

    /// To the program; when it has ended, what it left is ended.
    fn signal(&self, signal: i32) {
        let members = self.members();
        // SAFETY: `kill` takes numbers alone, of processes that only we wait for, so that no other has them;
        // `pidfd_send_signal` takes a descriptor that is open, a null that asks for no `siginfo_t` to be read,
        // and numbers.
        unsafe {
            if !members.has_ended {
                libc::kill(members.program, signal);
                return;
            }
            for thread in &members.traced {
                libc::kill(*thread as libc::pid_t, libc::SIGKILL);
            }
            for process in members.seen.values() {
                let (fd, none) = (process.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
                libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, none, 0);
            }
        }
    }
}

/// Whether a process has ended, by its descriptor.
fn has_ended(process: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the kernel reads and writes as many entries as it is told: the one that is here.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}

/// Forks a child that waits for [`Launched::go`], and passes it the signals that were kept.
pub(super) fn launch(
    command: &[OsString],
    kept: &Kept,
    ioctls: filter::Ioctls,
) -> io::Result<Launched> {
    let tracer = filter::program(libc::SECCOMP_RET_TRACE, ioctls)?;
    let listener = filter::program(libc::SECCOMP_RET_USER_NOTIF, ioctls)?;
    let strings: Result<Vec<CString>, _> =
        command.iter().map(|part| CString::new(part.as_bytes())).collect();
    let strings = strings?;
    let mut arguments: Vec<*const libc::c_char> =
        strings.iter().map(|part| part.as_ptr()).collect();
    arguments.push(std::ptr::null());
    let (ours, theirs) = UnixStream::pair()?;
    // SAFETY: other threads are not in the child, which may hold locks for ever: `child` makes system calls
    // alone, on memory that was made before, until it becomes another program or ends.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // Else it would wait for itself.
            drop(ours);
            child(theirs.as_raw_fd(), &kept.before, [&tracer, &listener], &arguments)
        }
        _ => {
            let family = Family::default();
            family.members().program = pid;
            let told = family.clone();
            std::thread::Builder::new().name("signals".to_owned()).spawn(move || pass_on(&told))?;
            Ok(Launched { pid, socket: ours, family })
        }
    }
}

/// The signals that ask us to end are kept from this thread, and from those that it begins.
pub(super) struct Kept {
    /// What was kept before.
    before: libc::sigset_t,
}

impl Kept {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: both sets are local, and zeros are a value of a `sigset_t`, which is of integers.
        unsafe {
            let (ending, mut before) = (ending(), std::mem::zeroed());
            match libc::pthread_sigmask(libc::SIG_BLOCK, &ending, &mut before) {
                0 => Ok(Self { before }),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }
}

fn ending() -> libc::sigset_t {
    // SAFETY: zeros are a value of a `sigset_t`, which is of integers, and the functions change it alone.
    unsafe {
        let mut ending = std::mem::zeroed();
        libc::sigemptyset(&mut ending);
        for signal in ENDING {
            libc::sigaddset(&mut ending, signal);
        }
        ending
    }
}

/// Passes signals on until this process ends.
fn pass_on(family: &Family) {
    let ending = ending();
    loop {
        // SAFETY: zeros are a value of a `siginfo_t`, which is of integers and pointers that are not
        // followed; the kernel writes one, which is there.
        let (signal, info) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            (libc::sigwaitinfo(&ending, &mut info), info)
        };
        let of_terminal = info.si_code == SI_KERNEL && !family.members().has_ended;
        if signal > 0 && !of_terminal {
            family.signal(signal);
        }
    }
}

/// The child: waits to be told what to begin under, and becomes the program.
fn child(
    socket: RawFd,
    mask: &libc::sigset_t,
    [tracer, listener]: [&[sock_filter]; 2],
    arguments: &[*const libc::c_char],
) -> ! {
    let mut under = 0_u8;
    // SAFETY: the calls read and write `mask`, `under` and `arguments`, which are here: `arguments` ends with
    // a null, and each before it points to text that ends with a zero byte and is kept by `launch`. `socket`
    // is open for as long as the child runs this. `errno` is this thread's own.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut());
        // Rust ignores it for itself, which `exec` would hand on.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        // Who watches alone can let calls go on.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::read(socket, (&raw mut under).cast(), 1) != 1 {
            libc::_exit(127);
        }
        let installed = match under {
            b'l' => {
                let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER
                    | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
                match filter::install(listener, flags) {
                    fd if fd >= 0 => send(BorrowedFd::borrow_raw(socket), fd as RawFd),
                    error => error,
                }
            }
            b't' => filter::install(tracer, 0),
            _ => 0,
        };
        if installed < 0 {
            fail(socket, b'f', -installed as i32);
        }
        libc::execvp(arguments[0], arguments.as_ptr());
        fail(socket, b'x', *libc::__errno_location())
    }
}

/// The byte that a listener is sent beside.
const WITH_LISTENER: u8 = b'l';

/// Sends a listener, and closes it here: 0, or a negative error.
///
/// # Safety
///
/// The descriptor is nobody's.
unsafe fn send(socket: BorrowedFd<'_>, listener: RawFd) -> i64 {
    // SAFETY: the descriptor was made for this and nothing else owns it, by this function's contract: it may be
    // closed here.
    let listener = unsafe { OwnedFd::from_raw_fd(listener) };
    match send_descriptor(socket, WITH_LISTENER, listener.as_fd()) {
        Ok(()) => 0,
        Err(error) => -i64::from(error.raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// Says why nothing begins.
fn fail(socket: RawFd, what: u8, errno: i32) -> ! {
    let mut message = [what, 0, 0, 0, 0];
    message[1..].copy_from_slice(&errno.to_le_bytes());
    // SAFETY: `write` reads as many bytes as it is told, which is as many as there are; `_exit` ends the
    // process and returns nowhere.
    unsafe {
        libc::write(socket, message.as_ptr().cast(), message.len());
        libc::_exit(127)
    }
}

impl Launched {
    /// Lets the child go on; with a listener returns that.
    pub(super) fn go(&mut self, under: Under) -> io::Result<Option<OwnedFd>> {
        let word = match under {
            Under::Tracer => b"t",
            Under::Nothing => b"n",
            Under::Listener => b"l",
        };
        self.socket.write_all(word)?;
        match under {
            Under::Tracer | Under::Nothing => Ok(None),
            Under::Listener => self.receive(),
        }
    }

    /// Receives the listener; none where the child says that it has none.
    fn receive(&self) -> io::Result<Option<OwnedFd>> {
        // Why it has none stays in the socket.
        if peek_byte(self.socket.as_fd())? != Some(WITH_LISTENER) {
            return Ok(None);
        }
        receive_descriptor(self.socket.as_fd()).map(|(_, listener)| Some(listener))
    }

    /// Why the program did not begin, if so: to be asked once it runs or has ended.
    pub(super) fn unbegun(&mut self) -> Option<Unbegun> {
        let mut message = [0; 5];
        self.socket.read_exact(&mut message).ok()?;
        let [what, errno @ ..] = message;
        let error = io::Error::from_raw_os_error(i32::from_le_bytes(errno));
        Some(if what == b'f' { Unbegun::Filter(error) } else { Unbegun::Exec(error) })
    }

    /// Waits for a child that is not to begin.
    pub(super) fn drop_child(self) {
        drop(self.socket);
        let _ = wait_for_end(self.pid);
    }
}
