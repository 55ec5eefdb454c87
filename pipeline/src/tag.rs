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

    /// The version of a text that may be a package's, `1:550.90.07-0ubuntu1`.
    ///
    /// # Errors
    ///
    /// What is neither.
    pub fn of_package(text: &str) -> Result<Self, String> {
        text.parse().or_else(|complaint| meant(text).ok_or(complaint))
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
        version(text).ok_or_else(|| {
            let no_version = format!("`{text}` is not a driver version such as 550.54.14");
            match meant(text) {
                Some(meant) => format!("{no_version}; did you mean {meant}?"),
                None => no_version,
            }
        })
    }
}

fn version(text: &str) -> Option<Tag> {
    let tag = Tag(text.into());
    let numeric = tag.numbers().all(|(_, p)| !p.is_empty() && p.len() <= 9);
    let word = tag.word();
    // L4T's and its people's ways to write a release of Jetson are of no family here, and git's `v` is of no driver.
    let is_other_way = ["v", "r", "tegra-", "jetson-", "jetson-r"].contains(&word);
    let word_ok = !is_other_way && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
    (numeric && word_ok && text.contains('.') && text.len() <= 64).then_some(tag)
}

/// The version that another spelling stands for: a package's (`1:550.90.07-0ubuntu1`) or a git tag's (`v550.90.07`), or
/// a release of Jetson as L4T, its repositories and its people write it (`R36.4.3`, `l4t-r36.4.3`, `jetson_36.4.3`).
fn meant(text: &str) -> Option<Tag> {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let of_package = || {
        let upstream = match text.split_once(':') {
            Some((epoch, rest)) if epoch.bytes().all(|b| b.is_ascii_digit()) => rest,
            _ => text,
        };
        let upstream = upstream.strip_prefix('v').unwrap_or(upstream);
        let end = upstream.find(|c: char| !is_number(c)).unwrap_or(upstream.len());
        let (number, behind) = upstream.split_at(end);
        let is_package = behind.is_empty() || behind.starts_with(['-', '~', '+']);
        (is_package && number != text).then(|| version(number)).flatten()
    };
    let of_jetson = || {
        let lower = text.to_ascii_lowercase();
        let starts = ["l4t", "jetson", "tegra", ""].iter();
        let rest = starts.filter_map(|start| lower.strip_prefix(start)).next()?;
        let rest = rest.trim_start_matches(['-', '_']);
        let numbers = rest.strip_prefix('r').unwrap_or(rest);
        let is_told = numbers.len() < lower.len() && numbers.chars().all(is_number);
        is_told.then(|| version(&format!("tegra-r{numbers}"))).flatten()
    };
    of_package().or_else(of_jetson)
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
        assert!(tag("tegra-r35.1").is_release_of(&tag("tegra-r35.01")));
        assert!(tag("550.90.07").is_release_of(&tag("550.90.7")));
        assert!(!tag("550.90.07").is_release_of(&tag("tegra-r550.90.7")));
        assert!(!tag("550.90.07").is_release_of(&tag("550.9.7")));
        for (spelled, meant) in [
            ("550.90.07-0ubuntu1", "550.90.07"),
            ("1:580.142-1", "580.142"),
            ("1:580.142", "580.142"),
            ("v550.163.01", "550.163.01"),
            ("r35.4.1", "tegra-r35.4.1"),
            ("R36.4.3", "tegra-r36.4.3"),
            ("l4t-r36.4.3", "tegra-r36.4.3"),
            ("l4t-36.4", "tegra-r36.4"),
            ("jetson_36.4.3", "tegra-r36.4.3"),
            ("jetson-r36.4.3", "tegra-r36.4.3"),
            ("tegra-35.4.1", "tegra-r35.4.1"),
        ] {
            let complaint = spelled.parse::<Tag>().unwrap_err();
            assert!(complaint.ends_with(&format!("did you mean {meant}?")), "{complaint}");
            assert_eq!(Tag::of_package(spelled), Ok(tag(meant)));
        }
        for nonsense in ["550.90.07x", "a:550.90", "jetson", "r", "l4t-r", ":", "1:", "rR36.4"] {
            let complaint = nonsense.parse::<Tag>().unwrap_err();
            assert!(!complaint.contains("did you mean"), "{complaint}");
            assert_eq!(Tag::of_package(nonsense), Err(complaint));
        }
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
