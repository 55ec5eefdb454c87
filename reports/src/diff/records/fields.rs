//! The fields of one record: which are the same field on both sides, and what of them differs.

use super::{Comparer, Declared, FieldChange, FieldState, Instead, TypeChange};
use crate::diff::Layer;
use crate::diff::roles::is_reserved;
use nvabi_pipeline::model::{Field, Record, RecordKind, split_array};

impl<'a> Comparer<'_, 'a> {
    /// Every field of a record that only one side has.
    pub(super) fn all_fields(&self, side: usize, only: Declared<'a>) -> Vec<FieldChange> {
        let fields = only.record.fields.iter();
        let states = fields.map(|field| Some(self.state(side, only.name, field)));
        let one_sided = |state| match side {
            0 => change(state, None),
            _ => change(None, state),
        };
        states.map(one_sided).collect()
    }

    /// The fields that differ.
    pub(super) fn fields(&self, before: Declared<'a>, after: Declared<'a>) -> Vec<FieldChange> {
        let names = [before.name, after.name];
        let (before, after) = (before.record, after.record);
        let partners = partners(before, after);
        let mut changes = Vec::new();
        for (x, y) in &partners {
            let states = [
                x.map(|field| self.state(0, names[0], field)),
                y.map(|field| self.state(1, names[1], field)),
            ];
            let [from, to] = &states;
            if from.as_ref().zip(to.as_ref()).is_some_and(|(from, to)| from.same(to)) {
                continue;
            }
            let [from, to] = states;
            let mut found = change(from, to);
            match (x, y) {
                (Some(x), Some(y)) => found.retyped = self.type_change(x, y),
                (Some(gone), None) => found.instead = Some(instead(gone, before, after)),
                (None, Some(new)) => found.instead = Some(instead(new, after, before)),
                (None, None) => {}
            }
            found.class = found.classify();
            changes.push(found);
        }
        changes
    }

    fn state(&self, side: usize, record: &str, field: &Field) -> FieldState {
        let roles = &self.roles[side];
        FieldState {
            field: field.clone(),
            role: roles.of(record, field),
            length_of: roles.length_of(record, &field.name).map(str::to_owned),
        }
    }

    fn type_change(&self, x: &Field, y: &Field) -> Option<TypeChange> {
        if x.canonical == y.canonical {
            return (x.ty != y.ty).then_some(TypeChange::Spelling);
        }
        let ((a, of_a), (b, of_b)) = (split_array(&x.canonical), split_array(&y.canonical));
        let (a, b) = (self.made_of(0, a), self.made_of(1, b));
        let count = |dimensions: &[u64]| dimensions.iter().product::<u64>();
        Some(match (a == b, of_a == of_b) {
            (true, true) => TypeChange::Spelling,
            (true, false) if count(&of_a) == count(&of_b) => TypeChange::Reading,
            (true, false) => TypeChange::Length,
            (false, same) if same && size_class(&a) == size_class(&b) => TypeChange::Reading,
            _ => TypeChange::Layout,
        })
    }

    /// The scalars that a type is made of, in order: `int@4`.
    fn made_of(&self, side: usize, base: &str) -> Vec<String> {
        let mut leaves = Vec::new();
        add_leaves(self.layers[side], base, 0, 0, &mut leaves);
        leaves
    }
}

fn change(before: Option<FieldState>, after: Option<FieldState>) -> FieldChange {
    let mut change =
        FieldChange { class: super::Class::Harmless, before, after, instead: None, retyped: None };
    change.class = change.classify();
    change
}

/// Deep enough for any driver, and an end to types that hold themselves.
const DEEPEST: usize = 16;

fn add_leaves(layer: Layer<'_>, base: &str, at: u64, depth: usize, leaves: &mut Vec<String>) {
    match layer.get(|s| &s.records, base) {
        Some(record) if depth < DEEPEST => {
            for field in record.fields.iter() {
                let (inner, dimensions) = split_array(&field.canonical);
                let start = leaves.len();
                add_leaves(layer, inner, at + field.offset, depth + 1, leaves);
                if !dimensions.is_empty() {
                    leaves[start..].iter_mut().for_each(|l| l.push_str(&format!("{dimensions:?}")));
                }
            }
        }
        _ => {
            let base = match layer.get(|s| &s.enums, base) {
                Some(found) if found.size == 4 => "unsigned int",
                _ => base,
            };
            leaves.push(format!("{base}@{at}"));
        }
    }
}

/// Scalars whose bytes may be read as one another.
fn size_class(leaves: &[String]) -> Option<u64> {
    let [only] = leaves else { return None };
    let scalar = only.strip_suffix("@0")?;
    // An address, of a function too.
    if scalar.ends_with('*') || scalar.contains("(*") {
        return Some(8);
    }
    Some(match scalar {
        "char" | "signed char" | "unsigned char" | "_Bool" => 1,
        "short" | "unsigned short" => 2,
        "int" | "unsigned int" => 4,
        "long" | "unsigned long" | "long long" | "unsigned long long" => 8,
        _ => return None,
    })
}

type Partners<'a> = Vec<(Option<&'a Field>, Option<&'a Field>)>;

/// Which field of one side is which of the other: by name, then by type and place.
fn partners<'a>(before: &'a Record, after: &'a Record) -> Partners<'a> {
    let mut found = Partners::new();
    let mut new: Vec<&Field> = after.fields.iter().collect();
    let mut gone = Vec::new();
    for (x, number) in numbered(&before.fields) {
        let same = numbered(&after.fields).find(|(y, n)| (&x.name, number) == (&y.name, *n));
        match same {
            Some((y, _)) => {
                found.push((Some(x), Some(y)));
                new.retain(|other| !std::ptr::eq(*other, y));
            }
            None => gone.push(x),
        }
    }
    for x in gone {
        let alike = |y: &&&Field| {
            (&y.canonical, y.offset, y.size, y.bits) == (&x.canonical, x.offset, x.size, x.bits)
        };
        // In a union several may be alike; then nobody knows which is which.
        let mut candidates = new.iter().filter(alike);
        let rivals = |fields: &[Field]| fields.iter().filter(|y| alike(&y)).count();
        let one = rivals(&before.fields) == 1 && rivals(&after.fields) == 1;
        let partner = candidates.next().copied().filter(|_| one);
        if let Some(y) = partner {
            new.retain(|other| !std::ptr::eq(*other, y));
        }
        found.push((Some(x), partner));
    }
    found.extend(new.into_iter().map(|y| (None, Some(y))));
    found
}

/// Fields, the unnamed ones counted among themselves.
fn numbered(fields: &[Field]) -> impl Iterator<Item = (&Field, usize)> {
    let mut unnamed = 0;
    fields.iter().map(move |field| {
        unnamed += usize::from(field.name.is_empty());
        (field, if field.name.is_empty() { unnamed } else { 0 })
    })
}

/// What the record that lacks `field` has in its bytes.
fn instead(field: &Field, owner: &Record, other: &Record) -> Instead {
    if owner.kind == RecordKind::Union || other.kind == RecordKind::Union {
        return Instead::Union;
    }
    let (start, end) = span(field);
    let overlapping: Vec<&Field> = (other.fields.iter())
        .filter(|there| {
            let (from, to) = span(there);
            from < end && start < to
        })
        .collect();
    let names = |fields: &[&Field]| fields.iter().map(|f| f.name.clone()).collect();
    let used: Vec<&Field> =
        overlapping.iter().copied().filter(|there| !is_reserved(&there.name)).collect();
    if !used.is_empty() {
        Instead::Fields(names(&used))
    } else if start >= other.size * 8 {
        Instead::Beyond
    } else if end > other.size * 8 {
        Instead::Across
    } else if !overlapping.is_empty() {
        Instead::Reserved(names(&overlapping))
    } else {
        Instead::Padding
    }
}

/// First bit and the one after the last.
fn span(field: &Field) -> (u64, u64) {
    let start = field.offset * 8;
    match field.bits {
        Some(bits) => (start + bits.bit_offset, start + bits.bit_offset + bits.bit_width),
        None => (start, start + field.size * 8),
    }
}
