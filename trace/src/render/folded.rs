//! A report as folded stacks, which flame graphs are drawn from: a line is the frames from the
//! outermost to the innermost, then how many findings.

use std::collections::BTreeMap;

use super::words;
use crate::report::{Group, Report};

/// Kernel, then calls, line and kind, with all findings counted.
pub fn folded(report: &Report) -> String {
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    for group in &report.groups {
        *stacks.entry(stack(report, group)).or_default() += group.findings;
    }
    stacks.iter().map(|(stack, findings)| format!("{stack} {findings}\n")).collect()
}

fn stack(report: &Report, group: &Group) -> String {
    let mut frames = Vec::new();
    frames.extend(report.launches.get(group.launch as usize).map(|launch| launch.kernel.clone()));
    if let Some(source) = report.sources.get(&group.site) {
        let calls = source.inlined_at.iter().rev().chain([source]);
        frames.extend(calls.map(|call| call.function.clone()).filter(|name| !name.is_empty()));
    }
    // The kernel is also the outermost function.
    frames.dedup();
    frames.push(words::place(report, group.site));
    frames.push(group.kind.name().to_owned());
    let plain = |frame: String| frame.replace(|c: char| c == ';' || c.is_control(), "_");
    frames.into_iter().map(plain).collect::<Vec<_>>().join(";")
}
