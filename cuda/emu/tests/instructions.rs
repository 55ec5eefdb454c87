//! Each instruction of machine code by itself, from its definition: words that are put together here, of which the text
//! says what they are, and what must be in registers and predicates behind them.

#![allow(clippy::unwrap_used, clippy::panic)]

use nvabi_emu::{Device, Launch, Placed};
use nvabi_sass::{Arch, decode};

/// Always executed.
const ALWAYS: u128 = 7 << 12;

const fn bits(start: u32, value: u128) -> u128 {
    value << start
}

/// `Rn = value`.
fn set(register: u128, value: u32) -> u128 {
    0x802 | ALWAYS | register << 16 | u128::from(value) << 32 | bits(72, 15)
}

/// What comes of one instruction in each lane: the registers 0 and 1, and the predicates as bits.
fn run(arch: Arch, word: u128, sources: [u64; 3]) -> Vec<[u32; 3]> {
    run_all(arch, &[word], sources)
}

/// What comes of some instructions, of which none is wrong.
fn run_all(arch: Arch, words: &[u128], sources: [u64; 3]) -> Vec<[u32; 3]> {
    let (report, lanes) = run_words(arch, words, sources);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    lanes
}

/// What comes of some instructions, and what is said of them.
fn run_words(arch: Arch, words: &[u128], sources: [u64; 3]) -> (nvabi_emu::Report, Vec<[u32; 3]>) {
    let mut code = Vec::new();
    for (register, value) in (4..).step_by(2).zip(sources) {
        code.extend([set(register, value as u32), set(register + 1, (value >> 32) as u32)]);
    }
    // Where a source is all ones, the number of the lane is meant.
    if sources[0] == LANES {
        code.push(0x919 | ALWAYS | 4 << 16);
    }
    // P4 to P6 are bits of the first source.
    code.push(0x804 | ALWAYS | 4 << 24 | 0x70 << 32);
    code.extend(words);
    // R2 = the predicates; R10 and R11 = where the lane's results go.
    code.push(0x803 | ALWAYS | 2 << 16 | 255 << 24 | 0xf << 32);
    code.push(0x919 | ALWAYS | 10 << 16);
    let mut device = Device::new();
    let out = device.alloc(32 * 16).unwrap();
    code.push(set(12, out as u32));
    code.push(
        0x824 | ALWAYS | 10 << 16 | 10 << 24 | 16 << 32 | 12 << 64 | bits(81, 7) | bits(87, 15),
    );
    code.push(set(11, (out >> 32) as u32));
    for (offset, register) in [(0u128, 0u128), (4, 1), (8, 2)] {
        let store = 0x386 | ALWAYS | 10 << 24 | register << 32 | offset << 40;
        code.push(store | bits(72, 1) | bits(73, 4) | bits(84, 1));
    }
    code.push(0x94d | ALWAYS | bits(87, 7));
    let bytes: Vec<u8> = code.into_iter().flat_map(u128::to_le_bytes).collect();
    let entry = device.alloc(bytes.len() as u64).unwrap();
    device.write(entry, &bytes).unwrap();
    let local_bytes = LOCAL_BYTES;
    let placed = Placed { sm: arch.number(), entry, local_bytes, ..Placed::default() };
    let launch = Launch { block: [32, 1, 1], threads: 1, ..Launch::default() };
    let report = device.launch_placed(&placed, &launch).unwrap();
    let read = |lane: u64, at: u64| {
        let mut word = [0; 4];
        device.read(out + 16 * lane + at, &mut word).unwrap();
        u32::from_le_bytes(word)
    };
    let lanes = (0..32).map(|lane| [read(lane, 0), read(lane, 4), read(lane, 8)]).collect();
    (report, lanes)
}

/// Bytes of local memory, from its first address on and up to its last.
const LOCAL_BYTES: [u64; 2] = [16, 64];

/// A source that is the number of the lane.
const LANES: u64 = u64::MAX - 1;

/// Sources in R4, R6 and R8, the result in R0.
fn three(opcode: u128) -> u128 {
    opcode | ALWAYS | 4 << 24 | 6 << 32 | 8 << 64
}

/// Sources in R4 and R6 or the second alone, with nothing at the third.
fn two(opcode: u128) -> u128 {
    opcode | ALWAYS | 4 << 24 | 6 << 32
}

const NO_OUT: u128 = 7 << 81 | 7 << 84;
/// Results in P0 and P1.
const OUT: u128 = 1 << 84;
const IN_FALSE: u128 = 15 << 87;
const IN_TRUE: u128 = 7 << 87;
const IN2_FALSE: u128 = 15 << 77;

/// Text, word, sources; what is in R0, R1 and the predicates (None is anything).
type Row = (&'static str, u128, [u64; 3], Option<u32>, Option<u32>, Option<u32>);

fn check(rows: &[Row]) {
    for (text, word, sources, low, high, predicates) in rows {
        let arch = [Arch::Sm80, Arch::Sm86, Arch::Sm90];
        let arch = arch.into_iter().find(|arch| decode(*arch, *word, 0).is_ok());
        let arch = arch.unwrap_or_else(|| panic!("{text}: {word:#034x} is no instruction"));
        assert_eq!(decode(arch, *word, 0).unwrap().to_string(), *text, "{word:#034x}");
        let got = run(arch, *word, *sources)[0];
        for (got, wanted) in got.into_iter().zip([low, high, predicates]) {
            if let Some(wanted) = wanted {
                assert_eq!(got, *wanted, "{text} of {sources:x?}: {got:#x}, not {wanted:#x}");
            }
        }
    }
}

fn f(value: f32) -> u64 {
    value.to_bits().into()
}

fn word(value: f32) -> Option<u32> {
    Some(value.to_bits())
}

const TINY: f32 = f32::from_bits(3);

#[test]
fn integers() {
    let add = three(0x210) | OUT | IN_FALSE | IN2_FALSE;
    let plain = three(0x210) | NO_OUT | IN_FALSE | IN2_FALSE;
    let imad = three(0x224) | bits(81, 7) | IN_FALSE;
    let wide = three(0x225) | IN_FALSE;
    let all = u64::from(u32::MAX);
    let signed = bits(73, 1);
    check(&[
        ("IADD3 R0, R4, R6, R8", plain, [1, 2, 4], Some(7), None, Some(0)),
        ("IADD3 R0, P0, P1, R4, R6, R8", add, [all, 1, 0], Some(0), None, Some(1)),
        ("IADD3 R0, P0, P1, R4, R6, R8", add, [all, all, all], Some(0xffff_fffd), None, Some(3)),
        ("IADD3 R0, P0, P1, R4, R6, R8", add, [all, 0, 0], Some(u32::MAX), None, Some(0)),
        (
            "IADD3 R0, P0, P1, -R4, R6, R8",
            add | bits(72, 1),
            [6, 5, 0],
            Some(u32::MAX),
            None,
            Some(0),
        ),
        ("IADD3 R0, P0, P1, -R4, R6, R8", add | bits(72, 1), [5, 5, 0], Some(0), None, Some(1)),
        ("IADD3 R0, P0, P1, -R4, R6, R8", add | bits(72, 1), [0, 5, 0], Some(5), None, Some(1)),
        (
            "IADD3.X R0, P0, P1, R4, R6, R8, PT, !PT",
            three(0x210) | bits(74, 1) | OUT | IN_TRUE | IN2_FALSE,
            [all, 0, 0],
            Some(0),
            None,
            Some(1),
        ),
        ("IMAD R0, R4, R6, R8", imad | signed, [3, 0xffff_fffe, 10], Some(4), None, None),
        ("IMAD R0, R4, R6, -R8", imad | signed | bits(75, 1), [3, 5, 1], Some(14), None, None),
        (
            "IMAD.WIDE R0, R4, R6, R8",
            wide | bits(81, 7) | signed,
            [all, 2, 1 << 33],
            Some(0xffff_fffe),
            Some(1),
            None,
        ),
        (
            "IMAD.WIDE.U32 R0, R4, R6, R8",
            wide | bits(81, 7),
            [all, 2, 0],
            Some(0xffff_fffe),
            Some(1),
            None,
        ),
        (
            "IMAD.WIDE.U32 R0, P0, R4, R6, R8",
            wide,
            [all, all, u64::MAX],
            Some(0),
            Some(0xffff_fffe),
            Some(1),
        ),
        (
            "IMAD.WIDE.U32 R0, P0, R4, R6, R8",
            wide,
            [all, all, 0],
            Some(1),
            Some(0xffff_fffe),
            Some(0),
        ),
        (
            "VIMNMX3 R0, R4, R6, R8, !PT",
            three(0x20f) | bits(72, 1) | IN_FALSE,
            [all, 3, 2],
            Some(3),
            None,
            None,
        ),
        (
            "IMAD.WIDE.U32.X R0, P0, R4, R6, R8, PT",
            three(0x225) | IN_TRUE | bits(74, 1),
            [2, 3, 1],
            Some(8),
            Some(0),
            Some(0),
        ),
        (
            "IMAD.HI.U32 R0, R4, R6, R8",
            three(0x227) | bits(81, 7) | IN_FALSE,
            [1 << 31, 6, 7 << 32],
            Some(10),
            None,
            None,
        ),
        (
            "IMAD.HI R0, R4, R6, R8",
            three(0x227) | bits(81, 7) | IN_FALSE | signed,
            [all, 1, 0],
            Some(u32::MAX),
            None,
            None,
        ),
        ("IABS R0, R6", two(0x213) ^ 4 << 24, [0, 0xffff_fff9, 0], Some(7), None, None),
        (
            "IMNMX R0, R4, R6, PT",
            two(0x217) | signed | IN_TRUE | NO_OUT,
            [all, 1, 0],
            Some(u32::MAX),
            None,
            None,
        ),
        (
            "IMNMX.U32 R0, R4, R6, PT",
            two(0x217) | IN_TRUE | NO_OUT,
            [all, 1, 0],
            Some(1),
            None,
            None,
        ),
        (
            "IMNMX R0, R4, R6, !PT",
            two(0x217) | signed | IN_FALSE | NO_OUT,
            [all, 1, 0],
            Some(1),
            None,
            None,
        ),
        (
            "IDP.4A.U8.S8 R0, R4, R6, R8",
            three(0x226) | bits(74, 1),
            [0x0201, 0xff03, 9],
            Some(10),
            None,
            None,
        ),
        (
            "VABSDIFF.U32 R0, R4, R6, R8",
            three(0x214) | bits(81, 7),
            [3, all, 1],
            Some(0xffff_fffd),
            None,
            None,
        ),
        (
            "VABSDIFF R0, R4, R6, R8",
            three(0x214) | bits(81, 7) | signed,
            [3, all, 1],
            Some(5),
            None,
            None,
        ),
        (
            "IDP.2A.LO.S16.U8 R0, R4, R6, R8",
            three(0x226) | bits(76, 1) | bits(73, 1),
            [0x0002_ffff, 0x0304_0105, 100],
            Some(97),
            None,
            None,
        ),
        (
            "IDP.2A.HI.U16.S8 R0, R4, R6, R8",
            three(0x226) | bits(76, 3) | bits(74, 1),
            [0x0002_ffff, 0xff04_0000, 1],
            Some(0xffff * 4 - 2 + 1),
            None,
            None,
        ),
        (
            "VABSDIFF4.U8 R0, R4, R6, R8",
            three(0x215) | bits(81, 7),
            [0xff00_0410, 0x00ff_0220, 7],
            Some(0xffff_0210),
            None,
            None,
        ),
        (
            "VABSDIFF4.U8.ACC R0, R4, R6, R8",
            three(0x215) | bits(81, 7) | bits(75, 1),
            [0xff00_0410, 0x00ff_0220, 7],
            Some(0xff + 0xff + 2 + 0x10 + 7),
            None,
            None,
        ),
        ("VIADD R0, R4, R6", two(0x236), [3, all, 0], Some(2), None, None),
        (
            "VIMNMX R0, R4, R6, !PT",
            two(0x248) | bits(72, 1) | IN_FALSE | NO_OUT,
            [3, all, 0],
            Some(3),
            None,
            None,
        ),
        (
            "VIADDMNMX.U32 R0, R4, R6, R8, PT",
            three(0x246) | IN_TRUE,
            [3, 4, 5],
            Some(5),
            None,
            None,
        ),
    ]);
}

#[test]
fn bits_and_shifts() {
    let lop = three(0x212) | IN_FALSE;
    let lea = two(0x211) | 8 << 64 | IN_FALSE;
    let shf = three(0x219);
    let (left, hi, wrap) = (bits(76, 1), bits(80, 1), bits(75, 1));
    let kind = |value: u128| bits(73, value);
    // The types of a shift in the order of the field, and right is where bit 76 is set.
    let (s64, u64_, s32, u32_) = (kind(0), kind(1), kind(2), kind(3));
    let right = left;
    let flo = two(0x300) ^ 4 << 24;
    check(&[
        (
            "LOP3.LUT R0, R4, R6, R8, 0xca, !PT",
            lop | bits(72, 0xca) | bits(81, 7),
            [0xf0f0, 0xff00, 0x1234],
            Some(0xf204),
            None,
            None,
        ),
        (
            "LOP3.LUT P0, R0, R4, R6, R8, 0xc0, !PT",
            lop | bits(72, 0xc0),
            [0xf, 0xf0, 0],
            Some(0),
            None,
            Some(0),
        ),
        (
            "LOP3.LUT P0, R0, R4, R6, R8, 0xfe, !PT",
            lop | bits(72, 0xfe),
            [0xf, 0xf0, 0x1000],
            Some(0x10ff),
            None,
            Some(1),
        ),
        (
            "LEA R0, P0, R4, R6, 0x4",
            lea | bits(75, 4),
            [0x1000_0001, 0xffff_fff0, 0],
            Some(0),
            None,
            Some(1),
        ),
        (
            "LEA R0, P0, -R4, R6, 0x1",
            lea | bits(75, 1) | bits(72, 1),
            [3, 10, 0],
            Some(4),
            None,
            Some(1),
        ),
        (
            "LEA.HI R0, P0, R4, R6, R8, 0x4",
            lea | bits(75, 4) | hi,
            [0xf000_0000, 1, 0x21],
            Some(0x220),
            None,
            Some(0),
        ),
        (
            "LEA.HI.SX32 R0, P0, R4, R6, 0x1",
            lea | bits(75, 1) | hi | bits(73, 1),
            [0x8000_0000, 1, 0],
            Some(0),
            None,
            Some(1),
        ),
        ("SHF.L.U32 R0, R4, R6, R8", shf | u32_, [3, 4, 0], Some(0x30), None, None),
        ("SHF.L.U32 R0, R4, R6, R8", shf | u32_, [3, 40, 0], Some(0), None, None),
        (
            "SHF.L.W.U32.HI R0, R4, R6, R8",
            shf | u32_ | wrap | hi,
            [0x8000_0001, 36, 0xf],
            Some(0xf8),
            None,
            None,
        ),
        ("SHF.L.U64.HI R0, R4, R6, R8", shf | u64_ | hi, [0x8000_0000, 33, 1], Some(0), None, None),
        (
            "SHF.R.U32.HI R0, R4, R6, R8",
            shf | right | u32_ | hi,
            [0, 4, 0x8000_0000],
            Some(0x0800_0000),
            None,
            None,
        ),
        (
            "SHF.R.S32.HI R0, R4, R6, R8",
            shf | right | s32 | hi,
            [0, 99, 0x8000_0000],
            Some(u32::MAX),
            None,
            None,
        ),
        (
            "SHF.R.U64 R0, R4, R6, R8",
            shf | right | u64_,
            [0x10, 4, 0x3],
            Some(0x3000_0001),
            None,
            None,
        ),
        (
            "SHF.R.S64 R0, R4, R6, R8",
            shf | right | s64,
            [0, 40, 0x8000_0000],
            Some(0xff80_0000),
            None,
            None,
        ),
        ("LEA R0, P0, R4, R6, 0x14", lea | bits(75, 20), [1, 1, 0], Some(0x10_0001), None, Some(0)),
        (
            "SHF.R.S64.HI R0, R4, R6, R8",
            shf | right | s64 | hi,
            [0, 8, 0x8000_0000],
            Some(0xff80_0000),
            None,
            None,
        ),
        (
            "PRMT R0, R4, R6, R8",
            three(0x216),
            [0x4433_2211, 0x7091, 0x8877_6655],
            Some(0x8811_0022),
            None,
            None,
        ),
        (
            "PRMT.F4E R0, R4, R6, R8",
            three(0x216) | bits(72, 1),
            [0x4433_2211, 3, 0x8877_6655],
            Some(0x7766_5544),
            None,
            None,
        ),
        (
            "PRMT.B4E R0, R4, R6, R8",
            three(0x216) | bits(72, 2),
            [0x4433_2211, 1, 0x8877_6655],
            Some(0x7788_1122),
            None,
            None,
        ),
        (
            "PRMT.RC8 R0, R4, R6, R8",
            three(0x216) | bits(72, 3),
            [0x4433_2211, 2, 0],
            Some(0x3333_3333),
            None,
            None,
        ),
        (
            "PRMT.ECL R0, R4, R6, R8",
            three(0x216) | bits(72, 4),
            [0x4433_2211, 2, 0],
            Some(0x4433_3333),
            None,
            None,
        ),
        (
            "PRMT.ECR R0, R4, R6, R8",
            three(0x216) | bits(72, 5),
            [0x4433_2211, 2, 0],
            Some(0x3333_2211),
            None,
            None,
        ),
        (
            "PRMT.RC16 R0, R4, R6, R8",
            three(0x216) | bits(72, 6),
            [0x4433_2211, 1, 0],
            Some(0x4433_4433),
            None,
            None,
        ),
        ("SEL R0, R4, R6, PT", two(0x207) | IN_TRUE, [1, 2, 0], Some(1), None, None),
        ("SEL R0, R4, R6, !PT", two(0x207) | IN_FALSE, [1, 2, 0], Some(2), None, None),
        ("SGXT R0, R4, R6", two(0x21a) | bits(73, 1), [0x1f8, 9, 0], Some(0xffff_fff8), None, None),
        ("SGXT.U32 R0, R4, R6", two(0x21a), [0x1ff8, 9, 0], Some(0x1f8), None, None),
        (
            "SGXT R0, R4, R6",
            two(0x21a) | bits(73, 1),
            [0x8000_0000, 40, 0],
            Some(0x8000_0000),
            None,
            None,
        ),
        ("BMSK R0, R4, R6", two(0x21b), [4, 8, 0], Some(0xff0), None, None),
        ("BMSK R0, R4, R6", two(0x21b), [40, 8, 0], Some(0), None, None),
        ("BMSK.W R0, R4, R6", two(0x21b) | wrap, [36, 33, 0], Some(0x10), None, None),
        ("POPC R0, R6", two(0x309) ^ 4 << 24, [0, 0xf0f1, 0], Some(9), None, None),
        (
            "POPC R0, ~R6",
            (two(0x309) ^ 4 << 24) | bits(63, 1),
            [0, 0xf0f1, 0],
            Some(23),
            None,
            None,
        ),
        ("FLO.U32 R0, P0, R6", flo, [0, 0x8000, 0], Some(15), None, Some(1)),
        ("FLO.U32 R0, P0, R6", flo, [0, 0, 0], Some(u32::MAX), None, Some(0)),
        ("FLO.U32.SH R0, P0, R6", flo | bits(74, 1), [0, 0x8000, 0], Some(16), None, Some(1)),
        ("FLO R0, P0, R6", flo | bits(73, 1), [0, 0xffff_fff0, 0], Some(3), None, Some(1)),
        ("BREV R0, R6", two(0x301) ^ 4 << 24, [0, 5, 0], Some(0xa000_0000), None, None),
    ]);
}

#[test]
fn comparisons_and_predicates() {
    let isetp = two(0x20c) | OUT | IN_TRUE | bits(68, 15);
    let signed = bits(73, 1);
    let compare = |number: u128| bits(76, number);
    let fsetp = two(0x20b) | OUT | IN_TRUE;
    let nan = f(f32::NAN);
    let plop = 0x81c | ALWAYS | OUT | IN_TRUE | bits(77, 7) | bits(68, 15);
    check(&[
        (
            "ISETP.LT.AND P0, P1, R4, R6, PT",
            isetp | compare(1) | signed,
            [0xffff_ffff, 0, 0],
            None,
            None,
            Some(1),
        ),
        (
            "ISETP.LT.U32.AND P0, P1, R4, R6, PT",
            isetp | compare(1),
            [0xffff_ffff, 0, 0],
            None,
            None,
            Some(2),
        ),
        (
            "ISETP.EQ.AND P0, P1, R4, R6, PT",
            isetp | compare(2) | signed,
            [5, 5, 0],
            None,
            None,
            Some(1),
        ),
        (
            "ISETP.LE.AND P0, P1, R4, R6, PT",
            isetp | compare(3) | signed,
            [5, 5, 0],
            None,
            None,
            Some(1),
        ),
        (
            "ISETP.GT.AND P0, P1, R4, R6, PT",
            isetp | compare(4) | signed,
            [5, 5, 0],
            None,
            None,
            Some(2),
        ),
        (
            "ISETP.NE.AND P0, P1, R4, R6, PT",
            isetp | compare(5) | signed,
            [5, 5, 0],
            None,
            None,
            Some(2),
        ),
        (
            "ISETP.GE.AND P0, P1, R4, R6, PT",
            isetp | compare(6) | signed,
            [5, 5, 0],
            None,
            None,
            Some(1),
        ),
        (
            "ISETP.GE.OR P0, P1, R4, R6, PT",
            isetp | compare(6) | signed | bits(74, 1),
            [4, 5, 0],
            None,
            None,
            Some(3),
        ),
        (
            "ISETP.GE.XOR P0, P1, R4, R6, PT",
            isetp | compare(6) | signed | bits(74, 2),
            [4, 5, 0],
            None,
            None,
            Some(1),
        ),
        (
            "ISETP.GE.AND.EX P0, P1, R4, R6, PT, !PT",
            isetp | compare(6) | signed | bits(72, 1),
            [5, 5, 0],
            None,
            None,
            Some(2),
        ),
        (
            "ISETP.GE.AND.EX P0, P1, R4, R6, PT, !PT",
            isetp | compare(6) | signed | bits(72, 1),
            [6, 5, 0],
            None,
            None,
            Some(1),
        ),
        (
            "FSETP.LT.AND P0, P1, R4, R6, PT",
            fsetp | compare(1),
            [f(1.0), f(2.0), 0],
            None,
            None,
            Some(1),
        ),
        (
            "FSETP.LT.AND P0, P1, R4, R6, PT",
            fsetp | compare(1),
            [nan, f(2.0), 0],
            None,
            None,
            Some(2),
        ),
        (
            "FSETP.GEU.AND P0, P1, R4, R6, PT",
            fsetp | compare(14),
            [nan, f(2.0), 0],
            None,
            None,
            Some(1),
        ),
        (
            "FSETP.NUM.AND P0, P1, R4, R6, PT",
            fsetp | compare(7),
            [nan, f(2.0), 0],
            None,
            None,
            Some(2),
        ),
        (
            "FSETP.GT.AND P0, P1, |R4|, -R6, PT",
            fsetp | compare(4) | bits(73, 1) | bits(63, 1),
            [f(-1.0), f(2.0), 0],
            None,
            None,
            Some(1),
        ),
        (
            "FSETP.EQ.FTZ.AND P0, P1, R4, R6, PT",
            fsetp | compare(2) | bits(80, 1),
            [f(TINY), 0, 0],
            None,
            None,
            Some(1),
        ),
        (
            "PLOP3.LUT P0, P1, PT, PT, !PT, 0x40, 0xf",
            plop | bits(72, 8) | bits(16, 0xf),
            [0; 3],
            None,
            None,
            Some(1),
        ),
        (
            "PLOP3.LUT P0, P1, R4.SIGN, R6.SIGN, R8.SIGN, 0x2, 0x40",
            three(0x21f) | OUT | bits(72, 2) | bits(16, 0x40),
            [1, 1, 0x8000_0000],
            None,
            None,
            Some(1),
        ),
        (
            "PLOP3.LUT P0, P1, R4.SIGN, R6.SIGN, R8.SIGN, 0x2, 0x40",
            three(0x21f) | OUT | bits(72, 2) | bits(16, 0x40),
            [0xffff_ffff, 0x8000_0000, 1],
            None,
            None,
            Some(2),
        ),
        (
            "DSETP.GT.AND P0, P1, R4, R6, PT",
            two(0x22a) | OUT | IN_TRUE | compare(4),
            [2f64.to_bits(), 1f64.to_bits(), 0],
            None,
            None,
            Some(1),
        ),
        (
            "DSETP.MAX.AND P0, P1, R4, R6, PT",
            two(0x22a) | OUT | IN_TRUE | compare(15),
            [f64::NAN.to_bits(), f64::NAN.to_bits(), 0],
            None,
            None,
            Some(2),
        ),
        (
            "DSETP.MAX.AND P0, P1, R4, R6, PT",
            two(0x22a) | OUT | IN_TRUE | compare(15),
            [f64::NAN.to_bits(), 1f64.to_bits(), 0],
            None,
            None,
            Some(0),
        ),
        (
            "DSETP.MIN.AND P0, P1, R4, R6, PT",
            two(0x22a) | OUT | IN_TRUE,
            [1f64.to_bits(), 2f64.to_bits(), 0],
            None,
            None,
            Some(1),
        ),
        (
            "R2P PR, R4, 0x7f",
            0x804 | ALWAYS | 4 << 24 | 0x7f << 32,
            [0x55, 0, 0],
            None,
            None,
            Some(0x5),
        ),
    ]);
}

#[test]
fn floats() {
    let (ftz, sat) = (bits(80, 1), bits(77, 1));
    let round = |mode: u128| bits(78, mode);
    let (down, up, zero) = (round(1), round(2), round(3));
    let small = 2f32.powi(-30);
    let next = |value: f32| word(f32::from_bits(value.to_bits() + 1));
    let below = |value: f32| word(f32::from_bits(value.to_bits() - 1));
    let d = |value: f64| value.to_bits();
    let halves = |value: f64| (Some(value.to_bits() as u32), Some((value.to_bits() >> 32) as u32));
    let (third_low, third_high) = halves(1.0 / 3.0 * 2.0);
    let up64 = halves(f64::from_bits(1f64.to_bits() + 1));
    let scaled = |power: u128| two(0x220) | bits(84, power);
    let mufu = |function: u128| (two(0x308) ^ 4 << 24) | bits(74, function);
    check(&[
        ("FADD R0, R4, R6", two(0x221), [f(1.5), f(2.0), 0], word(3.5), None, None),
        (
            "FADD R0, -R4, |R6|",
            two(0x221) | bits(72, 1) | bits(62, 1),
            [f(1.5), f(-2.0), 0],
            word(0.5),
            None,
            None,
        ),
        ("FADD R0, R4, R6", two(0x221), [f(TINY), f(TINY), 0], Some(6), None, None),
        ("FADD.FTZ R0, R4, R6", two(0x221) | ftz, [f(TINY), f(TINY), 0], Some(0), None, None),
        ("FADD.SAT R0, R4, R6", two(0x221) | sat, [f(1.5), f(2.0), 0], word(1.0), None, None),
        ("FADD.RP R0, R4, R6", two(0x221) | up, [f(1.0), f(small), 0], next(1.0), None, None),
        ("FADD.RM R0, R4, R6", two(0x221) | down, [f(1.0), f(-small), 0], below(1.0), None, None),
        ("FADD.RZ R0, R4, R6", two(0x221) | zero, [f(1.0), f(small), 0], word(1.0), None, None),
        ("FMUL R0, R4, R6", two(0x220) | bits(84, 4), [f(1.5), f(-2.0), 0], word(-3.0), None, None),
        ("FMUL.D8 R0, R4, R6", scaled(1), [f(1.5), f(-2.0), 0], word(-0.375), None, None),
        ("FMUL.D4 R0, R4, R6", scaled(2), [f(1.5), f(-2.0), 0], word(-0.75), None, None),
        ("FMUL.D2 R0, R4, R6", scaled(3), [f(1.5), f(-2.0), 0], word(-1.5), None, None),
        ("FMUL.M2 R0, R4, R6", scaled(5), [f(1.5), f(-2.0), 0], word(-6.0), None, None),
        ("FMUL.M4 R0, R4, R6", scaled(6), [f(1.5), f(-2.0), 0], word(-12.0), None, None),
        ("FMUL.M8 R0, R4, R6", scaled(7), [f(1.5), f(-2.0), 0], word(-24.0), None, None),
        // Rounded once: a half of 5 / 4 of the least number is 5 / 8 of it.
        ("FMUL.D2 R0, R4, R6", scaled(3), [f(TINY), f(5.0 / 12.0), 0], Some(1), None, None),
        ("FMUL.FTZ.D2 R0, R4, R6", scaled(3) | ftz, [f(TINY), f(1.0), 0], Some(0), None, None),
        ("FMUL.M4.SAT R0, R4, R6", scaled(6) | sat, [f(0.5), f(0.6), 0], word(1.0), None, None),
        (
            "FFMA R0, R4, R6, R8",
            three(0x223),
            [f(1.0 + f32::EPSILON), f(1.0 - f32::EPSILON), f(-1.0)],
            word(-f32::EPSILON * f32::EPSILON),
            None,
            None,
        ),
        (
            "FFMA.RP R0, R4, R6, R8",
            three(0x223) | up,
            [f(1.0), f(1.0), f(small)],
            next(1.0),
            None,
            None,
        ),
        (
            "FMNMX R0, R4, R6, PT",
            two(0x209) | IN_TRUE,
            [f(1.0), f(-0.0), 0],
            word(-0.0),
            None,
            None,
        ),
        (
            "FMNMX R0, R4, R6, !PT",
            two(0x209) | IN_FALSE,
            [f(f32::NAN), f(2.0), 0],
            word(2.0),
            None,
            None,
        ),
        (
            "FSEL R0, -R4, R6, PT",
            two(0x208) | IN_TRUE | bits(72, 1),
            [f(1.0), f(2.0), 0],
            word(-1.0),
            None,
            None,
        ),
        (
            "FSET.BF.GT.AND R0, R4, R6, PT",
            two(0x20a) | IN_TRUE | bits(76, 4),
            [f(2.0), f(1.0), 0],
            word(1.0),
            None,
            None,
        ),
        (
            "DADD R0, R4, R8",
            (three(0x229)) ^ 6 << 32,
            [d(1.0), 0, d(0.5)],
            halves(1.5).0,
            halves(1.5).1,
            None,
        ),
        (
            "DADD.RP R0, R4, R8",
            ((three(0x229)) ^ 6 << 32) | up,
            [d(1.0), 0, d(1e-40)],
            up64.0,
            up64.1,
            None,
        ),
        (
            "DMUL R0, R4, -R6",
            two(0x228) | bits(63, 1),
            [d(1.5), d(2.0), 0],
            halves(-3.0).0,
            halves(-3.0).1,
            None,
        ),
        (
            "DFMA R0, R4, R6, R8",
            three(0x22b),
            [d(1.0 / 3.0), d(2.0), d(0.0)],
            third_low,
            third_high,
            None,
        ),
        ("MUFU.COS R0, R6", mufu(0), [0, f(0.5), 0], word(-1.0), None, None),
        ("MUFU.SIN R0, R6", mufu(1), [0, f(0.25), 0], word(1.0), None, None),
        ("MUFU.EX2 R0, R6", mufu(2), [0, f(-3.0), 0], word(0.125), None, None),
        ("MUFU.LG2 R0, R6", mufu(3), [0, f(32.0), 0], word(5.0), None, None),
        ("MUFU.RCP R0, R6", mufu(4), [0, f(4.0), 0], word(0.25), None, None),
        ("MUFU.RSQ R0, R6", mufu(5), [0, f(16.0), 0], word(0.25), None, None),
        ("MUFU.RCP64H R0, R6", mufu(6), [0, d(4.0) >> 32, 0], halves(0.25).1, None, None),
        ("MUFU.SQRT R0, R6", mufu(8), [0, f(9.0), 0], word(3.0), None, None),
        ("MUFU.TANH R0, R6", mufu(9), [0, 0, 0], word(0.0), None, None),
        ("MUFU.TANH R0, R6", mufu(9), [0, f(TINY), 0], word(TINY), None, None),
        // Of many turns only the last counts.
        ("MUFU.SIN R0, R6", mufu(1), [0, f(1e30), 0], word(0.0), None, None),
        (
            "MUFU.COS R0, R6",
            mufu(0),
            [0, f(1_048_576.5 - 0.25), 0],
            word(std::f64::consts::FRAC_PI_2.cos() as f32),
            None,
            None,
        ),
        (
            "MUFU.EX2.F16 R0, R6.H1",
            mufu(2) ^ bits(73, 1) | bits(60, 1),
            [0, 0x3c00_0000, 0],
            Some(0x4000),
            None,
            None,
        ),
        // Exactly nothing is -0 where it is rounded downwards.
        ("FADD.RM R0, R4, R6", two(0x221) | down, [f(1.0), f(-1.0), 0], word(-0.0), None, None),
        ("FADD.RM R0, R4, R6", two(0x221) | down, [f(0.0), f(-0.0), 0], word(-0.0), None, None),
        ("FADD.RM R0, R4, R6", two(0x221) | down, [f(0.0), f(0.0), 0], word(0.0), None, None),
        ("FADD.RZ R0, R4, R6", two(0x221) | zero, [f(1.0), f(-1.0), 0], word(0.0), None, None),
        (
            "FFMA.RM R0, R4, R6, R8",
            three(0x223) | down,
            [f(2.0), f(3.0), f(-6.0)],
            word(-0.0),
            None,
            None,
        ),
        (
            "DADD.RM R0, R4, R8",
            ((three(0x229)) ^ 6 << 32) | down,
            [d(1.0), 0, d(-1.0)],
            Some(0),
            Some(0x8000_0000),
            None,
        ),
        (
            "DFMA.RM R0, R4, R6, R8",
            three(0x22b) | down,
            [d(2.0), d(3.0), d(-6.0)],
            Some(0),
            Some(0x8000_0000),
            None,
        ),
        (
            "FMNMX.XORSIGN R0, |R4|, |R6|, PT",
            two(0x209) | IN_TRUE | bits(73, 1) | bits(62, 1) | bits(82, 1),
            [f(-1.0), f(2.0), 0],
            word(-1.0),
            None,
            None,
        ),
    ]);
}

#[test]
fn conversions() {
    let one = |opcode: u128| two(opcode) ^ 4 << 24;
    let trunc = |mode: u128| bits(78, mode);
    let f2i = one(0x305) | bits(84, 2);
    let (s32, u32_) = (bits(72, 1) | bits(75, 2), bits(75, 2));
    let i2f = one(0x306) | bits(75, 2) | bits(85, 1);
    check(&[
        ("F2I R0, R6", f2i | s32, [0, f(-2.5), 0], Some(-2i32 as u32), None, None),
        ("F2I.FLOOR R0, R6", f2i | s32 | trunc(1), [0, f(-2.5), 0], Some(-3i32 as u32), None, None),
        ("F2I.CEIL R0, R6", f2i | s32 | trunc(2), [0, f(2.1), 0], Some(3), None, None),
        ("F2I.TRUNC R0, R6", f2i | s32 | trunc(3), [0, f(-2.9), 0], Some(-2i32 as u32), None, None),
        ("F2I.U32.TRUNC R0, R6", f2i | u32_ | trunc(3), [0, f(-2.9), 0], Some(0), None, None),
        (
            "F2I.U32.TRUNC R0, R6",
            f2i | u32_ | trunc(3),
            [0, f(1e20), 0],
            Some(u32::MAX),
            None,
            None,
        ),
        // Without NTZ a NaN is the highest bit.
        ("F2I R0, R6", f2i | s32, [0, f(f32::NAN), 0], Some(0x8000_0000), None, None),
        ("F2I.NTZ R0, R6", f2i | s32 | bits(77, 1), [0, f(f32::NAN), 0], Some(0), None, None),
        (
            "F2F.BF16.F32 R0, R6",
            one(0x304) | bits(77, 1) | bits(85, 1),
            [0, f(1.0), 0],
            Some(0x3f80),
            None,
            None,
        ),
        (
            "F2IP.U8.F32.NTZ R0, RZ, R6, RZ",
            0x243 | ALWAYS | 255 << 24 | 6 << 32 | 255 << 64 | bits(74, 1),
            [0, f(300.0), 0],
            Some(255),
            None,
            None,
        ),
        (
            "F2FP.RELU.BF16.MERGE_C R0, R6, RZ",
            0x23e | ALWAYS | 255 << 24 | 6 << 32 | 255 << 64 | bits(75, 3) | bits(78, 1),
            [0, f(-2.0), 0],
            Some(0),
            None,
            None,
        ),
        (
            "FRND.FTZ.CEIL R0, R6",
            one(0x307) | bits(75, 2) | bits(84, 2) | trunc(2) | bits(80, 1),
            [0, f(TINY), 0],
            word(0.0),
            None,
            None,
        ),
        ("I2F R0, R6", i2f | bits(74, 1), [0, 0xffff_ffff, 0], word(-1.0), None, None),
        ("I2F.U32 R0, R6", i2f, [0, 0xffff_ffff, 0], word(4_294_967_296.0), None, None),
        (
            "I2F.U32.RZ R0, R6",
            i2f | bits(78, 3),
            [0, 0xffff_ffff, 0],
            Some(0x4f7f_ffff),
            None,
            None,
        ),
        (
            "F2F.F64.F32 R0, R6",
            one(0x310) | bits(75, 3) | bits(84, 2),
            [0, f(1.5), 0],
            Some(0),
            Some(0x3ff8_0000),
            None,
        ),
        (
            "F2F.F32.F64 R0, R6",
            one(0x310) | bits(75, 2) | bits(84, 3),
            [0, 1.5f64.to_bits(), 0],
            word(1.5),
            None,
            None,
        ),
        (
            "FRND.FLOOR R0, R6",
            one(0x307) | bits(75, 2) | bits(84, 2) | trunc(1),
            [0, f(-1.5), 0],
            word(-2.0),
            None,
            None,
        ),
        (
            "FRND R0, R6",
            one(0x307) | bits(75, 2) | bits(84, 2),
            [0, f(2.5), 0],
            word(2.0),
            None,
            None,
        ),
    ]);
}

#[test]
fn two_halves() {
    let (one, two_, three_, half) = (0x3c00u64, 0x4000u64, 0x4200u64, 0x3800u64);
    let pair = |high: u64, low: u64| high << 16 | low;
    let fma = three(0x231);
    check(&[
        (
            "HADD2 R0, R4, R6",
            two(0x230),
            [pair(one, two_), pair(two_, half), 0],
            Some(0x4200_4100),
            None,
            None,
        ),
        (
            "HADD2 R0, R4.H0_H0, -R6",
            two(0x230) | bits(74, 2) | bits(63, 1),
            [pair(one, two_), pair(two_, half), 0],
            Some(0x0000_3e00),
            None,
            None,
        ),
        (
            "HADD2.F32 R0, R4, R6",
            two(0x230) | bits(78, 1),
            [pair(one, two_), pair(two_, half), 0],
            word(2.5),
            None,
            None,
        ),
        (
            "HMUL2 R0, R4, R6",
            two(0x232),
            [pair(one, two_), pair(two_, half), 0],
            Some(0x4000_3c00),
            None,
            None,
        ),
        (
            "HFMA2 R0, R4, R6, R8",
            fma,
            [pair(one, two_), pair(two_, half), pair(one, one)],
            Some(0x4200_4000),
            None,
            None,
        ),
        (
            "HFMA2.RELU R0, R4, R6, -R8",
            fma | bits(79, 1) | bits(84, 1) | IN_TRUE,
            [pair(one, two_), pair(two_, half), pair(three_, three_)],
            Some(0),
            None,
            None,
        ),
        (
            // The upper half has the lower half of the source, and the lower the negated upper.
            "HFMA2 R0, R4, R6.H0_NH1, R8",
            fma | bits(86, 1),
            [pair(one, one), pair(two_, half), 0],
            Some(0x3800_c000),
            None,
            None,
        ),
        (
            "HFMA2.BF16_V2 R0, R4, R6, R8",
            fma | bits(85, 1),
            [0x3f80_4000, 0x4000_3f00, 0x3f80_3f80],
            Some(0x4040_4000),
            None,
            None,
        ),
        (
            "HMNMX2 R0, R4, R6, PT",
            two(0x240) | IN_TRUE,
            [pair(one, two_), pair(two_, half), 0],
            Some(0x3c00_3800),
            None,
            None,
        ),
        (
            "HMNMX2.XORSIGN R0, |R4|, |R6|, PT",
            two(0x240) | IN_TRUE | bits(73, 1) | bits(62, 1) | bits(82, 1),
            [pair(0xbc00, two_), pair(two_, half), 0],
            Some(0xbc00_3800),
            None,
            None,
        ),
        (
            "HSETP2.GT.AND P0, P1, R4, R6, PT",
            two(0x234) | OUT | IN_TRUE | bits(76, 4),
            [pair(one, two_), pair(two_, half), 0],
            None,
            None,
            Some(1),
        ),
        (
            "HSET2.BF.GT.AND R0, R4, R6, PT",
            two(0x233) | IN_TRUE | bits(71, 1) | bits(76, 4),
            [pair(one, two_), pair(two_, half), 0],
            Some(0x3c00),
            None,
            None,
        ),
        (
            "I2IP.S8.S32.SAT R0, R4, R6, R8",
            three(0x239) | bits(76, 1),
            [(-300i32 as u32).into(), 100, 0x7777_1234],
            Some(0x1234_8064),
            None,
            None,
        ),
        (
            "I2IP.U8.S32.SAT R0, R4, R6, R8",
            three(0x239),
            [(-300i32 as u32).into(), 300, 0],
            Some(0x0000_00ff),
            None,
            None,
        ),
        (
            "I2IP.S16.S32.SAT R0, R4, R6, R8",
            three(0x239) | bits(76, 3),
            [40_000, (-2i32 as u32).into(), 0],
            Some(0x7fff_fffe),
            None,
            None,
        ),
        // A tie, which goes to the even one, and what is nearest above.
        (
            "F2FP.TF32.F32.PACK_B R0, R6",
            TO_TF32,
            [0, 0x3f80_1000, 0],
            Some(0x3f80_0000),
            None,
            None,
        ),
        (
            "F2FP.TF32.F32.PACK_B R0, R6",
            TO_TF32,
            [0, 0x3f80_3000, 0],
            Some(0x3f80_4000),
            None,
            None,
        ),
        (
            "F2FP.TF32.F32.PACK_B R0, R6",
            TO_TF32,
            [0, 0x3f80_1001, 0],
            Some(0x3f80_2000),
            None,
            None,
        ),
        (
            "F2FP.TF32.F32.PACK_B R0, R6",
            TO_TF32,
            [0, 0xff80_0000, 0],
            Some(0xff80_0000),
            None,
            None,
        ),
        (
            "F2FP.TF32.F32.PACK_B R0, R6",
            TO_TF32,
            [0, 0xffc0_0000, 0],
            Some(0x7fff_ffff),
            None,
            None,
        ),
        (
            "F2FP.RELU.TF32.F32.PACK_B R0, R6",
            TO_TF32 | bits(75, 1),
            [0, 0xbf80_0000, 0],
            Some(0),
            None,
            None,
        ),
        (
            "F2F.F32.F16 R0, -R6.H1",
            two(0x304) ^ 4 << 24 | bits(60, 1) | bits(63, 1) | bits(75, 2) | bits(84, 1),
            [0, 0x4000_3800, 0],
            word(-2.0),
            None,
            None,
        ),
        (
            "F2F.BF16.F64 R0, R6",
            two(0x310) ^ 4 << 24 | bits(77, 1) | bits(84, 3),
            [0, 1.5f64.to_bits(), 0],
            Some(0x3fc0),
            None,
            None,
        ),
        (
            "F2FP.PACK_AB R0, R4, R6",
            two(0x23e) | 255 << 64,
            [f(1.0), f(2.0), 0],
            Some(0x3c00_4000),
            None,
            None,
        ),
    ]);
}

/// `F2FP.TF32.F32.PACK_B R0, R6`.
const TO_TF32: u128 = 0x23e
    | ALWAYS
    | 255 << 24
    | 6 << 32
    | 255 << 64
    | bits(76, 1)
    | bits(78, 1)
    | bits(86, 1)
    | bits(89, 1);

#[test]
fn a_matrix_is_turned() {
    // Of row r and column c the lane 4 * r + c / 2 has 2 * lane + c % 2.
    let rows = 0x824 | ALWAYS | 6 << 16 | 4 << 24 | 0x2_0002 << 32 | 255 << 64 | bits(81, 7);
    let rows = rows | IN_FALSE;
    let one = 0x810 | ALWAYS | 6 << 16 | 6 << 24 | 0x1_0000 << 32 | 255 << 64 | NO_OUT;
    let one = one | IN_FALSE | IN2_FALSE;
    let turn = 0x23a | ALWAYS | 6 << 24;
    for (arch, text) in [(Arch::Sm80, "MOVM.16.MT88 R0, R6"), (Arch::Sm90, "MOVM.16.MT88 R0, R6")] {
        assert_eq!(decode(arch, turn, 0).unwrap().to_string(), text);
        let lanes = run_all(arch, &[rows, one, turn], [LANES, 0, 0]);
        for (lane, got) in (0..).zip(lanes) {
            let (row, column) = (lane / 4, 2 * (lane % 4));
            let wanted = (8 * column + row) | ((8 * (column + 1) + row) << 16);
            assert_eq!(got[0], wanted, "lane {lane}: {:#x}", got[0]);
        }
    }
}

/// `URn = value` of the first lane's register, and `R0 = URn`.
fn to_uniform(uniform: u128, register: u128) -> u128 {
    0x3c2 | ALWAYS | uniform << 16 | register << 24 | bits(81, 7)
}

const FROM_UR8: u128 = 0xc02 | ALWAYS | 8 << 32 | bits(72, 15) | bits(91, 1);

#[test]
fn uniform_registers() {
    let uniform = |opcode: u128| opcode | ALWAYS | 8 << 16 | 4 << 24 | 6 << 32 | bits(91, 1);
    let three = |opcode: u128| uniform(opcode) | 10 << 64;
    let none = 63 << 64;
    let one = |opcode: u128| uniform(opcode) ^ 4 << 24;
    let all = u64::from(u32::MAX);
    for (text, word, sources, wanted) in [
        (
            "UIADD3 UR8, UR4, -UR6, UR10",
            three(0x290) | NO_OUT | IN_FALSE | IN2_FALSE | bits(63, 1),
            [9, 2, 1],
            8,
        ),
        (
            "UIMAD UR8, UR4, UR6, UR10",
            three(0x2a4) | bits(73, 1) | bits(81, 7) | IN_FALSE,
            [7, all, 10],
            3,
        ),
        (
            "ULEA UR8, UR4, UR6, 0x3",
            uniform(0x291) | none | bits(75, 3) | bits(81, 7) | IN_FALSE,
            [5, 1, 0],
            41,
        ),
        (
            "ULOP3.LUT UR8, UR4, UR6, UR10, 0xca, !UPT",
            three(0x292) | bits(72, 0xca) | bits(81, 7) | IN_FALSE,
            [0xf0f0, 0xff00, 0x1234],
            0xf204,
        ),
        (
            "USHF.R.U64 UR8, UR4, UR6, UR10",
            three(0x299) | bits(73, 1) | bits(76, 1),
            [0x10, 4, 3],
            0x3000_0001,
        ),
        ("USEL UR8, UR4, UR6, !UPT", uniform(0x287) | IN_FALSE, [1, 2, 0], 2),
        (
            "UPRMT UR8, UR4, UR6, UR10",
            three(0x296),
            [0x4433_2211, 0x7091, 0x8877_6655],
            0x8811_0022,
        ),
        ("USGXT UR8, UR4, UR6", uniform(0x29a) | bits(73, 1), [0x1f8, 9, 0], 0xffff_fff8),
        ("UBMSK UR8, UR4, UR6", uniform(0x29b), [4, 8, 0], 0xff0),
        ("UPOPC UR8, UR6", one(0x2bf), [0, 0xf0f1, 0], 9),
        ("UBREV UR8, UR6", one(0x2be), [0, 5, 0], 0xa000_0000),
        ("UFLO.U32 UR8, UR6", one(0x2bd) | bits(81, 7), [0, 0x8000, 0], 15),
        ("REDUX.SUM UR8, R4", 0x3c4 | ALWAYS | 8 << 16 | 4 << 24 | bits(78, 3), [LANES, 0, 0], 496),
        (
            "REDUX.MIN.S32 UR8, R4",
            0x3c4 | ALWAYS | 8 << 16 | 4 << 24 | bits(78, 4) | bits(73, 1),
            [LANES, 0, 0],
            0,
        ),
        (
            "VOTEU.ANY UR8, UPT, P4",
            0x886 | ALWAYS | 8 << 16 | bits(72, 1) | bits(81, 7) | bits(87, 4),
            [LANES, 0, 0],
            0xffff_0000,
        ),
        ("S2UR UR8, SR_CTAID.X", 0x9c3 | ALWAYS | 8 << 16 | bits(72, 37), [0; 3], 0),
    ] {
        assert_eq!(decode(Arch::Sm80, word, 0).unwrap().to_string(), text, "{word:#034x}");
        let given = [to_uniform(4, 4), to_uniform(6, 6), to_uniform(10, 8), word, FROM_UR8];
        for (lane, got) in run_all(Arch::Sm80, &given, sources).into_iter().enumerate() {
            assert_eq!(got[0], wanted, "{text} of {sources:x?}, lane {lane}: {:#x}", got[0]);
        }
    }
}

/// Forms that NVIDIA's libraries have and ptxas makes of no kernel here.
#[test]
fn halves_with_uniform_registers() {
    let with = |opcode: u128| opcode | ALWAYS | 4 << 24 | 6 << 32 | bits(91, 1);
    let (first_half, second_half) = (bits(60, 2), bits(60, 3));
    // Pairs of 1 and 2, of 2 and a half, of 1 and 1.
    let sources = [0x3c00_4000, 0x4000_3800, 0x3c00_3c00];
    for (text, word, wanted) in [
        ("HADD2 R0, R4, -UR6.H0_H0", with(0xe30) | first_half | bits(63, 1), 0x3800_3e00),
        ("HADD2 R0, R4, |UR6.H1_H1|", with(0xe30) | second_half | bits(62, 1), 0x4200_4400),
        ("HMUL2 R0, R4, UR6", with(0xc32), 0x4000_3c00),
        ("HFMA2 R0, R4, UR6.H1_H1, R8", with(0xc31) | 8 << 64 | second_half, 0x4200_4500),
        ("HFMA2 R0, R4, R8, UR6", with(0xe31) | 8 << 64, 0x4200_4100),
        ("HMNMX2 R0, R4, UR6, !PT", with(0xc40) | IN_FALSE, 0x4000_4000),
        (
            "HSET2.BF.GT.AND R0, R4, UR6, PT",
            with(0xe33) | bits(71, 1) | bits(76, 4) | IN_TRUE,
            0x0000_3c00,
        ),
    ] {
        assert_eq!(decode(Arch::Sm90, word, 0).unwrap().to_string(), text, "{word:#034x}");
        let got = run_all(Arch::Sm90, &[to_uniform(6, 6), word], sources)[0][0];
        assert_eq!(got, wanted, "{text}: {got:#x}, not {wanted:#x}");
    }
    let word = with(0xe34) | bits(76, 4) | IN_TRUE | bits(84, 1);
    let text = "HSETP2.GT.AND P0, P1, R4, UR6, PT";
    assert_eq!(decode(Arch::Sm90, word, 0).unwrap().to_string(), text);
    let predicates = run_all(Arch::Sm90, &[to_uniform(6, 6), word], sources)[0][2];
    assert_eq!(predicates & 3, 1, "{text}: the lower pair is greater, the upper is not");
}

#[test]
fn uniform_sums_and_branches() {
    let sum = 0x297 | ALWAYS | 8 << 16 | 4 << 24 | 6 << 32 | 63 << 64 | NO_OUT | bits(91, 1);
    let sum = sum | IN_FALSE | IN2_FALSE;
    let text = "UIADD3.64 UR8, UR4, UR6, URZ";
    assert_eq!(decode(Arch::Sm90, sum, 0).unwrap().to_string(), text);
    let given = [(4, 4), (5, 5), (6, 6), (7, 7)].map(|(to, from)| to_uniform(to, from));
    let results = [FROM_UR8, FROM_UR8 + (1 << 32) + (1 << 16)];
    let words = [&given[..], &[sum], &results].concat();
    let got = run_all(Arch::Sm90, &words, [0x1_ffff_ffff, 0x2_0000_0003, 0])[0];
    assert_eq!([got[0], got[1]], [2, 4], "{text} with a carry between its halves");

    // Of half of the lanes P4 is set: one of them at least.
    let any = 0x886 | ALWAYS | 63 << 16 | bits(72, 1) | bits(87, 4);
    let branch = 0x547 | ALWAYS | 4 << 16 | bits(32, 1) | bits(87, 7) | bits(91, 1);
    for (arch, text, word, wanted) in [
        (Arch::Sm90, "BRA.U UP0, 0x20", branch, 1),
        (Arch::Sm90, "BRA.U !UP0, 0x20", branch | bits(27, 1), 7),
        (Arch::Sm80, "BRXU UR4 0x0", 0x958 | ALWAYS | 4 << 24 | bits(87, 7) | bits(91, 1), 1),
        (Arch::Sm90, "BRXU UR4 0x0", 0x958 | ALWAYS | 4 << 24 | bits(87, 7) | bits(91, 1), 1),
    ] {
        assert_eq!(decode(arch, word, 0).unwrap().to_string(), text, "{word:#034x}");
        // It leaves one instruction out.
        let words = [to_uniform(4, 6), to_uniform(5, 7), set(0, 1), any, word, set(0, 7)];
        for (lane, got) in run_all(arch, &words, [LANES, 16, 0]).into_iter().enumerate() {
            assert_eq!(got[0], wanted, "{text}, lane {lane}");
        }
    }
}

/// The second of three signs is a uniform register's: of those that are set with the third alone, and with all.
#[test]
fn signs_of_a_uniform_register_are_predicates() {
    let word = 0xc1f | ALWAYS | 4 << 24 | 4 << 32 | 8 << 64 | bits(91, 1) | OUT;
    let word = word | bits(72, 0x02) | bits(16, 0x80);
    let text = "PLOP3.LUT P0, P1, R4.SIGN, UR4.SIGN, R8.SIGN, 0x2, 0x80";
    assert_eq!(decode(Arch::Sm90, word, 0).unwrap().to_string(), text);
    let set = u64::from(u32::MAX);
    for (sources, predicates) in
        [([0, 1, set], 1), ([set, 1 << 31, set], 2), ([0, 1 << 31, set], 0), ([set, 1, set], 0)]
    {
        let lanes = run_all(Arch::Sm90, &[to_uniform(4, 6), word], sources);
        assert!(lanes.iter().all(|lane| lane[2] & 3 == predicates), "{sources:x?}: {lanes:x?}");
    }
}

/// UP1 is whether UR4 and UR6 are the same, UP2 whether they are not; the others stay false.
#[test]
fn uniform_predicates_in_a_register() {
    let compare = 0x28c | ALWAYS | 4 << 24 | 6 << 32 | bits(91, 1) | IN_TRUE;
    let equal = compare | bits(76, 2) | 1 << 81 | 7 << 84;
    let differ = compare | bits(76, 5) | 2 << 81 | 7 << 84;
    assert_eq!(
        decode(Arch::Sm80, equal, 0).unwrap().to_string(),
        "UISETP.EQ.U32.AND UP1, UPT, UR4, UR6, UPT"
    );
    assert_eq!(
        decode(Arch::Sm80, differ, 0).unwrap().to_string(),
        "UISETP.NE.U32.AND UP2, UPT, UR4, UR6, UPT"
    );
    let put = |mask: u128| 0x883 | ALWAYS | 8 << 16 | 4 << 24 | mask << 32 | bits(91, 1);
    for (text, word, sources, wanted) in [
        ("UP2UR UR8, UPR, UR4, 0x7f", put(0x7f), [0xffff_ffff, 0xffff_ffff, 0], 0xffff_ff82),
        ("UP2UR UR8, UPR, UR4, 0x7f", put(0x7f), [0xffff_ffff, 1, 0], 0xffff_ff84),
        ("UP2UR UR8, UPR, UR4, 0x2", put(2), [0, 1, 0], 0),
        ("UP2UR UR8, UPR, UR4, 0x4", put(4), [0, 1, 0], 4),
        ("UP2UR.B2 UR8, UPR, UR4, 0x6", put(6) | bits(76, 2), [0x5553_5555, 1, 0], 0x5555_5555),
    ] {
        assert_eq!(decode(Arch::Sm80, word, 0).unwrap().to_string(), text, "{word:#034x}");
        let given = [to_uniform(4, 4), to_uniform(6, 6), equal, differ, word, FROM_UR8];
        for (lane, got) in run_all(Arch::Sm80, &given, sources).into_iter().enumerate() {
            assert_eq!(got[0], wanted, "{text} of {sources:x?}, lane {lane}: {:#x}", got[0]);
        }
    }
}

#[test]
fn carries_predicates_and_narrow_integers() {
    let all = u64::from(u32::MAX);
    let carry = bits(74, 1) | IN_TRUE;
    check(&[
        (
            "IMAD.X R0, R4, R6, R8, PT",
            three(0x224) | bits(73, 1) | bits(81, 7) | carry,
            [3, 4, 5],
            Some(18),
            None,
            None,
        ),
        (
            "LEA.HI.X R0, P0, R4, R6, R8, 0x4, PT",
            two(0x211) | 8 << 64 | bits(75, 4) | bits(80, 1) | carry,
            [0xf000_0000, 1, 0x21],
            Some(0x221),
            None,
            Some(0),
        ),
        (
            "LOP3.LUT.PAND P0, R0, R4, R6, R8, 0xfe, !PT",
            three(0x212) | bits(72, 0xfe) | bits(80, 1) | IN_FALSE,
            [0xf, 0xf0, 0x1000],
            Some(0x10ff),
            None,
            Some(0),
        ),
        (
            "P2R R0, PR, R6, 0x70",
            0x803 | ALWAYS | 6 << 24 | 0x70 << 32,
            [0x50, all, 0],
            Some(0xffff_ffdf),
            None,
            None,
        ),
        (
            "I2I.S8.S32.SAT R0, R6",
            0x238 | ALWAYS | 6 << 32 | bits(76, 1),
            [0, 0x1_2345, 0],
            Some(0x7f),
            None,
            None,
        ),
        (
            "I2FP.F32.S32 R0, R6",
            0x245 | ALWAYS | 6 << 32 | bits(75, 2) | bits(85, 1) | bits(74, 1),
            [0, all, 0],
            word(-1.0),
            None,
            None,
        ),
        ("FCHK P0, R4, R6", two(0x302), [f(1.0), f(3.0), 0], None, None, Some(0)),
        ("FCHK P0, R4, R6", two(0x302), [f(1.0), f(0.0), 0], None, None, Some(1)),
        (
            "CS2R R0, SRZ",
            0x805 | ALWAYS | bits(72, 255) | bits(80, 1),
            [0; 3],
            Some(0),
            Some(0),
            None,
        ),
    ]);
}

/// What lanes have, of a source that is their number.
fn lanes(text: &str, word: u128, sources: [u64; 3], wanted: impl Fn(u32) -> [Option<u32>; 2]) {
    assert_eq!(decode(Arch::Sm80, word, 0).unwrap().to_string(), text, "{word:#034x}");
    for (lane, got) in run(Arch::Sm80, word, sources).into_iter().enumerate() {
        let [value, predicates] = wanted(lane as u32);
        let right =
            value.is_none_or(|value| value == got[0]) && predicates.is_none_or(|p| p == got[2]);
        assert!(right, "{text}, lane {lane}: {got:x?}, not {value:x?} and {predicates:x?}");
    }
}

#[test]
fn lanes_together() {
    // By 5, within all 32 lanes or eight.
    let shuffle = |kind: u128, clamp: u128| {
        0xf89 | ALWAYS | 4 << 24 | bits(58, kind) | bits(53, 5) | bits(40, clamp)
    };
    lanes("SHFL.IDX P0, R0, R4, 0x5, 0x1f", shuffle(0, 31), [LANES, 0, 0], |_| [Some(5), Some(1)]);
    lanes(
        "SHFL.UP P0, R0, R4, 0x5, RZ".replace("RZ", "0x0").as_str(),
        shuffle(1, 0),
        [LANES, 0, 0],
        |lane| {
            if lane < 5 { [Some(lane), Some(0)] } else { [Some(lane - 5), Some(1)] }
        },
    );
    lanes("SHFL.DOWN P0, R0, R4, 0x5, 0x1f", shuffle(2, 31), [LANES, 0, 0], |lane| {
        if lane > 26 { [Some(lane), Some(0)] } else { [Some(lane + 5), Some(1)] }
    });
    lanes("SHFL.BFLY P0, R0, R4, 0x5, 0x181f", shuffle(3, 0x181f), [LANES, 0, 0], |lane| {
        [Some(lane ^ 5), Some(1)]
    });
    let vote = |kind: u128, input: u128| 0x806 | ALWAYS | bits(72, kind) | input;
    lanes("VOTE.ANY R0, P0, PT", vote(1, IN_TRUE), [0; 3], |_| [Some(u32::MAX), Some(1)]);
    lanes("VOTE.ALL R0, P0, !PT", vote(0, IN_FALSE), [0; 3], |_| [Some(0), Some(0)]);
    lanes("VOTE.EQ R0, P0, !PT", vote(2, IN_FALSE), [0; 3], |_| [Some(0), Some(1)]);
    let upper = bits(87, 4);
    lanes("VOTE.ANY R0, P0, P4", vote(1, upper), [LANES, 0, 0], |_| [Some(0xffff_0000), Some(1)]);
    lanes("VOTE.ALL R0, P0, P4", vote(0, upper), [LANES, 0, 0], |_| [Some(0xffff_0000), Some(0)]);
    lanes("VOTE.EQ R0, P0, P4", vote(2, upper), [LANES, 0, 0], |_| [Some(0xffff_0000), Some(0)]);
    let any = 0x3a1 | ALWAYS | 4 << 24 | bits(79, 1) | bits(81, 7);
    lanes("MATCH.ANY R0, R4", any, [LANES, 0, 0], |lane| [Some(1 << lane), None]);
    let all = 0x3a1 | ALWAYS | 4 << 24;
    lanes("MATCH.ALL P0, R0, R4", all, [7, 0, 0], |_| [Some(u32::MAX), Some(1)]);
    lanes("MATCH.ALL P0, R0, R4", all, [LANES, 0, 0], |_| [Some(0), Some(0)]);
    // The first lane's, and which lanes have another.
    let to_uniform = 0x3c2 | ALWAYS | 4 << 24 | 4 << 16;
    lanes("R2UR P0, UR4, R4", to_uniform, [LANES, 0, 0], |lane| [None, Some((lane != 0).into())]);
    // Which lanes run, which have ended, and where a thread is in its block.
    let state = |number: u128| 0x355 | ALWAYS | number << 24;
    lanes("BMOV.32 R0, MACTIVE", state(26), [0; 3], |_| [Some(u32::MAX), None]);
    lanes("BMOV.32 R0, MEXITED", state(24), [0; 3], |_| [Some(0), None]);
    lanes("S2R R0, SR_TID", 0x919 | ALWAYS | bits(72, 32), [0; 3], |lane| [Some(lane), None]);
    let quads = 0x356 | ALWAYS | 26 << 24 | 4 << 32 | bits(84, 1);
    lanes("BMOV.32.PQUAD MACTIVE, R4", quads, [0x8421_1248, 0, 0], |_| [None, None]);
    // A guard leaves lanes as they are.
    let never = 0x810 | 15 << 12 | 4 << 24 | 9 << 32 | 255 << 64 | NO_OUT | IN_FALSE | IN2_FALSE;
    lanes("@!PT IADD3 R0, R4, 0x9, RZ", never, [LANES, 0, 0], |_| [Some(0), None]);
}

/// Words that follow each other, of which each has its text.
fn texts(words: &[(&str, u128)]) -> Vec<u128> {
    let word = |(text, word): &(&str, u128), at| {
        assert_eq!(decode(Arch::Sm80, *word, at).unwrap().to_string(), *text, "{word:#034x}");
        *word
    };
    words.iter().zip((0..).step_by(16)).map(|(row, at)| word(row, at)).collect()
}

#[test]
fn lanes_of_four_have_signs_and_are_chosen() {
    // PP, PN, NP and ZP, of which the first lane's are the highest; of 5 and 3, and in the last 3 alone.
    let signs = bits(32, 0b00_01_10_11);
    let add = 0x822 | ALWAYS | 4 << 24 | 6 << 64 | signs;
    let sums = [8.0_f32, 2.0, -2.0, 3.0].map(f32::to_bits);
    let sources = [f(5.0), f(3.0), 0];
    lanes("FSWZADD R0, R4, R6, PPPNNPZP", add, sources, |lane| {
        [Some(sums[lane as usize % 4]), None]
    });
    // Of a number that is none only the second is seen where it is alone, and its sign stays.
    let sources = [f(f32::NAN), f(-0.0), 0];
    let ndv = add | bits(77, 1);
    lanes("FSWZADD.NDV R0, R4, R6, PPPNNPZP", ndv, sources, |lane| {
        [Some(if lane % 4 == 3 { 0x8000_0000 } else { 0x7fff_ffff }), None]
    });
    // Half a unit in the last place of 1, and what FTZ makes of numbers below the normal ones.
    let up = 0x822 | ALWAYS | 4 << 24 | 6 << 64 | bits(78, 2);
    let next = Some(f32::from_bits(0x3f80_0001).to_bits());
    lanes("FSWZADD.RP R0, R4, R6, PPPPPPPP", up, [f(1.0), f(TINY), 0], |_| [next, None]);
    let flush = 0x822 | ALWAYS | 4 << 24 | 6 << 64 | bits(80, 1) | bits(32, 0xff);
    lanes("FSWZADD.FTZ R0, R4, R6, ZPZPZPZP", flush, [f(1.0), f(TINY), 0], |_| [Some(0), None]);
    // R0 is 7 before; the second and the third lane of each four are moved to.
    let seven = set(0, 7);
    let word = 0x202 | ALWAYS | 4 << 32 | bits(72, 0b0110);
    assert_eq!(decode(Arch::Sm80, word, 0).unwrap().to_string(), "MOV R0, R4, 0x6");
    for (lane, got) in run_all(Arch::Sm80, &[seven, word], [9, 0, 0]).iter().enumerate() {
        let expected = if matches!(lane % 4, 1 | 2) { 9 } else { 7 };
        assert_eq!(got[0], expected, "lane {lane}");
    }
}

/// What drivers' functions begin and end with: those that call one are alone in it, whatever the others wait for.
#[test]
fn lanes_that_are_set_aside_come_back() {
    let read = |to: u128, state: u128| 0x355 | ALWAYS | to << 16 | state << 24 | 1 << 28;
    let write = |state: u128, from: u128| 0x356 | ALWAYS | state << 24 | 1 << 28 | from << 32;
    let over = |words: u128| 0x947 | (words * 4) << 34 | 7 << 87;
    let all = 0x948 | ALWAYS | 0xffff_ffff << 32 | 7 << 87;
    let words = [
        // The upper half of the lanes goes to another place than the lower.
        ("@P4 BRA 0x30", over(2) | 4 << 12),
        ("MOV R0, 0x7", set(0, 7)),
        ("BRA 0xb0", over(8) | ALWAYS),
        ("BMOV.32 R8, MEXITED", read(8, 24)),
        ("MOV R5, 0xffff", set(5, 0xffff)),
        ("BMOV.32 MEXITED, R5", write(24, 5)),
        ("WARPSYNC 0xffffffff", all),
        ("BMOV.32 R0, MEXITED", read(0, 24)),
        ("BMOV.32 THREAD_STATE_ENUM.4, R5", write(4, 5)),
        ("BMOV.32 MEXITED, R8", write(24, 8)),
        ("NOP", 0x918 | ALWAYS),
        ("WARPSYNC 0xffffffff", all),
        ("BMOV.32 R1, MACTIVE", read(1, 26)),
    ];
    let (report, lanes) = run_words(Arch::Sm80, &texts(&words), [LANES, 0, 0]);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    for (lane, [own, active, _]) in lanes.into_iter().enumerate() {
        let wanted = if lane < 16 { 7 } else { 0xffff };
        assert_eq!((own, active), (wanted, u32::MAX), "lane {lane}");
    }
    // Not those that say it, and not what only the hardware reads while others are somewhere.
    let own = texts(&[("BMOV.32 MEXITED, R6", write(24, 6))]);
    let (report, _) = run_words(Arch::Sm80, &own, [LANES, 1, 0]);
    assert!(report.findings[0].message.contains("lanes 0x00000001"), "{}", report.findings[0]);
    let apart = [over(1) | 4 << 12, 0x918 | ALWAYS, write(4, 6)];
    let (report, _) = run_words(Arch::Sm80, &apart, [LANES, 1, 0]);
    assert!(report.findings[0].message.contains("are to run"), "{}", report.findings[0]);
}

/// A branch that needs lanes together is taken where all that are named take it.
#[test]
fn a_converged_branch_is_taken_by_all_or_none() {
    let branch = 0x947 | 63 << 24 | 1 << 30 | 3 << 32 | 4 << 34 | 7 << 87 | bits(91, 1);
    for (text, guard, taken) in
        [("@P4 BRA.CONV ~URZ, 0x20", 4 << 12, false), ("BRA.CONV ~URZ, 0x20", ALWAYS, true)]
    {
        let words = texts(&[(text, branch | guard), ("MOV R0, 0x7", set(0, 7))]);
        let lanes = run_all(Arch::Sm80, &words, [LANES, 0, 0]);
        let wanted = if taken { 0 } else { 7 };
        assert!(lanes.iter().all(|[value, ..]| *value == wanted), "{text}: {lanes:?}");
    }
}

/// Lanes that run together go where all of them do, or where any of them does.
#[test]
fn a_uniform_branch_is_taken_by_all_or_none() {
    // Behind the next instruction.
    let branch = 0x947 | bits(16, 4) | bits(32, 1) | bits(87, 7);
    let any = branch | bits(84, 1);
    for (text, word, sources, taken) in [
        ("@P4 BRA.U 0x20", branch | 4 << 12, LANES, false),
        ("@P4 BRA.U 0x20", branch | 4 << 12, 16, true),
        ("@P4 BRA.U.ANY 0x20", any | 4 << 12, LANES, true),
        ("@P4 BRA.U.ANY 0x20", any | 4 << 12, 0, false),
        ("BRA.U.ANY 0x20", any | ALWAYS, 0, true),
    ] {
        assert_eq!(decode(Arch::Sm90, word, 0).unwrap().to_string(), text, "{word:#034x}");
        let lanes = run_all(Arch::Sm90, &[word, set(0, 7)], [sources, 0, 0]);
        let wanted = if taken { 0 } else { 7 };
        assert!(lanes.iter().all(|[value, ..]| *value == wanted), "{text}: {lanes:?}");
    }
}

/// Two registers are compared with those of the first lane.
#[test]
fn lanes_that_differ_in_either_register_are_joined() {
    let first = |from: u128| 0x3c2 | ALWAYS | from << 24 | 4 << 16;
    let joined = |from: u128| 0x2ca | ALWAYS | from << 24 | 5 << 16 | bits(84, 1);
    for (sources, wanted) in
        [([LANES, 0], (|lane| lane != 0) as fn(u32) -> bool), ([0, 3], |_| false)]
    {
        for [one, other] in [[4, 6], [6, 4]] {
            let code = [first(one), joined(other)];
            let text = format!("R2UR.OR P0, UR5, R{other}");
            assert_eq!(decode(Arch::Sm80, code[1], 0).unwrap().to_string(), text);
            let lanes = run_all(Arch::Sm80, &code, [sources[0], sources[1], 0]);
            for (got, lane) in lanes.iter().zip(0..) {
                assert_eq!(got[2], wanted(lane).into(), "{text}, lane {lane}");
            }
        }
    }
}

/// A function saves a barrier that others wait at, and uses it for those that called.
#[test]
fn a_saved_barrier_is_another_one() {
    let set_barrier =
        |barrier: u128, words: u128| 0x945 | ALWAYS | barrier << 16 | (words * 4) << 34 | 7 << 87;
    let sync = |barrier: u128| 0x941 | ALWAYS | barrier << 16 | 7 << 87;
    let words = [
        ("BSSY B6, 0x80", set_barrier(6, 7)),
        // The lower half of the lanes waits.
        ("@!P4 BRA 0x80", 0x947 | 0xc << 12 | (6 * 4) << 34 | 7 << 87),
        ("BMOV.32.CLEAR R8, B6", 0x355 | ALWAYS | 8 << 16 | 6 << 24 | bits(84, 1)),
        ("BSSY B6, 0x50", set_barrier(6, 1)),
        ("NOP", 0x918 | ALWAYS),
        ("BSYNC B6", sync(6)),
        ("BMOV.32 R0, MACTIVE", 0x355 | ALWAYS | 26 << 24 | 1 << 28),
        ("BMOV.32 B6, R8", 0x356 | ALWAYS | 6 << 24 | 8 << 32),
        ("BSYNC B6", sync(6)),
        ("BMOV.32 R1, MACTIVE", 0x355 | ALWAYS | 1 << 16 | 26 << 24 | 1 << 28),
    ];
    let (report, lanes) = run_words(Arch::Sm80, &texts(&words), [LANES, 0, 0]);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    for (lane, [inside, behind, _]) in lanes.into_iter().enumerate() {
        let wanted = if lane < 16 { 0 } else { 0xffff_0000 };
        assert_eq!((inside, behind), (wanted, u32::MAX), "lane {lane}");
    }
}

#[test]
fn local_memory_has_a_lower_and_an_upper_part() {
    let store = |at: u128| 0x387 | ALWAYS | 255 << 24 | 4 << 32 | at << 40 | bits(73, 4);
    let load = |at: u128| 0x983 | ALWAYS | 255 << 24 | at << 40 | bits(73, 4);
    for at in [0u128, 12, 0xff_ffc0, 0xff_fffc] {
        let (report, lanes) = run_words(Arch::Sm80, &[store(at), load(at)], [LANES, 0, 0]);
        assert!(report.findings.is_empty(), "{}", report.findings[0]);
        assert!(lanes.iter().zip(0..).all(|(got, lane)| got[0] == lane), "{at:#x}: {lanes:?}");
    }
    for at in [16u128, 0xff_ffbc] {
        let (report, _) = run_words(Arch::Sm80, &[store(at)], [LANES, 0, 0]);
        assert!(report.findings[0].message.contains(&format!("{at:#x}")), "{}", report.findings[0]);
    }
    // They are not the same bytes.
    let words = [store(8), set(4, 5), store(0xff_ffc8), load(8)];
    let (_, lanes) = run_words(Arch::Sm80, &words, [LANES, 0, 0]);
    assert!(lanes.iter().zip(0..).all(|(got, lane)| got[0] == lane), "{lanes:?}");
}

#[test]
fn a_load_whose_predicate_does_not_hold_is_zero() {
    // Where local memory is, for lanes that have any.
    const LOCAL: u32 = 2 << 24;
    for (text, predicate, high, reads) in [
        ("LD.E R0, [R6]", 0, LOCAL, 0..32),
        ("LD.E R0, [R6], P4", 3, LOCAL, 16..32),
        ("LD.E R0, [R6], !P4", 11, LOCAL, 0..16),
        // What would be wrong is not looked at.
        ("LD.E R0, [R6], !PT", 8, 0, 0..0),
    ] {
        let store = 0x387 | ALWAYS | 255 << 24 | 4 << 32 | 8 << 40 | bits(73, 4);
        let load = 0x980
            | ALWAYS
            | 6 << 24
            | bits(72, 1)
            | bits(73, 4)
            | bits(84, 1)
            | bits(64, predicate);
        assert_eq!(decode(Arch::Sm80, load, 0).unwrap().to_string(), text);
        let code = [store, set(6, 8), set(7, high), set(0, 99), load];
        let lanes = run_all(Arch::Sm80, &code, [LANES, 0, 0]);
        for (got, lane) in lanes.iter().zip(0..) {
            let wanted = if reads.contains(&lane) { lane } else { 0 };
            assert_eq!(got[0], wanted, "{text}, lane {lane}");
        }
    }
}

#[test]
fn hints_and_fences_do_nothing_that_is_seen() {
    let nothing = |text, word| (text, word | ALWAYS, [1 << 32, 0, 0], None, None, Some(0));
    check(&[
        nothing("CCTL.E.PF1 [R4]", 0x98f | 4 << 24 | bits(72, 1)),
        nothing("CCTL.E.PML2 [R4]", 0x98f | 4 << 24 | bits(72, 1) | bits(87, 9)),
        nothing("CCTL.IVALL", 0x98f | 255 << 24 | bits(87, 4)),
        nothing("CCTLL.PF2 [R4]", 0x990 | 4 << 24 | bits(87, 1)),
        nothing("CCTLL.PF1 [R4+UR8]", 0xd90 | 4 << 24 | 8 << 32 | bits(91, 1)),
        nothing("PMTRIG 0x8", 0x801 | 8 << 32 | bits(87, 7)),
        nothing("PREEXIT", 0x82d),
        nothing("ACQBULK", 0x82e),
        nothing("FENCE.VIEW.ASYNC.S", 0x3c6),
    ]);
    // The first lane of all is the one.
    let elect = 0x82f | ALWAYS | 4 << 16 | 63 << 24 | bits(72, 1) | bits(91, 1);
    check(&[("ELECT P0, UR4, ~URZ", elect, [0; 3], None, None, Some(1))]);
}

#[test]
fn what_says_more_than_is_computed_is_refused() {
    for (arch, word, why) in [
        (Arch::Sm80, 0x381 | 4 << 24 | bits(72, 1) | bits(73, 4) | bits(81, 1), "how it went"),
        (Arch::Sm80, 0x3aa | 4 << 24 | bits(72, 1), "only its predicate"),
        (Arch::Sm80, three(0x231) | bits(79, 1) | bits(87, 1), "depends on a predicate"),
    ] {
        let report = run_code(arch, &[word | ALWAYS, 0x94d | ALWAYS | 7 << 87]);
        let finding = report.findings.first().unwrap_or_else(|| panic!("{why}: nothing is said"));
        assert!(finding.message.contains(why), "{}", finding.message);
    }
}

/// Code that is placed in memory, run by one warp.
fn run_code(arch: Arch, words: &[u128]) -> nvabi_emu::Report {
    let mut device = Device::new();
    let bytes: Vec<u8> = words.iter().copied().flat_map(u128::to_le_bytes).collect();
    let entry = device.alloc(bytes.len() as u64).unwrap();
    device.write(entry, &bytes).unwrap();
    let placed = Placed { sm: arch.number(), entry, ..Placed::default() };
    let launch = Launch { block: [32, 1, 1], threads: 1, ..Launch::default() };
    device.launch_placed(&placed, &launch).unwrap()
}

#[test]
fn what_is_not_supported_is_refused_by_name_where_it_runs() {
    const EXIT: u128 = 0x94d | ALWAYS | 7 << 87;
    const NOP: u128 = 0x918 | ALWAYS;
    for (arch, name, word) in [
        // By texels.
        (Arch::Sm80, "SUST.P", 0x000f_e200_0010_af00_7000_5a04_0400_7b9b),
        (Arch::Sm90, "SYNCS", 0x000e_a400_0800_0005_0000_0002_ff02_79a7),
        (Arch::Sm90, "UTMALDG", 0x0007_e400_0800_8000_0000_0004_0e00_75b4),
        (Arch::Sm90, "HGMMA", 0x000f_e200_0c00_08ff_0000_0000_081c_79f0),
        // Bits that say nothing in any row.
        (Arch::Sm90, "STSM", 0x0000_01ff_ffff_ffff_ffff_ffff_ffff_f844),
    ] {
        let report = run_code(arch, &[NOP, NOP, word, EXIT]);
        let finding = &report.findings[0];
        assert!(finding.fatal);
        assert!(finding.message.starts_with(name), "{name}: {}", finding.message);
        assert!(finding.message.contains("is not supported"), "{name}: {}", finding.message);
        assert_eq!(finding.location.address, Some(0x20), "{name}");
        // Over one instruction, that is, 16 bytes: code goes on behind it.
        let distance = if arch == Arch::Sm90 { 16 } else { 34 };
        let skip = 0x947 | ALWAYS | (16 >> 2) << distance | 7 << 87;
        let report = run_code(arch, &[NOP, skip, word, EXIT]);
        assert!(report.findings.is_empty(), "{name}: {}", report.findings[0]);
        let report = run_code(arch, &[NOP, word, EXIT]);
        assert_eq!(report.findings[0].location.address, Some(0x10), "{name}");
    }
    // No instruction has this opcode: it is the end of the code.
    let report = run_code(Arch::Sm80, &[NOP, NOP, 0xfff | ALWAYS]);
    assert!(report.findings[0].message.contains("no code is"), "{}", report.findings[0]);
}
