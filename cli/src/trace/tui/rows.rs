//! Events of two warps side by side: which of A stands beside which of B.

use std::ops::Range;

use nvabi_trace::report::Finding;

/// Events that stand beside none that is the same.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Gap {
    row: u64,
    a: Range<u64>,
    b: Range<u64>,
}

/// The rows of a warp: events in step, but for gaps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rows {
    gaps: Vec<Gap>,
    events_a: u64,
    events_b: u64,
}

/// What stands in a row, by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) a: Option<u64>,
    pub(crate) b: Option<u64>,
    /// Whether its events do not belong together.
    pub(crate) apart: bool,
}

impl Gap {
    fn rows(&self) -> u64 {
        length(&self.a).max(length(&self.b))
    }
}

fn length(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

impl Rows {
    /// Rows of warps with so many events; findings tell where one of them has more. Findings that
    /// do not follow each other are passed over.
    pub(crate) fn new(findings: &[Finding], events_a: u64, events_b: u64) -> Self {
        let mut rows = Self { gaps: Vec::new(), events_a, events_b };
        for finding in findings {
            let (Some(end_a), Some(end_b)) = (finding.resync_a, finding.resync_b) else { continue };
            let (a, b) = (finding.index_a..end_a, finding.index_b..end_b);
            let (from_a, from_b, row) = rows.last();
            let step = a.start.checked_sub(from_a).filter(|step| from_b + step == b.start);
            let (Some(step), true) = (step, end_a <= events_a && end_b <= events_b) else {
                continue;
            };
            if length(&a).max(length(&b)) > 0 {
                rows.gaps.push(Gap { row: row + step, a, b });
            }
        }
        rows
    }

    /// Where the step goes on behind the last gap: the events and the row.
    fn last(&self) -> (u64, u64, u64) {
        self.gaps.last().map_or((0, 0, 0), after)
    }

    /// How many rows there are.
    pub(crate) fn count(&self) -> u64 {
        let (a, b, row) = self.last();
        row + self.events_a.saturating_sub(a).max(self.events_b.saturating_sub(b))
    }

    /// What stands in a row.
    pub(crate) fn at(&self, row: u64) -> Row {
        let before = self.gaps.partition_point(|gap| gap.row <= row);
        let gap = before.checked_sub(1).and_then(|last| self.gaps.get(last));
        if let Some(gap) = gap.filter(|gap| row < gap.row + gap.rows()) {
            let within = |range: &Range<u64>| {
                Some(range.start + row - gap.row).filter(|index| range.contains(index))
            };
            return Row { a: within(&gap.a), b: within(&gap.b), apart: true };
        }
        let (a, b, start) = gap.map_or((0, 0, 0), after);
        let behind = row - start;
        Row {
            a: Some(a + behind).filter(|index| *index < self.events_a),
            b: Some(b + behind).filter(|index| *index < self.events_b),
            apart: false,
        }
    }

    /// The row of a finding.
    pub(crate) fn of(&self, finding: &Finding) -> u64 {
        let (a, b) = (finding.index_a, finding.index_b);
        let before = self.gaps.partition_point(|gap| gap.a.start <= a && gap.b.start <= b);
        let gap = before.checked_sub(1).and_then(|last| self.gaps.get(last));
        match gap {
            Some(gap) if a < gap.a.end || b < gap.b.end => {
                gap.row + (a - gap.a.start).max(b - gap.b.start)
            }
            _ => {
                let (from_a, from_b, row) = gap.map_or((0, 0, 0), after);
                row + a.saturating_sub(from_a).max(b.saturating_sub(from_b))
            }
        }
    }
}

fn after(gap: &Gap) -> (u64, u64, u64) {
    (gap.a.end, gap.b.end, gap.row + gap.rows())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvabi_trace::collect::FindingKey;
    use nvabi_trace::report::FindingKind;

    fn gap(a: Range<u64>, b: Range<u64>) -> Finding {
        let place =
            FindingKey { launch: 0, warp: 0, kind: FindingKind::Extra, site: 0, index_a: a.start };
        let (resync_a, resync_b) = (Some(a.end), Some(b.end));
        Finding { resync_a, resync_b, ..Finding::at(place, b.start) }
    }

    fn shown(rows: &Rows) -> String {
        let cell = |index: Option<u64>| index.map_or("-".to_owned(), |index| index.to_string());
        let row = |row| {
            let Row { a, b, apart } = rows.at(row);
            format!("{}{}{}", cell(a), if apart { '|' } else { '=' }, cell(b))
        };
        (0..rows.count()).map(row).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn events_in_step_stand_beside_each_other() {
        assert_eq!(shown(&Rows::new(&[], 2, 3)), "0=0 1=1 -=2");
        assert_eq!(shown(&Rows::new(&[], 0, 0)), "");
    }

    #[test]
    fn gaps_hold_what_one_has_more() {
        let extra = Rows::new(&[gap(1..1, 1..3)], 3, 5);
        assert_eq!(shown(&extra), "0=0 -|1 -|2 1=3 2=4");
        let both = Rows::new(&[gap(1..3, 1..2), gap(4..5, 3..3)], 6, 4);
        assert_eq!(shown(&both), "0=0 1|1 2|- 3=2 4|- 5=3");
        let at_the_start = Rows::new(&[gap(0..1, 0..0)], 2, 1);
        assert_eq!(shown(&at_the_start), "0|- 1=0");
    }

    #[test]
    fn findings_that_do_not_fit_are_passed_over() {
        assert_eq!(shown(&Rows::new(&[gap(1..9, 1..1)], 2, 2)), "0=0 1=1");
        assert_eq!(shown(&Rows::new(&[gap(1..2, 0..0), gap(0..1, 0..0)], 2, 1)), "0|- 1=0");
        assert_eq!(shown(&Rows::new(&[gap(1..1, 1..1)], 2, 2)), "0=0 1=1");
    }

    #[test]
    fn findings_have_rows() {
        let findings = [gap(1..3, 1..2), gap(4..5, 3..3), gap(5..5, 3..3)];
        let rows = Rows::new(&findings, 6, 4);
        assert_eq!(findings.each_ref().map(|finding| rows.of(finding)), [1, 4, 5]);
    }
}
