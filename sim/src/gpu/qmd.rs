//! Descriptions of launches (QMD) of every version: where their fields are, and what they say
//! (`clc7c0qmd.h`, `clcbc0qmd.h`, `clcec0qmd.h` of NVIDIA's open-gpu-doc).

use std::array;

use super::engine::{Bus, Fault, Outcome};
use super::field::{Field, mw};

/// Bytes of the largest description; those before version 4 have 256.
const LARGEST: usize = 384;
/// The first compute class whose descriptions may have version 5: BLACKWELL_COMPUTE_A.
const BLACKWELL: u32 = 0xcdc0;

/// What a launch says of itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Qmd {
    version: (u32, u32),
    /// Whether blocks of a kernel run, or there is only what is released and what depends on it: libcuda resets caches by
    /// a launch of no blocks and of no code. Of blocks without threads hardware says that they are wrong (nouveau:
    /// CTA_THREAD_DIMENSION_ZERO of `gk104_sked_error`), of grids without blocks it has no such word.
    pub(super) has_kernel: bool,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    /// Bytes of shared memory of a block.
    pub(super) shared: u32,
    pub(super) registers: u32,
    /// Bytes of local memory of a thread: from its first address on, and up to its last.
    pub(super) local: [u32; 2],
    /// Where the code begins.
    pub(super) program: u64,
    pub(super) constants: Vec<Bank>,
    /// What is written when it has ended.
    pub(super) releases: Vec<Release>,
    /// What happens to other descriptions when it has ended.
    pub(super) dependents: Vec<(Action, u64)>,
    /// Whether its blocks wait for each other: libcuda puts a cooperative launch into a group of its own.
    pub(super) is_cooperative: bool,
    /// How many others it waits for.
    pub(super) waits_for: u32,
    /// Whether it waits until somebody schedules it, where it came in the stream.
    pub(super) needs_schedule: bool,
    /// Whether a texture's sampler has the number of its header.
    pub(super) samplers_by_header: bool,
}

/// What is done with a description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// It has come in the stream.
    Load,
    /// It is launched as it is in memory.
    Launch,
    /// It waits, as it is in memory, until somebody schedules it (FORCE_REQUIRE_SCHEDULING).
    Hold,
    /// It is launched as it was when it came, where it waits.
    Schedule,
    /// It waits for one less.
    Decrement,
    /// And for one more.
    Increment,
}

/// A bank of constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bank {
    pub(super) number: usize,
    pub(super) address: u64,
    pub(super) bytes: u32,
}

/// A semaphore that is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Release {
    pub(super) address: u64,
    pub(super) payload: u64,
    pub(super) size: ReleaseSize,
    /// The operation, and whether it is signed.
    pub(super) reduction: Option<(u32, bool)>,
    /// Whether payload and reduction have 64 bits.
    pub(super) is_wide: bool,
}

/// What is written at a semaphore's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReleaseSize {
    /// Payload and time.
    FourWords,
    OneWord,
    TwoWords,
}

/// A semaphore's fields.
struct ReleaseFields {
    is_enabled: Field,
    address: Field,
    payload: Field,
    size: Field,
    reduces: Field,
    operation: Field,
    is_signed: Field,
    /// None where payloads are words.
    is_wide: Option<Field>,
}

/// A launch that follows.
struct DependentFields {
    is_enabled: Field,
    /// What is done with it; none where it is always launched.
    action: Option<Field>,
    /// None where no header says where it is.
    pointer: Option<Field>,
}

/// Where one version has its fields.
struct Layout {
    /// What it launches; none where that is always a grid.
    kind: Option<Field>,
    group: Field,
    waits_for: Field,
    needs_schedule: Field,
    samplers_by_header: Field,
    grid: [Field; 3],
    /// Blocks of the one group that waits for each other, by which the grid counts then (GPU_CGA_WIDTH and so on).
    together: Option<[Field; 3]>,
    block: [Field; 3],
    shared: Field,
    registers: Field,
    local: [Field; 2],
    program: Field,
    /// Whether a bank is there, where, and how large; each with the bits between two banks.
    constants: [(Field, u32); 3],
    releases: &'static [ReleaseFields],
    dependents: &'static [DependentFields],
}

const BANKS: u32 = 8;

/// Versions 2.2 and 2.3: one word at a semaphore, or payload and time.
const V2: Layout = Layout {
    kind: None,
    group: mw(133, 128),
    waits_for: mw(157, 151),
    needs_schedule: mw(140, 140),
    samplers_by_header: mw(382, 382),
    grid: [mw(415, 384), mw(431, 416), mw(463, 448)],
    together: None,
    block: [mw(607, 592), mw(623, 608), mw(639, 624)],
    shared: mw(561, 544),
    registers: mw(656, 648),
    local: [mw(951, 928), mw(983, 960)],
    program: mw(1584, 1536),
    constants: [(mw(640, 640), 1), (mw(1072, 1024), 64), (mw(1087, 1075).shifted(4), 64)],
    releases: &[release_v2(0), release_v2(1)],
    dependents: &[DependentFields {
        is_enabled: mw(141, 141),
        action: None,
        pointer: Some(mw(511, 480).shifted(8)),
    }],
};

/// Version 2.4, which says what is done with others.
const V2_4: Layout =
    Layout { dependents: &[dependent(141, Some(480)), dependent(146, None)], ..V2 };

const fn release_v2(number: u32) -> ReleaseFields {
    ReleaseFields {
        is_enabled: mw(138, 138).of(number, 1),
        address: mw(775, 736).of(number, 96),
        payload: mw(831, 800).of(number, 96),
        size: mw(799, 799).of(number, 96),
        reduces: mw(794, 794).of(number, 96),
        operation: mw(790, 788).of(number, 96),
        is_signed: mw(793, 792).of(number, 96),
        is_wide: None,
    }
}

/// Version 3.0.
const V3: Layout = Layout {
    waits_for: mw(157, 142),
    local: [mw(759, 736), mw(1623, 1600)],
    releases: &[release_v3(768), release_v3(896), release_v3(1664)],
    dependents: &[dependent(512, Some(480)), dependent(517, None)],
    ..V2
};

/// They are alike, from a bit on.
const fn release_v3(first: u32) -> ReleaseFields {
    ReleaseFields {
        is_enabled: mw(55, 55).of(1, first),
        address: mw(39, 0).of(1, first),
        payload: mw(127, 64).of(1, first),
        size: mw(63, 62).of(1, first),
        reduces: mw(58, 58).of(1, first),
        operation: mw(54, 52).of(1, first),
        is_signed: mw(57, 56).of(1, first),
        is_wide: Some(mw(61, 61).of(1, first)),
    }
}

/// Versions 4.0 and 4.1.
const V4: Layout = Layout {
    kind: Some(mw(25, 23)),
    group: mw(21, 16),
    waits_for: mw(15, 0),
    needs_schedule: mw(30, 30),
    samplers_by_header: mw(569, 569),
    grid: [mw(1055, 1024), mw(1071, 1056), mw(1103, 1088)],
    together: Some([mw(2223, 2208), mw(2239, 2224), mw(2255, 2240)]),
    block: [mw(1167, 1152), mw(1183, 1168), mw(1191, 1184)],
    shared: mw(601, 584),
    registers: mw(1208, 1200),
    local: [mw(535, 512), mw(567, 544)],
    program: mw(1272, 1216),
    constants: [
        (mw(416, 416), 4),
        (mw(1586, 1536).shifted(6), 64),
        (mw(1599, 1587).shifted(4), 64),
    ],
    releases: &[release_v4(320, 640), release_v4(336, 768), release_v4(352, 896)],
    dependents: &[dependent(368, Some(448)), dependent(373, Some(480))],
};

/// How it is released, and where and with what.
const fn release_v4(how: u32, place: u32) -> ReleaseFields {
    ReleaseFields {
        is_enabled: mw(0, 0).of(1, how),
        size: mw(2, 1).of(1, how),
        reduces: mw(4, 4).of(1, how),
        operation: mw(7, 5).of(1, how),
        is_signed: mw(9, 8).of(1, how),
        is_wide: Some(mw(12, 12).of(1, how)),
        address: mw(56, 0).of(1, place),
        payload: mw(127, 64).of(1, place),
    }
}

/// From these bits on: whether and how, and its address without the lowest eight bits.
const fn dependent(how: u32, pointer: Option<u32>) -> DependentFields {
    DependentFields {
        is_enabled: mw(0, 0).of(1, how),
        action: Some(mw(3, 1).of(1, how)),
        pointer: match pointer {
            Some(at) => Some(mw(31, 0).shifted(8).of(1, at)),
            None => None,
        },
    }
}

/// Version 5.0.
const V5: Layout = Layout {
    kind: Some(mw(153, 151)),
    group: mw(149, 144),
    waits_for: mw(143, 128),
    needs_schedule: mw(158, 158),
    samplers_by_header: mw(457, 457),
    grid: [mw(1279, 1248), mw(1295, 1280), mw(1327, 1312)],
    together: Some([mw(2127, 2112), mw(2143, 2128), mw(2159, 2144)]),
    block: [mw(1103, 1088), mw(1119, 1104), mw(1127, 1120)],
    shared: mw(1162, 1152).shifted(7),
    registers: mw(1136, 1128),
    local: [mw(1199, 1184).shifted(4), mw(1215, 1200).shifted(4)],
    program: mw(1076, 1024).shifted(4),
    constants: [
        (mw(1856, 1856), 4),
        (mw(1394, 1344).shifted(6), 64),
        (mw(1407, 1395).shifted(4), 64),
    ],
    releases: &[release_v4(288, 480), release_v4(304, 768), release_v4(320, 896)],
    dependents: &[dependent(336, Some(384)), dependent(344, Some(416))],
};

/// QMD_TYPE_GRID_NULL, QMD_TYPE_GRID_CTA and QMD_TYPE_GRID_GPU_CGA, whose blocks are one group all over the GPU; the
/// others are queues, and grids of clusters.
const NO_GRID: u64 = 1;
const GRID: u64 = 2;
const GRID_TOGETHER: u64 = 4;

/// Groups of launches whose blocks do not wait for each other: none, and that of who says nothing of groups.
const NO_GROUP: [u64; 2] = [0x3f, 0];

impl Action {
    /// SEND_SIGNALING_PCAS2_B_PCAS_ACTION. Caches and queues are not simulated.
    pub(super) fn of_pcas(number: u32) -> Option<Self> {
        match number {
            2 | 9 => Some(Self::Schedule),
            3 | 10 => Some(Self::Launch),
            11 => Some(Self::Hold),
            7 => Some(Self::Decrement),
            12 => Some(Self::Increment),
            _ => None,
        }
    }

    /// What a kernel asks for by a word in a reflected page, as a channel does by SEND_PCAS_A and
    /// SEND_SIGNALING_PCAS2_B: the action, and with what description.
    pub(super) fn of_message(message: u64) -> Option<(Self, u64)> {
        let action = Self::of_pcas((message >> 32) as u32 & 0xf)?;
        Some((action, (message & 0xffff_ffff) << 8))
    }

    /// QMD_SCHEDULE and QMD_INVALIDATE_COPY_SCHEDULE, QMD_DECREMENT_DEPENDENCE. What is put into a queue is none.
    fn of(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Schedule),
            3 => Some(Self::Launch),
            4 => Some(Self::Decrement),
            _ => None,
        }
    }
}

/// Version and layout of a description that a class was given.
fn layout(class: u32, bytes: &[u8; LARGEST]) -> ((u32, u32), Option<&'static Layout>) {
    let version_at = |low| {
        let part = |low| mw(low + 3, low).read(bytes) as u32;
        (part(low + 4), part(low))
    };
    let older = version_at(576);
    let version = if class >= BLACKWELL && older != (4, 1) { version_at(464) } else { older };
    let layout = match version {
        (2, 2 | 3) => Some(&V2),
        (2, 4) => Some(&V2_4),
        (3, 0) => Some(&V3),
        (4, _) => Some(&V4),
        (5, 0) => Some(&V5),
        _ => None,
    };
    (version, layout)
}

impl Qmd {
    /// The description at an address, of a compute class.
    pub(super) fn read(bus: &Bus<'_>, class: u32, at: u64) -> Outcome<Self> {
        let mut bytes = [0; LARGEST];
        bus.read(at, &mut bytes[..256])?;
        // What is behind may be nobody's where the description has 256 bytes.
        let rest = bus.read(at.wrapping_add(256), &mut bytes[256..]);
        let (version, layout) = layout(class, &bytes);
        let Some(layout) = layout else {
            let (major, minor) = version;
            let what =
                format!("compute launch at {at:#x}: a description of version {major}.{minor}");
            return Err(Fault::Unsupported(what));
        };
        if version.0 >= 4 {
            rest?;
        }
        Self::of(&bytes, version, layout).map_err(|fault| match fault {
            Fault::Unsupported(why) => {
                let (program, name) = (layout.program.read(&bytes), architecture_name(class));
                let what = format!("compute launch at {at:#x}, {name} code at {program:#x}");
                Fault::Unsupported(format!("{what}: {why}"))
            }
            other => other,
        })
    }

    fn of(bytes: &[u8; LARGEST], version: (u32, u32), layout: &Layout) -> Outcome<Self> {
        let word = |field: Field| field.read(bytes) as u32;
        let is_set = |field: Field| field.read(bytes) != 0;
        let kind = layout.kind.map_or(GRID, |kind| kind.read(bytes));
        if ![NO_GRID, GRID, GRID_TOGETHER].contains(&kind) {
            let what = format!("a launch of type {kind}: queues and clusters are not simulated");
            return Err(Fault::Unsupported(what));
        }
        let group = match layout.together {
            Some(group) if kind == GRID_TOGETHER => group.map(word),
            _ => [1; 3],
        };
        let [valid, address, size] = &layout.constants;
        let banks = (0..BANKS).filter(|bank| is_set(valid.0.of(*bank, valid.1)));
        let constants = banks.map(|bank| Bank {
            number: bank as usize,
            address: address.0.of(bank, address.1).read(bytes),
            bytes: word(size.0.of(bank, size.1)),
        });
        let releases = layout.releases.iter().filter(|release| is_set(release.is_enabled));
        let releases = releases.map(|release| Release {
            address: release.address.read(bytes),
            payload: release.payload.read(bytes),
            size: match word(release.size) {
                0 => ReleaseSize::FourWords,
                1 => ReleaseSize::OneWord,
                _ => ReleaseSize::TwoWords,
            },
            reduction: is_set(release.reduces)
                .then(|| (word(release.operation), word(release.is_signed) == 1)),
            is_wide: release.is_wide.is_some_and(is_set),
        });
        let followed = layout.dependents.iter().filter(|dependent| is_set(dependent.is_enabled));
        let action = |dependent: &DependentFields| {
            let action = match dependent.action {
                Some(action) => Action::of(action.read(bytes))?,
                None => Action::Schedule,
            };
            let unknown =
                || Fault::Unsupported("a launch with a second that depends on it".to_owned());
            Some(dependent.pointer.ok_or_else(unknown).map(|pointer| (action, pointer.read(bytes))))
        };
        let dependents = followed.filter_map(action);
        let grid = array::from_fn(|axis| word(layout.grid[axis]).saturating_mul(group[axis]));
        let block = layout.block.map(word);
        let has_no_blocks = grid.contains(&0) && !block.contains(&0);
        Ok(Self {
            version,
            has_kernel: kind != NO_GRID && !has_no_blocks,
            grid,
            block,
            shared: word(layout.shared),
            registers: word(layout.registers),
            local: layout.local.map(word),
            program: layout.program.read(bytes),
            constants: constants.collect(),
            releases: releases.collect(),
            dependents: dependents.collect::<Outcome<_>>()?,
            is_cooperative: kind == GRID_TOGETHER || !NO_GROUP.contains(&layout.group.read(bytes)),
            waits_for: word(layout.waits_for),
            needs_schedule: is_set(layout.needs_schedule),
            samplers_by_header: is_set(layout.samplers_by_header),
        })
    }
}

/// The architectures of compute classes, by the numbers that compilers give them: AMPERE_COMPUTE_A and _B, ADA_COMPUTE_A,
/// HOPPER_COMPUTE_A, BLACKWELL_COMPUTE_A and _B. That of Orin, which shares its class with others, differs from theirs
/// in no instruction that is executed.
const ARCHITECTURES: [(u32, u32); 6] =
    [(0xc6c0, 80), (0xc7c0, 86), (0xc9c0, 89), (0xcbc0, 90), (0xcdc0, 100), (0xcec0, 120)];

/// What the code of a compute class is for.
pub(super) fn architecture(class: u32) -> Option<u32> {
    ARCHITECTURES.iter().find(|(known, _)| *known == class).map(|(_, sm)| *sm)
}

/// The same, as compilers name it.
pub(super) fn architecture_name(class: u32) -> String {
    match architecture(class) {
        Some(sm) => format!("sm_{sm}"),
        None => format!("class {class:#06x}"),
    }
}

impl std::fmt::Display for Qmd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [x, y, z] = self.grid;
        let [i, j, k] = self.block;
        write!(
            f,
            "QMD {}.{}, grid {x}x{y}x{z}, block {i}x{j}x{k}, {} bytes of shared memory, {} registers",
            self.version.0, self.version.1, self.shared, self.registers
        )?;
        let names =
            self.constants.iter().map(|bank| format!("{}: {} bytes", bank.number, bank.bytes));
        let names: Vec<String> = names.collect();
        if names.is_empty() { Ok(()) } else { write!(f, ", constants {}", names.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::field::with;
    use super::*;

    const COMPUTE: u32 = 0xc6c0;

    fn read(class: u32, fields: &[(u32, u32, u64)]) -> Outcome<Qmd> {
        let bytes = with(fields);
        let (version, layout) = layout(class, &bytes);
        Qmd::of(&bytes, version, layout.unwrap())
    }

    #[test]
    fn older_versions_say_how_much_a_semaphore_takes() {
        let fields = [
            (583, 580, 2),
            (579, 576, 4),
            (415, 384, 70_000),
            (607, 592, 128),
            (1584, 1536, 0x1_2345_6789_ab00),
            (642, 642, 1),
            (1072 + 128, 1024 + 128, 0x1_0000_0000_0100),
            (1087 + 128, 1075 + 128, 0x18),
            // The second semaphore: one word, reduced by a signed minimum.
            (139, 139, 1),
            (871, 832, 0xab_cdef_0120),
            (927, 896, 0xffff_fff0),
            (895, 895, 1),
            (890, 890, 1),
            (886, 884, 1),
            (889, 888, 1),
        ];
        let qmd = read(COMPUTE, &fields).unwrap();
        assert_eq!((qmd.version, qmd.grid[0], qmd.block[0]), ((2, 4), 70_000, 128));
        assert_eq!(qmd.program, 0x1_2345_6789_ab00);
        let bank = Bank { number: 2, address: 0x1_0000_0000_0100, bytes: 0x180 };
        assert_eq!(qmd.constants, [bank]);
        let release = Release {
            address: 0xab_cdef_0120,
            payload: 0xffff_fff0,
            size: ReleaseSize::OneWord,
            reduction: Some((1, true)),
            is_wide: false,
        };
        assert_eq!(qmd.releases, [release]);
    }

    #[test]
    fn what_depends_is_launched_where_the_action_says_so() {
        let v2_3 = [(583, 580, 2), (579, 576, 3), (511, 480, 0x1234), (141, 141, 1)];
        assert_eq!(read(COMPUTE, &v2_3).unwrap().dependents, [(Action::Schedule, 0x12_3400)]);
        for (action, expected) in [
            (0, vec![]),
            (1, vec![(Action::Schedule, 0x12_3400)]),
            (3, vec![(Action::Launch, 0x12_3400)]),
            (4, vec![(Action::Decrement, 0x12_3400)]),
        ] {
            let fields = [(583, 580, 3), (511, 480, 0x1234), (512, 512, 1), (515, 513, action)];
            assert_eq!(read(COMPUTE, &fields).unwrap().dependents, expected, "{action}");
        }
        // No header says where the second one is.
        let second = [(583, 580, 3), (517, 517, 1), (520, 518, 1)];
        assert!(matches!(read(COMPUTE, &second), Err(Fault::Unsupported(_))));
    }

    #[test]
    fn a_group_makes_a_launch_cooperative() {
        let version_5 = [(471, 468, 5), (153, 151, GRID)];
        for (group, is_cooperative) in [(0x3f, false), (0, false), (8, true)] {
            let older = read(COMPUTE, &[(583, 580, 3), (133, 128, group)]).unwrap();
            let [a, b] = version_5;
            let newer = read(BLACKWELL, &[a, b, (149, 144, group)]).unwrap();
            let found = [older, newer].map(|qmd| qmd.is_cooperative);
            assert_eq!(found, [is_cooperative; 2], "{group}");
        }
        // Two groups of eight blocks: of one type they are a grid of 16, of the other the group means nothing.
        for (kind, is_cooperative, width) in [(GRID, false, 2), (GRID_TOGETHER, true, 16)] {
            let [version, of_kind] = [(471, 468, 5), (153, 151, kind)];
            let [grid, group] = [(1279, 1248, 2), (2127, 2112, 8)];
            let qmd = read(BLACKWELL, &[version, of_kind, grid, group]).unwrap();
            assert_eq!((qmd.has_kernel, qmd.is_cooperative), (true, is_cooperative), "{kind}");
            assert_eq!(qmd.grid[0], width, "{kind}");
        }
        let cluster = read(BLACKWELL, &[(471, 468, 5), (153, 151, 3)]);
        assert!(matches!(cluster, Err(Fault::Unsupported(_))));
    }

    #[test]
    fn versions_are_told_by_class() {
        for (class, fields, expected) in [
            (COMPUTE, vec![(583, 580, 3)], Some((3, 0))),
            (0xcbc0, vec![(583, 580, 4)], Some((4, 0))),
            (BLACKWELL, vec![(583, 580, 4), (579, 576, 1)], Some((4, 1))),
            (BLACKWELL, vec![(471, 468, 5)], Some((5, 0))),
            // A part of an address there.
            (0xcbc0, vec![(583, 580, 4), (471, 468, 5)], Some((4, 0))),
            (BLACKWELL, vec![(471, 468, 5), (467, 464, 1)], None),
            (COMPUTE, vec![(583, 580, 1), (579, 576, 7)], None),
            (COMPUTE, vec![], None),
        ] {
            let (version, layout) = layout(class, &with(&fields));
            assert_eq!(layout.map(|_| version), expected, "{class:#x} {fields:?}");
        }
    }
}
