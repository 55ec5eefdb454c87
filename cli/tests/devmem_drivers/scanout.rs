//! Scan-out of each allocator's memory by vkms: what its write-back connector gives is what arrives.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use drm::buffer::{Buffer as _, DrmFourcc, Handle, PlanarBuffer};
use drm::control::atomic::AtomicModeReq;
use drm::control::{
    AtomicCommitFlags, Device as _, FbCmd2Flags, RawResourceHandle, ResourceHandle, connector,
    framebuffer, property,
};
use drm::{ClientCapability, Device as _};
use nvabi_devmem::{Buffer, Constraint, ConstraintName, ErrorKind, Operation, wait_fence};

use super::{description, device, pattern, use_of, write};

const LONG: Duration = Duration::from_secs(20);

/// A display of 640 × 480 whose picture can be read back.
pub(crate) struct Display {
    file: File,
}

impl AsFd for Display {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
impl drm::Device for Display {}
impl drm::control::Device for Display {}

/// An imported image, as the kernel takes it.
struct Shown<'b>(&'b Buffer, Handle);

impl PlanarBuffer for Shown<'_> {
    fn size(&self) -> (u32, u32) {
        let image = self.0.description().usage.image;
        (image.width, image.height)
    }
    fn format(&self) -> DrmFourcc {
        DrmFourcc::Xrgb8888
    }
    fn modifier(&self) -> Option<drm::buffer::DrmModifier> {
        None
    }
    fn pitches(&self) -> [u32; 4] {
        [self.0.description().layout.planes[0].pitch as u32, 0, 0, 0]
    }
    fn handles(&self) -> [Option<Handle>; 4] {
        [Some(self.1), None, None, None]
    }
    fn offsets(&self) -> [u32; 4] {
        [self.0.description().layout.planes[0].offset as u32, 0, 0, 0]
    }
}

impl Display {
    pub(crate) fn open(node: &str) -> Self {
        let display = Self { file: OpenOptions::new().read(true).write(true).open(node).unwrap() };
        for capability in [
            ClientCapability::UniversalPlanes,
            ClientCapability::Atomic,
            ClientCapability::WritebackConnectors,
        ] {
            display.set_client_capability(capability, true).unwrap();
        }
        display
    }

    fn property(&self, of: impl ResourceHandle, name: &str) -> property::Handle {
        let values = self.get_properties(of).unwrap();
        let found = values.iter().find(|(property, _)| {
            self.get_property(**property).unwrap().name().to_str() == Ok(name)
        });
        *found.unwrap_or_else(|| panic!("no property {name}")).0
    }

    fn add(&self, buffer: &Buffer) -> framebuffer::Handle {
        let handle = self.prime_fd_to_buffer(buffer.whole().unwrap()).unwrap();
        self.add_planar_framebuffer(&Shown(buffer, handle), FbCmd2Flags::empty()).unwrap()
    }

    /// Shows an image, and gives what the display made of it: bytes of XR24.
    pub(crate) fn show(&self, buffer: &Buffer) -> Vec<u8> {
        let image = buffer.description().usage.image;
        let (width, height) = (u64::from(image.width), u64::from(image.height));
        let resources = self.resource_handles().unwrap();
        let of_kind = |writeback: bool| {
            let kind = connector::Interface::Writeback;
            let mut connectors = resources.connectors().iter();
            let found = connectors.find(|connector| {
                (self.get_connector(**connector, false).unwrap().interface() == kind) == writeback
            });
            *found.unwrap()
        };
        let (connector, writeback, crtc) = (of_kind(false), of_kind(true), resources.crtcs()[0]);
        let modes = self.get_connector(connector, true).unwrap();
        let size = (image.width as u16, image.height as u16);
        let mode = modes.modes().iter().find(|mode| mode.size() == size).unwrap();
        let mode = u64::from(self.create_property_blob(mode).unwrap());
        let plane = self.plane_handles().unwrap()[0];

        let mut result =
            self.create_dumb_buffer((image.width, image.height), DrmFourcc::Xrgb8888, 32).unwrap();
        let output = self.add_framebuffer(&result, 24, 32).unwrap();
        let mut fence = -1i32;

        let mut commit = AtomicModeReq::new();
        let mut set = |of: RawResourceHandle, property: property::Handle, value: u64| {
            commit.add_raw_property(of, property, value);
        };
        let number = |handle: RawResourceHandle| u64::from(u32::from(handle));
        let on = number(crtc.into());
        // A picture goes to the write-back alone: vkms does not clone outputs.
        set(connector.into(), self.property(connector, "CRTC_ID"), 0);
        set(crtc.into(), self.property(crtc, "MODE_ID"), mode);
        set(crtc.into(), self.property(crtc, "ACTIVE"), 1);
        let shown = number(self.add(buffer).into());
        for (name, value) in [
            ("FB_ID", shown),
            ("CRTC_ID", on),
            ("SRC_X", 0),
            ("SRC_Y", 0),
            ("SRC_W", width << 16),
            ("SRC_H", height << 16),
            ("CRTC_X", 0),
            ("CRTC_Y", 0),
            ("CRTC_W", width),
            ("CRTC_H", height),
        ] {
            set(plane.into(), self.property(plane, name), value);
        }
        for (name, value) in [
            ("CRTC_ID", on),
            ("WRITEBACK_FB_ID", number(output.into())),
            ("WRITEBACK_OUT_FENCE_PTR", &raw mut fence as u64),
        ] {
            set(writeback.into(), self.property(writeback, name), value);
        }
        self.atomic_commit(AtomicCommitFlags::ALLOW_MODESET, commit).unwrap();
        // SAFETY: the kernel has just made it.
        let fence = unsafe { OwnedFd::from_raw_fd(fence) };
        wait_fence(fence.as_fd(), LONG).unwrap();

        let pitch = result.pitch() as usize;
        let mapping = self.map_dumb_buffer(&mut result).unwrap();
        let rows = mapping.chunks(pitch).take(image.height as usize);
        rows.flat_map(|row| &row[..image.width as usize * 4]).copied().collect()
    }
}

/// Where two pictures differ, of whose pixels the fourth byte means nothing.
pub(crate) fn difference(left: &[u8], right: &[u8]) -> Option<usize> {
    assert_eq!(left.len(), right.len());
    left.chunks(4).zip(right.chunks(4)).position(|(left, right)| left[..3] != right[..3])
}

/// How many devices are attached to a dma-buf, which the kernel lists by inode.
fn attached(buffer: &Buffer) -> Option<usize> {
    let list = std::fs::read_to_string("/sys/kernel/debug/dma_buf/bufinfo").ok()?;
    let is_it = |line: &&str| {
        let inode = line.split_whitespace().nth(5).and_then(|inode| inode.parse().ok());
        inode == Some(buffer.identity().inode)
    };
    let mut lines = list.lines().skip_while(|line| !is_it(line));
    let total = lines.find_map(|line| line.trim().strip_prefix("Total "))?;
    total.split_whitespace().next()?.parse().ok()
}

fn is_shown(allocator: &'static str) {
    let (allocator, display) = (device(allocator), device("vkms"));
    let uses = vec![use_of(&*display, Operation::Scanout)];
    let buffer = allocator.allocate(&description(640, 480, uses)).unwrap();
    let picture = pattern(3, 640 * 480 * 4);
    write(&buffer, &picture);

    // Twice at once: the kernel has one handle for both, and the display keeps the memory until the
    // second is gone. Its own memory it need not attach to.
    let (first, second) = (display.import(&buffer).unwrap(), display.import(&buffer).unwrap());
    assert_eq!(first.handle(), second.handle());
    let held = attached(&buffer);
    assert_eq!(held, Some(usize::from(allocator.info().name != display.info().name)));
    drop(first);
    assert_eq!(attached(&buffer), held);
    drop(second);
    assert_eq!(attached(&buffer), Some(0));

    let shown = Display::open(&display.info().node).show(&buffer);
    assert_eq!(difference(&shown, &picture), None);
    // The comparison sees what differs.
    let mut other = picture;
    other[4 * 700] ^= 1;
    assert_eq!(difference(&shown, &other), Some(700));
}

/// The kernel has one handle for one dma-buf: it is closed when the last of its files goes.
#[test]
fn one_memory_in_two_files_is_held_once() {
    let (heap, display) = (device("dma-heap:system"), device("vkms"));
    let description = description(64, 64, Vec::new());
    let memory = heap.allocate(&description).unwrap();
    let files = vec![memory.export().unwrap(), memory.export().unwrap()];
    let twice = Buffer::in_pieces(files, description).unwrap();
    for _ in 0..2 {
        let held = display.import(&twice).unwrap();
        let whole = display.import(&memory).unwrap();
        assert_eq!(held.handle(), whole.handle());
        drop(whole);
        assert_eq!(attached(&memory), Some(1));
        drop(held);
        assert_eq!(attached(&memory), Some(0));
    }
}

#[test]
fn memory_of_udmabuf_is_shown() {
    is_shown("udmabuf");
}

#[test]
fn memory_of_large_pages_is_shown() {
    is_shown("udmabuf:2M");
}

#[test]
fn memory_of_the_system_heap_is_shown() {
    is_shown("dma-heap:system");
}

#[test]
fn memory_of_the_contiguous_heap_is_shown() {
    is_shown("dma-heap:reserved");
}

#[test]
fn dumb_buffers_of_vgem_are_shown() {
    is_shown("vgem");
}

#[test]
fn dumb_buffers_of_vkms_are_shown() {
    is_shown("vkms");
}

#[test]
fn memory_of_a_camera_is_shown() {
    is_shown("contiguous-camera");
}

#[test]
fn a_display_says_what_it_shows() {
    let display = device("vkms");
    let asked = description(640, 480, Vec::new());
    let sets = display.sets(&asked.usage.image, Operation::Scanout).unwrap();
    assert!(sets.contains(&asked.set), "{sets:?}");
    let mut image = asked.usage.image;
    image.width = 100_000;
    assert_eq!(display.sets(&image, Operation::Scanout).unwrap(), []);
    image = asked.usage.image;
    image.format = nvabi_devmem::Fourcc::new(b"????");
    assert_eq!(display.sets(&image, Operation::Scanout).unwrap(), []);
    assert_eq!(display.sets(&asked.usage.image, Operation::Capture).unwrap(), []);
}

#[test]
fn what_cannot_be_a_framebuffer_is_refused() {
    let (heap, display) = (device("dma-heap:system"), device("vkms"));
    let mut description = description(640, 480, vec![use_of(&*display, Operation::Scanout)]);
    // Rows that are shorter than the picture.
    description.layout.planes[0].pitch = 16;
    description.set.constraints = vec![Constraint::new(ConstraintName::MAX_PITCH, 16)];
    let buffer = heap.allocate(&description).unwrap();
    let Err(refused) = display.import(&buffer) else { panic!("taken") };
    assert_eq!(refused.kind(), ErrorKind::Call);
    assert!(refused.to_string().contains("takes no framebuffer 640x480 XR24"), "{refused}");

    // Memory that is no dma-buf.
    let cpu = device("cpu");
    description.layout.planes[0].pitch = 2560;
    let plain = cpu.allocate(&description).unwrap();
    let Err(refused) = display.import(&plain) else { panic!("taken") };
    assert!(refused.to_string().contains("takes no such memory"), "{refused}");
}
