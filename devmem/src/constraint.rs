//! What a device cannot do without: named 64-bit values, and how two of one name become one.

use std::cmp::Ordering;
use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// Which requirement a [`Constraint`] is. The numbers are those on the wire.
///
/// The first three are of the C library; those from `0x6e76_0000` on are nvabi's own. Any other
/// number is carried along and merges with an equal value alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Named", into = "String")]
pub struct ConstraintName(pub u32);

/// A name as people write it.
#[derive(Deserialize)]
#[serde(untagged, expecting = "the name of a constraint is a text or a number of 32 bits")]
enum Named {
    Number(u32),
    Text(String),
}

/// How two values of one name become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Both divide the result: the least common multiple, in so many bits. 0 asks for nothing.
    Multiple(u32),
    /// The smaller one.
    Least,
    /// The greater one.
    Greatest,
    /// The bits of both; none in common is a conflict.
    Common,
    /// They must be equal.
    Equal,
}

/// Names of constraints, in the order of their numbers, with the text of each and its rule.
const NAMES: [(ConstraintName, &str, Rule); 16] = [
    (ConstraintName::ADDRESS_ALIGNMENT, "address-alignment", Rule::Multiple(64)),
    (ConstraintName::PITCH_ALIGNMENT, "pitch-alignment", Rule::Multiple(32)),
    (ConstraintName::MAX_PITCH, "max-pitch", Rule::Least),
    (ConstraintName::OFFSET_ALIGNMENT, "offset-alignment", Rule::Multiple(64)),
    (ConstraintName::SIZE_ALIGNMENT, "size-alignment", Rule::Multiple(64)),
    (ConstraintName::ROW_PADDING, "row-padding", Rule::Greatest),
    (ConstraintName::SIZE_PADDING, "size-padding", Rule::Greatest),
    (ConstraintName::CONTIGUOUS, "contiguous", Rule::Greatest),
    (ConstraintName::ADDRESS_BITS, "address-bits", Rule::Least),
    (ConstraintName::PAGE_SIZE, "page-size", Rule::Multiple(64)),
    (ConstraintName::PLACEMENT, "placement", Rule::Common),
    (ConstraintName::COHERENCY, "coherency", Rule::Common),
    (ConstraintName::MAX_SIZE, "max-size", Rule::Least),
    (ConstraintName::ROW_ALIGNMENT, "row-alignment", Rule::Multiple(32)),
    (ConstraintName::MADE_BY, "made-by", Rule::Equal),
    (ConstraintName::FILES, "files", Rule::Equal),
];

/// Where the numbers of nvabi's own constraints begin.
const OWN: u32 = 0x6e76_0000;

impl ConstraintName {
    /// The start of the memory is at a multiple of so many bytes, in the device's addresses.
    pub const ADDRESS_ALIGNMENT: Self = Self(0);
    /// From one row to the next is a multiple of so many bytes; 32 bits.
    pub const PITCH_ALIGNMENT: Self = Self(1);
    /// From one row to the next is at most so many bytes; 32 bits.
    pub const MAX_PITCH: Self = Self(2);
    /// Each plane starts at a multiple of so many bytes in the memory.
    pub const OFFSET_ALIGNMENT: Self = Self(OWN);
    /// The size of the memory is a multiple of so many bytes.
    pub const SIZE_ALIGNMENT: Self = Self(OWN + 1);
    /// So many bytes follow the last pixel of each row before the next row begins.
    pub const ROW_PADDING: Self = Self(OWN + 2);
    /// So many bytes follow the last plane: a device reads ahead.
    pub const SIZE_PADDING: Self = Self(OWN + 3);
    /// 1: the device takes one piece of physical (or I/O virtual) memory; 0: any pages.
    pub const CONTIGUOUS: Self = Self(OWN + 4);
    /// The device reaches addresses of so many bits: 32 is memory below 4 GiB.
    pub const ADDRESS_BITS: Self = Self(OWN + 5);
    /// The memory is made of pages of a multiple of so many bytes.
    pub const PAGE_SIZE: Self = Self(OWN + 6);
    /// The heaps that the memory may be in: bits of [`placement`].
    pub const PLACEMENT: Self = Self(OWN + 7);
    /// How the CPU may see the memory: bits of [`coherency`].
    pub const COHERENCY: Self = Self(OWN + 8);
    /// The memory is at most so many bytes.
    pub const MAX_SIZE: Self = Self(OWN + 9);
    /// Each plane has a multiple of so many rows; 32 bits.
    pub const ROW_ALIGNMENT: Self = Self(OWN + 10);
    /// The memory is made by the device whose file has this number (`st_rdev`), of a GPU with several nodes the first of
    /// theirs: one that takes no memory of others asks for it.
    pub const MADE_BY: Self = Self(OWN + 11);
    /// The memory is in so many files: one, or one for each plane.
    pub const FILES: Self = Self(OWN + 12);

    /// The names that have a meaning, by number.
    pub fn known() -> impl Iterator<Item = Self> {
        NAMES.iter().map(|(name, ..)| *name)
    }

    pub(crate) fn is_known(self) -> bool {
        self.row().is_some()
    }

    fn row(self) -> Option<&'static (Self, &'static str, Rule)> {
        NAMES.iter().find(|(name, ..)| *name == self)
    }

    #[inline]
    fn rule(self) -> Rule {
        // The three of the C library are what is merged most.
        match self {
            Self::ADDRESS_ALIGNMENT => Rule::Multiple(64),
            Self::PITCH_ALIGNMENT => Rule::Multiple(32),
            Self::MAX_PITCH => Rule::Least,
            _ => self.row().map_or(Rule::Equal, |(_, _, rule)| *rule),
        }
    }

    /// The values that mean something; no format has more than four planes.
    fn range(self) -> RangeInclusive<u64> {
        match self {
            Self::CONTIGUOUS => 0..=1,
            Self::ADDRESS_BITS => 1..=64,
            Self::FILES => 1..=4,
            Self::PITCH_ALIGNMENT | Self::ROW_ALIGNMENT => 0..=u32::MAX.into(),
            _ => 0..=u64::MAX,
        }
    }

    /// Whether the field of the C library is 32 bits wide, its other half undefined.
    fn is_half(self) -> bool {
        matches!(self, Self::PITCH_ALIGNMENT | Self::MAX_PITCH)
    }
}

impl fmt::Display for ConstraintName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row() {
            Some((_, text, _)) => f.write_str(text),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

impl fmt::Debug for ConstraintName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<ConstraintName> for String {
    fn from(name: ConstraintName) -> Self {
        name.to_string()
    }
}

impl TryFrom<Named> for ConstraintName {
    type Error = String;

    fn try_from(name: Named) -> Result<Self, String> {
        match name {
            Named::Number(number) => Ok(Self(number)),
            Named::Text(text) => text.parse(),
        }
    }
}

impl std::str::FromStr for ConstraintName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((name, ..)) = NAMES.iter().find(|(_, known, _)| *known == text) {
            return Ok(*name);
        }
        let digits = text.strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok());
        digits.or_else(|| text.parse().ok()).map(Self).ok_or_else(|| {
            let known: Vec<&str> = NAMES.iter().map(|(_, known, _)| *known).collect();
            format!("`{text}` is neither a number nor one of {}", known.join(", "))
        })
    }
}

/// Heaps, the bits of [`ConstraintName::PLACEMENT`].
pub mod placement {
    /// Pages of the system's memory.
    pub const SYSTEM: u64 = 1;
    /// The kernel's contiguous memory (CMA).
    pub const CONTIGUOUS: u64 = 1 << 1;
    /// Memory of the device itself.
    pub const LOCAL: u64 = 1 << 2;
    /// Memory that was set apart when the system started.
    pub const CARVEOUT: u64 = 1 << 3;
    /// Memory that the CPU cannot read.
    pub const PROTECTED: u64 = 1 << 4;
    /// Those that the CPU sees, whatever the device is.
    pub(crate) const VISIBLE: u64 = SYSTEM | CONTIGUOUS | CARVEOUT;
}

/// How the CPU sees memory, the bits of [`ConstraintName::COHERENCY`].
pub mod coherency {
    /// Through its caches: the device looks into them, or they are written back and dropped.
    pub const CACHED: u64 = 1;
    /// Writes are gathered, reads go out.
    pub const WRITE_COMBINED: u64 = 1 << 1;
    /// Each access goes out.
    pub const UNCACHED: u64 = 1 << 2;
    /// In whatever way.
    pub(crate) const ANY: u64 = CACHED | WRITE_COMBINED | UNCACHED;
}

/// What a device cannot do without: one named value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Constraint {
    /// Which requirement.
    pub name: ConstraintName,
    /// Its value, in bytes where the name does not say otherwise.
    pub value: u64,
}

/// A constraint as people write it: bits of placement and coherency have names, and a device has two numbers.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: ConstraintName,
    value: Value,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "a value is a number, or words such as \"system|contiguous\"")]
enum Value {
    Number(u64),
    Words(String),
}

impl TryFrom<Written> for Constraint {
    type Error = String;

    fn try_from(Written { name, value }: Written) -> Result<Self, String> {
        let value = match value {
            Value::Number(value) => value,
            Value::Words(text) => value_of(name, &text)?,
        };
        let (constraint, range) = (Self { name, value }, name.range());
        if constraint.is_impossible() {
            let words = words(name).join(", ");
            return Err(format!("{name} 0 allows nothing: leave it out, or name {words}"));
        }
        match range.contains(&value) {
            true => Ok(constraint),
            false => Err(format!("{name} is {} to {}, not {value}", range.start(), range.end())),
        }
    }
}

impl From<Constraint> for Written {
    fn from(Constraint { name, value }: Constraint) -> Self {
        let text = shown(name, value);
        // Bits without a name stay a number.
        let value = match value_of(name, &text) {
            Ok(read) if read == value => Value::Words(text),
            _ => Value::Number(value),
        };
        Self { name, value }
    }
}

/// The value of a text such as `system|contiguous`, or `226:0` for a device.
fn value_of(name: ConstraintName, text: &str) -> Result<u64, String> {
    if name == ConstraintName::MADE_BY {
        let numbers = text.split_once(':');
        let numbers =
            numbers.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        let (major, minor) =
            numbers.ok_or_else(|| format!("`{text}` is no device: MAJOR:MINOR, such as 226:0"))?;
        return Ok(nix::libc::makedev(major, minor));
    }
    let words = words(name);
    if words.is_empty() {
        return Err(format!("{name} is a number, not `{text}`"));
    }
    text.split('|').map(str::trim).try_fold(0, |bits, word| {
        let bit = words.iter().position(|known| *known == word);
        let unknown = || format!("`{word}` is no {name}: {}", words.join(", "));
        bit.map(|bit| bits | 1 << bit).ok_or_else(unknown)
    })
}

/// Two values of one name that no value serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// Which requirement.
    pub name: ConstraintName,
    /// What the first list has.
    pub left: u64,
    /// What the second list has.
    pub right: u64,
    /// Why they cannot be merged.
    #[serde(rename = "why")]
    pub kind: ConflictKind,
}

/// Why two values cannot be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ConflictKind {
    /// Their least common multiple does not fit the field.
    Overflow,
    /// They have no bit in common.
    Disjoint,
    /// They must be equal and differ: one name asks for one device, of another the meaning is not known.
    Different,
}

impl Constraint {
    /// A constraint by name and value.
    pub const fn new(name: ConstraintName, value: u64) -> Self {
        Self { name, value }
    }

    /// Whether nothing can keep to it: it allows no kind of memory.
    pub(crate) fn is_impossible(self) -> bool {
        self.value == 0 && self.name.rule() == Rule::Common
    }

    /// As the C library keeps it: the upper half of a 32-bit value is not looked at.
    pub(crate) fn from_raw(name: u32, raw: u64) -> Self {
        let name = ConstraintName(name);
        Self { name, value: if name.is_half() { raw & u64::from(u32::MAX) } else { raw } }
    }

    /// Whether another value of the name, kept to, keeps to this one.
    fn implied_by(self, other: u64) -> bool {
        match self.name.rule() {
            // 0 and 1 both ask for nothing, and stay two values.
            Rule::Multiple(_) => {
                other.max(1) != self.value.max(1) && other.max(1) % self.value.max(1) == 0
            }
            Rule::Least => other < self.value,
            Rule::Greatest => other > self.value,
            Rule::Common => other & !self.value == 0,
            Rule::Equal => false,
        }
    }

    /// The value that serves both; both are of one name.
    ///
    /// # Errors
    ///
    /// When there is none. Constraints of two names are in conflict as different values are.
    #[inline]
    pub fn merge(self, other: Self) -> Result<Self, Conflict> {
        let (left, right) = (self.value, other.value);
        let conflict = |kind| Conflict { name: self.name, left, right, kind };
        if self.name != other.name {
            return Err(conflict(ConflictKind::Different));
        }
        let value = match self.name.rule() {
            Rule::Multiple(bits) => {
                multiple(left, right, bits).ok_or_else(|| conflict(ConflictKind::Overflow))?
            }
            Rule::Least => left.min(right),
            Rule::Greatest => left.max(right),
            Rule::Common if left & right == 0 => return Err(conflict(ConflictKind::Disjoint)),
            Rule::Common => left & right,
            Rule::Equal if left != right => return Err(conflict(ConflictKind::Different)),
            Rule::Equal => left,
        };
        Ok(Self { name: self.name, value })
    }
}

/// Whether who keeps to the second list keeps to the first one too. Both are sorted, each name once.
pub(crate) fn asks_no_more(less: &[Constraint], more: &[Constraint]) -> bool {
    let mut more = more.iter();
    less.iter().all(|asked| {
        let same = more.find(|other| other.name == asked.name);
        same.is_some_and(|other| asked.value == other.value || asked.implied_by(other.value))
    })
}

/// An order in which a list that asks for less is before all lists that ask for more.
pub(crate) fn by_demand(one: &[Constraint], other: &[Constraint]) -> Ordering {
    let names = || one.iter().map(|asked| asked.name).cmp(other.iter().map(|asked| asked.name));
    one.len().cmp(&other.len()).then_with(names).then_with(|| {
        let orders = one.iter().zip(other).map(|(one, other)| match one.name.rule() {
            Rule::Least | Rule::Common => other.value.cmp(&one.value),
            Rule::Multiple(_) | Rule::Greatest | Rule::Equal => one.value.cmp(&other.value),
        });
        orders.fold(Ordering::Equal, Ordering::then)
    })
}

/// The least common multiple, where it fits into so many bits; 0 counts as 1.
#[inline]
pub(crate) fn multiple(a: u64, b: u64, bits: u32) -> Option<u64> {
    let (a, b) = (a.max(1), b.max(1));
    let value = if a == b {
        a
    } else if a.is_power_of_two() && b.is_power_of_two() {
        a.max(b)
    } else {
        a.checked_mul(quotient(b, common_divisor(a, b)))?
    };
    (value <= u64::MAX >> (64 - bits)).then_some(value)
}

/// Many processors divide 32 bits in a third of the time.
fn quotient(a: u64, b: u64) -> u64 {
    match (u32::try_from(a), u32::try_from(b)) {
        (Ok(a), Ok(b)) => (a / b).into(),
        _ => a / b,
    }
}

/// Of two numbers that are not 0. Shifts and differences are faster than divisions, as alignments have many factors of
/// two and few others.
fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    let twos = (a | b).trailing_zeros();
    a >>= a.trailing_zeros();
    b >>= b.trailing_zeros();
    while a != b {
        let (less, more) = (a.min(b), a.max(b));
        (a, b) = (less, (more - less) >> (more - less).trailing_zeros());
    }
    a << twos
}

/// Merges two lists: what is in one alone stays as it is, and names are keys. The order is that of
/// the first list, then what only the second one has.
///
/// # Errors
///
/// The first conflict.
pub fn merge(left: &[Constraint], right: &[Constraint]) -> Result<Vec<Constraint>, Conflict> {
    let mut merged = Vec::with_capacity(left.len() + right.len());
    merge_into(&mut merged, left, right)?;
    Ok(merged)
}

/// Whether both lists have the same names, in the order of their numbers and so each once: as most drivers write them.
fn are_alike(left: &[Constraint], right: &[Constraint]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).all(|(left, right)| left.name == right.name)
        && left.windows(2).all(|two| two[0].name < two[1].name)
}

/// Merges two lists into a third, which is emptied first.
#[inline]
pub(crate) fn merge_into(
    merged: &mut Vec<Constraint>,
    left: &[Constraint],
    right: &[Constraint],
) -> Result<(), Conflict> {
    merged.clear();
    if are_alike(left, right) {
        for (left, right) in left.iter().zip(right) {
            merged.push(left.merge(*right)?);
        }
        return Ok(());
    }
    for list in [left, right] {
        for (at, constraint) in list.iter().enumerate() {
            // Lists are often alike.
            let guess = merged.get(at).filter(|known| known.name == constraint.name).map(|_| at);
            let like = |known: &Constraint| known.name == constraint.name;
            match guess.or_else(|| merged.iter().position(like)) {
                Some(at) => merged[at] = merged[at].merge(*constraint)?,
                None => merged.push(*constraint),
            }
        }
    }
    Ok(())
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, shown(self.name, self.value))
    }
}

/// What the bits of a value are called, from the lowest; nothing where it is a number.
fn words(name: ConstraintName) -> &'static [&'static str] {
    match name {
        ConstraintName::PLACEMENT => &["system", "contiguous", "local", "carveout", "protected"],
        ConstraintName::COHERENCY => &["cached", "write-combined", "uncached"],
        _ => &[],
    }
}

/// A value in the words of its name.
fn shown(name: ConstraintName, value: u64) -> String {
    if name == ConstraintName::MADE_BY {
        return format!("{}:{}", nix::libc::major(value), nix::libc::minor(value));
    }
    let words = words(name);
    if words.is_empty() {
        return value.to_string();
    }
    let known = words.iter().enumerate().filter(|(bit, _)| value >> bit & 1 == 1);
    let mut shown: Vec<String> = known.map(|(_, word)| (*word).to_owned()).collect();
    let rest = value >> words.len() << words.len();
    if rest != 0 || shown.is_empty() {
        shown.push(format!("{rest:#x}"));
    }
    shown.join("|")
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (left, right) = (shown(self.name, self.left), shown(self.name, self.right));
        write!(f, "{} {left} and {right} ", self.name)?;
        f.write_str(match self.kind {
            ConflictKind::Overflow => "have no common multiple that can be represented",
            ConflictKind::Disjoint => "have nothing in common",
            ConflictKind::Different if self.name == ConstraintName::MADE_BY => "are two devices",
            ConflictKind::Different => "differ, and what they mean is not known",
        })
    }
}

impl std::error::Error for Conflict {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (name, value, text) in [
            (ConstraintName::PITCH_ALIGNMENT, 64, r#"{"name":"pitch-alignment","value":64}"#),
            (ConstraintName::PLACEMENT, 5, r#"{"name":"placement","value":"system|local"}"#),
            (ConstraintName::PLACEMENT, 0x101, r#"{"name":"placement","value":257}"#),
            (ConstraintName::COHERENCY, 4, r#"{"name":"coherency","value":"uncached"}"#),
            (ConstraintName::MADE_BY, 0xe200, r#"{"name":"made-by","value":"226:0"}"#),
            (
                ConstraintName::MADE_BY,
                u64::MAX,
                r#"{"name":"made-by","value":"4294967295:4294967295"}"#,
            ),
            (ConstraintName(9), u64::MAX, r#"{"name":"0x9","value":18446744073709551615}"#),
        ] {
            let constraint = Constraint::new(name, value);
            assert_eq!(serde_json::to_string(&constraint).unwrap(), text);
            assert_eq!(serde_json::from_str::<Constraint>(text).unwrap(), constraint);
        }
        let number = r#"{"name":1853227008,"value":1}"#;
        let read = serde_json::from_str::<Constraint>(number).unwrap();
        assert_eq!(read.name, ConstraintName::OFFSET_ALIGNMENT);
    }
}
