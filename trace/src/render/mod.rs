//! A report in the forms that people and their tools read: data in, text out.

mod csv;
mod folded;
mod html;
mod sarif;
#[cfg(test)]
mod tests;
mod text;
pub(crate) mod words;

use rustc_hash::FxHashMap;

use super::report::{Finding, GroupKey, Report};

pub use csv::csv;
pub use folded::folded;
pub use html::html;
pub use sarif::sarif;
pub use text::{summary, text};

/// The findings that are kept of each group, in order.
fn by_group(report: &Report) -> FxHashMap<GroupKey, Vec<&Finding>> {
    let mut groups: FxHashMap<GroupKey, Vec<&Finding>> = FxHashMap::default();
    for finding in &report.findings {
        groups.entry(finding.group()).or_default().push(finding);
    }
    groups
}
