//! Timelines of points that devices reach one after the other: DRM's sync objects, which Vulkan calls timeline
//! semaphores. A fence of a dma-buf becomes a point, and a point a fence.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use drm::control::{Device as _, syncobj};
use drm::{Device as _, DriverCapability};
use nix::libc;

use super::error::{Error, ErrorKind, Result};
use super::uapi::{self, DrmSyncobjHandle};

/// A timeline: a number that only grows, as devices finish their work.
#[derive(Debug)]
pub struct Timeline {
    node: Node,
    object: syncobj::Handle,
}

#[derive(Debug)]
struct Node(File);

impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
impl drm::Device for Node {}
impl drm::control::Device for Node {}

impl Node {
    /// A sync object that goes when this does.
    fn binary(&self) -> Result<Binary<'_>> {
        let object = self.create_syncobj(false);
        let object = object.map_err(|error| Error::call("DRM_IOCTL_SYNCOBJ_CREATE", error))?;
        Ok(Binary { node: self, object })
    }
}

/// A sync object of one fence, on the way between a sync file and a point.
struct Binary<'n> {
    node: &'n Node,
    object: syncobj::Handle,
}

impl Drop for Binary<'_> {
    fn drop(&mut self) {
        // Nobody is there to hear of it.
        let _ = self.node.destroy_syncobj(self.object);
    }
}

impl Timeline {
    /// A new timeline at 0, of the driver of this node (`/dev/dri/…`).
    ///
    /// # Errors
    ///
    /// When the node cannot be opened, or its driver has no timelines.
    pub fn new(node: &Path) -> Result<Self> {
        Self::of(node, |node| node.create_syncobj(false))
    }

    /// The timeline that [`Self::export`] gave, on the same driver or another one.
    ///
    /// # Errors
    ///
    /// As [`Self::new`], and when the file is no timeline.
    pub fn import(node: &Path, timeline: BorrowedFd<'_>) -> Result<Self> {
        Self::of(node, |node| node.fd_to_syncobj(timeline, false))
    }

    fn of(path: &Path, make: impl Fn(&Node) -> io::Result<syncobj::Handle>) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let unopened =
            |error| Error::io(ErrorKind::Open, format!("cannot open {}", path.display()), error);
        let node = Node(file.map_err(unopened)?);
        // Who opens a card first becomes its master, which is the display server's to be.
        let _ = node.release_master_lock();
        if node.get_driver_capability(DriverCapability::TimelineSyncObj).unwrap_or(0) == 0 {
            return Err(Error::unsupported(format!("{} has no timelines", path.display())));
        }
        let object = make(&node).map_err(|error| Error::call("a timeline of DRM", error))?;
        Ok(Self { node, object })
    }

    /// The file of the timeline, to hand to another process or library.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn export(&self) -> Result<OwnedFd> {
        let exported = self.node.syncobj_to_fd(self.object, false);
        exported.map_err(|error| Error::call("DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD", error))
    }

    /// The last point that was reached.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn reached(&self) -> Result<u64> {
        let mut points = [0];
        let asked = self.node.syncobj_timeline_query(&[self.object], &mut points, false);
        asked.map_err(|error| Error::call("DRM_IOCTL_SYNCOBJ_QUERY", error))?;
        Ok(points[0])
    }

    /// Reaches a point now, without any device.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn signal(&self, point: u64) -> Result<()> {
        let reached = self.node.syncobj_timeline_signal(&[self.object], &[point]);
        reached.map_err(|error| Error::call("DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL", error))
    }

    /// The timeline reaches the point when a sync file is signalled, such as [`Buffer::export_fence`] gives.
    ///
    /// # Errors
    ///
    /// When the file is no sync file, and what the kernel says.
    ///
    /// [`Buffer::export_fence`]: super::Buffer::export_fence
    pub fn attach(&self, point: u64, fence: BorrowedFd<'_>) -> Result<()> {
        let failed = |error| Error::call("a sync file as a point", error);
        let node = &self.node;
        // The kernel puts a sync file into an object that is there, and a point is transferred from one.
        let between = node.binary()?;
        put_sync_file(node, between.object, fence).map_err(failed)?;
        let moved = node.syncobj_timeline_transfer(between.object, self.object, 0, point);
        moved.map_err(failed)
    }

    /// What signals the point, as a sync file: for [`Buffer::import_fence`], or a device with explicit fences.
    ///
    /// # Errors
    ///
    /// When nothing is to signal the point yet, and what the kernel says.
    ///
    /// [`Buffer::import_fence`]: super::Buffer::import_fence
    pub fn fence(&self, point: u64) -> Result<OwnedFd> {
        let failed = |error| Error::call("a point as a sync file", error);
        let between = self.node.binary()?;
        let moved = self.node.syncobj_timeline_transfer(self.object, between.object, point, 0);
        moved.map_err(failed)?;
        self.node.syncobj_to_fd(between.object, true).map_err(failed)
    }

    /// Waits until the point is reached, also where nothing is to signal it yet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Timeout`], and what the kernel says.
    pub fn wait(&self, point: u64, patience: Duration) -> Result<()> {
        let end = now().saturating_add(i64::try_from(patience.as_nanos()).unwrap_or(i64::MAX));
        let waited =
            self.node.syncobj_timeline_wait(&[self.object], &[point], end, true, true, false);
        match waited {
            Ok(_) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => {
                let what = format!("waited {patience:?} for point {point} of a timeline");
                Err(Error::new(ErrorKind::Timeout, what))
            }
            Err(error) => Err(Error::call("DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT", error)),
        }
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        // Nobody is there to hear of it.
        let _ = self.node.destroy_syncobj(self.object);
    }
}

/// What `drm` asks for has no object to fill, which the kernel rejects.
fn put_sync_file(node: &Node, object: syncobj::Handle, fence: BorrowedFd<'_>) -> io::Result<()> {
    let mut params = DrmSyncobjHandle {
        handle: object.into(),
        flags: uapi::SYNCOBJ_SYNC_FILE,
        fd: fence.as_raw_fd(),
        pad: 0,
    };
    // SAFETY: the node is DRM's, and the record holds numbers and no address.
    unsafe { uapi::DRM_SYNCOBJ_FD_TO_HANDLE.call(node.as_fd(), &mut params) }.map(drop)
}

/// Nanoseconds of the clock that DRM waits by.
fn now() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the record is one of this process, and the clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}
