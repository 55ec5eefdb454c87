//! What `nvabi trace record` tells the recorder, through the environment of the program.

use std::env;
use std::ops::Range;
use std::path::PathBuf;

use wildmatch::WildMatch;

/// Names of the variables; `nvabi trace record` writes the same.
const FILE: &str = "NVABI_RECORD";
const CAPACITY: &str = "NVABI_RECORD_CAPACITY";
const MEMORY: &str = "NVABI_RECORD_MEMORY";
const SAMPLE: &str = "NVABI_RECORD_SAMPLE";
const LAUNCHES: &str = "NVABI_RECORD_LAUNCHES";
const KERNELS: &str = "NVABI_RECORD_KERNELS";

#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) file: PathBuf,
    /// Words of a warp's region.
    pub(crate) capacity: u32,
    /// Bytes of device memory that the regions of one launch may take.
    pub(crate) memory: u64,
    /// Every this many warps one is recorded.
    pub(crate) sample: u32,
    /// Launches of instrumented kernels, by their order.
    pub(crate) launches: Range<u64>,
    pub(crate) kernels: WildMatch,
}

impl Config {
    /// None where the program is not to be recorded.
    pub(crate) fn from_environment() -> Result<Option<Self>, String> {
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
