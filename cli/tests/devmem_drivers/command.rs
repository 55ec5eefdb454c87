//! `nvabi alloc devices` on the devices that are there.

use std::path::Path;
use std::process::Command;

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
