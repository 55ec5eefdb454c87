//! One tag read alone is what the whole lock says of it.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::PathBuf;

use nvabi_pipeline::lock::{self, Lock};
use nvabi_pipeline::model::Facts;

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

#[test]
fn a_name_is_as_in_the_whole_lock() {
    let folder = folder("");
    let (lock, _) = lock::read(&folder).unwrap();
    // A record, a typedef with its record, an enum, an enumerator, a constant, one under a name that is
    // indented, a call, and nothing.
    let names = [
        "NVOS54_PARAMETERS",
        "NvHandle",
        "NV_CHANNEL_ALLOC_PARAMS",
        "NV2080_CTRL_GPU_RECOVERY_ACTION",
        "NV2080_CTRL_GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN",
        "NV_ESC_RM_CONTROL",
        "NVC5B5_NOP_PARAMETER",
        "NV2080_CTRL_CMD_FB_QUERY_DRAM_ENCRYPTION_STATUS",
        "NV2080_CTRL",
        "NOTHING",
    ];
    for tag in some_tags(&lock) {
        let whole = lock.facts(tag).unwrap();
        for name in names {
            let read = lock::read_named(&folder, tag, &BTreeSet::from([name.to_owned()])).unwrap();
            for (surface, of) in &whole.surfaces {
                let read = read.surfaces.get(surface).cloned().unwrap_or_default();
                assert_eq!(read.records.get(name), of.records.get(name), "{tag} {surface} {name}");
                assert_eq!(read.enums.get(name), of.enums.get(name));
                assert_eq!(read.aliases.get(name), of.aliases.get(name));
                assert_eq!(read.constants.get(name), of.constants.get(name));
                assert_eq!(read.bit_ranges.get(name), of.bit_ranges.get(name));
                assert_eq!(read.calls.get(name), of.calls.get(name));
                let meant = of.aliases.get(name).map(|alias| &alias.ty);
                for record in meant.into_iter().filter(|ty| of.records.contains_key(*ty)) {
                    assert_eq!(read.records.get(record), of.records.get(record));
                }
                for (name_of, with) in
                    of.enums.iter().filter(|(_, e)| e.variants.contains_key(name))
                {
                    assert_eq!(read.enums.get(name_of), Some(with));
                }
            }
            assert_eq!(
                count(&read) == 0,
                !whole.names().any(|known| known == name),
                "{tag} {name}"
            );
        }
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
    let name = BTreeSet::from(["nvmap_create_handle".to_owned()]);
    let all_read = || {
        let facts = lock::read_facts(copy.path(), tag);
        let some = lock::read_facts_with(copy.path(), tag, &["NVGPU_*"]);
        [facts, some, lock::read_named(copy.path(), tag, &name)]
    };
    assert!(all_read().iter().all(Result::is_ok));
    let file = copy.path().join("nvgpu/include/uapi/linux/nvgpu.h.lock");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replacen(" 4 ", " 8 ", 1)).unwrap();
    for read in all_read() {
        assert_eq!(read.unwrap_err().diagnostics[0].code, "lock-edited");
    }
}
