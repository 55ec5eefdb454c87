//! From a spec and a tag to facts: reads the headers of each surface and runs libclang over them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use glob::Pattern;

use crate::compare;
use crate::diagnostic::{Diagnostic, Report};
use crate::extract::{Cache, Clang, Request, extract};
use crate::headers::{self, Source, Tree};
use crate::model::{Facts, Surface};
use crate::spec::{self, Spec, SpecPlace};
use crate::tag::Tag;

/// The headers of one surface at one tag, read.
pub struct Unit<'s> {
    surface: &'s spec::Surface,
    headers: Vec<String>,
    system: Vec<String>,
    tree: Tree,
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
        match unit(source, surface, tag) {
            Ok(unit) => units.push(unit),
            Err(diagnostics) => report.diagnostics.extend(diagnostics.diagnostics),
        }
    }
    report.diagnostics.dedup();
    report.into_result(units).map(|(units, _)| units)
}

fn unit<'s>(
    source: &mut Source,
    surface: &'s spec::Surface,
    tag: &Tag,
) -> Result<Unit<'s>, Report> {
    let patterns = surface.headers.iter().map(|h| headers::folder_of(&h.name));
    let mut folders: Vec<&str> =
        patterns.chain(surface.include.iter().map(String::as_str)).collect();
    folders.sort_unstable();
    folders.dedup();
    let listing = source.list(tag, &folders)?;
    let place = &surface.place;
    let excluded = globs(place, &surface.exclude)?;
    let system = globs(place, &surface.system)?;
    let excluded: Vec<&str> = excluded.iter().flat_map(|p| listing.matching(p)).collect();
    let mut report = Report::default();
    let mut chosen: Vec<String> = Vec::new();
    for header in &surface.headers {
        let pattern = glob(&header.place, &header.name)?;
        let before = chosen.len();
        chosen.extend(
            listing.matching(&pattern).filter(|p| !excluded.contains(p)).map(str::to_owned),
        );
        if chosen.len() == before {
            report.push(
                Diagnostic::error(
                    "header-missing",
                    format!("{tag} has no header `{}`", header.name),
                )
                .at(header.place.place())
                .help("when this driver never had it, give the surface other headers in its spec"),
            );
        }
    }
    let mut seen = std::collections::HashSet::new();
    chosen.retain(|path| seen.insert(path.clone()));
    let tree = source.read(&listing, &chosen, &surface.include)?;
    let system = system.iter().flat_map(|p| listing.matching(p)).map(str::to_owned).collect();
    let unit = Unit { surface, headers: chosen, system, tree };
    report.into_result(unit).map(|(unit, _)| unit)
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
        for (path, file) in &unit.tree.files {
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
    cache: &mut Cache,
) -> Result<(Facts, Report), Report> {
    let mut report = Report::default();
    let mut surfaces: BTreeMap<String, Surface> = BTreeMap::new();
    for unit in units {
        let request = Request {
            surface: &unit.surface.name,
            headers: unit.headers.clone(),
            include: &unit.surface.include,
            defines: &unit.surface.defines,
            prelude: &unit.surface.prelude,
            system: unit.system.clone(),
            target: options.target,
            language: &unit.surface.language,
            constants: options.constants,
        };
        match extract(clang, &unit.tree, &request, cache) {
            Ok((surface, warnings)) => {
                surfaces.insert(unit.surface.name.clone(), surface);
                report.diagnostics.extend(warnings.diagnostics);
            }
            Err(errors) => report.diagnostics.extend(errors.diagnostics),
        }
    }
    report.into_result(Facts { tag: tag.clone(), surfaces })
}

/// The facts for every target of the spec: those of the first, and beside them, as surfaces
/// `NAME@TARGET`, whatever another target has otherwise.
pub fn extract_all_targets(
    clang: &Clang,
    units: &[Unit<'_>],
    tag: &Tag,
    targets: &[String],
    cache: &mut Cache,
) -> Result<(Facts, Report), Report> {
    let mut result: Option<(Facts, Report)> = None;
    for target in targets {
        let options = Options { target, constants: true };
        let (facts, warnings) = extract_units(clang, units, tag, options, cache)?;
        match &mut result {
            None => result = Some((facts, warnings)),
            Some((first, _)) => {
                for (name, surface) in facts.surfaces {
                    let base = first.surfaces.get(&name).cloned().unwrap_or_default();
                    let other = compare::only_in_second(&base, surface);
                    if other != Surface::default() {
                        first.surfaces.insert(format!("{name}@{target}"), other);
                    }
                }
            }
        }
    }
    result.ok_or_else(|| {
        Diagnostic::error("spec-parse", "the spec names no `targets`")
            .help("such as targets = [\"x86_64-unknown-linux-gnu\"]")
            .into()
    })
}
