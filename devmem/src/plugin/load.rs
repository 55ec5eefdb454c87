//! A plugin, once it is loaded.

use std::ffi::{CStr, c_int};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use libloading::Library;

use super::abi::{
    self, ENTRY, EntryFn, Pointer, RawDevice, RawDriver, RawHint, RawTransition, RawUse, value,
};
use super::raw::{self, Collected, LentMemory, LentSet, image};
use crate::buffer::{Buffer, Description};
use crate::capability::CapabilitySet;
use crate::driver::{Device, DeviceInfo, Driver, Hint, Import, Listed, Transition};
use crate::drivers;
use crate::error::{Error, ErrorKind, Result};
use crate::usage::{Fourcc, Image, Operation, Usage, Use, check_name};

/// More devices than this are not devices, but a plugin that never ends.
const MOST_DEVICES: u32 = 1024;

/// There are no more formats than this.
const MOST_HINTS: u32 = 1 << 16;

/// A driver in a shared library.
#[derive(Debug, Clone)]
pub struct Plugin {
    name: String,
    path: String,
    raw: RawDriver,
    /// Keeps the library loaded: `raw` points into it.
    _library: Arc<Library>,
}

/// Whether a library is shorter than what it says is to be loaded: whoever loads it dies of SIGBUS. What is no 64-bit
/// ELF of this machine's byte order is for the loader to refuse.
fn is_cut(path: &Path) -> io::Result<bool> {
    const HEADER: [u8; 6] =
        [0x7f, b'E', b'L', b'F', 2, if cfg!(target_endian = "big") { 2 } else { 1 }];
    const ENTRY: usize = 56;
    const LOAD: u32 = 1;
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0)?;
    let short = |bytes: &[u8], at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    let long =
        |bytes: &[u8], at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    let (begin, size, count) = (long(&header, 32), short(&header, 54), short(&header, 56));
    if !header.starts_with(&HEADER) || usize::from(size) != ENTRY {
        return Ok(false);
    }
    for index in 0..u64::from(count) {
        let mut entry = [0; ENTRY];
        let at = begin.saturating_add(index * ENTRY as u64);
        if file.read_exact_at(&mut entry, at).is_err() {
            return Ok(true);
        }
        let kind = u32::from_ne_bytes([entry[0], entry[1], entry[2], entry[3]]);
        if kind == LOAD && long(&entry, 8).saturating_add(long(&entry, 32)) > length {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Plugin {
    /// Loads a library and asks it for its driver.
    ///
    /// # Safety
    ///
    /// The library is a plugin as `include/nvabi-devmem.h` has it, or exports no such entry: what it runs when
    /// it is loaded, and what its functions do with pointers, nobody checks.
    ///
    /// # Errors
    ///
    /// When it cannot be loaded, is no plugin, or is one of another version.
    pub unsafe fn load(path: &Path) -> Result<Self> {
        let shown = path.display().to_string();
        let wrong = |what: String| Error::new(ErrorKind::Plugin, format!("{shown}: {what}"));
        // Opening a FIFO waits for ever. A name without a folder is looked for where the system has its libraries.
        let is_path = path.components().count() > 1;
        if is_path && std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(wrong("it is no file".to_owned()));
        }
        if is_path && is_cut(path).unwrap_or(false) {
            return Err(wrong("it is cut short".to_owned()));
        }
        // SAFETY: the caller vouches for what the library runs when it is loaded.
        let library = unsafe { Library::new(path) }.map_err(|error| wrong(error.to_string()))?;
        // SAFETY: a library that exports this name does so as the header declares it: with this type.
        let entry = unsafe { library.get::<EntryFn>(ENTRY) };
        let entry = *entry.map_err(|error| wrong(format!("it is no plugin: {error}")))?;
        // SAFETY: the function takes nothing.
        let given = unsafe { entry() };
        if given.is_null() {
            return Err(wrong("it gives no driver".to_owned()));
        }
        // SAFETY: it is not null, and by the header begins with these two numbers, whatever its version is.
        let (version, size) =
            unsafe { ((&raw const (*given).version).read(), (&raw const (*given).size).read()) };
        if version != value::VERSION || (size as usize) < RawDriver::SHORTEST {
            let what = format!(
                "it is of version {version}, {size} bytes; this is version {}, {} bytes",
                value::VERSION,
                RawDriver::SHORTEST
            );
            return Err(wrong(what));
        }
        let mut driver = RawDriver::NONE;
        // SAFETY: by the header, so many bytes are there and stay as they are while the library is loaded. No more are
        // copied than `driver` has; each of its fields is there wholly or not at all, as both ends are ends of fields.
        unsafe {
            let length = (size as usize).min(size_of::<RawDriver>()) / size_of::<usize>()
                * size_of::<usize>();
            given.cast::<u8>().copy_to_nonoverlapping((&raw mut driver).cast(), length);
        }
        if driver.name.0.is_null() {
            return Err(wrong("its driver has no name".to_owned()));
        }
        // SAFETY: it is not null, and by the header leads to a text that ends with a zero byte and stays as it is
        // while the library is loaded.
        let name = unsafe { CStr::from_ptr(driver.name.0) }.to_string_lossy().into_owned();
        check_name(&name).map_err(|what| wrong(format!("the name of its driver: {what}")))?;
        Ok(Self { name, path: shown, raw: driver, _library: Arc::new(library) })
    }

    /// Where it was loaded from.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn device(&self, index: u32) -> Result<Option<RawDevice>> {
        let mut raw = RawDevice { name: [0; 64], node: [0; 128], operations: 0, flags: 0 };
        let Pointer(Some(device)) = self.raw.device else {
            return Err(self.wrong("it has no function `device`"));
        };
        // SAFETY: the function asks for an index and a `RawDevice` that it may write, which `raw` is.
        match unsafe { device(index, &raw mut raw) } {
            0 => Ok(Some(raw)),
            refused if refused == -nix::libc::ENODEV => Ok(None),
            refused => Err(self.refused(&format!("device {index}"), refused)),
        }
    }

    fn remote(&self, index: u32, raw: &RawDevice) -> Result<RemoteDevice> {
        let text = |bytes: &[u8], what: &str| {
            let text = CStr::from_bytes_until_nul(bytes).ok().and_then(|text| text.to_str().ok());
            let wrong = || self.wrong(&format!("the {what} of device {index} is no text"));
            text.map(str::to_owned).ok_or_else(wrong)
        };
        let does = |operation: &Operation| raw.operations >> (*operation as u32) & 1 == 1;
        let info = DeviceInfo {
            name: text(&raw.name, "name")?,
            node: text(&raw.node, "node")?,
            operations: Operation::ALL.into_iter().filter(does).collect(),
            allocates: raw.flags & value::ALLOCATES != 0,
            imports: raw.flags & value::IMPORTS != 0,
        };
        if info.name.is_empty() {
            return Err(self.wrong(&format!("device {index} has no name")));
        }
        Ok(RemoteDevice { plugin: self.clone(), index, info })
    }

    fn wrong(&self, what: &str) -> Error {
        Error::new(ErrorKind::Plugin, format!("{}: {what}", self.path))
    }

    fn refused(&self, what: &str, result: c_int) -> Error {
        let error = io::Error::from_raw_os_error(result.saturating_neg());
        let kind = match result.saturating_neg() {
            nix::libc::ENOTSUP => ErrorKind::Unsupported,
            _ => ErrorKind::Plugin,
        };
        Error::io(kind, format!("{}: {what}", self.path), error)
    }
}

impl Driver for Plugin {
    fn name(&self) -> &str {
        &self.name
    }

    fn devices(&self) -> Result<Listed> {
        let mut devices: Listed = Vec::new();
        for index in 0..MOST_DEVICES {
            match self.device(index) {
                // One that cannot be told hides no other.
                Ok(Some(raw)) => devices.push(self.remote(index, &raw).map(|it| Box::new(it) as _)),
                Ok(None) => return Ok(devices),
                // Nor does the end of what it can tell.
                Err(error) => {
                    devices.push(Err(error));
                    return Ok(devices);
                }
            }
        }
        Err(self.wrong(&format!("it has more than {MOST_DEVICES} devices")))
    }
}

/// A device of a plugin.
struct RemoteDevice {
    plugin: Plugin,
    index: u32,
    info: DeviceInfo,
}

impl RemoteDevice {
    fn unsupported(&self, what: &str) -> Error {
        Error::unsupported(format!("{} has no {what}", self.info.name))
    }

    fn lent<'a>(&self, of: &'a Description) -> Result<LentMemory<'a>> {
        let large =
            || Error::invalid(format!("{}: the set is too large to ask with", self.info.name));
        LentMemory::new(of).ok_or_else(large)
    }

    fn refused(&self, what: &str, result: c_int) -> Error {
        self.plugin.refused(&format!("{} of {}", what, self.info.name), result)
    }

    /// What a sink has taken, when the function returned this.
    fn collected(&self, result: c_int, collected: Collected) -> Result<Vec<CapabilitySet>> {
        match (result, collected.error) {
            (0, None) => Ok(collected.sets),
            (0, Some(error)) => Err(self.plugin.wrong(&format!("{}: {error}", self.info.name))),
            (refused, _) => Err(self.refused("sets", refused)),
        }
    }
}

impl Device for RemoteDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn sets(&self, image: &Image, operation: Operation) -> Result<Vec<CapabilitySet>> {
        let Pointer(Some(sets)) = self.plugin.raw.sets else {
            return Err(self.plugin.wrong("it has no function `sets`"));
        };
        let image = self::image(image);
        let mut collected = Collected::default();
        let sink = collected.sink();
        // SAFETY: the function asks for a `RawImage` and a `RawSink` that are there until it returns: `image` and
        // `sink` are; the sink's context is `collected`, which nobody else uses meanwhile.
        let result =
            unsafe { sets(self.index, &raw const image, operation as u32, &raw const sink) };
        self.collected(result, collected)
    }

    fn sets_for(&self, usage: &Usage, wanted: &Use) -> Result<Vec<CapabilitySet>> {
        let asked = || usage.details.iter().chain(&wanted.details).filter(|it| !it.is_plain());
        let Some(first) = asked().next() else { return self.sets(&usage.image, wanted.operation) };
        let Pointer(Some(sets_for)) = self.plugin.raw.sets_for else {
            return Err(self.unknown(first));
        };
        let large = || Error::invalid(format!("{}: details are too long to ask", self.info.name));
        let details = raw::details(asked()).ok_or_else(large)?;
        let raw = RawUse {
            image: image(&usage.image),
            operation: wanted.operation as u32,
            detail_count: details.len() as u32,
            details: Pointer(details.as_ptr()),
        };
        let mut collected = Collected::default();
        let sink = collected.sink();
        // SAFETY: the function asks for a `RawUse` with its details and a `RawSink` that are there until it returns:
        // `raw`, `details` and what they borrow from, and `sink` are; the sink's context is `collected`, which nobody
        // else uses meanwhile.
        let result = unsafe { sets_for(self.index, &raw const raw, &raw const sink) };
        self.collected(result, collected)
    }

    fn hints(&self, operation: Operation) -> Result<Vec<Hint>> {
        let Pointer(Some(hints)) = self.plugin.raw.hints else {
            let formats = drivers::formats(self, operation)?;
            return Ok(formats.into_iter().map(Hint::any_size).collect());
        };
        // SAFETY: the function asks for room for as many hints as are said: none.
        let count = unsafe { hints(self.index, operation as u32, std::ptr::null_mut(), 0) };
        let count = u32::try_from(count).map_err(|_| self.refused("hints", count))?;
        if count > MOST_HINTS {
            return Err(self.plugin.wrong(&format!("{}: {count} hints", self.info.name)));
        }
        let none = RawHint { format: 0, max_width: 0, max_height: 0, reserved: 0 };
        let mut found = vec![none; count as usize];
        // SAFETY: the function asks for room for as many hints as are said, which `found` is.
        let count = unsafe { hints(self.index, operation as u32, found.as_mut_ptr(), count) };
        let count = usize::try_from(count).map_err(|_| self.refused("hints", count))?;
        found.truncate(count);
        let hint = |raw: RawHint| {
            let RawHint { format, max_width, max_height, .. } = raw;
            Hint { format: Fourcc(format), max_width, max_height }
        };
        Ok(found.into_iter().map(hint).collect())
    }

    fn allocate_files(&self, description: &Description) -> Result<Buffer> {
        let Pointer(Some(allocate)) = self.plugin.raw.allocate_files else {
            let made = description.made_by_planes(|one| self.allocate(one).map(Some))?;
            return made.ok_or_else(|| self.unsupported("memory to give"));
        };
        let lent = self.lent(description)?;
        let raw = lent.raw();
        let mut fds = vec![-1; description.layout.planes.len()];
        // SAFETY: the function asks for a `RawMemory` that is there, with its lists, until it returns, and for room
        // for as many descriptors as it has planes: they are `raw` and in `lent`, and `fds`.
        let result = unsafe { allocate(self.index, &raw const raw, fds.as_mut_ptr()) };
        if result < 0 {
            return Err(self.refused("allocate_files", result));
        }
        // SAFETY: those that are not negative the header hands to the caller: nobody else owns them.
        let own = |fd: &i32| (*fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(*fd) });
        let fds: Vec<OwnedFd> = fds.iter().filter_map(own).collect();
        Buffer::by_planes(fds, description.clone())
    }

    fn cost(&self, set: &CapabilitySet) -> u64 {
        match (self.plugin.raw.cost, LentSet::new(set)) {
            (Pointer(Some(cost)), Some(lent)) => {
                let raw = lent.raw();
                // SAFETY: the function asks for a `RawSet` that is there, with its lists, until it returns: they
                // are `raw` and in `lent`.
                unsafe { cost(self.index, &raw const raw) }
            }
            _ => 0,
        }
    }

    fn allocate(&self, description: &Description) -> Result<Buffer> {
        let Pointer(Some(allocate)) = self.plugin.raw.allocate else {
            return Err(self.unsupported("memory to give"));
        };
        let lent = self.lent(description)?;
        let raw = lent.raw();
        // SAFETY: the function asks for a `RawMemory` that is there, with its lists, until it returns: they are
        // `raw` and in `lent`.
        let fd = unsafe { allocate(self.index, &raw const raw) };
        if fd < 0 {
            return Err(self.refused("allocate", fd));
        }
        // SAFETY: it is not negative, and the header hands the descriptor to the caller: nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Buffer::new(fd, description.clone())
    }

    fn import(&self, buffer: &Buffer) -> Result<Box<dyn Import>> {
        let lent = self.lent(buffer.description())?;
        let raw = lent.raw();
        let mut handle = 0;
        let fds: Vec<i32> = buffer.pieces().iter().map(|piece| piece.as_fd().as_raw_fd()).collect();
        let (of_one, of_several) = (self.plugin.raw.import.0, self.plugin.raw.import_files.0);
        let result = match (fds.as_slice(), of_one, of_several) {
            // SAFETY: the function asks for an open descriptor, a `RawMemory` with its lists and a `uint64_t` that it
            // may write, until it returns: `buffer`, `raw` with `lent`, and `handle` are there for longer.
            ([fd], Some(import), _) => unsafe {
                import(self.index, *fd, &raw const raw, &raw mut handle)
            },
            ([_], None, _) => return Err(self.unsupported("use for memory of others")),
            // SAFETY: the same of as many descriptors as are said.
            (several, _, Some(import)) => unsafe {
                let count = several.len() as u32;
                import(self.index, several.as_ptr(), count, &raw const raw, &raw mut handle)
            },
            (_, _, None) => return Err(self.unsupported("use for memory in several files")),
        };
        match result {
            result if result < 0 => Err(self.refused("import", result)),
            _ => Ok(Box::new(RemoteImport {
                plugin: self.plugin.clone(),
                index: self.index,
                handle,
            })),
        }
    }

    fn transition(&self, from: Operation, to: Operation) -> Transition {
        let careful = Transition::between(from, to);
        let Pointer(Some(transition)) = self.plugin.raw.transition else { return careful };
        let mut raw = RawTransition::default();
        // SAFETY: the function asks for a `RawTransition` that it may write, which `raw` is.
        match unsafe { transition(self.index, from as u32, to as u32, &raw mut raw) } {
            result if result < 0 => careful,
            _ => abi::transition_of(&raw).unwrap_or(careful),
        }
    }
}

/// Memory that a plugin's device has taken.
struct RemoteImport {
    plugin: Plugin,
    index: u32,
    handle: u64,
}

impl Import for RemoteImport {
    fn handle(&self) -> u64 {
        self.handle
    }
}

impl Drop for RemoteImport {
    fn drop(&mut self) {
        if let Pointer(Some(release)) = self.plugin.raw.release {
            // SAFETY: the function asks for a handle that `import` of the same device gave and that was not
            // released: `Import` is not copied, and this runs once for each.
            unsafe { release(self.index, self.handle) }
        }
    }
}
