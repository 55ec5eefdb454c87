//! Pages of memory, and of a GPU's addresses (`memmgrDeterminePageSize_IMPL`, `memmgrAllocDetermineAlignment_GM107`,
//! `gvaspaceApplyDefaultAlignment_IMPL`).

use super::failed::Result;
use super::flags::{alloc, attr, attr2, bits, dma, put};
use super::interface::Params;
use crate::Status;

/// Bytes of each kind of page.
pub(super) const SMALL: u64 = 4 << 10;
pub(super) const BIG: u64 = 64 << 10;
pub(super) const HUGE: u64 = 2 << 20;
pub(super) const LARGEST: u64 = 512 << 20;

/// What pages are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PagesOf {
    System,
    Video,
    Addresses,
}

/// Which pages a card and its driver have beside the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct PagesThere {
    /// Those of 512 MiB: since Ampere (`kgmmuIsPageSize512mbSupported`).
    pub(super) largest: bool,
    /// Large ones of the system's memory: since 575.51.02 (`memmgrLargePageSupported_IMPL`).
    pub(super) large_in_system: bool,
}

/// How an allocation is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pages {
    of: PagesOf,
    /// Bytes of one.
    pub(super) page: u64,
    /// Bytes of all, and what they begin at a multiple of.
    pub(super) size: u64,
    pub(super) alignment: u64,
}

impl Pages {
    /// Those of an allocation.
    pub(super) fn of(of: PagesOf, params: &Params, there: PagesThere) -> Result<Self> {
        let wanted = wanted(params)?;
        let is_there = match wanted {
            Some(LARGEST) if !there.largest => false,
            Some(BIG..) if of == PagesOf::System => there.large_in_system,
            _ => true,
        };
        if !is_there {
            return Err(Status::INVALID_STATE.into());
        }
        let size = params.get("size")?;
        let page = match (of, wanted) {
            (_, Some(page)) => page,
            (PagesOf::System, None) => SMALL,
            (_, None) if size >= HUGE => HUGE,
            (_, None) => BIG,
        };
        let flags = params.word("flags")?;
        let is_forced = flags & alloc::ALIGNMENT_FORCE != 0;
        let asked = match flags & (alloc::ALIGNMENT_HINT | alloc::ALIGNMENT_FORCE) {
            0 => SMALL,
            _ => params.get("alignment")?,
        };
        let fits = asked != 0 && (asked % page == 0 || page % asked == 0);
        if asked != 0 && !fits && is_forced {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let asked = if fits { asked.max(page) } else { page };
        let alignment = match of {
            PagesOf::System => page,
            // No part of the card's memory is smaller, and none begins elsewhere (`pmaAllocatePages`).
            PagesOf::Video if !asked.is_power_of_two() => {
                return Err(Status::INVALID_ARGUMENT.into());
            }
            PagesOf::Video => asked.max(BIG),
            PagesOf::Addresses if is_forced => asked,
            // They are for what may be compressed.
            PagesOf::Addresses => asked.max(BIG),
        };
        let size = size.checked_next_multiple_of(page).ok_or(Status::NO_MEMORY)?;
        Ok(Self { of, page, size, alignment })
    }

    /// Those of memory that no program asked for by its pages.
    pub(super) fn small(size: u64) -> Result<Self> {
        let size = size.checked_next_multiple_of(SMALL).ok_or(Status::NO_MEMORY)?;
        Ok(Self { of: PagesOf::System, page: SMALL, size, alignment: SMALL })
    }

    /// Writes what came of it to the attributes that the program gave.
    pub(super) fn tell(&self, params: &mut Params) -> Result {
        let (mut first, mut second) = (params.word("attr")?, params.word("attr2")?);
        if bits(second, attr2::CACHEABLE) == 0 {
            let is_video = self.of == PagesOf::Video;
            let cached = if is_video { attr2::CACHED } else { attr2::UNCACHED };
            put(&mut second, attr2::CACHEABLE, cached);
        }
        // Of addresses without a wish the page is that of what is mapped.
        if self.of != PagesOf::Addresses || bits(first, attr::PAGE_SIZE) != 0 {
            let (kind, huge) = match self.page {
                SMALL => (attr::SMALL, None),
                BIG => (attr::BIG, None),
                HUGE => (attr::HUGE, Some(attr2::HUGE_2MB)),
                _ => (attr::HUGE, Some(attr2::HUGE_512MB)),
            };
            put(&mut first, attr::PAGE_SIZE, kind);
            if let Some(huge) = huge {
                put(&mut second, attr2::HUGE_SIZE, huge);
            }
        }
        let physicality = match (self.of, bits(first, attr::PHYSICALITY)) {
            (PagesOf::Video | PagesOf::System, attr::NONCONTIGUOUS) => attr::NONCONTIGUOUS,
            (PagesOf::Video | PagesOf::Addresses, _) => attr::CONTIGUOUS,
            (PagesOf::System, attr::CONTIGUOUS) => attr::CONTIGUOUS,
            (PagesOf::System, _) => attr::NONCONTIGUOUS,
        };
        put(&mut first, attr::PHYSICALITY, physicality);
        params.set("attr", first)?;
        Ok(params.set("attr2", second)?)
    }
}

/// The page size that is asked for, if any.
fn wanted(params: &Params) -> Result<Option<u64>> {
    Ok(match bits(params.word("attr")?, attr::PAGE_SIZE) {
        0 => None,
        attr::SMALL => Some(SMALL),
        attr::BIG => Some(BIG),
        _ => match bits(params.word("attr2")?, attr2::HUGE_SIZE) {
            0 | attr2::HUGE_2MB => Some(HUGE),
            attr2::HUGE_512MB => Some(LARGEST),
            _ => return Err(Status::INVALID_STATE.into()),
        },
    })
}

/// The pages by which memory of some pages is mapped, and what their addresses are a multiple of.
pub(super) fn mapped(page: u64, flags: u32) -> Result<(u64, u64)> {
    let wanted = match bits(flags, dma::PAGE_SIZE) {
        0 | dma::BOTH => page,
        dma::SMALL => SMALL,
        dma::BIG => BIG,
        dma::HUGE => HUGE,
        _ => return Err(Status::INVALID_ARGUMENT.into()),
    };
    let page = wanted.min(page);
    // Both small and big ones may be used there later.
    let is_for_both = bits(flags, dma::PAGE_SIZE) == dma::BOTH;
    let alignment = if is_for_both { page.max(BIG) } else { page };
    Ok((page, alignment))
}
