//! Addresses of GPUs: spaces of them, ranges that programs have for themselves, and what is mapped there
//! (`src/nvidia/src/kernel/gpu/mem_mgr/vaspace_api.c`, `src/nvidia/src/kernel/mem_mgr/virtual_mem.c`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::Driver;
use super::alloc::{NewObject, SYSTEM_MEMORY, VIDEO_MEMORY, VIRTUAL_MEMORY};
use super::failed::{Failed, Result};
use super::flags::{alloc, attr, bits, dma};
use super::frontend::Caller;
use super::interface::Params;
use super::memory::{Buffer, Of};
use super::pages::{self, Pages, PagesOf};
use super::residence::{Access, Residence, Touch};
use super::server::{Client, ObjectKind};
use crate::Status;
use crate::gpu::{self as engine, Bytes, Found, KernelSpace, Mappings, shorter};

/// Addresses have 49 bits, and the first pages are nobody's.
const FIRST: u64 = 0x1_0000;
const END: u64 = 1 << 49;

/// NVOS32_FUNCTION_ALLOC_SIZE.
const ALLOC_SIZE: u32 = 2;

/// A space of a GPU's addresses, and what is mapped in it.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) gpu: usize,
    base: u64,
    /// Behind the last.
    end: u64,
    mapped: Mutex<BTreeMap<u64, Mapped>>,
    /// What programs have for themselves, by where it begins.
    reserved: Mutex<BTreeMap<u64, Weak<Addresses>>>,
    traffic: Arc<Traffic>,
}

/// Bytes of the system's memory that went over the bus and were not counted yet.
#[derive(Debug, Default)]
struct Traffic {
    read: AtomicU64,
    written: AtomicU64,
}

/// Memory at some addresses.
#[derive(Debug, Clone)]
struct Mapped {
    end: u64,
    /// Behind what nobody else is given: that may be more.
    taken: u64,
    buffer: Held,
    offset: u64,
    is_writable: bool,
    /// The address that a program knows it by: that of its first byte, where it begins within a page.
    known: u64,
    /// Bytes of its pages, of which none is unmapped in part; 1 of what UVM maps.
    page: u64,
}

/// Memory that a mapping keeps, as UVM's do, or that is gone when nobody else has it, or has the addresses that it was
/// mapped by.
#[derive(Debug, Clone)]
pub(super) enum Held {
    Kept(Arc<Buffer>),
    /// UVM's own memory, whose pages come to who touches them.
    Managed(Arc<Buffer>, Arc<Residence>),
    Seen(Weak<Buffer>, Weak<Addresses>),
    /// None: reads give zeros, and writes are lost.
    Sparse,
    /// None: where kernels reach the scheduler of launches.
    Reflected,
}

impl Held {
    fn buffer(&self) -> Option<Arc<Buffer>> {
        match self {
            Self::Kept(buffer) | Self::Managed(buffer, _) => Some(buffer.clone()),
            Self::Seen(buffer, by) if by.strong_count() > 0 => buffer.upgrade(),
            Self::Seen(..) | Self::Sparse | Self::Reflected => None,
        }
    }

    /// Whether something is there.
    fn is_live(&self) -> bool {
        matches!(self, Self::Sparse | Self::Reflected) || self.buffer().is_some()
    }

    fn residence(&self) -> Option<&Arc<Residence>> {
        match self {
            Self::Managed(_, residence) => Some(residence),
            Self::Kept(_) | Self::Seen(..) | Self::Sparse | Self::Reflected => None,
        }
    }

    fn is_by(&self, addresses: &Arc<Addresses>) -> bool {
        matches!(self, Self::Seen(_, by) if by.as_ptr() == Arc::as_ptr(addresses))
    }
}

/// A part of a space, which a program has for itself or may map in.
#[derive(Debug, Clone)]
pub(super) struct Addresses {
    pub(super) space: Arc<Space>,
    base: u64,
    /// Behind the last.
    end: u64,
}

/// What of memory is mapped: whole pages.
struct Mapping {
    /// Bytes of one, and what the first begins at a multiple of.
    page: u64,
    alignment: u64,
    /// In the first one, those before the byte that was asked for.
    before: u64,
    /// All, and those that nobody else is given: what is for pages of both sizes takes whole ones of the larger.
    bytes: u64,
    taken: u64,
}

impl Mapping {
    fn of(buffer: &Buffer, (offset, length): (u64, u64), flags: u32) -> Result<Self> {
        let (page, alignment) = pages::mapped(buffer.page, flags)?;
        let before = offset % page;
        let whole =
            |of| before.checked_add(length).and_then(|all| all.checked_next_multiple_of(of));
        let bytes = whole(page).ok_or(Status::INVALID_BASE)?;
        let taken = whole(alignment).ok_or(Status::INVALID_BASE)?;
        Ok(Self { page, alignment, before, bytes, taken })
    }
}

impl Addresses {
    /// A part of a space that is a program's own from now on.
    fn reserved(space: Arc<Space>, base: u64, end: u64) -> Arc<Self> {
        let own = Arc::new(Self { space, base, end });
        let mut reserved = own.space.reserved();
        reserved.retain(|_, other| other.strong_count() > 0);
        reserved.insert(base, Arc::downgrade(&own));
        drop(reserved);
        own
    }

    /// Where they go in addresses that a program has for itself: as it says.
    fn own_place(&self, at: u64, pages: &Mapping) -> Result<u64> {
        let base = at / pages.page * pages.page;
        let is_there = (self.base..self.end).contains(&at) && base >= self.base;
        let is_exact = at == base || at - base == pages.before;
        if !is_there || !is_exact {
            return Err(Status::INVALID_OFFSET.into());
        }
        let end = base.checked_add(pages.bytes).filter(|end| *end <= self.end);
        let end = end.ok_or(Status::INVALID_ARGUMENT)?;
        // `_gvaspaceMappingInsert`: it finds what is mapped where they begin before it inserts what overlaps.
        if !self.space.is_unmapped(base, base + 1) {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let is_free = self.space.is_unmapped(base, end);
        is_free.then_some(base).ok_or(Status::INSERT_DUPLICATE_NAME.into())
    }

    /// Where there is room.
    fn any_place(&self, pages: &Mapping) -> Result<u64> {
        if pages.taken > self.end - self.base {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let place = self.space.free_place((self.base, self.end), pages.taken, pages.alignment);
        place.ok_or(Status::NO_MEMORY.into())
    }
}

impl PartialEq for Space {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Space {}

impl PartialEq for Addresses {
    fn eq(&self, other: &Self) -> bool {
        self.space == other.space && (self.base, self.end) == (other.base, other.end)
    }
}

impl Eq for Addresses {}

impl Space {
    fn new(gpu: usize, base: u64, end: u64) -> Self {
        let (mapped, reserved, traffic) = Default::default();
        Self { gpu, base, end, mapped, reserved, traffic }
    }

    /// The one that a device has without asking.
    pub(super) fn of_device(gpu: usize) -> Self {
        Self::new(gpu, FIRST, END)
    }

    /// Bytes of the system's memory that its GPU read and wrote since this was asked for.
    pub(super) fn take_traffic(&self) -> [u64; 2] {
        [&self.traffic.read, &self.traffic.written].map(|bytes| bytes.swap(0, Ordering::Relaxed))
    }

    fn mapped(&self) -> MutexGuard<'_, BTreeMap<u64, Mapped>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether so many addresses from one on are its own.
    pub(super) fn has(&self, base: u64, length: u64) -> bool {
        base.checked_add(length).is_some_and(|end| base >= self.base && end <= self.end)
    }

    /// Maps memory, in place of all that was there before.
    pub(super) fn map(&self, base: u64, length: u64, buffer: Held, offset: u64, is_writable: bool) {
        let end = base.saturating_add(length);
        let (known, page, taken) = (base, 1, end);
        self.map_known(base, Mapped { end, taken, buffer, offset, is_writable, known, page });
    }

    fn map_known(&self, base: u64, mapped: Mapped) {
        self.unmap(base, mapped.end - base);
        self.mapped().insert(base, mapped);
    }

    /// Unmaps what is mapped at some addresses: of what is larger the rest stays.
    pub(super) fn unmap(&self, base: u64, length: u64) {
        self.unmap_those(base, length, |_| true);
    }

    /// Unmaps what UVM maps here of another GPU's own memory.
    pub(super) fn unmap_kept_of(&self, owner: usize) {
        let is_meant = |held: &Held| match held {
            Held::Kept(buffer) => buffer.of == Of::Video && buffer.gpu == owner,
            _ => false,
        };
        self.unmap_those(self.base, self.end - self.base, is_meant);
    }

    /// Whole pages of each mapping.
    fn unmap_those(&self, first: u64, length: u64, is_meant: impl Fn(&Held) -> bool) {
        let mut mapped = self.mapped();
        let last = first.saturating_add(length);
        // What begins before may reach into it; nothing overlaps, so that is one at most.
        let before = mapped.range(..first).next_back().filter(|(_, of)| of.end > first);
        let inside = mapped.range(first..last);
        let meant = before.into_iter().chain(inside).filter(|(_, of)| is_meant(&of.buffer));
        for at in meant.map(|(at, _)| *at).collect::<Vec<_>>() {
            let Some(all) = mapped.remove(&at) else { continue };
            let base = first / all.page * all.page;
            if at < base {
                mapped.insert(at, Mapped { end: base, taken: base, ..all.clone() });
            }
            let end = last.checked_next_multiple_of(all.page).filter(|end| *end < all.end);
            if let Some(end) = end {
                let offset = all.offset + (end - at);
                mapped.insert(end, Mapped { offset, known: end, ..all });
            }
        }
    }

    /// Where pages go that are mapped at an address: at the beginning of a page.
    fn fixed_place(&self, at: u64, pages: &Mapping) -> Result<u64> {
        let base = at / pages.page * pages.page;
        if !self.has(base, pages.taken) {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let place = self.free_place((base, base + pages.taken), pages.taken, pages.alignment);
        place.ok_or(Status::NO_MEMORY.into())
    }

    /// Whether nothing is mapped at some addresses. What nobody has any more is nothing.
    fn is_unmapped(&self, base: u64, end: u64) -> bool {
        last_mapped(&self.mapped(), base, end).is_none()
    }

    /// The lowest place within some addresses at which so many are neither mapped nor anybody's.
    fn free_place(&self, (first, end): (u64, u64), bytes: u64, alignment: u64) -> Option<u64> {
        let (mapped, reserved) = (self.mapped(), self.reserved());
        let mut first = first;
        loop {
            let base = first.checked_next_multiple_of(alignment)?;
            let last = base.checked_add(bytes).filter(|last| *last <= end)?;
            let taken = last_mapped(&mapped, base, last).max(last_reserved(&reserved, base, last));
            match taken {
                Some(behind) => first = behind,
                None => return Some(base),
            }
        }
    }

    fn reserved(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<Addresses>>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mapping that is known by an address, from where to where, if it was made by some addresses.
    fn mapped_by(&self, addresses: &Arc<Addresses>, known: u64) -> Option<(u64, u64)> {
        let mapped = self.mapped();
        let (base, of) = around(&mapped, known)?;
        (of.known == known && of.buffer.is_by(addresses)).then_some((*base, of.end))
    }

    /// Why an access is refused, as NV_PFAULT_FAULT_TYPE. Tables of pages are there where memory is mapped, for two
    /// mebibytes each.
    pub(super) fn refusal(&self, address: u64) -> u32 {
        const PDE: u32 = 0;
        const PTE: u32 = 2;
        const VA_LIMIT_VIOLATION: u32 = 3;
        const RO_VIOLATION: u32 = 6;
        const TABLE: u64 = 2 << 20;
        let table = address / TABLE * TABLE;
        let mapped = self.mapped();
        if address >= self.end {
            VA_LIMIT_VIOLATION
        } else if around(&mapped, address).is_some_and(|(_, of)| of.buffer.is_live()) {
            RO_VIOLATION
        } else if mapped.range(..table + TABLE).next_back().is_some_and(|(_, of)| of.end > table) {
            PTE
        } else {
            PDE
        }
    }

    /// The memory at an address.
    fn found_at(&self, address: u64) -> Option<Found<View>> {
        let mapped = self.mapped();
        let (base, of) = around(&mapped, address)?;
        let managed = of.buffer.residence().map(|residence| ManagedView {
            residence: residence.clone(),
            gpu: self.gpu,
            range: (*base, of.end),
            // Wraps where the mapping begins in the middle of its memory.
            before: base.wrapping_sub(of.offset),
        });
        let buffer = match &of.buffer {
            Held::Sparse => None,
            held => Some(held.buffer()?),
        };
        Some(Found {
            bytes: View { traffic: self.traffic_of(buffer.as_deref()), buffer, managed },
            offset: of.offset + (address - base),
            length: of.end - address,
            is_writable: of.is_writable,
        })
    }

    fn traffic_of(&self, buffer: Option<&Buffer>) -> Option<Arc<Traffic>> {
        buffer.filter(|buffer| buffer.of == Of::System).map(|_| self.traffic.clone())
    }
}

/// Where the last mapping ends that has some of these addresses. What nobody has any more is none.
fn last_mapped(mapped: &BTreeMap<u64, Mapped>, base: u64, end: u64) -> Option<u64> {
    let mut below = mapped.range(..end).rev().take_while(|(_, of)| of.taken > base);
    below.find(|(_, of)| of.buffer.is_live()).map(|(_, of)| of.taken)
}

/// The same, of what programs have for themselves.
fn last_reserved(reserved: &BTreeMap<u64, Weak<Addresses>>, base: u64, end: u64) -> Option<u64> {
    // Those that are dead may hide one that begins before them.
    let last = reserved.range(..end).rev().find_map(|(_, of)| of.upgrade());
    last.map(|of| of.end).filter(|end| *end > base)
}

/// The mapping that an address is in, and where it begins.
fn around(mapped: &BTreeMap<u64, Mapped>, address: u64) -> Option<(&u64, &Mapped)> {
    mapped.range(..=address).next_back().filter(|(_, of)| of.end > address)
}

/// Memory as a GPU sees it.
pub(super) struct View {
    /// `None` where nothing is behind the addresses.
    buffer: Option<Arc<Buffer>>,
    managed: Option<ManagedView>,
    /// Where its bytes go over the bus.
    traffic: Option<Arc<Traffic>>,
}

/// Whose pages it has, where UVM brings them to who touches them.
struct ManagedView {
    residence: Arc<Residence>,
    gpu: usize,
    /// The addresses of the mapping.
    range: (u64, u64),
    /// The address of the memory's first byte.
    before: u64,
}

impl View {
    fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        if let Some(traffic) = &self.traffic {
            traffic.read.fetch_add(into.len() as u64, Ordering::Relaxed);
        }
        match &self.buffer {
            Some(buffer) => buffer.read(offset, into),
            None => {
                into.fill(0);
                true
            }
        }
    }

    fn write(&self, offset: u64, from: &[u8]) -> bool {
        if let Some(traffic) = &self.traffic {
            traffic.written.fetch_add(from.len() as u64, Ordering::Relaxed);
        }
        self.buffer.as_ref().is_none_or(|buffer| buffer.write(offset, from))
    }

    /// Before bytes of it are read or written.
    fn touch(&self, offset: u64, length: usize, access: Access, is_of_kernel: bool) {
        let Some(ManagedView { residence, gpu, range, before }) = &self.managed else { return };
        let base = before.wrapping_add(offset);
        let (gpu, length) = (*gpu, length as u64);
        residence.touch(Touch { gpu, base, length, access, is_of_kernel }, *range);
    }
}

/// The space as a channel works with it.
pub(super) struct Seen<'a>(pub(super) &'a Arc<Space>);

impl engine::Space for Seen<'_> {
    fn read(&self, at: u64, into: &mut [u8]) -> Option<usize> {
        let Found { bytes, offset, length, .. } = self.0.found_at(at)?;
        let length = shorter(length, into.len());
        bytes.touch(offset, length, Access::Read, false);
        bytes.read(offset, &mut into[..length]).then_some(length)
    }

    fn write(&mut self, at: u64, from: &[u8]) -> Option<usize> {
        let Found { bytes, offset, length, is_writable } = self.0.found_at(at)?;
        let length = shorter(length, from.len());
        if is_writable {
            bytes.touch(offset, length, Access::Write, false);
        }
        (is_writable && bytes.write(offset, &from[..length])).then_some(length)
    }

    fn for_kernels(&self) -> Option<Arc<dyn KernelSpace>> {
        Some(Arc::new(engine::Seen::new(self.0.clone())))
    }
}

impl Mappings for Arc<Space> {
    type Bytes = View;

    fn range(&self, address: u64) -> Option<(u64, u64)> {
        let mapped = self.mapped();
        let (base, of) = around(&mapped, address)?;
        of.buffer.is_live().then_some((*base, of.end))
    }

    fn is_reflected(&self, address: u64) -> bool {
        let mapped = self.mapped();
        around(&mapped, address).is_some_and(|(_, of)| matches!(of.buffer, Held::Reflected))
    }

    fn at(&self, address: u64) -> Option<Found<View>> {
        self.found_at(address)
    }
}

impl Bytes for View {
    fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        self.touch(offset, into.len(), Access::Read, true);
        Self::read(self, offset, into)
    }

    fn write(&self, offset: u64, from: &[u8]) -> bool {
        self.touch(offset, from.len(), Access::Write, true);
        Self::write(self, offset, from)
    }

    fn compare_exchange(&self, offset: u64, width: usize, old: u64, new: u64) -> Option<u64> {
        self.touch(offset, width, Access::Atomic, true);
        self.buffer.as_ref().map_or(Some(0), |it| it.compare_exchange(offset, width, old, new))
    }
}

impl Client {
    /// The space of a handle below a device; zero is the one that the device has without asking.
    pub(super) fn space(&mut self, device: u32, handle: u32) -> Result<Arc<Space>> {
        if handle != 0 {
            return match &self.object(handle)?.kind {
                ObjectKind::Space(space) => Ok(space.clone()),
                _ => Err(Status::INVALID_OBJECT_HANDLE.into()),
            };
        }
        match self.object(device)?.kind {
            ObjectKind::Device(gpu) => Ok(self.space_of_device(device, gpu)),
            _ => Err(Status::INVALID_OBJECT_PARENT.into()),
        }
    }

    /// The addresses that memory can be mapped at, of a handle.
    fn addresses(&self, handle: u32) -> Result<&Arc<Addresses>> {
        match &self.object(handle)?.kind {
            ObjectKind::Range(addresses) | ObjectKind::Window(addresses) => Ok(addresses),
            _ => Err(Status::INVALID_OBJECT_HANDLE.into()),
        }
    }
}

impl Driver {
    /// An object of FERMI_VASPACE_A: `vaspaceapiConstruct_IMPL`.
    pub(super) fn address_space(
        &self,
        above: &ObjectKind,
        params: &mut Params,
    ) -> Result<ObjectKind> {
        let gpu = above.gpu().ok_or(Status::INVALID_OBJECT_PARENT)?;
        let (base, size) = (params.get("vaBase")?, params.get("vaSize")?);
        let last = self.last_address_of(gpu);
        // The first pages are nobody's, wherever it is said to begin and so to end.
        let end = if size == 0 { Some(last) } else { base.checked_add(size) };
        let base = if base == 0 { FIRST } else { base };
        let end = end.filter(|end| base < *end && *end <= last);
        let end = end.ok_or(Status::INVALID_ARGUMENT)?;
        params.set("vaBase", base)?;
        params.set("vaSize", end - base)?;
        Ok(ObjectKind::Space(Arc::new(Space::new(gpu, base, end))))
    }

    /// Behind the last address that a card has: 49 bits, and 57 of Hopper and since Blackwell. The space that a device has
    /// without asking keeps to 49 here.
    fn last_address_of(&self, gpu: usize) -> u64 {
        match self.number_of(gpu, "identity.architecture") {
            Some(0x180 | 0x1a0..) => 1 << 57,
            _ => END,
        }
    }

    /// An object of NV01_MEMORY_VIRTUAL: addresses that memory may be mapped at, which are nobody's own.
    pub(super) fn window(
        &mut self,
        client: u32,
        device: u32,
        params: &mut Params,
    ) -> Result<ObjectKind> {
        let client = self.server.find_mut(client)?;
        let space = client.space(device, params.word("hVASpace")?)?;
        let base = params.get("offset")?.max(space.base);
        let end = match params.get("limit")? {
            0 => space.end,
            limit => limit.saturating_add(1).min(space.end),
        };
        if base >= end {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        params.set("limit", end - 1)?;
        Ok(ObjectKind::Window(Arc::new(Addresses { space, base, end })))
    }

    /// An object of NV50_MEMORY_VIRTUAL: `virtmemConstruct_IMPL`.
    pub(super) fn address_range(
        &mut self,
        client: u32,
        device: u32,
        params: &mut Params,
    ) -> Result<ObjectKind> {
        let flags = params.word("flags")?;
        if flags & alloc::VIRTUAL == 0 || params.get("size")? == 0 {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let wanted = params.word("hVASpace")?;
        let space = self.server.find_mut(client)?.space(device, wanted)?;
        let pages = Pages::of(PagesOf::Addresses, params, self.pages_there(space.gpu))?;
        let Pages { size, alignment, .. } = pages;
        let (mut first, mut end) = (space.base, space.end);
        let no_room = Status::INSUFFICIENT_RESOURCES;
        if flags & alloc::FIXED_ADDRESS != 0 {
            first = params.get("offset")?;
            if !space.has(first, size) {
                return Err(no_room.into());
            }
            end = first + size;
        } else if flags & alloc::USE_BEGIN_END != 0 {
            first = first.max(params.get("rangeLo")?);
            end = end.min(params.get("rangeHi")?.saturating_add(1));
        }
        let base = space.free_place((first, end), size, alignment).ok_or(no_room)?;
        pages.tell(params)?;
        params.set("offset", base)?;
        params.set("size", size)?;
        params.set("alignment", alignment)?;
        params.set("limit", size - 1)?;
        Ok(ObjectKind::Range(Addresses::reserved(space, base, base + size)))
    }

    /// NV_ESC_RM_MAP_MEMORY_DMA: `virtmemMapTo_IMPL`, `dmaAllocMapping_GM107`.
    pub(super) fn map_memory_dma(&mut self, caller: Caller<'_>, args: &mut Params) -> Result {
        let client = self.server.client(args.word("hClient")?, caller.owner)?;
        let dma = args.word("hDma")?;
        let is_own = matches!(client.object(dma)?.kind, ObjectKind::Range(_));
        let addresses = client.addresses(dma)?.clone();
        let buffer = client.memory(args.word("hMemory")?)?.clone();
        let (offset, length) = (args.get("offset")?, args.get("length")?);
        let flags = args.word("flags")?;
        if length == 0 || offset.checked_add(length).is_none_or(|end| end > buffer.size) {
            return Err(Status::INVALID_BASE.into());
        }
        if bits(flags, dma::P2P) == dma::P2P_NOSLI {
            if buffer.of != Of::Video {
                return Err(Status::INVALID_ARGUMENT.into());
            }
            if !self.has_peer(addresses.space.gpu, buffer.gpu) {
                return Err(Status::INVALID_STATE.into());
            }
        }
        let pages = Mapping::of(&buffer, (offset, length), flags)?;
        let wanted = args.get("dmaOffset")?;
        let is_fixed = bits(flags, dma::OFFSET_FIXED) != 0;
        let base = match (is_own, is_fixed) {
            (true, true) => addresses.own_place(wanted, &pages)?,
            (true, false) => addresses.own_place(addresses.base.wrapping_add(wanted), &pages)?,
            (false, true) => addresses.space.fixed_place(wanted, &pages)?,
            (false, false) => addresses.any_place(&pages)?,
        };
        let is_writable = bits(flags, dma::ACCESS) != dma::READ_ONLY;
        let buffer = Held::Seen(Arc::downgrade(&buffer), Arc::downgrade(&addresses));
        let (end, known) = (base + pages.bytes, base + pages.before);
        // What is a program's own is given to nobody else anyway.
        let taken = if is_own { end } else { base + pages.taken };
        let (offset, page) = (offset - pages.before, pages.page);
        let mapped = Mapped { end, taken, buffer, offset, is_writable, known, page };
        addresses.space.map_known(base, mapped);
        Ok(args.set("dmaOffset", known)?)
    }

    /// NV_ESC_RM_UNMAP_MEMORY_DMA: `serverInterUnmapInternal`. Without a size, which newer drivers have, it is the whole
    /// mapping that begins there; with one it is all that was mapped within by the same object.
    pub(super) fn unmap_memory_dma(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let client = self.server.client(args.word("hClient")?, caller.owner)?;
        let addresses = client.addresses(args.word("hDma")?)?;
        let (space, known) = (&addresses.space, args.get("dmaOffset")?);
        let (base, end) = match if args.has("size") { args.get("size")? } else { 0 } {
            0 => space.mapped_by(addresses, known).ok_or(Status::OBJECT_NOT_FOUND)?,
            size => (known, known.checked_add(size).ok_or(Status::INVALID_ARGUMENT)?),
        };
        space.unmap_those(base, end - base, |held| held.is_by(addresses));
        Ok(())
    }

    /// NV_ESC_RM_VID_HEAP_CONTROL: the older way to allocate (`rmapi_deprecated_vidheapctrl.c`).
    pub(super) fn vid_heap_control(&mut self, caller: Caller<'_>, args: &mut Params) -> Result {
        let function = args.word("function")?;
        if function != ALLOC_SIZE {
            let what = format!("function {function} of NV_ESC_RM_VID_HEAP_CONTROL");
            return Err(Failed::NotSimulated(Status::NOT_SUPPORTED, what));
        }
        let record = "NV_MEMORY_ALLOCATION_PARAMS";
        let mut params = Params::of(&self.interface, record, Vec::new());
        let flags = args.word("data.AllocSize.flags")?;
        for name in ["owner", "type", "flags", "size", "alignment", "offset", "attr", "attr2"] {
            params.set(name, args.get(&format!("data.AllocSize.{name}"))?)?;
        }
        params.set("hVASpace", args.word("hVASpace")?)?;
        if flags & alloc::USE_BEGIN_END != 0 {
            params.set("rangeLo", args.get("data.AllocSize.rangeBegin")?)?;
            params.set("rangeHi", args.get("data.AllocSize.rangeEnd")?)?;
        }
        let class = match bits(args.word("data.AllocSize.attr")?, attr::LOCATION) {
            _ if flags & alloc::VIRTUAL != 0 => VIRTUAL_MEMORY,
            attr::IN_GPU => VIDEO_MEMORY,
            _ => SYSTEM_MEMORY,
        };
        let wanted = match flags & alloc::HANDLE_PROVIDED {
            0 => 0,
            _ => args.word("data.AllocSize.hMemory")?,
        };
        let (client, parent) = (args.word("hRoot")?, args.word("hObjectParent")?);
        let place = NewObject { client, parent, wanted };
        let name = self.interface.class(class).map_or(String::new(), |known| known.name.clone());
        let made = self.alloc_object(caller, class, &name, place, Some(&mut params))?;
        args.set("data.AllocSize.hMemory", made)?;
        for name in ["size", "offset", "attr", "attr2", "limit", "address"] {
            args.set(&format!("data.AllocSize.{name}"), params.get(name)?)?;
        }
        args.set("free", 0_u32)?;
        Ok(args.set("total", 0_u32)?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Addresses, Held, Space};

    #[test]
    fn the_first_place_that_is_free() {
        let space = Arc::new(Space::new(0, 0, 0x1000));
        let own = Addresses::reserved(space.clone(), 0x40, 0x50);
        space.map(0x10, 0x10, Held::Sparse, 0, true);
        space.map(0x48, 8, Held::Sparse, 0, true);
        for (first, size, alignment, expected) in [
            (0, 0x10, 1, Some(0)),
            (0, 0x11, 1, Some(0x20)),
            (0x8, 0x20, 0x10, Some(0x20)),
            (0x8, 0x21, 0x10, Some(0x50)),
            (0x18, 1, 1, Some(0x20)),
            (0x60, 1, 0x100, Some(0x100)),
            (0, 0xfb1, 1, None),
            (0, 0xfb0, 1, Some(0x50)),
            (0x8, u64::MAX, 1, None),
            (0x8, 1, 1 << 63, None),
        ] {
            let found = space.free_place((first, 0x1000), size, alignment);
            assert_eq!(found, expected, "{first:#x} {size:#x} {alignment:#x}");
        }
        // What is mapped in it stays, and what nobody has any more is free.
        drop(own);
        assert_eq!(space.free_place((0x40, 0x1000), 8, 1), Some(0x40));
        assert_eq!(space.free_place((0x40, 0x1000), 9, 1), Some(0x50));
    }
}
