//! What NVIDIA's GPUs do with images, whichever driver speaks to them: by the formats of their 3D classes
//! (NVIDIA/open-gpu-doc, `classes/3d`), which are the same from Maxwell on.

use crate::modifier::BlockLinear;
use crate::{
    Capability, CapabilitySet, Constraint, ConstraintName, Fourcc, Hint, Image, Operation, format,
};

/// Formats of colour targets: `SET_COLOR_TARGET_FORMAT_V` (`clb097.h`).
const RENDERED: [&[u8; 4]; 19] = [
    b"R8  ", b"GR88", b"R16 ", b"GR32", b"RG16", b"XR15", b"AR15", b"XR24", b"AR24", b"XB24",
    b"AB24", b"XR30", b"AR30", b"XB30", b"AB30", b"XB48", b"AB48", b"XB4H", b"AB4H",
];

/// Those of textures besides: `COMPONENTS_SIZES` (`clb097tex.h`), whose components may come in any order; and
/// formats whose planes are such textures.
const SAMPLED: [&[u8; 4]; 34] = [
    b"RG88", b"RG32", b"BG16", b"XB15", b"AB15", b"RX15", b"RA15", b"BX15", b"BA15", b"XR12",
    b"AR12", b"XB12", b"AB12", b"RX12", b"RA12", b"BX12", b"BA12", b"RX24", b"RA24", b"BX24",
    b"BA24", b"XR48", b"AR48", b"XR4H", b"AR4H", b"NV12", b"NV21", b"NV16", b"NV61", b"NV24",
    b"NV42", b"P010", b"P012", b"P016",
];

/// The operations of a GPU.
pub(super) const OPERATIONS: [Operation; 3] =
    [Operation::Texture, Operation::Render, Operation::Copy];

/// The largest width and height of an image that is sampled or drawn, as NVIDIA's Vulkan reports it
/// (`maxImageDimension2D`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Largest(u32);

impl Largest {
    pub(super) const BEFORE_PASCAL: Self = Self(1 << 14);
    pub(super) const SINCE_PASCAL: Self = Self(1 << 15);

    /// Engines that copy move bytes: of those the size does not matter.
    fn of(self, operation: Operation) -> u32 {
        if operation == Operation::Copy { u32::MAX } else { self.0 }
    }

    /// Whether a GPU does this with such an image.
    pub(super) fn takes(self, image: &Image, operation: Operation) -> bool {
        let is_in = |list: &[&[u8; 4]]| list.iter().any(|code| Fourcc::new(code) == image.format);
        let knows = match operation {
            Operation::Copy => format::planes(image.format).is_some(),
            Operation::Render => is_in(&RENDERED),
            Operation::Texture => is_in(&RENDERED) || is_in(&SAMPLED),
            _ => false,
        };
        knows && image.width.max(image.height) <= self.of(operation)
    }

    pub(super) fn hint(self, format: Fourcc, operation: Operation) -> Hint {
        let most = self.of(operation);
        Hint { format, max_width: most, max_height: most }
    }
}

/// What rows in system memory have to be like: of a texture the header has the pitch and the address in units of 32
/// bytes (`TEXHEAD_PITCH_PITCH_BITS20TO5`, `TEXHEAD_PITCH_ADDRESS_BITS31TO5` of `clb097tex.h`). What colour targets
/// need no header says; none needs more than the display (`NV_EVO_PITCH_ALIGNMENT`).
pub(super) fn rows(operation: Operation) -> Vec<Constraint> {
    let aligned = |bytes, most: Option<u64>| {
        let names = [ConstraintName::PITCH_ALIGNMENT, ConstraintName::OFFSET_ALIGNMENT];
        let most = most.map(|most| Constraint::new(ConstraintName::MAX_PITCH, most));
        names.map(|name| Constraint::new(name, bytes)).into_iter().chain(most).collect()
    };
    match operation {
        Operation::Texture => aligned(32, Some(0x1f_ffe0)),
        Operation::Render => aligned(256, None),
        _ => Vec::new(),
    }
}

/// How much less than rows a set costs: engines that draw are fastest in high blocks.
pub(super) fn bonus(set: &CapabilitySet) -> u64 {
    let modifiers = set.capabilities.iter().filter_map(Capability::as_modifier);
    let height = modifiers.filter_map(BlockLinear::log2_height).max();
    height.map_or(0, |height| 1 + u64::from(height))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_those_of_the_engines() {
        let gpu = Largest::SINCE_PASCAL;
        let takes =
            |format, operation| gpu.takes(&Image::new(64, 64, Fourcc::new(format)), operation);
        let of = |format| OPERATIONS.map(|operation| takes(format, operation));
        assert_eq!(of(b"XR24"), [true, true, true]);
        assert_eq!(of(b"NV12"), [true, false, true], "planes are sampled, and none is drawn");
        assert_eq!(of(b"RX24"), [true, false, true], "components in any order");
        for format in [b"RG24", b"YUYV", b"C8  ", b"D8  ", b"YU12", b"R10 "] {
            assert_eq!(of(format), [false, false, true], "{}", Fourcc::new(format));
        }
        assert_eq!(of(b"????"), [false; 3]);
        assert!(!takes(b"XR24", Operation::Scanout));
        let known =
            |list: &[&[u8; 4]]| list.iter().all(|code| format::planes(Fourcc::new(code)).is_some());
        assert!(known(&RENDERED) && known(&SAMPLED));
    }

    #[test]
    fn images_are_as_large_as_the_generation_takes() {
        for (gpu, side) in [(Largest::BEFORE_PASCAL, 16384), (Largest::SINCE_PASCAL, 32768)] {
            let takes = |width, height, operation| {
                gpu.takes(&Image::new(width, height, Fourcc::new(b"XR24")), operation)
            };
            for operation in [Operation::Texture, Operation::Render] {
                assert!(takes(side, side, operation));
                assert!(!takes(side + 1, 1, operation) && !takes(1, side + 1, operation));
                assert_eq!(gpu.hint(Fourcc::new(b"XR24"), operation).max_width, side);
            }
            assert!(takes(side + 1, 1, Operation::Copy));
        }
    }
}
