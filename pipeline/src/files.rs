//! Files that nobody ever sees half written.

use std::fs;
use std::io;
use std::path::Path;

/// Writes beside the target, then renames; what was there stays when that fails.
pub fn write(target: &Path, text: &str) -> io::Result<()> {
    let mut beside = target.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    fs::write(&beside, text).and_then(|()| fs::rename(&beside, target)).inspect_err(|_| {
        // Nothing to do when this fails as well: the file may never have been made.
        let _ = fs::remove_file(&beside);
    })
}
