//! What the simulator's own rules ask a profile for, where it is in a recording: names, lists, places on the bus.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cases::Identities;
use super::machine::Machine;
use super::solve::Solved;
use super::{Recording, text_in};
use crate::profile::{self, Datum, Profile};
use crate::rm::interface::{Interface, Params};

/// The index names of engines.
const ENGINES: &str = "NV2080_ENGINE_TYPE_";
/// Commands that list engines and classes: the count, the list.
const ENGINE_LISTS: [(&str, &str, &str); 2] = [
    ("NV2080_CTRL_CMD_GPU_GET_ENGINES_V2", "engineCount", "engineList"),
    ("NV2080_CTRL_CMD_GPU_GET_ENGINES", "engineCount", "engineList"),
];
const CLASS_LISTS: [(&str, &str, &str); 2] = [
    ("NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2", "numClasses", "classList"),
    ("NV0080_CTRL_CMD_GPU_GET_CLASSLIST", "numClasses", "classList"),
];
/// What a card with outputs has.
const DISPLAY: &str = "NV04_DISPLAY_COMMON";
/// A controller of three dimensions, which has no outputs.
const NO_OUTPUTS: i128 = 0x030200;

/// What a profile cannot do without, and what asks for it.
const NEEDED: [(&str, &str); 5] = [
    ("identity.device", "NV2080_CTRL_CMD_BUS_GET_PCI_INFO"),
    ("identity.subsystem", "NV2080_CTRL_CMD_BUS_GET_PCI_INFO"),
    ("identity.architecture", "NV2080_CTRL_CMD_MC_GET_ARCH_INFO"),
    ("identity.implementation", "NV2080_CTRL_CMD_MC_GET_ARCH_INFO"),
    ("memory.size", "NV2080_CTRL_CMD_FB_GET_INFO_V2"),
];

/// Of one GPU.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) name: Option<String>,
    engines: Option<Vec<String>>,
    classes: Option<Vec<String>>,
    /// How many TPCs each GPC has.
    tpcs: Option<Vec<u32>>,
    /// Numbers of engines and classes that no header names.
    unnamed: Vec<String>,
    ids: Option<(u16, u16)>,
    bars: Option<(u64, u64)>,
}

impl Facts {
    pub(super) fn of(recording: &Recording, interface: &Arc<Interface>) -> Self {
        let mut facts = Self { ids: recording.ids, bars: recording.bars, ..Self::default() };
        let mut names = answers(interface, recording, "NV2080_CTRL_CMD_GPU_GET_NAME_STRING");
        facts.name = names.find_map(|params| name(&params));
        let (engines, unnamed) = numbers(interface, recording, &ENGINE_LISTS, |number| {
            let found = interface.constants.iter().filter(|(name, value)| {
                **value == u64::from(number) && name.strip_prefix(ENGINES).is_some_and(is_engine)
            });
            // Of several names the newest: NVDEC0 is BSP as well.
            found.map(|(name, _)| name[ENGINES.len()..].to_owned()).max()
        });
        (facts.engines, facts.unnamed) = (engines, unnamed);
        let (classes, unnamed) = numbers(interface, recording, &CLASS_LISTS, |number| {
            interface.class(number).map(|class| class.name.clone())
        });
        facts.classes = classes;
        facts.unnamed.extend(unnamed);
        let any = |tpcs: &Vec<u32>| !tpcs.is_empty();
        let by_mask = || tpcs_by_mask(interface, recording).filter(any);
        facts.tpcs = tpcs_in_order(interface, recording).filter(any).or_else(by_mask);
        facts
    }

    /// What a recording lacks, and what would have asked for it.
    pub(super) fn missing(&self, values: &BTreeMap<String, Datum>) -> Vec<String> {
        let mut missing = Vec::new();
        if self.name.is_none() {
            missing.push("identity.name: NV2080_CTRL_CMD_GPU_GET_NAME_STRING".to_owned());
        }
        for (name, command) in NEEDED {
            let is_told =
                values.contains_key(name) || name == "identity.device" && self.ids.is_some();
            if !is_told {
                missing.push(format!("{name}: {command}"));
            }
        }
        missing
    }

    /// Adds to what was solved what the rules ask for.
    pub(super) fn complete(
        self,
        solved: &mut Solved,
        interface: &Arc<Interface>,
        notes: &mut Vec<String>,
    ) {
        let values = &mut solved.values;
        let ids = self.ids.into_iter().flat_map(|(vendor, device)| {
            [("identity.vendor", vendor.into()), ("identity.device", device.into())]
        });
        let bars = self.bars.into_iter().flat_map(|(registers, window)| {
            [("bars.registers.size", registers.into()), ("bars.window.size", window.into())]
        });
        for (name, number) in ids.chain(bars) {
            values.entry(name.to_owned()).or_insert(Datum::Number(number));
        }
        values.insert("identity.name".to_owned(), Datum::Text(self.name.unwrap_or_default()));
        for number in self.unnamed {
            notes.push(format!("{number} has no name in {}: left out", interface.tag));
        }
        let like = like(values, interface);
        for (name, known) in [("engines", self.engines), ("classes", self.classes)] {
            let words = known.unwrap_or_else(|| {
                let from = like.name;
                notes.push(format!(
                    "{name} were not asked for: those of the profile {from} are taken"
                ));
                like.words(name)
            });
            if name == "classes" && !words.iter().any(|word| word == DISPLAY) {
                values.insert("identity.class".to_owned(), Datum::Number(NO_OUTPUTS));
            }
            let words = words.into_iter().map(Datum::Text).collect();
            values.insert(name.to_owned(), Datum::List(words));
        }
        add_tpcs(values, self.tpcs, &like, notes);
        // Drivers have room for other numbers of copy engines than a card has.
        if let Some(Datum::List(caps)) = values.get_mut("copies.caps") {
            let is_last = |datum: &Datum| datum.number() != Some(0);
            caps.truncate(caps.iter().rposition(is_last).map_or(0, |last| last + 1));
        }
        add_texts(values, notes);
    }
}

/// What CUDA asks first, and answers of the simulator's own rules are made of: those of a like card have to be as many.
fn add_tpcs(
    values: &mut BTreeMap<String, Datum>,
    told: Option<Vec<u32>>,
    like: &Like,
    notes: &mut Vec<String>,
) {
    let sum = |tpcs: &[u32]| i128::from(tpcs.iter().sum::<u32>());
    let count = values.get("graphics.tpc_count").and_then(Datum::number);
    let tpcs = told.or_else(|| {
        let own = like.numbers("graphics.tpcs");
        let from = like.name;
        match count.is_none_or(|count| count == sum(&own)) && !own.is_empty() {
            true => {
                notes.push(format!(
                    "TPCs were not asked for: those of the profile {from} are taken"
                ));
                Some(own)
            }
            false => {
                notes.push("TPCs were not asked for: CUDA finds no device".to_owned());
                None
            }
        }
    });
    let Some(tpcs) = tpcs else { return };
    values.entry("graphics.tpc_count".to_owned()).or_insert(Datum::Number(sum(&tpcs)));
    let list = tpcs.into_iter().map(|count| Datum::Number(count.into())).collect();
    values.insert("graphics.tpcs".to_owned(), Datum::List(list));
}

/// The answers of a command that were good.
fn answers<'a>(
    interface: &'a Arc<Interface>,
    recording: &'a Recording,
    name: &'static str,
) -> impl Iterator<Item = Params> + 'a {
    let calls = recording.calls.iter().filter(|call| call.status == 0);
    calls.filter_map(move |call| {
        let known = interface.command(call.command).filter(|known| known.name == name)?;
        Some(Params::of(interface, known.params.as_deref()?, call.after.clone()))
    })
}

/// How many TPCs each GPC has, by the list of all SMs.
fn tpcs_in_order(interface: &Arc<Interface>, recording: &Recording) -> Option<Vec<u32>> {
    let params = answers(interface, recording, "NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER").next()?;
    let mut tpcs = BTreeMap::<u32, u32>::new();
    for at in 0..params.get("numSm").ok()?.min(params.count("globalSmId").ok()? as u64) {
        let word = |field: &str| params.word(&format!("globalSmId[{at}].{field}")).ok();
        let count = tpcs.entry(word("gpcId")?).or_default();
        *count = (*count).max(word("localTpcId")?.saturating_add(1));
    }
    Some(tpcs.into_values().collect())
}

/// The same by the mask of each GPC.
fn tpcs_by_mask(interface: &Arc<Interface>, recording: &Recording) -> Option<Vec<u32>> {
    let mut tpcs = BTreeMap::new();
    for params in answers(interface, recording, "NV2080_CTRL_CMD_GR_GET_TPC_MASK") {
        tpcs.insert(params.word("gpcId").ok()?, params.word("tpcMask").ok()?.count_ones());
    }
    Some(tpcs.into_values().collect())
}

/// Texts that every card has: the version of the BIOS is made of its numbers.
fn add_texts(values: &mut BTreeMap<String, Datum>, notes: &mut Vec<String>) {
    let number = |name: &str| values.get(name).and_then(Datum::number);
    if let (Some(revision), Some(oem)) = (number("bios.revision"), number("bios.oem_revision")) {
        let bytes = [revision >> 24, revision >> 16, revision >> 8, revision, oem];
        let parts = bytes.map(|byte| format!("{:02x}", byte & 0xff));
        values.insert("identity.bios".to_owned(), Datum::Text(parts.join(".")));
    }
    for (name, none) in [("identity.bios", "00.00.00.00.00"), ("identity.short_name", "GPU")] {
        if !values.contains_key(name) {
            notes.push(format!("{name} was not asked for: it is {none:?}"));
            values.insert(name.to_owned(), Datum::Text(none.to_owned()));
        }
    }
}

/// Names of engines, not of counts and ranges.
fn is_engine(name: &str) -> bool {
    !["LAST", "ALLENGINES", "NULL"].contains(&name)
        && !name.contains("_SIZE")
        && !name.ends_with("(i)")
}

/// Letters of one byte or of two.
fn name(params: &Params) -> Option<String> {
    let is_wide = params.word("gpuNameStringFlags").ok()? == 1;
    let text = match is_wide {
        false => params.bytes_of("gpuNameString.ascii").ok()?.to_vec(),
        true => params.bytes_of("gpuNameString.unicode").ok()?.iter().step_by(2).copied().collect(),
    };
    text_in(&text).filter(|text| !text.is_empty() && profile::is_plain(text))
}

/// The names of listed numbers, and those that have none.
fn numbers(
    interface: &Arc<Interface>,
    recording: &Recording,
    commands: &[(&str, &str, &str)],
    name: impl Fn(u32) -> Option<String>,
) -> (Option<Vec<String>>, Vec<String>) {
    for call in recording.calls.iter().filter(|call| call.status == 0) {
        let Some(known) = interface.command(call.command) else { continue };
        let Some((_, count, list)) = commands.iter().find(|(command, ..)| *command == known.name)
        else {
            continue;
        };
        let params =
            Params::of(interface, known.params.as_deref().unwrap_or_default(), call.after.clone());
        let Ok(count) = params.get(count) else { continue };
        let found: Option<Vec<u32>> = match params.bytes_of(list) {
            Ok(bytes) if bytes.len() > 8 => Some(words(bytes, count)),
            _ => {
                let address = params.get(list).unwrap_or(0);
                call.buffers
                    .iter()
                    .find(|buffer| buffer.address == address)
                    .map(|it| words(&it.after, count))
            }
        };
        // Without a buffer it was asked how many there are.
        let Some(found) = found.filter(|found| !found.is_empty()) else { continue };
        let mut seen = BTreeSet::new();
        let (mut names, mut unnamed) = (Vec::new(), Vec::new());
        for number in found {
            match name(number) {
                Some(name) if seen.insert(name.clone()) => names.push(name),
                Some(_) => {}
                None => unnamed.push(format!("{number:#x} of {}", known.name)),
            }
        }
        return (Some(names), unnamed);
    }
    (None, Vec::new())
}

fn words(bytes: &[u8], count: u64) -> Vec<u32> {
    let words = bytes.chunks_exact(4).take(count as usize);
    words.filter_map(|word| Some(u32::from_le_bytes(word.try_into().ok()?))).collect()
}

/// A profile of this build of a card with the same chip, else of the same architecture, else any.
struct Like {
    name: &'static str,
    machine: Option<Machine>,
}

fn like(values: &BTreeMap<String, Datum>, interface: &Arc<Interface>) -> Like {
    let mut best = (0, Like { name: profile::DEFAULT, machine: None });
    for name in profile::names() {
        let Ok(profile) = Profile::load(name) else { continue };
        let machine = Machine::new(&profile, interface);
        let is_same = |what: &str| {
            values.contains_key(what) && machine.own_value(what).as_ref() == values.get(what)
        };
        let score = 1
            + usize::from(is_same("identity.architecture")) * 2
            + usize::from(is_same("identity.architecture") && is_same("identity.implementation"));
        if score > best.0 {
            best = (score, Like { name, machine: Some(machine) });
        }
    }
    best.1
}

impl Like {
    fn words(&self, what: &str) -> Vec<String> {
        let list = self.machine.as_ref().and_then(|machine| machine.own_value(what));
        let Some(Datum::List(items)) = list else { return Vec::new() };
        let text = |item| if let Datum::Text(text) = item { Some(text) } else { None };
        items.into_iter().filter_map(text).collect()
    }

    fn numbers(&self, what: &str) -> Vec<u32> {
        let list = self.machine.as_ref().and_then(|machine| machine.own_value(what));
        let Some(Datum::List(items)) = list else { return Vec::new() };
        items.iter().filter_map(|item| u32::try_from(item.number()?).ok()).collect()
    }
}

/// What must not be in a profile: the card's identity and its serial number, as bytes and as texts.
pub(super) fn identities(recording: &Recording, interface: &Arc<Interface>) -> Identities {
    const SOURCES: [(&str, &str); 3] = [
        ("NV2080_CTRL_CMD_GPU_GET_GID_INFO", "data"),
        ("NV0000_CTRL_CMD_GPU_GET_UUID_FROM_GPU_ID", "gpuUuid"),
        ("NV2080_CTRL_CMD_GPU_GET_OEM_BOARD_INFO", "serialNumber"),
    ];
    let mut found = Identities::new();
    for call in recording.calls.iter().filter(|call| call.status == 0) {
        let Some(known) = interface.command(call.command) else { continue };
        let Some((_, field)) = SOURCES.iter().find(|(command, _)| *command == known.name) else {
            continue;
        };
        let params =
            Params::of(interface, known.params.as_deref().unwrap_or_default(), call.after.clone());
        let Ok(bytes) = params.bytes_of(field) else { continue };
        let own = match text_in(bytes) {
            Some(text) => text.into_bytes(),
            None => bytes.iter().take(16).copied().collect(),
        };
        // A few bytes are in everything.
        if own.len() >= 8 && own.iter().any(|byte| *byte != 0) && !found.contains(&own) {
            found.push(own);
        }
    }
    found
}
