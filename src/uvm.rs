//! Unified memory: `/dev/nvidia-uvm`.
//!
//! Its calls are types of a driver's module, as those of the resource manager are ([`rm`]).
//! Each says in its parameters what came of it, which [`Uvm::call`] looks at.
//!
#![cfg_attr(feature = "driver-550", doc = "```no_run")]
#![cfg_attr(not(feature = "driver-550"), doc = "```ignore")]
//! use nvabi::driver::Record;
//! use nvabi::r550::{self, uvm};
//! use nvabi::rm::RmClient;
//! use nvabi::uvm::Uvm;
//!
//! let client = RmClient::open()?;
//! let memory = Uvm::open(&client, 0)?;
//! let mut params = r550::UVM_PAGEABLE_MEM_ACCESS_PARAMS::zeroed();
//! memory.call::<uvm::UVM_PAGEABLE_MEM_ACCESS>(&mut params)?;
//! println!("pageable memory: {}", params.pageableMemAccess != 0);
//! # Ok::<(), nvabi::rm::Error>(())
//! ```

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::call::{Call, CallKind, PointerFree};
use crate::check::{Layout, LayoutKind, Type};
use crate::driver::{AnyDriver, Choice, Record};
use crate::rm::{self, CallName, Error, ErrorKind, Result, RmClient};
use crate::{Handle, NvProxy, NvStatus, Uuid, call};

const PATH: &str = "/dev/nvidia-uvm";
const INITIALIZE: CallName = named("UVM_INITIALIZE", 0x3000_0001);
const MM_INITIALIZE: CallName = named("UVM_MM_INITIALIZE", 75);
const REGISTER_GPU: CallName = named("UVM_REGISTER_GPU", 37);
const UNREGISTER_GPU: CallName = named("UVM_UNREGISTER_GPU", 38);

/// `NV_WARN_NOTHING_TO_DO`.
const NOTHING_TO_DO: NvStatus = NvStatus(0x1_0006);

const fn named(name: &'static str, number: u32) -> CallName {
    CallName { name, kind: CallKind::Uvm, number }
}

/// A UVM VA space.
#[derive(Debug)]
pub struct Uvm {
    fd: OwnedFd,
    /// Keeps the program's memory where the driver asks for it; closed after the other.
    _memory: Option<OwnedFd>,
    choice: Choice,
}

/// A GPU as UVM knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisteredGpu {
    /// The NUMA node of its memory, where that is one.
    pub numa_node: Option<i32>,
}

/// What a UVM call is about, by what names it in the call's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UvmObject {
    /// A channel of the resource manager.
    Channel(Handle),
    /// A range of addresses.
    Range {
        /// The first.
        base: u64,
        /// Bytes; `None` where the call takes a whole range by its base.
        length: Option<u64>,
    },
    /// A group of ranges, by its id.
    RangeGroup(u64),
    /// A GPU.
    Gpu(Uuid),
}

#[derive(NvProxy)]
#[nvproxy(name = "UVM_INITIALIZE_PARAMS", crate = "crate")]
#[repr(C)]
struct Initialize {
    flags: u64,
    #[nvproxy(name = "rmStatus")]
    status: u32,
    _pad: [u8; 4],
}

/// `UVM_MM_INITIALIZE_PARAMS`, which drivers have from 535 on.
#[repr(C)]
struct MmInitialize {
    uvm_fd: i32,
    status: u32,
}

#[derive(NvProxy)]
#[nvproxy(name = "UVM_REGISTER_GPU_PARAMS", crate = "crate")]
#[repr(C)]
struct RegisterGpu {
    #[nvproxy(name = "gpu_uuid")]
    uuid: Uuid,
    #[nvproxy(name = "numaEnabled")]
    numa_enabled: u8,
    _pad: [u8; 3],
    #[nvproxy(name = "numaNodeId")]
    numa_node: i32,
    #[nvproxy(name = "rmCtrlFd")]
    control: i32,
    #[nvproxy(name = "hClient")]
    client: Handle,
    #[nvproxy(name = "hSmcPartRef")]
    partition: Handle,
    #[nvproxy(name = "rmStatus")]
    status: u32,
}

#[derive(NvProxy)]
#[nvproxy(name = "UVM_UNREGISTER_GPU_PARAMS", crate = "crate")]
#[repr(C)]
struct UnregisterGpu {
    #[nvproxy(name = "gpu_uuid")]
    uuid: Uuid,
    #[nvproxy(name = "rmStatus")]
    status: u32,
}

impl Uvm {
    /// Opens the UVM device for the driver of a client and makes a space (`UVM_INITIALIZE`). Where the
    /// driver has `UVM_MM_INITIALIZE`, a second fd ties the space to the program's memory, unless the
    /// driver says that it need not.
    ///
    /// # Errors
    ///
    /// When the node may not be opened, and what the kernel or the driver says;
    /// [`NotInDriver`](ErrorKind::NotInDriver) where only one of the drivers that the machine's may be
    /// has `UVM_MM_INITIALIZE`.
    pub fn open(client: &RmClient, flags: u64) -> Result<Self> {
        let choice = client.driver().clone();
        let ties = ties_memory(&choice)?;
        let fd = open_node(&choice)?;
        let mut params = Initialize { flags, status: 0, _pad: [0; 4] };
        // SAFETY: the derive checks `Initialize` against every driver of the build; the driver copies as many bytes
        // (uvm_api.h:50 of 550.90.07), and they hold no address.
        unsafe { made(fd.as_fd(), INITIALIZE.number, &mut params, |p| p.status) }
            .map_err(|kind| Error::new(kind).call(INITIALIZE).driver_is(&choice))?;
        let memory = if ties { tie_memory(fd.as_fd(), &choice)? } else { None };
        Ok(Self { fd, _memory: memory, choice })
    }

    /// Makes a call without pointers.
    ///
    /// Some calls take ranges of addresses away. Only what was mapped by this fd is the space's to take,
    /// and mapping it is an unsafe act: who does it sees to it that no call here takes it too early.
    ///
    /// # Errors
    ///
    /// [`NotInDriver`](ErrorKind::NotInDriver) where the machine's driver has no such call, or another
    /// under this name; and what the kernel or the driver says.
    pub fn call<C>(&self, params: &mut C::Params) -> Result<()>
    where
        C: call::Uvm<Params: Record> + PointerFree,
    {
        // SAFETY: `PointerFree` promises that no address in the parameters is followed, whatever they hold.
        unsafe { self.call_with_pointers::<C>(params) }
    }

    /// Makes a call whose parameters hold addresses.
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    ///
    /// # Safety
    ///
    /// The addresses are those of memory that the driver may use as `C` says, for as long as it says.
    /// What is done with ranges of the program's own addresses keeps to what lies there.
    pub unsafe fn call_with_pointers<C>(&self, params: &mut C::Params) -> Result<()>
    where
        C: call::Uvm<Params: Record>,
    {
        let name = CallName::from(C::INFO);
        if !self.choice.has::<C>() {
            return Err(self.failed(ErrorKind::NotInDriver, name, object_of::<C>(params)));
        }
        // SAFETY: `has` found exactly this call in the driver that the fd is of, so it takes `C::Params`; the
        // addresses in `params` are the caller's promise.
        unsafe { made(self.as_fd(), name.number, params, status_of::<C>) }
            .map_err(|kind| self.failed(kind, name, object_of::<C>(params)))
    }

    #[cold]
    fn failed(&self, kind: ErrorKind, call: CallName, object: Option<UvmObject>) -> Error {
        Error::new(kind).call(call).uvm(object).driver_is(&self.choice)
    }

    /// Makes a GPU known to this space (`UVM_REGISTER_GPU`). `client` must be the one that has it open.
    ///
    /// # Errors
    ///
    /// What the kernel or the driver says.
    pub fn register_gpu(&self, client: &RmClient, uuid: Uuid) -> Result<RegisteredGpu> {
        let mut params = RegisterGpu {
            uuid,
            numa_enabled: 0,
            _pad: [0; 3],
            numa_node: -1,
            control: client.control_fd().as_raw_fd(),
            client: client.client(),
            partition: Handle(0),
            status: 0,
        };
        // SAFETY: the derive checks `RegisterGpu` against every driver of the build: a UUID, integers, an fd and
        // handles, no address.
        unsafe { made(self.as_fd(), REGISTER_GPU.number, &mut params, |p| p.status) }
            .map_err(|kind| self.failed(kind, REGISTER_GPU, Some(UvmObject::Gpu(uuid))))?;
        Ok(RegisteredGpu { numa_node: (params.numa_enabled != 0).then_some(params.numa_node) })
    }

    /// Forgets a GPU (`UVM_UNREGISTER_GPU`).
    ///
    /// # Errors
    ///
    /// What the kernel or the driver says.
    pub fn unregister_gpu(&self, uuid: Uuid) -> Result<()> {
        let mut params = UnregisterGpu { uuid, status: 0 };
        // SAFETY: the derive checks `UnregisterGpu` against every driver of the build: a UUID and an integer, no
        // address.
        unsafe { made(self.as_fd(), UNREGISTER_GPU.number, &mut params, |p| p.status) }
            .map_err(|kind| self.failed(kind, UNREGISTER_GPU, Some(UvmObject::Gpu(uuid))))
    }

    /// The driver that it is of.
    pub fn driver(&self) -> &Choice {
        &self.choice
    }
}

impl AsFd for Uvm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn open_node(choice: &Choice) -> Result<OwnedFd> {
    rm::open(PATH).map_err(|error| error.driver_is(choice))
}

/// Whether the driver ties the program's memory to a space; what it may be instead must say the same.
fn ties_memory(choice: &Choice) -> Result<bool> {
    let ties = |driver: &AnyDriver| driver.uvm(MM_INITIALIZE.number).is_some();
    let own = ties(choice.driver());
    match choice.other().is_none_or(|other| ties(other) == own) {
        true => Ok(own),
        false => Err(Error::new(ErrorKind::NotInDriver).call(MM_INITIALIZE).driver_is(choice)),
    }
}

/// Opens a second fd and ties the program's memory to the space of the first.
fn tie_memory(space: BorrowedFd<'_>, choice: &Choice) -> Result<Option<OwnedFd>> {
    let fd = open_node(choice)?;
    let mut params = MmInitialize { uvm_fd: space.as_raw_fd(), status: 0 };
    // SAFETY: `ties_memory` found the call in the driver; its parameters are an fd and a status (a test compares
    // `MmInitialize` with the lock), no address.
    match unsafe { made(fd.as_fd(), MM_INITIALIZE.number, &mut params, |p| p.status) } {
        Ok(()) => Ok(Some(fd)),
        Err(ErrorKind::Status(NOTHING_TO_DO)) => Ok(None),
        Err(kind) => Err(Error::new(kind).call(MM_INITIALIZE).driver_is(choice)),
    }
}

/// Makes a call, again where a signal came before anything was done.
///
/// # Safety
///
/// `P` is what the call takes in this driver, and the addresses in it are those of memory that the driver
/// may use.
unsafe fn made<P>(
    fd: BorrowedFd<'_>,
    request: u32,
    params: &mut P,
    status: impl FnOnce(&P) -> u32,
) -> std::result::Result<(), ErrorKind> {
    loop {
        // SAFETY: the driver reads and writes a `P` there, as the caller promises, and `params` is borrowed for the
        // call.
        if unsafe { libc::ioctl(fd.as_raw_fd(), request as _, std::ptr::from_mut(params)) } != -1 {
            break;
        }
        match std::io::Error::last_os_error().raw_os_error().unwrap_or_default() {
            libc::EINTR => {}
            errno => return Err(ErrorKind::Errno(errno)),
        }
    }
    match NvStatus(status(params)) {
        NvStatus::OK => Ok(()),
        status => Err(ErrorKind::Status(status)),
    }
}

/// What parameters say came of the call; those without a status say nothing, so all went well.
fn status_of<C: Call<Params: Record>>(params: &C::Params) -> u32 {
    let at: Option<usize> = const { offset_of(C::Params::LAYOUT, STATUS, U32) };
    // SAFETY: `offset_of` found an integer of 4 bytes there, in a struct.
    at.map_or(0, |at| unsafe { field_at(params, at) })
}

/// What a call is about: the first of these that its parameters have.
fn object_of<C: Call<Params: Record>>(params: &C::Params) -> Option<UvmObject> {
    let channel: Option<usize> = const { offset_of(C::Params::LAYOUT, CHANNEL, Type::Handle) };
    let base: Option<usize> = const { offset_of(C::Params::LAYOUT, BASES, U64) };
    let length: Option<usize> = const { offset_of(C::Params::LAYOUT, LENGTHS, U64) };
    let group: Option<usize> = const { offset_of(C::Params::LAYOUT, GROUP, U64) };
    let gpu: Option<usize> = const { offset_of(C::Params::LAYOUT, GPUS, Type::Uuid) };
    // SAFETY: `offset_of` found a handle there, in a struct: 4 bytes of an integer.
    let channel = channel.map(|at| UvmObject::Channel(Handle(unsafe { field_at(params, at) })));
    // SAFETY: it is called with what `offset_of` found for `U64`: an integer of 8 bytes in a struct.
    let number = |at: usize| -> u64 { unsafe { field_at(params, at) } };
    let range = base.map(|at| UvmObject::Range { base: number(at), length: length.map(number) });
    // None has the number 0: it means that no event has arrived.
    let group = group.map(number).filter(|group| *group != 0).map(UvmObject::RangeGroup);
    // SAFETY: `offset_of` found a UUID there, in a struct: 16 bytes.
    let gpu = gpu.map(|at| UvmObject::Gpu(Uuid(unsafe { field_at(params, at) })));
    channel.or(range).or(group).or(gpu)
}

const U32: Type = Type::Int { size: 4, signed: false };
const U64: Type = Type::Int { size: 8, signed: false };

/// The driver's names of events and of what calls are about.
const STATUS: &[&str] = &["rmStatus"];
const CHANNEL: &[&str] = &["hChannel"];
const BASES: &[&str] = &["base", "requestedBase", "regionBase"];
const LENGTHS: &[&str] = &["length", "regionLength"];
const GROUP: &[&str] = &["rangeGroupId"];
const GPUS: &[&str] = &["gpuUuid", "gpu_uuid", "gpuUuidA"];

/// A field's value.
///
/// # Safety
///
/// The record is a struct with a field there that is no record, of the size of `T`, and whatever bytes
/// `T` holds are a value of it.
unsafe fn field_at<R: Record, T: Copy>(record: &R, offset: usize) -> T {
    // SAFETY: the field is inside of the record, as the caller promises, and initialised: `Record`
    // promises that of what is in no union.
    unsafe { std::ptr::from_ref(record).byte_add(offset).cast::<T>().read_unaligned() }
}

/// Where a struct has a field of one of some names, and of a type. In a union the bytes of a member need not
/// be initialised.
const fn offset_of(layout: &Layout, names: &[&str], ty: Type) -> Option<usize> {
    if !matches!(layout.kind, LayoutKind::Struct) {
        return None;
    }
    let mut at = 0;
    while at < layout.fields.len() {
        let field = &layout.fields[at];
        if is_same(&field.ty, &ty) && is_one_of(field.name.as_bytes(), names) {
            return Some(field.offset as usize);
        }
        at += 1;
    }
    None
}

const fn is_same(ty: &Type, wanted: &Type) -> bool {
    match (ty, wanted) {
        (Type::Int { size, signed }, Type::Int { size: other, signed: other_signed }) => {
            *size == *other && *signed == *other_signed
        }
        (Type::Handle, Type::Handle) | (Type::Uuid, Type::Uuid) => true,
        _ => false,
    }
}

const fn is_one_of(name: &[u8], names: &[&str]) -> bool {
    let mut at = 0;
    while at < names.len() {
        if is_equal(name, names[at].as_bytes()) {
            return true;
        }
        at += 1;
    }
    false
}

const fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

impl fmt::Display for UvmObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Channel(handle) => write!(f, "channel {handle}"),
            Self::Range { base, length: Some(length) } => {
                write!(f, "{length:#x} bytes at {base:#x}")
            }
            Self::Range { base, length: None } => write!(f, "the range at {base:#x}"),
            Self::RangeGroup(id) => write!(f, "range group {id}"),
            Self::Gpu(uuid) => write!(f, "GPU-{uuid}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(all(feature = "driver-530", feature = "driver-535"))]
    use crate::driver::Compat;

    #[test]
    fn numbers_and_parameters_are_those_of_every_driver() {
        for driver in AnyDriver::all() {
            for call in [INITIALIZE, MM_INITIALIZE, REGISTER_GPU, UNREGISTER_GPU] {
                match driver.uvm(call.number) {
                    Some(info) => assert_eq!(info.name, call.name, "{driver:?}"),
                    None => assert_eq!(call, MM_INITIALIZE, "{driver:?}"),
                }
            }
            if let Some(layout) = driver.layout("UVM_MM_INITIALIZE_PARAMS") {
                let fields: Vec<_> = layout.fields.iter().map(|f| (f.name, f.offset)).collect();
                assert_eq!(fields, [("uvmFd", 0), ("rmStatus", 4)]);
                assert_eq!(layout.size as usize, size_of::<MmInitialize>());
            }
        }
    }

    #[cfg(all(feature = "driver-530", feature = "driver-535"))]
    #[test]
    fn memory_is_not_left_untied_by_a_guess() {
        let ties = |version| {
            let choice =
                Choice::new(version, Compat::SameAbi(&[])).map_err(|error| error.to_string());
            choice.and_then(|choice| ties_memory(&choice).map_err(|error| error.to_string()))
        };
        assert_eq!((ties("530.41.03"), ties("535.43.02")), (Ok(false), Ok(true)));
        let refused =
            "UVM_MM_INITIALIZE (UVM ioctl 0x4b): the driver has no such call (driver 530.9999.01)";
        assert_eq!(ties("530.9999.01"), Err(refused.to_owned()));
    }

    #[test]
    fn what_calls_are_about_is_found_by_the_names_of_fields() {
        let about = |driver: &AnyDriver, name: &str| {
            let layout = driver.layout(name)?;
            let has = |names, ty| offset_of(layout, names, ty).is_some();
            Some([
                has(CHANNEL, Type::Handle),
                has(BASES, U64),
                has(LENGTHS, U64),
                has(GROUP, U64),
                has(GPUS, Type::Uuid),
            ])
        };
        for driver in AnyDriver::all() {
            for (name, expected) in [
                ("UVM_REGISTER_CHANNEL_PARAMS", [true, true, true, false, true]),
                ("UVM_MIGRATE_PARAMS", [false, true, true, false, false]),
                ("UVM_SET_PREFERRED_LOCATION_PARAMS", [false, true, true, false, false]),
                ("UVM_DESTROY_RANGE_GROUP_PARAMS", [false, false, false, true, false]),
                ("UVM_ENABLE_PEER_ACCESS_PARAMS", [false, false, false, false, true]),
                ("UVM_PAGEABLE_MEM_ACCESS_ON_GPU_PARAMS", [false, false, false, false, true]),
                ("UVM_PAGEABLE_MEM_ACCESS_PARAMS", [false; 5]),
            ] {
                assert_eq!(about(driver, name), Some(expected), "{name} of {driver:?}");
            }
        }
    }

    #[test]
    fn nearly_every_call_says_what_came_of_it() {
        for driver in AnyDriver::all() {
            for info in driver.calls().uvm.iter().flat_map(|part| part.iter()) {
                for layout in driver.params(info) {
                    assert!(
                        offset_of(layout, STATUS, U32).is_some(),
                        "{} of {driver:?}",
                        info.name
                    );
                }
            }
        }
    }
}
