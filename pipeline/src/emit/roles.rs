//! The roles of a call at one tag: what the spec says, with constants as numbers and sizes in bytes,
//! and the handles that the types of fields tell of.

use super::plan::{DefId, Look, Param, Plan, Planner};
use super::types::{self, Element, Named};
use crate::lock::Fact;
use crate::model::{RecordKind, split_array};
use crate::spec::{Item, ItemKind, Means, Spec};

/// The roles of a call. What the spec says and needs nothing of the tag is left in its item.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Roles {
    /// As many as the item has, in its order.
    pub(super) pointers: Vec<Pointer>,
    pub(super) handles: Vec<Handle>,
    /// They hold wherever types are the same: no constant is part of them.
    pub(super) are_fixed: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    pub(super) len: Option<String>,
    pub(super) filled: Option<String>,
    /// Bytes of an element.
    pub(super) unit: u64,
    pub(super) call: Option<(ItemKind, String)>,
    /// In an element.
    pub(super) handles: Vec<Handle>,
    /// In an element, as many as the spec has there.
    pub(super) pointers: Vec<Pointer>,
    pub(super) when: Option<When>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Handle {
    pub(super) field: String,
    pub(super) means: Means,
    pub(super) when: Option<When>,
}

/// A field has a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct When {
    pub(super) field: String,
    pub(super) value: i128,
}

/// A member that is no record.
struct Leaf {
    /// `a[].b`.
    path: String,
    name: String,
    element: Element,
    when: Option<When>,
}

pub(super) fn resolve(
    planner: &Planner<'_, '_>,
    look: &Look<'_>,
    item: &Item,
    params: &[(String, Param)],
    targets: &[Option<DefId>],
) -> Roles {
    if !item.roles_known {
        return Roles { pointers: Vec::new(), handles: Vec::new(), are_fixed: true };
    }
    let mut resolver = Resolver { planner, look, used_constants: false };
    let mut leaves = Vec::new();
    for (name, param) in params {
        match param {
            Param::Def(id) => resolver.leaves(*id, "", None, &mut leaves),
            Param::Scalar { canonical, size } => {
                let element = types::element(name, canonical, *size, |_| Named::Other).0;
                let (path, name) = (".".to_owned(), String::new());
                leaves.push(Leaf { path, name, element, when: None });
            }
        }
    }
    let mut handles = Vec::new();
    for handle in handles_of(look.spec, Some(item), &leaves) {
        if !handles.contains(&handle) {
            handles.push(handle);
        }
    }
    let pointers = resolver.pointers(&item.pointers, &mut targets.iter(), &leaves);
    Roles { pointers, handles, are_fixed: !resolver.used_constants }
}

/// The handles among some leaves: by their type, by their name, or because the item says so.
fn handles_of(spec: &Spec, item: Option<&Item>, leaves: &[Leaf]) -> Vec<Handle> {
    let handle = |leaf: &Leaf| {
        let own = item.into_iter().flat_map(|item| &item.handles);
        let mut own = own.filter(|(field, _)| plain(&field.name) == plain(&leaf.path));
        let named = own.next().map(|(_, means)| *means);
        let named = named.or_else(|| spec.handles.get(&leaf.name).copied());
        let means = match leaf.element {
            Element::Handle => named.unwrap_or(Means::Object),
            Element::Int { size: 4, .. } => named?,
            _ => return None,
        };
        let (field, when) = (leaf.path.clone(), leaf.when.clone());
        (means != Means::None).then_some(Handle { field, means, when })
    };
    leaves.iter().filter_map(handle).collect()
}

/// Whether a field of the parameters is as wide as an address, in records, arrays and unions too.
pub(super) fn holds_address(plan: &Plan<'_>, name: &str, param: &Param) -> bool {
    match param {
        Param::Def(id) => def_holds_address(plan, *id),
        Param::Scalar { canonical, size } => {
            is_wide(&types::element(name, canonical, *size, |_| Named::Other).0)
        }
    }
}

fn def_holds_address(plan: &Plan<'_>, id: DefId) -> bool {
    let def = &plan.defs[id];
    let inner = |name: &str| def.uses.get(name).is_some_and(|id| def_holds_address(plan, *id));
    match &*def.fact {
        Fact::Alias { ty, .. } => inner(split_array(ty).0),
        Fact::Record { fields, .. } => fields.iter().any(|field| {
            let named = |name: &str| match def.uses.get(name).map(|id| &*plan.defs[*id].fact) {
                Some(Fact::Enum { size, .. }) => Named::Enum(*size),
                Some(_) => Named::Record,
                None => Named::Other,
            };
            match types::element(&field.ty, &field.canonical, field.size, named).0 {
                Element::Record(name) => inner(&name),
                element => is_wide(&element),
            }
        }),
        _ => false,
    }
}

fn is_wide(element: &Element) -> bool {
    match element {
        Element::Int { size, .. } | Element::Enum { size } => *size >= 8,
        Element::P64 | Element::Bytes(_) => true,
        Element::Char | Element::Float { .. } | Element::Handle | Element::Uuid => false,
        Element::Record(_) => false,
    }
}

/// A path without its array marks.
fn plain(path: &str) -> String {
    path.replace("[]", "")
}

struct Resolver<'a, 'l, 's> {
    planner: &'a Planner<'l, 's>,
    look: &'a Look<'a>,
    used_constants: bool,
}

impl<'a> Resolver<'a, '_, '_> {
    fn leaves(&mut self, id: DefId, prefix: &str, when: Option<&When>, leaves: &mut Vec<Leaf>) {
        let plan: &'a Plan<'_> = &self.planner.plan;
        let def = &plan.defs[id];
        let fields = match &*def.fact {
            Fact::Alias { ty, .. } => {
                if let Some(id) = def.uses.get(split_array(ty).0) {
                    self.leaves(*id, prefix, when, leaves);
                }
                return;
            }
            Fact::Record { fields, .. } => fields,
            _ => return,
        };
        for field in fields {
            let dimensions = split_array(&field.canonical).1;
            let mark = if dimensions.is_empty() { "" } else { "[]" };
            let path = match (prefix, field.name.as_str()) {
                (prefix, "") => prefix.to_owned(),
                ("", name) => format!("{name}{mark}"),
                (prefix, name) => format!("{prefix}.{name}{mark}"),
            };
            let named = |name: &str| match def.uses.get(name).map(|id| &*plan.defs[*id].fact) {
                Some(Fact::Enum { size, .. }) => Named::Enum(*size),
                Some(_) => Named::Record,
                None => Named::Other,
            };
            let element = types::element(&field.ty, &field.canonical, field.size, named).0;
            match &element {
                Element::Record(name) if *name != def.name => {
                    let chosen = self.chosen(&def.name, &field.name, prefix, def.uses[name]);
                    match chosen {
                        Some(members) => self.members(def.uses[name], &path, &members, leaves),
                        None => self.leaves(def.uses[name], &path, when, leaves),
                    }
                }
                Element::Record(_) => {}
                _ => leaves.push(Leaf {
                    path,
                    name: field.name.clone(),
                    element,
                    when: when.cloned(),
                }),
            }
        }
    }

    /// When each member of a union holds, where the spec says so.
    fn chosen(
        &mut self,
        record: &str,
        field: &str,
        prefix: &str,
        union: DefId,
    ) -> Option<Vec<(String, When)>> {
        let choice = self.look.spec.unions.get(&format!("{record}.{field}"))?;
        let Fact::Record { kind: RecordKind::Union, .. } = &*self.planner.plan.defs[union].fact
        else {
            return None;
        };
        let by = match prefix {
            "" => choice.by.name.clone(),
            prefix => format!("{prefix}.{}", choice.by.name),
        };
        let when = |(member, constant): (&String, &crate::spec::Named)| {
            let value = self.number(&constant.name)?;
            Some((member.clone(), When { field: by.clone(), value }))
        };
        Some(choice.members.iter().filter_map(when).collect())
    }

    /// The leaves of a union's members, each under its condition.
    fn members(
        &mut self,
        union: DefId,
        prefix: &str,
        members: &[(String, When)],
        leaves: &mut Vec<Leaf>,
    ) {
        let mut all = Vec::new();
        self.leaves(union, prefix, None, &mut all);
        let inside = format!("{prefix}.");
        for mut leaf in all {
            let member = leaf.path.strip_prefix(&inside).unwrap_or_default();
            let member = member.split(['.', '[']).next().unwrap_or_default();
            let when = members.iter().find(|(name, _)| name == member).map(|(_, when)| when);
            leaf.when = leaf.when.or_else(|| when.cloned());
            leaves.push(leaf);
        }
    }

    /// Takes the targets in the order of [`Planner::targets`].
    fn pointers(
        &mut self,
        pointers: &[crate::spec::Pointer],
        targets: &mut std::slice::Iter<'_, Option<DefId>>,
        leaves: &[Leaf],
    ) -> Vec<Pointer> {
        pointers.iter().map(|pointer| self.pointer(pointer, targets, leaves)).collect()
    }

    fn pointer(
        &mut self,
        pointer: &crate::spec::Pointer,
        targets: &mut std::slice::Iter<'_, Option<DefId>>,
        leaves: &[Leaf],
    ) -> Pointer {
        let of = pointer.of.as_ref().map(|of| of.name.as_str());
        let mut inside = Vec::new();
        if let Some(id) = targets.next().copied().flatten() {
            self.leaves(id, "", None, &mut inside);
        } else if of == Some(types::HANDLE) {
            // The name of the list tells what its elements are.
            let name = pointer.field.name.rsplit('.').next().unwrap_or_default().to_owned();
            let path = ".".to_owned();
            inside.push(Leaf { path, name, element: Element::Handle, when: None });
        }
        let at = leaves.iter().find(|leaf| plain(&leaf.path) == plain(&pointer.field.name));
        Pointer {
            len: pointer.len.as_ref().map(|len| self.expression(len, leaves)),
            filled: pointer.filled.as_ref().map(|len| self.expression(len, leaves)),
            unit: of.and_then(|of| self.planner.size(self.look, of)).unwrap_or(1),
            call: pointer.call.as_ref().map(|(kind, by)| (*kind, self.expression(by, leaves))),
            handles: handles_of(self.look.spec, None, &inside),
            pointers: self.pointers(&pointer.pointers, targets, &inside),
            when: at.and_then(|leaf| leaf.when.clone()),
        }
    }

    /// The same with its constants as numbers.
    fn expression(&mut self, text: &str, leaves: &[Leaf]) -> String {
        let mut term = |term: &str| {
            let term = term.trim();
            let is_field = leaves.iter().any(|leaf| plain(&leaf.path) == plain(term));
            match is_field {
                true => term.to_owned(),
                false => self.number(term).map_or_else(|| term.to_owned(), |n| n.to_string()),
            }
        };
        let mut product =
            |text: &str| text.split('*').map(&mut term).collect::<Vec<_>>().join(" * ");
        text.split('+').map(&mut product).collect::<Vec<_>>().join(" + ")
    }

    fn number(&mut self, text: &str) -> Option<i128> {
        if let Ok(number) = text.parse() {
            return Some(number);
        }
        let value = self.planner.value(self.look, text);
        self.used_constants |= value.is_some();
        value
    }
}
