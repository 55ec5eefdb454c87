//! Waiting for devices: vgem's fences, which a test signals itself.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nvabi_devmem::{Buffer, ErrorKind, Intent, Operation, Timeline, Transition, Wait, wait_fence};

use nvabi_test::{Need, skip};

use super::{description, device};

const SHORT: Duration = Duration::from_millis(30);
const LONG: Duration = Duration::from_secs(20);

/// A fence that is not signalled yet, and the work that signals it when it is finished.
fn fence() -> (Work, OwnedFd) {
    let writer = device("vgem");
    let buffer = writer.allocate(&description(64, 64, Vec::new())).unwrap();
    let work = Work::begin(&writer.info().node, &buffer);
    (work, buffer.export_fence(Intent::Read).unwrap())
}

#[test]
fn a_buffer_waits_for_the_fences_that_are_put_on_it() {
    let device = device("dma-heap:system");
    let buffer = device.allocate(&description(64, 64, Vec::new())).unwrap();
    buffer.wait(Intent::Write, SHORT).unwrap();

    // A reader keeps writers waiting, and no other reader.
    let (reader, reads) = fence();
    buffer.import_fence(Intent::Read, reads.as_fd()).unwrap();
    buffer.wait(Intent::Read, SHORT).unwrap();
    assert_eq!(buffer.wait(Intent::Write, SHORT).unwrap_err().kind(), ErrorKind::Timeout);
    reader.finish();
    buffer.wait(Intent::Write, LONG).unwrap();

    // A writer keeps all waiting, those too who wait for a sync file.
    let (writer, writes) = fence();
    buffer.import_fence(Intent::Write, writes.as_fd()).unwrap();
    let before_reading = buffer.export_fence(Intent::Read).unwrap();
    let shown = Transition::between(Operation::Render, Operation::Scanout);
    assert_eq!(shown.wait, Wait::Fences);
    let refused = shown.perform(&buffer, Intent::Read, SHORT).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Timeout);
    assert_eq!(wait_fence(before_reading.as_fd(), SHORT).unwrap_err().kind(), ErrorKind::Timeout);
    writer.finish();
    shown.perform(&buffer, Intent::Read, LONG).unwrap();
    wait_fence(before_reading.as_fd(), LONG).unwrap();
}

#[test]
fn a_mapping_is_read_when_the_writer_is_finished() {
    let device = device("dma-heap:system");
    let buffer = device.allocate(&description(64, 64, Vec::new())).unwrap();
    let (writer, writes) = fence();
    buffer.import_fence(Intent::Write, writes.as_fd()).unwrap();
    let mapping = buffer.map().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let access = mapping.read().unwrap();
            sender.send(()).unwrap();
            access.end().unwrap();
        });
        assert!(receiver.recv_timeout(SHORT).is_err(), "the bracket did not wait");
        writer.finish();
        receiver.recv_timeout(LONG).unwrap();
    });
}

#[test]
fn plain_memory_has_no_fences() {
    let device = device("cpu");
    let buffer = device.allocate(&description(64, 64, Vec::new())).unwrap();
    buffer.wait(Intent::Write, SHORT).unwrap();
    let refused = buffer.export_fence(Intent::Write).unwrap_err();
    assert_eq!(refused.errno(), Some(libc::ENOTTY), "{refused}");
}

#[test]
fn a_camera_says_itself_when_a_frame_is_finished() {
    let camera = device("camera");
    let shown = camera.transition(Operation::Capture, Operation::Scanout);
    assert_eq!(shown.wait, Wait::Device);
    let reused = camera.transition(Operation::Scanout, Operation::Capture);
    assert_eq!(reused.wait, Wait::Fences);
}

/// Work of vgem's on a buffer: an implicit fence, which the test signals.
struct Work {
    node: File,
    fence: u32,
}

impl Work {
    /// Begins to write.
    fn begin(node: &str, buffer: &Buffer) -> Self {
        let node = OpenOptions::new().read(true).write(true).open(node).unwrap();
        // struct drm_prime_handle: handle, flags, file descriptor.
        let mut imported = [0, 0, buffer.whole().unwrap().as_raw_fd() as u32];
        call(&node, 0xc00c_642e, &mut imported);
        // struct drm_vgem_fence_attach: handle, flags (it writes), the fence.
        let mut attached = [imported[0], 1, 0, 0];
        call(&node, 0xc010_6441, &mut attached);
        Self { node, fence: attached[2] }
    }

    fn finish(self) {
        call(&self.node, 0x4008_6442, &mut [self.fence, 0]);
    }
}

fn call<const N: usize>(node: &File, request: u32, params: &mut [u32; N]) {
    // SAFETY: the request says how long its record is, which is all of the array, and holds no address.
    let done = unsafe { libc::ioctl(node.as_raw_fd(), request as _, params.as_mut_ptr()) };
    assert_eq!(done, 0, "request {request:#x}: {}", std::io::Error::last_os_error());
}

/// vgem writes, and another device waits for a point of its timeline: implicit becomes explicit.
#[test]
fn the_fence_of_one_device_is_a_point_of_another() {
    let (writer, reader) = (device("vgem"), device("virtio-gpu"));
    let node = std::path::Path::new(&reader.info().node);
    let buffer = writer.allocate(&description(64, 64, Vec::new())).unwrap();
    let timeline = Timeline::new(node).unwrap();
    assert_eq!(timeline.reached().unwrap(), 0);

    let work = Work::begin(&writer.info().node, &buffer);
    let written = buffer.export_fence(Intent::Read).unwrap();
    timeline.attach(5, written.as_fd()).unwrap();
    // Another process has the timeline too.
    let theirs = Timeline::import(node, timeline.export().unwrap().as_fd()).unwrap();
    for waits in [&timeline, &theirs] {
        assert_eq!(waits.wait(5, SHORT).unwrap_err().kind(), ErrorKind::Timeout);
        assert_eq!(waits.reached().unwrap(), 0);
    }
    work.finish();
    for waits in [&timeline, &theirs] {
        waits.wait(5, LONG).unwrap();
        assert_eq!(waits.reached().unwrap(), 5);
    }
    // What nothing is to reach yet can be waited for, and has no fence.
    assert_eq!(timeline.wait(6, SHORT).unwrap_err().kind(), ErrorKind::Timeout);
    assert!(timeline.fence(7).is_err());
    theirs.signal(6).unwrap();
    timeline.wait(6, LONG).unwrap();
}

/// A point becomes what all who use the memory wait for: explicit becomes implicit.
#[test]
fn a_point_is_a_fence_that_others_wait_for() {
    let (writer, reader, heap) = (device("vgem"), device("virtio-gpu"), device("dma-heap:system"));
    let timeline = Timeline::new(std::path::Path::new(&reader.info().node)).unwrap();
    let source = writer.allocate(&description(64, 64, Vec::new())).unwrap();
    let target = heap.allocate(&description(64, 64, Vec::new())).unwrap();
    let work = Work::begin(&writer.info().node, &source);
    timeline.attach(3, source.export_fence(Intent::Read).unwrap().as_fd()).unwrap();

    let copied = timeline.fence(3).unwrap();
    target.import_fence(Intent::Write, copied.as_fd()).unwrap();
    assert_eq!(target.wait(Intent::Read, SHORT).unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(wait_fence(copied.as_fd(), SHORT).unwrap_err().kind(), ErrorKind::Timeout);
    work.finish();
    target.wait(Intent::Read, LONG).unwrap();
    wait_fence(copied.as_fd(), LONG).unwrap();
}

#[test]
fn a_node_without_timelines_says_so() {
    let vgem = device("vgem");
    let refused = Timeline::new(std::path::Path::new(&vgem.info().node)).unwrap_err();
    assert!(refused.to_string().ends_with("has no timelines"), "{refused}");
}

/// A timeline of sw_sync: fences that a test makes and signals, without a device.
struct SoftwareTimeline(File);

impl SoftwareTimeline {
    fn open() -> Self {
        let node = "/sys/kernel/debug/sync/sw_sync";
        let opened = OpenOptions::new().read(true).write(true).open(node);
        Self(
            opened
                .unwrap_or_else(|error| skip(Need::Device("sw_sync"), format!("{node}: {error}"))),
        )
    }

    /// A sync file that is signalled when the timeline comes to the point.
    fn fence(&self, point: u32) -> OwnedFd {
        // struct sw_sync_create_fence_data: value, name, the sync file.
        let mut made = [0u32; 10];
        made[0] = point;
        call(&self.0, 0xc028_5700, &mut made);
        // SAFETY: the kernel has just made it for this process.
        unsafe { OwnedFd::from_raw_fd(made[9] as i32) }
    }

    fn advance(&self, by: u32) {
        call(&self.0, 0x4004_5701, &mut [by]);
    }
}

/// Two fences of no device: readers of the memory wait for both of its writers, in whatever order these end.
#[test]
fn sync_files_of_no_device_are_waited_for() {
    let timeline = SoftwareTimeline::open();
    let heap = device("dma-heap:system");
    let buffer = heap.allocate(&description(64, 64, Vec::new())).unwrap();
    for point in [1, 2] {
        buffer.import_fence(Intent::Write, timeline.fence(point).as_fd()).unwrap();
    }
    let both = buffer.export_fence(Intent::Read).unwrap();
    for advanced in [1, 1] {
        assert_eq!(buffer.wait(Intent::Read, SHORT).unwrap_err().kind(), ErrorKind::Timeout);
        assert_eq!(wait_fence(both.as_fd(), SHORT).unwrap_err().kind(), ErrorKind::Timeout);
        timeline.advance(advanced);
    }
    buffer.wait(Intent::Write, LONG).unwrap();
    wait_fence(both.as_fd(), LONG).unwrap();
}

/// The same as a point of a timeline semaphore.
#[test]
fn a_sync_file_of_no_device_is_a_point() {
    let (sync, reader) = (SoftwareTimeline::open(), device("virtio-gpu"));
    let timeline = Timeline::new(std::path::Path::new(&reader.info().node)).unwrap();
    timeline.attach(7, sync.fence(1).as_fd()).unwrap();
    assert_eq!(timeline.wait(7, SHORT).unwrap_err().kind(), ErrorKind::Timeout);
    sync.advance(1);
    timeline.wait(7, LONG).unwrap();
    assert_eq!(timeline.reached().unwrap(), 7);
}
