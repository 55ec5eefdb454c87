//! Where calls and the lock disagree, what no header names, and what looks like a pointer or a file descriptor
//! without a role.
//!
//! One call after the other goes in, as for [`Namer`](super::Namer), and findings come out: equal ones are one, with
//! a count. An [`Audit`] opens no file and asks no process, so it takes live and recorded calls alike.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use nvabi_pipeline::lint::is_named_like_fd;
use nvabi_pipeline::model::{DIRECTIONS, request_size};
use nvabi_pipeline::spec::{HandleMeaning, ItemKind};
use serde::{Serialize, Serializer};

use super::event::{Event, Ioctl, What};
use super::leaves::{Leaf, number};
use super::named::{Named, bytes_at, last_part};
use super::parts::{Found, Part, Parts, is_path, parts};
use super::tables::{Family, Tables};

/// Elements behind a pointer that are looked at.
const ELEMENTS: usize = 64;
/// Handles that are remembered: a program has a few thousand.
const MAX_HANDLES: usize = 1 << 20;
/// File descriptors that are remembered.
const MAX_FDS: usize = 1 << 16;
/// Distinct findings that are kept; more are counted.
const MAX_FINDINGS: usize = 1 << 14;

macro_rules! finding_kinds {
    ($($(#[$doc:meta])* $variant:ident = $word:literal, $gravity:ident, $means:literal;)*) => {
        /// What is wrong, or unknown.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FindingKind {
            $($(#[$doc])* $variant,)*
        }

        impl FindingKind {
            /// Every kind, disagreements first.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its name, which stays the same: `params-size`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// How much it says.
            pub fn gravity(self) -> Gravity {
                match self {
                    $(Self::$variant => Gravity::$gravity,)*
                }
            }

            /// What it means, for a reader of the summary.
            pub fn means(self) -> &'static str {
                match self {
                    $(Self::$variant => $means,)*
                }
            }
        }
    };
}

finding_kinds! {
    /// The size in a request is another than the lock's.
    RequestSize = "request-size", Disagreement, "the size in the request is not the lock's";
    /// The direction in a request is another than the lock's.
    Direction = "direction", Disagreement, "the direction in the request is not the lock's";
    /// The parameters of a command or class have another size.
    ParamsSize = "params-size", Disagreement, "the parameters have another size in the lock";
    /// A field with the role of a file descriptor holds none that is open.
    ClosedFd = "closed-fd", Disagreement, "a field for a file descriptor holds none that is open";
    /// A handle that the program neither named in an allocation nor was given.
    UnknownHandle = "unknown-handle", Disagreement, "a handle of no allocation, that no call returned";
    /// An ioctl that no header names.
    UnknownIoctl = "unknown-ioctl", Unknown, "no header has this ioctl";
    /// A command that no header names.
    UnknownCommand = "unknown-command", Unknown, "no header has this control command";
    /// A class that no header names.
    UnknownClass = "unknown-class", Unknown, "no header has this class";
    /// A number that is an address of readable memory, where no role says so.
    HiddenPointer = "hidden-pointer", Suspicion, "the address of readable memory, without a role";
    /// A field that is named like a file descriptor and holds the number of one of the driver's, without a role.
    HiddenFd = "hidden-fd", Suspicion, "named like a file descriptor and holds one, without a role";
}

impl Serialize for FindingKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// How much a finding says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Gravity {
    /// Call and lock cannot both be right.
    Disagreement,
    /// The headers do not name the number.
    Unknown,
    /// A value that may be what it looks like.
    Suspicion,
}

impl Gravity {
    /// `disagreement`, `unknown` or `suspicion`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disagreement => "disagreement",
            Self::Unknown => "unknown",
            Self::Suspicion => "suspicion",
        }
    }
}

/// One finding: calls in which the same is wrong with the same field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is.
    pub kind: FindingKind,
    /// How much it says.
    pub gravity: Gravity,
    /// The node of the first call.
    pub node: String,
    /// The ioctl: its constant, else its request.
    pub call: String,
    /// The command or class: its constant, else its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The field, with the index of the first element that it was seen in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Bytes from the start of the struct, or of the memory, that the field is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The first value.
    pub found: u64,
    /// The values of the lock, where these are known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expected: Vec<u64>,
    /// The types whose size is meant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    /// The tags at which one of the types has the size that was found, as spans.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Calls.
    pub count: u64,
    /// Nanoseconds from the start of the program to the first.
    pub first: u64,
    /// Which call the last was: a call counts once.
    #[serde(skip)]
    last: u64,
}

/// What distinguishes findings.
type Key = (FindingKind, String, String, String, u64);

/// The distinct calls that were made, by their names; those without one are findings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// Ioctls of the resource manager.
    pub escapes: BTreeSet<String>,
    /// Ioctls of UVM.
    pub uvm: BTreeSet<String>,
    /// Control commands, and those of display.
    pub commands: BTreeSet<String>,
    /// Allocation classes.
    pub classes: BTreeSet<String>,
    /// Ioctls on all other nodes.
    pub ioctls: BTreeSet<String>,
}

/// Compares calls with the lock, in the order in which they were made.
#[derive(Debug, Default)]
pub struct Audit {
    /// Ioctls on nodes.
    calls: u64,
    seen: Seen,
    found: BTreeMap<Key, Finding>,
    disagrees: bool,
    /// Findings that are not kept.
    omitted: u64,
    /// Handles that the program has chosen or was given, of whichever client.
    handles: HashSet<u64>,
    /// Whether a call did not show what it returned: handles are not known any more.
    is_blind: bool,
    /// Files of the driver that are open, by process and descriptor.
    fds: HashMap<(u32, i32), Arc<str>>,
}

/// A call that is being looked at.
struct Call<'t, 'e> {
    event: &'e Event,
    ioctl: &'e Ioctl,
    named: &'e Named,
    family: &'t Family,
    found: &'e Parts<'t>,
}

impl Audit {
    /// Takes in a call with its names; it is on a node.
    pub fn add(&mut self, tables: &Tables, event: &Event, named: &Named) {
        self.learn_fds(event);
        let What::Ioctl(ioctl) = &event.what else { return };
        self.calls += 1;
        let node = &*ioctl.file.node;
        let mut memory = |address, length| {
            bytes_at(&ioctl.pieces, address, length, |piece| Some(&piece.before))
                .unwrap_or_default()
                .to_vec()
        };
        let found = parts(tables, node, ioctl.request, ioctl.argument, &mut memory);
        let Some(asked) = found.asked else {
            return self.unknown_request(tables, event, ioctl.request, node);
        };
        self.see(named);
        if let Some(carried) = found.carries_unknown {
            self.unknown_request(tables, event, carried, node);
        }
        self.request(tables, event, ioctl.request, node, asked.name);
        if let Some(carried) = found.carries {
            self.request(tables, event, carried, node, asked.name);
        }
        let call = Call { event, ioctl, named, family: asked.family, found: &found };
        found.details.iter().for_each(|detail| self.detail(&call, detail));
        found.parts.iter().for_each(|part| self.part(&call, part));
        self.learn_handles(&call);
    }

    /// The findings, disagreements first, then by what was called.
    pub fn findings(&mut self) -> impl Iterator<Item = &mut Finding> {
        self.found.values_mut()
    }

    /// Whether a call and the lock cannot both be right.
    pub fn disagrees(&self) -> bool {
        self.disagrees
    }

    /// All findings and counts as one object.
    pub fn json(&self) -> serde_json::Value {
        let summary = self.counts().into_iter().map(|(kind, findings, calls)| {
            serde_json::json!({
                "kind": kind, "gravity": kind.gravity(), "findings": findings, "calls": calls,
                "means": kind.means(),
            })
        });
        serde_json::json!({
            "call": "audit",
            "calls": self.calls,
            "seen": self.seen,
            "findings": self.found.values().collect::<Vec<_>>(),
            "omitted": self.omitted,
            "summary": summary.collect::<Vec<_>>(),
        })
    }

    /// A line for each finding, then a summary by kind.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for finding in self.found.values() {
            let _ = writeln!(text, "{}", line(finding));
        }
        if self.omitted > 0 {
            let _ = writeln!(text, "{:>8} more findings are not kept", self.omitted);
        }
        let Seen { escapes, uvm, commands, classes, ioctls } = &self.seen;
        let _ = writeln!(
            text,
            "{} ioctls: {} escapes, {} UVM calls, {} others, {} commands, {} classes",
            self.calls,
            escapes.len(),
            uvm.len(),
            ioctls.len(),
            commands.len(),
            classes.len()
        );
        for (kind, findings, calls) in self.counts() {
            let (name, gravity, means) = (kind.name(), kind.gravity().name(), kind.means());
            let _ = writeln!(
                text,
                "{findings:>8} {name:<16} in {calls:>6} calls  {gravity:<12} {means}"
            );
        }
        text
    }

    /// Findings and calls of each kind that was found.
    fn counts(&self) -> Vec<(FindingKind, u64, u64)> {
        let count = |kind: &FindingKind| {
            let own = self.found.values().filter(|finding| finding.kind == *kind);
            let (findings, calls) = own.fold((0, 0), |(n, calls), f| (n + 1, calls + f.count));
            (findings > 0).then_some((*kind, findings, calls))
        };
        FindingKind::ALL.iter().filter_map(count).collect()
    }

    fn see(&mut self, named: &Named) {
        let Some(name) = named.name.clone() else { return };
        let set = match named.node.as_deref() {
            Some("nvidiactl" | "nvidia") => &mut self.seen.escapes,
            Some("nvidia-uvm") => &mut self.seen.uvm,
            _ => &mut self.seen.ioctls,
        };
        set.insert(name);
        let Some(detail) = &named.detail else { return };
        let set = match detail.kind {
            super::DetailKind::Command => &mut self.seen.commands,
            super::DetailKind::Class => &mut self.seen.classes,
        };
        set.extend(detail.name.clone());
    }

    /// A request that a node does not know, or knows with another size or direction.
    fn unknown_request(&mut self, tables: &Tables, event: &Event, request: u32, node: &str) {
        let name = format!("ioctl({request:#010x})");
        let alike = tables.alike(node, request);
        let size = request_size(request.into());
        let same_size = alike.iter().find(|(known, _)| request_size((*known).into()) == size);
        let finding = match (same_size, alike.first()) {
            (Some((known, name)), _) => Finding {
                expected: vec![direction(*known)],
                ..new(FindingKind::Direction, event, name, direction(request))
            },
            (None, Some((_, name))) => {
                let own = alike.iter().filter(|(_, other)| other == name);
                let expected = own.map(|(known, _)| request_size((*known).into())).collect();
                Finding { expected, ..new(FindingKind::RequestSize, event, name, size) }
            }
            (None, None) => new(FindingKind::UnknownIoctl, event, &name, request.into()),
        };
        self.note(finding);
    }

    /// Size and direction of a request whose number is that of its last two bytes alone.
    fn request(&mut self, tables: &Tables, event: &Event, request: u32, node: &str, name: &str) {
        let sizes = tables.sizes(node, request);
        let size = request_size(request.into());
        let is_sized = !sizes.is_empty();
        if is_sized && !sizes.contains(&size) {
            let types = tables.asked(node, request).map_or(&[][..], |asked| asked.params).to_vec();
            let expected = sizes.to_vec();
            let finding = new(FindingKind::RequestSize, event, name, size);
            self.note(Finding { expected, types, ..finding });
        }
        // Every ioctl of the resource manager is declared as one that goes both ways.
        const BOTH: u64 = 3;
        if is_sized && matches!(node, "nvidiactl" | "nvidia") && direction(request) != BOTH {
            let finding = new(FindingKind::Direction, event, name, direction(request));
            self.note(Finding { expected: vec![BOTH], ..finding });
        }
    }

    /// The number of a command or class, and the size of its parameters.
    fn detail(&mut self, call: &Call<'_, '_>, detail: &Found<'_>) {
        let Found { kind, number, name, length, size, ty, is_serialized } = *detail;
        if name.is_none() {
            let kind = match kind {
                ItemKind::Class => FindingKind::UnknownClass,
                _ => FindingKind::UnknownCommand,
            };
            return self.note(call.finding(kind, number.into()));
        }
        let (Some(length), Some(size)) = (length, size) else { return };
        if length != size && !is_serialized {
            let finding = call.finding(FindingKind::ParamsSize, length);
            let types = ty.into_iter().map(str::to_owned).collect();
            self.note(Finding { expected: vec![size], types, ..finding });
        }
    }

    /// The fields of one piece of memory.
    fn part(&mut self, call: &Call<'_, '_>, part: &Part<'_>) {
        let before =
            bytes_at(&call.ioctl.pieces, part.address, part.length, |piece| Some(&piece.before));
        let Some(before) = before else { return };
        let Some(ty) = part.ty else { return self.raw_pointers(call, part, before) };
        let leaves = call.family.leaves(ty);
        for (at, element) in call.elements(ty, before) {
            let place = Element { part, at, bytes: element, leaves: &leaves };
            self.fds(call, &place);
            self.handles(call, &place);
            self.pointers(call, &place);
        }
    }

    /// Fields with the role of a file descriptor, and such as look like one without it.
    fn fds(&mut self, call: &Call<'_, '_>, place: &Element<'_, '_>) {
        let roles = place.part.roles;
        for leaf in place.leaves {
            let is_role = roles.is_fd(&leaf.path);
            // What comes back is not there yet, and another member of a union holds something else.
            if is_role && (roles.opens(&leaf.path) || !leaf.is_valid(place.bytes)) {
                continue;
            }
            let looks_like_one = || matches!(leaf.size, 4 | 8) && is_named_like_fd(leaf.name());
            if !is_role && (place.has_role(&leaf.path) || !looks_like_one()) {
                continue;
            }
            for (at, value) in leaf.numbers(place.bytes) {
                let fd = value as i32;
                let is_open = call.ioctl.fds.iter().any(|(known, _)| *known == fd);
                let is_drivers = || self.fds.contains_key(&(call.event.process, fd));
                if is_role && fd >= 0 && !is_open {
                    self.note(call.field(FindingKind::ClosedFd, place, leaf, at, value));
                } else if !is_role && i64::from(fd) == value as i64 && is_drivers() {
                    self.note(call.field(FindingKind::HiddenFd, place, leaf, at, value));
                }
            }
        }
    }

    /// Handles that the program can only have from elsewhere.
    fn handles(&mut self, call: &Call<'_, '_>, place: &Element<'_, '_>) {
        const FREE: &str = "NV_ESC_RM_FREE";
        for leaf in place.leaves.iter().filter(|leaf| leaf.is_valid(place.bytes)) {
            let Some(means) = call.handle(place, leaf) else { continue };
            for (at, value) in leaf.numbers(place.bytes) {
                match means {
                    _ if value == 0 => {}
                    HandleMeaning::New | HandleMeaning::None => {}
                    HandleMeaning::Class => self.class(call, place, leaf, (at, value)),
                    _ if self.is_blind || self.handles.contains(&value) => {}
                    // Freeing what is not there succeeds: libcuda does so before it takes a handle.
                    _ if call.named.name.as_deref() == Some(FREE) => {}
                    _ if call.has_written(place, at, leaf.size) => {}
                    _ => self.note(call.field(FindingKind::UnknownHandle, place, leaf, at, value)),
                }
            }
        }
    }

    /// A class in a field: the one that an allocation is of has its finding already.
    fn class(
        &mut self,
        call: &Call<'_, '_>,
        place: &Element<'_, '_>,
        leaf: &Leaf,
        (at, value): (usize, u64),
    ) {
        let is_known = |number: u32| call.family.numbered(ItemKind::Class, number).is_some();
        let is_asked = |number: u32| call.found.details.iter().any(|of| of.number == number);
        let number = u32::try_from(value).ok();
        if !number.is_some_and(|number| is_known(number) || is_asked(number)) {
            self.note(call.field(FindingKind::UnknownClass, place, leaf, at, value));
        }
    }

    /// Aligned 64-bit fields that hold an address of readable memory, and have no role.
    fn pointers(&mut self, call: &Call<'_, '_>, place: &Element<'_, '_>) {
        if call.ioctl.addresses.is_empty() {
            return;
        }
        // In a union the role is one of the bytes, whichever member has it.
        let with_role = place.leaves.iter().filter(|leaf| place.has_role(&leaf.path));
        let with_role: HashSet<usize> = with_role.map(|leaf| leaf.offset).collect();
        let wide = place.leaves.iter().filter(|leaf| leaf.size == 8 && leaf.offset % 8 == 0);
        for leaf in wide.filter(|leaf| !with_role.contains(&leaf.offset)) {
            for (at, value) in leaf.numbers(place.bytes) {
                if call.ioctl.addresses.contains(&value) {
                    self.note(call.field(FindingKind::HiddenPointer, place, leaf, at, value));
                }
            }
        }
    }

    /// Aligned words of memory whose fields nobody knows.
    fn raw_pointers(&mut self, call: &Call<'_, '_>, part: &Part<'_>, bytes: &[u8]) {
        let words = (0..bytes.len()).step_by(8);
        for (at, value) in words.filter_map(|at| Some((at, number(bytes, at, 8)?))) {
            if call.ioctl.addresses.contains(&value) {
                let field = Some(part.prefix.trim_end_matches("->").to_owned());
                let finding = call.finding(FindingKind::HiddenPointer, value);
                self.note(Finding { field, offset: Some(at as u64), ..finding });
            }
        }
    }

    /// Handles that a call has made or returned. One that the program has chosen is its own even if the allocation
    /// fails: programs free what they failed to allocate.
    fn learn_handles(&mut self, call: &Call<'_, '_>) {
        if call.event.result.is_none() {
            self.is_blind = true;
        }
        for part in &call.found.parts {
            let (Some(ty), true) = (part.ty, self.handles.len() < MAX_HANDLES) else { continue };
            let after = call.after(part).unwrap_or_default();
            let leaves = call.family.leaves(ty);
            for (at, element) in call.elements(ty, after) {
                let place = Element { part, at, bytes: element, leaves: &leaves };
                leaves.iter().for_each(|leaf| self.learn_handle(call, &place, leaf));
            }
        }
    }

    fn learn_handle(&mut self, call: &Call<'_, '_>, place: &Element<'_, '_>, leaf: &Leaf) {
        let is_new = match call.handle(place, leaf) {
            None | Some(HandleMeaning::Class | HandleMeaning::None) => return,
            means => means == Some(HandleMeaning::New),
        };
        let numbers = leaf.numbers(place.bytes).into_iter();
        let own = numbers.filter(|(at, _)| is_new || call.has_written(place, *at, leaf.size));
        self.handles.extend(own.map(|(_, handle)| handle));
    }

    /// Files of the driver, by the calls that were made on them.
    fn learn_fds(&mut self, event: &Event) {
        if self.fds.len() >= MAX_FDS {
            self.fds.clear();
        }
        let path = event.file().path.clone();
        match &event.what {
            What::Open { .. } => {
                let fd = event.result.and_then(|fd| i32::try_from(fd).ok()).filter(|fd| *fd >= 0);
                self.fds.extend(fd.map(|fd| ((event.process, fd), path)));
            }
            What::Close { fd, .. } => drop(self.fds.remove(&(event.process, *fd))),
            What::Map { fd, .. } => drop(self.fds.insert((event.process, *fd), path)),
            What::Ioctl(ioctl) => drop(self.fds.insert((event.process, ioctl.fd), path)),
        }
    }

    /// Counts a finding: equal ones differ in values, and in the index of elements.
    fn note(&mut self, finding: Finding) {
        let field = finding.field.as_deref().map_or(String::new(), without_indices);
        let is_value = matches!(
            finding.kind,
            FindingKind::RequestSize | FindingKind::ParamsSize | FindingKind::Direction
        );
        let value = if is_value { finding.found } else { 0 };
        let detail = finding.detail.clone().unwrap_or_default();
        let key = (finding.kind, finding.call.clone(), detail, field, value);
        self.disagrees |= finding.gravity == Gravity::Disagreement;
        if self.found.len() >= MAX_FINDINGS && !self.found.contains_key(&key) {
            self.omitted += 1;
            return;
        }
        let known = self.found.entry(key).or_insert(finding);
        if known.last != self.calls {
            (known.last, known.count) = (self.calls, known.count + 1);
        }
    }
}

/// An element of a piece of memory.
struct Element<'p, 't> {
    part: &'p Part<'t>,
    /// Bytes from the start of the memory.
    at: usize,
    bytes: &'p [u8],
    leaves: &'p [Leaf],
}

impl Element<'_, '_> {
    /// Whether a spec says what a field is.
    fn has_role(&self, path: &str) -> bool {
        let roles = self.part.roles;
        let pointers = roles.pointers().iter().map(|pointer| &pointer.field);
        let mut named = roles.fds().iter().chain(roles.plain()).chain(pointers);
        named.any(|field| is_path(&field.name, path)) || roles.handle(path).is_some()
    }
}

impl<'e> Call<'_, 'e> {
    fn finding(&self, kind: FindingKind, found: u64) -> Finding {
        let name = self.named.name.as_deref().unwrap_or_default();
        let detail = self.named.detail.as_ref().map(|detail| {
            let number = || format!("{} {:#x}", detail.kind, detail.number);
            detail.name.clone().unwrap_or_else(number)
        });
        Finding { detail, ..new(kind, self.event, name, found) }
    }

    /// A finding about a field; `at` is its place in the element.
    fn field(
        &self,
        kind: FindingKind,
        place: &Element<'_, '_>,
        leaf: &Leaf,
        at: usize,
        found: u64,
    ) -> Finding {
        let prefix = &place.part.prefix;
        let index = match leaf.count {
            1 => String::new(),
            _ => format!("[{}]", (at - leaf.offset) / leaf.size),
        };
        let own = format!("{}{index}", leaf.shown);
        let of_many = (place.part.length as usize) > place.bytes.len();
        let field = match prefix.strip_suffix("->") {
            Some(pointer) if of_many => {
                let dot = if own.is_empty() { "" } else { "." };
                format!("{pointer}[{}]{dot}{own}", place.at / place.bytes.len().max(1))
            }
            Some(pointer) if own.is_empty() => pointer.to_owned(),
            _ => format!("{prefix}{own}"),
        };
        Finding { field: Some(field), offset: Some(at as u64), ..self.finding(kind, found) }
    }

    /// The elements of a type that are whole, each with its place.
    fn elements<'b>(
        &self,
        ty: &str,
        bytes: &'b [u8],
    ) -> impl Iterator<Item = (usize, &'b [u8])> + use<'b> {
        let size = self.family.size(ty).and_then(|size| usize::try_from(size).ok()).unwrap_or(0);
        let chunks = bytes.chunks_exact(size.max(1)).take(if size == 0 { 0 } else { ELEMENTS });
        chunks.enumerate().map(move |(at, chunk)| (at * size, chunk))
    }

    /// What a field that is a handle names: by its role, its name or its type.
    fn handle(&self, place: &Element<'_, '_>, leaf: &Leaf) -> Option<HandleMeaning> {
        if leaf.size != 4 && leaf.declared != "NvHandle" {
            return None;
        }
        // A list of handles has the name of the pointer.
        let name = match leaf.path.as_str() {
            "." => last_part(place.part.prefix.trim_end_matches("->")),
            _ => leaf.name(),
        };
        let own = place.part.roles.handle(&leaf.path);
        let means = own.or_else(|| self.family.handles.get(name).copied());
        match leaf.declared.as_str() {
            "NvHandle" => Some(means.unwrap_or(HandleMeaning::Object)),
            _ => means,
        }
    }

    /// The bytes of a piece of memory when the call returned.
    fn after(&self, part: &Part<'_>) -> Option<&'e [u8]> {
        bytes_at(&self.ioctl.pieces, part.address, part.length, |piece| piece.after.as_ref())
    }

    /// Whether the call has changed a field.
    fn has_written(&self, place: &Element<'_, '_>, at: usize, size: usize) -> bool {
        let part = place.part;
        let before =
            bytes_at(&self.ioctl.pieces, part.address, part.length, |piece| Some(&piece.before));
        let field = |bytes: &[u8]| number(bytes, place.at.saturating_add(at), size);
        self.after(part).is_some_and(|after| field(after) != before.and_then(field))
    }
}

/// A finding without a field.
fn new(kind: FindingKind, event: &Event, call: &str, found: u64) -> Finding {
    Finding {
        kind,
        gravity: kind.gravity(),
        node: event.file().node.to_string(),
        call: call.to_owned(),
        detail: None,
        field: None,
        offset: None,
        found,
        expected: Vec::new(),
        types: Vec::new(),
        tags: Vec::new(),
        count: 0,
        first: event.time,
        last: 0,
    }
}

/// The two bits of a request.
fn direction(request: u32) -> u64 {
    u64::from(request >> 30)
}

/// `a[1].b` as `a[].b`.
fn without_indices(path: &str) -> String {
    let mut parts = path.split('[');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |path, part| {
        path + "[" + part.trim_start_matches(|digit: char| digit.is_ascii_digit())
    })
}

/// A finding as a line.
fn line(finding: &Finding) -> String {
    let Finding { kind, node, call, field, offset, found, count, .. } = finding;
    let mut line = format!("{count:>8} {:<16} {node:<12} {call}", kind.name());
    if let Some(detail) = &finding.detail {
        let _ = write!(line, " {detail}");
    }
    if let Some(field) = field {
        let _ = write!(line, " {field}");
    }
    if let Some(offset) = offset {
        let _ = write!(line, " at byte {offset}");
    }
    match kind {
        FindingKind::RequestSize | FindingKind::ParamsSize => {
            let expected: Vec<String> = finding.expected.iter().map(u64::to_string).collect();
            let _ = write!(line, ": {found} bytes, expected {}", expected.join(" or "));
            match finding.tags.as_slice() {
                [] if finding.types.is_empty() => {}
                [] => line.push_str("; at no locked tag"),
                tags => {
                    let _ = write!(line, "; {found} bytes in {}", tags.join(", "));
                }
            }
        }
        FindingKind::Direction => {
            let word = |bits: &u64| DIRECTIONS.get(*bits as usize).copied().unwrap_or_default();
            let expected: Vec<&str> = finding.expected.iter().map(word).collect();
            let _ = write!(line, ": {}, expected {}", word(found), expected.join(" or "));
        }
        FindingKind::UnknownIoctl | FindingKind::UnknownCommand => {}
        FindingKind::UnknownClass if field.is_none() => {}
        FindingKind::ClosedFd | FindingKind::HiddenFd => {
            let _ = write!(line, ": {}", *found as i32);
        }
        _ => {
            let _ = write!(line, ": {found:#x}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::super::{File, How, Namer};
    use super::*;

    /// A request of a node that no header has.
    fn unknown(request: u32) -> Event {
        let file = File { path: "/dev/nvidiactl".into(), node: "nvidiactl".into(), how: How::Path };
        let (pieces, fds, addresses) = (Vec::new(), Vec::new(), Vec::new());
        let ioctl = Ioctl { fd: 3, file, request, argument: 0, pieces, fds, addresses };
        let (what, result, duration) = (What::Ioctl(ioctl), Some(-22), Some(1));
        Event { time: 7, process: 1, thread: 1, what, result, duration }
    }

    #[test]
    fn findings_do_not_fill_memory() {
        let (tables, mut namer, mut audit) =
            (Tables::default(), Namer::default(), Audit::default());
        for number in 0..MAX_FINDINGS as u32 + 5 {
            // Twice the same is one finding.
            for _ in 0..2 {
                let event = unknown(number);
                audit.add(&tables, &event, &namer.name(&tables, &event));
            }
        }
        assert_eq!(
            (audit.found.len(), audit.omitted, audit.disagrees()),
            (MAX_FINDINGS, 10, false)
        );
        assert!(audit.findings().all(|finding| finding.count == 2 && finding.first == 7));
        assert!(audit.text().contains("      10 more findings are not kept\n"));
    }

    #[test]
    fn the_elements_of_an_array_are_one_field() {
        assert_eq!(without_indices("a[12].b[3]"), "a[].b[]");
        assert_eq!(without_indices("params->fd"), "params->fd");
    }

    #[test]
    fn disagreements_come_first() {
        let order: Vec<Gravity> = FindingKind::ALL.iter().map(|kind| kind.gravity()).collect();
        assert!(order.is_sorted());
    }
}
