//! The copy engine, class 0xC7B5: lines of bytes or surfaces of blocks, with or without the components of their
//! pixels taken apart. (`clc7b5.h`.)

use super::engine::{Bus, Fault, Interrupt, Outcome, Step};
use super::host::Reduction;
use super::surface::{Layout, Surface};
use nvabi::tegra::class::copy::*;
use nvabi_emu::Blocks;

/// Behind the last method that is kept.
const END: u32 = 0x800;
/// PM_TRIGGER_END, which is behind it.
const PM_TRIGGER_END: u32 = 0x1114;

/// A surface of blocks: SET_DST_BLOCK_SIZE and what follows it, and the same of the source.
const DST_BLOCKS: u32 = 0x70c;
const SRC_BLOCKS: u32 = 0x728;
/// Behind the size of a block: bytes of a line, lines, the layer, and where the copy begins in one word.
const WIDTH: u32 = 4;
const HEIGHT: u32 = 8;
const LAYER: u32 = 0x10;
const ORIGIN: u32 = 0x14;
/// Where it begins in two words, which newer classes have: SRC_ORIGIN_X, DST_ORIGIN_X; Y follows.
const SRC_ORIGIN: u32 = 0x744;
const DST_ORIGIN: u32 = 0x74c;
/// LAUNCH_DMA_SRC_MEMORY_LAYOUT and LAUNCH_DMA_DST_MEMORY_LAYOUT: lines with a pitch.
const SRC_PITCH: u32 = 1 << 7;
const DST_PITCH: u32 = 1 << 8;

/// Bytes that are moved at once, and pixels.
const CHUNK: u64 = 1 << 18;
const PIXELS: u64 = 1 << 12;

/// Whether a class has a method: the union of the classes' headers up to its own (`cla0b5.h` to `clcab5.h`, the copies
/// in `nvidia-uvm` with those of the SDK). Those of Hopper and newer show a part of what the classes have, and what is
/// older is in them.
fn is_defined(class: u32, method: u32) -> bool {
    const VOLTA: u32 = 0xc3b5;
    const TURING: u32 = 0xc5b5;
    const AMPERE_B: u32 = 0xc7b5;
    const HOPPER: u32 = 0xc8b5;
    const BLACKWELL_B: u32 = 0xcab5;
    if method & 3 != 0 {
        return false;
    }
    let first = match method {
        0x100 | 0x140 | 0x240..=0x248 | 0x254..=0x264 | LAUNCH_DMA | 0x400..=0x41c => 0,
        0x700..=0x720 | 0x728..=0x73c | PM_TRIGGER_END => 0,
        SRC_ORIGIN..=0x750 => VOLTA,
        0x280..=0x28c => TURING,
        0x21c..=0x224 | 0x24c => AMPERE_B,
        0x500..=0x518 | 0x530..=0x53c | 0x6fc => HOPPER,
        0x754 => BLACKWELL_B,
        _ => return false,
    };
    class >= first
}

/// The engine: what its methods were given, and the copy that is under way.
#[derive(Debug, Default)]
pub(super) struct Copy {
    values: Vec<u32>,
    job: Option<Job>,
}

#[derive(Debug, Clone)]
struct Job {
    from: Surface,
    to: Surface,
    /// Bytes of a line, or pixels of one that is taken apart.
    length: u64,
    lines: u64,
    remap: Option<Remap>,
    line: u64,
    done: u64,
}

/// How the components of a pixel are put together.
#[derive(Debug, Clone)]
struct Remap {
    components: Vec<u32>,
    constants: [u32; 2],
    size: usize,
    sources: usize,
}

impl Copy {
    pub(super) fn is_running(&self) -> bool {
        self.job.is_some()
    }

    pub(super) fn stop(&mut self) {
        self.job = None;
    }

    pub(super) fn call(
        &mut self,
        bus: &mut Bus<'_>,
        class: u32,
        method: u32,
        data: u32,
    ) -> Outcome {
        if method == LAUNCH_DMA {
            return self.launch(bus, data);
        }
        if !is_defined(class, method) {
            let text = format!("copy class {class:#06x} has no method {method:#06x}");
            return Err(Fault::Method(text));
        }
        if method >= END {
            return Ok(Step::Done);
        }
        if self.values.is_empty() {
            self.values.resize(END as usize / 4, 0);
            self.values[SET_RENDER_ENABLE_C as usize / 4] = 1;
        }
        self.values[method as usize / 4] = data;
        // The older word for where a surface begins and the newer two are one thing.
        for (blocks, origin) in [(SRC_BLOCKS, SRC_ORIGIN), (DST_BLOCKS, DST_ORIGIN)] {
            if method == blocks + ORIGIN {
                self.values[origin as usize / 4] = data & 0xffff;
                self.values[origin as usize / 4 + 1] = data >> 16;
            }
        }
        Ok(Step::Done)
    }

    fn value(&self, method: u32) -> u32 {
        self.values.get(method as usize / 4).copied().unwrap_or(0)
    }

    /// Two methods that are one address.
    fn address(&self, method: u32) -> u64 {
        u64::from(self.value(method) & 0x1_ffff) << 32 | u64::from(self.value(method + 4))
    }

    /// Begins a copy, or goes on with it; then the semaphore.
    fn launch(&mut self, bus: &mut Bus<'_>, launch: u32) -> Outcome {
        let job = match self.job.take() {
            Some(job) => Some(job),
            None => self.begin(launch)?,
        };
        if let Some(mut job) = job {
            if !job.turn(bus)? {
                self.job = Some(job);
                return Ok(Step::Again);
            }
        }
        self.release(bus, launch)?;
        // LAUNCH_DMA_INTERRUPT_TYPE_NON_BLOCKING.
        if launch >> 5 & 3 == 2 {
            bus.interrupts.insert(Interrupt::Copy);
        }
        Ok(Step::Done)
    }

    fn begin(&self, launch: u32) -> Outcome<Option<Job>> {
        if launch & 3 == 0 || self.value(SET_RENDER_ENABLE_C) & 7 == 0 {
            return Ok(None);
        }
        let bit = |bit: u32| launch >> bit & 1 != 0;
        if bit(12) || bit(13) {
            return Err(Fault::Unsupported("copy of physical addresses".to_owned()));
        }
        let remap = (launch & REMAP != 0).then(|| self.remap());
        // A surface's width and where a copy begins in it count pixels, where those are taken apart.
        let (pixel_in, pixel_out) = remap.as_ref().map_or((1, 1), Remap::pixels);
        let from = match launch & SRC_PITCH {
            0 => self.blocks(SRC_BLOCKS, SRC_ORIGIN, pixel_in)?,
            // A pitch may go backwards.
            _ => Layout::Pitch(self.value(PITCH_IN) as i32 as u64),
        };
        let to = match launch & DST_PITCH {
            0 => self.blocks(DST_BLOCKS, DST_ORIGIN, pixel_out)?,
            _ => Layout::Pitch(self.value(PITCH_OUT) as i32 as u64),
        };
        Ok(Some(Job {
            from: Surface { address: self.address(OFFSET_IN_UPPER), layout: from },
            to: Surface { address: self.address(OFFSET_OUT_UPPER), layout: to },
            length: self.value(LINE_LENGTH_IN).into(),
            lines: if launch & MULTI_LINE != 0 { self.value(LINE_COUNT).into() } else { 1 },
            remap,
            line: 0,
            done: 0,
        }))
    }

    /// The surface that methods from one on describe.
    fn blocks(&self, first: u32, origin: u32, pixel: u64) -> Outcome<Layout> {
        /// GOB_HEIGHT_FERMI_8, and the most of SIXTEEN_GOBS or THIRTYTWO_GOBS.
        const FERMI: u32 = 1;
        const HIGHEST: u32 = 5;
        let size = self.value(first);
        let (wide, height_log, depth_log) = (size & 0xf, size >> 4 & 0xf, size >> 8 & 0xf);
        if size >> 12 & 0xf != FERMI || wide != 0 || height_log > HIGHEST || depth_log > HIGHEST {
            return Err(Fault::Unsupported(format!("copy of blocks of the size {size:#x}")));
        }
        let value = |at: u32| u64::from(self.value(at));
        let (width, height) = (value(first + WIDTH) * pixel, value(first + HEIGHT));
        let begins = [value(origin) * pixel, value(origin + 4), value(first + LAYER)];
        Ok(Layout::Blocks(Blocks { height_log, depth_log, width, height }, begins))
    }

    fn remap(&self) -> Remap {
        let how = self.value(SET_REMAP_COMPONENTS);
        let count = (how >> 24 & 3) + 1;
        Remap {
            components: (0..count).map(|index| how >> (index * 4) & 7).collect(),
            constants: [self.value(SET_REMAP_CONST_A), self.value(SET_REMAP_CONST_B)],
            size: (how >> 16 & 3) as usize + 1,
            sources: (how >> 20 & 3) as usize + 1,
        }
    }

    fn release(&self, bus: &mut Bus<'_>, launch: u32) -> Outcome<()> {
        let kind = launch >> 3 & 3;
        if kind == 0 {
            return Ok(());
        }
        let at = self.address(SET_SEMAPHORE_A);
        let is_wide = launch >> 27 & 1 != 0;
        let mut payload = u64::from(self.value(SET_SEMAPHORE_PAYLOAD));
        if is_wide {
            payload |= u64::from(self.value(SET_SEMAPHORE_PAYLOAD + 4)) << 32;
        }
        if launch >> 19 & 1 != 0 {
            let reduction = Reduction::of(launch >> 14 & 0xf, is_wide, launch >> 18 & 1 == 0);
            payload = reduction.of_values(bus.payload(at, is_wide)?, payload)?;
        }
        match kind {
            2 => bus.release_with_time(at, payload),
            _ => bus.release(at, payload, is_wide),
        }
    }
}

impl Job {
    /// A turn's worth of bytes; whether that was the rest.
    fn turn(&mut self, bus: &mut Bus<'_>) -> Outcome<bool> {
        let chunk = if self.remap.is_some() { PIXELS } else { CHUNK };
        while self.line < self.lines && self.length > 0 {
            let part = chunk.min(self.length - self.done);
            self.part(bus, part)?;
            self.done += part;
            if self.done == self.length {
                self.line += 1;
                self.done = 0;
            }
            if bus.is_over() {
                return Ok(self.line == self.lines);
            }
        }
        Ok(true)
    }

    /// Part of a line.
    fn part(&self, bus: &mut Bus<'_>, count: u64) -> Outcome<()> {
        if let Some(remap) = &self.remap {
            return remap.part(bus, self, count);
        }
        let mut bytes = vec![0; count as usize];
        self.from.read(bus, self.line, self.done, &mut bytes)?;
        self.to.write(bus, self.line, self.done, &bytes)
    }
}

impl Remap {
    /// The pixel of a fill: all of its components are constants.
    fn constant(&self) -> Option<Vec<u8>> {
        let mut pixel = Vec::new();
        for component in &self.components {
            let constant = self.constants.get((*component as usize).checked_sub(4)?)?;
            pixel.extend(&constant.to_le_bytes()[..self.size]);
        }
        Some(pixel)
    }

    /// Bytes of a pixel, where from and where to.
    fn pixels(&self) -> (u64, u64) {
        ((self.size * self.sources) as u64, (self.size * self.components.len()) as u64)
    }

    fn part(&self, bus: &mut Bus<'_>, job: &Job, count: u64) -> Outcome<()> {
        let Job { from, to, line, done, .. } = job;
        let (pixel_in, pixel_out) = self.pixels();
        if let Some(pixel) = self.constant() {
            return to.write(bus, *line, done * pixel_out, &pixel.repeat(count as usize));
        }
        let mut source = vec![0; (count * pixel_in) as usize];
        if self.components.iter().any(|component| *component < 4) {
            from.read(bus, *line, done * pixel_in, &mut source)?;
        }
        let mut pixels = vec![0; (count * pixel_out) as usize];
        if self.components.contains(&6) {
            to.read(bus, *line, done * pixel_out, &mut pixels)?;
        }
        for index in 0..count as usize {
            let source = &source[index * pixel_in as usize..][..pixel_in as usize];
            let pixel = &mut pixels[index * pixel_out as usize..][..pixel_out as usize];
            for (component, out) in self.components.iter().zip(pixel.chunks_exact_mut(self.size)) {
                match *component {
                    component @ 0..=3 => {
                        let start = component as usize * self.size;
                        if let Some(bytes) = source.get(start..start + self.size) {
                            out.copy_from_slice(bytes);
                        }
                    }
                    component @ (4 | 5) => {
                        let constant = self.constants[component as usize - 4].to_le_bytes();
                        out.copy_from_slice(&constant[..self.size]);
                    }
                    _ => {}
                }
            }
        }
        to.write(bus, *line, done * pixel_out, &pixels)
    }
}
