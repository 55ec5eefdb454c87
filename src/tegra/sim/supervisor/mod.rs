//! The supervisor: stops system calls, asks the kernel, answers them.
//!
//! One thread answers calls, one those that are to take long, one watches the doorbells. Work that needs
//! nothing but its caller gets a thread of its own.

mod filter;
mod later;
mod notify;
mod paths;
mod poller;
mod program;
mod releases;
mod target;
mod trace;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::fault::{Effect, Faults};
use super::kernel::{Client, Errno, File, FileId, Kernel, Work};
use super::log::Log;
use super::memory::{Inode, check};
use super::{Options, Outcome, Release, limits};
use later::Later;
use notify::{Give, Listener, Next, Notification};
use paths::{Tree, Writer};
use poller::Doorbell;
use program::Signals;
use releases::Releases;
use target::{Target, Threads, mappings};

/// Runs a program and all that comes of it.
pub(super) fn run(command: &mut Command, options: &Options) -> io::Result<Outcome> {
    let (ours, theirs) = socket_pair()?;
    let (over, end) = socket_pair()?;
    let signals = if options.pass_signals { Some(Signals::keep()?) } else { None };
    let threads = Arc::new(Threads::default());
    let known = threads.clone();
    let faults = Faults::new(options.faults.clone())?;
    // It must be there before the child is: even one that cannot begin its program makes calls.
    let release = options.release;
    let served = thread::Builder::new().name("calls".to_owned()).spawn(move || {
        let served = attend(&ours, threads, release, faults);
        drop(end);
        served
    })?;
    let child = program::begin(command, theirs.as_raw_fd(), signals.as_ref());
    drop(theirs);
    let known_as = child.as_ref().map_or(0, Child::id);
    let status = child
        .map_err(explain)
        .and_then(|mut child| program::wait(&mut child, &over, signals.as_ref(), &known));
    let shared = served.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
    let (status, shared) = (status?, shared?);
    // That is how the filter ends a process whose calls it has no numbers of.
    if status.signal() == Some(libc::SIGSYS) {
        let text = "a system call of another architecture: 32-bit programs are not simulated";
        shared.kernel().log.diagnose(known_as, "other-architecture", text.to_owned());
    }
    Ok(Outcome { status, report: shared.finish() })
}

/// Serves a child that sends its listener, until nobody is left to be served.
fn attend(
    socket: &OwnedFd,
    threads: Arc<Threads>,
    release: Release,
    faults: Faults,
) -> io::Result<Arc<Shared>> {
    let shared = Arc::new(Shared::new(filter::receive(socket)?, threads, release, faults)?);
    let helpers = [
        spawn("doorbells", &shared, |shared| poller::watch(shared)),
        spawn("releases", &shared, |shared| shared.watch_releases()),
        spawn("time", &shared, Shared::watch_time),
    ];
    let is_complete = helpers.iter().all(Result::is_ok);
    let served = if is_complete { serve(&shared) } else { Err(io::ErrorKind::OutOfMemory.into()) };
    shared.is_over.store(true, Ordering::Release);
    shared.doorbell_mapped.notify_all();
    shared.later.stop();
    for thread in helpers.into_iter().flatten() {
        // A thread of ours that panicked has said so.
        let _ = thread.join();
    }
    served?;
    Ok(shared)
}

/// Whether a filter can be had: in a child, for it cannot be got rid of.
pub(super) fn check_support() -> io::Result<()> {
    let outcome = run(&mut Command::new("/bin/true"), &Options::default())?;
    if outcome.status.success() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, format!("/bin/true: {}", outcome.status)))
}

fn explain(error: io::Error) -> io::Error {
    if error.raw_os_error() != not_supported().raw_os_error() {
        return error;
    }
    let text = "this machine does not permit seccomp filters with user notification";
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// What a child says that cannot have its filter, as it can say no more than a number.
fn not_supported() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOTSUP)
}

fn spawn(
    name: &str,
    shared: &Arc<Shared>,
    body: fn(&Arc<Shared>),
) -> io::Result<thread::JoinHandle<()>> {
    let shared = shared.clone();
    thread::Builder::new().name(name.to_owned()).spawn(move || body(&shared))
}

fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: `ends` has room for both descriptors, which are ours afterwards.
    unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        check(libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()))?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Answers calls until nobody is left to make any.
fn serve(shared: &Arc<Shared>) -> io::Result<()> {
    /// Calls that are interrupted and made again come faster than they are answered.
    const MOST: usize = 256;
    let mut taken = VecDeque::new();
    loop {
        match shared.listener.next(taken.is_empty())? {
            // A call that was not taken yet is interrupted by signals: each is as soon as it can be.
            Next::Call(notification) => {
                taken.push_back(notification);
                if taken.len() < MOST {
                    continue;
                }
            }
            Next::Over if taken.is_empty() => return Ok(()),
            Next::Nothing | Next::Over => {}
        }
        if let Some(notification) = taken.pop_front() {
            let left = shared.dispatch(&notification, true);
            shared.see_to(notification, left);
        }
    }
}

/// Milliseconds that the last processes have to close their files.
const GRACE: u32 = 1000;

/// Everything that the threads of a run share.
pub(super) struct Shared {
    listener: Listener,
    releases: Releases,
    threads: Arc<Threads>,
    tree: Tree,
    kernel: Mutex<Kernel>,
    /// How many wait for the kernel.
    waiting: AtomicUsize,
    later: Later,
    writers: Mutex<Vec<Writer>>,
    doorbells: Mutex<Arc<Vec<Doorbell>>>,
    doorbell_mapped: Condvar,
    has_work: AtomicBool,
    is_over: AtomicBool,
}

/// What becomes of a call.
enum Reply {
    /// The real kernel makes it.
    Pass,
    /// The real kernel makes it, a mapping of some length that children do not get.
    PassUnshared(u64),
    /// This is its result.
    Answer(Result<i64, Errno>),
    /// This is its result, and the caller has closed a descriptor.
    AnswerClosed(Result<i64, Errno>, i32),
    /// This is its result, after a while.
    AnswerLater(Result<i64, Errno>, Duration),
    /// Its result comes of this.
    Work(String, Work),
    /// It was answered.
    Done,
}

/// What is left to do for a call.
enum Handled {
    Now,
    /// All of it: it was delayed by a fault.
    Later(Duration),
    /// To tell its result.
    AnswerLater(Result<i64, Errno>, Duration),
    /// What others need not wait for, and the name of the call.
    Work(String, Work),
}

impl Shared {
    fn new(
        listener: OwnedFd,
        threads: Arc<Threads>,
        release: Release,
        faults: Faults,
    ) -> io::Result<Self> {
        let log = Log::new(release, faults);
        Ok(Self {
            listener: Listener::new(listener),
            releases: Releases::new()?,
            threads,
            tree: Tree::new(release)?,
            kernel: Mutex::new(Kernel::new(release, log, limits::memory())),
            waiting: AtomicUsize::new(0),
            later: Later::default(),
            writers: Mutex::default(),
            doorbells: Mutex::default(),
            doorbell_mapped: Condvar::new(),
            has_work: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        })
    }

    fn kernel(&self) -> MutexGuard<'_, Kernel> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let kernel = self.kernel.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        kernel
    }

    /// Lets those go first that wait for the kernel: the lock alone is not fair.
    fn let_others(&self) {
        while self.waiting.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
    }

    fn writers(&self) -> MutexGuard<'_, Vec<Writer>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn has_work(&self) -> bool {
        self.has_work.load(Ordering::Acquire)
    }

    fn set_work(&self, has_work: bool) {
        self.has_work.store(has_work, Ordering::Release);
    }

    /// The doorbells that are mapped.
    fn doorbells(&self) -> Arc<Vec<Doorbell>> {
        self.doorbells.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn wait_for_doorbell(&self, time: Duration) {
        let doorbells = self.doorbells.lock().unwrap_or_else(PoisonError::into_inner);
        if doorbells.is_empty() {
            // Whether it was in time makes no difference: the caller looks again.
            drop(self.doorbell_mapped.wait_timeout(doorbells, time));
        }
    }

    fn update_doorbells(&self, kernel: &Kernel) {
        let all = Arc::new(Doorbell::all(kernel));
        *self.doorbells.lock().unwrap_or_else(PoisonError::into_inner) = all;
        self.doorbell_mapped.notify_all();
    }

    fn tick(&self, doorbells: &[Doorbell]) {
        let mut kernel = self.kernel();
        kernel.watch_rings();
        for memory in doorbells.iter().filter_map(Doorbell::memory) {
            kernel.tick(memory);
        }
    }

    /// Releases what was let go while nobody makes a call.
    fn watch_releases(&self) {
        while !self.is_over() {
            self.releases.wait(20);
            let mut kernel = self.kernel();
            let before = kernel.files().count();
            self.releases.settle(&mut kernel);
            self.settle_signals(&mut kernel);
            if kernel.files().count() != before {
                self.update_doorbells(&kernel);
                self.set_work(true);
            }
        }
    }

    /// Pipes that nobody has any more.
    fn settle_signals(&self, kernel: &mut Kernel) {
        let is_gone = |id: &FileId, kernel: &Kernel| {
            kernel.file(*id).is_some_and(|open| {
                matches!(open.file, File::Event | File::Fence { .. } | File::PollFd)
                    && !open.node.is_open()
            })
        };
        let all: Vec<FileId> = kernel.files().map(|(id, _)| id).collect();
        for id in all {
            if is_gone(&id, kernel) {
                kernel.release(id);
            }
        }
    }

    /// What is left to say when all processes have ended.
    fn finish(&self) -> super::Report {
        let mut kernel = self.kernel();
        // A process makes no more calls some time before its files are closed.
        for _ in 0..GRACE {
            self.releases.settle_all(&mut kernel);
            if kernel.files().next().is_none() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        let live = kernel.live_buffers();
        let log = std::mem::take(&mut kernel.log);
        super::Report { live_buffers: live, ..log.into_report() }
    }

    /// One call; when faults count, it may be one of them.
    fn dispatch(&self, n: &Notification, faults_count: bool) -> Handled {
        let thread = match self.threads.get(n.thread) {
            Ok(thread) => thread,
            Err(error) => {
                self.refuse(n, error.into());
                return Handled::Now;
            }
        };
        let target = Target::new(self, n, thread);
        let reply = match n.call {
            libc::SYS_ioctl => match self.ioctl(&target, n, faults_count) {
                Ok(reply) => reply,
                Err(time) => return Handled::Later(time),
            },
            libc::SYS_mmap => match self.mmap(&target, n, faults_count) {
                Ok(reply) => reply,
                Err(time) => return Handled::Later(time),
            },
            libc::SYS_exit_group => {
                self.record_exit(&target);
                Reply::Pass
            }
            _ => self.path_call(&target, n).unwrap_or(Reply::Pass),
        };
        match reply {
            Reply::Pass => self.listener.pass(n),
            Reply::PassUnshared(length) => trace::pass_unshared(&self.listener, n, length),
            Reply::Answer(result) => self.listener.answer(n, result),
            Reply::AnswerClosed(result, fd) => self.answer_closed(n, result, fd),
            Reply::AnswerLater(result, time) => return Handled::AnswerLater(result, time),
            Reply::Work(name, work) => return Handled::Work(name, work),
            Reply::Done => {}
        }
        Handled::Now
    }

    /// Answers a call that closes a descriptor of its caller.
    fn answer_closed(&self, n: &Notification, result: Result<i64, Errno>, fd: i32) {
        if trace::answer_closed(&self.listener, n, result, fd) {
            return;
        }
        // A debugger has it: at least the file goes.
        if let Ok(null) = std::fs::File::open("/dev/null") {
            let _ = self.listener.give(n, null.as_raw_fd(), Give::Replace(fd));
        }
        self.listener.answer(n, result);
    }

    /// What becomes of a call whose caller cannot be looked at: never the real kernel's, which would
    /// not know the file. One that has ended does not see the answer, and ending cannot be refused.
    fn refuse(&self, n: &Notification, errno: Errno) {
        if n.call == libc::SYS_exit_group {
            self.listener.pass(n);
        } else {
            self.listener.answer(n, Err(errno));
        }
    }

    /// An ioctl; the time that a fault delays it by, when it is to be made later.
    fn ioctl(
        &self,
        target: &Target<'_>,
        n: &Notification,
        faults_count: bool,
    ) -> Result<Reply, Duration> {
        let (fd, request, argument) = (n.args[0] as i32, n.args[1] as u32, n.args[2]);
        let Some(inode) = target.thread.inode(fd) else { return Ok(Reply::Pass) };
        if self.tree.is_name(inode) {
            return Ok(Reply::Answer(Err(Errno::EBADF)));
        }
        let mut kernel = self.kernel();
        let Some(file) = kernel.file_of(inode) else { return Ok(Reply::Pass) };
        self.releases.settle(&mut kernel);
        let name = kernel.log.name(request);
        if let Some(refused) = fault(&mut kernel, &name, faults_count)? {
            return Ok(refused);
        }
        let result = kernel.ioctl(target, file, request, argument);
        self.set_work(true);
        if let Some(work) = target.work.take() {
            return Ok(Reply::Work(name, work));
        }
        kernel.log.count(&name, result.err());
        Ok(match (target.closed.get(), target.delay.get()) {
            (Some(fd), _) => Reply::AnswerClosed(result, fd),
            (None, Duration::ZERO) => Reply::Answer(result),
            (None, time) => Reply::AnswerLater(result, time),
        })
    }

    fn mmap(
        &self,
        target: &Target<'_>,
        n: &Notification,
        faults_count: bool,
    ) -> Result<Reply, Duration> {
        let (length, fd, offset) = (n.args[1], n.args[4] as i32, n.args[5]);
        let Some(inode) = target.thread.inode(fd) else { return Ok(Reply::Pass) };
        let mut kernel = self.kernel();
        let Some(file) = kernel.file_of(inode) else { return Ok(Reply::Pass) };
        if length == 0 {
            return Ok(Reply::Answer(Err(Errno::EINVAL)));
        }
        if let Some(refused) = fault(&mut kernel, "mmap", faults_count)? {
            return Ok(refused);
        }
        self.forget_unmapped(&mut kernel, file, inode);
        if let Err(errno) = kernel.check_mmap(file, length, offset) {
            kernel.log.count("mmap", Some(errno));
            return Ok(Reply::Answer(Err(errno)));
        }
        kernel.log.count("mmap", None);
        if matches!(kernel.file(file).map(|open| open.file), Some(File::Ctrl(_))) {
            kernel.set_mapped_by(file, Some(target.process()));
            self.update_doorbells(&kernel);
        }
        Ok(Reply::PassUnshared(length))
    }

    /// Nobody tells of `munmap`: whether the doorbell is still mapped is looked at when it matters.
    fn forget_unmapped(&self, kernel: &mut Kernel, file: FileId, inode: Inode) {
        let process = kernel.file(file).and_then(|open| open.mapped_by);
        if process.is_some_and(|process| mappings(process, |number| number == inode.number()) == 0)
        {
            kernel.set_mapped_by(file, None);
        }
    }

    /// What a process has when it ends by itself.
    fn record_exit(&self, target: &Target<'_>) {
        let process = target.process();
        let mut kernel = self.kernel();
        self.releases.settle(&mut kernel);
        let mut kinds: std::collections::BTreeMap<&str, usize> = Default::default();
        let folder = format!("/proc/{process}/fd");
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Some(fd) = entry.file_name().to_str().and_then(|fd| fd.parse().ok()) else {
                continue;
            };
            let file = target.thread.inode(fd).and_then(|inode| kernel.file_of(inode));
            if let Some(open) = file.and_then(|file| kernel.file(file)) {
                *kinds.entry(open.file.kind()).or_default() += 1;
                *kinds.entry("GPU mapping").or_default() += kernel.mappings_of(open.file);
            }
        }
        *kinds.entry("nvmap handle").or_default() += kernel.handles_of(process);
        *kinds.entry("CPU mapping").or_default() += mappings(process, |_| true);
        for (kind, count) in kinds {
            kernel.log.leak(process, kind, count);
        }
    }
}

/// The answer that a fault makes of a call; the time that it delays it by as the error.
fn fault(kernel: &mut Kernel, name: &str, counts: bool) -> Result<Option<Reply>, Duration> {
    if !counts || !kernel.log.has_faults() {
        return Ok(None);
    }
    match kernel.log.fault(name) {
        Some(Effect::Delay(time)) => Err(time),
        Some(Effect::Fail(errno)) => {
            kernel.log.count(name, Some(errno));
            Ok(Some(Reply::Answer(Err(errno))))
        }
        None => Ok(None),
    }
}
