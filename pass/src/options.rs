//! What is to be recorded: `kinds=branch,atomic;functions=matmul*,!sum;root=/src;rdc`.

use std::env;
use std::path::PathBuf;
use std::str::FromStr;

use nvabi_trace::abi::r2 as abi;
use wildmatch::WildMatch;

use crate::Failure;

/// Where the options stand when the plugin is loaded into clang, which hands none on.
const VARIABLE: &str = "NVABI_TRACE_PASS";

/// What a site records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Branch = abi::NVABI_TRACE_BRANCH as isize,
    SharedStore = abi::NVABI_TRACE_SHARED_STORE as isize,
    Atomic = abi::NVABI_TRACE_ATOMIC as isize,
    Entry = abi::NVABI_TRACE_ENTRY as isize,
    Exit = abi::NVABI_TRACE_EXIT as isize,
}

const KINDS: [(&str, Kind); 5] = [
    ("branch", Kind::Branch),
    ("store", Kind::SharedStore),
    ("atomic", Kind::Atomic),
    ("entry", Kind::Entry),
    ("exit", Kind::Exit),
];

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) kinds: Vec<Kind>,
    /// A function is recorded where the last that fits it does not begin with `!`.
    functions: Vec<(bool, WildMatch)>,
    /// What paths are relative to; without it, the folder of the module's main file.
    pub(crate) root: Option<PathBuf>,
    /// The module is one of several that are linked into one image.
    pub(crate) rdc: bool,
}

impl Default for Options {
    fn default() -> Self {
        let functions = vec![(true, WildMatch::new("*"))];
        Self { kinds: vec![Kind::Branch], functions, root: None, rdc: false }
    }
}

impl Options {
    pub(crate) fn from_environment() -> Result<Self, Failure> {
        match env::var(VARIABLE) {
            Ok(text) => text.parse().map_err(|error| format!("{VARIABLE}: {error}").into()),
            Err(env::VarError::NotPresent) => Ok(Self::default()),
            Err(error) => Err(format!("{VARIABLE}: {error}").into()),
        }
    }

    /// No kinds.
    pub(crate) fn nothing() -> Self {
        Self { kinds: Vec::new(), ..Self::default() }
    }

    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }

    /// Whether a function is recorded, by any of its names.
    pub(crate) fn wants(&self, names: &[&str]) -> bool {
        let fits = |glob: &WildMatch| names.iter().any(|name| glob.matches(name));
        self.functions.iter().rev().find(|(_, glob)| fits(glob)).is_some_and(|(wanted, _)| *wanted)
    }
}

impl FromStr for Options {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let mut options = Self::default();
        for option in text.split(';').map(str::trim).filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("kinds", list)) => options.kinds = kinds(list)?,
                Some(("functions", list)) => options.functions = globs(list),
                Some(("root", path)) => options.root = Some(path.into()),
                None if option == "rdc" => options.rdc = true,
                _ => return Err(format!(
                    "unknown option `{option}`; there are kinds=LIST, functions=GLOBS, root=DIR, rdc"
                )
                .into()),
            }
        }
        Ok(options)
    }
}

fn kinds(list: &str) -> Result<Vec<Kind>, Failure> {
    let mut kinds = Vec::new();
    for name in items(list) {
        match KINDS.iter().find(|(known, _)| *known == name) {
            Some((_, kind)) => kinds.push(*kind),
            None if name == "all" => kinds.extend(KINDS.map(|(_, kind)| kind)),
            None => {
                let known = KINDS.map(|(name, _)| name).join(", ");
                return Err(format!("unknown kind `{name}`; there are {known} and all").into());
            }
        }
    }
    Ok(kinds)
}

/// A list that begins with an exclusion excludes from everything.
fn globs(list: &str) -> Vec<(bool, WildMatch)> {
    let mut globs = Vec::new();
    for item in items(list) {
        let (wanted, glob) = item.strip_prefix('!').map_or((true, item), |glob| (false, glob));
        if globs.is_empty() && !wanted {
            globs.push((true, WildMatch::new("*")));
        }
        globs.push((wanted, WildMatch::new(glob)));
    }
    globs
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    // LLVM parts what it is told to run at commas.
    list.split([',', '+']).map(str::trim).filter(|item| !item.is_empty())
}
