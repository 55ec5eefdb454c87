//! Work over a slice, spread over threads.

use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

static THREADS: OnceLock<NonZero<usize>> = OnceLock::new();

/// Says how many threads this process works with; nothing that it writes depends on it. Without,
/// there are as many as the machine has. The first word counts.
pub fn set_threads(count: NonZero<usize>) {
    let _ = THREADS.set(count);
}

/// How many threads to work with.
pub(crate) fn threads() -> usize {
    let machine = || thread::available_parallelism().ok();
    THREADS.get().copied().or_else(machine).map_or(1, NonZero::get)
}

/// `job` of each item, in order, whichever thread did it.
pub fn map<'t, T: Sync, R: Send>(items: &'t [T], job: impl Fn(&'t T) -> R + Sync) -> Vec<R> {
    let threads = threads().min(items.len());
    if threads < 2 {
        return items.iter().map(job).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(i) else { return done };
            done.push((i, job(item)));
        }
    };
    let mut done = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for other in others {
            match other.join() {
                Ok(more) => done.extend(more),
                // A panic of the job is the caller's, as it would be without threads.
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Two jobs, the first on a thread of its own where there are threads.
pub fn both<A: Send, B>(first: impl FnOnce() -> A + Send, second: impl FnOnce() -> B) -> (A, B) {
    if threads() < 2 {
        return (first(), second());
    }
    thread::scope(|scope| {
        let first = scope.spawn(first);
        let second = second();
        match first.join() {
            Ok(first) => (first, second),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn keeps_the_order() {
        let items: Vec<u32> = (0..1000).collect();
        assert_eq!(super::map(&items, |i| i * 2), items.iter().map(|i| i * 2).collect::<Vec<_>>());
        assert!(super::map(&[] as &[u32], |i| *i).is_empty());
    }
}
