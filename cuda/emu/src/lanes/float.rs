//! Floating-point arithmetic.
//!
//! Basic operations are rounded as the instruction says. Those with `.approx` are rounded once from a
//! double: they are at least as close to the true value as a GPU's, but not bit for bit the same.

use super::half::{Brain, Half, flushed, value};
use super::{Lane, LaneFn, Opcode, lanes};

/// Zero for subnormal numbers, with their sign.
pub(crate) fn flush(value: f32) -> f32 {
    if value.is_subnormal() { 0f32.copysign(value) } else { value }
}

/// Clamped to 0…1; NaN is 0.
pub(crate) fn saturate(value: f32) -> f32 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}

/// The four forms of a function of f32: plain, `.ftz`, `.sat`, both.
macro_rules! f32_op {
    ($op:expr, |$($a:ident),*| $e:expr) => {
        match ($op.has("ftz"), $op.has("sat")) {
            (false, false) => lanes!(|$($a: f32),*| $e),
            (true, false) => lanes!(|$($a: f32),*| { $(let $a = flush($a);)* flush($e) }),
            (false, true) => lanes!(|$($a: f32),*| saturate($e)),
            (true, true) => lanes!(|$($a: f32),*| { $(let $a = flush($a);)* saturate(flush($e)) }),
        }
    };
}

pub(super) use f32_op;

/// Rounding of a result.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Rounding {
    Nearest,
    Zero,
    Down,
    Up,
}

pub(super) fn rounding(opcode: &Opcode<'_>) -> Rounding {
    let roundings = [("rz", Rounding::Zero), ("rm", Rounding::Down), ("rp", Rounding::Up)];
    opcode.choose(&roundings).unwrap_or(Rounding::Nearest)
}

pub(super) fn lookup(opcode: &Opcode<'_>) -> Option<(LaneFn, usize)> {
    let kind = opcode.kind();
    if opcode.base == "slct" && kind == "f32" {
        let choose = match opcode.has("ftz") {
            false => lanes!(|a: u64, b: u64, c: f32| if c >= 0.0 { a } else { b }),
            true => lanes!(|a: u64, b: u64, c: f32| if flush(c) >= 0.0 { a } else { b }),
        };
        return Some((choose, 3));
    }
    let directed = rounding(opcode) != Rounding::Nearest;
    match kind {
        "f32" if directed => directed32(opcode),
        "f32" => single(opcode),
        "f64" if directed => directed64(opcode),
        "f64" => double(opcode),
        _ => None,
    }
}

fn single(op: &Opcode<'_>) -> Option<(LaneFn, usize)> {
    Some(match op.base {
        "add" => (f32_op!(op, |a, b| a + b), 2),
        "sub" => (f32_op!(op, |a, b| a - b), 2),
        "mul" => (f32_op!(op, |a, b| a * b), 2),
        "div" if op.has("approx") => (f32_op!(op, |a, b| divide(a, b)), 2),
        "div" => (f32_op!(op, |a, b| a / b), 2),
        "fma" | "mad" if !op.has("ftz") && !op.has("sat") => (fma32, 3),
        "fma" | "mad" => (f32_op!(op, |a, b, c| a.mul_add(b, c)), 3),
        "min" | "max" if op.has("xorsign") => (with_signs(op), 2),
        "min" if op.has("NaN") => {
            (f32_op!(op, |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { min32(a, b) }), 2)
        }
        "max" if op.has("NaN") => {
            (f32_op!(op, |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { max32(a, b) }), 2)
        }
        "min" => (f32_op!(op, |a, b| min32(a, b)), 2),
        "max" => (f32_op!(op, |a, b| max32(a, b)), 2),
        // Of a NaN comes the one that a GPU makes.
        "abs" => (f32_op!(op, |a| a.abs()), 1),
        "neg" => (f32_op!(op, |a| -a), 1),
        "copysign" => (lanes!(|a: u32, b: u32| a & 0x8000_0000 | b & 0x7fff_ffff), 2),
        "rcp" => (f32_op!(op, |a| 1.0 / a), 1),
        "sqrt" => (f32_op!(op, |a| a.sqrt()), 1),
        "rsqrt" => (f32_op!(op, |a| (1.0 / f64::from(a).sqrt()) as f32), 1),
        "sin" => (f32_op!(op, |a| f64::from(a).sin() as f32), 1),
        "cos" => (f32_op!(op, |a| f64::from(a).cos() as f32), 1),
        "lg2" => (f32_op!(op, |a| f64::from(a).log2() as f32), 1),
        "ex2" => (f32_op!(op, |a| f64::from(a).exp2() as f32), 1),
        "tanh" => (f32_op!(op, |a| f64::from(a).tanh() as f32), 1),
        "testp" => (test(op)?, 1),
        _ => return None,
    })
}

/// The product with a reciprocal, which is zero where it would be subnormal (PTX ISA, div).
fn divide(a: f32, b: f32) -> f32 {
    if b.abs() > 2f32.powi(126) { a * 0f32.copysign(b) } else { a / b }
}

fn double(op: &Opcode<'_>) -> Option<(LaneFn, usize)> {
    Some(match op.base {
        "add" => (lanes!(|a: f64, b: f64| a + b), 2),
        "sub" => (lanes!(|a: f64, b: f64| a - b), 2),
        "mul" => (lanes!(|a: f64, b: f64| a * b), 2),
        "div" => (lanes!(|a: f64, b: f64| a / b), 2),
        "fma" | "mad" => (fma64, 3),
        "min" => (lanes!(|a: f64, b: f64| min64(a, b)), 2),
        "max" => (lanes!(|a: f64, b: f64| max64(a, b)), 2),
        "abs" => (lanes!(|a: f64| a.abs()), 1),
        "neg" => (lanes!(|a: f64| -a), 1),
        "copysign" => (lanes!(|a: u64, b: u64| a & 1 << 63 | b & !(1 << 63)), 2),
        // The approximations of a GPU drop the low word and flush subnormal numbers.
        "rcp" if op.has("approx") => (lanes!(|a: f64| high_word(1.0 / high_word(a))), 1),
        "rcp" => (lanes!(|a: f64| 1.0 / a), 1),
        "rsqrt" if op.has("ftz") => (lanes!(|a: f64| high_word(1.0 / high_word(a).sqrt())), 1),
        "rsqrt" => (lanes!(|a: f64| 1.0 / a.sqrt()), 1),
        "sqrt" => (lanes!(|a: f64| a.sqrt()), 1),
        "testp" => (test(op)?, 1),
        _ => return None,
    })
}

fn high_word(value: f64) -> f64 {
    if value.is_subnormal() {
        return 0f64.copysign(value);
    }
    f64::from_bits(value.to_bits() & 0xffff_ffff_0000_0000)
}

/// The lesser or greater without signs, with both signs.
fn with_signs(op: &Opcode<'_>) -> LaneFn {
    fn signed(value: f32, a: f32, b: f32) -> f32 {
        let sign = (a.to_bits() ^ b.to_bits()) & 1 << 31;
        f32::from_bits(value.to_bits() | sign)
    }
    fn known(a: f32, b: f32) -> bool {
        !a.is_nan() && !b.is_nan()
    }
    match (op.base, op.has("NaN")) {
        ("min", false) => f32_op!(op, |a, b| signed(min32(a.abs(), b.abs()), a, b)),
        ("max", false) => f32_op!(op, |a, b| signed(max32(a.abs(), b.abs()), a, b)),
        ("min", true) => {
            f32_op!(op, |a, b| if known(a, b) {
                signed(min32(a.abs(), b.abs()), a, b)
            } else {
                f32::NAN
            })
        }
        _ => {
            f32_op!(op, |a, b| if known(a, b) {
                signed(max32(a.abs(), b.abs()), a, b)
            } else {
                f32::NAN
            })
        }
    }
}

pub(crate) fn min32(a: f32, b: f32) -> f32 {
    // -0 is below +0, which `f32::min` leaves open.
    if a == b { f32::from_bits(a.to_bits() | b.to_bits()) } else { a.min(b) }
}

pub(crate) fn max32(a: f32, b: f32) -> f32 {
    if a == b { f32::from_bits(a.to_bits() & b.to_bits()) } else { a.max(b) }
}

fn min64(a: f64, b: f64) -> f64 {
    if a == b { f64::from_bits(a.to_bits() | b.to_bits()) } else { a.min(b) }
}

fn max64(a: f64, b: f64) -> f64 {
    if a == b { f64::from_bits(a.to_bits() & b.to_bits()) } else { a.max(b) }
}

fn test(op: &Opcode<'_>) -> Option<LaneFn> {
    let wide = op.kind() == "f64";
    macro_rules! both {
        (|$a:ident| $e:expr) => {
            if wide { lanes!(|$a: f64| $e) } else { lanes!(|$a: f32| $e) }
        };
    }
    Some(match *op.modifiers.first()? {
        "finite" => both!(|a| a.is_finite()),
        "infinite" => both!(|a| a.is_infinite()),
        "number" => both!(|a| !a.is_nan()),
        "notanumber" => both!(|a| a.is_nan()),
        // Zeros are (PTX ISA, testp).
        "normal" => both!(|a| a.is_normal() || a == 0.0),
        "subnormal" => both!(|a| a.is_subnormal()),
        _ => return None,
    })
}

/// Without hardware behind it, `mul_add` is a call per lane.
#[cfg(target_arch = "x86_64")]
mod hardware {
    use super::{super::Lanes, Lane};

    /// # Safety
    ///
    /// The processor has AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn fma32(d: &mut Lanes, s: &[&Lanes; 4]) {
        for i in 0..32 {
            d[i] = f32::get(s[0][i]).mul_add(f32::get(s[1][i]), f32::get(s[2][i])).put();
        }
    }

    /// # Safety
    ///
    /// The processor has AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn fma64(d: &mut Lanes, s: &[&Lanes; 4]) {
        for i in 0..32 {
            d[i] = f64::get(s[0][i]).mul_add(f64::get(s[1][i]), f64::get(s[2][i])).put();
        }
    }

    pub(super) fn present() -> bool {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
    }
}

fn fma32(d: &mut super::Lanes, s: &[&super::Lanes; 4]) {
    #[cfg(target_arch = "x86_64")]
    if hardware::present() {
        // SAFETY: `present` asked the processor: it has AVX2 and FMA, for which the function is compiled.
        return unsafe { hardware::fma32(d, s) };
    }
    lanes!(|a: f32, b: f32, c: f32| a.mul_add(b, c))(d, s);
}

fn fma64(d: &mut super::Lanes, s: &[&super::Lanes; 4]) {
    #[cfg(target_arch = "x86_64")]
    if hardware::present() {
        // SAFETY: `present` asked the processor: it has AVX2 and FMA, for which the function is compiled.
        return unsafe { hardware::fma64(d, s) };
    }
    lanes!(|a: f64, b: f64, c: f64| a.mul_add(b, c))(d, s);
}

/// To the next number, upwards or downwards.
pub(super) trait Step {
    fn step(self, up: bool) -> Self;
}

macro_rules! step {
    ($F:ty) => {
        impl Step for $F {
            fn step(self, up: bool) -> Self {
                if self.is_nan() || self == if up { <$F>::INFINITY } else { <$F>::NEG_INFINITY } {
                    self
                } else if self == 0.0 {
                    <$F>::from_bits(1).copysign(if up { 1.0 } else { -1.0 })
                } else if (self > 0.0) == up {
                    <$F>::from_bits(self.to_bits() + 1)
                } else {
                    <$F>::from_bits(self.to_bits() - 1)
                }
            }
        }
    };
}
step!(f32);
step!(f64);

/// Rounds `nearest + rest` downwards, upwards or to zero, where `nearest` is the sum rounded to nearest
/// and `rest` has the sign of what was lost.
macro_rules! directed {
    ($name:ident, $F:ty) => {
        fn $name(nearest: $F, rest: f64, toward: Rounding) -> $F {
            if rest == 0.0 || rest.is_nan() || nearest.is_nan() {
                return nearest;
            }
            let up = match toward {
                Rounding::Nearest => return nearest,
                Rounding::Up => true,
                Rounding::Down => false,
                Rounding::Zero => nearest < 0.0 || (nearest == 0.0 && nearest.is_sign_negative()),
            };
            if up && rest > 0.0 {
                nearest.step(true)
            } else if !up && rest < 0.0 {
                nearest.step(false)
            } else {
                nearest
            }
        }
    };
}
directed!(adjust32, f32);
directed!(adjust64, f64);

/// A double to a single in a direction.
pub(super) fn narrow(value: f64, toward: &str) -> f32 {
    let toward = match toward {
        "rz" => Rounding::Zero,
        "rm" => Rounding::Down,
        "rp" => Rounding::Up,
        _ => Rounding::Nearest,
    };
    narrow_sticky(value, 0.0, toward)
}

/// `value + rest` to a single, where `rest` is less than the last bit of `value`.
fn narrow_sticky(value: f64, rest: f64, toward: Rounding) -> f32 {
    let nearest = value as f32;
    if value.is_finite() && nearest.is_infinite() {
        let up = nearest > 0.0;
        return match toward {
            Rounding::Nearest => nearest,
            Rounding::Up if up => nearest,
            Rounding::Down if !up => nearest,
            _ => f32::MAX.copysign(nearest),
        };
    }
    let lost = value - f64::from(nearest);
    adjust32(nearest, if lost == 0.0 { rest } else { lost }, toward)
}

/// `a + b` as a double and what rounding lost.
pub(super) fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
}

/// A sum that is exactly zero has a minus where it is rounded downwards, but of +0 and +0 (IEEE 754, 6.3).
fn signed_zero(sum: f64, parts: [f64; 2], toward: Rounding) -> f64 {
    let negative = toward == Rounding::Down && parts.iter().any(|part| part.is_sign_negative());
    if sum == 0.0 && negative { -0.0 } else { sum }
}

fn add_directed(a: f32, b: f32, toward: Rounding) -> f32 {
    let (sum, rest) = two_sum(a.into(), b.into());
    narrow_sticky(signed_zero(sum, [a.into(), b.into()], toward), rest, toward)
}

fn fma_directed(a: f32, b: f32, c: f32, toward: Rounding) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), c.into());
    let (sum, rest) = two_sum(product, c);
    narrow_sticky(signed_zero(sum, [product, c], toward), rest, toward)
}

fn div_directed(a: f32, b: f32, toward: Rounding) -> f32 {
    let quotient = f64::from(a) / f64::from(b);
    // What is left over tells on which side of the double the true quotient lies.
    let rest = (-quotient).mul_add(b.into(), a.into()) * f64::from(b);
    narrow_sticky(quotient, rest, toward)
}

fn sqrt_directed(a: f32, toward: Rounding) -> f32 {
    let root = f64::from(a).sqrt();
    narrow_sticky(root, (-root).mul_add(root, a.into()), toward)
}

fn directed32(op: &Opcode<'_>) -> Option<(LaneFn, usize)> {
    macro_rules! each {
        (|$($a:ident),*| $t:ident => $e:expr) => {
            match rounding(op) {
                Rounding::Zero => f32_op!(op, |$($a),*| { let $t = Rounding::Zero; $e }),
                Rounding::Down => f32_op!(op, |$($a),*| { let $t = Rounding::Down; $e }),
                Rounding::Up => f32_op!(op, |$($a),*| { let $t = Rounding::Up; $e }),
                Rounding::Nearest => return None,
            }
        };
    }
    Some(match op.base {
        "add" => (each!(|a, b| t => add_directed(a, b, t)), 2),
        "sub" => (each!(|a, b| t => add_directed(a, -b, t)), 2),
        "mul" => (each!(|a, b| t => narrow_sticky(f64::from(a) * f64::from(b), 0.0, t)), 2),
        "fma" => (each!(|a, b, c| t => fma_directed(a, b, c, t)), 3),
        "div" => (each!(|a, b| t => div_directed(a, b, t)), 2),
        "rcp" => (each!(|a| t => div_directed(1.0, a, t)), 1),
        "sqrt" => (each!(|a| t => sqrt_directed(a, t)), 1),
        _ => return None,
    })
}

fn directed64(op: &Opcode<'_>) -> Option<(LaneFn, usize)> {
    fn sum(a: f64, b: f64, toward: Rounding) -> f64 {
        let (sum, rest) = two_sum(a, b);
        adjust64(signed_zero(sum, [a, b], toward), rest, toward)
    }
    fn product(a: f64, b: f64, toward: Rounding) -> f64 {
        fused(a, b, 0f64.copysign(a * b), toward)
    }
    fn fused(a: f64, b: f64, c: f64, toward: Rounding) -> f64 {
        let nearest = a.mul_add(b, c);
        let finite = [a, b, c].iter().all(|value| value.is_finite());
        if nearest.is_infinite() && finite {
            return adjust64(nearest, -nearest, toward);
        }
        // What is lost of the smallest numbers has no room below them: all are scaled.
        let scale = if nearest.abs() < 1e-240 && c.abs() < 1e-200 { 2f64.powi(400) } else { 1.0 };
        let (a, b) = if a.abs() < b.abs() { (a * scale, b) } else { (a, b * scale) };
        let (c, scaled) = (c * scale, nearest * scale);
        // The product is two numbers, and so is their sum with the third; what rounding lost is in them.
        let product = a * b;
        let (sum, rest) = two_sum(product, c);
        let lost = ((sum - scaled) + rest) + a.mul_add(b, -product);
        // A product that is less than any number still has a sign.
        let vanished = product == 0.0 && a != 0.0 && b != 0.0;
        let lost = if vanished && lost == 0.0 { a.signum() * b.signum() } else { lost };
        let exact = if lost == 0.0 { signed_zero(nearest, [product, c], toward) } else { nearest };
        adjust64(exact, lost, toward)
    }
    fn quotient(a: f64, b: f64, toward: Rounding) -> f64 {
        let quotient = a / b;
        if !a.is_finite() || !b.is_finite() || b == 0.0 {
            return quotient;
        }
        let rest = if quotient.is_infinite() {
            -quotient
        } else {
            // Scaled, so that what is left of a small number is not lost.
            let scale = if a.abs() < 1e-240 { 2f64.powi(200) } else { 1.0 };
            (-quotient * scale).mul_add(b, a * scale) * b.signum()
        };
        adjust64(quotient, rest, toward)
    }
    fn root(a: f64, toward: Rounding) -> f64 {
        let root = a.sqrt();
        let scale = if a < 1e-200 { 2f64.powi(200) } else { 1.0 };
        let scaled = root * scale;
        adjust64(root, (-scaled).mul_add(scaled, a * scale * scale), toward)
    }
    macro_rules! each {
        (|$($a:ident),*| $t:ident => $e:expr) => {
            match rounding(op) {
                Rounding::Zero => lanes!(|$($a: f64),*| {
                    let $t = Rounding::Zero;
                    $e
                }),
                Rounding::Down => lanes!(|$($a: f64),*| {
                    let $t = Rounding::Down;
                    $e
                }),
                Rounding::Up => lanes!(|$($a: f64),*| {
                    let $t = Rounding::Up;
                    $e
                }),
                Rounding::Nearest => return None,
            }
        };
    }
    Some(match op.base {
        "add" => (each!(|a, b| t => sum(a, b, t)), 2),
        "sub" => (each!(|a, b| t => sum(a, -b, t)), 2),
        "mul" => (each!(|a, b| t => product(a, b, t)), 2),
        "fma" | "mad" => (each!(|a, b, c| t => fused(a, b, c, t)), 3),
        "div" => (each!(|a, b| t => quotient(a, b, t)), 2),
        "rcp" => (each!(|a| t => quotient(1.0, a, t)), 1),
        "sqrt" => (each!(|a| t => root(a, t)), 1),
        _ => return None,
    })
}

pub(super) fn comparison(compare: &str, kind: &str, ftz: bool) -> Option<LaneFn> {
    macro_rules! compare {
        (|$a:ident, $b:ident| $e:expr) => {
            match (kind, ftz) {
                ("f64", _) => lanes!(|$a: f64, $b: f64| $e),
                ("f16", false) => lanes!(|$a: u16, $b: u16| {
                    let ($a, $b) = (value::<Half>($a), value::<Half>($b));
                    $e
                }),
                ("f16", true) => lanes!(|$a: u16, $b: u16| {
                    let ($a, $b) = (flushed::<Half>($a), flushed::<Half>($b));
                    $e
                }),
                ("bf16", _) => lanes!(|$a: u16, $b: u16| {
                    let ($a, $b) = (value::<Brain>($a), value::<Brain>($b));
                    $e
                }),
                (_, false) => lanes!(|$a: f32, $b: f32| $e),
                (_, true) => lanes!(|$a: f32, $b: f32| {
                    let ($a, $b) = (flush($a), flush($b));
                    $e
                }),
            }
        };
    }
    macro_rules! unordered {
        ($a:ident, $b:ident) => {
            $a.is_nan() || $b.is_nan()
        };
    }
    Some(match compare {
        "eq" => compare!(|a, b| a == b),
        "ne" => compare!(|a, b| a != b && !unordered!(a, b)),
        "lt" => compare!(|a, b| a < b),
        "le" => compare!(|a, b| a <= b),
        "gt" => compare!(|a, b| a > b),
        "ge" => compare!(|a, b| a >= b),
        "equ" => compare!(|a, b| a == b || unordered!(a, b)),
        "neu" => compare!(|a, b| a != b),
        "ltu" => compare!(|a, b| a < b || unordered!(a, b)),
        "leu" => compare!(|a, b| a <= b || unordered!(a, b)),
        "gtu" => compare!(|a, b| a > b || unordered!(a, b)),
        "geu" => compare!(|a, b| a >= b || unordered!(a, b)),
        "num" => compare!(|a, b| !unordered!(a, b)),
        "nan" => compare!(|a, b| unordered!(a, b)),
        _ => return None,
    })
}

pub(super) fn atomic(operation: &str, kind: &str) -> Option<fn(u64, u64) -> u64> {
    Some(match (operation, kind) {
        ("add", "f32") => |a, b| (f32::get(a) + f32::get(b)).put(),
        ("add.ftz", "f32") => |a, b| flush(flush(f32::get(a)) + flush(f32::get(b))).put(),
        ("add", "f64") => |a, b| (f64::get(a) + f64::get(b)).put(),
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

    fn f(text: &str, sources: &[f32]) -> f32 {
        let bits: Vec<u64> = sources.iter().map(|x| u64::from(x.to_bits())).collect();
        f32::from_bits(run(text, &bits) as u32)
    }

    #[test]
    fn directed_rounding_brackets_the_true_value() {
        let (a, b) = (1.0f32, 2f32.powi(-30));
        assert_eq!(f("add.rz.f32", &[a, b]), 1.0);
        assert_eq!(f("add.rp.f32", &[a, b]), 1f32.step(true));
        assert_eq!(f("add.rm.f32", &[-a, -b]), (-1f32).step(false));
        assert_eq!(f("add.rz.f32", &[a, -b]), 1f32.step(false));
        assert_eq!(f("div.rm.f32", &[1.0, 3.0]).step(true), f("div.rp.f32", &[1.0, 3.0]));
        assert_eq!(f("fma.rz.f32", &[f32::MAX, 2.0, 0.0]), f32::MAX);
        assert_eq!(f("fma.rn.f32", &[f32::MAX, 2.0, 0.0]), f32::INFINITY);
        assert_eq!(f("fma.rp.f32", &[1.0, 1.0, f32::from_bits(1)]), 1f32.step(true));
        assert_eq!(f("sqrt.rm.f32", &[2.0]).step(true), f("sqrt.rp.f32", &[2.0]));
        let third = |op| f64::from_bits(run(op, &[(1.0f64 / 3.0).to_bits(), 3f64.to_bits()]));
        assert!(third("mul.rm.f64") < 1.0 && third("mul.rp.f64") >= 1.0);
        let tiny = 2f64.powi(-80);
        let fused =
            |op, c: f64| f64::from_bits(run(op, &[1f64.to_bits(), 1f64.to_bits(), c.to_bits()]));
        assert_eq!(fused("fma.rp.f64", tiny), 1f64.step(true));
        assert_eq!(fused("fma.rz.f64", tiny), 1.0);
        assert_eq!(fused("fma.rm.f64", -tiny), 1f64.step(false));
        assert_eq!(fused("fma.rp.f64", -tiny), 1.0);
        // Of 2.25 times the smallest number, three is above it, and of nearly nothing one.
        let smallest = f64::from_bits(1);
        let small = |op, a: f64, b: f64| run(op, &[a.to_bits(), b.to_bits()]);
        assert_eq!(small("mul.rp.f64", 9.0 * smallest, 0.25), 3);
        assert_eq!(small("mul.rm.f64", 9.0 * smallest, 0.25), 2);
        assert_eq!(small("mul.rp.f64", smallest, smallest), 1);
        assert_eq!(small("mul.rz.f64", smallest, smallest), 0);
    }

    #[test]
    fn subnormals_nan_and_signed_zero_are_as_on_a_gpu() {
        let tiny = f32::MIN_POSITIVE / 4.0;
        assert_eq!(f("add.f32", &[tiny, tiny]), 2.0 * tiny);
        assert_eq!(f("add.ftz.f32", &[tiny, tiny]), 0.0);
        assert_eq!(f("mul.sat.f32", &[3.0, 4.0]), 1.0);
        assert_eq!(run("add.f32", &[0x7fc0_0001, 0]), 0x7fff_ffff);
        assert_eq!(f("min.f32", &[f32::NAN, 2.0]), 2.0);
        assert!(f("min.NaN.f32", &[f32::NAN, 2.0]).is_nan());
        assert_eq!(run("min.f32", &[0, 0x8000_0000]), 0x8000_0000);
        assert_eq!(run("max.f32", &[0, 0x8000_0000]), 0);
        assert_eq!(run("neg.f32", &[0]), 0x8000_0000);
    }

    #[test]
    fn unordered_comparisons_hold_for_nan() {
        let nan = f32::NAN.to_bits();
        for (compare, wanted) in
            [("lt", 0), ("ltu", 1), ("ne", 0), ("neu", 1), ("equ", 1), ("num", 0), ("nan", 1)]
        {
            let mut out = [9; 32];
            let (a, b) = ([u64::from(nan); 32], [0; 32]);
            comparison(compare, "f32", false).unwrap()(&mut out, &[&a, &b, &b, &b]);
            assert_eq!(out[0], wanted, "{compare}");
        }
    }
}
