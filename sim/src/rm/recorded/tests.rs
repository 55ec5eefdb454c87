//! Recordings of a few calls, of a driver with the commands that a profile needs and one of its own.

use std::sync::Arc;

use super::*;
use crate::Status;
use crate::rm::{Command, Field, Layout};

const NAME: u32 = 0x2080_0110;
const PCI: u32 = 0x2080_1801;
const ARCH: u32 = 0x2080_1701;
const MEMORY: u32 = 0x2080_1303;
const GID: u32 = 0x2080_014a;
const OWN: u32 = 0x2080_7777;
const WIDE: u32 = 0x2080_7778;
const UNNAMED: u32 = 0x2080_8888;
const RAM_SIZE: u32 = 7;

fn interface() -> Arc<Interface> {
    let mut interface = Interface { tag: "550.163.01".to_owned(), ..Interface::default() };
    let mut offset;
    for (name, number, fields) in [
        (
            "NV2080_CTRL_CMD_GPU_GET_NAME_STRING",
            NAME,
            vec![("gpuNameStringFlags", 4, 1), ("gpuNameString", 1, 64)],
        ),
        (
            "NV2080_CTRL_CMD_BUS_GET_PCI_INFO",
            PCI,
            vec![
                ("pciDeviceId", 4, 1),
                ("pciSubSystemId", 4, 1),
                ("pciRevisionId", 4, 1),
                ("pciExtDeviceId", 4, 1),
            ],
        ),
        (
            "NV2080_CTRL_CMD_MC_GET_ARCH_INFO",
            ARCH,
            vec![
                ("architecture", 4, 1),
                ("implementation", 4, 1),
                ("revision", 4, 1),
                ("subRevision", 1, 1),
            ],
        ),
        (
            "NV2080_CTRL_CMD_FB_GET_INFO_V2",
            MEMORY,
            vec![("fbInfoListSize", 4, 1), ("fbInfoList", 8, 4)],
        ),
        ("NV2080_CTRL_CMD_WIDE", WIDE, vec![("wide", 8, 1), ("odd", 12, 1)]),
        (
            "NV2080_CTRL_CMD_GPU_GET_GID_INFO",
            GID,
            vec![("index", 4, 1), ("flags", 4, 1), ("length", 4, 1), ("data", 1, 16)],
        ),
        (
            "NV2080_CTRL_CMD_OWN",
            OWN,
            vec![
                ("kind", 4, 1),
                ("value", 4, 1),
                ("uuid", 1, 16),
                ("serialNumber", 1, 12),
                ("hMemory", 4, 1),
            ],
        ),
    ] {
        offset = 0;
        let record = format!("{name}_PARAMS");
        let fields = fields.into_iter().map(|(name, size, count)| {
            let inner = match name {
                "fbInfoList" => Some("ENTRY".to_owned()),
                "gpuNameString" => Some("NAME".to_owned()),
                _ => None,
            };
            let (size, count) = if name == "gpuNameString" { (64, 1) } else { (size, count) };
            let field = Field { name: name.to_owned(), offset, size, count, record: inner };
            offset += size * count;
            field
        });
        let layout = Layout { fields: fields.collect(), size: offset };
        interface.records.insert(record.clone(), layout);
        interface.commands.push(Command { name: name.to_owned(), number, params: Some(record) });
    }
    let field = |name: &str, offset, size, count| Field {
        name: name.to_owned(),
        offset,
        size,
        count,
        record: None,
    };
    let entry = Layout { size: 8, fields: vec![field("index", 0, 4, 1), field("data", 4, 4, 1)] };
    let name = Layout { size: 64, fields: vec![field("ascii", 0, 1, 64)] };
    interface.records.extend([("ENTRY".to_owned(), entry), ("NAME".to_owned(), name)]);
    interface.constants.insert("NV2080_CTRL_FB_INFO_INDEX_RAM_SIZE".to_owned(), RAM_SIZE.into());
    // Those that `base` names, whatever they are in a driver.
    for (number, name) in (1..).zip(Profile::parent(PARENT).unwrap().constants()) {
        let value = name.parse::<Status>().map_or(number, |status| status.0.into());
        interface.constants.entry(name).or_insert(value);
    }
    Arc::new(interface)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A command whose parameters were these numbers, and became those.
fn call(command: u32, before: &[u32], after: &[u32]) -> Call {
    Call { command, before: words(before), after: words(after), ..Call::default() }
}

/// What a card is, and other calls.
fn recording(more: Vec<Call>) -> Recording {
    let mut name = call(NAME, &[0; 17], &[0; 17]);
    name.after[4..8].copy_from_slice(b"Card");
    let size = [1, RAM_SIZE, 8 << 20, 0, 0, 0, 0, 0, 0];
    let mut calls = vec![
        name,
        call(PCI, &[0; 4], &[0x2684_10de, 0x1234_10de, 0xa1, 0x2684]),
        Call {
            before: vec![0; 13],
            after: [words(&[0x190, 2, 0xa1]), vec![0]].concat(),
            ..call(ARCH, &[], &[])
        },
        call(MEMORY, &[1, RAM_SIZE, 0, 0, 0, 0, 0, 0, 0], &size),
    ];
    calls.extend(more);
    Recording { calls, ..Recording::default() }
}

fn made(recording: &Recording) -> MadeProfile {
    let made = profile_of(recording, &interface(), &["A card.".to_owned()]);
    made.unwrap_or_else(|why| match why {
        Unmade::Missing(lines) => panic!("{lines:#?}"),
        Unmade::Wrong(problems) => {
            panic!("{:#?}", problems.iter().map(ToString::to_string).collect::<Vec<_>>())
        }
    })
}

/// Parameters of the command that no profile knows.
fn own(kind: u32, value: u32, uuid: &[u8; 16], serial: &[u8; 12], handle: u32) -> Vec<u8> {
    [&words(&[kind, value])[..], uuid, serial, &words(&[handle])].concat()
}

#[test]
fn values_are_found_in_answers() {
    let text = made(&recording(Vec::new())).text;
    for line in [
        "name = \"Card\"",
        "device = 0x2684",
        "subsystem = 0x123410de",
        "architecture = 0x190",
        "size = \"=8 * GiB\"",
    ] {
        assert!(text.lines().any(|own| own == line), "{line}:\n{text}");
    }
    // What `base` has is not repeated.
    assert!(!text.contains("vendor") && !text.contains("[answers"), "{text}");
}

#[test]
fn what_no_profile_can_do_without_is_missing() {
    let mut recording = recording(Vec::new());
    recording.calls.retain(|call| call.command != MEMORY);
    let missing = vec!["memory.size: NV2080_CTRL_CMD_FB_GET_INFO_V2".to_owned()];
    assert_eq!(profile_of(&recording, &interface(), &[]).unwrap_err(), Unmade::Missing(missing));
}

#[test]
fn answers_of_its_own_are_told_apart_by_what_was_asked() {
    let ask = |kind, value| call(UNNAMED, &[kind, 0, 0], &[kind, value, 0]);
    let fails = |kind| Call { status: 0x56, ..call(UNNAMED, &[kind, 0, 0], &[kind, 0, 0]) };
    let made = made(&recording(vec![ask(3, 70), fails(4), ask(5, 71), ask(3, 70), ask(6, 71)]));
    let expected = "\
[[answers.0x20808888]]
only-if = \"=params.size == 12 && @+0x0 == 3\"
\"+0x4\" = 0x46

[[answers.0x20808888]]
only-if = \"=params.size == 12 && @+0x0 == 4\"
fails-with = \"=NV_ERR_NOT_SUPPORTED\"

[[answers.0x20808888]]
only-if = \"=params.size == 12 && (@+0x0 == 5 || @+0x0 == 6)\"
\"+0x4\" = 0x47
";
    assert!(made.text.contains(expected), "{}", made.text);
    assert_eq!((made.same, made.compared), (8, 8), "{:?}", made.notes);
}

#[test]
fn what_changes_with_time_keeps_its_first_value_and_is_told() {
    let ask = |value| call(UNNAMED, &[3, 0], &[3, value]);
    let made = made(&recording(vec![ask(70), ask(71), ask(72)]));
    assert!(
        made.text.contains("\"+0x4\" = 0x46\n") && !made.text.contains("0x47"),
        "{}",
        made.text
    );
    let note = "0x20808888: 2 of 3 answers changed while it was recorded; the first answer is kept";
    assert!(made.notes.iter().any(|own| own == note), "{:?}", made.notes);
    assert!(made.text.contains(&format!("# {note}")), "{}", made.text);
    assert_eq!((made.same, made.compared), (4, 6));
}

#[test]
fn identities_and_handles_do_not_enter() {
    let uuid = b"\x01\x23\x45\x67\x89\xab\xcd\xef\x11\x22\x33\x44\x55\x66\x77\x88";
    let after = own(1, 2, uuid, b"1234567\0\0\0\0\0", 0xcaf0_0001);
    let before = own(1, 0, &[0; 16], &[0; 12], 0);
    let made = made(&recording(vec![Call { before, after, ..call(OWN, &[], &[]) }]));
    let answer = "\
[answers.NV2080_CTRL_CMD_OWN]
\"value?\" = 2
\"serialNumber?\" = \"000000{gpu.index}\"
";
    assert!(made.text.contains(answer), "{}", made.text);
    for note in ["uuid is left out: it identifies the card", "hMemory is left out: it is a handle"]
    {
        let note = format!("NV2080_CTRL_CMD_OWN: {note}");
        assert!(made.notes.contains(&note), "{:?}", made.notes);
    }
}

/// Clocks of performance states come from lists of the card, by the lowest bits of the masks that were asked about.
#[test]
fn elements_of_lists_are_found_in_answers() {
    const STATES: u32 = 0x2080_a060;
    const CLOCKS: u32 = 0x2080_a06b;
    let mut masks = vec![0; 0xa518 / 4];
    for (at, word) in [(0x4, 3), (0x8, 2), (0x10, 1), (0x18, 4), (0x44, 1)] {
        masks[at / 4] = word;
    }
    for (at, mask) in [(0xa18, 4), (0x1420, 0x100)] {
        masks[at / 4] = mask;
    }
    let mut clocks = masks.clone();
    for (at, clock) in [
        (0x24, 9_751_000),
        (0x4c, 2),
        (0x50, 209_999),
        (0x54, 2_100_000),
        (0xa2c, 9_501_000),
        (0xa58, 1_995_000),
        (0x1434, 405_000),
        (0x1460, 420_000),
    ] {
        clocks[at / 4] = clock;
    }
    let states = call(STATES, &[0; 7], &[0, 0x105, 0, 15, 15, 0, 0]);
    let made = made(&recording(vec![states, call(CLOCKS, &masks, &clocks)]));
    for line in [
        "mask = 261",
        "memory = [9751, 0, 9501, 0, 0, 0, 0, 0, 405]",
        "graphics = [2100, 0, 1995, 0, 0, 0, 0, 0, 420]",
    ] {
        assert!(made.text.lines().any(|own| own.ends_with(line)), "{line}:\n{}", made.text);
    }
    assert!(!made.text.contains("[answers"), "{}", made.text);
    assert_eq!(made.same, made.compared, "{:?}", made.notes);
}

/// Whatever was recorded: nothing but a profile, or why there is none.
#[test]
fn hostile_recordings_do_no_harm() {
    for length in [0, 1, 3, 7, 1 << 11] {
        for byte in [0, 1, 0x22, 0x7f, 0xff] {
            let calls = [0, NAME, PCI, ARCH, MEMORY, OWN, UNNAMED].map(|command| Call {
                command,
                before: vec![byte; length],
                after: vec![byte ^ 0x55; length],
                buffers: vec![Memory {
                    address: u64::MAX - 3,
                    before: vec![byte; length],
                    after: vec![1],
                }],
                ..Call::default()
            });
            let own = recording(calls.to_vec());
            let text = made(&own).text;
            assert!(text.contains("size = \"=8 * GiB\""), "{text}");
        }
    }
}

/// What identifies a card is found by its bytes as well, where no header names the fields.
#[test]
fn identities_are_found_in_answers_without_names() {
    let uuid = [0x6745_2301, 0xefcd_ab89, 0x4433_2211, 0x8877_6655];
    let gid = call(GID, &[1, 2, 0, 0, 0, 0, 0], &[1, 2, 16, uuid[0], uuid[1], uuid[2], uuid[3]]);
    let unnamed = call(UNNAMED, &[0; 7], &[5, 0, uuid[0], uuid[1], uuid[2], uuid[3], 6]);
    let made = made(&recording(vec![gid, unnamed]));
    let answer = "only-if = \"=params.size == 28\"\n\"+0x0\" = 5\n\"+0x18\" = 6\n";
    assert!(made.text.contains(answer), "{}", made.text);
    let left_out =
        made.notes.iter().filter(|note| note.ends_with("it identifies the card")).count();
    assert_eq!(left_out, 4, "{:?}", made.notes);
}

#[test]
fn the_greatest_numbers_are_written_and_read() {
    let most = u32::MAX;
    let after = own(1, most, &[0; 16], &[0; 12], 0);
    let before = own(1, 0, &[0; 16], &[0; 12], 0);
    let wide = call(UNNAMED, &[0; 4], &[most; 4]);
    let size = call(MEMORY, &[1, 9, 0, 0, 0, 0, 0, 0, 0], &[1, 9, most, 0, 0, 0, 0, 0, 0]);
    // The second field is no number.
    let widest = call(WIDE, &[0; 5], &[most, most, 0, 0, 0]);
    let own = Call { before, after, ..call(OWN, &[], &[]) };
    let made = made(&recording(vec![own, wide, size, widest]));
    for line in [
        "\"value?\" = 0xffffffff",
        "\"wide?\" = 0xffffffffffffffff",
        "0x9 = 4294967295",
        "\"+0x0:4*4\" = [0xffffffff, 0xffffffff",
    ] {
        assert!(made.text.contains(line), "{line}\n{}", made.text);
    }
    assert_eq!(made.same, made.compared, "{:?}", made.notes);
}

#[test]
fn commands_of_channels_are_not_answers() {
    let made = made(&recording(vec![call(0xa06f_0103, &[0], &[7])]));
    assert!(!made.text.contains("0xa06f0103"), "{}", made.text);
}

#[test]
fn notes_of_elements_are_gathered() {
    let notes =
        ["A: l[0].b is left out", "A: l[0].c[1] is left out", "B", "A: l[12].b is left out", "[1"];
    let notes = super::of_elements(notes.map(str::to_owned).to_vec());
    let expected = ["A: l[…].b is left out (2 of them)", "A: l[0].c[1] is left out", "B", "[1"];
    assert_eq!(notes, expected);
}
