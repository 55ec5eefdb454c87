//! Descriptions of the calls for syzkaller, in the language that its `syz-sysgen` reads: fds and handles are
//! resources, and each control command and allocation class is a call of its own.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;

use nvabi_pipeline::diagnostic::Diagnostic;
use nvabi_pipeline::lock::Fact;
use nvabi_pipeline::model::{RecordKind, request_size};
use nvabi_pipeline::plan::members::{Layout, Member};
use nvabi_pipeline::plan::roles::{Expression, Factor, Field, FieldPlace};
use nvabi_pipeline::plan::types::Element;
use nvabi_pipeline::plan::{Call, Def, DefId, Param};
use nvabi_pipeline::spec::{Direction, HandleMeaning, Item, ItemKind, Node, Pointer, Spec};

use crate::decode::NVKMS_ARGUMENT;
use crate::ranges::RequestedName;

use super::{File, Module, banner, forms, frontend_request, node_of, request};

/// What the names of the mode setter's calls begin with.
const MODESET: &str = "NVKMS_IOCTL_";

/// The objects that others are below: without them few commands reach anything.
const OBJECTS: [&str; 3] = ["NV01_ROOT", "NV01_DEVICE_0", "NV20_SUBDEVICE_0"];

/// What the chosen calls cannot be described without: of commands and classes, the ioctls whose parameters name
/// them, and the objects that they are made on; of the mode setter's calls, the parameters of its one request.
pub(super) fn needed(specs: &[&Spec], chosen: &[Spec]) -> BTreeSet<String> {
    let items = || chosen.iter().flat_map(|spec| &spec.items);
    let mut kinds: BTreeSet<ItemKind> = items().map(|item| item.kind).collect();
    kinds.retain(|kind| matches!(kind, ItemKind::Control | ItemKind::Class));
    let mut names = BTreeSet::new();
    if !kinds.is_empty() {
        kinds.insert(ItemKind::Class);
        names.extend(OBJECTS.map(str::to_owned));
    }
    let carries = |pointer: &Pointer| match &pointer.call {
        // A call that one command alone is made by has that one's name here.
        Some((kind, number)) => kinds.contains(kind) && !is_item(specs, number),
        None => false,
    };
    let carriers = specs.iter().flat_map(|spec| &spec.items);
    let carriers = carriers.filter(|item| item.pointers.iter().any(carries));
    names.extend(carriers.map(|item| item.name.clone()));
    names.extend(items().any(is_of_modeset).then(|| NVKMS_ARGUMENT.to_owned()));
    names
}

fn is_item(specs: &[&Spec], name: &str) -> bool {
    specs.iter().flat_map(|spec| &spec.items).any(|item| item.name == name)
}

/// The file; `asked` are the items of a list, where there is one.
///
/// # Errors
///
/// Where nothing that is asked for is a call.
pub(super) fn files(
    module: &Module<'_>,
    specs: &[&Spec],
    asked: Option<&[RequestedName]>,
) -> Result<Vec<File>, Diagnostic> {
    let mut text = banner(module, "#");
    if module.plan.calls.is_empty() {
        let message = "syzkaller describes calls, and none of the items is one";
        let diagnostic = Diagnostic::error("emit-no-call", message);
        return Err(diagnostic.help("name a call that takes them, such as NV_ESC_RM_FREE"));
    }
    let fields = Fields::new(module);
    let devices = Devices::new(module, specs, &fields);
    let mut used = BTreeSet::new();
    let mut names = HashSet::new();
    let calls = requests(module, &devices, &mut used, &mut names);
    let carried = carried(module, &fields, &devices, &mut used, &mut names);
    let reached = closure(module, used.into_iter().collect(), |_| true);
    let asked = asked.into_iter().flatten().map(|asked| asked.name.as_str());
    for name in asked.filter(|name| !is_described(module, &reached, name)) {
        let _ = writeln!(text, "# Left out, for no call here takes it: {name}");
    }
    text.push_str(&devices.text(module, fields.makes_handles));
    text.push_str(&calls);
    text.push_str(&carried);
    text.push_str(&definitions(module, &fields, &devices, &reached));
    Ok(vec![File { name: format!("{}.txt", module.package), text }])
}

/// Whether a name is a call's, or that of a type that one takes.
fn is_described(module: &Module<'_>, reached: &BTreeSet<DefId>, name: &str) -> bool {
    // What a pattern stands for is not looked at one by one.
    name.contains('*')
        || module.plan.calls.iter().any(|call| call.item.name == name)
        || reached.iter().any(|id| module.plan.defs[*id].ident == name)
}

/// The calls that have a request of their own.
fn requests(
    module: &Module<'_>,
    devices: &Devices,
    used: &mut BTreeSet<DefId>,
    names: &mut HashSet<String>,
) -> String {
    let mut text = String::new();
    // Of several tags, what is the same line is one call.
    let mut written = HashSet::new();
    for call in &module.plan.calls {
        let (kind, item) = (call.item.kind, call.item);
        if matches!(kind, ItemKind::Control | ItemKind::Class) {
            continue;
        }
        let fd = devices.of_item(item);
        for form in forms(call) {
            let number = (call.number & 0xffff_ffff) as u64;
            let size = form.map_or(0, |form| call.roles.sizes[form]);
            // Its number is in what the one request of its node takes.
            if kind == ItemKind::Ioctl && request(item, number, size).is_none() {
                continue;
            }
            // Of an array, one element.
            let cmd = request(item, number, size).unwrap_or(frontend_request(number, size));
            let way = way(kind, cmd);
            let (unknown, arg) = match form.map(|form| &call.params[form].1) {
                Some(param) => {
                    let file = devices.of_scalar(item, param);
                    let ty = file.unwrap_or_else(|| param_type(module, param, used));
                    (false, format!("arg ptr[{way}, {ty}]"))
                }
                None if is_unmapped(item) && request_size(cmd) > 0 => {
                    (true, format!("arg ptr[{way}, array[int8, {}]]", request_size(cmd)))
                }
                None => (false, "arg const[0]".to_owned()),
            };
            let line = format!("(fd {fd}, cmd const[{cmd:#x}], {arg})");
            if written.insert(format!("{}{line}", item.name)) {
                if unknown {
                    let _ = writeln!(text, "# {}: nothing tells what is in its bytes", item.name);
                }
                let _ = writeln!(text, "ioctl${}{line}", free(names, &item.name));
            }
        }
    }
    text
}

/// Whether a call without parameters has some, and nothing tells which.
fn is_unmapped(item: &Item) -> bool {
    !item.parameterless && !item.roles_known
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
    /// Of an fd: whether the call makes it, and the node that it is of.
    Fd {
        is_new: bool,
        node: Option<String>,
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

/// Bytes of a resource.
const FD_SIZE: u64 = 4;

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
            let opened = node_of(&call.item.opens, &fd.path);
            let (is_new, file) = (opened.is_some(), node_of(&call.item.files, &fd.path));
            put(fd, Known::Fd { is_new, node: opened.or(file) });
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

    /// The nodes of the fds that some call makes, or that one takes.
    fn nodes(&self, module: &Module<'_>, made: bool) -> BTreeSet<&str> {
        let known = self.known.iter().filter_map(|((id, field), known)| match known {
            Some(Known::Fd { is_new, node: Some(node) }) if *is_new == made => {
                Some((*id, field, node.as_str()))
            }
            _ => None,
        });
        let outside_unions = outside_unions(module);
        let is_written = |id: DefId, name: &str| {
            let layout = module.plan.layout(&module.plan.defs[id]);
            layout.is_some_and(|layout| {
                let mut members = layout.members.iter();
                let size = members.find_map(|member| match member {
                    Member::Field { field, .. } if field.name == name => Some(field.size),
                    _ => None,
                });
                size == Some(FD_SIZE) && (!made || outside_unions.contains(&id))
            })
        };
        known.filter(|(id, field, _)| is_written(*id, field)).map(|(.., node)| node).collect()
    }

    fn of(&self, id: DefId, name: &str) -> Option<&Known> {
        self.known.get(&(id, name.to_owned()))?.as_ref()
    }
}

/// The records of parameters that no union is around: from others the language takes nothing that comes back.
fn outside_unions(module: &Module<'_>) -> BTreeSet<DefId> {
    let params = module.plan.calls.iter().flat_map(|call| &call.params);
    let records = params.filter_map(|(_, param)| match param {
        Param::Def(id) => Some(behind_typedefs(module, *id)),
        Param::Scalar { .. } => None,
    });
    closure(module, records.collect(), |layout| layout.kind != RecordKind::Union)
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

/// The nodes that calls are made on or take an fd of, and how a program gets one of each.
struct Devices {
    /// By name.
    nodes: BTreeMap<String, Device>,
}

struct Device {
    /// To open: `#` stands for a number.
    paths: Vec<String>,
    /// Another node, all of whose files it may be.
    parent: Option<String>,
    /// Whether a call takes an fd of it, and not just of any of its parent's files.
    is_taken: bool,
}

impl Devices {
    fn new(module: &Module<'_>, specs: &[&Spec], fields: &Fields) -> Self {
        let scalar = |item: &Item| node_of(&item.files, ".");
        let mut taken: BTreeSet<String> = BTreeSet::new();
        for call in &module.plan.calls {
            taken.extend(
                call.item.node.iter().map(|node| node.name.clone()).chain(scalar(call.item)),
            );
        }
        taken.extend(fields.nodes(module, false).into_iter().map(str::to_owned));
        let made = fields.nodes(module, true);
        let known: BTreeMap<&str, &Node> = (specs.iter().flat_map(|spec| &spec.nodes))
            .map(|node| (node.name.as_str(), node))
            .collect();
        let is_within = |node: &Node, of: &Node| {
            node.name != of.name
                && !node.paths.is_empty()
                && node.paths.iter().all(|path| of.paths.contains(path))
        };
        let mut nodes = BTreeMap::new();
        for node in known.values() {
            let parent = known.values().find(|of| is_within(node, of));
            let parent = parent.filter(|of| taken.contains(&of.name)).map(|of| of.name.clone());
            let has_kinds = known.values().any(|other| is_within(other, node));
            let mut paths: Vec<String> =
                node.paths.iter().filter_map(|path| openable(path)).collect();
            if has_kinds {
                paths.clear();
            }
            let is_taken = taken.contains(&node.name);
            // Of what is neither opened by a path nor by a call there is no fd of a kind.
            let is_had = has_kinds || !paths.is_empty() || made.contains(node.name.as_str());
            if is_had && (is_taken || parent.is_some()) {
                nodes.insert(node.name.clone(), Device { paths, parent, is_taken });
            }
        }
        Self { nodes }
    }

    /// The fd that a call is made on.
    fn of_item(&self, item: &Item) -> String {
        self.of_node(item.node.as_ref().map(|node| node.name.as_str()))
    }

    fn of_node(&self, node: Option<&str>) -> String {
        match node.and_then(|node| Some((node, self.nodes.get(node)?))) {
            Some((node, device)) if device.is_taken => fd_name(node),
            Some((_, Device { parent: Some(parent), .. })) => fd_name(parent),
            _ => "fd".to_owned(),
        }
    }

    /// The type of parameters that are no more than an fd of 32 bits.
    fn of_scalar(&self, item: &Item, param: &Param) -> Option<String> {
        let is_fd = item.fds.iter().any(|fd| fd.name == ".") && item.opens.is_empty();
        let is_number = matches!(param, Param::Scalar { size: FD_SIZE, .. });
        (is_fd && is_number).then(|| self.of_node(node_of(&item.files, ".").as_deref()))
    }

    fn text(&self, module: &Module<'_>, makes_handles: bool) -> String {
        let mut text = String::from("\n");
        for (node, device) in self.nodes.iter().filter(|(_, device)| device.is_taken) {
            let parent = self.of_node(device.parent.as_deref());
            let _ = writeln!(text, "resource {}[{parent}]", fd_name(node));
        }
        if makes_handles {
            text.push_str("resource nv_handle[int32]: 0\n");
        }
        text.push('\n');
        let mut names = HashSet::new();
        for (node, device) in &self.nodes {
            for path in &device.paths {
                let name = free(&mut names, &format!("{}_{}", module.package, plain(node)));
                let fd = self.of_node(Some(node));
                let _ = match path.contains('#') {
                    true => writeln!(
                        text,
                        "syz_open_dev${name}(dev ptr[in, string[\"{path}\"]], id intptr[0:9], flags const[0x2]) {fd}",
                    ),
                    false => writeln!(
                        text,
                        "openat${name}(fd const[0xffffffffffffff9c], file ptr[in, string[\"{path}\"]], \
                         flags const[0x2], mode const[0]) {fd}",
                    ),
                };
            }
        }
        text.push('\n');
        text
    }
}

/// A path as `syz_open_dev` takes it, which puts digits for each `#`, or one without a pattern.
fn openable(path: &str) -> Option<String> {
    match path.split_once('*') {
        None => Some(path.to_owned()),
        // The kernel counts them from 128.
        Some((start, "")) if start.ends_with("/renderD") => Some(format!("{start}12#")),
        Some((start, "")) => Some(format!("{start}#")),
        Some(_) => None,
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
struct Carrier<'m> {
    item: &'m Item,
    id: DefId,
    cmd: u64,
    number: String,
    pointer: String,
    length: Option<String>,
}

/// Of each kind, the carrier whose parameters are the longest.
fn carrier<'m>(module: &'m Module<'_>, kind: ItemKind) -> Option<Carrier<'m>> {
    let mut best: Option<(u64, Carrier<'_>)> = None;
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
                    item: call.item,
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

/// What carries the calls of the mode setter.
fn modeset_carrier<'m>(module: &'m Module<'_>) -> Option<Carrier<'m>> {
    let item = module.plan.calls.iter().map(|call| call.item).find(|item| is_of_modeset(item))?;
    let id = module.plan.defs.iter().position(|def| def.name == NVKMS_ARGUMENT)?;
    let size = module.plan.layout(&module.plan.defs[id])?.size;
    Some(Carrier {
        item,
        id,
        cmd: 3 << 30 | size << 16 | u64::from(b'm') << 8,
        number: "cmd".to_owned(),
        pointer: "address".to_owned(),
        length: Some("size".to_owned()),
    })
}

fn is_of_modeset(item: &Item) -> bool {
    item.kind == ItemKind::Ioctl && item.name.starts_with(MODESET)
}

/// A call for each command, class and call of the mode setter, and the templates of their carriers.
fn carried(
    module: &Module<'_>,
    fields: &Fields,
    devices: &Devices,
    used: &mut BTreeSet<DefId>,
    names: &mut HashSet<String>,
) -> String {
    let mut text = String::new();
    for (what, carrier) in [
        ("control", carrier(module, ItemKind::Control)),
        ("class", carrier(module, ItemKind::Class)),
        ("modeset", modeset_carrier(module)),
    ] {
        let is_carried = |item: &Item| match what {
            "modeset" => is_of_modeset(item),
            _ => item.kind.section() == what,
        };
        let calls: Vec<&Call<'_>> =
            module.plan.calls.iter().filter(|call| is_carried(call.item)).collect();
        let Some(carrier) = carrier.filter(|_| !calls.is_empty()) else { continue };
        let fd = devices.of_item(carrier.item);
        let (mut rows, mut templates) = (String::new(), BTreeSet::new());
        for call in calls {
            for form in forms(call) {
                let number = call.number & 0xffff_ffff;
                let (name, cmd) = (free(names, &call.item.name), carrier.cmd);
                let mut params = form.map(|form| param_type(module, &call.params[form].1, used));
                if params.is_none() && is_unmapped(call.item) {
                    let _ = writeln!(rows, "# {name}: nothing tells what it takes");
                    params = Some("array[int8]".to_owned());
                }
                templates.insert(params.is_some());
                let arg = match params {
                    Some(params) => format!("nvabi_{what}[{number:#x}, {params}]"),
                    None => format!("nvabi_{what}_alone[{number:#x}]"),
                };
                let _ = writeln!(
                    rows,
                    "ioctl${name}(fd {fd}, cmd const[{cmd:#x}], arg ptr[inout, {arg}])"
                );
            }
        }
        for has_params in templates {
            template(&mut text, module, (fields, devices), what, &carrier, has_params);
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
    what: &str,
    carrier: &Carrier<'_>,
    has_params: bool,
) {
    let def = &module.plan.defs[carrier.id];
    let Some(layout) = module.plan.layout(def) else { return };
    let head = match has_params {
        true => format!("type nvabi_{what}[NUMBER, PARAMS] {{"),
        false => format!("type nvabi_{what}_alone[NUMBER] {{"),
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

/// Records and those that they are made of, where they are of a kind that is wanted.
fn closure(
    module: &Module<'_>,
    mut open: Vec<DefId>,
    is_wanted: impl Fn(&Layout<'_>) -> bool,
) -> BTreeSet<DefId> {
    let mut reached = BTreeSet::new();
    while let Some(id) = open.pop() {
        let def = &module.plan.defs[id];
        let layout = module.plan.layout(def).filter(&is_wanted);
        let Some(layout) = layout.filter(|_| reached.insert(id)) else { continue };
        let inner = layout.members.iter().filter_map(|member| match member {
            Member::Field { element: Element::Record(name), bytes: false, .. } => {
                def.uses.get(name)
            }
            _ => None,
        });
        open.extend(inner.copied());
    }
    reached
}

fn definitions(
    module: &Module<'_>,
    fields: &Fields,
    devices: &Devices,
    reached: &BTreeSet<DefId>,
) -> String {
    let mut text = String::new();
    for id in reached {
        let def = &module.plan.defs[*id];
        let Some(layout) = module.plan.layout(def) else { continue };
        definition(&mut text, module, (fields, devices), *id, &layout);
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
        Known::Fd { .. } if size != FD_SIZE => (format!("int{bits}"), ""),
        Known::Fd { is_new, node } => {
            let direction = if *is_new { "\t(out)" } else { "\t(in)" };
            (devices.of_node(node.as_deref()), direction)
        }
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
