//! Which macros are integers or bit ranges, and their values, by asking clang.
//!
//! Each candidate becomes an enumerator of its own in a second translation unit. One that clang
//! refuses (it is no constant expression, or was undefined again) is dropped by the line of the
//! complaint. A candidate whose text, and the text of everything it uses, was evaluated before is
//! answered from the [`Cache`].

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};

use clang_sys::{CXCursor_EnumConstantDecl, CXCursor_EnumDecl};

use super::clang::{Clang, Unit};
use super::lexer::{self, Token};
use super::records::Macro;
use super::{ROOT, Request, main_file, parse};
use crate::diagnostic::Report;
use crate::headers::Tree;
use crate::model::{BitRange, Constant, Surface};

/// Values of macros by the text of all that they depend on; kept from tag to tag.
#[derive(Default)]
pub struct Cache(HashMap<u64, Option<Value>>);

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
    macros: &[Macro],
    surface: &mut Surface,
    cache: &mut Cache,
) -> Result<(), Report> {
    let candidates = candidates(tree, request, macros, surface);
    for (i, value) in values(clang, tree, request, macros, &candidates, cache)? {
        let (name, source) = (macros[i].name.clone(), macros[i].source.clone());
        match value {
            Value::Integer(value) => {
                surface.constants.insert(name, Constant { value, source });
            }
            Value::Range(high, low) => {
                surface.bit_ranges.insert(name, BitRange { high, low, source });
            }
        }
    }
    Ok(())
}

/// The macros that may be integers or ranges, by index.
fn candidates(
    tree: &Tree,
    request: &Request<'_>,
    macros: &[Macro],
    surface: &Surface,
) -> Vec<(usize, Class)> {
    let mut table = Table::new(tree, request, macros, surface);
    let mut candidates = Vec::new();
    for (i, m) in macros.iter().enumerate() {
        if m.function_like || !table.is_last(&m.name, i) {
            continue;
        }
        let class = table.classify(&m.name);
        if class.shape != Shape::Other {
            candidates.push((i, class));
        }
    }
    candidates
}

/// The values of the candidates that have one: remembered ones, and the rest from clang.
fn values(
    clang: &Clang,
    tree: &Tree,
    request: &Request<'_>,
    macros: &[Macro],
    candidates: &[(usize, Class)],
    cache: &mut Cache,
) -> Result<Vec<(usize, Value)>, Report> {
    // Macros of the same text have the same value: most of a driver's are `0x1`, `7:0` and the like.
    let mut once = HashSet::new();
    let asked: Vec<(usize, Class)> = (candidates.iter().copied())
        .filter(|(_, class)| {
            class.key.is_none_or(|key| !cache.0.contains_key(&key) && once.insert(key))
        })
        .collect();
    let mut answers = Vec::with_capacity(asked.len());
    for some in asked.chunks(IN_ONE_UNIT) {
        let questions: Vec<_> =
            some.iter().map(|(i, class)| (macros[*i].name.as_str(), *class)).collect();
        answers.extend(ask(clang, tree, request, &questions)?);
    }
    let mut own = HashMap::new();
    for ((i, class), answer) in asked.iter().zip(answers) {
        match class.key {
            Some(key) => cache.0.insert(key, answer),
            None => own.insert(*i, answer),
        };
    }
    let value = |(i, class): &(usize, Class)| {
        let answer = match class.key {
            Some(key) => cache.0.get(&key),
            None => own.get(i),
        };
        Some((*i, (*answer?)?))
    };
    Ok(candidates.iter().filter_map(value).collect())
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
    let mut open = 0;
    // One question a line, so that the line of a complaint tells which is meant.
    for (i, (name, class)) in questions.iter().enumerate() {
        if open > 0 && (class.extreme || open == IN_ONE_ENUM) {
            text.push_str("}; ");
            open = 0;
        }
        text.push_str(if open == 0 { "enum { " } else { "" });
        // `1 ? 31:0` is 31 and `0 ? 31:0` is 0: how the driver itself takes a range apart.
        let _ = match class.shape {
            Shape::Range => {
                write!(text, "nvabi_h{i} = (1 ? {name}), nvabi_l{i} = (0 ? {name}),")
            }
            _ => write!(text, "nvabi_v{i} = ({name}),"),
        };
        text.push_str(if class.extreme { " };\n" } else { "\n" });
        open = if class.extreme { 0 } else { open + 1 };
    }
    text.push_str(if open > 0 { "};\n" } else { "" });
    let unit = parse(clang, tree, request, &text, false)?;
    let main = format!("{ROOT}{}.nvabi", request.surface);
    let refused: HashSet<usize> = unit
        .complaints()
        .into_iter()
        .filter(|c| c.is_error && c.file == main && c.line >= first_line)
        .map(|c| (c.line - first_line) as usize)
        .collect();
    let mut answers = read(&unit, questions.len());
    for i in refused {
        if let Some(answer) = answers.get_mut(i) {
            *answer = None;
        }
    }
    Ok(answers)
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
    /// It is something else.
    Other,
}

#[derive(Debug, Clone, Copy)]
struct Class {
    shape: Shape,
    /// Names the text of the macro and all that it uses; `None` when a type takes part, whose
    /// size may change while the text stays.
    key: Option<u64>,
    /// It may be negative or larger than the largest signed number.
    extreme: bool,
}

const OTHER: Class = Class { shape: Shape::Other, key: None, extreme: false };

struct Entry<'t> {
    index: usize,
    text: &'t str,
    function_like: bool,
    class: Option<Class>,
}

/// Every macro by name, with what the surface declares beside them.
struct Table<'t> {
    macros: HashMap<&'t str, Entry<'t>>,
    types: HashSet<&'t str>,
    enumerators: HashMap<&'t str, i128>,
    /// Names that some header undefines: they may have a text and yet no value.
    undefined: HashSet<&'t str>,
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
        macros: &'t [Macro],
        surface: &'t Surface,
    ) -> Self {
        let mut table = HashMap::with_capacity(macros.len());
        for (index, m) in macros.iter().enumerate() {
            let text = tree.files.get(&*m.source.path).and_then(|file| {
                file.text.get(m.extent.0 as usize + m.name.len()..m.extent.1 as usize)
            });
            let text = text.unwrap_or_default();
            let entry = Entry { index, text, function_like: m.function_like, class: None };
            table.insert(m.name.as_str(), entry);
        }
        let enums = surface.enums.values().flat_map(|e| &e.variants);
        let unnamed = surface.constants.iter().map(|(name, c)| (name.as_str(), c.value));
        let types = (surface.aliases.keys())
            .chain(surface.records.keys())
            .chain(surface.enums.keys())
            .map(String::as_str)
            .chain(TYPE_WORDS);
        let mut hasher = DefaultHasher::new();
        // The target stays out: what does not use a type has the same value on every target
        // that has a 64-bit `long`, and those are the ones there are drivers for.
        (request.language, request.defines).hash(&mut hasher);
        Self {
            macros: table,
            types: types.collect(),
            enumerators: enums.map(|(n, v)| (n.as_str(), *v)).chain(unnamed).collect(),
            undefined: tree.files.values().flat_map(|file| undefined(&file.text)).collect(),
            seed: hasher.finish(),
        }
    }

    /// Whether no later definition replaces this one.
    fn is_last(&self, name: &str, index: usize) -> bool {
        self.macros.get(name).is_some_and(|entry| entry.index == index)
    }

    fn classify(&mut self, name: &'t str) -> Class {
        self.classify_nested(name, 0)
    }

    fn classify_nested(&mut self, name: &'t str, depth: usize) -> Class {
        let Some(entry) = self.macros.get(name) else { return OTHER };
        if let Some(class) = entry.class {
            return class;
        }
        if depth > DEEPEST {
            return OTHER;
        }
        let (text, function_like) = (entry.text, entry.function_like);
        let class = self.classify_text(name, text, function_like, depth);
        if let Some(entry) = self.macros.get_mut(name) {
            entry.class = Some(class);
        }
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
        let mut shape = if lexer::is_range(body) { Shape::Range } else { Shape::Integer };
        for (at, token) in body.iter().enumerate() {
            let Token::Ident(ident) = *token else { continue };
            if parameters.contains(&ident) {
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
                    // A macro that only names a range is that range.
                    if class.shape == Shape::Range && body.len() == 1 {
                        shape = Shape::Range;
                    }
                }
                Some(Part::Enumerator(value)) => value.hash(&mut hasher),
                Some(Part::Type) => cacheable = false,
                None => return OTHER,
            }
        }
        Class { shape, key: cacheable.then(|| hasher.finish()), extreme }
    }

    /// What an identifier in a macro's body is; `None` when it rules out a constant.
    fn part(&mut self, within: &str, ident: &'t str, depth: usize) -> Option<Part> {
        if ident != within && self.macros.contains_key(ident) {
            let class = self.classify_nested(ident, depth + 1);
            return (class.shape != Shape::Other).then_some(Part::Macro(class));
        }
        if let Some(value) = self.enumerators.get(ident) {
            return Some(Part::Enumerator(*value));
        }
        (self.types.contains(ident) || ident.starts_with("_IO") || ident.starts_with("DRM_"))
            .then_some(Part::Type)
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
    text.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("undef")?;
        let name = rest.strip_prefix([' ', '\t'])?.trim_start();
        name.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next()
    })
}

enum Part {
    Macro(Class),
    Enumerator(i128),
    Type,
}
