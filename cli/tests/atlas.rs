//! The atlas: the same bytes each time, links that lead somewhere, names that stay text, and a
//! browser that can read it.
#![allow(clippy::unwrap_used)]

#[macro_use]
extern crate nvabi_test;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use nvabi_pipeline::lock::{self, Lock};
use nvabi_pipeline::model::{Bits, Constant, Facts, Field, Record, RecordKind, Source, Surface};
use nvabi_pipeline::spec::Spec;
use nvabi_pipeline::tag::Tag;
use nvabi_reports::atlas;
use nvabi_reports::diff::{self, Class, Scope, Side};
use nvabi_reports::list;
use nvabi_test::{Need, skip};

test_main!();

type Site = BTreeMap<String, String>;

fn specs_folder() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("abi-specs")
}

fn site(lock: &Lock, specs: &[Spec]) -> Site {
    let mut site = Site::new();
    for (path, text) in atlas::pages(lock, specs) {
        assert!(site.insert(path.clone(), text).is_none(), "{path} is there twice");
    }
    site
}

/// A few tags of the real lock: with layouts that come back, and the oldest and newest of all.
fn real() -> &'static (Lock, Vec<Spec>) {
    static REAL: OnceLock<(Lock, Vec<Spec>)> = OnceLock::new();
    REAL.get_or_init(|| {
        let specs = Spec::load_family(&specs_folder(), "").unwrap();
        let (all, _) = lock::read(&specs_folder().join("lock")).unwrap();
        let named = ["530.41.03", "535.43.08", "535.54.03", "535.86.05", "550.90.07", "570.86.15"];
        let named = named.map(|tag| tag.parse::<Tag>().unwrap());
        let ends = [all.tags.first().unwrap().tag.clone(), all.tags.last().unwrap().tag.clone()];
        let mut few = Lock::default();
        for tag in named.iter().chain(&ends) {
            few.insert(&all.facts(tag).unwrap(), "-".to_owned());
        }
        (few, specs)
    })
}

fn real_site() -> &'static Site {
    static SITE: OnceLock<Site> = OnceLock::new();
    SITE.get_or_init(|| site(&real().0, &real().1))
}

#[test]
fn the_same_lock_gives_the_same_bytes_on_any_thread() {
    let (lock, specs) = real();
    let again = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..2).map(|_| scope.spawn(|| site(lock, specs))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(again.iter().all(|site| site == real_site()));
}

#[test]
fn shows_layouts_that_come_back_once() {
    let page = &real_site()["record/NV_CHANNEL_ALLOC_PARAMS.html"];
    assert_eq!(page.matches("<section ").count(), 3);
    assert!(page.contains("535.54.03</a><td><a href=#l1>layout 1</a>: 360 → 304 bytes"), "{page}");
    assert!(page.contains("/blob/535.43.08/src/common/sdk/nvidia/inc/alloc/alloc_channel.h#L"));
    let page = &real_site()["record/NVOS21_PARAMETERS.html"];
    assert!(page.contains("<tr class=w><td>28<td>0x1c<td>4"), "{page}");
    assert!(page.contains("<td>was at 24"));
    let page = &real_site()["tag/535.43.08.html"];
    assert!(page.contains("NVOS21_PARAMETERS</a>: + paramsSize; changed status"), "{page}");
    let page = &real_site()["class/AMPERE_CHANNEL_GPFIFO_A.html"];
    assert!(page.contains("NV_CHANNEL_ALLOC_PARAMS") && page.contains("<svg class=map"));
    let page = &real_site()["frontend/NV_ESC_RM_CONTROL.html"];
    assert!(page.contains("<code>0x2a</code>"), "{page}");
}

#[test]
fn a_call_shows_who_uses_it() {
    let control = &real_site()["frontend/NV_ESC_RM_CONTROL.html"];
    assert!(control.contains("Seen in use by gpustat (525.147.05 – "), "{control}");
    assert!(control.contains(", libcuda (525.147.05 – "), "{control}");
    assert!(control.contains(", nvml (525.147.05 – "), "{control}");
    let channel = &real_site()["class/AMPERE_CHANNEL_GPFIFO_A.html"];
    assert!(channel.contains("Seen in use by libcuda (525.147.05 – "), "{channel}");
    assert!(channel.contains(", tinygrad (570.86.16 – "), "{channel}");
    // Each program has a call, and most calls have none.
    let seen = |page: &&String| page.contains("Seen in use by");
    let count = real_site().values().filter(seen).count();
    assert!((100..500).contains(&count), "{count} pages");
    for program in ["libcuda", "nvidia-smi-mig", "nvidia-smi", "nvml", "opencl", "tinygrad"] {
        assert!(real_site().values().filter(seen).any(|page| page.contains(program)), "{program}");
    }
}

/// The newest of each branch, and what a diff of two of them says.
#[test]
fn every_two_branches_have_a_page() {
    let (lock, specs) = real();
    let newest = ["515.43.04", "530.41.03", "535.86.05", "550.90.07", "570.86.15", "595.45.04"];
    let facts = newest.map(|tag| lock.facts(&tag.parse().unwrap()).unwrap());
    let sides = facts.each_ref().map(|facts| {
        let spec = specs.iter().find(|spec| spec.driver == facts.tag.branch()).unwrap();
        Side { facts, spec }
    });
    let pages = real_site().keys().filter(|path| path.starts_with("diff/")).count();
    assert_eq!(pages, newest.len() * (newest.len() - 1) / 2);
    for (i, from) in sides.iter().enumerate() {
        for to in &sides[i + 1..] {
            let file = format!("diff/{}_{}.html", from.facts.tag, to.facts.tag);
            let page = &real_site()[&file];
            let diff = diff::diff(*from, *to, Scope::Items);
            assert!(page.contains(&diff::summary(&diff)), "{file}: {page}");
            assert!(diff.count(Class::Break) > 0 || from.facts.tag.as_str() > "550", "{file}");
            for change in &diff.records {
                assert!(page.contains(&change.name), "{file} lacks {}", change.name);
            }
            let link = format!("<a href=\"{file}\" title=\"{}\"", diff::summary(&diff));
            assert!(real_site()["index.html"].contains(&link), "{link}");
        }
    }
}

/// DRM's and the mode setter's, which no spec names.
#[test]
fn every_ioctl_that_is_listed_has_a_page() {
    let (lock, specs) = real();
    let search = &real_site()["search.js"];
    for tag in ["550.90.07", "570.86.15"] {
        let facts = lock.facts(&tag.parse().unwrap()).unwrap();
        let spec = specs.iter().find(|spec| spec.driver == facts.tag.branch()).unwrap();
        for call in list::ioctls(&facts, spec).iter().filter(|call| !call.surface.is_empty()) {
            let folder = match call.surface.as_str() {
                "rm" => "frontend",
                "uvm" => "uvm",
                _ => "ioctl",
            };
            let page = &real_site()[&format!("{folder}/{}.html", call.name)];
            assert!(call.params.iter().all(|params| page.contains(params)), "{}", call.name);
            assert!(search.contains(&format!("[\"{}\",\"{folder}/", call.name)), "{}", call.name);
        }
    }
    let page = &real_site()["ioctl/DRM_IOCTL_NVIDIA_GET_DEV_INFO.html"];
    assert!(page.contains("0xc0206443 → 0xc0246443"), "{page}");
}

/// What links lead to: attributes with and without quotes.
fn links(page: &str) -> Vec<String> {
    let ends = |quoted: bool| move |c: char| if quoted { c == '"' } else { " >".contains(c) };
    let mut found = Vec::new();
    for attribute in [" href=", " src=", " action="] {
        for (at, _) in page.match_indices(attribute) {
            let value = &page[at + attribute.len()..];
            let quoted = value.starts_with('"');
            let value = value.strip_prefix('"').unwrap_or(value);
            found.push(value[..value.find(ends(quoted)).unwrap()].to_owned());
        }
    }
    found
}

fn assert_links_resolve(site: &Site) {
    let ids: BTreeMap<&str, BTreeSet<String>> = site
        .iter()
        .map(|(path, page)| {
            let ids = page.match_indices(" id=").map(|(at, _)| {
                page[at + 4..].split([' ', '>']).next().unwrap_or_default().to_owned()
            });
            (path.as_str(), ids.collect())
        })
        .collect();
    for (path, page) in site.iter().filter(|(path, _)| path.ends_with(".html")) {
        for link in links(page) {
            if link.starts_with("https://") {
                continue;
            }
            let (file, id) = link.split_once('#').unwrap_or((link.as_str(), ""));
            let target = match (file, file.strip_prefix("../")) {
                ("", _) => path.clone(),
                (_, Some(file)) => {
                    assert!(path.contains('/'), "{path} leads out of the atlas: {link}");
                    file.to_owned()
                }
                _ => file.to_owned(),
            };
            let ids = ids.get(target.as_str());
            assert!(ids.is_some(), "{path} leads to {link}, which is not there");
            assert!(id.is_empty() || ids.unwrap().contains(id), "{path}: no such place: {link}");
        }
    }
}

#[test]
fn every_link_leads_to_a_file() {
    assert_links_resolve(real_site());
    // Those of the search page are in its data.
    for line in real_site()["search.js"].lines() {
        let Some(file) = line.split('"').nth(3).filter(|file| file.ends_with(".html")) else {
            continue;
        };
        assert!(real_site().contains_key(file), "{line}");
    }
}

#[test]
fn is_small() {
    let size: usize = real_site().values().map(String::len).sum();
    assert!(size < 60_000_000, "{size}");
    // Wide arrays are not drawn line by line.
    for (path, page) in real_site() {
        assert!(page.len() < 4_000_000, "{path}: {}", page.len());
    }
}

const HOSTILE: &str = "x<script>alert(1)</script>\"'&";

fn field(name: &str, ty: &str, offset: u64, size: u64) -> Field {
    let (name, ty) = (name.to_owned(), ty.to_owned());
    Field { name, canonical: ty.clone(), ty, offset, size, bits: None }
}

fn record(kind: RecordKind, size: u64, fields: Vec<Field>) -> Record {
    let source = Source { path: format!("inc/{HOSTILE}.h").into(), line: 7 };
    Record { kind, size, align: 4, source, fields: fields.into() }
}

/// Facts in which every text is hostile, with unions, bit-fields, wide arrays and numbers too large.
fn hostile(tag: &str, size: u64) -> Facts {
    let mut surface = Surface::default();
    let inner = format!("{HOSTILE}::in_t");
    let mut bits = field("bits", "NvU32", 4, 4);
    bits.bits = Some(Bits { bit_offset: 3, bit_width: 7 });
    let fields = vec![
        field(HOSTILE, HOSTILE, 0, 4),
        bits,
        field("in", &inner, 8, 8),
        field("wide", "unsigned char[65536]", 16, 65536),
        field("none", "unsigned char[]", 65552, 0),
        field("", "Other", size - 4, 4),
    ];
    let union = vec![field("a", "unsigned int", 0, 4), field(HOSTILE, "unsigned long", 0, 8)];
    surface.records.insert(HOSTILE.to_owned(), record(RecordKind::Struct, size, fields));
    surface.records.insert(inner, record(RecordKind::Union, 8, union));
    surface.records.insert("Other".to_owned(), record(RecordKind::Struct, 4, vec![]));
    surface.records.insert("OTHER".to_owned(), record(RecordKind::Struct, u64::MAX, vec![]));
    // Itself by value, as no header can say.
    let circle = vec![field("c", "Circle", 0, 4), field("far", "int", u64::MAX - 3, 4)];
    surface.records.insert("Circle".to_owned(), record(RecordKind::Struct, 4, circle));
    let source = Source { path: "a.h".into(), line: 1 };
    surface.constants.insert(HOSTILE.to_owned(), Constant { value: size.into(), source });
    // The same name otherwise in another surface.
    let mut second = Surface::default();
    second.records.insert("Other".to_owned(), record(RecordKind::Union, 8, vec![]));
    let surfaces = BTreeMap::from([("rm".to_owned(), surface), (HOSTILE.to_owned(), second)]);
    Facts { tag: tag.parse().unwrap(), surfaces }
}

const SPEC: &str = r#"
driver = "1"
repository = "https://example.org/\"><script>alert(1)</script>"
targets = []
[surface.rm]
headers = ["*.h"]
[control]
"x<script>alert(1)</script>\"'&" = { params = "x<script>alert(1)</script>\"'&", note = "<script>alert(1)</script>" }
[constants]
names = ["*"]
"#;

fn hostile_lock() -> (Lock, Vec<Spec>) {
    let mut lock = Lock::default();
    lock.insert(&hostile("1.1", 65_560), "-".to_owned());
    lock.insert(&hostile("1.2", 65_568), "-".to_owned());
    lock.insert(&hostile("1.3", 65_560), "-".to_owned());
    let file = ("driver-1".to_owned(), "driver-1.toml".to_owned(), SPEC.to_owned());
    (lock, Spec::parse_all(&[file]).unwrap())
}

#[test]
fn names_stay_text() {
    let (lock, specs) = hostile_lock();
    let site = site(&lock, &specs);
    for (path, page) in &site {
        assert!(!page.contains("<script>"), "{path}: {page}");
        assert!(path.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./@".contains(&b)), "{path}");
    }
    // With three records of one name but for case, and one of another surface.
    let records = site.keys().filter(|path| path.to_lowercase().starts_with("record/other"));
    assert_eq!(records.count(), 3);
    assert_links_resolve(&site);
}

mod command {
    use super::*;

    fn nvabi(specs: &Path, out: &Path) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
        command.args(["atlas", "--specs"]).arg(specs).arg("--out").arg(out).output().unwrap()
    }

    /// A folder of specs with a lock of two tags.
    fn small() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let spec = "driver = \"1\"\n[surface.rm]\nheaders = [\"*.h\"]\n";
        fs::write(folder.path().join("driver-1.toml"), spec).unwrap();
        let mut lock = Lock::default();
        for (tag, size) in [("1.1", 4), ("1.2", 8)] {
            let fields = vec![field("a", "unsigned int", 0, 4)];
            let mut one = record(RecordKind::Struct, size, fields);
            one.source.path = "a.h".into();
            let mut surface = Surface::default();
            surface.records.insert("ONE".to_owned(), one);
            let surfaces = BTreeMap::from([("rm".to_owned(), surface)]);
            lock.insert(&Facts { tag: tag.parse().unwrap(), surfaces }, "-".to_owned());
        }
        lock::write(&folder.path().join("lock"), &lock).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn writes_and_replaces_its_own() {
        let (specs, parent) = (small(), tempfile::tempdir().unwrap());
        let out = parent.path().join("site");
        for _ in 0..2 {
            let output = nvabi(specs.path(), &out);
            let err = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(0), "{err}");
            assert!(out.join("record/ONE.html").is_file());
            // Nothing is left beside it.
            assert_eq!(names(parent.path()), ["site"]);
        }
    }

    #[test]
    fn leaves_alone_what_is_not_an_atlas() {
        let (specs, parent) = (small(), tempfile::tempdir().unwrap());
        let out = parent.path().join("site");
        fs::create_dir(&out).unwrap();
        fs::write(out.join("thesis.txt"), "words").unwrap();
        let refused = |why: &str| {
            let output = nvabi(specs.path(), &out);
            let err = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{err}");
            assert!(err.contains(why), "{err}");
            assert_eq!(fs::read_to_string(out.join("thesis.txt")).unwrap(), "words");
            assert_eq!(names(parent.path()), ["site"]);
        };
        refused("it is not empty, and no atlas");
        // Nor is it what somebody put into an atlas.
        fs::remove_file(out.join("thesis.txt")).unwrap();
        assert_eq!(nvabi(specs.path(), &out).status.code(), Some(0));
        fs::write(out.join("thesis.txt"), "words").unwrap();
        refused("`thesis.txt` in it is not the atlas's");
    }
}

/// The browser: as `CHROMIUM` says, else one in `PATH`.
fn chromium() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("CHROMIUM") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|file| file.is_file())
}

fn browse(chromium: &Path, profile: &Path, args: &[&str], page: &str) -> Output {
    Command::new(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
        .args(["--window-size=1280,1000", "--virtual-time-budget=5000"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(args)
        .arg(page)
        .output()
        .unwrap()
}

#[test]
fn a_browser_reads_it_from_disk() {
    let Some(chromium) = chromium() else {
        skip(Need::Browser, "no Chromium in CHROMIUM or in PATH");
    };
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in real_site() {
        let file = folder.path().join("site").join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    let profile = folder.path().join("profile");
    let url = |page: &str| format!("file://{}/site/{page}", folder.path().display());

    let shots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("atlas");
    fs::create_dir_all(&shots).unwrap();
    for (name, page, dark) in [
        ("index", "index.html", false),
        ("record", "record/NV_CHANNEL_ALLOC_PARAMS.html", false),
        ("record-dark", "record/NVOS21_PARAMETERS.html", true),
        ("matrix", "matrix/frontend.html", false),
        ("search", "search.html?q=channel+alloc", false),
    ] {
        let shot = shots.join(format!("{name}.png"));
        let _ = fs::remove_file(&shot);
        let to = format!("--screenshot={}", shot.display());
        let scheme = format!("--blink-settings=preferredColorScheme={}", u8::from(!dark));
        browse(&chromium, &profile, &[&to, &scheme], &url(page));
        let size = fs::metadata(&shot).unwrap().len();
        assert!(size > 10_000, "{name}: {size} bytes");
    }
    eprintln!("screenshots in {}", shots.display());

    // The search works without a server, by name, by field and by number.
    let found = |query: &str, wanted: &str| {
        let page = url(&format!("search.html?q={query}"));
        let output = browse(&chromium, &profile, &["--dump-dom"], &page);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(wanted), "{query}: {text}");
    };
    found("nvos21_par", "<a href=\"record/NVOS21_PARAMETERS.html\">");
    found("paramsSize", "<code>paramsSize</code> of <a href=\"record/");
    found("0x2b", "<a href=\"frontend/NV_ESC_RM_ALLOC.html\">");
    found("42", "<a href=\"frontend/NV_ESC_RM_CONTROL.html\">");
}
