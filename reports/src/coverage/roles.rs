//! Whether another project takes the fields of a call for what the spec says they are: file
//! descriptors, pointers, handles, or nothing of that sort.
//!
//! Names differ between the two, so fields are compared by their offsets.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Known, Row, Table};
use nvabi_pipeline::model::{Record, Surface, split_array};
use nvabi_pipeline::spec::{Disputed, HandleMeaning, Item, TakenFor};

/// A struct as the other project writes it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Struct {
    pub(super) go_name: String,
    /// Names and types; a field named `_` is padding.
    pub(super) fields: Vec<(String, String)>,
    /// Of the fields, in bytes.
    pub(super) offsets: Vec<u64>,
    /// Bytes.
    #[serde(default)]
    pub(super) size: Option<u64>,
    #[serde(default)]
    pub(super) fd_fields: Vec<String>,
}

/// What a field is to a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Fd,
    Pointer,
    Handle,
    /// None of these.
    Data,
    /// Bytes that nobody has looked into.
    Bytes,
}

impl From<TakenFor> for Role {
    fn from(taken: TakenFor) -> Self {
        match taken {
            TakenFor::Fd => Self::Fd,
            TakenFor::Pointer => Self::Pointer,
            TakenFor::Handle => Self::Handle,
            TakenFor::Number => Self::Data,
        }
    }
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Self::Fd => "a file descriptor",
            Self::Pointer => "a pointer",
            Self::Handle => "a handle",
            Self::Data => "a number",
            Self::Bytes => "bytes",
        }
    }
}

/// What the two sides say differently of a row.
pub(super) struct RoleDifference {
    /// The spec's path of the field, and what the table takes it for; nothing where it is the whole row.
    field: Option<(String, Role)>,
    pub(super) what: String,
}

/// A field by its path, and what it is.
struct Field {
    path: String,
    role: Role,
}

impl Known<'_> {
    /// Where a row takes a field for something else than the spec does, each with the place of the
    /// driver's declaration.
    pub(super) fn disagreements(
        &self,
        table: &Table,
        item: &Item,
        row: &Row,
    ) -> Vec<RoleDifference> {
        let mut found = Vec::new();
        let whole = |what| RoleDifference { field: None, what };
        let fds = item.fds.len();
        let pointers = item.pointers.iter().filter(|pointer| !pointer.opaque);
        let followed: Vec<&str> = pointers.map(|pointer| pointer.field.name.as_str()).collect();
        let handler = &row.handler;
        match row.handler_kind.as_str() {
            "simple" if fds > 0 || !followed.is_empty() => {
                let fds = item.fds.iter().map(|fd| fd.name.as_str());
                let named: Vec<&str> = fds.chain(followed).collect();
                let named = named.join(", ");
                let what = format!("{handler} copies it as it is, the spec has roles for {named}");
                found.push(whole(what));
            }
            "has_fd" if fds != 1 => {
                found.push(whole(format!("{handler} knows one file descriptor, the spec {fds}")));
            }
            _ => {}
        }
        for of in &row.structs {
            let (Some(go), Some((surface, record))) = (&of.go, self.record(&of.driver)) else {
                continue;
            };
            let mut theirs = BTreeMap::new();
            table.fields(go, 0, &mut theirs);
            theirs.retain(|_, field| !table.is_silent_on(field.role, row));
            let mut ours = BTreeMap::new();
            self.fields(surface, record, item, ("", 0), &mut ours);
            let source = &record.source;
            found.extend(compare(&theirs, &ours).map(|(path, role, what)| RoleDifference {
                field: Some((path, role)),
                what: format!("{what} ({handler}; {source})"),
            }));
        }
        found
    }

    /// What the spec says of a disagreement that it knows.
    pub(super) fn disputed(&self, row: &Row, told: &RoleDifference) -> Option<&Disputed> {
        let (path, role) = told.field.as_ref()?;
        self.spec?.disputed.iter().find(|disputed| {
            disputed.call.name == row.name
                && disputed.field.name.replace("[]", "") == *path
                && Role::from(disputed.theirs) == *role
        })
    }

    pub(super) fn record(&self, name: &str) -> Option<(&Surface, &Record)> {
        self.surfaces().find_map(|surface| {
            let name = surface.aliases.get(name).map_or(name, |alias| alias.ty.as_str());
            Some((surface, surface.records.get(name)?))
        })
    }

    /// The fields of a record by offset; several where they share one. Of an array the first element.
    fn fields(
        &self,
        surface: &Surface,
        record: &Record,
        item: &Item,
        (prefix, base): (&str, u64),
        fields: &mut BTreeMap<u64, Vec<Field>>,
    ) {
        for field in record.fields.iter() {
            let path = match (prefix, field.name.as_str()) {
                ("", name) => name.to_owned(),
                (prefix, "") => prefix.to_owned(),
                (prefix, name) => format!("{prefix}.{name}"),
            };
            let at = base + field.offset;
            match surface.records.get(split_array(&field.canonical).0) {
                Some(inner) => {
                    self.fields(surface, inner, item, (&path, at), fields);
                }
                _ => {
                    let role = self.role(item, &path, &field.name, &field.ty);
                    fields.entry(at).or_default().push(Field { path, role });
                }
            }
        }
    }

    fn role(&self, item: &Item, path: &str, name: &str, declared: &str) -> Role {
        let is = |named: &nvabi_pipeline::spec::Named| named.name.replace("[]", "") == path;
        let own = item.handles.iter().find(|(field, _)| is(field)).map(|(_, means)| *means);
        let means = own.or_else(|| self.spec?.handles.get(name).copied());
        let is_object =
            means.is_some_and(|means| !matches!(means, HandleMeaning::Class | HandleMeaning::None));
        if item.fds.iter().any(is) {
            Role::Fd
        } else if item.pointers.iter().any(|pointer| is(&pointer.field)) {
            Role::Pointer
        } else if is_object || split_array(declared).0.ends_with("NvHandle") {
            Role::Handle
        } else {
            Role::Data
        }
    }
}

impl Table {
    /// Whether a type says nothing of what its handler does with the field: source code declares file descriptors
    /// as numbers, and a handler of a call's own may take anything for anything.
    fn is_silent_on(&self, role: Role, row: &Row) -> bool {
        let is_custom = row.handler_kind == "custom";
        self.is_source() && (role == Role::Data || (role == Role::Pointer && is_custom))
    }

    /// The fields of one of the project's structs by offset.
    fn fields(&self, name: &str, base: u64, fields: &mut BTreeMap<u64, Field>) {
        let Some(of) = self.structs.iter().find(|of| of.go_name == name) else { return };
        for ((field, ty), offset) in of.fields.iter().zip(&of.offsets) {
            let (array, element) = match ty.strip_prefix('[').and_then(|ty| ty.split_once(']')) {
                Some((_, element)) => (true, element),
                None => (false, ty.as_str()),
            };
            let at = base + offset;
            let role = match element {
                _ if of.fd_fields.contains(field) => Role::Fd,
                "P64" => Role::Pointer,
                "Handle" => Role::Handle,
                "uint8" if array => Role::Bytes,
                _ if self.structs.iter().any(|of| of.go_name == element) => {
                    self.fields(element, at, fields);
                    continue;
                }
                _ => Role::Data,
            };
            // Padding is an array of bytes, or nothing that a field of the driver shares.
            fields.entry(at).or_insert(Field { path: field.clone(), role });
        }
    }
}

/// What one side has at an offset and the other has not: the spec's field, the table's role, and both.
fn compare(
    theirs: &BTreeMap<u64, Field>,
    ours: &BTreeMap<u64, Vec<Field>>,
) -> impl Iterator<Item = (String, Role, String)> {
    theirs.iter().filter_map(|(at, their)| {
        let here = ours.get(at)?;
        if their.role == Role::Bytes || here.iter().any(|own| own.role == their.role) {
            return None;
        }
        // What is data to both sides in some member of a union is no disagreement.
        let own = here.iter().find(|own| own.role != Role::Data).or(here.first())?;
        let (theirs, ours) = (their.role.word(), own.role.word());
        let (name, path) = (&their.path, &own.path);
        let what =
            format!("at {at} the table has `{name}` as {theirs}, the spec `{path}` as {ours}");
        Some((path.clone(), their.role, what))
    })
}
