//! Address spaces: two windows of GPU addresses, what is reserved in them and what is mapped.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::Arc;
use std::time::Duration;

use super::args::{self, Args, as_bytes};
use super::buddy::Buddy;
use super::nvmap::BufferId;
use super::remap::Remaps;
use super::syncpoint::{POINT_SIZE, POINTS};
use super::{Errno, File, FileId, Kernel, PAGE, Result};
use crate::backing::Backing;
use crate::client::Client;
use crate::gpu::{Bytes, Found, Mappings};
use crate::memory::{Access, Memory};
use crate::tegra::abi::*;

/// Bytes behind one page directory entry: what windows are aligned to.
const PDE: u64 = 1 << 21;
/// The part of every address space that the driver keeps for itself, behind the user's.
pub(super) const KERNEL_WINDOW: u64 = 4 << 30;
/// All of an address space must lie below (`get_default_va_sizes`).
const APERTURE: u64 = 1 << 49;
/// Registers of the graphics engine keep bits 39:8 of some addresses of the kernel window.
pub(super) const REGISTER_LIMIT: u64 = 1 << 40;
/// `NVGPU_IOCTL_AS_MAP_BUFFER_BATCH_LIMIT`.
const BATCH_LIMIT: u32 = 256;

/// The space of `/dev/nvgpu/igpu0/as`: 64 KiB << 10, and 128 GiB from there.
const DEFAULT_START: u64 = 64 << 20;
const DEFAULT_SIZE: u64 = 128 << 30;

/// An address space, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SpaceId(pub(super) u32);

/// An address space.
#[derive(Debug)]
pub(crate) struct Space {
    user: Buddy,
    kernel: Buddy,
    areas: Vec<Area>,
    last_area: u32,
    mappings: BTreeMap<u64, Mapping>,
    /// What was put into sparse reservations.
    pub(super) remaps: Remaps,
    /// What the driver mapped in its own window.
    own: BTreeMap<u64, Own>,
    /// All syncpoints, read-only.
    sync_map: Option<u64>,
    /// Windows that a command stream gave to the shaders.
    pub(super) shader_windows: Vec<(u64, &'static str)>,
    /// Its file and its channels.
    references: u32,
}

/// A reservation.
#[derive(Debug)]
struct Area {
    id: u32,
    start: u64,
    size: u64,
    sparse: bool,
}

/// A dma-buf in the user window.
#[derive(Debug)]
struct Mapping {
    size: u64,
    buffer: BufferId,
    memory: Arc<Backing>,
    offset: u64,
    flags: u32,
    kind: i16,
    writable: bool,
    references: u32,
    /// The reservation that it lies in, when its address was asked for.
    area: Option<u32>,
}

#[derive(Debug)]
struct Own {
    size: u64,
    what: Target,
}

/// The memory of a space, by address.
#[derive(Debug)]
pub(super) struct MappedMemory(BTreeMap<u64, Piece>);

#[derive(Debug)]
struct Piece {
    end: u64,
    memory: Arc<Backing>,
    offset: u64,
    writable: bool,
}

impl MappedMemory {
    fn piece(&self, address: u64) -> Option<(u64, &Piece)> {
        let (start, piece) = self.0.range(..=address).next_back()?;
        (address < piece.end).then_some((*start, piece))
    }
}

impl Mappings for MappedMemory {
    type Bytes = Arc<Backing>;

    fn range(&self, address: u64) -> Option<(u64, u64)> {
        self.piece(address).map(|(start, piece)| (start, piece.end))
    }

    fn at(&self, address: u64) -> Option<Found<Arc<Backing>>> {
        let (start, piece) = self.piece(address)?;
        Some(Found {
            bytes: piece.memory.clone(),
            offset: piece.offset + (address - start),
            length: piece.end - address,
            is_writable: piece.writable,
        })
    }
}

impl Bytes for Arc<Backing> {
    fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        Backing::read(self, offset, into)
    }

    fn write(&self, offset: u64, from: &[u8]) -> bool {
        Backing::write(self, offset, from)
    }

    fn compare_exchange(&self, offset: u64, width: usize, old: u64, new: u64) -> Option<u64> {
        Backing::compare_exchange(self, offset, width, old, new)
    }
}

/// What is behind a GPU address.
#[derive(Debug, Clone)]
pub(super) enum Target {
    /// Memory, from an offset on.
    Memory { memory: Arc<Backing>, offset: u64, writable: bool },
    /// One syncpoint: any write increments it.
    Point(u32),
    /// The values of all syncpoints.
    Points,
    /// The value of one syncpoint.
    Value(u32),
    /// Reads zeros, swallows writes.
    Nothing,
}

impl Space {
    fn new(start: u64, end: u64) -> Self {
        Self {
            user: Buddy::new(start, end),
            kernel: Buddy::new(end, end + KERNEL_WINDOW),
            areas: Vec::new(),
            last_area: 0,
            mappings: BTreeMap::new(),
            remaps: Remaps::default(),
            own: BTreeMap::new(),
            sync_map: None,
            shader_windows: Vec::new(),
            references: 1,
        }
    }

    /// Puts something into the driver's own window.
    pub(super) fn map_own(&mut self, size: u64, what: Target) -> Result<u64> {
        let size = page_align(size);
        let at = self.kernel.allocate(size).ok_or(Errno::ENOMEM)?;
        self.own.insert(at, Own { size, what });
        Ok(at)
    }

    /// Takes it out again.
    pub(super) fn unmap_own(&mut self, at: u64) {
        if self.own.remove(&at).is_some() {
            self.kernel.free(at);
        }
    }

    /// The read-only view of all syncpoints, which all channels of a space share.
    pub(super) fn map_points(&mut self) -> Result<u64> {
        if let Some(at) = self.sync_map {
            return Ok(at);
        }
        let at = self.map_own(u64::from(POINTS) * POINT_SIZE, Target::Points)?;
        self.sync_map = Some(at);
        Ok(at)
    }

    /// What is at an address, and how many bytes of it follow.
    pub(super) fn target(&self, at: u64) -> Option<(Target, u64)> {
        if let Some((start, mapping)) = self.mappings.range(..=at).next_back() {
            let offset = at - start;
            if offset < mapping.size {
                let target = Target::Memory {
                    memory: mapping.memory.clone(),
                    offset: mapping.offset + offset,
                    writable: mapping.writable,
                };
                return Some((target, mapping.size - offset));
            }
        }
        if let Some((start, own)) = self.own.range(..=at).next_back() {
            let offset = at - start;
            if offset < own.size {
                let what = match own.what.clone() {
                    Target::Memory { memory, offset: from, writable } => {
                        Target::Memory { memory, offset: from + offset, writable }
                    }
                    Target::Points => Target::Value((offset / POINT_SIZE) as u32),
                    other => other,
                };
                return Some((what, own.size - offset));
            }
        }
        if let Some(found) = self.remaps.target(at) {
            return Some(found);
        }
        let area = self.area_at(at).filter(|area| area.sparse)?;
        let end = area.start + area.size;
        let mapping = self.mappings.range(at..).next().map(|(start, _)| *start);
        let next = mapping.into_iter().chain(self.remaps.next(at)).fold(end, u64::min);
        Some((Target::Nothing, next - at))
    }

    /// The memory of the space as it is now, for a kernel. Syncpoints are no memory, and what is mapped later it does
    /// not see; what is unmapped meanwhile it still does.
    pub(super) fn memory(&self) -> MappedMemory {
        let mapped = self.mappings.iter().map(|(at, mapping)| {
            (*at, mapping.size, &mapping.memory, mapping.offset, mapping.writable)
        });
        let own = self.own.iter().filter_map(|(at, own)| match &own.what {
            Target::Memory { memory, offset, writable } => {
                Some((*at, own.size, memory, *offset, *writable))
            }
            _ => None,
        });
        let all = mapped.chain(own).chain(self.remaps.pieces());
        MappedMemory(
            all.map(|(at, size, memory, offset, writable)| {
                (at, Piece { end: at + size, memory: memory.clone(), offset, writable })
            })
            .collect(),
        )
    }

    /// The sparse reservation that an operation is about: its start and its size. There are no pages
    /// but small ones.
    pub(super) fn pool(&self, op: &nvgpu_as_remap_op) -> Option<(u64, u64)> {
        if op.flags & NVGPU_AS_REMAP_OP_FLAGS_PAGESIZE_4K == 0 {
            return None;
        }
        let area = self.area_at(op.virt_offset_in_pages * PAGE).filter(|area| area.sparse)?;
        Some((area.start, area.size))
    }

    /// The first address that no window has.
    pub(super) fn limit(&self) -> u64 {
        self.kernel.end()
    }

    /// Whether the driver warns of every context in it (its window reaches what registers cannot
    /// hold).
    pub(super) fn is_too_high(&self) -> bool {
        self.kernel.end() > REGISTER_LIMIT
    }

    /// End of the user window.
    pub(super) fn end(&self) -> u64 {
        self.user.end()
    }

    /// How many buffers are mapped.
    pub(super) fn mapped(&self) -> usize {
        self.mappings.len()
    }

    fn area_at(&self, at: u64) -> Option<&Area> {
        self.areas.iter().find(|area| at >= area.start && at - area.start < area.size)
    }

    /// G/common/mm/vm_area.c:50-100; the reservation that a mapping at a fixed address goes to.
    fn check_fixed(&self, at: u64, size: u64) -> Result<u32> {
        let end = at.checked_add(size).filter(|_| size != 0).ok_or(Errno::EINVAL)?;
        if at % PAGE != 0 {
            return Err(Errno::EINVAL);
        }
        let area = self.area_at(at).ok_or(Errno::EINVAL)?;
        if end > area.start + area.size {
            return Err(Errno::EINVAL);
        }
        let before = self.mappings.range(..end).next_back();
        if before.is_some_and(|(start, mapping)| start + mapping.size > at) {
            return Err(Errno::EINVAL);
        }
        Ok(area.id)
    }

    /// G/os/linux/vm.c:170; of several mappings of a buffer the one at the lowest address counts.
    fn find_same(&self, request: &MapRequest) -> Option<u64> {
        let same =
            |mapping: &Mapping| mapping.buffer == request.buffer && mapping.kind == request.kind();
        let (at, mapping) = if request.is_fixed() {
            let mapping = self.mappings.get(&request.address).filter(|mapping| same(mapping))?;
            (request.address, mapping)
        } else {
            self.mappings.iter().find(|(_, mapping)| same(mapping)).map(|(at, map)| (*at, map))?
        };
        (mapping.flags == request.core_flags()).then_some(at)
    }

    fn map(
        &mut self,
        request: &MapRequest,
        memory: Arc<Backing>,
        buffer_size: u64,
    ) -> Result<Mapped> {
        if let Some(at) = self.find_same(request) {
            if let Some(mapping) = self.mappings.get_mut(&at) {
                mapping.references += 1;
            }
            return Ok(Mapped { at, new: false });
        }
        let size = if request.size != 0 { request.size } else { buffer_size };
        let size = page_align(size);
        if size > buffer_size || request.offset > buffer_size - size {
            return Err(Errno::EINVAL);
        }
        let area =
            if request.is_fixed() { Some(self.check_fixed(request.address, size)?) } else { None };
        if request.kind() < 0 && request.compressible == -1 {
            return Err(Errno::EINVAL);
        }
        // The page tables cannot begin inside a page (G/common/mm/gmmu/page_table.c).
        if request.offset % PAGE != 0 {
            return Err(Errno::ENOMEM);
        }
        let at = match area {
            Some(_) => request.address,
            None => self.user.allocate(size).ok_or(Errno::ENOMEM)?,
        };
        let mapping = Mapping {
            size,
            buffer: request.buffer,
            memory,
            offset: request.offset,
            flags: request.core_flags(),
            kind: request.kind(),
            writable: request.writable,
            references: 1,
            area,
        };
        self.mappings.insert(at, mapping);
        Ok(Mapped { at, new: true })
    }

    /// Drops one reference; returns the buffer when it was the last.
    fn unmap(&mut self, at: u64) -> Option<BufferId> {
        let mapping = self.mappings.get_mut(&at)?;
        mapping.references -= 1;
        if mapping.references > 0 {
            return None;
        }
        let mapping = self.mappings.remove(&at)?;
        if mapping.flags & NVGPU_AS_MAP_BUFFER_FLAGS_FIXED_OFFSET == 0 {
            self.user.free(at);
        }
        Some(mapping.buffer)
    }
}

struct Mapped {
    at: u64,
    new: bool,
}

/// What MAP_BUFFER_EX asks for.
struct MapRequest {
    buffer: BufferId,
    flags: u32,
    compressible: i16,
    incompressible: i16,
    address: u64,
    offset: u64,
    size: u64,
    writable: bool,
}

impl MapRequest {
    fn is_fixed(&self) -> bool {
        self.flags & NVGPU_AS_MAP_BUFFER_FLAGS_FIXED_OFFSET != 0
    }

    /// The kind that a mapping is found again by.
    fn kind(&self) -> i16 {
        if self.compressible != -1 { self.compressible } else { self.incompressible }
    }

    /// The flags that a mapping is found again by: MAPPABLE_COMPBITS is taken and forgotten.
    fn core_flags(&self) -> u32 {
        self.flags & !NVGPU_AS_MAP_BUFFER_FLAGS_MAPPABLE_COMPBITS
    }
}

/// Flags of MAP_BUFFER_EX that r36 has (G/os/linux/vm.c:41-97).
const MAP_FLAGS: u32 = NVGPU_AS_MAP_BUFFER_FLAGS_FIXED_OFFSET
    | NVGPU_AS_MAP_BUFFER_FLAGS_CACHEABLE
    | NVGPU_AS_MAP_BUFFER_FLAGS_UNMAPPED_PTE
    | NVGPU_AS_MAP_BUFFER_FLAGS_MAPPABLE_COMPBITS
    | NVGPU_AS_MAP_BUFFER_FLAGS_L3_ALLOC
    | NVGPU_AS_MAP_BUFFER_FLAGS_SYSTEM_COHERENT
    | 3 << NVGPU_AS_MAP_BUFFER_FLAGS_ACCESS_BITMASK_OFFSET
    | NVGPU_AS_MAP_BUFFER_FLAGS_TEGRA_RAW;

/// Those that releases before it have besides: IO_COHERENT and DIRECT_KIND_CTRL.
const OLD_MAP_FLAGS: u32 = 1 << 4 | 1 << 8;

impl Kernel {
    pub(super) fn open_space(&mut self) -> Result<FileId> {
        self.add_space(DEFAULT_START, DEFAULT_START + DEFAULT_SIZE)
    }

    pub(super) fn alloc_as(&mut self, client: &dyn Client, args: &mut Args) -> Result<i64> {
        let mut wanted: nvgpu_alloc_as_args = args.get();
        if self.layouts.branch < 34 {
            // The driver chooses.
            wanted.va_range_start = DEFAULT_START;
            wanted.va_range_end = DEFAULT_START + DEFAULT_SIZE;
        }
        let file = check_bounds(&wanted)
            .and_then(|()| self.add_space(wanted.va_range_start, wanted.va_range_end))
            .map_err(|errno| Self::after_descriptor(client, errno))?;
        let fd = self.install(client, file)?;
        args.update(|args: &mut nvgpu_alloc_as_args| args.as_fd = fd);
        Ok(0)
    }

    fn add_space(&mut self, start: u64, end: u64) -> Result<FileId> {
        let memory = Memory::new(0)?;
        self.last_space += 1;
        let id = SpaceId(self.last_space);
        self.spaces.insert(id, Space::new(start, end));
        self.add_file(File::Space(id), memory)
    }

    pub(super) fn get_space(&mut self, id: SpaceId) {
        if let Some(space) = self.spaces.get_mut(&id) {
            space.references += 1;
        }
    }

    /// Drops a reference; with the last one go mappings and reservations.
    pub(super) fn put_space(&mut self, id: SpaceId) {
        let Some(space) = self.spaces.get_mut(&id) else { return };
        space.references -= 1;
        if space.references > 0 {
            return;
        }
        if let Some(space) = self.spaces.remove(&id) {
            let mapped = space.mappings.into_values().map(|mapping| mapping.buffer);
            for buffer in mapped.chain(space.remaps.into_buffers()) {
                self.nvmap.put_gpu(buffer);
            }
        }
    }

    pub(super) fn space_ioctl(
        &mut self,
        client: &dyn Client,
        id: SpaceId,
        request: u32,
        args: &mut Args,
    ) -> Result<i64> {
        match request {
            NVGPU_AS_IOCTL_BIND_CHANNEL::REQUEST => self.bind_space(client, id, args),
            NVGPU_AS_IOCTL_ALLOC_SPACE::REQUEST => self.alloc_space(id, args),
            NVGPU32_AS_IOCTL_ALLOC_SPACE::REQUEST => self.alloc_space32(id, args),
            NVGPU_AS_IOCTL_FREE_SPACE::REQUEST => self.free_space(id, args),
            NVGPU_AS_IOCTL_MAP_BUFFER_EX::REQUEST => {
                args_updated(args, |args| self.map_buffer(client, id, args))
            }
            NVGPU_AS_IOCTL_UNMAP_BUFFER::REQUEST => {
                let at = args.get::<nvgpu_as_unmap_buffer_args>().offset;
                self.unmap_buffer(client, id, at);
                Ok(0)
            }
            NVGPU_AS_IOCTL_MAP_BUFFER_BATCH::REQUEST => self.map_batch(client, id, args),
            NVGPU_AS_IOCTL_GET_VA_REGIONS::REQUEST => self.va_regions(client, id, args),
            NVGPU_AS_IOCTL_GET_SYNC_RO_MAP::REQUEST => {
                let at = self.space_mut(id)?.map_points()?;
                args.put(&nvgpu_as_get_sync_ro_map_args {
                    base_gpuva: at,
                    sync_size: POINT_SIZE as u32,
                    num_syncpoints: POINTS,
                });
                Ok(0)
            }
            NVGPU_AS_IOCTL_MAPPING_MODIFY::REQUEST => self.modify_mapping(id, args),
            NVGPU_AS_IOCTL_REMAP::REQUEST => self.remap(client, id, args),
            _ => Err(Errno::ENOTTY),
        }
    }

    pub(super) fn space_mut(&mut self, id: SpaceId) -> Result<&mut Space> {
        self.spaces.get_mut(&id).ok_or(Errno::EINVAL)
    }

    fn bind_space(&mut self, client: &dyn Client, id: SpaceId, args: &Args) -> Result<i64> {
        let fd = args.get::<nvgpu_as_bind_channel_args>().channel_fd as i32;
        let chid = self.channel_of(client, fd)?;
        let channel = self.channels.get_mut(&chid).ok_or(Errno::EINVAL)?;
        if channel.space.is_some() {
            return Err(Errno::EINVAL);
        }
        channel.space = Some(id);
        self.get_space(id);
        Ok(0)
    }

    fn alloc_space(&mut self, id: SpaceId, args: &mut Args) -> Result<i64> {
        let wanted: nvgpu_as_alloc_space_args = args.get();
        let offset = offset_of!(nvgpu_as_alloc_space_args, o_a) / 4;
        let at =
            self.reserve(id, wanted.pages, wanted.page_size, wanted.flags, args.double(offset))?;
        args.put_double(offset, at);
        Ok(0)
    }

    fn alloc_space32(&mut self, id: SpaceId, args: &mut Args) -> Result<i64> {
        let wanted: nvgpu32_as_alloc_space_args = args.get();
        let offset = offset_of!(nvgpu32_as_alloc_space_args, o_a) / 4;
        let at = self.reserve(
            id,
            wanted.pages.into(),
            wanted.page_size,
            wanted.flags,
            args.double(offset),
        )?;
        args.put_double(offset, at);
        Ok(0)
    }

    /// G/common/mm/vm_area.c:112-210.
    fn reserve(
        &mut self,
        id: SpaceId,
        pages: u64,
        page_size: u32,
        flags: u32,
        offset: u64,
    ) -> Result<u64> {
        if u64::from(page_size) != PAGE {
            return Err(Errno::EINVAL);
        }
        let space = self.space_mut(id)?;
        // The driver multiplies without looking.
        let size = pages.wrapping_mul(PAGE);
        let at = if flags & NVGPU_AS_ALLOC_SPACE_FLAGS_FIXED_OFFSET != 0 {
            space.user.allocate_fixed(offset, size)
        } else {
            space.user.allocate(size)
        }
        .ok_or(Errno::ENOMEM)?;
        space.last_area += 1;
        let sparse = flags & NVGPU_AS_ALLOC_SPACE_FLAGS_SPARSE != 0;
        space.areas.push(Area { id: space.last_area, start: at, size, sparse });
        Ok(at)
    }

    /// G/common/mm/vm_area.c:270-330: whatever address inside the reservation will do.
    fn free_space(&mut self, id: SpaceId, args: &Args) -> Result<i64> {
        let at = args.get::<nvgpu_as_free_space_args>().offset;
        let space = self.space_mut(id)?;
        let Some(index) = space.areas.iter().position(|a| at >= a.start && at - a.start < a.size)
        else {
            return Ok(0);
        };
        let area = space.areas.remove(index);
        let inside = |mapping: &Mapping| mapping.area == Some(area.id);
        let inside: Vec<u64> =
            space.mappings.iter().filter(|(_, m)| inside(m)).map(|(at, _)| *at).collect();
        let mut released = Vec::new();
        for at in inside {
            if let Some(mapping) = space.mappings.get_mut(&at) {
                mapping.area = None;
            }
            released.extend(space.unmap(at));
        }
        let change = space.remaps.clear(area.start, area.size);
        space.user.free(area.start);
        for buffer in released {
            self.nvmap.put_gpu(buffer);
        }
        self.count(change);
        Ok(0)
    }

    /// G/os/linux/vm.c:356-460, then common/mm/vm.c:1440-1590.
    fn map_buffer(
        &mut self,
        client: &dyn Client,
        id: SpaceId,
        args: &mut nvgpu_as_map_buffer_ex_args,
    ) -> Result<()> {
        let (buffer, access) = self.dmabuf_of(client, args.dmabuf_fd as i32)?;
        let size = self.nvmap.buffer(buffer)?.size;
        if args.flags & NVGPU_AS_MAP_BUFFER_FLAGS_FIXED_OFFSET == 0
            && (args.buffer_offset != 0 || args.offset != 0 || args.mapping_size != 0)
        {
            return Err(Errno::EINVAL);
        }
        if args.mapping_size > size || args.buffer_offset > size - args.mapping_size {
            return Err(Errno::EINVAL);
        }
        let wanted = args.flags >> NVGPU_AS_MAP_BUFFER_FLAGS_ACCESS_BITMASK_OFFSET & 3;
        if wanted > NVGPU_AS_MAP_BUFFER_ACCESS_READ_WRITE
            // Orin does not support it.
            || args.flags & NVGPU_AS_MAP_BUFFER_FLAGS_TEGRA_RAW != 0
            || args.flags & !self.map_flags() != 0
            || access == Access::Write
        {
            return Err(Errno::EINVAL);
        }
        let memory = self.nvmap.pinned(buffer)?;
        if wanted == NVGPU_AS_MAP_BUFFER_ACCESS_READ_WRITE && access == Access::Read {
            return Err(Errno::EINVAL);
        }
        let request = MapRequest {
            buffer,
            flags: args.flags,
            compressible: args.compr_kind,
            incompressible: args.incompr_kind,
            address: args.offset,
            offset: args.buffer_offset,
            size: args.mapping_size,
            writable: access == Access::Both && wanted != NVGPU_AS_MAP_BUFFER_ACCESS_READ_ONLY,
        };
        let space = self.space_mut(id)?;
        let mapped = space.map(&request, memory, size)?;
        if mapped.new {
            self.nvmap.get_gpu(buffer);
            self.check_shader_windows(client.process(), id, mapped.at);
        }
        args.offset = mapped.at;
        Ok(())
    }

    /// The flags of MAP_BUFFER_EX that are not refused.
    fn map_flags(&self) -> u32 {
        match self.layouts.branch {
            36.. => MAP_FLAGS,
            35 => MAP_FLAGS | OLD_MAP_FLAGS,
            // What it does not know it does not see.
            _ => u32::MAX,
        }
    }

    /// A mapping that lies where a command stream put a window of the shaders is never reached.
    fn check_shader_windows(&mut self, process: u32, id: SpaceId, at: u64) {
        let Some(space) = self.spaces.get(&id) else { return };
        let Some(mapping) = space.mappings.get(&at) else { return };
        let end = at + mapping.size;
        let hit = space
            .shader_windows
            .iter()
            .find(|(window, _)| *window < end && at < window.saturating_add(super::gpu::WINDOW));
        if let Some((window, name)) = hit {
            let text = format!("mapping at {at:#x} overlaps the {name} window at {window:#x}");
            self.log.diagnose(process, "window-overlap", text);
        }
    }

    /// A command stream has put a window of the shaders somewhere.
    pub(super) fn set_shader_window(
        &mut self,
        process: u32,
        id: SpaceId,
        at: u64,
        name: &'static str,
    ) {
        let Some(space) = self.spaces.get_mut(&id) else { return };
        space.shader_windows.retain(|(_, other)| *other != name);
        space.shader_windows.push((at, name));
        let mapped: Vec<u64> = space.mappings.keys().copied().collect();
        for mapping in mapped {
            self.check_shader_windows(process, id, mapping);
        }
    }

    /// G/common/mm/vm.c:1668-1700: an address that no mapping begins at is no error.
    fn unmap_buffer(&mut self, client: &dyn Client, id: SpaceId, at: u64) {
        let Some(space) = self.spaces.get_mut(&id) else { return };
        let Some(mapping) = space.mappings.get(&at) else { return };
        if mapping.flags & NVGPU_AS_MAP_BUFFER_FLAGS_FIXED_OFFSET != 0 && mapping.references > 1 {
            // The driver waits for the other users of the address.
            client.delay(Duration::from_millis(100));
        }
        if let Some(buffer) = space.unmap(at) {
            self.nvmap.put_gpu(buffer);
        }
    }

    /// G/os/linux/vm.c:461-600: another kind for part of a mapping, which nothing here looks at.
    fn modify_mapping(&mut self, id: SpaceId, args: &Args) -> Result<i64> {
        let wanted: nvgpu_as_mapping_modify_args = args.get();
        let mapping = self.space_mut(id)?.mappings.get(&wanted.map_address).ok_or(Errno::EINVAL)?;
        let (offset, size) = (wanted.buffer_offset, wanted.buffer_size);
        let is_inside = size <= mapping.size && offset <= mapping.size - size;
        // Nothing is compressed here, so the other kind is taken.
        if offset % PAGE != 0 || size % PAGE != 0 || !is_inside || wanted.incompr_kind == -1 {
            return Err(Errno::EINVAL);
        }
        Ok(0)
    }

    fn map_batch(&mut self, client: &dyn Client, id: SpaceId, args: &Args) -> Result<i64> {
        let batch: nvgpu_as_map_buffer_batch_args = args.get();
        if batch.num_unmaps > BATCH_LIMIT || batch.num_maps > BATCH_LIMIT {
            return Err(Errno::EINVAL);
        }
        for index in 0..u64::from(batch.num_unmaps) {
            let size = size_of::<nvgpu_as_unmap_buffer_args>() as u64;
            let at = batch.unmaps.wrapping_add(index * size);
            let unmap: nvgpu_as_unmap_buffer_args = args::read(client, at)?;
            self.unmap_buffer(client, id, unmap.offset);
        }
        for index in 0..u64::from(batch.num_maps) {
            let size = size_of::<nvgpu_as_map_buffer_ex_args>() as u64;
            let at = batch.maps.wrapping_add(index * size);
            let mut map: nvgpu_as_map_buffer_ex_args = args::read(client, at)?;
            // The driver keeps the addresses to itself.
            self.map_buffer(client, id, &mut map)?;
        }
        Ok(0)
    }

    fn va_regions(&mut self, client: &dyn Client, id: SpaceId, args: &mut Args) -> Result<i64> {
        let mut wanted: nvgpu_as_get_va_regions_args = args.get();
        let space = self.spaces.get(&id).ok_or(Errno::EINVAL)?;
        let size = size_of::<nvgpu_as_va_region>();
        let (start, end) = (space.user.start(), space.user.end());
        let region = nvgpu_as_va_region {
            offset: start,
            page_size: PAGE as u32,
            reserved: 0,
            pages: (end - start) / PAGE,
        };
        if wanted.buf_size as usize >= size {
            args::write(client, wanted.buf_addr, as_bytes(&region))?;
        }
        wanted.buf_size = size as u32;
        args.put(&wanted);
        Ok(0)
    }
}

/// G/common/mm/as.c:60-140, common/mm/vm.c:726.
fn check_bounds(wanted: &nvgpu_alloc_as_args) -> Result<()> {
    // A power of two would have to be offered, and Orin offers none.
    if wanted.big_page_size != 0 {
        return Err(Errno::EINVAL);
    }
    for bound in [wanted.va_range_start, wanted.va_range_end] {
        if bound == 0 || bound % PDE != 0 {
            return Err(Errno::EINVAL);
        }
    }
    if wanted.va_range_start >= wanted.va_range_end || wanted.va_range_split != 0 {
        return Err(Errno::EINVAL);
    }
    let aperture = wanted.va_range_end.checked_add(KERNEL_WINDOW);
    if aperture.is_none_or(|end| end > APERTURE) {
        return Err(Errno::ENOMEM);
    }
    Ok(())
}

/// Runs a handler on a struct and stores what it made of it.
fn args_updated<T: PlainRecord>(
    args: &mut Args,
    handler: impl FnOnce(&mut T) -> Result<()>,
) -> Result<i64> {
    let mut value = args.get();
    handler(&mut value)?;
    args.put(&value);
    Ok(0)
}

/// The size in whole pages; a size that has no such is the largest that has.
pub(super) fn page_align(size: u64) -> u64 {
    size.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX - PAGE + 1)
}
