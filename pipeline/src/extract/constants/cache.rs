//! What is kept from tag to tag: from one to the next little changes.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustc_hash::{FxHashMap, FxHashSet};

use super::classify::{Class, Shape};
use super::early::{EarlyQuestion, shape_of};
use super::{Candidates, PER_UNIT, Value, candidates, hash};
use crate::diagnostic::Report;
use crate::extract::clang::Clang;
use crate::extract::records::{Macro, MacroPlace, Macros, macro_at};
use crate::extract::{Header, Request, lexer, machine, predefined};
use crate::headers::{File, Tree};
use crate::model::{Source, Surface};

/// What is kept from tag to tag. It changes how long an answer takes, never the answer.
///
/// Where another thread is still filling it, what needs an answer waits.
pub struct Cache(OnceLock<RwLock<Entries>>);

#[derive(Default)]
pub(super) struct Entries {
    /// Values of macros by a hash of the text of all that they depend on.
    pub(super) values: FxHashMap<u64, Option<Value>>,
    /// Values of macros whose text names nothing, by place: they need no classification.
    pub(super) literals: FxHashMap<MacroPlace, Option<Value>>,
    /// Ids of the headers that were read.
    pub(super) headers: FxHashSet<String>,
    /// By surface: macros that clang is asked for each time, since more than text decides on them.
    pub(super) uncacheable: BTreeMap<String, BTreeMap<String, Class>>,
    /// By language, defines and two targets: the macros that clang predefines otherwise.
    pub(super) predefined: FxHashMap<u64, Arc<FxHashSet<String>>>,
    pub(super) words: machine::Words,
    /// By surface: the order by name of the macros of an earlier unit.
    pub(super) name_ranks: BTreeMap<String, Arc<FxHashMap<MacroPlace, u32>>>,
    /// What machines disagree on, by the text of all that this depends on.
    pub(super) differences: FxHashMap<u64, Surface>,
}

/// The macro of a name that is defined at a place.
fn defined_at<'t>(tree: &'t Tree, name: &str, source: &Source) -> Option<Macro<'t>> {
    let file = tree.files.get(&*source.path)?;
    let start = file.line_start(source.line)?;
    let at = lexer::define(file.text.get(start as usize..)?.lines().next()?)?;
    let header = Header::new(source.path.clone(), file);
    macro_at(&header, start + at as u32).filter(|found| found.name == name)
}

impl Default for Cache {
    fn default() -> Self {
        Self(OnceLock::from(RwLock::default()))
    }
}

impl Cache {
    /// One that `fill` has yet to be called on.
    pub fn unfilled() -> Self {
        Self(OnceLock::new())
    }

    /// Fills an unfilled one; with nothing where `with` has nothing.
    pub fn fill(&self, with: impl FnOnce() -> Option<Self>) {
        self.0.get_or_init(|| with().and_then(|cache| cache.0.into_inner()).unwrap_or_default());
    }

    /// A thread that panicked held nothing half done: every change is one insertion.
    pub(super) fn known(&self) -> RwLockReadGuard<'_, Entries> {
        self.0.get_or_init(RwLock::default).read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn learn(&self) -> RwLockWriteGuard<'_, Entries> {
        self.0.get_or_init(RwLock::default).write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The macros that clang predefines otherwise for `target` than for the request's.
    pub(in crate::extract) fn predefined_otherwise(
        &self,
        clang: &Clang,
        request: &Request<'_>,
        target: &str,
    ) -> Result<Arc<FxHashSet<String>>, Report> {
        let key = hash((request.language, request.defines, request.target, target));
        if let Some(names) = self.known().predefined.get(&key) {
            return Ok(names.clone());
        }
        let first = predefined(clang, request)?;
        let second = predefined(clang, &Request { target, ..request.clone() })?;
        let names: FxHashSet<String> =
            (first.symmetric_difference(&second)).map(|(name, _)| name.clone()).collect();
        let names = Arc::new(names);
        self.learn().predefined.insert(key, names.clone());
        Ok(names)
    }

    /// The parts of `tree` that hang on the predefined `names`.
    pub(in crate::extract) fn parts(
        &self,
        tree: &Tree,
        names: &FxHashSet<String>,
    ) -> Option<machine::Parts> {
        let index = machine::index(tree, &mut self.learn().words);
        machine::parts(&index, names)
    }

    /// Names what two machines disagree on.
    pub(in crate::extract) fn key(
        &self,
        request: &Request<'_>,
        target: &str,
        parts: &machine::Parts,
    ) -> u64 {
        let Request { surface, language, defines, prelude, include, .. } = request;
        hash((surface, language, defines, prelude, include, request.target, target, parts.key))
    }

    pub(in crate::extract) fn differences(&self, key: u64) -> Option<Surface> {
        self.known().differences.get(&key).cloned()
    }

    pub(in crate::extract) fn keep_differences(&self, key: u64, differences: &Surface) {
        self.learn().differences.insert(key, differences.clone());
    }

    /// Takes the values of the macros of `tree`, which `surface` has, for those of other headers that
    /// have the same text.
    ///
    /// Where a value is, its macro is the last of its name, and its line is known. What
    /// uses a macro without a value stays unknown.
    pub(in crate::extract) fn remember(
        &self,
        tree: &Tree,
        request: &Request<'_>,
        mut surface: Surface,
    ) {
        let (mut values, mut macros) = (Vec::new(), Macros::default());
        let mut take = |name: &str, source: &Source, value: Value| {
            let Some(found) = defined_at(tree, name, source) else { return false };
            macros.own.push(found);
            values.push(value);
            true
        };
        // The other constants are enumerators.
        surface.constants.retain(|name, c| !take(name, &c.source, Value::Integer(c.value)));
        for (name, range) in &surface.bit_ranges {
            take(name, &range.source, Value::Range(range.high, range.low));
        }
        let Candidates { open, .. } = candidates(tree, request, &macros, &surface, self);
        let mut known = self.learn();
        known.headers.extend(tree.files.values().map(|file| file.id.clone()));
        let keyed = open.iter().filter_map(|(i, class)| Some((class.key?, values[*i])));
        known.values.extend(keyed.map(|(key, value)| (key, Some(value))));
        known.keep_literals(request, &macros.own, &open);
    }

    /// What is worth asking for before the macros of `tree` are known.
    pub(in crate::extract) fn early_questions(
        &self,
        tree: &Tree,
        request: &Request<'_>,
    ) -> Vec<EarlyQuestion> {
        // Early questions are not worth waiting for.
        if self.0.get().is_none() {
            return Vec::new();
        }
        let mut known = self.learn();
        let uncacheable = known.uncacheable.get(request.surface).into_iter().flatten();
        let mut early: Vec<EarlyQuestion> = uncacheable
            .map(|(name, class)| {
                let (shape, pastes) = (class.shape, class.pastes);
                EarlyQuestion {
                    name: name.clone(),
                    shape,
                    pastes,
                    refusal_is_final: true,
                    value: None,
                }
            })
            .collect();
        // Nobody knows what pasting does to the lines behind it.
        early.sort_by_key(|early| early.pastes);
        let new: Vec<&File> = (tree.files.values().map(|file| &**file))
            .filter(|file| known.headers.insert(file.id.clone()))
            .collect();
        let names: BTreeMap<&str, Shape> =
            new.iter().flat_map(|file| lexer::defines(&file.text)).filter_map(shape_of).collect();
        if names.len() <= PER_UNIT {
            early.extend(names.into_iter().map(|(name, shape)| EarlyQuestion {
                name: name.to_owned(),
                shape,
                pastes: false,
                refusal_is_final: false,
                value: None,
            }));
        }
        early
    }
}

impl Entries {
    /// Keeps what macros that name nothing stand for, now that their values are known.
    pub(super) fn keep_literals(
        &mut self,
        request: &Request<'_>,
        macros: &[Macro<'_>],
        open: &[(usize, Class)],
    ) {
        let seed = seed(request);
        for (i, class) in open.iter().filter(|(_, class)| class.literal) {
            if let Some(value) = class.key.and_then(|key| self.values.get(&key)) {
                self.literals.insert(place_key(seed, macros[*i].place), *value);
            }
        }
    }
}

/// A name for how the macros of a unit are read.
///
/// The target stays out: what does not use a type has the same value on every target that has a
/// 64-bit `long`, and those are the ones there are drivers for.
pub(super) fn seed(request: &Request<'_>) -> u64 {
    hash((request.language, request.defines))
}

/// A place, for one way of reading.
pub(super) fn place_key(seed: u64, (header, offset): MacroPlace) -> MacroPlace {
    (seed ^ header, offset)
}
