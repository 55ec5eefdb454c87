//! What the library found, over several runs.

use serde::{Deserialize, Serialize};

/// As the emulator ranks findings.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// It may be no mistake.
    Note,
    /// Formally undefined, without effect here.
    Undefined,
    /// Wrong.
    Error,
}

impl Severity {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Undefined => "undefined",
            Self::Error => "error",
        }
    }
}

/// A line of `NVABI_EMU_FINDINGS`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Finding {
    pub(super) kind: String,
    pub(super) severity: Severity,
    pub(super) fatal: bool,
    pub(super) kernel: String,
    pub(super) block: [u32; 3],
    pub(super) thread: [u32; 3],
    pub(super) file: Option<String>,
    pub(super) line: u32,
    pub(super) column: u32,
    pub(super) ptx_line: u32,
    /// Of machine code, in place of the PTX's line.
    #[serde(default)]
    pub(super) address: Option<u64>,
    pub(super) unit: Option<String>,
    pub(super) message: String,
    pub(super) count: u64,
    /// The schedules that showed it.
    #[serde(default)]
    pub(super) schedules: Vec<String>,
}

/// The findings of all runs, each once.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) all: Vec<Finding>,
}

/// A line of the file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Record {
    /// The program called the library.
    #[expect(dead_code, reason = "that it is there is all it says")]
    Started {
        started: bool,
    },
    Finding(Box<Finding>),
}

impl Findings {
    /// Takes in what a run under a schedule wrote.
    pub(super) fn add(&mut self, schedule: &str, text: &str) -> Result<(), String> {
        for (number, line) in text.lines().enumerate() {
            let record = serde_json::from_str(line)
                .map_err(|error| format!("line {}: not a finding: {error}", number + 1))?;
            let Record::Finding(mut finding) = record else { continue };
            finding.schedules = vec![schedule.to_owned()];
            match self.all.iter_mut().find(|known| known.key() == finding.key()) {
                Some(known) => known.absorb(*finding),
                None => self.all.push(*finding),
            }
        }
        Ok(())
    }

    /// The worst first, then by place.
    pub(super) fn sort(&mut self) {
        self.all.sort_by(|a, b| {
            let place = |finding: &Finding| (finding.file.clone(), finding.line, finding.ptx_line);
            b.severity.cmp(&a.severity).then_with(|| place(a).cmp(&place(b)))
        });
    }
}

impl Finding {
    /// The same mistake at the same place of the source, or of the PTX where that is all there is.
    fn key(&self) -> (&str, &str, Option<&str>, u32, u32) {
        let in_source = self.file.is_some();
        let in_code = self.address.map_or(self.ptx_line, |address| address as u32);
        let (line, column) = if in_source { (self.line, self.column) } else { (in_code, 0) };
        (&self.kind, &self.kernel, self.file.as_deref().or(self.unit.as_deref()), line, column)
    }

    fn absorb(&mut self, other: Self) {
        let count = self.count + other.count;
        let mut schedules = std::mem::take(&mut self.schedules);
        for schedule in &other.schedules {
            if !schedules.contains(schedule) {
                schedules.push(schedule.clone());
            }
        }
        if other.severity > self.severity {
            *self = other;
        }
        (self.count, self.schedules) = (count, schedules);
    }

    /// `reduce.cu:14` or, without lines, `PTX line 65`.
    pub(super) fn place(&self) -> String {
        match &self.file {
            Some(file) => format!("{file}:{}", self.line),
            None => self.code(),
        }
    }

    /// Where it is in the code that ran.
    fn code(&self) -> String {
        match self.address {
            Some(address) => format!("SASS {address:#06x}"),
            None => format!("PTX line {}", self.ptx_line),
        }
    }

    /// For people: as the library prints it, with the schedules where some did not show it.
    pub(super) fn line(&self, runs: usize) -> String {
        if self.kernel.is_empty() {
            return format!("{}: {}", self.kind, self.message);
        }
        let place = match &self.file {
            Some(_) if self.column == 0 => format!("{} ({})", self.place(), self.code()),
            Some(_) => format!("{}:{} ({})", self.place(), self.column, self.code()),
            None => self.place(),
        };
        let triple = |[x, y, z]: [u32; 3]| format!("({x},{y},{z})");
        let mut out = format!("{place}: {}", self.kind);
        if self.severity != Severity::Error {
            out += &format!(" ({})", self.severity.name());
        }
        out += &format!(
            ": kernel {}, block {}, thread {}: {}",
            self.kernel,
            triple(self.block),
            triple(self.thread),
            self.message
        );
        if self.count > 1 {
            out += &format!(" ({} times)", self.count);
        }
        if self.schedules.len() < runs {
            out += &format!(" [{}]", self.schedules.join(", "));
        }
        out
    }
}
