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
/// a string, a floating-point number, a brace, a semicolon.
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
            punct if b"()+-*/%<>&|^~!?:,=.#".contains(&punct) => {
                found.push(Token::Punct(punct));
                1
            }
            _ => return None,
        };
    }
    Some(found)
}

/// The lines of a text, those that go on joined, each with its number.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (u32, &str)> {
    let (mut rest, mut number) = (text, 1);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = directive(rest);
        let after = rest[end..].find('\n').map_or(rest.len(), |at| end + at + 1);
        let (line, at) = (&rest[..end], number);
        number += rest[..after].matches('\n').count() as u32;
        rest = &rest[after..];
        Some((at, line))
    })
}

/// A directive's name and what stands behind it.
pub(super) fn split_directive(line: &str) -> Option<(&str, &str)> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start();
    let (name, rest) = rest.split_at(identifier(rest));
    Some((name, rest.trim_start()))
}

/// The words of a text that may be identifiers, those in comments too.
pub(super) fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(move |c| !is_word(c));
    words.filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
}

/// The names in the `#define` lines of a header, each with what stands behind it.
pub(super) fn defines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let (line, _) = rest.split_once('\n').filter(|_| !rest.is_empty())?;
            let name = define(line);
            rest = &rest[name.unwrap_or(line.len() + 1)..];
            if name.is_some() {
                let (name, body) = rest.split_at(identifier(rest));
                let (body, after) = body.split_at(directive(body));
                rest = after;
                return Some((name, body));
            }
        }
    })
}

/// Where the name stands that a line defines.
pub(super) fn define(line: &str) -> Option<usize> {
    let (directive, rest) = split_directive(line)?;
    (directive == "define" && identifier(rest) > 0).then_some(line.len() - rest.len())
}

/// How long the identifier at the start of `text` is.
pub(super) fn identifier(text: &str) -> usize {
    length(text.as_bytes(), |b| b.is_ascii_alphanumeric() || b == b'_')
}

/// How far the directive goes that `text` is the rest of: to the end of the line, unless that is
/// escaped or in a comment.
pub(super) fn directive(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() && bytes[at] != b'\n' {
        at += match &bytes[at..] {
            [b'\\', b'\n', ..] => 2,
            [b'\\', b'\r', b'\n', ..] => 3,
            [b'/', b'*', ..] => comment(&bytes[at..]),
            [b'/', b'/', ..] => break,
            _ => 1,
        };
    }
    at.min(bytes.len())
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

/// Whether there is a colon that no `?` before it asks for.
pub(super) fn has_colon(tokens: &[Token<'_>]) -> bool {
    let count = |punct| tokens.iter().filter(|t| **t == Token::Punct(punct)).count();
    count(b':') > count(b'?')
}

/// Whether tokens are pasted together or made into text (`##`, `#`): names come about then that
/// stand nowhere.
pub(super) fn pastes(tokens: &[Token<'_>]) -> bool {
    tokens.contains(&Token::Punct(b'#'))
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
    fn finds_definitions() {
        let text =
            "#ifdef A\n # define  B(x) x\n#define C 1 \\\n + 2\n#define\n#define D\n#endif\nE\n";
        let found: Vec<_> = defines(text).collect();
        assert_eq!(found, [("B", "(x) x"), ("C", " 1 \\\n + 2"), ("D", "")]);
    }

    #[test]
    fn directives_end_with_their_line() {
        let cut = |text: &'static str| &text[..directive(text)];
        assert_eq!(cut(" 1\nint x;"), " 1");
        assert_eq!(cut(" (1 + \\\n 2)\nint"), " (1 + \\\n 2)");
        assert_eq!(cut(" 1 /* a\n b */ + 2\nint"), " 1 /* a\n b */ + 2");
        assert_eq!(cut(" 1 // a \nint"), " 1 ");
        assert_eq!(cut(" 1 /* never closed"), " 1 /* never closed");
        assert_eq!(&"A_1(x)"[..identifier("A_1(x)")], "A_1");
    }

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
    fn sees_pasting() {
        assert!(pastes(&tokens("(d ## r)").unwrap()) && pastes(&tokens("#x").unwrap()));
        assert!(!pastes(&tokens("(d | r)").unwrap()));
    }

    #[test]
    fn an_open_comment_ends_the_text() {
        assert_eq!(tokens("1 /* open").unwrap(), [Token::Literal("1")]);
        assert_eq!(tokens("1 /*").unwrap(), [Token::Literal("1")]);
    }
}
