//! What is copied of a call when it is made and when it returns, however it was caught.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use nvabi_reports::decode::sniff::{Event, File, How, Ioctl, MAX_PARTS, Nodes, Piece, What, parts};
use nvabi_supervise::normal;

use super::devices::Devices;
use super::filter::Ioctls;
use super::names::Names;
use super::shown::Shown;
use super::target::{self, Link, Threads};

/// Files that were opened and have no path, beyond which all are forgotten.
const MAX_OPENED: usize = 1 << 14;

/// Paths that are remembered, beyond which all are forgotten.
const MAX_PATHS: usize = 1 << 10;

/// Who makes a call, and which.
pub(super) struct Caller {
    pub(super) thread: u32,
    pub(super) call: i64,
    pub(super) args: [u64; 6],
}

/// A call that has not returned.
pub(super) struct Pending {
    event: Event,
    begun: Instant,
    /// Else it is an open, of which what was opened has to say.
    is_of_interest: bool,
}

/// What receives calls from whoever catches them.
pub(super) trait Watch {
    /// A call is made: how it ends is of interest if something comes back.
    fn enter(&mut self, caller: &Caller) -> Option<Pending>;
    /// It has returned, and its caller still stands; without a result it is not known what came of it.
    fn leave(&mut self, pending: Pending, result: Option<i64>);
    /// Nobody waits: what has returned can be told.
    fn settle(&mut self);
    /// A thread has ended.
    fn gone(&mut self, thread: u32);
    /// A process runs another program.
    fn executed(&mut self, process: u32);
}

/// What receives whole calls.
pub(super) trait Sink {
    /// One call, in the order in which they return.
    fn take(&mut self, names: &mut Names, event: &Event) -> io::Result<()>;
    /// Something that a person should know.
    fn warn(&mut self, text: &str);
}

/// Limits of what is copied of a call, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Of one piece.
    pub(super) piece: usize,
    /// Of all pieces of a call.
    pub(super) call: usize,
    /// Not of bytes: of how many numbers it is looked up whether they are addresses. Each costs a system call.
    pub(super) addresses: usize,
    /// Whether records of the driver that are mapped are copied as well.
    pub(super) is_shown: bool,
}

/// Copies what is of interest.
pub(super) struct Copier<'n, S> {
    nodes: Nodes,
    devices: Devices,
    ioctls: Ioctls,
    names: &'n mut Names,
    pub(super) sink: S,
    limits: Limits,
    threads: Threads,
    shown: Shown,
    opened: HashMap<Key, File>,
    /// Files by their paths: most calls are on a few.
    paths: HashMap<String, Option<File>>,
    started: Instant,
    /// Calls that have returned and are not told yet.
    returned: Vec<Event>,
    /// The first failure of the sink: nothing is given to it any more.
    pub(super) failed: Option<io::Error>,
    warned: bool,
}

/// What tells files without a path apart.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    text: String,
    inode: u64,
    process: u32,
}

impl<'n, S: Sink> Copier<'n, S> {
    pub(super) fn new(
        nodes: Nodes,
        ioctls: Ioctls,
        names: &'n mut Names,
        sink: S,
        limits: Limits,
    ) -> Self {
        Self {
            nodes,
            devices: Devices::default(),
            ioctls,
            names,
            sink,
            limits,
            threads: Threads::default(),
            shown: Shown::default(),
            opened: HashMap::new(),
            paths: HashMap::new(),
            returned: Vec::new(),
            started: Instant::now(),
            failed: None,
            warned: false,
        }
    }

    fn begin(&mut self, caller: &Caller, what: What) -> Option<Pending> {
        let process = self.threads.process(caller.thread);
        let begun = Instant::now();
        let time = nanoseconds(begun - self.started);
        let thread = caller.thread;
        let event = Event { time, process, thread, what, result: None, duration: None };
        Some(Pending { event, begun, is_of_interest: true })
    }

    /// The file behind a descriptor, if it is of interest.
    fn file(&mut self, thread: u32, fd: i32, request: Option<u32>) -> Option<File> {
        let link = self.threads.link(thread, fd)?;
        if let Some(known) = self.paths.get(&link.text) {
            return known.clone();
        }
        let node = self.nodes.node_of(&link.text);
        if node.is_some() || !is_unnamed(&link.text) {
            let path: Arc<str> = link.text.as_str().into();
            let file = match node {
                Some(node) => Some(File { node: node.into(), path, how: How::Path }),
                None => self.elsewhere(thread, fd, path),
            };
            if self.paths.len() >= MAX_PATHS {
                self.paths.clear();
            }
            self.paths.insert(link.text, file.clone());
            return file;
        }
        let known = self.remembered(thread, fd, &link).cloned();
        known.or_else(|| self.guessed(link, request?))
    }

    /// A device by its number: its path is not where the nodes are.
    fn elsewhere(&mut self, thread: u32, fd: i32, path: Arc<str>) -> Option<File> {
        let number = self.threads.device(thread, fd)?;
        let node = self.devices.node(number, &self.nodes)?;
        Some(File { node, path, how: How::Device })
    }

    fn remembered(&mut self, thread: u32, fd: i32, link: &Link) -> Option<&File> {
        if self.opened.is_empty() {
            return None;
        }
        let key = self.key(thread, fd, link, link.process);
        let foreign = Key { text: key.text.clone(), inode: key.inode, process: 0 };
        self.opened.get(&key).or_else(|| self.opened.get(&foreign))
    }

    /// Files of the kernel's own have one inode together, and a text that tells them apart within a
    /// process; others have an inode each.
    fn key(&mut self, thread: u32, fd: i32, link: &Link, process: u32) -> Key {
        match link.text.starts_with("anon_inode:") {
            true => Key { text: link.text.clone(), inode: 0, process },
            false => {
                let inode = self.threads.inode(thread, fd).unwrap_or(0);
                Key { text: String::new(), inode, process: 0 }
            }
        }
    }

    /// By a request that only one node knows: what it was opened by was not seen.
    fn guessed(&mut self, link: Link, request: u32) -> Option<File> {
        if request >> 16 & 0x3fff == 0 || link.text.starts_with("pipe:") {
            return None;
        }
        let node = self.names.tables().guess(request)?;
        Some(File { node: node.into(), path: link.text.into(), how: How::Request })
    }

    /// Remembers what a descriptor without a path stands for.
    fn remember(&mut self, thread: u32, fd: i32, path: Option<&str>, node: &str, how: How) {
        let Some(link) = self.threads.link(thread, fd) else { return };
        if !is_unnamed(&link.text) {
            return;
        }
        if self.opened.len() >= MAX_OPENED {
            self.opened.clear();
        }
        let path: Arc<str> = path.unwrap_or(&link.text).into();
        let file = File { path, node: node.into(), how };
        let process = link.process;
        let key = self.key(thread, fd, &link, process);
        // Whoever gets it from that process has it by the same text.
        let foreign = Key { text: key.text.clone(), inode: key.inode, process: 0 };
        self.opened.insert(foreign, file.clone());
        self.opened.insert(key, file);
    }

    fn ioctl(&mut self, caller: &Caller) -> Option<Pending> {
        let [fd, request, argument, ..] = caller.args;
        let (fd, request, thread) = (fd as i32, request as u32, caller.thread);
        if !self.ioctls.has(request) {
            return None;
        }
        let file = self.file(thread, fd, Some(request))?;
        let limits = self.limits;
        let mut pieces: Vec<Piece> = Vec::new();
        let fds = match &*file.node {
            "" => Vec::new(),
            node => {
                let mut copy = |address, length| {
                    let taken: usize = pieces.iter().map(|piece| piece.before.len()).sum();
                    let room = limits.piece.min(limits.call - taken);
                    let piece = piece(thread, address, length, room);
                    let before = piece.before.clone();
                    pieces.push(piece);
                    before
                };
                parts(self.names.tables(), node, request, argument, &mut copy).fds
            }
        };
        let size = u64::from(request >> 16 & 0x3fff);
        if pieces.is_empty() && size > 0 {
            // Nobody knows it: its bytes are told.
            pieces.push(piece(thread, argument, size, limits.piece));
        }
        let fds = fds.into_iter().filter_map(|fd| Some((fd, self.any_file(thread, fd)?))).collect();
        let count = if file.node.is_empty() { 0 } else { limits.addresses };
        let addresses = addresses(thread, &pieces, count);
        let mut ioctl = Ioctl { fd, file, request, argument, pieces, fds, addresses };
        if limits.is_shown && !ioctl.file.node.is_empty() {
            let process = self.threads.process(thread);
            let more = self.shown.changed(self.names.tables(), process, thread, &ioctl);
            let room = MAX_PARTS.saturating_sub(ioctl.pieces.len());
            ioctl.pieces.extend(more.into_iter().take(room));
        }
        self.begin(caller, What::Ioctl(ioctl))
    }

    /// What a descriptor in an argument stands for: it may be any file.
    fn any_file(&mut self, thread: u32, fd: i32) -> Option<File> {
        if let Some(file) = self.file(thread, fd, None) {
            return Some(file);
        }
        let link = self.threads.link(thread, fd)?;
        Some(File { path: link.text.into(), node: "".into(), how: How::Path })
    }

    fn opens(
        &mut self,
        caller: &Caller,
        folder: i32,
        path: u64,
        flags: Option<u64>,
    ) -> Option<Pending> {
        let thread = caller.thread;
        let written = target::read_path(thread, path).unwrap_or_default();
        let whole = self.threads.absolute(thread, folder, written).unwrap_or_default();
        let path = normal(Path::new(&whole)).to_string_lossy().into_owned();
        // Another file may be there now.
        self.paths.remove(&path);
        let node = self.nodes.node_of(&path).map(Arc::from);
        let is_of_interest = node.is_some();
        let file = match node {
            Some(node) => File { path: path.into(), node, how: How::Path },
            // By what it leads to it may be one, which is not known before.
            None => File { path: whole.into(), node: "".into(), how: How::Path },
        };
        let flags = flags.or_else(|| {
            let bytes = target::read(thread, caller.args[2], 8);
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        });
        let begun = self.begin(caller, What::Open { file, flags: flags.unwrap_or(0) })?;
        Some(Pending { is_of_interest, ..begun })
    }

    /// What an open was of whose path is that of no node. Where no descriptor says it, the path is followed.
    fn opened(&mut self, event: &Event, result: Option<i64>) -> Option<File> {
        const NOT_FOUND: i64 = -(libc::ENOENT as i64);
        match result {
            Some(fd @ 0..) => self.file(event.thread, fd as i32, None),
            Some(NOT_FOUND) => None,
            _ => {
                let (path, device) = self.threads.leads_to(event.thread, &event.file().path)?;
                let (node, how) = match self.nodes.node_of(&path) {
                    Some(node) => (node.into(), How::Path),
                    None => (self.devices.node(device?, &self.nodes)?, How::Device),
                };
                Some(File { path: path.into(), node, how })
            }
        }
    }

    fn on_file(
        &mut self,
        caller: &Caller,
        fd: u64,
        what: fn(&Caller, File) -> What,
    ) -> Option<Pending> {
        let file = self.file(caller.thread, fd as i32, None)?;
        self.begin(caller, what(caller, file))
    }

    /// What is to be known of a call that has succeeded: what it opened, and what its memory holds now.
    fn succeeded(&mut self, event: &mut Event, result: i64) {
        let thread = event.thread;
        match &mut event.what {
            What::Open { file, .. } => {
                let file = file.clone();
                self.remember(thread, result as i32, Some(&file.path), &file.node, How::Open);
            }
            What::Ioctl(ioctl) => {
                if self.limits.is_shown {
                    self.shown.learn(self.names.tables(), event.process, ioctl);
                }
                let opened = opened(self.names, ioctl);
                for (fd, node) in opened {
                    self.remember(thread, fd, None, &node, How::Ioctl);
                    let known = ioctl.fds.iter().any(|(known, _)| *known == fd);
                    if let Some(file) = self.any_file(thread, fd).filter(|_| !known) {
                        ioctl.fds.push((fd, file));
                    }
                }
            }
            What::Map { fd, .. } => self.shown.mapped(event.process, *fd, result),
            What::Close { .. } => {}
        }
    }
}

/// Memory of a caller, as far as there is room for it.
fn piece(thread: u32, address: u64, length: u64, room: usize) -> Piece {
    let wanted = usize::try_from(length).unwrap_or(usize::MAX).min(room);
    Piece { address, length, before: target::read(thread, address, wanted), after: None }
}

/// The numbers in the memory of a call that are addresses which the caller can read. Those of the pieces are known to
/// be, and are left out.
fn addresses(thread: u32, pieces: &[Piece], count: usize) -> Vec<u64> {
    if count == 0 {
        return Vec::new();
    }
    let words = pieces.iter().flat_map(|piece| piece.before.chunks_exact(8));
    let numbers = words.filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)));
    let is_followed = |number: &u64| pieces.iter().any(|piece| piece.address == *number);
    let candidates: BTreeSet<u64> =
        numbers.filter(|number| may_be_address(*number) && !is_followed(number)).collect();
    let readable = |number: &u64| !target::read(thread, *number, 1).is_empty();
    candidates.into_iter().take(count).filter(readable).collect()
}

/// Whether a number can be an address of a program. A whole number of pages below 4 GiB is more likely a size: programs
/// that are not position-independent have memory there.
fn may_be_address(number: u64) -> bool {
    (1 << 16..1 << 48).contains(&number) && (number >= 1 << 32 || number % 4096 != 0)
}

/// Files that have no path of their own: what ioctls return, and what a simulator gives.
fn is_unnamed(link: &str) -> bool {
    ["anon_inode:", "/memfd:", "pipe:", "/dmabuf:"].iter().any(|start| link.starts_with(start))
}

/// The descriptors that an ioctl has returned, and the nodes that they are.
fn opened(names: &mut Names, ioctl: &Ioctl) -> Vec<(i32, String)> {
    let (node, request) = (&*ioctl.file.node, ioctl.request);
    let Some(after) = ioctl.pieces.first().and_then(|piece| piece.after.as_ref()) else {
        return Vec::new();
    };
    let tables = names.tables();
    let opens = tables.opens(node, request).into_iter();
    let found = opens.filter_map(|(field, opened)| {
        let (at, size) = tables.place(node, request, field)?;
        let bytes = after.get(at..at.checked_add(size)?)?.get(..4)?;
        let fd = i32::from_le_bytes(bytes.try_into().ok()?);
        (fd >= 0).then(|| (fd, opened.to_owned()))
    });
    found.collect()
}

impl<S: Sink> Watch for Copier<'_, S> {
    fn enter(&mut self, caller: &Caller) -> Option<Pending> {
        let args = &caller.args;
        match caller.call {
            libc::SYS_ioctl => self.ioctl(caller),
            libc::SYS_openat => self.opens(caller, args[0] as i32, args[1], Some(args[2])),
            libc::SYS_openat2 => self.opens(caller, args[0] as i32, args[1], None),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => self.opens(caller, libc::AT_FDCWD, args[0], Some(args[1])),
            libc::SYS_close => self.on_file(caller, args[0], |caller, file| What::Close {
                fd: caller.args[0] as i32,
                file,
            }),
            libc::SYS_mmap if args[3] & libc::MAP_ANONYMOUS as u64 == 0 => {
                self.on_file(caller, args[4], |caller, file| What::Map {
                    fd: caller.args[4] as i32,
                    file,
                    length: caller.args[1],
                    offset: caller.args[5],
                })
            }
            _ => None,
        }
    }

    fn leave(&mut self, pending: Pending, result: Option<i64>) {
        let Pending { mut event, begun, is_of_interest } = pending;
        if !is_of_interest {
            let Some(opened) = self.opened(&event, result) else { return };
            if let What::Open { file, .. } = &mut event.what {
                *file = opened;
            }
        }
        event.result = result;
        if let Some(result) = result {
            event.duration = Some(nanoseconds(begun.elapsed()));
            if let What::Ioctl(ioctl) = &mut event.what {
                for piece in &mut ioctl.pieces {
                    let after = target::read(event.thread, piece.address, piece.before.len());
                    piece.after = (after.len() == piece.before.len()).then_some(after);
                }
            }
            if result >= 0 {
                self.succeeded(&mut event, result);
            }
        }
        self.returned.push(event);
    }

    fn settle(&mut self) {
        for event in self.returned.drain(..) {
            if self.failed.is_none() {
                self.failed = self.sink.take(self.names, &event).err();
            }
        }
    }

    fn gone(&mut self, thread: u32) {
        self.threads.forget(thread);
        self.shown.gone(thread);
    }

    fn executed(&mut self, process: u32) {
        self.shown.gone(process);
        if !self.warned && target::is_32_bit(process) {
            self.warned = true;
            self.sink.warn(&format!("{process} runs a 32-bit program: its calls are not traced"));
        }
    }
}

fn nanoseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
