//! Counts of calls: how often, how long, how often in vain.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::named::Named;
use super::text::time;

/// All calls, by node, name and detail; on files that are no nodes by their paths.
#[derive(Debug, Default)]
pub struct Summary {
    lines: BTreeMap<(String, String, String), Line>,
}

/// One kind of call.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Line {
    /// The node; none for files that are none.
    pub node: Option<String>,
    /// The path of a file that is no node: two of them have nothing in common.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The constant in the headers; for what has none the call and its request.
    pub name: String,
    /// The command or class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// How often.
    pub count: u64,
    /// How often in vain, by error or status.
    pub failures: BTreeMap<String, u64>,
    /// How many of the calls returned while they were watched: those that the times are of.
    pub timed: u64,
    /// Nanoseconds of all of these.
    pub total: u64,
    /// Whether nobody knows its number.
    pub unknown: bool,
}

impl Line {
    /// Nanoseconds of one, in the mean.
    pub fn mean(&self) -> Option<u64> {
        self.total.checked_div(self.timed)
    }
}

impl Summary {
    /// Takes in a call.
    pub fn add(&mut self, named: &Named) {
        let file = named.node.as_ref().unwrap_or(&named.path).clone();
        let name = match (&named.name, named.request) {
            (Some(name), _) => name.clone(),
            (None, Some(request)) => format!("{}({request:#010x})", named.call),
            (None, None) => named.call.to_owned(),
        };
        let detail = named.detail.as_ref().map(|detail| {
            detail.name.clone().unwrap_or_else(|| format!("{} {:#x}", detail.kind, detail.number))
        });
        let key = (file, name.clone(), detail.clone().unwrap_or_default());
        let line = self.lines.entry(key).or_default();
        if line.count == 0 {
            let nameless = |detail: &super::named::Detail| detail.name.is_none();
            line.unknown = named.call == "ioctl"
                && (named.name.is_none() || named.detail.as_ref().is_some_and(nameless));
            (line.node, line.name, line.detail) = (named.node.clone(), name, detail);
            line.path = named.node.is_none().then(|| named.path.clone());
        }
        line.count += 1;
        if let Some(failure) = named.failure() {
            *line.failures.entry(failure).or_default() += 1;
        }
        if let Some(duration) = named.duration {
            line.timed += 1;
            line.total += duration;
        }
    }

    /// Most time first, then most calls.
    pub fn lines(&self) -> Vec<&Line> {
        let mut lines: Vec<&Line> = self.lines.values().collect();
        lines.sort_by_key(|line| std::cmp::Reverse((line.total, line.count)));
        lines
    }

    /// A table, and the numbers that nobody knows.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{:>8} {:>7} {:>10} {:>10}  {:<14} {}\n",
            "calls", "failed", "total", "mean", "node or path", "call"
        );
        for line in self.lines() {
            let failed: u64 = line.failures.values().sum();
            let total = if line.timed == 0 { "?".to_owned() } else { time(line.total) };
            let mean = line.mean().map_or_else(|| "?".to_owned(), time);
            let file = line.node.as_ref().or(line.path.as_ref()).map_or("-", String::as_str);
            let detail = line.detail.as_ref().map_or(String::new(), |detail| format!(" {detail}"));
            let failures: Vec<String> =
                line.failures.iter().map(|(name, count)| format!("{count} {name}")).collect();
            let why = if failures.is_empty() {
                String::new()
            } else {
                format!("  ({})", failures.join(", "))
            };
            let unknown = if line.unknown { "  unknown" } else { "" };
            let _ = writeln!(
                text,
                "{:>8} {failed:>7} {total:>10} {mean:>10}  {file:<14} {}{detail}{why}{unknown}",
                line.count, line.name
            );
        }
        text
    }

    /// How many calls there were, how many in vain, and of how many nobody knows the number.
    pub fn totals(&self) -> (u64, u64, u64) {
        let lines = self.lines.values();
        lines.fold((0, 0, 0), |(calls, failed, unknown), line| {
            let own: u64 = line.failures.values().sum();
            let nameless = if line.unknown { line.count } else { 0 };
            (calls + line.count, failed + own, unknown + nameless)
        })
    }
}
