//! Which fields hold file descriptors, pointers and handles.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::Side;
use nvabi_pipeline::model::{Facts, Field, Record, Surface, split_array};
use nvabi_pipeline::spec::Spec;

/// What a shim has to translate in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A file descriptor of the caller.
    Fd,
    /// An address in the caller's memory.
    Pointer,
    /// A handle of the resource manager.
    Handle,
}

impl Role {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Fd => "a file descriptor",
            Self::Pointer => "a pointer",
            Self::Handle => "a handle",
        }
    }
}

/// What the spec says of fields, by record and field.
pub(super) struct Roles<'a> {
    told: FxHashMap<(&'a str, &'a str), Role>,
    /// The pointer whose length a field is.
    lengths: FxHashMap<(&'a str, &'a str), &'a str>,
}

impl<'a> Roles<'a> {
    pub(super) fn new(side: Side<'a>) -> Self {
        let mut roles = Self { told: FxHashMap::default(), lengths: FxHashMap::default() };
        for item in side.spec.items_at(&side.facts.tag) {
            let fds = item.fds.iter().map(|fd| (fd, Role::Fd));
            let pointers = item.pointers.iter().map(|p| (&p.field, Role::Pointer));
            for params in &item.params {
                for (path, role) in fds.clone().chain(pointers.clone()) {
                    if let Some(at) = resolve(side, &params.name, &path.name) {
                        roles.told.insert(at, role);
                    }
                }
                for pointer in &item.pointers {
                    let len = pointer.len.as_deref();
                    if let Some(at) = len.and_then(|len| resolve(side, &params.name, len)) {
                        roles.lengths.insert(at, &pointer.field.name);
                    }
                }
            }
        }
        roles
    }

    /// The role of a field: what the spec says, else what its type and name say.
    pub(super) fn of(&self, record: &str, field: &Field) -> Option<Role> {
        self.told.get(&(record, field.name.as_str())).copied().or_else(|| looks_like(field))
    }

    /// The pointer whose length a field is.
    pub(super) fn length_of(&self, record: &str, field: &str) -> Option<&'a str> {
        self.lengths.get(&(record, field)).copied()
    }
}

fn looks_like(field: &Field) -> Option<Role> {
    let name = field.name.to_ascii_lowercase();
    let declared = split_array(&field.ty).0;
    if field.canonical.contains('*') || declared.ends_with("NvP64") {
        Some(Role::Pointer)
    } else if declared == "NvHandle" {
        Some(Role::Handle)
    } else if name.ends_with("fd") || name.ends_with("descriptor") {
        Some(Role::Fd)
    } else {
        None
    }
}

/// The record and field that a path such as `data.AllocOsDesc.descriptor` leads to.
fn resolve<'a>(side: Side<'a>, params: &'a str, path: &str) -> Option<(&'a str, &'a str)> {
    let (surface, mut name, mut record) = find_record(side.facts, side.spec, params)?;
    let path = path.replace("[]", "");
    let mut steps = path.split('.').peekable();
    loop {
        let step = steps.next()?;
        let (owner, field) = member(surface, name, record, step)?;
        if steps.peek().is_none() {
            return Some((owner, field.name.as_str()));
        }
        let (inner, found) = surface.records.get_key_value(split_array(&field.canonical).0)?;
        (name, record) = (inner.as_str(), found);
    }
}

/// A record by name or through a typedef, in the first surface of the spec that has it.
pub(super) fn find_record<'a>(
    facts: &'a Facts,
    spec: &'a Spec,
    name: &str,
) -> Option<(&'a Surface, &'a str, &'a Record)> {
    let surfaces = spec.surfaces.iter().filter_map(|s| facts.surfaces.get(&s.name));
    surfaces.into_iter().find_map(|surface| {
        let name = surface.aliases.get(name).map_or(name, |alias| alias.ty.as_str());
        let (name, record) = surface.records.get_key_value(name)?;
        Some((surface, name.as_str(), record))
    })
}

/// A member by name, also one of an unnamed member.
fn member<'a>(
    surface: &'a Surface,
    name: &'a str,
    record: &'a Record,
    wanted: &str,
) -> Option<(&'a str, &'a Field)> {
    if let Some(field) = record.fields.iter().find(|field| field.name == wanted) {
        return Some((name, field));
    }
    record.fields.iter().filter(|field| field.name.is_empty()).find_map(|field| {
        let (inner, found) = surface.records.get_key_value(split_array(&field.canonical).0)?;
        member(surface, inner, found, wanted)
    })
}

/// Whether a field's name says that its bytes are not used.
pub(super) fn is_reserved(name: &str) -> bool {
    const WORDS: [&str; 11] = [
        "pad", "padding", "alignpad", "reserved", "rsvd", "rsv", "unused", "dummy", "spare",
        "filler", "cfiller",
    ];
    let mut word = name.to_ascii_lowercase();
    word.retain(|c| c.is_ascii_alphabetic());
    WORDS.contains(&word.strip_suffix("bits").unwrap_or(&word))
}
