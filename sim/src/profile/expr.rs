//! Expressions of a profile: numbers, values of the profile, fields of the caller, constants of the driver.
//!
//! `=memory.size >> 10`, `=state.power_limit`, `=@flags & 1`, `=NV2080_ENGINE_TYPE_GRAPHICS`. Operators and
//! their order are C's; a comparison is 1 or 0.

use std::fmt;

/// An expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr {
    /// A number.
    Number(i128),
    /// A value of the profile, of its state, or of the simulator: `memory.size`.
    Value(String),
    /// A field of the caller's parameters: `@flags`.
    Field(String),
    /// A constant of the driver: a name with a capital letter at its beginning.
    Constant(String),
    /// How many elements a list has, or letters a text: `count(engines)`.
    Count(Box<Expr>),
    /// The element of a list that the lowest bit of a mask stands for, or 0: `by_bit(states.memory, @states)`.
    ByBit(Box<Expr>, Box<Expr>),
    /// The greatest element of a list that is no greater than a number, or 0: `at_most(states.memory, 5100)`.
    AtMost(Box<Expr>, Box<Expr>),
    /// The least element that is no less than a number, or 0: `at_least(states.memory, 5000)`.
    AtLeast(Box<Expr>, Box<Expr>),
    /// An operator before its operand.
    Unary(Unary, Box<Expr>),
    /// An operator between its operands.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// `condition ? value : other`.
    Choice(Box<Expr>, Box<Expr>, Box<Expr>),
}

/// Operators with one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unary {
    /// `-`
    Minus,
    /// `!`
    Not,
    /// `~`
    Invert,
}

/// Operators with two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Binary {
    Or,
    And,
    BitOr,
    BitXor,
    BitAnd,
    Equal,
    Unequal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    ShiftLeft,
    ShiftRight,
    Plus,
    Minus,
    Times,
    Divide,
    Remainder,
}

/// Operators between operands, with how tightly they bind; longer ones before those that they begin with.
const BINARY: [(&str, u8, Binary); 18] = [
    ("||", 1, Binary::Or),
    ("&&", 2, Binary::And),
    ("==", 6, Binary::Equal),
    ("!=", 6, Binary::Unequal),
    ("<<", 8, Binary::ShiftLeft),
    (">>", 8, Binary::ShiftRight),
    ("<=", 7, Binary::LessEqual),
    (">=", 7, Binary::GreaterEqual),
    ("|", 3, Binary::BitOr),
    ("^", 4, Binary::BitXor),
    ("&", 5, Binary::BitAnd),
    ("<", 7, Binary::Less),
    (">", 7, Binary::Greater),
    ("+", 9, Binary::Plus),
    ("-", 9, Binary::Minus),
    ("*", 10, Binary::Times),
    ("/", 10, Binary::Divide),
    ("%", 10, Binary::Remainder),
];

/// Words for numbers of bytes.
const UNITS: [(&str, i128); 4] =
    [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// A function of a list and a number.
type OfList = fn(Box<Expr>, Box<Expr>) -> Expr;

/// How deep parentheses and operators may be nested.
const MAX_DEPTH: usize = 32;

/// Why a text is no expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Bytes before the place in the text.
    pub at: usize,
    /// What is wrong there.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Reads an expression.
///
/// # Errors
///
/// When the text is none: what was expected, and where.
pub fn parse(text: &str) -> Result<Expr, Error> {
    let mut reader = Reader { text, at: 0, depth: 0 };
    let expr = reader.choice()?;
    reader.skip_space();
    match reader.rest() {
        "" => Ok(expr),
        _ => Err(reader.expected("an operator or the end")),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn expected(&self, what: &str) -> Error {
        let found: String = self.rest().chars().take(12).collect();
        let found = if found.is_empty() { "the end".to_owned() } else { format!("`{found}`") };
        Error { at: self.at, message: format!("expected {what}, found {found}") }
    }

    fn takes(&mut self, token: &str) -> bool {
        self.skip_space();
        let is_there = self.rest().starts_with(token);
        if is_there {
            self.at += token.len();
        }
        is_there
    }

    fn need(&mut self, token: &str) -> Result<(), Error> {
        match self.takes(token) {
            true => Ok(()),
            false => Err(self.expected(&format!("`{token}`"))),
        }
    }

    fn choice(&mut self) -> Result<Expr, Error> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let message = format!("expression is nested more than {MAX_DEPTH} deep");
            return Err(Error { at: self.at, message });
        }
        let condition = self.binary(0)?;
        let expr = if self.takes("?") {
            let value = self.choice()?;
            self.need(":")?;
            Expr::Choice(Box::new(condition), Box::new(value), Box::new(self.choice()?))
        } else {
            condition
        };
        self.depth -= 1;
        Ok(expr)
    }

    fn binary(&mut self, least: u8) -> Result<Expr, Error> {
        let mut left = self.unary()?;
        loop {
            self.skip_space();
            let rest = self.rest();
            let found = BINARY.iter().find(|(token, ..)| rest.starts_with(token));
            let Some((token, rank, operator)) = found.filter(|(_, rank, _)| *rank > least) else {
                return Ok(left);
            };
            self.at += token.len();
            let right = self.binary(*rank)?;
            left = Expr::Binary(*operator, Box::new(left), Box::new(right));
        }
    }

    fn unary(&mut self) -> Result<Expr, Error> {
        for (token, operator) in [("-", Unary::Minus), ("!", Unary::Not), ("~", Unary::Invert)] {
            if self.takes(token) {
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(self.expected("an operand that is not nested so deep"));
                }
                let operand = self.unary()?;
                self.depth -= 1;
                return Ok(Expr::Unary(operator, Box::new(operand)));
            }
        }
        self.operand()
    }

    fn operand(&mut self) -> Result<Expr, Error> {
        if self.takes("(") {
            let inner = self.choice()?;
            self.need(")")?;
            return Ok(inner);
        }
        if self.takes("@") {
            let name = self.field()?;
            return Ok(Expr::Field(name));
        }
        let at = self.at;
        let word = self.word("a number or a name")?;
        if word.starts_with(|first: char| first.is_ascii_digit()) {
            let number = number(&word);
            return number.map(Expr::Number).ok_or_else(|| {
                let message = format!("`{word}` is no number");
                Error { at, message }
            });
        }
        if let Some((_, bytes)) = UNITS.iter().find(|(unit, _)| *unit == word) {
            return Ok(Expr::Number(*bytes));
        }
        if word == "count" && self.takes("(") {
            let list = self.choice()?;
            self.need(")")?;
            return Ok(Expr::Count(Box::new(list)));
        }
        for (name, make) in [
            ("by_bit", Expr::ByBit as OfList),
            ("at_most", Expr::AtMost),
            ("at_least", Expr::AtLeast),
        ] {
            if word == name && self.takes("(") {
                let list = self.choice()?;
                self.need(",")?;
                let number = self.choice()?;
                self.need(")")?;
                return Ok(make(Box::new(list), Box::new(number)));
            }
        }
        Ok(match word.starts_with(|first: char| first.is_ascii_uppercase()) {
            true => Expr::Constant(word),
            false => Expr::Value(word),
        })
    }

    /// The name of a field, or an offset as fields without a name have: `+0x10:8`.
    fn field(&mut self) -> Result<String, Error> {
        if !self.takes("+") {
            return self.word("the name of a field");
        }
        let offset = self.word("an offset")?;
        let size = if self.takes(":") {
            format!(":{}", self.word("a number of bytes")?)
        } else {
            String::new()
        };
        Ok(format!("+{offset}{size}"))
    }

    fn word(&mut self, what: &str) -> Result<String, Error> {
        self.skip_space();
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_.[]".contains(letter);
        let rest = self.rest();
        let length = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        let word = rest[..length].to_owned();
        if word.is_empty() {
            return Err(self.expected(what));
        }
        self.at += length;
        Ok(word)
    }
}

/// A number as C and TOML write it.
fn number(word: &str) -> Option<i128> {
    let word = word.replace('_', "");
    match word.strip_prefix("0x") {
        Some(digits) => i128::from(u64::from_str_radix(digits, 16).ok()?).into(),
        None => i128::from(word.parse::<u64>().ok()?).into(),
    }
}

/// What an operator makes of numbers; `None` where it has no value.
pub(crate) fn unary(operator: Unary, value: i128) -> i128 {
    match operator {
        Unary::Minus => value.wrapping_neg(),
        Unary::Not => i128::from(value == 0),
        Unary::Invert => !value & i128::from(u64::MAX),
    }
}

/// The same, of two; `None` for a division by zero, a shift too far and what has too many digits.
pub(crate) fn binary(operator: Binary, left: i128, right: i128) -> Option<i128> {
    let shift = || u32::try_from(right).ok().filter(|shift| *shift < 64);
    Some(match operator {
        Binary::Or => i128::from(left != 0 || right != 0),
        Binary::And => i128::from(left != 0 && right != 0),
        Binary::BitOr => left | right,
        Binary::BitXor => left ^ right,
        Binary::BitAnd => left & right,
        Binary::Equal => i128::from(left == right),
        Binary::Unequal => i128::from(left != right),
        Binary::Less => i128::from(left < right),
        Binary::LessEqual => i128::from(left <= right),
        Binary::Greater => i128::from(left > right),
        Binary::GreaterEqual => i128::from(left >= right),
        Binary::ShiftLeft => left.checked_mul(1 << shift()?)?,
        Binary::ShiftRight => left >> shift()?,
        Binary::Plus => left.checked_add(right)?,
        Binary::Minus => left.checked_sub(right)?,
        Binary::Times => left.checked_mul(right)?,
        Binary::Divide => left.checked_div(right)?,
        Binary::Remainder => left.checked_rem(right)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Option<i128> {
        eval(&parse(text).ok()?)
    }

    /// Of expressions without names.
    fn eval(expr: &Expr) -> Option<i128> {
        Some(match expr {
            Expr::Number(number) => *number,
            Expr::Unary(operator, it) => unary(*operator, eval(it)?),
            Expr::Binary(operator, a, b) => binary(*operator, eval(a)?, eval(b)?)?,
            Expr::Choice(condition, a, b) if eval(condition)? != 0 => eval(a).or(eval(b))?,
            Expr::Choice(_, _, b) => eval(b)?,
            _ => return None,
        })
    }

    #[test]
    fn operators_bind_as_in_c() {
        for (text, expected) in [
            ("1 + 2 * 3", 7),
            ("(1 + 2) * 3", 9),
            ("10 - 3 - 2", 5),
            ("24 * GiB >> 10", 24 << 20),
            ("1 | 2 == 2", 1),
            ("0x10 | 1 << 2", 20),
            ("!0 && 1 < 2", 1),
            ("-1 + 1", 0),
            ("1 ? 5 : 6", 5),
            ("0 ? 5 : 0 ? 6 : 7", 7),
            ("~0 & 0xff", 255),
        ] {
            assert_eq!(value(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn names_are_sorted_by_their_first_letter() {
        assert_eq!(parse("memory.size"), Ok(Expr::Value("memory.size".to_owned())));
        assert_eq!(parse("NV_OK"), Ok(Expr::Constant("NV_OK".to_owned())));
        assert_eq!(parse("@list[2].index"), Ok(Expr::Field("list[2].index".to_owned())));
        assert_eq!(parse("@+0x10:8"), Ok(Expr::Field("+0x10:8".to_owned())));
        let count = Expr::Count(Box::new(Expr::Value("engines".to_owned())));
        assert_eq!(parse("count(engines)"), Ok(count));
        let list = Box::new(Expr::Value("states".to_owned()));
        let by_bit = Expr::ByBit(list, Box::new(Expr::Field("mask".to_owned())));
        assert_eq!(parse("by_bit(states, @mask)"), Ok(by_bit));
        let list = Box::new(Expr::Value("states".to_owned()));
        let at_most = Expr::AtMost(list, Box::new(Expr::Field("limit".to_owned())));
        assert_eq!(parse("at_most(states, @limit)"), Ok(at_most));
    }

    #[test]
    fn what_is_no_expression_is_told_where() {
        for (text, at, message) in [
            ("", 0, "expected a number or a name, found the end"),
            ("1 +", 3, "expected a number or a name, found the end"),
            ("(1", 2, "expected `)`, found the end"),
            ("1 2", 2, "expected an operator or the end, found `2`"),
            ("0xzz", 0, "`0xzz` is no number"),
            ("1 ? 2", 5, "expected `:`, found the end"),
            ("by_bit(a)", 8, "expected `,`, found `)`"),
        ] {
            assert_eq!(parse(text), Err(Error { at, message: message.to_owned() }), "{text}");
        }
        assert!(parse(&"(".repeat(10_000)).is_err());
        assert!(parse(&"-".repeat(10_000)).is_err());
    }

    #[test]
    fn what_has_no_value_has_none() {
        for text in ["1 / 0", "1 % 0", "1 << 64", "1 << -1"] {
            assert_eq!(value(text), None, "{text}");
        }
    }
}
