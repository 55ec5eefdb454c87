//! PTX text as plain data: what a module declares and the statements of its functions.
//!
//! Knows the grammar, not the meaning: an opcode is the word that stands there. Names borrow from the
//! text.

mod lexer;
mod parser;

pub(crate) use parser::parse;

/// Where a statement came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Loc {
    /// Number of the `.file` directive; 0 is none.
    pub(crate) file: u32,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// One module.
#[derive(Debug, Default)]
pub(crate) struct Module<'a> {
    /// Path of each `.file`, by its number.
    pub(crate) files: Vec<(u32, &'a str)>,
    pub(crate) variables: Vec<Variable<'a>>,
    pub(crate) functions: Vec<Function<'a>>,
}

/// State spaces of variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Global,
    Const,
    Shared,
    Local,
    Param,
}

/// Who sees a name of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Linkage {
    /// The module alone.
    Local,
    /// Every module; it is defined once.
    Visible,
    /// Every module; one of several definitions counts.
    Weak,
    /// It is defined elsewhere.
    Extern,
}

/// A variable of any state space.
#[derive(Debug, Clone)]
pub(crate) struct Variable<'a> {
    pub(crate) name: &'a str,
    pub(crate) space: Space,
    pub(crate) align: u64,
    /// Bytes of one element.
    pub(crate) width: u64,
    /// Bytes of all of it; 0 for an array of unknown length.
    pub(crate) size: u64,
    pub(crate) linkage: Linkage,
    pub(crate) init: Vec<Init<'a>>,
    pub(crate) line: u32,
}

/// One element of an initialiser.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Init<'a> {
    Value(u64),
    /// Address of a symbol plus an offset.
    Symbol {
        name: &'a str,
        offset: i64,
    },
}

/// A kernel or a device function.
#[derive(Debug)]
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    pub(crate) linkage: Linkage,
    pub(crate) entry: bool,
    /// Whether it has a body; `.extern` and forward declarations have none.
    pub(crate) defined: bool,
    pub(crate) results: Vec<Variable<'a>>,
    pub(crate) params: Vec<Variable<'a>>,
    /// Most threads a block may have, from `.maxntid` or `.reqntid`.
    pub(crate) max_threads: Option<u64>,
    pub(crate) body: Vec<Statement<'a>>,
    pub(crate) line: u32,
}

/// One statement of a function.
#[derive(Debug)]
pub(crate) enum Statement<'a> {
    /// `.reg`: a name, or a prefix and how many.
    Registers {
        name: &'a str,
        count: Option<u32>,
        predicates: bool,
    },
    /// A variable of the function.
    Variable(Variable<'a>),
    Label(&'a str),
    /// `name: .branchtargets a, b;`
    Targets {
        name: &'a str,
        labels: Vec<&'a str>,
    },
    /// `name: .callprototype …;`: an indirect call follows.
    Prototype {
        name: &'a str,
    },
    /// `{` and `}`: names declared between them end with it.
    Open,
    Close,
    /// `.pragma "used_bytes_mask N"`: which bytes of the next load are used.
    UsedBytes(u64),
    Instruction(Instruction<'a>),
}

/// One instruction.
#[derive(Debug)]
pub(crate) struct Instruction<'a> {
    /// The predicate register, and whether it must be false.
    pub(crate) guard: Option<(&'a str, bool)>,
    pub(crate) opcode: &'a str,
    pub(crate) operands: Vec<Operand<'a>>,
    /// Line of the PTX text.
    pub(crate) line: u32,
    pub(crate) loc: Loc,
}

/// One operand.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operand<'a> {
    /// A register, symbol, label or special register, plus an offset.
    Name(&'a str, i64),
    /// `array[3]`: the address of an element
    Element(&'a str, u64),
    /// `!%p`
    Not(&'a str),
    Immediate(u64),
    /// `{a, b}`
    Vector(Vec<Operand<'a>>),
    /// `[base + offset]`
    Address(Box<Operand<'a>>, i64),
    /// `(a, b)` of a call
    List(Vec<Operand<'a>>),
    /// `a|b`
    Pair(Box<Operand<'a>>, Box<Operand<'a>>),
}
