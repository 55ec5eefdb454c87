//! Doubles, 64-bit integers, narrow types, bits.

use nvabi_emu::Args;

use crate::gpu::{floats, gpus, ints, noise};

/// The next number upwards.
fn next(x: f32) -> f32 {
    match x {
        0.0 => f32::from_bits(1),
        _ if x > 0.0 => f32::from_bits(x.to_bits() + 1),
        _ => f32::from_bits(x.to_bits() - 1),
    }
}

#[test]
fn dot64() {
    let n = 1000;
    let a: Vec<f64> = floats(n, 30).into_iter().map(f64::from).collect();
    let b: Vec<f64> = floats(n, 31).into_iter().map(|x| f64::from(x) * 1e3).collect();
    let wanted: f64 = a.iter().zip(&b).map(|(a, b)| a * b).sum();
    for mut gpu in gpus("numbers") {
        let (da, db, out) = (gpu.up(&a), gpu.up(&b), gpu.up(&[0f64]));
        gpu.run("dot64", [2], [64], Args::new().u64(da).u64(db).u64(out).i32(n as i32));
        let got = gpu.down::<f64>(out, 1)[0];
        assert!((got - wanted).abs() < 1e-9, "{}: {got} {wanted}", gpu.name);
    }
}

#[test]
fn newton() {
    let data: Vec<f64> =
        noise(100, 32).into_iter().map(|n| f64::from(n) / 65536.0 + 0.01).collect();
    for mut gpu in gpus("numbers") {
        let (input, out, steps) = (gpu.up(&data), gpu.up(&[0f64; 100]), gpu.up(&[0; 100]));
        gpu.run("newton", [2], [64], Args::new().u64(input).u64(out).u64(steps).i32(100));
        let got = gpu.down::<f64>(out, 100);
        for (a, got) in data.iter().zip(got) {
            let wanted = a.sqrt() + f64::from(*a as f32) + f64::from(*a as i32) - a.sqrt();
            assert!((got - wanted).abs() <= 1e-12 * wanted, "{}: {a}: {got} {wanted}", gpu.name);
        }
        assert!(gpu.down::<i32>(steps, 100).iter().all(|k| (3..60).contains(k)));
    }
}

#[test]
fn a_compensated_sum_is_exact_bit_by_bit() {
    let data: Vec<f32> = floats(2000, 33).iter().map(|x| x * x * x * 1e4).collect();
    let mut wanted = vec![0f32; 128];
    for t in 0..64 {
        let (mut sum, mut lost) = (0f32, 0f32);
        for x in data.iter().skip(t).step_by(64) {
            let y = x - lost;
            let next = sum + y;
            lost = (next - sum) - y;
            sum = next;
        }
        (wanted[t], wanted[64 + t]) = (sum, lost);
    }
    for mut gpu in gpus("numbers") {
        let (input, out) = (gpu.up(&data), gpu.up(&[0f32; 128]));
        gpu.run("kahan", [1], [64], Args::new().u64(input).u64(out).i32(2000));
        assert_eq!(gpu.down::<f32>(out, 128), wanted, "{}", gpu.name);
    }
}

#[test]
fn every_direction_of_rounding_brackets_the_true_value() {
    let (a, b) = (floats(200, 34), floats(200, 35));
    for mut gpu in gpus("numbers") {
        let (da, db, out) = (gpu.up(&a), gpu.up(&b), gpu.up(&vec![0f32; 1200]));
        gpu.run("directions", [4], [64], Args::new().u64(da).u64(db).u64(out).i32(200));
        let got = gpu.down::<f32>(out, 1200);
        for (i, got) in got.chunks(6).enumerate() {
            let (x, y) = (f64::from(a[i]), f64::from(b[i]));
            let down = |got: f32, exact: f64| {
                assert!(f64::from(got) <= exact && f64::from(next(got)) > exact, "{got} {exact}");
            };
            // Sums and products of two floats are exact in a double, or nearly so.
            if x + y >= 0.0 {
                down(got[0], x + y)
            } else {
                down(-got[0], -(x + y))
            }
            down(got[1], x + y);
            down(-got[2], -(x * y));
            let fused = x * y + x;
            if fused >= 0.0 {
                down(got[3], fused)
            } else {
                down(-got[3], -fused)
            }
            down(got[4], x / y);
            let floor = (x * 100.0).floor() as i32 as f32;
            assert_eq!(got[5], floor + b[i].ceil());
        }
    }
}

#[test]
fn wide() {
    let sixty_four = |seed| -> Vec<i64> {
        let (high, low) = (noise(90, seed), noise(90, seed + 100));
        high.iter()
            .zip(low)
            .map(|(h, l)| ((u64::from(*h) << 32 | u64::from(l)) >> (l % 50)) as i64 | 1)
            .collect()
    };
    let (a, b) = (sixty_four(36), sixty_four(37));
    let mut wanted = Vec::new();
    for (x, y) in a.iter().copied().zip(b.iter().copied()) {
        let (ux, uy) = (x as u64, y as u64);
        let product = u128::from(ux) * u128::from(uy) + u128::from(ux);
        wanted.push(x.wrapping_div(y).wrapping_add(x.wrapping_rem(y)));
        wanted.push((ux / uy).wrapping_add(ux % uy) as i64);
        wanted.push((product >> 64) as i64 ^ product as i64);
        wanted.push((x << (y & 63)) ^ (x >> (y & 31)) ^ (ux >> 7) as i64);
    }
    for mut gpu in gpus("numbers") {
        let (da, db, out) = (gpu.up(&a), gpu.up(&b), gpu.up(&vec![0i64; 360]));
        gpu.run("wide", [2], [64], Args::new().u64(da).u64(db).u64(out).i32(90));
        assert_eq!(gpu.down::<i64>(out, 360), wanted, "{}", gpu.name);
    }
}

#[test]
fn atomics64() {
    let data: Vec<i64> =
        noise(300, 38).into_iter().map(|n| (i64::from(n) - (1 << 31)) << 20).collect();
    let product = (0..300).fold(1f64, |p, _| p * (1.0 + 1.0 / 1024.0));
    for mut gpu in gpus("numbers") {
        let (input, sum, most) = (gpu.up(&data), gpu.up(&[0u64]), gpu.up(&[0u64]));
        let (least, p) = (gpu.up(&[i64::MAX]), gpu.up(&[1f64]));
        let args = Args::new().u64(input).u64(sum).u64(most).u64(least).u64(p).i32(300);
        gpu.run("atomics64", [3], [128], args);
        assert_eq!(gpu.down::<i64>(sum, 1), [data.iter().sum::<i64>()], "{}", gpu.name);
        assert_eq!(gpu.down::<u64>(most, 1), [data.iter().map(|v| *v as u64).max().unwrap()]);
        assert_eq!(gpu.down::<i64>(least, 1), [*data.iter().min().unwrap()]);
        assert_eq!(gpu.down::<f64>(p, 1), [product], "{}", gpu.name);
    }
}

#[test]
fn bits() {
    let data = noise(120, 39);
    let mut wanted = Vec::new();
    for i in 0..120 {
        let (v, w) = (data[i], data[(i + 1) % 120]);
        let both = u64::from(v) << 32 | u64::from(w);
        wanted.push(v.count_ones() + 100 * both.count_ones());
        wanted.push(v.reverse_bits());
        wanted.push((v | 1).leading_zeros() + 100 * (w | 0x8000_0000).trailing_zeros());
        let bytes = (u64::from(w) << 32 | u64::from(v)).to_le_bytes();
        let picked = u32::from_le_bytes([bytes[7], bytes[3], bytes[5], bytes[2]]);
        wanted.push(v.rotate_left(w & 31) ^ picked);
        let fields = (v >> 5 & 0x7ff).wrapping_add(((v << 9) as i32 >> 20) as u32);
        wanted.push(fields.wrapping_add(w.swap_bytes()));
        wanted.push((v & w) | (!v & (w >> 3)) ^ v.wrapping_mul(2_654_435_761));
    }
    for mut gpu in gpus("numbers") {
        let (input, out) = (gpu.up(&data), gpu.up(&vec![0u32; 720]));
        gpu.run("bits", [2], [64], Args::new().u64(input).u64(out).i32(120));
        assert_eq!(gpu.down::<u32>(out, 720), wanted, "{}", gpu.name);
    }
}

#[test]
fn crc() {
    let data = b"123456789The quick ".repeat(4)[..72].to_vec();
    for mut gpu in gpus("numbers") {
        let (input, out) = (gpu.up(&data), gpu.up(&[0u32; 8]));
        gpu.run("crc", [1], [32], Args::new().u64(input).u64(out).i32(9).i32(8));
        // The check value of CRC-32, as its standard gives it.
        assert_eq!(gpu.down::<u32>(out, 8)[0], 0xcbf4_3926, "{}", gpu.name);
    }
}

#[test]
fn narrow() {
    let a: Vec<i8> = ints(100, 40, -128..128).into_iter().map(|v| v as i8).collect();
    let b: Vec<u16> = ints(100, 41, 0..65536).into_iter().map(|v| v as u16).collect();
    let pairs = || a.iter().zip(&b).map(|(a, b)| (i32::from(*a), i32::from(*b)));
    let shorts: Vec<i16> = pairs().map(|(a, b)| (a * a - b) as i16 >> 1).collect();
    let bytes: Vec<u8> = pairs().map(|(a, b)| (a + b) as u8 / 3).collect();
    for mut gpu in gpus("numbers") {
        let (da, db, ds, dd) = (gpu.up(&a), gpu.up(&b), gpu.up(&[0i16; 100]), gpu.up(&[0u8; 100]));
        gpu.run("narrow", [2], [64], Args::new().u64(da).u64(db).u64(ds).u64(dd).i32(100));
        assert_eq!(gpu.down::<i16>(ds, 100), shorts, "{}", gpu.name);
        assert_eq!(gpu.down::<u8>(dd, 100), bytes, "{}", gpu.name);
    }
}
