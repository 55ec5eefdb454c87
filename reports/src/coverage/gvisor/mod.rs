//! gVisor's own table, read from its source: the versions and calls that `version.go` of its nvproxy builds, and
//! the constants and structs of its package `nvgpu`.
//!
//! `version.go` makes each version's maps from those of an earlier one, by assignments and deletions. They are
//! carried out here; a statement of another sort is an error, since it may do anything.

mod go;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use nvabi_pipeline::diagnostic::{Diagnostic, Report};

use super::{Row, Struct, Table, Version, roles};
use go::{Declaration, Expression, ExpressionKind, Statement, Type};

pub use go::File;

/// Where gVisor has them: a file, and a folder whose files are all read.
pub const VERSIONS: &str = "pkg/sentry/devices/nvproxy/version.go";
/// The folder.
pub const TYPES: &str = "pkg/abi/nvgpu";

/// The maps of a version, in the order of [`Table::rows`]: what handles a number, and what is known of it.
const HANDLERS: [&str; 4] = ["frontendIoctl", "uvmIoctl", "controlCmd", "allocationClass"];
const INFOS: [&str; 4] = ["FrontendInfos", "UvmInfos", "ControlInfos", "AllocationInfos"];
/// The same before August 2025, when only the structs of a number were known.
const STRUCTS: [&str; 4] = ["frontendStructs", "uvmStructs", "controlStructs", "allocationStructs"];

/// The fields of functions that give what is known of each number, now and before.
const GETTERS: [&str; 2] = ["getInfo", "getStructs"];

/// Those before name structs by tags of their fields, or not at all.
const READABLE: &str = "commits of gVisor from January 2025 on can be read";

/// Constants that use each other deeper than this do not occur.
const DEEPEST: usize = 32;

impl Table {
    /// The table of a checkout: the files of [`TYPES`], and [`VERSIONS`].
    pub fn from_gvisor(types: &[File], versions: &File) -> Result<Self, Report> {
        let package = Package::read(types)?;
        let mut history = History::of(&package, versions);
        history.run()?;
        let (structs, go_scalars) = package.structs()?;
        let [frontend, uvm, control, class] = history.rows;
        let mut table = Self {
            versions: history.versions,
            frontend,
            uvm,
            control,
            class,
            structs,
            constants: package.numbers(),
            go_scalars,
            header_check: None,
            special_cases: BTreeMap::new(),
        };
        table.lay_out();
        Ok(table)
    }
}

/// The names of the constants and types of a package, without what gVisor puts behind the name of a layout that
/// began with a version (`_V550`).
pub fn declared(files: &[File]) -> Result<BTreeSet<String>, Report> {
    let mut names = BTreeSet::new();
    for declaration in files.iter().map(File::declarations) {
        for declaration in declaration? {
            if let Declaration::Constant { name, .. } | Declaration::Type { name, .. } = declaration
            {
                names.insert(without_version(name).to_owned());
            }
        }
    }
    Ok(names)
}

pub(super) fn without_version(name: &str) -> &str {
    match name.rsplit_once("_V") {
        Some((base, version))
            if version.starts_with(|c: char| c.is_ascii_digit())
                && version.chars().all(|c| c.is_ascii_digit() || c == '_') =>
        {
            base
        }
        _ => name,
    }
}

/// The constants and types of a package.
struct Package<'t> {
    constants: HashMap<&'t str, (&'t File, Expression<'t>, i128)>,
    /// In the order of the files.
    types: Vec<(&'t File, &'t str, Type<'t>)>,
    /// By type, the field that its `GetFrontendFD` gives.
    fds: HashMap<&'t str, &'t str>,
}

impl<'t> Package<'t> {
    fn read(files: &'t [File]) -> Result<Self, Report> {
        let mut found = Self { constants: HashMap::new(), types: Vec::new(), fds: HashMap::new() };
        for file in files {
            for declaration in file.declarations()? {
                match declaration {
                    Declaration::Constant { name, value, iota } => {
                        found.constants.insert(name, (file, value, iota));
                    }
                    Declaration::Type { name, ty } => found.types.push((file, name, ty)),
                    Declaration::Function {
                        receiver: Some((object, ty)),
                        name: "GetFrontendFD",
                        body,
                    } => {
                        let field = go::field_of(&body, object);
                        found.fds.extend(field.map(|field| (ty, field)));
                    }
                    Declaration::Function { .. } => {}
                }
            }
        }
        Ok(found)
    }

    /// The value of a constant expression of a file.
    fn value(&self, file: &File, of: &Expression<'t>) -> Result<i128, Diagnostic> {
        let value = self.evaluate(of, 0, 0);
        value.ok_or_else(|| file.error_at(of, "its value is not known: expected a constant"))
    }

    fn evaluate(&self, of: &Expression<'t>, iota: i128, depth: usize) -> Option<i128> {
        if depth > DEEPEST {
            return None;
        }
        let evaluate = |of: &Expression<'t>| self.evaluate(of, iota, depth + 1);
        match &of.kind {
            ExpressionKind::Number(value) => Some(*value),
            ExpressionKind::Path(parts) if parts.as_slice() == ["iota"] => Some(iota),
            ExpressionKind::Path(_) => {
                let (_, value, iota) = self.constants.get(of.name()?)?;
                self.evaluate(value, *iota, depth + 1)
            }
            // A conversion: `uint32(…)`.
            ExpressionKind::Call(_, arguments) => match arguments.as_slice() {
                [one] => evaluate(one),
                _ => None,
            },
            ExpressionKind::Unary("-", of) => evaluate(of)?.checked_neg(),
            ExpressionKind::Unary("+", of) => evaluate(of),
            ExpressionKind::Binary(mark, a, b) => {
                let (a, b) = (evaluate(a)?, evaluate(b)?);
                let shift = || u32::try_from(b).ok().filter(|by| *by < 64);
                match *mark {
                    "+" => a.checked_add(b),
                    "-" => a.checked_sub(b),
                    "*" => a.checked_mul(b),
                    "/" => a.checked_div(b),
                    "%" => a.checked_rem(b),
                    "|" => Some(a | b),
                    "&" => Some(a & b),
                    "^" => Some(a ^ b),
                    "&^" => Some(a & !b),
                    "<<" => a.checked_mul(1_i128 << shift()?),
                    ">>" => Some(a >> shift()?),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The constants that are integers.
    fn numbers(&self) -> BTreeMap<String, i128> {
        let known = self.constants.iter().filter_map(|(name, (_, value, iota))| {
            Some(((*name).to_owned(), self.evaluate(value, *iota, 0)?))
        });
        known.collect()
    }

    /// The structs, and the names of what is no struct.
    fn structs(&self) -> Result<(Vec<roles::Struct>, BTreeMap<String, String>), Report> {
        let (mut structs, mut scalars) = (Vec::new(), BTreeMap::new());
        for (file, name, ty) in &self.types {
            let Type::Struct(fields) = ty else {
                // What has no size, such as an interface, is no part of a struct.
                scalars.extend(self.type_text(file, ty)?.map(|text| ((*name).to_owned(), text)));
                continue;
            };
            let mut named = Vec::new();
            for field in fields {
                // A marker of Go's, without a size.
                if field.ty == Type::Name("HostLayout") {
                    continue;
                }
                let text = self.type_text(file, &field.ty)?;
                // A struct with a slice or a map is gVisor's own.
                let Some(text) = text else {
                    named.clear();
                    break;
                };
                named.push((field.name.to_owned(), text));
            }
            let fd_fields = self.fds.get(name).map(|field| (*field).to_owned());
            structs.push(roles::Struct {
                go_name: (*name).to_owned(),
                fields: named,
                offsets: Vec::new(),
                size: None,
                fd_fields: fd_fields.into_iter().collect(),
            });
        }
        Ok((structs, scalars))
    }

    /// A type as a table spells it: `uint32`, `[16]uint8`.
    fn type_text(&self, file: &File, ty: &Type<'t>) -> Result<Option<String>, Diagnostic> {
        Ok(match ty {
            Type::Name(name) => Some((*name).to_owned()),
            Type::Array(len, element) => {
                let len = self.value(file, len)?;
                self.type_text(file, element)?.map(|element| format!("[{len}]{element}"))
            }
            Type::Struct(_) | Type::Other => None,
        })
    }
}

/// What a version supports, by number and in the order of [`Table::rows`].
#[derive(Debug, Clone, Default)]
struct Abi<'t> {
    handlers: [BTreeMap<u32, Handler<'t>>; 4],
    infos: [BTreeMap<u32, Info>; 4],
}

#[derive(Debug, Clone, Copy)]
struct Handler<'t> {
    /// The name of the number.
    key: &'t str,
    name: &'t str,
}

#[derive(Debug, Clone)]
struct Info {
    name: String,
    structs: Vec<Struct>,
}

/// An ABI and the index of the version that it is of, or is made from.
#[derive(Debug, Clone)]
struct Made<'t> {
    abi: Abi<'t>,
    version: Option<usize>,
}

/// The versions in the order in which they are made.
struct History<'t> {
    package: &'t Package<'t>,
    file: &'t File,
    versions: Vec<Version>,
    /// What each variable makes.
    variables: HashMap<&'t str, Made<'t>>,
    /// By version, kind and number: the row that holds there.
    holding: Vec<[BTreeMap<u32, usize>; 4]>,
    rows: [Vec<Row>; 4],
}

impl<'t> History<'t> {
    fn of(package: &'t Package<'t>, file: &'t File) -> Self {
        Self {
            package,
            file,
            versions: Vec::new(),
            variables: HashMap::new(),
            holding: Vec::new(),
            rows: Default::default(),
        }
    }

    fn run(&mut self) -> Result<(), Report> {
        let declarations = self.file.declarations()?;
        let init = declarations.iter().find_map(|declaration| match declaration {
            Declaration::Function { receiver: None, name: "Init", body } => Some(body),
            _ => None,
        });
        let statements = self.file.statements(init.map(Vec::as_slice).unwrap_or_default())?;
        for statement in &statements {
            self.outer(statement).map_err(|error| match error.help {
                Some(_) => error,
                None => error.help(READABLE),
            })?;
        }
        if self.versions.is_empty() {
            let message =
                format!("{} has no function `Init` that adds driver ABIs", self.file.path);
            let help = format!("give a checkout of gVisor: it has {VERSIONS} and {TYPES}");
            return Err(Diagnostic::error("coverage-go", message).help(help).into());
        }
        // Without them each call would seem to take nothing.
        if self.rows.iter().flatten().all(|row| row.structs.is_empty()) {
            let message = format!("{} names no struct that a call takes", self.file.path);
            return Err(Diagnostic::error("coverage-go", message).help(READABLE).into());
        }
        Ok(())
    }

    /// A statement of `Init`, or of the function in which it does all this once.
    fn outer(&mut self, statement: &Statement<'t>) -> Result<(), Diagnostic> {
        match statement {
            Statement::Expression(expression) => {
                let inner = expression.call().and_then(|(_, arguments)| match arguments {
                    [Expression { kind: ExpressionKind::Function(body), .. }] => Some(body),
                    _ => None,
                });
                inner.into_iter().flatten().try_for_each(|statement| self.outer(statement))
            }
            // A checksum that has a name.
            Statement::Assign(_, Expression { kind: ExpressionKind::Text(_), .. }) => Ok(()),
            // An ABI of no version, which one is made from later; or another name of it.
            Statement::Assign(target, value) if value.call().is_none() => {
                let made = self.make(value)?;
                self.variables.extend(target.name().map(|name| (name, made)));
                Ok(())
            }
            Statement::Assign(target, value) => {
                let Some((function, arguments)) = value.call() else { return Ok(()) };
                match function.name() {
                    Some("addDriverABI" | "addUnsupportedDriverABI") => {
                        self.add(target, value, arguments)
                    }
                    Some("make") => Ok(()),
                    _ => Err(self.file.error_at(function, "a function that is not followed")),
                }
            }
            Statement::Return(_) => Ok(()),
        }
    }

    fn add(
        &mut self,
        variable: &Expression<'t>,
        call: &Expression<'t>,
        arguments: &[Expression<'t>],
    ) -> Result<(), Diagnostic> {
        let [major, minor, patch, .., maker] = arguments else {
            return Err(self.file.error_at(call, "expected a version and what makes its ABI"));
        };
        let part = |of| self.package.value(self.file, of);
        let version = format!("{}.{:02}.{:02}", part(major)?, part(minor)?, part(patch)?);
        let Made { abi, version: parent } = self.make(maker)?;
        self.hold(&version, &abi, parent);
        let parent = parent.map(|parent| self.versions[parent].version.clone());
        let made = Made { abi, version: Some(self.versions.len()) };
        self.versions.push(Version { version, parent, tag_available: false, counts: None });
        self.variables.extend(variable.name().map(|name| (name, made)));
        Ok(())
    }

    /// Continues the rows of the parent that hold, ends the others, and begins new ones.
    fn hold(&mut self, version: &str, abi: &Abi<'t>, parent: Option<usize>) {
        let mut holding: [BTreeMap<u32, usize>; 4] = Default::default();
        for (kind, holding) in holding.iter_mut().enumerate() {
            let before = parent.map(|parent| &self.holding[parent][kind]);
            let rows = &mut self.rows[kind];
            for (number, handler) in &abi.handlers[kind] {
                let row = row(*number, handler, abi.infos[kind].get(number));
                let same = before.and_then(|before| before.get(number)).copied();
                let same = same.filter(|index| rows[*index].is_as(&row));
                let index = same.unwrap_or_else(|| {
                    rows.push(Row { since: Some(version.to_owned()), ..row });
                    rows.len() - 1
                });
                holding.insert(*number, index);
            }
            for (number, index) in before.into_iter().flatten() {
                if holding.get(number) != Some(index) {
                    rows[*index].until.push(version.to_owned());
                }
            }
        }
        self.holding.push(holding);
    }

    /// The ABI that an expression makes: that of a variable, or of a function.
    fn make(&self, maker: &Expression<'t>) -> Result<Made<'t>, Diagnostic> {
        if let Some(made) = maker.name().and_then(|name| self.variables.get(name)) {
            return Ok(made.clone());
        }
        let ExpressionKind::Function(body) = &maker.kind else {
            return Err(self.file.error_at(maker, "expected an earlier version or a function"));
        };
        let mut found = Made { abi: Abi::default(), version: None };
        for statement in body {
            match statement {
                Statement::Assign(target, value) => match &target.kind {
                    ExpressionKind::Index(map, keys) => {
                        let (kind, number, key) = self.place(map, keys, &[HANDLERS])?;
                        let handler = Handler { key, name: self.handler(value)? };
                        self.insert(&mut found.abi, kind, number, handler, target)?;
                    }
                    _ if is_getter(target.name()) => self.infos(&mut found.abi, value)?,
                    // What it was before.
                    _ if is_getter(value.name()) => {}
                    _ => {
                        let parent = value.call().and_then(|(function, _)| function.name());
                        let Some(made) = parent.and_then(|name| self.variables.get(name)) else {
                            return Err(self.file.error_at(value, "expected an earlier version"));
                        };
                        found = made.clone();
                    }
                },
                Statement::Expression(expression) => {
                    let (kind, number) = self.deleted(expression, &[HANDLERS])?;
                    found.abi.handlers[kind].remove(&number);
                }
                Statement::Return(Some(value)) if composite(value).is_some() => {
                    self.whole(&mut found.abi, value)?;
                }
                Statement::Return(_) => {}
            }
        }
        Ok(found)
    }

    /// `&driverABI{…}`: all maps at once.
    fn whole(&self, abi: &mut Abi<'t>, value: &Expression<'t>) -> Result<(), Diagnostic> {
        for (field, value) in composite(value).into_iter().flatten() {
            let field = field.as_ref().and_then(Expression::name);
            if is_getter(field) {
                self.infos(abi, value)?;
                continue;
            }
            let kind = HANDLERS.iter().position(|name| Some(*name) == field);
            let kind = kind.ok_or_else(|| self.file.error_at(value, "a map that is not known"))?;
            for (key, value) in composite(value).into_iter().flatten() {
                let place = key.as_ref().unwrap_or(value);
                let (number, key) = self.key(place)?;
                let handler = Handler { key, name: self.handler(value)? };
                self.insert(abi, kind, number, handler, place)?;
            }
        }
        Ok(())
    }

    /// A handler, which may take the place of one of its own name: two names of one number are a slip in one of them.
    fn insert(
        &self,
        abi: &mut Abi<'t>,
        kind: usize,
        number: u32,
        handler: Handler<'t>,
        place: &Expression<'t>,
    ) -> Result<(), Diagnostic> {
        match abi.handlers[kind].insert(number, handler) {
            Some(before) if before.key != handler.key => {
                let (one, other) = (handler.key, before.key);
                let message = format!("`{one}` has the number {number:#x}, which `{other}` has");
                let error = self.file.error_at(place, message);
                Err(error.help("one of the two constants has the number of another"))
            }
            _ => Ok(()),
        }
    }

    /// Carries out a function that gives what is known of each number.
    fn infos(&self, abi: &mut Abi<'t>, function: &Expression<'t>) -> Result<(), Diagnostic> {
        let ExpressionKind::Function(body) = &function.kind else {
            return Err(self.file.error_at(function, "expected a function"));
        };
        for statement in body {
            match statement {
                Statement::Assign(target, value) => {
                    // Else it is what an earlier version has, which is there already.
                    if let ExpressionKind::Index(map, keys) = &target.kind {
                        let (kind, number, _) = self.place(map, keys, &[INFOS, STRUCTS])?;
                        abi.infos[kind].insert(number, self.info(value)?);
                    }
                }
                Statement::Expression(expression) => {
                    let (kind, number) = self.deleted(expression, &[INFOS, STRUCTS])?;
                    abi.infos[kind].remove(&number);
                }
                Statement::Return(value) => {
                    for (field, value) in value.iter().filter_map(composite).flatten() {
                        let field = field.as_ref().and_then(Expression::name);
                        let kind = position(&[INFOS, STRUCTS], field.unwrap_or_default());
                        let kind = kind
                            .ok_or_else(|| self.file.error_at(value, "a map that is not known"))?;
                        for (key, value) in composite(value).into_iter().flatten() {
                            let (number, _) = self.key(key.as_ref().unwrap_or(value))?;
                            abi.infos[kind].insert(number, self.info(value)?);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Which of `maps` is meant, and the number and name of a key.
    fn place(
        &self,
        map: &Expression<'t>,
        keys: &[Expression<'t>],
        maps: &[[&str; 4]],
    ) -> Result<(usize, u32, &'t str), Diagnostic> {
        let name = map.name().unwrap_or_default();
        let kind = position(maps, name);
        let kind = kind.ok_or_else(|| self.file.error_at(map, "a map that is not known"))?;
        let [key] = keys else { return Err(self.file.error_at(map, "expected one key")) };
        let (number, key) = self.key(key)?;
        Ok((kind, number, key))
    }

    fn deleted(
        &self,
        call: &Expression<'t>,
        maps: &[[&str; 4]],
    ) -> Result<(usize, u32), Diagnostic> {
        match call.call() {
            Some((function, [map, key])) if function.name() == Some("delete") => {
                let (kind, number, _) = self.place(map, std::slice::from_ref(key), maps)?;
                Ok((kind, number))
            }
            _ => Err(self.file.error_at(call, "a call that is not followed")),
        }
    }

    fn key(&self, key: &Expression<'t>) -> Result<(u32, &'t str), Diagnostic> {
        let value = self.package.value(self.file, key)?;
        let number = u32::try_from(value)
            .map_err(|_| self.file.error_at(key, format!("{value} exceeds 32 bits")))?;
        Ok((number, key.name().unwrap_or_default()))
    }

    /// What handles a number: `feHandler(frontendIoctlSimple[…], …)`.
    fn handler(&self, value: &Expression<'t>) -> Result<&'t str, Diagnostic> {
        let first = value.call().and_then(|(_, arguments)| arguments.first()).unwrap_or(value);
        let name = match &first.kind {
            ExpressionKind::Index(function, _) => function.name(),
            _ => first.name(),
        };
        name.ok_or_else(|| self.file.error_at(value, "expected a handler"))
    }

    fn info(&self, value: &Expression<'t>) -> Result<Info, Diagnostic> {
        let wrong = || self.file.error_at(value, "a description of a call that is not known");
        // The older form says so of calls that take nothing, or nothing known.
        if value.name() == Some("nil") {
            return Ok(Info { name: String::new(), structs: Vec::new() });
        }
        let (function, arguments) = value.call().ok_or_else(wrong)?;
        let text = |of: &Expression<'t>| match of.kind {
            ExpressionKind::Text(text) => Ok(text.to_owned()),
            _ => Err(self.file.error_at(of, "expected a text")),
        };
        let go = |of: &Expression<'t>| match &of.kind {
            ExpressionKind::Composite(ty, _) => ty.name().map(str::to_owned).ok_or_else(wrong),
            _ => Err(self.file.error_at(of, "expected a struct")),
        };
        let function = function.name().unwrap_or_default();
        // Before there were names of calls, the arguments were structs alone.
        let (name, rest) = match (function, arguments) {
            ("driverStructs" | "driverStructWithName" | "simpleDriverStruct", _) => {
                (String::new(), arguments)
            }
            (_, [name, rest @ ..]) => (text(name)?, rest),
            (_, []) => return Err(wrong()),
        };
        let structs = match function {
            "simpleIoctlInfo" | "simpleDriverStruct" => {
                let driver = |of| Ok(Struct { driver: text(of)?, go: None });
                rest.iter().map(driver).collect::<Result<_, _>>()?
            }
            "ioctlInfo" | "driverStructs" => {
                let same = |of| go(of).map(|name| Struct { driver: name.clone(), go: Some(name) });
                rest.iter().map(same).collect::<Result<_, _>>()?
            }
            "ioctlInfoWithStructName" | "driverStructWithName" => match rest {
                [ty, name] => vec![Struct { driver: text(name)?, go: Some(go(ty)?) }],
                _ => return Err(wrong()),
            },
            _ => return Err(wrong()),
        };
        let structs = structs.into_iter().filter(|of: &Struct| !of.driver.is_empty()).collect();
        Ok(Info { name, structs })
    }
}

/// Which map has that name, in any of the forms.
fn position(maps: &[[&str; 4]], name: &str) -> Option<usize> {
    maps.iter().find_map(|maps| maps.iter().position(|map| *map == name))
}

fn is_getter(name: Option<&str>) -> bool {
    name.is_some_and(|name| GETTERS.contains(&name))
}

/// The elements of `T{…}` or `&T{…}`.
fn composite<'e, 't>(
    value: &'e Expression<'t>,
) -> Option<&'e Vec<(Option<Expression<'t>>, Expression<'t>)>> {
    match &value.kind {
        ExpressionKind::Composite(_, elements) => Some(elements),
        ExpressionKind::Unary("&", inner) => composite(inner),
        _ => None,
    }
}

fn row(number: u32, handler: &Handler<'_>, info: Option<&Info>) -> Row {
    let named = info.filter(|info| !info.name.is_empty());
    Row {
        // What the driver's headers have no name for has none there either.
        name: named.map_or(handler.key, |info| &info.name).to_owned(),
        number,
        structs: info.map(|info| info.structs.clone()).unwrap_or_default(),
        handler_kind: handler_kind(handler.name).to_owned(),
        handler: handler.name.to_owned(),
        since: None,
        until: Vec::new(),
    }
}

/// What gVisor's names of handlers say of them.
fn handler_kind(name: &str) -> &'static str {
    match name {
        _ if name.contains("Simple") || name.ends_with("NoParams") => "simple",
        _ if name.contains("HasFD") || name.contains("HasFrontendFD") => "has_fd",
        _ if name.ends_with("Bytes") => "bytes",
        _ => "custom",
    }
}

impl Row {
    /// Whether two rows say the same of a call.
    fn is_as(&self, other: &Self) -> bool {
        let said =
            |row: &Self| (row.name.clone(), row.number, row.structs.clone(), row.handler.clone());
        said(self) == said(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coverage::ItemKind;

    const NVGPU: &str = "
package nvgpu

import \"structs\"

// Numbers.
const (
\tBASE = 0xc8
\tESC_A = BASE + 1 // one
\tESC_B = uint32('F')
)

const (
\tUVM_A = iota + 5
\tUVM_B
)

const CMD ClassID = 1<<4 | 0x1
const LIMBS = 2

type ClassID uint32

/* Two
   lines. */
type P64 uint64

type Handle struct {
\t_   structs.HostLayout
\tVal uint32
}

type A struct {
\t_      structs.HostLayout
\tClient, Device Handle
\tFD     int32
\tLimbs  [LIMBS]uint16 `a tag`
\tParams P64
}

type B struct {
\tA
\tStatus uint32
\tPad0   [4]byte
}

type own struct {
\tnames map[string][]int
}

func (a *A) GetFrontendFD() int32 {
\tif a == nil { return 0 }
\treturn int32(a.FD)
}
";

    const INIT: &str = "
package nvproxy

var once sync.Once

func helper[T any](v T) (int, error) { for { } }

func Init() {
\tonce.Do(func() {
\t\tabis = make(map[nvconf.DriverVersion]driverABIEntry)
\t\tv1 := addUnsupportedDriverABI(550, 40, 07, func() *driverABI {
\t\t\treturn &driverABI{
\t\t\t\tfrontendIoctl: map[uint32]frontendIoctlHandler{
\t\t\t\t\tnvgpu.ESC_A: feHandler(frontendIoctlHasFD[nvgpu.A], compUtil|nvconf.CapGraphics),
\t\t\t\t},
\t\t\t\tuvmIoctl: map[uint32]uvmIoctlHandler{
\t\t\t\t\tnvgpu.UVM_B: uvmHandler(uvmIoctlNoParams, compUtil),
\t\t\t\t},
\t\t\t\tgetInfo: func() *DriverABIInfo {
\t\t\t\t\treturn &DriverABIInfo{
\t\t\t\t\t\tFrontendInfos: map[uint32]IoctlInfo{
\t\t\t\t\t\t\tnvgpu.ESC_A: ioctlInfo(\"ESC_A\", nvgpu.A{}),
\t\t\t\t\t\t},
\t\t\t\t\t\tUvmInfos: map[uint32]IoctlInfo{
\t\t\t\t\t\t\tnvgpu.UVM_B: simpleIoctlInfo(\"UVM_B\"),
\t\t\t\t\t\t},
\t\t\t\t\t}
\t\t\t\t},
\t\t\t}
\t\t})
\t\tv2 := addDriverABI(550, 90, 7, \"sum\", ChecksumNoDriver, v1)
\t\t_ = addDriverABI(550, 90, 12, \"sum\", \"sum\", func() *driverABI {
\t\t\tabi := v2()
\t\t\tdelete(abi.uvmIoctl, nvgpu.UVM_B)
\t\t\treturn abi
\t\t})
\t\t_ = addDriverABI(620, 6, 0, \"sum\", \"sum\", func() *driverABI {
\t\t\tabi := v2()
\t\t\tdelete(abi.uvmIoctl, nvgpu.UVM_B)
\t\t\tabi.controlCmd[nvgpu.CMD] = ctrlHandler(rmControlSimple, compUtil)
\t\t\tprev := abi.getInfo
\t\t\tabi.getInfo = func() *DriverABIInfo {
\t\t\t\tinfo := prev()
\t\t\t\tdelete(info.UvmInfos, nvgpu.UVM_B)
\t\t\t\tinfo.ControlInfos[nvgpu.CMD] = ioctlInfoWithStructName(\"CMD\", nvgpu.B{}, \"B_PARAMS\")
\t\t\t\treturn info
\t\t\t}
\t\t\treturn abi
\t\t})
\t})
}
";

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    fn table(types: &str, versions: &str) -> Result<Table, Report> {
        Table::from_gvisor(&[file("nvgpu.go", types)], &file("version.go", versions))
    }

    fn rows(table: &Table, of: ItemKind) -> Vec<(&str, u32, Option<&str>, Vec<&str>)> {
        let (_, rows) = table.rows().into_iter().find(|(kind, _)| *kind == of).unwrap();
        rows.iter()
            .map(|row| {
                let until = row.until.iter().map(String::as_str).collect();
                (row.name.as_str(), row.number, row.since.as_deref(), until)
            })
            .collect()
    }

    #[test]
    fn versions_are_made_from_each_other() {
        let table = table(NVGPU, INIT).unwrap();
        let versions: Vec<_> = table
            .versions()
            .iter()
            .map(|version| (version.version.as_str(), version.parent.as_deref()))
            .collect();
        assert_eq!(
            versions,
            [
                ("550.40.07", None),
                ("550.90.07", Some("550.40.07")),
                ("550.90.12", Some("550.90.07")),
                ("620.06.00", Some("550.90.07")),
            ]
        );
        assert_eq!(rows(&table, ItemKind::Frontend), [("ESC_A", 0xc9, Some("550.40.07"), vec![])]);
        // It ends in two branches.
        let until = vec!["550.90.12", "620.06.00"];
        assert_eq!(rows(&table, ItemKind::Uvm), [("UVM_B", 6, Some("550.40.07"), until)]);
        assert_eq!(rows(&table, ItemKind::Control), [("CMD", 0x11, Some("620.06.00"), vec![])]);
        assert_eq!(rows(&table, ItemKind::Class), []);

        let row = &table.rows()[0].1[0];
        assert_eq!(
            (row.handler_kind.as_str(), row.handler.as_str()),
            ("has_fd", "frontendIoctlHasFD")
        );
        let named: Vec<_> = table.rows()[2].1[0].structs.clone();
        assert_eq!(named, [Struct { driver: "B_PARAMS".to_owned(), go: Some("B".to_owned()) }]);
    }

    /// Before August 2025 functions gave the structs of numbers, without names of calls.
    #[test]
    fn the_older_form_gives_the_same_table() {
        let mut older = INIT.to_owned();
        for (now, before) in [
            ("getInfo", "getStructs"),
            ("DriverABIInfo", "driverABIStructs"),
            ("FrontendInfos", "frontendStructs"),
            ("UvmInfos", "uvmStructs"),
            ("ControlInfos", "controlStructs"),
            ("map[uint32]IoctlInfo", "map[uint32][]DriverStruct"),
            ("ioctlInfo(\"ESC_A\", ", "driverStructs("),
            ("simpleIoctlInfo(\"UVM_B\")", "nil"),
            ("ioctlInfoWithStructName(\"CMD\", ", "driverStructWithName("),
        ] {
            assert!(older.contains(now), "{now}");
            older = older.replace(now, before);
        }
        let (now, before) = (table(NVGPU, INIT).unwrap(), table(NVGPU, &older).unwrap());
        for ((kind, now), (_, before)) in now.rows().into_iter().zip(before.rows()) {
            let said = |rows: &[Row]| -> Vec<_> {
                let said = |row: &Row| {
                    let (since, until) = (row.since.clone(), row.until.clone());
                    (row.name.clone(), row.number, row.structs.clone(), since, until)
                };
                rows.iter().map(said).collect()
            };
            assert_eq!(said(now), said(before), "{kind:?}");
        }
        let (_, uvm) = &before.rows()[1];
        assert_eq!((uvm[0].name.as_str(), uvm[0].structs.len()), ("UVM_B", 0));
    }

    #[test]
    fn a_package_declares_names_of_the_drivers() {
        let text = "package nvgpu\nconst NV_A = 1\nconst (\n\tNV_B = 2\n)\n\
                    type P_V550 struct { A uint32 }\ntype Q_V1_BASE uint32\n";
        let names = declared(&[file("a.go", text)]).unwrap();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["NV_A", "NV_B", "P", "Q_V1_BASE"]);
    }

    #[test]
    fn structs_are_laid_out_by_gos_rules() {
        let table = table(NVGPU, INIT).unwrap();
        let of = |name: &str| {
            let of = table.structs.iter().find(|of| of.go_name == name).unwrap();
            (of.size, of.offsets.clone())
        };
        assert_eq!(of("Handle"), (Some(4), vec![0]));
        assert_eq!(of("A"), (Some(24), vec![0, 4, 8, 12, 16]));
        assert_eq!(of("B"), (Some(32), vec![0, 24, 28]));
        let a = table.structs.iter().find(|of| of.go_name == "A").unwrap();
        assert_eq!(a.fields[3], ("Limbs".to_owned(), "[2]uint16".to_owned()));
        assert_eq!(a.fd_fields, ["FD"]);
    }

    /// The message about the two files with one thing replaced, and the text it points at.
    fn complaint(from: &str, to: &str) -> (String, String) {
        assert!(NVGPU.contains(from) || INIT.contains(from), "{from}");
        let report = table(&NVGPU.replacen(from, to, 1), &INIT.replacen(from, to, 1)).unwrap_err();
        let found = report.diagnostics.into_iter().next().unwrap();
        let line = found.place.map(|place| {
            let from = place.text[..place.span.start].rfind('\n').map_or(0, |at| at + 1);
            place.text[from..].lines().next().unwrap_or_default().trim().to_owned()
        });
        (found.message, line.unwrap_or_default())
    }

    #[test]
    fn what_is_not_followed_is_an_error_with_its_place() {
        for (from, to, message, line) in [
            (
                "v2 := addDriverABI",
                "v2 := addOther",
                "a function that is not followed",
                "v2 := addOther",
            ),
            (
                "\t\t\tdelete(abi.uvmIoctl",
                "\t\t\tif x {}\n\t\t\tdelete(abi.uvmIoctl",
                "`if` is not followed: the table may be made in any way",
                "if x {}",
            ),
            ("abi := v2()", "abi := v9()", "expected an earlier version", "abi := v9()"),
            (
                "abi.controlCmd[",
                "abi.otherCmd[",
                "a map that is not known",
                "abi.otherCmd[nvgpu.CMD] =",
            ),
            (
                "0xc8",
                "unknown",
                "its value is not known: expected a constant",
                "nvgpu.ESC_A: feHandler",
            ),
            ("BASE + 1", "-1", "-1 exceeds 32 bits", "nvgpu.ESC_A: feHandler"),
            (
                "[LIMBS]",
                "[NONE]",
                "its value is not known: expected a constant",
                "Limbs  [NONE]uint16",
            ),
            (
                "ioctlInfo(\"ESC_A\", nvgpu.A{})",
                "append(\"ESC_A\", nvgpu.A{})",
                "a description of a call that is not known",
                "nvgpu.ESC_A: append(\"ESC_A\", nvgpu.A{}),",
            ),
            (
                "func Init",
                "func Start",
                "version.go has no function `Init` that adds driver ABIs",
                "",
            ),
            ("\tVal uint32\n}", "\tVal uint32\n", "expected a name", "type A struct {"),
            ("\"sum\"", "\"sum", "an open text", "v2 := addDriverABI"),
        ] {
            let (found, at) = complaint(from, to);
            assert_eq!(found, message, "{to}: {at}");
            assert!(at.starts_with(line), "{to}: {at}");
        }
    }

    #[test]
    fn what_is_too_old_says_so() {
        let without = INIT.split("\t\t\t\tgetInfo").next().unwrap().to_owned() + "}})})}";
        let report = table(NVGPU, &without).unwrap_err();
        let found = &report.diagnostics[0];
        assert_eq!(found.message, "version.go names no struct that a call takes");
        assert_eq!(found.help.as_deref(), Some(READABLE));
        let names = INIT.replace("getInfo", "getStructNames");
        let report = table(NVGPU, &names).unwrap_err();
        assert_eq!(report.diagnostics[0].help.as_deref(), Some(READABLE));
    }

    #[test]
    fn deep_nesting_is_an_error() {
        for (open, close) in [
            ("(", ")"),
            ("-", ""),
            ("*", ""),
            ("[1]", "int"),
            ("1+", ""),
            ("f", "()"),
            ("f", "[0]"),
        ] {
            let text = format!("const A = {}1{}", open.repeat(100_000), close.repeat(100_000));
            assert!(table(&text, INIT).is_err(), "{open}");
            let text = format!("type A {}int", open.repeat(100_000));
            assert!(table(&text, INIT).is_err(), "{open}");
        }
    }
}
