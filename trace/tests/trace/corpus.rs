//! Files that the fuzz target (`fuzz/`) found to reach something new, and those it began with.

use std::path::Path;

use nvabi_trace::report::Note;

#[path = "../../../fuzz/checks/trace.rs"]
mod checks;

#[test]
fn every_file_of_the_corpus_is_answered() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/trace");
    // Compared, refused: as the files are, and with their checksums made right.
    let mut answers = [[0; 2]; 2];
    for entry in std::fs::read_dir(folder).unwrap() {
        let mut bytes = std::fs::read(entry.unwrap().path()).unwrap();
        for answers in &mut answers {
            let notes = checks::compared(&bytes);
            answers[usize::from(notes.is_none())] += 1;
            checks::seal(&mut bytes);
        }
        let unsealed = |note: &Note| matches!(note, Note::Damaged { what, .. } if what.contains("do not match their checksum"));
        let notes = checks::compared(&bytes).unwrap_or_default();
        assert!(!notes.iter().any(unsealed), "{notes:?}");
    }
    let [raw, sealed] = answers;
    assert!(raw.iter().chain(&sealed).all(|count| *count > 10), "{raw:?} {sealed:?}");
    assert!(raw != sealed, "checksums make no difference");
}
