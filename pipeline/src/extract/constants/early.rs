//! Macros that are asked for in the first unit, before it is known whether they are defined: what the headers
//! that are new define, and what no earlier answer holds for.

use std::collections::HashSet;
use std::fmt::Write as _;

use rustc_hash::FxHashMap;

use super::Value;
use super::ask::{question, read, refused, shapes};
use super::classify::{Class, Shape};
use crate::extract::clang::Unit;
use crate::extract::{Request, lexer};

/// A macro that is asked for before it is known whether it is defined.
pub(in crate::extract) struct EarlyQuestion {
    pub(super) name: String,
    pub(super) shape: Shape,
    pub(super) pastes: bool,
    /// Whether a refusal tells that it has no value. What stands before the question may be to
    /// blame for that otherwise.
    pub(super) refusal_is_final: bool,
    pub(super) value: Option<Value>,
}

/// What a definition looks like by itself, if it may be a constant.
pub(super) fn shape_of<'t>((name, text): (&'t str, &'t str)) -> Option<(&'t str, Shape)> {
    let tokens = lexer::tokens(text).filter(|tokens| !tokens.is_empty())?;
    if text.starts_with('(') || !lexer::balanced(&tokens) {
        return None;
    }
    let shape = if lexer::is_range(&tokens) { Shape::Range } else { Shape::Integer };
    Some((name, shape))
}

/// Lines of one question: the condition, the question, the end of the condition.
const LINES_PER_QUESTION: usize = 3;

/// The questions as text, each an enum of its own; those that are not defined ask nothing.
pub(in crate::extract) fn questions(early: &[EarlyQuestion]) -> String {
    let mut text = String::new();
    for (at, (i, shape)) in early_lines(early).iter().enumerate() {
        let name = &early[*i].name;
        let _ = writeln!(text, "#ifdef {name}\nenum {{ {} }};\n#endif", question(at, name, *shape));
    }
    text
}

fn early_lines(early: &[EarlyQuestion]) -> Vec<(usize, Shape)> {
    let each = early.iter().enumerate();
    each.flat_map(|(i, one)| shapes(one.shape).iter().map(move |shape| (i, *shape))).collect()
}

/// The questions by name, with the values that clang gave them.
pub(in crate::extract) fn answers(
    unit: &Unit<'_>,
    request: &Request<'_>,
    first_line: u32,
    mut early: Vec<EarlyQuestion>,
) -> FxHashMap<String, EarlyQuestion> {
    let lines = early_lines(&early);
    let refused: HashSet<usize> = refused(unit, request, first_line)
        .into_iter()
        .map(|line| line / LINES_PER_QUESTION)
        .collect();
    for (at, value) in read(unit, lines.len()).into_iter().enumerate() {
        if !refused.contains(&at) && value.is_some() {
            early[lines[at].0].value = value;
        }
    }
    // A macro of both kinds is asked for twice; what is refusal_is_final came first and stays.
    let mut by_name = FxHashMap::default();
    for question in early {
        by_name.entry(question.name.clone()).or_insert(question);
    }
    by_name
}

impl EarlyQuestion {
    /// What it says of a macro that turned out to be of some class; `None` when it has to
    /// be asked for after all.
    pub(super) fn answer(&self, class: &Class) -> Option<Option<Value>> {
        let fits = match self.value {
            None => self.refusal_is_final && self.shape == class.shape,
            Some(Value::Integer(_)) => class.shape != Shape::Range,
            Some(Value::Range(..)) => class.shape != Shape::Integer,
        };
        fits.then_some(self.value)
    }
}
