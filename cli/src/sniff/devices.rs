//! Nodes by their numbers: a device may have other paths, as in another root.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;

use nvabi_reports::decode::sniff::Nodes;

/// Folders within each other that are looked into.
const DEPTH: u32 = 3;

/// The devices of this machine that are nodes, found when one is first asked for.
#[derive(Default)]
pub(super) struct Devices {
    known: Option<HashMap<u64, Arc<str>>>,
}

impl Devices {
    /// The node of a device; an empty name where it is of interest and no node.
    pub(super) fn node(&mut self, number: u64, nodes: &Nodes) -> Option<Arc<str>> {
        let known = self.known.get_or_insert_with(|| {
            let mut found = HashMap::new();
            find(Path::new("/dev"), DEPTH, nodes, &mut found);
            found
        });
        known.get(&number).cloned()
    }
}

/// What cannot be read has no devices for us.
fn find(folder: &Path, depth: u32, nodes: &Nodes, found: &mut HashMap<u64, Arc<str>>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
        if kind.is_dir() && depth > 0 {
            find(&path, depth - 1, nodes, found);
        } else if kind.is_char_device() {
            let node = path.to_str().and_then(|path| nodes.node_of(path));
            if let (Some(node), Ok(metadata)) = (node, entry.metadata()) {
                found.insert(metadata.rdev(), node.into());
            }
        }
    }
}
