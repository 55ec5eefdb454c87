//! The drivers that are built in, one a file: each finds its devices and speaks to them.

mod dma_heap;
mod drm;
mod gl;
pub mod memfd;
#[cfg(any(feature = "rm", feature = "tegra"))]
mod nvidia;
#[cfg(feature = "tegra")]
mod nvmap;
#[cfg(feature = "rm")]
mod rm;
mod udmabuf;
mod v4l2;
mod vulkan;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{
    Capability, CapabilitySet, Constraint, ConstraintName, Description, Device, DeviceInfo, Driver,
    Error, ErrorKind, Fourcc, Image, Operation, Result, format,
};

pub(super) use udmabuf::{most_scattered, one_piece, scattered};

/// The drivers that are built in. They look at what is there when they are asked for devices.
pub fn built_in() -> Vec<Box<dyn Driver>> {
    vec![
        Box::new(memfd::Memfd),
        Box::new(udmabuf::Udmabuf),
        Box::new(dma_heap::DmaHeap),
        Box::new(drm::Drm),
        Box::new(v4l2::V4l2),
        Box::new(gl::Gl),
        Box::new(vulkan::Vulkan),
        #[cfg(feature = "tegra")]
        Box::new(nvmap::Nvmap),
        #[cfg(feature = "rm")]
        Box::new(rm::Rm),
    ]
}

/// What drivers found.
pub struct Found {
    /// The devices, those whose memory costs least first.
    pub devices: Vec<Box<dyn Device>>,
    /// Which drivers could not ask their devices, by name, and why.
    pub problems: Vec<(String, Error)>,
}

/// Asks drivers, such as those of [`built_in`], for their devices. One that cannot be asked hides no
/// other, and of devices with one name the first counts.
pub fn enumerate(drivers: &[Box<dyn Driver>]) -> Found {
    let mut found = Found { devices: Vec::new(), problems: Vec::new() };
    for driver in drivers {
        let mut problem = |error| found.problems.push((driver.name().to_owned(), error));
        let devices = match driver.devices() {
            Ok(devices) => devices,
            Err(error) => {
                problem(error);
                continue;
            }
        };
        for device in devices {
            // Uses are by name: a plugin's `cpu` would take the place of the CPU, or never be asked.
            let name = &device.info().name;
            let taken = found.devices.iter().any(|known| known.info().name == *name);
            match crate::usage::check_name(name) {
                Err(wrong) => problem(Error::invalid(wrong)),
                Ok(()) if taken => problem(Error::invalid(format!(
                    "its device {name} has the name of another one"
                ))),
                Ok(()) => found.devices.push(device),
            }
        }
    }
    let rows = CapabilitySet::new(vec![], vec![Capability::pitch_linear()]);
    found.devices.sort_by_key(|device| device.cost(&rows));
    found
}

/// The devices that an open file is of: `gl:renderD128` and `vulkan:renderD128` have one node.
///
/// # Errors
///
/// When the file cannot be asked.
pub fn of_fd<'d>(
    devices: &'d [Box<dyn Device>],
    fd: BorrowedFd<'_>,
) -> Result<Vec<&'d dyn Device>> {
    let file = fd.try_clone_to_owned().and_then(|file| File::from(file).metadata());
    let number = file.map_err(|error| Error::call("fstat of a device", error))?.rdev();
    let is_it = |device: &&dyn Device| number != 0 && device.info().number() == Some(number);
    Ok(devices.iter().map(AsRef::as_ref).filter(is_it).collect())
}

/// The formats that a device takes for an operation, of those that are known here.
///
/// # Errors
///
/// When it cannot be asked.
pub fn formats(device: &(impl Device + ?Sized), operation: Operation) -> Result<Vec<Fourcc>> {
    // Even in both directions, as formats with fewer samples of colour are.
    let image = |format| Image::new(64, 64, format);
    let mut found = Vec::new();
    for format in format::known() {
        if !device.sets(&image(format), operation)?.is_empty() {
            found.push(format);
        }
    }
    Ok(found)
}

/// Whether memory of a device is what a description asks for by [`ConstraintName::MADE_BY`].
fn keeps_maker(info: &DeviceInfo, description: &Description) -> Result<()> {
    let maker = description.set.constraint(ConstraintName::MADE_BY);
    match maker.filter(|maker| info.number() != Some(*maker)) {
        Some(maker) => {
            let asked = Constraint::new(ConstraintName::MADE_BY, maker);
            Err(Error::unsupported(format!("{asked} asked for, not {}", info.name)))
        }
        None => Ok(()),
    }
}

fn open(node: impl AsRef<Path>) -> Result<File> {
    let node = node.as_ref();
    let opened = OpenOptions::new().read(true).write(true).open(node);
    let refused =
        |error| Error::io(ErrorKind::Open, format!("cannot open {}", node.display()), error);
    opened.map_err(refused)
}

/// Not there is no error: `None`. A node without a driver is not there either.
fn found<T>(opened: Result<T>) -> Result<Option<T>> {
    use nix::libc::{ENODEV, ENOENT, ENXIO};
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(error) if matches!(error.errno(), Some(ENOENT | ENODEV | ENXIO)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The files of a folder whose names begin so, in the order of their numbers.
fn nodes(folder: &str, begin: &str) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(Error::io(ErrorKind::Open, format!("cannot read {folder}"), error));
        }
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(begin)).collect();
    // video2 before video10.
    names.sort_by_key(|name| (name.len(), name.clone()));
    Ok(names.iter().map(|name| Path::new(folder).join(name)).collect())
}

/// What each node is, without those that cannot be used: unless that is all of them.
fn each<N, T>(
    nodes: impl IntoIterator<Item = N>,
    device: impl Fn(N) -> Result<Option<T>>,
) -> Result<Vec<T>> {
    let (mut devices, mut refused) = (Vec::new(), None);
    for node in nodes {
        match found(device(node)) {
            Ok(device) => devices.extend(device.flatten()),
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        Some(error) if devices.is_empty() => Err(error),
        _ => Ok(devices),
    }
}

/// The number that a file of the kernel holds.
fn number_in(file: &str) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The last part of a path.
fn name_of(node: &Path) -> String {
    node.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
