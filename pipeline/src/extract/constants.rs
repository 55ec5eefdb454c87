//! Which macros are integers or bit ranges, and their values, by asking clang.
//!
//! Each candidate becomes an enumerator of its own in a second translation unit. One that clang
//! refuses (it is no constant expression, or was undefined again) is dropped by the line of the
//! complaint. A candidate whose text, and the text of everything it uses, was evaluated before is
//! answered from the [`Cache`]. From tag to tag little changes, so the first unit already asks for
//! what the headers that are new define: mostly that leaves nothing for a second one.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use clang_sys::{CXCursor_EnumConstantDecl, CXCursor_EnumDecl};
use memchr::memmem;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::clang::{Clang, Unit};
use super::lexer::{self, Token};
use super::machine;
use super::records::{Macro, Macros, Place, macro_at};
use super::{Header, Request, main_file, main_name, parse};
use crate::diagnostic::Report;
use crate::headers::{File, Tree};
use crate::model::{BitRange, Constant, Source, Surface};

/// What is kept from tag to tag. It changes how long an answer takes, never the answer.
///
/// Where another thread is still filling it, what needs an answer waits.
pub struct Cache(OnceLock<RwLock<Known>>);

#[derive(Default)]
struct Known {
    /// Values of macros by the text of all that they depend on.
    values: FxHashMap<u64, Option<Value>>,
    /// What macros that name nothing stand for: they need no second look.
    lone: FxHashMap<Place, Option<Value>>,
    /// Ids of the headers that were read.
    headers: FxHashSet<String>,
    /// By surface: the macros that have to be asked for each time.
    each_time: BTreeMap<String, BTreeMap<String, Class>>,
    /// By language, defines and two targets: the macros that clang predefines otherwise.
    predefined: FxHashMap<u64, Arc<FxHashSet<String>>>,
    words: machine::Words,
    /// By surface: where macros stood when those of an earlier unit were sorted by name.
    ranks: BTreeMap<String, Arc<FxHashMap<Place, u32>>>,
    /// What machines disagree on, by the text of all that this depends on.
    differences: FxHashMap<u64, Surface>,
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
    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.0.get_or_init(RwLock::default).read().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn(&self) -> RwLockWriteGuard<'_, Known> {
        self.0.get_or_init(RwLock::default).write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The macros that clang predefines otherwise for `target` than for the request's.
    pub(super) fn predefined_otherwise(
        &self,
        clang: &Clang,
        request: &Request<'_>,
        target: &str,
    ) -> Result<Arc<FxHashSet<String>>, Report> {
        let key = hash((request.language, request.defines, request.target, target));
        if let Some(names) = self.known().predefined.get(&key) {
            return Ok(names.clone());
        }
        let first = super::predefined(clang, request)?;
        let second = super::predefined(clang, &Request { target, ..request.clone() })?;
        let names: FxHashSet<String> =
            (first.symmetric_difference(&second)).map(|(name, _)| name.clone()).collect();
        let names = Arc::new(names);
        self.learn().predefined.insert(key, names.clone());
        Ok(names)
    }

    /// The parts of `tree` that hang on the predefined `names`.
    pub(super) fn parts(&self, tree: &Tree, names: &FxHashSet<String>) -> Option<machine::Parts> {
        let index = machine::index(tree, &mut self.learn().words);
        machine::parts(&index, names)
    }

    /// Names what two machines disagree on.
    pub(super) fn key(&self, request: &Request<'_>, target: &str, parts: &machine::Parts) -> u64 {
        let Request { surface, language, defines, prelude, include, .. } = request;
        hash((surface, language, defines, prelude, include, request.target, target, parts.key))
    }

    pub(super) fn differences(&self, key: u64) -> Option<Surface> {
        self.known().differences.get(&key).cloned()
    }

    pub(super) fn keep_differences(&self, key: u64, differences: &Surface) {
        self.learn().differences.insert(key, differences.clone());
    }

    /// Takes the values of the macros of `tree`, which `surface` has, for those of other headers that
    /// have the same text.
    ///
    /// Where a value is, its macro is the last of its name, and the line it stands in is known. What
    /// uses a macro without a value stays unknown.
    pub(super) fn remember(&self, tree: &Tree, request: &Request<'_>, mut surface: Surface) {
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
        known.settle(request, &macros.own, &open);
    }

    /// What is worth asking for before the macros of `tree` are known.
    pub(super) fn guesses(&self, tree: &Tree, request: &Request<'_>) -> Vec<Guess> {
        // A guess is not worth waiting for.
        if self.0.get().is_none() {
            return Vec::new();
        }
        let mut known = self.learn();
        let each_time = known.each_time.get(request.surface).into_iter().flatten();
        let mut guesses: Vec<Guess> = each_time
            .map(|(name, class)| {
                let (shape, pastes) = (class.shape, class.pastes);
                Guess { name: name.clone(), shape, pastes, certain: true, value: None }
            })
            .collect();
        // Nobody knows what pasting does to the lines behind it.
        guesses.sort_by_key(|guess| guess.pastes);
        let new: Vec<&File> = (tree.files.values().map(|file| &**file))
            .filter(|file| known.headers.insert(file.id.clone()))
            .collect();
        let names: BTreeMap<&str, Shape> =
            new.iter().flat_map(|file| lexer::defines(&file.text)).filter_map(shape_of).collect();
        if names.len() <= IN_ONE_UNIT {
            guesses.extend(names.into_iter().map(|(name, shape)| Guess {
                name: name.to_owned(),
                shape,
                pastes: false,
                certain: false,
                value: None,
            }));
        }
        guesses
    }
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A macro that is asked for before it is known whether it is defined.
pub(super) struct Guess {
    name: String,
    shape: Shape,
    pastes: bool,
    /// Whether a refusal tells that it has no value. What stands before the question may be to
    /// blame for that otherwise.
    certain: bool,
    value: Option<Value>,
}

/// What a definition looks like by itself, if it may be a constant.
fn shape_of<'t>((name, text): (&'t str, &'t str)) -> Option<(&'t str, Shape)> {
    let tokens = lexer::tokens(text).filter(|tokens| !tokens.is_empty())?;
    if text.starts_with('(') || !lexer::balanced(&tokens) {
        return None;
    }
    let shape = if lexer::is_range(&tokens) { Shape::Range } else { Shape::Integer };
    Some((name, shape))
}

/// Lines of one guess: the condition, the question, the end of the condition.
const LINES: usize = 3;

/// The guesses as questions, each an enum of its own; those that are not defined ask nothing.
pub(super) fn questions_if_defined(guesses: &[Guess]) -> String {
    let mut text = String::new();
    for (at, (i, shape)) in guess_lines(guesses).iter().enumerate() {
        let name = &guesses[*i].name;
        let _ = writeln!(text, "#ifdef {name}\nenum {{ {} }};\n#endif", question(at, name, *shape));
    }
    text
}

fn guess_lines(guesses: &[Guess]) -> Vec<(usize, Shape)> {
    let each = guesses.iter().enumerate();
    each.flat_map(|(i, guess)| shapes(guess.shape).iter().map(move |shape| (i, *shape))).collect()
}

/// The guesses with the values that clang gave them.
pub(super) fn guessed(
    unit: &Unit<'_>,
    request: &Request<'_>,
    first_line: u32,
    mut guesses: Vec<Guess>,
) -> FxHashMap<String, Guess> {
    let lines = guess_lines(&guesses);
    let refused: HashSet<usize> =
        refused(unit, request, first_line).into_iter().map(|line| line / LINES).collect();
    for (at, value) in read(unit, lines.len()).into_iter().enumerate() {
        if !refused.contains(&at) && value.is_some() {
            guesses[lines[at].0].value = value;
        }
    }
    // A macro of both kinds is asked for twice; what is certain came first and stays.
    let mut by_name = FxHashMap::default();
    for guess in guesses {
        by_name.entry(guess.name.clone()).or_insert(guess);
    }
    by_name
}

/// The lines from `first_line` of the main file on that clang refused, counted from there.
fn refused(unit: &Unit<'_>, request: &Request<'_>, first_line: u32) -> HashSet<usize> {
    let main = main_name(request);
    (unit.complaints().into_iter())
        .filter(|c| c.is_error && c.file == main && c.line >= first_line)
        .map(|c| (c.line - first_line) as usize)
        .collect()
}

/// What a macro stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Integer(i128),
    Range(i64, i64),
}

/// Adds the constants and bit ranges among `macros` to the surface.
pub(super) fn evaluate(
    clang: &Clang,
    tree: &Tree,
    request: &Request<'_>,
    macros: &Macros<'_>,
    guessed: &FxHashMap<String, Guess>,
    surface: &mut Surface,
    cache: &Cache,
) -> Result<(), Report> {
    let Candidates { mut known, open } = candidates(tree, request, macros, surface, cache);
    let macros = &macros.own;
    // Maps are made at once: putting one name after the other into its place takes twice the time.
    let mut constants: Vec<_> = std::mem::take(&mut surface.constants).into_iter().collect();
    let mut bit_ranges = Vec::new();
    known.extend(values(clang, tree, request, macros, &open, guessed, cache)?);
    cache.learn().settle(request, macros, &open);
    // The maps sort too, but move whole constants about.
    for (i, value) in sorted_by_name(known, macros, request, cache) {
        let (name, source) = (macros[i].name.to_owned(), macros[i].source.clone());
        match value {
            Value::Integer(value) => constants.push((name, Constant { value, source })),
            Value::Range(high, low) => bit_ranges.push((name, BitRange { high, low, source })),
        }
    }
    surface.constants = constants.into_iter().collect();
    surface.bit_ranges = bit_ranges.into_iter().collect();
    Ok(())
}

/// Sorts by name. Most macros were sorted for an earlier unit, and numbers are compared faster.
fn sorted_by_name(
    mut values: Vec<(usize, Value)>,
    macros: &[Macro<'_>],
    request: &Request<'_>,
    cache: &Cache,
) -> Vec<(usize, Value)> {
    let ranks = cache.known().ranks.get(request.surface).cloned().unwrap_or_default();
    let name = |(i, _): &(usize, Value)| macros[*i].name;
    let (mut ranked, mut new) = (Vec::with_capacity(values.len()), Vec::new());
    for value in values.drain(..) {
        match ranks.get(&macros[value.0].place) {
            Some(rank) => ranked.push((*rank, value)),
            None => new.push(value),
        }
    }
    ranked.sort_unstable_by_key(|(rank, _)| *rank);
    new.sort_unstable_by_key(name);
    let mut rest = ranked.as_slice();
    let is_old = new.len() > ranked.len() / 8;
    for value in new {
        let before = rest.partition_point(|(_, ranked)| name(ranked) < name(&value));
        values.extend(rest[..before].iter().map(|(_, ranked)| *ranked));
        values.push(value);
        rest = &rest[before..];
    }
    values.extend(rest.iter().map(|(_, ranked)| *ranked));
    if is_old {
        let places = values.iter().zip(0..).map(|((i, _), rank)| (macros[*i].place, rank));
        let ranks = Arc::new(places.collect());
        cache.learn().ranks.insert(request.surface.to_owned(), ranks);
    }
    values
}

/// The macros that may be integers or ranges, by index.
struct Candidates {
    /// Those whose value was found for an earlier unit, which had them in the same place.
    known: Vec<(usize, Value)>,
    open: Vec<(usize, Class)>,
}

fn candidates(
    tree: &Tree,
    request: &Request<'_>,
    macros: &Macros<'_>,
    surface: &Surface,
    cache: &Cache,
) -> Candidates {
    let mut table = Table::new(tree, request, macros, surface);
    let mut candidates = Candidates { known: Vec::new(), open: Vec::new() };
    let known = cache.known();
    for (i, m) in macros.own.iter().enumerate() {
        if m.function_like || table.replaced[i] {
            continue;
        }
        let lone = known.lone.get(&seeded(table.seed, m.place));
        match lone.filter(|_| !table.undefined.contains(m.name)) {
            Some(value) => candidates.known.extend(value.map(|value| (i, value))),
            None => {
                let class = table.classify(i);
                if class.shape != Shape::Other {
                    candidates.open.push((i, class));
                }
            }
        }
    }
    candidates
}

/// A name for how the macros of a unit are read.
///
/// The target stays out: what does not use a type has the same value on every target that has a
/// 64-bit `long`, and those are the ones there are drivers for.
fn seed(request: &Request<'_>) -> u64 {
    hash((request.language, request.defines))
}

/// A place, for one way of reading.
fn seeded(seed: u64, (header, offset): Place) -> Place {
    (seed ^ header, offset)
}

impl Known {
    /// Keeps what macros that name nothing stand for, now that their values are known.
    fn settle(&mut self, request: &Request<'_>, macros: &[Macro<'_>], open: &[(usize, Class)]) {
        let seed = seed(request);
        for (i, class) in open.iter().filter(|(_, class)| class.lone) {
            if let Some(value) = class.key.and_then(|key| self.values.get(&key)) {
                self.lone.insert(seeded(seed, macros[*i].place), *value);
            }
        }
    }
}

/// The values of the candidates that have one: remembered and guessed ones, the rest from clang.
fn values(
    clang: &Clang,
    tree: &Tree,
    request: &Request<'_>,
    macros: &[Macro<'_>],
    candidates: &[(usize, Class)],
    guessed: &FxHashMap<String, Guess>,
    cache: &Cache,
) -> Result<Vec<(usize, Value)>, Report> {
    let mut found: FxHashMap<u64, Option<Value>> = FxHashMap::default();
    let mut own: FxHashMap<usize, Option<Value>> = FxHashMap::default();
    let mut asked: Vec<(usize, Class)> = Vec::new();
    let known = cache.known();
    let mut each_time = BTreeMap::new();
    for (i, class) in candidates {
        // Macros of the same text have the same value: most of a driver's are `0x1`, `7:0` and
        // the like.
        let is_known = |key: &u64| known.values.contains_key(key) || found.contains_key(key);
        if class.key.as_ref().is_some_and(is_known) {
            continue;
        }
        let guess = guessed.get(macros[*i].name).and_then(|guess| guess.answer(class));
        match (class.key, guess) {
            (Some(key), Some(value)) => drop(found.insert(key, value)),
            (None, Some(value)) => drop(own.insert(*i, value)),
            (Some(key), None) => {
                found.insert(key, None);
                asked.push((*i, *class));
            }
            (None, None) => asked.push((*i, *class)),
        }
        if class.key.is_none() {
            each_time.insert(macros[*i].name.to_owned(), *class);
        }
    }
    drop(known);
    cache.learn().each_time.entry(request.surface.to_owned()).or_default().extend(each_time);
    for some in asked.chunks(IN_ONE_UNIT) {
        let questions: Vec<_> = some.iter().map(|(i, class)| (macros[*i].name, *class)).collect();
        for ((i, class), answer) in some.iter().zip(ask(clang, tree, request, &questions)?) {
            match class.key {
                Some(key) => found.insert(key, answer),
                None => own.insert(*i, answer),
            };
        }
    }
    cache.learn().values.extend(found);
    let known = cache.known();
    let value = |(i, class): &(usize, Class)| {
        let answer = match class.key {
            Some(key) => known.values.get(&key),
            None => own.get(i),
        };
        Some((*i, (*answer?)?))
    };
    Ok(candidates.iter().filter_map(value).collect())
}

impl Guess {
    /// What the guess says of a macro that turned out to be of some class; `None` when it has to
    /// be asked for after all.
    fn answer(&self, class: &Class) -> Option<Option<Value>> {
        let fits = match self.value {
            None => self.certain && self.shape == class.shape,
            Some(Value::Integer(_)) => class.shape != Shape::Range,
            Some(Value::Range(..)) => class.shape != Shape::Integer,
        };
        fits.then_some(self.value)
    }
}

/// Questions in one translation unit; more at once would take more memory than the headers do.
const IN_ONE_UNIT: usize = 20_000;

/// Questions in one enum: an enum of its own for each would cost clang twice the time and memory.
/// The enumerators of one enum have one type, though, and beside a negative one those above the
/// largest signed number come out negative as well: what may be either has an enum to itself.
const IN_ONE_ENUM: usize = 64;

/// Has clang evaluate each macro, in a unit that includes the same headers.
fn ask(
    clang: &Clang,
    tree: &Tree,
    request: &Request<'_>,
    questions: &[(&str, Class)],
) -> Result<Vec<Option<Value>>, Report> {
    let mut text = main_file(request);
    let first_line = text.matches('\n').count() as u32 + 1;
    let lines = lines(questions);
    let mut open = 0;
    // One question a line, so that the line of a complaint tells which is meant.
    for (at, (i, shape)) in lines.iter().enumerate() {
        let (name, class) = questions[*i];
        let alone = class.extreme || class.pastes;
        if open > 0 && (alone || open == IN_ONE_ENUM) {
            text.push_str("}; ");
            open = 0;
        }
        text.push_str(if open == 0 { "enum { " } else { "" });
        text.push_str(&question(at, name, *shape));
        text.push_str(if alone { " };\n" } else { "\n" });
        open = if alone { 0 } else { open + 1 };
    }
    text.push_str(if open > 0 { "};\n" } else { "" });
    let unit = parse(clang, tree, request, &text, false)?;
    let refused = refused(&unit, request, first_line);
    let mut answers = vec![None; questions.len()];
    for (at, value) in read(&unit, lines.len()).into_iter().enumerate() {
        if !refused.contains(&at) && value.is_some() {
            answers[lines[at].0] = value;
        }
    }
    Ok(answers)
}

/// What to ask, by the index of the question: of two shapes that a macro may have clang accepts one.
/// What is pasted together comes last, since nobody knows what it does to the lines behind it.
fn lines(questions: &[(&str, Class)]) -> Vec<(usize, Shape)> {
    let of = |pastes: bool| {
        let some = questions.iter().enumerate().filter(move |(_, (_, c))| c.pastes == pastes);
        some.flat_map(move |(i, (_, class))| {
            shapes(class.shape).iter().map(move |shape| (i, *shape))
        })
    };
    of(false).chain(of(true)).collect()
}

fn shapes(shape: Shape) -> &'static [Shape] {
    match shape {
        Shape::Unsure => &[Shape::Integer, Shape::Range],
        Shape::Range => &[Shape::Range],
        _ => &[Shape::Integer],
    }
}

/// `1 ? 31:0` is 31 and `0 ? 31:0` is 0: how the driver itself takes a range apart.
fn question(at: usize, name: &str, shape: Shape) -> String {
    match shape {
        Shape::Range => format!("nvabi_h{at} = (1 ? {name}), nvabi_l{at} = (0 ? {name}),"),
        _ => format!("nvabi_v{at} = ({name}),"),
    }
}

/// Reads the enumerators back, by the kind and index in their names.
fn read(unit: &Unit<'_>, count: usize) -> Vec<Option<Value>> {
    let mut answers = vec![None; count];
    unit.root().for_each_child(|declaration| {
        if declaration.kind() != CXCursor_EnumDecl || !declaration.is_anonymous() {
            return;
        }
        let unsigned = declaration.enum_is_unsigned();
        declaration.for_each_child(|child| {
            if child.kind() != CXCursor_EnumConstantDecl {
                return;
            }
            let name = child.name();
            let Some(rest) = name.strip_prefix("nvabi_") else { return };
            let Some((kind, index)) = rest.split_at_checked(1) else { return };
            let Some(answer) = index.parse().ok().and_then(|i: usize| answers.get_mut(i)) else {
                return;
            };
            let value = child.enumerator(unsigned);
            *answer = match (kind, *answer) {
                ("v", _) => Some(Value::Integer(value)),
                ("h", _) => Some(Value::Range(value as i64, 0)),
                ("l", Some(Value::Range(high, _))) => Some(Value::Range(high, value as i64)),
                (_, before) => before,
            };
        });
    });
    answers
}

/// What a macro's tokens look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// It may be an integer constant expression.
    Integer,
    /// It may be `high:low`.
    Range,
    /// It may be either: what a macro makes of its arguments is not looked into.
    Unsure,
    /// It is something else.
    Other,
}

#[derive(Debug, Clone, Copy)]
struct Class {
    shape: Shape,
    /// Names the text of the macro and all that it uses; `None` when something takes part that may
    /// change while the text stays: the size of a type, a macro of the system, a pasted name.
    key: Option<u64>,
    /// It may be negative or larger than the largest signed number.
    extreme: bool,
    /// It, or a macro that it uses, pastes names together.
    pastes: bool,
    /// It names nothing.
    lone: bool,
}

const OTHER: Class =
    Class { shape: Shape::Other, key: None, extreme: false, pastes: false, lone: false };

/// Every macro by name, with what the surface declares beside them.
struct Table<'t> {
    macros: &'t [Macro<'t>],
    /// The last definition of each name.
    by_name: FxHashMap<&'t str, u32>,
    /// By index: whether a later definition replaces this one.
    replaced: Vec<bool>,
    /// By index, once somebody has asked.
    classes: Vec<Option<Class>>,
    types: FxHashSet<&'t str>,
    /// Macros that are not the driver's.
    others: &'t HashSet<String>,
    enumerators: FxHashMap<&'t str, i128>,
    /// Names that some header undefines: they may have a text and yet no value.
    undefined: FxHashSet<&'t str>,
    seed: u64,
}

const TYPE_WORDS: [&str; 14] = [
    "sizeof", "unsigned", "signed", "int", "long", "short", "char", "struct", "union", "enum",
    "const", "volatile", "_Bool", "void",
];

/// Constants nested deeper than this do not occur; a cycle of macros does not expand for ever.
const DEEPEST: usize = 64;

impl<'t> Table<'t> {
    fn new(
        tree: &'t Tree,
        request: &Request<'_>,
        macros: &'t Macros<'t>,
        surface: &'t Surface,
    ) -> Self {
        let mut by_name = FxHashMap::with_capacity_and_hasher(macros.own.len(), FxBuildHasher);
        let mut replaced = vec![false; macros.own.len()];
        for (m, index) in macros.own.iter().zip(0..) {
            if let Some(earlier) = by_name.insert(m.name, index) {
                replaced[earlier as usize] = true;
            }
        }
        let enums = surface.enums.values().flat_map(|e| &e.variants);
        let unnamed = surface.constants.iter().map(|(name, c)| (name.as_str(), c.value));
        let types = (surface.aliases.keys())
            .chain(surface.records.keys())
            .chain(surface.enums.keys())
            .map(String::as_str)
            .chain(TYPE_WORDS);
        Self {
            macros: &macros.own,
            by_name,
            replaced,
            classes: vec![None; macros.own.len()],
            types: types.collect(),
            others: &macros.others,
            enumerators: enums.map(|(n, v)| (n.as_str(), *v)).chain(unnamed).collect(),
            undefined: tree.files.values().flat_map(|file| undefined(&file.text)).collect(),
            seed: seed(request),
        }
    }

    fn classify(&mut self, index: usize) -> Class {
        self.classify_nested(index, 0)
    }

    fn classify_nested(&mut self, index: usize, depth: usize) -> Class {
        if let Some(class) = self.classes[index] {
            return class;
        }
        if depth > DEEPEST {
            return OTHER;
        }
        let Macro { name, text, function_like, .. } = self.macros[index];
        let class = self.classify_text(name, text, function_like, depth);
        self.classes[index] = Some(class);
        class
    }

    fn classify_text(
        &mut self,
        name: &str,
        text: &'t str,
        function_like: bool,
        depth: usize,
    ) -> Class {
        let Some(tokens) = lexer::tokens(text) else { return OTHER };
        let (parameters, body) = match function_like {
            false => (Vec::new(), tokens.as_slice()),
            true => match lexer::split_parameters(&tokens) {
                Some(split) => split,
                None => return OTHER,
            },
        };
        if body.is_empty() || !lexer::balanced(body) {
            return OTHER;
        }
        let mut hasher = DefaultHasher::new();
        (self.seed, function_like, tokens.as_slice()).hash(&mut hasher);
        let mut cacheable = !self.undefined.contains(name);
        let mut extreme = body.iter().any(may_be_extreme);
        let mut pastes = lexer::pastes(body);
        // What a macro is given may be pasted, dropped or taken apart by it.
        let (mut unknown, mut calls, mut of_ranges) = (false, false, false);
        for (at, token) in body.iter().enumerate() {
            let Token::Ident(ident) = *token else { continue };
            if parameters.contains(&ident) || (function_like && ident == "__VA_ARGS__") {
                continue;
            }
            // A tag: the record may be known by its typedef's name instead.
            if at > 0 && matches!(body[at - 1], Token::Ident("struct" | "union" | "enum")) {
                cacheable = false;
                continue;
            }
            match self.part(name, ident, depth) {
                Some(Part::Macro(class)) => {
                    class.key.hash(&mut hasher);
                    cacheable &= class.key.is_some();
                    extreme |= class.extreme;
                    pastes |= class.pastes;
                    of_ranges |= matches!(class.shape, Shape::Range | Shape::Unsure);
                    calls |= self.is_function_like(ident);
                }
                Some(Part::Enumerator(value)) => value.hash(&mut hasher),
                Some(Part::Outside) => {
                    cacheable = false;
                    calls |= self.others.contains(ident);
                }
                None => unknown = true,
            }
        }
        if unknown && !pastes && !calls {
            return OTHER;
        }
        let is_range = lexer::is_range(body);
        let shape = match body {
            // A macro that only names a range is that range.
            [Token::Ident(_)] if of_ranges && !calls => Shape::Range,
            _ if pastes || (calls && (of_ranges || lexer::has_colon(body))) => Shape::Unsure,
            _ if is_range => Shape::Range,
            _ => Shape::Integer,
        };
        let cacheable = cacheable && !unknown && !pastes;
        let lone = !body.iter().any(|token| matches!(token, Token::Ident(_)));
        Class { shape, key: cacheable.then(|| hasher.finish()), extreme, pastes, lone }
    }

    fn is_function_like(&self, name: &str) -> bool {
        self.by_name.get(name).is_some_and(|index| self.macros[*index as usize].function_like)
    }

    /// What an identifier in a macro's body is; `None` when it rules out a constant.
    fn part(&mut self, within: &str, ident: &'t str, depth: usize) -> Option<Part> {
        if let Some(index) = self.by_name.get(ident).filter(|_| ident != within) {
            let class = self.classify_nested(*index as usize, depth + 1);
            return (class.shape != Shape::Other).then_some(Part::Macro(class));
        }
        if let Some(value) = self.enumerators.get(ident) {
            return Some(Part::Enumerator(*value));
        }
        (self.types.contains(ident) || self.others.contains(ident)).then_some(Part::Outside)
    }
}

/// A sign, or a number of more digits than 32 bits have.
fn may_be_extreme(token: &Token<'_>) -> bool {
    match token {
        Token::Punct(punct) => matches!(punct, b'-' | b'~' | b'<'),
        Token::Literal(number) => number.len() > 11,
        Token::Ident(_) => false,
    }
}

/// The names in the `#undef` lines of a header.
fn undefined(text: &str) -> impl Iterator<Item = &str> {
    // Few headers have the word at all.
    let has_some = memmem::find(text.as_bytes(), b"undef").is_some();
    let lines = has_some.then(|| text.lines()).into_iter().flatten();
    let directives = lines.filter_map(lexer::split_directive);
    let undefs = directives.filter(|(directive, _)| *directive == "undef");
    undefs.map(|(_, rest)| &rest[..lexer::identifier(rest)])
}

enum Part {
    Macro(Class),
    Enumerator(i128),
    /// A type, or a macro that is not the driver's: neither is looked into.
    Outside,
}
