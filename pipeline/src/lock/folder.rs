//! Lock files: read from a folder of text, written to one on disk.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use memchr::memmem;

use super::text::{self, Bad, Entry, Moves, Scanner, TagNames};
use super::{Fact, Header, History, ItemKind, Lock, LockedTag, Placed, State};
use crate::diagnostic::{Diagnostic, Report, SourceSpan};
use crate::files;
use crate::globs::Globs;
use crate::model::{CALLS, Facts, hex, split_array};
use crate::parallel;
use crate::spec::Spec;
use crate::tag::Tag;
use crate::text_folder::TextFolder;

const TAGS: &str = "tags";
/// Writes into the list of tags how many lock files there are.
const FILES: &str = "files";
const EXTENSION: &str = "lock";
const REDO: &str = "the lock is written by `nvabi lock` alone: restore it from version control, or lock its tags again";

/// The folder of a family's lock, in the folder of the specs.
pub fn folder(specs: &Path, family: &str) -> PathBuf {
    specs.join(folder_name(family))
}

/// What the folder of a family's lock is called.
pub fn folder_name(family: &str) -> String {
    match family {
        "" => "lock".to_owned(),
        _ => format!("lock-{family}"),
    }
}

/// The families that a folder of specs has a lock of; the one without a name comes first.
pub fn families(specs: &TextFolder) -> Vec<String> {
    let family = |folder: &String| match folder.as_str() {
        "lock" => Some(String::new()),
        folder => folder.strip_prefix("lock-").map(str::to_owned),
    };
    // A folder that cannot be read has none: who needs one reads it again and says why.
    let families = specs.folders().unwrap_or_default();
    let families = families.iter().filter_map(family);
    families.filter(|family| exists(&specs.join(&folder_name(family)))).collect()
}

/// Whether there is a lock: it has a list of tags.
pub fn exists(folder: &TextFolder) -> bool {
    folder.has(TAGS)
}

/// Reads a whole lock.
///
/// Files that were edited by hand are complained of, and read all the same where they can be:
/// comparing them with the driver then shows what was changed.
pub fn read(folder: impl Into<TextFolder>) -> Result<(Lock, Report), Report> {
    read_files(Files::open(&folder.into(), |_| true)?)
}

fn read_files(files: Files) -> Result<(Lock, Report), Report> {
    let mut report = Report::default();
    let mut lock = Lock { tags: files.tags.clone(), headers: BTreeMap::new() };
    let names = files.tag_names();
    let parsed = parallel::map(&files.files, |file| (file.edited(), file.parse(&names)));
    for (file, (edited, header)) in files.files.iter().zip(parsed) {
        report.diagnostics.extend(edited);
        match header {
            Ok(header) => {
                lock.headers.insert((file.surface.clone(), file.path.clone()), header);
            }
            Err(bad) => report.push(file.complaint(&bad)),
        }
    }
    if report.diagnostics.iter().any(|d| d.code == "lock-damaged") {
        return Err(report);
    }
    Ok((lock, report))
}

/// The locked tags alone.
pub fn read_tags(folder: impl Into<TextFolder>) -> Result<Vec<LockedTag>, Report> {
    Ok(read_tag_list(&folder.into())?.tags)
}

fn read_tag_list(folder: &TextFolder) -> Result<TagList, Report> {
    let text = folder.read(TAGS).map_err(|e| unreadable(folder, TAGS, &e))?;
    parse_tags(&text).map_err(|bad| complaint(TAGS, &text, &bad).into())
}

/// What the list of tags holds.
#[derive(Default)]
struct TagList {
    /// How many lock files there are beside it; locks were written without that once.
    files: Option<usize>,
    tags: Vec<LockedTag>,
}

/// Which part of a lock to read.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// The types in the closure of their items, the enums, and the constants that they name.
    pub specs: &'a [&'a Spec],
    /// Globs of further constants.
    pub constants: &'a [&'a str],
    /// Whether moves of lines are wanted as well; else an item keeps the line it had at first.
    pub lines: bool,
}

/// The part of a lock that the specs' items need, without moves of lines.
pub fn read_closure(folder: impl Into<TextFolder>, specs: &[&Spec]) -> Result<Lock, Report> {
    read_part(folder, Part { specs, constants: &[], lines: false })
}

/// Part of a lock.
///
/// The other items are passed over without being read, so that nobody waits for them.
pub fn read_part(folder: impl Into<TextFolder>, part: Part<'_>) -> Result<Lock, Report> {
    let Part { specs, constants, lines } = part;
    let wanted = Wanted { specs, constants, named: None, at: None, lines };
    part_of(Files::open(&folder.into(), |surface| surface != CALLS)?, wanted)
}

/// Which names to read of a lock.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    /// Types, enumerators, constants, bit ranges and calls.
    pub names: &'a [&'a str],
    /// The types and constants that their items name are wanted as well.
    pub specs: &'a [&'a Spec],
    /// Surfaces of which everything is wanted.
    pub surfaces: &'a [&'a str],
}

/// What has one of some names, at every tag, and what that is made of: the enums of enumerators, the parameters of
/// calls, the fields of records.
pub fn read_names(folder: impl Into<TextFolder>, names: Names<'_>) -> Result<Lock, Report> {
    let Names { names, specs, surfaces } = names;
    let named = Some(Named { names: names.iter().copied().collect(), surfaces });
    let files = Files::open(&folder.into(), |_| true)?;
    part_of(files, Wanted { specs, constants: names, named, at: None, lines: true })
}

/// The same part as [`read_part`] gives with lines, of two tags alone, and what the driver's tables say of the
/// specs' items.
pub fn read_part_at(
    folder: impl Into<TextFolder>,
    part: Part<'_>,
    tags: [&Tag; 2],
) -> Result<[Facts; 2], Report> {
    let files = Files::open(&folder.into(), |_| true)?;
    let Part { specs, constants, .. } = part;
    let at = Some(At::new(&files, &tags, false)?);
    let locked = part_of(files, Wanted { specs, constants, named: None, at, lines: true })?;
    Ok(facts_of(&locked, tags))
}

/// Everything of some tags: a lock of these alone.
pub fn read_at(folder: impl Into<TextFolder>, tags: &[&Tag]) -> Result<Lock, Report> {
    let files = Files::open(&folder.into(), |_| true)?;
    let at = Some(At::new(&files, tags, true)?);
    part_of(files, Wanted { specs: &[], constants: &[], named: None, at, lines: true })
}

fn facts_of(locked: &Lock, tags: [&Tag; 2]) -> [Facts; 2] {
    let facts = |tag: &Tag| {
        let nothing = || Facts { tag: tag.clone(), surfaces: BTreeMap::new() };
        locked.facts(tag).unwrap_or_else(nothing)
    };
    let [earlier, later] = tags;
    parallel::both(|| facts(earlier), || facts(later)).into()
}

/// The constants that have a value at any tag.
pub fn names_of_value(
    folder: impl Into<TextFolder>,
    value: i128,
) -> Result<BTreeSet<String>, Report> {
    let files = Files::open(&folder.into(), |surface| surface != CALLS && !surface.contains('@'))?;
    let tags = files.tag_names();
    let spelled = hex(value);
    let names = |file: &File| -> Result<Vec<String>, Bad> {
        let mut names = Vec::new();
        // Most headers do not have it at all.
        if memmem::find(file.text.as_bytes(), spelled.as_bytes()).is_none() {
            return Ok(names);
        }
        let mut scanner = file.scanner(&tags)?;
        while let Some(entry) = scanner.next()? {
            if entry.kind != ItemKind::Constant {
                continue;
            }
            let is_value = |state: &State| {
                let placed = state.value.as_ref();
                placed.is_some_and(|placed| *placed.fact == Fact::Constant(value))
            };
            if entry.spells(&spelled) && entry.events(&tags)?.iter().any(is_value) {
                names.push(scanner.name().to_owned());
            }
        }
        Ok(names)
    };
    let read = parallel::map(&files.files, |file| (file.edited(), names(file)));
    let (mut found, mut report) = (BTreeSet::new(), Report::default());
    for (file, (edited, names)) in files.files.iter().zip(read) {
        report.diagnostics.extend(edited);
        match names {
            Ok(names) => found.extend(names),
            Err(bad) => report.push(file.complaint(&bad)),
        }
    }
    report.into_result(found).map(|(found, _)| found)
}

/// What [`part_of`] looks for.
struct Wanted<'a> {
    specs: &'a [&'a Spec],
    constants: &'a [&'a str],
    /// Of enums and calls, those that are needed; without, every enum, and the calls that are items.
    named: Option<Named<'a>>,
    /// Of histories, what holds at these.
    at: Option<At>,
    lines: bool,
}

/// Some tags: what is read are their states alone, as a lock of no other tags has them.
struct At {
    /// Indices, in order.
    tags: Vec<usize>,
    /// Whether every item is wanted.
    everything: bool,
}

impl At {
    fn new(files: &Files, tags: &[&Tag], everything: bool) -> Result<Self, Report> {
        let (mut found, mut report) = (Vec::new(), Report::default());
        for tag in tags {
            match files.index_of(tag) {
                Ok(at) => found.push(at),
                Err(unknown) => report.push(unknown),
            }
        }
        found.sort_unstable();
        found.dedup();
        report.into_result(Self { tags: found, everything }).map(|(at, _)| at)
    }

    fn last(&self) -> usize {
        self.tags.last().copied().unwrap_or_default()
    }
}

struct Named<'a> {
    names: HashSet<&'a str>,
    surfaces: &'a [&'a str],
}

fn part_of(files: Files, part: Wanted<'_>) -> Result<Lock, Report> {
    let names = files.tag_names();
    let mut report = Report::default();
    let mut found: Vec<Vec<Item>> = Vec::new();
    let mut types: HashMap<&str, Vec<(usize, Type)>> = HashMap::new();
    // A call's number is wanted as well: its name is a pattern without a star.
    let specs = part.specs;
    let names_of_numbers = specs.iter().flat_map(|spec| &spec.items).map(|i| i.name.as_str());
    let items: HashSet<&str> = names_of_numbers.clone().collect();
    let patterns = specs.iter().flat_map(|spec| &spec.constants).map(|c| c.name.as_str());
    let patterns = patterns.chain(part.constants.iter().copied());
    let wanted = Globs::new(names_of_numbers.chain(patterns));
    let needless = |start: &str| wanted.rules_out(start);
    let scanned = parallel::map(&files.files, |file| {
        let whole = part.named.as_ref().is_some_and(|n| n.surfaces.contains(&&*file.surface));
        let scanned = match whole {
            true => file.parse(&names).map(|header| Scanned {
                items: header.items.into_iter().collect(),
                types: Vec::new(),
            }),
            false => file.scan(&names, &wanted, &items, &needless, &part),
        };
        (file.edited(), scanned)
    });
    for (at, (edited, scanned)) in scanned.into_iter().enumerate() {
        report.diagnostics.extend(edited);
        let scanned = scanned.unwrap_or_else(|bad| {
            report.push(files.files[at].complaint(&bad));
            Scanned::default()
        });
        found.push(scanned.items);
        for (name, ty) in scanned.types {
            types.entry(name).or_default().push((at, ty));
        }
    }
    let mut pending: Vec<String> = roots(specs).map(str::to_owned).collect();
    pending.extend(part.named.iter().flat_map(|named| &named.names).map(|name| (*name).to_owned()));
    // Where every type was wanted, none is left to look for.
    if !types.is_empty() {
        let facts = found.iter().flatten().flat_map(|(_, history)| history);
        let facts = facts.filter_map(|state| state.value.as_ref());
        pending.extend(facts.flat_map(|placed| uses(&placed.fact)).map(str::to_owned));
    }
    pending.sort_unstable();
    pending.dedup();
    let mut seen: HashSet<String> = pending.iter().cloned().collect();
    while let Some(name) = pending.pop() {
        for (at, ty) in types.get(name.as_str()).into_iter().flatten() {
            let file = &files.files[*at];
            match file.events_at(*ty, &names, &part) {
                Ok(events) => {
                    let used =
                        events.iter().filter_map(|e| e.value.as_ref()).flat_map(|p| uses(&p.fact));
                    pending.extend(
                        used.filter(|name| seen.insert((*name).to_owned())).map(str::to_owned),
                    );
                    found[*at].push(((ty.kind, name.clone()), events));
                }
                Err(bad) => report.push(file.complaint(&bad)),
            }
        }
    }
    let Files { mut tags, files } = files;
    if let Some(at) = &part.at {
        tags = at.tags.iter().filter_map(|at| tags.get(*at).cloned()).collect();
    }
    let found = files.into_iter().zip(found).filter(|(_, items)| !items.is_empty());
    let header = |items: Vec<Item>| Header { items: items.into_iter().collect() };
    let headers = found.map(|(file, items)| ((file.surface, file.path), header(items))).collect();
    report.into_result(Lock { tags, headers }).map(|(lock, _)| lock)
}

/// The types that the specs name themselves.
fn roots<'s>(specs: &[&'s Spec]) -> impl Iterator<Item = &'s str> {
    specs.iter().flat_map(|spec| {
        let items = spec.items.iter().flat_map(|item| item.params.iter().chain(item.pointees()));
        items.chain(&spec.extra_types).map(|named| named.name.as_str())
    })
}

/// The types that a fact is made of.
fn uses(fact: &Fact) -> Vec<&str> {
    match fact {
        Fact::Record { fields, .. } => fields.iter().map(|f| split_array(&f.canonical).0).collect(),
        Fact::Alias { ty, .. } => vec![split_array(ty).0],
        Fact::Call(call) => call.params.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Writes a lock: each file beside the old one and renamed over it, files of headers that are gone
/// removed, the list of tags last.
pub fn write(folder: &Path, lock: &Lock) -> Result<(), Report> {
    let headers: Vec<(&(String, String), &Header)> = lock.headers.iter().collect();
    let written = parallel::map(&headers, |((surface, path), header)| {
        let target = folder.join(surface).join(format!("{path}.{EXTENSION}"));
        let text = text::print(surface, path, header, &lock.tags);
        replace(&target, &text).map(|()| target)
    });
    let kept: BTreeSet<PathBuf> = written.into_iter().collect::<Result<_, Report>>()?;
    let files = TextFolder::from(folder).files();
    for path in files.map_err(|error| unreadable(&folder.into(), TAGS, &error))? {
        let file = folder.join(path);
        if file.extension().is_some_and(|e| e == EXTENSION) && !kept.contains(&file) {
            fs::remove_file(&file).map_err(|e| unwritable(&file, &e))?;
        }
    }
    let mut text = format!("{}\n{FILES} {}\n", text::MAGIC, kept.len());
    for LockedTag { tag, headers } in &lock.tags {
        text.push_str(&format!("{tag} {headers}\n"));
    }
    text::seal(&mut text, lock.tags.len());
    replace(&folder.join(TAGS), &text)
}

/// Leaves equal files alone.
fn replace(target: &Path, text: &str) -> Result<(), Report> {
    if fs::read(target).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(());
    }
    let folder = target.parent().map_or(Ok(()), fs::create_dir_all);
    let written = folder.and_then(|()| files::write(target, text));
    written.map_err(|error| unwritable(target, &error).into())
}

/// The texts of a lock's files.
pub(super) struct Files {
    pub(super) tags: Vec<LockedTag>,
    pub(super) files: Vec<File>,
}

/// The text of one file.
pub(super) struct File {
    pub(super) surface: String,
    pub(super) path: String,
    text: Arc<str>,
    /// How lines moved, once somebody has asked.
    moves: OnceLock<Moves>,
}

impl Files {
    /// The files of the surfaces that are wanted.
    pub(super) fn open(
        folder: &TextFolder,
        wanted: impl Fn(&str) -> bool + Sync,
    ) -> Result<Self, Report> {
        let TagList { files, tags } = read_tag_list(folder)?;
        let mut paths = folder.files().map_err(|error| unreadable(folder, TAGS, &error))?;
        paths.retain(|path| path.ends_with(".lock"));
        let found = paths.len();
        if let Some(listed) = files.filter(|listed| *listed != found) {
            let what = format!("the lock has {found} files, but its list of tags counts {listed}");
            let folder = format!("folder {folder}");
            return Err(Diagnostic::error("lock-damaged", what).note(folder).help(REDO).into());
        }
        let read = parallel::map(&paths, |path| {
            let header = path.strip_suffix(".lock").and_then(|header| header.split_once('/'));
            let Some((surface, header)) = header.filter(|(surface, _)| wanted(surface)) else {
                return Ok(None);
            };
            let text = folder.read(path).map_err(|e| unreadable(folder, path, &e))?;
            let (surface, path) = (surface.to_owned(), header.to_owned());
            Ok(Some(File { surface, path, text, moves: OnceLock::new() }))
        });
        let files: Vec<Option<File>> = read.into_iter().collect::<Result<_, Diagnostic>>()?;
        Ok(Self { tags, files: files.into_iter().flatten().collect() })
    }

    /// Names of constants that matter where they stay, at any tag: the numbers of calls, and those that another
    /// machine has otherwise.
    pub(super) fn kept(&self) -> Result<HashSet<String>, Report> {
        let tags = self.tag_names();
        let mut kept = HashSet::new();
        let is_kept = |file: &&File| file.surface == CALLS || file.surface.contains('@');
        for file in self.files.iter().filter(is_kept) {
            let complaint = |bad: Bad| file.complaint(&bad);
            let mut scanner = file.scanner(&tags).map_err(complaint)?;
            while scanner.next().map_err(complaint)?.is_some() {
                kept.insert(scanner.name().to_owned());
            }
        }
        Ok(kept)
    }

    /// The index of a tag, or a complaint that there is none.
    pub(super) fn index_of(&self, tag: &Tag) -> Result<usize, Diagnostic> {
        let found = self.tags.binary_search_by(|locked| locked.tag.cmp(tag));
        found.map_err(|_| super::no_tag(&self.tags, tag))
    }

    pub(super) fn tag_names(&self) -> TagNames<'_> {
        self.tags.iter().enumerate().map(|(i, t)| (t.tag.as_str(), i)).collect()
    }
}

/// Whether an enum has an enumerator that is wanted, at any tag.
fn has_variant(entry: &Entry<'_>, wanted: impl Fn(&str) -> bool) -> bool {
    let variants = entry.body().lines().filter_map(|line| line.strip_prefix('\t'));
    variants.filter_map(|line| line.split_once(' ')).any(|(name, _)| wanted(name))
}

/// An item by its kind and name.
type Item = ((ItemKind, String), History);

/// What of a file was read, and where the rest stands.
#[derive(Default)]
struct Scanned<'f> {
    items: Vec<Item>,
    types: Vec<(&'f str, Type)>,
}

/// Where a type stands.
#[derive(Clone, Copy)]
struct Type {
    kind: ItemKind,
    at: usize,
    section: usize,
}

impl File {
    fn body(&self) -> Result<&str, Bad> {
        let (body, ..) =
            text::unseal(&self.text).map_err(|why| Bad { at: self.text.len(), why })?;
        Ok(body)
    }

    pub(super) fn scanner<'f>(&'f self, tags: &'f TagNames<'f>) -> Result<Scanner<'f>, Bad> {
        Scanner::new(self.body()?, &self.surface, &self.path, tags)
    }

    /// Complains when the checksum does not fit.
    pub(super) fn edited(&self) -> Option<Diagnostic> {
        let (body, _, sum) = text::unseal(&self.text).ok()?;
        (text::checksum(body) != sum).then(|| {
            Diagnostic::error(
                "lock-edited",
                format!("the lock of {} ({}) was edited by hand", self.path, self.surface),
            )
            .note(format!(
                "file {}/{}.{EXTENSION}: its checksum does not fit its text",
                self.surface, self.path
            ))
            .help(REDO)
        })
    }

    /// The last line has the number of items; where the text was edited that is reported already.
    fn check_count(&self, count: usize) -> Result<(), Bad> {
        match text::unseal(&self.text) {
            Ok((body, stated, sum)) if stated != count && text::checksum(body) == sum => {
                let why = format!("its last line counts {stated} items, but it has {count}");
                Err(Bad { at: body.len(), why })
            }
            _ => Ok(()),
        }
    }

    fn parse(&self, tags: &TagNames<'_>) -> Result<Header, Bad> {
        let mut scanner = self.scanner(tags)?;
        let moves = scanner.moves()?;
        let mut items: Vec<Item> = Vec::new();
        while let Some(entry) = scanner.next()? {
            let history = text::expand(entry.events(tags)?, &moves);
            items.push(((entry.kind, scanner.name().to_owned()), history));
        }
        self.check_count(items.len())?;
        Ok(Header { items: items.into_iter().collect() })
    }

    /// The wanted enums, calls and constants, and where the other types stand.
    fn scan<'f>(
        &'f self,
        tags: &'f TagNames<'f>,
        wanted: &Globs<'_>,
        items: &HashSet<&str>,
        needless: &'f (dyn Fn(&str) -> bool + Sync),
        part: &Wanted<'_>,
    ) -> Result<Scanned<'f>, Bad> {
        let mut scanner = self.scanner(tags)?;
        let everything = part.at.as_ref().is_some_and(|at| at.everything);
        if !everything {
            scanner.pass_over_where(needless);
        }
        if let Some(at) = &part.at {
            scanner.end_behind(at.last());
        }
        let mut scanned = Scanned::default();
        while let Some(entry) = scanner.next()? {
            let needed = match (entry.kind, &part.named) {
                _ if everything => true,
                (ItemKind::Enum, None) => true,
                (ItemKind::Enum, Some(named)) => has_variant(&entry, |v| named.names.contains(v)),
                (ItemKind::Call, None) => items.contains(scanner.name()),
                (ItemKind::Call, Some(named)) => named.names.contains(scanner.name()),
                (ItemKind::Constant, _) => wanted.matches(scanner.name()),
                (ItemKind::Record | ItemKind::Alias, _) => false,
            };
            let is_type = !matches!(entry.kind, ItemKind::Call | ItemKind::Constant);
            if is_type && !needed {
                let (kind, at, section) = (entry.kind, entry.at, entry.section);
                let name = entry.name().unwrap_or_default();
                scanned.types.push((name, Type { kind, at, section }));
            }
            if needed {
                let history = self.history(&entry, tags, part)?;
                if history.is_empty() {
                    continue;
                }
                scanned.items.push(((entry.kind, scanner.name().to_owned()), history));
            }
        }
        Ok(scanned)
    }

    fn history(
        &self,
        entry: &Entry<'_>,
        tags: &TagNames<'_>,
        part: &Wanted<'_>,
    ) -> Result<History, Bad> {
        if let Some(at) = &part.at {
            return self.states_at(entry, tags, &at.tags);
        }
        let events = entry.events(tags)?;
        match part.lines {
            true => Ok(text::expand(events, self.moves(tags)?)),
            false => Ok(events),
        }
    }

    /// What holds at some tags, as if there were no others.
    fn states_at(
        &self,
        entry: &Entry<'_>,
        tags: &TagNames<'_>,
        all: &[usize],
    ) -> Result<History, Bad> {
        let mut states = History::new();
        let mut last: Option<(usize, Arc<Fact>)> = None;
        for (index, at) in all.iter().enumerate().filter(|(_, at)| entry.section <= **at) {
            let value = match entry.fact_at(tags, *at)? {
                None => None,
                Some((fact, line, from)) => {
                    let fact = match last {
                        Some((before, fact)) if before == from => fact,
                        _ => Arc::new(fact),
                    };
                    last = Some((from, fact.clone()));
                    let line = text::move_line(line, from, *at, self.moves(tags)?);
                    Some(Placed { fact, line })
                }
            };
            states.push(State { from: index, value });
        }
        super::normalise(&mut states);
        Ok(states)
    }

    /// How lines moved: most files have nothing that anybody asks for.
    pub(super) fn moves(&self, tags: &TagNames<'_>) -> Result<&Moves, Bad> {
        match self.moves.get() {
            Some(moves) => Ok(moves),
            None => {
                let moves = self.scanner(tags)?.moves()?;
                Ok(self.moves.get_or_init(|| moves))
            }
        }
    }

    fn events_at(&self, ty: Type, tags: &TagNames<'_>, part: &Wanted<'_>) -> Result<History, Bad> {
        let mut scanner = self.scanner(tags)?;
        scanner.seek(ty.at, ty.section);
        match scanner.next()? {
            Some(entry) => self.history(&entry, tags, part),
            None => Err(Bad { at: ty.at, why: "an item is missing".into() }),
        }
    }

    pub(super) fn complaint(&self, bad: &Bad) -> Diagnostic {
        complaint(&format!("{}/{}.{EXTENSION}", self.surface, self.path), &self.text, bad)
    }
}

fn complaint(path: &str, text: &str, bad: &Bad) -> Diagnostic {
    let end = text[bad.at.min(text.len())..].find('\n').map_or(text.len(), |n| bad.at + n);
    Diagnostic::error("lock-damaged", format!("cannot read the lock: {}", bad.why))
        .at(SourceSpan { path: format!("lock/{path}"), text: text.into(), span: bad.at..end })
        .help(REDO)
}

fn parse_tags(text: &str) -> Result<TagList, Bad> {
    let (body, count, sum) = text::unseal(text).map_err(|why| Bad { at: text.len(), why })?;
    let TagList { mut files, mut tags } = TagList::default();
    let mut at = 0;
    for line in body.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let bad = |why: String| Err(Bad { at: start, why });
        let line = line.trim_end();
        if start == 0 {
            match line == text::MAGIC {
                true => continue,
                false => return bad("it is not a lock of this version of nvabi".into()),
            }
        }
        let Some((tag, headers)) = line.split_once(' ') else {
            return bad("a line is a tag and a digest".into());
        };
        if tag == FILES {
            match headers.parse() {
                Ok(count) => files = Some(count),
                Err(_) => return bad("the number of files is no number".into()),
            }
            continue;
        }
        let tag: Tag = match tag.parse() {
            Ok(tag) => tag,
            Err(why) => return bad(why),
        };
        if tags.last().is_some_and(|last| last.tag >= tag) {
            return bad("the tags are not in version order".into());
        }
        tags.push(LockedTag { tag, headers: headers.to_owned() });
    }
    match count == tags.len() && text::checksum(body) == sum {
        true => Ok(TagList { files, tags }),
        false => Err(Bad { at: body.len(), why: "the list of tags was edited by hand".into() }),
    }
}

fn unreadable(folder: &TextFolder, path: &str, error: &std::io::Error) -> Diagnostic {
    let place = folder.show(path);
    Diagnostic::error("lock-unreadable", format!("cannot read {place}: {error}"))
        .help("`nvabi lock TAG` makes a lock")
}

fn unwritable(path: &Path, error: &std::io::Error) -> Diagnostic {
    Diagnostic::error("lock-unwritable", format!("cannot write {}: {error}", path.display()))
}
