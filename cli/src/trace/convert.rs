//! `nvabi trace convert` and `nvabi trace merge`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_trace::{Trace, V2Writer, convert as to};

use super::args::{TraceConvert, TraceFormat, TraceMerge};
use super::{Losses, failed, open};
use crate::Outcome;
use crate::context::Context;

pub(crate) fn convert(context: &Context<'_>, args: &TraceConvert) -> Result<Outcome, Report> {
    let trace = open(&args.from)?;
    let other = if trace.version() == 1 { TraceFormat::V2 } else { TraceFormat::V1 };
    let beside = Beside::new(&args.to)?;
    let traces = std::slice::from_ref(&trace);
    let mut losses = Losses::of(context, traces);
    let mut lost = |warps, error| losses.warps(warps, &error);
    match args.format.unwrap_or(other) {
        TraceFormat::V2 => write_v2(&beside, args.level, |out| to::to_v2(&trace, out, &mut lost))?,
        TraceFormat::V1 => {
            let launch = one_launch(&trace, args.launch)?;
            let out = beside.writer()?;
            to::to_v1(&trace, launch, args.lossy, out, &mut lost).map_err(failed)?;
        }
    }
    beside.done()?;
    context.status("Written", &args.to.display().to_string());
    Ok(losses.outcome())
}

pub(crate) fn merge(context: &Context<'_>, args: &TraceMerge) -> Result<Outcome, Report> {
    let traces = args.files.iter().map(|path| open(path)).collect::<Result<Vec<_>, _>>()?;
    let beside = Beside::new(&args.out)?;
    let mut losses = Losses::of(context, &traces);
    let mut lost = |warps, error| losses.warps(warps, &error);
    write_v2(&beside, args.level, |out| to::merge(&traces, out, &mut lost))?;
    beside.done()?;
    context.status("Written", &args.out.display().to_string());
    Ok(losses.outcome())
}

pub(super) fn write_v2(
    beside: &Beside,
    level: i32,
    write: impl FnOnce(&mut V2Writer<BufWriter<File>>) -> Result<(), nvabi_trace::Error>,
) -> Result<(), Report> {
    let level = Some(level).filter(|level| *level > 0);
    let failed_io = |error: io::Error| beside.failed(&error);
    let mut out = V2Writer::new(beside.writer()?, level).map_err(failed_io)?;
    write(&mut out).map_err(failed)?;
    out.finish().map_err(failed_io)?;
    Ok(())
}

fn one_launch(trace: &Trace, asked: Option<usize>) -> Result<usize, Report> {
    match (asked, trace.launches().len()) {
        (Some(launch), _) => Ok(launch),
        (None, 1) => Ok(0),
        (None, count) => {
            let message = format!("the trace has {count} launches, and gddbg v1 holds one");
            Err(Diagnostic::error("trace-launch", message).help("choose one with --launch").into())
        }
    }
}

/// A file that is written beside its place, and put there when it is whole.
pub(super) struct Beside {
    target: PathBuf,
    beside: PathBuf,
    file: File,
}

impl Beside {
    pub(super) fn new(target: &Path) -> Result<Self, Report> {
        let mut beside = target.as_os_str().to_owned();
        beside.push(format!(".{}.new", std::process::id()));
        let beside = PathBuf::from(beside);
        match File::create_new(&beside) {
            Ok(file) => Ok(Self { target: target.to_owned(), beside, file }),
            Err(error) => Err(unwritable(target, &error)),
        }
    }

    pub(super) fn writer(&self) -> Result<BufWriter<File>, Report> {
        let file = self.file.try_clone().map_err(|error| self.failed(&error))?;
        Ok(BufWriter::with_capacity(1 << 20, file))
    }

    pub(super) fn failed(&self, error: &io::Error) -> Report {
        unwritable(&self.target, error)
    }

    pub(super) fn done(mut self) -> Result<(), Report> {
        let moved = self.file.flush().and_then(|()| std::fs::rename(&self.beside, &self.target));
        moved.map_err(|error| self.failed(&error))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // After the rename there is nothing left to remove.
        let _ = std::fs::remove_file(&self.beside);
    }
}

pub(super) fn unwritable(target: &Path, error: &io::Error) -> Report {
    let message = format!("cannot write {}: {error}", target.display());
    Diagnostic::error("trace-unwritable", message).into()
}
