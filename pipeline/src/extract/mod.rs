//! libclang over the headers of one surface: every record, enum, typedef and integer constant.
//!
//! The one module that knows clang. Headers are given from memory, and so are the system headers
//! that they ask for (`stubs`), so that the result does not depend on the machine.

mod clang;
mod constants;
mod lexer;
mod records;
mod stubs;

use std::collections::HashMap;
use std::sync::Arc;

pub use clang::Clang;
pub use constants::Cache;

use crate::diagnostic::{Diagnostic, Place, Report};
use crate::headers::Tree;
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
    cache: &mut Cache,
) -> Result<(Surface, Report), Report> {
    let main = main_file(request);
    let unit = parse(clang, tree, request, &main, request.constants)?;
    let report = complaints(&unit, tree, request);
    if report.has_errors() {
        return Err(report);
    }
    let mut files = Files::new(request);
    let mut surface = Surface::default();
    let macros = records::collect(unit.root(), &mut files, &mut surface)?;
    drop(unit);
    if request.constants {
        constants::evaluate(clang, tree, request, &macros, &mut surface, cache)?;
    }
    Ok((surface, report))
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
        "-Wunknown-attributes".into(),
        "-Wignored-attributes".into(),
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
    files.push((format!("{ROOT}{}.nvabi", request.surface), main));
    clang.parse(&args, &files, detailed_macros).map_err(Report::from)
}

/// The parser's words, each at its place in the header.
fn complaints(unit: &Unit<'_>, tree: &Tree, request: &Request<'_>) -> Report {
    let mut report = Report::default();
    for complaint in unit.complaints() {
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
            diagnostic = diagnostic.at(Place { path: path.into(), text: file.text.clone(), span });
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
struct Files<'a> {
    request: &'a Request<'a>,
    known: HashMap<FileId, Option<Arc<str>>>,
}

impl<'a> Files<'a> {
    fn new(request: &'a Request<'a>) -> Self {
        Self { request, known: HashMap::new() }
    }

    /// Header and line of a declaration; `None` when it is not the driver's.
    fn source(&mut self, cursor: Cursor<'_>) -> Option<Source> {
        let (file, line, _) = cursor.place();
        let request = self.request;
        let path = self.known.entry(file).or_insert_with(|| {
            let name = cursor.file_name();
            let path = name.strip_prefix(ROOT)?;
            let ours = !path.ends_with(".nvabi") && !request.system.iter().any(|s| s == path);
            ours.then(|| path.into())
        });
        path.clone().map(|path| Source { path, line })
    }
}
