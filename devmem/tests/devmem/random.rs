//! Sets at random, from few values, so that they have something in common.

use nvabi_devmem::{Capability, CapabilitySet, Constraint, ConstraintName};

/// A generator of numbers (xorshift64*); a seed always gives the same ones.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }

    pub(crate) fn list<T>(&mut self, most: u64, one: impl Fn(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| one(self)).collect()
    }

    pub(crate) fn constraint(&mut self) -> Constraint {
        let unknown = [ConstraintName(77), ConstraintName(u32::MAX)];
        let known: Vec<ConstraintName> = ConstraintName::known().chain(unknown).collect();
        let name = self.of(&known);
        let values = [0, 1, 2, 3, 6, 64, 96, 256, 4096, 1 << 31, u32::MAX.into()];
        let wide = [1 << 32, (1 << 32) + 1, u64::MAX, u64::MAX - 58];
        let half = [ConstraintName::PITCH_ALIGNMENT, ConstraintName::MAX_PITCH].contains(&name);
        let value = if half || !self.one_in(8) { self.of(&values) } else { self.of(&wide) };
        Constraint::new(name, value)
    }

    pub(crate) fn capability(&mut self) -> Capability {
        let (vendor, name) = (self.of(&[0, 4318]), self.below(3) as u16);
        let payload = self.list(2, |random| random.below(2) as u32);
        Capability { required: self.one_in(4), ..Capability::new(vendor, name, payload) }
    }

    pub(crate) fn set(&mut self) -> CapabilitySet {
        CapabilitySet::new(self.list(3, Self::constraint), self.list(4, Self::capability))
    }

    pub(crate) fn sets(&mut self, most: u64) -> Vec<CapabilitySet> {
        self.list(most, Self::set)
    }
}
