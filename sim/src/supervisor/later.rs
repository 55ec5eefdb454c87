//! Calls that are not answered at once: one thread waits for all of them.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::links::Look;
use super::target::Target;
use super::{Handled, Run, Shared};
use crate::Errno;
use crate::client::Work;
use nvabi_supervise::Notification;

/// What is due when.
#[derive(Default)]
pub(super) struct Later {
    waiting: Mutex<Vec<Waiting>>,
    changed: Condvar,
}

/// A call that waits: until when, and what is left to do for it.
type Waiting = (Instant, Arc<Run>, Notification, Handled);

impl Later {
    fn add(&self, time: Duration, run: Arc<Run>, n: Notification, left: Handled) {
        self.waiting().push((Instant::now() + time, run, n, left));
        self.changed.notify_one();
    }

    /// Nobody need wait any longer.
    pub(super) fn stop(&self) {
        self.changed.notify_one();
    }

    /// What is due; waits for it, for a while.
    fn next(&self) -> Option<(Arc<Run>, Notification, Handled)> {
        let mut waiting = self.waiting();
        let now = Instant::now();
        let first = waiting.iter().enumerate().min_by_key(|(_, (due, ..))| *due);
        let (index, due) = first.map_or((0, None), |(index, (due, ..))| (index, Some(*due)));
        if due.is_some_and(|due| due <= now) {
            let (_, run, n, left) = waiting.swap_remove(index);
            return Some((run, n, left));
        }
        let time = due.map_or(NAP, |due| (due - now).min(NAP));
        // Whether it was in time makes no difference: the caller looks again.
        drop(self.changed.wait_timeout(waiting, time));
        None
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Longest time without a look at whether all is over.
const NAP: Duration = Duration::from_millis(100);

/// How long a call waits whose process is in a write, before that is looked at again.
const HOLD: Duration = Duration::from_millis(10);

impl Shared {
    /// Until the machine is over.
    pub(super) fn watch_time(&self) {
        while !self.is_over() {
            match self.later.next() {
                Some((run, n, Handled::AnswerLater(result, _))) => run.listener.answer(&n, result),
                Some((run, n, left)) => {
                    let counts = matches!(left, Handled::Held);
                    let left = run.dispatch(&n, counts, Look::AtOnce);
                    run.see_to(n, left);
                }
                None => {}
            }
        }
    }
}

impl Run {
    /// Sees to what is left to do for a call, now or later.
    pub(super) fn see_to(self: &Arc<Self>, n: Notification, left: Handled) {
        match left {
            Handled::Now => {}
            Handled::Later(time) | Handled::AnswerLater(_, time) => {
                self.later.add(time, self.clone(), n, left);
            }
            Handled::Held => self.later.add(HOLD, self.clone(), n, left),
            Handled::Work(name, work) => self.begin(n, name, work),
            Handled::Elsewhere => self.begin_elsewhere(n),
        }
    }

    fn begin(self: &Arc<Self>, n: Notification, name: String, work: Work) {
        let run = self.clone();
        let begun = thread::Builder::new().spawn(move || run.work(&n, &name, work));
        if begun.is_err() {
            self.listener.answer(&n, Err(Errno::ENOMEM));
        }
    }

    /// Looks at a call again where nobody waits for it but its caller.
    fn begin_elsewhere(self: &Arc<Self>, n: Notification) {
        let run = self.clone();
        let begun = thread::Builder::new().spawn(move || {
            let left = run.dispatch(&n, true, Look::Waits);
            run.see_to(n, left);
        });
        if begun.is_err() {
            self.listener.answer(&n, Err(Errno::ENOMEM));
        }
    }

    fn work(&self, n: &Notification, name: &str, work: Work) {
        let result = match self.threads.get(n.thread) {
            Ok(thread) => work(&Target::new(self, n, thread, Look::AtOnce)),
            Err(error) => Err(error.into()),
        };
        self.machine().log().count(name, result.err().map(|errno| errno.to_string()).as_deref());
        self.listener.answer(n, result);
    }
}
