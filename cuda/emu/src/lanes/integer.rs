//! Integer arithmetic, logic, shifts and bit fields.

use super::{Lane, LaneFn, Opcode, by_name, lanes};

macro_rules! by_type {
    ($kind:expr, $T:ident, $f:expr) => {
        by_name!(
            $kind, $T:
            "u16" | "b16" => u16, "s16" => i16, "u32" | "b32" => u32, "s32" => i32,
            "u64" | "b64" => u64, "s64" => i64;
            $f
        )
    };
}
macro_rules! by_signed {
    ($kind:expr, $T:ident, $f:expr) => {
        by_name!($kind, $T: "s16" => i16, "s32" => i32, "s64" => i64; $f)
    };
}

pub(super) fn lookup(opcode: &Opcode<'_>) -> Option<(LaneFn, usize)> {
    let kind = opcode.kind();
    if matches!(kind, "f32" | "f64" | "f16" | "bf16" | "f16x2" | "bf16x2")
        && !matches!(opcode.base, "mov" | "selp")
    {
        return None;
    }
    let one = |f| Some((f, 1));
    let two = |f| Some((f, 2));
    let three = |f| Some((f, 3));
    match opcode.base {
        "mov" | "cvta" => one(lanes!(|a: u64| a)),
        "add" if opcode.has("sat") => two(lanes!(|a: i32, b: i32| a.saturating_add(b))),
        "sub" if opcode.has("sat") => two(lanes!(|a: i32, b: i32| a.saturating_sub(b))),
        "add" => two(by_type!(kind, T, lanes!(|a: T, b: T| a.wrapping_add(b)))),
        "sub" => two(by_type!(kind, T, lanes!(|a: T, b: T| a.wrapping_sub(b)))),
        "mul" => two(multiply(opcode)?),
        "mad" if !opcode.has("cc") && !opcode.has("sat") => three(multiply_add(opcode)?),
        "mul24" => two(multiply24(opcode)?),
        "mad24" if !opcode.has("hi") && !opcode.has("sat") => {
            three(match kind {
                "s32" => {
                    lanes!(|a: u64, b: u64, c: i32| ((low24(a) * low24(b)) as i32).wrapping_add(c))
                }
                _ => lanes!(|a: u32, b: u32, c: u32| ((a << 8 >> 8).wrapping_mul(b << 8 >> 8))
                    .wrapping_add(c)),
            })
        }
        "div" => {
            two(by_type!(kind, T, lanes!(|a: T, b: T| if b == 0 { !0 } else { a.wrapping_div(b) })))
        }
        "rem" => {
            two(by_type!(kind, T, lanes!(|a: T, b: T| if b == 0 { a } else { a.wrapping_rem(b) })))
        }
        "abs" => one(by_signed!(kind, T, lanes!(|a: T| a.wrapping_abs()))),
        "neg" => one(by_signed!(kind, T, lanes!(|a: T| a.wrapping_neg()))),
        "min" => two(by_type!(kind, T, lanes!(|a: T, b: T| a.min(b)))),
        "max" => two(by_type!(kind, T, lanes!(|a: T, b: T| a.max(b)))),
        "sad" => {
            three(by_type!(kind, T, lanes!(|a: T, b: T, c: T| c.wrapping_add(a.abs_diff(b) as T))))
        }
        "and" => two(lanes!(|a: u64, b: u64| a & b)),
        "or" => two(lanes!(|a: u64, b: u64| a | b)),
        "xor" => two(lanes!(|a: u64, b: u64| a ^ b)),
        "not" if kind == "pred" => one(lanes!(|a: bool| !a)),
        "not" => one(by_type!(kind, T, lanes!(|a: T| !a))),
        "cnot" => one(by_type!(kind, T, lanes!(|a: T| T::from(a == 0)))),
        "selp" => three(lanes!(|a: u64, b: u64, c: bool| if c { a } else { b })),
        "slct" if opcode.types().last() == Some("s32") => {
            three(lanes!(|a: u64, b: u64, c: i32| if c >= 0 { a } else { b }))
        }
        "shl" | "shr" => two(shift(opcode)?),
        "shf" => three(funnel(opcode)?),
        _ => bits(opcode, kind),
    }
}

/// Two halves of the first source by two bytes of the second, from this one on, and the third.
macro_rules! dot_of_two {
    ($a_signed:literal, $b_signed:literal, $first:literal) => {
        lanes!(|a: u32, b: u32, c: u32| dot2(a, b >> (8 * $first), $a_signed, $b_signed)
            .wrapping_add(c))
    };
}

/// Bit fields, permutations and dot products.
fn bits(opcode: &Opcode<'_>, kind: &str) -> Option<(LaneFn, usize)> {
    let wide = matches!(kind, "b64" | "u64" | "s64");
    Some(match opcode.base {
        "popc" if wide => (lanes!(|a: u64| a.count_ones()), 1),
        "popc" => (lanes!(|a: u32| a.count_ones()), 1),
        "clz" if wide => (lanes!(|a: u64| a.leading_zeros()), 1),
        "clz" => (lanes!(|a: u32| a.leading_zeros()), 1),
        "brev" if wide => (lanes!(|a: u64| a.reverse_bits()), 1),
        "brev" => (lanes!(|a: u32| a.reverse_bits()), 1),
        "bfind" => (find(kind, opcode.has("shiftamt"))?, 1),
        "bfe" => (
            match kind {
                "u32" => lanes!(|a: u32, p: u32, n: u32| extract(a.into(), p, n, 32, false) as u32),
                "s32" => lanes!(|a: i32, p: u32, n: u32| extract(a as u64, p, n, 32, true) as u32),
                "u64" => lanes!(|a: u64, p: u32, n: u32| extract(a, p, n, 64, false)),
                "s64" => lanes!(|a: u64, p: u32, n: u32| extract(a, p, n, 64, true)),
                _ => return None,
            },
            3,
        ),
        "bfi" if wide => (lanes!(|a: u64, b: u64, p: u32, n: u32| insert(a, b, p, n, 64)), 4),
        "bfi" => (lanes!(|a: u64, b: u32, p: u32, n: u32| insert(a, b.into(), p, n, 32) as u32), 4),
        "prmt" if kind == "b32" && opcode.modifiers.len() == 1 => {
            (lanes!(|a: u32, b: u32, c: u32| permute(a, b, c)), 3)
        }
        "prmt" => (
            match opcode.modifiers[..] {
                ["b32", "f4e"] => lanes!(|a: u32, b: u32, c: u32| pick(a, b, c, |at, i| at + i)),
                ["b32", "b4e"] => {
                    lanes!(|a: u32, b: u32, c: u32| pick(a, b, c, |at, i| at + 8 - i))
                }
                ["b32", "rc8"] => lanes!(|a: u32, b: u32, c: u32| pick(a, b, c, |at, _| at)),
                ["b32", "ecl"] => lanes!(|a: u32, b: u32, c: u32| pick(a, b, c, |at, i| at.max(i))),
                ["b32", "ecr"] => lanes!(|a: u32, b: u32, c: u32| pick(a, b, c, |at, i| at.min(i))),
                ["b32", "rc16"] => {
                    lanes!(|a: u32, b: u32, c: u32| pick(a, b, c, |at, i| (at & 1) * 2 + (i & 1)))
                }
                _ => return None,
            },
            3,
        ),
        "fns" => (lanes!(|mask: u32, base: u32, n: i32| nth_set(mask, base, n)), 3),
        "lop3" => (lanes!(|a: u32, b: u32, c: u32, t: u8| logic3(a, b, c, t)), 4),
        // Without selectors, masks and saturation.
        "vabsdiff4" => (
            match opcode.modifiers[..] {
                ["u32", "u32", "u32"] => {
                    lanes!(|a: u32, b: u32, _c: u32| u32::from_le_bytes(distances(a, b)))
                }
                ["s32", "s32", "s32"] => {
                    lanes!(|a: u32, b: u32, _c: u32| u32::from_le_bytes(signed_distances(a, b)))
                }
                ["s32", "s32", "s32", "add"] => {
                    lanes!(|a: u32, b: u32, c: u32| {
                        let sum: u32 = signed_distances(a, b).into_iter().map(u32::from).sum();
                        c.wrapping_add(sum)
                    })
                }
                ["u32", "u32", "u32", "add"] => {
                    lanes!(|a: u32, b: u32, c: u32| {
                        let sum: u32 = distances(a, b).into_iter().map(u32::from).sum();
                        c.wrapping_add(sum)
                    })
                }
                _ => return None,
            },
            3,
        ),
        "dp2a" => (
            match (&opcode.types().collect::<Vec<_>>()[..], opcode.has("hi")) {
                (["u32", "u32"], false) => dot_of_two!(false, false, 0),
                (["s32", "s32"], false) => dot_of_two!(true, true, 0),
                (["s32", "u32"], false) => dot_of_two!(true, false, 0),
                (["u32", "s32"], false) => dot_of_two!(false, true, 0),
                (["u32", "u32"], true) => dot_of_two!(false, false, 2),
                (["s32", "s32"], true) => dot_of_two!(true, true, 2),
                (["s32", "u32"], true) => dot_of_two!(true, false, 2),
                (["u32", "s32"], true) => dot_of_two!(false, true, 2),
                _ => return None,
            },
            3,
        ),
        "dp4a" => (
            match opcode.types().collect::<Vec<_>>()[..] {
                ["u32", "u32"] => {
                    lanes!(|a: u32, b: u32, c: u32| dot4(a, b, false, false).wrapping_add(c))
                }
                ["s32", "s32"] => {
                    lanes!(|a: u32, b: u32, c: u32| dot4(a, b, true, true).wrapping_add(c))
                }
                ["s32", "u32"] => {
                    lanes!(|a: u32, b: u32, c: u32| dot4(a, b, true, false).wrapping_add(c))
                }
                ["u32", "s32"] => {
                    lanes!(|a: u32, b: u32, c: u32| dot4(a, b, false, true).wrapping_add(c))
                }
                _ => return None,
            },
            3,
        ),
        _ => return None,
    })
}

fn multiply(opcode: &Opcode<'_>) -> Option<LaneFn> {
    let kind = opcode.kind();
    Some(if opcode.has("wide") {
        match kind {
            "u16" => lanes!(|a: u16, b: u16| u32::from(a) * u32::from(b)),
            "s16" => lanes!(|a: i16, b: i16| i32::from(a) * i32::from(b)),
            "u32" => lanes!(|a: u32, b: u32| u64::from(a) * u64::from(b)),
            "s32" => lanes!(|a: i32, b: i32| i64::from(a) * i64::from(b)),
            _ => return None,
        }
    } else if opcode.has("hi") {
        match kind {
            "u16" => lanes!(|a: u16, b: u16| ((u32::from(a) * u32::from(b)) >> 16) as u16),
            "s16" => lanes!(|a: i16, b: i16| ((i32::from(a) * i32::from(b)) >> 16) as i16),
            "u32" => lanes!(|a: u32, b: u32| ((u64::from(a) * u64::from(b)) >> 32) as u32),
            "s32" => lanes!(|a: i32, b: i32| ((i64::from(a) * i64::from(b)) >> 32) as i32),
            "u64" => lanes!(|a: u64, b: u64| ((u128::from(a) * u128::from(b)) >> 64) as u64),
            "s64" => lanes!(|a: i64, b: i64| ((i128::from(a) * i128::from(b)) >> 64) as i64),
            _ => return None,
        }
    } else {
        by_type!(kind, T, lanes!(|a: T, b: T| a.wrapping_mul(b)))
    })
}

fn multiply_add(opcode: &Opcode<'_>) -> Option<LaneFn> {
    let kind = opcode.kind();
    Some(if opcode.has("wide") {
        match kind {
            "u16" => lanes!(|a: u16, b: u16, c: u32| (u32::from(a) * u32::from(b)).wrapping_add(c)),
            "s16" => lanes!(|a: i16, b: i16, c: i32| (i32::from(a) * i32::from(b)).wrapping_add(c)),
            "u32" => lanes!(|a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b)).wrapping_add(c)),
            "s32" => lanes!(|a: i32, b: i32, c: i64| (i64::from(a) * i64::from(b)).wrapping_add(c)),
            _ => return None,
        }
    } else if opcode.has("hi") {
        match kind {
            "u32" => lanes!(|a: u32, b: u32, c: u32| (((u64::from(a) * u64::from(b)) >> 32)
                as u32)
                .wrapping_add(c)),
            "s32" => lanes!(|a: i32, b: i32, c: i32| (((i64::from(a) * i64::from(b)) >> 32)
                as i32)
                .wrapping_add(c)),
            "u64" => lanes!(|a: u64, b: u64, c: u64| (((u128::from(a) * u128::from(b)) >> 64)
                as u64)
                .wrapping_add(c)),
            "s64" => lanes!(|a: i64, b: i64, c: i64| (((i128::from(a) * i128::from(b)) >> 64)
                as i64)
                .wrapping_add(c)),
            _ => return None,
        }
    } else {
        by_type!(kind, T, lanes!(|a: T, b: T, c: T| a.wrapping_mul(b).wrapping_add(c)))
    })
}

fn low24(a: u64) -> i64 {
    (a << 40) as i64 >> 40
}

fn multiply24(opcode: &Opcode<'_>) -> Option<LaneFn> {
    Some(match (opcode.kind(), opcode.has("hi")) {
        ("u32", false) => lanes!(|a: u32, b: u32| (a << 8 >> 8).wrapping_mul(b << 8 >> 8)),
        ("s32", false) => lanes!(|a: u64, b: u64| (low24(a) * low24(b)) as i32),
        _ => return None,
    })
}

fn shift(opcode: &Opcode<'_>) -> Option<LaneFn> {
    let kind = opcode.kind();
    Some(if opcode.base == "shl" {
        by_type!(kind, T, lanes!(|a: T, b: u32| a.checked_shl(b).unwrap_or(0)))
    } else {
        by_type!(kind, T, lanes!(|a: T, b: u32| a >> b.min(T::BITS - 1) >> u32::from(b >= T::BITS)))
    })
}

fn funnel(opcode: &Opcode<'_>) -> Option<LaneFn> {
    fn both(a: u32, b: u32) -> u64 {
        u64::from(b) << 32 | u64::from(a)
    }
    Some(match (opcode.has("l"), opcode.has("wrap")) {
        (true, true) => lanes!(|a: u32, b: u32, c: u32| (both(a, b) << (c & 31) >> 32) as u32),
        (true, false) => lanes!(|a: u32, b: u32, c: u32| (both(a, b) << c.min(32) >> 32) as u32),
        (false, true) => lanes!(|a: u32, b: u32, c: u32| (both(a, b) >> (c & 31)) as u32),
        (false, false) => lanes!(|a: u32, b: u32, c: u32| (both(a, b) >> c.min(32)) as u32),
    })
}

/// Position of the highest bit that differs from the sign, or how far to shift it to the top.
fn find(kind: &str, shift: bool) -> Option<LaneFn> {
    fn position(value: u64, bits: u32, shift: bool) -> u32 {
        match value {
            0 => u32::MAX,
            _ if shift => bits - 1 - value.ilog2(),
            _ => value.ilog2(),
        }
    }
    Some(match (kind, shift) {
        ("u32", false) => lanes!(|a: u32| position(a.into(), 32, false)),
        ("u32", true) => lanes!(|a: u32| position(a.into(), 32, true)),
        ("s32", false) => lanes!(|a: i32| position(((a ^ (a >> 31)) as u32).into(), 32, false)),
        ("s32", true) => lanes!(|a: i32| position(((a ^ (a >> 31)) as u32).into(), 32, true)),
        ("u64", false) => lanes!(|a: u64| position(a, 64, false)),
        ("u64", true) => lanes!(|a: u64| position(a, 64, true)),
        ("s64", false) => lanes!(|a: i64| position((a ^ (a >> 63)) as u64, 64, false)),
        ("s64", true) => lanes!(|a: i64| position((a ^ (a >> 63)) as u64, 64, true)),
        _ => return None,
    })
}

fn extract(value: u64, position: u32, length: u32, bits: u32, signed: bool) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    if length == 0 {
        return 0;
    }
    // A field that reaches beyond the top is filled with the sign.
    let wide = if signed {
        i128::from((value << (64 - bits)) as i64 >> (64 - bits))
    } else {
        i128::from(value)
    };
    let field = wide >> position.min(127);
    let length = length.min(bits);
    let kept = field & ((1i128 << length) - 1);
    let sign_at = (position + length).min(bits) - position.min(bits - 1) - 1;
    if signed && position < bits && kept >> sign_at.min(126) & 1 != 0 {
        (kept | -(1i128 << length)) as u64
    } else if signed && position >= bits && wide < 0 {
        u64::MAX
    } else {
        kept as u64
    }
}

fn insert(field: u64, into: u64, position: u32, length: u32, bits: u32) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    if length == 0 || position >= bits {
        return into;
    }
    let mask = ((1u128 << length.min(64)) - 1) << position;
    (u128::from(into) & !mask | (u128::from(field) << position) & mask) as u64
}

/// The position of the n-th bit that is set, from `base` upwards, or downwards if `n` is negative; of the
/// bit at `base` itself if it is 0. All ones if there is none.
fn nth_set(mask: u32, base: u32, n: i32) -> u32 {
    let set = |at: &u32| mask.checked_shr(*at).is_some_and(|rest| rest & 1 != 0);
    let nth = n.unsigned_abs().saturating_sub(1) as usize;
    let found = match n {
        0 => Some(base).filter(set),
        1.. => (base..32).filter(set).nth(nth),
        _ if base < 32 => (0..=base).rev().filter(set).nth(nth),
        _ => None,
    };
    found.unwrap_or(u32::MAX)
}

fn permute(a: u32, b: u32, control: u32) -> u32 {
    let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
    let mut out = [0; 4];
    for (i, out) in out.iter_mut().enumerate() {
        let select = control >> (4 * i);
        let byte = bytes[(select & 7) as usize];
        *out = if select & 8 == 0 { byte } else { (byte as i8 >> 7) as u8 };
    }
    u32::from_le_bytes(out)
}

/// Bytes of two words by a rule, of the lowest two bits of a selector and the place of a byte.
fn pick(a: u32, b: u32, control: u32, rule: fn(usize, usize) -> usize) -> u32 {
    let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
    u32::from_le_bytes(std::array::from_fn(|at| bytes[rule((control & 3) as usize, at) & 7]))
}

fn logic3(a: u32, b: u32, c: u32, table: u8) -> u32 {
    let mut out = 0;
    for row in 0..8 {
        if table >> row & 1 != 0 {
            out |= if row & 4 != 0 { a } else { !a }
                & if row & 2 != 0 { b } else { !b }
                & if row & 1 != 0 { c } else { !c };
        }
    }
    out
}

fn dot4(a: u32, b: u32, a_signed: bool, b_signed: bool) -> u32 {
    let byte = |value: u8, signed: bool| if signed { i32::from(value as i8) } else { value.into() };
    let products = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
    products.map(|(a, b)| byte(a, a_signed) * byte(b, b_signed)).sum::<i32>() as u32
}

fn dot2(a: u32, b: u32, a_signed: bool, b_signed: bool) -> u32 {
    let product = |half: u16, byte: u8| {
        let half = if a_signed { i64::from(half as i16) } else { half.into() };
        let byte = if b_signed { i64::from(byte as i8) } else { byte.into() };
        half * byte
    };
    (product(a as u16, b as u8) + product((a >> 16) as u16, (b >> 8) as u8)) as u32
}

fn signed_distances(a: u32, b: u32) -> [u8; 4] {
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    std::array::from_fn(|at| (a[at] as i8).abs_diff(b[at] as i8))
}

/// How far the bytes of two words are from each other.
fn distances(a: u32, b: u32) -> [u8; 4] {
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    std::array::from_fn(|at| a[at].abs_diff(b[at]))
}

pub(super) fn comparison(compare: &str, kind: &str) -> Option<LaneFn> {
    let kind = match (compare, kind) {
        ("lo" | "ls" | "hi" | "hs", "s16" | "b16") => "u16",
        ("lo" | "ls" | "hi" | "hs", "s32" | "b32") => "u32",
        ("lo" | "ls" | "hi" | "hs", "s64" | "b64") => "u64",
        (_, kind) => kind,
    };
    if kind == "pred" {
        return None;
    }
    Some(match compare {
        "eq" => by_type!(kind, T, lanes!(|a: T, b: T| a == b)),
        "ne" => by_type!(kind, T, lanes!(|a: T, b: T| a != b)),
        "lt" | "lo" => by_type!(kind, T, lanes!(|a: T, b: T| a < b)),
        "le" | "ls" => by_type!(kind, T, lanes!(|a: T, b: T| a <= b)),
        "gt" | "hi" => by_type!(kind, T, lanes!(|a: T, b: T| a > b)),
        "ge" | "hs" => by_type!(kind, T, lanes!(|a: T, b: T| a >= b)),
        _ => return None,
    })
}

pub(super) fn atomic(operation: &str, kind: &str) -> Option<fn(u64, u64) -> u64> {
    macro_rules! step {
        ($T:ident, |$a:ident, $b:ident| $e:expr) => {
            |a, b| {
                let ($a, $b) = (<$T as Lane>::get(a), <$T as Lane>::get(b));
                Lane::put($e)
            }
        };
    }
    Some(match operation {
        "add" => by_type!(kind, T, step!(T, |a, b| a.wrapping_add(b))),
        "min" => by_type!(kind, T, step!(T, |a, b| a.min(b))),
        "max" => by_type!(kind, T, step!(T, |a, b| a.max(b))),
        "and" => by_type!(kind, T, step!(T, |a, b| a & b)),
        "or" => by_type!(kind, T, step!(T, |a, b| a | b)),
        "xor" => by_type!(kind, T, step!(T, |a, b| a ^ b)),
        "exch" => |_, b| b,
        "inc" => step!(u32, |a, b| if a >= b { 0 } else { a + 1 }),
        "dec" => step!(u32, |a, b| if a == 0 || a > b { b } else { a - 1 }),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::run_with;

    fn run(text: &str, sources: &[u64]) -> u64 {
        run_with(lookup, text, sources)
    }

    #[test]
    fn arithmetic_is_that_of_the_type() {
        let minus = |n: i64| n as u64;
        assert_eq!(run("add.s32", &[0x7fff_ffff, 1]), 0x8000_0000);
        assert_eq!(run("add.s64", &[u64::MAX, 1]), 0);
        assert_eq!(run("mul.wide.s32", &[0xffff_ffff, 4]), minus(-4));
        assert_eq!(run("mul.wide.u32", &[0xffff_ffff, 4]), 0x3_ffff_fffc);
        assert_eq!(run("mul.hi.u64", &[u64::MAX, 2]), 1);
        assert_eq!(run("mad.lo.s32", &[3, 5, 0xffff_ffff]), 14);
        assert_eq!(run("div.s32", &[0xffff_fff9, 2]), 0xffff_fffd);
        assert_eq!(run("rem.s32", &[0xffff_fff9, 2]), 0xffff_ffff);
        assert_eq!(run("div.s32", &[0x8000_0000, 0xffff_ffff]), 0x8000_0000);
        assert_eq!(run("min.s32", &[0xffff_ffff, 1]), 0xffff_ffff);
        assert_eq!(run("min.u32", &[0xffff_ffff, 1]), 1);
        assert_eq!(run("mul24.lo.s32", &[0x00ff_ffff, 5]), 0xffff_fffb);
        assert_eq!(run("sad.u32", &[3, 7, 1]), 5);
    }

    #[test]
    fn shifts_end_at_the_width() {
        assert_eq!(run("shl.b32", &[1, 32]), 0);
        assert_eq!(run("shr.u32", &[0x8000_0000, 31]), 1);
        assert_eq!(run("shr.u32", &[0x8000_0000, 32]), 0);
        assert_eq!(run("shr.s32", &[0x8000_0000, 99]), 0xffff_ffff);
        assert_eq!(run("shr.s64", &[1 << 63, 63]), u64::MAX);
        assert_eq!(run("shf.l.wrap.b32", &[0x8000_0000, 1, 33]), 3);
        assert_eq!(run("shf.r.clamp.b32", &[1, 7, 40]), 7);
    }

    #[test]
    fn bit_fields_are_as_the_ptx_manual_says() {
        assert_eq!(run("bfe.u32", &[0xabcd_1234, 8, 8]), 0x12);
        assert_eq!(run("bfe.s32", &[0xabcd_1234, 28, 4]), 0xffff_fffa);
        assert_eq!(run("bfe.s32", &[0x8000_0000, 31, 8]), 0xffff_ffff);
        assert_eq!(run("bfe.u64", &[u64::MAX, 60, 8]), 15);
        assert_eq!(run("bfi.b32", &[0xff, 0x1234_5678, 8, 4]), 0x1234_5f78);
        assert_eq!(run("prmt.b32", &[0x3322_1100, 0x7766_5544, 0x7531]), 0x7755_3311);
        assert_eq!(run("prmt.b32", &[0x8000, 0, 0x0009]), 0x0000_00ff);
        assert_eq!(run("lop3.b32", &[0b1100, 0b1010, 0b1111, 0x80]), 0b1000);
        assert_eq!(run("lop3.b32", &[0xf0f0, 0xff00, 0xaaaa, 0x96]), 0xf0f0 ^ 0xff00 ^ 0xaaaa);
        assert_eq!(run("popc.b64", &[u64::MAX]), 64);
        assert_eq!(run("clz.b32", &[1]), 31);
        assert_eq!(run("brev.b32", &[1]), 0x8000_0000);
        assert_eq!(run("bfind.u32", &[0x10]), 4);
        assert_eq!(run("bfind.shiftamt.s32", &[0xffff_fffe]), 31);
        assert_eq!(run("bfind.u32", &[0]), 0xffff_ffff);
        let fns = |mask, base, n: i32| run("fns.b32", &[mask, base, u64::from(n as u32)]);
        assert_eq!((fns(0b1011, 0, 1), fns(0b1011, 0, 3), fns(0b1011, 3, -2)), (0, 3, 1));
        assert_eq!((fns(0b1011, 1, 0), fns(1 << 31, 31, 1)), (1, 31));
        for (mask, base, n) in
            [(0b1011, 2, 0), (0b1011, 0, 4), (0b1011, 0, -2), (7, 32, 1), (7, 32, -1)]
        {
            assert_eq!(fns(mask, base, n), 0xffff_ffff);
        }
        assert_eq!(run("dp4a.s32.s32", &[0xff01_0203, 0x0101_0101, 10]), 15);
        let far = [0xff00_0410, 0x00ff_0220, u64::from(u32::MAX)];
        assert_eq!(run("vabsdiff4.u32.u32.u32", &far), 0xffff_0210);
        assert_eq!(run("vabsdiff4.u32.u32.u32.add", &far), 2 * 0xff + 2 + 0x10 - 1);
    }

    #[test]
    fn atomics_wrap_as_documented() {
        let step = |operation, kind, a, b| atomic(operation, kind).unwrap()(a, b);
        assert_eq!(step("inc", "u32", 5, 5), 0);
        assert_eq!(step("inc", "u32", 4, 5), 5);
        assert_eq!(step("dec", "u32", 0, 5), 5);
        assert_eq!(step("dec", "u32", 9, 5), 5);
        assert_eq!(step("max", "s64", u64::MAX, 1), 1);
        assert_eq!(step("add", "u64", u64::MAX, 2), 1);
    }
}
