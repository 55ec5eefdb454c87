//! The compute engine, class 0xC7C0 and newer: data that comes in the stream itself, semaphores, and launches.
//! (`clc7c0.h`; 0xA140 has the same way to load data.)

use super::engine::{Bus, Fault, Interrupt, Outcome, Step};
use super::host::Reduction;
use super::launch::{Launches, Object};
use super::methods::{END, is_defined};
use super::qmd::Action;
use super::texture::{Pool, Pools};
use nvabi::tegra::class::compute::*;

/// LOAD_INLINE_QMD_DATA: the words of a description that comes in the stream, of which the last one launches it. It has
/// 96 words where SET_INLINE_QMD_ADDRESS_A says so (`clcbc0.h`, INLINE_SIZE).
const INLINE_QMD: u32 = 0x320;
const INLINE_QMD_LAST: [u32; 2] = [INLINE_QMD + 63 * 4, INLINE_QMD + 95 * 4];
const INLINE_IS_LONG: u32 = 1 << 30;

/// A notification: where it goes, and that it goes there now, with an interrupt or without.
const SET_NOTIFY_A: u32 = 0x104;
const NOTIFY: u32 = 0x10c;
const NOTIFY_AWAKENS: u32 = 1;

/// Where textures have their samplers and headers: address, and number of the last.
const SET_TEX_SAMPLER_POOL_A: u32 = 0x155c;
const SET_TEX_HEADER_POOL_A: u32 = 0x1574;
/// Which version headers have, from HOPPER_COMPUTE_A on.
const SET_TEXTURE_HEADER_VERSION: u32 = 0x7ac;

/// What becomes of a semaphore: an interrupt and nothing else, by which libcuda wakes who waits without spinning.
const TRAP: u32 = 3;

/// Largest piece of data that comes in a stream: a pushbuffer holds no more.
const MAX_INLINE: u64 = 8 << 20;

/// The engine: what its methods were given, and the data that is coming.
#[derive(Debug, Default)]
pub(super) struct Compute {
    values: Vec<u32>,
    inline: Option<Inline>,
    launches: Launches,
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
    /// Whether a launch has ended and others follow.
    pub(super) fn has_gone_on(&mut self) -> bool {
        self.launches.has_gone_on()
    }

    /// Whether a kernel runs.
    pub(super) fn is_running(&self) -> bool {
        self.launches.is_running()
    }

    /// What it was doing is over.
    pub(super) fn stop(&mut self) {
        self.inline = None;
        self.launches.stop();
    }

    pub(super) fn call(
        &mut self,
        bus: &mut Bus<'_>,
        class: u32,
        method: u32,
        data: u32,
    ) -> Outcome {
        if self.is_running() {
            return self.launches.go_on(bus, &self.object(class));
        }
        if !is_defined(class, method) {
            let text = format!("class {class:#06x} has no method {method:#06x}");
            return Err(Fault::Method(text));
        }
        self.values.resize(END as usize / 4, 0);
        self.values[method as usize / 4] = data;
        match method {
            NOTIFY => self.notify(bus, data)?,
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
            SEND_SIGNALING_PCAS_B if data & 2 != 0 => {
                return self.launch(bus, class, Action::Launch);
            }
            SEND_SIGNALING_PCAS2_B => {
                if let Some(action) = Action::of_pcas(data & 0xf) {
                    return self.launch(bus, class, action);
                }
            }
            SEND_PCAS_B if data != 0 => return self.launch(bus, class, Action::Launch),
            _ if method == self.inline_last() => return self.launch_inline(bus, class),
            // Everything else is state of the shaders.
            _ => {}
        }
        Ok(Step::Done)
    }

    /// What launches take from the object as it is now.
    fn object(&self, class: u32) -> Object {
        let pool = |first: u32| Pool {
            address: u64::from(self.value(first)) << 32 | u64::from(self.value(first + 4)),
            last: self.value(first + 8),
        };
        let (headers, samplers) = (pool(SET_TEX_HEADER_POOL_A), pool(SET_TEX_SAMPLER_POOL_A));
        let version = self.value(SET_TEXTURE_HEADER_VERSION);
        Object { class, pools: Pools { headers, samplers, version } }
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
        // LAUNCH_DMA_INTERRUPT_TYPE.
        if launch >> 8 & 3 == 1 {
            bus.interrupts.insert(Interrupt::Graphics);
        }
        Ok(())
    }

    /// NOTIFY: the time, and that it went well (NvNotification of `nvgputypes.h`).
    fn notify(&self, bus: &mut Bus<'_>, how: u32) -> Outcome<()> {
        let mut notification = [0; 16];
        notification[..8].copy_from_slice(&bus.time().to_le_bytes());
        bus.write(self.address(SET_NOTIFY_A), &notification)?;
        if how == NOTIFY_AWAKENS {
            bus.interrupts.insert(Interrupt::Graphics);
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
                let reduction =
                    Reduction::of_compute(execute >> 7 & 7, is_wide, execute >> 10 & 3 == 1);
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
        if execute & 3 == TRAP || execute >> 2 & 1 != 0 {
            bus.interrupts.insert(Interrupt::Graphics);
        }
        Ok(Step::Done)
    }

    /// `SET_REPORT_SEMAPHORE_D`.
    fn report(&self, bus: &mut Bus<'_>, report: u32) -> Outcome<()> {
        if report & 3 == TRAP {
            bus.interrupts.insert(Interrupt::Graphics);
        }
        if report & 3 != 0 {
            return Ok(());
        }
        let at = self.address(SET_REPORT_SEMAPHORE_A);
        let mut payload = u64::from(self.value(SET_REPORT_SEMAPHORE_A + 8));
        if report >> 3 & 1 != 0 {
            let reduction = Reduction::of_compute(report >> 9 & 7, false, report >> 17 & 3 == 1);
            payload = reduction.of_values(bus.payload(at, false)?, payload)?;
        }
        release(bus, at, payload, report >> 28 & 1 != 0)?;
        if report >> 20 & 1 != 0 {
            bus.interrupts.insert(Interrupt::Graphics);
        }
        Ok(())
    }

    /// The last word of a description that comes in the stream.
    fn inline_last(&self) -> u32 {
        INLINE_QMD_LAST[usize::from(self.value(SET_INLINE_QMD_ADDRESS_A) & INLINE_IS_LONG != 0)]
    }

    fn inline_address(&self) -> u64 {
        self.address(SET_INLINE_QMD_ADDRESS_A) << 8
    }

    /// The description has come: it is written to memory, and launched.
    fn launch_inline(&mut self, bus: &mut Bus<'_>, class: u32) -> Outcome {
        let words = &self.values[INLINE_QMD as usize / 4..=self.inline_last() as usize / 4];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let address = self.inline_address();
        bus.write(address, &bytes)?;
        self.launches.start(bus, &self.object(class), Action::Load, address)
    }

    fn launch(&mut self, bus: &mut Bus<'_>, class: u32, action: Action) -> Outcome {
        let at = match self.value(SEND_PCAS_A) {
            0 => self.inline_address(),
            shifted => u64::from(shifted) << 8,
        };
        self.launches.start(bus, &self.object(class), action, at)
    }
}

/// A report: a word, or a payload and the time.
fn release(bus: &mut Bus<'_>, at: u64, payload: u64, is_word: bool) -> Outcome<()> {
    match is_word {
        true => bus.release(at, payload, false),
        false => bus.release_with_time(at, payload),
    }
}
