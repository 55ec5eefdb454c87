//! Compares two traces by the library: prints where each warp first parts, or with `--json` all that
//! `nvabi trace diff --json` does.
//!
//! ```sh
//! cargo run --release --package nvabi-trace --example diff -- good.trace bad.trace
//! ```

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

use nvabi_trace::report::Status;
use nvabi_trace::{Options, Trace, diff};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    let paths: Vec<&String> = arguments.iter().filter(|argument| *argument != "--json").collect();
    let [a, b] = paths[..] else { return Err("two traces, please".into()) };
    let report = diff(&Trace::open(a)?, &Trace::open(b)?, &Options::default())?;
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        for finding in report.findings.iter().filter(|finding| finding.first) {
            let line = finding.source.as_ref().map(|at| format!("{}:{}", at.file, at.line));
            let place = line.unwrap_or_else(|| format!("site {:#x}", finding.site));
            writeln!(out, "warp {}: {} at {place}", finding.warp, finding.kind.name())?;
        }
        writeln!(out, "{}", report.status.name())?;
    }
    Ok(ExitCode::from(match report.status {
        Status::Identical => 0,
        Status::Different => 1,
        Status::Incomparable => 2,
    }))
}
