//! The choice between the drivers of a build at run time.
//!
//! A build can have several driver branches. Which of their tags is the machine's, the kernel says
//! when its device is opened; from then on everything follows from that tag:
//!
#![cfg_attr(feature = "driver-550", doc = "```")]
#![cfg_attr(not(feature = "driver-550"), doc = "```ignore")]
//! use nvabi::driver::{AnyDriver, Driver, Record, Visitor, visit};
//!
//! // What /sys/module/nvidia/version says.
//! let driver = AnyDriver::for_version("550.90.12\n")?;
//! assert_eq!((driver.branch(), driver.tag()), ("550", "550.90.12"));
//!
//! // By number and name, as data:
//! let info = driver.control(0x101).ok_or("550 has no such command")?;
//! assert_eq!(info.name, "NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION");
//! assert!(driver.params(info).all(|params| params.size == 40));
//!
//! // By type, in code that is written once for all drivers:
//! struct Sizes;
//! impl Visitor for Sizes {
//!     type Output = (usize, usize);
//!     fn visit<D: Driver>(self) -> Self::Output {
//!         (size_of::<D::NVOS54_PARAMETERS>(), size_of::<D::NV_CHANNEL_ALLOC_PARAMS>())
//!     }
//! }
//! assert_eq!(visit(driver, Sizes), (32, 360));
//!
//! // By module, where the code is about fields that every driver of the build has:
//! let call = nvabi::with_driver!(driver, abi => {
//!     let call = abi::NVOS00_PARAMETERS { hRoot: nvabi::Handle(1), ..Record::zeroed() };
//!     (size_of_val(&call), call.hRoot)
//! });
//! assert_eq!(call, (16, nvabi::Handle(1)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A version that the build does not have is refused, unless its neighbours will do:
//!
#![cfg_attr(feature = "driver-550", doc = "```")]
#![cfg_attr(not(feature = "driver-550"), doc = "```ignore")]
//! use nvabi::driver::AnyDriver;
//!
//! let refused = AnyDriver::for_version("550.90.10").unwrap_err();
//! assert!(refused.to_string().starts_with("driver 550.90.10 is not in this build"));
//! let nearest = refused.nearest().ok_or("there are no neighbours")?;
//! assert_eq!(nearest.driver().tag(), "550.90.07");
//! assert!(nearest.is_certain(), "550.90.07 and 550.90.12 have the same interface");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod choice;
mod installed;

use std::cmp::Ordering;
use std::error::Error;
use std::fmt;

#[doc(inline)]
pub use crate::abi::drivers::*;
use crate::call::{CallKind, Info};
use crate::check::{Abi, Item, Layout};
pub use choice::{Choice, Compat, Refused, Used};
pub use installed::installed;

/// A record of the driver: a struct or a union.
///
/// # Safety
///
/// - Whatever bytes it holds are a value of it.
/// - [`LAYOUT`](Self::LAYOUT) is its layout: size, alignment, and the type and offset of each field.
/// - It has no padding of Rust's: what is no field of `LAYOUT` is a field of bytes. So all of its bytes are
///   initialised, but for those of a union that was made of a smaller member: `U { small: 1 }` leaves
///   the others as they were. See [`PlainRecord`].
pub unsafe trait Record: Copy + 'static {
    /// Its layout.
    const LAYOUT: &'static Layout;

    /// Whether the driver has it: all but [`Absent`] are there.
    const EXISTS: bool = true;

    /// The record with all bytes zero, padding as well.
    fn zeroed() -> Self {
        // SAFETY: zeros are bytes, and whatever bytes it holds are a value of it.
        unsafe { core::mem::zeroed() }
    }
}

/// A record whose bytes are initialised in every value, so that they can be read.
///
/// A record with a union that has members of different sizes is none. Parameters of that kind are read as
/// bytes where they are held as bytes to begin with, or by a promise
/// ([`Params::of_initialized`](crate::proxy::Params::of_initialized)).
///
/// # Safety
///
/// Each union in it, and itself where it is one, consists of members that are as large as it is, and
/// plain.
#[diagnostic::on_unimplemented(
    message = "bytes of `{Self}` may be uninitialised",
    label = "has a union with members of different sizes",
    note = "hold it as bytes, or see to it that they are initialised, as in `Record::zeroed`"
)]
pub unsafe trait PlainRecord: Record {
    /// Its bytes.
    fn bytes(&self) -> &[u8] {
        // SAFETY: the borrow is of `size_of::<Self>()` bytes. They are all initialised: a `Record` has no
        // padding of Rust's, and a value of a union in it was made of a member that covers the union.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    /// Its bytes, to change: whatever they are, they are a value of it.
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`, and what is written is a value: `Record` promises so of any bytes.
        unsafe {
            std::slice::from_raw_parts_mut(std::ptr::from_mut(self).cast(), size_of::<Self>())
        }
    }
}

/// Stands for a record that one driver has not, while another of the build has it. It has no bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Absent;

// SAFETY: it has no bytes and no fields, as the layout says.
unsafe impl Record for Absent {
    const LAYOUT: &'static Layout = NO_BYTES;
    const EXISTS: bool = false;
}

// SAFETY: it has no union.
unsafe impl PlainRecord for Absent {}

/// The parameters of a call that has none.
// SAFETY: it has no bytes and no fields, as the layout says.
unsafe impl Record for () {
    const LAYOUT: &'static Layout = NO_BYTES;
}

// SAFETY: it has no union.
unsafe impl PlainRecord for () {}

const NO_BYTES: &Layout = &Layout {
    name: "",
    kind: crate::check::LayoutKind::Struct,
    size: 0,
    align: 1,
    since: "",
    source: "",
    fields: &[],
};

/// The calls of a driver by kind, each kind in parts that are sorted by number.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// Ioctls of `/dev/nvidiactl` and `/dev/nvidia*`.
    pub frontend: &'static [&'static [&'static Info]],
    /// Ioctls of `/dev/nvidia-uvm`.
    pub uvm: &'static [&'static [&'static Info]],
    /// Commands of `NV_ESC_RM_CONTROL`.
    pub control: &'static [&'static [&'static Info]],
    /// Classes of `NV_ESC_RM_ALLOC`.
    pub class: &'static [&'static [&'static Info]],
    /// Ioctls of another driver.
    pub ioctl: &'static [&'static [&'static Info]],
}

impl Calls {
    /// The calls of one kind.
    pub const fn of(&self, kind: CallKind) -> &'static [&'static [&'static Info]] {
        match kind {
            CallKind::Frontend => self.frontend,
            CallKind::Uvm => self.uvm,
            CallKind::Control => self.control,
            CallKind::Class => self.class,
            CallKind::Ioctl => self.ioctl,
        }
    }

    /// The call of a number; where several share it, one of those whose roles are known.
    pub fn find(&self, kind: CallKind, number: u32) -> Option<&'static Info> {
        let found = self.of(kind).iter().flat_map(|part| {
            let from = part.partition_point(|info| info.number < number);
            part[from..].iter().take_while(|info| info.number == number)
        });
        found.copied().min_by_key(|info| !info.roles_known)
    }
}

/// Distinguishes one emitted table of drivers from another, by its address.
///
/// It is not [`Abi`]: a constant that refers to that makes rustc look through all of it.
#[doc(hidden)]
#[derive(Debug)]
pub struct Table(
    // Statics without bytes may share an address.
    #[allow(dead_code, reason = "see above")] u8,
);

impl Table {
    #[doc(hidden)]
    #[allow(clippy::new_without_default, reason = "two of them are not alike")]
    pub const fn new() -> Self {
        Self(0)
    }
}

/// One driver version of a build, chosen at run time.
#[derive(Clone, Copy)]
pub struct AnyDriver {
    abi: &'static Abi,
    table: &'static Table,
    /// Its branch's place in the table of drivers, and its own in the branch.
    branch: u16,
    index: u16,
    view: u16,
    calls: &'static Calls,
}

impl AnyDriver {
    /// A row of the emitted table.
    #[doc(hidden)]
    pub const fn new(
        abi: &'static Abi,
        table: &'static Table,
        branch: u16,
        index: u16,
        view: u16,
        calls: &'static Calls,
    ) -> Self {
        Self { abi, table, branch, index, view, calls }
    }

    /// The driver of this build with a version, as the kernel reports it: `550.90.12`.
    ///
    /// # Errors
    ///
    /// When this build does not have exactly that version; the error lists those it has, and leads
    /// to the nearest.
    pub fn for_version(version: &str) -> Result<&'static Self, UnknownVersion> {
        crate::abi::DRIVERS.for_version(version)
    }

    /// Every driver of this build, in version order.
    pub fn all() -> &'static [Self] {
        crate::abi::DRIVERS.all
    }

    /// Its version.
    pub fn tag(&self) -> &'static str {
        self.abi.drivers[usize::from(self.branch)].tags[usize::from(self.index)]
    }

    /// Its branch, such as `550`.
    pub fn branch(&self) -> &'static str {
        self.abi.drivers[usize::from(self.branch)].name
    }

    /// Whether two drivers of a build agree in everything that the build knows of them: types,
    /// constants and calls.
    pub fn same_interface(&self, other: &Self) -> bool {
        std::ptr::eq(self.abi, other.abi) && self.view == other.view
    }

    /// Its calls.
    pub fn calls(&self) -> &'static Calls {
        self.calls
    }

    /// The ioctl of `/dev/nvidiactl` and `/dev/nvidia*` with this `nr`.
    pub fn frontend(&self, nr: u32) -> Option<&'static Info> {
        self.calls.find(CallKind::Frontend, nr)
    }

    /// The ioctl of `/dev/nvidia-uvm` with this request.
    pub fn uvm(&self, request: u32) -> Option<&'static Info> {
        self.calls.find(CallKind::Uvm, request)
    }

    /// The command of `NV_ESC_RM_CONTROL` with this number.
    pub fn control(&self, cmd: u32) -> Option<&'static Info> {
        self.calls.find(CallKind::Control, cmd)
    }

    /// The class of `NV_ESC_RM_ALLOC` with this number.
    pub fn class(&self, class: u32) -> Option<&'static Info> {
        self.calls.find(CallKind::Class, class)
    }

    /// The layout that a struct, union or typedef has in this driver, by the driver's name.
    pub fn layout(&self, name: &str) -> Option<&'static Layout> {
        let items = self.abi.drivers[usize::from(self.branch)].items;
        let at = items.binary_search_by_key(&name, |item: &Item| item.name).ok()?;
        let past = items[at].events.iter().take_while(|(from, _)| *from <= self.index);
        past.last().and_then(|(_, layout)| *layout)
    }

    /// The layouts of a call's parameters in this driver. Where there are several, the size of the
    /// call says which is meant; where the parameters are an array, this is its element.
    pub fn params(&self, info: &Info) -> impl Iterator<Item = &'static Layout> + use<'_> {
        info.params.iter().filter_map(|name| self.layout(name))
    }

    /// The table that it is in.
    pub(crate) fn table(&self) -> &'static Table {
        self.table
    }

    /// The number of its interface, for `visit` and `with_driver!`.
    #[doc(hidden)]
    pub const fn view(&self) -> u16 {
        self.view
    }
}

impl fmt::Debug for AnyDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyDriver").field(&self.tag()).finish()
    }
}

/// All drivers of a build.
#[derive(Clone, Copy)]
pub struct Drivers {
    abi: &'static Abi,
    all: &'static [AnyDriver],
}

impl Drivers {
    /// The emitted table.
    #[doc(hidden)]
    pub const fn new(abi: &'static Abi, all: &'static [AnyDriver]) -> Self {
        Self { abi, all }
    }

    /// Every driver, in version order.
    pub fn all(&self) -> &'static [AnyDriver] {
        self.all
    }

    /// The driver with a version, as the kernel reports it or as a distribution's package has it: white space
    /// around it, an epoch and what a packager appends do not count (`1:550.90.07-0ubuntu1`).
    ///
    /// # Errors
    ///
    /// When there is none with exactly that version.
    pub fn for_version(&'static self, version: &str) -> Result<&'static AnyDriver, UnknownVersion> {
        let (upstream, is_package) = upstream(version);
        let found = self.all.iter().find(|driver| is_package && driver.tag() == upstream);
        found.ok_or_else(|| UnknownVersion {
            version: version.trim_ascii().to_owned(),
            drivers: self,
        })
    }
}

/// The driver's own version in that of a package, and whether what follows is a packager's: a hyphen and a
/// digit.
fn upstream(version: &str) -> (&str, bool) {
    let version = version.trim_ascii();
    // Jetson's releases begin with a word and have a hyphen of their own.
    if version.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return (version, true);
    }
    let version = match version.split_once(':') {
        Some((epoch, rest)) if epoch.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        _ => version,
    };
    let end = version.find(['-', '+', '~']).unwrap_or(version.len());
    let (upstream, suffix) = version.split_at(end);
    let is_revision = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    let is_package = suffix.is_empty() || suffix.strip_prefix('-').is_some_and(is_revision);
    (upstream, is_package)
}

impl fmt::Debug for Drivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all).finish()
    }
}

/// A version that the build does not have.
#[derive(Clone)]
pub struct UnknownVersion {
    version: String,
    drivers: &'static Drivers,
}

impl UnknownVersion {
    /// The version that was asked for.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The newest driver of the build that is older.
    pub fn below(&self) -> Option<&'static AnyDriver> {
        let asked = Version::parse(upstream(&self.version).0)?;
        self.versions().filter(|(at, _)| *at <= asked).max_by(|a, b| a.0.cmp(&b.0)).map(|of| of.1)
    }

    /// The oldest driver of the build that is newer.
    pub fn above(&self) -> Option<&'static AnyDriver> {
        let asked = Version::parse(upstream(&self.version).0)?;
        self.versions().filter(|(at, _)| *at > asked).min_by(|a, b| a.0.cmp(&b.0)).map(|of| of.1)
    }

    fn versions(&self) -> impl Iterator<Item = (Version<'static>, &'static AnyDriver)> {
        self.drivers.all.iter().filter_map(|driver| Some((Version::parse(driver.tag())?, driver)))
    }

    /// Takes a neighbour for it: the one below, or the one above where only that is of the same
    /// branch. `None` when the build has no driver, or what was asked for is no version.
    ///
    /// It is a guess unless [`Nearest::is_certain`] says otherwise, and even then a driver that was
    /// cut between two others need not have been released between them.
    pub fn nearest(&self) -> Option<Nearest> {
        let branch = upstream(&self.version).0.split('.').next().unwrap_or_default();
        let is_near = |driver: &&AnyDriver| driver.branch() == branch;
        let (below, above) = (self.below(), self.above());
        let (driver, other) = match (below.filter(is_near), above.filter(is_near)) {
            (None, Some(above)) => (above, below),
            _ => match below {
                Some(below) => (below, above),
                None => (above?, None),
            },
        };
        Some(Nearest { driver, other })
    }
}

/// Which version to use in place of an unknown one.
#[derive(Clone, Copy, Debug)]
pub struct Nearest {
    driver: &'static AnyDriver,
    other: Option<&'static AnyDriver>,
}

impl Nearest {
    /// The driver that was taken.
    pub fn driver(&self) -> &'static AnyDriver {
        self.driver
    }

    /// The neighbour on the other side.
    pub fn other(&self) -> Option<&'static AnyDriver> {
        self.other
    }

    /// Whether both neighbours have the same interface.
    pub fn is_certain(&self) -> bool {
        self.other.is_some_and(|other| other.same_interface(self.driver))
    }
}

impl fmt::Debug for UnknownVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnknownVersion").field("version", &self.version).finish_non_exhaustive()
    }
}

impl fmt::Display for UnknownVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Abi { drivers, known } = self.drivers.abi;
        write!(f, "driver {} is not in this build", self.version)?;
        match (self.below(), self.above()) {
            (Some(below), Some(above)) => {
                let same = below.same_interface(above);
                let agreement =
                    if same { "with the same interface" } else { "with two interfaces" };
                write!(f, "; nearest are {} and {}, {agreement}", below.tag(), above.tag())?;
            }
            (Some(only), None) | (None, Some(only)) => write!(f, "; nearest is {}", only.tag())?,
            (None, None) => {}
        }
        let branch = self.version.split('.').next().unwrap_or_default();
        if known.contains(&branch) && !drivers.iter().any(|driver| driver.name == branch) {
            let kind = if branch.contains('-') { "" } else { "driver-" };
            write!(f, "; feature {kind}{branch} adds its branch")?;
        }
        for (i, driver) in drivers.iter().enumerate() {
            f.write_str(if i == 0 { "; this build has " } else { ", " })?;
            match driver.tags {
                [only] => f.write_str(only)?,
                [first, .., last] => write!(f, "{first} to {last} ({} tags)", driver.tags.len())?,
                [] => f.write_str(driver.name)?,
            }
        }
        if drivers.is_empty() {
            f.write_str("; this build has none: a feature such as driver-550 adds a branch")?;
        }
        Ok(())
    }
}

impl Error for UnknownVersion {}

/// A version taken apart: a word that may stand before the numbers, the numbers, and the text,
/// since `550.100` and `550.100.00` differ.
#[derive(PartialEq, Eq)]
struct Version<'t> {
    word: &'t str,
    numbers: Vec<u64>,
    text: &'t str,
}

impl<'t> Version<'t> {
    fn parse(text: &'t str) -> Option<Self> {
        let word = text.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let numbers: Option<Vec<u64>> =
            text[word.len()..].split('.').map(|part| part.parse().ok()).collect();
        Some(Self { word, numbers: numbers?, text })
    }
}

impl Ord for Version<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.word, &self.numbers, self.text).cmp(&(other.word, &other.numbers, other.text))
    }
}

impl PartialOrd for Version<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn info(name: &'static str, number: u32, roles_known: bool) -> Info {
        Info {
            name,
            kind: CallKind::Control,
            number,
            params: &[],
            sizes: &[],
            array: false,
            roles_known,
            fds: &[],
            handles: &[],
            pointers: &[],
            caps: &[],
            node: "",
        }
    }

    #[test]
    fn a_number_leads_to_the_call_whose_roles_are_known() {
        static A: Info = info("ALIAS", 2, false);
        static B: Info = info("OTHER", 2, false);
        static C: Info = info("STATED", 2, true);
        static D: Info = info("ALONE", 3, false);
        static E: Info = info("FIRST", 1, true);
        static PARTS: [&[&Info]; 2] = [&[&A, &B, &D], &[&E, &C]];
        let calls = Calls { frontend: &[], uvm: &[], control: &PARTS, class: &[], ioctl: &[] };
        let found = |number| calls.find(CallKind::Control, number).map(|info| info.name);
        let all = [found(0), found(1), found(2), found(3), found(4)];
        assert_eq!(all, [None, Some("FIRST"), Some("STATED"), Some("ALONE"), None]);
    }
}
