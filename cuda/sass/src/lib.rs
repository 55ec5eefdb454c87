#![doc = include_str!("../README.md")]

mod arch;
pub mod check;
mod control;
pub mod cubin;
mod decode;
mod isa;
mod lines;
mod list;
mod text;

use isa::{Bank, Base, Bits, Choice, Descriptor, Field, Form, Hidden, Meaning, Source};

pub use arch::Arch;
pub use control::Control;
pub use decode::{Address, ConstantBank, Guard, Instruction, Operand, Unknown, Value, decode};
pub use list::List;

include!(concat!(env!("OUT_DIR"), "/isa.rs"));
