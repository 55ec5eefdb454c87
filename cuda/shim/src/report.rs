//! What becomes of findings: lines of text, records of JSON, and the exit status of the program.

use std::ffi::{c_int, c_void};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nvabi_emu::{Finding, FindingKind, Severity};
use serde_json::json;

use crate::state::print_message;

/// Where findings go.
#[derive(Debug, Default)]
pub(crate) struct Reporter {
    /// `NVABI_EMU_REPORT`: a file for lines; else stderr has them, unless `records` is a file.
    lines: Option<PathBuf>,
    /// `NVABI_EMU_FINDINGS`: a file for records.
    records: Option<PathBuf>,
}

/// A finding of severity `error` was made.
static FAILED: AtomicBool = AtomicBool::new(false);

impl Reporter {
    pub(crate) fn from_environment() -> Self {
        let mut end = End { leaks: is_set("NVABI_EMU_LEAKS"), code: 0 };
        if let Some(text) = variable("NVABI_EMU_EXIT") {
            match text.parse::<u8>() {
                Ok(code @ 1..) => end.code = code,
                _ => print_message(&format!("NVABI_EMU_EXIT: `{text}` is no status from 1 to 255")),
            }
        }
        at_end(end);
        let records: Option<PathBuf> = variable("NVABI_EMU_FINDINGS").map(Into::into);
        if let Some(path) = &records {
            // Who reads it knows by this that the program came here.
            append(path, "{\"started\":true}\n");
        }
        Self { lines: variable("NVABI_EMU_REPORT").map(Into::into), records }
    }

    pub(crate) fn report(&self, findings: &[Finding]) {
        if findings.is_empty() {
            return;
        }
        if findings.iter().any(|finding| finding.severity == Severity::Error) {
            FAILED.store(true, Ordering::Relaxed);
        }
        let text: String =
            findings.iter().map(|finding| format!("{finding}{}\n", hint(finding))).collect();
        let records: String =
            findings.iter().map(|finding| format!("{}\n", record(finding))).collect();
        let written = match (&self.lines, &self.records) {
            (None, None) => false,
            (lines, file) => {
                let lines = lines.as_deref().is_none_or(|path| append(path, &text));
                let records = file.as_deref().is_none_or(|path| append(path, &records));
                lines && records
            }
        };
        // A file that cannot be written must not hide them.
        if !written {
            text.lines().for_each(print_message);
        }
    }
}

/// A variable that has a value.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether a variable asks for something.
pub(crate) fn is_set(name: &str) -> bool {
    variable(name).is_some_and(|value| value != "0")
}

/// Adds text to a file; where that fails, it is said, and the program goes on.
pub(crate) fn append(path: &Path, text: &str) -> bool {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let written: io::Result<()> = file.and_then(|mut file| file.write_all(text.as_bytes()));
    if let Err(error) = &written {
        print_message(&format!("{}: {error}", path.display()));
    }
    written.is_ok()
}

/// What to do about a finding, where it may be none of the program's.
fn hint(finding: &Finding) -> &'static str {
    match finding.kind {
        FindingKind::Endless => "; NVABI_EMU_LIMIT sets the limit",
        _ => "",
    }
}

/// A finding for programs to read.
fn record(finding: &Finding) -> serde_json::Value {
    let location = &finding.location;
    json!({
        "kind": finding.kind.to_string(),
        "severity": finding.severity.to_string(),
        "fatal": finding.fatal,
        "kernel": finding.kernel,
        "block": finding.block,
        "thread": finding.thread,
        "file": location.file.as_deref(),
        "line": location.line,
        "column": location.column,
        "ptx_line": location.ptx_line,
        "address": location.address,
        "unit": location.unit.as_deref(),
        "message": finding.message,
        "count": finding.count,
    })
}

/// Reports memory that was never freed.
fn report_leaks() {
    let state = crate::state::state();
    let (count, bytes) = state.leaks();
    // Behind an error of a kernel, nothing can be freed.
    if count == 0 || state.has_failed() {
        return;
    }
    let plural = if count == 1 { "allocation is" } else { "allocations are" };
    let message = format!("{count} {plural} never freed: {bytes} bytes");
    state.reporter.report(&[Finding::of_host(FindingKind::Leak, Severity::Error, message)]);
}

/// What is done when the program ends by itself.
#[derive(Clone, Copy)]
struct End {
    leaks: bool,
    /// The status of a program that would end with 0 in spite of a finding; 0 leaves it.
    code: u8,
}

/// Arranges what is done at the program's end.
fn at_end(end: End) {
    unsafe extern "C" {
        /// Of glibc: as atexit(3), with the status.
        fn on_exit(function: extern "C" fn(c_int, *mut c_void), data: *mut c_void) -> c_int;
    }
    extern "C" fn run(status: c_int, data: *mut c_void) {
        let (code, leaks) = (data.addr() & 0xff, data.addr() >> 8 != 0);
        if leaks {
            report_leaks();
        }
        if status == 0 && code != 0 && FAILED.load(Ordering::Relaxed) {
            // SAFETY: fflush(3) of null writes what the program's streams hold; _exit(2) takes any number. This
            // is the program's end, and what others have registered before this has nothing left to change.
            unsafe {
                libc::fflush(std::ptr::null_mut());
                libc::_exit(code as c_int);
            }
        }
    }
    if !end.leaks && end.code == 0 {
        return;
    }
    let data = usize::from(end.code) | usize::from(end.leaks) << 8;
    // SAFETY: `run` is a function of this library, which is not unloaded before the program ends: programs are
    // linked with it, or hold it by the state that its threads share.
    let failed = unsafe { on_exit(run, std::ptr::without_provenance_mut(data)) };
    if failed != 0 {
        print_message(
            "the C library takes no more functions for the end: no leaks, no NVABI_EMU_EXIT",
        );
    }
}
