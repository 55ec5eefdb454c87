//! Expressions of a profile read backwards: the values that make an answer what it was.
//!
//! A guess is never trusted: whatever was solved is evaluated again, and counts where it gives the recorded answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::machine::{Machine, is_of_simulator, is_simulated};
use super::{Call, Recording};
use crate::profile::expr::{Binary, Expr, Unary};
use crate::profile::{
    Datum, Entry, Filled, Filler, ListUse, Node, Piece, Profile, Scope, Value, each_inner, evaluate,
};
use crate::rm::interface::{FieldRange, Interface, Params};

/// How deep values may be made of each other.
const MAX_DEPTH: usize = 32;

/// Elements of a list that masks stand for.
const MAX_ELEMENTS: usize = 64;

/// What an answer told of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Told {
    datum: Datum,
    /// Whether it told no more than that it is not zero.
    is_vague: bool,
}

type Values = BTreeMap<String, Told>;

/// Entries of lists: the list and the index as a profile names it, and the value.
pub(super) type Entries = BTreeMap<(String, String), i128>;

/// What was solved.
#[derive(Debug, Default)]
pub(super) struct Solved {
    pub(super) values: BTreeMap<String, Datum>,
    pub(super) entries: Entries,
}

/// What may be done to a value that is made of others and is not what they make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Nothing: what it is made of may become known.
    Find,
    /// It gets a value of its own.
    Replace,
}

/// The values of a recording, in three rounds: what one answer needs, a later one may tell.
pub(super) fn solve(recording: &Recording, interface: &Arc<Interface>, parent: &Profile) -> Solved {
    let mut profile = parent.clone();
    let (mut values, mut entries) = (Values::new(), Entries::new());
    for pass in [Pass::Find, Pass::Find, Pass::Replace] {
        let mut machine = Machine::new(&profile, interface);
        // They are what was seen first: before programs set anything.
        for shown in &recording.shown {
            let mut solver = Solver {
                machine: &machine,
                pass,
                values: values.clone(),
                entries: entries.clone(),
            };
            solver.shown(shown.class, &shown.bytes);
            values = solver.values;
            machine.set_all(values.iter().map(|(name, told)| (name, &told.datum)));
        }
        for call in &recording.calls {
            let mut solver = Solver {
                machine: &machine,
                pass,
                values: values.clone(),
                entries: entries.clone(),
            };
            if solver.call(call) {
                (values, entries) = (solver.values, solver.entries);
                machine.set_all(values.iter().map(|(name, told)| (name, &told.datum)));
            }
            if call.status == 0 {
                machine.ask(call);
            }
        }
        profile = machine.into_profile();
    }
    Solved { values: values.into_iter().map(|(name, told)| (name, told.datum)).collect(), entries }
}

struct Solver<'m> {
    machine: &'m Machine,
    pass: Pass,
    values: Values,
    entries: Entries,
}

/// Names as the solver has them by now.
struct Now<'s> {
    machine: &'s Machine,
    values: &'s Values,
    params: &'s Params,
}

impl Scope for Now<'_> {
    fn value(&self, name: &str, depth: usize) -> Result<Datum, String> {
        if self.machine.is_changed(name) {
            return self.machine.value(name, self, depth);
        }
        match self.values.get(name) {
            Some(told) => Ok(told.datum.clone()),
            None => self.machine.value_with(name, self.params, self, depth),
        }
    }

    fn field(&self, path: &str) -> Result<i128, String> {
        self.machine.field(self.params, path)
    }

    fn constant(&self, name: &str) -> Result<i128, String> {
        self.machine.constant(name)
    }
}

impl Solver<'_> {
    /// Finds values for a call; `false` where there are none, or where a rule answers it.
    fn call(&mut self, call: &Call) -> bool {
        let Some(cases) = self.machine.cases(call) else { return false };
        let (before, after) =
            (self.machine.params(call, &call.before), self.machine.params(call, &call.after));
        let kept = (self.values.clone(), self.entries.clone());
        for (at, case) in cases.iter().enumerate() {
            let is_found = (call.status != 0 || self.fields(call, &case.fields, &before, &after))
                && self.status(case.fails_with.as_ref(), call.status, &before)
                && case.only_if.as_ref().is_none_or(|node| self.truth_of(node, true, &before))
                && cases[..at].iter().all(|earlier| {
                    earlier.only_if.as_ref().is_some_and(|node| self.truth_of(node, false, &before))
                });
            if is_found {
                return true;
            }
            (self.values, self.entries) = kept.clone();
        }
        false
    }

    /// A record that was mapped: each of its fields tells what it can.
    fn shown(&mut self, class: u32, bytes: &[u8]) {
        let Some((record, fields)) = self.machine.shown(class) else { return };
        let before = self.machine.params_of(&record, &[]);
        let after = self.machine.params_of(&record, bytes);
        for filled in &fields {
            let kept = self.values.clone();
            if let (Filler::Value(node), Some(range)) = (&filled.with, after.range(&filled.path)) {
                if !self.node(node, range, &before, &after) {
                    self.values = kept;
                }
            }
        }
    }

    fn status(&mut self, node: Option<&Node>, status: u32, before: &Params) -> bool {
        let Some(node) = node else { return status == 0 };
        let Value::Expr(expr) = &node.value else { return false };
        self.number(expr, status.into(), before, 0)
            && self.evaluated(expr, before) == Some(status.into())
    }

    fn truth_of(&mut self, node: &Node, wanted: bool, before: &Params) -> bool {
        match &node.value {
            Value::Expr(expr) => self.truth(expr, wanted, before, 0),
            Value::Number(number) => (*number != 0) == wanted,
            _ => false,
        }
    }

    /// Finds values for all fields: what one needs, a later one may tell.
    fn fields(&mut self, call: &Call, fields: &[Filled], before: &Params, after: &Params) -> bool {
        let kept = (self.values.clone(), self.entries.clone());
        if fields.iter().all(|filled| self.field(call, filled, before, after)) {
            return true;
        }
        (self.values, self.entries) = kept;
        let mut left: Vec<&Filled> = fields.iter().collect();
        loop {
            let count = left.len();
            left.retain(|filled| {
                let kept = (self.values.clone(), self.entries.clone());
                let is_found = self.field(call, filled, before, after);
                if !is_found {
                    (self.values, self.entries) = kept;
                }
                !is_found
            });
            if left.is_empty() || left.len() == count {
                return left.is_empty();
            }
        }
    }

    fn field(&mut self, call: &Call, filled: &Filled, before: &Params, after: &Params) -> bool {
        match &filled.with {
            Filler::Value(node) => match after.range(&filled.path) {
                Some(range) => self.node(node, range, before, after),
                None => filled.is_optional,
            },
            Filler::List(list) => self.list(call, &filled.path, list, before, after),
        }
    }

    fn list(
        &mut self,
        call: &Call,
        path: &str,
        list: &ListUse,
        before: &Params,
        after: &Params,
    ) -> bool {
        for entry in self.machine.list_entries(call, path, list, before, after) {
            let (index, before, after) = (entry.index, &entry.before, &entry.after);
            let place = |field: &str| after.range(&format!("{}{field}", entry.prefix));
            match self.machine.entry(&list.list, index).cloned() {
                Some(Entry { fields, .. }) => {
                    for (field, node) in &fields {
                        let field = if field.is_empty() { &list.value_in } else { field };
                        let Some(range) = place(field) else { return false };
                        let kept = self.values.clone();
                        if self.node(node, range, before, after) {
                            continue;
                        }
                        self.values = kept;
                        if self.pass == Pass::Find || fields.len() > 1 {
                            return false;
                        }
                        self.own_entry(&list.list, index, after.number_at(range));
                    }
                }
                None => {
                    let Some(range) = place(&list.value_in) else { return false };
                    self.own_entry(&list.list, index, after.number_at(range));
                }
            }
        }
        true
    }

    /// The first answer counts.
    fn own_entry(&mut self, list: &str, index: u32, value: u64) {
        let key = self.machine.index_key(list, index);
        self.entries.entry((list.to_owned(), key)).or_insert(value.into());
    }

    /// A value for a field; what the simulator itself makes needs none.
    fn node(&mut self, node: &Node, range: FieldRange, before: &Params, after: &Params) -> bool {
        if is_simulated(self.machine.profile(), node) {
            return true;
        }
        let now = evaluate(node, &self.now(before), 0).ok();
        let name = match &node.value {
            Value::Expr(Expr::Value(name)) => Some(name),
            Value::Text(pieces) => whole_name(pieces),
            _ => None,
        };
        let is_done = match (&now, name, &node.value) {
            (Some(Datum::List(_)), Some(name), _) => self.tell_list(name, range, after),
            (Some(Datum::Text(_)) | None, Some(name), Value::Text(_)) => {
                self.tell_text(name, range, after)
            }
            (Some(Datum::Text(_)), Some(name), _) => self.tell_text(name, range, after),
            (_, _, Value::Expr(expr)) => {
                self.number(expr, after.number_at(range).into(), before, 0)
            }
            _ => true,
        };
        // Whatever was told: it must make what was recorded.
        is_done && {
            let mut made = after.clone();
            match evaluate(node, &self.now(before), 0) {
                Ok(datum) if range.fits(&datum).is_ok() => {
                    made.write(range, &datum);
                    made.bytes == after.bytes
                }
                _ => false,
            }
        }
    }

    fn tell_text(&mut self, name: &str, range: FieldRange, after: &Params) -> bool {
        let bytes = &after.bytes[range.offset..range.offset + range.size * range.count];
        match super::text_in(bytes) {
            Some(text) if range.size == 1 => self.tell(name, Datum::Text(text), false),
            _ => false,
        }
    }

    fn tell_list(&mut self, name: &str, range: FieldRange, after: &Params) -> bool {
        let one =
            |index| FieldRange { offset: range.offset + index * range.size, count: 1, ..range };
        let numbers =
            (0..range.count).map(|index| Datum::Number(after.number_at(one(index)).into()));
        self.tell(name, Datum::List(numbers.collect()), false)
    }

    fn now<'s>(&'s self, params: &'s Params) -> Now<'s> {
        Now { machine: self.machine, values: &self.values, params }
    }

    fn evaluated(&self, expr: &Expr, before: &Params) -> Option<i128> {
        let place = self.machine.place();
        let node = Node { place, value: Value::Expr(expr.clone()) };
        evaluate(&node, &self.now(before), 0).ok()?.number()
    }

    /// Whether all that an expression is made of is told, or none of the card's.
    fn is_known(&self, expr: &Expr) -> bool {
        let mut names = BTreeSet::new();
        self.machine.leaves(expr, &mut names, 0);
        names.iter().all(|name| {
            self.machine.is_changed(name)
                || self.values.get(name).is_some_and(|told| !told.is_vague)
        })
    }

    /// Lets an expression be a number.
    fn number(&mut self, expr: &Expr, target: i128, before: &Params, depth: usize) -> bool {
        if depth > MAX_DEPTH {
            return false;
        }
        let depth = depth + 1;
        match expr {
            Expr::Value(name) => self.value(name, target, before, depth),
            Expr::Unary(Unary::Minus, inner) => self.number(inner, -target, before, depth),
            Expr::Unary(Unary::Not, inner) if target <= 1 => {
                self.truth(inner, target == 0, before, depth)
            }
            Expr::Binary(Binary::BitOr, ..) => self.bits(expr, target, before, depth),
            Expr::Binary(operator, left, right) => {
                self.binary((*operator, left, right), expr, target, before, depth)
            }
            Expr::Choice(condition, value, other) => {
                if self.is_known(condition) {
                    let is_met =
                        self.evaluated(condition, before).is_some_and(|number| number != 0);
                    return self.number(if is_met { value } else { other }, target, before, depth);
                }
                let first = self.evaluated(condition, before).is_none_or(|number| number != 0);
                let branches = if first {
                    [(value, true), (other, false)]
                } else {
                    [(other, false), (value, true)]
                };
                branches.into_iter().any(|(branch, wanted)| {
                    let kept = self.values.clone();
                    let is_found = self.number(branch, target, before, depth)
                        && (self.evaluated(expr, before) == Some(target)
                            || self.truth(condition, wanted, before, depth)
                                && self.evaluated(expr, before) == Some(target));
                    if !is_found {
                        self.values = kept;
                    }
                    is_found
                })
            }
            Expr::ByBit(list, mask) => self.element(list, mask, expr, target, before, depth),
            _ => self.evaluated(expr, before) == Some(target),
        }
    }

    /// Whether an expression takes an element of a list that nothing has told yet: those are zero.
    fn lacks_element(&self, expr: &Expr, before: &Params) -> bool {
        let mut lacks = false;
        each_inner(expr, &mut |inner| {
            lacks |=
                matches!(inner, Expr::ByBit(..)) && self.evaluated(inner, before).unwrap_or(0) == 0;
        });
        lacks
    }

    /// Lets the element of a list be a number that the lowest bit of a mask stands for. An element that is made of
    /// another value tells that one, as long as the list has no other elements.
    fn element(
        &mut self,
        list: &Expr,
        mask: &Expr,
        whole: &Expr,
        target: i128,
        before: &Params,
        depth: usize,
    ) -> bool {
        let bit = self.evaluated(mask, before).map(|mask| mask.trailing_zeros() as usize);
        let (Some(name), Some(bit)) = (self.machine.own_name(list), bit) else {
            return self.evaluated(whole, before) == Some(target);
        };
        if self.machine.is_changed(name) || target == 0 || bit >= MAX_ELEMENTS {
            return self.evaluated(whole, before) == Some(target);
        }
        if let (None, Some(expr)) = (self.values.get(name), self.machine.element(name, bit)) {
            return self.number(&expr, target, before, depth);
        }
        let mut items = match evaluate(&self.machine.node_of(name), &self.now(before), 0) {
            Ok(Datum::List(items)) => items,
            _ => return false,
        };
        if let Some(Told { datum: Datum::List(told), .. }) = self.values.get(name) {
            items.clone_from(told);
        }
        items.resize(items.len().max(bit + 1), Datum::Number(0));
        if items[bit] == Datum::Number(0) {
            items[bit] = Datum::Number(target);
            self.values
                .insert(name.to_owned(), Told { datum: Datum::List(items), is_vague: false });
        }
        self.evaluated(whole, before) == Some(target)
    }

    fn binary(
        &mut self,
        (operator, left, right): (Binary, &Expr, &Expr),
        whole: &Expr,
        target: i128,
        before: &Params,
        depth: usize,
    ) -> bool {
        let known = |solver: &Self, expr: &Expr| {
            let is_known = solver.is_known(expr) && !solver.lacks_element(expr, before);
            solver.evaluated(expr, before).filter(|_| is_known)
        };
        let (a, b) = (known(self, left), known(self, right));
        match (operator, a, b) {
            (_, Some(_), Some(_)) => self.evaluated(whole, before) == Some(target),
            (Binary::Plus, _, Some(b)) => self.number(left, target - b, before, depth),
            (Binary::Plus, Some(a), _) => self.number(right, target - a, before, depth),
            (Binary::Minus, _, Some(b)) => self.number(left, target + b, before, depth),
            (Binary::Minus, Some(a), _) => self.number(right, a - target, before, depth),
            // What was divided lost its rest: the next number up is the one that gives it.
            (Binary::Times, _, Some(b)) if b > 0 => self.number(left, up(target, b), before, depth),
            (Binary::Times, Some(a), _) if a > 0 => {
                self.number(right, up(target, a), before, depth)
            }
            (Binary::Divide, _, Some(b)) => {
                self.number(left, target.saturating_mul(b), before, depth)
            }
            (Binary::ShiftLeft, _, Some(b @ 0..64)) => {
                self.number(left, target >> b, before, depth)
            }
            (Binary::ShiftLeft, Some(a), _) if a > 0 && target >= a => {
                self.number(right, (target / a).ilog2().into(), before, depth)
            }
            (Binary::ShiftRight, _, Some(b @ 0..64)) => {
                self.number(left, target << b, before, depth)
            }
            (Binary::Equal | Binary::Unequal | Binary::And | Binary::Or, ..) if target <= 1 => {
                self.truth(whole, target == 1, before, depth)
            }
            _ => self.evaluated(whole, before) == Some(target),
        }
    }

    /// Fields of bits: `a | b << 4 | c << 12`. Plain values first, for the others may be made of them.
    fn bits(&mut self, whole: &Expr, target: i128, before: &Params, depth: usize) -> bool {
        let mut parts = Vec::new();
        self.parts(whole, before, &mut parts);
        parts.sort_by_key(|(shift, _)| *shift);
        let ends: Vec<i128> = parts.iter().skip(1).map(|(shift, _)| *shift).chain([64]).collect();
        let mut parts: Vec<_> = parts.into_iter().zip(ends).collect();
        parts.sort_by_key(|((_, expr), _)| self.machine.depth_of(expr));
        for ((shift, expr), end) in parts {
            let width = end - shift;
            if width <= 0 || !self.number(expr, target >> shift & ((1 << width) - 1), before, depth)
            {
                break;
            }
        }
        self.evaluated(whole, before) == Some(target)
    }

    fn parts<'e>(&self, expr: &'e Expr, before: &Params, parts: &mut Vec<(i128, &'e Expr)>) {
        match expr {
            Expr::Binary(Binary::BitOr, left, right) => {
                self.parts(left, before, parts);
                self.parts(right, before, parts);
            }
            Expr::Binary(Binary::ShiftLeft, inner, by) => {
                parts.push((self.evaluated(by, before).unwrap_or(0), inner));
            }
            other => parts.push((0, other)),
        }
    }

    fn value(&mut self, name: &str, target: i128, before: &Params, depth: usize) -> bool {
        let now = evaluate(&self.machine.node_of(name), &self.now(before), 0).ok();
        if self.machine.is_changed(name) {
            return now == Some(Datum::Number(target));
        }
        let Some(expr) = self.machine.made_of(name).filter(|_| !self.values.contains_key(name))
        else {
            return self.tell(name, Datum::Number(target), false);
        };
        let expr = expr.clone();
        let kept = self.values.clone();
        // What programs set begins with what the card has, which other answers may tell.
        let is_early = name.starts_with("state.") && self.pass == Pass::Find;
        if !is_early
            && self.number(&expr, target, before, depth)
            && self.evaluated(&expr, before) == Some(target)
        {
            return true;
        }
        self.values = kept;
        if self.evaluated(&expr, before) == Some(target) {
            return true;
        }
        self.pass == Pass::Replace && self.tell(name, Datum::Number(target), false)
    }

    /// What a value is; `false` where another answer told otherwise.
    fn tell(&mut self, name: &str, datum: Datum, is_vague: bool) -> bool {
        if self.machine.is_changed(name) || is_of_simulator(name) {
            return false;
        }
        let is_zero = |datum: &Datum| *datum == Datum::Number(0);
        match self.values.get(name) {
            Some(told)
                if told.datum == datum || is_vague && is_zero(&told.datum) == is_zero(&datum) => {}
            Some(told) if told.is_vague && is_zero(&told.datum) == is_zero(&datum) => {
                self.values.insert(name.to_owned(), Told { datum, is_vague });
            }
            Some(_) => return false,
            None => drop(self.values.insert(name.to_owned(), Told { datum, is_vague })),
        }
        true
    }

    /// Lets a condition be met, or not.
    fn truth(&mut self, expr: &Expr, wanted: bool, before: &Params, depth: usize) -> bool {
        if depth > MAX_DEPTH {
            return false;
        }
        let depth = depth + 1;
        let now = self.evaluated(expr, before).map(|number| number != 0);
        let own = self.machine.own_name(expr);
        if let Some(name) = own {
            return match (wanted, now) {
                (true, Some(true)) => true,
                (true, _) => self.tell(name, Datum::Number(1), true),
                (false, _) => self.tell(name, Datum::Number(0), false),
            };
        }
        if now == Some(wanted) {
            return true;
        }
        let is_found = match (expr, wanted) {
            (Expr::Unary(Unary::Not, inner), _) => self.truth(inner, !wanted, before, depth),
            (Expr::Binary(Binary::And, left, right), true)
            | (Expr::Binary(Binary::Or, left, right), false) => {
                self.truth(left, wanted, before, depth) && self.truth(right, wanted, before, depth)
            }
            (Expr::Binary(Binary::And, left, right), false)
            | (Expr::Binary(Binary::Or, left, right), true) => {
                let kept = self.values.clone();
                self.truth(right, wanted, before, depth) || {
                    self.values = kept;
                    self.truth(left, wanted, before, depth)
                }
            }
            (Expr::Binary(Binary::Equal, left, right), true) => match self.evaluated(right, before)
            {
                Some(number) => self.number(left, number, before, depth),
                None => false,
            },
            _ => false,
        };
        is_found && self.evaluated(expr, before).map(|number| number != 0) == Some(wanted)
    }
}

/// The least number that gives a target when it is multiplied and what is too much is cut off.
fn up(target: i128, by: i128) -> i128 {
    target.div_euclid(by) + i128::from(target.rem_euclid(by) != 0)
}

/// The value that is all of a text: `{board.serial}`.
fn whole_name(pieces: &[Piece]) -> Option<&String> {
    let mut parts =
        pieces.iter().filter(|piece| !matches!(piece, Piece::Plain(text) if text.is_empty()));
    match (parts.next(), parts.next()) {
        (Some(Piece::Expr(Expr::Value(name))), None) => Some(name),
        _ => None,
    }
}
