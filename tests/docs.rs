//! The documents against the repository: line lengths, links, the book's pages, the table of crates.
#![allow(clippy::expect_used, clippy::panic, reason = "a test may stop where it stands")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Characters of a line in a document.
const WIDTH: usize = 120;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The pages of the book and the documents beside the root manifest.
fn documents() -> Vec<String> {
    let mut found = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    for entry in fs::read_dir(root().join("docs")).expect("the folder of the book") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name in UTF-8");
        if name.ends_with(".md") {
            found.push(format!("docs/{name}"));
        }
    }
    found.sort();
    found
}

/// Links to files in a line, without those to sites: `[text](target#anchor)`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://"))
}

/// A heading's anchor, as mdBook and GitHub make it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn anchors(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| anchor(line.trim_start_matches('#').trim()))
        .collect()
}

#[test]
fn lines_are_short() {
    let mut long = Vec::new();
    for path in documents() {
        for (number, line) in read(&path).lines().enumerate() {
            let length = line.chars().count();
            if length > WIDTH {
                long.push(format!("{path}:{}: {length} characters", number + 1));
            }
        }
    }
    assert!(long.is_empty(), "more than {WIDTH} characters:\n{}", long.join("\n"));
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut broken = Vec::new();
    for path in documents() {
        let text = read(&path);
        let folder = Path::new(&path).parent().expect("a folder").to_owned();
        let mut is_code = false;
        for (number, line) in text.lines().enumerate() {
            is_code ^= line.trim_start().starts_with("```");
            for link in links(line).filter(|_| !is_code) {
                let (file, heading) = link.split_once('#').unwrap_or((link, ""));
                let target = if file.is_empty() { PathBuf::from(&path) } else { folder.join(file) };
                let is_page = target.extension().is_some_and(|extension| extension == "md");
                let found = match root().join(&target) {
                    full if heading.is_empty() || !is_page => full.exists(),
                    full => {
                        fs::read_to_string(full).is_ok_and(|text| anchors(&text).contains(heading))
                    }
                };
                // The book holds its own folder alone.
                let is_outside = path.starts_with("docs/") && file.starts_with("..");
                if !found || is_outside {
                    broken.push(format!("{path}:{}: {link}", number + 1));
                }
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn each_page_is_in_the_book_once() {
    let summary = read("docs/SUMMARY.md");
    let mut listed: Vec<String> =
        summary.lines().flat_map(links).map(|page| format!("docs/{page}")).collect();
    listed.sort();
    let pages: Vec<String> = documents()
        .into_iter()
        .filter(|path| path.starts_with("docs/") && path != "docs/SUMMARY.md")
        .collect();
    assert_eq!(listed, pages);
}

/// The members that a manifest names in a table of dependencies, without their `nvabi-`.
fn dependencies(manifest: &str, table: &str) -> BTreeSet<String> {
    let header = format!("[{table}]");
    let lines = manifest.lines().skip_while(|line| *line != header).skip(1);
    lines
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split([' ', '.', '=']).next())
        .filter(|name| *name == "nvabi" || name.starts_with("nvabi-"))
        .map(short)
        .collect()
}

fn short(name: &str) -> String {
    name.strip_prefix("nvabi-").unwrap_or(name).to_owned()
}

/// Folder, dependencies and build dependencies of each crate.
type Crates = BTreeMap<String, (String, BTreeSet<String>, BTreeSet<String>)>;

fn crates_of_the_manifests() -> Crates {
    let workspace = read("Cargo.toml");
    let members = workspace.split("members = [").nth(1).and_then(|rest| rest.split(']').next());
    let members = members.expect("the members of the workspace").split('"').skip(1).step_by(2);
    let folders = std::iter::once(".").chain(members.filter(|member| *member != "."));
    let one = |folder: &str| {
        let manifest = read(&format!("{folder}/Cargo.toml"));
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = \""));
        let name = name.expect("a package's name").trim_end_matches('"').to_owned();
        let uses = |table: &str| dependencies(&manifest, table);
        (name, (folder.to_owned(), uses("dependencies"), uses("build-dependencies")))
    };
    folders.map(one).collect()
}

fn crates_of_the_document() -> Crates {
    let text = read("docs/architecture.md");
    let rows = text.lines().skip_while(|line| !line.starts_with("| crate | folder |")).skip(2);
    let names =
        |cell: &str| cell.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let one = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let [_, name, folder, uses, build, _] = cells[..] else { panic!("five cells: {line}") };
        (name.to_owned(), (folder.to_owned(), names(uses), names(build)))
    };
    rows.take_while(|line| line.starts_with('|')).map(one).collect()
}

#[test]
fn the_table_of_crates_is_that_of_the_manifests() {
    assert_eq!(crates_of_the_document(), crates_of_the_manifests());
}
