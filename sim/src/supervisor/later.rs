//! Calls that are not answered at once: one thread waits for all of them.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::links::Look;
use super::target::Target;
use super::{Handled, Shared};
use crate::Errno;
use crate::client::Work;
use nvabi_supervise::Notification;

/// What is due when.
#[derive(Default)]
pub(super) struct Later {
    waiting: Mutex<Vec<(Instant, Notification, Handled)>>,
    changed: Condvar,
}

impl Later {
    fn add(&self, time: Duration, n: Notification, left: Handled) {
        self.waiting().push((Instant::now() + time, n, left));
        self.changed.notify_one();
    }

    /// Nobody need wait any longer.
    pub(super) fn stop(&self) {
        self.changed.notify_one();
    }

    /// What is due; waits for it, for a while.
    fn next(&self) -> Option<(Notification, Handled)> {
        let mut waiting = self.waiting();
        let now = Instant::now();
        let first = waiting.iter().enumerate().min_by_key(|(_, (due, ..))| *due);
        let (index, due) = first.map_or((0, None), |(index, (due, ..))| (index, Some(*due)));
        if due.is_some_and(|due| due <= now) {
            let (_, n, left) = waiting.swap_remove(index);
            return Some((n, left));
        }
        let time = due.map_or(NAP, |due| (due - now).min(NAP));
        // Whether it was in time makes no difference: the caller looks again.
        drop(self.changed.wait_timeout(waiting, time));
        None
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<(Instant, Notification, Handled)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Longest time without a look at whether all is over.
const NAP: Duration = Duration::from_millis(100);

impl Shared {
    /// Sees to what is left to do for a call, now or later.
    pub(super) fn see_to(self: &Arc<Self>, n: Notification, left: Handled) {
        match left {
            Handled::Now => {}
            Handled::Later(time) | Handled::AnswerLater(_, time) => self.later.add(time, n, left),
            Handled::Work(name, work) => self.begin(n, name, work),
            Handled::Elsewhere => self.begin_elsewhere(n),
        }
    }

    /// Until the run is over.
    pub(super) fn watch_time(self: &Arc<Self>) {
        while !self.is_over() {
            match self.later.next() {
                Some((n, Handled::AnswerLater(result, _))) => self.listener.answer(&n, result),
                Some((n, _)) => {
                    let left = self.dispatch(&n, false, Look::AtOnce);
                    self.see_to(n, left);
                }
                None => {}
            }
        }
    }

    fn begin(self: &Arc<Self>, n: Notification, name: String, work: Work) {
        let shared = self.clone();
        let begun = thread::Builder::new().spawn(move || shared.work(&n, &name, work));
        if begun.is_err() {
            self.listener.answer(&n, Err(Errno::ENOMEM));
        }
    }

    /// Looks at a call again where nobody waits for it but its caller.
    fn begin_elsewhere(self: &Arc<Self>, n: Notification) {
        let shared = self.clone();
        let begun = thread::Builder::new().spawn(move || {
            let left = shared.dispatch(&n, true, Look::Waits);
            shared.see_to(n, left);
        });
        if begun.is_err() {
            self.listener.answer(&n, Err(Errno::ENOMEM));
        }
    }

    fn work(&self, n: &Notification, name: &str, work: Work) {
        let result = match self.threads.get(n.thread) {
            Ok(thread) => work(&Target::new(self, n, thread)),
            Err(error) => Err(error.into()),
        };
        self.machine().log().count(name, result.err().map(|errno| errno.to_string()).as_deref());
        self.listener.answer(n, result);
    }
}
