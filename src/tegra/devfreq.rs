//! The clock of the GPU, which on a Jetson is the business of Linux's devfreq.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::{Error, ErrorKind, Result};

/// Orin's GPU among the devices with a clock.
const FOLDER: &str = "/sys/class/devfreq/17000000.gpu";

/// The GPU runs at its highest clock until this goes; then as before.
#[derive(Debug)]
pub struct Boost {
    min: PathBuf,
    before: String,
}

impl Boost {
    /// Raises the lowest clock to the highest.
    ///
    /// # Errors
    ///
    /// When there is no such clock, or it may not be changed.
    pub fn new() -> Result<Self> {
        Self::in_folder(Path::new(FOLDER))
    }

    fn in_folder(folder: &Path) -> Result<Self> {
        let min = folder.join("min_freq");
        let before = read(&min)?;
        let max = read(&folder.join("max_freq"))?;
        let boost = Self { min, before };
        write(&boost.min, &max)?;
        Ok(boost)
    }
}

impl Drop for Boost {
    fn drop(&mut self) {
        // There is nobody to tell; the clock can be set by hand.
        let _ = write(&self.min, &self.before);
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| {
        Error::io(ErrorKind::Open, format!("cannot read {}", path.display()), error)
    })
}

fn write(path: &Path, value: &str) -> Result<()> {
    fs::write(path, value).map_err(|error| {
        Error::io(ErrorKind::Open, format!("cannot write {}", path.display()), error)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_boost_ends_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let min = folder.path().join("min_freq");
        fs::write(&min, "306000000\n").unwrap();
        assert!(Boost::in_folder(folder.path()).is_err(), "there is no max_freq");
        assert_eq!(fs::read_to_string(&min).unwrap(), "306000000\n");
        fs::write(folder.path().join("max_freq"), "1300500000\n").unwrap();
        let boost = Boost::in_folder(folder.path()).unwrap();
        assert_eq!(fs::read_to_string(&min).unwrap(), "1300500000\n");
        drop(boost);
        assert_eq!(fs::read_to_string(&min).unwrap(), "306000000\n");
    }
}
