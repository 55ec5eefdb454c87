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
