//! Vulkan's lists of `VK_EXT_image_drm_format_modifier`, and its formats.

use super::FormatModifier;
use crate::usage::Fourcc;

/// What Vulkan says of a modifier of one format (`VkDrmFormatModifierPropertiesEXT`): the same
/// bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct ModifierProperties {
    /// The modifier.
    pub modifier: u64,
    /// Planes of memory, which are those of the format and those of compression.
    pub planes: u32,
    /// What images of it can be used for (`VkFormatFeatureFlags`).
    pub features: u32,
}

/// A format with each modifier that can be used for all of these features.
pub fn read(format: Fourcc, list: &[ModifierProperties], features: u32) -> Vec<FormatModifier> {
    let usable = list.iter().filter(|properties| properties.features & features == features);
    usable.map(|properties| FormatModifier { format, modifier: properties.modifier }).collect()
}

/// The modifiers of a format, as `VkImageDrmFormatModifierListCreateInfoEXT` takes them: each once,
/// and no implicit one, which Vulkan does not know.
pub fn write(format: Fourcc, list: &[FormatModifier]) -> Vec<u64> {
    let mut modifiers = Vec::new();
    for pair in list.iter().filter(|pair| pair.format == format) {
        let implicit = pair.modifier == crate::MODIFIER_INVALID;
        if !implicit && !modifiers.contains(&pair.modifier) {
            modifiers.push(pair.modifier);
        }
    }
    modifiers
}

/// Formats of Vulkan (`VkFormat`) and DRM whose bytes are the same. Where DRM has a format with
/// alpha and one without, the one with alpha is first.
const FORMATS: [(u32, &[u8; 4]); 27] = [
    (4, b"RG16"),
    (5, b"BG16"),
    (9, b"R8  "),
    (16, b"GR88"),
    (23, b"BG24"),
    (30, b"RG24"),
    (37, b"AB24"),
    (37, b"XB24"),
    (44, b"AR24"),
    (44, b"XR24"),
    (58, b"AR30"),
    (58, b"XR30"),
    (64, b"AB30"),
    (64, b"XB30"),
    (70, b"R16 "),
    (77, b"GR32"),
    (91, b"AB48"),
    (97, b"AB4H"),
    (97, b"XB4H"),
    (1_000_156_000, b"YUYV"),
    (1_000_156_001, b"UYVY"),
    (1_000_156_002, b"YU12"),
    (1_000_156_003, b"NV12"),
    (1_000_156_004, b"YU16"),
    (1_000_156_005, b"NV16"),
    (1_000_156_006, b"YU24"),
    (1_000_156_013, b"P010"),
];

/// The format of DRM; `None` when there is no such one here.
pub fn fourcc(format: u32) -> Option<Fourcc> {
    let found = FORMATS.iter().find(|(vulkan, _)| *vulkan == format);
    found.map(|(_, code)| Fourcc::new(code))
}

/// The format of Vulkan (`VkFormat`); `None` when there is no such one here.
pub fn format(fourcc: Fourcc) -> Option<u32> {
    let found = FORMATS.iter().find(|(_, code)| Fourcc::new(code) == fourcc);
    found.map(|(vulkan, _)| *vulkan)
}
