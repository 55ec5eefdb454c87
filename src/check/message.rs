//! A string that can be written while constants are evaluated.

use super::{Layout, Type};

const CAPACITY: usize = 2000;
const MARK: &str = "…";

/// A diagnostic under construction, in a buffer of fixed size. What does not fit is cut at a whole
/// piece and marked with an ellipsis.
#[derive(Clone, Copy)]
pub struct Message {
    bytes: [u8; CAPACITY],
    len: usize,
    full: bool,
}

/// Whose notation a type is written in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// As the driver names it.
    Driver,
    /// As a user writes it in Rust.
    Ours,
}

impl Message {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; CAPACITY], len: 0, full: false }
    }

    /// The text so far.
    pub const fn as_str(&self) -> &str {
        let (text, _) = self.bytes.split_at(self.len);
        match core::str::from_utf8(text) {
            Ok(text) => text,
            Err(_) => "the message is not valid UTF-8",
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) const fn push(&mut self, text: &str) {
        if self.full {
            return;
        }
        if self.len + text.len() > CAPACITY - MARK.len() {
            self.full = true;
            self.append(MARK);
        } else {
            self.append(text);
        }
    }

    const fn append(&mut self, text: &str) {
        let text = text.as_bytes();
        let mut at = 0;
        while at < text.len() {
            self.bytes[self.len] = text[at];
            self.len += 1;
            at += 1;
        }
    }

    /// Starts a further line if there is text already.
    pub(super) const fn line(&mut self) {
        if !self.is_empty() {
            self.push("\n");
        }
    }

    pub(super) const fn number(&mut self, value: u32) {
        if value >= 10 {
            self.number(value / 10);
        }
        const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
        self.push(DIGITS[(value % 10) as usize]);
    }

    /// `1 byte`, `4 bytes`.
    pub(super) const fn size(&mut self, value: u32) {
        self.number(value);
        self.push(if value == 1 { " byte" } else { " bytes" });
    }

    pub(super) const fn quoted(&mut self, text: &str) {
        self.push("`");
        self.push(text);
        self.push("`");
    }

    /// ` (tag, header:line)`.
    pub(super) const fn place(&mut self, layout: &Layout) {
        self.push(" (");
        self.push(layout.since);
        self.push(", ");
        self.push(layout.source);
        self.push(")");
    }

    pub(super) const fn ty(&mut self, ty: &Type, side: Side) {
        match ty {
            Type::Array(element, count) => {
                self.push("[");
                self.ty(element, side);
                self.push("; ");
                self.number(*count);
                self.push("]");
            }
            Type::Record(layout) => self.push(layout.name),
            Type::Bits(storage, _) => self.ty(storage, side),
            _ => self.push(scalar_name(ty, side)),
        }
    }
}

const fn scalar_name(ty: &Type, side: Side) -> &'static str {
    let driver = matches!(side, Side::Driver);
    match ty {
        Type::Int { size, signed } => integer_name(*size, *signed),
        Type::Float { size: 4 } => "f32",
        Type::Float { .. } => "f64",
        Type::Char if driver => "char",
        Type::Char => "u8",
        Type::Enum if driver => "enum",
        Type::Enum => "u32",
        Type::Handle if driver => "NvHandle",
        Type::Handle => "Handle",
        Type::P64 if driver => "NvP64",
        Type::P64 => "P64",
        Type::Uuid if driver => "NvProcessorUuid",
        Type::Uuid => "Uuid",
        Type::Array(..) | Type::Record(_) | Type::Bits(..) => "",
    }
}

const fn integer_name(size: u8, signed: bool) -> &'static str {
    match (size, signed) {
        (1, false) => "u8",
        (1, true) => "i8",
        (2, false) => "u16",
        (2, true) => "i16",
        (4, false) => "u32",
        (4, true) => "i32",
        (8, false) => "u64",
        (8, true) => "i64",
        (16, false) => "u128",
        (16, true) => "i128",
        _ => "integer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_types_are_written_out() {
        let mut message = Message::new();
        message.size(1);
        message.push(" ");
        message.number(4096);
        message.push(" ");
        message.ty(&Type::Array(&Type::Handle, 3), Side::Driver);
        message.push(" ");
        message.ty(&Type::Array(&Type::Handle, 3), Side::Ours);
        assert_eq!(message.as_str(), "1 byte 4096 [NvHandle; 3] [Handle; 3]");
    }

    #[test]
    fn too_long_a_text_is_cut_and_marked() {
        let mut message = Message::new();
        for _ in 0..CAPACITY {
            message.push("ab");
        }
        assert!(message.as_str().ends_with("ab…"));
    }
}
