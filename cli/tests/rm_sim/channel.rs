//! Channels: what is mapped for a GPU, and what it does with it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use crate::client::status::*;
use crate::client::*;
use crate::mapping::shown;
use crate::rules;

const SPACE: u32 = 0x90f1;
pub(crate) const WINDOW: u32 = 0x0070;
const GROUP: u32 = 0xa06c;
const CONTEXT_SHARE: u32 = 0x9067;
const OS_DESCRIPTOR: u64 = 0x71;
/// The last byte of classes of channels, of copies, and of the registers that are rung.
pub(crate) const GPFIFO: u32 = 0x6f;
pub(crate) const COPY: u32 = 0xb5;
const COMPUTE: u32 = 0xc0;
const USERMODE: u32 = 0x61;

/// NVOS46_FLAGS_DMA_OFFSET_FIXED, _ACCESS_READ_ONLY, _PAGE_SIZE_4KB, _BOTH, _HUGE.
pub(crate) const FIXED: u64 = 1 << 15;
pub(crate) const READ_ONLY: u64 = 1;
const PAGE_4K: u64 = 1 << 8;
const PAGE_BOTH: u64 = 3 << 8;
const PAGE_2M: u64 = 4 << 8;

/// Where the GPU sees the memory of a [`Rig`], and what is where in that.
pub(crate) const BASE: u64 = 0x10_0000_0000;
pub(crate) const SIZE: usize = 1 << 20;
const RING: u64 = 0x2000;
const ENTRIES: u32 = 32;
const PUSH: u64 = 0x9000;
const PUSH_SIZE: u64 = 0x200;
const USERD: u64 = 0x3000;
const SEMAPHORE: u64 = 0x4000;
pub(crate) const FROM: u64 = 0x1_0000;
pub(crate) const TO: u64 = 0x8_0000;

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
/// Where a description is, and what is done with it.
const SEND_PCAS: u32 = 0x2b4;
const SEND_SIGNALING_PCAS2: u32 = 0x2c0;

/// Numbers of the driver's errors, as notifiers have them.
pub(crate) const EXCEPTION: u32 = 13;
pub(crate) const MMU_FAULT: u32 = 31;
pub(crate) const PBDMA: u32 = 32;

/// NV2080_NOTIFIERS: GRAPHICS, CE0, FIFO_EVENT_MTHD; and NV01_EVENT_NONSTALL_INTR.
const GRAPHICS: u64 = 12;
const COPIES: u64 = 23;
const HOST: u64 = 35;
const OF_ENGINE: u64 = 0x0800_0000;

/// NV2080_ENGINE_TYPE_GRAPHICS.
const GRAPHICS_ENGINE: u64 = 1;

/// NV2080_NOTIFIERS_RC_ERROR.
const RC_ERROR: u64 = 37;

/// A channel for copies, with one piece of memory that both sides see.
pub(crate) struct Rig {
    pub(crate) client: Client,
    pub(crate) device: u32,
    pub(crate) space: u32,
    pub(crate) window: u32,
    pub(crate) memory: u32,
    pub(crate) channel: u32,
    pub(crate) classes: Vec<u32>,
    token: u32,
    put: u32,
    released: u32,
    pub(crate) bytes: &'static mut [u8],
    /// What is rung, and what it is mapped by: a subdevice and its object.
    pub(crate) registers: &'static mut [u8],
    pub(crate) usermode: (u32, u32),
    notifier: &'static mut [u8],
}

fn classes(client: &Client, device: u32) -> Vec<u32> {
    let mut params = Struct::new("NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS");
    assert_eq!(client.control(device, "NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2", &mut params), OK);
    let count = params.get("numClasses");
    (0..count).map(|at| params.get(&format!("classList[{at}]")) as u32).collect()
}

pub(crate) fn class(classes: &[u32], last: u32) -> u32 {
    *classes.iter().find(|class| **class & 0xff == last).unwrap()
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
pub(crate) fn map_dma(
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

pub(crate) fn unmap_dma(client: &Client, device: u32, pair: [u32; 2], at: u64) -> u32 {
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

fn registers(client: &Client, (subdevice, usermode): (u32, u32)) -> &'static mut [u8] {
    shown(client, subdevice, usermode, 0x1_0000, "/dev/nvidia0")
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::on(GRAPHICS_ENGINE)
    }

    /// On an engine, by its NV2080_ENGINE_TYPE.
    pub(crate) fn on(engine: u64) -> Self {
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
            Struct::new("NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS").with("engineType", engine);
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
        let usermode = (subdevice, usermode);
        let registers = registers(&client, usermode);
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
            usermode,
            notifier,
        }
    }

    /// The same registers, mapped once more.
    pub(crate) fn more_registers(&self) -> &'static mut [u8] {
        registers(&self.client, self.usermode)
    }

    pub(crate) fn word(&self, at: u64) -> &AtomicU32 {
        unsafe { &*self.bytes[at as usize..].as_ptr().cast() }
    }

    /// Has the channel carry out a pushbuffer, by way of a doorbell.
    pub(crate) fn submit(&mut self, words: &[u32]) {
        let entry = self.write(words, BASE);
        self.enter(entry);
    }

    /// Writes a pushbuffer, which is seen from an address on; the entry for it.
    pub(crate) fn write(&self, words: &[u32], seen: u64) -> u64 {
        // Each has a place of its own, so that none is written over that is still read.
        let at = PUSH + u64::from(self.put) * PUSH_SIZE;
        assert!(words.len() as u64 * 4 <= PUSH_SIZE);
        for (word, at) in words.iter().zip((at..).step_by(4)) {
            self.word(at).store(*word, Ordering::Relaxed);
        }
        (seen + at) | (words.len() as u64) << 42
    }

    /// Puts an entry into the ring, and rings.
    pub(crate) fn enter(&mut self, entry: u64) {
        let slot: &AtomicU64 =
            unsafe { &*self.bytes[(RING + u64::from(self.put) * 8) as usize..].as_ptr().cast() };
        slot.store(entry, Ordering::Relaxed);
        self.put = (self.put + 1) % ENTRIES;
        self.word(USERD + 0x8c).store(self.put, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let doorbell: &AtomicU32 = unsafe { &*self.registers[0x90..].as_ptr().cast() };
        doorbell.store(self.token, Ordering::Release);
    }

    /// The compute class of its card.
    pub(crate) fn compute_class(&self) -> u32 {
        class(&self.classes, COMPUTE)
    }

    /// Launches the description at an address.
    pub(crate) fn launch(&mut self, qmd: u64) {
        const SCHEDULE: u32 = 9;
        let compute = self.compute_class();
        let words = [incrementing(0, 1), compute, incrementing(SEND_PCAS, 1), (qmd >> 8) as u32];
        let words = [&words[..], &[incrementing(SEND_SIGNALING_PCAS2, 1), SCHEDULE]].concat();
        self.submit(&words);
    }

    /// A copy and a release of the semaphore.
    pub(crate) fn copy(&mut self, from: u64, to: u64, length: u32) {
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

    pub(crate) fn waits_for(&self, is_done: impl Fn(&Self) -> bool) -> bool {
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
    pub(crate) fn is_done(&self) -> bool {
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
pub(crate) fn incrementing(method: u32, count: u32) -> u32 {
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

    engines_tell_and_go_on {
        let (other, _, subdevice) = Client::with_device();
        let mut rig = Rig::new();
        let (compute, copy) = (rig.compute_class(), class(&rig.classes, COPY));
        let at = BASE + SEMAPHORE + 64;
        let (high, low) = ((at >> 32) as u32, at as u32);
        let host = [incrementing(0x20, 1), 0];
        let copies = [incrementing(0, 1), copy, incrementing(LAUNCH, 1), 2 << 5];
        let as_report = |word: u32| [incrementing(0, 1), compute, incrementing(0x1b00, 4), high, low, 1, word];
        let as_semaphore =
            |word: u32| [incrementing(0, 1), compute, incrementing(0x158, 5), 1, 0, low, high, word];
        let one_word = 1 << 28;
        let trap = 3;
        let told: [(u64, &[u32]); 7] = [
            (GRAPHICS, &host),
            (COPIES, &copies),
            (GRAPHICS, &as_report(one_word | 1 << 20)),
            (GRAPHICS, &as_semaphore(1 << 3 | 1 << 2)),
            (GRAPHICS, &as_report(trap)),
            (GRAPHICS, &as_semaphore(trap)),
            (GRAPHICS, &[incrementing(0, 1), compute, incrementing(0x104, 3), high, low, 1]),
        ];
        let files = [HOST, COPIES, GRAPHICS].map(|index| {
            let fd = file_of(&other);
            listen(&other, subdevice, index | OF_ENGINE, fd).unwrap();
            (index, fd)
        });
        rig.submit(&as_report(one_word));
        rig.submit(&as_semaphore(1 << 3));
        assert!(rig.works());
        assert!(!files.iter().any(|(_, fd)| is_readable(*fd)), "nobody asked for it");
        for is_armed in [false, true] {
            for (engine, words) in told {
                rig.submit(words);
                let fd = files.iter().find(|(index, _)| *index == engine).unwrap().1;
                assert!(poll(fd, 20_000).is_some(), "{engine}");
                assert!(rig.works());
                for (index, fd) in files {
                    let is_told = index == engine || index == HOST && is_armed;
                    assert_eq!(is_readable(fd), is_told, "{index} of {engine}");
                    while let Ok((event, _)) = next_event(fd) {
                        assert_eq!(event.get("NotifyIndex"), index);
                    }
                }
            }
            if !is_armed {
                assert_eq!(arm(&other, subdevice, HOST, REPEAT), OK);
            }
        }
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
        assert!(Rig::new().works(), "what was rung for before it has been looked at");
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

    older_headers_and_masks_are_carried_out {
        let mut rig = Rig::new();
        let at = BASE + TO;
        let place = [(at >> 32) as u32, at as u32];
        let release = 2 | 1 << 24;
        // Incrementing with the older fields: SEMAPHOREA to D.
        rig.submit(&[4 << 18 | 4 << 13 | 0x10, place[0], place[1], 7, release]);
        assert!(rig.waits_for(|rig| rig.word(TO).load(Ordering::Acquire) == 7));
        // And not incrementing: SEMAPHORED again.
        let again = 2 << 29 | 1 << 18 | 4 << 13 | 0x1c;
        rig.word(TO).store(0, Ordering::Release);
        rig.submit(&[again, release]);
        assert!(rig.waits_for(|rig| rig.word(TO).load(Ordering::Acquire) == 7));
        // For the second GPU alone; then for what was stored, which is the first.
        rig.word(TO).store(0, Ordering::Release);
        let [set, store, used] = [1 << 16 | 2 << 4, 2 << 16 | 1 << 4, 3 << 16];
        rig.submit(&[set, store, again, release, incrementing(0xf0, 1), 1, used]);
        rig.copy(BASE + FROM, BASE + TO + 64, 16);
        assert!(rig.is_done());
        assert_eq!(rig.word(TO).load(Ordering::Acquire), 0, "no release of this GPU");
        rig.submit(&[set, again, release, used, incrementing(0x18, 1), 9, again, release]);
        assert!(rig.waits_for(|rig| rig.word(TO).load(Ordering::Acquire) == 9));
    }

    a_notification_is_written {
        let mut rig = Rig::new();
        let (compute, at) = (rig.compute_class(), BASE + TO);
        rig.word(TO + 12).store(!0, Ordering::Release);
        rig.submit(&[incrementing(0, 1), compute, incrementing(0x104, 3), (at >> 32) as u32, at as u32, 1]);
        assert!(rig.waits_for(|rig| rig.word(TO + 12).load(Ordering::Acquire) == 0));
        assert!(rig.word(TO).load(Ordering::Acquire) != 0, "its time");
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
        assert!(Rig::new().works(), "what was rung for before it has been looked at");
        assert_eq!(rig.word(SEMAPHORE).load(Ordering::Acquire), 1);
    }

    mappings_for_the_gpu_keep_to_their_addresses {
        let (client, device, _) = Client::with_device();
        let memory = client.alloc(device, VIDEO_MEMORY, Some(&mut memory_params(VIDEO_MEMORY, 0x4000)));
        let pair = [window(&client, device, 0), memory.unwrap()];
        let at = |wish| map_dma(&client, device, pair, wish);
        assert_eq!(at([0, 0x2000, FIXED, 0x100_0000]), Ok(0x100_0000));
        assert_eq!(at([0, 0x2000, FIXED, 0x100_1000]), Err(NO_MEMORY), "another one is there");
        assert_eq!(at([0x1004, 4, FIXED, 0x102_0008]), Ok(0x102_1004), "a page and the byte in it");
        assert_eq!(at([0, 0x1000, FIXED | PAGE_4K, 0x104_3000]), Ok(0x104_3000), "a smaller page");
        assert_eq!(at([0, 0x1000, FIXED | PAGE_2M, 0x105_3000]), Ok(0x105_0000), "none that is larger");
        assert_eq!(at([0, 0x1000, FIXED | 7 << 8, 0x106_0000]), Err(INVALID_ARGUMENT), "no such page");
        assert_eq!(at([0, 0x1000, FIXED | PAGE_4K, 0x107_0000]), Ok(0x107_0000));
        assert_eq!(at([0, 0x1000, FIXED | PAGE_BOTH, 0x107_0000]), Err(NO_MEMORY), "a whole large one");
        assert_eq!(at([0, 0x2000, FIXED, 1 << 50]), Err(INVALID_ARGUMENT), "no such address");
        assert_eq!(at([0xf000, 0x2000, 0, 0]), Err(INVALID_BASE), "more than there is");
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

    mappings_go_with_what_they_were_made_by {
        let mut rig = Rig::new();
        let other = window(&rig.client, rig.device, rig.space);
        let (own, at) = ([other, rig.memory], 0x200_0000);
        let map = |rig: &Rig, pair, at| {
            map_dma(&rig.client, rig.device, pair, [0, 0x4000, FIXED | PAGE_4K, at])
        };
        assert_eq!((map(&rig, own, at), map(&rig, own, at + 0x4000)), (Ok(at), Ok(at + 0x4000)));
        let foreign = [rig.window, rig.memory];
        assert_eq!(map(&rig, foreign, at), Err(NO_MEMORY));
        assert_eq!(unmap_dma(&rig.client, rig.device, foreign, at), OBJECT_NOT_FOUND, "another one's");
        assert_eq!(unmap_dma(&rig.client, rig.device, own, at + 0x1000), OBJECT_NOT_FOUND, "no beginning");
        assert_eq!(unmap_dma(&rig.client, rig.device, own, at), OK);
        assert_eq!(map(&rig, foreign, at), Ok(at));
        // Since 550 a part can be unmapped.
        let mut args = dma("NVOS47_PARAMETERS", &rig.client, rig.device, own, at + 0x5000);
        if is_since(&[550]) {
            args.set("size", 0x1000);
            assert_eq!((escape(rig.client.fd, 0x58, &mut args), args.get("status") as u32), (Ok(()), OK));
            rig.copy(at + 0x4000, BASE + TO, 16);
            rig.copy(at + 0x6000, BASE + TO, 16);
            assert!(rig.is_done(), "what is beside it stays");
            // What is left behind it is known by its own beginning.
            assert_eq!(unmap_dma(&rig.client, rig.device, own, at + 0x6000), OK);
            assert_eq!(unmap_dma(&rig.client, rig.device, own, at + 0x6000), OBJECT_NOT_FOUND);
        }
        assert_eq!(rig.client.free(other), OK);
        assert_eq!(map(&rig, foreign, at + 0x5000), Ok(at + 0x5000));
        if is_since(&[550]) {
            // Of large pages whole ones go, whatever is asked for.
            let pair = [rig.window, rig.memory];
            let large = |at, length| map_dma(&rig.client, rig.device, pair, [0x1234, length, FIXED, at]);
            assert_eq!(large(0x300_0000, 4), Ok(0x300_1234));
            let mut args = dma("NVOS47_PARAMETERS", &rig.client, rig.device, pair, 0x300_1234);
            args.set("size", 4);
            assert_eq!((escape(rig.client.fd, 0x58, &mut args), args.get("status") as u32), (Ok(()), OK));
            assert_eq!(large(0x300_0000, 4), Ok(0x300_1234));
            // Of each mapping those of its own size: here a large one and the first of two small ones behind it.
            let small = map_dma(&rig.client, rig.device, pair, [0, 0x2000, FIXED | PAGE_4K, 0x301_0000]);
            assert_eq!(small, Ok(0x301_0000));
            let mut args = dma("NVOS47_PARAMETERS", &rig.client, rig.device, pair, 0x300_1234);
            args.set("size", 0xedcc + 4);
            assert_eq!((escape(rig.client.fd, 0x58, &mut args), args.get("status") as u32), (Ok(()), OK));
            assert_eq!(large(0x300_0000, 4), Ok(0x300_1234));
            rig.copy(0x301_1000, BASE + TO, 16);
            assert!(rig.is_done(), "the second small one");
        }
        rig.copy(at, BASE + TO, 16);
        assert!(rig.is_done(), "this one was made by the other");
        rig.copy(at + 0x4000, BASE + TO, 16);
        assert_eq!(rig.error(), MMU_FAULT);
    }

    a_place_for_both_pages_is_mapped_in_small_ones {
        let mut rig = Rig::new();
        let system = rig.client.alloc(rig.device, SYSTEM_MEMORY, Some(&mut memory_params(SYSTEM_MEMORY, 0x1_0000)));
        let pair = [rig.window, system.unwrap()];
        let map = |flags, at| map_dma(&rig.client, rig.device, pair, [0, 0x1000, flags, at]);
        assert_eq!(map(FIXED | PAGE_BOTH, 0x500_0000), Ok(0x500_0000));
        assert_eq!(map(FIXED, 0x500_1000), Err(NO_MEMORY), "nobody else is given the rest");
        rig.copy(0x500_0000, BASE + TO, 16);
        assert!(rig.is_done());
        rig.copy(0x500_1000, BASE + TO, 16);
        assert_eq!(rig.error(), MMU_FAULT, "which is not mapped");
    }

    what_a_channel_needs_is_asked_for {
        let (client, device, _) = Client::with_device();
        let classes = classes(&client, device);
        let class = class(&classes, GPFIFO);
        let alloc = |params: &mut Struct| client.alloc(device, class, Some(params));
        assert_eq!(alloc(&mut channel_params().with("engineType", 1)), Err(NOT_SUPPORTED), "memory for USERD");
        let memory = client.alloc(device, VIDEO_MEMORY, Some(&mut memory_params(VIDEO_MEMORY, 0x4000)));
        let with_memory = || channel_params().with("hUserdMemory[0]", memory.unwrap().into()).with("engineType", 1);
        assert_eq!(alloc(&mut with_memory()), Err(INVALID_ARGUMENT), "entries");
        let whole = || with_memory().with("gpFifoEntries", 8);
        let other = device.into();
        for field in ["hObjectError", "hContextShare", "hVASpace"] {
            assert_eq!(alloc(&mut whole().with(field, other)), Err(INVALID_OBJECT_HANDLE), "{field}");
        }
        // An engine that there is not, or that the card has not; in a group it is the group's.
        for engine in [0, 18, 77, u32::MAX.into()] {
            assert_eq!(alloc(&mut whole().with("engineType", engine)), Err(INVALID_ARGUMENT), "{engine}");
            let mut params = Struct::new("NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS").with("engineType", engine);
            assert_eq!(client.alloc(device, GROUP, Some(&mut params)), Err(INVALID_ARGUMENT), "{engine}");
        }
        let copies = 9;
        let mut params = Struct::new("NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS").with("engineType", copies);
        let group = client.alloc(device, GROUP, Some(&mut params)).unwrap();
        for (engine, is_valid) in [(0, true), (copies, true), (1, false)] {
            let made = client.alloc(group, class, Some(&mut whole().with("engineType", engine)));
            assert_eq!(made.err(), (!is_valid).then_some(INVALID_ARGUMENT), "{engine}");
        }
        let channel = alloc(&mut whole()).unwrap();
        // An engine that the card has not, and one below a device.
        assert_eq!(client.alloc(channel, 0x90b5, None), Err(INVALID_CLASS));
        assert!(client.alloc(device, self::class(&classes, COPY), None).is_err());
    }
}
