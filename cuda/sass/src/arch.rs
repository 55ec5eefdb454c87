use std::fmt;

/// An architecture whose instructions the table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arch {
    /// Ampere, A100.
    Sm80,
    /// Ampere, GeForce 30.
    Sm86,
    /// Ampere, Orin.
    Sm87,
    /// Ada.
    Sm89,
    /// Hopper.
    Sm90,
}

impl Arch {
    /// Every one, in the order of the table's bits.
    pub const ALL: [Arch; 5] = [Arch::Sm80, Arch::Sm86, Arch::Sm87, Arch::Sm89, Arch::Sm90];

    /// From the number behind `sm_`.
    pub fn from_number(number: u32) -> Option<Arch> {
        Arch::ALL.into_iter().find(|arch| arch.number() == number)
    }

    /// The number behind `sm_`.
    pub fn number(self) -> u32 {
        match self {
            Arch::Sm80 => 80,
            Arch::Sm86 => 86,
            Arch::Sm87 => 87,
            Arch::Sm89 => 89,
            Arch::Sm90 => 90,
        }
    }

    pub(crate) fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.number())
    }
}
