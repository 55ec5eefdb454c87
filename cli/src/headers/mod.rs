//! Commands that read driver headers: libclang and libgit2 are here alone.

mod add;
mod extract;
mod fetch;
mod lock;

use std::path::PathBuf;

use nvabi_pipeline::diagnostic::Report;
use nvabi_pipeline::headers::Source;
use nvabi_pipeline::lock::{self as locks, Lock};
use nvabi_pipeline::spec::Spec;
use nvabi_pipeline::sweep::{Progress, sweep};
use nvabi_pipeline::tag::Tag;
use nvabi_pipeline::text_folder::TextFolder;
use nvabi_pipeline::verify;

pub(crate) use add::add;
pub(crate) use extract::extract;
pub(crate) use fetch::fetch;
pub(crate) use lock::{lock, verify};

use crate::context::{Context, read};

/// Where the headers are.
fn folder(context: &Context<'_>) -> Result<PathBuf, Report> {
    Ok(verify::headers_path(context.headers())?)
}

fn source(context: &Context<'_>) -> Result<Source, Report> {
    Ok(Source::open(&folder(context)?)?)
}

/// Reads tags from headers into a lock, with a progress bar.
fn read_into(
    context: &Context<'_>,
    locked: &mut Lock,
    specs: &[Spec],
    tags: &[Tag],
    doing: &'static str,
) -> Result<(), Report> {
    if tags.len() > 1 {
        keep_memory();
    }
    let bar = context.progress(tags.len());
    bar.set_message(doing);
    sweep(locked, &folder(context)?, specs, tags, |progress| match progress {
        Progress::Tag => bar.inc(1),
        Progress::Warnings(warnings) => bar.suspend(|| context.complain(warnings)),
    })?;
    bar.finish_and_clear();
    Ok(())
}

/// Lets both allocators, ours and libclang's, keep what they have: every tag needs as much as the one
/// before it, and taking pages back from the system costs a tenth of a sweep.
fn keep_memory() {
    /// mimalloc.h of versions 2 and 3; the crate has no name for it.
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
    // SAFETY: it sets a number that mimalloc reads without further assumptions; -1 is "never".
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, -1) };
    #[cfg(target_env = "gnu")]
    for (option, bytes) in [
        (libc::M_TRIM_THRESHOLD, i32::MAX),
        (libc::M_MMAP_THRESHOLD, 32 << 20),
        (libc::M_TOP_PAD, 64 << 20),
    ] {
        // SAFETY: `mallopt` takes numbers, and locks the allocator itself: it may be called at any time. glibc
        // refuses a limit that it cannot keep, and goes on without.
        unsafe { libc::mallopt(option, bytes) };
    }
}

/// The lock there is, or an empty one; one that was edited is not built upon.
fn existing(folder: &TextFolder) -> Result<Lock, Report> {
    match locks::exists(folder) {
        true => read(folder),
        false => Ok(Lock::default()),
    }
}

/// The spec of the newest branch before one: what that one inherits from.
fn branch_before<'s>(specs: &'s [Spec], branch: &str) -> Option<&'s Spec> {
    let number = |driver: &str| driver.parse::<u64>().unwrap_or(0);
    let before = specs.iter().filter(|spec| number(&spec.driver) < number(branch));
    before.max_by_key(|spec| number(&spec.driver))
}
