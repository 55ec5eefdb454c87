//! Lists of formats and modifiers, there and back.

use nvabi_devmem::convert::{FormatModifier, in_formats, linux_dmabuf, list, sets, vulkan};
use nvabi_devmem::{
    Capability, CapabilitySet, Constraint, ConstraintName, Fourcc, Image, MODIFIER_INVALID, derive,
    format, layout_of,
};

use crate::random::Random;

const TILED: u64 = 0x0300_0000_0060_6014;

fn pair(format: &[u8; 4], modifier: u64) -> FormatModifier {
    FormatModifier { format: Fourcc::new(format), modifier }
}

fn random(seed: u64) -> Vec<FormatModifier> {
    let mut random = Random::new(seed);
    let formats: Vec<Fourcc> = format::known().collect();
    let modifiers = [0, TILED, MODIFIER_INVALID, 1, u64::MAX];
    let mut list = random.list(300, |random| FormatModifier {
        format: random.of(&formats),
        modifier: random.of(&modifiers),
    });
    list.sort();
    list.dedup();
    list
}

/// Two formats and two modifiers, of which the second has the second format alone.
#[test]
fn in_formats_as_the_kernel_writes_it() {
    let mut blob = Vec::new();
    for word in [1_u32, 0, 2, 24, 2, 32] {
        blob.extend(word.to_le_bytes());
    }
    blob.extend(b"XR24AR24");
    for (mask, modifier) in [(3_u64, 0_u64), (2, TILED)] {
        blob.extend(mask.to_le_bytes());
        blob.extend([0; 8]);
        blob.extend(modifier.to_le_bytes());
    }
    let list = [pair(b"XR24", 0), pair(b"AR24", 0), pair(b"AR24", TILED)];
    assert_eq!(in_formats::read(&blob), Ok(list.to_vec()));
    assert_eq!(in_formats::write(&list), blob);
    for cut in 0..blob.len() {
        assert!(in_formats::read(&blob[..cut]).is_err(), "cut at {cut}");
    }
    for (at, what) in
        [(0, "version"), (13, "formats"), (21, "modifiers"), (39, "format that is not there")]
    {
        let mut wrong = blob.clone();
        wrong[at] = 0xff;
        let error = in_formats::read(&wrong).expect_err("an error").to_string();
        assert!(error.contains(what), "byte {at}: {error}");
    }
}

#[test]
fn there_and_back() {
    for seed in 0..300 {
        let list = random(seed);
        let mut back = in_formats::read(&in_formats::write(&list)).expect("a blob");
        back.sort();
        assert_eq!(back, list, "seed {seed}");
        assert_eq!(
            linux_dmabuf::read(&linux_dmabuf::write(&list)),
            Ok(list.clone()),
            "seed {seed}"
        );
        let some: Vec<FormatModifier> = list.iter().copied().step_by(3).collect();
        let indices = linux_dmabuf::indices(&list, &some);
        assert_eq!(linux_dmabuf::tranche(&list, &indices), Ok(some), "seed {seed}");
    }
}

#[test]
fn a_table_that_is_cut_off() {
    let table = linux_dmabuf::write(&[pair(b"XR24", 0), pair(b"AR24", TILED)]);
    assert_eq!(linux_dmabuf::read(&table[..31]).expect_err("cut off").offset, 16);
    assert_eq!(linux_dmabuf::read(&table[..20]).expect_err("cut off").offset, 16);
    let list = linux_dmabuf::read(&table).expect("a table");
    assert_eq!(linux_dmabuf::tranche(&list, &[1, 0, 2, 0]).expect_err("outside").offset, 2);
    assert_eq!(linux_dmabuf::tranche(&list, &[1, 0, 0]).expect_err("cut off").offset, 2);
}

#[test]
fn vulkan_lists() {
    let format = Fourcc::new(b"XR24");
    let of = |modifier, features| vulkan::ModifierProperties { modifier, planes: 1, features };
    // Sampled (1) and colour attachment (0x80).
    let listed = vulkan::read(format, &[of(0, 1), of(TILED, 0x81)], 0x81);
    assert_eq!(listed, [pair(b"XR24", TILED)]);
    let many = [
        pair(b"XR24", TILED),
        pair(b"AR24", 1),
        pair(b"XR24", MODIFIER_INVALID),
        pair(b"XR24", TILED),
    ];
    assert_eq!(vulkan::write(format, &many), [TILED]);
    assert_eq!(size_of::<vulkan::ModifierProperties>(), 16);
    for (number, code) in
        [(44, b"AR24"), (37, b"AB24"), (1_000_156_003, b"NV12"), (1_000_156_005, b"NV16")]
    {
        assert_eq!(vulkan::fourcc(number), Some(Fourcc::new(code)));
        assert_eq!(vulkan::format(Fourcc::new(code)), Some(number));
    }
    assert_eq!(vulkan::format(format), Some(44));
    assert_eq!((vulkan::fourcc(0), vulkan::format(Fourcc(0))), (None, None));
}

/// What a GPU and a display have in common, by way of sets.
#[test]
fn sets_of_lists() {
    let gpu =
        [pair(b"XR24", TILED), pair(b"XR24", 0), pair(b"AR24", 7), pair(b"XR24", MODIFIER_INVALID)];
    let display = [pair(b"XR24", MODIFIER_INVALID), pair(b"XR24", 0), pair(b"AR24", 7)];
    let format = Fourcc::new(b"XR24");
    let pitch = Constraint::new(ConstraintName::PITCH_ALIGNMENT, 256);
    let shared = derive(&sets(&gpu, format, 1, &[pitch]), &sets(&display, format, 2, &[]));
    assert_eq!(list(format, &shared), [pair(b"XR24", 0)]);
    assert_eq!(shared[0].constraints, [pitch]);
    assert_eq!(list(format, &sets(&gpu, format, 1, &[])).len(), 3);
}

/// What names several modifiers has the one that it is laid out with.
#[test]
fn a_set_has_the_modifier_of_its_layout() {
    const OF_A_DRIVER: u64 = 0x0200_0000_0000_0001;
    let of = |modifiers: &[u64]| {
        let capabilities: Vec<Capability> =
            modifiers.iter().map(|modifier| Capability::modifier(*modifier)).collect();
        CapabilitySet::new([], capabilities)
    };
    let format = Fourcc::new(b"XR24");
    let image = Image::new(64, 64, format);
    let cases: [(&[u64], Option<u64>); 4] = [
        (&[OF_A_DRIVER, TILED], Some(TILED)),
        (&[TILED, 0], Some(TILED)),
        (&[OF_A_DRIVER, 0x0200_0000_0000_0002], Some(OF_A_DRIVER)),
        (&[], None),
    ];
    for (modifiers, expected) in cases {
        let set = of(modifiers);
        assert_eq!(set.modifier(), expected);
        assert_eq!(layout_of(&image, &set).ok().map(|layout| layout.modifier), expected);
        let listed: Vec<u64> = list(format, &[set]).iter().map(|pair| pair.modifier).collect();
        assert_eq!(listed, expected.as_slice());
    }
}
