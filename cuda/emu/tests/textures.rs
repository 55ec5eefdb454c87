//! Textures and surfaces, in the instructions that clang and nvcc emit for CUDA's functions.

#![allow(clippy::unwrap_used, clippy::panic)]

use nvabi_emu::{
    Addressing, Args, Device, FindingKind, Image, Launch, Layout, MipmapSampler, Report, Rows,
    Sampler, Texel, TexelKind, Texture,
};

/// A kernel `k(out, texture)` with this body.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.3\n.target sm_80\n.address_size 64\n\
         .visible .entry k(.param .u64 out, .param .u64 texture) {{ .reg .b32 %r<20>; .reg .b64 %rd<9>; \
         .reg .f32 %f<20>;\n\
         ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [texture];\n{body}\nret; }}\n"
    )
}

const SAMPLER: Sampler = Sampler {
    addressing: [Addressing::Clamp; 3],
    linear: false,
    to_numbers: false,
    normalized: false,
    border: [0; 4],
    mipmap: MipmapSampler { linear: false, bias: 0.0, clamp: [0.0; 2] },
    comparison: None,
};

/// Four words that a kernel leaves, and what it left in an image of these texels.
fn run(
    body: &str,
    sampler: Sampler,
    texel: Texel,
    size: [u32; 3],
    bytes: &[u8],
) -> (Report, [u32; 4], Vec<u8>) {
    let mut device = Device::new();
    let module = device.load(&kernel(body)).unwrap_or_else(|error| panic!("{error}"));
    let (out, address) = (device.alloc(16).unwrap(), device.alloc(bytes.len() as u64).unwrap());
    device.write(address, bytes).unwrap();
    let row_bytes = u64::from(size[0]) * texel.bytes();
    let plane_bytes = row_bytes * u64::from(size[1]);
    let axes = if size[1] == 1 { 1 } else { 2 };
    let layout = Layout::Rows(Rows { row_bytes, plane_bytes });
    let image = Image { address, axes, size, layout, texel, levels: 1 };
    let handle = device.bind(Texture { image, sampler });
    let args = Args::new().u64(out).u64(handle);
    let report = device.launch(&module, "k", &Launch::default(), &args).unwrap();
    let (mut words, mut image) = ([0; 16], vec![0; bytes.len()]);
    device.read(out, &mut words).unwrap();
    device.read(address, &mut image).unwrap();
    let word = |at: usize| u32::from_le_bytes(words[at * 4..][..4].try_into().unwrap());
    assert!(device.unbind(handle) && !device.unbind(handle));
    (report, std::array::from_fn(word), image)
}

fn texel(kind: TexelKind, bits: u32, channels: u32) -> Texel {
    Texel::new(kind, bits, channels).unwrap()
}

#[test]
fn a_texture_is_filtered_in_two_dimensions() {
    let linear = Sampler { linear: true, normalized: true, ..SAMPLER };
    let bytes = [0f32, 8.0, 16.0, 24.0].map(f32::to_le_bytes).concat();
    let body = "mov.f32 %f1, 0f3F000000; mov.f32 %f2, 0f3F400000;\n\
                tex.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%rd2, {%f1, %f2}]; st.global.f32 [%rd1], %f3;\n\
                tex.level.2d.v4.f32.f32 {%f7, %f4, %f5, %f6}, [%rd2, {%f2, %f1}], %f4;\n\
                st.global.f32 [%rd1+4], %f7; txq.width.b32 %r1, [%rd2]; st.global.u32 [%rd1+8], %r1;\n\
                tld4.r.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%rd2, {%f1, %f1}]; st.global.f32 [%rd1+12], %f3;";
    let (report, words, _) = run(body, linear, texel(TexelKind::Float, 32, 1), [2, 2, 1], &bytes);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    // Between 16 and 24; between 8 and 24; the width; the lower left of the four.
    assert_eq!(words.map(f32::from_bits)[..2], [20.0, 16.0]);
    assert_eq!((words[2], f32::from_bits(words[3])), (2, 16.0));
}

#[test]
fn layers_and_faces_are_planes() {
    let bytes: Vec<u8> = (0..12).collect();
    let body = "mov.u32 %r1, 4; mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f40000000;\n\
                tex.a1d.v4.u32.f32 {%r2, %r3, %r4, %r5}, [%rd2, {%r1, %f2}]; st.global.u32 [%rd1], %r2;\n\
                mov.f32 %f3, 0fBF800000;\n\
                tex.cube.v4.u32.f32 {%r2, %r3, %r4, %r5}, [%rd2, {%f1, %f1, %f3, %f3}];\n\
                st.global.u32 [%rd1+4], %r2; mov.u32 %r6, 1;\n\
                tex.1d.v4.u32.s32 {%r2, %r3, %r4, %r5}, [%rd2, {%r6}]; st.global.u32 [%rd1+8], %r2;";
    let (report, words, _) =
        run(body, SAMPLER, texel(TexelKind::Unsigned, 8, 1), [2, 1, 6], &bytes);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    // Clamped to the last of a layer; the middle of the sixth face, of unnormalised coordinates its first.
    assert_eq!(words[..3], [9, 10, 1]);
}

#[test]
fn surfaces_are_written_by_bytes() {
    let body = "mov.u32 %r1, 4; mov.u32 %r2, 1; mov.u32 %r3, 77;\n\
                sust.b.2d.b32.trap [%rd2, {%r1, %r2}], {%r3};\n\
                suld.b.2d.b32.trap {%r4}, [%rd2, {%r1, %r2}]; st.global.u32 [%rd1], %r4;\n\
                mov.u32 %r5, 64; suld.b.2d.b32.zero {%r6}, [%rd2, {%r5, %r2}]; st.global.u32 [%rd1+4], %r6;\n\
                suld.b.2d.b32.clamp {%r7}, [%rd2, {%r5, %r5}]; st.global.u32 [%rd1+8], %r7;\n\
                sust.b.2d.b32.zero [%rd2, {%r5, %r2}], {%r3};";
    let (report, words, image) =
        run(body, SAMPLER, texel(TexelKind::Unsigned, 32, 1), [2, 2, 1], &[0; 16]);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!(words[..3], [77, 0, 77]);
    assert_eq!((image[12], image[..12].iter().all(|byte| *byte == 0)), (77, true));
}

#[test]
fn a_row_that_is_narrower_than_an_access_has_none_of_it() {
    let body = "mov.u32 %r1, 0; mov.u32 %r2, 1; suld.b.1d.v4.b32.zero {%r2, %r3, %r4, %r5}, [%rd2, {%r1}];\n\
                st.global.u32 [%rd1], %r2; sust.b.1d.v4.b32.zero [%rd2, {%r1}], {%r1, %r1, %r1, %r1};";
    let (report, words, image) =
        run(body, SAMPLER, texel(TexelKind::Unsigned, 32, 1), [2, 1, 1], &[7; 8]);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!((words[0], image), (0, vec![7; 8]));
}

#[test]
fn wrong_accesses_are_named() {
    let outside = "mov.u32 %r1, 8; suld.b.1d.b32.trap {%r2}, [%rd2, {%r1}];";
    let narrow = ["trap", "clamp"].map(|outside| {
        format!(
            "mov.u32 %r1, 0; suld.b.1d.v4.b32.{outside} {{%r2, %r3, %r4, %r5}}, [%rd2, {{%r1}}];"
        )
    });
    let misaligned = "mov.u32 %r1, 2; suld.b.1d.b32.trap {%r2}, [%rd2, {%r1}];";
    let nothing = "mov.u64 %rd2, 99; mov.f32 %f1, 0f00000000;\n\
                   tex.1d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%rd2, {%f1}];";
    for (body, kind, what) in [
        (
            outside,
            FindingKind::OutOfBounds,
            "at byte 8, row 0, plane 0: it has 2 × 1 × 1 texels of 4",
        ),
        (&narrow[0], FindingKind::OutOfBounds, "16 bytes of a surface at byte 0"),
        (&narrow[1], FindingKind::OutOfBounds, "16 bytes of a surface at byte 0"),
        (misaligned, FindingKind::Misaligned, "byte 2 of a row"),
        (nothing, FindingKind::OutOfBounds, "there is no texture or surface 0x63"),
    ] {
        let (report, _, _) =
            run(body, SAMPLER, texel(TexelKind::Unsigned, 32, 1), [2, 1, 1], &[0; 8]);
        let finding = report.fatal().unwrap_or_else(|| panic!("{body}"));
        assert_eq!(finding.kind, kind);
        assert!(finding.message.contains(what), "{finding}");
    }
}
