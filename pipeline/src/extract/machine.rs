//! Which parts of the headers the machine takes part in.
//!
//! A driver is parsed once for each machine, and mostly finds the same. What may differ hangs on
//! the macros that clang predefines otherwise for one machine than for another: conditions that
//! name them, what is defined under such conditions, and what uses that in turn. Where those parts
//! of two tags are the same text in the same place, so is what the machines disagree on.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use super::lexer;
use crate::headers::Tree;
use crate::model::Surface;

/// The identifiers of each header, hashed and sorted: tells quickly which headers name something.
#[derive(Default)]
pub(super) struct Words(FxHashMap<String, Arc<[u64]>>);

impl Words {
    fn of(&mut self, id: &str, text: &str) -> Arc<[u64]> {
        if let Some(words) = self.0.get(id) {
            return words.clone();
        }
        let mut words: Vec<u64> = lexer::identifiers(text).map(hashed).collect();
        words.sort_unstable();
        words.dedup();
        let words: Arc<[u64]> = words.into();
        self.0.insert(id.to_owned(), words.clone());
        words
    }
}

fn hashed(word: &str) -> u64 {
    let mut hasher = FxHasher::default();
    word.hash(&mut hasher);
    hasher.finish()
}

/// The parts of some headers that the machine takes part in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts {
    /// Names their text and places.
    pub(super) key: u64,
    /// The macros that may be another on another machine.
    names: FxHashSet<String>,
}

impl Parts {
    /// Whether what two machines disagree on follows from these parts alone: macros that are among
    /// them. A type that differs may be used anywhere.
    pub(super) fn explain(&self, differs: &Surface) -> bool {
        let Surface { records, aliases, enums, constants, bit_ranges, calls } = differs;
        records.is_empty()
            && aliases.is_empty()
            && enums.is_empty()
            && calls.is_empty()
            && constants.keys().chain(bit_ranges.keys()).all(|name| self.names.contains(name))
    }
}

/// Path, text and words of each header.
pub(super) type Index<'t> = Vec<(&'t str, &'t str, Arc<[u64]>)>;

pub(super) fn index<'t>(tree: &'t Tree, words: &mut Words) -> Index<'t> {
    (tree.files.iter())
        .map(|(path, file)| (path.as_str(), &*file.text, words.of(&file.id, &file.text)))
        .collect()
}

/// Finds the parts that `predefined` takes part in: names that clang defines otherwise for another
/// machine. `None` when single lines do not say.
pub(super) fn parts(index: &Index<'_>, predefined: &FxHashSet<String>) -> Option<Parts> {
    let mut names = predefined.clone();
    let mut new: Vec<String> = names.iter().cloned().collect();
    let mut touched: BTreeMap<&str, &str> = BTreeMap::new();
    while !new.is_empty() {
        let wanted: Vec<u64> = new.iter().map(|name| hashed(name)).collect();
        for (path, text, words) in index {
            if wanted.iter().any(|word| words.binary_search(word).is_ok()) {
                touched.insert(path, text);
            }
        }
        new.clear();
        for text in touched.values() {
            for part in scan(text, &names)? {
                if let Some(name) = part.defines.filter(|name| !names.contains(*name)) {
                    names.insert(name.to_owned());
                    new.push(name.to_owned());
                }
            }
        }
    }
    let mut hasher = DefaultHasher::new();
    let mut explained = FxHashSet::default();
    for (path, text) in &touched {
        for part in scan(text, &names)? {
            (path, part.line, part.text).hash(&mut hasher);
            explained.extend(part.defines.filter(|_| !part.uses_others).map(str::to_owned));
        }
    }
    Some(Parts { key: hasher.finish(), names: explained })
}

/// A line that the machine takes part in.
struct Part<'t> {
    /// The macro that it defines or undefines.
    defines: Option<&'t str>,
    /// Whether that uses macros that the machine takes no part in, and whose text is not part of
    /// the key therefore.
    uses_others: bool,
    text: &'t str,
    /// For a definition, whose place is a fact.
    line: u32,
}

/// The lines of a header that hang on one of the names; `None` when an include does.
fn scan<'t>(text: &'t str, names: &FxHashSet<String>) -> Option<Vec<Part<'t>>> {
    let mut parts = Vec::new();
    // Whether each open condition hangs on one of the names.
    let mut open: Vec<bool> = Vec::new();
    for (line, text) in lexer::lines(text) {
        let names_one = lexer::identifiers(text).any(|word| names.contains(word));
        let inside = open.contains(&true);
        let mut part = Part { defines: None, uses_others: false, text, line: 0 };
        let (directive, rest) = lexer::split_directive(text).unwrap_or_default();
        match directive {
            "if" | "ifdef" | "ifndef" => open.push(names_one),
            "elif" => {
                if let Some(last) = open.last_mut() {
                    *last |= names_one;
                }
            }
            "endif" => drop(open.pop()),
            "include" if inside => return None,
            "define" if inside || names_one => {
                let (name, body) = rest.split_at(lexer::identifier(rest));
                part.uses_others = lexer::identifiers(body).any(|word| !names.contains(word));
                (part.defines, part.line) = (Some(name), line);
            }
            "undef" if inside => part.defines = Some(&rest[..lexer::identifier(rest)]),
            _ => {}
        }
        if inside || names_one || open.contains(&true) {
            parts.push(part);
        }
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Constant, Source};

    fn of(text: &str) -> Option<Parts> {
        let file = Arc::new(crate::headers::File::new(text.to_owned(), text.into()));
        let tree = Tree { files: BTreeMap::from([("a.h".to_owned(), file)]) };
        let predefined = FxHashSet::from_iter(["__arm__".to_owned()]);
        parts(&index(&tree, &mut Words::default()), &predefined)
    }

    fn explains(parts: &Parts, name: &str) -> bool {
        let mut surface = Surface::default();
        let source = Source { path: "a.h".into(), line: 1 };
        surface.constants.insert(name.to_owned(), Constant { value: 1, source });
        parts.explain(&surface)
    }

    const HEADER: &str = "#ifndef A_H\n#define A_H\n#if defined(__arm__)\n#define IS_ARM 1\n#else\n\
        #define IS_ARM 0\n#endif\n#define PAGE (IS_ARM << 2)\n#define OTHER 5\n\
        #define MIXED (IS_ARM + OTHER)\nstruct s { int x; };\n#endif\n";

    #[test]
    fn follows_definitions_and_conditions() {
        let parts = of(HEADER).unwrap();
        let names = ["IS_ARM", "PAGE", "OTHER", "MIXED", "A_H"].map(|name| explains(&parts, name));
        assert_eq!(names, [true, true, false, false, false]);
    }

    #[test]
    fn key_covers_what_takes_part_and_nothing_else() {
        let key = of(HEADER).unwrap().key;
        for (from, to, same) in [
            ("struct s { int x; };", "struct s { long x; };", true),
            ("#define OTHER 5", "#define OTHER 6", true),
            ("IS_ARM 1", "IS_ARM 2", false),
            ("IS_ARM << 2", "IS_ARM << 3", false),
            ("#define A_H\n", "#define A_H\n\n", false),
            ("int x;", "int x[PAGE];", false),
            ("defined(__arm__)", "defined(__arm__) && X", false),
        ] {
            assert!(HEADER.contains(from), "{from}");
            let changed = of(&HEADER.replace(from, to)).unwrap().key;
            assert_eq!(changed == key, same, "{to}");
        }
    }

    #[test]
    fn an_include_cannot_be_followed() {
        assert!(of("#ifdef __arm__\n#include \"b.h\"\n#endif\n").is_none());
        assert!(of("/* #ifdef __arm__\n*/\n#include \"b.h\"\n").is_some());
    }
}
