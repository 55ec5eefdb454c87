//! How much there may be of what clients share with us: their files are ours as well, and their memory
//! is this machine's.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use nvabi_supervise::check;

/// Places for something that there may be so many of at once.
#[derive(Debug)]
pub(crate) struct Places {
    most: usize,
    taken: Arc<AtomicUsize>,
}

/// One of them, or several, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    of: Arc<AtomicUsize>,
    count: usize,
}

impl Places {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// None when all are taken.
    pub(crate) fn take(&self) -> Option<Place> {
        self.take_many(1)
    }

    /// None when fewer are left.
    pub(crate) fn take_many(&self, count: usize) -> Option<Place> {
        let more = |taken: usize| taken.checked_add(count).filter(|all| *all <= self.most);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        // Made only when it is taken: dropping one gives a place back.
        taken.is_ok().then(|| Place { of: self.taken.clone(), count })
    }

    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of.fetch_sub(self.count, Ordering::Relaxed);
    }
}

/// Descriptors that are kept for what lasts no longer than the answer to a call.
const SPARE: u64 = 64;

/// What we were started with, and so what programs are started with.
static INHERITED: OnceLock<libc::rlimit> = OnceLock::new();

/// Lets this process have as many descriptors as it may; returns how many it could have before.
pub(super) fn raise() -> io::Result<libc::rlimit> {
    let now = get()?;
    let inherited = *INHERITED.get_or_init(|| now);
    set(&libc::rlimit { rlim_cur: now.rlim_max, ..now })?;
    Ok(inherited)
}

/// Sets the limit.
///
/// Between `fork` and `exec` this may be called.
pub(super) fn set(limit: &libc::rlimit) -> io::Result<()> {
    // SAFETY: the kernel reads one `rlimit`, which outlives the call.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limit) })?;
    Ok(())
}

/// Whether a descriptor is one of the last, which nothing may keep. The lowest free is always given.
pub(super) fn is_spare(fd: &OwnedFd) -> bool {
    get().is_ok_and(|limit| fd.as_raw_fd() as u64 + SPARE >= limit.rlim_cur)
}

fn get() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one `rlimit`: the local one.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    Ok(limit)
}

/// Bytes that this machine can give without taking them from others.
pub(super) fn memory() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_back_as_they_were_taken() {
        let five = Places::new(5);
        let three = five.take_many(3).unwrap();
        assert!(five.take_many(3).is_none());
        let two = five.take_many(2);
        assert!(two.is_some() && five.take().is_none());
        drop(three);
        assert_eq!(five.taken(), 2);
        assert!(five.take_many(usize::MAX).is_none() && five.take_many(3).is_some());
    }
}
