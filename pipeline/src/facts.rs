//! From a spec and a tag to facts: reads the headers of each surface and runs libclang over them.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use glob::Pattern;

use crate::calls;
use crate::diagnostic::{Diagnostic, Report};
use crate::extract::{self, Clang, Request, differences, extract};
use crate::headers::{self, Listing, Source, Tree};
use crate::model::{CALLS, Call, Facts, Surface};
use crate::parallel;
use crate::spec::{self, Named, Reference, Spec, SpecPlace};
use crate::tag::Tag;

/// What is kept from tag to tag. It changes how long an answer takes, never the answer.
#[derive(Default)]
pub struct Cache {
    macros: extract::Cache,
    calls: CallCache,
}

impl Cache {
    /// One that another thread is to `fill`; what needs an answer waits for that.
    pub fn unfilled() -> Self {
        Self { macros: extract::Cache::unfilled(), ..Self::default() }
    }

    /// Fills an unfilled one with what was remembered, if anything was.
    pub fn fill(&self, remember: impl FnOnce() -> Option<extract::Cache>) {
        self.macros.fill(remember);
    }
}

/// What the driver's sources say of calls, by path and content.
#[derive(Default)]
struct CallCache(Mutex<HashMap<(String, String), Arc<Said>>>);

enum Said {
    Header(Vec<calls::Define>),
    Exported(Vec<calls::Method>),
    Resources(Vec<calls::Resource>),
    Embedded(Vec<calls::embedded::Command>),
    Flags(calls::Flags),
    Converted(Vec<String>),
}

impl CallCache {
    fn said(&self, path: &str, file: &headers::File) -> Option<Arc<Said>> {
        let part = calls::part(path)?;
        let key = (path.to_owned(), file.id.clone());
        // Nothing is left half done when a thread that holds this panics.
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(said) = known().get(&key) {
            return Some(said.clone());
        }
        let said = Arc::new(match part {
            calls::Part::Header => Said::Header(calls::parse_header(path, &file.text)),
            calls::Part::Exported => Said::Exported(calls::parse_exported(&file.text)),
            calls::Part::Resources => Said::Resources(calls::parse_resources(&file.text)),
            calls::Part::Embedded => Said::Embedded(calls::embedded::parse(&file.text)),
            calls::Part::Flags => Said::Flags(calls::parse_flags(&file.text)),
            calls::Part::Converted => Said::Converted(calls::parse_converted(&file.text)),
        });
        known().insert(key, said.clone());
        Some(said)
    }

    /// What the calls of a unit take, whose numbers `surface` has.
    fn surface(&self, unit: &Unit<'_>, surface: &Surface) -> Surface {
        let files: Vec<_> = unit.tree.files.iter().chain(&unit.calls.files).collect();
        let said = parallel::map(&files, |(path, file)| self.said(path, file));
        let paths = files.iter().map(|(path, _)| path.as_str());
        let said = paths.zip(said).filter_map(|(path, said)| Some((path, said?)));
        let said: Vec<(&str, Arc<Said>)> = said.collect();
        let mut parsed = calls::Parsed::default();
        for (path, said) in &said {
            match &**said {
                Said::Header(defines) => parsed.headers.push((path, defines)),
                Said::Exported(methods) => parsed.exported.push((path, methods)),
                Said::Resources(resources) => parsed.resource_list = Some((path, resources)),
                Said::Embedded(commands) => parsed.embedded = commands,
                Said::Flags(flags) => parsed.flags = *flags,
                Said::Converted(commands) => parsed.converted = Some(commands),
            }
        }
        let found = calls::join(&parsed, surface);
        let mut calls: BTreeMap<String, Call> =
            found.unmapped.iter().filter_map(calls::Unmapped::fact).collect();
        calls.extend(found.calls.iter().map(calls::Call::fact));
        Surface { calls, ..Surface::default() }
    }
}

/// The headers of one surface at one tag, read.
pub struct Unit<'s> {
    surface: &'s spec::Surface,
    headers: Vec<String>,
    system: Vec<String>,
    tree: Tree,
    /// The driver's sources that say what calls take.
    calls: Tree,
}

impl<'s> Unit<'s> {
    /// The surface as its spec says it.
    pub fn surface(&self) -> &'s spec::Surface {
        self.surface
    }

    /// The headers that are included, in order.
    pub fn headers(&self) -> &[String] {
        &self.headers
    }

    fn request<'r>(&'r self, options: Options<'r>) -> Request<'r> {
        Request {
            surface: &self.surface.name,
            headers: self.headers.clone(),
            include: &self.surface.include,
            defines: &self.surface.defines,
            prelude: &self.surface.prelude,
            system: self.system.clone(),
            target: options.target,
            language: &self.surface.language,
            constants: options.constants,
        }
    }

    /// Every header that was read.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }
}

/// Reads the headers of every surface of a tag.
pub fn units<'s>(source: &mut Source, spec: &'s Spec, tag: &Tag) -> Result<Vec<Unit<'s>>, Report> {
    let mut report = Report::default();
    let mut units = Vec::new();
    for surface in &spec.surfaces {
        match unit(source, spec, surface, tag) {
            Ok(unit) => units.push(unit),
            Err(diagnostics) => report.diagnostics.extend(diagnostics.diagnostics),
        }
    }
    report.diagnostics.dedup();
    report.into_result(units).map(|(units, _)| units)
}

fn unit<'s>(
    source: &mut Source,
    spec: &'s Spec,
    surface: &'s spec::Surface,
    tag: &Tag,
) -> Result<Unit<'s>, Report> {
    let reference = spec.reference(surface, tag)?;
    let listings = source.list(reference, &headers::folders_of(surface))?;
    let listing = that_has(surface, listings)?;
    let place = &surface.place;
    let excluded = globs(place, &surface.exclude)?;
    let system = globs(place, &surface.system)?;
    let excluded: Vec<&str> = excluded.iter().flat_map(|p| listing.matching(p)).collect();
    let mut report = Report::default();
    let mut choose = |patterns: &[Named]| {
        let mut chosen: Vec<String> = Vec::new();
        for header in patterns {
            let pattern = glob(&header.place, &header.name)?;
            let before = chosen.len();
            let found = listing.matching(&pattern).filter(|p| !excluded.contains(p));
            chosen.extend(found.map(str::to_owned));
            if chosen.len() == before {
                report.push(missing(header, surface, tag));
            }
        }
        Ok::<_, Diagnostic>(chosen)
    };
    let (mut chosen, calls) = (choose(&surface.headers)?, choose(&surface.calls)?);
    let mut seen = std::collections::HashSet::new();
    chosen.retain(|path| seen.insert(path.clone()));
    let tree = source.read(&listing, &chosen, &surface.include)?;
    let system = system.iter().flat_map(|p| listing.matching(p)).map(str::to_owned).collect();
    let calls = source.read_alone(&listing, &calls)?;
    let unit = Unit { surface, headers: chosen, system, tree, calls };
    report.into_result(unit).map(|(unit, _)| unit)
}

/// Whether a tag has any header of a surface.
pub fn has_headers(
    source: &Source,
    surface: &spec::Surface,
    reference: Reference<'_>,
) -> Result<bool, Report> {
    let listings = source.list(reference, &headers::folders_of(surface))?;
    Ok(first_that_has(surface, &listings)?.is_some())
}

/// Repositories can have a tag of one name: the first that has a header of the surface is meant.
fn that_has(surface: &spec::Surface, mut listings: Vec<Listing>) -> Result<Listing, Diagnostic> {
    Ok(match first_that_has(surface, &listings)? {
        Some(at) => listings.swap_remove(at),
        // What is missing is reported header by header.
        None => listings.pop().unwrap_or_default(),
    })
}

fn first_that_has(
    surface: &spec::Surface,
    listings: &[Listing],
) -> Result<Option<usize>, Diagnostic> {
    for (at, listing) in listings.iter().enumerate() {
        for header in &surface.headers {
            let pattern = glob(&header.place, &header.name)?;
            if listing.matching(&pattern).next().is_some() {
                return Ok(Some(at));
            }
        }
    }
    Ok(None)
}

fn missing(header: &Named, surface: &spec::Surface, tag: &Tag) -> Diagnostic {
    let diagnostic =
        Diagnostic::error("header-missing", format!("{tag} has no header `{}`", header.name))
            .at(header.place.place())
            .help("where the branch does not have it, give its surface other headers, or say `removed = true`, in its spec");
    match &surface.tree {
        Some(tree) => {
            diagnostic.help(format!("NVABI_HEADERS may lack the repository of `{}`", tree.name))
        }
        None => diagnostic,
    }
}

fn globs(place: &SpecPlace, patterns: &[String]) -> Result<Vec<Pattern>, Diagnostic> {
    patterns.iter().map(|pattern| glob(place, pattern)).collect()
}

fn glob(place: &SpecPlace, pattern: &str) -> Result<Pattern, Diagnostic> {
    Pattern::new(pattern).map_err(|error| {
        Diagnostic::error("spec-parse", format!("`{pattern}` is not a pattern: {}", error.msg))
            .at(place.place())
    })
}

/// A digest over all that decides the facts: the headers and how they are parsed.
///
/// It is git's own hash, so that it stays the same whatever nvabi is built with.
pub fn digest(units: &[Unit<'_>], targets: &[String]) -> String {
    let mut text = format!("{targets:?}\n");
    for unit in units {
        let s = unit.surface;
        let how = (&s.name, &s.include, &s.defines, &s.prelude, &s.language);
        let _ = writeln!(text, "{how:?} {:?} {:?}", unit.headers, unit.system);
        if let Some(suffix) = &s.suffix {
            let _ = writeln!(text, "suffix {suffix:?}");
        }
        for (path, file) in unit.tree.files.iter().chain(&unit.calls.files) {
            let _ = writeln!(text, "{} {path}", file.id);
        }
    }
    headers::id_of(text.as_bytes())
}

/// What to extract.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// Such as `x86_64-unknown-linux-gnu`.
    pub target: &'a str,
    /// Evaluate macros.
    pub constants: bool,
}

/// The facts of the units for one target, with what the parser warned of.
pub fn extract_units(
    clang: &Clang,
    units: &[Unit<'_>],
    tag: &Tag,
    options: Options<'_>,
    cache: &Cache,
) -> Result<(Facts, Report), Report> {
    let (mut facts, report) = in_headers(clang, units, tag, options, cache)?;
    rename(&mut facts, units, with_suffix);
    Ok((facts, report))
}

/// Renames the constants of the surfaces whose units have a suffix.
fn rename(facts: &mut Facts, units: &[Unit<'_>], to: fn(String, &str) -> String) {
    for unit in units {
        let Some(suffix) = &unit.surface.suffix else { continue };
        let of_unit = |name: &str| name.split('@').next() == Some(&unit.surface.name);
        for (_, surface) in facts.surfaces.iter_mut().filter(|(name, _)| of_unit(name)) {
            let constants = std::mem::take(&mut surface.constants).into_iter();
            surface.constants = constants.map(|(name, fact)| (to(name, suffix), fact)).collect();
            let ranges = std::mem::take(&mut surface.bit_ranges).into_iter();
            surface.bit_ranges = ranges.map(|(name, fact)| (to(name, suffix), fact)).collect();
        }
    }
}

fn with_suffix(name: String, suffix: &str) -> String {
    format!("{name}_{suffix}")
}

fn without_suffix(name: String, suffix: &str) -> String {
    let header = name.strip_suffix(suffix).and_then(|name| name.strip_suffix('_'));
    header.map_or_else(|| name.clone(), str::to_owned)
}

/// The facts under the names that the headers have.
fn in_headers(
    clang: &Clang,
    units: &[Unit<'_>],
    tag: &Tag,
    options: Options<'_>,
    cache: &Cache,
) -> Result<(Facts, Report), Report> {
    let mut report = Report::default();
    let mut surfaces: BTreeMap<String, Surface> = BTreeMap::new();
    for unit in units {
        let request = unit.request(options);
        match extract(clang, &unit.tree, &request, &cache.macros) {
            Ok((surface, warnings)) => {
                if !unit.calls.files.is_empty() {
                    surfaces.insert(CALLS.to_owned(), cache.calls.surface(unit, &surface));
                }
                surfaces.insert(unit.surface.name.clone(), surface);
                report.diagnostics.extend(warnings.diagnostics);
            }
            Err(errors) => report.diagnostics.extend(errors.diagnostics),
        }
    }
    report.diagnostics.dedup();
    report.into_result(Facts { tag: tag.clone(), surfaces })
}

/// Takes the facts of one tag as answers for others, which mostly have the same text in the same
/// place.
pub fn remember(
    clang: &Clang,
    units: &[Unit<'_>],
    mut facts: Facts,
    targets: &[String],
) -> Result<extract::Cache, Report> {
    let cache = extract::Cache::default();
    let Some((first, others)) = targets.split_first() else { return Ok(cache) };
    rename(&mut facts, units, without_suffix);
    for unit in units {
        let mut take = |name: &str| facts.surfaces.remove(name).unwrap_or_default();
        let name = &unit.surface.name;
        let differs: Vec<(&str, Surface)> =
            others.iter().map(|t| (t.as_str(), take(&format!("{name}@{t}")))).collect();
        let request = unit.request(Options { target: first, constants: true });
        extract::remember(clang, &unit.tree, &request, take(name), &differs, &cache)?;
    }
    Ok(cache)
}

/// The facts for every target of the spec: those of the first, and beside them, as surfaces
/// `NAME@TARGET`, whatever another target has otherwise.
pub fn extract_all_targets(
    clang: &Clang,
    units: &[Unit<'_>],
    tag: &Tag,
    targets: &[String],
    cache: &Cache,
) -> Result<(Facts, Report), Report> {
    let Some((first, others)) = targets.split_first() else {
        return Err(Diagnostic::error("spec-parse", "the spec names no `targets`")
            .help("such as targets = [\"x86_64-unknown-linux-gnu\"]")
            .into());
    };
    let options = Options { target: first, constants: true };
    let (mut facts, mut report) = in_headers(clang, units, tag, options, cache)?;
    for unit in units {
        let name = &unit.surface.name;
        let Some(base) = facts.surfaces.get(name) else { continue };
        let mut found = Vec::new();
        for target in others {
            let request = unit.request(options);
            let (differs, warnings) =
                differences(clang, &unit.tree, &request, target, base, &cache.macros)?;
            report.diagnostics.extend(warnings.diagnostics);
            found.push((format!("{name}@{target}"), differs));
        }
        found.retain(|(_, differs)| *differs != Surface::default());
        facts.surfaces.extend(found);
    }
    rename(&mut facts, units, with_suffix);
    report.diagnostics.dedup();
    Ok((facts, report))
}
