//! The registers that clients map: a doorbell, which says that there is work, and a timer.

use super::Clock;
use crate::memory::Memory;

/// Bytes of them.
pub(crate) const USERMODE_SIZE: u64 = 64 << 10;
/// The timer in them.
const TIME: u64 = 0x80;
/// The doorbell in them.
const DOORBELL: u64 = 0x90;
/// What stands in the doorbell while nobody rings: no channel's token.
const NO_TOKEN: u32 = u32::MAX;

/// Nobody rings.
pub(crate) fn clear(registers: &Memory) {
    registers.write(DOORBELL, &NO_TOKEN.to_le_bytes());
}

/// Whether there is a token in the doorbell.
pub(crate) fn is_rung(registers: &Memory) -> bool {
    registers.load(DOORBELL) != Some(NO_TOKEN)
}

/// Takes the token out of the doorbell, so that the same one can come again.
pub(crate) fn take_token(registers: &Memory) -> Option<u32> {
    let token = registers.swap(DOORBELL, NO_TOKEN)?;
    (token != NO_TOKEN).then_some(token)
}

/// Sets the timer.
pub(crate) fn set_time(registers: &Memory, clock: &Clock) {
    registers.write(TIME, &clock.gpu().to_le_bytes());
}
