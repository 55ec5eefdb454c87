//! Timeslice groups, and channels in them: what the GPU takes commands from.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::address_space::{AddressSpace, Buffer};
use super::call::{Outcome as _, call, own};
use super::class::{AMPERE_COMPUTE_B, AMPERE_DMA_COPY_B};
use super::device::{Device, before_mmio};
use super::error::{Error, ErrorKind, Notification, Result};
use super::memory::{Cache, Mapping, Memory, PAGE};
use super::push::{Push, Subchannel};
use super::r36::{self, ioctl as calls};
use super::release::Release;
use super::v35_4_1;
use crate::driver::Record as _;

/// The runlist of graphics and compute, whose channels copy as well.
const RUNLIST_GRAPHICS: i32 = -1;

/// Where the GPU and we tell each other how far the ring is (`Nvc46fControl`).
const GP_GET: usize = 0x88;
const GP_PUT: usize = 0x8c;

/// Room for commands that are under way.
const ARENA: u64 = 1 << 20;

/// How long a full ring may stay full before that is an error.
const PATIENCE: Duration = Duration::from_secs(10);

/// A timeslice group: channels that run together. Copies are the same group.
#[derive(Clone, Debug)]
pub struct Tsg(Arc<Group>);

#[derive(Debug)]
struct Group {
    device: Device,
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
            // SAFETY: the node is the control's, and there are no addresses.
            unsafe { call::<calls::NVGPU_GPU_IOCTL_OPEN_TSG>(device.ctrl(), &mut args) }
                .complete()?;
            args.tsg_fd
        } else {
            let mut args = v35_4_1::nvgpu_gpu_open_tsg_args::zeroed();
            // SAFETY: the node is the control's, and there are no addresses.
            unsafe { call::<v35_4_1::ioctl::NVGPU_GPU_IOCTL_OPEN_TSG>(device.ctrl(), &mut args) }
                .complete()?;
            args.tsg_fd
        };
        // SAFETY: the driver has just made it.
        let fd = unsafe { own(fd as i32, "NVGPU_GPU_IOCTL_OPEN_TSG") }?;
        Ok(Self(Arc::new(Group { device: device.clone(), fd })))
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
        // SAFETY: the node is a group, and there are no addresses.
        unsafe { call::<calls::NVGPU_IOCTL_TSG_SET_TIMESLICE>(self.fd(), &mut args) }.complete()
    }
}

/// The share of a group that works in one address space. Copies are the same one.
#[derive(Clone, Debug)]
pub struct Subcontext(Arc<Share>);

#[derive(Debug)]
struct Share {
    tsg: Tsg,
    space: AddressSpace,
    veid: u32,
}

impl Subcontext {
    /// Makes a subcontext that runs beside others. Before r36 all channels of a group are in the
    /// one that every group has.
    ///
    /// # Errors
    ///
    /// When there is none left, and what else the kernel refuses.
    pub fn new(tsg: &Tsg, space: &AddressSpace) -> Result<Self> {
        let mut veid = 0;
        if tsg.0.device.release() == Release::R36 {
            let mut args = r36::nvgpu_tsg_create_subcontext_args::zeroed();
            args.r#type = r36::NVGPU_TSG_SUBCONTEXT_TYPE_ASYNC;
            args.as_fd = space.fd().as_raw_fd();
            // SAFETY: the node is a group, and there are no addresses.
            unsafe { call::<calls::NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT>(tsg.fd(), &mut args) }
                .complete()?;
            veid = args.veid;
        }
        Ok(Self(Arc::new(Share { tsg: tsg.clone(), space: space.clone(), veid })))
    }

    /// Its number in the group.
    pub fn veid(&self) -> u32 {
        self.0.veid
    }

    /// The address space that it works in.
    pub fn address_space(&self) -> &AddressSpace {
        &self.0.space
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.tsg.0.device.release() == Release::R36 {
            let mut args = r36::nvgpu_tsg_delete_subcontext_args { veid: self.veid, reserved: 0 };
            // The group goes soon, and takes with it what is left.
            // SAFETY: the node is a group, and there are no addresses.
            let _ = unsafe {
                call::<calls::NVGPU_TSG_IOCTL_DELETE_SUBCONTEXT>(self.tsg.fd(), &mut args)
            };
        }
    }
}

/// A counter of host1x that a channel raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Syncpoint {
    /// Its number.
    pub id: u32,
    /// Where the GPU raises it.
    pub gpu_address: u64,
    /// What it was when the channel got it. A number that was used before starts high.
    pub value: u32,
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
/// The channel itself goes first, then what it used, then the subcontext.
pub struct Channel {
    fd: OwnedFd,
    gpfifo: Mapping,
    userd: Mapping,
    notifier: Mapping,
    arena: Arena,
    ring: Ring,
    token: u32,
    syncpoint: Syncpoint,
    _memory: [Memory; 3],
    subcontext: Subcontext,
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
    /// What the kernel refuses; nothing is left behind then.
    pub fn new(subcontext: &Subcontext, options: &ChannelOptions) -> Result<Self> {
        let Share { space, tsg, .. } = &*subcontext.0;
        let device = space.device();
        let fd = open(device)?;
        bind(&fd, subcontext, tsg)?;
        stop_watchdog(&fd)?;
        let memory = [
            // Small buffers of their own: the driver maps the whole of what it is given.
            Memory::allocate(device, u64::from(options.entries) * 8, Cache::WriteCombine)?,
            Memory::allocate(device, PAGE, Cache::WriteCombine)?,
            Memory::allocate(device, PAGE, Cache::Uncached)?,
        ];
        let token = setup(&fd, device, options.entries, &memory)?;
        let syncpoint = user_syncpoint(&fd)?;
        for (_, class) in &options.classes {
            allocate_class(&fd, *class)?;
        }
        set_notifier(&fd, &memory[2])?;
        device.map_usermode()?;
        let mut channel = Self {
            gpfifo: memory[0].map(None)?,
            userd: memory[1].map(None)?,
            notifier: memory[2].map(None)?,
            arena: Arena::new(space)?,
            ring: Ring { entries: options.entries, put: 0 },
            fd,
            token,
            syncpoint,
            _memory: memory,
            subcontext: subcontext.clone(),
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
        allocate_class(&self.fd, class)?;
        self.bind_classes(&[(subchannel, class)])
    }

    /// What the driver calls it when the doorbell rings.
    pub fn work_submit_token(&self) -> u32 {
        self.token
    }

    /// Its syncpoint.
    pub fn syncpoint(&self) -> Syncpoint {
        self.syncpoint
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
        tail.release(self.syncpoint.gpu_address, 0);
        let words = push.words().len() + tail.words().len();
        let at = self.room_for(words)?;
        self.arena.put(at, push.words());
        self.arena.put(at + push.words().len(), tail.words());
        self.arena.taken.push_back((ticket.sequence, at, at + words));
        self.arena.sequence = ticket.sequence;
        self.enter(self.arena.gpu_address(at), words as u32);
        Ok(ticket)
    }

    fn next(&self) -> Ticket {
        let sequence = self.arena.sequence.wrapping_add(1);
        Ticket { sequence, threshold: self.syncpoint.value.wrapping_add(sequence) }
    }

    /// Writes an entry of the ring and rings.
    fn enter(&mut self, address: u64, words: u32) {
        let at = self.ring.put as usize * 8;
        self.gpfifo.store(at, address as u32);
        self.gpfifo.store(at + 4, (address >> 32) as u32 & 0xff | words << 10);
        self.ring.put = self.ring.after(self.ring.put);
        // The entry before the count that covers it, and that before the doorbell.
        before_mmio();
        self.userd.store(GP_PUT, self.ring.put);
        self.subcontext.address_space().device().ring(self.token);
    }

    /// Waits for a free entry and for room in the arena.
    fn room_for(&mut self, words: usize) -> Result<usize> {
        if words > self.arena.words {
            return Err(Error::invalid(format!(
                "{words} words of commands do not fit: a channel takes {} at once",
                self.arena.words
            )));
        }
        let began = Instant::now();
        loop {
            let free =
                self.ring.after(self.ring.put) != self.userd.load(GP_GET) % self.ring.entries;
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
    /// the syncpoint is there.
    ///
    /// # Errors
    ///
    /// When the channel stops, or is not done in time; what the error notifier says is in it.
    pub fn wait(&self, ticket: Ticket, timeout: Duration) -> Result<()> {
        const LOOK: Duration = Duration::from_micros(50);
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
                self.sleep(ticket, left)?;
            }
        }
        Ok(())
    }

    /// Sleeps until the syncpoint is there, but not long: a channel that stopped never gets there.
    fn sleep(&self, ticket: Ticket, left: Duration) -> Result<()> {
        const LONGEST: Duration = Duration::from_millis(50);
        let left = left.min(LONGEST);
        let Some(node) = self.subcontext.address_space().device().fence() else {
            thread::sleep(left.min(Duration::from_micros(200)));
            return Ok(());
        };
        let mut args = r36::host1x_create_fence::zeroed();
        (args.id, args.threshold) = (self.syncpoint.id, ticket.threshold);
        // SAFETY: the node is that of fences, and there are no addresses.
        unsafe { call::<calls::HOST1X_IOCTL_CREATE_FENCE>(node, &mut args) }.complete()?;
        // SAFETY: the driver has just made it.
        let fence = unsafe { own(args.fence_fd, "HOST1X_IOCTL_CREATE_FENCE") }?;
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(fence.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(Error::io(ErrorKind::Call, "poll of a fence", errno.into())),
        }
    }

    /// What the driver wrote when it stopped the channel, if it did.
    pub fn notification(&self) -> Option<Notification> {
        let last = self.notifier.load(12);
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
        self.fd.as_fd()
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
    /// Sequence number, first word, and the word behind, of what is not done.
    taken: VecDeque<(u32, usize, usize)>,
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
        reached.wrapping_sub(sequence) < 1 << 31
    }

    /// A place for some words, when there is one.
    fn find(&mut self, words: usize) -> Option<usize> {
        while self.taken.front().is_some_and(|(sequence, ..)| self.is_done(*sequence)) {
            self.taken.pop_front();
        }
        let (Some((_, first, _)), Some((_, _, end))) = (self.taken.front(), self.taken.back())
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
    // SAFETY: the node is the control's, and there are no addresses.
    unsafe { call::<calls::NVGPU_GPU_IOCTL_OPEN_CHANNEL>(device.ctrl(), &mut args) }.complete()?;
    // SAFETY: whatever bytes there are, they are an integer.
    let fd = unsafe { args.anon0.out.channel_fd };
    // SAFETY: the driver has just made it.
    unsafe { own(fd, "NVGPU_GPU_IOCTL_OPEN_CHANNEL") }
}

/// First to the address space, then to the group: the driver compares the two.
fn bind(fd: &OwnedFd, subcontext: &Subcontext, tsg: &Tsg) -> Result<()> {
    let channel_fd = fd.as_raw_fd();
    let mut args = r36::nvgpu_as_bind_channel_args { channel_fd: channel_fd as u32 };
    let space = subcontext.address_space().fd();
    // SAFETY: the node is an address space, and there are no addresses of ours.
    unsafe { call::<calls::NVGPU_AS_IOCTL_BIND_CHANNEL>(space, &mut args) }.complete()?;
    let mut args = r36::nvgpu_tsg_bind_channel_ex_args::zeroed();
    (args.channel_fd, args.subcontext_id) = (channel_fd, subcontext.veid());
    // SAFETY: the node is a group, and there are no addresses.
    unsafe { call::<calls::NVGPU_TSG_IOCTL_BIND_CHANNEL_EX>(tsg.fd(), &mut args) }.complete()
}

/// A channel whose commands we write ourselves may not have one.
fn stop_watchdog(fd: &OwnedFd) -> Result<()> {
    let wdt_status = r36::NVGPU_IOCTL_CHANNEL_DISABLE_WDT;
    let mut args = r36::nvgpu_channel_wdt_args { wdt_status, timeout_ms: 0 };
    // SAFETY: the node is a channel, and there are no addresses.
    unsafe { call::<calls::NVGPU_IOCTL_CHANNEL_WDT>(fd.as_fd(), &mut args) }.complete()
}

/// Gives the driver the ring; the answer is what to write to the doorbell.
fn setup(fd: &OwnedFd, device: &Device, entries: u32, memory: &[Memory; 3]) -> Result<u32> {
    let [gpfifo, userd] = [&memory[0], &memory[1]].map(|memory| memory.dmabuf().as_raw_fd());
    // The one is refused without the other.
    let flags = r36::NVGPU_CHANNEL_SETUP_BIND_FLAGS_USERMODE_SUPPORT
        | r36::NVGPU_CHANNEL_SETUP_BIND_FLAGS_DETERMINISTIC;
    if device.release() == Release::R36 {
        let mut args = r36::nvgpu_channel_setup_bind_args::zeroed();
        (args.num_gpfifo_entries, args.flags) = (entries, flags);
        (args.gpfifo_dmabuf_fd, args.userd_dmabuf_fd) = (gpfifo, userd);
        // SAFETY: the node is a channel, and there are no addresses of ours.
        unsafe { call::<calls::NVGPU_IOCTL_CHANNEL_SETUP_BIND>(fd.as_fd(), &mut args) }
            .complete()?;
        return Ok(args.work_submit_token);
    }
    let mut args = v35_4_1::nvgpu_channel_setup_bind_args::zeroed();
    (args.num_gpfifo_entries, args.flags) = (entries, flags);
    (args.gpfifo_dmabuf_fd, args.userd_dmabuf_fd) = (gpfifo, userd);
    // SAFETY: the node is a channel, and there are no addresses of ours.
    unsafe { call::<v35_4_1::ioctl::NVGPU_IOCTL_CHANNEL_SETUP_BIND>(fd.as_fd(), &mut args) }
        .complete()?;
    Ok(args.work_submit_token)
}

fn user_syncpoint(fd: &OwnedFd) -> Result<Syncpoint> {
    let mut args = r36::nvgpu_get_user_syncpoint_args::zeroed();
    // SAFETY: the node is a channel, and there are no addresses of ours.
    unsafe { call::<calls::NVGPU_IOCTL_CHANNEL_GET_USER_SYNCPOINT>(fd.as_fd(), &mut args) }
        .complete()?;
    // What is called its maximum is its current value.
    Ok(Syncpoint { id: args.syncpoint_id, gpu_address: args.gpu_va, value: args.syncpoint_max })
}

fn allocate_class(fd: &OwnedFd, class: u32) -> Result<()> {
    let mut args = r36::nvgpu_alloc_obj_ctx_args::zeroed();
    args.class_num = class;
    // SAFETY: the node is a channel, and there are no addresses of ours.
    unsafe { call::<calls::NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX>(fd.as_fd(), &mut args) }.complete()
}

fn set_notifier(fd: &OwnedFd, memory: &Memory) -> Result<()> {
    let mut args = r36::nvgpu_set_error_notifier::zeroed();
    (args.size, args.mem) = (PAGE, memory.dmabuf().as_raw_fd() as u32);
    // SAFETY: the node is a channel, and there are no addresses of ours.
    unsafe { call::<calls::NVGPU_IOCTL_CHANNEL_SET_ERROR_NOTIFIER>(fd.as_fd(), &mut args) }
        .complete()
}
