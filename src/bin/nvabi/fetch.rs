//! `nvabi headers fetch`: a shallow, sparse clone of one tag into the cache.
//!
//! git itself does it: neither libgit2 nor gitoxide can leave out the files that are not asked for.

use std::fs;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_pipeline::headers::folders_of;
use nvabi_pipeline::spec::Spec;
use nvabi_pipeline::verify;

use crate::Outcome;
use crate::args::Fetch;
use crate::context::{Context, spec_of};

pub(crate) fn fetch(context: &Context<'_>, args: &Fetch) -> Result<Outcome, Report> {
    let specs = context.family(Some(&args.tag))?.specs;
    let spec = spec_of(&specs, &args.tag)?;
    let remote = args.remote.as_ref().or(spec.repository.as_ref()).ok_or_else(|| {
        Diagnostic::error("fetch-no-remote", format!("driver {} names no repository", spec.driver))
            .help("give --remote URL, or `repository` in the spec")
    })?;
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
    context.status("Fetching", &format!("{} from {remote}", args.tag));
    let made = clone(spec, args, remote, &beside)
        .and_then(|()| fs::rename(&beside, &target).map_err(|e| io_error(&target, &e).into()));
    if let Err(report) = made {
        // What was left half done must not be taken for headers.
        let _ = fs::remove_dir_all(&beside);
        return Err(report);
    }
    context.status("Fetched", &target.display().to_string());
    Ok(Outcome::Same)
}

fn clone(spec: &Spec, args: &Fetch, remote: &str, folder: &Path) -> Result<(), Report> {
    let tag = args.tag.as_str();
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
    clone.args(["--filter=blob:none", "--single-branch", "--no-tags", "--branch", tag, "--"]);
    run(clone.arg(remote_path(remote)).arg(folder), tag, remote)?;
    let mut sparse = git();
    sparse.arg("-C").arg(folder).args(["sparse-checkout", "set", "--"]).args(folders(spec));
    run(&mut sparse, tag, remote)?;
    let mut checkout = git();
    checkout.arg("-C").arg(folder).args([
        "-c",
        "advice.detachedHead=false",
        "checkout",
        progress,
        "--detach",
        "HEAD",
    ]);
    run(&mut checkout, tag, remote)
}

/// A local path may be shallow only when it is written as a URL.
fn remote_path(remote: &str) -> String {
    match fs::canonicalize(remote) {
        Ok(path) => format!("file://{}", path.display()),
        Err(_) => remote.to_owned(),
    }
}

fn folders(spec: &Spec) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        spec.surfaces.iter().flat_map(folders_of).map(PathBuf::from).collect();
    folders.sort();
    folders.dedup();
    folders
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
        .note("git's own words stand above")
        .help("check the tag's spelling and that the remote can be reached; --remote names another")
        .into()),
    }
}

fn io_error(path: &Path, error: &std::io::Error) -> Diagnostic {
    Diagnostic::error("fetch-unwritable", format!("cannot write {}: {error}", path.display()))
}
