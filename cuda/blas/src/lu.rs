//! Factors of batches of matrices, `P A = L U`, systems that are solved by them, and inverses.
#![allow(non_snake_case, clippy::too_many_arguments, clippy::missing_safety_doc)]

use std::ffi::c_int;
use std::ops::{Div, Mul, Sub};

use crate::call::{Handle, begin, calls, pointer, put};
use crate::compute::by_rows;
use crate::context::{INVALID_VALUE, Result, print_message};
use crate::operand::{Matrix, count};

/// `cuComplex` and `cuDoubleComplex`.
#[derive(Clone, Copy, Default, PartialEq)]
#[repr(C)]
struct Complex<T> {
    re: T,
    im: T,
}

/// What matrices are of.
trait Number:
    Copy + Default + PartialEq + Mul<Output = Self> + Sub<Output = Self> + Div<Output = Self>
{
    const ONE: Self;
    /// What rows are exchanged by: of a complex number, the sum of both parts' magnitudes.
    fn magnitude(self) -> f64;
    fn conjugate(self) -> Self;
    /// `self - a b`, rounded as seldom as a GPU does.
    fn less(self, a: Self, b: Self) -> Self;
}

macro_rules! numbers {
    ($($T:ty)*) => {$(
        impl Number for $T {
            const ONE: Self = 1.0;
            fn magnitude(self) -> f64 { self.abs().into() }
            fn conjugate(self) -> Self { self }
            fn less(self, a: Self, b: Self) -> Self { (-a).mul_add(b, self) }
        }

        impl Mul for Complex<$T> {
            type Output = Self;
            fn mul(self, b: Self) -> Self {
                Self { re: self.re * b.re - self.im * b.im, im: self.re * b.im + self.im * b.re }
            }
        }

        impl Sub for Complex<$T> {
            type Output = Self;
            fn sub(self, b: Self) -> Self { Self { re: self.re - b.re, im: self.im - b.im } }
        }

        impl Div for Complex<$T> {
            type Output = Self;
            /// By the larger part of the divisor first, so that its square neither overflows nor vanishes.
            fn div(self, b: Self) -> Self {
                let Self { re, im } = self;
                if b.re.abs() >= b.im.abs() {
                    let ratio = b.im / b.re;
                    let by = b.re + b.im * ratio;
                    Self { re: (re + im * ratio) / by, im: (im - re * ratio) / by }
                } else {
                    let ratio = b.re / b.im;
                    let by = b.re * ratio + b.im;
                    Self { re: (re * ratio + im) / by, im: (im * ratio - re) / by }
                }
            }
        }

        impl Number for Complex<$T> {
            const ONE: Self = Self { re: 1.0, im: 0.0 };
            fn magnitude(self) -> f64 { f64::from(self.re.abs()) + f64::from(self.im.abs()) }
            fn conjugate(self) -> Self { Self { im: -self.im, ..self } }
            fn less(self, a: Self, b: Self) -> Self { self - a * b }
        }
    )*};
}
numbers! { f32 f64 }

fn swap_rows<T: Copy>(a: &Matrix<T>, row: usize, other: usize) {
    for column in 0..a.columns {
        let old = a.get(row, column);
        a.set(row, column, a.get(other, column));
        a.set(other, column, old);
    }
}

/// Factors a matrix where it is: what row each was exchanged with, counted from one, is put where that is asked for. The
/// number, from one, of the first element of the diagonal of U that is zero; 0 if none is.
fn factor<T: Number>(a: &Matrix<T>, pivots: Option<&Matrix<c_int>>) -> c_int {
    let mut singular = 0;
    for at in 0..a.rows {
        if let Some(pivots) = pivots {
            let size = |row: usize| a.get(row, at).magnitude();
            let largest = (at + 1..a.rows)
                .fold(at, |best, row| if size(row) > size(best) { row } else { best });
            pivots.set(at, 0, largest as c_int + 1);
            swap_rows(a, at, largest);
        }
        let diagonal = a.get(at, at);
        if diagonal == T::default() {
            singular = if singular == 0 { at as c_int + 1 } else { singular };
            continue;
        }
        for row in at + 1..a.rows {
            let by = a.get(row, at) / diagonal;
            a.set(row, at, by);
            for column in at + 1..a.columns {
                a.set(row, column, a.get(row, column).less(by, a.get(at, column)));
            }
        }
    }
    singular
}

/// Which half of a matrix counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    Lower,
    Upper,
}

/// Solves a system of a triangle, whose diagonal may be all ones, for every column of `b`.
fn solve_half<T: Number>(a: impl Fn(usize, usize) -> T, half: Half, ones: bool, b: &Matrix<T>) {
    let rows = b.rows;
    for column in 0..b.columns {
        for step in 0..rows {
            let (row, known) = match half {
                Half::Lower => (step, 0..step),
                Half::Upper => (rows - 1 - step, rows - step..rows),
            };
            let rest =
                known.fold(b.get(row, column), |rest, at| rest.less(a(row, at), b.get(at, column)));
            b.set(row, column, if ones { rest } else { rest / a(row, row) });
        }
    }
}

/// `cublasOperation_t`: how a matrix is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Plain,
    Transposed,
    Conjugate,
}

/// Solves a system of a matrix that was factored, for every column of `b`.
fn solve<T: Number>(
    factors: &Matrix<T>,
    operation: Operation,
    pivots: Option<&Matrix<c_int>>,
    b: &Matrix<T>,
) -> Result {
    let swap = |row: usize| match pivots {
        // They are the program's, which may have written any number.
        Some(pivots) => match usize::try_from(pivots.get(row, 0)) {
            Ok(with @ 1..) if with <= b.rows => {
                swap_rows(b, row, with - 1);
                Ok(())
            }
            _ => {
                print_message(&format!(
                    "cuBLAS: pivot {} of a matrix of {} rows",
                    pivots.get(row, 0),
                    b.rows
                ));
                Err(INVALID_VALUE)
            }
        },
        None => Ok(()),
    };
    if operation == Operation::Plain {
        (0..b.rows).try_for_each(swap)?;
        solve_half(|row, column| factors.get(row, column), Half::Lower, true, b);
        solve_half(|row, column| factors.get(row, column), Half::Upper, false, b);
        return Ok(());
    }
    let across = |row: usize, column: usize| {
        let element = factors.get(column, row);
        if operation == Operation::Conjugate { element.conjugate() } else { element }
    };
    solve_half(across, Half::Lower, false, b);
    solve_half(across, Half::Upper, true, b);
    (0..b.rows).rev().try_for_each(swap)
}

/// Inverts a matrix that was factored into another one; the number of what is zero on the diagonal, as [`factor`] gives.
fn invert<T: Number>(
    factors: &Matrix<T>,
    pivots: Option<&Matrix<c_int>>,
    into: &Matrix<T>,
) -> Result<c_int> {
    if let Some(zero) = (0..factors.rows).find(|at| factors.get(*at, *at) == T::default()) {
        return Ok(zero as c_int + 1);
    }
    for (row, column) in
        (0..into.rows).flat_map(|row| (0..into.columns).map(move |column| (row, column)))
    {
        into.set(row, column, if row == column { T::ONE } else { T::default() });
    }
    solve(factors, Operation::Plain, pivots, into)?;
    Ok(0)
}

/// Where matrices of a batch are, and their leading dimension.
type List<T> = (*const *const T, c_int);

/// A batch of square matrices, and what each of them has in memory of the device.
struct Batch {
    rows: usize,
    count: usize,
    pivots: *const c_int,
}

impl Batch {
    fn new(rows: c_int, batch: c_int, pivots: *const c_int) -> Result<Self> {
        Ok(Self { rows: count(rows.into())?, count: count(batch.into())?, pivots })
    }

    /// One matrix of a list, with as many columns as it is asked for.
    fn matrix<T>(
        &self,
        name: &str,
        (list, lead): List<T>,
        at: usize,
        columns: usize,
    ) -> Result<Matrix<T>> {
        Matrix::new(name, pointer(name, list, at)?, [self.rows, columns], lead.into(), false)
    }

    /// Its pivots, where there are any.
    fn pivots(&self, at: usize) -> Result<Option<Matrix<c_int>>> {
        if self.pivots.is_null() {
            return Ok(None);
        }
        let first = self.pivots.wrapping_add(at * self.rows);
        Matrix::vector("the pivots", first, self.rows, 1).map(Some)
    }

    /// Does something with each matrix, and puts the number that comes of it beside.
    fn each(&self, info: *mut c_int, work: impl Fn(usize) -> Result<c_int>) -> Result {
        let info = Matrix::vector("info", info.cast_const(), self.count, 1)?;
        (0..self.count).try_for_each(|at| {
            info.set(at, 0, work(at)?);
            Ok(())
        })
    }
}

fn factor_all<T: Number>(batch: &Batch, a: List<T>, info: *mut c_int) -> Result {
    batch.each(info, |at| {
        let a = batch.matrix("matrix a", a, at, batch.rows)?;
        Ok(factor(&a, batch.pivots(at)?.as_ref()))
    })
}

fn invert_all<T: Number>(batch: &Batch, a: List<T>, into: List<T>, info: *mut c_int) -> Result {
    batch.each(info, |at| {
        let a = batch.matrix("matrix a", a, at, batch.rows)?;
        let into = batch.matrix("matrix c", into, at, batch.rows)?;
        invert(&a, batch.pivots(at)?.as_ref(), &into)
    })
}

/// Most rows of what is inverted at once.
const MOST_ROWS: usize = 32;

/// Inverts matrices that stay as they are.
fn invert_at_once<T: Number>(batch: &Batch, a: List<T>, into: List<T>, info: *mut c_int) -> Result {
    let rows = batch.rows;
    if rows > MOST_ROWS {
        return Err(INVALID_VALUE);
    }
    batch.each(info, |at| {
        let a = batch.matrix("matrix a", a, at, rows)?;
        let into = batch.matrix("matrix ainv", into, at, rows)?;
        let mut copy: Vec<T> = (0..rows * rows).map(|at| a.get(at / rows, at % rows)).collect();
        let mut pivots = [0; MOST_ROWS];
        let (copy, pivots) = (by_rows(&mut copy, rows, rows), by_rows(&mut pivots, rows, 1));
        match factor(&copy, Some(&pivots)) {
            0 => invert(&copy, Some(&pivots), &into),
            singular => Ok(singular),
        }
    })
}

/// What a system is solved with: the first parameter of LAPACK's function that is wrong, if one is.
fn operation(
    trans: c_int,
    [n, sides, la, lb, batch]: [c_int; 5],
) -> std::result::Result<Operation, c_int> {
    let operation = match trans {
        0 => Operation::Plain,
        1 => Operation::Transposed,
        2 => Operation::Conjugate,
        _ => return Err(-1),
    };
    let least = n.max(1);
    let wrong = [(2, n < 0), (3, sides < 0), (5, la < least), (8, lb < least), (10, batch < 0)];
    match wrong.iter().find(|(_, is_wrong)| *is_wrong) {
        Some((number, _)) => Err(-number),
        None => Ok(operation),
    }
}

macro_rules! factorisations {
    ($($T:ty: $getrf:ident $getrs:ident $getri:ident $matinv:ident;)*) => {$(calls! {
        $getrf(
            handle: Handle, n: c_int, a: *const *const $T, la: c_int, pivots: *const c_int, info: *mut c_int,
            batch: c_int
        ) {
            begin(handle)?;
            factor_all(&Batch::new(n, batch, pivots)?, (a, la), info)
        }
        $getrs(
            handle: Handle, trans: c_int, n: c_int, sides: c_int, a: *const *const $T, la: c_int,
            pivots: *const c_int, b: *const *const $T, lb: c_int, info: *mut c_int, batch: c_int
        ) {
            begin(handle)?;
            let operation = operation(trans, [n, sides, la, lb, batch]);
            put(info, operation.err().unwrap_or(0))?;
            let operation = operation.map_err(|_| INVALID_VALUE)?;
            let (batch, sides) = (Batch::new(n, batch, pivots)?, count(sides.into())?);
            (0..batch.count).try_for_each(|at| {
                let a = batch.matrix("matrix a", (a, la), at, batch.rows)?;
                let b = batch.matrix("matrix b", (b, lb), at, sides)?;
                solve(&a, operation, batch.pivots(at)?.as_ref(), &b)
            })
        }
        $getri(
            handle: Handle, n: c_int, a: *const *const $T, la: c_int, pivots: *const c_int, c: *const *const $T,
            lc: c_int, info: *mut c_int, batch: c_int
        ) {
            begin(handle)?;
            invert_all(&Batch::new(n, batch, pivots)?, (a, la), (c, lc), info)
        }
        $matinv(
            handle: Handle, n: c_int, a: *const *const $T, la: c_int, c: *const *const $T, lc: c_int,
            info: *mut c_int, batch: c_int
        ) {
            begin(handle)?;
            invert_at_once(&Batch::new(n, batch, std::ptr::null())?, (a, la), (c, lc), info)
        }
    })*};
}

factorisations! {
    f32: cublasSgetrfBatched cublasSgetrsBatched cublasSgetriBatched cublasSmatinvBatched;
    f64: cublasDgetrfBatched cublasDgetrsBatched cublasDgetriBatched cublasDmatinvBatched;
    Complex<f32>: cublasCgetrfBatched cublasCgetrsBatched cublasCgetriBatched cublasCmatinvBatched;
    Complex<f64>: cublasZgetrfBatched cublasZgetrsBatched cublasZgetriBatched cublasZmatinvBatched;
}
