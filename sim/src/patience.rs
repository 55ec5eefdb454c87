//! Looks at the memory of programs, and how long they may take.
//!
//! A program can serve a file system (FUSE) and map a file of it: who touches that memory waits for the program. A
//! thread that waits so cannot be called back. So from the first file system on that a program has mounted, each look
//! is made by a thread of its own, which is left where it is when it takes too long.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::limits::Places;

/// The longest wait for one look.
const LONGEST: Duration = Duration::from_millis(250);
/// The longest, of who has let others wait for too long. Nobody counts waits that are shorter.
const SHORT: Duration = Duration::from_millis(10);
/// How long a run may let others wait in all.
const ALL: Duration = Duration::from_secs(1);

/// Looks that may be under way.
static LOOKS: Places = Places::new(64);

/// How long a run may still let others wait.
#[derive(Debug)]
pub(crate) struct Patience {
    /// Whether some program of the machine may serve a file system.
    is_needed: Arc<AtomicBool>,
    left: Mutex<Duration>,
}

impl Patience {
    pub(crate) fn new(is_needed: Arc<AtomicBool>) -> Self {
        Self { is_needed, left: Mutex::new(ALL) }
    }

    /// What a look finds; none where that takes too long.
    pub(crate) fn look<T: Send + 'static>(
        &self,
        at: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if !self.is_needed() {
            return Some(at());
        }
        let place = LOOKS.take()?;
        let (sender, receiver) = mpsc::channel();
        let begun = Instant::now();
        let looks = thread::Builder::new().name("look".to_owned()).spawn(move || {
            let found = at();
            drop(place);
            // Nobody may wait for it any more.
            let _ = sender.send(found);
        });
        looks.ok()?;
        let found = receiver.recv_timeout(self.longest()).ok();
        self.spend(begun.elapsed());
        found
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

    fn longest(&self) -> Duration {
        (*self.left.lock().unwrap_or_else(PoisonError::into_inner)).clamp(SHORT, LONGEST)
    }

    fn spend(&self, time: Duration) {
        if time > SHORT {
            let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
            *left = left.saturating_sub(time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_takes_too_long_is_left() {
        let patience = Patience::new(Arc::new(AtomicBool::new(true)));
        assert_eq!(patience.look(|| 7), Some(7));
        let (sender, receiver) = mpsc::channel::<()>();
        let receiver = Arc::new(Mutex::new(receiver));
        let endless = || {
            let receiver = receiver.clone();
            patience.look(move || receiver.lock().unwrap().recv().is_ok())
        };
        let begun = Instant::now();
        for _ in 0..10 {
            assert_eq!(endless(), None);
        }
        // Four of them, and then no more patience.
        assert!(begun.elapsed() >= ALL && begun.elapsed() < 2 * ALL, "{:?}", begun.elapsed());
        assert_eq!(patience.look(|| 7), Some(7), "what is quick is found");
        drop(sender);
    }

    #[test]
    fn looks_are_made_at_once_where_nobody_serves_files() {
        let patience = Patience::new(Arc::new(AtomicBool::new(false)));
        let thread = thread::current().id();
        assert_eq!(patience.look(|| thread::current().id()), Some(thread), "no thread is needed");
    }
}
