//! Section 8.11 and the engines: work that is executed.

use std::rc::Rc;
use std::time::{Duration, Instant};

use nvabi::call::Ioctl;

use crate::client::*;
use crate::{reported, rules};

/// A channel that takes work, and memory that it can reach.
struct Gpu {
    bound: Bound,
    ring: Map,
    userd: Map,
    doorbell: Rc<Map>,
    commands: Map,
    commands_at: u64,
    notifier: Map,
    token: u32,
    put: u32,
}

/// Memory of both sides.
struct Both {
    cpu: Map,
    at: u64,
}

const ENTRIES: u32 = 1024;
const SLOT: usize = 4096;

impl Gpu {
    fn new() -> Self {
        let bound = bound();
        Self::on(bound, Rc::new(mmap(bound.ctrl, 0x1_0000, 0).unwrap()))
    }

    /// Another channel, rung by the same doorbell.
    fn beside(&self, channel: Fd) -> Self {
        Self::on(self.bound.beside(channel), self.doorbell.clone())
    }

    fn on(bound: Bound, doorbell: Rc<Map>) -> Self {
        let (ring, userd) = bound.buffers();
        let token = setup(bound.channel, ring, userd).unwrap();
        let notifier_fd = buffer(bound.nvmap, 4096);
        notifier(bound.channel, notifier_fd, 0).unwrap();
        let commands_fd = buffer(bound.nvmap, 16 * SLOT as u32);
        let (ring_map, userd_map) = (mmap(ring, 8192, 0).unwrap(), mmap(userd, 4096, 0).unwrap());
        let notifier_map = mmap(notifier_fd, 4096, 0).unwrap();
        // The channel and the mappings hold them.
        for fd in [ring, userd, notifier_fd] {
            close(fd);
        }
        Self {
            ring: ring_map,
            userd: userd_map,
            doorbell,
            commands: mmap(commands_fd, 16 * SLOT, 0).unwrap(),
            commands_at: map(bound.space, commands_fd).unwrap(),
            notifier: notifier_map,
            bound,
            token,
            put: 0,
        }
    }

    fn memory(&self, size: u32) -> Both {
        let fd = buffer(self.bound.nvmap, size);
        Both { cpu: mmap(fd, size as usize, 0).unwrap(), at: map(self.bound.space, fd).unwrap() }
    }

    /// Memory that nobody but the GPU has, full of a byte.
    fn memory_alone(&self, size: u32, byte: u8) -> u64 {
        let fd = buffer(self.bound.nvmap, size);
        mmap(fd, size as usize, 0).unwrap().bytes().fill(byte);
        let at = map(self.bound.space, fd).unwrap();
        close(fd);
        at
    }

    /// Pages of the program's own, and where the GPU sees them.
    fn own_pages(&self, count: usize) -> Both {
        let cpu = own_pages(count);
        let sizes = (count as u32 * 4096, 0);
        let handle = from_va(self.bound.nvmap, cpu.at(0), sizes, 0x900 << 16).unwrap();
        let fd = get_fd(self.bound.nvmap, handle).unwrap();
        let at = map(self.bound.space, fd).unwrap();
        free(self.bound.nvmap, handle).unwrap();
        close(fd);
        Both { cpu, at }
    }

    /// Puts commands into the ring, and tells nobody.
    fn queue(&mut self, words: &[u32]) {
        let slot = self.put as usize % 16 * SLOT;
        assert!(words.len() * 4 <= SLOT);
        for (i, word) in words.iter().enumerate() {
            self.commands.write(slot + i * 4, *word);
        }
        let entry = (self.commands_at + slot as u64) | (words.len() as u64) << 42;
        self.ring.write(self.put as usize % ENTRIES as usize * 8, entry as u32);
        self.ring.write(self.put as usize % ENTRIES as usize * 8 + 4, (entry >> 32) as u32);
        self.put = (self.put + 1) % ENTRIES;
        self.userd.write(0x8C, self.put);
    }

    fn knock(&self) {
        self.doorbell.write(0x90, self.token);
    }

    fn submit(&mut self, words: &[u32]) {
        self.queue(words);
        self.knock();
    }

    fn done(&self) -> bool {
        self.userd.read(0x88) == self.put
    }

    fn wait(&self) {
        soon(|| self.done());
    }

    /// What the notifier says: error and status.
    fn error(&self) -> (u32, u32) {
        soon(|| self.notifier.read(12) != 0);
        (self.notifier.read(8), self.notifier.read(12) >> 16)
    }
}

/// A channel whose ring is the driver's, and commands in memory that it can reach.
struct Submitted {
    bound: Bound,
    commands: Map,
    commands_at: u64,
    used: usize,
}

impl Submitted {
    fn new() -> Self {
        Self::on(bound(), 0)
    }

    fn on(bound: Bound, flags: u32) -> Self {
        let mut args = nvgpu_channel_setup_bind_args { num_gpfifo_entries: 8, flags, ..zeroed() };
        call::<NVGPU_IOCTL_CHANNEL_SETUP_BIND>(bound.channel, &mut args).unwrap();
        let fd = buffer(bound.nvmap, 1 << 16);
        let (commands, commands_at) =
            (mmap(fd, 1 << 16, 0).unwrap(), map(bound.space, fd).unwrap());
        Self { bound, commands, commands_at, used: 0 }
    }

    fn beside(&self) -> Self {
        Self::on(self.bound.beside(channel(self.bound.ctrl)), 0)
    }

    /// The entry of some commands.
    fn entry(&mut self, words: &[u32]) -> u64 {
        let at = self.used * 4;
        for (i, word) in words.iter().enumerate() {
            self.commands.write(at + i * 4, *word);
        }
        self.used += words.len();
        (self.commands_at + at as u64) | (words.len() as u64) << 42
    }

    fn send(&self, entries: &[u64], flags: u32, fence: (u32, u32)) -> Result<(u32, u32)> {
        let mut args = nvgpu_submit_gpfifo_args {
            gpfifo: entries.as_ptr() as u64,
            num_entries: entries.len() as u32,
            flags,
            fence: nvgpu_fence { id: fence.0, value: fence.1 },
        };
        call::<NVGPU_IOCTL_CHANNEL_SUBMIT_GPFIFO>(self.bound.channel, &mut args)?;
        Ok((args.fence.id, args.fence.value))
    }
}

/// A sparse reservation of some pages.
fn sparse(space: Fd, pages: u64) -> u64 {
    let mut args = nvgpu_as_alloc_space_args { pages, page_size: 4096, flags: 2, ..zeroed() };
    call::<NVGPU_AS_IOCTL_ALLOC_SPACE>(space, &mut args).unwrap();
    unsafe { args.o_a.offset }
}

/// One page of a dma-buf.
fn remap_op(fd: Fd, at: u64) -> nvgpu_as_remap_op {
    nvgpu_as_remap_op {
        flags: NVGPU_AS_REMAP_OP_FLAGS_PAGESIZE_4K,
        compr_kind: -1,
        mem_handle: fd as u32,
        virt_offset_in_pages: at / 4096,
        num_pages: 1,
        ..zeroed()
    }
}

/// The result, and how many are said to be done.
fn remap(space: Fd, ops: &mut [nvgpu_as_remap_op]) -> (Result, u32) {
    let mut args =
        nvgpu_as_remap_args { num_ops: ops.len() as u32, ops: ops.as_mut_ptr() as u64, ..zeroed() };
    let result = call::<NVGPU_AS_IOCTL_REMAP>(space, &mut args);
    (result, args.num_ops)
}

/// A file that becomes readable when a syncpoint is there.
fn fence((id, threshold): (u32, u32)) -> Fd {
    let fences = open("/dev/host1x-fence").unwrap();
    let mut fence = host1x_create_fence { id, threshold, fence_fd: 0, reserved: [0] };
    call::<HOST1X_IOCTL_CREATE_FENCE>(fences, &mut fence).unwrap();
    close(fences);
    fence.fence_fd
}

const WAIT: u32 = NVGPU_SUBMIT_GPFIFO_FLAGS_FENCE_WAIT;
const GET: u32 = NVGPU_SUBMIT_GPFIFO_FLAGS_FENCE_GET;
const FILE: u32 = NVGPU_SUBMIT_GPFIFO_FLAGS_SYNC_FENCE;
const UNCOUNTED: u32 = NVGPU_SUBMIT_GPFIFO_FLAGS_SKIP_BUFFER_REFCOUNTING;

fn soon(is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < end, "it never comes");
        std::thread::yield_now();
    }
}

fn method(subchannel: u32, method: u32, data: &[u32]) -> Vec<u32> {
    let mut words = vec![1 << 29 | (data.len() as u32) << 16 | subchannel << 13 | method >> 2];
    words.extend(data);
    words
}

fn high(at: u64) -> u32 {
    (at >> 32) as u32
}

fn semaphore(at: u64, payload: u32, execute: u32) -> Vec<u32> {
    method(0, 0x5C, &[at as u32, high(at), payload, 0, execute])
}

fn copy(from: u64, to: u64, length: u32) -> Vec<u32> {
    [
        method(4, 0, &[0xC7B5]),
        method(4, 0x400, &[high(from), from as u32, high(to), to as u32]),
        method(4, 0x418, &[length, 1]),
        method(4, 0x300, &[2 | 1 << 7 | 1 << 8]),
    ]
    .concat()
}

/// Rings for two channels at once, again and again.
fn ring_both(mut first: Gpu, mut second: Gpu) {
    let memory = first.memory(4096);
    for round in 1..300 {
        first.queue(&semaphore(memory.at, round, 1));
        second.queue(&semaphore(memory.at + 16, round, 1));
        first.knock();
        second.knock();
        soon(|| memory.cpu.read(0) == round && memory.cpu.read(16) == round);
    }
}

rules! {
    submitted_work_is_done_and_its_fence_reached {
        let mut channel = Submitted::new();
        let fd = buffer(channel.bound.nvmap, 4096);
        let (memory, at) = (mmap(fd, 4096, 0).unwrap(), map(channel.bound.space, fd).unwrap());
        let mut last = None;
        for round in 1..40 {
            // Three entries and two of the driver's go around a ring of eight.
            let entries = [0, 16, 32].map(|offset| channel.entry(&semaphore(at + offset, round, 1)));
            let (id, value) = channel.send(&entries, GET, (0, 0)).unwrap();
            assert_eq!(last.map_or((id, value), |(id, value)| (id, value + 1)), (id, value));
            last = Some((id, value));
            let done = fence((id, value));
            soon(|| crate::nvmap::is_readable(done));
            close(done);
            assert_eq!([0, 16, 32].map(|offset| memory.read(offset)), [round; 3]);
        }
        let unasked = channel.entry(&semaphore(at, 77, 1));
        assert_eq!(channel.send(&[unasked], 0, (5, 6)), Ok((5, 6)), "the fence is left alone");
        soon(|| memory.read(0) == 77);
    }

    submitted_work_waits_for_fences {
        let mut first = Submitted::new();
        let mut second = first.beside();
        let fd = buffer(first.bound.nvmap, 4096);
        let (memory, at) = (mmap(fd, 4096, 0).unwrap(), map(first.bound.space, fd).unwrap());
        let held = first.entry(&semaphore(at, 1, 3));
        let held = first.send(&[held], GET, (0, 0)).unwrap();
        let waiting = second.entry(&semaphore(at + 16, 2, 1));
        let (file, _) = second.send(&[waiting], WAIT | GET, held).unwrap();
        assert!(file < 1024, "a syncpoint");
        let behind = second.entry(&semaphore(at + 32, 3, 1));
        let (file, _) = second.send(&[behind], GET | FILE, (0, 0)).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(!crate::nvmap::is_readable(file as Fd));
        assert_eq!((memory.read(16), memory.read(32)), (0, 0));
        memory.write(0, 1);
        soon(|| crate::nvmap::is_readable(file as Fd));
        assert_eq!((memory.read(16), memory.read(32)), (2, 3));
        let last = second.entry(&semaphore(at + 48, 4, 1));
        assert!(second.send(&[last], WAIT | FILE, (file, 0)).is_ok(), "a file can be waited for");
        soon(|| memory.read(48) == 4);
    }

    submission_is_refused {
        let bound = bound();
        let bare = |channel, entries| {
            let mut args = nvgpu_submit_gpfifo_args { gpfifo: 8, num_entries: entries, ..zeroed() };
            call::<NVGPU_IOCTL_CHANNEL_SUBMIT_GPFIFO>(channel, &mut args)
        };
        assert_eq!(bare(channel(bound.ctrl), 1), Err(libc::ETIMEDOUT), "in no group");
        assert_eq!(bare(bound.channel, 1), ENOMEM, "without a ring");
        let gpu = Gpu::new();
        assert_eq!(bare(gpu.bound.channel, 1), EINVAL, "whose ring is the client's");
        let mut channel = Submitted::on(bound, 0);
        assert_eq!(bare(bound.channel, 1), EFAULT);
        assert_eq!(bare(bound.channel, 6), ENOMEM, "more than fit with the driver's");
        assert_eq!(bare(bound.channel, u32::MAX), ENOMEM);
        let entry = channel.entry(&[0]);
        assert_eq!(channel.send(&[entry], WAIT, (1024, 0)), Err(libc::EINVAL), "no syncpoint");
        let file = bound.nvmap as u32;
        assert_eq!(channel.send(&[entry], WAIT | FILE, (file, 0)), Err(libc::EINVAL), "no fence");
        let fd = buffer(bound.nvmap, 4096);
        let at = map(bound.space, fd).unwrap();
        let held = channel.entry(&semaphore(at, 1, 3));
        assert!(channel.send(&[held], 0, (0, 0)).is_ok());
        assert!(channel.send(&[held; 3], 0, (0, 0)).is_ok());
        assert_eq!(channel.send(&[held], 0, (0, 0)), Err(libc::EAGAIN), "it is full");
        let (id, value) = (17, 1 << 30);
        let waits = fence((id, value));
        raw(bound.channel, NVGPU_IOCTL_CHANNEL_FORCE_RESET::REQUEST, 0).unwrap();
        assert_eq!(channel.send(&[held], 0, (0, 0)), Err(libc::ETIMEDOUT), "it has failed");
        assert!(!crate::nvmap::is_readable(waits), "others are not concerned");
    }

    submission_to_a_deterministic_channel {
        let bound = bound();
        watchdog(bound.channel, 1).unwrap();
        let mut channel = Submitted::on(bound, 2);
        let entry = channel.entry(&[0]);
        assert_eq!(channel.send(&[entry], 0, (0, 0)), Err(libc::EINVAL), "buffers are not counted");
        assert_eq!(channel.send(&[entry], UNCOUNTED | GET | FILE, (0, 0)), Err(libc::EINVAL));
        let (id, value) = channel.send(&[entry], UNCOUNTED | GET, (0, 0)).unwrap();
        assert!(channel.send(&[entry], UNCOUNTED, (0, 0)).is_ok());
        assert_eq!(channel.send(&[entry], UNCOUNTED | GET, (0, 0)), Ok((id, value + 1)), "one untracked");
    }

    unbind_of_a_busy_channel_is_for_later {
        let mut first = Submitted::new();
        let second = first.beside();
        let unbind = |channel: Fd| {
            let fd = channel;
            raw(first.bound.tsg, NVGPU_TSG_IOCTL_UNBIND_CHANNEL::REQUEST, (&raw const fd) as u64)
        };
        let fd = buffer(first.bound.nvmap, 4096);
        let (memory, at) = (mmap(fd, 4096, 0).unwrap(), map(first.bound.space, fd).unwrap());
        let mut waits = second;
        let held = waits.entry(&semaphore(at, 1, 3));
        let (file, _) = waits.send(&[held], GET | FILE, (0, 0)).unwrap();
        assert_eq!(unbind(waits.bound.channel), Err(libc::EAGAIN));
        memory.write(0, 1);
        soon(|| crate::nvmap::is_readable(file as Fd));
        soon(|| unbind(waits.bound.channel) == Ok(0));
        let entry = first.entry(&[0]);
        assert!(first.send(&[entry], 0, (0, 0)).is_ok(), "its sibling goes on");
        assert_eq!(waits.send(&[held], 0, (0, 0)), Err(libc::ETIMEDOUT));
    }

    a_channel_that_fails_lets_go_of_what_waits_for_its_submissions {
        let mut channel = Submitted::new();
        let bad = channel.entry(&copy(0xAB_0000_0000, 0xAB_1000_0000, 64));
        let (file, _) = channel.send(&[bad], GET | FILE, (0, 0)).unwrap();
        soon(|| crate::nvmap::is_readable(file as Fd));
        let mut other = channel.beside();
        let held = other.entry(&semaphore(channel.commands_at + 0x8000, 1, 3));
        let (file, _) = other.send(&[held], GET | FILE, (0, 0)).unwrap();
        assert!(!crate::nvmap::is_readable(file as Fd));
        close(other.bound.channel);
        soon(|| crate::nvmap::is_readable(file as Fd));
    }

    memory_is_put_into_sparse_reservations_by_the_page {
        let mut gpu = Gpu::new();
        let (nvmap, space) = (gpu.bound.nvmap, gpu.bound.space);
        let to = gpu.memory(4 * 4096);
        let base = sparse(space, 16);
        let fd = buffer(nvmap, 4 * 4096);
        let memory = mmap(fd, 4 * 4096, 0).unwrap();
        for (page, byte) in [1_u8, 2, 3, 4].into_iter().enumerate() {
            memory.bytes()[page * 4096..][..4096].fill(byte);
        }
        let mut pages = || {
            gpu.submit(&copy(base, to.at, 4 * 4096));
            gpu.wait();
            [0, 1, 2, 3].map(|page| to.cpu.bytes()[page * 4096 + 4095])
        };
        let put = |at: u64, from: u64, count: u64| nvgpu_as_remap_op {
            mem_offset_in_pages: from, num_pages: count, ..remap_op(fd, base + at * 4096) };
        let take = |at: u64, count: u64| nvgpu_as_remap_op {
            incompr_kind: -1, num_pages: count, ..remap_op(0, base + at * 4096) };
        assert_eq!(remap(space, &mut [put(0, 1, 3)]), (Ok(0), 1));
        assert_eq!(pages(), [2, 3, 4, 0], "holes are zeros");
        assert_eq!(remap(space, &mut [put(1, 0, 1), put(3, 0, 1)]), (Ok(0), 2));
        assert_eq!(pages(), [2, 1, 4, 1], "the same page in two places");
        assert_eq!(remap(space, &mut [take(1, 2)]), (Ok(0), 1));
        assert_eq!(pages(), [2, 0, 0, 1]);
        close(fd);
        drop(memory);
        assert_eq!(pages(), [2, 0, 0, 1], "the reservation holds it");
        let before = crate::lifetimes::free_memory(nvmap);
        assert_eq!(remap(space, &mut [take(0, 1)]), (Ok(0), 1));
        assert_eq!(crate::lifetimes::free_memory(nvmap), before);
        unreserve(space, base).unwrap();
        assert_eq!(crate::lifetimes::free_memory(nvmap) - before, 4 * 4096, "the last page goes with it");
    }

    remap_is_refused {
        let bound = bound();
        let space = bound.space;
        let base = sparse(space, 16);
        let (fd, dense) = (buffer(bound.nvmap, 8192), reserve(space, 16, None).unwrap());
        let good = nvgpu_as_remap_op { num_pages: 2, ..remap_op(fd, base) };
        let unmap = nvgpu_as_remap_op { incompr_kind: -1, ..remap_op(0, base) };
        assert_eq!(remap(space, &mut []), (Ok(0), 0), "nothing to do");
        type Op = nvgpu_as_remap_op;
        for (what, op) in [
            ("flag", Op { flags: 0x8000 | 1, ..good }),
            ("no page size", Op { flags: 0, ..good }),
            ("two", Op { flags: 0x18000, ..good }),
            ("pages that there are not", Op { flags: 0x10000, virt_offset_in_pages: base >> 16, ..good }),
            ("no pages", Op { num_pages: 0, ..good }),
            ("too many", Op { num_pages: u64::MAX, ..good }),
            ("past the buffer", Op { mem_offset_in_pages: 1, ..good }),
            ("past the reservation", remap_op(fd, base + 16 * 4096)),
            ("over its end", Op { virt_offset_in_pages: (base >> 12) + 15, ..good }),
            ("not sparse", remap_op(fd, dense)),
            ("no dma-buf", remap_op(bound.ctrl, base)),
            ("closed", remap_op(999, base)),
            ("a kind for nothing", Op { incompr_kind: 0, ..unmap }),
            ("an offset in nothing", Op { mem_offset_in_pages: 1, ..unmap }),
            ("a cache for nothing", Op { flags: 0x8004, ..unmap }),
        ] {
            assert_eq!(remap(space, &mut [op]), (EINVAL, 0), "{what}");
            assert_eq!(remap(space, &mut [good, op]), (EINVAL, 0), "{what}, behind a good one");
        }
        let unallocated = get_fd(bound.nvmap, create(bound.nvmap, 4096).unwrap()).unwrap();
        assert_eq!(remap(space, &mut [remap_op(unallocated, base)]), (ENOMEM, 0));
        let mut args = nvgpu_as_remap_args { num_ops: 1, ops: 8, ..zeroed() };
        assert_eq!(call::<NVGPU_AS_IOCTL_REMAP>(space, &mut args), EFAULT);
        assert_eq!(args.num_ops, 1);
        let mut ops = [good, Op { compr_kind: 3, ..unmap }];
        ops[1].compr_kind = -1;
        assert_eq!(remap(space, &mut ops), (Ok(0), 2));
        assert_eq!(ops.map(|op| (op.mem_handle, op.num_pages, op.incompr_kind)), [(0, 1, 0), (0, 1, -1)],
            "the last is copied over all, but for the kinds");
    }

    gp_put_alone_starts_nothing {
        let mut gpu = Gpu::new();
        let memory = gpu.memory(4096);
        gpu.queue(&semaphore(memory.at, 5, 1));
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!((memory.cpu.read(0), gpu.userd.read(0x88)), (0, 0));
        gpu.knock();
        gpu.wait();
        assert_eq!(memory.cpu.read(0), 5);
    }

    a_gpu_mapping_alone_keeps_contents {
        let mut gpu = Gpu::new();
        let (from, to) = (gpu.memory_alone(4096, 0x5A), gpu.memory(4096));
        gpu.submit(&copy(from, to.at, 4096));
        gpu.wait();
        assert!(to.cpu.bytes().iter().all(|byte| *byte == 0x5A));
    }

    a_channel_alone_keeps_its_ring_and_userd {
        let mut gpu = Gpu::new();
        let memory = gpu.memory(4096);
        gpu.queue(&semaphore(memory.at, 5, 1));
        let other = || mmap(buffer(gpu.bound.nvmap, 8192), 8192, 0).unwrap();
        (gpu.ring, gpu.userd) = (other(), other());
        gpu.knock();
        soon(|| memory.cpu.read(0) == 5);
    }

    sparse_reservations_read_as_zero {
        let mut gpu = Gpu::new();
        let to = gpu.memory(4096);
        to.cpu.bytes().fill(0x5A);
        let mut args = nvgpu_as_alloc_space_args { pages: 16, page_size: 4096, flags: 2, ..zeroed() };
        call::<NVGPU_AS_IOCTL_ALLOC_SPACE>(gpu.bound.space, &mut args).unwrap();
        gpu.submit(&copy(unsafe { args.o_a.offset }, to.at, 4096));
        gpu.wait();
        assert!(to.cpu.bytes().iter().all(|byte| *byte == 0));
    }

    a_process_that_is_killed_at_work_leaves_nothing {
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut gpu = Gpu::new();
            create(gpu.bound.nvmap, 4096).unwrap();
            let (from, to) = (gpu.memory(64 << 20), gpu.memory(64 << 20));
            let mut words = copy(from.at, to.at, 64 << 20);
            words.extend(semaphore(to.at, 1, 0));
            gpu.submit(&words);
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        let mut status = 0;
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert!(libc::WIFSIGNALED(status));
        let ctrl = ctrl();
        let all: Vec<Fd> = (0..512).map(|_| channel(ctrl)).collect();
        assert_eq!(all.len(), 512);
    }

    ring_wraps_around {
        let mut gpu = Gpu::new();
        let memory = gpu.memory(4096);
        for round in 0..2500 {
            gpu.submit(&semaphore(memory.at, round, 1));
            soon(|| memory.cpu.read(0) == round);
        }
        // The ring is read to its end a moment after the last value is written.
        gpu.wait();
    }

    two_doorbells_between_two_looks {
        let first = Gpu::new();
        let second = first.beside(channel(first.bound.ctrl));
        ring_both(first, second);
    }

    two_doorbells_of_channels_of_two_nodes {
        let first = Gpu::new();
        let second = first.beside(open("/dev/nvgpu/igpu0/channel").unwrap());
        ring_both(second, first);
    }

    two_doorbells_of_channels_of_two_processes {
        let first = Gpu::new();
        let mut ends = [0; 2];
        unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_DGRAM, 0, ends.as_mut_ptr()) };
        let ctrl = first.bound.ctrl;
        in_child(|| crate::lifetimes::send(ends[0], channel(ctrl)));
        let second = first.beside(crate::lifetimes::receive(ends[1]));
        ring_both(second, first);
    }

    a_doorbell_starts_no_other_channel {
        let mut first = Gpu::new();
        let mut second = first.beside(channel(first.bound.ctrl));
        let memory = first.memory(4096);
        second.queue(&semaphore(memory.at, 5, 1));
        // Longer than a busy system keeps anybody from the doorbell.
        std::thread::sleep(Duration::from_millis(1000));
        for _ in 0..3 {
            first.submit(&[0]);
            first.wait();
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!((memory.cpu.read(0), second.userd.read(0x88)), (0, 0));
        second.knock();
        second.wait();
        assert_eq!(memory.cpu.read(0), 5);
    }

    a_doorbell_is_answered_whose_region_goes {
        for _ in 0..20 {
            let mut gpu = Gpu::new();
            let memory = gpu.memory(4096);
            gpu.submit(&semaphore(memory.at, 5, 1));
            gpu.doorbell = Rc::new(mmap(buffer(gpu.bound.nvmap, 4096), 4096, 0).unwrap());
            close(gpu.bound.ctrl);
            gpu.wait();
            close(gpu.bound.channel);
        }
    }

    semaphores_release_and_acquire {
        let mut gpu = Gpu::new();
        let memory = gpu.memory(4096);
        let at = memory.at;
        let mut words = semaphore(at, 7, 3 | 1 << 12);
        words.extend(semaphore(at + 16, 9, 1 | 1 << 25));
        gpu.submit(&words);
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(memory.cpu.read(16), 0, "it waits");
        memory.cpu.write(0, 6);
        std::thread::sleep(Duration::from_millis(10));
        assert_eq!(memory.cpu.read(16), 0, "not there yet");
        memory.cpu.write(0, 8);
        gpu.wait();
        assert_eq!(memory.cpu.read(16), 9);
        assert_ne!(memory.cpu.read(24), 0, "with the time");
    }

    semaphore_reductions {
        let mut gpu = Gpu::new();
        let memory = gpu.memory(4096);
        memory.cpu.write(0, 5);
        gpu.submit(&semaphore(memory.at, 3, 6 | 5 << 27));
        gpu.wait();
        assert_eq!(memory.cpu.read(0), 8, "sum");
        gpu.submit(&semaphore(memory.at, 3, 6 | 1 << 31));
        gpu.wait();
        assert_eq!(memory.cpu.read(0), 3, "minimum");
    }

    syncpoints_count_and_wake {
        let mut gpu = Gpu::new();
        let point = syncpoint(gpu.bound.channel).unwrap();
        let fences = open("/dev/host1x-fence").unwrap();
        let mut fence = host1x_create_fence {
            id: point.syncpoint_id, threshold: point.syncpoint_max + 2, fence_fd: 0, reserved: [0] };
        call::<HOST1X_IOCTL_CREATE_FENCE>(fences, &mut fence).unwrap();
        gpu.submit(&semaphore(point.gpu_va, 12345, 1));
        gpu.wait();
        assert_eq!(syncpoint(gpu.bound.channel).unwrap().syncpoint_max, point.syncpoint_max + 1);
        assert!(!crate::nvmap::is_readable(fence.fence_fd));
        gpu.submit(&semaphore(point.gpu_va, 0, 1));
        gpu.wait();
        assert!(crate::nvmap::is_readable(fence.fence_fd));
        let mut map: nvgpu_as_get_sync_ro_map_args = zeroed();
        call::<NVGPU_AS_IOCTL_GET_SYNC_RO_MAP>(gpu.bound.space, &mut map).unwrap();
        let here = map.base_gpuva + u64::from(point.syncpoint_id) * 0x1_0000;
        gpu.submit(&semaphore(here, point.syncpoint_max + 2, 3));
        gpu.wait();
    }

    copies_of_lines {
        let mut gpu = Gpu::new();
        let (from, to) = (gpu.memory(1 << 16), gpu.memory(1 << 16));
        for (i, byte) in from.cpu.bytes().iter_mut().enumerate() {
            *byte = (i * 7 + i / 256) as u8;
        }
        gpu.submit(&copy(from.at, to.at, 1 << 16));
        gpu.wait();
        assert_eq!(from.cpu.bytes(), to.cpu.bytes());
        to.cpu.bytes().fill(0);
        let words = [
            method(4, 0, &[0xC7B5]),
            method(4, 0x400, &[high(from.at), from.at as u32, high(to.at), to.at as u32, 64, 256, 32, 5]),
            method(4, 0x300, &[2 | 1 << 7 | 1 << 8 | 1 << 9]),
        ];
        gpu.submit(&words.concat());
        gpu.wait();
        for line in 0..5 {
            assert_eq!(to.cpu.bytes()[line * 256..][..32], from.cpu.bytes()[line * 64..][..32]);
            assert_eq!(to.cpu.bytes()[line * 256 + 32..][..32], [0; 32]);
        }
    }

    fills_and_swizzles {
        let mut gpu = Gpu::new();
        let (from, to) = (gpu.memory(4096), gpu.memory(4096));
        from.cpu.bytes()[..8].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        // Two pixels of four bytes: W, Z, a constant, and what was there.
        to.cpu.bytes()[..8].fill(0xEE);
        let components = 3 | 2 << 4 | 5 << 8 | 6 << 12 | 3 << 20 | 3 << 24;
        let words = [
            method(4, 0, &[0xC7B5]),
            method(4, 0x400, &[high(from.at), from.at as u32, high(to.at), to.at as u32]),
            method(4, 0x418, &[2, 1]),
            method(4, 0x700, &[0, 0xAB, components]),
            method(4, 0x300, &[2 | 1 << 7 | 1 << 8 | 1 << 10]),
        ];
        gpu.submit(&words.concat());
        gpu.wait();
        assert_eq!(to.cpu.bytes()[..8], [4, 3, 0xAB, 0xEE, 8, 7, 0xAB, 0xEE]);
    }

    copy_releases_its_semaphore {
        let mut gpu = Gpu::new();
        let (from, to, flag) = (gpu.memory(4096), gpu.memory(4096), gpu.memory(4096));
        let words = [
            method(4, 0, &[0xC7B5]),
            method(4, 0x400, &[high(from.at), from.at as u32, high(to.at), to.at as u32]),
            method(4, 0x418, &[4096, 1]),
            method(4, 0x240, &[high(flag.at), flag.at as u32, 99]),
            method(4, 0x300, &[1 | 2 << 3 | 1 << 7 | 1 << 8]),
        ];
        gpu.submit(&words.concat());
        gpu.wait();
        assert_eq!(flag.cpu.read(0), 99);
        assert_ne!(flag.cpu.read(8), 0, "four words have the time");
    }

    inline_data {
        let mut gpu = Gpu::new();
        let to = gpu.memory(4096);
        let mut words = [
            method(1, 0, &[0xC7C0]),
            method(1, 0x180, &[10, 1, high(to.at), to.at as u32]),
            method(1, 0x1B0, &[0x41]),
        ]
        .concat();
        words.extend([3 << 29 | 3 << 16 | 1 << 13 | 0x1B4 >> 2, 0x0403_0201, 0x0807_0605, 0xFFFF_0A09]);
        gpu.submit(&words);
        gpu.wait();
        assert_eq!(to.cpu.bytes()[..11], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0]);
    }

    compute_class_releases_semaphores {
        let mut gpu = Gpu::new();
        let flag = gpu.memory(4096);
        let report = [high(flag.at), flag.at as u32, 31, 1 << 28];
        let words = [method(1, 0, &[0xC7C0]), method(1, 0x1B00, &report)];
        gpu.submit(&words.concat());
        gpu.wait();
        assert_eq!(flag.cpu.read(0), 31);
    }

    headers_of_all_kinds {
        let mut gpu = Gpu::new();
        let memory = gpu.memory(4096);
        let mut words = vec![0, 4 << 29 | 0x78 >> 2];
        words.extend([5 << 29 | 2 << 16 | 0x5C >> 2, memory.at as u32, high(memory.at)]);
        words.extend(method(0, 0x64, &[3, 0, 1]));
        words.extend([7 << 29, 0xFFFF_FFFF]);
        gpu.submit(&words);
        gpu.wait();
        assert_eq!(memory.cpu.read(0), 3, "and nothing behind the end was looked at");
    }

    copy_goes_on_beside_others {
        let mut gpu = Gpu::new();
        let (from, to) = (gpu.memory(48 << 20), gpu.memory(48 << 20));
        from.cpu.bytes().fill(0x5A);
        gpu.submit(&copy(from.at, to.at, 48 << 20));
        // Who is held up is answered once, when the copy is done.
        let mut answered = 0;
        while answered < 64 && !gpu.done() {
            create(gpu.bound.nvmap, 4096).unwrap();
            answered += 1;
        }
        gpu.wait();
        assert!(to.cpu.bytes().iter().all(|byte| *byte == 0x5A));
        assert!(answered > 2, "{answered} calls were answered meanwhile");
    }

    many_copies_of_one_pushbuffer_hold_nobody_up {
        let mut gpu = Gpu::new();
        let (from, to) = (gpu.memory(4 << 20), gpu.memory(4 << 20));
        let mut words = copy(from.at, to.at, 4 << 20);
        words.push(3 << 29 | 900 << 16 | 4 << 13 | 0x300 >> 2);
        words.extend([2 | 1 << 7 | 1 << 8; 900]);
        gpu.submit(&words);
        // 901 copies: each call may wait for a few of them, and not for all.
        for answered in 0..64 {
            assert!(!gpu.done(), "{answered} calls were answered meanwhile");
            create(gpu.bound.nvmap, 4096).unwrap();
        }
    }

    own_pages_are_read_and_written {
        let mut gpu = Gpu::new();
        let (own, there) = (gpu.own_pages(4), gpu.memory(4 * 4096));
        for round in 1..4_u8 {
            for (i, byte) in own.cpu.bytes().iter_mut().enumerate() {
                *byte = (i * 7 + i / 256) as u8 ^ round;
            }
            gpu.submit(&copy(own.at, there.at, 4 * 4096));
            gpu.wait();
            assert_eq!(own.cpu.bytes(), there.cpu.bytes());
            there.cpu.bytes()[..300].fill(round);
            gpu.submit(&copy(there.at, own.at + 4096 - 150, 300));
            gpu.wait();
            let (before, behind) = own.cpu.bytes().split_at(4096 - 150);
            assert_eq!(before[300..], there.cpu.bytes()[300..4096 - 150]);
            assert_eq!(behind[..300], [round; 300]);
            assert_eq!(behind[300..], there.cpu.bytes()[4096 + 150..]);
        }
        // The GPU waits for what the program writes there, and commands are fetched from there.
        let words = [semaphore(own.at, 5, 3), semaphore(own.at + 4096, 9, 1)].concat();
        own.cpu.write(0, 0);
        for (i, word) in words.iter().enumerate() {
            own.cpu.write(8192 + i * 4, *word);
        }
        let entry = (own.at + 8192) | (words.len() as u64) << 42;
        gpu.queue(&[]);
        let slot = (gpu.put as usize - 1) * 8;
        gpu.ring.write(slot, entry as u32);
        gpu.ring.write(slot + 4, (entry >> 32) as u32);
        gpu.knock();
        std::thread::sleep(Duration::from_millis(20));
        assert_ne!(own.cpu.read(4096), 9);
        own.cpu.write(0, 5);
        soon(|| own.cpu.read(4096) == 9);
    }

    work_of_a_dead_channel_is_not_done {
        let mut gpu = Gpu::new();
        let memory = gpu.memory(4096);
        raw(gpu.bound.channel, NVGPU_IOCTL_CHANNEL_FORCE_RESET::REQUEST, 0).unwrap();
        gpu.submit(&semaphore(memory.at, 5, 1));
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(memory.cpu.read(0), 0);
    }
}

/// A channel that is closed right behind its doorbell was rung all the same.
#[test]
fn a_channel_is_rung_and_closed_at_once() {
    let name = concat!(module_path!(), "::a_channel_is_rung_and_closed_at_once");
    let report = crate::simulate(name, &[], || {
        for _ in 0..100 {
            let mut gpu = Gpu::new();
            gpu.queue(&[]);
            gpu.knock();
            close(gpu.bound.channel);
            close(gpu.bound.tsg);
            close(gpu.bound.ctrl);
        }
    });
    let unknown = report.diagnostics.iter().find(|d| d.code == "unknown-token");
    assert!(unknown.is_none(), "{report}");
}

reported! {
    fault_of_an_address_is_told_by_the_notifier {
        let mut gpu = Gpu::new();
        gpu.submit(&semaphore(0x1234_5000, 5, 1));
        assert_eq!(gpu.error(), (31, 0xffff), "FIFO_ERROR_MMU_ERR_FLT");
        let mut dead = 0_u32;
        raw(gpu.bound.channel, NVGPU_IOCTL_CHANNEL_GET_TIMEDOUT::REQUEST, (&raw mut dead) as u64).unwrap();
        assert_eq!(dead, 1);
    } gives "mmu-fault"

    read_only_mapping_is_not_written {
        let mut gpu = Gpu::new();
        let fd = buffer(gpu.bound.nvmap, 4096);
        let mut args = nvgpu_as_map_buffer_ex_args { flags: 1 << 10, ..map_args(fd) };
        call::<NVGPU_AS_IOCTL_MAP_BUFFER_EX>(gpu.bound.space, &mut args).unwrap();
        gpu.submit(&semaphore(args.offset, 5, 1));
        assert_eq!(gpu.error().0, 31);
    } gives "mmu-fault"

    own_pages_that_the_program_gave_away_are_missing {
        let mut gpu = Gpu::new();
        let own = gpu.own_pages(2);
        gpu.submit(&semaphore(own.at + 4096, 5, 1));
        gpu.wait();
        assert_eq!(unsafe { libc::munmap(own.cpu.at(1) as *mut libc::c_void, 4096) }, 0);
        gpu.submit(&semaphore(own.at + 4096, 5, 1));
        assert_eq!(gpu.error().0, 31);
    } gives "mmu-fault"

    launch_of_no_code_is_not_executed {
        let mut gpu = Gpu::new();
        let qmd = gpu.memory(4096);
        qmd.cpu.write(384 / 8, 17);
        qmd.cpu.write(576 / 8, 3 << 4 | 64 << 16);
        let words = [
            method(1, 0, &[0xC7C0]),
            method(1, 0x2B4, &[(qmd.at >> 8) as u32]),
            method(1, 0x2C0, &[9]),
        ];
        gpu.submit(&words.concat());
        assert_eq!(gpu.error(), (13, 0xffff));
    } gives "not-executed"

    nonsense_is_an_error_of_the_channel {
        let mut gpu = Gpu::new();
        gpu.submit(&[6 << 29, 1, 2]);
        assert_eq!(gpu.error(), (32, 0xffff), "PBDMA_ERROR");
    } gives "bad-commands"

    undefined_methods_of_the_host_end_the_channel {
        let mut gpu = Gpu::new();
        gpu.submit(&method(0, 0xF0, &[1]));
        assert_eq!(gpu.error(), (32, 0xffff), "PBDMA_ERROR");
    } gives "bad-commands"

    undefined_methods_of_copies_end_the_channel {
        let mut gpu = Gpu::new();
        gpu.submit(&[method(4, 0, &[0xC7B5]), method(4, 0x250, &[1])].concat());
        assert_eq!(gpu.error(), (13, 0xffff), "GR_EXCEPTION");
    } gives "bad-method"

    mapping_in_a_window_of_the_shaders {
        let mut gpu = Gpu::new();
        let window = 0xFD_0000_0000_u64;
        reserve(gpu.bound.space, 16, Some(window)).unwrap();
        map_at(gpu.bound.space, buffer(gpu.bound.nvmap, 4096), window).unwrap();
        gpu.submit(&[method(1, 0, &[0xC7C0]), method(1, 0x7B0, &[high(window), 0])].concat());
        gpu.wait();
    } gives "window-overlap"

    doorbell_of_nobody {
        let gpu = Gpu::new();
        gpu.doorbell.write(0x90, 3);
        soon(|| gpu.doorbell.read(0x90) != 3);
    } gives "unknown-token"
}
