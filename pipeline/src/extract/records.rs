//! Declarations to facts: names records, spells types, reads offsets.

use std::collections::{HashMap, HashSet};

use clang_sys::*;

use super::clang::{Cursor, Type};
use super::{Files, Header, lexer};
use crate::diagnostic::{Diagnostic, Report};
use crate::headers::{Define, File};
use crate::model::{
    Alias, Bits, Constant, Enum, Field, Record, RecordKind, Source, Surface, split_array,
};

/// A macro as it is defined, for `constants` to evaluate.
pub(super) struct Macro<'t> {
    pub(super) name: &'t str,
    pub(super) source: Source,
    pub(super) place: MacroPlace,
    /// What stands behind the name: parameters and body.
    pub(super) text: &'t str,
    /// Told while the text is at hand: to look at 100,000 texts once more takes time.
    pub(super) function_like: bool,
}

/// Names a definition, whatever tag its header is read for: the header's content, and the byte where
/// the name starts.
pub(super) type MacroPlace = (u64, u32);

/// The macros of a unit.
#[derive(Default)]
pub(super) struct Macros<'t> {
    /// Those that are recorded, in order.
    pub(super) own: Vec<Macro<'t>>,
    /// The names of all others: of system headers, of the command line, of clang itself.
    pub(super) others: HashSet<String>,
}

/// Fills `surface` with the declarations below `root`; gives back its macros.
pub(super) fn collect<'t>(
    root: Cursor<'_>,
    files: &mut Files<'t>,
    surface: &mut Surface,
) -> Result<Macros<'t>, Report> {
    let mut found = Found::default();
    gather(root, files, &mut found);
    let mut collector = Collector {
        names: found.names(),
        surface,
        defined: HashMap::new(),
        seen: HashSet::new(),
        report: Report::default(),
    };
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
struct Found<'u, 't> {
    tags: Vec<(Cursor<'u>, Source)>,
    typedefs: Vec<(Cursor<'u>, Source)>,
    macros: Macros<'t>,
}

#[allow(non_upper_case_globals)]
fn gather<'u, 't>(parent: Cursor<'u>, files: &mut Files<'t>, found: &mut Found<'u, 't>) {
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
        CXCursor_MacroDefinition => match files.place(cursor) {
            Some((header, offset)) => found.macros.own.extend(macro_at(header, offset)),
            None => {
                found.macros.others.insert(cursor.name());
            }
        },
        // Older versions report `extern "C"` as unexposed.
        CXCursor_LinkageSpec | CXCursor_UnexposedDecl => gather(cursor, files, found),
        _ => {}
    });
}

/// The macro whose name starts at a byte of a header. Its text is taken from there: asking the
/// parser for each of 100,000 names and extents takes longer than parsing.
pub(super) fn macro_at<'t>(header: &Header<'t>, offset: u32) -> Option<Macro<'t>> {
    let define = define_at(header, offset)?;
    let text = &header.file.text;
    Some(Macro {
        name: &text[offset as usize..define.text as usize],
        source: Source { path: header.path.clone(), line: define.line },
        place: (header.key, offset),
        text: &text[define.text as usize..define.end as usize],
        function_like: define.function_like,
    })
}

/// The `#define` whose name starts at a byte. Most headers are read for many tags, and looked
/// through once.
fn define_at(header: &Header<'_>, offset: u32) -> Option<Define> {
    let file = header.file;
    let defines = file.defines.get_or_init(|| {
        let start = file.text.as_ptr().addr();
        let names = lexer::defines(&file.text).map(|(name, _)| name.as_ptr().addr());
        names.filter_map(|name| read_define(file, (name - start) as u32)).collect()
    });
    // They come one after the other mostly.
    let next = defines.get(header.next.get()).filter(|define| define.name == offset);
    let found = match next {
        Some(_) => Ok(header.next.get()),
        None => defines.binary_search_by_key(&offset, |define| define.name),
    };
    match found {
        Ok(at) => {
            header.next.set(at + 1);
            Some(defines[at])
        }
        // One that `lexer::defines` passes over, such as one behind a comment.
        Err(_) => read_define(file, offset),
    }
}

fn read_define(file: &File, offset: u32) -> Option<Define> {
    let text = file.text.get(offset as usize..)?;
    let name = lexer::identifier(text);
    let rest = &text[name..];
    Some(Define {
        name: offset,
        text: offset + name as u32,
        end: offset + (name + lexer::directive(rest)) as u32,
        line: file.line(offset),
        function_like: rest.starts_with('('),
    })
}

impl<'u> Found<'u, '_> {
    /// The first typedef declared directly on a record or enum names it. One without a tag that a
    /// typedef puts behind a pointer or into an array is an unnamed part of that typedef.
    fn names(&self) -> HashMap<Cursor<'u>, String> {
        let mut names = HashMap::new();
        let mut indirect = Vec::new();
        for (typedef, _) in &self.typedefs {
            let underlying = typedef.underlying();
            match direct_tag(underlying) {
                Some(tag) => {
                    names.entry(tag).or_insert_with(|| typedef.name());
                }
                None => indirect.extend(innermost_tag(underlying).map(|(tag, _)| (tag, *typedef))),
            }
        }
        for (tag, typedef) in indirect {
            if tag.is_anonymous() {
                names.entry(tag).or_insert_with(|| format!("{}::anon0_t", typedef.name()));
            }
        }
        names
    }
}

/// The record or enum inside of a type's arrays and pointers, and whether it is held by value.
#[allow(non_upper_case_globals)]
fn innermost_tag(ty: Type<'_>) -> Option<(Cursor<'_>, bool)> {
    let (mut ty, mut by_value) = (ty.canonical(), true);
    loop {
        match ty.kind() {
            CXType_Record | CXType_Enum => return Some((ty.declaration(), by_value)),
            CXType_ConstantArray | CXType_IncompleteArray => ty = ty.element(),
            CXType_Pointer => {
                by_value = false;
                ty = ty.pointee();
            }
            _ => return None,
        }
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
    /// The records and enums that were looked at.
    seen: HashSet<Cursor<'u>>,
    report: Report,
}

#[allow(non_upper_case_globals)]
impl<'u> Collector<'u, '_> {
    fn tag(&mut self, cursor: Cursor<'u>, source: &Source, fallback: &str) {
        if !self.seen.insert(cursor) {
            return;
        }
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
        let record = Record { kind, size, align, source: source.clone(), fields: [].into() };
        // The name is taken before the members are read: they may repeat it.
        self.surface.records.insert(name.clone(), record.clone());
        let (mut fields, mut anonymous) = (Vec::new(), 0);
        for member in ty.fields() {
            match self.field(&name, source, member, &mut anonymous) {
                Ok(field) => fields.push(field),
                Err(why) => self.report.push(
                    Diagnostic::error("record-layout", format!("{name}: {why}"))
                        .note(format!("declared at {source}")),
                ),
            }
        }
        self.surface.records.insert(name, Record { fields: fields.into(), ..record });
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
        let unnamed = name.is_empty() && bits.is_none();
        *anonymous += usize::from(unnamed);
        let ty = member.ty();
        if let Some((tag, by_value)) = innermost_tag(ty) {
            // What a pointer leads to is recorded where it is declared, unless that is inside this record.
            if !self.seen.contains(&tag) && (by_value || tag.is_defined_in_record()) {
                let inner = match unnamed {
                    true => format!("{parent}::anon{}_t", *anonymous - 1),
                    false => format!("{parent}::{name}_t"),
                };
                self.define(tag, parent_source, &inner);
            }
        }
        let field = Field {
            ty: self.spell(ty, false),
            canonical: self.spell(ty, true),
            offset: bits_at / 8,
            size: ty.size().unwrap_or(0),
            bits,
            name,
        };
        match has_no_name(&field.canonical) {
            true => Err(format!("the type of `{}` holds a record that has no name", field.name)),
            false => Ok(field),
        }
    }

    /// Records the record or enum of a member.
    fn define(&mut self, tag: Cursor<'u>, parent: &Source, fallback: &str) {
        if self.name_of(tag).is_none() {
            self.names.insert(tag, fallback.to_owned());
        }
        let source = Source { path: parent.path.clone(), line: tag.line() };
        self.tag(tag, &source, fallback);
    }

    /// A type as the model writes it: as declared, or with typedefs and qualifiers resolved.
    fn spell(&self, ty: Type<'u>, canonical: bool) -> String {
        let written = ty;
        if canonical {
            if let Some(name) = builtin(ty.canonical().kind()) {
                return name.to_owned();
            }
        }
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
                enumerators.push((child.name(), child.enumerator(unsigned), child.line()));
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
        let own_tag = direct_tag(underlying).filter(|tag| self.names.get(tag) == Some(&name));
        let ty = match own_tag {
            Some(_) if self.is_defined(&name) => return,
            // Its body is nowhere: what is left is the tag.
            Some(tag) => format!("{} {}", keyword(tag), tag.name()),
            None => self.spell(underlying, true),
        };
        if has_no_name(&ty) {
            let message = format!("the typedef `{name}` holds a record that has no name");
            self.report.push(
                Diagnostic::error("record-unnamed", message)
                    .note(format!("declared at {source}"))
                    .help("give the record a tag, or leave the header out"),
            );
            return;
        }
        let alias = Alias { ty, size: underlying.size().unwrap_or(0), source: source.clone() };
        self.surface.aliases.entry(name).or_insert(alias);
    }

    fn is_defined(&self, name: &str) -> bool {
        self.surface.records.contains_key(name) || self.surface.enums.contains_key(name)
    }
}

/// Whether clang had to make up a name: what has one in the model was given it before.
fn has_no_name(spelling: &str) -> bool {
    spelling.contains("(unnamed ") || spelling.contains("(anonymous ")
}

/// The keyword that goes with a tag.
#[allow(non_upper_case_globals)]
fn keyword(tag: Cursor<'_>) -> &'static str {
    match tag.kind() {
        CXCursor_UnionDecl => "union",
        CXCursor_EnumDecl => "enum",
        _ => "struct",
    }
}

/// How the model writes a type that clang has built in, where that is always the same.
#[allow(non_upper_case_globals)]
fn builtin(kind: CXTypeKind) -> Option<&'static str> {
    Some(match kind {
        CXType_Void => "void",
        CXType_Bool => "_Bool",
        CXType_Char_S | CXType_Char_U => "char",
        CXType_SChar => "signed char",
        CXType_UChar => "unsigned char",
        CXType_Short => "short",
        CXType_UShort => "unsigned short",
        CXType_Int => "int",
        CXType_UInt => "unsigned int",
        CXType_Long => "long",
        CXType_ULong => "unsigned long",
        CXType_LongLong => "long long",
        CXType_ULongLong => "unsigned long long",
        _ => return None,
    })
}

/// Drops `const` and `volatile` from a builtin type's spelling when asked to.
fn unqualified(spelling: &str, drop: bool) -> String {
    match drop {
        true => spelling.replace("const ", "").replace("volatile ", ""),
        false => spelling.to_owned(),
    }
}
