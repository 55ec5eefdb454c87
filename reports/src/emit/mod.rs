//! The lock's types in other languages.
//!
//! A `Module` is what every language writes: the types, constants and calls of some tags, with one name for
//! each. A language is one file here; it knows its own syntax, and nothing of locks or specs.

mod c;
mod go;
mod json;
mod kaitai;
mod python;
mod rust;
mod syzkaller;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use nvabi_pipeline::diagnostic::Report;
use nvabi_pipeline::globs;
use nvabi_pipeline::known;
use nvabi_pipeline::lock::{Fact, Lock};
use nvabi_pipeline::model::{Access, Facts, split_array};
use nvabi_pipeline::plan::members::Layout;
use nvabi_pipeline::plan::roles::{self, FieldPlace};
use nvabi_pipeline::plan::types::Element;
use nvabi_pipeline::plan::{self, Call, Const, Def, DefId, Param, Plan};
use nvabi_pipeline::spec::{Direction, Item, ItemKind, Named, Spec};
use nvabi_pipeline::tag::Tag;
use rustc_hash::FxHashSet;
use serde::Serialize;

use crate::callers::{Callers, Run, extend};
use crate::ranges::{self, RequestedName};

/// A language that the types can be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// One header for C11 and C++17.
    C,
    /// A package and its test.
    Go,
    /// One module on `ctypes`.
    Python,
    /// One `no_std` file.
    Rust,
    /// The types, constants and calls as data.
    Json,
    /// A Kaitai Struct description, for hex viewers and parsers.
    Kaitai,
    /// Descriptions of the calls for the fuzzer syzkaller.
    Syzkaller,
}

impl Language {
    /// Why no package of the language can have a name: nobody could use it.
    pub fn refuses(self, name: &str) -> Option<String> {
        let reserved = match self {
            Self::Go => go::RESERVED.contains(&name),
            Self::Python => python::RESERVED.contains(&name),
            Self::Rust => nvabi_pipeline::emit::ident(name) != name,
            Self::C | Self::Json | Self::Kaitai | Self::Syzkaller => false,
        };
        match self {
            _ if reserved => Some("the language has the word for itself".to_owned()),
            Self::Go => go::passes_over(name),
            _ => None,
        }
    }
}

/// Which items to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'a> {
    /// What the specs name, and what that is made of.
    Spec,
    /// Everything.
    All,
    /// Some calls, types and constants (`*` stands for any characters), and what they are made of.
    Items(&'a [RequestedName]),
}

/// How to write a module.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// The language.
    pub language: Language,
    /// The name of the module: a C identifier.
    pub package: &'a str,
    /// The command that writes the same again.
    pub command: &'a str,
}

/// A file to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Such as `nvabi.h`.
    pub name: String,
    /// What it contains.
    pub text: String,
}

/// The files of a module: `lock` has its tags and no others, `specs` those of their drivers.
///
/// # Errors
///
/// Names of a [`Scope::Items`] that no tag has, and specs that do not fit the facts.
pub fn emit(
    lock: &Lock,
    specs: &[&Spec],
    scope: Scope<'_>,
    options: Options<'_>,
) -> Result<Vec<File>, Report> {
    let specs: Vec<Spec> = match scope {
        Scope::Spec => specs.iter().map(|spec| (*spec).clone()).collect(),
        Scope::All => {
            specs.iter().map(|spec| known::with_driver_calls(lock, spec, &|_| true)).collect()
        }
        Scope::Items(names) => {
            let chosen = only(lock, specs, names)?;
            match options.language {
                Language::Syzkaller => with_needed(lock, specs, names, chosen)?,
                _ => chosen,
            }
        }
    };
    let specs: Vec<&Spec> = specs.iter().collect();
    let plan = plan::plan(lock, &specs, scope == Scope::All)?;
    let module = Module::new(lock, &plan, options);
    Ok(match options.language {
        Language::C => c::files(&module),
        Language::Go => go::files(&module),
        Language::Python => python::files(&module, &specs),
        Language::Rust => rust::files(&module),
        Language::Json => json::files(&module),
        Language::Kaitai => kaitai::files(&module),
        Language::Syzkaller => {
            let asked = match scope {
                Scope::Items(names) => Some(names),
                Scope::Spec | Scope::All => None,
            };
            syzkaller::files(&module, &specs, asked)?
        }
    })
}

/// The names that are asked for, patterns among them as what they stand for.
fn expanded(lock: &Lock, specs: &[&Spec], facts: &[Facts], names: &[String]) -> Vec<String> {
    let (patterns, mut found): (Vec<&String>, Vec<&String>) =
        names.iter().partition(|name| name.contains('*'));
    if patterns.is_empty() {
        return names.to_vec();
    }
    let fits = |name: &str| patterns.iter().any(|pattern| globs::fits(pattern, name));
    let with_calls = specs.iter().map(|spec| known::with_driver_calls(lock, spec, &fits));
    let calls: Vec<Item> = with_calls.flat_map(|spec| spec.items).collect();
    let all =
        calls.iter().map(|item| item.name.as_str()).chain(facts.iter().flat_map(Facts::names));
    let all: BTreeSet<&str> = all.collect();
    // What stands for nothing stays, to be told.
    found.extend(patterns.iter().filter(|of| !all.iter().any(|name| globs::fits(of, name))));
    let fitting = all.iter().copied().filter(|name| fits(name)).map(str::to_owned);
    found.into_iter().cloned().chain(fitting).collect()
}

/// The specs with the named calls, types and constants alone.
fn only(lock: &Lock, specs: &[&Spec], asked: &[RequestedName]) -> Result<Vec<Spec>, Report> {
    let facts: Vec<Facts> = lock.tags.iter().filter_map(|of| lock.facts(&of.tag)).collect();
    let names: Vec<String> = asked.iter().map(|asked| asked.name.clone()).collect();
    let names = &expanded(lock, specs, &facts, &names)[..];
    let wanted: HashSet<&str> = names.iter().map(String::as_str).collect();
    let mut missing: BTreeSet<&str> = wanted.iter().copied().collect();
    let surfaces = || facts.iter().flat_map(|facts| facts.surfaces.values());
    for surface in surfaces() {
        missing.retain(|name| {
            let has = surface.records.contains_key(*name)
                || surface.aliases.contains_key(*name)
                || surface.enums.contains_key(*name)
                || surface.constants.contains_key(*name)
                || surface.bit_ranges.contains_key(*name)
                || surface.enums.values().any(|e| e.variants.contains_key(*name));
            !has
        });
    }
    let with_calls: Vec<Spec> = (specs.iter())
        .map(|spec| known::with_driver_calls(lock, spec, &|name| wanted.contains(name)))
        .collect();
    for item in with_calls.iter().flat_map(|spec| &spec.items) {
        missing.remove(item.name.as_str());
    }
    if !missing.is_empty() {
        let missing: Vec<&RequestedName> =
            asked.iter().filter(|asked| missing.contains(asked.name.as_str())).collect();
        let known: Vec<&str> = facts.iter().flat_map(Facts::names).collect();
        let nobody = "no tag that is emitted has";
        return Err(ranges::complaints("emit-unknown", nobody, missing.into_iter(), &known));
    }
    let is_type = |name: &&String| {
        surfaces().any(|s| {
            s.records.contains_key(*name)
                || s.enums.contains_key(*name)
                || s.aliases.get(*name).is_some_and(|alias| alias.size > 0)
        })
    };
    let types: Vec<&String> = names.iter().filter(is_type).collect();
    let narrowed = with_calls.into_iter().map(|mut spec| {
        spec.items.retain(|item| wanted.contains(item.name.as_str()));
        let place = spec.surfaces.first().map(|surface| surface.place.clone());
        let named = |name: &String| place.clone().map(|place| Named { name: name.clone(), place });
        let has = |name: &&&String| {
            facts.iter().filter(|facts| facts.tag.branch() == spec.driver).all(|facts| {
                facts.surfaces.values().any(|s| {
                    s.records.contains_key(**name)
                        || s.enums.contains_key(**name)
                        || s.aliases.contains_key(**name)
                })
            })
        };
        spec.extra_types = types.iter().filter(has).filter_map(|name| named(name)).collect();
        spec.constants = names.iter().filter_map(named).collect();
        spec
    });
    Ok(narrowed.collect())
}

/// The chosen items, and those that a description of them needs.
fn with_needed(
    lock: &Lock,
    specs: &[&Spec],
    asked: &[RequestedName],
    chosen: Vec<Spec>,
) -> Result<Vec<Spec>, Report> {
    let needed = syzkaller::needed(specs, &chosen);
    if needed.is_empty() {
        return Ok(chosen);
    }
    let needed = needed.into_iter().map(|name| RequestedName { name, place: None });
    let all: Vec<RequestedName> = asked.iter().cloned().chain(needed).collect();
    only(lock, specs, &all)
}

/// What every language writes.
struct Module<'p> {
    plan: &'p Plan<'p>,
    package: &'p str,
    command: &'p str,
    /// In order, each with its view.
    tags: Vec<(&'p Tag, usize)>,
    /// Of the types, by [`DefId`].
    names: Vec<String>,
    /// Sorted by name, each with its name here.
    constants: Vec<(Cow<'p, str>, &'p Const)>,
    callers: Callers<'p>,
}

/// A type of a module.
struct Type<'p> {
    id: DefId,
    def: &'p Def,
    name: &'p str,
    shape: Shape<'p>,
}

/// What a type is.
enum Shape<'p> {
    Record(Layout<'p>),
    /// Integers of so many bytes.
    Enum(u64, &'p BTreeMap<String, i128>),
    /// Another name of an element, or of an array of it.
    Alias(Element, Vec<u64>),
}

/// A call with one type of parameters.
struct CallRow<'p> {
    kind: ItemKind,
    name: &'p str,
    number: u64,
    /// Of an ioctl that has one: what is passed to `ioctl`.
    request: Option<u64>,
    /// What it is made on, where a driver's nodes have requests of one number.
    node: Option<&'p str>,
    /// The name of the type; `None` where the call takes none, or an integer.
    params: Option<&'p str>,
    /// Bytes of the parameters.
    size: u64,
    roles: Vec<Role>,
    /// Whether a spec says all of its roles; without, there may be others.
    roles_known: bool,
    /// Whom the driver lets make it, where its tables say so.
    access: Option<&'p Access>,
    /// The runs of tags that have it.
    spans: Vec<Run>,
}

/// A field of a call's parameters that is more than a number.
pub(crate) struct Role {
    pub(crate) kind: RoleKind,
    pub(crate) path: String,
    pub(crate) place: FieldPlace,
    pub(crate) detail: Detail,
}

/// What is known of a field with a role; what is not known is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Detail {
    /// Of a pointer, `in`, `out` or `inout`; of a file descriptor, `out` where it comes back new.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub direction: &'static str,
    /// Of a pointer: how many elements it leads to, as numbers and fields joined by `*` and `+`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub length: String,
    /// Of a pointer with a length: bytes of an element.
    #[serde(skip_serializing_if = "is_zero")]
    pub unit: u64,
    /// Of a handle, what it names; of a file descriptor, the node that it is of.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub means: String,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Detail {
    /// For a person.
    pub(crate) fn text(&self) -> String {
        let length = match (self.length.as_str(), self.unit) {
            ("", _) => String::new(),
            (length, 1) => format!("{length} bytes"),
            (length, unit) if length.contains('+') => format!("({length}) * {unit} bytes"),
            (length, unit) => format!("{length} * {unit} bytes"),
        };
        let parts = [self.direction, &length, &self.means];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoleKind {
    Fd,
    Pointer,
    Handle,
}

impl RoleKind {
    fn word(self) -> &'static str {
        match self {
            Self::Fd => "fd",
            Self::Pointer => "pointer",
            Self::Handle => "handle",
        }
    }
}

impl<'p> Module<'p> {
    fn new(lock: &'p Lock, plan: &'p Plan<'p>, options: Options<'p>) -> Self {
        let mut tags: Vec<_> = plan
            .drivers
            .iter()
            .flat_map(|d| d.tags.iter().map(|(tag, view)| (tag, *view)))
            .collect();
        tags.sort();
        let mut taken = FxHashSet::default();
        taken.reserve(plan.defs.len() + plan.constants.len());
        // What begins with anything but a capital letter is seen inside of a package of Go alone.
        let spelled: fn(&str) -> Cow<'_, str> = match options.language {
            Language::Go => go::exported,
            _ => |name| name.into(),
        };
        let names = type_names(plan, &tags, spelled, &mut taken);
        let constants = constant_names(plan, &tags, spelled, &mut taken);
        let Options { package, command, .. } = options;
        Self { plan, package, command, tags, names, constants, callers: Callers::new(lock) }
    }

    /// The types, each after those that it is made of.
    fn types(&self) -> impl Iterator<Item = Type<'_>> {
        self.plan.defs.iter().zip(&self.names).enumerate().filter_map(|(id, (def, name))| {
            let shape = match &*def.fact {
                Fact::Record { .. } => Shape::Record(self.plan.layout(def)?),
                Fact::Enum { size, variants } => Shape::Enum(*size, variants),
                Fact::Alias { ty, size } => {
                    let (element, dimensions) = self.plan.element(def, ty, ty, *size);
                    Shape::Alias(element, dimensions)
                }
                _ => return None,
            };
            Some(Type { id, def, name, shape })
        })
    }

    /// The name of a type that another one is made of.
    fn used(&self, def: &Def, name: &str) -> Option<&str> {
        def.uses.get(name).map(|id| self.names[*id].as_str())
    }

    /// The definition of a type that another one is made of.
    fn used_def(&self, def: &'p Def, name: &str) -> Option<&'p Def> {
        def.uses.get(name).map(|id| &self.plan.defs[*id])
    }

    /// The name of the record that a field's elements are, UUIDs among them.
    fn record_of(&self, def: &Def, element: &Element, canonical: &str) -> Option<&str> {
        match element {
            Element::Record(name) => self.used(def, name),
            Element::Uuid => self.used(def, split_array(canonical).0),
            _ => None,
        }
    }

    /// The runs of tags that have one of some views.
    fn spans(&self, views: &BTreeSet<usize>) -> Vec<Run> {
        let mut spans: Vec<Run> = Vec::new();
        for (at, _) in self.tags.iter().enumerate().filter(|(_, (_, view))| views.contains(view)) {
            extend(&mut spans, at);
        }
        spans
    }

    /// `550.54.14`, or `550.54.14 to 580.95.05 (12 tags)`.
    fn versions(&self) -> String {
        match self.tags.as_slice() {
            [] => String::new(),
            [(one, _)] => one.to_string(),
            [(first, _), .., (last, _)] => {
                format!("{first} to {last} ({} tags)", self.tags.len())
            }
        }
    }

    /// Type names that mean different layouts at different tags: the driver's name and, for each run of tags,
    /// the name here.
    fn by_version(&self) -> BTreeMap<&str, Vec<(&str, Run)>> {
        let mut all: BTreeMap<&str, Vec<(&str, Run)>> = BTreeMap::new();
        if self.tags.len() < 2 {
            return all;
        }
        for (def, name) in self.plan.defs.iter().zip(&self.names) {
            let spans = self.spans(&def.views).into_iter().map(|span| (name.as_str(), span));
            all.entry(def.ident.as_str()).or_default().extend(spans);
        }
        let whole = (0, self.tags.len().saturating_sub(1));
        all.retain(|_, rows| rows.iter().any(|(_, span)| *span != whole));
        all.values_mut().for_each(|rows| rows.sort_by_key(|(_, span)| *span));
        all
    }

    /// Constants that not every tag has with one value: the driver's name and, for each run of tags, the fact.
    fn constants_by_version(&self) -> BTreeMap<&str, Vec<(&Fact, Run)>> {
        let mut all: BTreeMap<&str, Vec<(&Fact, Run)>> = BTreeMap::new();
        // Of one tag there is nothing to tell, and sorting its constants takes a while.
        if self.tags.len() < 2 {
            return all;
        }
        for (_, constant) in &self.constants {
            let is_value = matches!(constant.fact, Fact::Constant(_) | Fact::BitRange(..));
            let spans = self.spans(&constant.views).into_iter().filter(|_| is_value);
            let rows = spans.map(|span| (&constant.fact, span));
            all.entry(constant.name.as_str()).or_default().extend(rows);
        }
        let whole = (0, self.tags.len().saturating_sub(1));
        all.retain(|_, rows| rows.iter().any(|(_, span)| *span != whole));
        all.values_mut().for_each(|rows| rows.sort_by_key(|(_, span)| *span));
        all
    }

    /// The calls by kind, number and name, one row for each type of parameters.
    fn calls(&self) -> Vec<CallRow<'_>> {
        let mut rows: Vec<CallRow<'_>> =
            self.plan.calls.iter().flat_map(|call| self.call_rows(call)).collect();
        rows.sort_by_key(|row| (row.kind, row.number, row.name, row.spans.clone(), row.size));
        rows
    }

    fn call_rows<'s>(&'s self, call: &'s Call<'_>) -> Vec<CallRow<'s>> {
        let tags = self.spans(&call.views).into_iter().flat_map(|(first, last)| first..=last);
        let by_access = self.callers.runs(&call.item.name, tags);
        let number = (call.number & 0xffff_ffff) as u64;
        let row = |form: Option<usize>, access, spans| {
            let size = form.map_or(0, |form| call.roles.sizes[form]);
            CallRow {
                kind: call.item.kind,
                name: &call.item.name,
                number,
                request: request(call.item, number, size),
                node: call.item.node.as_ref().map(|node| node.name.as_str()),
                params: form.and_then(|form| match &call.params[form].1 {
                    Param::Def(id) => Some(self.names[*id].as_str()),
                    Param::Scalar { .. } => None,
                }),
                size,
                roles: form.map_or_else(Vec::new, |form| roles_of(call, form)),
                roles_known: call.item.roles_known,
                access,
                spans,
            }
        };
        let rows = |form| {
            let by_access = by_access.iter();
            by_access.map(move |(access, spans)| (form, *access, spans.clone()))
        };
        forms(call).flat_map(rows).map(|(form, access, spans)| row(form, access, spans)).collect()
    }
}

/// The forms of a call's parameters; a call without any has one form.
pub(crate) fn forms(call: &Call<'_>) -> impl Iterator<Item = Option<usize>> + use<> {
    let count = call.params.len();
    (count == 0).then_some(None).into_iter().chain((0..count).map(Some))
}

/// What is passed to `ioctl`, where it is one number: an array is as long as its caller says.
pub(crate) fn request(item: &Item, number: u64, size: u64) -> Option<u64> {
    match item.kind {
        ItemKind::Frontend if item.array => None,
        ItemKind::Frontend => Some(frontend_request(number, size)),
        ItemKind::Uvm => Some(number),
        // The mode setter has one request, in whose parameters its calls' numbers are.
        ItemKind::Ioctl => Some(number).filter(|number| number >> 8 & 0xff != 0),
        ItemKind::Control | ItemKind::Class => None,
    }
}

/// The request of an escape with parameters of so many bytes.
fn frontend_request(number: u64, size: u64) -> u64 {
    3 << 30 | size << 16 | u64::from(b'F') << 8 | number
}

pub(crate) fn roles_of(call: &Call<'_>, form: usize) -> Vec<Role> {
    let role = |kind, field: &roles::Field, detail| {
        let place = field.places.get(form)?.clone()?;
        Some(Role { kind, path: field.path.clone(), place, detail })
    };
    let mut found: Vec<Role> = Vec::new();
    for (fd, spec) in call.roles.fds.iter().zip(&call.item.fds) {
        let of = |fds: &[(Named, Named)]| node_of(fds, &spec.name);
        let (direction, means) = match of(&call.item.opens) {
            Some(node) => ("out", Some(node)),
            None => ("in", of(&call.item.files)),
        };
        let means = means.unwrap_or_default();
        let detail = Detail { direction, means, ..Detail::default() };
        found.extend(role(RoleKind::Fd, fd, detail));
    }
    for (pointer, spec) in call.roles.pointers.iter().zip(&call.item.pointers) {
        let direction = match spec.dir {
            Some(Direction::In) => "in",
            Some(Direction::Out) => "out",
            Some(Direction::InOut) => "inout",
            None => "",
        };
        let length = pointer.len.as_ref().map_or_else(String::new, |len| len.text.clone());
        let unit = pointer.len.as_ref().map_or(0, |_| pointer.unit);
        let detail = Detail { direction, length, unit, ..Detail::default() };
        found.extend(role(RoleKind::Pointer, &pointer.field, detail));
    }
    for handle in &call.roles.handles {
        let means = format!("{:?}", handle.means).to_lowercase();
        let detail = Detail { means, ..Detail::default() };
        found.extend(role(RoleKind::Handle, &handle.field, detail));
    }
    found.sort_by_key(|role| role.place.offset);
    found
}

/// The node that a file descriptor is of, where the spec says it.
fn node_of(fds: &[(Named, Named)], path: &str) -> Option<String> {
    fds.iter().find(|(fd, _)| fd.name == path).map(|(_, node)| node.name.clone())
}

/// The driver's name for the layout of the oldest tag, and that with the tag for each later one.
fn type_names<'p>(
    plan: &'p Plan<'_>,
    tags: &[(&Tag, usize)],
    spelled: fn(&str) -> Cow<'_, str>,
    taken: &mut FxHashSet<Cow<'p, str>>,
) -> Vec<String> {
    let first = |id: &DefId| tags.iter().position(|(_, view)| plan.defs[*id].views.contains(view));
    let mut order: Vec<DefId> = (0..plan.defs.len()).collect();
    order.sort_by_key(|id| (first(id), *id));
    let mut names = vec![String::new(); plan.defs.len()];
    for id in order {
        let def = &plan.defs[id];
        names[id] = unique(taken, spelled(&def.ident), &def.place.since).into_owned();
    }
    names
}

fn constant_names<'p>(
    plan: &'p Plan<'_>,
    tags: &[(&Tag, usize)],
    spelled: fn(&str) -> Cow<'_, str>,
    taken: &mut FxHashSet<Cow<'p, str>>,
) -> Vec<(Cow<'p, str>, &'p Const)> {
    let mut first = vec![usize::MAX; plan.views.len()];
    for (at, (_, view)) in tags.iter().enumerate().rev() {
        first[*view] = at;
    }
    let since = |constant: &Const| constant.views.iter().map(|view| first[*view]).min();
    let mut constants: Vec<_> = plan.constants.iter().map(|c| (since(c), &*c.name, c)).collect();
    constants.sort_by_key(|(since, name, _)| (*since, *name));
    let mut named: Vec<(Cow<'p, str>, &Const)> = constants
        .into_iter()
        .map(|(_, name, constant)| (unique(taken, spelled(name), &constant.place.since), constant))
        .collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    named
}

/// A name that nothing has yet: with its tag, and then with underscores.
fn unique<'p>(
    taken: &mut FxHashSet<Cow<'p, str>>,
    name: Cow<'p, str>,
    since: &Tag,
) -> Cow<'p, str> {
    if taken.insert(name.clone()) {
        return name;
    }
    let mut longer = format!("{name}_V{}", since.ident());
    while !taken.insert(longer.clone().into()) {
        longer.push('_');
    }
    longer.into()
}

/// The first lines of a file: what it is, and how it is written again.
fn banner(module: &Module<'_>, comment: &str) -> String {
    format!(
        "{comment} NVIDIA driver ABI: {}. Generated by nvabi; do not edit.\n\
         {comment} Renew with: {}\n",
        module.versions(),
        module.command
    )
}

/// `struct NAME, 32 bytes: path:line (550.54.14)`.
fn describe(ty: &Type<'_>) -> String {
    let what = match &ty.shape {
        Shape::Record(layout) => format!("{}, {} bytes", layout.kind.keyword(), layout.size),
        Shape::Enum(size, _) => format!("enum, {size} bytes"),
        Shape::Alias(..) => "typedef".to_owned(),
    };
    let Def { name, place, .. } = ty.def;
    format!("{name}: {what}, {} at {}", place.source, place.since)
}
