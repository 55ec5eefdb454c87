//! Channels: what is mapped for a GPU, and what it does with it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use crate::client::status::*;
use crate::client::*;
use crate::mapping::shown;
use crate::rules;

const SPACE: u32 = 0x90f1;
const WINDOW: u32 = 0x0070;
const GROUP: u32 = 0xa06c;
const CONTEXT_SHARE: u32 = 0x9067;
const OS_DESCRIPTOR: u64 = 0x71;
/// The last byte of classes of channels, of copies, and of the registers that are rung.
const GPFIFO: u32 = 0x6f;
const COPY: u32 = 0xb5;
const COMPUTE: u32 = 0xc0;
const USERMODE: u32 = 0x61;

/// What UVM calls the processor.
const CPU: [u8; 16] = [
    0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73,
];

/// The identity of the first GPU.
const UUID: [u8; 16] = *b"nvabi-simulated\0";

/// NVOS46_FLAGS_DMA_OFFSET_FIXED, _ACCESS_READ_ONLY.
const FIXED: u64 = 1 << 15;
const READ_ONLY: u64 = 1;

/// Where the GPU sees the memory of a [`Rig`], and what is where in that.
const BASE: u64 = 0x10_0000_0000;
const SIZE: usize = 1 << 20;
const RING: u64 = 0x2000;
const ENTRIES: u32 = 32;
const PUSH: u64 = 0x9000;
const PUSH_SIZE: u64 = 0x200;
const USERD: u64 = 0x3000;
const SEMAPHORE: u64 = 0x4000;
const FROM: u64 = 0x1_0000;
const TO: u64 = 0x8_0000;

/// Methods of the copy engine (`clc6b5.h`), and a launch with both sides pitch-linear and not pipelined.
const SET_SEMAPHORE: u32 = 0x240;
const LAUNCH: u32 = 0x300;
const OFFSET_IN: u32 = 0x400;
const LINE_LENGTH: u32 = 0x418;
const COPY_LINEAR: u32 = 0x182;
const RELEASE_ONE_WORD: u32 = 0x08;

/// Methods of the compute class (`clc6c0.h`): where a launch's description goes, and its words, the last of which starts
/// it.
const QMD_ADDRESS: u32 = 0x318;
const QMD_WORDS: u32 = 64;

/// Numbers of the driver's errors, as notifiers have them.
const EXCEPTION: u32 = 13;
const MMU_FAULT: u32 = 31;
const PBDMA: u32 = 32;

/// NV2080_NOTIFIERS_RC_ERROR.
const RC_ERROR: u64 = 37;

/// A channel for copies, with one piece of memory that both sides see.
pub(crate) struct Rig {
    client: Client,
    device: u32,
    space: u32,
    window: u32,
    memory: u32,
    channel: u32,
    classes: Vec<u32>,
    token: u32,
    put: u32,
    released: u32,
    bytes: &'static mut [u8],
    registers: &'static mut [u8],
    notifier: &'static mut [u8],
}

fn classes(client: &Client, device: u32) -> Vec<u32> {
    let mut params = Struct::new("NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS");
    assert_eq!(client.control(device, "NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2", &mut params), OK);
    let count = params.get("numClasses");
    (0..count).map(|at| params.get(&format!("classList[{at}]")) as u32).collect()
}

fn class(classes: &[u32], last: u32) -> u32 {
    *classes.iter().find(|class| **class & 0xff == last).unwrap()
}

/// Maps what UVM has at an address in the place of what was there; with no file, finds addresses that are free.
fn mapping_of(at: u64, length: usize, fd: Fd) -> Result<u64, i32> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    let kind = if at == 0 { kind | libc::MAP_ANONYMOUS } else { kind | libc::MAP_FIXED };
    let made =
        unsafe { libc::mmap(at as *mut libc::c_void, length, access, kind, fd, at as libc::off_t) };
    if made == libc::MAP_FAILED { Err(errno()) } else { Ok(made as u64) }
}

/// A call about memory that is mapped for the GPU, at an address.
fn dma(record: &str, client: &Client, device: u32, [window, memory]: [u32; 2], at: u64) -> Struct {
    Struct::new(record)
        .with("hClient", client.handle.into())
        .with("hDevice", device.into())
        .with("hDma", window.into())
        .with("hMemory", memory.into())
        .with("dmaOffset", at)
        .with("status", 0xdead)
}

/// Maps memory for the GPU; where it is then.
fn map_dma(
    client: &Client,
    device: u32,
    pair: [u32; 2],
    [offset, length, flags, at]: [u64; 4],
) -> Result<u64, u32> {
    let args = dma("NVOS46_PARAMETERS", client, device, pair, at);
    let mut args = args.with("offset", offset).with("length", length).with("flags", flags);
    assert_eq!(escape(client.fd, 0x57, &mut args), Ok(()));
    match args.get("status") as u32 {
        OK => Ok(args.get("dmaOffset")),
        status => Err(status),
    }
}

fn unmap_dma(client: &Client, device: u32, pair: [u32; 2], at: u64) -> u32 {
    let mut args = dma("NVOS47_PARAMETERS", client, device, pair, at);
    assert_eq!(escape(client.fd, 0x58, &mut args), Ok(()));
    args.get("status") as u32
}

/// Addresses to map at, of a space.
fn window(client: &Client, device: u32, space: u32) -> u32 {
    let record = "NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS";
    let mut params =
        Struct::new(record).with("hVASpace", space.into()).with("limit", (1 << 48) - 1);
    client.alloc(device, WINDOW, Some(&mut params)).unwrap()
}

fn channel_params() -> Struct {
    let name = "NV_CHANNEL_ALLOC_PARAMS";
    let is_there = driver().layout(name).is_some();
    Struct::new(if is_there { name } else { "NV_CHANNELGPFIFO_ALLOCATION_PARAMETERS" })
}

impl Rig {
    pub(crate) fn new() -> Self {
        let (client, device, subdevice) = Client::with_device();
        let classes = classes(&client, device);
        let alloc = |class: u32, size: usize| {
            let mut params = memory_params(class, size as u64);
            client.alloc(device, class, Some(&mut params)).unwrap()
        };
        let (memory, error) = (alloc(VIDEO_MEMORY, SIZE), alloc(SYSTEM_MEMORY, 4096));
        let bytes = shown(&client, device, memory, SIZE, "/dev/nvidia0");
        let notifier = shown(&client, device, error, 4096, "/dev/nvidiactl");
        let mut params = Struct::new("NV_VASPACE_ALLOCATION_PARAMETERS");
        let space = client.alloc(device, SPACE, Some(&mut params)).unwrap();
        let window = window(&client, device, space);
        let at = map_dma(&client, device, [window, memory], [0, SIZE as u64, FIXED, BASE]);
        assert_eq!(at, Ok(BASE));
        let mut params =
            Struct::new("NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS").with("engineType", 1);
        let group = client.alloc(device, GROUP, Some(&mut params)).unwrap();
        let mut params =
            Struct::new("NV_CTXSHARE_ALLOCATION_PARAMETERS").with("hVASpace", space.into());
        let share = client.alloc(group, CONTEXT_SHARE, Some(&mut params)).unwrap();
        let mut params = channel_params()
            .with("hObjectError", error.into())
            .with("gpFifoOffset", BASE + RING)
            .with("gpFifoEntries", ENTRIES.into())
            .with("hContextShare", share.into())
            .with("hUserdMemory[0]", memory.into())
            .with("userdOffset[0]", USERD);
        let channel = client.alloc(group, class(&classes, GPFIFO), Some(&mut params)).unwrap();
        client.alloc(channel, class(&classes, COPY), None).unwrap();
        let usermode = client.alloc(subdevice, class(&classes, USERMODE), None).unwrap();
        let registers = shown(&client, subdevice, usermode, 0x1_0000, "/dev/nvidia0");
        let mut params = Struct::new("NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS");
        let name = "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN";
        assert_eq!(client.control(channel, name, &mut params), OK);
        let token = params.get("workSubmitToken") as u32;
        let mut params = Struct::new("NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS").with("bEnable", 1);
        assert_eq!(client.control(group, "NVA06C_CTRL_CMD_GPFIFO_SCHEDULE", &mut params), OK);
        let (put, released) = (0, 0);
        Self {
            client,
            device,
            space,
            window,
            memory,
            channel,
            classes,
            token,
            put,
            released,
            bytes,
            registers,
            notifier,
        }
    }

    fn word(&self, at: u64) -> &AtomicU32 {
        unsafe { &*self.bytes[at as usize..].as_ptr().cast() }
    }

    /// Has the channel carry out a pushbuffer, by way of a doorbell.
    fn submit(&mut self, words: &[u32]) {
        // Each has a place of its own, so that none is written over that is still read.
        let at = PUSH + u64::from(self.put) * PUSH_SIZE;
        assert!(words.len() as u64 * 4 <= PUSH_SIZE);
        for (word, at) in words.iter().zip((at..).step_by(4)) {
            self.word(at).store(*word, Ordering::Relaxed);
        }
        let entry = (BASE + at) | (words.len() as u64) << 42;
        let slot: &AtomicU64 =
            unsafe { &*self.bytes[(RING + u64::from(self.put) * 8) as usize..].as_ptr().cast() };
        slot.store(entry, Ordering::Relaxed);
        self.put = (self.put + 1) % ENTRIES;
        self.word(USERD + 0x8c).store(self.put, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let doorbell: &AtomicU32 = unsafe { &*self.registers[0x90..].as_ptr().cast() };
        doorbell.store(self.token, Ordering::Release);
    }

    /// A copy and a release of the semaphore.
    fn copy(&mut self, from: u64, to: u64, length: u32) {
        self.released += 1;
        let semaphore = BASE + SEMAPHORE;
        let class = class(&self.classes, COPY);
        let mut words = vec![incrementing(0, 1), class, incrementing(OFFSET_IN, 4)];
        words.extend([(from >> 32) as u32, from as u32, (to >> 32) as u32, to as u32]);
        words.extend([incrementing(LINE_LENGTH, 1), length, incrementing(SET_SEMAPHORE, 3)]);
        words.extend([(semaphore >> 32) as u32, semaphore as u32, self.released]);
        words.extend([incrementing(LAUNCH, 1), COPY_LINEAR | RELEASE_ONE_WORD]);
        self.submit(&words);
    }

    fn waits_for(&self, is_done: impl Fn(&Self) -> bool) -> bool {
        let end = Instant::now() + Duration::from_secs(20);
        while !is_done(self) {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        true
    }

    /// Waits until the copies are done that were asked for.
    fn is_done(&self) -> bool {
        let released = self.released;
        self.waits_for(|rig| rig.word(SEMAPHORE).load(Ordering::Acquire) == released)
    }

    /// Whether the channel carries anything out.
    pub(crate) fn works(&mut self) -> bool {
        self.copy(BASE + FROM, BASE + TO, 16);
        self.is_done()
    }

    /// Waits for an error of the channel; its number.
    pub(crate) fn error(&self) -> u32 {
        let status = || u16::from_le_bytes([self.notifier[14], self.notifier[15]]);
        assert!(self.waits_for(|_| {
            fence(Ordering::SeqCst);
            status() == 0xffff
        }));
        u32::from_le_bytes(self.notifier[8..12].try_into().unwrap())
    }
}

/// A header of methods that follow each other, on subchannel 4.
fn incrementing(method: u32, count: u32) -> u32 {
    1 << 29 | count << 16 | 4 << 13 | method >> 2
}

fn filled(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed) ^ (at >> 8) as u8).collect()
}

rules! {
    copies_of_any_size_and_place_arrive {
        let mut rig = Rig::new();
        for (round, (length, from, to)) in
            [(1, 0, 0), (3, 1, 5), (4096, 0, 0), (4097, 0xffd, 3), (0x4_0001, 0x11, 0x7)].into_iter().enumerate()
        {
            let (from, to) = (FROM + from, TO + to);
            let wanted = filled(length, round as u8);
            rig.bytes[from as usize..][..length].copy_from_slice(&wanted);
            rig.bytes[to as usize - 1..][..length + 2].fill(0xee);
            rig.copy(BASE + from, BASE + to, length as u32);
            assert!(rig.is_done(), "{length} bytes");
            let all = &rig.bytes[to as usize - 1..][..length + 2];
            assert_eq!((all[0], all[length + 1]), (0xee, 0xee), "{length} bytes and no more");
            assert!(all[1..=length] == wanted, "{length} bytes");
        }
        // What the client may reuse is told.
        let put = rig.put;
        assert!(rig.waits_for(|rig| rig.word(USERD + 0x88).load(Ordering::Acquire) == put));
    }

    an_error_is_an_event_of_the_gpu {
        let (other, _, subdevice) = Client::with_device();
        let fd = file_of(&other);
        let listener = listen(&other, subdevice, RC_ERROR, fd).unwrap();
        assert_eq!(arm(&other, subdevice, RC_ERROR, REPEAT), OK);
        let mut rig = Rig::new();
        assert!(rig.works());
        rig.copy(BASE + SIZE as u64, BASE + TO, 16);
        assert_eq!(rig.error(), MMU_FAULT);
        assert!(poll(fd, 20_000).is_some());
        let (event, has_more) = next_event(fd).unwrap();
        let told = (event.get("hObject") as u32, event.get("NotifyIndex"), event.get("info32") as u32);
        assert_eq!((told, has_more), ((listener, RC_ERROR, MMU_FAULT), false));
    }

    a_ring_goes_round {
        let mut rig = Rig::new();
        for round in 0..3 * ENTRIES {
            rig.bytes[FROM as usize] = round as u8;
            rig.copy(BASE + FROM, BASE + TO, 1);
            assert!(rig.is_done());
            assert_eq!(rig.bytes[TO as usize], round as u8);
        }
    }

    pages_of_a_process_are_copied {
        let mut rig = Rig::new();
        let own = unsafe {
            let (access, kind) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let at = libc::mmap(std::ptr::null_mut(), 0x3000, access, kind, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            std::slice::from_raw_parts_mut(at.cast::<u8>(), 0x3000)
        };
        let gpu = open("/dev/nvidia0").unwrap();
        let mut register = Struct::new("nv_ioctl_register_fd_t").with("ctl_fd", rig.client.fd as u64);
        assert_eq!(escape(gpu, 201, &mut register), Ok(()));
        let describe = |address: u64, length: u64| {
            let mut args = Struct::new("nv_ioctl_nvos02_parameters_with_fd")
                .with("params.hRoot", rig.client.handle.into())
                .with("params.hObjectParent", rig.device.into())
                .with("params.hObjectNew", 0)
                .with("params.hClass", OS_DESCRIPTOR)
                .with("params.flags", 1 << 30 | 1 << 12 | 1 << 4)
                .with("params.pMemory", address)
                .with("params.limit", length - 1)
                .with("params.status", 0xdead)
                .with("fd", u32::MAX.into());
            assert_eq!(escape(gpu, 0x27, &mut args), Ok(()));
            match args.get("params.status") as u32 {
                OK => Ok(args.get("params.hObjectNew") as u32),
                status => Err(status),
            }
        };
        let address = own.as_ptr() as u64;
        assert_eq!(describe(0x1000, 0x1000), Err(INVALID_ADDRESS), "nothing is there");
        assert_eq!(describe(address + 1, 0x1000), Err(INVALID_ARGUMENT), "no whole page");
        let memory = describe(address, 0x3000).unwrap();
        let pair = [rig.window, memory];
        let at = map_dma(&rig.client, rig.device, pair, [0x1000, 0x2000, 0, 0]).unwrap();
        let wanted = filled(0x1801, 9);
        rig.bytes[FROM as usize..][..0x1801].copy_from_slice(&wanted);
        rig.copy(BASE + FROM, at + 3, 0x1801);
        rig.copy(at + 3, BASE + TO, 0x1801);
        assert!(rig.is_done());
        assert!(own[0x1003..][..0x1801] == wanted && rig.bytes[TO as usize..][..0x1801] == wanted);
    }

    what_is_not_mapped_ends_the_channel {
        let mut rig = Rig::new();
        rig.copy(BASE + FROM, BASE + SIZE as u64 - 1, 2);
        assert_eq!(rig.error(), MMU_FAULT);
        rig.copy(BASE + FROM, BASE + TO, 1);
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(rig.word(SEMAPHORE).load(Ordering::Acquire), 0, "nothing runs after it");
    }

    what_may_not_be_written_ends_the_channel {
        let mut rig = Rig::new();
        let pair = [rig.window, rig.memory];
        let wish = [0, 0x1000, READ_ONLY, 0];
        let at = map_dma(&rig.client, rig.device, pair, wish).unwrap();
        rig.copy(at, BASE + TO, 16);
        assert!(rig.is_done());
        rig.copy(BASE + FROM, at, 16);
        assert_eq!(rig.error(), MMU_FAULT);
    }

    a_class_that_the_card_has_not_ends_the_channel {
        let mut rig = Rig::new();
        rig.submit(&[incrementing(0, 1), 0x12b5, incrementing(LAUNCH, 1), COPY_LINEAR]);
        assert_eq!(rig.error(), PBDMA);
    }

    a_launch_in_the_stream_is_refused {
        let mut rig = Rig::new();
        let at = (BASE + TO) >> 8;
        let compute = class(&rig.classes, COMPUTE);
        let mut words = vec![incrementing(0, 1), compute, incrementing(QMD_ADDRESS, 2 + QMD_WORDS)];
        words.extend([(at >> 32) as u32, at as u32]);
        words.extend(0..QMD_WORDS);
        rig.submit(&words);
        assert_eq!(rig.error(), EXCEPTION);
        // The description is where the program said.
        let last = rig.word(TO + u64::from(QMD_WORDS - 1) * 4).load(Ordering::Acquire);
        assert_eq!(last, QMD_WORDS - 1);
    }

    surfaces_of_blocks_have_the_drivers_order {
        let mut rig = Rig::new();
        let (width, height) = (100_u32, 20_u32);
        let wanted = filled((width * height) as usize, 3);
        rig.bytes[FROM as usize..][..wanted.len()].copy_from_slice(&wanted);
        let class = class(&rig.classes, COPY);
        // Blocks of one gob by two: SET_DST_BLOCK_SIZE and SET_SRC_BLOCK_SIZE, with the surface behind them.
        let size = |method: u32| [incrementing(method, 6), 0x1010, 256, 64, 1, 0, 0];
        let mut round = |from: u64, to: u64, launch: u32| {
            rig.released += 1;
            let semaphore = BASE + SEMAPHORE;
            let mut words = vec![incrementing(0, 1), class];
            words.extend(size(0x70c));
            words.extend(size(0x728));
            // The copy begins at a place in the surface.
            words.extend([incrementing(0x744, 4), 70, 9, 70, 9, incrementing(OFFSET_IN, 8)]);
            words.extend([(from >> 32) as u32, from as u32, (to >> 32) as u32, to as u32]);
            words.extend([width, width, width, height, incrementing(SET_SEMAPHORE, 3)]);
            words.extend([(semaphore >> 32) as u32, semaphore as u32, rig.released]);
            words.extend([incrementing(LAUNCH, 1), launch | RELEASE_ONE_WORD]);
            rig.submit(&words);
            assert!(rig.is_done());
        };
        let several = 1 << 9 | 2;
        round(BASE + FROM, BASE + TO, several | 1 << 7);
        round(BASE + TO, BASE + FROM + 0x1_0000, several | 1 << 8);
        assert!(rig.bytes[FROM as usize + 0x1_0000..][..wanted.len()] == wanted);
        // A block has two gobs, of 64 bytes by eight lines, and a surface of 256 bytes four blocks side by side: the
        // first byte is in the second block's second gob, in its first 16 bytes of the second line.
        let place = 1024 + 512 + 16 + 6;
        assert_eq!(rig.bytes[TO as usize + place], wanted[0]);
        // Sixteen lines down begins the next row of blocks.
        assert_eq!(rig.bytes[TO as usize + 5 * 1024 + 16 + 6], wanted[width as usize * 8]);
        rig.submit(&[incrementing(0, 1), class, incrementing(0x70c, 1), 0x0010, incrementing(LAUNCH, 1), 2 | 1 << 7]);
        assert_eq!(rig.error(), EXCEPTION, "gobs of another height");
    }

    a_header_that_is_none_ends_the_channel {
        let mut rig = Rig::new();
        rig.submit(&[0xdfff_ffff]);
        assert_eq!(rig.error(), PBDMA);
    }

    a_channel_that_is_gone_has_no_doorbell {
        let mut rig = Rig::new();
        rig.copy(BASE + FROM, BASE + TO, 1);
        assert!(rig.is_done());
        assert_eq!(rig.client.free(rig.channel), OK);
        rig.copy(BASE + FROM, BASE + TO, 1);
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(rig.word(SEMAPHORE).load(Ordering::Acquire), 1);
    }

    mappings_for_the_gpu_keep_to_their_addresses {
        let (client, device, _) = Client::with_device();
        let memory = client.alloc(device, VIDEO_MEMORY, Some(&mut memory_params(VIDEO_MEMORY, 0x4000)));
        let pair = [window(&client, device, 0), memory.unwrap()];
        let at = |wish| map_dma(&client, device, pair, wish);
        assert_eq!(at([0, 0x2000, FIXED, 0x100_0000]), Ok(0x100_0000));
        assert_eq!(at([0, 0x2000, FIXED, 0x100_1000]), Err(NO_MEMORY), "another one is there");
        assert_eq!(at([0, 0x2000, FIXED, 0x100_0001]), Err(INVALID_OFFSET), "no whole page");
        assert_eq!(at([0, 0x2000, FIXED, 1 << 50]), Err(INVALID_OFFSET), "no such address");
        assert_eq!(at([0x3000, 0x2000, 0, 0]), Err(INVALID_BASE), "more than there is");
        assert_eq!(at([0, 0, 0, 0]), Err(INVALID_BASE));
        let (first, second) = (at([0, 0x4000, 0, 0]).unwrap(), at([0, 0x4000, 0, 0]).unwrap());
        assert!(first.abs_diff(second) >= 0x4000);
        assert_eq!(unmap_dma(&client, device, pair, first), OK);
        assert_eq!(unmap_dma(&client, device, pair, first), OBJECT_NOT_FOUND);
        assert_eq!(at([0, 0x4000, FIXED, first]), Ok(first));
        // With its memory a mapping goes.
        assert_eq!(client.free(pair[1]), OK);
        let other = client.alloc(device, VIDEO_MEMORY, Some(&mut memory_params(VIDEO_MEMORY, 0x4000)));
        let pair = [pair[0], other.unwrap()];
        let wish = [0, 0x2000, FIXED, 0x100_0000];
        assert_eq!(map_dma(&client, device, pair, wish), Ok(0x100_0000));
        assert_eq!(map_dma(&client, device, [device, pair[1]], wish), Err(INVALID_OBJECT_HANDLE));
        assert_eq!(map_dma(&client, device, [pair[0], device], wish), Err(INVALID_OBJECT_HANDLE));
    }

    what_a_channel_needs_is_asked_for {
        let (client, device, _) = Client::with_device();
        let classes = classes(&client, device);
        let class = class(&classes, GPFIFO);
        let alloc = |params: &mut Struct| client.alloc(device, class, Some(params));
        assert_eq!(alloc(&mut channel_params()), Err(NOT_SUPPORTED), "memory for USERD");
        let memory = client.alloc(device, VIDEO_MEMORY, Some(&mut memory_params(VIDEO_MEMORY, 0x4000)));
        let with_memory = || channel_params().with("hUserdMemory[0]", memory.unwrap().into());
        assert_eq!(alloc(&mut with_memory()), Err(INVALID_ARGUMENT), "entries");
        let whole = || with_memory().with("gpFifoEntries", 8);
        let other = device.into();
        for field in ["hObjectError", "hContextShare", "hVASpace"] {
            assert_eq!(alloc(&mut whole().with(field, other)), Err(INVALID_OBJECT_HANDLE), "{field}");
        }
        let channel = alloc(&mut whole()).unwrap();
        // An engine that the card has not, and one below a device.
        assert_eq!(client.alloc(channel, 0x90b5, None), Err(INVALID_CLASS));
        assert!(client.alloc(device, self::class(&classes, COPY), None).is_err());
    }

    pools_of_semaphores_are_where_the_gpu_has_them {
        let mut rig = Rig::new();
        let size = 0x20_0000_usize;
        // Addresses that are free in the process.
        let base = mapping_of(0, size, -1).unwrap();
        let fd = open("/dev/nvidia-uvm").unwrap();
        assert_eq!(uvm(fd, "UVM_INITIALIZE", &mut Struct::new("UVM_INITIALIZE_PARAMS")), OK);
        let mut register = Struct::new("UVM_REGISTER_GPU_PARAMS");
        register.put("gpu_uuid", &UUID);
        assert_eq!(uvm(fd, "UVM_REGISTER_GPU", &mut register), OK);
        let mut space = Struct::new("UVM_REGISTER_GPU_VASPACE_PARAMS")
            .with("rmCtrlFd", rig.client.fd as u64)
            .with("hClient", rig.client.handle.into())
            .with("hVaSpace", rig.space.into());
        space.put("gpuUuid", &UUID);
        let pool = |length: usize| {
            let mut args = Struct::new("UVM_ALLOC_SEMAPHORE_POOL_PARAMS")
                .with("base", base)
                .with("length", length as u64)
                .with("gpuAttributesCount", 1);
            args.put("perGpuAttributes[0].gpuUuid", &UUID);
            uvm(fd, "UVM_ALLOC_SEMAPHORE_POOL", &mut args)
        };
        assert_eq!(pool(size), OK);
        assert_eq!(pool(size), UVM_ADDRESS_IN_USE);
        // A GPU that comes later sees it as well.
        assert_eq!(uvm(fd, "UVM_REGISTER_GPU_VASPACE", &mut space), OK);
        assert_eq!(mapping_of(base, size / 2, fd), Err(libc::EINVAL), "all of it or nothing");
        assert_eq!(mapping_of(base, size, fd), Ok(base));
        rig.bytes[FROM as usize..][..4].copy_from_slice(b"pool");
        rig.copy(BASE + FROM, base + 0x1000, 4);
        assert!(rig.is_done());
        let seen = |at: u64| unsafe { std::slice::from_raw_parts(at as *const u8, 4) };
        assert_eq!(seen(base + 0x1000), b"pool");
        // The file is still that of the driver.
        assert_eq!(pool(size), UVM_ADDRESS_IN_USE);
        let mut free = Struct::new("UVM_FREE_PARAMS").with("base", base);
        if !is_since(&[590]) {
            free.set("length", size as u64);
        }
        assert_eq!(uvm(fd, "UVM_FREE", &mut free), OK);
        assert_eq!((pool(size), mapping_of(base, size, fd)), (OK, Ok(base)));
        assert_eq!(seen(base + 0x1000), [0; 4], "nothing of another one is in it");
    }

    managed_memory_is_where_the_gpu_has_it {
        let mut rig = Rig::new();
        let size = 0x20_0000_usize;
        let base = mapping_of(0, 2 * size, -1).unwrap();
        let fd = open("/dev/nvidia-uvm").unwrap();
        assert_eq!(uvm(fd, "UVM_INITIALIZE", &mut Struct::new("UVM_INITIALIZE_PARAMS")), OK);
        let mut register = Struct::new("UVM_REGISTER_GPU_PARAMS");
        register.put("gpu_uuid", &UUID);
        assert_eq!(uvm(fd, "UVM_REGISTER_GPU", &mut register), OK);
        assert_eq!(mapping_of(base, size, fd), Ok(base));
        let mut space = Struct::new("UVM_REGISTER_GPU_VASPACE_PARAMS")
            .with("rmCtrlFd", rig.client.fd as u64)
            .with("hClient", rig.client.handle.into())
            .with("hVaSpace", rig.space.into());
        space.put("gpuUuid", &UUID);
        assert_eq!(uvm(fd, "UVM_REGISTER_GPU_VASPACE", &mut space), OK);
        // One more, that the GPU's space is there for.
        let other = base + size as u64;
        assert_eq!(mapping_of(other, size, fd), Ok(other));
        let seen = |at: u64| unsafe { std::slice::from_raw_parts_mut(at as *mut u8, 8) };
        for at in [base + 0x1000, other + 0x1000] {
            seen(at).copy_from_slice(b"managed!");
            rig.copy(at, BASE + TO, 8);
            rig.copy(BASE + TO, at + 0x2000, 8);
            assert!(rig.is_done());
            assert_eq!(seen(at + 0x2000), b"managed!");
        }
        let advice = |name: &str, base: u64, length: u64, processor: Option<(&str, &[u8; 16])>| {
            let mut args = Struct::new(&format!("{name}_PARAMS")).with("requestedBase", base).with("length", length);
            if let Some((field, uuid)) = processor {
                args.put(field, uuid);
            }
            uvm(fd, name, &mut args)
        };
        let nobody = [7; 16];
        let whole = 2 * size as u64;
        for (name, field) in [
            ("UVM_SET_PREFERRED_LOCATION", Some("preferredLocation")),
            ("UVM_UNSET_PREFERRED_LOCATION", None),
            ("UVM_SET_ACCESSED_BY", Some("accessedByUuid")),
            ("UVM_UNSET_ACCESSED_BY", Some("accessedByUuid")),
            ("UVM_ENABLE_READ_DUPLICATION", None),
            ("UVM_DISABLE_READ_DUPLICATION", None),
        ] {
            let of = |uuid| field.map(|field| (field, uuid));
            assert_eq!(advice(name, base, whole, of(&UUID)), OK, "{name}: two ranges side by side");
            assert_eq!(advice(name, base, whole, of(&CPU)), OK, "{name}");
            assert_eq!(advice(name, base, whole + 0x1000, of(&UUID)), INVALID_ADDRESS, "{name}");
            assert_eq!(advice(name, base + 8, 0x1000, of(&UUID)), INVALID_ADDRESS, "{name}");
            if field.is_some() {
                assert_eq!(advice(name, base, 0x1000, of(&nobody)), INVALID_DEVICE, "{name}");
            }
        }
        let migrate = |length: u64, flags: u64, to: &[u8; 16], semaphore: u64, payload: u64| {
            let mut args = Struct::new("UVM_MIGRATE_PARAMS")
                .with("base", base)
                .with("length", length)
                .with("flags", flags)
                .with("semaphoreAddress", semaphore)
                .with("semaphorePayload", payload);
            args.put("destinationUuid", to);
            uvm(fd, "UVM_MIGRATE", &mut args)
        };
        assert_eq!(migrate(whole, 0, &UUID, 0, 0), OK);
        assert_eq!(migrate(whole, 0, &CPU, 0, 0), OK);
        assert_eq!(migrate(whole + 0x1000, 0, &CPU, 0, 0), INVALID_ADDRESS);
        assert_eq!(migrate(whole, 0, &nobody, 0, 0), INVALID_DEVICE);
        assert_eq!(migrate(whole, 8, &CPU, 0, 0), INVALID_ARGUMENT);
        assert_eq!(migrate(whole, 0, &CPU, base, 0), INVALID_ARGUMENT, "it would wait and tell");
        assert_eq!(migrate(whole, 1, &CPU, base, 5), INVALID_ADDRESS, "no pool of semaphores");
        assert_eq!(migrate(0, 1, &CPU, 0, 0), INVALID_ADDRESS);
        assert_eq!(seen(base + 0x1000), b"managed!");
        // Nothing else has room where it is mapped.
        let range = |at: u64, length: u64| {
            let mut args = Struct::new("UVM_CREATE_EXTERNAL_RANGE_PARAMS");
            args.set("base", at);
            args.set("length", length);
            uvm(fd, "UVM_CREATE_EXTERNAL_RANGE", &mut args)
        };
        assert_eq!(range(other + 0x1000, 0x1000), UVM_ADDRESS_IN_USE);
        // It is freed by unmapping it alone; what is mapped there then is new.
        let mut free = Struct::new("UVM_FREE_PARAMS").with("base", base);
        if !is_since(&[590]) {
            free.set("length", size as u64);
        }
        assert_eq!(uvm(fd, "UVM_FREE", &mut free), INVALID_ADDRESS);
        assert_eq!(mapping_of(base, 0x2000, fd), Ok(base));
        assert_eq!((&*seen(base + 0x1000), &*seen(base + 0x3000)), (&[0; 8][..], &b"managed!"[..]));
        rig.copy(base + 0x3000, BASE + TO, 8);
        rig.copy(base + 0x1000, BASE + TO + 8, 8);
        assert!(rig.is_done());
        assert_eq!(&rig.bytes[TO as usize..][..16], b"managed!\0\0\0\0\0\0\0\0");
        assert_eq!(unsafe { libc::munmap((other + 0x1000) as *mut libc::c_void, 0x1000) }, 0);
        assert_eq!(range(other + 0x1000, 0x2000), UVM_ADDRESS_IN_USE, "half of it is mapped");
        assert_eq!(range(other + 0x1000, 0x1000), OK);
        assert_eq!(range(other + 0x2000, 0x1000), UVM_ADDRESS_IN_USE);
    }

    ranges_of_uvm_show_memory_to_the_gpu {
        let mut rig = Rig::new();
        let fd = open("/dev/nvidia-uvm").unwrap();
        assert_eq!(uvm(fd, "UVM_INITIALIZE", &mut Struct::new("UVM_INITIALIZE_PARAMS")), OK);
        let of_gpu = |name: &str, handles: &[(&str, u32)]| {
            let mut args = Struct::new(&format!("{name}_PARAMS"))
                .with("rmCtrlFd", rig.client.fd as u64)
                .with("hClient", rig.client.handle.into());
            args.put("gpuUuid", &UUID);
            handles.iter().for_each(|(field, handle)| args.set(field, (*handle).into()));
            uvm(fd, name, &mut args)
        };
        let range = |name: &str, base: u64, length: u64| {
            let mut args = Struct::new(&format!("{name}_PARAMS")).with("base", base);
            // Since 590 a range is freed by its base alone.
            if name != "UVM_FREE" || !is_since(&[590]) {
                args.set("length", length);
            }
            if name == "UVM_UNMAP_EXTERNAL" {
                args.put("gpuUuid", &UUID);
            }
            uvm(fd, name, &mut args)
        };
        let show = |base: u64, length: u64, offset: u64, memory: u32| {
            let mut args = Struct::new("UVM_MAP_EXTERNAL_ALLOCATION_PARAMS")
                .with("base", base)
                .with("length", length)
                .with("offset", offset)
                .with("gpuAttributesCount", 1)
                .with("rmCtrlFd", rig.client.fd as u64)
                .with("hClient", rig.client.handle.into())
                .with("hMemory", memory.into());
            args.put("perGpuAttributes[0].gpuUuid", &UUID);
            uvm(fd, "UVM_MAP_EXTERNAL_ALLOCATION", &mut args)
        };
        let at = 0x20_0000_0000;
        assert_eq!(of_gpu("UVM_REGISTER_GPU_VASPACE", &[("hVaSpace", rig.space)]), INVALID_DEVICE);
        let mut register = Struct::new("UVM_REGISTER_GPU_PARAMS");
        register.put("gpu_uuid", &UUID);
        assert_eq!(uvm(fd, "UVM_REGISTER_GPU", &mut register), OK);
        let wrong = of_gpu("UVM_REGISTER_GPU_VASPACE", &[("hVaSpace", rig.device)]);
        assert_eq!(wrong, INVALID_OBJECT_HANDLE);
        assert_eq!(range("UVM_CREATE_EXTERNAL_RANGE", at, 0x4000), OK);
        assert_eq!(show(at, 0x1000, 0, rig.memory), INVALID_DEVICE, "no space of addresses");
        assert_eq!(of_gpu("UVM_REGISTER_GPU_VASPACE", &[("hVaSpace", rig.space)]), OK);
        let again = of_gpu("UVM_REGISTER_GPU_VASPACE", &[("hVaSpace", rig.space)]);
        assert_eq!(again, INVALID_DEVICE);
        let channel = [("hChannel", rig.channel)];
        assert_eq!(of_gpu("UVM_REGISTER_CHANNEL", &channel), OK);
        assert_eq!(of_gpu("UVM_REGISTER_CHANNEL", &[("hChannel", rig.device)]), INVALID_OBJECT_HANDLE);
        for (base, length, status) in [
            (at + 0x3000, 0x2000, UVM_ADDRESS_IN_USE),
            (at - 0x1000, 0x2000, UVM_ADDRESS_IN_USE),
            (at + 1, 0x1000, INVALID_ADDRESS),
            (0, 0x1000, INVALID_ADDRESS),
            (u64::MAX - 0xfff, 0x2000, INVALID_ADDRESS),
            (at + 0x4000, 0x1000, OK),
        ] {
            assert_eq!(range("UVM_CREATE_EXTERNAL_RANGE", base, length), status, "{base:#x}");
        }
        assert_eq!(show(at, 0x5000, 0, rig.memory), INVALID_ADDRESS, "two ranges");
        assert_eq!(show(at, 0x1000, 0, rig.device), INVALID_OBJECT_HANDLE);
        assert_eq!(show(at, 0x1000, SIZE as u64, rig.memory), INVALID_OFFSET);
        assert_eq!(show(at, 0x2000, FROM, rig.memory), OK);
        rig.bytes[FROM as usize..][..8].copy_from_slice(b"from uvm");
        rig.copy(at, BASE + TO, 8);
        assert!(rig.is_done());
        assert_eq!(&rig.bytes[TO as usize..][..8], b"from uvm");
        // Part of it is unmapped, the rest is there.
        assert_eq!(range("UVM_UNMAP_EXTERNAL", at, 0x1000), OK);
        rig.copy(at + 0x1000, BASE + TO, 8);
        assert!(rig.is_done());
        if !is_since(&[590]) {
            assert_eq!(range("UVM_FREE", at, 0x1000), INVALID_ADDRESS, "not all of it");
        }
        assert_eq!(range("UVM_FREE", at, 0x4000), OK);
        assert_eq!(range("UVM_FREE", at, 0x4000), INVALID_ADDRESS);
        rig.copy(at + 0x1000, BASE + TO, 8);
        assert_eq!(rig.error(), MMU_FAULT);
    }
}
