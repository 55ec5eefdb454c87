//! Layouts as numbers: at two tags a type has the same number where its layout is the same, with
//! all that it holds by value.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::rc::Rc;

use super::{ABSENT, is_type};
use nvabi_pipeline::lock::{Fact, History, ItemKind, Lock, State};
use nvabi_pipeline::model::{Field, split_array};

/// The number of something's layout at each tag of the lock.
pub(super) type Ids = Rc<[u32]>;

/// One history of a name: there is one for each surface, kind and header it has been in. That of an
/// enumerator is its enum's.
#[derive(Clone, Copy)]
pub(super) struct Declared<'a> {
    pub(super) surface: &'a str,
    /// The header.
    pub(super) path: &'a str,
    pub(super) kind: ItemKind,
    pub(super) history: &'a History,
}

/// Numbers the layouts of a lock, those that are asked for.
pub(super) struct Shapes<'a> {
    tags: usize,
    declared: HashMap<&'a str, Vec<Declared<'a>>>,
    /// By surface and name; `None` while a type is being looked into, for one that holds itself.
    types: HashMap<(&'a str, &'a str), Option<Ids>>,
    numbers: HashMap<String, u32>,
}

impl<'a> Shapes<'a> {
    pub(super) fn new(lock: &'a Lock) -> Self {
        let mut declared: HashMap<&str, Vec<Declared<'_>>> = HashMap::new();
        for ((surface, path), header) in &lock.headers {
            for ((kind, name), history) in &header.items {
                // What a call takes is the spec's to say here.
                if *kind == ItemKind::Call {
                    continue;
                }
                let found = Declared { surface, path, kind: *kind, history };
                declared.entry(name).or_default().push(found);
                let variants: BTreeSet<&str> = history.iter().flat_map(variants).collect();
                for variant in variants {
                    let found = Declared { kind: ItemKind::Constant, ..found };
                    declared.entry(variant).or_default().push(found);
                }
            }
        }
        // Where a name is a record and a typedef, the record is filled in last and stands.
        declared.values_mut().for_each(|all| all.sort_by_key(|found| Reverse(found.kind)));
        let tags = lock.tags.len();
        Self { tags, declared, types: HashMap::new(), numbers: HashMap::new() }
    }

    /// Everything of a name, in any surface.
    pub(super) fn declared(&self, name: &str) -> &[Declared<'a>] {
        self.declared.get(name).map_or(&[], Vec::as_slice)
    }

    /// Every name that something has.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.declared.keys().copied()
    }

    /// A number for a text, the same for equal texts.
    pub(super) fn number(&mut self, text: String) -> u32 {
        let next = self.numbers.len() as u32 + ABSENT + 1;
        *self.numbers.entry(text).or_insert(next)
    }

    /// The layouts of a type; `None` where the surface never has it.
    pub(super) fn type_ids(&mut self, surface: &str, name: &str) -> Option<Ids> {
        let (name, all) = self.declared.get_key_value(name)?;
        let here = |found: &&Declared<'_>| found.surface == surface && is_type(found.kind);
        let all: Vec<Declared<'a>> = all.iter().filter(here).copied().collect();
        let key = (all.first()?.surface, *name);
        if let Some(known) = self.types.get(&key) {
            return known.clone();
        }
        self.types.insert(key, None);
        let tags = self.tags;
        let mut ids = vec![ABSENT; tags];
        for (fact, from, until) in all.iter().flat_map(|found| states(found.history, tags)) {
            self.fill(surface, fact, from, &mut ids[from..until]);
        }
        let ids: Ids = ids.into();
        self.types.insert(key, Some(ids.clone()));
        Some(ids)
    }

    /// The values of a constant, an enumerator or a bit range; `None` where the surface never has it.
    pub(super) fn constant_ids(&mut self, surface: &str, name: &str) -> Option<Ids> {
        let here = |found: &&Declared<'_>| found.surface == surface && !is_type(found.kind);
        let all: Vec<_> = self.declared(name).iter().filter(here).copied().collect();
        all.first()?;
        let tags = self.tags;
        let mut ids = vec![ABSENT; tags];
        for (fact, from, until) in all.iter().flat_map(|found| states(found.history, tags)) {
            let text = match fact {
                Fact::Enum { variants, .. } => match variants.get(name) {
                    Some(value) => shape(&Fact::Constant(*value), &[]),
                    None => continue,
                },
                _ => shape(fact, &[]),
            };
            let id = self.number(text);
            ids[from..until].fill(id);
        }
        Some(ids.into())
    }

    /// Numbers a fact that holds from tag `from` on, for as many tags as there are `ids`.
    fn fill(&mut self, surface: &str, fact: &Fact, from: usize, ids: &mut [u32]) {
        let parts: Vec<Option<Ids>> =
            bases(fact).into_iter().map(|base| self.type_ids(surface, base)).collect();
        let at = |tag: usize| -> Vec<u32> {
            parts.iter().map(|part| part.as_ref().map_or(ABSENT, |ids| ids[tag])).collect()
        };
        let mut last: Option<(Vec<u32>, u32)> = None;
        for (i, id) in ids.iter_mut().enumerate() {
            let now = at(from + i);
            *id = match &last {
                Some((parts, id)) if *parts == now => *id,
                _ => self.fact_id(fact, &now),
            };
            last = Some((now, *id));
        }
    }

    fn fact_id(&mut self, fact: &Fact, parts: &[u32]) -> u32 {
        match (fact, parts) {
            // A typedef is what it stands for.
            (Fact::Alias { ty, .. }, [part]) if *part != ABSENT && !ty.ends_with(']') => *part,
            _ => self.number(shape(fact, parts)),
        }
    }
}

/// The enumerators of an enum.
fn variants(state: &State) -> impl Iterator<Item = &str> {
    let variants = state.value.iter().filter_map(|placed| match &*placed.fact {
        Fact::Enum { variants, .. } => Some(variants),
        _ => None,
    });
    variants.flat_map(|variants| variants.keys()).map(String::as_str)
}

/// What holds, from which tag, until which.
fn states(history: &History, tags: usize) -> impl Iterator<Item = (&Fact, usize, usize)> {
    history.iter().enumerate().filter_map(move |(i, state)| {
        let until = history.get(i + 1).map_or(tags, |next| next.from);
        Some((&*state.value.as_ref()?.fact, state.from, until))
    })
}

/// The types that a fact is made of, in its order.
fn bases(fact: &Fact) -> Vec<&str> {
    match fact {
        Fact::Record { fields, .. } => fields.iter().map(|f| split_array(&f.canonical).0).collect(),
        Fact::Alias { ty, .. } => vec![split_array(ty).0],
        _ => Vec::new(),
    }
}

/// A fact as text in which the types it is made of are numbers.
fn shape(fact: &Fact, parts: &[u32]) -> String {
    let mut text = String::new();
    let _ = match fact {
        Fact::Record { kind, size, align, fields } => {
            let _ = write!(text, "{} {size}/{align}", kind.keyword());
            fields.iter().zip(parts).for_each(|(field, part)| field_shape(&mut text, field, *part));
            Ok(())
        }
        Fact::Enum { size, variants } => {
            let _ = write!(text, "enum {size}");
            variants.iter().try_for_each(|(name, value)| write!(text, ",{name}={value}"))
        }
        Fact::Alias { ty, size } => {
            type_shape(&mut text, ty, parts.first().copied().unwrap_or(ABSENT));
            write!(text, " {size}")
        }
        Fact::Call(call) => write!(text, "({:?})", call.params),
        Fact::Constant(value) => write!(text, "= {value}"),
        Fact::BitRange(high, low) => write!(text, "= {high}:{low}"),
    };
    text
}

fn field_shape(text: &mut String, field: &Field, part: u32) {
    let _ = write!(text, ",{} {}+{}", field.name, field.offset, field.size);
    if let Some(bits) = field.bits {
        let _ = write!(text, ".{}:{}", bits.bit_offset, bits.bit_width);
    }
    text.push(' ');
    type_shape(text, &field.canonical, part);
}

fn type_shape(text: &mut String, canonical: &str, part: u32) {
    match part {
        ABSENT => text.push_str(canonical),
        _ => {
            let base = split_array(canonical).0;
            let _ = write!(text, "#{part}{}", &canonical[base.len()..]);
        }
    }
}
