//! The fields of a struct that hold no other struct, each with its place.

use nvabi_pipeline::model::{Field, Record, RecordKind, Surface, split_array};

use super::super::value;
use super::tables::{Choice, Family};

/// Elements of an array of structs that are entered.
const ELEMENTS: u64 = 64;
/// Fields of one struct that are visited.
const FIELDS: usize = 1 << 14;
/// Structs within structs.
const DEPTH: usize = 16;

/// A field, or an array of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leaf {
    /// As a spec writes it, without array dimensions: `a.b`.
    pub(super) path: String,
    /// With the index of each element that it is in: `a[1].b`.
    pub(super) shown: String,
    /// The type as declared, without array dimensions.
    pub(super) declared: String,
    /// The type without typedefs and array dimensions.
    pub(super) canonical: String,
    /// Bytes from the start of the outermost struct to the first element.
    pub(super) offset: usize,
    /// Bytes of one element.
    pub(super) size: usize,
    /// Elements; 1 where it is no array.
    pub(super) count: usize,
    /// What makes it valid in the unions that it is in; `None` where no rule of the spec says what does.
    valid: Option<Vec<Chosen>>,
}

/// The value of a field by which a member of a union is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Chosen {
    at: usize,
    size: usize,
    value: u64,
}

impl Leaf {
    /// Whether it is in no union, or in the member that is valid in these bytes.
    pub(super) fn is_valid(&self, bytes: &[u8]) -> bool {
        let is_chosen = |by: &Chosen| number(bytes, by.at, by.size) == Some(by.value);
        self.valid.as_ref().is_some_and(|valid| valid.iter().all(is_chosen))
    }

    /// The last part of the path.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    /// The elements: offset and value of each whose bytes are there, for numbers of at most 8 bytes.
    pub(super) fn numbers(&self, bytes: &[u8]) -> Vec<(usize, u64)> {
        let offsets = (0..self.count).map(|at| self.offset.saturating_add(at * self.size));
        offsets.filter_map(|at| Some((at, number(bytes, at, self.size)?))).collect()
    }
}

/// A little-endian number of at most 8 bytes.
pub(super) fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    let mut wide = [0; 8];
    wide.get_mut(..size)?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(wide))
}

/// The fields of a type. A type that is no struct is one field of the name `.`, as in specs; an unknown one has none.
pub(super) fn leaves(family: &Family, ty: &str) -> Vec<Leaf> {
    let mut walk = Walk { family, leaves: Vec::new() };
    match value::record(&family.facts, ty) {
        Some((surface, name, record)) => {
            let (path, shown) = ("", "");
            let place = Place { path, shown, base: 0, valid: Some(&[]), union: None, depth: 0 };
            walk.record(surface, (name, record), place);
        }
        None => {
            let size = family.size(ty).and_then(|size| usize::try_from(size).ok());
            walk.leaves.extend(size.filter(|size| *size > 0).map(|size| Leaf {
                path: ".".to_owned(),
                shown: String::new(),
                declared: ty.to_owned(),
                canonical: String::new(),
                offset: 0,
                size,
                count: 1,
                valid: Some(Vec::new()),
            }));
        }
    }
    walk.leaves
}

struct Walk<'f> {
    family: &'f Family,
    leaves: Vec<Leaf>,
}

/// Where a record or a field lies.
#[derive(Clone, Copy)]
struct Place<'p> {
    path: &'p str,
    shown: &'p str,
    base: u64,
    valid: Option<&'p [Chosen]>,
    /// The rule of the union that this is, where there is one.
    union: Option<Rule<'p>>,
    depth: usize,
}

/// Which member of a union is valid, and where the field is that says so.
#[derive(Clone, Copy)]
struct Rule<'f> {
    choice: &'f Choice,
    at: usize,
    size: usize,
}

impl Rule<'_> {
    /// What makes a member the valid one: the first of those with its value is.
    fn chosen(self, member: &str) -> Option<Chosen> {
        let members = &self.choice.members;
        let value = *members.get(member)?;
        let first = members.iter().find(|(_, known)| **known == value)?;
        (first.0 == member).then_some(Chosen { at: self.at, size: self.size, value })
    }
}

impl<'f> Walk<'f> {
    fn record(&mut self, surface: &'f Surface, own: (&str, &'f Record), place: Place<'_>) {
        for field in own.1.fields.iter().filter(|field| field.bits.is_none()) {
            if self.leaves.len() >= FIELDS || place.depth > DEPTH {
                return;
            }
            let (path, shown) = (joined(place.path, &field.name), joined(place.shown, &field.name));
            let valid = match own.1.kind {
                RecordKind::Struct => place.valid.map(<[_]>::to_vec),
                RecordKind::Union => place.valid.and_then(|valid| {
                    let chosen = place.union?.chosen(&field.name)?;
                    Some([valid, &[chosen]].concat())
                }),
            };
            let here = Place { path: &path, shown: &shown, valid: valid.as_deref(), ..place };
            match surface.records.get_key_value(split_array(&field.canonical).0) {
                Some((ty, inner)) => {
                    let here = Place { union: self.rule(own, field, place.base), ..here };
                    self.elements(surface, field, (ty, inner), here);
                }
                None => self.leaf(field, here),
            }
        }
    }

    /// The rule of a union: the spec has it by the value of a field beside the union.
    fn rule(&self, (name, record): (&str, &Record), union: &Field, base: u64) -> Option<Rule<'f>> {
        let choice = self.family.choice(name, &union.name)?;
        let by = record.fields.iter().find(|field| field.name == choice.by)?;
        let at = usize::try_from(base.checked_add(by.offset)?).ok()?;
        Some(Rule { choice, at, size: usize::try_from(by.size).ok()? })
    }

    /// A struct within a struct, or an array of them.
    fn elements(
        &mut self,
        surface: &'f Surface,
        field: &Field,
        inner: (&str, &'f Record),
        place: Place<'_>,
    ) {
        let counts = split_array(&field.canonical).1;
        let count: u64 = counts.iter().product();
        let Some(size) = field.size.checked_div(count) else { return };
        for at in 0..count.min(ELEMENTS) {
            let shown = match counts.is_empty() {
                true => place.shown.to_owned(),
                false => format!("{}[{at}]", place.shown),
            };
            let base = place.base.saturating_add(field.offset).saturating_add(at * size);
            let place = Place { shown: &shown, base, depth: place.depth + 1, ..place };
            self.record(surface, inner, place);
        }
    }

    fn leaf(&mut self, field: &Field, place: Place<'_>) {
        let (canonical, counts) = split_array(&field.canonical);
        let count: u64 = counts.iter().product();
        let Some(size) = field.size.checked_div(count) else { return };
        let number = |number: u64| usize::try_from(number).ok();
        let offset = place.base.saturating_add(field.offset);
        let numbers = (number(offset), number(size), number(count));
        let (Some(offset), Some(size), Some(count)) = numbers else { return };
        self.leaves.push(Leaf {
            path: place.path.to_owned(),
            shown: place.shown.to_owned(),
            declared: split_array(&field.ty).0.trim().to_owned(),
            canonical: canonical.to_owned(),
            offset,
            size,
            count,
            valid: place.valid.map(<[_]>::to_vec),
        });
    }
}

/// An unnamed member adds nothing to the path.
fn joined(path: &str, name: &str) -> String {
    match (path, name) {
        ("", name) => name.to_owned(),
        (path, "") => path.to_owned(),
        (path, name) => format!("{path}.{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::sniff::Tables;
    use nvabi_pipeline::lock;
    use nvabi_pipeline::spec::{Spec, spec_of};

    /// Path, offset, element size, count and validity of what `choose` takes of a type's fields.
    fn fields(
        ty: &str,
        bytes: &[u8],
        choose: impl Fn(&Leaf) -> bool,
    ) -> Vec<(String, usize, usize, usize, bool)> {
        let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../abi-specs"));
        let specs = Spec::load_family(folder, "").unwrap();
        let tag = "570.86.15".parse().unwrap();
        let facts = lock::read_facts(&folder.join("lock"), &tag).unwrap();
        let mut tables = Tables::default();
        tables.add(facts, spec_of(&specs, &tag).unwrap());
        let chosen = leaves(tables.family(), ty).into_iter().filter(choose);
        let all = |leaf: Leaf| {
            let is_valid = leaf.is_valid(bytes);
            (leaf.shown, leaf.offset, leaf.size, leaf.count, is_valid)
        };
        chosen.map(all).collect()
    }

    #[test]
    fn elements_of_arrays_have_their_places() {
        let found = fields("NV2080_CTRL_GPU_GET_INFO_V2_PARAMS", &[], |leaf| leaf.offset < 20);
        let expected = [
            ("gpuInfoListSize".to_owned(), 0, 4, 1, true),
            ("gpuInfoList[0].index".to_owned(), 4, 4, 1, true),
            ("gpuInfoList[0].data".to_owned(), 8, 4, 1, true),
            ("gpuInfoList[1].index".to_owned(), 12, 4, 1, true),
            ("gpuInfoList[1].data".to_owned(), 16, 4, 1, true),
        ];
        assert_eq!(found, expected);
        let lists = fields("NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS", &[], |_| true);
        assert_eq!(lists, [("gpuIds".to_owned(), 0, 4, 32, true)]);
        assert_eq!(fields("NvHandle", &[], |_| true), [(String::new(), 0, 4, 1, true)]);
        assert_eq!(fields("NO_SUCH_TYPE", &[], |_| true), []);
    }

    #[test]
    fn a_rule_says_which_member_of_a_union_is_valid() {
        let is_memory = |leaf: &Leaf| leaf.path.ends_with(".hMemory");
        let valid = |bytes: &[u8]| {
            let found = fields("NVOS32_PARAMETERS", bytes, is_memory).into_iter();
            found.filter(|field| field.4).map(|field| field.0).collect::<Vec<_>>()
        };
        let mut bytes = [0; 192];
        // NVOS32_FUNCTION_ALLOC_SIZE is 2, NVOS32_FUNCTION_FREE is 3; the field is the third.
        bytes[8] = 2;
        assert_eq!(valid(&bytes), ["data.AllocSize.hMemory"]);
        bytes[8] = 3;
        assert_eq!(valid(&bytes), ["data.Free.hMemory"]);
        bytes[8] = 99;
        assert!(valid(&bytes).is_empty() && valid(&[]).is_empty());
    }
}
