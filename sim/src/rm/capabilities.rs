//! What a program may do with instances, as files: who can open one may use what it is for
//! (N/nv-caps.c, `osapi`: `osRmCapAcquire`).

use std::fs;

use super::paths::{device, folder, text};
use super::{Driver, NodeKind};
use crate::client::{Client, Descriptor};
use crate::machine::{Entry, Text};

/// The kernel gives the driver a major number for these when it is loaded.
pub(super) const MAJOR: u32 = 510;

/// The number of a text is this and the minor number of what it is for; before them are lists of all.
const TEXTS: u32 = 1 << 16;
const MINORS: u32 = TEXTS - 1;
const DEVICES: u32 = TEXTS - 2;

/// Minor numbers: 0 is of switches; the mode is set with one and looked at with another; then come instances, of
/// which each GPU has so many, each with so many compute instances.
const CONFIG: u32 = 1;
const MONITOR: u32 = 2;
const FIRST: u32 = 3;
const INSTANCES: u32 = 15;
const COMPUTE: u32 = 8;
const GPUS: u32 = 32;

const PROC: &str = "/proc/driver/nvidia/capabilities";

/// The minor number of a GPU instance, or of a compute instance of it.
fn minor(gpu: u32, instance: u32, compute: Option<u32>) -> u32 {
    let own = (gpu * INSTANCES + instance) * (COMPUTE + 1);
    FIRST + own + compute.map_or(0, |compute| compute + 1)
}

/// A capability: where its text is below [`PROC`], and its number.
struct Capability {
    path: String,
    minor: u32,
}

impl Driver {
    /// Those that there are now.
    fn capabilities(&self) -> Vec<Capability> {
        let of = |path: &str, minor| Capability { path: path.to_owned(), minor };
        let mut all = vec![of("mig/config", CONFIG), of("mig/monitor", MONITOR)];
        for gpu in self.present() {
            for (number, instance) in &gpu.instances.0 {
                let place = format!("gpu{}/mig/gi{number}", gpu.minor);
                all.push(of(&format!("{place}/access"), minor(gpu.minor, *number, None)));
                let all_compute = instance.compute.keys().map(|compute| {
                    let path = format!("{place}/ci{compute}/access");
                    Capability { path, minor: minor(gpu.minor, *number, Some(*compute)) }
                });
                all.extend(all_compute);
            }
        }
        all
    }

    /// Their files: texts that name devices, and the devices, which a program can open.
    pub(super) fn entries_of_capabilities(&self) -> Vec<Entry> {
        let mut all = vec![
            folder(PROC),
            folder(&format!("{PROC}/mig")),
            folder("/proc/driver/nvidia-caps"),
            folder("/dev/nvidia-caps"),
            text("/proc/driver/nvidia-caps/mig-minors", MINORS),
            text("/proc/devices", DEVICES),
        ];
        for gpu in self.present().filter(|gpu| !gpu.instances.0.is_empty()) {
            all.push(folder(&format!("{PROC}/gpu{}", gpu.minor)));
            all.push(folder(&format!("{PROC}/gpu{}/mig", gpu.minor)));
        }
        for Capability { path, minor } in self.capabilities() {
            if let Some(place) = path.strip_suffix("/access") {
                all.push(folder(&format!("{PROC}/{place}")));
            }
            all.push(text(&format!("{PROC}/{path}"), TEXTS + minor));
            all.push(device(&format!("/dev/nvidia-caps/nvidia-cap{minor}"), MAJOR, minor));
        }
        all
    }

    /// What a text says; none where it is no capability's.
    pub(super) fn text_of_capability(&self, text: Text) -> Option<String> {
        match text.id {
            MINORS => Some(all_minors()),
            DEVICES => Some(with_own_devices(&fs::read_to_string("/proc/devices").ok()?)),
            id => {
                let minor = id.checked_sub(TEXTS)?;
                // What /proc/driver/nvidia/params says of device files holds for these too.
                Some(format!(
                    "DeviceFileMinor: {minor}\nDeviceFileMode: 438\nDeviceFileModify: 1\n"
                ))
            }
        }
    }

    /// Whether a program has the capability of a GPU instance or a compute instance, by a descriptor.
    pub(super) fn has_capability(
        &self,
        client: &dyn Client,
        fd: u64,
        (gpu, instance, compute): (usize, u32, Option<u32>),
    ) -> bool {
        let Some(gpu) = self.gpus.get(gpu) else { return false };
        let Ok(fd) = i32::try_from(fd) else { return false };
        let Descriptor::Open(inode, _) = client.descriptor(fd) else { return false };
        let file = self.files.of(inode).and_then(|id| self.files.get(id));
        let wanted = NodeKind::Capability(minor(gpu.minor, instance, compute));
        file.is_some_and(|open| open.file.node == wanted)
    }
}

/// N/nv-caps.c: `nv_procfs_read_mig_minors`.
fn all_minors() -> String {
    let mut all = format!("config {CONFIG}\nmonitor {MONITOR}\n");
    for gpu in 0..GPUS {
        for instance in 0..INSTANCES {
            let place = format!("gpu{gpu}/gi{instance}");
            all += &format!("{place}/access {}\n", minor(gpu, instance, None));
            for compute in 0..COMPUTE {
                all += &format!(
                    "{place}/ci{compute}/access {}\n",
                    minor(gpu, instance, Some(compute))
                );
            }
        }
    }
    all
}

/// The devices that the kernel has, and the driver's.
fn with_own_devices(real: &str) -> String {
    let own = [
        (super::paths::MAJOR, "nvidia"),
        (super::paths::MAJOR, "nvidiactl"),
        (super::paths::UVM_MAJOR, "nvidia-uvm"),
        (MAJOR, "nvidia-caps"),
    ];
    let own: String = own.iter().map(|(major, name)| format!("{major:3} {name}\n")).collect();
    match real.split_once("\n\nBlock") {
        Some((characters, blocks)) => format!("{characters}\n{own}\nBlock{blocks}"),
        None => format!("Character devices:\n{own}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_drivers_table() {
        let all = all_minors();
        let lines: Vec<&str> = all.lines().collect();
        // As public reports of /proc/driver/nvidia-caps/mig-minors begin.
        assert_eq!(
            lines[..4],
            ["config 1", "monitor 2", "gpu0/gi0/access 3", "gpu0/gi0/ci0/access 4"]
        );
        assert_eq!(lines[12], "gpu0/gi1/ci0/access 13");
        assert_eq!(lines.len(), 2 + 32 * 15 * 9);
        assert!(lines.contains(&"gpu1/gi0/access 138"));
    }

    #[test]
    fn devices_of_the_driver_are_among_the_kernels() {
        let real = "Character devices:\n  1 mem\n\nBlock devices:\n  7 loop\n";
        let all = with_own_devices(real);
        assert!(all.starts_with("Character devices:\n  1 mem\n195 nvidia\n"), "{all}");
        assert!(all.contains("510 nvidia-caps\n\nBlock devices:\n  7 loop\n"), "{all}");
    }
}
