//! The compute engine, class 0xC7C0: data that comes in the stream itself, semaphores, and launches,
//! which are decoded and not executed. (`clc7c0.h`; 0xA140 has the same way to load data.)

use super::engine::{Bus, Fault, Outcome, Step};
use super::host::Reduction;
use nvabi::tegra::class::compute::*;

/// Behind the last method.
const END: u32 = 0x4000;

/// LOAD_INLINE_QMD_DATA: the words of a description that comes in the stream, of which the last one launches it.
const INLINE_QMD: u32 = 0x320;
const INLINE_QMD_END: u32 = INLINE_QMD + 63 * 4;

/// Largest piece of data that comes in a stream: a pushbuffer holds no more.
const MAX_INLINE: u64 = 8 << 20;

/// The engine: what its methods were given, and the data that is coming.
#[derive(Debug, Default)]
pub(super) struct Compute {
    values: Vec<u32>,
    inline: Option<Inline>,
}

/// Lines of bytes, where the next of them goes, and what has come of it.
#[derive(Debug)]
struct Inline {
    launch: u32,
    line: usize,
    lines: u32,
    to: u64,
    pitch: u64,
    bytes: Vec<u8>,
}

impl Compute {
    pub(super) fn call(&mut self, bus: &mut Bus<'_>, method: u32, data: u32) -> Outcome {
        if method >= END {
            return Err(Fault::Commands(format!("compute method {method:#06x}")));
        }
        self.values.resize(END as usize / 4, 0);
        self.values[method as usize / 4] = data;
        match method {
            REPORT_SEMAPHORE_EXECUTE => return self.semaphore(bus, data),
            LAUNCH_DMA => self.begin_inline(bus, data)?,
            LOAD_INLINE_DATA => self.load_inline(bus, data)?,
            SET_REPORT_SEMAPHORE_D => self.report(bus, data)?,
            SET_SHADER_SHARED_MEMORY_WINDOW_B => {
                bus.windows.push((self.address(SET_SHADER_SHARED_MEMORY_WINDOW_A), "shared memory"))
            }
            SET_SHADER_LOCAL_MEMORY_WINDOW_B => {
                bus.windows.push((self.address(SET_SHADER_LOCAL_MEMORY_WINDOW_A), "local memory"))
            }
            SEND_SIGNALING_PCAS_B if data & 2 != 0 => return Err(self.launch(bus)),
            SEND_SIGNALING_PCAS2_B if ![0, 1, 6, 7, 8, 12, 13].contains(&(data & 0xf)) => {
                return Err(self.launch(bus));
            }
            SEND_PCAS_B if data != 0 => return Err(self.launch(bus)),
            // The last word of a description in the stream: it is written to memory, and launched.
            INLINE_QMD_END => {
                let address = self.address(SET_INLINE_QMD_ADDRESS_A) << 8;
                let words = &self.values[INLINE_QMD as usize / 4..=INLINE_QMD_END as usize / 4];
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                bus.write(address, &bytes)?;
                return Err(launch_at(bus, address));
            }
            // Everything else is state of the shaders, which never run.
            _ => {}
        }
        Ok(Step::Done)
    }

    fn value(&self, method: u32) -> u32 {
        self.values.get(method as usize / 4).copied().unwrap_or(0)
    }

    /// Two methods that are one address, the upper part first.
    fn address(&self, method: u32) -> u64 {
        u64::from(self.value(method) & 0x1_ffff) << 32 | u64::from(self.value(method + 4))
    }

    fn begin_inline(&mut self, bus: &mut Bus<'_>, launch: u32) -> Outcome<()> {
        let (line, lines) = (self.value(LINE_LENGTH_IN), self.value(LINE_COUNT));
        if launch & 1 == 0 && lines > 1 {
            return Err(Fault::Unsupported("inline data to a block-linear surface".to_owned()));
        }
        let size = u64::from(line) * u64::from(lines);
        if size > MAX_INLINE {
            return Err(Fault::Commands(format!("{size} bytes of inline data")));
        }
        if size == 0 {
            return self.finish_inline(bus, launch);
        }
        self.inline = Some(Inline {
            launch,
            line: line as usize,
            lines,
            to: self.address(OFFSET_OUT_UPPER),
            pitch: self.value(PITCH_OUT) as i32 as u64,
            bytes: Vec::new(),
        });
        Ok(())
    }

    /// A line is written when all of it has come; each begins with a new word.
    fn load_inline(&mut self, bus: &mut Bus<'_>, data: u32) -> Outcome<()> {
        let Some(mut inline) = self.inline.take() else {
            return Err(Fault::Commands("inline data that nothing waits for".to_owned()));
        };
        inline.bytes.extend(data.to_le_bytes());
        if let Some(line) = inline.bytes.get(..inline.line) {
            bus.write(inline.to, line)?;
            inline.bytes.clear();
            inline.to = inline.to.wrapping_add(inline.pitch);
            inline.lines -= 1;
        }
        if inline.lines == 0 {
            return self.finish_inline(bus, inline.launch);
        }
        self.inline = Some(inline);
        Ok(())
    }

    fn finish_inline(&self, bus: &mut Bus<'_>, launch: u32) -> Outcome<()> {
        if launch >> 4 & 3 == 2 {
            let at = self.address(SET_I2M_SEMAPHORE_A);
            let payload = self.value(SET_I2M_SEMAPHORE_A + 8);
            let is_word = launch >> 12 & 1 != 0;
            release(bus, at, payload.into(), is_word)?;
        }
        Ok(())
    }

    /// REPORT_SEMAPHORE_EXECUTE.
    fn semaphore(&self, bus: &mut Bus<'_>, execute: u32) -> Outcome {
        let at = u64::from(self.value(SET_REPORT_SEMAPHORE_ADDRESS_LOWER + 4) & 0xff) << 32
            | u64::from(self.value(SET_REPORT_SEMAPHORE_ADDRESS_LOWER));
        let mut payload = u64::from(self.value(SET_REPORT_SEMAPHORE_PAYLOAD_LOWER));
        let is_wide = execute >> 12 & 1 != 0;
        if is_wide {
            payload |= u64::from(self.value(SET_REPORT_SEMAPHORE_PAYLOAD_LOWER + 4)) << 32;
        }
        match execute & 3 {
            0 if execute >> 6 & 1 != 0 => {
                let reduction = reduction(execute >> 7 & 7, is_wide, execute >> 10 & 3 == 1);
                payload = reduction.of_values(bus.payload(at, is_wide)?, payload)?;
                bus.release(at, payload, is_wide)?;
            }
            0 => match execute >> 3 & 3 {
                0 => bus.release_with_time(at, payload)?,
                words => bus.release(at, payload, is_wide || words != 1)?,
            },
            1 if bus.payload(at, is_wide)? != payload => return Ok(Step::Again),
            _ => {}
        }
        Ok(Step::Done)
    }

    /// `SET_REPORT_SEMAPHORE_D`.
    fn report(&self, bus: &mut Bus<'_>, report: u32) -> Outcome<()> {
        if report & 3 != 0 {
            return Ok(());
        }
        let at = self.address(SET_REPORT_SEMAPHORE_A);
        let mut payload = u64::from(self.value(SET_REPORT_SEMAPHORE_A + 8));
        if report >> 3 & 1 != 0 {
            let reduction = reduction(report >> 9 & 7, false, report >> 17 & 3 == 1);
            payload = reduction.of_values(bus.payload(at, false)?, payload)?;
        }
        release(bus, at, payload, report >> 28 & 1 != 0)
    }

    /// A kernel would start: what it is, and that it does not run.
    fn launch(&self, bus: &Bus<'_>) -> Fault {
        let at = match self.value(SEND_PCAS_A) {
            0 => self.address(SET_INLINE_QMD_ADDRESS_A) << 8,
            shifted => u64::from(shifted) << 8,
        };
        launch_at(bus, at)
    }
}

fn launch_at(bus: &Bus<'_>, at: u64) -> Fault {
    match Qmd::read(bus, at) {
        Ok(qmd) => Fault::Unsupported(format!("compute launch at {at:#x} is not executed: {qmd}")),
        Err(fault) => fault,
    }
}

/// A report: a word, or a payload and the time.
fn release(bus: &mut Bus<'_>, at: u64, payload: u64, is_word: bool) -> Outcome<()> {
    match is_word {
        true => bus.release(at, payload, false),
        false => bus.release_with_time(at, payload),
    }
}

/// The compute class counts its reductions differently: sum, minimum, maximum, up, down, and, or, xor.
fn reduction(operation: u32, is_wide: bool, is_signed: bool) -> Reduction {
    const HOST: [u32; 8] = [5, 0, 1, 6, 7, 3, 4, 2];
    Reduction::of(HOST[operation as usize & 7], is_wide, is_signed)
}

/// Of these versions the fields have the places that are read here; Hopper's are others.
const KNOWN_QMD: std::ops::RangeInclusive<u32> = 2..=3;

/// What a launch says of itself; the fields whose places all versions from 2.2 to 3.0 share.
struct Qmd {
    version: (u32, u32),
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    registers: u32,
    /// Banks of constants: number and bytes.
    constants: Vec<(usize, u32)>,
}

impl Qmd {
    fn read(bus: &Bus<'_>, at: u64) -> Outcome<Self> {
        let mut bytes = [0; 256];
        bus.read(at, &mut bytes)?;
        let field = |high: usize, low: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[low / 32 * 4..low / 32 * 4 + 8]);
            let bits = u64::from_le_bytes(word) >> (low % 32);
            (bits & (u64::MAX >> (63 - (high - low)))) as u32
        };
        Ok(Self {
            version: (field(583, 580), field(579, 576)),
            grid: [field(415, 384), field(431, 416), field(463, 448)],
            block: [field(607, 592), field(623, 608), field(639, 624)],
            shared: field(561, 544),
            registers: field(656, 648),
            constants: (0..8)
                .filter(|bank| field(640 + bank, 640 + bank) != 0)
                .map(|bank| (bank, field(1087 + bank * 64, 1075 + bank * 64) << 4))
                .collect(),
        })
    }
}

impl std::fmt::Display for Qmd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "QMD {}.{}", self.version.0, self.version.1)?;
        if !KNOWN_QMD.contains(&self.version.0) {
            return Ok(());
        }
        let [x, y, z] = self.grid;
        let [i, j, k] = self.block;
        write!(
            f,
            ", grid {x}x{y}x{z}, block {i}x{j}x{k}, {} bytes of shared memory, {} registers",
            self.shared, self.registers
        )?;
        let names = self.constants.iter().map(|(bank, bytes)| format!("{bank}: {bytes} bytes"));
        let names: Vec<String> = names.collect();
        if names.is_empty() { Ok(()) } else { write!(f, ", constants {}", names.join(", ")) }
    }
}
