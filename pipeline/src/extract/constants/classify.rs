//! What a macro's text looks like: an integer, a bit range, or neither; and what its value depends on.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use memchr::memmem;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::cache::seed;
use crate::extract::Request;
use crate::extract::lexer::{self, Token};
use crate::extract::records::{Macro, Macros};
use crate::extract::stubs;
use crate::headers::Tree;
use crate::model::Surface;

/// What a macro's tokens look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
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
pub(super) struct Class {
    pub(super) shape: Shape,
    /// Names the text of the macro and all that it uses; `None` when something takes part that may
    /// change while the text stays: the size of a type, a macro of the system, a pasted name.
    pub(super) key: Option<u64>,
    /// It may be negative or larger than the largest signed number.
    pub(super) extreme: bool,
    /// It, or a macro that it uses, pastes names together.
    pub(super) pastes: bool,
    /// It names nothing.
    pub(super) literal: bool,
}

const OTHER: Class =
    Class { shape: Shape::Other, key: None, extreme: false, pastes: false, literal: false };

/// Every macro by name, with what the surface declares beside them.
pub(super) struct Table<'t> {
    macros: &'t [Macro<'t>],
    /// The last definition of each name.
    by_name: FxHashMap<&'t str, u32>,
    /// By index: whether a later definition replaces this one.
    pub(super) replaced: Vec<bool>,
    /// By index, once somebody has asked.
    classes: Vec<Option<Class>>,
    types: FxHashSet<&'t str>,
    /// Macros that are not the driver's.
    others: &'t HashSet<String>,
    enumerators: FxHashMap<&'t str, i128>,
    /// Names that some header undefines: they may have a text and yet no value.
    pub(super) undefined: FxHashSet<&'t str>,
    pub(super) seed: u64,
}

const TYPE_WORDS: [&str; 14] = [
    "sizeof", "unsigned", "signed", "int", "long", "short", "char", "struct", "union", "enum",
    "const", "volatile", "_Bool", "void",
];

/// Constants nested deeper than this do not occur; a cycle of macros does not expand for ever.
const DEEPEST: usize = 64;

impl<'t> Table<'t> {
    pub(super) fn new(
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
            .chain(TYPE_WORDS)
            .chain(stubs::types().map(|name| -> &str { name }));
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

    pub(super) fn classify(&mut self, index: usize) -> Class {
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
        let literal = !body.iter().any(|token| matches!(token, Token::Ident(_)));
        Class { shape, key: cacheable.then(|| hasher.finish()), extreme, pastes, literal }
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
