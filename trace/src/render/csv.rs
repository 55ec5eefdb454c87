//! A report as comma-separated values, one finding a row (RFC 4180, but lines end in LF).

use crate::report::{Finding, Report, lanes_of};

const HEADER: &str = "kernel,launch,warp,kind,site,file,line,column,function,index_a,index_b,\
                      resync_a,resync_b,count,lanes,value_a,value_b,first,class\n";

/// The findings that are kept. Cells that a spreadsheet would take for a formula begin with a `'`.
pub fn csv(report: &Report) -> String {
    let rows = report.findings.iter().map(|finding| row(report, finding));
    std::iter::once(HEADER.to_owned()).chain(rows).collect()
}

fn row(report: &Report, finding: &Finding) -> String {
    let launch = report.launches.get(finding.launch as usize);
    let source = finding.source.as_ref();
    let number = |number: Option<u64>| number.map(|n| n.to_string()).unwrap_or_default();
    let lanes = lanes_of(finding.lanes.unwrap_or_default()).map(|lane| lane.to_string());
    let cells = [
        launch.map(|l| l.kernel.clone()).unwrap_or_default(),
        number(launch.map(|l| l.order.into())),
        finding.warp.to_string(),
        finding.kind.name().to_owned(),
        finding.site.to_string(),
        source.map(|s| s.file.clone()).unwrap_or_default(),
        number(source.map(|s| s.line.into())),
        number(source.map(|s| s.column.into())),
        source.map(|s| s.function.clone()).unwrap_or_default(),
        finding.index_a.to_string(),
        finding.index_b.to_string(),
        number(finding.resync_a),
        number(finding.resync_b),
        number(finding.count),
        lanes.collect::<Vec<_>>().join(" "),
        number(finding.event_a.and_then(|event| event.value)),
        number(finding.event_b.and_then(|event| event.value)),
        finding.first.to_string(),
        finding.class.map(|class| class.name()).unwrap_or_default().to_owned(),
    ];
    cells.map(|text| cell(&text)).join(",") + "\n"
}

fn cell(text: &str) -> String {
    let text = match text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        true => format!("'{text}"),
        false => text.to_owned(),
    };
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}
