//! The structs of `include/nvabi-devmem.h`, as Rust has them. The derive compares each with the
//! header, by the lock in `abi-specs`.

use std::ffi::{c_char, c_int, c_void};

use crate::driver::{Transition, Wait};
use nvabi::NvProxy;
use nvabi::check::{FieldType, Type};

/// The header's own types and constants.
#[allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]
#[allow(missing_docs, unreachable_pub, dead_code, clippy::all)]
pub mod header {
    include!(concat!(env!("OUT_DIR"), "/devmem.rs"));
}

/// A pointer of C's, to data or to a function. Null is `None` or a null pointer.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct Pointer<T>(pub T);

/// Rust's types that are a pointer in C.
trait IsPointer {}

impl<T> IsPointer for *const T {}
impl<T> IsPointer for *mut T {}
impl IsPointer for Option<DeviceFn> {}
impl IsPointer for Option<SetsFn> {}
impl IsPointer for Option<CostFn> {}
impl IsPointer for Option<AllocateFn> {}
impl IsPointer for Option<ImportFn> {}
impl IsPointer for Option<ReleaseFn> {}
impl IsPointer for Option<TransitionFn> {}
impl IsPointer for Option<SetsForFn> {}
impl IsPointer for Option<HintsFn> {}
impl IsPointer for Option<AllocateFilesFn> {}
impl IsPointer for Option<ImportFilesFn> {}
impl IsPointer for Option<AddFn> {}

impl<T: IsPointer> FieldType for Pointer<T> {
    const TYPE: Type = Type::P64;
}

pub(super) type DeviceFn = unsafe extern "C" fn(u32, *mut RawDevice) -> c_int;
pub(super) type SetsFn = unsafe extern "C" fn(u32, *const RawImage, u32, *const RawSink) -> c_int;
pub(super) type CostFn = unsafe extern "C" fn(u32, *const RawSet) -> u64;
pub(super) type AllocateFn = unsafe extern "C" fn(u32, *const RawMemory) -> c_int;
pub(super) type ImportFn = unsafe extern "C" fn(u32, c_int, *const RawMemory, *mut u64) -> c_int;
pub(super) type ReleaseFn = unsafe extern "C" fn(u32, u64);
pub(super) type TransitionFn = unsafe extern "C" fn(u32, u32, u32, *mut RawTransition) -> c_int;
pub(super) type SetsForFn = unsafe extern "C" fn(u32, *const RawUse, *const RawSink) -> c_int;
pub(super) type HintsFn = unsafe extern "C" fn(u32, u32, *mut RawHint, u32) -> c_int;
pub(super) type AllocateFilesFn = unsafe extern "C" fn(u32, *const RawMemory, *mut i32) -> c_int;
pub(super) type ImportFilesFn =
    unsafe extern "C" fn(u32, *const i32, u32, *const RawMemory, *mut u64) -> c_int;
pub(super) type AddFn = unsafe extern "C" fn(*mut c_void, *const RawSet);

/// A device.
#[derive(NvProxy, Debug, Clone, Copy)]
#[nvproxy(name = "nvabi_devmem_device", crate = "crate::plugin::abi::header")]
#[repr(C)]
pub struct RawDevice {
    /// Its name, up to a zero byte.
    pub name: [u8; 64],
    /// Its file, up to a zero byte.
    pub node: [u8; 128],
    /// Bit n: it does the operation of number n.
    pub operations: u32,
    /// `NVABI_DEVMEM_ALLOCATES`, `NVABI_DEVMEM_IMPORTS`.
    pub flags: u32,
}

/// An image.
#[derive(NvProxy, Debug, Clone, Copy)]
#[nvproxy(name = "nvabi_devmem_image", crate = "crate::plugin::abi::header")]
#[repr(C)]
pub struct RawImage {
    /// Pixels.
    pub width: u32,
    /// Pixels.
    pub height: u32,
    /// DRM fourcc.
    pub format: u32,
    /// Zero.
    pub reserved: u32,
}

/// A constraint.
#[derive(NvProxy, Debug, Clone, Copy)]
#[nvproxy(name = "nvabi_devmem_constraint", crate = "crate::plugin::abi::header")]
#[repr(C)]
pub struct RawConstraint {
    /// Which.
    pub name: u32,
    /// Zero.
    pub reserved: u32,
    /// Its value.
    pub value: u64,
}

/// A capability.
#[derive(NvProxy, Debug, Clone, Copy)]
#[nvproxy(name = "nvabi_devmem_capability", crate = "crate::plugin::abi::header")]
#[repr(C)]
pub struct RawCapability {
    /// Whose it is.
    pub vendor: u32,
    /// Which of the vendor's.
    pub name: u16,
    /// Words of the payload.
    pub words: u16,
    /// 0 or 1.
    pub required: u32,
    /// Zero.
    pub reserved: u32,
    /// So many words.
    pub payload: Pointer<*const u32>,
}

/// A set.
#[derive(NvProxy, Debug, Clone, Copy)]
#[nvproxy(name = "nvabi_devmem_set", crate = "crate::plugin::abi::header")]
#[repr(C)]
pub struct RawSet {
    /// How many constraints.
    pub constraint_count: u32,
    /// How many capabilities.
    pub capability_count: u32,
    /// So many.
    pub constraints: Pointer<*const RawConstraint>,
    /// So many.
    pub capabilities: Pointer<*const RawCapability>,
}

/// What is asked for besides an operation.
#[derive(NvProxy, Debug, Clone, Copy)]
#[nvproxy(name = "nvabi_devmem_detail", crate = "crate::plugin::abi::header")]
#[repr(C)]
pub struct RawDetail {
    /// Whose it is.
    pub vendor: u32,
    /// Which of the vendor's.
    pub name: u16,
    /// Words of the payload.
    pub words: u16,
    /// So many words.
    pub payload: Pointer<*const u32>,
}

/// All that is asked of a device.
#[derive(NvProxy, Debug, Clone, Copy)]
#[nvproxy(name = "nvabi_devmem_use", crate = "crate::plugin::abi::header")]
#[repr(C)]
pub struct RawUse {
    /// The image.
    pub image: RawImage,
    /// What is done with it.
    pub operation: u32,
    /// How many details.
    pub detail_count: u32,
    /// So many.
    pub details: Pointer<*const RawDetail>,
}

/// A format that a device takes.
#[derive(NvProxy, Debug, Clone, Copy)]
#[nvproxy(name = "nvabi_devmem_hint", crate = "crate::plugin::abi::header")]
#[repr(C)]
pub struct RawHint {
    /// DRM fourcc.
    pub format: u32,
    /// Pixels.
    pub max_width: u32,
    /// Pixels.
    pub max_height: u32,
    /// Zero.
    pub reserved: u32,
}

/// A plane, in bytes.
#[derive(NvProxy, Debug, Clone, Copy)]
#[nvproxy(name = "nvabi_devmem_plane", crate = "crate::plugin::abi::header")]
#[repr(C)]
pub struct RawPlane {
    /// Where it starts.
    pub offset: u64,
    /// From row to row.
    pub pitch: u64,
    /// To its end.
    pub size: u64,
}

/// Memory that is wanted, or there.
#[derive(NvProxy, Debug, Clone, Copy)]
#[nvproxy(name = "nvabi_devmem_memory", crate = "crate::plugin::abi::header")]
#[repr(C)]
pub struct RawMemory {
    /// The image.
    pub image: RawImage,
    /// What it is like.
    pub set: RawSet,
    /// DRM format modifier.
    pub modifier: u64,
    /// Bytes of all planes.
    pub size: u64,
    /// How many planes.
    pub plane_count: u32,
    /// Zero.
    pub reserved: u32,
    /// So many.
    pub planes: Pointer<*const RawPlane>,
}

/// What must be done between two operations.
#[derive(NvProxy, Debug, Clone, Copy, Default)]
#[nvproxy(name = "nvabi_devmem_transition", crate = "crate::plugin::abi::header")]
#[repr(C)]
pub struct RawTransition {
    /// `NVABI_DEVMEM_WAIT_*`.
    pub wait: u32,
    /// 0 or 1.
    pub write_back: u32,
    /// 0 or 1.
    pub invalidate: u32,
    /// Zero.
    pub reserved: u32,
}

/// Where sets go.
#[derive(NvProxy, Debug, Clone, Copy)]
#[nvproxy(name = "nvabi_devmem_sink", crate = "crate::plugin::abi::header")]
#[repr(C)]
pub struct RawSink {
    /// What `add` is given.
    pub context: Pointer<*mut c_void>,
    /// Called for each set.
    pub add: Pointer<Option<AddFn>>,
}

/// A driver.
#[derive(NvProxy, Debug, Clone, Copy)]
#[nvproxy(name = "nvabi_devmem_driver", crate = "crate::plugin::abi::header")]
#[repr(C)]
pub struct RawDriver {
    /// `NVABI_DEVMEM_VERSION`.
    pub version: u32,
    /// The size of this.
    pub size: u32,
    /// Its name.
    pub name: Pointer<*const c_char>,
    /// Describes a device.
    pub device: Pointer<Option<DeviceFn>>,
    /// Adds the sets of a device.
    pub sets: Pointer<Option<SetsFn>>,
    /// Costs of a set.
    pub cost: Pointer<Option<CostFn>>,
    /// Makes memory.
    pub allocate: Pointer<Option<AllocateFn>>,
    /// Takes memory.
    pub import: Pointer<Option<ImportFn>>,
    /// Lets go of it.
    pub release: Pointer<Option<ReleaseFn>>,
    /// Between two operations.
    pub transition: Pointer<Option<TransitionFn>>,
    /// Adds the sets of a device for a use with details.
    pub sets_for: Pointer<Option<SetsForFn>>,
    /// Lists the formats of a device.
    pub hints: Pointer<Option<HintsFn>>,
    /// Makes memory with a file for each plane.
    pub allocate_files: Pointer<Option<AllocateFilesFn>>,
    /// Takes memory in several files.
    pub import_files: Pointer<Option<ImportFilesFn>>,
}

impl RawDriver {
    /// The size of the shortest, which ends before `sets_for`.
    pub(super) const SHORTEST: usize = std::mem::offset_of!(Self, sets_for);

    /// One without functions or a name.
    pub(super) const NONE: Self = Self {
        version: 0,
        size: 0,
        name: Pointer(std::ptr::null()),
        device: Pointer(None),
        sets: Pointer(None),
        cost: Pointer(None),
        allocate: Pointer(None),
        import: Pointer(None),
        release: Pointer(None),
        transition: Pointer(None),
        sets_for: Pointer(None),
        hints: Pointer(None),
        allocate_files: Pointer(None),
        import_files: Pointer(None),
    };
}

// SAFETY: nothing in it belongs to a thread: the header demands of a plugin that its functions may be called
// from any, and that its texts and the struct stay as they are while the library is loaded.
unsafe impl Send for RawDriver {}
// SAFETY: all of its fields are read alone, by copies; the functions behind them may be called from several
// threads at once, which the header demands of a plugin ("and several at once").
unsafe impl Sync for RawDriver {}

/// The one function that a plugin exports.
pub(super) type EntryFn = unsafe extern "C" fn() -> *const RawDriver;

/// Its name.
pub(super) const ENTRY: &[u8] = b"nvabi_devmem_driver_v1\0";

/// The constants of the header.
pub(super) mod value {
    use super::header::r1 as header;
    use crate::capability::{Capability, VENDOR_BASE, VENDOR_DRM};
    use crate::constraint::{ConstraintName as Name, coherency, placement};
    use crate::detail::{Detail, transform};
    use crate::usage::Operation;

    pub(crate) const VERSION: u32 = header::NVABI_DEVMEM_VERSION;
    pub(crate) const ALLOCATES: u32 = header::NVABI_DEVMEM_ALLOCATES;
    pub(crate) const IMPORTS: u32 = header::NVABI_DEVMEM_IMPORTS;

    /// A number of the header beside the one of this crate.
    macro_rules! same {
        ($($own:expr => $header:ident;)*) => {
            $(const _: () = assert!($own as u64 == header::$header as u64, stringify!($header));)*
        };
    }

    same! {
        Operation::CpuRead => NVABI_DEVMEM_CPU_READ;
        Operation::CpuWrite => NVABI_DEVMEM_CPU_WRITE;
        Operation::Texture => NVABI_DEVMEM_TEXTURE;
        Operation::Render => NVABI_DEVMEM_RENDER;
        Operation::Scanout => NVABI_DEVMEM_SCANOUT;
        Operation::Capture => NVABI_DEVMEM_CAPTURE;
        Operation::Encode => NVABI_DEVMEM_ENCODE;
        Operation::Decode => NVABI_DEVMEM_DECODE;
        Operation::Copy => NVABI_DEVMEM_COPY;
        Operation::ConvertRead => NVABI_DEVMEM_CONVERT_READ;
        Operation::ConvertWrite => NVABI_DEVMEM_CONVERT_WRITE;
        Name::ADDRESS_ALIGNMENT.0 => NVABI_DEVMEM_ADDRESS_ALIGNMENT;
        Name::PITCH_ALIGNMENT.0 => NVABI_DEVMEM_PITCH_ALIGNMENT;
        Name::MAX_PITCH.0 => NVABI_DEVMEM_MAX_PITCH;
        Name::OFFSET_ALIGNMENT.0 => NVABI_DEVMEM_OFFSET_ALIGNMENT;
        Name::SIZE_ALIGNMENT.0 => NVABI_DEVMEM_SIZE_ALIGNMENT;
        Name::ROW_PADDING.0 => NVABI_DEVMEM_ROW_PADDING;
        Name::SIZE_PADDING.0 => NVABI_DEVMEM_SIZE_PADDING;
        Name::CONTIGUOUS.0 => NVABI_DEVMEM_CONTIGUOUS;
        Name::ADDRESS_BITS.0 => NVABI_DEVMEM_ADDRESS_BITS;
        Name::PAGE_SIZE.0 => NVABI_DEVMEM_PAGE_SIZE;
        Name::PLACEMENT.0 => NVABI_DEVMEM_PLACEMENT;
        Name::COHERENCY.0 => NVABI_DEVMEM_COHERENCY;
        Name::MAX_SIZE.0 => NVABI_DEVMEM_MAX_SIZE;
        Name::ROW_ALIGNMENT.0 => NVABI_DEVMEM_ROW_ALIGNMENT;
        Name::MADE_BY.0 => NVABI_DEVMEM_MADE_BY;
        Name::FILES.0 => NVABI_DEVMEM_FILES;
        Detail::TRANSFORM => NVABI_DEVMEM_BASE_TRANSFORM;
        transform::ROTATE_0 => NVABI_DEVMEM_ROTATE_0;
        transform::ROTATE_90 => NVABI_DEVMEM_ROTATE_90;
        transform::ROTATE_180 => NVABI_DEVMEM_ROTATE_180;
        transform::ROTATE_270 => NVABI_DEVMEM_ROTATE_270;
        transform::REFLECT_X => NVABI_DEVMEM_REFLECT_X;
        transform::REFLECT_Y => NVABI_DEVMEM_REFLECT_Y;
        placement::SYSTEM => NVABI_DEVMEM_IN_SYSTEM;
        placement::CONTIGUOUS => NVABI_DEVMEM_IN_CONTIGUOUS;
        placement::LOCAL => NVABI_DEVMEM_IN_LOCAL;
        placement::CARVEOUT => NVABI_DEVMEM_IN_CARVEOUT;
        placement::PROTECTED => NVABI_DEVMEM_IN_PROTECTED;
        coherency::CACHED => NVABI_DEVMEM_SEEN_CACHED;
        coherency::WRITE_COMBINED => NVABI_DEVMEM_SEEN_WRITE_COMBINED;
        coherency::UNCACHED => NVABI_DEVMEM_SEEN_UNCACHED;
        VENDOR_BASE => NVABI_DEVMEM_VENDOR_BASE;
        VENDOR_DRM => NVABI_DEVMEM_VENDOR_DRM;
        Capability::PITCH_LINEAR => NVABI_DEVMEM_BASE_PITCH_LINEAR;
        Capability::EXPLICIT => NVABI_DEVMEM_DRM_MODIFIER;
        Capability::IMPLICIT => NVABI_DEVMEM_DRM_IMPLICIT;
    }
}

/// Between two operations; `None` where the number of what to wait for is not known.
pub(super) fn transition_of(raw: &RawTransition) -> Option<Transition> {
    Some(Transition {
        wait: match raw.wait {
            0 => Wait::Nothing,
            1 => Wait::Fences,
            2 => Wait::Device,
            _ => return None,
        },
        write_back: raw.write_back != 0,
        invalidate: raw.invalidate != 0,
    })
}

/// The same, for others.
pub(super) fn transition(transition: Transition) -> RawTransition {
    RawTransition {
        wait: transition.wait as u32,
        write_back: u32::from(transition.write_back),
        invalidate: u32::from(transition.invalidate),
        reserved: 0,
    }
}
