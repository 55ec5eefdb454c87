//! Logs of `strace -f`: every ioctl named by the node that it was made on.
//!
//! ```text
//! lines → line (taken apart) → fds (whose file is it) → catalog (what is asked of it) → report
//!                                                      └► phases → fold
//! ```
//!
//! This module reads from any [`BufRead`], keeps no line and opens no file. `value` shows the bytes
//! of one struct, and `sniff` names calls that were caught with their memory; they have nothing to do
//! with logs.
//!
//! # Whose request it is
//!
//! Letters of requests are shared, so a request is looked up on the node behind its file descriptor.
//! What that is, is told by the first of these that says it:
//!
//! 1. the path beside the number, with `-y`;
//! 2. the call that made the number (`openat`, `dup`, …), in the table of the process: threads share
//!    it, `fork` copies it, `execve` and `close` empty it;
//! 3. for what an ioctl opens, which strace does not show: the kernel gives out the lowest free
//!    number;
//! 4. where that was wrong, or the log lacks `close`: the latest fd that an ioctl opened, and that
//!    nothing was asked of yet, whose node knows the request;
//! 5. for a number from before the log, or one whose device knows no such request: the one node that knows the
//!    request, all 32 bits of it.
//!
//! The request of a 32-bit program is another where what it takes has another size there: see `narrow`.
//!
//! A call that failed with `ENOTTY` speaks for no node. What none of these tells is listed as unknown.

mod catalog;
mod fds;
mod fold;
mod line;
mod lines;
mod narrow;
mod phases;
mod processes;
mod report;
mod request;
pub mod sniff;
mod text;
pub mod value;
mod words;

use std::io::{self, BufRead};
use std::ops::ControlFlow;
use std::rc::Rc;

use rustc_hash::FxHashMap;

pub use catalog::{Catalog, NVKMS_ARGUMENT};
pub use report::{
    Called, Decoded, Device, Elsewhere, Errors, Phase, PhaseForm, Row, Step, Unknown, Unread,
};
pub use text::{call, text};

use catalog::NodeId;
use fds::{FileId, How, Slot};
use line::{Call, Event, Result as Ended};
use nvabi_pipeline::model::request_size;
use phases::{Happened, Phases};
use processes::{Forked, Pending, Pid, Processes};
use request::Said;

/// Files that have no path of interest.
const INHERITED: FileId = 0;
const UNKNOWN: FileId = 1;
/// Paths beyond this many are not told apart.
const FILES: usize = 1 << 16;

/// Decodes logs, one after the other.
pub struct Decoder<'c> {
    catalog: &'c Catalog,
    files: Vec<File>,
    by_path: FxHashMap<Box<[u8]>, FileId>,
    by_node: FxHashMap<NodeId, FileId>,
    words: FxHashMap<Box<[u8]>, u32>,
    named: Vec<(String, Rc<[u32]>)>,
    tallies: Vec<Tally>,
    at: FxHashMap<(FileId, Key), u32>,
    errnos: Vec<Box<str>>,
    symbols: Vec<Symbol>,
    symbol_at: FxHashMap<Symbol, u32>,
    phases: Vec<(Pid, Phases)>,
    unread: Unread,
    lines: u64,
    ioctls: u64,
    /// Of the log that is being read.
    log: Log,
}

/// What is known while one log is read.
#[derive(Debug, Default)]
struct Log {
    processes: Processes,
    phases_of: FxHashMap<u32, usize>,
    /// Without `close` a number may have been given out anew unseen.
    closes: bool,
    line: u64,
    objects: u32,
    lines: Lines,
}

/// What the lines of a log are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lines {
    /// System calls: those that end with a result, or go on in a later line.
    pub calls: u64,
    /// Signals, exits and what else strace writes beside calls.
    pub notes: u64,
    /// What is none of these.
    pub others: u64,
    /// The first of the others.
    pub first: Option<u64>,
}

impl Lines {
    /// Beside so many other lines one of a log is expected: a program may write among its calls.
    const OTHERS: u64 = 100;
    /// What cannot be a log after so many lines never becomes one.
    const ENOUGH: u64 = 1 << 16;

    /// Whether they can be a log of strace's. What a filter left nothing of has a process's end alone.
    pub fn are_log(&self) -> bool {
        self.calls + self.notes > 0 && self.others <= self.calls.saturating_mul(Self::OTHERS)
    }

    fn count(&mut self, event: &Event<'_>, line: u64) {
        match event {
            Event::Call(Call { result: Ended::Cut, .. }) | Event::Other(_) => {
                self.others += 1;
                self.first.get_or_insert(line);
            }
            Event::Call(_) | Event::Resumed { .. } => self.calls += 1,
            Event::Exit | Event::Attached { .. } | Event::Continued { .. } | Event::Note => {
                self.notes += 1;
            }
            Event::Blank => {}
        }
    }
}

/// Something that a file descriptor stands for.
#[derive(Debug)]
struct File {
    node: Option<NodeId>,
    /// The path, or what made it.
    path: Option<Box<str>>,
    opened: u64,
}

/// A request: its number, or strace's words where no number is known for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Number(u32),
    Words(u32),
}

/// What is folded into phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Symbol {
    Open(FileId),
    Call { node: NodeId, key: Key, failed: bool },
}

/// One request on one file.
#[derive(Debug)]
struct Tally {
    file: FileId,
    key: Key,
    /// What strace wrote the first time, if no number.
    words: Option<u32>,
    count: u64,
    guessed: u64,
    errors: Vec<(u32, u64)>,
    /// By how it ended: well, or failing.
    symbols: [Option<u32>; 2],
    stage: Option<u8>,
    opens: Vec<NodeId>,
}

/// What receives each call.
pub type OnCall<'a> = &'a mut dyn FnMut(&Called<'_>);

impl<'c> Decoder<'c> {
    /// A decoder that recognises what a catalog has.
    pub fn new(catalog: &'c Catalog) -> Self {
        let file = |path: Option<&str>| File { node: None, path: path.map(Into::into), opened: 0 };
        Self {
            catalog,
            files: vec![file(Some("(fds 0 to 2)")), file(None)],
            by_path: FxHashMap::default(),
            by_node: FxHashMap::default(),
            words: FxHashMap::default(),
            named: Vec::new(),
            tallies: Vec::new(),
            at: FxHashMap::default(),
            errnos: Vec::new(),
            symbols: Vec::new(),
            symbol_at: FxHashMap::default(),
            phases: Vec::new(),
            unread: Unread::default(),
            lines: 0,
            ioctls: 0,
            log: Log::default(),
        }
    }

    /// Reads a log to its end, or until it is plain that it is none; says what its lines were.
    pub fn read(&mut self, log: impl BufRead, on_call: Option<OnCall<'_>>) -> io::Result<Lines> {
        let mut on_call = on_call;
        self.log = Log::default();
        lines::each(log, |bytes| {
            self.log.line += 1;
            self.lines += 1;
            self.line(bytes, &mut on_call);
            match self.log.line % Lines::ENOUGH == 0 && !self.log.lines.are_log() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        for (pid, pending) in self.log.processes.end() {
            self.finish(pid, &pending, Ended::Cut, &mut on_call);
        }
        Ok(self.log.lines)
    }

    fn line(&mut self, bytes: &[u8], on_call: &mut Option<OnCall<'_>>) {
        let line = line::parse(bytes);
        self.log.lines.count(&line.event, self.log.line);
        if matches!(line.event, Event::Blank) {
            return;
        }
        if let Event::Other(text) = line.event {
            return self.unread(text);
        }
        let resumes_fork = matches!(line.event, Event::Resumed { name, .. } if forks(name));
        let pid = self.log.processes.pid(line.pid, resumes_fork, INHERITED);
        match line.event {
            Event::Call(call) => {
                self.lost(pid, on_call);
                match call.result {
                    Ended::Unfinished => self.begin(pid, call.name, call.args),
                    result => self.call(pid, self.log.line, call.name, call.args, result, on_call),
                }
            }
            Event::Resumed { name, rest, result } => self.resume(pid, name, rest, result, on_call),
            Event::Attached { pid: child, before } => self.attached(pid, child, before, on_call),
            Event::Continued { rest, result } => self.resume(pid, b"", rest, result, on_call),
            Event::Exit => {
                self.lost(pid, on_call);
                self.log.processes.exit(pid);
            }
            Event::Note | Event::Blank | Event::Other(_) => {}
        }
    }

    /// A line that is none of strace's: if there is an ioctl in it, it is not lost in silence.
    fn unread(&mut self, text: &[u8]) {
        self.unread.lines += 1;
        if self.unread.first.len() < report::FIRST_LINES {
            self.unread.first.push(self.log.line);
        }
        if memchr::memmem::find(text, b"ioctl(").is_some() {
            self.ioctls += 1;
            self.unread.ioctls += 1;
        }
    }

    /// A call whose end never came.
    fn lost(&mut self, pid: Pid, on_call: &mut Option<OnCall<'_>>) {
        if let Some(pending) = self.log.processes.take(pid) {
            self.finish(pid, &pending, Ended::Cut, on_call);
            self.log.processes.give_back(pid, pending);
        }
    }

    fn begin(&mut self, pid: Pid, name: &[u8], args: &[u8]) {
        if followed(name) {
            self.log.processes.begin(pid, self.log.line, name, args);
        }
    }

    fn resume(
        &mut self,
        pid: Pid,
        name: &[u8],
        rest: &[u8],
        result: Ended<'_>,
        on_call: &mut Option<OnCall<'_>>,
    ) {
        let Some(mut pending) = self.log.processes.take(pid) else {
            // Its beginning is not in the log, so nobody can say what was asked of whom.
            if name == b"ioctl" {
                self.ioctls += 1;
                self.cut();
            }
            return;
        };
        if !name.is_empty() && pending.name != name {
            self.finish(pid, &pending, Ended::Cut, on_call);
            self.log.processes.give_back(pid, pending);
            return self.resume(pid, name, rest, result, on_call);
        }
        pending.args.extend_from_slice(rest);
        match result {
            // The line was cut by another process first.
            Ended::Unfinished => return self.log.processes.keep(pid, pending),
            result => self.finish(pid, &pending, result, on_call),
        }
        self.log.processes.give_back(pid, pending);
    }

    fn finish(
        &mut self,
        pid: Pid,
        pending: &Pending,
        result: Ended<'_>,
        on_call: &mut Option<OnCall<'_>>,
    ) {
        self.call(pid, pending.line, &pending.name, &pending.args, result, on_call);
    }

    /// `strace: Process 12 attached`, in the middle of the call that made it or on its own.
    fn attached(&mut self, pid: Pid, child: u32, before: &[u8], on_call: &mut Option<OnCall<'_>>) {
        if let Event::Call(call) = line::parse(before).event {
            self.lost(pid, on_call);
            self.begin(pid, call.name, call.args);
        }
        self.log.processes.attached(pid, child);
    }

    fn call(
        &mut self,
        pid: Pid,
        line: u64,
        name: &[u8],
        args: &[u8],
        result: Ended<'_>,
        on_call: &mut Option<OnCall<'_>>,
    ) {
        if name == b"ioctl" {
            return self.ioctl(pid, line, args, result, on_call);
        }
        let Ended::Done { value, path } = result else { return };
        match name {
            b"close" => self.close(pid, args),
            b"open" | b"openat" | b"openat2" | b"creat" => {
                self.opened(pid, name, args, value, path)
            }
            b"dup" => self.dup(pid, args, value, false),
            b"dup2" | b"dup3" => self.dup(pid, args, value, true),
            b"fcntl" | b"fcntl64" => self.fcntl(pid, args, value),
            b"close_range" => self.close_range(pid, args),
            b"pipe" | b"pipe2" | b"socketpair" => self.pair(pid, name, args),
            b"recvmsg" => self.received(pid, args),
            b"execve" | b"execveat" => self.log.processes.exec(pid),
            b"unshare" if line::has_flag(args, b"CLONE_FILES", 0x400) => {
                self.log.processes.unshare(pid);
            }
            _ if forks(name) => {
                let shares = line::has_flag(args, b"CLONE_FILES", 0x400);
                let forked = if shares { Forked::Shared } else { Forked::Copied };
                self.log.processes.forked(pid, u32::try_from(value).unwrap_or(0), forked);
            }
            _ if makes_fd(name) => {
                let file = self.file(path.unwrap_or(name));
                let slot = self.slot(file, line::has_flag(args, b"CLOEXEC", 0x8_0000));
                self.log.processes.table(pid).give(value, slot, UNKNOWN);
            }
            _ => {}
        }
    }

    fn close(&mut self, pid: Pid, args: &[u8]) {
        self.log.closes = true;
        if let Some((fd, ..)) = line::fd(args) {
            self.log.processes.table(pid).close(fd);
        }
    }

    fn opened(&mut self, pid: Pid, name: &[u8], args: &[u8], fd: i64, path: Option<&[u8]>) {
        let quoted = line::quoted(args).map(|(path, _)| path);
        let Some(path) = path.or(quoted) else { return };
        let decoded = unescaped(path);
        let file = self.file(decoded.as_deref().unwrap_or(path));
        let slot =
            self.slot(file, name != b"creat" && line::has_flag(args, b"O_CLOEXEC", 0x8_0000));
        self.log.processes.table(pid).give(fd, slot, UNKNOWN);
        let Some(opened) = self.files.get_mut(file as usize) else { return };
        opened.opened += 1;
        if let Some(node) = opened.node {
            let symbol = self.symbol(Symbol::Open(file));
            let stage = self.stage_of_node(node);
            self.happened(pid, symbol, slot.object, true, stage);
        }
    }

    fn dup(&mut self, pid: Pid, args: &[u8], fd: i64, chosen: bool) {
        let from = line::fd(args).and_then(|(from, ..)| self.log.processes.table(pid).get(from));
        let slot = from.unwrap_or(Slot { file: UNKNOWN, object: 0, how: How::Gap, cloexec: false });
        let slot = Slot { cloexec: line::has_flag(args, b"O_CLOEXEC", 0x8_0000), ..slot };
        let table = self.log.processes.table(pid);
        match chosen {
            true => table.put(fd, slot),
            false => table.give(fd, slot, UNKNOWN),
        }
    }

    fn fcntl(&mut self, pid: Pid, args: &[u8], value: i64) {
        let Some((fd, _, rest)) = line::fd(args) else { return };
        let command = rest.strip_prefix(b", ").unwrap_or(rest);
        let table = self.log.processes.table(pid);
        if command.starts_with(b"F_DUPFD") || command.starts_with(b"0x406") {
            // The number is the lowest from one that was asked for, so it tells nothing of others.
            if let Some(slot) = table.get(fd) {
                let cloexec = command.starts_with(b"F_DUPFD_CLOEXEC");
                table.put(value, Slot { cloexec, ..slot });
            }
        } else if command.starts_with(b"F_SETFD") {
            table.set_cloexec(fd, memchr::memmem::find(command, b"FD_CLOEXEC").is_some());
        }
    }

    fn close_range(&mut self, pid: Pid, args: &[u8]) {
        let Some((first, rest)) = line::signed(args) else { return };
        let last = line::next(rest).and_then(line::leading).map_or(u64::MAX, |(last, _)| last);
        let later = line::has_flag(args, b"CLOSE_RANGE_CLOEXEC", 4);
        let last = i64::try_from(last).unwrap_or(i64::MAX);
        self.log.closes = true;
        self.log.processes.table(pid).close_range(first, last, later);
    }

    /// Two numbers in brackets: `pipe2([3, 4], O_CLOEXEC)`.
    fn pair(&mut self, pid: Pid, name: &[u8], args: &[u8]) {
        let file = self.file(name);
        let cloexec = line::has_flag(args, b"CLOEXEC", 0x8_0000);
        self.listed(pid, args, b"[", file, cloexec);
    }

    /// Files that came with a message: `cmsg_type=SCM_RIGHTS, cmsg_data=[5]`.
    fn received(&mut self, pid: Pid, args: &[u8]) {
        let Some(at) = memchr::memmem::find(args, b"SCM_RIGHTS") else { return };
        let cloexec = line::has_flag(args, b"CLOEXEC", 0x4000_0000);
        self.listed(pid, &args[at..], b"cmsg_data=[", UNKNOWN, cloexec);
    }

    fn listed(&mut self, pid: Pid, args: &[u8], open: &[u8], file: FileId, cloexec: bool) {
        let Some(at) = memchr::memmem::find(args, open) else { return };
        let mut rest = Some(&args[at + open.len()..]);
        while let Some((fd, path, after)) = rest.and_then(line::fd) {
            let file = path.map_or(file, |path| self.file(path));
            let slot = self.slot(file, cloexec);
            self.log.processes.table(pid).give(fd, slot, UNKNOWN);
            rest = after.strip_prefix(b", ");
        }
    }

    fn slot(&mut self, file: FileId, cloexec: bool) -> Slot {
        self.log.objects = self.log.objects.wrapping_add(1);
        Slot { file, object: self.log.objects, how: How::Seen, cloexec }
    }

    /// The file of a path; paths are told apart up to a number of them.
    fn file(&mut self, path: &[u8]) -> FileId {
        if let Some(file) = self.by_path.get(path) {
            return *file;
        }
        let node = self.catalog.node_of_path(path);
        if self.files.len() >= FILES && node.is_none() {
            return UNKNOWN;
        }
        let shown = String::from_utf8_lossy(path).into_owned();
        let file = self.add_file(node, Some(shown));
        self.by_path.insert(path.into(), file);
        file
    }

    fn add_file(&mut self, node: Option<NodeId>, path: Option<String>) -> FileId {
        self.files.push(File { node, path: path.map(String::into_boxed_str), opened: 0 });
        (self.files.len() - 1) as FileId
    }

    /// The file of what ioctls open: one for each kind.
    fn file_of_node(&mut self, node: NodeId) -> FileId {
        if let Some(file) = self.by_node.get(&node) {
            return *file;
        }
        let file = self.add_file(Some(node), None);
        self.by_node.insert(node, file);
        file
    }

    fn ioctl(
        &mut self,
        pid: Pid,
        line: u64,
        args: &[u8],
        result: Ended<'_>,
        on_call: &mut Option<OnCall<'_>>,
    ) {
        self.ioctls += 1;
        let Some((fd, path, said)) = asked(args, result) else { return self.cut() };
        let words = match said {
            Said::Words(words) => Some(self.word(words)),
            Said::Number(_) => None,
        };
        let number = match said {
            Said::Number(number) => [number],
            Said::Words(_) => [0],
        };
        let named = words.map(|at| Rc::clone(&self.named[at as usize].1));
        let numbers: &[u32] = named.as_deref().unwrap_or(&number);
        let refused = matches!(result, Ended::Failed(b"ENOTTY" | b"EBADF" | b"25" | b"9"));
        let slot = self.behind(pid, fd, path, numbers, refused);
        let node = self.files[slot.file as usize].node;
        let known =
            numbers.iter().find(|n| node.is_some_and(|id| self.catalog.known(id, **n).is_some()));
        let key = match (known.or(numbers.first()), words) {
            (Some(number), _) => Key::Number(*number),
            (None, words) => Key::Words(words.unwrap_or(0)),
        };
        let at = self.tally(slot.file, key, words);
        let opens = self.count(at, slot, result);
        if let Ended::Done { .. } = result {
            self.opens(pid, at);
        }
        let failed = matches!(result, Ended::Failed(_));
        // What any file may be asked is no step of a driver's.
        let is_drivers =
            known.is_some() || numbers.iter().all(|n| report::of_any_file(*n).is_none());
        if node.is_some() && is_drivers {
            let symbol = self.symbol_of(at, failed);
            let stage = self.tallies[at].stage.filter(|_| !failed);
            self.happened(pid, symbol, slot.object, opens, stage);
        }
        if let Some(on_call) = on_call {
            on_call(&self.called(pid, line, fd, slot, at, result));
        }
    }

    fn cut(&mut self) {
        self.unread.ioctls += 1;
        if self.unread.first.len() < report::FIRST_LINES {
            self.unread.first.push(self.log.line);
        }
    }

    fn word(&mut self, words: &[u8]) -> u32 {
        if let Some(at) = self.words.get(words) {
            return *at;
        }
        let text = String::from_utf8_lossy(words).into_owned();
        let numbers = self.catalog.numbers(&text).into();
        let at = self.named.len() as u32;
        self.named.push((text, numbers));
        self.words.insert(words.into(), at);
        at
    }

    /// What a file descriptor stands for, by the rules above.
    fn behind(
        &mut self,
        pid: Pid,
        fd: i64,
        path: Option<&[u8]>,
        numbers: &[u32],
        refused: bool,
    ) -> Slot {
        if let Some(path) = path.filter(|path| says_enough(path)) {
            return self.by_path(pid, fd, path);
        }
        let catalog = self.catalog;
        let knows = |node: NodeId| numbers.iter().any(|n| catalog.known(node, *n).is_some());
        let closes = self.log.closes;
        let table = self.log.processes.table(pid);
        let slot = table.get(fd).filter(|slot| path.is_none() || slot.how != How::Seen);
        let node = slot.and_then(|slot| self.files[slot.file as usize].node);
        let none = Slot { file: UNKNOWN, object: 0, how: How::Gap, cloexec: false };
        if refused {
            return slot.unwrap_or(none);
        }
        if node.is_some_and(knows) {
            return match slot {
                Some(slot) if slot.how == How::Predicted => {
                    table.confirm(fd, slot);
                    slot
                }
                slot => slot.unwrap_or(none),
            };
        }
        // Terminals and others share the numbers of requests without an argument.
        let telling = numbers.iter().any(|number| request_size((*number).into()) != 0);
        let (open, reused) = match slot.map(|slot| slot.how) {
            // The log shows what it is, unless it lacks that this was closed.
            Some(How::Seen | How::Confirmed | How::Matched | How::Guessed) => {
                (!closes && telling, true)
            }
            Some(How::Inherited) => (false, false),
            Some(How::Predicted) => (true, !closes),
            Some(How::Gap) | None => (true, true),
        };
        if let Some(found) = open.then(|| table.matching(fd, reused, knows)).flatten() {
            return found;
        }
        // A device that knows no such request, or a file that is none: the log lacks how the number came to another.
        let seen = slot.is_some_and(|slot| slot.how == How::Seen);
        let wrong = telling && (node.is_some() || seen);
        if !wrong && !matches!(slot.map(|slot| slot.how), Some(How::Gap) | None) {
            return slot.unwrap_or(none);
        }
        match numbers.iter().find_map(|n| catalog.only_node(*n)) {
            Some(node) => {
                let file = self.file_of_node(node);
                let slot = Slot { how: How::Guessed, ..self.slot(file, false) };
                // One odd request does not undo what the log shows.
                if !seen {
                    self.log.processes.table(pid).put(fd, slot);
                }
                slot
            }
            None => slot.unwrap_or(none),
        }
    }

    /// The path that stands beside a number decides.
    fn by_path(&mut self, pid: Pid, fd: i64, path: &[u8]) -> Slot {
        let file = self.file(path);
        match self.log.processes.table(pid).get(fd).filter(|slot| slot.file == file) {
            Some(slot) => slot,
            None => {
                let slot = self.slot(file, false);
                self.log.processes.table(pid).put(fd, slot);
                slot
            }
        }
    }

    fn tally(&mut self, file: FileId, key: Key, words: Option<u32>) -> usize {
        if let Some(at) = self.at.get(&(file, key)) {
            return *at as usize;
        }
        let node = self.files[file as usize].node;
        let known = match (node, key) {
            (Some(node), Key::Number(number)) => self.catalog.known(node, number),
            _ => None,
        };
        let opens = known.map_or_else(Vec::new, |known| known.opens.clone());
        let of_call = known.and_then(|known| phases::stage_of_call(&known.name));
        let of_opened = || opens.iter().find_map(|node| self.stage_of_node(*node));
        let stage = of_call.or_else(of_opened).or_else(|| self.stage_of_node(node?));
        let tally = Tally {
            file,
            key,
            words,
            count: 0,
            guessed: 0,
            errors: Vec::new(),
            symbols: [None; 2],
            stage,
            opens,
        };
        self.tallies.push(tally);
        self.at.insert((file, key), (self.tallies.len() - 1) as u32);
        self.tallies.len() - 1
    }

    /// Counts a call, and says whether it opened something that requests are made on.
    fn count(&mut self, at: usize, slot: Slot, result: Ended<'_>) -> bool {
        let errno = match result {
            Ended::Failed(error) => Some(self.errno(error)),
            _ => None,
        };
        let catalog = self.catalog;
        let tally = &mut self.tallies[at];
        tally.count += 1;
        tally.guessed += u64::from(slot.how == How::Guessed);
        let Some(errno) = errno else {
            return tally.opens.iter().any(|node| catalog.is_asked(*node));
        };
        match tally.errors.iter_mut().find(|(known, _)| *known == errno) {
            Some((_, count)) => *count += 1,
            None => tally.errors.push((errno, 1)),
        }
        false
    }

    fn errno(&mut self, name: &[u8]) -> u32 {
        let name = report::errno(name);
        let known = self.errnos.iter().position(|known| **known == *name);
        let at = known.unwrap_or_else(|| {
            self.errnos.push(name.into());
            self.errnos.len() - 1
        });
        at as u32
    }

    /// Follows the file descriptors that an ioctl returns.
    fn opens(&mut self, pid: Pid, at: usize) {
        for index in 0..self.tallies[at].opens.len() {
            let node = self.tallies[at].opens[index];
            let file = self.file_of_node(node);
            self.files[file as usize].opened += 1;
            let object = self.slot(file, true).object;
            let asked = self.catalog.is_asked(node).then_some(node);
            self.log.processes.table(pid).open(asked, file, object);
        }
    }

    fn stage_of_node(&self, node: NodeId) -> Option<u8> {
        phases::stage_of_node(&self.catalog.nodes.get(usize::from(node))?.name)
    }

    fn symbol(&mut self, symbol: Symbol) -> u32 {
        let next = self.symbols.len() as u32;
        let at = *self.symbol_at.entry(symbol).or_insert(next);
        if at == next {
            self.symbols.push(symbol);
        }
        at
    }

    fn symbol_of(&mut self, at: usize, failed: bool) -> u32 {
        let tally = &self.tallies[at];
        if let Some(symbol) = tally.symbols[usize::from(failed)] {
            return symbol;
        }
        let node = self.files[tally.file as usize].node.unwrap_or(NodeId::MAX);
        let symbol = self.symbol(Symbol::Call { node, key: tally.key, failed });
        self.tallies[at].symbols[usize::from(failed)] = Some(symbol);
        symbol
    }

    fn happened(&mut self, pid: Pid, symbol: u32, object: u32, opens: bool, stage: Option<u8>) {
        let table = self.log.processes.table_id(pid);
        let next = self.phases.len();
        let at = *self.log.phases_of.entry(table).or_insert(next);
        if at == next {
            self.phases.push((pid, Phases::default()));
        }
        let what = Happened { symbol, line: self.log.line, object, opens, stage };
        self.phases[at].1.happened(what);
    }
}

/// The fd, its path and the request of an ioctl, where the line has them whole.
fn asked<'a>(args: &'a [u8], result: Ended<'_>) -> Option<(i64, Option<&'a [u8]>, Said<'a>)> {
    let (fd, path, rest) = line::fd(args)?;
    let (said, rest) = request::parse(line::next(rest)?)?;
    // At the end of a line that was cut, the request may be cut as well.
    let whole = result != Ended::Cut || rest.starts_with(b",") || rest.starts_with(b" <");
    whole.then_some((fd, path, said))
}

/// Whether a path tells the node: what ioctls open has names of no use, such as `nvgpu-fd8`.
fn says_enough(path: &[u8]) -> bool {
    match path.strip_prefix(b"anon_inode:") {
        Some(name) => {
            [&b"["[..], b"dmabuf", b"sync_file"].iter().any(|known| name.starts_with(known))
        }
        None => true,
    }
}

/// A path that `-x` or `-xx` wrote in hexadecimal.
fn unescaped(path: &[u8]) -> Option<Vec<u8>> {
    if !path.starts_with(b"\\x") {
        return None;
    }
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes = path.chunks(4).map(|four| digits(four.strip_prefix(b"\\x")?));
    bytes.collect()
}

fn forks(name: &[u8]) -> bool {
    matches!(name, b"clone" | b"clone2" | b"clone3" | b"fork" | b"vfork")
}

/// Calls that return the lowest free number as a new file descriptor.
fn makes_fd(name: &[u8]) -> bool {
    matches!(
        name,
        b"socket"
            | b"accept"
            | b"accept4"
            | b"epoll_create"
            | b"epoll_create1"
            | b"eventfd"
            | b"eventfd2"
            | b"memfd_create"
            | b"memfd_secret"
            | b"timerfd_create"
            | b"inotify_init"
            | b"inotify_init1"
            | b"signalfd"
            | b"signalfd4"
            | b"userfaultfd"
            | b"pidfd_open"
            | b"pidfd_getfd"
            | b"perf_event_open"
            | b"io_uring_setup"
            | b"open_tree"
            | b"fsopen"
            | b"fsmount"
            | b"fspick"
            | b"fanotify_init"
            | b"open_by_handle_at"
            | b"landlock_create_ruleset"
            | b"mq_open"
    )
}

/// Calls whose beginning is kept until their end comes.
fn followed(name: &[u8]) -> bool {
    forks(name)
        || makes_fd(name)
        || matches!(
            name,
            b"ioctl"
                | b"close"
                | b"open"
                | b"openat"
                | b"openat2"
                | b"creat"
                | b"dup"
                | b"dup2"
                | b"dup3"
                | b"fcntl"
                | b"fcntl64"
                | b"close_range"
                | b"pipe"
                | b"pipe2"
                | b"socketpair"
                | b"recvmsg"
                | b"execve"
                | b"execveat"
                | b"unshare"
        )
}

#[cfg(test)]
mod tests;
