//! One definition: a struct, union, enum or typedef, with its assertions and its description.

use std::fmt::Write as _;

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::plan::{Def, Place, Plan};
use super::types::{self, Element, Named, is_uuid};
use super::{Group, Options, ident, path};
use crate::lock::Fact;
use crate::model::{Field, RecordKind};

pub(super) fn definition(
    plan: &Plan<'_>,
    id: usize,
    groups: &[Group],
    options: Options<'_>,
) -> TokenStream {
    let def = &plan.defs[id];
    let name = ident(&def.ident);
    let writer = Writer { plan, def, groups, options };
    match &*def.fact {
        Fact::Record { .. } if is_uuid(&def.name) => {
            let doc = writer.doc("struct");
            quote! { #[doc = #doc] pub type #name = nvabi::Uuid; }
        }
        Fact::Record { kind, size, align, fields } => {
            writer.record(&name, *kind, *size, *align, fields)
        }
        Fact::Enum { size, .. } => {
            let doc = writer.doc("enum");
            let ty = Element::Enum { size: *size }.rust(|_| quote!());
            quote! { #[doc = #doc] pub type #name = #ty; }
        }
        Fact::Alias { ty, size } => {
            let doc = writer.doc("typedef");
            let ty = writer.rust(ty, ty, *size);
            quote! { #[doc = #doc] pub type #name = #ty; }
        }
        Fact::Constant(_) | Fact::BitRange(..) => quote!(),
    }
}

/// The tables that the derive compares with, as source: they are many and nobody reads them.
pub(super) fn layouts(
    text: &mut String,
    plan: &Plan<'_>,
    defs: &[usize],
    groups: &[Group],
    options: Options<'_>,
) {
    for def in defs.iter().map(|id| &plan.defs[*id]).filter(|def| !is_uuid(&def.name)) {
        let writer = Writer { plan, def, groups, options };
        writer.layout(text, &ident(&def.ident), &def.fact);
    }
}

/// `Copy`, `Clone` and the derive's `FieldType`, for all records of a module in one line.
pub(super) fn traits(plan: &Plan<'_>, defs: &[usize]) -> TokenStream {
    let records = defs
        .iter()
        .map(|id| &plan.defs[*id])
        .filter(|def| !is_uuid(&def.name) && matches!(&*def.fact, Fact::Record { .. }));
    let names: Vec<_> = records.map(|def| ident(&def.ident)).collect();
    match names.is_empty() {
        true => quote!(),
        false => quote! { nvabi::records!(#(#names),*); },
    }
}

struct Writer<'a> {
    plan: &'a Plan<'a>,
    def: &'a Def,
    groups: &'a [Group],
    options: Options<'a>,
}

/// A member of the Rust type, in order.
enum Member<'f> {
    Field {
        name: Ident,
        field: &'f Field,
        element: Element,
        dimensions: Vec<u64>,
        bytes: bool,
    },
    Padding {
        name: Ident,
        size: u64,
    },
    /// Bit-fields that share bytes.
    Bits {
        name: Ident,
        offset: u64,
        size: u64,
        /// They are one integer rather than bytes.
        int: bool,
        fields: Vec<&'f Field>,
    },
}

impl<'a> Writer<'a> {
    fn doc(&self, keyword: &str) -> String {
        let Def { name, place, .. } = self.def;
        format!(" `{keyword} {name}`: {} at {}.", place.source, place.since)
    }

    fn target(&self, name: &str) -> Option<&'a Def> {
        self.def.uses.get(name).map(|id| &self.plan.defs[*id])
    }

    fn element(&self, declared: &str, canonical: &str, size: u64) -> (Element, Vec<u64>) {
        types::element(declared, canonical, size, |name| match self.target(name) {
            Some(Def { fact, .. }) => match **fact {
                Fact::Enum { size, .. } => Named::Enum(size),
                _ => Named::Record,
            },
            None => Named::Other,
        })
    }

    fn path(&self, name: &str) -> TokenStream {
        match self.def.uses.get(name) {
            Some(id) => path(self.plan, *id, self.groups),
            None => quote!(()),
        }
    }

    fn rust(&self, declared: &str, canonical: &str, size: u64) -> TokenStream {
        let (element, dimensions) = self.element(declared, canonical, size);
        types::array(element.rust(|name| self.path(name)), &dimensions)
    }

    fn record_align(&self, name: &str) -> u64 {
        match self.target(name).map(|def| &*def.fact) {
            Some(Fact::Record { align, .. }) => *align,
            _ => 1,
        }
    }

    fn record(
        &self,
        name: &Ident,
        kind: RecordKind,
        size: u64,
        align: u64,
        fields: &'a [Field],
    ) -> TokenStream {
        let (members, packed) = self.members(kind, size, align, fields);
        let natural = members.iter().map(|m| self.natural_align(m)).max().unwrap_or(1);
        let mut repr = vec![quote!(C)];
        let limit = usize_literal(align);
        if packed {
            repr.push(quote!(packed(#limit)));
        } else if align > natural {
            repr.push(quote!(align(#limit)));
        }
        let keyword = format_ident!("{}", kind.keyword());
        let doc = format!("{}\n\n {size} bytes, alignment {align}.", self.doc(kind.keyword()));
        let declared = members.iter().map(|member| self.declare(member));
        let derives = self.derives(kind, packed, &members);
        // What a union's bytes hold is for the program to know.
        let accessors = match kind {
            RecordKind::Struct => accessors(name, &members),
            RecordKind::Union => quote!(),
        };
        quote! {
            #[doc = #doc]
            #derives
            #[repr(#(#repr),*)]
            pub #keyword #name { #(#declared)* }
            #accessors
        }
    }

    /// The members of the Rust type with explicit padding, and whether it must be packed.
    fn members(
        &self,
        kind: RecordKind,
        size: u64,
        align: u64,
        fields: &'a [Field],
    ) -> (Vec<Member<'a>>, bool) {
        let elements = fields.iter().map(|f| self.element(&f.ty, &f.canonical, f.size));
        let parts: Vec<_> = fields.iter().zip(elements).collect();
        let natural = |element: &Element| element.align(|name| self.record_align(name));
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
                members.push(Member::Padding { name: names.padding(), size: field.offset - at });
            }
            if field.bits.is_some() {
                push_bits(&mut members, &mut names, field, field.offset);
                continue;
            }
            // A packed type cannot hold one that has an alignment of its own.
            let bytes = match packed {
                true => matches!(&element, Element::Record(r) if self.is_aligned(r)),
                false => is_odd(field, &element),
            };
            let name = names.field(field);
            at = field.offset + field.size;
            members.push(Member::Field { name, field, element, dimensions, bytes });
        }
        if kind == RecordKind::Struct && size > at {
            members.push(Member::Padding { name: names.padding(), size: size - at });
        }
        if kind == RecordKind::Union && members.is_empty() && size > 0 {
            members.push(Member::Padding { name: names.padding(), size });
        }
        for member in &mut members {
            if let Member::Bits { offset, size, int, .. } = member {
                *int = matches!(size, 1 | 2 | 4 | 8) && *size <= align && *offset % *size == 0;
            }
        }
        (members, packed)
    }

    /// Whether the Rust type of a record says `align(N)`, or holds one that does.
    fn is_aligned(&self, name: &str) -> bool {
        let Some(id) = self.def.uses.get(name) else { return false };
        let writer = Writer { def: &self.plan.defs[*id], ..*self };
        let Fact::Record { kind, size, align, fields } = &*writer.def.fact else { return false };
        let (members, packed) = writer.members(*kind, *size, *align, fields);
        let natural = members.iter().map(|m| writer.natural_align(m)).max().unwrap_or(1);
        (!packed && *align > natural)
            || members.iter().any(|member| match member {
                Member::Field { element: Element::Record(inner), .. } => writer.is_aligned(inner),
                _ => false,
            })
    }

    fn natural_align(&self, member: &Member<'_>) -> u64 {
        match member {
            Member::Field { bytes: true, .. } | Member::Padding { .. } => 1,
            Member::Field { element, .. } => element.align(|name| self.record_align(name)),
            Member::Bits { int, size, .. } => match int {
                true => *size,
                false => 1,
            },
        }
    }

    fn declare(&self, member: &Member<'_>) -> TokenStream {
        match member {
            Member::Padding { name, size } => {
                let size_literal = usize_literal(*size);
                let doc = format!(" {size} bytes of padding.");
                quote! { #[doc = #doc] pub #name: [u8; #size_literal], }
            }
            Member::Bits { name, offset, size, int, .. } => {
                let ty = bits_type(*int, *size);
                let doc = format!(" Offset {offset}, {size} bytes of bit-fields.");
                quote! { #[doc = #doc] pub #name: #ty, }
            }
            Member::Field { name, field, element, dimensions, bytes } => {
                let Field { offset, size, ty, .. } = field;
                let doc = format!(" Offset {offset}, {size} bytes, `{ty}`.");
                let ty = match bytes {
                    true => {
                        let size = usize_literal(*size);
                        quote!([u8; #size])
                    }
                    false => types::array(element.rust(|name| self.path(name)), dimensions),
                };
                quote! { #[doc = #doc] pub #name: #ty, }
            }
        }
    }

    /// What the layout allows: every type here is made of integers, so any bytes are a value;
    /// bytes can be read back where no union hides which of them were written.
    fn derives(&self, kind: RecordKind, packed: bool, members: &[Member<'_>]) -> TokenStream {
        if !self.options.zerocopy {
            return quote!();
        }
        let into_bytes =
            self.is_whole(kind, packed, members).then(|| quote!(, nvabi::zerocopy::IntoBytes));
        // In nvabi itself zerocopy is found under its own name.
        let path =
            (!self.options.in_nvabi()).then(|| quote! { #[zerocopy(crate = "nvabi::zerocopy")] });
        quote! {
            #[derive(
                nvabi::zerocopy::FromBytes,
                nvabi::zerocopy::Immutable,
                nvabi::zerocopy::KnownLayout
                #into_bytes
            )]
            #path
        }
    }

    /// Whether every byte is that of an integer: no union anywhere, and nothing packed.
    fn is_whole(&self, kind: RecordKind, packed: bool, members: &[Member<'_>]) -> bool {
        let is_whole_record = |name: &str| {
            let Some(id) = self.def.uses.get(name) else { return false };
            let writer = Writer { def: &self.plan.defs[*id], ..*self };
            let Fact::Record { kind, size, align, fields } = &*writer.def.fact else {
                return false;
            };
            let (members, packed) = writer.members(*kind, *size, *align, fields);
            writer.is_whole(*kind, packed, &members)
        };
        let mut members_are_whole = members.iter().map(|member| match member {
            Member::Field { element: Element::Record(name), bytes: false, .. } => {
                is_whole_record(name)
            }
            _ => true,
        });
        kind == RecordKind::Struct
            && !packed
            && !members.is_empty()
            && members_are_whole.all(|whole| whole)
    }

    /// The table of a record and the assertion that rustc made the type as the table says.
    fn layout(&self, text: &mut String, name: &Ident, fact: &'a Fact) {
        let Fact::Record { kind, size, align, fields } = fact else { return };
        let (members, _) = self.members(*kind, *size, *align, fields);
        let kind = match kind {
            RecordKind::Struct => "Struct",
            RecordKind::Union => "Union",
        };
        let Def { name: driver_name, place: Place { source, since }, .. } = self.def;
        let mut rows = String::new();
        let mut offsets = String::new();
        for member in &members {
            if let Some((driver_name, field, offset, ty)) = self.describe(member) {
                let _ =
                    writeln!(rows, "F {{ name: {driver_name:?}, offset: {offset}, ty: {ty} }},");
                let _ = write!(offsets, "::core::mem::offset_of!({name}, {field}), ");
            }
        }
        let _ = write!(
            text,
            "impl {name} {{\n/// What the derive compares with.\n\
             pub const LAYOUT: &'static nvabi::check::Layout = &nvabi::check::Layout {{ \
             name: {driver_name:?}, kind: nvabi::check::Kind::{kind}, size: {size}, align: {align}, \
             since: \"{since}\", source: {source:?}, fields: &[\n{rows}] }};\n}}\n\
             const _: () = nvabi::check::assert_layout({name}::LAYOUT, \
             ::core::mem::size_of::<{name}>(), ::core::mem::align_of::<{name}>(), &[{offsets}]);\n"
        );
    }

    /// The driver's name of a member, the Rust one, and where and what it is.
    fn describe<'m>(&self, member: &'m Member<'_>) -> Option<(String, &'m Ident, u64, String)> {
        match member {
            Member::Padding { .. } => None,
            Member::Bits { name, offset, size, int, .. } => {
                let ty = match int {
                    true => Element::Int { size: *size, signed: false },
                    false => Element::Bytes(*size),
                };
                Some((name.to_string(), name, *offset, ty.check(|_| String::new())))
            }
            Member::Field { name, field, element, dimensions, .. } => {
                let element = element.check(|name| self.path(name).to_string().replace(' ', ""));
                let ty = types::check_array(element, dimensions);
                Some((field.name.clone(), name, field.offset, ty))
            }
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
        members.push(Member::Padding { name: names.padding(), size: field.offset - at });
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

fn bits_type(int: bool, size: u64) -> TokenStream {
    match (int, size) {
        (true, 1) => quote!(u8),
        (true, 2) => quote!(u16),
        (true, 4) => quote!(u32),
        (true, _) => quote!(u64),
        _ => {
            let size = usize_literal(size);
            quote!([u8; #size])
        }
    }
}

/// Getters and setters of bit-fields.
fn accessors(name: &Ident, members: &[Member<'_>]) -> TokenStream {
    let mut methods = Vec::new();
    for member in members {
        let Member::Bits { name: unit, offset, size, int, fields } = member else { continue };
        for field in fields.iter().filter(|field| !field.name.is_empty()) {
            let Some(bits) = field.bits else { continue };
            let at = usize_literal((field.offset - offset) * 8 + bits.bit_offset);
            let width = usize_literal(bits.bit_width);
            let (get, set) = (ident(&field.name), format_ident!("set_{}", field.name));
            let doc = format!(
                " `{}`: {} bits from bit {} of byte {}.",
                field.name, bits.bit_width, bits.bit_offset, field.offset
            );
            let unit_type = bits_type(*int, *size);
            let (read, write) = match int {
                true => (
                    quote!(&self.#unit.to_le_bytes()),
                    quote! {
                        let mut bytes = self.#unit.to_le_bytes();
                        nvabi::bits::set(&mut bytes, #at, #width, value);
                        self.#unit = <#unit_type>::from_le_bytes(bytes);
                    },
                ),
                false => (
                    quote!(&self.#unit),
                    quote! {
                        nvabi::bits::set(&mut self.#unit, #at, #width, value);
                    },
                ),
            };
            let signed = matches!(
                field.canonical.as_str(),
                "signed char" | "short" | "int" | "long" | "long long"
            );
            let (ty, read) = match signed {
                true => (quote!(i64), quote!(nvabi::bits::get_signed(#read, #at, #width))),
                false => (quote!(u64), quote!(nvabi::bits::get(#read, #at, #width))),
            };
            let cast = if signed { quote!(let value = value as u64;) } else { quote!() };
            methods.push(quote! {
                #[doc = #doc]
                pub fn #get(&self) -> #ty { #read }
                #[doc = #doc]
                ///
                /// Bits of `value` beyond the width are dropped, as in C.
                pub fn #set(&mut self, value: #ty) { #cast #write }
            });
        }
    }
    match methods.is_empty() {
        true => quote!(),
        false => quote! { impl #name { #(#methods)* } },
    }
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

    fn field(&mut self, field: &Field) -> Ident {
        match field.name.is_empty() {
            true => fresh(&self.taken, "anon", &mut self.anonymous),
            false => ident(&field.name),
        }
    }

    fn padding(&mut self) -> Ident {
        fresh(&self.taken, "_pad", &mut self.padding)
    }

    fn bits(&mut self) -> Ident {
        fresh(&self.taken, "bits", &mut self.bits)
    }
}

fn fresh(taken: &[String], stem: &str, next: &mut usize) -> Ident {
    loop {
        let name = format!("{stem}{next}");
        *next += 1;
        if !taken.contains(&name) {
            return format_ident!("{name}");
        }
    }
}

fn usize_literal(value: u64) -> proc_macro2::Literal {
    types::usize_literal(value)
}
