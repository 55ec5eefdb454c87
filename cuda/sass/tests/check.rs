//! The checker finds control information that was made wrong, and only that.

#![allow(clippy::unwrap_used)]

use nvabi_sass::check::{Finding, Hazard, Register, check};
use nvabi_sass::{Arch, Instruction, decode};

/// S2R R0, SR_TID.X (scoreboard 0); IADD3 R1, R0, 0x1, RZ (waits for it, 4 cycles); IADD3 R2, R1, 0x1, RZ.
const PROGRAM: [u128; 3] = [
    0x000e_2200_0000_2100_0000_0000_0000_7919,
    0x001f_c800_07ff_e0ff_0000_0001_0001_7810,
    0x000f_e200_07ff_e0ff_0000_0001_0102_7810,
];

fn findings(program: &[u128]) -> Vec<Finding> {
    let decode = |(index, word): (usize, &u128)| decode(Arch::Sm80, *word, index as u64 * 16);
    let instructions: Result<Vec<Instruction>, _> =
        program.iter().enumerate().map(decode).collect();
    check(&instructions.unwrap())
}

#[test]
fn what_waits_is_right() {
    assert_eq!(findings(&PROGRAM), []);
}

#[test]
fn a_missing_wait_is_found() {
    let mut program = PROGRAM;
    program[1] &= !(1 << 116);
    let hazard = Hazard::NoWait(0);
    let finding = Finding { address: 16, register: Register::General(0), earlier: 0, hazard };
    assert_eq!(finding.to_string(), "0x0010: reads R0 of 0x0000 without a wait for scoreboard 0");
    assert_eq!(findings(&program), [finding]);
}

#[test]
fn a_stall_that_is_too_short_is_found() {
    let mut program = PROGRAM;
    program[1] = program[1] & !(0xf << 105) | 1 << 105;
    let hazard = Hazard::TooFewCycles { cycles: 1, needed: 3 };
    let finding = Finding { address: 32, register: Register::General(1), earlier: 16, hazard };
    assert_eq!(finding.to_string(), "0x0020: reads R1 1 cycles after 0x0010, expected at least 3");
    assert_eq!(findings(&program), [finding]);
}
