//! Methods of the host: semaphores, and waiting for the engines, which are never behind.
//! (`clc56f.h`; class 0xC76F has the same, and the headers of Hopper's and newer ones show a part of it.)

use super::engine::{Bus, Fault, Interrupt, Outcome, Step};
use nvabi::tegra::class::host::*;

/// Compares what a pushbuffer's check is with what it should be (`clc46f.h`).
const CRC_CHECK: u32 = 0x7c;

/// Asks for nothing that programs see (`nvidia-uvm/clc56f.h`, `clc86f.h`).
const QUADRO_VERIFY: u32 = 0xa0;

/// What the methods before have said.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// SEMAPHOREA to C: the older way.
    old: [u32; 3],
    address: [u32; 2],
    payload: [u32; 2],
    /// Whether semaphores have 57 bits of an address, as Hopper's and newer ones, or 40.
    is_wide: bool,
    /// Whether it has CRC_CHECK, as Turing's and older ones.
    has_crc: bool,
}

impl Host {
    /// That of a channel of a class (NVC86F_SEM_ADDR_HI_OFFSET and its like).
    pub(super) fn of_class(class: u32) -> Self {
        /// HOPPER_CHANNEL_GPFIFO_A.
        const HOPPER: u32 = 0xc86f;
        /// TURING_CHANNEL_GPFIFO_A.
        const TURING: u32 = 0xc46f;
        Self { is_wide: class >= HOPPER, has_crc: class <= TURING, ..Self::default() }
    }

    /// Whether addresses have more than 40 bits.
    pub(super) fn is_wide(&self) -> bool {
        self.is_wide
    }

    pub(super) fn call(&mut self, bus: &mut Bus<'_>, method: u32, data: u32) -> Outcome {
        match method {
            ILLEGAL => return Err(Fault::Commands("ILLEGAL".to_owned())),
            SEMAPHOREA => self.old[0] = data,
            SEMAPHOREB => self.old[1] = data,
            SEMAPHOREC => self.old[2] = data,
            SEMAPHORED => return self.old_semaphore(bus, data),
            SEM_ADDR_LO => self.address[0] = data & !3,
            SEM_ADDR_HI => self.address[1] = data & if self.is_wide { 0x1ff_ffff } else { 0xff },
            SEM_PAYLOAD_LO => self.payload[0] = data,
            SEM_PAYLOAD_HI => self.payload[1] = data,
            SEM_EXECUTE => return self.semaphore(bus, data),
            // The engines are never behind, and nobody looks at the rest.
            NON_STALL_INTERRUPT => {
                bus.interrupts.insert(Interrupt::Host);
            }
            NOP | FB_FLUSH | MEM_OP_A..=MEM_OP_D => {}
            SET_REFERENCE | WFI | YIELD | CLEAR_FAULTED | QUADRO_VERIFY => {}
            CRC_CHECK if self.has_crc => {}
            _ => return Err(Fault::Commands(format!("the host has no method {method:#04x}"))),
        }
        Ok(Step::Done)
    }

    /// SEM_EXECUTE.
    fn semaphore(&self, bus: &mut Bus<'_>, execute: u32) -> Outcome {
        let at = u64::from(self.address[1]) << 32 | u64::from(self.address[0]);
        let is_wide = execute >> 24 & 1 != 0;
        let mut payload = u64::from(self.payload[0]);
        if is_wide {
            payload |= u64::from(self.payload[1]) << 32;
        }
        let operation = execute & 7;
        if operation == SEM_EXECUTE_RELEASE {
            return release(bus, at, payload, is_wide, execute >> 25 & 1 != 0);
        }
        let value = bus.payload(at, is_wide)?;
        if operation == 6 {
            let reduction = Reduction::of(execute >> 27 & 0xf, is_wide, execute >> 31 == 0);
            bus.release(at, reduction.of_values(value, payload)?, is_wide)?;
            return Ok(Step::Done);
        }
        let is_behind = |bits: u32| value.wrapping_sub(payload) >> (bits - 1) & 1 != 0;
        let passes = match operation {
            0 => value == payload,
            2 => value >= payload,
            SEM_EXECUTE_ACQ_CIRC_GEQ => !is_behind(if is_wide { 64 } else { 32 }),
            4 => value & payload != 0,
            5 => value | payload != if is_wide { u64::MAX } else { u32::MAX.into() },
            other => return Err(Fault::Commands(format!("semaphore operation {other}"))),
        };
        Ok(if passes { Step::Done } else { Step::Again })
    }

    /// SEMAPHORED.
    fn old_semaphore(&self, bus: &mut Bus<'_>, execute: u32) -> Outcome {
        let at = u64::from(self.old[0] & 0xff) << 32 | u64::from(self.old[1] & !3);
        let payload = self.old[2];
        let passes = match execute & 0x1f {
            1 => bus.load(at)? == payload,
            2 => return release(bus, at, payload.into(), false, execute >> 24 & 1 == 0),
            4 => !bus.load(at)?.wrapping_sub(payload) >> 31 != 0,
            8 => bus.load(at)? & payload != 0,
            0x10 => {
                let reduction = Reduction::of(execute >> 27 & 0xf, false, execute >> 31 == 0);
                let value = bus.payload(at, false)?;
                bus.release(at, reduction.of_values(value, payload.into())?, false)?;
                return Ok(Step::Done);
            }
            other => return Err(Fault::Commands(format!("semaphore operation {other}"))),
        };
        Ok(if passes { Step::Done } else { Step::Again })
    }
}

fn release(bus: &mut Bus<'_>, at: u64, payload: u64, is_wide: bool, with_time: bool) -> Outcome {
    match with_time {
        true => bus.release_with_time(at, payload)?,
        false => bus.release(at, payload, is_wide)?,
    }
    Ok(Step::Done)
}

/// What becomes of a semaphore's value and an operand: minimum, maximum, xor, and, or, sum, up with wrap, down with
/// wrap.
pub(super) struct Reduction {
    operation: u32,
    is_wide: bool,
    is_signed: bool,
}

impl Reduction {
    /// As the host and copies count the operations.
    pub(super) fn of(operation: u32, is_wide: bool, is_signed: bool) -> Self {
        Self { operation, is_wide, is_signed }
    }

    /// As the compute class does: sum, minimum, maximum, up, down, and, or, xor.
    pub(super) fn of_compute(operation: u32, is_wide: bool, is_signed: bool) -> Self {
        const HOST: [u32; 8] = [5, 0, 1, 6, 7, 3, 4, 2];
        Self::of(HOST[operation as usize & 7], is_wide, is_signed)
    }

    fn is_less(&self, value: u64, operand: u64) -> bool {
        match (self.is_signed, self.is_wide) {
            (true, true) => (value as i64) < operand as i64,
            (true, false) => (value as i32) < operand as i32,
            (false, _) => value < operand,
        }
    }

    pub(super) fn of_values(&self, value: u64, operand: u64) -> Outcome<u64> {
        let is_less = self.is_less(value, operand);
        Ok(match self.operation {
            0 if is_less => value,
            1 if !is_less => value,
            0 | 1 => operand,
            2 => value ^ operand,
            3 => value & operand,
            4 => value | operand,
            5 => value.wrapping_add(operand),
            6 if value >= operand => 0,
            6 => value + 1,
            7 if value == 0 || value > operand => operand,
            7 => value - 1,
            other => return Err(Fault::Unsupported(format!("semaphore reduction {other}"))),
        })
    }
}
