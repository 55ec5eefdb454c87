//! The built-in drivers of devmem on real devices: those of this machine, and those of a virtual
//! machine that runs this very test (`vm.rs`).
//!
//! What is not there is skipped by name; what `NVABI_REQUIRE` lists as `device:NAME` must be there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

mod allocate;
mod capture;
mod choose;
mod command;
mod convert;
mod fences;
mod gpus;
mod nvmap;
mod own;
mod rm;
mod scanout;
mod simulated;
mod vm;

use std::fs;
use std::path::Path;

use nvabi_devmem::drivers::{built_in, enumerate};
use nvabi_devmem::{
    Buffer, Capability, CapabilitySet, Description, Device, Fourcc, Image, Operation, Usage, Use,
    solve,
};
use nvabi_test::{Need, skip};

test_main!();

pub(crate) const XRGB: Fourcc = Fourcc::new(b"XR24");

/// Every device that is there.
pub(crate) fn devices() -> Vec<Box<dyn Device>> {
    let found = enumerate(&built_in());
    for (driver, error) in &found.problems {
        eprintln!("{driver}: {error}");
    }
    found.devices
}

/// A device by its name, or by what a test calls it: `vgem`, `vkms`, `bochs`, `virtio-gpu`, `virgl`, `camera`,
/// `contiguous-camera`, which takes no scattered memory, `converter`, `encoder`, `decoder`. Without it the test is
/// skipped.
pub(crate) fn device(name: &'static str) -> Box<dyn Device> {
    let wanted = alias(name);
    let found =
        wanted.and_then(|wanted| devices().into_iter().find(|device| device.info().name == wanted));
    found.unwrap_or_else(|| skip(Need::Device(name), format!("there is no {name}")))
}

fn alias(name: &str) -> Option<String> {
    match name {
        "vgem" | "vkms" => card(name),
        "bochs" => card("bochs-drm"),
        "simpledrm" => card("simple-framebuffer"),
        // The card is of the virtio device, or of what that is on.
        "virtio-gpu" => card("virtio_gpu").or_else(|| card("virtio-pci")),
        // GPUs in software: OpenGL's by a render node, and Vulkan's, which has none.
        "llvmpipe" => Some(format!("gl:{}", render_node(&card("vgem")?)?)),
        "lavapipe" => Some("vulkan:0".to_owned()),
        // A GPU whose driver keeps layouts to itself.
        "virgl" => virgl(),
        "camera" => camera(0),
        "contiguous-camera" => camera(1),
        "camera-by-planes" => camera(2),
        "converter" => video("vim2m").first().cloned(),
        "encoder" => video("stateful-encoder").first().cloned(),
        "decoder" => video("stateful-decoder").first().cloned(),
        _ => Some(name.to_owned()),
    }
}

/// The card of a driver, which the names of its device and of its driver in sysfs tell.
fn card(driver: &str) -> Option<String> {
    let cards = fs::read_dir("/sys/class/drm").ok()?;
    let names = cards.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut cards = names.filter(|name| name.starts_with("card") && !name.contains('-'));
    let found = cards.find(|name| {
        let device = Path::new("/sys/class/drm").join(name).join("device");
        [device.join("driver"), device]
            .iter()
            .any(|path| fs::canonicalize(path).is_ok_and(|path| path.ends_with(driver)))
    })?;
    Some(format!("drm:{found}"))
}

/// The render node of a card.
pub(crate) fn render_node(card: &str) -> Option<String> {
    let siblings = format!("/sys/class/drm/{}/device/drm", card.trim_start_matches("drm:"));
    let siblings = fs::read_dir(siblings).ok()?;
    let mut names = siblings.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.find(|name| name.starts_with("renderD"))
}

/// The GPU of virtio, where it draws.
fn virgl() -> Option<String> {
    let card = alias("virtio-gpu")?;
    let minor = card.trim_start_matches("drm:card");
    let features = format!("/sys/kernel/debug/dri/{minor}/virtio-gpu-features");
    let features = fs::read_to_string(features).ok()?;
    let draws = features.lines().any(|line| line.starts_with("virgl") && line.ends_with("yes"));
    draws.then(|| render_node(&card)).flatten().map(|node| format!("gl:{node}"))
}

/// The cameras of vivid, in the order of its parameters (`devmem_vm/init`).
fn camera(index: usize) -> Option<String> {
    video("vid-cap").get(index).cloned()
}

/// The nodes of V4L2 with these words in their names, in order.
fn video(words: &str) -> Vec<String> {
    let nodes = fs::read_dir("/sys/class/video4linux").into_iter().flatten();
    let names = nodes.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found: Vec<String> = names
        .filter(|name| {
            let name = Path::new("/sys/class/video4linux").join(name).join("name");
            fs::read_to_string(name).is_ok_and(|name| name.contains(words))
        })
        .collect();
    // video2 before video10.
    found.sort_by_key(|name| (name.len(), name.clone()));
    found.into_iter().map(|name| format!("v4l2:{name}")).collect()
}

/// An image of XR24 in rows without gaps, and who does what with it.
pub(crate) fn description(width: u32, height: u32, uses: Vec<Use>) -> Description {
    let image = Image::new(width, height, XRGB);
    let set = CapabilitySet::new(vec![], vec![Capability::pitch_linear()]);
    let layout = solve(&image, &set).unwrap();
    Description { usage: Usage::new(image, uses), set, layout, metadata: Vec::new() }
}

/// What a device does.
pub(crate) fn use_of(device: &dyn Device, operation: Operation) -> Use {
    Use::new(device.info().name.clone(), operation)
}

/// Bytes that are different everywhere, and in every buffer.
pub(crate) fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3] ^ seed).collect()
}

pub(crate) fn write(buffer: &Buffer, bytes: &[u8]) {
    let mut mapping = buffer.map().unwrap();
    let mut access = mapping.write().unwrap();
    access.store(0, bytes).unwrap();
    access.end().unwrap();
}

pub(crate) fn read(buffer: &Buffer) -> Vec<u8> {
    let mapping = buffer.map().unwrap();
    let access = mapping.read().unwrap();
    let mut bytes = vec![0; usize::try_from(buffer.description().layout.size).unwrap()];
    access.load(0, &mut bytes).unwrap();
    access.end().unwrap();
    bytes
}
