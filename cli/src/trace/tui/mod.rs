//! `nvabi trace tui`: two traces side by side on a terminal.

mod app;
mod draw;
mod pair;
mod rows;
#[cfg(test)]
mod tests;
mod traces;

use std::collections::BTreeSet;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::Duration;

use crossterm::event::{self, Event as Input, KeyEventKind};
use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_trace::diff::matched_launches;
use nvabi_trace::report::Report as Compared;
use nvabi_trace::sources::Sources;
use nvabi_trace::{Options, Trace};
use ratatui::DefaultTerminal;

use self::app::{App, Mode, Overview};
use self::pair::{Pair, WarpId};
use self::traces::Traces;
use super::{diff, open};
use crate::Outcome;
use crate::trace::args::TraceTui;

/// Differences of a warp that can be jumped to, and warps that are listed as different.
const LIMIT: usize = 10_000;
/// Sites whose files are looked for.
const SITES: usize = 1 << 16;

/// How long it waits for a key before it looks whether the comparison has ended.
const PATIENCE: Duration = Duration::from_millis(100);

/// Shows two traces until the user has seen enough.
pub(crate) fn tui(args: &TraceTui) -> Result<Outcome, Report> {
    let failed = |code, message: String| Report::from(Diagnostic::error(code, message));
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let help = "`nvabi trace diff` prints what differs";
        let refused = Diagnostic::error("trace-no-terminal", "stdin or stdout is not a terminal");
        return Err(refused.help(help).into());
    }
    let (a, b) = (Arc::new(open(&args.a)?), Arc::new(open(&args.b)?));
    let options = Options {
        values: args.values,
        limit: LIMIT,
        allow_different_grids: args.allow_different_grids,
        sites: diff::sites(args.map.as_deref())?,
        ..Options::default()
    };
    let traces = Traces::new(&a, &b, &options);
    if traces.warps() == 0 {
        let message = "the traces have no warps in common".to_owned();
        return Err(failed("trace-incompatible", message));
    }
    let overview = compare_all(Arc::clone(&a), Arc::clone(&b), options.clone());
    let sources = sources(&a, &b, &args.folders);
    let shown = App::new(traces, sources).map_err(|error| failed("trace-unreadable", error));
    browse(&mut shown?, &overview).map_err(|error| failed("trace-terminal", error.to_string()))?;
    Ok(Outcome::Same)
}

/// Compares all warps on the side, however long it takes.
fn compare_all(
    a: Arc<Trace>,
    b: Arc<Trace>,
    options: Options,
) -> Receiver<Result<Compared, String>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        // Nobody listens any more when the user has left.
        let _ = sender.send(nvabi_trace::diff(&a, &b, &options).map_err(|error| error.to_string()));
    });
    receiver
}

/// The source files that the traces name.
fn sources(a: &Trace, b: &Trace, folders: &[PathBuf]) -> Sources {
    let mut names = BTreeSet::new();
    for (at_a, at_b) in matched_launches(a, b) {
        for (trace, launch) in [(a, at_a), (b, at_b)] {
            let sites = trace.site_count(launch).min(SITES) as u32;
            names.extend((0..sites).filter_map(|site| Some(trace.site(launch, site)?.file)));
        }
    }
    Sources::load(names.iter().map(String::as_str), folders)
}

/// Shows a pair until the user has seen enough. The comparison of all warps comes when it is done.
fn browse<P: Pair>(
    app: &mut App<P>,
    overview: &Receiver<Result<Compared, String>>,
) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let result = run(app, overview, &mut terminal);
    ratatui::try_restore()?;
    result
}

fn run<P: Pair>(
    app: &mut App<P>,
    overview: &Receiver<Result<Compared, String>>,
    terminal: &mut DefaultTerminal,
) -> io::Result<()> {
    while !app.done {
        if app.overview == Overview::Running {
            match overview.try_recv() {
                Ok(Ok(report)) => app.overview(differing(&app.pair, &report)),
                Ok(Err(error)) => app.overview(Overview::Failed(error)),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    let why = "the comparison of all warps ended early".to_owned();
                    app.overview(Overview::Failed(why));
                }
            }
        }
        terminal.draw(|frame| draw::draw(app, frame))?;
        let searching = matches!(app.mode, Mode::Search(_));
        if event::poll(if searching { Duration::ZERO } else { PATIENCE })? {
            if let Input::Key(key) = event::read()? {
                if key.kind == KeyEventKind::Press {
                    app.key(key);
                }
            }
        } else if searching {
            app.work();
        }
    }
    Ok(())
}

/// The warps of a report that differ.
fn differing(pair: &impl Pair, report: &Compared) -> Overview {
    let warps =
        report.findings.iter().map(|found| WarpId { launch: found.launch, warp: found.warp });
    let warps = warps.filter_map(|warp| pair.number(warp)).collect();
    Overview::Done(warps, report.warps_divergent)
}
