//! The twelve kernels that every GPU programmer has written.

use nvabi_emu::Args;

use crate::gpu::{close, floats, gpus, ints, noise};

#[test]
fn reduction() {
    let n = 3000;
    let data = ints(n, 1, -1000..1000);
    for mut gpu in gpus("classic") {
        let (input, sum) = (gpu.up(&data), gpu.up(&[0]));
        gpu.run("reduction", [5], [256], Args::new().u64(input).u64(sum).i32(n as i32));
        assert_eq!(gpu.down::<i32>(sum, 1), [data.iter().sum::<i32>()], "{}", gpu.name);
    }
}

#[test]
fn matmul() {
    let n = 48;
    let (a, b) = (floats(n * n, 2), floats(n * n, 3));
    let mut wanted = vec![0f32; n * n];
    for row in 0..n {
        for col in 0..n {
            for k in 0..n {
                let sum = &mut wanted[row * n + col];
                *sum = a[row * n + k].mul_add(b[k * n + col], *sum);
            }
        }
    }
    for mut gpu in gpus("classic") {
        let (da, db, dc) = (gpu.up(&a), gpu.up(&b), gpu.up(&vec![0f32; n * n]));
        let args = Args::new().u64(da).u64(db).u64(dc).i32(n as i32);
        gpu.run("matmul", [3, 3], [16, 16], args);
        close(&gpu.down::<f32>(dc, n * n), &wanted, 1e-5, &gpu.name);
    }
}

#[test]
fn histogram() {
    let data: Vec<u8> = noise(5000, 4).into_iter().map(|n| (n >> 24) as u8 & 0x9f).collect();
    let mut wanted = [0u32; 256];
    data.iter().for_each(|byte| wanted[usize::from(*byte)] += 1);
    for mut gpu in gpus("classic") {
        let (input, bins) = (gpu.up(&data), gpu.up(&[0u32; 256]));
        gpu.run("histogram", [4], [256], Args::new().u64(input).u64(bins).i32(5000));
        assert_eq!(gpu.down::<u32>(bins, 256), wanted, "{}", gpu.name);
    }
}

#[test]
fn bfs() {
    let n = 500;
    let mut rows = vec![0];
    let mut edges = Vec::new();
    for (v, random) in noise(n, 5).into_iter().enumerate() {
        let targets = noise((random % 3 + 1) as usize, v as u32);
        edges.extend(targets.into_iter().map(|t| (t % n as u32) as i32));
        rows.push(edges.len() as i32);
    }
    let mut wanted = vec![-1; n];
    let mut queue = std::collections::VecDeque::from([0usize]);
    wanted[0] = 0;
    while let Some(v) = queue.pop_front() {
        for e in &edges[rows[v] as usize..rows[v + 1] as usize] {
            if wanted[*e as usize] < 0 {
                wanted[*e as usize] = wanted[v] + 1;
                queue.push_back(*e as usize);
            }
        }
    }
    assert!(wanted.iter().max().unwrap() > &4);
    for mut gpu in gpus("classic") {
        let mut start = vec![-1; n];
        start[0] = 0;
        let (r, e, d) = (gpu.up(&rows), gpu.up(&edges), gpu.up(&start));
        for level in 0.. {
            let changed = gpu.up(&[0]);
            let args = Args::new().u64(r).u64(e).u64(d).i32(level).u64(changed).i32(n as i32);
            gpu.run("bfs", [4], [128], args);
            if gpu.down::<i32>(changed, 1) == [0] {
                break;
            }
        }
        assert_eq!(gpu.down::<i32>(d, n), wanted, "{}", gpu.name);
    }
}

#[test]
fn scan() {
    let data = ints(600, 6, -50..50);
    let wanted: Vec<i32> = data
        .chunks(256)
        .flat_map(|block| {
            block.iter().scan(0, |sum, v| {
                *sum += v;
                Some(*sum)
            })
        })
        .collect();
    for mut gpu in gpus("classic") {
        let (input, out) = (gpu.up(&data), gpu.up(&vec![0; 600]));
        gpu.run("scan", [3], [256], Args::new().u64(input).u64(out).i32(600));
        assert_eq!(gpu.down::<i32>(out, 600), wanted, "{}", gpu.name);
    }
}

#[test]
fn stencil() {
    let (w, h) = (50, 20);
    let data = floats(w * h, 7);
    let mut wanted = data.clone();
    for y in 1..h - 1 {
        for x in 1..w - 1 {
            let i = y * w + x;
            wanted[i] = 0.2 * (data[i] + data[i - 1] + data[i + 1] + data[i - w] + data[i + w]);
        }
    }
    for mut gpu in gpus("classic") {
        let (input, out) = (gpu.up(&data), gpu.up(&vec![0f32; w * h]));
        let args = Args::new().u64(input).u64(out).i32(w as i32).i32(h as i32);
        gpu.run("stencil", [4, 5], [16, 4], args);
        assert_eq!(gpu.down::<f32>(out, w * h), wanted, "{}", gpu.name);
    }
}

#[test]
fn bitonic() {
    let data = ints(512, 8, -9999..9999);
    let mut wanted = data.clone();
    wanted.chunks_mut(256).for_each(<[i32]>::sort);
    for mut gpu in gpus("classic") {
        let out = gpu.up(&data);
        gpu.run("bitonic", [2], [256], Args::new().u64(out));
        assert_eq!(gpu.down::<i32>(out, 512), wanted, "{}", gpu.name);
    }
}

#[test]
fn divergent() {
    let limits = ints(300, 9, -3..90);
    let sum = |limit: i32| (0..limit).take_while(|k| *k != 40).filter(|k| k % 3 != 0).sum::<i32>();
    let wanted: Vec<i32> = limits.iter().map(|limit| sum(*limit)).collect();
    for mut gpu in gpus("classic") {
        let (input, out) = (gpu.up(&limits), gpu.up(&vec![0; 300]));
        gpu.run("divergent", [3], [128], Args::new().u64(input).u64(out).i32(300));
        assert_eq!(gpu.down::<i32>(out, 300), wanted, "{}", gpu.name);
    }
}

#[test]
fn spmv() {
    let n = 40;
    let mut rows = vec![0];
    let mut cols = Vec::new();
    for (row, count) in ints(n, 10, 0..90).into_iter().enumerate() {
        cols.extend(ints(count as usize, row as u32, 0..n as i32));
        rows.push(cols.len() as i32);
    }
    let (values, x) = (floats(cols.len(), 11), floats(n, 12));
    let wanted: Vec<f32> = (0..n)
        .map(|row| {
            (rows[row] as usize..rows[row + 1] as usize)
                .map(|e| values[e] * x[cols[e] as usize])
                .sum()
        })
        .collect();
    for mut gpu in gpus("classic") {
        let (r, c, v, dx, y) =
            (gpu.up(&rows), gpu.up(&cols), gpu.up(&values), gpu.up(&x), gpu.up(&vec![0f32; n]));
        let args = Args::new().u64(r).u64(c).u64(v).u64(dx).u64(y).i32(n as i32);
        gpu.run("spmv", [20], [64], args);
        close(&gpu.down::<f32>(y, n), &wanted, 1e-5, &gpu.name);
    }
}

#[test]
fn nbody() {
    let n = 128;
    let bodies = floats(4 * n, 13);
    let mut wanted = vec![0f32; 4 * n];
    for i in 0..n {
        for k in 0..n {
            let d: Vec<f32> =
                (0..3).map(|axis| bodies[4 * k + axis] - bodies[4 * i + axis]).collect();
            let square = d.iter().map(|d| d * d).sum::<f32>() + 0.01;
            let force = bodies[4 * k + 3] / (square * square.sqrt());
            (0..3).for_each(|axis| wanted[4 * i + axis] += force * d[axis]);
        }
    }
    for mut gpu in gpus("classic") {
        let (input, out) = (gpu.up(&bodies), gpu.up(&vec![0f32; 4 * n]));
        gpu.run("nbody", [2], [64], Args::new().u64(input).u64(out).i32(n as i32));
        close(&gpu.down::<f32>(out, 4 * n), &wanted, 1e-3, &gpu.name);
    }
}

#[test]
fn mandelbrot() {
    let (w, h, limit) = (60, 16, 64);
    let escape = |px: usize, py: usize, fused: bool| {
        let fma = |a: f32, b: f32, c: f32| if fused { a.mul_add(b, c) } else { a * b + c };
        let (cx, cy) = (-2.0 + 3.0 * px as f32 / w as f32, -1.0 + 2.0 * py as f32 / h as f32);
        let (mut x, mut y, mut n) = (0f32, 0f32, 0);
        while n < limit && fma(x, x, y * y) < 4.0 {
            (x, y, n) = (fma(x, x, -(y * y)) + cx, fma(2.0 * x, y, cy), n + 1);
        }
        n
    };
    for mut gpu in gpus("classic") {
        let out = gpu.up(&vec![0; w * h]);
        let args = Args::new().u64(out).i32(w as i32).i32(h as i32).i32(limit);
        gpu.run("mandelbrot", [2, 16], [32], args);
        let got = gpu.down::<i32>(out, w * h);
        // clang fuses as it likes: a point may follow either rounding, or escape a step apart.
        let near = |(i, n): (usize, &i32)| {
            let (a, b) = (escape(i % w, i / w, true), escape(i % w, i / w, false));
            (n - a).abs() <= 1 || (n - b).abs() <= 1
        };
        let off = got.iter().enumerate().filter(|point| !near(*point)).count();
        assert!(off <= w * h / 100, "{}: {off} points", gpu.name);
    }
}

#[test]
fn softmax() {
    let (n, count) = (300, 3);
    let data: Vec<f32> = floats(n * count, 14).iter().map(|x| x * 8.0).collect();
    let wanted: Vec<f32> = data
        .chunks(n)
        .flat_map(|row| {
            let most = row.iter().copied().fold(f32::MIN, f32::max);
            let sum: f32 = row.iter().map(|x| (x - most).exp()).sum();
            row.iter().map(move |x| (x - most).exp() / sum)
        })
        .collect();
    for mut gpu in gpus("classic") {
        let (input, out) = (gpu.up(&data), gpu.up(&vec![0f32; n * count]));
        gpu.run("softmax", [3], [128], Args::new().u64(input).u64(out).i32(n as i32));
        close(&gpu.down::<f32>(out, n * count), &wanted, 1e-6, &gpu.name);
    }
}
