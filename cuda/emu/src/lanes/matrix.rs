//! Products of matrices that a warp holds in its registers: which lane has which element, and what the
//! elements are worth.

use super::half::{self, Brain, Half};

/// A matrix of eight rows and columns of 16 bits, of which each lane has two that are next to each other, turned.
pub(crate) fn turned(lanes: impl Fn(usize) -> u32) -> [u32; 32] {
    let half =
        |row: usize, column: usize| lanes(4 * row + column / 2) >> (16 * (column % 2)) & 0xffff;
    std::array::from_fn(|lane| {
        let (row, column) = (lane / 4, 2 * (lane % 4));
        half(column, row) | half(column + 1, row) << 16
    })
}

/// What an element is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    F16,
    Bf16,
    Tf32,
    F32,
    F64,
    E4m3,
    E5m2,
    S8,
    U8,
    S4,
    U4,
    B1,
    S32,
}

/// A value, in the arithmetic of its kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value {
    Number(f64),
    Integer(i64),
}

impl Element {
    pub(crate) fn of(kind: &str) -> Option<Self> {
        Some(match kind {
            "f16" => Self::F16,
            "bf16" => Self::Bf16,
            "tf32" => Self::Tf32,
            "f32" => Self::F32,
            "f64" => Self::F64,
            "e4m3" => Self::E4m3,
            "e5m2" => Self::E5m2,
            "s8" => Self::S8,
            "u8" => Self::U8,
            "s4" => Self::S4,
            "u4" => Self::U4,
            "b1" => Self::B1,
            "s32" => Self::S32,
            _ => return None,
        })
    }

    /// Bits of an element, in memory and in registers.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::F64 => 64,
            Self::Tf32 | Self::F32 | Self::S32 => 32,
            Self::F16 | Self::Bf16 => 16,
            Self::E4m3 | Self::E5m2 | Self::S8 | Self::U8 => 8,
            Self::S4 | Self::U4 => 4,
            Self::B1 => 1,
        }
    }

    /// Elements in a register, which has 32 bits or one element.
    pub(crate) fn per_register(self) -> usize {
        (32 / self.bits().min(32)) as usize
    }

    fn value(self, raw: u64) -> Value {
        match self {
            Self::F16 => Value::Number(half::value::<Half>(raw as u16)),
            Self::Bf16 => Value::Number(half::value::<Brain>(raw as u16)),
            // The last 13 bits of the fraction are not there.
            Self::Tf32 => Value::Number(f32::from_bits(raw as u32 & 0xffff_e000).into()),
            Self::F32 => Value::Number(f32::from_bits(raw as u32).into()),
            Self::F64 => Value::Number(f64::from_bits(raw)),
            Self::E4m3 => Value::Number(e4m3(raw as u8)),
            // The upper half of a number of 16 bits.
            Self::E5m2 => Value::Number(half::value::<Half>((raw as u16) << 8)),
            Self::S8 => Value::Integer((raw as i8).into()),
            Self::U8 | Self::U4 | Self::B1 => Value::Integer(raw as i64),
            Self::S4 => Value::Integer(((raw as i8) << 4 >> 4).into()),
            Self::S32 => Value::Integer((raw as i32).into()),
        }
    }

    fn raw(self, value: Value, saturate: bool) -> u64 {
        match (self, value) {
            (Self::F16, Value::Number(value)) => half::nearest::<Half>(value).into(),
            (Self::F64, Value::Number(value)) => value.to_bits(),
            (_, Value::Number(value)) => {
                let value = value as f32;
                if value.is_nan() { 0x7fff_ffff } else { value.to_bits().into() }
            }
            (_, Value::Integer(value)) if saturate => {
                u64::from(value.clamp(i32::MIN.into(), i32::MAX.into()) as u32)
            }
            (_, Value::Integer(value)) => u64::from(value as u32),
        }
    }
}

/// Four bits of exponent and three of fraction, without infinities.
fn e4m3(raw: u8) -> f64 {
    let sign = if raw & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(raw >> 3 & 15), f64::from(raw & 7));
    sign * match (exponent, raw & 7) {
        (15, 7) => f64::NAN,
        (0, _) => fraction * 2f64.powi(-9),
        _ => (8.0 + fraction) * 2f64.powi(exponent - 10),
    }
}

/// Which of a product's matrices one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Of so many rows.
    A(usize),
    B,
    /// What is added, and the sum.
    C,
}

/// How a matrix lies over the lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// As PTX prescribes for `mma`.
    Prescribed(Role),
    /// As the implementation likes, for `wmma`: row by row, again and again where lanes have room for more.
    Free,
}

/// A matrix in registers: so many rows and columns of elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fragment {
    pub(crate) element: Element,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) layout: Layout,
}

impl Fragment {
    /// Row and column of an element of a lane, which has so many.
    pub(crate) fn place(&self, lane: usize, count: usize, number: usize) -> (usize, usize) {
        let role = match self.layout {
            Layout::Free => {
                let at = (lane * count + number) % (self.rows * self.columns);
                return (at / self.columns, at % self.columns);
            }
            Layout::Prescribed(role) => role,
        };
        let (group, within) = (lane / 4, lane % 4);
        let each = self.element.per_register();
        let (register, part) = (number / each, number % each);
        match role {
            Role::A(16) => {
                (group + register % 2 * 8, register / 2 * 4 * each + within * each + part)
            }
            Role::A(_) => (group, register * 4 * each + within * each + part),
            Role::B => (register * 4 * each + within * each + part, group),
            Role::C => (group + number / 2 * 8, within * 2 + number % 2),
        }
    }

    /// Registers of each lane, if the matrix fits into them as its layout wants.
    pub(crate) fn fits(&self, registers: usize) -> bool {
        let (slots, all) = (registers * self.element.per_register() * 32, self.rows * self.columns);
        match self.layout {
            Layout::Prescribed(_) => slots == all,
            Layout::Free => all != 0 && slots >= all && slots % all == 0,
        }
    }

    /// The elements, row by row.
    pub(crate) fn gather(&self, registers: usize, read: impl Fn(usize, usize) -> u64) -> Vec<u64> {
        let each = self.element.per_register();
        let keep = u64::MAX >> (64 - self.element.bits());
        let mut out = vec![0; self.rows * self.columns];
        for lane in 0..32 {
            for register in 0..registers {
                let word = read(register, lane);
                for part in 0..each {
                    let (row, column) = self.place(lane, registers * each, register * each + part);
                    out[row * self.columns + column] =
                        word >> (part as u32 * self.element.bits()) & keep;
                }
            }
        }
        out
    }

    /// What a register of a lane holds of the elements.
    pub(crate) fn word(
        &self,
        elements: &[u64],
        registers: usize,
        register: usize,
        lane: usize,
    ) -> u64 {
        let each = self.element.per_register();
        (0..each).fold(0, |word, part| {
            let (row, column) = self.place(lane, registers * each, register * each + part);
            word | elements[row * self.columns + column] << (part as u32 * self.element.bits())
        })
    }
}

/// What a product does with two elements, before it sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Combine {
    Multiply,
    /// Of single bits.
    Xor,
    And,
}

/// `a × b + c`, by rows; sums of numbers are those of doubles, rounded once.
pub(crate) fn multiply(
    [a, b, c, d]: [&Fragment; 4],
    [left, right, start]: [&[u64]; 3],
    combine: Combine,
    saturate: bool,
) -> Vec<u64> {
    let left: Vec<Value> = left.iter().map(|raw| a.element.value(*raw)).collect();
    let right: Vec<Value> = right.iter().map(|raw| b.element.value(*raw)).collect();
    let mut out = Vec::with_capacity(start.len());
    for row in 0..d.rows {
        for column in 0..d.columns {
            let pairs =
                (0..a.columns).map(|k| (left[row * a.columns + k], right[k * b.columns + column]));
            let start = c.element.value(start[row * c.columns + column]);
            let sum = pairs.fold(start, |sum, pair| add(sum, pair, a.element, combine));
            out.push(d.element.raw(sum, saturate));
        }
    }
    out
}

fn add(sum: Value, pair: (Value, Value), element: Element, combine: Combine) -> Value {
    match (sum, pair) {
        (Value::Number(sum), (Value::Number(a), Value::Number(b))) if element == Element::F64 => {
            Value::Number(a.mul_add(b, sum))
        }
        (Value::Number(sum), (Value::Number(a), Value::Number(b))) => Value::Number(sum + a * b),
        (Value::Integer(sum), (Value::Integer(a), Value::Integer(b))) => {
            Value::Integer(match combine {
                Combine::Multiply => sum + a * b,
                Combine::Xor => sum + (a ^ b),
                Combine::And => sum + (a & b),
            })
        }
        // The decoder lets no product of a number and an integer through.
        (sum, _) => sum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The formulas as PTX ISA 8.3 has them, "Matrix Fragments for mma": element i of a lane.
    #[test]
    fn lanes_have_the_elements_that_ptx_prescribes() {
        let fragment = |element, rows, columns, role| Fragment {
            element,
            rows,
            columns,
            layout: Layout::Prescribed(role),
        };
        let bytes = fragment(Element::S8, 16, 32, Role::A(16));
        let halves = fragment(Element::F16, 16, 16, Role::A(16));
        let single = fragment(Element::Tf32, 8, 8, Role::B);
        let sums = fragment(Element::F32, 16, 8, Role::C);
        let doubles = fragment(Element::F64, 8, 4, Role::A(8));
        for lane in 0..32 {
            let (group, within) = (lane / 4, lane % 4);
            for i in 0..16 {
                let row = if i < 4 || (8..12).contains(&i) { group } else { group + 8 };
                let column = within * 4 + (i & 3) + if i < 8 { 0 } else { 16 };
                assert_eq!(bytes.place(lane, 16, i), (row, column));
            }
            for i in 0..8 {
                let row = if i < 2 || (4..6).contains(&i) { group } else { group + 8 };
                let column = within * 2 + (i & 1) + if i < 4 { 0 } else { 8 };
                assert_eq!(halves.place(lane, 8, i), (row, column));
            }
            assert_eq!(
                [0, 1].map(|i| single.place(lane, 2, i)),
                [(within, group), (within + 4, group)]
            );
            assert_eq!(sums.place(lane, 4, 3), (group + 8, within * 2 + 1));
            assert_eq!(doubles.place(lane, 1, 0), (group, within));
        }
    }

    #[test]
    fn elements_are_worth_what_their_bits_say() {
        let number = |element: Element, raw| match element.value(raw) {
            Value::Number(value) => value,
            Value::Integer(value) => value as f64,
        };
        assert_eq!(number(Element::E4m3, 0x38), 1.0);
        assert_eq!(number(Element::E4m3, 0xfe), -448.0);
        assert_eq!(number(Element::E4m3, 1), 1.0 / 512.0);
        assert!(number(Element::E4m3, 0x7f).is_nan());
        assert_eq!(number(Element::E5m2, 0x3c), 1.0);
        assert_eq!((number(Element::S4, 15), number(Element::U4, 15)), (-1.0, 15.0));
        assert_eq!(number(Element::Tf32, u64::from(1f32.to_bits() | 0xfff)), 1.0);
        assert_eq!(Element::S32.raw(Value::Integer(1 << 40), true), i32::MAX as u64);
    }
}
