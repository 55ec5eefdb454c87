//! From findings, one by one, to a [`Report`]: all are counted, some are kept.
//!
//! Memory does not grow with the findings: the first of each warp are kept up to a limit, then
//! others; groups and pictures have limits of their own.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::report::{
    Finding, FindingKind, Group, GroupKey, Launch, Map, Note, Report, SCHEMA, Source, Status,
};

/// Sites and kinds that are told apart, over all launches.
const GROUPS: usize = 1 << 16;
/// Notes of one kind that are kept.
const NOTES: u64 = 100;
/// Launches that get a picture.
const MAPS: usize = 32;
/// The largest picture of a launch.
const ROWS: u64 = 128;
const COLUMNS: u64 = 256;

/// Where a finding is, and which one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FindingKey {
    /// The launch, an index into the collector's.
    pub launch: u32,
    /// The warp.
    pub warp: u32,
    /// How the traces part.
    pub kind: FindingKind,
    /// Where.
    pub site: u64,
    /// The event in the warp of A.
    pub index_a: u64,
}

/// What is known of a comparison beside its findings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// The first trace, as it was given.
    pub a: String,
    /// The second.
    pub b: String,
    /// Whether values were compared.
    pub values_compared: bool,
}

/// Gathers findings. A warp's findings go to one collector, in the order of its events, and warps in
/// their order; collectors of other warps can be [absorbed](Self::absorb).
#[derive(Debug, Clone)]
pub struct Collector {
    limit: usize,
    launches: Vec<Launch>,
    /// Warps, and events of the longest, by launch: how large a picture is.
    sizes: Vec<(u64, u64)>,
    maps: usize,
    last: Option<(u32, u32)>,
    total: u64,
    overflowed: u64,
    ungrouped: u64,
    groups: Groups,
    cell: Cell,
    firsts: Vec<Finding>,
    others: Vec<Finding>,
    notes: Vec<Note>,
    dropped_notes: FxHashMap<&'static str, u64>,
}

/// Findings by launch, site and kind.
#[derive(Debug, Clone)]
struct Groups {
    tallies: Vec<(GroupKey, Tally)>,
    places: FxHashMap<GroupKey, u32>,
    /// Where the groups of some sites are: warps come to few sites again and again.
    recent: [u32; RECENT],
}

const RECENT: usize = 256;

impl Default for Groups {
    fn default() -> Self {
        Self { tallies: Vec::new(), places: FxHashMap::default(), recent: [0; RECENT] }
    }
}

impl Groups {
    /// The tally of a group; none where there are too many.
    #[inline]
    fn tally(&mut self, key: GroupKey) -> Option<&mut Tally> {
        let recent = (key.1 as usize ^ ((key.2 as usize) << 5)) % RECENT;
        let at = match self.tallies.get(self.recent[recent] as usize) {
            Some((other, _)) if *other == key => self.recent[recent],
            _ => {
                let at = self.place(key)?;
                self.recent[recent] = at;
                at
            }
        };
        self.tallies.get_mut(at as usize).map(|(_, tally)| tally)
    }

    fn place(&mut self, key: GroupKey) -> Option<u32> {
        let full = self.tallies.len() >= GROUPS;
        match self.places.entry(key) {
            Entry::Occupied(entry) => Some(*entry.get()),
            Entry::Vacant(_) if full => None,
            Entry::Vacant(entry) => {
                self.tallies.push((key, Tally::default()));
                Some(*entry.insert(self.tallies.len() as u32 - 1))
            }
        }
    }
}

/// The cell of a picture that was drawn last: what comes next is mostly in it.
#[derive(Debug, Clone, Default)]
struct Cell {
    launch: u32,
    warp: u32,
    events: Range<u64>,
    at: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    findings: u64,
    warps: u64,
    first_in: u64,
    /// The warp of the last finding, and one more.
    last: u64,
}

impl Collector {
    /// A collector that keeps `limit` findings, over `launches` with the events of their longest
    /// warps.
    pub fn new(limit: usize, launches: Vec<(Launch, u64)>) -> Self {
        let sizes = launches.iter().map(|(launch, longest)| (launch.warps, *longest)).collect();
        let launches = launches.into_iter().map(|(launch, _)| launch).collect();
        Self {
            limit,
            launches,
            sizes,
            maps: 0,
            last: None,
            total: 0,
            overflowed: 0,
            ungrouped: 0,
            groups: Groups::default(),
            cell: Cell::default(),
            firsts: Vec::new(),
            others: Vec::new(),
            notes: Vec::new(),
            dropped_notes: FxHashMap::default(),
        }
    }

    /// A collector of the same launches that has found nothing, for warps that another thread takes.
    pub fn empty(&self) -> Self {
        let mut launches = self.launches.clone();
        for launch in &mut launches {
            (launch.warps, launch.warps_divergent) = (0, 0);
            (launch.events_a, launch.events_b) = (0, 0);
            launch.map = None;
        }
        Self {
            sizes: self.sizes.clone(),
            maps: self.maps,
            ..Self::new(self.limit, launches.into_iter().map(|launch| (launch, 0)).collect())
        }
    }

    /// Counts a warp of a launch that is compared.
    pub fn count_warp(&mut self, launch: u32) {
        if let Some(launch) = self.launches.get_mut(launch as usize) {
            launch.warps += 1;
        }
    }

    /// Counts events of a launch.
    pub fn count_events(&mut self, launch: u32, a: u64, b: u64) {
        if let Some(launch) = self.launches.get_mut(launch as usize) {
            launch.events_a += a;
            launch.events_b += b;
        }
    }

    /// Whether a finding will be kept, so that it is worth telling in full.
    pub fn keeps(&self, place: &FindingKey) -> bool {
        let first = self.last != Some((place.launch, place.warp));
        let kept = if first { &self.firsts } else { &self.others };
        kept.len() < self.limit
    }

    /// Counts a finding; `finding` tells it in full, and is asked only if it is kept.
    pub fn add(&mut self, place: FindingKey, finding: impl FnOnce() -> Finding) {
        let at = (place.launch, place.warp);
        let first = self.last != Some(at);
        self.last = Some(at);
        self.total += 1;
        self.count(place, first);
        self.draw(place, first);
        let kept = if first { &mut self.firsts } else { &mut self.others };
        if kept.len() < self.limit {
            kept.push(Finding { first, ..finding() });
        }
    }

    fn count(&mut self, place: FindingKey, first: bool) {
        let Some(tally) = self.groups.tally((place.launch, place.site, place.kind)) else {
            self.ungrouped += 1;
            return;
        };
        let warp = u64::from(place.warp) + 1;
        tally.findings += 1;
        tally.warps += u64::from(tally.last != warp);
        tally.first_in += u64::from(first);
        tally.last = warp;
    }

    fn draw(&mut self, place: FindingKey, first: bool) {
        let at = place.launch as usize;
        let Some(launch) = self.launches.get_mut(at) else { return };
        launch.warps_divergent += u64::from(first);
        if launch.map.is_none() && self.maps < MAPS {
            let (warps, longest) = self.sizes.get(at).copied().unwrap_or_default();
            launch.map = Some(Map::new(warps, longest));
            self.maps += 1;
        }
        let Some(map) = &mut launch.map else { return };
        let cell = &mut self.cell;
        let there = (cell.launch, cell.warp) == (place.launch, place.warp);
        if !there || !cell.events.contains(&place.index_a) {
            let (at, events) = map.cell(u64::from(place.warp), place.index_a);
            *cell = Cell { launch: place.launch, warp: place.warp, events, at };
        }
        map.count(cell.at);
    }

    /// Says that a warp lost events.
    pub fn overflow(&mut self, launch: u32, warp: u32, lost_a: u64, lost_b: u64) {
        self.overflowed += 1;
        self.note(Note::Overflow { launch, warp, lost_a, lost_b });
    }

    /// Adds a note; of each kind some are kept and all counted.
    pub fn note(&mut self, note: Note) {
        let name = note.name();
        let same = self.notes.iter().filter(|other| other.name() == name).count() as u64;
        match same < NOTES {
            true => self.notes.push(note),
            false => *self.dropped_notes.entry(name).or_default() += 1,
        }
    }

    /// Takes over what another collector, of the same launches and of other warps, has found.
    pub fn absorb(&mut self, other: Self) {
        self.total += other.total;
        self.overflowed += other.overflowed;
        self.ungrouped += other.ungrouped;
        for (launch, theirs) in self.launches.iter_mut().zip(other.launches) {
            launch.warps += theirs.warps;
            launch.warps_divergent += theirs.warps_divergent;
            launch.events_a += theirs.events_a;
            launch.events_b += theirs.events_b;
            match (&mut launch.map, theirs.map) {
                (Some(map), Some(theirs)) => map.absorb(&theirs),
                (map @ None, theirs) => *map = theirs,
                (Some(_), None) => {}
            }
        }
        for (key, theirs) in other.groups.tallies {
            let Some(ours) = self.groups.tally(key) else {
                self.ungrouped += theirs.findings;
                continue;
            };
            ours.findings += theirs.findings;
            ours.warps += theirs.warps;
            ours.first_in += theirs.first_in;
        }
        self.firsts = merged(std::mem::take(&mut self.firsts), other.firsts, self.limit);
        self.others = merged(std::mem::take(&mut self.others), other.others, self.limit);
        other.notes.into_iter().for_each(|note| self.note(note));
        for (name, count) in other.dropped_notes {
            *self.dropped_notes.entry(name).or_default() += count;
        }
    }

    /// The report; `source` knows the lines of the sites.
    pub fn finish(self, about: About, source: impl Fn(u64) -> Option<Source>) -> Report {
        let status = self.status();
        let warps_divergent = self.launches.iter().map(|launch| launch.warps_divergent).sum();
        let mut findings = self.firsts;
        findings.extend(self.others.into_iter().take(self.limit - findings.len()));
        findings.sort_by_key(Finding::order);
        let groups = groups(self.groups.tallies);
        let sites = findings.iter().flat_map(Finding::sites).chain(groups.iter().map(|g| g.site));
        let sources: BTreeMap<u64, Source> =
            sites.filter_map(|site| Some((site, source(site)?))).collect();
        for finding in &mut findings {
            finding.source = sources.get(&finding.site).cloned();
        }
        Report {
            schema: SCHEMA,
            status,
            a: about.a,
            b: about.b,
            warps_compared: self.launches.iter().map(|launch| launch.warps).sum(),
            warps_divergent,
            overflowed: self.overflowed,
            values_compared: about.values_compared,
            total_findings: self.total,
            findings,
            groups,
            launches: self.launches,
            sources,
            notes: notes(self.notes, self.dropped_notes, self.ungrouped),
        }
    }

    fn status(&self) -> Status {
        let has = |name| self.notes.iter().any(|note| note.name() == name);
        if self.total > 0 || has("unmatched") {
            return Status::Different;
        }
        if self.overflowed > 0 || has("damaged") {
            return Status::Incomparable;
        }
        Status::Identical
    }
}

fn merged(mut ours: Vec<Finding>, theirs: Vec<Finding>, limit: usize) -> Vec<Finding> {
    ours.extend(theirs);
    ours.sort_by_key(Finding::order);
    ours.truncate(limit);
    ours
}

fn groups(tallies: Vec<(GroupKey, Tally)>) -> Vec<Group> {
    let group = |((launch, site, kind), tally): (GroupKey, Tally)| {
        let Tally { findings, warps, first_in, .. } = tally;
        Group { launch, site, kind, findings, warps, first_in }
    };
    let mut groups: Vec<Group> = tallies.into_iter().map(group).collect();
    // What comes first in most warps is nearest to the cause.
    groups.sort_by_key(|group| {
        let Group { launch, site, kind, findings, first_in, .. } = *group;
        (u64::MAX - first_in, u64::MAX - findings, launch, site, kind)
    });
    groups
}

fn notes(mut notes: Vec<Note>, dropped: FxHashMap<&'static str, u64>, ungrouped: u64) -> Vec<Note> {
    notes.sort();
    let mut more: Vec<_> = dropped.into_iter().collect();
    if ungrouped > 0 {
        more.push(("findings-in-no-group", ungrouped));
    }
    more.sort_unstable();
    notes.extend(more.into_iter().map(|(of, count)| Note::More { of, count }));
    notes
}

impl Finding {
    /// A finding of which no more is known than where it is.
    pub fn at(place: FindingKey, index_b: u64) -> Self {
        let FindingKey { launch, warp, kind, site, index_a } = place;
        Self {
            launch,
            warp,
            kind,
            site,
            index_a,
            index_b,
            first: false,
            lanes: None,
            count: None,
            resync_a: None,
            resync_b: None,
            source: None,
            event_a: None,
            event_b: None,
            class: None,
            history: Vec::new(),
        }
    }

    fn order(&self) -> (u32, u32, u64, u64) {
        (self.launch, self.warp, self.index_a, self.index_b)
    }
}

impl Map {
    /// An empty picture of `warps` warps, the longest with `events` events.
    pub fn new(warps: u64, events: u64) -> Self {
        let (warps, events) = (warps.max(1), events.max(1));
        let (warps_per_row, events_per_column) = (warps.div_ceil(ROWS), events.div_ceil(COLUMNS));
        let rows = warps.div_ceil(warps_per_row) as usize;
        let columns = events.div_ceil(events_per_column) as usize;
        Self { warps_per_row, events_per_column, rows, columns, counts: vec![0; rows * columns] }
    }

    /// Counts a finding; what lies beyond the picture counts at its edge.
    pub fn add(&mut self, warp: u64, index: u64) {
        let (at, _) = self.cell(warp, index);
        self.count(at);
    }

    /// Where a finding is counted, and the events of the warp that are counted there too.
    fn cell(&self, warp: u64, index: u64) -> (usize, Range<u64>) {
        let row = ((warp / self.warps_per_row) as usize).min(self.rows - 1);
        let column = (index / self.events_per_column).min(self.columns as u64 - 1);
        let first = column * self.events_per_column;
        (row * self.columns + column as usize, first..first + self.events_per_column)
    }

    #[inline]
    fn count(&mut self, at: usize) {
        if let Some(count) = self.counts.get_mut(at) {
            *count = count.saturating_add(1);
        }
    }

    fn absorb(&mut self, other: &Self) {
        for (ours, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *ours = ours.saturating_add(*theirs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(warps: u64) -> (Launch, u64) {
        let launch = Launch {
            kernel: "k".to_owned(),
            order: 0,
            grid: [1; 3],
            block: [32, 1, 1],
            warps,
            warps_divergent: 0,
            events_a: 0,
            events_b: 0,
            map: None,
        };
        (launch, 1000)
    }

    fn add(collector: &mut Collector, warp: u32, site: u64, index_a: u64) {
        let place = FindingKey { launch: 0, warp, kind: FindingKind::Mask, site, index_a };
        collector.add(place, || Finding::at(place, index_a));
    }

    fn report(collector: Collector) -> Report {
        collector.finish(About::default(), |_| None)
    }

    /// Site 7 is first in each warp, site 9 follows twice.
    fn warps(collector: &mut Collector, warps: std::ops::Range<u32>) {
        for warp in warps {
            add(collector, warp, 7, 10);
            add(collector, warp, 9, 20);
            add(collector, warp, 9, 30);
        }
    }

    #[test]
    fn counts_all_and_keeps_the_first_of_each_warp() {
        let mut collector = Collector::new(5, vec![launch(4)]);
        warps(&mut collector, 0..4);
        let report = report(collector);
        assert_eq!((report.total_findings, report.warps_divergent), (12, 4));
        let kept: Vec<_> = report.findings.iter().map(|f| (f.warp, f.index_a, f.first)).collect();
        let firsts = [(0, 10, true), (0, 20, false), (1, 10, true), (2, 10, true), (3, 10, true)];
        assert_eq!(kept, firsts);
        let groups: Vec<_> =
            report.groups.iter().map(|g| (g.site, g.findings, g.warps, g.first_in)).collect();
        assert_eq!(groups, [(7, 4, 4, 4), (9, 8, 4, 0)]);
    }

    #[test]
    fn does_not_tell_how_warps_were_shared_out() {
        let mut whole = Collector::new(5, vec![launch(4)]);
        warps(&mut whole, 0..4);
        let mut parts = Collector::new(5, vec![launch(4)]);
        let mut other = parts.empty();
        warps(&mut parts, 2..4);
        warps(&mut other, 0..2);
        parts.absorb(other);
        assert_eq!(report(parts), report(whole));
    }

    #[test]
    fn asks_for_no_finding_that_is_not_kept() {
        let mut collector = Collector::new(0, vec![launch(1)]);
        let place = FindingKey { launch: 0, warp: 0, kind: FindingKind::Path, site: 1, index_a: 0 };
        collector.add(place, || unreachable!("the limit is zero"));
        assert_eq!(report(collector).total_findings, 1);
    }

    #[test]
    fn lost_events_are_never_identical() {
        let mut collector = Collector::new(5, vec![launch(200)]);
        assert_eq!(report(collector.clone()).status, Status::Identical);
        for warp in 0..200 {
            collector.overflow(0, warp, 1, 0);
        }
        let report = report(collector);
        assert_eq!((report.status, report.overflowed), (Status::Incomparable, 200));
        assert_eq!(report.notes.len(), 101);
        assert_eq!(report.notes.last(), Some(&Note::More { of: "overflow", count: 100 }));
    }

    #[test]
    fn pictures_have_bounded_size() {
        let map = Map::new(100_000, 5_000_000);
        assert!(map.rows <= 128 && map.columns <= 256, "{} × {}", map.rows, map.columns);
        let mut map = Map::new(3, 10);
        assert_eq!((map.rows, map.columns), (3, 10));
        map.add(2, 9);
        map.add(7, 70);
        assert_eq!(map.counts.last(), Some(&2));
    }
}
