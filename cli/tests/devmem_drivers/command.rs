//! `nvabi alloc devices` on the devices that are there.

use std::fs::{self, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nvabi_test::{Need, skip};

use super::{device, devices};

/// In the virtual machine the command lies elsewhere.
pub(crate) fn nvabi() -> Command {
    let built = env!("CARGO_BIN_EXE_nvabi");
    Command::new(if Path::new(built).exists() { built } else { "nvabi" })
}

fn printed(arguments: &[&str]) -> String {
    let output = nvabi().args(["alloc", "devices"]).args(arguments).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains(&format!("Found {} device", devices().len())), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_device_is_listed_the_cheapest_first() {
    let text = printed(&[]);
    println!("{text}");
    let names: Vec<String> = devices().iter().map(|device| device.info().name.clone()).collect();
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(lines.len(), names.len());
    for (line, name) in lines.iter().zip(&names) {
        assert_eq!(line.split_whitespace().next(), Some(name.as_str()));
    }
    assert!(text.contains("cpu"), "{text}");
}

/// What `alloc make` hands to a program, and what the kernel says of each of its files.
fn handed(arguments: &[&str]) -> (serde_json::Value, String) {
    let script = r#"printf '%s\n' "$NVABI_BUFFER"; cat /proc/self/fdinfo/*; true"#;
    let mut make = nvabi();
    make.args(["alloc", "make"]).args(arguments).args(["--", "sh", "-c", script]);
    let output = make.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    let text = String::from_utf8(output.stdout).unwrap();
    let (told, files) = text.split_once('\n').unwrap();
    (serde_json::from_str(told).unwrap(), files.to_owned())
}

fn fds(told: &serde_json::Value) -> usize {
    told["fds"].as_array().unwrap().len()
}

#[test]
fn a_dma_buf_is_handed_on() {
    let heap = device("dma-heap:system");
    let uses = ["--use", "cpu:cpu-write", "64x64", "NV12", "--prefer", &heap.info().name];
    let (told, files) = handed(&uses);
    assert_eq!(told["allocator"]["device"], heap.info().name.as_str());
    // Both planes are in it.
    assert_eq!((fds(&told), files.matches("exp_name:\tsystem\n").count()), (2, 2), "{files}");
    assert_eq!(told["offsets"], serde_json::json!([0, 4096]));
}

#[test]
fn memory_of_a_display_is_handed_on() {
    let display = device("bochs");
    let used = format!("{}:scanout", display.info().name);
    // A newer bochs takes memory of others as well.
    let (told, files) =
        handed(&["--use", &used, "1280x720", "XR24", "--prefer", &display.info().name]);
    assert_eq!(told["allocator"]["device"], display.info().name.as_str());
    let size = told["layout"]["size"].as_u64().unwrap();
    assert_eq!((fds(&told), files.matches("exp_name:").count()), (1, 1), "{files}");
    assert!(files.contains(&format!("size:\t{size}\n")), "{size} in {files}");
}

#[test]
fn memory_in_several_files_is_handed_on() {
    let heap = device("dma-heap:system");
    let file = std::env::temp_dir().join("nvabi-three-files.json");
    let offer = r#"{"use": {"device": "eye", "operation": "capture"}, "sets": [{
        "constraints": [{"name": "files", "value": 3}], "capabilities": ["LINEAR"]}]}"#;
    fs::write(&file, offer).unwrap();
    let offers = ["--offers", file.to_str().unwrap()];
    let uses = ["--use", "cpu:cpu-read", "--use", "eye:capture", "64x64", "YU12"];
    let (told, files) = handed(&[&uses[..], &offers, &["--prefer", &heap.info().name]].concat());
    fs::remove_file(&file).unwrap();
    assert_eq!((fds(&told), files.matches("exp_name:\tsystem\n").count()), (3, 3), "{files}");
    assert_eq!(told["offsets"], serde_json::json!([0, 0, 0]));
    // Three memories, each of a page.
    assert_eq!(files.matches("size:\t4096\n").count(), 3, "{files}");
}

/// The device of this name in the command's model.
fn listed(name: &str) -> serde_json::Value {
    let listed: serde_json::Value = serde_json::from_str(&printed(&["--json"])).unwrap();
    let found = listed.as_array().unwrap().iter().find(|device| device["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is not in {listed}")).clone()
}

fn is_modelled(name: &'static str, operations: serde_json::Value) {
    let device = device(name);
    let listed = listed(&device.info().name);
    assert_eq!(listed["operations"], operations, "{name}");
    assert_eq!(listed["node"], device.info().node.as_str());
    assert_eq!(listed["allocates"], true);
}

/// One node that a user may open, among others that are the administrator's.
#[test]
fn a_node_that_may_not_be_opened_is_told() {
    let (mine, theirs) = (device("vgem"), device("bochs"));
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        skip(Need::Setuid, "only root runs programs as another user");
    }
    let modes = [&mine, &theirs].map(|device| fs::metadata(&device.info().node).unwrap().mode());
    let set = |modes: [u32; 2]| {
        for (device, mode) in [&mine, &theirs].iter().zip(modes) {
            fs::set_permissions(&device.info().node, Permissions::from_mode(mode)).unwrap();
        }
    };
    set([0o666, 0o600]);
    let output = nvabi().args(["alloc", "devices"]).uid(65534).output().unwrap();
    set(modes);
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains(&mine.info().name) && !text.contains(&theirs.info().name),
        "{text}{said}"
    );
    let denied = format!("Skipped drm: cannot open {}: Permission denied", theirs.info().node);
    assert!(said.contains(&denied), "{denied} in {said}");
}

#[test]
fn a_card_is_the_hardware_of_its_render_node() {
    let (card, gpu) = (device("vgem"), device("llvmpipe"));
    let (all, file) = (devices(), fs::File::open(&card.info().node).unwrap());
    let of = nvabi_devmem::drivers::of_fd(&all, file.as_fd()).unwrap();
    let names: Vec<&str> = of.iter().map(|device| device.info().name.as_str()).collect();
    assert_eq!(names, [&card.info().name, &gpu.info().name]);
}

#[test]
fn the_model_tells_what_the_cpu_can_do() {
    assert_eq!(listed("cpu")["operations"], serde_json::json!(["cpu-read", "cpu-write"]));
}

#[test]
fn the_model_tells_what_a_heap_can_do() {
    is_modelled("dma-heap:system", serde_json::json!([]));
}

#[test]
fn the_model_tells_what_a_display_can_do() {
    is_modelled("vkms", serde_json::json!(["scanout"]));
}

#[test]
fn the_model_tells_what_a_camera_can_do() {
    is_modelled("camera", serde_json::json!(["capture"]));
}
