//! Names for objects. A client chooses them; the resource manager refuses one that is taken.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::error::ErrorKind;
use crate::Handle;
use crate::ioctl::Failure;

/// Below the ranges that the resource manager makes handles in by itself.
const FIRST: u32 = 0x4e00_0001;
const LAST: u32 = 0x4eff_ffff;

/// The handles of one client: those that came back are given out again, the oldest first.
#[derive(Debug)]
pub(super) struct Handles(Mutex<State>);

#[derive(Debug)]
struct State {
    next: u32,
    free: VecDeque<u32>,
}

impl Handles {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State { next: FIRST, free: VecDeque::new() }))
    }

    /// Makes something under a new handle. That comes back where the resource manager has refused: after
    /// another failure the object may be there, as when the kernel could not copy the answer.
    pub(super) fn with_new(
        &self,
        make: impl FnOnce(Handle) -> Result<(), Failure>,
    ) -> Result<Handle, ErrorKind> {
        let no_handle = ErrorKind::Invalid("the client has no handle left");
        let handle = self.take().ok_or(no_handle)?;
        let made = make(handle);
        if let Err(Failure::Status(_)) = made {
            self.give_back(handle);
        }
        made?;
        Ok(handle)
    }

    /// One that no object has; `None` when all are taken.
    fn take(&self) -> Option<Handle> {
        let mut state = self.lock();
        if let Some(handle) = state.free.pop_front() {
            return Some(Handle(handle));
        }
        let handle = state.next;
        state.next += u32::from(handle <= LAST);
        (handle <= LAST).then_some(Handle(handle))
    }

    /// Takes one back: its object is gone, or never was.
    pub(super) fn give_back(&self, handle: Handle) {
        self.lock().free.push_back(handle.0);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Nothing is left half done when a thread that holds it panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::NvStatus;

    #[test]
    fn a_handle_is_given_out_once_until_it_comes_back() {
        let handles = Handles::new();
        let taken: BTreeSet<_> = (0..100).filter_map(|_| handles.take()).collect();
        assert_eq!(taken.len(), 100);
        handles.give_back(Handle(FIRST + 7));
        handles.give_back(Handle(FIRST + 3));
        assert_eq!(handles.take(), Some(Handle(FIRST + 7)));
        assert_eq!(handles.take(), Some(Handle(FIRST + 3)));
        assert_eq!(handles.take(), Some(Handle(FIRST + 100)));
    }

    #[test]
    fn only_a_refused_one_comes_back() {
        let handles = Handles::new();
        let failing = |failure| handles.with_new(|_| Err(failure)).is_err();
        assert!(failing(Failure::Status(NvStatus::NV_ERR_NO_MEMORY)));
        assert_eq!(handles.take(), Some(Handle(FIRST)));
        assert!(failing(Failure::Errno(libc::EFAULT)));
        assert_eq!(handles.take(), Some(Handle(FIRST + 2)));
    }

    #[test]
    fn threads_share_them() {
        let handles = Handles::new();
        let take = || (0..1000).filter_map(|_| handles.take()).collect::<Vec<_>>();
        let all: BTreeSet<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
        });
        assert_eq!(all.len(), 4000);
    }

    #[test]
    fn they_come_to_an_end() {
        let handles = Handles(Mutex::new(State { next: LAST, free: VecDeque::new() }));
        assert_eq!(handles.take(), Some(Handle(LAST)));
        assert_eq!((handles.take(), handles.take()), (None, None));
        handles.give_back(Handle(LAST));
        assert_eq!(handles.take(), Some(Handle(LAST)));
    }
}
