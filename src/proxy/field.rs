//! Where the fields lie that roles name, and what they hold.

use crate::call::{Expression, Factor, Info, RoleField, RolePlace, When};

/// One of the types that parameters, or the elements behind a pointer, can have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    /// Which of the places of a [`RoleField`] count.
    index: usize,
    /// Bytes of a record; several can follow each other.
    pub(super) size: usize,
}

impl Form {
    /// One of the parameter types of a call.
    pub(super) fn of_params(info: &Info, index: usize) -> Option<Self> {
        info.sizes.get(index).map(|size| Self { index, size: *size as usize })
    }

    /// An element behind a pointer.
    pub(super) fn of_element(size: u32) -> Self {
        Self { index: 0, size: size as usize }
    }

    /// Whether parameters of this size are of this form.
    pub(super) fn fits(self, size: usize, is_array: bool) -> bool {
        match is_array {
            true => self.size > 0 && size % self.size == 0,
            false => self.size == size,
        }
    }

    fn place(self, field: &RoleField) -> Option<&RolePlace> {
        field.places.get(self.index)?.as_ref()
    }
}

/// A field at one place: an array has as many as elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldPlace {
    /// Byte in the parameters.
    pub(super) at: usize,
    pub(super) size: usize,
    /// Whether the type is a pointer.
    pub(super) is_pointer: bool,
}

/// Every place of a field in a form. None where the form has no such field: of two types that a call
/// accepts one may lack it.
pub(super) fn places(form: Form, field: &RoleField) -> impl ExactSizeIterator<Item = FieldPlace> {
    let place = form.place(field);
    (0..place.map_or(0, count)).map(move |index| nth(place, index))
}

/// How many places there are.
fn count(place: &RolePlace) -> usize {
    place.arrays.iter().map(|array| array.count as usize).product()
}

/// The place with an index: the last array counts fastest.
fn nth(place: Option<&RolePlace>, mut index: usize) -> FieldPlace {
    let Some(place) = place else { return FieldPlace { at: 0, size: 0, is_pointer: false } };
    let mut at = place.offset as usize;
    for array in place.arrays.iter().rev() {
        let count = (array.count as usize).max(1);
        at += index % count * array.stride as usize;
        index /= count;
    }
    FieldPlace { at, size: place.size as usize, is_pointer: place.is_pointer }
}

/// An integer of up to 8 bytes; `None` where the bytes end before it.
pub(super) fn get(bytes: &[u8], place: FieldPlace) -> Option<u64> {
    let bytes = bytes.get(place.at..place.at.checked_add(place.size)?)?;
    let mut wide = [0; 8];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(wide))
}

/// Writes the low bytes of an integer to where one was read.
pub(super) fn set(bytes: &mut [u8], place: FieldPlace, value: u64) {
    if let Some(bytes) = bytes.get_mut(place.at..place.at + place.size) {
        let size = bytes.len().min(8);
        bytes[..size].copy_from_slice(&value.to_le_bytes()[..size]);
    }
}

/// The value of a field. Where it has several places, that which lies with the place of another field:
/// which of how many that is.
pub(super) fn value(
    form: Form,
    bytes: &[u8],
    field: &RoleField,
    (index, of): (usize, usize),
) -> Option<u64> {
    let place = form.place(field)?;
    let count = count(place);
    // Arrays that both are in come first in the order of either.
    let index = (index * count).checked_div(of).unwrap_or(0);
    get(bytes, (index < count).then(|| nth(Some(place), index))?)
}

/// What an expression comes to; `None` where a field is missing or 64 bits do not suffice.
pub(super) fn evaluate(
    form: Form,
    bytes: &[u8],
    expression: &Expression,
    place: (usize, usize),
) -> Option<u64> {
    expression.terms.iter().try_fold(0u64, |sum, factors| {
        let product = factors.iter().try_fold(1u64, |product, factor| {
            product.checked_mul(match factor {
                Factor::Number(number) => *number,
                Factor::Field(field) => value(form, bytes, field, place)?,
            })
        })?;
        sum.checked_add(product)
    })
}

/// Whether a condition holds.
pub(super) fn holds(form: Form, bytes: &[u8], when: Option<&When>, place: (usize, usize)) -> bool {
    when.is_none_or(|when| value(form, bytes, &when.field, place) == Some(when.value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::RoleArray;

    const FORM: Form = Form { index: 0, size: 20 };

    /// Of `{ u64 a; struct { u16 n; u16 m[2]; } list[2]; }`, and of another form without `list`.
    const A: RoleField = field("a", &[Some(place(0, 8, &[])), Some(place(4, 8, &[]))]);
    const N: RoleField =
        field("list[].n", &[Some(place(8, 2, &[RoleArray { stride: 6, count: 2 }]))]);
    const M: RoleField = field(
        "list[].m[]",
        &[
            Some(place(
                10,
                2,
                &[RoleArray { stride: 6, count: 2 }, RoleArray { stride: 2, count: 2 }],
            )),
            None,
        ],
    );

    const fn field(path: &'static str, places: &'static [Option<RolePlace>]) -> RoleField {
        RoleField { path, places }
    }

    const fn place(offset: u32, size: u32, arrays: &'static [RoleArray]) -> RolePlace {
        RolePlace { offset, size, arrays, is_pointer: false }
    }

    #[test]
    fn places_are_those_of_the_form() {
        let at = |index, field: &RoleField| -> Vec<usize> {
            places(Form { index, ..FORM }, field).map(|place| place.at).collect()
        };
        assert_eq!([at(0, &A), at(0, &N)], [vec![0], vec![8, 14]]);
        assert_eq!(at(0, &M), [10, 12, 16, 18]);
        assert_eq!([at(1, &A), at(1, &M), at(1, &N)], [vec![4], vec![], vec![]]);
    }

    #[test]
    fn a_value_lies_with_the_place_of_another_field() {
        let mut bytes = [0; 20];
        (bytes[8], bytes[14]) = (3, 4);
        let nth = |index| value(FORM, &bytes, &N, (index, 4));
        assert_eq!([0, 1, 2, 3].map(nth), [3, 3, 4, 4].map(Some));
        assert_eq!(value(FORM, &bytes, &N, (0, 0)), Some(3));
        assert_eq!(value(FORM, &bytes, &N, (2, 1)), None, "there is no such place");
    }

    #[test]
    fn lengths_that_exceed_64_bits_are_none() {
        const SQUARE: &[&[Factor]] = &[&[Factor::Field(A), Factor::Field(A)]];
        const LINE: &[&[Factor]] = &[&[Factor::Number(2), Factor::Field(A)], &[Factor::Number(1)]];
        let with = |a: u64, terms| {
            let mut bytes = [0; 20];
            bytes[..8].copy_from_slice(&a.to_le_bytes());
            evaluate(FORM, &bytes, &Expression { text: "", terms }, (0, 1))
        };
        assert_eq!([with(5, SQUARE), with(5, LINE)], [Some(25), Some(11)]);
        assert_eq!([with(1 << 33, SQUARE), with(u64::MAX, LINE)], [None, None]);
        let short = Expression { text: "", terms: LINE };
        assert_eq!(evaluate(FORM, &[0; 7], &short, (0, 1)), None, "the bytes end before it");
    }
}
