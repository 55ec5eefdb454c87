//! Textures and surfaces in the machine code that ptxas makes, against the PTX that it was made of: bit for bit, in
//! memory and in surfaces. Each kernel takes its texture from a parameter, and once more from memory.

use std::fmt::Write;

use nvabi_emu::{
    Addressing, Args, Comparison, Device, Image, Launch, Layout, MipmapSampler, Module, Rows,
    Sampler, Texel, TexelKind, Texture,
};

use super::sass;

/// What a kernel needs of its coordinates.
#[derive(Clone, Copy, PartialEq)]
enum Needs {
    Any,
    /// Directions whose greatest part is a power of two: ptxas divides by it with a reciprocal.
    Powers,
    /// Numbers of which sums and differences are exact.
    Exact,
    /// Bytes of a row that are so many, and a surface without numbers.
    Inside(u32),
    Outside(u32),
}

struct Kernel {
    name: String,
    body: String,
    /// Axes of the image, and its planes where they are layers or faces.
    axes: usize,
    planes: Option<u32>,
    needs: Needs,
}

/// Shapes, with coordinates of floats and of integers: axes and planes of an image for them.
const SHAPES: [(&str, &str, &str, usize, Option<u32>); 7] = [
    ("1d", "{%f1}", "{%r1}", 1, None),
    ("2d", "{%f1, %f2}", "{%r1, %r2}", 2, None),
    ("3d", "{%f1, %f2, %f3, %f3}", "{%r1, %r2, %r3, %r3}", 3, None),
    ("a1d", "{%r4, %f1}", "{%r4, %r1}", 1, Some(3)),
    ("a2d", "{%r4, %f1, %f2, %f2}", "{%r4, %r1, %r2, %r2}", 2, Some(3)),
    ("cube", "{%f1, %f2, %f3, %f3}", "", 2, Some(6)),
    ("acube", "{%r4, %f1, %f2, %f3}", "", 2, Some(12)),
];

fn kernels() -> Vec<Kernel> {
    let mut out = Vec::new();
    let mut add = |name: String, body: String, (axes, planes), needs| {
        out.push(Kernel { name: name.replace('.', "_"), body, axes, planes, needs });
    };
    let to = "{%o1, %o2, %o3, %o4}";
    for (shape, floats, integers, axes, planes) in SHAPES {
        let image = (axes, planes);
        let needs = if shape.ends_with("cube") { Needs::Powers } else { Needs::Any };
        let body = format!("tex.{shape}.v4.s32.f32 {to}, [%rd2, {floats}];");
        add(format!("tex_{shape}"), body, image, needs);
        let body = format!("tex.level.{shape}.v4.s32.f32 {to}, [%rd2, {floats}], %f4;");
        add(format!("level_{shape}"), body, image, needs);
        if !integers.is_empty() {
            let body = format!("tex.{shape}.v4.s32.s32 {to}, [%rd2, {integers}];");
            add(format!("load_{shape}"), body, image, needs);
            let body = format!("tex.level.{shape}.v4.s32.s32 {to}, [%rd2, {integers}], %r5;");
            add(format!("load_level_{shape}"), body, image, needs);
            let changes = match shape {
                "1d" | "a1d" => "{%f4}, {%f3}",
                "2d" | "a2d" => "{%f4, %f3}, {%f1, %f4}",
                // Of three axes ptxas makes neighbours, by instructions that are not run.
                _ => "",
            };
            if !changes.is_empty() {
                let body =
                    format!("tex.grad.{shape}.v4.s32.f32 {to}, [%rd2, {floats}], {changes};");
                add(format!("grad_{shape}"), body, image, needs);
            }
            for outside in ["trap", "clamp", "zero"] {
                let needs = match outside {
                    "trap" => Needs::Inside(4),
                    _ => Needs::Outside(4),
                };
                let place = format!("[%rd2, {integers}]");
                let body = format!("suld.b.{shape}.b32.{outside} %o1, {place};");
                add(format!("suld_{shape}_{outside}"), body, image, needs);
                let body = format!("sust.b.{shape}.b32.{outside} {place}, %r5;");
                add(format!("sust_{shape}_{outside}"), body, image, needs);
            }
        }
    }
    let flat = (2, None);
    for channel in ["r", "g", "b", "a"] {
        let body = format!("tld4.{channel}.2d.v4.s32.f32 {to}, [%rd2, {{%f1, %f2}}];");
        add(format!("gather_{channel}"), body, flat, Needs::Any);
    }
    let at = "[%rd2, {%f1, %f2}]";
    let depths = "{%f1, %f2, %f3, %f4}";
    let kept = "mov.b32 %o1, %f1; mov.b32 %o2, %f2; mov.b32 %o3, %f3; mov.b32 %o4, %f4;";
    for (shape, floats, _, axes, planes) in SHAPES.into_iter().skip(4) {
        let body = format!("tex.{shape}.v4.f32.f32 {depths}, [%rd2, {floats}], %f4; {kept}");
        let needs = if shape.ends_with("cube") { Needs::Powers } else { Needs::Any };
        add(format!("depth_{shape}"), body, (axes, planes), needs);
    }
    for (name, body) in [
        ("gather_offset", format!("tld4.g.2d.v4.s32.f32 {to}, {at}, {{%r1, %r2}};")),
        ("offset", format!("tex.2d.v4.s32.f32 {to}, {at}, {{%r1, %r2}};")),
        ("level_offset", format!("tex.level.2d.v4.s32.f32 {to}, {at}, %f4, {{%r1, %r2}};")),
        ("load_offset", format!("tex.2d.v4.s32.s32 {to}, [%rd2, {{%r1, %r2}}], {{%r3, %r3}};")),
        (
            "grad_offset",
            format!("tex.grad.2d.v4.s32.f32 {to}, {at}, {{%f3, %f4}}, {{%f1, %f2}}, {{%r1, %r2}};"),
        ),
        (
            "load_level_offset",
            format!("tex.level.2d.v4.s32.s32 {to}, [%rd2, {{%r1, %r2}}], %r5, {{%r3, %r3}};"),
        ),
        ("depth", format!("tex.2d.v4.f32.f32 {depths}, {at}, %f3; {kept}")),
        ("depth_level", format!("tex.level.2d.v4.f32.f32 {depths}, {at}, %f4, %f3; {kept}")),
        (
            "depth_level_offset",
            format!("tex.level.2d.v4.f32.f32 {depths}, {at}, %f4, {{%r1, %r2}}, %f3; {kept}"),
        ),
        ("depth_offset", format!("tex.2d.v4.f32.f32 {depths}, {at}, {{%r1, %r2}}, %f3; {kept}")),
        ("depth_gather", format!("tld4.r.2d.v4.f32.f32 {depths}, {at}, %f3; {kept}")),
        (
            "depth_gather_offset",
            format!("tld4.g.2d.v4.f32.f32 {depths}, {at}, {{%r1, %r2}}, %f3; {kept}"),
        ),
        ("first", format!("tex.2d.v4.s32.f32 {{%o1, _, _, _}}, {at};")),
        ("last", format!("tex.2d.v4.s32.f32 {{_, _, %o1, %o2}}, {at};")),
        ("three", format!("tex.2d.v4.s32.f32 {{%o1, _, %o2, %o3}}, {at};")),
        ("size", "txq.width.b32 %o1, [%rd2]; txq.height.b32 %o2, [%rd2];".to_owned()),
        (
            "size_of_level",
            "txq.level.width.b32 %o1, [%rd2], %r5; txq.level.height.b32 %o2, [%rd2], %r5;"
                .to_owned(),
        ),
        (
            "halves",
            format!(
                "tex.2d.v4.f16.f32 {{%h1, %h2, %h3, %h4}}, {at}; mov.b32 %o1, {{%h1, %h2}}; \
                 mov.b32 %o2, {{%h3, %h4}};"
            ),
        ),
        (
            "half_some",
            format!(
                "tex.level.2d.v4.f16.f32 {{%h1, %h2, %h3, %h4}}, {at}, %f4; mov.b32 %o1, {{%h4, %h2}}; \
                 cvt.u32.u16 %o2, %h4;"
            ),
        ),
        (
            "half_third",
            format!("tex.2d.v4.f16.f32 {{%h1, %h2, %h3, %h4}}, {at}; cvt.u32.u16 %o1, %h3;"),
        ),
        ("pairs", format!("tex.2d.v2.f16x2.f32 {{%o1, %o2}}, {at};")),
        (
            "half_load",
            "tex.2d.v4.f16.s32 {%h1, %h2, %h3, %h4}, [%rd2, {%r1, %r2}]; mov.b32 %o1, {%h1, %h2}; \
             mov.b32 %o2, {%h3, %h4};"
                .to_owned(),
        ),
        (
            "half_gradients",
            format!(
                "tex.grad.2d.v4.f16.f32 {{%h1, %h2, %h3, %h4}}, {at}, {{%f3, %f4}}, {{%f1, %f2}}; \
                 mov.b32 %o1, {{%h1, %h2}}; mov.b32 %o2, {{%h3, %h4}};"
            ),
        ),
    ] {
        add(name.to_owned(), body, flat, Needs::Any);
    }
    let offset = "tex.3d.v4.s32.f32 {%o1, %o2, %o3, %o4}, [%rd2, {%f1, %f2, %f3, %f3}], {%r1, %r2, %r3, %r3};";
    add("offset_3d".to_owned(), offset.to_owned(), (3, None), Needs::Any);
    let depth = "txq.depth.b32 %o1, [%rd2];".to_owned();
    add("size_3d".to_owned(), depth, (3, None), Needs::Any);
    for (width, size, list, before, behind) in [
        ("b8", 1, "%h1", "cvt.u16.u32 %h1, %r5;", "cvt.u32.u16 %o1, %h1;"),
        ("b16", 2, "%h1", "cvt.u16.u32 %h1, %r5;", "cvt.u32.u16 %o1, %h1;"),
        ("b64", 8, "%rd3", "mov.b64 %rd3, {%r5, %r6};", "mov.b64 {%o1, %o2}, %rd3;"),
        ("v2.b32", 8, "{%o1, %o2}", "mov.u32 %o1, %r5; mov.u32 %o2, %r6;", ""),
        (
            "v4.b32",
            16,
            "{%o1, %o2, %o3, %o4}",
            "mov.u32 %o1, %r5; mov.u32 %o2, %r6; mov.u32 %o3, %r1; mov.u32 %o4, %r2;",
            "",
        ),
        (
            "v2.b64",
            16,
            "{%rd3, %rd4}",
            "mov.b64 %rd3, {%r5, %r6}; mov.b64 %rd4, {%r6, %r5};",
            "mov.b64 {%o1, %o2}, %rd3; mov.b64 {%o3, %o4}, %rd4;",
        ),
        (
            "v2.b16",
            4,
            "{%h1, %h2}",
            "mov.b32 {%h1, %h2}, %r5;",
            "cvt.u32.u16 %o1, %h1; cvt.u32.u16 %o2, %h2;",
        ),
        (
            "v4.b8",
            4,
            "{%h1, %h2, %h3, %h4}",
            "mov.b32 {%h1, %h2}, %r5; mov.b32 {%h3, %h4}, %r6;",
            "cvt.u32.u16 %o1, %h1; cvt.u32.u16 %o2, %h2; cvt.u32.u16 %o3, %h3; cvt.u32.u16 %o4, %h4;",
        ),
    ] {
        let needs = Needs::Inside(size);
        let load = format!("suld.b.2d.{width}.trap {list}, [%rd2, {{%r1, %r2}}]; {behind}");
        add(format!("suld_{width}"), load, flat, needs);
        let store = format!("{before} sust.b.2d.{width}.trap [%rd2, {{%r1, %r2}}], {list};");
        add(format!("sust_{width}"), store, flat, needs);
    }
    for kind in ["u32", "s32", "u64", "s64"] {
        for operation in ["add", "min", "max", "and", "or"] {
            let bitwise = matches!(operation, "and" | "or");
            // Only these are there.
            if kind == "s64" && operation == "add" || bitwise && kind != "u32" {
                continue;
            }
            let bits = kind.replace('u', if bitwise { "b" } else { "u" });
            let (value, size) = if kind.ends_with("64") { ("%rd3", 8) } else { ("%r5", 4) };
            let body = format!(
                "mov.b64 %rd3, {{%r5, %r6}}; sured.b.{operation}.2d.{bits}.trap [%rd2, {{%r1, %r2}}], {value};"
            );
            add(format!("sured_{operation}_{kind}"), body, flat, Needs::Inside(size));
        }
    }
    out
}

/// Words that each lane reads, four floats and six integers, and the four that it leaves.
const IN: usize = 10;
const OUT: usize = 4;
const LANES: usize = 32;

fn module(kernels: &[Kernel]) -> String {
    let mut out = ".version 8.3\n.target sm_80\n.address_size 64\n".to_owned();
    for Kernel { name, body, .. } in kernels {
        for (suffix, load) in [("", ""), ("_memory", "ld.global.u64 %rd2, [%rd2];")] {
            write!(
                out,
                ".visible .entry {name}{suffix}(.param .u64 data, .param .u64 texture) {{\n\
                 .reg .b32 %r<9>; .reg .b32 %o<5>; .reg .b16 %h<5>; .reg .b64 %rd<9>; .reg .f32 %f<5>;\n\
                 ld.param.u64 %rd1, [data]; ld.param.u64 %rd2, [texture]; {load}\n\
                 mov.u32 %r7, %tid.x; mad.wide.u32 %rd1, %r7, {}, %rd1;\n",
                (IN + OUT) * 4
            )
            .unwrap();
            for number in 0..4 {
                writeln!(out, "ld.global.f32 %f{}, [%rd1+{}];", number + 1, number * 4).unwrap();
                writeln!(out, "mov.u32 %o{}, 0;", number + 1).unwrap();
            }
            for number in 0..6 {
                writeln!(out, "ld.global.u32 %r{}, [%rd1+{}];", number + 1, 16 + number * 4)
                    .unwrap();
            }
            let to = IN * 4;
            writeln!(out, "{body}").unwrap();
            for number in 0..OUT {
                writeln!(out, "st.global.u32 [%rd1+{}], %o{};", to + number * 4, number + 1)
                    .unwrap();
            }
            out.push_str("ret; }\n");
        }
    }
    out
}

/// Numbers that look like chance.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    fn float(&mut self, needs: Needs, normalized: bool) -> f32 {
        let steps = self.below(4001) as f32 / 1000.0 - 2.0;
        match needs {
            Needs::Powers => steps / 2.0,
            Needs::Exact => (steps * 64.0).round() / 64.0,
            _ if self.below(20) == 0 => {
                self.pick(&[f32::NAN, f32::INFINITY, -f32::INFINITY, 1e30, -0.0])
            }
            _ => {
                if normalized {
                    steps
                } else {
                    steps * 6.0
                }
            }
        }
    }
}

/// What one kernel is run on.
struct Case {
    texture: Texture,
    texels: Vec<u8>,
    data: Vec<u8>,
}

fn case(kernel: &Kernel, chance: &mut Chance) -> Case {
    let is_surface = matches!(kernel.needs, Needs::Inside(_) | Needs::Outside(_));
    let texels = [
        (TexelKind::Float, 32, 1),
        (TexelKind::Float, 32, 4),
        (TexelKind::Float, 16, 2),
        (TexelKind::Unsigned, 8, 4),
        (TexelKind::Signed, 8, 2),
        (TexelKind::Signed, 16, 1),
        (TexelKind::Unsigned, 16, 4),
        (TexelKind::Unsigned, 32, 2),
    ];
    let (kind, bits, channels) =
        if is_surface { (TexelKind::Unsigned, 32, 4) } else { chance.pick(&texels) };
    let texel = Texel::new(kind, bits, channels).unwrap();
    let wide = 3 + chance.below(5) as u32;
    let high = if kernel.axes > 1 { 2 + chance.below(4) as u32 } else { 1 };
    let deep = kernel.planes.unwrap_or(if kernel.axes > 2 { 3 } else { 1 });
    let row_bytes = u64::from(wide) * texel.bytes() + 16;
    let plane_bytes = row_bytes * u64::from(high);
    let all = [Addressing::Wrap, Addressing::Clamp, Addressing::Mirror, Addressing::Border];
    let sampler = Sampler {
        addressing: std::array::from_fn(|_| chance.pick(&all)),
        linear: chance.below(2) == 0,
        to_numbers: chance.below(2) == 0,
        normalized: kernel.needs == Needs::Powers || chance.below(2) == 0,
        border: [0.25_f32, -3.0, 7.0, 1.0].map(f32::to_bits),
        mipmap: MipmapSampler {
            linear: chance.below(2) == 0,
            bias: chance.pick(&[0.0, 0.0, 0.75, -0.5]),
            clamp: chance.pick(&[[0.0, 16.0], [0.5, 1.25], [2.0, 1.0]]),
        },
        comparison: (chance.below(2) == 0).then(|| Comparison::of_bits(chance.below(8) as u32)),
    };
    let layout = Layout::Rows(Rows { row_bytes, plane_bytes });
    // ptxas divides each neighbour of a direction by itself, so that its level is another one.
    let has_levels = !is_surface && !kernel.name.starts_with("grad_cube");
    let levels = if has_levels { 1 + chance.below(3) as u32 } else { 1 };
    let (axes, size) = (kernel.axes, [wide, high, deep]);
    let image = Image { address: 0, axes, size, layout, texel, levels };
    let mut data = Vec::new();
    for _ in 0..LANES {
        let mut floats: [f32; 4] =
            std::array::from_fn(|_| chance.float(kernel.needs, sampler.normalized));
        if kernel.needs == Needs::Powers {
            let at = chance.below(3) as usize;
            floats[at] = chance.pick(&[1.0, -1.0, 2.0, -4.0]);
        }
        let mut integers: [i32; 4] = std::array::from_fn(|_| chance.below(14) as i32 - 4);
        if chance.below(10) == 0 {
            integers[3] = chance.pick(&[70_000, i32::MAX, i32::MIN, -1]);
        }
        match kernel.needs {
            Needs::Inside(size) => {
                let most = [wide * 16 / size, high, deep].map(u64::from);
                let [x, y, z] = most.map(|most| chance.below(most) as i32);
                integers = [x * size as i32, y, z, z];
            }
            Needs::Outside(size) => integers[0] *= size as i32 * 3,
            _ => {}
        }
        data.extend(floats.iter().flat_map(|value| value.to_le_bytes()));
        data.extend(integers.iter().flat_map(|value| value.to_le_bytes()));
        // The first is the level of integers as well.
        let few = chance.below(6) as u32;
        let first = if chance.below(2) == 0 { few.wrapping_sub(1) } else { chance.next() as u32 };
        data.extend([first, chance.next() as u32].map(u32::to_le_bytes).as_flattened());
        data.extend([0; OUT * 4]);
    }
    let texels = (0..image.level(levels).address).map(|_| chance.next() as u8).collect();
    Case { texture: Texture { image, sampler }, texels, data }
}

/// What a launch leaves: what it found, its data, and the texels.
fn run(
    device: &mut Device,
    module: &Module,
    kernel: &str,
    case: &Case,
) -> (Vec<String>, Vec<u8>, Vec<u8>) {
    let (data, texels) = (
        device.alloc(case.data.len() as u64).unwrap(),
        device.alloc(case.texels.len() as u64).unwrap(),
    );
    device.write(data, &case.data).unwrap();
    device.write(texels, &case.texels).unwrap();
    let image = Image { address: texels, ..case.texture.image };
    let handle = device.bind(Texture { image, ..case.texture });
    let place = device.alloc(8).unwrap();
    device.write(place, &handle.to_le_bytes()).unwrap();
    let argument = if kernel.ends_with("_memory") { place } else { handle };
    let launch = Launch { block: [LANES as u32, 1, 1], ..Launch::default() };
    let args = Args::new().u64(data).u64(argument);
    let report = device.launch(module, kernel, &launch, &args).unwrap();
    let (mut out, mut image) = (case.data.clone(), case.texels.clone());
    device.read(data, &mut out).unwrap();
    device.read(texels, &mut image).unwrap();
    assert!(device.unbind(handle));
    [data, texels, place].into_iter().for_each(|address| device.free(address).unwrap());
    (report.findings.iter().map(|finding| finding.message.clone()).collect(), out, image)
}

#[test]
fn textures_and_surfaces_of_machine_code_are_those_of_ptx() {
    compare(&kernels(), "textures", &sass::variants());
}

/// ptxas makes neighbours of which the texture unit finds the gradients; for sm_90 it calls a function of the driver.
#[test]
fn gradients_of_three_axes_are_those_of_neighbours() {
    let kernel = |name: &str, axes, planes, needs| {
        let coordinates =
            "[%rd2, {%f1, %f2, %f3, %f3}], {%f4, %f1, %f2, %f2}, {%f2, %f4, %f1, %f1}";
        let shape = name.trim_start_matches("grad_");
        let body = format!("tex.grad.{shape}.v4.s32.f32 {{%o1, %o2, %o3, %o4}}, {coordinates};");
        Kernel { name: name.to_owned(), body, axes, planes, needs }
    };
    let kernels =
        [kernel("grad_3d", 3, None, Needs::Exact), kernel("grad_cube", 2, Some(6), Needs::Powers)];
    let mut variants = sass::variants();
    variants.retain(|(arch, _)| *arch < 90);
    compare(&kernels, "gradients", &variants);
}

/// Each kernel does the same as PTX and as machine code, in several cases.
fn compare(kernels: &[Kernel], of: &str, variants: &[(u32, u32)]) {
    const CASES: u64 = 6;
    let cuda = sass::needed();
    let text = module(kernels);
    let mut device = Device::new();
    let ptx = device.load(&text).unwrap_or_else(|error| panic!("{error}"));
    for (arch, level) in variants {
        let name = format!("{of} sm_{arch} -O{level}");
        let cubin = sass::assemble_one(&cuda, &text, *arch, *level, &name);
        let sass = device.load_cubin(&cubin).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut changed = 0;
        for (number, kernel) in kernels.iter().enumerate() {
            for round in 0..CASES {
                let case = case(kernel, &mut Chance(number as u64 * CASES + round));
                let suffix = if round % 2 == 0 { "" } else { "_memory" };
                let entry = format!("{}{suffix}", kernel.name);
                let (of_ptx, of_sass) =
                    (run(&mut device, &ptx, &entry, &case), run(&mut device, &sass, &entry, &case));
                let what = format!("{name}, {entry}, round {round}: {:?}", case.texture);
                assert_eq!(of_ptx.0, of_sass.0, "{what}");
                assert_eq!(of_ptx.0.len(), 0, "{what}");
                for (lane, (a, b)) in of_sass.1.chunks(56).zip(of_ptx.1.chunks(56)).enumerate() {
                    assert_eq!(a, b, "{what}, lane {lane}");
                }
                assert_eq!(of_ptx.2, of_sass.2, "{what}");
                changed += usize::from(of_ptx.1 != case.data || of_ptx.2 != case.texels);
            }
        }
        assert!(changed as u64 > kernels.len() as u64 * CASES * 9 / 10, "{changed} left anything");
    }
}

#[test]
fn wrong_surfaces_are_told_the_same_in_machine_code() {
    let cuda = sass::needed();
    let kernels: Vec<Kernel> =
        kernels().into_iter().filter(|kernel| matches!(kernel.needs, Needs::Inside(_))).collect();
    let text = module(&kernels);
    let mut device = Device::new();
    let ptx = device.load(&text).unwrap();
    let cubin = sass::assemble_one(&cuda, &text, 80, 3, "surfaces sm_80");
    let sass = device.load_cubin(&cubin).unwrap();
    for (number, kernel) in kernels.iter().enumerate() {
        let mut case = case(kernel, &mut Chance(number as u64));
        // The third lane is far beyond the row.
        case.data[2 * 56 + 16..][..4].copy_from_slice(&4096u32.to_le_bytes());
        let of_sass = run(&mut device, &sass, &kernel.name, &case).0;
        assert_eq!(of_sass, run(&mut device, &ptx, &kernel.name, &case).0, "{}", kernel.name);
        assert!(of_sass.len() == 1 && of_sass[0].contains("at byte 4096"), "{of_sass:?}");
    }
}
