//! Inline assembly, as far as the pass has to understand it.

use std::slice;

use inkwell::llvm_sys::core::{
    LLVMGetCalledValue, LLVMGetInlineAsmAsmString, LLVMGetInlineAsmConstraintString,
    LLVMIsAInlineAsm,
};
use inkwell::llvm_sys::prelude::LLVMValueRef;
use inkwell::values::{AsValueRef as _, InstructionOpcode, InstructionValue};

/// The text of a call that is assembly, and the list of its operands.
pub(crate) struct Assembly {
    text: String,
    constraints: String,
}

/// An instruction of it that all lanes execute which come there.
pub(crate) struct Statement {
    /// `atom.global.add.u32`.
    pub(crate) opcode: String,
    /// `$0, [$1], $2`.
    pub(crate) operands: String,
}

impl Assembly {
    pub(crate) fn of(call: InstructionValue<'_>) -> Option<Self> {
        if call.get_opcode() != InstructionOpcode::Call {
            return None;
        }
        // SAFETY: it is a call, and what it calls is asked for assembly only where it is that.
        unsafe {
            let called = LLVMGetCalledValue(call.as_value_ref());
            (!LLVMIsAInlineAsm(called).is_null()).then(|| Self {
                text: text(called, LLVMGetInlineAsmAsmString),
                constraints: text(called, LLVMGetInlineAsmConstraintString),
            })
        }
    }

    /// What is executed whenever the assembly is: nothing under a predicate, nor anything where there are
    /// jumps.
    pub(crate) fn statements(&self) -> Vec<Statement> {
        let text = without_comments(&self.text);
        let mut statements = Vec::new();
        for statement in text.split(';') {
            let Some((guarded, statement)) = instruction(statement) else { continue };
            if statement.opcode.split('.').next() == Some("bra") {
                return Vec::new();
            }
            if !guarded {
                statements.push(statement);
            }
        }
        statements
    }

    /// Which of the call's results an operand is, and of how many.
    pub(crate) fn result(&self, operand: u32) -> Option<(u32, u32)> {
        // Outputs come first; an indirect one is written through a pointer and no result.
        let outputs = || self.constraints.split(',').take_while(|text| text.starts_with('='));
        let is_result = |text: &&str| !text.starts_with("=*");
        let own = outputs().nth(operand as usize)?;
        let before = outputs().take(operand as usize).filter(is_result).count();
        is_result(&own).then_some((before as u32, outputs().filter(is_result).count() as u32))
    }
}

/// # Safety
///
/// `asm` is inline assembly, and `get` gives one of its texts with the length.
unsafe fn text(
    asm: LLVMValueRef,
    get: unsafe extern "C" fn(LLVMValueRef, *mut usize) -> *const std::ffi::c_char,
) -> String {
    let mut size = 0;
    // SAFETY: the caller's promise.
    unsafe {
        let start = get(asm, &raw mut size);
        if start.is_null() {
            return String::new();
        }
        String::from_utf8_lossy(slice::from_raw_parts(start.cast(), size)).into_owned()
    }
}

fn without_comments(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("//").into_iter().chain(rest.find("/*")).min() {
        plain.push_str(&rest[..at]);
        plain.push(' ');
        let (end, length) = if rest[at..].starts_with("//") { ("\n", 1) } else { ("*/", 2) };
        let begun = &rest[at + 2..];
        rest = begun.find(end).map_or("", |at| &begun[at + length..]);
    }
    plain + rest
}

/// An instruction without what stands before it: braces, labels, and a predicate, which is told.
fn instruction(text: &str) -> Option<(bool, Statement)> {
    let mut rest = text.trim();
    let mut guarded = false;
    loop {
        rest = rest.trim_start_matches(['{', '}']).trim_start();
        let word = rest.split(char::is_whitespace).next()?;
        // A label ends with a colon, but for `::` inside an opcode.
        let label = word.find(':').filter(|at| !word[at + 1..].starts_with(':'));
        if word.starts_with('@') {
            guarded = true;
            rest = rest[word.len()..].trim_start();
        } else if let Some(at) = label.filter(|_| !word.contains('.')) {
            rest = rest[at + 1..].trim_start();
        } else {
            break;
        }
    }
    let (opcode, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let statement = Statement { opcode: opcode.to_owned(), operands: operands.trim().to_owned() };
    (!opcode.is_empty()).then_some((guarded, statement))
}

/// The number of the operand that a statement names first: `$1`, `${1}`, or the first of a vector.
pub(crate) fn first_operand(operands: &str) -> Option<u32> {
    let first = operands.split(',').next()?.trim();
    let vector = first.strip_prefix('{').map_or(first, str::trim);
    let number = vector.strip_prefix('$')?.trim_start_matches('{');
    let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    let rest = number[end..].trim_end_matches('}');
    (rest.is_empty() || rest.starts_with(':')).then(|| number[..end].parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opcodes(text: &str) -> Vec<String> {
        let assembly = Assembly { text: text.into(), constraints: String::new() };
        assembly.statements().into_iter().map(|statement| statement.opcode).collect()
    }

    #[test]
    fn what_every_lane_executes_is_told_from_the_rest() {
        assert_eq!(opcodes("{ atom.global.add.u32 $0,[$1],$2; }"), ["atom.global.add.u32"]);
        assert_eq!(opcodes("// add; @p\n\tatom.add.u32 $0, [$1], $2;"), ["atom.add.u32"]);
        assert_eq!(opcodes("/* a */ here: st.shared::cta.u32 [$0], $1;"), ["st.shared::cta.u32"]);
        assert_eq!(opcodes("@p red.add.u32 [$0], 1;\n exit;"), ["exit"]);
        assert_eq!(opcodes("@p bra over; atom.add.u32 $0, [$1], 1; over:"), [""; 0]);
        assert_eq!(opcodes("/* without an end"), [""; 0]);
    }

    #[test]
    fn a_result_is_found_by_its_operand() {
        let of =
            |constraints: &str| Assembly { text: String::new(), constraints: constraints.into() };
        assert_eq!(of("=r,l,r,~{memory}").result(0), Some((0, 1)));
        assert_eq!(of("=*m,=r,=&r,l").result(2), Some((1, 2)));
        assert_eq!(of("=*m,=r,l").result(0), None);
        assert_eq!(of("=r,l").result(1), None);
        for (operands, number) in [
            ("$0, [$1]", Some(0)),
            ("${12}, [$1]", Some(12)),
            ("{$3, $4}, [$1]", Some(3)),
            ("${2:x}, 1", Some(2)),
            ("p|$1, 1", None),
            ("%r1, 1", None),
            ("", None),
        ] {
            assert_eq!(first_operand(operands), number, "{operands}");
        }
    }
}
