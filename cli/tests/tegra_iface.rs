//! `nvabi::tegra` on a simulated kernel, through real system calls: this test starts itself as the
//! program that the kernel is simulated for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use nvabi::Handle;
use nvabi::tegra::rm::{AllocOptions, Rm};
use nvabi::tegra::{
    Access, AddressSpace, Cache, Channel, ChannelOptions, ConstantBank, Device, ErrorKind,
    Imported, Launch, Lines, Memory, Module, Push, Release, Result, Subchannel, Subcontext, Tsg,
    wait_for_fence,
};
use nvabi_test::{Need, only_as_child, skip};
use serde_json::Value;

#[path = "../../examples/tegra_compute.rs"]
mod tegra_compute;
#[path = "../../examples/tegra_copy.rs"]
mod tegra_copy;

test_main!();

const ROLE: &str = "NVABI_TEST_CLIENT";
/// Cubins of a client.
const CUBIN: [&str; 2] = ["NVABI_TEST_CUBIN", "NVABI_TEST_CUBIN_WITH_VARIABLES"];
const PATIENCE: Duration = Duration::from_secs(20);

/// What the client ends with when a call was refused.
const REFUSED: i32 = 3;

// --- The programs -----------------------------------------------------------------------------

/// The program: what `ROLE` names, and an exit status that tells how it went.
#[test]
fn client() {
    only_as_child(ROLE);
    let role = std::env::var(ROLE).unwrap();
    let done = with_device(&role);
    match done {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            eprintln!("refused: {error}");
            std::process::exit(REFUSED);
        }
    }
}

/// Does what `role` names. The device and an address space stay open until the program ends, so that
/// what was forgotten in them is still there to be counted.
fn with_device(role: &str) -> Result<()> {
    let device = Device::open()?;
    let space = AddressSpace::new(&device)?;
    std::mem::forget((device.clone(), space.clone()));
    match role {
        "everything" => everything(&space),
        "rm" => through_rm(&device),
        "back-pressure" => back_pressure(&space),
        "fault" => fault(&space),
        "timeout" => timeout(&space),
        "semaphores" => semaphores(&space),
        "in-place" => in_place(&space),
        "foreign" => foreign(&space),
        "import" => import(&space),
        "launch" => launch(&space),
        "module" => module(&space),
        "leak" => leak(&space),
        "refusals" => refusals(&space),
        "subcontexts" => subcontexts(&space),
        "copy-example" => {
            tegra_copy::main().unwrap_or_else(|error| panic!("{error}"));
            Ok(())
        }
        "compute-example" => {
            tegra_compute::main().unwrap_or_else(|error| panic!("{error}"));
            Ok(())
        }
        _ => panic!("there is no client {role}"),
    }
}

fn is_newest(space: &AddressSpace) -> bool {
    space.device().release() == Release::R36
}

fn channel(space: &AddressSpace) -> Result<Channel> {
    let subcontext = Subcontext::new(&Tsg::new(space.device())?, space);
    Channel::new(&subcontext, &ChannelOptions::default())
}

/// Each thing that the module does, once.
fn everything(space: &AddressSpace) -> Result<()> {
    assert_eq!(space.device().characteristics().compute_class, 0xc7c0);
    let tsg = Tsg::new(space.device())?;
    tsg.set_timeslice(2000)?;
    let subcontext = Subcontext::new(&tsg, space);
    let mut first = Channel::new(&subcontext, &ChannelOptions::default())?;
    let mut second = Channel::new(&subcontext, &ChannelOptions::default())?;
    assert_ne!(first.work_submit_token(), second.work_submit_token());

    let mut from = space.allocate(3 * 4096 + 1, Cache::Inner)?;
    let to = space.allocate(4 * 4096, Cache::Cacheable)?;
    assert_eq!((from.size(), to.size()), (4 * 4096, 4 * 4096));
    assert_eq!(from.cpu_address() as u64, from.gpu_address(), "one address for both");
    let bytes: Vec<u8> = (0..from.size()).map(|i| (i * 7 % 251) as u8).collect();
    from.write(0, &bytes)?;

    // A line, lines that lie apart, a fill, bytes from the commands, and a wait between channels.
    let lines = Lines { length: 100, count: 5, from_pitch: 256, to_pitch: 128 };
    let mut push = Push::new();
    push.acquire(to.gpu_address() + 12_000, 5)
        .copy(to.gpu_address(), from.gpu_address(), 4000)
        .copy_lines(to.gpu_address() + 4096, from.gpu_address(), lines)
        .fill(to.gpu_address() + 8192, 0x0102_0304, 16)
        .write(to.gpu_address() + 8192 + 64, b"inline!")?
        .wait_for_idle();
    let waits = second.submit(&push)?;
    assert!(!second.is_done(waits));
    let releases = first.submit(Push::new().release(to.gpu_address() + 12_000, 5))?;
    first.wait(releases, PATIENCE)?;
    second.wait(waits, PATIENCE)?;

    let mut found = vec![0; to.size() as usize];
    to.read(0, &mut found)?;
    assert_eq!(found[..4000], bytes[..4000]);
    for line in 0..5 {
        assert_eq!(found[4096 + line * 128..][..100], bytes[line * 256..][..100]);
    }
    assert_eq!(found[8192..8192 + 64], [4, 3, 2, 1].repeat(16));
    assert_eq!(found[8192 + 64..][..7], *b"inline!");

    // And back, into pages of the program's own.
    let pages = Pages::new(1);
    let imported = pages.import(space, Access::ReadWrite)?;
    let copied = first.submit(Push::new().copy(imported.gpu_address(), to.gpu_address(), 4000))?;
    first.wait(copied, PATIENCE)?;
    assert_eq!(pages.read(0, 4000), bytes[..4000]);
    assert_eq!(first.notification(), None);
    Ok(())
}

/// Whole pages of the program's own, mapped for it alone.
struct Pages {
    start: *mut u8,
    size: usize,
}

impl Pages {
    fn new(count: usize) -> Self {
        let size = count * 4096;
        // SAFETY: the system chooses where, so that nothing of the program's is replaced.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        Self { start: start.cast(), size }
    }

    fn import(&self, space: &AddressSpace, access: Access) -> Result<Imported> {
        // SAFETY: nobody has a reference to the pages: `read` and `write` copy, when the GPU does nothing with them.
        unsafe { space.import(self.start, self.size as u64, access) }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.size);
        // SAFETY: they are inside of the pages, of which nobody has a reference.
        unsafe { self.start.add(at).copy_from(bytes.as_ptr(), bytes.len()) };
    }

    fn read(&self, at: usize, length: usize) -> Vec<u8> {
        assert!(at + length <= self.size);
        let mut bytes = vec![0; length];
        // SAFETY: they are inside of the pages, of which nobody has a reference.
        unsafe { self.start.add(at).copy_to(bytes.as_mut_ptr(), length) };
        bytes
    }

    fn protect(&self, from: usize, protection: i32) {
        // SAFETY: the pages are this value's own.
        let done =
            unsafe { libc::mprotect(self.start.add(from).cast(), self.size - from, protection) };
        assert_eq!(done, 0);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: they are this value's own.
        unsafe { libc::munmap(self.start.cast(), self.size) };
    }
}

/// Pages that the program has: the GPU sees what is written after they were given to it, and the program what the GPU
/// writes.
fn import(space: &AddressSpace) -> Result<()> {
    let mut channel = channel(space)?;
    let mut done = |push: &Push| -> Result<()> {
        let ticket = channel.submit(push)?;
        channel.wait(ticket, PATIENCE)
    };
    let (pages, there) = (Pages::new(8), space.allocate(8 * 4096, Cache::Inner)?);
    let imported = pages.import(space, Access::ReadWrite)?;
    assert_eq!(imported.size(), 8 * 4096);
    let (own, at) = (imported.gpu_address(), there.gpu_address());
    for round in 0..3_u8 {
        let bytes: Vec<u8> = (0..pages.size).map(|i| (i * 7 % 251) as u8 ^ round).collect();
        pages.write(0, &bytes);
        done(Push::new().copy(at, own, bytes.len() as u64))?;
        let mut found = vec![0; bytes.len()];
        there.read(0, &mut found)?;
        assert_eq!(found, bytes, "round {round}");
        // Across a border of pages, and a word by itself.
        done(Push::new().copy(own + 4096 - 3, at + 1, 100).release(own + 16, 0x1234_5678))?;
        assert_eq!(pages.read(4096 - 3, 100), bytes[1..101], "round {round}");
        assert_eq!(pages.read(16, 4), 0x1234_5678_u32.to_le_bytes());
        assert_eq!(pages.read(4096 + 97, 8), bytes[4096 + 97..][..8], "and no more");
    }
    drop(imported);

    // What the program may not write is read.
    pages.protect(0, libc::PROT_READ);
    let refused = |result: Result<Imported>| {
        let error = result.unwrap_err();
        (error.kind(), error.errno())
    };
    let no_such = (ErrorKind::Call, Some(libc::EINVAL));
    assert_eq!(refused(pages.import(space, Access::ReadWrite)), no_such);
    let imported = pages.import(space, Access::Read)?;
    done(Push::new().copy(at + 8192, imported.gpu_address(), 4096))?;
    let mut found = vec![0; 4096];
    there.read(8192, &mut found)?;
    assert_eq!(found, pages.read(0, 4096));
    let error = done(Push::new().fill(imported.gpu_address(), 1, 4)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fault, "{error}");
    drop(imported);

    // What is not there, and what are no whole pages.
    let (start, hole) = (pages.start, Pages::new(4));
    // SAFETY: as `Pages::import` says; each is refused, so that no work has its address.
    let import = |start, size| unsafe { space.import(start, size, Access::ReadWrite) };
    // SAFETY: the last of the pages; `munmap` of `Pages` takes what is left.
    unsafe { libc::munmap(hole.start.add(3 * 4096).cast(), 4096) };
    assert_eq!(refused(import(hole.start, 4 * 4096)), no_such);
    assert_eq!(refused(import(hole.start.wrapping_add(3 * 4096), 4096)), no_such);
    let no_memory = (ErrorKind::Call, Some(libc::ENOMEM));
    assert_eq!(refused(import(hole.start, 1 << 50)), no_memory);
    for (start, size) in [(start, 0), (start, 5000), (start.wrapping_add(8), 4096)] {
        assert_eq!(refused(import(start, size)).0, ErrorKind::Invalid, "{start:?} {size}");
    }
    Ok(())
}

/// The x86 driver's way to the same copy.
fn through_rm(device: &Device) -> Result<()> {
    let mut rm = Rm::new(device);
    let default = AllocOptions::default();
    let [root, sub, space, group, share, gpfifo, copy] =
        [1, 2, 3, 4, 5, 6, 7].map(|n| Handle(0xc1d0_0000 + n));
    rm.alloc(Handle(0), root, 0x80, &default)?;
    rm.alloc(root, sub, 0x2080, &default)?;
    rm.alloc(root, space, 0x70, &default)?;
    rm.alloc(root, Handle(9), 0x90f1, &default)?;
    rm.alloc(root, Handle(10), 0x83de, &default)?;
    rm.alloc(root, group, 0xa06c, &default)?;
    rm.alloc(group, share, 0x9067, &default)?;
    let ring = AllocOptions { entries: Some(64), ..default.clone() };
    rm.alloc(group, gpfifo, 0xc56f, &ring)?;
    rm.alloc(gpfifo, copy, 0xc7b5, &default)?;
    rm.alloc(gpfifo, Handle(8), 0xc7c0, &default)?;

    let mut ask = |object, cmd, words: &mut [u64]| -> Result<()> {
        let count = std::mem::size_of_val(words);
        // SAFETY: they are bytes of an array of ours, which nobody else looks at meanwhile.
        let bytes = unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), count) };
        // SAFETY: the addresses below are of arrays of ours.
        unsafe { rm.control(object, cmd, bytes) }
    };
    let mut info = [(0x0c_u32, 0_u32), (0x14, 0), (0x17, 0)];
    let mut asked = [3, info.as_mut_ptr() as u64, 0, 0];
    ask(sub, 0x2080_1201, &mut asked)?;
    assert_eq!(info, [(0x0c, 0x807), (0x14, 1), (0x17, 4)]);
    let mut classes = [0_u32; 16];
    let mut asked = [16, classes.as_mut_ptr() as u64];
    ask(root, 0x0080_0201, &mut asked)?;
    let classes = &classes[..asked[0] as u32 as usize];
    assert!(classes.contains(&0xc7c0) && classes.contains(&0xc7b5), "{classes:x?}");
    ask(gpfifo, 0xa06c_0101, &mut [])?;
    ask(sub, 0x2080_130e, &mut [])?;
    // Four bytes, so not as words.
    let mut token = [0_u32; 1];
    // SAFETY: they are bytes of an array of ours.
    let bytes = unsafe { std::slice::from_raw_parts_mut(token.as_mut_ptr().cast(), 4) };
    // SAFETY: there is no address in it.
    unsafe { rm.control(gpfifo, 0xc36f_0108, bytes) }?;
    let mut gid = [0_u32; 67];
    gid[1] = 2;
    // SAFETY: they are bytes of an array of ours.
    let bytes = unsafe { std::slice::from_raw_parts_mut(gid.as_mut_ptr().cast(), 268) };
    // SAFETY: there is no address in it.
    unsafe { rm.control(sub, 0x2080_014a, bytes) }?;
    assert_eq!((gid[2], gid[3].to_le_bytes()), (16, *b"Jga1"));
    assert_eq!(rm.channel_mut(gpfifo).unwrap().work_submit_token(), token[0]);

    // The clock, and back.
    let clock = || std::fs::read_to_string("/sys/class/devfreq/17000000.gpu/min_freq").unwrap();
    let before = clock();
    let mut boost = [2_u64];
    // SAFETY: they are bytes of an array of ours.
    let bytes = unsafe { std::slice::from_raw_parts_mut(boost.as_mut_ptr().cast(), 8) };
    // SAFETY: there is no address in it.
    unsafe { rm.control(sub, 0x2080_200a, bytes) }?;
    assert_ne!(clock(), before);

    let memory = rm.address_space(space).unwrap().clone();
    let (mut from, to) =
        (memory.allocate(4096, Cache::Inner)?, memory.allocate(4096, Cache::Inner)?);
    from.write(0, b"through the manager")?;
    let channel = rm.channel_mut(gpfifo).unwrap();
    let ticket = channel.submit(Push::new().copy(to.gpu_address(), from.gpu_address(), 4096))?;
    channel.wait(ticket, PATIENCE)?;
    let mut found = [0; 19];
    to.read(0, &mut found)?;
    assert_eq!(&found, b"through the manager");

    let unknown = rm.alloc(root, Handle(99), 0xcafe, &default).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Unsupported);
    rm.free(root)?;
    assert!(rm.channel_mut(gpfifo).is_none(), "children go with their parent");
    drop(rm);
    assert_eq!(clock(), before);
    Ok(())
}

/// Many more submissions than the ring and the arena hold at once.
fn back_pressure(space: &AddressSpace) -> Result<()> {
    let subcontext = Subcontext::new(&Tsg::new(space.device())?, space);
    let classes = vec![(Subchannel::Compute, 0xc7c0), (Subchannel::Copy, 0xc7b5)];
    let mut channel = Channel::new(&subcontext, &ChannelOptions { entries: 4, classes })?;
    let counter = space.allocate(4096, Cache::Uncached)?;
    let mut last = None;
    for i in 0..300_u32 {
        let mut push = Push::new();
        // Lengths that wrap the arena at every place.
        for _ in 0..(i * 37 % 101) {
            push.fill(counter.gpu_address() + 1024, i, 200);
        }
        push.write(counter.gpu_address(), &i.to_le_bytes())?;
        last = Some(channel.submit(&push)?);
    }
    channel.wait(last.unwrap(), PATIENCE)?;
    let mut found = [0; 4];
    counter.read(0, &mut found)?;
    assert_eq!(u32::from_le_bytes(found), 299);
    let (syncpoint, threshold) = (channel.syncpoint(), last.unwrap().threshold());
    let raised = threshold.wrapping_sub(syncpoint.first());
    assert_eq!(raised, 301, "one for the classes, one for each submission");
    // Without fences there is nothing to sleep on.
    assert_eq!(syncpoint.wait(threshold, PATIENCE)?, is_newest(space));
    assert!(!syncpoint.wait(threshold.wrapping_add(1), Duration::from_millis(20))?);
    Ok(())
}

/// A copy to where nothing is: the error notifier says so, and nothing more can be sent.
fn fault(space: &AddressSpace) -> Result<()> {
    let mut channel = channel(space)?;
    let ticket = channel.submit(Push::new().copy(0xab_0000_0000, 0xab_1000_0000, 4096))?;
    let error = channel.wait(ticket, PATIENCE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fault);
    assert!(error.to_string().contains("FIFO_ERROR_MMU_ERR_FLT"), "{error}");
    let error = channel.submit(&Push::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fault);
    Ok(())
}

/// A wait for what never comes ends, and says that the notifier is empty.
fn timeout(space: &AddressSpace) -> Result<()> {
    let mut channel = channel(space)?;
    let flag = space.allocate(4096, Cache::Uncached)?;
    let ticket = channel.submit(Push::new().acquire(flag.gpu_address(), 1))?;
    let error = channel.wait(ticket, Duration::from_millis(120)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("the error notifier is empty"), "{error}");
    Ok(())
}

/// Values of 64 bits, and when they were written.
fn semaphores(space: &AddressSpace) -> Result<()> {
    let (mut first, mut second) = (channel(space)?, channel(space)?);
    let memory = space.allocate(4096, Cache::Uncached)?;
    let at = memory.gpu_address();
    let word = |offset: u64| {
        let mut bytes = [0; 8];
        memory.read(offset, &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    };
    const LARGE: u64 = 0x1_0000_0000;
    // Its lower half alone would do for a wait of 32 bits.
    let early = first.submit(Push::new().release64(at, 5))?;
    first.wait(early, PATIENCE)?;
    let waits =
        second.submit(Push::new().acquire64(at, LARGE + 3).release_with_time(at + 16, 7))?;
    std::thread::sleep(Duration::from_millis(5));
    assert!(!second.is_done(waits));
    let done = first.submit(Push::new().release_with_time(at + 32, 1).release64(at, LARGE + 4))?;
    first.wait(done, PATIENCE)?;
    second.wait(waits, PATIENCE)?;
    assert_eq!((word(0), word(16), word(32)), (LARGE + 4, 7, 1));
    assert!(word(40) > 0 && word(24) > word(40), "{} then {}", word(40), word(24));
    Ok(())
}

/// Commands in a buffer of the program's own.
fn in_place(space: &AddressSpace) -> Result<()> {
    let subcontext = Subcontext::new(&Tsg::new(space.device())?, space);
    let options = ChannelOptions { entries: 4, ..ChannelOptions::default() };
    let mut channel = Channel::new(&subcontext, &options)?;
    let mut commands = space.allocate(1 << 16, Cache::WriteCombine)?;
    let target = space.allocate(4096, Cache::Uncached)?;
    let mut tickets = Vec::new();
    // More than the ring holds, each in a place of its own.
    for i in 0..40_u32 {
        let mut push = Push::new();
        push.fill(target.gpu_address() + u64::from(i) * 16, i + 1, 4);
        let bytes: Vec<u8> = push.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        let offset = u64::from(i) * 256;
        commands.write(offset, &bytes)?;
        tickets.push(channel.submit_in_place(&commands, offset, push.words().len() as u32)?);
        // Beside those that are copied.
        tickets.push(channel.submit(Push::new().wait_for_idle())?);
    }
    channel.wait(tickets[tickets.len() - 1], PATIENCE)?;
    assert!(tickets.iter().all(|ticket| channel.is_done(*ticket)));
    let mut found = vec![0; 640];
    target.read(0, &mut found)?;
    let expected: Vec<u8> =
        (1..=40_u32).flat_map(|i| [i; 4].map(u32::to_le_bytes).concat()).collect();
    assert_eq!(found, expected);
    for (offset, words) in
        [(0, 0), (2, 1), (1 << 16, 1), (4, 1 << 14), (u64::MAX - 3, 1), (0, u32::MAX)]
    {
        let error = channel.submit_in_place(&commands, offset, words).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{offset} {words}: {error}");
    }
    let options = ChannelOptions { entries: 2, ..ChannelOptions::default() };
    let mut small = Channel::new(&subcontext, &options)?;
    let error = small.submit_in_place(&commands, 0, 1).unwrap_err();
    assert!(error.to_string().contains("a ring of 2 takes 1"), "{error}");
    Ok(())
}

/// A channel that waits for a sync file which another has made.
fn foreign(space: &AddressSpace) -> Result<()> {
    use std::os::fd::AsFd as _;
    let (mut first, mut second) = (channel(space)?, channel(space)?);
    let flag = space.allocate(4096, Cache::Uncached)?;
    let prepared = first.submit(&Push::new())?;
    first.wait(prepared, PATIENCE)?;
    let threshold = prepared.threshold().wrapping_add(1);
    let Some(fence) = first.syncpoint().fence(threshold)? else {
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = space.sync_points(file.as_fd()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        return Ok(());
    };
    let points = space.sync_points(fence.as_fd())?;
    assert_eq!(points.len(), 1);
    assert_eq!((points[0].id, points[0].threshold), (first.syncpoint().id(), threshold));
    let mut push = Push::new();
    let waits = second.submit(push.acquire_points(&points).release(flag.gpu_address(), 9))?;
    assert!(!wait_for_fence(fence.as_fd(), Duration::from_millis(5))?);
    assert!(!second.is_done(waits));
    first.submit(&Push::new())?;
    assert!(wait_for_fence(fence.as_fd(), PATIENCE)?);
    second.wait(waits, PATIENCE)?;
    let mut found = [0; 4];
    flag.read(0, &mut found)?;
    assert_eq!(u32::from_le_bytes(found), 9);
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(space.sync_points(file.as_fd()).is_err(), "no sync file");
    Ok(())
}

/// A kernel with constants, shared and local memory, as far as the simulated GPU goes.
fn launch(space: &AddressSpace) -> Result<()> {
    let mut channel = channel(space)?;
    let (code, constants) =
        (space.allocate(4096, Cache::Inner)?, space.allocate(4096, Cache::Inner)?);
    let local = space.allocate(4 << 15, Cache::Inner)?;
    let mut launch = Launch::new(code.gpu_address(), [7, 5, 3], [64, 4, 2]);
    (launch.registers, launch.shared, launch.local) = (40, 1025, [0, 0x240]);
    launch.constants[0] = Some(ConstantBank { address: constants.gpu_address(), size: 0x180 });
    let mut description = space.allocate(4096, Cache::Inner)?;
    description.write(512, &launch.qmd()?)?;
    let mut push = Push::new();
    push.set_windows(0xfe_0000_0000, 0xfd_0000_0000)
        .set_local_memory(local.gpu_address(), 1 << 15)?
        .launch(description.gpu_address() + 512)?;
    let ticket = channel.submit(&push)?;
    let error = channel.wait(ticket, PATIENCE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fault, "{error}");
    Ok(())
}

/// Kernels of a cubin, in memory of the GPU: a product of matrices, and a histogram. `CUBIN` names it, and one that
/// has variables.
fn module(space: &AddressSpace) -> Result<()> {
    let read = |number: usize| std::fs::read(std::env::var(CUBIN[number]).unwrap()).unwrap();
    let (cubin, with_variables) = (read(0), read(1));
    let error = Module::load(space, &with_variables).unwrap_err();
    assert!(error.to_string().contains("addresses to be filled in (.rel"), "{error}");
    for length in (0..cubin.len()).step_by(509) {
        assert!(Module::load(space, &cubin[..length]).is_err(), "{length} bytes of it");
    }
    let module = Module::load(space, &cubin)?;
    assert!(module.kernel("none").is_none());
    let mut channel = channel(space)?;
    let mut memory = space.allocate(1 << 16, Cache::Inner)?;
    let mut run = |name: &str, grid, block, parameters: &[u64], last: u32| {
        let kernel = module.kernel(name).unwrap();
        let mut bytes: Vec<u8> = parameters.iter().flat_map(|it| it.to_le_bytes()).collect();
        bytes.extend(last.to_le_bytes());
        assert!(kernel.bank(grid, block, &bytes[1..]).is_err(), "a byte is missing");
        let bank = kernel.bank(grid, block, &bytes)?;
        memory.write(0, &bank)?;
        let mut launch = kernel.launch(grid, block);
        let (address, size) = (memory.gpu_address(), bank.len() as u32);
        launch.constants[0] = Some(ConstantBank { address, size });
        memory.write(0x2000, &launch.qmd()?)?;
        let mut push = Push::new();
        push.set_windows(0xfe_0000_0000, 0xfd_0000_0000).launch(memory.gpu_address() + 0x2000)?;
        let ticket = channel.submit(&push)?;
        channel.wait(ticket, PATIENCE)
    };
    const N: usize = 32;
    let number = |at: usize| (at % 7) as f32;
    let mut factors = space.allocate((N * N * 4) as u64, Cache::Inner)?;
    let product = space.allocate((N * N * 4) as u64, Cache::Inner)?;
    let floats: Vec<u8> = (0..N * N).flat_map(|at| number(at).to_le_bytes()).collect();
    factors.write(0, &floats)?;
    let (from, to) = (factors.gpu_address(), product.gpu_address());
    run("matmul", [2, 2, 1], [16, 16, 1], &[from, from, to], N as u32)?;
    let mut found = vec![0; N * N * 4];
    product.read(0, &mut found)?;
    for (at, bytes) in found.chunks_exact(4).enumerate() {
        let sum = |k| number(at / N * N + k) * number(k * N + at % N);
        let expected: f32 = (0..N).map(sum).sum();
        assert_eq!(f32::from_le_bytes(bytes.try_into().unwrap()), expected, "element {at}");
    }
    // Of bytes in pages of the program's own, with atomic additions into others.
    let (own, bins) = (Pages::new(1), Pages::new(1));
    let imported = [own.import(space, Access::Read)?, bins.import(space, Access::ReadWrite)?];
    own.write(0, &floats[..1000]);
    let [from, to] = imported.each_ref().map(|imported| imported.gpu_address());
    run("histogram", [2, 1, 1], [256, 1, 1], &[from, to], 1000)?;
    for (value, bytes) in bins.read(0, 1024).chunks_exact(4).enumerate() {
        let expected = floats[..1000].iter().filter(|byte| usize::from(**byte) == value).count();
        assert_eq!(u32::from_le_bytes(bytes.try_into().unwrap()) as usize, expected, "{value}");
    }
    Ok(())
}

/// Something stays behind on purpose.
fn leak(space: &AddressSpace) -> Result<()> {
    std::mem::forget(space.allocate(4096, Cache::Inner)?);
    std::mem::forget(Memory::allocate(space.device(), 4096, Cache::Inner)?);
    Ok(())
}

/// A subcontext's number goes with its last channel, and another may have it then.
fn subcontexts(space: &AddressSpace) -> Result<()> {
    let tsg = Tsg::new(space.device())?;
    let (first, second) = (Subcontext::new(&tsg, space), Subcontext::new(&tsg, space));
    let options = ChannelOptions::default();
    // Before r36 all are in one.
    let number = |number| Some(if is_newest(space) { number } else { 0 });
    assert_eq!(first.veid(), None);
    let of_first = Channel::new(&first, &options)?;
    assert_eq!(first.veid(), number(1));
    drop(of_first);
    assert_eq!(first.veid(), None);
    let mut of_second = Channel::new(&second, &options)?;
    assert_eq!(second.veid(), number(1));
    let again = Channel::new(&first, &options)?;
    assert_eq!(first.veid(), number(2));
    drop((again, first));
    let ticket = of_second.submit(&Push::new())?;
    of_second.wait(ticket, PATIENCE)
}

/// What is refused before the kernel is asked.
fn refusals(space: &AddressSpace) -> Result<()> {
    let device = space.device();
    for range in [0..1 << 30, 1 << 21..1 << 40, (1 << 21) + 1..1 << 30, 1 << 30..1 << 30] {
        let error = AddressSpace::with_range(device, range).unwrap_err();
        let is_chosen = device.release() == Release::R32;
        let kind = if is_chosen { ErrorKind::Unsupported } else { ErrorKind::Invalid };
        assert_eq!(error.kind(), kind, "{error}");
    }
    assert_eq!(Memory::allocate(device, 0, Cache::Inner).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(Memory::allocate(device, u64::MAX, Cache::Inner).is_err());
    let subcontext = Subcontext::new(&Tsg::new(device)?, space);
    for entries in [0, 1, 3, 1025] {
        let options = ChannelOptions { entries, ..ChannelOptions::default() };
        let error = Channel::new(&subcontext, &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{entries}: {error}");
    }
    // The windows of shaders are taken.
    assert_eq!(space.reserve(0xfd_0000_0000, 4096).unwrap_err().errno(), Some(nix_enomem()));
    let mut buffer = space.allocate(4096, Cache::Inner)?;
    assert!(buffer.write(4090, &[0; 7]).is_err());
    assert!(buffer.read(u64::MAX, &mut [0]).is_err());
    // Where the GPU's address is taken for the CPU, another one does.
    let hole = buffer.gpu_address() as usize;
    drop(buffer);
    // SAFETY: nothing is there: the buffer has just gone.
    let taken = unsafe {
        libc::mmap(
            hole as *mut _,
            4096,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        )
    };
    assert_eq!(taken as usize, hole);
    let buffer = space.allocate(4096, Cache::Inner)?;
    assert_eq!(buffer.gpu_address() as usize, hole);
    assert_ne!(buffer.cpu_address() as usize, hole);
    Ok(())
}

fn nix_enomem() -> i32 {
    libc::ENOMEM
}

// --- The tests --------------------------------------------------------------------------------

/// Runs a client on a simulated kernel; its output, and the kernel's report.
fn run(role: &str, faults: &[String]) -> (Output, Value) {
    run_on("r36.4", role, faults)
}

/// The same, of a release.
fn run_on(release: &str, role: &str, faults: &[String]) -> (Output, Value) {
    run_with(release, role, faults, &[])
}

/// The same, with variables in its environment.
fn run_with(
    release: &str,
    role: &str,
    faults: &[String],
    variables: &[(&str, &PathBuf)],
) -> (Output, Value) {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
    command.args(["tegra", "sim", "--release", release, "--report"]).arg(&report);
    for fault in faults {
        command.args(["--fault", fault]);
    }
    command.arg("--").arg(std::env::current_exe().unwrap());
    command.args(["client", "--exact", "--nocapture"]).env(ROLE, role);
    command.envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("seccomp") && !Path::new(&report).exists() {
        skip(Need::Supervise, text.trim());
    }
    let report = std::fs::read_to_string(&report).unwrap_or_else(|e| panic!("{e}: {text}"));
    (output, serde_json::from_str(&report).unwrap())
}

/// What is there when the client ends, by kind.
fn left(report: &Value) -> BTreeMap<String, u64> {
    let leaks = report["leaks"].as_array().unwrap();
    let entry = |leak: &Value| {
        Some((leak["kind"].as_str()?.to_owned(), leak["count"].as_u64().filter(|n| *n > 0)?))
    };
    leaks.iter().filter_map(entry).collect()
}

/// Nothing is left but the device and the address space that stay open on purpose, and the mapping
/// of the doorbell where a channel was made.
#[track_caller]
fn assert_clean(report: &Value, what: &str) {
    let mut left = left(report);
    left.remove("CPU mapping").inspect(|count| assert_eq!(*count, 1, "{what}"));
    for kind in ["ctrl", "nvmap", "address space", "host1x-fence"] {
        left.remove(kind).inspect(|count| assert_eq!(*count, 1, "{what}: {kind}"));
    }
    assert!(left.is_empty(), "{what}: {left:?}");
    assert_eq!(report["live_buffers"], 0, "{what}");
}

/// The client ends well, and nothing is left in the kernel.
#[track_caller]
fn ends_well(role: &str) {
    ends_well_on("r36.4", role);
}

#[track_caller]
fn ends_well_on(release: &str, role: &str) {
    let (output, report) = run_on(release, role, &[]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{release}, {role}: {told}");
    assert_clean(&report, role);
}

#[test]
fn everything_works() {
    ends_well("everything");
}

#[test]
fn the_resource_managers_calls_have_substitutes() {
    ends_well("rm");
}

#[test]
fn a_full_ring_and_a_full_arena_wait() {
    ends_well("back-pressure");
}

#[test]
fn a_fault_is_told_from_the_error_notifier() {
    ends_well("fault");
}

#[test]
fn a_wait_ends_when_time_is_up() {
    ends_well("timeout");
}

/// Who waits for long sleeps until a fence wakes it, and does not look again and again.
#[test]
fn a_long_wait_sleeps_on_a_fence() {
    let (output, report) = run("timeout", &[]);
    assert!(output.status.success());
    let fences = report["calls"]["HOST1X_IOCTL_CREATE_FENCE"]["total"].as_u64();
    // One for each 50 of 120 ms.
    assert!(fences.is_some_and(|fences| (1..8).contains(&fences)), "{fences:?}");
}

#[test]
fn a_subcontext_lives_as_long_as_its_channels() {
    ends_well("subcontexts");
}

#[test]
fn semaphores_have_64_bits_and_times() {
    ends_well("semaphores");
}

#[test]
fn commands_run_where_they_lie() {
    ends_well("in-place");
}

#[test]
fn a_channel_waits_for_a_sync_file() {
    ends_well("foreign");
}

#[test]
fn the_programs_own_pages_are_the_gpus_too() {
    ends_well("import");
}

#[test]
fn a_description_is_read_as_it_was_built() {
    let (output, report) = run("launch", &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let texts: Vec<&str> = report["diagnostics"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["text"].as_str())
        .collect();
    let built = "QMD 3.0, grid 7x5x3, block 64x4x2, 1152 bytes of shared memory, 40 registers, \
                 constants 0: 384 bytes";
    assert!(texts.iter().any(|text| text.contains(built)), "{texts:?}");
}

#[test]
fn kernels_of_a_cubin_compute() {
    let cuda = nvabi_test::cuda(&["bin/ptxas"]);
    let folder = tempfile::tempdir().unwrap();
    let cubins = ["classic", "memories"].map(|name| {
        let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cuda/kernels/ptx").join(name);
        let text = std::fs::read_to_string(kernels.with_extension("ptx")).unwrap();
        let (ptx, cubin) = (folder.path().join("ptx"), folder.path().join(name));
        std::fs::write(&ptx, text.replace(".target sm_80", ".target sm_87")).unwrap();
        let mut ptxas = Command::new(cuda.join("bin/ptxas"));
        let output = ptxas.arg("-arch=sm_87").arg(&ptx).arg("-o").arg(&cubin).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        cubin
    });
    let variables: Vec<_> = CUBIN.into_iter().zip(&cubins).collect();
    let (output, report) = run_with("r36.4", "module", &[], &variables);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_clean(&report, "module");
}

/// All of it on each release whose layouts are others.
#[test]
fn older_releases_are_spoken_to_in_their_own_layouts() {
    for release in ["r35.5", "r35.4", "r35.3", "r34.1", "r32.7"] {
        for role in [
            "everything",
            "rm",
            "back-pressure",
            "fault",
            "timeout",
            "in-place",
            "foreign",
            "import",
            "subcontexts",
            "refusals",
        ] {
            ends_well_on(release, role);
        }
    }
}

#[test]
fn the_example_copies_64_mib() {
    let (output, _) = run("copy-example", &[]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("every byte is the same"), "{told}");
}

/// What NVRTC compiles for the GPU comes to the results of plain Rust.
#[test]
fn the_example_computes() {
    let nvrtc = nvabi_test::nvrtc().join("libnvrtc.so.12");
    let (output, report) = run_with("r36.4", "compute-example", &[], &[("NVRTC", &nvrtc)]);
    let (told, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}{complaint}");
    let lines = [
        "sums of vectors: all 100001 are right",
        "sum in shared memory: all 1 are right",
        "product of matrices: all 5625 are right",
        "sorted in local memory: all 8000 are right",
    ];
    for line in lines {
        assert!(told.contains(line), "{line}: {told}");
    }
    assert_clean(&report, "compute-example");
}

#[test]
fn what_cannot_be_is_refused() {
    ends_well("refusals");
}

/// The check of what is left can fail.
#[test]
fn what_is_left_is_counted() {
    let (_, report) = run("leak", &[]);
    let left = left(&report);
    assert_eq!((left["GPU mapping"], left["dma-buf"], left["CPU mapping"]), (1, 2, 1), "{left:?}");
}

/// Calls whose failure nobody can do anything about: they undo something that goes anyway.
const UNDOING: [&str; 3] =
    ["NVMAP_IOC_FREE", "NVGPU_AS_IOCTL_UNMAP_BUFFER", "NVGPU_TSG_IOCTL_DELETE_SUBCONTEXT"];

#[test]
fn no_refused_call_leaves_anything_behind() {
    refuse_each_call("r36.4");
}

#[test]
fn no_refused_call_of_r35_leaves_anything_behind() {
    refuse_each_call("r35.3");
}

#[test]
fn no_refused_call_of_r32_leaves_anything_behind() {
    refuse_each_call("r32.7");
}

/// Every call fails once at each place where it is made: the error names it, and nothing is left.
fn refuse_each_call(release: &str) {
    let (output, whole) = run_on(release, "everything", &[]);
    assert!(output.status.success());
    let calls: BTreeMap<String, Value> = serde_json::from_value(whole["calls"].clone()).unwrap();
    let (mut refused, mut survived) = (0, 0);
    for (name, counts) in &calls {
        for occurrence in 1..=counts["total"].as_u64().unwrap() {
            let fault = format!("{name}:{occurrence}:EIO");
            let mut faults = vec![fault.clone()];
            if name == "mmap" {
                // Where the GPU's address is refused, the CPU is given another.
                faults.push(format!("{name}:{}:EIO", occurrence + 1));
            }
            let (output, report) = run_on(release, "everything", &faults);
            let told = String::from_utf8_lossy(&output.stderr);
            if UNDOING.contains(&name.as_str()) {
                assert_eq!(output.status.code(), Some(0), "{fault}: {told}");
                // What could not be undone is there until its owner goes: so the count can fail.
                let left = left(&report);
                // Handles of r32 are dma-bufs.
                let kinds = ["nvmap handle", "GPU mapping", "dma-buf"];
                let found = kinds.iter().any(|kind| left.contains_key(*kind));
                assert!(found || name.ends_with("SUBCONTEXT"), "{fault}: {left:?}");
                continue;
            } else if name == "mmap" && output.status.success() {
                // The two were attempts of two mappings that each have a second one.
                survived += 1;
            } else if fault == "open:3:EIO" && output.status.success() {
                // Without the node of fences a wait looks again and again.
            } else if name == "HOST1X_IOCTL_CREATE_FENCE" && output.status.code() == Some(0) {
                // How often a wait sleeps is not the same each time.
            } else {
                assert_eq!(output.status.code(), Some(REFUSED), "{fault}: {told}");
                let named = if name == "open" { "cannot open /dev/" } else { &format!("{name}: ") };
                assert!(told.contains(&format!("refused: {named}")), "{fault}: {told}");
                refused += 1;
            }
            assert_clean(&report, &fault);
        }
    }
    println!("{refused} calls refused, one at a time");
    assert!(refused > 60 && survived < 4, "{survived}");
}

/// A signal at any call changes nothing.
#[test]
fn an_interrupted_call_is_made_again() {
    let (_, whole) = run("everything", &[]);
    let calls: BTreeMap<String, Value> = serde_json::from_value(whole["calls"].clone()).unwrap();
    let faults: Vec<String> = (calls.keys())
        .filter(|name| *name != "mmap" && !UNDOING.contains(&name.as_str()))
        .map(|name| format!("{name}:1:EINTR"))
        .collect();
    let (output, report) = run("everything", &faults);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_clean(&report, "EINTR");
}
