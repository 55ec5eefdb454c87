//! Independent readers of the same headers must agree with the facts that libclang gave: gcc and
//! clang for both machines, rustc over the emitted types, and bindgen.
//!
//! Once over our own headers, one difficulty each, and once over the driver's, where
//! `NVABI_HEADERS` names them. A reader that is not installed is passed over with a word.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../pipeline/tests/common/at_hand.rs"]
mod at_hand;
mod bindings;
mod c;
mod full;
mod rust;

use std::fs;
use std::path::{Path, PathBuf};

use nvabi_pipeline::diagnostic::Report;
use nvabi_pipeline::extract::Clang;
use nvabi_pipeline::facts::{self, Cache, Options, Unit};
use nvabi_pipeline::headers::Source;
use nvabi_pipeline::model::{Facts, Surface};
use nvabi_pipeline::spec::Spec;
use nvabi_pipeline::tag::Tag;

/// The tag of the driver's headers that every reader reads.
const REAL: &str = "550.163.01";

/// Headers, their spec and a tag.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) spec: Spec,
    pub(crate) tag: Tag,
    source: PathBuf,
}

impl Subject {
    /// Our own headers at one of their two tags.
    fn own(tag: &str) -> Self {
        let folder = root().join("tests/headers");
        Self::new("own", &folder.join("specs"), "1", tag, folder)
    }

    /// The driver's headers, when they are at hand.
    fn real() -> Option<Self> {
        let source = at_hand::headers()?;
        let subject = Self::new("real", &root().join("abi-specs"), "550", REAL, source);
        if !subject.is_at_hand() {
            at_hand::skip(&format!("NVABI_HEADERS has no headers of {REAL}"));
            return None;
        }
        Some(subject)
    }

    fn new(name: &'static str, specs: &Path, driver: &str, tag: &str, source: PathBuf) -> Self {
        let all = ok(Spec::load_folder(specs));
        let spec = all.into_iter().find(|spec| spec.driver == driver).unwrap();
        Self { name, spec, tag: tag.parse().unwrap(), source }
    }

    fn is_at_hand(&self) -> bool {
        let Ok(mut source) = Source::open(&self.source) else { return false };
        facts::units(&mut source, &self.spec, &self.tag).is_ok()
    }

    pub(crate) fn units(&self) -> Vec<Unit<'_>> {
        let mut source = Source::open(&self.source).unwrap_or_else(|e| panic!("{e}"));
        ok(facts::units(&mut source, &self.spec, &self.tag))
    }

    /// The facts for one target; `None` without libclang.
    pub(crate) fn facts(&self, target: &str) -> Option<Facts> {
        let clang = match Clang::load() {
            Ok(clang) => clang,
            Err(why) => {
                at_hand::skip(&format!("there is no libclang ({})", why.message));
                return None;
            }
        };
        let options = Options { target, constants: true };
        let units = self.units();
        let read = facts::extract_units(&clang, &units, &self.tag, options, &Cache::default());
        Some(ok(read).0)
    }

    /// The target that decides what is emitted.
    pub(crate) fn first_target(&self) -> &str {
        &self.spec.targets[0]
    }
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder of this test's own, kept between runs.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readers").join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[track_caller]
pub(crate) fn ok<T>(result: Result<T, Report>) -> T {
    result.unwrap_or_else(|report| panic!("{report}"))
}

/// Writes the headers of a unit as an extracted tree.
pub(crate) fn write_tree(unit: &Unit<'_>, root: &Path) {
    for (path, file) in &unit.tree().files {
        let target = root.join(path);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::write(target, file.text.as_bytes()).unwrap();
    }
}

/// Asks every C compiler about every fact of the subject.
fn ask_compilers(subject: &Subject) {
    ask(subject, c::compilers());
}

fn ask(subject: &Subject, compilers: Vec<c::Compiler>) {
    assert!(!compilers.is_empty(), "there is no C compiler at all");
    let folder = tempfile::tempdir().unwrap();
    let units = subject.units();
    let mut wrong = Vec::new();
    let mut targets: Vec<&str> = compilers.iter().map(|compiler| compiler.target).collect();
    targets.sort_unstable();
    targets.dedup();
    for target in targets {
        let Some(facts) = subject.facts(target) else { return };
        for unit in &units {
            let surface = unit.surface();
            let tree = folder.path().join(&surface.name);
            write_tree(unit, &tree);
            let tags = c::tags(unit.tree().files.values().map(|file| &*file.text));
            let keyword = |name: &str| match surface.language.as_str() {
                "c" => tags.get(name).copied(),
                _ => None,
            };
            let questions = c::questions(&facts.surfaces[&surface.name], &keyword);
            assert!(questions.count > 0, "{} asks nothing", surface.name);
            let described = c::Unit {
                name: &surface.name,
                root: &tree,
                headers: unit.headers(),
                include: &surface.include,
                defines: &surface.defines,
                prelude: &surface.prelude,
                language: &surface.language,
            };
            for compiler in compilers.iter().filter(|compiler| compiler.target == target) {
                if surface.language == "c++" && !compiler.cpp {
                    println!("skipped: {} has no C++", compiler.program);
                    continue;
                }
                let found = c::disagreements(compiler, &described, &questions, folder.path());
                let who = format!("{} for {target}, surface {}", compiler.program, surface.name);
                println!("{who}: {} questions, {} disagreements", questions.count, found.len());
                wrong.extend(found.into_iter().take(20).map(|line| format!("{who}: {line}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn compilers_agree_on_our_headers() {
    ask_compilers(&Subject::own("1.1"));
    ask_compilers(&Subject::own("1.2"));
}

#[test]
fn compilers_agree_on_the_drivers_headers() {
    if let Some(subject) = Subject::real() {
        ask_compilers(&subject);
    }
}

/// One tag of each other branch, its newest, and one compiler that is not what the facts came from.
#[test]
fn gcc_agrees_on_every_branch() {
    let Some(source) = at_hand::headers() else { return };
    for spec in ok(Spec::load_folder(&root().join("abi-specs"))) {
        let lock = nvabi_pipeline::lock::folder(&root().join("abi-specs"), spec.family());
        let tags = ok(nvabi_pipeline::lock::read_tags(&lock));
        let newest = tags.iter().rev().find(|locked| locked.tag.branch() == spec.driver);
        let tag = newest.unwrap().tag.clone();
        let subject = Subject { name: "branch", spec, tag, source: source.clone() };
        if !subject.is_at_hand() {
            let why = format!("NVABI_HEADERS has no headers of {}", subject.tag);
            // Jetson's lie in repositories of their own, which nothing requires.
            match subject.tag.family() {
                "" => at_hand::skip(&why),
                _ => println!("skipped: {why}"),
            }
            continue;
        }
        let gcc = c::compilers().into_iter().find(|c| c.program == "gcc");
        let Some(gcc) = gcc else { return at_hand::skip("there is no gcc") };
        println!("{}", subject.tag);
        ask(&subject, vec![gcc]);
    }
}

/// The questions find a fact that is off by one, in every kind of fact.
#[test]
fn compilers_notice_a_wrong_fact() {
    let subject = Subject::own("1.1");
    let Some(facts) = subject.facts(c::compilers()[0].target) else { return };
    let right = &facts.surfaces["rm"];
    type Alter = fn(&mut Surface);
    let alter: [(&str, Alter); 9] = [
        ("size", |s| s.records.get_mut("NVT_SWAPS").unwrap().size += 8),
        ("alignment", |s| s.records.get_mut("NVT_SWAPS").unwrap().align *= 2),
        ("offset", |s| s.records.get_mut("NVT_SWAPS").unwrap().fields[1].offset += 4),
        ("nested offset", |s| {
            s.records.get_mut("NVT_UNION_MEMBER::data_t::buffer_t").unwrap().fields[1].offset += 4;
        }),
        ("type", |s| {
            s.records.get_mut("NVT_SWAPS").unwrap().fields[0].canonical = "int".into();
        }),
        ("bits", |s| {
            let field = &mut s.records.get_mut("NVT_BITS_CROSSING").unwrap().fields[1];
            field.bits.as_mut().unwrap().bit_width -= 1;
        }),
        ("enumerator", |s| {
            *s.enums.get_mut("NVT_PLAIN").unwrap().variants.get_mut("NVT_PLAIN_Z").unwrap() += 1;
        }),
        ("constant", |s| s.constants.get_mut("NVT_APPLIED").unwrap().value += 1),
        ("bit range", |s| s.bit_ranges.get_mut("NVT_BITS_FAR").unwrap().low += 1),
    ];
    let folder = tempfile::tempdir().unwrap();
    let units = subject.units();
    let unit = units.iter().find(|unit| unit.surface().name == "rm").unwrap();
    write_tree(unit, folder.path());
    let tags = c::tags(unit.tree().files.values().map(|file| &*file.text));
    let described = c::Unit {
        name: "rm",
        root: folder.path(),
        headers: unit.headers(),
        include: &unit.surface().include,
        defines: &unit.surface().defines,
        prelude: &unit.surface().prelude,
        language: "c",
    };
    let compiler = &c::compilers()[0];
    let questions = c::questions(right, &|name| tags.get(name).copied());
    let found = c::disagreements(compiler, &described, &questions, folder.path());
    assert!(found.is_empty(), "{found:?}");
    for (what, alter) in alter {
        let mut surface = right.clone();
        alter(&mut surface);
        let questions = c::questions(&surface, &|name| tags.get(name).copied());
        let found = c::disagreements(compiler, &described, &questions, folder.path());
        assert!(!found.is_empty(), "nobody noticed a wrong {what}");
    }
}

#[test]
fn rustc_agrees_on_our_headers() {
    rust::own(&Subject::own("1.1"));
}

#[test]
fn rustc_agrees_on_the_drivers_headers() {
    if let Some(subject) = Subject::real() {
        rust::real(&subject);
    }
}

#[test]
fn bindgen_agrees_on_our_headers() {
    bindings::agree(&Subject::own("1.1"));
}

#[test]
fn bindgen_agrees_on_the_drivers_headers() {
    if let Some(subject) = Subject::real() {
        bindings::agree(&subject);
    }
}
