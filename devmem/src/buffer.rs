//! Memory that was allocated: a file descriptor, and what is known about it.

use std::fs::{File, Metadata};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals, fstatfs};
use serde::{Deserialize, Serialize};

use super::capability::{Capability, CapabilitySet};
use super::constraint::ConstraintName;
use super::error::{Error, ErrorKind, Result};
use super::layout::{Layout, Plane};
use super::usage::{Image, Usage};

/// Files begin at multiples of it in a buffer: 64 KiB on some machines, where nothing smaller can be mapped.
pub(crate) fn page() -> u64 {
    rustix::param::page_size() as u64
}

/// What is known about memory: all that a second process needs besides the file descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// What is to be done with it.
    pub usage: Usage,
    /// What it is like; `layout` keeps to its constraints.
    pub set: CapabilitySet,
    /// Where the pixels are.
    pub layout: Layout,
    /// What else its users tell each other, by name.
    #[serde(default)]
    pub metadata: Vec<(String, Vec<u8>)>,
}

impl Description {
    /// How many files the memory is to be in.
    pub fn files(&self) -> u64 {
        self.set.constraint(ConstraintName::FILES).unwrap_or(1).max(1)
    }

    /// Memory for one of its planes alone, of whole pages: what is asked for behind the pixels, each file has.
    pub(crate) fn of_plane(&self, plane: &Plane) -> Result<Self> {
        let wide = || Error::invalid(format!("a plane of {} bytes", plane.size));
        let behind = self.set.constraint(ConstraintName::SIZE_PADDING).unwrap_or(0);
        let size = plane.size.checked_add(behind);
        let size = size.and_then(|size| size.checked_next_multiple_of(page())).ok_or_else(wide)?;
        let image = Image::bytes(u32::try_from(size).map_err(|_| wide())?);
        let mut constraints = self.set.constraints.clone();
        constraints.retain(|asked| asked.name != ConstraintName::FILES);
        let planes = vec![Plane { offset: 0, ..*plane }];
        Ok(Self {
            usage: Usage::new(image, Vec::new()),
            set: CapabilitySet { constraints, ..self.set.clone() },
            layout: Layout { planes, size, modifier: self.layout.modifier },
            metadata: Vec::new(),
        })
    }

    /// Memory by planes of what makes memory in one file; `None` where that makes none.
    ///
    /// # Errors
    ///
    /// Its errors, and when it is to be in several files that are not one for each plane.
    pub(crate) fn made_by_planes(
        &self,
        make: impl Fn(&Self) -> Result<Option<Buffer>>,
    ) -> Result<Option<Buffer>> {
        let planes = &self.layout.planes;
        if self.files() != planes.len() as u64 {
            let what = format!("{} files for {} planes", self.files(), planes.len());
            return Err(Error::unsupported(what));
        }
        let mut fds = Vec::with_capacity(planes.len());
        for plane in planes {
            let Some(made) = make(&self.of_plane(plane)?)? else { return Ok(None) };
            fds.push(made.export()?);
        }
        Buffer::by_planes(fds, self.clone()).map(Some)
    }
}

/// What tells one piece of memory from another on this machine: device and inode of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The file system.
    pub device: u64,
    /// The file in it.
    pub inode: u64,
}

impl Identity {
    pub(crate) fn of(file: &Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino() }
    }
}

/// One file of memory: a dma-buf, or a memfd.
#[derive(Debug)]
pub struct Piece {
    fd: OwnedFd,
    start: u64,
    size: u64,
    identity: Identity,
}

impl Piece {
    /// The next file of memory: at the page behind those before it.
    pub(crate) fn behind(before: &[Self], fd: OwnedFd) -> Result<Self> {
        let end = before.last().map_or(0, Self::end);
        let start = end.checked_next_multiple_of(page());
        let start = start.ok_or_else(|| Error::invalid("memory of 2⁶⁴ bytes"))?;
        let file = File::from(fd);
        let metadata = file.metadata().map_err(|error| Error::call("fstat of a buffer", error))?;
        if metadata.is_dir() {
            return Err(Error::new(ErrorKind::Mismatch, "a folder is no memory"));
        }
        let size = size(&file, metadata.size())?;
        Ok(Self { fd: file.into(), start, size, identity: Identity::of(&metadata) })
    }

    /// Where it begins in the buffer, in bytes.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What tells it from others.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Where it ends in the buffer.
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.size)
    }

    /// Whether another one is certainly the same memory. Before Linux 5.3 all dma-bufs had one inode, of no file system
    /// of their own: those are told apart by nothing.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let has_own = |piece: &Self| {
            let kind = rustix::fs::fstat(&piece.fd)
                .map(|found| rustix::fs::FileType::from_raw_mode(found.st_mode));
            kind == Ok(rustix::fs::FileType::RegularFile)
                || fstatfs(&piece.fd).is_ok_and(|found| found.f_type == DMA_BUF_MAGIC)
        };
        self.identity == other.identity && self.size == other.size && has_own(self)
    }

    fn is_writable(&self) -> bool {
        let flags = rustix::fs::fcntl_getfl(&self.fd);
        flags.is_ok_and(|flags| flags.contains(rustix::fs::OFlags::RDWR))
    }

    /// Sees to it that the file stays as large as it was: who touches what is cut off dies of SIGBUS.
    pub(crate) fn stay(&self) -> Result<()> {
        let stays = keeps_its_size(self.as_fd());
        let asked = "asking a buffer for its file system and seals";
        if !stays.map_err(|errno| Error::call(asked, errno.into()))? {
            let what = "memory that could get smaller is not mapped: it is neither a dma-buf nor a memfd of ordinary \
                pages that this descriptor can seal";
            return Err(Error::new(ErrorKind::Mismatch, what));
        }
        let (has, had) = (size_of(self.as_fd())?, self.size);
        match has < had {
            true => {
                Err(Error::new(ErrorKind::Mismatch, format!("{had} bytes of memory are {has} now")))
            }
            false => Ok(()),
        }
    }
}

impl AsFd for Piece {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Allocated memory: one file, or several one behind the other, each of which begins at the next page. Offsets of
/// planes are from the start of the first.
#[derive(Debug)]
pub struct Buffer {
    /// One at least.
    pieces: Vec<Piece>,
    description: Description,
}

/// More files are no memory of an image.
pub(crate) const MOST_PIECES: usize = 16;

impl Buffer {
    /// Takes a file descriptor that was received or exported, when it is what the description says. That nobody makes
    /// the file smaller afterwards, [`Self::map`] sees to.
    ///
    /// # Errors
    ///
    /// When the file is smaller than the layout, a plane is outside of it, or the file cannot be asked.
    pub fn new(fd: OwnedFd, description: Description) -> Result<Self> {
        Self::in_pieces(vec![fd], description)
    }

    /// The same of memory in several files, whose planes are in one each.
    ///
    /// # Errors
    ///
    /// As [`Self::new`]; and when there is no file, or a plane is not in one alone.
    pub fn in_pieces(fds: Vec<OwnedFd>, description: Description) -> Result<Self> {
        let mut pieces: Vec<Piece> = Vec::with_capacity(fds.len());
        for fd in fds {
            pieces.push(Piece::behind(&pieces, fd)?);
        }
        Self::of_pieces(pieces, description)
    }

    /// The same of files that are behind each other already.
    pub(crate) fn of_pieces(pieces: Vec<Piece>, description: Description) -> Result<Self> {
        if pieces.is_empty() || pieces.len() > MOST_PIECES {
            return Err(Error::invalid(format!("memory in {} files", pieces.len())));
        }
        let made = Self { pieces, description };
        made.description.layout.inside().map_err(|what| Error::new(ErrorKind::Mismatch, what))?;
        let (size, wanted) = (made.size(), made.description.layout.size);
        if size < wanted {
            let what = format!("the buffer has {size} bytes, but its layout takes {wanted}");
            return Err(Error::new(ErrorKind::Mismatch, what));
        }
        let planes = 0..made.description.layout.planes.len();
        match planes.into_iter().find(|index| made.plane(*index).is_none()) {
            Some(index) => {
                let what = format!("plane {index} is not in one file of the memory");
                Err(Error::new(ErrorKind::Mismatch, what))
            }
            None => Ok(made),
        }
    }

    /// The same of memory with a file for each plane: what the description says of offsets becomes what they are.
    ///
    /// # Errors
    ///
    /// As [`Self::in_pieces`], and when there are not as many files as planes.
    pub fn by_planes(fds: Vec<OwnedFd>, mut description: Description) -> Result<Self> {
        let planes = &mut description.layout.planes;
        if fds.len() != planes.len() {
            let what = format!("{} files, and {} planes", fds.len(), planes.len());
            return Err(Error::new(ErrorKind::Mismatch, what));
        }
        let mut end = 0_u64;
        for (fd, plane) in fds.iter().zip(planes) {
            let wide = || Error::invalid("memory of 2⁶⁴ bytes");
            plane.offset = end.checked_next_multiple_of(page()).ok_or_else(wide)?;
            end = plane.offset.checked_add(size_of(fd.as_fd())?).ok_or_else(wide)?;
        }
        description.layout.size = end;
        Self::in_pieces(fds, description)
    }

    /// Memory as compositors, EGL and Vulkan hand it on: of each plane a file and where it is in that, as
    /// [`Self::export_plane`] gives them. Planes may share a file.
    ///
    /// # Errors
    ///
    /// As [`Self::in_pieces`], and when the planes have no room for the image.
    pub fn of_planes(image: Image, modifier: u64, planes: Vec<(OwnedFd, Plane)>) -> Result<Self> {
        let mismatch = |what: String| Error::new(ErrorKind::Mismatch, what);
        let mut pieces: Vec<Piece> = Vec::new();
        let mut placed = Vec::with_capacity(planes.len());
        for (index, (fd, plane)) in planes.into_iter().enumerate() {
            let piece = Piece::behind(&pieces, fd)?;
            let known = pieces.iter_mut().find(|known| known.is_same(&piece));
            let (start, size) =
                known.as_ref().map_or((piece.start, piece.size), |of| (of.start, of.size));
            if plane.offset.checked_add(plane.size).is_none_or(|end| end > size) {
                let Plane { offset, size: bytes, .. } = plane;
                let what =
                    format!("plane {index} has {bytes} bytes at {offset}, of {size} of its file");
                return Err(mismatch(what));
            }
            placed.push(Plane { offset: start + plane.offset, ..plane });
            match known {
                // Of two descriptors the one that allows more.
                Some(known) if !known.is_writable() => known.fd = piece.fd,
                Some(_) => {}
                None => pieces.push(piece),
            }
        }
        let size = pieces.last().map_or(0, Piece::end);
        let layout = Layout { modifier, planes: placed, size };
        layout.holds(&image).map_err(mismatch)?;
        let usage = Usage::new(image, Vec::new());
        let set = CapabilitySet::new([], [Capability::modifier(modifier)]);
        let description = Description { usage, set, layout, metadata: Vec::new() };
        Self::of_pieces(pieces, description)
    }

    /// As [`Self::new`], when it is also the memory that is expected.
    ///
    /// # Errors
    ///
    /// As [`Self::new`], and when it is other memory.
    pub fn identified(fd: OwnedFd, description: Description, identity: Identity) -> Result<Self> {
        Self::identified_pieces(vec![fd], description, &[identity])
    }

    /// As [`Self::in_pieces`], when it is also the memory that is expected.
    pub(crate) fn identified_pieces(
        fds: Vec<OwnedFd>,
        description: Description,
        identities: &[Identity],
    ) -> Result<Self> {
        let buffer = Self::in_pieces(fds, description)?;
        if buffer.pieces.len() != identities.len() {
            let (files, told) = (buffer.pieces.len(), identities.len());
            let what = format!("the buffer has {files} files, and {told} are expected");
            return Err(Error::new(ErrorKind::Mismatch, what));
        }
        let mut pairs = buffer.pieces.iter().map(Piece::identity).zip(identities);
        match pairs.find(|(found, expected)| found != *expected) {
            Some((found, expected)) => {
                let what = format!("the buffer is {found:?}, not {expected:?}");
                Err(Error::new(ErrorKind::Mismatch, what))
            }
            None => Ok(buffer),
        }
    }

    /// Its size in bytes, which may be more than its layout takes.
    pub fn size(&self) -> u64 {
        self.pieces.last().map_or(0, Piece::end)
    }

    /// The files that it is in, in their order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The file of a plane, and where the plane is in that file; `None` where there is no such plane.
    pub fn plane(&self, index: usize) -> Option<(&Piece, Plane)> {
        let plane = *self.description.layout.planes.get(index)?;
        let piece = self.pieces.iter().rfind(|piece| piece.start <= plane.offset)?;
        let end = plane.offset.checked_add(plane.size)?;
        let inside = Plane { offset: plane.offset - piece.start, ..plane };
        (end <= piece.end()).then_some((piece, inside))
    }

    /// The file, where it is in one.
    ///
    /// # Errors
    ///
    /// When it is in several.
    pub fn whole(&self) -> Result<BorrowedFd<'_>> {
        match self.pieces.as_slice() {
            [piece] => Ok(piece.as_fd()),
            pieces => {
                let what = format!("memory in one file is needed, not in {}", pieces.len());
                Err(Error::unsupported(what))
            }
        }
    }

    /// What tells it from others: what tells its first file.
    pub fn identity(&self) -> Identity {
        self.pieces.first().map_or(Identity { device: 0, inode: 0 }, Piece::identity)
    }

    /// The same, of which more is said: none of it about its layout.
    pub(crate) fn said(mut self, usage: Usage, set: CapabilitySet) -> Self {
        self.description = Description { usage, set, ..self.description };
        self
    }

    /// What is known about it.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// A file descriptor of its own, to hand to others, where it is in one file.
    ///
    /// # Errors
    ///
    /// When it is in several, or there are no more file descriptors.
    pub fn export(&self) -> Result<OwnedFd> {
        self.whole()?.try_clone_to_owned().map_err(|error| Error::call("dup of a buffer", error))
    }

    /// A file descriptor of a plane's file, and where the plane is in it.
    ///
    /// # Errors
    ///
    /// When there is no such plane, or there are no more file descriptors.
    pub fn export_plane(&self, index: usize) -> Result<(OwnedFd, Plane)> {
        let none = || Error::invalid(format!("there is no plane {index}"));
        let (piece, plane) = self.plane(index).ok_or_else(none)?;
        let fd = piece.fd.try_clone().map_err(|error| Error::call("dup of a buffer", error))?;
        Ok((fd, plane))
    }
}

/// The bytes of a dma-buf or a memfd.
pub(crate) fn size_of(fd: BorrowedFd<'_>) -> Result<u64> {
    let file = fd.try_clone_to_owned().map(File::from);
    let file = file.map_err(|error| Error::call("dup of a buffer", error))?;
    size(&file, 0)
}

/// A dma-buf tells its size to lseek; older kernels show 0 in fstat.
fn size(file: &File, shown: u64) -> Result<u64> {
    use std::io::{Seek, SeekFrom};
    let mut file = file;
    match file.seek(SeekFrom::End(0)) {
        Ok(size) => {
            let rewound = file.seek(SeekFrom::Start(0));
            rewound.map_err(|error| Error::io(ErrorKind::Call, "lseek of a buffer", error))?;
            Ok(size)
        }
        Err(_) if shown > 0 => Ok(shown),
        Err(error) => Err(Error::io(ErrorKind::Call, "lseek of a buffer", error)),
    }
}

/// What `statfs` says of a dma-buf (`linux/magic.h`, `DMA_BUF_MAGIC`).
const DMA_BUF_MAGIC: rustix::fs::FsWord = 0x444d_4142;

/// The same of large pages (`HUGETLBFS_MAGIC`).
const HUGETLBFS_MAGIC: rustix::fs::FsWord = 0x9584_58f6;

/// Whether memory cannot get smaller: a dma-buf, or a memfd with its seal; one without is sealed here. Of a memfd in
/// large pages, others may still take some away, and nothing comes in their place where no more are free.
pub(crate) fn keeps_its_size(fd: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    match fstatfs(fd)?.f_type {
        DMA_BUF_MAGIC => return Ok(true),
        HUGETLBFS_MAGIC => return Ok(false),
        _ => {}
    }
    // Files that are no memfd have no seals.
    let sealed = |fd| fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    Ok(sealed(fd) || (fcntl_add_seals(fd, SealFlags::SHRINK).is_ok() && sealed(fd)))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::{Constraint, Fourcc, MODIFIER_LINEAR, solve};

    #[test]
    fn a_folder_is_no_memory() {
        let (folder, image) = (tempfile::tempdir().unwrap(), Image::bytes(64));
        let plane = Plane { offset: 0, pitch: 64, size: 64 };
        let fd = File::open(folder.path()).unwrap().into();
        let refused = Buffer::of_planes(image, MODIFIER_LINEAR, vec![(fd, plane)]).unwrap_err();
        assert_eq!(refused.to_string(), "a folder is no memory");
    }

    /// As a camera asks that writes more than the pixels into each file.
    #[test]
    fn each_file_has_what_is_asked_for_behind_the_pixels() {
        let image = Image::new(64, 64, Fourcc::new(b"NV12"));
        let asked = |behind| {
            let names = [(ConstraintName::FILES, 2), (ConstraintName::SIZE_PADDING, behind)];
            let constraints = names.map(|(name, value)| Constraint::new(name, value));
            let set = CapabilitySet::new(constraints, [Capability::pitch_linear()]);
            let layout = solve(&image, &set).unwrap();
            let usage = Usage::new(image, Vec::new());
            Description { usage, set, layout, metadata: Vec::new() }
        };
        let sizes = |behind| {
            let sizes = RefCell::new(Vec::new());
            let make = |one: &Description| {
                sizes.borrow_mut().push(one.layout.size / page());
                let file = tempfile::tempfile().unwrap();
                file.set_len(one.layout.size).unwrap();
                Buffer::new(file.into(), one.clone()).map(Some)
            };
            asked(behind).made_by_planes(make).unwrap().unwrap();
            sizes.into_inner()
        };
        let pages = |bytes: u64| bytes.div_ceil(page());
        assert_eq!(sizes(0), [pages(4096), pages(2048)]);
        assert_eq!(sizes(page() * 3), [pages(4096) + 3, pages(2048) + 3]);
    }

    #[test]
    fn files_begin_at_pages_of_the_machine() {
        let files = [1, 5000, 1].map(|size| {
            let file = tempfile::tempfile().unwrap();
            file.set_len(size).unwrap();
            OwnedFd::from(file)
        });
        let image = Image::bytes(1);
        let set = CapabilitySet::new(vec![], vec![Capability::pitch_linear()]);
        let layout = solve(&image, &set).unwrap();
        let usage = Usage::new(image, Vec::new());
        let description = Description { usage, set, layout, metadata: Vec::new() };
        let buffer = Buffer::in_pieces(files.into(), description).unwrap();
        // SAFETY: it asks for a number.
        let page = unsafe { nix::libc::sysconf(nix::libc::_SC_PAGESIZE) } as u64;
        let starts: Vec<u64> = buffer.pieces().iter().map(Piece::start).collect();
        assert_eq!(starts, [0, page, page + 5000_u64.next_multiple_of(page)]);
    }

    fn file(size: u64) -> OwnedFd {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        file.into()
    }

    /// What each plane says of itself is where it is in its own file.
    #[test]
    fn planes_come_with_their_files() {
        let image = Image::new(64, 64, Fourcc::new(b"YU12"));
        let large = Plane { offset: 0, pitch: 64, size: 4096 };
        let small = |offset| Plane { offset, pitch: 32, size: 1024 };
        let offsets = |buffer: &Buffer| {
            let planes = &buffer.description().layout.planes;
            planes.iter().map(|plane| plane.offset).collect::<Vec<_>>()
        };
        // The first two share a file, of which the first is given to read alone.
        let again = file(8192);
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&again));
        let shared = OwnedFd::from(std::fs::File::open(path).unwrap());
        let planes = vec![(shared, large), (again, small(4096)), (file(4096), small(512))];
        let buffer = Buffer::of_planes(image, MODIFIER_LINEAR, planes).unwrap();
        assert_eq!((buffer.pieces().len(), offsets(&buffer)), (2, vec![0, 4096, 8192 + 512]));
        let (_, given) = buffer.export_plane(2).unwrap();
        assert_eq!(given, small(512));
        assert!(buffer.pieces()[0].is_writable());

        let refused = |planes: Vec<(OwnedFd, Plane)>| {
            Buffer::of_planes(image, MODIFIER_LINEAR, planes).unwrap_err().to_string()
        };
        // A file of its own is there to its end, whatever others have.
        let last = |plane| vec![(file(8192), large), (file(4096), small(0)), (file(4096), plane)];
        assert_eq!(
            refused(last(small(3584))),
            "plane 2 has 1024 bytes at 3584, of 4096 of its file"
        );
        assert_eq!(
            refused(last(small(u64::MAX))),
            "plane 2 has 1024 bytes at 18446744073709551615, of 4096 of its file"
        );
        assert!(refused(last(Plane { pitch: 16, ..small(0) })).contains("no room for 32 rows"));
        // The colour of an odd image is of eight rows of eight, each of which has two bytes.
        let odd = |pitch: u64, rows: u64| {
            let image = Image::new(15, 15, Fourcc::new(b"NV12"));
            let colour = Plane { offset: 0, pitch, size: pitch * rows };
            let planes =
                vec![(file(4096), Plane { pitch: 15, size: 225, offset: 0 }), (file(4096), colour)];
            Buffer::of_planes(image, MODIFIER_LINEAR, planes).map_err(|error| error.to_string())
        };
        assert!(odd(16, 8).is_ok());
        assert!(odd(16, 7).unwrap_err().contains("no room for 8 rows of 16 bytes"));
        assert!(odd(14, 8).unwrap_err().contains("no room for 8 rows of 16 bytes"));
        assert_eq!(
            refused(
                last(small(0))[..2]
                    .iter()
                    .map(|(fd, plane)| (fd.try_clone().unwrap(), *plane))
                    .collect()
            ),
            "2 planes, where YU12 has 3"
        );
        assert!(refused(Vec::new()).contains("0 planes"));
    }
}
