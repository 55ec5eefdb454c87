//! Where the GPUs of a machine are: sockets, NUMA nodes, host bridges and switches of PCIe; and which NVLinks are between
//! them, as data.
//!
//! A topology is a TOML file (`sim/topologies`), which `docs/profiles.md` describes. `files.rs` makes the files of it
//! that Linux has below `/sys`, which is all that programs know of it.

mod files;

use std::ops::Range;
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;

use crate::profile::{Place, Problem, Source, find_source};

pub(crate) use files::{CONFIGURATION, ENDPOINT, File, RESOURCES, Spot, Spots, express, resources};

/// The topologies that this build carries: name, text.
const CARRIED: [(&str, &str); 3] = [
    ("dgx-a100", include_str!("../../topologies/dgx-a100.toml")),
    ("dual-socket", include_str!("../../topologies/dual-socket.toml")),
    ("linked-pair", include_str!("../../topologies/linked-pair.toml")),
];

/// The most of each: nodes have one digit in names, buses have eight bits.
const MAX_NODES: usize = 8;
const MAX_BRIDGES: usize = 64;
const MAX_NESTING: usize = 4;
const MAX_CPU: u32 = 4095;
/// Links that a GPU has, and NVSwitches of NVIDIA's boards, at most.
const MAX_LINKS: u32 = 18;
/// More GPUs than a machine can have need no place.
const MAX_PLACES: u32 = crate::rm::MAX_GPUS;

/// A machine's nodes, and its NVLinks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    pub(crate) nodes: Vec<Node>,
    /// From one GPU to another.
    pub(crate) bonds: Vec<Bond>,
    /// NVSwitches that all links lead to, whatever a card's profile says.
    pub(crate) nvswitches: Option<u32>,
}

/// NVLinks between two GPUs, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bond {
    pub(crate) gpus: [usize; 2],
    pub(crate) links: u32,
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// Numbers of its CPUs; none: a share of those that the machine has.
    pub(crate) cpus: Option<Vec<u32>>,
    /// GiB of its memory.
    pub(crate) memory: u32,
    /// The socket that its CPUs are in.
    pub(crate) socket: u32,
    pub(crate) bridges: Vec<Bridge>,
}

/// A host bridge or a switch: GPUs at ports of it, then switches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bridge {
    pub(crate) gpus: u32,
    pub(crate) switches: Vec<Bridge>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTopology {
    nodes: Spanned<Vec<RawNode>>,
    #[serde(default)]
    bonds: Vec<RawBond>,
    nvswitches: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBond {
    gpus: Spanned<[usize; 2]>,
    links: Spanned<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNode {
    cpus: Option<Spanned<String>>,
    #[serde(default = "memory_of_a_node")]
    memory: u32,
    socket: Option<Spanned<u32>>,
    #[serde(default)]
    bridges: Vec<Spanned<RawBridge>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBridge {
    #[serde(default)]
    gpus: u32,
    #[serde(default)]
    switches: Vec<Spanned<RawBridge>>,
}

/// Made up.
fn memory_of_a_node() -> u32 {
    64
}

/// The names of the topologies that this build carries.
pub fn names() -> impl Iterator<Item = &'static str> {
    CARRIED.iter().map(|(name, _)| *name)
}

impl Topology {
    /// A topology by its name, or by the path of a file: what has a `/` or ends with `.toml` is a path.
    ///
    /// # Errors
    ///
    /// When there is none, or it is no topology: all that is wrong.
    pub fn load(name: &str) -> Result<Self, Vec<Problem>> {
        let source = find_source(name, &CARRIED, "sim/topologies", None).map_err(|missing| {
            let all: Vec<&str> = names().collect();
            let message = missing.unwrap_or_else(|| {
                let all = all.join(", ");
                format!("there is no topology `{name}`: expected {all} or the path of one")
            });
            vec![Problem::without_place("topology-not-read", message)]
        })?;
        Self::of_source(source)
    }

    fn of_source(source: Source) -> Result<Self, Vec<Problem>> {
        let source = Arc::new(source);
        let mut reader = Reader { source: source.clone(), problems: Vec::new() };
        let raw: RawTopology = toml::from_str(&source.text).map_err(|error| {
            reader.complain("topology-not-read", error.message(), error.span().unwrap_or(0..0));
            std::mem::take(&mut reader.problems)
        })?;
        let topology = reader.topology(raw);
        if reader.problems.is_empty() { Ok(topology) } else { Err(reader.problems) }
    }

    /// How many GPUs it has places for.
    pub fn places(&self) -> u32 {
        self.nodes.iter().flat_map(|node| &node.bridges).map(Bridge::places).sum()
    }

    /// Where the links between the first GPUs lead, those of each from its first link on: to a link of another.
    pub(crate) fn peers(&self, gpus: usize) -> Vec<Vec<(usize, u32)>> {
        let mut peers = vec![Vec::new(); gpus];
        for Bond { gpus: [a, b], links } in &self.bonds {
            // A GPU that the machine has not is at the end of no link.
            if *a.max(b) >= gpus {
                continue;
            }
            let first = [peers[*a].len() as u32, peers[*b].len() as u32];
            peers[*a].extend((first[1]..first[1] + links).map(|link| (*b, link)));
            peers[*b].extend((first[0]..first[0] + links).map(|link| (*a, link)));
        }
        peers
    }
}

impl Bridge {
    fn places(&self) -> u32 {
        self.gpus + self.switches.iter().map(Self::places).sum::<u32>()
    }

    /// Host bridges and switches, itself among them.
    fn count(&self) -> usize {
        1 + self.switches.iter().map(Self::count).sum::<usize>()
    }
}

struct Reader {
    source: Arc<Source>,
    problems: Vec<Problem>,
}

impl Reader {
    fn complain(&mut self, code: &'static str, message: impl Into<String>, span: Range<usize>) {
        let place = Place { source: self.source.clone(), span };
        self.problems.push(Problem::wrong(code, message, &place));
    }

    fn topology(&mut self, raw: RawTopology) -> Topology {
        let span = raw.nodes.span();
        let nodes = raw.nodes.into_inner();
        if !(1..=MAX_NODES).contains(&nodes.len()) {
            let message = format!("a machine has 1 to {MAX_NODES} nodes, not {}", nodes.len());
            self.complain("topology-size", message, span.clone());
        }
        let are_named = nodes.iter().filter(|node| node.cpus.is_some()).count();
        if are_named != 0 && are_named != nodes.len() {
            let message = "some nodes have `cpus` and others have none: expected all or no node";
            self.complain("topology-cpus", message, span.clone());
        }
        let mut taken = Vec::new();
        let nodes = (0..).zip(nodes).map(|(number, node)| self.node(number, node, &mut taken));
        let mut topology = Topology { nodes: nodes.collect(), bonds: Vec::new(), nvswitches: None };
        let bridges: usize =
            topology.nodes.iter().flat_map(|node| &node.bridges).map(Bridge::count).sum();
        if bridges > MAX_BRIDGES {
            let message =
                format!("{bridges} host bridges and switches, expected at most {MAX_BRIDGES}");
            self.complain("topology-size", message, span.clone());
        }
        let places = topology.places();
        if !(1..=MAX_PLACES).contains(&places) {
            let message = format!("places for {places} GPUs, expected 1 to {MAX_PLACES}");
            self.complain("topology-size", message, span);
            return topology;
        }
        topology.bonds = self.bonds(raw.bonds, places as usize);
        topology.nvswitches = raw.nvswitches.map(|switches| {
            let (span, switches) = (switches.span(), switches.into_inner());
            if switches > MAX_LINKS {
                let message = format!("{switches} NVSwitches, expected at most {MAX_LINKS}");
                self.complain("topology-links", message, span);
            } else if switches > 0 && !topology.bonds.is_empty() {
                let message = "all links lead to NVSwitches: none is left for `bonds`";
                self.complain("topology-links", message, span);
            }
            switches
        });
        topology
    }

    fn bonds(&mut self, raw: Vec<RawBond>, places: usize) -> Vec<Bond> {
        let mut used = vec![0_u32; places];
        let mut bonds = Vec::new();
        for RawBond { gpus, links } in raw {
            let ([a, b], count) = (*gpus.get_ref(), *links.get_ref());
            if a == b || a.max(b) >= places {
                let message = format!("expected two GPUs of 0 to {}", places - 1);
                self.complain("topology-links", message, gpus.span());
                continue;
            }
            for gpu in [a, b] {
                used[gpu] = used[gpu].saturating_add(count);
            }
            if count == 0 || used[a].max(used[b]) > MAX_LINKS {
                let message = format!("expected 1 to {MAX_LINKS} links, in all bonds of a GPU");
                self.complain("topology-links", message, links.span());
                continue;
            }
            bonds.push(Bond { gpus: [a, b], links: count });
        }
        bonds
    }

    fn node(&mut self, number: u32, raw: RawNode, taken: &mut Vec<u32>) -> Node {
        let cpus = raw.cpus.map(|cpus| {
            let span = cpus.span();
            let cpus = cpu_list(cpus.get_ref()).unwrap_or_else(|message| {
                self.complain("topology-cpus", message, span.clone());
                Vec::new()
            });
            if let Some(cpu) = cpus.iter().find(|cpu| taken.contains(cpu)) {
                self.complain("topology-cpus", format!("CPU {cpu} is of two nodes"), span);
            }
            taken.extend(&cpus);
            cpus
        });
        let bridges = raw.bridges.into_iter().map(|bridge| self.bridge(bridge, 0)).collect();
        let socket = raw.socket.map_or(number, |socket| {
            if *socket.get_ref() >= MAX_NODES as u32 {
                let message = format!("expected a socket of 0 to {}", MAX_NODES - 1);
                self.complain("topology-size", message, socket.span());
            }
            socket.into_inner()
        });
        Node { cpus, memory: raw.memory, socket, bridges }
    }

    fn bridge(&mut self, raw: Spanned<RawBridge>, depth: usize) -> Bridge {
        let span = raw.span();
        let RawBridge { gpus, switches } = raw.into_inner();
        if gpus == 0 && switches.is_empty() {
            self.complain("topology-size", "neither GPUs nor switches are at it", span.clone());
        }
        if gpus > MAX_PLACES {
            let message = format!("{gpus} GPUs, expected at most {MAX_PLACES}");
            self.complain("topology-size", message, span.clone());
        }
        if depth > MAX_NESTING {
            let message = format!("more than {MAX_NESTING} switches below each other");
            self.complain("topology-size", message, span);
            return Bridge::default();
        }
        let switches = switches.into_iter().map(|switch| self.bridge(switch, depth + 1)).collect();
        Bridge { gpus: gpus.min(MAX_PLACES), switches }
    }
}

/// CPUs as Linux writes them: `0-15,32-47`.
pub(crate) fn cpu_list(text: &str) -> Result<Vec<u32>, String> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|cpu| *cpu <= MAX_CPU);
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => cpus.extend(first..=last),
            _ => {
                let message = format!(
                    "expected CPUs such as `0-15,32-47`, none above {MAX_CPU}, found `{part}`"
                );
                return Err(message);
            }
        }
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Topology, Vec<String>> {
        let source = Source { path: "t.toml".to_owned(), text: text.into(), is_embedded: false };
        let told = |problems: Vec<Problem>| problems.iter().map(ToString::to_string).collect();
        Topology::of_source(source).map_err(told)
    }

    #[test]
    fn what_is_carried_is_right() {
        for (name, places) in [("dgx-a100", 8), ("dual-socket", 8), ("linked-pair", 2)] {
            let topology = Topology::load(name).map(|topology| topology.places());
            assert_eq!(topology, Ok(places), "{name}");
        }
        assert_eq!(names().count(), 3);
    }

    #[test]
    fn each_mistake_is_told_with_its_line() {
        for (text, told) in [
            ("nodes = 3", "t.toml:1: invalid type: integer `3`, expected a sequence"),
            ("nodes = []", "t.toml:1: a machine has 1 to 8 nodes, not 0"),
            ("[[nodes]]\ngpus = 1", "t.toml:2: unknown field `gpus`"),
            ("[[nodes]]\n[[nodes.bridges]]\n", "t.toml:2: neither GPUs nor switches are at it"),
            ("[[nodes]]\n[[nodes.bridges]]\ngpus = 9", "t.toml:2: 9 GPUs, expected at most 8"),
            ("[[nodes]]\ncpus = \"3-1\"", "t.toml:2: expected CPUs such as `0-15,32-47`"),
            ("[[nodes]]\ncpus = \"0-9999\"", "none above 4095, found `0-9999`"),
            ("[[nodes]]\ncpus = \"1\"\n[[nodes]]\ncpus = \"0-1\"", "t.toml:4: CPU 1 is of two"),
            ("[[nodes]]\ncpus = \"1\"\n[[nodes]]", "t.toml:1: some nodes have `cpus`"),
            ("[[nodes]]\nsocket = 8", "t.toml:2: expected a socket of 0 to 7"),
        ] {
            let problems = read(text).expect_err(text);
            assert!(problems.iter().any(|problem| problem.contains(told)), "{text}: {problems:?}");
        }
        const PAIR: &str = "\n[[nodes]]\n[[nodes.bridges]]\ngpus = 2\n";
        for (links, told) in [
            ("[[bonds]]\ngpus = [0, 2]\nlinks = 4", "t.toml:6: expected two GPUs of 0 to 1"),
            ("[[bonds]]\ngpus = [1, 1]\nlinks = 4", "t.toml:6: expected two GPUs of 0 to 1"),
            ("[[bonds]]\ngpus = [0, 1]\nlinks = 19", "t.toml:7: expected 1 to 18 links"),
            ("[[bonds]]\ngpus = [0, 1]\nlink = 1", "t.toml:7: unknown field `link`"),
        ] {
            let problems = read(&format!("{PAIR}{links}")).expect_err(links);
            assert!(problems.iter().any(|problem| problem.contains(told)), "{links}: {problems:?}");
        }
        for (switches, told) in [(19, "19 NVSwitches, expected"), (6, "none is left for `bonds`")] {
            let bonds = "[[bonds]]\ngpus = [0, 1]\nlinks = 4";
            let problems = read(&format!("nvswitches = {switches}{PAIR}{bonds}")).expect_err(told);
            assert!(
                problems[0].contains("t.toml:1: ") && problems[0].contains(told),
                "{problems:?}"
            );
        }
        assert!(Topology::load("nowhere").is_err());
    }

    #[test]
    fn links_have_numbers_on_both_sides() {
        let bonds = "[[bonds]]\ngpus = [0, 1]\nlinks = 2\n[[bonds]]\ngpus = [2, 0]\nlinks = 1";
        let text = format!("[[nodes]]\n[[nodes.bridges]]\ngpus = 3\n{bonds}");
        let topology = read(&text).unwrap();
        let (first, second) = (vec![(1, 0), (1, 1), (2, 0)], vec![(0, 0), (0, 1)]);
        assert_eq!(topology.peers(3), [first.clone(), second.clone(), vec![(0, 2)]]);
        assert_eq!(topology.peers(2), [first[..2].to_vec(), second]);
    }

    #[test]
    fn cpus_are_read_as_linux_writes_them() {
        assert_eq!(cpu_list("0-2,5\n"), Ok(vec![0, 1, 2, 5]));
        assert_eq!(cpu_list(""), Ok(Vec::new()));
        assert!(cpu_list("1-").is_err());
    }
}
