//! What `nvabi trace record` tells who records, through the environment of the program.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{env, io};

use wildmatch::WildMatch;

/// Names of the variables; `nvabi trace record` writes the same.
const FILE: &str = "NVABI_RECORD";
const CAPACITY: &str = "NVABI_RECORD_CAPACITY";
const MEMORY: &str = "NVABI_RECORD_MEMORY";
const SAMPLE: &str = "NVABI_RECORD_SAMPLE";
const LAUNCHES: &str = "NVABI_RECORD_LAUNCHES";
const KERNELS: &str = "NVABI_RECORD_KERNELS";

/// What is recorded, and where to.
#[derive(Debug)]
#[non_exhaustive]
pub struct Recording {
    /// The trace.
    pub file: PathBuf,
    /// Words of a warp's region.
    pub capacity: u32,
    /// Bytes of device memory that the regions of one launch may take.
    pub memory: u64,
    /// Every this many warps one is recorded.
    pub sample: u32,
    /// Launches of kernels that can be recorded, by their order.
    pub launches: Range<u64>,
    /// The names of kernels, mangled or as in the source.
    pub kernels: WildMatch,
}

impl Recording {
    /// None where the program is not to be recorded.
    ///
    /// # Errors
    ///
    /// A variable has a value that is none.
    pub fn from_environment() -> Result<Option<Self>, String> {
        let Some(file) = env::var_os(FILE) else { return Ok(None) };
        let kernels = env::var(KERNELS).unwrap_or_else(|_| "*".to_owned());
        Ok(Some(Self {
            file: file.into(),
            capacity: number(CAPACITY, 4096)?.clamp(1, 1 << 24) as u32,
            memory: number(MEMORY, 1 << 30)?,
            sample: number(SAMPLE, 1)?.clamp(1, u64::from(u32::MAX)) as u32,
            launches: range(LAUNCHES)?,
            kernels: WildMatch::new(&kernels),
        }))
    }
}

/// Begins a trace; beside it, named by the process, where another process has begun it.
///
/// # Errors
///
/// Those of the file system.
pub fn create(path: &Path) -> io::Result<File> {
    File::create_new(path).or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{}", std::process::id()));
            File::create(Path::new(&name))
        }
        _ => Err(error),
    })
}

fn number(variable: &str, default: u64) -> Result<u64, String> {
    match env::var(variable) {
        Ok(text) => text.parse().map_err(|_| format!("{variable}={text}: not a number")),
        Err(_) => Ok(default),
    }
}

/// `FROM..TO`, either of which may be left out.
fn range(variable: &str) -> Result<Range<u64>, String> {
    let Ok(text) = env::var(variable) else { return Ok(0..u64::MAX) };
    let bound = |text: &str, default| match text {
        "" => Some(default),
        text => text.parse().ok(),
    };
    let (from, to) = text.split_once("..").unwrap_or((text.as_str(), ""));
    match (bound(from, 0), bound(to, u64::MAX)) {
        (Some(from), Some(to)) => Ok(from..to),
        _ => Err(format!("{variable}={text}: not a range FROM..TO")),
    }
}
