//! Handles that the driver chooses.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Status;

/// Handles of a range. Those that nobody has are kept as ranges, so that the next one is found as fast
/// where nearly all are taken.
#[derive(Debug)]
pub(super) struct Handles {
    all: Range<u32>,
    /// By their beginnings, their ends.
    free: BTreeMap<u32, u32>,
    next: u32,
}

impl Handles {
    pub(super) fn new(all: Range<u32>) -> Self {
        Self { free: BTreeMap::from([(all.start, all.end)]), next: all.start, all }
    }

    /// One that nobody has: the first from the one after the last that was chosen
    /// (S/rs_client.c: `clientGenResourceHandle_IMPL`). It is free until it is taken.
    pub(super) fn choose(&mut self) -> Result<u32, Status> {
        let found = match self.free_around(self.next) {
            Some(_) => Some(self.next),
            None => self.free.range(self.next..).next().or(self.free.iter().next()).map(|it| *it.0),
        };
        let handle = found.ok_or(Status::INSUFFICIENT_RESOURCES)?;
        self.next = if handle + 1 == self.all.end { self.all.start } else { handle + 1 };
        Ok(handle)
    }

    /// Somebody has it now. Those of another range are not looked after.
    pub(super) fn take(&mut self, handle: u32) {
        let Some((start, end)) = self.free_around(handle) else { return };
        self.free.remove(&start);
        for (start, end) in [(start, handle), (handle + 1, end)] {
            if start < end {
                self.free.insert(start, end);
            }
        }
    }

    /// Nobody has it any more.
    pub(super) fn give_back(&mut self, handle: u32) {
        if !self.all.contains(&handle) || self.free_around(handle).is_some() {
            return;
        }
        let before = self.free.range(..handle).next_back().filter(|(_, end)| **end == handle);
        let start = before.map_or(handle, |(start, _)| *start);
        let end = self.free.remove(&(handle + 1)).unwrap_or(handle + 1);
        self.free.insert(start, end);
    }

    /// The free range that a handle is in.
    fn free_around(&self, handle: u32) -> Option<(u32, u32)> {
        let (start, end) = self.free.range(..=handle).next_back()?;
        (handle < *end).then_some((*start, *end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chooses and takes.
    fn taken(handles: &mut Handles) -> Result<u32, Status> {
        let handle = handles.choose()?;
        handles.take(handle);
        Ok(handle)
    }

    #[test]
    fn where_all_handles_are_taken_there_is_an_error() {
        let mut handles = Handles::new(7..10);
        handles.take(8);
        for expected in [Ok(7), Ok(9), Err(Status::INSUFFICIENT_RESOURCES)] {
            assert_eq!(taken(&mut handles), expected);
        }
        handles.give_back(8);
        assert_eq!((taken(&mut handles), taken(&mut handles).is_err()), (Ok(8), true));
    }

    #[test]
    fn the_range_is_gone_through_before_one_comes_again() {
        let mut handles = Handles::new(1..5);
        assert_eq!((taken(&mut handles), taken(&mut handles)), (Ok(1), Ok(2)));
        handles.give_back(1);
        assert_eq!((handles.choose(), handles.choose()), (Ok(3), Ok(4)), "chosen, and not taken");
        assert_eq!((taken(&mut handles), taken(&mut handles)), (Ok(1), Ok(3)));
    }

    #[test]
    fn what_comes_back_is_one_range_again() {
        let mut handles = Handles::new(0..100);
        (0..100).for_each(|handle| handles.take(handle));
        assert_eq!((handles.free.len(), handles.choose().is_err()), (0, true));
        // In an order that leaves gaps first; those of other ranges and those that are there change nothing.
        (0..100)
            .step_by(2)
            .chain((1..100).step_by(2))
            .chain([100, 7])
            .for_each(|it| handles.give_back(it));
        assert_eq!(handles.free, BTreeMap::from([(0, 100)]));
    }
}
