//! The files that a Jetson has by a path.

use super::Release;
use super::devfreq::Attribute;
use crate::machine::{Device, Entry, EntryKind, Text};

const DEVFREQ: &str = "/sys/class/devfreq/17000000.gpu";

/// Major number of the simulated devices.
const MAJOR: u32 = 505;

/// The device files that can be opened by a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeviceFile {
    Nvmap,
    Ctrl,
    Space,
    Channel,
    Tsg,
    Fences,
}

/// Device files, as newer releases name them and as older ones do.
const DEVICES: [(&str, DeviceFile); 9] = [
    ("/dev/nvmap", DeviceFile::Nvmap),
    ("/dev/nvgpu/igpu0/ctrl", DeviceFile::Ctrl),
    ("/dev/nvgpu/igpu0/as", DeviceFile::Space),
    ("/dev/nvgpu/igpu0/channel", DeviceFile::Channel),
    ("/dev/nvgpu/igpu0/tsg", DeviceFile::Tsg),
    ("/dev/host1x-fence", DeviceFile::Fences),
    ("/dev/nvhost-ctrl-gpu", DeviceFile::Ctrl),
    ("/dev/nvhost-as-gpu", DeviceFile::Space),
    ("/dev/nvhost-gpu", DeviceFile::Channel),
];

/// Folders of which all entries are simulated.
const FOLDERS: [&str; 4] = ["/dev/nvgpu", "/dev/nvgpu/igpu0", "/sys/class/devfreq", DEVFREQ];

impl DeviceFile {
    /// What a device file was opened as.
    pub(super) fn of(device: Device) -> Option<Self> {
        DEVICES.iter().map(|(_, file)| *file).find(|file| *file as u32 == device.id)
    }
}

/// All that a release has.
pub(super) fn entries(release: Release) -> Vec<Entry> {
    let folders = FOLDERS.iter().map(|path| ((*path).to_owned(), EntryKind::Folder));
    let devices = DEVICES.iter().map(|(path, file)| {
        let device = Device { id: *file as u32, major: MAJOR, minor: *file as u32 };
        ((*path).to_owned(), EntryKind::Device(device))
    });
    let attributes = Attribute::ALL.iter().map(|(name, attribute)| {
        let is_writable = attribute.is_writable();
        let text = Text { id: *attribute as u32, is_writable, is_binary: false };
        (format!("{DEVFREQ}/{name}"), EntryKind::Text(text))
    });
    let all = folders.chain(devices).chain(attributes);
    let there = all.filter(|(path, _)| has_path(release, path));
    there.map(|(path, kind)| Entry { path, kind }).collect()
}

/// Whether a release has a path: fences came with r36, and the folder of the GPU with r34.
fn has_path(release: Release, path: &str) -> bool {
    match release.branch() {
        36.. => true,
        34.. => path != "/dev/host1x-fence",
        _ => path != "/dev/host1x-fence" && !path.starts_with("/dev/nvgpu"),
    }
}
