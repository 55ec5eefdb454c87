//! What one process tells another of memory: usage, sets, layout and metadata, with a checksum.
//!
//! | bytes | |
//! |---|---|
//! | 4 | `nvdm` |
//! | 2, 2 | version (1), zero |
//! | 4 | how many bytes follow the head |
//! | 4 | CRC-32 of the 12 bytes before and of all that follows |
//! | 12 | width, height, format |
//! | 4; 6 + n each | uses: how many; operation (4), n (2), name of the device in UTF-8 |
//! | 4; 8 + … each | sets: how many; each as in [`v0`](super::v0) |
//! | 4 | 1 when a layout follows, else 0 |
//! | 8, 8, 4; 24 each | modifier, size, how many planes; offset, pitch, size |
//! | 4; 6 + n + m each | metadata: how many; n (2), m (4), name in UTF-8, value |
//! | 4; 12 + 4 n each | details, where there are any: how many; of which use (4), vendor (4), name (2), n (2), words |
//!
//! Uses of details are counted from 1; 0 is the image. A device has a name, of letters that are seen.
//!
//! What is read is strict: padding is zero, `required` is 0 or 1, the upper half of a 32-bit value
//! is zero and nothing is left over, so that each value has one way to be written.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{RawSet, Reader, WireError, WriteError, counted, put_set};
use crate::buffer::Description;
use crate::capability::CapabilitySet;
use crate::detail::Detail;
use crate::layout::{Layout, Plane};
use crate::usage::{Fourcc, Image, Operation, Usage, Use, check_name};

const MAGIC: [u8; 4] = *b"nvdm";
const VERSION: u16 = 1;

/// What is carried: while devices are still asked, several sets and no layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// What is to be done.
    pub usage: Usage,
    /// The sets that serve it so far.
    pub sets: Vec<CapabilitySet>,
    /// Where the pixels are, when memory is there.
    pub layout: Option<Layout>,
    /// What else the two tell each other, by name.
    pub metadata: Vec<(String, Vec<u8>)>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    magic: [u8; 4],
    version: U16,
    _zero: U16,
    length: U32,
    checksum: U32,
}

/// What of the head the checksum is over.
const SUMMED: usize = 12;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawImage {
    width: U32,
    height: U32,
    format: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawUse {
    operation: U32,
    name: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawLayout {
    modifier: U64,
    size: U64,
    planes: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPlane {
    offset: U64,
    pitch: U64,
    size: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawEntry {
    name: U16,
    value: U32,
}

/// `of` is the image (0), or the use of this number.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDetail {
    of: U32,
    vendor: U32,
    name: U16,
    words: U16,
}

/// Writes a message.
///
/// # Errors
///
/// When a list, text, payload or value does not fit the format.
pub fn write(message: &Message) -> Result<Vec<u8>, WriteError> {
    let mut out = vec![0; size_of::<Head>()];
    put_usage(&mut out, &message.usage)?;
    put_count(&mut out, message.sets.len(), "the list of sets")?;
    for set in &message.sets {
        put_set(&mut out, set)?;
    }
    put_layout(&mut out, message.layout.as_ref())?;
    put_metadata(&mut out, &message.metadata)?;
    put_details(&mut out, &message.usage)?;
    let length = U32::new(counted(out.len() - size_of::<Head>(), "the message")?);
    let head = Head {
        magic: MAGIC,
        version: U16::new(VERSION),
        _zero: U16::ZERO,
        length,
        checksum: U32::ZERO,
    };
    out[..size_of::<Head>()].copy_from_slice(head.as_bytes());
    let sum = checksum(&out).to_le_bytes();
    out[SUMMED..size_of::<Head>()].copy_from_slice(&sum);
    Ok(out)
}

/// Over a whole message but the place of the checksum itself.
fn checksum(message: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&message[..SUMMED]);
    sum.update(&message[size_of::<Head>()..]);
    sum.finalize()
}

fn put_count(out: &mut Vec<u8>, len: usize, what: &'static str) -> Result<(), WriteError> {
    out.extend_from_slice(&counted::<u32>(len, what)?.to_le_bytes());
    Ok(())
}

fn put_usage(out: &mut Vec<u8>, usage: &Usage) -> Result<(), WriteError> {
    let Image { width, height, format } = usage.image;
    let image =
        RawImage { width: U32::new(width), height: U32::new(height), format: U32::new(format.0) };
    out.extend_from_slice(image.as_bytes());
    put_count(out, usage.uses.len(), "the list of uses")?;
    for Use { device, operation, .. } in &usage.uses {
        check_name(device).map_err(WriteError::Name)?;
        let raw = RawUse {
            operation: U32::new(*operation as u32),
            name: U16::new(counted(device.len(), "the name of a device")?),
        };
        out.extend_from_slice(raw.as_bytes());
        out.extend_from_slice(device.as_bytes());
    }
    Ok(())
}

fn put_layout(out: &mut Vec<u8>, layout: Option<&Layout>) -> Result<(), WriteError> {
    put_count(out, usize::from(layout.is_some()), "the layout")?;
    let Some(layout) = layout else { return Ok(()) };
    let raw = RawLayout {
        modifier: U64::new(layout.modifier),
        size: U64::new(layout.size),
        planes: U32::new(counted(layout.planes.len(), "the list of planes")?),
    };
    out.extend_from_slice(raw.as_bytes());
    for Plane { offset, pitch, size } in &layout.planes {
        let (offset, pitch, size) = (U64::new(*offset), U64::new(*pitch), U64::new(*size));
        out.extend_from_slice(RawPlane { offset, pitch, size }.as_bytes());
    }
    Ok(())
}

fn put_metadata(out: &mut Vec<u8>, metadata: &[(String, Vec<u8>)]) -> Result<(), WriteError> {
    put_count(out, metadata.len(), "the metadata")?;
    for (name, value) in metadata {
        let raw = RawEntry {
            name: U16::new(counted(name.len(), "a name in the metadata")?),
            value: U32::new(counted(value.len(), "a value in the metadata")?),
        };
        out.extend_from_slice(raw.as_bytes());
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(value);
    }
    Ok(())
}

/// Those of the image, then those of each use. Where there are none, nothing is written.
fn put_details(out: &mut Vec<u8>, usage: &Usage) -> Result<(), WriteError> {
    let lists = std::iter::once(&usage.details).chain(usage.uses.iter().map(|each| &each.details));
    let all: Vec<(usize, &Detail)> = lists
        .enumerate()
        .flat_map(|(of, details)| details.iter().map(move |detail| (of, detail)))
        .collect();
    if all.is_empty() {
        return Ok(());
    }
    put_count(out, all.len(), "the list of details")?;
    for (of, Detail { vendor, name, payload }) in all {
        let raw = RawDetail {
            of: U32::new(counted(of, "the list of uses")?),
            vendor: U32::new(*vendor),
            name: U16::new(*name),
            words: U16::new(counted(payload.len(), "a detail")?),
        };
        out.extend_from_slice(raw.as_bytes());
        payload.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    }
    Ok(())
}

/// Reads a message, which must be all of the bytes.
///
/// # Errors
///
/// When the bytes are no message of this version, the checksum is not theirs, or something in them
/// is not as the format asks for.
pub fn read(bytes: &[u8]) -> Result<Message, WireError> {
    let mut reader = Reader::new(bytes, true);
    head(&mut reader)?;
    let mut usage = usage(&mut reader)?;
    let sets = reader.list(size_of::<RawSet>(), "sets", Reader::set)?;
    let layout = layout(&mut reader)?;
    let metadata = reader.list(size_of::<RawEntry>(), "entries of metadata", entry)?;
    if !reader.rest.is_empty() {
        details(&mut reader, &mut usage)?;
    }
    reader.end()?;
    Ok(Message { usage, sets, layout, metadata })
}

fn head(reader: &mut Reader<'_>) -> Result<(), WireError> {
    let head: &Head = match reader.rest.first_chunk() {
        Some(magic) if *magic != MAGIC => return reader.error("no `nvdm`"),
        _ => reader.read("the head")?,
    };
    let error = |offset, what| Err(WireError { offset, what });
    if head.version.get() != VERSION || head._zero.get() != 0 {
        return error(4, format!("version {}, not {VERSION}", head.version));
    }
    let follow = reader.rest.len();
    if usize::try_from(head.length.get()) != Ok(follow) {
        return error(8, format!("{} bytes should follow, but {follow} do", head.length));
    }
    let sum = checksum(reader.all);
    if head.checksum.get() != sum {
        return error(SUMMED, format!("checksum {:#010x}, not {sum:#010x}", head.checksum));
    }
    Ok(())
}

impl<'a> Reader<'a> {
    /// A count and so many things, of at least `each` bytes.
    fn list<T>(
        &mut self,
        each: usize,
        what: &str,
        one: impl Fn(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        let count: &U32 = self.read(what)?;
        let count = self.count(count.get(), each, what)?;
        (0..count).map(|_| one(self)).collect()
    }

    fn text(&mut self, len: u16, what: &str) -> Result<String, WireError> {
        let offset = self.offset();
        let bytes = self.take(usize::from(len), what)?;
        let text = std::str::from_utf8(bytes).map_err(|error| WireError {
            offset: offset + error.valid_up_to(),
            what: format!("{what} is not UTF-8"),
        })?;
        Ok(text.to_owned())
    }
}

fn usage(reader: &mut Reader<'_>) -> Result<Usage, WireError> {
    let raw: &RawImage = reader.read("an image")?;
    let format = Fourcc(raw.format.get());
    let image = Image { width: raw.width.get(), height: raw.height.get(), format };
    let uses = reader.list(size_of::<RawUse>(), "uses", |reader| {
        let offset = reader.offset();
        let raw: &RawUse = reader.read("a use")?;
        let number = raw.operation.get();
        let Some(operation) = Operation::from_number(number) else {
            return Err(WireError { offset, what: format!("operation {number} is not known") });
        };
        let offset = reader.offset();
        let name = reader.text(raw.name.get(), "the name of a device")?;
        check_name(&name).map_err(|what| WireError { offset, what })?;
        Ok(Use::new(name, operation))
    })?;
    Ok(Usage::new(image, uses))
}

/// Gives the details of a message to whom they are of, in the order in which they are written.
fn details(reader: &mut Reader<'_>, usage: &mut Usage) -> Result<(), WireError> {
    let offset = reader.offset();
    let found = reader.list(size_of::<RawDetail>(), "details", |reader| {
        let offset = reader.offset();
        let raw: &RawDetail = reader.read("a detail")?;
        let bytes = reader.take(usize::from(raw.words.get()) * 4, "a detail")?;
        let word =
            |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        let payload = bytes.chunks(4).map(word).collect();
        Ok((offset, raw.of.get(), Detail::vendor(raw.vendor.get(), raw.name.get(), payload)))
    })?;
    let error = |offset, what: &str| Err(WireError { offset, what: what.to_owned() });
    if found.is_empty() {
        return error(offset, "a list of no details");
    }
    let mut before = 0;
    for (offset, of, detail) in found {
        let list = match usize::try_from(of).unwrap_or(usize::MAX).checked_sub(1) {
            None => Some(&mut usage.details),
            Some(index) => usage.uses.get_mut(index).map(|each| &mut each.details),
        };
        match list {
            Some(list) if of >= before => list.push(detail),
            Some(_) => return error(offset, "a detail that is not in its place"),
            None => return error(offset, "a detail of a use that is not there"),
        }
        before = of;
    }
    Ok(())
}

fn layout(reader: &mut Reader<'_>) -> Result<Option<Layout>, WireError> {
    let offset = reader.offset();
    let flag: &U32 = reader.read("whether there is a layout")?;
    match flag.get() {
        0 => return Ok(None),
        1 => {}
        other => return Err(WireError { offset, what: format!("{other} layouts, not 0 or 1") }),
    }
    let raw: &RawLayout = reader.read("a layout")?;
    let count = reader.count(raw.planes.get(), size_of::<RawPlane>(), "planes")?;
    let plane = |_| {
        let raw: &RawPlane = reader.read("a plane")?;
        Ok(Plane { offset: raw.offset.get(), pitch: raw.pitch.get(), size: raw.size.get() })
    };
    let planes = (0..count).map(plane).collect::<Result<_, _>>()?;
    Ok(Some(Layout { modifier: raw.modifier.get(), planes, size: raw.size.get() }))
}

fn entry(reader: &mut Reader<'_>) -> Result<(String, Vec<u8>), WireError> {
    let raw: &RawEntry = reader.read("an entry of metadata")?;
    let name = reader.text(raw.name.get(), "a name in the metadata")?;
    let value = usize::try_from(raw.value.get()).unwrap_or(usize::MAX);
    Ok((name, reader.take(value, "a value in the metadata")?.to_vec()))
}

impl Description {
    /// Writes it as a [`Message`] with one set and a layout.
    ///
    /// # Errors
    ///
    /// As [`write()`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, WriteError> {
        let Self { usage, set, layout, metadata } = self.clone();
        write(&Message { usage, sets: vec![set], layout: Some(layout), metadata })
    }

    /// Reads what [`Self::to_bytes`] wrote.
    ///
    /// # Errors
    ///
    /// As [`read`], and when there is no layout, or not one set.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WireError> {
        let Message { usage, mut sets, layout, metadata } = read(bytes)?;
        match (sets.pop(), layout) {
            (Some(set), Some(layout)) if sets.is_empty() => {
                Ok(Self { usage, set, layout, metadata })
            }
            _ => {
                let what = "a message of one set and a layout is needed".to_owned();
                Err(WireError { offset: 0, what })
            }
        }
    }
}
