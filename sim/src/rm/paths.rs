//! The files that a machine with the driver has by a path.

use super::gpu::Gpu;
use super::{Driver, NodeKind};
use crate::machine::{Device, Entry, EntryKind, Text};

/// Major number of the driver's devices, and the minor one of the one that controls all.
const MAJOR: u32 = 195;
const CONTROL: u32 = 255;
/// That of UVM is given by the kernel when the module is loaded.
const UVM_MAJOR: u32 = 511;

const PROC: &str = "/proc/driver/nvidia";
const MODULE: &str = "/sys/module/nvidia";

/// A file of text. The files of a GPU count up from the last.
const VERSION: u32 = 0;
const PARAMETERS: u32 = 1;
const REGISTRY: u32 = 2;
const MODULE_VERSION: u32 = 3;
const INFORMATION: u32 = 4;

impl Driver {
    /// What a device file is.
    pub(super) fn node_kind(&self, device: Device) -> Option<NodeKind> {
        match (device.major, device.minor) {
            (MAJOR, CONTROL) => Some(NodeKind::Control),
            (MAJOR, minor) => {
                let gpu = self.gpus.iter().position(|gpu| gpu.minor == minor)?;
                Some(NodeKind::Gpu(gpu))
            }
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
            folder(MODULE),
            text(&format!("{MODULE}/version"), MODULE_VERSION),
        ];
        for gpu in &self.gpus {
            all.push(device(&format!("/dev/nvidia{}", gpu.minor), MAJOR, gpu.minor));
            let place = format!("{PROC}/gpus/{}", gpu.location());
            all.push(folder(&place));
            all.push(text(&format!("{place}/information"), INFORMATION + gpu.minor));
        }
        all
    }

    /// What a file of text says.
    pub(super) fn text_of(&self, text: Text) -> String {
        let version = &self.told_version;
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
            id => {
                let gpu = self.gpus.iter().find(|gpu| gpu.minor + INFORMATION == id);
                gpu.map(information).unwrap_or_default()
            }
        }
    }
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

fn device(path: &str, major: u32, minor: u32) -> Entry {
    let device = Device { id: minor, major, minor };
    Entry { path: path.to_owned(), kind: EntryKind::Device(device) }
}

fn folder(path: &str) -> Entry {
    Entry { path: path.to_owned(), kind: EntryKind::Folder }
}

fn text(path: &str, id: u32) -> Entry {
    Entry { path: path.to_owned(), kind: EntryKind::Text(Text { id, is_writable: false }) }
}
