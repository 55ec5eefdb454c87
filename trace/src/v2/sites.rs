//! The places in a program that record events.

use std::sync::OnceLock;

use crate::abi::r2 as abi;
use crate::input::record;
use crate::records::{Site, Sites};
use crate::report::Source;

const SITES: usize = size_of::<Sites>();
const SITE: usize = size_of::<Site>();

/// A site, as it is written into a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SiteRow {
    /// The same in every build in which the place did not change.
    pub key: u64,
    /// The path as the compiler was given it; empty where it is not known.
    pub file: String,
    /// The function.
    pub function: String,
    /// The calls that it is inlined at, innermost first: `file:line:column:function`, `;` between.
    pub inlined: String,
    /// From 1; 0 is unknown.
    pub line: u32,
    /// From 1; 0 is unknown.
    pub column: u32,
    /// Among the sites that agree in all of the above.
    pub ordinal: u16,
    /// What is recorded there, as [`EventKind`](crate::EventKind) numbers it.
    pub kind: u8,
    /// Width of the value that is recorded there, in bytes.
    pub bytes: u8,
}

/// The site table of a module: its chunks as they were read.
#[derive(Debug, Default)]
pub(crate) struct SiteTable {
    parts: Vec<Part>,
    /// By index; what no chunk has is `None`.
    keys: Vec<Option<u64>>,
    flags: u32,
    /// (key, index), sorted; made when it is first asked for.
    by_key: OnceLock<Vec<(u64, u32)>>,
}

#[derive(Debug)]
struct Part {
    first: u32,
    count: u32,
    bytes: Vec<u8>,
}

impl SiteTable {
    /// Takes a chunk in, or says what is wrong with it and at which byte of it.
    pub(crate) fn add(&mut self, bytes: Vec<u8>) -> Result<(), (usize, &'static str)> {
        let head: Sites = record(&bytes, 0).ok_or((0, "no header of a site table"))?;
        let needs = SITES as u64 + u64::from(head.count) * SITE as u64 + u64::from(head.strings);
        if needs != bytes.len() as u64 {
            return Err((4, "a site table has another size than it says"));
        }
        let end = u64::from(head.first) + u64::from(head.count);
        if end > u64::from(abi::NVABI_TRACE_SITE) + 1 {
            return Err((0, "a site table has more sites than events can name"));
        }
        // Tables grow by their chunks: a first entry far away would cost memory for nothing.
        let (first, end) = (head.first as usize, end as usize);
        if end > self.keys.len() {
            let limit = abi::NVABI_TRACE_SITES_MAX as usize / SITE;
            if end > limit {
                return Err((0, "a site table has more sites than a reader takes"));
            }
            self.keys.resize(end, None);
        }
        for at in 0..head.count as usize {
            let key = record::<Site>(&bytes, SITES + at * SITE).map(|site| site.key);
            if let Some(slot) = self.keys.get_mut(first + at) {
                *slot = key;
            }
        }
        self.flags |= head.flags;
        self.parts.push(Part { first: head.first, count: head.count, bytes });
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn is_v1(&self) -> bool {
        self.flags & abi::NVABI_TRACE_SITES_V1 != 0
    }

    pub(crate) fn keys(&self) -> &[Option<u64>] {
        &self.keys
    }

    pub(crate) fn row(&self, index: u32) -> Option<SiteRow> {
        let part = self
            .parts
            .iter()
            .find(|part| (part.first..part.first.saturating_add(part.count)).contains(&index))?;
        let at = SITES + (index - part.first) as usize * SITE;
        let site: Site = record(&part.bytes, at)?;
        Some(SiteRow {
            key: site.key,
            file: part.text(site.file),
            function: part.text(site.function),
            inlined: part.text(site.inlined),
            line: site.line,
            column: site.column,
            ordinal: site.ordinal,
            kind: site.kind,
            bytes: site.bytes,
        })
    }

    /// The line of a site, if the table knows it.
    pub(crate) fn source(&self, key: u64) -> Option<Source> {
        let by_key = self.by_key.get_or_init(|| {
            let keyed = self.keys.iter().zip(0..).filter_map(|(key, at)| Some(((*key)?, at)));
            let mut sorted: Vec<(u64, u32)> = keyed.collect();
            sorted.sort_unstable();
            sorted
        });
        let at = by_key.partition_point(|(other, _)| *other < key);
        let (_, index) = by_key.get(at).filter(|(found, _)| *found == key)?;
        let row = self.row(*index)?;
        (!row.file.is_empty()).then(|| row.source())
    }
}

impl Part {
    fn text(&self, offset: u32) -> String {
        let strings = SITES + self.count as usize * SITE;
        let rest = self.bytes.get(strings + offset as usize..).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        String::from_utf8_lossy(&rest[..end]).into_owned()
    }
}

impl SiteRow {
    fn source(&self) -> Source {
        Source {
            file: self.file.clone(),
            function: self.function.clone(),
            line: self.line,
            column: self.column,
            inlined_at: self.inlined.split(';').filter_map(inlined).collect(),
        }
    }
}

/// `file:line:column:function`, of which the file may have colons of its own.
fn inlined(call: &str) -> Option<Source> {
    let mut parts = call.rsplitn(4, ':');
    let function = parts.next()?.to_owned();
    let column = parts.next()?.parse().ok()?;
    let line = parts.next()?.parse().ok()?;
    let file = parts.next()?.to_owned();
    Some(Source { file, function, line, column, inlined_at: Vec::new() })
}
