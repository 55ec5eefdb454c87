//! Synthetic traces: what warps do, written as either format.

use std::path::{Path, PathBuf};

use nvabi_trace::records::V1Event;
use nvabi_trace::{Event, EventKind, Launch, SiteRow, Trace, V1Header, V1Writer, V2Writer};

/// One warp, step after step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Warp {
    pub(crate) events: Vec<V1Event>,
    pub(crate) dropped: u32,
}

pub(crate) const ENTRY: u32 = 1;
pub(crate) const EXIT: u32 = 2;

impl Warp {
    pub(crate) fn step(&mut self, kind: EventKind, site: u32, direction: u8) -> &mut Self {
        let value = self.events.len() as u32;
        let mask = u32::MAX;
        let event = V1Event { site, kind: kind.0, direction, reserved: 0, mask, value };
        self.events.push(event);
        self
    }

    pub(crate) fn entry(&mut self) -> &mut Self {
        self.step(EventKind::ENTRY, ENTRY, 0)
    }

    pub(crate) fn exit(&mut self) -> &mut Self {
        self.step(EventKind::EXIT, EXIT, 0)
    }

    pub(crate) fn branch(&mut self, site: u32, taken: bool) -> &mut Self {
        self.step(EventKind::BRANCH, site, u8::from(taken))
    }

    pub(crate) fn store(&mut self, site: u32) -> &mut Self {
        self.step(EventKind::SHARED_STORE, site, 0)
    }

    /// `while (test) body`: the test is a branch at `site`, the body stores at `site + 1` on.
    pub(crate) fn top_tested(&mut self, site: u32, rounds: usize, stores: u32) -> &mut Self {
        for _ in 0..rounds {
            self.branch(site, true);
            self.stores(site + 1, stores);
        }
        self.branch(site, false)
    }

    /// `do body while (test)`.
    pub(crate) fn bottom_tested(&mut self, site: u32, rounds: usize, stores: u32) -> &mut Self {
        for round in 0..rounds {
            self.stores(site + 1, stores);
            self.branch(site, round + 1 < rounds);
        }
        self
    }

    /// Stores at `first`, `first + 1`, ….
    pub(crate) fn stores(&mut self, first: u32, count: u32) -> &mut Self {
        (first..first + count).for_each(|site| {
            self.store(site);
        });
        self
    }
}

/// Which format a trace is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    V1,
    V1Fixed,
    V2,
    /// With chunks that are not compressed.
    V2Stored,
}

pub(crate) const FORMATS: [Format; 4] = [Format::V1, Format::V1Fixed, Format::V2, Format::V2Stored];

pub(crate) fn write(path: &Path, format: Format, warps: &[Warp]) {
    let file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    match format {
        Format::V1 | Format::V1Fixed => {
            let longest = warps.iter().map(|warp| warp.events.len()).max().unwrap_or(0);
            let header = V1Header {
                kernel: "reduce".to_owned(),
                grid: [warps.len() as u32, 1, 1],
                block: [32, 1, 1],
                warps: warps.len() as u32,
                events_per_warp: longest as u32 + 3,
                fixed: format == Format::V1Fixed,
            };
            let mut out = V1Writer::new(file, &header).unwrap();
            for warp in warps {
                out.warp(&warp.events, warp.dropped).unwrap();
            }
            out.finish().unwrap();
        }
        Format::V2 | Format::V2Stored => {
            let level = (format == Format::V2).then_some(1);
            let mut out = V2Writer::new(file, level).unwrap();
            write_v2(&mut out, "reduce", warps, 0);
            out.finish().unwrap();
        }
    }
}

/// Writes a launch; its sites are of the module `module`, their lines are their numbers.
pub(crate) fn write_v2<W: std::io::Write>(
    out: &mut V2Writer<W>,
    kernel: &str,
    warps: &[Warp],
    module: u32,
) {
    let mut sites: Vec<u32> = warps.iter().flat_map(|w| &w.events).map(|e| e.site).collect();
    sites.sort_unstable();
    sites.dedup();
    let rows: Vec<SiteRow> = sites.iter().map(|site| row(*site)).collect();
    out.sites(module, 0, &rows, false).unwrap();
    let launch = Launch {
        kernel: kernel.to_owned(),
        grid: [warps.len() as u32, 1, 1],
        warps: warps.len() as u32,
        arch: 90,
        ..Launch::default()
    };
    out.launch(&launch, module).unwrap();
    for (number, warp) in (0..).zip(warps) {
        out.warp(number).unwrap();
        for event in &warp.events {
            let index = sites.binary_search(&event.site).unwrap() as u32;
            out.event(index, &wide(event)).unwrap();
        }
        out.end_warp(u64::from(warp.dropped)).unwrap();
    }
    out.end_launch().unwrap();
}

fn row(site: u32) -> SiteRow {
    SiteRow {
        key: u64::from(site),
        file: "kernel.cu".to_owned(),
        function: "reduce".to_owned(),
        line: site,
        column: 7,
        ..SiteRow::default()
    }
}

fn wide(event: &V1Event) -> Event {
    Event {
        site: u64::from(event.site),
        kind: EventKind(event.kind),
        direction: u32::from(event.direction),
        mask: event.mask,
        ballot: None,
        value: Some(u64::from(event.value)),
    }
}

/// A folder with two traces.
pub(crate) struct Pair {
    pub(crate) folder: tempfile::TempDir,
}

impl Pair {
    pub(crate) fn new(a: (Format, &[Warp]), b: (Format, &[Warp])) -> Self {
        let pair = Self { folder: tempfile::tempdir().unwrap() };
        write(&pair.path("a"), a.0, a.1);
        write(&pair.path("b"), b.0, b.1);
        pair
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn open(&self) -> (Trace, Trace) {
        (Trace::open(self.path("a")).unwrap(), Trace::open(self.path("b")).unwrap())
    }
}

/// Numbers that look random and are the same each time.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
