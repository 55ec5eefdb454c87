//! Kernels that a generator writes, as PTX and as ptxas assembles them: the same must be in memory.
//!
//! A kernel loads registers of several types, does things with them at random, also in branches, loops and together with
//! other lanes, and stores all of them. `NVABI_SASS_RANDOM=10000` makes as many kernels as that.

use std::env;
use std::fmt::Write;

use nvabi_emu::{Args, Device, Launch};

use crate::gpu::noise;
use crate::sass;

/// Kernels of one file: ptxas takes longer to start than to assemble one.
const BATCH: usize = 25;

/// Threads of the only block.
const THREADS: usize = 64;

/// Registers of each type, and bytes of the record in which a thread's are kept.
const WORDS: usize = 6;
const LONGS: usize = 3;
const SINGLES: usize = 4;
const DOUBLES: usize = 2;
const RECORD: usize = 4 * WORDS + 8 * LONGS + 4 * SINGLES + 8 * DOUBLES;

#[test]
fn random_kernels_do_the_same_as_ptx_and_as_machine_code() {
    let Some(cuda) = sass::toolkit() else {
        nvabi_test::skip(nvabi_test::Need::Cuda, "no ptxas, and cuda/toolkit.sh could not fetch it")
    };
    let count = env::var("NVABI_SASS_RANDOM").map_or(200, |text| text.parse().unwrap());
    let seed = env::var("NVABI_SASS_SEED").map_or(0, |text| text.parse().unwrap());
    for first in (0..count).step_by(BATCH) {
        let seeds: Vec<u32> =
            (first..count.min(first + BATCH)).map(|at| seed + at as u32).collect();
        let arch = [80, 86, 87, 89, 90][first / BATCH % 5];
        let level = [3, 1, 2, 0, 3, 2][first / BATCH % 6];
        let text = module(&seeds);
        let name = format!("random {} sm_{arch} -O{level}", seeds[0]);
        let cubin = sass::assemble_one(&cuda, &text, arch, level, &name);
        let mut device = Device::new();
        let ptx = device.load(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let machine = device.load_cubin(&cubin).unwrap_or_else(|error| panic!("{name}: {error}"));
        for seed in seeds {
            let kernel = format!("k{seed}");
            let [wanted, got] = [&ptx, &machine].map(|module| {
                let input = input(seed);
                let data = device.alloc(input.len() as u64).unwrap();
                let shared = device.alloc(256).unwrap();
                device.write(data, &input).unwrap();
                let launch =
                    Launch { block: [THREADS as u32, 1, 1], threads: 1, ..Launch::default() };
                let args = Args::new().u64(data).u64(shared);
                let report = device.launch(module, &kernel, &launch, &args).unwrap();
                assert!(report.findings.is_empty(), "{name} {kernel}: {}", report.findings[0]);
                let mut out = vec![0; input.len() + 256];
                device.read(data, &mut out[..input.len()]).unwrap();
                device.read(shared, &mut out[input.len()..]).unwrap();
                device.free(data).unwrap();
                device.free(shared).unwrap();
                out
            });
            if let Some(at) = first_difference(&got, &wanted) {
                let (thread, offset) = (at / RECORD, at % RECORD);
                panic!(
                    "{name} {kernel}: thread {thread}, byte {offset} of its record: {:02x?} of machine code, {:02x?} \
                     of PTX\n{}",
                    &got[at & !3..][..4],
                    &wanted[at & !3..][..4],
                    kernel_text(seed)
                );
            }
        }
    }
}

/// What threads begin with: numbers of all sizes, and special ones.
fn input(seed: u32) -> Vec<u8> {
    let words = noise(THREADS * RECORD / 4, seed);
    let value = |(at, word): (usize, u32)| match word % 11 {
        0 => [0, 1, u32::MAX, 0x8000_0000, 0x7fff_ffff, 0x7f80_0000, 0x3f80_0000, 0x8000_0001]
            [at / 3 % 8],
        1 => word >> 24,
        2 | 3 => (((word >> 8) as f32 / 1e5) - 50.0).to_bits(),
        _ => word,
    };
    words.into_iter().enumerate().flat_map(|word| value(word).to_le_bytes()).collect()
}

/// The first byte that differs; any NaN is as good as another.
fn first_difference(got: &[u8], wanted: &[u8]) -> Option<usize> {
    let singles = 4 * WORDS + 8 * LONGS;
    let is_nan = |bytes: &[u8], at: usize| {
        let offset = at % RECORD;
        let start = at - offset;
        if (singles..singles + 4 * SINGLES).contains(&offset) {
            let at = start + singles + (offset - singles) / 4 * 4;
            f32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()).is_nan()
        } else if offset >= singles + 4 * SINGLES {
            let first = singles + 4 * SINGLES;
            let at = start + first + (offset - first) / 8 * 8;
            f64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()).is_nan()
        } else {
            false
        }
    };
    let inside = THREADS * RECORD;
    (0..got.len()).find(|&at| {
        got[at] != wanted[at] && !(at < inside && is_nan(got, at) && is_nan(wanted, at))
    })
}

fn module(seeds: &[u32]) -> String {
    let mut text = ".version 8.3\n.target sm_80\n.address_size 64\n".to_owned();
    seeds.iter().for_each(|seed| text += &kernel_text(*seed));
    text
}

/// A source of choices that is the same each time.
struct Choice {
    state: u32,
    labels: u32,
}

impl Choice {
    fn below(&mut self, count: u32) -> u32 {
        self.state = self.state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        let word =
            ((self.state >> ((self.state >> 28) + 4)) ^ self.state).wrapping_mul(277_803_737);
        ((word >> 22) ^ word) % count
    }

    fn of<'a>(&mut self, names: &[&'a str]) -> &'a str {
        names[self.below(names.len() as u32) as usize]
    }

    fn register(&mut self, prefix: &str, count: usize) -> String {
        format!("{prefix}{}", self.below(count as u32))
    }

    fn word(&mut self) -> String {
        match self.below(6) {
            0 => format!("{}", [0, 1, 3, 31, 255, 65535, -1, -128][self.below(8) as usize]),
            _ => self.register("%r", WORDS),
        }
    }

    /// A register that instructions write.
    fn r(&mut self) -> String {
        self.register("%r", WORDS)
    }

    fn long(&mut self) -> String {
        self.register("%d", LONGS)
    }

    fn single(&mut self) -> String {
        self.register("%f", SINGLES)
    }

    fn double(&mut self) -> String {
        self.register("%e", DOUBLES)
    }
}

fn kernel_text(seed: u32) -> String {
    let mut choice = Choice { state: seed.wrapping_mul(2_654_435_761), labels: 0 };
    let mut text = format!(
        ".visible .entry k{seed}(.param .u64 data, .param .u64 sums) {{\n\
         .reg .b32 %r<{WORDS}>; .reg .b64 %d<{LONGS}>; .reg .f32 %f<{SINGLES}>; .reg .f64 %e<{DOUBLES}>;\n\
         .reg .pred %p<4>; .reg .b32 %t<9>; .reg .b64 %a<9>; .reg .b16 %h<4>; .reg .b32 %n<9>;\n\
         .shared .align 8 .b8 s[1024];\n\
         ld.param.u64 %a0, [data]; ld.param.u64 %a1, [sums]; mov.u32 %t0, %tid.x;\n\
         mad.wide.u32 %a0, %t0, {RECORD}, %a0; mov.u32 %t1, s; shl.b32 %t2, %t0, 3; add.u32 %t1, %t1, %t2;\n\
         setp.lt.s32 %p0, %t0, 9; setp.ne.s32 %p1, %t0, 40;\n"
    );
    transfer(&mut text, "ld.global", true);
    text += "st.shared.u64 [%t1], %d0; cvt.u16.u32 %h0, %r0;\n";
    let steps = 6 + choice.below(20);
    for _ in 0..steps {
        statement(&mut choice, &mut text, 0);
    }
    transfer(&mut text, "st.global", false);
    text + "ret;\n}\n"
}

/// Loads or stores all registers.
fn transfer(text: &mut String, instruction: &str, loads: bool) {
    let mut at = 0;
    let groups = [
        ("%r", "b32", 4, WORDS),
        ("%d", "b64", 8, LONGS),
        ("%f", "f32", 4, SINGLES),
        ("%e", "f64", 8, DOUBLES),
    ];
    for (prefix, kind, size, count) in groups {
        for number in 0..count {
            let (register, address) = (format!("{prefix}{number}"), format!("[%a0+{at}]"));
            let (first, second) = if loads { (&register, &address) } else { (&address, &register) };
            // A record is a multiple of 8 bytes, and so is where each group begins.
            writeln!(text, "{instruction}.{kind} {first}, {second};").unwrap();
            at += size;
        }
    }
}

fn statement(c: &mut Choice, text: &mut String, depth: u32) {
    match c.below(23) {
        20 => flags(c, text),
        21 => places(c, text),
        22 if depth == 0 => products(c, text),
        0..=7 => integers(c, text),
        8..=10 => longs(c, text),
        11..=13 => floats(c, text),
        14 => doubles(c, text),
        15 => conversions(c, text),
        16 => halves(c, text),
        17 if depth == 0 => together(c, text),
        18 if depth < 3 => branch(c, text, depth),
        19 if depth < 2 => repeat(c, text, depth),
        _ => predicates(c, text),
    }
}

fn integers(c: &mut Choice, text: &mut String) {
    let (d, x, y, z) = (c.r(), c.word(), c.word(), c.word());
    let sign = c.of(&["u32", "s32"]);
    match c.below(24) {
        0 => writeln!(text, "add.u32 {d}, {x}, {y};"),
        1 => writeln!(text, "sub.u32 {d}, {x}, {y};"),
        2 => writeln!(text, "mul.lo.u32 {d}, {x}, {y};"),
        3 => writeln!(text, "mul.hi.{sign} {d}, {x}, {y};"),
        4 => writeln!(text, "mad.lo.u32 {d}, {x}, {y}, {z};"),
        // Of four rounds of a loop with `mad.hi`, ptxas 12.3 -O3 makes two.
        5 => writeln!(text, "mad.lo.{sign} {d}, {y}, {z}, {x};"),
        6 => writeln!(text, "shl.b32 {d}, {x}, {y};"),
        7 => writeln!(text, "shr.{sign} {d}, {x}, {y};"),
        8 => writeln!(text, "{}.b32 {d}, {x}, {y};", c.of(&["and", "or", "xor"])),
        // Of two operands that are the same, ptxas 12.3 to 13.0 keeps one in the place of the other.
        9 => {
            let z = if z == y { "0" } else { &z };
            writeln!(text, "lop3.b32 {d}, {x}, {y}, {z}, {};", c.below(256))
        }
        10 => writeln!(text, "prmt.b32 {d}, {x}, {y}, {z};"),
        11 => writeln!(text, "{}.{sign} {d}, {x}, {y};", c.of(&["min", "max"])),
        // Of a place that it knows to be beyond 31, ptxas 12.3 -O3 takes the sign for set.
        12 => {
            let place = c.r();
            writeln!(text, "and.b32 %n1, {place}, 31; bfe.{sign} {d}, {x}, %n1, {};", c.r())
        }
        13 => writeln!(text, "bfi.b32 {d}, {x}, {y}, {}, {};", c.r(), c.below(40)),
        14 => writeln!(text, "{}.b32 {d}, {x};", c.of(&["popc", "clz", "brev", "not"])),
        // ptxas 12.3 takes what `abs` makes for positive, also of the least number.
        15 => match c.of(&["abs", "neg"]) {
            "abs" => writeln!(text, "max.s32 %n1, {x}, -2147483647; abs.s32 {d}, %n1;"),
            name => writeln!(text, "{name}.s32 {d}, {x};"),
        },
        16 => writeln!(
            text,
            "shf.{}.{}.b32 {d}, {x}, {y}, {z};",
            c.of(&["l", "r"]),
            c.of(&["wrap", "clamp"])
        ),
        17 => writeln!(text, "or.b32 %n1, {y}, 1; {}.{sign} {d}, {x}, %n1;", c.of(&["div", "rem"])),
        18 => writeln!(text, "selp.b32 {d}, {x}, {y}, %p{};", c.below(4) % 2),
        19 => writeln!(text, "bfind.{sign} {d}, {x};"),
        20 => writeln!(text, "dp4a.{sign}.{} {d}, {x}, {y}, {z};", c.of(&["u32", "s32"])),
        21 => writeln!(text, "sad.{sign} {d}, {x}, {y}, {z};"),
        22 => writeln!(text, "add.cc.u32 {d}, {x}, {y}; addc.u32 {}, {z}, 0;", c.r()),
        // Of the upper half of a product minus 0, ptxas 12.3 -O3 makes a borrow for sm_90.
        _ => writeln!(
            text,
            "or.b32 %n1, {y}, 1; sub.cc.u32 {d}, {x}, %n1; subc.u32 {}, {z}, {y};",
            c.r()
        ),
    }
    .unwrap();
}

fn longs(c: &mut Choice, text: &mut String) {
    let (d, x, y, w, v) = (c.long(), c.long(), c.long(), c.word(), c.word());
    let sign = c.of(&["u64", "s64"]);
    match c.below(14) {
        0 => writeln!(text, "add.u64 {d}, {x}, {y};"),
        1 => writeln!(text, "sub.u64 {d}, {x}, {y};"),
        2 => writeln!(text, "mul.lo.u64 {d}, {x}, {y};"),
        3 => writeln!(text, "mul.hi.{sign} {d}, {x}, {y};"),
        4 => writeln!(text, "mul.wide.{} {d}, {w}, {v};", c.of(&["u32", "s32"])),
        5 => writeln!(text, "mad.wide.{} {d}, {w}, {v}, {y};", c.of(&["u32", "s32"])),
        // By a constant beyond 64 bits, ptxas 12.3 -O3 multiplies by something else than 0.
        6 => writeln!(text, "shl.b64 {d}, {x}, {};", c.r()),
        7 => writeln!(text, "shr.{sign} {d}, {x}, {};", c.r()),
        8 => writeln!(text, "{}.b64 {d}, {x}, {y};", c.of(&["and", "or", "xor"])),
        9 => writeln!(text, "{}.{sign} {d}, {x}, {y};", c.of(&["min", "max"])),
        10 => writeln!(
            text,
            "cvt.{}.{} {d}, {};",
            c.of(&["u64", "s64"]),
            c.of(&["u32", "s32"]),
            c.r()
        ),
        11 => writeln!(text, "cvt.u32.u64 {}, {x};", c.r()),
        12 => writeln!(text, "{}.b64 {}, {x};", c.of(&["popc", "clz"]), c.r()),
        _ => writeln!(text, "or.b64 %a2, {y}, 1; {}.{sign} {d}, {x}, %a2;", c.of(&["div", "rem"])),
    }
    .unwrap();
}

fn floats(c: &mut Choice, text: &mut String) {
    let (d, x, y, z) = (c.single(), c.single(), c.single(), c.single());
    let round = c.of(&["rn", "rn", "rz", "rm", "rp"]);
    let flags = c.of(&["", "", ".ftz", ".sat"]);
    match c.below(11) {
        0 | 1 => {
            writeln!(text, "{}.{round}{flags}.f32 {d}, {x}, {y};", c.of(&["add", "sub", "mul"]))
        }
        2 | 3 => writeln!(text, "fma.{round}{flags}.f32 {d}, {x}, {y}, {z};"),
        4 => writeln!(
            text,
            "{}.f32 {d}, {x}, {y};",
            c.of(&["min", "max", "min.NaN", "max.NaN", "max.ftz"])
        ),
        5 => writeln!(text, "div.rn.f32 {d}, {x}, {y};"),
        6 => writeln!(text, "{}.rn.f32 {d}, {x};", c.of(&["sqrt", "rcp"])),
        7 => {
            let compare = c.of(&["lt", "eq", "gt", "ne", "leu", "neu", "num", "nan", "geu"]);
            writeln!(text, "setp.{compare}.f32 %p{}, {x}, {y};", c.below(2))
        }
        8 => writeln!(text, "selp.f32 {d}, {x}, {y}, %p{};", c.below(2)),
        9 => writeln!(text, "set.{}.u32.f32 {}, {x}, {y};", c.of(&["lt", "ge", "neu"]), c.r()),
        _ => writeln!(text, "mov.f32 {d}, 0f{:08x};", 0x3f00_0000 + c.below(1 << 24)),
    }
    .unwrap();
}

fn doubles(c: &mut Choice, text: &mut String) {
    let (d, x, y) = (c.double(), c.double(), c.double());
    let round = c.of(&["rn", "rz", "rm", "rp"]);
    match c.below(6) {
        0 => writeln!(text, "{}.{round}.f64 {d}, {x}, {y};", c.of(&["add", "sub", "mul"])),
        1 => writeln!(text, "fma.{round}.f64 {d}, {x}, {y}, {d};"),
        2 => writeln!(text, "{}.f64 {d}, {x}, {y};", c.of(&["min", "max"])),
        3 => writeln!(
            text,
            "setp.{}.f64 %p{}, {x}, {y};",
            c.of(&["lt", "ge", "neu", "equ"]),
            c.below(2)
        ),
        4 => writeln!(text, "div.rn.f64 {d}, {x}, {y};"),
        _ => writeln!(text, "selp.f64 {d}, {x}, {y}, %p{};", c.below(2)),
    }
    .unwrap();
}

fn conversions(c: &mut Choice, text: &mut String) {
    let round = c.of(&["rn", "rz", "rm", "rp"]);
    match c.below(9) {
        0 => writeln!(text, "cvt.{round}.f32.{} {}, {};", c.of(&["u32", "s32"]), c.single(), c.r()),
        1 => {
            writeln!(text, "cvt.{round}i.{}.f32 {}, {};", c.of(&["u32", "s32"]), c.r(), c.single())
        }
        2 => writeln!(
            text,
            "cvt.{round}.f32.{} {}, {};",
            c.of(&["u64", "s64"]),
            c.single(),
            c.long()
        ),
        3 => writeln!(
            text,
            "cvt.{round}.f64.{} {}, {};",
            c.of(&["u64", "s64"]),
            c.double(),
            c.long()
        ),
        4 => writeln!(text, "cvt.f64.f32 {}, {};", c.double(), c.single()),
        5 => writeln!(text, "cvt.{round}.f32.f64 {}, {};", c.single(), c.double()),
        6 => writeln!(text, "cvt.{round}i.f32.f32 {}, {};", c.single(), c.single()),
        7 => writeln!(
            text,
            "cvt.{0}.{1} {2}, %h0;",
            c.of(&["u32", "s32"]),
            c.of(&["u8", "s8", "u16", "s16"]),
            c.r()
        )
        .and_then(|()| writeln!(text, "cvt.u16.u32 %h0, {};", c.r())),
        _ => writeln!(
            text,
            "cvt.{round}i.{}.f64 {}, {};",
            c.of(&["u64", "s64"]),
            c.long(),
            c.double()
        ),
    }
    .unwrap();
}

fn halves(c: &mut Choice, text: &mut String) {
    let (d, x, y, z) = (c.r(), c.r(), c.r(), c.r());
    // Which NaN comes of two is left open: there is none.
    let tame = |text: &mut String, to: &str, from: &str| {
        writeln!(text, "and.b32 {to}, {from}, 0xb7ffb7ff;").unwrap();
    };
    tame(text, "%n2", &x);
    tame(text, "%n3", &y);
    tame(text, "%n4", &z);
    match c.below(5) {
        0 => writeln!(text, "fma.rn.f16x2 {d}, %n2, %n3, %n4;"),
        1 => writeln!(
            text,
            "{}.f16x2 {d}, %n2, %n3;",
            c.of(&["add.rn", "sub.rn", "mul.rn", "min", "max"])
        ),
        2 => writeln!(text, "cvt.u16.u32 %h1, %n2; cvt.f32.f16 {}, %h1;", c.single()),
        3 => writeln!(text, "fma.rn.bf16x2 {d}, %n2, %n3, %n4;"),
        _ => writeln!(text, "set.{}.f16x2.f16x2 {d}, %n2, %n3;", c.of(&["lt", "eq", "gt"])),
    }
    .unwrap();
}

fn predicates(c: &mut Choice, text: &mut String) {
    let (x, y, compare) = (c.word(), c.r(), c.of(&["lt", "le", "gt", "ge", "eq", "ne"]));
    let sign = c.of(&["u32", "s32"]);
    match c.below(4) {
        0 => writeln!(text, "setp.{compare}.{sign} %p{}, {y}, {x};", c.below(2)),
        1 => writeln!(
            text,
            "setp.{compare}.{}.{sign} %p0, {y}, {x}, %p1;",
            c.of(&["and", "or", "xor"])
        ),
        2 => writeln!(text, "{}.pred %p0, %p1, %p0;", c.of(&["and", "or", "xor"])),
        // Of a register and itself, in a loop, ptxas 12.3 -O1 leaves the loop out.
        _ => writeln!(
            text,
            "setp.{compare}.{} %p{}, %d0, {};",
            c.of(&["u64", "s64"]),
            c.below(2),
            c.of(&["%d1", "%d2"])
        ),
    }
    .unwrap();
}

/// Results that are clamped, and subnormal numbers that are zero.
fn flags(c: &mut Choice, text: &mut String) {
    let (d, x, y, f, g) = (c.r(), c.r(), c.r(), c.single(), c.single());
    let flags = c.of(&[".ftz", ".sat", ".ftz.sat"]);
    match c.below(7) {
        // Of a number that it negated, ptxas 12.3 takes the sign of the other for what it is not, also of zero.
        0 => writeln!(
            text,
            "or.b32 %n1, {x}, 1; or.b32 %n2, {y}, 1; {}.sat.s32 {d}, %n1, %n2;",
            c.of(&["add", "sub"])
        ),
        1 => writeln!(text, "cvt.{}{flags}.f32.f32 {f}, {g};", c.of(&["rni", "rzi", "rmi", "rpi"])),
        2 => writeln!(text, "cvt.{}.ftz.s32.f32 {d}, {f};", c.of(&["rni", "rzi", "rmi", "rpi"])),
        3 => writeln!(text, "cvt.{}{flags}.f32.f64 {f}, {};", c.of(&["rn", "rz", "rm", "rp"]), c.double()),
        4 => writeln!(text, "cvt.{}.sat.f32.{} {f}, {x};", c.of(&["rn", "rz"]), c.of(&["u32", "s32"])),
        5 => writeln!(
            text,
            "and.b32 %n2, {x}, 0xb7ffb7ff; and.b32 %n3, {y}, 0xb7ffb7ff; {}{flags}.f16x2 {d}, %n2, %n3;",
            c.of(&["add.rn", "mul.rn", "sub.rn"])
        ),
        _ => writeln!(text, "cvt.sat.{}.s32 %h1, {x}; cvt.s32.s16 {d}, %h1;", c.of(&["u8", "s8", "u16", "s16"])),
    }
    .unwrap();
}

/// Atomics with a result, and copies, at a place that no other thread has.
fn places(c: &mut Choice, text: &mut String) {
    let (d, x, f, g) = (c.r(), c.r(), c.single(), c.single());
    let load = c.of(&["ld.shared.b32", "ld.shared.s16"]);
    match c.below(5) {
        0 => writeln!(text, "atom.shared.add.f32 {f}, [%t1], {g}; ld.shared.f32 {f}, [%t1];"),
        1 => writeln!(
            text,
            "atom.shared.{} {d}, [%t1], {x};",
            c.of(&["add.u32", "max.s32", "min.u32", "exch.b32", "inc.u32", "dec.u32", "xor.b32"])
        ),
        2 => writeln!(text, "atom.shared.cas.b32 {d}, [%t1], {x}, {d}; {load} {d}, [%t1];"),
        3 => writeln!(text, "atom.shared.{} {}, [%t1], {};", c.of(&["add.u64", "or.b64", "max.u64"]), c.long(), c.long()),
        _ => writeln!(
            text,
            "rem.u32 %n5, {x}, 9; cp.async.ca.shared.global [%t1], [%a0], 8, %n5; cp.async.wait_all;\n\
             {load} {d}, [%t1];"
        ),
    }
    .unwrap();
}

/// Products of matrices, of integers: those of floats may be summed in another order.
fn products(c: &mut Choice, text: &mut String) {
    let (x, y, z, w) = (c.r(), c.r(), c.r(), c.r());
    let kind = c.of(&["s8.s8", "u8.s8", "s8.u8"]);
    let saturate = c.of(&["", ".satfinite"]);
    match c.below(2) {
        0 => writeln!(
            text,
            "mma.sync.aligned.m8n8k16.row.col{saturate}.s32.{kind}.s32 {{%r0, %r1}}, {{{x}}}, {{{y}}}, {{{z}, {w}}};"
        ),
        _ => writeln!(
            text,
            "mma.sync.aligned.m16n8k16.row.col{saturate}.s32.{kind}.s32 {{%r0, %r1, %r2, %r3}}, {{{x}, {y}}}, {{{z}}}, \
             {{{w}, {x}, {y}, {z}}};"
        ),
    }
    .unwrap();
}

/// What needs all lanes at one place.
fn together(c: &mut Choice, text: &mut String) {
    let (d, x) = (c.r(), c.r());
    match c.below(9) {
        0 => writeln!(
            text,
            "shfl.sync.{}.b32 {d}, {x}, {}, {}, -1;",
            c.of(&["bfly", "down", "idx"]),
            c.below(32),
            [31, 0x181f, 0x1c1f][c.below(3) as usize]
        ),
        // ptxas 12.3 leaves a vote to the lanes that use its result, if those are not all.
        1 => writeln!(
            text,
            "vote.sync.ballot.b32 {d}, %p{}, -1; st.shared.b32 [%t1], {d};",
            c.below(2)
        ),
        2 => writeln!(text, "vote.sync.{}.pred %p0, %p1, -1;", c.of(&["all", "any", "uni"])),
        3 => writeln!(text, "and.b32 %n5, {x}, 3; match.any.sync.b32 {d}, %n5, -1;"),
        4 => writeln!(text, "redux.sync.{}.s32 {d}, {x}, -1;", c.of(&["add", "min", "max"])),
        5 => writeln!(
            text,
            "st.shared.b32 [%t1], {x}; bar.sync 0; xor.b32 %n6, %t2, {}; mov.u32 %n7, s; add.u32 %n6, %n6, %n7;\n\
             ld.shared.b32 {d}, [%n6]; bar.sync 0;",
            8 << c.below(6)
        ),
        6 => writeln!(text, "and.b32 %n5, {x}, 60; cvt.u64.u32 %a3, %n5; add.u64 %a3, %a3, %a1;\n\
             red.global.{} [%a3], {d};", c.of(&["add.u32", "max.s32", "xor.b32", "or.b32"])),
        7 => writeln!(
            text,
            "st.shared.u8 [%t1+{}], {x}; ld.shared.{} {d}, [%t1+{}];",
            c.below(8),
            c.of(&["u8", "s8"]),
            c.below(8)
        ),
        _ => writeln!(text, "bar.red.popc.u32 {d}, 0, %p{};", c.below(2)),
    }
    .unwrap();
}

fn branch(c: &mut Choice, text: &mut String, depth: u32) {
    let (label, predicate) = (c.labels, c.below(2));
    c.labels += 1;
    writeln!(text, "@{}%p{predicate} bra L{label};", c.of(&["", "!"])).unwrap();
    for _ in 0..1 + c.below(5) {
        statement(c, text, depth + 1);
    }
    if c.below(2) == 0 {
        writeln!(text, "bra M{label};\nL{label}:").unwrap();
        for _ in 0..1 + c.below(5) {
            statement(c, text, depth + 1);
        }
        writeln!(text, "M{label}:").unwrap();
    } else {
        writeln!(text, "L{label}:").unwrap();
    }
}

/// A loop of as many rounds as the lowest bits of a register say.
fn repeat(c: &mut Choice, text: &mut String, depth: u32) {
    let label = c.labels;
    c.labels += 1;
    let counter = format!("%n{}", 7 + depth.min(1));
    // A predicate that is known where a loop begins, as by a branch around it, ptxas 12.3 takes for the same in all
    // rounds, though the loop changes it.
    text.push_str("setp.gt.s32 %p0, %r0, 9; setp.ne.s32 %p1, %r1, %r2;\n");
    writeln!(text, "and.b32 {counter}, {}, 7;\nL{label}:", c.r()).unwrap();
    for _ in 0..1 + c.below(4) {
        statement(c, text, depth + 1);
    }
    writeln!(
        text,
        "sub.u32 {counter}, {counter}, 1; setp.gt.s32 %p3, {counter}, 0; @%p3 bra L{label};"
    )
    .unwrap();
}
