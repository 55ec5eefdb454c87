//! `nvabi alloc devices` on the devices that are there.

use std::path::Path;
use std::process::Command;

use super::{device, devices};

/// In the virtual machine the command lies elsewhere.
fn nvabi() -> Command {
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

#[test]
fn the_model_tells_what_each_can_do() {
    let listed: serde_json::Value = serde_json::from_str(&printed(&["--json"])).unwrap();
    let of = |name: &str| {
        let found = listed.as_array().unwrap().iter().find(|device| device["name"] == name);
        found.unwrap_or_else(|| panic!("{name} is not in {listed}")).clone()
    };
    assert_eq!(of("cpu")["operations"], serde_json::json!(["cpu-read", "cpu-write"]));
    for (name, operations) in [
        ("dma-heap:system", serde_json::json!([])),
        ("vkms", serde_json::json!(["scanout"])),
        ("camera", serde_json::json!(["capture"])),
    ] {
        let Some(device) = device(name) else { continue };
        let listed = of(&device.info().name);
        assert_eq!(listed["operations"], operations, "{name}");
        assert_eq!(listed["node"], device.info().node.as_str());
        assert_eq!(listed["allocates"], true);
    }
}
