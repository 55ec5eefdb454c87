//! What a value of a profile is, in a driver and for a caller.

use super::expr::{self, Expr};
use super::{Node, Piece, Value};

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Datum {
    Number(i128),
    Text(String),
    List(Vec<Datum>),
}

impl Datum {
    pub(crate) fn number(&self) -> Option<i128> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }
}

/// What names mean where an expression stands.
pub(crate) trait Scope {
    /// A value of the profile, of its state, or of the simulator.
    fn value(&self, name: &str, depth: usize) -> Result<Datum, String>;
    /// A field of the caller's.
    fn field(&self, path: &str) -> Result<i128, String>;
    /// A constant of the driver.
    fn constant(&self, name: &str) -> Result<i128, String>;
}

/// How many values may refer to each other.
pub(crate) const MAX_DEPTH: usize = 32;

/// Why what could not be read has no value.
pub(super) const UNREAD: &str = "it could not be read";

/// The value of a node; what has none says why.
pub(crate) fn evaluate(node: &Node, scope: &dyn Scope, depth: usize) -> Result<Datum, String> {
    match &node.value {
        Value::Number(number) => Ok(Datum::Number(*number)),
        Value::Expr(expr) => expression(expr, scope, depth),
        Value::Text(pieces) => {
            let mut text = String::new();
            for piece in pieces {
                match piece {
                    Piece::Plain(plain) => text.push_str(plain),
                    Piece::Expr(expr) => match expression(expr, scope, depth)? {
                        Datum::Number(number) => text.push_str(&number.to_string()),
                        Datum::Text(inner) => text.push_str(&inner),
                        Datum::List(_) => return Err("a list is no part of a text".to_owned()),
                    },
                }
            }
            Ok(Datum::Text(text))
        }
        Value::List(nodes) => {
            let all = nodes.iter().map(|node| evaluate(node, scope, depth));
            Ok(Datum::List(all.collect::<Result<_, _>>()?))
        }
        Value::Unread => Err(UNREAD.to_owned()),
    }
}

fn expression(expr: &Expr, scope: &dyn Scope, depth: usize) -> Result<Datum, String> {
    if depth > MAX_DEPTH {
        return Err("values refer to each other in a circle".to_owned());
    }
    let number = |expr: &Expr| {
        let value = expression(expr, scope, depth)?;
        value.number().ok_or_else(|| "an operand is no number".to_owned())
    };
    let numbers = |list: &Expr| match expression(list, scope, depth)? {
        Datum::List(items) => Ok(items.iter().filter_map(Datum::number).collect::<Vec<_>>()),
        _ => Err("`at_most` and `at_least` are of a list".to_owned()),
    };
    Ok(Datum::Number(match expr {
        Expr::Number(number) => *number,
        Expr::Value(name) => return scope.value(name, depth + 1),
        Expr::Field(path) => scope.field(path)?,
        Expr::Constant(name) => scope.constant(name)?,
        Expr::Count(inner) => match expression(inner, scope, depth)? {
            Datum::List(items) => items.len() as i128,
            Datum::Text(text) => text.len() as i128,
            Datum::Number(_) => return Err("`count` is of a list or a text".to_owned()),
        },
        Expr::ByBit(list, mask) => match expression(list, scope, depth)? {
            Datum::List(items) => match items.get(number(mask)?.trailing_zeros() as usize) {
                Some(item) => return Ok(item.clone()),
                None => 0,
            },
            _ => return Err("`by_bit` is of a list".to_owned()),
        },
        Expr::AtMost(list, limit) => {
            let (numbers, limit) = (numbers(list)?, number(limit)?);
            numbers.into_iter().filter(|number| *number <= limit).max().unwrap_or(0)
        }
        Expr::AtLeast(list, limit) => {
            let (numbers, limit) = (numbers(list)?, number(limit)?);
            numbers.into_iter().filter(|number| *number >= limit).min().unwrap_or(0)
        }
        Expr::Unary(operator, operand) => expr::unary(*operator, number(operand)?),
        Expr::Binary(operator, left, right) => {
            let (left, right) = (number(left)?, number(right)?);
            let value = expr::binary(*operator, left, right);
            value.ok_or_else(|| format!("{operator:?} of {left} and {right} has no value"))?
        }
        Expr::Choice(condition, value, other) => {
            return expression(if number(condition)? != 0 { value } else { other }, scope, depth);
        }
    }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Lists, and no other names.
    struct Lists(BTreeMap<&'static str, Datum>);

    impl Scope for Lists {
        fn value(&self, name: &str, _: usize) -> Result<Datum, String> {
            self.0.get(name).cloned().ok_or_else(|| format!("no {name}"))
        }

        fn field(&self, path: &str) -> Result<i128, String> {
            Err(format!("no {path}"))
        }

        fn constant(&self, name: &str) -> Result<i128, String> {
            Err(format!("no {name}"))
        }
    }

    #[test]
    fn elements_of_lists_are_taken() {
        let list =
            |numbers: &[i128]| Datum::List(numbers.iter().copied().map(Datum::Number).collect());
        let texts =
            Datum::List(vec![Datum::Text("GRAPHICS".to_owned()), Datum::Text("SW".to_owned())]);
        let scope = Lists(
            [
                ("clocks", list(&[9751, 0, 9501, 5001, 0, 810])),
                ("none", list(&[])),
                ("texts", texts),
                ("number", Datum::Number(7)),
            ]
            .into(),
        );
        let number = |number| Ok(Datum::Number(number));
        let text = |text: &str| Ok(Datum::Text(text.to_owned()));
        let why = |text: &str| Err(text.to_owned());
        for (given, expected) in [
            ("by_bit(clocks, 1)", number(9751)),
            ("by_bit(clocks, 0x24)", number(9501)),
            ("by_bit(clocks, 1 << 5)", number(810)),
            // The list ends before it, however far.
            ("by_bit(clocks, 1 << 6)", number(0)),
            ("by_bit(clocks, 1 << 63)", number(0)),
            ("by_bit(clocks, 0)", number(0)),
            ("by_bit(none, 1)", number(0)),
            ("by_bit(clocks, 4) / 3", number(3167)),
            ("by_bit(texts, 2)", text("SW")),
            ("by_bit(number, 1)", why("`by_bit` is of a list")),
            ("by_bit(clocks, texts)", why("an operand is no number")),
            ("by_bit(clocks, other)", why("no other")),
            ("at_most(clocks, 9751)", number(9751)),
            ("at_most(clocks, 9750)", number(9501)),
            ("at_most(clocks, 5100)", number(5001)),
            ("at_most(clocks, 809)", number(0)),
            ("at_most(none, 9751)", number(0)),
            ("at_least(clocks, 9751)", number(9751)),
            ("at_least(clocks, 5000)", number(5001)),
            ("at_least(clocks, 1)", number(810)),
            ("at_least(clocks, 9752)", number(0)),
            ("at_most(texts, 1)", number(0)),
            ("at_most(number, 9751)", why("`at_most` and `at_least` are of a list")),
            ("at_most(clocks, none)", why("an operand is no number")),
        ] {
            let value = Value::Expr(expr::parse(given).unwrap());
            let node = Node { place: super::super::Place::nowhere(), value };
            assert_eq!(evaluate(&node, &scope, 0), expected, "{given}");
        }
    }
}
