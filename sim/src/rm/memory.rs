//! Memory: of the system and of a GPU, and how a process maps it
//! (`src/nvidia/src/kernel/mem_mgr`, R/mapping_cpu.c, A/osapi.c, N/nv-mmap.c).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::alloc::{NewObject, OS_DESCRIPTOR, SYSTEM_MEMORY, VIDEO_MEMORY};
use super::control::Seen;
use super::failed::{Failed, Result};
use super::flags::{alloc, attr, bits, map, old};
use super::frontend::Caller;
use super::interface::Params;
use super::pages::{self, Pages, PagesOf, PagesThere};
use super::server::{Client, Object, ObjectKind, Share, Shown};
use super::window::Free;
use super::{Driver, NodeKind};
use crate::backing::Backing;
use crate::client::Pin;
use crate::files::FileId;
use crate::gpu::clear;
use crate::log::RunId;
use crate::machine::Mapping;
pub(super) use crate::memory::PAGE;
use crate::memory::{Memory, Node};
use crate::{Errno, Status, limits};

/// Where the driver says that memory is: no address that a process has.
const SYSTEM_BASE: u64 = 0x40_0000_0000;
/// Behind so many bytes they begin again.
const SPAN: u64 = 1 << 46;

/// What the driver's own allocations are owned by.
const SHIM: u32 = 0x7368_696d;

/// Memory that objects of several clients may stand for.
#[derive(Debug)]
pub(super) struct Buffer {
    number: u64,
    backing: Backing,
    pub(super) size: u64,
    /// Where the driver says that it is.
    address: u64,
    /// Bytes of its pages.
    pub(super) page: u64,
    /// Whose memory it is of.
    pub(super) gpu: usize,
    pub(super) of: Of,
    /// What it takes of its GPU's memory.
    _charge: Option<Charge>,
}

/// Bytes of a GPU's memory that somebody has: an object, or a mapping or a file that keeps them.
#[derive(Debug)]
struct Charge {
    used: Arc<AtomicU64>,
    size: u64,
}

impl Charge {
    fn new(used: Arc<AtomicU64>, size: u64) -> Self {
        used.fetch_add(size, Ordering::Relaxed);
        Self { used, size }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.used.fetch_sub(self.size, Ordering::Relaxed);
    }
}

/// What a buffer is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    System,
    Video,
    /// A GPU's, which are nobody's memory and are shown by the file of their GPU.
    Registers,
    /// The same of its performance, which nobody writes.
    Counters,
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Buffer {}

/// What a file was told to show when it is mapped: it is told once.
#[derive(Debug)]
pub(super) struct MapContext {
    buffer: Arc<Buffer>,
    /// Of whole pages.
    offset: u64,
    length: u64,
}

impl Buffer {
    /// The file behind it, which a process can map.
    pub(super) fn node(&self) -> Option<&Arc<Node>> {
        self.backing.node()
    }

    /// The memory, where it is in a file of our own.
    pub(super) fn memory(&self) -> Option<&Memory> {
        self.backing.memory()
    }

    /// Copies out; whether all of it was there.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        self.backing.read(offset, into)
    }

    /// Copies in, as [`Self::read`] copies out; words and double words at once.
    pub(super) fn write(&self, offset: u64, from: &[u8]) -> bool {
        self.backing.write(offset, from)
    }

    /// Stores aligned bytes where others are found; what was found.
    pub(super) fn compare_exchange(
        &self,
        offset: u64,
        width: usize,
        old: u64,
        new: u64,
    ) -> Option<u64> {
        self.backing.compare_exchange(offset, width, old, new)
    }

    /// Gives its pages back to the system, where they are of a file: they are zeros again.
    pub(super) fn clear(&self) {
        if let Some(memory) = self.memory() {
            memory.clear();
        }
    }

    /// Whether it is pages that a process had before, which nobody maps again.
    fn is_of_process(&self) -> bool {
        matches!(self.backing, Backing::Pages(_))
    }

    pub(super) fn is_video(&self) -> bool {
        self.of == Of::Video
    }
}

fn pages(length: u64) -> u64 {
    length.div_ceil(PAGE)
}

impl Client {
    /// The memory of a handle.
    pub(super) fn memory(&self, handle: u32) -> Result<&Arc<Buffer>> {
        Ok(self.object(handle)?.kind.memory().ok_or(Status::INVALID_OBJECT_HANDLE)?)
    }

    /// An object of its own for memory that is there.
    pub(super) fn add_memory(&mut self, place: NewObject, buffer: Arc<Buffer>) -> Result<u32> {
        let own = self.assign(place.client, place.wanted)?;
        let above = &self.object(place.parent)?.kind;
        if !matches!(above, ObjectKind::Device(_) | ObjectKind::Subdevice(_)) {
            return Err(Status::INVALID_OBJECT_PARENT.into());
        }
        self.add(own, Object::new(place.parent, ObjectKind::Memory(buffer)));
        Ok(own)
    }
}

impl Driver {
    /// An object of NV01_MEMORY_SYSTEM or NV01_MEMORY_LOCAL_USER: `stdmemValidateParams`,
    /// `sysmemConstruct_IMPL`, `vidmemConstruct_IMPL`.
    pub(super) fn memory(
        &mut self,
        class: u32,
        client: u32,
        above: &ObjectKind,
        params: &mut Params,
    ) -> Result<ObjectKind> {
        let gpu = above.gpu().ok_or(Status::INVALID_OBJECT_PARENT)?;
        if params.has("internalflags") && params.get("internalflags")? != 0 {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        if [0, u32::MAX].contains(&params.word("owner")?) {
            return Err(Status::INVALID_OWNER.into());
        }
        let is_video = class == VIDEO_MEMORY;
        let location = bits(params.word("attr")?, attr::LOCATION);
        let flags = params.word("flags")?;
        if (location == attr::IN_GPU) != is_video || flags & alloc::VIRTUAL != 0 {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        if params.get("size")? == 0 {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let (of, pages) = if is_video {
            (Of::Video, PagesOf::Video)
        } else {
            // `sysmemAllocResources`: what is for addresses alone.
            if flags & alloc::FIXED_ADDRESS != 0 || params.get("hVASpace")? != 0 {
                return Err(Status::INVALID_ARGUMENT.into());
            }
            (Of::System, PagesOf::System)
        };
        let pages = Pages::of(pages, params, self.pages_there(gpu))?;
        if self.gpus.get(gpu).is_some_and(|gpu| pages.alignment > gpu.facts().memory) {
            return Err(Status::NO_MEMORY.into());
        }
        let free = self.free_memory_of_instance(client, gpu).filter(|_| is_video);
        if free.is_some_and(|free| pages.size > free) {
            return Err(Status::NO_MEMORY.into());
        }
        let buffer = self.buffer_of_pages(pages, gpu, of)?;
        pages.tell(params)?;
        params.set("size", buffer.size)?;
        params.set("offset", buffer.address)?;
        params.set("limit", buffer.size - 1)?;
        params.set("address", 0_u32)?;
        Ok(ObjectKind::Memory(Arc::new(buffer)))
    }

    /// Memory of the driver's own, which it shows to programs.
    pub(super) fn buffer(&mut self, size: u64, gpu: usize, of: Of) -> Result<Buffer> {
        self.buffer_of_pages(Pages::small(size)?, gpu, of)
    }

    fn buffer_of_pages(&mut self, pages: Pages, gpu: usize, of: Of) -> Result<Buffer> {
        let size = pages.size;
        let there = match of {
            Of::Video => {
                let reserved = self.gpus.get(gpu).map_or(0, |gpu| gpu.facts().reserved);
                self.free_memory(gpu).saturating_sub(reserved)
            }
            _ => limits::memory(),
        };
        if size > there {
            return Err(Status::NO_MEMORY.into());
        }
        let memory = Memory::new(size).map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        if of == Of::Registers {
            clear(&memory);
        }
        Ok(self.new_buffer(memory.into(), pages, gpu, of))
    }

    fn new_buffer(&mut self, backing: Backing, pages: Pages, gpu: usize, of: Of) -> Buffer {
        let Pages { page, size, alignment, .. } = pages;
        self.last_buffer += 1;
        let window = self.gpus.get(gpu).map_or(0, |gpu| gpu.facts().window.0);
        let base = if of == Of::System { SYSTEM_BASE } else { window };
        let offset = self.last_address.checked_next_multiple_of(alignment).unwrap_or(0);
        let address = base + offset;
        self.last_address = offset.wrapping_add(size) % SPAN;
        let used = self.gpus.get(gpu).filter(|_| of == Of::Video).map(|gpu| gpu.used.clone());
        // The card's memory goes by no smaller parts (`_vidmemPmaAllocate`).
        let charge = used.map(|used| Charge::new(used, size.next_multiple_of(pages::BIG)));
        Buffer { number: self.last_buffer, backing, size, address, page, gpu, of, _charge: charge }
    }

    /// Memory of a file of UVM's, at the place in it that a process maps it from.
    pub(super) fn buffer_of_file(&mut self, id: FileId, base: u64, length: u64) -> Result<Buffer> {
        let most = limits::memory();
        if length > most {
            let what = format!("shared memory of {length} bytes, of which there are {most},");
            return Err(Failed::NotSimulated(Status::NO_MEMORY, what));
        }
        let memory = self.files.get(id).and_then(|open| open.node.memory());
        let part = memory.and_then(|memory| memory.part(base, length));
        let part = part.ok_or(Status::INVALID_ADDRESS)?;
        Ok(self.new_buffer(Backing::Part(part), Pages::small(length)?, 0, Of::System))
    }

    /// An object of NV01_MEMORY_SYSTEM_OS_DESCRIPTOR: pages that the caller has (`os_desc_mem.c`).
    fn memory_of_process(
        &mut self,
        caller: Caller<'_>,
        gpu: usize,
        address: u64,
        size: u64,
    ) -> Result<ObjectKind> {
        if size == 0 || address % PAGE != 0 {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let layout = Pages::small(size)?;
        let pages = caller.client.pages(address, layout.size, Pin::Permitted);
        let pages = pages.ok_or(Status::INVALID_ADDRESS)?;
        let buffer = self.new_buffer(Backing::Pages(pages), layout, gpu, Of::System);
        Ok(ObjectKind::Memory(Arc::new(buffer)))
    }

    /// Bytes of a GPU's memory that nobody has.
    pub(super) fn free_memory(&self, gpu: usize) -> u64 {
        let all = self.gpus.get(gpu).map_or(0, |gpu| gpu.facts().memory);
        all - self.used_memory(gpu).min(all)
    }

    /// Bytes of a GPU's window that nobody has.
    pub(super) fn free_window(&self, gpu: usize) -> Free {
        let Some(own) = self.gpus.get(gpu) else { return Free { all: 0, largest: 0 } };
        match self.beside_memory(gpu) {
            // What nobody has of the memory is told as if nobody had it of the window
            // (`memmgrGetBAR1InfoForDevice_GM107`).
            Some(left) => {
                let all = own.window.size() - self.used_memory(gpu).min(own.window.size());
                Free { all, largest: left }
            }
            None => own.window.free(&(0..own.window.size())),
        }
    }

    /// Bytes of a GPU's memory that programs have.
    pub(super) fn used_memory(&self, gpu: usize) -> u64 {
        self.gpus.get(gpu).map_or(0, |gpu| gpu.used.load(Ordering::Relaxed))
    }

    /// Bytes of a GPU's memory that a process has, as far as that is seen: those that one object stands for, and those
    /// of several.
    pub(super) fn memory_used_by(&self, gpu: usize, process: u32, seen: Seen) -> (u64, u64) {
        let mut objects: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let clients = self.clients_of(gpu, process, seen);
        for object in clients.flat_map(|(client, _)| client.objects()) {
            if let ObjectKind::Memory(buffer) = &object.kind {
                if buffer.is_video() && buffer.gpu == gpu {
                    objects.entry(buffer.number).or_insert((buffer.size, 0)).1 += 1;
                }
            }
        }
        let (own, shared): (Vec<_>, Vec<_>) = objects.values().partition(|(_, count)| *count == 1);
        let sum = |sizes: Vec<(u64, u64)>| sizes.iter().map(|(size, _)| size).sum();
        (sum(own), sum(shared))
    }

    /// Bytes of all GPUs' memory that the programs of a run have.
    pub(super) fn memory_of_run(&self, run: RunId) -> u64 {
        video_memory(self.server.objects_of(|client| client.run == run))
    }

    /// NV_ESC_RM_ALLOC_MEMORY: the older way, which maps as well
    /// (`rmapi_deprecated_allocmemory.c`, A/escape.c).
    pub(super) fn alloc_memory(&mut self, caller: Caller<'_>, args: &mut Params) -> Result {
        let class = args.word("params.hClass")?;
        if class == OS_DESCRIPTOR {
            return self.alloc_of_process(caller, args);
        }
        if class != SYSTEM_MEMORY {
            let known = self.interface.class(class).map(|it| it.name.clone());
            return Err(match known {
                Some(name) => {
                    let what = format!("NV_ESC_RM_ALLOC_MEMORY of {name}");
                    Failed::NotSimulated(Status::NOT_SUPPORTED, what)
                }
                None => Status::INVALID_CLASS.into(),
            });
        }
        let flags = args.word("params.flags")?;
        if bits(flags, old::LOCATION) != 0 || bits(flags, old::ALLOC) == old::ALLOC_NONE {
            return Err(Status::INVALID_FLAGS.into());
        }
        let length = args.get("params.limit")?.wrapping_add(1);
        let mut params = Params::of(&self.interface, "NV_MEMORY_ALLOCATION_PARAMS", Vec::new());
        params.set("owner", SHIM)?;
        params.set("size", length)?;
        params.set("attr", attr::IN_SYSTEM << attr::LOCATION.0)?;
        let place = NewObject::of(args)?;
        args.set("params.pMemory", 0_u32)?;
        let own = self.alloc_object(caller, class, "", place, Some(&mut params))?;
        if bits(flags, old::MAPPING) != 0 {
            return Ok(());
        }
        let wish =
            Wish { client: place.client, device: place.parent, memory: own, offset: 0, length };
        let mapped = self.map(caller, wish).and_then(|address| {
            args.set("params.pMemory", address)?;
            Ok(address)
        });
        let fd = args.word("fd")? as i32;
        match mapped {
            // The file that cannot show it fails the whole call (A/escape.c:374).
            Ok(_) => Ok(self.show(caller, wish, fd).map_err(|_| Errno::EINVAL)?),
            Err(failed) => {
                self.server.client(place.client, caller.owner)?.remove(own);
                Err(failed)
            }
        }
    }

    /// The same, of pages that the caller has.
    fn alloc_of_process(&mut self, caller: Caller<'_>, args: &mut Params) -> Result {
        let place = NewObject::of(args)?;
        let client = self.server.client(place.client, caller.owner)?;
        let ObjectKind::Device(gpu) = client.object(place.parent)?.kind else {
            return Err(Status::INVALID_OBJECT_PARENT.into());
        };
        let own = client.assign(place.client, place.wanted)?;
        let size = args.get("params.limit")?.wrapping_add(1);
        let kind = self.memory_of_process(caller, gpu, args.get("params.pMemory")?, size)?;
        let client = self.server.client(place.client, caller.owner)?;
        client.add(own, Object::new(place.parent, kind));
        Ok(args.set("params.hObjectNew", own)?)
    }

    /// NV_ESC_RM_MAP_MEMORY: A/escape.c:479, S/rs_server.c: `serverMap`.
    pub(super) fn map_memory(&mut self, caller: Caller<'_>, args: &mut Params) -> Result {
        let wish = Wish {
            client: args.word("params.hClient")?,
            device: args.word("params.hDevice")?,
            memory: args.word("params.hMemory")?,
            offset: args.get("params.offset")?,
            length: args.get("params.length")?,
        };
        let flags = args.word("params.flags")?;
        let client = self.server.client(wish.client, caller.owner)?;
        client.object(wish.memory)?;
        let has_access = bits(flags, map::ACCESS) != map::ACCESS.1;
        if bits(flags, map::PERSISTENT) != 0 || !has_access {
            return Err(Status::INVALID_FLAGS.into());
        }
        if bits(flags, map::SKIP_SIZE_CHECK) != 0 {
            return Err(Status::INSUFFICIENT_PERMISSIONS.into());
        }
        let address = self.map(caller, wish)?;
        args.set("params.pLinearAddress", address)?;
        let shown = self.show(caller, wish, args.word("fd")? as i32);
        if shown.is_err() {
            self.forget_mapping(caller, wish, address)?;
        }
        Ok(shown?)
    }

    /// `serverMap_Prologue` and `memMap_IMPL`; returns where the driver says that it is mapped.
    fn map(&mut self, caller: Caller<'_>, wish: Wish) -> Result<u64> {
        let client = self.server.client(wish.client, caller.owner)?;
        client.object(wish.memory)?;
        client.context(wish.client, wish.device, wish.memory)?;
        let ObjectKind::Memory(buffer) = &client.object(wish.memory)?.kind else {
            return Err(Status::NOT_SUPPORTED.into());
        };
        let buffer = buffer.clone();
        if buffer.is_of_process() {
            return Err(Status::NOT_SUPPORTED.into());
        }
        if wish.offset >= buffer.size {
            return Err(Status::INVALID_BASE.into());
        }
        let end = wish.offset.checked_add(wish.length);
        if wish.length == 0 || end.is_none_or(|end| end > buffer.size) {
            return Err(Status::INVALID_LIMIT.into());
        }
        let shown = match buffer.of {
            Of::Video if self.beside_memory(buffer.gpu).is_none() => {
                self.part_of_window(&buffer, wish)?
            }
            _ => Shown { address: buffer.address + wish.offset, _part: None },
        };
        let address = shown.address;
        let client = self.server.client(wish.client, caller.owner)?;
        client.object_mut(wish.memory)?.mappings.push(shown);
        Ok(address)
    }

    /// Addresses in the window of a GPU, by which a process sees its memory.
    fn part_of_window(&self, buffer: &Buffer, wish: Wish) -> Result<Shown> {
        let gpu = self.gpus.get(buffer.gpu).ok_or(Status::INVALID_STATE)?;
        let within = self.window_of_client(wish.client, buffer.gpu);
        let part = gpu.window.take(&within, (wish.offset, wish.length), buffer.page)?;
        Ok(Shown { address: gpu.facts().window.0 + part.first, _part: Some(Arc::new(part)) })
    }

    pub(super) fn pages_there(&self, gpu: usize) -> PagesThere {
        const AMPERE: i128 = 0x170;
        let architecture = self.number_of(gpu, "identity.architecture");
        PagesThere {
            largest: architecture.is_some_and(|it| it >= AMPERE),
            large_in_system: self.is_since(&[575, 51, 2]),
        }
    }

    /// What is left of a GPU's window where its memory is in it for good: since 580, if it is large enough.
    fn beside_memory(&self, gpu: usize) -> Option<u64> {
        let gpu = self.gpus.get(gpu).filter(|_| self.is_since(&[580]))?;
        gpu.window.beside(gpu.facts().memory)
    }

    /// The part of a GPU's window that instances share: what is not its memory's for good
    /// (`memmgrSetMIGPartitionableBAR1Range_IMPL`).
    pub(super) fn window_of_instances(&self, gpu: usize) -> Range<u64> {
        let Some(own) = self.gpus.get(gpu) else { return 0..0 };
        let start = self.beside_memory(gpu).map_or(0, |left| own.window.size() - left);
        start..own.window.end().max(start)
    }

    /// The part of a GPU's window that a client has: that of its instance, or all.
    pub(super) fn window_of_client(&self, client: u32, gpu: usize) -> Range<u64> {
        let part = self.part_of_client(client, gpu);
        let of_part = part.and_then(|part| self.window_of_instance(gpu, part.number));
        let size = || self.gpus.get(gpu).map_or(0, |gpu| gpu.window.size());
        of_part.unwrap_or_else(|| 0..size())
    }

    /// `nv_add_mapping_context_to_file`: the system's memory is shown by a control file, that of a GPU by
    /// the GPU's.
    fn show(&mut self, caller: Caller<'_>, wish: Wish, fd: i32) -> Result<(), Status> {
        let client = self.server.client(wish.client, caller.owner)?;
        let ObjectKind::Memory(buffer) = &client.object(wish.memory)?.kind else {
            return Err(Status::NOT_SUPPORTED);
        };
        let buffer = buffer.clone();
        let node = match buffer.of {
            Of::System => NodeKind::Control,
            Of::Video | Of::Registers | Of::Counters => NodeKind::Gpu(buffer.gpu),
        };
        let id = self.descriptor(caller.client, fd).ok_or(Status::INVALID_ARGUMENT)?;
        let open = self.files.get_mut(id).ok_or(Status::INVALID_ARGUMENT)?;
        if open.file.node != node {
            return Err(Status::INVALID_ARGUMENT);
        }
        if open.file.shown.is_some() {
            return Err(Status::STATE_IN_USE);
        }
        let offset = wish.offset / PAGE * PAGE;
        let length = pages(wish.offset % PAGE + wish.length) * PAGE;
        open.file.shown = Some(MapContext { buffer, offset, length });
        Ok(())
    }

    /// NV_ESC_RM_UNMAP_MEMORY: S/rs_server.c: `serverUnmap`.
    pub(super) fn unmap_memory(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let wish = Wish {
            client: args.word("hClient")?,
            device: args.word("hDevice")?,
            memory: args.word("hMemory")?,
            offset: 0,
            length: 0,
        };
        let client = self.server.client(wish.client, caller.owner)?;
        client.object(wish.memory)?;
        client.context(wish.client, wish.device, wish.memory)?;
        self.forget_mapping(caller, wish, args.get("pLinearAddress")?)
    }

    /// NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO: where the process has mapped it, by which it will be unmapped
    /// (`rm_update_device_mapping_info`).
    pub(super) fn update_mapping(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let client = self.server.client(args.word("hClient")?, caller.owner)?;
        let object = client.object_mut(args.word("hMemory")?)?;
        let (old, new) = (args.get("pOldCpuAddress")?, args.get("pNewCpuAddress")?);
        let found = object.mappings.iter_mut().find(|mapping| mapping.address == old);
        found.ok_or(Status::INVALID_ARGUMENT)?.address = new;
        Ok(())
    }

    fn forget_mapping(&mut self, caller: Caller<'_>, wish: Wish, address: u64) -> Result {
        let client = self.server.client(wish.client, caller.owner)?;
        let object = client.object_mut(wish.memory)?;
        let found = object.mappings.iter().position(|mapping| mapping.address == address);
        object.mappings.remove(found.ok_or(Status::OBJECT_NOT_FOUND)?);
        Ok(())
    }

    /// N/nv-mmap.c: `nvidia_mmap_helper`.
    pub(super) fn mapping(&self, id: FileId, length: u64, offset: u64) -> Result<Mapping, Errno> {
        let open = self.files.get(id).ok_or(Errno::EBADF)?;
        let shown = open.file.shown.as_ref().ok_or(Errno::EINVAL)?;
        if offset != 0 {
            return Err(Errno::EINVAL);
        }
        let length = length.checked_next_multiple_of(PAGE).ok_or(Errno::ENOMEM)?;
        if shown.buffer.of != Of::System && length != shown.length {
            return Err(Errno::ENXIO);
        }
        if length > shown.buffer.size - shown.offset {
            return Err(Errno::ERANGE);
        }
        let node = shown.buffer.node().ok_or(Errno::EINVAL)?.clone();
        let has_doorbell = shown.buffer.of == Of::Registers;
        Ok(Mapping::Other { node, offset: shown.offset, has_doorbell })
    }

    /// NV_ESC_RM_DUP_OBJECT: S/rs_server.c: `serverCopyResource`. Of what we have memory alone can be
    /// copied.
    pub(super) fn duplicate(&mut self, caller: Caller<'_>, args: &mut Params) -> Result {
        let (handle, parent) = (args.word("hClient")?, args.word("hParent")?);
        let source = self.server.find(args.word("hClientSrc")?)?;
        let process = source.process;
        let found = source.object(args.word("hObjectSrc")?);
        let found = found.map(|object| (object.kind.clone(), object.shares.clone()));
        let client = self.server.client(handle, caller.owner)?;
        let (kind, shares) = found?;
        let buffer = kind.memory().ok_or(Status::INVALID_ARGUMENT)?.clone();
        // Another process must have been given the right (S/rs_access_rights.c).
        let is_shared = shares.iter().any(|share| share.is_with(handle, client.process));
        if process != client.process && !is_shared {
            return Err(Status::INSUFFICIENT_PERMISSIONS.into());
        }
        let place = NewObject { client: handle, parent, wanted: args.word("hObject")? };
        let own = client.add_memory(place, buffer)?;
        args.set("hObject", own)?;
        Ok(())
    }

    /// NV_ESC_RM_SHARE: `clientShareResource_IMPL`.
    pub(super) fn share(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        /// RS_SHARE_ACTION_FLAG_REVOKE and _COMPOSE; RS_ACCESS_DUP_OBJECT.
        const REVOKE: u32 = 1;
        const COMPOSE: u32 = 4;
        const DUP_OBJECT: u32 = 1;
        let kind = args.get("sharePolicy.type")? as u16;
        let share = Share::of(kind, args.word("sharePolicy.target")?)?;
        let (action, rights) =
            (args.word("sharePolicy.action")?, args.word("sharePolicy.accessMask.limbs[0]")?);
        let client = self.server.client(args.word("hClient")?, caller.owner)?;
        let shares = &mut client.object_mut(args.word("hObject")?)?.shares;
        if action & COMPOSE == 0 {
            shares.clear();
        }
        if action & REVOKE != 0 {
            shares.retain(|other| *other != share);
        } else if rights & DUP_OBJECT != 0 {
            shares.push(share);
        }
        Ok(())
    }
}

/// Bytes of the GPU memory that some objects stand for: several may stand for the same.
pub(super) fn video_memory<'a>(objects: impl Iterator<Item = &'a Object>) -> u64 {
    let buffers = objects.filter_map(|object| match &object.kind {
        ObjectKind::Memory(buffer) if buffer.is_video() => Some(buffer),
        _ => None,
    });
    let sizes: BTreeMap<u64, u64> = buffers.map(|it| (it.number, it.size)).collect();
    sizes.values().sum()
}

/// What is to be mapped.
#[derive(Clone, Copy)]
struct Wish {
    client: u32,
    device: u32,
    memory: u32,
    offset: u64,
    length: u64,
}
