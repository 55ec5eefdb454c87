//! Words, numbers, strings and punctuation of PTX, with their lines.

use crate::error::{LoadError, load_error};

/// One token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Token<'a> {
    /// An identifier, opcode, directive or register, with its dots.
    Word(&'a str),
    /// An integer, or the bits of a floating-point number.
    Number(u64),
    Text(&'a str),
    Mark(u8),
}

/// The tokens of a text, each with its line.
pub(super) fn tokens(text: &str) -> Result<Vec<(Token<'_>, u32)>, LoadError> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(text.len() / 4);
    let (mut at, mut line) = (0, 1);
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        match byte {
            b'\n' => {
                line += 1;
                at += 1;
            }
            b' ' | b'\t' | b'\r' | 0 => at += 1,
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += bytes[at..].iter().position(|&b| b == b'\n').unwrap_or(bytes.len() - at);
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let end = text[at + 2..]
                    .find("*/")
                    .ok_or_else(|| load_error(line, "this comment does not end"))?;
                line += text[at..at + 2 + end].matches('\n').count() as u32;
                at += end + 4;
            }
            b'"' => {
                let end = bytes[at + 1..]
                    .iter()
                    .position(|&b| b == b'"' || b == b'\n')
                    .filter(|end| bytes[at + 1 + end] == b'"')
                    .ok_or_else(|| load_error(line, "this string does not end"))?;
                out.push((Token::Text(&text[at + 1..at + 1 + end]), line));
                at += end + 2;
            }
            b'0'..=b'9' => {
                while bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'.') {
                    at += 1;
                }
                let word = &text[start..at];
                let value = number(word)
                    .ok_or_else(|| load_error(line, format!("`{word}` is no number")))?;
                out.push((Token::Number(value), line));
            }
            b'.' | b'%' | b'_' | b'$' | b'a'..=b'z' | b'A'..=b'Z' => {
                at += 1;
                while at < bytes.len() {
                    if bytes[at..].starts_with(b"::") && bytes.get(at + 2) != Some(&b' ') {
                        at += 2;
                    } else if bytes[at].is_ascii_alphanumeric() || b"._$%".contains(&bytes[at]) {
                        at += 1;
                    } else {
                        break;
                    }
                }
                let (space, rest) = split_space(&text[start..at]);
                out.push((Token::Word(space), line));
                out.extend(rest.map(|rest| (Token::Word(rest), line)));
            }
            b if b.is_ascii_punctuation() => {
                out.push((Token::Mark(byte), line));
                at += 1;
            }
            _ => return Err(load_error(line, format!("byte {byte:#04x} has no place in PTX"))),
        }
    }
    Ok(out)
}

/// `.reg.b32`, as CUDA's headers have it, is `.reg .b32`.
fn split_space(word: &str) -> (&str, Option<&str>) {
    let spaces = [".reg", ".param", ".local", ".shared", ".global", ".const"];
    let begins = |space: &&str| word.strip_prefix(*space).is_some_and(|rest| rest.starts_with('.'));
    match spaces.into_iter().find(begins) {
        Some(space) => (&word[..space.len()], Some(&word[space.len()..])),
        None => (word, None),
    }
}

/// The value of a number: integers, `0f` and `0d` bits, and decimal fractions as doubles.
fn number(word: &str) -> Option<u64> {
    let lower = word.to_ascii_lowercase();
    if let Some(bits) = lower.strip_prefix("0f").or_else(|| lower.strip_prefix("0d")) {
        return u64::from_str_radix(bits, 16).ok();
    }
    let digits = lower.trim_end_matches('u');
    if let Some(hex) = digits.strip_prefix("0x") {
        u64::from_str_radix(hex, 16).ok()
    } else if let Some(binary) = digits.strip_prefix("0b") {
        u64::from_str_radix(binary, 2).ok()
    } else if digits.contains('.') {
        digits.parse::<f64>().ok().map(f64::to_bits)
    } else if digits.len() > 1 && digits.starts_with('0') {
        u64::from_str_radix(digits, 8).ok()
    } else {
        digits.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_every_base() {
        assert_eq!(number("42"), Some(42));
        assert_eq!(number("0x2AU"), Some(42));
        assert_eq!(number("052"), Some(42));
        assert_eq!(number("0b101010"), Some(42));
        assert_eq!(number("0f3F800000"), Some(u64::from(1f32.to_bits())));
        assert_eq!(number("0d3FF0000000000000"), Some(1f64.to_bits()));
        assert_eq!(number("0x"), None);
        assert_eq!(number("99999999999999999999"), None);
    }

    #[test]
    fn a_space_is_a_word_of_its_own() {
        let words =
            |text| tokens(text).unwrap().into_iter().map(|(token, _)| token).collect::<Vec<_>>();
        assert_eq!(words(".reg.b32 f;"), words(".reg .b32 f;"));
        assert_eq!(words("ld.global.b32").len(), 1);
        assert_eq!(words(".regular").len(), 1);
    }

    #[test]
    fn lines_are_counted_through_comments() {
        let tokens = tokens("a /* x\ny */ b // c\nd").unwrap();
        assert_eq!(tokens, [(Token::Word("a"), 1), (Token::Word("b"), 2), (Token::Word("d"), 3)]);
    }

    #[test]
    fn what_does_not_end_is_named_with_its_line() {
        assert_eq!(tokens("\n/* x").unwrap_err().line, 2);
        assert_eq!(tokens("\n\n\"x\n\"").unwrap_err().line, 3);
    }
}
