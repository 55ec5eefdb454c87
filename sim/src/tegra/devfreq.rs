//! `/sys/class/devfreq/17000000.gpu`: how fast the GPU runs.

use super::{Errno, Result};
use crate::machine::Text;

/// What the GPU can run at, in Hz.
pub(crate) const FREQUENCIES: [u64; 11] = [
    306_000_000,
    408_000_000,
    510_000_000,
    612_000_000,
    714_000_000,
    816_000_000,
    918_000_000,
    1_020_000_000,
    1_122_000_000,
    1_224_000_000,
    1_300_500_000,
];

/// An attribute of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Attribute {
    Min,
    Max,
    Current,
    Available,
    Governor,
}

impl Attribute {
    pub(crate) const ALL: [(&str, Attribute); 5] = [
        ("min_freq", Attribute::Min),
        ("max_freq", Attribute::Max),
        ("cur_freq", Attribute::Current),
        ("available_frequencies", Attribute::Available),
        ("governor", Attribute::Governor),
    ];

    /// The one that a file of text is.
    pub(super) fn of(text: Text) -> Option<Self> {
        Self::ALL.iter().map(|(_, attribute)| *attribute).find(|it| *it as u32 == text.id)
    }

    /// Whether it takes a value.
    pub(crate) fn is_writable(self) -> bool {
        matches!(self, Attribute::Min | Attribute::Max)
    }
}

/// The bounds that were asked for.
#[derive(Debug)]
pub(crate) struct Devfreq {
    min: u64,
    max: u64,
}

impl Devfreq {
    pub(super) fn new() -> Self {
        Self { min: FREQUENCIES[0], max: FREQUENCIES[FREQUENCIES.len() - 1] }
    }

    /// What an attribute says.
    pub(crate) fn show(&self, attribute: Attribute) -> String {
        match attribute {
            Attribute::Min => format!("{}\n", self.min),
            Attribute::Max => format!("{}\n", self.max),
            Attribute::Current => format!("{}\n", self.current()),
            Attribute::Governor => "nvhost_podgov\n".to_owned(),
            Attribute::Available => {
                let all: Vec<_> = FREQUENCIES.iter().map(u64::to_string).collect();
                format!("{}\n", all.join(" "))
            }
        }
    }

    /// Sets a bound.
    pub(crate) fn store(&mut self, attribute: Attribute, text: &str) -> Result<()> {
        let value: u64 = text.trim().parse().map_err(|_| Errno::EINVAL)?;
        match attribute {
            Attribute::Min => self.min = value,
            // Zero asks for no bound.
            Attribute::Max if value == 0 => self.max = FREQUENCIES[FREQUENCIES.len() - 1],
            Attribute::Max => self.max = value,
            _ => return Err(Errno::EACCES),
        }
        Ok(())
    }

    /// The lowest frequency that the bounds leave: the device is idle.
    fn current(&self) -> u64 {
        let floor = self.min.min(self.max);
        let fitting = FREQUENCIES.iter().copied().find(|frequency| *frequency >= floor);
        fitting.unwrap_or(FREQUENCIES[FREQUENCIES.len() - 1])
    }
}
