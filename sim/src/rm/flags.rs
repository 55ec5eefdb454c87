//! Bits of what programs ask for about memory (`nvos.h`), the same in every driver.

/// A field of a word: how far up it is, and its mask.
pub(super) type Field = (u32, u32);

/// What a field of a word has.
pub(super) fn bits(word: u32, (shift, mask): Field) -> u32 {
    word >> shift & mask
}

/// The same, to be written.
pub(super) fn put(word: &mut u32, (shift, mask): Field, value: u32) {
    *word = *word & !(mask << shift) | value << shift;
}

/// NVOS32_ATTR: where memory is, what its pages are and whether they are in one piece.
pub(super) mod attr {
    use super::Field;

    pub(in crate::rm) const LOCATION: Field = (25, 3);
    pub(in crate::rm) const IN_GPU: u32 = 0;
    pub(in crate::rm) const IN_SYSTEM: u32 = 1;
    pub(in crate::rm) const PAGE_SIZE: Field = (23, 3);
    pub(in crate::rm) const SMALL: u32 = 1;
    pub(in crate::rm) const BIG: u32 = 2;
    pub(in crate::rm) const HUGE: u32 = 3;
    pub(in crate::rm) const PHYSICALITY: Field = (27, 3);
    pub(in crate::rm) const NONCONTIGUOUS: u32 = 1;
    pub(in crate::rm) const CONTIGUOUS: u32 = 2;
}

/// NVOS32_ATTR2.
pub(super) mod attr2 {
    use super::Field;

    pub(in crate::rm) const HUGE_SIZE: Field = (20, 3);
    pub(in crate::rm) const HUGE_2MB: u32 = 1;
    pub(in crate::rm) const HUGE_512MB: u32 = 2;
    pub(in crate::rm) const CACHEABLE: Field = (2, 3);
    pub(in crate::rm) const CACHED: u32 = 1;
    pub(in crate::rm) const UNCACHED: u32 = 2;
}

/// NVOS32_ALLOC_FLAGS.
pub(super) mod alloc {
    pub(in crate::rm) const FIXED_ADDRESS: u32 = 0x0000_0010;
    pub(in crate::rm) const ALIGNMENT_HINT: u32 = 0x0000_0080;
    pub(in crate::rm) const ALIGNMENT_FORCE: u32 = 0x0000_0100;
    pub(in crate::rm) const HANDLE_PROVIDED: u32 = 0x0000_4000;
    pub(in crate::rm) const USE_BEGIN_END: u32 = 0x0002_0000;
    /// No memory, but a range of addresses.
    pub(in crate::rm) const VIRTUAL: u32 = 0x0008_0000;
}

/// NVOS02_FLAGS, of NV_ESC_RM_ALLOC_MEMORY: the location is zero for the system's memory, and a mapping of zero is
/// made at once.
pub(super) mod old {
    use super::Field;

    pub(in crate::rm) const LOCATION: Field = (8, 0xf);
    pub(in crate::rm) const ALLOC: Field = (16, 3);
    pub(in crate::rm) const ALLOC_NONE: u32 = 1;
    pub(in crate::rm) const MAPPING: Field = (30, 3);
}

/// NVOS33_FLAGS, of NV_ESC_RM_MAP_MEMORY: access has three values.
pub(super) mod map {
    use super::Field;

    pub(in crate::rm) const ACCESS: Field = (0, 3);
    pub(in crate::rm) const PERSISTENT: Field = (4, 1);
    pub(in crate::rm) const SKIP_SIZE_CHECK: Field = (8, 1);
}

/// NVOS46_FLAGS, of NV_ESC_RM_MAP_MEMORY_DMA.
pub(super) mod dma {
    use super::Field;

    pub(in crate::rm) const ACCESS: Field = (0, 3);
    pub(in crate::rm) const READ_ONLY: u32 = 1;
    pub(in crate::rm) const PAGE_SIZE: Field = (8, 0xf);
    pub(in crate::rm) const SMALL: u32 = 1;
    pub(in crate::rm) const BIG: u32 = 2;
    pub(in crate::rm) const BOTH: u32 = 3;
    pub(in crate::rm) const HUGE: u32 = 4;
    pub(in crate::rm) const OFFSET_FIXED: Field = (15, 1);
    pub(in crate::rm) const P2P: Field = (20, 3);
    /// A peer that is no part of the same device.
    pub(in crate::rm) const P2P_NOSLI: u32 = 2;
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use nvabi_pipeline::lock;

    use super::*;

    const FLAGS: [(&str, u32); 24] = [
        ("NVOS32_ATTR_PAGE_SIZE_4KB", attr::SMALL),
        ("NVOS32_ATTR_PAGE_SIZE_BIG", attr::BIG),
        ("NVOS32_ATTR_PAGE_SIZE_HUGE", attr::HUGE),
        ("NVOS32_ATTR2_PAGE_SIZE_HUGE_2MB", attr2::HUGE_2MB),
        ("NVOS32_ATTR2_PAGE_SIZE_HUGE_512MB", attr2::HUGE_512MB),
        ("NVOS46_FLAGS_PAGE_SIZE_4KB", dma::SMALL),
        ("NVOS46_FLAGS_PAGE_SIZE_BIG", dma::BIG),
        ("NVOS46_FLAGS_PAGE_SIZE_BOTH", dma::BOTH),
        ("NVOS46_FLAGS_PAGE_SIZE_HUGE", dma::HUGE),
        ("NVOS32_ATTR_LOCATION_VIDMEM", attr::IN_GPU),
        ("NVOS32_ATTR_LOCATION_PCI", attr::IN_SYSTEM),
        ("NVOS32_ATTR_PHYSICALITY_NONCONTIGUOUS", attr::NONCONTIGUOUS),
        ("NVOS32_ATTR_PHYSICALITY_CONTIGUOUS", attr::CONTIGUOUS),
        ("NVOS32_ATTR2_GPU_CACHEABLE_YES", attr2::CACHED),
        ("NVOS32_ATTR2_GPU_CACHEABLE_NO", attr2::UNCACHED),
        ("NVOS32_ALLOC_FLAGS_FIXED_ADDRESS_ALLOCATE", alloc::FIXED_ADDRESS),
        ("NVOS32_ALLOC_FLAGS_ALIGNMENT_HINT", alloc::ALIGNMENT_HINT),
        ("NVOS32_ALLOC_FLAGS_ALIGNMENT_FORCE", alloc::ALIGNMENT_FORCE),
        ("NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED", alloc::HANDLE_PROVIDED),
        ("NVOS32_ALLOC_FLAGS_USE_BEGIN_END", alloc::USE_BEGIN_END),
        ("NVOS32_ALLOC_FLAGS_VIRTUAL", alloc::VIRTUAL),
        ("NVOS02_FLAGS_ALLOC_NONE", old::ALLOC_NONE),
        ("NVOS46_FLAGS_ACCESS_READ_ONLY", dma::READ_ONLY),
        ("NVOS46_FLAGS_P2P_ENABLE_NOSLI", dma::P2P_NOSLI),
    ];

    const FIELDS: [(&str, Field); 15] = [
        ("NVOS32_ATTR_LOCATION", attr::LOCATION),
        ("NVOS32_ATTR_PAGE_SIZE", attr::PAGE_SIZE),
        ("NVOS32_ATTR_PHYSICALITY", attr::PHYSICALITY),
        ("NVOS32_ATTR2_PAGE_SIZE_HUGE", attr2::HUGE_SIZE),
        ("NVOS32_ATTR2_GPU_CACHEABLE", attr2::CACHEABLE),
        ("NVOS02_FLAGS_LOCATION", old::LOCATION),
        ("NVOS02_FLAGS_ALLOC", old::ALLOC),
        ("NVOS02_FLAGS_MAPPING", old::MAPPING),
        ("NVOS33_FLAGS_ACCESS", map::ACCESS),
        ("NVOS33_FLAGS_PERSISTENT", map::PERSISTENT),
        ("NVOS33_FLAGS_SKIP_SIZE_CHECK", map::SKIP_SIZE_CHECK),
        ("NVOS46_FLAGS_ACCESS", dma::ACCESS),
        ("NVOS46_FLAGS_PAGE_SIZE", dma::PAGE_SIZE),
        ("NVOS46_FLAGS_DMA_OFFSET_FIXED", dma::OFFSET_FIXED),
        ("NVOS46_FLAGS_P2P_ENABLE", dma::P2P),
    ];

    #[test]
    fn the_driver_has_the_same() {
        let specs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../abi-specs");
        let (lock, _) = lock::read(&lock::folder(&specs, "")).unwrap();
        let tags: Vec<_> = lock.tags.iter().map(|tag| &tag.tag).collect();
        for tag in [tags[0], tags[tags.len() / 2], tags[tags.len() - 1]] {
            let headers = lock.facts(tag).unwrap().surfaces.remove("rm").unwrap();
            for (name, value) in FLAGS {
                assert_eq!(headers.constants[name].value, value.into(), "{tag} {name}");
            }
            for (name, (shift, mask)) in FIELDS {
                let range = &headers.bit_ranges[name];
                let own = (i64::from(shift + mask.count_ones() - 1), shift.into());
                assert_eq!((range.high, range.low), own, "{tag} {name}");
            }
        }
    }
}
