//! What the supervisor asks of the driver.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::failed::Failed;
use super::frontend::Caller;
use super::gpu::Gpu;
use super::inject::{Injected, Injection};
use super::uvm::Uvm;
use super::{Driver, NodeKind, NvFile};
use crate::Errno;
use crate::client::Client;
use crate::fault::Refusal;
use crate::files::FileId;
use crate::gpu::set_time;
use crate::log::{Log, RunId};
use crate::machine::{
    Answer, Device, Doorbell, Entry, FileInfo, GpuUse, Machine, MapCall, Mapping, Text, Writer,
};
use crate::memory::{Inode, Memory, Node, Signal};

/// No process has more addresses.
const USER_END: u64 = 1 << 47;

impl Machine for Driver {
    fn entries(&self) -> Vec<Entry> {
        self.all_entries()
    }

    fn own_folder(&self) -> &'static [&'static str] {
        super::paths::PERSISTENCED
    }

    fn has_other_entries(&mut self) -> bool {
        std::mem::take(&mut self.has_other_entries)
    }

    fn open(&mut self, _: &dyn Client, device: Device) -> Result<FileId, Errno> {
        let node = self.node_kind(device).ok_or(Errno::ENODEV)?;
        let behind = match node {
            NodeKind::Control | NodeKind::Gpu(_) => Node::Signal(Signal::new()?),
            NodeKind::UvmTools => {
                // What follows nothing cannot be waited for.
                let signal = Signal::new()?;
                signal.raise();
                Node::Signal(signal)
            }
            // What a process maps of it is at its own address in the file, as for the driver.
            NodeKind::Uvm => Node::Memory(Memory::new(USER_END)?),
            NodeKind::Capability(_) => Node::Memory(Memory::new(0)?),
            NodeKind::DmaBuf => return Err(Errno::ENODEV),
        };
        let attached = match node {
            NodeKind::Gpu(gpu) => vec![gpu],
            _ => Vec::new(),
        };
        for gpu in &attached {
            if let Some(errno) = self.refusal(*gpu) {
                return Err(errno);
            }
            self.gpus[*gpu].take();
        }
        let file = NvFile { attached, ..NvFile::new(node) };
        let id = self.files.add(file, Arc::new(behind));
        if let Some(open) = self.files.get_mut(id) {
            open.device = Some(device);
        }
        Ok(id)
    }

    fn release(&mut self, id: FileId) {
        let Some(open) = self.files.remove(id) else { return };
        for gpu in open.file.attached {
            self.gpus[gpu].let_go();
        }
        if let Uvm::Space(space) = &open.file.uvm {
            for gpu in &space.gpus {
                self.gpus[*gpu].let_go();
            }
        }
        self.events.retain(|event| event.file != id);
        // A registered file keeps the control file that it was registered with.
        for owner in [Some(id), open.file.control].into_iter().flatten() {
            let is_kept = self.files.get(owner).is_some()
                || self.files.iter().any(|(_, open)| open.file.control == Some(owner));
            if !is_kept && self.server.has_clients_of(owner) {
                self.take_last_doorbells();
                self.server.remove_all_of(owner);
            }
        }
        self.settle();
        self.remove_idle();
    }

    fn file_of(&self, inode: Inode) -> Option<FileId> {
        self.files.of(inode)
    }

    fn file(&self, id: FileId) -> Option<FileInfo> {
        let open = self.files.get(id)?;
        let kind = open.file.node.kind();
        Some(FileInfo { node: open.node.clone(), device: open.device, kind, size: 0 })
    }

    fn files(&self) -> Vec<FileId> {
        self.files.iter().map(|(id, _)| id).collect()
    }

    fn call_name(&self, client: &dyn Client, id: FileId, request: u32, argument: u64) -> String {
        let node = self.files.get(id).map(|open| open.file.node);
        if matches!(node, Some(NodeKind::Uvm | NodeKind::UvmTools)) {
            let known = self.interface.ioctl(true, request);
            return known.map_or(format!("uvm {request:#x}"), |call| call.name.clone());
        }
        if node == Some(NodeKind::DmaBuf) {
            return format!("dma-buf {request:#x}");
        }
        let Ok(call) = self.call(client, request, argument) else {
            return "NV_ESC_IOCTL_XFER_CMD".to_owned();
        };
        let Some(name) = call.name else { return format!("escape {:#x}", call.number) };
        let (record, field) = match name.as_str() {
            "NV_ESC_RM_CONTROL" => ("NVOS54_PARAMETERS", "cmd"),
            "NV_ESC_RM_ALLOC" => ("NVOS21_PARAMETERS", "hClass"),
            "NV_ESC_RM_ALLOC_MEMORY" => ("nv_ioctl_nvos02_parameters_with_fd", "params.hClass"),
            _ => return name,
        };
        let read = self.read(client, record, call.address, call.size).map_err(Failed::from);
        let Ok(number) = read.and_then(|args| Ok(args.word(field)?)) else { return name };
        let inside = match field {
            "cmd" => self.interface.command(number).map(|it| it.name.clone()),
            _ => self.interface.class(number).map(|it| it.name.clone()),
        };
        inside.unwrap_or_else(|| format!("{name} {number:#x}"))
    }

    fn ioctl(&mut self, client: &dyn Client, id: FileId, request: u32, argument: u64) -> Answer {
        let Some(open) = self.files.get(id) else { return Err(Errno::EBADF).into() };
        let (node, owner) = (open.file.node, open.file.control.unwrap_or(id));
        let caller = Caller { client, file: id, node, owner };
        match node {
            NodeKind::Control | NodeKind::Gpu(_) => self.frontend(caller, request, argument),
            NodeKind::Uvm | NodeKind::UvmTools => self.uvm(caller, request, argument),
            NodeKind::Capability(_) => Err(Errno::ENOTTY).into(),
            NodeKind::DmaBuf => Self::dma_buf_ioctl(request).into(),
        }
    }

    fn refuse(
        &mut self,
        client: &dyn Client,
        id: FileId,
        request: u32,
        argument: u64,
        refusal: Refusal,
    ) -> Answer {
        let status = match refusal {
            Refusal::Errno(errno) => return Err(errno).into(),
            Refusal::Status(status) => status,
        };
        match self.files.get(id).map(|open| open.file.node) {
            Some(NodeKind::Control | NodeKind::Gpu(_)) => {
                self.refuse_frontend(client, request, argument, status)
            }
            _ => self.refuse_uvm(client, request, argument, status),
        }
    }

    fn mmap(&mut self, client: &dyn Client, id: FileId, call: &MapCall) -> Result<Mapping, Errno> {
        match self.files.get(id).map(|open| open.file.node) {
            Some(NodeKind::Uvm) => self.map_uvm(client, id, call),
            // `nv_dma_buf_mmap`.
            Some(NodeKind::DmaBuf) => Err(Errno::ENOTSUPP),
            _ => self.mapping(id, call.length, call.offset),
        }
    }

    fn watches_polls(&self) -> bool {
        true
    }

    fn awaits_poll(&self) -> bool {
        self.has_bare_event() || self.has_tracker()
    }

    fn polled(&mut self, id: FileId) {
        match self.files.get(id).map(|open| open.file.node) {
            Some(NodeKind::UvmTools) => self.settle_tracker(id),
            _ => self.take_bare_event(id),
        }
    }

    fn text(&self, text: Text) -> String {
        self.text_of(text)
    }

    fn bytes(&self, text: Text) -> Vec<u8> {
        self.bytes_of_file(text)
    }

    fn write_text(&mut self, text: Text, written: &[u8], writer: Writer) {
        self.written(text, written, writer);
    }

    fn held_writers(&self) -> Vec<u32> {
        self.rebinders()
    }

    fn forget_writers(&mut self, is_gone: &dyn Fn(u32) -> bool) {
        self.forget_rebinders(is_gone);
    }

    fn held_by(&self, process: u32, _: &[FileId]) -> Vec<(&'static str, usize)> {
        let mut held: BTreeMap<&'static str, usize> = BTreeMap::new();
        for (kind, count) in self.server.held_by(process) {
            *held.entry(kind).or_default() += count;
        }
        held.into_iter().collect()
    }

    fn memory_of(&self, run: RunId) -> u64 {
        self.memory_of_run(run)
    }

    fn gpus(&self) -> Vec<GpuUse> {
        let of = |(index, gpu): (usize, &Gpu)| GpuUse {
            name: gpu.text("identity.name"),
            memory: gpu.facts().memory,
            used: self.used_memory(index),
            is_lost: gpu.is_lost,
            is_unbound: !gpu.is_probed(),
        };
        self.gpus.iter().enumerate().map(of).collect()
    }

    fn inject(&mut self, gpu: usize, what: Injection) -> io::Result<Injected> {
        self.happen(gpu, what)
    }

    fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    fn doorbells(&self) -> Vec<Doorbell> {
        self.all_doorbells()
    }

    fn answer_doorbells(&mut self, doorbells: &[Doorbell]) -> bool {
        self.take_doorbells(doorbells)
    }

    fn may_have_work(&self) -> bool {
        self.has_channels()
    }

    fn run(&mut self) -> (bool, bool) {
        self.run_channels()
    }

    fn tick(&mut self, doorbells: &[Doorbell]) {
        for registers in doorbells.iter().filter_map(Doorbell::memory) {
            set_time(registers, &self.clock);
        }
    }

    fn refresh(&mut self) {
        self.refresh_records();
    }
}
