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

#[test]
fn the_second_register_of_a_group_is_found() {
    // LDG.E.64 R2, [R8.64] with scoreboard 0, and what is behind it.
    let load: u128 =
        0x981 | 7 << 12 | 2 << 16 | 8 << 24 | 4 << 32 | 1 << 72 | 5 << 73 | 7 << 81 | 3 << 90;
    let board = |word: u128, write: u128, read: u128, wait: u128| {
        word & !(0x1f_ffff << 105) | 1 << 105 | write << 110 | read << 113 | wait << 116
    };
    let load = board(load, 0, 7, 0);
    let add = 0x0229 | 7 << 12 | 10 << 16 | 3 << 24 | 6 << 64;
    let mov = |to: u128| 0x802 | 7 << 12 | to << 16 | 15 << 72;
    // R3 is the upper half of what is loaded.
    let found = findings(&[load, board(add, 7, 7, 0)]);
    assert_eq!(found.first().map(|one| one.register), Some(Register::General(3)), "{found:?}");
    assert_eq!(findings(&[load, board(add, 7, 7, 1)]), []);
    // Whoever writes it first is overtaken by the load.
    let found = findings(&[load, board(mov(3), 7, 7, 0)]);
    let hazard = Hazard::Overtakes(0);
    assert_eq!(
        found,
        [Finding { address: 16, register: Register::General(3), earlier: 0, hazard }]
    );
    assert!(found[0].to_string().contains("still has to write"), "{}", found[0]);
    // The address, of which the upper half is R9, is read until scoreboard 1 says so.
    let load = board(load, 0, 1, 0);
    let found = findings(&[load, board(mov(9), 7, 7, 0)]);
    let hazard = Hazard::Overwrites(1);
    assert_eq!(
        found,
        [Finding { address: 16, register: Register::General(9), earlier: 0, hazard }]
    );
    assert_eq!(findings(&[load, board(mov(9), 7, 7, 2)]), []);
    // What has written has read.
    assert_eq!(findings(&[load, board(mov(9), 7, 7, 1)]), []);
}
