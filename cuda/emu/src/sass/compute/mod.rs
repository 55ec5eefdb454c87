//! What an instruction computes: functions of 32 lanes, chosen when a cubin is loaded.

pub(super) mod floats;
pub(super) mod halves;
pub(super) mod integers;

use crate::lanes::LaneFn;

/// 32 bits of each lane.
pub(crate) type Row = [u32; 32];

/// A function of rows.
pub(crate) type Native = fn(&Modes, &In<'_>, &mut Out);

/// The function of an instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Function {
    Native(Native),
    /// One that PTX has as well, by its number of sources and whether each has 64 bits.
    Lanes(LaneFn, usize),
}

/// What the sources hold: the lower and the upper 32 bits, and predicates as masks.
pub(crate) struct In<'a> {
    pub(crate) a: &'a Row,
    pub(crate) b: &'a Row,
    pub(crate) c: &'a Row,
    pub(crate) high: [&'a Row; 3],
    pub(crate) p: [u32; 3],
}

/// The results.
pub(crate) struct Out {
    pub(crate) d: Row,
    pub(crate) high: Row,
    pub(crate) p: [u32; 2],
}

impl Out {
    pub(crate) const EMPTY: Self = Self { d: [0; 32], high: [0; 32], p: [0; 2] };
}

/// What modifiers say. Each instruction has those it needs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Modes {
    pub(crate) signed: bool,
    pub(crate) wrap: bool,
    pub(crate) high: bool,
    /// A carry comes in.
    pub(crate) extended: bool,
    /// Sources that are negated, each as its complement plus one.
    pub(crate) negated: [bool; 3],
    pub(crate) compare: Compare,
    pub(crate) combine: Combine,
    pub(crate) flush: bool,
    pub(crate) saturate: bool,
    pub(crate) propagate_nan: bool,
    /// The table of a logic function, the amount of a shift, or the mode of a permutation.
    pub(crate) number: u8,
    pub(crate) other: u8,
    /// Of two, that a product is multiplied with.
    pub(crate) power: i8,
    pub(crate) wide: bool,
    pub(crate) left: bool,
}

/// Comparisons: what holds for less, equal, greater, and unordered.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Compare {
    pub(crate) less: bool,
    pub(crate) equal: bool,
    pub(crate) greater: bool,
    pub(crate) unordered: bool,
}

impl Compare {
    pub(crate) fn holds(self, order: Option<std::cmp::Ordering>) -> bool {
        match order {
            Some(std::cmp::Ordering::Less) => self.less,
            Some(std::cmp::Ordering::Equal) => self.equal,
            Some(std::cmp::Ordering::Greater) => self.greater,
            None => self.unordered,
        }
    }
}

/// How a comparison and a predicate become one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) enum Combine {
    #[default]
    And,
    Or,
    Xor,
}

impl Combine {
    pub(crate) fn of(self, a: u32, b: u32) -> u32 {
        match self {
            Self::And => a & b,
            Self::Or => a | b,
            Self::Xor => a ^ b,
        }
    }
}

/// The lanes for which something holds.
fn mask(holds: impl Fn(usize) -> bool) -> u32 {
    (0..32).fold(0, |mask, lane| mask | u32::from(holds(lane)) << lane)
}

/// Sets a comparison's two predicates.
fn compared(m: &Modes, holds: u32, p: u32, out: &mut Out) {
    out.p = [m.combine.of(holds, p), m.combine.of(!holds, p)];
}
