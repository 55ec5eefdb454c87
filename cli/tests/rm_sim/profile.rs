//! Profiles of GPUs: those of the command fit every branch, and a wrong one is refused with its places.

use std::fs;
use std::process::Command;

use crate::client::{Client, Struct};
use crate::{diagnostics, simulate};

const TAG: &str = "550.163.01";

fn nvabi(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_nvabi")).args(args).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// What is said of a profile that extends `base`'s card with these lines.
fn complaints(lines: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    fs::write(&path, format!("extends = \"rtx3090\"\n{lines}\n")).unwrap();
    nvabi(&["rm", "check", path.to_str().unwrap(), "--tag", TAG])
}

#[test]
fn all_profiles_fit_every_branch() {
    let (code, told) = nvabi(&["rm", "check"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(
        told.contains("Checked a100, hgx-a100, rtx3090 against 1")
            && told.contains("; rtxpro6000 against "),
        "{told}"
    );
}

/// A driver that has no class of a card's does not know it, whether it is alone or one of several.
#[test]
fn a_card_needs_a_driver_that_knows_it() {
    let message =
        "550.163.01 does not know the card `rtxpro6000`: it has no class BLACKWELL_COMPUTE_B";
    for args in [
        &["check", "rtxpro6000", "--tag", TAG][..],
        &["check", "a100", "rtxpro6000", "--tag", TAG],
        &["sim", "--tag", TAG, "--gpu", "rtxpro6000", "--", "true"],
        &["sim", "--tag", TAG, "--gpu", "a100", "--gpu", "rtxpro6000", "--", "true"],
    ] {
        let (code, told) = nvabi(&[&["rm"], args].concat());
        assert_eq!(code, Some(if args[0] == "check" { 1 } else { 2 }), "{args:?}: {told}");
        assert!(told.contains(message) && !told.contains("Checked"), "{args:?}: {told}");
    }
    let (code, told) = nvabi(&["rm", "check", "rtxpro6000", "--tag", TAG, "--tag", "570.124.06"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("Checked rtxpro6000 against 1 drivers"), "{told}");
}

/// Both ends of a link are alike, and a card has no more links than it has.
#[test]
fn cards_that_differ_are_not_linked() {
    for (args, message) in [
        (
            &["--topology", "dgx-a100", "--gpu", "a100", "--gpu", "h100"][..],
            "cards on the same switches are of one kind",
        ),
        (&["--gpu", "hgx-a100", "--gpu", "hgx-h100"], "cards on the same switches are of one kind"),
        (
            &["--topology", "linked-pair", "--gpu", "a100", "--gpu", "h100"],
            "NVLinks of different generations",
        ),
        (
            &["--topology", "linked-pair", "--gpu", "l4", "--gpus", "2"],
            "GPU 0 (`l4`) has 0 NVLinks, the topology gives it 4",
        ),
    ] {
        let (code, told) = nvabi(&[&["rm", "sim", "--tag", TAG], args, &["--", "true"]].concat());
        assert!(code != Some(0) && told.contains(message), "{args:?}: {code:?} {told}");
    }
    // A card without links may be beside those that have them.
    let mixed = ["--topology", "dgx-a100", "--gpu", "a100", "--gpu", "l4", "--", "true"];
    let (code, told) = nvabi(&[&["rm", "sim", "--tag", TAG], &mixed[..]].concat());
    assert_eq!(code, Some(0), "{told}");
}

/// A name that nothing has is one that was not meant; one that an answer uses is.
#[test]
fn a_value_is_one_that_something_has_or_uses() {
    let used = "[memory]\nspare = 3\n[state]\nfoo = 1\n[reset]\nfoo = 2\n[answers]\n\
                NV2080_CTRL_CMD_GPU_QUERY_COMPUTE_MODE_RULES = { rules = \"=memory.spare + state.foo\" }";
    assert_eq!(complaints(used).0, Some(0), "{}", complaints(used).1);
    assert_eq!(complaints("[identity]\nname = \"X\"\nsku = \"1\"").0, Some(0));
    let long = format!("[identity]\nname = \"{}\"", "x".repeat(200));
    for (lines, message) in [
        ("[identity]\nnam = \"X\"", "nothing has or uses a value `identity.nam`"),
        ("[identity]\nnam = \"X\"", "did you mean `identity.name`?"),
        ("[state]\nfoo = 1", "a value `state.foo`"),
        ("[reset]\nfoo = 1", "a value `reset.foo`"),
        ("[memory]\nsizee = 3", "did you mean `memory.size`?"),
        ("[clocks]\ngraphics.maxx = 1", "did you mean `clocks.graphics.max`?"),
        ("size = 1", "a value `size`"),
        ("[memory]\nsize = -5", "`memory.size` is -5: expected 1 to "),
        ("[memory]\nsize = 0", "`memory.size` is 0: expected 1 to "),
        ("[bars]\nwindow.size = 0", "`bars.window.size` is 0"),
        ("[identity]\ndevice = 0x12345", "`identity.device` is 74565: expected 1 to 65535"),
        ("[bars]\nwindow.size = 3", "`bars.window.size` is 3: expected a power of two"),
        ("[pcie]\nwidth = 99", "`pcie.width` is 99: expected 0 to 32"),
        ("[pcie]\ngeneration = 9", "`pcie.generation` is 9: expected 0 to 6"),
        ("[identity]\nname = \" \"", "`identity.name` is empty"),
        ("[state]\ntemperature = 300", "`state.temperature` is 300: expected 0 to 200"),
        ("[thermal]\nslowdown = -1", "`thermal.slowdown` is -1: expected 0 to 200"),
        ("[bars]\nwindow.size = 1", "`bars.window.size` is 1: expected 1048576 to"),
        ("[bars]\nregisters.size = 1", "`bars.registers.size` is 1: expected 16777216 to"),
        (
            "[graphics]\ntpcs = [6, 6, 6, 6, 6, 6, 6]",
            "`graphics.tpcs` has 42 TPCs in all, and `graphics.tpc_count` is 41",
        ),
        (
            "[graphics]\ntpcs = [29, 2, 2, 2, 2, 2, 2]",
            "has 29 TPCs in a GPC, and `graphics.max_tpcs_per_gpc` is 6",
        ),
        ("[graphics]\ntpcs = [5, 5, 5, 5, 5, 5, 5, 6]", "has 8 GPCs, and `graphics.max_gpcs` is 7"),
        ("[links]\ncount = 99", "`links.count` is 99: expected 0 to 32"),
        ("[graphics]\nmax_gpcs = 36", "`graphics.max_gpcs` is 36"),
        ("[memory]\nreserved = \"=1 * TiB\"", "and `memory.size` no more than "),
        (
            "[power]\nmin_limit = 900000",
            "`power.min_limit` is 900000, and `power.max_limit` no more",
        ),
        (&long, "`identity.name`: a text of 200 letters and its end do not fit 64 bytes"),
    ] {
        let (status, told) = complaints(lines);
        assert_eq!(status, Some(1), "{lines}: {told}");
        assert!(told.contains(message) && told.contains("mine.toml:"), "{lines}: {told}");
    }
}

/// A file that never ends, or that nobody writes, is no profile and no topology.
#[test]
fn a_profile_is_a_regular_file_of_some_mib() {
    let folder = tempfile::tempdir().unwrap();
    let large = folder.path().join("large.toml");
    fs::File::create(&large).unwrap().set_len(17 << 20).unwrap();
    let pipe = folder.path().join("pipe.toml");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (path, expected) in [
        (large.to_str().unwrap(), "expected at most 16 MiB"),
        ("/dev/zero", "expected a regular file"),
        (pipe.to_str().unwrap(), "expected a regular file"),
    ] {
        for option in ["--gpu", "--topology"] {
            let (code, told) = nvabi(&["rm", "sim", option, path, "--", "true"]);
            assert_eq!(code, Some(2), "{told}");
            let text = format!("cannot read {path}: {expected}");
            assert!(told.contains(&text), "{option}: {told}");
        }
    }
}

/// Mistakes of reading, of values, and of names that the driver has not: each once, at what is wrong.
#[test]
fn one_run_tells_of_all_mistakes() {
    const LINES: &str = r#"classes = ["AMPERE_COMPUTE_B", "AMPERE_COMPUTER"]
identity.nam = "X"
identity.device = "=1 +"
memory.size = "=memory.none"
memory.reserved = [1, 2.5, "=)"]
[lists]
bus.NOTHING = 1
mine.A = "=identity.device"
[answers]
NV2080_CTRL_CMD_BUS_GET_NOTHING = { a = 1 }
NV2080_CTRL_CMD_GPU_QUERY_COMPUTE_MODE_RULES = { rule = 1, only-iff = 1, rules = 1.5 }
NV2080_CTRL_CMD_BUS_GET_PEX_UTIL_COUNTERS = { pexCounters = [1,2,3,4,5,6,7,8], only-if = "=memory.nowhere" }
[objects]
NV_NOTHING = { below = ["device", "devic"], belo = 3 }"#;
    const EXPECTED: [&str; 17] = [
        "profile-unknown-class 2:32",
        "profile-unknown-value 3:10",
        "profile-not-read 4:19",
        "profile-no-value 5:15",
        "profile-not-read 6:23",
        "profile-not-read 6:28",
        "profile-unknown-index 8:5",
        "profile-not-read 9:1",
        "profile-unknown-command 11:1",
        "profile-unknown-field 12:50",
        "profile-not-read 12:60",
        "profile-not-read 12:82",
        "profile-does-not-fit 13:61",
        "profile-no-value 13:90",
        "profile-unknown-class 15:1",
        "profile-not-read 15:35",
        "profile-not-read 15:45",
    ];
    let (status, told) = complaints(LINES);
    assert_eq!(status, Some(1), "{told}");
    let codes = told.lines().filter_map(|line| line.strip_prefix("error[")?.split_once(']'));
    let places = told.lines().filter_map(|line| line.split_once("mine.toml:"));
    let seen = codes.zip(places).map(|((code, _), (_, place))| format!("{code} {place}"));
    assert_eq!(seen.collect::<Vec<_>>(), EXPECTED, "{told}");
}

#[test]
fn a_wrong_profile_is_refused_with_its_places() {
    assert_eq!(complaints("").0, Some(0));
    for (lines, code, message) in [
        (
            "[answers]\nNV2080_CTRL_CMD_BUS_GET_NOTHING = { a = 1 }",
            "profile-unknown-command",
            "there is no command NV2080_CTRL_CMD_BUS_GET_NOTHING in 550.163.01",
        ),
        (
            "[answers]\nNV2080_CTRL_CMD_GPU_QUERY_COMPUTE_MODE_RULES = { rule = 1 }",
            "profile-unknown-field",
            "NV2080_CTRL_GPU_QUERY_COMPUTE_MODE_RULES_PARAMS has no field `rule` in 550.163.01",
        ),
        (
            "[answers]\nNV2080_CTRL_CMD_GPU_QUERY_COMPUTE_MODE_RULES = { rules = 0x1_0000_0000 }",
            "profile-does-not-fit",
            "`rules`: 4294967296 does not fit 4 bytes",
        ),
        (
            "[answers]\nNV2080_CTRL_CMD_GPU_GET_SHORT_NAME_STRING = { gpuShortNameString = \"\
             0123456789012345678901234567890123456789012345678901234567890123\" }",
            "profile-does-not-fit",
            "`gpuShortNameString`: a text of 64 letters and its end do not fit 64 bytes",
        ),
        (
            "[answers]\nNV2080_CTRL_CMD_BUS_GET_PEX_UTIL_COUNTERS = { pexCounters = [1,2,3,4,5,6,7,8] }",
            "profile-does-not-fit",
            "`pexCounters`: 8 elements do not fit an array of 7",
        ),
        (
            "[lists.bus]\nNOTHING = 1",
            "profile-unknown-index",
            "there is no index NV2080_CTRL_BUS_INFO_INDEX_NOTHING in 550.163.01",
        ),
        (
            "[lists.bus]\nTYPE = \"=NV2080_CTRL_BUS_INFO_TYPE_NOTHING\"",
            "profile-no-value",
            "there is no constant NV2080_CTRL_BUS_INFO_TYPE_NOTHING in 550.163.01",
        ),
        (
            "[memory]\nsize = \"=memory.none\"",
            "profile-no-value",
            "`memory.size`: there is no value `memory.none`",
        ),
        (
            "[memory]\nsize = \"=memory.size\"",
            "profile-no-value",
            "`memory.size`: values refer to each other in a circle",
        ),
        ("[memory]\nsize = \"=1 +\"", "profile-not-read", "`1 +` is no expression"),
        ("[memory\n", "profile-not-read", "mine.toml:2"),
        (
            "[answers]\nNV0000_CTRL_CMD_GPU_GET_PROBED_IDS = { }",
            "profile-answered-in-code",
            "NV0000_CTRL_CMD_GPU_GET_PROBED_IDS is answered by the simulator's own code",
        ),
        ("[objects]\nNV_NOTHING = { below = [\"device\"] }", "profile-unknown-class", "NV_NOTHING"),
        (
            "classes = [\"AMPERE_COMPUTE_B\", \"AMPERE_COMPUTER\"]",
            "profile-unknown-class",
            "there is no class AMPERE_COMPUTER in 550.163.01",
        ),
        (
            "engines = [\"GRAPHICS\", \"GRAPHIC\"]",
            "profile-unknown-engine",
            "there is no NV2080_ENGINE_TYPE_GRAPHIC in 550.163.01",
        ),
        ("engines = [3]", "profile-unknown-engine", "`engines` has names alone"),
        (
            "[objects]\n0xA083 = { below = [\"device\"] }",
            "profile-unknown-class",
            "expected `0xa083`, found `0xA083`",
        ),
        (
            "[objects]\n0xno = { below = [\"device\"] }",
            "profile-unknown-class",
            "`0xno` is no number of a class",
        ),
        (
            "[objects]\n0x0080 = { below = [\"device\"] }",
            "profile-unnamed-class",
            "0x0080 has a name in 550.163.01: NV01_DEVICE_0",
        ),
    ] {
        let (status, told) = complaints(lines);
        assert_eq!(status, Some(1), "{lines}: {told}");
        assert!(told.contains(&format!("error[{code}]")), "{lines}: {told}");
        assert!(told.contains(message) && told.contains("mine.toml:"), "{lines}: {told}");
    }
    let (status, told) = nvabi(&["rm", "sim", "--gpu", "gtx970", "--", "true"]);
    assert_eq!(status, Some(2));
    assert!(
        told.contains(
            "there is no GPU `gtx970`: expected a100, h100, hgx-a100, hgx-h100, l4, rtx3090"
        ),
        "{told}"
    );
}

#[test]
fn a_lenient_machine_says_what_it_did_not_do() {
    let name = "rm_sim::profile::a_lenient_machine_says_what_it_did_not_do";
    let report = simulate(name, TAG, &["--lenient"], || {
        let (client, ..) = Client::with_device();
        let mut params = Struct::new("NV0000_CTRL_SYSTEM_GET_CPU_INFO_PARAMS");
        assert_eq!(
            client.control(client.handle, "NV0000_CTRL_CMD_SYSTEM_GET_CPU_INFO", &mut params),
            0
        );
    });
    let text =
        "NV0000_CTRL_CMD_SYSTEM_GET_CPU_INFO is not simulated: it succeeded and changed nothing";
    assert_eq!(diagnostics(&report), [("not-simulated".to_owned(), text.to_owned())]);
}
