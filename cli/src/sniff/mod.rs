//! `nvabi sniff`: prints the driver calls of a program.
//!
//! ```text
//! launch ─ filter ─┬─ tracer   (ptrace: calls and their results) ─┬─ watch (bytes of a call) ─ view
//!                  └─ listener (seccomp: calls alone)             ┘    └─ names (tags, tables)  ├─ check, audit
//! decode: record ───────────────────────────────────────────────────────────────────── view  ───┴─ record
//! ```
//!
//! `nvabi_reports::decode::sniff` names the bytes, of live and of recorded calls.

mod check;
mod devices;
mod filter;
mod launch;
mod listener;
mod names;
mod shown;
mod target;
mod tracer;
mod view;
mod watch;

use std::fs::File;
use std::io::{self, BufReader, BufWriter, LineWriter, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;

use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_pipeline::tag::Tag;
use nvabi_reports::decode::sniff::Event;
use nvabi_reports::decode::sniff::record::{self, End, Reader, Record, Start, Writer};

use crate::Outcome;
use crate::args::{self, Method};
use crate::context::Context;
use check::{Check, List};
use filter::Ioctls;
use launch::{Kept, Launched, Unbegun, Under};
use listener::Support;
pub(crate) use names::Names;
use names::Versions;
use view::{View, Wanted};
use watch::{Copier, Limits, Sink as _};

/// Numbers of one call that are tried as addresses.
const MAX_ADDRESSES: usize = 256;

/// Runs a program and prints its driver calls.
pub(crate) fn sniff(context: &Context<'_>, args: &args::Sniff) -> Result<Outcome, Report> {
    // Before there are threads, which would have to block the signals too.
    let kept = Kept::new().map_err(|error| failure(&error))?;
    let mut names = Names::new(context, Versions::of_machine(&args.tags))?;
    let check = args.view.check.as_deref().map(List::read).transpose()?.map(Check::new);
    let record = args.record.as_deref().map(|path| begin_record(path, args, &names)).transpose()?;
    let out: Box<dyn Write> = match &args.out {
        Some(path) => {
            Box::new(LineWriter::new(File::create(path).map_err(|e| unwritable(path, &e))?))
        }
        None => Box::new(LineWriter::new(io::stderr())),
    };
    let is_silent = args.record.is_some() || args.view.check.is_some() || args.view.audit;
    let view = View::new(context, out, wanted(&args.view, is_silent), check, record);
    // Only an audit looks at them, now or of the recording.
    let addresses = if args.view.audit || args.record.is_some() { MAX_ADDRESSES } else { 0 };
    let is_shown = args.record.is_some();
    let limits = Limits { piece: args.limit, call: record::MAX_CALL, addresses, is_shown };
    // The requests of other files are unknown.
    let ioctls = if args.paths.is_empty() { Ioctls::OfDrivers } else { Ioctls::All };
    let mut copier = Copier::new(names.nodes(&args.paths), ioctls, &mut names, view, limits);
    let status = run(context, args, &kept, ioctls, &mut copier)?;
    let Copier { sink: mut view, failed, .. } = copier;
    failed.map_or(Ok(()), Err).map_err(|error| failure(&error))?;
    names.failed().map_or(Ok(()), Err)?;
    let end = match (status.code(), status.signal()) {
        (Some(code), _) => End::Code(code),
        (None, signal) => End::Signal(signal.unwrap_or(0)),
    };
    let differs = view.end(&mut names, Some(end)).map_err(|error| failure(&error))?;
    names.failed().map_or(Ok(()), Err)?;
    context.status("Ended", &format!("{end}, {} calls", view.count()));
    Ok(if differs { Outcome::Different } else { Outcome::Same })
}

/// Prints a recording, as it was printed when it was recorded.
pub(crate) fn decode(context: &Context<'_>, args: &args::DecodeSniff) -> Result<Outcome, Report> {
    let (mut recording, mut names) = Recording::open(context, &args.file, &args.tags)?;
    let check = args.view.check.as_deref().map(List::read).transpose()?.map(Check::new);
    let out = Box::new(BufWriter::new(io::stdout()));
    let is_silent = args.view.check.is_some() || args.view.audit;
    let mut view = View::new(context, out, wanted(&args.view, is_silent), check, None);
    while let Some(event) = recording.next() {
        crate::context::written(view.take(&mut names, &event))?;
    }
    names.failed().map_or(Ok(()), Err)?;
    let (mut differs, end) = (false, recording.end);
    crate::context::written(view.end(&mut names, end).map(|found| differs = found))?;
    names.failed().map_or(Ok(()), Err)?;
    recording.whole(context)?;
    let ended = end.map_or("the recording has no end".to_owned(), |end| end.to_string());
    let command = recording.start.command.join(" ");
    context.status("Decoded", &format!("{command}: {} calls; {ended}", view.count()));
    Ok(if differs { Outcome::Different } else { Outcome::Same })
}

/// A recording that is read from its beginning.
pub(crate) struct Recording {
    reader: Reader<BufReader<File>>,
    start: Start,
    end: Option<End>,
    broken: Option<record::Error>,
}

impl Recording {
    /// Opens a file, with the names of its calls: of `tags`, else of those that it has itself.
    pub(crate) fn open(
        context: &Context<'_>,
        path: &Path,
        tags: &[Tag],
    ) -> Result<(Self, Names), Report> {
        let opened =
            File::open(path).map_err(|error| record::Error::Unreadable(path.to_owned(), error));
        let (reader, start) = opened
            .and_then(|file| Reader::new(path, BufReader::new(file)))
            .map_err(|error| bad(&error))?;
        let own =
            |texts: &[String]| texts.iter().filter_map(|text| text.parse::<Tag>().ok()).collect();
        let asked = if tags.is_empty() { own(&start.asked) } else { tags.to_vec() };
        let names = Names::new(context, Versions { asked, machine: own(&start.machine) })?;
        Ok((Self { reader, start, end: None, broken: None }, names))
    }

    /// The next call; none at the end, or where it cannot be read on.
    pub(crate) fn next(&mut self) -> Option<Event> {
        while self.broken.is_none() {
            match self.reader.read() {
                Ok(Some(Record::Call(event))) => return Some(event),
                Ok(Some(Record::End(ended))) => self.end = Some(ended),
                Ok(None) => return None,
                Err(error) => self.broken = Some(error),
            }
        }
        None
    }

    /// Whether all of it was read; one that ends too early is as good as it goes.
    pub(crate) fn whole(&self, context: &Context<'_>) -> Result<(), Report> {
        match &self.broken {
            Some(error) if !error.is_cut() => Err(bad(error).into()),
            Some(error) => {
                context.status("Cut", &format!("{error}; everything before it is complete"));
                Ok(())
            }
            None => Ok(()),
        }
    }
}

fn bad(error: &record::Error) -> Diagnostic {
    Diagnostic::error("sniff-record", error.to_string())
}

/// Single calls are printed unless another output was asked for.
fn wanted(args: &args::SniffView, is_silent: bool) -> Wanted {
    let lines = args.lines || !(args.summary || is_silent);
    Wanted { lines, full: args.full, summary: args.summary, audit: args.audit }
}

fn begin_record(path: &Path, args: &args::Sniff, names: &Names) -> Result<Writer<File>, Report> {
    let texts = |tags: &[Tag]| tags.iter().map(Tag::to_string).collect();
    let Versions { asked, machine } = names.versions();
    let command = args.command.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let start = Start { asked: texts(asked), machine: texts(machine), command };
    File::create(path)
        .and_then(|file| Writer::new(file, &start))
        .map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &io::Error) -> Report {
    Diagnostic::error("sniff-output", format!("cannot write {}: {error}", path.display())).into()
}

fn failure(error: &io::Error) -> Report {
    Diagnostic::error("sniff-failed", error.to_string()).into()
}

/// Runs the program under the method that this machine allows, and says which.
fn run(
    context: &Context<'_>,
    args: &args::Sniff,
    kept: &Kept,
    ioctls: Ioctls,
    copier: &mut Copier<'_, View<'_>>,
) -> Result<ExitStatus, Report> {
    let support = listener::support().map_err(|error| failure(&error))?;
    let mut launched =
        launch::launch(&args.command, kept, ioctls).map_err(|error| failure(&error))?;
    let is_traced = match args.method {
        Some(Method::Notify) => false,
        method => match tracer::seize(&launched) {
            Ok(()) => true,
            Err(error) if method.is_some() => {
                launched.drop_child();
                return Err(refused(&format!("ptrace: {error}")));
            }
            Err(error) => {
                context.status("Note", &format!("ptrace is not permitted: {error}"));
                false
            }
        },
    };
    let followed = if is_traced {
        let why = match support {
            Support::Taken => Some("another seccomp filter precedes sniff's"),
            Support::Refused => {
                Some("seccomp filters are not permitted; tracing without one is slow")
            }
            Support::Given | Support::Plain => None,
        };
        let how =
            why.map_or(String::new(), |why| format!(", stopping at every system call: {why}"));
        context.status("Tracing", &format!("via ptrace{how}"));
        tracer::follow(launched, copier, why.is_some())
    } else {
        if support != Support::Given {
            launched.drop_child();
            return Err(refused(match support {
                Support::Taken => "seccomp: another filter has a listener",
                _ => "seccomp: filters with a listener are not permitted",
            }));
        }
        context.status("Tracing", "via seccomp notification: results and times are unknown");
        match launched.go(Under::Listener).map_err(|error| failure(&error))? {
            Some(listener) => listener::follow(launched, listener, copier),
            None => return Err(not_begun(launched, args)),
        }
    };
    let (launched, status) = followed.map_err(|error| failure(&error))?;
    match status.code() {
        Some(127) => unbegun(launched, args).map_or(Ok(status), Err),
        _ => Ok(status),
    }
}

fn refused(why: &str) -> Report {
    let help =
        "where neither is permitted, record an strace log elsewhere and use `nvabi decode strace`";
    Diagnostic::error("sniff-refused", format!("this machine does not allow it: {why}"))
        .help(help)
        .into()
}

fn not_begun(launched: Launched, args: &args::Sniff) -> Report {
    let none = || refused("the program did not start");
    unbegun(launched, args).unwrap_or_else(none)
}

/// Why a program did not begin.
fn unbegun(mut launched: Launched, args: &args::Sniff) -> Option<Report> {
    let program = args.command.first().map(|program| program.to_string_lossy().into_owned());
    Some(match launched.unbegun()? {
        Unbegun::Filter(error) => refused(&format!("seccomp: {error}")),
        Unbegun::Exec(error) => {
            let message = format!("cannot run {}: {error}", program.unwrap_or_default());
            Diagnostic::error("sniff-program", message).into()
        }
    })
}
