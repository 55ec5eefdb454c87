//! Launches whose kernels read textures and write surfaces by what is in the pools of their channel.

use super::field::with;
use super::rig::{self, BASE, CLASSES, CODE, Channel, DATA, HOPPER, QMD, Shared};
use super::{Clock, Fault};

/// Where headers, samplers and texels are.
const HEADERS: u64 = BASE + 0x3000;
const SAMPLERS: u64 = BASE + 0x3800;
const TEXELS: u64 = BASE + 0xc000;

/// Kernels of ours for sm_80, whose second parameter is a handle. A thread reads the texel of its number in row 1, and
/// writes its four words to the first parameter; or it writes its number there.
const READ: [u128; 13] = [
    0x000f_c400_078e_00ff_0000_0a00_ff01_7624,
    0x000e_2200_0000_2100_0000_0000_0000_7919,
    0x000f_cc00_078e_00ff_0000_0001_ff05_7424,
    0x001f_4200_009e_0f06_3000_5a05_0004_7b66,
    0x000f_e200_0780_20ff_0000_5800_0002_7a11,
    0x000f_c600_0000_0a00_0000_4600_0004_7ab9,
    0x000f_ca00_000f_24ff_0000_5900_0003_7a11,
    0x020f_e800_0c10_1904_0000_0004_0200_7986,
    0x000f_e800_0c10_1904_0000_0405_0200_7986,
    0x000f_e800_0c10_1904_0000_0806_0200_7986,
    0x000f_e200_0c10_1904_0000_0c07_0200_7986,
    0x000f_ea00_0380_0000_0000_0000_0000_794d,
    0x000f_c000_0383_ffff_ffff_fff0_0000_7947,
];
const WRITE: [u128; 7] = [
    0x000f_c400_0000_0f00_0000_0a00_0001_7a02,
    0x000e_2200_0000_2100_0000_0000_0000_7919,
    0x000f_e200_0000_01ff_0000_0001_ff03_7435,
    0x001f_ca00_0000_06ff_0000_0002_0002_7819,
    0x000f_e200_0010_a900_7000_5a00_0200_7b9d,
    0x000f_ea00_0380_0000_0000_0000_0000_794d,
    0x000f_c000_0383_ffff_ffff_fff0_0000_7947,
];
const THREADS: u64 = 4;

/// A field of a header or sampler: its highest and lowest bit, and its value.
type Field = (u32, u32, u64);

/// Rows of four words in blocks of one gob, of the first version.
const IMAGE: [Field; 13] = [
    (6, 0, 0x0f),
    (9, 7, 4),
    (21, 19, 2),
    (24, 22, 3),
    (27, 25, 4),
    (30, 28, 6),
    (63, 41, (TEXELS & 0xffff_ffff) >> 9),
    (80, 64, TEXELS >> 32),
    (87, 85, 3),
    (144, 128, THREADS - 1),
    (154, 151, 1),
    (159, 157, 7),
    (175, 160, 3),
];
/// Points, and what is outside is the nearest.
const POINT: [Field; 5] = [(2, 0, 2), (5, 3, 2), (8, 6, 2), (34, 32, 1), (37, 36, 1)];

/// The pools of a channel: three headers, two samplers.
const POOLS: [(u32, u32); 6] = [
    (0x155c, (SAMPLERS >> 32) as u32),
    (0x1560, SAMPLERS as u32),
    (0x1564, 1),
    (0x1574, (HEADERS >> 32) as u32),
    (0x1578, HEADERS as u32),
    (0x157c, 2),
];

/// What is at an address, as words.
fn words(space: &Shared, at: u64, count: usize) -> Vec<u32> {
    let mut bytes = vec![0; count * 4];
    space.get(at, &mut bytes);
    bytes.chunks(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}

/// Launches a kernel with a handle, in memory with header 2 and sampler 1; how the channel went wrong, if it did.
fn launch(
    space: &Shared,
    class: u32,
    methods: &[(u32, u32)],
    code: &[u128],
    handle: u64,
) -> Option<Fault> {
    let values = [1, 1, 1, THREADS, 1, 1, 1024, 0, 32, CODE];
    space.put(QMD, &rig::description(class, values));
    let code: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
    space.put(CODE, &code);
    space.put(rig::parameters(class), &DATA.to_le_bytes());
    space.put(rig::parameters(class) + 8, &handle.to_le_bytes());
    Channel::new(space.clone(), class, methods).end(&Clock::new())
}

/// Memory with texels, header 2 and sampler 1.
fn memory(header: &[Field], sampler: &[Field]) -> Shared {
    let space = Shared::new();
    space.put(HEADERS + 2 * 32, &with::<32>(header));
    space.put(SAMPLERS + 32, &with::<32>(sampler));
    // Row 1 of the gob begins behind the first 16 bytes of row 0.
    let texels: Vec<u8> = (0..8_u32).flat_map(|word| (100 + word).to_le_bytes()).collect();
    space.put(TEXELS, &texels);
    space
}

const HANDLE: u64 = 2 | 1 << 20;

#[test]
fn kernels_find_textures_and_surfaces_in_pools() {
    for class in CLASSES.into_iter().filter(|class| *class != HOPPER) {
        let space = memory(&IMAGE, &POINT);
        assert!(launch(&space, class, &POOLS, &READ, HANDLE).is_none());
        let expected: Vec<u32> = (104..108).flat_map(|word| [word, 0, 0, 1]).collect();
        assert_eq!(words(&space, DATA, 16), expected, "{class:#x}");
        assert!(launch(&space, class, &POOLS, &WRITE, 2).is_none());
        assert_eq!(words(&space, TEXELS, 8), [100, 101, 102, 103, 0, 1, 2, 3], "{class:#x}");
    }
}

#[test]
fn handles_that_lead_nowhere_are_named() {
    let of = |more: &[Field]| [&IMAGE[..], more].concat();
    let nowhere: [(u32, u32); 2] = [(0x1574, 0x77), (0x1578, 0)];
    let nowhere = [&POOLS[..], &nowhere].concat();
    for (header, methods, handle, expected) in [
        (of(&[]), &POOLS[..], 3 | 1 << 20, "texture: texture header 3, of which the last is 2"),
        (of(&[]), &POOLS, 2 | 2 << 20, "texture: texture sampler 2, of which the last is 1"),
        (of(&[]), &POOLS, 1 | 1 << 20, "texture: texture header 1: it is empty"),
        (of(&[]), &POOLS, 2, "texture: texture sampler 0: it is empty"),
        (of(&[(6, 0, 0x20)]), &POOLS, HANDLE, "texture header 2: COMPONENTS 0x2f is not simulated"),
        (
            of(&[]),
            &nowhere,
            HANDLE,
            "out of bounds: texture header 2 at 0x7700000040, where nothing is mapped",
        ),
        (
            of(&[(80, 64, 0x100)]),
            &POOLS,
            HANDLE,
            "of a texture or surface, where there is no memory",
        ),
    ] {
        let space = memory(&header, &POINT);
        let fault = launch(&space, CLASSES[0], methods, &READ, handle);
        let text = fault.map_or(String::new(), |fault| fault.note().1);
        assert!(text.contains(expected), "{expected}: {text:?}");
        assert_eq!(words(&space, DATA, 16), [0; 16], "{expected}");
    }
    // A surface asks for no sampler, and a thread beyond a row is told.
    let space = memory(&of(&[]), &[]);
    assert!(launch(&space, CLASSES[0], &POOLS, &WRITE, 2).is_none());
    let narrow: Vec<Field> =
        IMAGE.into_iter().map(|field| if field.0 == 144 { (144, 128, 1) } else { field }).collect();
    let fault = launch(&memory(&narrow, &[]), CLASSES[0], &POOLS, &WRITE, 2).unwrap();
    assert!(
        fault.note().1.contains("at byte 8, row 1, plane 0: it has 2 × 4 × 1 texels"),
        "{fault:?}"
    );
}
