//! What holds for any log or record of calls, named by the newest driver of each family.

use std::path::Path;
use std::sync::LazyLock;

use nvabi_pipeline::lock;
use nvabi_pipeline::model::Facts;
use nvabi_pipeline::spec::{Spec, spec_of};
use nvabi_reports::decode::sniff::record::{Reader, Record, Writer};
use nvabi_reports::decode::sniff::{Audit, Namer, Summary, Tables, line};
use nvabi_reports::decode::{self, Catalog, Decoder};

static SPECS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../abi-specs");

/// The newest driver of each family.
fn newest() -> impl Iterator<Item = (Facts, Spec)> {
    [("", "lock"), ("tegra", "lock-tegra")].into_iter().map(|(family, folder)| {
        let lock = Path::new(SPECS).join(folder);
        let tag = lock::read_tags(&*lock).expect("tags").pop().expect("a tag").tag;
        let specs = Spec::load_family(Path::new(SPECS), family).expect("specs");
        let spec = spec_of(&specs, &tag).expect("its spec").clone();
        (lock::read_facts(&*lock, &tag).expect("facts"), spec)
    })
}

/// A log of strace is decoded, and what was decoded is shown. Says whether a call was decoded.
pub(crate) fn strace(bytes: &[u8]) -> bool {
    static CATALOG: LazyLock<Catalog> = LazyLock::new(|| {
        let tags: Vec<_> = newest().collect();
        Catalog::new(tags.iter().map(|(facts, spec)| (facts, spec)))
    });
    let mut decoder = Decoder::new(&CATALOG);
    decoder.read(bytes, Some(&mut |_| ())).expect("memory can be read");
    let report = decoder.report();
    decode::text(&report);
    report.ioctls > 0
}

/// Calls of a record are named, shown, counted and audited; written again, they are read as they were. Says whether
/// there is a call.
pub(crate) fn record(bytes: &[u8]) -> bool {
    static TABLES: LazyLock<Tables> = LazyLock::new(|| {
        let mut tables = Tables::default();
        newest().for_each(|(facts, spec)| tables.add(facts, &spec));
        tables
    });
    let path = Path::new("calls");
    let Ok((mut reader, start)) = Reader::new(path, bytes) else { return false };
    let mut copied = Vec::new();
    let mut writer = Writer::new(&mut copied, &start).expect("memory has room");
    let (mut namer, mut summary, mut audit) =
        (Namer::default(), Summary::default(), Audit::default());
    let mut events = Vec::new();
    while let Ok(Some(record)) = reader.read() {
        let Record::Call(event) = record else { continue };
        let named = namer.name(&TABLES, &event);
        line(&named, true);
        summary.add(&named);
        audit.add(&TABLES, &event, &named);
        writer.call(&event).expect("what was read can be written");
        events.push(event);
    }
    let _shown = [summary.text(), audit.text(), audit.json().to_string()];
    let (mut again, _) = Reader::new(path, &*copied).expect("what was written can be read");
    for event in &events {
        assert!(matches!(again.read(), Ok(Some(Record::Call(other))) if other == *event));
    }
    !events.is_empty()
}

/// Bytes before the first record, and before the body of each.
const HEAD: usize = 16;
const FRAME: usize = 8;

/// Makes lengths and checksums of records right, so that what is behind them is looked at.
pub(crate) fn seal(bytes: &mut [u8]) {
    let mut rest = bytes.get_mut(HEAD..).unwrap_or_default();
    while let Some((frame, behind)) = rest.split_first_chunk_mut::<FRAME>() {
        let length = u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize;
        let (body, behind) = behind.split_at_mut(length.min(behind.len()));
        frame[..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
        frame[4..].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
        rest = behind;
    }
}
