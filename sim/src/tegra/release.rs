//! Which release of L4T is simulated.

use std::fmt;
use std::str::FromStr;

use nvabi::driver::AnyDriver;
use nvabi::tegra::abi::DRIVERS;

/// What the rules are written for.
const OURS: &str = "tegra-r36.4";

/// A release of L4T: each that is locked can be simulated.
#[derive(Clone, Copy)]
pub struct Release(&'static AnyDriver);

impl Release {
    /// That of the rules.
    pub(crate) fn ours() -> Self {
        let ours = DRIVERS.all().iter().find(|driver| driver.tag() == OURS);
        Self(ours.unwrap_or(&DRIVERS.all()[0]))
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        DRIVERS.all().iter().map(Self)
    }

    pub(crate) fn driver(self) -> &'static AnyDriver {
        self.0
    }

    /// The branch, such as 35.
    pub(crate) fn branch(self) -> u32 {
        let number = self.0.branch().trim_start_matches(|c: char| !c.is_ascii_digit());
        number.parse().unwrap_or(0)
    }

    fn name(&self) -> &'static str {
        short(self.0.tag())
    }
}

fn short(tag: &'static str) -> &'static str {
    tag.strip_prefix("tegra-").unwrap_or(tag)
}

/// r36.4.
impl Default for Release {
    fn default() -> Self {
        Self::ours()
    }
}

impl PartialEq for Release {
    fn eq(&self, other: &Self) -> bool {
        self.0.tag() == other.0.tag()
    }
}

impl Eq for Release {}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Release").field(&self.name()).finish()
    }
}

/// `r35.4.1`, or its beginning, `r35.4` or `r35`: then the newest that begins so.
impl FromStr for Release {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = text.strip_prefix("tegra-").unwrap_or(text);
        let begins = |driver: &&AnyDriver| {
            short(driver.tag()).strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.'))
        };
        let all = DRIVERS.all();
        let exact = all.iter().find(|driver| short(driver.tag()) == wanted);
        let found = exact.or_else(|| all.iter().rfind(begins));
        found.map(Self).ok_or_else(|| {
            let names: Vec<_> = all.iter().map(|driver| short(driver.tag())).collect();
            format!("unknown release `{text}`; expected one of {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_found_by_their_names_and_by_the_beginning() {
        let found = |text: &str| text.parse().map(|release: Release| release.to_string());
        for (text, name) in [
            ("r36.4", "r36.4"),
            ("r36", "r36.4.3"),
            ("tegra-r35.4.1", "r35.4.1"),
            ("r35.3", "r35.3.1"),
            ("r34.1", "r34.1"),
            ("r32", "r32.7.1"),
        ] {
            assert_eq!(found(text).as_deref(), Ok(name));
        }
        for wrong in ["", "r3", "r36.", "35", "r37"] {
            assert!(found(wrong).is_err_and(|told| told.contains("r35.5")), "{wrong}");
        }
        assert_eq!(
            (Release::default().to_string().as_str(), Release::ours().branch()),
            ("r36.4", 36)
        );
    }
}
