//! Loads, stores and compare-exchanges of global memory, of 1, 2, 4 or 8 bytes at any address.
//!
//! Kernels access the same bytes with different widths and from several threads. For atomic types that is
//! undefined behaviour: "non-synchronized conflicting atomic accesses may not partially overlap"
//! (documentation of `std::sync::atomic`, "Memory model for atomic accesses"). PTX defines such programs:
//! its memory is bytes, and accesses that overlap in part may tear (PTX ISA, "Memory consistency model").
//!
//! So for Rust's abstract machine each access here is a sequence of relaxed atomic accesses to single bytes:
//! all accesses to these bytes have one size, and the rule above is kept. That is what `portable` runs. On
//! x86-64 and AArch64 the same is done by one instruction in an `asm!` block. The block is sound if what the
//! hardware does is one of the executions that the bytewise code may have (R. Jung, "How to use storytelling
//! to fit inline assembly into Rust", 2026), and it is: the instruction reads or writes all bytes at one
//! moment, which is one of the interleavings. That an aligned access does not tear and that a
//! compare-exchange is atomic and orders others is more than the bytewise code promises; kernels rely on it,
//! soundness does not.

#[cfg(all(target_arch = "aarch64", not(miri), not(feature = "portable")))]
pub(super) use aarch64::{compare_exchange, load, store};
#[cfg(any(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    miri,
    feature = "portable"
))]
pub(super) use portable::{compare_exchange, load, store};
#[cfg(all(target_arch = "x86_64", not(miri), not(feature = "portable")))]
pub(super) use x86_64::{compare_exchange, load, store};

/// Bytewise, with a lock around each compare-exchange. Sanitizers see these accesses.
#[cfg(any(
    test,
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    miri,
    feature = "portable"
))]
#[cfg_attr(not(feature = "portable"), allow(dead_code))]
mod portable {
    use std::sync::atomic::{AtomicU8, Ordering};
    use std::sync::{Mutex, PoisonError};

    /// # Safety
    ///
    /// `at` is valid for reads of `width` bytes, and the process accesses them, until a synchronisation,
    /// only with the functions of this module.
    pub(in super::super) unsafe fn load(at: *const u8, width: u64) -> u64 {
        (0..width as usize).fold(0, |word, byte| {
            // SAFETY: the caller promises that the byte is valid and accessed bytewise.
            let value = unsafe { AtomicU8::from_ptr(at.add(byte).cast_mut()) };
            word | u64::from(value.load(Ordering::Relaxed)) << (8 * byte)
        })
    }

    /// # Safety
    ///
    /// As of [`load`], and `at` is valid for writes, too.
    pub(in super::super) unsafe fn store(at: *mut u8, width: u64, value: u64) {
        for byte in 0..width as usize {
            // SAFETY: the caller promises that the byte is valid and accessed bytewise.
            let to = unsafe { AtomicU8::from_ptr(at.add(byte)) };
            to.store((value >> (8 * byte)) as u8, Ordering::Relaxed);
        }
    }

    /// The value found; `new` is stored where that is `old`.
    ///
    /// # Safety
    ///
    /// As of [`store`].
    pub(in super::super) unsafe fn compare_exchange(
        at: *mut u8,
        width: u64,
        old: u64,
        new: u64,
    ) -> u64 {
        static LOCK: Mutex<()> = Mutex::new(());
        let _guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: this function's contract is that of `store`, which is no weaker than that of `load`.
        unsafe {
            let found = load(at, width);
            if found == old {
                store(at, width, new);
            }
            found
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri), not(feature = "portable")))]
mod x86_64 {
    use std::arch::asm;

    /// # Safety
    ///
    /// As of `portable::load`.
    #[inline]
    pub(in super::super) unsafe fn load(at: *const u8, width: u64) -> u64 {
        let value: u64;
        macro_rules! load {
            ($text:literal) => {
                // SAFETY: one load of `width` bytes, which the caller promises are valid. Bytewise relaxed
                // loads are its story (see the module).
                unsafe {
                    asm!($text, at = in(reg) at, value = lateout(reg) value,
                        options(readonly, nostack, preserves_flags))
                }
            };
        }
        match width {
            1 => load!("movzx {value:e}, byte ptr [{at}]"),
            2 => load!("movzx {value:e}, word ptr [{at}]"),
            4 => load!("mov {value:e}, dword ptr [{at}]"),
            _ => load!("mov {value}, qword ptr [{at}]"),
        }
        value
    }

    /// # Safety
    ///
    /// As of `portable::store`.
    #[inline]
    pub(in super::super) unsafe fn store(at: *mut u8, width: u64, value: u64) {
        macro_rules! store {
            ($text:literal, $class:ident, $T:ty) => {
                // SAFETY: one store of `width` bytes, which the caller promises are valid. Bytewise relaxed
                // stores are its story (see the module).
                unsafe {
                    asm!($text, at = in(reg) at, value = in($class) value as $T,
                        options(nostack, preserves_flags))
                }
            };
        }
        match width {
            1 => store!("mov byte ptr [{at}], {value}", reg_byte, u8),
            2 => store!("mov word ptr [{at}], {value:x}", reg, u64),
            4 => store!("mov dword ptr [{at}], {value:e}", reg, u64),
            _ => store!("mov qword ptr [{at}], {value}", reg, u64),
        }
    }

    /// # Safety
    ///
    /// As of `portable::compare_exchange`.
    #[inline]
    pub(in super::super) unsafe fn compare_exchange(
        at: *mut u8,
        width: u64,
        old: u64,
        new: u64,
    ) -> u64 {
        let mut found = old;
        macro_rules! exchange {
            ($text:literal, $class:ident, $T:ty) => {
                // SAFETY: one locked exchange of `width` bytes, which the caller promises are valid. The
                // accumulator is declared as changed, and so are the flags (no `preserves_flags`).
                // Bytewise relaxed loads, and stores where they gave `old`, are its story.
                unsafe {
                    asm!($text, at = in(reg) at, new = in($class) new as $T, inout("rax") found,
                        options(nostack))
                }
            };
        }
        match width {
            1 => exchange!("lock cmpxchg byte ptr [{at}], {new}", reg_byte, u8),
            2 => exchange!("lock cmpxchg word ptr [{at}], {new:x}", reg, u64),
            4 => exchange!("lock cmpxchg dword ptr [{at}], {new:e}", reg, u64),
            _ => exchange!("lock cmpxchg qword ptr [{at}], {new}", reg, u64),
        }
        found
    }
}

#[cfg(all(target_arch = "aarch64", not(miri), not(feature = "portable")))]
mod aarch64 {
    use std::arch::asm;

    /// # Safety
    ///
    /// As of `portable::load`.
    #[inline]
    pub(in super::super) unsafe fn load(at: *const u8, width: u64) -> u64 {
        let value: u64;
        macro_rules! load {
            ($text:literal) => {
                // SAFETY: one load of `width` bytes, which the caller promises are valid. Bytewise relaxed
                // loads are its story (see the module).
                unsafe {
                    asm!($text, at = in(reg) at, value = lateout(reg) value,
                        options(readonly, nostack, preserves_flags))
                }
            };
        }
        match width {
            1 => load!("ldrb {value:w}, [{at}]"),
            2 => load!("ldrh {value:w}, [{at}]"),
            4 => load!("ldr {value:w}, [{at}]"),
            _ => load!("ldr {value:x}, [{at}]"),
        }
        value
    }

    /// # Safety
    ///
    /// As of `portable::store`.
    #[inline]
    pub(in super::super) unsafe fn store(at: *mut u8, width: u64, value: u64) {
        macro_rules! store {
            ($text:literal) => {
                // SAFETY: one store of `width` bytes, which the caller promises are valid. Bytewise relaxed
                // stores are its story (see the module).
                unsafe {
                    asm!($text, at = in(reg) at, value = in(reg) value,
                        options(nostack, preserves_flags))
                }
            };
        }
        match width {
            1 => store!("strb {value:w}, [{at}]"),
            2 => store!("strh {value:w}, [{at}]"),
            4 => store!("str {value:w}, [{at}]"),
            _ => store!("str {value:x}, [{at}]"),
        }
    }

    /// # Safety
    ///
    /// As of `portable::compare_exchange`.
    #[inline]
    pub(in super::super) unsafe fn compare_exchange(
        at: *mut u8,
        width: u64,
        old: u64,
        new: u64,
    ) -> u64 {
        let found: u64;
        macro_rules! exchange {
            ($suffix:literal, $size:literal) => {
                // SAFETY: exclusive loads and stores of `width` bytes, which the caller promises are
                // valid. Outputs are not `lateout`: inputs are read after the first is written. The flags
                // are not declared as preserved. Bytewise relaxed loads, and stores where they gave `old`,
                // are its story.
                unsafe {
                    asm!(
                        concat!("2: ldaxr", $suffix, " {found:", $size, "}, [{at}]"),
                        concat!("cmp {found:", $size, "}, {old:", $size, "}"),
                        "b.ne 3f",
                        concat!("stlxr", $suffix, " {status:w}, {new:", $size, "}, [{at}]"),
                        "cbnz {status:w}, 2b",
                        "3: clrex",
                        at = in(reg) at,
                        old = in(reg) old,
                        new = in(reg) new,
                        found = out(reg) found,
                        status = out(reg) _,
                        options(nostack),
                    )
                }
            };
        }
        match width {
            1 => exchange!("b", "w"),
            2 => exchange!("h", "w"),
            4 => exchange!("", "w"),
            _ => exchange!("", "x"),
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every function against the bytewise one, at each offset of a buffer.
    #[test]
    fn accesses_do_what_the_bytewise_ones_do() {
        const VALUE: u64 = 0xf1e2_d3c4_b5a6_9788;
        for width in [1, 2, 4, 8] {
            let keep = if width == 8 { u64::MAX } else { (1 << (8 * width)) - 1 };
            for offset in (0..16 - width as usize).step_by(width as usize) {
                let mut bytes: [[u8; 16]; 2] = [std::array::from_fn(|at| at as u8 | 0x80); 2];
                let [here, there] = &mut bytes;
                let (a, b) = (here.as_mut_ptr(), there.as_mut_ptr());
                // SAFETY: `offset + width` is inside both buffers, which only this thread accesses.
                unsafe {
                    let (a, b) = (a.add(offset), b.add(offset));
                    let before = load(a, width);
                    assert_eq!(before, portable::load(b, width));
                    for old in [before, before ^ 1] {
                        let found = compare_exchange(a, width, old, VALUE & keep);
                        assert_eq!(found, portable::compare_exchange(b, width, old, VALUE & keep));
                        assert_eq!(load(a, width), portable::load(b, width));
                    }
                    store(a, width, !VALUE);
                    portable::store(b, width, !VALUE);
                }
                assert_eq!(bytes[0], bytes[1], "{width} bytes at {offset}");
            }
        }
    }
}
