//! Textures and surfaces. A texture has an offset in a bank, a uniform register, or a word among its coordinates.

use nvabi_sass::{Modifier, Op as Name, Value};

use super::{BANKS, Decoded, Decoder, Op, TRUE, ZERO};
use crate::lanes;
use crate::sass::{Offset, Source, TextureOp};
use crate::texture::{Access, AccessKind, Level, LevelSource, Outside, Shape};

/// Registers with the words that say where a texture is read.
struct Words {
    /// What they begin with, and what is beside it.
    first: u8,
    second: u8,
    /// Words, and how many of them are in the registers from the first.
    count: usize,
    in_first: usize,
}

impl Words {
    fn register(&self, at: usize) -> u8 {
        let (base, at) = match at < self.in_first {
            true => (self.first, at),
            false => (self.second, at - self.in_first),
        };
        if base == ZERO { ZERO } else { base.saturating_add(at as u8) }
    }
}

impl Decoder<'_> {
    pub(super) fn texture(&self) -> Decoded<Op> {
        use Modifier::*;
        let not_run = [F16_RZ, LC, LB_LC, LC_FDV, PTP, MS];
        if let Some(modifier) = not_run.into_iter().find(|modifier| self.has(*modifier)) {
            return Err(format!("{modifier:?} is not run here"));
        }
        let op = match self.instruction.op {
            Name::TXQ => self.texture_query(),
            Name::TXD => self.texture_gradients(),
            Name::SULD | Name::SUST | Name::SURED => self.surface(),
            _ => self.texture_read(),
        };
        Ok(Op::Texture(Box::new(op?)))
    }

    /// TEX, TLD and TLD4: coordinates, the texture, the level, offsets and a depth are words of two runs of registers.
    fn texture_read(&self) -> Decoded<TextureOp> {
        const FIRST: usize = 3;
        const HANDLE: usize = 5;
        let handle = self.handle(HANDLE)?;
        let rest = HANDLE + if handle.is_some() { 2 } else { 0 };
        let shape = self.shape(rest)?;
        let has_offset = self.has(Modifier::AOFFI);
        let is_load = self.instruction.op == Name::TLD;
        let kind = match self.instruction.op {
            Name::TLD4 => AccessKind::Gather { channel: self.channel() },
            _ => AccessKind::Sample { integers: is_load },
        };
        let coordinates = shape.numbers();
        let has_level = self.has(Modifier::LL) || self.has(Modifier::LB);
        let compares = self.has(Modifier::DC);
        let behind = [handle.is_none(), has_level, has_offset, compares];
        let count = coordinates + behind.into_iter().map(usize::from).sum::<usize>();
        let words = Words {
            first: self.register(FIRST)?,
            second: self.register(FIRST + 1)?,
            count,
            in_first: if self.has(Modifier::SCR) { count.div_ceil(2) } else { coordinates },
        };
        let step = if matches!(kind, AccessKind::Gather { .. }) { 8 } else { 4 };
        let mut left = words.count;
        let mut last = |is_there: bool| {
            left -= usize::from(is_there);
            words.register(left)
        };
        let (depth, offset) = (last(compares), last(has_offset));
        let level = last(has_level);
        let offset = Offset { register: offset, first: 0, step };
        let op = TextureOp {
            access: Access { shape, kind },
            // Behind the coordinates.
            handle: handle.unwrap_or_else(|| Source::Register(words.register(coordinates))),
            at: (0..coordinates).map(|at| words.register(at)).collect(),
            offset: has_offset.then_some(offset),
            level: match self.instruction.op {
                Name::TLD if self.has(Modifier::LL) && !self.has(Modifier::CL) => {
                    return Err("a level that is not clamped is not run here".to_owned());
                }
                Name::TLD if self.has(Modifier::LL) => LevelSource::Exact(level),
                Name::TLD | Name::TLD4 => LevelSource::Known(Level::Exact(0)),
                _ if self.has(Modifier::LZ) => LevelSource::Known(Level::Number(0.0)),
                _ if self.has(Modifier::LL) => LevelSource::Number(level),
                _ => LevelSource::Neighbours { bias: self.has(Modifier::LB).then_some(level) },
            },
            depth: compares.then_some(depth),
            to: self.texels(1, rest + 1)?,
            halves: self.has(Modifier::F16_RN),
            from: Vec::new(),
            missing: self.outcome(0)?,
        };
        Ok(op)
    }

    /// TXD: the texture, the coordinates, then the layer and the offsets in one word; how each coordinate changes.
    fn texture_gradients(&self) -> Decoded<TextureOp> {
        const HANDLE: usize = 5;
        let handle = self.handle(HANDLE)?;
        let rest = HANDLE + if handle.is_some() { 2 } else { 0 };
        let shape = self.shape(rest)?;
        let (first, changes) = (self.register(3)?, self.register(4)?);
        let [word, change] = [first, changes].map(|base| {
            move |at: usize| if base == ZERO { ZERO } else { base.saturating_add(at as u8) }
        });
        let from = usize::from(handle.is_none());
        let behind = word(from + shape.axes);
        let layer = shape.layered.then_some(behind);
        let offset = Offset { register: behind, first: 16, step: 4 };
        let gradients = (0..shape.axes).map(|axis| [change(2 * axis), change(2 * axis + 1)]);
        Ok(TextureOp {
            access: Access { shape, kind: AccessKind::Sample { integers: false } },
            handle: handle.unwrap_or_else(|| Source::Register(word(0))),
            at: layer.into_iter().chain((0..shape.axes).map(|axis| word(from + axis))).collect(),
            offset: self.has(Modifier::AOFFI).then_some(offset),
            level: LevelSource::Gradients(gradients.collect()),
            depth: None,
            to: self.texels(1, rest + 1)?,
            halves: self.has(Modifier::F16_RN),
            from: Vec::new(),
            missing: self.outcome(0)?,
        })
    }

    fn texture_query(&self) -> Decoded<TextureOp> {
        if !matches!(self.operand(3)?.value, Value::Named(Modifier::TEX_HEADER_DIMENSION)) {
            return Err("only the size of a texture is told here".to_owned());
        }
        let handle = if self.count() > 5 { self.handle(4)? } else { None };
        // The level is behind a texture.
        let first = self.register(2)?;
        let level = match handle {
            None if first != ZERO => first.saturating_add(1),
            _ => first,
        };
        let last = self.count() - 1;
        let shape = Shape { axes: 0, layered: false, cube: false };
        Ok(TextureOp {
            access: Access { shape, kind: AccessKind::Query },
            handle: handle.unwrap_or(Source::Register(first)),
            at: Vec::new(),
            offset: None,
            level: LevelSource::Exact(level),
            depth: None,
            to: self.texels(0, last)?,
            halves: false,
            from: Vec::new(),
            missing: TRUE,
        })
    }

    /// Bytes of a surface: the byte of a row, the row, and the plane.
    fn surface(&self) -> Decoded<TextureOp> {
        if !self.has(Modifier::D) || !self.has(Modifier::BA) {
            return Err("surfaces are accessed by bytes here".to_owned());
        }
        let is_load = self.instruction.op == Name::SULD;
        let shape = self.surface_shape()?;
        let outside = [(Modifier::TRAP, Outside::Trap), (Modifier::IGN, Outside::Zero)];
        let outside = self.choose(&outside).unwrap_or(Outside::Clamp);
        let kind = match self.instruction.op {
            Name::SURED => self.surface_step(outside)?,
            _ => {
                let size = self.size();
                if size.signed {
                    return Err("bytes with a sign are not loaded here".to_owned());
                }
                let (width, parts) = (size.width, size.parts.into());
                match is_load {
                    true => AccessKind::Load { width, parts, outside },
                    false => AccessKind::Store { width, parts, outside },
                }
            }
        };
        let Value::Memory { base, .. } = self.operand(if is_load { 2 } else { 0 })?.value else {
            return Err("there are no coordinates".to_owned());
        };
        let base = base.map_or(ZERO, |base| base.register);
        let behind = |base: u8, at: usize| match base {
            ZERO => ZERO,
            base => base.saturating_add(at as u8),
        };
        // The layer comes last.
        let layer = shape.layered.then_some(shape.axes);
        let data = self.register(1)?;
        let (count, wide) = match kind {
            AccessKind::Load { parts, .. } | AccessKind::Store { parts, .. } => (parts, false),
            AccessKind::Reduce { width, .. } => (1, width == 8),
            _ => (0, false),
        };
        let mut to = [None; 4];
        if is_load {
            for (at, to) in to.iter_mut().enumerate().take(count) {
                *to = Some(behind(data, at)).filter(|register| *register != ZERO);
            }
        }
        let high = |at| if wide { behind(data, at + 1) } else { ZERO };
        let from = (0..count).map(|at| [behind(data, at), high(at)]);
        let handle = match self.operand(if is_load { 3 } else { 2 })?.value {
            Value::Register(number) => Some(Source::Register(number)),
            _ => self.handle(if is_load { 3 } else { 2 })?,
        };
        Ok(TextureOp {
            access: Access { shape, kind },
            handle: handle.ok_or("it names no surface")?,
            at: layer.into_iter().chain(0..shape.axes).map(|at| behind(base, at)).collect(),
            offset: None,
            level: LevelSource::Known(Level::Exact(0)),
            depth: None,
            to,
            halves: false,
            from: if is_load { Vec::new() } else { from.collect() },
            missing: if is_load { self.outcome(0)? } else { TRUE },
        })
    }

    fn surface_step(&self, outside: Outside) -> Decoded<AccessKind> {
        use Modifier::*;
        let operations = [(ADD, "add"), (MIN, "min"), (MAX, "max"), (AND, "and"), (OR, "or")];
        let name = self.choose(&operations).ok_or("its operation is not run here")?;
        if [F32_FTZ_RN, F16x2_RN, SD32, SD64].iter().any(|kind| self.has(*kind)) {
            return Err("only integers of surfaces are changed here".to_owned());
        }
        let kinds = [(U64, "u64"), (S64, "s64"), (S32, "s32")];
        let kind = self.choose(&kinds).unwrap_or("u32");
        let step = lanes::atomic(name, kind)
            .ok_or_else(|| format!("there is no {name} of {kind} in memory"))?;
        Ok(AccessKind::Reduce { width: if kind.ends_with("64") { 8 } else { 4 }, step, outside })
    }

    /// The word that names a texture, where it is no word of its coordinates.
    fn handle(&self, at: usize) -> Decoded<Option<Source>> {
        match self.operand(at)?.value {
            Value::Unsigned(bank) => {
                let (bank, offset) = (bank as usize, 4 * self.number(at + 1)? as usize);
                if bank >= BANKS {
                    return Err(format!("there is no bank {bank}"));
                }
                Ok(Some(Source::Constant { bank, offset }))
            }
            Value::Uniform(number) => match self.number(at + 1)? {
                0 => Ok(Some(Source::Uniform(number))),
                more => Err(format!("a texture {more} behind another is not known here")),
            },
            _ => Ok(None),
        }
    }

    fn shape(&self, at: usize) -> Decoded<Shape> {
        use Modifier::*;
        let Value::Named(name) = self.operand(at)?.value else {
            return Err("it has no shape".to_owned());
        };
        let shape = |axes, layered, cube| Ok(Shape { axes, layered, cube });
        match name {
            _1D => shape(1, false, false),
            _2D => shape(2, false, false),
            _3D => shape(3, false, false),
            ARRAY_1D => shape(1, true, false),
            ARRAY_2D => shape(2, true, false),
            CUBE => shape(3, false, true),
            ARRAY_CUBE => shape(3, true, true),
            other => Err(format!("{other:?} is no shape")),
        }
    }

    fn surface_shape(&self) -> Decoded<Shape> {
        use Modifier::*;
        let shape = |axes, layered| Shape { axes, layered, cube: false };
        let shapes = [
            (_1D, shape(1, false)),
            (_1D_ARRAY, shape(1, true)),
            (_2D, shape(2, false)),
            (_2D_ARRAY, shape(2, true)),
            (_3D, shape(3, false)),
        ];
        self.choose(&shapes).ok_or_else(|| "its shape is not run here".to_owned())
    }

    fn channel(&self) -> usize {
        // B stands also for a texture among the coordinates.
        self.choose(&[(Modifier::R, 0), (Modifier::G, 1), (Modifier::A, 3)]).unwrap_or(2)
    }

    /// Two runs of registers take the first two and the last two of the channels in the mask, each run in one register
    /// where they are numbers of 16 bits.
    fn texels(&self, at: usize, mask: usize) -> Decoded<[Option<u8>; 4]> {
        let (last, first) = (self.register(at)?, self.register(at + 1)?);
        let mask = self.number(mask)?;
        let second = if self.has(Modifier::F16_RN) { 0 } else { 1 };
        let mut registers = [(first, 0), (first, second), (last, 0), (last, second)].into_iter();
        let mut to = [None; 4];
        for (channel, to) in to.iter_mut().enumerate() {
            if mask >> channel & 1 == 1 {
                let (base, at) = registers.next().unwrap_or((ZERO, 0));
                *to = (base != ZERO).then(|| base.saturating_add(at));
            }
        }
        Ok(to)
    }
}
