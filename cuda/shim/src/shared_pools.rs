//! Pools of memory that processes share, of the driver and of the runtime.
//!
//! Memory of a pool that is made for this lies in a file from the beginning, and the file is what the pool is exported as.
//! An allocation is a page that has its size for as long as it is there, and its bytes behind that: whoever has the file
//! finds it by its place, and learns that it was freed.
#![allow(non_snake_case)]

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::abi::{In, Out, status_of};
use crate::devices;
use crate::driver::calls;
use crate::ipc::refused;
use crate::pools::Part;
use crate::runtime::{answer, both, remembered};
use crate::state::{
    Code, INVALID_VALUE, OUT_OF_MEMORY, POOL, Result, State, handle, number, print_message, state,
};

type Handle = *mut c_void;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`, the one kind of handle that there is.
pub(crate) const DESCRIPTOR: c_int = 1;

/// A multiple of any size of pages.
const PAGE: u64 = 1 << 16;

/// The first bytes of a pool's file, and of a pointer that is exported.
const MAGIC: [u8; 8] = *b"nvabipol";

/// `CUmemPoolPtrExportData` and `cudaMemPoolPtrExportData`: 64 bytes whose meaning is the emulator's, at any alignment.
#[derive(Debug, Clone, Copy)]
#[repr(C, packed)]
struct Pointer {
    magic: [u8; 8],
    /// The number of the pool's file, and where the allocation is in it.
    inode: u64,
    at: u64,
    size: u64,
    pid: u32,
    _rest: [u8; 28],
}

const _: () = assert!(size_of::<Pointer>() == 64);

/// A file without a name that nobody makes shorter, so that nobody loses what is mapped of it.
pub(crate) fn growing(name: &CStr) -> io::Result<File> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = File::from(memfd_create(name, flags)?);
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL))?;
    Ok(file)
}

/// A file that the program has open, and keeps; none where that is no file.
pub(crate) fn borrowed(descriptor: RawFd) -> Option<File> {
    if descriptor < 0 {
        return None;
    }
    // SAFETY: the descriptor is no `-1`, and is borrowed for this call; one that is not open is refused by the system.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    Some(File::from(borrowed.try_clone_to_owned().ok()?))
}

/// A descriptor of its own for the program, which programs that it starts inherit, as CUDA's.
pub(crate) fn exported(file: &File) -> io::Result<RawFd> {
    let file = file.try_clone()?;
    fcntl(&file, FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()))?;
    Ok(file.into_raw_fd())
}

/// Eight bytes of a file, as a number.
pub(crate) fn word(file: &File, at: u64) -> Option<u64> {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, at).ok()?;
    Some(u64::from_ne_bytes(word))
}

/// The file of a pool.
#[derive(Debug)]
pub(crate) struct PoolFile(File);

impl PoolFile {
    /// Of a new pool. It has the number of the pool's device, which processes that import it read.
    pub(crate) fn new(device: usize) -> io::Result<Self> {
        let file = growing(c"nvabi-pool")?;
        file.set_len(PAGE)?;
        file.write_all_at(&MAGIC, 0)?;
        file.write_all_at(&(device as u64).to_ne_bytes(), MAGIC.len() as u64)?;
        Ok(Self(file))
    }

    /// That of another process's pool, which the caller keeps open.
    fn of(descriptor: RawFd) -> Option<Self> {
        let file = Self(borrowed(descriptor)?);
        (word(&file.0, 0)? == u64::from_ne_bytes(MAGIC)).then_some(file)
    }

    fn inode(&self) -> Option<u64> {
        self.0.metadata().ok().map(|metadata| metadata.ino())
    }

    /// Room for an allocation of so many bytes, which are zero.
    fn add(&self, size: u64) -> io::Result<u64> {
        let at = self.0.metadata()?.len();
        let end =
            size.checked_next_multiple_of(PAGE).and_then(|size| (at + PAGE).checked_add(size));
        self.0.set_len(end.ok_or(io::ErrorKind::InvalidInput)?)?;
        self.0.write_all_at(&size.to_ne_bytes(), at)?;
        Ok(at)
    }

    /// Whether an allocation is there still.
    pub(crate) fn has(&self, at: u64, size: u64) -> bool {
        word(&self.0, at) == Some(size)
    }

    /// An allocation is gone: its bytes become zeros, and take no memory.
    pub(crate) fn end(&self, at: u64, size: u64) {
        let how = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        // With the page that says its size, and all of its last one.
        let bytes = PAGE + size.next_multiple_of(PAGE);
        let _ = fallocate(&self.0, how, at as libc::off_t, bytes as libc::off_t);
    }
}

/// What messages call it.
const FILE: &str = "the file of a pool of memory";

/// What is wrong with a handle or a pointer.
fn wrong(function: &str, why: &str) -> Code {
    print_message(&format!("{function}: {why}"));
    INVALID_VALUE
}

pub(crate) fn new_file(device: usize) -> Result<Arc<PoolFile>> {
    PoolFile::new(devices::physical(device)).map(Arc::new).map_err(|error| refused(FILE, &error))
}

impl State {
    /// Memory of a pool that has a file.
    pub(crate) fn alloc_in(&mut self, pool: usize, file: Arc<PoolFile>, size: u64) -> Result<u64> {
        let (device, _) = self.pools.reach(pool)?;
        let at = file.add(size).map_err(|error| refused(FILE, &error))?;
        let mapped = self.map_part(device, &file, at, size);
        let address = mapped.inspect_err(|_| file.end(at, size))?;
        self.pools.count(pool, address, size, Some(Part { file, at, owner: None, imports: 0 }));
        Ok(address)
    }

    fn map_part(&mut self, device: usize, file: &PoolFile, at: u64, size: u64) -> Result<u64> {
        self.check()?;
        self.select(device);
        let mapped = self.device.map(&file.0, at + PAGE, size);
        self.select(devices::current());
        let address = mapped?;
        self.allocated.insert(address, size);
        Ok(address)
    }

    fn export_pool(&mut self, pool: Handle, kind: c_int, flags: c_uint) -> Result<RawFd> {
        const FUNCTION: &str = "cuMemPoolExportToShareableHandle";
        let file = self.pools.own_file(number(POOL, pool)?)?;
        if (kind, flags) != (DESCRIPTOR, 0) {
            return Err(wrong(FUNCTION, "a handle is a file descriptor, and there are no flags"));
        }
        let file = file.ok_or_else(|| wrong(FUNCTION, "the pool was not made with handles"))?;
        exported(&file.0).map_err(|error| refused(FILE, &error))
    }

    fn import_pool(&mut self, descriptor: RawFd, kind: c_int, flags: c_uint) -> Result<Handle> {
        const FUNCTION: &str = "cuMemPoolImportFromShareableHandle";
        self.check()?;
        if (kind, flags) != (DESCRIPTOR, 0) {
            return Err(wrong(FUNCTION, "a handle is a file descriptor, and there are no flags"));
        }
        let file = PoolFile::of(descriptor);
        let file = file.ok_or_else(|| wrong(FUNCTION, &format!("file {descriptor} is no pool")))?;
        let number = word(&file.0, MAGIC.len() as u64);
        let device = number.map_or_else(devices::current, devices::seen_as);
        Ok(handle(POOL, self.pools.import(device, Arc::new(file))))
    }

    fn export_pointer(&mut self, address: u64) -> Result<Pointer> {
        self.check_memory(address)?;
        let part = self.pools.own_part(address);
        let (Part { file, at, .. }, size) = part.ok_or_else(|| {
            let why = format!("{address:#x} is not where memory of a pool with handles begins");
            wrong("cuMemPoolExportPointer", &why)
        })?;
        let inode = file.inode().ok_or(OUT_OF_MEMORY)?;
        let pointer =
            Pointer { magic: MAGIC, inode, at: *at, size, pid: std::process::id(), _rest: [0; 28] };
        // Others may write it from now on.
        self.device.mark_written(address, size);
        Ok(pointer)
    }

    fn import_pointer(&mut self, pool: Handle, pointer: Pointer) -> Result<u64> {
        const FUNCTION: &str = "cuMemPoolImportPointer";
        self.check()?;
        let Pointer { magic, inode, at, size, pid, .. } = pointer;
        let pool = number(POOL, pool)?;
        let file = self.pools.imported_file(pool)?;
        let file = file.ok_or_else(|| wrong(FUNCTION, "the pool is not imported"))?;
        // Programs try several pools.
        if magic != MAGIC || file.inode() != Some(inode) {
            return Err(INVALID_VALUE);
        }
        if !file.has(at, size) {
            return Err(wrong(FUNCTION, &format!("process {pid} has freed the memory")));
        }
        if let Some(address) = self.pools.import_again(pool, at) {
            return Ok(address);
        }
        let (device, open_to) = self.pools.reach(pool)?;
        let address = self.map_part(device, &file, at, size)?;
        self.device.mark_written(address, size);
        self.device.open_to(address, open_to);
        let part = Part { file, at, owner: Some(pid), imports: 1 };
        self.pools.count(pool, address, size, Some(part));
        Ok(address)
    }
}

both! {
    cuMemPoolExportToShareableHandle cudaMemPoolExportToShareableHandle(
        out: Out<c_int>, pool: Handle, kind: c_int, flags: c_uint
    ) {
        out.put(state().export_pool(pool, kind, flags)?)
    }
    cuMemPoolImportFromShareableHandle cudaMemPoolImportFromShareableHandle(
        out: Out<Handle>, descriptor: Handle, kind: c_int, flags: c_uint
    ) {
        // A pointer in name alone.
        let descriptor = RawFd::try_from(descriptor.addr()).map_err(|_| INVALID_VALUE)?;
        out.put(state().import_pool(descriptor, kind, flags)?)
    }
    cuMemPoolExportPointer cudaMemPoolExportPointer(out: Out<Pointer>, address: u64) {
        out.put(state().export_pointer(address)?)
    }
    cuMemPoolImportPointer cudaMemPoolImportPointer(out: Out<u64>, pool: Handle, pointer: In<Pointer>) {
        let pointer = pointer.get()?;
        out.put(state().import_pointer(pool, pointer)?)
    }
}
