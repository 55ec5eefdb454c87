//! The container in which clang and nvcc put device code into programs.
//!
//! A header of 16 bytes (magic, version, header size, length of what follows), then images, each with a
//! header of its own: kind (1 is PTX, 2 machine code), header size, size, compressed size, flags
//! (0x2000 is LZ4, 0x8000 Zstandard) and size before compression.

/// Magic of the container, and of the wrapper that points to it.
pub(crate) const CONTAINER: u32 = 0xba55_ed50;
pub(crate) const WRAPPER: u32 = 0x4662_43b1;

const PTX: u64 = 1;
const CUBIN: u64 = 2;
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;

/// The newest architecture that is run.
const NEWEST: u64 = 90;

/// Largest image that is unpacked.
const MAX_TEXT: usize = 1 << 30;

/// Length of a container, from its first 16 bytes.
pub(crate) fn length(header: &[u8; 16]) -> Option<usize> {
    let magic = u32::from_le_bytes(field(header, 0)?);
    let header_size = u16::from_le_bytes(field(header, 6)?);
    let size = u64::from_le_bytes(field(header, 8)?);
    (magic == CONTAINER).then(|| usize::from(header_size).checked_add(size as usize))?
}

/// What of a container is run.
pub(crate) enum Code {
    Ptx(String),
    Cubin(Vec<u8>),
}

/// The code of the highest architecture in a container: PTX where there is some, or machine code where that is
/// preferred.
pub(crate) fn code(container: &[u8], prefers_machine_code: bool) -> Result<Code, String> {
    let images = images(container)?;
    let best = |kind| {
        let of_kind = images.iter().filter(move |image| image.kind == kind && image.arch <= NEWEST);
        of_kind.max_by_key(|image| image.arch)
    };
    let order = if prefers_machine_code { [CUBIN, PTX] } else { [PTX, CUBIN] };
    let Some(image) = order.into_iter().find_map(best) else {
        return Err(format!(
            "the fatbin has neither PTX nor machine code up to sm_{NEWEST} among its {} images",
            images.len()
        ));
    };
    let bytes = unpack(image.header, image.payload);
    let bytes =
        bytes.map_err(|error| format!("the image at byte {} of the fatbin: {error}", image.at))?;
    if image.kind == CUBIN {
        return Ok(Code::Cubin(bytes));
    }
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8(text.to_vec());
    text.map(Code::Ptx)
        .map_err(|_| format!("the PTX at byte {} of the fatbin is no text", image.at))
}

struct Image<'a> {
    at: usize,
    kind: u64,
    arch: u64,
    header: &'a [u8],
    payload: &'a [u8],
}

fn images(container: &[u8]) -> Result<Vec<Image<'_>>, String> {
    let header_size = field(container, 6).map(u16::from_le_bytes).ok_or("the fatbin is cut off")?;
    let mut at = usize::from(header_size);
    let mut out = Vec::new();
    while let Some(image) = container.get(at..).filter(|rest| rest.len() >= 64) {
        let size_of_header = number(image, 4, 4)? as usize;
        let size = number(image, 8, 8)? as usize;
        let end = size_of_header
            .checked_add(size)
            .filter(|end| size_of_header >= 64 && *end <= image.len());
        let end = end.ok_or_else(|| format!("the image at byte {at} of the fatbin is cut off"))?;
        out.push(Image {
            at,
            kind: number(image, 0, 2)?,
            arch: number(image, 28, 4)?,
            header: &image[..size_of_header],
            payload: &image[size_of_header..end],
        });
        at += end;
    }
    Ok(out)
}

fn unpack(header: &[u8], payload: &[u8]) -> Result<Vec<u8>, String> {
    let flags = number(header, 40, 8)?;
    let packed = match number(header, 16, 4)? as usize {
        0 => payload,
        size => payload.get(..size).ok_or("its compressed size is too large")?,
    };
    let size = (number(header, 56, 8)? as usize).min(MAX_TEXT);
    if flags & LZ4 != 0 {
        lz4_flex::block::decompress(packed, size).map_err(|error| error.to_string())
    } else if flags & ZSTD != 0 {
        zstd::bulk::decompress(packed, size).map_err(|error| error.to_string())
    } else {
        Ok(packed.to_vec())
    }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// A little-endian number of up to 8 bytes.
fn number(bytes: &[u8], at: usize, width: usize) -> Result<u64, String> {
    let mut word = [0; 8];
    word[..width].copy_from_slice(bytes.get(at..at + width).ok_or("a header is cut off")?);
    Ok(u64::from_le_bytes(word))
}
