//! Memory as the CPU sees it: mapped once, touched between two calls that keep caches in step.
//!
//! Devices and other processes write to it at any time, and other mappings of the same memory may be in this
//! process. So it is never seen through a reference but copied by volatile accesses, as wide as the bus takes
//! them: byte by byte or by atomic exchanges, memory that is not cached would be slow, or not work at all.

use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;

use nix::libc;
use nix::sys::mman::{MRemapFlags, MapFlags, ProtFlags, mmap, mmap_anonymous, mremap, munmap};

use super::buffer::{Buffer, Piece};
use super::error::{Error, Result};
use super::uapi::{self, DmaBufSync};

impl Buffer {
    /// Maps all of it for the CPU: to read alone where its file descriptor allows no more. Files that are no dma-buf are
    /// sealed, so that nobody makes them smaller meanwhile.
    ///
    /// # Errors
    ///
    /// When its driver cannot be mapped, no addresses are left, or a file cannot be sealed.
    pub fn map(&self) -> Result<Mapping<'_>> {
        let length = usize::try_from(self.size()).ok().and_then(NonZeroUsize::new);
        let Some(length) = length else {
            return Err(Error::invalid(format!("cannot map {} bytes", self.size())));
        };
        let mapped = |protection| self.mapped(length, protection);
        let may_not =
            |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM));
        let (start, writable) = match mapped(ProtFlags::PROT_READ | ProtFlags::PROT_WRITE) {
            // The kernel's answer to who has a descriptor to read, or memory that is sealed against writing.
            Err(error) if may_not(&error) => (mapped(ProtFlags::PROT_READ), false),
            mapped => (mapped, true),
        };
        let start = start.map_err(|error| Error::call("mmap of a buffer", error))?;
        let mapping = Mapping { buffer: self, start: start.cast(), length: length.get(), writable };
        self.pieces().iter().try_for_each(Piece::stay)?;
        Ok(mapping)
    }

    /// Maps its files one behind the other.
    fn mapped(&self, length: NonZeroUsize, protection: ProtFlags) -> io::Result<NonNull<c_void>> {
        // A driver may say what has no name, such as the kernel's own ENOTSUPP.
        let failed = |_| io::Error::last_os_error();
        if let Ok(file) = self.whole() {
            // SAFETY: no address is asked for, so no memory that is in use is replaced.
            return unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, file, 0) }
                .map_err(failed);
        }
        // SAFETY: no address is asked for, so no memory that is in use is replaced.
        let room =
            unsafe { mmap_anonymous(None, length, ProtFlags::PROT_NONE, MapFlags::MAP_PRIVATE) };
        let room = room.map_err(failed)?;
        let into_room = |piece: &Piece| -> std::result::Result<(), Unmapped> {
            let size = usize::try_from(piece.size()).ok().and_then(NonZeroUsize::new);
            let start = usize::try_from(piece.start()).ok();
            let (Some(size), Some(start)) = (size, start) else { return Ok(()) };
            // Whether the file can be mapped is found out elsewhere: on older kernels (`Avoid MAP_FIXED gap exposure`)
            // one that cannot be leaves a hole in the room, where another thread may map something at once.
            // SAFETY: no address is asked for, so no memory that is in use is replaced.
            let elsewhere = unsafe { mmap(None, size, protection, MapFlags::MAP_SHARED, piece, 0) };
            let elsewhere =
                elsewhere.map_err(|_| Unmapped::Elsewhere(io::Error::last_os_error()))?;
            let flags = MRemapFlags::MREMAP_MAYMOVE | MRemapFlags::MREMAP_FIXED;
            let (size, at) = (size.get(), room.as_ptr().cast::<u8>().wrapping_add(start));
            // SAFETY: the mapping has just been made and goes to where nobody but this has one yet: in `room`, whose
            // length is the end of the last piece.
            let moved = unsafe { mremap(elsewhere, size, size, flags, NonNull::new(at.cast())) };
            moved.map(drop).map_err(|_| {
                let error = Unmapped::Moving(io::Error::last_os_error());
                // SAFETY: a mapping that could not be moved is still where it was made, and nobody has a pointer to it.
                let _ = unsafe { munmap(elsewhere, size) };
                error
            })
        };
        match self.pieces().iter().try_for_each(into_room) {
            Ok(()) => Ok(room),
            Err(Unmapped::Elsewhere(error)) => {
                // SAFETY: the range is the one that was made above, all of it this one's, and nobody has a pointer
                // to it.
                let _ = unsafe { munmap(room, length.get()) };
                Err(error)
            }
            // What is in the room now is not known: its addresses are lost.
            Err(Unmapped::Moving(error)) => Err(error),
        }
    }
}

/// Why a file of several is not in its place.
enum Unmapped {
    /// It cannot be mapped; the room is as it was.
    Elsewhere(io::Error),
    /// It can, and not there: the place may be a hole.
    Moving(io::Error),
}

/// A buffer's memory in the address space of this process, until this goes.
#[derive(Debug)]
pub struct Mapping<'b> {
    buffer: &'b Buffer,
    start: NonNull<u8>,
    length: usize,
    writable: bool,
}

// SAFETY: a mapping belongs to the process, not to the thread that made it, and `Drop` may unmap it from any.
unsafe impl Send for Mapping<'_> {}
// SAFETY: through a shared reference it can be read alone: `write` needs a unique one. Reads are volatile copies
// out of memory that is no Rust allocation, so what others write meanwhile makes bytes unpredictable and no more.
unsafe impl Sync for Mapping<'_> {}

impl Mapping<'_> {
    /// Begins to read: what devices wrote before is seen from here on. Waits for their fences.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn read(&self) -> Result<Access<'_>> {
        Access::begin(self, uapi::SYNC_READ)
    }

    /// Begins to write, and to read. What is written is seen by devices when the access has ended.
    ///
    /// Meanwhile nobody else reads or writes by this mapping:
    ///
    /// ```compile_fail,E0499
    /// fn twice(mapping: &mut nvabi_devmem::Mapping<'_>) -> nvabi_devmem::Result<()> {
    ///     let mut one = mapping.write()?;
    ///     let mut other = mapping.write()?;
    ///     one.store(0, b"one")?;
    ///     other.store(0, b"two")
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// When the file descriptor allows reading alone, and what the kernel says.
    pub fn write(&mut self) -> Result<Access<'_>> {
        if !self.writable {
            return Err(Error::invalid("the buffer's file descriptor allows reading alone"));
        }
        Access::begin(self, uapi::SYNC_READ | uapi::SYNC_WRITE)
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never: a buffer has bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl Drop for Mapping<'_> {
    fn drop(&mut self) {
        // SAFETY: the range is the one that `Buffer::map` was given by the kernel, which nobody else unmaps;
        // each `Access` borrows this mapping, and so is gone.
        let _ = unsafe { munmap(self.start.cast::<c_void>(), self.length) };
    }
}

/// The time in which the CPU touches memory: `DMA_BUF_IOCTL_SYNC` begins it and ends it.
#[derive(Debug)]
#[must_use = "an access that is dropped has ended"]
pub struct Access<'m> {
    mapping: &'m Mapping<'m>,
    /// What has begun and not ended; `None` where nothing must be told.
    open: Option<u64>,
    writes: bool,
}

impl<'m> Access<'m> {
    fn begin(mapping: &'m Mapping<'m>, flags: u64) -> Result<Self> {
        let synced = sync_all(mapping.buffer, flags)?;
        let writes = flags & uapi::SYNC_WRITE != 0;
        Ok(Self { mapping, open: synced.then_some(flags), writes })
    }

    /// Copies bytes out of the memory.
    ///
    /// # Errors
    ///
    /// When they are not all inside.
    pub fn load(&self, at: usize, bytes: &mut [u8]) -> Result<()> {
        let from = self.place(at, bytes.len())?;
        // SAFETY: `place` has checked that the bytes are all inside the mapping.
        unsafe { copy_out(from, bytes) };
        Ok(())
    }

    /// Copies bytes into the memory.
    ///
    /// # Errors
    ///
    /// When they do not all fit, and when the access is one to read.
    pub fn store(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        if !self.writes {
            return Err(Error::invalid("a buffer that is being read cannot be written"));
        }
        let to = self.place(at, bytes.len())?;
        // SAFETY: `place` has checked that the bytes are all inside the mapping.
        unsafe { copy_in(to, bytes) };
        Ok(())
    }

    /// Where the memory begins, for who copies on his own. It may change at any time, so that no
    /// reference can be made of it.
    pub fn as_ptr(&self) -> *mut u8 {
        self.mapping.start.as_ptr()
    }

    /// Ends it, as dropping does, and tells what the kernel says.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn end(mut self) -> Result<()> {
        self.finish()
    }

    fn finish(&mut self) -> Result<()> {
        match self.open.take() {
            Some(flags) => sync_all(self.mapping.buffer, flags | uapi::SYNC_END).map(drop),
            None => Ok(()),
        }
    }

    fn place(&self, at: usize, length: usize) -> Result<*mut u8> {
        let inside = at.checked_add(length).is_some_and(|end| end <= self.mapping.length);
        if !inside {
            let what = format!("{length} bytes at {at} are not in {}", self.mapping.length);
            return Err(Error::invalid(what));
        }
        // SAFETY: `at` is at most the mapping's length, so the pointer is into it or to its end.
        Ok(unsafe { self.as_ptr().add(at) })
    }
}

impl Drop for Access<'_> {
    fn drop(&mut self) {
        // Who wants to know calls `end`.
        let _ = self.finish();
    }
}

/// Begins or ends an access to all files of a buffer; `false` when none is a dma-buf. What cannot begin everywhere
/// begins nowhere.
fn sync_all(buffer: &Buffer, flags: u64) -> Result<bool> {
    let mut any = false;
    for (at, piece) in buffer.pieces().iter().enumerate() {
        match sync(piece.as_fd(), flags) {
            Ok(synced) => any |= synced,
            Err(error) => {
                let begun = if flags & uapi::SYNC_END == 0 { &buffer.pieces()[..at] } else { &[] };
                for piece in begun {
                    // What the first error was is told.
                    let _ = sync(piece.as_fd(), flags | uapi::SYNC_END);
                }
                return Err(error);
            }
        }
    }
    Ok(any)
}

/// Makes the ioctl; `false` when the file is no dma-buf, whose memory is plain pages.
fn sync(fd: BorrowedFd<'_>, flags: u64) -> Result<bool> {
    loop {
        // SAFETY: the record is a number of flags without addresses. A file that is no dma-buf rejects the request, or
        // has one of this number, which copies no more than the size in it: this record's.
        match unsafe { uapi::DMA_BUF_SYNC.call(fd, &mut DmaBufSync { flags }) } {
            Ok(_) => return Ok(true),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOTTY) => return Ok(false),
                // Linux asks to try again where a wait was cut short.
                Some(libc::EAGAIN) => {}
                _ => return Err(Error::call("DMA_BUF_IOCTL_SYNC", error)),
            },
        }
    }
}

/// What is copied at once.
const WORD: usize = size_of::<u64>();

/// Copies out of memory that may change meanwhile: then the copy has bytes of before and after.
///
/// # Safety
///
/// The bytes are all in one mapping of a file that stays as long as it is, and of no Rust allocation. Then a
/// volatile read is defined whoever writes there (`std::ptr::read_volatile`, the second of the two cases).
unsafe fn copy_out(from: *const u8, into: &mut [u8]) {
    let head = from.align_offset(WORD).min(into.len());
    let (first, rest) = into.split_at_mut(head);
    let words = rest.len() / WORD * WORD;
    let (whole, last) = rest.split_at_mut(words);
    for (to, at) in first.iter_mut().zip(0..) {
        // SAFETY: one of the bytes that the caller vouches for.
        *to = unsafe { from.wrapping_add(at).read_volatile() };
    }
    for (to, at) in whole.chunks_exact_mut(WORD).zip((head..).step_by(WORD)) {
        // SAFETY: eight of the bytes that the caller vouches for; the first is aligned, for `head` bytes come
        // before it and some words.
        let word = unsafe { from.wrapping_add(at).cast::<u64>().read_volatile() };
        to.copy_from_slice(&word.to_ne_bytes());
    }
    for (to, at) in last.iter_mut().zip(head + words..) {
        // SAFETY: one of the bytes that the caller vouches for.
        *to = unsafe { from.wrapping_add(at).read_volatile() };
    }
}

/// Copies into memory that others may look at meanwhile. No byte beside those is touched.
///
/// # Safety
///
/// As [`copy_out`], and the memory may be written.
unsafe fn copy_in(to: *mut u8, from: &[u8]) {
    let head = to.align_offset(WORD).min(from.len());
    let (first, rest) = from.split_at(head);
    let words = rest.len() / WORD * WORD;
    let (whole, last) = rest.split_at(words);
    for (from, at) in first.iter().zip(0..) {
        // SAFETY: one of the bytes that the caller vouches for.
        unsafe { to.wrapping_add(at).write_volatile(*from) };
    }
    for (from, at) in whole.chunks_exact(WORD).zip((head..).step_by(WORD)) {
        let mut word = [0; WORD];
        word.copy_from_slice(from);
        // SAFETY: eight of the bytes that the caller vouches for; the first is aligned, for `head` bytes come
        // before it and some words.
        unsafe { to.wrapping_add(at).cast::<u64>().write_volatile(u64::from_ne_bytes(word)) };
    }
    for (from, at) in last.iter().zip(head + words..) {
        // SAFETY: one of the bytes that the caller vouches for.
        unsafe { to.wrapping_add(at).write_volatile(*from) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;

    use super::*;
    use crate::ErrorKind;

    /// A memfd that can be sealed.
    fn memory(name: &str) -> File {
        use nix::sys::memfd::{MFdFlags, memfd_create};
        memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap().into()
    }

    fn seal(file: &File) {
        use nix::fcntl::{FcntlArg, SealFlag, fcntl};
        fcntl(file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
    }

    #[test]
    fn what_is_mapped_does_not_get_smaller() {
        use crate::{CapabilitySet, Description, Image, Layout, MODIFIER_LINEAR, Plane, Usage};
        let of = |file: &File| {
            file.set_len(8192).unwrap();
            let planes = vec![Plane { offset: 0, pitch: 8192, size: 8192 }];
            let description = Description {
                usage: Usage::new(Image::bytes(8192), Vec::new()),
                set: CapabilitySet::new(vec![], vec![]),
                layout: Layout { modifier: MODIFIER_LINEAR, planes, size: 8192 },
                metadata: Vec::new(),
            };
            Buffer::new(file.try_clone().unwrap().into(), description).unwrap()
        };
        let (kept, cut, plain) = (memory("kept"), memory("cut"), tempfile::tempfile().unwrap());
        let buffer = of(&kept);
        let mapping = buffer.map().unwrap();
        let refused = kept.set_len(4096).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
        mapping.read().unwrap().load(8000, &mut [0; 4]).unwrap();

        let buffer = of(&cut);
        cut.set_len(4096).unwrap();
        let refused = buffer.map().unwrap_err().to_string();
        assert_eq!(refused, "8192 bytes of memory are 4096 now");
        let refused = of(&plain).map().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Mismatch);
        assert!(refused.to_string().contains("could get smaller"), "{refused}");
        assert_eq!(ranges("memfd:cut"), 0, "nothing stays mapped");
    }

    #[test]
    fn a_descriptor_to_read_is_mapped_to_read() {
        use crate::{CapabilitySet, Description, Image, Layout, MODIFIER_LINEAR, Plane, Usage};
        let mut file = memory("read");
        file.write_all(&[7; 64]).unwrap();
        seal(&file);
        let planes = vec![Plane { offset: 0, pitch: 64, size: 64 }];
        let description = Description {
            usage: Usage::new(Image::bytes(64), Vec::new()),
            set: CapabilitySet::new(vec![], vec![]),
            layout: Layout { modifier: MODIFIER_LINEAR, planes, size: 64 },
            metadata: Vec::new(),
        };
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let open = |write| std::fs::OpenOptions::new().read(true).write(write).open(&path);
        let to_read = Buffer::new(open(false).unwrap().into(), description.clone()).unwrap();
        let mut mapping = to_read.map().unwrap();
        let mut bytes = [0; 2];
        mapping.read().unwrap().load(62, &mut bytes).unwrap();
        assert_eq!(bytes, [7, 7]);
        let refused = mapping.write().unwrap_err().to_string();
        assert_eq!(refused, "the buffer's file descriptor allows reading alone");
        let to_write = Buffer::new(open(true).unwrap().into(), description).unwrap();
        to_write.map().unwrap().write().unwrap().store(62, &[8]).unwrap();
        mapping.read().unwrap().load(62, &mut bytes).unwrap();
        assert_eq!(bytes, [8, 7]);
    }

    /// How many ranges of addresses this process has whose line has the words.
    fn ranges(words: &str) -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.contains(words)).count()
    }

    #[test]
    fn files_that_cannot_all_be_mapped_leave_nothing_behind() {
        use crate::buffer::page;
        use crate::{CapabilitySet, Description, Image, Layout, MODIFIER_LINEAR, Plane, Usage};
        let (size, page) = (3 * page(), page());
        let file = memory("nvabi-map-test");
        file.set_len(size).unwrap();
        let plane = |offset| Plane { offset, pitch: 1, size: 1 };
        let of = |last: std::fs::File| {
            let description = Description {
                usage: Usage::new(Image::bytes(1), Vec::new()),
                set: CapabilitySet::new(vec![], vec![]),
                layout: Layout {
                    modifier: MODIFIER_LINEAR,
                    planes: vec![plane(0), plane(size)],
                    size: size + page,
                },
                metadata: Vec::new(),
            };
            Buffer::in_pieces(vec![file.try_clone().unwrap().into(), last.into()], description)
        };
        let name = "nvabi-map-test";
        // It has a size, and is no memory.
        let no_memory = of(std::fs::File::open("/sys/kernel/uevent_seqnum").unwrap()).unwrap();
        no_memory.map().unwrap_err();
        assert_eq!(ranges(name), 0);
        let both = of(file.try_clone().unwrap()).unwrap();
        let mapping = both.map().unwrap();
        assert_eq!(ranges(name), 2);
        drop(mapping);
        assert_eq!(ranges(name), 0);
    }

    #[test]
    fn copies_have_what_plain_memory_has() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let length = NonZeroUsize::new(4096).unwrap();
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: no address is asked for.
        let start = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, &file, 0) };
        let start = start.unwrap().cast::<u8>().as_ptr();
        let mut model = [0_u8; 80];
        let mut next = 0_u8;
        for at in 0..40 {
            for length in 0..=40 {
                let bytes: Vec<u8> =
                    (0..length).map(|_| (next = next.wrapping_add(7), next).1).collect();
                let (mut part, mut all) = (vec![0; length], [0; 80]);
                // SAFETY: all of it is in the page, which stays mapped.
                unsafe {
                    copy_in(start.add(at), &bytes);
                    copy_out(start.add(at), &mut part);
                    copy_out(start, &mut all);
                }
                model[at..at + length].copy_from_slice(&bytes);
                assert_eq!((part, all), (bytes, model), "{length} bytes at {at}");
            }
        }
    }
}
