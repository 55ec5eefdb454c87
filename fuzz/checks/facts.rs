//! What holds for any text as the facts of a driver: the fuzz targets and the test of their corpus share it.

use std::fs;
use std::path::Path;

use nvabi_pipeline::lock;
use nvabi_pipeline::spec::Spec;
use tempfile::TempDir;

/// A spec: its mistakes are told with their places. Says whether it has none.
pub(crate) fn spec(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let file = ("driver-1".to_owned(), "driver-1.toml".to_owned(), text.to_owned());
    let read = Spec::parse_all(&[file]);
    read.map_err(|report| report.to_string()).is_ok()
}

const HEADER: &str = "devmem/nvabi-devmem.h.lock";

/// A lock that is right, of which one file is to be replaced. It is in memory, as long as its thread.
fn right() -> TempDir {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let lock = root.map(|at| at.join("devmem/abi-specs/lock")).find(|at| at.exists());
    let lock = lock.expect("the lock of the headers of device memory");
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    fs::create_dir(folder.path().join("devmem")).expect("a folder");
    fs::copy(lock.join("tags"), folder.path().join("tags")).expect("room");
    for file in fs::read_dir(lock.join("devmem")).expect("the files of the lock") {
        let file = file.expect("a file");
        let to = folder.path().join("devmem").join(file.file_name());
        fs::copy(file.path(), to).expect("room");
    }
    // What is refused before the file is looked at shows nothing of how that is read.
    let (_, edited) = lock::read(folder.path()).expect("the lock is right");
    assert_eq!(edited.to_string(), "");
    folder
}

thread_local! {
    static FOLDER: TempDir = right();
}

/// The file of one header in a lock that is right otherwise. Says whether it can be read.
pub(crate) fn lock(bytes: &[u8]) -> bool {
    let read = FOLDER.with(|folder| {
        fs::write(folder.path().join(HEADER), bytes).expect("room");
        lock::read(folder.path())
    });
    // Both are rendered.
    read.map(|(_, edited)| edited.to_string()).map_err(|damaged| damaged.to_string()).is_ok()
}
