//! Memory: `/dev/nvmap`, its handles, and the dma-bufs made of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::args::{Args, as_bytes, write};
use super::layouts::Move;
use super::space::page_align;
use super::{Errno, File, FileId, Kernel, PAGE, Result};
use crate::backing::Backing;
use crate::client::{Client, Pin};
use crate::memory::{Access, Memory, Node};
use crate::tegra::abi::*;
use nvabi::call::Request;

/// Largest request number of the node.
const LAST: u8 = 107;
/// First address that no process has.
const USER_END: u64 = 1 << 47;
/// Handles are numbers from one counter for all processes; there it starts, and starts again.
const FIRST_ID: u32 = u32::MAX / 2;
/// `MAX_NUMNODES` of the kernel's configuration.
const NODES: i32 = 16;

/// System memory.
const IOVMM: u32 = 1 << 30;
/// Memory that no CPU reads.
const VPR: u32 = 1 << 28;
const VIDMEM: u32 = 1 << 26;
const FSI: u32 = 1 << 2;
const IVM: u32 = 1 << 1;
/// Bits of all carveouts.
const CARVEOUTS: u32 = IOVMM - 1;

/// An Orin of 64 GB.
const SYSTEM_MEMORY: u64 = 62 << 30;
/// The carveouts that are there, and how large; the sizes depend on the board.
const PRESENT: [(u32, u64); 2] = [(FSI, 512 << 10), (VPR, 672 << 20)];

/// No file is longer.
const LARGEST: u64 = i64::MAX as u64 & !(PAGE - 1);

/// Bits of the flags of ALLOC that stay with the handle.
const CACHE_MASK: u32 = 3;
const WRITE_COMBINE: u32 = 1;
const READ_ONLY: u32 = 1 << 9;
const PHYS_CONTIG: u32 = 1 << 6;

/// Memory, never reused as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BufferId(u64);

/// The memory of a handle. It lives while anything refers to it.
#[derive(Debug)]
pub(super) struct Buffer {
    /// In whole pages.
    pub(super) size: u64,
    memory: Option<Arc<Backing>>,
    /// The dma-buf that clients have open or mapped.
    file: Option<FileId>,
    handles: u32,
    /// Mappings of the GPU, and channels.
    gpu: u32,
    /// The heap it was allocated from.
    heap: Option<u32>,
    flags: u32,
    user_flags: u32,
    align: u64,
    serial: u64,
    pub(super) metadata: Option<Metadata>,
}

/// What REGISTER_BUFFER says of a buffer.
#[derive(Debug)]
pub(super) struct Metadata {
    pub(super) blob: Vec<u8>,
    pub(super) mutable: bool,
    pub(super) comptags: bool,
}

#[derive(Debug, Clone, Copy)]
struct Handle {
    buffer: BufferId,
    read_only: bool,
}

/// The handles of a process, and how often it has the node open.
#[derive(Debug, Default)]
struct Process {
    opens: u32,
    handles: BTreeMap<u32, Handle>,
}

/// All handles and all memory.
#[derive(Debug)]
pub(super) struct Nvmap {
    buffers: BTreeMap<BufferId, Buffer>,
    processes: BTreeMap<u32, Process>,
    last_buffer: u64,
    next_id: u32,
    used: BTreeMap<u32, u64>,
    /// System memory that there is: no more than the machine under it has.
    system: u64,
}

impl Nvmap {
    pub(super) fn new(available: u64) -> Self {
        Self {
            buffers: BTreeMap::new(),
            processes: BTreeMap::new(),
            last_buffer: 0,
            next_id: FIRST_ID,
            used: BTreeMap::new(),
            system: SYSTEM_MEMORY.min(available),
        }
    }

    pub(super) fn buffer(&self, id: BufferId) -> Result<&Buffer> {
        self.buffers.get(&id).ok_or(Errno::EINVAL)
    }

    pub(super) fn buffer_mut(&mut self, id: BufferId) -> Result<&mut Buffer> {
        self.buffers.get_mut(&id).ok_or(Errno::EINVAL)
    }

    /// The memory of a buffer for the GPU; a handle that was never allocated has none
    /// (M/nvmap_core.c:308).
    pub(super) fn pinned(&self, id: BufferId) -> Result<Arc<Backing>> {
        let buffer = self.buffer(id)?;
        buffer.memory.clone().filter(|_| buffer.heap.is_some()).ok_or(Errno::EINVAL)
    }

    pub(super) fn get_gpu(&mut self, id: BufferId) {
        if let Some(buffer) = self.buffers.get_mut(&id) {
            buffer.gpu += 1;
        }
    }

    pub(super) fn put_gpu(&mut self, id: BufferId) {
        if let Some(buffer) = self.buffers.get_mut(&id) {
            buffer.gpu -= 1;
            self.collect(id);
        }
    }

    /// How many handles a process has.
    pub(super) fn handles_of(&self, process: u32) -> usize {
        self.processes.get(&process).map_or(0, |process| process.handles.len())
    }

    /// How many buffers are alive.
    pub(super) fn live(&self) -> usize {
        self.buffers.len()
    }

    /// Whether it is memory of a program's own.
    pub(super) fn is_of_process(&self, id: BufferId) -> bool {
        self.buffers.get(&id).is_some_and(Buffer::is_of_process)
    }

    /// Whether the CPU may map it.
    pub(super) fn is_mappable(&self, id: BufferId) -> bool {
        self.buffers.get(&id).is_some_and(|buffer| buffer.heap.is_some_and(|heap| heap != VPR))
    }

    fn handle(&self, process: u32, id: u32) -> Option<Handle> {
        self.processes.get(&process)?.handles.get(&id).copied()
    }

    /// A number for a handle, after the last one given out to anybody.
    fn add_handle(&mut self, process: u32, handle: Handle) -> Result<u32> {
        let owner = self.processes.get_mut(&process).ok_or(Errno::ENODEV)?;
        let mut id = self.next_id;
        while owner.handles.contains_key(&id) {
            id = id.checked_add(1).ok_or(Errno::ENOMEM)?;
        }
        self.next_id = if id == u32::MAX { FIRST_ID } else { id + 1 };
        owner.handles.insert(id, handle);
        if let Some(buffer) = self.buffers.get_mut(&handle.buffer) {
            buffer.handles += 1;
        }
        Ok(id)
    }

    fn drop_handle(&mut self, process: u32, id: u32) {
        let Some(owner) = self.processes.get_mut(&process) else { return };
        if let Some(handle) = owner.handles.remove(&id) {
            if let Some(buffer) = self.buffers.get_mut(&handle.buffer) {
                buffer.handles -= 1;
            }
            self.collect(handle.buffer);
        }
    }

    /// Frees a buffer that nothing refers to.
    fn collect(&mut self, id: BufferId) {
        let Some(buffer) = self.buffers.get(&id) else { return };
        if buffer.handles == 0 && buffer.gpu == 0 && buffer.file.is_none() {
            if let Some(heap) = buffer.heap.filter(|_| !buffer.is_of_process()) {
                *self.used.entry(heap).or_default() -= buffer.size;
            }
            self.buffers.remove(&id);
        }
    }

    fn create(&mut self, size: u64) -> BufferId {
        self.last_buffer += 1;
        let id = BufferId(self.last_buffer);
        let buffer = Buffer {
            size: page_align(size),
            memory: None,
            file: None,
            handles: 0,
            gpu: 0,
            heap: None,
            flags: WRITE_COMBINE,
            user_flags: 0,
            align: 0,
            serial: self.last_buffer,
            metadata: None,
        };
        self.buffers.insert(id, buffer);
        id
    }

    fn free_in(&self, heap: u32) -> u64 {
        let total = if heap == IOVMM {
            self.system
        } else {
            PRESENT.iter().find(|(bit, _)| *bit == heap).map_or(0, |(_, size)| *size)
        };
        total.saturating_sub(self.used.get(&heap).copied().unwrap_or(0))
    }

    /// M/nvmap_dev.c:598: system memory by what the machine has, a carveout by what is free.
    fn is_available(&self, size: u64, heaps: u32) -> bool {
        if heaps & IOVMM != 0 {
            return size <= self.system;
        }
        let carveout = PRESENT.iter().find(|(bit, _)| heaps & bit != 0);
        carveout.is_some_and(|(bit, _)| size <= self.free_in(*bit))
    }

    /// M/nvmap_alloc.c:842-950: which heap a handle gets its memory from.
    fn choose_heap(&self, size: u64, heaps: u32) -> Result<u32> {
        for exclusive in [IVM, VIDMEM] {
            if heaps & exclusive != 0 && heaps & !exclusive != 0 {
                return Err(Errno::EINVAL);
            }
        }
        let mut carveouts: Vec<u32> = PRESENT.iter().map(|(bit, _)| *bit).collect();
        carveouts.sort_unstable_by(|a, b| b.cmp(a));
        let order = match size <= PAGE {
            true => [&[VPR], carveouts.as_slice(), &[IOVMM]],
            false => [&[VPR] as &[u32], &[IOVMM], carveouts.as_slice()],
        };
        let fits = |heap: &&u32| heaps & **heap != 0 && size <= self.free_in(**heap);
        order.into_iter().flatten().find(fits).copied().ok_or(Errno::ENOMEM)
    }
}

impl Buffer {
    /// Its memory, made when something first needs it: a handle alone costs nothing.
    fn memory(&mut self) -> Result<Arc<Backing>> {
        if let Some(memory) = &self.memory {
            return Ok(memory.clone());
        }
        let memory = Arc::new(Backing::from(self.new_memory()?));
        self.memory = Some(memory.clone());
        Ok(memory)
    }

    /// Whether it is memory of a program's own, which is of no heap.
    fn is_of_process(&self) -> bool {
        matches!(self.memory.as_deref(), Some(Backing::Pages(_)))
    }

    fn new_memory(&self) -> Result<Memory> {
        // Sizes are limited when memory is allocated, and a handle without any can have a descriptor.
        Ok(Memory::new(self.size.min(LARGEST))?)
    }

    /// A file of its size for its dma-buf, which shows its memory where that is of a file.
    fn file_node(&mut self) -> Result<Arc<Node>> {
        match self.memory()?.node() {
            Some(node) => Ok(node.clone()),
            None => Ok(Arc::new(Node::Memory(self.new_memory()?))),
        }
    }
}

impl Kernel {
    pub(super) fn open_nvmap(&mut self, client: &dyn Client) -> Result<FileId> {
        let process = client.process();
        let file = self.add_file(File::Nvmap { process }, Memory::new(0)?)?;
        self.nvmap.processes.entry(process).or_default().opens += 1;
        Ok(file)
    }

    /// The last close of a process takes its handles (M/nvmap_dev.c:247).
    pub(super) fn release_nvmap(&mut self, process: u32) {
        let Some(owner) = self.nvmap.processes.get_mut(&process) else { return };
        owner.opens -= 1;
        if owner.opens > 0 {
            return;
        }
        let ids: Vec<u32> = owner.handles.keys().copied().collect();
        for id in ids {
            self.nvmap.drop_handle(process, id);
        }
        self.nvmap.processes.remove(&process);
    }

    pub(super) fn release_dmabuf(&mut self, id: BufferId) {
        if let Some(buffer) = self.nvmap.buffers.get_mut(&id) {
            buffer.file = None;
            self.nvmap.collect(id);
        }
    }

    pub(super) fn nvmap_ioctl(
        &mut self,
        client: &dyn Client,
        process: u32,
        request: Request,
        argument: u64,
    ) -> Result<i64> {
        if request.magic() != b'N' || request.nr() > LAST {
            return Err(Errno::ENOTTY);
        }
        if request.direction().is_some() {
            let end = argument.checked_add(request.size().into());
            if end.is_none_or(|end| end > USER_END) {
                return Err(Errno::EFAULT);
            }
        }
        let call = self.layouts.call(request.0).ok_or(Errno::ENOTTY)?;
        let Some(known) = call.request else { return self.not_simulated(client, request.0) };
        match known {
            NVMAP_IOC_FREE::REQUEST => Ok(self.free_handle(client, process, argument)),
            NVMAP_IOC_GET_AVAILABLE_HEAPS::REQUEST => available_heaps(client, argument),
            NVMAP_IOC_GET_SCIIPCID::REQUEST | NVMAP_IOC_HANDLE_FROM_SCIIPCID::REQUEST => {
                Err(Errno::EPERM)
            }
            _ => {
                let mut args = Args::new(request.size().into());
                self.nvmap_call(client, process, known, (&mut args, call.moves), argument)
            }
        }
    }

    /// The calls that begin by reading their argument.
    fn nvmap_call(
        &mut self,
        client: &dyn Client,
        process: u32,
        request: u32,
        (args, moves): (&mut Args, Option<Arc<[Move]>>),
        argument: u64,
    ) -> Result<i64> {
        let handler: NvmapHandler = match request {
            // How much was copied is told where other releases have no room for it.
            NVMAP_IOC_READ::REQUEST | NVMAP_IOC_WRITE::REQUEST if moves.is_some() => {
                return self.not_simulated(client, request);
            }
            NVMAP_IOC_CREATE::REQUEST => create,
            NVMAP_IOC_CREATE_64::REQUEST => create_64,
            NVMAP_IOC_FROM_FD::REQUEST => from_fd,
            NVMAP_IOC_FROM_VA::REQUEST => from_va,
            NVMAP_IOC_GET_FD::REQUEST => get_fd,
            NVMAP_IOC_ALLOC::REQUEST => alloc,
            NVMAP_IOC_DUP_HANDLE::REQUEST => dup_handle,
            NVMAP_IOC_READ::REQUEST => read_handle,
            NVMAP_IOC_WRITE::REQUEST => write_handle,
            NVMAP_IOC_QUERY_HEAP_PARAMS::REQUEST => query_heap,
            NVMAP_IOC_GET_HEAP_SIZE::REQUEST => heap_size,
            NVMAP_IOC_PARAMETERS::REQUEST => parameters,
            // All memory here is coherent.
            NVMAP_IOC_CACHE::REQUEST
            | NVMAP_IOC_CACHE_64::REQUEST
            | NVMAP_IOC_CACHE_LIST::REQUEST
            | NVMAP_IOC_SET_TAG_LABEL::REQUEST
            | NVMAP_IOC_VPR_FLOOR_SIZE::REQUEST => |_, _, _, _, _| Ok(0),
            NVMAP_IOC_ALLOC_IVM::REQUEST
            | NVMAP_IOC_GUP_TEST::REQUEST
            | NVMAP_IOC_FROM_IVC_ID::REQUEST
            | NVMAP_IOC_GET_IVC_ID::REQUEST
            | NVMAP_IOC_GET_IVM_HEAPS::REQUEST
            | NVMAP_IOC_GET_FD_FOR_RANGE_FROM_LIST::REQUEST => {
                return self.not_simulated(client, request);
            }
            _ => return Err(Errno::ENOTTY),
        };
        if !args.read(client, argument) {
            return Err(Errno::EFAULT);
        }
        args.enter(moves);
        handler(self, client, process, args, argument)
    }

    /// Before r34 a handle is the descriptor of its dma-buf.
    fn has_numbers(&self) -> bool {
        self.layouts.branch >= 34
    }

    /// A handle by its number; a number that is the descriptor of a dma-buf is none
    /// (M/nvmap_ioctl.c:59).
    fn handle(&self, client: &dyn Client, process: u32, id: u32) -> Option<Handle> {
        match self.dmabuf_of(client, id as i32) {
            Ok(_) if self.has_numbers() => None,
            Ok((buffer, access)) => Some(Handle { buffer, read_only: access == Access::Read }),
            Err(_) => self.nvmap.handle(process, id),
        }
    }

    /// The argument is the handle itself. Nothing that it can be is an error.
    fn free_handle(&mut self, client: &dyn Client, process: u32, argument: u64) -> i64 {
        let id = argument as u32;
        if argument == 0 {
            return 0;
        }
        if self.handle(client, process, id).is_some() {
            self.nvmap.drop_handle(process, id);
        }
        if self.dmabuf_of(client, id as i32).is_ok() {
            if self.has_numbers() {
                let text = format!("NVMAP_IOC_FREE got descriptor {id} and closes it");
                self.log.diagnose(client.process(), "free-of-descriptor", text);
            }
            client.close(id as i32);
        }
        0
    }

    /// The driver says in its log who does not say for what memory is.
    fn warn_if_untagged(&mut self, client: &dyn Client, flags: u32) {
        if flags >> 16 == 0 {
            let text = "an allocation has no tag".to_owned();
            self.log.diagnose(client.process(), "untagged-allocation", text);
        }
    }

    /// A new descriptor of the dma-buf.
    fn dmabuf_fd(&mut self, client: &dyn Client, handle: Handle) -> Result<i32> {
        let buffer = self.nvmap.buffer_mut(handle.buffer)?;
        let access = if handle.read_only { Access::Read } else { Access::Both };
        let open = buffer.file.and_then(|file| self.files.get(file));
        let (file, node) = match open.map(|open| open.node.clone()) {
            Some(node) => (None, node),
            None => {
                let node = buffer.file_node()?;
                (Some(self.add_node(File::Buffer(handle.buffer), node.clone())), node)
            }
        };
        let fd = client.install(&node, access);
        match (file, &fd) {
            (Some(file), Ok(_)) => self.nvmap.buffer_mut(handle.buffer)?.file = Some(file),
            (Some(file), Err(_)) => {
                self.close(file);
            }
            (None, _) => {}
        }
        fd
    }
}

type NvmapHandler = fn(&mut Kernel, &dyn Client, u32, &mut Args, u64) -> Result<i64>;

fn create(k: &mut Kernel, c: &dyn Client, p: u32, args: &mut Args, at: u64) -> Result<i64> {
    let size = args.word(0).into();
    make(k, c, p, args, at, size, 1)
}

fn create_64(k: &mut Kernel, c: &dyn Client, p: u32, args: &mut Args, at: u64) -> Result<i64> {
    let size = args.double(0);
    make(k, c, p, args, at, size, 0)
}

/// M/nvmap_handle.c:214. The number goes to the second word, or for 64-bit sizes to the first.
fn make(
    k: &mut Kernel,
    client: &dyn Client,
    process: u32,
    args: &mut Args,
    at: u64,
    size: u64,
    word: usize,
) -> Result<i64> {
    if size == 0 {
        return Err(Errno::EINVAL);
    }
    let buffer = k.nvmap.create(size);
    give_handle(k, client, process, args, at, Handle { buffer, read_only: false }, word)
}

/// Tells a handle in a word of the argument; one that cannot be told is never made.
fn give_handle(
    k: &mut Kernel,
    client: &dyn Client,
    process: u32,
    args: &mut Args,
    at: u64,
    handle: Handle,
    word: usize,
) -> Result<i64> {
    let given = if k.has_numbers() {
        k.nvmap.add_handle(process, handle).and_then(|id| {
            args.put_word(word, id);
            args.write(client, at).inspect_err(|_| k.nvmap.drop_handle(process, id))
        })
    } else {
        k.dmabuf_fd(client, handle).and_then(|fd| {
            args.put_word(word, fd as u32);
            args.write(client, at).inspect_err(|_| client.close(fd))
        })
    };
    // Memory that was made for it goes too.
    given.inspect_err(|_| k.nvmap.collect(handle.buffer)).map(|()| 0)
}

fn from_fd(k: &mut Kernel, c: &dyn Client, p: u32, args: &mut Args, at: u64) -> Result<i64> {
    let (buffer, access) = k.dmabuf_of(c, args.word(0) as i32)?;
    if k.nvmap.buffer(buffer)?.heap.is_none() {
        return Err(Errno::EINVAL);
    }
    let read_only = access == Access::Read;
    give_handle(k, c, p, args, at, Handle { buffer, read_only }, 1)
}

/// Memory of the program's own: M/nvmap_ioctl.c:405, nvmap_handle.c:166, nvmap_alloc.c:785 and 962.
fn from_va(k: &mut Kernel, client: &dyn Client, p: u32, args: &mut Args, at: u64) -> Result<i64> {
    let wanted: nvmap_create_handle_from_va = args.get();
    let read_only = wanted.flags & READ_ONLY != 0;
    if wanted.va % PAGE != 0 {
        return Err(Errno::EINVAL);
    }
    let mapped = client.mapping_from(wanted.va).flatten();
    let mapped = mapped.filter(|mapped| mapped.addresses.start < USER_END).ok_or(Errno::EINVAL)?;
    let size = match (wanted.size, args.double(FROM_VA_RESULT)) {
        (0, 0) => mapped.addresses.end - wanted.va,
        (0, size) => size,
        (size, _) => size.into(),
    };
    if !k.nvmap.is_available(size, IOVMM) {
        return Err(Errno::ENOMEM);
    }
    if !mapped.is_writable && !read_only {
        return Err(Errno::EINVAL);
    }
    let pin = if read_only { Pin::ForcedRead } else { Pin::ForcedWrite };
    let pages = client.pages(wanted.va, page_align(size), pin).ok_or(Errno::EINVAL)?;
    let buffer = k.nvmap.create(size);
    let made = k.nvmap.buffer_mut(buffer)?;
    made.memory = Some(Arc::new(Backing::Pages(pages)));
    made.heap = Some(IOVMM);
    made.user_flags = wanted.flags;
    made.flags = wanted.flags & CACHE_MASK;
    made.align = PAGE;
    k.warn_if_untagged(client, wanted.flags);
    give_handle(k, client, p, args, at, Handle { buffer, read_only }, FROM_VA_RESULT)
}

/// The word of the handle that FROM_VA makes, and the first of its second size.
const FROM_VA_RESULT: usize = 4;

fn dup_handle(k: &mut Kernel, c: &dyn Client, p: u32, args: &mut Args, at: u64) -> Result<i64> {
    let wanted: nvmap_duplicate_handle = args.get();
    let old = k.handle(c, p, wanted.handle).ok_or(Errno::EINVAL)?;
    let read_only = wanted.access_flags == READ_ONLY;
    if old.read_only && !read_only {
        return Err(Errno::EPERM);
    }
    if k.nvmap.buffer(old.buffer)?.heap.is_none() {
        return Err(Errno::EINVAL);
    }
    let word = std::mem::offset_of!(nvmap_duplicate_handle, dup_handle) / 4;
    give_handle(k, c, p, args, at, Handle { buffer: old.buffer, read_only }, word)
}

/// M/nvmap_ioctl.c:139: a number that is no handle may be the descriptor of a dma-buf.
fn get_fd(k: &mut Kernel, client: &dyn Client, p: u32, args: &mut Args, at: u64) -> Result<i64> {
    let id = args.word(1);
    let handle = match k.handle(client, p, id) {
        Some(handle) => handle,
        None => {
            let (buffer, access) = k.dmabuf_of(client, id as i32)?;
            Handle { buffer, read_only: access == Access::Read }
        }
    };
    // The driver writes the number before the descriptor exists; one that cannot be told is never
    // made.
    args.write(client, at)?;
    let fd = k.dmabuf_fd(client, handle)?;
    args.put_word(0, fd as u32);
    args.write(client, at)?;
    Ok(0)
}

/// M/nvmap_ioctl.c:192-250.
fn alloc(k: &mut Kernel, client: &dyn Client, p: u32, args: &mut Args, _: u64) -> Result<i64> {
    let wanted: nvmap_alloc_handle = args.get();
    if wanted.align & wanted.align.wrapping_sub(1) != 0
        || wanted.handle == 0
        || wanted.numa_nid > NODES
        || wanted.numa_nid < -1
    {
        return Err(Errno::EINVAL);
    }
    let handle = k.handle(client, p, wanted.handle).ok_or(Errno::EINVAL)?;
    let size = k.nvmap.buffer(handle.buffer)?.size;
    if !k.nvmap.is_available(size, wanted.heap_mask) {
        return Err(Errno::ENOMEM);
    }
    if k.nvmap.buffer(handle.buffer)?.heap.is_some() {
        return Err(Errno::EEXIST);
    }
    let heap = k.nvmap.choose_heap(size, wanted.heap_mask)?;
    let buffer = k.nvmap.buffer_mut(handle.buffer)?;
    buffer.heap = Some(heap);
    buffer.user_flags = wanted.flags;
    buffer.flags = if wanted.heap_mask & VPR != 0 { 0 } else { wanted.flags & CACHE_MASK };
    buffer.align = u64::from(wanted.align).max(PAGE);
    *k.nvmap.used.entry(heap).or_default() += size;
    k.warn_if_untagged(client, wanted.flags);
    Ok(0)
}

fn read_handle(k: &mut Kernel, c: &dyn Client, p: u32, args: &mut Args, at: u64) -> Result<i64> {
    copy_handle(k, c, p, args, at, true)
}

fn write_handle(k: &mut Kernel, c: &dyn Client, p: u32, args: &mut Args, at: u64) -> Result<i64> {
    copy_handle(k, c, p, args, at, false)
}

/// M/nvmap_ioctl.c:480-560: how much was copied is told in `count` whatever happened.
fn copy_handle(
    k: &mut Kernel,
    client: &dyn Client,
    process: u32,
    args: &mut Args,
    at: u64,
    is_read: bool,
) -> Result<i64> {
    let op: nvmap_rw_handle = args.get();
    if op.addr == 0 || op.count == 0 || op.elem_size == 0 {
        return Err(Errno::EINVAL);
    }
    let handle = k.handle(client, process, op.handle).ok_or(Errno::EINVAL)?;
    let buffer = k.nvmap.buffer_mut(handle.buffer)?;
    if (!is_read && handle.read_only) || (is_read && buffer.heap == Some(VPR)) {
        return Err(Errno::EPERM);
    }
    let elements = Elements::of(buffer, &op);
    let copy = move |client: &dyn Client| {
        let result = elements.and_then(|elements| elements.copy(client, is_read));
        let copied = *result.as_ref().unwrap_or(&0);
        let count = at.wrapping_add(std::mem::offset_of!(nvmap_rw_handle, count) as u64);
        client.write(count, &copied.to_le_bytes());
        match result {
            Ok(copied) if copied < op.count.wrapping_mul(op.elem_size) => Err(Errno::EINTR),
            Ok(_) => Ok(0),
            Err(errno) => Err(errno),
        }
    };
    if op.count > MANY || op.count.saturating_mul(op.elem_size) > LONG {
        client.go_on(Box::new(copy));
        return Ok(0);
    }
    copy(client)
}

/// More elements and more bytes are copied while others make calls.
const MANY: u64 = 1024;
const LONG: u64 = 1 << 20;

/// What READ and WRITE copy.
struct Elements {
    memory: Arc<Backing>,
    size: u64,
    count: u64,
    offset: u64,
    stride: u64,
    address: u64,
    user_stride: u64,
}

impl Elements {
    fn of(buffer: &mut Buffer, op: &nvmap_rw_handle) -> Result<Self> {
        if buffer.heap.is_none() {
            return Err(Errno::EFAULT);
        }
        let (mut element, mut stride, mut user_stride, mut count) =
            (op.elem_size, op.hmem_stride, op.user_stride, op.count);
        if element == stride && element == user_stride && op.offset % 8 == 0 {
            element = element.wrapping_mul(count);
            (stride, user_stride, count) = (element, element, 1);
        }
        let size = buffer.size;
        let last = stride
            .checked_mul(count - 1)
            .and_then(|last| last.checked_add(op.offset)?.checked_add(element));
        if element > size
            || op.offset >= size
            || element > user_stride
            || element > stride
            || user_stride > (size - op.offset) / count
            || last.is_none_or(|last| last > size)
        {
            return Err(Errno::EINVAL);
        }
        let (offset, address) = (op.offset, op.addr);
        Ok(Self {
            memory: buffer.memory()?,
            size: element,
            count,
            offset,
            stride,
            address,
            user_stride,
        })
    }

    /// Returns how many bytes were copied, of whole elements.
    fn copy(&self, client: &dyn Client, is_read: bool) -> Result<u64> {
        let mut bytes = vec![0; self.size.min(1 << 20) as usize];
        for index in 0..self.count {
            let offset = self.offset.wrapping_add(index.wrapping_mul(self.stride));
            let address = self.address.wrapping_add(index.wrapping_mul(self.user_stride));
            let mut done = 0;
            while done < self.size {
                let part = bytes.len().min((self.size - done) as usize);
                let part = &mut bytes[..part];
                let there = if is_read {
                    match self.memory.read(offset + done, part) {
                        true => client.write(address.wrapping_add(done), part),
                        false => 0,
                    }
                } else {
                    client.read(address.wrapping_add(done), part)
                };
                // A program's own pages may be gone.
                let is_done = is_read || self.memory.write(offset + done, &part[..there]);
                if there < part.len() || !is_done {
                    return Ok(index * self.size);
                }
                done += there as u64;
            }
        }
        Ok(self.count * self.size)
    }
}

/// Carveouts alone: system memory is always there (M/nvmap_ioctl.c:1113).
fn available_heaps(client: &dyn Client, argument: u64) -> Result<i64> {
    let heaps = PRESENT.iter().fold(0, |heaps, (bit, _)| heaps | u64::from(*bit));
    let heaps = nvmap_available_heaps { heaps };
    write(client, argument, as_bytes(&heaps)).map_err(|_| Errno::EINVAL)?;
    Ok(0)
}

/// M/nvmap_ioctl.c:1368-1430.
fn query_heap(
    k: &mut Kernel,
    client: &dyn Client,
    _: u32,
    args: &mut Args,
    at: u64,
) -> Result<i64> {
    let mut heap: nvmap_query_heap_params = args.get();
    heap.largest_free_block = PAGE;
    if heap.heap_mask & CARVEOUTS != 0 {
        let present = PRESENT.iter().find(|(bit, _)| heap.heap_mask & bit != 0);
        let (bit, total) = present.ok_or(Errno::ENODEV)?;
        heap.total = *total;
        heap.free = k.nvmap.free_in(*bit);
    } else if heap.heap_mask & IOVMM != 0 {
        heap.total = SYSTEM_MEMORY;
        heap.free = k.nvmap.free_in(IOVMM);
        heap.granule_size = PAGE as u32;
    }
    args.put(&heap);
    args.write(client, at)?;
    Ok(0)
}

fn heap_size(_: &mut Kernel, client: &dyn Client, _: u32, args: &mut Args, at: u64) -> Result<i64> {
    let mut heap: nvmap_heap_size = args.get();
    let present = PRESENT.iter().find(|(bit, _)| heap.heap & bit != 0);
    heap.size = present.ok_or(Errno::ENODEV)?.1;
    args.put(&heap);
    args.write(client, at)?;
    Ok(0)
}

/// M/nvmap_ioctl.c:1150-1220: every failure is one errno.
fn parameters(
    k: &mut Kernel,
    client: &dyn Client,
    p: u32,
    args: &mut Args,
    at: u64,
) -> Result<i64> {
    let mut out: nvmap_handle_parameters = args.get();
    let handle = k.handle(client, p, out.handle).ok_or(Errno::ENODEV)?;
    let buffer = k.nvmap.buffer(handle.buffer).map_err(|_| Errno::ENODEV)?;
    let is_contiguous = match buffer.heap {
        Some(IOVMM) => buffer.user_flags & PHYS_CONTIG != 0,
        Some(_) => true,
        None => false,
    };
    out.contig = is_contiguous.into();
    out.heap = buffer.heap.unwrap_or(0).into();
    out.heap_number = u32::MAX;
    out.size = buffer.size;
    out.align = buffer.align;
    out.offset = 0;
    out.coherency = buffer.flags.into();
    if handle.read_only {
        out.access_flags = READ_ONLY;
    }
    out.serial_id = buffer.serial;
    args.put(&out);
    args.write(client, at).map_err(|_| Errno::ENODEV)?;
    Ok(0)
}
