//! From values and answers to TOML, as `read` takes them.

use std::fmt;

use super::expr::{Binary, Expr, Unary};
use super::{Case, Datum, Filled, Filler, ListUse, Node, Piece, Value};

/// As a profile has it: operands that have operators themselves are in parentheses.
impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Value(name) | Self::Constant(name) => f.write_str(name),
            Self::Field(path) => write!(f, "@{path}"),
            Self::Count(inner) => write!(f, "count({inner})"),
            Self::ByBit(list, mask) => write!(f, "by_bit({list}, {mask})"),
            Self::AtMost(list, limit) => write!(f, "at_most({list}, {limit})"),
            Self::AtLeast(list, limit) => write!(f, "at_least({list}, {limit})"),
            Self::Unary(operator, inner) => write!(f, "{}{}", unary(*operator), Operand(inner)),
            Self::Binary(operator, left, right) => {
                write!(f, "{} {} {}", Operand(left), binary(*operator), Operand(right))
            }
            Self::Choice(condition, value, other) => {
                write!(f, "{} ? {} : {}", Operand(condition), Operand(value), Operand(other))
            }
        }
    }
}

struct Operand<'e>(&'e Expr);

impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Expr::Binary(..) | Expr::Choice(..) => write!(f, "({})", self.0),
            other => write!(f, "{other}"),
        }
    }
}

fn unary(operator: Unary) -> &'static str {
    match operator {
        Unary::Minus => "-",
        Unary::Not => "!",
        Unary::Invert => "~",
    }
}

fn binary(operator: Binary) -> &'static str {
    match operator {
        Binary::Or => "||",
        Binary::And => "&&",
        Binary::BitOr => "|",
        Binary::BitXor => "^",
        Binary::BitAnd => "&",
        Binary::Equal => "==",
        Binary::Unequal => "!=",
        Binary::Less => "<",
        Binary::LessEqual => "<=",
        Binary::Greater => ">",
        Binary::GreaterEqual => ">=",
        Binary::ShiftLeft => "<<",
        Binary::ShiftRight => ">>",
        Binary::Plus => "+",
        Binary::Minus => "-",
        Binary::Times => "*",
        Binary::Divide => "/",
        Binary::Remainder => "%",
    }
}

/// A text between quotation marks.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(letter)))
            }
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

/// A key: between quotation marks where it needs them.
pub(crate) fn key(text: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !text.is_empty() && text.bytes().all(is_bare) { text.to_owned() } else { quoted(text) }
}

/// Whether a text can be written: braces and `=` have a meaning of their own.
pub(crate) fn is_plain(text: &str) -> bool {
    !text.starts_with('=') && !text.contains(['{', '}'])
}

impl Node {
    /// As TOML.
    pub(crate) fn toml(&self) -> String {
        match &self.value {
            Value::Number(number) => number.to_string(),
            Value::Expr(expr) => quoted(&format!("={expr}")),
            Value::Text(pieces) => {
                let pieces = pieces.iter().map(|piece| match piece {
                    Piece::Plain(text) => text.clone(),
                    Piece::Expr(expr) => format!("{{{expr}}}"),
                });
                quoted(&pieces.collect::<String>())
            }
            Value::List(nodes) => {
                let items: Vec<String> = nodes.iter().map(Self::toml).collect();
                format!("[{}]", items.join(", "))
            }
            Value::Unread => self.place.text().to_owned(),
        }
    }
}

impl Datum {
    /// As TOML; a text must be plain.
    pub(crate) fn toml(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => quoted(text),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(Self::toml).collect();
                format!("[{}]", items.join(", "))
            }
        }
    }
}

impl ListUse {
    fn toml(&self) -> String {
        let mut words =
            vec![("from-list", self.list.as_str()), ("count-in", self.count_in.as_str())];
        words.extend((self.key_in != "index").then_some(("key-in", self.key_in.as_str())));
        words.extend((self.value_in != "data").then_some(("value-in", self.value_in.as_str())));
        words.extend(self.entry_of.as_deref().map(|entry| ("entry-of", entry)));
        let words: Vec<String> =
            words.iter().map(|(key, text)| format!("{key} = {}", quoted(text))).collect();
        format!("{{ {} }}", words.join(", "))
    }
}

impl Filled {
    /// Key and value.
    fn toml(&self) -> (String, String) {
        let mark = if self.is_optional { "?" } else { "" };
        let value = match &self.with {
            Filler::Value(node) => node.toml(),
            Filler::List(list) => list.toml(),
        };
        (key(&format!("{}{mark}", self.path)), value)
    }
}

impl Case {
    /// Keys and values.
    pub(crate) fn toml(&self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        lines.extend(self.only_if.as_ref().map(|node| ("only-if".to_owned(), node.toml())));
        lines.extend(self.fails_with.as_ref().map(|node| ("fails-with".to_owned(), node.toml())));
        lines.extend(self.of_gpu.as_ref().map(|(path, _)| ("of-gpu".to_owned(), quoted(path))));
        lines.extend(self.without_gpu.as_ref().map(|node| ("without-gpu".to_owned(), node.toml())));
        if !self.set_state.is_empty() {
            let states = self.set_state.iter().map(|(name, node)| {
                format!("{} = {}", key(name.trim_start_matches("state.")), node.toml())
            });
            lines.push((
                "set-state".to_owned(),
                format!("{{ {} }}", states.collect::<Vec<_>>().join(", ")),
            ));
        }
        lines.extend(self.fields.iter().map(Filled::toml));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::super::expr::parse;

    #[test]
    fn what_is_written_is_read() {
        for text in [
            "1 << memory.partitions",
            "-@+0x10:8 + (2 - (3 - 4)) * count(engines)",
            "!a.b && ~c == 0 || (d ? e : f ? NV_OK : g) != -1",
            "(a ? b : c) ? d : e",
            "24 * GiB",
        ] {
            let read = parse(text).unwrap();
            assert_eq!(parse(&read.to_string()).unwrap(), read, "{text}: {read}");
        }
    }
}
