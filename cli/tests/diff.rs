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
    use std::collections::BTreeSet;
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
        let found = nvabi(&["515.49.25", "515.57"]);
        assert_eq!(found.status.code(), Some(0), "{}", text(&found.stderr));
        let stdout = text(&found.stdout);
        assert!(stdout.contains("no difference\ncompared "), "{stdout}");
        let all: serde_json::Value =
            serde_json::from_slice(&nvabi(&["515.49.25", "515.57", "--all", "--json"]).stdout)
                .unwrap();
        let lists = ["calls", "records", "enums", "aliases", "constants", "bit_ranges"];
        let changes = lists.iter().flat_map(|list| all[*list].as_array().unwrap());
        let breaks = changes.filter(|change| change["class"] == "break").count();
        assert!(breaks > 0, "{all}");
        assert!(stdout.contains(&format!("elsewhere {breaks} breaks, ")), "{stdout}");
        let json = nvabi(&["515.49.25", "515.57", "--json"]);
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
            assert!(told.contains(&format!("`nvabi ranges --nearest {tag}` looks")), "{told}");
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

    /// A folder with one file.
    fn folder(path: &str, content: &str) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
        let path = folder.path().to_str().unwrap().to_owned();
        (folder, path)
    }

    fn json(args: &[&str]) -> serde_json::Value {
        let output = nvabi(&[args, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What changes for a crate, a package and a file that name the same, and how much else does.
    #[test]
    fn a_scope_of_ones_own() {
        let tags = ["530.41.03", "535.43.02"];
        let source = "#[derive(nvabi::NvProxy)] #[nvproxy(name = \"NVOS21_PARAMETERS\")] struct A(u32);\n\
                      #[derive(nvabi::NvProxy)] #[nvproxy(name = \"NVOS00_PARAMETERS\")] struct B(u32);\n\
                      #[derive(nvabi::NvProxy)] #[nvproxy(name = \"NV2080_CTRL_FB_QUERY_DRAM_ENCRYPTION_STATUS_PARAMS\")] struct C(u32);\n";
        let (_crate, krate) = folder("src/lib.rs", source);
        let go = "package nvgpu\ntype NVOS21_PARAMETERS_V535 struct { A uint32 }\ntype own uint32\n\
                  type NVOS00_PARAMETERS struct { A uint32 }\nconst NV_OK = 0\n";
        let (_go, go) = folder("nvgpu.go", go);
        let (_items, items) = folder("items", "NVOS21_PARAMETERS NVOS00_* # and a comment\n");
        let items = format!("{items}/items");
        let all = json(&[&tags[..], &["--all"]].concat());
        let everything = all["records"].as_array().unwrap().len();
        for (option, path, count) in
            [("--crate", &krate, 3), ("--go", &go, 3), ("--items", &items, 2)]
        {
            let found = json(&[&tags[..], &[option, path]].concat());
            let records = found["records"].as_array().unwrap();
            let names: Vec<_> = records.iter().map(|record| &record["name"]).collect();
            assert!(names.contains(&&"NVOS21_PARAMETERS".into()), "{option}: {names:?}");
            assert!(names.len() < everything / 4, "{option}: {names:?}");
            let scope = &found["scope"];
            assert_eq!((&scope["items"], &scope["of"]), (&count.into(), &path.as_str().into()));
            assert!(scope["elsewhere"]["breaks"].as_u64() > Some(10), "{scope}");
            let advised = found["advice"].as_array().unwrap().iter();
            assert!(advised.clone().any(|one| one["subject"] == "NVOS21_PARAMETERS"));
        }
        // A name of another tag is told of, and one of none is an error with its place.
        let found = json(&[&tags[..], &["--crate", &krate]].concat());
        assert_eq!(
            found["scope"]["absent"],
            serde_json::json!(["NV2080_CTRL_FB_QUERY_DRAM_ENCRYPTION_STATUS_PARAMS"])
        );
        let output = nvabi(&[&tags[..], &["--crate", &krate]].concat());
        assert_eq!(output.status.code(), Some(1));
        let told = text(&output.stdout);
        assert!(
            told.contains(
                "; neither tag has 1 name: NV2080_CTRL_FB_QUERY_DRAM_ENCRYPTION_STATUS_PARAMS;"
            ),
            "{told}"
        );
        let (_wrong, wrong) = folder("items", "NVOS21_PARAMETERS\nNVOS0_PARAMETERS\n");
        let output = nvabi(&[&tags[..], &["--items", &format!("{wrong}/items")]].concat());
        assert_eq!(output.status.code(), Some(2));
        let told = text(&output.stderr);
        assert!(told.contains("items:2:1") && told.contains("no locked tag has"), "{told}");
        let (_none, none) = folder("a.go", "package a\ntype own uint32\n");
        let output = nvabi(&[&tags[..], &["--go", &none]].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("names nothing of the driver's"));
    }

    /// Nothing in the scope differs, though much elsewhere does.
    #[test]
    fn a_scope_in_which_nothing_differs() {
        let (_items, items) = folder("items", "NVOS00_PARAMETERS\n");
        let args = ["530.41.03", "535.43.02", "--items", &format!("{items}/items")];
        let output = nvabi(&args);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let told = text(&output.stdout);
        assert!(told.contains("no difference"), "{told}");
        assert!(told.contains("compared 1 name of ") && told.contains("; elsewhere "), "{told}");
        let told = text(&output.stderr);
        assert!(told.contains("no difference in 1 name of "), "{told}");
        let output = nvabi(&["570.86.15", "575.51.02", "--only", "NVOS21_PARAMETERS"]);
        let told = text(&output.stdout);
        assert!(told.contains("\ncompared NVOS21_PARAMETERS alone; elsewhere "), "{told}");
    }

    /// One file with everything that the text has, and no other.
    #[test]
    fn a_page_of_its_own() {
        let tags = ["550.40.07", "550.163.01"];
        let (folder, path) = folder("old", "");
        let page = format!("{path}/diff.html");
        let output = nvabi(&[&tags[..], &["--html", &page]].concat());
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty());
        let html = std::fs::read_to_string(&page).unwrap();
        let told = text(&nvabi(&tags).stdout);
        let summary = told.lines().next().unwrap();
        assert!(html.contains(&format!("<p class=lead>{summary}\n")), "{summary}");
        assert!(html.contains("<p>compared ") && html.contains("<h2>A shim must</h2>"));
        for what in ["src=", "href=http", "url(", "<script"] {
            assert!(!html.contains(what), "{what}");
        }
        // Each link leads to a part of the page.
        let ids: BTreeSet<&str> =
            html.split("<section id=").skip(1).map(|s| &s[..s.find('>').unwrap()]).collect();
        let mut links = html.split("<a href=#").skip(1).map(|s| &s[..s.find('>').unwrap()]);
        assert!(!ids.is_empty() && links.all(|link| ids.contains(link)));
        let record = "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS  16 → 24 bytes";
        assert!(told.contains(record) && html.contains(&format!("<h3>{record}</h3>")));
        let missing = format!("{path}/none/diff.html");
        let output = nvabi(&[&tags[..], &["--html", &missing]].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("cannot write"), "{}", text(&output.stderr));
        drop(folder);
    }
}
