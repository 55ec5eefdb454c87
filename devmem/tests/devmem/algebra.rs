//! What holds for any sets.

use nvabi_devmem::{
    Capability, CapabilitySet, ConflictKind, Constraint, ConstraintName, coherency, derive,
    derive_all, merge, placement,
};

use crate::random::Random;

const ROUNDS: u64 = 3000;

#[test]
fn the_order_of_lists_does_not_matter() {
    let mut some = 0;
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let mut lists: Vec<Vec<CapabilitySet>> =
            (0..2 + seed % 3).map(|_| random.sets(5)).collect();
        let first = derive_all(&lists).sets;
        some += usize::from(!first.is_empty());
        for _ in 0..4 {
            shuffle(&mut random, &mut lists);
            for list in &mut lists {
                shuffle(&mut random, list);
                for set in list.iter_mut() {
                    shuffle(&mut random, &mut set.constraints);
                    let mut capabilities = set.capabilities.to_vec();
                    shuffle(&mut random, &mut capabilities);
                    set.capabilities = capabilities.into();
                }
            }
            assert_eq!(derive_all(&lists).sets, first, "seed {seed}");
        }
    }
    assert!(some > ROUNDS as usize / 20, "only {some} rounds gave a set");
}

fn shuffle<T>(random: &mut Random, list: &mut [T]) {
    for at in 1..list.len() {
        list.swap(at, random.below(at as u64 + 1) as usize);
    }
}

#[test]
fn derive_is_what_pair_by_pair_gives() {
    let mut some = 0;
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let (left, right) = (random.sets(6), random.sets(6));
        let plain: Vec<CapabilitySet> = left
            .iter()
            .flat_map(|left| right.iter().filter_map(|right| plain(left, right)))
            .collect();
        some += plain.len();
        assert_eq!(derive(&left, &right), plain, "seed {seed}");
    }
    assert!(some > ROUNDS as usize / 4, "only {some} sets in all rounds");
}

/// One pair by the letter of the rules.
fn plain(left: &CapabilitySet, right: &CapabilitySet) -> Option<CapabilitySet> {
    let mut shared: Vec<Capability> = Vec::new();
    for capability in left.capabilities.iter() {
        let like = |other: &&Capability| other.matches(capability);
        if right.capabilities.iter().any(|other| other.matches(capability))
            && !shared.iter().any(|known| known.matches(capability))
        {
            let all = left.capabilities.iter().chain(right.capabilities.iter());
            let required = all.filter(like).any(|other| other.required);
            shared.push(Capability { required, ..capability.clone() });
        }
    }
    let kept = |required: &Capability| shared.iter().any(|known| known.matches(required));
    let mut required = left.capabilities.iter().chain(right.capabilities.iter());
    if shared.is_empty() || !required.all(|capability| !capability.required || kept(capability)) {
        return None;
    }
    Some(CapabilitySet::new(merge(&left.constraints, &right.constraints).ok()?, shared))
}

#[test]
fn a_merged_constraint_keeps_to_both() {
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let a = random.constraint();
        let b = Constraint { value: random.constraint().value, name: a.name };
        let merged = a.merge(b);
        assert_eq!(merged.ok(), b.merge(a).ok(), "{a} and {b}");
        let Ok(Constraint { value, .. }) = merged else { continue };
        for one in [a.value, b.value] {
            let kept = match a.name.to_string().as_str() {
                name if name.ends_with("alignment") || name == "page-size" => {
                    value % one.max(1) == 0
                }
                "max-pitch" | "max-size" | "address-bits" => value <= one,
                "row-padding" | "size-padding" | "contiguous" => value >= one,
                "placement" | "coherency" => value != 0 && value & !one == 0,
                _ => value == one,
            };
            assert!(kept, "{a} and {b} give {value}");
        }
    }
}

#[test]
fn conflicts_are_told_apart() {
    let kind = |name, a, b| {
        Constraint::new(name, a).merge(Constraint::new(name, b)).expect_err("a conflict").kind
    };
    let pitch = ConstraintName::PITCH_ALIGNMENT;
    assert_eq!(kind(pitch, 0xffff_ffff, 0xffff_fffe), ConflictKind::Overflow);
    let address = ConstraintName::ADDRESS_ALIGNMENT;
    assert_eq!(kind(address, u64::MAX, u64::MAX - 1), ConflictKind::Overflow);
    let (local, system) = (placement::LOCAL, placement::SYSTEM);
    assert_eq!(kind(ConstraintName::PLACEMENT, local, system), ConflictKind::Disjoint);
    let (cached, uncached) = (coherency::CACHED, coherency::UNCACHED);
    assert_eq!(kind(ConstraintName::COHERENCY, cached, uncached), ConflictKind::Disjoint);
    assert_eq!(kind(ConstraintName(9), 1, 2), ConflictKind::Different);
}

#[test]
fn explicit_and_implicit_modifiers_do_not_match() {
    let explicit = Capability::modifier(0x0300_0000_0000_0010);
    let implicit = Capability::implicit(0x0300_0000_0000_0010);
    assert!(!explicit.matches(&implicit));
    assert!(!Capability::implicit(1).matches(&Capability::implicit(2)));
    assert!(Capability::modifier(0).is_pitch_linear());
    assert_eq!(explicit.as_modifier(), Some(0x0300_0000_0000_0010));
}

#[test]
fn opaque_bytes_are_padded_with_zeros() {
    assert_eq!(Capability::opaque(4318, 7, &[1, 2, 3, 4, 5]).payload, [0x0403_0201, 5]);
    assert!(Capability::opaque(4318, 7, &[1, 2, 3, 4, 5, 0]).matches(&Capability::opaque(
        4318,
        7,
        &[1, 2, 3, 4, 5]
    )));
}

/// Sets of devices that all merge, and of which none asks for less than another: who takes longer rows wants
/// more behind them.
fn incomparable(devices: u64, sets: u64) -> Vec<Vec<CapabilitySet>> {
    let mut random = Random::new(devices);
    let mut set = || {
        let names = [
            (ConstraintName::MAX_PITCH, ConstraintName::ROW_PADDING),
            (ConstraintName::MAX_SIZE, ConstraintName::SIZE_PADDING),
        ];
        let constraints = names.map(|(most, padding)| {
            let value = random.below(1 << 20);
            [Constraint::new(most, value), Constraint::new(padding, value)]
        });
        CapabilitySet::new(constraints.concat(), [Capability::pitch_linear()])
    };
    (0..devices).map(|_| (0..sets).map(|_| set()).collect()).collect()
}

#[test]
fn more_sets_than_can_be_looked_at_are_told() {
    assert!(derive_all(&incomparable(2, 16)).complete);
    // The longest case is measured by `benches/devmem.sh`.
    for lists in [incomparable(5, 20), incomparable(6, 24)] {
        let some = derive_all(&lists);
        assert!(!some.sets.is_empty() && some.sets.len() <= 256, "{}", some.sets.len());
        assert!(!some.complete);
        for set in &some.sets {
            let one = derive_all(&[&lists[0][..], std::slice::from_ref(set)]);
            assert!(!one.sets.is_empty(), "{set} does not serve the first");
        }
        let mut turned = lists.clone();
        turned.reverse();
        turned.iter_mut().for_each(|list| list.reverse());
        assert_eq!(derive_all(&turned), some);
    }
}

#[test]
fn a_set_that_asks_for_more_than_another_is_left_out() {
    let set = |alignment, max| {
        let constraints = [
            Constraint::new(ConstraintName::PITCH_ALIGNMENT, alignment),
            Constraint::new(ConstraintName::MAX_PITCH, max),
        ];
        CapabilitySet::new(constraints, [Capability::pitch_linear()])
    };
    let list = [set(64, 4096), set(128, 4096), set(64, 2048), set(48, 2048), set(96, 8192)];
    let kept = derive_all(&[&list[..]]);
    assert_eq!(kept.sets, [set(48, 2048), set(64, 4096), set(96, 8192)]);
    assert!(kept.complete);
}

#[test]
fn what_is_left_out_serves_nobody_whom_the_rest_does_not_serve() {
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let (left, right) = (random.sets(8), random.sets(8));
        let all = derive_all(&[derive(&left, &right)]);
        assert_eq!(derive_all(&[left, right]), all, "seed {seed}");
    }
}
