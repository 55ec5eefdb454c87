//! How the pixels of a format lie in planes. The numbers are DRM's (`drm_fourcc.h`).

use super::usage::Fourcc;

/// One plane of a format: blocks of so many pixels take so many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaneFormat {
    /// Bytes of a block.
    pub bytes: u32,
    /// Samples of a block, which are in one row.
    pub samples: u32,
    /// Pixels of the image for one sample, across.
    pub across: u32,
    /// Pixels of the image for one sample, down.
    pub down: u32,
}

const fn plane(bytes: u32, samples: u32, across: u32, down: u32) -> PlaneFormat {
    PlaneFormat { bytes, samples, across, down }
}

const ONE: [PlaneFormat; 1] = [plane(1, 1, 1, 1)];
const TWO: [PlaneFormat; 1] = [plane(2, 1, 1, 1)];
const THREE: [PlaneFormat; 1] = [plane(3, 1, 1, 1)];
const FOUR: [PlaneFormat; 1] = [plane(4, 1, 1, 1)];
const EIGHT: [PlaneFormat; 1] = [plane(8, 1, 1, 1)];
/// Two pixels share their colour: YUYV.
const PACKED_422: [PlaneFormat; 1] = [plane(4, 2, 1, 1)];
const PACKED_422_16: [PlaneFormat; 1] = [plane(8, 2, 1, 1)];
const SEMI_420: [PlaneFormat; 2] = [plane(1, 1, 1, 1), plane(2, 1, 2, 2)];
const SEMI_422: [PlaneFormat; 2] = [plane(1, 1, 1, 1), plane(2, 1, 2, 1)];
const SEMI_444: [PlaneFormat; 2] = [plane(1, 1, 1, 1), plane(2, 1, 1, 1)];
const SEMI_420_16: [PlaneFormat; 2] = [plane(2, 1, 1, 1), plane(4, 1, 2, 2)];
const SEMI_422_16: [PlaneFormat; 2] = [plane(2, 1, 1, 1), plane(4, 1, 2, 1)];
/// Four samples of 10 bits in five bytes.
const SEMI_420_10: [PlaneFormat; 2] = [plane(5, 4, 1, 1), plane(10, 4, 2, 2)];
const PLANAR_420: [PlaneFormat; 3] = [plane(1, 1, 1, 1), plane(1, 1, 2, 2), plane(1, 1, 2, 2)];
const PLANAR_422: [PlaneFormat; 3] = [plane(1, 1, 1, 1), plane(1, 1, 2, 1), plane(1, 1, 2, 1)];
const PLANAR_444: [PlaneFormat; 3] = [plane(1, 1, 1, 1); 3];

/// Formats by how their planes are.
const FORMATS: [(&[PlaneFormat], &[&[u8; 4]]); 16] = [
    (&ONE, &[b"C8  ", b"D8  ", b"R8  "]),
    (
        &TWO,
        &[
            b"R10 ", b"R12 ", b"R16 ", b"RG88", b"GR88", b"XR12", b"XB12", b"RX12", b"BX12",
            b"AR12", b"AB12", b"RA12", b"BA12", b"XR15", b"XB15", b"RX15", b"BX15", b"AR15",
            b"AB15", b"RA15", b"BA15", b"RG16", b"BG16",
        ],
    ),
    (&THREE, &[b"RG24", b"BG24", b"VU24"]),
    (
        &FOUR,
        &[
            b"XR24", b"XB24", b"RX24", b"BX24", b"AR24", b"AB24", b"RA24", b"BA24", b"XR30",
            b"XB30", b"RX30", b"BX30", b"AR30", b"AB30", b"RA30", b"BA30", b"RG32", b"GR32",
            b"AYUV", b"XYUV", b"Y410", b"XVUY", b"AVUY", b"XV30",
        ],
    ),
    (
        &EIGHT,
        &[
            b"XR48", b"XB48", b"AR48", b"AB48", b"XR4H", b"XB4H", b"AR4H", b"AB4H", b"Y412",
            b"Y416", b"XV36", b"XV48",
        ],
    ),
    (&PACKED_422, &[b"YUYV", b"YVYU", b"UYVY", b"VYUY"]),
    (&PACKED_422_16, &[b"Y210", b"Y212", b"Y216"]),
    (&SEMI_420, &[b"NV12", b"NV21"]),
    (&SEMI_422, &[b"NV16", b"NV61"]),
    (&SEMI_444, &[b"NV24", b"NV42"]),
    (&SEMI_420_16, &[b"P010", b"P012", b"P016"]),
    (&SEMI_422_16, &[b"P210"]),
    (&SEMI_420_10, &[b"NV15"]),
    (&PLANAR_420, &[b"YU12", b"YV12"]),
    (&PLANAR_422, &[b"YU16", b"YV16"]),
    (&PLANAR_444, &[b"YU24", b"YV24"]),
];

/// The planes of a format; `None` when it is not known here.
pub fn planes(format: Fourcc) -> Option<&'static [PlaneFormat]> {
    let is = |code: &&[u8; 4]| Fourcc::new(code) == format;
    FORMATS.iter().find(|(_, codes)| codes.iter().any(is)).map(|(planes, _)| *planes)
}

/// Every format that is known here.
pub fn known() -> impl Iterator<Item = Fourcc> {
    FORMATS.iter().flat_map(|(_, codes)| codes.iter().map(|code| Fourcc::new(code)))
}
