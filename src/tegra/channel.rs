//! Timeslice groups, and channels in them: what the GPU takes commands from.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::address_space::{AddressSpace, Buffer};
use super::call::{call, own};
use super::class::{AMPERE_COMPUTE_B, AMPERE_DMA_COPY_B};
use super::device::{Device, after_wait, before_mmio};
use super::error::{Error, ErrorKind, Notification, Result};
use super::memory::{Cache, Mapping, Memory, PAGE};
use super::push::{Push, Subchannel};
use super::r36::{self, ioctl as calls};
use super::release::Release;
use super::v35_4_1;
use crate::driver::Record as _;

/// The runlist of graphics and compute, whose channels copy as well.
const RUNLIST_GRAPHICS: i32 = -1;

/// Where the GPU is told how far the ring is filled (`Nvc46fControl`).
const GP_PUT: usize = 0x8c;

/// Room for commands that are under way.
const ARENA: u64 = 1 << 20;

/// The most words that an entry of the ring is for (`NVC46F_GP_ENTRY1_LENGTH`, 21 bits).
const MOST_WORDS: u32 = (1 << 21) - 1;

/// How long a full ring may stay full before that is an error.
const PATIENCE: Duration = Duration::from_secs(10);

/// A timeslice group: channels that run together. Copies are the same group.
#[derive(Clone, Debug)]
pub struct Tsg(Arc<Group>);

#[derive(Debug)]
struct Group {
    release: Release,
    fd: OwnedFd,
}

impl Tsg {
    /// Makes a group.
    ///
    /// # Errors
    ///
    /// When there are 512 already, and what else the kernel refuses.
    pub fn new(device: &Device) -> Result<Self> {
        let fd = if device.release() == Release::R36 {
            let mut args = r36::nvgpu_gpu_open_tsg_args::zeroed();
            // SAFETY: the fd is of `Device::ctrl`, so of the node that has this call; its parameters hold no address of
            // this process.
            unsafe { call::<calls::NVGPU_GPU_IOCTL_OPEN_TSG>(device.ctrl(), &mut args) }?;
            args.tsg_fd
        } else {
            let mut args = v35_4_1::nvgpu_gpu_open_tsg_args::zeroed();
            // SAFETY: the fd is of `Device::ctrl`, so of the node that has this call; its parameters hold no address of
            // this process.
            unsafe { call::<v35_4_1::ioctl::NVGPU_GPU_IOCTL_OPEN_TSG>(device.ctrl(), &mut args) }?;
            args.tsg_fd
        };
        // SAFETY: the call has succeeded, and the driver installs a new fd for each that does.
        let fd = unsafe { own(fd as i32, "NVGPU_GPU_IOCTL_OPEN_TSG") }?;
        Ok(Self(Arc::new(Group { release: device.release(), fd })))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }

    /// How long the group runs before another may, in microseconds: 1000 to 50000.
    ///
    /// # Errors
    ///
    /// When it is outside, and what else the kernel refuses.
    pub fn set_timeslice(&self, microseconds: u32) -> Result<()> {
        let mut args = r36::nvgpu_timeslice_args { timeslice_us: microseconds, reserved: 0 };
        // SAFETY: the fd is of `Tsg::fd`, so of the node that has this call; its parameters hold no address of
        // this process.
        unsafe { call::<calls::NVGPU_IOCTL_TSG_SET_TIMESLICE>(self.fd(), &mut args) }
    }
}

/// The share of a group that works in one address space. Copies are the same one.
///
/// The driver gives it a number with the first channel in it, and takes the number back when the
/// last of them closes.
#[derive(Clone, Debug)]
pub struct Subcontext(Arc<Share>);

#[derive(Debug)]
struct Share {
    tsg: Tsg,
    space: AddressSpace,
    seats: Mutex<SubcontextUse>,
}

/// The channels of a subcontext that are open.
#[derive(Debug, Default)]
struct SubcontextUse {
    veid: u32,
    taken: usize,
}

impl Subcontext {
    /// A subcontext that runs beside others of its group. Before r36 all channels of a group are in
    /// the one that every group has.
    pub fn new(tsg: &Tsg, space: &AddressSpace) -> Self {
        let seats = Mutex::new(SubcontextUse::default());
        Self(Arc::new(Share { tsg: tsg.clone(), space: space.clone(), seats }))
    }

    /// Its number in the group, while there are channels in it.
    pub fn veid(&self) -> Option<u32> {
        let seats = self.seats();
        (seats.taken > 0).then_some(seats.veid)
    }

    /// The address space that it works in.
    pub fn address_space(&self) -> &AddressSpace {
        &self.0.space
    }

    /// Nothing is left half done when a thread that holds these panics.
    fn seats(&self) -> MutexGuard<'_, SubcontextUse> {
        self.0.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_numbered(&self) -> bool {
        self.0.tsg.0.release == Release::R36
    }

    /// The number for a channel: made for the first.
    fn number(&self, seats: &SubcontextUse) -> Result<u32> {
        if seats.taken > 0 || !self.is_numbered() {
            return Ok(seats.veid);
        }
        let mut args = r36::nvgpu_tsg_create_subcontext_args::zeroed();
        args.r#type = r36::NVGPU_TSG_SUBCONTEXT_TYPE_ASYNC;
        args.as_fd = self.0.space.fd().as_raw_fd();
        // SAFETY: the fd is of `Tsg::fd`, so of the node that has this call; its parameters hold no address of
        // this process.
        unsafe { call::<calls::NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT>(self.0.tsg.fd(), &mut args) }?;
        Ok(args.veid)
    }

    /// Gives back a number that no channel got.
    fn give_back(&self, veid: u32) {
        if self.is_numbered() {
            let mut args = r36::nvgpu_tsg_delete_subcontext_args { veid, reserved: 0 };
            // The group goes soon, and takes with it what is left.
            // SAFETY: the fd is of `Tsg::fd`, so of the node that has this call; its parameters hold no address of
            // this process.
            let _ = unsafe {
                call::<calls::NVGPU_TSG_IOCTL_DELETE_SUBCONTEXT>(self.0.tsg.fd(), &mut args)
            };
        }
    }
}

/// A channel's fd and its place in a subcontext.
#[derive(Debug)]
struct BoundChannel {
    /// There until it is dropped.
    fd: Option<OwnedFd>,
    subcontext: Subcontext,
}

impl BoundChannel {
    fn take(subcontext: &Subcontext) -> Result<Self> {
        let Share { tsg, space, .. } = &*subcontext.0;
        let fd = open(space.device())?;
        bind_space(&fd, space)?;
        let mut seats = subcontext.seats();
        let veid = subcontext.number(&seats)?;
        if let Err(error) = bind_group(&fd, tsg, veid) {
            if seats.taken == 0 {
                subcontext.give_back(veid);
            }
            return Err(error);
        }
        *seats = SubcontextUse { veid, taken: seats.taken + 1 };
        drop(seats);
        Ok(Self { fd: Some(fd), subcontext: subcontext.clone() })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.fd {
            Some(fd) => fd.as_fd(),
            // It is taken by `drop` alone.
            None => self.subcontext.0.tsg.fd(),
        }
    }
}

impl Drop for BoundChannel {
    fn drop(&mut self) {
        // Nobody may be given the number between the last close and the count that says so.
        let mut seats = self.subcontext.seats();
        self.fd = None;
        seats.taken = seats.taken.saturating_sub(1);
    }
}

/// A counter of host1x that a channel raises, and that others can wait for. It is the channel's and
/// goes with it.
#[derive(Debug)]
pub struct Syncpoint {
    device: Device,
    id: u32,
    gpu_address: u64,
    first: u32,
}

impl Syncpoint {
    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Where the GPU raises it: by one, whatever is written there.
    pub fn gpu_address(&self) -> u64 {
        self.gpu_address
    }

    /// What it was when the channel got it. A number that was used before starts high.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// A sync file that is signalled when the counter has reached a value, to hand to others;
    /// `None` before r36, which has no node for that.
    ///
    /// # Errors
    ///
    /// What the kernel refuses.
    pub fn fence(&self, threshold: u32) -> Result<Option<OwnedFd>> {
        let Some(node) = self.device.fence() else { return Ok(None) };
        let mut args = r36::host1x_create_fence::zeroed();
        (args.id, args.threshold) = (self.id, threshold);
        // SAFETY: the fd is of `Device`, so of the node that has this call; its parameters hold no address of
        // this process.
        unsafe { call::<calls::HOST1X_IOCTL_CREATE_FENCE>(node, &mut args) }?;
        // SAFETY: the call has succeeded, and the driver installs a new fd for each that does.
        unsafe { own(args.fence_fd, "HOST1X_IOCTL_CREATE_FENCE") }.map(Some)
    }

    /// Waits until the counter has reached a value; `false` when it has not in time. Before r36 there is
    /// nothing to wait on: it says so at once.
    ///
    /// # Errors
    ///
    /// What the kernel refuses.
    pub fn wait(&self, threshold: u32, timeout: Duration) -> Result<bool> {
        self.fence(threshold)?.map_or(Ok(false), |fence| wait_for_fence(fence.as_fd(), timeout))
    }
}

/// Waits until a sync file is signalled, whoever made it; `false` when it is not in time.
///
/// # Errors
///
/// When it is no file that can be waited for.
pub fn wait_for_fence(fence: BorrowedFd<'_>, timeout: Duration) -> Result<bool> {
    let began = Instant::now();
    loop {
        let left = timeout.saturating_sub(began.elapsed());
        // A part of a millisecond is waited for as well.
        let left = PollTimeout::try_from(left + Duration::from_micros(999));
        let mut polled = [PollFd::new(fence, PollFlags::POLLIN)];
        match poll(&mut polled, left.unwrap_or(PollTimeout::MAX)) {
            Ok(0) => return Ok(false),
            Ok(_) if polled[0].revents().is_some_and(|it| it.contains(PollFlags::POLLNVAL)) => {
                return Err(Error::io(ErrorKind::Call, "poll of a fence", Errno::EBADF.into()));
            }
            Ok(_) => return Ok(true),
            // A signal does not end the wait.
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::io(ErrorKind::Call, "poll of a fence", errno.into())),
        }
    }
}

/// What to make a channel with.
#[derive(Debug, Clone)]
pub struct ChannelOptions {
    /// Entries of the ring: a power of two, at least 2.
    pub entries: u32,
    /// The classes that it takes commands for.
    pub classes: Vec<(Subchannel, u32)>,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        Self {
            entries: 1024,
            classes: vec![
                (Subchannel::Compute, AMPERE_COMPUTE_B),
                (Subchannel::Copy, AMPERE_DMA_COPY_B),
            ],
        }
    }
}

/// A channel: commands go in, and are done one after the other.
///
/// The channel itself goes first, then what it used.
pub struct Channel {
    binding: BoundChannel,
    gpfifo: Mapping,
    userd: Mapping,
    notifier: Mapping,
    arena: Arena,
    ring: Ring,
    token: u32,
    syncpoint: Syncpoint,
    _memory: [Memory; 3],
}

/// Something that was sent: what the counters are when it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    sequence: u32,
    threshold: u32,
}

impl Ticket {
    /// What the channel's syncpoint is when it is done.
    pub fn threshold(self) -> u32 {
        self.threshold
    }
}

impl Channel {
    /// Makes a channel, in the order that the driver wants: address space, group, watchdog off,
    /// ring, syncpoint, classes, error notifier.
    ///
    /// # Errors
    ///
    /// When the entries are no power of two or fewer than two, and what the kernel refuses; nothing
    /// is left behind then.
    pub fn new(subcontext: &Subcontext, options: &ChannelOptions) -> Result<Self> {
        if !options.entries.is_power_of_two() || options.entries < 2 {
            let message = format!("a ring has no {} entries: it takes 2, 4, 8, …", options.entries);
            return Err(Error::invalid(message));
        }
        let space = subcontext.address_space();
        let device = space.device();
        let binding = BoundChannel::take(subcontext)?;
        let fd = binding.fd();
        stop_watchdog(fd)?;
        let memory = [
            // Small buffers of their own: the driver maps the whole of what it is given.
            Memory::allocate(device, u64::from(options.entries) * 8, Cache::WriteCombine)?,
            Memory::allocate(device, PAGE, Cache::WriteCombine)?,
            Memory::allocate(device, PAGE, Cache::WriteCombine)?,
        ];
        let token = setup(fd, device, options.entries, &memory)?;
        let syncpoint = user_syncpoint(fd, device)?;
        for (_, class) in &options.classes {
            allocate_class(fd, *class)?;
        }
        set_notifier(fd, &memory[2])?;
        device.map_usermode()?;
        let mut channel = Self {
            gpfifo: memory[0].map(None)?,
            userd: memory[1].map(None)?,
            notifier: memory[2].map(None)?,
            arena: Arena::new(space)?,
            ring: Ring { entries: options.entries, put: 0 },
            binding,
            token,
            syncpoint,
            _memory: memory,
        };
        channel.bind_classes(&options.classes)?;
        Ok(channel)
    }

    fn bind_classes(&mut self, classes: &[(Subchannel, u32)]) -> Result<()> {
        let mut push = Push::new();
        for (subchannel, class) in classes {
            push.set_object(*subchannel, *class);
        }
        if push.is_empty() {
            return Ok(());
        }
        self.submit(&push).map(|_| ())
    }

    /// Lets the channel take commands for one more class.
    ///
    /// # Errors
    ///
    /// When it is no class of this GPU, and what else the kernel refuses.
    pub fn add_class(&mut self, subchannel: Subchannel, class: u32) -> Result<()> {
        allocate_class(self.binding.fd(), class)?;
        self.bind_classes(&[(subchannel, class)])
    }

    /// What the driver calls it when the doorbell rings.
    pub fn work_submit_token(&self) -> u32 {
        self.token
    }

    /// Its syncpoint.
    pub fn syncpoint(&self) -> &Syncpoint {
        &self.syncpoint
    }

    /// Sends commands. Waits while the ring or the room for commands is full.
    ///
    /// # Errors
    ///
    /// When there is more than fits at once, the channel has stopped, or stays full.
    pub fn submit(&mut self, push: &Push) -> Result<Ticket> {
        self.check()?;
        let ticket = self.next();
        let mut tail = Push::new();
        tail.release(self.arena.semaphore(), ticket.sequence);
        // Whatever is written to its address raises it by one.
        tail.release(self.syncpoint.gpu_address(), 0);
        let words = push.words().len() + tail.words().len();
        let at = self.room_for(words, 1)?;
        self.arena.put(at, push.words());
        self.arena.put(at + push.words().len(), tail.words());
        self.arena.taken.push_back(Taken { ticket, first: at, end: at + words, entries: 1 });
        self.arena.sequence = ticket.sequence;
        self.enter(self.arena.gpu_address(at), words as u32);
        self.ring();
        Ok(ticket)
    }

    /// Sends commands that lie in a buffer of the caller's, `words` from the byte `offset` on, without a copy of
    /// them. They are to stay there, unchanged, until the ticket is done.
    ///
    /// # Errors
    ///
    /// When the buffer does not hold them, the channel has stopped, or stays full.
    pub fn submit_in_place(&mut self, buffer: &Buffer, offset: u64, words: u32) -> Result<Ticket> {
        self.check()?;
        let end = u64::from(words).checked_mul(4).and_then(|bytes| bytes.checked_add(offset));
        if words == 0
            || words > MOST_WORDS
            || offset % 4 != 0
            || end.is_none_or(|end| end > buffer.size())
        {
            return Err(Error::invalid(format!(
                "{words} words from byte {offset} on are no commands in a buffer of {} bytes: \
                 1 to {MOST_WORDS} from a multiple of 4 on can be",
                buffer.size()
            )));
        }
        let ticket = self.next();
        let mut tail = Push::new();
        tail.release(self.arena.semaphore(), ticket.sequence);
        tail.release(self.syncpoint.gpu_address(), 0);
        let length = tail.words().len();
        let at = self.room_for(length, 2)?;
        self.arena.put(at, tail.words());
        self.arena.taken.push_back(Taken { ticket, first: at, end: at + length, entries: 2 });
        self.arena.sequence = ticket.sequence;
        self.enter(buffer.gpu_address() + offset, words);
        self.enter(self.arena.gpu_address(at), length as u32);
        self.ring();
        Ok(ticket)
    }

    fn next(&self) -> Ticket {
        let sequence = self.arena.sequence.wrapping_add(1);
        Ticket { sequence, threshold: self.syncpoint.first().wrapping_add(sequence) }
    }

    /// Writes an entry of the ring.
    fn enter(&mut self, address: u64, words: u32) {
        let at = self.ring.put as usize * 8;
        self.gpfifo.store(at, address as u32);
        self.gpfifo.store(at + 4, (address >> 32) as u32 & 0xff | words << 10);
        self.ring.put = self.ring.after(self.ring.put);
    }

    /// Tells the GPU of all entries that were written.
    fn ring(&mut self) {
        // The entry before the count that covers it, and that before the doorbell.
        before_mmio();
        self.userd.store(GP_PUT, self.ring.put);
        self.syncpoint.device.ring(self.token);
    }

    /// Waits for free entries and for room in the arena.
    fn room_for(&mut self, words: usize, entries: usize) -> Result<usize> {
        if entries >= self.ring.entries as usize {
            return Err(Error::invalid(format!(
                "{entries} entries do not fit: a ring of {} takes {} at once",
                self.ring.entries,
                self.ring.entries - 1
            )));
        }
        if words > self.arena.words {
            return Err(Error::invalid(format!(
                "{words} words of commands do not fit: a channel takes {} at once",
                self.arena.words
            )));
        }
        let began = Instant::now();
        loop {
            self.arena.settle();
            // A ring that is full to the last entry looks empty.
            let taken: usize = self.arena.taken.iter().map(|taken| taken.entries).sum();
            let free = taken + entries < self.ring.entries as usize;
            if let (true, Some(at)) = (free, self.arena.find(words)) {
                return Ok(at);
            }
            self.check()?;
            if began.elapsed() > PATIENCE {
                return Err(Error::timeout(PATIENCE, self.notification()));
            }
            thread::yield_now();
        }
    }

    /// Whether something that was sent is done.
    pub fn is_done(&self, ticket: Ticket) -> bool {
        self.arena.is_done(ticket.sequence)
    }

    /// Waits until something that was sent is done: by looking for a moment, then by sleeping until
    /// the syncpoint is there. Before r36 nothing wakes it: it sleeps for a tenth of the time that it has waited,
    /// so that it is late by no more than that.
    ///
    /// # Errors
    ///
    /// When the channel stops, or is not done in time; what the error notifier says is in it.
    pub fn wait(&self, ticket: Ticket, timeout: Duration) -> Result<()> {
        const LOOK: Duration = Duration::from_micros(50);
        const LONGEST: Duration = Duration::from_millis(50);
        let began = Instant::now();
        while !self.is_done(ticket) {
            self.check()?;
            let left = timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(Error::timeout(timeout, self.notification()));
            }
            if began.elapsed() < LOOK {
                std::hint::spin_loop();
            } else {
                // Not long: a channel that stopped never gets there.
                match self.syncpoint.fence(ticket.threshold)? {
                    Some(fence) => {
                        wait_for_fence(fence.as_fd(), left.min(LONGEST))?;
                    }
                    None => thread::sleep((began.elapsed() / 10).min(left).min(LONGEST)),
                }
            }
        }
        Ok(())
    }

    /// What the driver wrote when it stopped the channel, if it did.
    pub fn notification(&self) -> Option<Notification> {
        let last = self.notifier.load(12);
        after_wait();
        let notification = Notification {
            info32: self.notifier.load(8),
            info16: last as u16,
            status: (last >> 16) as u16,
        };
        (notification.status == 0xffff).then_some(notification)
    }

    fn check(&self) -> Result<()> {
        self.notification().map_or(Ok(()), |notification| Err(Error::fault(notification)))
    }

    /// The fd of the channel, for ioctls that this module does not make.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.binding.fd()
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { token, syncpoint, ring, .. } = self;
        f.debug_struct("Channel")
            .field("token", &format_args!("{token:#x}"))
            .field("syncpoint", syncpoint)
            .field("put", &ring.put)
            .finish_non_exhaustive()
    }
}

/// Where the next entry goes.
struct Ring {
    entries: u32,
    put: u32,
}

impl Ring {
    fn after(&self, at: u32) -> u32 {
        (at + 1) % self.entries
    }
}

/// Commands that are under way, and behind them the word that tells how far the GPU is.
struct Arena {
    buffer: Buffer,
    /// How many words of commands it holds.
    words: usize,
    /// The last sequence number that was sent.
    sequence: u32,
    /// What is not done.
    taken: VecDeque<Taken>,
}

/// Commands that are under way.
#[derive(Clone, Copy)]
struct Taken {
    ticket: Ticket,
    /// Their first word in the arena, and the one behind them.
    first: usize,
    end: usize,
    /// Entries of the ring.
    entries: usize,
}

impl Arena {
    fn new(space: &AddressSpace) -> Result<Self> {
        let buffer = space.allocate(ARENA + PAGE, Cache::WriteCombine)?;
        Ok(Self { buffer, words: (ARENA / 4) as usize, sequence: 0, taken: VecDeque::new() })
    }

    fn semaphore(&self) -> u64 {
        self.buffer.gpu_address() + ARENA
    }

    fn gpu_address(&self, word: usize) -> u64 {
        self.buffer.gpu_address() + word as u64 * 4
    }

    fn put(&self, at: usize, words: &[u32]) {
        for (i, word) in words.iter().enumerate() {
            self.buffer.cpu().store((at + i) * 4, *word);
        }
    }

    fn is_done(&self, sequence: u32) -> bool {
        // With wrap-around: what is less than half the numbers ahead is not there yet.
        let reached = self.buffer.cpu().load(ARENA as usize);
        after_wait();
        reached.wrapping_sub(sequence) < 1 << 31
    }

    /// Forgets what is done.
    fn settle(&mut self) {
        while self.taken.front().is_some_and(|taken| self.is_done(taken.ticket.sequence)) {
            self.taken.pop_front();
        }
    }

    /// A place for some words, when there is one.
    fn find(&self, words: usize) -> Option<usize> {
        let (Some(Taken { first, .. }), Some(Taken { end, .. })) =
            (self.taken.front(), self.taken.back())
        else {
            return Some(0);
        };
        if end > first {
            // Free are the end and, before what is taken, the beginning.
            return match (end + words <= self.words, words < *first) {
                (true, _) => Some(*end),
                (false, true) => Some(0),
                (false, false) => None,
            };
        }
        (end + words < *first).then_some(*end)
    }
}

fn open(device: &Device) -> Result<OwnedFd> {
    let mut args = r36::nvgpu_gpu_open_channel_args::zeroed();
    args.anon0.r#in.runlist_id = RUNLIST_GRAPHICS;
    // SAFETY: the fd is of `Device::ctrl`, so of the node that has this call; its parameters hold no address of
    // this process.
    unsafe { call::<calls::NVGPU_GPU_IOCTL_OPEN_CHANNEL>(device.ctrl(), &mut args) }?;
    // SAFETY: `args` was zeroed, so all of the union is initialised, and the member is an integer.
    let fd = unsafe { args.anon0.out.channel_fd };
    // SAFETY: the call has succeeded, and the driver installs a new fd for each that does.
    unsafe { own(fd, "NVGPU_GPU_IOCTL_OPEN_CHANNEL") }
}

/// Before the group: the driver compares the address spaces of the two.
fn bind_space(fd: &OwnedFd, space: &AddressSpace) -> Result<()> {
    let mut args = r36::nvgpu_as_bind_channel_args { channel_fd: fd.as_raw_fd() as u32 };
    // SAFETY: the fd is of `AddressSpace::fd`, so of the node that has this call; its parameters hold no address of
    // this process.
    unsafe { call::<calls::NVGPU_AS_IOCTL_BIND_CHANNEL>(space.fd(), &mut args) }
}

fn bind_group(fd: &OwnedFd, tsg: &Tsg, veid: u32) -> Result<()> {
    let mut args = r36::nvgpu_tsg_bind_channel_ex_args::zeroed();
    (args.channel_fd, args.subcontext_id) = (fd.as_raw_fd(), veid);
    // SAFETY: the fd is of `Tsg::fd`, so of the node that has this call; its parameters hold no address of
    // this process.
    unsafe { call::<calls::NVGPU_TSG_IOCTL_BIND_CHANNEL_EX>(tsg.fd(), &mut args) }
}

/// A channel whose commands we write ourselves may not have one.
fn stop_watchdog(fd: BorrowedFd<'_>) -> Result<()> {
    let wdt_status = r36::NVGPU_IOCTL_CHANNEL_DISABLE_WDT;
    let mut args = r36::nvgpu_channel_wdt_args { wdt_status, timeout_ms: 0 };
    // SAFETY: the fd is of `open`, so of the node that has this call; its parameters hold no address of
    // this process.
    unsafe { call::<calls::NVGPU_IOCTL_CHANNEL_WDT>(fd, &mut args) }
}

/// Gives the driver the ring; the answer is what to write to the doorbell.
fn setup(fd: BorrowedFd<'_>, device: &Device, entries: u32, memory: &[Memory; 3]) -> Result<u32> {
    let [gpfifo, userd] = [&memory[0], &memory[1]].map(|memory| memory.dmabuf().as_raw_fd());
    // The one is refused without the other.
    let flags = r36::NVGPU_CHANNEL_SETUP_BIND_FLAGS_USERMODE_SUPPORT
        | r36::NVGPU_CHANNEL_SETUP_BIND_FLAGS_DETERMINISTIC;
    if device.release() == Release::R36 {
        let mut args = r36::nvgpu_channel_setup_bind_args::zeroed();
        (args.num_gpfifo_entries, args.flags) = (entries, flags);
        (args.gpfifo_dmabuf_fd, args.userd_dmabuf_fd) = (gpfifo, userd);
        // SAFETY: the fd is of `open`, so of the node that has this call; its parameters hold no address of
        // this process.
        unsafe { call::<calls::NVGPU_IOCTL_CHANNEL_SETUP_BIND>(fd, &mut args) }?;
        return Ok(args.work_submit_token);
    }
    let mut args = v35_4_1::nvgpu_channel_setup_bind_args::zeroed();
    (args.num_gpfifo_entries, args.flags) = (entries, flags);
    (args.gpfifo_dmabuf_fd, args.userd_dmabuf_fd) = (gpfifo, userd);
    // SAFETY: the fd is of `open`, so of the node that has this call; its parameters hold no address of
    // this process.
    unsafe { call::<v35_4_1::ioctl::NVGPU_IOCTL_CHANNEL_SETUP_BIND>(fd, &mut args) }?;
    Ok(args.work_submit_token)
}

fn user_syncpoint(fd: BorrowedFd<'_>, device: &Device) -> Result<Syncpoint> {
    let mut args = r36::nvgpu_get_user_syncpoint_args::zeroed();
    // SAFETY: the fd is of `open`, so of the node that has this call; its parameters hold no address of
    // this process.
    unsafe { call::<calls::NVGPU_IOCTL_CHANNEL_GET_USER_SYNCPOINT>(fd, &mut args) }?;
    // What is called its maximum is its current value.
    let (id, gpu_address, first) = (args.syncpoint_id, args.gpu_va, args.syncpoint_max);
    Ok(Syncpoint { device: device.clone(), id, gpu_address, first })
}

fn allocate_class(fd: BorrowedFd<'_>, class: u32) -> Result<()> {
    let mut args = r36::nvgpu_alloc_obj_ctx_args::zeroed();
    args.class_num = class;
    // SAFETY: the fd is of `open`, so of the node that has this call; its parameters hold no address of
    // this process.
    unsafe { call::<calls::NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX>(fd, &mut args) }
}

fn set_notifier(fd: BorrowedFd<'_>, memory: &Memory) -> Result<()> {
    let mut args = r36::nvgpu_set_error_notifier::zeroed();
    (args.size, args.mem) = (PAGE, memory.dmabuf().as_raw_fd() as u32);
    // SAFETY: the fd is of `open`, so of the node that has this call; its parameters hold no address of
    // this process.
    unsafe { call::<calls::NVGPU_IOCTL_CHANNEL_SET_ERROR_NOTIFIER>(fd, &mut args) }
}
