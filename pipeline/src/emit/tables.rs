//! Calls as types with their numbers and parameters, and the table that the derive checks with.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::rc::Rc;

use super::types;
use super::{Group, Options, ident, path};
use crate::globs::Globs;
use crate::lock::Fact;
use crate::model::builtin;
use crate::plan::roles::{
    self, Expression, Factor, Field, FieldPlace, Handle, InnerCall, Pointer, When,
};
use crate::plan::types as ctypes;
use crate::plan::{Call, DefinedAt, Driver, Param, Plan};
use crate::spec::{Direction, ItemKind, Named, Spec, Substitute, SubstituteAction};

/// A call: a type without values that names its number and parameters.
///
/// As source, like every table here: there are hundreds of them, all alike.
pub(super) fn call(text: &mut String, plan: &Plan<'_>, id: usize) {
    let call = &plan.calls[id];
    let item = call.item;
    let (name, kind, number) =
        (ident(&item.name), trait_name(item.kind), call.number & 0xffff_ffff);
    let params: Vec<String> = call.params.iter().map(|(name, p)| param(plan, name, p)).collect();
    let default = params.last().map_or("()", String::as_str);
    for line in doc(call).lines() {
        let _ = writeln!(text, "///{line}");
    }
    let _ = writeln!(text, "pub enum {name} {{}}");
    let _ = writeln!(
        text,
        "// SAFETY: the lock has this number and these parameters in the drivers of `VIEWS`; {}.\n\
         unsafe impl nvabi::call::Call for {name} {{",
        match item.roles_known {
            true => "the roles are all that the spec has",
            false => "no spec gives its roles",
        }
    );
    let _ = writeln!(text, "    type Params = {default};");
    let _ = writeln!(text, "    const VIEWS: nvabi::call::Views = super::VIEWS;");
    let _ = writeln!(text, "    const INFO: &'static nvabi::call::Info = &nvabi::call::Info {{");
    info(text, call);
    let _ = writeln!(text, "    }};\n}}");
    let number_name = number_name(item.kind);
    let _ = writeln!(
        text,
        "// SAFETY: the number in `INFO`, which is of this kind.\n\
         unsafe impl nvabi::call::{kind} for {name} {{"
    );
    let _ = writeln!(text, "    const {number_name}: u32 = {number:#x};\n}}");
    let none = params.is_empty().then(|| "()".to_owned());
    for (form, param) in params.iter().chain(&none).enumerate() {
        let form = match form {
            0 => String::new(),
            form => format!(" const FORM: usize = {form}; "),
        };
        let _ = writeln!(
            text,
            "// SAFETY: the spec names it as the call's parameters.\n\
             unsafe impl nvabi::call::Accepts<{param}> for {name} {{{form}}}"
        );
    }
    if is_pointer_free(plan, call) {
        let proof = match item.roles_known {
            true => "the spec has no pointer in it that the driver follows",
            false => "no field of it is as wide as an address",
        };
        let _ = writeln!(
            text,
            "// SAFETY: {proof}.\nunsafe impl nvabi::call::PointerFree for {name} {{}}"
        );
    }
}

/// Whether the driver follows no pointer in the parameters: the spec says so, or where none does, no
/// field could hold one.
fn is_pointer_free(plan: &Plan<'_>, call: &Call<'_>) -> bool {
    match call.item.roles_known {
        // What only comes back is not followed.
        true => (call.item.pointers.iter())
            .all(|pointer| pointer.opaque && pointer.dir == Some(Direction::Out)),
        false => !call.params.iter().any(|(name, param)| roles::holds_address(plan, name, param)),
    }
}

fn doc(call: &Call<'_>) -> String {
    let mut doc = format!(" `{}`, number {:#x}", call.item.name, call.number);
    let names: Vec<String> = call.params.iter().map(|(name, _)| format!("`{name}`")).collect();
    match (names.as_slice(), call.item.array) {
        ([], _) => doc.push_str(", without parameters."),
        (names, true) => doc.push_str(&format!(", with an array of {}.", names.join(" or "))),
        (names, false) => doc.push_str(&format!(", with {}.", names.join(" or "))),
    }
    if !call.item.roles_known {
        doc.push_str("\n\n No spec says what its fields are: its roles are not known.");
    }
    if let Some(note) = &call.item.note {
        doc.push_str("\n\n ");
        // A note is plain text; rustdoc would take these for links and tags.
        doc.push_str(&note.replace('[', "\\[").replace(']', "\\]").replace('<', "\\<"));
    }
    doc
}

fn trait_name(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Frontend => "Frontend",
        ItemKind::Uvm => "Uvm",
        ItemKind::Control => "Control",
        ItemKind::Class => "Class",
        ItemKind::Ioctl => "Ioctl",
    }
}

fn number_name(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Frontend => "NR",
        ItemKind::Uvm | ItemKind::Ioctl => "REQUEST",
        ItemKind::Control => "CMD",
        ItemKind::Class => "CLASS",
    }
}

/// The Rust type of a parameter, from inside a section of a group.
fn param(plan: &Plan<'_>, name: &str, param: &Param) -> String {
    match param {
        Param::Def(id) => format!("super::super::{}", path(plan, *id)),
        Param::Scalar { canonical, size } => {
            let (element, dimensions) =
                ctypes::element(name, canonical, *size, |_| ctypes::Named::Other);
            types::array(types::rust(&element, |_| "()".into()), &dimensions)
        }
    }
}

fn info(text: &mut String, call: &Call<'_>) {
    let item = call.item;
    let params: Vec<&str> = call.params.iter().map(|(name, _)| name.as_str()).collect();
    let _ = writeln!(text, "        name: {:?},", item.name);
    let _ = writeln!(text, "        kind: nvabi::call::CallKind::{},", trait_name(item.kind));
    let _ = writeln!(text, "        number: {:#x},", call.number & 0xffff_ffff);
    let _ = writeln!(text, "        params: &{params:?},");
    let _ = writeln!(text, "        sizes: &{:?},", call.roles.sizes);
    let _ = writeln!(text, "        array: {},", item.array);
    let _ = writeln!(text, "        roles_known: {},", item.roles_known);
    let _ = writeln!(text, "        fds: {},", fds(&call.roles.fds, &item.opens));
    let _ = writeln!(text, "        caps: &{:?},", item.caps);
    let _ = writeln!(text, "        node: {:?},", item.node.as_ref().map_or("", |node| &node.name));
    let _ = writeln!(text, "        handles: {},", handles(&call.roles.handles));
    let _ = writeln!(text, "        pointers: {},", pointers(&item.pointers, &call.roles.pointers));
}

fn pointers(said: &[crate::spec::Pointer], roles: &[Pointer]) -> String {
    let mut text = String::new();
    for (pointer, role) in said.iter().zip(roles) {
        let direction = match pointer.dir {
            Some(Direction::In) => "Some(nvabi::call::Direction::In)",
            Some(Direction::Out) => "Some(nvabi::call::Direction::Out)",
            Some(Direction::InOut) => "Some(nvabi::call::Direction::InOut)",
            None => "None",
        };
        let _ = writeln!(
            text,
            "            nvabi::call::Pointer {{ field: {}, len: {}, filled: {}, of: {:?}, \
             unit: {}, call: {}, fds: {}, handles: {}, pointers: {}, \
             direction: {direction}, opaque: {}, when: {} }},",
            field(&role.field),
            option(role.len.as_ref().map(expression)),
            option(role.filled.as_ref().map(expression)),
            pointer.of.as_ref().map(|of| &of.name),
            role.unit,
            option(role.call.as_ref().map(inner_call)),
            fds(&role.fds, &[]),
            handles(&role.handles),
            pointers(&pointer.pointers, &role.pointers),
            pointer.opaque,
            when(role.when.as_ref()),
        );
    }
    match text.is_empty() {
        true => "&[]".to_owned(),
        false => format!("&[\n{text}        ]"),
    }
}

fn fds(fds: &[Field], opens: &[(Named, Named)]) -> String {
    let fd = |fd: &Field| {
        let opens = opens.iter().find(|(name, _)| name.name == fd.path);
        let opens = opens.map(|(_, node)| &node.name);
        format!("nvabi::call::FdRole {{ field: {}, opens: {opens:?} }}", field(fd))
    };
    format!("&[{}]", fds.iter().map(fd).collect::<Vec<_>>().join(", "))
}

fn inner_call(call: &InnerCall) -> String {
    let InnerCall { kind, number, flags } = call;
    format!(
        "nvabi::call::InnerCall {{ kind: nvabi::call::CallKind::{}, number: {}, flags: {} }}",
        trait_name(*kind),
        expression(number),
        option(flags.as_ref().map(field))
    )
}

/// An expression. A number beyond 64 bits, which no length is, is the greatest of them.
fn expression(expression: &Expression) -> String {
    let factor = |factor: &Factor| match factor {
        Factor::Number(number) => {
            let number = u64::try_from(*number).unwrap_or(u64::MAX);
            format!("nvabi::call::Factor::Number({number})")
        }
        Factor::Field(of) => format!("nvabi::call::Factor::Field({})", field(of)),
    };
    let term = |factors: &Vec<Factor>| {
        format!("&[{}]", factors.iter().map(factor).collect::<Vec<_>>().join(", "))
    };
    let terms: Vec<String> = expression.terms.iter().map(term).collect();
    let text = &expression.text;
    format!("nvabi::call::Expression {{ text: {text:?}, terms: &[{}] }}", terms.join(", "))
}

fn field(field: &Field) -> String {
    let place = |place: &Option<FieldPlace>| {
        let Some(FieldPlace { offset, size, arrays, is_pointer }) = place else {
            return "None".to_owned();
        };
        let array = |(stride, count): &(u64, u64)| {
            format!("nvabi::call::RoleArray {{ stride: {stride}, count: {count} }}")
        };
        let arrays: Vec<String> = arrays.iter().map(array).collect();
        format!(
            "Some(nvabi::call::RolePlace {{ offset: {offset}, size: {size}, arrays: &[{}], \
             is_pointer: {is_pointer} }})",
            arrays.join(", ")
        )
    };
    let places: Vec<String> = field.places.iter().map(place).collect();
    let (path, places) = (&field.path, places.join(", "));
    format!("nvabi::call::RoleField {{ path: {path:?}, places: &[{places}] }}")
}

fn option(text: Option<String>) -> String {
    text.map_or_else(|| "None".to_owned(), |text| format!("Some({text})"))
}

/// Which views have something, as source.
///
/// `table` is the path of what names the drivers whose views are counted.
pub(super) fn views(plan: &Plan<'_>, views: &BTreeSet<usize>, nvabi: &str, table: &str) -> String {
    let mut words = vec![0_u64; plan.views.len().div_ceil(64)];
    views.iter().for_each(|view| words[view / 64] |= 1 << (view % 64));
    let words: Vec<String> = words.iter().map(|word| format!("{word:#x}")).collect();
    let all = views.len() == plan.views.len();
    format!("{nvabi}::call::Views::new(&{table}, &[{}], {all})", words.join(", "))
}

/// What calls say came of them: a table by number, and constants of those that mean the same in all
/// drivers.
pub(super) fn statuses(text: &mut String, plan: &Plan<'_>, specs: &[&Spec], nvabi: &str) {
    let globs = Globs::new(specs.iter().flat_map(|spec| &spec.statuses).map(|s| s.name.as_str()));
    let mut rows: Vec<(u32, &str, String)> = Vec::new();
    for constant in plan.constants.iter().filter(|constant| globs.matches(&constant.name)) {
        if let Fact::Constant(value) = constant.fact {
            if let Ok(number) = u32::try_from(value) {
                rows.push((number, &constant.name, views(plan, &constant.views, nvabi, "TABLE")));
            }
        }
    }
    rows.sort();
    let _ = writeln!(
        text,
        "/// What calls say came of them, by number.\n\
         pub static STATUSES: &[{nvabi}::status::Row] = &["
    );
    for (number, name, views) in &rows {
        let _ = writeln!(text, "{nvabi}::status::Row::new({number:#x}, {name:?}, {views}),");
    }
    let _ = writeln!(text, "];\nimpl {nvabi}::NvStatus {{");
    let names: Vec<&str> = rows.iter().map(|(_, name, _)| *name).collect();
    for (number, name, _) in &rows {
        if names.iter().filter(|other| *other == name).count() == 1 {
            let _ = writeln!(text, "/// {number:#x}\npub const {name}: Self = Self({number:#x});");
        }
    }
    text.push_str("}\n");
}

fn handles(handles: &[Handle]) -> String {
    let handle = |handle: &Handle| {
        let Handle { field, means, when } = handle;
        let (field, when) = (self::field(field), self::when(when.as_ref()));
        format!(
            "nvabi::call::HandleRole {{ field: {field}, means: nvabi::call::HandleMeaning::{means:?}, \
             when: {when} }}"
        )
    };
    format!("&[{}]", handles.iter().map(handle).collect::<Vec<_>>().join(", "))
}

fn when(when: Option<&When>) -> String {
    match when {
        Some(When { field, value }) => {
            let (field, value) = (self::field(field), *value as u64);
            format!("Some(nvabi::call::When {{ field: {field}, value: {value} }})")
        }
        None => "None".to_owned(),
    }
}

/// The calls of each group, by number, and those of each view; they stand apart so that no module re-exports them.
pub(super) fn lists(text: &mut String, plan: &Plan<'_>, groups: &[Group], nvabi: &str) {
    text.push_str("mod calls {\n");
    for group in groups.iter().filter(|group| !group.calls.is_empty()) {
        let _ = writeln!(text, "pub mod {} {{", group.name);
        for (kind, calls) in &group.calls {
            let (list, section) = (list_name(*kind), kind.section());
            let _ = writeln!(
                text,
                "pub const {list}: &[&{nvabi}::call::Info] = {{\nuse super::super::layouts::{}::{section}::*;\n&[",
                group.name
            );
            for name in calls.iter().map(|id| ident(&plan.calls[*id].item.name)) {
                let _ = writeln!(text, "<{name} as {nvabi}::call::Call>::INFO,");
            }
            text.push_str("]\n};\n");
        }
        text.push_str("}\n");
    }
    for (number, view) in plan.views.iter().enumerate() {
        let name = view.module().to_uppercase();
        let _ =
            writeln!(text, "pub static {name}: {nvabi}::driver::Calls = {nvabi}::driver::Calls {{");
        for kind in ItemKind::ALL {
            let with = groups
                .iter()
                .filter(|group| group.views.contains(&number) && group.calls.contains_key(&kind));
            let lists: Vec<String> =
                with.map(|group| format!("{}::{}", group.name, list_name(kind))).collect();
            let _ = writeln!(text, "{}: &[{}],", kind.section(), lists.join(", "));
        }
        text.push_str("};\n");
    }
    text.push_str("}\n");
}

/// `FRONTEND`, `CONTROL`, …
pub(super) fn list_name(kind: ItemKind) -> String {
    kind.section().to_uppercase()
}

/// The table of every driver, its tags and the layouts of its types, as source.
pub(super) fn abi(text: &mut String, plan: &Plan<'_>, options: Options<'_>) {
    let (nvabi, known) = (options.nvabi, options.known);
    let _ = writeln!(text, "/// The drivers of this build: what the derive looks names up in.");
    let _ = writeln!(text, "pub static ABI: {nvabi}::check::Abi = {{");
    let _ = writeln!(
        text,
        "#[allow(unused_imports)] use {nvabi}::check::{{Driver as D, Field as F, Item as I, LayoutKind as K, Layout as L, Type as T}};"
    );
    let _ = writeln!(text, "{nvabi}::check::Abi {{ known: &{known:?}, drivers: &[");
    for driver in &plan.drivers {
        let tags: Vec<&str> = driver.tags.iter().map(|(tag, _)| tag.as_str()).collect();
        let (name, feature) = (&driver.name, &driver.feature);
        let _ =
            writeln!(text, "D {{ name: {name:?}, feature: {feature:?}, tags: &{tags:?}, items: &[");
        items(text, plan, driver);
        text.push_str("] },\n");
    }
    text.push_str("] }\n};\n");
}

/// What is done in the place of the resource manager's classes and commands: as the newest of the specs
/// has it.
pub(super) fn substitutes(text: &mut String, specs: &[&Spec], nvabi: &str) {
    let Some(spec) = specs.last().filter(|spec| !spec.substitutes.is_empty()) else { return };
    let _ = writeln!(
        text,
        "/// What is done in the place of the classes and commands of the x86 driver.\n\
         pub static SUBSTITUTES: &[{nvabi}::call::Substitute] = {{\n\
         use {nvabi}::call::{{AllocAction, ControlAction, Substitute, SubstituteAction}};\n&["
    );
    for Substitute { name, number, action } in &spec.substitutes {
        let action = match action {
            SubstituteAction::Alloc(action) => format!("Alloc(AllocAction::{action:?})"),
            SubstituteAction::Control(action) => format!("Control(ControlAction::{action:?})"),
        };
        let _ = writeln!(
            text,
            "Substitute {{ name: {name:?}, number: {number:#x}, action: SubstituteAction::{action} }},"
        );
    }
    text.push_str("]\n};\n");
}

/// The items of a driver by name, each with the tags at which its layout changes.
fn items(text: &mut String, plan: &Plan<'_>, driver: &Driver) {
    let mut by_name: BTreeMap<&str, BTreeMap<usize, Rc<str>>> = BTreeMap::new();
    let mut put = |name, views: &BTreeSet<usize>, layout: String| {
        let layout: Rc<str> = layout.into();
        let by_view: &mut BTreeMap<_, _> = by_name.entry(name).or_default();
        for view in views {
            by_view.entry(*view).or_insert_with(|| layout.clone());
        }
    };
    for (id, def) in plan.defs.iter().enumerate() {
        if let Some(layout) = layout(plan, id, driver) {
            put(&def.name, &def.views, layout);
        }
    }
    for call in &plan.calls {
        for (name, param) in &call.params {
            // `int` is no name of the driver's.
            if let (Param::Scalar { canonical, size }, false) = (param, builtin(name).is_some()) {
                put(name, &call.views, scalar_layout(name, canonical, *size, driver));
            }
        }
    }
    for (name, views) in &by_name {
        let mut events = String::new();
        let mut current: Option<&Rc<str>> = None;
        for (index, (_, view)) in driver.tags.iter().enumerate() {
            let layout = views.get(view);
            if layout != current {
                let _ = match layout {
                    Some(layout) => write!(events, "({index}, Some({layout})), "),
                    None => write!(events, "({index}, None), "),
                };
                current = layout;
            }
        }
        if !events.is_empty() {
            let _ = writeln!(text, "I {{ name: {name:?}, events: &[{events}] }},");
        }
    }
}

/// A definition's layout as source, from the root of the emitted code, with its place in the driver.
fn layout(plan: &Plan<'_>, id: usize, driver: &Driver) -> Option<String> {
    let def = &plan.defs[id];
    match &*def.fact {
        Fact::Record { .. } if ctypes::is_uuid(&def.name) => None,
        Fact::Record { .. } => {
            let layout = format!("layouts::{}::LAYOUT", path(plan, id));
            let own = def.branches.iter().find(|place| place.since.branch() == driver.name);
            Some(own.map_or(layout.clone(), |DefinedAt { source, since }| {
                format!("const {{ &L {{ since: \"{since}\", source: {source:?}, ..*{layout} }} }}")
            }))
        }
        Fact::Alias { ty, .. } => layout(plan, *def.uses.get(ty)?, driver),
        _ => None,
    }
}

/// The layout of a typedef of a builtin type, such as `NvHandle`.
fn scalar_layout(name: &str, canonical: &str, size: u64, driver: &Driver) -> String {
    let (element, dimensions) = ctypes::element(name, canonical, size, |_| ctypes::Named::Other);
    let align = element.align(|_| 1);
    let ty = types::check_array(types::check(&element, |_| String::new()), &dimensions);
    let since = driver.tags.first().map_or("", |(tag, _)| tag.as_str());
    format!(
        "&L {{ name: {name:?}, kind: K::Alias, size: {size}, align: {align}, since: {since:?}, \
         source: \"a typedef of a builtin type\", fields: &[F {{ name: \"\", offset: 0, ty: {ty} }}] }}"
    )
}
