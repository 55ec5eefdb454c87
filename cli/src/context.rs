//! What the commands share: specs, lock, headers, and how to speak to a person.

use std::io::{BufWriter, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ColorChoice;
use indicatif::{ProgressBar, ProgressStyle};
use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_pipeline::headers::Source;
use nvabi_pipeline::lock::{self, Lock};
use nvabi_pipeline::model::Facts;
use nvabi_pipeline::spec::Spec;
pub(crate) use nvabi_pipeline::spec::spec_of;
use nvabi_pipeline::tag::{Tag, family};
use nvabi_pipeline::verify;
use serde::Serialize;

use crate::args::Options;

/// Drivers that share a lock, such as those of Jetson.
pub(crate) struct Family {
    /// Nothing for the desktop's.
    pub(crate) name: String,
    pub(crate) specs: Vec<Spec>,
    /// The folder of its lock.
    pub(crate) lock: PathBuf,
}

pub(crate) struct Context<'a> {
    options: &'a Options,
}

impl<'a> Context<'a> {
    pub(crate) fn new(options: &'a Options) -> Self {
        Self { options }
    }

    /// How many threads were asked for.
    pub(crate) fn threads(&self) -> Option<usize> {
        self.options.threads.map(|threads| threads.get().into())
    }

    pub(crate) fn json(&self) -> bool {
        self.options.json
    }

    /// The folder of the specs: as given, else `abi-specs` here, else the one this was built from.
    pub(crate) fn specs_folder(&self) -> PathBuf {
        let here = PathBuf::from("abi-specs");
        match &self.options.specs {
            Some(folder) => folder.clone(),
            None if here.is_dir() => here,
            None => Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("abi-specs"),
        }
    }

    /// The family that a tag is of; without one, the family that was asked for.
    pub(crate) fn family(&self, tag: Option<&Tag>) -> Result<Family, Report> {
        let asked = self.options.family.as_deref().unwrap_or_default();
        self.family_named(tag.map_or(asked, Tag::family))
    }

    /// Like `family`, with the specs of two tags alone where there are both.
    pub(crate) fn family_of_two(&self, from: &Tag, to: &Tag) -> Result<Family, Report> {
        let folder = self.specs_folder();
        let wanted = [from.branch(), to.branch()];
        let specs = Spec::load_where(&folder, |driver| wanted.contains(&driver))?;
        let (name, lock) = (from.family().to_owned(), lock::folder(&folder, from.family()));
        match wanted.iter().all(|driver| specs.iter().any(|spec| spec.driver == *driver)) {
            true => Ok(Family { name, specs, lock }),
            // The complaint that follows names all there are.
            false => self.family(Some(from)),
        }
    }

    pub(crate) fn family_named(&self, name: &str) -> Result<Family, Report> {
        let all = self.families_matching(Some(name))?;
        all.into_iter().next().ok_or_else(|| {
            let folder = self.specs_folder();
            let whose = if name.is_empty() { "driver" } else { name };
            let message = format!("there is no spec {whose}-N.toml in {}", folder.display());
            let help = "give the folder of the specs with --specs";
            Diagnostic::error("spec-no-driver", message).help(help).into()
        })
    }

    /// Every family that there are specs of, or the one that was asked for.
    pub(crate) fn families(&self) -> Result<Vec<Family>, Report> {
        self.families_matching(self.options.family.as_deref())
    }

    fn families_matching(&self, wanted: Option<&str>) -> Result<Vec<Family>, Report> {
        let folder = self.specs_folder();
        let mut families: Vec<Family> = Vec::new();
        let wanted = |driver: &str| wanted.is_none_or(|wanted| wanted == family(driver));
        for spec in Spec::load_where(&folder, wanted)? {
            let name = spec.family().to_owned();
            match families.iter_mut().find(|family| family.name == name) {
                Some(family) => family.specs.push(spec),
                None => {
                    let lock = lock::folder(&folder, &name);
                    families.push(Family { name, specs: vec![spec], lock });
                }
            }
        }
        Ok(families)
    }

    /// Where the headers are.
    pub(crate) fn headers(&self) -> Result<PathBuf, Report> {
        Ok(verify::headers_path(self.options.headers.as_deref())?)
    }

    pub(crate) fn source(&self) -> Result<Source, Report> {
        Ok(Source::open(&self.headers()?)?)
    }

    /// The facts of a locked tag, or of the newest of a family.
    pub(crate) fn facts(&self, family: &Family, tag: Option<&Tag>) -> Result<Facts, Report> {
        let locked = read(&family.lock)?;
        match tag.or(locked.tags.last().map(|newest| &newest.tag)) {
            Some(tag) => facts_of(&locked, tag),
            None => Err(Diagnostic::error("lock-no-tag", "the lock is empty").into()),
        }
    }

    /// A status for a person: a verb, then what.
    pub(crate) fn status(&self, verb: &str, what: &str) {
        // A closed stderr is no reason to stop.
        let _ = writeln!(std::io::stderr(), "{verb:>12} {what}");
    }

    /// Complaints about the job itself, on stderr.
    pub(crate) fn complain(&self, report: &Report) {
        if !report.diagnostics.is_empty() {
            let colour = self.colour(std::io::stderr().is_terminal());
            let _ = writeln!(std::io::stderr(), "{}", report.render(colour));
        }
    }

    /// Findings, on stdout.
    pub(crate) fn find(&self, report: &Report) -> Result<(), Report> {
        let colour = self.colour(std::io::stdout().is_terminal());
        self.print(&format!("{}\n", report.render(colour)))
    }

    fn colour(&self, terminal: bool) -> bool {
        match self.options.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => terminal && std::env::var_os("NO_COLOR").is_none(),
        }
    }

    /// Text on stdout.
    pub(crate) fn print(&self, text: &str) -> Result<(), Report> {
        written(std::io::stdout().write_all(text.as_bytes()))
    }

    /// The model on stdout, as it goes: a tag's facts are some 100,000 lines.
    pub(crate) fn print_json(&self, value: &impl Serialize) -> Result<(), Report> {
        let mut out = BufWriter::new(std::io::stdout().lock());
        let done = serde_json::to_writer_pretty(&mut out, value).map_err(std::io::Error::from);
        written(done.and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()))
    }

    /// A progress bar when stderr is a terminal.
    pub(crate) fn progress(&self, steps: usize) -> ProgressBar {
        if !std::io::stderr().is_terminal() || steps < 2 {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::new(steps as u64);
        if let Ok(style) = ProgressStyle::with_template("{msg:>12} [{bar:40}] {pos}/{len} {eta}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }
}

/// A whole lock; nothing is answered from one that was edited by hand.
pub(crate) fn read(folder: &Path) -> Result<Lock, Report> {
    let (locked, edited) = lock::read(folder)?;
    edited.into_result(locked).map(|(locked, _)| locked)
}

/// The facts that a lock has of a tag.
pub(crate) fn facts_of(locked: &Lock, tag: &Tag) -> Result<Facts, Report> {
    locked.facts(tag).ok_or_else(|| {
        let names: Vec<&str> = locked.tags.iter().map(|t| t.tag.as_str()).collect();
        let at = locked.tags.partition_point(|t| t.tag < *tag);
        let near = names[at.saturating_sub(2)..(at + 2).min(names.len())].join(", ");
        Diagnostic::error("lock-no-tag", format!("the lock has no tag {tag}"))
            .note(format!("it has {} tags; next to it: {near}", names.len()))
            .help(format!("`nvabi ranges --nearest {tag}` tells which of them has the same ABI"))
            .into()
    })
}

/// Both, or the complaints about either.
pub(crate) fn both<T>(a: Result<T, Report>, b: Result<T, Report>) -> Result<(T, T), Report> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(mut report), Err(more)) => {
            report.diagnostics.extend(more.diagnostics);
            Err(report)
        }
        (Err(report), _) | (_, Err(report)) => Err(report),
    }
}

/// A reader that goes away, such as `head`, ends the command quietly.
pub(crate) fn written(result: std::io::Result<()>) -> Result<(), Report> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Diagnostic::error("output", format!("cannot write: {error}")).into()),
        Ok(()) => Ok(()),
    }
}
