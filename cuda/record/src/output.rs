//! From a launch's regions to the trace.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

use nvabi_trace::abi::r2 as abi;
use nvabi_trace::recording;
use nvabi_trace::{Launch, SiteRow, V2Writer};

/// Level of zstd: the writer is in the program's way.
const LEVEL: i32 = 1;

/// A trace being written.
pub(crate) struct Output {
    writer: V2Writer<BufWriter<File>>,
}

/// Words of a warp, as the device left them.
pub(crate) struct Region<'a> {
    pub(crate) warp: u32,
    /// Words that fitted.
    pub(crate) words: &'a [u64],
    /// Words that did not.
    pub(crate) lost: u64,
}

impl Output {
    /// Begins a file.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = recording::create(path)?;
        Ok(Self { writer: V2Writer::new(BufWriter::new(file), Some(LEVEL))? })
    }

    pub(crate) fn sites(&mut self, module: u32, first: u32, rows: &[SiteRow]) -> io::Result<()> {
        self.writer.sites(module, first, rows, false)
    }

    /// Writes a launch; `site` says the index in the module's table of what the device calls a site.
    pub(crate) fn launch<'a>(
        &mut self,
        launch: &Launch,
        module: u32,
        site: impl Fn(u32) -> u32,
        regions: impl Iterator<Item = Region<'a>>,
    ) -> io::Result<()> {
        self.writer.launch(launch, module)?;
        for region in regions {
            self.writer.warp(region.warp)?;
            let cut = each_event(region.words, |event| {
                event[0] = event[0] & !u64::from(abi::NVABI_TRACE_SITE)
                    | u64::from(site(event[0] as u32 & abi::NVABI_TRACE_SITE));
                self.writer.words(event)
            })?;
            self.writer.end_warp(region.lost + cut)?;
        }
        self.writer.end_launch()
    }

    pub(crate) fn finish(self) -> io::Result<()> {
        self.writer.finish().map(drop)
    }
}

/// Hands on the events of a region as the file has them. What comes back is the words of an event at
/// the end that did not fit.
fn each_event(
    mut words: &[u64],
    mut write: impl FnMut(&mut [u64]) -> io::Result<()>,
) -> io::Result<u64> {
    while let Some(first) = words.first() {
        let (ballot, len) = shape(*first);
        let Some((event, rest)) = words.split_at_checked(len) else {
            return Ok(words.len() as u64);
        };
        words = rest;
        let mut copy = [0; abi::NVABI_TRACE_EVENT_WORDS as usize];
        let copy = &mut copy[..event.len()];
        copy.copy_from_slice(event);
        if ballot {
            split(copy);
        }
        write(copy)?;
    }
    Ok(0)
}

/// Of an event, by its first word: whether a ballot follows, and its length in words.
fn shape(first: u64) -> (bool, usize) {
    let has = |flag: u32| first as u32 & flag != 0;
    let (ballot, value) = (has(abi::NVABI_TRACE_HAS_BALLOT), has(abi::NVABI_TRACE_HAS_VALUE));
    (ballot, 1 + usize::from(ballot) + usize::from(value))
}

/// The length of what a warp wrote to its region before a fault, where the rest is zero: an event has
/// lanes. The last one, whose second word is zero, may have been cut off.
pub(crate) fn written(words: &[u64]) -> usize {
    let mut end = 0;
    while let Some(first) = words.get(end).filter(|word| **word >> 32 != 0) {
        let next = end + shape(*first).1;
        let cut = next > end + 1 && words.get(next - 1).is_none_or(|word| *word == 0);
        if cut && words.get(next).is_none_or(|word| *word == 0) {
            break;
        }
        end = next;
    }
    end
}

/// Where lanes disagree, the device writes which lanes went the way of the lowest active one; the file
/// has those that took the branch.
fn split(event: &mut [u64]) {
    let (mask, same) = ((event[0] >> 32) as u32, event[1] as u32);
    let lowest_took = event[0] & u64::from(abi::NVABI_TRACE_TAKEN) != 0;
    event[1] = u64::from(if lowest_took { same } else { mask & !same });
}
