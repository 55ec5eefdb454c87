//! Capture of vivid into each allocator's memory: its test picture has eight bars of known colours.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nvabi_devmem::{
    Buffer, CapabilitySet, ConstraintName, Description, Detail, ErrorKind, Fourcc, Image,
    Operation, Prober, Usage, solve, transform,
};

use super::{description, device, devices, read, use_of, write};

/// A stream of one camera, with requests as include/uapi/linux/videodev2.h has them.
struct Stream(File);

impl Stream {
    fn open(node: &str) -> Self {
        Self(OpenOptions::new().read(true).write(true).open(node).unwrap())
    }

    fn call<T>(&self, request: u32, params: &mut T) {
        // SAFETY: the request says how long its record is; an address in one is of a plane that lives through it.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), request as _, &raw mut *params) };
        let error = std::io::Error::last_os_error();
        assert_eq!(done, 0, "request {request:#x}: {error}");
    }

    /// Captures a frame of 640 × 480 into the buffer.
    fn capture(&self, buffer: &Buffer) {
        const DMABUF: u32 = 4;
        let mut kind = 1u32;
        // struct v4l2_format: type, then width, height, fourcc, field, pitch, size.
        let mut format = [0u32; 52];
        format[0] = kind;
        format[2..7].copy_from_slice(&[640, 480, u32::from_le_bytes(*b"XR24"), 1, 2560]);
        self.call(0xc0d0_5605, &mut format);
        assert_eq!(format[2..7], [640, 480, u32::from_le_bytes(*b"XR24"), 1, 2560]);
        // struct v4l2_requestbuffers: count, type, memory. Two, for vivid waits for a second one.
        self.call(0xc014_5608, &mut [1u32, kind, DMABUF, 0, 0]);
        // struct v4l2_buffer: index, type, …; memory is word 15, the file descriptor word 16.
        let mut queued = [0u64; 11];
        queued[0] = u64::from(kind) << 32;
        queued[7] = u64::from(DMABUF) << 32;
        queued[8] = buffer.whole().unwrap().as_raw_fd() as u64;
        self.call(0xc058_560f, &mut queued);
        self.call(0x4004_5612, &mut kind);
        let mut taken = queued;
        self.call(0xc058_5611, &mut taken);
        let flags = (taken[1] >> 32) as u32;
        assert_eq!(flags & 0x40, 0, "the frame has an error");
        self.call(0x4004_5613, &mut kind);
        self.call(0xc014_5608, &mut [0u32, kind, DMABUF, 0, 0]);
    }

    /// The same by the interface with a file for each plane.
    fn capture_planes(&self, buffer: &Buffer, fourcc: &[u8; 4]) {
        const DMABUF: u32 = 4;
        let mut kind = 9u32;
        let files = buffer.pieces();
        let layout = &buffer.description().layout;
        // struct v4l2_format: type, then width, height, fourcc, field, colours; of each plane size and pitch, of 20
        // bytes.
        let mut format = [0u32; 52];
        format[0] = kind;
        format[2..6].copy_from_slice(&[640, 480, u32::from_le_bytes(*fourcc), 1]);
        (format[8], format[47]) = (layout.planes[0].pitch as u32, files.len() as u32);
        self.call(0xc0d0_5605, &mut format);
        assert_eq!(
            (format[4], format[47] & 0xff),
            (u32::from_le_bytes(*fourcc), files.len() as u32)
        );
        for (plane, file) in layout.planes.iter().zip(format[7..].chunks(5)).take(files.len()) {
            assert_eq!(u64::from(file[1]), plane.pitch);
        }
        self.call(0xc014_5608, &mut [1u32, kind, DMABUF, 0, 0]);
        // struct v4l2_plane: the file descriptor is word 2. struct v4l2_buffer has its address and how many.
        let mut planes = [[0u32; 16]; 4];
        for (plane, file) in planes.iter_mut().zip(files) {
            plane[2] = file.as_fd().as_raw_fd() as u32;
        }
        let mut queued = [0u64; 11];
        queued[0] = u64::from(kind) << 32;
        queued[7] = u64::from(DMABUF) << 32;
        queued[8] = planes.as_mut_ptr() as u64;
        queued[9] = files.len() as u64;
        self.call(0xc058_560f, &mut queued);
        self.call(0x4004_5612, &mut kind);
        let mut taken = queued;
        self.call(0xc058_5611, &mut taken);
        assert_eq!((taken[1] >> 32) as u32 & 0x40, 0, "the frame has an error");
        self.call(0x4004_5613, &mut kind);
    }
}

/// The colours of the bars in the last row of a frame: whether there is red, green and blue.
fn bars(frame: &[u8]) -> Vec<[bool; 3]> {
    let row = &frame[frame.len() - 2560..];
    let pixel = |bar: usize| &row[(bar * 80 + 40) * 4..];
    (0..8).map(|bar| [2, 1, 0].map(|channel| pixel(bar)[channel] > 96)).collect()
}

const TEST_PICTURE: [[bool; 3]; 8] = [
    [true, true, true],
    [true, true, false],
    [false, true, true],
    [false, true, false],
    [true, false, true],
    [true, false, false],
    [false, false, true],
    [false, false, false],
];

/// Captures a frame, and checks that it is one.
pub(crate) fn capture(node: &str, buffer: &Buffer) {
    write(buffer, &[0x5a; 640 * 480 * 4]);
    assert_ne!(bars(&read(buffer)), TEST_PICTURE);
    Stream::open(node).capture(buffer);
    assert_eq!(bars(&read(buffer)), TEST_PICTURE);
}

#[test]
fn a_camera_with_memory_by_planes_captures() {
    let camera = device("camera-by-planes");
    for maker in ["dma-heap:system", "udmabuf", "camera-by-planes"] {
        let asked = description(640, 480, vec![use_of(&*camera, Operation::Capture)]);
        let buffer = device(maker).allocate(&asked).unwrap();
        drop(camera.import(&buffer).unwrap());
        write(&buffer, &[0x5a; 640 * 480 * 4]);
        Stream::open(&camera.info().node).capture_planes(&buffer, b"XR24");
        assert_eq!(bars(&read(&buffer)), TEST_PICTURE, "{maker}");
    }
}

/// Formats whose planes V4L2 has in one file, and those that it has in a file each too.
#[test]
fn a_camera_says_in_how_many_files_planes_are() {
    let camera = device("camera-by-planes");
    let files = |format| -> Vec<u64> {
        let image = Image::new(640, 480, Fourcc::new(format));
        let sets = camera.sets(&image, Operation::Capture).unwrap();
        sets.iter().map(|set| set.constraint(ConstraintName::FILES).unwrap_or(1)).collect()
    };
    assert_eq!(files(b"XR24"), [1]);
    assert_eq!(files(b"YU12"), [1, 3]);
    assert_eq!(files(b"NV16"), [1, 2]);
    assert_eq!(files(b"NM16"), [0; 0]);
}

/// The test picture in a file for each plane: bars of brightness in the first, of colour in the others.
#[test]
fn a_camera_captures_into_a_file_for_each_plane() {
    let camera = device("camera-by-planes");
    let image = Image::new(640, 480, Fourcc::new(b"YU12"));
    let usage = Usage::new(image, vec![use_of(&*camera, Operation::Capture)]);
    for files in [1, 3] {
        let sets = camera.sets(&image, Operation::Capture).unwrap();
        let is_it =
            |set: &CapabilitySet| set.constraint(ConstraintName::FILES).unwrap_or(1) == files;
        let set = sets.into_iter().find(is_it).unwrap();
        for maker in ["udmabuf", "dma-heap:system", "camera-by-planes"] {
            let layout = solve(&image, &set).unwrap();
            let (usage, set) = (usage.clone(), set.clone());
            let asked = Description { usage, set, layout, metadata: Vec::new() };
            let prober = Prober::default().prefer([device(maker).info().name.clone()]);
            let made = prober.make(&devices(), &asked).unwrap();
            assert_eq!(made.by, device(maker).info().name);
            let buffer = made.buffer;
            assert_eq!(buffer.pieces().len() as u64, files, "{maker}");
            drop(camera.import(&buffer).unwrap());
            write(&buffer, &vec![0x5a; buffer.description().layout.size as usize]);
            let fourcc = if files == 1 { b"YU12" } else { b"YM12" };
            Stream::open(&camera.info().node).capture_planes(&buffer, fourcc);
            let frame = read(&buffer);
            // The last row of each plane: white to black is ever darker, and blue has the most of blue.
            let last = |plane: usize, bar: usize| {
                let plane = buffer.description().layout.planes[plane];
                let rows = if plane.pitch == 640 { 480 } else { 240 };
                let row = plane.offset + plane.pitch * (rows - 1);
                frame[(row + plane.pitch / 16 * (2 * bar as u64 + 1)) as usize]
            };
            let bright: Vec<u8> = (0..8).map(|bar| last(0, bar)).collect();
            assert!(bright.is_sorted_by(|a, b| a > b), "{maker}, {files} files: {bright:?}");
            let colours = |plane: usize| (0..8).max_by_key(|bar| last(plane, *bar)).unwrap();
            assert_eq!((colours(1), colours(2)), (6, 5), "{maker}, {files}: most blue, most red");
        }
    }
    // One file is no three, and the camera says so.
    let whole = device("dma-heap:system").allocate(&description(640, 480, Vec::new())).unwrap();
    let set = camera.sets(&image, Operation::Capture).unwrap().remove(1);
    let layout = solve(&image, &set).unwrap();
    let asked = Description { usage, set, layout, metadata: Vec::new() };
    let one = Buffer::new(whole.export().unwrap(), asked).unwrap();
    let Err(refused) = camera.import(&one) else { panic!("taken") };
    assert!(refused.to_string().ends_with("takes memory in 3 files, not in 1"), "{refused}");
}

fn is_captured_into(allocator: &'static str, camera: &'static str) {
    let (allocator, camera) = (device(allocator), device(camera));
    let uses = vec![use_of(&*camera, Operation::Capture)];
    let buffer = allocator.allocate(&description(640, 480, uses)).unwrap();
    drop(camera.import(&buffer).unwrap());
    capture(&camera.info().node, &buffer);
}

#[test]
fn a_camera_captures_into_udmabuf() {
    is_captured_into("udmabuf", "camera");
}

#[test]
fn a_camera_captures_into_large_pages() {
    is_captured_into("udmabuf:2M", "camera");
}

#[test]
fn a_camera_captures_into_the_system_heap() {
    is_captured_into("dma-heap:system", "camera");
}

#[test]
fn a_camera_captures_into_dumb_buffers() {
    is_captured_into("vgem", "camera");
}

#[test]
fn a_contiguous_camera_captures_into_the_contiguous_heap() {
    is_captured_into("dma-heap:reserved", "contiguous-camera");
}

#[test]
fn a_contiguous_camera_captures_into_a_large_page() {
    is_captured_into("udmabuf:2M", "contiguous-camera");
}

#[test]
fn a_contiguous_camera_captures_into_memory_of_its_own() {
    is_captured_into("contiguous-camera", "contiguous-camera");
}

#[test]
fn a_camera_says_what_it_captures() {
    let camera = device("camera");
    let asked = description(640, 480, Vec::new());
    let sets = camera.sets(&asked.usage.image, Operation::Capture).unwrap();
    assert_eq!(sets, [asked.set]);
    let mut image = asked.usage.image;
    image.width = 641;
    assert_eq!(camera.sets(&image, Operation::Capture).unwrap(), []);
    assert_eq!(camera.sets(&asked.usage.image, Operation::Scanout).unwrap(), []);
}

#[test]
fn a_camera_that_is_busy_says_so() {
    let (heap, camera) = (device("dma-heap:system"), device("camera"));
    let uses = vec![use_of(&*camera, Operation::Capture)];
    let buffer = heap.allocate(&description(640, 480, uses)).unwrap();
    let held = camera.import(&buffer).unwrap();
    let Err(refused) = camera.import(&buffer) else { panic!("taken twice") };
    assert_eq!((refused.kind(), refused.errno()), (ErrorKind::Call, Some(libc::EBUSY)));
    drop(held);
    // Its queue is free again.
    std::thread::sleep(Duration::from_millis(1));
    drop(camera.import(&buffer).unwrap());
}

#[test]
fn a_camera_mirrors_by_its_controls() {
    let camera = device("camera");
    let asked = description(640, 360, Vec::new());
    let sets = |bits| {
        let wanted = use_of(&*camera, Operation::Capture).with(Detail::transform(bits));
        camera.sets_for(&asked.usage, &wanted).unwrap()
    };
    let plain = camera.sets(&asked.usage.image, Operation::Capture).unwrap();
    assert!(!plain.is_empty());
    for bits in
        [transform::ROTATE_0, transform::REFLECT_X, transform::REFLECT_X | transform::REFLECT_Y]
    {
        assert_eq!(sets(bits), plain, "{bits:#x}");
    }
    assert_eq!(sets(transform::ROTATE_90), [], "vivid turns nothing");
    let vendor = use_of(&*camera, Operation::Capture).with(Detail::vendor(0x10de, 3, vec![1]));
    let refused = camera.sets_for(&asked.usage, &vendor).unwrap_err();
    assert!(refused.to_string().ends_with("does not know 0x10de:3(1)"), "{refused}");
}

#[test]
fn a_camera_says_how_large_its_images_are() {
    let camera = device("camera");
    let hints = camera.hints(Operation::Capture).unwrap();
    let of = |format: &[u8; 4]| hints.iter().find(|hint| hint.format == Fourcc::new(format));
    let most = of(b"YUYV").unwrap();
    let image = |width| Image::new(width, most.max_height, most.format);
    let sets = |width| camera.sets(&image(width), Operation::Capture).unwrap();
    assert_eq!((sets(most.max_width).len(), sets(most.max_width * 2).len()), (1, 0), "{most:?}");
    assert_eq!(of(b"C8  "), None);
    assert_eq!(camera.hints(Operation::Scanout).unwrap(), []);
}
