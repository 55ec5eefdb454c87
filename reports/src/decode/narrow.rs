//! Records as 32-bit programs lay them out.
//!
//! Facts are those of 64-bit programs. In a 32-bit program pointers, `long` and `size_t` have 4 bytes; integers of 8
//! bytes keep size and alignment, on ARM by its rules and elsewhere because the driver's headers align them. A
//! record is laid out again only where the same rules, with 8 bytes for a pointer, give the layout that the facts
//! have: one with an alignment or packing of its own is left out.

use std::collections::BTreeMap;

use nvabi_pipeline::model::{Field, Record, RecordKind, Surface, split_array};

/// Records in records: the driver's are a handful deep.
const DEPTH: usize = 64;

/// Bytes of a pointer in programs of 64 bits and of 32.
const WIDE: u64 = 8;
const NARROW: u64 = 4;

/// A record and those in it as a 32-bit program has them; `None` where that is the same, or is not known.
pub(crate) fn records(surface: &Surface, name: &str) -> Option<BTreeMap<String, Record>> {
    let (wide, narrow) = (Layouts::of(surface, WIDE, name)?, Layouts::of(surface, NARROW, name)?);
    let is_known = |(name, record): (&String, &Record)| {
        surface.records.get(name).is_some_and(|real| same_layout(real, record))
    };
    let differs = narrow.get(name)?.fields != wide.get(name)?.fields;
    (wide.iter().all(is_known) && differs).then_some(narrow)
}

/// The size of a record in a 32-bit program, where it is another.
pub(crate) fn size(surface: &Surface, name: &str) -> Option<u64> {
    let narrow = records(surface, name)?.get(name)?.size;
    (narrow != surface.records.get(name)?.size).then_some(narrow)
}

fn same_layout(real: &Record, made: &Record) -> bool {
    (real.size, real.align) == (made.size, made.align) && real.fields == made.fields
}

/// Records as they are laid out with pointers of a size.
struct Layouts<'s> {
    surface: &'s Surface,
    pointer: u64,
    made: BTreeMap<String, Record>,
}

impl<'s> Layouts<'s> {
    /// The record of that name and all that are in it.
    fn of(surface: &'s Surface, pointer: u64, name: &str) -> Option<BTreeMap<String, Record>> {
        let mut layouts = Self { surface, pointer, made: BTreeMap::new() };
        layouts.record(name, 0)?;
        Some(layouts.made)
    }

    /// Size and alignment.
    fn record(&mut self, name: &str, depth: usize) -> Option<(u64, u64)> {
        if let Some(known) = self.made.get(name) {
            return Some((known.size, known.align));
        }
        let record = self.surface.records.get(name).filter(|_| depth < DEPTH)?;
        let (mut end, mut align) = (0u64, 1);
        let mut fields = Vec::new();
        for field in record.fields.iter() {
            let (_, counts) = split_array(&field.canonical);
            let count: u64 = counts.iter().product();
            let (one, needs) = self.one(field, count, depth)?;
            let size = one.checked_mul(count)?;
            let offset = match record.kind {
                RecordKind::Struct => end.checked_next_multiple_of(needs)?,
                RecordKind::Union => 0,
            };
            (end, align) = (end.max(offset.checked_add(size)?), align.max(needs));
            fields.push(Field { offset, size, ..field.clone() });
        }
        let size = end.checked_next_multiple_of(align)?;
        self.made.insert(
            name.to_owned(),
            Record { size, align, fields: fields.into(), ..record.clone() },
        );
        Some((size, align))
    }

    /// Size and alignment of one element of a field. Storage of bit-fields is shared, which nothing here knows.
    fn one(&mut self, field: &Field, count: u64, depth: usize) -> Option<(u64, u64)> {
        let (base, _) = split_array(&field.canonical);
        if field.bits.is_some() {
            return None;
        }
        if self.surface.records.contains_key(base) {
            return self.record(base, depth + 1);
        }
        let size = match is_pointer(base, &field.ty) {
            true => self.pointer,
            false => field.size.checked_div(count).filter(|size| size.is_power_of_two())?,
        };
        (size <= WIDE).then_some((size, size))
    }
}

/// Whether a type is as wide as a pointer. `uint64_t` is `long` too, and `NvP64` a pointer: their names say that
/// they are 64 bits in any program.
fn is_pointer(canonical: &str, declared: &str) -> bool {
    let address = canonical.ends_with('*') || canonical.contains("(*");
    let is_word = address || matches!(canonical, "long" | "unsigned long");
    is_word && !split_array(declared).0.contains("64")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvabi_pipeline::model::{Bits, Source};

    fn field(name: &str, ty: &str, canonical: &str, offset: u64, size: u64) -> Field {
        let [name, ty, canonical] = [name, ty, canonical].map(str::to_owned);
        Field { name, ty, canonical, offset, size, bits: None }
    }

    fn record(kind: RecordKind, size: u64, fields: Vec<Field>) -> Record {
        Record {
            kind,
            size,
            align: 8,
            source: Source { path: "a.h".into(), line: 1 },
            fields: fields.into(),
        }
    }

    fn surface_of(records: Vec<(&str, Record)>) -> Surface {
        let records = records.into_iter().map(|(name, record)| (name.to_owned(), record));
        Surface { records: records.collect(), ..Surface::default() }
    }

    const U32: &str = "unsigned int";

    fn places(of: &Surface, name: &str) -> Vec<(u64, u64)> {
        let narrow = records(of, name).unwrap();
        narrow[name].fields.iter().map(|field| (field.offset, field.size)).collect()
    }

    #[test]
    fn pointers_and_long_are_narrow_and_64_bits_stay() {
        let fields = vec![
            field("addr", "unsigned long", "unsigned long", 0, 8),
            field("handle", U32, U32, 8, 4),
            field("list", "void *[2]", "void *[2]", 16, 16),
            field("wide", "uint64_t", "unsigned long", 32, 8),
            field("pointer", "NvP64", "void *", 40, 8),
            field("callback", "void (*)(int)", "void (*)(int)", 48, 8),
        ];
        let of = surface_of(vec![("R", record(RecordKind::Struct, 56, fields))]);
        assert_eq!(places(&of, "R"), [(0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 4)]);
        assert_eq!(size(&of, "R"), Some(40));
    }

    #[test]
    fn records_inside_are_narrow_too() {
        let inner = vec![field("p", "char *", "char *", 0, 8), field("n", U32, U32, 8, 4)];
        let either = vec![field("r", "In", "In", 0, 16), field("n", U32, U32, 0, 4)];
        let outer = vec![field("u", "Un[2]", "Un[2]", 0, 32), field("n", U32, U32, 32, 4)];
        let of = surface_of(vec![
            ("In", record(RecordKind::Struct, 16, inner)),
            ("Un", record(RecordKind::Union, 16, either)),
            ("Out", record(RecordKind::Struct, 40, outer)),
        ]);
        assert_eq!(places(&of, "Out"), [(0, 16), (16, 4)]);
        assert_eq!((size(&of, "Out"), size(&of, "In")), (Some(20), Some(8)));
    }

    /// What is the same in both has no other form, and what the rules do not explain is not guessed.
    #[test]
    fn nothing_is_guessed() {
        let same = vec![field("a", "NvU64", "unsigned long long", 0, 8)];
        let packed = vec![field("n", U32, U32, 0, 4), field("p", "char *", "char *", 4, 8)];
        let aligned = vec![field("p", "char *", "char *", 0, 8), field("n", U32, U32, 16, 4)];
        let bits = Some(Bits { bit_offset: 0, bit_width: 3 });
        let bits = vec![
            field("p", "char *", "char *", 0, 8),
            Field { bits, ..field("b", U32, U32, 8, 4) },
        ];
        let of = surface_of(vec![
            ("Same", record(RecordKind::Struct, 8, same)),
            ("Packed", record(RecordKind::Struct, 12, packed)),
            ("Aligned", record(RecordKind::Struct, 24, aligned)),
            ("Bits", record(RecordKind::Struct, 16, bits)),
        ]);
        for name in ["Same", "Packed", "Aligned", "Bits", "None"] {
            assert_eq!(size(&of, name), None, "{name}");
        }
    }

    #[test]
    fn a_record_that_holds_itself_ends() {
        let fields = vec![field("p", "char *", "char *", 0, 8), field("r", "R", "R", 8, 8)];
        let of = surface_of(vec![("R", record(RecordKind::Struct, 16, fields))]);
        assert_eq!(size(&of, "R"), None);
    }
}
