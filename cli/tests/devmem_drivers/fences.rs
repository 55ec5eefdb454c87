//! Waiting for devices: fences that a test signals itself (the kernel's sw_sync).

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nvabi_devmem::{ErrorKind, Intent, Operation, Transition, Wait, wait_fence};
use nvabi_test::{Need, skip};

use super::{description, device};

const SHORT: Duration = Duration::from_millis(30);
const LONG: Duration = Duration::from_secs(20);

/// A timeline; a fence of it is signalled when the timeline has got there.
struct Timeline(File);

impl Timeline {
    fn new() -> Self {
        let node = "/sys/kernel/debug/sync/sw_sync";
        let opened = OpenOptions::new().read(true).write(true).open(node);
        match opened {
            Ok(file) => Self(file),
            Err(error) => skip(Need::Device("sw_sync"), format!("{node}: {error}")),
        }
    }

    fn fence(&self, at: u32) -> OwnedFd {
        #[repr(C)]
        struct Create {
            value: u32,
            name: [u8; 32],
            fence: i32,
        }
        let mut create = Create { value: at, name: [0; 32], fence: -1 };
        // SAFETY: SW_SYNC_IOC_CREATE_FENCE takes a record of 40 bytes without addresses.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), 0xc028_5700, &raw mut create) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the kernel has just made it.
        unsafe { OwnedFd::from_raw_fd(create.fence) }
    }

    fn advance(&self) {
        let by = 1u32;
        // SAFETY: SW_SYNC_IOC_INC takes the address of a number.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), 0x4004_5701, &raw const by) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }
}

#[test]
fn a_buffer_waits_for_the_fences_that_are_put_on_it() {
    let device = device("dma-heap:system");
    let timeline = Timeline::new();
    let buffer = device.allocate(&description(64, 64, Vec::new())).unwrap();
    buffer.wait(Intent::Write, SHORT).unwrap();

    // A reader keeps writers waiting, and no other reader.
    buffer.import_fence(Intent::Read, timeline.fence(1).as_fd()).unwrap();
    buffer.wait(Intent::Read, SHORT).unwrap();
    assert_eq!(buffer.wait(Intent::Write, SHORT).unwrap_err().kind(), ErrorKind::Timeout);
    timeline.advance();
    buffer.wait(Intent::Write, LONG).unwrap();

    // A writer keeps all waiting, those too who wait for a sync file.
    buffer.import_fence(Intent::Write, timeline.fence(2).as_fd()).unwrap();
    let before_reading = buffer.export_fence(Intent::Read).unwrap();
    let shown = Transition::between(Operation::Render, Operation::Scanout);
    assert_eq!(shown.wait, Wait::Fences);
    let refused = shown.perform(&buffer, Intent::Read, SHORT).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Timeout);
    assert_eq!(wait_fence(before_reading.as_fd(), SHORT).unwrap_err().kind(), ErrorKind::Timeout);
    timeline.advance();
    shown.perform(&buffer, Intent::Read, LONG).unwrap();
    wait_fence(before_reading.as_fd(), LONG).unwrap();
}

#[test]
fn a_mapping_is_read_when_the_writer_is_finished() {
    let device = device("dma-heap:system");
    let timeline = Timeline::new();
    let buffer = device.allocate(&description(64, 64, Vec::new())).unwrap();
    buffer.import_fence(Intent::Write, timeline.fence(1).as_fd()).unwrap();
    let mapping = buffer.map().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let access = mapping.read().unwrap();
            sender.send(()).unwrap();
            access.end().unwrap();
        });
        assert!(receiver.recv_timeout(SHORT).is_err(), "the bracket did not wait");
        timeline.advance();
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
