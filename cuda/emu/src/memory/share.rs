//! Memory that processes share: a file without a name (memfd_create(2)), which is gone with the last process that
//! has it, however that ends.
//!
//! Memory is the process's own until it is shared: a file costs a descriptor, and a child that is forked would write
//! to its parent's memory. What is shared then moves into the file, to the same addresses.
//!
//! Other processes access it by kernels and copies of theirs. For this one they are other threads, whose kernels use
//! `access`; a copy that meets them is a race of the program's, which CUDA forbids as within one process.
//!
//! Memory may be in a file from the beginning as well: [`Memory::map`] takes any that stays as long as it is.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::{Chunk, GUARD, Mapping, Memory, Owner, Table, access, pointer};
use crate::error::DeviceError;

/// Bytes of a file that are written at once, if one of them is not zero: the rest of it takes no memory.
const PIECE: u64 = 4096;

/// Where an allocation lies in a file that other processes map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedRange {
    /// The file's descriptor in this process, which has it open as long as the allocation is there.
    pub descriptor: RawFd,
    /// The number of the file, by which a descriptor that was closed and used again is told from it.
    pub inode: u64,
    /// The allocation's first byte in the file.
    pub offset: u64,
    /// Bytes of the allocation.
    pub size: u64,
}

/// A file of zeros that nobody makes longer or shorter.
pub(super) fn file(size: u64) -> io::Result<File> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = File::from(memfd_create(c"nvabi-emu", flags)?);
    file.set_len(size)?;
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(file)
}

/// Why memory of a size cannot move into a file.
fn refused(error: &io::Error, size: u64) -> DeviceError {
    match error.raw_os_error() {
        Some(libc::EMFILE) => DeviceError::NoFileLeft,
        _ => DeviceError::OutOfMemory(size),
    }
}

/// Whether a file stays as long as it is: who maps another one may lose it on the way (SIGBUS).
fn keeps_its_length(file: &File) -> bool {
    let seals = fcntl(file, FcntlArg::F_GET_SEALS).map(SealFlag::from_bits_retain);
    seals.is_ok_and(|seals| seals.contains(SealFlag::F_SEAL_SHRINK))
}

/// Whether a file has such a part, and will have.
pub(super) fn check_file(file: &File, offset: u64, size: u64) -> Result<(), DeviceError> {
    let end = offset.checked_add(size).ok_or(DeviceError::NoFile)?;
    let length = file.metadata().map_err(|_| DeviceError::NoFile)?.len();
    match size != 0 && end <= length && keeps_its_length(file) {
        true => Ok(()),
        false => Err(DeviceError::NoFile),
    }
}

pub(super) fn page() -> u64 {
    // SAFETY: sysconf(3) takes a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(PIECE)
}

impl Mapping {
    /// Moves the memory into a file, if it is in none, with what is in it.
    ///
    /// The caller has the memory to itself: what another thread writes meanwhile is lost.
    fn share(&mut self) -> io::Result<&File> {
        if self.file.is_none() {
            let file = file(self.size)?;
            self.copy_to(&file)?;
            self.replace_by(&file)?;
            self.file = Some(file);
        }
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn copy_to(&self, file: &File) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(PIECE as usize);
        for at in (0..self.size).step_by(PIECE as usize) {
            bytes.clear();
            self.read_piece(at, PIECE.min(self.size - at), &mut bytes);
            if bytes.iter().any(|byte| *byte != 0) {
                file.write_all_at(&bytes, at)?;
            }
        }
        Ok(())
    }

    /// Bytes that another thread may write at the same time, which no slice may be of. Sizes are multiples of `ALIGN`.
    fn read_piece(&self, at: u64, size: u64, bytes: &mut Vec<u8>) {
        for at in (at..at + size).step_by(8) {
            // SAFETY: the word is inside of this mapping, which is valid.
            let word = unsafe { access::load(pointer(self.start + at), 8) };
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
    }

    fn replace_by(&self, file: &File) -> io::Result<()> {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        // SAFETY: the range is this mapping, so that no other memory changes; it has the same bytes as before.
        let bytes = unsafe {
            libc::mmap(
                pointer(self.start).cast(),
                self.size as usize,
                access,
                kind,
                file.as_raw_fd(),
                0,
            )
        };
        if bytes == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Memory {
    /// Lets other processes map the memory around an address, until it is freed.
    pub(crate) fn share(&mut self, address: u64) -> Result<(u64, SharedRange), DeviceError> {
        let table = self.table_mut_unlocked();
        let (start, end) = table.find(address).ok_or(DeviceError::NotShared(address))?;
        let size = end - start;
        let chunk = table.allocations.get(&start).and_then(|allocation| allocation.chunk);
        let chunk = chunk.and_then(|chunk| table.chunks.get_mut(&chunk));
        let chunk = chunk.filter(|chunk| chunk.owner == Owner::Device);
        let Chunk { mapping, .. } = chunk.ok_or(DeviceError::NotShared(address))?;
        let offset = start - mapping.start;
        let file = mapping.share().map_err(|error| refused(&error, size))?;
        let inode = file.metadata().map_err(|_| DeviceError::OutOfMemory(size))?.ino();
        let shared = SharedRange { descriptor: file.as_raw_fd(), inode, offset, size };
        // Others may have written any of it.
        self.mark(start, size);
        Ok((start, shared))
    }

    /// Maps part of a file that other processes map, too; its address here. It is freed as other memory is.
    pub(crate) fn map(&self, file: &File, offset: u64, size: u64) -> Result<u64, DeviceError> {
        check_file(file, offset, size)?;
        let skipped = offset % page();
        let mapping = Mapping::of_file(file, offset - skipped, skipped + size)
            .ok_or(DeviceError::OutOfMemory(size))?;
        let mut table = self.table_mut();
        let chunk = table.insert_chunk(mapping, Owner::Other);
        Ok(self.enter(&mut table, (chunk, skipped), size))
    }

    pub(super) fn table_mut_unlocked(&mut self) -> &mut Table {
        self.table.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Mapping {
    /// Part of a file, with room behind it that nothing is in.
    fn of_file(file: &File, offset: u64, size: u64) -> Option<Self> {
        let offset = libc::off_t::try_from(offset).ok()?;
        let hint = Self::hint(size + GUARD);
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: as in `Mapping::new`.
        let bytes = unsafe {
            libc::mmap(pointer(hint).cast(), size as usize, access, kind, file.as_raw_fd(), offset)
        };
        let start = bytes.expose_provenance() as u64;
        (bytes != libc::MAP_FAILED).then_some(Self { start, size, file: None })
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    #![allow(clippy::unwrap_used)] // Functions beside tests count as none.

    use super::*;

    /// The same file, as another process opens it.
    fn opened(shared: &SharedRange) -> File {
        let path = format!("/proc/self/fd/{}", shared.descriptor);
        let file = File::options().read(true).write(true).open(path).unwrap();
        assert_eq!(file.metadata().unwrap().ino(), shared.inode);
        file
    }

    fn bytes(memory: &Memory, at: u64) -> [u8; 4] {
        let mut bytes = [0; 4];
        memory.read(at, &mut bytes).unwrap();
        bytes
    }

    /// Of a chunk of several allocations, of one that has its own, and of one that ends behind a page.
    #[test]
    fn memory_is_shared_where_it_lies() {
        for (size, at) in
            [(8, 4), (super::super::CHUNK, 8192), (super::super::CHUNK + 5000, 1 << 20)]
        {
            let (mut here, mut there) = (Memory::default(), Memory::default());
            let (before, address, behind) =
                (here.alloc(8).unwrap(), here.alloc(size).unwrap(), here.alloc(8).unwrap());
            for (number, at) in [before, address + at, behind].into_iter().enumerate() {
                here.write(at, &[number as u8 + 1; 4]).unwrap();
            }
            let (start, shared) = here.share(address + 3).unwrap();
            assert_eq!((start, shared.size), (address, size));
            assert_eq!(here.share(address), Ok((start, shared)));
            assert_eq!(
                [before, address + at, behind].map(|at| bytes(&here, at)),
                [[1; 4], [2; 4], [3; 4]]
            );
            let other = there.map(&opened(&shared), shared.offset, size).unwrap();
            assert_eq!(bytes(&there, other + at), [2; 4]);
            assert!(there.read(other + size - 3, &mut [0; 4]).is_err(), "behind its end");
            there.write(other, &[7; 4]).unwrap();
            here.write(address + at, &[8; 4]).unwrap();
            assert_eq!(
                (bytes(&here, address), bytes(&there, other + at)),
                ([if at == 0 { 8 } else { 7 }; 4], [8; 4])
            );
            assert_eq!((bytes(&here, before), bytes(&here, behind)), ([1; 4], [3; 4]));
            // It outlives the one that made it, and the other way round.
            here.free(address).unwrap();
            drop(here);
            assert_eq!(bytes(&there, other), [7; 4]);
            there.free(other).unwrap();
            there.unmap_freed();
            assert!(there.read(other, &mut [0]).is_err());
        }
    }

    #[test]
    fn only_memory_of_the_device_is_shared() {
        let (mut here, mut there) = (Memory::default(), Memory::default());
        let (host, apart) = (here.alloc_host(8).unwrap(), here.alloc_apart(8).unwrap());
        let address = here.alloc(8).unwrap();
        for address in [host, apart, address + 8, 0] {
            assert_eq!(here.share(address), Err(DeviceError::NotShared(address)));
        }
        let (_, shared) = here.share(address).unwrap();
        let other = there.map(&opened(&shared), shared.offset, 8).unwrap();
        assert_eq!(there.share(other), Err(DeviceError::NotShared(other)), "it is not its own");
        // What the program writes at any time is in other pages.
        assert_ne!(host / super::super::CHUNK, address / super::super::CHUNK);
    }

    #[test]
    fn files_that_may_be_cut_are_not_mapped() {
        let memory = Memory::default();
        let own = file(4096).unwrap();
        assert!(memory.map(&own, 0, 4096).is_ok());
        for (offset, size) in [(1, 4096), (4096, 1), (u64::MAX, 2), (0, 0)] {
            assert_eq!(memory.map(&own, offset, size), Err(DeviceError::NoFile));
        }
        let program = File::open(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(memory.map(&program, 0, 16), Err(DeviceError::NoFile));
    }
}
