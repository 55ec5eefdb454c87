//! Where pixels are.

use nvabi_devmem::{
    Capability, CapabilitySet, Constraint, ConstraintName, Fourcc, Image, Layout, LayoutError,
    Plane, format, solve,
};

use crate::random::Random;

fn laid(
    image: (u32, u32, &[u8; 4]),
    modifier: u64,
    constraints: &[(ConstraintName, u64)],
) -> Result<Layout, LayoutError> {
    let constraints: Vec<Constraint> =
        constraints.iter().map(|(name, value)| Constraint::new(*name, *value)).collect();
    let set = CapabilitySet::new(constraints, [Capability::modifier(modifier)]);
    solve(&Image::new(image.0, image.1, Fourcc::new(image.2)), &set)
}

fn planes(layout: &Layout) -> Vec<(u64, u64, u64)> {
    layout.planes.iter().map(|plane| (plane.offset, plane.pitch, plane.size)).collect()
}

#[test]
fn linear() {
    let layout = laid((1920, 1080, b"NV12"), 0, &[]).expect("a layout");
    assert_eq!(planes(&layout), [(0, 1920, 2_073_600), (2_073_600, 1920, 1_036_800)]);
    assert_eq!(layout.size, 3_110_400);
    let layout =
        laid((641, 3, b"XR24"), 0, &[(ConstraintName::PITCH_ALIGNMENT, 256)]).expect("a layout");
    assert_eq!(planes(&layout), [(0, 2816, 8448)]);
    let layout = laid((6, 2, b"NV15"), 0, &[]).expect("a layout");
    assert_eq!(planes(&layout), [(0, 10, 20), (20, 10, 10)]);
    let layout = laid((4, 4, b"YU12"), 0, &[]).expect("a layout");
    assert_eq!(planes(&layout), [(0, 4, 16), (16, 2, 4), (20, 2, 4)]);
    let layout = laid((3, 1, b"YUYV"), 0, &[]).expect("a layout");
    assert_eq!(planes(&layout), [(0, 8, 8)]);
}

#[test]
fn every_constraint_counts() {
    use ConstraintName as Name;
    let of = |name, value| laid((1920, 1080, b"NV12"), 0, &[(name, value)]).expect("a layout");
    assert_eq!(planes(&of(Name::PITCH_ALIGNMENT, 256))[1], (2_211_840, 2048, 1_105_920));
    assert_eq!(planes(&of(Name::OFFSET_ALIGNMENT, 4096))[1].0, 2_076_672);
    assert_eq!(planes(&of(Name::ROW_PADDING, 8))[0].1, 1928);
    assert_eq!(planes(&of(Name::ROW_ALIGNMENT, 16))[0].2, 1920 * 1088);
    assert_eq!(of(Name::SIZE_ALIGNMENT, 65_536).size, 48 * 65_536);
    assert_eq!(of(Name::PAGE_SIZE, 2 << 20).size, 4 << 20);
    assert_eq!(of(Name::SIZE_PADDING, 64).size, 3_110_464);
    let failed =
        |name, value| laid((1920, 1080, b"NV12"), 0, &[(name, value)]).expect_err("too small");
    assert_eq!(
        failed(Name::MAX_PITCH, 1919),
        LayoutError::Pitch { plane: 0, needed: 1920, max: 1919 }
    );
    assert_eq!(failed(Name::MAX_SIZE, 99), LayoutError::Size { needed: 3_110_400, max: 99 });
}

#[test]
fn tiles() {
    // Block-linear: blocks of 16 GOBs are 64 bytes by 128 rows.
    let layout = laid((1920, 1080, b"XR24"), 0x0300_0000_006f_e014, &[]).expect("a layout");
    assert_eq!(planes(&layout), [(0, 7680, 7680 * 1152)]);
    // GOBs of the generation of G80 have 4 rows.
    let layout = laid((64, 5, b"R8  "), 0x0300_0000_0010_0010, &[]).expect("a layout");
    assert_eq!(planes(&layout), [(0, 64, 64 * 8)]);
    let layout = laid((100, 9, b"XR24"), 0x0100_0000_0000_0001, &[]).expect("a layout");
    assert_eq!(planes(&layout), [(0, 512, 512 * 16)]);
    let layout = laid((64, 64, b"NV12"), 0x0100_0000_0000_0002, &[]).expect("a layout");
    assert_eq!(planes(&layout), [(0, 128, 8192), (8192, 128, 4096)]);
}

#[test]
fn what_cannot_be_laid_out() {
    let modifier = |value| laid((64, 64, b"XR24"), value, &[]);
    // Compression, a block of 64 GOBs, a generation that is reserved, another vendor's.
    for value in
        [0x0300_0000_0080_0010, 0x0300_0000_0000_0016, 0x0300_0000_0030_0010, 0x0200_0000_0000_0001]
    {
        assert!(
            matches!(modifier(value), Err(LayoutError::UnknownModifier(Some(_)))),
            "{value:#x}"
        );
    }
    let image =
        |width, height, format| laid((width, height, format), 0, &[]).expect_err("no layout");
    assert_eq!(image(0, 64, b"XR24"), LayoutError::Empty);
    assert_eq!(image(64, 64, b"????"), LayoutError::UnknownFormat(Fourcc::new(b"????")));
    assert!(matches!(image(63, 64, b"NV12"), LayoutError::Uneven(_)));
    let huge = u64::MAX / 2 + 1;
    let pitch = laid(
        (64, 64, b"XR24"),
        0,
        &[(ConstraintName::OFFSET_ALIGNMENT, 3), (ConstraintName::ROW_PADDING, huge)],
    );
    assert_eq!(pitch, Err(LayoutError::Overflow));
    let set = CapabilitySet::new([], [Capability::implicit(1)]);
    let image = Image::new(64, 64, Fourcc::new(b"XR24"));
    assert!(matches!(solve(&image, &set), Err(LayoutError::UnknownModifier(_))));
}

/// Whatever the image and the constraints: planes are aligned, large enough, and do not overlap.
#[test]
fn layouts_hold() {
    let formats: Vec<Fourcc> = format::known().collect();
    let modifiers = [
        0,
        0x0300_0000_0000_0010,
        0x0300_0000_006f_e014,
        0x0300_0000_0000_0001,
        0x0100_0000_0000_0009,
    ];
    let mut some = 0;
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let set = CapabilitySet::new(
            random.list(4, Random::constraint),
            [Capability::modifier(random.of(&modifiers))],
        );
        let image = Image::new(
            1 + random.below(3000) as u32,
            1 + random.below(3000) as u32,
            random.of(&formats),
        );
        let set = match nvabi_devmem::derive_all(&[[set]]).sets.pop() {
            Some(set) => set,
            None => continue,
        };
        let Ok(layout) = solve(&image, &set) else { continue };
        some += 1;
        let formats = format::planes(image.format).expect("a format");
        let value = |name| set.constraint(name);
        let mut end = 0;
        for (Plane { offset, pitch, size }, format) in layout.planes.iter().zip(formats) {
            assert!(*offset >= end, "seed {seed}: planes overlap");
            assert!(pitch % value(ConstraintName::PITCH_ALIGNMENT).unwrap_or(1).max(1) == 0);
            assert!(offset % value(ConstraintName::OFFSET_ALIGNMENT).unwrap_or(1).max(1) == 0);
            assert!(*pitch <= value(ConstraintName::MAX_PITCH).unwrap_or(u64::MAX));
            let pixels = u64::from(image.width / format.across) * u64::from(format.bytes);
            assert!(*pitch >= pixels / u64::from(format.samples), "seed {seed}: rows overlap");
            assert!(*size >= pitch * u64::from(image.height / format.down), "seed {seed}");
            end = offset + size;
        }
        assert!(
            layout.size >= end + value(ConstraintName::SIZE_PADDING).unwrap_or(0),
            "seed {seed}"
        );
        assert!(layout.size % value(ConstraintName::SIZE_ALIGNMENT).unwrap_or(1).max(1) == 0);
        assert!(layout.size <= value(ConstraintName::MAX_SIZE).unwrap_or(u64::MAX));
    }
    assert!(some > 500, "only {some} layouts");
}
