//! The command as a user meets it: output, error texts and exit status.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn nvabi(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
    command
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .env_remove("NVABI_HEADERS")
        .args(args);
    command
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn shows_a_layout_from_the_lock() {
    let output = nvabi(&["show", "NVOS54_PARAMETERS", "--tag", "550.163.01"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    assert!(
        text.starts_with("struct NVOS54_PARAMETERS { // src/common/sdk/nvidia/inc/nvos.h:2207\n")
    );
    assert!(text.contains("NvP64 params;") && text.contains("}; // size 32, align 8, members 7\n"));
    assert!(text.contains("NVOS54_PARAMETERS (type): 1 layout in "), "{text}");
}

/// What may be suggested may be shown.
#[test]
fn shows_an_enumerator() {
    let name = "NV2080_CTRL_GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN";
    let output = nvabi(&["show", name, "--tag", "595.45.04"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let told = format!("{name} = 5 // of enum NV2080_CTRL_GPU_RECOVERY_ACTION, src/");
    assert!(out(&output).starts_with(&told), "{}", out(&output));
    let output = nvabi(&["show", name, "--tag", "595.45.04", "--json"]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = &found["surfaces"]["rm"]["enums"]["NV2080_CTRL_GPU_RECOVERY_ACTION"];
    assert_eq!(of["variants"].as_object().unwrap().len(), 1);
    let output = nvabi(&["ranges", name]);
    assert!(out(&output).starts_with(&format!("{name} (constant): ")), "{}", out(&output));
}

/// A call is more than its number.
#[test]
fn shows_what_a_call_takes() {
    let shown = |args: &[&str]| {
        let output = nvabi(&[&["show"][..], args].concat());
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        out(&output)
    };
    let control = shown(&["NV_ESC_RM_CONTROL", "--tag", "550.163.01"]);
    for line in [
        "    parameters    NVOS54_PARAMETERS, 32 bytes\n",
        "    request       0xc020462a, readwrite\n",
        "    pointers      params at 16: inout, paramsSize bytes\n",
        "    handles       hClient at 0: client; hObject at 4: object\n",
        "}; // size 32, align 8, members 7\n",
    ] {
        assert!(control.contains(line), "{line}{control}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&shown(&["NV_ESC_RM_CONTROL", "--tag", "550.163.01", "--json"]))
            .unwrap();
    let form = &json["call_info"][0]["forms"][0];
    assert_eq!((&form["request"], &form["size"]), (&0xc020_462a_u32.into(), &32.into()));
    let pointer = &form["pointers"][0];
    assert_eq!((&pointer["field"], &pointer["direction"]), (&"params".into(), &"inout".into()));
    assert_eq!((&pointer["length"], &pointer["unit"]), (&"paramsSize".into(), &1.into()));
    assert_eq!(form["handles"][0]["means"], "client");
    // A file descriptor is the caller's, or a new one of some node.
    for (name, tag, line) in [
        ("UVM_REGISTER_GPU", "550.163.01", "rmCtrlFd at 24: in, nvidiactl"),
        ("NV_ESC_EXPORT_TO_DMABUF_FD", "550.163.01", "fd at 0: out, dmabuf"),
        ("NVGPU_GPU_IOCTL_ALLOC_AS", "tegra-r36.4.3", "as_fd at 4: out, as"),
    ] {
        let shown = shown(&[name, "--tag", tag]);
        assert!(shown.contains(&format!("    fds           {line}\n")), "{shown}");
    }
    // No header has a constant for this one.
    let of_spec = shown(&["0x20800145", "--tag", "550.163.01"]);
    assert!(of_spec.contains("control command, number 0x20800145"), "{of_spec}");
    // Whom the driver's tables let make it: a command, and a class.
    for (name, tag, callers) in [
        ("NV2080_CTRL_CMD_FB_GET_INFO_V2", "550.163.01", "every program"),
        ("NV2080_CTRL_CMD_GPU_EVICT_CTX", "595.45.04", "other kernel drivers"),
        (
            "NVA06C_CTRL_CMD_MAKE_REALTIME",
            "550.163.01",
            "programs with CAP_SYS_NICE or CAP_SYS_ADMIN (RS_ACCESS_NICE)",
        ),
        ("NV00F8_CTRL_CMD_DESCRIBE", "535.288.01", "root (CAP_SYS_ADMIN)"),
        ("NV01_MEMORY_FRAMEBUFFER_CONSOLE", "570.211.01", "other kernel drivers"),
    ] {
        let shown = shown(&[name, "--tag", tag]);
        assert!(
            shown.contains(&format!("    callers       {callers}, by the driver's tables\n")),
            "{shown}"
        );
    }
    // The class's parameters are known from the driver's own list.
    let class = shown(&["FERMI_VASPACE_A", "--tag", "550.163.01"]);
    assert!(class.contains("allocation class, number 0x90f1"), "{class}");
    assert!(class.contains("NV_VASPACE_ALLOCATION_PARAMETERS, "), "{class}");
}

#[test]
fn shows_the_members_of_records_without_a_name() {
    let output = nvabi(&["show", "nvgpu_gpu_open_channel_args"]);
    let shown = out(&output);
    assert!(shown.contains("\n    union {\n        __s32 channel_fd; "), "{shown}");
    assert!(shown.contains("\n        struct {\n            __s32 runlist_id; "), "{shown}");
    assert!(shown.contains("\n        } out; "), "{shown}");
    let output = nvabi(&["show", "nvgpu_gpu_open_channel_args", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let records = json["surfaces"]["nvgpu"]["records"].as_object().unwrap();
    assert!(records.contains_key("nvgpu_gpu_open_channel_args::anon0_t"), "{records:?}");
}

/// No spec names the calls of the display: its headers tell what they take.
#[test]
fn shows_what_ioctls_of_the_display_take() {
    let flip = out(&nvabi(&["show", "NVKMS_IOCTL_FLIP", "--tag", "550.163.01"]));
    assert!(
        flip.contains("one request, number 0xe\n    node          nvidia-modeset\n    parameters    NvKmsFlipParams, "),
        "{flip}"
    );
    assert!(!flip.contains("\n    request "), "{flip}");
    let info = out(&nvabi(&["show", "DRM_IOCTL_NVIDIA_GET_DEV_INFO", "--tag", "550.163.01"]));
    assert!(info.contains("    request       0xc0206443, readwrite\n"), "{info}");
    assert!(info.contains("\nstruct drm_nvidia_get_dev_info_params {"), "{info}");
}

/// Where neither a header nor the driver's tables tell, nobody knows; that is not the same as none.
#[test]
fn shows_whether_parameters_are_none_or_unknown() {
    let shown = |name| out(&nvabi(&["show", name, "--tag", "595.45.04"]));
    let unknown = shown("NV0000_CTRL_CMD_OS_UNIX_REFRESH_RMAPI_DEVICE_LIST");
    assert!(unknown.contains("    parameters    unknown\n"), "{unknown}");
    let none = shown("NV0000_CTRL_CMD_NULL");
    assert!(none.contains("    parameters    none\n"), "{none}");
}

/// A log has numbers.
#[test]
fn shows_the_calls_that_have_a_number() {
    let shown = |number: &str| {
        let output = nvabi(&["show", number, "--tag", "595.45.04"]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        out(&output)
    };
    assert!(
        shown("0x20801358")
            .starts_with("#define NV2080_CTRL_CMD_FB_QUERY_DRAM_ENCRYPTION_STATUS 0x20801358 //")
    );
    assert_eq!(shown("545264472"), shown("0x20801358"));
    assert!(shown("0xc0246443").starts_with("#define DRM_IOCTL_NVIDIA_GET_DEV_INFO "));
    let output = nvabi(&["show", "0x20801358", "--tag", "595.45.04", "--json"]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let constants = found["surfaces"]["rm"]["constants"].as_object().unwrap();
    assert_eq!(
        constants.keys().collect::<Vec<_>>(),
        ["NV2080_CTRL_CMD_FB_QUERY_DRAM_ENCRYPTION_STATUS"]
    );
    // A number may name another call at other tags.
    assert!(
        shown("0x20803401")
            .contains("\nat other tags 0x20803401 is NV2080_CTRL_CMD_ECC_GET_ECI_COUNTERS: ")
    );
    assert!(!shown("0xc0246443").contains("at other tags"));
    let of_jetson = err(&nvabi(&["show", "NVGPU_NO_TIMEOUT", "--family", "x86"]));
    assert!(of_jetson.contains("; the tegra driver has"), "{of_jetson}");
    let none = nvabi(&["show", "0x20801fff"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(err(&none).contains("595.45.04 has no call with the number 0x20801fff"));
}

/// A struct, a class, a constant and an enumerator alike.
/// What the newest tag lacks and another has is not unknown.
#[test]
fn what_other_tags_have_is_told() {
    let told = |args: &[&str]| {
        let output = nvabi(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for name in ["NV2080_CTRL_CMD_ECC_GET_ECI_COUNTERS", "NVC36F_CTRL_GET_CLASS_ENGINEID_PARAMS"] {
        let err = told(&["show", name]);
        assert!(err.contains(&format!("has nothing named `{name}`, other tags have")), "{err}");
        assert!(
            err.contains(&format!("`nvabi ranges {name}`")) && !err.contains("did you"),
            "{err}"
        );
        let err = told(&["show", name, "--tag", "595.45.04"]);
        assert!(err.contains("595.45.04 has nothing named"), "{err}");
    }
    for name in ["NVOS21_PARAMETER", "0x12345678"] {
        let err = told(&["show", name]);
        assert!(!err.contains("other tags have"), "{err}");
    }
    let folder = tempfile::tempdir().unwrap();
    let items = folder.path().join("items");
    std::fs::write(&items, "NVOS21_PARAMETERS\n0x20803402\n").unwrap();
    let err = told(&["ranges", "--items", items.to_str().unwrap()]);
    assert!(err.contains("`0x20803402` is a number, not a name") && err.contains(":2:1"), "{err}");
    let nearest = out(&nvabi(&["ranges", "--nearest", "515.10"]));
    assert!(nearest.contains("no locked tag is older"), "{nearest}");
    let err = told(&["ranges", "--nearest", "36.4.3"]);
    assert!(err.contains("tegra-r36.4.3"), "{err}");
}

#[test]
fn shows_which_tags_have_what_is_shown() {
    let shown = |name: &str, tag: &str| out(&nvabi(&["show", name, "--tag", tag]));
    let text = shown("NV_CHANNEL_ALLOC_PARAMS", "535.54.03");
    let line = "NV_CHANNEL_ALLOC_PARAMS (type): 3 layouts in ";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("; as shown since 535.54.03, until 535.86.05\n"), "{text}");
    assert!(text.contains("\n  A   525.47.04 … 535.43.02"), "{text}");
    let ranges = |name: &str, tag: &str| {
        let output = nvabi(&["show", name, "--tag", tag, "--json"]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        json["ranges"].as_array().unwrap().clone()
    };
    for (name, kind, since, until) in [
        ("NVOS21_PARAMETERS", "type", "515.43.04", "535.43.02".into()),
        ("FERMI_VASPACE_A", "class", "515.43.04", "580.65.06".into()),
        ("NV_OK", "constant", "515.43.04", serde_json::Value::Null),
    ] {
        let all = ranges(name, "530.41.03");
        assert_eq!(all.len(), 1, "{name}");
        let found = &all[0];
        assert_eq!((&found["name"], &found["kind"]), (&name.into(), &kind.into()));
        assert_eq!((&found["since"], &found["until"]), (&since.into(), &until), "{name}");
        assert!(!found["layouts"].as_array().unwrap().is_empty());
    }
    // One for each call of the number.
    let of_number = ranges("0x20801358", "595.45.04");
    let names: Vec<_> = of_number.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.len() == 1 && shown("0x20801358", "595.45.04").contains(names[0]), "{names:?}");
}

#[test]
fn shows_one_record_as_json() {
    let output = nvabi(&["show", "NVOS21_PARAMETERS", "--tag", "550.90.07", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["tag"], "550.90.07");
    let record = &json["surfaces"]["rm"]["records"]["NVOS21_PARAMETERS"];
    assert_eq!((&record["size"], &record["align"]), (&32.into(), &8.into()));
    let field = &record["fields"][5];
    assert_eq!(field["name"], "paramsSize");
    assert_eq!(field["type"], "NvU32");
    assert_eq!(field["canonical"], "unsigned int");
    assert_eq!(field["offset"], 24);
    assert_eq!(json["surfaces"].as_object().unwrap().len(), 1);
}

#[test]
fn an_unknown_name_gets_a_suggestion_and_status_2() {
    let output = nvabi(&["show", "NVOS54_PARAMETER"]);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""));
    assert!(err(&output).contains("did you mean `NVOS54_PARAMETERS`?"), "{}", err(&output));
}

#[test]
fn an_unknown_tag_names_its_neighbours() {
    let output = nvabi(&["show", "NVOS54_PARAMETERS", "--tag", "550.91"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("550.90.07, 550.90.12, 550.100, 550.107.02"), "{}", err(&output));
    assert!(err(&output).contains("`nvabi ranges --nearest 550.91` looks"), "{}", err(&output));
}

#[test]
fn the_specs_lint_clean() {
    let output = nvabi(&["lint"]);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(0), ""), "{}", err(&output));
}

/// A copy of specs and lock, so that it can be spoilt.
fn copy_of_specs() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let from = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("abi-specs");
    let status =
        Command::new("cp").arg("-r").arg(from.join(".")).arg(folder.path()).status().unwrap();
    assert!(status.success());
    folder
}

#[test]
fn lint_finds_a_dropped_role_and_exits_with_1() {
    let folder = copy_of_specs();
    let path = folder.path().join("driver-550.toml");
    let text = fs::read_to_string(&path).unwrap();
    let spoilt = text.replace("fds = [\"rmCtrlFd\"], ", "").replace(", fds = [\"rmCtrlFd\"]", "");
    assert_ne!(text, spoilt);
    fs::write(&path, spoilt).unwrap();
    let output = nvabi(&["lint", "--specs", folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    let text = out(&output);
    assert!(text.contains("error[lint-hidden-role]"), "{text}");
    assert!(text.contains("its field `rmCtrlFd` looks like a file descriptor"), "{text}");
    let json = nvabi(&["lint", "--json", "--specs", folder.path().to_str().unwrap()]);
    let found: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(found[0]["code"], "lint-hidden-role");
}

#[test]
fn a_lock_edited_by_hand_is_found() {
    let folder = copy_of_specs();
    let path = folder.path().join("lock/rm/src/common/sdk/nvidia/inc/nvos.h.lock");
    let text = fs::read_to_string(&path).unwrap();
    let spoilt = text.replacen("\t24 4 paramsSize", "\t28 4 paramsSize", 1);
    assert_ne!(text, spoilt);
    fs::write(&path, spoilt).unwrap();
    let output = nvabi(&["lint", "--specs", folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(out(&output).contains("error[lock-edited]"), "{}", out(&output));
    assert!(out(&output).contains("nvos.h"), "{}", out(&output));
    // Nothing else is told from it.
    for job in [
        &["show", "NVOS21_PARAMETERS"][..],
        &["diff", "530.41.03", "535.43.02"],
        &["diff", "530.41.03", "535.43.02", "--all"],
        &["ranges", "NVOS21_PARAMETERS"],
    ] {
        let output = nvabi(&[job, &["--specs", folder.path().to_str().unwrap()]].concat());
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""), "{job:?}");
        assert!(err(&output).contains("error[lock-edited]"), "{job:?}: {}", err(&output));
    }
}

#[test]
fn no_headers_says_what_to_do() {
    let nowhere = tempfile::tempdir().unwrap();
    let output = command(&["verify"]).env("XDG_CACHE_HOME", nowhere.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("set NVABI_HEADERS"), "{}", err(&output));
    // Headers are of no use for a tag that is not there to be compared.
    let output = command(&["verify", "999.1.2"]).env("XDG_CACHE_HOME", nowhere.path()).output();
    let said = err(&output.unwrap());
    assert!(said.contains("the lock has no tag 999.1.2") && said.contains("nvabi add"), "{said}");
}

#[test]
fn a_release_of_jetson_in_other_words_leads_to_its_tag() {
    let said = err(&nvabi(&["show", "NVGPU_AS_IOCTL_MAGIC", "--tag", "36.4.3"]));
    assert!(said.contains("a release of Jetson is written tegra-r36.4.3"), "{said}");
    let said = err(&nvabi(&["lint", "550.163.01"]));
    assert!(said.contains("the spec of that tag is 550"), "{said}");
    let said = err(&nvabi(&["lint", "--family", ""]));
    assert!(said.contains("name a family: x86 or tegra"), "{said}");
    let said = err(&nvabi(&["lint", "--family", "nosuch"]));
    assert!(said.contains("--family is one of x86, tegra"), "{said}");
    let said = err(&nvabi(&["show", "NVGPU_AS_IOCTL_MAGIC", "--tag", "R36.4.3"]));
    assert!(said.contains("did you mean tegra-r36.4.3?"), "{said}");
}

#[test]
fn completions_and_help() {
    for shell in ["bash", "fish", "zsh"] {
        assert!(out(&nvabi(&["completions", shell])).contains("nvabi"), "{shell}");
    }
    for command in [&["--help"][..], &["headers", "fetch", "--help"], &["extract", "--help"]] {
        let text = out(&nvabi(command));
        assert!(text.contains("Example"), "{text}");
    }
}

/// A repository with one tag, holding one of our own headers at each place the spec names.
fn upstream(folder: &Path) {
    let git = |args: &[&str]| {
        let status = Command::new("git").arg("-C").arg(folder).args(args).output().unwrap();
        assert!(status.status.success(), "git {args:?}: {}", err(&status));
    };
    for path in ["src/common/sdk/nvidia/inc/nvos.h", "kernel-open/other/big.c"] {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "typedef unsigned int NvU32;\n").unwrap();
    }
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    let who = ["-c", "user.name=test", "-c", "user.email=test@localhost"];
    git(&[&who[..], &["commit", "--quiet", "-m", "one"]].concat());
    git(&["tag", "550.1.01"]);
    git(&["config", "uploadpack.allowFilter", "true"]);
}

#[test]
fn fetch_brings_the_headers_of_one_tag_alone() {
    let (remote, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    upstream(remote.path());
    let fetch = |tag: &str| {
        command(&["headers", "fetch", tag, "--remote", remote.path().to_str().unwrap()])
            .env("XDG_CACHE_HOME", cache.path())
            .output()
            .unwrap()
    };
    let output = fetch("550.1.01");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let tree = cache.path().join("nvabi/headers/550.1.01");
    assert!(tree.join("src/common/sdk/nvidia/inc/nvos.h").exists());
    assert!(!tree.join("kernel-open/other/big.c").exists(), "the clone is not sparse");
    assert!(err(&fetch("550.1.01")).contains("Present"));
    let missing = fetch("550.2.01");
    assert_eq!(missing.status.code(), Some(2));
    assert!(err(&missing).contains("could not fetch 550.2.01"), "{}", err(&missing));
    // Nothing half done is left behind.
    assert_eq!(fs::read_dir(cache.path().join("nvabi/headers")).unwrap().count(), 1);
}
