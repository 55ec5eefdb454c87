//! cuBLASLt as programs see it, on memory of the emulator's libcuda, against sums computed here.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../cublas/tests/device/mod.rs"]
#[macro_use]
mod device;

use std::ffi::c_void;

use device::{device, host};
use half::f16;

const M: usize = 5;
const N: usize = 4;
const K: usize = 3;
const SINGLE: usize = 0;
const HALF: usize = 2;
const COMPUTE_SINGLE: usize = 68;
/// Attributes of a description.
const POINTER_MODE: usize = 2;
const TRANSPOSED_A: usize = 3;
const TRANSPOSED_B: usize = 4;
const EPILOGUE: usize = 7;
const BIAS: usize = 8;
const AUX: usize = 11;
const AUX_LEAD: usize = 12;
const BIAS_TYPE: usize = 26;
/// Attributes of a layout.
const ORDER: usize = 1;
const LEAD: usize = 4;
const BATCH: usize = 5;
const STRIDE: usize = 6;

/// An object of the library's, by whose functions it is made and changed.
macro_rules! object {
    ($Name:ident, $create:ident($($arg:ident),*), $set:ident, $get:ident, $destroy:ident) => {
        struct $Name(usize);
        impl $Name {
            fn new($($arg: usize),*) -> Self {
                let mut object = 0usize;
                assert_eq!(call!($create(&raw mut object, $($arg),*)), 0);
                Self(object)
            }
            fn with<T>(self, attribute: usize, value: T) -> Self {
                assert_eq!(call!($set(self.0, attribute, &raw const value, size_of::<T>())), 0, "{attribute}");
                self
            }
            fn get<T: Default>(&self, attribute: usize) -> T {
                let (mut value, mut written) = (T::default(), 0usize);
                let status =
                    call!($get(self.0, attribute, &raw mut value, size_of::<T>(), &raw mut written));
                assert_eq!((status, written), (0, size_of::<T>()), "{attribute}");
                value
            }
        }
        impl Drop for $Name {
            fn drop(&mut self) {
                assert_eq!(call!($destroy(self.0)), 0);
            }
        }
    };
}
object! { Layout, cublasLtMatrixLayoutCreate(kind, rows, columns, lead), cublasLtMatrixLayoutSetAttribute,
cublasLtMatrixLayoutGetAttribute, cublasLtMatrixLayoutDestroy }
object! { Description, cublasLtMatmulDescCreate(compute, scale), cublasLtMatmulDescSetAttribute,
cublasLtMatmulDescGetAttribute, cublasLtMatmulDescDestroy }
object! { Preference, cublasLtMatmulPreferenceCreate(), cublasLtMatmulPreferenceSetAttribute,
cublasLtMatmulPreferenceGetAttribute, cublasLtMatmulPreferenceDestroy }

fn handle() -> usize {
    let mut handle = 0usize;
    // The driver's library first: the other finds its functions by name.
    assert_eq!(call!(cuInit(0)), 0);
    assert_eq!(call!(cublasLtCreate(&raw mut handle)), 0);
    handle
}

fn description() -> Description {
    Description::new(COMPUTE_SINGLE, SINGLE)
}

/// Small integers, so that sums are exact.
fn numbers(count: usize, by: usize) -> Vec<f32> {
    (0..count).map(|at| (at * by % 7) as f32 - 3.0).collect()
}

/// `2 a b + 3 c`, by columns.
fn expected(a: &[f32], b: &[f32], c: &[f32]) -> Vec<f32> {
    let sum = |i: usize, j: usize| (0..K).map(|k| a[i + k * M] * b[k + j * K]).sum::<f32>();
    (0..M * N).map(|at| 2.0 * sum(at % M, at / M) + 3.0 * c[at]).collect()
}

fn transposed(values: &[f32], rows: usize) -> Vec<f32> {
    let columns = values.len() / rows;
    (0..values.len()).map(|at| values[at / columns + at % columns * rows]).collect()
}

/// Two times a product and three times what was there; the status.
fn multiply(description: &Description, layouts: [&Layout; 4], [a, b, c, d]: [usize; 4]) -> u32 {
    let (two, three) = (2f32, 3f32);
    let factors = [&raw const two as usize, &raw const three as usize];
    multiply_by(description, factors, layouts, [a, b, c, d])
}

fn multiply_by(
    description: &Description,
    [alpha, beta]: [usize; 2],
    [la, lb, lc, ld]: [&Layout; 4],
    [a, b, c, d]: [usize; 4],
) -> u32 {
    call!(cublasLtMatmul(
        handle(),
        description.0,
        alpha,
        a,
        la.0,
        b,
        lb.0,
        beta,
        c,
        lc.0,
        d,
        ld.0,
        0,
        0,
        0,
        0
    ))
}

fn layouts() -> [Layout; 3] {
    [Layout::new(SINGLE, M, K, M), Layout::new(SINGLE, K, N, K), Layout::new(SINGLE, M, N, M)]
}

/// What an epilogue makes of `2 a b + 3 c`.
fn finished(description: &Description) -> Vec<f32> {
    let (a, b, c) = (numbers(M * K, 5), numbers(K * N, 3), numbers(M * N, 4));
    let [x, y, z, d] = [device(&a), device(&b), device(&c), device(&[0f32; M * N])];
    let [la, lb, lc] = layouts();
    assert_eq!(multiply(description, [&la, &lb, &lc, &lc], [x, y, z, d]), 0);
    assert_eq!(host::<f32>(z, M * N), c, "c is only read");
    host(d, M * N)
}

fn plain() -> Vec<f32> {
    expected(&numbers(M * K, 5), &numbers(K * N, 3), &numbers(M * N, 4))
}

#[test]
fn matrices_lie_as_their_layouts_say() {
    let (a, b, c) = (numbers(M * K, 5), numbers(K * N, 3), numbers(M * N, 4));
    let wanted = expected(&a, &b, &c);
    let [la, lb, lc] = layouts();
    // Transposed by the description.
    let (x, y, d) = (device(&transposed(&a, M)), device(&transposed(&b, K)), device(&c));
    let both = description().with(TRANSPOSED_A, 1i32).with(TRANSPOSED_B, 1i32);
    let (ta, tb) = (Layout::new(SINGLE, K, M, K), Layout::new(SINGLE, N, K, N));
    assert_eq!(multiply(&both, [&ta, &tb, &lc, &lc], [x, y, d, d]), 0);
    assert_eq!(host::<f32>(d, M * N), wanted);
    // By rows, c and d among them, of which d has room behind each.
    let by_rows = |layout: Layout, lead: i64| layout.with(ORDER, 1i32).with(LEAD, lead);
    let (ra, rb) = (by_rows(la, K as i64), by_rows(lb, N as i64));
    let rc = by_rows(Layout::new(SINGLE, M, N, M), N as i64);
    let rd = by_rows(Layout::new(SINGLE, M, N, M), N as i64 + 2);
    let (z, d) = (device(&transposed(&c, M)), device(&[9f32; M * (N + 2)]));
    assert_eq!(multiply(&description(), [&ra, &rb, &rc, &rd], [x, y, z, d]), 0);
    let rows: Vec<f32> = host(d, M * (N + 2));
    for (row, found) in rows.chunks(N + 2).enumerate() {
        let wanted: Vec<f32> = (0..N).map(|column| wanted[row + column * M]).collect();
        assert_eq!((&found[..N], &found[N..]), (&wanted[..], &[9f32; 2][..]), "row {row}");
    }
}

#[test]
fn batches_and_other_types_are_multiplied() {
    let halves = |values: Vec<f32>| values.into_iter().map(f16::from_f32).collect::<Vec<_>>();
    let (a, b, c) = (numbers(2 * M * K, 5), numbers(2 * K * N, 3), numbers(2 * M * N, 4));
    let wanted = [
        expected(&a[..M * K], &b[..K * N], &c[..M * N]),
        expected(&a[M * K..], &b[K * N..], &c[M * N..]),
    ];
    let batch =
        |layout: Layout, stride: usize| layout.with(BATCH, 2i32).with(STRIDE, stride as i64);
    let la = batch(Layout::new(HALF, M, K, M), M * K);
    let lb = batch(Layout::new(HALF, K, N, K), K * N);
    let lc = batch(Layout::new(SINGLE, M, N, M), M * N);
    let (x, y, z) = (device(&halves(a)), device(&halves(b)), device(&c));
    assert_eq!(multiply(&description(), [&la, &lb, &lc, &lc], [x, y, z, z]), 0);
    assert_eq!(host::<f32>(z, 2 * M * N), wanted.concat());
}

#[test]
fn each_row_can_have_a_factor() {
    let (a, b) = (numbers(M * K, 5), numbers(K * N, 3));
    let [la, lb, lc] = layouts();
    let (x, y, d) = (device(&a), device(&b), device(&[f32::NAN; M * N]));
    let factors = device(&[1f32, 2.0, 3.0, 4.0, 5.0]);
    // A vector on the device, and nothing of what was there.
    let rows = description().with(POINTER_MODE, 3i32);
    assert_eq!(multiply_by(&rows, [factors, 0], [&la, &lb, &lc, &lc], [x, y, d, d]), 0);
    let product = expected(&a, &b, &[0.0; M * N]);
    let wanted: Vec<f32> =
        product.iter().enumerate().map(|(at, v)| v / 2.0 * (at % M + 1) as f32).collect();
    assert_eq!(host::<f32>(d, M * N), wanted);
    // Vectors of both; and a vector and one value.
    let c = numbers(M * N, 4);
    let plus = |beta: &dyn Fn(usize) -> f32| {
        let each = wanted.iter().zip(&c).enumerate();
        each.map(|(at, (sum, old))| sum + beta(at % M) * old).collect::<Vec<f32>>()
    };
    let (both, z) = (description().with(POINTER_MODE, 2i32), device(&c));
    assert_eq!(multiply_by(&both, [factors, factors], [&la, &lb, &lc, &lc], [x, y, z, d]), 0);
    assert_eq!(host::<f32>(d, M * N), plus(&|row| (row + 1) as f32));
    let (one, three) = (description().with(POINTER_MODE, 4i32), 3f32);
    let beta = &raw const three as usize;
    assert_eq!(multiply_by(&one, [factors, beta], [&la, &lb, &lc, &lc], [x, y, z, d]), 0);
    assert_eq!(host::<f32>(d, M * N), plus(&|_| 3.0));
}

/// Small integers, which every type holds.
#[test]
fn every_type_is_multiplied() {
    const BRAIN: usize = 14;
    let (a, b) = (numbers(M * K, 5), numbers(K * N, 3));
    let wanted: Vec<f64> =
        expected(&a, &b, &[0.0; M * N]).iter().map(|sum| f64::from(*sum) / 2.0).collect();
    let product = |[kind, out]: [usize; 2],
                   [compute, scale]: [usize; 2],
                   one: usize,
                   zero: usize,
                   at: [usize; 3]| {
        let layouts =
            [Layout::new(kind, M, K, M), Layout::new(kind, K, N, K), Layout::new(out, M, N, M)];
        let [la, lb, ld] = [&layouts[0], &layouts[1], &layouts[2]];
        let [x, y, d] = at;
        multiply_by(&Description::new(compute, scale), [one, zero], [la, lb, ld, ld], [x, y, d, d])
    };
    macro_rules! check {
        ($From:ty, $To:ty, $kinds:expr, $types:expr, $from:expr, $one:expr, $zero:expr) => {
            let cast = |values: &[f32]| values.iter().map($from).collect::<Vec<$From>>();
            let at = [device(&cast(&a)), device(&cast(&b)), device(&[<$To>::default(); M * N])];
            let (one, zero) = ($one, $zero);
            let status =
                product($kinds, $types, &raw const one as usize, &raw const zero as usize, at);
            let found: Vec<f64> =
                host::<$To>(at[2], M * N).into_iter().map(|v| f64::from(v)).collect();
            assert_eq!((status, found), (0, wanted.clone()), "{:?}", $kinds);
        };
    }
    check!(f64, f64, [1, 1], [70, 1], |v: &f32| f64::from(*v), 1f64, 0f64);
    check!(
        half::bf16,
        half::bf16,
        [BRAIN, BRAIN],
        [68, 0],
        |v| half::bf16::from_f32(*v),
        1f32,
        0f32
    );
    check!(f16, f16, [HALF, HALF], [64, HALF], |v| f16::from_f32(*v), f16::ONE, f16::ZERO);
    check!(i8, i32, [3, 10], [72, 10], |v| *v as i8, 1i32, 0i32);
    // Bytes are rounded and stay in their range.
    let at = [device(&[100i8; M * K]), device(&[1i8; K * N]), device(&[0i8; M * N])];
    let (one, zero) = (0.5f32, 0f32);
    let status = product([3, 3], [72, 0], &raw const one as usize, &raw const zero as usize, at);
    assert_eq!((status, host::<i8>(at[2], M * N)), (0, vec![127; M * N]));
}

#[test]
fn epilogues_add_a_bias_and_cut() {
    let bias = [1f32, 2.0, 3.0, 4.0, 5.0];
    let at = device(&bias);
    let with_bias: Vec<f32> = plain().iter().enumerate().map(|(i, v)| v + bias[i % M]).collect();
    assert_eq!(finished(&description().with(EPILOGUE, 4u32).with(BIAS, at)), with_bias);
    let cut: Vec<f32> = with_bias.iter().map(|v| v.max(0.0)).collect();
    assert_eq!(finished(&description().with(EPILOGUE, 6u32).with(BIAS, at)), cut);
    let halves = device(&bias.map(f16::from_f32));
    let other = description().with(EPILOGUE, 4u32).with(BIAS, halves).with(BIAS_TYPE, HALF as i32);
    assert_eq!(finished(&other), with_bias, "a bias of halves");

    // What was positive is remembered, a bit each, and used for the gradient.
    let mask = device(&[0xffu8; 16 * N]);
    let relu = description().with(EPILOGUE, 130u32).with(AUX, mask).with(AUX_LEAD, 128i64);
    let cut: Vec<f32> = plain().iter().map(|v| v.max(0.0)).collect();
    assert_eq!(finished(&relu), cut);
    let bits = host::<u8>(mask, 16 * N);
    for (column, byte) in bits.chunks(16).map(|column| column[0] & 0x1f).enumerate() {
        let wanted = (0..M).map(|row| u8::from(plain()[row + column * M] > 0.0) << row).sum::<u8>();
        assert_eq!(byte, wanted, "column {column}");
    }
    let sums = device(&[0f32; M]);
    let gradient = description()
        .with(EPILOGUE, 0x98u32)
        .with(AUX, mask)
        .with(AUX_LEAD, 128i64)
        .with(BIAS, sums);
    assert_eq!(finished(&gradient), cut, "the same values were positive");
    let wanted: Vec<f32> =
        (0..M).map(|row| (0..N).map(|column| cut[row + column * M]).sum()).collect();
    assert_eq!(host::<f32>(sums, M), wanted);
}

#[test]
fn epilogues_of_gelu_agree_with_its_definition() {
    let close = |found: &[f32], wanted: &[f64]| {
        for (found, wanted) in found.iter().zip(wanted) {
            assert!((f64::from(*found) - wanted).abs() < 1e-5, "{found} {wanted}");
        }
        assert_eq!(found.len(), wanted.len());
    };
    let gelu = |x: f64| {
        x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
    };
    let inputs: Vec<f64> = plain().into_iter().map(f64::from).collect();
    let wanted: Vec<f64> = inputs.iter().map(|x| gelu(*x)).collect();
    close(&finished(&description().with(EPILOGUE, 32u32)), &wanted);
    // The inputs are kept, in columns that are apart.
    let aux = device(&[0f32; (M + 3) * N]);
    let kept = description().with(EPILOGUE, 160u32).with(AUX, aux).with(AUX_LEAD, M as i64 + 3);
    close(&finished(&kept), &wanted);
    let found = host::<f32>(aux, (M + 3) * N);
    for (column, wanted) in plain().chunks(M).enumerate() {
        assert_eq!(&found[column * (M + 3)..][..M], wanted);
    }
    // Its derivative, against a difference.
    let x = numbers(M * N, 4).iter().map(|v| v / 2.0).collect::<Vec<_>>();
    let aux = device(&x);
    let gradient = description().with(EPILOGUE, 192u32).with(AUX, aux).with(AUX_LEAD, M as i64);
    let slope = |x: f64| (gelu(x + 1e-4) - gelu(x - 1e-4)) / 2e-4;
    let wanted: Vec<f64> = inputs.iter().zip(&x).map(|(v, x)| v * slope(f64::from(*x))).collect();
    close(&finished(&gradient), &wanted);
}

#[test]
fn gradients_of_a_bias_are_sums_of_the_factors() {
    let (a, b) = (numbers(M * K, 5), numbers(K * N, 3));
    let (rows, columns) = (device(&[0f32; M]), device(&[0f32; N]));
    assert_eq!(finished(&description().with(EPILOGUE, 256u32).with(BIAS, rows)), plain());
    let wanted: Vec<f32> = (0..M).map(|row| (0..K).map(|k| a[row + k * M]).sum()).collect();
    assert_eq!(host::<f32>(rows, M), wanted);
    assert_eq!(finished(&description().with(EPILOGUE, 512u32).with(BIAS, columns)), plain());
    let wanted: Vec<f32> = b.chunks(K).map(|column| column.iter().sum()).collect();
    assert_eq!(host::<f32>(columns, N), wanted);
}

#[test]
fn objects_are_asked_and_kept_by_the_program() {
    handle();
    let layout = Layout::new(HALF, 7, 8, 9).with(BATCH, 3i32);
    assert_eq!((layout.get::<u32>(0), layout.get::<u64>(2), layout.get::<u64>(3)), (2, 7, 8));
    assert_eq!((layout.get::<i64>(LEAD), layout.get::<i32>(BATCH)), (9, 3));
    let description = description().with(EPILOGUE, 4u32).with(BIAS, 0x1234usize);
    assert_eq!((description.get::<u32>(EPILOGUE), description.get::<usize>(BIAS)), (4, 0x1234));
    let preference = Preference::new().with(1, 1usize << 20).with(8, 16u32);
    assert_eq!((preference.get::<u64>(1), preference.get::<u32>(8)), (1 << 20, 16));
    let mut needed = 0usize;
    let ask = call!(cublasLtMatmulDescGetAttribute(description.0, BIAS, 0, 0, &raw mut needed));
    assert_eq!((ask, needed), (0, 8));
    // As large as the headers have them.
    let (mut own, mut other) = ([0u64; 23], [0u64; 8]);
    assert_eq!(
        call!(cublasLtMatmulDescInit_internal(&raw mut own, 184, COMPUTE_SINGLE, SINGLE)),
        0
    );
    assert_eq!(call!(cublasLtMatrixLayoutInit_internal(&raw mut other, 64, HALF, 7, 8, 9)), 0);
    let mut kind = 0u32;
    let status = call!(cublasLtMatrixLayoutGetAttribute(&raw mut other, 0, &raw mut kind, 4, 0));
    assert_eq!((status, kind), (0, 2));
    // Too small; of another size; unknown.
    assert_eq!(call!(cublasLtMatmulDescInit_internal(&raw mut own, 8, COMPUTE_SINGLE, SINGLE)), 7);
    let wrong = 1u64;
    assert_eq!(call!(cublasLtMatrixLayoutSetAttribute(layout.0, 0, &raw const wrong, 8)), 7);
    assert_eq!(call!(cublasLtMatmulDescSetAttribute(description.0, 99, &raw const wrong, 8)), 15);
}

/// `cublasLtMatmulHeuristicResult_t`
#[repr(C)]
#[derive(Clone, Copy)]
struct Choice {
    algorithm: [u64; 8],
    workspace: usize,
    state: u32,
    waves: f32,
    reserved: [u32; 4],
}

fn ways(description: &Description, [a, b, d]: [&Layout; 3]) -> (u32, i32, Choice) {
    let mut choices =
        [Choice { algorithm: [1; 8], workspace: 1, state: 1, waves: 0.0, reserved: [0; 4] }; 3];
    let (mut found, preference) = (7i32, Preference::new());
    let status = call!(cublasLtMatmulAlgoGetHeuristic(
        handle(),
        description.0,
        a.0,
        b.0,
        d.0,
        d.0,
        preference.0,
        3,
        choices.as_mut_ptr().cast::<c_void>(),
        &raw mut found
    ));
    (status, found, choices[0])
}

#[test]
fn what_cannot_be_computed_has_no_way() {
    let [a, b, d] = layouts();
    let (status, found, choice) = ways(&description(), [&a, &b, &d]);
    assert_eq!((status, found, choice.workspace, choice.state), (0, 1, 0, 0));
    // Matrices that do not fit, a type of eight bits, a name that is none.
    let (status, found, _) = ways(&description(), [&b, &a, &d]);
    assert_eq!((status, found), (7, 0));
    let eight = Layout::new(28, M, K, M);
    let (status, found, _) = ways(&description(), [&eight, &b, &d]);
    assert_eq!((status, found), (15, 0));
    for none in [4096u32, 8, 34, 64] {
        let (status, found, _) = ways(&description().with(EPILOGUE, none), [&a, &b, &d]);
        assert_eq!((status, found), (15, 0), "epilogue {none}");
    }
}

#[test]
fn what_leaves_an_allocation_is_refused() {
    let [la, lb, lc] = layouts();
    let [x, y, d] = [device(&[1f32; M * K]), device(&[1f32; K * N]), device(&[0f32; M * N - 1])];
    assert_eq!(multiply(&description(), [&la, &lb, &lc, &lc], [x, y, d, d]), 13);
    // Nothing of very many rows.
    let (none, wide) = (Layout::new(SINGLE, 1 << 61, 0, 1 << 61), Layout::new(SINGLE, 0, 0, 1));
    assert_eq!(multiply(&description(), [&none, &wide, &none, &none], [x, y, d, d]), 0);
    // Far more than there is, before it is asked for.
    let (many, long) =
        (Layout::new(SINGLE, 1 << 30, 1, 1 << 30), Layout::new(SINGLE, 1, 1 << 30, 1));
    let square = Layout::new(SINGLE, 1 << 30, 1 << 30, 1 << 30);
    assert_eq!(multiply(&description(), [&many, &long, &square, &square], [x, y, d, d]), 13);
    let d = device(&[0f32; M * N]);
    let bias = description().with(EPILOGUE, 4u32).with(BIAS, device(&[0f32; M - 1]));
    assert_eq!(multiply(&bias, [&la, &lb, &lc, &lc], [x, y, d, d]), 13);
    assert_eq!(multiply(&description(), [&la, &lb, &lc, &lc], [x, y, d, d]), 0);
    let one = 1f32;
    let zero = &raw const one as usize;
    assert_eq!(
        call!(cublasLtMatmul(0, 0, zero, x, la.0, y, lb.0, zero, d, lc.0, d, lc.0, 0, 0, 0, 0)),
        1,
        "no handle"
    );
}
