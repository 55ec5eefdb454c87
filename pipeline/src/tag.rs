//! Driver versions: `550.54.14` is a *tag*, its first component the *branch*.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A released driver version, as its publisher writes it.
///
/// Order is numeric by component, so `550.100` follows `550.90.12`. Two-part tags exist and are
/// not the same as the three-part tag with a zero: `550.100` is not `550.100.00`.
/// A word may stand before the numbers (`tegra-r36.4`); tags with different words sort by word.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tag(Arc<str>);

impl Tag {
    /// The text, as published.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first component, such as `550`.
    pub fn branch(&self) -> &str {
        self.0.split('.').next().unwrap_or(&self.0)
    }

    /// What the drivers of one kind have in common before their numbers: `tegra` for
    /// `tegra-r36.4`, nothing for `550.54.14`. Tags of two families have no order in time.
    pub fn family(&self) -> &str {
        family(&self.0)
    }

    /// As part of a Rust identifier, beside those of the same family: `550_54_14`, `36_4`.
    pub fn ident(&self) -> String {
        ident(&self.0)
    }

    /// Whether another spelling means this release: the same numbers, but for zeros before or behind them.
    pub fn is_release_of(&self, spelled: &Self) -> bool {
        let numbers = |tag: &Self| {
            let mut numbers: Vec<u64> = tag.numbers().map(|(number, _)| number).collect();
            numbers
                .truncate(numbers.iter().rposition(|number| *number != 0).map_or(0, |at| at + 1));
            numbers
        };
        self.family() == spelled.family() && numbers(self) == numbers(spelled)
    }

    fn word(&self) -> &str {
        self.0.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
    }

    fn numbers(&self) -> impl Iterator<Item = (u64, &str)> {
        self.0[self.word().len()..].split('.').map(|part| (part.parse().unwrap_or(u64::MAX), part))
    }
}

/// The family that a tag or a driver is of, see [`Tag::family`].
pub fn family(name: &str) -> &str {
    name.split_once('-').map_or("", |(family, _)| family)
}

/// The numbers of a tag or a driver as part of a Rust identifier.
pub(crate) fn ident(name: &str) -> String {
    name.trim_start_matches(|c: char| !c.is_ascii_digit()).replace('.', "_")
}

impl FromStr for Tag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let tag = Self(text.into());
        let no_version = || format!("`{text}` is not a driver version such as 550.54.14");
        let numeric = tag.numbers().all(|(_, p)| !p.is_empty() && p.len() <= 9);
        let word_ok = tag.word().bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
        // L4T's own way to write a release of Jetson, which is of no family here.
        if numeric && tag.word() == "r" {
            return Err(format!("{}; did you mean tegra-{text}?", no_version()));
        }
        if numeric && word_ok && text.contains('.') && text.len() <= 64 {
            Ok(tag)
        } else {
            Err(match meant(text) {
                Some(meant) => format!("{}; did you mean {meant}?", no_version()),
                None => no_version(),
            })
        }
    }
}

/// The version in a text that is more than one, such as a package's `550.90.07-0ubuntu1`.
fn meant(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let version = &text[..end];
    let behind = text[end..].starts_with(['-', '~', '+', ':']);
    (behind && version.parse::<Tag>().is_ok()).then_some(version)
}

impl Ord for Tag {
    fn cmp(&self, other: &Self) -> Ordering {
        // The text decides last, so that 550.07 and 550.7 differ and order stays total.
        (self.word().cmp(other.word()))
            .then_with(|| self.numbers().map(|n| n.0).cmp(other.numbers().map(|n| n.0)))
            .then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for Tag {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(text: &str) -> Tag {
        text.parse().unwrap()
    }

    #[test]
    fn orders_by_number() {
        let mut tags =
            ["550.100", "550.54.14", "550.40.07", "550.107.02", "535.288.01", "550.90.12"].map(tag);
        tags.sort();
        let texts: Vec<_> = tags.iter().map(Tag::as_str).collect();
        let wanted = ["535.288.01", "550.40.07", "550.54.14", "550.90.12", "550.100", "550.107.02"];
        assert_eq!(texts, wanted);
    }

    #[test]
    fn two_parts_are_not_three() {
        assert_ne!(tag("550.100"), tag("550.100.00"));
        assert!(tag("550.100") < tag("550.100.00"));
    }

    #[test]
    fn refuses_what_is_no_version() {
        for text in ["", "550", "550.", "550..1", "V550.1", "550.1; rm", "550.1/..", "../550.1"] {
            assert!(text.parse::<Tag>().is_err(), "{text}");
        }
    }

    #[test]
    fn other_spellings_of_a_release() {
        assert!(tag("tegra-r35.1").is_release_of(&tag("tegra-r35.1.0")));
        assert!(tag("tegra-r35.1").is_release_of(&tag("tegra-35.01")));
        assert!(tag("550.90.07").is_release_of(&tag("550.90.7")));
        assert!(!tag("550.90.07").is_release_of(&tag("tegra-r550.90.7")));
        assert!(!tag("550.90.07").is_release_of(&tag("550.9.7")));
        let complaint = "550.90.07-0ubuntu1".parse::<Tag>().unwrap_err();
        assert!(complaint.ends_with("did you mean 550.90.07?"), "{complaint}");
        let complaint = "r35.4.1".parse::<Tag>().unwrap_err();
        assert!(complaint.ends_with("did you mean tegra-r35.4.1?"), "{complaint}");
    }

    #[test]
    fn a_word_may_lead() {
        assert_eq!(tag("tegra-r36.4").branch(), "tegra-r36");
        assert_eq!(tag("tegra-r36.4").family(), "tegra");
        assert_eq!(tag("tegra-r36.4").ident(), "36_4");
        assert_eq!(tag("550.54.14").family(), "");
        assert!(tag("tegra-r35.4.1") < tag("tegra-r36.4"));
    }
}
