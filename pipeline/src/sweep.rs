//! Many tags from headers to a lock: in parallel, and the headers that tags share once.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::diagnostic::Report;
use crate::extract::{self, Clang};
use crate::facts::{self, Cache, Unit};
use crate::headers::{Blobs, Source};
use crate::lock::{Lock, LockedTag};
use crate::model::Facts;
use crate::parallel;
use crate::spec::{Spec, spec_of};
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
    let threads = parallel::threads().min(tags.len().max(1));
    // The first to load libclang looks for it, and that is quick as long as there is one thread.
    drop(Clang::load()?);
    let blobs = Source::open(path)?.blobs();
    let (found, nearest) = thread::scope(|scope| {
        let nearest = scope.spawn(|| nearest(lock, &tags));
        (find(path, threads, &blobs, &tags), nearest.join().ok().flatten())
    });
    let Found { digests, firsts, distinct } = found?;
    let cache = Cache::unfilled();
    // libclang belongs to the thread that loads it.
    let start = || Ok(Clang::load()?);
    let read = |clang: &mut Clang, i: usize| {
        let (at, units) = &distinct[i];
        let (tag, spec) = tags[*at];
        facts::extract_all_targets(clang, units, tag, &spec.targets, &cache)
    };
    let mut before: Option<Facts> = None;
    let take = |i: usize, (facts, warnings): Read| {
        let at = distinct[i].0;
        let until = distinct.get(i + 1).map_or(tags.len(), |(until, _)| *until);
        match &before {
            Some(before) => lock.insert_after(before, &facts, digests[at].clone()),
            None => lock.insert(&facts, digests[at].clone()),
        }
        // The tags up to the next new headers have those of a tag before them.
        for same in at + 1..until {
            lock.insert_same(tags[same].0, tags[firsts[same]].0);
        }
        if !warnings.diagnostics.is_empty() {
            progress(Progress::Warnings(&warnings));
        }
        (at..until).for_each(|_| progress(Progress::Tag));
        before = Some(facts);
    };
    thread::scope(|scope| {
        scope.spawn(|| cache.fill(|| remember(nearest?, path, &blobs, specs)));
        in_order(threads, distinct.len(), start, read, take)
    })
}

/// What the lock says of the tag next to the first of `tags` that is not one of them.
fn nearest(lock: &Lock, tags: &[(&Tag, &Spec)]) -> Option<(LockedTag, Facts)> {
    let (first, _) = tags.first()?;
    let at = lock.tags.partition_point(|locked| locked.tag < **first);
    let mut by_distance = lock.tags[..at].iter().rev().chain(&lock.tags[at..]);
    let locked = by_distance.find(|locked| tags.iter().all(|(tag, _)| **tag != locked.tag))?;
    Some((locked.clone(), lock.facts(&locked.tag)?))
}

/// Takes what the lock says of a tag as answers, so that clang is asked for what is new alone.
/// Nothing, where the headers are not those that were locked.
fn remember(
    (locked, facts): (LockedTag, Facts),
    path: &Path,
    blobs: &Blobs,
    specs: &[Spec],
) -> Option<extract::Cache> {
    let spec = spec_of(specs, &locked.tag).ok()?;
    let mut source = Source::open_with(path, blobs.clone()).ok()?;
    let units = facts::units(&mut source, spec, &locked.tag).ok()?;
    let is_same = facts::digest(&units, &spec.targets) == locked.headers;
    is_same.then(|| facts::remember(&Clang::load().ok()?, &units, facts, &spec.targets).ok())?
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

fn find<'s>(
    path: &Path,
    threads: usize,
    blobs: &Blobs,
    tags: &[(&Tag, &'s Spec)],
) -> Result<Found<'s>, Report> {
    let mut found = Found { digests: Vec::new(), firsts: Vec::new(), distinct: Vec::new() };
    let mut known: HashMap<String, usize> = HashMap::new();
    let start = || Ok(Source::open_with(path, blobs.clone())?);
    let read = |source: &mut Source, i: usize| {
        let (tag, spec): (&Tag, &'s Spec) = tags[i];
        let units = facts::units(source, spec, tag)?;
        Ok((facts::digest(&units, &spec.targets), units))
    };
    in_order(threads, tags.len(), start, read, |i, (digest, units)| {
        let first = *known.entry(digest.clone()).or_insert(i);
        if first == i {
            found.distinct.push((i, units));
        }
        found.digests.push(digest);
        found.firsts.push(first);
    })?;
    Ok(found)
}

/// Does `count` jobs, each thread with what it starts with, and takes their results in order.
///
/// Stops at the first job that fails.
fn in_order<S, T: Send>(
    threads: usize,
    count: usize,
    start: impl Fn() -> Result<S, Report> + Sync,
    job: impl Fn(&mut S, usize) -> Result<T, Report> + Sync,
    mut take: impl FnMut(usize, T),
) -> Result<(), Report> {
    let claimed = AtomicUsize::new(0);
    thread::scope(|scope| {
        // A thread that is ahead waits until its result is taken: facts are large.
        let (send, receive) = mpsc::sync_channel(threads);
        for _ in 0..threads {
            let (send, start, job, claimed) = (send.clone(), &start, &job, &claimed);
            scope.spawn(move || {
                let mut state = start();
                loop {
                    let i = claimed.fetch_add(1, Ordering::Relaxed);
                    if i >= count {
                        return;
                    }
                    let done = match &mut state {
                        Ok(state) => job(state, i),
                        Err(report) => Err(report.clone()),
                    };
                    // Nobody receives any more once a job has failed.
                    if send.send((i, done)).is_err() {
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
