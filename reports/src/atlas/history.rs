//! The lock by name: for each surface what holds at which tags, wherever the header lies.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::ptr;

use nvabi_pipeline::lock::{Fact, ItemKind, Lock};
use nvabi_pipeline::spec::Spec;

/// A fact and the tags for which it stays as it is, at one line of one header.
pub(super) struct Span<'l> {
    /// Indices into [`Lock::tags`].
    pub(super) tags: Range<usize>,
    pub(super) fact: &'l Fact,
    /// The same for equal facts of one name.
    pub(super) id: u32,
    pub(super) path: &'l str,
    pub(super) line: u32,
}

/// In tag order.
pub(super) type Spans<'l> = Vec<Span<'l>>;

/// Everything of one sort, by name.
pub(super) type Named<'l> = BTreeMap<&'l str, Spans<'l>>;

/// One translation unit.
pub(super) struct Surface<'l> {
    pub(super) name: &'l str,
    pub(super) records: Named<'l>,
    pub(super) aliases: Named<'l>,
    pub(super) enums: Named<'l>,
    pub(super) constants: Named<'l>,
    pub(super) calls: Named<'l>,
}

/// What holds at a tag.
pub(super) fn at<'s, 'l>(spans: &'s [Span<'l>], tag: usize) -> Option<&'s Span<'l>> {
    let after = spans.partition_point(|span| span.tags.start <= tag);
    spans.get(after.checked_sub(1)?).filter(|span| span.tags.contains(&tag))
}

/// The lock by surface and name: surfaces of the specs in their order, others behind them.
pub(super) fn surfaces<'l>(lock: &'l Lock, specs: &[Spec]) -> Vec<Surface<'l>> {
    let mut surfaces: BTreeMap<(usize, &str), Surface<'_>> = BTreeMap::new();
    let declared: Vec<&str> =
        specs.iter().flat_map(|s| &s.surfaces).map(|s| s.name.as_str()).collect();
    for ((name, path), header) in &lock.headers {
        let rank = declared.iter().position(|n| n == name).unwrap_or(usize::MAX);
        let surface = surfaces.entry((rank, name)).or_insert_with(|| Surface {
            name,
            records: Named::new(),
            aliases: Named::new(),
            enums: Named::new(),
            constants: Named::new(),
            calls: Named::new(),
        });
        for ((kind, name), history) in &header.items {
            let spans = match kind {
                ItemKind::Record => &mut surface.records,
                ItemKind::Alias => &mut surface.aliases,
                ItemKind::Enum => &mut surface.enums,
                ItemKind::Constant => &mut surface.constants,
                ItemKind::Call => &mut surface.calls,
            };
            let spans = spans.entry(name).or_default();
            for (i, state) in history.iter().enumerate() {
                let end = history.get(i + 1).map_or(lock.tags.len(), |next| next.from);
                let Some(placed) = &state.value else { continue };
                let (fact, line) = (&*placed.fact, placed.line);
                spans.push(Span { tags: state.from..end, fact, id: 0, path, line });
            }
        }
    }
    let mut surfaces: Vec<_> = surfaces.into_values().collect();
    for surface in &mut surfaces {
        let sorts = [&mut surface.records, &mut surface.aliases, &mut surface.enums];
        let all = sorts.into_iter().chain([&mut surface.constants, &mut surface.calls]);
        all.flat_map(|named| named.values_mut()).for_each(|s| s.sort_by_key(|s| s.tags.start));
    }
    number(&mut surfaces);
    surfaces
}

/// Gives equal layouts of one name the same id, across surfaces.
fn number(surfaces: &mut [Surface<'_>]) {
    let mut known: HashMap<&str, Vec<(&Fact, u32)>> = HashMap::new();
    let mut next = 0;
    for surface in surfaces {
        for (name, spans) in &mut surface.records {
            let known = known.entry(name).or_default();
            for span in spans {
                // Facts that only moved share their allocation, which spares comparing fields.
                let same = |f: &&(&Fact, u32)| ptr::eq(f.0, span.fact) || f.0 == span.fact;
                span.id = known.iter().find(same).map_or(next, |(_, id)| *id);
                if span.id == next {
                    known.push((span.fact, next));
                    next += 1;
                }
            }
        }
    }
}
