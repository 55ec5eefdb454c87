//! The facts of one tag, read without those of the others.
//!
//! A lock has some 200 tags and 100,000 items, and most questions are about one tag, or one name at one
//! tag. Reading every event of every item takes some five times as long.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

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

/// The facts of one locked tag: what [`super::Lock::facts`] gives of the whole lock.
///
/// A file that was edited by hand is refused.
pub fn read_facts(folder: impl Into<TextFolder>, tag: &Tag) -> Result<Facts, Report> {
    AtTag::open(&folder.into(), tag)?.facts(None, |_, _| true)
}

/// The types and the calls of one locked tag, and of the constants and bit ranges those that globs such
/// as `NV_ERR_*` name, and the numbers of the calls. Most of a driver is constants of its methods.
pub fn read_facts_with(
    folder: impl Into<TextFolder>,
    tag: &Tag,
    constants: &[&str],
) -> Result<Facts, Report> {
    let folder = folder.into();
    let mut lock = AtTag::open_where(&folder, tag, |surface| surface == CALLS)?;
    let calls = lock.facts(None, |_, _| true)?;
    let calls_of = calls.surfaces.get(CALLS).into_iter().flat_map(|surface| surface.calls.keys());
    let numbers = calls_of.map(String::as_str);
    let globs = Globs::new(constants.iter().copied().chain(numbers));
    let needless = |start: &str| globs.rules_out(start);
    lock = AtTag::open_where(&folder, tag, |surface| surface != CALLS)?;
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
        AtTag::open_where(&folder, tag, |surface| surface == CALLS)?.facts(None, |_, _| true)?;
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
    let lock = AtTag::open_where(&folder, tag, others)?;
    let mut facts = lock.facts(Some(&needless), |name, entry| match entry.kind {
        ItemKind::Constant => names.contains(name),
        _ => types.contains(name),
    })?;
    let whole = AtTag::open_where(&folder, tag, |surface| surfaces.contains(&surface))?;
    facts.surfaces.extend(whole.facts(None, |_, _| true)?.surfaces);
    facts.surfaces.extend(calls.surfaces);
    Ok(facts)
}

/// Complains that a lock lacks a tag.
pub fn no_tag(locked: &[LockedTag], tag: &Tag) -> Diagnostic {
    let names: Vec<&str> = locked.iter().map(|locked| locked.tag.as_str()).collect();
    let at = locked.partition_point(|locked| locked.tag < *tag);
    let near = names[at.saturating_sub(2)..(at + 2).min(names.len())].join(", ");
    let same = locked.iter().find(|locked| locked.tag.is_release_of(tag));
    let help = match same {
        Some(same) => format!("it has that release as `{}`", same.tag),
        None => format!("`nvabi ranges --nearest {tag}` finds one with the same ABI"),
    };
    Diagnostic::error("lock-no-tag", format!("the lock has no tag {tag}"))
        .note(format!("it has {} tags; next to it: {near}", names.len()))
        .help(help)
}

/// A lock, and the tag that is asked for.
struct AtTag<'t> {
    files: Files,
    tag: &'t Tag,
    at: usize,
}

impl<'t> AtTag<'t> {
    fn open(folder: &TextFolder, tag: &'t Tag) -> Result<Self, Report> {
        Self::open_where(folder, tag, |_| true)
    }

    /// Of some surfaces alone.
    fn open_where(
        folder: &TextFolder,
        tag: &'t Tag,
        wanted: impl Fn(&str) -> bool + Sync,
    ) -> Result<Self, Report> {
        let files = Files::open(folder, wanted)?;
        let at = files.tags.binary_search_by(|locked| locked.tag.cmp(tag));
        let at = at.map_err(|_| no_tag(&files.tags, tag))?;
        Ok(Self { files, tag, at })
    }

    /// The facts whose items are wanted. Starts of names that are needless for sure are passed over.
    fn facts(
        &self,
        needless: Option<&(dyn Fn(&str) -> bool + Sync)>,
        wanted: impl Fn(&str, &Entry<'_>) -> bool + Sync,
    ) -> Result<Facts, Report> {
        let names = self.files.tag_names();
        let read = parallel::map(&self.files.files, |file| {
            (file.edited(), self.items(file, &names, needless, &wanted))
        });
        let mut report = Report::default();
        let mut surfaces: BTreeMap<&str, Items> = BTreeMap::new();
        for (file, (edited, items)) in self.files.files.iter().zip(read) {
            report.diagnostics.extend(edited);
            match items {
                Ok(items) => surfaces.entry(&file.surface).or_default().append(items),
                Err(bad) => report.push(file.complaint(&bad)),
            }
        }
        let surfaces = surfaces.into_iter().map(|(name, items)| (name.to_owned(), items.surface()));
        let mut surfaces: BTreeMap<String, Surface> = surfaces.collect();
        surfaces.retain(|_, surface| *surface != Surface::default());
        let facts = Facts { tag: self.tag.clone(), surfaces };
        report.into_result(facts).map(|(facts, _)| facts)
    }

    fn items(
        &self,
        file: &File,
        tags: &TagNames<'_>,
        needless: Option<&(dyn Fn(&str) -> bool + Sync)>,
        wanted: impl Fn(&str, &Entry<'_>) -> bool,
    ) -> Result<Items, Bad> {
        let mut scanner = file.scanner(tags)?;
        scanner.end_behind(self.at);
        if let Some(needless) = needless {
            scanner.pass_over_where(needless);
        }
        let path: Arc<str> = file.path.as_str().into();
        let mut items = Items::default();
        while let Some(entry) = scanner.next()? {
            if !wanted(scanner.name(), &entry) {
                continue;
            }
            let Some((fact, line, from)) = entry.fact_at(tags, self.at)? else { continue };
            let line = move_line(line, from, self.at, file.moves(tags)?);
            items.add(scanner.name().to_owned(), fact, Source { path: path.clone(), line });
        }
        Ok(items)
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
