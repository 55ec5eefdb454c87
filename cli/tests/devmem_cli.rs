//! `nvabi alloc plan` and `nvabi alloc explain` as a user meets them.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::{Command, Output};

use serde_json::{Value, json};

fn nvabi(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
    // No plugins but those of a test.
    command.env("NVABI_DEVMEM_PLUGINS", "/nowhere").arg("alloc").args(args).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A GPU that prefers tiles, and a panel of rows, in one file; an encoder elsewhere in another.
struct Offers {
    _folder: tempfile::TempDir,
    both: String,
    encoder: String,
}

fn offers() -> Offers {
    let folder = tempfile::tempdir().unwrap();
    let offer = |device, operation, sets: &[Value]| json!({ "use": { "device": device, "operation": operation }, "sets": sets });
    let set = |constraint: &str, value: u64, vendor: u32| {
        json!({
            "constraints": [{ "name": constraint, "value": value }],
            "capabilities": [{ "vendor": vendor, "name": 0 }],
        })
    };
    let write = |name: &str, value: Value| {
        let path = folder.path().join(name);
        fs::write(&path, value.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let gpu = offer(
        "gpu",
        "texture",
        &[set("pitch-alignment", 32, 0x10de), set("pitch-alignment", 96, 0)],
    );
    let panel = offer("panel", "scanout", &[set("pitch-alignment", 64, 0)]);
    let encoder = offer("codec", "encode", &[set("pitch-alignment", 4_294_967_291, 0)]);
    let (both, encoder) = (write("both.json", json!([gpu, panel])), write("encoder.json", encoder));
    Offers { _folder: folder, both, encoder }
}

#[test]
fn a_plan_shows_set_and_layout() {
    let Offers { both, _folder, .. } = offers();
    let args = ["plan", "--use", "gpu:texture", "--use", "panel:scanout", "--use", "cpu:cpu-write"];
    let output = nvabi(&[&args[..], &["--offers", &both, "1280x720", "NV12"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(err(&output).contains("Untried gpu:texture: its offer is from a file"));
    let text = out(&output);
    for line in [
        "1280x720 NV12 for gpu:texture, panel:scanout, cpu:cpu-write",
        "capability         pitch-linear",
        "pitch-alignment    192",
        "plane       offset        pitch         size",
        "    0            0         1344       967680",
        "    1       967680         1344       483840",
        "  all                                1454080",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line} in\n{text}");
    }
    let output = nvabi(&[&args[..], &["--offers", &both, "1280x720", "NV12", "--json"]].concat());
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["layout"]["planes"][1]["offset"], 967_680);
    assert_eq!(json["usage"]["uses"][2]["device"], "cpu");
}

#[test]
fn what_does_not_go_together_is_explained() {
    let Offers { both, encoder, _folder } = offers();
    let output = nvabi(&["explain", &both, &encoder]);
    assert_eq!((output.status.code(), err(&output).as_str()), (Some(1), ""));
    let text = out(&output);
    assert!(
        text.starts_with("no memory serves gpu:texture and codec:encode: pitch-alignment 96 and 4294967291 have no common multiple"),
        "{text}"
    );
    assert!(text.contains("\n  help: lift pitch-alignment on codec, for encode\n"), "{text}");
    let output = nvabi(&["explain", &both, &encoder, "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (output.status.code(), &json["reasons"][0]["cause"]["why"]),
        (Some(1), &"overflow".into())
    );
    let plan = ["plan", "--use", "panel:scanout", "--use", "codec:encode", "--offers", &both];
    let output = nvabi(&[&plan[..], &["--offers", &encoder, "64x64", "XR24"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    let first = "64x64 XR24: no memory serves panel:scanout and codec:encode: ";
    assert!(out(&output).starts_with(first), "{}", out(&output));
    let output = nvabi(&["explain", &both]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        out(&output).starts_with(
            "serves all: pitch-linear [pitch-alignment 192]\n  not gpu:texture (set 0)"
        )
    );
}

#[test]
fn what_is_wrong_is_named_with_status_2() {
    let Offers { both, _folder, .. } = offers();
    let refused = |args: &[&str], what: &str| {
        let output = nvabi(args);
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""), "{args:?}");
        assert!(err(&output).contains(what), "{args:?}: {}", err(&output));
    };
    refused(
        &["plan", "--use", "npu:render", "8x8", "XR24"],
        "no device of this machine matches npu:render",
    );
    refused(&["plan", "--use", "npu:render", "8x8", "XR24"], "this machine has cpu");
    refused(&["plan", "--use", "cpu", "8x8", "XR24"], "`cpu` is no DEVICE:OPERATION");
    refused(&["plan", "--use", "cpu:eat", "8x8", "XR24"], "`eat` is no operation: cpu-read");
    refused(&["plan", "--use", "cpu:cpu-read", "8", "XR24"], "expected WIDTHxHEIGHT");
    refused(&["plan", "--use", "cpu:cpu-read", "8x8", "XR243"], "`XR243` is no fourcc");
    refused(&["explain", "/nowhere.json"], "cannot read /nowhere.json");
    fs::write(&both, "[{\"use\": 1}]").unwrap();
    refused(&["explain", &both], "line 1 column");
}

#[test]
fn memory_is_made_for_a_program() {
    let script = r#"printf '%s' "$NVABI_BUFFER"; exit 7"#;
    let uses = ["make", "--use", "cpu:cpu-write", "--use", "cpu:cpu-read", "64x64", "NV12"];
    let output = nvabi(&[&uses[..], &["--", "sh", "-c", script]].concat());
    assert_eq!(output.status.code(), Some(7), "{}", err(&output));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let fds = told["fds"].as_array().unwrap();
    assert_eq!((fds.len(), told["layout"]["planes"].as_array().unwrap().len()), (2, 2));
    assert!(told["allocator"]["request"].is_string(), "{told}");

    // Each is the memory, which the program may write and not cut.
    let first = &fds[0];
    let script =
        format!("printf frame 1<>/proc/self/fd/{first}; head -c 5 /proc/self/fd/{}", fds[1]);
    let output = nvabi(&[&uses[..], &["--", "sh", "-c", &script]].concat());
    assert_eq!(
        (output.status.code(), out(&output).as_str()),
        (Some(0), "frame"),
        "{}",
        err(&output)
    );

    let preferring =
        [&uses[..], &["--prefer", "cpu", "--", "sh", "-c", r#"printf '%s' "$NVABI_BUFFER""#]]
            .concat();
    let told: Value = serde_json::from_slice(&nvabi(&preferring).stdout).unwrap();
    assert_eq!(told["allocator"]["device"], "cpu");

    let output = nvabi(&[&uses[..], &["--", "/nowhere/program"]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("cannot run /nowhere/program"), "{}", err(&output));
}

#[test]
fn what_cannot_be_made_here_says_why() {
    let Offers { both, _folder, .. } = offers();
    let uses = ["--use", "gpu:texture", "--use", "panel:scanout", "1280x720", "NV12"];
    let output = nvabi(&[&["make"], &uses[..], &["--offers", &both, "--", "true"]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    let why = "the memory cannot be made here: no device of this machine is to use it\n";
    assert!(err(&output).contains(why), "{}", err(&output));
    assert!(err(&output).contains("help: add a --use of a device here"), "{}", err(&output));
}

/// A variable has 128 KiB; what else would serve may be more.
#[test]
fn memory_is_made_where_much_else_would_serve() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("panel.json");
    // None asks for less than another.
    let set = |number: u64| {
        let asked = [
            ("row-padding", number),
            ("size-padding", 300 - number),
            ("address-alignment", 64),
            ("pitch-alignment", 64),
            ("offset-alignment", 64),
            ("size-alignment", 64),
            ("page-size", 4096),
            ("max-pitch", 1 << 20),
            ("max-size", 1 << 30),
            ("address-bits", 64),
            ("row-alignment", 2),
            ("files", 1),
        ];
        let asked = asked.map(|(name, value)| json!({ "name": name, "value": value }));
        json!({ "constraints": asked, "capabilities": ["LINEAR"] })
    };
    let sets: Vec<Value> = (0..300).map(set).collect();
    let offer = json!({ "use": { "device": "panel", "operation": "scanout" }, "sets": sets });
    fs::write(&file, offer.to_string()).unwrap();
    let uses = ["--use", "cpu:cpu-write", "--use", "panel:scanout", "64x64", "XR24"];
    let offers = ["--offers", file.to_str().unwrap()];
    let plan = nvabi(&[&["plan", "--json"], &uses[..], &offers].concat());
    assert!(plan.stdout.len() > 128 << 10, "{}", plan.stdout.len());
    let program = ["--", "sh", "-c", r#"printf '%s' "$NVABI_BUFFER""#];
    let output = nvabi(&[&["make"], &uses[..], &offers, &program].concat());
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["usage"]["uses"][1]["device"], "panel");
    assert_eq!(told["set"]["constraints"].as_array().unwrap().len(), 14, "{told}");
}

#[test]
fn memory_in_several_files_is_handed_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("camera.json");
    let set =
        json!({ "constraints": [{ "name": "files", "value": 3 }], "capabilities": ["LINEAR"] });
    let offer = json!({ "use": { "device": "eye", "operation": "capture" }, "sets": [set] });
    fs::write(&file, offer.to_string()).unwrap();
    let uses = ["--use", "cpu:cpu-read", "--use", "eye:capture", "64x64", "YU12", "--offers"];
    // The program writes into each plane by its descriptor, and none is where another is.
    let script = r#"
        fds=${NVABI_BUFFER#*\"fds\":[}
        for fd in $(IFS=,; echo ${fds%%]*}); do
            printf "plane $fd" 1<>/proc/self/fd/$fd
        done
        for fd in $(IFS=,; echo ${fds%%]*}); do head -c $((6 + ${#fd})) /proc/self/fd/$fd; echo; done
        printf '%s' "$NVABI_BUFFER""#;
    let program = ["--prefer", "cpu", "--", "sh", "-c", script];
    let output = nvabi(&[&["make"], &uses[..], &[file.to_str().unwrap()], &program].concat());
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    let lines: Vec<&str> = text.lines().collect();
    let told: Value = serde_json::from_str(lines[3]).unwrap();
    let fds: Vec<String> =
        told["fds"].as_array().unwrap().iter().map(|fd| format!("plane {fd}")).collect();
    let request = told["allocator"]["request"].as_str().unwrap();
    assert_eq!(request, "3 times memfd_create, ftruncate to 4096 bytes, F_SEAL_SHRINK");
    assert_eq!(
        (fds.len(), &lines[..3]),
        (3, fds.iter().map(String::as_str).collect::<Vec<_>>().as_slice())
    );
    assert_eq!(told["offsets"], json!([0, 0, 0]));
}

#[test]
fn offers_are_written_in_names() {
    let Offers { both, _folder, .. } = offers();
    let explained = |text: &str| {
        fs::write(&both, text).unwrap();
        let output = nvabi(&["explain", &both]);
        (output.status.code(), out(&output) + &err(&output))
    };
    let offer = |device: &str, constraint: &str, capability: &str| {
        format!(
            r#"{{"use": {{"device": "{device}", "operation": "render"}}, "sets": [{{
                "constraints": [{constraint}], "capabilities": [{capability}]}}]}}"#
        )
    };
    let placed = r#"{"name": "placement", "value": "system|local"}"#;
    let tiled = r#""NVIDIA_BLOCK_LINEAR_2D(0, 1, 2, 6, 4)""#;
    let (gpu, panel) = (offer("gpu", placed, tiled), offer("panel", "", tiled));
    let (code, text) = explained(&format!(r#"{{"version": 1, "offers": [{gpu}, {panel}]}}"#));
    assert_eq!(code, Some(0), "{text}");
    let set = "modifier NVIDIA_BLOCK_LINEAR_2D(0, 1, 2, 6, 4) [placement system|local]";
    assert_eq!(text, format!("serves all: {set}\n"));
    let number = offer("gpu", "", r#""0x0300000000606014""#);
    assert_eq!(explained(&format!("[{panel}, {number}]")).0, Some(0));

    for (text, told) in [
        (format!(r#"{{"version": 2, "offers": [{gpu}]}}"#), "version 2, and this reads version 1"),
        (r#"{"version": 2, "devices": []}"#.to_owned(), "version 2, and this reads version 1"),
        (r#"{"version": "1", "offers": []}"#.to_owned(), "invalid type: string"),
        (format!(r#"{{"version": 1, "offers": [{gpu}], "more": 1}}"#), "unknown field `more`"),
        (offer("gpu", "", r#""I915_Z_TILED""#), "`I915_Z_TILED` is no modifier"),
        (offer("gpu", "", r#"{"vendor": 0, "name": 0, "x": 1}"#), "unknown field `x`"),
        (offer("gpu", r#"{"name": "placement", "value": 0}"#, tiled), "placement 0 allows nothing"),
        (
            offer("gpu", r#"{"name": "placement", "value": "sytem"}"#, tiled),
            "`sytem` is no placement",
        ),
        (offer("gpu", r#"{"name": "max-size", "value": "big"}"#, tiled), "max-size is a number"),
    ] {
        let (code, said) = explained(&text);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(told), "{told} in {said}");
    }
    let turned = ["--detail", "rotate-90", "--detail", "rotate-180"];
    let output =
        nvabi(&[&["plan", "--use", "cpu:cpu-read"], &turned[..], &["8x8", "XR24"]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("--detail: `rotate-90` and `rotate-180` turn an image in two"));
    let output = nvabi(&["plan", "--use", "cpu:cpu-read", "8x8", "xr24"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("`xr24` is no DRM format, but XR24 is"), "{}", err(&output));
}

#[test]
fn mistakes_in_offers_are_told_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("offers.json");
    let told = |text: &str| {
        fs::write(&file, text).unwrap();
        let output = nvabi(&["explain", file.to_str().unwrap()]);
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""), "{text}");
        err(&output)
    };
    let cut = "{\n  \"version\": 1,\n  \"offers\": [,]\n}";
    assert!(told(cut).contains("expected value at line 3 column 14"), "{}", told(cut));
    assert!(told("{\"version\": 1").contains("EOF while parsing"));
    assert!(told("[]").contains("holds no offers: the list is empty"), "{}", told("[]"));
    assert!(told(r#"{"version": 1, "offers": []}"#).contains("the list is empty"));
    assert!(told("7").contains("holds no offers: invalid type"), "{}", told("7"));

    // What never ends, or never begins.
    let fifo = folder.path().join("fifo.json");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for path in ["/dev/zero", fifo.to_str().unwrap(), folder.path().to_str().unwrap()] {
        let output = nvabi(&["explain", path]);
        assert_eq!(output.status.code(), Some(2));
        assert!(err(&output).contains("neither a regular file"), "{}", err(&output));
    }
}

/// What the command prints it reads, here and on another machine.
#[test]
fn offers_of_this_machine_are_for_others() {
    let args = ["offers", "--use", "cpu:cpu-read", "--use", "cpu:cpu-write", "64x64", "NV12"];
    let output = nvabi(&args);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["version"], 1);
    let (first, second) = (&told["offers"][0], &told["offers"][1]);
    assert_eq!(
        [&first["use"]["operation"], &second["use"]["operation"]],
        ["cpu-read", "cpu-write"]
    );
    let set = &first["sets"][0];
    assert_eq!(set["capabilities"], json!(["LINEAR"]));
    assert_eq!(
        set["constraints"][1],
        json!({ "name": "placement", "value": "system|contiguous|carveout" })
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("offers.json");
    fs::write(&file, told.to_string().replace("\"cpu\"", "\"theirs\"")).unwrap();
    let uses = ["--use", "theirs:cpu-read", "--use", "cpu:cpu-write", "64x64", "NV12"];
    let plan =
        nvabi(&[&["plan", "--offers", file.to_str().unwrap(), "--json"], &uses[..]].concat());
    assert_eq!(plan.status.code(), Some(0), "{}", err(&plan));
    let planned: Value = serde_json::from_slice(&plan.stdout).unwrap();
    assert_eq!(planned["set"]["constraints"][1], set["constraints"][1]);
    assert_eq!(nvabi(&["offers", "--use", "cpu:cpu-read", "64x64", "????"]).status.code(), Some(2));
    assert_eq!(nvabi(&["offers", "--use", "npu:render", "64x64", "NV12"]).status.code(), Some(2));
}

/// Drivers of devices that were not asked for are nobody's business, until nothing serves.
#[test]
fn what_cannot_be_asked_is_told_where_it_matters() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("broken.json"), "{").unwrap();
    let plan = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
        command.env("NVABI_DEVMEM_PLUGINS", folder.path()).args(["alloc", "plan"]).args(args);
        let output = command.output().unwrap();
        (output.status.code(), err(&output).matches("broken.json").count())
    };
    let image = ["64x64", "XR24"];
    assert_eq!(plan(&[&["--use", "cpu:cpu-read"][..], &image].concat()), (Some(0), 0));
    assert_eq!(plan(&[&["--use", "cpu:scanout"][..], &image].concat()), (Some(1), 1));
    assert_eq!(plan(&[&["--use", "npu:render"][..], &image].concat()), (Some(2), 1));
}

/// A folder with the example plugin, of which these texts are replaced.
fn plugin(changes: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let devmem = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../devmem");
    let mut source = fs::read_to_string(devmem.join("examples/plugin.c")).unwrap();
    for (of, to) in changes {
        assert_eq!(source.matches(of).count(), 1, "{of}");
        source = source.replace(of, to);
    }
    let (file, library) = (folder.path().join("plugin.c"), folder.path().join("libplugin.so"));
    fs::write(&file, source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-I"]).arg(devmem.join("include")).arg("-o").arg(&library);
    assert!(cc.arg(&file).status().unwrap().success());
    let manifest = json!({ "file_format_version": "1.0.0", "devmem": { "library_path": library } });
    fs::write(folder.path().join("plugin.json"), manifest.to_string()).unwrap();
    folder
}

fn with_plugin(folder: &tempfile::TempDir, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
    command.env("NVABI_DEVMEM_PLUGINS", folder.path()).arg("alloc").args(args).output().unwrap()
}

/// What a device refused is why nothing serves, as text and in JSON.
#[test]
fn refusals_are_told_where_nothing_serves() {
    let takes = "    *handle = 100 + atomic_fetch_add(&imported, 1);\n";
    let source = fs::read_to_string("../devmem/examples/plugin.c").unwrap();
    let import = source.split("static int codec_import_files").next().unwrap();
    let import = &import[import.find("static int codec_import(").unwrap()..];
    // The number of a file tells it that memory is its own, which is tried in any case.
    let name = "strcpy(device->name, \"c-codec\");";
    let node = format!("{name} strcpy(device->node, \"/dev/null\");");
    let folder = plugin(&[
        (import, &import.replace(takes, "    return -EINVAL;\n")),
        ("    sink->add(sink->context, &sets[0]);\n", ""),
        (name, &node),
    ]);
    let args = ["plan", "--use", "c-codec:encode", "64x64", "XR24"];
    let refused = with_plugin(&folder, &[&args[..], &["--json"]].concat());
    let told: Value = serde_json::from_slice(&refused.stdout).unwrap();
    let said = told["refusals"][0]["reason"].as_str().unwrap();
    assert!(said.contains("Invalid argument"), "{told}");
    assert_eq!(told["refusals"][0]["use"]["device"], "c-codec");
    assert_eq!(
        (refused.status.code(), &told["between"][0]["device"]),
        (Some(1), &json!("c-codec"))
    );
    let refused = with_plugin(&folder, &args);
    assert!(err(&refused).contains("Refused c-codec:encode in rows of "), "{}", err(&refused));
}

#[test]
fn a_device_that_fails_when_it_is_asked_is_told() {
    let asked = "    if (image->width > 4096";
    let fails = format!("    if (image->width == 64) return -EIO;\n{asked}");
    let folder = plugin(&[(asked, &fails)]);
    for image in [["64x64", "XR24"], ["128x64", "XR24"]] {
        for wanted in ["c-codec:encode", "encoder:encode"] {
            let output = with_plugin(&folder, &[&["plan", "--use", wanted][..], &image].concat());
            let told = err(&output).contains("cannot query c-codec: ");
            let code = if image[0] == "64x64" { 2 } else { 0 };
            assert_eq!((output.status.code(), told), (Some(code), code == 2), "{}", err(&output));
        }
    }
}

/// A plugin whose codec takes one explicit modifier, and makes no memory with it.
#[test]
fn a_modifier_that_nobody_makes_is_no_plan() {
    let folder = plugin(&[
        ("const uint32_t size[] = { 32, 64 }", "const uint32_t size[] = { 1, 0x07000000 }"),
        (".vendor = 0x10de, .name = 1", ".vendor = NVABI_DEVMEM_VENDOR_DRM, .name = 1"),
        ("    sink->add(sink->context, &sets[1]);\n", ""),
    ]);
    let nvabi = |args: &[&str]| with_plugin(&folder, args);
    let plan = ["plan", "--use", "c-codec:encode"];
    let image = ["64x64", "XR24"];
    let refused = nvabi(&[&plan[..], &image].concat());
    assert_eq!(refused.status.code(), Some(1), "{}", err(&refused));
    let why = "  no device lays pixels out with modifier 0x0700000000000001: not ";
    assert!(out(&refused).starts_with("no memory serves 64x64 XR24 for c-codec:encode\n"));
    assert!(out(&refused).contains(why), "{}", out(&refused));
    assert!(out(&refused).contains("cpu"), "{}", out(&refused));
    let refused = nvabi(&[&plan[..], &image, &["--json"]].concat());
    let told: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(
        (refused.status.code(), told["usage"]["uses"][0]["device"].as_str()),
        (Some(1), Some("c-codec"))
    );
    assert_eq!(told["reasons"].as_array().unwrap().len(), 1, "{told}");
    let make = ["make", "--use", "c-codec:encode", "64x64", "XR24", "--", "true"];
    assert_eq!(nvabi(&make).status.code(), Some(1));

    // A device of another machine may make it.
    let offer = json!({
        "use": { "device": "gpu", "operation": "render" },
        "sets": [{ "capabilities": ["0x700000000000001"] }],
    });
    let file = folder.path().join("gpu.offer");
    fs::write(&file, offer.to_string()).unwrap();
    let there = ["--use", "gpu:render", "--offers", file.to_str().unwrap()];
    let planned = nvabi(&[&plan[..], &there, &image].concat());
    assert_eq!(planned.status.code(), Some(0), "{}", err(&planned));
    assert!(out(&planned).contains("no layout: no device lays pixels out"), "{}", out(&planned));
}

/// Names that are refused where they enter are those that output would have to spell out.
#[test]
fn names_are_what_can_be_shown() {
    let letters = (0..0x1_4000).chain(0x1_b000..0x1_e000).chain(0xe_0000..0xe_1000);
    for letter in letters.filter_map(char::from_u32) {
        let refused = format!("d{letter}:scanout").parse::<nvabi_devmem::Use>().is_err();
        let name = format!("d{letter}");
        let spelled = nvabi_reports::terminal::line(&name) != name.as_str();
        assert_eq!(refused, spelled, "{}", letter.escape_unicode());
    }
    // Of right-to-left text, as a file and the command line give it.
    let output = nvabi(&["plan", "--use", "pa\u{202e}nel:scanout", "8x8", "XR24"]);
    let told = r"the name `pa\u{202e}nel` has the control character \u{202e}";
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains(told), "{}", err(&output));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("panel.json");
    let offer = json!({ "use": { "device": "pa\u{200b}nel", "operation": "scanout" }, "sets": [] });
    fs::write(&file, offer.to_string()).unwrap();
    let output = nvabi(&["explain", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains(r"has the control character \u{200b}"), "{}", err(&output));
}

#[test]
fn what_plays_no_part_is_told() {
    let Offers { both, encoder, _folder } = offers();
    let plan = |uses: &[&str], more: &[&str]| {
        let output = nvabi(&[&["plan"], uses, more, &["64x64", "XR24"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        err(&output)
    };
    let panel = ["--use", "panel:scanout"];
    let twice = ["--offers", &both, "--offers", &both];
    let said = plan(&panel, &twice);
    assert_eq!(
        said.matches("Unused the offer of gpu:texture: no --use asks for it\n").count(),
        2,
        "{said}"
    );
    assert!(
        said.contains("Unused another offer of panel:scanout: the first one counts\n"),
        "{said}"
    );
    let said = plan(&panel, &["--offers", &both, "--offers", &encoder]);
    assert!(said.contains("Unused the offer of codec:encode: no --use asks for it\n"), "{said}");
    let prefer = ["--prefer", "nosuch", "--prefer", "cpu"];
    let said = plan(&["--use", "cpu:cpu-read"], &prefer);
    assert!(said.contains("Unused --prefer nosuch: this machine has no such device\n"), "{said}");
    assert!(!said.contains("--prefer cpu"), "{said}");
    let said = plan(&panel, &[&["--offers", &both][..], &prefer].concat());
    assert!(said.contains("Unused --prefer cpu: nothing is made on this machine\n"), "{said}");
}

/// Arguments command no terminal, whoever says that they are wrong.
#[test]
fn wrong_arguments_are_spelled_out() {
    let red = "\u{1b}[31m";
    for args in [
        ["plan", "--use", &format!("cpu:{red}"), "64x64", "XR24"],
        ["plan", "--use", "cpu:cpu-read", "64x64", red],
        ["plan", "--use", "cpu:cpu-read", red, "XR24"],
        ["plan", &format!("--{red}"), "cpu:cpu-read", "64x64", "XR24"],
    ] {
        let refused = nvabi(&args);
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
        let told = err(&refused);
        assert!(!told.contains('\u{1b}') && told.contains(r"\u{1b}[31m"), "{told:?}");
    }
    // Nothing else is wrong with a name that turns a line round.
    let told = err(&nvabi(&["formats", "a\u{202e}:scanout"]));
    assert!(!told.contains('\u{202e}') && told.contains(r"a\u{202e}"), "{told:?}");
}

/// The first offer of a use counts, for an explanation as for a plan.
#[test]
fn a_second_offer_of_a_use_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("offers.json");
    let of = |modifier: &str| {
        json!({ "use": { "device": "d", "operation": "scanout" },
                "sets": [{ "capabilities": [modifier] }] })
    };
    fs::write(&file, json!([of("LINEAR"), of("I915_Y_TILED")]).to_string()).unwrap();
    let path = file.to_str().unwrap();
    let explained = nvabi(&["explain", path]);
    let planned = nvabi(&["plan", "--offers", path, "--use", "d:scanout", "64x64", "XR24"]);
    for output in [explained, planned] {
        assert_eq!(output.status.code(), Some(0), "{}", out(&output));
        assert!(out(&output).contains("pitch-linear"), "{}", out(&output));
        let told = "Unused another offer of d:scanout: the first one counts\n";
        assert!(err(&output).contains(told), "{}", err(&output));
    }
}

/// What nobody here can try is wrong all the same where an image has no such planes.
#[test]
fn files_are_as_many_as_planes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("offer.json");
    for (files, format, code) in [(1, "XR24", 0), (2, "NV12", 0), (4, "XR24", 1), (3, "NV12", 1)] {
        let offer = json!({
            "use": { "device": "d", "operation": "scanout" },
            "sets": [{
                "constraints": [{ "name": "files", "value": files }],
                "capabilities": ["LINEAR"],
            }],
        });
        fs::write(&file, offer.to_string()).unwrap();
        let path = file.to_str().unwrap();
        let planned = nvabi(&["plan", "--offers", path, "--use", "d:scanout", "64x64", format]);
        assert_eq!(planned.status.code(), Some(code), "{files} {format}: {}", err(&planned));
        let told = out(&planned).contains(&format!("  {files} files for "));
        assert_eq!(told, code == 1, "{}", out(&planned));
    }
}

/// The schema of offers and the command agree on what is one.
#[test]
fn offers_are_what_their_schema_says() {
    let schema: Value =
        serde_json::from_str(include_str!("../../devmem/schema/offers-1.json")).unwrap();
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource("offers-1.json", schema).unwrap();
    let schema = compiler.compile("offers-1.json", &mut schemas).unwrap();
    let is_valid = |text: &str| {
        let value: Value = serde_json::from_str(text).unwrap();
        schemas.validate(&value, schema).is_ok()
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("offers.json");
    let reads = |text: &str| {
        fs::write(&file, text).unwrap();
        let output = nvabi(&["explain", file.to_str().unwrap()]);
        (output.status.code() != Some(2), err(&output))
    };
    let set = |constraint: &str, capability: &str| {
        format!(
            r#"{{"use": {{"device": "gpu", "operation": "render"}},
                "sets": [{{"constraints": [{constraint}], "capabilities": [{capability}]}}]}}"#
        )
    };
    let constraint =
        |name: &str, value: &str| set(&format!(r#"{{"name": {name}, "value": {value}}}"#), "");
    let offer = set("", r#""LINEAR""#);
    let used = |rest: &str| format!(r#"{{"use": {{"device": "d", {rest}}}, "sets": []}}"#);
    let docs = include_str!("../../docs/devmem.md");
    let example = docs.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    let good = [
        example.to_owned(),
        offer.clone(),
        format!("[{offer}, {}]", used(r#""operation": "scanout""#)),
        format!(r#"{{"version": 1, "offers": [{offer}]}}"#),
        used(r#""operation": "scanout", "details": ["rotate-90+reflect-x", "0x10de:3(1, 2)"]"#),
        set("", r#""NVIDIA_BLOCK_LINEAR_2D(0, 1, 2, 6, 4)", "0x300000000606014""#),
        set("", r#"{"vendor": 4318, "name": 1, "required": true, "payload": [1]}"#),
        constraint(r#""placement""#, r#""system|local""#),
        constraint(r#""coherency""#, "2"),
        constraint(r#""0x6e760000""#, "64"),
        constraint(r#""max-pitch""#, "18446744073709551615"),
        constraint(r#""made-by""#, r#""226:0""#),
        constraint("1853227008", "64"),
    ];
    // Of placement and coherency, a number is bits.
    let names =
        nvabi_devmem::ConstraintName::known().map(|name| constraint(&format!("\"{name}\""), "1"));
    for text in good.into_iter().chain(names) {
        assert!(is_valid(&text), "the schema refuses {text}");
        assert_eq!(reads(&text), (true, String::new()), "{text}");
    }
    let bad = [
        "{}".to_owned(),
        format!(r#"{{"version": 2, "offers": [{offer}]}}"#),
        format!(r#"{{"version": 1, "offers": [{offer}], "more": 1}}"#),
        offer.replace("\"sets\"", "\"set\""),
        used(r#""operation": "paint""#),
        used(r#""operation": "scanout", "details": ["rotate-45"]"#),
        used(r#""operation": "scanout""#).replace("\"d\"", "\"\""),
        used(r#""operation": "scanout""#).replace("\"d\"", "\" \""),
        used(r#""operation": "scanout""#).replace("\"d\"", "\"d\\u001b[31m\""),
        used(r#""operation": "scanout""#).replace("\"d\"", "\"d\\u202e\""),
        set("", r#""INVALID""#),
        set("", r#""0xffffffffffffff""#),
        set("", r#"{"vendor": 5067332, "name": 1, "payload": [4294967295, 16777215]}"#),
        set("", r#""I915_Z_TILED""#),
        set("", r#""NVIDIA_BLOCK_LINEAR_2D(0, 1)""#),
        set("", r#"{"vendor": 4318}"#),
        set("", r#"{"vendor": 4294967296, "name": 1}"#),
        constraint(r#""placement""#, "0"),
        constraint(r#""placement""#, r#""attic""#),
        constraint(r#""pitch-alignment""#, r#""system""#),
        constraint(r#""pitch""#, "1"),
        constraint(r#""contiguous""#, "2"),
        constraint(r#""files""#, "0"),
        constraint(r#""files""#, "5"),
        constraint(r#""address-bits""#, "65"),
        constraint(r#""pitch-alignment""#, "4294967296"),
        constraint(r#""row-alignment""#, "4294967296"),
        constraint(r#""max-pitch""#, "-1"),
        constraint(r#""made-by""#, r#""card0""#),
        constraint(r#""max-pitch""#, r#""226:0""#),
        constraint("4294967296", "64"),
        constraint("1.5", "64"),
        "[]".to_owned(),
        r#"{"version": 1, "offers": []}"#.to_owned(),
    ];
    for text in bad {
        assert!(!is_valid(&text), "the schema takes {text}");
        assert!(!reads(&text).0, "{text} is read");
    }
}

#[test]
fn details_are_for_devices_that_know_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("panel.json");
    let offer = json!({
        "use": { "device": "panel", "operation": "scanout", "details": ["rotate-90"] },
        "sets": [{ "capabilities": ["LINEAR"] }],
    });
    fs::write(&file, offer.to_string()).unwrap();
    let plan = |used: &str, more: &[&str]| {
        let args = ["plan", "--offers", file.to_str().unwrap(), "--use", used];
        nvabi(&[&args[..], more, &["64x64", "XR24"]].concat())
    };
    let turned = plan("panel:scanout+rotate-90", &[]);
    assert_eq!(turned.status.code(), Some(0), "{}", err(&turned));
    assert!(
        out(&turned).starts_with("64x64 XR24 for panel:scanout+rotate-90\n"),
        "{}",
        out(&turned)
    );
    // Nothing is offered for the panel as it hangs, and the CPU turns nothing.
    assert!(
        err(&plan("panel:scanout", &[]))
            .contains("no device of this machine matches panel:scanout")
    );
    for (used, more, detail) in [
        ("cpu:cpu-read+rotate-180", &[][..], "rotate-180"),
        ("cpu:cpu-read", &["--detail", "0x10de:3(1)"], "0x10de:3(1)"),
    ] {
        let refused = plan(used, more);
        assert_eq!(refused.status.code(), Some(1), "{}", err(&refused));
        let what = used.trim_start_matches("cpu:");
        let told =
            format!("64x64 XR24: no memory serves {used}: cpu cannot {what} such an image\n");
        assert!(out(&refused).starts_with(&told), "{}", out(&refused));
        let why = format!("Refused cpu does not know {detail}\n");
        assert_eq!(err(&refused).matches("does not know").count(), 1, "{}", err(&refused));
        assert!(err(&refused).contains(&why), "{}", err(&refused));
    }
    assert_eq!(plan("cpu:cpu-read+rotate-0", &[]).status.code(), Some(0));
}

#[test]
fn formats_are_listed_with_their_sizes() {
    let output = nvabi(&["formats", "cpu:cpu-read"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(
        out(&output).lines().any(|line| line == "XR24             any        any"),
        "{}",
        out(&output)
    );
    assert_eq!(nvabi(&["formats", "cpu:scanout"]).status.code(), Some(1));
    for unknown in ["cpu:cpu-read+rotate-90", "cpu:cpu-read+0x10de:3(1)"] {
        let refused = nvabi(&["formats", unknown]);
        assert_eq!(refused.status.code(), Some(1), "{}", err(&refused));
        assert!(err(&refused).contains("Refused cpu does not know"), "{}", err(&refused));
    }
    // The CPU is there by its name and by its purpose.
    let json = nvabi(&["formats", "cpu:cpu-read", "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((json.as_array().unwrap().len(), &json[0]["use"]["device"]), (1, &"cpu".into()));
    assert_eq!(json[0]["formats"][0]["format"], "C8");
    assert_eq!(out(&nvabi(&["formats", "cpu:cpu-read+rotate-0"])), out(&output));
    let missing = nvabi(&["formats", "gpu:texture"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        err(&missing).contains("no device of this machine matches gpu:texture"),
        "{}",
        err(&missing)
    );
}
