//! How much there may be of what clients share with us: their files are ours as well, and their memory
//! is this machine's.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nvabi_supervise::check;

/// Places for something of which each user may have so many at once.
#[derive(Debug)]
pub(crate) struct Places<K> {
    most: usize,
    taken: Arc<Mutex<BTreeMap<K, usize>>>,
}

/// Some of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place<K: Ord> {
    of: Arc<Mutex<BTreeMap<K, usize>>>,
    user: K,
    count: usize,
}

impl<K: Ord + Copy> Places<K> {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// None when fewer are left to the user.
    pub(crate) fn take(&self, user: K, count: usize) -> Option<Place<K>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.get(&user).copied().unwrap_or(0);
        let all = own.checked_add(count).filter(|all| *all <= self.most)?;
        taken.insert(user, all);
        Some(Place { of: self.taken.clone(), user, count })
    }

    /// How many all users have.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

impl<K: Ord> Drop for Place<K> {
    fn drop(&mut self) {
        let mut taken = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = taken.get_mut(&self.user) {
            *own -= self.count;
            // Users come and go.
            if *own == 0 {
                taken.remove(&self.user);
            }
        }
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
        let three = five.take((), 3).unwrap();
        assert!(five.take((), 3).is_none());
        let two = five.take((), 2);
        assert!(two.is_some() && five.take((), 1).is_none());
        drop(three);
        assert_eq!(five.taken(), 2);
        assert!(five.take((), usize::MAX).is_none() && five.take((), 3).is_some());
    }

    #[test]
    fn each_user_has_places_of_its_own() {
        let five = Places::new(5);
        let (all, _other) = (five.take(1, 5), five.take(2, 3).unwrap());
        assert!(five.take(1, 1).is_none() && five.take(2, 3).is_none());
        assert!(five.take(3, usize::MAX).is_none());
        drop(all);
        assert_eq!(five.taken(), 3);
        assert!(five.take(1, 5).is_some() && five.take(2, 2).is_some());
        assert_eq!(five.taken.lock().unwrap().len(), 1, "who has none is forgotten");
    }
}
