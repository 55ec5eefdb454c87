//! What the memory of an allocator is like, to compare with what a description asks for.

use serde::{Deserialize, Serialize};

use super::buffer::Description;
use super::constraint::{Constraint, ConstraintName, coherency, placement};
use super::driver::DeviceInfo;
use super::error::{Error, Result};

/// What all memory of one allocator is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Which heap it is in: one bit of [`placement`], or 0 where that is not known.
    pub placement: u64,
    /// How the CPU sees it: one bit of [`coherency`], or 0 where that is not known.
    pub coherency: u64,
    /// So many bytes from its start are in one piece, whatever its size is.
    pub contiguous: u64,
    /// Size of the pages that it is made of, in bytes.
    pub page: u64,
    /// No piece is larger than so many bytes.
    pub max_size: u64,
}

impl Memory {
    /// Pages of 4 KiB from anywhere, cached.
    pub const PAGES: Self = Self {
        placement: placement::SYSTEM,
        coherency: coherency::CACHED,
        contiguous: 4096,
        page: 4096,
        max_size: u64::MAX,
    };

    /// What a driver makes as it sees fit, of pages at least.
    pub const UNKNOWN: Self = Self { placement: 0, coherency: 0, ..Self::PAGES };

    /// Whether it is known what it is like.
    pub fn is_known(&self) -> bool {
        self.placement != 0 && self.coherency != 0
    }

    /// Whether memory of this kind can be as described.
    ///
    /// # Errors
    ///
    /// The first constraint that it does not keep to, with what it has instead.
    pub fn serves(&self, description: &Description) -> Result<()> {
        self.serves_of(None, description)
    }

    /// The same of memory that this device makes.
    ///
    /// # Errors
    ///
    /// As [`Self::serves`].
    pub fn serves_of(&self, maker: Option<&DeviceInfo>, description: &Description) -> Result<()> {
        let size = description.layout.size;
        if size > self.max_size {
            return Err(refused(ConstraintName::MAX_SIZE, size, self.max_size));
        }
        let mut asked = description.set.constraints.iter();
        asked.try_for_each(|asked| self.keeps(*asked, size, maker))
    }

    /// How far the device reaches (`ADDRESS_BITS`) is for its import to say: the kernel maps or copies.
    fn keeps(&self, asked: Constraint, size: u64, maker: Option<&DeviceInfo>) -> Result<()> {
        let value = asked.value;
        let (kept, has) = match asked.name {
            ConstraintName::CONTIGUOUS => (value == 0 || size <= self.contiguous, self.contiguous),
            ConstraintName::PLACEMENT => (value & self.placement != 0, self.placement),
            ConstraintName::COHERENCY => (value & self.coherency != 0, self.coherency),
            ConstraintName::PAGE_SIZE | ConstraintName::ADDRESS_ALIGNMENT => {
                (value == 0 || self.page % value == 0, self.page)
            }
            // Who owns a node, the kernel is asked for: only where that matters.
            ConstraintName::MADE_BY => (maker.and_then(DeviceInfo::owner) == Some(value), 0),
            // What a vendor or a later version asks of memory, nobody here can keep to.
            name if !name.is_known() => {
                return Err(Error::unsupported(format!("{asked} asked for, and not known here")));
            }
            _ => return Ok(()),
        };
        if kept {
            return Ok(());
        }
        match is_of_memory(asked.name) && !self.is_known() {
            true => {
                Err(Error::unsupported(format!("{asked} asked for, and not known of this memory")))
            }
            false => Err(refused(asked.name, value, has)),
        }
    }
}

/// Whether a constraint is of what memory is like, so that a driver which makes it as it sees fit cannot promise it.
pub(crate) fn is_of_memory(name: ConstraintName) -> bool {
    matches!(
        name,
        ConstraintName::CONTIGUOUS
            | ConstraintName::PLACEMENT
            | ConstraintName::COHERENCY
            | ConstraintName::PAGE_SIZE
            | ConstraintName::ADDRESS_ALIGNMENT
    )
}

/// Whether it says which heap memory is in, or how the CPU sees that.
pub(crate) fn is_of_heap(name: ConstraintName) -> bool {
    matches!(name, ConstraintName::PLACEMENT | ConstraintName::COHERENCY)
}

/// Whether devices prove this of memory by taking it: that it is in one piece where one of them was found to need that
/// (`is_whole`), and, where any heap and any caching will do, both where the CPU maps it. No import shows more.
pub(crate) fn is_tried(asked: Constraint, is_whole: bool, is_mapped: bool) -> bool {
    let has = |all: u64| asked.value & all == all;
    match asked.name {
        ConstraintName::CONTIGUOUS => is_whole,
        ConstraintName::PLACEMENT => is_mapped && has(placement::VISIBLE),
        ConstraintName::COHERENCY => is_mapped && has(coherency::ANY),
        _ => false,
    }
}

/// `contiguous 1 is asked for, and the memory has 4096` in the words of each name.
fn refused(name: ConstraintName, asked: u64, has: u64) -> Error {
    let (asked, has) = match name {
        ConstraintName::CONTIGUOUS => {
            ("memory in one piece".to_owned(), format!("{has} bytes in one piece"))
        }
        ConstraintName::MADE_BY => {
            (Constraint::new(name, asked).to_string(), "memory of another device".to_owned())
        }
        ConstraintName::MAX_SIZE => (format!("{asked} bytes"), format!("{has} bytes at most")),
        _ => {
            let text = |value| Constraint::new(name, value).to_string();
            (text(asked), text(has))
        }
    };
    Error::unsupported(format!("{asked} asked for, {has} offered"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CapabilitySet, Image, Layout, MODIFIER_LINEAR, Usage};

    fn description(size: u64, name: ConstraintName, value: u64) -> Description {
        Description {
            usage: Usage::new(Image::bytes(1), Vec::new()),
            set: CapabilitySet::new(vec![Constraint::new(name, value)], vec![]),
            layout: Layout { modifier: MODIFIER_LINEAR, planes: Vec::new(), size },
            metadata: Vec::new(),
        }
    }

    fn serves(size: u64, name: ConstraintName, value: u64) -> std::result::Result<(), String> {
        let huge =
            Memory { page: 2 << 20, contiguous: 2 << 20, max_size: 8 << 20, ..Memory::PAGES };
        huge.serves(&description(size, name, value)).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_in_one_page_is_in_one_piece() {
        assert_eq!(serves(2 << 20, ConstraintName::CONTIGUOUS, 1), Ok(()));
        assert_eq!(serves(4 << 20, ConstraintName::CONTIGUOUS, 0), Ok(()));
        assert_eq!(
            serves(4 << 20, ConstraintName::CONTIGUOUS, 1).unwrap_err(),
            "memory in one piece asked for, 2097152 bytes in one piece offered"
        );
    }

    #[test]
    fn a_constraint_that_is_not_kept_is_named() {
        assert_eq!(serves(4096, ConstraintName::ADDRESS_ALIGNMENT, 1 << 16), Ok(()));
        assert_eq!(
            serves(4096, ConstraintName::PAGE_SIZE, 4 << 20).unwrap_err(),
            "page-size 4194304 asked for, page-size 2097152 offered"
        );
        assert_eq!(
            serves(4096, ConstraintName::PLACEMENT, placement::CONTIGUOUS).unwrap_err(),
            "placement contiguous asked for, placement system offered"
        );
        assert_eq!(
            serves(4096, ConstraintName::COHERENCY, coherency::UNCACHED).unwrap_err(),
            "coherency uncached asked for, coherency cached offered"
        );
        assert_eq!(
            serves(9 << 20, ConstraintName::CONTIGUOUS, 0).unwrap_err(),
            "9437184 bytes asked for, 8388608 bytes at most offered"
        );
    }

    #[test]
    fn what_nobody_here_knows_is_not_kept_to() {
        let told = serves(4096, ConstraintName(1234), 5).unwrap_err();
        assert_eq!(told, "0x4d2 5 asked for, and not known here");
    }

    #[test]
    fn what_is_not_known_is_not_promised() {
        let asked = [
            (ConstraintName::CONTIGUOUS, 1),
            (ConstraintName::PLACEMENT, placement::SYSTEM | placement::CONTIGUOUS),
            (ConstraintName::COHERENCY, coherency::CACHED),
            (ConstraintName::PAGE_SIZE, 1 << 16),
            (ConstraintName::ADDRESS_ALIGNMENT, 1 << 16),
        ];
        for (name, value) in asked {
            let refused = Memory::UNKNOWN.serves(&description(8192, name, value)).unwrap_err();
            let told =
                format!("{} asked for, and not known of this memory", Constraint::new(name, value));
            assert_eq!(refused.to_string(), told);
        }
        let pages = [(ConstraintName::CONTIGUOUS, 0), (ConstraintName::ADDRESS_ALIGNMENT, 4096)];
        for (name, value) in pages {
            Memory::UNKNOWN.serves(&description(8192, name, value)).unwrap();
        }
        Memory::UNKNOWN.serves(&description(4096, ConstraintName::CONTIGUOUS, 1)).unwrap();
    }
}
