//! Textures and surfaces: `tex`, `tld4`, `txq`, `suld`, `sust`, `sured`.

use super::super::{Op, Reg, TextureOp};
use super::Decoder;
use crate::error::LoadError;
use crate::lanes::{self, Opcode};
use crate::ptx;
use crate::texture::{Access, AccessKind, Outside, Shape};

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

const CHANNELS: &[(&str, usize)] = &[("r", 0), ("g", 1), ("b", 2), ("a", 3)];
const OUTSIDE: &[(&str, Outside)] =
    &[("trap", Outside::Trap), ("clamp", Outside::Clamp), ("zero", Outside::Zero)];

impl<'a> Decoder<'_, 'a> {
    /// `tex.2d.v4.f32.f32 {r, g, b, a}, [texture, {x, y}]`; levels and gradients choose among the levels of
    /// a mipmap, of which there is one.
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
        if !matches!(*to, "f32" | "s32" | "u32") || !matches!(*from, "f32" | "s32") {
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
        let levels = [("level", 1), ("grad", 2)];
        let behind = 2 + opcode.choose(&levels).unwrap_or(0);
        let offset = match &operands[behind.min(operands.len())..] {
            [] => Vec::new(),
            [offset @ ptx::Operand::Vector(_)] => self.sources(Some(offset))?,
            // To be compared with a depth.
            _ => return self.unsupported(instruction),
        };
        let registers = self.destinations(operands.first())?;
        let access = Access { shape, kind };
        self.texture_operation(instruction, access, offset, registers, operands.get(1))
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
        let access = Access { shape, kind };
        self.texture_operation(instruction, access, Vec::new(), registers, operands.get(1))
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
        let access = Access { shape, kind };
        self.texture_operation(instruction, access, Vec::new(), registers, operands.first())
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
        let access = Access { shape, kind };
        self.texture_operation(instruction, access, Vec::new(), registers, operands.first())
    }

    fn texture_operation(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        access: Access,
        offset: Vec<Reg>,
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
        self.emit(Op::Texture(Box::new(TextureOp { access, handle, at, offset, registers })));
        Ok(())
    }

    /// `txq.width.b32 d, [texture]`.
    pub(super) fn texture_query(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let axes = [("width", 0), ("height", 1), ("depth", 2), ("array_size", 2)];
        let place = instruction.operands.get(1);
        let (Some(axis), Some(ptx::Operand::Address(handle, 0))) = (opcode.choose(&axes), place)
        else {
            return self.unsupported(instruction);
        };
        let handle = self.src(Some(handle))?;
        let dst = self.dst(instruction.operands.first())?;
        let shape = Shape { axes: 0, layered: false, cube: false };
        let access = Access { shape, kind: AccessKind::Query };
        let mut registers = vec![None; axis];
        registers.push(Some(dst));
        let (at, offset) = (Vec::new(), Vec::new());
        self.emit(Op::Texture(Box::new(TextureOp { access, handle, at, offset, registers })));
        Ok(())
    }
}

fn outside(opcode: &Opcode<'_>) -> Outside {
    opcode.choose(OUTSIDE).unwrap_or(Outside::Trap)
}
