//! What every function does with its arguments and its result.

use std::ffi::{c_int, c_longlong, c_void};

use half::f16;

use crate::context::{INVALID_VALUE, NOT_SUPPORTED, Result, print_message, with};
use crate::operand::{check, is_capturing};

pub(crate) type Handle = *mut c_void;

/// `CUBLAS_VERSION` of the cuBLAS whose functions these are.
pub(crate) const VERSION: usize = 120_304;

/// `cudaDataType`
pub(crate) const SINGLE: c_int = 0;
pub(crate) const DOUBLE: c_int = 1;
pub(crate) const HALF: c_int = 2;
pub(crate) const BYTE: c_int = 3;
pub(crate) const WORD: c_int = 10;
pub(crate) const BRAIN: c_int = 14;

/// Functions whose body is a `Result`.
macro_rules! calls {
    ($($name:ident($($arg:ident: $T:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $T),*) -> $crate::context::Status {
            let _work = $crate::operand::Work::begin();
            let body = || -> $crate::context::Result { $body };
            body().err().unwrap_or($crate::context::SUCCESS)
        }
    )*};
}
pub(crate) use calls;

/// Does something with the type of elements that a `cudaDataType` names.
macro_rules! typed {
    ($kind:expr, $T:ident => $body:expr) => {
        typed!(@match $kind, $T => $body; SINGLE f32, DOUBLE f64, HALF half::f16, BYTE i8, WORD i32, BRAIN half::bf16)
    };
    (@match $kind:expr, $T:ident => $body:expr; $($name:ident $own:ty),*) => {
        match $kind {
            $($crate::call::$name => {
                type $T = $own;
                $body
            })*
            other => $crate::call::unsupported(&format!("type {other}")),
        }
    };
}
pub(crate) use typed;

/// Bytes of an element of a `cudaDataType`.
pub(crate) fn bytes_of(kind: c_int) -> Result<usize> {
    typed!(kind, T => Ok(size_of::<T>()))
}

/// A value of the program, of the host's memory or the device's, which is the same to this process.
pub(crate) fn read<T: Copy>(at: *const T) -> Result<T> {
    if at.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: cuBLAS documents scalars as pointers to one value, which the program keeps during the call.
    Ok(unsafe { at.read_unaligned() })
}

/// A result, of the host's memory or the device's.
pub(crate) fn put<T>(out: *mut T, value: T) -> Result {
    if out.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: cuBLAS documents results as pointers to room for one value.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

/// The handle's stream must be one that does things.
pub(crate) fn begin(handle: Handle) -> Result {
    can_do(with(handle, |context| context.stream)?)
}

/// Whether a stream does what it is asked to.
pub(crate) fn can_do(stream: usize) -> Result {
    if is_capturing(stream) {
        print_message("cuBLAS in a stream that is captured is not supported");
        return Err(NOT_SUPPORTED);
    }
    Ok(())
}

/// `cublasOperation_t`: whether a matrix is transposed.
pub(crate) fn transposed(operation: c_int) -> Result<bool> {
    match operation {
        0 => Ok(false),
        1 | 2 => Ok(true),
        _ => Err(INVALID_VALUE),
    }
}

/// Where the next matrix of a strided batch begins.
pub(crate) fn step<T>(at: *const T, stride: c_longlong, number: usize, bytes: usize) -> *const T {
    let offset = (stride as isize).wrapping_mul(number as isize).wrapping_mul(bytes as isize);
    at.wrapping_byte_offset(offset)
}

/// A pointer of the list of a batch, which is in memory of the device.
pub(crate) fn pointer<T>(name: &str, list: *const *const T, at: usize) -> Result<*const T> {
    let place = list.wrapping_add(at);
    check(name, place.addr() as u64, 8, 8)?;
    // SAFETY: it is inside an allocation, and cuBLAS documents a pointer there.
    Ok(unsafe { place.read() })
}

pub(crate) fn unsupported<T>(what: &str) -> Result<T> {
    print_message(&format!("cuBLAS: {what} is not supported"));
    Err(NOT_SUPPORTED)
}

/// What type the scalars of a call have.
#[derive(Clone, Copy)]
pub(crate) enum Scalar {
    Half,
    Single,
    Double,
    Word,
}

impl Scalar {
    /// Of a `cublasComputeType_t`.
    pub(crate) fn of(compute: c_int) -> Result<Self> {
        match compute {
            64 | 65 => Ok(Self::Half),
            68 | 69 | 74 | 75 | 77 => Ok(Self::Single),
            70 | 71 => Ok(Self::Double),
            72 | 73 => Ok(Self::Word),
            _ => unsupported(&format!("computing by type {compute}")),
        }
    }

    /// Of a `cudaDataType`.
    pub(crate) fn of_type(kind: c_int) -> Result<Self> {
        match kind {
            SINGLE => Ok(Self::Single),
            DOUBLE => Ok(Self::Double),
            HALF => Ok(Self::Half),
            WORD => Ok(Self::Word),
            _ => unsupported(&format!("factors of type {kind}")),
        }
    }

    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Half => 2,
            Self::Single | Self::Word => 4,
            Self::Double => 8,
        }
    }

    pub(crate) fn read(self, at: *const c_void) -> Result<f64> {
        Ok(match self {
            Self::Half => read(at.cast::<f16>())?.to_f64(),
            Self::Single => read(at.cast::<f32>())?.into(),
            Self::Double => read(at.cast::<f64>())?,
            Self::Word => read(at.cast::<i32>())?.into(),
        })
    }
}
