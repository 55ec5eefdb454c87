//! Two branches in one build: a struct that stays as it is has a place of its own in each.
#![allow(clippy::unwrap_used, clippy::panic)]

use nvabi_pipeline::emit::{self, Options};
use nvabi_pipeline::lock::{self, Fact, Lock};
use nvabi_pipeline::model::{Facts, Field, RecordKind, Source, Surface};
use nvabi_pipeline::plan;
use nvabi_pipeline::spec::Spec;

/// One record of one field, at some line.
fn facts(tag: &str, line: u32) -> Facts {
    let field = Field {
        name: "a".into(),
        ty: "NvU32".into(),
        canonical: "unsigned int".into(),
        offset: 0,
        size: 4,
        bits: None,
    };
    let fact =
        Fact::Record { kind: RecordKind::Struct, size: 4, align: 4, fields: vec![field].into() };
    let mut rm = Surface::default();
    lock::add(&mut rm, "NVT_GATE", &fact, Source { path: "x.h".into(), line });
    Facts { tag: tag.parse().unwrap(), surfaces: [("rm".to_owned(), rm)].into() }
}

fn specs(drivers: &[&str]) -> Vec<Spec> {
    let file = |driver: &&str| {
        let surface = "[surface.rm]\nheaders = [\"x.h\"]\n[types]\nextra = [\"NVT_GATE\"]\n";
        let text = format!("driver = \"{driver}\"\n{surface}");
        (format!("driver-{driver}"), format!("driver-{driver}.toml"), text)
    };
    let files: Vec<_> = drivers.iter().map(file).collect();
    Spec::parse_all(&files).unwrap_or_else(|report| panic!("{report}"))
}

#[test]
fn a_struct_is_cited_where_its_branch_has_it() {
    let mut written = Lock::default();
    for (tag, line) in [("1.1", 10), ("1.2", 12), ("2.1", 20), ("2.2", 25), ("3.1", 25)] {
        written.insert(&facts(tag, line), tag.to_owned());
    }
    let folder = tempfile::tempdir().unwrap();
    lock::write(folder.path(), &written).unwrap_or_else(|report| panic!("{report}"));
    let specs = specs(&["1", "2", "3"]);
    let specs: Vec<&Spec> = specs.iter().collect();
    let part = lock::Part { specs: &specs, constants: &[], lines: true };
    let read = lock::read_part(folder.path(), part).unwrap_or_else(|report| panic!("{report}"));

    let planned = plan::plan(&read, &specs, false).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(planned.views.len(), 3, "a line that moves makes no view");
    assert_eq!(planned.defs.len(), 1);

    let known = ["1", "2", "3"].map(str::to_owned);
    let options =
        Options { nvabi: "nvabi", family: "", full: false, zerocopy: false, known: &known };
    let text = emit::emit(&read, &specs, options).unwrap_or_else(|report| panic!("{report}"));
    let table = text.split_once("pub static ABI").unwrap().1;
    let cited: Vec<&str> =
        table.split("since: ").skip(1).map(|at| at.split(", ..").next().unwrap()).collect();
    assert_eq!(cited, [r#""2.1", source: "x.h:20""#, r#""3.1", source: "x.h:25""#], "{table}");
    assert!(text.contains(r#"since: "1.1", source: "x.h:10""#), "{text}");
}
