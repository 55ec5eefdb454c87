//! Control flow: specialised warps, switches, calls, votes.

use nvabi_emu::Args;

use crate::gpu::{gpus, ints, noise};

#[test]
fn specialised_warps_meet_at_named_barriers() {
    let rounds = 7;
    let data = ints(96 * rounds, 20, -100..100);
    let wanted: Vec<i32> = (0..96)
        .map(|at| (0..rounds).map(|r| (data[r * 96 + at] + 1) * (r as i32 + 1)).sum())
        .collect();
    for mut gpu in gpus("control") {
        let (input, out) = (gpu.up(&data), gpu.up(&[0; 96]));
        gpu.run("specialised", [1], [128], Args::new().u64(input).u64(out).i32(rounds as i32));
        assert_eq!(gpu.down::<i32>(out, 96), wanted, "{}", gpu.name);
    }
}

#[test]
fn a_dense_switch_takes_each_case() {
    let (ops, data) = (ints(400, 21, -1..11), ints(400, 22, -1000..1000));
    let step = |i: i32, op: i32, v: i32| match op {
        0 => v + 7,
        1 => v * v,
        2 => -v - 100,
        3 => v - 100,
        4 => v / (i % 5 + 1),
        5 => v ^ 0x55,
        6 => v << 3,
        7 => v % 13,
        8 => {
            if v > 0 {
                1
            } else {
                -1
            }
        }
        _ => 0,
    };
    let wanted: Vec<i32> = (0..400).map(|i| step(i as i32, ops[i], data[i])).collect();
    for mut gpu in gpus("control") {
        let (o, input, out) = (gpu.up(&ops), gpu.up(&data), gpu.up(&[0; 400]));
        gpu.run("dispatch", [4], [128], Args::new().u64(o).u64(input).u64(out).i32(400));
        assert_eq!(gpu.down::<i32>(out, 400), wanted, "{}", gpu.name);
    }
}

#[test]
fn a_sparse_switch_takes_each_case() {
    let data: Vec<i32> =
        ints(200, 23, 0..4).into_iter().map(|k| [3, 1000, -77777, 8][k as usize]).collect();
    let step = |i: i32, v: i32| match v {
        3 => i * i,
        1000 => i + 1,
        -77777 => 0,
        _ => v * 2,
    };
    let wanted: Vec<i32> = (0..200).map(|i| step(i as i32, data[i])).collect();
    for mut gpu in gpus("control") {
        let (input, out) = (gpu.up(&data), gpu.up(&[0; 200]));
        gpu.run("sparse", [2], [128], Args::new().u64(input).u64(out).i32(200));
        assert_eq!(gpu.down::<i32>(out, 200), wanted, "{}", gpu.name);
    }
}

#[test]
fn calls_pass_scalars_and_structs() {
    let n = 150;
    let data: Vec<f32> = ints(n, 24, -8..8).into_iter().map(|k| k as f32 * 0.75).collect();
    let power = |base: f32, exponent: i32| (0..exponent).fold(1f32, |r, _| r * base);
    let value = |i: i32, v: f32| {
        let v = if v > 0.0 { power(v, i % 5) } else { v };
        let nested = if v > 3.0 { i } else { i + power(v, 2) as i32 };
        v + nested as f32
    };
    let pair = |i: i64| {
        let (mut a, mut b) = (i, [1i32, 2, 3]);
        for k in 0..(i % 4) as i32 {
            (a, b) = (a * 3 + i64::from(k), [b[2], b[0] + k, b[1] ^ k]);
        }
        a + i64::from(b[0] * 1000 + b[1] * 100 + b[2])
    };
    let wanted: Vec<f32> = (0..n).map(|i| value(i as i32, data[i])).collect();
    let pairs: Vec<i64> = (0..n as i64).map(pair).collect();
    for mut gpu in gpus("control") {
        let (input, out, p) = (gpu.up(&data), gpu.up(&vec![0f32; n]), gpu.up(&vec![0i64; n]));
        gpu.run("calls", [3], [64], Args::new().u64(input).u64(out).u64(p).i32(n as i32));
        assert_eq!(gpu.down::<f32>(out, n), wanted, "{}", gpu.name);
        assert_eq!(gpu.down::<i64>(p, n), pairs, "{}", gpu.name);
    }
}

#[test]
fn function_pointers_differ_between_lanes() {
    let data = ints(100, 25, 0..1000);
    let apply = |i: i32, v: i32| match v % 3 {
        0 => v + i,
        1 => v * i,
        _ => v.max(i),
    };
    let wanted: Vec<i32> = (0..100).map(|i| apply(i as i32, data[i])).collect();
    for mut gpu in gpus("control") {
        let (input, out) = (gpu.up(&data), gpu.up(&[0; 100]));
        gpu.run("pointers", [1], [128], Args::new().u64(input).u64(out).i32(100));
        assert_eq!(gpu.down::<i32>(out, 100), wanted, "{}", gpu.name);
    }
}

#[test]
fn loops_are_left_from_the_middle() {
    let search = |i: i32| {
        let (mut found, mut steps, mut a) = (-1, 0, 1);
        while a < 30 && found < 0 {
            for b in a..30 {
                steps += 1;
                if a * b % 7 == i % 7 && a + b > i % 40 {
                    found = a * 100 + b;
                    break;
                }
                if b - a > i % 11 {
                    break;
                }
            }
            a += 1;
        }
        found * 10000 + steps
    };
    let wanted: Vec<i32> = (0..300).map(search).collect();
    for mut gpu in gpus("control") {
        let out = gpu.up(&[0; 300]);
        gpu.run("nest", [3], [128], Args::new().u64(out).i32(300));
        assert_eq!(gpu.down::<i32>(out, 300), wanted, "{}", gpu.name);
    }
}

#[test]
fn votes_see_all_lanes() {
    let data = ints(64, 26, 0..200);
    let mut wanted = Vec::new();
    for warp in data.chunks(32) {
        let mut v = warp.to_vec();
        let (mut rounds, mut seen) = (0u32, 0u32);
        while v.iter().any(|v| *v > 0) {
            let ballot =
                v.iter().enumerate().fold(0u32, |b, (lane, v)| b | ((*v as u32 & 1) << lane));
            seen = seen.wrapping_mul(31).wrapping_add(ballot);
            v.iter_mut().for_each(|v| *v = if *v & 1 != 0 { *v - 1 } else { *v / 2 });
            rounds += if v.iter().all(|v| *v > 0) { 100 } else { 1 };
        }
        wanted.extend([seen ^ rounds; 32]);
    }
    for mut gpu in gpus("control") {
        let (input, out) = (gpu.up(&data), gpu.up(&[0u32; 64]));
        gpu.run("votes", [1], [64], Args::new().u64(input).u64(out));
        assert_eq!(gpu.down::<u32>(out, 64), wanted, "{}", gpu.name);
    }
}

#[test]
fn both_sides_of_a_branch_know_their_lanes() {
    let data = ints(64, 27, 0..30);
    let mut wanted = Vec::new();
    for warp in data.chunks(32) {
        let mask = |limit: i32| {
            warp.iter().enumerate().fold(0u32, |m, (lane, v)| m | (u32::from(*v > limit) << lane))
        };
        wanted.extend(warp.iter().map(|v| match v {
            21.. => mask(10) ^ (mask(20) << 1),
            11.. => mask(10),
            _ => mask(10),
        }));
    }
    for mut gpu in gpus("control") {
        let (input, out) = (gpu.up(&data), gpu.up(&[0u32; 64]));
        gpu.run("masks", [2], [32], Args::new().u64(input).u64(out));
        assert_eq!(gpu.down::<u32>(out, 64), wanted, "{}", gpu.name);
    }
}

#[test]
fn collatz() {
    let data: Vec<u32> = noise(130, 28).into_iter().map(|n| n % 100_000 + 1).collect();
    let steps = |v: u32| {
        std::iter::successors(Some(u64::from(v)), |v| {
            (*v != 1).then(|| if v % 2 == 1 { 3 * v + 1 } else { v / 2 })
        })
        .count() as i32
            - 1
    };
    let wanted: Vec<i32> = data.iter().map(|v| steps(*v)).collect();
    for mut gpu in gpus("control") {
        let (input, out) = (gpu.up(&data), gpu.up(&vec![0; 130]));
        gpu.run("collatz", [3], [64], Args::new().u64(input).u64(out).i32(130));
        assert_eq!(gpu.down::<i32>(out, 130), wanted, "{}", gpu.name);
    }
}

#[test]
fn threads_that_returned_are_not_waited_for() {
    let n = 70;
    let data = ints(96, 29, -100..100);
    let value = |i: usize| data[n - 1 - i];
    let odd =
        |warp: usize| (warp * 32..n.min(warp * 32 + 32)).filter(|i| value(*i) & 1 != 0).count();
    let mut wanted: Vec<i32> =
        (0..n).map(|i| value(i) + value(i ^ 1) + odd(i / 32) as i32).collect();
    wanted.resize(96, -1);
    for mut gpu in gpus("control") {
        let (input, out) = (gpu.up(&data), gpu.up(&[0; 96]));
        let args = Args::new().u64(input).u64(out).i32(n as i32);
        gpu.run("early_return", [1], [96], args);
        assert_eq!(gpu.down::<i32>(out, 96), wanted, "{}", gpu.name);
    }
}

/// What a thread wrote to shared memory, if it did, for the one across the warps.
fn across(written: &[Option<i32>]) -> Vec<i32> {
    (0..written.len()).map(|i| written[i ^ 33].unwrap_or(0)).collect()
}

#[test]
fn a_function_with_a_barrier_is_called_by_those_that_are_left() {
    let data = ints(64, 30, -100..100);
    for n in [64, 40, 33, 7] {
        let written: Vec<_> = (0..64).map(|i| (i < n).then_some(data[i])).collect();
        let mut wanted = across(&written);
        wanted[n..].fill(-1);
        for mut gpu in gpus("control") {
            let (input, out) = (gpu.up(&data), gpu.up(&[-1; 64]));
            let args = Args::new().u64(input).u64(out).i32(n as i32);
            gpu.run("return_then_call", [1], [64], args);
            assert_eq!(gpu.down::<i32>(out, 64), wanted, "{}", gpu.name);
        }
    }
}

#[test]
fn a_return_in_a_branch_parts_those_that_come_to_a_barrier() {
    let data = ints(64, 31, -100..100);
    let n = 40;
    let written: Vec<_> = (0..64).map(|i| (i < n).then_some(data[i])).collect();
    let mut wanted = across(&written);
    (0..n).filter(|i| data[*i] < -50).for_each(|i| wanted[i] = 1);
    for mut gpu in gpus("control") {
        let (input, out) = (gpu.up(&data), gpu.up(&[0; 64]));
        let args = Args::new().u64(input).u64(out).i32(n as i32);
        gpu.run("return_in_a_branch", [1], [64], args);
        assert_eq!(gpu.down::<i32>(out, 64), wanted, "{}", gpu.name);
    }
}

#[test]
fn returns_in_a_chain_part_those_that_come_to_a_barrier() {
    let data = ints(64, 32, 0..100);
    let value = |i: usize| data[i] * if data[i] & 7 == 3 { 2 } else { 1 };
    let thread = |i: usize| match data[i] & 7 {
        0 => 5,
        1 => 2,
        2 if i & 1 != 0 => 0,
        6 => (0..i as i32).fold(0, |x, k| x ^ (k * 3)),
        2 | 3 => value(i ^ 33),
        _ => 7 + value(i ^ 33),
    };
    let wanted: Vec<i32> = (0..64).map(thread).collect();
    for mut gpu in gpus("control") {
        let (input, out) = (gpu.up(&data), gpu.up(&[0; 64]));
        gpu.run("returns_in_a_chain", [1], [64], Args::new().u64(input).u64(out));
        assert_eq!(gpu.down::<i32>(out, 64), wanted, "{}", gpu.name);
    }
}

#[test]
fn a_barrier_in_a_function_is_one_wherever_it_is_called() {
    let data = ints(64, 33, -50..50);
    let odd = |v: i32| v & 1 != 0;
    let first = data.iter().filter(|v| **v > if odd(**v) { 0 } else { 10 }).count() as i32;
    let second = data.iter().filter(|v| **v & 2 != 0).count() as i32;
    let thread = |i: usize| {
        let own = if odd(data[i]) { first * 2 + 1 } else { first * 3 };
        own + data[i ^ 7] + second
    };
    let wanted: Vec<i32> = (0..64).map(thread).collect();
    for mut gpu in gpus("control") {
        let (input, out) = (gpu.up(&data), gpu.up(&[0; 64]));
        gpu.run("calls_from_two_places", [1], [64], Args::new().u64(input).u64(out));
        assert_eq!(gpu.down::<i32>(out, 64), wanted, "{}", gpu.name);
    }
}

#[test]
fn lanes_meet_in_turn() {
    let data = ints(32, 34, 0..100);
    let mut v = data.clone();
    (v[1], v[20]) = (data[1] + data[20], data[1] + data[20]);
    let paired = v.clone();
    (0..16).for_each(|i| v[i] += paired[i ^ 1]);
    let wanted: Vec<i32> = (0..32).map(|i| v[i] + v[i ^ 16]).collect();
    for mut gpu in gpus("control") {
        let (input, out) = (gpu.up(&data), gpu.up(&[0; 32]));
        gpu.run("meets_in_turn", [1], [32], Args::new().u64(input).u64(out));
        assert_eq!(gpu.down::<i32>(out, 32), wanted, "{}", gpu.name);
    }
}
