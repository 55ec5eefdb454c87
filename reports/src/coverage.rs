//! Whether specs and lock have everything that another project supports.
//!
//! The table is that project's: its versions as a tree, and for each call a row with its number, its
//! parameter types, and the versions it holds for. A row is covered at a version when the spec has
//! an item of its name for that tag, whose number is the row's, whose parameters are the row's types,
//! and the lock has these types there. What the driver's headers lack themselves is no gap, where
//! the table's own check of the headers (`header_check`) says the same.
//!
//! Beside that the roles of fields are compared, by their offsets. Where the two sides disagree,
//! neither need be wrong: a project that only forwards handles may well take one for a number. So a
//! spec may say of a field what the table takes it for, and why its own role stands ([`Spec::disputed`]);
//! every other disagreement is a finding.

pub mod gvisor;
mod layouts;
mod roles;
mod unpublished;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fmt::Write as _;

use serde::de::{Deserializer, Error, IgnoredAny, Visitor};
use serde::{Deserialize, Serialize};

use crate::ranges::RequestedName;
use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_pipeline::lock::Lock;
use nvabi_pipeline::model::{Facts, Surface};
use nvabi_pipeline::spec::{Item, ItemKind, Spec};
use nvabi_pipeline::tag::Tag;
pub use unpublished::Bounds;

/// What another project supports.
#[derive(Debug, Clone, Deserialize)]
pub struct Table {
    versions: Vec<Version>,
    frontend: Vec<Row>,
    uvm: Vec<Row>,
    control: Vec<Row>,
    #[serde(rename = "alloc")]
    class: Vec<Row>,
    #[serde(default, rename = "go_structs")]
    structs: Vec<roles::Struct>,
    #[serde(skip)]
    constants: BTreeMap<String, i128>,
    /// The project's names of scalars.
    #[serde(default)]
    go_scalars: BTreeMap<String, String>,
    /// What its authors know of the driver's headers; `None` for a table that is no statement of them.
    #[serde(default = "no_header_check")]
    header_check: Option<HeaderCheck>,
    /// By what is special about them.
    #[serde(default)]
    special_cases: BTreeMap<String, Specials>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Specials {
    List(Vec<SpecialRow>),
    /// A limit, say: a matter of the other project alone.
    Other(IgnoredAny),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum SpecialRow {
    Name(String),
    Special(Special),
    Other(IgnoredAny),
}

/// What the table says of a name outside of its rows.
#[derive(Debug, Clone, Deserialize)]
pub struct Special {
    /// The name of a command, a class, a function or a struct.
    #[serde(alias = "struct")]
    pub name: String,
    /// Its number, where the table has it.
    #[serde(default, rename = "nr", alias = "class_id", deserialize_with = "some_number")]
    pub number: Option<u32>,
    /// The commands it stands for, such as `cmd & 0x00008000 != 0` and `(cmd >> 16) & 0xffff == 0x2081`.
    pub rule: Option<String>,
    size: Option<u64>,
}

/// A version of the other project's table.
#[derive(Debug, Clone, Deserialize)]
pub struct Version {
    /// The driver version.
    pub version: String,
    /// The version whose rows hold here as well, unless they ended.
    pub parent: Option<String>,
    /// Whether upstream has published a tag of that name.
    #[serde(default)]
    tag_available: bool,
    counts: Option<Counts>,
}

/// How many rows hold, by the table's own word.
#[derive(Debug, Clone, Deserialize)]
struct Counts {
    frontend: usize,
    uvm: usize,
    control: usize,
    alloc: usize,
}

/// A call that the other project supports.
#[derive(Debug, Clone, Deserialize)]
pub struct Row {
    /// The driver's name of it.
    pub name: String,
    /// The number of the ioctl, the command or the class.
    #[serde(rename = "nr", alias = "cmd", alias = "class_id", deserialize_with = "number")]
    pub number: u32,
    #[serde(default)]
    structs: Vec<Struct>,
    #[serde(default)]
    handler_kind: String,
    #[serde(default)]
    handler: String,
    /// The version from which on it is supported; it was always without.
    pub since: Option<String>,
    /// The versions from which on it is not; several where the versions branch.
    #[serde(default, deserialize_with = "at_most_one")]
    pub until: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Struct {
    driver: String,
    #[serde(default)]
    go: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct HeaderCheck {
    #[serde(default)]
    missing_constants: Vec<Missing>,
}

#[derive(Debug, Clone, Deserialize)]
struct Missing {
    version: String,
    constant: String,
}

/// A number, or a string such as `0x20800101`.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    struct Number;
    impl Visitor<'_> for Number {
        type Value = u32;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number of 32 bits, or one in hex such as \"0x20800101\"")
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<u32, E> {
            u32::try_from(number).map_err(|_| E::custom(format!("{number} exceeds 32 bits")))
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<u32, E> {
            let digits = text.strip_prefix("0x");
            let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
            number.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
        }
    }
    deserializer.deserialize_any(Number)
}

fn some_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    number(deserializer).map(Some)
}

fn at_most_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.into_iter().collect())
}

/// A table without one says nothing of the headers, so that all that they lack is a gap.
#[expect(clippy::unnecessary_wraps, reason = "what serde asks of a default")]
fn no_header_check() -> Option<HeaderCheck> {
    Some(HeaderCheck::default())
}

/// How far a table is covered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// In the order of the table.
    pub versions: Vec<VersionCoverage>,
    /// What is missing.
    pub gaps: Vec<Finding>,
    /// What the driver's headers lack themselves.
    pub lacking: Vec<Finding>,
    /// Rows that name no type and are not simple: their name and number alone can be compared.
    pub untyped: BTreeSet<String>,
    /// Constants, and structs of no row, that no driver of the lock has under their name: nothing of them is compared.
    pub nameless: BTreeSet<String>,
    /// Fields that the table takes for something else than the spec does.
    pub roles: Vec<Finding>,
    /// Those of which the spec says so, with the evidence that it gives.
    pub disputed: Vec<Finding>,
    /// The table's special cases, each beside what the driver has.
    pub special: Vec<SpecialCase>,
    /// Rows of versions that the lock has not, where they fit only one of the tags around them, or neither.
    pub unpublished: Vec<Finding>,
}

/// Something that a table says outside of its rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SpecialCase {
    /// What the table calls it, such as `control_passthrough`.
    pub case: String,
    /// The name it is about.
    pub name: String,
    /// Which side is right.
    pub verdict: String,
}

/// One version of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VersionCoverage {
    /// The driver version.
    pub version: String,
    /// Whether the lock has it; without, nothing is compared.
    pub locked: bool,
    /// By kind, in the order of the spec's sections.
    pub kinds: Vec<Count>,
    /// For a version that the lock has not: the tags around it, and how many rows fit them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bounds: Option<Bounds>,
}

/// The rows of one kind at one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Which table of the driver they are of.
    pub kind: ItemKind,
    /// Those that hold.
    pub rows: usize,
    /// Those with nothing missing.
    pub covered: usize,
    /// Those that the driver itself has not.
    pub lacking: usize,
}

/// What is wrong with a row, and at which versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which table of the driver the row is of; `None` for a whole version, and for a struct that is no row's.
    pub kind: Option<ItemKind>,
    /// The row's name, or the struct's; empty for a whole version.
    pub name: String,
    /// What is missing, or differs.
    pub missing: String,
    /// Where that is so.
    pub versions: Vec<String>,
}

impl Finding {
    /// `KIND NAME: `, with marks around the name; empty for a whole version.
    fn row(&self, mark: &str) -> String {
        match self.kind {
            Some(kind) => format!("{kind} {mark}{}{mark}: ", self.name),
            None if self.name.is_empty() => String::new(),
            None => format!("{mark}{}{mark}: ", self.name),
        }
    }
}

impl Table {
    /// Its versions, in its order.
    pub fn versions(&self) -> &[Version] {
        &self.versions
    }

    /// Its rows by kind.
    pub fn rows(&self) -> [(ItemKind, &[Row]); 4] {
        [
            (ItemKind::Frontend, &self.frontend),
            (ItemKind::Uvm, &self.uvm),
            (ItemKind::Control, &self.control),
            (ItemKind::Class, &self.class),
        ]
    }

    /// The names that a lock has to be read for.
    pub fn names(&self) -> Vec<RequestedName> {
        let rows = self.rows().into_iter().flat_map(|(_, rows)| rows);
        let names = rows.flat_map(|row| {
            std::iter::once(&row.name).chain(row.structs.iter().map(|of| &of.driver))
        });
        let specials = self.specials();
        let names: BTreeSet<&String> =
            names.chain(specials.iter().map(|(_, special)| &special.name)).collect();
        names.into_iter().map(|name| RequestedName { name: name.clone(), place: None }).collect()
    }

    /// Every name of the special cases, behind the name of the case.
    pub fn specials(&self) -> Vec<(&str, Special)> {
        let lists = self.special_cases.iter().filter_map(|(case, specials)| match specials {
            Specials::List(rows) => Some(rows.iter().map(move |row| (case.as_str(), row))),
            Specials::Other(_) => None,
        });
        let special = |(case, row): (_, &SpecialRow)| match row {
            SpecialRow::Name(name) => {
                let name = name.clone();
                Some((case, Special { name, number: None, rule: None, size: None }))
            }
            SpecialRow::Special(special) => Some((case, special.clone())),
            SpecialRow::Other(_) => None,
        };
        lists.flatten().filter_map(special).collect()
    }

    /// The tag of a version, and the version with all it descends from.
    fn lineage<'t>(&'t self, version: &'t Version) -> Result<(Tag, BTreeSet<&'t str>), Diagnostic> {
        let bad = |why: String| Diagnostic::error("coverage-table", why);
        let mut lineage = BTreeSet::from([version.version.as_str()]);
        let mut at = version;
        while let Some(parent) = &at.parent {
            let found = self.versions.iter().find(|other| other.version == *parent);
            at = found.ok_or_else(|| {
                bad(format!("`{}` descends from `{parent}`, which is no version", at.version))
            })?;
            if !lineage.insert(&at.version) {
                return Err(bad(format!("`{}` descends from itself", at.version)));
            }
        }
        Ok((version.version.parse().map_err(bad)?, lineage))
    }
}

impl Row {
    fn holds(&self, lineage: &BTreeSet<&str>) -> bool {
        let passed = |version: &String| lineage.contains(version.as_str());
        self.since.as_ref().is_none_or(passed) && !self.until.iter().any(passed)
    }
}

/// Why there is nothing to compare, where there is nothing.
fn vacuous(table: &Table, versions: &[VersionCoverage]) -> Option<String> {
    let count = versions.len();
    match versions.iter().any(|version| version.locked) {
        _ if count == 0 => Some("the table has no versions".to_owned()),
        false => {
            Some(format!("nothing to compare: the lock has none of the table's {count} versions"))
        }
        true if table.rows().iter().all(|(_, rows)| rows.is_empty()) => {
            Some("the table has no calls".to_owned())
        }
        true => None,
    }
}

/// Compares a table with specs and lock; `Err` when the table contradicts itself.
pub fn check(lock: &Lock, specs: &[Spec], table: &Table) -> Result<Coverage, Report> {
    let mut report = Report::default();
    let mut found = Findings::default();
    let mut versions = Vec::new();
    let specials = table.specials();
    let mut verdicts = vec![BTreeMap::new(); specials.len()];
    let others = table.other_structs();
    let mut other_layouts = vec![OtherLayout::default(); others.len()];
    let constants = table.other_constants();
    let mut other_values = vec![OtherValue::default(); constants.len()];
    for version in &table.versions {
        let (tag, lineage) = match table.lineage(version) {
            Ok(found) => found,
            Err(complaint) => {
                report.push(complaint);
                continue;
            }
        };
        let locked = lock.facts(&tag);
        if let Some(counts) = &version.counts {
            report.diagnostics.extend(miscounted(table, version, counts, &lineage));
        }
        let (mut kinds, mut bounds) = (Vec::new(), None);
        if let Some(facts) = &locked {
            let spec = specs.iter().find(|spec| spec.driver == tag.branch());
            let known = Known { spec, facts };
            for ((_, special), verdicts) in specials.iter().zip(&mut verdicts) {
                let versions: &mut Vec<String> =
                    verdicts.entry(known.verdict(special)).or_default();
                versions.push(tag.to_string());
            }
            for (kind, rows) in table.rows() {
                let rows = rows.iter().filter(|row| row.holds(&lineage));
                kinds.push(found.rows(&known, table, kind, rows));
            }
            for (other, found) in others.iter().zip(&mut other_layouts) {
                found.compare(&known, table, other);
            }
            for ((name, value), found) in constants.iter().zip(&mut other_values) {
                found.compare(&known, name, *value);
            }
        } else if version.tag_available {
            let missing = "the lock has no such tag".to_owned();
            found.gaps.entry((None, String::new(), missing)).or_default().push(tag.to_string());
        } else {
            bounds = found.bounds(lock, specs, table, &tag, &lineage);
        }
        let version = version.version.clone();
        versions.push(VersionCoverage { version, locked: locked.is_some(), kinds, bounds });
    }
    if let (Some(message), true) = (vacuous(table, &versions), found.gaps.is_empty()) {
        report.push(Diagnostic::error("coverage-table", message));
    }
    let mut nameless = BTreeSet::new();
    for (other, layout) in others.iter().zip(other_layouts) {
        let versions = layout.versions;
        if versions.is_empty() {
            nameless.insert(other.go.clone());
        }
        for what in layout.differences.into_iter().filter(|_| !layout.fits) {
            let what = format!("at no version: {what}");
            found.gaps.insert((None, other.driver.clone(), what), versions.clone());
        }
    }
    for ((name, value), of) in constants.iter().zip(other_values) {
        let Some(ours) = of.newest else {
            nameless.insert((*name).to_owned());
            continue;
        };
        if !of.fits {
            let what = format!("at no version: the table has {value:#x}, the driver {ours:#x}");
            found.gaps.insert((None, (*name).to_owned(), what), of.versions);
        }
    }
    let judged = |(special, verdicts)| judged(&versions, special, verdicts);
    let special = specials.iter().zip(verdicts).map(judged).collect();
    let coverage = Coverage {
        versions,
        gaps: listed(found.gaps),
        lacking: listed(found.lacking),
        untyped: found.untyped,
        nameless,
        roles: listed(found.roles),
        disputed: listed(found.disputed),
        special,
        unpublished: listed(found.unpublished),
    };
    report.into_result(coverage).map(|(coverage, _)| coverage)
}

/// Versions as a person reads them: three or more that follow each other in the table are a span.
/// One that is not in the lock is compared nowhere, and breaks none.
fn spans(all: &[VersionCoverage], versions: &[String]) -> String {
    spans_where(all, versions, |of| of.locked)
}

fn spans_where(
    all: &[VersionCoverage],
    versions: &[String],
    counts: impl Fn(&VersionCoverage) -> bool,
) -> String {
    let compared: Vec<&str> =
        all.iter().filter(|of| counts(of)).map(|of| of.version.as_str()).collect();
    let at = |version: &str| compared.iter().position(|other| *other == version);
    let runs = versions.chunk_by(|a, b| at(a).is_some_and(|a| at(b) == Some(a + 1)));
    let runs = runs.map(|run| match run {
        [first, _, .., last] => format!("{first} … {last}"),
        few => few.join(", "),
    });
    runs.collect::<Vec<_>>().join(", ")
}

/// A special case with its verdict, or its verdicts and their versions.
fn judged(
    all: &[VersionCoverage],
    (case, special): &(&str, Special),
    verdicts: BTreeMap<String, Vec<String>>,
) -> SpecialCase {
    let alone = verdicts.len() == 1;
    let verdicts = verdicts.into_iter().map(|(verdict, versions)| match alone {
        true => verdict,
        false => format!("{verdict} at {}", spans(all, &versions)),
    });
    let verdict = verdicts.collect::<Vec<_>>().join("; ");
    SpecialCase { case: (*case).into(), name: special.name.clone(), verdict }
}

/// Complains when other rows hold than the table counts: it was cut off, or edited badly.
fn miscounted(
    table: &Table,
    version: &Version,
    counts: &Counts,
    lineage: &BTreeSet<&str>,
) -> Vec<Diagnostic> {
    let counted = [counts.frontend, counts.uvm, counts.control, counts.alloc];
    let mut complaints = Vec::new();
    for ((kind, rows), stated) in table.rows().into_iter().zip(counted) {
        let count = rows.iter().filter(|row| row.holds(lineage)).count();
        if count != stated {
            let version = &version.version;
            let message = format!(
                "the table counts {stated} {kind} rows at {version}, but {count} of its rows hold there"
            );
            complaints.push(Diagnostic::error("coverage-table", message));
        }
    }
    complaints
}

/// A struct that no row names: no version is said to have it, so it must be the driver's at one of them.
#[derive(Debug, Clone, Default)]
struct OtherLayout {
    fits: bool,
    /// Of the newest version that has the type.
    differences: Vec<String>,
    /// Those that have the type.
    versions: Vec<String>,
}

impl OtherLayout {
    fn compare(&mut self, known: &Known<'_>, table: &Table, of: &OtherStruct) {
        if self.fits || !known.has_type(&of.driver) {
            return;
        }
        self.differences = known.layout_differences(table, &of.go, &of.driver);
        self.fits = self.differences.is_empty();
        self.versions.push(known.facts.tag.to_string());
    }
}

/// A constant that is no row's number, likewise.
#[derive(Debug, Clone, Default)]
struct OtherValue {
    fits: bool,
    /// What the newest version that has it says.
    newest: Option<i128>,
    /// Those that have it.
    versions: Vec<String>,
}

impl OtherValue {
    fn compare(&mut self, known: &Known<'_>, name: &str, value: i128) {
        let mut names = as_written(name).into_iter();
        let Some(ours) = names.find_map(|name| known.constant(name)) else { return };
        self.fits |= ours == value;
        self.newest = Some(ours);
        self.versions.push(known.facts.tag.to_string());
    }
}

/// A name, and the driver's where a version is put behind that: some of the driver's own end so.
fn as_written(name: &str) -> [&str; 2] {
    [name, gvisor::without_version(name)]
}

/// Kind, name and what is missing.
type Key = (Option<ItemKind>, String, String);

#[derive(Default)]
struct Findings {
    gaps: BTreeMap<Key, Vec<String>>,
    lacking: BTreeMap<Key, Vec<String>>,
    untyped: BTreeSet<String>,
    roles: BTreeMap<Key, Vec<String>>,
    disputed: BTreeMap<Key, Vec<String>>,
    unpublished: BTreeMap<Key, Vec<String>>,
}

impl Findings {
    fn rows<'t>(
        &mut self,
        known: &Known<'_>,
        table: &Table,
        kind: ItemKind,
        rows: impl Iterator<Item = &'t Row>,
    ) -> Count {
        let mut count = Count { kind, rows: 0, covered: 0, lacking: 0 };
        for row in rows {
            count.rows += 1;
            let version = known.facts.tag.to_string();
            let key = |missing: String| (Some(kind), row.name.clone(), missing);
            if known.lacks(kind, row) && table.says_missing(&version, &row.name) {
                count.lacking += 1;
                self.lacking.entry(key("the driver has none".into())).or_default().push(version);
                continue;
            }
            let missing = known.gaps(table, kind, row);
            count.covered += usize::from(missing.is_empty());
            for what in missing {
                self.gaps.entry(key(what)).or_default().push(version.clone());
            }
            if row.is_untyped() {
                self.untyped.insert(row.name.clone());
            }
            let item = known.item(kind, &row.name);
            for found in item.into_iter().flat_map(|item| known.disagreements(table, item, row)) {
                let (findings, what) = match known.disputed(row, &found) {
                    Some(disputed) => {
                        (&mut self.disputed, format!("{}; {}", found.what, disputed.evidence))
                    }
                    None => (&mut self.roles, found.what),
                };
                findings.entry(key(what)).or_default().push(version.clone());
            }
        }
        count
    }
}

/// A struct of the table's by its own name, and the driver's type that it is named after.
#[derive(Debug, Clone)]
struct OtherStruct {
    go: String,
    driver: String,
}

impl Table {
    /// The structs that are no parameter of a row, and in none: what pointers lead to, and what is not used yet.
    fn other_structs(&self) -> Vec<OtherStruct> {
        if !self.is_source() {
            return Vec::new();
        }
        let rows = self.rows().into_iter().flat_map(|(_, rows)| rows);
        let mut reached: BTreeSet<&str> = BTreeSet::new();
        let mut next: Vec<&str> =
            rows.flat_map(|row| &row.structs).filter_map(|of| of.go.as_deref()).collect();
        while let Some(name) = next.pop() {
            // `[4]NvHandle`
            let name = name.rsplit(']').next().unwrap_or(name);
            if reached.insert(name) {
                let of = self.structs.iter().filter(|of| of.go_name == name);
                next.extend(of.flat_map(|of| &of.fields).map(|(_, ty)| ty.as_str()));
            }
        }
        let is_other =
            |of: &&roles::Struct| !of.fields.is_empty() && !reached.contains(of.go_name.as_str());
        let others = self.structs.iter().filter(is_other).map(|of| OtherStruct {
            go: of.go_name.clone(),
            driver: gvisor::without_version(&of.go_name).to_owned(),
        });
        others.collect()
    }

    /// The constants that are no number of a row.
    fn other_constants(&self) -> Vec<(&str, i128)> {
        let rows = self.rows().into_iter().flat_map(|(_, rows)| rows);
        let numbers: BTreeSet<&str> = rows.map(|row| row.name.as_str()).collect();
        let constants = self.constants.iter().map(|(name, value)| (name.as_str(), *value));
        constants.filter(|(name, _)| !numbers.contains(name)).collect()
    }

    /// The driver's types and constants that those outside of the rows are named after.
    pub fn other_names(&self) -> Vec<RequestedName> {
        let structs = self.other_structs().into_iter().map(|other| other.driver);
        let constants = self.other_constants().into_iter().flat_map(|(name, _)| as_written(name));
        structs
            .chain(constants.map(str::to_owned))
            .map(|name| RequestedName { name, place: None })
            .collect()
    }

    /// Whether it was read from source code, which says nothing of the driver's headers.
    fn is_source(&self) -> bool {
        self.header_check.is_none()
    }

    fn says_missing(&self, version: &str, constant: &str) -> bool {
        let is_it = |of: &Missing| of.version == version && of.constant == constant;
        self.header_check.as_ref().is_none_or(|check| check.missing_constants.iter().any(is_it))
    }
}

impl Row {
    /// Whether the project copies bytes, or has a way of its own, and so has no types.
    fn is_untyped(&self) -> bool {
        self.structs.is_empty() && matches!(self.handler_kind.as_str(), "bytes" | "custom")
    }
}

fn listed(findings: BTreeMap<Key, Vec<String>>) -> Vec<Finding> {
    let finding = |((kind, name, missing), versions)| Finding { kind, name, missing, versions };
    findings.into_iter().map(finding).collect()
}

/// What is known of one tag.
struct Known<'a> {
    spec: Option<&'a Spec>,
    facts: &'a Facts,
}

impl<'a> Known<'a> {
    fn surfaces(&self) -> impl Iterator<Item = &'a Surface> + use<'a> {
        let facts = self.facts;
        let named = self.spec.into_iter().flat_map(|spec| &spec.surfaces);
        named.filter_map(|surface| facts.surfaces.get(&surface.name))
    }

    fn item(&self, kind: ItemKind, name: &str) -> Option<&'a Item> {
        let mut items = self.spec?.items.iter().filter(|item| item.holds_at(&self.facts.tag));
        items.find(|item| item.kind == kind && item.name == name)
    }

    fn constant(&self, name: &str) -> Option<i128> {
        self.surfaces().find_map(|surface| Some(surface.constants.get(name)?.value))
    }

    /// Whether neither the spec nor the driver has it.
    fn lacks(&self, kind: ItemKind, row: &Row) -> bool {
        self.item(kind, &row.name).is_none() && self.constant(&row.name).is_none()
    }

    /// What of a row is missing, or lies otherwise.
    fn gaps(&self, table: &Table, kind: ItemKind, row: &Row) -> Vec<String> {
        let mut gaps = self.missing(kind, row);
        for of in &row.structs {
            let is_comparable = table.has_layouts() && self.has_type(&of.driver);
            let go = of.go.as_deref().filter(|_| is_comparable);
            let differences = go.map(|go| self.layout_differences(table, go, &of.driver));
            gaps.extend(differences.into_iter().flatten());
        }
        gaps
    }

    /// What of a row is missing.
    fn missing(&self, kind: ItemKind, row: &Row) -> Vec<String> {
        let Some(spec) = self.spec else {
            return vec![format!("there is no spec of driver {}", self.facts.tag.branch())];
        };
        let Some(item) = self.item(kind, &row.name) else {
            let (name, section) = (&spec.name, kind.section());
            let of_driver = match self.constant(&row.name) {
                Some(value) => format!("the driver has the constant, {value:#x}"),
                None => {
                    "nor has the driver, of which the table's `header_check` says nothing".into()
                }
            };
            return vec![format!("{name} has no such item in [{section}]; {of_driver}")];
        };
        let mut missing = Vec::new();
        let number = item.number.map(i128::from).or_else(|| self.constant(&row.name));
        if number != Some(row.number.into()) {
            let ours = number.map_or("none".to_owned(), |number| format!("{number:#x}"));
            missing.push(format!("the table has number {:#x}, spec and lock {ours}", row.number));
        }
        missing.extend(row.wrong_params(item));
        let types = item.params.iter().filter(|named| !self.has_type(&named.name));
        missing.extend(types.map(|named| format!("the lock has no type `{}`", named.name)));
        missing
    }

    /// Who is right about a special case.
    fn verdict(&self, special: &Special) -> String {
        let Special { name, number, size, .. } = special;
        let record = self.surfaces().find_map(|surface| surface.records.get(name));
        match (self.constant(name), record, number, size) {
            (None, None, ..) => "the driver's headers have no such name".into(),
            (Some(ours), _, Some(number), _) if ours == i128::from(*number) => {
                format!("both have {number:#x}")
            }
            (Some(ours), _, Some(number), _) => {
                format!("the table has {number:#x}, the driver {ours:#x}: the driver is right")
            }
            (_, Some(record), _, Some(size)) if record.size == *size => {
                format!("both have {size} bytes")
            }
            (_, Some(record), _, Some(size)) => {
                let ours = record.size;
                format!("the table has {size} bytes, the driver {ours}: the driver is right")
            }
            (Some(ours), ..) => format!("the driver has it, {ours:#x}"),
            (None, Some(_), ..) => "the driver has it".into(),
        }
    }

    fn has_type(&self, name: &str) -> bool {
        let has = |s: &Surface| s.records.contains_key(name) || s.aliases.contains_key(name);
        self.surfaces().any(has)
    }
}

impl Row {
    fn wrong_params(&self, item: &Item) -> Option<String> {
        if self.is_untyped() {
            return None;
        }
        let theirs: BTreeSet<&str> = self.structs.iter().map(|of| of.driver.as_str()).collect();
        let ours: BTreeSet<&str> = item.params.iter().map(|named| named.name.as_str()).collect();
        if theirs != ours {
            let (theirs, ours) = (names_text(&theirs), names_text(&ours));
            return Some(format!("the table has parameters {theirs}, the spec {ours}"));
        }
        let silent = theirs.is_empty() && !item.parameterless;
        silent.then(|| "the table has no parameters, but the spec does not say so".to_owned())
    }
}

fn names_text(names: &BTreeSet<&str>) -> String {
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.iter().copied().collect::<Vec<_>>().join(", "),
    }
}

impl Coverage {
    /// All of one sort, over all versions.
    pub fn total(&self, of: impl Fn(&Count) -> usize) -> usize {
        self.versions.iter().flat_map(|version| &version.kinds).map(of).sum()
    }

    /// A line for each version, then what the driver has not.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{:<12}{:>10}{:>8}{:>10}{:>10}{:>7}{:>9}\n",
            "version", "frontend", "uvm", "control", "class", "gaps", "lacking"
        );
        for version in &self.versions {
            let _ = match version.locked {
                true => writeln!(text, "{}", version.text()),
                false => writeln!(text, "{:<12}  {}", version.version, version.unlocked()),
            };
        }
        for found in &self.lacking {
            let (row, at) = (found.row(""), spans(&self.versions, &found.versions));
            let row = row.trim_end_matches([':', ' ']);
            let _ = writeln!(text, "the driver has none: {row} at {at}");
        }
        for found in &self.unpublished {
            let at = spans_where(&self.versions, &found.versions, |of| !of.locked);
            let _ = writeln!(text, "not in the lock: {}{} at {at}", found.row(""), found.missing);
        }
        for found in &self.disputed {
            let (row, at) = (found.row(""), spans(&self.versions, &found.versions));
            let _ = writeln!(text, "disputed: {row}{} at {at}", found.missing);
        }
        for SpecialCase { case, name, verdict } in &self.special {
            let _ = writeln!(text, "{case}: {name}: {verdict}");
        }
        text
    }

    /// The gaps and the roles that differ, as complaints.
    pub fn report(&self) -> Report {
        let complaint = |code, found: &Finding| {
            let what = format!("{}{}", found.row("`"), found.missing);
            let at = spans(&self.versions, &found.versions);
            Diagnostic::error(code, what).note(format!("at {at}"))
        };
        let gaps = self.gaps.iter().map(|gap| complaint("coverage-gap", gap));
        let roles = self.roles.iter().map(|role| {
            let help = "correct the role, or justify it in [disputed] (docs/roles.md)";
            complaint("coverage-role", role).help(help)
        });
        Report { diagnostics: gaps.chain(roles).collect() }
    }
}

impl VersionCoverage {
    fn text(&self) -> String {
        let mut text = format!("{:<12}", self.version);
        let (mut gaps, mut lacking) = (0, 0);
        for (count, width) in self.kinds.iter().zip([10, 8, 10, 10]) {
            let _ = write!(text, "{:>width$}", format!("{}/{}", count.covered, count.rows));
            gaps += count.gaps();
            lacking += count.lacking;
        }
        let _ = write!(text, "{gaps:>7}{lacking:>9}");
        text
    }
}

impl Count {
    /// Rows with something missing that the driver has.
    pub fn gaps(&self) -> usize {
        self.rows - self.covered - self.lacking
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvabi_pipeline::lock::{Fact, add};
    use nvabi_pipeline::model::{Record, RecordKind, Source};

    const TABLE: &str = r#"{
        "versions": [
            { "version": "1.1", "parent": null, "tag_available": true,
              "counts": { "frontend": 1, "uvm": 0, "control": 1, "alloc": 1 } },
            { "version": "1.2", "parent": "1.1", "tag_available": true },
            { "version": "1.3", "parent": "1.2", "tag_available": false }
        ],
        "frontend": [
            { "name": "ESC", "nr": 43, "structs": [{ "driver": "P", "go": "P" }],
              "handler_kind": "simple", "since": null, "until": "1.2" },
            { "name": "ESC", "nr": 44, "structs": [{ "driver": "P", "go": null }],
              "handler_kind": "simple", "since": "1.2", "until": null }
        ],
        "uvm": [],
        "control": [
            { "name": "CMD", "cmd": "0x00000007", "structs": [],
              "handler_kind": "simple", "since": null, "until": null }
        ],
        "alloc": [
            { "name": "CLASS", "class_id": "0x00000009", "structs": [],
              "handler_kind": "bytes", "since": null, "until": null }
        ],
        "header_check": { "missing_constants": [{ "version": "1.1", "constant": "CLASS" }] }
    }"#;

    const SPEC: &str = "driver = \"1\"\n[surface.rm]\nheaders = [\"*.h\"]\n\
        [frontend]\nESC = { params = \"P\" }\n[control]\nCMD = { parameterless = true }\n\
        [class]\nCLASS = { params = \"P\", since = \"1.2\" }\n";

    fn lock() -> Lock {
        let mut lock = Lock::default();
        for (tag, esc, class) in [("1.1", 43, None), ("1.2", 44, Some(9))] {
            let source = || Source { path: "a.h".into(), line: 1 };
            let mut surface = Surface::default();
            let params = Record {
                kind: RecordKind::Struct,
                size: 4,
                align: 4,
                source: source(),
                fields: [].into(),
            };
            surface.records.insert("P".into(), params);
            let numbers = [("ESC", Some(esc)), ("CMD", Some(7)), ("CLASS", class)];
            for (name, number) in numbers {
                let Some(number) = number else { continue };
                add(&mut surface, name, &Fact::Constant(number), source());
            }
            let surfaces = BTreeMap::from([("rm".to_owned(), surface)]);
            lock.insert(&Facts { tag: tag.parse().unwrap(), surfaces }, tag.to_owned());
        }
        lock
    }

    fn checked(table: &str, spec: &str) -> Result<Coverage, Report> {
        let files = [("driver-1".to_owned(), "driver-1.toml".to_owned(), spec.to_owned())];
        let table: Table = serde_json::from_str(table).unwrap();
        check(&lock(), &Spec::parse_all(&files).unwrap(), &table)
    }

    /// The gaps of a table or a spec with one thing replaced: what, and where.
    fn gaps(from: &str, to: &str) -> Vec<String> {
        let replaced = |text: &str| text.replacen(from, to, 1);
        assert!(TABLE.contains(from) || SPEC.contains(from), "{from}");
        let found = checked(&replaced(TABLE), &replaced(SPEC)).unwrap();
        let text =
            |gap: Finding| format!("{}{} at {}", gap.row(""), gap.missing, gap.versions.join(", "));
        found.gaps.into_iter().map(text).collect()
    }

    #[test]
    fn a_table_that_is_covered() {
        let found = checked(TABLE, SPEC).unwrap();
        assert_eq!(found.gaps, []);
        assert_eq!(
            found.text(),
            "version       frontend     uvm   control     class   gaps  lacking\n\
             1.1                1/1     0/0       1/1       0/1      0        1\n\
             1.2                1/1     0/0       1/1       1/1      0        0\n\
             1.3           not in the lock; 3 of 3 rows fit 1.2, the last tag before it\n\
             the driver has none: class CLASS at 1.1\n"
        );
        assert_eq!(found.untyped, BTreeSet::from(["CLASS".to_owned()]));
        let totals =
            [found.total(|c| c.rows), found.total(|c| c.covered), found.total(Count::gaps)];
        assert_eq!(totals, [6, 5, 0]);
    }

    #[test]
    fn versions_that_follow_each_other_are_a_span() {
        let version = |(version, locked): (&str, bool)| VersionCoverage {
            version: version.to_owned(),
            locked,
            kinds: Vec::new(),
            bounds: None,
        };
        let all = [("1", true), ("2", true), ("2b", false), ("3", true), ("4", true), ("5", true)];
        let all = all.map(version);
        let text = |versions: &[&str]| {
            spans(&all, &versions.iter().map(|version| (*version).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(text(&["1", "2", "3", "4", "5"]), "1 … 5");
        assert_eq!(text(&["1", "2", "4"]), "1, 2, 4");
        assert_eq!(text(&["1", "3", "4", "5"]), "1, 3 … 5");
        assert_eq!(text(&["2b"]), "2b");
    }

    #[test]
    fn every_kind_of_gap_is_reported() {
        let told = [
            (
                "\"nr\": 43",
                "\"nr\": 42",
                "frontend ESC: the table has number 0x2a, spec and lock 0x2b at 1.1",
            ),
            (
                "[{ \"driver\": \"P\", \"go\": null }]",
                "[{ \"driver\": \"Q\" }]",
                "frontend ESC: the table has parameters Q, the spec P at 1.2",
            ),
            (
                "ESC = { params = \"P\" }",
                "ESC = { params = \"P\", until = \"1.2\" }",
                "frontend ESC: driver-1 has no such item in [frontend]; the driver has the constant, 0x2c at 1.2",
            ),
            (
                "\"version\": \"1.1\", \"constant\"",
                "\"version\": \"1.2\", \"constant\"",
                "class CLASS: driver-1 has no such item in [class]; nor has the driver, of which the table's `header_check` says nothing at 1.1",
            ),
            (
                "CMD = { parameterless = true }",
                "CMD = {}",
                "control CMD: the table has no parameters, but the spec does not say so at 1.1, 1.2",
            ),
            (
                "\"parent\": \"1.2\", \"tag_available\": false",
                "\"parent\": \"1.2\", \"tag_available\": true",
                "the lock has no such tag at 1.3",
            ),
            (
                "CLASS = { params = \"P\"",
                "CLASS = { params = \"Gone\"",
                "class CLASS: the lock has no type `Gone` at 1.2",
            ),
            (
                "driver = \"1\"",
                "driver = \"2\"",
                "frontend ESC: there is no spec of driver 1 at 1.1, 1.2",
            ),
        ];
        for (from, to, gap) in told {
            let found = gaps(from, to);
            assert_eq!(found.first().map(String::as_str), Some(gap), "{found:?}");
        }
    }

    #[test]
    fn a_table_that_contradicts_itself_is_refused() {
        let told = [
            (
                "\"frontend\": 1",
                "\"frontend\": 2",
                "the table counts 2 frontend rows at 1.1, but 1 of its rows hold there",
            ),
            (
                "\"parent\": \"1.1\"",
                "\"parent\": \"1.0\"",
                "`1.2` descends from `1.0`, which is no version",
            ),
            ("\"parent\": null", "\"parent\": \"1.2\"", "`1.1` descends from itself"),
        ];
        for (from, to, complaint) in told {
            let report = checked(&TABLE.replacen(from, to, 1), SPEC).unwrap_err();
            let messages: Vec<_> = report.diagnostics.iter().map(|d| d.message.as_str()).collect();
            assert!(messages.contains(&complaint), "{messages:?}");
        }
    }

    #[test]
    fn a_number_that_is_none_is_refused() {
        for (from, to) in [("43", "-1"), ("43", "4294967296"), ("\"0x00000007\"", "\"7\"")] {
            let table = serde_json::from_str::<Table>(&TABLE.replacen(from, to, 1));
            assert!(table.is_err(), "{to}");
        }
    }
}
