//! Changes that the driver's headers are known to have made, against the lock: the tag before, the
//! tag that made it, the struct, and where a field was and went to.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use nvabi_pipeline::lock::{self, Fact, ItemKind, Lock};
use nvabi_pipeline::model::CallKind;
use nvabi_pipeline::model::Facts;
use nvabi_pipeline::spec::Spec;

static LOCK: LazyLock<Lock> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("abi-specs/lock");
    let (lock, report) = lock::read(&folder).unwrap();
    assert!(report.diagnostics.is_empty(), "{report}");
    lock
});

fn facts(tag: &str) -> Facts {
    LOCK.facts(&tag.parse().unwrap()).unwrap()
}

/// What the lock has under a name at a tag. The facts of a whole tag take a thousand times as long.
fn fact(tag: &str, kind: ItemKind, name: &str) -> Option<&'static Fact> {
    let at = LOCK.tag_index(&tag.parse().unwrap()).unwrap();
    let item = (kind, name.to_owned());
    let mut histories = LOCK.headers.values().filter_map(|header| header.items.get(&item));
    histories.find_map(|history| lock::state_at(history, at)).map(|placed| &*placed.fact)
}

/// The offset of a field; `None` where the record has none of that name.
fn offset(tag: &str, record: &str, field: &str) -> Option<u64> {
    let Fact::Record { fields, .. } = fact(tag, ItemKind::Record, record)? else { return None };
    Some(fields.iter().find(|f| f.name == field)?.offset)
}

/// Size and alignment of a record.
fn size(tag: &str, record: &str) -> Option<(u64, u64)> {
    let Fact::Record { size, align, .. } = fact(tag, ItemKind::Record, record)? else {
        return None;
    };
    Some((*size, *align))
}

/// Tag before, tag from which it holds, record, field, offset before and since.
type Move = (&'static str, &'static str, &'static str, &'static str, Option<u64>, Option<u64>);

#[rustfmt::skip]
const MOVES: [Move; 22] = [
    ("515.105.01", "520.56.06", "NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS", "present", Some(36), Some(64)),
    ("515.105.01", "520.56.06", "NV2080_CTRL_GPU_QUERY_ECC_STATUS_PARAMS", "bFatalPoisonError", Some(880), Some(960)),
    ("520.61.07", "525.47.04", "NVOS64_PARAMETERS", "status", Some(32), Some(36)),
    ("520.61.07", "525.47.04", "NVOS64_PARAMETERS", "flags", None, Some(32)),
    ("525.147.05", "530.30.02", "NV2080_CTRL_CMD_BUS_GET_C2C_INFO_PARAMS", "linkMask", Some(8), Some(12)),
    // Nothing but the meaning of four bytes: the size stays.
    ("530.41.03", "535.43.02", "NVOS21_PARAMETERS", "status", Some(24), Some(28)),
    ("530.41.03", "535.43.02", "NVOS21_PARAMETERS", "paramsSize", None, Some(24)),
    ("530.41.03", "535.43.02", "NV00F8_ALLOCATION_PARAMETERS", "map", Some(24), Some(32)),
    ("545.29.06", "550.40.07", "NVOS47_PARAMETERS", "status", Some(32), Some(40)),
    ("545.29.06", "550.40.07", "UVM_SET_PREFERRED_LOCATION_PARAMS", "rmStatus", Some(32), Some(36)),
    // Inside a branch, and again where the next tags had been cut before.
    ("550.40.63", "550.40.65", "NV0050_ALLOCATION_PARAMETERS", "forceCeId", None, Some(16)),
    ("550.40.85", "550.54.14", "NV0050_ALLOCATION_PARAMETERS", "forceCeId", Some(16), None),
    ("550.76", "550.78", "NV0050_ALLOCATION_PARAMETERS", "forceCeId", None, Some(16)),
    ("550.163.01", "555.42.02", "NV2080_CTRL_GPU_QUERY_ECC_STATUS_PARAMS", "flags", Some(1004), Some(1204)),
    ("555.58.02", "560.28.03", "NV2080_CTRL_CMD_BUS_GET_PCIE_REQ_ATOMICS_CAPS_PARAMS", "atomicsCaps", Some(0), Some(8)),
    ("560.35.03", "565.57.01", "NV2080_CTRL_GPU_QUERY_ECC_STATUS_PARAMS", "uncorrectableError", Some(1241), Some(1441)),
    ("565.77", "570.86.15", "NV2080_CTRL_NVLINK_LINK_STATUS_INFO", "localDeviceInfo", Some(144), Some(152)),
    ("565.77", "570.86.15", "NV2080_CTRL_PERF_GPUMON_PERFMON_UTIL_SAMPLE", "gr", Some(124), Some(136)),
    ("570.211.01", "575.51.02", "NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS", "numSm", Some(6144), Some(7168)),
    ("575.64.05", "580.65.06", "NV00F1_CTRL_ATTACH_REMOTE_GPU_EVENT_DATA", "cliqueId", Some(16), Some(24)),
    ("580.142", "590.44.01", "NV00F1_CTRL_ATTACH_REMOTE_GPU_EVENT_DATA", "index", Some(28), Some(36)),
    ("590.48.01", "595.44.02", "NV00F1_CTRL_ATTACH_REMOTE_GPU_EVENT_DATA", "exportUuid", Some(41), Some(42)),
];

#[test]
fn fields_moved_when_the_headers_say() {
    for (before, since, record, field, old, new) in MOVES {
        let found = [before, since].map(|tag| offset(tag, record, field));
        assert_eq!(found, [old, new], "{record}.{field} from {before} to {since}");
        // The tag is the first of its branch that has it so: none of it lies between the two.
        let at = |tag: &str| LOCK.tag_index(&tag.parse().unwrap()).unwrap();
        let between = &LOCK.tags[at(before) + 1..at(since)];
        let branch = LOCK.tags[at(since)].tag.branch();
        assert!(between.iter().all(|locked| locked.tag.branch() != branch), "{before} {since}");
    }
}

#[test]
fn sizes_that_came_back() {
    for (tag, bytes) in
        [("535.43.02", 304), ("535.43.28", 360), ("535.54.03", 304), ("535.86.05", 360)]
    {
        assert_eq!(size(tag, "NV_CHANNEL_ALLOC_PARAMS"), Some((bytes, 8)), "{tag}");
    }
    // Aligned by attribute: the one layout that C would not have given it by itself.
    assert_eq!(size("520.61.07", "NV_FB_SEGMENT_ALLOCATION_PARAMS"), Some((312, 8)));
    assert_eq!(size("525.47.04", "NV_FB_SEGMENT_ALLOCATION_PARAMS"), Some((304, 8)));
}

#[test]
fn a_command_that_came_and_went() {
    const NAME: &str = "NV_CONF_COMPUTE_CTRL_CMD_GPU_GET_KEY_ROTATION_STATE";
    let has = |tag: &str| fact(tag, ItemKind::Constant, NAME).is_some();
    let tags = ["550.40.63", "550.40.65", "550.54.14", "550.90.07", "555.42.02", "560.28.03"];
    assert_eq!(tags.map(has), [false, true, false, true, false, true]);
}

#[test]
fn one_number_named_two_commands() {
    let at = |tag: &str| -> Vec<String> {
        let facts = facts(tag);
        let named = |(name, constant): (&String, &nvabi_pipeline::model::Constant)| {
            (constant.value == 0x2080_1358 && name.contains("_CTRL_CMD_")).then(|| name.clone())
        };
        facts.surfaces["rm"].constants.iter().filter_map(named).collect()
    };
    let (before, after) = (at("570.86.15"), at("575.51.02"));
    assert_eq!((before.len(), after.len()), (1, 1), "{before:?} {after:?}");
    assert_ne!(before, after);
}

/// What is the same at every tag since a feature began, from the first to the last. Tags and
/// branches are added and never leave.
#[test]
fn every_tag_is_there() {
    assert!(LOCK.tags.len() >= 193, "{}", LOCK.tags.len());
    let mut branches: Vec<&str> = LOCK.tags.iter().map(|t| t.tag.branch()).collect();
    branches.dedup();
    assert!(branches.len() >= 15, "{branches:?}");
    for locked in &LOCK.tags {
        let size = size(locked.tag.as_str(), "NVOS21_PARAMETERS");
        assert_eq!(size, Some((32, 8)), "{}", locked.tag);
    }
}

/// What one spec names is a call to a shim, so a branch that has it and does not name it says that it is
/// new in the next. Commands that come and go between tags were missed so.
#[test]
fn specs_name_a_command_or_class_wherever_the_driver_has_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("abi-specs");
    let specs = Spec::load_family(&folder, "").unwrap();
    let known: BTreeSet<&str> = specs.iter().flat_map(|s| &s.items).map(|i| &*i.name).collect();
    let items = LOCK.headers.values().flat_map(|header| &header.items);
    let calls: Vec<_> = items.filter(|((_, name), _)| known.contains(&**name)).collect();
    let (mut found, mut missed) = (0, Vec::new());
    for (at, tag) in LOCK.tags.iter().map(|locked| &locked.tag).enumerate() {
        let spec = specs.iter().find(|spec| spec.driver == tag.branch()).unwrap();
        let named: BTreeSet<&str> = spec.items_at(tag).map(|item| &*item.name).collect();
        for ((_, name), history) in &calls {
            let Some(Fact::Call(takes)) = lock::state_at(history, at).map(|p| &*p.fact) else {
                continue;
            };
            // A class that the resource list lacks is a name in a header.
            let has = takes.is_mapped() || takes.kind != CallKind::Class;
            found += usize::from(has);
            if has && !named.contains(&**name) {
                missed.push(format!("{tag} {name}"));
            }
        }
    }
    assert!(found > LOCK.tags.len() && missed.is_empty(), "{found} {missed:#?}");
}
