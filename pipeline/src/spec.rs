//! Specs: what people say about a driver, in TOML.
//!
//! A spec says where the headers are, how they are parsed, and which calls there are with which
//! parameters and roles. It never says what a layout is: that is the lock's, and the driver's.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::diagnostic::{Diagnostic, Report, SourceSpan, nearest};
use crate::parallel;
use crate::tag::{self, Tag};
use crate::text_folder::TextFolder;

/// A spec with what it inherits already filled in.
#[derive(Debug, Clone)]
pub struct Spec {
    /// `driver-550`: the file's stem, and the feature that turns it on.
    pub name: String,
    /// `550`: tags whose first component this is belong to the spec.
    pub driver: String,
    /// The repositories of a driver that has several, by the name that surfaces know them by.
    pub trees: BTreeMap<String, String>,
    /// What those repositories call each tag: by tree, the name of a tag or a branch.
    pub tags: BTreeMap<Tag, BTreeMap<String, String>>,
    /// The device files and what else ioctls are made on, by name.
    pub nodes: Vec<Node>,
    /// Where upstream publishes the headers.
    pub repository: Option<String>,
    /// Machines that the facts are recorded for; the first is the one that decides.
    pub targets: Vec<String>,
    /// Translation units, in the order of the file: the first wins where two name a type alike.
    pub surfaces: Vec<Surface>,
    /// Calls, by kind and then by name.
    pub items: Vec<Item>,
    /// What stands for the resource manager's classes and commands, where there is none.
    pub substitutes: Vec<Substitute>,
    /// What fields that name objects name, by the name of the field.
    pub handles: BTreeMap<String, HandleMeaning>,
    /// Which member of a union holds, by `RECORD.field`.
    pub unions: BTreeMap<String, Choice>,
    /// Fields that another project takes for something else.
    pub disputed: Vec<Disputed>,
    /// Records to emit that no item names.
    pub extra_types: Vec<Named>,
    /// Globs over the names of constants to emit.
    pub constants: Vec<Named>,
    /// Those of them that are what a call says came of it.
    pub statuses: Vec<Named>,
    file: File,
}

/// A name in a spec, with its place.
#[derive(Debug, Clone)]
pub struct Named {
    /// The name.
    pub name: String,
    /// Where it stands.
    pub place: SpecPlace,
}

/// A span in one of the spec files.
#[derive(Debug, Clone)]
pub struct SpecPlace {
    file: File,
    span: Range<usize>,
}

impl SpecPlace {
    /// For a diagnostic.
    pub fn place(&self) -> SourceSpan {
        SourceSpan {
            path: self.file.path.to_string(),
            text: self.file.text.clone(),
            span: self.span.clone(),
        }
    }
}

#[derive(Debug, Clone)]
struct File {
    path: Arc<str>,
    text: Arc<str>,
}

/// One translation unit over the driver's headers.
#[derive(Debug, Clone)]
pub struct Surface {
    /// `rm`, `uvm`, `modeset`, `drm`, `rm-classes`, `uvm-methods`, `fault-CHIP`.
    pub name: String,
    /// Where it is declared.
    pub place: SpecPlace,
    /// Which of the driver's trees it lies in, where there are several.
    pub tree: Option<Named>,
    /// Globs of the headers it includes; `*` does not cross a slash.
    pub headers: Vec<Named>,
    /// Globs of the driver's sources that say what calls take.
    pub calls: Vec<Named>,
    /// Globs of headers among them to leave out.
    pub exclude: Vec<String>,
    /// Folders to search for includes.
    pub include: Vec<String>,
    /// `NAME` or `NAME=value`.
    pub defines: Vec<String>,
    /// C text before the first include.
    pub prelude: String,
    /// Globs of headers in the tree whose names are not recorded.
    pub system: Vec<String>,
    /// `c` or `c++`.
    pub language: String,
    /// What the names of its constants end in here, after `_`: surfaces for several chips have one name with several
    /// values.
    pub suffix: Option<String>,
}

impl Surface {
    fn empty(name: &str, place: SpecPlace) -> Self {
        Self {
            name: name.to_owned(),
            place,
            tree: None,
            headers: Vec::new(),
            calls: Vec::new(),
            exclude: Vec::new(),
            include: Vec::new(),
            defines: Vec::new(),
            prelude: String::new(),
            system: Vec::new(),
            language: "c".to_owned(),
            suffix: None,
        }
    }
}

/// One tree of one tag, as a spec names it.
#[derive(Debug, Clone, Copy)]
pub struct Reference<'a> {
    /// The driver's version.
    pub tag: &'a Tag,
    /// Which of its trees, where it has several.
    pub tree: Option<&'a str>,
    /// What a repository calls it: a tag, or a branch.
    pub name: &'a str,
}

impl<'a> Reference<'a> {
    /// The only tree of a tag, in a repository that calls it by its version.
    pub fn whole(tag: &'a Tag) -> Self {
        Self { tag, tree: None, name: tag.as_str() }
    }
}

/// Something that ioctls are made on: a device file, or an object whose fd an ioctl returns.
#[derive(Debug, Clone)]
pub struct Node {
    /// Such as `ctrl`.
    pub name: String,
    /// Globs of the device files; none when only ioctls return such fds.
    pub paths: Vec<String>,
    /// What it is, for a person.
    pub note: Option<String>,
    /// Where it stands.
    pub place: SpecPlace,
}

/// What a driver without a resource manager has in the place of one of its classes or commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Substitute {
    /// The x86 driver's name.
    pub name: String,
    /// Its number.
    pub number: u32,
    /// What is done instead.
    pub action: SubstituteAction,
}

/// What is done in the place of a class or a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubstituteAction {
    /// In the place of allocating a class.
    Alloc(AllocAction),
    /// In the place of a control command.
    Control(ControlAction),
}

/// What is done in the place of allocating a class, as the specs name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AllocAction {
    /// Nothing: it holds what is below it.
    Container,
    /// An address space.
    AddressSpace,
    /// A channel group.
    Group,
    /// A subcontext of a group.
    Subcontext,
    /// A channel.
    Channel,
    /// Compute on a channel.
    Compute,
    /// Copies on a channel.
    Copy,
}

/// What is done in the place of a control command, as the specs name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlAction {
    /// Nothing.
    Nothing,
    /// The GPU's clock is raised, or let go.
    Boost,
    /// The work submit token of a channel.
    Token,
    /// Figures of the graphics engine.
    GrInfo,
    /// The list of classes.
    ClassList,
    /// The GPU's UUID.
    Uuid,
}

impl SubstituteAction {
    /// Which table its class or command is of.
    pub fn kind(self) -> ItemKind {
        match self {
            Self::Alloc(_) => ItemKind::Class,
            Self::Control(_) => ItemKind::Control,
        }
    }
}

/// Which table of the driver an item belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ItemKind {
    /// An ioctl of `/dev/nvidiactl` and `/dev/nvidia*`.
    Frontend,
    /// An ioctl of `/dev/nvidia-uvm`.
    Uvm,
    /// A command of `NV_ESC_RM_CONTROL`.
    Control,
    /// A class of `NV_ESC_RM_ALLOC`.
    Class,
    /// An ioctl of another driver, whose constant is the whole request.
    Ioctl,
}

impl ItemKind {
    /// Every kind, in the order of the spec's sections.
    pub const ALL: [Self; 5] = [Self::Frontend, Self::Uvm, Self::Control, Self::Class, Self::Ioctl];

    /// The section of the spec.
    pub fn section(self) -> &'static str {
        match self {
            Self::Frontend => "frontend",
            Self::Uvm => "uvm",
            Self::Control => "control",
            Self::Class => "class",
            Self::Ioctl => "ioctl",
        }
    }
}

impl fmt::Display for ItemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.section())
    }
}

/// A call and what is known of its parameters.
#[derive(Debug, Clone)]
pub struct Item {
    /// The table it is in.
    pub kind: ItemKind,
    /// The name of its number in the headers.
    pub name: String,
    /// Where it stands.
    pub place: SpecPlace,
    /// Parameter types; where there are several the size of the call tells which.
    pub params: Vec<Named>,
    /// Stated to have none.
    pub parameterless: bool,
    /// What is said of its fields is all that there is to say: so it is where a spec names it.
    pub roles_known: bool,
    /// The parameters are an array of the type that fills the call's size.
    pub array: bool,
    /// Paths of the fields that hold file descriptors.
    pub fds: Vec<Named>,
    /// Of an ioctl: what it is made on.
    pub node: Option<Named>,
    /// Those of the `fds` that come back new, and the node that they are then.
    pub opens: Vec<(Named, Named)>,
    /// The fields that hold pointers.
    pub pointers: Vec<Pointer>,
    /// The fields that name objects otherwise than their names say in [`Spec::handles`].
    pub handles: Vec<(Named, HandleMeaning)>,
    /// Fields that look like a pointer or a file descriptor and are none.
    pub plain: Vec<Named>,
    /// Capability groups.
    pub caps: Vec<String>,
    /// The number, where the headers have no constant of that name.
    pub number: Option<u32>,
    /// First tag it holds for.
    pub since: Option<Tag>,
    /// First tag it no longer holds for.
    pub until: Option<Tag>,
    /// Why, for a person.
    pub note: Option<String>,
}

impl Item {
    /// One of which nothing more is said.
    pub fn new(kind: ItemKind, name: String, place: SpecPlace) -> Self {
        Self {
            kind,
            name,
            place,
            params: Vec::new(),
            parameterless: false,
            roles_known: true,
            array: false,
            fds: Vec::new(),
            node: None,
            opens: Vec::new(),
            pointers: Vec::new(),
            handles: Vec::new(),
            plain: Vec::new(),
            caps: Vec::new(),
            number: None,
            since: None,
            until: None,
            note: None,
        }
    }

    /// Whether it holds for `tag`.
    pub fn holds_at(&self, tag: &Tag) -> bool {
        self.since.as_ref().is_none_or(|since| tag >= since)
            && self.until.as_ref().is_none_or(|until| tag < until)
    }

    /// Whether the parameters can be copied as they are: neither fds nor pointers.
    pub fn is_simple(&self) -> bool {
        self.fds.is_empty() && self.pointers.is_empty()
    }

    /// The types that its pointers lead to, also those behind other pointers.
    pub fn pointees(&self) -> impl Iterator<Item = &Named> {
        fn add<'p>(pointers: &'p [Pointer], found: &mut Vec<&'p Named>) {
            for pointer in pointers {
                found.extend(&pointer.of);
                add(&pointer.pointers, found);
            }
        }
        let mut found = Vec::new();
        add(&self.pointers, &mut found);
        found.into_iter()
    }
}

/// A field that holds an address in the caller's memory.
#[derive(Debug, Clone)]
pub struct Pointer {
    /// Path of the field.
    pub field: Named,
    /// What gives the length: fields, constants and numbers, joined by `*` and `+`.
    pub len: Option<String>,
    /// The same for how much the driver has filled, where the length is a limit alone.
    pub filled: Option<String>,
    /// Element type; without it the length counts bytes.
    pub of: Option<Named>,
    /// What is there are the parameters of another call: its table, and the field, constant or number
    /// that tells which it is.
    pub call: Option<(ItemKind, String)>,
    /// Which way the data goes; of what is opaque, the address itself.
    pub dir: Option<Direction>,
    /// The kernel keeps it or gives it back, but does not follow it in this call.
    pub opaque: bool,
    /// In an element: paths of the fields that hold file descriptors; `.` where it is one itself.
    pub fds: Vec<Named>,
    /// In an element: the fields that hold pointers.
    pub pointers: Vec<Pointer>,
    /// In an element: fields that look like a pointer or a file descriptor and are none.
    pub plain: Vec<Named>,
}

/// What a field that names an object names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HandleMeaning {
    /// A client, the root of a tree of objects.
    Client,
    /// The object that another is, or will be, below.
    Parent,
    /// An object that is there.
    Object,
    /// An object that the call makes; 0 lets the driver choose the name.
    New,
    /// A class: a number that is the same for every client.
    Class,
    /// Nothing: the name misleads.
    None,
}

/// Which member of a union holds.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Where the union is named.
    pub place: SpecPlace,
    /// The field that says so, in the record that has the union.
    pub by: Named,
    /// The constant or number that stands for each member.
    pub members: BTreeMap<String, Named>,
}

/// A field that another project's table takes for something else than the roles here, and why they
/// stand.
#[derive(Debug, Clone)]
pub struct Disputed {
    /// The call.
    pub call: Named,
    /// Path of the field.
    pub field: Named,
    /// What it is to the other project.
    pub theirs: TakenFor,
    /// Where the driver shows what it is, for a person.
    pub evidence: String,
}

/// What a project takes a field for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TakenFor {
    /// A file descriptor.
    Fd,
    /// An address of the caller.
    Pointer,
    /// The name of an object.
    Handle,
    /// None of these.
    Number,
}

/// Which way the data behind a pointer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The kernel reads it.
    In,
    /// The kernel writes it.
    Out,
    /// Both.
    InOut,
}

impl Spec {
    /// Reads every `*.toml` of a folder and resolves parents.
    pub fn load_folder(folder: impl Into<TextFolder>) -> Result<Vec<Spec>, Report> {
        Self::load_where(folder, |_| true)
    }

    /// Reads the specs of a family, see [`Spec::family`].
    pub fn load_family(folder: impl Into<TextFolder>, family: &str) -> Result<Vec<Spec>, Report> {
        Self::load_where(folder, |driver| tag::family(driver) == family)
    }

    /// Reads the specs of some drivers, by name: what others inherit takes time to lay together.
    pub fn load_where(
        folder: impl Into<TextFolder>,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<Spec>, Report> {
        Self::parse_where(&read_files(&folder.into())?, wanted, None)
    }

    /// The same with the items of some names alone, and without the constants: a spec has some 400 items.
    pub fn load_items(
        folder: impl Into<TextFolder>,
        wanted: impl Fn(&str) -> bool,
        items: &HashSet<&str>,
    ) -> Result<Vec<Spec>, Report> {
        Self::parse_where(&read_files(&folder.into())?, wanted, Some(items))
    }

    /// Reads specs from memory: `(name, path to show, text)` each.
    pub fn parse_all(files: &[(String, String, String)]) -> Result<Vec<Spec>, Report> {
        Self::parse_where(files, |_| true, None)
    }

    fn parse_where(
        files: &[(String, String, String)],
        wanted: impl Fn(&str) -> bool,
        items: Option<&HashSet<&str>>,
    ) -> Result<Vec<Spec>, Report> {
        let mut report = Report::default();
        let mut raw = BTreeMap::new();
        let parsed = parallel::map(files, |(_, path, text)| {
            let file = File { path: path.as_str().into(), text: text.as_str().into() };
            match toml::from_str::<RawSpec>(text) {
                Ok(spec) => Ok((file, spec)),
                Err(error) => Err(parse_error(&error, &file)),
            }
        });
        for ((name, ..), parsed) in files.iter().zip(parsed) {
            match parsed {
                Ok(spec) => drop(raw.insert(name.clone(), spec)),
                Err(complaint) => report.push(complaint),
            }
        }
        let names = raw.iter().filter(|(_, (_, spec))| wanted(&spec.driver));
        let names: Vec<&String> = names.map(|(name, _)| name).collect();
        let merged =
            parallel::map(&names, |name| chain(name, &raw).and_then(|c| merge(name, &c, items)));
        let mut specs = Vec::new();
        for spec in merged {
            match spec {
                Ok(spec) => specs.push(spec),
                Err(diagnostics) => report.diagnostics.extend(diagnostics.diagnostics),
            }
        }
        specs.sort_by(|a, b| by_number(&a.driver).cmp(&by_number(&b.driver)));
        report.diagnostics.dedup();
        report.sorted().into_result(specs).map(|(specs, _)| specs)
    }

    /// What the drivers of one kind have in common: `tegra`, or nothing. Each family has a lock.
    pub fn family(&self) -> &str {
        tag::family(&self.driver)
    }

    /// What a repository calls the tree that a surface of a tag lies in.
    pub fn reference<'a>(
        &'a self,
        surface: &'a Surface,
        tag: &'a Tag,
    ) -> Result<Reference<'a>, Diagnostic> {
        let Some(tree) = &surface.tree else { return Ok(Reference::whole(tag)) };
        let Some(trees) = self.tags.get(tag) else {
            let near = nearest(tag.as_str(), self.tags.keys().map(Tag::as_str));
            let unknown =
                format!("driver {} does not say where the headers of {tag} are", self.driver);
            return Err(Diagnostic::error("spec-unknown-tag", unknown).at(self.place()).help(
                match near {
                    Some(near) => format!("add it to [tags]; did you mean {near}?"),
                    None => "add it to [tags]".to_owned(),
                },
            ));
        };
        match trees.get(&tree.name) {
            Some(name) => Ok(Reference { tag, tree: Some(&tree.name), name }),
            None => {
                let message = format!("[tags] does not say what {tag} is called in {}", tree.name);
                Err(Diagnostic::error("spec-unknown-tag", message).at(self.place()))
            }
        }
    }

    /// A place of this spec's own file, for complaints about the whole of it.
    pub fn place(&self) -> SourceSpan {
        SourceSpan { path: self.file.path.to_string(), text: self.file.text.clone(), span: 0..0 }
    }

    /// The items that hold for a tag.
    pub fn items_at<'a>(&'a self, tag: &'a Tag) -> impl Iterator<Item = &'a Item> {
        self.items.iter().filter(|item| item.holds_at(tag))
    }
}

/// The spec that a tag belongs to.
pub fn spec_of<'s>(specs: &'s [Spec], tag: &Tag) -> Result<&'s Spec, Report> {
    let found = specs.iter().find(|spec| spec.driver == tag.branch());
    found.ok_or_else(|| {
        let message = format!("no spec for driver {}", tag.branch());
        let drivers: Vec<&str> = specs.iter().map(|spec| spec.driver.as_str()).collect();
        let diagnostic = Diagnostic::error("spec-no-driver", message)
            .note(format!("there are specs for {}", drivers.join(", ")));
        match nearest(tag.branch(), drivers) {
            Some(near) => diagnostic.help(format!("did you mean a tag of {near}?")),
            None => diagnostic.help("write abi-specs/driver-N.toml, see CONTRIBUTING.md"),
        }
        .into()
    })
}

/// The specs of a folder: name, path to show, and text.
fn read_files(folder: &TextFolder) -> Result<Vec<(String, String, String)>, Diagnostic> {
    let unreadable = |path: String, error: io::Error| {
        Diagnostic::error("spec-unreadable", format!("cannot read {path}: {error}"))
    };
    let names = folder.names().map_err(|error| unreadable(folder.to_string(), error))?;
    let shown = folder.name().unwrap_or("abi-specs".into());
    let stems = names.iter().filter_map(|name| Some((name, name.strip_suffix(".toml")?)));
    let files = stems.map(|(name, stem)| {
        let text = folder.read(name).map_err(|error| unreadable(folder.show(name), error))?;
        Ok((stem.to_owned(), format!("{shown}/{name}"), text))
    });
    files.collect()
}

/// Drivers by family, and in version order.
fn by_number(driver: &str) -> (&str, u64, &str) {
    let numbers = driver.trim_start_matches(|c: char| !c.is_ascii_digit());
    (tag::family(driver), numbers.parse().unwrap_or(0), driver)
}

fn parse_error(error: &toml::de::Error, file: &File) -> Diagnostic {
    let message = error.message().lines().next().unwrap_or("not valid TOML").to_owned();
    let diagnostic = Diagnostic::error("spec-parse", message);
    match error.span() {
        Some(span) => diagnostic.at(SpecPlace { file: file.clone(), span }.place()),
        None => diagnostic.note(format!("in {}", file.path)),
    }
}

type RawSpecs = BTreeMap<String, (File, RawSpec)>;

/// The spec and its ancestors, the oldest first.
fn chain<'a>(name: &str, raw: &'a RawSpecs) -> Result<Vec<&'a (File, RawSpec)>, Report> {
    let mut chain: Vec<&(File, RawSpec)> = Vec::new();
    let mut seen = vec![name.to_owned()];
    let mut current = raw.get(name);
    while let Some(entry) = current {
        chain.push(entry);
        let Some(parent) = &entry.1.parent else { break };
        let place = || SpecPlace { file: entry.0.clone(), span: parent.span() }.place();
        let parent_name = parent.get_ref();
        if seen.contains(parent_name) {
            seen.push(parent_name.clone());
            return Err(Diagnostic::error(
                "spec-parent-cycle",
                "a spec cannot inherit from itself",
            )
            .at(place())
            .note(format!("the chain of parents is {}", seen.join(" → ")))
            .into());
        }
        current = raw.get(parent_name);
        if current.is_none() {
            let unknown = Diagnostic::error(
                "spec-unknown-parent",
                format!("there is no spec `{parent_name}`"),
            )
            .at(place());
            let others = raw.keys().filter(|other| !seen.contains(other));
            let near = nearest(parent_name, others.map(String::as_str));
            return Err(match near {
                Some(near) => unknown.help(format!("did you mean `{near}`?")),
                None => unknown,
            }
            .into());
        }
        seen.push(parent_name.clone());
    }
    chain.reverse();
    Ok(chain)
}

/// Lays the specs of a chain over each other: what a child says replaces what its parent said.
/// Of the items those that are wanted, and the constants where all items are.
fn merge(
    name: &str,
    chain: &[&(File, RawSpec)],
    wanted: Option<&HashSet<&str>>,
) -> Result<Spec, Report> {
    let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted.contains(name));
    let Some((file, own)) = chain.last() else {
        return Err(Diagnostic::error("spec-unreadable", format!("no spec `{name}`")).into());
    };
    let mut report = Report::default();
    let mut spec = Spec {
        name: name.to_owned(),
        driver: own.driver.clone(),
        repository: None,
        trees: BTreeMap::new(),
        tags: BTreeMap::new(),
        nodes: Vec::new(),
        targets: Vec::new(),
        surfaces: Vec::new(),
        items: Vec::new(),
        substitutes: Vec::new(),
        handles: BTreeMap::new(),
        unions: BTreeMap::new(),
        disputed: Vec::new(),
        extra_types: Vec::new(),
        constants: Vec::new(),
        statuses: Vec::new(),
        file: file.clone(),
    };
    let mut items: BTreeMap<(ItemKind, String), Vec<Item>> = BTreeMap::new();
    for (file, raw) in chain {
        spec.repository = raw.repository.clone().or(spec.repository);
        if !raw.targets.is_empty() {
            spec.targets.clone_from(&raw.targets);
        }
        spec.trees
            .extend(raw.tree.iter().map(|(name, tree)| (name.clone(), tree.repository.clone())));
        merge_surfaces(&mut spec.surfaces, raw, file, &mut report);
        merge_nodes(&mut spec.nodes, raw, file);
        merge_substitutes(&mut spec.substitutes, &raw.rm);
        for (means, names) in &raw.handles {
            spec.handles.extend(names.iter().map(|name| (name.clone(), *means)));
        }
        merge_unions(&mut spec.unions, raw, file, &mut report);
        merge_disputed(&mut spec.disputed, raw, file);
        for (kind, section) in raw.sections() {
            for (item_name, RawItems(alternatives)) in section {
                if !is_wanted(item_name.get_ref()) {
                    continue;
                }
                let key = (kind, item_name.get_ref().clone());
                items.remove(&key);
                let kept: Vec<Item> = alternatives
                    .iter()
                    .filter(|raw| !raw.removed)
                    .filter_map(|raw| item(kind, item_name, raw, file, &mut report))
                    .collect();
                if !kept.is_empty() {
                    items.insert(key, kept);
                }
            }
        }
        spec.extra_types.retain(|named| !raw.types.removed.contains(&named.name));
        spec.extra_types.extend(raw.types.extra.iter().map(|n| named(n, file)));
        if wanted.is_some() {
            continue;
        }
        let RawConstants { names, statuses } = &raw.constants;
        spec.constants.extend(names.iter().chain(statuses).map(|n| named(n, file)));
        spec.statuses.extend(statuses.iter().map(|n| named(n, file)));
    }
    spec.items = items.into_values().flatten().collect();
    spec.tags = tags(own, file, &mut report);
    known_trees(&spec, &mut report);
    known_nodes(&spec, &mut report);
    report.into_result(spec).map(|(spec, _)| spec)
}

fn merge_surfaces(surfaces: &mut Vec<Surface>, raw: &RawSpec, file: &File, report: &mut Report) {
    let mut own: Vec<_> = raw.surface.iter().collect();
    own.sort_by_key(|(_, surface)| surface.span().start);
    for (name, spanned) in own {
        let raw = spanned.get_ref();
        let place = SpecPlace { file: file.clone(), span: spanned.span() };
        let known = surfaces.iter().position(|s| s.name == *name);
        if raw.removed {
            match known {
                Some(at) => drop(surfaces.remove(at)),
                None => {
                    let message = format!("surface `{name}` is removed, but no parent has it");
                    report.push(Diagnostic::error("spec-parse", message).at(place.place()));
                }
            }
            continue;
        }
        let at = known.unwrap_or_else(|| {
            surfaces.push(Surface::empty(name, place.clone()));
            surfaces.len() - 1
        });
        let surface = &mut surfaces[at];
        surface.place = place;
        if let Some(tree) = &raw.tree {
            surface.tree = Some(named(tree, file));
        }
        if let Some(headers) = &raw.headers {
            surface.headers = headers.iter().map(|n| named(n, file)).collect();
        }
        if let Some(calls) = &raw.calls {
            surface.calls = calls.iter().map(|n| named(n, file)).collect();
        }
        replace(&mut surface.exclude, &raw.exclude);
        replace(&mut surface.include, &raw.include);
        replace(&mut surface.defines, &raw.defines);
        replace(&mut surface.prelude, &raw.prelude);
        replace(&mut surface.system, &raw.system);
        replace(&mut surface.language, &raw.language.as_ref().map(|l| l.name().to_owned()));
        surface.suffix = raw.suffix.clone().or_else(|| surface.suffix.take());
        if surface.headers.is_empty() {
            let message = format!("surface `{name}` has no `headers`");
            report.push(Diagnostic::error("spec-parse", message).at(surface.place.place()));
        }
    }
}

fn merge_nodes(nodes: &mut Vec<Node>, raw: &RawSpec, file: &File) {
    for (name, node) in &raw.node {
        let place = SpecPlace { file: file.clone(), span: name.span() };
        let own = Node {
            name: name.get_ref().clone(),
            paths: node.paths.clone(),
            note: node.note.clone(),
            place,
        };
        match nodes.iter_mut().find(|known| known.name == own.name) {
            Some(known) => *known = own,
            None => nodes.push(own),
        }
    }
}

fn merge_unions(
    unions: &mut BTreeMap<String, Choice>,
    raw: &RawSpec,
    file: &File,
    report: &mut Report,
) {
    for (union, raw) in &raw.unions {
        let Named { name, place } = named(union, file);
        if !name.contains('.') {
            let message = format!("`{name}` names no union");
            let bad = Diagnostic::error("spec-parse", message).at(place.place());
            report.push(bad.help("say which field of which record: \"RECORD.field\""));
        }
        let members = raw.members.iter();
        let members = members.map(|(member, number)| (member.clone(), named(number, file)));
        let members = members.collect();
        unions.insert(name, Choice { place, by: named(&raw.by, file), members });
    }
}

fn merge_disputed(disputed: &mut Vec<Disputed>, raw: &RawSpec, file: &File) {
    for (call, fields) in &raw.disputed {
        for (field, RawDisputed { theirs, evidence }) in fields {
            let (call, field) = (named(call, file), named(field, file));
            let same = |other: &Disputed| {
                (&other.call.name, &other.field.name) == (&call.name, &field.name)
            };
            disputed.retain(|other| !same(other));
            disputed.push(Disputed { call, field, theirs: *theirs, evidence: evidence.clone() });
        }
    }
}

fn merge_substitutes(substitutes: &mut Vec<Substitute>, raw: &RawRm) {
    let classes = raw.class.iter().map(|(name, RawSubstitute { number, action })| {
        (name, *number, SubstituteAction::Alloc(*action))
    });
    let controls = raw.control.iter().map(|(name, RawSubstitute { number, action })| {
        (name, *number, SubstituteAction::Control(*action))
    });
    for (name, number, action) in classes.chain(controls) {
        let key = (action.kind(), name);
        substitutes.retain(|known| (known.action.kind(), &known.name) != key);
        substitutes.push(Substitute { name: name.clone(), number, action });
    }
}

/// The tags that a driver of several trees lists: its own, none of its parent's.
fn tags(
    own: &RawSpec,
    file: &File,
    report: &mut Report,
) -> BTreeMap<Tag, BTreeMap<String, String>> {
    let mut tags = BTreeMap::new();
    for (name, trees) in &own.tags {
        let complain = |why: String| {
            Diagnostic::error("spec-parse", why).at(SpecPlace {
                file: file.clone(),
                span: name.span(),
            }
            .place())
        };
        match name.get_ref().parse::<Tag>() {
            Ok(tag) if tag.branch() == own.driver => _ = tags.insert(tag, trees.clone()),
            Ok(tag) => report.push(complain(format!("{tag} is no tag of driver {}", own.driver))),
            Err(why) => report.push(complain(why)),
        }
    }
    tags
}

/// Surfaces and tags name trees that there are.
fn known_trees(spec: &Spec, report: &mut Report) {
    for tree in spec.surfaces.iter().filter_map(|surface| surface.tree.as_ref()) {
        if !spec.trees.contains_key(&tree.name) {
            report.push(unknown("tree", tree, spec.trees.keys().map(String::as_str)));
        }
    }
    for (tag, trees) in &spec.tags {
        for tree in trees.keys().filter(|tree| !spec.trees.contains_key(*tree)) {
            let message = format!("[tags] names a tree `{tree}` for {tag}, which there is not");
            report.push(Diagnostic::error("spec-parse", message).at(spec.place()));
        }
    }
}

/// Items name nodes that there are.
fn known_nodes(spec: &Spec, report: &mut Report) {
    let known = |node: &&Named| !spec.nodes.iter().any(|known| known.name == node.name);
    let named = spec
        .items
        .iter()
        .flat_map(|item| item.node.iter().chain(item.opens.iter().map(|(_, node)| node)));
    for node in named.filter(known) {
        report.push(unknown("node", node, spec.nodes.iter().map(|node| node.name.as_str())));
    }
}

fn unknown<'a>(what: &str, named: &Named, known: impl Iterator<Item = &'a str>) -> Diagnostic {
    let name = &named.name;
    let diagnostic = Diagnostic::error("spec-parse", format!("there is no {what} `{name}`"))
        .at(named.place.place());
    match nearest(name, known) {
        Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
        None => diagnostic.help(format!("declare [{what}.{name}]")),
    }
}

/// What a child says replaces what its parent said.
fn replace<T: Clone>(inherited: &mut T, own: &Option<T>) {
    if let Some(own) = own {
        inherited.clone_from(own);
    }
}

fn named(name: &Spanned<String>, file: &File) -> Named {
    Named {
        name: name.get_ref().clone(),
        place: SpecPlace { file: file.clone(), span: name.span() },
    }
}

fn item(
    kind: ItemKind,
    name: &Spanned<String>,
    raw: &RawItem,
    file: &File,
    report: &mut Report,
) -> Option<Item> {
    let place = SpecPlace { file: file.clone(), span: name.span() };
    let mut tag = |text: &Option<Spanned<String>>| {
        let text = text.as_ref()?;
        match text.get_ref().parse::<Tag>() {
            Ok(tag) => Some(tag),
            Err(why) => {
                let place = SpecPlace { file: file.clone(), span: text.span() }.place();
                report.push(Diagnostic::error("spec-parse", why).at(place));
                None
            }
        }
    };
    let (since, until) = (tag(&raw.since), tag(&raw.until));
    let params = raw.params.as_ref().map_or(Vec::new(), |params| {
        let named = |(name, span): &(String, Option<Range<usize>>)| {
            let span = span.clone().unwrap_or(params.span());
            Named { name: name.clone(), place: SpecPlace { file: file.clone(), span } }
        };
        params.get_ref().0.iter().map(named).collect()
    });
    if raw.parameterless && !params.is_empty() {
        let message = format!("`{}` cannot have `params` and be `parameterless`", name.get_ref());
        report.push(Diagnostic::error("spec-parse", message).at(place.place()));
        return None;
    }
    Some(Item {
        params,
        parameterless: raw.parameterless,
        array: raw.array,
        fds: raw.fds.iter().map(|n| named(n, file)).collect(),
        node: raw.node.as_ref().map(|n| named(n, file)),
        opens: (raw.opens.iter()).map(|(f, n)| (named(f, file), named(n, file))).collect(),
        pointers: raw.pointers.iter().map(|p| pointer(p, file, report)).collect(),
        handles: raw.handles.iter().map(|(n, means)| (named(n, file), *means)).collect(),
        plain: raw.plain.iter().map(|n| named(n, file)).collect(),
        caps: raw.caps.clone(),
        number: raw.number,
        since,
        until,
        note: raw.note.clone(),
        ..Item::new(kind, name.get_ref().clone(), place)
    })
}

fn pointer(raw: &RawPointer, file: &File, report: &mut Report) -> Pointer {
    let calls = [
        (ItemKind::Frontend, &raw.frontend),
        (ItemKind::Control, &raw.control),
        (ItemKind::Class, &raw.class),
    ];
    let mut calls = calls.into_iter().filter_map(|(kind, by)| Some((kind, by.as_ref()?.0.clone())));
    let call = calls.next();
    if calls.next().is_some() || (call.is_some() && raw.of.is_some()) {
        let message = format!("`{}` points to one thing alone", raw.field.get_ref());
        report.push(
            Diagnostic::error("spec-parse", message)
                .at(named(&raw.field, file).place.place())
                .help("give one of `of`, `frontend`, `control` and `class`"),
        );
    }
    let has_inner = !(raw.fds.is_empty() && raw.pointers.is_empty() && raw.plain.is_empty());
    if has_inner && (raw.of.is_none() || raw.opaque) {
        let message = format!("`{}` has no elements that could have roles", raw.field.get_ref());
        report.push(
            Diagnostic::error("spec-parse", message)
                .at(named(&raw.field, file).place.place())
                .help("say in `of` what they are, and follow the pointer"),
        );
    }
    Pointer {
        field: named(&raw.field, file),
        len: raw.len.as_ref().map(|len| len.0.clone()),
        filled: raw.filled.as_ref().map(|len| len.0.clone()),
        call,
        of: raw.of.as_ref().map(|of| named(of, file)),
        dir: raw.dir,
        opaque: raw.opaque,
        fds: raw.fds.iter().map(|n| named(n, file)).collect(),
        pointers: raw.pointers.iter().map(|p| pointer(p, file, report)).collect(),
        plain: raw.plain.iter().map(|n| named(n, file)).collect(),
    }
}

// The TOML as it is written. Unknown keys are refused everywhere.

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSpec {
    driver: String,
    parent: Option<Spanned<String>>,
    repository: Option<String>,
    #[serde(default)]
    tree: BTreeMap<String, RawTree>,
    #[serde(default)]
    tags: BTreeMap<Spanned<String>, BTreeMap<String, String>>,
    #[serde(default)]
    node: BTreeMap<Spanned<String>, RawNode>,
    #[serde(default)]
    targets: Vec<String>,
    #[serde(default)]
    surface: BTreeMap<String, Spanned<RawSurface>>,
    #[serde(default)]
    frontend: RawSection,
    #[serde(default)]
    uvm: RawSection,
    #[serde(default)]
    control: RawSection,
    #[serde(default)]
    class: RawSection,
    #[serde(default)]
    ioctl: RawSection,
    #[serde(default)]
    rm: RawRm,
    #[serde(default)]
    handles: BTreeMap<HandleMeaning, Vec<String>>,
    #[serde(default)]
    unions: BTreeMap<Spanned<String>, RawChoice>,
    #[serde(default)]
    disputed: BTreeMap<Spanned<String>, BTreeMap<Spanned<String>, RawDisputed>>,
    #[serde(default)]
    types: RawTypes,
    #[serde(default)]
    constants: RawConstants,
}

type RawSection = BTreeMap<Spanned<String>, RawItems>;

impl RawSpec {
    fn sections(&self) -> [(ItemKind, &RawSection); 5] {
        let sections = [&self.frontend, &self.uvm, &self.control, &self.class, &self.ioctl];
        std::array::from_fn(|i| (ItemKind::ALL[i], sections[i]))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTree {
    repository: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNode {
    #[serde(default)]
    paths: Vec<String>,
    note: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSurface {
    #[serde(default)]
    removed: bool,
    tree: Option<Spanned<String>>,
    headers: Option<Vec<Spanned<String>>>,
    calls: Option<Vec<Spanned<String>>>,
    exclude: Option<Vec<String>>,
    include: Option<Vec<String>>,
    defines: Option<Vec<String>>,
    prelude: Option<String>,
    system: Option<Vec<String>>,
    language: Option<Language>,
    suffix: Option<String>,
}

#[derive(Debug, Deserialize)]
enum Language {
    #[serde(rename = "c")]
    C,
    #[serde(rename = "c++")]
    Cpp,
}

impl Language {
    fn name(&self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Cpp => "c++",
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRm {
    #[serde(default)]
    class: BTreeMap<String, RawSubstitute<AllocAction>>,
    #[serde(default)]
    control: BTreeMap<String, RawSubstitute<ControlAction>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSubstitute<A> {
    number: u32,
    action: A,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawChoice {
    by: Spanned<String>,
    members: BTreeMap<String, Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDisputed {
    theirs: TakenFor,
    evidence: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTypes {
    #[serde(default)]
    extra: Vec<Spanned<String>>,
    /// Inherited ones that the driver no longer has.
    #[serde(default)]
    removed: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConstants {
    #[serde(default)]
    names: Vec<Spanned<String>>,
    #[serde(default)]
    statuses: Vec<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawItem {
    params: Option<Spanned<RawParams>>,
    #[serde(default)]
    parameterless: bool,
    #[serde(default)]
    array: bool,
    #[serde(default)]
    fds: Vec<Spanned<String>>,
    node: Option<Spanned<String>>,
    #[serde(default)]
    opens: BTreeMap<Spanned<String>, Spanned<String>>,
    #[serde(default)]
    pointers: Vec<RawPointer>,
    #[serde(default)]
    handles: BTreeMap<Spanned<String>, HandleMeaning>,
    #[serde(default)]
    plain: Vec<Spanned<String>>,
    #[serde(default)]
    caps: Vec<String>,
    number: Option<u32>,
    since: Option<Spanned<String>>,
    until: Option<Spanned<String>>,
    note: Option<String>,
    #[serde(default)]
    removed: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPointer {
    field: Spanned<String>,
    len: Option<RawLength>,
    filled: Option<RawLength>,
    of: Option<Spanned<String>>,
    /// The parameters of an ioctl, of a command, or of a class.
    frontend: Option<RawLength>,
    control: Option<RawLength>,
    class: Option<RawLength>,
    dir: Option<Direction>,
    #[serde(default)]
    opaque: bool,
    #[serde(default)]
    fds: Vec<Spanned<String>>,
    #[serde(default)]
    pointers: Vec<RawPointer>,
    #[serde(default)]
    plain: Vec<Spanned<String>>,
}

/// One table, or several that hold for different tags.
#[derive(Debug)]
struct RawItems(Vec<RawItem>);

impl<'de> Deserialize<'de> for RawItems {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items;
        impl<'de> Visitor<'de> for Items {
            type Value = RawItems;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table such as { params = \"NAME\" }, or an array of them")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawItems, A::Error> {
                let item = RawItem::deserialize(MapAccessDeserializer::new(map))?;
                Ok(RawItems(vec![item]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<RawItems, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(RawItems)
            }
        }
        deserializer.deserialize_any(Items)
    }
}

/// The name of a parameter type, or several, each with its span inside an array.
#[derive(Debug)]
struct RawParams(Vec<(String, Option<Range<usize>>)>);

impl<'de> Deserialize<'de> for RawParams {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Params;
        impl<'de> Visitor<'de> for Params {
            type Value = RawParams;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a parameter type, or an array of names")
            }

            fn visit_str<E>(self, name: &str) -> Result<RawParams, E> {
                Ok(RawParams(vec![(name.to_owned(), None)]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawParams, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = seq.next_element::<Spanned<String>>()? {
                    let span = name.span();
                    names.push((name.into_inner(), Some(span)));
                }
                Ok(RawParams(names))
            }
        }
        deserializer.deserialize_any(Params)
    }
}

/// Fields, constants and numbers; or a number.
#[derive(Debug)]
struct RawLength(String);

impl<'de> Deserialize<'de> for RawLength {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Length;
        impl Visitor<'_> for Length {
            type Value = RawLength;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("fields, constants and numbers")
            }

            fn visit_str<E>(self, text: &str) -> Result<RawLength, E> {
                Ok(RawLength(text.to_owned()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<RawLength, E> {
                Ok(RawLength(number.to_string()))
            }
        }
        deserializer.deserialize_any(Length)
    }
}
