//! What a finding is, as far as the recorded events prove it: no guesses but those called hints.

use super::event::{Event, EventKind};
use super::report::{Class, Finding, FindingKind};

/// What a finding is, from its events and its history. Loops are told by who aligns the events.
pub fn classify(finding: &Finding) -> Option<Class> {
    let (a, b) = (finding.event_a?, finding.event_b?);
    if a.site != b.site || a.mask != b.mask {
        return None;
    }
    match finding.kind {
        FindingKind::Direction => earlier(finding).or_else(|| operand(a, b)),
        FindingKind::Value if a.kind == EventKind::ATOMIC && finding.first => {
            earlier(finding).is_none().then_some(Class::RaceSuspected)
        }
        _ => None,
    }
}

/// The first step of the history whose values differ.
fn earlier(finding: &Finding) -> Option<Class> {
    let step = finding.history.iter().find(|step| step.a.value != step.b.value)?;
    Some(Class::EarlierValue { site: step.a.site, index_a: step.index_a })
}

fn operand(a: Event, b: Event) -> Option<Class> {
    match (a.value?, b.value?) {
        // What was not recorded is zero in gddbg v1.
        (0, 0) => None,
        (a, b) if a == b => Some(Class::OtherOperand),
        _ => Some(Class::InputDependentBranch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::FindingKey;
    use crate::report::Step;

    fn event(kind: EventKind, site: u64, value: u64) -> Event {
        Event { site, kind, direction: 0, mask: !0, ballot: None, value: Some(value) }
    }

    fn finding(kind: FindingKind, a: Event, b: Event) -> Finding {
        let place = FindingKey { launch: 0, warp: 0, kind, site: a.site, index_a: 1 };
        Finding { first: true, event_a: Some(a), event_b: Some(b), ..Finding::at(place, 1) }
    }

    fn step(a: u64, b: u64) -> Step {
        let store = |value| event(EventKind::SHARED_STORE, 3, value);
        Step { index_a: 0, index_b: 0, a: store(a), b: store(b) }
    }

    #[test]
    fn operands_tell_of_which_side_a_branch_depends() {
        let branch = |value| event(EventKind::BRANCH, 5, value);
        let mut found = finding(FindingKind::Direction, branch(1), branch(2));
        assert_eq!(classify(&found), Some(Class::InputDependentBranch));
        found.history = vec![step(4, 4)];
        assert_eq!(classify(&found), Some(Class::InputDependentBranch));
        found.history = vec![step(4, 5)];
        assert_eq!(classify(&found), Some(Class::EarlierValue { site: 3, index_a: 0 }));
        let found = finding(FindingKind::Direction, branch(1), branch(1));
        assert_eq!(classify(&found), Some(Class::OtherOperand));
        assert_eq!(classify(&finding(FindingKind::Direction, branch(0), branch(0))), None);
        let unknown = Event { value: None, ..branch(1) };
        assert_eq!(classify(&finding(FindingKind::Direction, unknown, branch(1))), None);
    }

    #[test]
    fn atomics_hint_at_a_race_only_where_all_else_agrees() {
        let atomic = |value| event(EventKind::ATOMIC, 5, value);
        let mut found = finding(FindingKind::Value, atomic(1), atomic(2));
        assert_eq!(classify(&found), Some(Class::RaceSuspected));
        assert!(!Class::RaceSuspected.proven());
        found.first = false;
        assert_eq!(classify(&found), None);
        let other_lanes = Event { mask: 1, ..atomic(2) };
        assert_eq!(classify(&finding(FindingKind::Value, atomic(1), other_lanes)), None);
        let store = event(EventKind::SHARED_STORE, 5, 1);
        assert_eq!(
            classify(&finding(FindingKind::Value, store, Event { value: None, ..store })),
            None
        );
    }
}
