//! cuBLASLt: one product of matrices, whose types, orders and last steps a program sets beforehand.
//!
//! What is set lies in the program's own objects, which it may also keep where it likes (`…Init`): they are plain data
//! here, and a table says where each attribute is.
#![allow(non_snake_case, clippy::too_many_arguments, clippy::missing_safety_doc)]

use std::ffi::{c_int, c_void};
use std::mem::offset_of;

use crate::call::{
    BYTE, Handle, Scalar, VERSION, bytes_of, calls, can_do, put, read, step, transposed, typed,
    unsupported,
};
use crate::compute::{Element, by_rows, multiply};
use crate::context::{INVALID_VALUE, NOT_INITIALIZED, Result, print_message};
use crate::operand::{Matrix, check, count};

/// An object that a program makes, with attributes by number.
trait Object: Sized {
    const NAME: &'static str;
    /// Bytes of the object where a program keeps it itself.
    const ROOM: usize;
    /// Where an attribute is, and its bytes.
    fn place(attribute: c_int) -> Option<(usize, usize)>;
}

macro_rules! object {
    ($Type:ident, $name:literal, $room:literal: $($number:literal => $($field:ident).+ $(@ $index:literal)?: $T:ty,)*) => {
        impl Object for $Type {
            const NAME: &'static str = $name;
            const ROOM: usize = $room;
            fn place(attribute: c_int) -> Option<(usize, usize)> {
                Some(match attribute {
                    $($number => (offset_of!($Type, $($field).+) $(+ $index * size_of::<$T>())?, size_of::<$T>()),)*
                    _ => return None,
                })
            }
        }
        const _: () = assert!(size_of::<$Type>() <= $room);
    };
}

/// How a matrix lies, `cublasLtMatrixLayoutOpaque_t`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Layout {
    kind: c_int,
    order: c_int,
    rows: u64,
    columns: u64,
    lead: i64,
    stride: i64,
    batch: c_int,
}
object! { Layout, "matrix layout", 64:
    0 => kind: c_int, 1 => order: c_int, 2 => rows: u64, 3 => columns: u64, 4 => lead: i64, 5 => batch: c_int,
    6 => stride: i64,
}

/// What is computed, `cublasLtMatmulDescOpaque_t`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Description {
    compute: c_int,
    scale: c_int,
    pointer_mode: c_int,
    transposed: [c_int; 3],
    fill: c_int,
    epilogue: c_int,
    bias: *mut c_void,
    bias_stride: i64,
    bias_kind: c_int,
    aux_kind: c_int,
    aux: *mut c_void,
    aux_lead: i64,
    aux_stride: i64,
    alpha_stride: i64,
    multiprocessors: c_int,
    fast: i8,
}
object! { Description, "matmul description", 184:
    0 => compute: c_int, 1 => scale: c_int, 2 => pointer_mode: c_int, 3 => transposed: c_int,
    4 => transposed @ 1: c_int, 5 => transposed @ 2: c_int, 6 => fill: c_int, 7 => epilogue: c_int, 8 => bias: u64,
    10 => bias_stride: i64, 11 => aux: u64, 12 => aux_lead: i64, 13 => aux_stride: i64, 14 => alpha_stride: i64,
    15 => multiprocessors: c_int, 22 => aux_kind: c_int, 25 => fast: i8, 26 => bias_kind: c_int,
}

/// What a program wishes of the way, `cublasLtMatmulPreferenceOpaque_t`. There is one way.
#[derive(Clone, Copy)]
#[repr(C)]
struct Preference {
    workspace: u64,
    implementations: u64,
    search: u32,
    reductions: u32,
    alignments: [u32; 4],
    waves: f32,
}
object! { Preference, "matmul preference", 64:
    0 => search: u32, 1 => workspace: u64, 3 => reductions: u32, 5 => alignments: u32, 6 => alignments @ 1: u32,
    7 => alignments @ 2: u32, 8 => alignments @ 3: u32, 9 => waves: f32, 12 => implementations: u64,
}

/// One way to compute, `cublasLtMatmulAlgo_t`.
#[derive(Clone, Copy, Default)]
#[repr(C, align(8))]
struct Algorithm {
    number: u32,
    tile: u32,
    splits: u32,
    reduction: u32,
    swizzle: u32,
    custom: u32,
    stages: u32,
    inner: u16,
    cluster: u16,
    unused: [u32; 8],
}
object! { Algorithm, "matmul algorithm", 64:
    0 => number: u32, 1 => tile: u32, 2 => splits: u32, 3 => reduction: u32, 4 => swizzle: u32, 5 => custom: u32,
    6 => stages: u32, 7 => inner: u16, 8 => cluster: u16,
}

/// `cublasLtMatmulHeuristicResult_t`
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Choice {
    algorithm: Algorithm,
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}
const _: () = assert!(size_of::<Choice>() == 96);

const NO_TYPE: c_int = -1;
/// `CUBLASLT_MATMUL_PREF_…`'s own first values.
const PREFERENCE: Preference = Preference {
    workspace: 0,
    implementations: u64::MAX,
    search: 0,
    reductions: 0x7,
    alignments: [256; 4],
    waves: 0.0,
};

fn layout(kind: c_int, rows: u64, columns: u64, lead: i64) -> Layout {
    Layout { kind, rows, columns, lead, batch: 1, ..Layout::default() }
}

fn description(compute: c_int, scale: c_int) -> Description {
    Description {
        compute,
        scale,
        pointer_mode: 0,
        transposed: [0; 3],
        fill: 0,
        epilogue: 1,
        bias: std::ptr::null_mut(),
        bias_stride: 0,
        bias_kind: NO_TYPE,
        aux_kind: NO_TYPE,
        aux: std::ptr::null_mut(),
        aux_lead: 0,
        aux_stride: 0,
        alpha_stride: 0,
        multiprocessors: 0,
        fast: 0,
    }
}

/// An object of the program's, which `destroy` takes back.
fn create<T: Object>(out: *mut *mut T, object: T) -> Result {
    if out.is_null() {
        return Err(INVALID_VALUE);
    }
    put(out, Box::into_raw(Box::new(object)))
}

fn destroy<T: Object>(object: *mut T) -> Result {
    if object.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: cuBLASLt documents that what is destroyed was created, by `create`, and is not used again.
    drop(unsafe { Box::from_raw(object) });
    Ok(())
}

/// An object where the program keeps it.
fn init<T: Object>(object: *mut T, size: usize, value: T) -> Result {
    if size < T::ROOM {
        return Err(INVALID_VALUE);
    }
    put(object, value)
}

fn attribute<T: Object>(object: *mut T, number: c_int) -> Result<(*mut u8, usize)> {
    let Some((offset, bytes)) = T::place(number) else {
        return unsupported(&format!("attribute {number} of a {}", T::NAME));
    };
    if object.is_null() {
        return Err(INVALID_VALUE);
    }
    Ok((object.cast::<u8>().wrapping_add(offset), bytes))
}

fn set<T: Object>(object: *mut T, number: c_int, value: *const c_void, size: usize) -> Result {
    let (at, bytes) = attribute(object, number)?;
    if value.is_null() || size != bytes {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the attribute is inside the object (`place`), and cuBLASLt documents `value` as that many bytes.
    unsafe { at.copy_from_nonoverlapping(value.cast(), bytes) };
    Ok(())
}

fn get<T: Object>(
    object: *mut T,
    number: c_int,
    value: *mut c_void,
    size: usize,
    written: *mut usize,
) -> Result {
    let (at, bytes) = attribute(object, number)?;
    if size == 0 {
        return put(written, bytes);
    }
    if value.is_null() || size != bytes {
        return Err(INVALID_VALUE);
    }
    // SAFETY: as in `set`.
    unsafe { at.copy_to_nonoverlapping(value.cast(), bytes) };
    if written.is_null() { Ok(()) } else { put(written, bytes) }
}

fn wide<T: Element>(value: T) -> f64 {
    value.widen().into()
}

/// A matrix of a batch, as doubles by rows.
struct Values {
    all: Vec<f64>,
    rows: usize,
    columns: usize,
}

impl Values {
    fn new(rows: usize, columns: usize) -> Result<Self> {
        let all = vec![0.0; rows.checked_mul(columns).ok_or(INVALID_VALUE)?];
        Ok(Self { all, rows, columns })
    }

    fn get(&self, row: usize, column: usize) -> f64 {
        self.all[row * self.columns + column]
    }

    fn matrix(&mut self) -> Matrix<f64> {
        by_rows(&mut self.all, self.rows, self.columns)
    }

    /// The sum of each row.
    fn sums(&self) -> Vec<f64> {
        (0..self.rows)
            .map(|row| (0..self.columns).map(|column| self.get(row, column)).sum())
            .collect()
    }

    /// The sum of each column.
    fn column_sums(&self) -> Vec<f64> {
        (0..self.columns)
            .map(|column| (0..self.rows).map(|row| self.get(row, column)).sum())
            .collect()
    }
}

impl Layout {
    /// A matrix of the batch, as it is used.
    fn matrix<T>(
        &self,
        name: &str,
        at: *const T,
        transposed: bool,
        number: usize,
    ) -> Result<Matrix<T>> {
        let by_rows = match self.order {
            0 => false,
            1 => true,
            other => return unsupported(&format!("order {other} of {name}")),
        };
        let [rows, columns] = self.size(transposed)?;
        let at = step(at, self.stride, number, size_of::<T>());
        Matrix::new(name, at, [rows, columns], self.lead, by_rows != transposed)
    }

    fn size(&self, transposed: bool) -> Result<[usize; 2]> {
        let [rows, columns] = [count(self.rows as i64)?, count(self.columns as i64)?];
        Ok(if transposed { [columns, rows] } else { [rows, columns] })
    }

    fn load(&self, name: &str, at: *const c_void, flip: bool, number: usize) -> Result<Values> {
        typed!(self.kind, T => {
            // It is inside an allocation, before as much is asked for.
            let matrix = self.matrix::<T>(name, at.cast(), flip, number)?;
            let (rows, columns) = (matrix.rows, matrix.columns);
            let mut out = Values::new(rows, columns)?;
            let cells = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
            out.all.iter_mut().zip(cells).for_each(|(to, (row, column))| *to = wide(matrix.get(row, column)));
            Ok(out)
        })
    }

    fn check(&self, name: &str, at: *const c_void, number: usize) -> Result {
        typed!(self.kind, T => self.matrix::<T>(name, at.cast(), false, number).map(|_| ()))
    }

    fn store(&self, name: &str, at: *mut c_void, values: &Values, number: usize) -> Result {
        typed!(self.kind, T => {
            let matrix = self.matrix::<T>(name, at.cast_const().cast(), false, number)?;
            for row in 0..values.rows {
                for column in 0..values.columns {
                    matrix.set(row, column, T::nearest(values.get(row, column)));
                }
            }
            Ok(())
        })
    }
}

/// What is times zero is zero, be it a number or not: it does not count then.
fn scale_rows(values: &mut Values, factors: &[f64]) {
    for (row, factor) in values.all.chunks_mut(values.columns.max(1)).zip(factors) {
        row.iter_mut()
            .for_each(|value| *value = if *factor == 0.0 { 0.0 } else { *value * factor });
    }
}

/// What is done with the product last: bits of `cublasLtEpilogue_t`.
#[derive(Clone, Copy)]
struct Epilogue(c_int);

impl Epilogue {
    const RELU: c_int = 2;
    const BIAS: c_int = 4;
    const RELU_GRADIENT: c_int = 8;
    const BIAS_GRADIENT: c_int = 16;
    const GELU: c_int = 32;
    const GELU_GRADIENT: c_int = 64;
    const AUX: c_int = 128;
    const BIAS_GRADIENT_A: c_int = 256;
    const BIAS_GRADIENT_B: c_int = 512;

    fn new(bits: c_int) -> Result<Self> {
        let known = [1, 2, 4, 6, 32, 36, 130, 134, 136, 152, 160, 164, 192, 208, 256, 512];
        if !known.contains(&bits) {
            return unsupported(&format!("epilogue {bits}"));
        }
        Ok(Self(bits))
    }

    fn has(self, bit: c_int) -> bool {
        self.0 & bit != 0
    }
}

/// The approximation by the hyperbolic tangent, and its derivative.
fn gelu(x: f64) -> (f64, f64) {
    let scale = (2.0 / std::f64::consts::PI).sqrt();
    let tanh = (scale * (x + 0.044_715 * x * x * x)).tanh();
    let inner = scale * (1.0 + 3.0 * 0.044_715 * x * x);
    (0.5 * x * (1.0 + tanh), 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner)
}

/// A product as a program asks for it.
struct Product<'a> {
    description: &'a Description,
    /// Of a, b, c and d.
    layouts: [&'a Layout; 4],
}

impl Product<'_> {
    /// Rows, columns and depth, which the matrices must agree on.
    fn size(&self) -> Result<[usize; 3]> {
        let [a, b, c, d] = self.layouts;
        let [ta, tb] = self.transposed()?;
        let ([m, k], [depth, n]) = (a.size(ta)?, b.size(tb)?);
        let fits = depth == k && d.size(false)? == [m, n] && c.size(false)? == [m, n];
        let batches = [a, b, c, d].iter().all(|layout| layout.batch == d.batch);
        if !fits || !batches {
            print_message(&format!(
                "cuBLASLt: a of {m} by {k} and b of {depth} by {n} in {} do not make d of {} by {} in {}",
                a.batch, d.rows, d.columns, d.batch
            ));
            return Err(INVALID_VALUE);
        }
        Ok([m, n, k])
    }

    fn transposed(&self) -> Result<[bool; 2]> {
        let [a, b, c] = self.description.transposed;
        if c != 0 || self.description.fill != 0 {
            return unsupported("a transposed or triangular result");
        }
        Ok([transposed(a)?, transposed(b)?])
    }

    /// The factor of each row: `alpha`'s, or `beta`'s.
    fn factors(
        &self,
        name: &str,
        at: *const c_void,
        rows: usize,
        number: usize,
    ) -> Result<Vec<f64>> {
        let scalar = self.scalar()?;
        // Mode 2 has vectors of both on the device; 3 and 4 of alpha alone, with no beta or one value.
        match (self.description.pointer_mode, name) {
            (0 | 1, _) | (4, "beta") => Ok(vec![scalar.read(at)?; rows]),
            (3, "beta") => Ok(vec![0.0; rows]),
            (2..=4, _) => {
                let bytes = scalar.bytes();
                let first = step(at.cast::<u8>(), self.description.alpha_stride, number, bytes);
                let all = rows.checked_mul(bytes).ok_or(INVALID_VALUE)?;
                check(&format!("vector {name}"), first.addr() as u64, all as u64, bytes)?;
                (0..rows).map(|row| scalar.read(first.wrapping_add(row * bytes).cast())).collect()
            }
            (other, _) => unsupported(&format!("pointer mode {other}")),
        }
    }

    fn scalar(&self) -> Result<Scalar> {
        Scalar::of(self.description.compute)?;
        Scalar::of_type(self.description.scale)
    }

    fn compute(
        &self,
        (alpha, beta): (*const c_void, *const c_void),
        [a, b, c]: [*const c_void; 3],
        d: *mut c_void,
    ) -> Result {
        let [m, n, _] = self.size()?;
        let epilogue = Epilogue::new(self.description.epilogue)?;
        let ([la, lb, lc, ld], [ta, tb]) = (self.layouts, self.transposed()?);
        if m == 0 || n == 0 {
            return Ok(());
        }
        for number in 0..count(ld.batch.into())? {
            ld.check("matrix d", d, number)?;
            let mut left = la.load("matrix a", a, ta, number)?;
            let mut right = lb.load("matrix b", b, tb, number)?;
            let mut sums = Values::new(m, n)?;
            multiply(1.0, &left.matrix(), &right.matrix(), 0.0, &sums.matrix());
            scale_rows(&mut sums, &self.factors("alpha", alpha, m, number)?);
            let betas = self.factors("beta", beta, m, number)?;
            if betas.iter().any(|beta| *beta != 0.0) {
                let mut old = lc.load("matrix c", c, false, number)?;
                scale_rows(&mut old, &betas);
                sums.all.iter_mut().zip(old.all).for_each(|(sum, old)| *sum += old);
            }
            self.finish(epilogue, &mut sums, number)?;
            if epilogue.has(Epilogue::BIAS_GRADIENT) {
                self.set_bias(&sums.sums(), number)?;
            } else if epilogue.has(Epilogue::BIAS_GRADIENT_A) {
                self.set_bias(&left.sums(), number)?;
            } else if epilogue.has(Epilogue::BIAS_GRADIENT_B) {
                self.set_bias(&right.column_sums(), number)?;
            }
            ld.store("matrix d", d, &sums, number)?;
        }
        Ok(())
    }

    /// Adds the bias, and takes each value through the function that the epilogue names.
    fn finish(&self, epilogue: Epilogue, sums: &mut Values, number: usize) -> Result {
        if epilogue.has(Epilogue::BIAS) {
            let columns = sums.columns;
            for (row, bias) in self.bias(sums.rows, number)?.into_iter().enumerate() {
                sums.all[row * columns..][..columns].iter_mut().for_each(|sum| *sum += bias);
            }
        }
        if epilogue.has(Epilogue::RELU | Epilogue::RELU_GRADIENT) {
            return self.relu(epilogue, sums, number);
        }
        if epilogue.has(Epilogue::GELU_GRADIENT) {
            let inputs = self.aux().load(
                "the matrix of GELU's inputs",
                self.description.aux,
                false,
                number,
            )?;
            sums.all.iter_mut().zip(inputs.all).for_each(|(sum, x)| *sum *= gelu(x).1);
        } else if epilogue.has(Epilogue::GELU) {
            if epilogue.has(Epilogue::AUX) {
                self.aux().store(
                    "the matrix of GELU's inputs",
                    self.description.aux,
                    sums,
                    number,
                )?;
            }
            sums.all.iter_mut().for_each(|sum| *sum = gelu(*sum).0);
        }
        Ok(())
    }

    /// A bit of each element, by columns, says whether it was positive.
    fn relu(&self, epilogue: Epilogue, sums: &mut Values, number: usize) -> Result {
        let Description { aux, aux_lead, aux_stride, .. } = *self.description;
        let bytes = usize::try_from(aux_lead / 8).map_err(|_| INVALID_VALUE)?;
        let gradient = epilogue.has(Epilogue::RELU_GRADIENT);
        let layout = Layout {
            stride: aux_stride / 8,
            ..layout(BYTE, bytes as u64, sums.columns as u64, bytes as i64)
        };
        let mask = match epilogue.has(Epilogue::AUX) {
            true => Some(layout.matrix::<u8>(
                "the mask of ReLU",
                aux.cast_const().cast(),
                false,
                number,
            )?),
            false => None,
        };
        if mask.is_some() && bytes * 8 < sums.rows {
            return Err(INVALID_VALUE);
        }
        for at in 0..sums.all.len() {
            let (row, column) = (at / sums.columns, at % sums.columns);
            let bit = 1 << (row % 8);
            let mut positive = sums.all[at] > 0.0;
            if let Some(mask) = &mask {
                let old = mask.get(row / 8, column);
                if gradient {
                    positive = old & bit != 0;
                } else {
                    mask.set(row / 8, column, if positive { old | bit } else { old & !bit });
                }
            }
            if !positive {
                sums.all[at] = 0.0;
            }
        }
        Ok(())
    }

    /// What an epilogue reads or writes beside the result: as large, and of its type unless a program says another.
    fn aux(&self) -> Layout {
        let Description { aux_kind, aux_lead, aux_stride, .. } = *self.description;
        let d = self.layouts[3];
        let kind = if aux_kind == NO_TYPE { d.kind } else { aux_kind };
        Layout { kind, lead: aux_lead, stride: aux_stride, order: 0, ..*d }
    }

    /// A vector as a matrix of one column.
    fn bias_layout(&self, length: usize) -> Layout {
        let Description { bias_kind, bias_stride, scale, .. } = *self.description;
        let d = self.layouts[3].kind;
        // Bytes have a bias of the factors' type.
        let own = if d == BYTE { scale } else { d };
        let kind = if bias_kind == NO_TYPE { own } else { bias_kind };
        Layout { stride: bias_stride, ..layout(kind, length as u64, 1, length.max(1) as i64) }
    }

    fn bias(&self, length: usize, number: usize) -> Result<Vec<f64>> {
        let at = self.description.bias;
        Ok(self.bias_layout(length).load("the bias", at, false, number)?.all)
    }

    fn set_bias(&self, values: &[f64], number: usize) -> Result {
        let values = Values { all: values.to_vec(), rows: values.len(), columns: 1 };
        let at = self.description.bias;
        self.bias_layout(values.rows).store("the gradient of the bias", at, &values, number)
    }
}

/// Objects of the program's.
fn product<'a>(
    description: *const Description,
    layouts: [*const Layout; 4],
) -> Result<Product<'a>> {
    if description.is_null() || layouts.iter().any(|layout| layout.is_null()) {
        return Err(INVALID_VALUE);
    }
    // SAFETY: cuBLASLt documents them as objects that its functions made, which stay while it is called.
    Ok(unsafe { Product { description: &*description, layouts: layouts.map(|layout| &*layout) } })
}

/// A handle of either library, which has no state here.
fn known(handle: Handle) -> Result {
    if handle.is_null() { Err(NOT_INITIALIZED) } else { Ok(()) }
}

/// The one way to compute a product, if it can be computed.
fn choice(product: &Product) -> Result<Choice> {
    product.size()?;
    product.scalar()?;
    Epilogue::new(product.description.epilogue)?;
    for layout in product.layouts {
        bytes_of(layout.kind)?;
    }
    Ok(Choice::default())
}

/// The functions that make an object, here or where the program keeps it, and end it.
macro_rules! made {
    ($($Type:ty, ($($arg:ident: $T:ty),*) $value:expr, $create:ident $init:ident $destroy:ident;)*) => {$(calls! {
        $create(out: *mut *mut $Type, $($arg: $T),*) { create(out, $value) }
        $init(at: *mut $Type, size: usize, $($arg: $T),*) { init(at, size, $value) }
        $destroy(at: *mut $Type) { destroy(at) }
    })*};
}
made! {
    Layout, (kind: c_int, rows: u64, columns: u64, lead: i64) layout(kind, rows, columns, lead),
        cublasLtMatrixLayoutCreate cublasLtMatrixLayoutInit_internal cublasLtMatrixLayoutDestroy;
    Description, (compute: c_int, scale: c_int) description(compute, scale),
        cublasLtMatmulDescCreate cublasLtMatmulDescInit_internal cublasLtMatmulDescDestroy;
    Preference, () PREFERENCE,
        cublasLtMatmulPreferenceCreate cublasLtMatmulPreferenceInit_internal cublasLtMatmulPreferenceDestroy;
}

/// The functions that set and give the attributes of an object.
macro_rules! attributes {
    ($($Type:ty: $set:ident $get:ident;)*) => {$(calls! {
        $set(at: *mut $Type, number: c_int, value: *const c_void, size: usize) { set(at, number, value, size) }
        $get(at: *mut $Type, number: c_int, value: *mut c_void, size: usize, written: *mut usize) {
            get(at, number, value, size, written)
        }
    })*};
}
attributes! {
    Layout: cublasLtMatrixLayoutSetAttribute cublasLtMatrixLayoutGetAttribute;
    Description: cublasLtMatmulDescSetAttribute cublasLtMatmulDescGetAttribute;
    Preference: cublasLtMatmulPreferenceSetAttribute cublasLtMatmulPreferenceGetAttribute;
    Algorithm: cublasLtMatmulAlgoConfigSetAttribute cublasLtMatmulAlgoConfigGetAttribute;
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetVersion() -> usize {
    VERSION
}

calls! {
    // Major version, minor version and patch level.
    cublasLtGetProperty(kind: c_int, out: *mut c_int) {
        match kind {
            0 => put(out, (VERSION / 10_000) as c_int),
            1 => put(out, (VERSION / 100 % 100) as c_int),
            2 => put(out, (VERSION % 100) as c_int),
            _ => Err(INVALID_VALUE),
        }
    }
    cublasLtMatrixTransformDescCreate(out: *mut *mut c_void, scale: c_int) {
        let _ = (out, scale);
        unsupported("cublasLtMatrixTransform")
    }
    cublasLtCreate(out: *mut Handle) { put(out, std::ptr::without_provenance_mut(16)) }
    cublasLtDestroy(handle: Handle) { known(handle) }

    cublasLtMatmulAlgoGetIds(
        handle: Handle, compute: c_int, scale: c_int, a: c_int, b: c_int, c: c_int, d: c_int, wanted: c_int,
        out: *mut c_int, found: *mut c_int
    ) {
        let _ = (scale, a, b, c, d);
        known(handle)?;
        Scalar::of(compute)?;
        if wanted < 1 {
            return Err(INVALID_VALUE);
        }
        put(out, 0)?;
        put(found, 1)
    }
    cublasLtMatmulAlgoInit(
        handle: Handle, compute: c_int, scale: c_int, a: c_int, b: c_int, c: c_int, d: c_int, number: c_int,
        out: *mut Algorithm
    ) {
        let _ = (scale, a, b, c, d);
        known(handle)?;
        Scalar::of(compute)?;
        if number != 0 {
            return Err(INVALID_VALUE);
        }
        put(out, Algorithm::default())
    }
    cublasLtMatmulAlgoCapGetAttribute(
        at: *const Algorithm, number: c_int, value: *mut c_void, size: usize, written: *mut usize
    ) {
        let _ = (at, value, size, written);
        unsupported(&format!("capability {number} of a matmul algorithm"))
    }
    cublasLtMatmulAlgoCheck(
        handle: Handle, description: *const Description, a: *const Layout, b: *const Layout, c: *const Layout,
        d: *const Layout, algorithm: *const Algorithm, out: *mut Choice
    ) {
        known(handle)?;
        let choice = choice(&product(description, [a, b, c, d])?)?;
        put(out, Choice { algorithm: read(algorithm)?, ..choice })
    }
    cublasLtMatmulAlgoGetHeuristic(
        handle: Handle, description: *const Description, a: *const Layout, b: *const Layout, c: *const Layout,
        d: *const Layout, preference: *const Preference, wanted: c_int, out: *mut Choice, found: *mut c_int
    ) {
        known(handle)?;
        put(found, 0)?;
        if wanted < 1 || preference.is_null() {
            return Err(INVALID_VALUE);
        }
        put(out, choice(&product(description, [a, b, c, d])?)?)?;
        put(found, 1)
    }
    cublasLtMatmul(
        handle: Handle, description: *const Description, alpha: *const c_void, a: *const c_void,
        a_layout: *const Layout, b: *const c_void, b_layout: *const Layout, beta: *const c_void, c: *const c_void,
        c_layout: *const Layout, d: *mut c_void, d_layout: *const Layout, algorithm: *const Algorithm,
        workspace: *mut c_void, size: usize, stream: *const c_void
    ) {
        let _ = (algorithm, workspace, size);
        known(handle)?;
        can_do(stream.addr())?;
        let product = product(description, [a_layout, b_layout, c_layout, d_layout])?;
        product.compute((alpha, beta), [a, b, c], d)
    }
    cublasLtMatrixTransform(
        handle: Handle, description: *const c_void, alpha: *const c_void, a: *const c_void, a_layout: *const Layout,
        beta: *const c_void, b: *const c_void, b_layout: *const Layout, c: *mut c_void, c_layout: *const Layout,
        stream: *const c_void
    ) {
        let _ = (handle, description, alpha, a, a_layout, beta, b, b_layout, c, c_layout, stream);
        unsupported("cublasLtMatrixTransform")
    }
}
