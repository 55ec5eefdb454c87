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
/// The names `$0`, `$1`, … of the text, each of which stands for a register.
const NAMES: usize = 9;

/// The statements that record a branch, and the registers that they name.
pub(super) struct Site<'s, 'a> {
    pub(super) length: usize,
    first: &'s ptx::Instruction<'a>,
    names: [&'a str; NAMES],
}

/// What a function's statements begin with.
pub(super) fn site<'s, 'a>(statements: &'s [Statement<'a>]) -> Option<Site<'s, 'a>> {
    let pattern = pattern();
    let found = statements.get(..pattern.len()).filter(|_| !pattern.is_empty())?;
    let mut names = [""; NAMES];
    let mut pairs = pattern.iter().zip(found);
    if !pairs.all(|(pattern, found)| is_same(pattern, found, &mut names)) {
        return None;
    }
    let first = found.iter().find_map(|statement| match statement {
        Statement::Instruction(instruction) => Some(instruction),
        _ => None,
    })?;
    Some(Site { length: found.len(), first, names })
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
    names: &mut [&'a str; NAMES],
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
                    negated == also && is_name(name, other, names)
                }
                _ => false,
            };
            guards
                && pattern.opcode == found.opcode
                && are_same(&pattern.operands, &found.operands, names)
        }
        _ => false,
    }
}

fn are_same<'a>(
    pattern: &[Operand<'static>],
    found: &[Operand<'a>],
    names: &mut [&'a str; NAMES],
) -> bool {
    let mut pairs = pattern.iter().zip(found);
    pattern.len() == found.len()
        && pairs.all(|pair| match pair {
            (Operand::Name(name, at), Operand::Name(other, there)) => {
                at == there && is_name(name, other, names)
            }
            (Operand::Immediate(value), Operand::Immediate(other)) => value == other,
            (Operand::Vector(pattern), Operand::Vector(found)) => are_same(pattern, found, names),
            (Operand::Address(base, at), Operand::Address(other, there)) => {
                at == there && are_same(from_ref(base.as_ref()), from_ref(other.as_ref()), names)
            }
            _ => false,
        })
}

/// Whether names are the same, of which one may stand for any, but each time for the same.
fn is_name<'a>(pattern: &str, found: &'a str, names: &mut [&'a str; NAMES]) -> bool {
    let Some(number) = pattern.strip_prefix('$') else { return pattern == found };
    let Some(name) = number.parse().ok().and_then(|number: usize| names.get_mut(number)) else {
        return false;
    };
    if name.is_empty() {
        *name = found;
    }
    *name == found
}

impl<'a> Decoder<'_, 'a> {
    pub(super) fn record_branch(&mut self, site: &Site<'_, 'a>) -> Result<(), LoadError> {
        self.locate(site.first);
        self.guard = None;
        let [taken, slot, below, end, _, number, condition, events, scale] = site.names;
        let op = RecordBranch {
            taken: self.write_register(taken)?,
            slot: self.read_register(slot)?,
            below: self.read_register(below)?,
            end: self.read_register(end)?,
            site: self.read_register(number)?,
            condition: self.read_register(condition)?,
            events: self.read_register(events)?,
            scale: self.read_register(scale)?,
        };
        self.emit(Op::RecordBranch(Box::new(op)));
        Ok(())
    }
}
