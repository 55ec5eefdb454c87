//! The files of a topology: devices of the bus that are bridges, and nodes of memory (Linux,
//! Documentation/ABI/testing/sysfs-bus-pci and stable/sysfs-devices-node).

use std::fs;

use super::{Bridge, Node, Topology, cpu_list};

const NODES: &str = "/sys/devices/system/node";
/// Links to the same by their bus, where libnvidia-ml of the branch 525 looks.
const NODES_OF_BUS: &str = "/sys/bus/node/devices";
const CPUS: &str = "/sys/devices/system/cpu";

/// How the file of a device's configuration space ends.
pub(crate) const CONFIGURATION: &str = "/config";

/// What devices of PCI Express are, as their capability says it.
pub(crate) const ENDPOINT: u16 = 0;
const ROOT: u16 = 4;
const UPSTREAM: u16 = 5;
const DOWNSTREAM: u16 = 6;

/// Vendor, device and kind of ports, as the public PCI ID repository has them: a root port of AMD's servers, a switch
/// of Broadcom's.
const ROOT_PORT: (u16, u16, u16) = (0x1022, 0x1483, ROOT);
const UPPER_PORT: (u16, u16, u16) = (0x1000, 0xc010, UPSTREAM);
const LOWER_PORT: (u16, u16, u16) = (0x1000, 0xc010, DOWNSTREAM);
/// The first port of a machine without a topology, which few real machines have: their devices are there as well.
const APART: u8 = 0x0c;
/// A bridge from PCI to PCI.
const BRIDGE_CLASS: u32 = 0x06_0400;

/// A file, and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
}

/// Where a GPU is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) bus: u32,
    pub(crate) node: Option<u32>,
    /// The folder of the port or host bridge that it is at.
    pub(crate) port: String,
}

impl Spot {
    /// Its name on the bus.
    pub(crate) fn location(&self) -> String {
        location(self.bus, 0)
    }

    /// Its folder.
    pub(crate) fn folder(&self) -> String {
        format!("{}/{}", self.port, self.location())
    }
}

/// The folder of a host bridge, by the number of its bus.
fn host_bridge(bus: u32) -> String {
    format!("/sys/devices/pci0000:{bus:02x}")
}

/// The name of a device on the bus.
fn location(bus: u32, slot: u8) -> String {
    format!("0000:{bus:02x}:{slot:02x}.0")
}

/// Where all GPUs are, and the files that tell it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Spots {
    pub(crate) gpus: Vec<Spot>,
    /// Folders of which all entries are simulated, and the files.
    pub(crate) folders: Vec<String>,
    pub(crate) files: Vec<File>,
    /// Folders of bridges, which the bus has links to.
    pub(crate) bridges: Vec<String>,
    /// Other links: where they are, and where they lead.
    pub(crate) links: Vec<(String, String)>,
    /// Where the links of each GPU lead that are between cards: to a link of another.
    pub(crate) peers: Vec<Vec<(usize, u32)>>,
    pub(crate) nvswitches: Option<u32>,
}

impl Spots {
    /// Of a machine that tells nothing: each GPU is at a root port of its own, and no node of memory is near.
    pub(crate) fn apart(gpus: usize) -> Self {
        let mut walk = Walk { spots: Self::default(), next: 0, left: gpus, near: None };
        let bridge = Bridge { gpus: u32::try_from(gpus).unwrap_or(0), switches: Vec::new() };
        walk.host_bridge(&bridge, APART);
        walk.spots
    }

    /// Of so many GPUs, in the order of the places of a topology. Ports without a GPU are left out.
    pub(crate) fn of(topology: &Topology, gpus: usize) -> Self {
        let nodes = with_cpus(topology);
        let mut walk = Walk { spots: Self::default(), next: 0, left: gpus, near: None };
        for (number, node) in (0..).zip(&nodes) {
            walk.near = Some((number, node.cpus.as_deref().unwrap_or_default()));
            // The first device of a host bridge's bus is the host bridge itself.
            node.bridges.iter().for_each(|bridge| walk.host_bridge(bridge, 1));
        }
        let mut spots = walk.spots;
        spots.nodes(&nodes);
        spots.sockets(&nodes);
        spots.nvswitches = topology.nvswitches;
        spots.peers = topology.peers(gpus);
        spots
    }

    /// Takes over what was written to a configuration space: of its registers, how a port controls its link.
    pub(crate) fn configure(&mut self, file: usize, written: &[u8]) {
        let control = written.get(EXPRESS + LINK_CONTROL..).and_then(|rest| rest.first_chunk());
        let space = self.files.get_mut(file).filter(|file| file.path.ends_with(CONFIGURATION));
        if let (Some(file), Some(control)) = (space, control) {
            control_link(&mut file.bytes, u16::from_le_bytes(*control));
        }
    }

    /// Lets the links of all ports go up again.
    pub(crate) fn train_links(&mut self) {
        let spaces = self.files.iter_mut().filter(|file| file.path.ends_with(CONFIGURATION));
        for space in spaces {
            let control = word(&space.bytes, EXPRESS + LINK_CONTROL) & !LINK_IS_OFF;
            control_link(&mut space.bytes, control);
        }
    }

    fn file(&mut self, path: String, text: &str) {
        self.files.push(File { path, bytes: text.as_bytes().to_vec() });
    }

    fn nodes(&mut self, nodes: &[Node]) {
        self.folders.extend([NODES, NODES_OF_BUS].map(str::to_owned));
        let all = list(&(0..nodes.len() as u32).collect::<Vec<_>>());
        for name in ["online", "possible", "has_cpu", "has_memory", "has_normal_memory"] {
            self.file(format!("{NODES}/{name}"), &format!("{all}\n"));
        }
        for (number, node) in nodes.iter().enumerate() {
            let cpus = node.cpus.as_deref().unwrap_or_default();
            let bytes = u64::from(node.memory) << 20;
            let rows = [("MemTotal:", bytes), ("MemFree:", bytes), ("MemUsed:", 0)];
            let row = |(name, size)| format!("Node {number} {name:<15} {size} kB\n");
            // As firmware tells it where nothing better is known: 10 to itself, 20 to others.
            let to = |other| if other == number { "10" } else { "20" };
            let distances: Vec<&str> = (0..nodes.len()).map(to).collect();
            let place = format!("{NODES}/node{number}");
            self.file(format!("{place}/cpumap"), &map(cpus));
            self.file(format!("{place}/cpulist"), &format!("{}\n", list(cpus)));
            self.file(format!("{place}/meminfo"), &rows.map(row).concat());
            self.file(format!("{place}/distance"), &format!("{}\n", distances.join(" ")));
            self.links.push((format!("{NODES_OF_BUS}/node{number}"), place.clone()));
            self.folders.push(place);
        }
        // A program may use the nodes that its control group has.
        for path in node_sets() {
            self.file(path, &format!("{all}\n"));
        }
    }

    /// What CPUs say of their sockets, as far as the real machine has them.
    fn sockets(&mut self, nodes: &[Node]) {
        for node in nodes {
            let same = nodes.iter().filter(|other| other.socket == node.socket);
            let mut socket: Vec<u32> =
                same.flat_map(|other| other.cpus.iter().flatten()).copied().collect();
            socket.sort_unstable();
            for cpu in node.cpus.iter().flatten() {
                let place = format!("{CPUS}/cpu{cpu}/topology");
                if !fs::exists(&place).unwrap_or(false) {
                    continue;
                }
                self.file(format!("{place}/physical_package_id"), &format!("{}\n", node.socket));
                // The second is what kernels before 5.3 call the first.
                for name in ["package_cpus", "core_siblings", "die_cpus"] {
                    self.file(format!("{place}/{name}"), &map(&socket));
                    self.file(format!("{place}/{name}_list"), &format!("{}\n", list(&socket)));
                }
            }
        }
    }
}

/// The walk down from host bridges: buses are numbered as firmware does, deep before wide.
struct Walk<'a> {
    spots: Spots,
    next: u8,
    /// GPUs that have no place yet.
    left: usize,
    /// The node of memory that is near, and its CPUs.
    near: Option<(u32, &'a [u32])>,
}

impl Walk<'_> {
    fn take_bus(&mut self) -> u8 {
        let bus = self.next;
        self.next = bus.saturating_add(1);
        bus
    }

    fn host_bridge(&mut self, bridge: &Bridge, first: u8) {
        if self.left > 0 {
            let bus = self.take_bus();
            let place = host_bridge(bus.into());
            // That of the real machine has its own devices as well, which links of others lead to.
            if !fs::exists(&place).unwrap_or(false) {
                self.spots.folders.push(place.clone());
            }
            self.ports(bridge, (&place, bus), first, ROOT_PORT);
        }
    }

    /// The ports of a bridge whose folder and bus are known, and what is at them.
    fn ports(
        &mut self,
        bridge: &Bridge,
        (place, bus): (&str, u8),
        first: u8,
        kind: (u16, u16, u16),
    ) {
        let gpus = (0..bridge.gpus).map(|_| None);
        let all = gpus.chain(bridge.switches.iter().map(Some));
        for (slot, switch) in (first..32).zip(all) {
            if self.left == 0 {
                return;
            }
            let below = self.take_bus();
            let port = format!("{place}/{}", location(bus.into(), slot));
            match switch {
                None => self.gpu(&port, below),
                Some(switch) => {
                    let inner = self.take_bus();
                    let upper = format!("{port}/{}", location(below.into(), 0));
                    self.ports(switch, (&upper, inner), 0, LOWER_PORT);
                    self.bridge(&upper, [below, inner], UPPER_PORT);
                }
            }
            self.bridge(&port, [bus, below], kind);
        }
    }

    fn gpu(&mut self, port: &str, bus: u8) {
        self.left -= 1;
        let node = self.near.map(|(node, _)| node);
        let spot = Spot { bus: bus.into(), node, port: port.to_owned() };
        self.locality(&spot.folder());
        self.spots.gpus.push(spot);
    }

    /// A bridge on a bus; its own are `below` to the last one taken.
    fn bridge(&mut self, place: &str, [bus, below]: [u8; 2], port: (u16, u16, u16)) {
        let (vendor, device, _) = port;
        self.spots.folders.push(place.to_owned());
        self.spots.bridges.push(place.to_owned());
        let buses = [bus, below, self.next - 1];
        let config = configuration(port, buses);
        self.spots.files.push(File { path: format!("{place}{CONFIGURATION}"), bytes: config });
        self.spots.file(format!("{place}/vendor"), &format!("{vendor:#06x}\n"));
        self.spots.file(format!("{place}/device"), &format!("{device:#06x}\n"));
        self.spots.file(format!("{place}/class"), &format!("{BRIDGE_CLASS:#08x}\n"));
        self.spots.file(format!("{place}/irq"), "0\n");
        self.spots.file(format!("{place}/resource"), &resources(&[], RESOURCES + WINDOWS));
        let node = self.near.map_or(-1, |(node, _)| i64::from(node));
        self.spots.file(format!("{place}/numa_node"), &format!("{node}\n"));
        self.locality(place);
    }

    fn locality(&mut self, place: &str) {
        let Some((_, cpus)) = self.near else { return };
        self.spots.file(format!("{place}/local_cpus"), &map(cpus));
        self.spots.file(format!("{place}/local_cpulist"), &format!("{}\n", list(cpus)));
    }
}

/// Resources that a device has (Linux, drivers/pci/pci-sysfs.c: `resource_show`), and those of a bridge for what is
/// below it.
pub(crate) const RESOURCES: usize = 13;
const WINDOWS: usize = 4;

/// What a device says of its resources, one in each line: where it begins and ends, and flags. None are zeros.
pub(crate) fn resources(known: &[((u64, u64), u64)], count: usize) -> String {
    let known = known
        .iter()
        .map(|((base, size), flags)| (*base, base.saturating_add(*size).saturating_sub(1), *flags));
    let all = known.chain(std::iter::repeat((0, 0, 0))).take(count);
    all.map(|(first, last, flags)| format!("{first:#018x} {last:#018x} {flags:#018x}\n")).collect()
}

/// The header of a bridge's configuration space, as the standard for PCI has it: type 1.
fn configuration((vendor, device, kind): (u16, u16, u16), buses: [u8; 3]) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    let mut put =
        |offset: usize, part: &[u8]| bytes[offset..offset + part.len()].copy_from_slice(part);
    put(0x00, &vendor.to_le_bytes());
    put(0x02, &device.to_le_bytes());
    // Input and output, memory and bus mastering are on.
    put(0x04, &0x0007_u16.to_le_bytes());
    put(0x08, &(BRIDGE_CLASS << 8).to_le_bytes());
    put(0x0e, &[1]);
    put(0x18, &buses);
    express(&mut bytes, kind);
    bytes
}

/// Where a configuration space has its capability of PCI Express, and registers in it, as the standard has them.
const EXPRESS: usize = 0x40;
const LINK_CONTROL: usize = 0x10;
const LINK_STATUS: usize = 0x12;
/// A bit of the control, and one of the status.
const LINK_IS_OFF: u16 = 1 << 4;
const LINK_IS_UP: u16 = 1 << 13;

/// The only capability of a device: that of PCI Express. Links are of the fourth generation and of 16 lanes; they are up.
pub(crate) fn express(bytes: &mut [u8], kind: u16) {
    const LINK: u16 = 4 | 16 << 4;
    // There is a list of capabilities, and this is where it begins.
    bytes[0x06] |= 1 << 4;
    bytes[0x34] = EXPRESS as u8;
    put_word(bytes, EXPRESS, 0x10);
    // The version of the capability, and what the device is.
    put_word(bytes, EXPRESS + 0x02, 2 | kind << 4);
    put_word(bytes, EXPRESS + 0x0c, LINK);
    put_word(bytes, EXPRESS + LINK_STATUS, LINK | LINK_IS_UP);
}

/// A port gets another control of its link, whose status follows.
fn control_link(bytes: &mut [u8], control: u16) {
    let status = word(bytes, EXPRESS + LINK_STATUS) & !LINK_IS_UP;
    let is_up = if control & LINK_IS_OFF == 0 { LINK_IS_UP } else { 0 };
    put_word(bytes, EXPRESS + LINK_CONTROL, control);
    put_word(bytes, EXPRESS + LINK_STATUS, status | is_up);
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn put_word(bytes: &mut [u8], at: usize, word: u16) {
    bytes[at..at + 2].copy_from_slice(&word.to_le_bytes());
}

/// The nodes, each with CPUs: its own, or a share of those that this machine has, in their order.
fn with_cpus(topology: &Topology) -> Vec<Node> {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let online = cpu_list(&online).unwrap_or_default();
    let count = topology.nodes.len();
    let share = |number: usize| {
        let bound = |number: usize| online.len() * number / count;
        online[bound(number)..bound(number + 1)].to_vec()
    };
    let node = |(number, node): (usize, &Node)| {
        let cpus = node.cpus.clone().unwrap_or_else(|| share(number));
        Node { cpus: Some(cpus), ..node.clone() }
    };
    topology.nodes.iter().enumerate().map(node).collect()
}

/// The files that say which nodes this process's control group, and so those of its programs, may use.
fn node_sets() -> Vec<String> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let paths = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?.trim_end_matches('/'));
        match controllers {
            "" => Some(format!("/sys/fs/cgroup{group}/cpuset.mems.effective")),
            _ if controllers.split(',').any(|it| it == "cpuset") => {
                Some(format!("/sys/fs/cgroup/cpuset{group}/cpuset.mems"))
            }
            _ => None,
        }
    });
    paths.filter(|path| fs::exists(path).unwrap_or(false)).collect()
}

/// A set as Linux writes it: `0-3,8`.
fn list(numbers: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let range = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

/// A set as a mask: words of 32 bits, the highest first.
fn map(numbers: &[u32]) -> String {
    let mut words = vec![0_u32; numbers.last().map_or(0, |last| last / 32) as usize + 1];
    for number in numbers {
        words[(number / 32) as usize] |= 1 << (number % 32);
    }
    let words: Vec<String> = words.iter().rev().map(|word| format!("{word:08x}")).collect();
    format!("{}\n", words.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spots(gpus: usize) -> Spots {
        Spots::of(&Topology::load("dual-socket").unwrap(), gpus)
    }

    #[test]
    fn gpus_are_behind_the_bridges_that_lead_to_them() {
        let spots = spots(8);
        let nodes: Vec<_> = spots.gpus.iter().filter_map(|gpu| gpu.node).collect();
        assert_eq!(nodes, [0, 0, 0, 0, 1, 1, 1, 1]);
        let configs = spots.files.iter().filter(|file| file.path.ends_with("config"));
        let ranges: Vec<_> = configs.map(|file| (file.bytes[0x19], file.bytes[0x1a])).collect();
        for gpu in &spots.gpus {
            let leads = |&&(first, last): &&(u8, u8)| (first..=last).contains(&(gpu.bus as u8));
            // The first two are below a root port and both ports of a switch, the next behind two switches.
            let expected = match gpu.node {
                Some(0) if gpu.bus < 5 => 3,
                Some(0) => 5,
                _ => 1,
            };
            assert_eq!(ranges.iter().filter(leads).count(), expected, "{gpu:?}: {ranges:?}");
        }
    }

    #[test]
    fn a_device_is_in_the_folder_of_its_port() {
        let (apart, spots) = (Spots::apart(2), spots(8));
        let folders = |spots: &Spots| spots.gpus.iter().map(Spot::folder).collect::<Vec<_>>();
        let ports = ["0000:00:0c.0/0000:01:00.0", "0000:00:0d.0/0000:02:00.0"];
        assert_eq!(folders(&apart), ports.map(|port| format!("/sys/devices/pci0000:00/{port}")));
        let folders = folders(&spots);
        let switch = "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0";
        assert_eq!(folders[0], format!("{switch}/0000:02:00.0/0000:03:00.0"));
        assert_eq!(
            folders[2],
            format!("{switch}/0000:02:02.0/0000:05:00.0/0000:06:00.0/0000:07:00.0")
        );
        // Each folder on the way is a bridge, or the host bridge.
        for folder in folders {
            let way = folder.match_indices('/').skip(4).map(|(end, _)| folder[..end].to_owned());
            assert!(way.clone().count() > 0, "{folder}");
            assert!(way.clone().all(|bridge| spots.bridges.contains(&bridge)), "{folder}");
        }
    }

    #[test]
    fn a_port_switches_its_link_off_and_on() {
        let mut spots = spots(1);
        let configs = spots.files.iter().position(|file| file.path.ends_with(CONFIGURATION));
        let port = configs.unwrap();
        let before = spots.files[port].bytes.clone();
        let status = |spots: &Spots| word(&spots.files[port].bytes, EXPRESS + LINK_STATUS);
        assert_ne!(status(&spots) & LINK_IS_UP, 0);
        let mut written = before.clone();
        written[EXPRESS + LINK_CONTROL] = 0x10;
        written[0] = 0xff;
        spots.configure(port, &written);
        assert_eq!(status(&spots) & LINK_IS_UP, 0);
        assert_eq!(spots.files[port].bytes[..4], before[..4], "the vendor is not written");
        spots.configure(port, &written[..EXPRESS]);
        spots.configure(usize::MAX, &written);
        spots.train_links();
        assert_eq!(spots.files[port].bytes, before);
    }

    #[test]
    fn a_port_without_a_gpu_is_left_out() {
        let (one, all) = (spots(1), spots(8));
        assert_eq!(one.gpus, all.gpus[..1]);
        assert!(one.files.len() < all.files.len() / 2);
    }

    #[test]
    fn sets_are_written_as_linux_does() {
        assert_eq!(list(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(map(&[0, 1, 33]), "00000002,00000003\n");
        assert_eq!(map(&[]), "00000000\n");
    }
}
