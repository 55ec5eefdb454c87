//! Memory of a GPU as a dma-buf: NV_ESC_EXPORT_TO_DMABUF_FD (N/nv-dmabuf.c, A/osapi.c: `RmDmabufVerifyMemHandle`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::failed::Result;
use super::frontend::Caller;
use super::interface::Params;
use super::memory::{Buffer, PAGE};
use super::{Driver, NodeKind, NvFile};
use crate::client::Descriptor;
use crate::files::FileId;
use crate::memory::{Access, Memory, Node};
use crate::{Errno, Status, limits};

/// Asks for a new one.
const NEW: i32 = -1;
/// NV_DMABUF_EXPORT_MAPPING_TYPE_FORCE_PCIE, for machines whose CPU and GPU share their caches.
const FORCE_PCIE: u64 = 1;
/// A bound of ours: the driver keeps a record for each part that may come, here is one for each that came.
const MOST_OBJECTS: usize = 1 << 16;

/// What a dma-buf is of: memory of one GPU, in parts that are told one after the other.
#[derive(Debug)]
pub(super) struct DmaBuf {
    gpu: usize,
    size: u64,
    mapping: Mapping,
    /// How many parts may come, and those that came, by number.
    all: usize,
    parts: BTreeMap<usize, Part>,
}

/// How it is to be mapped, which all calls about it must agree on; both are there since 570 and 580.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mapping {
    kind: u64,
    by_cpu: u64,
}

/// A part of it. The memory stays while the dma-buf does.
#[derive(Debug)]
struct Part {
    _memory: Arc<Buffer>,
    size: u64,
}

impl DmaBuf {
    fn attached(&self) -> u64 {
        self.parts.values().map(|part| part.size).sum()
    }

    /// `nv_dma_buf_dup_mem_handles`: all parts that a call tells of, or none.
    fn attach(&mut self, driver: &Driver, args: &Params) -> Result {
        let (index, count) = span(args, self.all)?;
        for at in 0..count {
            if let Err(error) = self.attach_one(driver, args, at, index + at) {
                (index..index + at).for_each(|slot| drop(self.parts.remove(&slot)));
                return Err(error);
            }
        }
        Ok(())
    }

    fn attach_one(&mut self, driver: &Driver, args: &Params, at: usize, slot: usize) -> Result {
        let field = |name: &str| format!("{name}[{at}]");
        let (offset, size) = (args.get(&field("offsets"))?, args.get(&field("sizes"))?);
        if self.parts.contains_key(&slot) {
            return Err(Status::IN_USE.into());
        }
        if size > self.size - self.attached() {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        // Whoever knows a client's handle may name its memory here: the driver looks no further.
        let client = driver.server.find(args.word("hClient")?)?;
        let object = client.object(args.word(&field("handles"))?)?;
        let memory = object.kind.memory().ok_or(Status::INVALID_OBJECT)?;
        if memory.gpu != self.gpu {
            return Err(Status::INVALID_OBJECT_PARENT.into());
        }
        let is_whole = (offset | size) % PAGE == 0;
        let is_inside = size > 0 && size <= memory.size && offset <= memory.size - size;
        if !is_whole || !memory.is_video() || !is_inside {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        self.parts.insert(slot, Part { _memory: memory.clone(), size });
        Ok(())
    }
}

/// From which part on a call tells of how many.
fn span(args: &Params, there: usize) -> Result<(usize, usize)> {
    let (index, count) = (args.word("index")? as usize, args.word("numObjects")? as usize);
    match there.checked_sub(count) {
        Some(last) if index <= last => Ok((index, count)),
        _ => Err(Status::INVALID_ARGUMENT.into()),
    }
}

impl Mapping {
    fn of(args: &Params) -> Result<Self> {
        let value = |name: &str| if args.has(name) { args.get(name) } else { Ok(0) };
        Ok(Self { kind: value("mappingType")?, by_cpu: value("bAllowMmap")? })
    }
}

impl Driver {
    /// `nv_dma_buf_export`.
    pub(super) fn export_dma_buf(&mut self, caller: Caller<'_>, args: &mut Params) -> Result {
        let NodeKind::Gpu(gpu) = caller.node else { return Err(Errno::EINVAL.into()) };
        let (count, all) = (args.word("numObjects")?, args.word("totalObjects")?);
        let most = args.count("handles")?;
        let mapping = Mapping::of(args)?;
        if args.get("totalSize")? == 0
            || count == 0
            || count > all
            || count as usize > most
            || mapping.kind > FORCE_PCIE
        {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        match args.word("fd")? as i32 {
            NEW => self.new_dma_buf(caller, args, gpu, mapping),
            fd if fd >= 0 => self.add_to_dma_buf(caller, args, fd, mapping),
            _ => Err(Status::INVALID_ARGUMENT.into()),
        }
    }

    /// `nv_dma_buf_create`.
    fn new_dma_buf(
        &mut self,
        caller: Caller<'_>,
        args: &mut Params,
        gpu: usize,
        mapping: Mapping,
    ) -> Result {
        let (size, all) = (args.get("totalSize")?, args.word("totalObjects")? as usize);
        span(args, all)?;
        if all > MOST_OBJECTS {
            return Err(Status::NO_MEMORY.into());
        }
        // That is for memory that the CPU's caches know of, which none of these GPUs has.
        if mapping.kind == FORCE_PCIE {
            return Err(Status::NOT_SUPPORTED.into());
        }
        let mut made = DmaBuf { gpu, size, mapping, all, parts: BTreeMap::new() };
        made.attach(self, args)?;
        if mapping.by_cpu != 0 {
            return Err(Status::NOT_SUPPORTED.into());
        }
        let fd = self.install_dma_buf(caller, made)?;
        Ok(args.set("fd", fd as u32)?)
    }

    /// A file that says how large it is, and shows none of its memory.
    fn install_dma_buf(&mut self, caller: Caller<'_>, made: DmaBuf) -> Result<i32> {
        if made.size > limits::memory() {
            return Err(Status::OPERATING_SYSTEM.into());
        }
        let node = Memory::new(made.size).map_err(|_| Status::OPERATING_SYSTEM)?;
        let node = Arc::new(Node::Memory(node));
        let file = NvFile { dma_buf: Some(made), ..NvFile::new(NodeKind::DmaBuf) };
        let id = self.files.add(file, node.clone());
        caller.client.install(&node, Access::Both).map_err(|_| {
            self.files.remove(id);
            Status::OPERATING_SYSTEM.into()
        })
    }

    /// `nv_dma_buf_reuse`.
    fn add_to_dma_buf(
        &mut self,
        caller: Caller<'_>,
        args: &Params,
        fd: i32,
        mapping: Mapping,
    ) -> Result {
        let id = self.dma_buf_of(caller, fd).ok_or(Status::OPERATING_SYSTEM)?;
        let mut taken = self.files.get_mut(id).and_then(|open| open.file.dma_buf.take());
        let added = match &mut taken {
            Some(known) if known.mapping == mapping => known.attach(self, args),
            _ => Err(Status::INVALID_ARGUMENT.into()),
        };
        if let Some(open) = self.files.get_mut(id) {
            open.file.dma_buf = taken;
        }
        added
    }

    /// The dma-buf that a descriptor of the caller means.
    fn dma_buf_of(&self, caller: Caller<'_>, fd: i32) -> Option<FileId> {
        let Descriptor::Open(inode, _) = caller.client.descriptor(fd) else { return None };
        let id = self.files.of(inode)?;
        (self.files.get(id)?.file.node == NodeKind::DmaBuf).then_some(id)
    }

    /// Calls on a dma-buf, which Linux answers: DMA_BUF_IOCTL_SYNC has nothing to wait for.
    pub(super) fn dma_buf_ioctl(request: u32) -> Result<i64, Errno> {
        let (magic, number) = (request >> 8 & 0xff, request & 0xff);
        if magic == u32::from(b'b') && number == 0 { Ok(0) } else { Err(Errno::ENOTTY) }
    }
}
