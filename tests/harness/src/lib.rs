//! The harness of tests that may have to say that they did not run.
//!
//! Such a test target has `harness = false` in its Cargo.toml and starts with
//!
//! ```ignore
//! #[macro_use]
//! extern crate nvabi_test;
//!
//! test_main!();
//! ```
//!
//! Its tests are functions with `#[test]`, as everywhere. One that cannot run calls [`skip`]: it is
//! shown as ignored, with the reason. Where `NVABI_REQUIRE` lists what it lacks, it fails instead.

#![forbid(unsafe_code)]

mod cuda;
mod need;
mod random;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, FormatSetting, Trial};

pub use cuda::{EMULATOR, HISTOGRAM, cuda, cuda_13, cuda_clients, cuda_if_any, libraries, nvrtc};
pub use inventory;
pub use need::{Need, REQUIRE};
pub use nvabi_test_macros::test;
pub use random::Random;

/// A function with `#[test]`.
pub struct Test {
    /// `module_path!()` of the function.
    pub module: &'static str,
    /// The function's name.
    pub name: &'static str,
    /// The function.
    pub run: fn(),
}

inventory::collect!(Test);

impl Test {
    /// The name that the standard harness would give it: the path within its crate.
    fn path(&self) -> String {
        match self.module.split_once("::") {
            Some((_, module)) => format!("{module}::{}", self.name),
            None => self.name.to_owned(),
        }
    }
}

/// A test that is made at run time: one of a table, for instance.
pub struct Case {
    name: String,
    run: Box<dyn FnOnce() + Send>,
}

impl Case {
    /// A test of this name.
    pub fn new(name: impl Into<String>, run: impl FnOnce() + Send + 'static) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// What [`skip`] unwinds with.
struct Skipped {
    reason: String,
}

/// Ends the test as ignored; or as failed where [`REQUIRE`] lists the need.
///
/// It unwinds: call it on the thread of the test, outside of `LazyLock` and locked mutexes.
#[track_caller]
#[allow(clippy::panic, reason = "a test fails by panicking")]
pub fn skip(need: Need, why: impl Display) -> ! {
    let why = why.to_string();
    let why = why.lines().next().unwrap_or_default();
    let word = need.word();
    if need::is_required(&word) {
        panic!("{REQUIRE} lists `{word}`, but {why}\n  = help: {}", need.help());
    }
    resume_unwind(Box::new(Skipped { reason: format!("{word}: {why}") }))
}

/// Ends the test as ignored unless `variable` is set: it is a process that another test starts, which sets it.
pub fn only_as_child(variable: &str) {
    if std::env::var_os(variable).is_none() {
        resume_unwind(Box::new(Skipped { reason: "child: another test runs it".to_owned() }));
    }
}

/// Whether tests that check the same of many inputs take all of them, as the workflow `weekly` has it, and not a part
/// that stands for them.
pub fn is_whole() -> bool {
    std::env::var_os("NVABI_WHOLE").is_some_and(|value| !value.is_empty())
}

/// The driver's headers: what `NVABI_HEADERS` names, or the test is skipped.
#[track_caller]
pub fn headers() -> PathBuf {
    match std::env::var_os("NVABI_HEADERS").filter(|path| !path.is_empty()) {
        Some(path) => path.into(),
        None => skip(Need::Headers, "NVABI_HEADERS names no driver headers"),
    }
}

/// Runs what a fuzz target checks (`fuzz/checks`) over the files of its corpus. A corpus of which all is read, or
/// nothing, leads to one side of the reader alone: the test fails.
#[track_caller]
#[allow(clippy::panic, reason = "a test fails by panicking")]
pub fn replay(target: &str, check: fn(&[u8]) -> bool) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = std::fs::read_dir(&folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let files = files.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let (mut read, mut refused) = (0, 0);
    for file in files {
        let path = file.path();
        let bytes =
            std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let checked = std::panic::catch_unwind(|| check(&bytes)).unwrap_or_else(|panic| {
            eprintln!("{}", path.display());
            std::panic::resume_unwind(panic)
        });
        *if checked { &mut read } else { &mut refused } += 1;
    }
    assert!(read > 0 && refused > 0, "{target}: {read} files are read, {refused} refused");
}

/// How often tests were ignored for each reason.
static IGNORED: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

/// How long tests took, where that is worth a line.
static SLOW: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// Shorter tests are not listed.
const WORTH_A_LINE: Duration = Duration::from_secs(5);

/// Runs the tests with `#[test]` and those in `cases`, as the arguments of the process ask.
pub fn run(cases: Vec<Case>) -> ExitCode {
    if let Err(unknown) = need::check() {
        eprintln!("error: {unknown}");
        return ExitCode::FAILURE;
    }
    let mut arguments = Arguments::from_args();
    let threads = || std::env::var("RUST_TEST_THREADS").ok()?.parse().ok();
    arguments.test_threads = arguments.test_threads.or_else(threads);
    let written = inventory::iter::<Test>.into_iter().map(|test| Case::new(test.path(), test.run));
    let mut trials: Vec<Trial> = written.chain(cases).map(trial).collect();
    trials.sort_by(|a, b| a.name().cmp(b.name()));
    let conclusion = libtest_mimic::run(&arguments, trials);
    if arguments.format != Some(FormatSetting::Json) {
        for (reason, count) in IGNORED.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            println!("ignored {count}, {reason}");
        }
        for (took, name) in SLOW.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            println!("took {:.1} s, {}: {name}", took.as_secs_f64(), target());
        }
    }
    conclusion.exit_code()
}

fn trial(case: Case) -> Trial {
    let name = case.name.clone();
    Trial::ignorable_test(case.name, move || {
        let start = Instant::now();
        let end = catch_unwind(AssertUnwindSafe(case.run));
        let took = start.elapsed();
        if took >= WORTH_A_LINE {
            SLOW.lock().unwrap_or_else(PoisonError::into_inner).push((took, name));
        }
        match end {
            Ok(()) => Ok(Completion::Completed),
            Err(payload) => match payload.downcast::<Skipped>() {
                Ok(skipped) => Ok(ignored(skipped.reason)),
                Err(panic) => Err(message(&*panic).into()),
            },
        }
    })
}

/// The name of this test target, as the file of the program has it before the hash.
fn target() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let stem = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    stem.rsplit_once('-').map_or(stem.clone(), |(name, _)| name.to_owned())
}

fn ignored(reason: String) -> Completion {
    let mut counts = IGNORED.lock().unwrap_or_else(PoisonError::into_inner);
    *counts.entry(reason.clone()).or_default() += 1;
    Completion::ignored_with(reason)
}

/// What a panic says.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked")
}

/// The `main` of a test target; `test_main!(cases())` adds tests that are made at run time.
#[macro_export]
macro_rules! test_main {
    () => {
        $crate::test_main!(::std::vec::Vec::new());
    };
    ($cases:expr) => {
        fn main() -> ::std::process::ExitCode {
            $crate::run($cases)
        }

        // Compiled by the standard harness alone, which would find no other test in this target.
        #[::core::prelude::v1::test]
        fn cargo_toml_lacks_harness_false() {
            panic!("Cargo.toml must say `harness = false` for this test target");
        }
    };
}
