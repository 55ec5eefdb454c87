//! Textures and surfaces: `tex`, `tld4`, `suld`, `sust`.

use super::super::{Op, Outside, Reg, TextureAccess, TextureOp};
use super::Decoder;
use crate::error::LoadError;
use crate::lanes::Opcode;
use crate::ptx;
use crate::texture::Shape;

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
        let access = if opcode.base == "tld4" {
            let Some(channel) = opcode.choose(CHANNELS) else {
                return self.unsupported(instruction);
            };
            TextureAccess::Gather { channel }
        } else {
            TextureAccess::Sample { integers: *from == "s32" }
        };
        let registers = self.destinations(operands.first())?;
        self.texture_operation(instruction, shape, access, registers, operands.get(1))
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
        let access = TextureAccess::Load {
            width: self.width(opcode)?,
            outside: opcode.choose(OUTSIDE).unwrap_or(Outside::Trap),
        };
        let registers = self.destinations(operands.first())?;
        self.texture_operation(instruction, shape, access, registers, operands.get(1))
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
        let access = TextureAccess::Store {
            width: self.width(opcode)?,
            outside: opcode.choose(OUTSIDE).unwrap_or(Outside::Trap),
        };
        let registers = self.sources(operands.get(1))?.into_iter().map(Some).collect();
        self.texture_operation(instruction, shape, access, registers, operands.first())
    }

    fn texture_operation(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        shape: Shape,
        access: TextureAccess,
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
        let needed = shape.axes + usize::from(shape.layered);
        if at.len() < needed {
            return self.error(format!("`{}` needs {needed} coordinates", instruction.opcode));
        }
        at.truncate(needed);
        self.emit(Op::Texture(Box::new(TextureOp { shape, access, handle, at, registers })));
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
        let (access, registers) = (TextureAccess::Query { axis }, vec![Some(dst)]);
        self.emit(Op::Texture(Box::new(TextureOp {
            shape,
            access,
            handle,
            at: Vec::new(),
            registers,
        })));
        Ok(())
    }
}
