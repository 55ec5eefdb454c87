//! Addresses of GPUs: spaces of them, and ranges that programs have for themselves
//! (`src/nvidia/src/kernel/gpu/mem_mgr/vaspace_api.c`, `src/nvidia/src/kernel/mem_mgr/virtual_mem.c`).

use super::Driver;
use super::alloc::{NewObject, SYSTEM_MEMORY, VIDEO_MEMORY, VIRTUAL_MEMORY};
use super::failed::{Failed, Result};
use super::frontend::Caller;
use super::interface::Params;
use super::memory::{IN_GPU, LOCATION, VIRTUAL, bits};
use super::server::ObjectKind;
use crate::Status;

/// Addresses have 49 bits, and the first pages are nobody's.
const FIRST: u64 = 0x1_0000;
const END: u64 = 1 << 49;
/// What ranges begin at where a program does not say more.
const ALIGNMENT: u64 = 0x1_0000;

/// NVOS32_ALLOC_FLAGS_ALIGNMENT_FORCE, _FIXED_ADDRESS_ALLOCATE, _USE_BEGIN_END, _MEMORY_HANDLE_PROVIDED.
const ALIGNMENT_FORCE: u32 = 0x0000_0040;
const FIXED_ADDRESS: u32 = 0x0000_8000;
const USE_BEGIN_END: u32 = 0x0200_0000;
const HANDLE_PROVIDED: u32 = 0x0000_4000;
/// NVOS32_FUNCTION_ALLOC_SIZE.
const ALLOC_SIZE: u32 = 2;

/// Some addresses of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Addresses {
    pub(super) gpu: usize,
    /// Of a range: the handle of its space, or zero for that of its device.
    pub(super) space: u32,
    base: u64,
    /// Behind the last.
    end: u64,
}

impl Driver {
    /// An object of FERMI_VASPACE_A: `vaspaceapiConstruct_IMPL`.
    pub(super) fn address_space(
        above: &ObjectKind,
        params: Option<&mut Params>,
    ) -> Result<ObjectKind> {
        let params = params.ok_or(Status::INVALID_ARGUMENT)?;
        let gpu = above.gpu().ok_or(Status::INVALID_OBJECT_PARENT)?;
        let (base, size) = (params.get("vaBase")?, params.get("vaSize")?);
        let base = if base == 0 { FIRST } else { base };
        let end = if size == 0 { Some(END) } else { base.checked_add(size) };
        let end = end.filter(|end| base < *end).ok_or(Status::INVALID_ARGUMENT)?;
        params.set("vaBase", base)?;
        params.set("vaSize", end - base)?;
        Ok(ObjectKind::Space(Addresses { gpu, space: 0, base, end }))
    }

    /// An object of NV50_MEMORY_VIRTUAL: `virtmemConstruct_IMPL`.
    pub(super) fn address_range(
        &mut self,
        client: u32,
        above: &ObjectKind,
        params: Option<&mut Params>,
    ) -> Result<ObjectKind> {
        let params = params.ok_or(Status::INVALID_ARGUMENT)?;
        let gpu = above.gpu().ok_or(Status::INVALID_OBJECT_PARENT)?;
        let (flags, size) = (params.word("flags")?, params.get("size")?);
        if flags & VIRTUAL == 0 || size == 0 {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let space = params.word("hVASpace")?;
        let client = self.server.find(client)?;
        let (mut first, mut end) = match space {
            0 => (FIRST, END),
            handle => match &client.object(handle)?.kind {
                ObjectKind::Space(all) => (all.base, all.end),
                _ => return Err(Status::INVALID_OBJECT_HANDLE.into()),
            },
        };
        let alignment = match flags & ALIGNMENT_FORCE {
            0 => ALIGNMENT,
            _ => params.get("alignment")?.max(1),
        };
        if flags & FIXED_ADDRESS != 0 {
            first = params.get("offset")?;
            end = first.checked_add(size).filter(|it| *it <= end).ok_or(Status::NO_MEMORY)?;
        } else if flags & USE_BEGIN_END != 0 {
            first = first.max(params.get("rangeLo")?);
            end = end.min(params.get("rangeHi")?.saturating_add(1));
        }
        let taken = client.objects().filter_map(|object| match object.kind {
            ObjectKind::Range(range) if range.gpu == gpu && range.space == space => {
                Some((range.base, range.end))
            }
            _ => None,
        });
        let is_fixed = flags & FIXED_ADDRESS != 0;
        let alignment = if is_fixed { 1 } else { alignment };
        let base = free_place(taken.collect(), first, size, alignment);
        let base = base.filter(|base| base.checked_add(size).is_some_and(|it| it <= end));
        let base = base.filter(|base| !is_fixed || *base == first).ok_or(Status::NO_MEMORY)?;
        params.set("offset", base)?;
        params.set("limit", size - 1)?;
        Ok(ObjectKind::Range(Addresses { gpu, space, base, end: base + size }))
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
        if flags & USE_BEGIN_END != 0 {
            params.set("rangeLo", args.get("data.AllocSize.rangeBegin")?)?;
            params.set("rangeHi", args.get("data.AllocSize.rangeEnd")?)?;
        }
        let class = match bits(args.word("data.AllocSize.attr")?, LOCATION) {
            _ if flags & VIRTUAL != 0 => VIRTUAL_MEMORY,
            IN_GPU => VIDEO_MEMORY,
            _ => SYSTEM_MEMORY,
        };
        let wanted = match flags & HANDLE_PROVIDED {
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

/// The lowest address that is aligned and from which so many are nobody's.
fn free_place(mut taken: Vec<(u64, u64)>, first: u64, size: u64, alignment: u64) -> Option<u64> {
    taken.sort_unstable();
    let mut base = first.checked_next_multiple_of(alignment)?;
    for (begin, end) in taken {
        if end > base && begin < base.checked_add(size)? {
            base = end.checked_next_multiple_of(alignment)?;
        }
    }
    Some(base)
}

#[cfg(test)]
mod tests {
    use super::free_place;

    #[test]
    fn the_first_place_that_is_free() {
        let taken = vec![(0x40, 0x50), (0x10, 0x20)];
        for (first, size, alignment, expected) in [
            (0, 0x10, 1, 0),
            (0, 0x11, 1, 0x20),
            (0x8, 0x20, 0x10, 0x20),
            (0x8, 0x21, 0x10, 0x50),
            (0x18, 1, 1, 0x20),
            (0x60, 1, 0x100, 0x100),
        ] {
            let found = free_place(taken.clone(), first, size, alignment);
            assert_eq!(found, Some(expected), "{first:#x} {size:#x} {alignment:#x}");
        }
        assert_eq!(free_place(vec![(0, u64::MAX)], 0, 2, 0x10), None);
    }
}
