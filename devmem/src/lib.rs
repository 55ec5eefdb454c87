//! Device memory: which memory, layout and alignment serve every device that touches a buffer, and
//! if none does, why.
//!
//! ```text
//! devices ──► sets: capabilities under constraints, for one image and operation
//!                 │  derive_all, plan: intersected and merged    none? explain: why, and what would help
//!                 ▼
//!               set ──► solve: pitches, offsets, size ──► Description ──► allocate, share, import
//! ```
//!
//! A camera writes what a GPU samples and a display shows. No such device is needed here: the sets
//! are those of a Jetson, the memory is the CPU's.
//!
//! ```
//! use nvabi_devmem::drivers::memfd::Memfd;
//! use nvabi_devmem::{
//!     Capability, CapabilitySet, Constraint, ConstraintName, Description, Driver, Fourcc, Image,
//!     Offer, Operation, Usage, Use, plan, solve,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let image = Image::new(1920, 1080, Fourcc::new(b"NV12"));
//! let pitch = |bytes| Constraint::new(ConstraintName::PITCH_ALIGNMENT, bytes);
//! let linear = |constraint| CapabilitySet::new([constraint], [Capability::pitch_linear()]);
//! let tiled = CapabilitySet::new([], [Capability::modifier(0x0300_0000_0060_6014)]);
//! let cpu = Memfd.devices()?.remove(0)?;
//!
//! let offers = [
//!     Offer { of: Use::new("camera", Operation::Capture), sets: vec![linear(pitch(64))] },
//!     Offer { of: Use::new("gpu", Operation::Texture), sets: vec![tiled.clone(), linear(pitch(32))] },
//!     Offer { of: Use::new("display", Operation::Scanout), sets: vec![tiled, linear(pitch(256))] },
//!     Offer { of: Use::new("cpu", Operation::CpuWrite), sets: cpu.sets(&image, Operation::CpuWrite)? },
//! ];
//! let set = plan(&offers)?.sets.remove(0);
//! let layout = solve(&image, &set)?;
//! assert_eq!(layout.planes[1].pitch, 2048);
//! assert_eq!(layout.planes[1].offset, 2048 * 1080);
//!
//! // One buffer for all of them; another process gets it by its bytes and a file descriptor.
//! let usage = Usage::new(image, offers.iter().map(|offer| offer.of.clone()).collect());
//! let buffer = cpu.allocate(&Description { usage, set, layout, metadata: Vec::new() })?;
//! buffer.map()?.write()?.store(0, b"a frame")?;
//! let bytes = buffer.description().to_bytes()?;
//! let theirs = nvabi_devmem::Buffer::identified(
//!     buffer.export()?,
//!     Description::from_bytes(&bytes)?,
//!     buffer.identity(),
//! )?;
//! let mut frame = [0; 7];
//! theirs.map()?.read()?.load(0, &mut frame)?;
//! assert_eq!(&frame, b"a frame");
//!
//! // A second display that knows only its own tiling leaves no memory for all, and this is why.
//! let own = CapabilitySet::new([], [Capability::new(0x1234, 1, vec![])]);
//! let second = Offer { of: Use::new("hdmi", Operation::Scanout), sets: vec![own] };
//! let why = plan(&[&offers[..], &[second]].concat()).unwrap_err();
//! assert_eq!(
//!     why.to_string().lines().next(),
//!     Some("no memory serves camera:capture and hdmi:scanout: no capability in common: \
//!           pitch-linear and 0x1234:1")
//! );
//! assert!(why.relaxations.iter().any(|change| change.to_string() == "drop scanout on hdmi"));
//! # Ok(())
//! # }
//! ```
//!
//! `docs/devmem.md` has the decisions behind it. `nvabi alloc` does the same from the command line.

mod buffer;
mod capability;
pub mod constraint;
pub mod convert;
mod derive;
mod detail;
mod driver;
pub mod drivers;
mod error;
mod explain;
mod fence;
pub mod format;
mod layout;
mod map;
mod memory;
pub mod modifier;
pub mod plugin;
mod probe;
mod share;
mod timeline;
mod uapi;
mod usage;
pub mod wire;

pub use buffer::{Buffer, Description, Identity, Piece};
pub use capability::{
    Capability, CapabilitySet, MODIFIER_INVALID, MODIFIER_LINEAR, VENDOR_BASE, VENDOR_DRM,
};
pub use constraint::{
    Conflict, ConflictKind, Constraint, ConstraintName, coherency, merge, placement,
};
pub use derive::{Derived, derive, derive_all, intersect};
pub use detail::{Detail, transform};
pub use driver::{Device, DeviceInfo, Driver, Hint, Import, Listed, Shown, Transition, Wait};
pub use error::{Error, ErrorKind, Result};
pub use explain::{Cause, Explanation, Offer, OfferedSet, Rejection, Relaxation, explain, plan};
pub use fence::{Intent, wait_fence};
pub use layout::{Layout, LayoutError, Plane, layout_of, solve};
pub use map::{Access, Mapping};
pub use memory::Memory;
pub use probe::{Made, Prober, Proof, Refusal, Tried};
pub use timeline::Timeline;
pub use usage::{Fourcc, Image, Operation, Usage, Use};
