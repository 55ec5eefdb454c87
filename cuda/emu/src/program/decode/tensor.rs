//! Products of matrices: `mma`, `wmma`, `ldmatrix`, `stmatrix`, `movmatrix`.

use super::super::{MatrixMove, MatrixMultiply, MatrixRegisters, Op, Reg, RowMove};
use super::Decoder;
use crate::error::LoadError;
use crate::lanes::Opcode;
use crate::lanes::matrix::{Combine, Element, Fragment, Layout, Role};
use crate::ptx;

/// Rows, columns and depth of `m16n8k16`.
fn shape(opcode: &Opcode<'_>) -> Option<[usize; 3]> {
    opcode.modifiers.iter().find_map(|word| {
        let (m, rest) = word.strip_prefix('m')?.split_once('n')?;
        let (n, k) = rest.split_once('k')?;
        Some([m.parse().ok()?, n.parse().ok()?, k.parse().ok()?])
    })
}

/// The types among the modifiers; those of 4 bits, 1 bit and 8-bit numbers are types here alone.
fn elements(opcode: &Opcode<'_>) -> Vec<Element> {
    opcode.modifiers.iter().filter_map(|word| Element::of(word)).collect()
}

fn is_integer(element: Element) -> bool {
    use Element::{B1, S4, S8, S32, U4, U8};
    matches!(element, S8 | U8 | S4 | U4 | B1 | S32)
}

impl<'a> Decoder<'_, 'a> {
    /// `mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 d, a, b, c`
    pub(super) fn matrix_multiply(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let known = opcode.has("row") && opcode.has("col") && !opcode.has("sp");
        let (Some([m, n, k]), [d, a, b, c], true) = (shape(opcode), &elements(opcode)[..], known)
        else {
            return self.unsupported(instruction);
        };
        let fragment = |element: &Element, rows, columns, role| Fragment {
            element: *element,
            rows,
            columns,
            layout: Layout::Prescribed(role),
        };
        let fragments = [
            fragment(a, m, k, Role::A(m)),
            fragment(b, k, n, Role::B),
            fragment(c, m, n, Role::C),
            fragment(d, m, n, Role::C),
        ];
        // Of the products of Volta, quarters of a warp make one each.
        if n != 8 || !matches!(m, 8 | 16) || ([m, k], *a) == ([8, 4], Element::F16) {
            return self.unsupported(instruction);
        }
        self.product(instruction, opcode, fragments)
    }

    /// `wmma.load`, `wmma.store` and `wmma.mma`.
    pub(super) fn warp_matrix(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let (Some([m, n, k]), types) = (shape(opcode), elements(opcode)) else {
            return self.unsupported(instruction);
        };
        let fragment = |element: Element, rows, columns| Fragment {
            element,
            rows,
            columns,
            layout: Layout::Free,
        };
        match (opcode.modifiers.first(), opcode.modifiers.get(1), &types[..]) {
            (Some(&"mma"), _, types) => {
                // Of `f16` the types of the factors are not said.
                let [d, a, b, c] = match *types {
                    [d, c] => [d, Element::F16, Element::F16, c],
                    [d, a, b, c] => [d, a, b, c],
                    _ => return self.unsupported(instruction),
                };
                let fragments =
                    [fragment(a, m, k), fragment(b, k, n), fragment(c, m, n), fragment(d, m, n)];
                self.product(instruction, opcode, fragments)
            }
            (Some(kind @ (&"load" | &"store")), Some(which), [element]) => {
                let (rows, columns) = match *which {
                    "a" => (m, k),
                    "b" => (k, n),
                    _ => (m, n),
                };
                let fragment = fragment(*element, rows, columns);
                let store = *kind == "store";
                let (place, registers) = if store { (0, 1) } else { (1, 0) };
                let at = self.address(opcode, operands.get(place))?;
                let registers = match store {
                    true => self.sources(operands.get(registers))?,
                    false => self.registers_of(operands.get(registers))?,
                };
                let row_major = opcode.has("row");
                let stride = match operands.get(2) {
                    Some(stride) => self.src(Some(stride))?,
                    None => self.constant(if row_major { columns } else { rows } as u64),
                };
                if !fragment.fits(registers.len()) || !row_major && !opcode.has("col") {
                    return self.unsupported(instruction);
                }
                let matrix = MatrixRegisters { fragment, registers };
                self.emit(Op::MatrixMove(Box::new(MatrixMove {
                    matrix,
                    at,
                    stride,
                    row_major,
                    store,
                })));
                Ok(())
            }
            _ => self.unsupported(instruction),
        }
    }

    /// A product whose operands are `d, a, b, c`, of fragments in the order a, b, c, d.
    fn product(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
        [a, b, c, d]: [Fragment; 4],
    ) -> Result<(), LoadError> {
        let [to, left, right, start] = &instruction.operands[..] else {
            return self.unsupported(instruction);
        };
        let combine = match (a.element, opcode.has("xor"), opcode.has("and")) {
            (Element::B1, true, _) => Combine::Xor,
            (Element::B1, _, true) => Combine::And,
            (Element::B1, ..) => return self.unsupported(instruction),
            _ => Combine::Multiply,
        };
        let kinds = [a, b, c, d].map(|fragment| is_integer(fragment.element));
        let of = |fragment, registers| MatrixRegisters { fragment, registers };
        let multiply = MatrixMultiply {
            a: of(a, self.sources(Some(left))?),
            b: of(b, self.sources(Some(right))?),
            c: of(c, self.sources(Some(start))?),
            d: of(d, self.registers_of(Some(to))?),
            combine,
            saturate: opcode.has("satfinite"),
        };
        let all = [&multiply.a, &multiply.b, &multiply.c, &multiply.d];
        let fits = all.iter().all(|matrix| matrix.fragment.fits(matrix.registers.len()));
        if !fits || kinds.iter().any(|integer| *integer != kinds[0]) {
            return self.unsupported(instruction);
        }
        self.emit(Op::MatrixMultiply(Box::new(multiply)));
        Ok(())
    }

    /// `ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {…}, [p]`, and `stmatrix` the other way.
    pub(super) fn row_move(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let store = opcode.base == "stmatrix";
        let counts = [("x1", 1), ("x2", 2), ("x4", 4)];
        let (Some(count), true) = (opcode.choose(&counts), opcode.has("m8n8") && opcode.has("b16"))
        else {
            return self.unsupported(instruction);
        };
        let (place, registers) = if store { (0, 1) } else { (1, 0) };
        let at = self.address(opcode, operands.get(place))?;
        let registers = match store {
            true => self.sources(operands.get(registers))?,
            false => self.registers_of(operands.get(registers))?,
        };
        if registers.len() != count {
            return self.unsupported(instruction);
        }
        let transposed = opcode.has("trans");
        self.emit(Op::RowMove(Box::new(RowMove { registers, at, transposed, store })));
        Ok(())
    }

    /// `movmatrix.sync.aligned.m8n8.trans.b16 d, a`.
    pub(super) fn transpose(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        if opcode.modifiers[..] != ["sync", "aligned", "m8n8", "trans", "b16"] {
            return self.unsupported(instruction);
        }
        let dst = self.dst(instruction.operands.first())?;
        let src = self.src(instruction.operands.get(1))?;
        self.emit(Op::Transpose { dst, src });
        Ok(())
    }

    /// Registers to write, also those that nobody reads.
    fn registers_of(&mut self, operand: Option<&ptx::Operand<'a>>) -> Result<Vec<Reg>, LoadError> {
        let registers = self.destinations(operand)?;
        Ok(registers.into_iter().map(|reg| reg.unwrap_or_else(|| self.register())).collect())
    }
}
