//! The screen.

use nvabi_trace::event::EventKind;
use nvabi_trace::report::{Finding, lanes};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph};

use super::app::{App, Cell, Mode, Overview};
use super::pair::Pair;
use super::rows::Row;

/// Lines of the source pane.
const SOURCE: u16 = 9;

const HELP: &str = "\
 j k ↓ ↑        a row down, up
 Space PgUp     a page down, up
 g G            first, last row
 n p            next, previous difference
 ] [            next, previous warp that differs
 w              choose a warp
 /              search: a line, function, kind or site
 .              search again
 s              source lines on, off
 q              quit

 =  the same    ≠  differs    |  only one has it";

pub(crate) fn draw<P: Pair>(app: &mut App<P>, frame: &mut Frame<'_>) {
    let source = match (app.source, app.sources.is_empty()) {
        (false, _) => 0,
        // A title is all there is to show.
        (true, true) => 2,
        (true, false) => SOURCE,
    };
    let parts = [
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(source),
        Constraint::Length(2),
    ];
    let [title, events, lines, status] = Layout::vertical(parts).areas(frame.area());
    app.height = u64::from(events.height.saturating_sub(1)).max(1);
    // A screen that grew smaller keeps the cursor on it.
    app.top = app.top.clamp((app.cursor + 1).saturating_sub(app.height), app.cursor);
    frame.render_widget(Paragraph::new(heading(app)).style(reversed()), title);
    draw_events(app, frame, events);
    if app.source {
        draw_source(app, frame, lines);
    }
    frame.render_widget(Paragraph::new(footer(app)), status);
    match &app.mode {
        Mode::Help => draw_help(frame),
        Mode::Warps(marked, digits) => draw_warps(app, *marked, digits, frame),
        _ => {}
    }
}

fn reversed() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

fn heading<P: Pair>(app: &App<P>) -> String {
    let warp = app.warp();
    let compared = &app.compared;
    let differences = match compared.total {
        1 => "1 difference".to_owned(),
        total => format!("{total} differences"),
    };
    let kernel = clean(app.pair.kernel(warp.launch));
    format!(
        " warp {} of {kernel}: {differences}, {} of {} rows",
        warp.warp,
        app.cursor + 1,
        app.rows.count()
    )
}

fn draw_events<P: Pair>(app: &mut App<P>, frame: &mut Frame<'_>, area: Rect) {
    let half = usize::from(area.width.saturating_sub(3) / 2);
    let mut lines = vec![Line::styled(
        format!("{:<half$}   {:<half$}", " A", " B"),
        Style::new().add_modifier(Modifier::BOLD),
    )];
    match app.visible() {
        Ok(rows) => {
            for (number, row, a, b) in rows {
                let line = event_line(app, row, a, b, half);
                let marked = if number == app.cursor { reversed() } else { Style::new() };
                lines.push(line.patch_style(marked));
            }
        }
        Err(error) => lines.push(Line::raw(clean(&error))),
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn event_line<P: Pair>(app: &App<P>, row: Row, a: Cell, b: Cell, half: usize) -> Line<'static> {
    let (sign, colour) = match (a, b) {
        (Some((_, a)), Some((_, b))) if !row.apart && a == b => (" = ", None),
        (Some((_, a)), Some((_, b))) if !row.apart && same_way(a, b) => {
            (" ~ ", Some(Color::Yellow))
        }
        (Some(_), Some(_)) => (" ≠ ", Some(Color::Red)),
        _ => (" | ", Some(Color::Magenta)),
    };
    let style = colour.map_or_else(Style::new, |colour| Style::new().fg(colour));
    let cell =
        |cell: Cell| format!("{:<half$.half$}", cell.map_or(String::new(), |cell| text(app, cell)));
    Line::from(vec![
        Span::styled(cell(a), style),
        Span::styled(sign, style.add_modifier(Modifier::BOLD)),
        Span::styled(cell(b), style),
    ])
}

fn same_way(a: nvabi_trace::Event, b: nvabi_trace::Event) -> bool {
    nvabi_trace::Event { value: None, ..a } == nvabi_trace::Event { value: None, ..b }
}

fn text<P: Pair>(app: &App<P>, (index, event): (u64, nvabi_trace::Event)) -> String {
    let what = match (event.kind, event.direction) {
        (EventKind::BRANCH, 0) => "branch ✗".to_owned(),
        (EventKind::BRANCH, 1) => "branch ✓".to_owned(),
        (EventKind::BRANCH, case) => format!("case {case}"),
        (kind, _) => kind.name().to_owned(),
    };
    let value = event.value.map(|value| format!(" {value}")).unwrap_or_default();
    format!("{index:>7} {what:<12} {:08x} {}{value}", event.mask, place(app, event.site))
}

fn place<P: Pair>(app: &App<P>, site: u64) -> String {
    match app.pair.source(site) {
        Some(source) => {
            let file = source.file.rsplit('/').next().unwrap_or_default();
            clean(&format!("{file}:{}", source.line))
        }
        None => format!("{site:#x}"),
    }
}

fn draw_source<P: Pair>(app: &mut App<P>, frame: &mut Frame<'_>, area: Rect) {
    let site = app.current().map(|event| event.site);
    let source = site.and_then(|site| app.pair.source(site));
    let (title, lines) = match (&source, site) {
        (Some(source), _) => {
            let around = u32::from(area.height.saturating_sub(2)) / 2;
            let excerpt = app.sources.excerpt(&source.file, source.line, around);
            let title = format!(" {}:{} {} ", source.file, source.line, source.function);
            (
                title,
                excerpt
                    .into_iter()
                    .map(|(number, line)| source_line(number, line, source.line))
                    .collect(),
            )
        }
        (None, Some(site)) => (format!(" site {site:#x}: its line is not known "), Vec::new()),
        (None, None) => (" source ".to_owned(), Vec::new()),
    };
    let lines: Vec<Line<'_>> = match (&source, lines.is_empty()) {
        (Some(_), true) => vec![Line::raw(" the file was not found: name its folder by --source")],
        _ => lines,
    };
    let block = Block::new().borders(Borders::TOP).title(clean(&title));
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn source_line(number: u32, line: &str, wanted: u32) -> Line<'static> {
    let text = clean(&format!("{number:>6}  {}", line.replace('\t', "    ")));
    match number == wanted {
        true => {
            Line::styled(text, Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED))
        }
        false => Line::raw(text),
    }
}

fn footer<P: Pair>(app: &App<P>) -> Vec<Line<'static>> {
    let said = match &app.mode {
        Mode::Query(query) => format!("/{query}"),
        Mode::Search(_) => format!("searching for {} … any key ends it", app.query()),
        _ if !app.message.is_empty() => app.message.clone(),
        _ => here(app).map(finding).unwrap_or_default(),
    };
    let overview = match &app.overview {
        Overview::Running => "comparing all warps …".to_owned(),
        Overview::Done(_, total) => format!("{total} of {} warps differ", app.pair.warps()),
        Overview::Failed(error) => error.clone(),
    };
    vec![
        Line::raw(clean(&said)),
        Line::raw(clean(&format!(
            "{overview}    n next  ] next warp  w warps  / search  ? help  q quit"
        ))),
    ]
}

/// The finding under the cursor.
fn here<P: Pair>(app: &App<P>) -> Option<&Finding> {
    app.compared.findings.iter().find(|finding| app.rows.of(finding) == app.cursor)
}

fn finding(finding: &Finding) -> String {
    let mut text = finding.kind.name().to_owned();
    if let Some(class) = finding.class {
        let sure = if class.proven() { "proven" } else { "hint" };
        text += &format!(" ({sure}: {})", class.name());
    }
    if let Some(count) = finding.count {
        text += &format!(", {count} more");
    }
    if let Some(mask) = finding.lanes {
        text += &format!(", {}", lanes(mask));
    }
    text
}

fn draw_help(frame: &mut Frame<'_>) {
    let area = centred(frame.area(), 62, 15);
    let block = Block::bordered().title(" keys ");
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(HELP).block(block), area);
}

fn draw_warps<P: Pair>(app: &App<P>, marked: usize, digits: &str, frame: &mut Frame<'_>) {
    let area = centred(frame.area(), 50, frame.area().height.saturating_sub(4));
    let fits = usize::from(area.height.saturating_sub(2)).max(1);
    let first = marked.saturating_sub(fits / 2);
    let numbers = first..app.pair.warps().min(first + fits);
    let lines: Vec<Line<'_>> = numbers.map(|number| warp_line(app, number, marked)).collect();
    let title = match digits {
        "" => " warps: digits, ↓ ↑, Enter ".to_owned(),
        digits => format!(" warp {digits} "),
    };
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title)), area);
}

fn warp_line<P: Pair>(app: &App<P>, number: usize, marked: usize) -> Line<'static> {
    let warp = app.pair.warp(number);
    let differs = matches!(&app.overview, Overview::Done(warps, _) if warps.contains(&number));
    let sign = if differs { '≠' } else { ' ' };
    let kernel = clean(app.pair.kernel(warp.launch));
    let text = format!("{number:>8} {sign} warp {} of {kernel}", warp.warp);
    Line::styled(text, if number == marked { reversed() } else { Style::new() })
}

fn centred(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    let (x, y) = ((area.width - width) / 2, (area.height - height) / 2);
    Rect { x: area.x + x, y: area.y + y, width, height }
}

/// Names in a trace could hold anything.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
