//! `--check`: what of the calls a list of allowed ones lacks.
//!
//! A list is text, a call a line: `KIND NUMBER [NAME]` or `KIND NAME`, with `from VERSION` and `until
//! VERSION` behind it where the list knows versions. `version V of PARENT` makes these a tree: what came
//! `from` a version holds in it and in all below it. Tables such as nvproxy's coverage file say the same
//! in JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::Path;

use nvabi_pipeline::diagnostic::{Diagnostic, SourceSpan};
use nvabi_pipeline::spec::ItemKind;
use nvabi_pipeline::tag::Tag;
use nvabi_reports::coverage::Table;
use nvabi_reports::decode::sniff::{DetailKind, Named};
use nvabi_reports::decode::value::Value;
use serde::Serialize;

/// The list of gVisor's nvproxy.
const GVISOR: &str = include_str!("gvisor.list");

/// The kinds of calls that a list has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum ListKind {
    Frontend,
    Uvm,
    Control,
    Class,
    /// A class of `NV_ESC_RM_ALLOC_MEMORY`.
    Memory,
    /// A function of `NV_ESC_RM_VID_HEAP_CONTROL`.
    Heap,
    Ioctl,
}

impl ListKind {
    const ALL: [Self; 7] = [
        Self::Frontend,
        Self::Uvm,
        Self::Control,
        Self::Class,
        Self::Memory,
        Self::Heap,
        Self::Ioctl,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Frontend => "frontend",
            Self::Uvm => "uvm",
            Self::Control => "control",
            Self::Class => "class",
            Self::Memory => "memory",
            Self::Heap => "heap",
            Self::Ioctl => "ioctl",
        }
    }
}

impl From<ItemKind> for ListKind {
    fn from(kind: ItemKind) -> Self {
        match kind {
            ItemKind::Frontend => Self::Frontend,
            ItemKind::Uvm => Self::Uvm,
            ItemKind::Control => Self::Control,
            ItemKind::Class => Self::Class,
            ItemKind::Ioctl => Self::Ioctl,
        }
    }
}

/// What is allowed.
#[derive(Debug, Default)]
pub(crate) struct List {
    name: String,
    versions: Vec<(Tag, Option<Tag>)>,
    rows: Vec<Row>,
    /// The version that was asked for.
    asked: Option<Tag>,
}

#[derive(Debug)]
struct Row {
    kind: ListKind,
    number: Option<(u32, u32)>,
    name: Option<String>,
    from: Option<Tag>,
    until: Vec<Tag>,
}

/// The calls that a list lacks, as they come.
#[derive(Debug)]
pub(crate) struct Check {
    list: List,
    lacking: BTreeMap<(ListKind, u32), Lacking>,
    /// The version of the list that applies, and the versions it descends from.
    lineage: Option<(Tag, BTreeSet<Tag>)>,
}

/// A call that a list lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Lacking {
    kind: ListKind,
    number: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    count: u64,
    /// Nanoseconds from the start of the program to the first of them.
    first: u64,
}

impl List {
    /// `gvisor`, or a file; a version may stand behind it: `FILE:550.90.07`.
    pub(crate) fn read(asked: &str) -> Result<Self, Diagnostic> {
        let (source, version) = match asked.rsplit_once(':') {
            Some((source, version)) if !Path::new(asked).exists() => {
                let bad = |why| Diagnostic::error("sniff-list", why);
                (source, Some(version.parse().map_err(bad)?))
            }
            _ => (asked, None),
        };
        let text = match source {
            "gvisor" => GVISOR.to_owned(),
            file => fs::read_to_string(file).map_err(|error| {
                let help = "give gvisor, or a list as docs/sniff.md has it";
                let message = format!("cannot read {file}: {error}");
                Diagnostic::error("sniff-list", message).help(help)
            })?,
        };
        let mut list = match text.trim_start().starts_with('{') {
            true => Self::of_table(source, &text)?,
            false => Self::of_text(source, &text)?,
        };
        (list.name, list.asked) = (source.to_owned(), version);
        if let Some(asked) = &list.asked {
            if !list.versions.iter().any(|(version, _)| version == asked) {
                let known: Vec<&str> = list.versions.iter().map(|(v, _)| v.as_str()).collect();
                let help = match known.as_slice() {
                    [] => "it holds for every version".to_owned(),
                    known => format!("it has {}", known.join(", ")),
                };
                let message = format!("{source} has no version {asked}");
                return Err(Diagnostic::error("sniff-list", message).help(help));
            }
        }
        Ok(list)
    }

    fn of_text(source: &str, text: &str) -> Result<Self, Diagnostic> {
        const HELP: &str =
            "a line is KIND NUMBER [NAME] or KIND NAME, with `from` and `until` behind it";
        let mut list = Self::default();
        let mut at = 0;
        let lines = text.split_inclusive('\n').map(|line| {
            let said = line.split('#').next().unwrap_or_default();
            let span = at..at + said.trim_end().len().max(1);
            at += line.len();
            (span, said.split_whitespace().collect())
        });
        let lines: Vec<(Range<usize>, Vec<&str>)> = lines.collect();
        let bad = |span: &Range<usize>, why: String| {
            let span = span.clone();
            let place = SourceSpan { path: source.to_owned(), text: text.into(), span };
            Diagnostic::error("sniff-list", why).at(place)
        };
        for (span, words) in &lines {
            list.line(words).map_err(|why| bad(span, why).help(HELP))?;
        }
        if list.rows.is_empty() {
            let message = format!("{source} contains no calls");
            return Err(Diagnostic::error("sniff-list", message).help(HELP));
        }
        // What a line names may stand below it.
        for (span, words) in &lines {
            list.check_words(words).map_err(|why| bad(span, why))?;
        }
        Ok(list)
    }

    fn line(&mut self, words: &[&str]) -> Result<(), String> {
        match words {
            [] => Ok(()),
            ["version", version] => self.version_line(version.parse()?, None),
            ["version", version, "of", parent] => {
                self.version_line(version.parse()?, Some(parent.parse()?))
            }
            ["version", ..] => Err("expected `version V` or `version V of PARENT`".to_owned()),
            [kind, what, rest @ ..] => {
                let known = ListKind::ALL.into_iter().find(|known| known.word() == *kind);
                let kind = known.ok_or_else(|| {
                    let known = ListKind::ALL.map(ListKind::word).join(", ");
                    format!("unknown kind of call `{kind}`; expected one of {known}")
                })?;
                let mut row =
                    Row { kind, number: number(what)?, name: None, from: None, until: Vec::new() };
                let mut rest = rest;
                if row.number.is_none() {
                    row.name = Some((*what).to_owned());
                } else if let [name, after @ ..] = rest {
                    if !matches!(*name, "from" | "until") {
                        (row.name, rest) = (Some((*name).to_owned()), after);
                    }
                }
                for pair in rest.chunks(2) {
                    match pair {
                        ["from", version] if row.from.is_none() => {
                            row.from = Some(version.parse()?);
                        }
                        ["until", version] if row.until.is_empty() => {
                            row.until.push(version.parse()?);
                        }
                        _ => {
                            return Err(format!(
                                "expected `from VERSION` or `until VERSION`, found `{}`",
                                pair.join(" ")
                            ));
                        }
                    }
                }
                self.rows.push(row);
                Ok(())
            }
            [word] => Err(format!("expected a number or a name after `{word}`")),
        }
    }

    fn version_line(&mut self, version: Tag, parent: Option<Tag>) -> Result<(), String> {
        if self.versions.iter().any(|(known, _)| *known == version) {
            return Err(format!("version {version} is listed twice"));
        }
        self.versions.push((version, parent));
        Ok(())
    }

    /// Every version that a line names is one, and none descends from itself.
    fn check_words(&self, words: &[&str]) -> Result<(), String> {
        for pair in words.windows(2).filter(|pair| ["from", "until", "of"].contains(&pair[0])) {
            if !self.versions.iter().any(|(known, _)| known.as_str() == pair[1]) {
                let known: Vec<&str> = self.versions.iter().map(|(v, _)| v.as_str()).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(format!("unknown version {}; the list has {known}", pair[1]));
            }
        }
        if let ["version", version, ..] = words {
            let version = version.parse()?;
            self.lineage(&version).ok_or(format!("{version} descends from itself"))?;
        }
        Ok(())
    }

    fn of_table(source: &str, text: &str) -> Result<Self, Diagnostic> {
        let table: Table = serde_json::from_str(text).map_err(|error| {
            Diagnostic::error("sniff-list", format!("{source}: {error}"))
                .help("expected a table like nvproxy's coverage file")
        })?;
        let bad = |why: String| Diagnostic::error("sniff-list", format!("{source}: {why}"));
        let mut list = Self::default();
        let tag = |text: &Option<String>| text.as_ref().map(|text| text.parse::<Tag>()).transpose();
        for version in table.versions() {
            let own = version.version.parse().map_err(bad)?;
            list.versions.push((own, tag(&version.parent).map_err(bad)?));
        }
        for (kind, rows) in table.rows() {
            for row in rows {
                let number = Some((row.number, u32::MAX));
                let from = tag(&row.since).map_err(bad)?;
                let until = row.until.iter().map(|version| version.parse());
                let until = until.collect::<Result<_, _>>().map_err(bad)?;
                let name = Some(row.name.clone());
                list.rows.push(Row { kind: kind.into(), number, name, from, until });
            }
        }
        list.specials(&table).map_err(bad)?;
        list.check_versions().map_err(bad)?;
        Ok(list)
    }

    fn specials(&mut self, table: &Table) -> Result<(), String> {
        for (case, special) in table.specials() {
            let kind = match case {
                "control_passthrough" => ListKind::Control,
                "rm_alloc_memory_classes" => ListKind::Memory,
                "vid_heap_functions" => ListKind::Heap,
                _ => continue,
            };
            let number = match (&special.rule, special.number) {
                (Some(rule), _) => {
                    shape(rule).ok_or_else(|| format!("unknown rule `{rule}` of commands"))?
                }
                (None, Some(number)) => (number, u32::MAX),
                (None, None) => return Err(format!("`{}` in {case} has no number", special.name)),
            };
            let (number, name) = (Some(number), Some(special.name));
            self.rows.push(Row { kind, number, name, from: None, until: Vec::new() });
        }
        Ok(())
    }

    /// Every version that is named is one, and none descends from itself.
    fn check_versions(&self) -> Result<(), String> {
        let known: BTreeSet<&Tag> = self.versions.iter().map(|(version, _)| version).collect();
        let rows = self.rows.iter().flat_map(|row| row.from.iter().chain(&row.until));
        let parents = self.versions.iter().filter_map(|(_, parent)| parent.as_ref());
        match rows.chain(parents).find(|tag| !known.contains(tag)) {
            Some(unknown) => Err(format!("unknown version {unknown}")),
            None => self.versions.iter().try_for_each(|(version, _)| {
                self.lineage(version).map(|_| ()).ok_or(format!("{version} descends from itself"))
            }),
        }
    }

    /// A version and all that it descends from.
    fn lineage(&self, version: &Tag) -> Option<BTreeSet<Tag>> {
        let mut lineage = BTreeSet::new();
        let mut at = Some(version.clone());
        while let Some(version) = at {
            let own = self.versions.iter().find(|(known, _)| *known == version);
            at = own.and_then(|(_, parent)| parent.clone());
            if !lineage.insert(version) {
                return None;
            }
        }
        Some(lineage)
    }

    /// The version of the list for a driver: its own, else the last before it, else the first.
    fn version(&self, driver: Option<&Tag>) -> Option<&Tag> {
        if self.asked.is_some() {
            return self.asked.as_ref();
        }
        let versions = || self.versions.iter().map(|(version, _)| version);
        let Some(driver) = driver else { return versions().max() };
        versions().filter(|version| *version <= driver).max().or_else(|| versions().min())
    }

    fn allows(
        &self,
        lineage: Option<&BTreeSet<Tag>>,
        kind: ListKind,
        number: u32,
        name: Option<&str>,
    ) -> bool {
        let holds = |row: &Row| {
            let passed = |tag: &Tag| lineage.is_none_or(|lineage| lineage.contains(tag));
            row.from.as_ref().is_none_or(passed) && !row.until.iter().any(passed)
        };
        let is_it = |row: &Row| match (row.number, &row.name) {
            (Some((value, mask)), _) => number & mask == value,
            (None, own) => own.as_deref() == name,
        };
        self.rows.iter().any(|row| row.kind == kind && is_it(row) && holds(row))
    }

    fn has(&self, kind: ListKind) -> bool {
        self.rows.iter().any(|row| row.kind == kind)
    }
}

/// Value and mask of a rule.
fn shape(rule: &str) -> Option<(u32, u32)> {
    let one = |text: &str| Some(number(text.trim()).ok()??.0);
    if let Some(rest) = rule.strip_prefix("cmd & ") {
        let mask = one(rest.strip_suffix("!= 0")?)?;
        // Of several bits any one would do, which is no value and mask.
        return mask.is_power_of_two().then_some((mask, mask));
    }
    let (shift, rest) = rule.strip_prefix("(cmd >> ")?.split_once(") & ")?;
    let (mask, value) = rest.split_once(" == ")?;
    let shift = one(shift)?;
    Some((one(value)?.checked_shl(shift)?, one(mask)?.checked_shl(shift)?))
}

/// A number, or a value and its mask: `0x8000/0x8000`.
fn number(text: &str) -> Result<Option<(u32, u32)>, String> {
    if !text.starts_with(|first: char| first.is_ascii_digit()) {
        return Ok(None);
    }
    let one = |text: &str| {
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => text.parse(),
        };
        parsed.map_err(|_| format!("expected a 32-bit number, found `{text}`"))
    };
    Ok(Some(match text.split_once('/') {
        Some((value, mask)) => match (one(value)?, one(mask)?) {
            (value, mask) if value & !mask != 0 => {
                return Err(format!("the value in `{text}` has bits outside its mask"));
            }
            pair => pair,
        },
        None => (one(text)?, u32::MAX),
    }))
}

impl Check {
    pub(crate) fn new(list: List) -> Self {
        Self { list, lacking: BTreeMap::new(), lineage: None }
    }

    /// Takes in a call that was made with a driver.
    pub(crate) fn add(&mut self, named: &Named, driver: Option<&Tag>) {
        if named.call != "ioctl" {
            return;
        }
        let version = self.list.version(driver).cloned();
        if self.lineage.as_ref().map(|(known, _)| known) != version.as_ref() {
            self.lineage = version.and_then(|version| {
                let lineage = self.list.lineage(&version)?;
                Some((version, lineage))
            });
        }
        for (kind, number, name) in asked(named) {
            let is_optional =
                matches!(kind, ListKind::Memory | ListKind::Heap) && !self.list.has(kind);
            let lineage = self.lineage.as_ref().map(|(_, lineage)| lineage);
            if is_optional || self.list.allows(lineage, kind, number, name.as_deref()) {
                continue;
            }
            let new = Lacking { kind, number, name, count: 0, first: named.time };
            self.lacking.entry((kind, number)).or_insert(new).count += 1;
        }
    }

    /// Whether all calls were allowed.
    pub(crate) fn is_clean(&self) -> bool {
        self.lacking.is_empty()
    }

    /// The list, its version, and what it lacks.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "call": "check",
            "list": self.list.name,
            "version": self.lineage.as_ref().map(|(version, _)| version.as_str()),
            "lacking": self.lacking.values().collect::<Vec<_>>(),
        })
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let at = self.lineage.as_ref().map_or(String::new(), |(v, _)| format!(" at {v}"));
        if self.is_clean() {
            let _ = writeln!(text, "{}{at} has every call that was made", self.list.name);
            return text;
        }
        let _ = writeln!(text, "{}{at} lacks:", self.list.name);
        for Lacking { kind, number, name, count, .. } in self.lacking.values() {
            let name = name.as_deref().unwrap_or("(unknown)");
            let kind = kind.word();
            let _ = writeln!(text, "{count:>8}  {kind:<8} {number:#010x} {name}");
        }
        text
    }
}

/// What a call asks for, by the kinds of lists.
fn asked(named: &Named) -> Vec<(ListKind, u32, Option<String>)> {
    let Some(made) = named.request else { return Vec::new() };
    let request = named.carries.unwrap_or(made);
    let name = named.name.clone();
    let mut asked = match named.node.as_deref() {
        Some("nvidiactl" | "nvidia") => {
            let own = (ListKind::Frontend, request & 0xff, name.clone());
            let carrier =
                || (ListKind::Frontend, made & 0xff, Some("NV_ESC_IOCTL_XFER_CMD".to_owned()));
            std::iter::once(own).chain(named.carries.map(|_| carrier())).collect()
        }
        Some("nvidia-uvm") => vec![(ListKind::Uvm, request, name.clone())],
        Some(_) => vec![(ListKind::Ioctl, request, name.clone())],
        None => return Vec::new(),
    };
    let number = |field: &str| {
        let field = named.fields.iter().find(|f| f.name == field)?;
        let (Value::Number(number) | Value::Named { value: number, .. }) = &field.value else {
            return None;
        };
        Some((u32::try_from(*number).ok()?, field.says.clone()))
    };
    if let Some(detail) = &named.detail {
        let kind = match (detail.kind, named.node.as_deref()) {
            (DetailKind::Class, _) => ListKind::Class,
            (_, Some("nvidia-modeset")) => return asked,
            _ => ListKind::Control,
        };
        asked.push((kind, detail.number, detail.name.clone()));
    }
    match name.as_deref() {
        Some("NV_ESC_RM_ALLOC_MEMORY") => {
            asked.extend(
                number("params.hClass").map(|(class, name)| (ListKind::Memory, class, name)),
            );
        }
        Some("NV_ESC_RM_VID_HEAP_CONTROL") => {
            asked.extend(
                number("function").map(|(function, name)| (ListKind::Heap, function, name)),
            );
        }
        _ => {}
    }
    asked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> List {
        List::of_text("test", text).unwrap()
    }

    fn allows(list: &List, driver: &str, kind: ListKind, number: u32) -> bool {
        let version = list.version(Some(&driver.parse().unwrap())).cloned();
        let lineage = version.and_then(|version| list.lineage(&version));
        list.allows(lineage.as_ref(), kind, number, Some("NAME"))
    }

    #[test]
    fn versions_are_a_tree() {
        let list = list(
            "version 535.1\nversion 550.1 of 535.1\nversion 550.2 of 550.1\nversion 545.1 of 535.1\n\
             control 1 A from 550.1\ncontrol 2 B until 550.2\nuvm 3\nclass NAME # by its name\n",
        );
        assert!(!allows(&list, "535.1", ListKind::Control, 1));
        assert!(allows(&list, "550.2", ListKind::Control, 1));
        // Later, and of another branch of the tree.
        assert!(!allows(&list, "545.1", ListKind::Control, 1));
        assert!(
            allows(&list, "550.1", ListKind::Control, 2)
                && !allows(&list, "550.2", ListKind::Control, 2)
        );
        assert!(
            allows(&list, "550.2", ListKind::Uvm, 3)
                && !allows(&list, "550.2", ListKind::Frontend, 3)
        );
        assert!(allows(&list, "550.2", ListKind::Class, 99));
        // A driver that is none of them is as the last before it.
        assert!(
            !allows(&list, "560.1", ListKind::Control, 2)
                && allows(&list, "515.1", ListKind::Control, 2)
        );
    }

    #[test]
    fn masks_allow_a_shape() {
        let list = list("control 0x8000/0x8000\n");
        assert!(allows(&list, "550.1", ListKind::Control, 0x2080_8001));
        assert!(!allows(&list, "550.1", ListKind::Control, 0x2080_0001));
    }

    #[test]
    fn what_is_no_list_is_refused_by_its_line() {
        for (text, why) in [
            ("", "contains no calls"),
            ("uvm 3\nioctls 4\n", "unknown kind of call `ioctls`"),
            ("uvm 0x1ffffffff\n", "a 32-bit number"),
            ("uvm 3 NAME since 5\n", "found `since 5`"),
            ("uvm 3 from 550.1\n", "unknown version 550.1; the list has none"),
            ("version 550.2\nuvm 3 from 550.1\n", "the list has 550.2"),
            ("version 550.2 of 550.1\nuvm 3\n", "unknown version 550.1"),
            ("version 550.1 of 550.1\nuvm 1\n", "descends from itself"),
            ("version 550.1\nversion 550.1\nuvm 1\n", "listed twice"),
            ("version 550.1 from 535.1\nuvm 1\n", "`version V of PARENT`"),
            ("uvm 3 until 550.1 until 550.2\n", "found `until 550.2`"),
            ("control 0x12/0x0f\n", "outside its mask"),
            ("uvm\n", "after `uvm`"),
        ] {
            let error = List::of_text("test", text).unwrap_err();
            assert!(error.message.contains(why), "{text}: {}", error.message);
            // What is on a line is told with that.
            assert_eq!(error.place.is_some(), !text.is_empty(), "{text}");
        }
    }

    #[test]
    fn the_embedded_list_is_one() {
        let list = List::read("gvisor").unwrap();
        assert!(allows(&list, "550.90.07", ListKind::Frontend, 0x2a));
        assert!(!allows(&list, "550.90.07", ListKind::Frontend, 0x5c));
        assert!(List::read("gvisor:1.2").unwrap_err().message.contains("no version 1.2"));
    }
}
