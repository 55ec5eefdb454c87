//! Splits macro bodies into tokens, just well enough to tell which can be integer constants.
//!
//! It decides what to ask clang; the value always comes from clang.

/// A preprocessing token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Token<'t> {
    Ident(&'t str),
    /// A number or a character constant.
    Literal(&'t str),
    Punct(u8),
}

/// The tokens of `text`, or `None` when it holds one that no integer constant expression has:
/// a string, a floating-point number, a brace, a semicolon, an assignment's `#`.
pub(super) fn tokens(text: &str) -> Option<Vec<Token<'_>>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        at += match rest[0] {
            b' ' | b'\t' | b'\r' | b'\n' | b'\\' => 1,
            b'/' if rest.starts_with(b"//") => length(rest, |b| b != b'\n'),
            b'/' if rest.starts_with(b"/*") => comment(rest),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let length = length(rest, |b| b.is_ascii_alphanumeric() || b == b'_');
                found.push(Token::Ident(&text[at..at + length]));
                length
            }
            b'0'..=b'9' => {
                let length = length(rest, |b| b.is_ascii_alphanumeric() || b == b'.' || b == b'\'');
                let number = &text[at..at + length];
                if is_float(number) {
                    return None;
                }
                found.push(Token::Literal(number));
                length
            }
            b'\'' => {
                let length = character(rest)?;
                found.push(Token::Literal(&text[at..at + length]));
                length
            }
            punct if b"()+-*/%<>&|^~!?:,=.".contains(&punct) => {
                found.push(Token::Punct(punct));
                1
            }
            _ => return None,
        };
    }
    Some(found)
}

fn length(rest: &[u8], wanted: impl Fn(u8) -> bool) -> usize {
    rest.iter().position(|b| !wanted(*b)).unwrap_or(rest.len())
}

fn comment(rest: &[u8]) -> usize {
    rest.windows(2).skip(2).position(|w| w == b"*/").map_or(rest.len(), |end| end + 4)
}

fn character(rest: &[u8]) -> Option<usize> {
    let escaped = usize::from(rest.get(1) == Some(&b'\\'));
    let end = rest.iter().skip(2 + escaped).position(|b| *b == b'\'')? + 2 + escaped;
    rest[..end].is_ascii().then_some(end + 1)
}

fn is_float(number: &str) -> bool {
    let hex = number.starts_with("0x") || number.starts_with("0X");
    number.contains('.') || (!hex && number.contains(['e', 'E']))
}

/// Where the body of a function-like macro starts, and its parameters.
pub(super) fn split_parameters<'t, 's>(
    tokens: &'s [Token<'t>],
) -> Option<(Vec<&'t str>, &'s [Token<'t>])> {
    let close = tokens.iter().position(|t| *t == Token::Punct(b')'))?;
    let parameters = tokens[..close]
        .iter()
        .filter_map(|t| match t {
            Token::Ident(name) => Some(*name),
            _ => None,
        })
        .collect();
    Some((parameters, &tokens[close + 1..]))
}

/// Whether parentheses match.
pub(super) fn balanced(tokens: &[Token<'_>]) -> bool {
    let mut depth = 0i32;
    for token in tokens {
        match token {
            Token::Punct(b'(') => depth += 1,
            Token::Punct(b')') => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return false;
        }
    }
    depth == 0
}

/// Whether the tokens are `high:low`: one colon outside of parentheses that no `?` opens.
pub(super) fn is_range(tokens: &[Token<'_>]) -> bool {
    let (mut depth, mut colons, mut questions) = (0, 0, 0);
    for token in tokens {
        match token {
            Token::Punct(b'(') => depth += 1,
            Token::Punct(b')') => depth -= 1,
            Token::Punct(b'?') if depth == 0 => questions += 1,
            Token::Punct(b':') if depth == 0 => colons += 1,
            _ => {}
        }
    }
    colons == 1 && questions == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_comments_and_continuations() {
        let got = tokens("(0x10 /* sixteen */ \\\n | FOO) // rest").unwrap();
        let text: Vec<_> = got
            .iter()
            .map(|t| match t {
                Token::Ident(s) | Token::Literal(s) => (*s).to_owned(),
                Token::Punct(b) => (*b as char).to_string(),
            })
            .collect();
        assert_eq!(text, ["(", "0x10", "|", "FOO", ")"]);
    }

    #[test]
    fn refuses_what_is_no_integer() {
        for text in ["\"text\"", "{ 1 }", "1.5", "1e5", "a; b", "'"] {
            assert_eq!(tokens(text), None, "{text}");
        }
        assert!(tokens("0xE").is_some() && tokens("'\\n'").is_some());
    }

    #[test]
    fn tells_ranges_from_choices() {
        let range = |text| is_range(&tokens(text).unwrap());
        assert!(range("31:0") && range("(X+7):(X)"));
        assert!(!range("a ? 1 : 2") && !range("(31:0)") && !range("5"));
    }

    #[test]
    fn an_open_comment_ends_the_text() {
        assert_eq!(tokens("1 /* open").unwrap(), [Token::Literal("1")]);
        assert_eq!(tokens("1 /*").unwrap(), [Token::Literal("1")]);
    }
}
