//! The open files of a simulated kernel, and the real files behind them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::machine::Device;
use super::memory::{Inode, Node};

/// An open file that a client has: what `struct file` is to the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FileId(u64);

/// An open file and the real file behind it.
#[derive(Debug)]
pub(crate) struct OpenFile<F> {
    pub(crate) file: F,
    pub(crate) node: Arc<Node>,
    /// What it was opened as, by a path.
    pub(crate) device: Option<Device>,
}

/// All of them; `F` is what a kernel knows of one.
#[derive(Debug)]
pub(crate) struct Files<F> {
    open: BTreeMap<FileId, OpenFile<F>>,
    inodes: HashMap<Inode, FileId>,
    last: u64,
}

impl<F> Default for Files<F> {
    fn default() -> Self {
        Self { open: BTreeMap::new(), inodes: HashMap::new(), last: 0 }
    }
}

impl<F> Files<F> {
    pub(crate) fn add(&mut self, file: F, node: Arc<Node>) -> FileId {
        self.last += 1;
        let id = FileId(self.last);
        self.inodes.insert(node.inode(), id);
        self.open.insert(id, OpenFile { file, node, device: None });
        id
    }

    pub(crate) fn remove(&mut self, id: FileId) -> Option<OpenFile<F>> {
        let open = self.open.remove(&id)?;
        self.inodes.remove(&open.node.inode());
        Some(open)
    }

    pub(crate) fn of(&self, inode: Inode) -> Option<FileId> {
        self.inodes.get(&inode).copied()
    }

    pub(crate) fn get(&self, id: FileId) -> Option<&OpenFile<F>> {
        self.open.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: FileId) -> Option<&mut OpenFile<F>> {
        self.open.get_mut(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (FileId, &OpenFile<F>)> {
        self.open.iter().map(|(id, open)| (*id, open))
    }
}
