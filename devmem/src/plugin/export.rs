//! The other side: a Rust driver as a plugin.

use std::collections::HashMap;
use std::ffi::{CString, c_int};
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::sync::{Mutex, OnceLock, PoisonError};

use nix::libc::{EBADF, EINVAL, EIO, ENODEV, ENOTSUP};

use super::abi::{
    self, AddFn, Pointer, RawDevice, RawDriver, RawHint, RawImage, RawMemory, RawSet, RawSink,
    RawTransition, RawUse, value,
};
use super::raw::{LentSet, details_of, image_of, list, memory_of, set_of};
use crate::buffer::Buffer;
use crate::capability::CapabilitySet;
use crate::driver::{Device, Driver, Hint, Import};
use crate::error::{Error, ErrorKind, Result};
use crate::usage::{Operation, Usage, Use};

/// Makes a shared library a plugin: `devmem_plugin!(MyDriver)`, once in a crate of type `cdylib`,
/// with an expression whose type implements [`Driver`](crate::Driver). Its devices are asked
/// for once, when the library is loaded.
#[macro_export]
macro_rules! devmem_plugin {
    ($driver:expr) => {
        /// The driver of this plugin, as `nvabi-devmem.h` has it.
        #[unsafe(no_mangle)]
        pub extern "C" fn nvabi_devmem_driver_v1() -> *const $crate::plugin::abi::RawDriver {
            $crate::plugin::export(|| ::std::boxed::Box::new($driver))
        }
    };
}

struct State {
    raw: RawDriver,
    /// What `raw` points to.
    _name: CString,
    devices: Vec<Box<dyn Device>>,
    imports: Mutex<Imports>,
}

#[derive(Default)]
struct Imports {
    taken: HashMap<u64, Box<dyn Import>>,
    last: u64,
}

/// A shared library has one driver, so it has one state.
static STATE: OnceLock<Option<State>> = OnceLock::new();

/// What `devmem_plugin!` calls. Null when the driver cannot tell its devices.
#[doc(hidden)]
pub fn export(driver: fn() -> Box<dyn Driver>) -> *const RawDriver {
    let state = STATE.get_or_init(|| {
        let driver = driver();
        let name = CString::new(driver.name()).ok()?;
        let raw = RawDriver {
            version: value::VERSION,
            size: size_of::<RawDriver>() as u32,
            name: Pointer(name.as_ptr()),
            device: Pointer(Some(device)),
            sets: Pointer(Some(sets)),
            cost: Pointer(Some(cost)),
            allocate: Pointer(Some(allocate)),
            import: Pointer(Some(import)),
            release: Pointer(Some(release)),
            transition: Pointer(Some(transition)),
            sets_for: Pointer(Some(sets_for)),
            hints: Pointer(Some(hints)),
            allocate_files: Pointer(Some(allocate_files)),
            import_files: Pointer(Some(import_files)),
        };
        let imports = Mutex::default();
        let devices = driver.devices().ok()?.into_iter().flatten().collect();
        Some(State { raw, _name: name, devices, imports })
    });
    state.as_ref().map_or(std::ptr::null(), |state| &raw const state.raw)
}

fn state() -> Option<&'static State> {
    STATE.get()?.as_ref()
}

fn of(index: u32) -> Option<&'static dyn Device> {
    state()?.devices.get(usize::try_from(index).ok()?).map(|device| &**device)
}

fn number(error: &Error) -> c_int {
    let of_kind = match error.kind() {
        ErrorKind::Unsupported => ENOTSUP,
        ErrorKind::Invalid | ErrorKind::Mismatch => EINVAL,
        _ => EIO,
    };
    -error.errno().unwrap_or(of_kind)
}

/// Copies a text with room for a zero byte behind it.
fn put(to: &mut [u8], text: &str) -> Option<()> {
    let room = to.get_mut(..=text.len())?;
    room[..text.len()].copy_from_slice(text.as_bytes());
    room[text.len()] = 0;
    Some(())
}

unsafe extern "C" fn device(index: u32, out: *mut RawDevice) -> c_int {
    let Some(device) = of(index) else { return -ENODEV };
    let info = device.info();
    let operations =
        info.operations.iter().fold(0, |bits, operation| bits | 1 << *operation as u32);
    let flags = [(info.allocates, value::ALLOCATES), (info.imports, value::IMPORTS)];
    let flags = flags.iter().filter(|(is, _)| *is).fold(0, |flags, (_, flag)| flags | flag);
    let mut raw = RawDevice { name: [0; 64], node: [0; 128], operations, flags };
    if put(&mut raw.name, &info.name).and(put(&mut raw.node, &info.node)).is_none() {
        return -EINVAL;
    }
    // SAFETY: who calls this gives, by the header, a pointer to a `RawDevice` that may be written.
    unsafe { out.write(raw) };
    0
}

unsafe extern "C" fn sets(
    index: u32,
    image: *const RawImage,
    operation: u32,
    sink: *const RawSink,
) -> c_int {
    // SAFETY: who calls this gives, by the header, pointers to a `RawImage` and a `RawSink` that stay as they are
    // until this returns, or nulls.
    let (Some(image), Some(sink)) = (unsafe { image.as_ref() }, unsafe { sink.as_ref() }) else {
        return -EINVAL;
    };
    let Some(device) = of(index) else { return -ENODEV };
    let (Some(operation), Pointer(Some(add))) = (Operation::from_number(operation), sink.add)
    else {
        return -EINVAL;
    };
    // SAFETY: the context came with `add`.
    unsafe { hand_on(device.sets(&image_of(image), operation), add, sink) }
}

/// Gives sets to a sink.
///
/// # Safety
///
/// `add` is the sink's, and takes its context.
unsafe fn hand_on(found: Result<Vec<CapabilitySet>>, add: AddFn, sink: &RawSink) -> c_int {
    let sets = match found {
        Ok(sets) => sets,
        Err(error) => return number(&error),
    };
    for set in &sets {
        let Some(lent) = LentSet::new(set) else { return -EINVAL };
        let raw = lent.raw();
        // SAFETY: `add` asks for the context that came with it, and for a set that is there while it
        // runs: `raw` points into `lent`, and both are dropped after it.
        unsafe { add(sink.context.0, &raw const raw) };
    }
    0
}

unsafe extern "C" fn sets_for(index: u32, wanted: *const RawUse, sink: *const RawSink) -> c_int {
    // SAFETY: who calls this gives, by the header, pointers to a `RawUse` and a `RawSink` that stay as they are until
    // this returns, or nulls.
    let (Some(wanted), Some(sink)) = (unsafe { wanted.as_ref() }, unsafe { sink.as_ref() }) else {
        return -EINVAL;
    };
    let Some(device) = of(index) else { return -ENODEV };
    let operation = Operation::from_number(wanted.operation);
    // SAFETY: by the header, so many details are there with their payloads until this returns.
    let details = unsafe { details_of(wanted.details.0, wanted.detail_count) };
    let (Some(operation), Ok(details), Pointer(Some(add))) = (operation, details, sink.add) else {
        return -EINVAL;
    };
    let usage = Usage::new(image_of(&wanted.image), Vec::new());
    let mut wanted = Use::new(device.info().name.clone(), operation);
    wanted.details = details;
    // SAFETY: the context came with `add`.
    unsafe { hand_on(device.sets_for(&usage, &wanted), add, sink) }
}

unsafe extern "C" fn hints(index: u32, operation: u32, out: *mut RawHint, capacity: u32) -> c_int {
    let Some(device) = of(index) else { return -ENODEV };
    let Some(operation) = Operation::from_number(operation) else { return -EINVAL };
    let found = match device.hints(operation) {
        Ok(found) => found,
        Err(error) => return number(&error),
    };
    if out.is_null() && capacity > 0 {
        return -EINVAL;
    }
    for (at, hint) in found.iter().enumerate().take(capacity as usize) {
        let Hint { format, max_width, max_height } = *hint;
        let raw = RawHint { format: format.0, max_width, max_height, reserved: 0 };
        // SAFETY: who calls this gives, by the header, room for `capacity` hints, of which this is one.
        unsafe { out.add(at).write(raw) };
    }
    c_int::try_from(found.len()).unwrap_or(-EINVAL)
}

unsafe extern "C" fn cost(index: u32, set: *const RawSet) -> u64 {
    // SAFETY: who calls this gives, by the header, a pointer to a `RawSet` that stays as it is until this
    // returns, or null.
    let set = unsafe { set.as_ref() };
    // SAFETY: by the header, so do the lists that it points to, with as many elements as it says.
    let set = set.and_then(|set| unsafe { set_of(set) }.ok());
    match (of(index), set) {
        (Some(device), Some(set)) => device.cost(&set),
        _ => 0,
    }
}

unsafe extern "C" fn allocate(index: u32, memory: *const RawMemory) -> c_int {
    let Some(device) = of(index) else { return -ENODEV };
    // SAFETY: who calls this gives, by the header, a pointer to a `RawMemory` that stays as it is until this
    // returns, or null.
    let Some(memory) = (unsafe { memory.as_ref() }) else { return -EINVAL };
    // SAFETY: by the header, so do the lists that it points to, with as many elements as it says.
    let Ok(description) = (unsafe { memory_of(memory) }) else { return -EINVAL };
    match device.allocate(&description).and_then(|buffer| buffer.export()) {
        Ok(fd) => fd.into_raw_fd(),
        Err(error) => number(&error),
    }
}

unsafe extern "C" fn allocate_files(index: u32, memory: *const RawMemory, out: *mut i32) -> c_int {
    let Some(device) = of(index) else { return -ENODEV };
    // SAFETY: who calls this gives, by the header, a pointer to a `RawMemory` that stays as it is until this
    // returns, or null.
    let Some(memory) = (unsafe { memory.as_ref() }) else { return -EINVAL };
    // SAFETY: by the header, so do the lists that it points to, with as many elements as it says.
    let Ok(description) = (unsafe { memory_of(memory) }) else { return -EINVAL };
    let planes = 0..description.layout.planes.len();
    if out.is_null() {
        return -EINVAL;
    }
    let made = device.allocate_files(&description);
    // A descriptor is all that goes to the caller, so that each plane must begin its file.
    let alone = |buffer: &Buffer, at| match buffer.export_plane(at)? {
        (fd, plane) if plane.offset == 0 => Ok(fd),
        (_, plane) => {
            Err(Error::invalid(format!("plane {at} is at {} of its file, not at 0", plane.offset)))
        }
    };
    let files =
        made.and_then(|buffer| planes.map(|at| alone(&buffer, at)).collect::<Result<Vec<_>>>());
    match files {
        Ok(files) => {
            for (at, fd) in files.into_iter().enumerate() {
                // SAFETY: who calls this gives, by the header, room for a descriptor for each plane.
                unsafe { out.add(at).write(fd.into_raw_fd()) };
            }
            0
        }
        Err(error) => number(&error),
    }
}

unsafe extern "C" fn import(
    index: u32,
    fd: c_int,
    memory: *const RawMemory,
    handle: *mut u64,
) -> c_int {
    // SAFETY: who calls this gives, by the header, one descriptor, which is here, and the rest as this asks for it.
    unsafe { import_files(index, &raw const fd, 1, memory, handle) }
}

unsafe extern "C" fn import_files(
    index: u32,
    fds: *const i32,
    count: u32,
    memory: *const RawMemory,
    handle: *mut u64,
) -> c_int {
    let (Some(state), Some(device)) = (state(), of(index)) else { return -ENODEV };
    // SAFETY: who calls this gives, by the header, so many descriptors that stay as they are until this returns.
    let Ok(fds) = (unsafe { list(fds, count, "descriptors") }) else { return -EINVAL };
    if fds.iter().any(|fd| *fd < 0) {
        return -EBADF;
    }
    // SAFETY: who calls this gives, by the header, pointers to a `RawMemory` that stays as it is until this
    // returns and to a `uint64_t` that nobody else uses meanwhile, or nulls.
    let (Some(memory), Some(handle)) = (unsafe { memory.as_ref() }, unsafe { handle.as_mut() })
    else {
        return -EINVAL;
    };
    // SAFETY: by the header, so do the lists that it points to, with as many elements as it says.
    let Ok(description) = (unsafe { memory_of(memory) }) else { return -EINVAL };
    // SAFETY: who calls this keeps, by the header, the descriptors open until this returns; none is -1.
    let own = |fd: &i32| unsafe { BorrowedFd::borrow_raw(*fd) }.try_clone_to_owned();
    let Ok(fds) = fds.iter().map(own).collect() else { return -EBADF };
    match Buffer::in_pieces(fds, description).and_then(|buffer| device.import(&buffer)) {
        Ok(taken) => {
            let mut imports = state.imports.lock().unwrap_or_else(PoisonError::into_inner);
            imports.last += 1;
            *handle = imports.last;
            imports.taken.insert(*handle, taken);
            0
        }
        Err(error) => number(&error),
    }
}

unsafe extern "C" fn release(_index: u32, handle: u64) {
    let Some(state) = state() else { return };
    let mut imports = state.imports.lock().unwrap_or_else(PoisonError::into_inner);
    let taken = imports.taken.remove(&handle);
    drop(imports);
    drop(taken);
}

unsafe extern "C" fn transition(index: u32, from: u32, to: u32, out: *mut RawTransition) -> c_int {
    let operations = (Operation::from_number(from), Operation::from_number(to));
    let (Some(device), (Some(from), Some(to))) = (of(index), operations) else { return -EINVAL };
    // SAFETY: who calls this gives, by the header, a pointer to a `RawTransition` that may be written.
    unsafe { out.write(abi::transition(device.transition(from, to))) };
    0
}
