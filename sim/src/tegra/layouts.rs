//! The layouts of the release that is simulated.
//!
//! The rules are written for the calls of r36.4. A call of another release is brought to its layout
//! when it comes, field by field and by name, and back when it goes; what one of them has not is zero
//! to the other.

use std::collections::HashMap;
use std::sync::Arc;

use super::args::as_bytes;
use crate::tegra::abi::PlainRecord;
use crate::tegra::release::Release;
use nvabi::call::{CallKind, Info, Request};
use nvabi::check::{self, Layout, Type};

/// Nodes that are simulated.
const NODES: [&str; 6] = ["nvmap", "ctrl", "as", "tsg", "channel", "host1x-fence"];

/// Bytes of a field, in both layouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) theirs: usize,
    pub(super) ours: usize,
    pub(super) length: usize,
}

/// How a node of nvgpu takes its requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) last: u8,
    pub(super) max_size: u16,
}

/// A call of the release.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// What r36.4 calls it by; `None` where it has no such call.
    pub(super) request: Option<u32>,
    /// How its argument lies, where that differs.
    pub(super) moves: Option<Arc<[Move]>>,
}

/// What differs in a release.
#[derive(Debug)]
pub(super) struct Layouts {
    pub(super) release: Release,
    /// The branch, such as 35.
    pub(super) branch: u32,
    limits: HashMap<&'static str, Limits>,
    /// By the release's own requests; none for the release of the rules.
    calls: Option<HashMap<u32, Call>>,
}

impl Layouts {
    pub(super) fn new(release: Release) -> Self {
        let ours = Release::ours();
        let is_ours = release.driver().same_interface(ours.driver());
        let mut limits: HashMap<_, Limits> = HashMap::new();
        for request in all(release).map(|info| (info.node, Request(info.number))) {
            let node = limits.entry(request.0).or_default();
            node.last = node.last.max(request.1.nr());
            node.max_size = node.max_size.max(request.1.size());
        }
        let translated = || {
            let simulated = all(release).filter(|info| NODES.contains(&info.node));
            simulated.map(|info| (info.number, Call::of(info, release, ours))).collect()
        };
        let calls = (!is_ours).then(translated);
        Self { release, branch: release.branch(), limits, calls }
    }

    /// The call of a request; `None` when the release has none.
    pub(super) fn call(&self, request: u32) -> Option<Call> {
        match &self.calls {
            Some(calls) => calls.get(&request).cloned(),
            None => Some(Call { request: Some(request), moves: None }),
        }
    }

    /// How a node takes its requests.
    pub(super) fn limits(&self, node: &str) -> Limits {
        self.limits.get(node).copied().unwrap_or_default()
    }

    /// A record of r36.4 as the release has it.
    pub(super) fn export<T: PlainRecord>(&self, value: &T) -> Vec<u8> {
        let ours = as_bytes(value);
        let layout = self.calls.as_ref().and_then(|_| self.release.driver().layout(T::LAYOUT.name));
        let Some(theirs) = layout else { return ours.to_vec() };
        let mut bytes = vec![0; theirs.size as usize];
        for part in moves(theirs, T::LAYOUT).unwrap_or_default() {
            let from = &ours[part.ours..part.ours + part.length];
            bytes[part.theirs..part.theirs + part.length].copy_from_slice(from);
        }
        bytes
    }
}

impl Call {
    fn of(info: &Info, release: Release, ours: Release) -> Self {
        let same = |other: &&Info| (other.name, other.node) == (info.name, info.node);
        let Some(our) = all(ours).find(same) else { return Self { request: None, moves: None } };
        let layout = |release: Release, info: &Info| {
            let size = u32::from(Request(info.number).size());
            release.driver().params(info).find(|layout| layout.size == size)
        };
        let (Some(theirs), Some(ours)) = (layout(release, info), layout(ours, our)) else {
            return Self { request: Some(our.number), moves: None };
        };
        match moves(theirs, ours) {
            Some(moves) => {
                let is_there = moves.iter().all(|part| part.theirs == part.ours);
                let is_same = is_there && theirs.size == ours.size;
                Self { request: Some(our.number), moves: (!is_same).then(|| moves.into()) }
            }
            None => Self { request: None, moves: None },
        }
    }
}

/// The calls of the nodes that are simulated: number and driver's name.
pub(crate) fn calls(release: Release) -> impl Iterator<Item = (u32, &'static str)> {
    let simulated = all(release).filter(|call| NODES.contains(&call.node));
    simulated.map(|call| (call.number, call.name))
}

/// Why a request is none of a release.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// No release has one of its number.
    Nowhere,
    /// Another release has it, and this one has none of its number.
    Number { name: &'static str, of: Release },
    /// This release has it with another size; another, or none, with this one.
    Size { name: &'static str, of: String, right: u32 },
}

/// Why a request on a node is none of a release; `None` when it is one.
pub(super) fn unknown(release: Release, node: &str, request: u32) -> Option<Unknown> {
    let on_node = |release| all(release).filter(move |info| info.node == node);
    if on_node(release).any(|info| info.number == request) {
        return None;
    }
    let wanted = Request(request);
    // The newest release that has it.
    let other = Release::all()
        .filter_map(|of| Some((of, on_node(of).find(|info| info.number == request)?)))
        .last();
    let is_same = |info: &&Info| {
        let number = Request(info.number);
        (number.magic(), number.nr()) == (wanted.magic(), wanted.nr())
            && other.is_none_or(|(_, theirs)| theirs.name == info.name)
    };
    Some(match (on_node(release).find(is_same), other) {
        (Some(ours), other) => {
            let of = other.map_or_else(|| "the caller".to_owned(), |(of, _)| of.to_string());
            Unknown::Size { name: ours.name, of, right: ours.number }
        }
        (None, Some((of, theirs))) => Unknown::Number { name: theirs.name, of },
        (None, None) => Unknown::Nowhere,
    })
}

fn all(release: Release) -> impl Iterator<Item = &'static Info> {
    let ioctls = release.driver().calls().ioctl.iter().copied().flatten().copied();
    ioctls.filter(|info| info.kind == CallKind::Ioctl)
}

/// Where the fields of the same name lie in two layouts, each as long as the shorter is: numbers are
/// little-endian. `None` where a union differs, of which nobody knows what it holds.
fn moves(theirs: &Layout, ours: &Layout) -> Option<Vec<Move>> {
    let mut all = Vec::new();
    for field in theirs.fields {
        let Some(other) = ours.fields.iter().find(|other| other.name == field.name) else {
            continue;
        };
        let (from, to) = (field.offset as usize, other.offset as usize);
        match (field.ty, other.ty) {
            (Type::Record(inner), Type::Record(ours))
                if inner.kind == check::LayoutKind::Struct =>
            {
                let inside = moves(inner, ours)?.into_iter();
                all.extend(inside.map(|part| Move {
                    theirs: from + part.theirs,
                    ours: to + part.ours,
                    ..part
                }));
            }
            (Type::Record(inner), other) if inner.size != other.size() => return None,
            (ty, other) => {
                let length = ty.size().min(other.size()) as usize;
                all.push(Move { theirs: from, ours: to, length });
            }
        }
    }
    Some(all)
}
