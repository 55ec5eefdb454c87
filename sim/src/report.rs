//! What a run leaves to read.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::log::{Count, Diagnostic, Leak};

/// What was seen of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Calls to the simulated drivers, by the drivers' names.
    pub calls: BTreeMap<String, Count>,
    /// Bugs of the client, and where the simulation ends.
    pub diagnostics: Vec<Diagnostic>,
    /// How many more diagnostics there were that said the same, or came too late.
    pub repeated_diagnostics: usize,
    /// Faults that were asked for, of calls that were not made so often.
    pub unmet_faults: Vec<String>,
    /// What processes had when they ended.
    pub leaks: Vec<Leak>,
    /// Buffers that were still alive when all processes had ended: a bug of the simulation.
    pub live_buffers: usize,
}

impl Report {
    /// As JSON, the same for the same report.
    pub fn to_json(&self) -> String {
        // Names, numbers and lists of them: nothing in it can be refused.
        let mut json = serde_json::to_string_pretty(self).unwrap_or_default();
        json.push('\n');
        json
    }
}

impl Report {
    /// What is left to say when the diagnostics have been told.
    pub fn ending(&self) -> impl fmt::Display + '_ {
        Ending(self)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diagnostic in &self.diagnostics {
            writeln!(f, "{diagnostic}")?;
        }
        Ending(self).fmt(f)
    }
}

struct Ending<'a>(&'a Report);

impl fmt::Display for Ending<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(report) = self;
        for Leak { process, kind, count } in &report.leaks {
            writeln!(f, "{:>24}  [{process}] {count} × {kind}", "left-at-exit")?;
        }
        for fault in &report.unmet_faults {
            writeln!(f, "{:>24}  {fault}", "fault-not-met")?;
        }
        let total: u64 = report.calls.values().map(|count| count.total).sum();
        let failed: u64 = report.calls.values().flat_map(|count| count.errors.values()).sum();
        write!(
            f,
            "{:>24}  {total} calls, {failed} failed, {} diagnostics",
            "Simulated",
            report.diagnostics.len() + report.repeated_diagnostics
        )
    }
}
