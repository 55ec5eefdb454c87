//! Numbers of 16 bits, two in a register: comparisons, and what gives 32 bits.

use super::{Compare, In, Modes, Out, mask};
use crate::lanes::short;

fn value(m: &Modes, bits: u16) -> f64 {
    match (m.wide, m.flush) {
        (true, _) => short::brain(bits),
        (false, true) => short::flushed_half(bits),
        (false, false) => short::half(bits),
    }
}

/// The lanes where a comparison of the lower halves holds, and of the upper ones.
fn compared(m: &Modes, compare: Compare, i: &In<'_>) -> [u32; 2] {
    [0, 16].map(|shift| {
        mask(|lane| {
            let [a, b] = [i.a, i.b].map(|row| value(m, (row[lane] >> shift) as u16));
            compare.holds(a.partial_cmp(&b))
        })
    })
}

/// Two predicates: of the lower and of the upper halves, or of both and its opposite.
pub(in crate::sass) fn compare(m: &Modes, i: &In<'_>, out: &mut Out) {
    let [low, high] = compared(m, m.compare, i);
    let holds = if m.high { [low & high, !(low & high)] } else { [low, high] };
    out.p = holds.map(|holds| m.combine.of(holds, i.p[0]));
}

pub(in crate::sass) fn set(m: &Modes, i: &In<'_>, out: &mut Out) {
    let holds = compared(m, m.compare, i).map(|holds| m.combine.of(holds, i.p[0]));
    let one = if m.wide { 0x3f80 } else { 0x3c00 };
    let yes = if m.left { one } else { 0xffff };
    for lane in 0..32 {
        let [low, high] = holds.map(|holds| if holds >> lane & 1 != 0 { yes } else { 0 });
        out.d[lane] = low | high << 16;
    }
}

/// The sum of the lower halves as a float.
pub(in crate::sass) fn add_to_single(m: &Modes, i: &In<'_>, out: &mut Out) {
    for lane in 0..32 {
        let sum = value(m, i.a[lane] as u16) + value(m, i.b[lane] as u16);
        let sum = sum as f32;
        out.d[lane] = if sum.is_nan() { 0x7fff_ffff } else { sum.to_bits() };
    }
}
