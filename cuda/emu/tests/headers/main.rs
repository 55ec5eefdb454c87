//! Kernels that include CUDA's own headers: the mathematical library with its documented errors, and
//! cooperative groups. They need clang 19 and the headers.

#![allow(clippy::unwrap_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

use std::path::PathBuf;
use std::process::Command;

use nvabi_emu::{Args, Device, Launch, Module};
use nvabi_test::{Need, skip};

test_main!();

unsafe extern "C" {
    safe fn erf(x: f64) -> f64;
    safe fn tgamma(x: f64) -> f64;
}

/// The folder with CUDA's headers: `CUDA_PATH`, or what `cuda/toolkit.sh` fetches, as long as clang is
/// there to read them.
fn toolkit() -> PathBuf {
    if Command::new("clang++-19").arg("--version").output().is_err() {
        skip(Need::Llvm, "clang++-19 does not run");
    }
    nvabi_test::cuda(&["include/cuda.h"])
}

/// The PTX of a file beside this one.
fn compile(name: &str, arch: &str, level: &str) -> String {
    let cuda = toolkit();
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/headers").join(name);
    let output = Command::new("clang++-19")
        .args(["-x", "cuda", "--cuda-device-only", "-S", level, "-std=c++17", "-o", "-"])
        .arg("-gline-tables-only")
        // Contracted, clang's default, CUDA's tgammaf is 7.3 units off instead of 1.9.
        .arg("-ffp-contract=off")
        .arg(format!("--cuda-gpu-arch={arch}"))
        .arg(format!("--cuda-path={}", cuda.display()))
        .arg(source)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn run(device: &mut Device, module: &Module, kernel: &str, launch: &Launch, args: &Args) {
    let report = device.launch(module, kernel, launch, args).unwrap();
    assert!(report.findings.is_empty(), "{kernel}: {:?}", report.findings);
}

/// Distance in units of the last place of the wanted value.
fn ulps(got: f64, wanted: f64, unit: f64) -> f64 {
    if got == wanted || (got.is_nan() && wanted.is_nan()) {
        0.0
    } else {
        (got - wanted).abs() / unit
    }
}

/// The last place of a float near a value.
fn last_place(value: f64) -> f64 {
    let near = (value as f32).abs().max(f32::MIN_POSITIVE);
    f64::from(f32::from_bits(near.to_bits() + 1) - near)
}

/// The largest error of a function over arguments in a range, in units of the last place.
fn worst_single(
    device: &mut Device,
    module: &Module,
    name: &str,
    range: (f32, f32),
    f: &dyn Fn(f64) -> f64,
    unit: &dyn Fn(f64) -> f64,
) -> f64 {
    let count = 4096;
    let inputs: Vec<f32> = (0..count)
        .map(|i| range.0 + (range.1 - range.0) * (i as f32 + 0.37) / count as f32)
        .collect();
    let (input, out) = (device.alloc(4 * count).unwrap(), device.alloc(4 * count).unwrap());
    device.write(input, &inputs.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>()).unwrap();
    let launch = Launch { grid: [32, 1, 1], block: [128, 1, 1], ..Launch::default() };
    run(
        device,
        module,
        &format!("k_{name}"),
        &launch,
        &Args::new().u64(input).u64(out).u32(count as u32),
    );
    let mut bytes = vec![0; 4 * count as usize];
    device.read(out, &mut bytes).unwrap();
    let results = bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
    let error = |(x, got): (&f32, f32)| {
        let wanted = f(f64::from(*x));
        ulps(got.into(), wanted, unit(wanted))
    };
    inputs.iter().zip(results).map(error).fold(0.0, f64::max)
}

fn worst_double(
    device: &mut Device,
    module: &Module,
    name: &str,
    range: (f64, f64),
    f: &dyn Fn(f64) -> f64,
) -> f64 {
    let count = 2048;
    let inputs: Vec<f64> = (0..count)
        .map(|i| range.0 + (range.1 - range.0) * (f64::from(i) + 0.37) / f64::from(count))
        .collect();
    let size = 8 * u64::from(count as u32);
    let (input, out) = (device.alloc(size).unwrap(), device.alloc(size).unwrap());
    device.write(input, &inputs.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>()).unwrap();
    let launch = Launch { grid: [16, 1, 1], block: [128, 1, 1], ..Launch::default() };
    run(device, module, &format!("k_{name}"), &launch, &Args::new().u64(input).u64(out).i32(count));
    let mut bytes = vec![0; size as usize];
    device.read(out, &mut bytes).unwrap();
    let results = bytes.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap()));
    let error = |(x, got): (&f64, f64)| {
        let near = f(*x).abs().max(f64::MIN_POSITIVE);
        ulps(got, f(*x), f64::from_bits(near.to_bits() + 1) - near)
    };
    inputs.iter().zip(results).map(error).fold(0.0, f64::max)
}

#[test]
fn the_mathematical_library_is_as_exact_as_documented() {
    for arch in ["sm_80", "sm_90"] {
        let text = compile("math.cu", arch, "-O2");
        let mut device = Device::new();
        let module = device.load(&text).unwrap_or_else(|error| panic!("{error}"));
        // Name, arguments, function, and the error that CUDA's manual gives, in units of the last place.
        // Where the range is large, the functions reduce their argument step by step.
        type Row = (&'static str, (f32, f32), &'static dyn Fn(f64) -> f64, f64);
        let rows: &[Row] = &[
            ("sinf", (-20.0, 20.0), &f64::sin, 2.0),
            ("sinf", (1e5, 1e9), &f64::sin, 2.0),
            ("cosf", (-20.0, 20.0), &f64::cos, 2.0),
            ("cosf", (1e5, 1e9), &f64::cos, 2.0),
            ("tanf", (-20.0, 20.0), &f64::tan, 4.0),
            ("asinf", (-1.0, 1.0), &f64::asin, 2.0),
            ("acosf", (-1.0, 1.0), &f64::acos, 2.0),
            ("atanf", (-50.0, 50.0), &f64::atan, 2.0),
            ("sinhf", (-20.0, 20.0), &f64::sinh, 3.0),
            ("coshf", (-20.0, 20.0), &f64::cosh, 2.0),
            ("tanhf", (-5.0, 5.0), &f64::tanh, 2.0),
            ("expf", (-80.0, 80.0), &f64::exp, 2.0),
            ("exp2f", (-120.0, 120.0), &f64::exp2, 2.0),
            ("exp10f", (-30.0, 30.0), &|x| 10f64.powf(x), 2.0),
            ("expm1f", (-3.0, 30.0), &f64::exp_m1, 1.0),
            ("logf", (0.0, 1000.0), &f64::ln, 1.0),
            ("log2f", (0.0, 1000.0), &f64::log2, 1.0),
            ("log10f", (0.0, 1000.0), &f64::log10, 2.0),
            ("log1pf", (-0.9, 100.0), &f64::ln_1p, 1.0),
            ("sqrtf", (0.0, 1e9), &f64::sqrt, 0.5),
            ("rsqrtf", (0.0, 1e9), &|x| 1.0 / x.sqrt(), 2.0),
            ("cbrtf", (-1e6, 1e6), &f64::cbrt, 1.0),
            ("powf_of_2_3", (0.0, 1e4), &|x| x.powf(2.3f32.into()), 4.0),
            ("fdividef_by_3_1", (-1e4, 1e4), &|x| x / f64::from(3.1f32), 2.0),
            ("erff", (-4.0, 4.0), &|x| erf(x), 2.0),
            ("tgammaf", (0.5, 30.0), &|x| tgamma(x), 5.0),
        ];
        for (name, range, f, bound) in rows {
            let worst = worst_single(&mut device, &module, name, *range, f, &last_place);
            println!("{arch} {name}: {worst:.2} of {bound}");
            // Half a unit is what any float is off.
            assert!(worst <= bound + 0.5, "{arch} {name}: {worst} units, of at most {bound}");
        }
        // Of the fast ones, the manual bounds some in absolute terms, by 2^-21.41 and 2^-21.19.
        let mut fast = |name, range, f: &dyn Fn(f64) -> f64, unit: &dyn Fn(f64) -> f64| {
            worst_single(&mut device, &module, name, range, f, unit)
        };
        assert!(fast("__sinf", (-3.1, 3.1), &f64::sin, &|_| 2f64.powf(-21.41)) <= 1.0);
        assert!(fast("__cosf", (-3.1, 3.1), &f64::cos, &|_| 2f64.powf(-21.19)) <= 1.0);
        assert!(fast("__expf", (-10.0, 10.0), &f64::exp, &last_place) <= 2.0 + 11.0);
        assert!(fast("__logf", (2.0, 100.0), &f64::ln, &last_place) <= 3.0);
        type Double = (&'static str, (f64, f64), &'static dyn Fn(f64) -> f64, f64);
        let doubles: &[Double] = &[
            ("sin", (-100.0, 100.0), &f64::sin, 2.0),
            ("cos", (-100.0, 100.0), &f64::cos, 2.0),
            ("tan", (-10.0, 10.0), &f64::tan, 2.0),
            ("atan", (-10.0, 10.0), &f64::atan, 2.0),
            ("exp", (-600.0, 600.0), &f64::exp, 1.0),
            ("log", (0.0, 1e6), &f64::ln, 1.0),
            ("sqrt", (0.0, 1e6), &f64::sqrt, 0.0),
            ("cbrt", (-1e6, 1e6), &f64::cbrt, 1.0),
            ("tanh", (-5.0, 5.0), &f64::tanh, 2.0),
            ("erf", (-3.0, 3.0), &|x| erf(x), 2.0),
        ];
        for (name, range, f, bound) in doubles {
            let worst = worst_double(&mut device, &module, name, *range, f);
            println!("{arch} {name}: {worst:.2} of {bound}");
            // The reference is a double itself, a unit off at most.
            assert!(worst <= bound + 1.0, "{arch} {name}: {worst} units, of at most {bound}");
        }
    }
}

#[test]
fn cooperative_groups_of_the_header() {
    for (arch, level) in [("sm_80", "-O0"), ("sm_80", "-O2"), ("sm_90", "-O2")] {
        let text = compile("groups.cu", arch, level);
        let mut device = Device::new();
        let module = device.load(&text).unwrap_or_else(|error| panic!("{error}"));
        let data: Vec<i32> = (0..128).map(|i| i * 37 % 101 - 20).collect();
        let upload = |device: &mut Device, values: &[i32]| {
            let address = device.alloc(4 * values.len() as u64).unwrap();
            device
                .write(address, &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
                .unwrap();
            address
        };
        let download = |device: &Device, address| -> Vec<i32> {
            let mut bytes = vec![0; 512];
            device.read(address, &mut bytes).unwrap();
            bytes.chunks(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect()
        };
        let (input, out) = (upload(&mut device, &data), upload(&mut device, &[0; 128]));
        let launch = Launch { grid: [2, 1, 1], block: [64, 1, 1], ..Launch::default() };
        run(&mut device, &module, "tiles", &launch, &Args::new().u64(input).u64(out));
        let wanted: Vec<i32> = data
            .chunks(8)
            .enumerate()
            .flat_map(|(tile, v)| {
                [if tile % 2 == 0 { v.iter().sum::<i32>() } else { *v.iter().max().unwrap() }; 8]
            })
            .collect();
        assert_eq!(download(&device, out), wanted, "{arch} {level}");

        let counter = upload(&mut device, &[0]);
        run(
            &mut device,
            &module,
            "coalesced",
            &launch,
            &Args::new().u64(input).u64(counter).u64(out),
        );
        let mut ranks: Vec<i32> = download(&device, out).into_iter().filter(|r| *r >= 0).collect();
        ranks.sort();
        let count = data.iter().filter(|v| **v % 3 == 0).count() as i32;
        assert_eq!(ranks, (0..count).collect::<Vec<_>>(), "{arch} {level}");

        let middle = upload(&mut device, &[0; 128]);
        run(
            &mut device,
            &module,
            "grid_sync",
            &launch,
            &Args::new().u64(input).u64(middle).u64(out),
        );
        let odd =
            |i: usize| data[i / 32 * 32..][..32].iter().filter(|v| **v & 1 != 0).count() as i32;
        let value = |i: usize| data[i] + odd(i) + data[i ^ 3];
        let wanted: Vec<i32> = (0..128).map(|i| value(i / 64 * 64 + 63 - i % 64)).collect();
        assert_eq!(download(&device, out), wanted, "{arch} {level}");
    }
}

#[test]
fn mistakes_in_functions_of_headers_are_on_the_line_that_calls_them() {
    let source = include_str!("mistakes.cu");
    for level in ["-O0", "-O1", "-O3"] {
        let text = compile("mistakes.cu", "sm_80", level);
        let mut device = Device::new();
        let module = device.load(&text).unwrap_or_else(|error| panic!("{error}"));
        let out = device.alloc(16).unwrap();
        for name in ["adds", "loads", "traps"] {
            device.write(out, &[0; 16]).unwrap();
            let kernel = module.kernels().find(|kernel| kernel.contains(name)).unwrap();
            let args = Args::new().u64(out).i32(1 << 20);
            let report = device.launch(&module, kernel, &Launch::default(), &args).unwrap();
            let [finding] = &report.findings[..] else { panic!("{level} {name}: {report:?}") };
            let mark = format!("// {name}");
            let line = source.lines().position(|line| line.ends_with(&mark)).unwrap() as u32 + 1;
            let file = finding.location.file.as_deref().unwrap();
            assert!(file.ends_with("mistakes.cu"), "{level}: {finding}");
            assert_eq!(finding.location.line, line, "{level}: {finding}");
        }
    }
}

/// What cuRAND's default generator gives first to sequence 0: XORWOW, from CUDA's documentation of its state.
fn xorwow_first(seed: u64) -> f32 {
    let mixed = (seed as u32 ^ 0xaad2_6b49).wrapping_mul(1_099_087_573);
    let other = ((seed >> 32) as u32 ^ 0xf7dc_efdd).wrapping_mul(2_591_861_531);
    let first = 123_456_789u32.wrapping_add(mixed);
    let last = 5_783_321u32.wrapping_add(mixed);
    let word = first ^ first >> 2;
    let next = last ^ last << 4 ^ (word ^ word << 1);
    let count = 6_615_241u32.wrapping_add(other).wrapping_add(mixed).wrapping_add(362_437);
    next.wrapping_add(count) as f32 * 2f32.powi(-32) + 2f32.powi(-33)
}

#[test]
fn libraries_beside_cuda_compile_and_run() {
    for (arch, level) in [("sm_80", "-O2"), ("sm_90", "-O1")] {
        let mut device = Device::new();
        let module = device.load(&compile("libraries.cu", arch, level)).unwrap();
        let input: Vec<f32> = (0..64).map(|i| i as f32 * 0.5 - 9.0).collect();
        let bytes: Vec<u8> = input.iter().flat_map(|value| value.to_le_bytes()).collect();
        let (from, to) = (device.alloc(256).unwrap(), device.alloc(1024).unwrap());
        let words = |device: &Device, address, count: usize| -> Vec<u32> {
            let mut bytes = vec![0; 4 * count];
            device.read(address, &mut bytes).unwrap();
            bytes.chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect()
        };
        device.write(from, &bytes).unwrap();
        let launch = Launch { block: [64, 1, 1], ..Launch::default() };
        run(&mut device, &module, "halves", &launch, &Args::new().u64(from).u64(to));
        let wanted: Vec<u32> = input.iter().map(|x| (x + 1.0 + 2.0 * x).to_bits()).collect();
        assert_eq!(words(&device, to, 64), wanted, "{arch}");

        run(&mut device, &module, "uniform", &launch, &Args::new().u64(to));
        let values: Vec<f32> = words(&device, to, 64).into_iter().map(f32::from_bits).collect();
        assert_eq!(values[0], xorwow_first(7), "{arch}");
        assert!(values.iter().all(|value| *value > 0.0 && *value <= 1.0), "{values:?}");
        let mean = values.iter().sum::<f32>() / 64.0;
        assert!((0.35..0.65).contains(&mean), "{mean}");

        let (counter, seen) = (device.alloc(4).unwrap(), device.alloc(4 * 3 * 128).unwrap());
        let launch =
            Launch { grid: [4, 1, 1], block: [32, 1, 1], cooperative: true, ..Launch::default() };
        run(&mut device, &module, "grid_barrier", &launch, &Args::new().u64(counter).u64(seen));
        let rounds = words(&device, seen, 3 * 128);
        let wanted: Vec<u32> = (1..=3u32).flat_map(|round| [round * 128; 128]).collect();
        assert_eq!(rounds, wanted, "{arch}");
    }
}
