//! DRM format modifiers by name, as `drm_fourcc.h` calls them without `DRM_FORMAT_MOD_`.

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserializer, Serializer};

use super::capability::{MODIFIER_INVALID, MODIFIER_LINEAR};

/// Vendors are in the upper 8 bits.
const VENDOR: u32 = 56;
const INTEL: u64 = 1;
const NVIDIA: u64 = 3;

/// Modifiers that are one number.
const NAMES: [(&str, u64); 7] = [
    ("LINEAR", MODIFIER_LINEAR),
    ("INVALID", MODIFIER_INVALID),
    ("I915_X_TILED", INTEL << VENDOR | 1),
    ("I915_Y_TILED", INTEL << VENDOR | 2),
    ("I915_YF_TILED", INTEL << VENDOR | 3),
    ("I915_4_TILED", INTEL << VENDOR | 9),
    ("NVIDIA_TEGRA_TILED", NVIDIA << VENDOR | 1),
];

/// The parameters of NVIDIA's block-linear modifiers: name, bits, and the lowest bit.
const BLOCK_LINEAR: [(&str, u32, u32); 5] = [
    ("compression", 3, 23),
    ("sector layout", 1, 22),
    ("generation", 2, 20),
    ("page kind", 8, 12),
    ("log2 of the block's height", 4, 0),
];
const BLOCK_LINEAR_2D: &str = "NVIDIA_BLOCK_LINEAR_2D";
/// The modifier whose parameters are all zero.
const BLOCK_LINEAR_0: u64 = NVIDIA << VENDOR | 0x10;

/// How a GPU of NVIDIA's lays images out in blocks, which is the same for all of its images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockLinear {
    /// The order of sectors: 0 on Tegra up to X2, 1 on all others.
    pub sector_layout: u8,
    /// The generation of page kinds, and how high a GOB is: 0 from Fermi to Volta, 2 since Turing.
    pub generation: u8,
    /// The kind of the pages, without compression.
    pub page_kind: u8,
}

impl BlockLinear {
    /// GPUs with generic page kinds: Turing and later, Orin.
    pub const SINCE_TURING: Self = Self { sector_layout: 1, generation: 2, page_kind: 0x06 };
    /// Maxwell to Volta, Xavier.
    pub const BEFORE_TURING: Self = Self { sector_layout: 1, generation: 0, page_kind: 0xfe };
    /// Tegra X1 and X2.
    pub const TEGRA_X1: Self = Self { sector_layout: 0, ..Self::BEFORE_TURING };

    /// The modifier of blocks of 2ʰ GOBs, with `h` from 0 to 5.
    pub fn modifier(self, log2_height: u8) -> u64 {
        BLOCK_LINEAR_0
            | u64::from(self.sector_layout & 1) << 22
            | u64::from(self.generation & 3) << 20
            | u64::from(self.page_kind) << 12
            | u64::from(log2_height & 0xf)
    }

    /// Whether a modifier is of its blocks.
    pub fn has(self, modifier: u64) -> bool {
        Self::log2_height(modifier).is_some_and(|h| self.modifier(h) == modifier)
    }

    /// How many GOBs are in a block, as the power of two; `None` where a modifier has no blocks of NVIDIA's.
    pub fn log2_height(modifier: u64) -> Option<u8> {
        let is_block_linear = modifier >> VENDOR == NVIDIA && modifier & 0x10 != 0;
        (is_block_linear && modifier & 0xf <= 5).then_some((modifier & 0xf) as u8)
    }

    /// The modifiers that suit images of this height, the highest block first: none is higher than the image, but for
    /// the lowest.
    pub fn modifiers(self, height: u32) -> impl Iterator<Item = u64> {
        let gob = if self.generation == 1 { 4 } else { 8 };
        let suits = move |h: &u8| *h == 0 || height > gob << (h - 1);
        (0..=5).rev().filter(suits).map(move |h| self.modifier(h))
    }
}

/// The number of a modifier that is written by name, or as a number.
///
/// # Errors
///
/// What the text is not.
pub fn number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    if let Some(number) = digits {
        return Ok(number);
    }
    if let Some((_, number)) = NAMES.iter().find(|(name, _)| *name == text) {
        return Ok(*number);
    }
    if let Some(arguments) = text.strip_prefix(BLOCK_LINEAR_2D) {
        return block_linear(arguments);
    }
    let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
    Err(format!(
        "`{text}` is no modifier: a number such as 0x300000000606014, {}, or {BLOCK_LINEAR_2D}(c, s, g, k, h)",
        names.join(", ")
    ))
}

/// `(c, s, g, k, h)`, in the order of the macro's parameters.
fn block_linear(arguments: &str) -> Result<u64, String> {
    let listed = arguments.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let values: Vec<&str> = listed.unwrap_or_default().split(',').map(str::trim).collect();
    if values.len() != BLOCK_LINEAR.len() {
        let names = BLOCK_LINEAR.map(|(name, ..)| name).join(", ");
        return Err(format!("{BLOCK_LINEAR_2D} takes five numbers: {names}"));
    }
    values.iter().zip(BLOCK_LINEAR).try_fold(
        BLOCK_LINEAR_0,
        |modifier, (text, (name, bits, at))| {
            let hex = text.strip_prefix("0x").map(|hex| u64::from_str_radix(hex, 16));
            let value = hex.unwrap_or_else(|| text.parse()).ok().filter(|value| value >> bits == 0);
            let value = value.ok_or_else(|| {
                format!("{name} of {BLOCK_LINEAR_2D} has {bits} bits, not `{text}`")
            })?;
            Ok(modifier | value << at)
        },
    )
}

/// The name of a modifier, which [`number`] reads; a number where it has none.
pub fn name(modifier: u64) -> String {
    if let Some((name, _)) = NAMES.iter().find(|(_, number)| *number == modifier) {
        return (*name).to_owned();
    }
    let used = BLOCK_LINEAR.iter().fold(0x10, |used, (_, bits, at)| used | ((1 << bits) - 1) << at);
    let value = modifier & !(0xff << VENDOR);
    if modifier >> VENDOR == NVIDIA && value & 0x10 != 0 && value & !used == 0 {
        let values =
            BLOCK_LINEAR.map(|(_, bits, at)| (value >> at & ((1 << bits) - 1)).to_string());
        return format!("{BLOCK_LINEAR_2D}({})", values.join(", "));
    }
    format!("{modifier:#018x}")
}

/// As people write it: many programs read numbers of JSON with 53 bits.
pub(crate) fn serialize<S: Serializer>(modifier: &u64, to: S) -> Result<S::Ok, S::Error> {
    match to.is_human_readable() {
        true => to.serialize_str(&name(*modifier)),
        false => to.serialize_u64(*modifier),
    }
}

/// A modifier by its name, or its number.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    struct Either;

    impl Visitor<'_> for Either {
        type Value = u64;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("the name of a DRM format modifier, or its number")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
            number(text).map_err(E::custom)
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
            Ok(number)
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
            u64::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
        }
    }

    match from.is_human_readable() {
        true => from.deserialize_any(Either),
        false => from.deserialize_u64(Either),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_one_to_one() {
        for (text, modifier) in [
            ("LINEAR", 0),
            ("INVALID", 0x00ff_ffff_ffff_ffff),
            ("I915_Y_TILED", 0x0100_0000_0000_0002),
            ("NVIDIA_BLOCK_LINEAR_2D(0, 1, 2, 6, 4)", 0x0300_0000_0060_6014),
            ("NVIDIA_BLOCK_LINEAR_2D(1, 1, 0, 254, 5)", 0x0300_0000_00cf_e015),
            ("0x0400000000000001", 0x0400_0000_0000_0001),
        ] {
            assert_eq!(number(text), Ok(modifier), "{text}");
            assert_eq!(name(modifier), text);
        }
        assert_eq!(number("NVIDIA_BLOCK_LINEAR_2D(0,1,2,0x06,4)"), Ok(0x0300_0000_0060_6014));
    }

    #[test]
    fn blocks_are_no_higher_than_an_image_needs() {
        let names = |gpu: BlockLinear, height| {
            gpu.modifiers(height).map(name).map(|name| name[22..].to_owned()).collect::<Vec<_>>()
        };
        let orin = BlockLinear::SINCE_TURING;
        assert_eq!(names(orin, 1), ["(0, 1, 2, 6, 0)"]);
        assert_eq!(names(orin, 8), ["(0, 1, 2, 6, 0)"]);
        assert_eq!(names(orin, 17), ["(0, 1, 2, 6, 2)", "(0, 1, 2, 6, 1)", "(0, 1, 2, 6, 0)"]);
        assert_eq!(names(BlockLinear::BEFORE_TURING, 1080)[0], "(0, 1, 0, 254, 5)");
        assert_eq!(names(BlockLinear::TEGRA_X1, u32::MAX)[5], "(0, 0, 0, 254, 0)");
    }

    #[test]
    fn what_is_no_modifier_is_told() {
        let told = |text| number(text).unwrap_err();
        assert!(told("I915_Z_TILED").starts_with("`I915_Z_TILED` is no modifier: "));
        assert_eq!(
            told("NVIDIA_BLOCK_LINEAR_2D(0, 1)"),
            "NVIDIA_BLOCK_LINEAR_2D takes five numbers: compression, sector layout, generation, page kind, \
             log2 of the block's height"
        );
        assert_eq!(
            told("NVIDIA_BLOCK_LINEAR_2D(0, 2, 2, 6, 4)"),
            "sector layout of NVIDIA_BLOCK_LINEAR_2D has 1 bits, not `2`"
        );
        assert!(told("NVIDIA_BLOCK_LINEAR_2D(0, 1, 2, x, 4)").contains("page kind"));
    }

    #[test]
    fn layouts_name_their_modifiers() {
        for (modifier, text) in [
            (MODIFIER_LINEAR, "LINEAR"),
            (MODIFIER_INVALID, "INVALID"),
            (BlockLinear::SINCE_TURING.modifier(4), "NVIDIA_BLOCK_LINEAR_2D(0, 1, 2, 6, 4)"),
            (8 << VENDOR | 1, "0x0800000000000001"),
        ] {
            let layout = crate::Layout::open(modifier);
            let written = serde_json::to_value(&layout).unwrap();
            assert_eq!(written["modifier"], text);
            assert_eq!(serde_json::from_value::<crate::Layout>(written).unwrap(), layout);
            let number = serde_json::json!({"modifier": modifier, "planes": [], "size": 0});
            assert_eq!(serde_json::from_value::<crate::Layout>(number).unwrap(), layout);
        }
    }
}
