//! Sets and descriptions to the structs of the header, and back.

use std::ffi::c_void;

use super::abi::{
    Pointer, RawCapability, RawConstraint, RawDetail, RawImage, RawMemory, RawPlane, RawSet,
    RawSink,
};
use crate::buffer::Description;
use crate::capability::{Capability, CapabilitySet};
use crate::constraint::{Constraint, ConstraintName};
use crate::detail::{self, Detail};
use crate::layout::{Layout, Plane};
use crate::usage::{Fourcc, Image, Usage};

/// What a list may hold at most: more is not a list, but a mistake.
const MOST: u32 = 1 << 16;

/// The structs of a set, which borrow from it.
pub(super) struct LentSet<'a> {
    constraints: Vec<RawConstraint>,
    capabilities: Vec<RawCapability>,
    _from: &'a CapabilitySet,
}

impl<'a> LentSet<'a> {
    /// `None` when a payload or a list is longer than the interface can say.
    pub(super) fn new(set: &'a CapabilitySet) -> Option<Self> {
        let constraint = |constraint: &Constraint| RawConstraint {
            name: constraint.name.0,
            reserved: 0,
            value: constraint.value,
        };
        let capability = |capability: &Capability| {
            Some(RawCapability {
                vendor: capability.vendor,
                name: capability.name,
                words: u16::try_from(capability.payload.len()).ok()?,
                required: u32::from(capability.required),
                reserved: 0,
                payload: Pointer(capability.payload.as_ptr()),
            })
        };
        let most = usize::try_from(MOST).ok()?;
        let fits = set.constraints.len() <= most && set.capabilities.len() <= most;
        fits.then_some(())?;
        Some(Self {
            constraints: set.constraints.iter().map(constraint).collect(),
            capabilities: set.capabilities.iter().map(capability).collect::<Option<_>>()?,
            _from: set,
        })
    }

    /// The struct, for as long as this lives.
    pub(super) fn raw(&self) -> RawSet {
        RawSet {
            constraint_count: self.constraints.len() as u32,
            capability_count: self.capabilities.len() as u32,
            constraints: Pointer(self.constraints.as_ptr()),
            capabilities: Pointer(self.capabilities.as_ptr()),
        }
    }
}

/// The structs of a description, which borrow from it.
pub(super) struct LentMemory<'a> {
    set: LentSet<'a>,
    planes: Vec<RawPlane>,
    of: &'a Description,
}

impl<'a> LentMemory<'a> {
    pub(super) fn new(of: &'a Description) -> Option<Self> {
        let plane =
            |plane: &Plane| RawPlane { offset: plane.offset, pitch: plane.pitch, size: plane.size };
        let planes = of.layout.planes.iter().map(plane).collect();
        Some(Self { set: LentSet::new(&of.set)?, planes, of })
    }

    pub(super) fn raw(&self) -> RawMemory {
        RawMemory {
            image: image(&self.of.usage.image),
            set: self.set.raw(),
            modifier: self.of.layout.modifier,
            size: self.of.layout.size,
            plane_count: self.planes.len() as u32,
            reserved: 0,
            planes: Pointer(self.planes.as_ptr()),
        }
    }
}

pub(super) fn image(image: &Image) -> RawImage {
    let Image { width, height, format } = *image;
    RawImage { width, height, format: format.0, reserved: 0 }
}

pub(super) fn image_of(raw: &RawImage) -> Image {
    Image::new(raw.width, raw.height, Fourcc(raw.format))
}

/// The structs of details, which borrow from them. `None` when a payload or the list is too long.
pub(super) fn details<'a>(list: impl Iterator<Item = &'a Detail>) -> Option<Vec<RawDetail>> {
    let detail = |detail: &Detail| {
        Some(RawDetail {
            vendor: detail.vendor,
            name: detail.name,
            words: u16::try_from(detail.payload.len()).ok()?,
            payload: Pointer(detail.payload.as_ptr()),
        })
    };
    let details: Vec<RawDetail> = list.map(detail).collect::<Option<_>>()?;
    (details.len() <= MOST as usize).then_some(details)
}

/// Copies details.
///
/// # Safety
///
/// `count` details are behind the pointer, unless it is null, and each leads to as many words as it says.
pub unsafe fn details_of(pointer: *const RawDetail, count: u32) -> Result<Vec<Detail>, String> {
    // SAFETY: the caller promises as many elements.
    let raw = unsafe { list(pointer, count, "details") }?;
    let detail = |raw: &RawDetail| {
        // SAFETY: the caller's promise is of each pointer below, this one too.
        let payload = unsafe { list(raw.payload.0, raw.words.into(), "words of a detail") }?;
        Ok(Detail::vendor(raw.vendor, raw.name, payload.to_vec()))
    };
    detail::list(raw.iter().map(detail).collect::<Result<_, String>>()?)
}

/// A list that a struct points to.
///
/// # Safety
///
/// `count` elements lie behind the pointer, unless it is null, and stay as they are for `'a`.
pub(super) unsafe fn list<'a, T>(
    pointer: *const T,
    count: u32,
    what: &str,
) -> Result<&'a [T], String> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() || !pointer.is_aligned() || count > MOST {
        return Err(format!("{count} {what} at {pointer:?}"));
    }
    // SAFETY: the caller promises `count` elements that stay as they are for `'a`; the pointer is not null, it
    // is aligned, and `MOST` elements are fewer bytes than `isize::MAX`.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count as usize) })
}

/// Copies a set.
///
/// # Safety
///
/// The pointers of the struct lead to as much as it says, unless they are null.
pub(super) unsafe fn set_of(raw: &RawSet) -> Result<CapabilitySet, String> {
    // SAFETY: the caller promises as many elements as the struct says.
    let constraints = unsafe { list(raw.constraints.0, raw.constraint_count, "constraints") }?;
    // SAFETY: the caller promises as many elements as the struct says.
    let capabilities = unsafe { list(raw.capabilities.0, raw.capability_count, "capabilities") }?;
    let constraint = |raw: &RawConstraint| Constraint::new(ConstraintName(raw.name), raw.value);
    let capability = |raw: &RawCapability| {
        // SAFETY: the caller's promise is of each pointer below the struct, this one too.
        let payload = unsafe { list(raw.payload.0, raw.words.into(), "words of a payload") }?;
        Ok(Capability {
            vendor: raw.vendor,
            name: raw.name,
            required: raw.required != 0,
            payload: payload.to_vec(),
        })
    };
    let constraints: Vec<Constraint> = constraints.iter().map(constraint).collect();
    let capabilities: Vec<Capability> =
        capabilities.iter().map(capability).collect::<Result<_, String>>()?;
    Ok(CapabilitySet::new(constraints, capabilities))
}

/// Copies a description. It has no uses and no metadata: a driver is not told of them.
///
/// # Safety
///
/// The pointers of the struct lead to as much as it says, unless they are null.
pub(super) unsafe fn memory_of(raw: &RawMemory) -> Result<Description, String> {
    // SAFETY: the caller promises as many elements as the struct says.
    let planes = unsafe { list(raw.planes.0, raw.plane_count, "planes") }?;
    let plane = |raw: &RawPlane| Plane { offset: raw.offset, pitch: raw.pitch, size: raw.size };
    let planes = planes.iter().map(plane).collect();
    Ok(Description {
        usage: Usage::new(image_of(&raw.image), Vec::new()),
        // SAFETY: the caller's promise is of each pointer below the struct, those of the set too.
        set: unsafe { set_of(&raw.set) }?,
        layout: Layout { modifier: raw.modifier, planes, size: raw.size },
        metadata: Vec::new(),
    })
}

/// What a sink has taken.
#[derive(Default)]
pub(super) struct Collected {
    pub(super) sets: Vec<CapabilitySet>,
    pub(super) error: Option<String>,
}

impl Collected {
    /// A sink that adds to this.
    pub(super) fn sink(&mut self) -> RawSink {
        RawSink { context: Pointer((&raw mut *self).cast()), add: Pointer(Some(add)) }
    }
}

unsafe extern "C" fn add(context: *mut c_void, set: *const RawSet) {
    // SAFETY: the context is what `sink` made of a `Collected` that lives through the call of the
    // plugin, which hands it back here and lets nobody else have it.
    let Some(collected) = (unsafe { context.cast::<Collected>().as_mut() }) else { return };
    // SAFETY: a plugin gives, by the header, a set that stays as it is until `add` returns, or null.
    let set = match unsafe { set.as_ref() } {
        // SAFETY: by the header, so do its lists, with as many elements as it says.
        Some(set) => unsafe { set_of(set) },
        None => Err("a set at null".to_owned()),
    };
    match set {
        Ok(set) if collected.sets.len() < MOST as usize => collected.sets.push(set),
        Ok(_) => collected.error = Some("more sets than any device has".to_owned()),
        Err(error) => collected.error = Some(error),
    }
}
