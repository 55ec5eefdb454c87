//! Keys in, screens out, on events that are made here.

use std::ops::Range;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use nvabi_trace::collect::FindingKey;
use nvabi_trace::report::{Class, Finding, FindingKind, Source};
use nvabi_trace::sources::Sources;
use nvabi_trace::{Event, EventKind};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::app::{App, Mode, Overview};
use super::draw;
use super::pair::{Compared, Pair, Side, WarpId};

/// Warps of 1000 events; the odd ones have a loop that runs two more times in B, and then a branch
/// that goes the other way.
struct Made {
    source: Source,
    asked: u64,
}

const EVENTS: u64 = 1000;
const EXTRA: Range<u64> = 100..104;
const BRANCH: u64 = 500;
const HERE: u64 = 7;

impl Made {
    fn event(index: u64) -> Event {
        let site = if index == BRANCH { HERE } else { 0x1000 + index % 2 };
        let kind = EventKind::BRANCH;
        Event { site, kind, direction: 1, mask: !0, ballot: None, value: Some(index) }
    }

    fn finding(warp: u32, kind: FindingKind, a: u64, b: u64) -> Finding {
        Finding::at(FindingKey { launch: 0, warp, kind, site: 0x1000, index_a: a }, b)
    }
}

impl Pair for Made {
    fn warps(&self) -> usize {
        100_000
    }

    fn warp(&self, number: usize) -> WarpId {
        WarpId { launch: 0, warp: number as u32 }
    }

    fn number(&self, warp: WarpId) -> Option<usize> {
        Some(warp.warp as usize)
    }

    fn kernel(&self, _launch: u32) -> &str {
        "sca\u{1b}le"
    }

    fn compare(&mut self, WarpId { warp, .. }: WarpId) -> Result<Compared, String> {
        if warp % 2 == 0 {
            return Ok(Compared { events_a: EVENTS, events_b: EVENTS, ..Compared::default() });
        }
        let more = EXTRA.end - EXTRA.start;
        let extra = Finding {
            resync_a: Some(EXTRA.start),
            resync_b: Some(EXTRA.end),
            count: Some(2),
            class: Some(Class::LoopBound { site: 0x1000, rounds: 2, events: 2 }),
            ..Self::finding(warp, FindingKind::Extra, EXTRA.start, EXTRA.start)
        };
        let branch = Self::finding(warp, FindingKind::Direction, BRANCH, BRANCH + more);
        let findings = vec![extra, branch];
        Ok(Compared { events_a: EVENTS, events_b: EVENTS + more, findings, total: 2 })
    }

    fn events(
        &mut self,
        side: Side,
        warp: WarpId,
        range: Range<u64>,
    ) -> Result<Vec<Event>, String> {
        self.asked = self.asked.max(range.end - range.start);
        let more = if warp.warp % 2 == 1 && side == Side::B { EXTRA.end - EXTRA.start } else { 0 };
        let event = |index: u64| {
            let event = Self::event(if index < EXTRA.end { index } else { index - more });
            let other = more > 0 && event.site == HERE;
            Event { direction: if other { 0 } else { 1 }, ..event }
        };
        Ok((range.start..range.end.min(EVENTS + more)).map(event).collect())
    }

    fn source(&self, site: u64) -> Option<Source> {
        (site == HERE).then(|| self.source.clone())
    }
}

fn app() -> App<Made> {
    let source = Source {
        file: "src/kernel.cu".to_owned(),
        function: "scale".to_owned(),
        line: 2,
        column: 3,
        inlined_at: Vec::new(),
    };
    let mut sources = Sources::default();
    sources.add("src/kernel.cu", "first\n\tif (x > limit)\nthird\n");
    App::new(Made { source, asked: 0 }, sources).unwrap()
}

fn screen(app: &mut App<Made>) -> String {
    let mut terminal = Terminal::new(TestBackend::new(110, 24)).unwrap();
    terminal.draw(|frame| draw::draw(app, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let row =
        |y| (0..110).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..24).map(row).collect::<Vec<_>>().join("\n")
}

fn press(app: &mut App<Made>, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            key => KeyCode::Char(key),
        };
        app.key(KeyEvent::new(code, KeyModifiers::NONE));
        while matches!(app.mode, Mode::Search(_)) {
            app.work();
        }
        screen(app);
    }
}

fn differing(app: &mut App<Made>, warps: &[usize]) {
    app.overview(Overview::Done(warps.iter().copied().collect(), warps.len() as u64));
    screen(app);
}

#[test]
fn opens_at_the_first_difference_of_the_first_warp_that_differs() {
    let mut app = app();
    screen(&mut app);
    assert_eq!((app.number, app.cursor), (0, 0));
    differing(&mut app, &[3, 5]);
    assert_eq!((app.number, app.cursor), (3, EXTRA.start));
    let shown = screen(&mut app);
    assert!(shown.contains("warp 3 of sca\u{fffd}le: 2 differences, 101 of 1004 rows"), "{shown}");
    assert!(shown.contains("extra (proven: loop-bound), 2 more"), "{shown}");
    insta::with_settings!({ snapshot_path => "../../../../snapshots/trace", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("tui", shown);
    });
}

#[test]
fn stays_where_the_user_went() {
    let mut app = app();
    screen(&mut app);
    press(&mut app, "j");
    differing(&mut app, &[3]);
    assert_eq!((app.number, app.cursor), (0, 1));
}

#[test]
fn jumps_between_differences_and_warps() {
    let mut app = app();
    press(&mut app, "]");
    assert_eq!(app.message, "still comparing");
    differing(&mut app, &[3, 5]);
    press(&mut app, "n");
    assert_eq!(app.cursor, BRANCH + 4);
    let shown = screen(&mut app);
    assert!(shown.contains("branch ✓") && shown.contains(" ≠ "), "{shown}");
    assert!(shown.contains("     2      if (x > limit)"), "{shown}");
    press(&mut app, "n");
    assert!(app.message.starts_with("no more differences"));
    press(&mut app, "p");
    assert_eq!(app.cursor, EXTRA.start);
    press(&mut app, "]");
    assert_eq!(app.number, 5);
    press(&mut app, "]");
    assert_eq!((app.number, app.message.as_str()), (5, "no more warps that differ"));
    press(&mut app, "[");
    assert_eq!(app.number, 3);
}

#[test]
fn searches_by_line_and_by_site_and_says_what_it_did_not_find() {
    let mut app = app();
    screen(&mut app);
    press(&mut app, "/kernel.cu:2\n");
    assert_eq!(app.cursor, BRANCH);
    press(&mut app, ".");
    assert_eq!(app.cursor, BRANCH, "there is one, and the search goes round");
    press(&mut app, "/0x1001\n");
    assert_eq!(app.cursor, BRANCH + 1);
    press(&mut app, "/nowhere\n");
    assert_eq!((app.cursor, app.message.as_str()), (BRANCH + 1, "not found: nowhere"));
    press(&mut app, "/never mind\u{1b}");
    assert_eq!((app.query(), &app.mode), ("nowhere", &Mode::Browse));
}

#[test]
fn chooses_among_many_warps() {
    let mut app = app();
    differing(&mut app, &[99_999]);
    press(&mut app, "w777");
    let shown = screen(&mut app);
    assert!(shown.contains("     777   warp 777 of"), "{shown}");
    press(&mut app, "\n");
    assert_eq!((app.number, app.cursor), (777, EXTRA.start));
    press(&mut app, "w4\u{1b}");
    assert_eq!(app.number, 777);
    press(&mut app, "w999999999999999999999\n");
    assert_eq!(app.number, 99_999);
}

#[test]
fn reads_no_more_than_the_screen_shows() {
    let mut app = app();
    press(&mut app, "jjG gk");
    assert!(app.pair.asked <= 24, "{}", app.pair.asked);
    press(&mut app, "?");
    assert!(screen(&mut app).contains("next, previous difference"));
    press(&mut app, "xq");
    assert!(app.done);
}

#[test]
fn small_screens_do_no_harm() {
    let mut app = app();
    for (width, height) in [(1, 1), (3, 2), (20, 5), (300, 3)] {
        for keys in ["?x", "w", "\u{1b}/ab", "\u{1b}"] {
            for key in keys.chars() {
                let code = if key == '\u{1b}' { KeyCode::Esc } else { KeyCode::Char(key) };
                app.key(KeyEvent::new(code, KeyModifiers::NONE));
                let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
                terminal.draw(|frame| draw::draw(&mut app, frame)).unwrap();
            }
        }
    }
}
