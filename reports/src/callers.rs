//! Whom the driver's tables let make a call, over the tags of a lock.

use std::collections::HashMap;

use nvabi_pipeline::lock::{Fact, History, ItemKind, Lock, state_at};
use nvabi_pipeline::model::Access;

/// What a lock has of its commands and classes, by name: a history for each header that the number was in.
pub(crate) struct Callers<'l>(HashMap<&'l str, Vec<&'l History>>);

/// Indices of the first and the last tag of a run.
pub(crate) type Run = (usize, usize);

impl<'l> Callers<'l> {
    pub(crate) fn new(lock: &'l Lock) -> Self {
        let mut histories: HashMap<&str, Vec<&History>> = HashMap::new();
        for ((kind, name), history) in lock.headers.values().flat_map(|header| &header.items) {
            if *kind == ItemKind::Call {
                histories.entry(name).or_default().push(history);
            }
        }
        Self(histories)
    }

    /// `None` where the tables do not tell.
    fn at(&self, name: &str, tag: usize) -> Option<&'l Access> {
        let histories = self.0.get(name)?;
        match &*histories.iter().find_map(|history| state_at(history, tag))?.fact {
            Fact::Call(takes) => takes.access.as_ref(),
            _ => None,
        }
    }

    /// Some tags in order, as runs of those at which the same programs may make a call.
    pub(crate) fn runs(
        &self,
        name: &str,
        tags: impl Iterator<Item = usize>,
    ) -> Vec<(Option<&'l Access>, Vec<Run>)> {
        let mut found: Vec<(Option<&Access>, Vec<Run>)> = Vec::new();
        for tag in tags {
            let access = self.at(name, tag);
            match found.iter_mut().find(|(known, _)| *known == access) {
                Some((_, runs)) => extend(runs, tag),
                None => found.push((access, vec![(tag, tag)])),
            }
        }
        found
    }
}

/// Puts a tag behind some runs.
pub(crate) fn extend(runs: &mut Vec<Run>, tag: usize) {
    match runs.last_mut() {
        Some((_, last)) if *last + 1 == tag => *last = tag,
        _ => runs.push((tag, tag)),
    }
}
