//! What memory can be like: capabilities, which are compared and never understood.

use std::fmt;
use std::sync::Arc;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::constraint::Constraint;
use super::modifier;

/// Vendor of what is common to all, as the C library numbers them; others are PCI's numbers.
pub const VENDOR_BASE: u32 = 0;

/// Vendor of DRM format modifiers, which PCI has no number for ("DRM").
pub const VENDOR_DRM: u32 = 0x004d_5244;

/// `DRM_FORMAT_MOD_LINEAR`.
pub const MODIFIER_LINEAR: u64 = 0;

/// `DRM_FORMAT_MOD_INVALID`: which modifier it is, only the driver knows.
pub const MODIFIER_INVALID: u64 = 0x00ff_ffff_ffff_ffff;

/// One property that memory can have, such as a tiling. Two are the same when vendor, name and
/// payload are; whether they are required plays no part in that.
///
/// In JSON, what is a DRM format modifier and not required is written as that, and read either way: `"LINEAR"`,
/// `"I915_Y_TILED"`, `"NVIDIA_BLOCK_LINEAR_2D(0, 1, 2, 6, 4)"`, `"0x0400000000000001"`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(from = "Written")]
pub struct Capability {
    /// Whose it is.
    pub vendor: u32,
    /// Which of the vendor's.
    pub name: u16,
    /// Whether a set without it is of no use.
    pub required: bool,
    /// What the vendor says about it, in words of 4 bytes; padding in it is zero.
    pub payload: Vec<u32>,
}

/// A capability as people write it.
struct Written(Capability);

impl Serialize for Capability {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let named =
            |modifier: &u64| *modifier != MODIFIER_INVALID && *self == Self::modifier(*modifier);
        match self.as_modifier().filter(named) {
            Some(modifier) => to.serialize_str(&modifier::name(modifier)),
            None => {
                let Self { vendor, name, required, payload } = self.clone();
                Numbers { vendor, name, required, payload }.serialize(to)
            }
        }
    }
}

/// A capability by its numbers.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Numbers {
    vendor: u32,
    name: u16,
    #[serde(default)]
    required: bool,
    #[serde(default)]
    payload: Vec<u32>,
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Written;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a DRM format modifier, or an object with vendor and name")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Written, E> {
                let modifier = modifier::number(text).map_err(E::custom)?;
                owned(Capability::modifier(modifier))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Written, A::Error> {
                let numbers = MapAccessDeserializer::new(map);
                let Numbers { vendor, name, required, payload } = Numbers::deserialize(numbers)?;
                owned(Capability { vendor, name, required, payload })
            }
        }

        from.deserialize_any(Either)
    }
}

/// What is read is not an implicit modifier of nobody's.
fn owned<E: serde::de::Error>(read: Capability) -> Result<Written, E> {
    match read.matches(&Capability::modifier(MODIFIER_INVALID)) {
        true => Err(E::custom(format!(
            "`INVALID` does not say whose layout it is: an implicit modifier is \
             {{\"vendor\": {VENDOR_DRM}, \"name\": {}, \"payload\": [LOW, HIGH]}}, with the number of its device",
            Capability::IMPLICIT
        ))),
        false => Ok(Written(read)),
    }
}

impl From<Written> for Capability {
    fn from(written: Written) -> Self {
        written.0
    }
}

impl Capability {
    pub(super) const PITCH_LINEAR: u16 = 0;
    pub(super) const EXPLICIT: u16 = 1;
    pub(super) const IMPLICIT: u16 = 2;

    /// A capability of a vendor, not required.
    pub const fn new(vendor: u32, name: u16, payload: Vec<u32>) -> Self {
        Self { vendor, name, required: false, payload }
    }

    /// Rows one behind the other.
    pub const fn pitch_linear() -> Self {
        Self::new(VENDOR_BASE, Self::PITCH_LINEAR, Vec::new())
    }

    /// An explicit DRM format modifier. `DRM_FORMAT_MOD_LINEAR` is [`Self::pitch_linear`].
    pub fn modifier(modifier: u64) -> Self {
        match modifier {
            MODIFIER_LINEAR => Self::pitch_linear(),
            _ => Self::new(VENDOR_DRM, Self::EXPLICIT, words(modifier)),
        }
    }

    /// An implicit DRM format modifier: a layout that the driver of one device keeps to itself.
    /// `owner` tells devices apart, so that those of two never match.
    pub fn implicit(owner: u64) -> Self {
        Self::new(VENDOR_DRM, Self::IMPLICIT, words(owner))
    }

    /// A capability of a vendor whose payload is bytes; what is missing to whole words is zero.
    pub fn opaque(vendor: u32, name: u16, bytes: &[u8]) -> Self {
        let word = |chunk: &[u8]| {
            let mut word = [0; 4];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            u32::from_le_bytes(word)
        };
        Self::new(vendor, name, bytes.chunks(4).map(word).collect())
    }

    /// The same, required.
    pub fn required(self) -> Self {
        Self { required: true, ..self }
    }

    /// Whether both are one property.
    #[inline]
    pub fn matches(&self, other: &Self) -> bool {
        self.vendor == other.vendor && self.name == other.name && self.payload == other.payload
    }

    /// Whether it is [`Self::pitch_linear`].
    pub fn is_pitch_linear(&self) -> bool {
        self.matches(&Self::pitch_linear())
    }

    /// The DRM format modifier that it is: `DRM_FORMAT_MOD_LINEAR` for pitch-linear, and
    /// `DRM_FORMAT_MOD_INVALID` for an implicit one.
    pub fn as_modifier(&self) -> Option<u64> {
        match (self.vendor, self.name, self.payload.as_slice()) {
            (VENDOR_BASE, Self::PITCH_LINEAR, []) => Some(MODIFIER_LINEAR),
            (VENDOR_DRM, Self::EXPLICIT, [low, high]) => {
                Some(u64::from(*low) | u64::from(*high) << 32)
            }
            (VENDOR_DRM, Self::IMPLICIT, [_, _]) => Some(MODIFIER_INVALID),
            _ => None,
        }
    }
}

fn words(value: u64) -> Vec<u32> {
    vec![value as u32, (value >> 32) as u32]
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_modifier() {
            Some(MODIFIER_LINEAR) => f.write_str("pitch-linear")?,
            Some(MODIFIER_INVALID) => f.write_str("implicit-modifier")?,
            Some(modifier) => write!(f, "modifier {}", modifier::name(modifier))?,
            None => {
                write!(f, "{:#x}:{}", self.vendor, self.name)?;
                let words: Vec<String> = self.payload.iter().map(u32::to_string).collect();
                if !words.is_empty() {
                    write!(f, "({})", words.join(", "))?;
                }
            }
        }
        if self.required { f.write_str(" (required)") } else { Ok(()) }
    }
}

/// One way in which a device can use memory: all of the capabilities, under all of the constraints.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapabilitySet {
    /// What the memory must keep to.
    #[serde(default)]
    pub constraints: Vec<Constraint>,
    /// What the memory is like; sets that were derived from one share them.
    pub capabilities: Arc<[Capability]>,
}

impl CapabilitySet {
    /// A set of these.
    pub fn new(
        constraints: impl Into<Vec<Constraint>>,
        capabilities: impl Into<Arc<[Capability]>>,
    ) -> Self {
        Self { constraints: constraints.into(), capabilities: capabilities.into() }
    }

    /// The value of a constraint; `None` where the set has none of that name.
    pub fn constraint(&self, name: super::ConstraintName) -> Option<u64> {
        self.constraints.iter().find(|constraint| constraint.name == name).map(|found| found.value)
    }
}

impl fmt::Display for CapabilitySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let capabilities: Vec<String> =
            self.capabilities.iter().map(Capability::to_string).collect();
        f.write_str(&capabilities.join(" + "))?;
        if !self.constraints.is_empty() {
            let constraints: Vec<String> =
                self.constraints.iter().map(Constraint::to_string).collect();
            write!(f, " [{}]", constraints.join(", "))?;
        }
        Ok(())
    }
}
