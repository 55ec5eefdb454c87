//! What a record is made of, byte by byte: its fields, padding, and the bytes that bit-fields share.

use super::types::{self, Element, Named};
use super::{Def, Plan};
use crate::lock::Fact;
use crate::model::{Field, RecordKind};

/// A record of which every byte belongs to a member, in order.
#[derive(Debug)]
pub struct Layout<'p> {
    /// Struct or union.
    pub kind: RecordKind,
    /// Bytes.
    pub size: u64,
    /// Bytes.
    pub align: u64,
    /// In order; those of a union share their bytes.
    pub members: Vec<Member<'p>>,
    /// Whether members lie closer together than their types allow.
    pub packed: bool,
    /// The largest alignment of a member's type.
    pub natural: u64,
}

/// A member of a record.
#[derive(Debug)]
pub enum Member<'f> {
    /// A field of the driver's.
    Field {
        /// The driver's, or `anonN`.
        name: String,
        /// The driver's.
        field: &'f Field,
        /// What its elements are.
        element: Element,
        /// Of its array, the outermost first.
        dimensions: Vec<u64>,
        /// It lies where its type may not: it is as many bytes instead.
        bytes: bool,
    },
    /// Bytes without a meaning.
    Padding {
        /// `_padN`.
        name: String,
        /// From the start of the record.
        offset: u64,
        /// Bytes.
        size: u64,
    },
    /// Bit-fields that share bytes.
    Bits {
        /// `bitsN`.
        name: String,
        /// From the start of the record.
        offset: u64,
        /// Bytes.
        size: u64,
        /// They are one integer rather than bytes.
        int: bool,
        /// The bit-fields.
        fields: Vec<&'f Field>,
    },
}

impl Plan<'_> {
    /// What a type in a definition is: its elements, and the dimensions of its array.
    pub fn element(
        &self,
        def: &Def,
        declared: &str,
        canonical: &str,
        size: u64,
    ) -> (Element, Vec<u64>) {
        types::element(declared, canonical, size, |name| match self.used(def, name) {
            Some(Def { fact, .. }) => match **fact {
                Fact::Enum { size, .. } => Named::Enum(size),
                _ => Named::Record,
            },
            None => Named::Other,
        })
    }

    /// The definition that a name in another one means.
    pub fn used(&self, def: &Def, name: &str) -> Option<&Def> {
        def.uses.get(name).map(|id| &self.defs[*id])
    }

    /// The members of a record; `None` where a definition is none.
    pub fn layout<'p>(&'p self, def: &'p Def) -> Option<Layout<'p>> {
        let Fact::Record { kind, size, align, fields } = &*def.fact else { return None };
        let (kind, size, align) = (*kind, *size, *align);
        let elements = fields.iter().map(|f| self.element(def, &f.ty, &f.canonical, f.size));
        let parts: Vec<_> = fields.iter().zip(elements).collect();
        let natural = |element: &Element| self.natural(def, element);
        let is_odd = |field: &Field, element: &Element| {
            let natural = natural(element);
            field.bits.is_none() && (field.offset % natural != 0 || natural > align)
        };
        let odd = parts.iter().any(|(field, (element, _))| is_odd(field, element));
        // C can pack a record more tightly than it aligns it; Rust cannot say both. The members
        // that lie where Rust would not put them are bytes then.
        let packed = odd
            && parts.iter().all(|(field, (element, _))| {
                field.bits.is_some() || field.offset % natural(element).min(align) == 0
            });
        let mut members = Vec::new();
        let mut names = Names::new(fields);
        let mut at = 0;
        for (field, (element, dimensions)) in parts {
            if let (Some(_), RecordKind::Struct) = (field.bits, kind) {
                at = push_bits(&mut members, &mut names, field, at);
                continue;
            }
            if kind == RecordKind::Struct && field.offset > at {
                members.push(names.padding(at, field.offset));
            }
            if field.bits.is_some() {
                push_bits(&mut members, &mut names, field, field.offset);
                continue;
            }
            // A packed type cannot hold one that has an alignment of its own.
            let bytes = match packed {
                true => matches!(&element, Element::Record(r) if self.is_aligned(def, r)),
                false => is_odd(field, &element),
            };
            let name = names.field(field);
            at = field.offset + field.size;
            members.push(Member::Field { name, field, element, dimensions, bytes });
        }
        if kind == RecordKind::Struct && size > at {
            members.push(names.padding(at, size));
        }
        if kind == RecordKind::Union && members.is_empty() && size > 0 {
            members.push(names.padding(0, size));
        }
        for member in &mut members {
            if let Member::Bits { offset, size, int, .. } = member {
                *int = matches!(size, 1 | 2 | 4 | 8) && *size <= align && *offset % *size == 0;
            }
        }
        let natural = members.iter().map(|m| self.member_align(def, m)).max().unwrap_or(1);
        Some(Layout { kind, size, align, members, packed, natural })
    }

    /// Whether a record must say that it is aligned more than its members are, or holds one that must.
    fn is_aligned(&self, def: &Def, name: &str) -> bool {
        let Some(def) = self.used(def, name) else { return false };
        let Some(Layout { align, members, packed, natural, .. }) = self.layout(def) else {
            return false;
        };
        (!packed && align > natural)
            || members.iter().any(|member| match member {
                Member::Field { element: Element::Record(inner), .. } => {
                    self.is_aligned(def, inner)
                }
                _ => false,
            })
    }

    fn natural(&self, def: &Def, element: &Element) -> u64 {
        element.align(|name| match self.used(def, name).map(|def| &*def.fact) {
            Some(Fact::Record { align, .. }) => *align,
            _ => 1,
        })
    }

    fn member_align(&self, def: &Def, member: &Member<'_>) -> u64 {
        match member {
            Member::Field { bytes: true, .. } | Member::Padding { .. } => 1,
            Member::Field { element, .. } => self.natural(def, element),
            Member::Bits { int, size, .. } => match int {
                true => *size,
                false => 1,
            },
        }
    }
}

/// Bit-fields that touch the same bytes become one member; gives the end of it.
fn push_bits<'f>(
    members: &mut Vec<Member<'f>>,
    names: &mut Names,
    field: &'f Field,
    at: u64,
) -> u64 {
    let Some(bits) = field.bits else { return at };
    if bits.bit_width == 0 {
        return at;
    }
    let end = field.offset + (bits.bit_offset + bits.bit_width).div_ceil(8);
    if let Some(Member::Bits { offset, size, fields, .. }) = members.last_mut() {
        // Bit-fields of one storage unit stay together, so that the unit is one integer.
        let unit_start = field.offset / field.size.max(1) * field.size.max(1);
        if field.offset < *offset + *size || unit_start <= *offset {
            *size = (end - *offset).max(*size);
            fields.push(field);
            return *offset + *size;
        }
    }
    if field.offset > at {
        members.push(names.padding(at, field.offset));
    }
    let (offset, size) = (field.offset, end - field.offset);
    members.push(Member::Bits {
        name: names.bits(),
        offset,
        size,
        int: false,
        fields: vec![field],
    });
    end
}

/// Member names that do not clash with the driver's.
struct Names {
    taken: Vec<String>,
    padding: usize,
    bits: usize,
    anonymous: usize,
}

impl Names {
    fn new(fields: &[Field]) -> Self {
        let taken = fields.iter().map(|f| f.name.clone()).collect();
        Self { taken, padding: 0, bits: 0, anonymous: 0 }
    }

    fn field(&mut self, field: &Field) -> String {
        match field.name.is_empty() {
            true => fresh(&self.taken, "anon", &mut self.anonymous),
            false => field.name.clone(),
        }
    }

    fn padding<'f>(&mut self, offset: u64, end: u64) -> Member<'f> {
        let name = fresh(&self.taken, "_pad", &mut self.padding);
        Member::Padding { name, offset, size: end - offset }
    }

    fn bits(&mut self) -> String {
        fresh(&self.taken, "bits", &mut self.bits)
    }
}

fn fresh(taken: &[String], stem: &str, next: &mut usize) -> String {
    loop {
        let name = format!("{stem}{next}");
        *next += 1;
        if !taken.contains(&name) {
            return name;
        }
    }
}
