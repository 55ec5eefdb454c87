//! Each operation of PTX with each of its modifiers on special values, as PTX and as ptxas assembles it: what they leave
//! must be the same.
//!
//! An operation is a kernel of its own. Its sources come from memory, so that ptxas computes nothing itself.

use std::env;
use std::fmt::Write;
use std::ops::RangeInclusive;

use nvabi_emu::{Args, Device, Launch, Module};

use crate::sass;

/// What is assembled: each architecture, at a level each.
const VARIANTS: [(u32, u32); 4] = [(80, 3), (86, 1), (89, 0), (90, 3)];

/// Threads, of which each has four words of sources and two of results.
const THREADS: usize = 1024;
const WORDS: usize = 6;

/// How far results may be from each other.
#[derive(Clone, Copy)]
enum Near {
    /// Bit for bit; a NaN of 64 bits is as good as another.
    Same,
    /// A float, by so many units in the last place.
    Units(u32),
    /// A float of a source that is no angle beyond a few turns, by as much as this.
    Distance(f32),
}

struct Operation {
    /// What PTX it is: `add.ftz.f32`, or several instructions.
    name: String,
    body: String,
    /// The types of its sources and, last, of its result: letters as in `TYPES`.
    types: String,
    /// The architectures that have it.
    archs: RangeInclusive<u32>,
    near: Near,
}

/// Types: a letter, the prefix of registers, and the instruction that makes words of a result.
const TYPES: [(char, &str, &str); 6] = [
    ('r', "%r", "mov.b32 %o1, %r9;"),
    ('f', "%f", "mov.b32 %o1, %f9;"),
    ('d', "%d", "mov.b64 {%o1, %o2}, %d9;"),
    ('l', "%l", "mov.b64 {%o1, %o2}, %l9;"),
    ('h', "%h", "cvt.u32.u16 %o1, %h9;"),
    ('p', "%p", "selp.u32 %o1, 1, 0, %p9;"),
];

fn prefix(letter: char) -> &'static str {
    TYPES.iter().find(|(known, ..)| *known == letter).map_or("", |(_, prefix, _)| prefix)
}

struct Operations {
    all: Vec<Operation>,
    /// Of those that are added.
    archs: RangeInclusive<u32>,
    near: Near,
}

impl Operations {
    /// Instructions of sources and a result: `"ff f"`.
    fn add(&mut self, types: &str, names: &[&str]) {
        let (sources, result) = types.split_once(' ').unwrap();
        for name in names {
            let sources = sources
                .chars()
                .enumerate()
                .map(|(at, letter)| format!(", {}{}", prefix(letter), at + 1));
            let sources: String = sources.collect();
            let to = prefix(result.chars().next().unwrap());
            self.body(types, name, format!("{name} {to}9{sources};"));
        }
    }

    /// Names whose `*` is each of these.
    fn each(&mut self, types: &str, pattern: &str, words: &[&str]) {
        for word in words {
            self.add(types, &[&pattern.replace('*', word)]);
        }
    }

    fn body(&mut self, types: &str, name: &str, body: String) {
        self.all.push(Operation {
            name: name.to_owned(),
            body,
            types: types.replace(' ', ""),
            archs: self.archs.clone(),
            near: self.near,
        });
    }

    fn near(&mut self, near: Near, f: impl FnOnce(&mut Self)) {
        self.near = near;
        f(self);
        self.near = Near::Same;
    }

    fn on(&mut self, archs: RangeInclusive<u32>, f: impl FnOnce(&mut Self)) {
        self.archs = archs;
        f(self);
        self.archs = ALL;
    }
}

const ALL: RangeInclusive<u32> = 80..=90;
const ROUNDINGS: [&str; 4] = ["rn", "rz", "rm", "rp"];
const FLAGS: [&str; 4] = ["", ".ftz", ".sat", ".ftz.sat"];
const FLOAT_RELATIONS: [&str; 14] =
    ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"];

fn operations() -> Vec<Operation> {
    let mut all = Operations { all: Vec::new(), archs: ALL, near: Near::Same };
    singles(&mut all);
    doubles(&mut all);
    halves(&mut all);
    approximations(&mut all);
    conversions(&mut all);
    comparisons(&mut all);
    integers(&mut all);
    memory(&mut all);
    registers(&mut all);
    barriers(&mut all);
    matrices(&mut all);
    all.all
}

fn singles(all: &mut Operations) {
    for round in ROUNDINGS {
        for flags in FLAGS {
            all.each("ff f", &format!("*.{round}{flags}.f32"), &["add", "sub", "mul"]);
            all.add("fff f", &[&format!("fma.{round}{flags}.f32")]);
        }
        for ftz in ["", ".ftz"] {
            all.add("ff f", &[&format!("div.{round}{ftz}.f32")]);
            all.each("f f", &format!("*.{round}{ftz}.f32"), &["rcp", "sqrt"]);
        }
    }
    for ftz in ["", ".ftz"] {
        for name in ["min", "max"] {
            all.each("ff f", &format!("{name}{ftz}*.f32"), &["", ".NaN"]);
            all.on(86..=90, |all| {
                let signs = [".xorsign.abs", ".NaN.xorsign.abs"];
                all.each("ff f", &format!("{name}{ftz}*.f32"), &signs);
            });
        }
        all.each("f f", &format!("*{ftz}.f32"), &["abs", "neg"]);
        all.add("fff f", &[&format!("slct{ftz}.f32.f32")]);
    }
    all.add("ff f", &["copysign.f32"]);
    let classes = ["finite", "infinite", "number", "notanumber", "normal", "subnormal"];
    all.each("f p", "testp.*.f32", &classes);
    all.each("d p", "testp.*.f64", &classes);
}

fn doubles(all: &mut Operations) {
    for round in ROUNDINGS {
        all.each("dd d", &format!("*.{round}.f64"), &["add", "sub", "mul", "div"]);
        all.add("ddd d", &[&format!("fma.{round}.f64")]);
        all.each("d d", &format!("*.{round}.f64"), &["rcp", "sqrt"]);
    }
    all.add("dd d", &["min.f64", "max.f64", "copysign.f64"]);
    all.add("d d", &["abs.f64", "neg.f64"]);
}

fn halves(all: &mut Operations) {
    for (letter, kind) in [("h", "f16"), ("r", "f16x2")] {
        for flags in FLAGS {
            let two = format!("{letter}{letter} {letter}");
            all.each(&two, &format!("*.rn{flags}.{kind}"), &["add", "sub", "mul"]);
            let three = format!("{letter}{letter}{letter} {letter}");
            all.add(&three, &[&format!("fma.rn{flags}.{kind}")]);
        }
        let two = format!("{letter}{letter} {letter}");
        for ftz in ["", ".ftz"] {
            all.each(&two, &format!("min{ftz}*.{kind}"), &["", ".NaN"]);
            all.each(&two, &format!("max{ftz}*.{kind}"), &["", ".NaN"]);
            let three = format!("{letter}{letter}{letter} {letter}");
            all.add(&three, &[&format!("fma.rn{ftz}.relu.{kind}")]);
        }
    }
    for (letter, kind) in [("h", "bf16"), ("r", "bf16x2")] {
        let two = format!("{letter}{letter} {letter}");
        let three = format!("{letter}{letter}{letter} {letter}");
        all.each(&three, &format!("fma.rn*.{kind}"), &["", ".relu"]);
        all.each(&two, &format!("*.{kind}"), &["min", "max", "min.NaN", "max.NaN"]);
        all.on(90..=90, |all| all.each(&two, &format!("*.rn.{kind}"), &["add", "sub", "mul"]));
    }
}

/// MUFU and what is made of it.
fn approximations(all: &mut Operations) {
    all.near(Near::Units(2), |all| {
        for ftz in ["", ".ftz"] {
            all.each("f f", &format!("*.approx{ftz}.f32"), &["rcp", "sqrt", "rsqrt", "ex2"]);
            all.each("ff f", &format!("div.*{ftz}.f32"), &["approx", "full"]);
        }
        all.add("f f", &["tanh.approx.f32"]);
        all.add("h h", &["tanh.approx.f16", "ex2.approx.f16"]);
        all.add("r r", &["tanh.approx.f16x2", "ex2.approx.f16x2"]);
        all.on(90..=90, |all| {
            all.add("h h", &["tanh.approx.bf16", "ex2.approx.ftz.bf16"]);
            all.add("r r", &["tanh.approx.bf16x2", "ex2.approx.ftz.bf16x2"]);
        });
        all.add("d d", &["rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64"]);
    });
    // Of a number near 1 the logarithm is nearly nothing.
    all.near(Near::Distance(1e-6), |all| {
        all.each("f f", "*.f32", &["lg2.approx", "lg2.approx.ftz"]);
    });
    all.near(Near::Distance(1e-4), |all| {
        all.each("f f", "*.f32", &["sin.approx", "sin.approx.ftz", "cos.approx", "cos.approx.ftz"]);
    });
}

fn conversions(all: &mut Operations) {
    let integers = [
        ("u8", 'h'),
        ("s8", 'h'),
        ("u16", 'h'),
        ("s16", 'h'),
        ("u32", 'r'),
        ("s32", 'r'),
        ("u64", 'l'),
        ("s64", 'l'),
    ];
    let whole = ["rni", "rzi", "rmi", "rpi"];
    for (kind, letter) in integers {
        for round in whole {
            for flags in ["", ".ftz"] {
                all.add(&format!("f {letter}"), &[&format!("cvt.{round}{flags}.{kind}.f32")]);
            }
            all.add(&format!("d {letter}"), &[&format!("cvt.{round}.{kind}.f64")]);
            // ptxas has none of a half and a byte.
            if !kind.ends_with('8') {
                all.add(&format!("h {letter}"), &[&format!("cvt.{round}.{kind}.f16")]);
            }
        }
        for round in ROUNDINGS {
            for sat in ["", ".sat"] {
                all.add(&format!("{letter} f"), &[&format!("cvt.{round}{sat}.f32.{kind}")]);
                all.add(&format!("{letter} h"), &[&format!("cvt.{round}{sat}.f16.{kind}")]);
                all.add(&format!("{letter} d"), &[&format!("cvt.{round}{sat}.f64.{kind}")]);
            }
        }
        for (from, source) in integers {
            all.add(&format!("{source} {letter}"), &[&format!("cvt.{kind}.{from}")]);
            // Only where there is something to clamp.
            let (bits, from_bits): (u32, u32) =
                (kind[1..].parse().unwrap(), from[1..].parse().unwrap());
            let same_sign = kind[..1] == from[..1];
            let holds_all = if same_sign {
                bits >= from_bits
            } else {
                from.starts_with('u') && bits > from_bits
            };
            if !holds_all {
                all.add(&format!("{source} {letter}"), &[&format!("cvt.sat.{kind}.{from}")]);
            }
        }
    }
    for flags in FLAGS {
        for round in ["rni", "rzi", "rmi", "rpi"] {
            all.add("f f", &[&format!("cvt.{round}{flags}.f32.f32")]);
        }
        all.add("f f", &[&format!("cvt{flags}.f32.f32")]);
        all.add("f d", &[&format!("cvt{flags}.f64.f32")]);
        all.add("h f", &[&format!("cvt{flags}.f32.f16")]);
        for round in ROUNDINGS {
            all.add("d f", &[&format!("cvt.{round}{flags}.f32.f64")]);
            // ptxas leaves `.ftz` out, which shows where it is rounded away from zero.
            if !flags.contains("ftz") || matches!(round, "rn" | "rz") {
                all.add("f h", &[&format!("cvt.{round}{flags}.f16.f32")]);
            }
        }
    }
    for sat in ["", ".sat"] {
        for round in whole {
            all.add("d d", &[&format!("cvt.{round}{sat}.f64.f64")]);
            all.add("h h", &[&format!("cvt.{round}{sat}.f16.f16")]);
        }
        all.add("h d", &[&format!("cvt{sat}.f64.f16")]);
        all.each("d h", &format!("cvt.*{sat}.f16.f64"), &ROUNDINGS);
    }
    all.add("f r", &["cvt.rna.tf32.f32"]);
    all.on(90..=90, |all| {
        all.each("f r", "cvt.*.tf32.f32", &["rn", "rn.relu", "rz", "rz.relu"]);
    });
    all.each("rrr r", "cvt.pack.sat.*.s32.b32", &["u8", "s8"]);
    all.each("rr r", "cvt.pack.sat.*.s32", &["u16", "s16"]);
    all.add("r r", &["movmatrix.sync.aligned.m8n8.trans.b16"]);
    for relu in ["", ".relu"] {
        for round in ["rn", "rz"] {
            all.add("f h", &[&format!("cvt.{round}{relu}.bf16.f32")]);
            all.each("ff r", &format!("cvt.{round}{relu}.*.f32"), &["f16x2", "bf16x2"]);
        }
        all.add("f h", &[&format!("cvt.rn{relu}.f16.f32"), &format!("cvt.rz{relu}.f16.f32")]);
    }
    all.on(90..=90, |all| all.add("h f", &["cvt.f32.bf16"]));
}

fn comparisons(all: &mut Operations) {
    for relation in FLOAT_RELATIONS {
        for ftz in ["", ".ftz"] {
            all.add("ff r", &[&format!("set.{relation}{ftz}.u32.f32")]);
            all.add("ff f", &[&format!("set.{relation}{ftz}.f32.f32")]);
            all.add("ff p", &[&format!("setp.{relation}{ftz}.f32")]);
            all.add("hh r", &[&format!("set.{relation}{ftz}.u32.f16")]);
            all.add("hh h", &[&format!("set.{relation}{ftz}.f16.f16")]);
            all.add("rr r", &[&format!("set.{relation}{ftz}.f16x2.f16x2")]);
            let name = format!("setp.{relation}{ftz}.f16x2");
            let both = "selp.u32 %o1, 1, 0, %p1; selp.u32 %o2, 1, 0, %p2;";
            all.body("rr ", &name, format!("{name} %p1|%p2, %r1, %r2; {both}"));
        }
        all.add("dd r", &[&format!("set.{relation}.u32.f64")]);
        all.add("dd f", &[&format!("set.{relation}.f32.f64")]);
        all.add("dd p", &[&format!("setp.{relation}.f64")]);
        all.on(90..=90, |all| {
            all.add("rr r", &[&format!("set.{relation}.bf16x2.bf16x2")]);
        });
    }
    let integers =
        [("u16", 'h'), ("s16", 'h'), ("u32", 'r'), ("s32", 'r'), ("u64", 'l'), ("s64", 'l')];
    for (kind, letter) in integers {
        for relation in ["eq", "ne", "lt", "le", "gt", "ge"] {
            all.add(&format!("{letter}{letter} p"), &[&format!("setp.{relation}.{kind}")]);
            all.add(&format!("{letter}{letter} r"), &[&format!("set.{relation}.u32.{kind}")]);
            all.add(&format!("{letter}{letter} f"), &[&format!("set.{relation}.f32.{kind}")]);
        }
        if kind.starts_with('u') {
            all.each(
                &format!("{letter}{letter} p"),
                &format!("setp.*.{kind}"),
                &["lo", "ls", "hi", "hs"],
            );
        }
    }
    for combine in ["and", "or", "xor"] {
        let compare = format!("setp.lt.{combine}.s32 %p1|%p2, %r1, %r2, %p3;");
        let both = "selp.u32 %o1, 1, 0, %p1; selp.u32 %o2, 1, 0, %p2;";
        let body = format!("setp.gt.s32 %p3, %r3, 0; {compare} {both}");
        all.body("rrr ", &format!("setp.lt.{combine}.s32"), body);
    }
}

/// Places and lengths of bit fields are up to 255.
const BYTES: &str = "and.b32 %r3, %r3, 255; and.b32 %r4, %r4, 255;";

fn integers(all: &mut Operations) {
    for (kind, letter) in
        [("u16", 'h'), ("s16", 'h'), ("u32", 'r'), ("s32", 'r'), ("u64", 'l'), ("s64", 'l')]
    {
        let (one, two) = (format!("{letter} {letter}"), format!("{letter}{letter} {letter}"));
        let three = format!("{letter}{letter}{letter} {letter}");
        all.each(&two, &format!("*.{kind}"), &["add", "sub", "mul.lo", "mul.hi", "min", "max"]);
        all.add(&three, &[&format!("mad.lo.{kind}")]);
        if letter != 'h' {
            all.add(&three, &[&format!("mad.hi.{kind}")]);
            all.each(&format!("{letter} r"), &format!("*.{kind}"), &["bfind", "bfind.shiftamt"]);
            let prefix = prefix(letter);
            all.body(
                &format!("{letter}rr {letter}"),
                &format!("bfe.{kind}"),
                format!("{BYTES} bfe.{kind} {prefix}9, {prefix}1, %r3, %r4;"),
            );
        }
        all.add(&three, &[&format!("sad.{kind}")]);
        all.add(&format!("{letter}r {letter}"), &[&format!("shr.{kind}")]);
        if kind.starts_with('s') {
            all.each(&one, &format!("*.{kind}"), &["abs", "neg"]);
        }
        for name in ["div", "rem"] {
            let prefix = prefix(letter);
            let bits = kind.replace(['u', 's'], "b");
            let odd = format!("or.{bits} {prefix}2, {prefix}2, 1;");
            let name = format!("{name}.{kind}");
            all.body(&two, &name, format!("{odd} {name} {prefix}9, {prefix}1, {prefix}2;"));
        }
    }
    for (bits, letter) in [("b16", 'h'), ("b32", 'r'), ("b64", 'l')] {
        all.each(
            &format!("{letter}{letter} {letter}"),
            &format!("*.{bits}"),
            &["and", "or", "xor"],
        );
        all.each(&format!("{letter} {letter}"), &format!("*.{bits}"), &["not", "cnot"]);
        all.add(&format!("{letter}r {letter}"), &[&format!("shl.{bits}")]);
        if letter != 'h' {
            all.add(&format!("{letter} {letter}"), &[&format!("brev.{bits}")]);
            all.each(&format!("{letter} r"), &format!("*.{bits}"), &["popc", "clz"]);
            let prefix = prefix(letter);
            all.body(
                &format!("{letter}{letter}rr {letter}"),
                &format!("bfi.{bits}"),
                format!("{BYTES} bfi.{bits} {prefix}9, {prefix}1, {prefix}2, %r3, %r4;"),
            );
        }
    }
    for sign in ["u32", "s32"] {
        all.each("rr r", &format!("mul24.*.{sign}"), &["lo"]);
        all.each("rrr r", &format!("mad24.*.{sign}"), &["lo"]);
        all.add("rr l", &[&format!("mul.wide.{sign}")]);
        all.add("hh r", &[&format!("mul.wide.{}16", &sign[..1])]);
        all.add("hhr r", &[&format!("mad.wide.{}16", &sign[..1])]);
        for other in ["u32", "s32"] {
            all.add("rrr r", &[&format!("dp4a.{sign}.{other}")]);
            all.each("rrr r", &format!("dp2a.*.{sign}.{other}"), &["lo", "hi"]);
        }
    }
    all.add("rr r", &["add.sat.s32", "sub.sat.s32"]);
    for side in ["l", "r"] {
        all.each("rrr r", &format!("shf.{side}.*.b32"), &["wrap", "clamp"]);
    }
    all.each("rrr r", "prmt.b32*", &["", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"]);
    all.add("rrr r", &["slct.b32.s32"]);
    all.add("rrf r", &["slct.b32.f32"]);
    for table in ["0xca", "0x96", "0xe8"] {
        let name = format!("lop3.b32 {table}");
        all.body("rrr r", &name, format!("lop3.b32 %r9, %r1, %r2, %r3, {table};"));
    }
    for kinds in ["u32.u32.u32", "u32.u32.u32.add", "s32.s32.s32", "s32.s32.s32.add"] {
        all.add("rrr r", &[&format!("vabsdiff4.{kinds}")]);
    }
}

/// What is added in memory, where each thread has four words of its own.
fn memory(all: &mut Operations) {
    let mut change = |types: &str, kind: &str, words: &[&str], least: u32| {
        let (sources, _) = types.split_once(' ').unwrap();
        let prefix = prefix(sources.chars().next().unwrap());
        let bits = match kind {
            kind if kind.ends_with("64") => "b64",
            "f16" | "bf16" => "b16",
            _ => "b32",
        };
        for word in words {
            for (space, at) in [("global", "%a2"), ("shared", "%t1")] {
                // All of a word is there, of which a number may be half.
                let before =
                    format!("st.{space}.b32 [{at}], 0; st.{space}.{bits} [{at}], {prefix}1;");
                let behind = format!("ld.{space}.{bits} {prefix}8, [{at}];");
                let name = format!("atom.{space}.{word}.{kind}");
                let both = match bits {
                    "b64" => "mov.b64 {%o1, %o2}, %l8;".replace("%l", prefix),
                    "b16" => format!("cvt.u32.u16 %o2, {prefix}8;"),
                    _ => format!("mov.b32 %o2, {prefix}8;"),
                };
                all.on(least..=90, |all| {
                    // What was there is one result, and what is there afterwards the other.
                    let body = format!("{before} {name} {prefix}9, [{at}], {prefix}2; {behind}");
                    if bits == "b64" {
                        all.body(types, &name, body.clone());
                        all.body(
                            &types.replace(' ', "")[..1],
                            &format!("{name} behind"),
                            body + &both,
                        );
                    } else {
                        all.body(types, &name, format!("{body} {both}"));
                    }
                });
            }
        }
    };
    for sign in ["u32", "s32"] {
        change("rr r", sign, &["add", "min", "max"], 0);
    }
    change("rr r", "u32", &["inc", "dec"], 0);
    change("rr r", "b32", &["and", "or", "xor", "exch"], 0);
    change("ll l", "u64", &["add", "min", "max"], 0);
    change("ll l", "s64", &["min", "max"], 0);
    change("ll l", "b64", &["and", "or", "xor", "exch"], 0);
    change("ff f", "f32", &["add"], 0);
    change("dd d", "f64", &["add"], 0);
    change("hh h", "f16", &["add.noftz"], 0);
    change("rr r", "f16x2", &["add.noftz"], 0);
    change("hh h", "bf16", &["add.noftz"], 90);
    change("rr r", "bf16x2", &["add.noftz"], 90);
    // As many bytes as a register says are copied, the others are zero.
    for size in ["4", "8", "16"] {
        for cache in if size == "16" { &["ca", "cg"][..] } else { &["ca"] } {
            let load =
                "cp.async.wait_all; bar.sync 0; ld.shared.u32 %o1, [%t1]; ld.shared.u32 %o2, [%t1+";
            let load = format!("{load}{}];", size.parse::<u32>().unwrap() - 4);
            let name = format!("cp.async.{cache}.shared.global {size}");
            let copy = |rest: &str| {
                format!("{} [%t1], [%a1], {size}{rest}; {load}", name.rsplit_once(' ').unwrap().0)
            };
            all.body("r", &name, copy(""));
            let few = format!("rem.u32 %r5, %t0, {};", size.parse::<u32>().unwrap() + 1);
            all.body("r", &format!("{name}, some"), format!("{few} {}", copy(", %r5")));
            let ignored = format!("setp.gt.s32 %p1, %r1, 0; {}", copy(", %p1"));
            all.body("r", &format!("{name}, ignored"), ignored);
        }
    }
    all.on(90..=90, |all| {
        for (width, kind, list) in [
            ("v2", "f32", "{%f1, %f2}"),
            ("v4", "f32", "{%f1, %f2, %f3, %f4}"),
            // With numbers of 16 bits by themselves, ptxas 12.3 makes no end, or takes wrong registers.
            ("v2", "f16x2", "{%r1, %r2}"),
            ("v4", "f16x2", "{%r1, %r2, %r3, %r4}"),
            ("v2", "bf16x2", "{%r1, %r2}"),
        ] {
            let noftz = if kind == "f32" { "" } else { ".noftz" };
            let store = "st.global.v4.u32 [%a2], {%r4, %r3, %r2, %r1};";
            let at = if width == "v4" { 12 } else { 4 };
            let load = format!("ld.global.u32 %o1, [%a2]; ld.global.u32 %o2, [%a2+{at}];");
            let name = format!("red.global.{width}.{kind}.add{noftz}");
            all.body("r", &name, format!("{store} {name} [%a2], {list}; {load}"));
            let name = name.replace("red", "atom");
            // Results in the registers from 6 on.
            let old = (1..5).rev().fold(list.to_owned(), |list, at| {
                list.replace(&format!("{at}"), &format!("{}", at + 5))
            });
            let sum = match kind {
                "f32" => "mov.b32 %o2, %f7;",
                _ => "mov.b32 %o2, %r7;",
            };
            all.body("r", &name, format!("{store} {name} {old}, [%a2], {list}; {load} {sum}"));
        }
    });
}

/// Special registers. Ada and its like have room for fewer warps.
fn registers(all: &mut Operations) {
    for name in ["%nsmid", "%smid", "%warpid", "%dynamic_smem_size", "%total_smem_size", "%laneid"]
    {
        all.body("r", name, format!("mov.u32 %o1, {name};"));
    }
    for archs in [80..=80, 90..=90] {
        all.on(archs, |all| all.body("r", "%nwarpid", "mov.u32 %o1, %nwarpid;".to_owned()));
    }
}

/// Barriers in memory, one of each thread, and what a program asks them.
fn barriers(all: &mut Operations) {
    let barrier = |rest: &str| {
        format!(
            "mbarrier.init.shared.b64 [%t1], 2; mbarrier.arrive.shared.b64 %l7, [%t1]; {rest}\n\
             mbarrier.test_wait.shared.b64 %p1, [%t1], %l7; selp.u32 %o1, 1, 0, %p1;\n\
             mbarrier.pending_count.b64 %o2, %l7;"
        )
    };
    // Hopper's are not run.
    all.on(80..=89, |all| {
        for (name, rest) in [
            ("one arrival", ""),
            ("two arrivals", "mbarrier.arrive.shared.b64 %l8, [%t1];"),
            ("no completion", "mbarrier.arrive.noComplete.shared.b64 %l8, [%t1], 1;"),
            ("drop", "mbarrier.arrive_drop.shared.b64 %l8, [%t1];"),
            (
                "drop, next phase",
                "mbarrier.arrive_drop.shared.b64 %l8, [%t1]; mbarrier.arrive.shared.b64 %l7, [%t1];",
            ),
            ("copies", "cp.async.mbarrier.arrive.noinc.shared.b64 [%t1];"),
            (
                "three phases",
                "mbarrier.arrive.shared.b64 %l8, [%t1]; mbarrier.arrive.shared.b64 %l8, [%t1];\n\
                 mbarrier.arrive.shared.b64 %l8, [%t1]; mbarrier.arrive.shared.b64 %l7, [%t1];",
            ),
        ] {
            all.body("r", &format!("mbarrier: {name}"), barrier(rest));
        }
    });
}

/// Products of matrices and moves of them, by all lanes of a warp.
fn matrices(all: &mut Operations) {
    let list = |prefix: &str, first: usize, count: usize| {
        let names: Vec<String> =
            (first..first + count).map(|at| format!("%{prefix}{at}")).collect();
        format!("{{{}}}", names.join(", "))
    };
    let sum = |kind: &str, count: usize| {
        let words: String = (0..count)
            .map(|at| match kind {
                "w" => format!("xor.b32 %o{}, %o{0}, %w{};\n", 1 + at % 2, 30 + at),
                _ => format!(
                    "mov.b64 {{%t3, %t4}}, %e{}; xor.b32 %o1, %o1, %t3; xor.b32 %o2, %o2, %t4;\n",
                    30 + at
                ),
            })
            .collect();
        words
    };
    let mut product = |name: &str, kind: &str, [d, a, b, c]: [usize; 4]| {
        let [to, left, right, start] =
            [(30, d), (0, a), (10, b), (20, c)].map(|(first, count)| list(kind, first, count));
        let body = format!("{name} {to}, {left}, {right}, {start};\n{}", sum(kind, d));
        all.body("r", name, body);
    };
    for combine in ["xor", "and"] {
        for (shape, counts) in
            [("m8n8k128", [2, 1, 1, 2]), ("m16n8k128", [4, 2, 1, 4]), ("m16n8k256", [4, 4, 2, 4])]
        {
            let name = format!("mma.sync.aligned.{shape}.row.col.s32.b1.b1.s32.{combine}.popc");
            product(&name, "w", counts);
        }
    }
    for (kinds, shapes) in [
        (
            ["s4", "u4"],
            [("m8n8k32", [2, 1, 1, 2]), ("m16n8k32", [4, 2, 1, 4]), ("m16n8k64", [4, 4, 2, 4])],
        ),
        (
            ["s8", "u8"],
            [("m8n8k16", [2, 1, 1, 2]), ("m16n8k16", [4, 2, 1, 4]), ("m16n8k32", [4, 4, 2, 4])],
        ),
    ] {
        for (shape, counts) in shapes {
            for left in kinds {
                for right in kinds {
                    for saturate in ["", ".satfinite"] {
                        let types = format!("s32.{left}.{right}.s32");
                        let name = format!("mma.sync.aligned.{shape}.row.col{saturate}.{types}");
                        product(&name, "w", counts);
                    }
                }
            }
        }
    }
    product("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "e", [2, 1, 1, 2]);
    for (shape, a, b) in [("m16n8k4", 2, 1), ("m16n8k8", 4, 2), ("m16n8k16", 8, 4)] {
        all.on(90..=90, |all| {
            let mut of = |name: &str| {
                let [to, left, right, start] = [(30, 4), (0, a), (10, b), (20, 4)]
                    .map(|(first, count)| list("e", first, count));
                all.body(
                    "r",
                    name,
                    format!("{name} {to}, {left}, {right}, {start};\n{}", sum("e", 4)),
                );
            };
            of(&format!("mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64"));
        });
    }
    for (count, list) in
        [("x1", "{%w30}"), ("x2", "{%w30, %w31}"), ("x4", "{%w30, %w31, %w32, %w33}")]
    {
        for trans in ["", ".trans"] {
            let fill = "st.shared.v4.b32 [%t1], {%w0, %w1, %w2, %w3}; bar.sync 0;";
            let words = sum("w", count[1..].parse().unwrap());
            let name = format!("ldmatrix.sync.aligned.m8n8.{count}{trans}.shared.b16");
            all.body("r", &name, format!("{fill} {name} {list}, [%t1];\n{words}"));
            let name = name.replace("ld", "st");
            let list = list.replace("%w3", "%w");
            let load = "bar.sync 0; ld.shared.v2.b32 {%o1, %o2}, [%t1+8];";
            all.on(90..=90, |all| {
                all.body("r", &name, format!("{fill} {name} [%t1], {list}; {load}"));
            });
        }
    }
}

fn module(operations: &[&Operation]) -> String {
    let mut text = ".version 8.3\n.target sm_80\n.address_size 64\n".to_owned();
    for (number, operation) in operations.iter().enumerate() {
        let result = operation.types.chars().next_back().unwrap_or(' ');
        let words = TYPES.iter().find(|(letter, ..)| *letter == result);
        let words = words.filter(|_| operation.body.contains("9,")).map_or("", |(.., words)| words);
        write!(
            text,
            ".visible .entry k{number}(.param .u64 data, .param .u64 places) {{\n\
             .reg .pred %p<10>; .reg .b16 %h<20>; .reg .b32 %r<20>; .reg .b64 %l<20>; .reg .f32 %f<20>;\n\
             .reg .f64 %d<20>; .reg .b64 %a<9>; .reg .b32 %t<9>; .reg .b32 %o<3>;\n\
             .shared .align 16 .b8 s[{}];\n\
             ld.param.u64 %a1, [data]; ld.param.u64 %a2, [places];\n\
             mov.u32 %t0, %tid.x; mov.u32 %t1, s; mad.lo.u32 %t1, %t0, 16, %t1;\n\
             mov.u32 %t2, %ctaid.x; mad.lo.u32 %t2, %t2, {BLOCK}, %t0;\n\
             mad.wide.u32 %a3, %t2, 8, %a1; add.u64 %a3, %a3, {};\n\
             mad.wide.u32 %a1, %t2, 16, %a1; mad.wide.u32 %a2, %t2, 16, %a2;\n\
             ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, [%a1];\n\
             mov.b64 %l1, {{%r1, %r2}}; mov.b64 %l2, {{%r3, %r4}}; mov.b64 %l3, {{%r2, %r4}};\n\
             mov.u32 %o1, 0; mov.u32 %o2, 0;\n",
            16 * BLOCK,
            16 * THREADS,
        )
        .unwrap();
        for at in 1..5 {
            writeln!(text, "mov.b32 %f{at}, %r{at}; cvt.u16.u32 %h{at}, %r{at};").unwrap();
        }
        for at in 1..4 {
            writeln!(text, "mov.b64 %d{at}, %l{at};").unwrap();
        }
        if operation.body.contains("%w") || operation.body.contains("%e") {
            text += ".reg .b32 %w<40>; .reg .f64 %e<40>;\n";
            for at in 0..30 {
                let (from, next) = (1 + at % 4, 1 + (at + 1) % 4);
                writeln!(text, "shf.l.wrap.b32 %w{at}, %r{from}, %r{next}, {at};").unwrap();
                // No exponent of infinity or NaN.
                writeln!(
                    text,
                    "and.b32 %t3, %w{at}, 0xbfffffff; mov.b64 %e{at}, {{%r{next}, %t3}};"
                )
                .unwrap();
            }
        }
        writeln!(text, "{}\n{words} st.global.v2.u32 [%a3], {{%o1, %o2}}; ret; }}", operation.body)
            .unwrap();
    }
    text
}

/// Threads of a block.
const BLOCK: usize = 256;

/// Numbers where something may be different: of 32, of 64 and of 16 bits.
const SINGLES: [u32; 28] = [
    0,
    1,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff,
    0x3f80_0000,
    0xbf80_0000,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x0000_0010,
    0x8000_0010,
    0x007f_ffff,
    0x0080_0000,
    0x4b00_0001,
    0xcf00_0000,
    0x4f00_0000,
    0x5f00_0000,
    0x3f00_0000,
    0xbf00_0000,
    0x4020_0000,
    0x7f7f_ffff,
    0x3300_0000,
    0x477f_e000,
    0x7e80_0000,
    0x0100_0001,
    0x0000_0021,
    0x7f80_0001,
];
const DOUBLES: [u64; 24] = [
    0,
    1,
    1 << 63,
    u64::MAX,
    0x7fff_ffff_ffff_ffff,
    0x3ff0_0000_0000_0000,
    0xbff0_0000_0000_0000,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x7ff8_0000_0000_0000,
    0x8000_0000_0000_0010,
    0x000f_ffff_ffff_ffff,
    0x0010_0000_0000_0000,
    0x43e0_0000_0000_0000,
    0xc1e0_0000_0000_0000,
    0x41ef_ffff_ffe0_0000,
    0x3fe0_0000_0000_0000,
    0x4004_0000_0000_0000,
    0x7fef_ffff_ffff_ffff,
    0x3690_0000_0000_0000,
    0x47ef_ffff_f000_0000,
    0x40ef_fc00_0000_0000,
    0x3ff0_0000_0000_0001,
    0x3fd5_5555_5555_5555,
];
const HALVES: [u16; 20] = [
    0, 1, 0x8000, 0xffff, 0x7fff, 0x3c00, 0xbc00, 0x7c00, 0xfc00, 0x7e00, 0x0010, 0x03ff, 0x0400,
    0x3800, 0xb800, 0x4100, 0x7bff, 0x3f80, 0x7f80, 0x0080,
];

/// The four words of each thread: all pairs of special numbers of the widths of the sources, and others.
fn input(types: &str) -> Vec<[u32; 4]> {
    let mut state = 1u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.rotate_left(13)
    };
    let sources = &types[..types.len().saturating_sub(1).max(1)];
    let wide = sources.contains(['d', 'l']);
    let short = sources.contains('h');
    (0..THREADS)
        .map(|thread| {
            let word = |at: usize, other: u32| {
                if at < SINGLES.len() { SINGLES[at] } else { other }
            };
            let random = noise();
            if wide {
                let pick = |at: usize| DOUBLES[at % DOUBLES.len()];
                let mut of = |value: u64| {
                    if noise() % 8 == 0 {
                        u64::from(noise()) << 32 | u64::from(noise())
                    } else {
                        value
                    }
                };
                let (a, b) = (of(pick(thread)), of(pick(thread / DOUBLES.len())));
                return [a as u32, (a >> 32) as u32, b as u32, (b >> 32) as u32];
            }
            if short {
                let pick = |at: usize| u32::from(HALVES[at % HALVES.len()]);
                let (a, b) = (pick(thread), pick(thread / HALVES.len()));
                let c = pick(random as usize >> 8);
                return [a | b << 16, b | c << 16, c | a << 16, random];
            }
            let all = SINGLES.len();
            let (a, b, c) = (thread % all, thread / all % all, random as usize >> 8 & 31);
            let d = noise();
            // Beyond all pairs, some are any number.
            let first = if thread >= all * all { usize::MAX } else { a };
            [word(first, random), word(b, d), word(c, random), d >> 24]
        })
        .collect()
}

fn run(
    device: &mut Device,
    module: &Module,
    kernel: &str,
    input: &[[u32; 4]],
) -> Result<Vec<[u32; 2]>, String> {
    let data = device.alloc((THREADS * WORDS * 4) as u64).unwrap();
    let places = device.alloc((THREADS * 16) as u64).unwrap();
    let bytes: Vec<u8> = input.as_flattened().iter().flat_map(|word| word.to_le_bytes()).collect();
    device.write(data, &bytes).unwrap();
    device.write(places, &bytes).unwrap();
    let (grid, block) = ([(THREADS / BLOCK) as u32, 1, 1], [BLOCK as u32, 1, 1]);
    let max_warp_instructions = 1 << 20;
    let launch = Launch { grid, block, threads: 1, max_warp_instructions, ..Launch::default() };
    let args = Args::new().u64(data).u64(places);
    let report = device.launch(module, kernel, &launch, &args).unwrap();
    let mut out = vec![0; THREADS * 8];
    device.read(data + 16 * THREADS as u64, &mut out).unwrap();
    [data, places].into_iter().for_each(|address| device.free(address).unwrap());
    if let Some(finding) = report.findings.first() {
        return Err(finding.to_string());
    }
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    Ok(out.chunks(8).map(|both| [word(&both[..4]), word(&both[4..])]).collect())
}

impl Operation {
    fn same(&self, input: &[u32; 4], a: [u32; 2], b: [u32; 2]) -> bool {
        let single = [a, b].map(|words| f32::from_bits(words[0]));
        let double =
            [a, b].map(|[low, high]| f64::from_bits(u64::from(high) << 32 | u64::from(low)));
        let is_double = self.types.ends_with('d');
        if a == b || is_double && double.iter().all(|value| value.is_nan()) {
            return true;
        }
        match self.near {
            Near::Same => false,
            Near::Units(units) => {
                let distance = if is_double { a[1].abs_diff(b[1]) } else { a[0].abs_diff(b[0]) };
                distance <= units
            }
            Near::Distance(distance) => {
                let [a, b] = single;
                let turns =
                    f32::from_bits(input[0]).abs() > 100.0 && a.abs() <= 1.0 && b.abs() <= 1.0;
                a == b || (a - b).abs() <= distance * a.abs().max(1.0) || turns
            }
        }
    }
}

#[test]
fn operations_of_ptx_and_of_machine_code_are_the_same() {
    let Some(cuda) = sass::toolkit() else {
        nvabi_test::skip(nvabi_test::Need::Cuda, "no ptxas, and cuda/toolkit.sh could not fetch it")
    };
    let all = operations();
    let mut differences = Vec::new();
    let mut device = Device::new();
    // What PTX leaves is the same on all architectures. Each by itself, so that what cannot be loaded is found with
    // all others.
    let of_ptx: Vec<_> = (all.iter())
        .map(|operation| {
            let text = module(&[operation]).replace("sm_80", "sm_90");
            let ptx = device.load(&text).map_err(|error| error.to_string())?;
            run(&mut device, &ptx, "k0", &input(&operation.types))
        })
        .collect();
    for (arch, level) in VARIANTS {
        let some: Vec<_> = (all.iter().zip(&of_ptx).enumerate())
            .filter(|(number, (one, _))| one.archs.contains(&arch) && is_run(arch, *number))
            .map(|(_, both)| both)
            .collect();
        let kernels: Vec<&Operation> = some.iter().map(|(operation, _)| *operation).collect();
        let text = module(&kernels).replace("sm_80", &format!("sm_{arch}"));
        let name = format!("operations sm_{arch} -O{level}");
        let cubin = sass::assemble_one(&cuda, &text, arch, level, &name);
        let machine = device.load_cubin(&cubin).unwrap_or_else(|error| panic!("{name}: {error}"));
        for (number, (operation, of_ptx)) in some.into_iter().enumerate() {
            let input = input(&operation.types);
            let of_sass = run(&mut device, &machine, &format!("k{number}"), &input);
            let why = match (of_ptx, of_sass) {
                (Ok(ptx), Ok(sass)) => (0..THREADS)
                    .find(|at| !operation.same(&input[*at], ptx[*at], sass[*at]))
                    .map(|at| {
                        let (given, ptx, sass) = (input[at], ptx[at], sass[at]);
                        format!("of {given:x?}, {sass:x?} of machine code, {ptx:x?} of PTX")
                    }),
                (Err(why), _) => Some(format!("PTX: {why}")),
                (_, Err(why)) => Some(why),
            };
            differences.extend(why.map(|why| format!("sm_{arch} {}: {why}", operation.name)));
        }
    }
    assert!(differences.is_empty(), "{}:\n{}", differences.len(), differences.join("\n"));
}

/// Whether an operation is run on an architecture: of those between, whose instructions are nearly those of sm_80,
/// every fourth, or all with NVABI_SASS_ALL.
fn is_run(arch: u32, number: usize) -> bool {
    matches!(arch, 80 | 90) || number % 4 == 0 || env::var_os("NVABI_SASS_ALL").is_some()
}
