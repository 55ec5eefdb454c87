//! Files and names as they stay wherever code is built.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// What tells the folders of CUDA's own headers and clang's from others, and what stands for them.
const TOOLKITS: [(&str, &str); 2] =
    [("crt/common_functions.h", "<cuda>"), ("__clang_cuda_runtime_wrapper.h", "<clang>")];

/// Headers of these whose functions a program calls as if they were instructions.
const WRAPPERS: [&str; 6] =
    ["__clang_", "sm_", "device_functions", "device_atomic_functions", "cuda_fp16", "cuda_bf16"];

/// What clang puts between the name of a static function or variable and the unit's own hash.
const UNIT_MARKS: [&str; 2] = ["__intern__", "__static__"];

/// A path without `.` and, where there is something before it, `..`; nothing on disk is asked.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match (part, plain.components().next_back()) {
            (Component::CurDir, _) => {}
            (Component::ParentDir, Some(Component::Normal(_))) => {
                plain.pop();
            }
            _ => plain.push(part),
        }
    }
    plain
}

/// Whether a file comes with CUDA or clang: what it does is not the program's control flow.
pub(crate) fn is_toolkit(path: &Path) -> bool {
    toolkit(path).is_some()
}

/// Whether functions of a file stand for instructions.
pub(crate) fn is_wrapper(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    WRAPPERS.iter().any(|prefix| name.starts_with(prefix)) && is_toolkit(path)
}

/// The folder of a toolkit's headers that a file lies in, and what stands for it.
fn toolkit(path: &Path) -> Option<(PathBuf, &'static str)> {
    static KNOWN: Mutex<Option<HashMap<PathBuf, Option<&str>>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    path.ancestors().skip(1).find_map(|folder| {
        let name = *known.entry(folder.to_owned()).or_insert_with(|| {
            let found = TOOLKITS.iter().find(|(file, _)| folder.join(file).is_file());
            found.map(|(_, name)| *name)
        });
        name.map(|name| (folder.to_owned(), name))
    })
}

/// A file as seen from the folder `root`, with `..` where it lies beside it; of a toolkit as seen from there;
/// where nothing of the way is common, as it is.
pub(crate) fn shown(path: &Path, root: &Path) -> String {
    if let Some((folder, name)) = toolkit(path) {
        let rest = path.strip_prefix(folder).unwrap_or(path);
        return Path::new(name).join(rest).to_string_lossy().into_owned();
    }
    let (parts, root): (Vec<_>, Vec<_>) =
        (path.components().collect(), root.components().collect());
    let common = parts.iter().zip(&root).take_while(|(a, b)| a == b).count();
    let is_start = |part: &Component<'_>| matches!(part, Component::RootDir);
    if common < root.len() && parts[..common].iter().all(is_start) {
        return path.to_string_lossy().into_owned();
    }
    let up = root[common..].iter().map(|_| Component::ParentDir);
    let relative: PathBuf = up.chain(parts[common..].iter().copied()).collect();
    relative.to_string_lossy().into_owned()
}

/// A function's name without the folders that clang names lambdas by, and without the unit's hash.
pub(crate) fn plain_name(name: &str, here: &Path, root: &Path) -> String {
    const AT: &str = " at ";
    let mut plain = String::new();
    let name = without_unit(name);
    let mut rest = name.as_str();
    while let Some(at) = rest.find(AT).map(|at| at + AT.len()) {
        let (before, place) = rest.split_at(at);
        plain.push_str(before);
        // `FILE:LINE:COLUMN)`
        let end = place.find(')').unwrap_or(place.len());
        let file = place[..end].rsplitn(3, ':').nth(2).unwrap_or_default();
        if !file.is_empty() {
            plain.push_str(&shown(&normal(&here.join(file)), root));
        }
        rest = &place[file.len()..];
    }
    plain + rest
}

/// A text in which names do not have a hash of the unit's path.
pub(crate) fn without_unit(text: &str) -> String {
    let mut plain = text.to_owned();
    for mark in UNIT_MARKS {
        let mut parts = text.split(mark);
        if !text.contains(mark) {
            continue;
        }
        let first = parts.next().unwrap_or_default().to_owned();
        plain = parts.fold(first, |plain, part| {
            plain + part.trim_start_matches(|c: char| c.is_ascii_alphanumeric())
        });
    }
    plain
}
