//! What happened, for the report: calls, faults, diagnostics, and what processes left behind.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::mpsc::Sender;

use serde::Serialize;

use super::fault::{Effect, Faults};

/// Diagnostics that are kept; a client in a loop makes more.
const MAX_DIAGNOSTICS: usize = 1000;

/// Calls without a name that are counted each by its number; a client that tries all numbers makes more.
const MAX_UNNAMED: usize = 32;

/// What the others are counted as.
const OTHERS: &str = "other unknown calls";

/// Something that a person should know: a bug of a client, or where the simulation ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The process.
    pub process: u32,
    /// What kind it is: a few words joined by hyphens, the same in every release.
    pub code: &'static str,
    /// What happened.
    pub text: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>24}  [{}] {}", self.code, self.process, self.text)
    }
}

/// Objects that a process still had when it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leak {
    /// The process.
    pub process: u32,
    /// What kind of object: the kind of a file, "nvmap handle", "GPU mapping", "CPU mapping".
    pub kind: String,
    /// How many.
    pub count: usize,
}

/// What was recorded on a machine, by the runs of programs on it.
#[derive(Debug, Default)]
pub(crate) struct Log {
    faults: Faults,
    runs: BTreeMap<RunId, Record>,
    /// Whose call is being answered.
    now: RunId,
    last: RunId,
}

/// A run of a program on a machine; 0 is none.
pub(crate) type RunId = u64;

/// The record of a run.
#[derive(Debug, Default)]
struct Record {
    calls: BTreeMap<String, Count>,
    /// How many of them have a number and no name.
    unnamed: usize,
    diagnostics: Vec<Diagnostic>,
    /// Who is told of them at once.
    live: Option<Sender<Diagnostic>>,
    dropped: usize,
    leaks: Vec<Leak>,
}

/// How often a call was made, and how it ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// How often.
    pub total: u64,
    /// How often it failed, by error.
    pub errors: BTreeMap<String, u64>,
}

impl Count {
    fn add(&mut self, failure: Option<&str>) {
        self.total += 1;
        if let Some(failure) = failure {
            *self.errors.entry(failure.to_owned()).or_default() += 1;
        }
    }
}

impl Log {
    pub(crate) fn new(faults: Faults) -> Self {
        Self { faults, ..Self::default() }
    }

    /// Begins the record of a run; who receives it is told at once of everything that is found.
    pub(crate) fn begin(&mut self, live: Option<Sender<Diagnostic>>) -> RunId {
        self.last += 1;
        self.runs.insert(self.last, Record { live, ..Record::default() });
        self.last
    }

    /// What is recorded from now on is of this run.
    pub(crate) fn switch(&mut self, run: RunId) {
        self.now = run;
    }

    /// Nobody is told at once any more of what is found in a run.
    pub(crate) fn hush(&mut self, run: RunId) {
        if let Some(record) = self.runs.get_mut(&run) {
            record.live = None;
        }
    }

    /// What was recorded of a run so far.
    pub(crate) fn report(&self, run: RunId) -> super::Report {
        self.runs.get(&run).map(Record::report).unwrap_or_default()
    }

    /// Forgets a run that is over.
    pub(crate) fn end(&mut self, run: RunId) {
        self.runs.remove(&run);
        self.now = 0;
    }

    /// Faults that were asked for, of calls that were not made so often.
    pub(crate) fn unmet_faults(&self) -> Vec<String> {
        self.faults.unmet()
    }

    /// What a call is to suffer: asked once for each call.
    pub(crate) fn fault(&mut self, call: &str) -> Option<Effect> {
        self.faults.next(call)
    }

    pub(crate) fn has_faults(&self) -> bool {
        !self.faults.is_empty()
    }

    pub(crate) fn count(&mut self, call: &str, failure: Option<&str>) {
        self.record().count(call, failure);
    }

    pub(crate) fn diagnose(&mut self, process: u32, code: &'static str, text: String) {
        self.record().diagnose(Diagnostic { process, code, text });
    }

    pub(crate) fn leak(&mut self, process: u32, kind: &str, count: usize) {
        if count > 0 {
            self.record().leaks.push(Leak { process, kind: kind.to_owned(), count });
        }
    }

    fn record(&mut self) -> &mut Record {
        self.runs.entry(self.now).or_default()
    }
}

impl Record {
    fn count(&mut self, call: &str, failure: Option<&str>) {
        let key = self.key_of(call);
        match self.calls.get_mut(key) {
            Some(count) => count.add(failure),
            None => self.calls.entry(key.to_owned()).or_default().add(failure),
        }
    }

    /// What a call is counted as.
    fn key_of<'a>(&mut self, call: &'a str) -> &'a str {
        // The machines give a number to what has no name, and names have no such numbers in them.
        if !call.contains("0x") || self.calls.contains_key(call) {
            return call;
        }
        if self.unnamed == MAX_UNNAMED {
            return OTHERS;
        }
        self.unnamed += 1;
        call
    }

    fn diagnose(&mut self, diagnostic: Diagnostic) {
        if self.diagnostics.len() >= MAX_DIAGNOSTICS || self.diagnostics.contains(&diagnostic) {
            self.dropped += 1;
            return;
        }
        if let Some(live) = &self.live {
            // Whoever was to receive it has ended: it is in the report.
            let _ = live.send(diagnostic.clone());
        }
        self.diagnostics.push(diagnostic);
    }

    fn report(&self) -> super::Report {
        super::Report {
            calls: self.calls.clone(),
            diagnostics: self.diagnostics.clone(),
            repeated_diagnostics: self.dropped,
            leaks: self.leaks.clone(),
            ..super::Report::default()
        }
    }
}
