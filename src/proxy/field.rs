//! Paths to places: where in the bytes of a layout the fields lie that roles name.

use crate::call::When;
use crate::check::{Field, Kind, Layout, Type};

/// A field at one place: an array has as many as elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Byte in the parameters.
    pub(super) at: usize,
    pub(super) size: usize,
    /// Whether the type is a pointer.
    pub(super) is_pointer: bool,
}

/// Every place of a path such as `a.b` or `a[].b`; `.` is the whole of a type that is no record. None
/// where the layout has no such field: of two types that a call accepts one may lack it.
pub(super) fn places(layout: &'static Layout, path: &str) -> Vec<Place> {
    let mut found = Vec::new();
    match (layout.kind, layout.fields) {
        (Kind::Alias, [only]) if path == "." => of_type(&only.ty, "", 0, &mut found),
        _ if path == "." => {}
        _ => of_layout(layout, path, 0, &mut found),
    }
    found
}

fn of_layout(layout: &Layout, path: &str, base: usize, found: &mut Vec<Place>) {
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    let name = name.trim_end_matches("[]");
    for Field { name: own, offset, ty } in layout.fields {
        let at = base + *offset as usize;
        if *own == name {
            of_type(ty, rest, at, found);
        } else if own.is_empty() {
            // The members of an unnamed member are the record's own.
            if let Type::Record(inner) = ty {
                of_layout(inner, path, at, found);
            }
        }
    }
}

fn of_type(ty: &Type, rest: &str, at: usize, found: &mut Vec<Place>) {
    match ty {
        Type::Array(element, count) => {
            for i in 0..*count as usize {
                of_type(element, rest, at + i * element.size() as usize, found);
            }
        }
        Type::Record(layout) if !rest.is_empty() => of_layout(layout, rest, at, found),
        _ if rest.is_empty() => {
            let is_pointer = matches!(ty, Type::P64);
            found.push(Place { at, size: ty.size() as usize, is_pointer });
        }
        _ => {}
    }
}

/// An integer of up to 8 bytes; `None` where the bytes end before it.
pub(super) fn get(bytes: &[u8], place: Place) -> Option<u64> {
    let bytes = bytes.get(place.at..place.at.checked_add(place.size)?)?;
    let mut wide = [0; 8];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(wide))
}

/// Writes the low bytes of an integer to where one was read.
pub(super) fn set(bytes: &mut [u8], place: Place, value: u64) {
    if let Some(bytes) = bytes.get_mut(place.at..place.at + place.size) {
        let size = bytes.len().min(8);
        bytes[..size].copy_from_slice(&value.to_le_bytes()[..size]);
    }
}

/// The value of a field. Where it has several places, that which lies with the place of another path:
/// which of how many that is.
pub(super) fn value(
    layout: &'static Layout,
    bytes: &[u8],
    path: &str,
    (index, count): (usize, usize),
) -> Option<u64> {
    let places = places(layout, path);
    // Arrays that both are in come first in the order of either.
    let place = places.get((index * places.len()).checked_div(count).unwrap_or(0));
    get(bytes, *place?)
}

/// What an expression of fields and numbers, joined by `*` and `+`, comes to; `None` where a field is
/// missing or 64 bits do not suffice.
pub(super) fn evaluate(
    layout: &'static Layout,
    bytes: &[u8],
    text: &str,
    place: (usize, usize),
) -> Option<u64> {
    text.split('+').try_fold(0u64, |sum, product| {
        let product = product.split('*').try_fold(1u64, |product, factor| {
            let factor = factor.trim();
            let number = factor.parse().ok();
            product.checked_mul(number.or_else(|| value(layout, bytes, factor, place))?)
        })?;
        sum.checked_add(product)
    })
}

/// Whether a condition holds.
pub(super) fn holds(
    layout: &'static Layout,
    bytes: &[u8],
    when: Option<When>,
    place: (usize, usize),
) -> bool {
    when.is_none_or(|when| value(layout, bytes, when.field, place) == Some(when.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const U16: Type = Type::Int { size: 2, signed: false };
    const U64: Type = Type::Int { size: 8, signed: false };

    /// `{ u64 a; struct { u16 n; u16 m; } list[2]; union { u16 x; u16 y; }; }`
    static LAYOUT: Layout = record(
        18,
        &[
            Field { name: "a", offset: 0, ty: U64 },
            Field { name: "list", offset: 8, ty: Type::Array(&Type::Record(&INNER), 2) },
            Field { name: "", offset: 16, ty: Type::Record(&UNNAMED) },
        ],
    );
    static INNER: Layout = record(
        4,
        &[Field { name: "n", offset: 0, ty: U16 }, Field { name: "m", offset: 2, ty: U16 }],
    );
    static UNNAMED: Layout = record(
        2,
        &[Field { name: "x", offset: 0, ty: U16 }, Field { name: "y", offset: 0, ty: U16 }],
    );

    const fn record(size: u32, fields: &'static [Field]) -> Layout {
        Layout { name: "R", kind: Kind::Struct, size, align: 2, since: "", source: "", fields }
    }

    fn at(path: &str) -> Vec<usize> {
        places(&LAYOUT, path).iter().map(|place| place.at).collect()
    }

    #[test]
    fn paths_lead_through_arrays_and_unnamed_members() {
        assert_eq!([at("a"), at("list[].m"), at("list.n")], [vec![0], vec![10, 14], vec![8, 12]]);
        assert_eq!([at("y"), at("list.o"), at("a.b"), at(".")], [vec![16], vec![], vec![], vec![]]);
    }

    #[test]
    fn lengths_that_exceed_64_bits_are_none() {
        let with = |a: u64| {
            let mut bytes = [0; 18];
            bytes[..8].copy_from_slice(&a.to_le_bytes());
            bytes[12] = 7;
            move |text: &str| evaluate(&LAYOUT, &bytes, text, (1, 2))
        };
        let small = with(5);
        assert_eq!(
            [small("a * a"), small("2 * a + 1"), small("12")],
            [Some(25), Some(11), Some(12)]
        );
        // Of as many places the one with the pointer's index; of fewer the one that it lies with.
        assert_eq!([small("list[].n"), small("b"), small("a * b")], [Some(7), None, None]);
        let mut bytes = [0; 18];
        (bytes[8], bytes[12]) = (3, 4);
        let nth = |index| evaluate(&LAYOUT, &bytes, "list[].n", (index, 6));
        assert_eq!([0, 1, 2, 3, 4, 5].map(nth), [3, 3, 3, 4, 4, 4].map(Some));
        assert_eq!([with(1 << 33)("a * a"), with(u64::MAX)("a + 1")], [None, None]);
        assert_eq!(evaluate(&LAYOUT, &[0; 7], "a", (0, 1)), None, "the bytes end before it");
    }
}
