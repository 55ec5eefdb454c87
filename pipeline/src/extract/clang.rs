//! The few libclang calls that extraction needs, behind safe types.
//!
//! This is the one place of the pipeline with `unsafe`: libclang is loaded at run time and its
//! handles are plain C values. Each wrapper states why its call is sound.
#![allow(non_upper_case_globals)]

use std::ffi::{CStr, CString, c_uint};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use clang_sys::*;

use crate::diagnostic::Diagnostic;

/// The oldest libclang that is known to report every fact the model has.
pub(super) const OLDEST: u32 = 14;

const INSTALL: &str = "install libclang 14 or newer (Debian, Ubuntu: apt-get install libclang-19-dev; \
Fedora: dnf install clang-libs; macOS: xcode-select --install), or set LIBCLANG_PATH to the folder \
that holds libclang.so";

/// libclang, loaded.
pub struct Clang {
    index: CXIndex,
    version: String,
}

impl Clang {
    /// Loads libclang from `LIBCLANG_PATH` or the usual places and checks its version.
    pub fn load() -> Result<Self, Diagnostic> {
        if !is_loaded() {
            load_once().map_err(|why| {
                Diagnostic::error("libclang-missing", "cannot load libclang")
                    .note(why.lines().next().unwrap_or_default().to_owned())
                    .help(INSTALL)
            })?;
        }
        // SAFETY: the library is loaded and this function exists in every version; the string it
        // returns is ours to dispose of, which `text` does.
        let version = unsafe { text(clang_getClangVersion()) };
        match major(&version) {
            Some(major) if major >= OLDEST => {}
            _ => {
                return Err(Diagnostic::error(
                    "libclang-too-old",
                    format!("libclang {OLDEST} or newer is needed, this is \"{version}\""),
                )
                .help(INSTALL));
            }
        }
        // SAFETY: no argument is a pointer. The index is disposed of in `drop`.
        let index = unsafe { clang_createIndex(0, 0) };
        Ok(Self { index, version })
    }

    /// Such as `Debian clang version 19.1.7`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whether it has code for a machine: an empty file parses then.
    pub fn knows_target(&self, target: &str) -> bool {
        let args = [format!("--target={target}"), "-nostdinc".to_owned()];
        self.parse(&args, &[("/nvabi-empty.c".to_owned(), "")], false).is_ok()
    }

    /// Parses the file named by the last of `files`, all of which are given from memory.
    pub fn parse(
        &self,
        args: &[String],
        files: &[(String, &str)],
        detailed_macros: bool,
    ) -> Result<Unit<'_>, Diagnostic> {
        let c_args = c_strings(args.iter().map(String::as_str))?;
        let arg_pointers: Vec<_> = c_args.iter().map(|a| a.as_ptr()).collect();
        let names = c_strings(files.iter().map(|(name, _)| name.as_str()))?;
        let mut unsaved: Vec<CXUnsavedFile> = names
            .iter()
            .zip(files)
            .map(|(name, (_, text))| CXUnsavedFile {
                Filename: name.as_ptr(),
                Contents: text.as_ptr().cast(),
                Length: text.len() as _,
            })
            .collect();
        let mut options = CXTranslationUnit_SkipFunctionBodies | CXTranslationUnit_KeepGoing;
        if detailed_macros {
            options |= CXTranslationUnit_DetailedPreprocessingRecord;
        }
        let mut unit: CXTranslationUnit = ptr::null_mut();
        // SAFETY: every pointer refers to a NUL-terminated string or a slice with its length that
        // outlives the call; libclang copies what it keeps. `unit` is a valid place to write to.
        let code = unsafe {
            clang_parseTranslationUnit2(
                self.index,
                names.last().map_or(ptr::null(), |n| n.as_ptr()),
                arg_pointers.as_ptr(),
                arg_pointers.len() as _,
                unsaved.as_mut_ptr(),
                unsaved.len() as _,
                options,
                &mut unit,
            )
        };
        if code != CXError_Success || unit.is_null() {
            return Err(Diagnostic::error(
                "libclang-failed",
                format!("libclang gave up on the translation unit (error {code})"),
            )
            .note(format!("arguments: {}", args.join(" "))));
        }
        Ok(Unit { unit, clang: PhantomData })
    }
}

impl Drop for Clang {
    fn drop(&mut self) {
        // SAFETY: created in `load`; units borrow `self`, so none is left.
        unsafe { clang_disposeIndex(self.index) }
    }
}

/// By these a person says where libclang is; it is looked for nowhere else first, then.
const SAID: [&str; 5] =
    ["LIBCLANG_PATH", "LLVM_CONFIG_PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CLANG_PATH"];

/// What a thread has loaded, for the others: clang-sys has each look for the library by itself.
static LOADED: Mutex<Option<Arc<SharedLibrary>>> = Mutex::new(None);

fn load_once() -> Result<(), String> {
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    match &*loaded {
        Some(library) => drop(set_library(Some(library.clone()))),
        None => {
            find_and_load()?;
            *loaded = get_library();
        }
    }
    Ok(())
}

/// Loads the newest LLVM of Debian and its kin when there is one, else whatever clang-sys finds.
///
/// Its search runs `llvm-config` and looks into every folder of /usr/lib, which takes a fifth of
/// the time in which a driver's headers are parsed.
fn find_and_load() -> Result<(), String> {
    let known = (SAID.iter().all(|name| std::env::var_os(name).is_none()))
        .then(newest_llvm)
        .flatten()
        .filter(|_| is_only_thread());
    let Some(folder) = known else { return load() };
    // SAFETY: this is the only thread of the process, so no other reads the environment.
    unsafe { std::env::set_var("LIBCLANG_PATH", folder) };
    let loaded = load();
    if is_only_thread() {
        // SAFETY: this is the only thread of the process, so no other reads the environment.
        unsafe { std::env::remove_var("LIBCLANG_PATH") };
    }
    loaded.or_else(|_| load())
}

/// `/usr/lib/llvm-N/lib` of the largest N with a libclang in it.
fn newest_llvm() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten().filter_map(|entry| {
        let version: u32 = entry.file_name().to_str()?.strip_prefix("llvm-")?.parse().ok()?;
        let lib = entry.path().join("lib");
        let is_libclang = |name: &str| {
            (name.starts_with("libclang.so") || name.starts_with("libclang-"))
                && name.contains(".so")
                && !name.contains("-cpp.")
        };
        let mut files = std::fs::read_dir(&lib).ok()?.flatten();
        files
            .any(|file| file.file_name().to_str().is_some_and(is_libclang))
            .then_some((version, lib))
    });
    let (version, lib) = folders.max()?;
    (version >= OLDEST).then_some(lib)
}

/// Whether the process has one thread; false where the system does not tell.
fn is_only_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}

/// The number after the word "version".
fn major(version: &str) -> Option<u32> {
    let after = version.split("version ").nth(1)?;
    after.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn c_strings<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Vec<CString>, Diagnostic> {
    texts
        .map(|text| {
            CString::new(text).map_err(|_| {
                Diagnostic::error("libclang-failed", format!("{text:?} holds a NUL character"))
            })
        })
        .collect()
}

/// # Safety
/// `string` came from a libclang call and is not used again.
unsafe fn text(string: CXString) -> String {
    // SAFETY: by the contract above; the pointer may be null, and is valid until disposal.
    unsafe {
        let pointer = clang_getCString(string);
        let text = match pointer.is_null() {
            true => String::new(),
            false => CStr::from_ptr(pointer).to_string_lossy().into_owned(),
        };
        clang_disposeString(string);
        text
    }
}

/// A parsed translation unit.
pub struct Unit<'c> {
    unit: CXTranslationUnit,
    clang: PhantomData<&'c Clang>,
}

impl Drop for Unit<'_> {
    fn drop(&mut self) {
        // SAFETY: owned, and every `Cursor` and `Type` borrows `self`.
        unsafe { clang_disposeTranslationUnit(self.unit) }
    }
}

/// A complaint of the parser.
pub struct Complaint {
    /// `error`, `warning`.
    pub is_error: bool,
    /// The parser's words.
    pub message: String,
    /// File as given, or empty.
    pub file: String,
    /// Byte offset in the file.
    pub offset: u32,
    /// From 1.
    pub line: u32,
}

impl Unit<'_> {
    /// The cursor whose children are the top-level declarations and macros.
    pub fn root(&self) -> Cursor<'_> {
        // SAFETY: the unit is valid while `self` is borrowed.
        Cursor { raw: unsafe { clang_getTranslationUnitCursor(self.unit) }, unit: PhantomData }
    }

    /// Warnings and errors, in order.
    pub fn complaints(&self) -> Vec<Complaint> {
        // SAFETY: the unit is valid; indices are below the count; diagnostics are disposed of once.
        unsafe {
            let count = clang_getNumDiagnostics(self.unit);
            let mut complaints = Vec::new();
            for i in 0..count {
                let raw = clang_getDiagnostic(self.unit, i);
                let severity = clang_getDiagnosticSeverity(raw);
                if severity >= CXDiagnostic_Warning {
                    let place = spell_location(clang_getDiagnosticLocation(raw));
                    complaints.push(Complaint {
                        is_error: severity >= CXDiagnostic_Error,
                        message: text(clang_getDiagnosticSpelling(raw)),
                        file: text(clang_getFileName(place.file)),
                        offset: place.offset,
                        line: place.line,
                    });
                }
                clang_disposeDiagnostic(raw);
            }
            complaints
        }
    }
}

struct RawPlace {
    file: CXFile,
    line: c_uint,
    offset: c_uint,
}

/// The place where a token stands or, for one that comes out of a macro, where that is used.
fn spell_location(location: CXSourceLocation) -> RawPlace {
    let (mut file, mut line, mut column, mut offset) = (ptr::null_mut(), 0, 0, 0);
    // SAFETY: the four places are valid to write to; any location value is accepted.
    unsafe { clang_getExpansionLocation(location, &mut file, &mut line, &mut column, &mut offset) };
    RawPlace { file, line, offset }
}

/// A place in a file: the handle identifies the file within its unit.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId(usize);

/// A node of the syntax tree.
///
/// Invariant: `raw` is a value that libclang returned for the unit that `'u` borrows, the null cursor included;
/// `Unit::drop` runs only after `'u` has ended. libclang's queries take every such value, and return 0 or an
/// invalid value where the question does not fit its kind (clang-c/Index.h).
#[derive(Clone, Copy)]
pub struct Cursor<'u> {
    raw: CXCursor,
    unit: PhantomData<&'u ()>,
}

impl PartialEq for Cursor<'_> {
    fn eq(&self, other: &Self) -> bool {
        // SAFETY: by the invariant of `Cursor`.
        unsafe { clang_equalCursors(self.raw, other.raw) != 0 }
    }
}
impl Eq for Cursor<'_> {}
impl std::hash::Hash for Cursor<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        // SAFETY: by the invariant of `Cursor`.
        state.write_u32(unsafe { clang_hashCursor(self.raw) });
    }
}

impl<'u> Cursor<'u> {
    fn of(raw: CXCursor) -> Self {
        Self { raw, unit: PhantomData }
    }

    /// What kind of node it is, as a `CXCursor_*` value.
    pub fn kind(self) -> CXCursorKind {
        // SAFETY: by the invariant of `Cursor`.
        unsafe { clang_getCursorKind(self.raw) }
    }

    /// The declared name; empty where there is none.
    pub fn name(self) -> String {
        // SAFETY: by the invariant of `Cursor`; `text` disposes of the string.
        unsafe { text(clang_getCursorSpelling(self.raw)) }
    }

    /// Calls `visit` for each direct child, in source order.
    pub fn for_each_child(self, visit: impl FnMut(Cursor<'u>)) {
        extern "C" fn call<'u, F: FnMut(Cursor<'u>)>(
            cursor: CXCursor,
            _parent: CXCursor,
            data: CXClientData,
        ) -> CXChildVisitResult {
            // SAFETY: `data` is the `&mut F` passed below, used only during that call.
            let visit = unsafe { &mut *data.cast::<F>() };
            visit(Cursor::of(cursor));
            CXChildVisit_Continue
        }
        fn start<'u, F: FnMut(Cursor<'u>)>(raw: CXCursor, mut visit: F) {
            // SAFETY: the callback matches the signature and `visit` outlives the call. A panic
            // in it aborts the process at the `extern "C"` boundary, which is sound.
            unsafe { clang_visitChildren(raw, call::<F>, ptr::from_mut(&mut visit).cast()) };
        }
        start(self.raw, visit);
    }

    /// The file it is declared in and the byte where its name starts.
    pub fn place(self) -> (FileId, u32) {
        let (mut file, mut offset) = (ptr::null_mut(), 0);
        // SAFETY: by the invariant of `Cursor`; the two places are valid to write to,
        // and null means that line and column are not asked for: counting them takes time.
        unsafe {
            let location = clang_getCursorLocation(self.raw);
            clang_getExpansionLocation(
                location,
                &mut file,
                ptr::null_mut(),
                ptr::null_mut(),
                &mut offset,
            );
        }
        (FileId(file as usize), offset)
    }

    /// The line it is declared in.
    pub fn line(self) -> u32 {
        // SAFETY: by the invariant of `Cursor`.
        spell_location(unsafe { clang_getCursorLocation(self.raw) }).line
    }

    /// The name of the file it is declared in, as given to the parser.
    pub fn file_name(self) -> String {
        // SAFETY: the file handle belongs to a unit that is alive; null gives an empty string.
        unsafe { text(clang_getFileName(spell_location(clang_getCursorLocation(self.raw)).file)) }
    }

    /// The tokens of its text, in a row.
    pub fn tokens(self) -> String {
        let (mut tokens, mut count) = (ptr::null_mut(), 0);
        let mut joined = String::new();
        // SAFETY: the unit is alive; `tokens` and `count` are valid to write to and describe an
        // array that is read within its bounds and disposed of once.
        unsafe {
            let unit = clang_Cursor_getTranslationUnit(self.raw);
            clang_tokenize(unit, clang_getCursorExtent(self.raw), &mut tokens, &mut count);
            for i in 0..count as usize {
                joined.push_str(&text(clang_getTokenSpelling(unit, *tokens.add(i))));
                joined.push(' ');
            }
            clang_disposeTokens(unit, tokens, count);
        }
        joined
    }

    /// Its type.
    pub fn ty(self) -> Type<'u> {
        // SAFETY: by the invariant of `Cursor`.
        Type::of(unsafe { clang_getCursorType(self.raw) })
    }

    /// Whether this declaration has the body.
    pub fn is_definition(self) -> bool {
        // SAFETY: by the invariant of `Cursor`.
        unsafe { clang_isCursorDefinition(self.raw) != 0 }
    }

    /// For a record or enum: neither tag nor typedef names it.
    pub fn is_anonymous(self) -> bool {
        // SAFETY: by the invariant of `Cursor`.
        unsafe { clang_Cursor_isAnonymous(self.raw) != 0 }
    }

    /// For a record or enum: whether it is declared inside a record.
    pub fn is_defined_in_record(self) -> bool {
        // SAFETY: by the invariant of `Cursor`.
        let parent = unsafe { clang_getCursorKind(clang_getCursorLexicalParent(self.raw)) };
        matches!(parent, CXCursor_StructDecl | CXCursor_UnionDecl | CXCursor_ClassDecl)
            && self.is_definition()
    }

    /// For a typedef: what it stands for.
    pub fn underlying(self) -> Type<'u> {
        // SAFETY: by the invariant of `Cursor`.
        Type::of(unsafe { clang_getTypedefDeclUnderlyingType(self.raw) })
    }

    /// For a field: its offset in bits, or what is wrong with the record.
    pub fn field_bit_offset(self) -> Result<u64, i64> {
        // SAFETY: by the invariant of `Cursor`.
        let offset = unsafe { clang_Cursor_getOffsetOfField(self.raw) };
        u64::try_from(offset).map_err(|_| offset)
    }

    /// For a bit-field: its width.
    pub fn bit_width(self) -> Option<u64> {
        // SAFETY: by the invariant of `Cursor`.
        unsafe {
            (clang_Cursor_isBitField(self.raw) != 0)
                .then(|| clang_getFieldDeclBitWidth(self.raw).max(0) as u64)
        }
    }

    /// For an enumerator: its value, read as the enum's own integer type.
    pub fn enumerator(self, unsigned: bool) -> i128 {
        // SAFETY: by the invariant of `Cursor`.
        unsafe {
            match unsigned {
                true => i128::from(clang_getEnumConstantDeclUnsignedValue(self.raw)),
                false => i128::from(clang_getEnumConstantDeclValue(self.raw)),
            }
        }
    }

    /// For an enum: whether its integer type is unsigned.
    pub fn enum_is_unsigned(self) -> bool {
        // SAFETY: by the invariant of `Cursor`.
        let ty = unsafe { clang_getCanonicalType(clang_getEnumDeclIntegerType(self.raw)) };
        (CXType_Bool..=CXType_UInt128).contains(&ty.kind)
    }
}

/// A type.
///
/// Invariant: as that of [`Cursor`], with an invalid type in the place of the null cursor.
#[derive(Clone, Copy)]
pub struct Type<'u> {
    raw: CXType,
    unit: PhantomData<&'u ()>,
}

impl<'u> Type<'u> {
    fn of(raw: CXType) -> Self {
        Self { raw, unit: PhantomData }
    }

    /// What kind of type it is, with the wrapper that says "as written `struct x`" taken off.
    pub fn kind(self) -> CXTypeKind {
        self.raw.kind
    }

    /// The type itself where the syntax only elaborates on it.
    pub fn named(self) -> Self {
        match self.raw.kind {
            // SAFETY: by the invariant of `Type`.
            CXType_Elaborated => Self::of(unsafe { clang_Type_getNamedType(self.raw) }),
            // SAFETY: by the invariant of `Type`.
            CXType_Attributed => Self::of(unsafe { clang_Type_getModifiedType(self.raw) }),
            _ => self,
        }
    }

    /// With typedefs resolved.
    pub fn canonical(self) -> Self {
        // SAFETY: by the invariant of `Type`.
        Self::of(unsafe { clang_getCanonicalType(self.raw) })
    }

    /// As C source, qualifiers included.
    pub fn spelling(self) -> String {
        // SAFETY: by the invariant of `Type`; `text` disposes of the string.
        unsafe { text(clang_getTypeSpelling(self.raw)) }
    }

    /// The record, enum or typedef that declares it.
    pub fn declaration(self) -> Cursor<'u> {
        // SAFETY: by the invariant of `Type`.
        Cursor::of(unsafe { clang_getTypeDeclaration(self.raw) })
    }

    /// Bytes; `None` when the type is incomplete.
    pub fn size(self) -> Option<u64> {
        // SAFETY: by the invariant of `Type`.
        u64::try_from(unsafe { clang_Type_getSizeOf(self.raw) }).ok()
    }

    /// Bytes; `None` when the type is incomplete.
    pub fn align(self) -> Option<u64> {
        // SAFETY: by the invariant of `Type`.
        u64::try_from(unsafe { clang_Type_getAlignOf(self.raw) }).ok()
    }

    /// Element type of an array.
    pub fn element(self) -> Self {
        // SAFETY: by the invariant of `Type`.
        Self::of(unsafe { clang_getArrayElementType(self.raw) })
    }

    /// Number of elements of a constant array.
    pub fn count(self) -> u64 {
        // SAFETY: by the invariant of `Type`.
        unsafe { clang_getArraySize(self.raw) }.max(0) as u64
    }

    /// What a pointer points to.
    pub fn pointee(self) -> Self {
        // SAFETY: by the invariant of `Type`.
        Self::of(unsafe { clang_getPointeeType(self.raw) })
    }

    /// `const ` and `volatile ` as written on this type.
    pub fn qualifiers(self) -> &'static str {
        // SAFETY: by the invariant of `Type`.
        let (is_const, is_volatile) = unsafe {
            (
                clang_isConstQualifiedType(self.raw) != 0,
                clang_isVolatileQualifiedType(self.raw) != 0,
            )
        };
        match (is_const, is_volatile) {
            (false, false) => "",
            (true, false) => "const ",
            (false, true) => "volatile ",
            (true, true) => "const volatile ",
        }
    }

    /// The members of a record, unnamed ones too, in order.
    pub fn fields(self) -> Vec<Cursor<'u>> {
        extern "C" fn call(cursor: CXCursor, data: CXClientData) -> CXVisitorResult {
            // SAFETY: `data` is the vector passed below, used only during that call.
            unsafe { &mut *data.cast::<Vec<CXCursor>>() }.push(cursor);
            CXVisit_Continue
        }
        let mut raw: Vec<CXCursor> = Vec::new();
        // SAFETY: the callback matches the signature and `raw` outlives the call.
        unsafe { clang_Type_visitFields(self.raw, call, ptr::from_mut(&mut raw).cast()) };
        raw.into_iter().map(Cursor::of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::major;

    #[test]
    fn reads_the_version() {
        assert_eq!(major("Debian clang version 14.0.6"), Some(14));
        assert_eq!(major("Apple clang version 15.0.0 (clang-1500.3.9.4)"), Some(15));
        assert_eq!(major("something else"), None);
    }
}
