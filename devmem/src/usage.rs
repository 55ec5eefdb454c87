//! What is to be done with memory: the image that all agree on, and what each device does with it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::detail::{self, Detail};

/// A pixel format, as DRM numbers them: four characters, the first in the lowest byte.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fourcc(pub u32);

impl Fourcc {
    /// The format of four characters, such as `b"NV12"`.
    pub const fn new(code: &[u8; 4]) -> Self {
        Self(u32::from_le_bytes(*code))
    }

    /// Whether DRM has it (`drm_fourcc.h`).
    pub fn is_known(self) -> bool {
        drm::buffer::DrmFourcc::try_from(self.0).is_ok()
            || super::format::planes(self).is_some()
            || NEWER.iter().any(|code| Self::new(code) == self)
    }
}

/// What `drm_fourcc.h` has and the crate `drm` has not.
const NEWER: [&[u8; 4]; 12] = [
    b"C1  ", b"C2  ", b"C4  ", b"D1  ", b"D2  ", b"D4  ", b"R1  ", b"R2  ", b"R4  ", b"NV20",
    b"NV30", b"P030",
];

impl fmt::Display for Fourcc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.to_le_bytes();
        match std::str::from_utf8(&bytes) {
            Ok(text) if bytes.iter().all(|byte| (b' '..=b'~').contains(byte)) => {
                f.write_str(text.trim_end())
            }
            _ => write!(f, "{:#010x}", self.0),
        }
    }
}

impl fmt::Debug for Fourcc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fourcc {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(number) = text.strip_prefix("0x").filter(|hex| hex.len() == 8) {
            if let Ok(number) = u32::from_str_radix(number, 16) {
                return Ok(Self(number));
            }
        }
        let bytes = text.as_bytes();
        if bytes.is_empty() || bytes.len() > 4 || !bytes.iter().all(u8::is_ascii_graphic) {
            return Err(format!("`{text}` is no fourcc: up to four characters, such as NV12"));
        }
        let mut code = *b"    ";
        code.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        let (asked, upper) =
            (Self::new(&code), Self::new(&code.map(|byte| byte.to_ascii_uppercase())));
        match asked.is_known() {
            true => Ok(asked),
            false if upper.is_known() => Err(format!("`{text}` is no DRM format, but {upper} is")),
            false => Err(format!("`{text}` is no DRM format; {:#010x} takes it as it is", asked.0)),
        }
    }
}

/// What reads back: a format that DRM does not have is a number.
impl From<Fourcc> for String {
    fn from(fourcc: Fourcc) -> Self {
        if fourcc.is_known() { fourcc.to_string() } else { format!("{:#010x}", fourcc.0) }
    }
}

impl TryFrom<String> for Fourcc {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// What every device must support: asserted usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// How a pixel is stored.
    pub format: Fourcc,
}

impl Image {
    /// An image of so many pixels.
    pub const fn new(width: u32, height: u32, format: Fourcc) -> Self {
        Self { width, height, format }
    }

    /// So many bytes without pixels: one row of the format R8.
    pub const fn bytes(size: u32) -> Self {
        Self::new(size, 1, Fourcc::new(b"R8  "))
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{} {}", self.width, self.height, self.format)
    }
}

/// What a device does with memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
#[repr(u32)]
pub enum Operation {
    /// The CPU reads it.
    CpuRead = 1,
    /// The CPU writes it.
    CpuWrite = 2,
    /// A GPU samples it.
    Texture = 3,
    /// A GPU draws into it.
    Render = 4,
    /// A display shows it.
    Scanout = 5,
    /// A camera or another source writes it.
    Capture = 6,
    /// An encoder reads it.
    Encode = 7,
    /// A decoder writes it.
    Decode = 8,
    /// A copy engine reads or writes it.
    Copy = 9,
    /// A converter, such as a scaler, reads it.
    ConvertRead = 10,
    /// A converter writes it.
    ConvertWrite = 11,
}

impl Operation {
    /// Every operation, by number.
    pub const ALL: [Self; 11] = [
        Self::CpuRead,
        Self::CpuWrite,
        Self::Texture,
        Self::Render,
        Self::Scanout,
        Self::Capture,
        Self::Encode,
        Self::Decode,
        Self::Copy,
        Self::ConvertRead,
        Self::ConvertWrite,
    ];

    /// The operation of a number, as it is on the wire and in the C interface.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| *operation as u32 == number)
    }

    /// Whether it changes what is in the memory.
    pub fn writes(self) -> bool {
        use Operation::{Capture, ConvertWrite, Copy, CpuWrite, Decode, Render};
        matches!(self, CpuWrite | Render | Capture | Decode | Copy | ConvertWrite)
    }

    /// Whether the CPU does it.
    pub fn is_cpu(self) -> bool {
        matches!(self, Self::CpuRead | Self::CpuWrite)
    }

    fn text(self) -> &'static str {
        match self {
            Self::CpuRead => "cpu-read",
            Self::CpuWrite => "cpu-write",
            Self::Texture => "texture",
            Self::Render => "render",
            Self::Scanout => "scanout",
            Self::Capture => "capture",
            Self::Encode => "encode",
            Self::Decode => "decode",
            Self::Copy => "copy",
            Self::ConvertRead => "convert-read",
            Self::ConvertWrite => "convert-write",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|operation| operation.text() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::text).join(", ");
            format!("`{text}` is no operation: {known}")
        })
    }
}

/// What one device does with memory: requested usage.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Use {
    /// Which device, by its name.
    #[serde(deserialize_with = "name")]
    pub device: String,
    /// What it does.
    pub operation: Operation,
    /// What else is asked of it.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "detail::read_list"
    )]
    pub details: Vec<Detail>,
}

fn name<'de, D: serde::Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    check_name(&name).map_err(serde::de::Error::custom)?;
    Ok(name)
}

/// A device's name is one line of letters that are seen, wherever it is shown.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    if name.trim().is_empty() {
        return Err("the device has no name".to_owned());
    }
    let unseen = |letter: &char| {
        letter.is_control() || UNSEEN.iter().any(|(first, last)| (*first..=*last).contains(letter))
    };
    let Some(letter) = name.chars().find(unseen) else { return Ok(()) };
    let spelled = |letter: char| match unseen(&letter) {
        true => letter.escape_default().to_string(),
        false => letter.escape_debug().to_string(),
    };
    let name: String = name.chars().map(spelled).collect();
    let letter = spelled(letter);
    Err(format!("the name `{name}` has the control character {letter}"))
}

/// Unicode's categories Cf, Zl and Zp (16.0): letters that nobody sees, that make others stand in another order than
/// they are, or that end a line. nvabi-reports spells the same out.
const UNSEEN: [(char, char); 21] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{2064}'),
    ('\u{2066}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0001}', '\u{e0001}'),
    ('\u{e0020}', '\u{e007f}'),
];

impl Use {
    /// What a device does.
    pub fn new(device: impl Into<String>, operation: Operation) -> Self {
        Self { device: device.into(), operation, details: Vec::new() }
    }

    /// The same, with a detail more.
    pub fn with(mut self, detail: Detail) -> Self {
        self.details.push(detail);
        self
    }

    /// What the device does: `scanout+rotate-90`.
    pub(crate) fn what(&self) -> String {
        let details = self.details.iter().map(|detail| format!("+{detail}"));
        self.operation.to_string() + &details.collect::<String>()
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device, self.what())
    }
}

/// `gpu:texture`, `panel:scanout+rotate-90`. A device's name may hold colons; the operation is behind the last one.
impl FromStr for Use {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut wrong = None;
        for (at, _) in text.rmatch_indices(':').filter(|(at, _)| *at > 0) {
            let rest = &text[at + 1..];
            let (operation, details) = rest
                .split_once('+')
                .map_or((rest, None), |(operation, details)| (operation, Some(details)));
            match operation.parse() {
                Ok(operation) => {
                    let details = details.map(details_of).transpose()?.unwrap_or_default();
                    check_name(&text[..at])?;
                    return Ok(Self { device: text[..at].to_owned(), operation, details });
                }
                // A vendor's detail has a colon too.
                Err(error) => wrong = wrong.or(Some(error)),
            }
        }
        Err(wrong.unwrap_or_else(|| format!("`{text}` is no DEVICE:OPERATION")))
    }
}

/// `rotate-90+reflect-x+0x10de:3(1)`: the words of a transform are one detail.
fn details_of(text: &str) -> Result<Vec<Detail>, String> {
    let (vendors, words): (Vec<&str>, Vec<&str>) =
        text.split('+').partition(|part| part.contains(':'));
    let transform = (!words.is_empty()).then(|| words.join("+"));
    let details = transform.iter().map(String::as_str).chain(vendors).map(str::parse);
    detail::list(details.collect::<Result<_, _>>()?)
}

/// All that is to be done with one piece of memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// What every device must support.
    pub image: Image,
    /// What each device does.
    pub uses: Vec<Use>,
    /// What else every device must support of the image.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "detail::read_list"
    )]
    pub details: Vec<Detail>,
}

impl Usage {
    /// An image and what is done with it.
    pub fn new(image: Image, uses: Vec<Use>) -> Self {
        Self { image, uses, details: Vec::new() }
    }

    /// The same with what else is asked of the image, in the one way in which that is written.
    ///
    /// # Errors
    ///
    /// When the image is to be turned in two ways.
    pub fn asking(self, details: Vec<Detail>) -> Result<Self, String> {
        Ok(Self { details: detail::list(details)?, ..self })
    }
}
