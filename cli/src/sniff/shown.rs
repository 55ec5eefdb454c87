//! Records of the driver that a program maps and reads without a call: RM_USER_SHARED_DATA. A recording has them beside
//! the calls: as one more piece of an ioctl, where they have changed since the last one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use nvabi_reports::decode::sniff::{Ioctl, Piece, Tables};

use super::target;

/// The class, of every driver since 535.
const USER_SHARED_DATA: u64 = 0x00de;
/// Bytes of one that are kept.
const MAX_LENGTH: u64 = 1 << 16;
/// Mappings that are looked at in one call.
const MAX_MAPPINGS: usize = 8;

/// Objects, and where they are mapped.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// By client and handle.
    objects: BTreeSet<Object>,
    /// By process and descriptor, which is mapped next: the object and its length.
    files: HashMap<(u32, u64), (Object, u64)>,
    /// By process and address.
    mappings: BTreeMap<(u32, u64), Mapping>,
}

type Object = (u64, u64);

#[derive(Debug)]
struct Mapping {
    object: Object,
    length: u64,
    last: Vec<u8>,
}

/// The numbers of a call's own struct.
struct Numbers<'t, 'i> {
    tables: &'t Tables,
    ioctl: &'i Ioctl,
    bytes: &'i [u8],
}

impl Numbers<'_, '_> {
    fn get(&self, field: &str) -> Option<u64> {
        let (at, size) = self.tables.place(&self.ioctl.file.node, self.ioctl.request, field)?;
        let bytes = self.bytes.get(at..at.checked_add(size)?)?;
        Some(bytes.iter().rev().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn pair(&self, first: &str, second: &str) -> Option<(u64, u64)> {
        Some((self.get(first)?, self.get(second)?))
    }
}

impl Shown {
    /// What the program can see of them when it makes a call, where it is not what it was.
    pub(super) fn changed(
        &mut self,
        tables: &Tables,
        process: u32,
        thread: u32,
        ioctl: &Ioctl,
    ) -> Vec<Piece> {
        if self.mappings.is_empty() {
            return Vec::new();
        }
        if let Some(freed) = freed(tables, ioctl) {
            self.forget(freed);
        }
        let mut pieces = Vec::new();
        for ((_, address), mapping) in
            self.mappings.range_mut((process, 0)..=(process, u64::MAX)).take(MAX_MAPPINGS)
        {
            let bytes = target::read(thread, *address, mapping.length as usize);
            if bytes.len() == mapping.length as usize && bytes != mapping.last {
                mapping.last.clone_from(&bytes);
                pieces.push(Piece {
                    address: *address,
                    length: mapping.length,
                    before: bytes,
                    after: None,
                });
            }
        }
        pieces
    }

    /// Takes in what a call has made.
    pub(super) fn learn(&mut self, tables: &Tables, process: u32, ioctl: &Ioctl) {
        let Some(bytes) = ioctl.pieces.first().and_then(|piece| piece.after.as_deref()) else {
            return;
        };
        let numbers = Numbers { tables, ioctl, bytes };
        let made =
            (numbers.get("hClass"), numbers.get("status"), numbers.pair("hRoot", "hObjectNew"));
        if let (Some(USER_SHARED_DATA), Some(0), Some(object)) = made {
            self.objects.insert(object);
        }
        if self.objects.is_empty() {
            return;
        }
        let mapped =
            (numbers.pair("params.hClient", "params.hMemory"), numbers.get("params.status"));
        if let (Some(object), Some(0)) = mapped {
            let place = (numbers.get("fd"), numbers.get("params.length"));
            if let ((Some(fd), Some(length)), true) = (place, self.objects.contains(&object)) {
                self.files.insert((process, fd), (object, length.min(MAX_LENGTH)));
            }
        }
    }

    /// A file was mapped.
    pub(super) fn mapped(&mut self, process: u32, fd: i32, address: i64) {
        let Some((object, length)) =
            u64::try_from(fd).ok().and_then(|fd| self.files.remove(&(process, fd)))
        else {
            return;
        };
        if let Ok(address) = u64::try_from(address) {
            self.mappings.insert((process, address), Mapping { object, length, last: Vec::new() });
        }
    }

    /// A process has ended, or runs another program.
    pub(super) fn gone(&mut self, process: u32) {
        self.mappings.retain(|(own, _), _| *own != process);
        self.files.retain(|(own, _), _| *own != process);
    }

    /// An object was unmapped or freed, or its client was.
    fn forget(&mut self, (client, object): Object) {
        let is_it = |own: &Object| own.0 == client && (own.1 == object || client == object);
        self.mappings.retain(|_, mapping| !is_it(&mapping.object));
    }
}

/// The object that a call is about to unmap or free.
fn freed(tables: &Tables, ioctl: &Ioctl) -> Option<Object> {
    let bytes = &ioctl.pieces.first()?.before;
    let numbers = Numbers { tables, ioctl, bytes };
    let unmapped = || {
        numbers.get("pLinearAddress")?;
        numbers.pair("hClient", "hMemory")
    };
    numbers.pair("hRoot", "hObjectOld").or_else(unmapped)
}
