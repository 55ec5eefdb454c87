//! Compares a user's struct with a driver's layout.
//!
//! Strict: every driver field has the user's field of that name at the same offset, with the same
//! size and kind, and nothing else is there but explicit padding. Flatten: both sides are seen as
//! their leaves (scalars and arrays of scalars), and every driver leaf must have a user's leaf of
//! the same kind and name at the same offset, or only the kind with `by_offset`, where a field bears no
//! explicit name. Of a union one variant's leaves are enough; what other variants have beside them must then be
//! bytes. A union of the user's stands
//! only for a union.
//!
//! | module | what it compares |
//! |---|---|
//! | `whole` | A struct as a whole: its kind, size and alignment, and the driver's fields that it lacks |
//! | `value` | Aliases of one value, such as `NvHandle`: a user's struct stands for one with its one field |
//! | `strict` | Strict: field by field, by name |
//! | `flatten` | Flatten: leaf by leaf, with the path to each that is wrong |
//! | `names` | Flatten: whether fields have the names of the driver's at their offsets |
//! | `leaves` | Whether a user's struct has the driver's leaves, however deep either side nests them |
//! | `variants` | Unions that are given by one of their variants |
//! | `types` | Types and offsets of both sides: what is the same, and what lies where |
//! | `suggest` | Which field of the driver's a user may have meant |
//! | `text` | Pieces of messages that several checks share |

mod flatten;
mod leaves;
mod names;
mod strict;
mod suggest;
mod text;
mod types;
mod value;
mod variants;
mod whole;

use super::message::Message;
use super::{Field, Layout, LayoutKind, Type};
use flatten::{flat_field, missing_leaves};
use names::names;
use strict::strict_field;
use types::is_union;
pub use types::same_layout;
use value::{one_value, value, value_field};
use whole::{alignment, any_field_message, kind, missing_fields, size};

/// A user's struct beside the driver's.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// The user's struct; its fields bear the names that the driver has for them.
    pub own: &'static Layout,
    /// The driver's, or `None` where the lookup failed, which is reported elsewhere.
    pub driver: Option<&'static Layout>,
    /// What is compared.
    pub how: How,
}

/// What is compared of two structs.
#[derive(Clone, Copy, Debug)]
pub enum How {
    /// Each field with the driver's of its name.
    Strict,
    /// Leaves, wherever either side nests them.
    Flatten {
        /// Of each field of the user's, whether a name is given for it.
        explicit: &'static [bool],
        /// Whether only those names are compared that are given.
        by_offset: bool,
    },
}

impl How {
    const fn is_flat(&self) -> bool {
        matches!(self, Self::Flatten { .. })
    }
}

/// Stops the compilation if a field of the user's struct disagrees with the driver. `name` is what
/// the user calls it.
#[track_caller]
#[allow(clippy::panic, reason = "a panic in a constant is how a compile error is raised")]
pub const fn assert_field(comparison: &Comparison, index: usize, name: &str) {
    if let Some(message) = field_message(comparison, index, name) {
        panic!("{}", message.as_str())
    }
}

/// Stops the compilation if the user's struct as a whole disagrees with the driver.
#[track_caller]
#[allow(clippy::panic, reason = "a panic in a constant is how a compile error is raised")]
pub const fn assert_struct(comparison: &Comparison) {
    if let Some(message) = struct_message(comparison) {
        panic!("{}", message.as_str())
    }
}

/// Whether nothing is to be said of the user's struct.
pub const fn agrees(comparison: &Comparison) -> bool {
    struct_message(comparison).is_none() && !any_field_message(comparison)
}

const fn field_message(comparison: &Comparison, index: usize, name: &str) -> Option<Message> {
    let Some(driver) = comparison.driver else { return None };
    let driver = aliased(driver);
    let own = comparison.own;
    let mut message = Message::new();
    if let Some(value) = value(driver) {
        value_field(&mut message, own, driver, value, index, name);
    } else if !kinds_agree(comparison, driver) {
        return None;
    } else if comparison.how.is_flat() {
        flat_field(&mut message, own, driver, index, name);
        if message.is_empty() {
            names(&mut message, own, driver, &comparison.how, index, name);
        }
    } else {
        strict_field(&mut message, own, driver, index, name);
    }
    if message.is_empty() { None } else { Some(message) }
}

const fn struct_message(comparison: &Comparison) -> Option<Message> {
    let Some(driver) = comparison.driver else { return None };
    let driver = aliased(driver);
    let own = comparison.own;
    let mut message = Message::new();
    if let Some(value) = value(driver) {
        one_value(&mut message, own, driver, value);
        size(&mut message, comparison, driver);
        alignment(&mut message, own, driver);
    } else if !kinds_agree(comparison, driver) {
        kind(&mut message, own, driver);
    } else if comparison.how.is_flat() {
        missing_leaves(&mut message, own, driver);
        size(&mut message, comparison, driver);
        // Bytes for a union, or `packed`, align less: the bytes are right all the same. A larger
        // alignment is one that the driver's bytes need not have.
        if own.align > driver.align {
            alignment(&mut message, own, driver);
        }
    } else {
        missing_fields(&mut message, own, driver);
        size(&mut message, comparison, driver);
        alignment(&mut message, own, driver);
    }
    if message.is_empty() { None } else { Some(message) }
}

/// The record that an alias names, or the layout itself.
const fn aliased(driver: &'static Layout) -> &'static Layout {
    match driver {
        Layout {
            kind: LayoutKind::Alias,
            fields: [Field { ty: Type::Record(record), .. }],
            ..
        } => aliased(record),
        _ => driver,
    }
}

/// Whether a struct may be given for what the driver has. Flattened, a struct may stand for a
/// union, which is one of its variants; a union never stands for a struct, whose fields it would
/// lay over each other.
const fn kinds_agree(comparison: &Comparison, driver: &Layout) -> bool {
    match (is_union(comparison.own), is_union(driver)) {
        (true, false) => false,
        (false, true) => comparison.how.is_flat(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Bit;

    const U8: Type = Type::Int { size: 1, signed: false };
    const U32: Type = Type::Int { size: 4, signed: false };
    const U64: Type = Type::Int { size: 8, signed: false };

    const fn field(name: &'static str, offset: u32, ty: Type) -> Field {
        Field { name, offset, ty }
    }

    fn layout(name: &'static str, size: u32, fields: &[Field]) -> &'static Layout {
        let fields = fields.to_vec().leak();
        let (since, source) = (name, "a.h:1");
        Box::leak(Box::new(Layout {
            name,
            kind: LayoutKind::Struct,
            size,
            align: 4,
            since,
            source,
            fields,
        }))
    }

    fn union(name: &'static str, size: u32, fields: &[Field]) -> &'static Layout {
        Box::leak(Box::new(Layout { kind: LayoutKind::Union, ..*layout(name, size, fields) }))
    }

    /// All that is said about a struct, a line each, without the help.
    fn complaints(own: &'static Layout, driver: &'static Layout, flatten: bool) -> Vec<String> {
        let explicit = vec![false; own.fields.len()].leak();
        let how = if flatten { How::Flatten { explicit, by_offset: true } } else { How::Strict };
        let comparison = Comparison { own, driver: Some(driver), how };
        let names = own.fields.iter().map(|field| field.name).enumerate();
        let fields = names.filter_map(|(at, name)| field_message(&comparison, at, name));
        fields
            .chain(struct_message(&comparison))
            .flat_map(|message| message.as_str().lines().map(str::to_owned).collect::<Vec<_>>())
            .filter(|line| !line.starts_with("help: "))
            .collect()
    }

    #[test]
    fn a_wrong_width_is_one_complaint_and_not_one_for_each_field_it_pushes() {
        let driver = layout("D", 12, &[field("a", 0, U32), field("b", 4, U32), field("c", 8, U32)]);
        let own = layout("M", 20, &[field("a", 0, U64), field("b", 8, U32), field("c", 12, U32)]);
        assert_eq!(
            complaints(own, driver, false),
            [
                "M.a is u64 (8 bytes), but the driver has D.a as u32 (4 bytes) (D, a.h:1)",
                "M is 20 bytes, but the driver's D is 12 (D, a.h:1)",
            ]
        );
    }

    #[test]
    fn two_mistakes_are_two_complaints() {
        let driver = layout("D", 12, &[field("a", 0, U32), field("b", 4, U32), field("c", 8, U32)]);
        let own = layout("M", 20, &[field("a", 0, U64), field("b", 8, U32), field("c", 16, U32)]);
        let complaints = complaints(own, driver, false);
        assert_eq!(complaints.len(), 3, "{complaints:?}");
        assert_eq!(complaints[1], "M.c is at offset 16, but the driver has D.c at 8 (D, a.h:1)");
    }

    #[test]
    fn a_misnamed_field_is_not_missing_as_well() {
        let driver = layout("D", 8, &[field("a", 0, U32), field("b", 4, U32)]);
        let own = layout("M", 8, &[field("a", 0, U32), field("z", 4, U32)]);
        assert_eq!(
            complaints(own, driver, false),
            ["M.z is at offset 4, but the driver's D has no field `z` (D, a.h:1)"]
        );
    }

    #[test]
    fn a_field_in_padding_is_missing() {
        let driver = layout("D", 8, &[field("a", 0, U32), field("b", 4, U8)]);
        let own = layout("M", 8, &[field("a", 0, U32)]);
        assert_eq!(
            complaints(own, driver, false),
            ["M lacks D.b: u8, 1 byte at offset 4 (D, a.h:1)"]
        );
        assert_eq!(
            complaints(own, driver, true),
            ["M has no field at offset 4, but the driver has D.b there as u8 (1 byte) (D, a.h:1)"]
        );
    }

    #[test]
    fn a_leaf_across_two_fields_belongs_to_the_one_it_starts_in() {
        let driver = layout("D", 8, &[field("a", 0, U32), field("b", 4, U32)]);
        let own = layout("M", 8, &[field("a", 0, U64)]);
        let found = complaints(own, driver, true);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[1].starts_with("M.a has no field that starts at offset 4"), "{found:?}");
    }

    #[test]
    fn a_union_is_bytes_or_one_variant_only_when_flattened() {
        let data = union("U", 8, &[field("wide", 0, U64), field("narrow", 0, U32)]);
        let driver = layout("D", 8, &[field("data", 0, Type::Record(data))]);
        let bytes: &'static Type = Box::leak(Box::new(U8));
        let own = layout("M", 8, &[field("data", 0, Type::Array(bytes, 8))]);
        assert_eq!(complaints(own, driver, true), [""; 0]);
        assert_eq!(complaints(own, driver, false).len(), 1);
        let narrow = layout("M", 8, &[field("x", 0, U32), field("y", 4, U32)]);
        assert_eq!(
            complaints(narrow, driver, true),
            [
                "M.y has u32 (4 bytes) at offset 4, but there the driver's D.data has 4 bytes of `wide` and none of `narrow` (D, a.h:1)"
            ]
        );
        let bytes = layout("M", 8, &[field("x", 0, U32), field("y", 4, Type::Array(bytes, 4))]);
        assert_eq!(complaints(bytes, driver, true), [""; 0]);
        let short = layout("M", 8, &[field("data", 0, Type::Array(&U8, 7))]);
        assert_eq!(complaints(short, driver, true).len(), 1);
    }

    #[test]
    fn an_array_of_structs_names_the_element_that_differs() {
        let element = layout("E", 8, &[field("x", 0, U32), field("y", 4, U32)]);
        let element: &'static Type = Box::leak(Box::new(Type::Record(element)));
        let driver = layout("D", 16, &[field("list", 0, Type::Array(element, 2))]);
        let fields = [field("a", 0, U32), field("b", 4, U32), field("c", 8, U32)];
        let good = layout("M", 16, &[&fields[..], &[field("d", 12, U32)]].concat());
        assert_eq!(complaints(good, driver, true), [""; 0]);
        let bad = layout("M", 16, &[&fields[..], &[field("d", 12, Type::Handle)]].concat());
        assert_eq!(
            complaints(bad, driver, true),
            [
                "M.d has Handle (4 bytes) at offset 12, but the driver has D.list[1].y there as u32 (4 bytes) (E, a.h:1)"
            ]
        );
    }

    #[test]
    fn each_byte_that_only_other_variants_have_must_be_spare() {
        let pair = layout("P", 8, &[field("tag", 0, U8), field("value", 4, U32)]);
        let fields = [field("pair", 0, Type::Record(pair)), field("late", 8, U64)];
        let data = union("U", 24, &fields);
        let driver = layout("D", 28, &[field("data", 0, Type::Record(data)), field("n", 24, U32)]);
        let own = |fields: &[Field]| layout("M", 28, &[fields, &[field("n", 24, U32)]].concat());
        let given = [field("tag", 0, U8), field("value", 4, U32)];
        let with = |rest: &[Field]| complaints(own(&[&given, rest].concat()), driver, true);
        // Bytes 1 to 3 and 16 to 23 are padding in every variant, so that anything may be there.
        assert_eq!(with(&[field("rest", 8, Type::Array(&U8, 8))]), [""; 0]);
        assert_eq!(with(&[field("rest", 8, Type::Array(&U8, 8)), field("x", 16, U64)]), [""; 0]);
        assert_eq!(with(&[field("_rest", 8, U64)]), [""; 0]);
        assert_eq!(with(&[field("a", 8, U8), field("b", 9, Type::Array(&U8, 15))]), [""; 0]);
        assert_eq!(
            with(&[field("rest", 8, Type::Array(&U8, 5))]),
            [
                "M has no field at offset 13, but there the driver's D.data has 3 bytes of `late` and none of `pair` (D, a.h:1)"
            ]
        );
        assert_eq!(
            with(&[field("rest", 8, Type::Array(&U8, 4)), field("more", 12, U32)]),
            [
                "M.more has u32 (4 bytes) at offset 12, but there the driver's D.data has 4 bytes of `late` and none of `pair` (D, a.h:1)"
            ]
        );
    }

    #[test]
    fn a_variant_without_bytes_is_none() {
        let none: &'static Type = Box::leak(Box::new(U8));
        let fields = [field("tail", 0, Type::Array(none, 0)), field("wide", 0, U64)];
        let data = union("U", 8, &fields);
        let driver = layout("D", 8, &[field("data", 0, Type::Record(data))]);
        let own = layout("M", 8, &[field("a", 0, U32), field("b", 4, U32)]);
        assert_eq!(
            complaints(own, driver, true),
            [
                "M.a has u32 (4 bytes) at offset 0, but the driver has D.data there as U (8 bytes) (D, a.h:1)"
            ]
        );
    }

    #[test]
    fn a_union_of_the_users_stands_for_a_union_alone() {
        let words = union("W", 8, &[field("wide", 0, U64), field("narrow", 0, U32)]);
        let own = layout("M", 8, &[field("u", 0, Type::Record(words))]);
        let flat = layout("D", 8, &[field("wide", 0, U64)]);
        let found = complaints(own, flat, true);
        assert_eq!(
            found,
            [
                "M.u has the union W (8 bytes) at offset 0, but the driver has D.wide there as u64 (8 bytes) (D, a.h:1)"
            ]
        );
        let inner = layout("I", 8, &[field("wide", 0, U64)]);
        let nested = layout("D", 8, &[field("inner", 0, Type::Record(inner))]);
        assert_eq!(complaints(own, nested, true).len(), 1);
        let other = union("V", 8, &[field("wide", 0, U64)]);
        let driver = layout("D", 8, &[field("data", 0, Type::Record(other))]);
        assert_eq!(complaints(own, driver, true), [""; 0]);
    }

    #[test]
    fn an_alias_is_one_value_of_its_kind() {
        let alias = |ty: Type| -> &'static Layout {
            let fields = [field("", 0, ty)].to_vec().leak();
            Box::leak(Box::new(Layout {
                kind: LayoutKind::Alias,
                fields,
                ..*layout("A", ty.size(), &[])
            }))
        };
        let own = |ty: Type| layout("M", ty.size(), &[field("value", 0, ty)]);
        let bytes = Type::Array(&U8, 16);
        let handles = Type::Array(&Type::Handle, 2);
        for (ty, value) in [
            (U32, Type::Handle),
            (Type::Handle, Type::Handle),
            (U64, Type::P64),
            (bytes, Type::Uuid),
            (U32, Type::Enum),
            (U8, Type::Char),
            (Type::Array(&U32, 2), handles),
            (Type::Record(own(Type::Handle)), Type::Handle),
        ] {
            assert_eq!(complaints(own(ty), alias(value), false), [""; 0], "{ty:?} for {value:?}");
        }
        for (ty, value) in [
            (Type::Float { size: 4 }, Type::Handle),
            (Type::Array(&U8, 4), Type::Handle),
            (Type::Handle, U32),
            (Type::Handle, Type::Enum),
            (U64, handles),
            (Type::Record(layout("R", 8, &[field("a", 0, U32), field("b", 4, U32)])), Type::P64),
            (Type::Record(union("R", 4, &[field("a", 0, U32)])), Type::Handle),
        ] {
            assert_eq!(complaints(own(ty), alias(value), false).len(), 1, "{ty:?} for {value:?}");
        }
        let record = layout("R", 8, &[field("a", 0, U32), field("b", 4, U32)]);
        let own = layout("M", 8, &[field("a", 0, U32), field("b", 4, Type::Float { size: 4 })]);
        assert_eq!(complaints(record, alias(Type::Record(record)), false), [""; 0]);
        assert_eq!(
            complaints(own, alias(Type::Record(record)), false),
            ["M.b is f32 (4 bytes), but the driver has R.b as u32 (4 bytes) (R, a.h:1)"]
        );
    }

    #[test]
    fn where_a_bit_field_lies_is_part_of_a_layout() {
        let one = |bit_offset, bit_width| {
            let bits = vec![Bit { name: "on", bit_offset, bit_width }].leak();
            layout("A", 4, &[field("bits0", 0, Type::Bits(&U32, bits))])
        };
        let copy = |layout: &Layout| Layout { since: "other", ..*layout };
        assert!(same_layout(one(0, 1), &copy(one(0, 1))));
        assert!(!same_layout(one(0, 1), &copy(one(1, 1))));
        assert!(!same_layout(one(0, 1), &copy(one(0, 2))));
        let own = layout("M", 4, &[field("bits0", 0, U32)]);
        assert_eq!(complaints(own, one(0, 1), false), [""; 0]);
        assert_eq!(complaints(own, one(0, 1), true), [""; 0]);
    }

    #[test]
    fn the_name_of_a_field_is_part_of_a_layout() {
        let one = layout("A", 4, &[field("status", 0, U32)]);
        let other = layout("B", 4, &[field("paramsSize", 0, U32)]);
        assert!(!same_layout(one, other));
        assert!(same_layout(one, layout("B", 4, &[field("status", 0, U32)])));
    }
}
