//! Textures and surfaces: `tex`, `tld4`, `txq`, `suld`, `sust`, `sured`.

use super::super::{Op, Reg, TexelForm, TextureOp};
use super::Decoder;
use crate::error::LoadError;
use crate::lanes::{self, Opcode};
use crate::ptx;
use crate::texture::{Access, AccessKind, Level, LevelSource, Outside, Shape};

/// The axes, and whether a layer or a face is chosen.
fn shape(opcode: &Opcode<'_>) -> Option<Shape> {
    let flat = |axes, layered| Shape { axes, layered, cube: false };
    let cube = |layered| Shape { axes: 3, layered, cube: true };
    opcode.choose(&[
        ("1d", flat(1, false)),
        ("2d", flat(2, false)),
        ("3d", flat(3, false)),
        ("a1d", flat(1, true)),
        ("a2d", flat(2, true)),
        ("cube", cube(false)),
        ("acube", cube(true)),
    ])
}

/// What an instruction does, but for its place and what is read or written.
struct How {
    access: Access,
    offset: Vec<Reg>,
    level: LevelSource<Reg>,
    depth: Option<Reg>,
    form: TexelForm,
}

impl How {
    fn plain(shape: Shape, kind: AccessKind) -> Self {
        let (level, form) = (LevelSource::Known(Level::Exact(0)), TexelForm::Words);
        Self { access: Access { shape, kind }, offset: Vec::new(), level, depth: None, form }
    }
}

const CHANNELS: &[(&str, usize)] = &[("r", 0), ("g", 1), ("b", 2), ("a", 3)];
const OUTSIDE: &[(&str, Outside)] =
    &[("trap", Outside::Trap), ("clamp", Outside::Clamp), ("zero", Outside::Zero)];

impl<'a> Decoder<'_, 'a> {
    /// `tex.level.2d.v4.f32.f32 {r, g, b, a}, [texture, {x, y}], level`.
    pub(super) fn texture(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let types: Vec<&str> = opcode.types().collect();
        let (Some(shape), [to, from]) = (shape(opcode), &types[..]) else {
            return self.unsupported(instruction);
        };
        let form = match *to {
            "f32" | "s32" | "u32" => TexelForm::Words,
            "f16" => TexelForm::Halves,
            "f16x2" => TexelForm::Pairs,
            _ => return self.unsupported(instruction),
        };
        if !matches!(*from, "f32" | "s32") {
            return self.unsupported(instruction);
        }
        let kind = if opcode.base == "tld4" {
            let Some(channel) = opcode.choose(CHANNELS) else {
                return self.unsupported(instruction);
            };
            AccessKind::Gather { channel }
        } else {
            AccessKind::Sample { integers: *from == "s32" }
        };
        let (level, behind) = self.texture_level(shape, opcode, operands)?;
        let (offset, depth) = match &operands[behind.min(operands.len())..] {
            [offset @ ptx::Operand::Vector(_), rest @ ..] => (Some(offset), rest),
            rest => (None, rest),
        };
        let offset = offset.map_or_else(|| Ok(Vec::new()), |offset| self.sources(Some(offset)))?;
        let depth = match depth {
            [] => None,
            [depth] => Some(self.src(Some(depth))?),
            _ => return self.unsupported(instruction),
        };
        let registers = self.destinations(operands.first())?;
        let how = How { access: Access { shape, kind }, offset, level, depth, form };
        self.texture_operation(instruction, how, registers, operands.get(1))
    }

    /// What says which level is read, and the number of the operand behind it.
    fn texture_level(
        &mut self,
        shape: Shape,
        opcode: &Opcode<'a>,
        operands: &[ptx::Operand<'a>],
    ) -> Result<(LevelSource<Reg>, usize), LoadError> {
        if opcode.has("level") {
            let level = self.src(operands.get(2))?;
            let is_exact = opcode.types().nth(1) == Some("s32");
            let level = if is_exact { LevelSource::Exact } else { LevelSource::Number }(level);
            return Ok((level, 3));
        }
        if !opcode.has("grad") {
            let is_exact = opcode.types().nth(1) == Some("s32");
            let level = if is_exact { Level::Exact(0) } else { Level::LEAST };
            return Ok((LevelSource::Known(level), 2));
        }
        let changes = [self.sources(operands.get(2))?, self.sources(operands.get(3))?];
        if changes.iter().any(|change| change.len() < shape.axes) {
            return self.error(format!("gradients need {} numbers in each direction", shape.axes));
        }
        let axes = (0..shape.axes).map(|axis| [changes[0][axis], changes[1][axis]]);
        Ok((LevelSource::Gradients(axes.collect()), 4))
    }

    /// `suld.b.2d.v2.b32.trap {a, b}, [surface, {x, y}]`, where x counts bytes.
    pub(super) fn surface_load(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let Some(shape) = shape(opcode).filter(|_| opcode.has("b")) else {
            return self.unsupported(instruction);
        };
        let registers = self.destinations(operands.first())?;
        let (width, parts) = (self.width(opcode)?, registers.len());
        let kind = AccessKind::Load { width, parts, outside: outside(opcode) };
        self.texture_operation(instruction, How::plain(shape, kind), registers, operands.get(1))
    }

    /// `sust.b.2d.v2.b32.trap [surface, {x, y}], {a, b}`.
    pub(super) fn surface_store(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let Some(shape) = shape(opcode).filter(|_| opcode.has("b")) else {
            return self.unsupported(instruction);
        };
        let registers: Vec<_> = self.sources(operands.get(1))?.into_iter().map(Some).collect();
        let (width, parts) = (self.width(opcode)?, registers.len());
        let kind = AccessKind::Store { width, parts, outside: outside(opcode) };
        self.texture_operation(instruction, How::plain(shape, kind), registers, operands.first())
    }

    /// `sured.b.add.2d.u32.trap [surface, {x, y}], a`.
    pub(super) fn surface_reduce(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let shape = shape(opcode).filter(|_| opcode.has("b"));
        let names = ["add", "min", "max", "and", "or"].map(|name| (name, name));
        let (Some(shape), Some(name)) = (shape, opcode.choose(&names)) else {
            return self.unsupported(instruction);
        };
        let Some(step) = lanes::atomic(name, opcode.kind()) else {
            return self.unsupported(instruction);
        };
        let width = self.width(opcode)?;
        let kind = AccessKind::Reduce { width, step, outside: outside(opcode) };
        let registers = vec![Some(self.src(operands.get(1))?)];
        self.texture_operation(instruction, How::plain(shape, kind), registers, operands.first())
    }

    fn texture_operation(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        How { access, offset, level, depth, form }: How,
        registers: Vec<Option<Reg>>,
        place: Option<&ptx::Operand<'a>>,
    ) -> Result<(), LoadError> {
        let Some(ptx::Operand::Address(parts, 0)) = place else {
            return self.unsupported(instruction);
        };
        // With a sampler of its own, a texture has three parts.
        let ptx::Operand::Vector(parts) = &**parts else { return self.unsupported(instruction) };
        let [handle, coordinates] = &parts[..] else { return self.unsupported(instruction) };
        let handle = self.src(Some(handle))?;
        let mut at = self.sources(Some(coordinates))?;
        let needed = access.shape.numbers();
        if at.len() < needed {
            return self.error(format!("`{}` needs {needed} coordinates", instruction.opcode));
        }
        at.truncate(needed);
        let op = TextureOp { access, handle, at, offset, level, depth, registers, form };
        self.emit(Op::Texture(Box::new(op)));
        Ok(())
    }

    /// `txq.level.width.b32 d, [texture], level` and `txq.width.b32 d, [texture]`.
    pub(super) fn texture_query(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let axes = [
            ("width", 0),
            ("height", 1),
            ("depth", 2),
            ("array_size", 2),
            ("num_mipmap_levels", 3),
        ];
        let place = instruction.operands.get(1);
        let (Some(axis), Some(ptx::Operand::Address(handle, 0))) = (opcode.choose(&axes), place)
        else {
            return self.unsupported(instruction);
        };
        let handle = self.src(Some(handle))?;
        let dst = self.dst(instruction.operands.first())?;
        let shape = Shape { axes: 0, layered: false, cube: false };
        let level = match opcode.has("level") {
            true => LevelSource::Exact(self.src(instruction.operands.get(2))?),
            false => LevelSource::Known(Level::Exact(0)),
        };
        let How { access, offset, depth, form, .. } = How::plain(shape, AccessKind::Query);
        let mut registers = vec![None; axis];
        registers.push(Some(dst));
        let at = Vec::new();
        let op = TextureOp { access, handle, at, offset, level, depth, registers, form };
        self.emit(Op::Texture(Box::new(op)));
        Ok(())
    }
}

fn outside(opcode: &Opcode<'_>) -> Outside {
    opcode.choose(OUTSIDE).unwrap_or(Outside::Trap)
}
