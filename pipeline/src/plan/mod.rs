//! What to emit, as plain data: definitions, constants and calls, each with the views it is in.
//!
//! A *view* is what one or more tags of a driver have in common: all definitions, constants and
//! calls.
//! A definition is shared by every view in which it, and all it is made of, is the same.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

pub mod members;
pub mod roles;
pub mod types;

use self::roles::Roles;
use crate::diagnostic::{Diagnostic, Report};
use crate::globs::Globs;
use crate::lock::{Fact, History, ItemKind, Lock, Placed, State, state_at};
use crate::model::{builtin, split_array};
use crate::spec::{self, Item, Spec};
use crate::tag::Tag;

/// Index into [`Plan::defs`].
pub type DefId = usize;

/// A type to emit.
#[derive(Debug)]
pub struct Def {
    /// The driver's name.
    pub name: String,
    /// The Rust name: the driver's, unless two surfaces use one name for two layouts.
    pub ident: String,
    /// A record, an enum or a typedef.
    pub fact: Arc<Fact>,
    /// The definitions that its canonical types name.
    pub uses: BTreeMap<String, DefId>,
    /// Where the first tag that has it defines it.
    pub place: DefinedAt,
    /// Where the first tag of each further branch does.
    pub branches: Vec<DefinedAt>,
    /// Indices into [`Plan::views`].
    pub views: BTreeSet<usize>,
    /// The specs name it themselves.
    pub named: bool,
    /// The module in `layouts` that it stands in.
    pub module: String,
}

/// Where a definition stands, at the first tag that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinedAt {
    /// `path:line`.
    pub source: String,
    /// The tag.
    pub since: Tag,
}

impl DefinedAt {
    fn new(path: &str, line: u32, since: &Tag) -> Self {
        // At its length at once: there are as many as there are constants.
        let mut source = String::with_capacity(path.len() + ":123456".len());
        let _ = write!(source, "{path}:{line}");
        Self { source, since: since.clone() }
    }
}

/// A constant to emit.
#[derive(Debug)]
pub struct Const {
    /// The driver's name.
    pub name: String,
    /// An integer or a bit range.
    pub fact: Fact,
    /// Where the first tag that has it defines it.
    pub place: DefinedAt,
    /// The spec asks for it.
    pub documented: bool,
    /// The one of the same name, with another value, that was there before.
    before: Option<usize>,
    /// Indices into [`Plan::views`]; most constants share those of all tags.
    pub views: Arc<BTreeSet<usize>>,
}

/// A call to emit.
#[derive(Debug)]
pub struct Call<'s> {
    /// What the spec says of it.
    pub item: &'s Item,
    /// Its number.
    pub number: i128,
    /// The parameter types: the driver's name and what it is.
    pub params: Vec<(String, Param)>,
    /// What its pointers point to, where that is emitted; those in elements after their own.
    targets: Vec<Option<DefId>>,
    /// Which of its fields are file descriptors, pointers and handles.
    pub roles: Roles,
    /// Indices into [`Plan::views`].
    pub views: BTreeSet<usize>,
}

/// A parameter's type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Param {
    /// A definition.
    Def(DefId),
    /// A typedef of a type that is no record.
    Scalar {
        /// Typedefs resolved.
        canonical: String,
        /// Bytes.
        size: u64,
    },
}

/// Tags of one driver with the same definitions, constants and calls.
#[derive(Debug)]
pub struct View {
    /// Names the view.
    pub first: Tag,
}

impl View {
    /// The name of its module.
    pub fn module(&self) -> String {
        format!("v{}", self.first.ident())
    }
}

/// One driver and which view each of its tags has.
#[derive(Debug)]
pub struct Driver {
    /// `550`.
    pub name: String,
    /// `driver-550`.
    pub feature: String,
    /// Its tags in order, each with its index into [`Plan::views`].
    pub tags: Vec<(Tag, usize)>,
}

/// Everything to emit.
#[derive(Debug, Default)]
pub struct Plan<'s> {
    /// Types; each comes after those that it is made of.
    pub defs: Vec<Def>,
    /// Constants.
    pub constants: Vec<Const>,
    /// Calls.
    pub calls: Vec<Call<'s>>,
    /// Views.
    pub views: Vec<View>,
    /// Drivers, in the order of their specs.
    pub drivers: Vec<Driver>,
}

impl Plan<'_> {
    /// The branch and the tags of a view.
    pub fn tags(&self, view: usize) -> (&str, Vec<&str>) {
        let mut tags = Vec::new();
        let mut branch = "";
        for driver in &self.drivers {
            for (tag, _) in driver.tags.iter().filter(|(_, of)| *of == view) {
                branch = &driver.name;
                tags.push(tag.as_str());
            }
        }
        (branch, tags)
    }
}

/// Plans the emission of the specs' closures, or of everything.
pub fn plan<'s>(lock: &Lock, specs: &'s [&'s Spec], full: bool) -> Result<Plan<'s>, Report> {
    let mut planner = Planner::new(lock);
    for spec in specs {
        planner.driver(spec, full);
    }
    planner.report.into_result(planner.plan).map(|(plan, _)| plan)
}

/// Where the items of the lock are. Nearly all are constants of one header, and a list for each would cost more than
/// all else that is done with them.
#[derive(Default)]
struct Index<'l> {
    first: FxHashMap<ItemKey<'l>, Place<'l>>,
    /// Those of further headers that ever had the item.
    further: FxHashMap<ItemKey<'l>, Vec<Place<'l>>>,
}

/// Surface, kind and name.
type ItemKey<'l> = (&'l str, ItemKind, &'l str);

/// A header, and the item's history in it.
type Place<'l> = (&'l str, &'l History);

impl<'l> Index<'l> {
    fn new(lock: &'l Lock) -> Self {
        let count = lock.headers.values().map(|header| header.items.len()).sum();
        let mut index = Self::default();
        // A table that grows moves what it holds again and again.
        index.first.reserve(count);
        for ((surface, path), header) in &lock.headers {
            for ((kind, name), history) in &header.items {
                let place = (path.as_str(), history);
                match index.first.entry((surface, *kind, name)) {
                    Entry::Vacant(entry) => _ = entry.insert(place),
                    Entry::Occupied(entry) => {
                        index.further.entry(*entry.key()).or_default().push(place);
                    }
                }
            }
        }
        index
    }

    fn places<'a>(&'a self, key: &'a ItemKey<'a>) -> impl Iterator<Item = Place<'l>> {
        let further = self.further.get(key).into_iter().flatten();
        self.first.get(key).into_iter().chain(further).copied()
    }
}

struct Planner<'l, 's> {
    lock: &'l Lock,
    index: Index<'l>,
    plan: Plan<'s>,
    by_name: FxHashMap<String, Vec<DefId>>,
    /// The newest constant of each name.
    constants: FxHashMap<&'l str, usize>,
    calls: FxHashMap<(spec::ItemKind, &'s str), Vec<usize>>,
    seen: FxHashMap<Content, usize>,
    no_views: Arc<BTreeSet<usize>>,
    report: Report,
}

/// What a view is made of; equal content, same view.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
struct Content {
    defs: BTreeSet<DefId>,
    constants: BTreeSet<usize>,
    calls: BTreeSet<usize>,
}

/// One tag while its items are collected.
struct TagPlan<'a> {
    spec: &'a Spec,
    tag: usize,
    content: Content,
    /// By surface and name; `None` while it is being looked at, or where it does not exist.
    known: FxHashMap<(usize, String), Option<DefId>>,
    names: FxHashMap<String, DefId>,
}

impl<'l, 's> Planner<'l, 's> {
    fn new(lock: &'l Lock) -> Self {
        Self {
            lock,
            index: Index::new(lock),
            plan: Plan::default(),
            by_name: FxHashMap::default(),
            constants: FxHashMap::default(),
            calls: FxHashMap::default(),
            seen: FxHashMap::default(),
            no_views: Arc::default(),
            report: Report::default(),
        }
    }

    fn driver(&mut self, spec: &'s Spec, full: bool) {
        let tags: Vec<usize> = (0..self.lock.tags.len())
            .filter(|i| self.lock.tags[*i].tag.branch() == spec.driver)
            .collect();
        let changing = self.changing_tags(spec);
        let constants = match (tags.first(), tags.last()) {
            (Some(first), Some(last)) => self.sort_constants(spec, *first, *last, full),
            _ => Constants::default(),
        };
        let mut driver =
            Driver { name: spec.driver.clone(), feature: spec.name.clone(), tags: Vec::new() };
        for (i, tag) in tags.iter().enumerate() {
            let view = match driver.tags.last() {
                Some((_, view)) if i > 0 && !changing.contains(tag) => *view,
                _ => self.view(spec, *tag, full, &constants),
            };
            driver.tags.push((self.lock.tags[*tag].tag.clone(), view));
        }
        if driver.tags.is_empty() {
            self.report.push(
                Diagnostic::error(
                    "lock-no-tag",
                    format!("the lock has no tag of driver {}", spec.driver),
                )
                .at(spec.place())
                .help("`nvabi lock TAG` adds one"),
            );
        }
        // Another driver can have these definitions and calls with other constants.
        self.seen.clear();
        let all: Arc<BTreeSet<usize>> = Arc::new(driver.tags.iter().map(|(_, v)| *v).collect());
        for id in constants.stable {
            let views = &mut self.plan.constants[id].views;
            match views.is_empty() {
                true => *views = all.clone(),
                false => Arc::make_mut(views).extend(all.iter()),
            }
        }
        self.plan.drivers.push(driver);
    }

    /// Reads through the constants of a driver once: most never change in its tags, and need not
    /// be looked at again for each view.
    fn sort_constants(
        &mut self,
        spec: &'s Spec,
        first: usize,
        last: usize,
        full: bool,
    ) -> Constants<'l> {
        let lock = self.lock;
        let globs = Globs::new(spec.constants.iter().map(|c| c.name.as_str()));
        let numbers: FxHashSet<&str> = (spec.items.iter())
            .filter(|item| item.roles_known)
            .map(|item| item.name.as_str())
            .collect();
        let asked = |name: &str| numbers.contains(name) || globs.matches(name);
        let wanted = |name: &str| full || asked(name);
        let mut constants = Constants::default();
        let mut taken: FxHashSet<&str> = FxHashSet::default();
        for surface in &spec.surfaces {
            let range = (surface.name.clone(), String::new())..;
            let headers = lock.headers.range(range).take_while(|((s, _), _)| *s == surface.name);
            for ((_, path), header) in headers {
                for ((kind, name), history) in &header.items {
                    let stable = changes(history).all(|from| from <= first || from > last);
                    match kind {
                        ItemKind::Enum => constants.enums.push((path, name, history)),
                        ItemKind::Constant if !wanted(name) => {}
                        ItemKind::Constant if stable => {
                            // One that has gone from here may be in another header by now.
                            let placed = state_at(history, first);
                            if let Some(placed) = placed.filter(|_| taken.insert(name)) {
                                let id =
                                    self.constant(name, &placed.fact, path, placed.line, first);
                                self.plan.constants[id].documented = !full || asked(name);
                                constants.stable.push(id);
                            }
                        }
                        ItemKind::Constant => constants.changing.push((path, name, history)),
                        _ => {}
                    }
                }
            }
        }
        constants.wanted_enumerators = (constants.enums.iter())
            .flat_map(|(_, _, history)| history.iter().filter_map(|s| s.value.as_ref()))
            .filter_map(|placed| match &*placed.fact {
                Fact::Enum { variants, .. } => Some(variants.keys().map(String::as_str)),
                _ => None,
            })
            .flatten()
            .filter(|name| wanted(name))
            .collect();
        constants.stable_names = taken;
        constants
    }

    /// Tags at which any fact of the lock, or any item of the spec, changes.
    fn changing_tags(&self, spec: &Spec) -> BTreeSet<usize> {
        let histories = self.lock.headers.values().flat_map(|h| h.items.values());
        let mut tags: BTreeSet<usize> = histories.flat_map(changes).collect();
        let bounds = spec.items.iter().flat_map(|item| [&item.since, &item.until]);
        for tag in bounds.flatten() {
            tags.insert(self.lock.tags.partition_point(|t| t.tag < *tag));
        }
        tags
    }

    fn view(&mut self, spec: &'s Spec, tag: usize, full: bool, constants: &Constants<'l>) -> usize {
        let mut look = TagPlan {
            spec,
            tag,
            content: Content::default(),
            known: FxHashMap::default(),
            names: FxHashMap::default(),
        };
        let at = self.lock.tags[tag].tag.clone();
        for item in spec.items.iter().filter(|item| item.holds_at(&at)) {
            self.call(&mut look, item);
        }
        for named in &spec.extra_types {
            let extra = self.param(&mut look, named);
            self.named(extra.as_ref());
        }
        if full {
            self.everything(&mut look);
        }
        self.constants(&mut look, constants);
        let content = look.content;
        if let Some(view) = self.seen.get(&content) {
            return *view;
        }
        let view = self.plan.views.len();
        content.defs.iter().for_each(|id| _ = self.plan.defs[*id].views.insert(view));
        for id in &content.constants {
            Arc::make_mut(&mut self.plan.constants[*id].views).insert(view);
        }
        content.calls.iter().for_each(|id| _ = self.plan.calls[*id].views.insert(view));
        self.plan.views.push(View { first: at });
        self.seen.insert(content, view);
        view
    }

    /// The fact that holds for a name in a surface at a tag, with the header's path.
    fn at(
        &self,
        surface: &str,
        kind: ItemKind,
        name: &str,
        tag: usize,
    ) -> Option<(&'l str, &'l Placed)> {
        let key = (surface, kind, name);
        self.index.places(&key).find_map(|(path, history)| Some((path, state_at(history, tag)?)))
    }

    /// The definition of a type's name in a surface, made when it is new.
    fn def(&mut self, look: &mut TagPlan<'_>, surface: usize, name: &str) -> Option<DefId> {
        if let Some(known) = look.known.get(&(surface, name.to_owned())) {
            return *known;
        }
        look.known.insert((surface, name.to_owned()), None);
        let surface_name = look.spec.surfaces[surface].name.as_str();
        let (path, placed) = self
            .at(surface_name, ItemKind::Record, name, look.tag)
            .or_else(|| self.at(surface_name, ItemKind::Enum, name, look.tag))
            .or_else(|| self.at(surface_name, ItemKind::Alias, name, look.tag))?;
        let mut uses = BTreeMap::new();
        let bases: Vec<&str> = match &*placed.fact {
            Fact::Record { fields, .. } => {
                fields.iter().map(|f| split_array(&f.canonical).0).collect()
            }
            Fact::Alias { ty, .. } => vec![split_array(ty).0],
            _ => Vec::new(),
        };
        for base in bases {
            if !uses.contains_key(base) {
                if let Some(id) = self.def(look, surface, base) {
                    uses.insert(base.to_owned(), id);
                }
            }
        }
        // A typedef of a builtin type is not a definition of its own.
        if matches!(&*placed.fact, Fact::Alias { .. }) && uses.is_empty() {
            return None;
        }
        let id = self.intern(look, name, surface_name, path, placed, uses);
        look.known.insert((surface, name.to_owned()), Some(id));
        look.content.defs.insert(id);
        Some(id)
    }

    fn intern(
        &mut self,
        look: &mut TagPlan<'_>,
        name: &str,
        surface: &str,
        path: &str,
        placed: &Placed,
        uses: BTreeMap<String, DefId>,
    ) -> DefId {
        let candidates = self.by_name.entry(name.to_owned()).or_default();
        let same = |id: &&DefId| {
            let def = &self.plan.defs[**id];
            (Arc::ptr_eq(&def.fact, &placed.fact) || def.fact == placed.fact) && def.uses == uses
        };
        let since = &self.lock.tags[look.tag].tag;
        let place = || DefinedAt::new(path, placed.line, since);
        let id = match candidates.iter().find(same) {
            Some(id) => {
                let Def { place: first, branches, .. } = &mut self.plan.defs[*id];
                let known = branches.last().unwrap_or(first);
                if known.since.branch() != since.branch() {
                    branches.push(place());
                }
                *id
            }
            None => {
                let id = self.plan.defs.len();
                candidates.push(id);
                self.plan.defs.push(Def {
                    name: name.to_owned(),
                    ident: name.replace("::", "_"),
                    fact: placed.fact.clone(),
                    uses,
                    place: place(),
                    branches: Vec::new(),
                    views: BTreeSet::new(),
                    named: false,
                    module: String::new(),
                });
                id
            }
        };
        let first = *look.names.entry(name.to_owned()).or_insert(id);
        if first != id {
            let ident = format!("{}_{surface}", name.replace("::", "_"));
            self.plan.defs[id].ident = ident;
        }
        id
    }

    fn call(&mut self, look: &mut TagPlan<'_>, item: &'s Item) {
        let params: Vec<(String, Param)> = (item.params.iter())
            .filter_map(|named| Some((named.name.clone(), self.param(look, named)?)))
            .collect();
        let mut targets: Vec<Option<DefId>> = Vec::new();
        self.targets(look, &item.pointers, &mut targets);
        if item.roles_known {
            params.iter().for_each(|(_, param)| self.named(Some(param)));
            targets.iter().flatten().for_each(|id| self.plan.defs[*id].named = true);
        }
        let Some(number) = self.number(look, item) else {
            let missing = format!("driver {} has no number `{}`", self.tag(look), item.name);
            self.complain(
                Diagnostic::error("spec-unknown-item", missing)
                    .at(item.place.place())
                    .help("give `since` or `until`, or its `number`"),
            );
            return;
        };
        let alike: Vec<usize> = (self.calls.get(&(item.kind, item.name.as_str())).into_iter())
            .flatten()
            .copied()
            .filter(|id| {
                let call = &self.plan.calls[*id];
                (call.number, &call.params, &call.targets) == (number, &params, &targets)
                    && says_the_same(call.item, item)
            })
            .collect();
        let fixed = alike.iter().find(|id| self.plan.calls[**id].roles.are_fixed);
        let id = fixed.copied().unwrap_or_else(|| {
            let roles = roles::resolve(self, look, item, &params, &targets);
            let same = alike.iter().find(|id| self.plan.calls[**id].roles == roles);
            same.copied().unwrap_or_else(|| {
                let views = BTreeSet::new();
                self.plan.calls.push(Call { item, number, params, targets, roles, views });
                let id = self.plan.calls.len() - 1;
                self.calls.entry((item.kind, &item.name)).or_default().push(id);
                id
            })
        });
        look.content.calls.insert(id);
    }

    /// A name that one tag lacks is mostly lacked by others too: the first of them is told.
    fn complain(&mut self, diagnostic: Diagnostic) {
        let same =
            |told: &Diagnostic| (told.code, &told.place) == (diagnostic.code, &diagnostic.place);
        if !self.report.diagnostics.iter().any(same) {
            self.report.push(diagnostic);
        }
    }

    fn tag(&self, look: &TagPlan<'_>) -> &Tag {
        &self.lock.tags[look.tag].tag
    }

    /// What each pointer leads to, and after it what those in its elements do.
    fn targets(
        &mut self,
        look: &mut TagPlan<'_>,
        pointers: &[spec::Pointer],
        found: &mut Vec<Option<DefId>>,
    ) {
        for pointer in pointers {
            let of = pointer.of.as_ref();
            found.push(of.and_then(|of| self.find(look, &of.name)));
            self.targets(look, &pointer.pointers, found);
        }
    }

    /// A type by its name; the first surface that has it decides.
    fn find(&mut self, look: &mut TagPlan<'_>, name: &str) -> Option<DefId> {
        (0..look.spec.surfaces.len()).find_map(|surface| self.def(look, surface, name))
    }

    /// Notes that a spec names a type itself.
    fn named(&mut self, param: Option<&Param>) {
        if let Some(Param::Def(id)) = param {
            self.plan.defs[*id].named = true;
        }
    }

    fn param(&mut self, look: &mut TagPlan<'_>, named: &spec::Named) -> Option<Param> {
        if let Some(id) = self.find(look, &named.name) {
            return Some(Param::Def(id));
        }
        let alias = look
            .spec
            .surfaces
            .iter()
            .find_map(|surface| self.at(&surface.name, ItemKind::Alias, &named.name, look.tag));
        if let Some((_, Placed { fact, .. })) = alias {
            if let Fact::Alias { ty, size } = &**fact {
                return Some(Param::Scalar { canonical: ty.clone(), size: *size });
            }
        }
        if let Some((canonical, size)) = builtin(&named.name) {
            return Some(Param::Scalar { canonical: canonical.to_owned(), size });
        }
        let missing = format!("driver {} has no type `{}`", self.tag(look), named.name);
        self.complain(
            Diagnostic::error("spec-unknown-type", missing)
                .at(named.place.place())
                .help("`nvabi lint` looks for near names"),
        );
        None
    }

    fn number(&self, look: &TagPlan<'_>, item: &Item) -> Option<i128> {
        self.value(look, &item.name).or(item.number.map(i128::from))
    }

    /// The value of a constant, or of an enumerator.
    fn value(&self, look: &TagPlan<'_>, name: &str) -> Option<i128> {
        let found = look.spec.surfaces.iter().find_map(|surface| {
            let (_, placed) = self.at(&surface.name, ItemKind::Constant, name, look.tag)?;
            match placed.fact.as_ref() {
                Fact::Constant(value) => Some(*value),
                _ => None,
            }
        });
        found.or_else(|| self.enumerator(look, name))
    }

    /// Bytes of a type.
    fn size(&self, look: &TagPlan<'_>, name: &str) -> Option<u64> {
        let size = |kind| {
            let surfaces = look.spec.surfaces.iter();
            let mut found = surfaces.filter_map(|s| self.at(&s.name, kind, name, look.tag));
            found.find_map(|(_, placed)| match *placed.fact {
                Fact::Record { size, .. } | Fact::Enum { size, .. } | Fact::Alias { size, .. } => {
                    Some(size)
                }
                _ => None,
            })
        };
        let kinds = [ItemKind::Record, ItemKind::Enum, ItemKind::Alias];
        kinds.into_iter().find_map(size).or_else(|| Some(builtin(name)?.1))
    }

    fn enumerator(&self, look: &TagPlan<'_>, name: &str) -> Option<i128> {
        let enums = self.index.first.keys().filter(|(_, kind, _)| *kind == ItemKind::Enum);
        enums.flat_map(|key| self.index.places(key)).find_map(|(_, history)| {
            match &*state_at(history, look.tag)?.fact {
                Fact::Enum { variants, .. } => variants.get(name).copied(),
                _ => None,
            }
        })
    }

    fn everything(&mut self, look: &mut TagPlan<'_>) {
        let keys: BTreeSet<(&str, &str)> = (self.index.first.keys())
            .filter(|(_, kind, _)| *kind != ItemKind::Constant)
            .map(|(surface, _, name)| (*surface, *name))
            .collect();
        for (surface, name) in keys {
            let position = look.spec.surfaces.iter().position(|s| s.name == surface);
            if let Some(surface) = position {
                self.def(look, surface, name);
            }
        }
    }

    /// The constants that differ from tag to tag, and the enumerators that are wanted or whose
    /// enum is emitted.
    fn constants(&mut self, look: &mut TagPlan<'_>, constants: &Constants<'l>) {
        let mut taken: FxHashSet<&'l str> =
            FxHashSet::with_capacity_and_hasher(constants.changing.len(), FxBuildHasher);
        let mut put =
            |this: &mut Self, look: &mut TagPlan<'_>, name: &'l str, fact: &Fact, path, line| {
                if !constants.stable_names.contains(name) && taken.insert(name) {
                    let id = this.constant(name, fact, path, line, look.tag);
                    look.content.constants.insert(id);
                }
            };
        for (path, name, history) in &constants.changing {
            if let Some(placed) = state_at(history, look.tag) {
                put(self, look, name, &placed.fact, path, placed.line);
            }
        }
        for (path, name, history) in &constants.enums {
            let Some(placed) = state_at(history, look.tag) else { continue };
            let Fact::Enum { variants, .. } = &*placed.fact else { continue };
            let emitted = look.names.contains_key(*name);
            for (variant, value) in variants {
                if emitted || constants.wanted_enumerators.contains(variant.as_str()) {
                    put(self, look, variant, &Fact::Constant(*value), path, placed.line);
                }
            }
        }
    }

    fn constant(&mut self, name: &'l str, fact: &Fact, path: &str, line: u32, tag: usize) -> usize {
        let newest = self.constants.get(name).copied();
        let before = |id: &usize| self.plan.constants[*id].before;
        let mut of_name = std::iter::successors(newest, before);
        if let Some(id) = of_name.find(|id| self.plan.constants[*id].fact == *fact) {
            return id;
        }
        let id = self.plan.constants.len();
        self.constants.insert(name, id);
        let since = &self.lock.tags[tag].tag;
        self.plan.constants.push(Const {
            name: name.to_owned(),
            fact: fact.clone(),
            place: DefinedAt::new(path, line, since),
            documented: true,
            before: newest,
            views: self.no_views.clone(),
        });
        id
    }
}

/// The tags at which an item appears, goes, or becomes another: not those where its line moves.
fn changes(history: &History) -> impl Iterator<Item = usize> + '_ {
    let mut before = None;
    history.iter().filter_map(move |State { from, value }| {
        let fact = Some(value.as_ref().map(|placed| &placed.fact));
        let is_other = fact != before;
        before = fact;
        is_other.then_some(*from)
    })
}

/// Whether two specs say the same of a call: a child repeats what it inherits from its parent.
fn says_the_same(a: &Item, b: &Item) -> bool {
    fn point_alike(a: &[spec::Pointer], b: &[spec::Pointer]) -> bool {
        let name = |of: &Option<spec::Named>| of.as_ref().map(|of| of.name.clone());
        let alike = |(a, b): (&spec::Pointer, &spec::Pointer)| {
            a.field.name == b.field.name
                && (&a.len, &a.filled, &a.call) == (&b.len, &b.filled, &b.call)
                && (a.dir, a.opaque, name(&a.of)) == (b.dir, b.opaque, name(&b.of))
                && a.fds.iter().map(|fd| &fd.name).eq(b.fds.iter().map(|fd| &fd.name))
                && point_alike(&a.pointers, &b.pointers)
        };
        a.len() == b.len() && a.iter().zip(b).all(alike)
    }
    let handles = |item: &Item| {
        let named = item.handles.iter().map(|(field, means)| (field.name.clone(), *means));
        named.collect::<Vec<_>>()
    };
    let names = |named: &[spec::Named]| named.iter().map(|n| n.name.clone()).collect::<Vec<_>>();
    fn nodes(fds: &[(spec::Named, spec::Named)]) -> impl Iterator<Item = (&str, &str)> {
        fds.iter().map(|(fd, node)| (fd.name.as_str(), node.name.as_str()))
    }
    std::ptr::eq(a, b)
        || a.array == b.array
            && a.roles_known == b.roles_known
            && a.caps == b.caps
            && a.note == b.note
            && names(&a.params) == names(&b.params)
            && names(&a.fds) == names(&b.fds)
            && a.node.as_ref().map(|n| &n.name) == b.node.as_ref().map(|n| &n.name)
            && nodes(&a.opens).eq(nodes(&b.opens))
            && nodes(&a.files).eq(nodes(&b.files))
            && handles(a) == handles(b)
            && point_alike(&a.pointers, &b.pointers)
}

/// The constants of one driver.
#[derive(Default)]
struct Constants<'l> {
    /// Those that are the same at each of its tags.
    stable: Vec<usize>,
    stable_names: FxHashSet<&'l str>,
    /// Header, name and history of the others.
    changing: Vec<(&'l str, &'l str, &'l History)>,
    enums: Vec<(&'l str, &'l str, &'l History)>,
    /// The enumerators that the spec names.
    wanted_enumerators: FxHashSet<&'l str>,
}
