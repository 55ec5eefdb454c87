//! Questions to clang: each macro as an enumerator, whose value is read back.

use std::collections::HashSet;

use clang_sys::{CXCursor_EnumConstantDecl, CXCursor_EnumDecl};

use super::Value;
use super::classify::{Class, Shape};
use crate::diagnostic::Report;
use crate::extract::clang::{Clang, Unit};
use crate::extract::{Request, main_file, main_name, parse};
use crate::headers::Tree;

/// Questions in one translation unit; more at once would take more memory than the headers do.
pub(super) const PER_UNIT: usize = 20_000;

/// Questions in one enum: an enum of its own for each would cost clang twice the time and memory.
/// The enumerators of one enum have one type, though, and beside a negative one those above the
/// largest signed number come out negative as well: what may be either has an enum to itself.
const PER_ENUM: usize = 64;

/// Has clang evaluate each macro, in a unit that includes the same headers.
pub(super) fn ask(
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
        if open > 0 && (alone || open == PER_ENUM) {
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

pub(super) fn shapes(shape: Shape) -> &'static [Shape] {
    match shape {
        Shape::Unsure => &[Shape::Integer, Shape::Range],
        Shape::Range => &[Shape::Range],
        _ => &[Shape::Integer],
    }
}

/// `1 ? 31:0` is 31 and `0 ? 31:0` is 0: how the driver itself takes a range apart.
pub(super) fn question(at: usize, name: &str, shape: Shape) -> String {
    match shape {
        Shape::Range => format!("nvabi_h{at} = (1 ? {name}), nvabi_l{at} = (0 ? {name}),"),
        _ => format!("nvabi_v{at} = ({name}),"),
    }
}

/// Reads the enumerators back, by the kind and index in their names.
pub(super) fn read(unit: &Unit<'_>, count: usize) -> Vec<Option<Value>> {
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

/// The lines from `first_line` of the main file on that clang refused, counted from there.
pub(super) fn refused(unit: &Unit<'_>, request: &Request<'_>, first_line: u32) -> HashSet<usize> {
    let main = main_name(request);
    (unit.complaints().into_iter())
        .filter(|c| c.is_error && c.file == main && c.line >= first_line)
        .map(|c| (c.line - first_line) as usize)
        .collect()
}
