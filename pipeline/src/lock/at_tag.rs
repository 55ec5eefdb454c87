//! The facts of one tag, or of two, read without those of the others.
//!
//! A lock has some 200 tags and 100,000 items, and most questions are about one tag, or one name at one
//! tag. Reading every event of every item takes some five times as long.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use memchr::memmem;

use super::folder::{File, Files};
use super::text::{Bad, Entry, TagNames, move_line};
use super::{Fact, ItemKind, LockedTag};
use crate::diagnostic::{Diagnostic, Report};
use crate::globs::Globs;
use crate::model::{Alias, BitRange, CALLS, Call, Constant, Enum, Facts, Record, Source, Surface};
use crate::parallel;
use crate::spec::{ItemKind as SpecKind, Spec};
use crate::tag::Tag;
use crate::text_folder::TextFolder;

/// A part of the names of control commands.
const COMMAND: &[u8] = b"_CTRL_CMD_";

/// The facts of one locked tag: what [`super::Lock::facts`] gives of the whole lock.
///
/// A file that was edited by hand is refused.
pub fn read_facts(folder: impl Into<TextFolder>, tag: &Tag) -> Result<Facts, Report> {
    AtTags::open(&folder.into(), [tag])?.facts(None, |_, _| true)
}

/// The types and the calls of one locked tag, and of the constants and bit ranges those that globs such
/// as `NV_ERR_*` name, and the numbers of the calls. Most of a driver is constants of its methods.
pub fn read_facts_with(
    folder: impl Into<TextFolder>,
    tag: &Tag,
    constants: &[&str],
) -> Result<Facts, Report> {
    let folder = folder.into();
    let mut lock = AtTags::open_where(&folder, [tag], |surface| surface == CALLS)?;
    let calls = lock.facts(None, |_, _| true)?;
    let calls_of = calls.surfaces.get(CALLS).into_iter().flat_map(|surface| surface.calls.keys());
    let numbers = calls_of.map(String::as_str);
    let globs = Globs::new(constants.iter().copied().chain(numbers));
    let needless = |start: &str| globs.rules_out(start);
    lock = AtTags::open_where(&folder, [tag], |surface| surface != CALLS)?;
    let mut facts = lock.facts(Some(&needless), |name, entry| {
        entry.kind != ItemKind::Constant || globs.matches(name)
    })?;
    facts.surfaces.extend(calls.surfaces);
    Ok(facts)
}

/// What the numbers of the calls of one locked tag are made of: the calls and their constants, the ioctls of
/// a spec and what they take, and everything of some surfaces.
pub fn read_numbers(
    folder: impl Into<TextFolder>,
    tag: &Tag,
    spec: &Spec,
    surfaces: &[&str],
) -> Result<Facts, Report> {
    let folder = folder.into();
    let calls =
        AtTags::open_where(&folder, [tag], |surface| surface == CALLS)?.facts(None, |_, _| true)?;
    let calls_of = calls.surfaces.get(CALLS).into_iter().flat_map(|surface| surface.calls.keys());
    let items = spec.items.iter().map(|item| item.name.as_str());
    let names: HashSet<&str> =
        calls_of.map(String::as_str).chain(items).chain(["NV_IOCTL_MAGIC"]).collect();
    let globs = Globs::new(names.iter().copied());
    let needless = |start: &str| globs.rules_out(start);
    let ioctls =
        spec.items.iter().filter(|i| !matches!(i.kind, SpecKind::Control | SpecKind::Class));
    let types: HashSet<&str> =
        ioctls.flat_map(|item| &item.params).map(|named| named.name.as_str()).collect();
    // What another machine has otherwise is no number.
    let others =
        |surface: &str| surface != CALLS && !surfaces.contains(&surface) && !surface.contains('@');
    let lock = AtTags::open_where(&folder, [tag], others)?;
    let mut facts = lock.facts(Some(&needless), |name, entry| match entry.kind {
        ItemKind::Constant => names.contains(name),
        _ => types.contains(name),
    })?;
    let whole = AtTags::open_where(&folder, [tag], |surface| surfaces.contains(&surface))?;
    facts.surfaces.extend(whole.facts(None, |_, _| true)?.surfaces);
    facts.surfaces.extend(calls.surfaces);
    Ok(facts)
}

/// The facts of two tags, without the constants and bit ranges that are the same at both: but for those that some
/// patterns name, the numbers of calls, what could be one, and those of some surfaces.
pub fn read_changed(
    folder: impl Into<TextFolder>,
    patterns: &[&str],
    surfaces: &[&str],
    tags: [&Tag; 2],
) -> Result<[Facts; 2], Report> {
    let lock = AtTags::open(&folder.into(), tags)?;
    let kept = lock.files.kept()?;
    let patterns = Globs::new(patterns.iter().copied().chain(kept.iter().map(String::as_str)));
    let command = memmem::Finder::new(COMMAND);
    let [from, to] = lock.items(None, |file, name, entry, tags| {
        Ok(entry.kind != ItemKind::Constant
            || entry.differs(tags, lock.at)?
            || surfaces.contains(&file.surface.as_str())
            || command.find(name.as_bytes()).is_some()
            || patterns.matches(name))
    })?;
    Ok(parallel::both(|| from.facts(), || to.facts()).into())
}

/// Complains that a lock lacks a tag.
pub fn no_tag(locked: &[LockedTag], tag: &Tag) -> Diagnostic {
    let names: Vec<&str> = locked.iter().map(|locked| locked.tag.as_str()).collect();
    let at = locked.partition_point(|locked| locked.tag < *tag);
    let near = names[at.saturating_sub(2)..(at + 2).min(names.len())].join(", ");
    let same = locked.iter().find(|locked| locked.tag.is_release_of(tag));
    let help = match same {
        Some(same) => format!("it has that release as `{}`", same.tag),
        None => format!("`nvabi ranges --nearest {tag}` looks for one with the same ABI"),
    };
    Diagnostic::error("lock-no-tag", format!("the lock has no tag {tag}"))
        .note(format!("it has {} tags; next to it: {near}", names.len()))
        .help(help)
}

/// A lock, and the tags that are asked for.
struct AtTags<'t, const N: usize> {
    files: Files,
    tags: [&'t Tag; N],
    at: [usize; N],
}

impl<'t, const N: usize> AtTags<'t, N> {
    fn open(folder: &TextFolder, tags: [&'t Tag; N]) -> Result<Self, Report> {
        Self::open_where(folder, tags, |_| true)
    }

    /// Of some surfaces alone.
    fn open_where(
        folder: &TextFolder,
        tags: [&'t Tag; N],
        wanted: impl Fn(&str) -> bool + Sync,
    ) -> Result<Self, Report> {
        let files = Files::open(folder, wanted)?;
        let (mut at, mut report) = ([0; N], Report::default());
        for (at, tag) in at.iter_mut().zip(tags) {
            match files.index_of(tag) {
                Ok(found) => *at = found,
                Err(unknown) => report.push(unknown),
            }
        }
        report.into_result(Self { files, tags, at }).map(|(lock, _)| lock)
    }

    /// The items that are wanted, at each tag. Starts of names that are needless for sure are passed over.
    fn items(
        &self,
        needless: Option<&(dyn Fn(&str) -> bool + Sync)>,
        wanted: impl Fn(&File, &str, &Entry<'_>, &TagNames<'_>) -> Result<bool, Bad> + Sync,
    ) -> Result<[Read<'_>; N], Report> {
        let names = self.files.tag_names();
        let read = parallel::map(&self.files.files, |file| {
            (file.edited(), self.items_of(file, &names, needless, &wanted))
        });
        let mut report = Report::default();
        let mut all = self.tags.map(|tag| Read { tag, items: Vec::new() });
        for (file, (edited, items)) in self.files.files.iter().zip(read) {
            report.diagnostics.extend(edited);
            match items {
                Ok(items) => all
                    .iter_mut()
                    .zip(items)
                    .for_each(|(read, items)| read.items.push((&file.surface, items))),
                Err(bad) => report.push(file.complaint(&bad)),
            }
        }
        report.into_result(all).map(|(all, _)| all)
    }

    fn items_of(
        &self,
        file: &File,
        tags: &TagNames<'_>,
        needless: Option<&(dyn Fn(&str) -> bool + Sync)>,
        wanted: impl Fn(&File, &str, &Entry<'_>, &TagNames<'_>) -> Result<bool, Bad>,
    ) -> Result<[Items; N], Bad> {
        let mut scanner = file.scanner(tags)?;
        scanner.end_behind(self.at.into_iter().max().unwrap_or_default());
        if let Some(needless) = needless {
            scanner.pass_over_where(needless);
        }
        let path: Arc<str> = file.path.as_str().into();
        let mut items = [(); N].map(|()| Items::default());
        while let Some(entry) = scanner.next()? {
            if !wanted(file, scanner.name(), &entry, tags)? {
                continue;
            }
            let facts = entry.facts_at(tags, self.at)?;
            for ((items, at), fact) in items.iter_mut().zip(self.at).zip(facts) {
                let Some((fact, line, from)) = fact else { continue };
                let line = move_line(line, from, at, file.moves(tags)?);
                items.add(scanner.name().to_owned(), fact, Source { path: path.clone(), line });
            }
        }
        Ok(items)
    }
}

impl AtTags<'_, 1> {
    fn facts(
        &self,
        needless: Option<&(dyn Fn(&str) -> bool + Sync)>,
        wanted: impl Fn(&str, &Entry<'_>) -> bool + Sync,
    ) -> Result<Facts, Report> {
        let [read] = self.items(needless, |_, name, entry, _| Ok(wanted(name, entry)))?;
        Ok(read.facts())
    }
}

/// What was read of one tag, by surface: several files are of one.
struct Read<'f> {
    tag: &'f Tag,
    items: Vec<(&'f str, Items)>,
}

impl Read<'_> {
    fn facts(self) -> Facts {
        let mut surfaces: BTreeMap<&str, Items> = BTreeMap::new();
        for (surface, items) in self.items {
            surfaces.entry(surface).or_default().append(items);
        }
        let surfaces = surfaces.into_iter().map(|(name, items)| (name.to_owned(), items.surface()));
        let surfaces = surfaces.filter(|(_, surface)| *surface != Surface::default()).collect();
        Facts { tag: self.tag.clone(), surfaces }
    }
}

/// The items of a surface in the order of the files: making a map of all of them at once takes half as
/// long as putting one after the other in.
#[derive(Default)]
struct Items {
    records: Vec<(String, Record)>,
    aliases: Vec<(String, Alias)>,
    enums: Vec<(String, Enum)>,
    constants: Vec<(String, Constant)>,
    bit_ranges: Vec<(String, BitRange)>,
    calls: Vec<(String, Call)>,
}

impl Items {
    fn add(&mut self, name: String, fact: Fact, source: Source) {
        match fact {
            Fact::Record { kind, size, align, fields } => {
                self.records.push((name, Record { kind, size, align, source, fields }));
            }
            Fact::Enum { size, variants } => {
                self.enums.push((name, Enum { size, source, variants }));
            }
            Fact::Alias { ty, size } => self.aliases.push((name, Alias { ty, size, source })),
            Fact::Call(takes) => self.calls.push((name, Call { takes, source })),
            Fact::Constant(value) => self.constants.push((name, Constant { value, source })),
            Fact::BitRange(high, low) => {
                self.bit_ranges.push((name, BitRange { high, low, source }));
            }
        }
    }

    fn append(&mut self, more: Self) {
        self.records.extend(more.records);
        self.aliases.extend(more.aliases);
        self.enums.extend(more.enums);
        self.constants.extend(more.constants);
        self.bit_ranges.extend(more.bit_ranges);
        self.calls.extend(more.calls);
    }

    /// Where two headers name one thing, the last has it, as in [`super::Lock::facts`].
    fn surface(self) -> Surface {
        Surface {
            records: self.records.into_iter().collect(),
            aliases: self.aliases.into_iter().collect(),
            enums: self.enums.into_iter().collect(),
            constants: self.constants.into_iter().collect(),
            bit_ranges: self.bit_ranges.into_iter().collect(),
            calls: self.calls.into_iter().collect(),
        }
    }
}
