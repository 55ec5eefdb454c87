//! `nvabi headers fetch`: a shallow, sparse clone of one tag into the cache.
//!
//! git itself does it: neither libgit2 nor gitoxide can leave out the files that are not asked for.

use std::fs;
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::{Command, Stdio};

use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_pipeline::headers::folders_of;
use nvabi_pipeline::spec::Spec;
use nvabi_pipeline::tag::Tag;
use nvabi_pipeline::verify;

use super::branch_before;
use crate::Outcome;
use crate::args::Fetch;
use crate::context::{Context, Family, spec_of};

/// One clone: what to fetch from where, and the folder that it becomes.
struct Clone<'a> {
    remote: &'a str,
    /// What the repository calls the tag.
    name: &'a str,
    folders: Vec<&'a str>,
    /// The folder below the tag's, where the driver has several trees.
    below: &'a str,
}

pub(crate) fn fetch(context: &Context<'_>, args: &Fetch) -> Result<Outcome, Report> {
    let spec = spec(context, &args.tag)?;
    let clones = clones(&spec, args)?;
    let cache = verify::cache_folder().ok_or_else(|| {
        Diagnostic::error("fetch-no-cache", "there is no folder for the cache")
            .help("set HOME or XDG_CACHE_HOME")
    })?;
    let target = cache.join(args.tag.as_str());
    if target.exists() {
        context.status("Present", &target.display().to_string());
        return Ok(Outcome::Same);
    }
    let beside = cache.join(format!(".{}.{}.new", args.tag, std::process::id()));
    fs::create_dir_all(&cache).map_err(|e| io_error(&cache, &e))?;
    let made = clones.iter().try_for_each(|each| {
        context.status("Fetching", &format!("{} from {}", each.name, each.remote));
        clone(each, &beside.join(each.below))
    });
    let made =
        made.and_then(|()| fs::rename(&beside, &target).map_err(|e| io_error(&target, &e).into()));
    if let Err(report) = made {
        // What was left half done must not be taken for headers.
        let _ = fs::remove_dir_all(&beside);
        return Err(report);
    }
    context.status("Fetched", &target.display().to_string());
    Ok(Outcome::Same)
}

/// The spec of a tag. A branch that no spec knows yet has its headers where the branch before has them: `nvabi add`
/// writes its spec, and needs them.
fn spec(context: &Context<'_>, tag: &Tag) -> Result<Spec, Report> {
    let Family { specs, name, .. } = context.family(Some(tag))?;
    let unknown = match spec_of(&specs, tag) {
        Ok(spec) => return Ok(spec.clone()),
        Err(report) => report,
    };
    match branch_before(&specs, tag.branch()).filter(|_| name.is_empty()) {
        Some(before) => {
            let what = format!("no spec of {} yet: the folders of {}", tag.branch(), before.driver);
            context.status("Assuming", &what);
            Ok(before.clone())
        }
        None => Err(unknown),
    }
}

/// What the surfaces of a tag need: one clone, or one for each tree.
fn clones<'a>(spec: &'a Spec, args: &'a Fetch) -> Result<Vec<Clone<'a>>, Report> {
    let mut clones: Vec<Clone<'a>> = Vec::new();
    for surface in &spec.surfaces {
        let reference = spec.reference(surface, &args.tag)?;
        let below = reference.tree.unwrap_or_default();
        let repository = match reference.tree {
            Some(tree) => spec.trees.get(tree),
            None => spec.repository.as_ref(),
        };
        let remote = args.remote.as_ref().or(repository).ok_or_else(|| {
            let message = format!("driver {} names no repository", spec.driver);
            Diagnostic::error("fetch-no-remote", message)
                .help("give --remote URL, or `repository` in the spec")
        })?;
        let folders = folders_of(surface);
        match clones.iter_mut().find(|clone| clone.below == below) {
            Some(clone) => clone.folders.extend(folders),
            None => clones.push(Clone { remote, name: reference.name, folders, below }),
        }
    }
    if let (Some(remote), [first, .., last]) = (&args.remote, clones.as_slice()) {
        let message = format!("the headers of {} are in several repositories", args.tag);
        return Err(Diagnostic::error("fetch-no-remote", message)
            .note(format!("{remote} cannot be {} and {} at once", first.below, last.below))
            .help("leave --remote out, or clone them and give NVABI_HEADERS all of them")
            .into());
    }
    for clone in &mut clones {
        clone.folders.sort_unstable();
        clone.folders.dedup();
    }
    Ok(clones)
}

fn clone(wanted: &Clone<'_>, folder: &Path) -> Result<(), Report> {
    let Clone { remote, name, folders, .. } = wanted;
    let progress = if std::io::stderr().is_terminal() { "--progress" } else { "--quiet" };
    let mut clone = git();
    clone.args([
        "-c",
        "advice.detachedHead=false",
        "clone",
        progress,
        "--depth=1",
        "--no-checkout",
    ]);
    clone.args(["--filter=blob:none", "--single-branch", "--no-tags", "--branch", name, "--"]);
    run(clone.arg(remote_path(remote)).arg(folder), name, remote)?;
    let mut sparse = git();
    sparse.arg("-C").arg(folder).args(["sparse-checkout", "set", "--"]).args(folders);
    run(&mut sparse, name, remote)?;
    let mut checkout = git();
    checkout.arg("-C").arg(folder).args([
        "-c",
        "advice.detachedHead=false",
        "checkout",
        progress,
        "--detach",
        "HEAD",
    ]);
    run(&mut checkout, name, remote)
}

/// A local path may be shallow only when it is written as a URL.
fn remote_path(remote: &str) -> String {
    match fs::canonicalize(remote) {
        Ok(path) => format!("file://{}", path.display()),
        Err(_) => remote.to_owned(),
    }
}

fn git() -> Command {
    let mut command = Command::new("git");
    command.env("GIT_TERMINAL_PROMPT", "0").stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn run(command: &mut Command, tag: &str, remote: &str) -> Result<(), Report> {
    let status = command.status().map_err(|error| {
        Diagnostic::error("fetch-no-git", format!("cannot run git: {error}")).help("install git")
    })?;
    match status.success() {
        true => Ok(()),
        false => Err(Diagnostic::error(
            "fetch-failed",
            format!("git could not fetch {tag} from {remote}"),
        )
        .note("git's output is above")
        .help("check the tag's spelling and that the remote can be reached; --remote names another")
        .into()),
    }
}

fn io_error(path: &Path, error: &std::io::Error) -> Diagnostic {
    Diagnostic::error("fetch-unwritable", format!("cannot write {}: {error}", path.display()))
}
