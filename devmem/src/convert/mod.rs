//! Lists of formats and modifiers as others keep them: DRM's property `IN_FORMATS`, the tables of
//! Wayland's linux-dmabuf, and Vulkan's lists.
//!
//! In the middle is a list of [`FormatModifier`]; [`sets`] makes capability sets of it.

pub mod in_formats;
pub mod linux_dmabuf;
pub mod vulkan;

use super::capability::{Capability, CapabilitySet, MODIFIER_INVALID};
use super::constraint::Constraint;
use super::usage::Fourcc;

/// A format in one layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FormatModifier {
    /// The format.
    pub format: Fourcc,
    /// The DRM format modifier; `DRM_FORMAT_MOD_INVALID` is whichever the driver chooses.
    pub modifier: u64,
}

/// A set for each modifier that the list has for a format, all under the same constraints. `owner`
/// tells the device whose implicit layouts `DRM_FORMAT_MOD_INVALID` stands for.
pub fn sets(
    list: &[FormatModifier],
    format: Fourcc,
    owner: u64,
    constraints: &[Constraint],
) -> Vec<CapabilitySet> {
    let capability = |modifier| match modifier {
        MODIFIER_INVALID => Capability::implicit(owner),
        explicit => Capability::modifier(explicit),
    };
    let of_format = list.iter().filter(|pair| pair.format == format);
    of_format.map(|pair| CapabilitySet::new(constraints, [capability(pair.modifier)])).collect()
}

/// A format in each layout of the sets. A set that says nothing of a layout, or has a vendor's own,
/// is left out.
pub fn list(format: Fourcc, sets: &[CapabilitySet]) -> Vec<FormatModifier> {
    let modifiers = sets.iter().filter_map(CapabilitySet::modifier);
    modifiers.map(|modifier| FormatModifier { format, modifier }).collect()
}
