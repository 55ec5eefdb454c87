//! The functions, by the names that libcublas exports.
#![allow(non_snake_case, clippy::too_many_arguments, clippy::missing_safety_doc)]

use std::ffi::{c_char, c_int, c_longlong, c_void};

use half::{bf16, f16};

use crate::call::{
    BRAIN, BYTE, DOUBLE, HALF, Handle, SINGLE, Scalar, VERSION, WORD, begin, bytes_of, calls,
    can_do, pointer, put, read, step, transposed, unsupported,
};
use crate::compute::{
    Element, Real, axpy, dot, extreme, magnitudes, multiply, multiply_wide, scale,
};
use crate::context::{INVALID_VALUE, Result, Status, create, destroy, with};
use crate::operand::{Matrix, check, count};

/// What each product of matrices is given.
#[derive(Clone, Copy)]
struct Product {
    transposed: [bool; 2],
    /// Rows, columns, depth.
    size: [usize; 3],
    /// Elements from a column to the next, of a, b and c.
    leads: [i64; 3],
}

impl Product {
    fn new(a: c_int, b: c_int, [m, n, k]: [c_int; 3], [la, lb, lc]: [c_int; 3]) -> Result<Self> {
        Ok(Self {
            transposed: [transposed(a)?, transposed(b)?],
            size: [count(m.into())?, count(n.into())?, count(k.into())?],
            leads: [la.into(), lb.into(), lc.into()],
        })
    }

    fn matrices<A, C>(
        &self,
        a: *const A,
        b: *const A,
        c: *mut C,
    ) -> Result<(Matrix<A>, Matrix<A>, Matrix<C>)> {
        let [m, n, k] = self.size;
        let [la, lb, lc] = self.leads;
        let [ta, tb] = self.transposed;
        Ok((
            Matrix::new("matrix a", a, [m, k], la, ta)?,
            Matrix::new("matrix b", b, [k, n], lb, tb)?,
            Matrix::new("matrix c", c.cast_const(), [m, n], lc, false)?,
        ))
    }

    fn real<T: Real>(&self, alpha: T, a: *const T, b: *const T, beta: T, c: *mut T) -> Result {
        let (a, b, c) = self.matrices(a, b, c)?;
        multiply(alpha, &a, &b, beta, &c);
        Ok(())
    }

    fn wide<A: Element, C: Element<Wide = A::Wide>>(
        &self,
        alpha: A::Wide,
        a: *const A,
        b: *const A,
        beta: A::Wide,
        c: *mut C,
    ) -> Result {
        let (a, b, c) = self.matrices(a, b, c)?;
        multiply_wide(alpha, &a, &b, beta, &c);
        Ok(())
    }

    /// A product of types that numbers name, `cudaDataType`.
    fn typed(
        &self,
        (alpha, beta): (*const c_void, *const c_void),
        (a, b): ((*const c_void, c_int), (*const c_void, c_int)),
        (c, to): (*mut c_void, c_int),
        scalar: Scalar,
    ) -> Result {
        let ((a, from), (b, other)) = (a, b);
        if from != other {
            return unsupported(&format!("a product of types {from} and {other}"));
        }
        let (x, y) = (scalar.read(alpha)?, scalar.read(beta)?);
        let (single, other_single) = (x as f32, y as f32);
        match (from, to) {
            (SINGLE, SINGLE) => {
                self.real::<f32>(single, a.cast(), b.cast(), other_single, c.cast())
            }
            (DOUBLE, DOUBLE) => self.real::<f64>(x, a.cast(), b.cast(), y, c.cast()),
            (HALF, HALF) => {
                self.wide::<f16, f16>(single, a.cast(), b.cast(), other_single, c.cast())
            }
            (HALF, SINGLE) => {
                self.wide::<f16, f32>(single, a.cast(), b.cast(), other_single, c.cast())
            }
            (BRAIN, BRAIN) => {
                self.wide::<bf16, bf16>(single, a.cast(), b.cast(), other_single, c.cast())
            }
            (BRAIN, SINGLE) => {
                self.wide::<bf16, f32>(single, a.cast(), b.cast(), other_single, c.cast())
            }
            (BYTE, WORD) => self.wide::<i8, i32>(x, a.cast(), b.cast(), y, c.cast()),
            _ => unsupported(&format!("a product of type {from} with sums of type {to}")),
        }
    }
}

calls! {
    cublasCreate_v2(out: *mut Handle) { put(out, create()) }
    cublasDestroy_v2(handle: Handle) { destroy(handle) }
    cublasGetVersion_v2(handle: Handle, out: *mut c_int) {
        let _ = handle;
        put(out, VERSION as c_int)
    }
    cublasSetStream_v2(handle: Handle, stream: Handle) { with(handle, |context| context.stream = stream.addr()) }
    cublasGetStream_v2(handle: Handle, out: *mut Handle) {
        put(out, std::ptr::without_provenance_mut(with(handle, |context| context.stream)?))
    }
    cublasSetPointerMode_v2(handle: Handle, mode: c_int) { with(handle, |context| context.pointer_mode = mode) }
    cublasGetPointerMode_v2(handle: Handle, out: *mut c_int) { put(out, with(handle, |context| context.pointer_mode)?) }
    cublasSetAtomicsMode(handle: Handle, mode: c_int) { with(handle, |context| context.atomics_mode = mode) }
    cublasGetAtomicsMode(handle: Handle, out: *mut c_int) { put(out, with(handle, |context| context.atomics_mode)?) }
    cublasSetMathMode(handle: Handle, mode: c_int) { with(handle, |context| context.math_mode = mode) }
    cublasGetMathMode(handle: Handle, out: *mut c_int) { put(out, with(handle, |context| context.math_mode)?) }
    cublasSetWorkspace_v2(handle: Handle, at: Handle, size: usize) {
        let _ = (at, size);
        with(handle, |_| ())
    }
}

/// Which of two matrices is on the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    From,
    To,
}

/// Copies a matrix between host and device, of elements of so many bytes.
fn transfer(
    [rows, columns, bytes]: [c_int; 3],
    (from, from_lead): (*const c_void, c_int),
    (to, to_lead): (*mut c_void, c_int),
    device: Side,
) -> Result {
    if from_lead < rows.max(1) || to_lead < rows.max(1) || bytes < 1 {
        return Err(INVALID_VALUE);
    }
    let [rows, columns, bytes] =
        [count(rows.into())?, count(columns.into())?, count(bytes.into())?];
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    let [from_step, to_step] = [count(from_lead.into())? * bytes, count(to_lead.into())? * bytes];
    let (at, step) = match device {
        Side::From => (from.addr(), from_step),
        Side::To => (to.addr(), to_step),
    };
    let all = (columns - 1).checked_mul(step).and_then(|most| most.checked_add(rows * bytes));
    check("the matrix or vector", at as u64, all.ok_or(INVALID_VALUE)? as u64, 1)?;
    for column in 0..columns {
        let from = from.cast::<u8>().wrapping_add(column * from_step);
        let to = to.cast::<u8>().wrapping_add(column * to_step);
        // SAFETY: the side of the device is inside an allocation, and the host's is as large, as cuBLAS documents.
        unsafe { from.copy_to(to, rows * bytes) };
    }
    Ok(())
}

/// A direction of copying: of matrices and vectors, at once and in a stream.
macro_rules! transfers {
    ($($device:ident: $matrix:ident $in_stream:ident $vector:ident $vector_in_stream:ident;)*) => {$(calls! {
        $matrix(
            rows: c_int, columns: c_int, bytes: c_int, a: *const c_void, la: c_int, b: *mut c_void, lb: c_int
        ) {
            transfer([rows, columns, bytes], (a, la), (b, lb), Side::$device)
        }
        $in_stream(
            rows: c_int, columns: c_int, bytes: c_int, a: *const c_void, la: c_int, b: *mut c_void, lb: c_int,
            stream: *const c_void
        ) {
            can_do(stream.addr())?;
            transfer([rows, columns, bytes], (a, la), (b, lb), Side::$device)
        }
        $vector(n: c_int, bytes: c_int, x: *const c_void, x_step: c_int, y: *mut c_void, y_step: c_int) {
            transfer([1, n, bytes], (x, x_step), (y, y_step), Side::$device)
        }
        $vector_in_stream(
            n: c_int, bytes: c_int, x: *const c_void, x_step: c_int, y: *mut c_void, y_step: c_int,
            stream: *const c_void
        ) {
            can_do(stream.addr())?;
            transfer([1, n, bytes], (x, x_step), (y, y_step), Side::$device)
        }
    })*};
}

transfers! {
    To: cublasSetMatrix cublasSetMatrixAsync cublasSetVector cublasSetVectorAsync;
    From: cublasGetMatrix cublasGetMatrixAsync cublasGetVector cublasGetVectorAsync;
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetStatusString(status: Status) -> *const c_char {
    let name = match status.0 {
        0 => c"the operation completed successfully",
        1 => c"the library was not initialized",
        7 => c"an unsupported value or parameter was passed to the function",
        13 => c"the operation failed: a vector or matrix is not inside an allocation",
        15 => c"the emulator does not support this",
        _ => c"unknown status",
    };
    name.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetStatusName(status: Status) -> *const c_char {
    let name = match status.0 {
        0 => c"CUBLAS_STATUS_SUCCESS",
        1 => c"CUBLAS_STATUS_NOT_INITIALIZED",
        7 => c"CUBLAS_STATUS_INVALID_VALUE",
        13 => c"CUBLAS_STATUS_EXECUTION_FAILED",
        15 => c"CUBLAS_STATUS_NOT_SUPPORTED",
        _ => c"unknown status",
    };
    name.as_ptr()
}

/// What `float` and `double` have alike.
macro_rules! reals {
    ($($T:ty: $gemm:ident $batched:ident $strided:ident $gemv:ident $ger:ident $axpy:ident $dot:ident $scal:ident
       $nrm2:ident $asum:ident $copy:ident $swap:ident $amax:ident $amin:ident;)*) => {$(calls! {
        $gemm(
            handle: Handle, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const $T, a: *const $T,
            la: c_int, b: *const $T, lb: c_int, beta: *const $T, c: *mut $T, lc: c_int
        ) {
            begin(handle)?;
            Product::new(ta, tb, [m, n, k], [la, lb, lc])?.real(read(alpha)?, a, b, read(beta)?, c)
        }
        $batched(
            handle: Handle, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const $T,
            a: *const *const $T, la: c_int, b: *const *const $T, lb: c_int, beta: *const $T, c: *const *const $T,
            lc: c_int, batch: c_int
        ) {
            begin(handle)?;
            let product = Product::new(ta, tb, [m, n, k], [la, lb, lc])?;
            for at in 0..count(batch.into())? {
                let (a, b) = (pointer("list a", a, at)?, pointer("list b", b, at)?);
                product.real(read(alpha)?, a, b, read(beta)?, pointer("list c", c, at)?.cast_mut())?;
            }
            Ok(())
        }
        $strided(
            handle: Handle, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const $T, a: *const $T,
            la: c_int, sa: c_longlong, b: *const $T, lb: c_int, sb: c_longlong, beta: *const $T, c: *mut $T,
            lc: c_int, sc: c_longlong, batch: c_int
        ) {
            begin(handle)?;
            let product = Product::new(ta, tb, [m, n, k], [la, lb, lc])?;
            let bytes = size_of::<$T>();
            for at in 0..count(batch.into())? {
                let (a, b) = (step(a, sa, at, bytes), step(b, sb, at, bytes));
                let c = step(c.cast_const(), sc, at, bytes).cast_mut();
                product.real(read(alpha)?, a, b, read(beta)?, c)?;
            }
            Ok(())
        }
        $gemv(
            handle: Handle, ta: c_int, m: c_int, n: c_int, alpha: *const $T, a: *const $T, la: c_int, x: *const $T,
            x_step: c_int, beta: *const $T, y: *mut $T, y_step: c_int
        ) {
            begin(handle)?;
            let a = Matrix::new("matrix a", a, [count(m.into())?, count(n.into())?], la.into(), false)?;
            let a = if transposed(ta)? { a.transposed() } else { a };
            let x = Matrix::vector("vector x", x, a.columns, x_step.into())?;
            let y = Matrix::vector("vector y", y.cast_const(), a.rows, y_step.into())?;
            multiply(read(alpha)?, &a, &x, read(beta)?, &y);
            Ok(())
        }
        $ger(
            handle: Handle, m: c_int, n: c_int, alpha: *const $T, x: *const $T, x_step: c_int, y: *const $T,
            y_step: c_int, a: *mut $T, la: c_int
        ) {
            begin(handle)?;
            let a = Matrix::new("matrix a", a.cast_const(), [count(m.into())?, count(n.into())?], la.into(), false)?;
            let x = Matrix::vector("vector x", x, a.rows, x_step.into())?;
            let y = Matrix::vector("vector y", y, a.columns, y_step.into())?;
            multiply(read(alpha)?, &x, &y.transposed(), <$T>::ONE, &a);
            Ok(())
        }
        $axpy(
            handle: Handle, n: c_int, alpha: *const $T, x: *const $T, x_step: c_int, y: *mut $T, y_step: c_int
        ) {
            begin(handle)?;
            let (x, y) = two(n, (x, x_step), (y.cast_const(), y_step))?;
            axpy(read(alpha)?, &x, &y);
            Ok(())
        }
        $dot(
            handle: Handle, n: c_int, x: *const $T, x_step: c_int, y: *const $T, y_step: c_int, out: *mut $T
        ) {
            begin(handle)?;
            let (x, y) = two(n, (x, x_step), (y, y_step))?;
            put(out, dot(&x, &y))
        }
        $scal(handle: Handle, n: c_int, alpha: *const $T, x: *mut $T, x_step: c_int) {
            begin(handle)?;
            scale(read(alpha)?, &one(n, x.cast_const(), x_step)?);
            Ok(())
        }
        $nrm2(handle: Handle, n: c_int, x: *const $T, x_step: c_int, out: *mut $T) {
            begin(handle)?;
            let x = one(n, x, x_step)?;
            // As doubles, squares of `float`s neither overflow nor vanish.
            let sum = (0..x.rows).map(|at| f64::from(x.get(at, 0)).powi(2)).sum::<f64>();
            put(out, sum.root() as $T)
        }
        $asum(handle: Handle, n: c_int, x: *const $T, x_step: c_int, out: *mut $T) {
            begin(handle)?;
            put(out, magnitudes(&one(n, x, x_step)?))
        }
        $copy(handle: Handle, n: c_int, x: *const $T, x_step: c_int, y: *mut $T, y_step: c_int) {
            begin(handle)?;
            let (x, y) = two(n, (x, x_step), (y.cast_const(), y_step))?;
            (0..x.rows).for_each(|at| y.set(at, 0, x.get(at, 0)));
            Ok(())
        }
        $swap(handle: Handle, n: c_int, x: *mut $T, x_step: c_int, y: *mut $T, y_step: c_int) {
            begin(handle)?;
            let (x, y) = two(n, (x.cast_const(), x_step), (y.cast_const(), y_step))?;
            for at in 0..x.rows {
                let old = x.get(at, 0);
                x.set(at, 0, y.get(at, 0));
                y.set(at, 0, old);
            }
            Ok(())
        }
        $amax(handle: Handle, n: c_int, x: *const $T, x_step: c_int, out: *mut c_int) {
            begin(handle)?;
            put(out, extreme(&one(n, x, x_step)?, true))
        }
        $amin(handle: Handle, n: c_int, x: *const $T, x_step: c_int, out: *mut c_int) {
            begin(handle)?;
            put(out, extreme(&one(n, x, x_step)?, false))
        }
    })*};
}

reals! {
    f32: cublasSgemm_v2 cublasSgemmBatched cublasSgemmStridedBatched cublasSgemv_v2 cublasSger_v2 cublasSaxpy_v2
         cublasSdot_v2 cublasSscal_v2 cublasSnrm2_v2 cublasSasum_v2 cublasScopy_v2 cublasSswap_v2 cublasIsamax_v2
         cublasIsamin_v2;
    f64: cublasDgemm_v2 cublasDgemmBatched cublasDgemmStridedBatched cublasDgemv_v2 cublasDger_v2 cublasDaxpy_v2
         cublasDdot_v2 cublasDscal_v2 cublasDnrm2_v2 cublasDasum_v2 cublasDcopy_v2 cublasDswap_v2 cublasIdamax_v2
         cublasIdamin_v2;
}

fn one<T>(n: c_int, x: *const T, x_step: c_int) -> Result<Matrix<T>> {
    Matrix::vector("vector x", x, count(n.max(0).into())?, x_step.into())
}

fn two<T>(n: c_int, x: (*const T, c_int), y: (*const T, c_int)) -> Result<(Matrix<T>, Matrix<T>)> {
    let y = Matrix::vector("vector y", y.0, count(n.max(0).into())?, y.1.into())?;
    Ok((one(n, x.0, x.1)?, y))
}

calls! {
    cublasHgemm(
        handle: Handle, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const f16, a: *const f16,
        la: c_int, b: *const f16, lb: c_int, beta: *const f16, c: *mut f16, lc: c_int
    ) {
        begin(handle)?;
        let (alpha, beta) = (read(alpha)?.to_f32(), read(beta)?.to_f32());
        Product::new(ta, tb, [m, n, k], [la, lb, lc])?.wide(alpha, a, b, beta, c)
    }
    cublasHgemmStridedBatched(
        handle: Handle, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const f16, a: *const f16,
        la: c_int, sa: c_longlong, b: *const f16, lb: c_int, sb: c_longlong, beta: *const f16, c: *mut f16,
        lc: c_int, sc: c_longlong, batch: c_int
    ) {
        begin(handle)?;
        let product = Product::new(ta, tb, [m, n, k], [la, lb, lc])?;
        let (alpha, beta) = (read(alpha)?.to_f32(), read(beta)?.to_f32());
        for at in 0..count(batch.into())? {
            let (a, b, c) = (step(a, sa, at, 2), step(b, sb, at, 2), step(c.cast_const(), sc, at, 2));
            product.wide(alpha, a, b, beta, c.cast_mut())?;
        }
        Ok(())
    }
    cublasSgemmEx(
        handle: Handle, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const f32, a: *const c_void,
        a_type: c_int, la: c_int, b: *const c_void, b_type: c_int, lb: c_int, beta: *const f32, c: *mut c_void,
        c_type: c_int, lc: c_int
    ) {
        begin(handle)?;
        let product = Product::new(ta, tb, [m, n, k], [la, lb, lc])?;
        let scalars = (alpha.cast(), beta.cast());
        product.typed(scalars, ((a, a_type), (b, b_type)), (c, c_type), Scalar::Single)
    }
    cublasGemmEx(
        handle: Handle, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const c_void,
        a: *const c_void, a_type: c_int, la: c_int, b: *const c_void, b_type: c_int, lb: c_int,
        beta: *const c_void, c: *mut c_void, c_type: c_int, lc: c_int, compute: c_int, algorithm: c_int
    ) {
        let _ = algorithm;
        begin(handle)?;
        let product = Product::new(ta, tb, [m, n, k], [la, lb, lc])?;
        product.typed((alpha, beta), ((a, a_type), (b, b_type)), (c, c_type), Scalar::of(compute)?)
    }
    cublasGemmBatchedEx(
        handle: Handle, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const c_void,
        a: *const *const c_void, a_type: c_int, la: c_int, b: *const *const c_void, b_type: c_int, lb: c_int,
        beta: *const c_void, c: *const *const c_void, c_type: c_int, lc: c_int, batch: c_int, compute: c_int,
        algorithm: c_int
    ) {
        let _ = algorithm;
        begin(handle)?;
        let product = Product::new(ta, tb, [m, n, k], [la, lb, lc])?;
        let scalar = Scalar::of(compute)?;
        for at in 0..count(batch.into())? {
            let (a, b) = (pointer("list a", a, at)?, pointer("list b", b, at)?);
            let c = pointer("list c", c, at)?.cast_mut();
            product.typed((alpha, beta), ((a, a_type), (b, b_type)), (c, c_type), scalar)?;
        }
        Ok(())
    }
    cublasGemmStridedBatchedEx(
        handle: Handle, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const c_void,
        a: *const c_void, a_type: c_int, la: c_int, sa: c_longlong, b: *const c_void, b_type: c_int, lb: c_int,
        sb: c_longlong, beta: *const c_void, c: *mut c_void, c_type: c_int, lc: c_int, sc: c_longlong,
        batch: c_int, compute: c_int, algorithm: c_int
    ) {
        let _ = algorithm;
        begin(handle)?;
        let product = Product::new(ta, tb, [m, n, k], [la, lb, lc])?;
        let (scalar, [a_bytes, b_bytes, c_bytes]) =
            (Scalar::of(compute)?, [bytes_of(a_type)?, bytes_of(b_type)?, bytes_of(c_type)?]);
        for at in 0..count(batch.into())? {
            let (a, b) = (step(a, sa, at, a_bytes), step(b, sb, at, b_bytes));
            let c = step(c.cast_const(), sc, at, c_bytes).cast_mut();
            product.typed((alpha, beta), ((a, a_type), (b, b_type)), (c, c_type), scalar)?;
        }
        Ok(())
    }
}
