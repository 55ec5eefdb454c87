//! Prints the shim's structs as they were checked, and names control commands by number.

use std::process::ExitCode;

use nvabi::check::NvProxy;
use shim::params::*;

/// What is named when no number is given.
const EXAMPLES: [u32; 3] = [0x0000_0127, 0x0000_0275, 0x2080_0102];

fn main() -> ExitCode {
    let mut commands = Vec::new();
    for word in std::env::args().skip(1) {
        match number(&word) {
            Some(command) => commands.push(command),
            None => {
                eprintln!("error: `{word}` is not a number such as 0x20800102 or 629");
                return ExitCode::from(2);
            }
        }
    }
    if commands.is_empty() {
        commands.extend(EXAMPLES);
    }
    println!("{:<20} {:<50} {:>4}  since", "struct", "driver's", "size");
    row::<ObjectId>();
    row::<Control>();
    row::<NVOS21_PARAMETERS>();
    row::<NVOS64_PARAMETERS>();
    row::<Free>();
    row::<MapMemory>();
    row::<VidHeapControl>();
    row::<MemoryAllocation>();
    row::<RegisterGpuVaSpace>();
    row::<UuidFromGpuId>();
    row::<UuidTable>();
    row::<UuidTableV2>();
    println!();
    println!("{:<10}  {:<45} translate", "command", "name");
    for command in commands {
        match shim::command(command) {
            Some(info) => {
                println!("{command:#010x}  {:<45} {}", info.name, shim::to_translate(info));
            }
            None => println!("{command:#010x}  (driver 550 has no such command here)"),
        }
    }
    ExitCode::SUCCESS
}

fn row<T: NvProxy>() {
    let (own, driver) = (T::OWN, T::LAYOUT);
    println!("{:<20} {:<50} {:>4}  {}", own.name, T::NAME, own.size, driver.since);
}

/// A number in hexadecimal, with `0x`, or in decimal.
fn number(word: &str) -> Option<u32> {
    match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}
