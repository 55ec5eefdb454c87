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

/// What is kept of a launch in memory, until it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    /// Every this many warps one is kept.
    pub sample: u32,
    /// Events of each of them.
    pub events: u32,
}

impl Recording {
    /// Of a launch of so many warps, where an event takes so many bytes: less of each warp where not all fit into
    /// [`Recording::memory`], then fewer warps. None where there are more warps than a trace has numbers for.
    #[must_use]
    pub fn fit(&self, warps: u64, event_bytes: u64) -> Option<Fit> {
        const FEW: u64 = 16;
        let warps = u64::from(u32::try_from(warps).ok()?);
        let held = self.memory / event_bytes.max(1);
        let sample = u64::from(self.sample).max(warps.div_ceil((held / FEW).max(1))).max(1);
        let each = held / warps.div_ceil(sample).max(1);
        let events = each.clamp(1, self.capacity.max(1).into());
        Some(Fit { sample: u32::try_from(sample).ok()?, events: u32::try_from(events).ok()? })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_fits_into_the_memory_that_is_allowed() {
        const EVENT: u64 = 96;
        let fit = |events: u64, sample, warps: u64| {
            let (file, kernels) = ("trace".into(), WildMatch::new("*"));
            let (memory, capacity) = (events * EVENT, 4096);
            let recording =
                Recording { file, capacity, memory, sample, launches: 0..u64::MAX, kernels };
            let fit = recording.fit(warps, EVENT)?;
            let kept = warps.div_ceil(fit.sample.into()) * u64::from(fit.events);
            assert!(kept <= events.max(1), "{fit:?}: {kept} events of {events}");
            Some((fit.sample, fit.events))
        };
        assert_eq!(fit(1 << 20, 1, 8), Some((1, 4096)));
        assert_eq!(fit(800, 1, 8), Some((1, 100)));
        assert_eq!(fit(800, 4, 8), Some((4, 400)));
        // Not even a few of each.
        assert_eq!(fit(32, 1, 8), Some((4, 16)));
        assert_eq!(fit(0, 1, 8), Some((8, 1)));
        assert_eq!(fit(1 << 20, 1, 1 << 32), None);
        for (events, sample, warps) in [(17, 1, 1), (1000, 3, 999), (5, 7, u64::from(u32::MAX))] {
            assert!(fit(events, sample, warps).is_some());
        }
    }
}
