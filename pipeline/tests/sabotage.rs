//! One fact of the lock is altered at a time, and exactly the complaints about it must come.
//!
//! A check that never fails guards nothing. Here the lock lies, its checksums being right, or its
//! files are damaged as text; each test states every complaint that must come and allows no other.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

mod common;
#[path = "../../fuzz/checks/facts.rs"]
mod fuzz;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{clang, lock, ok, read, refused, snapshot, snapshot_without, tag};
use nvabi_pipeline::diagnostic::Report;
use nvabi_pipeline::lock::{self, Fact, History, ItemKind, Lock};
use nvabi_pipeline::model::{Field, RecordKind};
use nvabi_pipeline::verify;

test_main!();

/// The complaints of one altered lock about both tags, without their codes, notes first line only.
fn complaints(alter: impl FnOnce(&mut Lock)) -> Vec<String> {
    let clang = clang();
    let folder = tempfile::tempdir().unwrap();
    ok(lock::write(folder.path(), &lock(&clang)));
    // The lock is altered as the library reads it, and written again: the checksums fit.
    let (mut altered, edited) = ok(lock::read(folder.path()));
    assert_eq!(edited, Report::default());
    alter(&mut altered);
    ok(lock::write(folder.path(), &altered));
    let (read_back, edited) = ok(lock::read(folder.path()));
    assert_eq!(edited, Report::default());
    assert_eq!(read_back, altered);
    let reports = ["1.1", "1.2"].map(|text| verify::compare(&read_back, &read(&clang, text)));
    let told = reports.into_iter().flat_map(|report| report.diagnostics);
    told.map(|d| format!("{}: {} ({})", d.code, d.message, d.notes.join("; "))).collect()
}

fn history<'l>(lock: &'l mut Lock, header: &str, kind: ItemKind, name: &str) -> &'l mut History {
    let key = ("rm".to_owned(), header.to_owned());
    let items = &mut lock.headers.get_mut(&key).unwrap().items;
    items.get_mut(&(kind, name.to_owned())).unwrap()
}

/// Alters the fact that holds from the first tag on.
fn alter_fact(
    lock: &mut Lock,
    header: &str,
    kind: ItemKind,
    name: &str,
    alter: impl FnOnce(&mut Fact),
) {
    let placed = history(lock, header, kind, name)[0].value.as_mut().unwrap();
    alter(Arc::make_mut(&mut placed.fact));
}

fn alter_fields(lock: &mut Lock, header: &str, name: &str, alter: impl FnOnce(&mut Vec<Field>)) {
    alter_fact(lock, header, ItemKind::Record, name, |fact| match fact {
        Fact::Record { fields, .. } => {
            let mut altered = fields.to_vec();
            alter(&mut altered);
            *fields = altered.into();
        }
        _ => unreachable!(),
    });
}

/// Alters one fact and demands the complaints, all of them and no other.
#[track_caller]
fn demand(alter: impl FnOnce(&mut Lock), wanted: &[&str]) {
    assert_eq!(complaints(alter), wanted);
}

#[test]
fn an_untouched_lock() {
    demand(|_| {}, &[]);
}

#[test]
fn offset() {
    demand(
        |lock| alter_fields(lock, "inc/changing.h", "NVT_SWAPS", |fields| fields[1].offset = 2),
        &[
            "lock-mismatch: NVT_SWAPS: field size: offset is 2 in the lock, but 4 in the driver (surface rm of 1.1, inc/changing.h:10)",
        ],
    );
}

/// Two fields change places and nothing else does: the size is the same.
#[test]
fn same_size_move() {
    demand(
        |lock| {
            alter_fields(lock, "inc/changing.h", "NVT_SWAPS", |fields| {
                fields[0].offset = 4;
                fields[1].offset = 0;
                fields.swap(0, 1);
            });
        },
        &[
            "lock-mismatch: NVT_SWAPS: field size: offset is 0 in the lock, but 4 in the driver (surface rm of 1.1, inc/changing.h:10)",
            "lock-mismatch: NVT_SWAPS: field status: offset is 4 in the lock, but 0 in the driver (surface rm of 1.1, inc/changing.h:10)",
            "lock-mismatch: NVT_SWAPS: order of fields is size, status, address in the lock, but status, size, address in the driver (surface rm of 1.1, inc/changing.h:10)",
        ],
    );
}

#[test]
fn size_of_a_field() {
    demand(
        |lock| alter_fields(lock, "inc/arrays.h", "NVT_ARRAYS", |fields| fields[0].size = 16),
        &both(
            "NVT_ARRAYS: field grid: size is 16 in the lock, but 12 in the driver",
            "inc/arrays.h:9",
        ),
    );
}

/// The same complaint about each of the two tags.
fn both(message: &'static str, source: &str) -> Vec<&'static str> {
    let each = |tag: &str| -> &'static str {
        format!("lock-mismatch: {message} (surface rm of {tag}, {source})").leak()
    };
    vec![each("1.1"), each("1.2")]
}

#[test]
fn dimensions_of_an_array() {
    demand(
        |lock| {
            alter_fields(lock, "inc/arrays.h", "NVT_ARRAYS", |fields| {
                fields[0].canonical = "unsigned short[3][2]".into();
            });
        },
        &both(
            "NVT_ARRAYS: field grid: canonical type is unsigned short[3][2] in the lock, but unsigned short[2][3] in the driver",
            "inc/arrays.h:9",
        ),
    );
}

#[test]
fn size_and_alignment_of_a_record() {
    demand(
        |lock| {
            alter_fact(lock, "inc/aligned.h", ItemKind::Record, "NVT_ALIGNED_SIXTEEN", |fact| {
                if let Fact::Record { size, align, .. } = fact {
                    (*size, *align) = (17, 1);
                }
            });
        },
        &[
            "lock-mismatch: NVT_ALIGNED_SIXTEEN: size is 17 in the lock, but 32 in the driver (surface rm of 1.1, inc/aligned.h:12)",
            "lock-mismatch: NVT_ALIGNED_SIXTEEN: alignment is 1 in the lock, but 16 in the driver (surface rm of 1.1, inc/aligned.h:12)",
            "lock-mismatch: NVT_ALIGNED_SIXTEEN: size is 17 in the lock, but 32 in the driver (surface rm of 1.2, inc/aligned.h:12)",
            "lock-mismatch: NVT_ALIGNED_SIXTEEN: alignment is 1 in the lock, but 16 in the driver (surface rm of 1.2, inc/aligned.h:12)",
        ],
    );
}

#[test]
fn struct_for_union() {
    demand(
        |lock| {
            alter_fact(lock, "inc/unions.h", ItemKind::Record, "NVT_UNION", |fact| {
                if let Fact::Record { kind, .. } = fact {
                    *kind = RecordKind::Struct;
                }
            });
        },
        &both("NVT_UNION: kind is struct in the lock, but union in the driver", "inc/unions.h:5"),
    );
}

#[test]
fn width_of_a_bit_field() {
    demand(
        |lock| {
            alter_fields(lock, "inc/bits.h", "NVT_BITS_CROSSING", |fields| {
                fields[1].bits.as_mut().unwrap().bit_width = 9;
            });
        },
        &both(
            "NVT_BITS_CROSSING: field crossing_b: bits is 6:9 in the lock, but 6:10 in the driver",
            "inc/bits.h:24",
        ),
    );
}

#[test]
fn dropped_field() {
    demand(
        |lock| alter_fields(lock, "inc/changing.h", "NVT_SWAPS", |fields| _ = fields.pop()),
        &[
            "lock-mismatch: NVT_SWAPS: field address is missing in the lock, but at 8 in the driver (surface rm of 1.1, inc/changing.h:10)",
        ],
    );
}

#[test]
fn dropped_unnamed_member() {
    demand(
        |lock| alter_fields(lock, "inc/unions.h", "NVT_ANONYMOUS", |fields| _ = fields.pop()),
        &both(
            "NVT_ANONYMOUS: field (unnamed, number 2) is missing in the lock, but at 8 in the driver",
            "inc/unions.h:11",
        ),
    );
}

#[test]
fn renamed_field() {
    demand(
        |lock| {
            alter_fields(lock, "inc/changing.h", "NVT_SWAPS", |fields| {
                fields[2].name = "where".into()
            });
        },
        &[
            "lock-mismatch: NVT_SWAPS: field where is at 8 in the lock, but missing in the driver (surface rm of 1.1, inc/changing.h:10)",
            "lock-mismatch: NVT_SWAPS: field address is missing in the lock, but at 8 in the driver (surface rm of 1.1, inc/changing.h:10)",
        ],
    );
}

#[test]
fn enumerator() {
    demand(
        |lock| {
            alter_fact(lock, "inc/enums.h", ItemKind::Enum, "NVT_PLAIN", |fact| {
                if let Fact::Enum { variants, .. } = fact {
                    variants.insert("NVT_PLAIN_Z".into(), 26);
                }
            });
        },
        &both(
            "NVT_PLAIN: enumerator NVT_PLAIN_Z is 26 in the lock, but 25 in the driver",
            "inc/enums.h:5",
        ),
    );
}

#[test]
fn dropped_enumerator() {
    demand(
        |lock| {
            alter_fact(lock, "inc/enums.h", ItemKind::Enum, "NVT_PLAIN", |fact| {
                if let Fact::Enum { variants, .. } = fact {
                    variants.remove("NVT_PLAIN_Z");
                }
            });
        },
        &both(
            "NVT_PLAIN: enumerator NVT_PLAIN_Z is missing in the lock, but 25 in the driver",
            "inc/enums.h:5",
        ),
    );
}

#[test]
fn constant() {
    demand(
        |lock| {
            alter_fact(lock, "inc/constants.h", ItemKind::Constant, "NVT_DECIMAL", |fact| {
                *fact = Fact::Constant(43);
            });
        },
        &both("NVT_DECIMAL: value is 43 in the lock, but 42 in the driver", "inc/constants.h:8"),
    );
}

#[test]
fn bit_range() {
    demand(
        |lock| {
            alter_fact(lock, "inc/constants.h", ItemKind::Constant, "NVT_BITS_LOW", |fact| {
                *fact = Fact::BitRange(7, 1);
            });
        },
        &both("NVT_BITS_LOW: bits is 7:1 in the lock, but 7:0 in the driver", "inc/constants.h:36"),
    );
}

#[test]
fn typedef() {
    demand(
        |lock| {
            alter_fact(lock, "inc/typedefs.h", ItemKind::Alias, "NvtStatus", |fact| {
                *fact = Fact::Alias { ty: "unsigned short".into(), size: 2 };
            });
        },
        &[
            "lock-mismatch: NvtStatus: size is 2 in the lock, but 4 in the driver (surface rm of 1.1, inc/typedefs.h:32)",
            "lock-mismatch: NvtStatus: type is unsigned short in the lock, but unsigned int in the driver (surface rm of 1.1, inc/typedefs.h:32)",
            "lock-mismatch: NvtStatus: size is 2 in the lock, but 4 in the driver (surface rm of 1.2, inc/typedefs.h:32)",
            "lock-mismatch: NvtStatus: type is unsigned short in the lock, but unsigned int in the driver (surface rm of 1.2, inc/typedefs.h:32)",
        ],
    );
}

#[test]
fn dropped_record() {
    demand(
        |lock| {
            let key = ("rm".to_owned(), "inc/changing.h".to_owned());
            let items = &mut lock.headers.get_mut(&key).unwrap().items;
            items.remove(&(ItemKind::Record, "NVT_GOES".into())).unwrap();
        },
        &[
            "lock-mismatch: NVT_GOES: record is missing in the lock, but present in the driver (surface rm of 1.1, inc/changing.h:16)",
        ],
    );
}

/// A change that the second tag made is locked as if it had not been.
#[test]
fn dropped_event() {
    demand(
        |lock| {
            let history = history(lock, "inc/changing.h", ItemKind::Record, "NVT_GROWS");
            assert_eq!(history.len(), 2);
            history.pop();
        },
        &[
            "lock-mismatch: NVT_GROWS: size is 8 in the lock, but 12 in the driver (surface rm of 1.2, inc/changing.h:5)",
            "lock-mismatch: NVT_GROWS: field second: offset is 4 in the lock, but 8 in the driver (surface rm of 1.2, inc/changing.h:5)",
            "lock-mismatch: NVT_GROWS: field between is missing in the lock, but at 4 in the driver (surface rm of 1.2, inc/changing.h:5)",
        ],
    );
}

/// A record that is gone is locked as if it were still there.
#[test]
fn dropped_end() {
    demand(
        |lock| {
            let history = history(lock, "inc/changing.h", ItemKind::Record, "NVT_GOES");
            assert!(history[1].value.is_none());
            history.pop();
        },
        &[
            "lock-mismatch: NVT_GOES: record is present in the lock, but missing in the driver (surface rm of 1.2, inc/changing.h:16)",
        ],
    );
}

#[test]
fn line() {
    demand(
        |lock| {
            let state = &mut history(lock, "inc/changing.h", ItemKind::Record, "NVT_GOES")[0];
            state.value.as_mut().unwrap().line = 17;
        },
        &[
            "lock-mismatch: NVT_GOES: source is inc/changing.h:17 in the lock, but inc/changing.h:16 in the driver (surface rm of 1.1, inc/changing.h:16)",
        ],
    );
}

/// What holds on one machine only is guarded as well.
#[test]
fn another_target() {
    demand(
        |lock| {
            let key = ("rm@aarch64-unknown-linux-gnu".to_owned(), "inc/constants.h".to_owned());
            let items = &mut lock.headers.get_mut(&key).unwrap().items;
            let history = items.get_mut(&(ItemKind::Constant, "NVT_PAGE_SIZE".into())).unwrap();
            let placed = history[0].value.as_mut().unwrap();
            placed.fact = Arc::new(Fact::Constant(16384));
        },
        &["1.1", "1.2"].map(|tag| -> &str {
            format!("lock-mismatch: NVT_PAGE_SIZE: value is 16384 in the lock, but 65536 in the driver (surface rm@aarch64-unknown-linux-gnu of {tag}, inc/constants.h:57)").leak()
        }),
    );
}

#[test]
fn digest() {
    demand(
        |lock| lock.tags[1].headers = "0123456789abcdef".into(),
        &[
            "lock-digest: the headers of 1.2 are not those that were locked (every fact agrees all the same)",
        ],
    );
}

#[test]
fn tag_that_is_not_locked() {
    let clang = clang();
    let mut lock = lock(&clang);
    lock.remove(&tag("1.2"));
    let report = verify::compare(&lock, &read(&clang, "1.2"));
    snapshot("sabotage_no_tag", &report.render(false));
}

// Damage to the files.

/// A folder with the lock of both tags.
struct Locked {
    folder: tempfile::TempDir,
}

impl Locked {
    fn new() -> Self {
        let clang = clang();
        let folder = tempfile::tempdir().unwrap();
        ok(lock::write(folder.path(), &lock(&clang)));
        Self { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn file(&self) -> PathBuf {
        self.path().join("rm/inc/changing.h.lock")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }

    /// What reading says when the file of one header holds `text`, both ways of reading.
    fn read_with(&self, text: &str) -> String {
        fs::write(self.file(), text).unwrap();
        let whole = match lock::read(self.path()) {
            Ok((_, report)) => report,
            Err(report) => report,
        };
        let specs = [common::spec()];
        let closure = lock::read_closure(self.path(), &[&specs[0]]).err().unwrap_or_default();
        // A build reads only the items it needs, so it does not count them; it refuses the file for
        // its checksum all the same.
        let miscounted = whole.diagnostics.iter().all(|d| d.message.contains("last line counts"));
        assert_eq!(closure.has_errors(), !miscounted, "{whole}");
        assert!(closure.diagnostics.iter().all(|d| whole.diagnostics.contains(d)), "{closure}");
        whole.render(false)
    }
}

#[test]
fn the_files_themselves() {
    let locked = Locked::new();
    let tags = fs::read_to_string(locked.path().join("tags")).unwrap();
    snapshot("lock_changing", &format!("{}\n{}", locked.text(), without_digests(&tags)));
    for file in ["bits", "unions", "enums", "constants"] {
        let text = fs::read_to_string(locked.path().join(format!("rm/inc/{file}.h.lock"))).unwrap();
        snapshot(&format!("lock_{file}"), &text);
    }
}

#[test]
fn edited_by_hand() {
    let locked = Locked::new();
    let text = locked.text();
    let edited = text.replace("\t4 4 size NvU32", "\t0 4 size NvU32");
    assert_ne!(text, edited);
    snapshot("sabotage_edited", &locked.read_with(&edited));
}

/// A hand edit is read all the same, so that the comparison can say what was changed.
#[test]
fn an_edit_by_hand_is_compared_all_the_same() {
    let (clang, locked) = (clang(), Locked::new());
    let edited = locked.text().replacen("\t4 4 size NvU32", "\t0 4 size NvU32", 1);
    fs::write(locked.file(), edited).unwrap();
    let (lock, _) = ok(lock::read(locked.path()));
    let report = verify::compare(&lock, &read(&clang, "1.1"));
    let told: Vec<&str> = report.diagnostics.iter().map(|d| d.message.as_str()).collect();
    assert_eq!(told, ["NVT_SWAPS: field size: offset is 0 in the lock, but 4 in the driver"]);
}

#[test]
fn truncated() {
    let locked = Locked::new();
    let text = locked.text();
    let mut told = String::new();
    let middle = text.find("\tstruct").or(text.find("struct NVT_SWAPS")).unwrap();
    for (what, at) in [
        ("nothing left", 0),
        ("within the first line", 9),
        ("after the first line", text.find('\n').unwrap() + 1),
        ("within an item", middle + 8),
        ("before the last line", text.rfind("end ").unwrap()),
        ("within the last line", text.rfind("end ").unwrap() + 5),
        ("the last newline", text.len() - 1),
    ] {
        told += &format!("## {what}\n{}\n\n", locked.read_with(&text[..at]));
    }
    snapshot("sabotage_truncated", &told);
}

#[test]
fn garbled_lines() {
    let locked = Locked::new();
    let text = locked.text();
    let mut told = String::new();
    for (from, to) in [
        ("nvabi-lock 1 rm", "nvabi-lock 2 rm"),
        ("inc/changing.h\n", "inc/other.h\n"),
        ("[1.1]", "[1.1"),
        ("[1.1]", "[9.9]"),
        ("struct NVT_SWAPS 16/8", "struct NVT_SWAPS 16"),
        ("struct NVT_SWAPS 16/8", "struct NVT_SWAPS x/8"),
        ("struct NVT_SWAPS 16/8 @10", "struct NVT_SWAPS 16/8"),
        ("struct NVT_SWAPS 16/8 @10", "struct NVT_SWAPS"),
        ("\t4 4 size", "\tfour 4 size"),
        ("\t4 4 size NvU32", "\t4 4"),
        (" > 1.2 struct", " > 7.7 struct"),
        (" > 1.2 struct", " > 1.2"),
        (" LIMIT 0x10", " LIMIT 0xzz"),
        (" LIMIT 0x10", "    LIMIT 0x10"),
        (" LIMIT 0x10 @20", " LIMIT 0x10 @x"),
        (" LIMIT 0x10 @20", " LIMIT 0x10 @4294967295"),
        ("end 7 ", "end 8 "),
        ("end 7 ", "end seven "),
    ] {
        assert!(text.contains(from), "the lock has no `{from}`:\n{text}");
        let garbled = text.replacen(from, to, 1);
        told += &format!("## {from:?} → {to:?}\n{}\n\n", locked.read_with(&garbled));
    }
    snapshot("sabotage_garbled", &told);
}

#[test]
fn list_of_tags() {
    let locked = Locked::new();
    let path = locked.path().join("tags");
    let text = fs::read_to_string(&path).unwrap();
    let shown = locked.path().display().to_string();
    let mut told = String::new();
    for (what, edited) in [
        (
            "a tag is gone",
            text.lines().filter(|l| !l.starts_with("1.1 ")).collect::<Vec<_>>().join("\n") + "\n",
        ),
        ("truncated", text[..text.find("1.2 ").unwrap() + 4].to_owned()),
        ("another order", text.replacen("1.1 ", "1.3 ", 1)),
        ("no version", text.replacen("1.1 ", "one ", 1)),
        ("no digest", text.replacen("1.1 ", "1.1", 1)),
        ("another format", text.replacen("nvabi-lock 1", "nvabi-lock 2", 1)),
        ("empty", String::new()),
    ] {
        fs::write(&path, edited).unwrap();
        told += &format!("## {what}\n{}\n\n", refused(lock::read(locked.path())).render(false));
    }
    fs::remove_file(&path).unwrap();
    told += &format!("## deleted\n{}\n", refused(lock::read(locked.path())).render(false));
    snapshot_without("sabotage_tags", &without_digests(&told), &[(&shown, "LOCK")]);
}

#[test]
fn lock_files_gone_or_too_many() {
    let locked = Locked::new();
    let file = locked.path().join("rm/inc/constants.h.lock");
    let text = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let shown = locked.path().display().to_string();
    let mut told = format!("## deleted\n{}\n\n", refused(lock::read(locked.path())).render(false));
    fs::write(&file, &text).unwrap();
    ok(lock::read(locked.path()));
    fs::write(file.with_file_name("more.h.lock"), &text).unwrap();
    told += &format!("## one more\n{}\n", refused(lock::read(locked.path())).render(false));
    snapshot_without("sabotage_files", &told, &[(&shown, "LOCK")]);
}

/// A line that is moved out of all bounds.
#[test]
fn moved_too_far() {
    let locked = Locked::new();
    let file = locked.path().join("rm/inc/constants.h.lock");
    let text = fs::read_to_string(&file).unwrap();
    for delta in ["+9223372036854775807", "-9223372036854775808"] {
        let edited = text.replacen("[1.1]", &format!("moved 1.2 1{delta}\n[1.1]"), 1);
        fs::write(&file, edited).unwrap();
        let (_, report) = ok(lock::read(locked.path()));
        let codes: Vec<&str> = report.diagnostics.iter().map(|d| d.code).collect();
        assert_eq!(codes, ["lock-edited"]);
    }
}

/// The digests of the headers, and so the checksum over them, are the standard library's affair.
fn without_digests(text: &str) -> String {
    let mut text = text.to_owned();
    let mut at = 0;
    while at + 16 <= text.len() {
        match text.get(at..at + 16) {
            Some(word) if word.bytes().all(|b| b.is_ascii_hexdigit()) => {
                text.replace_range(at..at + 16, "0123456789abcdef");
                at += 16;
            }
            _ => at += 1,
        }
    }
    text
}

/// Whatever the damage, reading ends with a report or a lock.
#[test]
fn no_damage_makes_it_panic() {
    let locked = Locked::new();
    let text = locked.text();
    let quiet = |bytes: &[u8]| {
        fs::write(locked.file(), bytes).unwrap();
        let whole = lock::read(locked.path());
        // A lock with the right checksum is the one that was written; the others are refused.
        match whole {
            Ok((_, report)) if bytes == text.as_bytes() => assert!(!report.has_errors()),
            Ok((_, report)) => assert!(report.has_errors(), "it was accepted: {bytes:?}"),
            Err(report) => assert!(report.has_errors()),
        }
        let specs = [common::spec()];
        drop(lock::read_closure(locked.path(), &[&specs[0]]));
    };
    quiet(text.as_bytes());
    for at in 0..text.len() {
        quiet(&text.as_bytes()[..at]);
    }
    // A fixed generator, so that a failure comes again.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let alphabet = b"\0\n\t []@/>|.:+-0x9aZ~\xc3\xa9";
    for _ in 0..3000 {
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..1 + random(4) {
            let at = random(bytes.len());
            match random(3) {
                0 => bytes[at] = alphabet[random(alphabet.len())],
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, alphabet[random(alphabet.len())]),
            }
        }
        if bytes != text.as_bytes() {
            quiet(&bytes);
        }
    }
}

#[test]
fn what_fuzzing_found_of_locks_and_specs_is_read_or_refused() {
    nvabi_test::replay("lock", fuzz::lock);
    nvabi_test::replay("spec", fuzz::spec);
}
