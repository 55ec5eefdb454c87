//! Declarations to facts: names records, spells types, reads offsets.

use std::collections::HashMap;

use clang_sys::*;

use super::Files;
use super::clang::{Cursor, Type};
use crate::diagnostic::{Diagnostic, Report};
use crate::model::{
    Alias, Bits, Constant, Enum, Field, Record, RecordKind, Source, Surface, split_array,
};

/// A macro as it is defined, for `constants` to evaluate.
pub(super) struct Macro {
    pub(super) name: String,
    pub(super) source: Source,
    /// Byte range of `NAME body` in the header.
    pub(super) extent: (u32, u32),
    pub(super) function_like: bool,
}

/// Fills `surface` with the declarations below `root`; gives back its macros in order.
pub(super) fn collect<'u>(
    root: Cursor<'u>,
    files: &mut Files<'_>,
    surface: &mut Surface,
) -> Result<Vec<Macro>, Report> {
    let mut found = Found::default();
    gather(root, files, &mut found);
    let (names, defined) = (found.names(), HashMap::new());
    let mut collector = Collector { names, surface, defined, report: Report::default() };
    for (cursor, source) in &found.tags {
        collector.tag(*cursor, source, "");
    }
    for (cursor, source) in &found.typedefs {
        collector.typedef(*cursor, source);
    }
    collector.report.into_result(found.macros).map(|(macros, _)| macros)
}

/// What stands at the top level, `extern "C"` blocks opened.
#[derive(Default)]
struct Found<'u> {
    tags: Vec<(Cursor<'u>, Source)>,
    typedefs: Vec<(Cursor<'u>, Source)>,
    macros: Vec<Macro>,
}

#[allow(non_upper_case_globals)]
fn gather<'u>(parent: Cursor<'u>, files: &mut Files<'_>, found: &mut Found<'u>) {
    parent.for_each_child(|cursor| match cursor.kind() {
        CXCursor_StructDecl | CXCursor_UnionDecl | CXCursor_EnumDecl => {
            if let (true, Some(source)) = (cursor.is_definition(), files.source(cursor)) {
                found.tags.push((cursor, source));
            }
        }
        CXCursor_TypedefDecl => {
            if let Some(source) = files.source(cursor) {
                found.typedefs.push((cursor, source));
            }
        }
        CXCursor_MacroDefinition => {
            if let Some(source) = files.source(cursor) {
                found.macros.push(Macro {
                    name: cursor.name(),
                    source,
                    extent: cursor.extent(),
                    function_like: cursor.is_function_like(),
                });
            }
        }
        // Older versions report `extern "C"` as unexposed.
        CXCursor_LinkageSpec | CXCursor_UnexposedDecl => gather(cursor, files, found),
        _ => {}
    });
}

impl<'u> Found<'u> {
    /// The first typedef declared directly on a record or enum names it.
    fn names(&self) -> HashMap<Cursor<'u>, String> {
        let mut names = HashMap::new();
        for (typedef, _) in &self.typedefs {
            if let Some(tag) = direct_tag(typedef.underlying()) {
                names.entry(tag).or_insert_with(|| typedef.name());
            }
        }
        names
    }
}

/// The record or enum that a typedef is declared on, not through another typedef.
#[allow(non_upper_case_globals)]
fn direct_tag(ty: Type<'_>) -> Option<Cursor<'_>> {
    let ty = ty.named();
    matches!(ty.kind(), CXType_Record | CXType_Enum).then(|| ty.declaration())
}

struct Collector<'u, 's> {
    names: HashMap<Cursor<'u>, String>,
    surface: &'s mut Surface,
    /// Which record has each name.
    defined: HashMap<String, Cursor<'u>>,
    report: Report,
}

#[allow(non_upper_case_globals)]
impl<'u> Collector<'u, '_> {
    fn tag(&mut self, cursor: Cursor<'u>, source: &Source, fallback: &str) {
        match cursor.kind() {
            CXCursor_EnumDecl => self.enumeration(cursor, source),
            _ => self.record(cursor, source, fallback),
        }
    }

    /// The name of a record or enum, if anything names it.
    fn name_of(&self, tag: Cursor<'u>) -> Option<String> {
        if let Some(name) = self.names.get(&tag) {
            return Some(name.clone());
        }
        (!tag.is_anonymous()).then(|| tag.name()).filter(|name| !name.is_empty())
    }

    fn record(&mut self, cursor: Cursor<'u>, source: &Source, fallback: &str) {
        let name = self.name_of(cursor).unwrap_or_else(|| fallback.to_owned());
        // An unnamed record that nothing declares cannot be referred to.
        if name.is_empty() || !self.claim(&name, cursor, source) {
            return;
        }
        let ty = cursor.ty();
        let (Some(size), Some(align)) = (ty.size(), ty.align()) else { return };
        let kind = match cursor.kind() {
            CXCursor_UnionDecl => RecordKind::Union,
            _ => RecordKind::Struct,
        };
        let mut record = Record { kind, size, align, source: source.clone(), fields: Vec::new() };
        let mut anonymous = 0;
        let members = ty.fields();
        // The name is taken before the members are read: they may repeat it.
        self.surface.records.insert(name.clone(), record.clone());
        for member in members {
            match self.field(&name, source, member, &mut anonymous) {
                Ok(field) => record.fields.push(field),
                Err(why) => self.report.push(
                    Diagnostic::error("record-layout", format!("{name}: {why}"))
                        .note(format!("declared at {source}")),
                ),
            }
        }
        self.surface.records.insert(name, record);
    }

    /// Takes a name for a record; false when it is taken, which is an error unless by itself.
    ///
    /// C keeps tags and typedefs apart, so one may name one record and the other another.
    fn claim(&mut self, name: &str, cursor: Cursor<'u>, source: &Source) -> bool {
        let Some(first) = self.defined.get(name) else {
            self.defined.insert(name.to_owned(), cursor);
            return true;
        };
        if *first != cursor {
            let message = format!("two records go by the name `{name}`");
            let other = self.surface.records.get(name).map(|r| r.source.to_string());
            self.report.push(
                Diagnostic::error("record-name-clash", message)
                    .note(format!("one at {}, one at {source}", other.unwrap_or_default()))
                    .help("a tag and a typedef of one name must name the same record; leave one of the headers out"),
            );
        }
        false
    }

    fn field(
        &mut self,
        parent: &str,
        parent_source: &Source,
        member: Cursor<'u>,
        anonymous: &mut usize,
    ) -> Result<Field, String> {
        let bits_at = member
            .field_bit_offset()
            .map_err(|code| format!("no offset for a member (libclang's error {code})"))?;
        let bits = member.bit_width().map(|bit_width| Bits { bit_offset: bits_at % 8, bit_width });
        // libclang 16 and newer give unnamed members a made-up name that holds the path.
        let name = Some(member.name()).filter(|name| !name.contains('(')).unwrap_or_default();
        let inner = match name.is_empty() && bits.is_none() {
            true => {
                *anonymous += 1;
                format!("{parent}::anon{}_t", *anonymous - 1)
            }
            false => format!("{parent}::{name}_t"),
        };
        let (_, line, _) = member.place();
        let source = Source { path: parent_source.path.clone(), line };
        let ty = member.ty();
        self.define(ty, &source, &inner);
        Ok(Field {
            ty: self.spell(ty, false),
            canonical: self.spell(ty, true),
            offset: bits_at / 8,
            size: ty.size().unwrap_or(0),
            bits,
            name,
        })
    }

    /// Records the record or enum that a member holds by value, when it is defined there.
    fn define(&mut self, ty: Type<'u>, source: &Source, fallback: &str) {
        let mut ty = ty.canonical();
        while matches!(ty.kind(), CXType_ConstantArray | CXType_IncompleteArray) {
            ty = ty.element().canonical();
        }
        if !matches!(ty.kind(), CXType_Record | CXType_Enum) {
            return;
        }
        let tag = ty.declaration();
        if self.name_of(tag).is_none() {
            self.names.insert(tag, fallback.to_owned());
        }
        if !self.is_known(tag) {
            let (_, line, _) = tag.place();
            let source = Source { path: source.path.clone(), line };
            self.tag(tag, &source, fallback);
        }
    }

    fn is_known(&self, tag: Cursor<'u>) -> bool {
        self.name_of(tag).is_some_and(|name| {
            self.surface.records.contains_key(&name) || self.surface.enums.contains_key(&name)
        })
    }

    /// A type as the model writes it: as declared, or with typedefs and qualifiers resolved.
    fn spell(&self, ty: Type<'u>, canonical: bool) -> String {
        let written = ty;
        let ty = if canonical { ty.canonical() } else { ty.named() };
        // Newer versions of libclang put the qualifiers of a typedef's name on the type around it.
        let qualifiers = match (canonical, written.qualifiers()) {
            (true, _) => "",
            (false, "") => ty.qualifiers(),
            (false, qualifiers) => qualifiers,
        };
        match ty.kind() {
            CXType_ConstantArray => self.array(ty, &format!("[{}]", ty.count()), canonical),
            CXType_IncompleteArray => self.array(ty, "[]", canonical),
            CXType_Record | CXType_Enum => {
                let tag = ty.declaration();
                let name = self.name_of(tag).unwrap_or_else(|| tag.name());
                format!("{qualifiers}{name}")
            }
            CXType_Typedef => format!("{qualifiers}{}", ty.declaration().name()),
            CXType_Pointer => self.pointer(ty, canonical),
            CXType_Bool => format!("{qualifiers}_Bool"),
            _ => unqualified(&ty.spelling(), canonical),
        }
    }

    fn array(&self, ty: Type<'u>, dimension: &str, canonical: bool) -> String {
        let element = self.spell(ty.element(), canonical);
        // `T x[2][3]` is two arrays of three: the outer dimension stands first.
        let at = split_array(&element).0.len();
        format!("{}{dimension}{}", &element[..at], &element[at..])
    }

    fn pointer(&self, ty: Type<'u>, canonical: bool) -> String {
        let pointee = ty.pointee();
        match pointee.canonical().kind() {
            CXType_FunctionProto | CXType_FunctionNoProto => ty.spelling(),
            _ => format!("{} *", self.spell(pointee, canonical)).replace("* *", "**"),
        }
    }

    fn enumeration(&mut self, cursor: Cursor<'u>, source: &Source) {
        let unsigned = cursor.enum_is_unsigned();
        let mut enumerators = Vec::new();
        cursor.for_each_child(|child| {
            if child.kind() == CXCursor_EnumConstantDecl {
                let (_, line, _) = child.place();
                enumerators.push((child.name(), child.enumerator(unsigned), line));
            }
        });
        match self.name_of(cursor) {
            Some(name) => {
                let variants = enumerators.into_iter().map(|(name, v, _)| (name, v)).collect();
                let size = cursor.ty().size().unwrap_or(0);
                self.surface.enums.insert(name, Enum { size, source: source.clone(), variants });
            }
            None => {
                for (name, value, line) in enumerators {
                    let source = Source { path: source.path.clone(), line };
                    self.surface.constants.insert(name, Constant { value, source });
                }
            }
        }
    }

    fn typedef(&mut self, cursor: Cursor<'u>, source: &Source) {
        let name = cursor.name();
        let underlying = cursor.underlying();
        let names_a_tag =
            direct_tag(underlying).is_some_and(|tag| self.names.get(&tag) == Some(&name));
        if names_a_tag && self.is_defined(&name) {
            return;
        }
        let alias = Alias {
            ty: self.spell(underlying, true),
            size: underlying.size().unwrap_or(0),
            source: source.clone(),
        };
        self.surface.aliases.entry(name).or_insert(alias);
    }

    fn is_defined(&self, name: &str) -> bool {
        self.surface.records.contains_key(name) || self.surface.enums.contains_key(name)
    }
}

/// Drops `const` and `volatile` from a builtin type's spelling when asked to.
fn unqualified(spelling: &str, drop: bool) -> String {
    match drop {
        true => spelling.replace("const ", "").replace("volatile ", ""),
        false => spelling.to_owned(),
    }
}
