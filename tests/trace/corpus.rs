//! Files that the fuzz target (`fuzz/`) found to reach something new, and those it began with.

use std::path::Path;

use nvabi::trace::report::Status;
use nvabi::trace::{Options, Trace, diff};

#[test]
fn every_file_of_the_corpus_is_answered() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trace/corpus");
    let (mut compared, mut refused) = (0, 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let options = Options { values: true, threads: Some(1), ..Options::default() };
        let report = Trace::open(&path).and_then(|trace| diff(&trace, &trace, &options));
        match report {
            Ok(report) => {
                assert_ne!(report.status, Status::Different, "{} and itself", path.display());
                compared += 1;
            }
            Err(error) => {
                assert_eq!(error.path(), path, "{error}");
                refused += 1;
            }
        }
    }
    assert!(compared > 10 && refused > 10, "{compared} compared, {refused} refused");
}
