//! A folder of text files as one piece of data, for `include_bytes!`.
//!
//! ```text
//! "nvabi-pack 1\n"
//! count                             numbers are 32 bits, little-endian
//! for each file, sorted by path:    length of the path, length of the text, length when compressed
//! the paths, then the compressed texts, one behind the other
//! ```
//! Each file is compressed by itself, with LZ4: a reader of one file decompresses nothing else, and all
//! 1,000 files of a lock take 3 ms, once.

use std::io;
use std::sync::{Arc, OnceLock};

use super::TextFolder;

const MAGIC: &[u8] = b"nvabi-pack 1\n";

/// LZ4 makes at most so many bytes of one.
const MOST: usize = 255;

/// Files that a program carries inside itself.
#[derive(Debug, Clone)]
pub struct Pack {
    /// Sorted by path.
    files: Arc<[PackedFile]>,
}

#[derive(Debug)]
struct PackedFile {
    path: &'static str,
    bytes: &'static [u8],
    length: usize,
    /// Once somebody has asked: an answer is often made of several readings.
    text: OnceLock<Arc<str>>,
}

/// Packs every file below a folder that is wanted.
pub fn pack(folder: &TextFolder, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<u8>> {
    let mut paths = folder.files()?;
    paths.retain(|path| wanted(path));
    let mut packed = MAGIC.to_vec();
    push(&mut packed, paths.len())?;
    let mut texts = Vec::new();
    for path in &paths {
        let text = folder.read(path)?;
        let bytes = lz4_flex::block::compress(text.as_bytes());
        push(&mut packed, path.len())?;
        push(&mut packed, text.len())?;
        push(&mut packed, bytes.len())?;
        texts.extend(bytes);
    }
    paths.iter().for_each(|path| packed.extend(path.as_bytes()));
    packed.extend(texts);
    Ok(packed)
}

fn push(packed: &mut Vec<u8>, number: usize) -> io::Result<()> {
    let number = u32::try_from(number).map_err(io::Error::other)?;
    packed.extend(number.to_le_bytes());
    Ok(())
}

impl Pack {
    /// Reads the list of files; their texts are read when somebody asks.
    pub fn open(packed: &'static [u8]) -> io::Result<Self> {
        Self::list(packed).ok_or_else(damaged)
    }

    fn list(packed: &'static [u8]) -> Option<Self> {
        let (count, rest) = number(packed.strip_prefix(MAGIC)?)?;
        let (mut numbers, mut paths) = rest.split_at_checked(count.checked_mul(12)?)?;
        let mut lengths = Vec::with_capacity(count);
        let mut all_paths = 0;
        while !numbers.is_empty() {
            let (path, rest) = number(numbers)?;
            let (text, rest) = number(rest)?;
            let (bytes, rest) = number(rest)?;
            lengths.push((path, text, bytes));
            all_paths += path;
            numbers = rest;
        }
        let mut texts = paths.get(all_paths..)?;
        let mut files = Vec::with_capacity(count);
        for (path, length, bytes) in lengths {
            let (path, rest) = paths.split_at_checked(path)?;
            let (bytes, behind) = texts.split_at_checked(bytes)?;
            let path = std::str::from_utf8(path).ok()?;
            files.push(PackedFile { path, bytes, length, text: OnceLock::new() });
            (paths, texts) = (rest, behind);
        }
        Some(Self { files: files.into() })
    }

    /// The files whose paths begin so, without that beginning.
    pub(super) fn below(&self, folder: &str) -> impl Iterator<Item = &'static str> {
        let first = self.files.partition_point(|file| file.path < folder);
        self.files[first..].iter().map_while(move |file| file.path.strip_prefix(folder))
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.file(path).is_some()
    }

    fn file(&self, path: &str) -> Option<&PackedFile> {
        let at = self.files.binary_search_by(|file| file.path.cmp(path)).ok()?;
        self.files.get(at)
    }

    pub(super) fn read(&self, path: &str) -> io::Result<Arc<str>> {
        let PackedFile { bytes, length, text, .. } =
            self.file(path).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        if let Some(text) = text.get() {
            return Ok(text.clone());
        }
        // No text is made of fewer bytes: a damaged length shall not ask for all memory there is.
        if *length > bytes.len().saturating_mul(MOST) {
            return Err(damaged());
        }
        let unpacked = lz4_flex::block::decompress(bytes, *length).map_err(io::Error::other)?;
        let unpacked = String::from_utf8(unpacked).map_err(|_| damaged())?;
        Ok(text.get_or_init(|| unpacked.into()).clone())
    }
}

/// A number, and what is behind it.
fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((usize::try_from(u32::from_le_bytes(*number)).ok()?, rest))
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the files packed into this program are damaged")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [(&str, &str); 4] =
        [("a.toml", "one"), ("lock/rm/x.h.lock", ""), ("lock/tags", "three\n"), ("é", "ü")];

    fn on_disk() -> (tempfile::TempDir, TextFolder) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in FILES {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let on_disk = TextFolder::from(folder.path());
        (folder, on_disk)
    }

    #[test]
    fn a_pack_reads_as_the_folder_does() {
        let (_folder, on_disk) = on_disk();
        let bytes = pack(&on_disk, |_| true).unwrap();
        let packed = TextFolder::packed(Pack::open(bytes.leak()).unwrap());
        assert_eq!(packed.files().unwrap(), FILES.map(|(path, _)| path));
        assert_eq!(packed.names().unwrap(), ["a.toml", "é"]);
        assert_eq!(packed.folders().unwrap(), ["lock"]);
        assert_eq!(packed.folders().unwrap(), on_disk.folders().unwrap());
        assert_eq!(packed.path(), None);
        for (on_disk, packed) in
            [(&on_disk, &packed), (&on_disk.join("lock"), &packed.join("lock"))]
        {
            assert_eq!(packed.files().unwrap(), on_disk.files().unwrap());
            for path in on_disk.files().unwrap() {
                assert!(packed.has(&path) && on_disk.has(&path));
                assert_eq!(packed.read(&path).unwrap(), on_disk.read(&path).unwrap());
            }
            assert!(!packed.has("none") && !on_disk.has("none"));
            assert_eq!(packed.read("none").unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        assert!(packed.join("none").files().unwrap().is_empty());
    }

    #[test]
    fn only_what_is_wanted_is_packed() {
        let (_folder, on_disk) = on_disk();
        let bytes = pack(&on_disk, |path| path.starts_with("lock/")).unwrap();
        let packed = TextFolder::packed(Pack::open(bytes.leak()).unwrap());
        assert_eq!(packed.files().unwrap(), ["lock/rm/x.h.lock", "lock/tags"]);
    }

    /// Whatever is cut off or changed is an error or other text, never a panic.
    #[test]
    fn damage_is_an_error() {
        let (_folder, on_disk) = on_disk();
        let bytes = pack(&on_disk, |_| true).unwrap();
        for length in 0..bytes.len() {
            assert!(Pack::open(bytes[..length].to_vec().leak()).is_err(), "{length}");
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x41;
            let Ok(pack) = Pack::open(bytes.leak()) else { continue };
            let paths: Vec<&str> = pack.below("").collect();
            paths.into_iter().for_each(|path| drop(pack.read(path)));
        }
    }
}
