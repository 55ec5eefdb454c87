//! Looks at the memory of programs, and how long they may take.
//!
//! A program can serve a file system (FUSE) and map a file of it: who touches that memory waits for the program. A
//! thread that waits so cannot be called back. So from the first file system on that a program has mounted, each look
//! is made by a thread of its own, which is left where it is when it takes too long.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::limits::Places;

/// The longest wait for one look.
const LONGEST: Duration = Duration::from_millis(250);
/// The longest, of who has let others wait for too long.
const SHORT: Duration = Duration::from_millis(10);
/// How long a run may let others wait at once.
const ALL: Duration = Duration::from_secs(1);
/// How much longer a run waits itself until it may do so again: others have the machine for most of the time.
const SHARE: u32 = 9;
/// Looks of a run that may be under way: others have their own.
const LOOKS: usize = 64;

/// How long a run may still let others wait.
#[derive(Debug)]
pub(crate) struct Patience {
    /// Whether some program of the machine may serve a file system.
    is_needed: Arc<AtomicBool>,
    account: Mutex<Account>,
    looks: Places<()>,
}

/// What a run has let others wait, of which time takes its share off.
#[derive(Debug)]
struct Account {
    /// When nothing of it will be left.
    settled: Instant,
}

impl Account {
    fn charge(&mut self, waited: Duration, now: Instant) {
        self.settled = self.settled.max(now) + waited * (SHARE + 1);
    }

    /// How much it may let others wait now.
    fn left(&self, now: Instant) -> Duration {
        ALL.saturating_sub(self.spent(now))
    }

    /// How long it has to wait itself before it may go on.
    fn owed(&self, now: Instant) -> Duration {
        self.spent(now).saturating_sub(ALL) * (SHARE + 1)
    }

    fn spent(&self, now: Instant) -> Duration {
        self.settled.saturating_duration_since(now) / (SHARE + 1)
    }
}

impl Patience {
    pub(crate) fn new(is_needed: Arc<AtomicBool>) -> Self {
        let account = Mutex::new(Account { settled: Instant::now() });
        Self { is_needed, account, looks: Places::new(LOOKS) }
    }

    /// What a look finds; none where that takes too long.
    pub(crate) fn look<T: Send + 'static>(
        &self,
        at: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if !self.is_needed() {
            return Some(at());
        }
        let place = self.looks.take((), 1)?;
        let longest = self.longest(Instant::now())?;
        let (sender, receiver) = mpsc::channel();
        let begun = Instant::now();
        let looks = thread::Builder::new().name("look".to_owned()).spawn(move || {
            let before = sleeps();
            let found = at();
            let has_waited = sleeps() != before;
            drop(place);
            // Nobody may wait for it any more.
            let _ = sender.send((found, has_waited));
        });
        looks.ok()?;
        let found = receiver.recv_timeout(longest).ok();
        // Whose memory was there is not charged for a processor that was busy.
        if found.as_ref().is_none_or(|(_, has_waited)| *has_waited) {
            let now = Instant::now();
            self.account().charge(now - begun, now);
        }
        found.map(|(found, _)| found)
    }

    /// Lets who has let others wait for too long wait itself, before it makes another call.
    pub(crate) fn settle(&self) {
        let owed = self.account().owed(Instant::now());
        if !owed.is_zero() {
            thread::sleep(owed);
        }
    }

    /// Reads into a buffer; says how many bytes.
    pub(crate) fn read(
        &self,
        into: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> usize + Send + 'static,
    ) -> usize {
        if !self.is_needed() {
            return read(into);
        }
        let mut bytes = vec![0; into.len()];
        let found = self.look(move || {
            let done = read(&mut bytes);
            (bytes, done)
        });
        let Some((bytes, done)) = found else { return 0 };
        into.copy_from_slice(&bytes);
        done
    }

    /// Writes from a buffer; says how many bytes. One that takes too long may still be done later.
    pub(crate) fn write(
        &self,
        from: &[u8],
        write: impl FnOnce(&[u8]) -> usize + Send + 'static,
    ) -> usize {
        if !self.is_needed() {
            return write(from);
        }
        let bytes = from.to_vec();
        self.look(move || write(&bytes)).unwrap_or(0)
    }

    /// Whether looks have to be made by other threads.
    fn is_needed(&self) -> bool {
        self.is_needed.load(Ordering::Acquire)
    }

    /// How long a look may take now. In the middle of a call, which cannot be put off any more, that is a little more
    /// than is left; who owes that too has to wait.
    fn longest(&self, now: Instant) -> Option<Duration> {
        let account = self.account();
        let may_look = account.owed(now) < LONGEST;
        may_look.then(|| account.left(now).clamp(SHORT, LONGEST))
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often this thread has waited for something.
fn sleeps() -> i64 {
    // SAFETY: `rusage` is of integers, so zeros are a value of it, and the kernel writes one: the local one.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage.ru_nvcsw
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn a_look_that_takes_too_long_is_left() {
        let patience = Patience::new(Arc::new(AtomicBool::new(true)));
        assert_eq!(patience.look(|| 7), Some(7));
        let (sender, receiver) = mpsc::channel::<()>();
        let (receiver, begun) = (Arc::new(Mutex::new(receiver)), Arc::new(AtomicUsize::new(0)));
        let endless = || {
            let (receiver, begun) = (receiver.clone(), begun.clone());
            patience.look(move || {
                begun.fetch_add(1, Ordering::Relaxed);
                receiver.lock().unwrap().recv().is_ok()
            })
        };
        for _ in 0..100 {
            assert_eq!(endless(), None);
        }
        // Four of them take all patience; what it lets others wait in the middle of a call is short.
        let begun = begun.load(Ordering::Relaxed);
        assert!((1..50).contains(&begun), "{begun} looks");
        // On a busy machine a look without patience may begin too late.
        let quick = || {
            patience.settle();
            patience.look(|| 7)
        };
        assert_eq!((0..100).find_map(|_| quick()), Some(7), "what is quick is found");
        drop(sender);
    }

    #[test]
    fn short_waits_count() {
        let now = Instant::now();
        let mut account = Account { settled: now };
        let short = Duration::from_millis(9);
        let looks = (1..).find(|_| {
            account.charge(short, now);
            !account.owed(now).is_zero()
        });
        assert_eq!(looks, Some(112), "a second of them");
        // From then on there is one in ten times as long.
        let mut later = now + account.owed(now);
        for _ in 0..50 {
            assert_eq!(
                (account.owed(later), account.left(later)),
                (Duration::ZERO, Duration::ZERO)
            );
            account.charge(short, later);
            assert_eq!(account.owed(later), short * 10);
            later += short * 10;
        }
        assert_eq!(account.left(later + ALL * 10), ALL, "and time makes up for all of it");
    }

    #[test]
    fn who_owes_is_not_looked_at() {
        let patience = Patience::new(Arc::new(AtomicBool::new(true)));
        for _ in 0..100 {
            assert_eq!(patience.look(|| 7), Some(7), "who lets nobody wait owes nothing");
        }
        patience.account().charge(ALL + SHORT, Instant::now());
        assert_eq!(patience.look(|| 7), Some(7), "a call is finished");
        patience.account().charge(LONGEST, Instant::now());
        assert_eq!(patience.look(|| 7), None);
    }

    #[test]
    fn looks_are_made_at_once_where_nobody_serves_files() {
        let patience = Patience::new(Arc::new(AtomicBool::new(false)));
        let thread = thread::current().id();
        assert_eq!(patience.look(|| thread::current().id()), Some(thread), "no thread is needed");
    }
}
