//! Answers field by field, for commands that `base` does not answer as they were recorded.

use std::collections::{BTreeMap, BTreeSet};

use super::machine::Machine;
use super::replay::Line;
use super::{Call, text_in};
use crate::Status;
use crate::profile::{Case, Datum, is_plain, key, quoted};
use crate::rm::interface::{FieldRange, Interface};

/// Fields of one record that are looked at.
const MAX_LEAVES: usize = 1 << 14;
/// Elements of an array that a condition may name one by one.
const MAX_ELEMENTS: usize = 16;
/// Inputs of one answer that a condition names; a failure of more is what is left.
const MAX_INPUTS: usize = 8;
/// Fields that a condition is made of.
const MAX_FIELDS: usize = 4;
/// What is asked for is a small number: larger ones are addresses, or what was in memory before.
const MAX_INPUT: u64 = 0xffff;

/// An answer as TOML: keys and values.
pub(super) type Lines = Vec<(String, String)>;

/// A field that holds no others, or an array of such.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    pub(super) path: String,
    pub(super) range: FieldRange,
}

impl Leaf {
    /// Whether it is a text that has the number of the card.
    fn is_serial(&self) -> bool {
        self.range.size == 1 && self.range.count > 1 && self.path.to_lowercase().contains("serial")
    }

    pub(super) fn bytes<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let FieldRange { offset, size, count } = self.range;
        bytes.get(offset..offset + size * count).unwrap_or_default()
    }

    /// The bytes as TOML has them.
    pub(super) fn toml(&self, bytes: &[u8]) -> String {
        let bytes = self.bytes(bytes);
        if let (true, Some(text)) = (self.is_serial(), text_in(bytes)) {
            return if text.is_empty() { quoted("") } else { serial(text.len()) };
        }
        let size = self.range.size.max(1);
        let numbers: Vec<u64> = bytes.chunks(size).map(number).collect();
        if let (1, &[number]) = (self.range.count, numbers.as_slice()) {
            return hex(number);
        }
        match text_in(bytes).filter(|text| size == 1 && !text.is_empty() && is_plain(text)) {
            Some(text) => quoted(&text),
            None => {
                let used = numbers.iter().rposition(|number| *number != 0).map_or(0, |at| at + 1);
                let items: Vec<String> =
                    numbers[..used].iter().map(|number| hex(*number)).collect();
                format!("[{}]", items.join(", "))
            }
        }
    }
}

/// A serial number of as many letters, another one for each card of a machine.
pub(super) fn serial(length: usize) -> String {
    quoted(&format!("{}{{gpu.index}}", "0".repeat(length - 1)))
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn hex(number: u64) -> String {
    if number < 10 { number.to_string() } else { format!("{number:#x}") }
}

/// The fields of a record in the order of their places; of those of a union, every member's.
pub(super) fn leaves(interface: &Interface, record: &str) -> Vec<Leaf> {
    let mut found = Vec::new();
    add_leaves(interface, record, "", 0, &mut found);
    found
}

fn add_leaves(
    interface: &Interface,
    record: &str,
    begin: &str,
    base: usize,
    found: &mut Vec<Leaf>,
) {
    let Some(layout) = interface.records.get(record) else { return };
    for field in &layout.fields {
        if found.len() >= MAX_LEAVES {
            return;
        }
        let path = format!("{begin}{}", field.name);
        let Some(inner) = &field.record else {
            // What is no number has no word in a profile.
            if ![1, 2, 4, 8].contains(&field.size) {
                continue;
            }
            let range =
                FieldRange { offset: base + field.offset, size: field.size, count: field.count };
            found.push(Leaf { path, range });
            continue;
        };
        for at in 0..field.count {
            let begin = match (field.name.is_empty(), field.count) {
                (true, _) => begin.to_owned(),
                (false, 1) => format!("{path}."),
                (false, _) => format!("{path}[{at}]."),
            };
            add_leaves(interface, inner, &begin, base + field.offset + at * field.size, found);
        }
    }
}

/// The words of parameters that no header describes.
fn words(length: usize) -> Vec<Leaf> {
    let one = |at: usize| {
        let size = if length - at >= 4 { 4 } else { 1 };
        let path = if size == 4 { format!("+{at:#x}") } else { format!("+{at:#x}:1") };
        Leaf { path, range: FieldRange { offset: at, size, count: 1 } }
    };
    let whole = (0..length / 4 * 4).step_by(4);
    whole.chain(length / 4 * 4..length).map(one).collect()
}

/// Why a field is left out.
fn left_out(leaf: &Leaf, bytes: &[u8], identities: &Identities) -> Option<&'static str> {
    if leaf.is_serial() && text_in(leaf.bytes(bytes)).is_some() {
        // It is replaced.
        return None;
    }
    let FieldRange { offset, size, count } = leaf.range;
    // It may lie in several fields where nobody knows which they are.
    let is_identity = identities.iter().any(|own| {
        let mut places = bytes.windows(own.len()).enumerate().filter(|(_, part)| part == own);
        places.any(|(at, _)| at < offset + size * count && offset < at + own.len())
    });
    if is_identity { Some("it identifies the card") } else { private(&leaf.path) }
}

/// The same, by its name.
fn private(path: &str) -> Option<&'static str> {
    let name = path.rsplit('.').next().unwrap_or_default().split('[').next().unwrap_or_default();
    let lower = name.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let mut letters = name.chars();
    let is_handle = letters.next() == Some('h') && letters.next().is_some_and(char::is_uppercase);
    if has(&["uuid", "guid", "ecid", "serial", "cert", "macaddr"]) {
        Some("it identifies the card")
    } else if has(&["procid", "processid"]) || lower.starts_with("pid") || lower.ends_with("pid") {
        Some("it is a process")
    } else if is_handle {
        Some("it is a handle")
    } else if lower.starts_with("gpuid") || ["domain", "bus", "slot"].contains(&lower.as_str()) {
        Some("it is the machine's")
    } else {
        None
    }
}

/// What must not be in a profile, wherever it is.
pub(super) type Identities = Vec<Vec<u8>>;

/// All cases of a command, made of its recorded answers.
pub(super) fn cases(
    machine: &Machine,
    calls: &[&Call],
    identities: &Identities,
    notes: &mut Vec<String>,
) -> Vec<Lines> {
    let Some(first) = calls.first() else { return Vec::new() };
    let name = machine.name(first.command);
    let sizes: BTreeSet<usize> = calls.iter().map(|call| call.before.len()).collect();
    let mut all = Vec::new();
    for size in sizes {
        let calls: Vec<&Call> =
            calls.iter().filter(|call| call.before.len() == size).copied().collect();
        let leaves = match machine.record(first.command) {
            Some(record) => leaves(machine.interface(), &record),
            None => words(size),
        };
        let outputs = outputs(&name, &leaves, &calls, identities, notes);
        let of_gpu = leaves.iter().find(|leaf| leaf.path == "gpuId").filter(|_| first.is_of_client);
        let mut begin = Lines::new();
        begin.extend(of_gpu.map(|leaf| ("of-gpu".to_owned(), quoted(&leaf.path))));
        let is_unnamed = name.starts_with("0x");
        let own_size = is_unnamed.then(|| format!("params.size == {size}"));
        for (condition, call) in conditions(&leaves, &outputs, &calls) {
            let condition = match (&own_size, condition) {
                // A failure has no fields that a size is for.
                (Some(_), None) if call.status != 0 => None,
                (Some(size), Some(inputs)) if inputs.contains("||") => {
                    Some(format!("{size} && ({inputs})"))
                }
                (Some(size), Some(inputs)) => Some(format!("{size} && {inputs}")),
                (size, inputs) => inputs.or(size.clone()),
            };
            let mut lines = Lines::new();
            lines.extend(condition.map(|text| ("only-if".to_owned(), quoted(&format!("={text}")))));
            if call.status != 0 {
                lines.push(("fails-with".to_owned(), quoted(&format!("={}", Status(call.status)))));
            }
            lines.extend(begin.clone());
            if call.status == 0 {
                let own = outputs.iter().copied();
                lines.extend(fields(own, &call.after, is_unnamed));
            }
            all.push(lines);
        }
    }
    all
}

/// Fields as TOML: rows of words as one.
fn fields<'l>(leaves: impl Iterator<Item = &'l Leaf>, bytes: &[u8], is_unnamed: bool) -> Lines {
    if !is_unnamed {
        // Other drivers may lack it.
        return leaves.map(|leaf| (key(&format!("{}?", leaf.path)), leaf.toml(bytes))).collect();
    }
    let mut rows: Vec<FieldRange> = Vec::new();
    for leaf in leaves {
        match rows.last_mut() {
            Some(row)
                if row.size == leaf.range.size
                    && row.offset + row.size * row.count == leaf.range.offset =>
            {
                row.count += 1;
            }
            _ => rows.push(leaf.range),
        }
    }
    let rows = rows.into_iter().map(|range| {
        let path = match (range.size, range.count) {
            (4, 1) => format!("+{:#x}", range.offset),
            (size, 1) => format!("+{:#x}:{size}", range.offset),
            (size, count) => format!("+{:#x}:{size}*{count}", range.offset),
        };
        let leaf = Leaf { path, range };
        let value = match leaf.toml(bytes) {
            // Words are no letters.
            text if text.starts_with('"') => Datum::List(
                leaf.bytes(bytes).iter().map(|byte| Datum::Number((*byte).into())).collect(),
            )
            .toml(),
            value => value,
        };
        (key(&leaf.path), value)
    });
    rows.collect()
}

/// The fields that the command changed, each byte once, without what must not be in a profile.
fn outputs<'l>(
    name: &str,
    leaves: &'l [Leaf],
    calls: &[&Call],
    identities: &Identities,
    notes: &mut Vec<String>,
) -> Vec<&'l Leaf> {
    let mut taken = BTreeSet::new();
    let mut found = Vec::new();
    for leaf in leaves {
        let good = || calls.iter().filter(|call| call.status == 0);
        let FieldRange { offset, size, count } = leaf.range;
        let is_changed = good().any(|call| {
            (offset..offset + size * count)
                .any(|at| !taken.contains(&at) && call.before.get(at) != call.after.get(at))
        });
        if !is_changed {
            continue;
        }
        taken.extend(offset..offset + size * count);
        let is_address = size == 8
            && good().any(|call| {
                let own = number(leaf.bytes(&call.after));
                call.buffers.iter().any(|buffer| buffer.address == own)
            });
        let why = match is_address {
            true => Some("it is an address"),
            false => good().find_map(|call| left_out(leaf, &call.after, identities)),
        };
        match why {
            Some(why) => notes.push(format!("{name}: {} is left out: {why}", leaf.path)),
            None => found.push(leaf),
        }
    }
    found
}

/// The distinct answers in the order in which they came, each with the inputs that lead to it.
fn conditions<'c>(
    leaves: &[Leaf],
    outputs: &[&Leaf],
    calls: &[&'c Call],
) -> Vec<(Option<String>, &'c Call)> {
    let answer = |call: &Call| -> (u32, Vec<Vec<u8>>) {
        let own = outputs.iter().filter(|_| call.status == 0);
        (call.status, own.map(|leaf| leaf.bytes(&call.after).to_vec()).collect())
    };
    let answers: Vec<_> = calls.iter().map(|call| answer(call)).collect();
    let inputs = inputs(leaves, calls);
    let mut chosen: Vec<&Leaf> = Vec::new();
    let key_of = |chosen: &[&Leaf], call: &Call| -> Vec<u64> {
        chosen.iter().map(|leaf| number(leaf.bytes(&call.before))).collect()
    };
    // How many answers are not the first one to the same inputs.
    let conflicts = |chosen: &[&Leaf]| {
        let mut first = BTreeMap::new();
        let pairs = calls.iter().zip(&answers);
        pairs
            .filter(|(call, own)| *first.entry(key_of(chosen, call)).or_insert(*own) != *own)
            .count()
    };
    let mut left = conflicts(&chosen);
    while left > 0 && chosen.len() < MAX_FIELDS {
        let with = |leaf| [chosen.as_slice(), &[leaf]].concat();
        let distinct = |leaf: &&Leaf| {
            calls.iter().map(|call| number(leaf.bytes(&call.before))).collect::<BTreeSet<_>>().len()
        };
        let best = inputs.iter().min_by_key(|leaf| (conflicts(&with(leaf)), distinct(leaf)));
        let Some(best) = best.filter(|leaf| conflicts(&with(leaf)) < left) else { break };
        chosen.push(best);
        left = conflicts(&chosen);
    }
    let mut keys = BTreeSet::new();
    let mut groups: Vec<(Vec<Vec<u64>>, &Call, usize)> = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        let key = key_of(&chosen, call);
        if !keys.insert(key.clone()) {
            continue;
        }
        match groups.iter_mut().find(|(_, _, first)| answers[*first] == answers[at]) {
            Some((keys, ..)) => keys.push(key),
            None => groups.push((vec![key], call, at)),
        }
    }
    // What fails for many reasons is what is left.
    groups.sort_by_key(|(keys, call, _)| call.status != 0 && keys.len() > MAX_INPUTS);
    let count = groups.len();
    let one = |(at, (keys, call, _)): (usize, (Vec<Vec<u64>>, &'c Call, usize))| {
        let is_rest = at + 1 == count && call.status != 0 && keys.len() > MAX_INPUTS;
        let condition = (!chosen.is_empty() && count > 1 && !is_rest).then(|| {
            let all = keys.iter().map(|key| {
                let parts = chosen.iter().zip(key);
                parts
                    .map(|(leaf, value)| format!("@{} == {}", leaf.path, hex(*value)))
                    .collect::<Vec<_>>()
                    .join(" && ")
            });
            all.collect::<Vec<_>>().join(" || ")
        });
        (condition, call)
    };
    groups.into_iter().enumerate().map(one).collect()
}

/// Fields that can be what was asked for: numbers that differ from call to call.
fn inputs(leaves: &[Leaf], calls: &[&Call]) -> Vec<Leaf> {
    let elements =
        leaves.iter().filter(|leaf| leaf.range.size <= 8 && leaf.range.count <= MAX_ELEMENTS);
    let elements = elements.flat_map(|leaf| {
        let FieldRange { offset, size, count } = leaf.range;
        (0..count).map(move |at| {
            let path = if count == 1 { leaf.path.clone() } else { format!("{}[{at}]", leaf.path) };
            Leaf { path, range: FieldRange { offset: offset + at * size, size, count: 1 } }
        })
    });
    let is_input = |leaf: &Leaf| {
        let values: BTreeSet<u64> =
            calls.iter().map(|call| number(leaf.bytes(&call.before))).collect();
        let is_small = values.iter().all(|value| *value <= MAX_INPUT);
        values.len() > 1
            && private(&leaf.path).is_none()
            && (is_small || values.len() * 2 <= calls.len())
    };
    elements.filter(is_input).collect()
}

/// The cases that a profile has, with the fields that they lack: where all that they say was recorded so.
pub(super) fn extended(
    machine: &Machine,
    calls: &[Call],
    lines: &[&Line],
    identities: &Identities,
    notes: &mut Vec<String>,
) -> Option<Vec<Lines>> {
    let first = lines.first()?;
    let record = machine.record(first.command)?;
    let cases: Vec<Case> = machine.cases(&calls[first.at])?.to_vec();
    let leaves = leaves(machine.interface(), &record);
    let mut more: BTreeMap<usize, Vec<(&Leaf, &Call)>> = BTreeMap::new();
    for line in lines {
        let call = &calls[line.at];
        let is_own = |at: &usize| {
            line.own
                .iter()
                .any(|range| (range.offset..range.offset + range.size * range.count).contains(at))
        };
        // The status is another, or a field is.
        if !line.is_status_right || line.is_buffer_wrong || line.wrong.iter().any(is_own) {
            return None;
        }
        if call.status != 0 {
            continue;
        }
        let mut wrong: BTreeSet<usize> = line.wrong.iter().copied().collect();
        let known = more.entry(line.case?).or_default();
        for leaf in &leaves {
            let FieldRange { offset, size, count } = leaf.range;
            if !(offset..offset + size * count).any(|at| wrong.contains(&at)) {
                continue;
            }
            wrong.retain(|at| !(offset..offset + size * count).contains(at));
            if !known.iter().any(|(other, _)| other.path == leaf.path) {
                known.push((leaf, call));
            }
        }
    }
    // A field that depends on what was asked is for cases that know what was.
    let is_kept = |line: &&Line| {
        let mut known = line.case.and_then(|case| more.get(&case)).into_iter().flatten();
        let call = &calls[line.at];
        let is_same =
            |(leaf, first): &(&Leaf, &Call)| leaf.bytes(&call.after) == leaf.bytes(&first.after);
        call.status != 0 || known.all(is_same)
    };
    if !lines.iter().all(is_kept) {
        return None;
    }
    let name = machine.name(first.command);
    let all = cases.iter().enumerate().map(|(at, case)| {
        let mut lines = case.toml();
        for (leaf, call) in more.remove(&at).unwrap_or_default() {
            match left_out(leaf, &call.after, identities) {
                Some(why) => notes.push(format!("{name}: {} is left out: {why}", leaf.path)),
                None => lines.push((key(&format!("{}?", leaf.path)), leaf.toml(&call.after))),
            }
        }
        lines
    });
    Some(all.collect())
}
