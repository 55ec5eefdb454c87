//! Which tags have the same ABI: of one name, or of a set of names at once.
//!
//! The ABI of a call at a tag is its number and the layouts of its parameters and of what its
//! pointers lead to, all the way down. Names of fields count: the same bytes under another name
//! mean something else. Names of types, spellings of scalars and lines of headers do not, nor do the
//! values of constants that are not asked for by name. Facts are those of the first target of the spec.
//!
//! Of a name that is asked for, what the specs do not say of a call the driver's facts do
//! ([`with_driver_calls`]). Over the calls of the specs as a whole, one that the spec of a branch does not
//! name is *absent* from the branch's tags.

pub mod derives;
mod find;
mod nearest;
mod shapes;
mod text;

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use nvabi_pipeline::diagnostic::{Diagnostic, Report, SourceSpan, nearest as nearest_name};
use nvabi_pipeline::known;
use nvabi_pipeline::lock::{ItemKind as LockKind, Lock};
use nvabi_pipeline::model::Access;
use nvabi_pipeline::spec::{Item, Named, Spec};

pub use find::Abis;
pub use nearest::{Basis, Nearest};
pub use text::{one as one_text, one_at as one_at_text, set as set_text};

/// Stands for "this tag does not have it" where layouts are numbered.
const ABSENT: u32 = 0;

/// A name that somebody asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedName {
    /// A call, a record, an enum, a typedef, a constant, an enumerator or a bit range.
    pub name: String,
    /// Where it was asked, when that is a file.
    pub place: Option<SourceSpan>,
}

/// Tags that follow each other in the lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Span {
    /// The oldest.
    pub first: String,
    /// The newest.
    pub last: String,
    /// How many the lock has of them.
    pub count: usize,
}

/// One name over all tags.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct One {
    /// The name.
    pub name: String,
    /// `frontend`, `uvm`, `control`, `class`, `ioctl`, `type` or `constant`.
    pub kind: &'static str,
    /// In the order of their first tags.
    pub layouts: Vec<Layout>,
    /// Of a command or class: whom the driver lets make it, where its tables tell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<CallersAt>,
    /// Tags without it.
    pub absent: Vec<Span>,
}

/// The tags at which the driver lets the same programs make a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallersAt {
    /// Whom.
    pub access: Access,
    /// In version order.
    pub spans: Vec<Span>,
}

/// One name as it is at a tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OneAt {
    /// Over all tags.
    #[serde(flatten)]
    pub one: One,
    /// The first tag from which on it is as it is at the tag; `None` where the tag does not have it.
    pub since: Option<String>,
    /// The first tag after that at which it is gone or otherwise; `None` where that goes on to the newest.
    pub until: Option<String>,
}

/// One of the ABIs that a name has had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Layout {
    /// `A` for the first.
    pub label: String,
    /// What it is made of, as of its first tag.
    pub parts: Vec<Part>,
    /// In version order; several where it came back.
    pub spans: Vec<Span>,
    /// Every tag that has it.
    pub tags: Vec<String>,
}

/// A number or a type that a layout is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Part {
    /// The name in the headers.
    pub name: String,
    /// For a constant or a call's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Bytes, for a type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Bytes, for a record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub align: Option<u64>,
    /// `path:line`; `None` for what the headers do not have.
    pub source: Option<String>,
}

/// A set of names over all tags.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Set {
    /// How many names there are.
    pub names: usize,
    /// Maximal ranges, in version order.
    pub ranges: Vec<Range>,
    /// The tags of each ABI, in the order of their first tags.
    pub abis: Vec<SetAbi>,
}

/// A maximal range of tags with the same ABI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Range {
    /// Ranges with the same label have the same ABI.
    pub label: String,
    /// Its tags.
    #[serde(flatten)]
    pub span: Span,
    /// The names whose ABI is not what it is in the range before.
    pub changed: Vec<String>,
}

/// The tags of one ABI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SetAbi {
    /// As in the ranges.
    pub label: String,
    /// Every tag that has it.
    pub tags: Vec<String>,
}

/// What has to be read of a lock to answer for some names, or for every call when there are none:
/// a spec for [`nvabi_pipeline::lock::read_closure`]. The specs are left with the calls that are asked for.
///
/// The specs of a driver's branches say mostly the same; this says each name once.
pub fn request(specs: &mut [Spec], names: Option<&[RequestedName]>) -> Option<Spec> {
    if let Some(names) = names {
        let wanted: HashSet<&str> = names.iter().map(|asked| asked.name.as_str()).collect();
        let retain = |spec: &mut Spec| spec.items.retain(|item| wanted.contains(&*item.name));
        specs.iter_mut().for_each(retain);
    }
    let place = &specs.first()?.surfaces.first()?.place;
    let asked: Vec<Named> = (names.into_iter().flatten())
        .map(|asked| Named { name: asked.name.clone(), place: place.clone() })
        .collect();
    let items = || specs.iter().flat_map(|spec| &spec.items);
    let numbers = items().map(|item| Named { name: item.name.clone(), place: item.place.clone() });
    let of_items = items().flat_map(|item| item.params.iter().chain(item.pointees()).cloned());
    let constants = once_each(asked.iter().cloned().chain(numbers));
    let extra_types = once_each(asked.into_iter().chain(of_items));
    let mut request = specs.first()?.clone();
    request.items.clear();
    (request.constants, request.extra_types) = (constants, extra_types);
    Some(request)
}

/// The specs, with an item for each call that is requested where no spec names it and the driver has it.
///
/// What the spec of one branch says of a call holds for others that do not name it.
pub fn with_driver_calls(lock: &Lock, specs: &[Spec], names: &[RequestedName]) -> Vec<Spec> {
    let wanted: HashSet<&str> = names.iter().map(|asked| asked.name.as_str()).collect();
    let complete = |(at, spec): (usize, &Spec)| {
        let mut complete = known::with_driver_calls(lock, spec, &|name| wanted.contains(name));
        for item in &mut complete.items[spec.items.len()..] {
            let others =
                specs.iter().enumerate().flat_map(|(i, s)| s.items.iter().map(move |o| (i, o)));
            let alike = |other: &Item| {
                let takes = |ty: &Named| other.params.iter().any(|param| param.name == ty.name);
                (other.kind, &other.name) == (item.kind, &item.name)
                    && item.params.iter().all(takes)
            };
            let nearest =
                others.filter(|(_, other)| alike(other)).min_by_key(|(i, _)| i.abs_diff(at));
            if let Some((_, other)) = nearest {
                *item =
                    Item { since: item.since.take(), until: item.until.take(), ..other.clone() };
            }
        }
        complete
    };
    specs.iter().enumerate().map(complete).collect()
}

fn once_each(names: impl Iterator<Item = Named>) -> Vec<Named> {
    let mut seen = HashSet::new();
    names.filter(|named| seen.insert(named.name.clone())).collect()
}

/// Complains of names that neither specs nor lock have, with what was meant most likely.
pub fn unknown(lock: &Lock, specs: &[Spec], names: &[RequestedName]) -> Report {
    let shapes = shapes::Shapes::new(lock);
    let of_lock = shapes.names();
    let of_specs = specs.iter().flat_map(|spec| &spec.items).map(|item| item.name.as_str());
    let mut known: Vec<&str> = of_lock.chain(of_specs).collect();
    known.sort_unstable();
    known.dedup();
    complaints("ranges-unknown", "no locked tag has", names.iter(), &known).sorted()
}

/// Names that are complained of one by one: of a list for another driver all are unknown.
const COMPLAINTS: usize = 50;

/// Complains of names that are not among the known ones: `nobody` is who has none of them.
pub(crate) fn complaints<'a>(
    code: &'static str,
    nobody: &str,
    names: impl ExactSizeIterator<Item = &'a RequestedName>,
    known: &[&str],
) -> Report {
    let mut report = Report::default();
    let more = names.len().saturating_sub(COMPLAINTS);
    if more > 0 {
        report.push(Diagnostic::error(code, format!("{nobody} {more} more of the names")));
    }
    for asked in names.take(COMPLAINTS) {
        let message = format!("{nobody} anything named `{}`", asked.name);
        let mut complaint = Diagnostic::error(code, message);
        if let Some(near) = near(&asked.name, known) {
            complaint = complaint.help(format!("did you mean `{near}`?"));
        }
        report.push(match &asked.place {
            Some(place) => complaint.at(place.clone()),
            None => complaint,
        });
    }
    report
}

/// The name that is meant most likely; people do not mind upper and lower case.
fn near<'a>(wanted: &str, known: &[&'a str]) -> Option<&'a str> {
    // Names of other lengths are too far away anyway, and there are 100,000.
    let far = 1 + wanted.len() / 5;
    let close = known.iter().copied().filter(|name| name.len().abs_diff(wanted.len()) <= far);
    let lower: Vec<(String, &str)> = close.map(|name| (name.to_lowercase(), name)).collect();
    let found = nearest_name(&wanted.to_lowercase(), lower.iter().map(|(name, _)| name.as_str()))?;
    lower.iter().find(|(name, _)| name == found).map(|(_, name)| *name)
}

/// `A` to `Z`, then `AA`.
fn label(mut number: usize) -> String {
    let mut label = String::new();
    loop {
        label.insert(0, char::from(b'A' + (number % 26) as u8));
        match (number / 26).checked_sub(1) {
            Some(rest) => number = rest,
            None => return label,
        }
    }
}

/// Labels by id, in the order in which the ids appear.
fn labels(ids: &[u32]) -> HashMap<u32, String> {
    let mut labels = HashMap::new();
    for id in ids.iter().filter(|id| **id != ABSENT) {
        let next = labels.len();
        labels.entry(*id).or_insert_with(|| label(next));
    }
    labels
}

/// Where the same id stands in a row: the id, its first index, and the one after its last.
fn runs(ids: &[u32]) -> impl Iterator<Item = (u32, std::ops::Range<usize>)> + '_ {
    let mut at = 0;
    ids.chunk_by(|a, b| a == b).map(move |run| {
        let start = at;
        at += run.len();
        (run[0], start..at)
    })
}

/// Whether a kind of the lock is a type.
fn is_type(kind: LockKind) -> bool {
    kind != LockKind::Constant
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use nvabi_pipeline::lock::{Fact, add};
    use nvabi_pipeline::model::{Facts, Field, RecordKind, Source, Surface};

    /// A record of scalars and records: `(name, offset, size, type)` each.
    fn record(size: u64, fields: &[(&str, u64, u64, &str)]) -> Fact {
        let field = |(name, offset, size, ty): &(&str, u64, u64, &str)| Field {
            name: (*name).to_owned(),
            ty: (*ty).to_owned(),
            canonical: (*ty).to_owned(),
            offset: *offset,
            size: *size,
            bits: None,
        };
        let (kind, align) = (RecordKind::Struct, 4);
        Fact::Record { kind, size, align, fields: fields.iter().map(field).collect() }
    }

    fn alias(ty: &str, size: u64) -> Fact {
        Fact::Alias { ty: ty.to_owned(), size }
    }

    /// A lock of tags `1.1`, `1.2` and so on, each with its facts; a fact's line is the tag's.
    fn lock(tags: &[&[(&str, Fact)]]) -> Lock {
        let mut lock = Lock::default();
        for (number, items) in (1..).zip(tags) {
            let mut surface = Surface::default();
            for (name, fact) in *items {
                add(&mut surface, name, fact, Source { path: "a.h".into(), line: number });
            }
            let surfaces = BTreeMap::from([("rm".to_owned(), surface)]);
            let tag = format!("1.{number}").parse().unwrap();
            lock.insert(&Facts { tag, surfaces }, number.to_string());
        }
        lock
    }

    fn specs(items: &str) -> Vec<Spec> {
        let text = format!("driver = \"1\"\n[surface.rm]\nheaders = [\"*.h\"]\n{items}");
        Spec::parse_all(&[("driver-1".into(), "driver-1.toml".into(), text)]).unwrap()
    }

    fn asked(names: &[&str]) -> Vec<RequestedName> {
        names.iter().map(|name| RequestedName { name: (*name).to_owned(), place: None }).collect()
    }

    /// The label of each tag, `-` for absent.
    fn labels_of(lock: &Lock, specs: &[Spec], name: &str) -> String {
        let names = asked(&[name]);
        let abis = Abis::of_names(lock, specs, &names).unwrap_or_else(|_| unreachable!());
        let row = &abis.names[0];
        let labels = labels(&row.ids);
        row.ids.iter().map(|id| labels.get(id).map_or("-", String::as_str)).collect()
    }

    const U32: &str = "unsigned int";

    #[test]
    fn a_layout_that_comes_back_has_two_spans() {
        let (small, large) =
            (record(4, &[("a", 0, 4, U32)]), record(8, &[("a", 0, 4, U32), ("b", 4, 4, U32)]));
        let lock = lock(&[
            &[],
            &[("P", small.clone())],
            &[("P", large.clone())],
            &[("P", small.clone())],
            &[("P", small)],
        ]);
        let (specs, names) = (specs(""), asked(&["P"]));
        let abis = Abis::of_names(&lock, &specs, &names).unwrap_or_else(|_| unreachable!());
        let one = &abis.each()[0];
        assert_eq!(
            one_text(one),
            "P (type): 2 layouts in 4 tags\n\
             \x20 A   1.2                         1 tag  size 4, align 4  a.h:2\n\
             \x20     1.4 … 1.5                  2 tags\n\
             \x20 B   1.3                         1 tag  size 8, align 4  a.h:3\n\
             \x20 -   1.1                         1 tag  absent\n"
        );
    }

    /// Neither size nor a field of the outer record tells, nor does a line.
    #[test]
    fn a_field_that_moves_deep_inside_is_a_change() {
        let outer = || ("P", record(8, &[("inner", 0, 8, "Inner")]));
        let inner = |a, b| ("Inner", record(8, &[("a", a, 4, U32), ("b", b, 4, U32)]));
        let lock =
            lock(&[&[outer(), inner(0, 4)], &[outer(), inner(0, 4)], &[outer(), inner(4, 0)]]);
        assert_eq!(labels_of(&lock, &specs(""), "P"), "AAB");
    }

    #[test]
    fn names_of_fields_count_and_names_of_types_do_not() {
        let outer = |field, ty| ("P", record(4, &[(field, 0, 4, ty)]));
        let inner = |name| (name, record(4, &[("a", 0, 4, U32)]));
        let lock = lock(&[
            &[outer("x", "Old"), inner("Old")],
            &[outer("x", "New"), inner("New")],
            &[("P", alias("P_V2", 4)), ("P_V2", outer("x", "New").1), inner("New")],
            &[outer("y", "New"), inner("New")],
        ]);
        assert_eq!(labels_of(&lock, &specs(""), "P"), "AAAB");
    }

    #[test]
    fn arrays_and_enums_count() {
        let outer = |ty| ("P", record(16, &[("x", 0, 16, ty)]));
        let item = || ("T", record(4, &[("a", 0, 4, U32)]));
        let kinds = |names: &[&str]| {
            let variants = names.iter().zip(0..).map(|(name, value)| ((*name).to_owned(), value));
            ("E", Fact::Enum { size: 4, variants: variants.collect() })
        };
        let lock = lock(&[
            &[outer("T[4]"), item()],
            &[outer("T[2][2]"), item()],
            &[outer("E[4]"), kinds(&["X"])],
            &[outer("E[4]"), kinds(&["X", "Y"])],
            &[outer("E[4]"), kinds(&["Y", "X"])],
        ]);
        assert_eq!(labels_of(&lock, &specs(""), "P"), "ABCDE");
    }

    #[test]
    fn a_record_that_holds_itself_ends() {
        let lock = lock(
            &[&[("P", record(4, &[("x", 0, 4, "P")]))], &[("Q", alias("Q", 4))]]
                .map(|items| items as &[_]),
        );
        assert_eq!(labels_of(&lock, &specs(""), "P"), "A-");
        assert_eq!(labels_of(&lock, &specs(""), "Q"), "-A");
    }

    const CALL: &str = "[control]\n\
        CMD = { params = \"P\", pointers = [{ field = \"p\", of = \"T\" }], until = \"1.5\" }\n";

    #[test]
    fn a_call_is_its_number_its_parameters_and_what_its_pointers_lead_to() {
        let params = || ("P", record(8, &[("p", 0, 8, "void *")]));
        let to = |size| ("T", record(size, &[("a", 0, 4, U32)]));
        let number = |value| ("CMD", Fact::Constant(value));
        let lock = lock(&[
            &[number(7), params(), to(4)],
            &[number(7), params(), to(8)],
            &[number(8), params(), to(8)],
            &[params(), to(8)],
            &[number(7), params(), to(4)],
        ]);
        assert_eq!(labels_of(&lock, &specs(CALL), "CMD"), "ABC--");
        // Where no spec has it as a call the constant alone is meant.
        assert_eq!(labels_of(&lock, &specs(""), "CMD"), "AAB-A");
    }

    /// Two calls over six tags: `AABBAC` together.
    fn two_calls() -> (Lock, Vec<Spec>) {
        let params = |size| ("P", record(size, &[("a", 0, 4, U32)]));
        let first = || ("ONE", Fact::Constant(1));
        let second = |value| ("TWO", Fact::Constant(value));
        let lock = lock(&[
            &[first(), second(2), params(4)],
            &[first(), second(2), params(4)],
            &[first(), second(2), params(8)],
            &[first(), second(2), params(8)],
            &[first(), second(2), params(4)],
            &[first(), second(3), params(8)],
        ]);
        (lock, specs("[uvm]\nONE = { params = \"P\" }\nTWO = { parameterless = true }\n"))
    }

    #[test]
    fn a_set_is_cut_into_maximal_ranges() {
        let (lock, specs) = two_calls();
        let set = Abis::of_specs(&lock, &specs).set();
        assert_eq!(
            set_text(&set),
            "A   1.1 … 1.2                  2 tags\n\
             B   1.3 … 1.4                  2 tags    1 differ: ONE\n\
             A   1.5                         1 tag    1 differ: ONE\n\
             C   1.6                         1 tag    2 differ: ONE, TWO\n"
        );
        assert_eq!((set.names, set.abis.len()), (2, 3));
        assert_eq!(set.abis[0].tags, ["1.1", "1.2", "1.5"]);
    }

    #[test]
    fn the_nearest_tag_is_told_where_it_is_known() {
        let (lock, specs) = two_calls();
        let abis = Abis::of_specs(&lock, &specs);
        let told = |tag: &str| {
            let found = abis.nearest(&tag.parse().unwrap());
            (found.is_known(), found.text())
        };
        let told_of = |tag: &str, known: bool, text: &str| {
            assert_eq!(told(tag), (known, format!("{tag}: {text}\n")));
        };
        let locked = |tag: &str, text: &str| {
            assert_eq!(told(tag), (true, format!("{tag} is locked: {text}\n")));
        };
        told_of("1.1.1", true, "between 1.1 and 1.2, same ABI on both sides; nearest 1.1");
        locked("1.2", "same ABI as 1.1, and from 1.1 to 1.2");
        locked("1.5", "same ABI as 1.2, though not next to it");
        locked("1.6", "no other tag has the same ABI");
        told_of("1.02.0", true, "1.2 is locked: same ABI as 1.1, and from 1.1 to 1.2");
        let first = "same branch, one ABI from 1.1 to 1.2 (2 tags): use 1.1";
        let unproven = "only the headers of the tag can prove it";
        let oldest = "\n    no locked tag is older";
        told_of("1.0", true, &format!("{first}; {unproven}{oldest}"));
        let last = "same branch, 1.6 is the only tag with its ABI next to it: use 1.6";
        told_of("1.7", true, &format!("{last}; {unproven}"));
        told_of("0.9", false, "before 1.1, nothing known");
        told_of("2.0", false, "after 1.6, nothing known");
        let differ = "between 1.5 and 1.6, whose ABIs are not the same: 2 names differ";
        told_of("1.5.3", false, &format!("{differ}\n    ONE\n    TWO"));
    }

    #[test]
    fn what_nobody_knows_is_given_back() {
        let (lock, specs) = two_calls();
        let names = asked(&["ONE", "NvNothing", "P"]);
        let Err(missing) = Abis::of_names(&lock, &specs, &names) else { unreachable!() };
        assert_eq!(missing, asked(&["NvNothing"]));
        let report = unknown(&lock, &specs, &asked(&["one", "NvNothing"]));
        let helps: Vec<_> = report.diagnostics.iter().map(|d| d.help.as_deref()).collect();
        assert_eq!(helps, [Some("did you mean `ONE`?"), None]);
    }

    #[test]
    fn a_request_names_everything_once() {
        let (_, mut specs) = two_calls();
        let both = [specs.remove(0), self::specs(CALL).remove(0)];
        let names = |named: &[Named]| named.iter().map(|n| n.name.clone()).collect::<Vec<_>>();
        let all = request(&mut both.clone(), None).unwrap();
        assert_eq!(names(&all.constants), ["ONE", "TWO", "CMD"]);
        assert_eq!(names(&all.extra_types), ["P", "T"]);
        let some = request(&mut both.clone(), Some(&asked(&["CMD", "P"]))).unwrap();
        assert_eq!(names(&some.constants), ["CMD", "P"]);
        assert_eq!(names(&some.extra_types), ["CMD", "P", "T"]);
    }

    #[test]
    fn labels_go_on_after_z() {
        let texts = [0, 25, 26, 27, 51, 52, 701, 702].map(label);
        assert_eq!(texts, ["A", "Z", "AA", "AB", "AZ", "BA", "ZZ", "AAA"]);
    }

    #[test]
    fn a_name_is_found_whatever_its_case() {
        let known = ["NVOS21_PARAMETERS", "NVOS64_PARAMETERS", "NvHandle"];
        assert_eq!(near("nvhandle", &known), Some("NvHandle"));
        assert_eq!(near("nvos21_parameter", &known), Some("NVOS21_PARAMETERS"));
        assert_eq!(near("UVM_INITIALIZE", &known), None);
    }
}
