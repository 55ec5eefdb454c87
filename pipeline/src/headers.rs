//! Driver headers, read by tag: from a git repository without a checkout, or from extracted trees.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use glob::{MatchOptions, Pattern};

use crate::diagnostic::Diagnostic;
use crate::spec::{Reference, Surface};
use crate::tag::Tag;

/// The headers that one translation unit reads, by their path in the driver's tree.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// Path to content; content is shared between tags that have the same blob.
    pub files: BTreeMap<String, Arc<File>>,
}

/// One header.
#[derive(Debug)]
pub struct File {
    /// Names the content: equal ids, equal bytes.
    pub id: String,
    /// Text; bytes that are not UTF-8 (in comments) are replaced.
    pub text: Arc<str>,
    /// Where lines end, once somebody has asked.
    newlines: OnceLock<Vec<u32>>,
    /// The names that it includes, once somebody has asked: a header is read for many tags.
    includes: OnceLock<Vec<String>>,
    /// Its `#define` lines, once somebody has asked.
    pub(crate) defines: OnceLock<Vec<Define>>,
}

/// A `#define`: bytes of its header, where its name starts, its text, and where that ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Define {
    pub(crate) name: u32,
    /// Parameters and body.
    pub(crate) text: u32,
    pub(crate) end: u32,
    pub(crate) line: u32,
    pub(crate) function_like: bool,
}

impl File {
    pub(crate) fn new(id: String, text: Arc<str>) -> Self {
        let (newlines, includes, defines) = Default::default();
        Self { id, text, newlines, includes, defines }
    }

    fn includes(&self) -> &[String] {
        self.includes.get_or_init(|| includes(&self.text).map(str::to_owned).collect())
    }

    fn newlines(&self) -> &[u32] {
        self.newlines.get_or_init(|| {
            let bytes = self.text.bytes().enumerate();
            bytes.filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at as u32).collect()
        })
    }

    /// The line, counted from 1, that a byte lies in.
    pub fn line(&self, offset: u32) -> u32 {
        self.newlines().partition_point(|newline| *newline < offset) as u32 + 1
    }

    /// The byte that a line, counted from 1, starts with.
    pub fn line_start(&self, line: u32) -> Option<u32> {
        match line.checked_sub(2) {
            None => Some(0),
            Some(before) => Some(self.newlines().get(before as usize)? + 1),
        }
    }
}

/// A tag's files, none of them read yet.
#[derive(Debug, Default)]
pub struct Listing {
    files: BTreeMap<String, FileLocation>,
}

#[derive(Debug, Clone)]
enum FileLocation {
    /// In which of the places, and by what name.
    Blob(usize, git2::Oid),
    Disk(PathBuf),
}

impl Listing {
    /// The paths that a pattern such as `src/*/inc/*.h` names; `*` does not cross a slash.
    pub fn matching<'a>(&'a self, pattern: &'a Pattern) -> impl Iterator<Item = &'a str> {
        let options = MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: false,
        };
        self.files.keys().map(String::as_str).filter(move |p| pattern.matches_with(p, options))
    }
}

/// The folder of a path or pattern up to its first wildcard.
fn folder_of(pattern: &str) -> &str {
    let literal = pattern.find(['*', '?', '[']).map_or(pattern, |at| &pattern[..at]);
    literal.rfind('/').map_or("", |at| &literal[..at])
}

/// The folders that the headers of a surface lie in.
pub fn folders_of(surface: &Surface) -> Vec<&str> {
    let patterns = surface.headers.iter().chain(&surface.calls);
    let include = surface.include.iter().map(String::as_str);
    let mut folders: Vec<&str> = patterns.map(|h| folder_of(&h.name)).chain(include).collect();
    folders.sort_unstable();
    folders.dedup();
    folders
}

/// Where headers come from: repositories, or folders of extracted trees.
pub struct Source {
    origins: Vec<Origin>,
    /// Shared with the other threads that read the same repositories.
    blobs: Blobs,
}

/// Headers by the name of their content.
pub type Blobs = Arc<Mutex<HashMap<git2::Oid, Arc<File>>>>;

/// One of the places that headers are looked for in.
struct Origin {
    path: PathBuf,
    kind: OriginKind,
}

enum OriginKind {
    Git(git2::Repository),
    /// One folder per tag; where a driver has several trees, one folder per tree in that.
    Trees,
    /// The folder itself is the tree of this one tag.
    Tree(Tag),
}

impl Source {
    /// Opens a git repository (bare or not), a folder that holds one folder per tag, or several of
    /// them, written as `PATH` is.
    pub fn open(paths: &Path) -> Result<Self, Diagnostic> {
        Self::open_with(paths, Blobs::default())
    }

    /// What was read, for other threads to share.
    pub fn blobs(&self) -> Blobs {
        self.blobs.clone()
    }

    /// Opens like `open`; what was read through `blobs` is not read again.
    pub fn open_with(paths: &Path, blobs: Blobs) -> Result<Self, Diagnostic> {
        // zlib's own checksum finds damage; hashing every header again would take longer than
        // parsing some of them.
        git2::opts::strict_hash_verification(false);
        let given = std::env::split_paths(paths).filter(|path| !path.as_os_str().is_empty());
        let origins = given.map(Origin::open).collect::<Result<_, _>>()?;
        Ok(Self { origins, blobs })
    }

    /// Takes a folder as the one tree there is, under a tag of the caller's choice: headers that
    /// a system installs do not lie in folders by version.
    pub fn single(path: &Path, tag: Tag) -> Result<Self, Diagnostic> {
        match path.is_dir() {
            true => Ok(Self {
                origins: vec![Origin { path: path.to_owned(), kind: OriginKind::Tree(tag) }],
                blobs: Blobs::default(),
            }),
            false => Err(no_folder(path)),
        }
    }

    /// Every tag there is, in version order.
    pub fn tags(&self) -> Result<Vec<Tag>, Diagnostic> {
        let mut tags = Vec::new();
        for origin in &self.origins {
            tags.extend(origin.tags()?);
        }
        tags.sort();
        tags.dedup();
        Ok(tags)
    }

    /// The files below `folders` of a tree, in every place that has it.
    ///
    /// Folders that the tree lacks are passed over: whether a header is missed is for the
    /// surface that asks for it to say.
    pub fn list(
        &self,
        reference: Reference<'_>,
        folders: &[&str],
    ) -> Result<Vec<Listing>, Diagnostic> {
        // What lies below another folder is listed with that.
        let below = |folder: &str, other: &str| {
            let rest = folder.strip_prefix(other);
            rest.is_some_and(|rest| rest.starts_with('/') || (other.is_empty() && !rest.is_empty()))
        };
        let is_top = |folder: &&&str| !folders.iter().any(|other| below(folder, other));
        let folders: Vec<&str> = folders.iter().filter(is_top).copied().collect();
        let mut listings = Vec::new();
        for (at, origin) in self.origins.iter().enumerate() {
            listings.extend(origin.list(at, reference, &folders)?);
        }
        match listings.is_empty() {
            true => Err(self.missing_tag(reference)),
            false => Ok(listings),
        }
    }

    /// Reads `headers` and what they include, as far as it lies in the listing.
    ///
    /// An include that a condition turns off is read as well: it does no harm.
    pub fn read(
        &mut self,
        listing: &Listing,
        headers: &[String],
        include: &[String],
    ) -> Result<Tree, Diagnostic> {
        let mut tree = Tree::default();
        let mut pending: Vec<String> = headers.to_vec();
        while let Some(path) = pending.pop() {
            if tree.files.contains_key(&path) {
                continue;
            }
            let Some(place) = listing.files.get(&path) else { continue };
            let file = self.file(&path, place)?;
            for name in file.includes() {
                let beside = path.rfind('/').map_or("", |at| &path[..at]);
                let candidates = std::iter::once(beside).chain(include.iter().map(String::as_str));
                let joined = candidates.filter_map(|folder| join(folder, name));
                pending.extend(joined.filter(|path| listing.files.contains_key(path)));
            }
            tree.files.insert(path, file);
        }
        Ok(tree)
    }

    /// Reads files that are no headers: what they include stays unread.
    pub fn read_alone(&mut self, listing: &Listing, paths: &[String]) -> Result<Tree, Diagnostic> {
        let mut tree = Tree::default();
        for path in paths {
            if let Some(place) = listing.files.get(path) {
                tree.files.insert(path.clone(), self.file(path, place)?);
            }
        }
        Ok(tree)
    }

    fn file(&mut self, path: &str, place: &FileLocation) -> Result<Arc<File>, Diagnostic> {
        match place {
            FileLocation::Disk(disk) => {
                let bytes = fs::read(disk).map_err(|e| unreadable(disk, &e))?;
                let id = git2::Oid::hash_object(git2::ObjectType::Blob, &bytes)
                    .map_err(|e| damaged(disk, &e))?;
                Ok(Arc::new(File::new(id.to_string(), text(&bytes))))
            }
            FileLocation::Blob(at, id) => {
                if let Some(file) = self.known().get(id) {
                    return Ok(file.clone());
                }
                let Some(Origin { path: from, kind: OriginKind::Git(repository) }) =
                    self.origins.get(*at)
                else {
                    return Err(no_blob(path));
                };
                let blob = repository
                    .find_blob(*id)
                    .map_err(|e| damaged(from, &e).note(format!("while reading {path}")))?;
                let text = text(blob.content());
                let file = Arc::new(File::new(id.to_string(), text));
                self.known().insert(*id, file.clone());
                Ok(file)
            }
        }
    }

    /// Nothing is left half done when a thread that holds these panics.
    fn known(&self) -> MutexGuard<'_, HashMap<git2::Oid, Arc<File>>> {
        self.blobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn missing_tag(&self, reference: Reference<'_>) -> Diagnostic {
        let Reference { tag, tree, name } = reference;
        let paths: Vec<String> =
            self.origins.iter().map(|o| o.path.display().to_string()).collect();
        let places = paths.join(" and ");
        let Some(tree) = tree else {
            return self.next_to(
                tag,
                Diagnostic::error("headers-no-tag", format!("there is no tag {tag} in {places}"))
                    .help(format!(
                        "`nvabi headers fetch {tag}` fetches it, when it has been published"
                    )),
            );
        };
        Diagnostic::error("headers-no-tag", format!("there is no `{name}` of {tree} in {places}"))
            .note(format!("its spec says that the headers of {tag} are there"))
            .help(format!(
                "list the repository of each tree in NVABI_HEADERS, with `:` between them, or \
                 run `nvabi headers fetch {tag}`"
            ))
    }

    /// Lists the tags that there are instead.
    fn next_to(&self, tag: &Tag, diagnostic: Diagnostic) -> Diagnostic {
        let tags = self.tags().unwrap_or_default();
        let at = tags.partition_point(|t| t < tag);
        let near: Vec<&str> =
            tags[at.saturating_sub(2)..(at + 2).min(tags.len())].iter().map(Tag::as_str).collect();
        match near.is_empty() {
            true => diagnostic.note(
                "it holds no tag at all: no git tag, no folder that is called like a version, and it is not called so \
                 itself",
            ),
            false => diagnostic.note(format!(
                "it has {} tags; next to it: {}",
                tags.len(),
                near.join(", ")
            )),
        }
    }
}

/// Complains of an extracted tree that says itself that it is of another version than its folder.
fn is_version(root: &Path, tag: &Tag) -> Result<(), Diagnostic> {
    let path = root.join("version.mk");
    let Ok(text) = fs::read_to_string(&path) else { return Ok(()) };
    let said = text
        .lines()
        .find_map(|line| line.strip_prefix("NVIDIA_VERSION")?.trim_start().strip_prefix('='));
    match said.map(str::trim) {
        Some(said) if said != tag.as_str() => {
            let message = format!("{} is {said}, not {tag}", root.display());
            let note = format!("{} has NVIDIA_VERSION = {said}", path.display());
            let help = "name the folder for the version that is in it";
            Err(Diagnostic::error("headers-version", message).note(note).help(help))
        }
        _ => Ok(()),
    }
}

impl Origin {
    fn open(path: PathBuf) -> Result<Self, Diagnostic> {
        if !path.is_dir() {
            return Err(no_folder(&path).help(
                "NVABI_HEADERS or --headers names a git repository of the driver, or a folder of extracted trees",
            ));
        }
        let flags = git2::RepositoryOpenFlags::NO_SEARCH;
        let none: [&Path; 0] = [];
        let kind = match git2::Repository::open_ext(&path, flags, none) {
            Ok(repository) => OriginKind::Git(repository),
            Err(error) if error.code() == git2::ErrorCode::NotFound => OriginKind::Trees,
            Err(error) => return Err(damaged(&path, &error)),
        };
        let mut origin = Self { path, kind };
        if matches!(origin.kind, OriginKind::Trees) && origin.folders()?.is_empty() {
            // One extracted tree is given itself, instead of the folder that it lies in.
            let behind_links = || fs::canonicalize(&origin.path).ok();
            let tag = tag_of_folder(&origin.path);
            let tag = tag.or_else(|| tag_of_folder(&behind_links()?));
            origin.kind = tag.map_or(origin.kind, OriginKind::Tree);
        }
        Ok(origin)
    }

    fn tags(&self) -> Result<Vec<Tag>, Diagnostic> {
        Ok(match &self.kind {
            OriginKind::Git(repository) => {
                let names = repository.tag_names(None).map_err(|e| damaged(&self.path, &e))?;
                names.iter().flatten().flatten().filter_map(|name| name.parse().ok()).collect()
            }
            OriginKind::Trees => self.folders()?.into_iter().map(|(tag, _)| tag).collect(),
            OriginKind::Tree(tag) => vec![tag.clone()],
        })
    }

    /// The folders of extracted trees: `TAG`, or a name that ends in `-TAG`.
    fn folders(&self) -> Result<Vec<(Tag, PathBuf)>, Diagnostic> {
        let entries = fs::read_dir(&self.path).map_err(|e| unreadable(&self.path, &e))?;
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(|e| unreadable(&self.path, &e))?.path();
            if let (Some(tag), true) = (tag_of_folder(&path), path.is_dir()) {
                found.push((tag, path));
            }
        }
        found.sort();
        Ok(found)
    }

    /// The files of a tree, when it is here.
    fn list(
        &self,
        at: usize,
        reference: Reference<'_>,
        folders: &[&str],
    ) -> Result<Option<Listing>, Diagnostic> {
        let mut listing = Listing::default();
        let root = match &self.kind {
            OriginKind::Git(repository) => {
                let Some(root) = self.git_root(repository, reference)? else { return Ok(None) };
                for folder in folders {
                    list_git(repository, at, &root, folder, &mut listing).map_err(|e| {
                        let what = format!("while listing {folder} of {}", reference.name);
                        damaged(&self.path, &e).note(what)
                    })?;
                }
                return Ok(Some(listing));
            }
            OriginKind::Trees => {
                let found = self.folders()?.into_iter().find(|(tag, _)| tag == reference.tag);
                let Some((_, root)) = found else { return Ok(None) };
                root
            }
            OriginKind::Tree(only) if only != reference.tag => return Ok(None),
            OriginKind::Tree(_) => self.path.clone(),
        };
        is_version(&root, reference.tag)?;
        let below = reference.tree.map(|tree| root.join(tree));
        let root = below.filter(|below| below.is_dir()).unwrap_or(root);
        for folder in folders {
            list_folder(&root, folder, &mut listing)?;
        }
        Ok(Some(listing))
    }

    /// The tree of a tag; of a branch too, where the spec says what a version is called.
    fn git_root<'r>(
        &self,
        repository: &'r git2::Repository,
        reference: Reference<'_>,
    ) -> Result<Option<git2::Tree<'r>>, Diagnostic> {
        let kinds: &[&str] = match reference.tree {
            Some(_) => &["tags", "heads", "remotes/origin"],
            None => &["tags"],
        };
        for kind in kinds {
            let name = format!("refs/{kind}/{}", reference.name);
            match repository.find_reference(&name).and_then(|found| found.peel_to_tree()) {
                Ok(tree) => return Ok(Some(tree)),
                Err(error)
                    if error.code() == git2::ErrorCode::NotFound
                        && error.class() == git2::ErrorClass::Reference => {}
                Err(error) => {
                    return Err(
                        damaged(&self.path, &error).note(format!("while looking up {name}"))
                    );
                }
            }
        }
        Ok(None)
    }
}

/// The tag of an extracted tree: `TAG`, or a name that ends in `-TAG`.
fn tag_of_folder(path: &Path) -> Option<Tag> {
    let name = path.file_name()?.to_str()?;
    // A whole name may look like a tag of a family called `open` or `nvidia`.
    let version = name.rsplit('-').next().and_then(|tail| tail.parse().ok());
    version.or_else(|| name.parse().ok())
}

fn list_git(
    repository: &git2::Repository,
    at: usize,
    root: &git2::Tree<'_>,
    folder: &str,
    listing: &mut Listing,
) -> Result<(), git2::Error> {
    let found = match folder {
        "" => None,
        _ => match root.get_path(Path::new(folder)) {
            Ok(entry) => Some(entry.to_object(repository)?),
            Err(error) if error.code() == git2::ErrorCode::NotFound => return Ok(()),
            Err(error) => return Err(error),
        },
    };
    let below = match &found {
        None => root,
        Some(object) => match object.as_tree() {
            Some(tree) => tree,
            None => return Ok(()),
        },
    };
    below.walk(git2::TreeWalkMode::PreOrder, |parent, entry| {
        if let (Some(git2::ObjectType::Blob), Ok(name)) = (entry.kind(), entry.name()) {
            if let Some(path) = join(folder, &format!("{parent}{name}")) {
                listing.files.insert(path, FileLocation::Blob(at, entry.id()));
            }
        }
        git2::TreeWalkResult::Ok
    })
}

fn list_folder(root: &Path, folder: &str, listing: &mut Listing) -> Result<(), Diagnostic> {
    list_below(root, &root.join(folder), &mut Vec::new(), listing)
}

/// Lists a folder; `above` are the folders that it is in, links resolved. A link back to one of
/// those adds nothing but longer names, without end.
fn list_below(
    root: &Path,
    folder: &Path,
    above: &mut Vec<PathBuf>,
    listing: &mut Listing,
) -> Result<(), Diagnostic> {
    let (Ok(entries), Ok(real)) = (fs::read_dir(folder), folder.canonicalize()) else {
        return Ok(());
    };
    if above.contains(&real) {
        return Ok(());
    }
    above.push(real);
    for entry in entries {
        let path = entry.map_err(|e| unreadable(folder, &e))?.path();
        if path.is_dir() {
            list_below(root, &path, above, listing)?;
        } else if let Some(name) = path.strip_prefix(root).ok().and_then(Path::to_str) {
            listing.files.insert(name.to_owned(), FileLocation::Disk(path));
        }
    }
    above.pop();
    Ok(())
}

/// The names in the `#include` lines of a header.
///
/// The word is looked for first: to go through every line takes a sixth of the time of a parse.
fn includes(text: &str) -> impl Iterator<Item = &str> {
    let blank = [' ', '\t'];
    text.match_indices("include").filter_map(move |(at, word)| {
        let before = text[..at].trim_end_matches(blank).strip_suffix('#')?;
        let before = before.trim_end_matches(blank);
        if !before.is_empty() && !before.ends_with('\n') {
            return None;
        }
        let rest = text[at + word.len()..].lines().next()?.trim_start();
        let close = match rest.as_bytes().first()? {
            b'"' => '"',
            b'<' => '>',
            _ => return None,
        };
        rest[1..].split(close).next()
    })
}

/// `folder/name` with `.` and `..` resolved; `None` when it leaves the tree.
fn join(folder: &str, name: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(name.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Git's name for some content, shortened; empty when git2 cannot hash, which it always can.
pub fn id_of(bytes: &[u8]) -> String {
    let id = git2::Oid::hash_object(git2::ObjectType::Blob, bytes);
    id.map_or(String::new(), |id| id.to_string()[..16].to_owned())
}

fn text(bytes: &[u8]) -> Arc<str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => String::from_utf8_lossy(bytes).into(),
    }
}

fn no_folder(path: &Path) -> Diagnostic {
    Diagnostic::error("headers-not-found", format!("there is no folder at {}", path.display()))
}

fn no_blob(path: &str) -> Diagnostic {
    let message = format!("{path} is listed in a repository, but this is a folder of trees");
    Diagnostic::error("headers-unreadable", message)
}

fn damaged(path: &Path, error: &git2::Error) -> Diagnostic {
    Diagnostic::error(
        "headers-damaged",
        format!("cannot read the repository at {}: {}", path.display(), error.message()),
    )
    .help("`git fsck` lists what is damaged; `nvabi headers fetch TAG` makes a fresh copy")
}

fn unreadable(path: &Path, error: &std::io::Error) -> Diagnostic {
    Diagnostic::error("headers-unreadable", format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_inside_the_tree_only() {
        assert_eq!(join("a/b", "../c.h").as_deref(), Some("a/c.h"));
        assert_eq!(join("", "x.h").as_deref(), Some("x.h"));
        assert_eq!(join("a", "../../etc/passwd"), None);
    }

    #[test]
    fn one_folder_is_the_tree_of_its_tag() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        fs::write(folder.path().join("a.h"), "#include \"sub/b.h\"\n#include <stdint.h>\n")
            .unwrap();
        fs::write(folder.path().join("sub/b.h"), "").unwrap();
        let tag: Tag = "1.4".parse().unwrap();
        let mut source = Source::single(folder.path(), tag.clone()).unwrap();
        assert_eq!(source.tags().unwrap(), std::slice::from_ref(&tag));
        let listing = source.list(Reference::whole(&tag), &[""]).unwrap().remove(0);
        let tree = source.read(&listing, &["a.h".to_owned()], &[]).unwrap();
        assert_eq!(tree.files.keys().collect::<Vec<_>>(), ["a.h", "sub/b.h"]);
        let other = "1.5".parse().unwrap();
        let other = source.list(Reference::whole(&other), &[""]).unwrap_err();
        assert_eq!(other.code, "headers-no-tag");
        assert!(Source::single(&folder.path().join("a.h"), tag).is_err());
    }

    #[test]
    fn a_tree_of_another_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("driver-1.4");
        fs::create_dir(&tree).unwrap();
        let tag: Tag = "1.4".parse().unwrap();
        let list = |version: &str| {
            fs::write(tree.join("version.mk"), version).unwrap();
            Source::open(folder.path()).unwrap().list(Reference::whole(&tag), &[""])
        };
        assert_eq!(list("NVIDIA_VERSION = 1.4\n").unwrap().len(), 1);
        let complaint = list("NVIDIA_VERSION = 1.3\nNVIDIA_NVID_VERSION = 1.4\n").unwrap_err();
        assert_eq!(complaint.code, "headers-version");
        assert!(complaint.message.ends_with("driver-1.4 is 1.3, not 1.4"), "{complaint:?}");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_back_to_a_folder_above_ends_there() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("x.h"), "").unwrap();
        }
        symlink(folder.path(), folder.path().join("a/up")).unwrap();
        symlink(folder.path().join("b"), folder.path().join("a/other")).unwrap();
        symlink(folder.path().join("a"), folder.path().join("b/other")).unwrap();
        let mut listing = Listing::default();
        list_folder(folder.path(), "", &mut listing).unwrap();
        let names: Vec<&str> = listing.files.keys().map(String::as_str).collect();
        // A link beside stands for what it leads to.
        assert_eq!(names, ["a/other/x.h", "a/x.h", "b/other/x.h", "b/x.h"]);
        list_folder(folder.path(), "b/other", &mut listing).unwrap();
    }

    #[test]
    fn finds_includes() {
        let text = "#include <a.h>\n #  include \"b/c.h\" // why\n#define include\n#include X\n\
                    \t#\tinclude <d.h>\r\n// #include <no.h>\nint include;\n#include <e.h";
        assert_eq!(includes(text).collect::<Vec<_>>(), ["a.h", "b/c.h", "d.h", "e.h"]);
    }

    #[test]
    fn folder_before_the_wildcard() {
        assert_eq!(folder_of("a/b/*.h"), "a/b");
        assert_eq!(folder_of("a/b/nv-*.h"), "a/b");
        assert_eq!(folder_of("a/*/x.h"), "a");
        assert_eq!(folder_of("x.h"), "");
    }
}
