//! Reports: JSON, SARIF, JUnit, and the last line.

use serde_json::{Value, json};

use super::Run;
use super::findings::{Finding, Findings, Severity};
use super::suppressions::Suppressions;
use crate::emulator::status_number;

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// How many findings there are of each severity.
pub(super) fn summary(findings: &Findings, runs: &[Run], suppressions: &Suppressions) -> String {
    let count =
        |severity| findings.all.iter().filter(|finding| finding.severity == severity).count();
    let schedules = match runs {
        [only] => only.schedule.clone(),
        _ => format!("{} schedules", runs.len()),
    };
    let mut out = format!(
        "{schedules}, {} errors, {} undefined, {} notes",
        count(Severity::Error),
        count(Severity::Undefined),
        count(Severity::Note)
    );
    if suppressions.covered() > 0 {
        out += &format!(", {} suppressed", suppressions.covered());
    }
    out
}

pub(super) fn json(findings: &Findings, runs: &[Run], suppressed: u64) -> String {
    let runs: Vec<Value> = runs
        .iter()
        .map(|run| json!({ "schedule": run.schedule, "status": status_number(run.status) }))
        .collect();
    let log = json!({ "runs": runs, "suppressed": suppressed, "findings": findings.all });
    format!("{log:#}\n")
}

pub(super) fn sarif(findings: &Findings) -> String {
    let mut kinds: Vec<&str> = findings.all.iter().map(|finding| finding.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let rules: Vec<Value> = kinds.iter().map(|kind| json!({ "id": rule(kind) })).collect();
    let results: Vec<Value> = findings.all.iter().map(result).collect();
    let log = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "nvabi emu",
                "version": env!("CARGO_PKG_VERSION"),
                "informationUri": env!("CARGO_PKG_REPOSITORY"),
                "rules": rules,
            } },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    format!("{log:#}\n")
}

fn rule(kind: &str) -> String {
    kind.replace(' ', "-")
}

fn result(finding: &Finding) -> Value {
    let level = match finding.severity {
        Severity::Error => "error",
        Severity::Undefined => "warning",
        Severity::Note => "note",
    };
    let mut result = json!({
        "ruleId": rule(&finding.kind),
        "level": level,
        "message": { "text": format!("kernel {}: {}", finding.kernel, finding.message) },
        "occurrenceCount": finding.count.max(1),
        "properties": { "schedules": finding.schedules, "block": finding.block, "thread": finding.thread },
    });
    if let Some(file) = &finding.file {
        let region =
            json!({ "startLine": finding.line.max(1), "startColumn": finding.column.max(1) });
        result["locations"] = json!([{ "physicalLocation": {
            "artifactLocation": { "uri": uri(file) },
            "region": region,
        } }]);
    }
    result
}

/// A path as a URI: what is no letter, digit or one of `-._~/` by its bytes.
fn uri(path: &str) -> String {
    let path = path.strip_prefix("./").unwrap_or(path);
    let mut out = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(byte));
            }
            _ => out += &format!("%{byte:02X}"),
        }
    }
    if path.starts_with('/') { format!("file://{out}") } else { out }
}

/// A test for each schedule, which fails by the program's status or by findings that are bad enough; others are
/// its output.
pub(super) fn junit(findings: &Findings, runs: &[Run], fail_on: Severity) -> String {
    let mut cases = String::new();
    let mut failures = 0;
    for run in runs {
        let shown = |finding: &&Finding| finding.schedules.contains(&run.schedule);
        let (bad, rest): (Vec<&Finding>, Vec<&Finding>) =
            findings.all.iter().filter(shown).partition(|finding| finding.severity >= fail_on);
        let [mut lines, rest] = [bad, rest]
            .map(|some| some.into_iter().map(|finding| finding.line(0)).collect::<Vec<_>>());
        let mut message = format!("{} findings", lines.len());
        if !run.status.success() {
            let status = format!("the program ended with {}", run.status);
            message = format!("{status}; {message}");
            lines.push(status);
        }
        cases += &format!("    <testcase classname=\"nvabi emu\" name=\"{}\"", xml(&run.schedule));
        cases += ">\n";
        if !lines.is_empty() {
            failures += 1;
            let text = xml(&lines.join("\n"));
            cases += &format!("      <failure message=\"{}\">{text}</failure>\n", xml(&message));
        }
        if !rest.is_empty() {
            cases += &format!("      <system-out>{}</system-out>\n", xml(&rest.join("\n")));
        }
        cases += "    </testcase>\n";
    }
    let counts = format!("tests=\"{}\" failures=\"{failures}\"", runs.len());
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  \
         <testsuite name=\"nvabi emu\" {counts}>\n{cases}  </testsuite>\n</testsuites>\n"
    )
}

/// Text in XML, which has no control characters but three.
fn xml(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\n' | '\t' => out.push(letter),
            letter if letter.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}
