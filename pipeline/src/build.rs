//! What a build script calls: specs and lock in, one file of Rust in `OUT_DIR` out.
//!
//! ```no_run
//! // build.rs of a crate that keeps its specs in `abi-specs`
//! nvabi_pipeline::build::Build::new("abi-specs").run();
//! ```
//!
//! With feature `libclang` the facts can come from headers that are on the machine, without a lock:
//! see `Build::headers`.

use std::env;
use std::path::{Path, PathBuf};

use crate::diagnostic::{Diagnostic, Report};
use crate::emit::{self, Options};
use crate::files;
use crate::lock;
use crate::spec::Spec;

/// A build script's job.
#[derive(Debug, Clone)]
pub struct Build {
    specs: PathBuf,
    drivers: Option<Vec<String>>,
    family: String,
    nvabi: String,
    output: String,
    full: bool,
    zerocopy: bool,
    #[cfg(feature = "libclang")]
    verify: bool,
    #[cfg(feature = "libclang")]
    headers: Option<(PathBuf, String)>,
}

impl Build {
    /// Takes the specs of a folder, and the lock in the folder `lock` below it.
    pub fn new(specs: impl Into<PathBuf>) -> Self {
        Self {
            specs: specs.into(),
            drivers: None,
            family: String::new(),
            nvabi: "::nvabi".into(),
            output: "abi.rs".into(),
            full: false,
            zerocopy: false,
            #[cfg(feature = "libclang")]
            verify: env::var_os("CARGO_FEATURE_LIBCLANG").is_some(),
            #[cfg(feature = "libclang")]
            headers: None,
        }
    }

    /// Compares the lock with the headers before it is used. This is so where the crate that is
    /// built has a feature `libclang` and that is on.
    ///
    /// The feature of this crate does not decide it: cargo turns that on for every build script
    /// when one of them needs it.
    #[cfg(feature = "libclang")]
    pub fn verify(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }

    /// Takes the facts from the headers below a folder, as they are on this machine, instead of
    /// from a lock. `tag` is what the emitted code calls them; it begins as the `driver` of the
    /// specs does: `1.4` for `driver = "1"`.
    ///
    /// The paths in the specs start at the folder. What it includes from elsewhere is looked up in
    /// the pipeline's stand-ins for system headers, so that the facts depend on the folder alone.
    #[cfg(feature = "libclang")]
    pub fn headers(mut self, folder: impl Into<PathBuf>, tag: &str) -> Self {
        self.headers = Some((folder.into(), tag.to_owned()));
        self
    }

    /// Emits these specs only, by name (`driver-550`); without this, all.
    pub fn drivers(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.drivers = Some(names.into_iter().collect());
        self
    }

    /// Emits the specs of a family, such as `tegra`; without this, those of none.
    pub fn family(mut self, family: &str) -> Self {
        self.family = family.to_owned();
        self
    }

    /// Path of the nvabi crate in the emitted code.
    pub fn nvabi(mut self, path: &str) -> Self {
        self.nvabi = path.to_owned();
        self
    }

    /// Name of the file in `OUT_DIR`.
    pub fn output(mut self, name: &str) -> Self {
        self.output = name.to_owned();
        self
    }

    /// Emits everything that the lock has.
    pub fn full(mut self, full: bool) -> Self {
        self.full = full;
        self
    }

    /// Derives zerocopy's traits where the layout allows; the nvabi crate needs its feature
    /// `zerocopy` for that.
    pub fn zerocopy(mut self, zerocopy: bool) -> Self {
        self.zerocopy = zerocopy;
        self
    }

    /// Writes the file, or prints every complaint and exits with 1.
    pub fn run(&self) {
        println!("cargo::rerun-if-changed={}", self.specs.display());
        println!("cargo::rerun-if-env-changed=NVABI_HEADERS");
        #[cfg(feature = "libclang")]
        if let Some((folder, _)) = &self.headers {
            println!("cargo::rerun-if-changed={}", folder.display());
            println!("cargo::rerun-if-env-changed=LIBCLANG_PATH");
        }
        if let Err(report) = self.write() {
            eprintln!("{}", report.render(false));
            std::process::exit(1);
        }
    }

    fn write(&self) -> Result<(), Report> {
        let text = self.generate()?;
        let folder = env::var_os("OUT_DIR").ok_or_else(|| {
            Diagnostic::error("build-no-out-dir", "OUT_DIR is not set: this runs in a build script")
        })?;
        let target = Path::new(&folder).join(&self.output);
        files::write(&target, &text).map_err(|error| {
            Diagnostic::error(
                "build-unwritable",
                format!("cannot write {}: {error}", target.display()),
            )
        })?;
        Ok(())
    }

    /// The text of the file.
    pub fn generate(&self) -> Result<String, Report> {
        let all = Spec::load_family(&self.specs, &self.family)?;
        let known: Vec<String> = all.iter().map(|spec| spec.driver.clone()).collect();
        let enabled = |spec: &&Spec| match &self.drivers {
            Some(drivers) => drivers.contains(&spec.name),
            None => true,
        };
        let specs: Vec<&Spec> = all.iter().filter(enabled).collect();
        let folder = lock::folder(&self.specs, &self.family);
        let options = Options {
            nvabi: &self.nvabi,
            family: &self.family,
            full: self.full,
            zerocopy: self.zerocopy,
            known: &known,
        };
        if specs.is_empty() {
            return emit::emit(&lock::Lock::default(), &specs, options);
        }
        #[cfg(feature = "libclang")]
        if let Some((headers, tag)) = &self.headers {
            return emit::emit(&live(headers, tag, &specs)?, &specs, options);
        }
        #[cfg(feature = "libclang")]
        if self.verify {
            crate::verify::verify_for_build(&folder, &specs)?;
        }
        let lock = match self.full {
            true => {
                let (lock, report) = lock::read(&folder)?;
                report.into_result(lock)?.0
            }
            // With moves of lines: each branch has its own place of a struct.
            false => {
                lock::read_part(&folder, lock::Part { specs: &specs, constants: &[], lines: true })?
            }
        };
        emit::emit(&lock, &specs, options)
    }
}

/// The facts of one folder of headers, as a lock of one tag.
#[cfg(feature = "libclang")]
fn live(folder: &Path, tag: &str, specs: &[&Spec]) -> Result<lock::Lock, Report> {
    use crate::extract::Clang;
    use crate::headers::Source;
    use crate::model::Facts;
    use crate::tag::Tag;
    use crate::verify::Reader;

    let tag: Tag = tag.parse().map_err(|why| Diagnostic::error("build-tag", why))?;
    let mut source = Source::single(folder, tag.clone())?;
    let clang = Clang::load()?;
    let mut reader = Reader::new(&clang, &mut source);
    let mut facts = Facts { tag: tag.clone(), surfaces: Default::default() };
    let mut digest = String::new();
    let mut report = Report::default();
    for spec in specs {
        if tag.branch() != spec.driver {
            let message = format!("tag {tag} is not of driver {}", spec.driver);
            report.push(
                Diagnostic::error("build-tag", message)
                    .at(spec.place())
                    .help(format!("say driver = \"{}\", or choose another tag", tag.branch())),
            );
            continue;
        }
        match reader.read(spec, &tag) {
            Ok(read) => {
                facts.surfaces.extend(read.facts.surfaces);
                digest = read.headers;
                report.diagnostics.extend(read.warnings.diagnostics);
            }
            Err(errors) => report.diagnostics.extend(errors.diagnostics),
        }
    }
    let (facts, warnings) = report.into_result(facts)?;
    if !warnings.diagnostics.is_empty() {
        eprintln!("{}", warnings.render(false));
    }
    let mut lock = lock::Lock::default();
    lock.insert(&facts, digest);
    Ok(lock)
}
