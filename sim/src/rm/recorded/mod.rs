//! A profile from a recording: what a GPU answered becomes values, list entries and answers.
//!
//! ```text
//! recorded calls ─┬ solve: the values of which `base` makes these answers ─┐
//!                 ├ facts: what the simulator's rules ask a profile for    ├─ text ─ replay: the same answers?
//!                 └ cases: answers that `base` has not, field by field     ┘
//! ```
//!
//! A made profile extends `base`. What `base` already answers as it was recorded is not repeated. `solve` reads the
//! expressions of `base` backwards: `=memory.size >> 10` and an answer give the size. `replay` asks a simulated driver
//! (`machine`) what was asked of the recorded one, in the same order, so that what programs set counts as well.
//!
//! Nothing here knows files or processes: who reads recordings gives [`Recording`]s.

mod cases;
mod facts;
mod machine;
mod replay;
mod solve;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::interface::Interface;
use crate::profile::{Gravity, Problem, Profile};
use facts::Facts;

/// What every made profile extends.
const PARENT: &str = "base";
/// The number of a simulated machine's first GPU.
const FIRST_ID: u32 = 0x100;

/// What a recording has of one GPU.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// Its number in the recording (`gpuId`), which commands of a client name; where that is known.
    pub gpu_id: Option<u32>,
    /// Vendor and device on the bus, where the driver told them.
    pub ids: Option<(u16, u16)>,
    /// Bytes of its registers and of the window to its memory, where the driver told them.
    pub bars: Option<(u64, u64)>,
    /// Control commands, in their order: of the GPU's objects, and of clients where no other GPU is meant.
    pub calls: Vec<Call>,
    /// Records that were mapped, as they were seen first.
    pub shown: Vec<Shown>,
    /// Objects that were made below the GPU's, each class once.
    pub objects: Vec<Made>,
    /// GPU instances that programs chose, by their numbers, and how many commands each was asked then: they are not
    /// among [`calls`](Self::calls), for their answers are an instance's.
    pub instances: BTreeMap<u32, usize>,
}

/// A control command and its answer.
#[derive(Debug, Clone, Default)]
pub struct Call {
    /// The command's number.
    pub command: u32,
    /// Whether it was asked of a client, not of a GPU.
    pub is_of_client: bool,
    /// The parameters when it was asked.
    pub before: Vec<u8>,
    /// The parameters when it was answered.
    pub after: Vec<u8>,
    /// The driver's status.
    pub status: u32,
    /// Buffers of the caller that the parameters point to.
    pub buffers: Vec<Memory>,
}

/// A buffer of a caller.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// Where it was.
    pub address: u64,
    /// What was in it before the call.
    pub before: Vec<u8>,
    /// What was in it after the call.
    pub after: Vec<u8>,
}

/// A record that a program had mapped.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    /// The class that it is an object of.
    pub class: u32,
    /// What it held.
    pub bytes: Vec<u8>,
}

/// An object that was allocated.
#[derive(Debug, Clone, Default)]
pub struct Made {
    /// Its class.
    pub class: u32,
    /// `device` or `subdevice`.
    pub below: &'static str,
    /// The status of the allocation.
    pub status: u32,
    /// The upper half of the number of a command that was asked of it.
    pub commands: Option<u32>,
}

/// A profile that was made.
#[derive(Debug, Clone, Default)]
pub struct MadeProfile {
    /// The file.
    pub text: String,
    /// What it has not, or has not as it was recorded: a line each.
    pub notes: Vec<String>,
    /// Answers that were replayed.
    pub compared: usize,
    /// Those that the profile gives as they were recorded.
    pub same: usize,
}

/// Why no profile was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unmade {
    /// The recording lacks what no profile can do without: the value, and the command that asks for it.
    Missing(Vec<String>),
    /// What was made is no profile, which should not be: nvabi is wrong.
    Wrong(Vec<Problem>),
}

/// The name of a GPU, as it was recorded; `None` where nobody asked for it.
pub fn recorded_name(recording: &Recording, interface: &Arc<Interface>) -> Option<String> {
    Facts::of(recording, interface).name
}

/// A profile of what was recorded of a GPU.
///
/// # Errors
///
/// When the recording does not have enough.
pub fn profile_of(
    recording: &Recording,
    interface: &Arc<Interface>,
    title: &[String],
) -> Result<MadeProfile, Unmade> {
    let parent = Profile::parent(PARENT).map_err(Unmade::Wrong)?;
    let recording = &at_home(recording, interface, &parent);
    let facts = Facts::of(recording, interface);
    let mut solved = solve::solve(recording, interface, &parent);
    let missing = facts.missing(&solved.values);
    if !missing.is_empty() {
        return Err(Unmade::Missing(missing));
    }
    let mut notes: Vec<String> = instances(recording).into_iter().collect();
    facts.complete(&mut solved, interface, &mut notes);
    let identities = facts::identities(recording, interface);
    let mut draft = text::Draft::new(title, solved, recording, interface, &parent, identities);
    notes.extend(draft.unknown_values());
    let load = |draft: &text::Draft<'_>| Profile::of_text(&draft.text()).map_err(Unmade::Wrong);
    // What `base` and the values do not answer as it was recorded becomes answers of the profile's own.
    let profile = load(&draft)?;
    let first = replay::replay(recording, interface, &profile);
    for command in first.commands_that_differ() {
        draft.answer(command, &profile, &first, &mut notes);
    }
    draft.show(&profile, &mut notes);
    let profile = load(&draft)?;
    let last = replay::replay(recording, interface, &profile);
    let lacking = last.notes(interface);
    let mut wrong = profile.check(interface);
    wrong.retain(|problem| problem.gravity == Gravity::Wrong);
    if !wrong.is_empty() {
        return Err(Unmade::Wrong(wrong));
    }
    let text = draft.text_with(&lacking);
    notes.extend(lacking);
    Ok(MadeProfile {
        text,
        notes: of_elements(notes),
        compared: last.compared(),
        same: last.same(),
    })
}

/// That a GPU was divided. A profile is a card, and instances are what programs make of it.
fn instances(recording: &Recording) -> Option<String> {
    let calls: usize = recording.instances.values().sum();
    let list = recording.instances.keys().map(u32::to_string).collect::<Vec<_>>().join(", ");
    (!recording.instances.is_empty()).then(|| {
        format!(
            "the GPU was divided: instances {list} and {calls} answers of theirs are left out; \
             `nvidia-smi mig -cgi` divides it again"
        )
    })
}

/// Notes, those that say the same of several elements of a list as one, in the place of the first.
fn of_elements(notes: Vec<String>) -> Vec<String> {
    let mut counts = BTreeMap::<String, usize>::new();
    notes.iter().for_each(|note| *counts.entry(without_indices(note)).or_default() += 1);
    let gathered = |note: String| {
        let text = without_indices(&note);
        counts.remove(&text).map(|count| match count {
            1 => note,
            _ => format!("{text} ({count} of them)"),
        })
    };
    notes.into_iter().filter_map(gathered).collect()
}

/// `list[…].field` for `list[3].field`.
fn without_indices(note: &str) -> String {
    let mut parts = note.split('[');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let is_index = rest.len() < part.len() && rest.starts_with(']');
        text.push_str(if is_index { "[…" } else { "[" });
        text.push_str(if is_index { rest } else { part });
    }
    text
}

/// Whether a profile can answer a command: of clients, devices and subdevices, and of objects that only answer.
/// Channels, memory and the like are the simulator's own.
fn is_answered(
    recording: &Recording,
    interface: &Interface,
    parent: &Profile,
    call: &Call,
) -> bool {
    let upper = call.command >> 16;
    let is_of = |made: &Made| {
        made.commands.unwrap_or(made.class) == upper && is_plain(made, interface, parent)
    };
    [0x0000, 0x0080, 0x2080].contains(&upper) || recording.objects.iter().any(is_of)
}

/// Whether an object does no more than answer commands: `base` knows it, or it has no parameters.
fn is_plain(made: &Made, interface: &Interface, parent: &Profile) -> bool {
    interface.class(made.class).is_some_and(|class| {
        class.params.is_none() || class.is_optional || parent.objects.contains_key(&class.name)
    })
}

/// The recording as one of the simulated machine: the GPU has the number that it has there.
fn at_home(recording: &Recording, interface: &Arc<Interface>, parent: &Profile) -> Recording {
    let mut own = recording.clone();
    own.calls.retain(|call| is_answered(recording, interface, parent, call));
    let Some(id) = recording.gpu_id else { return own };
    for call in own.calls.iter_mut().filter(|call| call.is_of_client) {
        let record = interface.command(call.command).and_then(|it| it.params.clone());
        let Some(range) = record.and_then(|record| interface.place(&record, "gpuId")) else {
            continue;
        };
        for bytes in [&mut call.before, &mut call.after] {
            let Some(field) = bytes.get_mut(range.offset..range.offset + 4) else { continue };
            if field == id.to_le_bytes() {
                field.copy_from_slice(&FIRST_ID.to_le_bytes());
            }
        }
    }
    own
}

/// The text in bytes: printable letters up to a zero, and nothing but zeros behind it.
fn text_in(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let (text, rest) = bytes.split_at(end);
    let is_text =
        text.iter().all(|byte| (0x20..0x7f).contains(byte)) && rest.iter().all(|byte| *byte == 0);
    is_text.then(|| String::from_utf8_lossy(text).into_owned())
}
