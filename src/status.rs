//! What the resource manager says of a call: a number that has a name.
//!
//! Names and numbers are those of the drivers of this build. A number can mean one thing in one driver
//! and another in the next, so the exact name is a question to a driver:
//!
#![cfg_attr(feature = "driver-550", doc = "```")]
#![cfg_attr(not(feature = "driver-550"), doc = "```ignore")]
//! use nvabi::NvStatus;
//! use nvabi::driver::AnyDriver;
//!
//! let status = NvStatus(0x22);
//! assert_eq!(status, NvStatus::NV_ERR_INVALID_CLASS);
//! assert_eq!(status.to_string(), "NV_ERR_INVALID_CLASS (0x22)");
//! let driver = AnyDriver::for_version("550.90.12")?;
//! assert_eq!(status.name_in(driver), Some("NV_ERR_INVALID_CLASS"));
//! assert!(driver.statuses().any(|(status, name)| (status.0, name) == (0x56, "NV_ERR_NOT_SUPPORTED")));
//! # Ok::<(), nvabi::driver::UnknownVersion>(())
//! ```

use core::fmt;

use crate::call::Views;
use crate::driver::{AnyDriver, Choice};

/// A status of the resource manager (`NV_STATUS`).
///
/// The constants are those that mean the same in all drivers of the build; a driver's own are in its
/// module, as numbers: `r595::NV_ERR_DMA_XFER_FAILED`.
#[doc(alias = "NV_STATUS")]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct NvStatus(pub u32);

/// The numbers of warnings start behind those of errors.
const WARNINGS: u32 = 0x1_0000;

impl NvStatus {
    /// All went well.
    pub const OK: Self = Self(0);

    /// Whether all went well.
    pub const fn is_ok(self) -> bool {
        self.0 == 0
    }

    /// Whether it is one of the `NV_WARN_*`: the call was made, with something to be said of it.
    pub const fn is_warning(self) -> bool {
        self.0 >= WARNINGS
    }

    /// Its name in the newest driver of the build that knows it.
    pub fn name(self) -> Option<&'static str> {
        AnyDriver::all().iter().rev().find_map(|driver| self.name_in(driver))
    }

    /// Its name in one driver.
    pub fn name_in(self, driver: &AnyDriver) -> Option<&'static str> {
        let rows = crate::abi::STATUSES;
        let from = rows.partition_point(|row| row.number < self.0);
        let same = rows[from..].iter().take_while(|row| row.number == self.0);
        same.filter(|row| row.views.contain(driver)).map(|row| row.name).next()
    }

    /// The name in the machine's driver with the number, for messages.
    pub(crate) fn named_in(self, choice: Option<&Choice>) -> impl fmt::Display + use<> {
        let name = choice.map_or_else(|| self.name(), |choice| choice.status_name(self));
        NamedStatus { status: self, name }
    }
}

impl AnyDriver {
    /// Every status that the driver has a name for, by number.
    pub fn statuses(&self) -> impl Iterator<Item = (NvStatus, &'static str)> + use<'_> {
        let own = crate::abi::STATUSES.iter().filter(|row| row.views.contain(self));
        own.map(|row| (NvStatus(row.number), row.name))
    }
}

struct NamedStatus {
    status: NvStatus,
    name: Option<&'static str>,
}

impl fmt::Display for NamedStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Some(name) => write!(f, "{name} ({:#x})", self.status.0),
            None => write!(f, "the unknown status {:#x}", self.status.0),
        }
    }
}

impl fmt::Display for NvStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.named_in(None).fmt(f)
    }
}

impl fmt::Debug for NvStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A status of the emitted table.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Row {
    number: u32,
    name: &'static str,
    views: Views,
}

impl Row {
    #[doc(hidden)]
    pub const fn new(number: u32, name: &'static str, views: Views) -> Self {
        Self { number, name, views }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_number_is_told_as_one() {
        assert_eq!(NvStatus(0xbad0).to_string(), "the unknown status 0xbad0");
        assert_eq!(NvStatus(0xbad0).name(), None);
    }

    #[test]
    fn warnings_are_told_from_errors() {
        assert!(NvStatus::OK.is_ok() && !NvStatus::OK.is_warning());
        assert!(!NvStatus(0xffff).is_warning());
        assert!(NvStatus(0x1_0006).is_warning());
    }
}
