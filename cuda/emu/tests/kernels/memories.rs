//! Every state space, and every way into it.

use nvabi_emu::Args;

use crate::gpu::{close, floats, gpus, ints};

#[test]
fn constants_and_dynamic_shared_memory() {
    let data = floats(300, 60);
    let at = |i: i32| if (0..300).contains(&i) { data[i as usize] } else { 0.0 };
    let taps = [0.1f32, 0.2, 0.4, 0.2, 0.1];
    let wanted: Vec<f32> =
        (0..300).map(|i| (0..5).map(|k| taps[k as usize] * at(i + k - 2)).sum()).collect();
    for mut gpu in gpus("memories") {
        let (input, out) = (gpu.up(&data), gpu.up(&[0f32; 300]));
        gpu.launch.shared_bytes = (64 + 4) * 4;
        gpu.run("convolve", [5], [64], Args::new().u64(input).u64(out).i32(300));
        close(&gpu.down::<f32>(out, 300), &wanted, 1e-6, &gpu.name);
        // The kernel counts up a variable through a pointer that another variable holds.
        let (counter, size) = gpu.module.symbol("launches").unwrap();
        assert_eq!((gpu.down::<i32>(counter, 1), size), (vec![41], 4));
        let (taps, size) = gpu.module.symbol("taps").unwrap();
        assert_eq!((gpu.down::<f32>(taps, 2), size), (vec![0.1, 0.2], 20));
    }
}

#[test]
fn transpose() {
    let n = 64;
    let data = floats(n * n, 61);
    let wanted: Vec<f32> = (0..n * n).map(|i| data[i % n * n + i / n]).collect();
    for mut gpu in gpus("memories") {
        let (input, out) = (gpu.up(&data), gpu.up(&vec![0f32; n * n]));
        gpu.run("transpose", [2, 2], [8, 32], Args::new().u64(input).u64(out).i32(n as i32));
        assert_eq!(gpu.down::<f32>(out, n * n), wanted, "{}", gpu.name);
    }
}

#[test]
fn a_struct_by_value() {
    let data = ints(100, 62, 0..1000);
    let table = [3i16, -1, 4, -1, 5, -9];
    let wanted: Vec<f64> = data
        .iter()
        .map(|v| f64::from(-7 * v) + 0.125 + f64::from(table[(v % 6) as usize]))
        .collect();
    let mut options = Vec::new();
    options.extend((-7i32).to_le_bytes());
    options.extend([0; 4]);
    options.extend(0.125f64.to_le_bytes());
    table.iter().for_each(|v| options.extend(v.to_le_bytes()));
    options.extend([0; 4]);
    for mut gpu in gpus("memories") {
        let (input, out) = (gpu.up(&data), gpu.up(&[0f64; 100]));
        let args = Args::new().bytes(&options, 8).u64(input).u64(out).i32(100);
        gpu.run("options", [2], [64], args);
        assert_eq!(gpu.down::<f64>(out, 100), wanted, "{}", gpu.name);
    }
}

#[test]
fn a_struct_by_value_for_functions() {
    let n = 100;
    let data: Vec<i16> = ints(n + 5, 66, 0..100).into_iter().map(|v| v as i16).collect();
    let value = |i: usize| {
        let mut table: Vec<i32> = data[i..i + 6].iter().map(|v| i32::from(*v)).collect();
        let (element, handed_on) = (table[i % 6], table[(i + 1) % 6]);
        table[(i + 2) % 6] += 100;
        element + 1000 * handed_on + 1_000_000 * table[(i + 2) % 3]
    };
    let wanted: Vec<i32> = (0..n).map(value).collect();
    for mut gpu in gpus("memories") {
        let (input, out) = (gpu.up(&data), gpu.up(&vec![0; n]));
        let args = Args::new().u64(input).u64(out).i32(n as i32);
        gpu.run("options_of_functions", [2], [64], args);
        assert_eq!(gpu.down::<i32>(out, n), wanted, "{}", gpu.name);
    }
}

#[test]
fn local_array() {
    let data = ints(100, 63, 0..1_000_000);
    let reverse = |v: i32| {
        let digits: Vec<i32> = v.to_string().bytes().rev().map(|b| i32::from(b - b'0')).collect();
        digits.iter().fold(0, |r, d| r * 10 + d) + digits[v as usize % digits.len()]
    };
    let wanted: Vec<i32> = data.iter().map(|v| reverse(*v)).collect();
    for mut gpu in gpus("memories") {
        let (input, out) = (gpu.up(&data), gpu.up(&[0; 100]));
        gpu.run("local_array", [2], [64], Args::new().u64(input).u64(out).i32(100));
        assert_eq!(gpu.down::<i32>(out, 100), wanted, "{}", gpu.name);
    }
}

#[test]
fn one_pointer_into_every_space() {
    let data = ints(32, 64, 0..100);
    let all: i32 = data.iter().map(|v| v + 1).sum();
    let own = |t: usize| (0..1 + t % 4).map(|k| data[(t + k) % 32] * k as i32).sum::<i32>() * 1000;
    let wanted: Vec<i32> = (0..32).map(|t| all + own(t) + data[..t].iter().sum::<i32>()).collect();
    for mut gpu in gpus("memories") {
        let (input, out) = (gpu.up(&data), gpu.up(&[0; 32]));
        gpu.run("generic", [1], [32], Args::new().u64(input).u64(out));
        assert_eq!(gpu.down::<i32>(out, 32), wanted, "{}", gpu.name);
    }
}

#[test]
fn three_dimensions() {
    let mut wanted = Vec::new();
    for (by, bx) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)] {
        for i in 0..60u32 {
            wanted.push(i % 5 + 10 * (i / 5 % 4) + 100 * (i / 20) + 1000 * bx + 10000 * by);
        }
    }
    for mut gpu in gpus("memories") {
        let out = gpu.up(&[0u32; 360]);
        gpu.run("dimensions", [2, 3], [5, 4, 3], Args::new().u64(out));
        assert_eq!(gpu.down::<u32>(out, 360), wanted, "{}", gpu.name);
    }
}

#[test]
fn asynchronous_copies() {
    let data = floats(512, 65);
    let wanted: Vec<f32> = data
        .chunks(256)
        .flat_map(|block| block.chunks(4).rev().flatten().copied().collect::<Vec<_>>())
        .collect();
    for mut gpu in gpus("memories") {
        let (input, out) = (gpu.up(&data), gpu.up(&[0f32; 512]));
        gpu.run("copies", [2], [64], Args::new().u64(input).u64(out));
        assert_eq!(gpu.down::<f32>(out, 512), wanted, "{}", gpu.name);
    }
}

#[test]
fn shared_memory_of_the_system_is_apart() {
    let wanted: Vec<i32> = (0..96).map(|i| 95 - i + i % 72 * 3).collect();
    for mut gpu in gpus("memories") {
        let out = gpu.up(&[0; 96]);
        gpu.run("reserved_shared", [1], [96], Args::new().u64(out));
        assert_eq!(gpu.down::<i32>(out, 96), wanted, "{}", gpu.name);
    }
}
