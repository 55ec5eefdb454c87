//! What went wrong, where, and what to do: collected first, printed together.
//!
//! A place is a byte span of a file whose text is at hand, so that the report can quote it.
//! This module formats; it never reads files.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
#[cfg(feature = "serde")]
use serde::ser::{Serialize, SerializeStruct as _, Serializer};

/// How serious a diagnostic is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The result is missing or cannot be trusted.
    Error,
    /// The result stands; a person should look.
    Warning,
}

/// A span of a file, with the text to quote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSpan {
    /// The file as the reader knows it: relative to the project or to the header tree.
    pub path: String,
    /// The whole text of the file.
    pub text: Arc<str>,
    /// Byte range in `text`.
    pub span: Range<usize>,
}

/// One complaint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// How serious it is.
    pub severity: Severity,
    /// A stable short name, such as `spec-unknown-item`.
    pub code: &'static str,
    /// The complaint: lower case, no final stop, both values where two disagree.
    pub message: String,
    /// Where it is, when it is in a file whose text we hold.
    pub place: Option<SourceSpan>,
    /// Facts that help to understand it.
    pub notes: Vec<String>,
    /// What to do.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error with a code and a message.
    pub fn error(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, message)
    }

    /// A warning with a code and a message.
    pub fn warning(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, message)
    }

    fn new(severity: Severity, code: &'static str, message: impl Into<String>) -> Self {
        Self { severity, code, message: message.into(), place: None, notes: Vec::new(), help: None }
    }

    /// Says where it is.
    pub fn at(mut self, place: SourceSpan) -> Self {
        self.place = Some(place);
        self
    }

    /// Adds a fact.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Says what to do.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The text rustc would print for it, without colours unless `colour`.
    pub fn render(&self, colour: bool) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let title = level.primary_title(self.message.as_str()).id(self.code);
        let mut group = Group::with_title(title);
        if let Some(place) = &self.place {
            group = group.element(
                Snippet::source(place.text.as_ref())
                    .path(place.path.as_str())
                    .annotation(AnnotationKind::Primary.span(clamp(&place.span, &place.text))),
            );
        }
        for note in &self.notes {
            group = group.element(Level::NOTE.message(note.as_str()));
        }
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        renderer.render(&[group])
    }
}

/// Keeps a span inside its text and on character boundaries, so that rendering cannot fail.
fn clamp(span: &Range<usize>, text: &str) -> Range<usize> {
    let floor = |mut at: usize| {
        at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let start = floor(span.start);
    start..floor(span.end.max(start))
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

/// As data: the place as path, line and column, both counted from 1.
#[cfg(feature = "serde")]
impl Serialize for Diagnostic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let mut fields = serializer.serialize_struct("Diagnostic", 6)?;
        fields.serialize_field("severity", severity)?;
        fields.serialize_field("code", self.code)?;
        fields.serialize_field("message", &self.message)?;
        fields.serialize_field("place", &self.place.as_ref().map(SourceSpan::line_and_column))?;
        fields.serialize_field("notes", &self.notes)?;
        fields.serialize_field("help", &self.help)?;
        fields.end()
    }
}

impl SourceSpan {
    /// Path, line and column, the way editors jump to it.
    pub fn line_and_column(&self) -> String {
        let start = clamp(&self.span, &self.text).start;
        let before = &self.text[..start];
        let line = before.matches('\n').count() + 1;
        let column = before.rfind('\n').map_or(start, |at| start - at - 1) + 1;
        format!("{}:{line}:{column}", self.path)
    }
}

/// Every complaint of one job, so that all are seen at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// In the order found; [`Report::sorted`] orders by place.
    pub diagnostics: Vec<Diagnostic>,
}

impl Report {
    /// Adds a diagnostic.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// Whether any of them is an error.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|d| d.severity == Severity::Error)
    }

    /// `Err` with everything when there is an error, else the value and the warnings.
    pub fn into_result<T>(self, value: T) -> Result<(T, Report), Report> {
        if self.has_errors() { Err(self) } else { Ok((value, self)) }
    }

    /// The same complaints in the order of their places: file, position, then as found.
    pub fn sorted(mut self) -> Self {
        self.diagnostics.sort_by(|a, b| key(a).cmp(&key(b)));
        self
    }

    /// All texts, a blank line between them.
    pub fn render(&self, colour: bool) -> String {
        let texts: Vec<String> = self.diagnostics.iter().map(|d| d.render(colour)).collect();
        texts.join("\n\n")
    }
}

fn key(diagnostic: &Diagnostic) -> (Severity, &str, usize) {
    match &diagnostic.place {
        Some(place) => (diagnostic.severity, &place.path, place.span.start),
        None => (diagnostic.severity, "", 0),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Report {}

impl From<Diagnostic> for Report {
    fn from(diagnostic: Diagnostic) -> Self {
        Self { diagnostics: vec![diagnostic] }
    }
}

/// The name in `candidates` that a person most likely meant, if any is close.
pub fn nearest<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|name| match wanted.eq_ignore_ascii_case(name) {
            true => (0, name),
            false => (edit_distance(wanted, name), name),
        })
        .filter(|(distance, _)| *distance <= 1 + wanted.len() / 5)
        .min()
        .map(|(_, name)| name)
}

/// Levenshtein distance over bytes.
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_the_place() {
        let place = SourceSpan { path: "a.toml".into(), text: "one\ntwo = 3\n".into(), span: 4..7 };
        let text = Diagnostic::error("test-code", "`two` is not a key").at(place).help("say one");
        assert_eq!(
            text.to_string(),
            "error[test-code]: `two` is not a key\n --> a.toml:2:1\n  |\n2 | two = 3\n  | ^^^\n  |\n  = help: say one"
        );
    }

    #[test]
    fn a_span_outside_the_text_is_clamped() {
        let place = SourceSpan { path: "a".into(), text: "é".into(), span: 1..99 };
        assert!(Diagnostic::error("c", "m").at(place).to_string().contains("--> a:1"));
    }

    #[test]
    fn finds_the_near_name() {
        let names = ["NVOS21_PARAMETERS", "NVOS54_PARAMETERS"];
        assert_eq!(nearest("NVOS54_PARAMETER", names), Some("NVOS54_PARAMETERS"));
        assert_eq!(nearest("drm_version", names), None);
    }
}
