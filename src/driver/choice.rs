//! Which driver of the build stands for the machine's, and what is certain of it.

use std::error::Error;
use std::fmt;

use super::{AnyDriver, Drivers, Record, UnknownVersion, Version};
use crate::NvStatus;
use crate::call::{Call, Info, Views};
use crate::check::Layout;

/// Which versions will do.
#[derive(Clone, Copy, Debug, Default)]
pub enum Compat<'a> {
    /// Those of the build.
    #[default]
    Exact,
    /// Also one between two neighbours that are alike in all of these, which are what the program
    /// uses. A call that is not among them is looked at when it is made: it is refused where the two
    /// differ in it.
    SameAbi(&'a [Used]),
}

/// Something of the interface that a program uses.
///
/// ```
/// # #[cfg(feature = "driver-550")]
/// use nvabi::driver::Used;
/// # #[cfg(feature = "driver-550")]
/// const USES: &[Used] = &[
///     Used::call::<nvabi::r550::control::NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS>(),
///     Used::record::<nvabi::r550::NV_CHANNEL_ALLOC_PARAMS>(),
/// ];
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Used(What);

#[derive(Clone, Copy, Debug)]
enum What {
    Call(&'static Info, Views),
    Record(&'static Layout),
}

impl Used {
    /// A call: its number, its roles and its parameters.
    pub const fn call<C: Call>() -> Self {
        Self(What::Call(C::INFO, C::VIEWS))
    }

    /// A record: its layout.
    pub const fn record<R: Record>() -> Self {
        Self(What::Record(R::LAYOUT))
    }

    /// The driver's name of it.
    pub const fn name(&self) -> &'static str {
        match self.0 {
            What::Call(info, _) => info.name,
            What::Record(layout) => layout.name,
        }
    }

    /// Whether a driver has exactly this.
    pub fn is_in(&self, driver: &AnyDriver) -> bool {
        match self.0 {
            What::Call(_, views) => views.contain(driver),
            What::Record(layout) => driver.layout(layout.name) == Some(layout),
        }
    }
}

/// A driver of the build that stands for the machine's.
#[derive(Clone, Debug)]
pub struct Choice {
    version: String,
    driver: &'static AnyDriver,
    /// The neighbour on the other side, where the version lies between two.
    other: Option<&'static AnyDriver>,
}

impl Choice {
    /// The driver for a version, as the kernel reports it.
    ///
    /// # Errors
    ///
    /// When the build does not have the version, and `compat` does not make up for it.
    pub fn new(version: &str, compat: Compat<'_>) -> Result<Self, Refused> {
        Self::among(&crate::abi::DRIVERS, version, compat)
    }

    fn among(
        drivers: &'static Drivers,
        version: &str,
        compat: Compat<'_>,
    ) -> Result<Self, Refused> {
        let unknown = match drivers.for_version(version) {
            Ok(driver) => {
                return Ok(Self { version: driver.tag().to_owned(), driver, other: None });
            }
            Err(unknown) => unknown,
        };
        let Compat::SameAbi(uses) = compat else { return Err(Refused::new(unknown, Why::Unknown)) };
        match between(&unknown, uses) {
            Ok((below, above)) => {
                Ok(Self { version: unknown.version, driver: below, other: Some(above) })
            }
            Err(why) => Err(Refused::new(unknown, why)),
        }
    }

    /// The machine's version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The driver of the build that stands for it: the same, or the next below.
    pub fn driver(&self) -> &'static AnyDriver {
        self.driver
    }

    /// The next above, where the build does not have the machine's version.
    pub fn other(&self) -> Option<&'static AnyDriver> {
        self.other
    }

    /// Whether the driver has exactly this call, for all that the lock knows.
    #[inline]
    pub fn has<C: Call>(&self) -> bool {
        // A choice is made among the drivers of `abi::TABLE`, so the compiler decides the first half.
        C::VIEWS.are_all() && C::VIEWS.are_of(&crate::abi::TABLE)
            || C::VIEWS.contain(self.driver)
                && self.other.is_none_or(|other| C::VIEWS.contain(other))
    }

    /// The name of a status, where all that the driver can be have the same for it.
    pub fn status_name(&self, status: NvStatus) -> Option<&'static str> {
        let name = status.name_in(self.driver);
        name.filter(|_| self.other.is_none_or(|other| status.name_in(other) == name))
    }

    /// Whether it has exactly this.
    pub fn has_used(&self, used: &Used) -> bool {
        used.is_in(self.driver) && self.other.is_none_or(|other| used.is_in(other))
    }
}

/// The neighbours of a version, where they are alike in what is used and no branch between them is
/// left out of the build.
fn between(
    unknown: &UnknownVersion,
    uses: &[Used],
) -> Result<(&'static AnyDriver, &'static AnyDriver), Why> {
    let (Some(below), Some(above)) = (unknown.below(), unknown.above()) else {
        return Err(Why::OneSided);
    };
    if let Some(branch) = left_out(unknown, below, above) {
        return Err(Why::LeftOut(branch));
    }
    match uses.iter().find(|used| !(used.is_in(below) && used.is_in(above))) {
        Some(used) => Err(Why::Differs(used.name(), below, above)),
        None => Ok((below, above)),
    }
}

/// A branch between two drivers that is known and not in the build.
fn left_out(
    unknown: &UnknownVersion,
    below: &AnyDriver,
    above: &AnyDriver,
) -> Option<&'static str> {
    let abi = unknown.drivers.abi;
    let (from, to) = (Version::parse(below.branch())?, Version::parse(above.branch())?);
    let missing = |branch: &&&str| !abi.drivers.iter().any(|driver| driver.name == **branch);
    let inside =
        |branch: &&&str| Version::parse(branch).is_some_and(|branch| from < branch && branch < to);
    abi.known.iter().filter(missing).find(inside).copied()
}

/// Why no driver of the build stands for the machine's.
#[derive(Debug)]
pub struct Refused {
    unknown: UnknownVersion,
    why: Why,
}

#[derive(Debug)]
enum Why {
    /// Only versions of the build were asked for.
    Unknown,
    /// There is no neighbour on one side.
    OneSided,
    /// A branch between the neighbours is not in the build.
    LeftOut(&'static str),
    /// The neighbours differ in something that is used.
    Differs(&'static str, &'static AnyDriver, &'static AnyDriver),
}

impl Refused {
    fn new(unknown: UnknownVersion, why: Why) -> Self {
        Self { unknown, why }
    }

    /// What is known of the version, and its neighbours.
    pub fn unknown(&self) -> &UnknownVersion {
        &self.unknown
    }

    /// What the neighbours differ in, where that was the reason.
    pub fn item(&self) -> Option<&'static str> {
        match self.why {
            Why::Differs(item, ..) => Some(item),
            _ => None,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.unknown.version();
        match self.why {
            Why::Unknown => self.unknown.fmt(f),
            Why::OneSided => {
                write!(f, "driver {version} is not between two of this build: {}", self.unknown)
            }
            Why::LeftOut(branch) => {
                write!(
                    f,
                    "driver {version} is not in this build, nor is all between its neighbours"
                )?;
                write!(f, "; feature driver-{branch} adds a branch")
            }
            Why::Differs(item, below, above) => {
                write!(
                    f,
                    "driver {version} is not in this build, and its neighbours {}",
                    below.tag()
                )?;
                write!(f, " and {} differ in {item}", above.tag())
            }
        }
    }
}

impl Error for Refused {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Abi, Driver};
    use crate::driver::{Calls, Table};

    static CALLS: Calls = Calls { frontend: &[], uvm: &[], control: &[], class: &[], ioctl: &[] };

    /// Branches 1 and 3 are in the build, 2 is not; 5 is newer than all.
    static ABI: Abi = Abi {
        known: &["1", "2", "3", "5"],
        drivers: &[
            Driver { name: "1", feature: "driver-1", tags: &["1.1", "1.5"], items: &[] },
            Driver { name: "3", feature: "driver-3", tags: &["3.1"], items: &[] },
        ],
    };
    static TABLE: Table = Table::new();
    static DRIVERS: Drivers = Drivers::new(
        &ABI,
        &[
            AnyDriver::new(&ABI, &TABLE, 0, 0, 0, &CALLS),
            AnyDriver::new(&ABI, &TABLE, 0, 1, 1, &CALLS),
            AnyDriver::new(&ABI, &TABLE, 1, 0, 2, &CALLS),
        ],
    );

    fn choice_text(version: &str) -> String {
        match Choice::among(&DRIVERS, version, Compat::SameAbi(&[])) {
            Ok(choice) => format!("{} by {:?}", choice.driver().tag(), choice.other()),
            Err(refused) => refused.to_string(),
        }
    }

    #[test]
    fn nothing_is_said_over_a_branch_that_is_not_in_the_build() {
        assert_eq!(choice_text("1.3"), "1.1 by Some(AnyDriver(\"1.5\"))");
        let left_out = "is not in this build, nor is all between its neighbours; feature driver-2 adds \
                        a branch";
        for version in ["1.9", "2.4", "3.0"] {
            assert_eq!(choice_text(version), format!("driver {version} {left_out}"));
        }
        assert!(choice_text("0.1").contains("is not between two"));
        assert!(choice_text("3.2").contains("is not between two"));
    }

    #[cfg(all(feature = "driver-530", feature = "driver-535"))]
    #[test]
    fn a_status_has_a_name_where_both_neighbours_have_it() -> Result<(), Refused> {
        // `NV_ERR_ALREADY_SIGNALLED` came with 535.
        let [memory, signalled] = [NvStatus::NV_ERR_NO_MEMORY, NvStatus(0x7b)];
        let above = Choice::new("535.43.02", Compat::Exact)?;
        assert_eq!(above.status_name(signalled), Some("NV_ERR_ALREADY_SIGNALLED"));
        let between = Choice::new("530.9999.01", Compat::SameAbi(&[]))?;
        assert_eq!(between.status_name(memory), Some("NV_ERR_NO_MEMORY"));
        assert_eq!(between.status_name(signalled), None);
        let swapped = Choice { driver: above.driver, other: Some(between.driver), ..between };
        assert_eq!(swapped.status_name(signalled), None);
        Ok(())
    }
}
