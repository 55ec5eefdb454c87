//! Factors of batches of matrices, systems that are solved by them, and inverses, of all four types.

#![allow(clippy::unwrap_used)]

#[path = "device/mod.rs"]
#[macro_use]
mod device;

use device::{device, host};

/// A complex number, as which all types are compared.
type Value = (f64, f64);

/// A type of elements.
trait Sample: Copy + Default + PartialEq + std::fmt::Debug {
    const NEAR: f64;
    fn of(value: Value) -> Self;
    fn value(self) -> Value;
}

macro_rules! samples {
    ($($T:ty, $near:expr;)*) => {$(
        impl Sample for $T {
            const NEAR: f64 = $near;
            fn of((re, _): Value) -> Self { re as Self }
            fn value(self) -> Value { (f64::from(self), 0.0) }
        }
        impl Sample for [$T; 2] {
            const NEAR: f64 = $near;
            fn of((re, im): Value) -> Self { [re as $T, im as $T] }
            fn value(self) -> Value { (f64::from(self[0]), f64::from(self[1])) }
        }
    )*};
}
samples! { f32, 1e-4; f64, 1e-12; }

fn times(a: Value, b: Value) -> Value {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

fn near<T: Sample>(a: Value, b: Value) -> bool {
    (a.0 - b.0).abs() < T::NEAR && (a.1 - b.1).abs() < T::NEAR
}

/// Rows and columns, elements from one column to the next, right-hand sides.
const N: usize = 5;
const LEAD: usize = 7;
const SIDES: usize = 2;

/// Numbers from -1 to 1.
fn numbers<T: Sample>(seed: u64, count: usize) -> Vec<T> {
    let mut state = seed;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from((state >> 33) as u32) / f64::from(1 << 30) - 1.0
    };
    (0..count).map(|_| T::of((next(), next()))).collect()
}

/// The product of two matrices, of which each is told by its element at a row and a column.
fn product(
    a: impl Fn(usize, usize) -> Value,
    b: impl Fn(usize, usize) -> Value,
    row: usize,
    column: usize,
) -> Value {
    (0..N)
        .map(|k| times(a(row, k), b(k, column)))
        .fold((0.0, 0.0), |sum, term| (sum.0 + term.0, sum.1 + term.1))
}

/// Lists of three matrices, in memory of the device.
fn list<T>(address: usize, apart: usize) -> usize {
    device(&[0, 1, 2].map(|at| (address + at * apart * size_of::<T>()) as u64))
}

type Call<const ARGUMENTS: usize> = fn([usize; ARGUMENTS]) -> u32;

struct Functions {
    getrf: Call<7>,
    getrs: Call<11>,
    getri: Call<9>,
    matinv: Call<8>,
}

macro_rules! functions {
    ($getrf:ident $getrs:ident $getri:ident $matinv:ident) => {
        Functions {
            getrf: |[a, b, c, d, e, f, g]| call!($getrf(a, b, c, d, e, f, g)),
            getrs: |[a, b, c, d, e, f, g, h, i, j, k]| {
                call!($getrs(a, b, c, d, e, f, g, h, i, j, k))
            },
            getri: |[a, b, c, d, e, f, g, h, i]| call!($getri(a, b, c, d, e, f, g, h, i)),
            matinv: |[a, b, c, d, e, f, g, h]| call!($matinv(a, b, c, d, e, f, g, h)),
        }
    };
}

#[test]
fn batches_are_factored_solved_and_inverted() {
    let mut handle = 0usize;
    assert_eq!(call!(cuInit(0)), 0);
    assert_eq!(call!(cublasCreate_v2(&raw mut handle)), 0);
    let single = functions!(cublasSgetrfBatched cublasSgetrsBatched cublasSgetriBatched cublasSmatinvBatched);
    let double = functions!(cublasDgetrfBatched cublasDgetrsBatched cublasDgetriBatched cublasDmatinvBatched);
    let complex = functions!(cublasCgetrfBatched cublasCgetrsBatched cublasCgetriBatched cublasCmatinvBatched);
    let wide = functions!(cublasZgetrfBatched cublasZgetrsBatched cublasZgetriBatched cublasZmatinvBatched);
    for pivots in [true, false] {
        of_type::<f32>(handle, &single, pivots);
        of_type::<f64>(handle, &double, pivots);
        of_type::<[f32; 2]>(handle, &complex, pivots);
        of_type::<[f64; 2]>(handle, &wide, pivots);
    }
    refuses_what_is_wrong(handle, &double);
}

/// Of three matrices the second has a column of zeros: the element of its diagonal stays zero.
fn of_type<T: Sample>(handle: usize, functions: &Functions, has_pivots: bool) {
    let mut given = numbers::<T>(7, 3 * N * LEAD);
    for at in 0..3 * N {
        // Without pivots the diagonal is what is divided by.
        let diagonal = at / N * N * LEAD + at % N * (LEAD + 1);
        given[diagonal] = T::of((if has_pivots { 0.0 } else { 3.0 }, 0.5));
    }
    given[N * LEAD..][2 * LEAD..3 * LEAD].fill(T::default());
    let element = |matrix: usize, row: usize, column: usize| {
        given[matrix * N * LEAD + column * LEAD + row].value()
    };
    let matrices = device(&given);
    let factors = list::<T>(matrices, N * LEAD);
    let (pivots, info) = (device(&[0i32; 3 * N]), device(&[-1i32; 3]));
    let pivot_list = if has_pivots { pivots } else { 0 };
    assert_eq!((functions.getrf)([handle, N, factors, LEAD, pivot_list, info, 3]), 0);
    assert_eq!(host::<i32>(info, 3), [0, 3, 0]);
    let (found, swaps) = (host::<T>(matrices, 3 * N * LEAD), host::<i32>(pivots, 3 * N));
    for matrix in 0..3 {
        // Where each row of the product comes from.
        let mut rows: Vec<usize> = (0..N).collect();
        for (row, with) in swaps[matrix * N..][..N].iter().enumerate().filter(|_| has_pivots) {
            assert!((row as i32..N as i32).contains(&(with - 1)), "{swaps:?}");
            rows.swap(row, *with as usize - 1);
        }
        let at = |row: usize, column: usize| found[matrix * N * LEAD + column * LEAD + row].value();
        let lower = |row: usize, column: usize| match row.cmp(&column) {
            std::cmp::Ordering::Less => (0.0, 0.0),
            std::cmp::Ordering::Equal => (1.0, 0.0),
            std::cmp::Ordering::Greater => at(row, column),
        };
        let upper =
            |row: usize, column: usize| if row <= column { at(row, column) } else { (0.0, 0.0) };
        for (row, from) in rows.iter().enumerate() {
            for column in 0..N {
                let (wanted, found) =
                    (element(matrix, *from, column), product(lower, upper, row, column));
                assert!(near::<T>(wanted, found), "{matrix}: {wanted:?} {found:?}");
            }
            if has_pivots && matrix != 1 {
                let largest = |value: Value| value.0.abs() + value.1.abs();
                assert!(
                    (0..row).all(|column| largest(at(row, column)) < 1.5),
                    "the largest is divided by"
                );
            }
        }
        // What is between the columns stays.
        let between = N..LEAD;
        assert!(between.clone().all(|row| at(row, 0) == element(matrix, row, 0)), "{between:?}");
    }
    solves::<T>(handle, functions, (factors, pivot_list), &element);
    let inverses = device(&[T::default(); 3 * N * N]);
    let into = list::<T>(inverses, N * N);
    assert_eq!((functions.getri)([handle, N, factors, LEAD, pivot_list, into, N, info, 3]), 0);
    is_inverse::<T>(&element, inverses, info);
    if has_pivots {
        let (inverses, info) = (device(&[T::default(); 3 * N * N]), device(&[-1i32; 3]));
        let (from, into) = (list::<T>(device(&given), N * LEAD), list::<T>(inverses, N * N));
        assert_eq!((functions.matinv)([handle, N, from, LEAD, into, N, info, 3]), 0);
        is_inverse::<T>(&element, inverses, info);
    }
}

fn is_inverse<T: Sample>(
    element: &impl Fn(usize, usize, usize) -> Value,
    inverses: usize,
    info: usize,
) {
    assert_eq!(host::<i32>(info, 3), [0, 3, 0]);
    let inverse = host::<T>(inverses, 3 * N * N);
    for matrix in [0, 2] {
        let at = |row: usize, column: usize| inverse[matrix * N * N + column * N + row].value();
        for (row, column) in (0..N * N).map(|at| (at / N, at % N)) {
            let found = product(|row, column| element(matrix, row, column), at, row, column);
            assert!(near::<T>(found, (f64::from(row == column), 0.0)), "{row} {column}: {found:?}");
        }
    }
}

/// Plain, transposed, and transposed and conjugate.
fn solves<T: Sample>(
    handle: usize,
    functions: &Functions,
    (factors, pivots): (usize, usize),
    element: &impl Fn(usize, usize, usize) -> Value,
) {
    for operation in 0..3 {
        let given = numbers::<T>(9, 3 * SIDES * LEAD);
        let (sides, mut info) = (device(&given), -1i32);
        let into = list::<T>(sides, SIDES * LEAD);
        let arguments = [
            handle,
            operation,
            N,
            SIDES,
            factors,
            LEAD,
            pivots,
            into,
            LEAD,
            (&raw mut info) as usize,
            3,
        ];
        assert_eq!(((functions.getrs)(arguments), info), (0, 0));
        let found = host::<T>(sides, 3 * SIDES * LEAD);
        for matrix in [0, 2] {
            let value = |of: &[T], row: usize, side: usize| {
                of[(matrix * SIDES + side) * LEAD + row].value()
            };
            let left = |row: usize, column: usize| match operation {
                0 => element(matrix, row, column),
                1 => element(matrix, column, row),
                _ => (element(matrix, column, row).0, -element(matrix, column, row).1),
            };
            for (row, side) in (0..N * SIDES).map(|at| (at / SIDES, at % SIDES)) {
                let product = product(left, |row, side| value(&found, row, side), row, side);
                assert!(near::<T>(product, value(&given, row, side)), "{operation}: {product:?}");
            }
            assert_eq!(value(&found, N, 0), value(&given, N, 0), "what is between the columns");
        }
    }
}

fn refuses_what_is_wrong(handle: usize, functions: &Functions) {
    let (one, info) = (device(&[1f64; 4]), device(&[-1i32; 3]));
    let (list, mut on_host) = (device(&[one as u64]), 0i32);
    assert_eq!((functions.getrf)([handle, 3, list, 2, 0, info, 1]), 7, "columns that overlap");
    assert_eq!(
        (functions.getrf)([handle, 3, list, 3, 0, info, 1]),
        13,
        "more than the allocation has"
    );
    assert_eq!((functions.getrf)([handle, 2, list, 2, 0, info, 2]), 13, "more than the list has");
    assert_eq!((functions.getrf)([handle, usize::MAX, list, 2, 0, info, 1]), 7);
    assert_eq!((functions.getrf)([0, 2, list, 2, 0, info, 1]), 1, "no handle");
    assert_eq!((functions.getrf)([handle, 2, list, 2, 0, info, 0]), 0, "nothing to do");
    let place = (&raw mut on_host) as usize;
    for (operation, lead, wrong) in [(5, 2, -1), (0, 1, -5)] {
        assert_eq!(
            (functions.getrs)([handle, operation, 2, 1, list, lead, 0, list, 2, place, 1]),
            7
        );
        // SAFETY: the library wrote to it.
        assert_eq!(unsafe { (place as *const i32).read_volatile() }, wrong);
    }
    for pivot in [0, 3] {
        let pivots = device(&[pivot, 2i32]);
        let arguments = [handle, 0, 2, 1, list, 2, pivots, list, 2, place, 1];
        assert_eq!((functions.getrs)(arguments), 7, "row {pivot} of two");
    }
    assert_eq!(
        (functions.matinv)([handle, 33, list, 33, list, 33, info, 1]),
        7,
        "more than 32 rows"
    );
}
