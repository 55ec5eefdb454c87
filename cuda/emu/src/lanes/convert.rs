//! `cvt`: between integers, between floats, and from one to the other.

use super::float::{Rounding, Step, f32_op, flush, narrow, saturate};
use super::half::{Brain, Half, Short, short, value, whole};
use super::{LaneFn, Opcode, by_name, lanes};

pub(super) fn lookup(opcode: &Opcode<'_>) -> Option<(LaneFn, usize)> {
    if opcode.has("pack") {
        return packed(opcode);
    }
    let mut types = opcode.types();
    let (to, from) = (types.next()?, types.next()?);
    if types.next().is_some() {
        return None;
    }
    if matches!(to, "f16x2" | "bf16x2") {
        return (from == "f32").then(|| two(opcode, to)).flatten().map(|f| (f, 2));
    }
    if to == "tf32" {
        return (from == "f32").then(|| tf32(opcode)).flatten().map(|f| (f, 1));
    }
    if opcode.has("rna") || opcode.has("relu") && !matches!(to, "f16" | "bf16") {
        return None;
    }
    let f = match (is_float(to), is_float(from)) {
        (false, false) if opcode.has("sat") => saturated(to, from),
        (false, false) => integer(to, from),
        (true, false) => from_integer(opcode, to, from),
        (false, true) => to_integer(opcode, to, from),
        (true, true) => floats(opcode, to, from),
    };
    f.map(|f| (f, 1))
}

/// Two integers next to each other; bytes are below the lower half of a third one.
fn packed(opcode: &Opcode<'_>) -> Option<(LaneFn, usize)> {
    Some(match opcode.modifiers[..] {
        ["pack", "sat", "s8", "s32", "b32"] => (
            lanes!(|a: i32, b: i32, c: u32| c << 16 | bytes(a, b, i8::MIN.into(), i8::MAX.into())),
            3,
        ),
        ["pack", "sat", "u8", "s32", "b32"] => {
            (lanes!(|a: i32, b: i32, c: u32| c << 16 | bytes(a, b, 0, u8::MAX.into())), 3)
        }
        ["pack", "sat", "s16", "s32"] => {
            (lanes!(|a: i32, b: i32| halves(a, b, i16::MIN.into(), i16::MAX.into())), 2)
        }
        ["pack", "sat", "u16", "s32"] => {
            (lanes!(|a: i32, b: i32| halves(a, b, 0, u16::MAX.into())), 2)
        }
        _ => return None,
    })
}

fn bytes(a: i32, b: i32, least: i32, most: i32) -> u32 {
    let byte = |value: i32| value.clamp(least, most) as u8;
    u16::from_le_bytes([byte(b), byte(a)]).into()
}

fn halves(a: i32, b: i32, least: i32, most: i32) -> u32 {
    let half = |value: i32| u32::from(value.clamp(least, most) as u16);
    half(a) << 16 | half(b)
}

/// Of the bits of TF32 the lowest 13 are zero.
const TF32: u32 = !0x1fff;

fn tf32(opcode: &Opcode<'_>) -> Option<LaneFn> {
    let words = opcode.modifiers.iter().copied();
    let words: Vec<&str> = words.filter(|word| !matches!(*word, "tf32" | "f32")).collect();
    Some(match words[..] {
        // Of numbers that are no finite ones the bits stay.
        ["rna"] => lanes!(|a: f32| match a.is_finite() {
            true => a.to_bits().wrapping_add(0x1000) & TF32,
            false => a.to_bits() & TF32,
        }),
        ["rn"] => lanes!(|a: f32| nearest_tf32(a)),
        ["rn", "relu"] => lanes!(|a: f32| if a < 0.0 { 0 } else { nearest_tf32(a) }),
        ["rz"] => lanes!(|a: f32| lesser_tf32(a)),
        ["rz", "relu"] => lanes!(|a: f32| if a < 0.0 { 0 } else { lesser_tf32(a) }),
        _ => return None,
    })
}

const NAN: u32 = 0x7fff_ffff;

/// The nearest number of TF32, of two the even one.
fn nearest_tf32(value: f32) -> u32 {
    let bits = value.to_bits();
    match () {
        () if value.is_nan() => NAN,
        () if value.is_infinite() => bits,
        () => bits.wrapping_add(0xfff + (bits >> 13 & 1)) & TF32,
    }
}

/// The nearest number of TF32 that is no further from zero.
fn lesser_tf32(value: f32) -> u32 {
    if value.is_nan() { NAN } else { value.to_bits() & TF32 }
}

fn is_float(kind: &str) -> bool {
    matches!(kind, "f16" | "bf16" | "f32" | "f64")
}

macro_rules! by_int {
    ($kind:expr, $T:ident, $f:expr) => {
        by_name!(
            $kind, $T:
            "u8" | "b8" => u8, "s8" => i8, "u16" | "b16" => u16, "s16" => i16,
            "u32" | "b32" => u32, "s32" => i32, "u64" | "b64" => u64, "s64" => i64;
            $f
        )
    };
}

fn integer(to: &str, from: &str) -> Option<LaneFn> {
    Some(by_int!(to, To, by_int!(from, From, lanes!(|a: From| a as To))))
}

fn saturated(to: &str, from: &str) -> Option<LaneFn> {
    Some(by_int!(
        to,
        To,
        by_int!(
            from,
            From,
            lanes!(|a: From| (a as i128).clamp(To::MIN as i128, To::MAX as i128) as To)
        )
    ))
}

/// The rounding of a conversion between floats: `rn`, `rz`, `rm` or `rp`.
fn toward<'a>(opcode: &Opcode<'a>) -> &'a str {
    opcode
        .modifiers
        .iter()
        .find(|word| matches!(**word, "rn" | "rz" | "rm" | "rp"))
        .copied()
        .unwrap_or("rn")
}

/// To 16 bits: rounded as told, clamped to 0…1 or to 0 and more where told.
macro_rules! shortened {
    ($op:expr, $S:ty, |$a:ident: $A:ty| $e:expr) => {
        match (toward($op), $op.has("sat"), $op.has("relu")) {
            ("rn", false, false) => lanes!(|$a: $A| short::<$S>($e, Rounding::Nearest)),
            ("rz", false, false) => lanes!(|$a: $A| short::<$S>($e, Rounding::Zero)),
            ("rm", false, false) => lanes!(|$a: $A| short::<$S>($e, Rounding::Down)),
            ("rp", false, false) => lanes!(|$a: $A| short::<$S>($e, Rounding::Up)),
            ("rn", true, false) => lanes!(|$a: $A| short::<$S>(unit($e), Rounding::Nearest)),
            ("rz", true, false) => lanes!(|$a: $A| short::<$S>(unit($e), Rounding::Zero)),
            ("rm", true, false) => lanes!(|$a: $A| short::<$S>(unit($e), Rounding::Down)),
            ("rp", true, false) => lanes!(|$a: $A| short::<$S>(unit($e), Rounding::Up)),
            ("rn", false, true) => lanes!(|$a: $A| short::<$S>(positive($e), Rounding::Nearest)),
            ("rz", false, true) => lanes!(|$a: $A| short::<$S>(positive($e), Rounding::Zero)),
            _ => return None,
        }
    };
}

/// Clamped to 0…1; NaN is 0.
fn unit(value: f64) -> f64 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}

fn positive(value: f64) -> f64 {
    if value <= 0.0 { 0.0 } else { value }
}

/// Two numbers into one register, the first above the second.
fn two(opcode: &Opcode<'_>, to: &str) -> Option<LaneFn> {
    fn pair<S: Short>(high: f32, low: f32, toward: Rounding, clamp: fn(f64) -> f64) -> u32 {
        let [high, low] =
            [high, low].map(|value| u32::from(short::<S>(clamp(value.into()), toward)));
        high << 16 | low
    }
    macro_rules! paired {
        ($S:ty) => {
            match (toward(opcode), opcode.has("relu")) {
                ("rn", false) => {
                    lanes!(|a: f32, b: f32| pair::<$S>(a, b, Rounding::Nearest, |v| v))
                }
                ("rz", false) => lanes!(|a: f32, b: f32| pair::<$S>(a, b, Rounding::Zero, |v| v)),
                ("rn", true) => {
                    lanes!(|a: f32, b: f32| pair::<$S>(a, b, Rounding::Nearest, positive))
                }
                ("rz", true) => lanes!(|a: f32, b: f32| pair::<$S>(a, b, Rounding::Zero, positive)),
                _ => return None,
            }
        };
    }
    if opcode.has("sat") {
        return None;
    }
    Some(if to == "f16x2" { paired!(Half) } else { paired!(Brain) })
}

/// To an integral number of the same type.
fn to_integral<S: Short>(word: &str, sat: bool) -> Option<LaneFn> {
    macro_rules! rounded {
        ($round:path) => {
            match sat {
                false => lanes!(|a: u16| short::<S>($round(value::<S>(a)), Rounding::Nearest)),
                true => lanes!(|a: u16| short::<S>(unit($round(value::<S>(a))), Rounding::Nearest)),
            }
        };
    }
    Some(match word {
        "rni" => rounded!(round::rint),
        "rzi" => rounded!(round::trunc),
        "rmi" => rounded!(round::floor),
        "rpi" => rounded!(round::ceil),
        _ => return None,
    })
}

fn from_integer(opcode: &Opcode<'_>, to: &str, from: &str) -> Option<LaneFn> {
    macro_rules! directed {
        ($F:ty, $up:literal, $when:tt) => {
            by_int!(from, From, lanes!(|a: From| {
                let nearest = a as $F;
                if (nearest as i128) $when (a as i128) { nearest.step($up) } else { nearest }
            }))
        };
    }
    if opcode.has("sat") {
        // Between 0 and 1 there is no integer, and nothing to round.
        return Some(match to {
            "f32" => by_int!(from, From, lanes!(|a: From| if a > 0 { 1f32 } else { 0.0 })),
            "f64" => by_int!(from, From, lanes!(|a: From| if a > 0 { 1f64 } else { 0.0 })),
            "f16" => by_int!(from, From, lanes!(|a: From| if a > 0 { 0x3c00u16 } else { 0 })),
            "bf16" => by_int!(from, From, lanes!(|a: From| if a > 0 { 0x3f80u16 } else { 0 })),
            _ => return None,
        });
    }
    Some(match (to, toward(opcode)) {
        ("f32", "rn") => by_int!(from, From, lanes!(|a: From| a as f32)),
        ("f64", "rn") => by_int!(from, From, lanes!(|a: From| a as f64)),
        ("f32", "rm") => directed!(f32, false, >),
        ("f64", "rm") => directed!(f64, false, >),
        ("f32", "rp") => directed!(f32, true, <),
        ("f64", "rp") => directed!(f64, true, <),
        ("f32", "rz") => by_int!(
            from,
            From,
            lanes!(|a: From| {
                let nearest = a as f32;
                if (nearest as i128).unsigned_abs() > (a as i128).unsigned_abs() {
                    f32::from_bits(nearest.to_bits() - 1)
                } else {
                    nearest
                }
            })
        ),
        ("f64", "rz") => by_int!(
            from,
            From,
            lanes!(|a: From| {
                let nearest = a as f64;
                if (nearest as i128).unsigned_abs() > (a as i128).unsigned_abs() {
                    f64::from_bits(nearest.to_bits() - 1)
                } else {
                    nearest
                }
            })
        ),
        ("f16", _) => by_int!(from, From, shortened!(opcode, Half, |a: From| whole(a as i128))),
        ("bf16", _) => by_int!(from, From, shortened!(opcode, Brain, |a: From| whole(a as i128))),
        _ => return None,
    })
}

fn to_integer(opcode: &Opcode<'_>, to: &str, from: &str) -> Option<LaneFn> {
    // The bits of NaN depend on both types (PTX ISA, cvt).
    let nan_is_top = from == "f64" || matches!(to, "s64" | "u64" | "b64");
    float_to_integer(opcode, to, from, nan_is_top)
}

/// `nan_is_top`: of NaN comes the highest bit alone, else 0.
pub(super) fn float_to_integer(
    opcode: &Opcode<'_>,
    to: &str,
    from: &str,
    nan_is_top: bool,
) -> Option<LaneFn> {
    macro_rules! convert {
        ($F:ty, $value:expr) => {
            convert!($F, $value, rint "rni", trunc "rzi", floor "rmi", ceil "rpi")
        };
        ($F:ty, $value:expr, $($round:ident $name:literal),*) => {
            match opcode.modifiers.iter().find(|word| matches!(**word, "rni" | "rzi" | "rmi" | "rpi")) {
                $(Some(&$name) => if nan_is_top {
                    by_int!(to, To, lanes!(|a: $F| {
                        let value: f64 = $value(a);
                        if value.is_nan() { 1 << (To::BITS - 1) } else { round::$round(value) as To }
                    }))
                } else {
                    by_int!(to, To, lanes!(|a: $F| round::$round($value(a)) as To))
                },)*
                _ => return None,
            }
        };
    }
    Some(match from {
        "f32" if opcode.has("ftz") => {
            convert!(f32, |a: f32| if a.is_subnormal() { 0.0 } else { f64::from(a) })
        }
        "f32" => convert!(f32, f64::from),
        "f64" => convert!(f64, |a: f64| a),
        "f16" => convert!(u16, value::<Half>),
        "bf16" => convert!(u16, value::<Brain>),
        _ => return None,
    })
}

/// To an integral value.
mod round {
    pub(super) fn rint(a: f64) -> f64 {
        a.round_ties_even()
    }
    pub(super) fn trunc(a: f64) -> f64 {
        a.trunc()
    }
    pub(super) fn floor(a: f64) -> f64 {
        a.floor()
    }
    pub(super) fn ceil(a: f64) -> f64 {
        a.ceil()
    }
}

fn floats(opcode: &Opcode<'_>, to: &str, from: &str) -> Option<LaneFn> {
    let integral =
        opcode.modifiers.iter().find(|word| matches!(**word, "rni" | "rzi" | "rmi" | "rpi"));
    // To 32 and 64 bits: what is read is flushed, what comes of it is flushed or clamped to 0…1.
    macro_rules! to_double {
        (|$a:ident: $A:ty| $e:expr) => {
            if opcode.has("sat") { lanes!(|$a: $A| unit($e)) } else { lanes!(|$a: $A| $e) }
        };
    }
    macro_rules! to_single {
        (|$a:ident: $A:ty| $e:expr) => {
            match (opcode.has("ftz"), opcode.has("sat")) {
                (false, false) => lanes!(|$a: $A| $e),
                (true, false) => lanes!(|$a: $A| flush($e)),
                (false, true) => lanes!(|$a: $A| saturate($e)),
                (true, true) => lanes!(|$a: $A| saturate(flush($e))),
            }
        };
    }
    let ftz = opcode.has("ftz");
    Some(match (to, from, integral.copied()) {
        ("f32", "f32", Some("rni")) => f32_op!(opcode, |a| a.round_ties_even()),
        ("f32", "f32", Some("rzi")) => f32_op!(opcode, |a| a.trunc()),
        ("f32", "f32", Some("rmi")) => f32_op!(opcode, |a| a.floor()),
        ("f32", "f32", Some("rpi")) => f32_op!(opcode, |a| a.ceil()),
        ("f64", "f64", Some("rni")) => to_double!(|a: f64| a.round_ties_even()),
        ("f64", "f64", Some("rzi")) => to_double!(|a: f64| a.trunc()),
        ("f64", "f64", Some("rmi")) => to_double!(|a: f64| a.floor()),
        ("f64", "f64", Some("rpi")) => to_double!(|a: f64| a.ceil()),
        ("f16", "f16", Some(word)) => to_integral::<Half>(word, opcode.has("sat"))?,
        ("bf16", "bf16", Some(word)) => to_integral::<Brain>(word, opcode.has("sat"))?,
        (_, _, Some(_)) => return None,
        // Without a modifier it moves a NaN as it is.
        ("f32", "f32", None) if !ftz && !opcode.has("sat") => lanes!(|a: u32| a),
        ("f32", "f32", None) => f32_op!(opcode, |a| a),
        ("f64", "f64", None) => to_double!(|a: f64| a),
        ("f64", "f32", None) if ftz => to_double!(|a: f32| f64::from(flush(a))),
        ("f64", "f32", None) => to_double!(|a: f32| f64::from(a)),
        ("f32", "f64", None) => match toward(opcode) {
            "rn" => to_single!(|a: f64| a as f32),
            "rz" => to_single!(|a: f64| narrow(a, "rz")),
            "rm" => to_single!(|a: f64| narrow(a, "rm")),
            _ => to_single!(|a: f64| narrow(a, "rp")),
        },
        ("f32", "f16", None) => to_single!(|a: u16| value::<Half>(a) as f32),
        // It is the upper half, of NaN as well.
        ("f32", "bf16", None) if !ftz && !opcode.has("sat") => {
            lanes!(|a: u16| u32::from(a) << 16)
        }
        ("f32", "bf16", None) => to_single!(|a: u16| value::<Brain>(a) as f32),
        ("f64", "f16", None) => to_double!(|a: u16| value::<Half>(a)),
        ("f64", "bf16", None) => to_double!(|a: u16| value::<Brain>(a)),
        ("f16", "f16", None) => shortened!(opcode, Half, |a: u16| value::<Half>(a)),
        ("f16", "bf16", None) => shortened!(opcode, Half, |a: u16| value::<Brain>(a)),
        ("f16", "f32", None) if ftz => shortened!(opcode, Half, |a: f32| f64::from(flush(a))),
        ("f16", "f32", None) => shortened!(opcode, Half, |a: f32| f64::from(a)),
        ("f16", "f64", None) => shortened!(opcode, Half, |a: f64| a),
        ("bf16", "f16", None) => shortened!(opcode, Brain, |a: u16| value::<Half>(a)),
        ("bf16", "bf16", None) => shortened!(opcode, Brain, |a: u16| value::<Brain>(a)),
        ("bf16", "f32", None) if ftz => shortened!(opcode, Brain, |a: f32| f64::from(flush(a))),
        ("bf16", "f32", None) => shortened!(opcode, Brain, |a: f32| f64::from(a)),
        ("bf16", "f64", None) => shortened!(opcode, Brain, |a: f64| a),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str, source: u64) -> u64 {
        let (f, _) = lookup(&Opcode::new(text)).unwrap_or_else(|| panic!("{text}"));
        let (mut out, zero) = ([0; 32], [0; 32]);
        f(&mut out, &[&[source; 32], &zero, &zero, &zero]);
        out[0]
    }

    fn f(value: f32) -> u64 {
        value.to_bits().into()
    }

    #[test]
    fn integers_extend_by_their_own_sign() {
        assert_eq!(run("cvt.s64.s32", 0xffff_ffff), u64::MAX);
        assert_eq!(run("cvt.u64.u32", 0xffff_ffff), 0xffff_ffff);
        assert_eq!(run("cvt.s32.s8", 0x80), 0xffff_ff80);
        assert_eq!(run("cvt.u32.u64", u64::MAX), 0xffff_ffff);
        assert_eq!(run("cvt.sat.u8.s32", 0xffff_ffff), 0);
        assert_eq!(run("cvt.sat.s8.u32", 300), 127);
    }

    #[test]
    fn floats_become_integers_as_the_mode_says() {
        assert_eq!(run("cvt.rni.s32.f32", f(2.5)), 2);
        assert_eq!(run("cvt.rzi.s32.f32", f(-2.9)), (-2i32) as u32 as u64);
        assert_eq!(run("cvt.rmi.s32.f32", f(-2.1)), (-3i32) as u32 as u64);
        assert_eq!(run("cvt.rpi.u32.f32", f(2.1)), 3);
        assert_eq!(run("cvt.rzi.s32.f32", f(1e20)), 0x7fff_ffff);
        assert_eq!(run("cvt.rzi.u32.f32", f(-1.0)), 0);
        assert_eq!(run("cvt.rzi.s32.f32", f(f32::NAN)), 0);
        assert_eq!(run("cvt.rzi.s64.f32", f(f32::NAN)), 1 << 63);
    }

    #[test]
    fn integers_become_floats_in_every_direction() {
        let odd = (1 << 24) + 1;
        assert_eq!(run("cvt.rn.f32.u32", odd), f(16_777_216.0));
        assert_eq!(run("cvt.rp.f32.u32", odd), f(16_777_218.0));
        assert_eq!(run("cvt.rz.f32.s32", (odd as u32).wrapping_neg().into()), f(-16_777_216.0));
        assert_eq!(run("cvt.rm.f32.s32", (odd as u32).wrapping_neg().into()), f(-16_777_218.0));
        assert_eq!(run("cvt.rz.f64.u64", u64::MAX), 18_446_744_073_709_549_568f64.to_bits());
    }

    #[test]
    fn numbers_of_16_bits_come_and_go() {
        assert_eq!(run("cvt.rn.bf16.f32", f(1.0)), 0x3f80);
        assert_eq!(run("cvt.f32.bf16", 0x3f80), f(1.0));
        assert_eq!(run("cvt.rn.f16.f32", f(65520.0)), 0x7c00);
        assert_eq!(run("cvt.rz.f16.f32", f(65520.0)), 0x7bff);
        assert_eq!(run("cvt.rn.relu.f16.f32", f(-2.0)), 0);
        assert_eq!(run("cvt.rn.bf16.s32", (-3i32) as u32 as u64), 0xc040);
        assert_eq!(run("cvt.rn.bf16.u64", (1 << 60) + (1 << 52)), 0x5d80);
        assert_eq!(run("cvt.rn.bf16.u64", (1 << 60) + (1 << 52) + 1), 0x5d81);
        assert_eq!(run("cvt.rzi.s16.f16", 0xc500) as i16, -5);
        assert_eq!(run("cvt.rni.f16.f16", 0x3e00), 0x4000);
    }

    #[test]
    fn doubles_narrow_in_every_direction() {
        let third = (1.0f64 / 3.0).to_bits();
        let (down, up) = (run("cvt.rm.f32.f64", third), run("cvt.rp.f32.f64", third));
        assert_eq!(up, down + 1);
        assert_eq!(run("cvt.rz.f32.f64", 1e300f64.to_bits()), f(f32::MAX));
        assert_eq!(run("cvt.rn.f32.f64", 1e300f64.to_bits()), f(f32::INFINITY));
    }
}
