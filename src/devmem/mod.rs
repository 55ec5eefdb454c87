//! Device memory: which memory, layout and alignment serve every device that touches a buffer, and
//! if none does, why.

mod buffer;
mod capability;
pub mod constraint;
pub mod convert;
mod derive;
mod driver;
pub mod drivers;
mod error;
mod explain;
mod fence;
pub mod format;
mod layout;
mod map;
mod memory;
pub mod plugin;
mod probe;
mod share;
mod uapi;
mod usage;
pub mod wire;

pub use buffer::{Buffer, Description, Identity};
pub use capability::{
    Capability, CapabilitySet, MODIFIER_INVALID, MODIFIER_LINEAR, VENDOR_BASE, VENDOR_DRM,
};
pub use constraint::{
    Conflict, ConflictKind, Constraint, ConstraintName, coherency, merge, placement,
};
pub use derive::{derive, derive_all, intersect};
pub use driver::{Device, DeviceInfo, Driver, Import, Transition, Wait};
pub use error::{Error, ErrorKind, Result};
pub use explain::{Cause, Explanation, Offer, Place, Rejection, Relaxation, explain, plan};
pub use fence::{Intent, wait_fence};
pub use layout::{Layout, LayoutError, Plane, solve};
pub use map::{Access, Mapping};
pub use memory::Memory;
pub use probe::Prober;
pub use usage::{Fourcc, Image, Operation, Usage, Use};
