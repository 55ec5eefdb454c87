//! Numbers of 16 bits, against the crate `half`.

use half::{bf16, f16};
use nvabi_emu::Args;

use crate::gpu::{floats, gpus, noise};

/// The bits of numbers of every size, with some special ones among them.
fn bits(count: usize, seed: u32) -> Vec<u16> {
    let special = [0, 0x8000, 0x0001, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x3c00, 0x3f80, 0x7f80];
    let value = |(at, n): (usize, u32)| match at % 7 {
        0 => special[n as usize % special.len()],
        _ => n as u16,
    };
    noise(count, seed).into_iter().enumerate().map(value).collect()
}

/// The bits of the nearest number, ties to even. The crate's own conversion drops a double's last bits.
fn nearest(value: f64, guess: u16, number: impl Fn(u16) -> f64) -> u16 {
    // Infinity is where the next number would be.
    let number = |bits: u16| match number(bits) {
        at if at.is_infinite() => 2.0 * number(bits - 1) - number(bits - 2),
        at => at,
    };
    let around = [guess.saturating_sub(1), guess, guess.saturating_add(1)];
    let near = around.into_iter().filter(|bits| bits & 0x8000 == guess & 0x8000);
    let distance = |bits: &u16| ((number(*bits) - value).abs(), bits & 1);
    near.filter(|bits| !number(*bits).is_nan())
        .min_by(|a, b| distance(a).partial_cmp(&distance(b)).unwrap())
        .unwrap_or(guess)
}

fn half(value: f64) -> u16 {
    nearest(value, f16::from_f64(value).to_bits(), |bits| f16::from_bits(bits).to_f64())
}

fn brain(value: f64) -> u16 {
    nearest(value, bf16::from_f64(value).to_bits(), |bits| bf16::from_bits(bits).to_f64())
}

/// A GPU has one NaN; `neg` and `abs` change the sign of any.
fn same(got: u16, wanted: u16, is_nan: bool, what: &str) {
    assert_eq!(got, if is_nan { 0x7fff } else { wanted }, "{what}: {got:#06x}, not {wanted:#06x}");
}

/// `neg` and `abs` change the sign, and of NaN may make the one that a GPU has.
fn signs(got: [u16; 2], of: u16, is_nan: bool) {
    let wanted = [of ^ 0x8000, of & 0x7fff];
    assert!(
        got == wanted || is_nan && got.iter().all(|bits| bits & 0x7fff == 0x7fff),
        "{of:#06x}: {got:04x?}"
    );
}

/// -0 is below +0, and NaN loses.
fn least(a: f64, b: f64) -> f64 {
    match a.partial_cmp(&b) {
        Some(std::cmp::Ordering::Equal) if a.is_sign_negative() => a,
        Some(std::cmp::Ordering::Equal) => b,
        _ => a.min(b),
    }
}

/// NaN wins.
fn most(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { -least(-a, -b) }
}

/// `a × b + c`. Of what is too small for a double's last bit, the side that it lies on is left: a product
/// of such numbers has 22 bits at most.
fn fused(a: f64, b: f64, c: f64) -> f64 {
    let product = a * b;
    let small = product.is_finite() && c != 0.0 && c.abs() < product.abs() * 2f64.powi(-30);
    let c = if small { product.abs() * 2f64.powi(-30) * c.signum() } else { c };
    product + c
}

/// What the kernels that go instruction by instruction compute, as doubles that round as they do.
fn wanted(a: f64, b: f64, c: f64) -> [f64; 6] {
    [a + b, a - b, a * b, fused(a, b, c), least(a, b), most(a, b)]
}

#[test]
fn numbers_are_computed_bit_by_bit() {
    let count = 1000;
    let input = bits(count * 3, 70);
    for mut gpu in gpus("halves") {
        let (from, to) = (gpu.up(&input), gpu.up(&vec![0u16; count * 8]));
        let args = || Args::new().u64(from).u64(to).i32(count as i32);
        gpu.run("half_by_half", [(count as u32).div_ceil(64)], [64], args());
        for (n, (abc, out)) in
            input.chunks(3).zip(gpu.down::<u16>(to, count * 8).chunks(8)).enumerate()
        {
            let [a, b, c] = [abc[0], abc[1], abc[2]].map(|bits| f16::from_bits(bits).to_f64());
            for (at, value) in wanted(a, b, c).into_iter().enumerate() {
                let name = format!("{}: f16 {at} of {n}: {abc:x?}", gpu.name);
                same(out[at], half(value), value.is_nan(), &name);
            }
            signs([out[6], out[7]], abc[0], a.is_nan());
        }
        gpu.run("brain_by_brain", [(count as u32).div_ceil(64)], [64], args());
        for (n, (abc, out)) in
            input.chunks(3).zip(gpu.down::<u16>(to, count * 8).chunks(8)).enumerate()
        {
            let [a, b, c] = [abc[0], abc[1], abc[2]].map(|bits| bf16::from_bits(bits).to_f64());
            for (at, value) in wanted(a, b, c).into_iter().enumerate() {
                let name = format!("{}: bf16 {at} of {n}: {abc:x?}", gpu.name);
                same(out[at], brain(value), value.is_nan(), &name);
            }
            signs([out[6], out[7]], abc[0], a.is_nan());
        }
    }
}

#[test]
fn a_product_of_vectors_is_summed_in_halves() {
    let n = 500;
    let [a, b] = [71, 72].map(|seed| {
        floats(n, seed).into_iter().map(|x| f16::from_f32(x * 2.0)).collect::<Vec<_>>()
    });
    for mut gpu in gpus("halves") {
        let [da, db] = [&a, &b].map(|v| gpu.up(&v.iter().map(|x| x.to_bits()).collect::<Vec<_>>()));
        let out = gpu.up(&[0f32; 32]);
        gpu.run("half_dot", [1], [32], Args::new().u64(da).u64(db).u64(out).i32(n as i32));
        // Whether the compiler makes one instruction of a product and a sum is its own affair.
        let one = |x: f16, i: usize| {
            f16::from_bits(half(a[i].to_f64().mul_add(b[i].to_f64(), x.to_f64())))
        };
        let two = |x: f16, i: usize| {
            let product = f16::from_bits(half(a[i].to_f64() * b[i].to_f64()));
            f16::from_bits(half(product.to_f64() + x.to_f64()))
        };
        let sums = |step: &dyn Fn(f16, usize) -> f16| -> Vec<f32> {
            let sum = |lane| (lane..n).step_by(32).fold(f16::ZERO, step);
            let out =
                |sum: f16| if sum.to_f32() > 1.5 { -sum.to_f32().trunc() } else { sum.to_f32() };
            (0..32).map(|lane| out(sum(lane))).collect()
        };
        let got = gpu.down::<f32>(out, 32);
        assert!(got == sums(&one) || got == sums(&two), "{}: {got:?}", gpu.name);
    }
}

#[test]
fn two_numbers_in_a_register_are_computed_apart() {
    let n = 300;
    let input = noise(n * 2, 73);
    for mut gpu in gpus("halves") {
        let (from, to) = (gpu.up(&input), gpu.up(&vec![0u32; n * 5]));
        gpu.run("pairs", [5], [64], Args::new().u64(from).u64(to).i32(n as i32));
        for (ab, out) in input.chunks(2).zip(gpu.down::<u32>(to, n * 5).chunks(5)) {
            for shift in [0, 16] {
                let [a, b] =
                    [ab[0], ab[1]].map(|word| f16::from_bits((word >> shift) as u16).to_f64());
                let part = |at: usize| (out[at] >> shift) as u16;
                let fused = a.mul_add(b, a);
                same(part(0), half(fused), fused.is_nan(), &gpu.name);
                assert_eq!(part(1), if a < b { 0x3c00 } else { 0 }, "{}", gpu.name);
                assert_eq!(out[2] >> (shift / 16) & 1, u32::from(a > b), "{}", gpu.name);
                same(part(3), brain(a), a.is_nan(), &gpu.name);
                let [x, y] =
                    [ab[0], ab[1]].map(|word| bf16::from_bits((word >> shift) as u16).to_f64());
                let greater = x > y || x.is_nan() || y.is_nan();
                assert_eq!(part(4), if greater { 0xffff } else { 0 }, "{}", gpu.name);
            }
        }
    }
}

#[test]
fn pairs_are_added_in_memory() {
    // Whole numbers, of which every sum is exact.
    let input: Vec<u32> = (0..64)
        .map(|i| {
            let [low, high] = [i % 7, i % 5].map(|n| u32::from(f16::from_f32(n as f32).to_bits()));
            low | high << 16
        })
        .collect();
    for mut gpu in gpus("halves") {
        let (from, to) = (gpu.up(&input), gpu.up(&[0u32]));
        gpu.run("half_sum", [2], [32], Args::new().u64(from).u64(to).i32(64));
        let sum = gpu.down::<u32>(to, 1)[0];
        let [low, high] = [sum, sum >> 16].map(|bits| f16::from_bits(bits as u16).to_f32());
        let wanted = [7, 5].map(|by| (0..64).map(|i| (i % by) as f32).sum::<f32>());
        assert_eq!([low, high], wanted, "{}", gpu.name);
    }
}

#[test]
fn matrices_are_multiplied() {
    let halves =
        |count, seed| -> Vec<f16> { floats(count, seed).into_iter().map(f16::from_f32).collect() };
    let (a, b, c) = (halves(256, 74), halves(128, 75), floats(128, 76));
    let wanted: Vec<f32> = (0..128)
        .map(|at| {
            let (row, column) = (at / 8, at % 8);
            let sum: f64 =
                (0..16).map(|k| a[row * 16 + k].to_f64() * b[k * 8 + column].to_f64()).sum();
            (sum + f64::from(c[at])) as f32
        })
        .collect();
    for mut gpu in gpus("halves") {
        let [da, db] = [&a, &b].map(|v| gpu.up(&v.iter().map(|x| x.to_bits()).collect::<Vec<_>>()));
        let (dc, dd) = (gpu.up(&c), gpu.up(&[0f32; 128]));
        gpu.run("matrices", [1], [32], Args::new().u64(da).u64(db).u64(dc).u64(dd));
        crate::gpu::close(&gpu.down::<f32>(dd, 128), &wanted, 1e-6, &gpu.name);
    }
}
