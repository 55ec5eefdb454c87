//! Two events, one of each trace, at the same step.

use crate::event::Event;
use crate::report::FindingKind;

/// How two events differ, if they do.
#[inline]
pub(super) fn difference(a: &Event, b: &Event, values: bool) -> Option<FindingKind> {
    if a.site != b.site || a.kind != b.kind {
        return Some(FindingKind::Path);
    }
    if a.mask != b.mask {
        // Which way lanes went that were active in one alone follows from that.
        let ways = a.direction != b.direction;
        return Some(if ways { FindingKind::Direction } else { FindingKind::Mask });
    }
    let ballots = a.ballot.zip(b.ballot).is_some_and(|(a, b)| a != b);
    if a.direction != b.direction || ballots {
        return Some(FindingKind::Direction);
    }
    // What was not recorded is zero, as gddbg v1 has it.
    (values && a.value.unwrap_or(0) != b.value.unwrap_or(0)).then_some(FindingKind::Value)
}

/// The lanes that make a difference, unless all of them went the other way.
pub(super) fn lanes(a: &Event, b: &Event) -> Option<u32> {
    let together =
        |event: &Event| event.ballot.is_none_or(|taken| taken == 0 || taken == event.mask);
    let ways = match together(a) && together(b) {
        true => 0,
        false => a.ballot.zip(b.ballot).map_or(0, |(a, b)| a ^ b),
    };
    Some(a.mask ^ b.mask | ways).filter(|lanes| *lanes != 0)
}

/// What stands for the place of an event.
pub(super) fn place(event: &Event) -> u64 {
    event.site.rotate_left(8) ^ u64::from(event.kind.0)
}

/// What stands for an event's place and the way that it went.
pub(super) fn way(event: &Event) -> u64 {
    place(event) ^ (u64::from(event.direction) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
