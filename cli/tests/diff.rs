//! Real diffs as a person reads them, kept in `snapshots/`.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use nvabi_pipeline::lock;
use nvabi_pipeline::spec::Spec;
use nvabi_pipeline::tag::Tag;
use nvabi_reports::diff::{self, Diff, Scope, Side};
use nvabi_reports::list;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The diffs of pairs of tags, `None` where the lock lacks one.
fn diffs(pairs: &[[&str; 2]]) -> Vec<Option<Diff>> {
    let (lock, report) = lock::read(&root().join("abi-specs/lock")).unwrap();
    assert_eq!(report.to_string(), "", "the lock was edited");
    let specs = Spec::load_family(&root().join("abi-specs"), "").unwrap();
    let compare = |pair: &[&str; 2]| {
        let tags = pair.map(|text| text.parse::<Tag>().unwrap());
        let spec = |tag: &Tag| specs.iter().find(|spec| spec.driver == tag.branch());
        let [from, to] = [lock.facts(&tags[0])?, lock.facts(&tags[1])?];
        let from = Side { facts: &from, spec: spec(&tags[0])? };
        Some(diff::diff(from, Side { facts: &to, spec: spec(&tags[1])? }, Scope::Items))
    };
    pairs.iter().map(compare).collect()
}

/// Compares with `snapshots/NAME.snap`.
fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn real_diffs() {
    let pairs = [
        // One branch from its first to its last tag.
        ["550.40.07", "550.163.01"],
        // Two branches: a field moves and the size stays.
        ["530.41.03", "535.43.02"],
        // A constant's value names something else, and no layout changes.
        ["550.54.15", "550.90.07"],
        // Fields become wider where they are, and a status takes another's value.
        ["590.48.01", "595.44.02"],
    ];
    for (pair, found) in pairs.iter().zip(diffs(&pairs)) {
        let [from, to] = pair;
        let Some(found) = found else { panic!("the lock has not both {from} and {to}") };
        snapshot(&format!("diff_{from}_{to}"), &diff::text(&found));
        if *pair == pairs[0] {
            snapshot(&format!("diff_{from}_{to}_markdown"), &diff::markdown(&found));
        }
    }
}

/// Every call that `list` names, with other parameters or another number than before, is told of by its name.
#[test]
fn a_call_is_told_of_by_its_name_whoever_names_it() {
    let (lock, _) = lock::read(&root().join("abi-specs/lock")).unwrap();
    let specs = Spec::load_family(&root().join("abi-specs"), "").unwrap();
    let tags = ["550.90.07", "595.45.04"].map(|tag| tag.parse::<Tag>().unwrap());
    let facts = tags.each_ref().map(|tag| lock.facts(tag).unwrap());
    let spec = |tag: &Tag| specs.iter().find(|spec| spec.driver == tag.branch()).unwrap();
    let sides = [0, 1].map(|i| Side { facts: &facts[i], spec: spec(&tags[i]) });
    let listed = sides.map(|side| {
        let commands = list::calls(side.facts, "command").into_iter();
        let all = commands.chain(list::calls(side.facts, "class"));
        let all = all.chain(list::ioctls(side.facts, side.spec));
        all.map(|call| (call.name.clone(), call)).collect::<BTreeMap<_, _>>()
    });
    let found = diff::diff(sides[0], sides[1], Scope::All);
    let seen: BTreeSet<&str> = (found.calls.iter().map(|call| call.name.as_str()))
        .chain(found.records.iter().flat_map(|r| r.calls.iter().map(String::as_str)))
        .collect();
    let mut changed = 0;
    for (name, before) in &listed[0] {
        let Some(after) = listed[1].get(name) else { continue };
        if (before.size, before.cmd, before.request) != (after.size, after.cmd, after.request) {
            assert!(seen.contains(name.as_str()), "{before:?} {after:?}");
            changed += 1;
        }
    }
    assert!(changed > 100, "{changed}");
}

/// Output, statuses and exit codes of the command.
mod command {
    use std::process::{Command, Output};

    fn nvabi(args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
        command.current_dir(super::root()).arg("diff").args(args).output().unwrap()
    }

    fn text(bytes: &[u8]) -> String {
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    /// The items of the specs are the same there, and a command that no spec names is not.
    #[test]
    fn no_difference_names_its_scope() {
        let found = nvabi(&["550.144.03", "550.163.01"]);
        assert_eq!(found.status.code(), Some(0), "{}", text(&found.stderr));
        let stdout = text(&found.stdout);
        assert!(stdout.contains("no difference\ncompared "), "{stdout}");
        let all: serde_json::Value =
            serde_json::from_slice(&nvabi(&["550.144.03", "550.163.01", "--all", "--json"]).stdout)
                .unwrap();
        let lists = ["calls", "records", "enums", "aliases", "constants", "bit_ranges"];
        let changes = lists.iter().flat_map(|list| all[*list].as_array().unwrap());
        let breaks = changes.filter(|change| change["class"] == "break").count();
        assert!(breaks > 0, "{all}");
        assert!(stdout.contains(&format!("elsewhere {breaks} layout breaks, ")), "{stdout}");
        let json = nvabi(&["550.144.03", "550.163.01", "--json"]);
        let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(json["scope"]["elsewhere"]["breaks"], breaks);
        assert!(json["scope"]["items"].as_u64().unwrap() > 300, "{json}");
        assert!(all.get("scope").is_none(), "everything was compared");
    }

    #[test]
    fn the_status_says_whether_they_differ() {
        let same = nvabi(&["550.90.07", "550.90.07", "--all"]);
        assert_eq!(same.status.code(), Some(0), "{}", text(&same.stderr));
        assert_eq!(text(&same.stdout), "550.90.07 → 550.90.07: no difference\n");
        let different = nvabi(&["550.40.07", "550.163.01"]);
        assert_eq!(different.status.code(), Some(1), "{}", text(&different.stderr));
        assert!(text(&different.stdout).contains("\nA SHIM MUST\n"));
        assert_eq!(different.stdout, nvabi(&["550.40.07", "550.163.01"]).stdout, "every time");
        let unknown = nvabi(&["550.90.07", "550.91"]);
        assert_eq!((unknown.status.code(), unknown.stdout.len()), (Some(2), 0));
        assert!(text(&unknown.stderr).contains("next to it: "), "{}", text(&unknown.stderr));
        let neither = nvabi(&["580.159.03", "590.99"]);
        for tag in ["580.159.03", "590.99"] {
            let told = text(&neither.stderr);
            assert!(told.contains(&format!("the lock has no tag {tag}")), "{told}");
            assert!(told.contains(&format!("`nvabi ranges --nearest {tag}` finds")), "{told}");
        }
    }

    /// A name that is nowhere is not the same on both sides, and one beyond the specs' items is
    /// looked for as well.
    #[test]
    fn a_name_is_looked_for_among_all() {
        let only = |name: &str| nvabi(&["525.147.05", "530.30.02", "--only", name]);
        let beyond = only("NvKmsSetModeOneHeadReply");
        assert_eq!(beyond.status.code(), Some(1), "{}", text(&beyond.stderr));
        assert!(text(&beyond.stdout).contains("activeRmId → hwHead"), "{}", text(&beyond.stdout));
        let unknown = only("NvKmsSetModeOneHeadRepl");
        assert_eq!((unknown.status.code(), unknown.stdout.len()), (Some(2), 0));
        let told = text(&unknown.stderr);
        assert!(told.contains("did you mean `NvKmsSetModeOneHeadReply`?"), "{told}");
    }

    /// Commands and ioctls of the display that no spec names, with what they take.
    #[test]
    fn a_call_that_no_spec_names_is_told_of() {
        let only = |from, to, name, told: &str| {
            let output = nvabi(&[from, to, "--only", name]);
            assert_eq!(output.status.code(), Some(1), "{name}: {}", text(&output.stderr));
            let found = text(&output.stdout);
            assert!(found.contains(told), "{name}: {found}");
            assert!(found.contains(&format!("    for {name}")), "{name}: {found}");
        };
        let (old, new) = ("550.90.07", "595.45.04");
        only(old, new, "NV0073_CTRL_CMD_DP_GET_CAPS", "DP_GET_CAPS_PARAMS  56 → 60 bytes");
        only(old, new, "DRM_IOCTL_NVIDIA_GET_DEV_INFO", "0xc0206443 → 0xc0246443");
        only(old, new, "DRM_IOCTL_NVIDIA_GET_DEV_INFO", "dev_info_params  32 → 36 bytes");
        only("595.44.03", new, "NVKMS_IOCTL_SET_MODE", "ModeValidationParams  176 → 168 bytes");
    }

    /// What it named before, and what it names now.
    #[test]
    fn a_number_is_a_name_too() {
        let found = nvabi(&["570.211.01", "575.51.02", "--only", "0x20801357"]);
        assert_eq!(found.status.code(), Some(1), "{}", text(&found.stderr));
        let found = text(&found.stdout);
        assert!(found.contains("NV2080_CTRL_CMD_FB_GET_STATUS"), "{found}");
        let none = nvabi(&["570.211.01", "575.51.02", "--only", "0x20801fff"]);
        assert_eq!(none.status.code(), Some(2));
        assert!(text(&none.stderr).contains("has a call with the number 0x20801fff"));
    }

    /// No spec names the command that had the number before.
    #[test]
    fn a_number_is_looked_up_among_all_commands() {
        let found = text(&nvabi(&["570.211.01", "575.51.02"]).stdout);
        assert!(found.contains("0x20801357 was NV2080_CTRL_CMD_FB_GET_STATUS"), "{found}");
    }

    #[test]
    fn one_name_as_json() {
        let name = "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS";
        let output = nvabi(&["550.40.07", "550.163.01", "--only", name, "--json"]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let records = json["records"].as_array().unwrap();
        assert_eq!(records.len(), 1);
        assert_eq!((&records[0]["name"], &records[0]["class"]), (&name.into(), &"break".into()));
        assert_eq!(records[0]["fields"][0]["after"]["offset"], 16);
        assert_eq!(records[0]["fields"][0]["instead"], "beyond");
        assert_eq!(json["advice"].as_array().unwrap().len(), 1);
    }
}
