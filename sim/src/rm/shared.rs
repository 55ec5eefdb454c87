//! Records that programs map, and that say what a GPU's values are: RM_USER_SHARED_DATA
//! (`src/nvidia/src/kernel/gpu/gpu_user_shared_data.c`).

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::Driver;
use super::interface::Params;
use super::memory::{Buffer, Of};
use crate::Status;
use crate::rm::failed::Result;

/// How old the values may be.
const AGE: Duration = Duration::from_millis(100);

/// All such records.
#[derive(Debug, Default)]
pub(super) struct Shown {
    records: Vec<(Weak<Buffer>, String)>,
    written: Option<Instant>,
}

impl Driver {
    /// Memory that shows a record of a GPU's.
    pub(super) fn show_record(&mut self, gpu: usize, record: &str) -> Result<Arc<Buffer>> {
        let size = self.interface.size(record).ok_or(Status::INVALID_CLASS)?;
        let buffer = Arc::new(self.buffer(size as u64, gpu, Of::System)?);
        self.shown.records.push((Arc::downgrade(&buffer), record.to_owned()));
        self.shown.written = None;
        self.refresh_records();
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
            let Some(buffer) = buffer.upgrade() else { continue };
            // Nobody is there any more to write what it says.
            if self.gpus.get(buffer.gpu).is_some_and(|gpu| gpu.is_lost) {
                continue;
            }
            let mut params = Params::of(&self.interface, &record, Vec::new());
            self.fill_shared(buffer.gpu, &record, &mut params);
            if let Some(memory) = buffer.memory() {
                // Both have the size of the record.
                memory.write(0, &params.bytes);
            }
        }
    }

    /// After a change of what GPUs say.
    pub(super) fn rewrite_records(&mut self) {
        self.shown.written = None;
        self.refresh_records();
    }
}
