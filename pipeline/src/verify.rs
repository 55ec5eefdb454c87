//! Recomputes facts from headers and compares them with the lock.

use std::path::{Path, PathBuf};

use crate::compare::{self, Difference};
use crate::diagnostic::{Diagnostic, Report};
use crate::extract::Clang;
use crate::facts::{self, Cache};
use crate::headers::Source;
use crate::lock::{self, Lock, LockedTag};
use crate::model::Facts;
use crate::spec::Spec;
use crate::sweep;
use crate::tag::Tag;

/// The facts of single tags, from headers; `sweep` reads many.
pub struct Reader<'a> {
    clang: &'a Clang,
    source: &'a mut Source,
    cache: Cache,
}

/// What reading one tag gave.
pub struct Read {
    /// The facts, for every target of the spec.
    pub facts: Facts,
    /// Digest of the headers.
    pub headers: String,
    /// What the parser warned of.
    pub warnings: Report,
}

impl<'a> Reader<'a> {
    /// Reads with `clang` from `source`.
    pub fn new(clang: &'a Clang, source: &'a mut Source) -> Self {
        Self { clang, source, cache: Cache::default() }
    }

    /// The facts of one tag.
    pub fn read(&mut self, spec: &Spec, tag: &Tag) -> Result<Read, Report> {
        let units = facts::units(self.source, spec, tag)?;
        let headers = facts::digest(&units, &spec.targets);
        let (facts, warnings) =
            facts::extract_all_targets(self.clang, &units, tag, &spec.targets, &self.cache)?;
        Ok(Read { facts, headers, warnings })
    }
}

/// Every disagreement between the lock and the driver at one tag, as diagnostics.
pub fn compare(lock: &Lock, read: &Read) -> Report {
    let tag = &read.facts.tag;
    let mut report = Report::default();
    let Some(locked) = lock.facts(tag) else {
        report.push(
            Diagnostic::error("lock-no-tag", format!("the lock has no tag {tag}"))
                .help(format!("`nvabi lock {tag}` adds it")),
        );
        return report;
    };
    for difference in compare::facts(&locked, &read.facts) {
        report.push(complaint(&difference, tag));
    }
    let digest = lock.tag_index(tag).map(|i| &lock.tags[i].headers);
    if !report.has_errors() && digest != Some(&read.headers) {
        report.push(
            Diagnostic::warning(
                "lock-digest",
                format!("the headers of {tag} are not those that were locked"),
            )
            .note("every fact agrees all the same")
            .help(format!("`nvabi lock {tag}` renews the digest")),
        );
    }
    report
}

/// Every disagreement between the lock and what a sweep over some tags read from the headers.
pub fn compare_all(lock: &Lock, read: &Lock) -> Report {
    let mut report = Report::default();
    // Mostly nothing differs, and telling that takes no facts of single tags.
    if lock == read {
        return report;
    }
    for LockedTag { tag, headers } in &read.tags {
        let Some(facts) = read.facts(tag) else { continue };
        let read = Read { facts, headers: headers.clone(), warnings: Report::default() };
        report.diagnostics.extend(compare(lock, &read).diagnostics);
    }
    report
}

fn complaint(difference: &Difference, tag: &Tag) -> Diagnostic {
    let Difference { surface, item, what, first, second, source } = difference;
    let diagnostic = Diagnostic::error(
        "lock-mismatch",
        format!("{item}: {what} is {first} in the lock, but {second} in the driver"),
    );
    let place = source.as_ref().map_or(String::new(), |source| format!(", {source}"));
    diagnostic.note(format!("surface {surface} of {tag}{place}"))
}

/// What a build with feature `libclang` does first: every locked tag of its drivers is verified.
pub(crate) fn verify_for_build(folder: &Path, specs: &[&Spec]) -> Result<(), Report> {
    let (lock, edited) = lock::read(folder)?;
    let drivers: Vec<&str> = specs.iter().map(|spec| spec.driver.as_str()).collect();
    let tags: Vec<Tag> = (lock.tags.iter().map(|locked| locked.tag.clone()))
        .filter(|tag| drivers.contains(&tag.branch()))
        .collect();
    let specs: Vec<Spec> = specs.iter().map(|spec| (*spec).clone()).collect();
    let mut read = Lock::default();
    sweep::sweep(&mut read, &headers_path(None)?, &specs, &tags, |_| {})?;
    let mut report = edited;
    report.diagnostics.extend(compare_all(&lock, &read).diagnostics);
    report.into_result(()).map(|_| ())
}

/// Where the headers are: as given, else `NVABI_HEADERS`, else the cache that
/// `nvabi headers fetch` fills.
pub fn headers_path(given: Option<&Path>) -> Result<PathBuf, Diagnostic> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    if let Some(path) = std::env::var_os("NVABI_HEADERS").filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let cache = cache_folder();
    match cache.as_ref().filter(|path| path.is_dir()) {
        Some(path) => Ok(path.clone()),
        None => Err(Diagnostic::error("headers-not-found", "no driver headers are at hand").help(
            "set NVABI_HEADERS to a git repository of the driver, or run `nvabi headers fetch TAG`",
        )),
    }
}

/// The folder that `nvabi headers fetch` fills: one folder per tag.
pub fn cache_folder() -> Option<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = from("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.or_else(|| Some(PathBuf::from(from("HOME")?).join(".cache")));
    Some(base?.join("nvabi").join("headers"))
}
