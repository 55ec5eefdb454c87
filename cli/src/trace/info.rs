//! `nvabi trace info`: what a trace holds.

use std::fmt::Write as _;

use nvabi_pipeline::diagnostic::Report;
use nvabi_reports::terminal;
use nvabi_trace::{Found, Launch, Trace};
use serde::Serialize;

use super::args::TraceInfo;
use super::open;
use crate::Outcome;
use crate::context::Context;

/// What `--json` prints.
#[derive(Serialize)]
struct Info {
    file: String,
    version: u32,
    bytes: u64,
    /// Whether the file was closed after it was written.
    closed: bool,
    launches: Vec<About>,
    damage: Vec<Damage>,
}

#[derive(Serialize)]
struct About {
    #[serde(flatten)]
    launch: Launch,
    sites: usize,
    /// Warps with a record.
    warps_recorded: u64,
    events_recorded: u64,
    events_dropped: u64,
    warps_overflowed: u64,
    longest_warp: u64,
}

#[derive(Serialize)]
struct Damage {
    offset: u64,
    what: String,
}

pub(crate) fn info(context: &Context<'_>, args: &TraceInfo) -> Result<Outcome, Report> {
    let trace = open(&args.file)?;
    let info = Info::of(&trace);
    match context.json() {
        true => context.print_json(&info)?,
        false => context.print(&info.text())?,
    }
    Ok(if info.damage.is_empty() { Outcome::Same } else { Outcome::Different })
}

impl Info {
    fn of(trace: &Trace) -> Self {
        let damage = |error: &nvabi_trace::Error| Damage {
            offset: error.offset(),
            what: error.problem().to_string(),
        };
        let mut info = Self {
            file: trace.path().display().to_string(),
            version: trace.version(),
            bytes: trace.size(),
            closed: trace.closed(),
            launches: Vec::new(),
            damage: trace.damage().iter().map(damage).collect(),
        };
        for (at, launch) in trace.launches().iter().enumerate() {
            let mut about = About {
                launch: launch.clone(),
                sites: trace.site_count(at),
                warps_recorded: 0,
                events_recorded: 0,
                events_dropped: 0,
                warps_overflowed: 0,
                longest_warp: 0,
            };
            for found in trace.warps(at) {
                match found {
                    Found::Warp(warp) => {
                        about.warps_recorded += 1;
                        about.events_recorded += warp.len();
                        about.events_dropped += warp.dropped();
                        about.warps_overflowed += u64::from(warp.dropped() > 0);
                        about.longest_warp = about.longest_warp.max(warp.len());
                    }
                    Found::Lost { error, .. } => info.damage.push(damage(&error)),
                }
            }
            info.launches.push(about);
        }
        info
    }

    fn text(&self) -> String {
        let format = if self.version == 1 { "gddbg v1" } else { "nvtrace v2" };
        let closed = if self.closed { "" } else { ", not closed" };
        let mut text = format!("{}: {format}, {} bytes{closed}\n", self.file, self.bytes);
        for (at, about) in self.launches.iter().enumerate() {
            about.write(at, &mut text);
        }
        for Damage { offset, what } in &self.damage {
            let _ = writeln!(text, "byte {offset}: {what}");
        }
        text
    }
}

impl About {
    fn write(&self, at: usize, text: &mut String) {
        let Launch { kernel, grid, block, warps, arch, module_hash, .. } = &self.launch;
        let Launch { stream, order, session, .. } = &self.launch;
        let size = |[x, y, z]: &[u32; 3]| format!("{x} x {y} x {z}");
        let kernel = terminal::line(kernel);
        let _ = writeln!(text, "launch {at}: {kernel}, {} blocks of {}", size(grid), size(block));
        let _ = write!(text, "    session {session}, order {order}, stream {stream}");
        if *arch > 0 {
            let _ = write!(text, ", sm_{arch}");
        }
        if *module_hash != [0; 32] {
            // As many digits as tell modules apart; --json has all.
            let digits = module_hash[..8].iter().map(|byte| format!("{byte:02x}"));
            let _ = write!(text, ", code {}", digits.collect::<String>());
        }
        let _ = writeln!(text, ", {} sites", self.sites);
        let _ = writeln!(
            text,
            "    {} of {warps} warps, {} events, {} in the longest warp",
            self.warps_recorded, self.events_recorded, self.longest_warp
        );
        if self.events_dropped > 0 {
            let _ = writeln!(
                text,
                "    overflow: warps that lost events: {}, events lost: {}",
                self.warps_overflowed, self.events_dropped
            );
        }
    }
}
