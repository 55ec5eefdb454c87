//! Nothing that is no instruction, and nothing that is no file, makes the decoder panic.
//!
//! `NVABI_SASS_ROUNDS` is how many instructions; a debug build takes a second for 200000.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;

use nvabi_sass::cubin::{Code, cubin, images};
use nvabi_sass::{Arch, decode};
use nvabi_test::Random;

fn word(random: &mut Random) -> u128 {
    u128::from(random.next()) << 64 | u128::from(random.next())
}

fn rounds() -> usize {
    std::env::var("NVABI_SASS_ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(200_000)
}

#[test]
fn random_bits_are_instructions_or_unknown() {
    let is_known = |opcode: &u128| match decode(Arch::Sm90, *opcode, 0) {
        Ok(_) => true,
        Err(unknown) => unknown.name.is_some(),
    };
    let opcodes: Vec<u128> = (0..0x1000).filter(is_known).collect();
    let mut random = Random(1);
    let mut known = 0;
    for round in 0..rounds() {
        let opcode = opcodes[random.below(opcodes.len())];
        let few = word(&mut random) & word(&mut random) & word(&mut random) & word(&mut random);
        let word = match round % 4 {
            0 => word(&mut random),
            1 => word(&mut random) & !0xfff | opcode,
            // Few bits, so that some are instructions.
            _ => few & !0xfff | opcode,
        };
        for arch in Arch::ALL {
            match decode(arch, word, random.next()) {
                Ok(instruction) => {
                    known += 1;
                    black_box(instruction.to_string());
                }
                Err(unknown) => assert_eq!(unknown.word, word),
            }
        }
    }
    println!("{known} of {} were instructions", rounds() * Arch::ALL.len());
    assert!(known > rounds() / 1000);
}

#[test]
fn a_bit_that_no_field_names_makes_it_unknown() {
    let iadd3 = 0x000f_e200_07ff_e0ff_0000_0001_0505_7810;
    assert_eq!(decode(Arch::Sm80, iadd3, 0).unwrap().to_string(), "IADD3 R5, R5, 0x1, RZ");
    let unknown = decode(Arch::Sm80, iadd3 | 1 << 100, 0).unwrap_err();
    assert!(unknown.name.is_some());
    assert_eq!(
        unknown.to_string(),
        "IADD3 with an unknown encoding, 0x810 (0x000fe21007ffe0ff0000000105057810)"
    );
}

#[test]
fn damaged_files_are_errors() {
    let elf = elf();
    assert_eq!(cubin(&elf).unwrap().functions.len(), 1);
    let fatbin = fatbin(&elf);
    assert_eq!(images(&fatbin).unwrap().len(), 1);
    let mut random = Random(2);
    for _ in 0..rounds() / 10 {
        for file in [&elf, &fatbin] {
            let mut damaged = file.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(damaged.len());
                damaged[at] = random.next() as u8;
            }
            damaged.truncate(random.below(damaged.len() * 4).max(1));
            for image in images(&damaged).unwrap_or_default() {
                if let Code::Cubin(bytes) = &image.code {
                    black_box(cubin(bytes).map(|cubin| cubin.functions.len()).ok());
                }
            }
        }
    }
}

/// A cubin with one function and a line table.
fn elf() -> Vec<u8> {
    let names = b"\0.shstrtab\0.text.f\0.debug_line\0.rel.debug_line\0.symtab\0";
    let line = [
        &[0x2c, 0, 0, 0, 2, 0, 20, 0, 0, 0, 16, 1, 0xff, 4, 10, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0][..],
        b"f.cu\0\0\0\0\0",
        &[0, 9, 2, 0, 0, 0, 0, 0, 0, 0, 0, 20, 0, 1, 1],
    ]
    .concat();
    let mut symbol = [0_u8; 48];
    symbol[24 + 6] = 2;
    let relocation = [37, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0];
    let exit = 0x000f_ea00_0380_0000_0000_0000_0000_794d_u128.to_le_bytes();
    let sections: [(u32, &[u8], u32, u32); 6] = [
        (0, b"", 0, 0),
        (1, names, 0, 0),
        (11, &exit, 0, 0),
        (19, &line, 0, 0),
        (31, &relocation, 5, 3),
        (47, &symbol, 0, 0),
    ];
    let mut file = vec![0; 64];
    let mut headers = Vec::new();
    for (name, bytes, link, info) in sections {
        let mut header = [0_u8; 64];
        header[0..4].copy_from_slice(&name.to_le_bytes());
        header[4] = 1;
        header[24..32].copy_from_slice(&(file.len() as u64).to_le_bytes());
        header[32..40].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        header[40..44].copy_from_slice(&link.to_le_bytes());
        header[44..48].copy_from_slice(&info.to_le_bytes());
        file.extend(bytes);
        headers.extend(header);
    }
    let table = file.len() as u64;
    file.extend(headers);
    file[0..9].copy_from_slice(b"\x7fELF\x02\x01\x01\x33\x07");
    file[18] = 190;
    file[40..48].copy_from_slice(&table.to_le_bytes());
    file[48..52].copy_from_slice(&0x0050_0550_u32.to_le_bytes());
    (file[58], file[60], file[62]) = (64, 6, 1);
    file
}

fn fatbin(image: &[u8]) -> Vec<u8> {
    let mut file = vec![0; 80];
    file[0..4].copy_from_slice(&0xba55_ed50_u32.to_le_bytes());
    file[6] = 16;
    file[8..16].copy_from_slice(&(64 + image.len() as u64).to_le_bytes());
    (file[16], file[20], file[44]) = (2, 64, 80);
    file[24..32].copy_from_slice(&(image.len() as u64).to_le_bytes());
    file.extend(image);
    file
}
