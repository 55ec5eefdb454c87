//! libclang over the headers of one surface: every record, enum, typedef and integer constant.
//!
//! The one module that knows clang. Headers are given from memory, and so are the system headers
//! that they ask for (`stubs`), so that the result does not depend on the machine.

mod clang;
mod constants;
mod lexer;
mod machine;
mod records;
mod stubs;

use std::cell::Cell;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

pub use clang::Clang;
pub use constants::Cache;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::diagnostic::{Diagnostic, Report, SourceSpan};
use crate::headers::{File, Tree};
use crate::model::{Source, Surface};

use self::clang::{Cursor, FileId, Unit};

/// Folder, existing only for the parser, that the headers appear under.
const ROOT: &str = "/nvabi-headers/";

/// One translation unit: which headers, found how, for which machine.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// Name of the surface; part of diagnostics.
    pub surface: &'a str,
    /// Headers to include, by path in the tree, in order.
    pub headers: Vec<String>,
    /// Folders of the tree to search for includes.
    pub include: &'a [String],
    /// `NAME` or `NAME=value`.
    pub defines: &'a [String],
    /// Text that stands before the first include.
    pub prelude: &'a str,
    /// Paths whose names are not recorded: system headers that lie in the tree.
    pub system: Vec<String>,
    /// Such as `x86_64-unknown-linux-gnu`.
    pub target: &'a str,
    /// `c` or `c++`.
    pub language: &'a str,
    /// Evaluate macros as well.
    pub constants: bool,
}

/// The facts of one surface, and what the parser warned of.
pub fn extract(
    clang: &Clang,
    tree: &Tree,
    request: &Request<'_>,
    cache: &Cache,
) -> Result<(Surface, Report), Report> {
    let main = main_file(request);
    let early = match request.constants {
        true => cache.early_questions(tree, request),
        false => Vec::new(),
    };
    let questions = constants::questions(&early);
    let unit = parse(clang, tree, request, &format!("{main}{questions}"), request.constants)?;
    let first_question = main.matches('\n').count() as u32 + 1;
    let report = complaints(&unit, tree, request, first_question);
    if report.has_errors() {
        return Err(report);
    }
    let mut files = Files::new(tree, request);
    let mut surface = Surface::default();
    let macros = records::collect(unit.root(), &mut files, &mut surface)?;
    let answers = constants::answers(&unit, request, first_question, early);
    drop(unit);
    if request.constants {
        constants::evaluate(clang, tree, request, &macros, &answers, &mut surface, cache)?;
    }
    Ok((surface, report))
}

/// The macros that clang predefines, each with its text.
fn predefined(clang: &Clang, request: &Request<'_>) -> Result<FxHashSet<(String, String)>, Report> {
    let unit = parse(clang, &Tree::default(), request, "", true)?;
    let mut found = FxHashSet::default();
    unit.root().for_each_child(|cursor| {
        if cursor.kind() == clang_sys::CXCursor_MacroDefinition {
            found.insert((cursor.name(), cursor.tokens()));
        }
    });
    Ok(found)
}

/// What another machine has otherwise than `base`, which is what `request.target` has.
///
/// Where the parts of the headers that the machine takes part in are those of an earlier unit, so
/// is the answer, and nothing is parsed.
pub fn differences(
    clang: &Clang,
    tree: &Tree,
    request: &Request<'_>,
    target: &str,
    base: &Surface,
    cache: &Cache,
) -> Result<(Surface, Report), Report> {
    let names = cache.predefined_otherwise(clang, request, target)?;
    let parts = cache.parts(tree, &names);
    let key = parts.as_ref().map(|parts| cache.key(request, target, parts));
    if let Some(known) = key.and_then(|key| cache.differences(key)) {
        return Ok((known, Report::default()));
    }
    let other = Request { target, ..request.clone() };
    let (surface, warnings) = extract(clang, tree, &other, cache)?;
    let differs = crate::compare::only_in_second(base, surface);
    if let (Some(key), Some(true)) = (key, parts.map(|parts| parts.explain(&differs))) {
        cache.keep_differences(key, &differs);
    }
    Ok((differs, warnings))
}

/// Takes what is known of the headers of `tree` as answers for others: `surface` is what they have
/// on the request's machine, `differs` what another has otherwise.
pub fn remember(
    clang: &Clang,
    tree: &Tree,
    request: &Request<'_>,
    surface: Surface,
    differs: &[(&str, Surface)],
    cache: &Cache,
) -> Result<(), Report> {
    for (target, differs) in differs {
        let names = cache.predefined_otherwise(clang, request, target)?;
        if let Some(parts) = cache.parts(tree, &names).filter(|parts| parts.explain(differs)) {
            cache.keep_differences(cache.key(request, target, &parts), differs);
        }
    }
    cache.remember(tree, request, surface);
    Ok(())
}

fn main_file(request: &Request<'_>) -> String {
    let mut text = String::from(request.prelude);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    for header in &request.headers {
        text.push_str(&format!("#include \"{ROOT}{header}\"\n"));
    }
    text
}

fn main_name(request: &Request<'_>) -> String {
    format!("{ROOT}{}.nvabi", request.surface)
}

fn parse<'c>(
    clang: &'c Clang,
    tree: &Tree,
    request: &Request<'_>,
    main: &str,
    detailed_macros: bool,
) -> Result<Unit<'c>, Report> {
    let mut args = vec![
        format!("--target={}", request.target),
        format!("-x{}", request.language),
        // Nothing of this machine: no system headers but the stubs, no resource folder.
        "-nostdinc".into(),
        "-ffreestanding".into(),
        "-fno-spell-checking".into(),
        "-ferror-limit=0".into(),
        "-Wno-everything".into(),
        // What may change a fact: an attribute or pragma that has no effect, a name taken twice.
        "-Wmacro-redefined".into(),
        // Those that clang does not know, and those that it ignores.
        "-Wattributes".into(),
        "-Wpragma-pack".into(),
        "-Wignored-pragmas".into(),
        "-Wextern-c-compat".into(),
    ];
    args.extend(request.defines.iter().map(|define| format!("-D{define}")));
    args.extend(request.include.iter().map(|folder| format!("-I{ROOT}{folder}")));
    args.push(format!("-isystem{}", stubs::ROOT));
    let mut files: Vec<(String, &str)> =
        tree.files.iter().map(|(path, file)| (format!("{ROOT}{path}"), &*file.text)).collect();
    files.extend(stubs::files());
    files.push((main_name(request), main));
    clang.parse(&args, &files, detailed_macros).map_err(|failed| {
        match clang.knows_target(request.target) {
            true => failed.into(),
            false => unknown_target(request.target).into(),
        }
    })
}

/// The same for every surface.
fn unknown_target(target: &str) -> Diagnostic {
    let message = format!("libclang does not know the target `{target}`");
    Diagnostic::error("target-unknown", message)
        .help("a target is machine-vendor-system, such as x86_64-unknown-linux-gnu or aarch64-unknown-linux-gnu")
}

/// The parser's words, each at its place in the header.
///
/// From line `first_question` of the main file on, a complaint is an answer.
fn complaints(unit: &Unit<'_>, tree: &Tree, request: &Request<'_>, first_question: u32) -> Report {
    let mut report = Report::default();
    let main = main_name(request);
    for complaint in unit.complaints() {
        if complaint.file == main && complaint.line >= first_question {
            continue;
        }
        let message = format!("surface {}: {}", request.surface, complaint.message);
        let mut diagnostic = match complaint.is_error {
            true => Diagnostic::error("header-parse", message),
            false => Diagnostic::warning("header-parse", message),
        };
        let path = complaint.file.strip_prefix(ROOT).unwrap_or(&complaint.file);
        if let Some(file) = tree.files.get(path) {
            let start = complaint.offset as usize;
            // At the end of a line the mark stands behind it.
            let at_end = file.text.as_bytes().get(start).is_none_or(|byte| *byte == b'\n');
            let span = start..if at_end { start } else { start + 1 };
            diagnostic =
                diagnostic.at(SourceSpan { path: path.into(), text: file.text.clone(), span });
        } else if !path.is_empty() {
            diagnostic = diagnostic.note(format!("in {path}, line {}", complaint.line));
        }
        if complaint.message.contains("file not found") {
            diagnostic = diagnostic.help(format!(
                "add its folder to `include` of [surface.{}]; it now has: {}",
                request.surface,
                request.include.join(", ")
            ));
        }
        report.push(diagnostic);
    }
    report
}

/// Which of the parser's files are recorded, and under which path.
struct Files<'t> {
    tree: &'t Tree,
    system: &'t [String],
    known: FxHashMap<FileId, Option<Header<'t>>>,
}

/// A recorded header.
struct Header<'t> {
    path: Arc<str>,
    file: &'t File,
    /// Names the content.
    key: u64,
    /// Which of its `#define` lines is likely to be asked for next.
    next: Cell<usize>,
}

impl<'t> Header<'t> {
    fn new(path: Arc<str>, file: &'t File) -> Self {
        let mut hasher = DefaultHasher::new();
        file.id.hash(&mut hasher);
        Self { path, file, key: hasher.finish(), next: Cell::new(0) }
    }
}

impl<'t> Files<'t> {
    fn new(tree: &'t Tree, request: &'t Request<'_>) -> Self {
        Self { tree, system: &request.system, known: FxHashMap::default() }
    }

    /// Header and byte of a declaration's name; `None` when it is not the driver's.
    fn place(&mut self, cursor: Cursor<'_>) -> Option<(&Header<'t>, u32)> {
        let (id, offset) = cursor.place();
        let (tree, system) = (self.tree, self.system);
        let header = self.known.entry(id).or_insert_with(|| {
            let name = cursor.file_name();
            let path = name.strip_prefix(ROOT)?;
            let file = tree.files.get(path).filter(|_| !system.iter().any(|s| s == path))?;
            Some(Header::new(path.into(), file))
        });
        header.as_ref().map(|header| (header, offset))
    }

    /// Header and line of a declaration; `None` when it is not the driver's.
    fn source(&mut self, cursor: Cursor<'_>) -> Option<Source> {
        let (header, offset) = self.place(cursor)?;
        Some(Source { path: header.path.clone(), line: header.file.line(offset) })
    }
}
