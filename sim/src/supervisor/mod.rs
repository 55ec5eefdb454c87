//! The supervisor: stops system calls, asks the machine, answers them.
//!
//! For each program one thread answers calls. For the machine one thread answers those that are to take long, and one
//! watches the doorbells. Work that needs nothing but its caller gets a thread of its own.

mod calls;
mod filter;
mod host;
mod keeper;
mod later;
mod links;
mod lists;
mod own;
mod paths;
mod poller;
mod program;
mod releases;
mod resolve;
mod target;
mod texts;
mod trace;
mod tree;
mod watches;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::Errno;
use super::client::{Client, Work};
use super::fault::{Effect, Refusal};
use super::log::RunId;
use super::machine::{Doorbell, EntryKind, Machine, MapCall, Mapping};
use super::memory::{Access, Node};
use super::patience::Patience;
pub use host::Running;
pub(super) use host::{Host, run};
use later::Later;
use links::Look;
use nvabi_supervise::{AddFd, Listener, Next, Notification};
use own::Own;
use paths::Again;
pub(super) use program::Begin;
pub use program::{Event, spawn};
use releases::Releases;
use target::{Target, Threads};
use texts::Writer;
use tree::Tree;
use watches::Watches;

/// The simulated kernel.
type AnyMachine = Box<dyn Machine>;

/// What a child says that cannot have its filter, as it can say no more than a number.
fn not_supported() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOTSUP)
}

/// Answers calls until nobody is left to make any.
fn serve(run: &Arc<Run>) -> io::Result<()> {
    /// Calls that are interrupted and made again come faster than they are answered.
    const MOST: usize = 256;
    let mut taken = VecDeque::new();
    loop {
        match run.listener.next(taken.is_empty())? {
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
            run.patience.settle();
            let left = run.dispatch(&notification, true, Look::AtOnce);
            run.see_to(notification, left);
        }
    }
}

/// Milliseconds that the last processes have to close their files.
const GRACE: u32 = 1000;

/// Calls by which a process can get a file system of its own.
const MOUNTS: [i64; 2] = [libc::SYS_mount, libc::SYS_fsopen];

/// The most descriptors of one poll that are looked at.
const MOST_POLLED: usize = 4096;

/// A program and all that comes of it: its calls come from one listener.
pub(super) struct Run {
    number: RunId,
    listener: Listener,
    shared: Arc<Shared>,
    /// Whether some process may answer faults of its memory itself, and so let others wait for it.
    faults_are_answered: AtomicBool,
    /// How long its processes may let others wait for their memory.
    patience: Arc<Patience>,
    /// Whether who begins the program goes on again.
    has_begun: Arc<AtomicBool>,
}

/// Everything that the runs on a machine share.
pub(super) struct Shared {
    releases: Releases,
    threads: Threads,
    tree: Mutex<Arc<Tree>>,
    own: Own,
    machine: Mutex<AnyMachine>,
    /// How many wait for the machine.
    waiting: AtomicUsize,
    later: Later,
    /// Whether some process may serve a file system, and so let others wait for its files.
    files_are_served: Arc<AtomicBool>,
    writers: Mutex<Vec<Writer>>,
    /// Whether a write to one of their files has not returned yet.
    writers_are_held: AtomicBool,
    doorbells: Mutex<Arc<Vec<Doorbell>>>,
    doorbell_mapped: Condvar,
    watches: Watches,
    has_work: AtomicBool,
    is_over: AtomicBool,
}

/// What becomes of a call.
enum Reply {
    /// The real kernel makes it.
    Pass,
    /// The real kernel makes it, a mapping that children do not get; whether a doorbell is in it.
    PassUnshared { has_doorbell: bool },
    /// It becomes the same mapping of another file, from an offset on.
    Map { node: Arc<Node>, offset: u64, has_doorbell: bool },
    /// This is its result.
    Answer(Result<i64, Errno>),
    /// This is its result, and the caller has closed a descriptor.
    AnswerClosed(Result<i64, Errno>, i32),
    /// This is its result, and the caller has gone to a place of an open file.
    AnswerMoved(i64, (i32, i64)),
    /// This is its result, after a while.
    AnswerLater(Result<i64, Errno>, Duration),
    /// Its result comes of this.
    Work(String, Work),
    /// The caller goes to this folder.
    Enter(OwnedFd),
    /// The caller makes the call by other paths.
    Again(Again),
    /// It was answered.
    Done,
}

/// What is left to do for a call.
enum Handled {
    Now,
    /// All of it: it was delayed by a fault.
    Later(Duration),
    /// All of it: its process is in a write before it.
    Held,
    /// To tell its result.
    AnswerLater(Result<i64, Errno>, Duration),
    /// What others need not wait for, and the name of the call.
    Work(String, Work),
    /// All of it, by a thread that may wait for the real machine's files.
    Elsewhere,
}

impl Shared {
    fn new(machine: AnyMachine) -> io::Result<Self> {
        let has_own = !machine.own_folder().is_empty();
        Ok(Self {
            releases: Releases::new()?,
            threads: Threads::default(),
            tree: Mutex::new(Arc::new(
                Tree::new(machine.entries())?.with_own(machine.own_folder()),
            )),
            own: if has_own { Own::new() } else { Own::default() },
            machine: Mutex::new(machine),
            waiting: AtomicUsize::new(0),
            later: Later::default(),
            files_are_served: Arc::default(),
            writers: Mutex::default(),
            writers_are_held: AtomicBool::new(false),
            doorbells: Mutex::default(),
            doorbell_mapped: Condvar::new(),
            watches: Watches::new(),
            has_work: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        })
    }

    pub(super) fn machine(&self) -> MutexGuard<'_, AnyMachine> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        machine
    }

    /// The paths as they are now.
    fn tree(&self) -> Arc<Tree> {
        Arc::clone(&self.tree.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// After a call that may have changed which files there are. Where there is no room for new ones, the old stay.
    fn renew_tree(&self, machine: &mut AnyMachine) {
        if machine.has_other_entries() {
            let mut tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
            match tree.changed(machine.entries()) {
                Ok(changed) => *tree = Arc::new(changed),
                Err(error) => machine.log().diagnose(0, "no-files", error.to_string()),
            }
        }
    }

    /// Lets those go first that wait for the machine: the lock alone is not fair.
    fn let_others(&self) {
        while self.is_awaited() {
            thread::sleep(Duration::from_micros(10));
        }
    }

    fn writers(&self) -> MutexGuard<'_, Vec<Writer>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// No program is left.
    fn stop(&self) {
        self.is_over.store(true, Ordering::Release);
        self.doorbell_mapped.notify_all();
        self.later.stop();
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

    fn update_doorbells(&self, machine: &dyn Machine) {
        let all = Arc::new(machine.doorbells());
        *self.doorbells.lock().unwrap_or_else(PoisonError::into_inner) = all;
        self.doorbell_mapped.notify_all();
    }

    /// What watches a mapping where a doorbell is in it.
    fn watches_if(&self, has_doorbell: bool) -> Option<&Watches> {
        has_doorbell.then_some(&self.watches)
    }

    fn tick(&self, doorbells: &[Doorbell]) {
        self.machine().tick(doorbells);
    }

    /// The same, where nobody has the machine; whether it was done.
    fn tick_at_once(&self, doorbells: &[Doorbell]) -> bool {
        let machine = self.machine.try_lock();
        machine.is_ok_and(|mut machine| {
            machine.tick(doorbells);
            true
        })
    }

    /// Whether somebody waits for the machine.
    fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Releases what was let go while nobody makes a call, and shows how time passes.
    fn watch_releases(&self) {
        while !self.is_over() {
            self.releases.wait(20);
            let mut machine = self.machine();
            let before = machine.files().len();
            // Those who were killed behind a write say nothing.
            self.settle_texts(&mut machine);
            if machine.files().len() != before {
                self.update_doorbells(&**machine);
                self.set_work(true);
            }
            machine.refresh();
        }
    }

    /// Releases everything when all processes have ended.
    fn release_all(&self) {
        let mut machine = self.machine();
        self.settle_texts(&mut machine);
        // A process makes no more calls some time before its files are closed.
        for _ in 0..GRACE {
            self.releases.settle_all(&mut **machine);
            if machine.files().is_empty() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Deref for Run {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Run {
    fn new(
        number: RunId,
        listener: OwnedFd,
        shared: Arc<Shared>,
        has_begun: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let listener = Listener::new(listener)?;
        let faults_are_answered = AtomicBool::new(false);
        let patience = Arc::new(Patience::new(shared.files_are_served.clone()));
        Ok(Self { number, listener, shared, faults_are_answered, patience, has_begun })
    }

    /// The machine, which records what happens as this run's.
    fn machine(&self) -> MutexGuard<'_, AnyMachine> {
        let mut machine = self.shared.machine();
        machine.log().switch(self.number);
        machine
    }

    fn faults_are_answered(&self) -> bool {
        self.faults_are_answered.load(Ordering::Acquire)
    }

    /// One call; when faults count, it may be one of them.
    fn dispatch(&self, n: &Notification, faults_count: bool, look: Look) -> Handled {
        let thread = match self.threads.get(n.thread) {
            Ok(thread) => thread,
            Err(error) => {
                self.refuse(n, error.into());
                return Handled::Now;
            }
        };
        if is_userfaultfd(n) {
            self.faults_are_answered.store(true, Ordering::Release);
        }
        let target = Target::new(self, n, thread, look);
        // Who ends before it has become a program must not wait for the machine.
        if !(n.call == libc::SYS_exit_group && self.is_not_begun(&target)) && self.is_held(n.thread)
        {
            return Handled::Held;
        }
        let reply = match n.call {
            libc::SYS_userfaultfd | libc::SYS_fsopen => Reply::Pass,
            call if calls::REFUSED.contains(&call) => Reply::Answer(Err(Errno::EPERM)),
            libc::SYS_ioctl => match self.ioctl(&target, n, faults_count) {
                Ok(reply) => reply,
                Err(time) => return Handled::Later(time),
            },
            libc::SYS_mmap => match self.mmap(&target, n, faults_count) {
                Ok(reply) => reply,
                Err(time) => return Handled::Later(time),
            },
            libc::SYS_exit_group => {
                if !self.is_not_begun(&target) {
                    // What it wrote last counts for who comes next, and as its own.
                    self.settle_texts();
                    self.record_exit(&target);
                }
                Reply::Pass
            }
            call if filter::POLLS.contains(&call) => {
                self.poll(&target, n);
                Reply::Pass
            }
            _ => self.path_call(&target, n).unwrap_or(Reply::Pass),
        };
        if target.must_wait.get() {
            return Handled::Elsewhere;
        }
        if MOUNTS.contains(&n.call) && matches!(reply, Reply::Pass | Reply::Again(_)) {
            self.files_are_served.store(true, Ordering::Release);
        }
        match reply {
            Reply::Pass => self.listener.pass(n),
            Reply::PassUnshared { has_doorbell } => {
                trace::pass_unshared(&self.listener, n, self.watches_if(has_doorbell));
            }
            Reply::Map { node, offset, has_doorbell } => {
                self.map(n, &node, offset, self.watches_if(has_doorbell));
            }
            Reply::Answer(result) => self.listener.answer(n, result),
            Reply::AnswerClosed(result, fd) => self.answer_closed(n, result, fd),
            Reply::AnswerMoved(result, place) => {
                // Who is not at the place when it asks again would be told the same for ever.
                if !trace::answer_moved(&self.listener, n, Ok(result), place) {
                    self.listener.answer(n, Err(Errno::EACCES));
                }
            }
            Reply::AnswerLater(result, time) => return Handled::AnswerLater(result, time),
            Reply::Work(name, work) => return Handled::Work(name, work),
            Reply::Enter(folder) => self.enter(n, &folder),
            Reply::Again(call) => {
                // A file that a program serves may wait, whatever kind it is of.
                let may_wait = self.files_are_served.load(Ordering::Acquire) || call.may_wait();
                if !trace::call_again(&self.listener, n, &call, may_wait) {
                    // As for a folder.
                    self.listener.answer(n, Err(Errno::EACCES));
                }
            }
            Reply::Done => {}
        }
        Handled::Now
    }

    /// Lets a caller map a file that it has no descriptor of.
    fn map(&self, n: &Notification, node: &Node, offset: u64, watches: Option<&Watches>) {
        let _forks = program::hold_forks();
        let file = match node.open(Access::Both) {
            Ok(file) => file,
            Err(error) => return self.listener.answer(n, Err(error.into())),
        };
        if trace::map_instead(&self.listener, n, (&file, offset), watches) {
            return;
        }
        // A debugger has it: what it maps becomes the other file, which it can map from the beginning.
        let given = match offset {
            0 => self.listener.add_fd(n, file.as_fd(), AddFd::Replace(n.args[4] as i32)),
            _ => Err(Errno::EPERM),
        };
        match given {
            Ok(_) => self.listener.pass(n),
            Err(errno) => self.listener.answer(n, Err(errno)),
        }
    }

    /// Lets a caller go to a folder that has no path.
    fn enter(&self, n: &Notification, folder: &OwnedFd) {
        if !trace::enter(&self.listener, n, folder) {
            // A debugger has it, and only a process itself can go anywhere.
            self.listener.answer(n, Err(Errno::EACCES));
        }
    }

    /// Answers a call that closes a descriptor of its caller.
    fn answer_closed(&self, n: &Notification, result: Result<i64, Errno>, fd: i32) {
        if trace::answer_closed(&self.listener, n, result, fd) {
            return;
        }
        // A debugger has it: at least the file goes.
        if let Ok(null) = std::fs::File::open("/dev/null") {
            let _ = self.listener.add_fd(n, null.as_fd(), AddFd::Replace(fd));
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
        if self.tree().meaning(inode).is_some_and(|(_, kind)| kind != EntryKind::Folder) {
            return Ok(Reply::Answer(Err(Errno::EBADF)));
        }
        self.settle_texts();
        let mut machine = self.machine();
        let Some(file) = machine.file_of(inode) else { return Ok(Reply::Pass) };
        if let Some(reply) = answered_for_any_file(target, request, argument) {
            return Ok(reply);
        }
        self.settle(&mut **machine);
        let name = machine.call_name(target, file, request, argument);
        let refusal = fault(&mut **machine, &name, faults_count)?;
        let answer = match refusal {
            Some(refusal) => machine.refuse(target, file, request, argument, refusal),
            None => {
                let answer = machine.ioctl(target, file, request, argument);
                self.renew_tree(&mut machine);
                if machine.may_have_work() {
                    self.set_work(true);
                }
                answer
            }
        };
        if let Some(work) = target.work.take() {
            return Ok(Reply::Work(name, work));
        }
        machine.log().count(&name, answer.failure().as_deref());
        let result = answer.result;
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
        let [address, length, protection, flags, fd, offset] = n.args;
        let (protection, flags) = (protection as i32, flags as i32);
        let call = MapCall { address, length, protection, flags, offset };
        let Some(inode) = target.thread.inode(fd as i32) else { return Ok(Reply::Pass) };
        let mut machine = self.machine();
        let Some(file) = machine.file_of(inode) else { return Ok(Reply::Pass) };
        if length == 0 {
            return Ok(Reply::Answer(Err(Errno::EINVAL)));
        }
        let mapped = match fault(&mut **machine, "mmap", faults_count)? {
            Some(Refusal::Errno(errno)) => Err(errno),
            Some(Refusal::Status(_)) => Err(Errno::EINVAL),
            None => machine.mmap(target, file, &call),
        };
        let failure = mapped.as_ref().err().map(Errno::to_string);
        machine.log().count("mmap", failure.as_deref());
        Ok(match mapped {
            Ok(Mapping::Own) => Reply::PassUnshared { has_doorbell: false },
            Ok(Mapping::Doorbell) => {
                self.update_doorbells(&**machine);
                Reply::PassUnshared { has_doorbell: true }
            }
            Ok(Mapping::Other { node, offset, has_doorbell }) => {
                if has_doorbell {
                    self.update_doorbells(&**machine);
                }
                Reply::Map { node, offset, has_doorbell }
            }
            Err(errno) => Reply::Answer(Err(errno)),
        })
    }

    /// The real kernel waits, and the machine gets to know what for.
    fn poll(&self, target: &Target<'_>, n: &Notification) {
        let mut machine = self.machine();
        if !machine.awaits_poll() {
            return;
        }
        self.settle(&mut **machine);
        let mut list = vec![0; (n.args[1] as usize).min(MOST_POLLED) * size_of::<libc::pollfd>()];
        let length = target.read(n.args[0], &mut list);
        for entry in list[..length].chunks_exact(size_of::<libc::pollfd>()) {
            let fd = i32::from_ne_bytes([entry[0], entry[1], entry[2], entry[3]]);
            let inode = if fd < 0 { None } else { target.thread.inode(fd) };
            if let Some(file) = inode.and_then(|inode| machine.file_of(inode)) {
                machine.polled(file);
            }
        }
    }

    /// Whether a process ends that could not become the program. Who begins it waits for that and keeps others from
    /// opening files meanwhile; these have the machine, so that it must not be waited for here.
    fn is_not_begun(&self, target: &Target<'_>) -> bool {
        let executable = |process: &str| std::fs::read_link(format!("/proc/{process}/exe")).ok();
        !self.has_begun.load(Ordering::Acquire)
            && executable(&target.process().to_string()) == executable("self")
    }

    /// What a process has when it ends by itself.
    fn record_exit(&self, target: &Target<'_>) {
        let process = target.process();
        let mut machine = self.machine();
        self.settle(&mut **machine);
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        let mut files = Vec::new();
        for entry in
            std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten()
        {
            let Some(fd) = entry.file_name().to_str().and_then(|fd| fd.parse().ok()) else {
                continue;
            };
            let file = target.thread.inode(fd).and_then(|inode| machine.file_of(inode));
            let Some((file, info)) = file.and_then(|file| Some((file, machine.file(file)?))) else {
                continue;
            };
            *kinds.entry(info.kind).or_default() += 1;
            files.push(file);
        }
        for (kind, count) in machine.held_by(process, &files) {
            *kinds.entry(kind).or_default() += count;
        }
        let mapped = self.mappings(process, |_| true).unwrap_or_default();
        *kinds.entry("CPU mapping").or_default() += mapped.len();
        for (kind, count) in kinds {
            machine.log().leak(process, kind, count);
        }
    }
}

/// Whether a call makes a `userfaultfd`: by its system call, or on `/dev/userfaultfd`.
fn is_userfaultfd(n: &Notification) -> bool {
    /// `USERFAULTFD_IOC_NEW`.
    const NEW: u32 = 0xAA00;
    n.call == libc::SYS_userfaultfd || n.call == libc::SYS_ioctl && n.args[1] as u32 == NEW
}

/// Requests that the kernel answers by itself, so that no driver sees them (`do_vfs_ioctl`, `fs/ioctl.c`).
fn answered_for_any_file(target: &Target<'_>, request: u32, argument: u64) -> Option<Reply> {
    const CLOSE_ON_EXEC: [u32; 2] = [libc::FIOCLEX as u32, libc::FIONCLEX as u32];
    const WAITS: u32 = libc::FIONBIO as u32;
    const SIGNALS: u32 = libc::FIOASYNC as u32;
    match request {
        // Of the descriptor alone.
        _ if CLOSE_ON_EXEC.contains(&request) => Some(Reply::Pass),
        WAITS | SIGNALS => {
            let mut is_on = [0; 4];
            let result = match target.read(argument, &mut is_on) {
                0..4 => Err(Errno::EFAULT),
                // No such file sends signals, and what stands for it never waits.
                _ if request == SIGNALS && is_on != [0; 4] => Err(Errno::ENOTTY),
                _ => Ok(0),
            };
            Some(Reply::Answer(result))
        }
        _ => None,
    }
}

/// What a fault makes of a call; the time that it delays it by as the error.
fn fault(machine: &mut dyn Machine, name: &str, counts: bool) -> Result<Option<Refusal>, Duration> {
    if !counts || !machine.log().has_faults() {
        return Ok(None);
    }
    match machine.log().fault(name) {
        Some(Effect::Delay(time)) => Err(time),
        Some(Effect::Fail(errno)) => Ok(Some(Refusal::Errno(errno))),
        Some(Effect::Refuse(status)) => Ok(Some(Refusal::Status(status))),
        None => Ok(None),
    }
}
