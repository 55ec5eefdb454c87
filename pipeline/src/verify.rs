//! Recomputes facts from headers and compares them with the lock.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::compare::{self, Difference};
use crate::diagnostic::{Diagnostic, Report};
use crate::extract::{Cache, Clang};
use crate::facts;
use crate::headers::Source;
use crate::lock::{self, Lock};
use crate::model::Facts;
use crate::spec::Spec;
use crate::tag::Tag;

/// The facts of tags, from headers; tags with the same headers are parsed once.
pub struct Reader<'a> {
    clang: &'a Clang,
    source: &'a mut Source,
    cache: Cache,
    /// The facts read last, by digest: neighbouring tags mostly have the same headers.
    known: HashMap<String, Facts>,
}

/// What reading one tag gave.
pub struct Read {
    /// The facts, for every target of the spec.
    pub facts: Facts,
    /// Digest of the headers.
    pub headers: String,
    /// What the parser warned of; empty when the headers were known already.
    pub warnings: Report,
}

impl<'a> Reader<'a> {
    /// Reads with `clang` from `source`.
    pub fn new(clang: &'a Clang, source: &'a mut Source) -> Self {
        Self { clang, source, cache: Cache::default(), known: HashMap::new() }
    }

    /// The facts of one tag.
    pub fn read(&mut self, spec: &Spec, tag: &Tag) -> Result<Read, Report> {
        let units = facts::units(self.source, spec, tag)?;
        let headers = facts::digest(&units, &spec.targets);
        if let Some(known) = self.known.get(&headers) {
            let facts = Facts { tag: tag.clone(), surfaces: known.surfaces.clone() };
            return Ok(Read { facts, headers, warnings: Report::default() });
        }
        let (facts, warnings) =
            facts::extract_all_targets(self.clang, &units, tag, &spec.targets, &mut self.cache)?;
        // A few are kept: old branches are released between the tags of new ones.
        if self.known.len() >= 4 {
            self.known.clear();
        }
        self.known.insert(headers.clone(), facts.clone());
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
    let mut source = Source::open(&headers_path(None)?)?;
    let clang = Clang::load()?;
    let mut reader = Reader::new(&clang, &mut source);
    let mut report = edited;
    for spec in specs {
        for locked in lock.tags.iter().filter(|t| t.tag.branch() == spec.driver) {
            let read = reader.read(spec, &locked.tag)?;
            report.diagnostics.extend(compare(&lock, &read).diagnostics);
        }
    }
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
