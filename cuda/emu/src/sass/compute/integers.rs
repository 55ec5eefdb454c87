//! Integers, logic, shifts and moves.

use super::{In, Modes, Out, compared, mask};

macro_rules! rows {
    ($name:ident, |$a:ident| $e:expr) => {
        pub(in crate::sass) fn $name(_: &Modes, i: &In<'_>, out: &mut Out) {
            for lane in 0..32 {
                let $a = i.a[lane];
                out.d[lane] = $e;
            }
        }
    };
    ($name:ident, |$m:ident, $a:ident, $b:ident| $e:expr) => {
        pub(in crate::sass) fn $name($m: &Modes, i: &In<'_>, out: &mut Out) {
            for lane in 0..32 {
                let ($a, $b) = (i.a[lane], i.b[lane]);
                out.d[lane] = $e;
            }
        }
    };
    ($name:ident, |$m:ident, $a:ident, $b:ident, $c:ident| $e:expr) => {
        pub(in crate::sass) fn $name($m: &Modes, i: &In<'_>, out: &mut Out) {
            for lane in 0..32 {
                let ($a, $b, $c) = (i.a[lane], i.b[lane], i.c[lane]);
                out.d[lane] = $e;
            }
        }
    };
}

rows!(copy, |a| a);
rows!(reverse, |a| a.reverse_bits());
rows!(absolute, |a| (a as i32).unsigned_abs());
rows!(count_ones, |a| a.count_ones());

fn bit(mask: u32, lane: usize) -> u64 {
    u64::from(mask >> lane & 1)
}

/// One for each source that is negated: it comes as its complement.
fn ones(m: &Modes) -> u64 {
    m.negated.iter().map(|negated| u64::from(*negated)).sum()
}

pub(in crate::sass) fn add(m: &Modes, i: &In<'_>, out: &mut Out) {
    let ones = ones(m) as u32;
    for lane in 0..32 {
        out.d[lane] = i.a[lane].wrapping_add(i.b[lane]).wrapping_add(i.c[lane]).wrapping_add(ones);
    }
}

/// With carries: two come in where the instruction is extended, and up to two go out.
pub(in crate::sass) fn add_carry(m: &Modes, i: &In<'_>, out: &mut Out) {
    let ones = ones(m);
    out.p = [0; 2];
    for lane in 0..32 {
        let carry = if m.extended { bit(i.p[0], lane) + bit(i.p[1], lane) } else { 0 };
        let sum = u64::from(i.a[lane]) + u64::from(i.b[lane]) + u64::from(i.c[lane]) + ones + carry;
        out.d[lane] = sum as u32;
        out.p[0] |= u32::from(sum >> 32 >= 1) << lane;
        out.p[1] |= u32::from(sum >> 32 >= 2) << lane;
    }
}

rows!(multiply_add, |m, a, b, c| a
    .wrapping_mul(b)
    .wrapping_add(c)
    .wrapping_add(u32::from(m.negated[2])));

pub(in crate::sass) fn multiply_add_carry(_: &Modes, i: &In<'_>, out: &mut Out) {
    for lane in 0..32 {
        let product = i.a[lane].wrapping_mul(i.b[lane]);
        out.d[lane] = product.wrapping_add(i.c[lane]).wrapping_add(bit(i.p[0], lane) as u32);
    }
}

/// All 64 bits of a product and a summand of 64 bits, or their upper half.
pub(in crate::sass) fn multiply_wide(m: &Modes, i: &In<'_>, out: &mut Out) {
    out.p = [0; 2];
    for lane in 0..32 {
        let (a, b) = (i.a[lane], i.b[lane]);
        let product = if m.signed {
            (i64::from(a as i32) * i64::from(b as i32)) as u64
        } else {
            u64::from(a) * u64::from(b)
        };
        let c = u64::from(i.c[lane]) | u64::from(i.high[2][lane]) << 32;
        let carry = if m.extended { bit(i.p[0], lane) } else { u64::from(m.negated[2]) };
        let sum = u128::from(product) + u128::from(c) + u128::from(carry);
        out.p[0] |= u32::from(sum >> 64 != 0) << lane;
        out.high[lane] = (sum >> 32) as u32;
        out.d[lane] = if m.high { (sum >> 32) as u32 } else { sum as u32 };
    }
}

pub(in crate::sass) fn compare(m: &Modes, i: &In<'_>, out: &mut Out) {
    let holds = mask(|lane| {
        let (a, b) = (i.a[lane], i.b[lane]);
        let order = if m.signed { (a as i32).cmp(&(b as i32)) } else { a.cmp(&b) };
        if m.extended && order.is_eq() {
            // The lower halves decide, where they can.
            let low = bit(i.p[1], lane) != 0;
            return match (m.compare.less, m.compare.equal, m.compare.greater) {
                (false, false, false) => false,
                (true, true, true) => true,
                _ => low,
            };
        }
        m.compare.holds(Some(order))
    });
    compared(m, holds, i.p[0], out);
}

/// A shifted source and another one: 32 bits, or the upper half of 64.
pub(in crate::sass) fn shift_add(m: &Modes, i: &In<'_>, out: &mut Out) {
    out.p = [0; 2];
    for lane in 0..32 {
        let low = u64::from(i.a[lane]);
        let upper = match (m.high, m.wide) {
            (false, _) => 0,
            (true, true) => (i.a[lane] as i32 >> 31) as u32,
            (true, false) => i.c[lane],
        };
        let value = (low | u64::from(upper) << 32) << (m.number & 31);
        let mut shifted = if m.high { (value >> 32) as u32 } else { value as u32 };
        if m.left {
            // The source's sign or its complement applies to what was shifted.
            shifted = !shifted;
        }
        let carry = if m.extended {
            bit(i.p[0], lane)
        } else {
            u64::from(m.negated[0]) + u64::from(m.negated[1])
        };
        let sum = u64::from(shifted) + u64::from(i.b[lane]) + carry;
        out.d[lane] = sum as u32;
        out.p[0] |= u32::from(sum >> 32 != 0) << lane;
    }
}

pub(in crate::sass) fn logic(m: &Modes, i: &In<'_>, out: &mut Out) {
    let select: [u32; 8] =
        std::array::from_fn(|at| 0u32.wrapping_sub(u32::from(m.number) >> at & 1));
    let choose = |by: u32, yes: u32, no: u32| by & yes | !by & no;
    let mut any = 0u32;
    for lane in 0..32 {
        let (a, b, c) = (i.a[lane], i.b[lane], i.c[lane]);
        let part = |at: usize| choose(c, select[at + 1], select[at]);
        let value = choose(a, choose(b, part(6), part(4)), choose(b, part(2), part(0)));
        out.d[lane] = value;
        any |= u32::from(value != 0) << lane;
    }
    out.p[0] = if m.wrap { any & i.p[0] } else { any | i.p[0] };
}

/// A shift of 64 bits, of which one half is kept.
pub(in crate::sass) fn shift(m: &Modes, i: &In<'_>, out: &mut Out) {
    let bits = if m.wide { 64 } else { 32 };
    for lane in 0..32 {
        let value = u64::from(i.a[lane]) | u64::from(i.c[lane]) << 32;
        let by = if m.wrap { i.b[lane] & (bits - 1) } else { i.b[lane].min(bits) };
        let value = match (m.left, m.signed) {
            (true, _) => value.checked_shl(by).unwrap_or(0),
            (false, true) => ((value as i64) >> by.min(63)) as u64,
            (false, false) => value.checked_shr(by).unwrap_or(0),
        };
        out.d[lane] = if m.high { (value >> 32) as u32 } else { value as u32 };
    }
}

pub(in crate::sass) fn select(_: &Modes, i: &In<'_>, out: &mut Out) {
    for lane in 0..32 {
        out.d[lane] = if i.p[0] >> lane & 1 != 0 { i.a[lane] } else { i.b[lane] };
    }
}

/// The smaller where the predicate holds, else the larger.
pub(in crate::sass) fn least_or_most(m: &Modes, i: &In<'_>, out: &mut Out) {
    for lane in 0..32 {
        let (a, b) = (i.a[lane], i.b[lane]);
        let less = if m.signed { (a as i32) < b as i32 } else { a < b };
        out.d[lane] = if less == (i.p[0] >> lane & 1 != 0) { a } else { b };
    }
}

/// The least or most of a sum and another number.
pub(in crate::sass) fn add_least_or_most(m: &Modes, i: &In<'_>, out: &mut Out) {
    let ones = u32::from(m.negated[1]);
    for lane in 0..32 {
        let (a, b) = (i.a[lane].wrapping_add(i.b[lane]).wrapping_add(ones), i.c[lane]);
        let less = if m.signed { (a as i32) < b as i32 } else { a < b };
        let value = if less == (i.p[0] >> lane & 1 != 0) { a } else { b };
        out.d[lane] = if m.saturate && (value as i32) < 0 { 0 } else { value };
    }
}

/// The least or most of three numbers.
pub(in crate::sass) fn least_or_most_of_three(m: &Modes, i: &In<'_>, out: &mut Out) {
    for lane in 0..32 {
        let least = i.p[0] >> lane & 1 != 0;
        let better = |a: u32, b: u32| {
            let less = if m.signed { (a as i32) < b as i32 } else { a < b };
            if less == least { a } else { b }
        };
        let value = better(better(i.a[lane], i.b[lane]), i.c[lane]);
        out.d[lane] = if m.saturate && (value as i32) < 0 { 0 } else { value };
    }
}

/// Bytes of two registers, by a selector.
pub(in crate::sass) fn permute(m: &Modes, i: &In<'_>, out: &mut Out) {
    for lane in 0..32 {
        let all = (u64::from(i.a[lane]) | u64::from(i.c[lane]) << 32).to_le_bytes();
        let by = i.b[lane];
        let byte = |at: u32| {
            let first = (by & 3) as u8;
            let at = at as u8;
            let pick = match m.number {
                0 => {
                    let selector = by >> (4 * u32::from(at)) & 0xf;
                    let value = all[selector as usize & 7];
                    return if selector & 8 != 0 { (value as i8 >> 7) as u8 } else { value };
                }
                1 => first + at,
                2 => first.wrapping_sub(at) & 7,
                3 => first,
                4 => first.max(at),
                5 => first.min(at),
                _ => (first & 1) * 2 + (at & 1),
            };
            all[usize::from(pick & 7)]
        };
        out.d[lane] = u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)]);
    }
}

/// Extends the lowest bits, as many as the second source says.
pub(in crate::sass) fn extend(m: &Modes, i: &In<'_>, out: &mut Out) {
    for lane in 0..32 {
        let count = if m.wrap { i.b[lane] & 31 } else { i.b[lane].min(32) };
        let unused = 32 - count;
        let up = i.a[lane].checked_shl(unused).unwrap_or(0);
        out.d[lane] = match (unused, m.signed) {
            (32, _) => 0,
            (_, true) => (up as i32 >> unused) as u32,
            (_, false) => up >> unused,
        };
    }
}

/// As many ones as the second source says, from the bit that the first says.
pub(in crate::sass) fn bits(m: &Modes, i: &In<'_>, out: &mut Out) {
    for lane in 0..32 {
        let (start, count) = (i.a[lane], i.b[lane]);
        let (start, count) = if m.wrap { (start & 31, count & 31) } else { (start, count.min(32)) };
        let ones = ((1u64 << count) - 1) as u32;
        out.d[lane] = ones.checked_shl(start).unwrap_or(0);
    }
}

/// Position of the highest bit that is no sign, or the shift that brings it to the top.
pub(in crate::sass) fn find_leading(m: &Modes, i: &In<'_>, out: &mut Out) {
    out.p = [0; 2];
    for lane in 0..32 {
        let value = i.a[lane];
        let value = if m.signed && (value as i32) < 0 { !value } else { value };
        let found = value != 0;
        let zeros = value.leading_zeros();
        out.d[lane] = match (found, m.high) {
            (false, _) => u32::MAX,
            (true, true) => zeros,
            (true, false) => 31 - zeros,
        };
        out.p[0] |= u32::from(found) << lane;
    }
}

/// The sum of products of four bytes each.
pub(in crate::sass) fn dot(m: &Modes, i: &In<'_>, out: &mut Out) {
    let byte = |value: u8, signed: bool| {
        if signed { i32::from(value as i8) } else { i32::from(value) }
    };
    for lane in 0..32 {
        let pairs = i.a[lane].to_le_bytes().into_iter().zip(i.b[lane].to_le_bytes());
        let sum: i32 = pairs.map(|(a, b)| byte(a, m.signed) * byte(b, m.wide)).sum();
        let one = u32::from(m.negated[2]);
        out.d[lane] = (sum as u32).wrapping_add(i.c[lane]).wrapping_add(one);
    }
}

/// How far two numbers are apart, and a summand.
pub(in crate::sass) fn distance(m: &Modes, i: &In<'_>, out: &mut Out) {
    for lane in 0..32 {
        let (a, b) = (i.a[lane], i.b[lane]);
        let apart = if m.signed { (a as i32).abs_diff(b as i32) } else { a.abs_diff(b) };
        out.d[lane] = apart.wrapping_add(i.c[lane]);
    }
}

/// Two functions of three predicates.
pub(in crate::sass) fn predicate_logic(m: &Modes, i: &In<'_>, out: &mut Out) {
    let of = |table: u8| {
        mask(|lane| {
            let at = bit(i.p[0], lane) << 2 | bit(i.p[1], lane) << 1 | bit(i.p[2], lane);
            table >> at & 1 != 0
        })
    };
    out.p = [of(m.number), of(m.other)];
}

/// The same of the signs of three numbers.
pub(in crate::sass) fn sign_logic(m: &Modes, i: &In<'_>, out: &mut Out) {
    let signs = [i.a, i.b, i.c].map(|row| mask(|lane| (row[lane] as i32) < 0));
    let zero = [0; 32];
    let none = In { a: &zero, b: &zero, c: &zero, high: [&zero; 3], p: signs };
    predicate_logic(m, &none, out);
}

/// A narrower integer, clamped.
pub(in crate::sass) fn clamp(m: &Modes, i: &In<'_>, out: &mut Out) {
    let (low, high) = match (m.signed, m.number) {
        (false, 8) => (0, 0xff),
        (true, 8) => (-0x80, 0x7f),
        (false, _) => (0, 0xffff),
        (true, _) => (-0x8000, 0x7fff),
    };
    for lane in 0..32 {
        out.d[lane] = (i.a[lane] as i32).clamp(low, high) as u32;
    }
}
