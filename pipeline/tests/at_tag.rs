//! One tag read alone is what the whole lock says of it.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::PathBuf;

use nvabi_pipeline::lock::{self, Fact, History, ItemKind, Lock, Names};
use nvabi_pipeline::model::{Facts, Surface};
use nvabi_pipeline::tag::Tag;

fn folder(family: &str) -> PathBuf {
    let specs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../abi-specs");
    lock::folder(&specs, family)
}

/// Tags all over the lock, the first and the last among them.
fn some_tags(lock: &Lock) -> Vec<&nvabi_pipeline::tag::Tag> {
    let tags = lock.tags.iter().enumerate();
    let last = lock.tags.len() - 1;
    tags.filter(|(i, _)| i % 32 == 0 || *i == last).map(|(_, locked)| &locked.tag).collect()
}

#[test]
fn one_tag_is_as_in_the_whole_lock() {
    for family in ["", "tegra"] {
        let folder = folder(family);
        let (lock, _) = lock::read(&folder).unwrap();
        let tags = some_tags(&lock);
        assert!(tags.len() > 1);
        for tag in tags {
            // Not assert_eq: it would print 100,000 lines.
            assert!(lock::read_facts(&folder, tag).unwrap() == lock.facts(tag).unwrap(), "{tag}");
        }
    }
}

#[test]
fn some_constants_are_as_in_the_whole_lock() {
    let folder = folder("");
    let (lock, _) = lock::read(&folder).unwrap();
    for tag in some_tags(&lock) {
        let mut whole = lock.facts(tag).unwrap();
        let read = lock::read_facts_with(&folder, tag, &["NV_OK", "NV2080_NOTIFIERS_*"]).unwrap();
        let calls: BTreeSet<String> = whole.surfaces["calls"].calls.keys().cloned().collect();
        let wanted = |name: &String| {
            name == "NV_OK" || name.starts_with("NV2080_NOTIFIERS_") || calls.contains(name)
        };
        assert!(!read.surfaces["rm"].constants.is_empty());
        for surface in whole.surfaces.values_mut() {
            surface.constants.retain(|name, _| wanted(name));
            surface.bit_ranges.retain(|name, _| wanted(name));
        }
        whole.surfaces.retain(|_, surface| *surface != Default::default());
        assert!(read == whole, "{tag}");
    }
}

/// A record, a typedef with its record, an enum, an enumerator, a constant, one under a name that is indented, a
/// call, a record that holds others, and nothing.
const NAMES: [&str; 10] = [
    "NVOS54_PARAMETERS",
    "NvHandle",
    "NV_CHANNEL_ALLOC_PARAMS",
    "NV2080_CTRL_GPU_RECOVERY_ACTION",
    "NV2080_CTRL_GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN",
    "NV_ESC_RM_CONTROL",
    "NVC5B5_NOP_PARAMETER",
    "NV2080_CTRL_CMD_FB_QUERY_DRAM_ENCRYPTION_STATUS",
    "UVM_MAP_EXTERNAL_ALLOCATION_PARAMS",
    "NOTHING",
];

#[test]
fn names_have_the_histories_of_the_whole_lock() {
    let folder = folder("");
    let (lock, _) = lock::read(&folder).unwrap();
    let names = |names| Names { names, specs: &[], surfaces: &[] };
    let read = lock::read_names(&folder, names(&NAMES)).unwrap();
    assert_eq!(read.tags, lock.tags);
    let is_wanted = |(kind, name): &(ItemKind, String), history: &History| {
        let mut facts = history.iter().filter_map(|state| Some(&*state.value.as_ref()?.fact));
        NAMES.contains(&name.as_str())
            || *kind == ItemKind::Enum
                && facts.any(|fact| match fact {
                    Fact::Enum { variants, .. } => NAMES.iter().any(|n| variants.contains_key(*n)),
                    _ => false,
                })
    };
    let mut wanted = 0;
    for (place, header) in &lock.headers {
        for (key, history) in header.items.iter().filter(|(key, history)| is_wanted(key, history)) {
            let found = read.headers.get(place).and_then(|header| header.items.get(key));
            assert!(found == Some(history), "{place:?} {key:?}");
            wanted += 1;
        }
    }
    assert!(wanted > NAMES.len(), "{wanted}");
    // What they are made of, and what a call takes, is there; what nobody asks for is not.
    let has = |name: &str| read.headers.values().any(|h| h.items.keys().any(|(_, n)| n == name));
    for name in [
        "NV_MEMORY_DESC_PARAMS",
        "NV2080_CTRL_FB_QUERY_DRAM_ENCRYPTION_STATUS_PARAMS",
        "UvmGpuMappingAttributes",
    ] {
        assert!(has(name), "{name}");
    }
    assert!(!has("NVOS64_PARAMETERS") && !has("NV_ESC_RM_ALLOC"));
    // A whole surface.
    let of = Names { surfaces: &["drm"], ..names(&["NOTHING"]) };
    let drm = lock::read_names(&folder, of).unwrap();
    let of_drm = lock.headers.iter().filter(|((surface, _), _)| surface == "drm");
    assert!(drm.headers.iter().eq(of_drm));
}

#[test]
fn some_tags_are_as_in_the_whole_lock() {
    let folder = folder("");
    let (lock, _) = lock::read(&folder).unwrap();
    let tags = some_tags(&lock);
    let read = lock::read_at(&folder, &tags).unwrap();
    assert!(read.tags.iter().map(|locked| &locked.tag).eq(tags.iter().copied()));
    for tag in &tags {
        assert!(read.facts(tag) == lock.facts(tag), "{tag}");
    }
    // A history is of these tags alone, and says nothing twice.
    let histories = read.headers.values().flat_map(|header| header.items.values());
    for history in histories {
        assert!(history.iter().all(|state| state.from < tags.len()));
        assert!(history.windows(2).all(|two| two[0].value != two[1].value));
    }
    let none: Tag = "1.2.3".parse().unwrap();
    let report = lock::read_at(&folder, &[&none]).unwrap_err();
    assert_eq!(report.diagnostics[0].code, "lock-no-tag");
}

/// In either order.
#[test]
fn what_changes_between_two_tags_is_as_in_the_whole_lock() {
    let folder = folder("");
    let (lock, _) = lock::read(&folder).unwrap();
    let tag = |text: &str| text.parse::<Tag>().unwrap();
    for [a, b] in [["550.40.07", "550.163.01"], ["595.45.04", "515.43.04"], ["570.144", "570.144"]]
    {
        let (a, b) = (tag(a), tag(b));
        let [from, to] = lock::read_changed(&folder, &["NV_OK"], &["drm"], [&a, &b]).unwrap();
        let (all_from, all_to) = (lock.facts(&a).unwrap(), lock.facts(&b).unwrap());
        assert!(count(&from) < count(&all_from));
        for (read, whole, other) in [(&from, &all_from, &all_to), (&to, &all_to, &all_from)] {
            for (name, whole) in &whole.surfaces {
                // One whose constants all stay is left out.
                let surface = &read.surfaces.get(name).cloned().unwrap_or_default();
                assert!(surface.records == whole.records && surface.aliases == whole.aliases);
                assert!(surface.enums == whole.enums && surface.calls == whole.calls);
                // What is left out has one value on both sides.
                let there = other.surfaces.get(name);
                let value = |of: Option<&Surface>, constant: &String| {
                    Some(of?.constants.get(constant)?.value)
                };
                for constant in whole.constants.keys() {
                    if !surface.constants.contains_key(constant) {
                        assert!(name != "drm" && constant != "NV_OK", "{constant}");
                        assert_eq!(
                            value(Some(whole), constant),
                            value(there, constant),
                            "{constant}"
                        );
                    }
                }
            }
        }
        assert!(from.surfaces["rm"].constants.contains_key("NV_OK"));
    }
}

fn count(facts: &Facts) -> usize {
    facts.names().count()
}

/// A lock that was edited by hand is no answer, also to a question about one name in another file.
#[test]
fn an_edited_file_is_refused() {
    let (lock, _) = lock::read(&folder("tegra")).unwrap();
    let copy = tempfile::tempdir().unwrap();
    lock::write(copy.path(), &lock).unwrap();
    let tag = &lock.tags.last().unwrap().tag;
    let names = Names { names: &["nvmap_create_handle"], specs: &[], surfaces: &[] };
    let all_read = || {
        let facts = lock::read_facts(copy.path(), tag);
        let some = lock::read_facts_with(copy.path(), tag, &["NVGPU_*"]);
        let changed = lock::read_changed(copy.path(), &[], &[], [tag, tag]);
        [
            facts.map(drop),
            some.map(drop),
            changed.map(drop),
            lock::read_at(copy.path(), &[tag]).map(drop),
            lock::read_names(copy.path(), names).map(drop),
        ]
    };
    assert!(all_read().iter().all(Result::is_ok));
    let file = copy.path().join("nvgpu/include/uapi/linux/nvgpu.h.lock");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replacen(" 4 ", " 8 ", 1)).unwrap();
    for read in all_read() {
        assert_eq!(read.unwrap_err().diagnostics[0].code, "lock-edited");
    }
}
