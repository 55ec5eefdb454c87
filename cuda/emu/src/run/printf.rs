//! `printf` of kernels: C's formats over arguments that lie in memory one after the other.

use super::Mistake;

/// What an argument is.
pub(super) enum Argument {
    /// A value of this many bytes.
    Value(u64),
    /// The string that a pointer points to.
    Text,
}

/// An argument.
pub(super) enum ArgumentValue {
    Value(u64),
    Text(Vec<u8>),
}

/// What was printed.
pub(super) struct Printed {
    pub(super) bytes: Vec<u8>,
    /// Number of arguments.
    pub(super) count: u64,
}

/// One conversion: `%-08.3llf`.
#[derive(Default)]
struct Spec {
    left: bool,
    zero: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
    long: bool,
}

/// Widths beyond this are cut off.
const MAX_WIDTH: usize = 4096;

/// Formats, fetching each argument from its offset.
pub(super) fn format(
    format: &[u8],
    mut get: impl FnMut(Argument, u64) -> Result<ArgumentValue, Box<Mistake>>,
) -> Result<Printed, Box<Mistake>> {
    let mut out = Printed { bytes: Vec::new(), count: 0 };
    let mut offset = 0u64;
    let mut rest = format.iter().copied().peekable();
    let mut value = |size: u64, text: bool, count: &mut u64| {
        offset = offset.next_multiple_of(size);
        let got = get(if text { Argument::Text } else { Argument::Value(size) }, offset)?;
        offset += size;
        *count += 1;
        Ok::<ArgumentValue, Box<Mistake>>(got)
    };
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            out.bytes.push(byte);
            continue;
        }
        let mut spec = Spec::default();
        while let Some(flag) = rest.next_if(|b| b"-0+ #".contains(b)) {
            match flag {
                b'-' => spec.left = true,
                b'0' => spec.zero = true,
                b'+' => spec.plus = true,
                b' ' => spec.space = true,
                _ => spec.alternate = true,
            }
        }
        let mut number = |rest: &mut std::iter::Peekable<_>| -> Result<usize, Box<Mistake>> {
            if rest.next_if_eq(&b'*').is_some() {
                let ArgumentValue::Value(n) = value(4, false, &mut out.count)? else {
                    return Ok(0);
                };
                return Ok((n as i32).unsigned_abs() as usize);
            }
            let mut n = 0usize;
            while let Some(digit) = rest.next_if(u8::is_ascii_digit) {
                n = (n * 10 + usize::from(digit - b'0')).min(MAX_WIDTH);
            }
            Ok(n)
        };
        spec.width = number(&mut rest)?.min(MAX_WIDTH);
        if rest.next_if_eq(&b'.').is_some() {
            spec.precision = Some(number(&mut rest)?.min(MAX_WIDTH));
        }
        while let Some(length) = rest.next_if(|b| b"lhzjt".contains(b)) {
            spec.long |= length != b'h';
        }
        let Some(kind) = rest.next() else { break };
        let text = match kind {
            b'%' => "%".to_owned().into_bytes(),
            b's' => match value(8, true, &mut out.count)? {
                ArgumentValue::Text(text) => {
                    let keep = spec.precision.unwrap_or(text.len()).min(text.len());
                    spec.zero = false;
                    text[..keep].to_vec()
                }
                ArgumentValue::Value(_) => Vec::new(),
            },
            b'd' | b'i' | b'u' | b'x' | b'X' | b'o' | b'c' | b'p' => {
                let size = if spec.long || kind == b'p' { 8 } else { 4 };
                match value(size, false, &mut out.count)? {
                    ArgumentValue::Value(bits) => integer(&mut spec, kind, bits, size),
                    ArgumentValue::Text(_) => Vec::new(),
                }
            }
            b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
                match value(8, false, &mut out.count)? {
                    ArgumentValue::Value(bits) => float(&mut spec, kind, f64::from_bits(bits)),
                    ArgumentValue::Text(_) => Vec::new(),
                }
            }
            // C leaves the rest undefined: shown as it stands.
            other => vec![b'%', other],
        };
        pad(&mut out.bytes, &spec, &text);
    }
    Ok(out)
}

fn sign(spec: &Spec, negative: bool) -> &'static str {
    match (negative, spec.plus, spec.space) {
        (true, ..) => "-",
        (_, true, _) => "+",
        (_, _, true) => " ",
        _ => "",
    }
}

fn integer(spec: &mut Spec, kind: u8, bits: u64, size: u64) -> Vec<u8> {
    let wide = if size == 4 { (bits as i32).into() } else { bits as i64 };
    let bits = if size == 4 { u64::from(bits as u32) } else { bits };
    let (prefix, digits) = match kind {
        b'c' => {
            spec.zero = false;
            return vec![bits as u8];
        }
        b'd' | b'i' => (sign(spec, wide < 0), wide.unsigned_abs().to_string()),
        b'x' => (if spec.alternate && bits != 0 { "0x" } else { "" }, format!("{bits:x}")),
        b'X' => (if spec.alternate && bits != 0 { "0X" } else { "" }, format!("{bits:X}")),
        b'o' => (if spec.alternate { "0" } else { "" }, format!("{bits:o}")),
        b'p' => ("0x", format!("{bits:x}")),
        _ => ("", bits.to_string()),
    };
    let digits = match spec.precision {
        Some(precision) => {
            spec.zero = false;
            format!("{digits:0>precision$}")
        }
        None => digits,
    };
    [prefix.as_bytes(), digits.as_bytes()].concat()
}

fn float(spec: &mut Spec, kind: u8, value: f64) -> Vec<u8> {
    let precision = spec.precision.unwrap_or(6);
    let magnitude = value.abs();
    let text = match kind.to_ascii_lowercase() {
        _ if !value.is_finite() => {
            spec.zero = false;
            if value.is_nan() { "nan" } else { "inf" }.to_owned()
        }
        b'f' => format!("{magnitude:.precision$}"),
        b'e' => exponent(magnitude, precision),
        b'g' => general(magnitude, precision.max(1), spec.alternate),
        _ => hexadecimal(magnitude, spec.precision),
    };
    let text = if kind.is_ascii_uppercase() { text.to_ascii_uppercase() } else { text };
    let negative = value.is_sign_negative() && !value.is_nan();
    [sign(spec, negative).as_bytes(), text.as_bytes()].concat()
}

/// As Rust writes it, with a sign and two digits of exponent.
fn exponent(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

fn general(value: f64, precision: usize, keep_zeros: bool) -> String {
    let scientific = exponent(value, precision - 1);
    let power: i32 = scientific.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    let trim = |text: &str| {
        if keep_zeros || !text.contains('.') {
            return text.to_owned();
        }
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    if power < -4 || power >= precision as i32 {
        let (mantissa, e) = scientific.split_once('e').unwrap_or((&scientific, "+00"));
        return format!("{}e{e}", trim(mantissa));
    }
    let decimals = (precision as i32 - 1 - power).max(0) as usize;
    trim(&format!("{value:.decimals$}"))
}

fn hexadecimal(value: f64, precision: Option<usize>) -> String {
    let bits = value.to_bits();
    if value == 0.0 {
        return "0x0p+0".to_owned();
    }
    let exponent = (bits >> 52 & 0x7ff) as i32;
    let fraction = format!("{:013x}", bits & ((1 << 52) - 1));
    let lead = u8::from(exponent != 0);
    let digits = match precision {
        Some(precision) => format!("{fraction:0<precision$}")[..precision].to_owned(),
        None => fraction.trim_end_matches('0').to_owned(),
    };
    let point = if digits.is_empty() { "" } else { "." };
    format!("0x{lead}{point}{digits}p{:+}", exponent.max(1) - 1023)
}

fn pad(out: &mut Vec<u8>, spec: &Spec, text: &[u8]) {
    let missing = spec.width.saturating_sub(text.len());
    if spec.left {
        out.extend_from_slice(text);
        out.extend(std::iter::repeat_n(b' ', missing));
    } else if spec.zero {
        // Zeros go between the sign or prefix and the digits.
        let prefix = text.iter().take_while(|b| b"+- ".contains(b)).count();
        let prefix = if text[prefix..].starts_with(b"0x") { prefix + 2 } else { prefix };
        out.extend_from_slice(&text[..prefix]);
        out.extend(std::iter::repeat_n(b'0', missing));
        out.extend_from_slice(&text[prefix..]);
    } else {
        out.extend(std::iter::repeat_n(b' ', missing));
        out.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats arguments that lie as a kernel lays them.
    fn print(text: &str, args: &[(u64, u64)]) -> String {
        let mut memory = Vec::new();
        for (size, value) in args {
            memory.resize(memory.len().next_multiple_of(*size as usize), 0);
            memory.extend_from_slice(&value.to_le_bytes()[..*size as usize]);
        }
        let printed = format(text.as_bytes(), |get, at| match get {
            Argument::Value(size) => {
                let mut word = [0; 8];
                let at = at as usize;
                word[..size as usize].copy_from_slice(&memory[at..at + size as usize]);
                Ok(ArgumentValue::Value(u64::from_le_bytes(word)))
            }
            Argument::Text => Ok(ArgumentValue::Text(b"text".to_vec())),
        })
        .unwrap();
        assert_eq!(printed.count as usize, args.len());
        String::from_utf8(printed.bytes).unwrap()
    }

    #[test]
    fn formats_are_those_of_c() {
        let f = |value: f64| (8, value.to_bits());
        assert_eq!(
            print("%d|%5d|%-5d|%05d|%+d", &[(4, !0), (4, 42), (4, 42), (4, 42), (4, 7)]),
            "-1|   42|42   |00042|+7"
        );
        assert_eq!(
            print(
                "%u %x %#X %o %c %lld",
                &[(4, 0xffff_ffff), (4, 255), (4, 255), (4, 8), (4, 65), (8, !0)]
            ),
            "4294967295 ff 0XFF 10 A -1"
        );
        assert_eq!(
            print("%f %.2f %8.3f %e", &[f(1.5), f(2.0 / 3.0), f(-1.0), f(12345.678)]),
            "1.500000 0.67   -1.000 1.234568e+04"
        );
        assert_eq!(
            print("%g %g %g %g", &[f(0.0001), f(1e-5), f(123_456.0), f(1_234_567.0)]),
            "0.0001 1e-05 123456 1.23457e+06"
        );
        assert_eq!(
            print("%f %5.1f %a", &[f(f64::NAN), f(f64::NEG_INFINITY), f(1.5)]),
            "nan  -inf 0x1.8p+0"
        );
        assert_eq!(
            print("%s|%6s|%.2s|%%|%p", &[(8, 1), (8, 1), (8, 1), (8, 0x1000)]),
            "text|  text|te|%|0x1000"
        );
        assert_eq!(print("%d %f %d", &[(4, 1), f(2.0), (4, 3)]), "1 2.000000 3");
        assert_eq!(print("%*d|%.*f", &[(4, 4), (4, 7), (4, 1), f(0.25)]), "   7|0.2");
        assert_eq!(print("100%", &[]), "100");
    }
}
