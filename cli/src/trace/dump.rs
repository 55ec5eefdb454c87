//! `nvabi trace dump`: the events of a trace, one a line.

use std::io::{BufWriter, Write as _};

use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_reports::terminal;
use nvabi_trace::{Event, Found, Trace, Warp};
use serde::Serialize;

use super::args::TraceDump;
use super::{Losses, failed, open};
use crate::Outcome;
use crate::context::{Context, written};

/// A line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    launch: usize,
    warp: u32,
    index: u64,
    #[serde(flatten)]
    event: &'a Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

pub(crate) fn dump(context: &Context<'_>, args: &TraceDump) -> Result<Outcome, Report> {
    let trace = open(&args.file)?;
    let launches = trace.launches().len();
    if let Some(launch) = args.launch.filter(|launch| *launch >= launches) {
        let message = format!("there is no launch {launch}: the trace has {launches}");
        return Err(Diagnostic::error("trace-launch", message).into());
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut losses = Losses::of(context, std::slice::from_ref(&trace));
    let mut warps = 0;
    for launch in (0..launches).filter(|at| args.launch.is_none_or(|launch| launch == *at)) {
        if !context.json() {
            let kernel = trace.launches().get(launch).map_or("", |launch| &launch.kernel);
            written(writeln!(out, "launch {launch}: {}", terminal::line(kernel)))?;
        }
        for found in trace.warps(launch) {
            match found {
                Found::Warp(warp) if args.warp.is_none_or(|wanted| wanted == warp.number()) => {
                    warps += 1;
                    dump_warp(context, args, &trace, launch, &warp, &mut out)?;
                }
                Found::Warp(_) => {}
                Found::Lost { first, last, error } => losses.warps(first..=last, &error),
            }
        }
    }
    written(out.flush())?;
    if let Some(warp) = args.warp.filter(|_| warps == 0 && losses.count == 0) {
        let message = format!("there is no warp {warp} in the trace");
        return Err(Diagnostic::error("trace-warp", message).into());
    }
    Ok(losses.outcome())
}

fn dump_warp(
    context: &Context<'_>,
    args: &TraceDump,
    trace: &Trace,
    launch: usize,
    warp: &Warp<'_>,
    out: &mut impl std::io::Write,
) -> Result<(), Report> {
    let number = warp.number();
    if !context.json() {
        let dropped = match warp.dropped() {
            0 => String::new(),
            dropped => format!(", {dropped} more were not recorded"),
        };
        written(writeln!(out, "  warp {number}: {} events{dropped}", warp.len()))?;
    }
    let end = args.count.map_or(u64::MAX, |count| args.from.saturating_add(count));
    for (index, event) in (0..end).zip(warp.events()) {
        let event = event.map_err(failed)?;
        if index < args.from {
            continue;
        }
        let source = trace.source(launch, event.site);
        if context.json() {
            let file = source.as_ref().map(|source| source.file.as_str());
            let line = source.as_ref().map(|source| source.line);
            let row = Line { launch, warp: number, index, event: &event, file, line };
            written(terminal::json_line(&mut *out, &row).and_then(|()| writeln!(out)))?;
            continue;
        }
        let place = match source {
            Some(source) => format!("{}:{}", source.file, source.line),
            None => format!("site {:#x}", event.site),
        };
        written(writeln!(out, "{index:>8}  {}  {}", terminal::line(&place), words(&event)))?;
    }
    Ok(())
}

fn words(event: &Event) -> String {
    let Event { kind, direction, mask, ballot, value, .. } = event;
    let mut text = format!("{kind}");
    if *kind == nvabi_trace::EventKind::BRANCH {
        text.push_str(&format!(" way {direction}"));
        if let Some(ballot) = ballot.filter(|ballot| *ballot != 0 && ballot != mask) {
            text.push_str(&format!(" taken by {ballot:08x}"));
        }
    }
    text.push_str(&format!(" lanes {mask:08x}"));
    if let Some(value) = value {
        text.push_str(&format!(" value {value:#x}"));
    }
    text
}
