//! The library as programs see it, on memory of the emulator's libcuda, against sums computed here.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::atomic::{AtomicU32, Ordering};

use half::{bf16, f16};

#[path = "device/mod.rs"]
#[macro_use]
mod device;

use device::{device, host};

fn handle() -> usize {
    let mut handle = 0usize;
    // The driver's library first: the other finds its functions by name.
    assert_eq!(call!(cuInit(0)), 0);
    assert_eq!(call!(cublasCreate_v2(&raw mut handle)), 0);
    handle
}

const M: usize = 5;
const N: usize = 4;
const K: usize = 3;

/// Small integers, so that sums are exact in every type.
fn factors() -> (Vec<f32>, Vec<f32>, Vec<f32>) {
    let numbers =
        |count: usize, by: usize| (0..count).map(|at| (at * by % 7) as f32 - 3.0).collect();
    (numbers(M * K, 5), numbers(K * N, 3), numbers(M * N, 4))
}

/// `2 a b + 3 c` by columns, of factors that lie transposed or not.
fn expected(ta: bool, tb: bool, a: &[f32], b: &[f32], c: &[f32]) -> Vec<f32> {
    let at = |m: &[f32], t: bool, rows: usize, columns: usize, i: usize, j: usize| {
        if t { m[j + i * columns] } else { m[i + j * rows] }
    };
    let mut out = Vec::new();
    for j in 0..N {
        for i in 0..M {
            let sum: f32 = (0..K).map(|k| at(a, ta, M, K, i, k) * at(b, tb, K, N, k, j)).sum();
            out.push(2.0 * sum + 3.0 * c[i + j * M]);
        }
    }
    out
}

#[test]
fn matrices_are_multiplied_transposed_or_not() {
    let handle = handle();
    let (a, b, c) = factors();
    for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
        let (la, lb) = (if ta { K } else { M }, if tb { N } else { K });
        let wanted = expected(ta, tb, &a, &b, &c);
        let (two, three) = (2f32, 3f32);
        let [x, y, z] = [&a, &b, &c].map(|values| device(values));
        let status = call!(cublasSgemm_v2(
            handle,
            ta,
            tb,
            M,
            N,
            K,
            &raw const two,
            x,
            la,
            y,
            lb,
            &raw const three,
            z,
            M
        ));
        assert_eq!((status, host::<f32>(z, M * N)), (0, wanted.clone()), "{ta} {tb}");

        let wide = |values: &[f32]| values.iter().map(|v| f64::from(*v)).collect::<Vec<_>>();
        let [x, y, z] = [&a, &b, &c].map(|values| device(&wide(values)));
        let (two, three) = (2f64, 3f64);
        let status = call!(cublasDgemm_v2(
            handle,
            ta,
            tb,
            M,
            N,
            K,
            &raw const two,
            x,
            la,
            y,
            lb,
            &raw const three,
            z,
            M
        ));
        assert_eq!((status, host::<f64>(z, M * N)), (0, wide(&wanted)), "{ta} {tb}");
    }
    assert_eq!(call!(cublasDestroy_v2(handle)), 0);
    assert_eq!(call!(cublasDestroy_v2(handle)), 1);
}

#[test]
fn other_types_and_batches_are_multiplied() {
    let handle = handle();
    let (a, b, c) = factors();
    let wanted = expected(false, true, &a, &b, &c);
    let (two, three) = (2f32, 3f32);
    // Two of each, one behind the other; sums of the type of the factors.
    let twice = |values: &[f32]| [values, values].concat();
    let halves = |values: &[f32]| twice(values).into_iter().map(f16::from_f32).collect::<Vec<_>>();
    let brains = |values: &[f32]| twice(values).into_iter().map(bf16::from_f32).collect::<Vec<_>>();
    let strides = [M * K, K * N, M * N];
    for (kind, [x, y, z]) in [
        (2, [&a, &b, &c].map(|values| device(&halves(values)))),
        (14, [&a, &b, &c].map(|values| device(&brains(values)))),
    ] {
        let status = call!(cublasGemmStridedBatchedEx(
            handle,
            0,
            1,
            M,
            N,
            K,
            &raw const two,
            x,
            kind,
            M,
            strides[0],
            y,
            kind,
            N,
            strides[1],
            &raw const three,
            z,
            kind,
            M,
            strides[2],
            2,
            68,
            99
        ));
        assert_eq!(status, 0);
        let found: Vec<f32> = match kind {
            2 => host::<f16>(z, 2 * M * N).into_iter().map(f16::to_f32).collect(),
            _ => host::<bf16>(z, 2 * M * N).into_iter().map(bf16::to_f32).collect(),
        };
        assert_eq!(found, twice(&wanted), "type {kind}");
    }
    // By lists of pointers.
    let [x, y, z] = [&a, &b, &c].map(|values| device(values));
    let other = device(&c);
    let lists = [device(&[x, x]), device(&[y, y]), device(&[z, other])];
    let status = call!(cublasSgemmBatched(
        handle,
        0,
        1,
        M,
        N,
        K,
        &raw const two,
        lists[0],
        M,
        lists[1],
        N,
        &raw const three,
        lists[2],
        M,
        2
    ));
    assert_eq!(
        (status, host::<f32>(z, M * N), host::<f32>(other, M * N)),
        (0, wanted.clone(), wanted)
    );
    // Bytes with sums of 32 bits; nothing of what was there before, not a number or not.
    let bytes = |values: &[f32]| values.iter().map(|v| *v as i8).collect::<Vec<_>>();
    let (x, y, z) = (device(&bytes(&a)), device(&bytes(&b)), device(&[7i32; M * N]));
    let (one, zero) = (1i32, 0i32);
    let status = call!(cublasGemmEx(
        handle,
        0,
        1,
        M,
        N,
        K,
        &raw const one,
        x,
        3,
        M,
        y,
        3,
        N,
        &raw const zero,
        z,
        10,
        M,
        72,
        99
    ));
    let alone = expected(false, true, &a, &b, &[0.0; M * N]);
    let alone: Vec<i32> = alone.iter().map(|v| *v as i32 / 2).collect();
    assert_eq!((status, host::<i32>(z, M * N)), (0, alone));
}

#[test]
fn vectors_are_scaled_added_and_measured() {
    let handle = handle();
    let (two, one) = (2f32, 1f32);
    let (x, y) = (device(&[1f32, -9.0, 2.0, -9.0, 3.0]), device(&[10f32, 20.0, 30.0]));
    // Every other of x; y from its end.
    assert_eq!(call!(cublasSaxpy_v2(handle, 3, &raw const two, x, 2, y, -1isize)), 0);
    assert_eq!(host::<f32>(y, 3), [16.0, 24.0, 32.0]);
    let (mut sum, mut at) = (0f32, 0i32);
    assert_eq!(call!(cublasSdot_v2(handle, 3, x, 2, y, 1, &raw mut sum)), 0);
    assert_eq!(sum, 16.0 + 48.0 + 96.0);
    assert_eq!(call!(cublasSasum_v2(handle, 5, x, 1, &raw mut sum)), 0);
    assert_eq!(sum, 24.0);
    assert_eq!(call!(cublasIsamax_v2(handle, 5, x, 1, &raw mut at)), 0);
    assert_eq!(at, 2);
    assert_eq!(call!(cublasSscal_v2(handle, 2, &raw const two, y, 2)), 0);
    assert_eq!(host::<f32>(y, 3), [32.0, 24.0, 64.0]);
    // Squares that no `float` holds.
    let large = device(&[3e30f32, 4e30]);
    assert_eq!(call!(cublasSnrm2_v2(handle, 2, large, 1, &raw mut sum)), 0);
    assert_eq!(sum, 5e30);
    let a = device(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let out = device(&[100f32, 200.0, 300.0]);
    let v = device(&[1f32, 10.0]);
    assert_eq!(
        call!(cublasSgemv_v2(handle, 1, 2, 3, &raw const one, a, 2, v, 1, &raw const one, out, 1)),
        0
    );
    assert_eq!(host::<f32>(out, 3), [121.0, 243.0, 365.0]);
}

#[test]
fn matrices_and_vectors_are_copied_there_and_back() {
    handle();
    let host_side: Vec<f32> = (0..12).map(|at| at as f32).collect();
    let to = device(&[-1f32; 10]);
    // Two rows of three columns that are 4 apart, to columns that are 3 apart.
    assert_eq!(call!(cublasSetMatrix(2, 3, 4, host_side.as_ptr(), 4, to, 3)), 0);
    assert_eq!(host::<f32>(to, 10), [0.0, 1.0, -1.0, 4.0, 5.0, -1.0, 8.0, 9.0, -1.0, -1.0]);
    let mut back = [7f32; 6];
    assert_eq!(call!(cublasGetMatrix(2, 3, 4, to, 3, back.as_mut_ptr(), 2)), 0);
    assert_eq!(back, [0.0, 1.0, 4.0, 5.0, 8.0, 9.0]);
    // Every third of a vector to every second place.
    assert_eq!(call!(cublasSetVector(4, 4, host_side.as_ptr(), 3, to, 2)), 0);
    let mut vector = [0f32; 4];
    assert_eq!(call!(cublasGetVectorAsync(4, 4, to, 2, vector.as_mut_ptr(), 1, 0)), 0);
    assert_eq!(vector, [0.0, 3.0, 6.0, 9.0]);
    assert_eq!(call!(cublasSetVector(6, 4, host_side.as_ptr(), 1, to, 2)), 13, "one too many");
    assert_eq!(call!(cublasSetMatrix(2, 3, 4, host_side.as_ptr(), 1, to, 3)), 7, "columns overlap");
    assert_eq!(call!(cublasSetMatrix(2, 3, 0, host_side.as_ptr(), 4, to, 3)), 7);
}

#[test]
fn what_leaves_an_allocation_is_refused() {
    let handle = handle();
    let (one, zero) = (1f32, 0f32);
    let (a, b, c) = (device(&[1f32; 6]), device(&[1f32; 6]), device(&[0f32; 3]));
    let product = |m: usize, lead: usize, result: usize| {
        call!(cublasSgemm_v2(
            handle,
            0,
            0,
            m,
            2,
            3,
            &raw const one,
            a,
            lead,
            b,
            3,
            &raw const zero,
            result,
            m
        ))
    };
    assert_eq!(product(2, 2, c), 13, "four sums in room for three");
    assert_eq!(product(2, 1, c), 7, "columns that overlap");
    assert_eq!(product(1, 1, 64), 13, "no memory of the device");
    assert_eq!(product(1, 1, c), 0);
    assert_eq!(host::<f32>(c, 3), [3.0, 3.0, 0.0]);
    assert_eq!(call!(cublasSscal_v2(0, 1, &raw const one, c, 1)), 1, "no handle");
    assert_eq!(
        call!(cublasGemmEx(
            handle,
            0,
            0,
            1,
            1,
            1,
            &raw const one,
            a,
            6,
            1,
            b,
            6,
            1,
            &raw const zero,
            c,
            6,
            1,
            68,
            0
        )),
        15
    );
}

/// The bytes move into a file when a handle of the memory is asked for, which waits for what writes them.
#[test]
fn nothing_is_lost_while_memory_is_first_shared() {
    const COUNT: usize = 1 << 22;
    let handle = handle();
    let x = device(&vec![1f32; COUNT]);
    let first = std::ptr::with_exposed_provenance::<AtomicU32>(x);
    let (two, mut name) = (2f32, [0u64; 8]);
    std::thread::scope(|scope| {
        let scaled =
            scope.spawn(move || call!(cublasSscal_v2(handle, COUNT, &raw const two, x, 1)));
        // SAFETY: memory of the device is memory of the process, which nothing frees here.
        while unsafe { (*first).load(Ordering::Relaxed) } == 1f32.to_bits() {
            std::thread::yield_now();
        }
        assert_eq!(call!(cuIpcGetMemHandle(name.as_mut_ptr(), x)), 0);
        assert_eq!(scaled.join().unwrap(), 0);
    });
    let lost = host::<f32>(x, COUNT).iter().filter(|value| **value != 2.0).count();
    assert_eq!(lost, 0);
    assert_eq!(call!(cublasDestroy_v2(handle)), 0);
}
