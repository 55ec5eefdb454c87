//! The types, constants and calls as data.

use nvabi_pipeline::lock::Fact;
use nvabi_pipeline::model::Access;
use nvabi_pipeline::plan::members::Member;
use nvabi_pipeline::spec::ItemKind;
use serde::Serialize;
use std::collections::BTreeMap;

use super::{Detail, File, Module, Shape};

/// The whole document.
#[derive(Serialize)]
struct Document<'m> {
    command: &'m str,
    versions: Vec<&'m str>,
    types: Vec<Type<'m>>,
    constants: BTreeMap<&'m str, Value>,
    /// Of those that not every version has with one value: indices of the first and last version, and the value.
    constants_by_version: BTreeMap<&'m str, Vec<(usize, usize, Value)>>,
    calls: Vec<Call<'m>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Value {
    Integer(i128),
    Bits { high: i64, low: i64 },
}

#[derive(Serialize)]
struct Type<'m> {
    name: &'m str,
    driver_name: &'m str,
    kind: &'static str,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    align: Option<u64>,
    source: &'m str,
    /// Indices of the first and last version, for each run.
    versions: Vec<(usize, usize)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fields: Vec<FieldRow<'m>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    variants: Option<&'m BTreeMap<String, i128>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<&'m str>,
}

#[derive(Serialize)]
struct FieldRow<'m> {
    name: &'m str,
    #[serde(rename = "type")]
    ty: &'m str,
    canonical: &'m str,
    offset: u64,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bit_offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bit_width: Option<u64>,
    /// The name in this document of the record that it is or holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<&'m str>,
}

#[derive(Serialize)]
struct Call<'m> {
    kind: ItemKind,
    name: &'m str,
    number: u64,
    request: Option<u64>,
    node: Option<&'m str>,
    params: Option<&'m str>,
    size: u64,
    versions: Vec<(usize, usize)>,
    roles: Vec<Role<'m>>,
    roles_known: bool,
    access: Option<&'m Access>,
}

#[derive(Serialize)]
struct Role<'m> {
    kind: &'static str,
    path: &'m str,
    offset: u64,
    size: u64,
    /// Stride and count, the outermost first.
    arrays: &'m [(u64, u64)],
    #[serde(flatten)]
    detail: &'m Detail,
}

pub(super) fn files(module: &Module<'_>) -> Vec<File> {
    let calls = module.calls();
    let types: Vec<_> = module.types().collect();
    let document = Document {
        command: module.command,
        versions: module.tags.iter().map(|(tag, _)| tag.as_str()).collect(),
        types: types.iter().map(|ty| type_row(module, ty)).collect(),
        constants: module
            .constants
            .iter()
            .filter_map(|(name, c)| Some((&**name, value(&c.fact)?)))
            .collect(),
        constants_by_version: module
            .constants_by_version()
            .into_iter()
            .map(|(name, rows)| {
                let rows = rows.into_iter();
                let row = |(fact, (first, last))| Some((first, last, value(fact)?));
                (name, rows.filter_map(row).collect())
            })
            .collect(),
        calls: calls
            .iter()
            .map(|call| Call {
                kind: call.kind,
                name: call.name,
                number: call.number,
                request: call.request,
                node: call.node,
                roles_known: call.roles_known,
                access: call.access,
                params: call.params,
                size: call.size,
                versions: call.spans.clone(),
                roles: call
                    .roles
                    .iter()
                    .map(|role| Role {
                        kind: role.kind.word(),
                        path: &role.path,
                        offset: role.place.offset,
                        size: role.place.size,
                        arrays: &role.place.arrays,
                        detail: &role.detail,
                    })
                    .collect(),
            })
            .collect(),
    };
    // Strings and integers alone: nothing here can fail.
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    vec![File { name: format!("{}.json", module.package), text }]
}

fn value(fact: &Fact) -> Option<Value> {
    match fact {
        Fact::Constant(value) => Some(Value::Integer(*value)),
        Fact::BitRange(high, low) => Some(Value::Bits { high: *high, low: *low }),
        _ => None,
    }
}

fn type_row<'m>(module: &'m Module<'_>, ty: &'m super::Type<'m>) -> Type<'m> {
    let (kind, size) = match &*ty.def.fact {
        Fact::Record { kind, size, .. } => (kind.keyword(), *size),
        Fact::Enum { size, .. } => ("enum", *size),
        Fact::Alias { size, .. } => ("typedef", *size),
        _ => ("", 0),
    };
    let mut row = Type {
        name: ty.name,
        driver_name: &ty.def.name,
        kind,
        size,
        align: None,
        source: &ty.def.place.source,
        versions: module.spans(&ty.def.views),
        fields: Vec::new(),
        variants: None,
        of: None,
    };
    match (&ty.shape, &*ty.def.fact) {
        (Shape::Record(layout), _) => {
            row.align = Some(layout.align);
            for member in &layout.members {
                match member {
                    Member::Padding { .. } => {}
                    Member::Bits { fields, .. } => {
                        row.fields.extend(fields.iter().map(|field| field_row(field, None)));
                    }
                    Member::Field { field, element, .. } => {
                        let record = module.record_of(ty.def, element, &field.canonical);
                        row.fields.push(field_row(field, record));
                    }
                }
            }
        }
        (Shape::Enum(_, variants), _) => row.variants = Some(variants),
        (Shape::Alias(..), Fact::Alias { ty, .. }) => row.of = Some(ty),
        (Shape::Alias(..), _) => {}
    }
    row
}

fn field_row<'m>(field: &'m nvabi_pipeline::model::Field, record: Option<&'m str>) -> FieldRow<'m> {
    FieldRow {
        name: &field.name,
        ty: &field.ty,
        canonical: &field.canonical,
        offset: field.offset,
        size: field.size,
        bit_offset: field.bits.map(|bits| bits.bit_offset),
        bit_width: field.bits.map(|bits| bits.bit_width),
        record,
    }
}
