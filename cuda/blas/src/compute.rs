//! What is computed, for each type of element.

use half::{bf16, f16};

use crate::operand::Matrix;

/// A type that vectors and matrices are of, and the one that they are computed in.
pub(crate) trait Element: Copy + 'static {
    type Wide: Real;
    fn widen(self) -> Self::Wide;
    fn narrow(value: Self::Wide) -> Self;
    /// The nearest of this type.
    fn nearest(value: f64) -> Self;
}

/// `f32` and `f64`.
pub(crate) trait Real:
    Element<Wide = Self>
    + std::ops::Add<Output = Self>
    + std::ops::Mul<Output = Self>
    + PartialOrd
    + Default
    + Into<f64>
{
    const ONE: Self;
    fn root(self) -> Self;
    fn magnitude(self) -> Self;
    /// `c = alpha a b + beta c`, where `c` is not read if `beta` is zero.
    fn product(alpha: Self, a: &Matrix<Self>, b: &Matrix<Self>, beta: Self, c: &Matrix<Self>);
}

macro_rules! real {
    ($($T:ty, $gemm:path;)*) => {$(
        impl Element for $T {
            type Wide = Self;
            fn widen(self) -> Self { self }
            fn narrow(value: Self) -> Self { value }
            fn nearest(value: f64) -> Self { value as Self }
        }
        impl Real for $T {
            const ONE: Self = 1.0;
            fn root(self) -> Self { self.sqrt() }
            fn magnitude(self) -> Self { self.abs() }
            fn product(alpha: Self, a: &Matrix<Self>, b: &Matrix<Self>, beta: Self, c: &Matrix<Self>) {
                // SAFETY: each matrix is inside one allocation (`Matrix`), or a vector of this crate's that is as
                // large as it says; the sizes fit, since callers make them of the same m, n and k. That the
                // result is not one of the factors is asked of the program, by BLAS.
                unsafe {
                    $gemm(
                        a.rows, a.columns, b.columns, alpha, a.at, a.row_step, a.column_step, b.at, b.row_step,
                        b.column_step, beta, c.at, c.row_step, c.column_step,
                    );
                }
            }
        }
    )*};
}
real! { f32, matrixmultiply::sgemm; f64, matrixmultiply::dgemm; }

macro_rules! short {
    ($($T:ty)*) => {$(
        impl Element for $T {
            type Wide = f32;
            fn widen(self) -> f32 { self.to_f32() }
            fn narrow(value: f32) -> Self { Self::from_f32(value) }
            fn nearest(value: f64) -> Self { Self::from_f64(value) }
        }
    )*};
}
short! { f16 bf16 }

/// Integers are computed as doubles, which have every sum of theirs.
macro_rules! whole {
    ($($T:ty)*) => {$(
        impl Element for $T {
            type Wide = f64;
            fn widen(self) -> f64 { self.into() }
            fn narrow(value: f64) -> Self { value as Self }
            fn nearest(value: f64) -> Self { value.round_ties_even() as Self }
        }
    )*};
}
whole! { i8 i32 }

/// The elements of a matrix, by rows, in the type that is computed with.
fn widened<T: Element>(matrix: &Matrix<T>) -> Vec<T::Wide> {
    let rows = 0..matrix.rows;
    rows.flat_map(|row| (0..matrix.columns).map(move |column| matrix.get(row, column).widen()))
        .collect()
}

pub(crate) fn by_rows<T>(elements: &mut [T], rows: usize, columns: usize) -> Matrix<T> {
    let at = elements.as_mut_ptr();
    Matrix { at, rows, columns, row_step: columns as isize, column_step: 1 }
}

/// `c = alpha a b + beta c`, computed where the matrices are.
pub(crate) fn multiply<T: Real>(alpha: T, a: &Matrix<T>, b: &Matrix<T>, beta: T, c: &Matrix<T>) {
    if c.rows == 0 || c.columns == 0 {
        return;
    }
    if a.columns == 0 || alpha == T::default() {
        // What is not a number in the factors does not count then.
        for row in 0..c.rows {
            for column in 0..c.columns {
                let old = if beta == T::default() { beta } else { beta * c.get(row, column) };
                c.set(row, column, old);
            }
        }
        return;
    }
    T::product(alpha, a, b, beta, c);
}

/// The same for other types: the factors are widened, and sums rounded once.
pub(crate) fn multiply_wide<A, C>(
    alpha: A::Wide,
    a: &Matrix<A>,
    b: &Matrix<A>,
    beta: A::Wide,
    c: &Matrix<C>,
) where
    A: Element,
    C: Element<Wide = A::Wide>,
{
    let (mut left, mut right) = (widened(a), widened(b));
    let zero = A::Wide::default();
    let mut sums = if beta == zero { vec![zero; c.rows * c.columns] } else { widened(c) };
    let sum = by_rows(&mut sums, c.rows, c.columns);
    let (a, b) = (by_rows(&mut left, a.rows, a.columns), by_rows(&mut right, b.rows, b.columns));
    multiply(alpha, &a, &b, beta, &sum);
    for row in 0..c.rows {
        for column in 0..c.columns {
            c.set(row, column, C::narrow(sum.get(row, column)));
        }
    }
}

/// `y = alpha x + y`
pub(crate) fn axpy<T: Element>(alpha: T::Wide, x: &Matrix<T>, y: &Matrix<T>) {
    for at in 0..x.rows {
        y.set(at, 0, T::narrow(alpha * x.get(at, 0).widen() + y.get(at, 0).widen()));
    }
}

/// The sum of products.
pub(crate) fn dot<T: Element>(x: &Matrix<T>, y: &Matrix<T>) -> T::Wide {
    (0..x.rows)
        .fold(T::Wide::default(), |sum, at| sum + x.get(at, 0).widen() * y.get(at, 0).widen())
}

/// `x = alpha x`
pub(crate) fn scale<T: Element>(alpha: T::Wide, x: &Matrix<T>) {
    (0..x.rows).for_each(|at| x.set(at, 0, T::narrow(alpha * x.get(at, 0).widen())));
}

/// The sum of magnitudes.
pub(crate) fn magnitudes<T: Element>(x: &Matrix<T>) -> T::Wide {
    (0..x.rows).fold(T::Wide::default(), |sum, at| sum + x.get(at, 0).widen().magnitude())
}

/// The number, from one, of the first element of which none has a larger (or smaller) magnitude; 0 if there is none.
pub(crate) fn extreme<T: Element>(x: &Matrix<T>, largest: bool) -> i32 {
    let mut found: Option<(usize, T::Wide)> = None;
    for at in 0..x.rows {
        let value = x.get(at, 0).widen().magnitude();
        let better =
            found.is_none_or(|(_, best)| if largest { value > best } else { value < best });
        if better {
            found = Some((at, value));
        }
    }
    found.map_or(0, |(at, _)| at as i32 + 1)
}
