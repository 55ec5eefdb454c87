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
    Capability, CapabilitySet, Device, DeviceInfo, Driver, Error, ErrorKind, Fourcc, Image, Listed,
    MODIFIER_INVALID, Operation, Result, format,
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
            let device = match device {
                Ok(device) => device,
                Err(error) => {
                    problem(error);
                    continue;
                }
            };
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
    // A plugin may say another cost each time that it is asked.
    found.devices.sort_by_cached_key(|device| device.cost(&rows));
    found
}

/// The devices that an open file is of: `gl:renderD128` and `vulkan:renderD128` have one node. Behind those of the very
/// file come those of other nodes of the same hardware: `drm:card0` and `gl:renderD128` may be one GPU.
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
    Ok(of_number(devices, number))
}

/// The same of a file by its number (`st_rdev`).
pub fn of_number(devices: &[Box<dyn Device>], number: u64) -> Vec<&dyn Device> {
    if number == 0 {
        return Vec::new();
    }
    let (mut exact, mut beside) = (Vec::new(), Vec::new());
    let hardware = hardware(number);
    for device in devices.iter().map(AsRef::as_ref) {
        match device.info().number() {
            Some(its) if its == number => exact.push(device),
            Some(its) if hardware.is_some() && self::hardware(its) == hardware => {
                beside.push(device);
            }
            _ => {}
        }
    }
    exact.append(&mut beside);
    exact
}

/// What a node of DRM is a node of, as sysfs has it; `None` for other nodes.
fn hardware(number: u64) -> Option<PathBuf> {
    const DRM: u32 = 226;
    let (major, minor) = (nix::libc::major(number), nix::libc::minor(number));
    let node = format!("/sys/dev/char/{major}:{minor}/device");
    (major == DRM).then(|| std::fs::canonicalize(node).ok()).flatten()
}

/// What it costs more that a layout is known to nobody but a driver.
fn hidden(set: &CapabilitySet) -> u64 {
    let mut modifiers = set.capabilities.iter().filter_map(Capability::as_modifier);
    u64::from(modifiers.any(|modifier| modifier == MODIFIER_INVALID))
}

/// What the nodes of one GPU have in common, so that layouts which its driver keeps to itself are shared among them: the
/// first of their numbers. `None` of what has no render node, and so is no GPU.
pub(super) fn gpu(info: &DeviceInfo) -> Option<u64> {
    let nodes = std::fs::read_dir(hardware(info.number()?)?.join("drm")).ok()?;
    let nodes: Vec<PathBuf> = nodes.filter_map(|node| Some(node.ok()?.path())).collect();
    let number = |node: &PathBuf| {
        let number = std::fs::read_to_string(node.join("dev")).ok()?;
        let (major, minor) = number.trim().split_once(':')?;
        Some(nix::libc::makedev(major.parse().ok()?, minor.parse().ok()?))
    };
    let renders = nodes.iter().any(|node| name_of(node).starts_with("renderD"));
    renders.then(|| nodes.iter().filter_map(number).min()).flatten()
}

/// The kernel's driver of a GPU: of a node of DRM, or of NVIDIA's own.
pub(crate) fn kernel_driver(info: &DeviceInfo) -> Option<String> {
    const NVIDIA: u32 = 195;
    if nix::libc::major(info.number()?) == NVIDIA {
        return Some("nvidia".to_owned());
    }
    let driver = std::fs::canonicalize(hardware(info.number()?)?.join("driver")).ok()?;
    Some(name_of(&driver))
}

/// Why a device does not use what a GPU of another driver makes, although it imports it: what was reported of GPUs, and
/// is not to be tried, as one whose work fails may never end. Drivers by the kernel's names.
pub(crate) fn known_to_fail(maker: &str, user: &str, operation: Operation) -> Option<&'static str> {
    let draws = matches!(operation, Operation::Texture | Operation::Render | Operation::Copy);
    (maker == "nvidia" && user != maker && draws).then_some(
        "GPUs of other drivers import memory of NVIDIA's and cannot use it (open-gpu-kernel-modules#1037)",
    )
}

/// An image of which it is asked whether a format is taken: even in both directions, as formats with fewer samples of
/// colour are.
pub(crate) const SIDE: u32 = 64;

/// The formats that a device takes for an operation, of those that are known here.
///
/// # Errors
///
/// When it cannot be asked.
pub fn formats(device: &(impl Device + ?Sized), operation: Operation) -> Result<Vec<Fourcc>> {
    let image = |format| Image::new(SIDE, SIDE, format);
    let mut found = Vec::new();
    for format in format::known() {
        if !device.sets(&image(format), operation)?.is_empty() {
            found.push(format);
        }
    }
    Ok(found)
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

/// What each node is: those that are not there, or no device, are left out.
fn each<N, D: Device + 'static>(
    nodes: impl IntoIterator<Item = N>,
    device: impl Fn(N) -> Result<Option<D>>,
) -> Listed {
    let boxed = |device: D| Box::new(device) as Box<dyn Device>;
    let of = |node| found(device(node)).map(|device| device.flatten().map(boxed)).transpose();
    nodes.into_iter().filter_map(of).collect()
}

/// The number that a file of the kernel holds.
fn number_in(file: &str) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The last part of a path.
fn name_of(node: &Path) -> String {
    node.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_cannot_be_asked_is_told_beside_others() {
        let node = |name: &'static str| {
            let info = DeviceInfo {
                name: name.to_owned(),
                node: String::new(),
                operations: Vec::new(),
                allocates: false,
                imports: false,
            };
            struct Node(DeviceInfo);
            impl Device for Node {
                fn info(&self) -> &DeviceInfo {
                    &self.0
                }

                fn sets(&self, _: &Image, _: Operation) -> Result<Vec<CapabilitySet>> {
                    Ok(Vec::new())
                }
            }
            let error = |number| {
                let error = io::Error::from_raw_os_error(number);
                Error::io(ErrorKind::Open, format!("cannot open {name}"), error)
            };
            match name {
                "theirs" => Err(error(nix::libc::EACCES)),
                "gone" => Err(error(nix::libc::ENODEV)),
                "other" => Ok(None),
                _ => Ok(Some(Node(info))),
            }
        };
        let names = |nodes: &[&'static str]| {
            let told = |found: Result<Box<dyn Device>>| match found {
                Ok(device) => device.info().name.clone(),
                Err(error) => error.to_string(),
            };
            each(nodes.to_vec(), node).into_iter().map(told).collect::<Vec<_>>()
        };
        let denied = "cannot open theirs: Permission denied (os error 13)";
        assert_eq!(names(&["a", "gone", "theirs", "other", "b"]), ["a", denied, "b"]);
        assert_eq!(names(&["theirs"]), [denied]);
        assert!(names(&["gone", "other"]).is_empty());
    }
}
