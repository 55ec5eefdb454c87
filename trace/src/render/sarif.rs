//! A report as SARIF 2.1.0, which code reviews show beside the lines.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::{by_group, words};
use crate::report::{Finding, FindingKind, Group, Report, Source};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
/// What the readers of such logs take at most.
const RESULTS: usize = 5000;

/// A result for each group, with all its findings counted and the first that is kept told.
pub fn sarif(report: &Report) -> String {
    let findings = by_group(report);
    let first = |group: &Group| findings.get(&group.key())?.first().copied();
    let groups = report.groups.iter().take(RESULTS);
    let results: Vec<Value> = groups.map(|group| result(report, group, first(group))).collect();
    let notes = report.notes.iter().map(
        |note| json!({ "level": "warning", "message": { "text": words::note(report, note) } }),
    );
    let log = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "nvabi trace diff",
                "version": env!("CARGO_PKG_VERSION"),
                "informationUri": env!("CARGO_PKG_REPOSITORY"),
                "rules": FindingKind::ALL.map(rule),
            } },
            "columnKind": "unicodeCodePoints",
            "invocations": [{
                "executionSuccessful": true,
                "toolExecutionNotifications": notes.collect::<Vec<_>>(),
            }],
            "results": results,
            "properties": { "status": report.status, "totalFindings": report.total_findings },
        }],
    });
    format!("{log:#}\n")
}

fn rule(kind: FindingKind) -> Value {
    json!({
        "id": kind.name(),
        "shortDescription": { "text": words::title(kind) },
        "defaultConfiguration": { "level": level(kind) },
    })
}

/// Other values may be meant, other ways rarely are.
fn level(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Value | FindingKind::Mask => "note",
        _ => "warning",
    }
}

fn result(report: &Report, group: &Group, first: Option<&Finding>) -> Value {
    let Group { launch, site, kind, findings, warps, first_in } = *group;
    let mut text = match first {
        Some(finding) => {
            let warp = words::warp(report.launches.get(launch as usize), finding.warp);
            let class = finding.class.map(|class| format!("; {}", words::class(report, class)));
            let sentence = words::sentence(report, finding);
            format!("{warp}: {sentence}{}", class.unwrap_or_default())
        }
        None => words::title(kind).to_owned(),
    };
    let (all, warps) = (words::plural(findings, "finding"), words::plural(warps, "warp"));
    text += &format!(" ({all} in {warps}, first in {first_in})");
    let kernel = report.launches.get(launch as usize).map(|launch| launch.kernel.as_str());
    let logical = json!([{ "name": kernel.unwrap_or_default(), "kind": "function" }]);
    let mut location = json!({ "logicalLocations": logical });
    if let Some(source) = report.sources.get(&site) {
        location["physicalLocation"] = physical(source);
    }
    json!({
        "ruleId": kind.name(),
        "ruleIndex": FindingKind::ALL.iter().position(|other| *other == kind),
        "level": level(kind),
        "message": { "text": text },
        "locations": [location],
        "occurrenceCount": findings,
        "partialFingerprints": { "nvabiSite/v1": format!("{site:016x}/{}", kind.name()) },
    })
}

fn physical(source: &Source) -> Value {
    let mut region = json!({ "startLine": source.line.max(1) });
    if source.column > 0 {
        region["startColumn"] = source.column.into();
    }
    json!({ "artifactLocation": { "uri": uri(&source.file) }, "region": region })
}

/// What a path keeps in a URI reference; everything else is percent-encoded.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A path as a URI reference.
fn uri(path: &str) -> String {
    let scheme = if path.starts_with('/') { "file://" } else { "" };
    format!("{scheme}{}", utf8_percent_encode(path, PATH))
}
