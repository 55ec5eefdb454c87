//! The functions of `nvabi-alloc.h`: what is behind them is `nvabi-devmem`.
//!
//! Nothing here unwinds into C, and nothing is trusted but that pointers lead to what the header says.

pub mod memory;

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::IntoRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

use nvabi_devmem::drivers::{enumerate, of_number};
use nvabi_devmem::plugin::abi::{RawDevice, RawImage, RawPlane};
use nvabi_devmem::plugin::applications::{self, RawBuffer, RawUsage, RawUse};
use nvabi_devmem::plugin::{details_of, drivers};
use nvabi_devmem::{
    CapabilitySet, Device, DeviceInfo, Error, ErrorKind, Fourcc, Image, Made, Operation, Prober,
    Usage, Use,
};

/// What `nvabi_alloc_open` gives.
#[derive(Debug)]
pub struct Alloc {
    devices: Vec<Box<dyn Device>>,
    prober: Prober,
    problems: Vec<CString>,
}

impl Alloc {
    fn device(&self, name: &str) -> Result<&dyn Device, Failure> {
        let found = self.devices.iter().find(|device| device.info().name == name);
        found.map(|device| &**device).ok_or_else(|| (ENODEV, format!("there is no device {name}")))
    }
}

/// What the header says.
const NVABI_ALLOC_VERSION: u32 = applications::VERSION;

/// An error number, and its text.
type Failure = (c_int, String);

/// Numbers of errno.h.
const ENOMEM: c_int = 12;
const ENODEV: c_int = 19;
const EINVAL: c_int = 22;
const ENOTSUP: c_int = 95;
const ETIMEDOUT: c_int = 110;
const EIO: c_int = 5;

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

/// A text for C, which a zero byte would end.
fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

fn remember(text: &str) {
    let text = c_text(text);
    ERROR.with(|error| *error.borrow_mut() = text);
}

/// Runs the body of a function: what it gives, or an error number and its text.
fn answer(body: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    remember("");
    let ended = catch_unwind(AssertUnwindSafe(body));
    let (number, text) = match ended {
        Ok(Ok(answer)) => return answer,
        Ok(Err(error)) => error,
        Err(_) => (EIO, "a mistake in nvabi: it is told on stderr".to_owned()),
    };
    remember(&text);
    -number
}

fn failed(error: Error) -> Failure {
    let number = error.errno().unwrap_or(match error.kind() {
        ErrorKind::Invalid | ErrorKind::Format | ErrorKind::Mismatch => EINVAL,
        ErrorKind::Timeout => ETIMEDOUT,
        ErrorKind::Open => ENODEV,
        _ => ENOTSUP,
    });
    (number, error.to_string())
}

fn invalid(text: &str) -> Failure {
    (EINVAL, text.to_owned())
}

fn count(of: usize) -> Result<c_int, Failure> {
    c_int::try_from(of).map_err(|_| (ENOMEM, format!("{of} are too many")))
}

/// What a pointer of the caller leads to.
///
/// # Safety
///
/// It is null or leads to a `T` that stays while `'a` lasts.
unsafe fn lent<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| invalid(&format!("{name} is null")))
}

/// No list is longer: a count that is, was never set.
const MOST: u32 = 1 << 16;

/// No later header has a larger struct.
const LARGEST: usize = 4096;

/// So many items of the caller.
///
/// # Safety
///
/// It leads to so many items that stay while `'a` lasts, or there are none.
unsafe fn lent_list<'a, T>(pointer: *const T, count: u32, name: &str) -> Result<&'a [T], Failure> {
    match (count, pointer.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(invalid(&format!("{name} is null"))),
        (count, _) if count > MOST => {
            Err(invalid(&format!("{count} {name} are more than {MOST}: the count was never set?")))
        }
        _ if !pointer.is_aligned() => Err(invalid(&format!("{name} is not aligned"))),
        // SAFETY: the caller's promise; so many items are fewer bytes than `isize::MAX`.
        (count, false) => Ok(unsafe { slice::from_raw_parts(pointer, count as usize) }),
    }
}

/// Copies what has room in a list of the caller; gives how many there are.
///
/// # Safety
///
/// It leads to room for `capacity` items, or that is 0.
unsafe fn hand_out<T: Copy>(items: &[T], to: *mut T, capacity: u32) -> Result<c_int, Failure> {
    let fits = items.len().min(capacity as usize);
    if fits > 0 && to.is_null() {
        return Err(invalid("there is no list to fill"));
    }
    for (at, item) in items[..fits].iter().enumerate() {
        // SAFETY: `at` is below the caller's capacity.
        unsafe { to.add(at).write(*item) };
    }
    count(items.len())
}

/// # Safety
///
/// It is null or a text that ends with a zero byte and stays while `'a` lasts.
unsafe fn name_of<'a>(name: *const c_char) -> Result<&'a str, Failure> {
    if name.is_null() {
        return Err(invalid("a device has no name"));
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_str().map_err(|_| invalid("the name of a device is no UTF-8"))
}

/// # Safety
///
/// The device's name is a text that ends with a zero byte, and as many details are there as it says.
unsafe fn use_of(raw: &RawUse) -> Result<Use, Failure> {
    // SAFETY: the caller's promise.
    let name = unsafe { name_of(raw.device.0)? };
    let operation = Operation::from_number(raw.operation)
        .ok_or_else(|| invalid(&format!("{} is no operation", raw.operation)))?;
    // SAFETY: the caller's promise.
    let details = unsafe { details_of(raw.details.0, raw.detail_count) };
    let mut wanted = Use::new(name, operation);
    wanted.details = details.map_err(|what| invalid(&what))?;
    Ok(wanted)
}

/// # Safety
///
/// As the header says of `image`, `uses` and `use_count`.
unsafe fn asked(
    alloc: &Alloc,
    image: *const RawImage,
    uses: *const RawUse,
    use_count: u32,
) -> Result<Usage, Failure> {
    // SAFETY: the caller's promise.
    let (image, uses) = unsafe { (lent(image, "image")?, lent_list(uses, use_count, "uses")?) };
    // SAFETY: the caller's promise holds of each.
    let uses: Vec<Use> =
        uses.iter().map(|each| unsafe { use_of(each) }).collect::<Result<_, _>>()?;
    if uses.is_empty() {
        return Err(invalid("memory that nobody uses"));
    }
    uses.iter().try_for_each(|each| alloc.device(&each.device).map(drop))?;
    Ok(Usage::new(image_of(image)?, uses))
}

/// The image of a caller, which has pixels.
fn image_of(raw: &RawImage) -> Result<Image, Failure> {
    let RawImage { width, height, format, reserved } = *raw;
    if reserved != 0 {
        return Err(invalid(&format!("reserved of the image is {reserved}")));
    }
    let image = Image::new(width, height, Fourcc(format));
    match [width, height, format].contains(&0) {
        true => Err(invalid(&format!("an image of {width}x{height} with format {format:#x}"))),
        false => Ok(image),
    }
}

/// # Safety
///
/// As the header says of a `nvabi_alloc_usage`.
unsafe fn asked_for(alloc: &Alloc, raw: *const RawUsage) -> Result<Usage, Failure> {
    // SAFETY: the caller's promise; the size is the first field.
    let size = unsafe { *lent(raw.cast::<u32>(), "usage")? } as usize;
    let known = size_of::<RawUsage>();
    if !(known..=LARGEST).contains(&size) {
        let what = format!("struct_size of the usage is {size}, not {known} to {LARGEST}");
        return Err(invalid(&what));
    }
    // SAFETY: so many bytes are the caller's, by its own word.
    let newer = unsafe { slice::from_raw_parts(raw.cast::<u8>().add(known), size - known) };
    if newer.iter().any(|byte| *byte != 0) {
        return Err(invalid("the usage has a field that is not known here"));
    }
    // SAFETY: it is not null, and has as many bytes at least.
    let raw = unsafe { &*raw };
    if raw.reserved != 0 {
        return Err(invalid(&format!("reserved of the usage is {}", raw.reserved)));
    }
    // SAFETY: the caller's promise.
    let usage = unsafe { asked(alloc, &raw.image, raw.uses.0, raw.use_count)? };
    // SAFETY: the caller's promise.
    let details = unsafe { details_of(raw.details.0, raw.detail_count) };
    Ok(Usage { details: details.map_err(|what| invalid(&what))?, ..usage })
}

fn text<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    // The last one stays zero.
    bytes.iter_mut().take(N - 1).zip(text.bytes()).for_each(|(to, from)| *to = from);
    bytes
}

fn raw_device(info: &DeviceInfo) -> RawDevice {
    let bits = info.operations.iter().fold(0, |bits, operation| bits | 1 << *operation as u32);
    let flags = u32::from(info.allocates) | u32::from(info.imports) << 1;
    RawDevice { name: text(&info.name), node: text(&info.node), operations: bits, flags }
}

/// The version of the interface, as the header has it.
#[unsafe(no_mangle)]
pub extern "C" fn nvabi_alloc_version() -> u32 {
    NVABI_ALLOC_VERSION
}

/// The devices of this machine; null when something is badly wrong.
#[unsafe(no_mangle)]
pub extern "C" fn nvabi_alloc_open() -> *mut Alloc {
    remember("");
    let opened = catch_unwind(|| {
        let plugins = drivers();
        let found = enumerate(&plugins.drivers);
        let problems = plugins.problems.iter().map(ToString::to_string);
        let of_drivers = found.problems.iter().map(|(driver, error)| format!("{driver}: {error}"));
        let problems = problems.chain(of_drivers).map(|text| c_text(&text)).collect();
        let prober = Prober::default();
        Box::into_raw(Box::new(Alloc { devices: found.devices, prober, problems }))
    });
    opened.unwrap_or_else(|_| {
        remember("a mistake in nvabi: it is told on stderr");
        std::ptr::null_mut()
    })
}

/// # Safety
///
/// `alloc` is what [`nvabi_alloc_open`] gave, and nobody uses it any more; or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvabi_alloc_close(alloc: *mut Alloc) {
    if !alloc.is_null() {
        // SAFETY: it came out of a box, and the caller gives it back.
        drop(unsafe { Box::from_raw(alloc) });
    }
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvabi_alloc_problem(alloc: *const Alloc, index: u32) -> *const c_char {
    // SAFETY: the header's promise.
    let alloc = unsafe { alloc.as_ref() };
    let problem = alloc.and_then(|alloc| alloc.problems.get(index as usize));
    problem.map_or(std::ptr::null(), |text| text.as_ptr())
}

/// # Safety
///
/// As the header says: nobody else uses `alloc` meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvabi_alloc_prefer(
    alloc: *mut Alloc,
    devices: *const *const c_char,
    device_count: u32,
) -> c_int {
    answer(|| {
        // SAFETY: the header's promise.
        let names = unsafe { lent_list(devices, device_count, "devices")? };
        // SAFETY: the header's promise, that nobody else uses it too.
        let alloc = unsafe { alloc.as_mut() }.ok_or_else(|| invalid("alloc is null"))?;
        // SAFETY: the header's promise holds of each.
        let names = names.iter().map(|name| unsafe { name_of(*name) });
        let names: Vec<&str> = names.collect::<Result<_, _>>()?;
        names.iter().try_for_each(|name| alloc.device(name).map(drop))?;
        let prober = std::mem::take(&mut alloc.prober);
        alloc.prober = prober.prefer(names.iter().map(|name| (*name).to_owned()));
        Ok(0)
    })
}

/// Why the last function of this thread failed.
#[unsafe(no_mangle)]
pub extern "C" fn nvabi_alloc_error() -> *const c_char {
    ERROR.with(|error| error.borrow().as_ptr())
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvabi_alloc_device(
    alloc: *const Alloc,
    index: u32,
    device: *mut RawDevice,
) -> c_int {
    // SAFETY: the header's promise.
    answer(|| unsafe {
        describe(alloc, device, |devices| devices.get(index as usize).map(|it| &**it))
    })
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvabi_alloc_device_of_fd(
    alloc: *const Alloc,
    fd: c_int,
    device: *mut RawDevice,
) -> c_int {
    answer(|| {
        // What the descriptor leads to; nothing is opened or closed.
        let file = std::fs::metadata(format!("/proc/self/fd/{fd}"));
        let file = file.map_err(|error| invalid(&format!("file descriptor {fd}: {error}")))?;
        let number = std::os::unix::fs::MetadataExt::rdev(&file);
        // SAFETY: the header's promise.
        unsafe { describe(alloc, device, |devices| of_number(devices, number).first().copied()) }
    })
}

/// # Safety
///
/// `alloc` was opened and not closed; `to` leads to room for a device.
unsafe fn describe<'a>(
    alloc: *const Alloc,
    to: *mut RawDevice,
    find: impl FnOnce(&'a [Box<dyn Device>]) -> Option<&'a dyn Device>,
) -> Result<c_int, Failure> {
    // SAFETY: the caller's promise.
    let alloc: &'a Alloc = unsafe { lent(alloc, "alloc")? };
    let found =
        find(&alloc.devices).ok_or_else(|| (ENODEV, "there is no such device".to_owned()))?;
    if to.is_null() {
        return Err(invalid("device is null"));
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(raw_device(found.info())) };
    Ok(0)
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvabi_alloc_formats(
    alloc: *const Alloc,
    wanted: *const RawUse,
    list: *mut u32,
    capacity: u32,
) -> c_int {
    answer(|| {
        // SAFETY: the header's promise.
        let (alloc, wanted) = unsafe { (lent(alloc, "alloc")?, use_of(lent(wanted, "use")?)?) };
        let found = alloc.device(&wanted.device)?.hints_for(&wanted).map_err(failed)?;
        let numbers: Vec<u32> = found.iter().map(|hint| hint.format.0).collect();
        // SAFETY: the header's promise.
        unsafe { hand_out(&numbers, list, capacity) }
    })
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvabi_alloc_max_size(
    alloc: *const Alloc,
    wanted: *const RawUse,
    format: u32,
    width: *mut u32,
    height: *mut u32,
) -> c_int {
    answer(|| {
        // SAFETY: the header's promise.
        let (alloc, wanted) = unsafe { (lent(alloc, "alloc")?, use_of(lent(wanted, "use")?)?) };
        let hints = alloc.device(&wanted.device)?.hints_for(&wanted).map_err(failed)?;
        let hint = hints.iter().find(|hint| hint.format == Fourcc(format));
        let hint = hint.ok_or_else(|| (ENOTSUP, format!("{wanted} of {}", Fourcc(format))))?;
        // SAFETY: the header's promise.
        unsafe {
            hand_out(&[hint.max_width], width, 1)?;
            hand_out(&[hint.max_height], height, 1)?;
        }
        Ok(0)
    })
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvabi_alloc_modifiers(
    alloc: *const Alloc,
    image: *const RawImage,
    uses: *const RawUse,
    use_count: u32,
    list: *mut u64,
    capacity: u32,
) -> c_int {
    answer(|| {
        // SAFETY: the header's promise.
        let alloc = unsafe { lent(alloc, "alloc")? };
        // SAFETY: the header's promise.
        let usage = unsafe { asked(alloc, image, uses, use_count)? };
        // SAFETY: the header's promise.
        unsafe { modifiers(alloc, &usage, list, capacity) }
    })
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvabi_alloc_modifiers_for(
    alloc: *const Alloc,
    usage: *const RawUsage,
    list: *mut u64,
    capacity: u32,
) -> c_int {
    answer(|| {
        // SAFETY: the header's promise.
        let alloc = unsafe { lent(alloc, "alloc")? };
        // SAFETY: the header's promise.
        unsafe { modifiers(alloc, &asked_for(alloc, usage)?, list, capacity) }
    })
}

/// # Safety
///
/// `list` leads to room for `capacity` numbers.
unsafe fn modifiers(
    alloc: &Alloc,
    usage: &Usage,
    list: *mut u64,
    capacity: u32,
) -> Result<c_int, Failure> {
    let sets = alloc.prober.sets_for(&alloc.devices, usage).map_err(failed)?;
    let mut modifiers: Vec<u64> = sets.iter().filter_map(CapabilitySet::modifier).collect();
    modifiers.sort_unstable();
    modifiers.dedup();
    // SAFETY: the caller's promise.
    unsafe { hand_out(&modifiers, list, capacity) }
}

/// What the caller says that its buffer has of bytes: as many as are written, or more.
///
/// # Safety
///
/// It is null or leads to a size, and so many bytes are the caller's.
unsafe fn struct_size_of(buffer: *const RawBuffer) -> Result<u32, Failure> {
    // SAFETY: the caller's promise; the size is the first field.
    let size = unsafe { *lent(buffer.cast::<u32>(), "buffer")? };
    let known = size_of::<RawBuffer>();
    match (size as usize) < known {
        true => Err(invalid(&format!("struct_size of the buffer is {size}, not {known} or more"))),
        false => Ok(size),
    }
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvabi_alloc_make(
    alloc: *const Alloc,
    image: *const RawImage,
    uses: *const RawUse,
    use_count: u32,
    modifiers: *const u64,
    modifier_count: u32,
    buffer: *mut RawBuffer,
) -> c_int {
    answer(|| {
        // SAFETY: the header's promise.
        let alloc = unsafe { lent(alloc, "alloc")? };
        // SAFETY: the header's promise.
        let usage = unsafe { asked(alloc, image, uses, use_count)? };
        // SAFETY: the header's promise.
        unsafe { make(alloc, usage, modifiers, modifier_count, buffer) }
    })
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvabi_alloc_make_for(
    alloc: *const Alloc,
    usage: *const RawUsage,
    modifiers: *const u64,
    modifier_count: u32,
    buffer: *mut RawBuffer,
) -> c_int {
    answer(|| {
        // SAFETY: the header's promise.
        let alloc = unsafe { lent(alloc, "alloc")? };
        // SAFETY: the header's promise.
        unsafe { make(alloc, asked_for(alloc, usage)?, modifiers, modifier_count, buffer) }
    })
}

/// # Safety
///
/// As the header says of `modifiers`, `modifier_count` and `buffer`.
unsafe fn make(
    alloc: &Alloc,
    usage: Usage,
    modifiers: *const u64,
    modifier_count: u32,
    buffer: *mut RawBuffer,
) -> Result<c_int, Failure> {
    // SAFETY: the caller's promise.
    let modifiers = unsafe { lent_list(modifiers, modifier_count, "modifiers")? };
    // SAFETY: the caller's promise, of as many bytes as the first field says.
    let struct_size = unsafe { struct_size_of(buffer)? };
    let wanted = |set: &CapabilitySet| {
        modifiers.is_empty() || set.modifier().is_some_and(|has| modifiers.contains(&has))
    };
    let made = alloc.prober.serve(&alloc.devices, &usage, wanted).map_err(failed)?;
    let raw = handed_on(&made, struct_size)?;
    // SAFETY: the caller's promise, and it has as many bytes at least.
    unsafe { buffer.write(raw) };
    Ok(0)
}

/// What C gets of memory: its descriptors are the caller's from here on.
fn handed_on(made: &Made, struct_size: u32) -> Result<RawBuffer, Failure> {
    let layout = &made.buffer.description().layout;
    let none = RawPlane { offset: 0, pitch: 0, size: 0 };
    let mut raw = RawBuffer {
        struct_size,
        plane_count: 0,
        modifier: layout.modifier,
        size: layout.size,
        planes: [none; 4],
        fds: [-1; 4],
        allocator: text(&made.by),
    };
    if layout.planes.len() > raw.planes.len() {
        return Err(invalid("the image has more than four planes"));
    }
    // All of them first: where one cannot be made, the others are closed again.
    let planes = (0..layout.planes.len()).map(|plane| made.buffer.export_plane(plane));
    let planes: Vec<_> = planes.collect::<Result<_, _>>().map_err(failed)?;
    for (fd, plane) in planes {
        let at = raw.plane_count as usize;
        raw.planes[at] = RawPlane { offset: plane.offset, pitch: plane.pitch, size: plane.size };
        raw.fds[at] = fd.into_raw_fd();
        raw.plane_count += 1;
    }
    Ok(raw)
}
