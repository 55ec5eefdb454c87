//! Every ioctl, command and class of one tag, with its number and parameters.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use nvabi_pipeline::known::display::{self, Ioctl};
use nvabi_pipeline::model::{Access, CALLS, CallKind, CallParams, DIRECTIONS, Facts, request_size};
use nvabi_pipeline::spec::{Item, ItemKind, Spec};

use crate::terminal;

/// Cells beyond this stick out of their column.
const WIDEST: usize = 120;

/// One call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// The name of its number.
    pub name: String,
    /// `rm`, `uvm`, `modeset` or `drm`; none where a node tells more.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub surface: String,
    /// What the ioctl is made on, where the spec names nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The ioctl's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nr: Option<u64>,
    /// The ioctl's type byte; UVM has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub magic: Option<u64>,
    /// `none`, `read`, `write` or `readwrite`, from the caller's side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<&'static str>,
    /// Bytes of the parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The whole request, as it is passed to `ioctl`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<u64>,
    /// The control command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cmd: Option<u64>,
    /// The class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<u64>,
    /// The parameter types; where there are several the size of the call tells which.
    pub params: Vec<String>,
    /// Whether the parameters may be left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// How the parameters are known, or why they are not: see [`CallParams::how`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub how: Option<String>,
    /// Whom the driver lets make it, where its tables say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// The call that this is another name of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_as: Option<String>,
}

/// Every control command, or every class, by number and name.
pub fn calls(facts: &Facts, kind: &str) -> Vec<Listed> {
    let empty = BTreeMap::new();
    let all = facts.surfaces.get(CALLS).map_or(&empty, |surface| &surface.calls);
    let mut listed: Vec<Listed> = all
        .iter()
        .filter(|(_, call)| call.takes.kind.word() == kind)
        .map(|(name, call)| listed_call(facts, name, &call.takes))
        .collect();
    listed.sort_by(|a, b| (a.cmd, a.class, &a.name).cmp(&(b.cmd, b.class, &b.name)));
    listed
}

fn listed_call(facts: &Facts, name: &str, takes: &CallParams) -> Listed {
    let surface = "rm".to_owned();
    let number =
        facts.surfaces.get(&surface).and_then(|rm| unsigned(rm.constants.get(name)?.value));
    let (cmd, class) = if takes.kind == CallKind::Class { (None, number) } else { (number, None) };
    // What is no class of this driver has no parameters, whatever a header says of it.
    let params: Vec<String> = takes.params.iter().filter(|_| takes.is_mapped()).cloned().collect();
    Listed {
        name: name.to_owned(),
        size: params.first().and_then(|ty| size_of(facts, &surface, ty)),
        surface,
        cmd,
        class,
        params,
        optional: takes.optional,
        how: Some(takes.how.word().to_owned()),
        access: takes.access.clone(),
        same_as: takes.same_as.clone(),
        ..Listed::default()
    }
}

/// Every ioctl: those of the spec, and those of the display.
pub fn ioctls(facts: &Facts, spec: &Spec) -> Vec<Listed> {
    let mut listed: Vec<Listed> =
        spec.items_at(&facts.tag).filter_map(|item| listed_item(facts, item)).collect();
    let display = display::ioctls(facts);
    listed.extend(display.iter().map(|ioctl| listed_display(facts, ioctl)));
    let key = |call: &Listed| (call.surface.clone(), call.node.clone(), call.nr, call.name.clone());
    listed.sort_by_cached_key(key);
    listed
}

/// An ioctl whose number is the whole request.
fn listed_request(facts: &Facts, item: &Item) -> Option<Listed> {
    let constants = facts.surfaces.values().find_map(|s| s.constants.get(&item.name));
    let request = constants.map_or(item.number.map(u64::from), |c| unsigned(c.value))?;
    Some(Listed {
        name: item.name.clone(),
        node: item.node.as_ref().map(|node| node.name.clone()),
        params: item.params.iter().map(|named| named.name.clone()).collect(),
        ..parts(request)
    })
}

/// The calls of a tag that have a number: ioctls, their requests, commands and classes.
pub fn numbered(facts: &Facts, spec: &Spec, number: u64) -> BTreeSet<String> {
    let calls = ["command", "class"].into_iter().flat_map(|kind| calls(facts, kind));
    let all = calls.chain(ioctls(facts, spec));
    let has = |call: &Listed| [call.cmd, call.class, call.request, call.nr].contains(&Some(number));
    // Some commands have no constant in any header.
    let of_spec =
        spec.items_at(&facts.tag).filter(|item| item.number.map(u64::from) == Some(number));
    all.filter(has).map(|call| call.name).chain(of_spec.map(|item| item.name.clone())).collect()
}

/// What the bits of a request say.
fn parts(request: u64) -> Listed {
    Listed {
        nr: Some(request & 0xff),
        magic: Some(request >> 8 & 0xff),
        dir: Some(DIRECTIONS[(request >> 30 & 3) as usize]),
        size: Some(request_size(request)),
        request: Some(request),
        ..Listed::default()
    }
}

fn listed_item(facts: &Facts, item: &Item) -> Option<Listed> {
    let surface = match item.kind {
        ItemKind::Frontend => "rm",
        ItemKind::Uvm => "uvm",
        ItemKind::Ioctl => return listed_request(facts, item),
        ItemKind::Control | ItemKind::Class => return None,
    };
    let constant = |name: &str| unsigned(facts.surfaces.get(surface)?.constants.get(name)?.value);
    let nr = constant(&item.name).or(item.number.map(u64::from))?;
    let params: Vec<String> = item.params.iter().map(|named| named.name.clone()).collect();
    let size = params.last().and_then(|ty| size_of(facts, surface, ty)).unwrap_or(0);
    let magic = match item.kind {
        ItemKind::Frontend => constant("NV_IOCTL_MAGIC"),
        _ => None,
    };
    // A number of UVM is the request itself.
    let request = match magic {
        // An array is as long as the caller says, so the request has no one size.
        Some(_) if item.array => None,
        Some(magic) => Some(3 << 30 | size << 16 | magic << 8 | nr),
        None => Some(nr),
    };
    Some(Listed {
        name: item.name.clone(),
        surface: surface.to_owned(),
        nr: Some(nr),
        magic,
        dir: magic.map(|_| "readwrite"),
        size: Some(size),
        request,
        params,
        ..Listed::default()
    })
}

/// An ioctl of the display.
fn listed_display(facts: &Facts, ioctl: &Ioctl<'_>) -> Listed {
    let of = match ioctl.request() {
        Some(request) => parts(request),
        None => Listed {
            nr: unsigned(ioctl.number),
            size: ioctl.params.and_then(|ty| size_of(facts, ioctl.surface, ty)),
            ..Listed::default()
        },
    };
    Listed {
        name: ioctl.name.to_owned(),
        surface: ioctl.surface.to_owned(),
        params: ioctl.params.into_iter().map(str::to_owned).collect(),
        ..of
    }
}

fn size_of(facts: &Facts, surface: &str, ty: &str) -> Option<u64> {
    let surface = facts.surfaces.get(surface)?;
    let record = || Some(surface.records.get(ty)?.size);
    record().or_else(|| Some(surface.aliases.get(ty)?.size))
}

fn unsigned(value: i128) -> Option<u64> {
    u64::try_from(value).ok()
}

/// The list as a table, and how many calls there are.
pub fn text(listed: &[Listed]) -> String {
    let number = |call: &Listed| call.cmd.or(call.class).or(call.request).or(call.nr);
    let rows: Vec<[String; 6]> = listed
        .iter()
        .map(|call| {
            let how = call.how.clone().unwrap_or_default();
            let mut told = vec![how];
            told.extend(call.same_as.as_ref().map(|name| format!("is {name}")));
            told.extend(call.optional.then(|| "optional".to_owned()));
            let access = call.access.as_ref().map(Access::to_string);
            told.extend(access.map(|word| format!("for {word}")));
            told.retain(|word| !word.is_empty());
            let hex = number(call).map_or(String::new(), |number| format!("{number:#x}"));
            let size = call.size.map_or(String::new(), |size| size.to_string());
            let node = call.node.clone().unwrap_or_default();
            [hex, size, node, call.name.clone(), call.params.join(" | "), told.join(", ")]
        })
        .collect();
    let width = |i: usize| terminal::width(rows.iter().map(|row| row[i].as_str()), WIDEST);
    let (number, size, name, params) = (width(0), width(1), width(3), width(4));
    // The column of the nodes is there where there are any.
    let node = if width(2) == 0 { 0 } else { width(2) + 2 };
    let mut text = String::new();
    for [a, b, c, d, e, f] in &rows {
        let line = format!("{a:>number$}  {b:>size$}  {c:<node$}{d:<name$}  {e:<params$}  {f}");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// `1497 commands: 1325 by finn, …; not mapped: 23 no-evidence, …`.
pub fn summary(listed: &[Listed], what: &str) -> String {
    let mut counts: BTreeMap<(bool, &str), usize> = BTreeMap::new();
    for how in listed.iter().filter_map(|call| call.how.as_deref()) {
        *counts.entry((how.starts_with("no-"), how)).or_default() += 1;
    }
    let told = |missing: bool| {
        let some = counts.iter().filter(|((no, _), _)| *no == missing);
        some.map(|((_, how), count)| format!("{count} {how}")).collect::<Vec<_>>().join(", ")
    };
    let mut text = format!("{} {what}", listed.len());
    for (missing, before) in [(false, ": known by "), (true, "; not mapped: ")] {
        let told = told(missing);
        if !told.is_empty() {
            text.push_str(before);
            text.push_str(&told);
        }
    }
    text
}
