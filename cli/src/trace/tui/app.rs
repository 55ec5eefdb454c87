//! What the screen shows, and what keys do to it.

use std::collections::{BTreeSet, HashMap};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use nvabi_trace::Event;
use nvabi_trace::sources::Sources;

use super::pair::{Compared, Pair, Side, WarpId};
use super::rows::{Row, Rows};

/// Rows that a search looks at before it looks whether a key was pressed.
const STRIDE: u64 = 1 << 16;

/// What keys mean now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They move.
    Browse,
    /// They are what is searched for.
    Query(String),
    /// A search is on its way.
    Search(Search),
    /// They choose a warp: the one that is marked, and the digits typed.
    Warps(usize, String),
    /// Any of them ends the help.
    Help,
}

/// How far a search is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Search {
    next: u64,
    left: u64,
    /// Which sites match, as far as they were seen.
    known: HashMap<u64, bool>,
}

/// Where the comparison of all warps is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Overview {
    Running,
    /// The warps that differ, as far as they are listed, and how many there are.
    Done(BTreeSet<usize>, u64),
    Failed(String),
}

pub(crate) struct App<P> {
    pub(crate) pair: P,
    pub(crate) sources: Sources,
    pub(crate) mode: Mode,
    /// The warp that is shown, a number of [`Pair::warps`].
    pub(crate) number: usize,
    pub(crate) compared: Compared,
    pub(crate) rows: Rows,
    pub(crate) cursor: u64,
    pub(crate) top: u64,
    /// Rows that fit; told by what draws.
    pub(crate) height: u64,
    pub(crate) source: bool,
    pub(crate) message: String,
    pub(crate) overview: Overview,
    query: String,
    moved: bool,
    pub(crate) done: bool,
}

/// An event with its index.
pub(crate) type Cell = Option<(u64, Event)>;

impl<P: Pair> App<P> {
    pub(crate) fn new(pair: P, sources: Sources) -> Result<Self, String> {
        let mut app = Self {
            pair,
            sources,
            mode: Mode::Browse,
            number: 0,
            compared: Compared::default(),
            rows: Rows::default(),
            cursor: 0,
            top: 0,
            height: 1,
            source: true,
            message: String::new(),
            overview: Overview::Running,
            query: String::new(),
            moved: false,
            done: false,
        };
        app.show(0)?;
        Ok(app)
    }

    pub(crate) fn warp(&self) -> WarpId {
        self.pair.warp(self.number)
    }

    /// Shows a warp, at its first difference.
    fn show(&mut self, number: usize) -> Result<(), String> {
        self.compared = self.pair.compare(self.pair.warp(number))?;
        let Compared { findings, events_a, events_b, .. } = &self.compared;
        self.rows = Rows::new(findings, *events_a, *events_b);
        self.number = number;
        let first = findings.first().map(|finding| self.rows.of(finding));
        self.go(first.unwrap_or_default());
        Ok(())
    }

    fn try_show(&mut self, number: usize) {
        if let Err(error) = self.show(number) {
            self.message = error;
        }
    }

    /// Puts the cursor on a row, and the row on the screen.
    fn go(&mut self, row: u64) {
        self.cursor = row.min(self.rows.count().saturating_sub(1));
        let lead = (self.height / 3).min(self.cursor);
        if self.cursor < self.top || self.cursor >= self.top + self.height {
            self.top = self.cursor - lead;
        }
    }

    /// Takes the comparison of all warps; shows the first that differs when nothing was chosen yet.
    pub(crate) fn overview(&mut self, overview: Overview) {
        if let (Overview::Done(warps, _), false) = (&overview, self.moved) {
            if let Some(first) = warps.first().copied().filter(|first| *first != self.number) {
                self.try_show(first);
            }
        }
        self.overview = overview;
    }

    /// The events on the screen.
    pub(crate) fn visible(&mut self) -> Result<Vec<(u64, Row, Cell, Cell)>, String> {
        let end = (self.top + self.height).min(self.rows.count());
        self.cells(self.top, end)
    }

    fn cells(&mut self, from: u64, to: u64) -> Result<Vec<(u64, Row, Cell, Cell)>, String> {
        let rows: Vec<Row> = (from..to).map(|row| self.rows.at(row)).collect();
        let warp = self.warp();
        let mut fetch = |side, index: fn(&Row) -> Option<u64>| {
            let mut indices = rows.iter().filter_map(index);
            let Some(first) = indices.next() else { return Ok((0, Vec::new())) };
            let last = indices.next_back().unwrap_or(first);
            self.pair.events(side, warp, first..last + 1).map(|events| (first, events))
        };
        let (first_a, events_a) = fetch(Side::A, |row| row.a)?;
        let (first_b, events_b) = fetch(Side::B, |row| row.b)?;
        let cell = |index: Option<u64>, first: u64, events: &[Event]| {
            let index = index?;
            Some((index, *events.get(usize::try_from(index.checked_sub(first)?).ok()?)?))
        };
        let row = |(number, row): (u64, Row)| {
            (number, row, cell(row.a, first_a, &events_a), cell(row.b, first_b, &events_b))
        };
        Ok((from..to).zip(rows).map(row).collect())
    }

    /// The event under the cursor, of A where there is one.
    pub(crate) fn current(&mut self) -> Option<Event> {
        let cells = self.cells(self.cursor, (self.cursor + 1).min(self.rows.count())).ok()?;
        let (_, _, a, b) = cells.into_iter().next()?;
        a.or(b).map(|(_, event)| event)
    }

    pub(crate) fn key(&mut self, key: KeyEvent) {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            self.done = true;
            return;
        }
        match std::mem::replace(&mut self.mode, Mode::Browse) {
            Mode::Browse => self.browse(key.code),
            Mode::Query(query) => self.type_query(query, key.code),
            Mode::Warps(marked, digits) => self.choose(marked, digits, key.code),
            Mode::Search(_) => self.message = "search ended".to_owned(),
            Mode::Help => {}
        }
    }

    fn browse(&mut self, code: KeyCode) {
        self.message.clear();
        let page = self.height.saturating_sub(1).max(1);
        match code {
            KeyCode::Char('q') | KeyCode::Esc => self.done = true,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.mode = Mode::Help,
            KeyCode::Down | KeyCode::Char('j') => self.step(self.cursor.saturating_add(1)),
            KeyCode::Up | KeyCode::Char('k') => self.step(self.cursor.saturating_sub(1)),
            KeyCode::PageDown | KeyCode::Char(' ') => self.step(self.cursor.saturating_add(page)),
            KeyCode::PageUp => self.step(self.cursor.saturating_sub(page)),
            KeyCode::Home | KeyCode::Char('g') => self.step(0),
            KeyCode::End | KeyCode::Char('G') => self.step(u64::MAX),
            KeyCode::Char('n') => self.next_finding(),
            KeyCode::Char('p' | 'N') => self.previous_finding(),
            KeyCode::Char(']') => self.divergent_warp(true),
            KeyCode::Char('[') => self.divergent_warp(false),
            KeyCode::Char('w') => self.mode = Mode::Warps(self.number, String::new()),
            KeyCode::Char('s') => self.source = !self.source,
            KeyCode::Char('/') => self.mode = Mode::Query(String::new()),
            KeyCode::Char('.') => self.search(),
            _ => {}
        }
    }

    fn step(&mut self, row: u64) {
        self.moved = true;
        self.go(row);
    }

    fn next_finding(&mut self) {
        let rows = self.compared.findings.iter().map(|finding| self.rows.of(finding));
        match rows.into_iter().find(|row| *row > self.cursor) {
            Some(row) => self.step(row),
            None => {
                self.message = "no more differences in this warp; ] goes to the next".to_owned()
            }
        }
    }

    fn previous_finding(&mut self) {
        let rows = self.compared.findings.iter().rev().map(|finding| self.rows.of(finding));
        match rows.into_iter().find(|row| *row < self.cursor) {
            Some(row) => self.step(row),
            None => self.message = "no differences before this one".to_owned(),
        }
    }

    fn divergent_warp(&mut self, forward: bool) {
        let found = match &self.overview {
            Overview::Running => {
                self.message = "still comparing".to_owned();
                return;
            }
            Overview::Failed(error) => {
                self.message = error.clone();
                return;
            }
            Overview::Done(warps, _) if forward => warps.range(self.number + 1..).next(),
            Overview::Done(warps, _) => warps.range(..self.number).next_back(),
        };
        match found.copied() {
            Some(number) => {
                self.moved = true;
                self.try_show(number);
            }
            None => self.message = "no more warps that differ".to_owned(),
        }
    }

    fn choose(&mut self, marked: usize, mut digits: String, code: KeyCode) {
        let last = self.pair.warps().saturating_sub(1);
        let page = self.height as usize;
        let marked = match code {
            KeyCode::Esc => return,
            KeyCode::Enter => {
                self.moved = true;
                return self.try_show(marked);
            }
            KeyCode::Char(digit) if digit.is_ascii_digit() => {
                digits.push(digit);
                digits.parse().unwrap_or(last)
            }
            KeyCode::Backspace => {
                digits.pop();
                digits.parse().unwrap_or(marked)
            }
            KeyCode::Down | KeyCode::Char('j') => marked.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => marked.saturating_sub(1),
            KeyCode::PageDown => marked.saturating_add(page),
            KeyCode::PageUp => marked.saturating_sub(page),
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => marked,
        };
        self.mode = Mode::Warps(marked.min(last), digits);
    }

    fn type_query(&mut self, mut query: String, code: KeyCode) {
        match code {
            KeyCode::Esc => return,
            KeyCode::Enter => {
                self.query = query;
                return self.search();
            }
            KeyCode::Backspace => _ = query.pop(),
            KeyCode::Char(character) => query.push(character),
            _ => {}
        }
        self.mode = Mode::Query(query);
    }

    /// Starts to look for the query behind the cursor, and then from the start.
    fn search(&mut self) {
        if self.query.is_empty() {
            self.message = "no search text; press / to enter one".to_owned();
            return;
        }
        let next = self.cursor + 1;
        self.mode = Mode::Search(Search { next, left: self.rows.count(), known: HashMap::new() });
    }

    /// Goes on searching for a while.
    pub(crate) fn work(&mut self) {
        let Mode::Search(search) = std::mem::replace(&mut self.mode, Mode::Browse) else { return };
        match self.look(search) {
            Ok(Some(search)) => self.mode = Mode::Search(search),
            Ok(None) => {}
            Err(error) => self.message = error,
        }
    }

    fn look(&mut self, mut search: Search) -> Result<Option<Search>, String> {
        let count = self.rows.count();
        if search.next >= count {
            search.next = 0;
        }
        let stride = STRIDE.min(search.left).min(count - search.next);
        if stride == 0 {
            self.message = format!("not found: {}", self.query);
            return Ok(None);
        }
        for (row, _, a, b) in self.cells(search.next, search.next + stride)? {
            for (_, event) in [a, b].into_iter().flatten() {
                if *search.known.entry(event.site).or_insert_with(|| self.matches(&event)) {
                    self.step(row);
                    return Ok(None);
                }
            }
        }
        search.next += stride;
        search.left -= stride;
        Ok(Some(search))
    }

    /// Whether the site of an event is what was asked for: its number, kind, line or function.
    fn matches(&self, event: &Event) -> bool {
        let kind = event.kind.name();
        let text = match self.pair.source(event.site) {
            Some(source) => {
                let (file, line, function) = (&source.file, source.line, &source.function);
                format!("{kind} {file}:{line}:{} {function}", source.column)
            }
            None => kind.to_owned(),
        };
        let number = format!("{:#x}", event.site);
        text.contains(&self.query) || number == self.query || event.site.to_string() == self.query
    }

    /// What is searched for.
    pub(crate) fn query(&self) -> &str {
        &self.query
    }
}
