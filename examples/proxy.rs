//! Two processes: one makes the calls to the driver, the other has them made.
//!
//! ```text
//! proxy device /run/nvidia.sock [TAG]         opens devices and makes calls for who connects first
//! proxy devices /run/nvidia.sock [TAG]        for each who connects, in a process of its own
//! proxy client /run/nvidia.sock               asks the driver a few things through it
//! proxy run /run/nvidia.sock PROGRAM …        runs a program whose calls go through it (proxy_preload.rs)
//! ```
//!
//! File descriptors travel beside the calls, by `SCM_RIGHTS`: those of devices, which the other side opens, and
//! those that a call holds. So the client has the file of a device, and its `mmap` and `poll` are the kernel's; what
//! it tells the driver goes through the proxy. Memory that the driver pins goes the same way: the pages become a
//! file's, which both sides map.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::error::Error;
use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use nix::sys::stat::fstat;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::{ForkResult, Pid, dup2, fork};
use nvabi::call::{
    CallKind, Class, Control, Direction, Frontend, HandleMeaning, Info, Request, Uvm,
};
use nvabi::driver::{AnyDriver, Record};
use nvabi::proxy::{Limits, Memory, Message, marshal, unmarshal};
use nvabi::{Handle, P64};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The letter of the ioctls of `/dev/nvidiactl` and `/dev/nvidia*`; those of UVM have none.
const FRONTEND: u8 = b'F';

/// The longest frame: a call with all that it points to.
const FRAME: usize = 17 << 20;

/// The most file descriptors beside one frame.
const FDS: usize = 64;

// --- The wire ---------------------------------------------------------------------------------

/// One end of the socket: frames of a word, a length and bytes, with file descriptors beside them.
pub(crate) struct Wire(UnixStream);

/// What came in.
struct Frame {
    word: i32,
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Wire {
    fn send(&mut self, word: i32, bytes: &[u8], fds: &[RawFd]) -> Result<()> {
        let mut head = word.to_le_bytes().to_vec();
        head.extend((bytes.len() as u32).to_le_bytes());
        let beside = [ControlMessage::ScmRights(fds)];
        let beside = if fds.is_empty() { &[][..] } else { &beside[..] };
        let parts = [IoSlice::new(&head)];
        let sent = sendmsg::<()>(self.0.as_raw_fd(), &parts, beside, MsgFlags::MSG_NOSIGNAL, None)?;
        self.0.write_all(&head[sent..])?;
        Ok(self.0.write_all(bytes)?)
    }

    /// The next frame; `None` when the other end has hung up.
    fn receive(&mut self) -> Result<Option<Frame>> {
        let mut head = [0; 8];
        let mut space = nix::cmsg_space!([RawFd; FDS]);
        let mut parts = [IoSliceMut::new(&mut head)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = loop {
            match recvmsg::<()>(self.0.as_raw_fd(), &mut parts, Some(&mut space), flags) {
                Err(Errno::EINTR) => {}
                received => break received?,
            }
        };
        let (got, mut fds) = (message.bytes, Vec::new());
        // An error where more came than there is room for (`MSG_CTRUNC`): then no frame can be told from the next.
        for beside in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(numbers) = beside {
                // SAFETY: the kernel has just made these for this process, and nobody else knows them.
                fds.extend(numbers.iter().map(|fd| unsafe { OwnedFd::from_raw_fd(*fd) }));
            }
        }
        if got == 0 {
            return Ok(None);
        }
        self.0.read_exact(&mut head[got..])?;
        let word = |i: usize| i32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        let length = word(4) as u32 as usize;
        if length > FRAME {
            return Err(format!("a frame of {length} bytes").into());
        }
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes)?;
        Ok(Some(Frame { word: word(0), bytes, fds }))
    }
}

/// The word of a frame to the device's side: one of these two, or the request of an ioctl.
const OPEN: i32 = -1;

/// The client has closed its file of a number.
const CLOSE: i32 = -2;

/// The file descriptors of a call, in the order in which both sides visit them.
fn fds(message: &mut Message) -> Vec<Option<RawFd>> {
    let mut fds = Vec::new();
    message.visit_fds(|fd| fds.push(fd.get()));
    fds
}

/// Which of a call's types a request has, and how many bytes.
fn described(driver: &AnyDriver, request: u32) -> Result<(&'static Info, usize)> {
    let parts = Request(request);
    let frontend = parts.magic() == FRONTEND;
    let found = match frontend {
        true => driver.frontend(parts.nr().into()),
        false => driver.uvm(request),
    };
    let info = found.ok_or_else(|| format!("{} has no ioctl {request:#x}", driver.tag()))?;
    let size = match frontend {
        true => parts.size().into(),
        false => driver.params(info).next().map_or(0, |params| params.size as usize),
    };
    Ok((info, size))
}

// --- The side that has the device -------------------------------------------------------------

/// What the device's side asks of the system.
pub(crate) trait Kernel {
    /// Opens a file, also to write where it takes ioctls.
    fn open(&self, path: &Path, takes_ioctls: bool) -> io::Result<OwnedFd>;
    /// Returns what the ioctl does, or the error's number below zero.
    fn ioctl(&self, fd: RawFd, request: u32, argument: *mut u8) -> i32;
}

/// The machine's own.
pub(crate) struct Machine;

impl Kernel for Machine {
    fn open(&self, path: &Path, takes_ioctls: bool) -> io::Result<OwnedFd> {
        Ok(OpenOptions::new().read(true).write(takes_ioctls).open(path)?.into())
    }

    fn ioctl(&self, fd: RawFd, request: u32, argument: *mut u8) -> i32 {
        // The request's type is the C library's. SAFETY: the argument is the message's, whose pointers lead to memory of
        // the size that the driver's own headers and tables give them.
        let done = unsafe { libc::ioctl(fd, request as _, argument) };
        match done {
            -1 => -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
            done => done,
        }
    }
}

/// Makes calls for one client until it hangs up.
pub(crate) fn serve(stream: UnixStream, driver: &AnyDriver, kernel: &impl Kernel) -> Result<()> {
    let mut wire = Wire(stream);
    wire.send(0, driver.tag().as_bytes(), &[])?;
    let mut devices = Devices::default();
    while let Some(frame) = wire.receive()? {
        match frame.word {
            OPEN => match devices.open(kernel, &frame.bytes) {
                Ok(fd) => wire.send(0, &[], &[fd.as_raw_fd()])?,
                Err(error) => wire.send(-error.raw_os_error().unwrap_or(libc::EIO), &[], &[])?,
            },
            CLOSE => {
                let number = frame.bytes.first_chunk().ok_or("a file without a number")?;
                devices.numbers.remove(&RawFd::from_le_bytes(*number));
                wire.send(0, &[], &[])?;
            }
            _ => match devices.call(driver, kernel, frame) {
                Ok((done, reply, new)) => {
                    let new: Vec<RawFd> = new.iter().map(AsRawFd::as_raw_fd).collect();
                    wire.send(done, &reply, &new)?;
                }
                Err(error) => {
                    eprintln!("proxy: refused: {error}");
                    wire.send(-libc::EINVAL, &[], &[])?;
                }
            },
        }
    }
    Ok(())
}

/// What the client has had opened, and the memory that it has had pinned.
#[derive(Default)]
struct Devices {
    kinds: HashMap<Identity, CallKind>,
    /// The file behind each number of the client's. The driver knows events by the number of their file: one of the
    /// client's has the same here for as long as the client has it.
    numbers: HashMap<RawFd, OwnedFd>,
    /// By client and object.
    pinned: HashMap<(Handle, Handle), Mapped>,
}

/// A node that is served.
enum Node {
    /// It takes ioctls.
    Device(CallKind),
    /// It is a right to use an instance of MIG, by being open.
    Capability,
}

impl Node {
    fn of(path: &str) -> Option<Self> {
        let name = path.strip_prefix("/dev/nvidia")?;
        if let Some(number) = name.strip_prefix("-caps/nvidia-cap") {
            return number.parse::<u16>().ok().map(|_| Self::Capability);
        }
        match name {
            "ctl" => Some(Self::Device(CallKind::Frontend)),
            "-uvm" | "-uvm-tools" => Some(Self::Device(CallKind::Uvm)),
            number if number.parse::<u8>().is_ok() => Some(Self::Device(CallKind::Frontend)),
            _ => None,
        }
    }
}

impl Devices {
    fn open(&mut self, kernel: &impl Kernel, path: &[u8]) -> io::Result<OwnedFd> {
        let path =
            std::str::from_utf8(path).map_err(|_| io::Error::from(io::ErrorKind::NotFound))?;
        let node = Node::of(path).ok_or_else(|| io::Error::from_raw_os_error(libc::EACCES))?;
        let fd = kernel.open(Path::new(path), matches!(node, Node::Device(_)))?;
        if let Node::Device(kind) = node {
            self.kinds.insert(identity(fd.as_fd())?, kind);
        }
        Ok(fd)
    }

    fn call(
        &mut self,
        driver: &AnyDriver,
        kernel: &impl Kernel,
        frame: Frame,
    ) -> Result<(i32, Vec<u8>, Vec<OwnedFd>)> {
        let request = frame.word as u32;
        let (number, pieces, bytes) = Piece::split(&frame.bytes)?;
        let mut message = unmarshal(driver, bytes, LIMITS)?;
        let (info, size) = described(driver, request)?;
        if info != message.info() || size != message.params().len() {
            return Err(format!("{request:#x} is not {}", message.info().name).into());
        }
        let theirs = fds(&mut message);
        let mut given = frame.fds.into_iter();
        let on = given.next().ok_or("an ioctl on nothing")?;
        let kind = self.kinds.get(&identity(on.as_fd())?).ok_or("an ioctl on what is no device")?;
        if *kind != info.kind {
            return Err(format!("{} is no ioctl of that device", info.name).into());
        }
        let on = self.number(number, on, &mut Vec::new())?;
        // Files that are no device's are there for this call alone.
        let (mut ours, mut others) = (Vec::new(), Vec::new());
        for number in &theirs {
            ours.push(match number {
                Some(number) => {
                    let fd = given.next().ok_or("a file descriptor is missing")?;
                    Some(self.number(*number, fd, &mut others)?)
                }
                None => None,
            });
        }
        let mut at = ours.iter();
        message.visit_fds(|fd| {
            if let Some(Some(own)) = at.next() {
                fd.set(*own);
            }
        });
        let memory = pins(driver, &mut message)?
            .map(|pinned| Mapped::new(pinned.length, &pieces, given.as_slice()))
            .transpose()?;
        if let Some(memory) = &memory {
            set_pinned(&mut message, memory.address());
        }
        let done = message.call(|argument| kernel.ioctl(on, request, argument));
        if done >= 0 {
            self.keep(&mut message, memory);
        }
        let (mut new, mut at) = (Vec::new(), theirs.iter());
        message.visit_fds(|fd| match (at.next().copied().flatten(), fd.get()) {
            (Some(theirs), _) => fd.set(theirs),
            (None, Some(made)) if fd.opens().is_some() && done >= 0 => {
                // SAFETY: by its role the driver has just made it for this process.
                new.push(unsafe { OwnedFd::from_raw_fd(made) });
            }
            _ => {}
        });
        // With this error alone the driver has copied nothing back.
        let reply = if done == -libc::EFAULT { Vec::new() } else { message.reply() };
        Ok((done, reply, new))
    }

    /// The number here of a file that has one there.
    fn number(&mut self, theirs: RawFd, fd: OwnedFd, others: &mut Vec<OwnedFd>) -> Result<RawFd> {
        let number = fd.as_raw_fd();
        if !self.kinds.contains_key(&identity(fd.as_fd())?) {
            others.push(fd);
            return Ok(number);
        }
        Ok(match self.numbers.entry(theirs) {
            Entry::Vacant(entry) => entry.insert(fd).as_raw_fd(),
            // It is another file where the client closed the one before unseen.
            Entry::Occupied(mut entry) => {
                dup2(fd, entry.get_mut())?;
                entry.get().as_raw_fd()
            }
        })
    }

    /// Keeps pinned memory mapped until its object is freed, or the client of the object.
    fn keep(&mut self, message: &mut Message, memory: Option<Mapped>) {
        let (mut client, mut new, mut object) = (None, None, None);
        let name = message.info().name;
        message.visit_handles(|handle| match handle.means() {
            HandleMeaning::Client => client = client.or(Some(handle.get())),
            HandleMeaning::New => new = new.or(Some(handle.get())),
            HandleMeaning::Object => object = object.or(Some(handle.get())),
            HandleMeaning::Parent | HandleMeaning::Class => {}
        });
        if let (Some(memory), Some(client), Some(new)) = (memory, client, new) {
            self.pinned.insert((client, new), memory);
        }
        if let ("NV_ESC_RM_FREE", Some(client), Some(object)) = (name, client, object) {
            self.pinned.retain(|key, _| key.0 != client || object != client && key.1 != object);
        }
    }
}

// --- Memory that the driver pins --------------------------------------------------------------

/// How much a call may hold. Addresses that the driver is given and does not follow go along as they are: it compares
/// them with those that it gave, or keeps them. Those that it pins are translated.
const LIMITS: Limits = Limits { bytes: 16 << 20, parts: 64, opaque: true };

/// Memory of the caller's that a call lets the driver pin.
struct Pinned {
    address: u64,
    length: u64,
}

/// The field of an address whose memory the driver pins.
const PINNED: [&str; 2] = ["params.pMemory", "data.AllocOsDesc.descriptor"];

/// NV01_MEMORY_SYSTEM_OS_DESCRIPTOR: memory that the caller has.
const OS_DESCRIPTOR: u32 = 0x71;

/// What a call lets the driver pin; an error where it gives an address that can be followed in the caller alone.
fn pins(driver: &AnyDriver, message: &mut Message) -> Result<Option<Pinned>> {
    let mut given = None;
    message.visit_pointers(|pointer| {
        let role = pointer.role();
        if role.opaque && role.direction != Some(Direction::Out) && pointer.get() != 0 {
            given = given.or(Some((role.field.path, pointer.get())));
        }
    });
    let (info, Some((field, address))) = (message.info(), given) else { return Ok(None) };
    let limit = nvabi::with_driver!(driver, abi => {
        use abi::{NVOS32_PARAMETERS, nv_ioctl_nvos02_parameters_with_fd};
        let params = message.params();
        match info.name {
            "NV_ESC_RM_ALLOC_MEMORY" => {
                let call: nv_ioctl_nvos02_parameters_with_fd = record(params)?;
                (call.params.hClass == OS_DESCRIPTOR).then_some(call.params.limit)
            }
            "NV_ESC_RM_VID_HEAP_CONTROL" if field == PINNED[1] => {
                let call: NVOS32_PARAMETERS = record(params)?;
                // SAFETY: the member is of integers, for which any bytes are a value; the field's role says that it
                // is the valid one.
                Some(unsafe { call.data.AllocOsDesc }.limit)
            }
            // What it compares with addresses that it has returned, and not with what is there.
            "NV_ESC_RM_UNMAP_MEMORY" | "NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO" => return Ok(None),
            _ => None,
        }
    });
    match limit.and_then(|limit| limit.checked_add(1)) {
        Some(length) => Ok(Some(Pinned { address, length })),
        None => Err(format!("{}: {field} means memory of the caller's", info.name).into()),
    }
}

/// Puts another address in the place of the one whose memory is pinned.
fn set_pinned(message: &mut Message, address: u64) {
    message.visit_pointers(|pointer| {
        if PINNED.contains(&pointer.role().field.path) {
            pointer.set(address);
        }
    });
}

/// A record at the beginning of some bytes.
fn record<R: Record>(bytes: &[u8]) -> Result<R> {
    let mut record = R::zeroed();
    let from = bytes.get(..size_of::<R>()).ok_or("parameters that are too short")?;
    // SAFETY: a record is bytes, whatever they are, and as many are copied as it has.
    unsafe { from.as_ptr().copy_to_nonoverlapping((&raw mut record).cast(), from.len()) };
    Ok(record)
}

/// A part of a file, which is a piece of the memory that a call lets the driver pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl Piece {
    /// A call on a file of a number, with the pieces of memory before it: how many, and where and how long each is.
    fn join(number: RawFd, pieces: &[Self], call: &[u8]) -> Vec<u8> {
        let words = pieces.iter().flat_map(|piece| [piece.offset, piece.length]);
        let words = [number as u64, pieces.len() as u64].into_iter().chain(words);
        words.flat_map(u64::to_le_bytes).chain(call.iter().copied()).collect()
    }

    fn split(bytes: &[u8]) -> Result<(RawFd, Vec<Self>, &[u8])> {
        let mut left = bytes;
        let mut next = || -> Result<u64> {
            let (word, rest) = left.split_first_chunk().ok_or("a frame that ends too early")?;
            left = rest;
            Ok(u64::from_le_bytes(*word))
        };
        let (number, count) = (RawFd::try_from(next()?)?, next()?);
        if count > FDS as u64 {
            return Err(format!("memory of {count} pieces").into());
        }
        let pieces = (0..count).map(|_| Ok(Self { offset: next()?, length: next()? }));
        let pieces = pieces.collect::<Result<_>>()?;
        Ok((number, pieces, left))
    }
}

/// Memory of the client's, mapped here for the driver.
struct Mapped {
    at: NonNull<c_void>,
    length: NonZeroUsize,
}

impl Mapped {
    /// The pieces one behind the other; they are as long as the call says, in whole pages.
    fn new(length: u64, pieces: &[Piece], files: &[OwnedFd]) -> Result<Self> {
        let sum = pieces.iter().try_fold(0_u64, |sum, piece| sum.checked_add(piece.length));
        let fits = sum.is_some_and(|sum| sum >= length) && files.len() == pieces.len();
        let whole = sum.and_then(|sum| NonZeroUsize::new(sum as usize)).filter(|_| fits);
        let length = whole.ok_or("memory to pin that did not come, or not all of it")?;
        let private = MapFlags::MAP_PRIVATE;
        // SAFETY: the system chooses where, so that nothing is there yet.
        let at = unsafe { mmap_anonymous(None, length, ProtFlags::PROT_NONE, private) }?;
        let mapped = Self { at, length };
        let mut next = mapped.address() as usize;
        for (piece, file) in pieces.iter().zip(files) {
            let (Some(place), Some(size)) =
                (NonZeroUsize::new(next), NonZeroUsize::new(piece.length as usize))
            else {
                continue;
            };
            let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
            let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
            // SAFETY: it is inside of what was just mapped here, and nobody else knows of.
            unsafe { mmap(Some(place), size, both, flags, file, i64::try_from(piece.offset)?) }?;
            next += size.get();
        }
        Ok(mapped)
    }

    fn address(&self) -> u64 {
        self.at.as_ptr() as u64
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped for this value, and no reference to it is ever made.
        let _ = unsafe { munmap(self.at, self.length.get()) };
    }
}

/// Device and inode: the same file has the same, in whatever process.
pub(crate) type Identity = (u64, u64);

pub(crate) fn identity(fd: BorrowedFd<'_>) -> io::Result<Identity> {
    let stat = fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

// --- The side that makes the calls ------------------------------------------------------------

/// A driver at the other end of a socket.
pub(crate) struct Remote {
    wire: Wire,
    driver: &'static AnyDriver,
}

impl Remote {
    pub(crate) fn connect(stream: UnixStream) -> Result<Self> {
        let mut wire = Wire(stream);
        let hello = wire.receive()?.ok_or("nobody is there")?;
        let driver = AnyDriver::for_version(std::str::from_utf8(&hello.bytes)?)?;
        Ok(Self { wire, driver })
    }

    /// The driver's version.
    pub(crate) fn driver(&self) -> &'static AnyDriver {
        self.driver
    }

    /// Opens a device over there.
    pub(crate) fn open(&mut self, path: &str) -> Result<OwnedFd> {
        self.wire.send(OPEN, path.as_bytes(), &[])?;
        let answer = self.wire.receive()?.ok_or("the other side is gone")?;
        if answer.word < 0 {
            return Err(io::Error::from_raw_os_error(-answer.word).into());
        }
        Ok(answer.fds.into_iter().next().ok_or("no file came")?)
    }

    /// Tells the other side that a file of this number is about to be closed.
    pub(crate) fn close(&mut self, number: RawFd) -> Result<()> {
        self.wire.send(CLOSE, &number.to_le_bytes(), &[])?;
        self.wire.receive()?.map(drop).ok_or_else(|| "the other side is gone".into())
    }

    /// Makes an ioctl over there, as `ioctl` would here: `argument` is an address of this process.
    pub(crate) fn ioctl(&mut self, fd: BorrowedFd<'_>, request: u32, argument: u64) -> Result<i32> {
        let nothing = |_, _| Err("memory for the driver to pin is not shared here".into());
        self.ioctl_with(fd, request, argument, nothing)
    }

    /// The same; `share` makes memory of this process a part of files, which it returns.
    pub(crate) fn ioctl_with(
        &mut self,
        fd: BorrowedFd<'_>,
        request: u32,
        argument: u64,
        share: impl FnOnce(u64, u64) -> Result<Vec<(Piece, OwnedFd)>>,
    ) -> Result<i32> {
        let (info, size) = described(self.driver, request)?;
        let mut memory = Own;
        let mut message = marshal(self.driver, info, argument, size, &memory, LIMITS)?;
        let before = fds(&mut message);
        let pinned = pins(self.driver, &mut message)?;
        let shared = pinned.as_ref().map(|pinned| share(pinned.address, pinned.length));
        let (pieces, files): (Vec<_>, Vec<_>) =
            shared.transpose()?.unwrap_or_default().into_iter().unzip();
        let with = std::iter::once(fd.as_raw_fd()).chain(before.iter().flatten().copied());
        let with: Vec<RawFd> = with.chain(files.iter().map(AsRawFd::as_raw_fd)).collect();
        self.wire.send(
            request as i32,
            &Piece::join(fd.as_raw_fd(), &pieces, &message.request()),
            &with,
        )?;
        let answer = self.wire.receive()?.ok_or("the other side is gone")?;
        let failed = || Err(io::Error::from_raw_os_error(-answer.word).into());
        if answer.word < 0 && answer.bytes.is_empty() {
            return failed();
        }
        message.take_reply(&answer.bytes)?;
        let (mut new, mut at) = (answer.fds.into_iter(), before.into_iter());
        message.visit_fds(|fd| {
            if let (Some(None), Some(_), Some(_)) = (at.next(), fd.get(), fd.opens()) {
                // It is the caller's from here on, as any fd that an ioctl returns.
                fd.set(new.next().map_or(-1, std::os::fd::IntoRawFd::into_raw_fd));
            }
        });
        if let Some(pinned) = pinned {
            set_pinned(&mut message, pinned.address);
        }
        // The driver writes also what it fails with: the version that NV_ESC_CHECK_VERSION_STR misses.
        message.write_back(&mut memory)?;
        if answer.word < 0 { failed() } else { Ok(answer.word) }
    }
}

/// The memory of this process, by system calls that fail where there is none.
struct Own;

impl Memory for Own {
    fn read(&self, address: u64, to: &mut [u8]) -> io::Result<()> {
        let len = to.len();
        let from = [RemoteIoVec { base: address as usize, len }];
        complete(process_vm_readv(Pid::this(), &mut [IoSliceMut::new(to)], &from)?, len)
    }

    fn write(&mut self, address: u64, from: &[u8]) -> io::Result<()> {
        let len = from.len();
        let to = [RemoteIoVec { base: address as usize, len }];
        complete(process_vm_writev(Pid::this(), &[IoSlice::new(from)], &to)?, len)
    }
}

fn complete(done: usize, len: usize) -> io::Result<()> {
    match done == len {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

/// Asks the driver a few things: a call with nothing behind it, a class, a command whose parameters
/// point further, and one that is refused.
pub(crate) fn ask(remote: &mut Remote, told: &mut dyn Write) -> Result<()> {
    let driver = remote.driver();
    writeln!(told, "driver {}", driver.tag())?;
    let ctl = remote.open("/dev/nvidiactl")?;
    nvabi::with_driver!(driver, abi => {
        use abi::{NVOS00_PARAMETERS, NVOS21_PARAMETERS, NVOS54_PARAMETERS, control, frontend};
        fn request<F: Frontend, P>(_: &P) -> u32 {
            3 << 30 | (size_of::<P>() as u32) << 16 | u32::from(FRONTEND) << 8 | F::NR
        }
        let mut root = NVOS21_PARAMETERS {
            hClass: abi::class::NV01_ROOT::CLASS, ..Record::zeroed()
        };
        let number = request::<frontend::NV_ESC_RM_ALLOC, _>(&root);
        remote.ioctl(ctl.as_fd(), number, &raw mut root as u64)?;
        let client = root.hObjectNew;
        writeln!(told, "client {}: status {:#x}", client != Handle(0), root.status)?;

        type Version = control::NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION;
        let mut ask = |cmd: u32, params: u64, size: usize| -> Result<u32> {
            let mut call = NVOS54_PARAMETERS {
                hClient: client, hObject: client, cmd, params: P64(params),
                paramsSize: size as u32, ..Record::zeroed()
            };
            let number = request::<frontend::NV_ESC_RM_CONTROL, _>(&call);
            remote.ioctl(ctl.as_fd(), number, &raw mut call as u64)?;
            Ok(call.status)
        };
        let mut strings = [[0u8; 256]; 3];
        let mut version = abi::NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_PARAMS {
            sizeOfStrings: 256,
            pDriverVersionBuffer: P64(&raw mut strings[0] as u64),
            pVersionBuffer: P64(&raw mut strings[1] as u64),
            pTitleBuffer: P64(&raw mut strings[2] as u64),
            ..Record::zeroed()
        };
        let status = ask(Version::CMD, &raw mut version as u64, size_of_val(&version))?;
        let text = strings[0].split(|byte| *byte == 0).next().unwrap_or_default();
        writeln!(told, "version {}: status {status:#x}", String::from_utf8_lossy(text))?;
        let refused = ask(0x1234_5678, &raw mut version as u64, 8).map(|_| ());
        writeln!(told, "unknown command: {}", refused.err().ok_or("it was carried")?)?;

        let mut free = NVOS00_PARAMETERS { hRoot: client, hObjectOld: client, ..Record::zeroed() };
        let number = request::<frontend::NV_ESC_RM_FREE, _>(&free);
        remote.ioctl(ctl.as_fd(), number, &raw mut free as u64)?;
        writeln!(told, "freed: status {:#x}", free.status)?;
        remote.close(ctl.as_raw_fd())
    })
}

/// Asks a GPU for its classes: a file descriptor in a call, an object below another, a list whose
/// length the driver tells first, and a UVM call.
pub(crate) fn ask_gpu(remote: &mut Remote, told: &mut dyn Write) -> Result<()> {
    let ctl = remote.open("/dev/nvidiactl")?;
    let gpu = remote.open("/dev/nvidia0")?;
    let uvm = remote.open("/dev/nvidia-uvm")?;
    nvabi::with_driver!(remote.driver(), abi => {
        use abi::{NVOS21_PARAMETERS, NVOS54_PARAMETERS, class, control, frontend, uvm};
        fn request<F: Frontend, P>() -> u32 {
            3 << 30 | (size_of::<P>() as u32) << 16 | u32::from(FRONTEND) << 8 | F::NR
        }
        let mut register = abi::nv_ioctl_register_fd_t { ctl_fd: ctl.as_raw_fd() };
        let number = request::<frontend::NV_ESC_REGISTER_FD, abi::nv_ioctl_register_fd_t>();
        let done = remote.ioctl(gpu.as_fd(), number, &raw mut register as u64)?;
        let same = register.ctl_fd == ctl.as_raw_fd();
        writeln!(told, "registered: {done}, the same fd: {same}")?;

        let mut alloc = |root, parent, new, class: u32, params: u64| -> Result<(Handle, u32)> {
            let mut call = NVOS21_PARAMETERS {
                hRoot: root, hObjectParent: parent, hObjectNew: new, hClass: class,
                pAllocParms: P64(params), ..Record::zeroed()
            };
            let number = request::<frontend::NV_ESC_RM_ALLOC, NVOS21_PARAMETERS>();
            remote.ioctl(ctl.as_fd(), number, &raw mut call as u64)?;
            Ok((call.hObjectNew, call.status))
        };
        let (root, _) = alloc(Handle(0), Handle(0), Handle(0), class::NV01_ROOT::CLASS, 0)?;
        let mut params = abi::NV0080_ALLOC_PARAMETERS::zeroed();
        let number = class::NV01_DEVICE_0::CLASS;
        let (device, status) = alloc(root, root, Handle(0xcaf1), number, &raw mut params as u64)?;
        writeln!(told, "device {device}: status {status:#x}")?;

        let mut classes = abi::NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS::zeroed();
        let mut list = Vec::new();
        for _ in 0..2 {
            let mut call = NVOS54_PARAMETERS {
                hClient: root, hObject: device,
                cmd: control::NV0080_CTRL_CMD_GPU_GET_CLASSLIST::CMD,
                params: P64(&raw mut classes as u64), paramsSize: size_of_val(&classes) as u32,
                ..Record::zeroed()
            };
            let number = request::<frontend::NV_ESC_RM_CONTROL, NVOS54_PARAMETERS>();
            remote.ioctl(ctl.as_fd(), number, &raw mut call as u64)?;
            list.resize(classes.numClasses as usize, 0u32);
            classes.classList = P64(list.as_mut_ptr() as u64);
        }
        let filled = !list.contains(&0);
        writeln!(told, "classes: {}, all are there: {filled}", !list.is_empty())?;

        let mut start = abi::UVM_INITIALIZE_PARAMS::zeroed();
        remote.ioctl(uvm.as_fd(), uvm::UVM_INITIALIZE::REQUEST, &raw mut start as u64)?;
        writeln!(told, "UVM: status {:#x}", start.rmStatus)?;
        Result::Ok(())
    })
}

#[allow(dead_code)]
fn main() {
    if let Err(error) = run() {
        eprintln!("proxy: {error}");
        std::process::exit(1);
    }
}

/// Runs one of the two sides.
fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["device", socket] => device(socket, &version()?),
        ["device", socket, tag] => device(socket, tag),
        ["devices", socket] => devices(socket, &version()?),
        ["devices", socket, tag] => devices(socket, tag),
        ["run", socket, program, ref rest @ ..] => start(socket, program, rest),
        ["client", socket] => {
            let mut remote = Remote::connect(UnixStream::connect(socket)?)?;
            ask(&mut remote, &mut io::stdout())?;
            ask_gpu(&mut remote, &mut io::stdout())
        }
        _ => Err("usage: proxy device|devices SOCKET [TAG] | proxy client SOCKET | \
                  proxy run SOCKET PROGRAM …"
            .into()),
    }
}

pub(crate) fn device(socket: &str, tag: &str) -> Result<()> {
    let driver = AnyDriver::for_version(tag)?;
    let listener = UnixListener::bind(socket)?;
    eprintln!("proxy: {} at {socket}", driver.tag());
    let (stream, _) = listener.accept()?;
    // It serves one client, and a socket that stays would be in the next one's way.
    std::fs::remove_file(socket)?;
    serve(stream, driver, &Machine)
}

/// Serves every client, each in a process of its own, as the driver would have one for each.
fn devices(socket: &str, tag: &str) -> Result<()> {
    let driver = AnyDriver::for_version(tag)?;
    let listener = UnixListener::bind(socket)?;
    eprintln!("proxy: {} at {socket}", driver.tag());
    // SAFETY: children that have ended are not waited for.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }?;
    loop {
        let (stream, _) = listener.accept()?;
        // SAFETY: this process has one thread, so that the child may do all that it could.
        if let ForkResult::Child = unsafe { fork() }? {
            drop(listener);
            return serve(stream, driver, &Machine);
        }
    }
}

/// The variable that says to a program's library where the socket is.
pub(crate) const SOCKET: &str = "NVABI_PROXY";

/// Becomes a program whose calls go through the proxy.
fn start(socket: &str, program: &str, rest: &[&str]) -> Result<()> {
    let own = std::env::current_exe()?;
    let preload = own.with_file_name("libproxy_preload.so");
    if !preload.exists() {
        return Err(
            format!("{} is not there: build the example proxy_preload", preload.display()).into()
        );
    }
    Err(Command::new(program)
        .args(rest)
        .env("LD_PRELOAD", preload)
        .env(SOCKET, socket)
        .exec()
        .into())
}

/// The version of the driver that is loaded.
fn version() -> Result<String> {
    let mut version = String::new();
    File::open("/sys/module/nvidia/version")?.read_to_string(&mut version)?;
    Ok(version.trim().to_owned())
}
