//! Lists of folders: simulated ones, and real ones in which simulated files are.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::target::Target;
use super::tree::{Child, open_folder};
use super::{Reply, Run};
use crate::Errno;
use crate::client::Client as _;
use crate::memory::Inode;
use nvabi_supervise::descriptor_of;

/// The most bytes of a list that are made at once; whoever has more room comes again.
const MOST: usize = 1 << 16;

/// The inode of what nobody looks at by it. Zero would be taken for a removed file.
const UNKNOWN: u64 = 1;

/// Bytes of an entry before its name: inode, offset, length, type.
const HEAD: usize = 19;

impl Run {
    /// `getdents64`; `None` when it is not about a folder with simulated files.
    pub(super) fn list(&self, target: &Target<'_>) -> Option<Reply> {
        let [fd, address, room, ..] = target.notification.args;
        let stat = target.thread.file(fd as i32)?;
        if stat.st_mode & libc::S_IFMT != libc::S_IFDIR {
            return None;
        }
        let inode = Inode::of(&stat);
        let tree = self.tree();
        let (simulated, real) = (tree.folder(inode), tree.parent(inode));
        let folder = simulated.or(real)?;
        let fd = fd as i32;
        let (file, is_own) = opening(target, fd).ok()?;
        let room = usize::try_from(room).unwrap_or(MOST).min(MOST);
        let list = match simulated {
            Some(_) => self.simulated_list(&file, folder, room),
            None => self.real_list(&file, folder, room),
        };
        let written = list.and_then(|bytes| {
            let written = target.write(address, &bytes);
            if written < bytes.len() { Err(Errno::EFAULT) } else { Ok(bytes.len() as i64) }
        });
        Some(match (written, position(&file)) {
            (Ok(length), Ok(position)) if !is_own => Reply::AnswerMoved(length, (fd, position)),
            (written, _) => Reply::Answer(written),
        })
    }

    /// Of a simulated folder: the opening counts the entries that were read.
    fn simulated_list(&self, file: &OwnedFd, folder: &Path, room: usize) -> Result<Vec<u8>, Errno> {
        let tree = self.tree();
        let names = tree
            .children(folder)
            .iter()
            .map(|child| (child.name.as_bytes(), child.kind.mode(), child.inode.number()));
        let dots = [b".".as_slice(), b".."].map(|name| (name, libc::S_IFDIR, UNKNOWN));
        let all = dots.into_iter().chain(names);
        let mut next = position(file)?;
        let mut list = Vec::new();
        for (name, mode, inode) in all.skip(usize::try_from(next).unwrap_or(usize::MAX)) {
            let entry = entry(name, mode, inode, next + 1);
            if list.len() + entry.len() > room {
                // Room for none is an error, and no end.
                if list.is_empty() {
                    return Err(Errno::EINVAL);
                }
                break;
            }
            list.extend(entry);
            next += 1;
        }
        set_position(file, next)?;
        Ok(list)
    }

    /// Of a real folder: what it has, and behind the first part of that what is simulated. A reader with room for
    /// a few entries alone does not see those.
    fn real_list(&self, file: &OwnedFd, folder: &Path, room: usize) -> Result<Vec<u8>, Errno> {
        let tree = self.tree();
        let children = tree.children(folder);
        let own: usize = children.iter().map(|child| length_of(child.name.as_bytes())).sum();
        let is_first = position(file)? == 0 && own + length_of(&[0; 255]) <= room;
        let mut bytes = vec![0; if is_first { room - own } else { room }];
        loop {
            let length = real_entries(file, &mut bytes)?;
            let mut list = without(&bytes[..length], children);
            if is_first {
                let end = position(file)?;
                list.extend(children.iter().flat_map(|child| {
                    entry(child.name.as_bytes(), child.kind.mode(), child.inode.number(), end)
                }));
            }
            if length == 0 || !list.is_empty() {
                return Ok(list);
            }
        }
    }
}

/// The caller's own opening of a folder, which knows how far it was read. Where that cannot be had, as in Docker's
/// containers without CAP_SYS_PTRACE: another one at the same place, and `false`.
fn opening(target: &Target<'_>, fd: i32) -> io::Result<(OwnedFd, bool)> {
    let process = target.process();
    if let Ok(file) = descriptor_of(process, fd) {
        return Ok((file, true));
    }
    let file = open_folder(Path::new(&format!("/proc/{process}/fd/{fd}")))?;
    let info = fs::read_to_string(format!("/proc/{process}/fdinfo/{fd}"))?;
    let position = info.lines().find_map(|line| line.strip_prefix("pos:")?.trim().parse().ok());
    let moved = set_position(&file, position.ok_or(io::ErrorKind::InvalidData)?);
    moved.map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
    Ok((file, false))
}

fn position(file: &OwnedFd) -> Result<i64, Errno> {
    seek(file, 0, libc::SEEK_CUR)
}

fn set_position(file: &OwnedFd, position: i64) -> Result<i64, Errno> {
    seek(file, position, libc::SEEK_SET)
}

fn seek(file: &OwnedFd, offset: i64, whence: i32) -> Result<i64, Errno> {
    // SAFETY: the call takes numbers alone, and `file` keeps the descriptor open meanwhile.
    match unsafe { libc::lseek(file.as_raw_fd(), offset, whence) } {
        -1 => Err(std::io::Error::last_os_error().into()),
        position => Ok(position),
    }
}

/// The next entries of a real folder; how many bytes.
fn real_entries(file: &OwnedFd, bytes: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel writes no more bytes than it is told, which is the length of the slice.
    let length = unsafe {
        libc::syscall(libc::SYS_getdents64, file.as_raw_fd(), bytes.as_mut_ptr(), bytes.len())
    };
    usize::try_from(length).map_err(|_| std::io::Error::last_os_error().into())
}

/// Entries of a real folder without those that are simulated.
fn without(bytes: &[u8], simulated: &[Child]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(length) = rest.get(16..18).map(|it| u16::from_ne_bytes([it[0], it[1]])) {
        let Some((entry, behind)) = rest.split_at_checked(usize::from(length).max(HEAD)) else {
            break;
        };
        let name = entry[HEAD..].split(|byte| *byte == 0).next().unwrap_or_default();
        if simulated.iter().all(|child| child.name.as_bytes() != name) {
            kept.extend_from_slice(entry);
        }
        rest = behind;
    }
    kept
}

/// Bytes of the entry of a name: with its zero byte, in whole words.
fn length_of(name: &[u8]) -> usize {
    (HEAD + name.len() + 1).next_multiple_of(8)
}

/// A `struct linux_dirent64`; `next` is the position behind it.
fn entry(name: &[u8], mode: u32, inode: u64, next: i64) -> Vec<u8> {
    let length = length_of(name);
    let mut bytes = Vec::with_capacity(length);
    bytes.extend(inode.to_ne_bytes());
    bytes.extend(next.to_ne_bytes());
    bytes.extend((length as u16).to_ne_bytes());
    // `DT_DIR` and its like are the bits of the mode that say the type.
    bytes.push(((mode & libc::S_IFMT) >> 12) as u8);
    bytes.extend(name);
    bytes.resize(length, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::EntryKind;

    #[test]
    fn entries_are_in_whole_words_and_left_out_by_name() {
        let names = [b"a".as_slice(), b"bcd", b"efghi", b"a-longer-name"];
        let all: Vec<u8> =
            names.iter().flat_map(|name| entry(name, libc::S_IFREG, UNKNOWN, 7)).collect();
        assert_eq!(all.len() % 8, 0);
        // SAFETY: `stat` is of integers: zeros are a value of it.
        let inode = Inode::of(&unsafe { std::mem::zeroed() });
        let child = |name: &str| Child { name: name.into(), kind: EntryKind::Folder, inode };
        let left = without(&all, &[child("bcd"), child("b")]);
        assert_eq!(left.len(), all.len() - length_of(b"bcd"));
        assert_eq!(without(&all, &[]), all);
        let none: Vec<u8> = Vec::new();
        let every: Vec<Child> =
            names.iter().map(|name| child(std::str::from_utf8(name).unwrap())).collect();
        assert_eq!(without(&all, &every), none);
        // What ends early is left out, and what says that it is shorter than it can be is no endless loop.
        assert_eq!(without(&all[..30], &[]), all[..24]);
        assert_eq!(without(&[0; 40], &[]), [0; 38]);
    }
}
