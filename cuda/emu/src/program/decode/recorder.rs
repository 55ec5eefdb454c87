//! The instructions by which `nvabi trace` records a branch: many, which come at every branch, and are one here.
//!
//! The text from which the compiler's pass takes them is compared with what is decoded. Code that an older pass has
//! made does not match, and is run as any other.

use std::slice::from_ref;
use std::sync::OnceLock;

use super::super::{Op, RecordBranch};
use super::Decoder;
use crate::error::LoadError;
use crate::ptx::{self, Operand, Statement};

const TEXT: &str = include_str!("recorder.ptx");
/// The names `$0`, `$1`, … of the text, each of which stands for an operand.
const NAMES: usize = 9;
type Operands<'a> = [Option<Operand<'a>>; NAMES];

/// The statements that record a branch, and the operands that they have.
pub(super) struct Site<'s, 'a> {
    pub(super) length: usize,
    first: &'s ptx::Instruction<'a>,
    operands: Operands<'a>,
}

/// What a function's statements begin with.
pub(super) fn site<'s, 'a>(statements: &'s [Statement<'a>]) -> Option<Site<'s, 'a>> {
    let pattern = pattern();
    let found = statements.get(..pattern.len()).filter(|_| !pattern.is_empty())?;
    let mut operands = Operands::default();
    let mut pairs = pattern.iter().zip(found);
    if !pairs.all(|(pattern, found)| is_same(pattern, found, &mut operands)) {
        return None;
    }
    let first = found.iter().find_map(|statement| match statement {
        Statement::Instruction(instruction) => Some(instruction),
        _ => None,
    })?;
    Some(Site { length: found.len(), first, operands })
}

fn pattern() -> &'static [Statement<'static>] {
    static MODULE: OnceLock<String> = OnceLock::new();
    static PATTERN: OnceLock<Vec<Statement<'static>>> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let head = ".version 7.5\n.target sm_80\n.address_size 64\n.func recorder()\n";
        let module = MODULE.get_or_init(|| format!("{head}{{\n{TEXT}\n}}\n"));
        let function =
            ptx::parse(module).ok().and_then(|module| module.functions.into_iter().next());
        function.map(|function| function.body).unwrap_or_default()
    })
}

fn is_same<'a>(
    pattern: &Statement<'static>,
    found: &Statement<'a>,
    operands: &mut Operands<'a>,
) -> bool {
    match (pattern, found) {
        (Statement::Open, Statement::Open) | (Statement::Close, Statement::Close) => true,
        (
            Statement::Registers { name, count, predicates },
            Statement::Registers { name: other, count: others, predicates: truths },
        ) => (name, count, predicates) == (other, others, truths),
        (Statement::Instruction(pattern), Statement::Instruction(found)) => {
            let guards = match (pattern.guard, found.guard) {
                (None, None) => true,
                (Some((name, negated)), Some((other, also))) => {
                    negated == also && is_name(name, &Operand::Name(other, 0), operands)
                }
                _ => false,
            };
            guards
                && pattern.opcode == found.opcode
                && are_same(&pattern.operands, &found.operands, operands)
        }
        _ => false,
    }
}

fn are_same<'a>(
    pattern: &[Operand<'static>],
    found: &[Operand<'a>],
    operands: &mut Operands<'a>,
) -> bool {
    let mut pairs = pattern.iter().zip(found);
    pattern.len() == found.len()
        && pairs.all(|pair| match pair {
            (Operand::Name(name, 0), found) => is_name(name, found, operands),
            (Operand::Immediate(value), Operand::Immediate(other)) => value == other,
            (Operand::Vector(pattern), Operand::Vector(found)) => {
                are_same(pattern, found, operands)
            }
            (Operand::Address(base, at), Operand::Address(other, there)) => {
                at == there && are_same(from_ref(base.as_ref()), from_ref(other.as_ref()), operands)
            }
            _ => false,
        })
}

/// Whether a name is an operand, or stands for any, but each time for the same.
fn is_name<'a>(pattern: &str, found: &Operand<'a>, operands: &mut Operands<'a>) -> bool {
    let Some(number) = pattern.strip_prefix('$') else {
        return matches!(found, Operand::Name(name, 0) if *name == pattern);
    };
    let number = number.parse().ok();
    let Some(slot) = number.and_then(|number: usize| operands.get_mut(number)) else {
        return false;
    };
    slot.get_or_insert_with(|| found.clone()) == found
}

impl<'a> Decoder<'_, 'a> {
    pub(super) fn record_branch(&mut self, site: &Site<'_, 'a>) -> Result<(), LoadError> {
        self.locate(site.first);
        self.guard = None;
        let [taken, slot, below, end, _, number, condition, events, scale] =
            site.operands.each_ref().map(Option::as_ref);
        let op = RecordBranch {
            taken: self.dst(taken)?,
            slot: self.src(slot)?,
            below: self.src(below)?,
            end: self.src(end)?,
            site: self.src(number)?,
            condition: self.src(condition)?,
            events: self.src(events)?,
            scale: self.src(scale)?,
        };
        self.emit(Op::RecordBranch(Box::new(op)));
        Ok(())
    }
}
