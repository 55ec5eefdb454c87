//! NVLink: where the links of a card lead, by its profile (`src/nvidia/src/kernel/gpu/nvlink/kernel_nvlinkapi.c`).

use super::{Handler, Target};
use crate::Status;
use crate::rm::Driver;
use crate::rm::failed::Result;
use crate::rm::gpu::Gpu;
use crate::rm::interface::Params;

/// What a recording of a real card answers better than this does.
pub(super) const STATUS: &str = "NV2080_CTRL_CMD_NVLINK_GET_NVLINK_STATUS";

pub(super) fn handler(name: &str) -> Option<Handler> {
    (name == STATUS).then_some(status)
}

/// Numbers that have names (`ctrl2080nvlink.h`): the caps of a link, NVHS, four lanes each way, an active link at high
/// speed, that it leads to something and is no loop.
const CAPS: u32 = 0x101f;
const PHY_NVHS: u32 = 1;
const LANES: u32 = 4;
const ACTIVE: u32 = 3;
const HIGH_SPEED: u32 = 0;
const CONNECTED: u32 = 1;
const NO_LOOP: u32 = 2;
/// NV2080_CTRL_NVLINK_DEVICE_INFO_DEVICE_ID_FLAGS_PCI, and the types of devices.
const BY_PCI: u32 = 1;
const GPU: u32 = 2;
const SWITCH: u32 = 3;
/// Made up: where the first switch is on the bus.
const FIRST_SWITCH: u32 = 0x80;

/// What is at the other end of a link.
struct Remote {
    kind: u32,
    bus: u32,
    id: u32,
    link: u32,
}

/// Links lead to the switches in turns, as on NVIDIA's boards of eight, or to the GPUs that the topology says.
fn status(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let gpu = target.kind.gpu().ok_or(Status::INVALID_OBJECT)?;
    let number = |name: &str| {
        let number = driver.number_of(gpu, &format!("links.{name}")).unwrap_or(0);
        u32::try_from(number).unwrap_or(0)
    };
    let switches = number("switches");
    let room = params.count("linkInfo")? as u32;
    if number("count") == 0 {
        return Err(Status::NOT_SUPPORTED.into());
    }
    let count = number("active").min(room).min(32);
    let version = number("version");
    let mask = (1_u64 << count) - 1;
    params.set("enabledLinkMask", mask)?;
    let own = driver.gpus.get(gpu).ok_or(Status::INVALID_DEVICE)?;
    let bus = own.bus();
    let id = pci_id(own);
    let switch = number("switch_device") << 16 | u32::from(own.facts().vendor);
    let peers = driver.peers_of(gpu);
    for link in 0..count {
        let peer =
            peers.get(link as usize).and_then(|(gpu, link)| Some((driver.gpus.get(*gpu)?, *link)));
        let remote = match peer {
            Some((gpu, link)) => Remote { kind: GPU, bus: gpu.bus(), id: pci_id(gpu), link },
            None => {
                let bus = FIRST_SWITCH + link % switches.max(1);
                Remote { kind: SWITCH, bus, id: switch, link }
            }
        };
        let path = |field: &str| format!("linkInfo[{link}].{field}");
        for (field, value) in [
            ("capsTbl", CAPS),
            ("phyType", PHY_NVHS),
            ("subLinkWidth", LANES),
            ("linkState", ACTIVE),
            ("rxSublinkStatus", HIGH_SPEED),
            ("txSublinkStatus", HIGH_SPEED),
            ("nvlinkVersion", version),
            ("nciVersion", version),
            ("phyVersion", version),
            ("nvlinkLineRateMbps", number("line_rate")),
            ("nvlinkLinkDataRateKiBps", number("data_rate")),
            ("nvlinkCommonClockSpeedMhz", number("clock")),
            ("nvlinkLinkClockMhz", number("clock")),
            ("connected", CONNECTED),
            ("loopProperty", NO_LOOP),
            ("remoteDeviceLinkNumber", remote.link),
            ("localDeviceLinkNumber", link),
            ("remoteDeviceInfo.deviceIdFlags", BY_PCI),
            ("remoteDeviceInfo.bus", remote.bus),
            ("remoteDeviceInfo.pciDeviceId", remote.id),
            ("remoteDeviceInfo.deviceType", remote.kind),
            ("localDeviceInfo.deviceIdFlags", BY_PCI),
            ("localDeviceInfo.bus", bus),
            ("localDeviceInfo.pciDeviceId", id),
            ("localDeviceInfo.deviceType", GPU),
        ] {
            // Older and newer drivers have fewer of them.
            params.set_if_any(&path(field), value);
        }
    }
    Ok(())
}

impl Driver {
    /// Where the links of a GPU lead that the topology ties to other GPUs.
    fn peers_of(&self, gpu: usize) -> &[(usize, u32)] {
        self.spots.peers.get(gpu).map(Vec::as_slice).unwrap_or_default()
    }

    /// What a card has of its links: how many, how many lead somewhere, their version, and to how many switches.
    fn links_of(&self, gpu: usize) -> [i128; 4] {
        let number = |name: &str| self.number_of(gpu, &format!("links.{name}")).unwrap_or(0);
        ["count", "active", "version", "switches"].map(number)
    }

    /// Whether links lead from one card to another, or from both to the machine's switches.
    pub(super) fn are_linked(&self, one: usize, other: usize) -> bool {
        let [are_switched, is_other] = [one, other].map(|gpu| self.is_switched(gpu));
        are_switched && is_other || self.peers_of(one).iter().any(|(gpu, _)| *gpu == other)
    }

    /// Whether the links of a card lead to the machine's switches.
    pub(super) fn is_switched(&self, gpu: usize) -> bool {
        let [count, active, _, switches] = self.links_of(gpu);
        self.peers_of(gpu).is_empty() && count > 0 && active > 0 && switches > 0
    }

    /// Why the machine's links cannot be: both ends of one are of the same version, and a card has no more than it has.
    pub(in crate::rm) fn wrong_links(&self) -> Option<String> {
        let name = |gpu: usize| format!("GPU {gpu} (`{}`)", self.gpus[gpu].profile.name);
        let mut switched: Option<(usize, [i128; 4])> = None;
        for gpu in 0..self.gpus.len() {
            let own @ [count, _, version, switches] = self.links_of(gpu);
            let peers = self.peers_of(gpu);
            if peers.len() as i128 > count {
                let (name, wanted) = (name(gpu), peers.len());
                return Some(format!("{name} has {count} NVLinks, the topology gives it {wanted}"));
            }
            let differs = peers.iter().find(|(other, _)| self.links_of(*other)[2] != version);
            if let Some((other, _)) = differs {
                let (one, other) = (name(gpu), name(*other));
                return Some(format!("{one} and {other} have NVLinks of different generations"));
            }
            if !self.is_switched(gpu) {
                continue;
            }
            let (first, known) = *switched.get_or_insert((gpu, own));
            if known != own {
                let (one, other) = (name(first), name(gpu));
                return Some(format!(
                    "{one} has {} NVLinks to {} NVSwitches and {other} {count} to {switches}, or of another \
                     generation: cards on the same switches are of one kind",
                    known[0], known[3],
                ));
            }
        }
        None
    }
}

fn pci_id(gpu: &Gpu) -> u32 {
    let facts = gpu.facts();
    u32::from(facts.device) << 16 | u32::from(facts.vendor)
}
