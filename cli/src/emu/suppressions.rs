//! Findings that are known: a file with a line for each, of kind, kernel and place.

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nvabi_pipeline::globs::fits;

use super::findings::{Finding, Findings};

/// Of a file of suppressions.
#[derive(Debug, Default)]
pub(super) struct Suppressions {
    path: PathBuf,
    all: Vec<Suppression>,
    covered: u64,
}

#[derive(Debug)]
struct Suppression {
    line: usize,
    kind: String,
    kernel: String,
    place: String,
    used: Cell<bool>,
}

impl Suppressions {
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(path).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        let mut all = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let fields: Vec<&str> = line.split('\t').collect();
            let [kind, kernel, place] = fields[..] else {
                let what = format!(
                    "{}:{}: expected kind, kernel and place with tabs between them, found {} fields",
                    path.display(),
                    number + 1,
                    fields.len()
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            };
            let [kind, kernel, place] = [kind, kernel, place].map(|field| field.trim().to_owned());
            all.push(Suppression { line: number + 1, kind, kernel, place, used: Cell::new(false) });
        }
        Ok(Self { path: path.to_owned(), all, covered: 0 })
    }

    /// Whether a finding is known.
    pub(super) fn covers(&mut self, finding: &Finding) -> bool {
        let place = finding.place();
        let covers = |one: &&Suppression| {
            fits(&one.kind, &finding.kind)
                && fits(&one.kernel, &finding.kernel)
                && fits(&one.place, &place)
        };
        let found = self.all.iter().find(covers);
        if let Some(one) = found {
            one.used.set(true);
            self.covered += 1;
        }
        found.is_some()
    }

    /// How many findings were known.
    pub(super) fn covered(&self) -> u64 {
        self.covered
    }

    /// The places of those that covered none.
    pub(super) fn unused(&self) -> impl Iterator<Item = String> {
        let unused = self.all.iter().filter(|one| !one.used.get());
        unused.map(|one| format!("{}:{}", self.path.display(), one.line))
    }
}

/// A file that covers all of these findings.
pub(super) fn write(findings: &Findings) -> String {
    let mut out = "# kind, kernel, place; * stands for any text\n".to_owned();
    for finding in &findings.all {
        out += &format!("{}\t{}\t{}\n", finding.kind, finding.kernel, finding.place());
    }
    out
}
