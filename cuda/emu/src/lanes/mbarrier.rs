//! Barriers in memory (`mbarrier`): what operations make of the 64 bits of one, whose meaning PTX leaves open.
//!
//! ```text
//! bits  0..20  arrivals that the phase still waits for
//!      20..40  arrivals that each phase waits for
//!      40..62  bytes that the phase still waits for, signed
//!      62..64  the phase: programs tell the last from the one before
//! ```

use super::{LaneFn, lanes};

const COUNT: u64 = (1 << 20) - 1;
const BYTES: u64 = (1 << 22) - 1;

#[derive(Debug, Clone, Copy)]
struct Barrier {
    pending: u64,
    expected: u64,
    bytes: u64,
    phase: u64,
}

impl Barrier {
    fn of(state: u64) -> Self {
        Self {
            pending: state & COUNT,
            expected: state >> 20 & COUNT,
            bytes: state >> 40 & BYTES,
            phase: state >> 62,
        }
    }

    fn bits(self) -> u64 {
        self.pending & COUNT
            | (self.expected & COUNT) << 20
            | (self.bytes & BYTES) << 40
            | (self.phase & 3) << 62
    }

    /// The next phase, if nothing is waited for any more.
    fn advanced(self) -> u64 {
        match self.pending == 0 && self.bytes & BYTES == 0 {
            true => Self { pending: self.expected, phase: self.phase + 1, ..self }.bits(),
            false => self.bits(),
        }
    }
}

/// More arrivals than are waited for are undefined: the phase ends.
pub(crate) fn arrive(state: u64, count: u64) -> u64 {
    let barrier = Barrier::of(state);
    Barrier { pending: barrier.pending.saturating_sub(count & COUNT), ..barrier }.advanced()
}

/// An arrival as ATOMS.ARRIVE counts it: from minus the number of arrivals up to a carry, which is the phase.
///
/// ```text
/// bits  0..32  2^30 less the arrivals that each phase waits for
///      32..63  2^31 less the arrivals that the phase still waits for
///          63  the phase
/// ```
///
/// So the code shows that ptxas makes of `mbarrier` for sm_80: `init` stores it, `arrive_drop` adds to the first
/// word, and `test_wait` compares the highest bit.
pub(crate) fn arrive_in_halves(state: u64) -> u64 {
    const PHASE: u32 = 1 << 31;
    let (each, counter) = (state as u32, (state >> 32) as u32);
    let next = counter.wrapping_add(1);
    let next =
        if next & !PHASE == 0 { next & PHASE | each.wrapping_add(1 << 30) & !PHASE } else { next };
    u64::from(each) | u64::from(next) << 32
}

/// Arrives, and is not waited for in phases to come.
pub(crate) fn drop(state: u64, count: u64) -> u64 {
    let barrier = Barrier::of(state);
    let expected = barrier.expected.saturating_sub(count & COUNT);
    arrive(Barrier { expected, ..barrier }.bits(), count)
}

pub(crate) fn expect(state: u64, bytes: u64) -> u64 {
    let barrier = Barrier::of(state);
    Barrier { bytes: barrier.bytes.wrapping_add(bytes), ..barrier }.bits()
}

pub(crate) fn complete(state: u64, bytes: u64) -> u64 {
    let barrier = Barrier::of(state);
    Barrier { bytes: barrier.bytes.wrapping_sub(bytes), ..barrier }.advanced()
}

pub(crate) fn arrive_expecting(state: u64, bytes: u64) -> u64 {
    arrive(expect(state, bytes), 1)
}

pub(crate) fn drop_expecting(state: u64, bytes: u64) -> u64 {
    drop(expect(state, bytes), 1)
}

/// A barrier for a number of arrivals.
pub(crate) const INIT: LaneFn = lanes!(|count: u32| Barrier {
    pending: count.into(),
    expected: count.into(),
    bytes: 0,
    phase: 0
}
.bits());

/// Whether the phase of the second, which an arrival gave, is over in the first.
pub(crate) const IS_OVER: LaneFn =
    lanes!(|state: u64, token: u64| Barrier::of(state).phase != Barrier::of(token).phase);

/// Whether the phase of a parity is over, which is that of the barrier or the one before.
pub(crate) const PARITY_IS_OVER: LaneFn =
    lanes!(|state: u64, parity: u32| Barrier::of(state).phase & 1 != u64::from(parity & 1));

/// Arrivals that were waited for when an arrival gave the state.
pub(crate) const PENDING: LaneFn = lanes!(|token: u64| Barrier::of(token).pending as u32);

#[cfg(test)]
mod tests {
    use super::*;

    fn value(f: LaneFn, a: u64, b: u64) -> u64 {
        let (mut out, none) = ([0; 32], [0; 32]);
        f(&mut out, &[&[a; 32], &[b; 32], &none, &none]);
        out[0]
    }

    #[test]
    fn a_phase_waits_for_arrivals_and_bytes() {
        let first = value(INIT, 3, 0);
        let two = arrive(first, 2);
        assert_eq!((value(PENDING, first, 0), value(PENDING, two, 0)), (3, 1));
        assert_eq!(value(IS_OVER, two, first), 0);
        let waiting = arrive_expecting(two, 64);
        assert_eq!(value(IS_OVER, waiting, first), 0, "bytes are missing");
        let over = complete(complete(waiting, 32), 32);
        assert_eq!((value(IS_OVER, over, first), value(PENDING, over, 0)), (1, 3));
        // Bytes may come before they are expected.
        let early = expect(complete(arrive(over, 2), 16), 16);
        assert_eq!(value(IS_OVER, arrive(early, 1), over), 1);
    }

    #[test]
    fn arrivals_are_counted_up_to_a_carry() {
        let init =
            |count: u32| u64::from((1 << 30) - count) | u64::from((1u32 << 31) - count) << 32;
        let phase = |state: u64| state >> 63;
        let mut state = init(3);
        for round in 0..4 {
            for left in (1..=3).rev() {
                assert_eq!(
                    (phase(state), (1 << 31) - (state >> 32 & 0x7fff_ffff)),
                    (round & 1, left)
                );
                state = arrive_in_halves(state);
            }
        }
        assert_eq!(state, init(3));
    }

    #[test]
    fn parities_change_with_phases() {
        let mut state = value(INIT, 1, 0);
        for phase in 0..9 {
            assert_eq!(value(PARITY_IS_OVER, state, phase & 1), 0, "{phase}");
            assert_eq!(value(PARITY_IS_OVER, state, phase & 1 ^ 1), 1, "{phase}");
            state = arrive(state, 1);
        }
    }

    #[test]
    fn who_drops_out_is_not_waited_for_again() {
        let first = value(INIT, 3, 0);
        let second = arrive(drop(first, 1), 2);
        assert_eq!((value(IS_OVER, second, first), value(PENDING, second, 0)), (1, 2));
        let third = arrive(drop_expecting(complete(second, 8), 8), 1);
        assert_eq!((value(IS_OVER, third, second), value(PENDING, third, 0)), (1, 1));
        // More than are waited for end the phase.
        assert_eq!(value(IS_OVER, arrive(third, 7), third), 1);
    }
}
