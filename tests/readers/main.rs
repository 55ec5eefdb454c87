//! Independent readers of the same headers must agree with the facts that libclang gave: gcc and
//! clang for both machines, rustc over the emitted types, and bindgen.
//!
//! Once over our own headers, one difficulty each, and once over the driver's, where
//! `NVABI_HEADERS` names them. Each compiler is a test of its own, ignored where it is not installed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

#[path = "../../pipeline/tests/common/at_hand.rs"]
mod at_hand;
mod bindings;
mod c;
mod full;
mod rust;

use std::fs;
use std::path::{Path, PathBuf};

use nvabi_pipeline::diagnostic::Report;
use nvabi_pipeline::facts::{self, Cache, Options, Unit};
use nvabi_pipeline::headers::Source;
use nvabi_pipeline::model::{Facts, Surface};
use nvabi_pipeline::spec::{self, Spec};
use nvabi_pipeline::tag::Tag;
use nvabi_test::{Case, Need, skip};

test_main!(cases());

/// The tag of the driver's headers that every reader reads where they are there.
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

    /// The driver's headers: of one tag, or of the newest that there is.
    fn real() -> Self {
        let specs = root().join("abi-specs");
        let locked = ok(nvabi_pipeline::lock::read_tags(&nvabi_pipeline::lock::folder(&specs, "")));
        let locked: Vec<Tag> = locked.into_iter().map(|locked| locked.tag).collect();
        let (source, there) = at_hand::locked_headers(&locked);
        let preferred = there.iter().find(|tag| tag.as_str() == REAL);
        let tag = preferred.or(there.last()).unwrap();
        Self::new("real", &specs, tag.branch(), tag.as_str(), source)
    }

    fn new(name: &'static str, specs: &Path, driver: &str, tag: &str, source: PathBuf) -> Self {
        let all = ok(Spec::load_folder(specs));
        let spec = all.into_iter().find(|spec| spec.driver == driver).unwrap();
        Self { name, spec, tag: tag.parse().unwrap(), source }
    }

    pub(crate) fn units(&self) -> Vec<Unit<'_>> {
        let mut source = Source::open(&self.source).unwrap_or_else(|e| panic!("{e}"));
        ok(facts::units(&mut source, &self.spec, &self.tag))
    }

    /// The facts for one target.
    pub(crate) fn facts(&self, target: &str) -> Facts {
        let clang = at_hand::clang();
        let options = Options { target, constants: true };
        let units = self.units();
        ok(facts::extract_units(&clang, &units, &self.tag, options, &Cache::default())).0
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

/// A surface under the names that a compiler of its headers knows.
fn named_as_in_headers(facts: &Surface, surface: &spec::Surface) -> Surface {
    let mut facts = facts.clone();
    let header_name = |name: String| match &surface.suffix {
        Some(suffix) => name.strip_suffix(&format!("_{suffix}")).unwrap().to_owned(),
        None => name,
    };
    facts.constants =
        facts.constants.into_iter().map(|(name, it)| (header_name(name), it)).collect();
    facts.bit_ranges =
        facts.bit_ranges.into_iter().map(|(name, it)| (header_name(name), it)).collect();
    facts
}

/// Asks a C compiler about every fact of the subject.
fn ask(subject: &Subject, compiler: &c::Compiler) {
    compiler.or_skip();
    let facts = subject.facts(compiler.target);
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for unit in &subject.units() {
        let surface = unit.surface();
        let tree = folder.path().join(&surface.name);
        write_tree(unit, &tree);
        let tags = c::tags(unit.tree().files.values().map(|file| &*file.text));
        let keyword = |name: &str| match surface.language.as_str() {
            "c" => tags.get(name).copied(),
            _ => None,
        };
        let facts = named_as_in_headers(&facts.surfaces[&surface.name], surface);
        let questions = c::questions(&facts, &keyword);
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
        let found = c::disagreements(compiler, &described, &questions, folder.path());
        let who = format!("{} for {}, surface {}", compiler.program, compiler.target, surface.name);
        println!("{who}: {} questions, {} disagreements", questions.count, found.len());
        wrong.extend(found.into_iter().take(20).map(|line| format!("{who}: {line}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// One test for each compiler and each source of headers, and one for each branch of the driver.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for compiler in c::compilers() {
        let name = compiler.name();
        let (own, real) = (compiler.clone(), compiler);
        cases.push(Case::new(format!("compilers::{name}_agrees_on_our_headers"), move || {
            ask(&Subject::own("1.1"), &own);
            ask(&Subject::own("1.2"), &own);
        }));
        cases.push(Case::new(
            format!("compilers::{name}_agrees_on_the_drivers_headers"),
            move || {
                ask(&Subject::real(), &real);
            },
        ));
    }
    for spec in ok(Spec::load_folder(&root().join("abi-specs"))) {
        let name = format!("branches::gcc_agrees_on_{}", spec.driver);
        cases.push(Case::new(name, move || gcc_agrees_on(spec)));
    }
    cases
}

/// The newest tag of a branch, and a compiler that is not what the facts came from.
fn gcc_agrees_on(spec: Spec) {
    let lock = nvabi_pipeline::lock::folder(&root().join("abi-specs"), spec.family());
    let tags = ok(nvabi_pipeline::lock::read_tags(&lock));
    let path = nvabi_test::headers();
    let mut source = Source::open(&path).unwrap_or_else(|why| panic!("{why}"));
    let mut of_branch = tags.iter().rev().filter(|locked| locked.tag.branch() == spec.driver);
    // Of the tags that there are headers of: a distribution packages one of a branch.
    let mut is_there = |tag: &Tag| facts::units(&mut source, &spec, tag).is_ok();
    let Some(locked) = of_branch.find(|locked| is_there(&locked.tag)) else {
        let why = "NVABI_HEADERS has no headers of this branch";
        let need = if spec.family().is_empty() { Need::AllHeaders } else { Need::JetsonHeaders };
        skip(need, why);
    };
    println!("{}", locked.tag);
    let subject = Subject { name: "branch", tag: locked.tag.clone(), spec, source: path };
    ask(&subject, &c::compilers()[0]);
}

/// The questions find a fact that is off by one, in every kind of fact.
#[test]
fn compilers_notice_a_wrong_fact() {
    let subject = Subject::own("1.1");
    let compiler = &c::compilers()[0];
    compiler.or_skip();
    let facts = subject.facts(compiler.target);
    let right = &facts.surfaces["rm"];
    type Alter = fn(&mut Surface);
    let alter: [(&str, Alter); 9] = [
        ("size", |s| s.records.get_mut("NVT_SWAPS").unwrap().size += 8),
        ("alignment", |s| s.records.get_mut("NVT_SWAPS").unwrap().align *= 2),
        ("offset", |s| s.records.get_mut("NVT_SWAPS").unwrap().fields_mut()[1].offset += 4),
        ("nested offset", |s| {
            s.records.get_mut("NVT_UNION_MEMBER::data_t::buffer_t").unwrap().fields_mut()[1]
                .offset += 4;
        }),
        ("type", |s| {
            s.records.get_mut("NVT_SWAPS").unwrap().fields_mut()[0].canonical = "int".into();
        }),
        ("bits", |s| {
            let field = &mut s.records.get_mut("NVT_BITS_CROSSING").unwrap().fields_mut()[1];
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
    rust::real(&Subject::real());
}

#[test]
fn bindgen_agrees_on_our_headers() {
    bindings::agree(&Subject::own("1.1"));
}

#[test]
fn bindgen_agrees_on_the_drivers_headers() {
    bindings::agree(&Subject::real());
}
