//! What a profile answers to all that was asked of the recorded driver, in the same order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::machine::{Machine, is_simulated, name};
use super::{Call, Recording};
use crate::Status;
use crate::profile::{Filler, Profile};
use crate::rm::control::is_answered_in_code;
use crate::rm::interface::{FieldRange, Interface};

/// How an answer of the profile compares with the recorded one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Same,
    /// The recorded driver itself answered otherwise to the same question before.
    Changed,
    Differs,
}

/// A call that was replayed.
pub(super) struct Line {
    /// Its place in the recording.
    pub(super) at: usize,
    pub(super) command: u32,
    /// The case that answered.
    pub(super) case: Option<usize>,
    /// Whether the status is the recorded one.
    pub(super) is_status_right: bool,
    /// Bytes of the parameters that are others.
    pub(super) wrong: Vec<usize>,
    /// Whether a buffer is another.
    pub(super) is_buffer_wrong: bool,
    /// Bytes that the case has a field for.
    pub(super) own: Vec<FieldRange>,
    verdict: Verdict,
}

/// All calls that a profile can answer, replayed in their order.
pub(super) struct Replay {
    pub(super) lines: Vec<Line>,
}

pub(super) fn replay(
    recording: &Recording,
    interface: &Arc<Interface>,
    profile: &Profile,
) -> Replay {
    let mut machine = Machine::new(profile, interface);
    let changed = changed_bytes(recording);
    let mut first: BTreeMap<(u32, Vec<u8>), usize> = BTreeMap::new();
    let mut lines = Vec::new();
    for (at, call) in recording.calls.iter().enumerate() {
        if is_answered_in_code(&machine.name(call.command)) {
            continue;
        }
        let line = compare(&mut machine, at, call);
        let is_same = line.is_status_right && line.wrong.is_empty() && !line.is_buffer_wrong;
        let before = *first.entry((call.command, question(call, &changed))).or_insert(at);
        let is_other = || before < at && answer(&recording.calls[before]) != answer(call);
        let verdict = match is_same {
            true => Verdict::Same,
            false if is_other() => Verdict::Changed,
            false => Verdict::Differs,
        };
        lines.push(Line { verdict, ..line });
    }
    Replay { lines }
}

fn compare(machine: &mut Machine, at: usize, call: &Call) -> Line {
    let (before, after) = (machine.params(call, &call.before), machine.params(call, &call.after));
    let (mut own, mut ignored, mut ignored_buffers) = (Vec::new(), Vec::new(), Vec::new());
    let found = machine.case(call, &before);
    for filled in found.iter().flat_map(|(_, case)| &case.fields) {
        match &filled.with {
            Filler::Value(node) => {
                let Some(range) = before.range(&filled.path) else { continue };
                own.push(range);
                if is_simulated(machine.profile(), node) {
                    ignored.push(range);
                }
            }
            Filler::List(list) => {
                for entry in machine.list_entries(call, &filled.path, list, &before, &after) {
                    let known = machine.entry(&list.list, entry.index);
                    let Some((field, node)) = known.and_then(|known| known.fields.first()) else {
                        continue;
                    };
                    let field = if field.is_empty() { &list.value_in } else { field };
                    let place = entry.before.range(&format!("{}{field}", entry.prefix));
                    let (Some(range), true) = (place, is_simulated(machine.profile(), node)) else {
                        continue;
                    };
                    match entry.buffer {
                        Some((address, start)) => {
                            ignored_buffers.push((address, start + range.offset, range))
                        }
                        None => ignored.push(range),
                    }
                }
                own.extend(before.range(&filled.path));
            }
        }
    }
    let case = found.map(|(case, _)| case);
    let answer = machine.ask(call);
    let is_status_right = answer.status == Some(Status(call.status));
    let is_in = |range: &FieldRange, at: usize| {
        (range.offset..range.offset + range.size * range.count).contains(&at)
    };
    let mut wrong: Vec<usize> = Vec::new();
    // What a failed command left in its parameters is nobody's answer.
    if call.status == 0 {
        let pairs = answer.bytes.iter().zip(&call.after).enumerate();
        let others = pairs.filter(|(_, (own, recorded))| own != recorded).map(|(at, _)| at);
        wrong.extend(others.filter(|at| !ignored.iter().any(|range| is_in(range, *at))));
    }
    let is_buffer_wrong = call.status == 0
        && answer.buffers.iter().zip(&call.buffers).any(|((address, own), recorded)| {
            own.iter().zip(&recorded.after).enumerate().any(|(at, (own, recorded))| {
                let is_ignored = ignored_buffers.iter().any(|(other, start, range)| {
                    other == address && (*start..start + range.size).contains(&at)
                });
                own != recorded && !is_ignored
            })
        });
    let verdict = Verdict::Same;
    Line { at, command: call.command, case, is_status_right, wrong, is_buffer_wrong, own, verdict }
}

/// The bytes of the parameters that a command has ever changed.
fn changed_bytes(recording: &Recording) -> BTreeMap<u32, BTreeSet<usize>> {
    let mut changed: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
    for call in &recording.calls {
        let pairs = call.before.iter().zip(&call.after).enumerate();
        let others = pairs.filter(|(_, (before, after))| before != after).map(|(at, _)| at);
        changed.entry(call.command).or_default().extend(others);
    }
    changed
}

/// What a command was asked: its parameters without what it has ever changed of them.
fn question(call: &Call, changed: &BTreeMap<u32, BTreeSet<usize>>) -> Vec<u8> {
    let none = BTreeSet::new();
    let changed = changed.get(&call.command).unwrap_or(&none);
    let bytes = call.before.iter().enumerate().filter(|(at, _)| !changed.contains(at));
    bytes.map(|(_, byte)| *byte).collect()
}

fn answer(call: &Call) -> (u32, &[u8], Vec<&[u8]>) {
    (call.status, &call.after, call.buffers.iter().map(|buffer| buffer.after.as_slice()).collect())
}

impl Replay {
    pub(super) fn compared(&self) -> usize {
        self.lines.len()
    }

    pub(super) fn same(&self) -> usize {
        self.count(Verdict::Same)
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.lines.iter().filter(|line| line.verdict == verdict).count()
    }

    /// Commands with an answer that is not the recorded one, in the order in which they were asked.
    pub(super) fn commands_that_differ(&self) -> Vec<u32> {
        let mut commands = Vec::new();
        for line in self.lines.iter().filter(|line| line.verdict == Verdict::Differs) {
            if !commands.contains(&line.command) {
                commands.push(line.command);
            }
        }
        commands
    }

    /// What a person should know of answers that are not the recorded ones.
    pub(super) fn notes(&self, interface: &Interface) -> Vec<String> {
        let mut notes = Vec::new();
        for (verdict, text) in [
            (Verdict::Changed, "changed while it was recorded; the first answer is kept"),
            (Verdict::Differs, "are not given as they were recorded"),
        ] {
            let mut commands: Vec<u32> = Vec::new();
            for line in self.lines.iter().filter(|line| line.verdict == verdict) {
                if !commands.contains(&line.command) {
                    commands.push(line.command);
                }
            }
            for command in commands {
                let of = |wanted: Option<Verdict>| {
                    let own = self.lines.iter().filter(|line| line.command == command);
                    own.filter(|line| wanted.is_none_or(|it| line.verdict == it)).count()
                };
                let name = name(interface, command);
                notes.push(format!("{name}: {} of {} answers {text}", of(Some(verdict)), of(None)));
            }
        }
        notes
    }
}
