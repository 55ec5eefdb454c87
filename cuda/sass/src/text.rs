//! Instructions as text, in the manner of nvdisasm.

use std::fmt::{self, Display, Formatter, Write};

use crate::Modifier;
use crate::decode::{Address, ConstantBank, Instruction, Operand, Value};
use crate::isa::{Field, Hidden, Source};

/// Numbers from here on are written with an exponent.
const LARGE: f64 = 1e9;

impl Display for Instruction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let guard = self.guard;
        if guard.predicate != 7 || guard.negated {
            f.write_str(if guard.negated { "@!" } else { "@" })?;
            predicate(f, guard.predicate, guard.uniform)?;
            f.write_char(' ')?;
        }
        f.write_str(self.op.text())?;
        for modifier in self.modifiers.iter() {
            write!(f, ".{}", modifier.text())?;
        }
        let mut separator = " ";
        for (operand, field) in self.operands.iter().zip(self.form.operands) {
            if is_hidden(operand, field.hidden) {
                continue;
            }
            f.write_str(if field.joined { " " } else { separator })?;
            write_operand(f, operand, field)?;
            separator = if is_special_number(operand.value) { " , " } else { ", " };
        }
        Ok(())
    }
}

fn is_hidden(operand: &Operand, hidden: Hidden) -> bool {
    let is_default = match operand.value {
        Value::Register(register) => register == 255,
        Value::Uniform(register) => register == 63,
        Value::Predicate(number) | Value::UniformPredicate(number) => number == 7,
        _ => false,
    };
    match hidden {
        Hidden::Never => false,
        Hidden::Always => true,
        Hidden::Default => is_default && !operand.negated,
        Hidden::Number(number) => match operand.value {
            Value::Unsigned(value) => value == number,
            Value::Signed(value) => value == number as i64,
            Value::Scoreboards(mask) => u64::from(mask) == number,
            _ => false,
        },
    }
}

fn write_operand(f: &mut Formatter<'_>, operand: &Operand, field: &Field) -> fmt::Result {
    let is_predicate = matches!(operand.value, Value::Predicate(_) | Value::UniformPredicate(_));
    if operand.inverted {
        f.write_char('~')?;
    }
    if operand.negated {
        f.write_char(if is_predicate { '!' } else { '-' })?;
    }
    if operand.absolute {
        f.write_char('|')?;
    }
    write_value(f, operand.value, field)?;
    // Of a register the suffix is behind the bar.
    let is_inside = matches!(operand.value, Value::Constant { .. } | Value::Uniform(_));
    let suffixes: String =
        operand.suffixes.iter().map(|suffix| format!(".{}", suffix.text())).collect();
    let (inside, behind) = if is_inside { (&*suffixes, "") } else { ("", &*suffixes) };
    f.write_str(inside)?;
    if operand.absolute {
        f.write_char('|')?;
    }
    if operand.reuse {
        f.write_str(".reuse")?;
    }
    f.write_str(behind)
}

fn write_value(f: &mut Formatter<'_>, value: Value, field: &Field) -> fmt::Result {
    match value {
        Value::Register(number) => register(f, number, false),
        Value::Uniform(number) => register(f, number, true),
        Value::Predicate(number) => predicate(f, number, false),
        Value::UniformPredicate(number) => predicate(f, number, true),
        Value::Barrier(number) => write!(f, "B{number}"),
        Value::Scoreboard(number) => write!(f, "SB{number}"),
        Value::Scoreboards(mask) => {
            let numbers: Vec<String> = (0..8)
                .rev()
                .filter(|bit| mask >> bit & 1 == 1)
                .map(|bit| bit.to_string())
                .collect();
            write!(f, "{{{}}}", numbers.join(","))
        }
        Value::Descriptor { register: number, group } => {
            f.write_str(if group { "gdesc[" } else { "desc[" })?;
            register(f, number, true)?;
            f.write_char(']')
        }
        Value::Signs(signs) => (0..4).rev().try_for_each(|lane| {
            f.write_str(["PP", "PN", "NP", "ZP"][usize::from(signs >> (2 * lane) & 3)])
        }),
        Value::Named(name) => f.write_str(name.text()),
        Value::Word(word) => f.write_str(word),
        Value::Signed(number) | Value::Target(number) => signed(f, number),
        Value::Unsigned(number) => write!(f, "{number:#x}"),
        Value::Float32(bits) => float(f, f64::from(f32::from_bits(bits)), bits >> 22 & 1 == 1),
        Value::Float64(bits) => {
            float(f, f64::from_bits(u64::from(bits) << 32), bits >> 19 & 1 == 1)
        }
        Value::Half2([low, high]) => {
            pair(f, half(low), half(high), [low, high].map(|bits| bits >> 9 & 1 == 1))
        }
        Value::BFloat2([low, high]) => {
            pair(f, bfloat(low), bfloat(high), [low, high].map(|bits| bits >> 6 & 1 == 1))
        }
        Value::Constant { bank, index, offset } => {
            constant(f, bank)?;
            // nvdisasm writes a space where a part of the constant could be chosen.
            f.write_str(if field.suffixes.is_empty() { "" } else { " " })?;
            memory(f, index, None, offset)
        }
        Value::Memory { descriptor, base, uniform, offset } => {
            let hide = matches!(field.source, Source::Memory { hide_descriptor: true, .. });
            if let Some(descriptor) = descriptor.filter(|_| !hide) {
                f.write_str("desc[")?;
                register(f, descriptor, true)?;
                f.write_char(']')?;
            }
            memory(f, base, uniform, offset)
        }
    }
}

fn register(f: &mut Formatter<'_>, number: u8, uniform: bool) -> fmt::Result {
    match (uniform, number) {
        (false, 255) => f.write_str("RZ"),
        (false, number) => write!(f, "R{number}"),
        (true, 63) => f.write_str("URZ"),
        (true, number) => write!(f, "UR{number}"),
    }
}

fn predicate(f: &mut Formatter<'_>, number: u8, uniform: bool) -> fmt::Result {
    f.write_str(if uniform { "U" } else { "" })?;
    match number {
        7 => f.write_str("PT"),
        number => write!(f, "P{number}"),
    }
}

fn signed(f: &mut Formatter<'_>, number: i64) -> fmt::Result {
    let sign = if number < 0 { "-" } else { "" };
    write!(f, "{sign}{:#x}", number.unsigned_abs())
}

fn address(f: &mut Formatter<'_>, address: Address) -> fmt::Result {
    register(f, address.register, address.uniform)?;
    address.suffixes.iter().try_for_each(|suffix| write!(f, ".{}", suffix.text()))
}

fn constant(f: &mut Formatter<'_>, bank: ConstantBank) -> fmt::Result {
    match bank {
        ConstantBank::Number(bank) => write!(f, "c[{bank:#x}]"),
        ConstantBank::Bindless(number) => {
            f.write_str("cx[")?;
            register(f, number, true)?;
            f.write_char(']')
        }
    }
}

/// The parts of an address that are not zero; zero where all are.
fn memory(
    f: &mut Formatter<'_>,
    base: Option<Address>,
    uniform: Option<u8>,
    offset: i64,
) -> fmt::Result {
    // A scale is written even of zero.
    let is_plain = |base: Address| matches!(base.suffixes[..], [] | [Modifier::_64]);
    let is_zero = |base: Address| base.register == 255 && (uniform.is_none() || is_plain(base));
    let base = base.filter(|&base| !is_zero(base) || uniform.is_none() && offset == 0);
    let mut separator = "";
    f.write_char('[')?;
    if let Some(base) = base {
        address(f, base)?;
        separator = "+";
    }
    if let Some(uniform) = uniform {
        f.write_str(separator)?;
        register(f, uniform, true)?;
        separator = "+";
    }
    if offset != 0 || separator.is_empty() {
        f.write_str(separator)?;
        signed(f, offset)?;
    }
    f.write_char(']')
}

fn is_special(value: f64) -> bool {
    !value.is_finite() || value == 0.0 && value.is_sign_negative()
}

/// nvdisasm writes a space behind numbers that have a name.
fn is_special_number(value: Value) -> bool {
    match value {
        Value::Float32(bits) => is_special(f64::from(f32::from_bits(bits))),
        Value::Float64(bits) => is_special(f64::from_bits(u64::from(bits) << 32)),
        Value::Half2([low, _]) => is_special(half(low)),
        Value::BFloat2([low, _]) => is_special(bfloat(low)),
        _ => false,
    }
}

/// Two numbers, the upper first.
fn pair(f: &mut Formatter<'_>, low: f64, high: f64, quiet: [bool; 2]) -> fmt::Result {
    float(f, high, quiet[1])?;
    f.write_str(if is_special(high) { " , " } else { ", " })?;
    float(f, low, quiet[0])
}

fn half(bits: u16) -> f64 {
    let fraction = f64::from(bits & 0x3ff);
    let magnitude = match bits >> 10 & 0x1f {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        exponent => (1024.0 + fraction) * 2f64.powi(i32::from(exponent) - 25),
    };
    magnitude.copysign(if bits >> 15 == 0 { 1.0 } else { -1.0 })
}

fn bfloat(bits: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bits) << 16))
}

/// C's `%.20g`, and `%.20e` for large numbers.
fn float(f: &mut Formatter<'_>, value: f64, quiet: bool) -> fmt::Result {
    let sign = if value.is_sign_negative() { "-" } else { "+" };
    if value.is_nan() {
        return write!(f, "{sign}{}NAN", if quiet { "Q" } else { "S" });
    }
    if value.is_infinite() {
        return write!(f, "{sign}INF");
    }
    if value == 0.0 {
        return f.write_str(if sign == "-" { "-0.0" } else { "0" });
    }
    let digits = if value.abs() >= LARGE { 20 } else { 19 };
    let text = format!("{value:.digits$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let shortest = |text: &str| text.trim_end_matches('0').trim_end_matches('.').to_owned();
    if value.abs() >= LARGE {
        return write!(f, "{mantissa}e+{exponent:02}");
    }
    if exponent < -4 {
        return write!(f, "{}e-{:02}", shortest(mantissa), -exponent);
    }
    let decimals = usize::try_from(19 - exponent).unwrap_or(0);
    f.write_str(&shortest(&format!("{value:.decimals$}")))
}
