//! GPUs as data: what a card says of itself, and what it answers to control commands.
//!
//! A profile is a TOML file (`sim/profiles`), which `docs/profiles.md` describes. It names commands, fields and
//! constants of the driver, and no numbers of them: [`check`](Profile::check) compares the names with the
//! [`Interface`](crate::rm::Interface) of a driver, and the layouts are that driver's.

mod check;
mod eval;
pub mod expr;
mod read;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use expr::Expr;

pub(crate) use check::{each_expr, each_inner};
pub(crate) use eval::{Datum, Scope, evaluate};
pub(crate) use write::{is_plain, key, quoted};

/// What cards have in common, and the cards that this build carries: name, text.
const SHARED: [(&str, &str); 2] = [
    ("base", include_str!("../../profiles/base.toml")),
    ("server", include_str!("../../profiles/server.toml")),
];
const CARDS: [(&str, &str); 7] = [
    ("a100", include_str!("../../profiles/a100.toml")),
    ("h100", include_str!("../../profiles/h100.toml")),
    ("hgx-a100", include_str!("../../profiles/hgx-a100.toml")),
    ("hgx-h100", include_str!("../../profiles/hgx-h100.toml")),
    ("l4", include_str!("../../profiles/l4.toml")),
    ("rtx3090", include_str!("../../profiles/rtx3090.toml")),
    ("rtxpro6000", include_str!("../../profiles/rtxpro6000.toml")),
];

/// The profile of a machine for which none is named.
pub const DEFAULT: &str = "rtx3090";

/// A GPU: its values, and its answers to control commands.
#[derive(Debug, Clone, Default)]
pub struct Profile {
    /// What it is called on a command line: `rtx3090`.
    pub name: String,
    /// Values by their dotted names, state among them: `memory.size`, `state.power_limit`.
    pub(crate) values: BTreeMap<String, Node>,
    /// Where their names are written.
    names: BTreeMap<String, Place>,
    /// Values of list entries that a caller asks for by index.
    pub(crate) lists: BTreeMap<String, IndexList>,
    /// By the name of a command, or its number where no header names it: the first case that fits counts.
    pub(crate) answers: BTreeMap<String, Vec<Case>>,
    /// Records that programs map to read them, by their names.
    pub(crate) shared: BTreeMap<String, Case>,
    /// Classes of which objects can be made that do nothing, by their names, or as [`unnamed_class`] has them.
    pub(crate) objects: BTreeMap<String, ObjectRule>,
}

/// A value as it is written.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Number(i128),
    Expr(Expr),
    Text(Vec<Piece>),
    List(Vec<Node>),
    /// What could not be read, which is a problem that is known.
    Unread,
}

/// A part of a text.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Plain(String),
    /// What stands in braces.
    Expr(Expr),
}

/// Values by the names of indices.
#[derive(Debug, Clone, Default)]
pub(crate) struct IndexList {
    /// What the names of its indices begin with in the driver's headers.
    pub(crate) prefix: String,
    /// By the rest of the name, or the number where no header names it: one value, or several by the fields
    /// that they go to.
    pub(crate) entries: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) place: Place,
    /// Field and value; the field is empty for the one that the list is for.
    pub(crate) fields: Vec<(String, Node)>,
}

/// An answer, and when it is given.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) place: Place,
    pub(crate) only_if: Option<Node>,
    /// The status, where the command fails.
    pub(crate) fails_with: Option<Node>,
    /// The caller's field that names the GPU which is meant.
    pub(crate) of_gpu: Option<(String, Place)>,
    /// The status where there is no such GPU.
    pub(crate) without_gpu: Option<Node>,
    /// What the command changes.
    pub(crate) set_state: Vec<(String, Node)>,
    pub(crate) fields: Vec<Filled>,
}

/// A field of an answer.
#[derive(Debug, Clone)]
pub(crate) struct Filled {
    pub(crate) place: Place,
    pub(crate) path: String,
    /// Whether some drivers lack it: its name ends with `?`.
    pub(crate) is_optional: bool,
    pub(crate) with: Filler,
}

#[derive(Debug, Clone)]
pub(crate) enum Filler {
    Value(Node),
    List(ListUse),
}

/// A list of the caller's, whose entries name indices.
#[derive(Debug, Clone)]
pub(crate) struct ListUse {
    pub(crate) list: String,
    /// The field with the number of entries.
    pub(crate) count_in: String,
    /// The field of an entry that holds the index, and that which takes the value.
    pub(crate) key_in: String,
    pub(crate) value_in: String,
    /// The record of an entry, where the list is in a buffer of the caller's.
    pub(crate) entry_of: Option<String>,
}

/// Where objects of a class may be made.
#[derive(Debug, Clone)]
pub(crate) struct ObjectRule {
    pub(crate) place: Place,
    /// What may be above it: `client`, `device`, `subdevice`.
    pub(crate) below: Vec<String>,
    /// The upper half of the numbers of its commands.
    pub(crate) commands: Option<u32>,
    /// The record that can be mapped, if it is one.
    pub(crate) shared: Option<String>,
    /// Bytes of the GPU's registers that can be mapped, if it is of some.
    pub(crate) registers: Option<u64>,
}

/// A file of a profile.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// As diagnostics name it.
    pub path: String,
    /// Its whole text.
    pub text: Arc<str>,
    /// Whether this build carries it.
    pub is_embedded: bool,
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub source: Arc<Source>,
    /// Bytes of its text.
    pub span: Range<usize>,
}

impl Place {
    /// Of what is in no file.
    pub(crate) fn nowhere() -> Self {
        let source = Source { path: String::new(), text: Arc::from(""), is_embedded: false };
        Self { source: Arc::new(source), span: 0..0 }
    }

    /// What is written there.
    fn text(&self) -> &str {
        self.source.text.get(self.span.clone()).unwrap_or_default()
    }
}

/// Path and line.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = self.source.text.get(..self.span.start).unwrap_or_default();
        write!(f, "{}:{}", self.source.path, before.matches('\n').count() + 1)
    }
}

/// How serious a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gravity {
    /// The profile is wrong.
    Wrong,
    /// The driver that was compared has no such name: wrong where no driver has it.
    NotOfThisDriver,
}

/// What is wrong with a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// How serious it is.
    pub gravity: Gravity,
    /// A stable short name, such as `profile-unknown-field`.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// Where, if it is in a file.
    pub place: Option<Place>,
    /// What to do.
    pub help: Option<String>,
}

impl Problem {
    pub(crate) fn wrong(code: &'static str, message: impl Into<String>, place: &Place) -> Self {
        let (place, message) = (Some(place.clone()), message.into());
        Self { gravity: Gravity::Wrong, code, message, place, help: None }
    }

    fn not_of_this_driver(code: &'static str, message: impl Into<String>, place: &Place) -> Self {
        Self { gravity: Gravity::NotOfThisDriver, ..Self::wrong(code, message, place) }
    }

    pub(crate) fn without_place(code: &'static str, message: String) -> Self {
        Self { gravity: Gravity::Wrong, code, message, place: None, help: None }
    }

    fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        write!(f, "{}", self.message)
    }
}

/// The names of the profiles of cards that this build carries.
pub fn names() -> impl Iterator<Item = &'static str> {
    CARDS.iter().map(|(name, _)| *name)
}

/// How a profile writes a class that no header names.
pub(crate) fn unnamed_class(number: u32) -> String {
    format!("{number:#06x}")
}

/// The names of all values that profiles which this build carries have.
fn carried_values() -> BTreeSet<String> {
    let read = CARDS.iter().chain(&SHARED).filter_map(|(name, _)| read::load(name).ok());
    read.flat_map(|read| read.profile.values.into_keys()).collect()
}

impl Profile {
    /// A profile by its name, or by the path of a file: what has a `/` or ends with `.toml` is a path.
    ///
    /// # Errors
    ///
    /// When there is none, or what it extends is not there, or it is no profile: all that is wrong.
    pub fn load(name: &str) -> Result<Self, Vec<Problem>> {
        read::load(name)?.whole()
    }

    /// The same, as far as it can be read, and all that is wrong with it whatever the driver: to look for what is wrong
    /// for drivers as well.
    ///
    /// # Errors
    ///
    /// When there is none, or what it extends is not there, or it is no TOML.
    pub fn examine(name: &str) -> Result<(Self, Vec<Problem>), Vec<Problem>> {
        let read = read::load(name)?;
        let problems = read.problems();
        Ok((read.profile, problems))
    }

    /// A profile of a text that extends one which this build carries.
    pub(crate) fn of_text(text: &str) -> Result<Self, Vec<Problem>> {
        let path = "the made profile".to_owned();
        let source = Source { path, text: Arc::from(text), is_embedded: false };
        read::of_source(source)?.whole()
    }

    /// What cards have in common, which is no card itself.
    pub(crate) fn parent(name: &str) -> Result<Self, Vec<Problem>> {
        let read = read::load(name)?;
        if read.problems.is_empty() { Ok(read.profile) } else { Err(read.problems) }
    }

    /// Gives a value another one.
    pub(crate) fn set(&mut self, name: &str, datum: Datum) {
        self.values.insert(name.to_owned(), Node { place: Place::nowhere(), value: datum.into() });
    }

    /// Every value that is written in it.
    fn nodes(&self) -> impl Iterator<Item = &Node> {
        let lists = self.lists.values().flat_map(|list| list.entries.values());
        let entries = lists.flat_map(|entry| entry.fields.iter().map(|(_, node)| node));
        let cases = self.answers.values().flatten().chain(self.shared.values());
        self.values.values().chain(entries).chain(cases.flat_map(Case::nodes))
    }

    /// The constants of drivers that it names.
    #[cfg(test)]
    pub(crate) fn constants(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for node in self.nodes() {
            each_expr(node, &mut |expr| {
                if let Expr::Constant(name) = expr {
                    found.insert(name.clone());
                }
            });
        }
        found
    }

    /// Names that it uses and does not have, which is for a card to do; and whether they are texts.
    pub(crate) fn undefined(&self) -> BTreeMap<String, bool> {
        let mut found = BTreeMap::new();
        for node in self.nodes() {
            each_expr(node, &mut |expr| {
                let Expr::Value(name) = expr else { return };
                let is_known =
                    self.values.contains_key(name) || check::SIMULATED.contains(&name.as_str());
                if !is_known {
                    *found.entry(name.clone()).or_insert(false) |=
                        matches!(node.value, Value::Text(_));
                }
            });
        }
        found
    }
}

impl Case {
    fn nodes(&self) -> impl Iterator<Item = &Node> {
        let values = self.fields.iter().filter_map(|filled| match &filled.with {
            Filler::Value(node) => Some(node),
            Filler::List(_) => None,
        });
        let states = self.set_state.iter().map(|(_, node)| node);
        let statuses = self.fails_with.iter().chain(&self.without_gpu);
        self.only_if.iter().chain(statuses).chain(states).chain(values)
    }
}

impl From<Datum> for Value {
    fn from(datum: Datum) -> Self {
        match datum {
            Datum::Number(number) => Self::Number(number),
            Datum::Text(text) => Self::Text(vec![Piece::Plain(text)]),
            Datum::List(items) => {
                let node = |item: Datum| Node { place: Place::nowhere(), value: item.into() };
                Self::List(items.into_iter().map(node).collect())
            }
        }
    }
}

/// The text of an embedded profile, or of a file.
fn source(name: &str, folder: Option<&Path>) -> Result<Source, String> {
    let carried: Vec<_> = CARDS.iter().chain(&SHARED).copied().collect();
    find_source(name, &carried, "sim/profiles", folder).map_err(|unreadable| {
        unreadable.unwrap_or_else(|| {
            let all: Vec<&str> = names().collect();
            let all = all.join(", ");
            format!("there is no GPU `{name}`: expected {all} or the path of a profile")
        })
    })
}

/// The text that this build carries under a name, or that of a file. Why a file cannot be read; nothing for a name
/// that nobody has.
pub(crate) fn find_source(
    name: &str,
    carried: &[(&str, &'static str)],
    carried_in: &str,
    folder: Option<&Path>,
) -> Result<Source, Option<String>> {
    if !(name.contains('/') || name.ends_with(".toml")) {
        let (_, text) = carried.iter().find(|(own, _)| *own == name).ok_or(None)?;
        let path = format!("{carried_in}/{name}.toml");
        return Ok(Source { path, text: Arc::from(*text), is_embedded: true });
    }
    let path = folder.unwrap_or(Path::new("")).join(name);
    let text = read_text(&path)
        .map_err(|error| Some(format!("cannot read {}: {error}", path.display())))?;
    Ok(Source { path: path.display().to_string(), text: Arc::from(text), is_embedded: false })
}

/// The text of a file that people have written: of a device or a pipe the end may never come.
fn read_text(path: &Path) -> io::Result<String> {
    /// Far more than a profile has that is made of a recording.
    const MOST_MIB: u64 = 16;
    let refused = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    // Before it is opened, which waits where a pipe has no writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(refused("expected a regular file".to_owned()));
    }
    let mut text = String::new();
    let mut file = std::fs::File::open(path)?.take((MOST_MIB << 20) + 1);
    file.read_to_string(&mut text)?;
    match file.limit() {
        0 => Err(refused(format!("expected at most {MOST_MIB} MiB"))),
        _ => Ok(text),
    }
}
