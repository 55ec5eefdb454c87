//! `nvabi ranges` as a user meets it, and a fact about a real shim that it must reproduce.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use nvabi_pipeline::lock;
use nvabi_pipeline::spec::Spec;
use nvabi_pipeline::tag::Tag;
use serde_json::Value;

fn nvabi(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).args(args).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(args: &[&str]) -> Value {
    let output = nvabi(args);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A file in a folder of its own.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("names");
    fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

/// The x86 driver's locked tags.
fn tags() -> Vec<Tag> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("abi-specs/lock");
    lock::read_tags(&folder).unwrap().into_iter().map(|locked| locked.tag).collect()
}

fn newest_of(branch: &str) -> String {
    tags().iter().rfind(|tag| tag.branch() == branch).unwrap().to_string()
}

/// 32 bytes before and after: the fields tell.
#[test]
fn layouts_of_one_size_are_told_apart() {
    let output = nvabi(&["ranges", "NVOS21_PARAMETERS"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let nvos = "src/common/sdk/nvidia/inc/nvos.h";
    let tags = tags();
    let all = tags.len();
    let (old, new) = tags.split_at(tags.partition_point(|tag| tag.as_str() < "535"));
    let span = |label: &str, tags: &[Tag]| {
        let span = format!("{} … {}", tags[0], tags[tags.len() - 1]);
        format!("  {label}   {span:<22} {:>5} tags  size 32, align 8  {nvos}", tags.len())
    };
    assert_eq!(
        out(&output),
        format!(
            "NVOS21_PARAMETERS (type): 2 layouts in {all} tags\n{}:435\n{}:454\n",
            span("A", old),
            span("B", new)
        )
    );
    let before = &old[old.len() - 1];
    let see = format!("nvabi diff {before} 535.43.02 --only NVOS21_PARAMETERS");
    assert!(err(&output).contains(&see), "{}", err(&output));
}

/// 304 bytes, 360, 304 again, 360 again; the nested records and all calls that take it follow.
#[test]
fn a_layout_that_comes_back_has_several_spans() {
    let found = json(&["ranges", "NV_CHANNEL_ALLOC_PARAMS", "--json"]);
    let spans = |layout: usize| {
        let spans = found["layouts"][layout]["spans"].as_array().unwrap().clone();
        let end = |span: &Value, key: &str| span[key].as_str().unwrap().to_owned();
        spans.iter().map(|s| (end(s, "first"), end(s, "last"))).collect::<Vec<_>>()
    };
    let pairs = |all: &[(&str, &str)]| {
        all.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(spans(0), pairs(&[("525.47.04", "535.43.02"), ("535.54.03", "535.54.03")]));
    assert_eq!(spans(1), pairs(&[("535.43.08", "535.43.28"), ("535.86.05", &newest_of("565"))]));
    let sizes = [0, 1, 2].map(|layout| found["layouts"][layout]["parts"][0]["size"].clone());
    assert_eq!(sizes, [304, 360, 368]);
    assert_eq!(found["absent"][0]["last"], newest_of("520"));
}

#[test]
fn a_call_is_shown_with_its_number_and_its_parameters() {
    let found = json(&["ranges", "NV_ESC_RM_ALLOC", "--json"]);
    assert_eq!(found["kind"], "frontend");
    let parts = found["layouts"][0]["parts"].as_array().unwrap();
    let names: Vec<_> = parts.iter().map(|part| part["name"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["NV_ESC_RM_ALLOC", "NVOS21_PARAMETERS", "NVOS64_PARAMETERS"]);
    assert_eq!((&parts[0]["value"], &parts[2]["size"]), (&"0x2b".into(), &40.into()));
}

/// A number names one command here and another there.
#[test]
fn a_number_has_the_ranges_of_its_calls() {
    let output = nvabi(&["ranges", "0x20803401"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    let name = "NV2080_CTRL_CMD_ECC_GET_VOLATILE_COUNTS";
    assert!(text.contains(&format!("{name} (control): ")), "{text}");
    assert!(text.contains(&out(&nvabi(&["ranges", name]))), "{text}");
    let of_spec = out(&nvabi(&["ranges", "0x20800145"]));
    assert!(of_spec.contains(" (control): "), "{of_spec}");
    let none = nvabi(&["ranges", "0x20801fff"]);
    assert_eq!((none.status.code(), none.stdout.len()), (Some(2), 0));
    assert!(err(&none).contains("no locked tag has a call with the number 0x20801fff"));
}

/// A command and two ioctls of the display: each has the ranges of what it takes.
/// A command that every program could make is root's from a tag on, and no other layout for that.
#[test]
fn ranges_say_who_may_make_a_call() {
    let name = "NV0000_CTRL_CMD_NVD_GET_DUMP";
    let found = json(&["ranges", name, "--json"]);
    assert_eq!(found["layouts"].as_array().unwrap().len(), 1);
    let mut all = 0;
    for callers in found["callers"].as_array().unwrap() {
        for span in callers["spans"].as_array().unwrap() {
            all += span["count"].as_u64().unwrap();
            for end in ["first", "last"] {
                let tag = span[end].as_str().unwrap();
                let listed = json(&["list", "commands", "--tag", tag, "--json"]);
                let mut calls = listed.as_array().unwrap().iter();
                let call = calls.find(|call| call["name"] == name).unwrap();
                assert_eq!(call["access"], callers["access"], "{tag}");
            }
        }
    }
    assert_eq!(all, tags().len() as u64);
    let printed = out(&nvabi(&["ranges", name]));
    assert!(printed.contains("  for 515.43.04 … 525.147.05    47 tags  user\n"), "{printed}");
    // Nothing is told of a type.
    assert_eq!(json(&["ranges", "NVOS21_PARAMETERS", "--json"])["callers"], Value::Null);
}

#[test]
fn a_call_that_no_spec_names_has_the_ranges_of_its_parameters() {
    let spans = |found: &Value| {
        let layouts = found["layouts"].as_array().unwrap();
        layouts.iter().map(|layout| layout["spans"].clone()).collect::<Vec<_>>()
    };
    for (call, kind, params) in [
        ("NV0073_CTRL_CMD_DP_GET_CAPS", "control", "NV0073_CTRL_CMD_DP_GET_CAPS_PARAMS"),
        ("NVKMS_IOCTL_SET_MODE", "ioctl", "NvKmsSetModeParams"),
        ("DRM_IOCTL_NVIDIA_GET_DEV_INFO", "ioctl", "drm_nvidia_get_dev_info_params"),
    ] {
        let (found, of_params) =
            (json(&["ranges", call, "--json"]), json(&["ranges", params, "--json"]));
        assert_eq!(found["kind"], kind);
        assert_eq!(found["layouts"][0]["parts"][1]["name"], params);
        assert_eq!(spans(&found), spans(&of_params), "{call}");
        assert!(spans(&found).len() > 3, "{call}");
    }
    // The specs name it from 555 on; the driver has had it before.
    let early = json(&["ranges", "NV90E7_CTRL_CMD_BBX_GET_LAST_FLUSH_TIME", "--json"]);
    assert_eq!(early["layouts"][0]["spans"][0]["first"], "535.43.24");
    assert_eq!(spans(&early).len(), 1);
}

#[test]
fn a_constant_and_an_enum_are_names_too() {
    let constant = nvabi(&["ranges", "NV_ERR_INVALID_ARGUMENT"]);
    let all = tags().len();
    let one = format!("(constant): 1 value in {all} tags");
    assert!(out(&constant).contains(&one), "{}", out(&constant));
    let found = nvabi(&["ranges", "NvHandle"]);
    let one = format!("(type): 1 layout in {all} tags");
    assert!(out(&found).contains(&one), "{}", out(&found));
}

/// Every tag is in one range, and neighbours differ.
#[test]
fn the_ranges_of_the_specs_are_maximal() {
    let found = json(&["ranges", "--json"]);
    assert_eq!(json(&["ranges", "--spec", "--json"]), found);
    let ranges = found["ranges"].as_array().unwrap();
    let count: u64 = ranges.iter().map(|range| range["count"].as_u64().unwrap()).sum();
    assert_eq!(count, tags().len() as u64);
    assert!(ranges.windows(2).all(|pair| pair[0]["label"] != pair[1]["label"]));
    assert!(ranges[1..].iter().all(|range| !range["changed"].as_array().unwrap().is_empty()));
    // What 550.54.14 had was taken up again: 550.40.65 is the newer one.
    let abis = found["abis"].as_array().unwrap();
    let with = |tag: &str| {
        abis.iter().find(|abi| abi["tags"].as_array().unwrap().contains(&tag.into())).unwrap()
    };
    assert_eq!(with("550.40.53"), with("550.54.14"));
    assert_ne!(with("550.40.53"), with("550.40.65"));
}

/// Two tags of one range, between which constants have other values.
#[test]
fn what_is_compared_is_said() {
    let output = nvabi(&["ranges"]);
    assert!(
        err(&output)
            .contains("Compared numbers and layouts; `nvabi diff` also compares the values")
    );
    let found = json(&["ranges", "--json"]);
    let both = |abi: &&Value| {
        let tags = abi["tags"].as_array().unwrap();
        ["580.94.18", "580.95.05"].iter().all(|tag| tags.contains(&(*tag).into()))
    };
    assert_eq!(found["abis"].as_array().unwrap().iter().filter(both).count(), 1);
    let diff = nvabi(&["diff", "580.94.18", "580.95.05"]);
    assert!(out(&diff).contains("0 breaks, 6 new meanings"), "{}", out(&diff));
    let help = nvabi(&["ranges", "--help"]);
    assert!(out(&help).contains("values of constants are not compared"), "{}", out(&help));
}

#[test]
fn an_unpublished_tag_is_placed_between_its_neighbours() {
    // Behind every tag that 580 will have.
    const VERSION: &str = "580.9999.01";
    let tags = tags();
    let at = tags.partition_point(|tag| tag.as_str() < "590");
    let between = format!("{VERSION}: between {} and {}, ", tags[at - 1], tags[at]);
    let (_folder, same) = file("NVOS54_PARAMETERS # alike in all\n\n# a comment\nUVM_INITIALIZE\n");
    let output = nvabi(&["ranges", "--items", &same, "--nearest", VERSION]);
    let text = format!("{between}same ABI on both sides; nearest {}\n", tags[at - 1]);
    assert_eq!((output.status.code(), out(&output)), (Some(0), text));

    let (_folder, differing) = file("NV50_P2P\nNVOS54_PARAMETERS\n");
    let output = nvabi(&["ranges", "--items", &differing, "--nearest", VERSION]);
    assert_eq!(output.status.code(), Some(0));
    let (last, other) = (&tags[at - 1], &tags[at]);
    let said = out(&output);
    assert!(said.starts_with(&format!("{VERSION}: same branch, one ABI from ")), "{said}");
    assert!(
        said.contains(&format!(" to {last} (")) && said.contains(&format!("use {last};")),
        "{said}"
    );
    let differs =
        format!("    {other}, on the other side and of another branch, differs in 1 name;");
    assert!(said.contains(&differs), "{said}");
    let found = json(&["ranges", "--items", &differing, "--nearest", VERSION, "--json"]);
    assert_eq!((&found["nearest"], &found["basis"]), (&last.as_str().into(), &"branch".into()));

    // As a packager writes it.
    let packaged = format!("1:{VERSION}-0ubuntu1");
    let found = json(&["ranges", "--items", &differing, "--nearest", &packaged, "--json"]);
    assert_eq!(found["nearest"], last.as_str());

    let output = nvabi(&["ranges", "--nearest", "999.1"]);
    let text = format!("999.1: after {}, nothing known\n", tags[tags.len() - 1]);
    assert_eq!((output.status.code(), out(&output)), (Some(1), text));
}

#[test]
fn a_pattern_stands_for_calls_and_types() {
    let answer = |items: &str| {
        let (_folder, items) = file(items);
        let output = nvabi(&["ranges", "--items", &items]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        out(&output)
    };
    // Types; a call whose parameters changed; a call of the display; a command that a spec alone names.
    for (pattern, names) in [
        ("NV_ESC_RM_UNMAP_MEMORY_DM*", "NV_ESC_RM_UNMAP_MEMORY_DMA"),
        ("NVKMS_IOCTL_ALLOC_DEV*", "NVKMS_IOCTL_ALLOC_DEVICE"),
        ("DRM_IOCTL_NVIDIA_GET_DEV_INF*", "DRM_IOCTL_NVIDIA_GET_DEV_INFO"),
        (
            "*_GPU_ACQUIRE_COMPUTE_MODE_RESERVATION",
            "NV2080_CTRL_CMD_GPU_ACQUIRE_COMPUTE_MODE_RESERVATION",
        ),
        ("NVOS54_PARAMETER*", "NVOS54_PARAMETERS"),
    ] {
        assert_eq!(answer(pattern), answer(names), "{pattern}");
    }
    let several = answer("NV_ESC_RM_UNMAP_MEMORY*\n");
    assert_eq!(several, answer("NV_ESC_RM_UNMAP_MEMORY NV_ESC_RM_UNMAP_MEMORY_DMA\n"));
    let (_folder, nothing) = file("NOTHING_LIKE_*\n");
    let output = nvabi(&["ranges", "--items", &nothing]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("has anything named `NOTHING_LIKE_*`"), "{}", err(&output));
}

#[test]
fn the_derives_of_a_crate_are_found() {
    let output = nvabi(&["ranges", "--crate", "examples/shim"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(err(&output).contains("derives in examples/shim"), "{}", err(&output));
    assert!(out(&output).starts_with("A   515.43.04 … "), "{}", out(&output));
    let other = nvabi(&["ranges", "--crate", "examples/other-driver"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(err(&other).contains("name another table with `crate"), "{}", err(&other));
    let none = nvabi(&["ranges", "--crate", "tests"]);
    assert!(err(&none).contains("tests has no folder `src`"), "{}", err(&none));
}

#[test]
fn mistakes_are_told_where_they_are() {
    let output = nvabi(&["ranges", "nvos21_parameter"]);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""));
    assert!(err(&output).contains("did you mean `NVOS21_PARAMETERS`?"), "{}", err(&output));

    let (_folder, names) = file("NvHandle\n  NVOS54_PARAMETER # typo\nNVOS21_PARAM3TERS\n");
    let output = nvabi(&["ranges", "--items", &names]);
    assert_eq!(output.status.code(), Some(2));
    let text = err(&output);
    assert!(text.contains("names:2:3") && text.contains("names:3:1"), "{text}");
    assert!(text.contains("did you mean `NVOS54_PARAMETERS`?"), "{text}");

    let output = nvabi(&["ranges", "--items", "/nowhere/names"]);
    assert!(err(&output).contains("cannot read /nowhere/names: "), "{}", err(&output));
    let (_folder, empty) = file("# nothing\n");
    let output = nvabi(&["ranges", "--items", &empty]);
    assert!(err(&output).contains("contains no names"), "{}", err(&output));
    let output = nvabi(&["ranges", "NvHandle", "--spec"]);
    assert_eq!(output.status.code(), Some(2));
}

/// The driver versions that gVisor's nvproxy supports or has supported, of those with a tag when the
/// check of the headers was made.
const NVPROXY: [&str; 29] = [
    "535.104.05",
    "535.113.01",
    "535.129.03",
    "535.183.06",
    "535.247.01",
    "535.261.03",
    "535.274.02",
    "535.288.01",
    "545.23.06",
    "550.40.07",
    "550.54.14",
    "550.90.07",
    "550.90.12",
    "555.42.02",
    "560.28.03",
    "565.57.01",
    "570.86.15",
    "570.124.06",
    "570.133.20",
    "570.172.08",
    "570.195.03",
    "575.51.02",
    "580.65.06",
    "580.95.05",
    "580.105.08",
    "580.126.09",
    "580.126.20",
    "590.44.01",
    "590.48.01",
];

/// Those of them where it knows a call that the driver itself has not.
const NVPROXY_BEYOND: [&str; 3] = ["535.104.05", "535.113.01", "555.42.02"];

/// Calls whose parameters nvproxy copies as bytes without looking, and which 595 changed.
const UNREAD: [&str; 7] = [
    "NV00F1_CTRL_CMD_GET_FABRIC_EVENTS",
    "NV00F8_CTRL_CMD_DESCRIBE",
    "NV00FB_CTRL_CMD_VALIDATE",
    "NV00FD_CTRL_CMD_ATTACH_REMOTE_GPU",
    "NV2080_CTRL_CMD_GPU_GET_NAME_STRING",
    "NV2080_CTRL_CMD_GPU_GET_RECOVERY_ACTION",
    "NV2080_CTRL_CMD_NVLINK_GET_PLATFORM_INFO",
];

/// The tags whose ABI, over nvproxy's calls without some, is that of a version where nvproxy knows
/// nothing that the driver has not.
fn matching_nvproxy(without: &[&str]) -> BTreeSet<Tag> {
    // The calls with capability groups are those of nvproxy.
    let specs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("abi-specs");
    let specs = Spec::load_family(&specs, "").unwrap();
    let items = specs.iter().flat_map(|spec| &spec.items).filter(|item| !item.caps.is_empty());
    let names: BTreeSet<&str> = items.map(|item| item.name.as_str()).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| !without.contains(name)).collect();
    let (_folder, names) = file(&names.join("\n"));
    let found = json(&["ranges", "--items", &names, "--json"]);
    let mut abis: BTreeMap<Tag, &str> = BTreeMap::new();
    for abi in found["abis"].as_array().unwrap() {
        for tag in abi["tags"].as_array().unwrap() {
            abis.insert(tag.as_str().unwrap().parse().unwrap(), abi["label"].as_str().unwrap());
        }
    }
    let exact = NVPROXY.iter().filter(|version| !NVPROXY_BEYOND.contains(version));
    let known: BTreeSet<&str> =
        exact.filter_map(|version| abis.get(&version.parse().unwrap()).copied()).collect();
    abis.retain(|tag, label| *tag >= NVPROXY[0].parse().unwrap() && known.contains(label));
    abis.into_keys().collect()
}

/// Of the 125 tags from 535.104.05 to 595.45.04 all but eight match one of nvproxy's ABIs exactly, as
/// nvproxy sees it: of what it copies as bytes it sees that it is there. Down to the last field three
/// more do not. What tags do that came later, nobody has checked.
#[test]
fn tags_match_nvproxy_as_a_check_of_the_headers_says() {
    const NONE: [&str; 8] = [
        "535.104.05",
        "535.104.12",
        "535.113.01",
        "555.42.02",
        "555.42.06",
        "555.52.04",
        "555.58",
        "555.58.02",
    ];
    const UNREAD_ONLY: [&str; 3] = ["595.44.02", "595.44.03", "595.45.04"];
    let (matching, strictly) = (matching_nvproxy(&UNREAD), matching_nvproxy(&[]));
    let has = |tags: &BTreeSet<Tag>, tag: &str| tags.contains(&tag.parse().unwrap());
    assert!(matching.len() >= 117, "{}", matching.len());
    assert!(strictly.is_subset(&matching) && strictly.len() >= 114, "{}", strictly.len());
    for tag in NONE {
        assert!(!has(&matching, tag), "{tag}");
    }
    for tag in UNREAD_ONLY {
        assert!(has(&matching, tag) && !has(&strictly, tag), "{tag}");
    }
}
