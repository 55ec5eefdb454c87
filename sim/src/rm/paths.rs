//! The files that a machine with the driver has by a path.

use std::sync::Arc;

use super::gpu::Gpu;
use super::{Driver, NodeKind};
use crate::machine::{Device, Entry, EntryKind, Text, Writer};
use crate::topology::{CONFIGURATION, ENDPOINT, File, RESOURCES, express, resources};

/// Major number of the driver's devices, and the minor one of the one that controls all.
pub(super) const MAJOR: u32 = 195;
const CONTROL: u32 = 255;
/// That of UVM is given by the kernel when the module is loaded.
pub(super) const UVM_MAJOR: u32 = 511;

const PROC: &str = "/proc/driver/nvidia";
const MODULE: &str = "/sys/module/nvidia";
const UVM_MODULE: &str = "/sys/module/nvidia_uvm";

/// The bus: links to its devices, and its drivers.
const BUS: &str = "/sys/bus/pci";
const DEVICES: &str = "/sys/bus/pci/devices";
const BUS_DRIVER: &str = "/sys/bus/pci/drivers/nvidia";

/// Where nvidia-persistenced has its socket, by which nvidia-smi finds it. `/var/run` need not be a link.
pub(super) const PERSISTENCED: &[&str] =
    &["/run/nvidia-persistenced", "/var/run/nvidia-persistenced"];

/// A file of text. Each GPU has so many from [`OF_GPUS`] on, in the order of [`FILES`].
const VERSION: u32 = 0;
const PARAMETERS: u32 = 1;
const REGISTRY: u32 = 2;
const MODULE_VERSION: u32 = 3;
const MODULE_STATE: u32 = 4;
/// What is written to it lets the bus look for devices that were removed.
const RESCAN: u32 = 5;
/// Devices whose names are written to them are given to the driver, and taken from it.
const BIND: u32 = 6;
const UNBIND: u32 = 7;
const OF_GPUS: u32 = 8;
/// Those of the topology, far above those of capabilities.
const OF_TOPOLOGY: u32 = 1 << 20;

/// The files of a GPU as a device; before them is what the driver says of it.
const FILES: [&str; 12] = [
    "config",
    "vendor",
    "device",
    "subsystem_vendor",
    "subsystem_device",
    "class",
    "revision",
    "numa_node",
    "irq",
    "resource",
    RESET,
    REMOVE,
];
const PER_GPU: u32 = FILES.len() as u32 + 1;
const CONFIG: u32 = 1;
/// What is written to them resets the GPU, or takes it off the bus.
const RESET: &str = "reset";
const REMOVE: &str = "remove";

impl Driver {
    /// What a device file is.
    pub(super) fn node_kind(&self, device: Device) -> Option<NodeKind> {
        match (device.major, device.minor) {
            (MAJOR, CONTROL) => Some(NodeKind::Control),
            (MAJOR, minor) => {
                let mut all = self.gpus.iter();
                let gpu = all.position(|gpu| gpu.minor == minor && gpu.is_probed())?;
                Some(NodeKind::Gpu(gpu))
            }
            (super::capabilities::MAJOR, minor) => Some(NodeKind::Capability(minor)),
            (_, 0) => Some(NodeKind::Uvm),
            _ => Some(NodeKind::UvmTools),
        }
    }

    /// All that the driver makes.
    pub(super) fn all_entries(&self) -> Vec<Entry> {
        let mut all = vec![
            device("/dev/nvidiactl", MAJOR, CONTROL),
            device("/dev/nvidia-uvm", UVM_MAJOR, 0),
            device("/dev/nvidia-uvm-tools", UVM_MAJOR, 1),
            folder(PROC),
            folder(&format!("{PROC}/gpus")),
            text(&format!("{PROC}/version"), VERSION),
            text(&format!("{PROC}/params"), PARAMETERS),
            text(&format!("{PROC}/registry"), REGISTRY),
            folder(BUS),
            folder(DEVICES),
            folder(&format!("{BUS}/drivers")),
            folder(&format!("{BUS}/slots")),
            writable(&format!("{BUS}/rescan"), RESCAN),
            folder(BUS_DRIVER),
            writable(&format!("{BUS_DRIVER}/bind"), BIND),
            writable(&format!("{BUS_DRIVER}/unbind"), UNBIND),
            link(&format!("{BUS_DRIVER}/module"), MODULE),
            folder(MODULE),
            folder(&format!("{MODULE}/drivers")),
            link(&format!("{MODULE}/drivers/pci:nvidia"), BUS_DRIVER),
            text(&format!("{MODULE}/version"), MODULE_VERSION),
            text(&format!("{MODULE}/initstate"), MODULE_STATE),
            folder(UVM_MODULE),
            text(&format!("{UVM_MODULE}/initstate"), MODULE_STATE),
        ];
        // A node stays when its card goes: udev did not make it.
        let nodes = self.gpus.iter().map(|gpu| gpu.minor);
        all.extend(nodes.map(|minor| device(&format!("/dev/nvidia{minor}"), MAJOR, minor)));
        for gpu in self.gpus.iter().filter(|gpu| !gpu.is_removed) {
            all.extend(entries_of_gpu(gpu));
        }
        all.extend(self.spots.bridges.iter().flat_map(|place| on_the_bus(place)));
        all.extend(self.spots.folders.iter().map(|path| folder(path)));
        all.extend(self.spots.links.iter().map(|(path, target)| link(path, target)));
        let removed: Vec<String> =
            self.gpus.iter().filter(|gpu| gpu.is_removed).map(Gpu::folder).collect();
        let is_there = |file: &File| {
            let place = file.path.rsplit_once('/').map_or("", |(place, _)| place);
            !removed.iter().any(|gone| gone == place)
        };
        let files = (OF_TOPOLOGY..).zip(&self.spots.files).filter(|(_, file)| is_there(file));
        all.extend(files.map(|(id, file)| match file.path.ends_with(CONFIGURATION) {
            true => writable(&file.path, id),
            false => text(&file.path, id),
        }));
        all.extend(self.entries_of_capabilities());
        let links: Vec<Entry> = all.iter().filter_map(link_by_number).collect();
        all.extend(links);
        all
    }

    /// What a file of text says.
    pub(super) fn text_of(&self, text: Text) -> String {
        let version = &self.told_version;
        if let Some(file) = self.file_of_topology(text) {
            return String::from_utf8_lossy(&file.bytes).into_owned();
        }
        if let Some(text) = self.text_of_capability(text) {
            return text;
        }
        match text.id {
            VERSION => {
                let arch = std::env::consts::ARCH;
                // As the driver of these sources says it; no compiler made this one.
                format!(
                    "NVRM version: NVIDIA UNIX Open Kernel Module for {arch}  {version}  Release Build  \
                     (nvabi@simulated)\nGCC version:  none\n"
                )
            }
            // N/nv-procfs.c writes what it was loaded with.
            PARAMETERS => "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\n\
                           DeviceFileMode: 438\n"
                .to_owned(),
            REGISTRY => "Binary: \"\"\n".to_owned(),
            MODULE_VERSION => format!("{version}\n"),
            // Linux, kernel/module/sysfs.c: `show_initstate`. Programs that do not find it run `modprobe`.
            MODULE_STATE => "live\n".to_owned(),
            // What is written alone says nothing.
            RESCAN | BIND | UNBIND => String::new(),
            id => {
                let Some(number) = id.checked_sub(OF_GPUS) else { return String::new() };
                let gpu = self.gpus.get((number / PER_GPU) as usize);
                gpu.map(|gpu| text_of_gpu(gpu, number % PER_GPU)).unwrap_or_default()
            }
        }
    }

    /// What is written to a file: `1` resets a GPU, a number but zero removes it, or finds those that were removed
    /// (Linux, drivers/pci/pci-sysfs.c: `reset_store`, `remove_store`, `rescan_store`).
    pub(super) fn written(&mut self, text: Text, written: &[u8], writer: Writer) {
        if let Some(file) = text.id.checked_sub(OF_TOPOLOGY) {
            return self.spots.configure(file as usize, written);
        }
        if [BIND, UNBIND].contains(&text.id) {
            return self.bind_or_unbind(text.id == BIND, written, writer);
        }
        let Some(value) = number(written).filter(|value| *value != 0) else { return };
        if text.id == RESCAN {
            return self.find_removed();
        }
        let Some(number) = text.id.checked_sub(OF_GPUS) else { return };
        let (gpu, file) = ((number / PER_GPU) as usize, number % PER_GPU);
        let name = file.checked_sub(1).and_then(|file| FILES.get(file as usize)).copied();
        match name {
            _ if gpu >= self.gpus.len() => {}
            Some(RESET) if value == 1 => self.reset(gpu),
            Some(REMOVE) => self.remove(gpu),
            _ => {}
        }
    }

    /// A device is named whose driver is to have it, or not to have it any more.
    fn bind_or_unbind(&mut self, binds: bool, written: &[u8], writer: Writer) {
        let name = written.strip_suffix(b"\n").unwrap_or(written);
        let is_named = |gpu: &Gpu| !gpu.is_removed && gpu.location().as_bytes() == name;
        match self.gpus.iter().position(is_named) {
            Some(gpu) if binds => self.bind(gpu, writer),
            Some(gpu) => self.unbind(gpu, writer),
            None => {}
        }
    }

    fn file_of_topology(&self, text: Text) -> Option<&File> {
        self.spots.files.get(text.id.checked_sub(OF_TOPOLOGY)? as usize)
    }

    /// The same as bytes.
    pub(super) fn bytes_of_file(&self, text: Text) -> Vec<u8> {
        if let Some(file) = self.file_of_topology(text) {
            return file.bytes.clone();
        }
        let number = text.id.checked_sub(OF_GPUS);
        let gpu = number.and_then(|number| self.gpus.get((number / PER_GPU) as usize));
        match (gpu, number.map(|number| number % PER_GPU)) {
            (Some(gpu), Some(CONFIG)) => configuration(gpu),
            _ => self.text_of(text).into_bytes(),
        }
    }
}

/// A number as Linux takes it in any base, with one newline at most (lib/kstrtox.c: `kstrtoull`).
fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_prefix('+').unwrap_or(text);
    let (base, digits) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &text[2..]),
        [b'0', _, ..] => (8, &text[1..]),
        _ => (10, text),
    };
    // One sign is enough.
    if digits.starts_with('+') { None } else { u64::from_str_radix(digits, base).ok() }
}

fn text_of_gpu(gpu: &Gpu, file: u32) -> String {
    let facts = gpu.facts();
    match file.checked_sub(1).and_then(|file| FILES.get(file as usize)).copied() {
        None => information(gpu),
        Some("vendor") => format!("{:#06x}\n", facts.vendor),
        Some("device") => format!("{:#06x}\n", facts.device),
        Some("subsystem_vendor") => format!("{:#06x}\n", facts.subsystem & 0xffff),
        Some("subsystem_device") => format!("{:#06x}\n", facts.subsystem >> 16),
        Some("class") => format!("{:#08x}\n", facts.class),
        Some("revision") => format!("{:#04x}\n", facts.revision),
        // -1: no node of memory is near.
        Some("numa_node") => format!("{}\n", gpu.node().map_or(-1, i64::from)),
        Some("irq") => format!("{}\n", facts.interrupt),
        // Flags of Linux: memory, which is aligned to its size; the window has 64 bits and can be read ahead.
        Some("resource") => {
            resources(&[(facts.registers, 0x4_0200), (facts.window, 0x14_220c)], RESOURCES)
        }
        Some(_) => String::new(),
    }
}

/// The header of its configuration space, as the standard for PCI has it.
fn configuration(gpu: &Gpu) -> Vec<u8> {
    let facts = gpu.facts();
    let mut bytes = vec![0; 256];
    let mut put =
        |offset: usize, part: &[u8]| bytes[offset..offset + part.len()].copy_from_slice(part);
    put(0x00, &facts.vendor.to_le_bytes());
    put(0x02, &facts.device.to_le_bytes());
    // Memory and bus mastering are on.
    put(0x04, &0x0006_u16.to_le_bytes());
    put(0x08, &(facts.class << 8 | facts.revision).to_le_bytes());
    put(0x10, &(facts.registers.0 as u32).to_le_bytes());
    // The window has 64 bits and can be read ahead.
    put(0x14, &(facts.window.0 | 0xc).to_le_bytes());
    put(0x2c, &facts.subsystem.to_le_bytes());
    put(0x3c, &[facts.interrupt as u8, 1]);
    express(&mut bytes, ENDPOINT);
    bytes
}

/// N/nv-procfs.c: `nv_procfs_read_gpu_info`.
fn information(gpu: &Gpu) -> String {
    let rows = [
        ("Model: \t\t", gpu.text("identity.name")),
        ("IRQ:   \t\t", gpu.facts().interrupt.to_string()),
        ("GPU UUID: \t", gpu.uuid_text()),
        ("Video BIOS: \t", gpu.text("identity.bios")),
        ("Bus Type: \t", "PCIe".to_owned()),
        ("DMA Size: \t", "47 bits".to_owned()),
        ("DMA Mask: \t", "0x7fffffffffff".to_owned()),
        ("Bus Location: \t", gpu.location()),
        ("Device Minor: \t", gpu.minor.to_string()),
        ("GPU Excluded:\t", "No".to_owned()),
    ];
    rows.iter().map(|(name, value)| format!("{name} {value}\n")).collect()
}

pub(super) fn device(path: &str, major: u32, minor: u32) -> Entry {
    let device = Device { id: minor, major, minor };
    Entry { path: path.to_owned(), kind: EntryKind::Device(device) }
}

pub(super) fn folder(path: &str) -> Entry {
    Entry { path: path.to_owned(), kind: EntryKind::Folder }
}

/// The link to a device's file by which it is found by its numbers. NVIDIA's programs make it where it is not there.
fn link_by_number(entry: &Entry) -> Option<Entry> {
    let EntryKind::Device(Device { major, minor, .. }) = entry.kind else { return None };
    let target = format!("../{}", entry.path.strip_prefix("/dev/")?);
    let kind = EntryKind::Link(Arc::from(target));
    Some(Entry { path: format!("/dev/char/{major}:{minor}"), kind })
}

/// Where a GPU is as a device, on the bus and for the driver.
fn entries_of_gpu(gpu: &Gpu) -> Vec<Entry> {
    let first = OF_GPUS + gpu.minor * PER_GPU;
    let (shown, place) = (format!("{PROC}/gpus/{}", gpu.location()), gpu.folder());
    let mut all = on_the_bus(&place);
    all.push(folder(&place));
    if gpu.is_probed() {
        all.extend([folder(&shown), text(&format!("{shown}/information"), first)]);
    }
    if gpu.shows_driver() {
        all.extend([
            link(&format!("{place}/driver"), BUS_DRIVER),
            link(&format!("{BUS_DRIVER}/{}", gpu.location()), &place),
        ]);
    }
    all.extend((first + 1..).zip(FILES).map(|(id, name)| {
        let path = format!("{place}/{name}");
        if [RESET, REMOVE].contains(&name) { writable(&path, id) } else { text(&path, id) }
    }));
    all
}

/// The links by which a device and its bus lead to each other.
fn on_the_bus(place: &str) -> Vec<Entry> {
    let name = place.rsplit('/').next().unwrap_or(place);
    vec![link(&format!("{DEVICES}/{name}"), place), link(&format!("{place}/subsystem"), BUS)]
}

/// A link below `/sys`, which goes up to that, as all of sysfs between folders that share no more.
fn link(path: &str, target: &str) -> Entry {
    let below = |path: &str| path.trim_start_matches("/sys/").to_owned();
    let up = "../".repeat(below(path).matches('/').count());
    let kind = EntryKind::Link(Arc::from(format!("{up}{}", below(target))));
    Entry { path: path.to_owned(), kind }
}

fn writable(path: &str, id: u32) -> Entry {
    let text = Text { id, is_writable: true, is_binary: path.ends_with(CONFIGURATION) };
    Entry { path: path.to_owned(), kind: EntryKind::Text(text) }
}

pub(super) fn text(path: &str, id: u32) -> Entry {
    let text = Text { id, is_writable: false, is_binary: false };
    Entry { path: path.to_owned(), kind: EntryKind::Text(text) }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_those_that_linux_takes() {
        for text in ["1", "1\n", "01", "0x1", "0X1\n", "+1", "+0x1", "0000001"] {
            assert_eq!(number(text.as_bytes()), Some(1), "{text:?}");
        }
        let all = [("0", 0), ("00", 0), ("0x0", 0), ("2", 2), ("010", 8), ("0xfF", 255)];
        for (text, expected) in all {
            assert_eq!(number(text.as_bytes()), Some(expected), "{text}");
        }
        for text in [
            "",
            "\n",
            "1\n\n",
            " 1",
            "1 ",
            "-1",
            "++1",
            "0x",
            "0x+1",
            "08",
            "1a",
            "18446744073709551616",
        ] {
            assert_eq!(number(text.as_bytes()), None, "{text:?}");
        }
    }
}
