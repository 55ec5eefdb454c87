//! Descriptions of the calls for syzkaller, in the language that its `syz-sysgen` reads: fds and handles are
//! resources, and each control command and allocation class is a call of its own.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;

use nvabi_pipeline::lock::Fact;
use nvabi_pipeline::model::RecordKind;
use nvabi_pipeline::plan::members::{Layout, Member};
use nvabi_pipeline::plan::roles::{Expression, Factor, Field, FieldPlace};
use nvabi_pipeline::plan::types::Element;
use nvabi_pipeline::plan::{Call, Def, DefId, Param};
use nvabi_pipeline::spec::{Direction, HandleMeaning, ItemKind, Spec};

use super::{File, Module, banner, forms, frontend_request, request};

pub(super) fn files(module: &Module<'_>, specs: &[&Spec]) -> Vec<File> {
    let fields = Fields::new(module);
    let devices = Devices::new(module, specs);
    let mut calls = String::new();
    let mut used = BTreeSet::new();
    let mut names = HashSet::new();
    // Of several tags, what is the same line is one call.
    let mut written = HashSet::new();
    for call in &module.plan.calls {
        let (kind, item) = (call.item.kind, call.item);
        if matches!(kind, ItemKind::Control | ItemKind::Class) {
            continue;
        }
        let fd = devices.resource(kind, item.node.as_ref().map(|node| node.name.as_str()));
        for form in forms(call) {
            let number = (call.number & 0xffff_ffff) as u64;
            let size = form.map_or(0, |form| call.roles.sizes[form]);
            // Its number is in what the one request of its node takes: nothing that is said of it here would be true.
            if kind == ItemKind::Ioctl && request(item, number, size).is_none() {
                let line = format!("# {}: number {number:#x} in the parameters\n", item.name);
                if written.insert(line.clone()) {
                    calls.push_str(&line);
                }
                continue;
            }
            // Of an array, one element.
            let cmd = request(item, number, size).unwrap_or(frontend_request(number, size));
            let arg = match form.map(|form| &call.params[form].1) {
                Some(param) => {
                    let way = way(kind, cmd);
                    format!("arg ptr[{way}, {}]", param_type(module, param, &mut used))
                }
                None => "arg const[0]".to_owned(),
            };
            let line = format!("(fd {fd}, cmd const[{cmd:#x}], {arg})");
            if written.insert(format!("{}{line}", item.name)) {
                let _ = writeln!(calls, "ioctl${}{line}", free(&mut names, &item.name));
            }
        }
    }
    let carried = carried(module, &fields, &devices, &mut used, &mut names);
    let types = definitions(module, &fields, &devices, used);
    let mut text = banner(module, "#");
    text.push_str(&devices.text(module, fields.makes_handles));
    text.push_str(&calls);
    text.push_str(&carried);
    text.push_str(&types);
    vec![File { name: format!("{}.txt", module.package), text }]
}

/// Which way the parameters go: the requests of UVM do not say it, and those of the frontend say both ways of all.
fn way(kind: ItemKind, request: u64) -> &'static str {
    match request >> 30 & 3 {
        1 if kind == ItemKind::Ioctl => "in",
        2 if kind == ItemKind::Ioctl => "out",
        _ => "inout",
    }
}

/// The type of a call's parameters; a record is noted as used.
fn param_type(module: &Module<'_>, param: &Param, used: &mut BTreeSet<DefId>) -> String {
    let id = match param {
        Param::Def(id) => behind_typedefs(module, *id),
        Param::Scalar { size, .. } => return format!("int{}", size * 8),
    };
    let def = &module.plan.defs[id];
    if let Fact::Alias { ty, size } = &*def.fact {
        let (element, dimensions) = module.plan.element(def, ty, ty, *size);
        let count: u64 = dimensions.iter().product();
        let element = element_type(module, def, &element, size.checked_div(count).unwrap_or(0));
        return if dimensions.is_empty() { element } else { format!("array[{element}, {count}]") };
    }
    used.insert(id);
    module.names[id].clone()
}

/// The type that a typedef names, through all of them.
fn behind_typedefs(module: &Module<'_>, id: DefId) -> DefId {
    let def = &module.plan.defs[id];
    match &*def.fact {
        Fact::Alias { ty, .. } => match def.uses.get(ty.as_str()) {
            Some(inner) => behind_typedefs(module, *inner),
            None => id,
        },
        _ => id,
    }
}

// --- What fields are ------------------------------------------------------------------------------

/// What is known of a field besides its bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    /// Of a handle: whether the call makes it.
    Handle {
        is_new: bool,
    },
    /// Of an fd: the node that it is then, where the call opens it.
    Fd {
        opens: Option<String>,
    },
    Pointer {
        direction: &'static str,
        unit: u64,
    },
    /// The count of what a pointer leads to, by the pointer's name.
    Length {
        of: String,
        in_bytes: bool,
    },
}

/// What is known of the fields of each type, by their names. Calls that disagree leave a number.
struct Fields {
    known: BTreeMap<(DefId, String), Option<Known>>,
    /// Whether any call makes one: where none does, handles are numbers.
    makes_handles: bool,
}

impl Fields {
    fn new(module: &Module<'_>) -> Self {
        let mut fields = Self { known: BTreeMap::new(), makes_handles: false };
        for call in &module.plan.calls {
            for (form, (_, param)) in call.params.iter().enumerate() {
                let Param::Def(id) = param else { continue };
                fields.call(module, call, form, behind_typedefs(module, *id));
            }
        }
        let is_made = |known: &Known| *known == Known::Handle { is_new: true };
        fields.makes_handles = fields.known.values().flatten().any(is_made);
        fields
    }

    fn call(&mut self, module: &Module<'_>, call: &Call<'_>, form: usize, id: DefId) {
        let mut put = |field: &Field, known: Known| {
            let place = field.places[form].as_ref();
            let Some(owner) = place.and_then(|place| owner(module, id, &field.path, place)) else {
                return;
            };
            let entry = self.known.entry(owner).or_insert_with(|| Some(known.clone()));
            if entry.as_ref() != Some(&known) {
                *entry = None;
            }
        };
        for fd in &call.roles.fds {
            let opens = call.item.opens.iter().find(|(field, _)| field.name == fd.path);
            let opens = opens.map(|(_, node)| node.name.clone());
            put(fd, Known::Fd { opens });
        }
        for handle in &call.roles.handles {
            if matches!(handle.means, HandleMeaning::Class | HandleMeaning::None) {
                continue;
            }
            let is_new = handle.means == HandleMeaning::New;
            put(&handle.field, Known::Handle { is_new });
        }
        for (pointer, spec) in call.roles.pointers.iter().zip(&call.item.pointers) {
            let direction = match spec.dir {
                Some(Direction::In) => "in",
                Some(Direction::Out) => "out",
                Some(Direction::InOut) | None => "inout",
            };
            let target = last(&pointer.field.path).to_owned();
            let has_length = pointer.len.as_ref().and_then(one_field);
            put(&pointer.field, Known::Pointer { direction, unit: pointer.unit });
            // What counts it is beside it: elsewhere the language has no words for it.
            if let Some(length) =
                has_length.filter(|length| folder(&length.path) == folder(&pointer.field.path))
            {
                put(length, Known::Length { of: target, in_bytes: pointer.unit == 1 });
            }
        }
    }

    fn of(&self, id: DefId, name: &str) -> Option<&Known> {
        self.known.get(&(id, name.to_owned()))?.as_ref()
    }
}

/// The field that a length is, where it is no more than that.
fn one_field(length: &Expression) -> Option<&Field> {
    match length.terms.as_slice() {
        [factors] => match factors.as_slice() {
            [Factor::Field(field)] => Some(field),
            _ => None,
        },
        _ => None,
    }
}

fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

fn folder(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(folder, _)| folder)
}

/// The type that declares a field, and the field's name there. The path tells which member of a union is meant.
fn owner(
    module: &Module<'_>,
    id: DefId,
    path: &str,
    place: &FieldPlace,
) -> Option<(DefId, String)> {
    let (mut id, mut at) = (id, place.offset);
    let mut names = path.split('.').map(|name| name.trim_end_matches("[]"));
    let mut wanted = names.next()?;
    loop {
        let def = &module.plan.defs[id];
        let layout = module.plan.layout(def)?;
        let covering = |member: &&Member<'_>| match member {
            Member::Field { field, .. } => {
                field.offset <= at && at < field.offset + field.size.max(1)
            }
            _ => false,
        };
        let has_name = |member: &&Member<'_>, name: &str| match member {
            Member::Field { field, .. } => field.name == name,
            _ => false,
        };
        let mut members = layout.members.iter().filter(covering);
        let named = members.clone().find(|member| has_name(member, wanted));
        // A record without a name is no part of a path.
        let Member::Field { field, element, dimensions, .. } =
            named.or_else(|| members.find(|member| has_name(member, "")))?
        else {
            return None;
        };
        if named.is_some() {
            match names.next() {
                Some(next) => wanted = next,
                None => return Some((id, field.name.clone())),
            }
        }
        let Element::Record(name) = element else { return None };
        let count: u64 = dimensions.iter().product();
        let each = field.size.checked_div(count.max(1)).filter(|each| *each > 0)?;
        (id, at) = (*def.uses.get(name)?, (at - field.offset) % each);
    }
}

// --- Devices --------------------------------------------------------------------------------------

/// The devices that calls are made on, and how a program gets an fd of each.
struct Devices {
    /// By node: the path to open, where there is one.
    nodes: BTreeMap<String, Option<String>>,
}

/// Where the x86 driver's calls without a node of their own are made.
const FRONTEND: (&str, &str) = ("nvidiactl", "/dev/nvidiactl");
const UVM: (&str, &str) = ("nvidia-uvm", "/dev/nvidia-uvm");

fn own_node(kind: ItemKind) -> Option<(&'static str, &'static str)> {
    match kind {
        ItemKind::Frontend | ItemKind::Control | ItemKind::Class => Some(FRONTEND),
        ItemKind::Uvm => Some(UVM),
        ItemKind::Ioctl => None,
    }
}

impl Devices {
    fn new(module: &Module<'_>, specs: &[&Spec]) -> Self {
        let mut nodes = BTreeMap::new();
        for call in &module.plan.calls {
            if let Some((node, path)) = own_node(call.item.kind) {
                nodes.insert(node.to_owned(), Some(path.to_owned()));
            }
            let opened = call.item.opens.iter().map(|(_, node)| node);
            for node in call.item.node.iter().chain(opened) {
                let known = specs.iter().flat_map(|spec| &spec.nodes);
                let mut paths =
                    known.filter(|known| known.name == node.name).flat_map(|n| &n.paths);
                let path = paths.find(|path| !path.contains('*')).cloned();
                nodes.entry(node.name.clone()).or_insert(path);
            }
        }
        // Of what is neither opened by a path nor by a call there is no fd of a kind.
        let opened: BTreeSet<&str> = module
            .plan
            .calls
            .iter()
            .flat_map(|call| call.item.opens.iter().map(|(_, node)| node.name.as_str()))
            .collect();
        // Nor is an fd of a kind where no call is made on it.
        let called = |node: &str| {
            [FRONTEND.0, UVM.0].contains(&node)
                || module
                    .plan
                    .calls
                    .iter()
                    .any(|call| call.item.node.as_ref().is_some_and(|own| own.name == node))
        };
        nodes.retain(|node, path| {
            (path.is_some() || opened.contains(node.as_str())) && called(node)
        });
        Self { nodes }
    }

    fn resource(&self, kind: ItemKind, node: Option<&str>) -> String {
        let node = own_node(kind).map(|(node, _)| node).or(node);
        node.map_or("fd".to_owned(), |node| self.of_node(node))
    }

    fn of_node(&self, node: &str) -> String {
        match self.nodes.contains_key(node) {
            true => fd_name(node),
            false => "fd".to_owned(),
        }
    }

    fn text(&self, module: &Module<'_>, makes_handles: bool) -> String {
        let mut text = String::from("\n");
        for node in self.nodes.keys() {
            let _ = writeln!(text, "resource {}[fd]", fd_name(node));
        }
        if makes_handles {
            text.push_str("resource nv_handle[int32]: 0\n");
        }
        text.push('\n');
        for (node, path) in
            self.nodes.iter().filter_map(|(node, path)| Some((node, path.as_ref()?)))
        {
            let _ = writeln!(
                text,
                "openat${}_{}(fd const[0xffffffffffffff9c], file ptr[in, string[\"{path}\"]], \
                 flags const[0x2], mode const[0]) {}",
                module.package,
                plain(node),
                fd_name(node)
            );
        }
        text.push('\n');
        text
    }
}

fn fd_name(node: &str) -> String {
    format!("fd_{}", plain(node))
}

fn plain(node: &str) -> String {
    node.replace('-', "_")
}

// --- Commands and classes -------------------------------------------------------------------------

/// An ioctl whose parameters name a command or a class, and point to its parameters.
struct Carrier {
    id: DefId,
    cmd: u64,
    number: String,
    pointer: String,
    length: Option<String>,
}

/// Of each kind, the carrier whose parameters are the longest.
fn carrier(module: &Module<'_>, kind: ItemKind) -> Option<Carrier> {
    let mut best: Option<(u64, Carrier)> = None;
    for call in module.plan.calls.iter().filter(|call| call.item.kind == ItemKind::Frontend) {
        for (form, (_, param)) in call.params.iter().enumerate() {
            let Param::Def(id) = param else { continue };
            let inner = call
                .roles
                .pointers
                .iter()
                .find(|pointer| pointer.call.as_ref().is_some_and(|inner| inner.kind == kind));
            let Some(pointer) = inner.filter(|pointer| pointer.field.places[form].is_some()) else {
                continue;
            };
            let number = pointer.call.as_ref().and_then(|inner| one_field(&inner.number));
            let Some(number) = number.filter(|number| number.places[form].is_some()) else {
                continue;
            };
            let direct = [&number.path, &pointer.field.path].iter().all(|path| !path.contains('.'));
            let size = call.roles.sizes[form];
            if !direct || best.as_ref().is_some_and(|(known, _)| *known >= size) {
                continue;
            }
            let length = pointer.len.as_ref().and_then(one_field);
            let length =
                length.filter(|field| field.places[form].is_some() && !field.path.contains('.'));
            let own = (call.number & 0xff) as u64;
            best = Some((
                size,
                Carrier {
                    id: *id,
                    cmd: request(call.item, own, size).unwrap_or(own),
                    number: number.path.clone(),
                    pointer: pointer.field.path.clone(),
                    length: length.map(|field| field.path.clone()),
                },
            ));
        }
    }
    best.map(|(_, carrier)| carrier)
}

/// A call for each command and class, and the templates of their carriers.
fn carried(
    module: &Module<'_>,
    fields: &Fields,
    devices: &Devices,
    used: &mut BTreeSet<DefId>,
    names: &mut HashSet<String>,
) -> String {
    let mut text = String::new();
    for kind in [ItemKind::Control, ItemKind::Class] {
        let calls: Vec<&Call<'_>> =
            module.plan.calls.iter().filter(|call| call.item.kind == kind).collect();
        let Some(carrier) = carrier(module, kind).filter(|_| !calls.is_empty()) else { continue };
        let fd = devices.resource(kind, None);
        let (mut rows, mut templates) = (String::new(), BTreeSet::new());
        for call in calls {
            for form in forms(call) {
                let number = call.number & 0xffff_ffff;
                let params = form.map(|form| param_type(module, &call.params[form].1, used));
                templates.insert(params.is_some());
                let arg = match params {
                    Some(params) => format!("nvabi_{kind}[{number:#x}, {params}]"),
                    None => format!("nvabi_{kind}_alone[{number:#x}]"),
                };
                let (name, cmd) = (free(names, &call.item.name), carrier.cmd);
                let _ = writeln!(
                    rows,
                    "ioctl${name}(fd {fd}, cmd const[{cmd:#x}], arg ptr[inout, {arg}])"
                );
            }
        }
        for has_params in templates {
            template(&mut text, module, (fields, devices), kind, &carrier, has_params);
        }
        used.extend(module.plan.defs[carrier.id].uses.values());
        text.push_str(&rows);
    }
    text
}

fn template(
    text: &mut String,
    module: &Module<'_>,
    known: (&Fields, &Devices),
    kind: ItemKind,
    carrier: &Carrier,
    has_params: bool,
) {
    let def = &module.plan.defs[carrier.id];
    let Some(layout) = module.plan.layout(def) else { return };
    let head = match has_params {
        true => format!("type nvabi_{kind}[NUMBER, PARAMS] {{"),
        false => format!("type nvabi_{kind}_alone[NUMBER] {{"),
    };
    let _ = writeln!(text, "\n{head}");
    for member in &layout.members {
        let own = match member {
            Member::Field { name, field, .. } if *name == carrier.number => {
                Some(format!("const[NUMBER, int{}]", field.size * 8))
            }
            Member::Field { name, .. } if *name == carrier.pointer => Some(match has_params {
                true => "ptr64[inout, PARAMS]".to_owned(),
                false => "const[0, int64]".to_owned(),
            }),
            Member::Field { name, field, .. } if Some(name) == carrier.length.as_ref() => {
                let bits = field.size * 8;
                Some(match has_params {
                    true => format!("bytesize[{}, int{bits}]", carrier.pointer),
                    false => format!("const[0, int{bits}]"),
                })
            }
            _ => None,
        };
        match own {
            Some(ty) => {
                let _ = writeln!(text, "\t{}\t{ty}", member_name(member));
            }
            None => member_line(text, module, known, carrier.id, member, false),
        }
    }
    let _ = writeln!(text, "}} [packed]\n");
}

// --- Types ----------------------------------------------------------------------------------------

/// The types that calls use, and those that they are made of.
fn definitions(
    module: &Module<'_>,
    fields: &Fields,
    devices: &Devices,
    used: BTreeSet<DefId>,
) -> String {
    let mut reached = BTreeSet::new();
    let mut open: Vec<DefId> = used.into_iter().collect();
    while let Some(id) = open.pop() {
        let def = &module.plan.defs[id];
        let Some(layout) = module.plan.layout(def).filter(|_| reached.insert(id)) else { continue };
        let inner = layout.members.iter().filter_map(|member| match member {
            Member::Field { element: Element::Record(name), bytes: false, .. } => {
                def.uses.get(name)
            }
            _ => None,
        });
        open.extend(inner.copied());
    }
    let mut text = String::new();
    for id in reached {
        let def = &module.plan.defs[id];
        let Some(layout) = module.plan.layout(def) else { continue };
        definition(&mut text, module, (fields, devices), id, &layout);
    }
    text
}

fn definition(
    text: &mut String,
    module: &Module<'_>,
    known: (&Fields, &Devices),
    id: DefId,
    layout: &Layout<'_>,
) {
    let def = &module.plan.defs[id];
    let is_union = layout.kind == RecordKind::Union;
    let (open, close) = if is_union { ('[', ']') } else { ('{', '}') };
    let _ = writeln!(
        text,
        "\n# {}: {} ({})\n{} {open}",
        def.name, def.place.source, def.place.since, module.names[id]
    );
    let members = layout.members.iter();
    for member in members.filter(|member| !is_union || !matches!(member, Member::Padding { .. })) {
        member_line(text, module, known, id, member, is_union);
    }
    if layout.size == 0 {
        text.push_str("\tnothing\tarray[const[0, int8], 0]\n");
    }
    let attributes = if is_union { format!("size[{}]", layout.size) } else { "packed".to_owned() };
    let _ = writeln!(text, "{close} [{attributes}]");
}

fn member_name<'m>(member: &'m Member<'_>) -> &'m str {
    match member {
        Member::Padding { name, .. } | Member::Bits { name, .. } | Member::Field { name, .. } => {
            name
        }
    }
}

fn member_line(
    text: &mut String,
    module: &Module<'_>,
    (fields, devices): (&Fields, &Devices),
    id: DefId,
    member: &Member<'_>,
    in_union: bool,
) {
    let def = &module.plan.defs[id];
    let bytes = |count: u64| format!("array[int8, {count}]");
    let mut attribute = "";
    let ty = match member {
        Member::Padding { size, .. } => format!("array[const[0, int8], {size}]"),
        Member::Bits { size, int: true, .. } => format!("int{}", size * 8),
        Member::Bits { size, .. } => bytes(*size),
        Member::Field { field, bytes: true, .. } => bytes(field.size),
        Member::Field { field, element, dimensions, .. } => {
            let count: u64 = dimensions.iter().product();
            let each = field.size.checked_div(count).unwrap_or(0);
            let element = match fields.of(id, &field.name) {
                Some(known) => {
                    let (ty, direction) = known_type(fields, devices, known, each);
                    attribute = direction;
                    // What comes out cannot be said of a member of a union.
                    match in_union && matches!(direction, "\t(out)" | "\t(inout)") {
                        true => {
                            attribute = "";
                            format!("int{}", each * 8)
                        }
                        false => ty,
                    }
                }
                None => element_type(module, def, element, each),
            };
            match dimensions.is_empty() {
                true => element,
                false => format!("array[{element}, {count}]"),
            }
        }
    };
    let _ = writeln!(text, "\t{}\t{ty}{attribute}", ident(member_name(member)));
}

/// The type of a field that is more than a number, and its direction.
fn known_type(
    fields: &Fields,
    devices: &Devices,
    known: &Known,
    size: u64,
) -> (String, &'static str) {
    let bits = size * 8;
    match known {
        Known::Handle { .. } if !fields.makes_handles || size != 4 => (format!("int{bits}"), ""),
        Known::Handle { is_new: true } => ("nv_handle".to_owned(), "\t(inout)"),
        Known::Handle { is_new: false } => ("nv_handle".to_owned(), "\t(in)"),
        // A resource has 32 bits.
        Known::Fd { .. } if size != 4 => (format!("int{bits}"), ""),
        Known::Fd { opens: Some(node) } => (devices.of_node(node), "\t(out)"),
        Known::Fd { opens: None } => ("fd".to_owned(), "\t(in)"),
        Known::Pointer { direction, unit } => (
            match unit {
                0 | 1 => format!("ptr64[{direction}, array[int8]]"),
                _ => format!("ptr64[{direction}, array[array[int8, {unit}]]]"),
            },
            "",
        ),
        Known::Length { of, in_bytes: true } => (format!("bytesize[{of}, int{bits}]"), ""),
        Known::Length { of, .. } => (format!("len[{of}, int{bits}]"), ""),
    }
}

fn element_type(module: &Module<'_>, def: &Def, element: &Element, each: u64) -> String {
    match element {
        Element::Int { size: size @ (1 | 2 | 4 | 8), .. } | Element::Enum { size } => {
            format!("int{}", size * 8)
        }
        Element::Char => "int8".to_owned(),
        Element::Handle => "int32".to_owned(),
        Element::P64 => "int64".to_owned(),
        Element::Record(name) => match module.used(def, name) {
            Some(name) => name.to_owned(),
            None => format!("array[int8, {each}]"),
        },
        Element::Uuid | Element::Float { .. } | Element::Bytes(_) | Element::Int { .. } => {
            format!("array[int8, {each}]")
        }
    }
}

/// A member's name; some are words of the language.
fn ident(name: &str) -> String {
    match name {
        "define" | "incdir" | "include" | "parent" | "resource" | "syscall" => format!("{name}_"),
        _ => name.to_owned(),
    }
}

/// A name that no call has yet.
fn free(names: &mut HashSet<String>, name: &str) -> String {
    if names.insert(name.to_owned()) {
        return name.to_owned();
    }
    let mut numbered = (2..).map(|at| format!("{name}_{at}"));
    numbered.find(|name| names.insert(name.clone())).unwrap_or_default()
}
