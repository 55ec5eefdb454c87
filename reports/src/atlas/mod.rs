//! The lock as a static site: a page for every record and call with its layout at every version.
//!
//! Pages are a function of lock and specs: the same bytes whenever they are made. Nothing here
//! touches files, and nothing in the pages needs a server, nor a script but for searching.

mod bytemap;
mod calls;
mod history;
pub(crate) mod html;
mod index;
mod layout;
mod matrix;
mod page;
mod pair;
mod search;
mod seen;
mod tag;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use calls::Call;
use history::{Surface, at};
use layout::Layout;

use nvabi_pipeline::lock::{Fact, Lock};
use nvabi_pipeline::model::split_array;
use nvabi_pipeline::spec::Spec;

/// Every file of the site: its path, with slashes, and its text.
pub fn pages<'a>(
    lock: &'a Lock,
    specs: &'a [Spec],
) -> impl ExactSizeIterator<Item = (String, String)> + 'a {
    let atlas = Atlas::new(lock, specs);
    let all = atlas.all();
    all.into_iter().map(move |page| atlas.page(page))
}

/// A file of the site.
#[derive(Debug, Clone, Copy)]
enum Page {
    Index,
    Search,
    SearchData,
    Style,
    Script,
    Tag(usize),
    Record(usize),
    Call(usize),
    Matrix(usize),
    Pair(usize),
}

/// What the pages are made of.
struct Atlas<'a> {
    lock: &'a Lock,
    specs: &'a [Spec],
    surfaces: Vec<Surface<'a>>,
    records: Vec<Record<'a>>,
    calls: Vec<CallPage<'a>>,
    /// Surface and name to the page of a record.
    by_name: HashMap<(usize, &'a str), usize>,
    matrices: Vec<matrix::Matrix>,
    pairs: Vec<pair::Pair>,
}

/// The page of a record.
struct Record<'a> {
    name: &'a str,
    /// Where the name means this record.
    surfaces: Vec<usize>,
    /// Whether the name means something else in another surface.
    shared_name: bool,
    /// In the folder of records.
    file: String,
    layouts: Vec<Layout<'a>>,
    /// By tag, the layout.
    line: Vec<Option<usize>>,
    changes: Vec<Change>,
    /// Pages of records that hold it, and of calls that take it.
    holders: BTreeSet<usize>,
    callers: BTreeSet<usize>,
}

/// The page of a call.
struct CallPage<'a> {
    call: Call<'a>,
    /// Relative to the site's folder.
    file: String,
    changes: Vec<Change>,
}

/// Something happens at a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    at: usize,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    /// There now: with this layout or state.
    New(usize),
    Gone,
    /// From one layout or state to another.
    Other(usize, usize),
    /// As it was, but these records in it are not.
    Inside(Vec<usize>),
}

impl<'a> Atlas<'a> {
    fn new(lock: &'a Lock, specs: &'a [Spec]) -> Self {
        let surfaces = history::surfaces(lock, specs);
        let (records, by_name) = records(&surfaces, lock.tags.len());
        let calls = calls::calls(lock, specs, &surfaces);
        let mut atlas = Self {
            lock,
            specs,
            surfaces,
            records,
            calls: vec![],
            by_name,
            matrices: vec![],
            pairs: vec![],
        };
        atlas.changes_inside();
        atlas.link_holders();
        let mut files = Files::default();
        for call in calls {
            let file = files.name(call.kind.section(), call.name);
            let changes = atlas.call_changes(&call);
            atlas.calls.push(CallPage { call, file, changes });
        }
        atlas.link_callers();
        atlas.matrices = matrix::plan(&atlas);
        atlas.pairs = pair::pairs(lock, specs, &atlas.branches());
        atlas
    }

    fn all(&self) -> Vec<Page> {
        let fixed = [Page::Index, Page::Search, Page::SearchData, Page::Style, Page::Script];
        let tags = (0..self.lock.tags.len()).map(Page::Tag);
        let matrices = (0..self.matrices.len()).map(Page::Matrix);
        let pairs = (0..self.pairs.len()).map(Page::Pair);
        let calls = (0..self.calls.len()).map(Page::Call);
        let records = (0..self.records.len()).map(Page::Record);
        let lists = tags.chain(matrices).chain(pairs);
        fixed.into_iter().chain(lists).chain(calls).chain(records).collect()
    }

    fn page(&self, page: Page) -> (String, String) {
        match page {
            Page::Index => ("index.html".to_owned(), index::page(self)),
            Page::Search => ("search.html".to_owned(), search::page()),
            Page::SearchData => ("search.js".to_owned(), search::data(self)),
            Page::Style => ("style.css".to_owned(), include_str!("style.css").to_owned()),
            Page::Script => ("atlas.js".to_owned(), include_str!("atlas.js").to_owned()),
            Page::Tag(i) => (self.tag_file(i), tag::page(self, i)),
            Page::Record(i) => (self.record_file(i), page::record(self, i)),
            Page::Call(i) => (self.calls[i].file.clone(), page::call(self, i)),
            Page::Pair(i) => (self.pairs[i].file.clone(), pair::page(self, i)),
            Page::Matrix(i) => (self.matrices[i].file.clone(), matrix::page(self, i)),
        }
    }

    fn tag(&self, index: usize) -> &'a str {
        self.lock.tags.get(index).map_or("", |locked| locked.tag.as_str())
    }

    fn tag_file(&self, index: usize) -> String {
        format!("tag/{}.html", self.tag(index))
    }

    fn record_file(&self, index: usize) -> String {
        format!("record/{}.html", self.records[index].file)
    }

    /// Whether it is shown inside the record that it is an unnamed part of.
    fn is_laid_open(&self, record: &Record<'_>) -> bool {
        let outer = record.name.rsplit_once("::").map(|(outer, _)| outer);
        outer.is_some_and(|outer| {
            record.surfaces.iter().any(|surface| self.by_name.contains_key(&(*surface, outer)))
        })
    }

    /// Each branch and its tags.
    fn branches(&self) -> Vec<(&'a str, Range<usize>)> {
        let mut branches: Vec<(&str, Range<usize>)> = Vec::new();
        for (i, locked) in self.lock.tags.iter().enumerate() {
            match branches.last_mut() {
                Some((branch, tags)) if *branch == locked.tag.branch() => tags.end = i + 1,
                _ => branches.push((locked.tag.branch(), i..i + 1)),
            }
        }
        branches
    }

    /// Where upstream has the tag's files; nothing but a web address is taken.
    fn repository(&self, tag: usize) -> Option<&'a str> {
        let branch = self.lock.tags.get(tag)?.tag.branch();
        let spec = self.specs.iter().find(|spec| spec.driver == branch)?;
        let url = spec.repository.as_deref()?;
        url.starts_with("https://").then(|| url.trim_end_matches('/').trim_end_matches(".git"))
    }

    /// The page of the record that a type's name stands for at a tag.
    fn record_at(&self, name: &str, tag: usize) -> Option<usize> {
        let (name, _) = split_array(name);
        self.surfaces.iter().enumerate().find_map(|(i, surface)| {
            let is = |name: &str| at(surface.records.get(name)?, tag).map(|_| ());
            if is(name).is_some() {
                return self.by_name.get(&(i, name)).copied();
            }
            let Fact::Alias { ty, .. } = at(surface.aliases.get(name)?, tag)?.fact else {
                return None;
            };
            let (ty, _) = split_array(ty);
            is(ty).and_then(|()| self.by_name.get(&(i, ty)).copied())
        })
    }

    /// Pages of the records that a layout holds without laying them open.
    fn held(&self, layout: &Layout<'a>) -> BTreeSet<usize> {
        let surface = layout.uses.first().map_or(0, |one| one.surface);
        let closed = layout.rows.iter().filter(|row| row.open.is_none());
        let names = closed.filter_map(|row| row.record);
        names.filter_map(|name| self.by_name.get(&(surface, name)).copied()).collect()
    }

    /// Completes the records' changes by those of the records in them.
    fn changes_inside(&mut self) {
        let mut known = HashMap::new();
        for page in 0..self.records.len() {
            self.inside(page, &mut known);
        }
        for (page, found) in known {
            let record = &mut self.records[page];
            let inside = found.into_iter();
            let inside = inside
                .map(|(at, pages)| Change { at, what: What::Inside(pages.into_iter().collect()) });
            record.changes.extend(inside);
            record.changes.sort_by_key(|change| change.at);
        }
    }

    /// Tags at which records in a record change while it stays, and which.
    fn inside(&self, page: usize, known: &mut HashMap<usize, Inside>) {
        // Known from the start: a lock that was tampered with may go in circles.
        if known.contains_key(&page) {
            return;
        }
        known.insert(page, Inside::new());
        let record = &self.records[page];
        let mut found = Inside::new();
        for (number, layout) in record.layouts.iter().enumerate() {
            for held in self.held(layout) {
                self.inside(held, known);
                let own = self.records[held].changes.iter().map(|change| change.at);
                let deeper = known.get(&held).into_iter().flat_map(|inside| inside.keys().copied());
                let stays = |at: &usize| {
                    let before = at.checked_sub(1).and_then(|before| record.line[before]);
                    before == Some(number) && record.line[*at] == Some(number)
                };
                for at in own.chain(deeper).filter(stays) {
                    found.entry(at).or_default().insert(held);
                }
            }
        }
        known.insert(page, found);
    }

    fn link_holders(&mut self) {
        let mut links = Vec::new();
        for (page, record) in self.records.iter().enumerate() {
            for held in record.layouts.iter().flat_map(|layout| self.held(layout)) {
                links.push((held, page));
            }
        }
        for (held, page) in links {
            self.records[held].holders.insert(page);
        }
    }

    fn link_callers(&mut self) {
        let mut links = Vec::new();
        for (page, call) in self.calls.iter().enumerate() {
            for state in &call.call.states {
                links.extend(self.params(state).into_iter().map(|record| (record, page)));
            }
        }
        for (record, page) in links {
            self.records[record].callers.insert(page);
        }
    }

    /// Pages of the records that a call takes.
    fn params(&self, state: &calls::State<'_>) -> Vec<usize> {
        let mut pages: Vec<usize> = Vec::new();
        for name in &state.params {
            let found = state.tags.clone().find_map(|tag| self.record_at(name, tag));
            pages.extend(found.filter(|page| !pages.contains(page)));
        }
        pages
    }

    fn call_changes(&self, call: &Call<'_>) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut end = None;
        for (i, state) in call.states.iter().enumerate() {
            let at = state.tags.start;
            if let Some(end) = end.filter(|end| *end < at) {
                changes.push(Change { at: end, what: What::Gone });
            }
            match i.checked_sub(1).filter(|_| end == Some(at)) {
                None => changes.push(Change { at, what: What::New(i) }),
                Some(before) if call.states[before].differs(state) => {
                    changes.push(Change { at, what: What::Other(before, i) });
                }
                Some(before) => changes.extend(self.params_at(&call.states[before], state)),
            }
            changes.extend(self.params_changes(state));
            end = Some(state.tags.end);
        }
        let count = self.lock.tags.len();
        changes.extend(end.filter(|e| *e < count).map(|at| Change { at, what: What::Gone }));
        changes
    }

    /// A change of the parameters where one state of a call goes on as another like it.
    fn params_at(&self, before: &calls::State<'_>, state: &calls::State<'_>) -> Option<Change> {
        let at = state.tags.start;
        let stays = self.params(before);
        let changed = |page: &usize| {
            stays.contains(page) && self.records[*page].changes.iter().any(|c| c.at == at)
        };
        let pages: Vec<usize> = self.params(state).into_iter().filter(changed).collect();
        (!pages.is_empty()).then_some(Change { at, what: What::Inside(pages) })
    }

    /// Changes of the parameters while the call stays as it is.
    fn params_changes(&self, state: &calls::State<'_>) -> Vec<Change> {
        let mut inside = Inside::new();
        for page in self.params(state) {
            for change in &self.records[page].changes {
                if state.tags.start < change.at && change.at < state.tags.end {
                    inside.entry(change.at).or_default().insert(page);
                }
            }
        }
        let change = |(at, pages): (_, BTreeSet<_>)| Change {
            at,
            what: What::Inside(pages.into_iter().collect()),
        };
        inside.into_iter().map(change).collect()
    }
}

/// By tag, the records that change there.
type Inside = BTreeMap<usize, BTreeSet<usize>>;

/// Every record's page, by name, without what comes of other records.
fn records<'a>(
    surfaces: &[Surface<'a>],
    tags: usize,
) -> (Vec<Record<'a>>, HashMap<(usize, &'a str), usize>) {
    let mut names: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, surface) in surfaces.iter().enumerate() {
        for name in surface.records.keys() {
            names.entry(name).or_default().push(i);
        }
    }
    let (mut records, mut by_name, mut files) = (Vec::new(), HashMap::new(), Files::default());
    for (name, which) in names {
        let groups = groups(surfaces, name, &which);
        let shared_name = groups.len() > 1;
        for (number, group) in groups.into_iter().enumerate() {
            let file = match number {
                0 => name.to_owned(),
                _ => format!("{name}.{}", surfaces[group[0]].name),
            };
            let file = files.stem("record", &file);
            by_name.extend(group.iter().map(|i| ((*i, name), records.len())));
            records.push(record(surfaces, name, group, file, tags, shared_name));
        }
    }
    (records, by_name)
}

/// Surfaces in which a name means one record: at no tag do they differ.
fn groups(surfaces: &[Surface<'_>], name: &str, which: &[usize]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let agree = |a: usize, b: usize| {
        let (a, b) = (surfaces[a].records.get(name), surfaces[b].records.get(name));
        a.into_iter().flatten().all(|a| {
            let together = b
                .into_iter()
                .flatten()
                .filter(|b| a.tags.start < b.tags.end && b.tags.start < a.tags.end);
            together.into_iter().all(|b| a.id == b.id)
        })
    };
    for i in which {
        match groups.iter_mut().find(|group| group.iter().all(|other| agree(*i, *other))) {
            Some(group) => group.push(*i),
            None => groups.push(vec![*i]),
        }
    }
    groups
}

fn record<'a>(
    surfaces: &[Surface<'a>],
    name: &'a str,
    which: Vec<usize>,
    file: String,
    tags: usize,
    shared_name: bool,
) -> Record<'a> {
    let layouts = layout::layouts(surfaces, &which, name);
    let mut line: Vec<Option<usize>> = vec![None; tags];
    // The first surface that has it decides, where an unnamed record in it differs.
    for surface in which.iter().rev() {
        for (number, layout) in layouts.iter().enumerate() {
            for one in layout.uses.iter().filter(|one| one.surface == *surface) {
                line[one.tags.clone()].fill(Some(number));
            }
        }
    }
    let mut changes = Vec::new();
    let mut before = None;
    for (at, now) in line.iter().enumerate() {
        let what = match (before, *now) {
            (None, Some(now)) => What::New(now),
            (Some(_), None) => What::Gone,
            (Some(before), Some(now)) if before != now => What::Other(before, now),
            _ => continue,
        };
        before = *now;
        changes.push(Change { at, what });
    }
    let (holders, callers) = (BTreeSet::new(), BTreeSet::new());
    Record { name, surfaces: which, shared_name, file, layouts, line, changes, holders, callers }
}

/// Names of files: plain letters, and no two that differ by case alone.
#[derive(Default)]
struct Files {
    taken: HashSet<String>,
}

impl Files {
    fn name(&mut self, folder: &str, name: &str) -> String {
        let stem = self.stem(folder, name);
        format!("{folder}/{stem}.html")
    }

    /// The name without its ending. A colon would make a relative link an absolute one.
    fn stem(&mut self, folder: &str, name: &str) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '@');
        let name = name.replace("::", ".");
        let name: String = name.chars().map(|c| if plain(c) { c } else { '-' }).collect();
        let name = name.trim_start_matches(['.', '-']);
        let mut stem = name.to_owned();
        for number in 2.. {
            if self.taken.insert(format!("{folder}/{}", stem.to_lowercase())) {
                break;
            }
            stem = format!("{name}-{number}");
        }
        stem
    }
}
