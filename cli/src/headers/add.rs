//! `nvabi add`: a new driver version, from its headers to the text of the pull request.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;

use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_pipeline::facts;
use nvabi_pipeline::files;
use nvabi_pipeline::headers::Source;
use nvabi_reports::diff::{self, Scope, Side};

use nvabi_pipeline::lint;
use nvabi_pipeline::lock::{self, Lock};
use nvabi_pipeline::spec::{Reference, Spec};
use nvabi_pipeline::tag::Tag;
use nvabi_pipeline::text_folder::TextFolder;

use super::{branch_before, existing, read_into, source};
use crate::Outcome;
use crate::args;
use crate::context::{Context, Family, spec_of};
use crate::diff::facts_of_items;

pub(crate) fn add(context: &Context<'_>, args: &args::Add) -> Result<Outcome, Report> {
    let tag = &args.tag;
    let writable = context.writable_specs()?;
    let Family { mut specs, lock: folder, name } = context.family(Some(tag))?;
    let mut locked = existing(&folder)?;
    let mut written = Vec::new();
    // What a branch of several trees needs, a person must say.
    if name.is_empty() && !specs.iter().any(|spec| spec.driver == tag.branch()) {
        // Nothing is written for a tag that is not there.
        let source = source(context)?;
        source.list(Reference::whole(tag), &[])?;
        written = new_branch(context, &specs, tag, &source)?;
        specs = context.family(Some(tag))?.specs;
    }
    let known = locked.tag_index(tag).is_some();
    // A branch whose headers cannot be read as its parent's leaves its spec behind: that is where
    // a person goes on.
    read_into(context, &mut locked, &specs, std::slice::from_ref(tag), "Locking")?;
    lock::write(&lock::folder(writable, &name), &locked)?;
    let status = if known { "again, it was locked already" } else { "" };
    context.status("Locked", format!("{tag} {status}").trim_end());

    let open = lint::lint_tag(&locked, spec_of(&specs, tag)?, tag);
    let text = pull_request(&folder, &locked, &specs, tag, &written, &open)?;
    if let Some(path) = &args.out {
        write(path, &text)?;
    }
    match context.json() {
        true => context.print_json(&Added {
            tag: tag.as_str(),
            again: known,
            written: &written,
            to_decide: &open.diagnostics,
            pull_request: &text,
        })?,
        false if args.out.is_none() => context.print(&text)?,
        false => {}
    }
    if !open.diagnostics.is_empty() {
        context.complain(&open);
        let findings = open.diagnostics.len();
        let then = format!("{findings} findings of lint; snapshots stay old until it has none");
        context.status("To decide", &then);
        return Ok(Outcome::Different);
    }
    if !args.no_snapshots {
        snapshots(context)?;
    }
    Ok(Outcome::Same)
}

/// What `--json` prints.
#[derive(Serialize)]
struct Added<'a> {
    tag: &'a str,
    /// Whether the tag was locked before.
    again: bool,
    /// The files of a new branch.
    written: &'a [PathBuf],
    /// What lint found, for a person to decide.
    to_decide: &'a [Diagnostic],
    /// Markdown.
    pull_request: &'a str,
}

/// Writes what a branch needs that no spec knows yet: a spec that inherits everything, the feature
/// and the re-export.
fn new_branch(
    context: &Context<'_>,
    specs: &[Spec],
    tag: &Tag,
    source: &Source,
) -> Result<Vec<PathBuf>, Report> {
    let branch = tag.branch();
    let Some(parent) = branch_before(specs, branch) else {
        let message = format!("there is no spec that driver {branch} could inherit from");
        return Err(Diagnostic::error("add-no-parent", message)
            .help("write its spec by hand, see CONTRIBUTING.md")
            .into());
    };
    let folder = context.writable_specs()?;
    let spec = folder.join(format!("driver-{branch}.toml"));
    let mut text = format!(
        "# Driver branch {branch}: nothing is known to differ from {}.\n\ndriver = \"{branch}\"\nparent = \"{}\"\n",
        parent.driver, parent.name
    );
    let mut gone = Vec::new();
    for surface in &parent.surfaces {
        if !facts::has_headers(source, surface, Reference::whole(tag))? {
            gone.push(surface.name.as_str());
        }
    }
    if gone.len() == parent.surfaces.len() {
        let message = format!("{tag} has none of the headers that {} names", parent.name);
        return Err(Diagnostic::error("add-no-headers", message)
            .help("give the folder that `kernel-open` and `src` are in, or a clone of them")
            .into());
    }
    if !gone.is_empty() {
        let _ = write!(
            text,
            "\n[surface]\n# {tag} has none of their headers: see whether others have what they had.\n"
        );
    }
    for name in gone {
        let _ = writeln!(text, "{name} = {{ removed = true }}");
        context.status("Removed", &format!("surface {name}: {tag} has none of its headers"));
    }
    write(&spec, &text)?;
    let mut written = vec![spec];
    let root = folder.parent().unwrap_or(Path::new("."));
    let (old, new) = (&parent.driver, branch);
    for (file, edits) in [
        (
            "Cargo.toml",
            vec![
                (format!("driver-{old} = []\n"), format!("driver-{old} = []\ndriver-{new} = []\n")),
                (
                    format!("\"driver-{old}\",\n]"),
                    format!("\"driver-{old}\",\n    \"driver-{new}\",\n]"),
                ),
            ],
        ),
        (
            "src/lib.rs",
            vec![(
                format!("pub use abi::r{old};\n"),
                format!(
                    "pub use abi::r{old};\n#[cfg(feature = \"driver-{new}\")]\npub use abi::r{new};\n"
                ),
            )],
        ),
    ] {
        let path = root.join(file);
        if edit(&path, &edits)? {
            written.push(path);
        } else if path.exists() {
            context.status(
                "Left",
                &format!("{} as it is: add driver-{new} there by hand", path.display()),
            );
        }
    }
    for path in &written {
        context.status("Wrote", &path.display().to_string());
    }
    Ok(written)
}

/// Replaces each text, when the file has every one of them.
fn edit(path: &Path, edits: &[(String, String)]) -> Result<bool, Report> {
    let Ok(mut text) = fs::read_to_string(path) else { return Ok(false) };
    for (from, to) in edits {
        if !text.contains(from) {
            return Ok(false);
        }
        text = text.replacen(from, to, 1);
    }
    write(path, &text)?;
    Ok(true)
}

fn write(path: &Path, text: &str) -> Result<(), Report> {
    Ok(files::write(path, text).map_err(|error| {
        Diagnostic::error("output", format!("cannot write {}: {error}", path.display()))
    })?)
}

/// What the pull request says: against the tag before, and what is left to decide.
fn pull_request(
    folder: &TextFolder,
    locked: &Lock,
    specs: &[Spec],
    tag: &Tag,
    written: &[PathBuf],
    open: &Report,
) -> Result<String, Report> {
    let mut text = format!("# Add driver {tag}\n\n");
    let before = locked.tag_index(tag).and_then(|at| at.checked_sub(1)).map(|at| &locked.tags[at]);
    match before {
        None => text.push_str("It is the first tag of the lock.\n"),
        Some(before) => {
            let [from, to] = facts_of_items(folder, specs, [&before.tag, tag])?;
            let side = |facts| -> Result<Side<'_>, Report> {
                let facts: &nvabi_pipeline::model::Facts = facts;
                Ok(Side { facts, spec: spec_of(specs, &facts.tag)? })
            };
            let found = diff::diff(side(&from)?, side(&to)?, Scope::Items);
            if found.is_empty() {
                let _ = writeln!(
                    text,
                    "Same ABI as {}: nothing that the spec names changed.",
                    before.tag
                );
            } else {
                text.push_str(&diff::markdown(&found));
            }
        }
    }
    if !written.is_empty() {
        text.push_str("\n## New branch\n\nIts spec inherits everything. Written:\n\n");
        for path in written {
            let _ = writeln!(text, "- `{}`", path.display());
        }
    }
    if !open.diagnostics.is_empty() {
        text.push_str("\n## To decide\n\n`nvabi lint` fails until the spec is changed:\n\n");
        for diagnostic in &open.diagnostics {
            let _ = writeln!(text, "- {}", diagnostic.message);
        }
        let _ = writeln!(
            text,
            "\nUntil then tests fail, and `snapshots/` is as it was before {tag}. Settle it, then run \
             `nvabi add {tag}` again."
        );
    }
    Ok(text)
}

/// Renews the reviewed renderings, where this is nvabi's own tree.
fn snapshots(context: &Context<'_>) -> Result<(), Report> {
    let folder = context.writable_specs()?;
    let root = folder.parent().unwrap_or(Path::new("."));
    if !root.join("snapshots").is_dir() {
        return Ok(());
    }
    context.status("Rendering", "snapshots (cargo test --test snapshots --features all-drivers)");
    let done = Command::new("cargo")
        .args(["test", "--quiet", "--test", "snapshots", "--features", "all-drivers"])
        .current_dir(if root.as_os_str().is_empty() { Path::new(".") } else { root })
        .env("INSTA_UPDATE", "always")
        .stdout(std::process::Stdio::null())
        .status();
    match done {
        Ok(status) if status.success() => {
            context.status("Done", "look at `git diff snapshots`, then run the tests");
            Ok(())
        }
        Ok(status) => Err(Diagnostic::error("add-snapshots", format!("cargo ended with {status}"))
            .note("the lock is written; only its renderings are old")
            .into()),
        Err(error) => Err(Diagnostic::error("add-snapshots", format!("cannot run cargo: {error}"))
            .note("the lock is written; only its renderings are old")
            .into()),
    }
}
