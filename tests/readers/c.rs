//! The C compiler as a reader: assertions written from facts, compiled against the same headers.
//!
//! What a constant expression can tell is a `_Static_assert`. Where a bit-field lies it cannot
//! tell: for each there is an object with nothing but that field set, found in the object file by
//! the text before it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nvabi_pipeline::model::{Field, Record, Surface, split_array};
use nvabi_test::{Need, skip};

/// A compiler and the machine it compiles for.
#[derive(Debug, Clone)]
pub(crate) struct Compiler {
    pub(crate) program: &'static str,
    /// The same for C++.
    pub(crate) cpp: &'static str,
    pub(crate) args: &'static [&'static str],
    /// The target whose facts it must agree with.
    pub(crate) target: &'static str,
    pub(crate) need: Need,
}

const X86: &str = "x86_64-unknown-linux-gnu";
const ARM: &str = "aarch64-unknown-linux-gnu";

/// gcc for this machine, for the other, and clang for both.
pub(crate) fn compilers() -> Vec<Compiler> {
    let (own, other) = if cfg!(target_arch = "x86_64") { (X86, ARM) } else { (ARM, X86) };
    let (program, cpp) = match other {
        ARM => ("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++"),
        _ => ("x86_64-linux-gnu-gcc", "x86_64-linux-gnu-g++"),
    };
    let names = ["clang", "clang-19", "clang-14"];
    let clang = names.into_iter().find(|name| runs(name)).unwrap_or("clang");
    let args = |target| -> &'static [&'static str] {
        match target {
            X86 => &["--target=x86_64-unknown-linux-gnu"],
            _ => &[
                "--target=aarch64-unknown-linux-gnu",
                "-idirafter",
                "/usr/aarch64-linux-gnu/include",
            ],
        }
    };
    let clang = |target| Compiler {
        program: clang,
        cpp: clang,
        args: args(target),
        target,
        need: Need::Clang,
    };
    vec![
        Compiler { program: "gcc", cpp: "g++", args: &[], target: own, need: Need::Gcc },
        Compiler { program, cpp, args: &[], target: other, need: Need::CrossGcc },
        clang(own),
        clang(other),
    ]
}

impl Compiler {
    /// What a test calls it.
    pub(crate) fn name(&self) -> String {
        let machine = self.target.split('-').next().unwrap_or_default();
        let family = if self.need == Need::Clang { "clang" } else { "gcc" };
        format!("{family}_for_{machine}")
    }

    /// Skips the test where it is not installed.
    pub(crate) fn or_skip(&self) {
        if let Some(program) = [self.program, self.cpp].into_iter().find(|program| !runs(program)) {
            skip(self.need, format!("{program} does not run"));
        }
    }
}

fn runs(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Where a record is, seen from one that C has a name for.
struct Place {
    /// The C type that holds it, or is it.
    base: String,
    /// The member of `base`, empty for `base` itself: `data.buffer[0]`.
    member: String,
    /// Bytes from the start of `base`.
    offset: u64,
    /// It has no name at all: its members are those of the record around it.
    anonymous: bool,
}

/// A bit-field's object and what must be in it.
struct Probe {
    what: String,
    magic: String,
    align: u64,
    size: u64,
    /// First bit and width.
    bits: (u64, u64),
}

pub(crate) struct Questions {
    pub(crate) text: String,
    pub(crate) count: usize,
    probes: Vec<Probe>,
}

/// Writes the assertions. `keyword` says of a name that it is a tag: `struct`, `union` or `enum`.
pub(crate) fn questions(
    surface: &Surface,
    keyword: &dyn Fn(&str) -> Option<&'static str>,
) -> Questions {
    let mut writer = Writer {
        surface,
        keyword,
        q: Questions { text: PROLOGUE.into(), count: 0, probes: Vec::new() },
    };
    writer.free_members();
    for name in surface.records.keys().filter(|name| !name.contains("::")) {
        let base = writer.c_name(name);
        let place = Place { base, member: String::new(), offset: 0, anonymous: false };
        writer.record(name, &place);
    }
    writer.enums();
    writer.values();
    writer.q
}

const PROLOGUE: &str = "
#include <stddef.h>
#ifdef __cplusplus
#define NVABI_ASSERT(...) static_assert(__VA_ARGS__, \"\")
#define NVABI_ALIGN(t) alignof(t)
#define NVABI_SAME(a, b) __is_same(a, b)
#else
#define NVABI_ASSERT(...) _Static_assert(__VA_ARGS__, \"\")
#define NVABI_ALIGN(t) _Alignof(t)
#define NVABI_SAME(a, b) __builtin_types_compatible_p(a, b)
#endif
";

struct Writer<'a> {
    surface: &'a Surface,
    keyword: &'a dyn Fn(&str) -> Option<&'static str>,
    q: Questions,
}

impl Writer<'_> {
    fn ask(&mut self, condition: &str) {
        self.q.count += 1;
        let _ = writeln!(self.q.text, "NVABI_ASSERT({condition});");
    }

    /// Some headers forbid a member by a macro of its name once they have declared it.
    fn free_members(&mut self) {
        let fields = self.surface.records.values().flat_map(|record| record.fields.iter());
        let mut names: Vec<&str> = fields.map(|field| field.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let is_value = |name: &str| {
            self.surface.constants.contains_key(name) || self.surface.bit_ranges.contains_key(name)
        };
        for name in names.into_iter().filter(|name| !name.is_empty() && !is_value(name)) {
            let _ = writeln!(self.q.text, "#undef {name}");
        }
    }

    fn c_name(&self, name: &str) -> String {
        match (self.keyword)(name) {
            Some(keyword) => format!("{keyword} {name}"),
            None => name.to_owned(),
        }
    }

    fn record(&mut self, name: &str, place: &Place) {
        let Some(record) = self.surface.records.get(name) else { return };
        let Place { base, member, .. } = place;
        if !place.anonymous {
            let ty = match member.is_empty() {
                true => base.clone(),
                false => format!("__typeof__((({base} *)0)->{member})"),
            };
            self.ask(&format!("sizeof({ty}) == {}", record.size));
            self.ask(&format!("NVABI_ALIGN({ty}) == {}", record.align));
        }
        for field in record.fields.iter() {
            self.field(name, record, field, place);
        }
    }

    fn field(&mut self, name: &str, record: &Record, field: &Field, place: &Place) {
        let (target, dimensions) = split_array(&field.canonical);
        let nested = target.starts_with(&format!("{name}::"));
        let offset = place.offset + field.offset;
        if field.name.is_empty() {
            if nested {
                let (base, member) = (place.base.clone(), place.member.clone());
                self.record(target, &Place { base, member, offset, anonymous: true });
            }
            return;
        }
        let base = &place.base;
        let dot = if place.member.is_empty() { "" } else { "." };
        let member = format!("{}{dot}{}", place.member, field.name);
        if let Some(bits) = field.bits {
            let bits = (offset * 8 + bits.bit_offset, bits.bit_width);
            self.probe(name, record, &member, place, bits);
            return;
        }
        self.ask(&format!("offsetof({base}, {member}) == {offset}"));
        let value = format!("(({base} *)0)->{member}");
        if !field.canonical.ends_with("[]") {
            self.ask(&format!("sizeof({value}) == {}", field.size));
        }
        let qualified = field.ty.contains("const ") || field.ty.contains("volatile ");
        if is_integer(target) && !qualified && !field.canonical.ends_with("[]") {
            self.ask(&format!("NVABI_SAME(__typeof__({value}), __typeof__({}))", field.canonical));
        }
        if nested && self.surface.records.contains_key(target) {
            let member = format!("{member}{}", "[0]".repeat(dimensions.len()));
            let base = base.clone();
            self.record(target, &Place { base, member, offset, anonymous: false });
        }
    }

    fn probe(
        &mut self,
        name: &str,
        record: &Record,
        member: &str,
        place: &Place,
        bits: (u64, u64),
    ) {
        let number = self.q.probes.len();
        let magic = format!("nvabi-bits-{number:05}");
        // Within an unnamed member the outermost record is the one that has a name.
        let outer = match place.member.is_empty() && !place.anonymous {
            true => record,
            false => {
                let name = name.split("::").next().unwrap_or_default();
                self.surface.records.get(name).unwrap_or(record)
            }
        };
        let _ = writeln!(
            self.q.text,
            "extern const struct nvabi_probe_{number} {{ char magic[16]; {} value; }} nvabi_value_{number};\n\
             const struct nvabi_probe_{number} nvabi_value_{number} = {{ \"{magic}\", {{ .{member} = -1 }} }};",
            place.base,
        );
        self.q.count += 1;
        self.q.probes.push(Probe {
            what: format!("{name}.{member}"),
            magic,
            align: outer.align,
            size: outer.size,
            bits,
        });
    }

    fn enums(&mut self) {
        for (name, e) in &self.surface.enums {
            if !name.contains("::") {
                let ty = self.c_name(name);
                self.ask(&format!("sizeof({ty}) == {}", e.size));
            }
            for (variant, value) in &e.variants {
                self.ask(&format!("{variant} == {}", literal(*value)));
            }
        }
    }

    fn values(&mut self) {
        for (name, constant) in &self.surface.constants {
            self.ask(&format!("({name}) == {}", literal(constant.value)));
        }
        for (name, range) in &self.surface.bit_ranges {
            self.ask(&format!("(1 ? {name}) == {} && (0 ? {name}) == {}", range.high, range.low));
        }
        for (name, alias) in self.surface.aliases.iter().filter(|(_, alias)| alias.size > 0) {
            self.ask(&format!("sizeof({name}) == {}", alias.size));
            if is_integer(split_array(&alias.ty).0) {
                self.ask(&format!("NVABI_SAME({name}, __typeof__({}))", alias.ty));
            }
        }
    }
}

fn is_integer(canonical: &str) -> bool {
    let words = ["unsigned", "signed", "char", "short", "int", "long", "float", "double"];
    canonical.split(' ').all(|word| words.contains(&word))
}

/// C has no negative literals, and the type of one decides how it compares.
fn literal(value: i128) -> String {
    match value {
        0.. if value > i128::from(i64::MAX) => format!("{value}ULL"),
        0.. => value.to_string(),
        _ if value == i128::from(i64::MIN) => "(-9223372036854775807LL - 1)".into(),
        _ => format!("({value}LL)"),
    }
}

/// Names that the text declares as tags with a body.
pub(crate) fn tags<'t>(texts: impl Iterator<Item = &'t str>) -> BTreeMap<String, &'static str> {
    let mut tags = BTreeMap::new();
    for text in texts {
        let mut words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "_{;".contains(c)));
        let mut last = ["", ""];
        for word in words.by_ref().flat_map(split_brace).filter(|word| !word.is_empty()) {
            if word == "{" {
                for keyword in ["struct", "union", "enum"] {
                    if last[0] == keyword {
                        tags.insert(last[1].to_owned(), keyword);
                    }
                }
            }
            last = [last[1], word];
        }
    }
    tags
}

fn split_brace(word: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = word;
    while let Some(at) = rest.find(['{', ';']) {
        parts.push(&rest[..at]);
        parts.push(&rest[at..=at]);
        rest = &rest[at + 1..];
    }
    parts.push(rest);
    parts
}

/// How the headers are found.
pub(crate) struct Unit<'a> {
    pub(crate) name: &'a str,
    /// Where the tree was written to.
    pub(crate) root: &'a Path,
    pub(crate) headers: &'a [String],
    pub(crate) include: &'a [String],
    pub(crate) defines: &'a [String],
    pub(crate) prelude: &'a str,
    pub(crate) language: &'a str,
}

/// The text that includes the unit's headers.
pub(crate) fn includes(unit: &Unit<'_>) -> String {
    // The kernel's headers bring the integers of <stdint.h>.
    let mut text = format!("#include <stdint.h>\n{}\n", unit.prelude);
    for header in unit.headers {
        let _ = writeln!(text, "#include \"{}\"", unit.root.join(header).display());
    }
    text
}

pub(crate) fn arguments(unit: &Unit<'_>) -> Vec<String> {
    let defines = unit.defines.iter().map(|define| format!("-D{define}"));
    let include =
        unit.include.iter().map(|folder| format!("-I{}", unit.root.join(folder).display()));
    defines.chain(include).collect()
}

/// Stands in for the system's `drm/drm.h` where that is not installed.
const DRM: &str = "#pragma once
#include <sys/ioctl.h>
#define DRM_COMMAND_BASE 0x40
#define DRM_IO(nr) _IO('d', nr)
#define DRM_IOR(nr, type) _IOR('d', nr, type)
#define DRM_IOW(nr, type) _IOW('d', nr, type)
#define DRM_IOWR(nr, type) _IOWR('d', nr, type)
";

/// Writes the stand-ins and gives the arguments that find them last.
pub(crate) fn stand_ins(folder: &Path) -> [String; 2] {
    let root = folder.join("stand-ins");
    fs::create_dir_all(root.join("drm")).unwrap();
    fs::write(root.join("drm/drm.h"), DRM).unwrap();
    ["-idirafter".into(), root.display().to_string()]
}

/// Every disagreement of the compiler with the questions, in its own words.
pub(crate) fn disagreements(
    compiler: &Compiler,
    unit: &Unit<'_>,
    questions: &Questions,
    folder: &Path,
) -> Vec<String> {
    let stem = format!("{}-{}-{}", unit.name, compiler.program, &compiler.target[..3]);
    let source: PathBuf = folder.join(format!("{stem}.c"));
    let object = folder.join(format!("{stem}.o"));
    fs::write(&source, format!("{}{}", includes(unit), questions.text)).unwrap();
    let mut command = Command::new(compiler.program);
    command.args(compiler.args).args(arguments(unit)).args(stand_ins(folder));
    let standard = if unit.language == "c++" { "-std=gnu++20" } else { "-std=gnu11" };
    command.args(["-x", unit.language, standard, "-w", "-O0", "-c"]);
    // One line for each error, at the assertion and not at the macro that spells it.
    command.args(match compiler.program.contains("clang") {
        true => ["-ferror-limit=0", "-fno-caret-diagnostics"],
        false => ["-ftrack-macro-expansion=0", "-fno-diagnostics-show-caret"],
    });
    command.arg(&source).arg("-o").arg(&object);
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let mut found: Vec<String> =
        told.lines().filter(|line| line.contains("error")).map(|l| explain(l, &source)).collect();
    if !output.status.success() && found.is_empty() {
        found.push(told.into_owned());
    }
    if found.is_empty() {
        let object = fs::read(&object).unwrap();
        found.extend(questions.probes.iter().filter_map(|probe| check(probe, &object)));
    }
    found
}

/// The compiler's line with the assertion it is about.
fn explain(line: &str, source: &Path) -> String {
    let number = line.rsplit(".c:").next().and_then(|rest| rest.split(':').next()?.parse().ok());
    let text = fs::read_to_string(source).unwrap_or_default();
    let asked = number.and_then(|n: usize| text.lines().nth(n - 1)).unwrap_or_default();
    format!("{line} | {asked}")
}

/// Compares the bits that are set in the probe's object with those of the facts.
fn check(probe: &Probe, object: &[u8]) -> Option<String> {
    let magic = probe.magic.as_bytes();
    let Some(at) = object.windows(16).position(|window| window == magic) else {
        return Some(format!("{}: no object", probe.what));
    };
    let start = at + 16usize.next_multiple_of(probe.align as usize);
    let bytes = &object[start..start + probe.size as usize];
    let set: Vec<u64> =
        (0..probe.size * 8).filter(|bit| bytes[*bit as usize / 8] >> (bit % 8) & 1 == 1).collect();
    let wanted: Vec<u64> = (probe.bits.0..probe.bits.0 + probe.bits.1).collect();
    (set != wanted).then(|| format!("{}: bits {set:?} are set, not {wanted:?}", probe.what))
}
