//! A plugin, once it is loaded.

use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use libloading::Library;

use super::abi::{self, ENTRY, EntryFn, Pointer, RawDevice, RawDriver, RawTransition, value};
use super::raw::{Collected, LentMemory, LentSet, image};
use crate::buffer::{Buffer, Description};
use crate::capability::CapabilitySet;
use crate::driver::{Device, DeviceInfo, Driver, Import, Transition};
use crate::error::{Error, ErrorKind, Result};
use crate::usage::{Image, Operation};

/// More devices than this are not devices, but a plugin that never ends.
const MOST_DEVICES: u32 = 1024;

/// A driver in a shared library.
#[derive(Debug, Clone)]
pub struct Plugin {
    name: String,
    path: String,
    raw: RawDriver,
    /// Keeps the library loaded: `raw` points into it.
    _library: Arc<Library>,
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
        // SAFETY: the caller vouches for what the library runs when it is loaded.
        let library = unsafe { Library::new(path) }.map_err(|error| wrong(error.to_string()))?;
        // SAFETY: a library that exports this name does so as the header declares it: with this type.
        let entry = unsafe { library.get::<EntryFn>(ENTRY) };
        let entry = *entry.map_err(|error| wrong(format!("it is no plugin: {error}")))?;
        // SAFETY: the function takes nothing; what it points to, by the header, stays as it is while the library
        // is loaded, and `library` outlives `driver`, which is copied below.
        let driver = unsafe { entry().as_ref() };
        let driver = driver.ok_or_else(|| wrong("it gives no driver".to_owned()))?;
        if driver.version != value::VERSION || (driver.size as usize) < size_of::<RawDriver>() {
            let (version, size) = (driver.version, driver.size);
            let what = format!(
                "it is of version {version}, {size} bytes; this is version {}, {} bytes",
                value::VERSION,
                size_of::<RawDriver>()
            );
            return Err(wrong(what));
        }
        if driver.name.0.is_null() {
            return Err(wrong("its driver has no name".to_owned()));
        }
        // SAFETY: it is not null, and by the header leads to a text that ends with a zero byte and stays as it is
        // while the library is loaded.
        let name = unsafe { CStr::from_ptr(driver.name.0) }.to_string_lossy().into_owned();
        Ok(Self { name, path: shown, raw: *driver, _library: Arc::new(library) })
    }

    /// Where it was loaded from.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn device(&self, index: u32) -> Result<Option<RemoteDevice>> {
        let mut raw = RawDevice { name: [0; 64], node: [0; 128], operations: 0, flags: 0 };
        let Pointer(Some(device)) = self.raw.device else {
            return Err(self.wrong("it has no function `device`"));
        };
        // SAFETY: the function asks for an index and a `RawDevice` that it may write, which `raw` is.
        match unsafe { device(index, &raw mut raw) } {
            0 => {}
            refused if refused == -nix::libc::ENODEV => return Ok(None),
            refused => return Err(self.refused(&format!("device {index}"), refused)),
        }
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
        Ok(Some(RemoteDevice { plugin: self.clone(), index, info }))
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

    fn devices(&self) -> Result<Vec<Box<dyn Device>>> {
        let mut devices: Vec<Box<dyn Device>> = Vec::new();
        for index in 0..MOST_DEVICES {
            match self.device(index)? {
                Some(device) => devices.push(Box::new(device)),
                None => return Ok(devices),
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
        match (result, collected.error) {
            (0, None) => Ok(collected.sets),
            (0, Some(error)) => Err(self.plugin.wrong(&format!("{}: {error}", self.info.name))),
            (refused, _) => Err(self.refused("sets", refused)),
        }
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
        let Pointer(Some(import)) = self.plugin.raw.import else {
            return Err(self.unsupported("use for memory of others"));
        };
        let lent = self.lent(buffer.description())?;
        let raw = lent.raw();
        let mut handle = 0;
        let fd = buffer.whole()?.as_raw_fd();
        // SAFETY: the function asks for an open descriptor, a `RawMemory` with its lists and a `uint64_t` that it
        // may write, until it returns: `buffer`, `raw` with `lent`, and `handle` are there for longer.
        match unsafe { import(self.index, fd, &raw const raw, &raw mut handle) } {
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
