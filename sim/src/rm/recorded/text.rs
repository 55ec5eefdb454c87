//! The file that a made profile is.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::cases::{self, Identities, Leaf, Lines};
use super::machine::{Machine, is_simulated};
use super::replay::Replay;
use super::solve::{Entries, Solved};
use super::{PARENT, Recording, is_plain};
use crate::Status;
use crate::profile::{self, Datum, Filled, Filler, Profile, key, quoted};
use crate::rm::interface::Interface;

/// Values that are written as the bus has them.
const HEXADECIMAL: [&str; 2] = ["identity.", "bios."];
/// A line of a file, as far as a comment may be long.
const WIDTH: usize = 116;

/// A profile that is being made.
pub(super) struct Draft<'r> {
    title: &'r [String],
    recording: &'r Recording,
    interface: &'r Arc<Interface>,
    parent: &'r Profile,
    identities: Identities,
    /// By their tables, each with the rest of its name: as TOML.
    values: BTreeMap<String, String>,
    entries: Entries,
    answers: BTreeMap<String, Vec<Lines>>,
    shared: BTreeMap<String, Lines>,
    objects: BTreeMap<String, String>,
    /// Values that nothing in the recording told.
    unknown: Vec<String>,
}

impl<'r> Draft<'r> {
    pub(super) fn new(
        title: &'r [String],
        solved: Solved,
        recording: &'r Recording,
        interface: &'r Arc<Interface>,
        parent: &'r Profile,
        identities: Identities,
    ) -> Self {
        let machine = Machine::new(parent, interface);
        let mut values = BTreeMap::new();
        for (name, datum) in &solved.values {
            if machine.own_value(name).as_ref() != Some(datum) {
                values.insert(name.clone(), value(name, datum));
            }
        }
        let mut unknown = Vec::new();
        for (name, is_text) in parent.undefined() {
            if !values.contains_key(&name) {
                values.insert(name.clone(), if is_text { quoted("") } else { "0".to_owned() });
                unknown.push(name);
            }
        }
        let mut draft = Self {
            title,
            recording,
            interface,
            parent,
            identities,
            values,
            entries: solved.entries,
            answers: BTreeMap::new(),
            shared: BTreeMap::new(),
            objects: BTreeMap::new(),
            unknown,
        };
        draft.objects();
        draft
    }

    /// What objects can be made, where `base` says otherwise.
    fn objects(&mut self) {
        for made in &self.recording.objects {
            let Some(class) = self.interface.class(made.class) else { continue };
            let known = self.parent.objects.get(&class.name);
            let below = match Status(made.status) {
                Status::OK => vec![made.below],
                Status::INVALID_CLASS => Vec::new(),
                // Others are no word of a profile: what it does not have is not supported.
                _ => continue,
            };
            let is_known = known.is_some_and(|rule| rule.below == below);
            if is_known || !is_plain(made, self.interface, self.parent) {
                continue;
            }
            let upper = made.commands.filter(|upper| *upper != made.class);
            let commands =
                upper.map(|upper| format!(", commands = {upper:#06x}")).unwrap_or_default();
            let below: Vec<String> = below.iter().map(|below| quoted(below)).collect();
            let rule = format!("{{ below = [{}]{commands} }}", below.join(", "));
            self.objects.insert(class.name.clone(), rule);
        }
    }

    /// What the recording did not tell, for a person.
    pub(super) fn unknown_values(&self) -> Vec<String> {
        match self.unknown.as_slice() {
            [] => Vec::new(),
            names => vec![format!("not recorded, and 0 or empty: {}", names.join(", "))],
        }
    }

    /// Answers a command as it was recorded: by the parent's cases with more fields, else by its own.
    pub(super) fn answer(
        &mut self,
        command: u32,
        profile: &Profile,
        replay: &Replay,
        notes: &mut Vec<String>,
    ) {
        let machine = Machine::new(profile, self.interface);
        let lines: Vec<_> = replay.lines.iter().filter(|line| line.command == command).collect();
        let calls: Vec<_> = lines.iter().map(|line| &self.recording.calls[line.at]).collect();
        let name = machine.name(command);
        let is_list = |filled: &Filled| matches!(filled.with, Filler::List(_));
        let cases = calls.first().and_then(|call| machine.cases(call)).unwrap_or_default();
        // Its entries were told one by one; the list itself is what `base` has.
        if cases.iter().any(|case| case.fields.iter().any(is_list)) {
            return;
        }
        let mut own = Vec::new();
        let found =
            cases::extended(&machine, &self.recording.calls, &lines, &self.identities, &mut own);
        let found = found.unwrap_or_else(|| {
            own.clear();
            cases::cases(&machine, &calls, &self.identities, &mut own)
        });
        notes.append(&mut own);
        if calls.iter().any(|call| !call.buffers.is_empty()) {
            notes.push(format!("{name}: what it writes into buffers of the caller is left out"));
        }
        self.answers.insert(name, found);
    }

    /// Fields of mapped records that `base` has not.
    pub(super) fn show(&mut self, profile: &Profile, notes: &mut Vec<String>) {
        let mut machine = Machine::new(profile, self.interface);
        for shown in &self.recording.shown {
            let Some((record, fields)) = machine.shown(shown.class) else {
                notes.push(format!(
                    "class {:#06x}: no profile says which record it shows",
                    shown.class
                ));
                continue;
            };
            let made = machine.fill(&record);
            let recorded = machine.params_of(&record, &shown.bytes);
            let ignored: Vec<_> = fields
                .iter()
                .filter(|filled| {
                    matches!(&filled.with, Filler::Value(node) if is_simulated(machine.profile(), node))
                })
                .filter_map(|filled| made.range(&filled.path))
                .collect();
            let mut lines = Lines::new();
            for leaf in cases::leaves(self.interface, &record) {
                let is_zero = |bytes: &[u8]| leaf.bytes(bytes).iter().all(|byte| *byte == 0);
                // A time is another one, but what has none is not there.
                let is_ignored = ignored.iter().any(|range| range.offset == leaf.range.offset)
                    && is_zero(&made.bytes) == is_zero(&recorded.bytes);
                if is_ignored || leaf.bytes(&made.bytes) == leaf.bytes(&recorded.bytes) {
                    continue;
                }
                lines.push((key(&format!("{}?", leaf.path)), shown_value(&leaf, &recorded.bytes)));
            }
            if !lines.is_empty() {
                self.shared.entry(record).or_insert(lines);
            }
        }
    }

    pub(super) fn text(&self) -> String {
        self.text_with(&[])
    }

    /// The file, with what cannot be given as a comment.
    pub(super) fn text_with(&self, lacking: &[String]) -> String {
        let mut text = self.whole(lacking);
        // Whatever has the card's serial number as a text.
        for own in self.identities.iter().filter_map(|own| std::str::from_utf8(own).ok()) {
            text = text.replace(own, &"0".repeat(own.len()));
        }
        text
    }

    fn whole(&self, lacking: &[String]) -> String {
        let mut text = String::new();
        for line in self.title {
            let _ = writeln!(text, "{}", format!("# {line}").trim_end());
        }
        if !lacking.is_empty() {
            text.push_str("#\n# Not as it was recorded:\n");
            for line in lacking {
                let _ = writeln!(text, "# {}", line.chars().take(WIDTH).collect::<String>());
            }
        }
        let _ = writeln!(text, "\nextends = {}", quoted(PARENT));
        let (plain, tables): (Vec<_>, Vec<_>) =
            self.values.iter().partition(|(name, _)| !name.contains('.'));
        for (name, value) in plain {
            let _ = writeln!(text, "{name} = {}", folded(value));
        }
        let mut table = "";
        for (name, value) in tables {
            let (first, rest) = name.split_once('.').unwrap_or((name, ""));
            if first != table {
                let _ = writeln!(text, "\n[{first}]");
                table = first;
            }
            let mark = if self.unknown.contains(name) { " # not recorded" } else { "" };
            let _ = writeln!(text, "{rest} = {value}{mark}");
        }
        let mut table = "";
        for ((list, index), value) in &self.entries {
            if list != table {
                let _ = writeln!(text, "\n[lists.{}]", key(list));
                table = list;
            }
            let _ = writeln!(text, "{} = {value}", key(index));
        }
        for (name, cases) in &self.answers {
            for case in cases {
                let header = format!("answers.{}", key(name));
                let _ = match cases.len() {
                    1 => writeln!(text, "\n[{header}]"),
                    _ => writeln!(text, "\n[[{header}]]"),
                };
                put(&mut text, case);
            }
        }
        for (record, lines) in &self.shared {
            let _ = writeln!(text, "\n[shared.{}]", key(record));
            put(&mut text, lines);
        }
        if !self.objects.is_empty() {
            text.push_str("\n[objects]\n");
        }
        for (name, rule) in &self.objects {
            let _ = writeln!(text, "{} = {rule}", key(name));
        }
        text
    }
}

/// A list over several lines, where one is too short for it.
fn folded(list: &str) -> String {
    let Some(inner) = list.strip_prefix('[').and_then(|it| it.strip_suffix(']')) else {
        return list.to_owned();
    };
    let mut folded = String::from("[");
    let mut line = String::new();
    for item in inner.split(", ") {
        if line.is_empty() || line.len() + item.len() + 2 > WIDTH {
            folded.push_str(&line);
            line = String::from("\n   ");
        }
        line.push_str(&format!(" {item},"));
    }
    folded + &line + "\n]"
}

fn put(text: &mut String, lines: &Lines) {
    for (key, value) in lines {
        let _ = writeln!(text, "{key} = {value}");
    }
}

/// A value as a person would write it.
fn value(name: &str, datum: &Datum) -> String {
    const UNITS: [(&str, i128); 2] = [("GiB", 1 << 30), ("MiB", 1 << 20)];
    match datum {
        Datum::Text(text) if name == "board.serial" && !text.is_empty() => {
            cases::serial(text.len())
        }
        // Braces cannot be written.
        Datum::Text(text) if !profile::is_plain(text) => {
            quoted(&text.replace(['{', '}', '='], " "))
        }
        Datum::Number(number)
            if HEXADECIMAL.iter().any(|begin| name.starts_with(begin)) && *number > 9 =>
        {
            format!("{number:#x}")
        }
        Datum::Number(number) => {
            let unit = UNITS.iter().find(|(_, size)| *number >= *size && number % size == 0);
            match unit {
                Some((unit, size)) => quoted(&format!("={} * {unit}", number / size)),
                None => number.to_string(),
            }
        }
        other => other.toml(),
    }
}

/// A field of a record that shows when it was written is written now.
fn shown_value(leaf: &Leaf, bytes: &[u8]) -> String {
    let is_time = leaf.path.to_lowercase().ends_with("timestamp");
    match is_time && leaf.bytes(bytes).iter().any(|byte| *byte != 0) {
        true => quoted("=sim.microseconds"),
        false => leaf.toml(bytes),
    }
}
