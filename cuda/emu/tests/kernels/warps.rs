//! What lanes of a warp do together, and blocks of a grid.

use nvabi_emu::Args;

use crate::gpu::{gpus, ints};

#[test]
fn warp_scan() {
    let data = ints(96, 50, -10..10);
    let sums = |warp: &[i32]| {
        warp.iter()
            .scan(0, |sum, v| {
                *sum += v;
                Some(*sum)
            })
            .collect::<Vec<_>>()
    };
    let wanted: Vec<i32> = data.chunks(32).flat_map(sums).collect();
    for mut gpu in gpus("warps") {
        let (input, out) = (gpu.up(&data), gpu.up(&[0; 96]));
        gpu.run("warp_scan", [1], [96], Args::new().u64(input).u64(out));
        assert_eq!(gpu.down::<i32>(out, 96), wanted, "{}", gpu.name);
    }
}

#[test]
fn lanes_without_a_partner_keep_their_value() {
    let data = ints(32, 58, -1000..1000);
    let mut wanted = Vec::new();
    for lane in 0..32 {
        let segment = lane / 8 * 8;
        wanted.push(data[if lane + 5 < 32 { lane + 5 } else { lane }]);
        wanted.push(data[if lane >= 5 { lane - 5 } else { lane }]);
        wanted.push(data[segment + (lane / 3 + 2) % 8]);
        wanted.push(data[if lane % 8 < 5 { lane + 3 } else { lane }]);
    }
    for mut gpu in gpus("warps") {
        let (input, out) = (gpu.up(&data), gpu.up(&[0; 128]));
        gpu.run("edges", [1], [32], Args::new().u64(input).u64(out));
        assert_eq!(gpu.down::<i32>(out, 128), wanted, "{}", gpu.name);
    }
}

#[test]
fn blocks_draw_in_their_order_on_any_number_of_threads() {
    let n = 64 * 200;
    let data = ints(n, 59, -5..5);
    let wanted: Vec<i32> = data.iter().copied().filter(|v| *v > 0).collect();
    for mut gpu in gpus("warps").filter(|gpu| gpu.launch.schedule == nvabi_emu::Schedule::InOrder) {
        gpu.launch.threads = 8;
        for _ in 0..3 {
            let (input, out, count) = (gpu.up(&data), gpu.up(&vec![0; n]), gpu.up(&[0]));
            gpu.run("compact", [200], [64], Args::new().u64(input).u64(out).u64(count));
            assert!(gpu.down::<i32>(out, wanted.len()) == wanted, "{}", gpu.name);
        }
    }
}

#[test]
fn tiles_shuffle_among_themselves() {
    let data = ints(64, 51, -1000..1000);
    let wanted: Vec<i32> = data
        .chunks(8)
        .enumerate()
        .flat_map(|(tile, v)| if tile % 2 == 0 { vec![v.iter().sum(); 8] } else { v.to_vec() })
        .collect();
    for mut gpu in gpus("warps") {
        let (input, out) = (gpu.up(&data), gpu.up(&[0; 64]));
        gpu.run("tiles", [2], [32], Args::new().u64(input).u64(out));
        assert_eq!(gpu.down::<i32>(out, 64), wanted, "{}", gpu.name);
    }
}

#[test]
fn compact() {
    let data = ints(256, 52, -5..5);
    let mut wanted: Vec<i32> = data.iter().copied().filter(|v| *v > 0).collect();
    wanted.sort();
    for mut gpu in gpus("warps") {
        let (input, out, count) = (gpu.up(&data), gpu.up(&[0; 256]), gpu.up(&[0]));
        gpu.run("compact", [2], [128], Args::new().u64(input).u64(out).u64(count));
        assert_eq!(gpu.down::<i32>(count, 1), [wanted.len() as i32], "{}", gpu.name);
        let mut got = gpu.down::<i32>(out, wanted.len());
        got.sort();
        assert_eq!(got, wanted, "{}", gpu.name);
    }
}

#[test]
fn equal_lanes_find_each_other() {
    let mut data = ints(64, 53, 0..300);
    data[32..].iter_mut().for_each(|v| *v %= 100);
    let mut wanted = Vec::new();
    for warp in data.chunks(32) {
        let same = |v: &i32| {
            warp.iter().enumerate().fold(0u32, |m, (lane, w)| m | (u32::from(v == w) << lane))
        };
        wanted.extend(warp.iter().map(same));
    }
    for mut gpu in gpus("warps") {
        let (input, out, all) = (gpu.up(&data), gpu.up(&[0u32; 64]), gpu.up(&[9; 64]));
        gpu.run("matching", [1], [64], Args::new().u64(input).u64(out).u64(all));
        assert_eq!(gpu.down::<u32>(out, 64), wanted, "{}", gpu.name);
        let all = gpu.down::<i32>(all, 64);
        assert!(all[..32].iter().all(|v| *v == 0) && all[32..].iter().all(|v| *v == 1));
    }
}

#[test]
fn redux() {
    let data = ints(64, 54, -1000..1000);
    let mut wanted = Vec::new();
    for warp in data.chunks(32) {
        let row =
            [warp.iter().sum(), *warp.iter().min().unwrap(), warp.iter().fold(0, |a, b| a ^ b)];
        wanted.extend(row.repeat(32));
    }
    for mut gpu in gpus("warps") {
        let (input, out) = (gpu.up(&data), gpu.up(&[0; 192]));
        gpu.run("redux", [2], [32], Args::new().u64(input).u64(out));
        assert_eq!(gpu.down::<i32>(out, 192), wanted, "{}", gpu.name);
    }
}

#[test]
fn the_last_block_sees_what_all_left() {
    let data = ints(2000, 55, -100..100);
    for mut gpu in gpus("warps") {
        let (input, parts, out) = (gpu.up(&data), gpu.up(&[0; 6]), gpu.up(&[0]));
        // Twice, because the ticket must have wrapped around.
        for _ in 0..2 {
            gpu.run("last_block", [6], [64], Args::new().u64(input).u64(parts).u64(out).i32(2000));
            assert_eq!(gpu.down::<i32>(out, 1), [data.iter().sum::<i32>()], "{}", gpu.name);
        }
    }
}

#[test]
fn a_lock_lets_one_block_in() {
    let wanted = (0..10).fold(1i32, |v, _| v.wrapping_mul(3).wrapping_add(1));
    for mut gpu in gpus("warps") {
        let (lock, value) = (gpu.up(&[0]), gpu.up(&[1]));
        gpu.run("locked", [10], [64], Args::new().u64(lock).u64(value));
        assert_eq!(gpu.down::<i32>(value, 1), [wanted], "{}", gpu.name);
    }
}

#[test]
fn atomics() {
    let n = 100;
    let fold = |f: &dyn Fn(i32, i32) -> i32, start: i32| (0..n).fold(start, f);
    let wanted = [
        fold(&|m, i| m.max(i * 7 % 101), -5),
        fold(&|m, i| m & !(1 << (i % 20)), -1),
        fold(&|m, i| m | 1 << (i % 30), 0),
        fold(&|m, i| m ^ (i * 77), 1),
    ];
    for mut gpu in gpus("warps") {
        let mut start = vec![0; 4 + n as usize];
        start[..4].copy_from_slice(&[-5, -1, 0, 1]);
        let (v, rings, sum) = (gpu.up(&start), gpu.up(&[0u32, 0]), gpu.up(&[0f32]));
        gpu.run("atomics", [2], [64], Args::new().u64(v).u64(rings).u64(sum).i32(n));
        let got = gpu.down::<i32>(v, 4 + n as usize);
        assert_eq!(got[..4], wanted, "{}", gpu.name);
        assert_eq!(gpu.down::<f32>(sum, 1), [50.0]);
        // Each thread drew from two rings: of ten and of seven numbers.
        let (mut tens, mut sevens) = ([0; 10], [0; 7]);
        for v in &got[4..] {
            tens[(v % 100) as usize] += 1;
            sevens[(v / 100) as usize] += 1;
        }
        assert_eq!(tens, [10; 10], "{}", gpu.name);
        assert!(sevens.iter().all(|count| (14..=15).contains(count)), "{}: {sevens:?}", gpu.name);
    }
}

#[test]
fn blocks_wait_for_the_ones_before() {
    let data = ints(64 * 8, 56, -100..100);
    let wanted: Vec<i32> = data
        .chunks(64)
        .scan(0, |sum, block| {
            *sum += block.iter().sum::<i32>();
            Some(*sum)
        })
        .collect();
    for mut gpu in gpus("warps") {
        if gpu.launch.schedule != nvabi_emu::Schedule::InOrder {
            // Only the order of their numbers promises that the block before is there.
            gpu.launch.cooperative = true;
        }
        let (input, flags, out) = (gpu.up(&data), gpu.up(&[0; 8]), gpu.up(&[0; 8]));
        gpu.run("chained", [8], [64], Args::new().u64(input).u64(flags).u64(out));
        assert_eq!(gpu.down::<i32>(out, 8), wanted, "{}", gpu.name);
    }
}

#[test]
fn a_cooperative_launch_has_all_blocks_at_once() {
    let data = ints(256, 57, -100..100);
    let wanted: Vec<i32> = data.iter().rev().map(|v| v * 2).collect();
    for mut gpu in gpus("warps") {
        gpu.launch.cooperative = true;
        let (arrived, input) = (gpu.up(&[0]), gpu.up(&data));
        let (middle, out) = (gpu.up(&[0; 256]), gpu.up(&[0; 256]));
        gpu.run(
            "grid_barrier",
            [4],
            [64],
            Args::new().u64(arrived).u64(input).u64(middle).u64(out),
        );
        assert_eq!(gpu.down::<i32>(out, 256), wanted, "{}", gpu.name);
    }
}
