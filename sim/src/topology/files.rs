//! The files of a topology: devices of the bus that are bridges, and nodes of memory (Linux,
//! Documentation/ABI/testing/sysfs-bus-pci and stable/sysfs-devices-node).

use std::fs;

use super::{Bridge, Node, Topology, cpu_list};

const BUS: &str = "/sys/bus/pci/devices";
const NODES: &str = "/sys/devices/system/node";
/// The same by their bus, where libnvidia-ml of the branch 525 looks.
const NODES_OF_BUS: &str = "/sys/bus/node/devices";
const CPUS: &str = "/sys/devices/system/cpu";

/// Vendor and device of ports, as the public PCI ID repository has them: a root port of AMD's servers, a switch of
/// Broadcom's.
const ROOT_PORT: (u16, u16) = (0x1022, 0x1483);
const SWITCH: (u16, u16) = (0x1000, 0xc010);
/// A bridge from PCI to PCI.
const BRIDGE_CLASS: u32 = 0x06_0400;

/// A file, and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
}

/// Where a GPU is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) bus: u32,
    pub(crate) node: Option<u32>,
}

/// Where all GPUs are, and the files that tell it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Spots {
    pub(crate) gpus: Vec<Spot>,
    /// Folders of which all entries are simulated, and the files.
    pub(crate) folders: Vec<String>,
    pub(crate) files: Vec<File>,
    /// Where the links of each GPU lead that are between cards: to a link of another.
    pub(crate) peers: Vec<Vec<(usize, u32)>>,
    pub(crate) nvswitches: Option<u32>,
}

impl Spots {
    /// Of a machine that tells nothing: each GPU is alone on a bus, and no node of memory is its own.
    pub(crate) fn apart(gpus: usize) -> Self {
        let gpus = (1..).take(gpus).map(|bus| Spot { bus, node: None }).collect();
        Self { gpus, ..Self::default() }
    }

    /// Of so many GPUs, in the order of the places of a topology. Ports without a GPU are left out.
    pub(crate) fn of(topology: &Topology, gpus: usize) -> Self {
        let nodes = with_cpus(topology);
        let mut walk = Walk { spots: Self::default(), next: 0, left: gpus, node: 0, cpus: &[] };
        for (number, node) in (0..).zip(&nodes) {
            (walk.node, walk.cpus) = (number, node.cpus.as_deref().unwrap_or_default());
            node.bridges.iter().for_each(|bridge| walk.host_bridge(bridge));
        }
        let mut spots = walk.spots;
        spots.nodes(&nodes);
        spots.sockets(&nodes);
        spots.nvswitches = topology.nvswitches;
        spots.peers = topology.peers(gpus);
        spots
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
            for place in [NODES, NODES_OF_BUS].map(|folder| format!("{folder}/node{number}")) {
                self.file(format!("{place}/cpumap"), &map(cpus));
                self.file(format!("{place}/cpulist"), &format!("{}\n", list(cpus)));
                self.file(format!("{place}/meminfo"), &rows.map(row).concat());
                self.file(format!("{place}/distance"), &format!("{}\n", distances.join(" ")));
                self.folders.push(place);
            }
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
    node: u32,
    cpus: &'a [u32],
}

impl Walk<'_> {
    fn take_bus(&mut self) -> u8 {
        let bus = self.next;
        self.next = bus.saturating_add(1);
        bus
    }

    fn host_bridge(&mut self, bridge: &Bridge) {
        if self.left > 0 {
            let bus = self.take_bus();
            // The first device of a host bridge's bus is the host bridge itself.
            self.ports(bridge, bus, 1, ROOT_PORT);
        }
    }

    /// The ports of a bridge whose bus is known, and what is at them.
    fn ports(&mut self, bridge: &Bridge, bus: u8, first: u8, kind: (u16, u16)) {
        let gpus = (0..bridge.gpus).map(|_| None);
        let all = gpus.chain(bridge.switches.iter().map(Some));
        for (slot, switch) in (first..32).zip(all) {
            if self.left == 0 {
                return;
            }
            let below = self.take_bus();
            match switch {
                None => self.gpu(below),
                Some(switch) => {
                    let inner = self.take_bus();
                    self.ports(switch, inner, 0, SWITCH);
                    self.bridge((below, 0), inner, SWITCH);
                }
            }
            self.bridge((bus, slot), below, kind);
        }
    }

    fn gpu(&mut self, bus: u8) {
        self.left -= 1;
        self.spots.gpus.push(Spot { bus: bus.into(), node: Some(self.node) });
        self.locality(&format!("{BUS}/0000:{bus:02x}:00.0"));
    }

    /// A bridge whose buses are `below` to the last one taken.
    fn bridge(&mut self, (bus, slot): (u8, u8), below: u8, (vendor, device): (u16, u16)) {
        let place = format!("{BUS}/0000:{bus:02x}:{slot:02x}.0");
        self.spots.folders.push(place.clone());
        let buses = [bus, below, self.next - 1];
        let config = configuration(vendor, device, buses);
        self.spots.files.push(File { path: format!("{place}/config"), bytes: config });
        self.spots.file(format!("{place}/vendor"), &format!("{vendor:#06x}\n"));
        self.spots.file(format!("{place}/device"), &format!("{device:#06x}\n"));
        self.spots.file(format!("{place}/class"), &format!("{BRIDGE_CLASS:#08x}\n"));
        self.spots.file(format!("{place}/numa_node"), &format!("{}\n", self.node));
        self.locality(&place);
    }

    fn locality(&mut self, place: &str) {
        self.spots.file(format!("{place}/local_cpus"), &map(self.cpus));
        self.spots.file(format!("{place}/local_cpulist"), &format!("{}\n", list(self.cpus)));
    }
}

/// The header of a bridge's configuration space, as the standard for PCI has it: type 1.
fn configuration(vendor: u16, device: u16, buses: [u8; 3]) -> Vec<u8> {
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
    bytes
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
