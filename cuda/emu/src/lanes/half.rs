//! Floating-point numbers of 16 bits, `f16` and `bf16`, and two of them in 32 bits.
//!
//! They are computed as doubles and rounded once: a double that is not exact is made odd, so that it
//! rounds as the true value does.

use super::float::{Rounding, Step, rounding, two_sum};
use super::{LaneFn, Opcode, lanes};

/// A format of 16 bits.
pub(super) trait Short {
    /// Bits of the fraction.
    const FRACTION: i32;
    /// Exponent of the smallest normal number.
    const LEAST: i32;
    /// Infinity, without its sign.
    const INFINITY: u16 = 0x7fff >> Self::FRACTION << Self::FRACTION;
}

/// `f16`.
pub(super) enum Half {}

impl Short for Half {
    const FRACTION: i32 = 10;
    const LEAST: i32 = -14;
}

/// `bf16`: the upper half of a `f32`.
pub(super) enum Brain {}

impl Short for Brain {
    const FRACTION: i32 = 7;
    const LEAST: i32 = -126;
}

const NAN: u16 = 0x7fff;
const SIGN: u16 = 0x8000;

/// Whether a type is one of these.
pub(super) fn is_short(kind: &str) -> bool {
    matches!(kind, "f16" | "bf16" | "f16x2" | "bf16x2")
}

pub(super) fn value<S: Short>(bits: u16) -> f64 {
    let sign = if bits & SIGN == 0 { 1.0 } else { -1.0 };
    let (field, fraction) = ((bits & NAN) >> S::FRACTION, bits & !(SIGN | S::INFINITY));
    let unit = |exponent: i32| 2f64.powi(exponent - S::FRACTION);
    sign * match field {
        0 => f64::from(fraction) * unit(S::LEAST),
        _ if bits & S::INFINITY == S::INFINITY => {
            if fraction == 0 {
                f64::INFINITY
            } else {
                f64::NAN
            }
        }
        _ => {
            let whole = f64::from(fraction | 1 << S::FRACTION);
            whole * unit(i32::from(field) + S::LEAST - 1)
        }
    }
}

/// The nearest number.
pub(super) fn nearest<S: Short>(value: f64) -> u16 {
    short::<S>(value, Rounding::Nearest)
}

/// The nearest number, or the one next to it in a direction.
pub(super) fn short<S: Short>(value: f64, toward: Rounding) -> u16 {
    if value.is_nan() {
        return NAN;
    }
    let negative = value.is_sign_negative();
    let sign = if negative { SIGN } else { 0 };
    let magnitude = value.abs();
    if magnitude.is_infinite() {
        return sign | S::INFINITY;
    }
    // The unit in the last place at this magnitude; the carry of a rounding moves into the exponent.
    let exponent = (magnitude.to_bits() >> 52) as i32 - 1023;
    let unit = 2f64.powi(exponent.max(S::LEAST) - S::FRACTION);
    let base = (exponent - S::LEAST).max(0) << S::FRACTION;
    let steps = magnitude / unit;
    let steps = match toward {
        Rounding::Nearest => steps.round_ties_even(),
        Rounding::Up if !negative => steps.ceil(),
        Rounding::Down if negative => steps.ceil(),
        _ => steps.floor(),
    };
    let bits = i64::from(base) + steps as i64;
    if bits < i64::from(S::INFINITY) {
        return sign | bits as u16;
    }
    let finite = match toward {
        Rounding::Nearest => false,
        Rounding::Zero => true,
        Rounding::Up => negative,
        Rounding::Down => !negative,
    };
    sign | if finite { S::INFINITY - 1 } else { S::INFINITY }
}

/// `nearest`, from which `rest` was lost, as a number whose last bit is 1 if anything was lost.
fn odd(nearest: f64, rest: f64) -> f64 {
    let exact = rest == 0.0 || !nearest.is_finite() || nearest.to_bits() & 1 == 1;
    if exact { nearest } else { nearest.step(rest > 0.0) }
}

fn sum(a: f64, b: f64) -> f64 {
    let (sum, rest) = two_sum(a, b);
    odd(sum, rest)
}

/// An integer.
pub(super) fn whole(value: i128) -> f64 {
    let nearest = value as f64;
    odd(nearest, (value - nearest as i128) as f64)
}

// What an instruction does besides: flushes subnormal numbers, clamps to 0…1, clamps to 0 and more.
const FLUSH: u8 = 1;
const SATURATE: u8 = 2;
const POSITIVE: u8 = 4;

fn get<S: Short, const M: u8>(bits: u16) -> f64 {
    value::<S>(mode::<S, M>(bits))
}

/// The value, zero for subnormal numbers.
pub(super) fn flushed<S: Short>(bits: u16) -> f64 {
    get::<S, FLUSH>(bits)
}

fn put<S: Short, const M: u8>(value: f64) -> u16 {
    mode::<S, M>(short::<S>(clamped::<M>(value), Rounding::Nearest))
}

fn clamped<const M: u8>(value: f64) -> f64 {
    match M & (SATURATE | POSITIVE) {
        SATURATE if value > 0.0 => value.min(1.0),
        SATURATE => 0.0,
        POSITIVE if value <= 0.0 => 0.0,
        _ => value,
    }
}

fn mode<S: Short, const M: u8>(bits: u16) -> u16 {
    if M & FLUSH != 0 && bits & S::INFINITY == 0 { bits & SIGN } else { bits }
}

/// A function of numbers of any of the types, which are `S`.
macro_rules! typed {
    ($kind:expr, $S:ident, |$($a:ident),*| $e:expr) => {
        match $kind {
            "f16" => {
                type $S = Half;
                lanes!(|$($a: u16),*| $e)
            }
            "bf16" => {
                type $S = Brain;
                lanes!(|$($a: u16),*| $e)
            }
            "f16x2" => {
                type $S = Half;
                lanes!(|$($a: u32),*| {
                    let one = |$($a: u16),*| -> u16 { $e };
                    u32::from(one($($a as u16),*)) | u32::from(one($(($a >> 16) as u16),*)) << 16
                })
            }
            "bf16x2" => {
                type $S = Brain;
                lanes!(|$($a: u32),*| {
                    let one = |$($a: u16),*| -> u16 { $e };
                    u32::from(one($($a as u16),*)) | u32::from(one($(($a >> 16) as u16),*)) << 16
                })
            }
            _ => return None,
        }
    };
}

/// As `typed!`, for what an instruction does besides, which is `M`.
macro_rules! modal {
    ($op:expr, $S:ident, $M:ident, |$($a:ident),*| $e:expr) => {
        match (has($op, "ftz"), has($op, "sat"), has($op, "relu")) {
            (0, 0, 0) => modal!($op, $S, $M = 0, |$($a),*| $e),
            (1, 0, 0) => modal!($op, $S, $M = FLUSH, |$($a),*| $e),
            (0, 1, 0) => modal!($op, $S, $M = SATURATE, |$($a),*| $e),
            (1, 1, 0) => modal!($op, $S, $M = FLUSH | SATURATE, |$($a),*| $e),
            (0, 0, 1) => modal!($op, $S, $M = POSITIVE, |$($a),*| $e),
            (1, 0, 1) => modal!($op, $S, $M = FLUSH | POSITIVE, |$($a),*| $e),
            _ => return None,
        }
    };
    ($op:expr, $S:ident, $M:ident = $mode:expr, |$($a:ident),*| $e:expr) => {{
        const $M: u8 = $mode;
        typed!($op.kind(), $S, |$($a),*| $e)
    }};
}

fn has(opcode: &Opcode<'_>, modifier: &str) -> u8 {
    opcode.has(modifier).into()
}

pub(super) fn lookup(op: &Opcode<'_>) -> Option<(LaneFn, usize)> {
    if rounding(op) != Rounding::Nearest {
        return None;
    }
    Some(match op.base {
        "add" => (modal!(op, S, M, |a, b| put::<S, M>(sum(get::<S, M>(a), get::<S, M>(b)))), 2),
        "sub" => (modal!(op, S, M, |a, b| put::<S, M>(sum(get::<S, M>(a), -get::<S, M>(b)))), 2),
        // A product of two is exact.
        "mul" => (modal!(op, S, M, |a, b| put::<S, M>(get::<S, M>(a) * get::<S, M>(b))), 2),
        "fma" => (
            modal!(op, S, M, |a, b, c| {
                put::<S, M>(sum(get::<S, M>(a) * get::<S, M>(b), get::<S, M>(c)))
            }),
            3,
        ),
        "min" if op.has("xorsign") => match op.has("NaN") {
            true => (modal!(op, S, M, |a, b| with_signs(least::<S, M>, a, b, true)), 2),
            false => (modal!(op, S, M, |a, b| with_signs(least::<S, M>, a, b, false)), 2),
        },
        "max" if op.has("xorsign") => match op.has("NaN") {
            true => (modal!(op, S, M, |a, b| with_signs(most::<S, M>, a, b, true)), 2),
            false => (modal!(op, S, M, |a, b| with_signs(most::<S, M>, a, b, false)), 2),
        },
        "min" if op.has("NaN") => (modal!(op, S, M, |a, b| least::<S, M>(a, b, true)), 2),
        "min" => (modal!(op, S, M, |a, b| least::<S, M>(a, b, false)), 2),
        "max" if op.has("NaN") => (modal!(op, S, M, |a, b| most::<S, M>(a, b, true)), 2),
        "max" => (modal!(op, S, M, |a, b| most::<S, M>(a, b, false)), 2),
        "neg" => (modal!(op, S, M, |a| mode::<S, M>(a) ^ SIGN), 1),
        "abs" => (modal!(op, S, M, |a| mode::<S, M>(a) & !SIGN), 1),
        "ex2" => (modal!(op, S, M, |a| put::<S, M>(get::<S, M>(a).exp2())), 1),
        "tanh" => (modal!(op, S, M, |a| put::<S, M>(get::<S, M>(a).tanh())), 1),
        _ => return None,
    })
}

/// The lesser of two; -0 is below +0. NaN wins, or else the other does.
fn least<S: Short, const M: u8>(a: u16, b: u16, nan_wins: bool) -> u16 {
    let (a, b) = (mode::<S, M>(a), mode::<S, M>(b));
    let (x, y) = (value::<S>(a), value::<S>(b));
    match (x.is_nan(), y.is_nan()) {
        (false, false) if x == y => a | b,
        (false, false) => {
            if x < y {
                a
            } else {
                b
            }
        }
        (true, false) if !nan_wins => b,
        (false, true) if !nan_wins => a,
        _ => NAN,
    }
}

fn most<S: Short, const M: u8>(a: u16, b: u16, nan_wins: bool) -> u16 {
    match least::<S, M>(a ^ SIGN, b ^ SIGN, nan_wins) {
        NAN => NAN,
        other => other ^ SIGN,
    }
}

/// The lesser or greater without signs, with both signs.
fn with_signs(choose: fn(u16, u16, bool) -> u16, a: u16, b: u16, nan_wins: bool) -> u16 {
    match choose(a & !SIGN, b & !SIGN, nan_wins) {
        NAN => NAN,
        value => value | (a ^ b) & SIGN,
    }
}

/// Operations in memory.
pub(super) fn atomic(operation: &str, kind: &str) -> Option<fn(u64, u64) -> u64> {
    macro_rules! step {
        ($S:ty, |$a:ident, $b:ident| $e:expr) => {{
            fn one<S: Short>($a: u16, $b: u16) -> u16 {
                $e
            }
            match kind.ends_with("x2") {
                false => |a, b| one::<$S>(a as u16, b as u16).into(),
                true => |a, b| {
                    let high = one::<$S>((a >> 16) as u16, (b >> 16) as u16);
                    u64::from(one::<$S>(a as u16, b as u16)) | u64::from(high) << 16
                },
            }
        }};
    }
    macro_rules! operation {
        ($S:ty) => {
            match operation {
                "add" => step!($S, |a, b| put::<S, 0>(sum(value::<S>(a), value::<S>(b)))),
                "min" => step!($S, |a, b| least::<S, 0>(a, b, false)),
                "max" => step!($S, |a, b| most::<S, 0>(a, b, false)),
                _ => return None,
            }
        };
    }
    Some(match kind {
        "f16" | "f16x2" => operation!(Half),
        "bf16" | "bf16x2" => operation!(Brain),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::run_with;

    fn run(text: &str, sources: &[u16]) -> u16 {
        let sources: Vec<u64> = sources.iter().map(|bits| (*bits).into()).collect();
        run_with(lookup, text, &sources) as u16
    }

    #[test]
    fn numbers_round_trip_in_both_formats() {
        fn all<S: Short>() {
            for bits in 0..=u16::MAX {
                let value = value::<S>(bits);
                let wanted = if value.is_nan() { NAN } else { bits };
                for toward in [Rounding::Nearest, Rounding::Zero, Rounding::Up, Rounding::Down] {
                    assert_eq!(short::<S>(value, toward), wanted, "{bits:#x}");
                }
            }
        }
        all::<Half>();
        all::<Brain>();
        assert_eq!(value::<Brain>(0x3fc0), f64::from(f32::from_bits(0x3fc0_0000)));
    }

    #[test]
    fn values_in_between_round_as_the_mode_says() {
        let third = 1.0 / 3.0;
        let near = short::<Half>(third, Rounding::Nearest);
        assert_eq!(near, 0x3555);
        assert_eq!(short::<Half>(third, Rounding::Up), near + 1);
        assert_eq!(short::<Half>(-third, Rounding::Up), near | SIGN);
        assert_eq!(short::<Half>(-third, Rounding::Down), (near + 1) | SIGN);
        assert_eq!(short::<Half>(65519.9, Rounding::Nearest), 0x7bff);
        assert_eq!(short::<Half>(65520.0, Rounding::Nearest), 0x7c00);
        assert_eq!(short::<Half>(1e9, Rounding::Zero), 0x7bff);
        assert_eq!(short::<Half>(1e9, Rounding::Up), 0x7c00);
        assert_eq!(short::<Half>(2f64.powi(-25), Rounding::Nearest), 0);
        assert_eq!(short::<Half>(2f64.powi(-25) * 1.01, Rounding::Nearest), 1);
        assert_eq!(short::<Half>(1e-300, Rounding::Up), 1);
        assert_eq!(short::<Brain>(1e300, Rounding::Down), 0x7f7f);
    }

    /// Where a double in between would round twice.
    #[test]
    fn results_are_rounded_once() {
        // 13 × 21 is halfway between two; what is added is far below a double's last bit.
        let (a, b, tiny) = (0x4150, 0x41a8, 0x0080);
        let (below, above) = (0x4388, 0x4389);
        assert_eq!(value::<Brain>(a) * value::<Brain>(b), 273.0);
        assert_eq!(run("fma.rn.bf16", &[a, b, 0]), below);
        assert_eq!(run("fma.rn.bf16", &[a, b, tiny]), above);
        assert_eq!(run("fma.rn.bf16", &[a, b, tiny | SIGN]), below);
        assert_eq!(whole((1 << 60) + 1).to_bits() & 1, 1);
        assert_eq!(whole(1 << 60), 2f64.powi(60));
    }

    #[test]
    fn modes_and_special_numbers_are_as_on_a_gpu() {
        let (one, two, tiny, nan) = (0x3c00, 0x4000, 0x0001, 0x7e01);
        assert_eq!(run("add.f16", &[one, one]), two);
        assert_eq!(run("add.sat.f16", &[one, one]), one);
        assert_eq!(run("sub.sat.f16", &[one, two]), 0);
        assert_eq!(run("add.ftz.f16", &[tiny, tiny]), 0);
        assert_eq!(run("add.f16", &[tiny, tiny]), 2);
        assert_eq!(run("fma.rn.relu.f16", &[one, one, 0xc000]), 0);
        assert_eq!(run("mul.f16", &[nan, one]), NAN);
        assert_eq!(run("min.f16", &[nan, one]), one);
        assert_eq!(run("max.NaN.f16", &[nan, one]), NAN);
        assert_eq!(run("max.f16", &[nan, nan]), NAN);
        assert_eq!(run("min.f16", &[0, SIGN]), SIGN);
        assert_eq!(run("max.bf16", &[0, SIGN]), 0);
        assert_eq!(run("neg.f16", &[nan]), nan | SIGN);
        let sources = [0x4000_3c00, 0x3c00_4000];
        assert_eq!(run_with(lookup, "sub.f16x2", &sources), 0x3c00_bc00);
    }
}
