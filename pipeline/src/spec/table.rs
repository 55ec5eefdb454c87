//! Tables of TOML as plain structs, with a place for everything that is wrong.
//!
//! [`tables!`] declares a struct for each table: a key that it does not have is refused, one that
//! may be left out has a type with an absent value. serde's derive would do the same, but it is half
//! of what a crate that depends on nvabi waits for when it builds the first time, and it stops at
//! the first mistake of a file.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::diagnostic::nearest;

/// A value in a file.
pub(super) type Value<'i> = Spanned<DeValue<'i>>;

/// What is wrong in a file, and where.
#[derive(Debug)]
pub(super) struct Wrong {
    /// What is wrong.
    pub(super) message: String,
    /// Bytes of the file.
    pub(super) span: Range<usize>,
    /// What to do.
    pub(super) help: Option<String>,
}

/// What a value is read as.
pub(super) trait Read: Sized {
    /// The value, or what is wrong with it.
    fn read(value: &Value<'_>, wrong: &mut Vec<Wrong>) -> Option<Self>;

    /// What stands for a key that is left out, where it may be.
    fn absent() -> Option<Self> {
        None
    }
}

/// Reads a whole file.
pub(super) fn read_file<T: Read>(text: &str) -> Result<T, Vec<Wrong>> {
    let table = DeTable::parse(text).map_err(|error| {
        let message = error.message().lines().next().unwrap_or("not valid TOML").to_owned();
        vec![Wrong { message, span: error.span().unwrap_or(0..0), help: None }]
    })?;
    let span = table.span();
    let mut wrong = Vec::new();
    let value = Spanned::new(span, DeValue::Table(table.into_inner()));
    match T::read(&value, &mut wrong) {
        Some(read) if wrong.is_empty() => Ok(read),
        _ => Err(wrong),
    }
}

/// Complains of a value that is not what was expected.
pub(super) fn expected<T>(what: &str, value: &Value<'_>, wrong: &mut Vec<Wrong>) -> Option<T> {
    let message = format!("expected {what}, found {}", found(value.get_ref()));
    wrong.push(Wrong { message, span: value.span(), help: None });
    None
}

fn found(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

impl Read for String {
    fn read(value: &Value<'_>, wrong: &mut Vec<Wrong>) -> Option<Self> {
        match value.get_ref().as_str() {
            Some(text) => Some(text.to_owned()),
            None => expected("a string", value, wrong),
        }
    }
}

impl Read for bool {
    fn read(value: &Value<'_>, wrong: &mut Vec<Wrong>) -> Option<Self> {
        value.get_ref().as_bool().or_else(|| expected("a boolean", value, wrong))
    }

    fn absent() -> Option<Self> {
        Some(false)
    }
}

impl Read for u32 {
    fn read(value: &Value<'_>, wrong: &mut Vec<Wrong>) -> Option<Self> {
        let Some(integer) = value.get_ref().as_integer() else {
            return expected("an integer of 32 bits", value, wrong);
        };
        let number = Self::from_str_radix(integer.as_str(), integer.radix());
        number.ok().or_else(|| {
            let message = format!("`{integer}` is not an unsigned integer of 32 bits");
            wrong.push(Wrong { message, span: value.span(), help: None });
            None
        })
    }
}

impl<T: Read> Read for Option<T> {
    fn read(value: &Value<'_>, wrong: &mut Vec<Wrong>) -> Option<Self> {
        T::read(value, wrong).map(Some)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<T: Read> Read for Spanned<T> {
    fn read(value: &Value<'_>, wrong: &mut Vec<Wrong>) -> Option<Self> {
        T::read(value, wrong).map(|read| Self::new(value.span(), read))
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(value: &Value<'_>, wrong: &mut Vec<Wrong>) -> Option<Self> {
        let Some(values) = value.get_ref().as_array() else {
            return expected("an array", value, wrong);
        };
        let read: Self = values.iter().filter_map(|value| T::read(value, wrong)).collect();
        (read.len() == values.len()).then_some(read)
    }

    fn absent() -> Option<Self> {
        Some(Self::new())
    }
}

impl<K: Key, T: Read> Read for BTreeMap<K, T> {
    fn read(value: &Value<'_>, wrong: &mut Vec<Wrong>) -> Option<Self> {
        let table = as_table(value, wrong)?;
        let pairs = table.iter().filter_map(|(key, value)| {
            let value = T::read(value, wrong);
            Some((K::read_key(key, wrong)?, value?))
        });
        let read: Self = pairs.collect();
        (read.len() == table.len()).then_some(read)
    }

    fn absent() -> Option<Self> {
        Some(Self::new())
    }
}

/// What a key is read as, where any key may stand.
pub(super) trait Key: Ord + Sized {
    /// The key, or what is wrong with it.
    fn read_key(key: &Spanned<DeString<'_>>, wrong: &mut Vec<Wrong>) -> Option<Self>;
}

impl Key for String {
    fn read_key(key: &Spanned<DeString<'_>>, _: &mut Vec<Wrong>) -> Option<Self> {
        Some(key.get_ref().to_string())
    }
}

impl Key for Spanned<String> {
    fn read_key(key: &Spanned<DeString<'_>>, _: &mut Vec<Wrong>) -> Option<Self> {
        Some(Self::new(key.span(), key.get_ref().to_string()))
    }
}

/// One of a few words.
pub(super) trait Word: Copy + 'static {
    /// Every word and what it means.
    const WORDS: &'static [(&'static str, Self)];
}

impl<T: Word> Read for T {
    fn read(value: &Value<'_>, wrong: &mut Vec<Wrong>) -> Option<Self> {
        match value.get_ref().as_str() {
            Some(text) => word(text, value.span(), wrong),
            None => expected(&one_of(T::WORDS.iter().map(|(word, _)| *word)), value, wrong),
        }
    }
}

impl<T: Word + Ord> Key for T {
    fn read_key(key: &Spanned<DeString<'_>>, wrong: &mut Vec<Wrong>) -> Option<Self> {
        word(key.get_ref(), key.span(), wrong)
    }
}

fn word<T: Word>(text: &str, span: Range<usize>, wrong: &mut Vec<Wrong>) -> Option<T> {
    let meaning = T::WORDS.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
    if meaning.is_none() {
        let words = one_of(T::WORDS.iter().map(|(word, _)| *word));
        wrong.push(Wrong {
            message: format!("expected {words}, found `{text}`"),
            span,
            help: None,
        });
    }
    meaning
}

/// `a`, `b` or `c`, quoted.
fn one_of<'w>(words: impl Iterator<Item = &'w str>) -> String {
    let quoted: Vec<String> = words.map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

fn as_table<'t, 'i>(value: &'t Value<'i>, wrong: &mut Vec<Wrong>) -> Option<&'t DeTable<'i>> {
    value.get_ref().as_table().or_else(|| expected("a table", value, wrong))
}

/// The keys of a table that is read as a struct.
pub(super) struct Keys<'t, 'i> {
    table: &'t DeTable<'i>,
    span: Range<usize>,
    /// A missing key beside one that is not known is the same mistake: it is told once.
    all_known: bool,
}

impl<'t, 'i> Keys<'t, 'i> {
    /// A table with these keys alone.
    pub(super) fn of(value: &'t Value<'i>, known: &[&str], wrong: &mut Vec<Wrong>) -> Option<Self> {
        let table = as_table(value, wrong)?;
        let mut all_known = true;
        for (key, _) in table.iter().filter(|(key, _)| !known.contains(&key.get_ref().as_ref())) {
            all_known = false;
            let help = match nearest(key.get_ref(), known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the keys here are {}", one_of(known.iter().copied())),
            };
            let message = format!("unknown key `{}`", key.get_ref());
            wrong.push(Wrong { message, span: key.span(), help: Some(help) });
        }
        Some(Self { table, span: value.span(), all_known })
    }

    /// The value of a key.
    pub(super) fn value<T: Read>(&self, key: &str, wrong: &mut Vec<Wrong>) -> Option<T> {
        let value = match self.table.get(key) {
            Some(value) => return T::read(value, wrong),
            None => T::absent(),
        };
        if value.is_none() && self.all_known {
            let message = format!("missing key `{key}`");
            wrong.push(Wrong { message, span: self.span.clone(), help: None });
        }
        value
    }
}

/// Declares structs that tables are read as: a field for each key.
macro_rules! tables {
    ($(
        $(#[$doc:meta])*
        struct $name:ident {
            $($(#[$field_doc:meta])* $field:ident: $ty:ty,)*
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name {
            $($(#[$field_doc])* pub(super) $field: $ty,)*
        }

        impl $crate::spec::table::Read for $name {
            fn read(
                value: &$crate::spec::table::Value<'_>,
                wrong: &mut Vec<$crate::spec::table::Wrong>,
            ) -> Option<Self> {
                const KEYS: &[&str] = &[$(stringify!($field)),*];
                let keys = $crate::spec::table::Keys::of(value, KEYS, wrong)?;
                // Each is read before the first that is missing ends it: all are told.
                $(let $field = keys.value(stringify!($field), wrong);)*
                Some(Self { $($field: $field?,)* })
            }
        }
    )*};
}

pub(super) use tables;
