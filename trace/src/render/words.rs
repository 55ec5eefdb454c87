//! The same sentences wherever a finding is told.

use crate::event::{Event, EventKind};
use crate::report::{Class, Finding, FindingKind, Launch, Note, Report, Source, Status, lanes};

/// `kernel.cu:19:5`, or the site's number where its line is not known.
pub(crate) fn place(report: &Report, site: u64) -> String {
    match report.sources.get(&site) {
        Some(source) => line(source),
        None => format!("site {site:#x}"),
    }
}

pub(crate) fn line(source: &Source) -> String {
    match source.column {
        0 => format!("{}:{}", source.file, source.line),
        column => format!("{}:{}:{column}", source.file, source.line),
    }
}

/// What happened, without where.
pub(crate) fn sentence(report: &Report, finding: &Finding) -> String {
    match finding.kind {
        FindingKind::Path => path(report, finding),
        FindingKind::Direction => direction(finding),
        FindingKind::Mask => mask(finding),
        FindingKind::Value => value(finding),
        FindingKind::Extra | FindingKind::Missing => more(report, finding),
        FindingKind::End => end(finding),
    }
}

fn path(report: &Report, finding: &Finding) -> String {
    match (finding.event_a, finding.event_b) {
        (Some(a), Some(b)) => {
            format!("A goes to {}, B to {}", place(report, a.site), place(report, b.site))
        }
        _ => "A and B go different ways".to_owned(),
    }
}

fn direction(finding: &Finding) -> String {
    match (finding.event_a, finding.event_b) {
        (Some(a), Some(b)) => format!("A {}, B {}", went(&a), went(&b)),
        _ => "the branch goes different ways".to_owned(),
    }
}

/// What a branch did.
fn went(event: &Event) -> String {
    match (event.direction, event.ballot) {
        (_, Some(ballot)) if ballot != 0 && ballot != event.mask => {
            format!("takes the branch in {}", lanes(ballot))
        }
        (0, _) => "does not take the branch".to_owned(),
        (1, _) => "takes the branch".to_owned(),
        (case, _) => format!("takes case {case}"),
    }
}

fn mask(finding: &Finding) -> String {
    let (Some(a), Some(b)) = (finding.event_a, finding.event_b) else {
        return "other lanes are active".to_owned();
    };
    let only = |mask: u32, trace| (mask != 0).then(|| format!("{} in {trace} only", lanes(mask)));
    let parts = [only(a.mask & !b.mask, 'A'), only(b.mask & !a.mask, 'B')];
    format!("active {}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

fn value(finding: &Finding) -> String {
    let shown = |event: Option<Event>| match event.and_then(|event| event.value) {
        Some(value) => format!("{value} ({value:#x})"),
        None => "no value".to_owned(),
    };
    format!("A has {}, B has {}", shown(finding.event_a), shown(finding.event_b))
}

fn more(report: &Report, finding: &Finding) -> String {
    let (longer, count) = (longer(finding.kind), finding.count.unwrap_or(1));
    match finding.class {
        Some(Class::LoopBound { site, rounds, .. }) => {
            let place = place(report, site);
            format!("loop at {place} ran {} in {longer}", plural(rounds, "more time"))
        }
        _ => format!("{longer} has {}", plural(count, "more event")),
    }
}

/// The trace that has more.
fn longer(kind: FindingKind) -> char {
    if kind == FindingKind::Missing { 'A' } else { 'B' }
}

fn end(finding: &Finding) -> String {
    let (ended, other) = if finding.event_a.is_none() { ('A', 'B') } else { ('B', 'A') };
    match finding.count {
        Some(count) => format!("{ended} ends here, {other} has {}", plural(count, "more event")),
        None => format!("{ended} ends here, {other} goes on"),
    }
}

/// What a class says, and how sure it is.
pub(crate) fn class(report: &Report, class: Class) -> String {
    let what = match class {
        Class::InputDependentBranch => {
            "input-dependent branch: the operand that it tests differs".to_owned()
        }
        Class::OtherOperand => {
            "its recorded operand is the same: something else that it tests differs".to_owned()
        }
        Class::LoopBound { events, .. } => {
            format!("loop bound: whole rounds of {}", plural(events, "event"))
        }
        Class::RaceSuspected => {
            "race suspected: the same lanes, the same way, another value".to_owned()
        }
        Class::EarlierValue { site, index_a } => {
            let place = place(report, site);
            format!("a value differs before, at {place} (event {index_a} of A)")
        }
    };
    format!("{}: {what}", if class.proven() { "proven" } else { "hint" })
}

/// What a finding of this kind is, in a few words.
pub(crate) fn title(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Path => "different paths",
        FindingKind::Direction => "branch goes the other way",
        FindingKind::Mask => "other lanes active",
        FindingKind::Value => "other value",
        FindingKind::Extra => "more events in B",
        FindingKind::Missing => "more events in A",
        FindingKind::End => "one ends",
    }
}

/// `kernel (launch 2)`, and its shape.
pub(crate) fn launch(launch: &Launch) -> String {
    let three = |[x, y, z]: [u32; 3]| format!("{x}×{y}×{z}");
    let Launch { kernel, order, .. } = launch;
    let order = if *order == 0 { String::new() } else { format!(", launch {order}") };
    format!("{kernel}{order}: grid {}, block {}", three(launch.grid), three(launch.block))
}

/// A warp with the block that it is in.
pub(crate) fn warp(launch: Option<&Launch>, warp: u32) -> String {
    match launch.and_then(|launch| block(launch, warp)) {
        Some(([x, y, z], inner)) => format!("warp {warp} (block {x},{y},{z} warp {inner})"),
        None => format!("warp {warp}"),
    }
}

fn block(launch: &Launch, warp: u32) -> Option<([u32; 3], u32)> {
    let threads = launch.block.iter().try_fold(1_u32, |all, one| all.checked_mul(*one))?;
    let warps = threads.div_ceil(u32::BITS);
    let (block, inner) = (warp.checked_div(warps)?, warp.checked_rem(warps)?);
    let [x, y, _] = launch.grid;
    let row = block.checked_div(x)?;
    Some(([block % x, row.checked_rem(y)?, row.checked_div(y)?], inner))
}

/// A note in a sentence.
pub(crate) fn note(report: &Report, note: &Note) -> String {
    let kernel = |launch: u32| {
        let launch = report.launches.get(launch as usize);
        launch.map_or("", |launch| launch.kernel.as_str())
    };
    match note {
        Note::Overflow { launch, warp, lost_a, lost_b } => {
            let kernel = kernel(*launch);
            format!("overflow: warp {warp} of {kernel} lost {lost_a} events in A, {lost_b} in B")
        }
        Note::Unmatched { trace, kernel, order } => {
            let trace = trace.to_ascii_uppercase();
            format!("only {trace} has launch {order} of {kernel}")
        }
        Note::OtherGrid { launch, warps_a, warps_b } => {
            let kernel = kernel(*launch);
            format!("{kernel} has {warps_a} warps in A, {warps_b} in B: compared what both have")
        }
        Note::Damaged { trace, offset, what } => {
            let trace = trace.to_ascii_uppercase();
            format!("{trace} at byte {offset}: {what}")
        }
        Note::More { of, count } => format!("{count} more: {of}"),
    }
}

/// The whole answer in one line.
pub(crate) fn summary(report: &Report) -> String {
    let Report { warps_compared, warps_divergent, overflowed, total_findings, .. } = report;
    let mut text = format!(
        "{warps_divergent} of {} differ, {}",
        plural(*warps_compared, "warp"),
        plural(*total_findings, "finding")
    );
    if *overflowed > 0 {
        text += &format!(", {} lost events", plural(*overflowed, "warp"));
    }
    if report.status == Status::Incomparable {
        text += ": whether the runs agree is not known";
    }
    text
}

pub(crate) fn plural(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// An event in one line of a list.
pub(crate) fn event(report: &Report, event: &Event) -> String {
    let Event { kind, mask, value, .. } = *event;
    let what = match kind {
        EventKind::BRANCH if event.direction == 0 => "not taken",
        EventKind::BRANCH if event.direction == 1 => "taken",
        _ => "",
    };
    let value = value.map(|value| format!("value {value}")).unwrap_or_default();
    let place = place(report, event.site);
    let text = format!("{:<12} {what:<9} {mask:08x}  {place}  {value}", kind.name());
    text.trim_end().to_owned()
}

/// Text for a terminal: names in a trace could hold anything.
pub(crate) fn clean(text: &str) -> String {
    let plain = |c: char| matches!(c, '\n' | '\t') || !c.is_control();
    text.chars().map(|c| if plain(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}
