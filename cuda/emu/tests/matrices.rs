//! Products of matrices of every shape, against products computed here.

#![allow(clippy::unwrap_used, clippy::panic)]

use nvabi_emu::{Args, Device, FindingKind, Launch, Report};

/// Runs `k(a, b, c, d)` with one warp; what it leaves in `d`.
fn run(body: &str, inputs: [&[u8]; 3], size: usize, threads: u32) -> (Report, Vec<u8>) {
    let text = format!(
        ".version 8.3\n.target sm_90\n.address_size 64\n.shared .align 16 .b8 tile[2048];\n\
         .visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) {{\n\
         .reg .b32 %r<99>; .reg .b64 %rd<99>; .reg .b32 %x<9>; .reg .b64 %y<9>; .reg .b16 %h<9>;\n\
         ld.param.u64 %y1, [a]; ld.param.u64 %y2, [b]; ld.param.u64 %y3, [c]; ld.param.u64 %y4, [d];\n\
         {body}\nret; }}\n"
    );
    let mut device = Device::new();
    let module = device.load(&text).unwrap_or_else(|error| panic!("{error}\n{body}"));
    let mut args = Args::new();
    for input in inputs {
        let address = device.alloc(input.len() as u64).unwrap();
        device.write(address, input).unwrap();
        args = args.u64(address);
    }
    let out = device.alloc(size as u64).unwrap();
    let launch = Launch { block: [threads, 1, 1], ..Launch::default() };
    let report = device.launch(&module, "k", &launch, &args.u64(out)).unwrap();
    let mut bytes = vec![0; size];
    device.read(out, &mut bytes).unwrap();
    (report, bytes)
}

/// `{%r0, %r1, …}`
fn registers(kind: &str, first: usize, count: usize) -> String {
    let names: Vec<String> = (first..first + count).map(|n| format!("%{kind}{n}")).collect();
    format!("{{{}}}", names.join(", "))
}

/// The bytes of an element, which is a small integer.
fn bytes_of(kind: &str, value: i32) -> Vec<u8> {
    match kind {
        "f16" => half::f16::from_f32(value as f32).to_le_bytes().to_vec(),
        "bf16" => half::bf16::from_f32(value as f32).to_le_bytes().to_vec(),
        "tf32" | "f32" => (value as f32).to_le_bytes().to_vec(),
        "f64" => f64::from(value).to_le_bytes().to_vec(),
        "s8" | "u8" => vec![value as u8],
        _ => value.to_le_bytes().to_vec(),
    }
}

struct Shape {
    size: [usize; 3],
    /// Of a, c and d; b is of a's.
    kinds: [&'static str; 3],
    /// Registers of a, b, c and d.
    registers: [usize; 4],
    /// What the opcode says of types.
    types: &'static str,
}

const SHAPES: [Shape; 9] = [
    Shape {
        size: [16, 16, 16],
        kinds: ["f16", "f32", "f32"],
        registers: [8, 8, 8, 8],
        types: "f32.f32",
    },
    Shape {
        size: [32, 8, 16],
        kinds: ["f16", "f16", "f16"],
        registers: [8, 8, 4, 4],
        types: "f16.f16",
    },
    Shape {
        size: [8, 32, 16],
        kinds: ["f16", "f32", "f16"],
        registers: [8, 8, 8, 4],
        types: "f16.f32",
    },
    Shape {
        size: [16, 16, 16],
        kinds: ["bf16", "f32", "f32"],
        registers: [4, 4, 8, 8],
        types: "f32.bf16.bf16.f32",
    },
    Shape {
        size: [32, 8, 16],
        kinds: ["bf16", "f32", "f32"],
        registers: [8, 2, 8, 8],
        types: "f32.bf16.bf16.f32",
    },
    Shape {
        size: [16, 16, 8],
        kinds: ["tf32", "f32", "f32"],
        registers: [4, 4, 8, 8],
        types: "f32.tf32.tf32.f32",
    },
    Shape {
        size: [8, 8, 4],
        kinds: ["f64", "f64", "f64"],
        registers: [1, 1, 2, 2],
        types: "f64.f64.f64.f64",
    },
    Shape {
        size: [16, 16, 16],
        kinds: ["s8", "s32", "s32"],
        registers: [2, 2, 8, 8],
        types: "s32.s8.s8.s32",
    },
    Shape {
        size: [8, 32, 16],
        kinds: ["u8", "s32", "s32"],
        registers: [1, 4, 8, 8],
        types: "s32.u8.u8.s32",
    },
];

/// a by rows, b by columns, c by rows; d by columns.
#[test]
fn warps_multiply_matrices_of_every_shape() {
    for Shape { size: [m, n, k], kinds: [factor, start, sum], registers: counts, types } in SHAPES {
        let a = |row: usize, column: usize| ((row * 7 + column * 3) % 5) as i32;
        let b = |row: usize, column: usize| ((row + column * 5) % 4) as i32;
        let c = |row: usize, column: usize| (row % 3 + column % 2) as i32;
        let rows: Vec<u8> = (0..m * k).flat_map(|at| bytes_of(factor, a(at / k, at % k))).collect();
        let columns: Vec<u8> =
            (0..k * n).flat_map(|at| bytes_of(factor, b(at % k, at / k))).collect();
        let starts: Vec<u8> =
            (0..m * n).flat_map(|at| bytes_of(start, c(at / n, at % n))).collect();
        let wide = if factor == "f64" { "rd" } else { "r" };
        let [ra, rb, rc, rd] = [0, 20, 40, 60];
        let list = |first: usize, matrix: usize| registers(wide, first, counts[matrix]);
        let shape = format!("m{m}n{n}k{k}");
        let body = format!(
            "mov.u32 %x1, {k}; mov.u32 %x2, {n}; mov.u32 %x3, {m};\n\
             wmma.load.a.sync.aligned.row.{shape}.global.{factor} {}, [%y1], %x1;\n\
             wmma.load.b.sync.aligned.col.{shape}.global.{factor} {}, [%y2], %x1;\n\
             wmma.load.c.sync.aligned.row.{shape}.global.{start} {}, [%y3], %x2;\n\
             wmma.mma.sync.aligned.row.col.{shape}.{types} {}, {}, {}, {};\n\
             wmma.store.d.sync.aligned.col.{shape}.global.{sum} [%y4], {}, %x3;",
            list(ra, 0),
            list(rb, 1),
            list(rc, 2),
            list(rd, 3),
            list(ra, 0),
            list(rb, 1),
            list(rc, 2),
            list(rd, 3),
        );
        let expected: Vec<u8> = (0..m * n)
            .flat_map(|at| {
                let (row, column) = (at % m, at / m);
                let products = (0..k).map(|k| a(row, k) * b(k, column));
                bytes_of(sum, c(row, column) + products.sum::<i32>())
            })
            .collect();
        let (report, found) = run(&body, [&rows, &columns, &starts], expected.len(), 32);
        assert!(report.findings.is_empty(), "{shape} {types}: {:?}", report.findings);
        assert_eq!(found, expected, "{shape} {types}");
    }
}

/// The tile of 16 by 16 numbers comes by `ldmatrix`, b transposed, and the sums go by `stmatrix`.
#[test]
fn matrices_are_moved_by_rows() {
    let a = |row: usize, column: usize| ((row * 3 + column) % 7) as i32;
    let b = |row: usize, column: usize| ((row + column * 2) % 5) as i32;
    let rows: Vec<u8> = (0..256).flat_map(|at| bytes_of("f16", a(at / 16, at % 16))).collect();
    let others: Vec<u8> = (0..128).flat_map(|at| bytes_of("f16", b(at / 8, at % 8))).collect();
    let body = "mov.u32 %x1, %tid.x; mov.u32 %x2, tile; mul.wide.u32 %y5, %x1, 16;\n\
        add.u64 %y6, %y1, %y5; shl.b32 %x3, %x1, 4; add.u32 %x4, %x2, %x3;\n\
        ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%y6]; st.shared.v4.u32 [%x4], {%r1, %r2, %r3, %r4};\n\
        and.b32 %x5, %x1, 15; shl.b32 %x6, %x5, 4; cvt.u64.u32 %y7, %x6; add.u64 %y7, %y2, %y7;\n\
        ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%y7]; add.u32 %x7, %x2, %x6;\n\
        st.shared.v4.u32 [%x7+512], {%r1, %r2, %r3, %r4}; bar.sync 0;\n\
        and.b32 %r10, %x1, 15; shl.b32 %r10, %r10, 5; and.b32 %r11, %x1, 16; add.u32 %r10, %r10, %r11;\n\
        add.u32 %r10, %r10, %x2;\n\
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, %r21, %r22, %r23}, [%r10];\n\
        ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r24, %r25}, [%x7+512];\n\
        mov.u32 %r26, 0;\n\
        mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r30, %r31}, {%r20, %r21, %r22, %r23}, {%r24, %r25}, \
        {%r26, %r26};\n\
        bar.sync 0; stmatrix.sync.aligned.m8n8.x2.shared.b16 [%x7], {%r30, %r31}; bar.sync 0;\n\
        shl.b32 %r40, %x1, 3; add.u32 %r41, %x2, %r40; ld.shared.v2.u32 {%r42, %r43}, [%r41];\n\
        cvt.u64.u32 %y8, %r40; add.u64 %y8, %y4, %y8; st.global.v2.u32 [%y8], {%r42, %r43};";
    let expected: Vec<u8> = (0..128)
        .flat_map(|at| {
            let products = (0..16).map(|k| a(at / 8, k) * b(k, at % 8));
            bytes_of("f16", products.sum())
        })
        .collect();
    let (report, found) = run(body, [&rows, &others, &[0]], 256, 32);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!(found, expected);
}

#[test]
fn all_lanes_are_needed_and_other_shapes_are_named() {
    let body = "mov.u32 %r0, 0; mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r1, %r2}, {%r0}, {%r0}, \
                {%r0, %r0};";
    let (report, _) = run(body, [&[0], &[0], &[0]], 4, 16);
    assert_eq!(report.fatal().unwrap().kind, FindingKind::BarrierDivergence);
    for opcode in [
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f32.s8.f16.f32",
    ] {
        let text = format!(
            ".version 8.3\n.target sm_90\n.address_size 64\n.entry k() {{ .reg .b32 %r<9>;\n\
             {opcode} {{%r1,%r2}}, {{%r0}}, {{%r0}}, {{%r0,%r0}}; }}"
        );
        let error = Device::new().load(&text).unwrap_err().to_string();
        assert!(error.contains(&format!("the emulator lacks `{opcode}`")), "{error}");
    }
}
