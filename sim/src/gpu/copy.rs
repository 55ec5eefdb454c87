//! The copy engine, class 0xC7B5: lines of bytes, with or without the components of their pixels
//! taken apart. (`clc7b5.h`.)

use super::engine::{Bus, Fault, Outcome, Step};
use super::host::Reduction;
use nvabi::tegra::class::copy::*;

/// Behind the last method.
const END: u32 = 0x800;

/// Bytes that are moved at once, and pixels.
const CHUNK: u64 = 1 << 18;
const PIXELS: u64 = 1 << 12;

/// The engine: what its methods were given, and the copy that is under way.
#[derive(Debug, Default)]
pub(super) struct Copy {
    values: Vec<u32>,
    job: Option<Job>,
}

#[derive(Debug, Clone)]
struct Job {
    from: u64,
    to: u64,
    pitch_in: u64,
    pitch_out: u64,
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

    pub(super) fn call(&mut self, bus: &mut Bus<'_>, method: u32, data: u32) -> Outcome {
        if method == LAUNCH_DMA {
            return self.launch(bus, data);
        }
        if method >= END {
            bus.notes.push(("unknown-method", format!("copy method {method:#06x} is unknown")));
            return Ok(Step::Done);
        }
        if self.values.is_empty() {
            self.values.resize(END as usize / 4, 0);
            self.values[SET_RENDER_ENABLE_C as usize / 4] = 1;
        }
        self.values[method as usize / 4] = data;
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
        if launch & BOTH_PITCH != BOTH_PITCH {
            return Err(Fault::Unsupported("copy of a block-linear surface".to_owned()));
        }
        Ok(Some(Job {
            from: self.address(OFFSET_IN_UPPER),
            to: self.address(OFFSET_OUT_UPPER),
            // A pitch may go backwards.
            pitch_in: self.value(PITCH_IN) as i32 as u64,
            pitch_out: self.value(PITCH_OUT) as i32 as u64,
            length: self.value(LINE_LENGTH_IN).into(),
            lines: if launch & MULTI_LINE != 0 { self.value(LINE_COUNT).into() } else { 1 },
            remap: (launch & REMAP != 0).then(|| self.remap()),
            line: 0,
            done: 0,
        }))
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
        let from = self.from.wrapping_add(self.line.wrapping_mul(self.pitch_in));
        let to = self.to.wrapping_add(self.line.wrapping_mul(self.pitch_out));
        let Some(remap) = &self.remap else {
            let mut bytes = vec![0; count as usize];
            bus.read(from.wrapping_add(self.done), &mut bytes)?;
            return bus.write(to.wrapping_add(self.done), &bytes);
        };
        remap.part(bus, from, to, self.done, count)
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

    fn part(&self, bus: &mut Bus<'_>, from: u64, to: u64, done: u64, count: u64) -> Outcome<()> {
        if let Some(pixel) = self.constant() {
            let at = to.wrapping_add(done * pixel.len() as u64);
            return bus.write(at, &pixel.repeat(count as usize));
        }
        let pixel_in = (self.size * self.sources) as u64;
        let pixel_out = (self.size * self.components.len()) as u64;
        let mut source = vec![0; (count * pixel_in) as usize];
        if self.components.iter().any(|component| *component < 4) {
            bus.read(from.wrapping_add(done * pixel_in), &mut source)?;
        }
        let at = to.wrapping_add(done * pixel_out);
        let mut pixels = vec![0; (count * pixel_out) as usize];
        if self.components.contains(&6) {
            bus.read(at, &mut pixels)?;
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
        bus.write(at, &pixels)
    }
}
