//! A driver's interface as plain data, and its structs as bytes that are read by the fields' names.

use std::collections::HashMap;
use std::sync::Arc;

/// Globs of the constants that the simulated driver asks its [`Interface`] for. A driver has 50,000
/// others, and a program waits while they are read.
pub const CONSTANTS: [&str; 5] = ["NV_*", "NV0000_*", "NV0080_*", "NV2080_*", "UVM_*"];

/// What the headers of one driver say: whatever reads them fills it in.
#[derive(Debug, Clone, Default)]
pub struct Interface {
    /// The driver version, such as `550.163.01`.
    pub tag: String,
    /// Structs and unions of the resource manager and of UVM, by name.
    pub records: HashMap<String, Layout>,
    /// Integer constants, by name; those of [`CONSTANTS`] are asked for.
    pub constants: HashMap<String, u64>,
    /// Every ioctl.
    pub ioctls: Vec<Ioctl>,
    /// Every control command.
    pub commands: Vec<Command>,
    /// Every class.
    pub classes: Vec<Class>,
}

/// The layout of a struct or union.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// Bytes.
    pub size: usize,
    /// In the order of the declaration.
    pub fields: Vec<Field>,
}

/// A member of a record.
#[derive(Debug, Clone, Default)]
pub struct Field {
    /// Empty for an unnamed member.
    pub name: String,
    /// Bytes from the start of the record.
    pub offset: usize,
    /// Bytes of one element.
    pub size: usize,
    /// Elements; 1 for what is no array.
    pub count: usize,
    /// The record that an element is, if it is one.
    pub record: Option<String>,
}

/// An ioctl.
#[derive(Debug, Clone)]
pub struct Ioctl {
    /// The driver's name of its number.
    pub name: String,
    /// Whether it is one of `/dev/nvidia-uvm`.
    pub is_uvm: bool,
    /// Its number: the last byte of the request, or a whole UVM request.
    pub number: u32,
}

/// A control command.
#[derive(Debug, Clone)]
pub struct Command {
    /// The driver's name of its number.
    pub name: String,
    /// Its number.
    pub number: u32,
    /// The record of its parameters.
    pub params: Option<String>,
}

/// A class.
#[derive(Debug, Clone)]
pub struct Class {
    /// The driver's name of its number.
    pub name: String,
    /// Its number.
    pub number: u32,
    /// The record of its parameters.
    pub params: Option<String>,
    /// Whether these may be left out.
    pub is_optional: bool,
}

impl Interface {
    /// The numbers of the version, from the first.
    pub(super) fn version(&self) -> Vec<u32> {
        self.tag.split('.').map_while(|part| part.parse().ok()).collect()
    }

    pub(crate) fn constant(&self, name: &str) -> Option<u32> {
        let is_read = |glob: &&str| name.starts_with(glob.trim_end_matches('*'));
        debug_assert!(CONSTANTS.iter().any(is_read), "CONSTANTS lacks {name}");
        self.constants.get(name).and_then(|value| u32::try_from(*value).ok())
    }

    /// The same of a name that a profile has: one that [`CONSTANTS`] does not ask for is none.
    pub(crate) fn constant_of_profile(&self, name: &str) -> Option<i128> {
        self.constants.get(name).copied().map(i128::from)
    }

    pub(super) fn ioctl(&self, is_uvm: bool, number: u32) -> Option<&Ioctl> {
        self.ioctls.iter().find(|call| call.is_uvm == is_uvm && call.number == number)
    }

    pub(crate) fn command(&self, number: u32) -> Option<&Command> {
        self.commands.iter().find(|command| command.number == number)
    }

    /// A number in the parameters of a command, where its record has the field.
    pub fn number_in(&self, command: u32, field: &str, bytes: &[u8]) -> Option<u32> {
        let range = self.place(self.command(command)?.params.as_deref()?, field)?;
        let bytes = bytes.get(range.offset..range.offset.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    pub(crate) fn has_class(&self, name: &str) -> bool {
        self.classes.iter().any(|class| class.name == name)
    }

    pub(crate) fn class(&self, number: u32) -> Option<&Class> {
        self.classes.iter().find(|class| class.number == number)
    }

    /// Bytes of a record; `None` when the driver has none of that name.
    pub(crate) fn size(&self, record: &str) -> Option<usize> {
        self.records.get(record).map(|layout| layout.size)
    }

    /// Where a field lies: `status`, `params.hRoot`, `gpuInfoList[3].data`. Members of unnamed members
    /// are found by their own names.
    pub(crate) fn place(&self, record: &str, path: &str) -> Option<FieldRange> {
        let layout = self.records.get(record)?;
        let (first, rest) = path.split_once('.').map_or((path, None), |(a, b)| (a, Some(b)));
        let (name, index) = match first.strip_suffix(']').and_then(|it| it.split_once('[')) {
            Some((name, index)) => (name, Some(index.parse::<usize>().ok()?)),
            None => (first, None),
        };
        let Some(field) = layout.fields.iter().find(|field| field.name == name) else {
            let mut unnamed = layout.fields.iter().filter(|field| field.name.is_empty());
            return unnamed.find_map(|field| {
                let place = self.place(field.record.as_deref()?, path)?;
                Some(FieldRange { offset: place.offset + field.offset, ..place })
            });
        };
        if index.is_some_and(|index| index >= field.count) {
            return None;
        }
        let offset = field.offset + index.unwrap_or(0) * field.size;
        match rest {
            Some(rest) => {
                let place = self.place(field.record.as_deref()?, rest)?;
                Some(FieldRange { offset: place.offset + offset, ..place })
            }
            None => {
                let count = if index.is_some() { 1 } else { field.count };
                Some(FieldRange { offset, size: field.size, count })
            }
        }
    }
}

/// Where a field lies: its first byte, the bytes of an element, and how many elements there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FieldRange {
    pub(crate) offset: usize,
    pub(crate) size: usize,
    pub(crate) count: usize,
}

impl FieldRange {
    pub(super) fn is_inside(&self, length: usize) -> bool {
        self.offset.saturating_add(self.size.saturating_mul(self.count)) <= length
    }
}

/// A field of parameters that no header describes: `+0x10`, of four bytes, `+0x10:8`, `+0x10:1*16`.
pub(crate) fn offset_field(path: &str) -> Option<FieldRange> {
    let path = path.strip_prefix('+')?;
    let (offset, size) = path.split_once(':').unwrap_or((path, "4"));
    let (size, count) = size.split_once('*').unwrap_or((size, "1"));
    let offset = usize::from_str_radix(offset.strip_prefix("0x")?, 16).ok()?;
    let (size, count) = (size.parse().ok()?, count.parse().ok()?);
    let is_right = [1, 2, 4, 8].contains(&size) && count > 0 && offset < 1 << 20 && count < 1 << 20;
    is_right.then_some(FieldRange { offset, size, count })
}

/// A field that the driver's struct has not: where the simulation ends for that driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) record: String,
    pub(super) field: String,
}

/// A struct of the driver: its bytes, read and written by the names of its fields.
#[derive(Debug, Clone)]
pub(super) struct Params {
    interface: Arc<Interface>,
    record: String,
    pub(super) bytes: Vec<u8>,
}

impl Params {
    /// Of bytes that were copied; those that are missing are zero.
    pub(super) fn of(interface: &Arc<Interface>, record: &str, mut bytes: Vec<u8>) -> Self {
        let size = interface.size(record).unwrap_or(0);
        if bytes.len() < size {
            bytes.resize(size, 0);
        }
        Self { interface: interface.clone(), record: record.to_owned(), bytes }
    }

    pub(super) fn place(&self, path: &str) -> Result<FieldRange, Missing> {
        self.interface
            .place(&self.record, path)
            .ok_or_else(|| Missing { record: self.record.clone(), field: path.to_owned() })
    }

    /// Where a field of a name is in each field that is a struct and has one.
    pub(super) fn places_within(&self, name: &str) -> impl Iterator<Item = FieldRange> {
        let fields = self.interface.records.get(&self.record).into_iter();
        fields.flat_map(|layout| &layout.fields).filter_map(move |field| {
            self.interface.place(&self.record, &format!("{}.{name}", field.name))
        })
    }

    /// Whether the driver's struct has it.
    pub(super) fn has(&self, path: &str) -> bool {
        self.place(path).is_ok()
    }

    /// How many elements a field has.
    pub(super) fn count(&self, path: &str) -> Result<usize, Missing> {
        Ok(self.place(path)?.count)
    }

    /// A number of up to eight bytes.
    pub(super) fn get(&self, path: &str) -> Result<u64, Missing> {
        Ok(self.number_at(self.place(path)?))
    }

    /// The same, of a field that is inside.
    pub(super) fn number_at(&self, range: FieldRange) -> u64 {
        let FieldRange { offset, size, .. } = range;
        let mut word = [0; 8];
        let size = size.min(8);
        word[..size].copy_from_slice(&self.bytes[offset..offset + size]);
        u64::from_le_bytes(word)
    }

    /// The same, of four bytes.
    pub(super) fn word(&self, path: &str) -> Result<u32, Missing> {
        Ok(self.get(path)? as u32)
    }

    /// Writes a number, cut to the field's size.
    pub(super) fn set(&mut self, path: &str, value: impl Into<u64>) -> Result<(), Missing> {
        let FieldRange { offset, size, .. } = self.place(path)?;
        let size = size.min(8);
        let value: u64 = value.into();
        self.bytes[offset..offset + size].copy_from_slice(&value.to_le_bytes()[..size]);
        Ok(())
    }

    /// Writes a number where the driver's struct has the field.
    pub(super) fn set_if_any(&mut self, path: &str, value: impl Into<u64>) {
        // One that is not there is what this is for.
        let _ = self.set(path, value);
    }

    /// Writes numbers to the elements of an array, and one to those that are left.
    pub(super) fn fill(&mut self, path: &str, values: &[u32], rest: u32) -> Result<(), Missing> {
        let FieldRange { offset, size, count } = self.place(path)?;
        let values = values.iter().copied().chain(std::iter::repeat(rest));
        let elements = self.bytes[offset..offset + size * count].chunks_exact_mut(size.max(1));
        for (element, value) in elements.zip(values) {
            let length = size.min(4);
            element.fill(0);
            element[..length].copy_from_slice(&value.to_le_bytes()[..length]);
        }
        Ok(())
    }

    /// Bytes of a field, as many as it has.
    pub(super) fn bytes_of(&self, path: &str) -> Result<&[u8], Missing> {
        let FieldRange { offset, size, count } = self.place(path)?;
        Ok(&self.bytes[offset..offset + size * count])
    }

    /// Writes bytes to the beginning of a field; those that have no room are left out.
    pub(super) fn put(&mut self, path: &str, bytes: &[u8]) -> Result<(), Missing> {
        let FieldRange { offset, size, count } = self.place(path)?;
        let length = bytes.len().min(size * count);
        self.bytes[offset..offset + length].copy_from_slice(&bytes[..length]);
        Ok(())
    }

    /// Writes a text that ends with a zero.
    pub(super) fn put_text(&mut self, path: &str, text: &str) -> Result<(), Missing> {
        let FieldRange { offset, size, count } = self.place(path)?;
        let end = offset + size * count;
        let length = text.len().min((size * count).saturating_sub(1));
        self.bytes[offset..offset + length].copy_from_slice(&text.as_bytes()[..length]);
        self.bytes[offset + length..end].fill(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, offset: usize, size: usize, count: usize, record: &str) -> Field {
        let record = (!record.is_empty()).then(|| record.to_owned());
        Field { name: name.to_owned(), offset, size, count, record }
    }

    fn interface() -> Arc<Interface> {
        let pair =
            Layout { size: 8, fields: vec![field("a", 0, 4, 1, ""), field("b", 4, 4, 1, "")] };
        let inner = Layout { size: 4, fields: vec![field("deep", 0, 2, 1, "")] };
        let outer = Layout {
            size: 40,
            fields: vec![
                field("n", 0, 8, 1, ""),
                field("list", 8, 8, 3, "pair"),
                field("", 32, 4, 1, "inner"),
                field("text", 36, 1, 4, ""),
            ],
        };
        let records = [("pair", pair), ("inner", inner), ("outer", outer)];
        let records = records.into_iter().map(|(name, it)| (name.to_owned(), it)).collect();
        Arc::new(Interface { records, ..Interface::default() })
    }

    #[test]
    fn fields_are_found_by_their_names() {
        let mut params = Params::of(&interface(), "outer", vec![1]);
        assert_eq!((params.bytes.len(), params.get("n")), (40, Ok(1)));
        params.set("list[2].b", 0x1_0000_0007_u64).unwrap_or_default();
        assert_eq!((params.get("list[2].b"), params.bytes[28], params.bytes[32]), (Ok(7), 7, 0));
        params.set("deep", 0x1234_u32).unwrap_or_default();
        assert_eq!((params.bytes[32], params.bytes[33]), (0x34, 0x12));
        assert_eq!(params.count("list"), Ok(3));
    }

    #[test]
    fn fields_without_a_name_are_found_by_their_offsets() {
        let range = |offset, size, count| Some(FieldRange { offset, size, count });
        for (path, expected) in [
            ("+0x10", range(16, 4, 1)),
            ("+0x10:8", range(16, 8, 1)),
            ("+0x4:1*16", range(4, 1, 16)),
            ("+16", None),
            ("+0x10:3", None),
            ("+0x10:1*0", None),
            ("+0xffffffffffff", None),
            ("index", None),
        ] {
            assert_eq!(offset_field(path), expected, "{path}");
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        let mut params = Params::of(&interface(), "outer", Vec::new());
        for path in ["m", "list[3].a", "list[0].c", "n.a", "list[x]"] {
            let missing = Missing { record: "outer".to_owned(), field: path.to_owned() };
            assert_eq!(params.get(path), Err(missing.clone()), "{path}");
            assert_eq!(params.set(path, 1_u32), Err(missing), "{path}");
        }
    }

    #[test]
    fn texts_are_cut_and_end() {
        let mut params = Params::of(&interface(), "outer", vec![0xff; 40]);
        params.put_text("text", "12345").unwrap_or_default();
        assert_eq!(params.bytes_of("text"), Ok(&b"123\0"[..]));
        params.put_text("text", "1").unwrap_or_default();
        assert_eq!(params.bytes_of("text"), Ok(&b"1\0\0\0"[..]));
    }
}
