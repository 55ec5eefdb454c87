//! What is written is what is read, also after damage.

use std::ops::RangeInclusive;
use std::path::Path;

use nvabi_trace::convert;
use nvabi_trace::report::{Note, Status};
use nvabi_trace::{
    Error, Event, EventKind, Found, Launch, Options, Problem, SiteRow, Trace, V2Writer, diff,
};

use crate::pairs::{FORMATS, Format, Pair, Random, Warp, write, write_v2};

/// A warp and its events.
type Read = (u32, Vec<Event>);

/// The events that can be read of each warp, and the bytes of what cannot.
fn read(trace: &Trace, launch: usize) -> (Vec<Read>, Vec<(u32, u32, u64)>) {
    let (mut warps, mut lost) = (Vec::new(), Vec::new());
    for found in trace.warps(launch) {
        match found {
            Found::Warp(warp) => {
                let events: Vec<Event> = warp.events().collect::<Result<_, _>>().unwrap();
                assert_eq!(events.len() as u64, warp.len());
                warps.push((warp.number(), events));
            }
            Found::Lost { first, last, error } => lost.push((first, last, error.offset())),
        }
    }
    (warps, lost)
}

fn many(seed: u64, warps: usize, events: u64) -> Vec<Warp> {
    let mut random = Random(seed);
    let build = |_| {
        let mut warp = Warp::default();
        for _ in 0..events / 2 + random.below(events / 2) {
            warp.branch(10 + random.below(300) as u32, random.below(2) == 1);
            let event = warp.events.last_mut().unwrap();
            (event.mask, event.value) = (random.next() as u32, random.next() as u32);
        }
        warp
    };
    (0..warps).map(build).collect()
}

fn file(format: Format, warps: &[Warp]) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    write(&path, format, warps);
    (folder, path)
}

#[test]
fn formats_hold_the_same() {
    let warps = many(1, 40, 800);
    for format in FORMATS {
        let (_folder, path) = file(format, &warps);
        let trace = Trace::open(&path).unwrap();
        let launch = &trace.launches()[0];
        assert_eq!((launch.kernel.as_str(), launch.grid, launch.warps), ("reduce", [40, 1, 1], 40));
        let (read, lost) = read(&trace, 0);
        assert_eq!((read.len(), lost.len()), (40, 0), "{format:?}");
        for ((number, read), warp) in read.iter().zip(&warps) {
            assert_eq!(read.len(), warp.events.len(), "{format:?} {number}");
            for (read, event) in read.iter().zip(&warp.events) {
                let told = (read.site, read.kind.0, read.direction, read.mask, read.value);
                let (site, direction) = (u64::from(event.site), u32::from(event.direction));
                let value = Some(u64::from(event.value));
                assert_eq!(told, (site, event.kind, direction, event.mask, value));
            }
        }
    }
}

#[test]
fn v1_to_v2_and_back_is_the_same_file() {
    let mut warps = many(2, 30, 3000);
    warps[3].events.clear();
    warps[7].dropped = 12;
    warps[9].events[5].direction = 7;
    warps[9].events[6].kind = 2;
    let (folder, path) = file(Format::V1, &warps);
    let (v2, again) = (folder.path().join("v2"), folder.path().join("again"));
    let trace = Trace::open(&path).unwrap();
    let mut out = V2Writer::new(std::fs::File::create(&v2).unwrap(), Some(3)).unwrap();
    convert::to_v2(&trace, &mut out, &mut nothing_lost).unwrap();
    out.finish().unwrap();
    let trace = Trace::open(&v2).unwrap();
    let file = std::fs::File::create(&again).unwrap();
    convert::to_v1(&trace, 0, false, file, &mut nothing_lost).unwrap();
    assert!(std::fs::read(&path).unwrap() == std::fs::read(&again).unwrap());
    let small = std::fs::metadata(&v2).unwrap().len();
    assert!(small < std::fs::metadata(&path).unwrap().len() * 4 / 5, "{small} bytes");
}

#[test]
fn v2_says_what_v1_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let mut out = V2Writer::new(std::fs::File::create(&path).unwrap(), Some(3)).unwrap();
    let site = SiteRow {
        key: 0x0123_4567_89ab_cdef,
        file: "src/kernel.cu".to_owned(),
        function: "reduce".to_owned(),
        inlined: "a.h:3:4:helper;b.h:5:6:outer".to_owned(),
        line: 19,
        column: 5,
        ordinal: 1,
        kind: 2,
        bytes: 8,
    };
    out.sites(0, 0, std::slice::from_ref(&site), false).unwrap();
    let launch = Launch {
        kernel: "k".to_owned(),
        stream: 3,
        order: 9,
        arch: 90,
        module_hash: [0xab; 32],
        warps: 8,
        ..Launch::default()
    };
    let event = |kind, direction, ballot, value| Event {
        site: site.key,
        kind,
        direction,
        mask: 0xffff,
        ballot,
        value,
    };
    let events = [
        event(EventKind::BRANCH, 0, Some(0), None),
        event(EventKind::BRANCH, 1, Some(0xffff), None),
        event(EventKind::BRANCH, 1, Some(0x0101), None),
        event(EventKind::BRANCH, 0, Some(0x0ff0), Some(7)),
        event(EventKind::BRANCH, 70_000, Some(1), Some(8)),
        event(EventKind::ATOMIC, 0, None, Some(u64::MAX - 1)),
        event(EventKind::EXIT, 0, None, None),
    ];
    out.launch(&launch, 0).unwrap();
    out.warp(5).unwrap();
    for event in &events {
        out.event(0, event).unwrap();
    }
    out.end_warp(4).unwrap();
    out.end_launch().unwrap();
    out.finish().unwrap();

    let trace = Trace::open(&path).unwrap();
    let launch = Launch { events: Some(7), dropped: Some(4), ..launch };
    assert_eq!(trace.launches(), [launch]);
    let (warps, _) = read(&trace, 0);
    assert_eq!(warps, [(5, events.to_vec())]);
    assert_eq!(trace.site(0, 0), Some(site.clone()));
    let source = trace.source(0, site.key).unwrap();
    assert_eq!((source.file.as_str(), source.line), ("src/kernel.cu", 19));
    let inlined: Vec<_> = source.inlined_at.iter().map(|s| (s.file.as_str(), s.line)).collect();
    assert_eq!(inlined, [("a.h", 3), ("b.h", 5)]);

    let to_v1 = |lossy| convert::to_v1(&trace, 0, lossy, Vec::new(), &mut nothing_lost);
    let error = to_v1(false).unwrap_err().to_string();
    assert!(error.contains("lanes of the branch at site 0x123456789abcdef disagree"), "{error}");
    let bytes = to_v1(true).unwrap();
    assert_eq!(bytes.len(), 128 + 8 * 16 + 7 * 16);
}

#[test]
fn lanes_that_disagree_are_told_where_both_know_them() {
    let write = |path: &Path, ballot| {
        let mut out = V2Writer::new(std::fs::File::create(path).unwrap(), None).unwrap();
        out.sites(0, 0, &[SiteRow { key: 9, ..SiteRow::default() }], false).unwrap();
        out.launch(&Launch { warps: 1, ..Launch::default() }, 0).unwrap();
        out.warp(0).unwrap();
        let (kind, direction, mask) = (EventKind::BRANCH, 1, u32::MAX);
        let event = Event { site: 9, kind, direction, mask, ballot: Some(ballot), value: None };
        out.event(0, &event).unwrap();
        out.end_warp(0).unwrap();
        out.end_launch().unwrap();
        out.finish().unwrap();
    };
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    write(&a, u32::MAX);
    write(&b, 0xffff_ff0f);
    let report = diff(&Trace::open(&a).unwrap(), &Trace::open(&b).unwrap(), &Options::default());
    let findings = report.unwrap().findings;
    assert_eq!((findings.len(), findings[0].lanes), (1, Some(0xf0)));
}

/// For what is whole.
fn nothing_lost(warps: RangeInclusive<u32>, error: Error) {
    panic!("{warps:?}: {error}");
}

/// Where the chunks of events begin in a file.
fn chunks(bytes: &[u8]) -> Vec<usize> {
    let starts = (16..bytes.len() - 40).step_by(8);
    let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    starts.filter(|at| bytes[*at..].starts_with(b"NVTC") && word(at + 12) == 3).collect()
}

#[test]
fn a_damaged_chunk_loses_itself_alone() {
    let warps = many(4, 90, 1000);
    for format in [Format::V2, Format::V2Stored] {
        let (_folder, path) = file(format, &warps);
        let whole = std::fs::read(&path).unwrap();
        let (all, _) = read(&Trace::open(&path).unwrap(), 0);
        let starts = chunks(&whole);
        assert!(starts.len() > 2, "{} chunks", starts.len());
        let (first, last) = (
            u32::from_le_bytes(whole[starts[1] + 32..starts[1] + 36].try_into().unwrap()),
            u32::from_le_bytes(whole[starts[1] + 36..starts[1] + 40].try_into().unwrap()),
        );
        // In the bytes, in the header with an index, and in the header without.
        for (at, cut) in [(60, 0), (20, 0), (20, 24)] {
            let mut bytes = whole.clone();
            bytes[starts[1] + at] ^= 4;
            bytes.truncate(whole.len() - cut);
            std::fs::write(&path, &bytes).unwrap();
            let trace = Trace::open(&path).unwrap();
            let (read, lost) = read(&trace, 0);
            assert_eq!(lost.len(), 1, "byte {at}: {lost:?}");
            assert!((lost[0].0..=lost[0].1).contains(&first), "{lost:?}");
            assert!(lost[0].1 >= last && lost[0].1 <= last + 1, "{lost:?}, {first} to {last}");
            let kept: Vec<_> =
                all.iter().filter(|(n, _)| *n < lost[0].0 || *n > lost[0].1).cloned().collect();
            assert_eq!(read.len(), kept.len());
            assert!(read == kept, "what is not damaged is the same");
            if cut > 0 {
                assert_eq!(trace.damage()[0].offset(), starts[1] as u64);
            }
        }
    }
}

#[test]
fn damage_is_never_the_same() {
    let warps = many(5, 90, 1000);
    let pair = Pair::new((Format::V2, &warps), (Format::V2, &warps));
    let bytes = std::fs::read(pair.path("b")).unwrap();
    let mut damaged = bytes.clone();
    let at = chunks(&bytes)[1];
    damaged[at + 60] ^= 1;
    std::fs::write(pair.path("b"), damaged).unwrap();
    let (a, b) = pair.open();
    let report = diff(&a, &b, &Options::default()).unwrap();
    assert_eq!((report.status, report.total_findings), (Status::Incomparable, 0));
    assert!(report.warps_compared > 30 && report.warps_compared < 90);
    let [Note::Damaged { trace: 'b', offset, .. }] = &report.notes[..] else {
        panic!("{:?}", report.notes)
    };
    assert_eq!(*offset, at as u64);
}

/// Before, two such files were identical.
#[test]
fn events_of_a_kind_that_there_is_not_are_damage() {
    for kind in [5, 255] {
        let mut warps = many(5, 90, 1000);
        warps[41].events[100].kind = EventKind(kind).0;
        let pair = Pair::new((Format::V1, &warps), (Format::V1, &warps));
        let (a, b) = pair.open();
        let error = diff(&a, &b, &Options::default()).unwrap_err().to_string();
        assert!(error.contains("the kind of an event is "), "{error}");
        let read = a.warps(0).map(|warp| match warp {
            Found::Warp(warp) => warp.events().filter(Result::is_err).count(),
            Found::Lost { .. } => panic!(),
        });
        assert_eq!(read.sum::<usize>(), 1);
    }
    // Version 2 has three bits for it: 5 to 7 are left.
    let warps = many(5, 90, 1000);
    let pair = Pair::new((Format::V2Stored, &warps), (Format::V2Stored, &warps));
    let mut bytes = std::fs::read(pair.path("a")).unwrap();
    let (chunk, record) = (chunks(&bytes)[1], 16);
    // The first word of its first warp, behind the chunk's header and the warp's.
    bytes[chunk + 40 + record + 3] |= 7;
    let stored = u32::from_le_bytes(bytes[chunk + 24..chunk + 28].try_into().unwrap()) as usize;
    let payload = crc32fast::hash(&bytes[chunk + 40..chunk + 40 + stored]);
    bytes[chunk + 8..chunk + 12].copy_from_slice(&payload.to_le_bytes());
    let header = crc32fast::hash(&bytes[chunk + 8..chunk + 40]);
    bytes[chunk + 4..chunk + 8].copy_from_slice(&header.to_le_bytes());
    // Without the index, which has the header once more.
    bytes.truncate(bytes.len() - 24);
    for name in ["a", "b"] {
        std::fs::write(pair.path(name), &bytes).unwrap();
    }
    let (a, b) = pair.open();
    let report = diff(&a, &b, &Options::default()).unwrap();
    assert_eq!(report.status, Status::Incomparable, "{:?}", report.notes);
    let told =
        |note: &Note| matches!(note, Note::Damaged { what, .. } if what.contains("of a kind"));
    assert!(report.notes.iter().any(told), "{:?}", report.notes);
}

#[test]
fn a_file_that_was_cut_is_read_up_to_its_last_whole_chunk() {
    let warps = many(6, 100, 1000);
    let (_folder, path) = file(Format::V2Stored, &warps);
    let whole = std::fs::read(&path).unwrap();
    let (all, _) = read(&Trace::open(&path).unwrap(), 0);
    let mut random = Random(9);
    let mut before = 0;
    let mut cuts: Vec<usize> = (0..16).map(|_| random.below(whole.len() as u64) as usize).collect();
    cuts.sort_unstable();
    for cut in cuts {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let Ok(trace) = Trace::open(&path) else {
            assert!(cut < 16);
            continue;
        };
        assert!(!trace.closed());
        if trace.launches().is_empty() {
            assert!(cut < chunks(&whole)[0]);
            continue;
        }
        assert!(!trace.launches()[0].complete || cut + 200 > whole.len());
        let (read, _) = read(&trace, 0);
        assert!(read.len() >= before && all.starts_with(&read), "cut at {cut}");
        // All but the last chunk, which may hold the last warp's end.
        let whole_chunks = chunks(&whole).iter().filter(|at| **at + (256 << 10) + 40 < cut).count();
        assert!(read.len() >= whole_chunks.saturating_sub(1) * 15, "cut at {cut}: {}", read.len());
        before = read.len();
    }
    assert!(before > 50);
}

/// A FIFO that nobody writes to is not waited for.
#[test]
fn what_is_no_regular_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for path in [fifo.as_path(), folder.path()] {
        let refused = Trace::open(path).err().unwrap().to_string();
        assert!(refused.contains("not a regular file"), "{refused}");
    }
}

/// A file that is mapped ends who reads it by SIGBUS.
#[test]
fn a_file_that_is_cut_short_while_it_is_compared_is_an_error() {
    let warps = many(5, 90, 3000);
    for format in [Format::V1, Format::V2, Format::V2Stored] {
        for cut in ["a", "b"] {
            let pair = Pair::new((format, &warps), (format, &warps));
            let (a, b) = pair.open();
            let file = std::fs::File::options().write(true).open(pair.path(cut)).unwrap();
            let was = file.metadata().unwrap().len();
            let half = was / 2;
            file.set_len(half).unwrap();
            let error = diff(&a, &b, &Options::default()).unwrap_err();
            assert_eq!(error.path(), pair.path(cut));
            assert!(error.offset() >= half && error.offset() < was, "{error}");
            let end =
                format!("the file was cut short while it was read: from {was} bytes to {half}");
            assert_eq!(error.problem().to_string(), end);
            // Whoever reads on learns of each part that is lost.
            let trace = if cut == "a" { &a } else { &b };
            assert!(trace.warps(0).count() > 10);
            let events = trace.warps(0).map(|found| match found {
                Found::Warp(warp) => warp.events().filter(Result::is_ok).count(),
                Found::Lost { .. } => 0,
            });
            assert!(events.sum::<usize>() > 1000);
        }
    }
}

#[test]
fn what_a_warp_began_to_write_and_did_not_is_lost() {
    let (_folder, path) = file(Format::V1, &many(3, 2, 50));
    let mut bytes = std::fs::read(&path).unwrap();
    let events = u32::from_le_bytes(bytes[136..140].try_into().unwrap());
    bytes[128..132].copy_from_slice(&(events + 9).to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.warp(0, 0).unwrap().dropped(), 9);
    let report = diff(&trace, &trace, &Options::default()).unwrap();
    assert_eq!((report.status, report.overflowed), (Status::Incomparable, 1));
}

#[test]
fn a_converted_file_that_was_cut_names_its_sites() {
    let warps = many(6, 100, 1000);
    let (folder, path) = file(Format::V1, &warps);
    let whole = Trace::open(&path).unwrap();
    let v2 = folder.path().join("v2");
    let mut out = V2Writer::new(std::fs::File::create(&v2).unwrap(), None).unwrap();
    convert::to_v2(&whole, &mut out, &mut nothing_lost).unwrap();
    out.finish().unwrap();
    let bytes = std::fs::read(&v2).unwrap();
    std::fs::write(&v2, &bytes[..bytes.len() / 2]).unwrap();
    let cut = Trace::open(&v2).unwrap();
    let (read, _) = read(&cut, 0);
    assert!(read.len() > 10);
    assert!(read.iter().flat_map(|(_, events)| events).all(|event| event.site < 310));
    let report = diff(&whole, &cut, &Options::default()).unwrap();
    assert_eq!((report.status, report.total_findings), (Status::Incomparable, 0));
}

#[test]
fn events_of_sites_that_are_lost_are_not_compared() {
    let warps = many(6, 5, 100);
    let pair = Pair::new((Format::V2, &warps), (Format::V2, &warps));
    let mut bytes = std::fs::read(pair.path("b")).unwrap();
    // The first chunk holds the sites.
    bytes[16 + 60] ^= 1;
    std::fs::write(pair.path("b"), bytes).unwrap();
    let (a, b) = pair.open();
    let report = diff(&a, &b, &Options::default()).unwrap();
    assert_eq!((report.status, report.total_findings), (Status::Incomparable, 0));
    let (kept, lost) = rewritten(&b);
    assert!(kept.is_empty(), "keys are not made up");
    assert_eq!(lost, [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]);
    // For the eye there is what can be read.
    assert_eq!(read(&b, 0).0.len(), 5);
}

/// What is left of a trace that was converted to v2, and which warps are told to be lost: by the one
/// that converts and, the same, by the one who reads.
fn rewritten(trace: &Trace) -> (Vec<Read>, Vec<(u32, u32)>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("again");
    let mut out = V2Writer::new(std::fs::File::create(&path).unwrap(), Some(1)).unwrap();
    let mut lost = Vec::new();
    let mut tell = |warps: RangeInclusive<u32>, _| lost.push((*warps.start(), *warps.end()));
    convert::to_v2(trace, &mut out, &mut tell).unwrap();
    out.finish().unwrap();
    let again = Trace::open(&path).unwrap();
    assert_eq!(again.launches()[0].complete, trace.launches()[0].complete);
    let (kept, told) = read(&again, 0);
    let told: Vec<(u32, u32)> = told.iter().map(|(first, last, _)| (*first, *last)).collect();
    assert_eq!(told, lost);
    let report = diff(trace, &again, &Options { values: true, ..Options::default() }).unwrap();
    let same = if lost.is_empty() { Status::Identical } else { Status::Incomparable };
    assert_eq!((report.status, report.total_findings), (same, 0), "{:?}", report.findings);
    (kept, lost)
}

#[test]
fn what_can_be_read_of_a_damaged_file_is_rewritten() {
    let warps = many(4, 90, 1000);
    let (folder, path) = file(Format::V2Stored, &warps);
    let whole = std::fs::read(&path).unwrap();
    let (all, _) = read(&Trace::open(&path).unwrap(), 0);
    let starts = chunks(&whole);
    let flipped = |places: &[usize]| {
        let mut bytes = whole.clone();
        places.iter().for_each(|at| bytes[*at] ^= 4);
        bytes
    };
    let mut without_index = flipped(&[starts[1] + 20]);
    without_index.truncate(whole.len() - 24);
    let cases = [
        ("whole", whole.clone()),
        ("the bytes of a chunk", flipped(&[starts[1] + 60])),
        ("its header", flipped(&[starts[1] + 20])),
        ("its header, and the index", without_index),
        ("the first and the last chunk", flipped(&[starts[0] + 60, *starts.last().unwrap() + 60])),
        ("two chunks", flipped(&[starts[1] + 60, starts[2] + 60])),
        ("cut in a chunk", whole[..starts[3] + 1000].to_vec()),
        ("cut behind a chunk", whole[..starts[3]].to_vec()),
    ];
    for (case, bytes) in cases {
        println!("{case}");
        std::fs::write(&path, &bytes).unwrap();
        let trace = Trace::open(&path).unwrap();
        let (left, lost) = read(&trace, 0);
        assert_eq!(lost.is_empty(), case == "whole");
        assert!(!left.is_empty());
        let (kept, told) = rewritten(&trace);
        assert!(kept == left, "{} warps of {}", kept.len(), left.len());
        assert_eq!(told.len(), lost.len(), "{told:?}, {lost:?}");

        // In v1, a warp that is lost lost something.
        let mut v1 = Vec::new();
        convert::to_v1(&trace, 0, false, &mut v1, &mut |_, _| {}).unwrap();
        let v1_path = folder.path().join("v1");
        std::fs::write(&v1_path, v1).unwrap();
        let v1 = Trace::open(&v1_path).unwrap();
        let found = v1.warps(0).map(|found| match found {
            Found::Warp(warp) => (warp.number(), warp.len() as usize, warp.dropped()),
            Found::Lost { error, .. } => panic!("{error}"),
        });
        let expected =
            all.iter().map(|(number, events)| match left.iter().any(|(left, _)| left == number) {
                true => (*number, events.len(), 0),
                false => (*number, 0, 1),
            });
        assert!(found.eq(expected), "{case}");
    }
}

#[test]
fn numbers_that_do_not_fit_are_refused_when_traces_are_rewritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut out = V2Writer::new(std::fs::File::create(&path).unwrap(), None).unwrap();
    let launch = Launch { session: u32::MAX, warps: u32::MAX, ..Launch::default() };
    out.launch(&launch, 0).unwrap();
    out.end_launch().unwrap();
    out.finish().unwrap();
    let open = || Trace::open(&path).unwrap();
    let error = convert::to_v1(&open(), 0, true, Vec::new(), &mut nothing_lost).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("4294967295 warps were not recorded"), "{error}");
    let mut out = V2Writer::new(Vec::new(), None).unwrap();
    let error = convert::merge(&[open(), open()], &mut out, &mut nothing_lost).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("more sessions than a file can number"), "{error}");
}

#[test]
fn several_launches_are_matched_by_kernel_and_order() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    let (one, two, three) = (many(1, 3, 50), many(2, 3, 50), many(3, 3, 50));
    let write = |path: &Path, launches: &[(&str, &Vec<Warp>)]| {
        let mut out = V2Writer::new(std::fs::File::create(path).unwrap(), Some(1)).unwrap();
        for (module, (kernel, warps)) in (0..).zip(launches) {
            write_v2(&mut out, kernel, warps, module);
        }
        out.finish().unwrap();
    };
    write(&a, &[("x", &one), ("y", &two), ("x", &three)]);
    write(&b, &[("y", &two), ("x", &one), ("x", &one)]);
    let report = |a: &Path, b: &Path| {
        diff(&Trace::open(a).unwrap(), &Trace::open(b).unwrap(), &Options::default()).unwrap()
    };
    let told = report(&a, &b);
    let launches: Vec<_> =
        told.launches.iter().map(|l| (l.kernel.as_str(), l.order, l.warps_divergent)).collect();
    assert_eq!(launches, [("x", 0, 0), ("y", 0, 0), ("x", 1, 3)]);
    write(&b, &[("y", &two), ("x", &one)]);
    let told = report(&a, &b);
    assert_eq!((told.status, told.total_findings), (Status::Different, 0));
    let note = Note::Unmatched { trace: 'a', kernel: "x".to_owned(), order: 1 };
    assert_eq!(told.notes, [note]);
    write(&b, &[("z", &two)]);
    let error = diff(&Trace::open(&a).unwrap(), &Trace::open(&b).unwrap(), &Options::default());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("no launch in common: x and others, and z"), "{error}");
}

#[test]
fn sessions_stay_apart_when_they_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (one, two) = (many(1, 5, 100), many(2, 5, 100));
    write(&path("v1"), Format::V1, &one);
    write(&path("v2"), Format::V2, &two);
    let traces = [Trace::open(path("v1")).unwrap(), Trace::open(path("v2")).unwrap()];
    let mut out = V2Writer::new(std::fs::File::create(path("all")).unwrap(), Some(1)).unwrap();
    convert::merge(&traces, &mut out, &mut nothing_lost).unwrap();
    out.finish().unwrap();
    let all = Trace::open(path("all")).unwrap();
    let sessions: Vec<_> = all.launches().iter().map(|launch| launch.session).collect();
    assert_eq!(sessions, [0, 1]);
    for (at, trace) in traces.iter().enumerate() {
        let (merged, own) = (read(&all, at).0, read(trace, 0).0);
        assert_eq!(merged.len(), own.len());
        let sites = |warps: &[Read]| -> Vec<u64> {
            warps.iter().flat_map(|(_, events)| events).map(|event| event.site).collect()
        };
        assert_eq!(sites(&merged), sites(&own));
    }
    assert_eq!(all.source(1, 10).map(|source| source.line), Some(10));
    assert_eq!(all.source(0, 10), None, "v1 knows no lines");
}

#[test]
fn what_is_no_trace_is_refused_with_its_byte() {
    let (_folder, path) = file(Format::V1, &many(1, 3, 50));
    let whole = std::fs::read(&path).unwrap();
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let trace = match Trace::open(&path) {
            Ok(trace) => trace,
            Err(error) => return error,
        };
        let lost = trace.warps(0).find_map(|found| match found {
            Found::Lost { error, .. } => Some(error),
            Found::Warp(_) => None,
        });
        let error = diff(&trace, &trace, &Options::default()).unwrap_err();
        assert_eq!(error.offset(), lost.unwrap().offset());
        error
    };
    let changed = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        bytes
    };
    let problem = |bytes: &[u8], offset| {
        let error = refused(bytes);
        assert_eq!(error.offset(), offset, "{error}");
        format!("{}", error.problem())
    };
    assert!(matches!(refused(&[]).problem(), Problem::NotATrace));
    assert!(problem(&whole[..100], 0).starts_with("the header takes 128 bytes"));
    assert_eq!(problem(&changed(12, 9), 12), "version 9 is not one that nvabi reads");
    assert_eq!(problem(&changed(16, 6), 16), "unknown flags 0x6");
    assert!(problem(&changed(139, 1), 136).starts_with("the number of a warp's events is"));
    let cut = whole.len() - 1;
    let told = problem(&whole[..cut], last_warp(&whole) + 16);
    assert!(told.starts_with("the events of a warp takes"), "{told}");
    let longer = [&whole[..], &[0]].concat();
    let told = problem(&longer, whole.len() as u64);
    assert_eq!(told, "there are bytes behind the last warp");
}

/// Where the third warp of a file of v1 begins.
fn last_warp(bytes: &[u8]) -> u64 {
    let events =
        |at: usize| u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
    let second = 128 + 16 + 16 * events(128);
    (second + 16 + 16 * events(second)) as u64
}
