//! Devices that read frames from one queue and write to another: vim2m, which converts, and vicodec, which makes FWHT
//! of frames and frames of that.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd};

use nvabi_devmem::{
    Buffer, CapabilitySet, ConstraintName, Description, Device, Fourcc, Image, Operation, Prober,
    Usage, Use, Wait, solve,
};

use super::{device, devices, pattern, read, use_of, write};

/// `enum v4l2_buf_type`: of one memory, and of a memory for each plane.
const CAPTURE: u32 = 1;
const OUTPUT: u32 = 2;
const CAPTURE_PLANES: u32 = 9;
const OUTPUT_PLANES: u32 = 10;

/// A stream of one node, with requests as include/uapi/linux/videodev2.h has them.
struct Stream(File);

impl Stream {
    fn open(device: &dyn Device) -> Self {
        Self(OpenOptions::new().read(true).write(true).open(&device.info().node).unwrap())
    }

    fn call<T>(&self, request: u32, params: &mut T) {
        // SAFETY: the request says how long its record is; an address in one is of a plane that lives through it.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), request as _, &raw mut *params) };
        let error = std::io::Error::last_os_error();
        assert_eq!(done, 0, "request {request:#x}: {error}");
    }

    /// Sets what a queue's frames are: width, height and bytes of one, as the driver has them.
    fn set(&self, kind: u32, size: (u32, u32), fourcc: &[u8; 4]) -> [u32; 3] {
        let by_planes = kind > OUTPUT;
        // struct v4l2_format: type, then width, height, fourcc, field; pitch and size, or of each plane size and pitch.
        let mut format = [0u32; 52];
        format[0] = kind;
        format[2..6].copy_from_slice(&[size.0, size.1, u32::from_le_bytes(*fourcc), 1]);
        format[47] = u32::from(by_planes);
        self.call(0xc0d0_5605, &mut format);
        assert_eq!(format[4], u32::from_le_bytes(*fourcc));
        [format[2], format[3], format[7]]
    }

    /// Sets queues to one piece of memory of others each, after which frames stay what they are.
    fn take_from_others(&self, kinds: &[u32]) {
        const DMABUF: u32 = 4;
        for kind in kinds {
            self.call(0xc014_5608, &mut [1u32, *kind, DMABUF, 0, 0]);
        }
    }

    fn stream(&self, mut kind: u32) {
        self.call(0x4004_5612, &mut kind);
    }

    /// Gives memory to a queue, or takes it back: how many bytes are in it.
    fn exchange(&self, request: u32, kind: u32, buffer: &Buffer, used: u32) -> u32 {
        const DMABUF: u64 = 4;
        let fd = buffer.whole().unwrap().as_fd().as_raw_fd();
        let length = buffer.size() as u32;
        // struct v4l2_plane: bytes used, length, the file descriptor.
        let mut plane = [0u32; 16];
        plane[..3].copy_from_slice(&[used, length, fd as u32]);
        // struct v4l2_buffer: index, type, bytes used, …; memory is word 15, the file descriptor or the planes' address
        // word 16, the length or their count word 18.
        let mut queued = [0u64; 11];
        queued[0] = u64::from(kind) << 32;
        queued[7] = DMABUF << 32;
        if kind > OUTPUT {
            (queued[8], queued[9]) = (plane.as_mut_ptr() as u64, 1);
        } else {
            (queued[1], queued[8], queued[9]) = (used.into(), fd as u64, length.into());
        }
        self.call(request, &mut queued);
        assert_eq!((queued[1] >> 32) & 0x40, 0, "the frame has an error");
        if kind > OUTPUT { plane[0] } else { queued[1] as u32 }
    }

    fn give(&self, kind: u32, buffer: &Buffer, used: u32) {
        self.exchange(0xc058_560f, kind, buffer, used);
    }

    fn take(&self, kind: u32, buffer: &Buffer) -> u32 {
        self.exchange(0xc058_5611, kind, buffer, 0)
    }
}

/// How a device has an image: in one file.
fn described(device: &dyn Device, operation: Operation, image: Image) -> Description {
    let sets = device.sets(&image, operation).unwrap();
    let one = |set: &&CapabilitySet| set.constraint(ConstraintName::FILES).is_none();
    let set = sets.iter().find(one).unwrap_or_else(|| panic!("{operation}: {sets:?}")).clone();
    let layout = solve(&image, &set).unwrap();
    let usage = Usage::new(image, vec![use_of(device, operation)]);
    Description { usage, set, layout, metadata: Vec::new() }
}

/// Memory of one device for another, which has taken it.
fn made(maker: &'static str, taker: &dyn Device, operation: Operation, image: Image) -> Buffer {
    let buffer = device(maker).allocate(&described(taker, operation, image)).unwrap();
    drop(taker.import(&buffer).unwrap_or_else(|error| panic!("{maker}: {error}")));
    buffer
}

const RG16: Fourcc = Fourcc::new(b"RG16");
const NV12: Fourcc = Fourcc::new(b"NV12");

#[test]
fn a_converter_has_a_queue_to_read_and_one_to_write() {
    let converter = device("converter");
    let operations = [Operation::ConvertRead, Operation::ConvertWrite];
    assert_eq!(converter.info().operations, operations);
    for operation in operations {
        let sets = |width| converter.sets(&Image::new(width, 480, RG16), operation).unwrap();
        let [set] = sets(640).try_into().unwrap();
        assert_eq!(set.constraint(ConstraintName::MAX_PITCH), Some(1280), "{operation}");
        // It has images of 640 pixels at most, and of whole pairs of pixels.
        assert_eq!((sets(642), sets(321)), (vec![], vec![]), "{operation}");
        let hints = converter.hints(operation).unwrap();
        let hint = hints.iter().find(|hint| hint.format == RG16).unwrap();
        assert_eq!(hint.max_width, 640);
        assert!(hints.iter().all(|hint| hint.format != NV12), "{hints:?}");
        let shown = converter.transition(operation, Operation::Scanout);
        let waits = if operation.writes() { Wait::Device } else { Wait::Nothing };
        assert_eq!(shown.wait, waits, "{operation}");
    }
    let image = Image::new(640, 480, RG16);
    assert_eq!(converter.sets(&image, Operation::Capture).unwrap(), []);
    assert_eq!(converter.sets(&image, Operation::Encode).unwrap(), []);
    // It writes a format that it does not read.
    let image = Image::new(640, 480, Fourcc::new(b"YUYV"));
    let ways = operations.map(|operation| converter.sets(&image, operation).unwrap().len());
    assert_eq!(ways, [0, 1]);
}

/// What one memory holds before, another holds after: each of another maker, and of the converter's own queues.
#[test]
fn a_converter_reads_one_memory_and_writes_another() {
    let converter = device("converter");
    let image = Image::new(320, 240, RG16);
    let makers = ["dma-heap:system", "udmabuf", "vgem", "converter"];
    for (at, (maker, other)) in makers.iter().zip(makers.iter().cycle().skip(1)).enumerate() {
        let source = made(maker, &*converter, Operation::ConvertRead, image);
        let target = made(other, &*converter, Operation::ConvertWrite, image);
        let picture = pattern(at as u8, 320 * 240 * 2);
        write(&source, &picture);
        write(&target, &vec![0x5a; picture.len()]);
        let stream = Stream::open(&*converter);
        for kind in [OUTPUT, CAPTURE] {
            assert_eq!(stream.set(kind, (320, 240), b"RGBP"), [320, 240, 320 * 240 * 2]);
        }
        stream.take_from_others(&[OUTPUT, CAPTURE]);
        stream.give(OUTPUT, &source, 320 * 240 * 2);
        stream.give(CAPTURE, &target, 0);
        stream.stream(OUTPUT);
        stream.stream(CAPTURE);
        stream.take(OUTPUT, &source);
        stream.take(CAPTURE, &target);
        assert!(read(&target)[..picture.len()] == picture, "from {maker} to {other}");
    }
}

/// Several streams of one node at once: an import holds none of them up.
#[test]
fn a_converter_takes_memory_while_it_has_other_memory() {
    let converter = device("converter");
    let image = Image::new(320, 240, RG16);
    let held: Vec<_> = [Operation::ConvertRead, Operation::ConvertWrite]
        .into_iter()
        .map(|operation| {
            let buffer = made("dma-heap:system", &*converter, operation, image);
            converter.import(&buffer).unwrap()
        })
        .collect();
    made("udmabuf", &*converter, Operation::ConvertWrite, image);
    // One memory for both, as a converter that works in place has it.
    let mut both = described(&*converter, Operation::ConvertRead, image);
    both.usage.uses.push(use_of(&*converter, Operation::ConvertWrite));
    let buffer = device("dma-heap:system").allocate(&both).unwrap();
    converter.import(&buffer).unwrap();
    // Of one queue, and not of the other, is no memory for both.
    both.usage.image.format = NV12;
    let other = Buffer::new(buffer.export().unwrap(), both).unwrap();
    let Err(refused) = converter.import(&other) else { panic!("taken") };
    assert!(refused.to_string().ends_with("does not convert-read 320x240 NV12"), "{refused}");
    drop(held);
}

#[test]
fn memory_of_a_converter_and_a_display_is_planned() {
    let (converter, display) = (device("converter"), device("vkms"));
    let image = Image::new(320, 240, Fourcc::new(b"RG16"));
    let uses: Vec<Use> =
        vec![use_of(&*converter, Operation::ConvertWrite), use_of(&*display, Operation::Scanout)];
    let made = Prober::default().serve(&devices(), &Usage::new(image, uses), |_| true).unwrap();
    assert_eq!(made.buffer.description().layout.planes[0].pitch, 640);
}

/// A smooth picture: of what is compressed with losses, little is lost.
fn smooth(buffer: &Buffer) -> Vec<u8> {
    let layout = &buffer.description().layout;
    let mut bytes = vec![128; layout.size as usize];
    let luma = layout.planes[0];
    for (at, byte) in bytes[..luma.size as usize].iter_mut().enumerate() {
        let (x, y) = (at as u64 % luma.pitch, at as u64 / luma.pitch);
        *byte = (32 + x / 5 + y / 6) as u8;
    }
    bytes
}

/// A frame in memory of one, what is made of it in memory of another, and the frame again in that of a third.
#[test]
fn a_codec_reads_and_writes_memory_of_others() {
    let (encoder, decoder) = (device("encoder"), device("decoder"));
    assert_eq!(encoder.info().operations, [Operation::Encode]);
    assert_eq!(decoder.info().operations, [Operation::Decode]);
    let image = Image::new(640, 360, NV12);
    let frame = made("dma-heap:system", &*encoder, Operation::Encode, image);
    let again = made("udmabuf", &*decoder, Operation::Decode, image);
    // Both have frames of whole blocks: 368 rows.
    for buffer in [&frame, &again] {
        let planes = &buffer.description().layout.planes;
        assert_eq!((planes[0].pitch, planes[1].offset), (640, 640 * 368));
    }
    let picture = smooth(&frame);
    write(&frame, &picture);

    let stream = Stream::open(&*encoder);
    stream.set(CAPTURE_PLANES, (640, 360), b"FWHT");
    let [width, height, size] = stream.set(OUTPUT_PLANES, (640, 360), b"NV12");
    assert_eq!((width, height, size), (640, 368, 640 * 368 * 3 / 2));
    // How large a coded frame may be follows from the frames that are read.
    let [_, _, most] = stream.set(CAPTURE_PLANES, (640, 360), b"FWHT");
    stream.take_from_others(&[OUTPUT_PLANES, CAPTURE_PLANES]);
    let bytes = Usage::new(Image::bytes(most), Vec::new());
    let set = described(&*encoder, Operation::Encode, image).set;
    let rows = CapabilitySet { constraints: Vec::new(), ..set };
    let layout = solve(&bytes.image, &rows).unwrap();
    let coded = Description { usage: bytes, set: rows, layout, metadata: Vec::new() };
    let coded = device("dma-heap:system").allocate(&coded).unwrap();
    stream.give(OUTPUT_PLANES, &frame, size);
    stream.give(CAPTURE_PLANES, &coded, 0);
    stream.stream(OUTPUT_PLANES);
    stream.stream(CAPTURE_PLANES);
    stream.take(OUTPUT_PLANES, &frame);
    let used = stream.take(CAPTURE_PLANES, &coded);
    assert!(used > 100 && used < size / 2, "{used} bytes of {size}");

    let stream = Stream::open(&*decoder);
    stream.set(OUTPUT_PLANES, (640, 360), b"FWHT");
    stream.take_from_others(&[OUTPUT_PLANES]);
    stream.give(OUTPUT_PLANES, &coded, used);
    // It reads the size of frames where the stream begins.
    stream.stream(OUTPUT_PLANES);
    assert_eq!(stream.set(CAPTURE_PLANES, (640, 360), b"NV12"), [640, 368, size]);
    stream.take_from_others(&[CAPTURE_PLANES]);
    write(&again, &vec![0; again.description().layout.size as usize]);
    stream.give(CAPTURE_PLANES, &again, 0);
    stream.stream(CAPTURE_PLANES);
    stream.take(CAPTURE_PLANES, &again);
    let decoded = read(&again);
    let far = |(left, right): (&u8, &u8)| left.abs_diff(*right) > 6;
    let wrong = picture[..size as usize].iter().zip(&decoded).filter(|pair| far(*pair)).count();
    assert!(wrong < size as usize / 100, "{wrong} of {size} bytes differ");
}

/// Three planes in one file are where the codec has them, or it takes the image not at all.
#[test]
fn a_codec_pads_rows_as_memory_can_be() {
    let encoder = device("encoder");
    let rows = |format, height| -> Vec<Option<u64>> {
        let image = Image::new(640, height, Fourcc::new(format));
        let sets = encoder.sets(&image, Operation::Encode).unwrap();
        sets.iter().map(|set| set.constraint(ConstraintName::ROW_ALIGNMENT)).collect()
    };
    assert_eq!(rows(b"YU12", 480), [None]);
    assert_eq!(rows(b"NV12", 360), [Some(16)]);
    assert_eq!(rows(b"YU12", 360), []);
    assert_eq!(rows(b"YUYV", 364), [Some(8)]);
}
