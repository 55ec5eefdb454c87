//! Where two sets of facts part.

use std::collections::BTreeMap;

use crate::model::{Access, Call, CallParams, Embedded, Facts, Field, Record, Source, Surface};

/// One fact on which two sides disagree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The surface it is in.
    pub surface: String,
    /// The item.
    pub item: String,
    /// What of it, such as `field status: offset`.
    pub what: String,
    /// The first side's value, or `missing`.
    pub first: String,
    /// The second side's value, or `missing`.
    pub second: String,
    /// Where the item is declared: the second side's place if it has one.
    pub source: Option<Source>,
}

/// Every difference between two sets of facts, by surface and name.
pub fn facts(first: &Facts, second: &Facts) -> Vec<Difference> {
    let mut found = Vec::new();
    let empty = Surface::default();
    let mut names: Vec<&String> = first.surfaces.keys().chain(second.surfaces.keys()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let a = first.surfaces.get(name).unwrap_or(&empty);
        let b = second.surfaces.get(name).unwrap_or(&empty);
        let mut comparer = Comparer { surface: name, found: &mut found };
        comparer.surfaces(a, b);
    }
    found
}

struct Comparer<'a> {
    surface: &'a str,
    found: &'a mut Vec<Difference>,
}

impl Comparer<'_> {
    fn surfaces(&mut self, a: &Surface, b: &Surface) {
        self.each("record", &a.records, &b.records, |r| &r.source, Self::records);
        self.each(
            "enum",
            &a.enums,
            &b.enums,
            |e| &e.source,
            |this, name, a, b| {
                this.value(name, "size", a.size, b.size, &b.source);
                let (mut variants, source) =
                    (a.variants.keys().chain(b.variants.keys()), &b.source);
                let mut names: Vec<_> = variants.by_ref().collect();
                names.sort_unstable();
                names.dedup();
                for variant in names {
                    let show =
                        |value: Option<&i128>| value.map_or("missing".into(), i128::to_string);
                    let (x, y) = (show(a.variants.get(variant)), show(b.variants.get(variant)));
                    this.value(name, &format!("enumerator {variant}"), x, y, source);
                }
            },
        );
        self.each(
            "typedef",
            &a.aliases,
            &b.aliases,
            |a| &a.source,
            |this, name, a, b| {
                this.value(name, "size", a.size, b.size, &b.source);
                this.value(name, "type", &a.ty, &b.ty, &b.source);
            },
        );
        self.each(
            "constant",
            &a.constants,
            &b.constants,
            |c| &c.source,
            |this, name, a, b| {
                this.value(name, "value", a.value, b.value, &b.source);
            },
        );
        self.each(
            "bit range",
            &a.bit_ranges,
            &b.bit_ranges,
            |r| &r.source,
            |this, name, a, b| {
                let show = |r: &crate::model::BitRange| format!("{}:{}", r.high, r.low);
                this.value(name, "bits", show(a), show(b), &b.source);
            },
        );
        self.each(
            "call",
            &a.calls,
            &b.calls,
            |c| &c.source,
            |this, name, a, b| {
                let params = |c: &Call| c.takes.params.clone().unwrap_or_else(|| "none".to_owned());
                this.value(name, "parameters", params(a), params(b), &b.source);
                let rest = |c: &Call| {
                    let CallParams { optional, how, checked, differs, same_as, .. } = &c.takes;
                    format!("{how} {optional} {checked} {differs:?} {same_as:?}")
                };
                this.value(name, "how the parameters are known", rest(a), rest(b), &b.source);
                let access = |c: &Call| {
                    c.takes.access.as_ref().map_or_else(|| "unknown".to_owned(), Access::to_string)
                };
                this.value(name, "callers", access(a), access(b), &b.source);
                let pointers = |c: &Call| {
                    let pointers = c.takes.pointers.iter().map(|p| {
                        let Embedded { field, count, unit, direction } = p;
                        format!("{field}:{count}:{unit}:{direction}")
                    });
                    pointers.collect::<Vec<_>>().join(" ")
                };
                this.value(name, "pointers", pointers(a), pointers(b), &b.source);
            },
        );
    }

    /// Compares the items of two maps that have the same name, and reports the others as missing.
    fn each<T>(
        &mut self,
        kind: &str,
        a: &BTreeMap<String, T>,
        b: &BTreeMap<String, T>,
        source: impl Fn(&T) -> &Source,
        compare: impl Fn(&mut Self, &str, &T, &T),
    ) {
        for (name, x) in a {
            match b.get(name) {
                Some(y) => {
                    self.value(name, "source", source(x), source(y), source(y));
                    compare(self, name, x, y);
                }
                None => self.push(name, kind, "present".into(), "missing".into(), source(x)),
            }
        }
        for (name, y) in b.iter().filter(|(name, _)| !a.contains_key(*name)) {
            self.push(name, kind, "missing".into(), "present".into(), source(y));
        }
    }

    fn records(&mut self, name: &str, a: &Record, b: &Record) {
        let source = &b.source;
        self.value(name, "kind", a.kind.keyword(), b.kind.keyword(), source);
        self.value(name, "size", a.size, b.size, source);
        self.value(name, "alignment", a.align, b.align, source);
        for (i, field) in a.fields.iter().enumerate() {
            match partner(field, i, &b.fields) {
                Some(other) => self.fields(name, field, other, source),
                None => {
                    let what = format!("field {}", label(field, i));
                    self.push(
                        name,
                        &what,
                        format!("at {}", field.offset),
                        "missing".into(),
                        source,
                    );
                }
            }
        }
        for (i, field) in b.fields.iter().enumerate() {
            if partner(field, i, &a.fields).is_none() {
                let what = format!("field {}", label(field, i));
                self.push(name, &what, "missing".into(), format!("at {}", field.offset), source);
            }
        }
        let order = |r: &Record| r.fields.iter().map(|f| f.name.clone()).collect::<Vec<_>>();
        let (x, y) = (order(a), order(b));
        let sorted = |v: &[String]| {
            let mut v = v.to_vec();
            v.sort_unstable();
            v
        };
        if x != y && sorted(&x) == sorted(&y) {
            self.value(name, "order of fields", x.join(", "), y.join(", "), source);
        }
    }

    fn fields(&mut self, name: &str, a: &Field, b: &Field, source: &Source) {
        let field = if a.name.is_empty() { "(unnamed)" } else { &a.name };
        self.value(name, &format!("field {field}: offset"), a.offset, b.offset, source);
        self.value(name, &format!("field {field}: size"), a.size, b.size, source);
        self.value(name, &format!("field {field}: type"), &a.ty, &b.ty, source);
        let canonical = format!("field {field}: canonical type");
        self.value(name, &canonical, &a.canonical, &b.canonical, source);
        let bits = |f: &Field| f.bits.map(|b| format!("{}:{}", b.bit_offset, b.bit_width));
        let (x, y) = (bits(a).unwrap_or("none".into()), bits(b).unwrap_or("none".into()));
        self.value(name, &format!("field {field}: bits"), x, y, source);
    }

    fn value<T: PartialEq + ToString>(
        &mut self,
        item: &str,
        what: &str,
        a: T,
        b: T,
        source: &Source,
    ) {
        if a != b {
            self.push(item, what, a.to_string(), b.to_string(), source);
        }
    }

    fn push(&mut self, item: &str, what: &str, first: String, second: String, source: &Source) {
        self.found.push(Difference {
            surface: self.surface.to_owned(),
            item: item.to_owned(),
            what: what.to_owned(),
            first,
            second,
            source: Some(source.clone()),
        });
    }
}

/// The field of the other side with the same name; unnamed ones go by position.
fn partner<'a>(field: &Field, index: usize, others: &'a [Field]) -> Option<&'a Field> {
    match field.name.is_empty() {
        true => others.get(index).filter(|other| other.name.is_empty()),
        false => others.iter().find(|other| other.name == field.name),
    }
}

fn label(field: &Field, index: usize) -> String {
    match field.name.is_empty() {
        true => format!("(unnamed, number {index})"),
        false => field.name.clone(),
    }
}

/// What `second` has that `first` has not, or has otherwise.
pub fn only_in_second(first: &Surface, mut second: Surface) -> Surface {
    second.records.retain(|name, r| first.records.get(name) != Some(r));
    second.aliases.retain(|name, a| first.aliases.get(name) != Some(a));
    second.enums.retain(|name, e| first.enums.get(name) != Some(e));
    second.constants.retain(|name, c| first.constants.get(name) != Some(c));
    second.bit_ranges.retain(|name, b| first.bit_ranges.get(name) != Some(b));
    second.calls.retain(|name, c| first.calls.get(name) != Some(c));
    second
}
