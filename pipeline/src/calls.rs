//! Which parameters a call takes: from control command and class to the struct that goes with it.
//!
//! Three places in a driver's sources say so, each in its own way. The headers, which NVIDIA's tool
//! FINN writes, note beside a command's number which interface and which params struct it was made
//! of. The tables of exported methods, against which the driver checks a caller's size, pair
//! numbers with sizes. The resource list pairs classes with their allocation parameters. A fourth,
//! the code that copies what commands point to, has their pointers: see [`embedded`].
//!
//! Each text is parsed on its own, so that a caller can keep the results by content over many tags;
//! [`join`] then puts those of one tag together with its facts. Nothing here reads files.
//!
//! Over the 193 tags from 515.43.04 to 595.45.04 what FINN says of a command never differs from the
//! table. What it says of classes does: see [`Check`].

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use crate::model::{
    self, Access, CallKind, CallParams, Caller, Embedded, ParamSource, Source, Surface,
};

pub mod embedded;

const HEADERS: &str = "src/common/sdk/nvidia/inc";
const EXPORTED: &str = "src/nvidia/generated";
const RESOURCES: &str = "src/nvidia/src/kernel/rmapi";
const FLAGS: &str = "src/nvidia/inc/kernel/rmapi/control.h";
const CONVERTED: &str = "src/nvidia/interface/deprecated/rmapi_deprecated_control.c";

/// What a file of the driver is for this module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// For [`parse_header`].
    Header,
    /// For [`parse_exported`].
    Exported,
    /// For [`parse_resources`].
    Resources,
    /// For [`embedded::parse`].
    Embedded,
    /// For [`parse_flags`].
    Flags,
    /// For [`parse_converted`].
    Converted,
}

/// What to do with the file at this path of the driver's tree; `None` for nothing.
pub fn part(path: &str) -> Option<Part> {
    let below = |folder: &str| path.strip_prefix(folder)?.strip_prefix('/');
    if below(HEADERS).is_some_and(|rest| rest.ends_with(".h")) {
        Some(Part::Header)
    } else if below(EXPORTED).is_some_and(|rest| rest.ends_with("_nvoc.c")) {
        Some(Part::Exported)
    } else if path == FLAGS {
        Some(Part::Flags)
    } else if path == CONVERTED {
        Some(Part::Converted)
    } else {
        match below(RESOURCES)? {
            "resource_list.h" => Some(Part::Resources),
            "embedded_param_copy.c" => Some(Part::Embedded),
            _ => None,
        }
    }
}

/// A macro that may be a command or a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Define {
    /// The macro's name.
    pub name: String,
    /// Counted from 1.
    pub line: u32,
    /// What its text says it is.
    pub meaning: Meaning,
}

/// What a macro's text says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// Made of a FINN interface and of this struct's message id, or of a bare number.
    Command(Option<String>),
    /// Made of this struct's message id, or the number in the header's name.
    Class(Option<String>),
    /// Another macro's name.
    Same(String),
}

/// Commands, classes and other names for them, as far as one header tells.
///
/// The path tells which number is a class's: `class/cl2080.h` is that of class 0x2080.
pub fn parse_header(path: &str, text: &str) -> Vec<Define> {
    let class = class_of(path);
    let lines = text.lines().zip(1..);
    lines
        .filter_map(|(text, line)| {
            let (name, body) = define(text)?;
            let meaning = meaning(name, body, class)?;
            Some(Define { name: name.to_owned(), line, meaning })
        })
        .collect()
}

/// The class that a header such as `class/cl2080.h` or `class/cl2080_notification.h` belongs to.
fn class_of(path: &str) -> Option<u64> {
    let (folder, file) = path.rsplit_once('/')?;
    let digits = file.strip_prefix("cl")?.get(..4)?;
    folder.ends_with("class").then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

/// Name and text of an object-like macro.
fn define(line: &str) -> Option<(&str, &str)> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("define")?;
    let rest = rest.strip_prefix([' ', '\t'])?.trim_start();
    let (name, body) = rest.split_at(rest.find(|c| !is_word(c)).unwrap_or(rest.len()));
    (!name.is_empty() && !body.starts_with('(')).then_some((name, body.trim()))
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn meaning(name: &str, body: &str, class: Option<u64>) -> Option<Meaning> {
    if let Some((_, rest)) = body.split_once("finn: Evaluated from \"") {
        return finn(rest.split('"').next()?);
    }
    let body = body.split("//").next()?.split("/*").next()?.trim();
    let body = body.strip_prefix('(').and_then(|b| b.strip_suffix(')')).unwrap_or(body).trim();
    // Members of a class's interface can have its number as well, above all that of class 0.
    let is_member = name.ends_with("_MESSAGE_ID") || name.contains("_NOTIFIERS_");
    let may_be_class = class.is_some() && !is_member;
    if may_be_class && number(body) == class {
        return Some(Meaning::Class(None));
    }
    let is_name = body.chars().all(is_word) && body.starts_with(|c: char| !c.is_ascii_digit());
    (is_name && (may_be_class || name.contains("_CTRL_"))).then(|| Meaning::Same(body.to_owned()))
}

/// Reads what a number was made of: `(FINN_…_INTERFACE_ID << 8) | …_MESSAGE_ID`.
fn finn(expression: &str) -> Option<Meaning> {
    let mut words = expression.split(|c| !is_word(c));
    let message = words.clone().find_map(|word| word.strip_suffix("_MESSAGE_ID"));
    let message = message.map(str::to_owned);
    if words.any(|word| word.starts_with("FINN_") && word.ends_with("_INTERFACE_ID")) {
        return Some(Meaning::Command(message));
    }
    let alone = expression.chars().all(is_word);
    message.filter(|_| alone).map(|message| Meaning::Class(Some(message)))
}

/// A literal such as `0x2080U`.
fn number(text: &str) -> Option<u64> {
    model::number(text.trim_end_matches(['u', 'U', 'l', 'L']))
}

/// A method that the driver exports as a control command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Method {
    /// The command's number.
    pub id: u64,
    /// The type whose size the driver asks for; `None` where it takes no parameters.
    pub params: Option<String>,
    /// What the driver checks of callers: see [`Flags`].
    pub flags: u64,
    /// Bits of the access rights that a caller needs.
    pub rights: u64,
    /// The driver's name for it.
    pub function: String,
    /// Of the number, counted from 1.
    pub line: u32,
}

/// The exported methods in a generated source file.
pub fn parse_exported(text: &str) -> Vec<Method> {
    const ID: &str = "/*methodId=*/";
    let (mut methods, mut line, mut counted) = (Vec::new(), 1, 0);
    for (at, _) in text.match_indices(ID) {
        let before = &text[counted..at];
        line += before.bytes().filter(|b| *b == b'\n').count() as u32;
        counted = at;
        let entry = &text[at + ID.len()..];
        let entry = entry.find(ID).map_or(entry, |end| &entry[..end]);
        methods.extend(method(before, entry, line));
    }
    methods
}

/// Reads an entry: what is before its number, and the rest.
fn method(before: &str, entry: &str, line: u32) -> Option<Method> {
    let value = |label: &str| number(before.rsplit_once(label)?.1.split_once(',')?.0.trim());
    let (flags, rights) = (value("/*flags=*/")?, value("/*accessRight=*/")?);
    let (id, _) = entry.split_once(',')?;
    let (_, size) = entry.split_once("/*paramSize=*/")?;
    let size = size.trim_start();
    let params = match size.strip_prefix("sizeof(") {
        Some(of) => Some(of.split_once(')')?.0.trim().to_owned()),
        None if size.starts_with('0') => None,
        None => return None,
    };
    let function = entry.split_once("/*func=*/").and_then(|(_, f)| f.split('"').nth(1));
    let function = function.unwrap_or_default().to_owned();
    Some(Method { id: number(id.trim())?, params, flags, rights, function, line })
}

/// The bits of a method's flags that say who may call it; they move between branches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags {
    user: u64,
    root: u64,
    internal: u64,
    /// Since 555.
    test_only: u64,
}

/// The flags that the driver's header defines.
pub fn parse_flags(text: &str) -> Flags {
    let mut flags = Flags::default();
    for (name, body) in text.lines().filter_map(define) {
        let bit = match name {
            "RMCTRL_FLAGS_NON_PRIVILEGED" => &mut flags.user,
            "RMCTRL_FLAGS_PRIVILEGED" => &mut flags.root,
            "RMCTRL_FLAGS_INTERNAL" => &mut flags.internal,
            "RMCTRL_FLAGS_RM_TEST_ONLY_CODE" => &mut flags.test_only,
            _ => continue,
        };
        *bit = body.split_whitespace().next().and_then(number).unwrap_or_default();
    }
    flags
}

impl Flags {
    /// Whether they say whom a method is for: the header defined all of them.
    fn tell(&self) -> bool {
        ![self.user, self.root, self.internal].contains(&0)
    }

    /// Whom a method with these flags is for.
    ///
    /// The checks and their order are those of `rmapi/control.c`: what is for nobody else is for
    /// the kernel.
    fn access(&self, of: u64, rights: Vec<String>) -> Access {
        let caller = if of & self.internal != 0 {
            Caller::Internal
        } else if of & self.root != 0 {
            Caller::Root
        } else if of & self.user != 0 {
            Caller::User
        } else {
            Caller::Kernel
        };
        Access { caller, rights, test_only: of & self.test_only != 0 }
    }
}

/// The commands that a driver turns into newer ones before it looks for them in its tables.
pub fn parse_converted(text: &str) -> Vec<String> {
    let entries = text.lines().filter_map(|line| line.trim_start().strip_prefix('{'));
    let names = entries.filter_map(|entry| Some(entry.split_once(',')?.0.trim()));
    names.filter(|name| name.contains("_CTRL_CMD_")).map(str::to_owned).collect()
}

/// A class that can be allocated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Resource {
    /// The name callers know.
    pub class: String,
    /// The driver's own class behind it.
    pub internal: String,
    /// Driver classes under which it can be allocated; empty for any and for none.
    pub parents: Vec<String>,
    /// What is passed.
    pub params: Params,
    /// Such as `RS_FLAGS_ALLOC_PRIVILEGED`.
    pub flags: Vec<String>,
    /// The preprocessor's condition it stands under.
    pub condition: Option<String>,
    /// Counted from 1.
    pub line: u32,
}

impl Resource {
    /// Whom it can be allocated by, as `rmapi/alloc_free.c` checks it; before 530 the
    /// constructors did.
    fn access(&self) -> Option<Access> {
        let is = |name: &str| self.flags.iter().any(|flag| flag == name);
        let caller = if is("RS_FLAGS_INTERNAL_ONLY") {
            Caller::Internal
        } else if is("RS_FLAGS_ALLOC_KERNEL_PRIVILEGED") {
            Caller::Kernel
        } else if is("RS_FLAGS_ALLOC_PRIVILEGED") {
            Caller::Root
        } else if is("RS_FLAGS_ALLOC_NON_PRIVILEGED") {
            Caller::User
        } else {
            return None;
        };
        Some(Access { caller, rights: Vec::new(), test_only: false })
    }
}

/// The allocation parameters of a class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Params {
    /// Nothing is passed.
    None,
    /// This type or nothing.
    Optional(String),
    /// This type.
    Required(String),
    /// Something this module does not understand.
    Unknown,
}

impl Params {
    fn read(text: &str) -> Self {
        let of = |name| text.strip_prefix(name)?.trim().strip_prefix('(')?.strip_suffix(')');
        if text == "RS_NONE" {
            Self::None
        } else if let Some(ty) = of("RS_OPTIONAL") {
            Self::Optional(ty.trim().to_owned())
        } else if let Some(ty) = of("RS_REQUIRED") {
            Self::Required(ty.trim().to_owned())
        } else {
            Self::Unknown
        }
    }

    fn ty(&self) -> Option<&str> {
        match self {
            Self::Optional(ty) | Self::Required(ty) => Some(ty),
            Self::None | Self::Unknown => None,
        }
    }
}

/// The entries of the resource list.
pub fn parse_resources(text: &str) -> Vec<Resource> {
    let text = without_comments(text);
    let (mut resources, mut conditions) = (Vec::new(), Vec::<String>::new());
    let mut lines = text.lines().zip(1u32..);
    while let Some((line, at)) = lines.next() {
        let line = line.trim();
        if let Some(directive) = line.strip_prefix('#') {
            conditional(directive.trim(), &mut conditions);
        } else if let Some(start) = line.strip_prefix("RS_ENTRY") {
            let mut entry = start.to_owned();
            while !closed(&entry) {
                let Some((more, _)) = lines.next() else { break };
                entry.push_str(more);
            }
            let condition = (!conditions.is_empty()).then(|| conditions.join(" && "));
            resources.push(resource(&entry, condition, at));
        }
    }
    resources
}

fn closed(entry: &str) -> bool {
    entry.contains('(') && entry.matches('(').count() <= entry.matches(')').count()
}

/// Follows `#if`, `#else` and `#endif`.
fn conditional(directive: &str, open: &mut Vec<String>) {
    let (word, rest) = directive.split_once([' ', '\t']).unwrap_or((directive, ""));
    match word {
        "if" => open.push(rest.trim().to_owned()),
        "ifdef" => open.push(format!("defined({})", rest.trim())),
        "ifndef" => open.push(format!("!defined({})", rest.trim())),
        "else" | "elif" => {
            let before = open.pop().unwrap_or_default();
            let also = if word == "elif" { format!(" && {}", rest.trim()) } else { String::new() };
            open.push(format!("!({before}){also}"));
        }
        "endif" => drop(open.pop()),
        _ => {}
    }
}

fn resource(entry: &str, condition: Option<String>, line: u32) -> Resource {
    let inner = entry.trim().strip_prefix('(').unwrap_or(entry);
    let inner = inner.rfind(')').map_or(inner, |end| &inner[..end]);
    let arguments = arguments(inner);
    let argument = |i: usize| arguments.get(i).copied().unwrap_or_default();
    let parents = argument(3).split("classId(").skip(1).filter_map(|p| p.split(')').next());
    let flags = argument(6).split('|').map(str::trim).filter(|flag| *flag != "RS_FLAGS_NONE");
    // Another number of arguments is another macro, whose parameters may stand elsewhere.
    let known = arguments.len() == 8;
    Resource {
        class: argument(0).to_owned(),
        internal: argument(1).to_owned(),
        parents: parents.map(|p| p.trim().to_owned()).collect(),
        params: if known { Params::read(argument(4)) } else { Params::Unknown },
        flags: flags.filter(|flag| !flag.is_empty()).map(str::to_owned).collect(),
        condition,
        line,
    }
}

/// Splits at the commas that stand in no parentheses.
fn arguments(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0usize, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(text[start..].trim());
    found
}

/// Where the next comment starts. Looking for either kind by itself would go through the whole rest
/// for each comment of the other.
fn comment(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    memchr::memchr_iter(b'/', bytes).find(|at| matches!(bytes.get(at + 1), Some(b'/' | b'*')))
}

/// The same text with its comments gone and its lines where they were.
fn without_comments(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = comment(rest) {
        out.push_str(&rest[..at]);
        let block = rest[at..].starts_with("/*");
        let end = match block {
            true => rest[at + 2..].find("*/").map(|end| at + 2 + end + 2),
            false => rest[at..].find('\n').map(|end| at + end),
        };
        let (comment, after) = rest[at..].split_at(end.unwrap_or(rest.len()) - at);
        out.extend(comment.chars().filter(|c| *c == '\n'));
        out.push(' ');
        rest = after;
    }
    out.push_str(rest);
    out
}

/// How the parameters are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Evidence {
    /// The header says of which struct's message id the number was made.
    Finn,
    /// The driver's table of exported methods.
    Table,
    /// A type has the command's name. Among the commands of ten tags that FINN tells nothing of and
    /// the table does, that type is the table's in 437 cases, and in 4 (one command) another of the
    /// same size. A struct of the same header with the command's number as its message id is no
    /// evidence: two in seven were another command's.
    Name,
    /// A command that does nothing: the driver returns before it looks at any parameters.
    Null,
    /// The driver's resource list.
    ResourceList,
}

/// What a source says that is not the one in [`Call::evidence`]: for commands the table of
/// exported methods, or, where that is the evidence, FINN or the name; for classes FINN.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Check {
    /// Nothing: another part of the driver takes the command (firmware, display), or none does now.
    Silent,
    /// The same type.
    Same,
    /// Another typedef of the same type.
    Alias(String),
    /// Another type, or `None` for no parameters. Between FINN and the table the table is believed
    /// when the sizes differ, since the driver compares the caller's size with it; for classes the
    /// resource list is, for the same reason. There it happens: FINN gives the root class a struct
    /// where the list has a handle, and the display classes one where the list has none.
    Differs(Option<String>),
}

/// A call and what it takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Call {
    /// Command or class.
    pub kind: CallKind,
    /// The constant's name.
    pub name: String,
    /// Its value. It is no key: two commands of one tag can have the same.
    pub number: u64,
    /// The type passed; `None` when none is.
    pub params: Option<String>,
    /// Whether the parameters may be left out.
    pub optional: bool,
    /// Where the constant is defined.
    pub source: Source,
    /// How it is known.
    pub evidence: Evidence,
    /// What another source says.
    pub check: Check,
    /// The call that this is another name of.
    pub same_as: Option<String>,
    /// For a class, what the resource list has besides.
    pub resource: Option<Resource>,
    /// Whom the driver lets make it.
    pub access: Option<Access>,
    /// Of a command: the pointers that the driver follows itself.
    pub pointers: Vec<Embedded>,
}

impl Call {
    /// What the model keeps of it, by its name.
    pub fn fact(&self) -> (String, model::Call) {
        let how = match self.evidence {
            Evidence::Finn => ParamSource::Finn,
            Evidence::Table => ParamSource::Table,
            Evidence::Name => ParamSource::Name,
            Evidence::Null => ParamSource::Null,
            Evidence::ResourceList => ParamSource::List,
        };
        let differs = match &self.check {
            Check::Differs(ty) => Some(ty.clone().unwrap_or_else(|| "none".to_owned())),
            _ => None,
        };
        let takes = CallParams {
            optional: self.optional,
            checked: matches!(self.check, Check::Same | Check::Alias(_)),
            differs,
            same_as: self.same_as.clone(),
            access: self.access.clone(),
            pointers: self.pointers.clone(),
            ..CallParams::new(self.kind, how, self.params.clone())
        };
        (self.name.clone(), model::Call { takes, source: self.source.clone() })
    }
}

impl Unmapped {
    /// What the model keeps of it, by its name; nothing when no header names the call.
    pub fn fact(&self) -> Option<(String, model::Call)> {
        let (how, params) = match &self.why {
            Why::NoEvidence => (ParamSource::NoEvidence, None),
            Why::UnknownType(ty) => (ParamSource::NoType, Some(ty)),
            Why::NoConstant => (ParamSource::NoConstant, None),
            Why::NotAllocatable(ty) => (ParamSource::NoResource, ty.as_ref()),
            Why::NoName(_) | Why::Unreadable => return None,
        };
        let access = self.access.clone();
        let takes = CallParams { access, ..CallParams::new(self.kind, how, params.cloned()) };
        Some((self.name.clone(), model::Call { takes, source: self.source.clone() }))
    }
}

/// What cannot be mapped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unmapped {
    /// Command or class.
    pub kind: CallKind,
    /// The constant's name; for [`Why::NoName`] the driver's function.
    pub name: String,
    /// Its value, where known.
    pub number: Option<u64>,
    /// What is missing.
    pub why: Why,
    /// Of a command: whom the driver lets make it, where its sources tell.
    pub access: Option<Access>,
    /// The path and line that it was read from.
    pub source: Source,
}

/// Why a call is not mapped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// A command made of a bare number, in no table, and no type has its name. Of such commands
    /// that are in a table two thirds take no parameters, too few to say so of these.
    NoEvidence,
    /// The type is not among the facts.
    UnknownType(String),
    /// The name is not among the facts' constants.
    NoConstant,
    /// A class not in the resource list, with the parameters that FINN gives it.
    NotAllocatable(Option<String>),
    /// A method with these parameters whose command no header names.
    NoName(Option<String>),
    /// An entry of the resource list in a form this module does not know.
    Unreadable,
}

/// All calls of one tag.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Calls {
    /// Sorted by kind and name.
    pub calls: Vec<Call>,
    /// Sorted by kind and name.
    pub unmapped: Vec<Unmapped>,
}

/// The files of one tag: path and text.
#[derive(Debug, Clone, Default)]
pub struct Texts<'a> {
    /// For [`parse_header`].
    pub headers: Vec<(&'a str, &'a str)>,
    /// For [`parse_resources`]; without one, classes are known from FINN alone.
    pub resource_list: Option<(&'a str, &'a str)>,
    /// For [`parse_exported`].
    pub exported: Vec<(&'a str, &'a str)>,
    /// For [`embedded::parse`].
    pub embedded: Option<&'a str>,
    /// For [`parse_flags`]; without it, nobody knows who may make a command.
    pub flags: Option<&'a str>,
    /// For [`parse_converted`]; without it, nobody knows whether a command in no table is answered.
    pub converted: Option<&'a str>,
}

/// The files of one tag: path and what was parsed.
#[derive(Debug, Clone, Default)]
pub struct Parsed<'a> {
    /// From [`parse_header`].
    pub headers: Vec<(&'a str, &'a [Define])>,
    /// From [`parse_resources`].
    pub resource_list: Option<(&'a str, &'a [Resource])>,
    /// From [`parse_exported`].
    pub exported: Vec<(&'a str, &'a [Method])>,
    /// From [`embedded::parse`].
    pub embedded: &'a [embedded::Command],
    /// From [`parse_flags`].
    pub flags: Flags,
    /// From [`parse_converted`].
    pub converted: Option<&'a [String]>,
}

/// Parses the files of one tag and joins them with the facts of its resource manager.
pub fn calls(texts: &Texts<'_>, surface: &Surface) -> Calls {
    let headers: Vec<_> =
        texts.headers.iter().map(|(path, text)| (*path, parse_header(path, text))).collect();
    let exported: Vec<_> =
        texts.exported.iter().map(|(path, text)| (*path, parse_exported(text))).collect();
    let list = texts.resource_list.map(|(path, text)| (path, parse_resources(text)));
    let embedded = texts.embedded.map(embedded::parse).unwrap_or_default();
    let converted = texts.converted.map(parse_converted);
    let parsed = Parsed {
        headers: headers.iter().map(|(path, found)| (*path, found.as_slice())).collect(),
        resource_list: list.as_ref().map(|(path, found)| (*path, found.as_slice())),
        exported: exported.iter().map(|(path, found)| (*path, found.as_slice())).collect(),
        embedded: &embedded,
        flags: texts.flags.map(parse_flags).unwrap_or_default(),
        converted: converted.as_deref(),
    };
    join(&parsed, surface)
}

/// Puts together what the files of one tag say, with the facts that its headers have.
pub fn join(parsed: &Parsed<'_>, surface: &Surface) -> Calls {
    let mut join = Join::new(parsed, surface);
    join.commands();
    join.methods(parsed);
    match parsed.resource_list {
        Some((path, resources)) => join.resources(path, resources),
        None => join.classes_by_finn(),
    }
    join.other_names();
    let mut calls = join.calls;
    calls.calls.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    calls.unmapped.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    calls
}

struct Join<'a> {
    surface: &'a Surface,
    /// By name; where two headers define one, that which the facts were read from.
    defines: BTreeMap<&'a str, (&'a str, &'a Define)>,
    /// By number; the tables of several driver classes can have the same method.
    table: HashMap<u64, Vec<Option<&'a str>>>,
    /// By number: whom the tables let make a command; `None` where they do not tell.
    access: Option<HashMap<u64, Access>>,
    /// Commands that are turned into others before the tables are looked at.
    converted: Option<&'a [String]>,
    /// Classes whose commands the driver hands to the firmware, whatever they are.
    handed_on: HashSet<u64>,
    pointers: HashMap<&'a str, &'a [Embedded]>,
    calls: Calls,
}

impl<'a> Join<'a> {
    fn new(parsed: &Parsed<'a>, surface: &'a Surface) -> Self {
        let mut defines: BTreeMap<&str, (&str, &Define)> = BTreeMap::new();
        for (path, found) in &parsed.headers {
            for define in *found {
                match defines.entry(&define.name) {
                    Entry::Vacant(entry) => drop(entry.insert((path, define))),
                    Entry::Occupied(mut entry) => {
                        let known = constant(surface, &define.name).map(|(_, source)| source);
                        if known.is_some_and(|s| (&*s.path, s.line) == (*path, define.line)) {
                            entry.insert((path, define));
                        }
                    }
                }
            }
        }
        let mut table: HashMap<u64, Vec<Option<&str>>> = HashMap::new();
        let mut access = parsed.flags.tell().then(HashMap::new);
        let rights = rights(surface);
        for method in parsed.exported.iter().flat_map(|(_, methods)| *methods) {
            if let Some(access) = &mut access {
                let needed = rights.iter().filter(|(bit, _)| method.rights & bit != 0);
                let rights = needed.map(|(_, name)| (*name).to_owned()).collect();
                access.entry(method.id).or_insert(parsed.flags.access(method.flags, rights));
            }
            let types = table.entry(method.id).or_default();
            if !types.contains(&method.params.as_deref()) {
                types.push(method.params.as_deref());
            }
        }
        let resources = parsed.resource_list.map_or(&[][..], |(_, resources)| resources);
        let handed_on = resources.iter().filter(|it| it.internal.starts_with("BinaryApi"));
        let handed_on = handed_on.filter_map(|it| Some(constant(surface, &it.class)?.0)).collect();
        let embedded = parsed.embedded.iter();
        let pointers = embedded.map(|of| (of.name.as_str(), of.pointers.as_slice())).collect();
        let converted = parsed.converted;
        let calls = Calls::default();
        Self { surface, defines, table, access, converted, handed_on, pointers, calls }
    }

    fn commands(&mut self) {
        let mut by_number: BTreeMap<u64, Vec<Command<'a>>> = BTreeMap::new();
        for (name, (path, define)) in self.defines.clone() {
            let Meaning::Command(message) = &define.meaning else { continue };
            match constant(self.surface, name) {
                Some((number, source)) => {
                    let message = message.as_deref().map(|m| unwrapped(self.surface, m));
                    let command = Command { name, number, source, message };
                    by_number.entry(number).or_default().push(command);
                }
                None => {
                    let source = Source { path: path.into(), line: define.line };
                    self.miss(CallKind::Command, name, None, Why::NoConstant, source);
                }
            }
        }
        for commands in by_number.values() {
            for command in commands {
                // Of two commands with one number the table means the one that FINN gives its type.
                let meant = |other: &Command<'_>| self.in_table(other.number, other.message);
                let another = commands.iter().any(|c| c.name != command.name && meant(c));
                let ours = commands.len() == 1 || !another || meant(command);
                self.command(command, ours);
            }
        }
    }

    fn in_table(&self, number: u64, ty: Option<&str>) -> bool {
        let types = self.table.get(&number).map_or(&[][..], Vec::as_slice);
        ty.is_some_and(|ty| types.iter().flatten().any(|other| same(self.surface, ty, other)))
    }

    fn command(&mut self, command: &Command<'a>, ours: bool) {
        let Command { name, number, source, message } = *command;
        let table = self.table.get(&number).filter(|_| ours).map_or(&[][..], Vec::as_slice);
        let found = weigh(self.surface, name, number, message, table);
        match found.and_then(|found| known(self.surface, found)) {
            Ok(found) => self.hit(CallKind::Command, name, (number, source), found),
            Err(why) => self.miss(CallKind::Command, name, Some(number), why, source.clone()),
        }
    }

    /// Methods whose number no command has.
    fn methods(&mut self, parsed: &Parsed<'_>) {
        let calls = &self.calls;
        let commands = calls.calls.iter().map(|call| call.number);
        let mut seen: HashSet<u64> =
            commands.chain(calls.unmapped.iter().filter_map(|u| u.number)).collect();
        for (path, methods) in &parsed.exported {
            for method in methods.iter() {
                if seen.insert(method.id) {
                    let source = Source { path: (*path).into(), line: method.line };
                    let why = Why::NoName(method.params.clone());
                    self.miss(CallKind::Command, &method.function, Some(method.id), why, source);
                }
            }
        }
    }

    fn resources(&mut self, path: &str, resources: &[Resource]) {
        let mut listed: HashMap<u64, &str> = HashMap::new();
        for resource in resources {
            match self.resource(resource) {
                Ok(number) => drop(listed.entry(number).or_insert(&resource.class)),
                Err(why) => {
                    let source = Source { path: path.into(), line: resource.line };
                    let number = constant(self.surface, &resource.class).map(|(number, _)| number);
                    self.miss(CallKind::Class, &resource.class, number, why, source);
                }
            }
        }
        let names: HashSet<&str> = resources.iter().map(|r| r.class.as_str()).collect();
        for (name, message) in self.classes() {
            if names.contains(name) {
                continue;
            }
            let Some((number, source)) = constant(self.surface, name) else { continue };
            match listed.get(&number) {
                Some(listed) => self.other_name(name, listed),
                None => {
                    let why = Why::NotAllocatable(message.map(str::to_owned));
                    self.miss(CallKind::Class, name, Some(number), why, source.clone());
                }
            }
        }
    }

    fn resource(&mut self, resource: &Resource) -> Result<u64, Why> {
        let surface = self.surface;
        let (number, source) = constant(surface, &resource.class).ok_or(Why::NoConstant)?;
        let params = match &resource.params {
            Params::Unknown => return Err(Why::Unreadable),
            params => params.ty().map(str::to_owned),
        };
        let finn = self.defines.get(resource.class.as_str()).and_then(|(_, d)| match &d.meaning {
            Meaning::Class(Some(message)) => Some(message.as_str()),
            _ => None,
        });
        let check = match finn {
            None => Check::Silent,
            Some(finn) => compared(surface, params.as_deref(), Some(finn)),
        };
        let found = known(surface, Found { params, evidence: Evidence::ResourceList, check })?;
        self.hit(CallKind::Class, &resource.class, (number, source), found);
        if let Some(call) = self.calls.calls.last_mut() {
            call.optional = matches!(resource.params, Params::Optional(_));
            call.access = resource.access();
            call.resource = Some(resource.clone());
        }
        Ok(number)
    }

    /// Classes that headers define, with their params as FINN has them.
    fn classes(&self) -> Vec<(&'a str, Option<&'a str>)> {
        let classes = self.defines.iter().filter_map(|(name, (_, define))| match &define.meaning {
            Meaning::Class(message) => Some((*name, message.as_deref())),
            _ => None,
        });
        classes.collect()
    }

    fn classes_by_finn(&mut self) {
        for (name, message) in self.classes() {
            let Some(constant) = constant(self.surface, name) else { continue };
            let Some(message) = message else { continue };
            let params = Some(message.to_owned());
            let found = Found { params, evidence: Evidence::Finn, check: Check::Silent };
            match known(self.surface, found) {
                Ok(found) => self.hit(CallKind::Class, name, constant, found),
                Err(why) => {
                    self.miss(CallKind::Class, name, Some(constant.0), why, constant.1.clone());
                }
            }
        }
    }

    /// Macros that stand for a command or class.
    fn other_names(&mut self) {
        let names: HashSet<String> = self.calls.calls.iter().map(|c| c.name.clone()).collect();
        let mut found = Vec::new();
        for (name, (_, define)) in &self.defines {
            let mut meaning = &define.meaning;
            // A chain that is longer goes in a circle.
            for _ in 0..8 {
                let Meaning::Same(next) = meaning else { break };
                if names.contains(next) {
                    found.push((*name, next.as_str()));
                    break;
                }
                let Some((_, define)) = self.defines.get(next.as_str()) else { break };
                meaning = &define.meaning;
            }
        }
        for (name, target) in found {
            if !names.contains(name) {
                self.other_name(name, target);
            }
        }
    }

    fn other_name(&mut self, name: &str, target: &str) {
        let Some(call) = self.calls.calls.iter().find(|call| call.name == target) else { return };
        let Some((number, source)) = constant(self.surface, name) else { return };
        // What the name stands for is read off its definition here; the compiler may see another.
        if number == call.number {
            let (name, source) = (name.to_owned(), source.clone());
            let call = Call { name, source, same_as: Some(target.to_owned()), ..call.clone() };
            self.calls.calls.push(call);
        }
    }

    /// Whom the driver lets make a command.
    fn access(&self, name: &str, number: u64) -> Option<Access> {
        let found = self.access.as_ref()?.get(&number);
        let nobody = || Access { caller: Caller::Nobody, rights: Vec::new(), test_only: false };
        found.cloned().or_else(|| self.is_refused(name, number).then(nobody))
    }

    /// Whether the driver answers a command that is in none of its tables with NV_ERR_NOT_SUPPORTED
    /// (`resControlLookup_IMPL`): nothing before them takes it, and the firmware does not get it.
    fn is_refused(&self, name: &str, number: u64) -> bool {
        /// RM_GSS_LEGACY_MASK: the firmware's own commands.
        const FIRMWARE: u64 = 0x8000;
        let is_taken = is_null_command(name, number)
            || number & FIRMWARE != 0
            || self.handed_on.contains(&(number >> 16));
        !is_taken && self.converted.is_some_and(|known| known.iter().all(|other| other != name))
    }

    fn hit(&mut self, kind: CallKind, name: &str, (number, source): (u64, &Source), found: Found) {
        let Found { params, evidence, check } = found;
        self.calls.calls.push(Call {
            kind,
            name: name.to_owned(),
            number,
            params,
            optional: false,
            source: source.clone(),
            evidence,
            check,
            same_as: None,
            access: match kind {
                CallKind::Command => self.access(name, number),
                CallKind::Class => None,
            },
            resource: None,
            pointers: self.pointers.get(name).map_or(Vec::new(), |pointers| pointers.to_vec()),
        });
    }

    fn miss(&mut self, kind: CallKind, name: &str, number: Option<u64>, why: Why, source: Source) {
        let access = match (kind, number, &why) {
            (_, _, Why::NoName(_)) | (CallKind::Class, ..) => None,
            (CallKind::Command, number, _) => number.and_then(|number| self.access(name, number)),
        };
        let name = name.to_owned();
        self.calls.unmapped.push(Unmapped { kind, name, number, why, access, source });
    }
}

/// The access rights that the headers number: each one's bit, and its name.
fn rights(surface: &Surface) -> Vec<(u64, &str)> {
    let rights = surface.constants.iter().filter_map(|(name, constant)| {
        let name = name.strip_prefix("RS_ACCESS_").filter(|name| *name != "COUNT")?;
        Some((1u64.checked_shl(constant.value.try_into().ok()?)?, name))
    });
    rights.collect()
}

/// Whether the driver answers a command before it looks at it: RMCTRL_IS_NULL_CMD, and its names.
fn is_null_command(name: &str, number: u64) -> bool {
    number & 0xffff == 0 || name.ends_with("_CTRL_CMD_NULL")
}

/// A command as its header has it.
struct Command<'a> {
    name: &'a str,
    number: u64,
    source: &'a Source,
    /// The struct whose message id is part of the number, or what it wraps.
    message: Option<&'a str>,
}

struct Found {
    params: Option<String>,
    evidence: Evidence,
    check: Check,
}

/// Weighs what is known of a command: FINN's type, and the types that the table has for its number.
fn weigh(
    surface: &Surface,
    name: &str,
    number: u64,
    said: Option<&str>,
    table: &[Option<&str>],
) -> Result<Found, Why> {
    let owned = |ty: Option<&str>| ty.map(str::to_owned);
    if is_null_command(name, number) {
        return Ok(Found { params: None, evidence: Evidence::Null, check: Check::Silent });
    }
    let Some(said) = said else { return unsaid(surface, name, table) };
    let agreeing = table.iter().find(|ty| ty.is_some_and(|ty| same(surface, said, ty)));
    let Some(other) = agreeing.or(table.first()).copied() else {
        return Ok(Found {
            params: owned(Some(said)),
            evidence: Evidence::Finn,
            check: Check::Silent,
        });
    };
    let sizes = (size(surface, said), other.map_or(Some(0), |ty| size(surface, ty)));
    let (params, evidence, second) = match sizes {
        (Some(ours), Some(theirs)) if ours != theirs => (other, Evidence::Table, Some(said)),
        _ => (Some(said), Evidence::Finn, other),
    };
    Ok(Found { params: owned(params), evidence, check: compared(surface, params, second) })
}

/// Weighs what is known of a command whose header gives a bare number.
fn unsaid(surface: &Surface, name: &str, table: &[Option<&str>]) -> Result<Found, Why> {
    let named = by_name(surface, name);
    match (table, named) {
        ([], None) => Err(Why::NoEvidence),
        ([], params) => Ok(Found { params, evidence: Evidence::Name, check: Check::Silent }),
        ([ty], named) => {
            // Of two typedefs the command's own is the one whose name stays.
            let own = named.clone().filter(|n| ty.is_some_and(|ty| same(surface, n, ty)));
            let check = match (&own, *ty) {
                (Some(own), Some(ty)) if own != ty => Check::Alias(ty.to_owned()),
                (Some(_), _) => Check::Same,
                (None, _) => named.map_or(Check::Silent, |named| Check::Differs(Some(named))),
            };
            let params = own.or(ty.map(str::to_owned));
            Ok(Found { params, evidence: Evidence::Table, check })
        }
        _ => Err(Why::NoEvidence),
    }
}

/// A type that has the command's name. The order matters: the exact name comes first.
fn by_name(surface: &Surface, command: &str) -> Option<String> {
    let stems = [command.replacen("_CMD_", "_", 1), command.to_owned()];
    let without = |part: &str| {
        let stems = stems.iter().filter(|stem| stem.contains(part));
        stems.map(|stem| stem.replacen(part, "", 1)).collect::<Vec<_>>()
    };
    let exact = ["_PARAMS", "_PARAMETERS", "_PARAM"];
    let exact = exact.iter().flat_map(|end| stems.iter().map(move |stem| format!("{stem}{end}")));
    // Getting and setting share a type, as do a command and the one the driver calls internally.
    let shared = ["GET_", "SET_", "INTERNAL_"].into_iter().flat_map(without);
    let mut candidates = exact.chain(shared.map(|stem| format!("{stem}_PARAMS")));
    candidates.find(|name| size(surface, name).is_some())
}

/// Passes what is found if its type is among the facts.
fn known(surface: &Surface, found: Found) -> Result<Found, Why> {
    match &found.params {
        Some(ty) if size(surface, ty).is_none() => Err(Why::UnknownType(ty.clone())),
        _ => Ok(found),
    }
}

fn compared(surface: &Surface, ours: Option<&str>, other: Option<&str>) -> Check {
    match (ours, other) {
        (ours, other) if ours == other => Check::Same,
        (Some(ours), Some(other)) if same(surface, ours, other) => Check::Alias(other.to_owned()),
        (_, other) => Check::Differs(other.map(str::to_owned)),
    }
}

/// FINN wraps a params struct that two commands share into one with a message id of its own; the
/// driver and its callers pass the inner one.
fn unwrapped<'a>(surface: &'a Surface, ty: &'a str) -> &'a str {
    let record = surface.records.get(ty).filter(|_| ty.ends_with("_FINN_PARAMS"));
    match record.map(|record| (record.size, &*record.fields)) {
        Some((size, [only])) if only.size == size => &only.ty,
        _ => ty,
    }
}

fn constant<'a>(surface: &'a Surface, name: &str) -> Option<(u64, &'a Source)> {
    let constant = surface.constants.get(name)?;
    Some((constant.value.try_into().ok()?, &constant.source))
}

fn size(surface: &Surface, ty: &str) -> Option<u64> {
    let record = surface.records.get(ty).map(|record| record.size);
    record.or_else(|| surface.aliases.get(ty).map(|alias| alias.size))
}

fn same(surface: &Surface, a: &str, b: &str) -> bool {
    fn resolved<'a>(surface: &'a Surface, ty: &'a str) -> &'a str {
        surface.aliases.get(ty).map_or(ty, |alias| &alias.ty)
    }
    a == b || resolved(surface, a) == resolved(surface, b)
}
