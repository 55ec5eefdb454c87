//! What an instruction does to the 32 lanes of a warp: pure functions, chosen once when a module is
//! loaded.
//!
//! A lane is 64 bits, whatever the type: narrower values are extended to it, signed types by their
//! sign; predicates are 0 and 1. A function computes all lanes; the caller keeps those that are active.

mod convert;
mod float;
mod half;
mod integer;
pub(crate) mod matrix;
pub(crate) mod mbarrier;

/// The values of one register in the lanes of a warp.
pub(crate) type Lanes = [u64; 32];

/// Computes a register from up to four.
pub(crate) type LaneFn = fn(&mut Lanes, &[&Lanes; 4]);

/// Floats of 32 bits, one at a time.
pub(crate) mod single {
    pub(crate) use super::float::{flush, max32 as max, min32 as min, saturate};

    /// The NaN that a GPU makes.
    pub(crate) const NAN: u32 = 0x7fff_ffff;
}

/// Numbers of 16 bits, one at a time.
pub(crate) mod short {
    use super::float::Rounding;
    use super::half::{Brain, Half, flushed, short, value};

    pub(crate) fn half(bits: u16) -> f64 {
        value::<Half>(bits)
    }

    pub(crate) fn flushed_half(bits: u16) -> f64 {
        flushed::<Half>(bits)
    }

    pub(crate) fn brain(bits: u16) -> f64 {
        value::<Brain>(bits)
    }

    /// The nearest one.
    pub(crate) fn to_half(number: f64) -> u16 {
        short::<Half>(number, Rounding::Nearest)
    }
}

/// A value in a lane.
trait Lane: Copy {
    fn get(bits: u64) -> Self;
    fn put(self) -> u64;
}

macro_rules! integer_lanes {
    ($($int:ty)*) => {$(
        impl Lane for $int {
            fn get(bits: u64) -> Self { bits as $int }
            fn put(self) -> u64 { self as u64 }
        }
    )*};
}
integer_lanes!(u8 u16 u32 u64 i8 i16 i64);

impl Lane for i32 {
    fn get(bits: u64) -> Self {
        bits as i32
    }
    /// Not extended by the sign: 32-bit registers are addresses of shared memory, too.
    fn put(self) -> u64 {
        u64::from(self as u32)
    }
}

impl Lane for bool {
    fn get(bits: u64) -> Self {
        bits & 1 != 0
    }
    fn put(self) -> u64 {
        u64::from(self)
    }
}

impl Lane for f32 {
    fn get(bits: u64) -> Self {
        f32::from_bits(bits as u32)
    }
    /// Every NaN is the one that a GPU makes.
    fn put(self) -> u64 {
        u64::from(if self.is_nan() { 0x7fff_ffff } else { self.to_bits() })
    }
}

impl Lane for f64 {
    fn get(bits: u64) -> Self {
        f64::from_bits(bits)
    }
    fn put(self) -> u64 {
        if self.is_nan() { 0xfff8_0000_0000_0000 } else { self.to_bits() }
    }
}

/// Chooses a type by a name of PTX, nothing where it is none of them:
/// `by_name!(kind, T: "s16" => i16, "s32" => i32; function of T)`.
macro_rules! by_name {
    ($kind:expr, $T:ident: $($($name:literal)|+ => $type:ty),+; $f:expr) => {
        match $kind {
            $($($name)|+ => {
                type $T = $type;
                $f
            })+
            _ => return None,
        }
    };
}
use by_name;

/// A function over the lanes: `lanes!(|a: u32, b: u32| a.wrapping_add(b))`.
macro_rules! lanes {
    (|$a:ident: $A:ty| $e:expr) => {
        (|d, s| {
            for i in 0..32 {
                let $a = <$A as $crate::lanes::Lane>::get(s[0][i]);
                d[i] = $crate::lanes::Lane::put($e);
            }
        }) as $crate::lanes::LaneFn
    };
    (|$a:ident: $A:ty, $b:ident: $B:ty| $e:expr) => {
        (|d, s| {
            for i in 0..32 {
                let $a = <$A as $crate::lanes::Lane>::get(s[0][i]);
                let $b = <$B as $crate::lanes::Lane>::get(s[1][i]);
                d[i] = $crate::lanes::Lane::put($e);
            }
        }) as $crate::lanes::LaneFn
    };
    (|$a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty| $e:expr) => {
        (|d, s| {
            for i in 0..32 {
                let $a = <$A as $crate::lanes::Lane>::get(s[0][i]);
                let $b = <$B as $crate::lanes::Lane>::get(s[1][i]);
                let $c = <$C as $crate::lanes::Lane>::get(s[2][i]);
                d[i] = $crate::lanes::Lane::put($e);
            }
        }) as $crate::lanes::LaneFn
    };
    (|$a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty, $x:ident: $X:ty| $e:expr) => {
        (|d, s| {
            for i in 0..32 {
                let $a = <$A as $crate::lanes::Lane>::get(s[0][i]);
                let $b = <$B as $crate::lanes::Lane>::get(s[1][i]);
                let $c = <$C as $crate::lanes::Lane>::get(s[2][i]);
                let $x = <$X as $crate::lanes::Lane>::get(s[3][i]);
                d[i] = $crate::lanes::Lane::put($e);
            }
        }) as $crate::lanes::LaneFn
    };
}
use lanes;

/// An opcode taken apart at its dots.
#[derive(Debug, Clone)]
pub(crate) struct Opcode<'a> {
    pub(crate) base: &'a str,
    pub(crate) modifiers: Vec<&'a str>,
}

impl<'a> Opcode<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let mut parts = text.split('.');
        Self { base: parts.next().unwrap_or(""), modifiers: parts.collect() }
    }

    pub(crate) fn has(&self, modifier: &str) -> bool {
        self.modifiers.contains(&modifier)
    }

    /// What the first of these modifiers means that the opcode has.
    pub(crate) fn choose<T: Copy>(&self, meanings: &[(&str, T)]) -> Option<T> {
        meanings.iter().find(|(modifier, _)| self.has(modifier)).map(|(_, meaning)| *meaning)
    }

    /// The types among the modifiers, in their order.
    pub(crate) fn types(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.modifiers.iter().copied().filter(|word| type_bits(word).is_some())
    }

    /// The last type, which is that of the operands.
    pub(crate) fn kind(&self) -> &'a str {
        self.types().last().unwrap_or("")
    }
}

/// Bits of a type without its dot; 1 for `pred`.
pub(crate) fn type_bits(word: &str) -> Option<u32> {
    Some(match word {
        "pred" => 1,
        "b8" | "u8" | "s8" => 8,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 16,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" | "tf32" => 32,
        "b64" | "u64" | "s64" | "f64" => 64,
        _ => return None,
    })
}

/// The modifiers that the functions heed, beside types; with any other an instruction means something
/// else.
const MODIFIERS: &[&str] = &[
    "rn",
    "rz",
    "rm",
    "rp",
    "rni",
    "rzi",
    "rmi",
    "rpi",
    "rna",
    "ftz",
    "sat",
    "pack",
    "approx",
    "full",
    "NaN",
    "lo",
    "hi",
    "wide",
    "l",
    "r",
    "wrap",
    "clamp",
    "shiftamt",
    "finite",
    "infinite",
    "number",
    "notanumber",
    "normal",
    "subnormal",
    "relu",
    "xorsign",
    "f4e",
    "b4e",
    "rc8",
    "ecl",
    "ecr",
    "rc16",
    "add",
    "abs",
];

/// The function of an opcode and the number of its sources, for opcodes that only compute.
pub(crate) fn lookup(opcode: &Opcode<'_>) -> Option<(LaneFn, usize)> {
    let known = |word: &&str| type_bits(word).is_some() || MODIFIERS.contains(word);
    if !opcode.modifiers.iter().all(known) {
        return None;
    }
    if opcode.has("add") && opcode.base != "vabsdiff4" {
        return None;
    }
    // The signs of both sources, of the lesser or greater without them.
    let signs = [opcode.has("xorsign"), opcode.has("abs")];
    if signs != [false; 2] && (signs != [true; 2] || !matches!(opcode.base, "min" | "max")) {
        return None;
    }
    let short = half::is_short(opcode.kind()) && !matches!(opcode.base, "mov" | "selp");
    match opcode.base {
        "cvt" => convert::lookup(opcode),
        _ if short => half::lookup(opcode),
        _ if opcode.has("relu") => None,
        _ => integer::lookup(opcode).or_else(|| float::lookup(opcode)),
    }
}

/// The comparison of `setp` and `set`; of two numbers in one register, that of the lower ones.
pub(crate) fn comparison(opcode: &Opcode<'_>) -> Option<LaneFn> {
    let compare = *opcode.modifiers.first()?;
    match opcode.kind() {
        kind @ ("f32" | "f64" | "f16" | "bf16") => {
            float::comparison(compare, kind, opcode.has("ftz"))
        }
        "f16x2" => float::comparison(compare, "f16", opcode.has("ftz")),
        "bf16x2" => float::comparison(compare, "bf16", false),
        kind => integer::comparison(compare, kind),
    }
}

/// One step of an atomic operation: the new value from the old one and the operand.
pub(crate) fn atomic(operation: &str, kind: &str) -> Option<fn(u64, u64) -> u64> {
    let float = || float::atomic(operation, kind).or_else(|| half::atomic(operation, kind));
    integer::atomic(operation, kind).or_else(float)
}

/// The value of a number of 16 bits of a type.
pub(crate) fn short_value(kind: &str) -> Option<fn(u16) -> f64> {
    match kind {
        "f16" => Some(half::value::<half::Half>),
        "bf16" => Some(half::value::<half::Brain>),
        _ => None,
    }
}

/// A float to an integer, where an instruction says itself what comes of NaN: the highest bit alone, or 0.
pub(crate) fn float_to_integer(text: &str, nan_is_top: bool) -> Option<LaneFn> {
    let opcode = Opcode::new(text);
    let mut types = opcode.types();
    let (to, from) = (types.next()?, types.next()?);
    convert::float_to_integer(&opcode, to, from, nan_is_top)
}

/// The nearest number of 16 bits.
pub(crate) fn half_of(value: f32) -> u16 {
    half::nearest::<half::Half>(value.into())
}

/// Carry (or borrow) out of an addition (or subtraction) with carry in, and its value.
pub(crate) fn carry(subtract: bool, wide: bool) -> (LaneFn, LaneFn) {
    match (subtract, wide) {
        (false, false) => (
            lanes!(
                |a: u32, b: u32, c: bool| u64::from(a) + u64::from(b) + u64::from(c) > 0xffff_ffff
            ),
            lanes!(|a: u32, b: u32, c: bool| a.wrapping_add(b).wrapping_add(c.into())),
        ),
        (false, true) => (
            lanes!(|a: u64, b: u64, c: bool| (u128::from(a) + u128::from(b) + u128::from(c)) >> 64
                != 0),
            lanes!(|a: u64, b: u64, c: bool| a.wrapping_add(b).wrapping_add(c.into())),
        ),
        (true, false) => (
            lanes!(|a: u32, b: u32, c: bool| u64::from(a) < u64::from(b) + u64::from(c)),
            lanes!(|a: u32, b: u32, c: bool| a.wrapping_sub(b).wrapping_sub(c.into())),
        ),
        (true, true) => (
            lanes!(|a: u64, b: u64, c: bool| u128::from(a) < u128::from(b) + u128::from(c)),
            lanes!(|a: u64, b: u64, c: bool| a.wrapping_sub(b).wrapping_sub(c.into())),
        ),
    }
}

/// What an opcode makes of the same sources in each lane: the same in each.
#[cfg(test)]
fn run_with(
    lookup: fn(&Opcode<'_>) -> Option<(LaneFn, usize)>,
    text: &str,
    sources: &[u64],
) -> u64 {
    let (f, count) = lookup(&Opcode::new(text)).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(count, sources.len(), "{text}");
    let mut all = [[0; 32]; 4];
    for (lanes, value) in all.iter_mut().zip(sources) {
        *lanes = [*value; 32];
    }
    let mut out = [0; 32];
    f(&mut out, &all.each_ref());
    assert!(out.iter().all(|lane| *lane == out[0]));
    out[0]
}
