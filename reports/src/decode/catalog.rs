//! What there is to recognise: nodes with their paths, and the requests that each one knows.
//!
//! The requests of several tags stand side by side, so that a log tells which releases it fits.

use std::collections::{BTreeMap, HashMap};

use rustc_hash::FxHashMap;

use super::{narrow, request};
use crate::list::{self, Listed};
use nvabi_pipeline::globs;
use nvabi_pipeline::model::{Facts, Surface, request_size};
use nvabi_pipeline::spec::{Item, Spec};
use nvabi_pipeline::tag::Tag;

/// Index of a node in [`Catalog::nodes`].
pub(crate) type NodeId = u16;

/// The nodes of the x86 driver by path, those without calls in a spec among them.
const X86: [(&str, &[&str], &str); 7] = [
    ("nvidiactl", &["/dev/nvidiactl"], "the resource manager"),
    ("nvidia", &["/dev/nvidia*"], "a GPU"),
    ("nvidia-uvm", &["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"], "UVM"),
    ("nvidia-modeset", &["/dev/nvidia-modeset"], "display"),
    ("drm", &["/dev/dri/*"], "direct rendering"),
    ("nvidia-caps", &["/dev/nvidia-caps/*"], "a capability: it is opened, and has no requests"),
    ("nvidia-other", &["/dev/nvidia-*"], "a device whose requests no spec names"),
];

/// Nodes, and what may be asked of them.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    /// In the order of the specs.
    pub(crate) nodes: Vec<Node>,
    requests: FxHashMap<(NodeId, u32), Known>,
    by_name: HashMap<String, Vec<u32>>,
    /// Which nodes have requests.
    asked: Vec<bool>,
    /// The tags of each family, in version order; [`Known::tags`] indexes them.
    tags: Vec<Tag>,
}

/// Something that ioctls are made on.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Such as `ctrl`.
    pub(crate) name: String,
    /// What it is.
    pub(crate) note: String,
    paths: Vec<String>,
    /// A request is its number and the letter `F`: the size says what the caller has.
    any_size: bool,
}

/// A request that a node knows.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// Of the constant in the headers.
    pub(crate) name: String,
    /// Types of the argument.
    pub(crate) params: Vec<String>,
    /// The bytes that these may have; nothing for an array.
    sizes: Vec<u64>,
    /// The nodes whose fds come back.
    pub(crate) opens: Vec<NodeId>,
    /// Which tags have it: a bit for each.
    tags: u64,
    /// What a reader of a log should know.
    pub(crate) note: Option<&'static str>,
}

/// What the mode setter's one request takes.
pub const NVKMS_ARGUMENT: &str = "NvKmsIoctlParams";

impl Known {
    /// The types that a request may take: those of its size, where its number is known and there are any.
    pub(crate) fn params_of(&self, number: Option<u32>) -> Vec<&str> {
        let all = self.params.iter().map(String::as_str);
        let size = number.map(|number| request_size(number.into()));
        let of_size = all.clone().zip(&self.sizes).filter(|(_, known)| Some(**known) == size);
        let of_size: Vec<&str> = of_size.map(|(name, _)| name).collect();
        match of_size.is_empty() || self.sizes.len() != self.params.len() {
            true => all.collect(),
            false => of_size,
        }
    }
}

impl Catalog {
    /// The requests of one family: `tags` in version order, at most 64 of them.
    pub fn new<'f>(tags: impl IntoIterator<Item = (&'f Facts, &'f Spec)>) -> Self {
        let mut catalog = Self::default();
        for (facts, spec) in tags {
            catalog.add(facts, spec);
        }
        catalog
    }

    /// Takes in the requests of one tag; names of later tags win.
    pub fn add(&mut self, facts: &Facts, spec: &Spec) {
        let bit = 1u64.checked_shl(self.tags.len() as u32).unwrap_or(0);
        self.tags.push(facts.tag.clone());
        self.add_nodes(spec);
        if spec.family().is_empty() {
            self.x86(facts);
        }
        let items = spec.items_at(&facts.tag).map(|item| (item.name.as_str(), item));
        let items: HashMap<&str, &Item> = items.collect();
        for listed in list::ioctls(facts, spec) {
            let item = items.get(listed.name.as_str());
            let opened = item.into_iter().flat_map(|item| &item.opens);
            let opens = opened.filter_map(|(_, node)| self.named(&node.name)).collect::<Vec<_>>();
            let narrow = narrow(facts, &listed);
            for node in self.nodes_of(&listed) {
                self.learn(node, &listed, sizes(facts, &listed), &opens, bit);
                if let Some(narrow) = &narrow {
                    self.learn_narrow(node, narrow, &opens, bit);
                }
            }
        }
    }

    /// Takes in nodes alone: nothing is known of their requests.
    pub(crate) fn add_nodes(&mut self, spec: &Spec) {
        // Those of the x86 driver have one of several files each, and some that no call is made on.
        if spec.family().is_empty() {
            for (name, paths, note) in X86 {
                let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
                self.node(name, &paths, note);
            }
            return;
        }
        for node in &spec.nodes {
            let note = node.note.clone().unwrap_or_default();
            self.node(&node.name, &node.paths, &note);
        }
    }

    fn node(&mut self, name: &str, paths: &[String], note: &str) {
        let node = Node {
            name: name.to_owned(),
            note: note.to_owned(),
            paths: paths.to_vec(),
            any_size: matches!(name, "nvidiactl" | "nvidia"),
        };
        match self.nodes.iter_mut().find(|known| known.name == name) {
            Some(known) => {
                let more = paths.iter().filter(|path| !known.paths.contains(path));
                let more: Vec<String> = more.cloned().collect();
                known.paths.extend(more);
            }
            None => self.nodes.push(node),
        }
    }

    /// The requests of the x86 driver that its lists do not have; for that of the mode setter, the facts must have
    /// [`NVKMS_ARGUMENT`].
    fn x86(&mut self, facts: &Facts) {
        for (name, number) in request::drm_core() {
            let listed = Listed {
                name: name.to_owned(),
                surface: "drm".to_owned(),
                request: Some(number.into()),
                ..Listed::default()
            };
            let Some(node) = self.named("drm") else { continue };
            self.learn(node, &listed, Vec::new(), &[], 0);
        }
        let modeset = facts.surfaces.get("modeset");
        let size = modeset.and_then(|s| Some(s.records.get(NVKMS_ARGUMENT)?.size));
        if let (Some(node), Some(size)) = (self.named("nvidia-modeset"), size) {
            let listed = Listed {
                name: "NVKMS_IOCTL_CMD".to_owned(),
                surface: "modeset".to_owned(),
                request: Some(3 << 30 | size << 16 | u64::from(b'm') << 8),
                params: vec![NVKMS_ARGUMENT.to_owned()],
                ..Listed::default()
            };
            self.learn(node, &listed, Vec::new(), &[], 0);
        }
    }

    fn nodes_of(&self, listed: &Listed) -> Vec<NodeId> {
        let names: &[&str] = match (&listed.node, listed.surface.as_str()) {
            (Some(node), _) => &[node.as_str()],
            (None, "rm") => &["nvidiactl", "nvidia"],
            (None, "uvm") => &["nvidia-uvm"],
            (None, "drm") => &["drm"],
            // Commands of the display driver are no requests: they stand in its one argument.
            _ => &[],
        };
        names.iter().filter_map(|name| self.named(name)).collect()
    }

    fn learn(
        &mut self,
        node: NodeId,
        listed: &Listed,
        sizes: Vec<u64>,
        opens: &[NodeId],
        bit: u64,
    ) {
        let made = || Some(3 << 30 | listed.magic? << 8 | listed.nr?);
        let Some(number) = listed.request.or_else(made).and_then(|n| u32::try_from(n).ok()) else {
            return;
        };
        let key = (node, self.key(node, number));
        let tags = bit | self.requests.get(&key).map_or(0, |known| known.tags);
        let known = Known {
            name: listed.name.clone(),
            params: listed.params.clone(),
            sizes,
            opens: opens.to_vec(),
            tags,
            note: note(&listed.name),
        };
        self.requests.insert(key, known);
        self.asked.resize(self.nodes.len(), false);
        self.asked[usize::from(node)] = true;
        let numbers = self.by_name.entry(listed.name.clone()).or_default();
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }

    /// Takes in the request of a 32-bit program, unless a header has one of that number.
    fn learn_narrow(&mut self, node: NodeId, narrow: &Listed, opens: &[NodeId], bit: u64) {
        let number = narrow.request.and_then(|number| u32::try_from(number).ok());
        let known = number.and_then(|number| self.known(node, number));
        if known.is_none_or(|known| known.name == narrow.name) {
            self.learn(node, narrow, Vec::new(), opens, bit);
        }
    }

    /// What of a request tells it from others on that node.
    fn key(&self, node: NodeId, number: u32) -> u32 {
        match self.nodes.get(usize::from(node)) {
            Some(node) if node.any_size && number >> 8 & 0xff == u32::from(b'F') => number & 0xffff,
            _ => number,
        }
    }

    /// The node of that name.
    pub(crate) fn named(&self, name: &str) -> Option<NodeId> {
        let at = self.nodes.iter().position(|node| node.name == name)?;
        NodeId::try_from(at).ok()
    }

    /// The node that a path is of: the pattern with the most letters wins.
    pub(crate) fn node_of_path(&self, path: &[u8]) -> Option<NodeId> {
        let path = std::str::from_utf8(path).ok()?;
        if !path.starts_with("/dev/") {
            return self.unnamed_file(path);
        }
        let all =
            self.nodes.iter().zip(0..).flat_map(|(node, id)| {
                node.paths.iter().map(move |pattern| (pattern.as_str(), id))
            });
        let fits = all.filter(|(pattern, _)| globs::fits(pattern, path));
        fits.max_by_key(|(pattern, _)| pattern.len()).map(|(_, id)| id)
    }

    /// What the kernel calls memory and fences with `-y`: `/dmabuf:`, `anon_inode:sync_file`.
    fn unnamed_file(&self, path: &str) -> Option<NodeId> {
        let path = path.trim_start_matches('/').trim_start_matches("anon_inode:");
        match path {
            _ if path.starts_with("dmabuf") => self.named("dmabuf"),
            _ if path.starts_with("sync_file") => self.named("sync-file"),
            _ => None,
        }
    }

    /// What a node knows a request as.
    pub(crate) fn known(&self, node: NodeId, number: u32) -> Option<&Known> {
        self.requests.get(&(node, self.key(node, number)))
    }

    /// Whether there are requests of a node at all.
    pub(crate) fn is_asked(&self, node: NodeId) -> bool {
        self.asked.get(usize::from(node)).is_some_and(|asked| *asked)
    }

    /// The one node that knows a request: a number of no size says too little.
    pub(crate) fn only_node(&self, number: u32) -> Option<NodeId> {
        if request_size(number.into()) == 0 {
            return None;
        }
        let ids = 0..NodeId::try_from(self.nodes.len()).unwrap_or(NodeId::MAX);
        let mut knows = ids.filter(|id| self.known(*id, number).is_some());
        let first = knows.next()?;
        // Both nodes of the resource manager know the same requests.
        let same = |id: NodeId| self.any_size(id) && self.any_size(first);
        knows.all(same).then_some(first)
    }

    fn any_size(&self, id: NodeId) -> bool {
        self.nodes.get(usize::from(id)).is_some_and(|node| node.any_size)
    }

    /// The numbers that a name may stand for: a driver's own name, or one that strace has.
    pub(crate) fn numbers(&self, words: &str) -> Vec<u32> {
        let own = words.split(" or ").filter_map(|word| self.by_name.get(word)).flatten();
        let mut numbers: Vec<u32> = own.copied().chain(request::numbers(words)).collect();
        numbers.dedup();
        numbers
    }

    /// The tags of a family that know every one of the requests; nothing if none is the family's.
    pub(crate) fn tags_with(
        &self,
        family: &str,
        requests: impl Iterator<Item = (NodeId, u32)>,
    ) -> Option<Vec<&Tag>> {
        let own = self.tags.iter().take(64).enumerate().filter(|(_, tag)| tag.family() == family);
        let own: Vec<(usize, &Tag)> = own.collect();
        let mask = own.iter().fold(0, |mask, (at, _)| mask | 1u64 << at);
        let said = requests.filter_map(|(id, number)| Some(self.known(id, number)?.tags & mask));
        let mut said = said.filter(|tags| *tags != 0).peekable();
        said.peek()?;
        let all = said.fold(mask, |all, tags| all & tags);
        Some(own.into_iter().filter(|(at, _)| all >> at & 1 == 1).map(|(_, tag)| tag).collect())
    }

    /// How many tags of a family there are to choose from.
    pub(crate) fn tags_of(&self, family: &str) -> usize {
        self.tags.iter().filter(|tag| tag.family() == family).count()
    }

    /// What is to be said of one request: what strace cannot show, and a size that does not fit.
    pub(crate) fn notes(&self, id: NodeId, number: u32) -> Vec<String> {
        let note = self.known(id, number).and_then(|known| known.note);
        let mut notes: Vec<String> = note.iter().map(|note| (*note).to_owned()).collect();
        notes.extend(self.sizes_noted(id, number));
        notes
    }

    /// What is to be said of the number of a request: a size that does not fit, or others like it.
    pub(crate) fn sizes_noted(&self, id: NodeId, number: u32) -> Vec<String> {
        if self.known(id, number).is_none() {
            let alike = self.alike(id, number).into_iter();
            return alike.map(|(known, name)| format!("{name} is {known:#010x}")).collect();
        }
        let mut notes = Vec::new();
        let size = request_size(number.into());
        let sizes = self.sizes(id, number);
        if !sizes.is_empty() && !sizes.contains(&size) {
            let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
            let of_x86 = self.tags.iter().rfind(|tag| tag.family().is_empty());
            let tag = of_x86.map_or("the driver", Tag::as_str);
            notes.push(format!("{size} bytes, {tag} has {}", sizes.join(" or ")));
        }
        notes
    }

    /// The sizes that a request may have; nothing where the size distinguishes it from others, or may be any.
    pub(crate) fn sizes(&self, id: NodeId, number: u32) -> &[u64] {
        let known = self.known(id, number).filter(|_| self.any_size(id));
        known.map_or(&[], |known| known.sizes.as_slice())
    }

    /// The requests of a node that have letter and number of one that it does not know.
    pub(crate) fn alike(&self, id: NodeId, number: u32) -> Vec<(u32, &str)> {
        let letter = number >> 8 & 0xff;
        let is_alike =
            |(node, known): &(NodeId, u32)| *node == id && known & 0xffff == number & 0xffff;
        let mut alike: Vec<(u32, &str)> = (self.requests.iter())
            .filter(|(key, _)| letter != 0 && is_alike(key))
            .map(|((_, request), known)| (*request, known.name.as_str()))
            .collect();
        alike.sort_by_key(|(request, name)| (*name, *request));
        alike
    }
}

/// The request as a 32-bit program makes it, where the size of what it takes is another.
fn narrow(facts: &Facts, listed: &Listed) -> Option<Listed> {
    let (request, [params]) = (listed.request?, listed.params.as_slice()) else { return None };
    let record = |surface: &&Surface| surface.records.contains_key(params);
    let surface = facts.surfaces.values().find(record)?;
    let size = narrow::size(surface, params)?;
    // A number without a size says nothing of what it takes.
    let is_sized = request_size(request) == surface.records.get(params)?.size;
    is_sized.then(|| Listed {
        name: format!("{} (32-bit)", listed.name),
        request: Some(request & !(0x3fff << 16) | size << 16),
        size: Some(size),
        ..listed.clone()
    })
}

/// The sizes that a frontend request may have.
fn sizes(facts: &Facts, listed: &Listed) -> Vec<u64> {
    // Without a request it is an array, as long as the caller says.
    let (Some(surface), Some(_)) = (facts.surfaces.get(&listed.surface), listed.request) else {
        return Vec::new();
    };
    let size = |name: &String| {
        let record = || Some(surface.records.get(name)?.size);
        record().or_else(|| Some(surface.aliases.get(name)?.size))
    };
    listed.params.iter().filter_map(size).collect()
}

fn note(name: &str) -> Option<&'static str> {
    Some(match name {
        "NV_ESC_IOCTL_XFER_CMD" => {
            "carries another ioctl in its argument, which strace does not show"
        }
        "NV_ESC_RM_CONTROL" => "its command is in the argument, which strace does not show",
        "NVKMS_IOCTL_CMD" => "its command is in the argument, which strace does not show",
        _ => return None,
    })
}

/// Names without what says only which family and node they are of.
pub(crate) fn short<'n>(name: &'n str, node: &str) -> &'n str {
    let cut = ["_IOCTL_", "_IOC_"].iter().find_map(|part| Some(name.split_once(part)?.1));
    let rest = match cut {
        Some(rest) if name.starts_with("NV") || name.starts_with("HOST1X") => rest,
        _ => return name.strip_prefix("NV_ESC_").unwrap_or(name),
    };
    let nodes: BTreeMap<&str, &str> = [
        ("tsg", "TSG_"),
        ("channel", "CHANNEL_"),
        ("nvhost-channel", "CHANNEL_"),
        ("nvhost-ctrl", "CTRL_"),
    ]
    .into();
    nodes.get(node).and_then(|prefix| rest.strip_prefix(prefix)).unwrap_or(rest)
}
