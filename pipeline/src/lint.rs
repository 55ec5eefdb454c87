//! Whether a spec fits the driver: its names exist, its paths lead to fields, nothing that looks like
//! a pointer, a file descriptor or a handle goes without a role, and what the driver's own tables say
//! of its calls is what the spec says.

mod driver;
mod looks;

pub use looks::is_named_like_fd;

use std::collections::{BTreeMap, BTreeSet};

use crate::diagnostic::{Diagnostic, Report, nearest};
use crate::lock::Lock;
use crate::model::{Facts, Record, RecordKind, Surface, builtin, request_size, split_array};
use crate::spec::{HandleMeaning, Item, ItemKind, Named, Pointer, Spec, SpecPlace};
use crate::tag::Tag;

/// Lints a spec against every locked tag of its driver; a complaint names the tags it holds for.
pub fn lint(lock: &Lock, spec: &Spec) -> Report {
    let tags: Vec<usize> =
        (0..lock.tags.len()).filter(|i| lock.tags[*i].tag.branch() == spec.driver).collect();
    lint_tags(lock, spec, &tags)
}

/// Lints a spec against one locked tag.
pub fn lint_tag(lock: &Lock, spec: &Spec, tag: &Tag) -> Report {
    lint_tags(lock, spec, &lock.tag_index(tag).into_iter().collect::<Vec<_>>())
}

fn lint_tags(lock: &Lock, spec: &Spec, tags: &[usize]) -> Report {
    let mut found: BTreeMap<Key, (Complaint, Vec<&Tag>)> = BTreeMap::new();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for i in tags {
        let locked = &lock.tags[*i];
        // Tags with the same headers get the same answer.
        let twin = seen.get(locked.headers.as_str()).copied();
        let same_items = |other: usize| {
            let other = &lock.tags[other].tag;
            spec.items.iter().all(|item| item.holds_at(other) == item.holds_at(&locked.tag))
        };
        if let Some(other) = twin.filter(|other| same_items(*other)) {
            for (_, tags) in found.values_mut() {
                if tags.contains(&&lock.tags[other].tag) {
                    tags.push(&locked.tag);
                }
            }
            continue;
        }
        seen.insert(&locked.headers, *i);
        let Some(facts) = lock.facts(&locked.tag) else { continue };
        for complaint in Linter::new(spec, &facts).run() {
            found
                .entry(complaint.key())
                .or_insert_with(|| (complaint, Vec::new()))
                .1
                .push(&locked.tag);
        }
    }
    let mut report = Report::default();
    if tags.is_empty() {
        report.push(
            Diagnostic::error(
                "lock-no-tag",
                format!("the lock has no tag of driver {}", spec.driver),
            )
            .help("`nvabi lock TAG` adds one"),
        );
    }
    for (complaint, held) in found.into_values() {
        report.push(complaint.diagnostic(&held, tags.len()));
    }
    report.sorted()
}

type Key = (&'static str, String, String);

struct Complaint {
    code: &'static str,
    message: String,
    place: SpecPlace,
    source: Option<String>,
    help: Option<String>,
}

impl Complaint {
    fn key(&self) -> Key {
        let place = self.place.place();
        (self.code, format!("{}:{:09}", place.path, place.span.start), self.message.clone())
    }

    fn diagnostic(self, held: &[&Tag], all: usize) -> Diagnostic {
        let mut diagnostic = Diagnostic::error(self.code, self.message).at(self.place.place());
        if let Some(source) = self.source {
            diagnostic = diagnostic.note(format!("the driver declares it at {source}"));
        }
        let tags = match (held, held.len() == all) {
            (_, true) => format!("at all {all} tags"),
            ([only], _) => format!("at {only}"),
            ([first, .., last], _) => format!("at {} of {all} tags, {first} to {last}", held.len()),
            ([], _) => String::new(),
        };
        diagnostic = diagnostic.note(tags);
        match self.help {
            Some(help) => diagnostic.help(help),
            None => diagnostic,
        }
    }
}

struct Linter<'a> {
    spec: &'a Spec,
    facts: &'a Facts,
    complaints: Vec<Complaint>,
}

/// A scalar member somewhere in a parameter type.
struct Leaf {
    /// `a.b`, array dimensions left out.
    path: String,
    name: String,
    declared: String,
    canonical: String,
    source: Option<String>,
    union: Option<Union>,
}

impl Leaf {
    /// An element that is no record: the pointer's name tells what it is, or its type.
    fn element(pointer: &Pointer, of: &str) -> Self {
        let name = pointer.field.name.rsplit('.').next().unwrap_or_default();
        Self {
            path: ".".to_owned(),
            name: name.to_owned(),
            declared: of.to_owned(),
            canonical: String::new(),
            source: None,
            union: None,
        }
    }
}

/// A call's parameters, or the elements behind one of its pointers, and what is said of their fields.
struct Scope<'s> {
    item: &'s Item,
    /// `maps->` for what `maps` leads to; empty for the parameters.
    prefix: String,
    /// They are no record, but a value that `.` stands for.
    is_scalar: bool,
    fds: &'s [Named],
    pointers: &'s [Pointer],
    plain: &'s [Named],
    handles: &'s [(Named, HandleMeaning)],
}

impl<'s> Scope<'s> {
    /// What the `of` of a pointer names.
    fn behind(&self, pointer: &'s Pointer, is_scalar: bool) -> Self {
        Self {
            item: self.item,
            prefix: format!("{}{}->", self.prefix, pointer.field.name),
            is_scalar,
            fds: &pointer.fds,
            pointers: &pointer.pointers,
            plain: &pointer.plain,
            handles: &[],
        }
    }

    /// A field as a complaint names it.
    fn path(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }
}

/// The innermost union that a member is in.
#[derive(Clone)]
struct Union {
    /// `RECORD.field`, as the spec names it.
    key: String,
    /// The member of the union.
    member: String,
}

impl<'a> Linter<'a> {
    fn new(spec: &'a Spec, facts: &'a Facts) -> Self {
        Self { spec, facts, complaints: Vec::new() }
    }

    fn run(mut self) -> Vec<Complaint> {
        let spec = self.spec;
        for item in spec.items_at(&self.facts.tag) {
            self.item(item);
        }
        for named in &spec.extra_types {
            self.known_type(named);
        }
        self.choices();
        self.disputed();
        self.complaints
    }

    /// What is disputed are fields of calls that the spec has, at whatever tag.
    fn disputed(&mut self) {
        let spec = self.spec;
        for call in spec.disputed.iter().map(|disputed| &disputed.call) {
            if !spec.items.iter().any(|item| item.name == call.name) {
                let near = nearest(&call.name, spec.items.iter().map(|item| item.name.as_str()));
                let message = format!("the spec has no call `{}`", call.name);
                let near = near.map(|near| format!("did you mean `{near}`?"));
                self.complain("lint-unknown-item", message, &call.place, None, near);
            }
        }
    }

    fn surfaces(&self) -> impl Iterator<Item = &'a Surface> + use<'a> {
        let (spec, facts) = (self.spec, self.facts);
        spec.surfaces.iter().filter_map(|surface| facts.surfaces.get(&surface.name))
    }

    fn item(&mut self, item: &Item) {
        self.number(item);
        if item.params.is_empty() && !item.parameterless {
            self.complain(
                "lint-no-parameters",
                format!("`{}` has no parameters", item.name),
                &item.place,
                None,
                Some(
                    "give `params`, or say `parameterless = true` when the driver takes none"
                        .into(),
                ),
            );
        }
        let mut leaves = Vec::new();
        for named in &item.params {
            if self.known_type(named) {
                if let Some((surface, name, record)) = self.record(&named.name) {
                    self.leaves(surface, (name, record), ("", None), &mut leaves);
                }
            }
        }
        if item.kind == ItemKind::Ioctl {
            self.request(item);
        }
        let scope = Scope {
            item,
            prefix: String::new(),
            is_scalar: item.params.iter().all(|ty| self.record(&ty.name).is_none()),
            fds: &item.fds,
            pointers: &item.pointers,
            plain: &item.plain,
            handles: &item.handles,
        };
        for (fd, _) in item.opens.iter().chain(&item.files) {
            self.path(&scope, fd, &leaves);
            if !item.fds.iter().any(|known| known.name == fd.name) {
                let message = format!("`{}` of {} is not among its `fds`", fd.name, item.name);
                self.complain("lint-unknown-fd", message, &fd.place, None, None);
            }
        }
        let disputed = self.spec.disputed.iter().filter(|of| of.call.name == item.name);
        disputed.for_each(|of| self.path(&scope, &of.field, &leaves));
        self.fields(&scope, &leaves);
        self.against_driver(item, &leaves);
    }

    /// What is said of some fields, and of those that their pointers lead to.
    fn fields(&mut self, scope: &Scope<'_>, leaves: &[Leaf]) {
        self.roles(scope, leaves);
        self.lookalikes(scope, leaves);
        self.unions(scope, leaves);
        for pointer in scope.pointers.iter().filter(|pointer| !pointer.opaque) {
            let Some(of) = &pointer.of else { continue };
            let mut behind = Vec::new();
            let found = self.record(&of.name);
            match found {
                Some((surface, name, record)) => {
                    self.leaves(surface, (name, record), ("", None), &mut behind);
                }
                None => behind.push(Leaf::element(pointer, &of.name)),
            }
            self.fields(&scope.behind(pointer, found.is_none()), &behind);
        }
    }

    /// A request says how long its parameters are, and is made on a node.
    fn request(&mut self, item: &Item) {
        if item.node.is_none() && !self.spec.nodes.is_empty() {
            let message = format!("`{}` does not say what it is made on", item.name);
            let nodes: Vec<&str> = self.spec.nodes.iter().map(|node| node.name.as_str()).collect();
            let help = format!("give `node`: {}", nodes.join(", "));
            self.complain("lint-no-node", message, &item.place, None, Some(help));
        }
        let value = self.surfaces().find_map(|s| Some(s.constants.get(&item.name)?.value));
        let Some(value) = value.or(item.number.map(i128::from)) else { return };
        let size = request_size(value as u64);
        let sizes: Vec<u64> = item.params.iter().filter_map(|ty| self.size(&ty.name)).collect();
        let expected = if item.params.is_empty() { size == 0 } else { sizes.contains(&size) };
        if !expected {
            let expected = match (item.params.as_slice(), sizes.as_slice()) {
                ([only, ..], [own, ..]) => format!("`{}` has {own}", only.name),
                _ => "the spec names none".to_owned(),
            };
            self.complain(
                "lint-request-size",
                format!("`{}` takes {size} bytes of parameters, but {expected}", item.name),
                &item.place,
                None,
                None,
            );
        }
    }

    fn size(&self, name: &str) -> Option<u64> {
        let known = self.surfaces().find_map(|surface| {
            let record = surface.records.get(name).map(|record| record.size);
            record.or_else(|| Some(surface.aliases.get(name)?.size))
        });
        known.or_else(|| Some(builtin(name)?.1))
    }

    fn number(&mut self, item: &Item) {
        let found = self.surfaces().any(|surface| has_constant(surface, &item.name));
        if found || item.number.is_some() {
            return;
        }
        let names: BTreeSet<&str> =
            self.surfaces().flat_map(|s| s.constants.keys().map(String::as_str)).collect();
        let near = nearest(&item.name, names).map(|near| format!("did you mean `{near}`?"));
        self.complain(
            "lint-unknown-item",
            format!("the driver has no constant `{}`", item.name),
            &item.place,
            None,
            near.or(Some("give `since` or `until`, or its `number`".into())),
        );
    }

    fn known_type(&mut self, named: &Named) -> bool {
        let known = self.surfaces().any(|surface| has_type(surface, &named.name));
        if !known && builtin(&named.name).is_none() {
            let names: BTreeSet<&str> = self
                .surfaces()
                .flat_map(|s| s.records.keys().chain(s.aliases.keys()).map(String::as_str))
                .collect();
            let near = nearest(&named.name, names).map(|near| format!("did you mean `{near}`?"));
            self.complain(
                "lint-unknown-type",
                format!("the driver has no type `{}`", named.name),
                &named.place,
                None,
                near,
            );
        }
        known
    }

    /// A record by name or through a typedef.
    fn record(&self, name: &str) -> Option<(&'a Surface, &'a str, &'a Record)> {
        self.surfaces().find_map(|surface| {
            let name = surface.aliases.get(name).map_or(name, |alias| alias.ty.as_str());
            let (name, record) = surface.records.get_key_value(name)?;
            Some((surface, name.as_str(), record))
        })
    }

    fn leaves(
        &self,
        surface: &'a Surface,
        (name, record): (&str, &'a Record),
        (prefix, outer): (&str, Option<&Union>),
        leaves: &mut Vec<Leaf>,
    ) {
        for field in record.fields.iter() {
            let path = match (prefix, field.name.as_str()) {
                ("", name) => name.to_owned(),
                (prefix, "") => prefix.to_owned(),
                (prefix, name) => format!("{prefix}.{name}"),
            };
            // Inside of a union each field is one of its members.
            let own = outer.filter(|union| union.member.is_empty());
            let own = own.map(|union| Union { member: field.name.clone(), ..union.clone() });
            let union = own.as_ref().or(outer);
            let base = split_array(&field.canonical).0;
            match surface.records.get(base) {
                Some(inner) if base != name => {
                    let is_union = inner.kind == RecordKind::Union;
                    let key = || format!("{name}.{}", field.name);
                    let entered = is_union.then(|| Union { key: key(), member: String::new() });
                    let union = entered.as_ref().or(union);
                    self.leaves(surface, (base, inner), (&path, union), leaves);
                }
                _ => leaves.push(Leaf {
                    path,
                    name: field.name.clone(),
                    declared: field.ty.clone(),
                    canonical: field.canonical.clone(),
                    source: Some(record.source.to_string()),
                    union: union.cloned(),
                }),
            }
        }
    }

    /// Paths lead to fields; lengths, calls and element types exist.
    fn roles(&mut self, scope: &Scope<'_>, leaves: &[Leaf]) {
        let handles = scope.handles.iter().map(|(field, _)| field);
        for field in scope.fds.iter().chain(handles).chain(scope.plain) {
            self.path(scope, field, leaves);
        }
        for pointer in scope.pointers {
            self.path(scope, &pointer.field, leaves);
            self.followed(scope, pointer);
            if let Some(of) = &pointer.of {
                self.known_type(of);
            }
            let lengths = [&pointer.len, &pointer.filled].into_iter().flatten();
            for text in lengths.chain(pointer.call.as_ref().map(|(_, by)| by)) {
                for term in text.split(['*', '+']).map(str::trim) {
                    self.term(scope, pointer, term, leaves);
                }
            }
        }
    }

    /// How much is behind a pointer, and which way it is copied, is known of each that the driver follows,
    /// where its calls are carried: a driver that tells nothing of handles has none of those.
    fn followed(&mut self, scope: &Scope<'_>, pointer: &Pointer) {
        if pointer.opaque || self.spec.handles.is_empty() {
            return;
        }
        let (name, field) = (&scope.item.name, &pointer.field);
        let path = scope.path(&field.name);
        let mut missing = |what: &str, help: &str| {
            let message = format!("`{name}`: no role says {what} `{path}`");
            self.complain("lint-pointer-role", message, &field.place, None, Some(help.to_owned()));
        };
        if pointer.len.is_none() && pointer.call.is_none() {
            missing("the length of what is behind", "give `len`, `frontend`, `control` or `class`");
        }
        if pointer.dir.is_none() {
            missing("which way to copy what is behind", "give `dir`: in, out or inout");
        }
    }

    /// A part of a length is a number, a field or a constant.
    fn term(&mut self, scope: &Scope<'_>, pointer: &Pointer, term: &str, leaves: &[Leaf]) {
        let known = term.parse::<u64>().is_ok()
            || leaves.iter().any(|leaf| leaf.path == plain(term))
            || self.surfaces().any(|surface| has_constant(surface, term));
        if !known {
            self.complain(
                "lint-unknown-length",
                format!("`{}`: `{term}` is neither a field nor a constant", scope.item.name),
                &pointer.field.place,
                None,
                None,
            );
        }
    }

    fn path(&mut self, scope: &Scope<'_>, named: &Named, leaves: &[Leaf]) {
        let (item, wanted) = (scope.item, plain(&named.name));
        // What is no record is its only field.
        let whole = named.name == "." && scope.is_scalar;
        if leaves.iter().any(|leaf| leaf.path == wanted) || item.params.is_empty() || whole {
            return;
        }
        let near = nearest(&wanted, leaves.iter().map(|leaf| leaf.path.as_str()));
        self.complain(
            "lint-unknown-field",
            format!("`{}` has no field `{}`", item.name, scope.path(&named.name)),
            &named.place,
            None,
            near.map(|near| format!("did you mean `{near}`?")),
        );
    }

    fn complain(
        &mut self,
        code: &'static str,
        message: String,
        place: &SpecPlace,
        source: Option<String>,
        help: Option<String>,
    ) {
        self.complaints.push(Complaint { code, message, place: place.clone(), source, help });
    }
}

/// A path without its array marks: `a[].b` is `a.b`.
fn plain(path: &str) -> String {
    path.replace("[]", "")
}

fn has_constant(surface: &Surface, name: &str) -> bool {
    surface.constants.contains_key(name)
        || surface.enums.values().any(|e| e.variants.contains_key(name))
}

fn has_type(surface: &Surface, name: &str) -> bool {
    surface.records.contains_key(name)
        || surface.aliases.contains_key(name)
        || surface.enums.contains_key(name)
}
