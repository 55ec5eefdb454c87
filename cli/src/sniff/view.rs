//! What is told of calls: lines, objects of JSON, a summary, a check, an audit, a record.

use std::fs::File;
use std::io::{self, Write};

use nvabi_reports::decode::sniff::record::{End, Writer};
use nvabi_reports::decode::sniff::{Audit, Event, Named, Namer, Summary, Tables, line};
use nvabi_reports::terminal;
use serde::Serialize;
use serde_json::json;

use super::check::Check;
use super::names::Names;
use super::watch::Sink;
use crate::context::Context;

/// What is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// Every call.
    pub(crate) lines: bool,
    /// All its fields.
    pub(crate) full: bool,
    /// Counts.
    pub(crate) summary: bool,
    /// Where calls and the lock disagree.
    pub(crate) audit: bool,
}

/// Tells of calls.
pub(crate) struct View<'c> {
    context: &'c Context<'c>,
    out: Box<dyn Write>,
    wanted: Wanted,
    namer: Namer,
    summary: Summary,
    check: Option<Check>,
    audit: Option<Audit>,
    record: Option<Writer<File>>,
    /// Calls.
    count: u64,
}

impl<'c> View<'c> {
    pub(crate) fn new(
        context: &'c Context<'c>,
        out: Box<dyn Write>,
        wanted: Wanted,
        check: Option<Check>,
        record: Option<Writer<File>>,
    ) -> Self {
        let (namer, summary) = (Namer::default(), Summary::default());
        let audit = wanted.audit.then(Audit::default);
        Self { context, out, wanted, namer, summary, check, audit, record, count: 0 }
    }

    fn named(&mut self, names: &mut Names, named: &Named) -> io::Result<()> {
        if self.wanted.lines {
            match self.context.json() {
                true => say(&mut self.out, named)?,
                false => self.out.write_all(line(named, self.wanted.full).as_bytes())?,
            }
        }
        if self.wanted.summary {
            self.summary.add(named);
        }
        if let (Some(check), true) = (&mut self.check, named.node.is_some()) {
            let driver = names.tables().tags().find(|tag| tag.family().is_empty());
            check.add(named, driver);
        }
        Ok(())
    }

    /// The end of all calls; whether a list lacks some of them, or the lock disagrees with some.
    pub(crate) fn end(&mut self, names: &mut Names, end: Option<End>) -> io::Result<bool> {
        if let (Some(record), Some(end)) = (&mut self.record, end) {
            record.end(end)?;
        }
        let json = self.context.json();
        if self.wanted.summary {
            match json {
                true => {
                    let (calls, failed, unknown) = self.summary.totals();
                    let lines = self.summary.lines();
                    let summary = json!({"call": "summary", "calls": calls, "failed": failed,
                        "unknown": unknown, "lines": lines});
                    say(&mut self.out, &summary)?;
                }
                false => self.out.write_all(self.summary.text().as_bytes())?,
            }
        }
        let mut differs = false;
        if let Some(check) = &self.check {
            differs = !check.is_clean();
            match json {
                true => say(&mut self.out, &check.json())?,
                false => self.out.write_all(check.text().as_bytes())?,
            }
        }
        if let Some(audit) = &mut self.audit {
            differs |= audit.disagrees();
            names.add_tags(audit);
            match json {
                true => say(&mut self.out, &audit.json())?,
                false => self.out.write_all(audit.text().as_bytes())?,
            }
        }
        if let (Some(end), true) = (end, json) {
            let (code, signal) = match end {
                End::Code(code) => (Some(code), None),
                End::Signal(signal) => (None, Some(signal)),
            };
            say(&mut self.out, &json!({"call": "end", "code": code, "signal": signal}))?;
        }
        self.out.flush()?;
        Ok(differs)
    }

    /// How many calls there were.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

/// A line of JSON.
fn say(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    terminal::json_line(&mut *out, value)?;
    out.write_all(b"\n")
}

impl Sink for View<'_> {
    fn take(&mut self, names: &mut Names, event: &Event) -> io::Result<()> {
        self.count += 1;
        if let Some(record) = &mut self.record {
            record.call(event)?;
        }
        // What is on no device has no names: nobody waits for them.
        let has_node = !event.file().node.is_empty();
        if has_node {
            names.learn(event);
        }
        if self.wanted.lines || self.wanted.summary || self.wanted.audit || self.check.is_some() {
            let named = match has_node {
                true => self.namer.name(names.tables(), event),
                false => self.namer.name(&Tables::default(), event),
            };
            if let (Some(audit), true) = (&mut self.audit, has_node) {
                audit.add(names.tables(), event, &named);
            }
            self.named(names, &named)?;
        }
        names.said().iter().for_each(|said| self.warn(said));
        Ok(())
    }

    fn warn(&mut self, text: &str) {
        self.context.status("Note", text);
    }
}
