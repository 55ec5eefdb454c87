//! Floats of 32 and 64 bits: what is fast, or what PTX has not.

use super::{In, Modes, Out, compared, mask};
use crate::lanes::{LaneFn, single};
use crate::sass::{Row, Signs};

/// The NaN that a GPU makes.
fn bits(value: f32) -> u32 {
    if value.is_nan() { single::NAN } else { value.to_bits() }
}

fn get(bits: u32, flush: bool) -> f32 {
    let value = f32::from_bits(bits);
    if flush { single::flush(value) } else { value }
}

fn put(m: &Modes, value: f32) -> u32 {
    let value = if m.flush { single::flush(value) } else { value };
    bits(if m.saturate { single::saturate(value) } else { value })
}

pub(in crate::sass) fn add(m: &Modes, i: &In<'_>, out: &mut Out) {
    for lane in 0..32 {
        out.d[lane] = put(m, get(i.a[lane], m.flush) + get(i.b[lane], m.flush));
    }
}

/// A sum, for which each lane of four has signs of its own.
pub(crate) fn add_with_signs(mut a: Row, mut b: Row, signs: &[Signs; 4], add: LaneFn) -> Row {
    const SIGN: u32 = 1 << 31;
    for lane in 0..32 {
        match signs[lane % 4] {
            Signs::None => {}
            Signs::Second => b[lane] ^= SIGN,
            Signs::First => a[lane] ^= SIGN,
            // The number that changes no other.
            Signs::SecondAlone => a[lane] = SIGN,
        }
    }
    let mut sources = [[0; 32]; 4];
    (sources[0], sources[1]) = (a.map(u64::from), b.map(u64::from));
    let mut sum = [0; 32];
    add(&mut sum, &sources.each_ref());
    sum.map(|sum| sum as u32)
}

pub(in crate::sass) fn multiply(m: &Modes, i: &In<'_>, out: &mut Out) {
    for lane in 0..32 {
        out.d[lane] = put(m, get(i.a[lane], m.flush) * get(i.b[lane], m.flush));
    }
}

/// Rounded once: product and power are exact in a double.
pub(in crate::sass) fn multiply_scaled(m: &Modes, i: &In<'_>, out: &mut Out) {
    let power = f64::from(m.power).exp2();
    for lane in 0..32 {
        let [a, b] = [i.a[lane], i.b[lane]].map(|bits| f64::from(get(bits, m.flush)));
        out.d[lane] = put(m, (a * b * power) as f32);
    }
}

/// Rounded to nearest, with nothing else to it.
pub(in crate::sass) fn fused(m: &Modes, i: &In<'_>, out: &mut Out) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the processor has AVX2 and FMA, for which the function is compiled.
        return unsafe { fused_by_hardware(m, i, out) };
    }
    fused_lanes(m, i, out);
}

/// # Safety
///
/// The processor has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn fused_by_hardware(m: &Modes, i: &In<'_>, out: &mut Out) {
    fused_lanes(m, i, out);
}

#[inline(always)]
fn fused_lanes(m: &Modes, i: &In<'_>, out: &mut Out) {
    for lane in 0..32 {
        let [a, b, c] = [i.a, i.b, i.c].map(|row| get(row[lane], m.flush));
        out.d[lane] = put(m, a.mul_add(b, c));
    }
}

pub(in crate::sass) fn compare(m: &Modes, i: &In<'_>, out: &mut Out) {
    let holds =
        mask(|lane| m.compare.holds(get(i.a[lane], m.flush).partial_cmp(&get(i.b[lane], m.flush))));
    compared(m, holds, i.p[0], out);
}

/// The comparison as a number, one or zero.
pub(in crate::sass) fn set(m: &Modes, i: &In<'_>, out: &mut Out) {
    compare(m, i, out);
    let yes = 1f32.to_bits();
    for lane in 0..32 {
        out.d[lane] = if out.p[0] >> lane & 1 != 0 { yes } else { 0 };
    }
}

/// The smaller where the predicate holds, else the larger; -0 is below +0.
pub(in crate::sass) fn least_or_most(m: &Modes, i: &In<'_>, out: &mut Out) {
    for lane in 0..32 {
        let (a, b) = (get(i.a[lane], m.flush), get(i.b[lane], m.flush));
        let nan = m.propagate_nan && (a.is_nan() || b.is_nan());
        let least = i.p[0] >> lane & 1 != 0;
        out.d[lane] = match (nan, least) {
            (true, _) => single::NAN,
            (false, true) => bits(single::min(a, b)),
            (false, false) => bits(single::max(a, b)),
        };
    }
}

pub(in crate::sass) fn select(m: &Modes, i: &In<'_>, out: &mut Out) {
    for lane in 0..32 {
        let value = if i.p[0] >> lane & 1 != 0 { i.a[lane] } else { i.b[lane] };
        let subnormal = m.flush && f32::from_bits(value).is_subnormal();
        out.d[lane] = if subnormal { value & 0x8000_0000 } else { value };
    }
}

/// Whether a division needs more than the usual steps: numbers that are no numbers, or whose quotient, or what
/// leads to it, leaves the range.
pub(in crate::sass) fn check_division(_: &Modes, i: &In<'_>, out: &mut Out) {
    let exponent = |bits: u32| (bits >> 23 & 0xff) as i32;
    let special = |bits: u32| matches!(exponent(bits), 0 | 255);
    out.p[0] = mask(|lane| {
        let (a, b) = (i.a[lane], i.b[lane]);
        let difference = exponent(a) - exponent(b);
        let small = exponent(a) < 32 || exponent(b) < 4;
        special(a)
            || special(b)
            || small
            || exponent(b) > 250
            || !(-100..=100).contains(&difference)
    });
}

pub(in crate::sass) fn compare_double(m: &Modes, i: &In<'_>, out: &mut Out) {
    let double = |low: u32, high: u32| f64::from_bits(u64::from(low) | u64::from(high) << 32);
    let holds = mask(|lane| {
        let a = double(i.a[lane], i.high[0][lane]);
        m.compare.holds(a.partial_cmp(&double(i.b[lane], i.high[1][lane])))
    });
    compared(m, holds, i.p[0], out);
}

/// As `DSETP.MIN` and `.MAX`: whether the first is the one to take, and whether both are NaN.
pub(in crate::sass) fn choose_double(m: &Modes, i: &In<'_>, out: &mut Out) {
    let double = |low: u32, high: u32| f64::from_bits(u64::from(low) | u64::from(high) << 32);
    let both =
        |lane: usize| (double(i.a[lane], i.high[0][lane]), double(i.b[lane], i.high[1][lane]));
    let first = mask(|lane| {
        let (a, b) = both(lane);
        let (least, most) = if m.high { (b, a) } else { (a, b) };
        // -0 is below +0, and a number is better than none.
        let zeros = a == b && least.is_sign_negative() && !most.is_sign_negative();
        least < most || zeros || b.is_nan() && !a.is_nan()
    });
    let neither = mask(|lane| {
        let (a, b) = both(lane);
        a.is_nan() && b.is_nan()
    });
    out.p = [m.combine.of(first, i.p[0]), m.combine.of(neither, i.p[0])];
}

/// The functions of the special unit, by its field.
pub(in crate::sass) const SPECIAL: [&str; 10] =
    ["COS", "SIN", "EX2", "LG2", "RCP", "RSQ", "RCP64H", "RSQ64H", "SQRT", "TANH"];

const TANH: u8 = 9;

/// Rounded once from a double; subnormal numbers are zero, but of TANH. The upper half of a double alone is a double.
pub(in crate::sass) fn special(m: &Modes, i: &In<'_>, out: &mut Out) {
    for lane in 0..32 {
        if matches!(m.number, 6 | 7) {
            let x = f64::from_bits(u64::from(i.a[lane]) << 32);
            let x = if x.is_subnormal() { 0f64.copysign(x) } else { x };
            let y = if m.number == 6 { 1.0 / x } else { 1.0 / x.sqrt() };
            out.d[lane] = if y.is_nan() {
                0x7fff_ffff
            } else if y.is_subnormal() {
                ((y.to_bits() >> 32) as u32) & 0x8000_0000
            } else {
                (y.to_bits() >> 32) as u32
            };
            continue;
        }
        if m.number == TANH {
            out.d[lane] = bits(f64::from(f32::from_bits(i.a[lane])).tanh() as f32);
            continue;
        }
        let x = f64::from(single::flush(f32::from_bits(i.a[lane])));
        // In turns, of which only the last counts.
        let angle = (x - x.round()) * std::f64::consts::TAU;
        let y = match m.number {
            0 => angle.cos(),
            1 => angle.sin(),
            2 => x.exp2(),
            3 => x.log2(),
            4 => 1.0 / x,
            5 => 1.0 / x.sqrt(),
            _ => x.sqrt(),
        };
        out.d[lane] = bits(single::flush(y as f32));
    }
}
