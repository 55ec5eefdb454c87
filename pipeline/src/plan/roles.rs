//! The roles of a call at one tag: what the spec says, with constants as numbers and sizes in bytes,
//! and the handles that the types of fields show.

use super::types::{self, Element, Named};
use super::{Def, DefId, Param, Plan, Planner, TagPlan};
use crate::lock::Fact;
use crate::model::{self, RecordKind, split_array};
use crate::spec::{HandleMeaning, Item, ItemKind};

/// The roles of a call. What the spec says and needs nothing of the tag is left in its item.
#[derive(Debug, PartialEq, Eq)]
pub struct Roles {
    /// The size of each parameter type.
    pub sizes: Vec<u64>,
    /// As many as the item has, in its order.
    pub fds: Vec<Field>,
    /// As many as the item has, in its order.
    pub pointers: Vec<Pointer>,
    /// Fields that name objects.
    pub handles: Vec<Handle>,
    /// They hold wherever types are the same: no constant is part of them.
    pub are_fixed: bool,
}

/// A field, with its place in each type that it may be a field of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// `a[].b`.
    pub path: String,
    /// By type; `None` where a type lacks it.
    pub places: Vec<Option<FieldPlace>>,
}

/// Where a field lies in a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPlace {
    /// Bytes, of the first element where it is in arrays.
    pub offset: u64,
    /// Of one element, where it is in arrays.
    pub size: u64,
    /// Stride and count of each array, the outermost first.
    pub arrays: Vec<(u64, u64)>,
    /// Whether its type is a pointer.
    pub is_pointer: bool,
}

/// A sum of products.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expression {
    /// With constants as numbers.
    pub text: String,
    /// The terms, each a product.
    pub terms: Vec<Vec<Factor>>,
}

/// A factor of a product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Factor {
    /// A number.
    Number(i128),
    /// The value of a field.
    Field(Field),
}

/// Which call's parameters a pointer leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InnerCall {
    /// Command or class.
    pub kind: ItemKind,
    /// Its number.
    pub number: Expression,
    /// The flags that say whether they are a FINN message.
    pub flags: Option<Field>,
}

/// A field that points to memory of the caller.
#[derive(Debug, PartialEq, Eq)]
pub struct Pointer {
    /// The pointer.
    pub field: Field,
    /// Elements that the memory has room for.
    pub len: Option<Expression>,
    /// Elements that the driver has written.
    pub filled: Option<Expression>,
    /// Bytes of an element.
    pub unit: u64,
    /// Whose parameters it points to.
    pub call: Option<InnerCall>,
    /// In an element, as many as the spec has there.
    pub fds: Vec<Field>,
    /// In an element.
    pub handles: Vec<Handle>,
    /// In an element, as many as the spec has there.
    pub pointers: Vec<Pointer>,
    /// It is a pointer only then.
    pub when: Option<When>,
}

/// A field that names an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle {
    /// The field.
    pub field: Field,
    /// What it names.
    pub means: HandleMeaning,
    /// It does only then.
    pub when: Option<When>,
}

/// A field has a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct When {
    /// The field.
    pub field: Field,
    /// The value.
    pub value: i128,
}

/// A type that a role's paths start at.
enum Form {
    Def(DefId),
    /// No record: `.` is all of it.
    Scalar(FieldPlace),
}

/// A condition as the spec has it: the path of a field, and its value.
#[derive(Debug, Clone)]
struct Condition {
    path: String,
    value: i128,
}

/// A member that is no record.
struct Leaf {
    /// `a[].b`.
    path: String,
    name: String,
    element: Element,
    when: Option<Condition>,
}

pub(super) fn resolve(
    planner: &Planner<'_, '_>,
    look: &TagPlan<'_>,
    item: &Item,
    params: &[(String, Param)],
    targets: &[Option<DefId>],
) -> Roles {
    let mut resolver = Resolver { planner, look, used_constants: false };
    let sizes = params.iter().map(|(_, param)| resolver.size(param)).collect();
    if !item.roles_known {
        let (fds, pointers, handles) = (Vec::new(), Vec::new(), Vec::new());
        return Roles { sizes, fds, pointers, handles, are_fixed: true };
    }
    let mut leaves = Vec::new();
    let mut forms = Vec::new();
    for (name, param) in params {
        match param {
            Param::Def(id) => {
                resolver.leaves(*id, "", None, &mut leaves);
                forms.push(Form::Def(*id));
            }
            Param::Scalar { canonical, size } => {
                let (element, dimensions) =
                    types::element(name, canonical, *size, |_| Named::Other);
                forms.push(Form::Scalar(place_of(0, *size, &dimensions, &element)));
                let (path, name) = (".".to_owned(), String::new());
                leaves.push(Leaf { path, name, element, when: None });
            }
        }
    }
    let mut handles = Vec::new();
    for handle in resolver.handles_of(Some(item), &leaves, &forms) {
        if !handles.contains(&handle) {
            handles.push(handle);
        }
    }
    let fds = item.fds.iter().map(|fd| resolver.field(&fd.name, &forms)).collect();
    let pointers = resolver.pointers(&item.pointers, &mut targets.iter(), &leaves, &forms);
    Roles { sizes, fds, pointers, handles, are_fixed: !resolver.used_constants }
}

/// The place of a field of some bytes, with its own arrays.
fn place_of(offset: u64, size: u64, dimensions: &[u64], element: &Element) -> FieldPlace {
    let mut each = size;
    let mut arrays = Vec::new();
    for count in dimensions {
        each = each.checked_div(*count).unwrap_or(0);
        arrays.push((each, *count));
    }
    FieldPlace { offset, size: each, arrays, is_pointer: *element == Element::P64 }
}

/// Whether a field of the parameters is as wide as an address, in records, arrays and unions too.
pub fn holds_address(plan: &Plan<'_>, name: &str, param: &Param) -> bool {
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
        Fact::Record { fields, .. } => {
            fields.iter().any(|field| match element_of(plan, def, field).0 {
                Element::Record(name) => inner(&name),
                element => is_wide(&element),
            })
        }
        _ => false,
    }
}

/// What a field's elements are, and the dimensions of its array.
fn element_of(plan: &Plan<'_>, def: &Def, field: &model::Field) -> (Element, Vec<u64>) {
    plan.element(def, &field.ty, &field.canonical, field.size)
}

/// Where a path leads to in a definition.
fn locate(plan: &Plan<'_>, id: DefId, path: &str) -> Option<FieldPlace> {
    let def = &plan.defs[id];
    let fields = match &*def.fact {
        Fact::Alias { ty, .. } => return locate(plan, *def.uses.get(split_array(ty).0)?, path),
        Fact::Enum { size, .. } if path == "." => {
            return Some(place_of(0, *size, &[], &Element::Enum { size: *size }));
        }
        Fact::Record { fields, .. } => fields,
        _ => return None,
    };
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    let name = name.trim_end_matches("[]");
    fields.iter().filter(|field| field.bits.is_none()).find_map(|field| {
        let (element, dimensions) = element_of(plan, def, field);
        let own = place_of(field.offset, field.size, &dimensions, &element);
        // The members of an unnamed member are the record's own.
        let inside = match (field.name == name, field.name.is_empty()) {
            (true, _) if rest.is_empty() => return Some(own),
            (true, _) => rest,
            (false, true) => path,
            (false, false) => return None,
        };
        let Element::Record(record) = &element else { return None };
        let inner = locate(plan, *def.uses.get(record)?, inside)?;
        let arrays = own.arrays.into_iter().chain(inner.arrays).collect();
        Some(FieldPlace { offset: own.offset + inner.offset, arrays, ..inner })
    })
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
    look: &'a TagPlan<'a>,
    used_constants: bool,
}

impl<'a> Resolver<'a, '_, '_> {
    fn leaves(
        &mut self,
        id: DefId,
        prefix: &str,
        when: Option<&Condition>,
        leaves: &mut Vec<Leaf>,
    ) {
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
        for field in fields.iter() {
            let dimensions = split_array(&field.canonical).1;
            let mark = if dimensions.is_empty() { "" } else { "[]" };
            let path = match (prefix, field.name.as_str()) {
                (prefix, "") => prefix.to_owned(),
                ("", name) => format!("{name}{mark}"),
                (prefix, name) => format!("{prefix}.{name}{mark}"),
            };
            let element = element_of(plan, def, field).0;
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
    ) -> Option<Vec<(String, Condition)>> {
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
            Some((member.clone(), Condition { path: by.clone(), value }))
        };
        Some(choice.members.iter().filter_map(when).collect())
    }

    /// The leaves of a union's members, each under its condition.
    fn members(
        &mut self,
        union: DefId,
        prefix: &str,
        members: &[(String, Condition)],
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

    /// Bytes of a parameter type.
    fn size(&self, param: &Param) -> u64 {
        match param {
            Param::Scalar { size, .. } => *size,
            Param::Def(id) => match *self.planner.plan.defs[*id].fact {
                Fact::Record { size, .. } | Fact::Enum { size, .. } | Fact::Alias { size, .. } => {
                    size
                }
                _ => 0,
            },
        }
    }

    /// A field by its path, with its place in each form.
    fn field(&self, path: &str, forms: &[Form]) -> Field {
        let place = |form: &Form| match form {
            Form::Def(id) => locate(&self.planner.plan, *id, path),
            Form::Scalar(place) => (path == ".").then(|| place.clone()),
        };
        Field { path: path.to_owned(), places: forms.iter().map(place).collect() }
    }

    fn when(&self, condition: Option<&Condition>, forms: &[Form]) -> Option<When> {
        let Condition { path, value } = condition?;
        Some(When { field: self.field(path, forms), value: *value })
    }

    /// The handles among some leaves: by their type, by their name, or because the item says so.
    fn handles_of(&self, item: Option<&Item>, leaves: &[Leaf], forms: &[Form]) -> Vec<Handle> {
        let handle = |leaf: &Leaf| {
            let own = item.into_iter().flat_map(|item| &item.handles);
            let mut own = own.filter(|(field, _)| plain(&field.name) == plain(&leaf.path));
            let named = own.next().map(|(_, means)| *means);
            let named = named.or_else(|| self.look.spec.handles.get(&leaf.name).copied());
            let means = match leaf.element {
                Element::Handle => named.unwrap_or(HandleMeaning::Object),
                Element::Int { size: 4, .. } => named?,
                _ => return None,
            };
            if means == HandleMeaning::None {
                return None;
            }
            let when = self.when(leaf.when.as_ref(), forms);
            Some(Handle { field: self.field(&leaf.path, forms), means, when })
        };
        leaves.iter().filter_map(handle).collect()
    }

    /// Takes the targets in the order of [`Planner::targets`].
    fn pointers(
        &mut self,
        pointers: &[crate::spec::Pointer],
        targets: &mut std::slice::Iter<'_, Option<DefId>>,
        leaves: &[Leaf],
        forms: &[Form],
    ) -> Vec<Pointer> {
        pointers.iter().map(|pointer| self.pointer(pointer, targets, leaves, forms)).collect()
    }

    fn pointer(
        &mut self,
        pointer: &crate::spec::Pointer,
        targets: &mut std::slice::Iter<'_, Option<DefId>>,
        leaves: &[Leaf],
        forms: &[Form],
    ) -> Pointer {
        let of = pointer.of.as_ref().map(|of| of.name.as_str());
        let unit = of.and_then(|of| self.planner.size(self.look, of)).unwrap_or(1);
        let mut inside = Vec::new();
        let element = match targets.next().copied().flatten() {
            Some(id) => {
                self.leaves(id, "", None, &mut inside);
                Form::Def(id)
            }
            None => {
                let element = match of {
                    Some(types::HANDLE) => Element::Handle,
                    Some(types::P64) => Element::P64,
                    _ => Element::Bytes(unit),
                };
                let place = place_of(0, unit, &[], &element);
                if element == Element::Handle {
                    // The name of the list tells what its elements are.
                    let name = pointer.field.name.rsplit('.').next().unwrap_or_default().to_owned();
                    inside.push(Leaf { path: ".".to_owned(), name, element, when: None });
                }
                Form::Scalar(place)
            }
        };
        let elements = [element];
        let at = leaves.iter().find(|leaf| plain(&leaf.path) == plain(&pointer.field.name));
        let mut expression = |text: &String| self.expression(text, leaves, forms);
        let (len, filled) = (
            pointer.len.as_ref().map(&mut expression),
            pointer.filled.as_ref().map(&mut expression),
        );
        let call = pointer.call.as_ref().map(|(kind, by)| (*kind, expression(by)));
        let call = call.map(|(kind, number)| InnerCall {
            kind,
            number,
            flags: self.finn_flags(kind, forms),
        });
        Pointer {
            field: self.field(&pointer.field.name, forms),
            len,
            filled,
            unit,
            call,
            fds: pointer.fds.iter().map(|fd| self.field(&fd.name, &elements)).collect(),
            handles: self.handles_of(None, &inside, &elements),
            pointers: self.pointers(&pointer.pointers, targets, &inside, &elements),
            when: at.and_then(|leaf| self.when(leaf.when.as_ref(), forms)),
        }
    }

    /// `NVOS54_PARAMETERS.flags`, which says whether a command's parameters are a FINN message.
    fn finn_flags(&self, kind: ItemKind, forms: &[Form]) -> Option<Field> {
        let is_control = forms.iter().any(|form| match form {
            Form::Def(id) => self.planner.plan.defs[*id].name == "NVOS54_PARAMETERS",
            Form::Scalar(_) => false,
        });
        (kind == ItemKind::Control && is_control).then(|| self.field("flags", forms))
    }

    /// The same with its constants as numbers, and its fields as places.
    fn expression(&mut self, text: &str, leaves: &[Leaf], forms: &[Form]) -> Expression {
        let mut factor = |text: &str| {
            let text = text.trim();
            let is_field = leaves.iter().any(|leaf| plain(&leaf.path) == plain(text));
            match if is_field { None } else { self.number(text) } {
                Some(number) => (number.to_string(), Factor::Number(number)),
                None => (text.to_owned(), Factor::Field(self.field(text, forms))),
            }
        };
        let (mut texts, mut terms) = (Vec::new(), Vec::new());
        for product in text.split('+') {
            let (names, factors): (Vec<_>, Vec<_>) = product.split('*').map(&mut factor).unzip();
            texts.push(names.join(" * "));
            terms.push(factors);
        }
        Expression { text: texts.join(" + "), terms }
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
