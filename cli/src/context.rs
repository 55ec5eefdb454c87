//! What the commands share: specs, lock, headers, and how to speak to a person.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::io::{BufWriter, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ColorChoice;
use indicatif::{ProgressBar, ProgressStyle};
use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_pipeline::lock::{self, Lock};
use nvabi_pipeline::model::Facts;
use nvabi_pipeline::spec::Spec;
pub(crate) use nvabi_pipeline::spec::spec_of;
use nvabi_pipeline::tag::{Tag, family};
use nvabi_pipeline::text_folder::TextFolder;
use nvabi_reports::terminal;
use serde::Serialize;

use crate::Outcome;
use crate::args::{Options, family_name};
use crate::specs;

/// Drivers that share a lock, such as those of Jetson.
pub(crate) struct Family {
    /// Empty for the x86 driver.
    pub(crate) name: String,
    pub(crate) specs: Vec<Spec>,
    /// Its lock.
    pub(crate) lock: TextFolder,
}

/// Where a command's facts come from, as its options name it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sources<'a> {
    pub(crate) specs: Option<&'a Path>,
    pub(crate) family: Option<&'a str>,
    #[cfg_attr(not(feature = "headers"), expect(dead_code))]
    pub(crate) headers: Option<&'a Path>,
}

pub(crate) struct Context<'a> {
    options: &'a Options,
    sources: Sources<'a>,
    /// Where the specs are on disk, once somebody has asked.
    on_disk: OnceCell<Option<PathBuf>>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(options: &'a Options, sources: Sources<'a>) -> Self {
        Self { options, sources, on_disk: OnceCell::new() }
    }

    /// How many threads were asked for, of a program that is run.
    pub(crate) fn worker_threads(&self) -> Option<u8> {
        self.options.threads.map(|threads| threads.get())
    }

    /// How many threads were asked for.
    #[cfg(feature = "trace")]
    pub(crate) fn threads(&self) -> Option<usize> {
        self.options.threads.map(|threads| threads.get().into())
    }

    pub(crate) fn json(&self) -> bool {
        self.options.json
    }

    /// Whether one family was asked for.
    #[cfg(feature = "headers")]
    pub(crate) fn has_family(&self) -> bool {
        self.sources.family.is_some()
    }

    /// The folder of the specs, to read.
    pub(crate) fn specs(&self) -> Result<TextFolder, Report> {
        match self.specs_on_disk() {
            Some(folder) => Ok(folder.into()),
            None => specs::embedded(),
        }
    }

    /// The folder of the specs, to write to.
    #[cfg(feature = "headers")]
    pub(crate) fn writable_specs(&self) -> Result<&Path, Report> {
        Ok(self.specs_on_disk().ok_or_else(specs::nowhere_to_write)?)
    }

    /// A person is told which specs are read, where they are not those of this command. With `--json` some
    /// commands print data on stderr, so nobody is told.
    fn specs_on_disk(&self) -> Option<&Path> {
        let find = || {
            let found = specs::on_disk(self.sources.specs)?;
            if !self.json() {
                self.status("Using", &found.display().to_string());
            }
            Some(found)
        };
        self.on_disk.get_or_init(find).as_deref()
    }

    /// The lock of a family.
    fn lock(&self, family: &str) -> Result<TextFolder, Report> {
        Ok(self.specs()?.join(&lock::folder_name(family)))
    }

    /// Looks at the tag that is asked for in the lock that has it; without one, at the newest of each lock,
    /// or of that of the family that was asked for, until something is found. Where nothing is: the
    /// first lock and tag that were looked at.
    pub(crate) fn search<T>(
        &self,
        tag: Option<&Tag>,
        look: impl Fn(&TextFolder, &Tag) -> Result<Option<T>, Report>,
    ) -> Result<Result<T, (TextFolder, Tag)>, Report> {
        let mut families = match tag {
            Some(tag) => vec![tag.family().to_owned()],
            None => self.family_names()?,
        }
        .into_iter();
        let first = self.lock_at(&families.next().unwrap_or_default(), tag)?;
        if let Some(found) = look(&first.0, &first.1)? {
            return Ok(Ok(found));
        }
        for family in families {
            let (lock, tag) = self.lock_at(&family, tag)?;
            if let Some(found) = look(&lock, &tag)? {
                return Ok(Ok(found));
            }
        }
        Ok(Err(first))
    }

    /// The families that have a lock, or the one that was asked for; one at least.
    pub(crate) fn family_names(&self) -> Result<Vec<String>, Report> {
        if let Some(family) = self.sources.family {
            return Ok(vec![family.to_owned()]);
        }
        let families = self.all_family_names()?;
        Ok(if families.is_empty() { vec![String::new()] } else { families })
    }

    /// The families that have a lock.
    pub(crate) fn all_family_names(&self) -> Result<Vec<String>, Report> {
        Ok(lock::families(&self.specs()?))
    }

    fn lock_at(&self, family: &str, tag: Option<&Tag>) -> Result<(TextFolder, Tag), Report> {
        let lock = self.lock(family)?;
        if !lock::exists(&lock) {
            // Complains of a family that nobody knows.
            self.family_named(family)?;
        }
        let tag = tag_or_newest(&lock, tag)?;
        Ok((lock, tag))
    }

    /// The family that a tag is of; without one, the family that was asked for.
    pub(crate) fn family(&self, tag: Option<&Tag>) -> Result<Family, Report> {
        let asked = self.sources.family.unwrap_or_default();
        self.family_named(tag.map_or(asked, Tag::family))
    }

    /// Like `family`, with the specs of some tags alone where there are all of them: what specs inherit
    /// takes time to lay together.
    pub(crate) fn family_of(&self, tags: &[&Tag]) -> Result<Family, Report> {
        let wanted: Vec<&str> = tags.iter().map(|tag| tag.branch()).collect();
        let specs = Spec::load_where(self.specs()?, |driver| wanted.contains(&driver))?;
        let name = tags.first().map_or("", |tag| tag.family());
        match wanted.iter().all(|driver| specs.iter().any(|spec| spec.driver == *driver)) {
            true => Ok(Family { name: name.to_owned(), specs, lock: self.lock(name)? }),
            // The complaint that follows names all there are.
            false => self.family_named(name),
        }
    }

    /// The spec of a tag.
    pub(crate) fn spec(&self, tag: &Tag) -> Result<Spec, Report> {
        spec_of(&self.family_of(&[tag])?.specs, tag).cloned()
    }

    pub(crate) fn family_named(&self, name: &str) -> Result<Family, Report> {
        let all = self.families_matching(Some(name))?;
        match all.into_iter().next() {
            Some(family) => Ok(family),
            None => Err(self.no_spec(name)?.into()),
        }
    }

    /// The specs of a family with the items of some names alone.
    pub(crate) fn family_with(&self, name: &str, items: &HashSet<&str>) -> Result<Family, Report> {
        let folder = self.specs()?;
        let specs = Spec::load_items(&folder, |driver| family(driver) == name, items)?;
        match specs.is_empty() {
            // Complains of a family that nobody knows.
            true => self.family_named(name),
            false => Ok(Family {
                name: name.to_owned(),
                specs,
                lock: folder.join(&lock::folder_name(name)),
            }),
        }
    }

    /// Every family that there are specs of, or the one that was asked for; one at least.
    pub(crate) fn families(&self) -> Result<Vec<Family>, Report> {
        let asked = self.sources.family;
        let families = self.families_matching(asked)?;
        match families.is_empty() {
            false => Ok(families),
            true => Err(self.no_spec(asked.unwrap_or_default())?.into()),
        }
    }

    fn no_spec(&self, family: &str) -> Result<Diagnostic, Report> {
        let whose = if family.is_empty() { "driver" } else { family };
        let specs = self.specs()?;
        let message = match family {
            "" => format!("there is no spec {whose}-N.toml in {specs}"),
            _ => format!("no drivers are called `{family}`: {specs} has no {whose}-N.toml"),
        };
        let diagnostic = Diagnostic::error("spec-no-driver", message);
        let known = self.families_matching(None)?;
        let known: Vec<&str> = known.iter().map(|known| family_name(&known.name)).collect();
        Ok(match known.is_empty() {
            true => diagnostic.help("give the folder of the specs with --specs"),
            false => diagnostic.help(format!("--family is one of {}", known.join(", "))),
        })
    }

    fn families_matching(&self, wanted: Option<&str>) -> Result<Vec<Family>, Report> {
        let folder = self.specs()?;
        let mut families: Vec<Family> = Vec::new();
        let wanted = |driver: &str| wanted.is_none_or(|wanted| wanted == family(driver));
        for spec in Spec::load_where(&folder, wanted)? {
            let name = spec.family().to_owned();
            match families.iter_mut().find(|family| family.name == name) {
                Some(family) => family.specs.push(spec),
                None => {
                    let lock = folder.join(&lock::folder_name(&name));
                    families.push(Family { name, specs: vec![spec], lock });
                }
            }
        }
        Ok(families)
    }

    /// The headers that were named with `--headers`.
    #[cfg(feature = "headers")]
    pub(crate) fn headers(&self) -> Option<&Path> {
        self.sources.headers
    }

    /// A status for a person: a verb, then what.
    pub(crate) fn status(&self, verb: &str, what: &str) {
        // A closed stderr is no reason to stop.
        let _ = writeln!(std::io::stderr(), "{verb:>12} {}", terminal::lines(what));
    }

    /// Complaints about the job itself, on stderr.
    pub(crate) fn complain(&self, report: &Report) {
        if !report.diagnostics.is_empty() {
            let colour = self.colour(std::io::stderr().is_terminal());
            let _ = writeln!(std::io::stderr(), "{}", report.render(colour));
        }
    }

    /// The exit status of a command; its errors go to stderr.
    pub(crate) fn exit(&self, outcome: Result<Outcome, Report>) -> ExitCode {
        match outcome {
            Ok(Outcome::Same) => ExitCode::SUCCESS,
            Ok(Outcome::Different) => ExitCode::from(1),
            Err(report) => {
                self.complain(&report);
                ExitCode::from(2)
            }
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

    /// Text on stdout: names of others command no terminal.
    pub(crate) fn print(&self, text: &str) -> Result<(), Report> {
        written(std::io::stdout().write_all(terminal::lines(text).as_bytes()))
    }

    /// The model on stdout, as it goes: a tag's facts are some 100,000 lines.
    pub(crate) fn print_json(&self, value: &impl Serialize) -> Result<(), Report> {
        let mut out = BufWriter::new(std::io::stdout().lock());
        let done = terminal::json(&mut out, value);
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
pub(crate) fn read(folder: impl Into<TextFolder>) -> Result<Lock, Report> {
    let (locked, edited) = lock::read(folder)?;
    edited.into_result(locked).map(|(locked, _)| locked)
}

/// The facts that a lock has of a tag.
pub(crate) fn facts_of(locked: &Lock, tag: &Tag) -> Result<Facts, Report> {
    locked.facts(tag).ok_or_else(|| lock::no_tag(&locked.tags, tag).into())
}

/// The tag that was asked for, else the newest of a lock.
pub(crate) fn tag_or_newest(lock: &TextFolder, tag: Option<&Tag>) -> Result<Tag, Report> {
    if let Some(tag) = tag {
        return Ok(tag.clone());
    }
    let newest = lock::read_tags(lock)?.pop().map(|newest| newest.tag);
    Ok(newest.ok_or_else(|| Diagnostic::error("lock-no-tag", "the lock is empty"))?)
}

/// A reader that goes away, such as `head`, ends the command quietly.
pub(crate) fn written(result: std::io::Result<()>) -> Result<(), Report> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Diagnostic::error("output", format!("cannot write: {error}")).into()),
        Ok(()) => Ok(()),
    }
}
