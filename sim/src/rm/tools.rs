//! `/dev/nvidia-uvm-tools`: what profilers are told of managed memory, in memory of their own (`uvm_tools.c`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::failed::{Failed, Result};
use super::frontend::Caller;
use super::interface::{Interface, Params};
use super::managed::{CPU, is_range};
use super::memory::PAGE;
use super::residence::{Access, Cause, Processor};
use super::uvm::RangeKind;
use super::{Driver, NodeKind};
use crate::client::Pin;
use crate::files::FileId;
use crate::memory::{Node, Pages};
use crate::{Errno, Status};

/// Something that happened to pages of an address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Migration { from: Processor, to: Processor, address: u64, bytes: u64, cause: Cause },
    Fault { gpu: usize, address: u64, access: Access, is_of_kernel: bool, batch: u32 },
    Replay { gpu: usize, is_of_kernel: bool, batch: u32 },
}

/// UvmEventType: numbers of events, and behind the last of those that are not for the driver's own tests.
const MIGRATION: u32 = 2;
const GPU_FAULT: u32 = 3;
const GPU_FAULT_REPLAY: u32 = 4;
const EVENTS: u32 = 15;

/// UvmCounterName: numbers of counters, and how many there are.
const BYTES_TO_DEVICE: u64 = 0;
const BYTES_TO_HOST: u64 = 1;
const GPU_FAULTS: u64 = 9;
const COUNTERS: u64 = 10;

/// UvmFaultTypeInvalidPte; UvmEventFaultClientTypeGpc and _Hub.
const INVALID_PTE: u32 = 2;
const GPC: u32 = 1;
const HUB: u32 = 2;

/// Processors of one version of what is told: the CPU and 32 GPUs, or as many as GPUs and their parts can be.
const FEW_PROCESSORS: usize = 33;
const ALL_PROCESSORS: usize = 257;
/// Parts of a GPU, each of which has a number there (UVM_PARENT_ID_MAX_SUB_PROCESSORS).
const PARTS: usize = 8;

/// Bytes of managed memory that a debugger may ask for at once: all others wait for him. They are copied by parts.
const MOST_AT_ONCE: u64 = 1 << 30;
const CHUNK: u64 = 1 << 20;

/// Where the control data of a queue has what.
const GET_AHEAD: u64 = 0;
const GET_BEHIND: u64 = 4;
const PUT_AHEAD: u64 = 8;
const PUT_BEHIND: u64 = 12;

/// What a file follows.
#[derive(Debug)]
pub(super) struct Tracker {
    interface: Arc<Interface>,
    /// UvmToolsEventQueueVersion.
    version: u32,
    /// The file, which can be waited for.
    node: Arc<Node>,
    sink: Sink,
}

#[derive(Debug)]
enum Sink {
    Queue(Mutex<Queue>),
    Counters(Mutex<Counters>),
}

/// A ring of events.
#[derive(Debug)]
struct Queue {
    entries: Pages,
    control: Pages,
    /// A power of 2.
    count: u32,
    threshold: u32,
    /// Bits of the types that are wanted.
    wanted: u64,
    /// Where its reader was when he was woken.
    woken: Option<u32>,
}

#[derive(Debug)]
struct Counters {
    values: Pages,
    /// What is counted of all processors, or of the one of this UUID.
    of: Option<[u8; 16]>,
    /// The UUIDs of GPUs, by their places.
    gpus: Vec<[u8; 16]>,
    wanted: u64,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds to a number that its owner may write as well.
fn add(to: &Pages, at: u64, amount: u64) {
    let mut number = [0; 8];
    to.read(at, &mut number);
    to.write(at, &u64::from_le_bytes(number).wrapping_add(amount).to_le_bytes());
}

impl Queue {
    fn word(&self, at: u64) -> u32 {
        let mut word = [0; 4];
        // What its owner has unmapped is of no more use.
        if self.control.read(at, &mut word) { u32::from_le_bytes(word) } else { 0 }
    }

    /// `queue_needs_wakeup`.
    fn is_ready(&self) -> bool {
        let waiting = self.word(PUT_BEHIND).wrapping_sub(self.word(GET_AHEAD)) & (self.count - 1);
        waiting >= self.threshold
    }

    /// Whether there is no room: one entry stays free.
    fn is_full(&self) -> bool {
        let mask = self.count - 1;
        self.word(GET_BEHIND).wrapping_sub(self.word(PUT_BEHIND)) & mask == 1
    }

    /// Counts events that had no room, where the control data does that for their type.
    fn lose(&self, count: u64, dropped: u64) {
        add(&self.control, dropped, count);
    }

    /// Adds an event that has room (`enqueue_event_v1` and `_v2`); whether its reader is to be woken.
    fn push(&mut self, entry: &[u8]) -> bool {
        let mask = self.count - 1;
        let put = self.word(PUT_BEHIND) & mask;
        self.entries.write(u64::from(put) * entry.len() as u64, entry);
        let next = ((put + 1) & mask).to_le_bytes();
        self.control.write(PUT_AHEAD, &next);
        self.control.write(PUT_BEHIND, &next);
        let reader = self.word(GET_AHEAD);
        let wakes = self.is_ready() && self.woken != Some(reader);
        if wakes {
            self.woken = Some(reader);
        }
        wakes
    }
}

impl Counters {
    /// `uvm_tools_inc_counter`.
    fn add(&self, counter: u64, amount: u64, gpu: usize) {
        let is_meant = self.of.is_none_or(|of| self.gpus.get(gpu) == Some(&of));
        if self.wanted >> counter & 1 == 1 && is_meant {
            add(&self.values, counter * 8, amount);
        }
    }
}

impl Tracker {
    pub(super) fn tell(&self, event: &Event) {
        match &self.sink {
            Sink::Queue(queue) => self.queue(&mut lock(queue), event),
            Sink::Counters(counters) => count(&lock(counters), event),
        }
    }

    fn queue(&self, queue: &mut Queue, event: &Event) {
        let number = match event {
            Event::Migration { .. } => MIGRATION,
            Event::Fault { .. } => GPU_FAULT,
            Event::Replay { .. } => GPU_FAULT_REPLAY,
        };
        if queue.wanted >> number & 1 == 0 {
            return;
        }
        let Some(dropped) = self.place_of_dropped(number) else { return };
        let mut wakes = false;
        let mut left = blocks(event);
        while let Some(block) = left.next() {
            if queue.is_full() {
                queue.lose(1 + left.count() as u64, dropped);
                break;
            }
            let Some(entry) = self.entry(&block, number) else { break };
            wakes |= queue.push(&entry.bytes);
        }
        if let (true, Node::Signal(signal)) = (wakes, &*self.node) {
            signal.raise();
        }
    }

    /// Where the control data counts events of a type that had no room.
    fn place_of_dropped(&self, number: u32) -> Option<u64> {
        let record = struct_name(&self.interface, self.version, "UvmToolsEventControlData");
        let place = self.interface.place(&record, &format!("dropped[{number}]"))?;
        Some(place.offset as u64)
    }

    /// The number of a processor: in the first version a GPU has one, in the second each of its parts.
    fn processor(&self, of: Processor) -> u64 {
        match of {
            Processor::Cpu => 0,
            Processor::Gpu(gpu) => number_of(gpu, self.version) as u64,
        }
    }

    /// An event as the driver writes it; none where the driver has no such thing.
    fn entry(&self, event: &Event, number: u32) -> Option<Params> {
        let named = |name| struct_name(&self.interface, self.version, name);
        let size = self.interface.size(&named("UvmEventEntry"))?;
        let of = |name| Params::of(&self.interface, &named(name), vec![0; size]);
        let (now, of_gpu) = (raw_time(), super::control::microseconds() * 1000);
        let mut entry = match *event {
            Event::Migration { from, to, address, bytes, cause } => {
                let mut entry = of("UvmEventMigrationInfo");
                entry.set_if_any("migrationCause", cause as u32);
                entry.set_if_any("srcIndex", self.processor(from));
                entry.set_if_any("dstIndex", self.processor(to));
                entry.set_if_any("address", address);
                entry.set_if_any("migratedBytes", bytes);
                entry.set_if_any("beginTimeStamp", now);
                entry.set_if_any("endTimeStamp", now);
                entry.set_if_any("beginTimeStampGpu", of_gpu);
                entry.set_if_any("endTimeStampGpu", of_gpu);
                entry
            }
            Event::Fault { gpu, address, access, is_of_kernel, batch } => {
                let mut entry = of("UvmEventGpuFaultInfo");
                entry.set_if_any("faultType", INVALID_PTE);
                entry.set_if_any("accessType", access as u32);
                entry.set_if_any("gpuIndex", self.processor(Processor::Gpu(gpu)));
                entry.set_if_any("clientType", if is_of_kernel { GPC } else { HUB });
                entry.set_if_any("address", address);
                entry.set_if_any("timeStamp", now);
                entry.set_if_any("timeStampGpu", of_gpu);
                entry.set_if_any("batchId", batch);
                entry
            }
            Event::Replay { gpu, is_of_kernel, batch } => {
                let mut entry = of("UvmEventGpuFaultReplayInfo");
                entry.set_if_any("gpuIndex", self.processor(Processor::Gpu(gpu)));
                entry.set_if_any("clientType", if is_of_kernel { GPC } else { HUB });
                entry.set_if_any("timeStamp", now);
                entry.set_if_any("timeStampGpu", of_gpu);
                entry.set_if_any("batchId", batch);
                entry
            }
        };
        entry.set_if_any("eventType", number);
        Some(entry)
    }

    fn with_queue(&self, change: impl FnOnce(&mut Queue)) -> Result {
        match &self.sink {
            Sink::Queue(queue) => change(&mut lock(queue)),
            Sink::Counters(_) => return Err(Status::INVALID_ARGUMENT.into()),
        }
        Ok(())
    }

    fn with_counters(&self, change: impl FnOnce(&mut Counters)) -> Result {
        match &self.sink {
            Sink::Counters(counters) => change(&mut lock(counters)),
            Sink::Queue(_) => return Err(Status::INVALID_ARGUMENT.into()),
        }
        Ok(())
    }

    /// `uvm_tools_poll`: what is no queue cannot be waited for, and is ready.
    fn settle(&self) {
        let (Sink::Queue(queue), Node::Signal(signal)) = (&self.sink, &*self.node) else { return };
        let mut queue = lock(queue);
        queue.woken = None;
        signal.lower();
        if queue.is_ready() {
            signal.raise();
        }
    }
}

/// A struct of a version; what is the same in both has one name.
fn struct_name(interface: &Interface, version: u32, name: &str) -> String {
    let own = format!("{name}_V{version}");
    if interface.size(&own).is_some() { own } else { name.to_owned() }
}

/// Memory of the caller's that the driver writes to from now on (`map_user_pages`).
fn pages(caller: Caller<'_>, address: u64, size: u64) -> Result<Pages> {
    let whole = size.checked_next_multiple_of(PAGE).ok_or(Status::INVALID_ADDRESS)?;
    is_range(address, whole)?;
    let pages = caller.client.pages(address, whole, Pin::Permitted);
    pages.ok_or_else(|| Status::INVALID_ARGUMENT.into())
}

/// The queue that a caller asks for, of so many entries.
fn queue(
    caller: Caller<'_>,
    args: &Params,
    interface: &Interface,
    version: u32,
    count: u64,
) -> Result<Queue> {
    let count = u32::try_from(count).ok().filter(|count| count.is_power_of_two() && *count >= 2);
    let count = count.ok_or(Status::INVALID_ARGUMENT)?;
    let size = |name| interface.size(&struct_name(interface, version, name));
    let (entry, control) = (size("UvmEventEntry"), size("UvmToolsEventControlData"));
    let (Some(entry), Some(control)) = (entry, control) else {
        return Err(Failed::NotSimulated(
            Status::NOT_SUPPORTED,
            format!("a queue of version {version} of UVM's events"),
        ));
    };
    let entries = pages(caller, args.get("queueBuffer")?, u64::from(count) * entry as u64)?;
    let control = pages(caller, args.get("controlBuffer")?, control as u64)?;
    Ok(Queue { entries, control, count, threshold: count / 2, wanted: 0, woken: None })
}

fn number_of(gpu: usize, version: u32) -> usize {
    1 + if version > 1 { gpu * PARTS } else { gpu }
}

/// An event by the blocks of addresses in which the driver moves pages (UVM_VA_BLOCK_SIZE).
fn blocks(event: &Event) -> impl Iterator<Item = Event> {
    const BLOCK: u64 = 2 << 20;
    let (start, end) = match *event {
        Event::Migration { address, bytes, .. } => (address, address.saturating_add(bytes)),
        Event::Fault { .. } | Event::Replay { .. } => (0, 1),
    };
    let event = *event;
    (start / BLOCK..end.div_ceil(BLOCK)).map(move |block| match event {
        Event::Migration { from, to, cause, .. } => {
            let address = start.max(block * BLOCK);
            let bytes = end.min((block + 1).saturating_mul(BLOCK)) - address;
            Event::Migration { from, to, address, bytes, cause }
        }
        other => other,
    })
}

fn count(counters: &Counters, event: &Event) {
    match *event {
        Event::Migration { from: Processor::Cpu, to: Processor::Gpu(gpu), bytes, .. } => {
            counters.add(BYTES_TO_DEVICE, bytes, gpu);
        }
        Event::Migration { from: Processor::Gpu(gpu), to: Processor::Cpu, bytes, .. } => {
            counters.add(BYTES_TO_HOST, bytes, gpu);
        }
        Event::Fault { gpu, .. } => counters.add(GPU_FAULTS, 1, gpu),
        Event::Migration { .. } | Event::Replay { .. } => {}
    }
}

/// `NV_GETTIME`: nanoseconds since the machine began.
fn raw_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one time, to where there is room for one.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Driver {
    /// A call on a file of `/dev/nvidia-uvm-tools` (`uvm_tools_unlocked_ioctl`).
    pub(super) fn tools_call(
        &mut self,
        caller: Caller<'_>,
        name: &str,
        args: &mut Params,
    ) -> Result {
        match name {
            "UVM_TOOLS_INIT_EVENT_TRACKER" => self.track(caller, args, 1),
            "UVM_TOOLS_INIT_EVENT_TRACKER_V2" => self.track(caller, args, 2),
            "UVM_TOOLS_SET_NOTIFICATION_THRESHOLD" => {
                let tracker = self.tracker(caller.file)?;
                let threshold = args.word("notificationThreshold")?;
                tracker.with_queue(|queue| queue.threshold = threshold)?;
                tracker.settle();
                Ok(())
            }
            "UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS" => {
                let types = args.get("eventTypeFlags")?;
                let tracker = self.tracker(caller.file)?;
                tracker.with_queue(|_| ())?;
                if types & 1 != 0 || types >> EVENTS != 0 {
                    return Err(Status::INVALID_ARGUMENT.into());
                }
                tracker.with_queue(|queue| queue.wanted |= types)
            }
            "UVM_TOOLS_EVENT_QUEUE_DISABLE_EVENTS" => {
                let types = args.get("eventTypeFlags")?;
                self.tracker(caller.file)?.with_queue(|queue| queue.wanted &= !types)
            }
            "UVM_TOOLS_ENABLE_COUNTERS" => {
                let types = args.get("counterTypeFlags")?;
                self.tracker(caller.file)?.with_counters(|counters| counters.wanted |= types)
            }
            "UVM_TOOLS_DISABLE_COUNTERS" => {
                let types = args.get("counterTypeFlags")?;
                self.tracker(caller.file)?.with_counters(|counters| counters.wanted &= !types)
            }
            // What is asked of the other device.
            _ => Err(Errno::EINVAL.into()),
        }
    }

    fn tracker(&self, file: FileId) -> Result<Arc<Tracker>> {
        let tracker = self.files.get(file).and_then(|open| open.file.tracker.clone());
        tracker.ok_or_else(|| Status::INVALID_ARGUMENT.into())
    }

    /// UVM_TOOLS_INIT_EVENT_TRACKER: `uvm_api_tools_init_event_tracker`.
    fn track(&mut self, caller: Caller<'_>, args: &mut Params, version: u32) -> Result {
        let version = match args.has("requestedVersion") {
            true => args.word("requestedVersion")?,
            false => version,
        };
        if ![1, 2].contains(&version) {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let followed = self.descriptor(caller.client, args.word("uvmFd")? as i32);
        let is_uvm = |file: &FileId| {
            self.files.get(*file).is_some_and(|open| open.file.node == NodeKind::Uvm)
        };
        let followed = followed.filter(is_uvm);
        let followed = followed.ok_or(Status::INSUFFICIENT_PERMISSIONS)?;
        let residence = self.space(followed).map(|space| space.residence.clone());
        let residence = residence.ok_or(Status::ILLEGAL_ACTION)?;
        let node = self.files.get(caller.file).map(|open| open.node.clone());
        let node = node.ok_or(Errno::EBADF)?;
        // `check_vmas`: none of UVM's own.
        let own = self.mappings_of_file(caller.client, followed).unwrap_or_default();
        for field in ["queueBuffer", "controlBuffer"] {
            let at = args.get(field)?;
            if own.iter().any(|mapping| mapping.contains(&at)) {
                return Err(Status::INVALID_ARGUMENT.into());
            }
        }
        let interface = self.interface.clone();
        let sink = match args.get("queueBufferSize")? {
            0 => Sink::Counters(Mutex::new(self.counters(caller, args)?)),
            count => Sink::Queue(Mutex::new(queue(caller, args, &interface, version, count)?)),
        };
        let open = self.files.get_mut(caller.file).ok_or(Errno::EBADF)?;
        if open.file.tracker.is_some() {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let tracker = Arc::new(Tracker { interface, version, node, sink });
        tracker.settle();
        residence.follow(&tracker);
        open.file.tracker = Some(tracker);
        args.set_if_any("grantedVersion", version);
        Ok(())
    }

    fn counters(&self, caller: Caller<'_>, args: &Params) -> Result<Counters> {
        let values = pages(caller, args.get("controlBuffer")?, COUNTERS * 8)?;
        let of = args.bytes_of("processor")?.try_into().ok();
        let of = of.filter(|_| args.word("allProcessors").is_ok_and(|all| all == 0));
        let gpus = self.gpus.iter().map(|gpu| gpu.uuid());
        Ok(Counters { values, of, gpus: gpus.collect(), wanted: 0 })
    }

    /// UVM_TOOLS_GET_PROCESSOR_UUID_TABLE: `uvm_api_tools_get_processor_uuid_table`. What is asked has had three forms.
    pub(super) fn processor_uuids(
        &mut self,
        caller: Caller<'_>,
        name: &str,
        args: &mut Params,
    ) -> Result {
        let (table, has_version) = (args.get("tablePtr")?, args.has("version"));
        let asked = if args.has("count") { args.get("count")? as usize } else { 0 };
        let version = match has_version {
            true => 2 - u32::from(asked == 0 && table != 0),
            false => 1 + u32::from(name.ends_with("_V2")),
        };
        let room = match asked {
            _ if !has_version && version == 2 => ALL_PROCESSORS,
            _ if version == 1 => FEW_PROCESSORS,
            0 => ALL_PROCESSORS,
            asked => asked.min(ALL_PROCESSORS),
        };
        let space = self.uvm_space(caller)?;
        let (gpus, instances) = (space.gpus.clone(), space.instances.clone());
        let mut uuids = vec![[0; 16]; room];
        uuids[0] = CPU;
        let mut count = 1;
        for gpu in gpus {
            let number = number_of(gpu, version);
            let instance = instances.get(&gpu).filter(|_| version > 1);
            let uuid = match instance {
                Some(instance) => self.uuid_of(gpu, *instance, None),
                None => self.gpus[gpu].uuid(),
            };
            if let Some(to) = uuids.get_mut(number) {
                *to = uuid;
            }
            count = count.max(number + 1);
        }
        // The oldest copies no more than there are.
        let copied = if args.has("count") && !has_version { count.min(room) } else { room };
        let bytes = uuids[..copied].concat();
        if table != 0 && caller.client.write(table, &bytes) < bytes.len() {
            return Err(Status::INVALID_ADDRESS.into());
        }
        args.set_if_any("count", count as u32);
        args.set_if_any("version", version);
        Ok(())
    }

    /// UVM_TOOLS_READ_PROCESS_MEMORY and UVM_TOOLS_WRITE_PROCESS_MEMORY: `tools_access_process_memory`. What is managed
    /// alone can be reached, and how much was done is told however it ends.
    pub(super) fn process_memory(
        &mut self,
        caller: Caller<'_>,
        args: &mut Params,
        is_write: bool,
    ) -> Result {
        let (buffer, size) = (args.get("buffer")?, args.get("size")?);
        let target = args.get("targetVa")?;
        let done = if is_write { "bytesWritten" } else { "bytesRead" };
        args.set(done, 0_u32)?;
        if size > MOST_AT_ONCE {
            let what = format!("{size} bytes of managed memory at once");
            return Err(Failed::NotSimulated(Status::INVALID_ARGUMENT, what));
        }
        let (mut at, mut bytes) = (0, vec![0; size.min(CHUNK) as usize]);
        while at < size {
            let from = target.checked_add(at).ok_or(Status::INVALID_ADDRESS)?;
            let next = from.checked_add(1).ok_or(Status::INVALID_ADDRESS)?;
            let found = self.uvm_space(caller)?.overlapping(from, next).next();
            let found = found.filter(|(_, range)| range.kind == RangeKind::Managed);
            let (start, range) = found.ok_or(Status::INVALID_ADDRESS)?;
            let memory = range.memory.clone().ok_or(Status::INVALID_ADDRESS)?;
            let length = (start + range.length - from).min(size - at).min(CHUNK);
            let (bytes, own) = (&mut bytes[..length as usize], buffer.wrapping_add(at));
            let is_done = match is_write {
                true => {
                    caller.client.read(own, bytes) == bytes.len()
                        && memory.write(from - start, bytes)
                }
                false => {
                    memory.read(from - start, bytes)
                        && caller.client.write(own, bytes) == bytes.len()
                }
            };
            if !is_done {
                return Err(Status::INVALID_ARGUMENT.into());
            }
            at += length;
            args.set(done, at)?;
        }
        Ok(())
    }

    /// Whether somebody has a queue that a poll looks at.
    pub(super) fn has_tracker(&self) -> bool {
        self.files.iter().any(|(_, open)| open.file.tracker.is_some())
    }

    /// A poll begins.
    pub(super) fn settle_tracker(&self, file: FileId) {
        if let Ok(tracker) = self.tracker(file) {
            tracker.settle();
        }
    }
}
