//! One call at one tag: its number, what it takes, and which fields are more than numbers.

use std::fmt::Write as _;

use nvabi_pipeline::diagnostic::Report;
use nvabi_pipeline::known::{self, display};
use nvabi_pipeline::lock::Lock;
use nvabi_pipeline::model::{Access, CALLS, CallParams, DIRECTIONS, Facts};
use nvabi_pipeline::plan::{self, Param};
use nvabi_pipeline::spec::{Item, ItemKind, Named, Spec, SpecPlace};
use serde::Serialize;

use crate::emit::{Detail, RoleKind, forms, request, roles_of};

/// A call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallInfo {
    /// The name of its number.
    pub name: String,
    /// Which table of the driver has it.
    pub kind: ItemKind,
    /// The ioctl's number, the command or the class.
    pub number: u64,
    /// What the ioctl is made on, where the spec names nodes.
    pub node: Option<String>,
    /// The device files of that node; `*` stands for any characters.
    pub paths: Vec<String>,
    /// What it takes: one form for each type; the size of the call tells which.
    pub forms: Vec<Form>,
    /// Whether a spec describes its fields; else nobody has looked for pointers and file descriptors.
    pub roles_known: bool,
    /// Whom the driver lets make it, where its tables say so.
    pub access: Option<Access>,
    /// Groups of capabilities that a container needs for it.
    pub capabilities: Vec<String>,
    /// First tag of the spec's description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// First tag that it no longer holds for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// What the spec says of it besides.
    pub note: Option<String>,
}

/// One type of parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Form {
    /// The type; `None` where the call takes nothing, or nothing tells what.
    pub params: Option<String>,
    /// Whether nothing tells what it takes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unmapped: bool,
    /// Bytes.
    pub size: u64,
    /// What is passed to `ioctl`, where it is one number.
    pub request: Option<u64>,
    /// Which way the request says that the data goes.
    pub direction: Option<&'static str>,
    /// Fields that hold file descriptors.
    pub fds: Vec<FieldInfo>,
    /// Fields that point to memory of the caller.
    pub pointers: Vec<FieldInfo>,
    /// Fields that name objects.
    pub handles: Vec<FieldInfo>,
}

/// A field that is more than a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldInfo {
    /// `a[].b`.
    pub field: String,
    /// Bytes from the start of the parameters, of the first element.
    pub offset: u64,
    /// Bytes of one element.
    pub size: u64,
    /// What else is known of it.
    #[serde(flatten)]
    pub detail: Detail,
}

/// A spec with the calls of one name at a tag alone: those that it names, or what the driver's own tables say.
pub fn narrowed(spec: &Spec, facts: &Facts, name: &str) -> Option<Spec> {
    let mut narrowed = spec.clone();
    narrowed.items.retain(|item| item.name == name && item.holds_at(&facts.tag));
    narrowed.extra_types.clear();
    narrowed.constants.clear();
    if narrowed.items.is_empty() {
        let place = spec.surfaces.first()?.place.clone();
        let of_tables = facts.surfaces.get(CALLS).and_then(|calls| calls.calls.get(name));
        narrowed.items.push(match of_tables.map(|call| &call.takes) {
            Some(takes) if known::is_in_driver(takes) => item_of(name, takes, place),
            Some(_) => return None,
            None => item_of_display(spec, facts, name, place)?,
        });
    }
    Some(narrowed)
}

/// What the driver's tables say of a call, as an item.
fn item_of(name: &str, takes: &CallParams, place: SpecPlace) -> Item {
    let params = takes.params.iter().filter(|_| takes.is_mapped());
    Item {
        params: params.map(|name| Named { name: name.clone(), place: place.clone() }).collect(),
        parameterless: takes.is_mapped() && takes.params.is_none(),
        roles_known: false,
        ..Item::new(known::kind(takes), name.to_owned(), place)
    }
}

/// What the display's headers say of one of its ioctls, as an item.
fn item_of_display(spec: &Spec, facts: &Facts, name: &str, place: SpecPlace) -> Option<Item> {
    let ioctl = display::ioctls(facts).into_iter().find(|ioctl| ioctl.name == name)?;
    let params = ioctl.params.map(|name| Named { name: name.to_owned(), place: place.clone() });
    Some(Item {
        parameterless: ioctl.is_mapped() && params.is_none(),
        params: params.into_iter().collect(),
        roles_known: false,
        node: spec.surface_node(ioctl.surface).cloned(),
        ..Item::new(ItemKind::Ioctl, name.to_owned(), place)
    })
}

/// The calls of a narrowed spec: `facts` has at least the closure of their types.
///
/// # Errors
///
/// Where the spec names what the facts do not have.
pub fn calls(spec: &Spec, facts: &Facts) -> Result<Vec<CallInfo>, Report> {
    let mut lock = Lock::default();
    lock.insert(facts, String::new());
    let specs = [spec];
    let plan = plan::plan(&lock, &specs, false)?;
    let told = facts.surfaces.get(CALLS).map(|surface| &surface.calls);
    let access = |call: &plan::Call<'_>| told?.get(&call.item.name)?.takes.access.as_ref();
    Ok(plan.calls.iter().map(|call| info(&plan, spec, call, access(call))).collect())
}

fn info(
    plan: &plan::Plan<'_>,
    spec: &Spec,
    call: &plan::Call<'_>,
    access: Option<&Access>,
) -> CallInfo {
    let item = call.item;
    let node = item.node.as_ref();
    let node = node.and_then(|named| spec.nodes.iter().find(|node| node.name == named.name));
    let number = (call.number & 0xffff_ffff) as u64;
    let form = |at: Option<usize>| {
        let size = at.map_or(0, |at| call.roles.sizes[at]);
        let request = request(item, number, size);
        let unmapped = at.is_none() && !item.parameterless && !item.roles_known;
        // The request of such a call is all that says how long it is.
        let by_request = request.filter(|_| unmapped).map(|request| request >> 16 & 0x3fff);
        let roles = at.map_or_else(Vec::new, |at| roles_of(call, at));
        let fields = |kind: RoleKind| {
            let of_kind = roles.iter().filter(|role| role.kind == kind);
            of_kind
                .map(|role| FieldInfo {
                    field: role.path.clone(),
                    offset: role.place.offset,
                    size: role.place.size,
                    detail: role.detail.clone(),
                })
                .collect()
        };
        Form {
            params: at.map(|at| match &call.params[at] {
                (_, Param::Def(id)) => plan.defs[*id].name.clone(),
                (name, Param::Scalar { .. }) => name.clone(),
            }),
            unmapped,
            size: by_request.unwrap_or(size),
            request,
            direction: request
                .filter(|_| item.kind != ItemKind::Uvm)
                .map(|request| DIRECTIONS[(request >> 30 & 3) as usize]),
            fds: fields(RoleKind::Fd),
            pointers: fields(RoleKind::Pointer),
            handles: fields(RoleKind::Handle),
        }
    };
    CallInfo {
        name: item.name.clone(),
        kind: item.kind,
        // The constants of these are requests, of which the number is a part.
        number: if item.kind == ItemKind::Ioctl { number & 0xff } else { number },
        node: node.map(|node| node.name.clone()),
        paths: node.map_or_else(Vec::new, |node| node.paths.clone()),
        forms: forms(call).map(form).collect(),
        roles_known: item.roles_known,
        access: access.cloned(),
        capabilities: item.caps.clone(),
        since: item.since.as_ref().map(ToString::to_string),
        until: item.until.as_ref().map(ToString::to_string),
        note: item.note.clone(),
    }
}

/// A call as a block of lines.
pub fn text(call: &CallInfo) -> String {
    let what = match call.kind {
        ItemKind::Control => "control command".to_owned(),
        ItemKind::Class => "allocation class".to_owned(),
        ItemKind::Ioctl if call.forms.iter().all(|form| form.request.is_none()) => {
            "named in the parameters of its node's one request".to_owned()
        }
        _ if call.paths.is_empty() => "ioctl".to_owned(),
        _ => format!("ioctl of {}", call.paths.join(" and ")),
    };
    let mut text = format!("{}: {what}, number {:#x}\n", call.name, call.number);
    let mut row = |label: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "    {label:<13} {value}");
        }
    };
    row("node", call.node.as_deref().unwrap_or_default());
    for form in &call.forms {
        match &form.params {
            Some(params) => row("parameters", &format!("{params}, {} bytes", form.size)),
            None if form.unmapped && form.size > 0 => {
                row("parameters", &format!("unknown, {} bytes by the request", form.size));
            }
            None if form.unmapped => row("parameters", "unknown"),
            None => row("parameters", "none"),
        }
        if let Some(request) = form.request {
            let direction = form.direction.map_or(String::new(), |word| format!(", {word}"));
            row("request", &format!("{request:#x}{direction}"));
        }
        row("fds", &fields(&form.fds));
        row("pointers", &fields(&form.pointers));
        row("handles", &fields(&form.handles));
    }
    let takes_something = call.forms.iter().any(|form| form.params.is_some() || form.unmapped);
    if !call.roles_known && takes_something {
        row("fields", "no spec describes them: pointers and file descriptors are unknown");
    }
    // The call's own code may refuse what the tables let through.
    let callers =
        call.access.as_ref().map(|it| format!("{}, by the driver's tables", it.callers()));
    row("callers", callers.as_deref().unwrap_or_default());
    row("capabilities", &call.capabilities.join(", "));
    row("since", call.since.as_deref().unwrap_or_default());
    row("until", call.until.as_deref().unwrap_or_default());
    row("note", call.note.as_deref().unwrap_or_default());
    text
}

fn fields(fields: &[FieldInfo]) -> String {
    let field = |field: &FieldInfo| {
        let place = format!("{} at {}", field.field, field.offset);
        match field.detail.text() {
            detail if detail.is_empty() => place,
            detail => format!("{place}: {detail}"),
        }
    };
    fields.iter().map(field).collect::<Vec<_>>().join("; ")
}
