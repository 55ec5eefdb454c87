//! Each form of one report, as it is reviewed.

use insta::{assert_snapshot, with_settings};

use super::*;
use crate::collect::{About, Collector, FindingKey};
use crate::event::{Event, EventKind};
use crate::report::{Class, FindingKind, Launch, Note, Source, Step};
use crate::sources::Sources;

fn launch(kernel: &str, order: u32, warps: u64) -> (Launch, u64) {
    let launch = Launch {
        kernel: kernel.to_owned(),
        order,
        grid: [warps as u32 / 4, 1, 1],
        block: [128, 1, 1],
        warps,
        warps_divergent: 0,
        events_a: warps * 100,
        events_b: warps * 100 + 24,
        map: None,
    };
    (launch, 100)
}

fn source(site: u64) -> Option<Source> {
    let source = |function: &str, line, inlined_at| Source {
        file: "src/a kernel.cu".to_owned(),
        function: function.to_owned(),
        line,
        column: 9,
        inlined_at,
    };
    match site {
        19 => Some(source("scale", 4, Vec::new())),
        23 => Some(source("clamp", 2, vec![source("scale", 5, Vec::new())])),
        _ => None,
    }
}

fn branch(site: u64, direction: u32, value: u64) -> Event {
    let kind = EventKind::BRANCH;
    Event { site, kind, direction, mask: !0, ballot: None, value: Some(value) }
}

fn finding(warp: u32, kind: FindingKind, a: Event, b: Event) -> Finding {
    let place = FindingKey { launch: 0, warp, kind, site: a.site, index_a: 40 };
    Finding { event_a: Some(a), event_b: Some(b), ..Finding::at(place, 40) }
}

/// One of each kind, at lines that are known and at sites that are not.
fn findings() -> Vec<Finding> {
    let history = |index| Step {
        index_a: index,
        index_b: index,
        a: Event { kind: EventKind::ATOMIC, ..branch(77, 0, 5) },
        b: Event { kind: EventKind::ATOMIC, ..branch(77, 0, 5 + index % 2) },
    };
    let rounds = |warp, rounds| Finding {
        count: Some(rounds),
        resync_a: Some(40),
        resync_b: Some(40 + 2 * rounds),
        class: Some(Class::LoopBound { site: 19, rounds, events: 2 }),
        ..finding(warp, FindingKind::Extra, branch(19, 0, 3), branch(19, 1, 3))
    };
    let lanes = |mask| Event { mask, ..branch(23, 0, 1) };
    vec![
        rounds(0, 1),
        rounds(1, 2),
        rounds(2, 3),
        Finding {
            history: vec![history(38), history(39)],
            class: Some(Class::EarlierValue { site: 77, index_a: 39 }),
            ..finding(3, FindingKind::Direction, branch(23, 1, 32), branch(23, 0, 32))
        },
        Finding {
            index_a: 60,
            index_b: 60,
            lanes: Some(0xf010),
            ..finding(3, FindingKind::Mask, lanes(0xffff_0fff), lanes(0xffff_ffef))
        },
        finding(5, FindingKind::Path, branch(23, 0, 0), branch(0xdead_beef, 0, 0)),
        Finding {
            class: Some(Class::RaceSuspected),
            ..finding(6, FindingKind::Value, history(0).a, history(1).b)
        },
        Finding {
            count: Some(4),
            ..finding(7, FindingKind::Missing, branch(77, 0, 0), branch(77, 0, 0))
        },
        Finding {
            event_a: None,
            count: Some(9),
            ..finding(9, FindingKind::End, branch(77, 0, 0), branch(77, 0, 0))
        },
    ]
}

fn report(findings: Vec<Finding>) -> Report {
    let launches = vec![launch("scale<\"float\", 4>", 0, 16), launch("=sum;all", 1, 8)];
    let mut collector = Collector::new(100, launches);
    for finding in findings {
        let Finding { launch, warp, kind, site, index_a, .. } = finding;
        collector.add(FindingKey { launch, warp, kind, site, index_a }, || finding);
    }
    collector.overflow(1, 2, 100, 0);
    collector.note(Note::Unmatched { trace: 'b', kernel: "fill".to_owned(), order: 0 });
    let about =
        About { a: "good.trace".to_owned(), b: "<bad>.trace".to_owned(), values_compared: true };
    collector.finish(about, source)
}

fn sources() -> Sources {
    let mut sources = Sources::default();
    let text = "__device__ float clamp(float x) {\n    if (x < 0) return 0;\n}\n\
                while (i < n && x[i] > 0) {\n    x[i] = clamp(x[i]);\n}\n";
    sources.add("src/a kernel.cu", text);
    sources
}

macro_rules! assert_form {
    ($name:literal, $text:expr) => {
        with_settings!({ snapshot_path => "../../../snapshots/trace", prepend_module_to_snapshot => false }, {
            assert_snapshot!($name, $text);
        });
    };
}

#[test]
fn forms() {
    let report = report(findings());
    assert_form!("text", text(&report, &sources(), 10));
    assert_form!("csv", csv(&report));
    assert_form!("folded", folded(&report));
    assert_form!("sarif", sarif(&report));
    assert_form!("html", html(&report, &sources()).replace(env!("CARGO_PKG_VERSION"), "VERSION"));
    assert_form!("json", serde_json::to_string_pretty(&report).unwrap());
}

#[test]
fn text_names_what_it_leaves_out() {
    let text = text(&report(findings()), &Sources::default(), 2);
    assert!(text.contains("#2 ") && !text.contains("#3 "), "{text}");
    assert!(text.contains("\n5 more places"), "{text}");
    assert!(!text.contains("clamp(float"), "{text}");
}

#[test]
fn names_of_a_trace_cannot_steer_a_terminal_or_a_page() {
    let mut report = report(findings());
    for launch in &mut report.launches {
        launch.kernel = "\u{1b}[2J<script>\r".to_owned();
    }
    for text in [text(&report, &sources(), 10), folded(&report)] {
        assert!(!text.contains(['\u{1b}', '\r']), "{text}");
    }
    let page = html(&report, &sources());
    assert!(!page.contains("<script>\r") && !page.contains('\u{1b}'));
    assert_eq!(page.matches("<script>").count(), 1);
}

#[test]
fn a_page_of_many_warps_stays_small() {
    let mut collector = Collector::new(1000, vec![launch("k", 0, 100_000)]);
    for warp in 0..100_000 {
        for index_a in (0..100).filter(|index| (index * 7 + u64::from(warp)) % 3 == 0) {
            let kind = FindingKind::Mask;
            let mut finding = finding(warp, kind, branch(19, 0, 0), branch(19, 0, 0));
            finding.index_a = index_a;
            collector.add(FindingKey { launch: 0, warp, kind, site: 19, index_a }, || finding);
        }
    }
    let page = html(&collector.finish(About::default(), source), &sources());
    assert!(page.len() < 400_000, "{}", page.len());
    assert!(page.contains("782 warps"));
}

#[test]
fn what_is_the_same_is_said_in_a_line() {
    let report = Collector::new(9, vec![launch("k", 0, 16)]).finish(About::default(), source);
    assert_eq!(summary(&report), "0 of 16 warps differ, 0 findings");
    let mut lossy = Collector::new(9, vec![launch("k", 0, 16)]);
    lossy.overflow(0, 3, 1, 1);
    let text = text(&lossy.finish(About::default(), source), &sources(), 9);
    assert!(text.contains("incomparable: 0 of 16 warps differ, 0 findings, 1 warp lost events"));
}
