//! Many tags from headers to a lock: in parallel, and the headers that tags share once.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::diagnostic::{Diagnostic, Report};
use crate::extract::Clang;
use crate::facts::{self, Cache, Unit};
use crate::headers::Source;
use crate::lock::Lock;
use crate::model::Facts;
use crate::spec::Spec;
use crate::tag::Tag;

/// How far a sweep has come.
pub enum Progress<'a> {
    /// One more tag is in the lock.
    Tag,
    /// The parser warned.
    Warnings(&'a Report),
}

/// Facts of a tag and what the parser warned of.
type Read = (Facts, Report);

/// Reads `tags` from the headers at `path` into `lock`, in version order.
///
/// The facts are the same whatever the number of threads: tags are read alone and taken in one
/// after the other.
pub fn sweep(
    lock: &mut Lock,
    path: &Path,
    specs: &[Spec],
    tags: &[Tag],
    mut progress: impl FnMut(Progress<'_>),
) -> Result<(), Report> {
    let mut tags: Vec<(&Tag, &Spec)> =
        tags.iter().map(|tag| Ok((tag, spec_of(specs, tag)?))).collect::<Result<_, Report>>()?;
    tags.sort_unstable_by_key(|(tag, _)| *tag);
    tags.dedup_by_key(|(tag, _)| *tag);
    let count = thread::available_parallelism().map_or(1, usize::from).min(tags.len().max(1));
    let first = Source::open(path)?;
    let others = (1..count).map(|_| first.again()).collect::<Result<Vec<_>, Diagnostic>>()?;
    let mut sources: Vec<Source> = std::iter::once(first).chain(others).collect();

    let Found { digests, firsts, distinct } = find(&mut sources, &tags)?;

    let mut next = 0;
    // Takes in every tag up to `facts`, whose headers the tags before it had.
    let take_until = |lock: &mut Lock, next: &mut usize, end: usize| {
        while *next < end {
            lock.insert_same(tags[*next].0, tags[firsts[*next]].0);
            *next += 1;
        }
    };
    let cache = Cache::default();
    let read = |_: &mut Source, clang: &mut Option<Clang>, i: usize| {
        let (at, units) = &distinct[i];
        let (tag, spec) = tags[*at];
        let clang = match clang {
            Some(clang) => clang,
            none => none.insert(Clang::load()?),
        };
        facts::extract_all_targets(clang, units, tag, &spec.targets, &cache)
    };
    in_order(&mut sources, distinct.len(), read, |i, read: Read| {
        let (facts, warnings) = read;
        let at = distinct[i].0;
        take_until(lock, &mut next, at);
        lock.insert(&facts, digests[at].clone());
        next += 1;
        if !warnings.diagnostics.is_empty() {
            progress(Progress::Warnings(&warnings));
        }
        let until = distinct.get(i + 1).map_or(tags.len(), |(until, _)| *until);
        (at..until).for_each(|_| progress(Progress::Tag));
    })?;
    take_until(lock, &mut next, tags.len());
    Ok(())
}

/// The spec that a tag belongs to.
pub fn spec_of<'s>(specs: &'s [Spec], tag: &Tag) -> Result<&'s Spec, Report> {
    let found = specs.iter().find(|spec| spec.driver == tag.branch());
    found.ok_or_else(|| {
        let message = format!("no spec says what driver {} is", tag.branch());
        let drivers: Vec<&str> = specs.iter().map(|spec| spec.driver.as_str()).collect();
        let diagnostic = Diagnostic::error("spec-no-driver", message)
            .note(format!("there are specs for {}", drivers.join(", ")));
        match crate::diagnostic::nearest(tag.branch(), drivers) {
            Some(near) => diagnostic.help(format!("did you mean a tag of {near}?")),
            None => diagnostic.help("write abi-specs/driver-N.toml, see CONTRIBUTING.md"),
        }
        .into()
    })
}

/// Which headers the tags have.
struct Found<'s> {
    /// Of each tag.
    digests: Vec<String>,
    /// Of each tag: the first that has the same headers.
    firsts: Vec<usize>,
    /// Those firsts, with what was read of them.
    distinct: Vec<(usize, Vec<Unit<'s>>)>,
}

fn find<'s>(sources: &mut [Source], tags: &[(&Tag, &'s Spec)]) -> Result<Found<'s>, Report> {
    let mut found = Found { digests: Vec::new(), firsts: Vec::new(), distinct: Vec::new() };
    let mut known: HashMap<String, usize> = HashMap::new();
    let read = |source: &mut Source, _: &mut Option<Clang>, i: usize| {
        let (tag, spec): (&Tag, &'s Spec) = tags[i];
        let units = facts::units(source, spec, tag)?;
        Ok((facts::digest(&units, &spec.targets), units))
    };
    in_order(sources, tags.len(), read, |i, (digest, units)| {
        let first = *known.entry(digest.clone()).or_insert(i);
        if first == i {
            found.distinct.push((i, units));
        }
        found.digests.push(digest);
        found.firsts.push(first);
    })?;
    Ok(found)
}

/// Does `count` jobs, each thread with what is its own, and takes their results in order.
///
/// Stops at the first job that fails.
fn in_order<T: Send>(
    sources: &mut [Source],
    count: usize,
    job: impl Fn(&mut Source, &mut Option<Clang>, usize) -> Result<T, Report> + Sync,
    mut take: impl FnMut(usize, T),
) -> Result<(), Report> {
    let claimed = AtomicUsize::new(0);
    thread::scope(|scope| {
        // A thread that is ahead waits until its result is taken: facts are large.
        let (send, receive) = mpsc::sync_channel(sources.len());
        for source in sources {
            let (send, job, claimed) = (send.clone(), &job, &claimed);
            scope.spawn(move || {
                // libclang belongs to the thread that loads it.
                let mut clang = None;
                loop {
                    let i = claimed.fetch_add(1, Ordering::Relaxed);
                    // Nobody receives any more once a job has failed.
                    if i >= count || send.send((i, job(source, &mut clang, i))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let mut waiting = BTreeMap::new();
        let mut next = 0;
        for (i, result) in receive {
            waiting.insert(i, result);
            while let Some(result) = waiting.remove(&next) {
                take(next, result?);
                next += 1;
            }
        }
        Ok(())
    })
}
