//! What is said when no memory serves every device.

use nvabi_devmem::{
    Capability, CapabilitySet, Cause, Constraint, ConstraintName, Offer, Operation, Relaxation,
    Use, derive_all, explain, placement, plan,
};

use crate::random::Random;

const TILED: u64 = 0x0300_0000_0000_0014;

fn offer(text: &str, sets: impl Into<Vec<CapabilitySet>>) -> Offer {
    Offer { of: text.parse().expect("a use"), sets: sets.into() }
}

fn tiled() -> Capability {
    Capability::modifier(TILED)
}

fn set(constraints: &[(ConstraintName, u64)], capabilities: &[Capability]) -> CapabilitySet {
    let constraints = constraints.iter().map(|(name, value)| Constraint::new(*name, *value));
    CapabilitySet::new(constraints.collect::<Vec<_>>(), capabilities)
}

fn text(offers: &[Offer]) -> String {
    plan(offers).expect_err("no memory").to_string()
}

#[test]
fn a_capability_that_one_requires() {
    let compressed = Capability::new(4318, 2, vec![1]).required();
    let gpu = offer("gpu:texture", [set(&[], &[tiled(), compressed])]);
    let display = offer("display:scanout", [set(&[], &[tiled()])]);
    insta::assert_snapshot!(text(&[gpu.clone(), display.clone()]), @r"
    no memory serves gpu:texture and display:scanout: gpu:texture needs 0x10de:2(1) (required), which display:scanout does not have
      help: do without 0x10de:2(1) on gpu, for texture
      help: accept modifier NVIDIA_BLOCK_LINEAR_2D(0, 0, 0, 0, 4) on gpu, for texture
      help: drop texture on gpu
    ");
    // The same from the other side.
    let reasons = explain(&[display.clone(), gpu.clone()]).reasons;
    let Cause::Required { by, lacks, .. } = &reasons[0].cause else { panic!("{reasons:?}") };
    assert_eq!((by, lacks), (&gpu.of, &display.of));
}

#[test]
fn nothing_in_common() {
    let gpu = offer("gpu:render", [set(&[], &[tiled()])]);
    let display = offer("display:scanout", [set(&[], &[Capability::pitch_linear()])]);
    let camera = offer("camera:capture", [set(&[], &[Capability::pitch_linear()])]);
    insta::assert_snapshot!(text(&[camera, gpu, display]), @r"
    no memory serves camera:capture and gpu:render: no capability in common: pitch-linear and modifier NVIDIA_BLOCK_LINEAR_2D(0, 0, 0, 0, 4)
      help: accept pitch-linear on gpu, for render
      help: drop render on gpu
    ");
}

#[test]
fn constraints_in_conflict() {
    let linear = [Capability::pitch_linear()];
    let gpu = offer("gpu:render", [set(&[(ConstraintName::PLACEMENT, placement::LOCAL)], &linear)]);
    let heap = placement::SYSTEM | placement::CONTIGUOUS;
    let camera = offer("camera:capture", [set(&[(ConstraintName::PLACEMENT, heap)], &linear)]);
    insta::assert_snapshot!(text(&[gpu, camera]), @r"
    no memory serves gpu:render and camera:capture: placement local and system|contiguous have nothing in common
      help: lift placement on gpu, for render
      help: drop render on gpu
    ");
}

#[test]
fn three_of_which_any_two_agree() {
    let [a, b, c] = [1, 2, 3].map(|name| Capability::new(4318, name, Vec::new()));
    let one = offer("gpu:render", [set(&[], &[a.clone(), b.clone()])]);
    let two = offer("display:scanout", [set(&[], &[b, c.clone()])]);
    let three = offer("encoder:encode", [set(&[], &[a, c])]);
    let any = offer(
        "camera:capture",
        [1, 2, 3].map(|name| {
            set(&[], &[1, 2, 3].map(|other| Capability::new(4318, (name + other) % 3 + 1, vec![])))
        }),
    );
    let explanation = explain(&[one.clone(), any, two.clone(), three.clone()]);
    assert_eq!(explanation.between, [&one, &two, &three].map(|offer| offer.of.clone()));
    insta::assert_snapshot!(text(&[one, two, three]), @r"
    no memory serves gpu:render and display:scanout and encoder:encode: no capability in common: 0x10de:2 and 0x10de:1 + 0x10de:3
      help: accept 0x10de:3 on gpu, for render
      help: drop render on gpu
    ");
}

#[test]
fn a_device_that_cannot() {
    let gpu = offer("gpu:render", [set(&[], &[tiled()])]);
    insta::assert_snapshot!(text(&[gpu, offer("encoder:encode", [])]), @r"
    no memory serves encoder:encode: encoder cannot encode such an image
      help: drop encode on encoder
    ");
}

#[test]
fn several_uses_must_go() {
    let only = |text: &str, name| offer(text, [set(&[], &[Capability::new(4318, name, vec![])])]);
    let offers = [
        only("gpu:render", 1),
        only("display:scanout", 2),
        only("encoder:encode", 3),
        only("camera:capture", 4),
    ];
    let all = Relaxation::Drop { of: offers[1..].iter().map(|offer| offer.of.clone()).collect() };
    assert_eq!(explain(&offers).relaxations, [all]);
}

#[test]
fn json_names_device_set_and_cause() {
    let gpu = offer("gpu:render", [set(&[(ConstraintName(9), 1)], &[tiled()])]);
    let display = offer("display:scanout", [set(&[(ConstraintName(9), 2)], &[tiled()])]);
    let json = serde_json::to_value(explain(&[gpu, display])).expect("JSON");
    let place = |device, operation| serde_json::json!({ "use": { "device": device, "operation": operation }, "set": 0 });
    let rejection = serde_json::json!({
        "sets": [place("gpu", "render"), place("display", "scanout")],
        "cause": { "kind": "conflict", "name": "0x9", "left": 1, "right": 2, "why": "different" },
    });
    assert_eq!(json["reasons"], serde_json::json!([rejection]));
    assert_eq!(json["rejections"], json["reasons"]);
    let gpu = &place("gpu", "render")["use"];
    let without = serde_json::json!({ "kind": "without", "of": gpu, "constraint": "0x9" });
    assert_eq!(json["relaxations"][0], without);
}

#[test]
fn nothing_to_explain() {
    let gpu = offer("gpu:render", [set(&[], &[tiled()])]);
    let explanation = explain(&[gpu.clone(), gpu]);
    assert!(explanation.reasons.is_empty() && explanation.relaxations.is_empty());
}

/// Whatever the offers are: a failure has a reason, each relaxation that is named helps, and each
/// pair that is not in the result is among the rejections.
/// Whoever wrote the offers chose the names: what is said of them is shown line by line.
#[test]
fn a_devices_name_is_one_line() {
    let wrong = "gpu\n  help: x:texture".parse::<Use>().expect_err("no name");
    assert!(wrong.contains(r"`gpu\n  help: x` has the control character \n"), "{wrong}");
    let json = r#"{"use": {"device": "gpu\u001b[2J", "operation": "texture"}, "sets": []}"#;
    let wrong = serde_json::from_str::<Offer>(json).expect_err("no name").to_string();
    assert!(wrong.contains(r"control character \u{1b}"), "{wrong}");
}

/// Two devices that share nothing, with so many sets each, of which no two are alike.
fn strangers(sets: u16) -> Vec<Offer> {
    let of = |text, vendor| {
        let set = |name| set(&[], &[Capability::new(vendor, name, vec![])]);
        offer(text, (0..sets).map(set).collect::<Vec<_>>())
    };
    vec![of("gpu:render", 4318), of("npu:render", 6666)]
}

/// How long it takes is measured by `benches/devmem.sh`.
#[test]
fn what_is_too_much_to_look_for_is_told_and_the_verdict_stands() {
    let few = explain(&strangers(20));
    assert!(few.ruled_out && few.complete);
    assert_eq!(few.relaxations.len(), 42, "each takes what the other has, or is left out");
    let many = explain(&strangers(100));
    assert!(many.ruled_out && !many.complete);
    assert!(many.relaxations.len() < 150, "{}", many.relaxations.len());
    let text = many.to_string();
    assert!(text.starts_with("no memory serves gpu:render and npu:render: "), "{text}");
    assert!(text.contains("note: not every reason"), "{text}");
    assert!(text.contains("help: drop render on gpu"), "{text}");
    // Of too many it is not known that nothing serves them.
    let unknown = explain(&strangers(300));
    assert!(!unknown.ruled_out && !unknown.complete);
    assert!(unknown.to_string().starts_with("found no memory that serves"), "{unknown}");
}

#[test]
fn a_set_that_allows_nothing_is_of_no_use() {
    let set = |value| {
        let constraint = Constraint::new(ConstraintName::PLACEMENT, value);
        CapabilitySet::new([constraint], [Capability::pitch_linear()])
    };
    assert_eq!(derive_all(&[[set(placement::SYSTEM)]]).sets.len(), 1);
    let why = plan(&[offer("gpu:render", [set(0)])]).expect_err("no memory is nowhere");
    assert!(why.to_string().contains("placement 0 allows nothing"), "{why}");
}

#[test]
fn explanations_hold() {
    let (mut failures, mut changes) = (0, 0);
    for seed in 0..1500 {
        let mut random = Random::new(seed);
        let operations = [Operation::Render, Operation::Scanout, Operation::Encode];
        let offers: Vec<Offer> = (0..2 + seed as usize % 2)
            .map(|at| Offer {
                of: Use::new(format!("device{at}"), operations[at]),
                sets: random.sets(3),
            })
            .collect();
        let Err(explanation) = plan(&offers) else { continue };
        failures += 1;
        assert!(!explanation.reasons.is_empty(), "seed {seed}: no reason");
        assert!(!explanation.between.is_empty(), "seed {seed}");
        let group: Vec<&Offer> =
            offers.iter().filter(|offer| explanation.between.contains(&offer.of)).collect();
        assert!(derive_all(&group).sets.is_empty(), "seed {seed}: the group has memory");
        for at in 0..group.len() {
            let mut fewer = group.clone();
            fewer.remove(at);
            assert!(
                fewer.is_empty() || !derive_all(&fewer).sets.is_empty(),
                "seed {seed}: not smallest"
            );
        }
        for change in &explanation.relaxations {
            changes += 1;
            assert!(!derive_all(&change.applied(&offers)).sets.is_empty(), "seed {seed}: {change}");
        }
        if offers.len() == 2 && offers.iter().all(|offer| !offer.sets.is_empty()) {
            let lost = explanation.rejections.iter().filter(|each| each.sets.len() == 2).count();
            let alone = explanation.rejections.iter().filter(|each| each.sets.len() == 1);
            let of =
                |offer: &Offer| alone.clone().filter(|each| each.sets[0].of == offer.of).count();
            let of_use = |offer: &Offer| offer.sets.len() - of(offer);
            assert_eq!(lost, of_use(&offers[0]) * of_use(&offers[1]), "seed {seed}");
        }
    }
    assert!(failures > 200 && changes > 200, "{failures} failures, {changes} changes");
}
