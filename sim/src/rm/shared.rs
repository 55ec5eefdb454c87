//! Records that programs map, and that say what a GPU's values are: RM_USER_SHARED_DATA
//! (`src/nvidia/src/kernel/gpu/gpu_user_shared_data.c`).

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::interface::Params;
use super::memory::{Buffer, Of};
use super::{Driver, counters};
use crate::Status;
use crate::memory::Memory;
use crate::rm::failed::{Failed, Result};

/// How old the values may be.
const AGE: Duration = Duration::from_millis(100);

/// When the values beside it were written, and what is there while they change (RUSD_TIMESTAMP_WRITE_IN_PROGRESS): a
/// program reads it before the values and after them.
const TIME: &str = "lastModifiedTimestamp";
const IN_PROGRESS: u64 = u64::MAX;

/// All such records.
#[derive(Debug, Default)]
pub(super) struct Shown {
    records: Vec<(Weak<Buffer>, String)>,
    written: Option<Instant>,
}

impl Driver {
    /// Memory that shows counters of a GPU's, by the file of the GPU.
    pub(super) fn show_counters(&mut self, gpu: usize) -> Result<Arc<Buffer>> {
        // Instances have counters of their own.
        if self.is_mig_enabled(gpu) {
            let what = format!("class {} of instances", counters::CLASS);
            return Err(Failed::NotSimulated(Status::NOT_SUPPORTED, what));
        }
        let buffer = Arc::new(self.buffer(counters::BYTES, gpu, Of::Counters)?);
        self.shown.records.push((Arc::downgrade(&buffer), counters::CLASS.to_owned()));
        self.write_counters(&buffer);
        Ok(buffer)
    }

    /// Memory that shows a record of a GPU's.
    pub(super) fn show_record(&mut self, gpu: usize, record: &str) -> Result<Arc<Buffer>> {
        let size = self.interface.size(record).ok_or(Status::INVALID_CLASS)?;
        let buffer = Arc::new(self.buffer(size as u64, gpu, Of::System)?);
        self.shown.records.push((Arc::downgrade(&buffer), record.to_owned()));
        self.write_record(&buffer, record);
        Ok(buffer)
    }

    /// Writes what changed with time.
    pub(super) fn refresh_records(&mut self) {
        if self.shown.records.is_empty() || self.shown.written.is_some_and(|it| it.elapsed() < AGE)
        {
            return;
        }
        self.shown.written = Some(Instant::now());
        self.shown.records.retain(|(buffer, _)| buffer.strong_count() > 0);
        for (buffer, record) in self.shown.records.clone() {
            if let Some(buffer) = buffer.upgrade() {
                self.write_record(&buffer, &record);
            }
        }
    }

    fn write_record(&mut self, buffer: &Buffer, record: &str) {
        // Nobody is there any more to write what a GPU says that is lost.
        if self.gpus.get(buffer.gpu).is_some_and(|gpu| gpu.is_lost) {
            return;
        }
        if record == counters::CLASS {
            return self.write_counters(buffer);
        }
        let mut params = Params::of(&self.interface, record, Vec::new());
        self.fill_shared(buffer.gpu, record, &mut params);
        if let Some(memory) = buffer.memory() {
            write(memory, params);
        }
    }

    /// After a change of what GPUs say.
    pub(super) fn rewrite_records(&mut self) {
        self.shown.written = None;
        self.refresh_records();
    }
}

/// Writes a record so that nobody takes values of two times for those of one. Both have the size of the record.
fn write(memory: &Memory, mut params: Params) {
    let times: Vec<(usize, u64)> =
        params.places_within(TIME).map(|place| (place.offset, params.number_at(place))).collect();
    for (at, _) in &times {
        memory.put(*at as u64, &IN_PROGRESS.to_le_bytes());
        params.bytes[*at..*at + 8].copy_from_slice(&IN_PROGRESS.to_le_bytes());
    }
    fence(Ordering::SeqCst);
    memory.write(0, &params.bytes);
    fence(Ordering::SeqCst);
    for (at, time) in times {
        memory.put(at as u64, &time.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::super::interface::{Field, Interface, Layout};
    use super::*;

    fn field(name: &str, offset: usize, size: usize, record: &str) -> Field {
        let record = (!record.is_empty()).then(|| record.to_owned());
        Field { name: name.to_owned(), offset, size, count: 1, record }
    }

    #[test]
    fn nobody_reads_half_of_what_is_written() {
        let part =
            Layout { size: 16, fields: vec![field(TIME, 0, 8, ""), field("value", 8, 8, "")] };
        let whole =
            Layout { size: 24, fields: vec![field("seq", 0, 8, ""), field("part", 8, 16, "part")] };
        let records = [("part", part), ("whole", whole)].map(|(name, it)| (name.to_owned(), it));
        let interface =
            Arc::new(Interface { records: records.into_iter().collect(), ..Interface::default() });
        let memory = Memory::new(4096).unwrap_or_else(|error| unreachable!("{error}"));
        let look = |at| {
            let mut word = [0; 8];
            memory.read(at, &mut word);
            u64::from_le_bytes(word)
        };
        let (mut seen, mut torn) = (0, 0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for time in 1..50_000_u64 {
                    let mut params = Params::of(&interface, "whole", Vec::new());
                    params.set_if_any("part.value", time);
                    params.set_if_any("part.lastModifiedTimestamp", time);
                    write(&memory, params);
                }
            });
            while !writer.is_finished() {
                let (before, value, after) = (look(8), look(16), look(8));
                if before == after && before != IN_PROGRESS {
                    seen += 1;
                    torn += u64::from(value != before);
                }
            }
        });
        assert_eq!((torn, look(8), look(16)), (0, 49_999, 49_999), "of {seen} readings");
        assert!(seen > 0, "nothing was read");
    }
}
