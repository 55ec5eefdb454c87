//! What the supervisor asks of a Jetson.

use super::devfreq::Attribute;
use super::paths::{self, DeviceFile};
use super::{Device, Errno, File, FileId, Kernel, Result, Space, space};
use crate::client::Client;
use crate::fault::Refusal;
use crate::gpu::{USERMODE_SIZE, is_rung, take_token};
use crate::log::Log;
use crate::machine::{Answer, Doorbell, Entry, FileInfo, Machine, MapCall, Mapping, Text, Writer};
use crate::memory::{Inode, Memory};

impl Machine for Kernel {
    fn entries(&self) -> Vec<Entry> {
        paths::entries(self.layouts.release)
    }

    fn open(&mut self, client: &dyn Client, device: Device) -> Result<FileId> {
        let file = match DeviceFile::of(device).ok_or(Errno::ENODEV)? {
            DeviceFile::Nvmap => self.open_nvmap(client),
            DeviceFile::Ctrl => self.open_ctrl(),
            DeviceFile::Space => self.open_space(),
            DeviceFile::Channel => self.open_channel(client, -1),
            DeviceFile::Tsg => self.open_tsg(None),
            DeviceFile::Fences => self.add_file(File::Fences, Memory::new(0)?),
        }?;
        if let Some(open) = self.files.get_mut(file) {
            open.device = Some(device);
        }
        Ok(file)
    }

    fn release(&mut self, id: FileId) {
        self.close(id);
    }

    fn file_of(&self, inode: Inode) -> Option<FileId> {
        self.files.of(inode)
    }

    fn file(&self, id: FileId) -> Option<FileInfo> {
        let open = self.files.get(id)?;
        let size = match open.file {
            File::Buffer(buffer) => self.nvmap.buffer(buffer).map_or(0, |buffer| buffer.size),
            _ => 0,
        };
        Some(FileInfo {
            node: open.node.clone(),
            device: open.device,
            kind: open.file.kind(),
            size,
        })
    }

    fn files(&self) -> Vec<FileId> {
        self.files.iter().map(|(id, _)| id).collect()
    }

    fn call_name(&self, _: &dyn Client, _: FileId, request: u32, _: u64) -> String {
        self.name(request)
    }

    fn ioctl(&mut self, client: &dyn Client, id: FileId, request: u32, argument: u64) -> Answer {
        self.dispatch(client, id, request, argument).into()
    }

    fn refuse(&mut self, _: &dyn Client, _: FileId, _: u32, _: u64, refusal: Refusal) -> Answer {
        match refusal {
            Refusal::Errno(errno) => Err(errno).into(),
            // `run` has refused such faults: these drivers have no statuses of their own.
            Refusal::Status(_) => Err(Errno::EINVAL).into(),
        }
    }

    fn mmap(&mut self, client: &dyn Client, id: FileId, call: &MapCall) -> Result<Mapping> {
        self.forget_unmapped(client, id);
        self.check_mmap(id, call.length, call.offset)?;
        match self.files.get(id).map(|open| open.file) {
            Some(File::Buffer(buffer)) if self.nvmap.is_of_process(buffer) => {
                Err(self.not_possible(client, "mmap of a dma-buf of the program's own pages"))
            }
            Some(File::Ctrl(_)) => {
                self.mapped_by.insert(id, client.process());
                Ok(Mapping::Doorbell)
            }
            _ => Ok(Mapping::Own),
        }
    }

    fn text(&self, text: Text) -> String {
        Attribute::of(text).map(|attribute| self.devfreq.show(attribute)).unwrap_or_default()
    }

    fn write_text(&mut self, text: Text, written: &[u8], _: Writer) {
        let written = String::from_utf8_lossy(written);
        // Each write is a value of its own.
        let written = written.lines().next_back().unwrap_or_default();
        let Some(attribute) = Attribute::of(text) else { return };
        if self.devfreq.store(attribute, written).is_err() {
            self.log.diagnose(0, "bad-frequency", format!("{written:?} is no frequency"));
        }
    }

    fn held_by(&self, process: u32, files: &[FileId]) -> Vec<(&'static str, usize)> {
        let open = files.iter().filter_map(|file| self.files.get(*file));
        let mapped = open.map(|open| match open.file {
            File::Space(space) => self.spaces.get(&space).map_or(0, Space::mapped),
            _ => 0,
        });
        vec![("GPU mapping", mapped.sum()), ("nvmap handle", self.nvmap.handles_of(process))]
    }

    fn live_buffers(&self) -> usize {
        self.nvmap.live()
    }

    fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    fn doorbells(&self) -> Vec<Doorbell> {
        let mapped = self.mapped_by.iter();
        mapped
            .filter_map(|(id, process)| {
                let region = self.files.get(*id)?.node.clone();
                Some(Doorbell { region, process: *process, is_rung })
            })
            .collect()
    }

    fn answer_doorbells(&mut self, doorbells: &[Doorbell]) -> bool {
        let mut moved = false;
        for doorbell in doorbells {
            if let Some(token) = doorbell.memory().and_then(take_token) {
                self.ring(doorbell.process, token);
                moved = true;
            }
        }
        if moved {
            self.ring_overwritten();
        }
        moved
    }

    fn run(&mut self) -> (bool, bool) {
        self.run_channels()
    }

    fn tick(&mut self, doorbells: &[Doorbell]) {
        self.watch_rings();
        for memory in doorbells.iter().filter_map(Doorbell::memory) {
            self.tick_region(memory);
        }
    }
}

impl Kernel {
    /// The last release of an open file.
    pub(super) fn close(&mut self, id: FileId) {
        let Some(open) = self.files.remove(id) else { return };
        let mapped_by = self.mapped_by.remove(&id);
        match open.file {
            File::Nvmap { process } => self.release_nvmap(process),
            File::Ctrl(ctrl) => {
                self.answer_last(&open.node, mapped_by);
                self.clocks.forget(ctrl);
            }
            File::Fences | File::Event | File::PollFd => {}
            File::Space(space) => self.put_space(space),
            File::Tsg { tsg, ctrl } => self.release_tsg_file(tsg, ctrl),
            File::Channel(channel) => self.release_channel(channel),
            File::Buffer(buffer) => self.release_dmabuf(buffer),
            File::Fence { .. } => {}
        }
        self.points.forget(id);
    }

    /// `munmap` is not seen: whether the doorbell is still mapped is looked at when it matters.
    fn forget_unmapped(&mut self, client: &dyn Client, id: FileId) {
        let Some(process) = self.mapped_by.get(&id) else { return };
        let Some(open) = self.files.get(id) else { return };
        let mapped = client.mappings_of(*process, open.node.inode());
        if mapped.is_some_and(|mapped| mapped.is_empty()) {
            self.mapped_by.remove(&id);
        }
    }

    /// Whether a file may be mapped with this length and offset, as its driver sees it.
    fn check_mmap(&self, id: FileId, length: u64, offset: u64) -> Result<()> {
        let open = self.files.get(id).ok_or(Errno::EBADF)?;
        match open.file {
            File::Nvmap { .. } => Err(Errno::EPERM),
            // G/os/linux/ioctl_ctrl.c:2833.
            File::Ctrl(_) if self.mapped_by.contains_key(&id) => Err(Errno::EBUSY),
            File::Ctrl(_) if length > USERMODE_SIZE || offset != 0 => Err(Errno::EINVAL),
            File::Ctrl(_) => Ok(()),
            File::Buffer(buffer) => {
                let size = self.nvmap.buffer(buffer)?.size;
                if offset.checked_add(space::page_align(length)).is_none_or(|end| end > size) {
                    return Err(Errno::EINVAL);
                }
                if self.nvmap.is_mappable(buffer) { Ok(()) } else { Err(Errno::EPERM) }
            }
            _ => Err(Errno::ENODEV),
        }
    }
}
