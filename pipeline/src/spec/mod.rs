//! Specs: what people say about a driver, in TOML.
//!
//! A spec says where the headers are, how they are parsed, and which calls there are with which
//! parameters and roles. It never says what a layout is: that is the lock's, and the driver's.

mod merge;
mod raw;
mod table;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Report, SourceSpan, nearest};
use crate::parallel;
use crate::tag::{self, Tag};
use crate::text_folder::TextFolder;
use merge::{chain, merge};
use raw::RawSpec;
use table::Wrong;

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
    /// What its ioctls are made on, where an item does not say otherwise.
    pub node: Option<Named>,
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
            node: None,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
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
    /// Those of the `fds` that must be open files of one node, and the node.
    pub files: Vec<(Named, Named)>,
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
            files: Vec::new(),
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

    /// The nodes of the file descriptors that go in or come back.
    pub fn fd_nodes(&self) -> impl Iterator<Item = &Named> {
        self.opens.iter().chain(&self.files).map(|(_, node)| node)
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
            match table::read_file::<RawSpec>(text) {
                Ok(spec) => Ok((file, spec)),
                Err(wrong) => {
                    Err(wrong.into_iter().map(|wrong| complaint(wrong, &file)).collect::<Vec<_>>())
                }
            }
        });
        for ((name, ..), parsed) in files.iter().zip(parsed) {
            match parsed {
                Ok(spec) => drop(raw.insert(name.clone(), spec)),
                Err(complaints) => report.diagnostics.extend(complaints),
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
                    Some(near) => format!("did you mean {near}? If not, add it to [tags]"),
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

    /// What the ioctls of a surface are made on.
    pub fn surface_node(&self, surface: &str) -> Option<&Named> {
        self.surfaces.iter().find(|of| of.name == surface)?.node.as_ref()
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
        let help = jetsons(tag).or_else(|| new_release(tag, specs)).or_else(|| {
            Some(format!("did you mean a tag of {}?", nearest(tag.branch(), drivers)?))
        });
        diagnostic.help(help.unwrap_or(format!("`nvabi add {tag}` writes one"))).into()
    })
}

/// What to do for a release of Jetson that is newer or older than all specs: which trees it has, a person must say.
fn new_release(tag: &Tag, specs: &[Spec]) -> Option<String> {
    let of_family = |driver: &&str| !tag.family().is_empty() && tag::family(driver) == tag.family();
    let known = specs.iter().map(|spec| spec.driver.as_str()).filter(of_family);
    let number = |driver: &str| by_number(driver).1;
    let near = known.min_by_key(|driver| number(driver).abs_diff(number(tag.branch())))?;
    Some(format!(
        "if there is such a release, write abi-specs/{}.toml beside that of {near}, which is the nearest",
        tag.branch()
    ))
}

/// What to write instead, where a tag is one of L4T's releases for Jetson: NVIDIA's drivers of these numbers are from
/// before their source was open.
pub fn jetsons(tag: &Tag) -> Option<String> {
    let number: u32 = tag.branch().parse().ok()?;
    (21..60).contains(&number).then(|| format!("a release of Jetson is written tegra-r{tag}"))
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
        Ok((stem.to_owned(), format!("{shown}/{name}"), text.to_string()))
    });
    files.collect()
}

/// Drivers by family, and in version order.
fn by_number(driver: &str) -> (&str, u64, &str) {
    let numbers = driver.trim_start_matches(|c: char| !c.is_ascii_digit());
    (tag::family(driver), numbers.parse().unwrap_or(0), driver)
}

fn complaint(wrong: Wrong, file: &File) -> Diagnostic {
    let place = SpecPlace { file: file.clone(), span: wrong.span };
    let diagnostic = Diagnostic::error("spec-parse", wrong.message).at(place.place());
    match wrong.help {
        Some(help) => diagnostic.help(help),
        None => diagnostic,
    }
}
