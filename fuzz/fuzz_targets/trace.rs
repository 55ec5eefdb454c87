//! Any bytes as a trace: read, and compared with themselves. `cargo +nightly fuzz run trace`.
#![no_main]

use std::io::Write;

use libfuzzer_sys::fuzz_target;
use nvabi::trace::report::Status;
use nvabi::trace::{Options, Trace, diff};

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut file) = tempfile::NamedTempFile::new() else { return };
    if file.write_all(bytes).is_err() {
        return;
    }
    let Ok(trace) = Trace::open(file.path()) else { return };
    let options = Options { values: true, threads: Some(1), ..Options::default() };
    if let Ok(report) = diff(&trace, &trace, &options) {
        assert_ne!(report.status, Status::Different, "a trace differs from itself");
    }
});
