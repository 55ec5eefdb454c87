//! What the specs say an escape is made on, beside what the driver's source rejects.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

#[path = "common/at_hand.rs"]
mod at_hand;

use std::collections::BTreeMap;
use std::path::Path;

use nvabi_pipeline::headers::Source;
use nvabi_pipeline::lock::read_tags;
use nvabi_pipeline::spec::{ItemKind, Reference, Spec, spec_of};

test_main!();

const SOURCES: [&str; 2] = ["kernel-open/nvidia/nv.c", "src/nvidia/arch/nvalloc/unix/src/escape.c"];

/// The node of each escape that a source rejects on other files; `None` where it takes both.
fn nodes(text: &str) -> BTreeMap<&str, Option<&'static str>> {
    let mut nodes = BTreeMap::new();
    let mut current = None;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("case ").and_then(|rest| rest.strip_suffix(':')) {
            // A case of another switch, inside of an escape's, is no escape.
            if name.starts_with("NV_ESC_") {
                current = Some(name);
                nodes.insert(name, None);
            }
        }
        let only = match line {
            "NV_CTL_DEVICE_ONLY(nv);" => "nvidiactl",
            "NV_ACTUAL_DEVICE_ONLY(nv);" => "nvidia",
            _ => continue,
        };
        nodes.insert(current.expect("a rejection is an escape's"), Some(only));
    }
    nodes
}

/// At every tag at hand.
#[test]
fn escapes_are_made_on_the_file_that_the_driver_takes_them_on() {
    let specs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../abi-specs");
    let locked: Vec<_> =
        (read_tags(&specs.join("lock")).unwrap().into_iter()).map(|locked| locked.tag).collect();
    let (headers, tags) = at_hand::locked_headers(&locked);
    let specs = Spec::load_family(&specs, "").unwrap();
    let mut source = Source::open(&headers).unwrap();
    for tag in tags {
        let folders = SOURCES.map(|path| path.rsplit_once('/').unwrap().0);
        let listing = source.list(Reference::whole(&tag), &folders).unwrap().remove(0);
        let tree = source.read_alone(&listing, &SOURCES.map(str::to_owned)).unwrap();
        let told: BTreeMap<&str, Option<&str>> =
            tree.files.values().flat_map(|file| nodes(&file.text)).collect();
        let spec = spec_of(&specs, &tag).unwrap();
        let mut compared = 0;
        for item in spec.items_at(&tag).filter(|item| item.kind == ItemKind::Frontend) {
            let Some(only) = told.get(item.name.as_str()) else { continue };
            let node = item.node.as_ref().map(|node| node.name.as_str());
            assert_eq!(node, Some(only.unwrap_or("nvidia-frontend")), "{} at {tag}", item.name);
            compared += 1;
        }
        assert!(compared > 25, "{tag}: {compared} escapes compared");
    }
}
