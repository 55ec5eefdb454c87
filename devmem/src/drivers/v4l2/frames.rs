//! Where V4L2 has the pixels of a frame, and what it calls formats.

use crate::format::{self, PlaneFormat};
use crate::{Fourcc, Image, Layout};

/// Formats that V4L2 knows by another fourcc than DRM: DRM's, then V4L2's.
const RENAMED: [(&[u8; 4], &[u8; 4]); 4] =
    [(b"RG24", b"BGR3"), (b"BG24", b"RGB3"), (b"RG16", b"RGBP"), (b"R8  ", b"GREY")];

/// Formats whose planes are in a file each, which DRM does not tell from those in one: DRM's, then V4L2's.
const BY_PLANES: [(&[u8; 4], &[u8; 4]); 10] = [
    (b"NV12", b"NM12"),
    (b"NV21", b"NM21"),
    (b"NV16", b"NM16"),
    (b"NV61", b"NM61"),
    (b"YU12", b"YM12"),
    (b"YV12", b"YM21"),
    (b"YU16", b"YM16"),
    (b"YV16", b"YM61"),
    (b"YU24", b"YM24"),
    (b"YV24", b"YM42"),
];

/// V4L2's format with a file for each plane.
pub(super) fn by_planes(fourcc: Fourcc) -> Option<u32> {
    let found = BY_PLANES.iter().find(|(drm, _)| Fourcc::new(drm) == fourcc);
    found.map(|(_, v4l2)| u32::from_le_bytes(**v4l2))
}

/// V4L2's format in one file.
pub(super) fn pixel_format(fourcc: Fourcc) -> u32 {
    let renamed = RENAMED.iter().find(|(drm, _)| Fourcc::new(drm) == fourcc);
    renamed.map_or(fourcc.0, |(_, v4l2)| u32::from_le_bytes(**v4l2))
}

/// Whether planes in one file are where V4L2 has those of a frame with so many rows: each begins where the one before
/// ends, and its rows are as much shorter than the first one's as it has fewer samples.
pub(super) fn is_one_behind_the_other(image: &Image, layout: &Layout, rows: u32) -> bool {
    let Some(formats) = format::planes(image.format) else { return layout.planes.len() == 1 };
    let Some((first, of_first)) = layout.planes.first().zip(formats.first()) else { return false };
    // Bytes of a row of so many pixels that every plane has whole samples.
    let weight = |of: &PlaneFormat, other: &PlaneFormat| {
        u64::from(of.bytes) * u64::from(other.samples) * u64::from(other.across)
    };
    let mut end = 0_u64;
    layout.planes.iter().zip(formats).all(|(plane, of)| {
        let is_next = plane.offset == end;
        let size = plane.pitch.saturating_mul(u64::from(rows / of.down.max(1)));
        end = end.saturating_add(size);
        let pitches = (
            plane.pitch.checked_mul(weight(of_first, of)),
            first.pitch.checked_mul(weight(of, of_first)),
        );
        is_next && plane.size >= size && pitches.0.is_some() && pitches.0 == pitches.1
    })
}

/// What the rows of each plane are a multiple of where a codec's frames have more than the image; `None` where nothing
/// puts planes in so many `files` where the codec has them.
pub(super) fn row_alignment(image: &Image, rows: u32, files: usize) -> Option<u32> {
    if rows == image.height {
        return Some(1);
    }
    // Behind the last plane there may be more.
    let planes = format::planes(image.format)?;
    let followed = if files > 1 { &[] } else { &planes[..planes.len().saturating_sub(1)] };
    let of = |rows: u32, plane: &PlaneFormat| rows / plane.down.max(1);
    (1..16).map(|bit| 1_u32 << bit).find(|step| {
        let rounded = |rows: u32| rows.checked_next_multiple_of(*step);
        rounded(image.height) == Some(rows)
            && followed
                .iter()
                .all(|plane| rounded(of(image.height, plane)) == Some(of(rows, plane)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capability, CapabilitySet, Constraint, ConstraintName, solve};

    fn image(format: &[u8; 4], height: u32) -> Image {
        Image::new(640, height, Fourcc::new(format))
    }

    fn laid_out(image: &Image, constraint: (ConstraintName, u64)) -> Layout {
        let asked = Constraint::new(constraint.0, constraint.1);
        solve(image, &CapabilitySet::new([asked], [Capability::pitch_linear()])).unwrap()
    }

    fn is_v4l2s(format: &[u8; 4], constraint: (ConstraintName, u64)) -> bool {
        let image = image(format, 480);
        is_one_behind_the_other(&image, &laid_out(&image, constraint), 480)
    }

    #[test]
    fn planes_in_one_file_have_one_place() {
        let tight = (ConstraintName::PITCH_ALIGNMENT, 1);
        for format in [b"XR24", b"NV12", b"NV16", b"YU12", b"YU24", b"YUYV"] {
            assert!(is_v4l2s(format, tight), "{}", Fourcc::new(format));
        }
        // Rows of 768 bytes, and of 384: half as many. Of 640 and 384: not.
        assert!(is_v4l2s(b"YU12", (ConstraintName::PITCH_ALIGNMENT, 192)));
        assert!(!is_v4l2s(b"YU12", (ConstraintName::PITCH_ALIGNMENT, 128)));
        // 640 * 480 bytes are whole pages, and a quarter of them not.
        assert!(is_v4l2s(b"NV12", (ConstraintName::OFFSET_ALIGNMENT, 4096)));
        assert!(!is_v4l2s(b"YU12", (ConstraintName::OFFSET_ALIGNMENT, 8192)));
        // 512 rows where a camera writes 480: the second plane is behind what it writes.
        assert!(is_v4l2s(b"XR24", (ConstraintName::ROW_ALIGNMENT, 256)));
        assert!(!is_v4l2s(b"NV12", (ConstraintName::ROW_ALIGNMENT, 256)));
    }

    #[test]
    fn rows_of_codecs_are_a_multiple() {
        let of = |format, rows: (u32, u32), files| {
            let image = image(format, rows.0);
            let step = row_alignment(&image, rows.1, files)?;
            let layout = laid_out(&image, (ConstraintName::ROW_ALIGNMENT, step.into()));
            assert!(files > 1 || is_one_behind_the_other(&image, &layout, rows.1), "{image}");
            Some(step)
        };
        assert_eq!(of(b"NV12", (480, 480), 1), Some(1));
        assert_eq!(of(b"NV12", (1080, 1088), 1), Some(16));
        assert_eq!(of(b"YU12", (1080, 1088), 1), Some(16));
        // 184 rows of the second plane are no multiple of 16, with 192 the third is too far behind.
        assert_eq!(of(b"NV12", (360, 368), 1), Some(16));
        assert_eq!(of(b"YU12", (360, 368), 1), None);
        assert_eq!(of(b"YU12", (360, 368), 3), Some(16));
        // 1084 is a multiple of 4, as 1080 is.
        assert_eq!(of(b"XR24", (1080, 1084), 1), None);
        assert_eq!(of(b"????", (1080, 1088), 1), None);
    }

    #[test]
    fn formats_with_a_file_for_each_plane_have_several() {
        for (drm, v4l2) in BY_PLANES {
            let drm = Fourcc::new(drm);
            assert!(format::planes(drm).is_some_and(|planes| planes.len() > 1), "{drm}");
            assert_eq!(by_planes(drm), Some(u32::from_le_bytes(*v4l2)));
        }
        assert_eq!(by_planes(Fourcc::new(b"XR24")), None);
    }
}
