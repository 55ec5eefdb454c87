//! Counts and lists as people write them.

use std::fmt;

/// How many names of a list are told before the rest is counted.
pub(crate) const TOLD: usize = 4;

/// `1 version`, `2 versions`.
pub(crate) fn counted(count: impl fmt::Display, noun: &str) -> String {
    let count = count.to_string();
    let plural = if count == "1" { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// The first few, and how many more there are.
pub(crate) fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let count = names.len();
    let told: Vec<String> = names.take(TOLD).collect();
    match count.saturating_sub(TOLD) {
        0 => told.join(", "),
        more => format!("{}, and {more} more", told.join(", ")),
    }
}
