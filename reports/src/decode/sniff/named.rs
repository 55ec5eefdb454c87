//! A caught call with its names: what was asked, every field of it, and how it ended.

use std::fmt;

use nix::errno::Errno;
use serde::Serialize;

use super::super::value::{self, Inner, Member, Value};
use super::event::{Event, Ioctl, Piece, What};
use super::objects::Objects;
use super::parts::{Part, parts};
use super::tables::{Family, Tables};
use nvabi_pipeline::model::{RecordKind, hex};
use nvabi_pipeline::spec::ItemKind;

/// Fields of one call that are told; more are counted.
const FIELDS: usize = 2048;
/// Elements of an array of structs that are taken apart.
const ELEMENTS: usize = 64;

/// A call with its names.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Named {
    /// Nanoseconds from the start of the program to the call.
    pub time: u64,
    /// Who made it.
    pub process: u32,
    /// Which of its threads.
    pub thread: u32,
    /// `ioctl`, `open`, `close` or `mmap`.
    pub call: &'static str,
    /// The file descriptor that it was made on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fd: Option<i32>,
    /// The path behind that, or the path that was opened.
    pub path: String,
    /// The node, by its name in the specs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// How the node is known: `path`, `open`, `ioctl`, `request` or `device`.
    pub how: &'static str,
    /// The whole request of an ioctl.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<u32>,
    /// The request that it carries, as `NV_ESC_IOCTL_XFER_CMD` does; all names are of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carries: Option<u32>,
    /// The constant in the headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The type of the argument.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<String>,
    /// The command or class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
    /// Every field of the argument and of what its pointers lead to.
    pub fields: Vec<Field>,
    /// The driver's status, where the call has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// What the kernel returned; none where it failed, or where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<i64>,
    /// The error, where it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Nanoseconds until it returned; none where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<u64>,
    /// What else there is to say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What the parameters of a call name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DetailKind {
    /// A control command.
    Command,
    /// An allocation class.
    Class,
}

impl fmt::Display for DetailKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Command => "command",
            Self::Class => "class",
        })
    }
}

/// A command or class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Detail {
    /// Which of the two.
    pub kind: DetailKind,
    /// Its number.
    pub number: u32,
    /// The constant in the headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// One field.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Field {
    /// Such as `hClient`, or `params->bufferSize` behind a pointer.
    pub name: String,
    /// What it held when the call was made.
    pub value: Value,
    /// What it held when the call returned, where that is something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// What that stands for: a class, a command, a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub says: Option<String>,
}

impl Field {
    /// What it held last.
    pub fn last(&self) -> &Value {
        self.after.as_ref().unwrap_or(&self.value)
    }

    fn number(&self) -> Option<u32> {
        match self.last() {
            Value::Number(number) | Value::Named { value: number, .. } => {
                u32::try_from(*number).ok()
            }
            _ => None,
        }
    }
}

/// What the driver says of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The number.
    pub value: u32,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Status {
    /// The name, else the number.
    pub fn text(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("{:#x}", self.value))
    }
}

impl Named {
    /// Whether it is known to have failed, by the kernel's word or the driver's.
    pub fn failure(&self) -> Option<String> {
        let refused = self.status.as_ref().filter(|status| status.value != 0);
        self.error.clone().or_else(|| refused.map(Status::text))
    }

    fn field(&self, name: &str) -> Option<&Field> {
        let is_it = |field: &&Field| {
            field.name == name
                || field.name.strip_prefix("params.").is_some_and(|rest| rest == name)
        };
        // Behind the pointer of a carried call.
        let carried = |field: &&Field| field.name.strip_prefix("ptr->") == Some(name);
        self.fields.iter().find(is_it).or_else(|| self.fields.iter().find(carried))
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.field(name)?.number()
    }
}

/// Names calls in the order in which they were made.
#[derive(Debug, Default)]
pub struct Namer {
    objects: Objects,
}

impl Namer {
    /// A call with its names.
    pub fn name(&mut self, tables: &Tables, event: &Event) -> Named {
        let mut named = bare(event);
        if let What::Ioctl(ioctl) = &event.what {
            self.ioctl(tables, ioctl, &mut named);
        }
        named
    }

    fn ioctl(&mut self, tables: &Tables, ioctl: &Ioctl, named: &mut Named) {
        let node = &*ioctl.file.node;
        let before =
            |address, length| bytes_at(&ioctl.pieces, address, length, |p| Some(&p.before));
        let mut memory = |address, length| before(address, length).unwrap_or_default().to_vec();
        let found = parts(tables, node, ioctl.request, ioctl.argument, &mut memory);
        let Some(asked) = found.asked else {
            named.notes = tables.notes(node, ioctl.request);
            return raw(ioctl, named);
        };
        let request = found.carries.unwrap_or(ioctl.request);
        named.name = Some(asked.name.to_owned());
        named.notes = tables.notes(node, request);
        named.params = asked.params_of(request).map(str::to_owned);
        named.carries = found.carries;
        named.detail = found.details.first().map(|found| Detail {
            kind: match found.kind {
                ItemKind::Class => DetailKind::Class,
                _ => DetailKind::Command,
            },
            number: found.number,
            name: found.name.map(str::to_owned),
        });
        let mut handles = Vec::new();
        for part in &found.parts {
            fields(asked.family, part, ioctl, named, &mut handles);
        }
        if found.parts.first().is_none_or(|part| part.prefix.is_empty() && part.ty.is_none()) {
            raw(ioctl, named);
        }
        named.status = status(asked.family, named);
        let done = named.result == Some(0) && named.status.as_ref().is_none_or(|s| s.value == 0);
        if done {
            self.learn(asked.family, named);
        }
        self.say(asked.family, ioctl, named, &handles);
        if done && asked.name == "NV_ESC_RM_FREE" {
            if let (Some(client), Some(object)) =
                (named.number("hRoot"), named.number("hObjectOld"))
            {
                self.objects.forget(client, object);
            }
        }
    }

    /// Takes in what a call has allocated.
    fn learn(&mut self, family: &Family, named: &Named) {
        let client = named.number("hRoot").or_else(|| named.number("hClient"));
        if named.name.as_deref() == Some("NV_ESC_RM_DUP_OBJECT") {
            let from = named.number("hClientSrc").zip(named.number("hObjectSrc"));
            let class = from.and_then(|(client, handle)| self.objects.class(client, handle));
            let class = class.map(str::to_owned);
            let numbers = (client, named.number("hObject"), named.number("hParent"), class);
            if let (Some(client), Some(new), Some(parent), Some(class)) = numbers {
                self.objects.learn(client, new, &class, parent);
            }
            return;
        }
        if let Some(memory) = named.number("data.AllocSize.hMemory").filter(|memory| *memory != 0) {
            let parent = named.number("hObjectParent").unwrap_or(0);
            if let Some(client) = client {
                self.objects.learn(client, memory, "NV01_MEMORY_LOCAL_USER", parent);
            }
            return;
        }
        let numbers = (named.number("hObjectNew"), named.number("hClass"));
        let (Some(new), Some(class)) = numbers else { return };
        let name = match family.numbered(ItemKind::Class, class) {
            Some(known) => known.name.clone(),
            None => format!("{class:#x}"),
        };
        // The client is an object of its own.
        let is_client = name.starts_with("NV01_ROOT");
        let client = if is_client { new } else { client.unwrap_or(0) };
        self.objects.learn(client, new, &name, named.number("hObjectParent").unwrap_or(0));
    }

    /// Says what numbers stand for.
    fn say(&self, family: &Family, ioctl: &Ioctl, named: &mut Named, handles: &[usize]) {
        let own = named.number("hRoot").or_else(|| named.number("hClient"));
        let name = named.name.clone().unwrap_or_default();
        let new = named.number("hObjectNew");
        // A new client is named by itself.
        let client = own.filter(|client| *client != 0).or(new).unwrap_or(0);
        let foreign = named.number("hClientSrc");
        let detail = named.detail.clone();
        for (at, field) in named.fields.iter_mut().enumerate() {
            let Some(number) = field.number() else { continue };
            let last = last_part(&field.name);
            let of_class = || Some(family.numbered(ItemKind::Class, number)?.name.clone());
            field.says = match last {
                "hClass" => of_class(),
                "cmd" => {
                    detail.as_ref().filter(|d| d.number == number).and_then(|d| d.name.clone())
                }
                "function" if name == "NV_ESC_RM_VID_HEAP_CONTROL" => function(family, number),
                "hClientSrc" => self.objects.class(number, number).map(str::to_owned),
                "hObjectSrc" => {
                    let class = self.objects.class(foreign.unwrap_or(client), number);
                    class.map(str::to_owned)
                }
                _ if is_status(&field.name) => family.status(number).map(str::to_owned),
                _ if handles.contains(&at) && number != 0 => {
                    let class = self.objects.class(client, number);
                    class.or_else(|| self.objects.class(number, number)).map(str::to_owned)
                }
                _ => None,
            };
        }
        self.say_fds(ioctl, named);
    }

    fn say_fds(&self, ioctl: &Ioctl, named: &mut Named) {
        for field in &mut named.fields {
            let last = last_part(&field.name).to_lowercase();
            let is_fd = last.ends_with("fd") || last.ends_with("descriptor");
            let (true, Value::Number(number)) = (is_fd && field.says.is_none(), field.last())
            else {
                continue;
            };
            let file = ioctl.fds.iter().find(|(fd, _)| i128::from(*fd) == *number);
            field.says = file.map(|(_, file)| file.path.to_string());
        }
    }
}

/// What is known of a call without any names.
fn bare(event: &Event) -> Named {
    let file = event.file();
    let (call, fd, request) = match &event.what {
        What::Open { .. } => ("open", None, None),
        What::Close { fd, .. } => ("close", Some(*fd), None),
        What::Map { fd, .. } => ("mmap", Some(*fd), None),
        What::Ioctl(ioctl) => ("ioctl", Some(ioctl.fd), Some(ioctl.request)),
    };
    let number = |name: &str, value: u64| Field {
        name: name.to_owned(),
        value: Value::Number(value.into()),
        after: None,
        says: None,
    };
    let fields = match &event.what {
        What::Open { flags, .. } => {
            vec![Field { says: Some(open_flags(*flags)), ..number("flags", *flags) }]
        }
        What::Map { length, offset, .. } => {
            vec![number("length", *length), number("offset", *offset)]
        }
        _ => Vec::new(),
    };
    let error = event.result.filter(|result| (-4095..0).contains(result));
    Named {
        time: event.time,
        process: event.process,
        thread: event.thread,
        call,
        fd,
        path: file.path.to_string(),
        node: Some(file.node.to_string()).filter(|node| !node.is_empty()),
        how: file.how.name(),
        request,
        carries: None,
        name: None,
        params: None,
        detail: None,
        fields,
        status: None,
        result: event.result.filter(|_| error.is_none()),
        error: error.map(|error| errno(-error)),
        duration: event.duration,
        notes: Vec::new(),
    }
}

/// The flags of `open`, by their names.
fn open_flags(flags: u64) -> String {
    const NAMES: [(u64, &str); 8] = [
        (0o100, "O_CREAT"),
        (0o200, "O_EXCL"),
        (0o400, "O_NOCTTY"),
        (0o1000, "O_TRUNC"),
        (0o2000, "O_APPEND"),
        (0o4000, "O_NONBLOCK"),
        (0o2_000_000, "O_CLOEXEC"),
        (0o10_000_000, "O_PATH"),
    ];
    let access = ["O_RDONLY", "O_WRONLY", "O_RDWR", "O_ACCMODE"][(flags & 3) as usize];
    let named = NAMES.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name);
    std::iter::once(access).chain(named).collect::<Vec<_>>().join("|")
}

/// The name of an error; a call that a signal interrupted has one that only the kernel knows.
fn errno(number: i64) -> String {
    match number {
        512 => "ERESTARTSYS".to_owned(),
        513 => "ERESTARTNOINTR".to_owned(),
        514 => "ERESTARTNOHAND".to_owned(),
        516 => "ERESTART_RESTARTBLOCK".to_owned(),
        _ => match Errno::from_raw(number as i32) {
            Errno::UnknownErrno => format!("errno {number}"),
            known => format!("{known:?}"),
        },
    }
}

/// The bytes that were kept of an address.
pub(super) fn bytes_at(
    pieces: &[Piece],
    address: u64,
    length: u64,
    which: impl Fn(&Piece) -> Option<&Vec<u8>>,
) -> Option<&[u8]> {
    let longest = pieces.iter().filter(|piece| piece.address == address);
    let piece = longest.max_by_key(|piece| piece.before.len())?;
    let bytes = which(piece)?;
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
    Some(&bytes[..length])
}

/// The fields of one piece of memory.
fn fields(
    family: &Family,
    part: &Part<'_>,
    ioctl: &Ioctl,
    named: &mut Named,
    handles: &mut Vec<usize>,
) {
    let whole = |which: fn(&Piece) -> Option<&Vec<u8>>| {
        bytes_at(&ioctl.pieces, part.address, part.length, which)
    };
    let before = whole(|piece| Some(&piece.before)).unwrap_or_default();
    let after = whole(|piece| piece.after.as_ref());
    if (before.len() as u64) < part.length {
        let of = if part.prefix.is_empty() {
            "the argument"
        } else {
            part.prefix.trim_end_matches("->")
        };
        named.notes.push(format!("{} of {} bytes of {of} were read", before.len(), part.length));
    }
    let Some(ty) = part.ty else {
        return named.fields.push(bytes_field(part.prefix.trim_end_matches("->"), before, after));
    };
    let Some(size) = family.size(ty).and_then(|size| usize::try_from(size).ok()).filter(|s| *s > 0)
    else {
        return;
    };
    let function = chosen(family, ty, before);
    let mut out = Leaves { named, handles, function };
    if value::record(&family.facts, ty).is_none() {
        return out.scalars(ty, part, size, before, after);
    }
    let count = before.len().div_ceil(size);
    for (at, chunk) in before.chunks(size).enumerate().take(ELEMENTS) {
        // What was cut off is nothing that could be told.
        let chunk_after =
            after.as_ref().and_then(|after| after.get(at * size..at * size + chunk.len()));
        let decoded = value::decode(&family.facts, ty, chunk);
        let decoded_after = chunk_after.and_then(|bytes| value::decode(&family.facts, ty, bytes));
        let Some(decoded) = decoded else { continue };
        let array = part.prefix.trim_end_matches("->");
        let prefix = match (count, array) {
            (..=1, _) => part.prefix.clone(),
            (_, "") => format!("[{at}]."),
            (_, array) => format!("{array}[{at}]."),
        };
        out.inner(&prefix, &decoded.inner, decoded_after.as_ref().map(|d| &d.inner));
    }
    if count > ELEMENTS {
        out.named.notes.push(format!("{} more elements of {ty}", count - ELEMENTS));
    }
}

/// A request that nobody knows, by its bytes.
fn raw(ioctl: &Ioctl, named: &mut Named) {
    if let Some(piece) = ioctl.pieces.first() {
        named.fields.push(bytes_field("argument", &piece.before, piece.after.as_deref()));
    }
}

fn bytes_field(name: &str, before: &[u8], after: Option<&[u8]>) -> Field {
    let value = |bytes: &[u8]| Value::Bytes(value::digits(bytes));
    let after = after.filter(|after| *after != before).map(value);
    Field { name: name.to_owned(), value: value(before), after, says: None }
}

/// The function that the resource manager's oldest call is asked for, which says what its union holds.
fn chosen(family: &Family, ty: &str, bytes: &[u8]) -> Option<String> {
    let (at, size) = family.place(ty, "function").filter(|_| ty == "NVOS32_PARAMETERS")?;
    let number = bytes.get(at..at.checked_add(size)?)?.try_into().ok()?;
    let name = function(family, u32::from_le_bytes(number))?;
    Some(plain(name.strip_prefix("NVOS32_FUNCTION_")?))
}

/// A name but for case and underscores.
fn plain(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}

/// Takes structs apart.
struct Leaves<'n> {
    named: &'n mut Named,
    handles: &'n mut Vec<usize>,
    /// Which member a union holds, where that is known.
    function: Option<String>,
}

impl Leaves<'_> {
    /// Numbers that stand alone, or in a row.
    fn scalars(
        &mut self,
        ty: &str,
        part: &Part<'_>,
        size: usize,
        before: &[u8],
        after: Option<&[u8]>,
    ) {
        let name = match part.prefix.trim_end_matches("->") {
            "" => ty,
            name => name,
        };
        let number = |bytes: &[u8]| {
            let mut wide = [0; 16];
            let length = bytes.len().min(16);
            wide[..length].copy_from_slice(&bytes[..length]);
            Value::Number(i128::from_le_bytes(wide))
        };
        let list = |bytes: &[u8]| match bytes.len() == size {
            true => number(bytes),
            false => Value::List(bytes.chunks(size).map(number).collect()),
        };
        let after = after.filter(|after| *after != before).map(list);
        self.add(Field { name: name.to_owned(), value: list(before), after, says: None }, ty);
    }

    fn add(&mut self, field: Field, ty: &str) {
        if self.named.fields.len() >= FIELDS {
            return;
        }
        if ty == "NvHandle" {
            self.handles.push(self.named.fields.len());
        }
        self.named.fields.push(field);
    }

    fn inner(&mut self, prefix: &str, before: &Inner, after: Option<&Inner>) {
        if before.kind == RecordKind::Union {
            // Its members show the same bytes: where nobody says which it is, the largest shows them all.
            let said = self.function.as_deref();
            let is_said = |member: &Member| said.is_some_and(|said| plain(&member.name) == said);
            let of_size = before.fields.iter().enumerate().rev().max_by_key(|(_, m)| m.size);
            let largest = of_size.map(|(at, _)| at);
            let Some(at) = before.fields.iter().position(is_said).or(largest) else { return };
            return self.member(prefix, &before.fields[at], after.and_then(|a| a.fields.get(at)));
        }
        for (at, member) in before.fields.iter().enumerate() {
            self.member(prefix, member, after.and_then(|after| after.fields.get(at)));
        }
    }

    fn member(&mut self, prefix: &str, member: &Member, after: Option<&Member>) {
        let name = format!("{prefix}{}", member.name);
        let after = after.map(|after| &after.value);
        match &member.value {
            Value::Record(inner) => {
                let prefix =
                    if member.name.is_empty() { prefix.to_owned() } else { format!("{name}.") };
                let after = match after {
                    Some(Value::Record(after)) => Some(after),
                    _ => None,
                };
                self.inner(&prefix, inner, after);
            }
            Value::List(items) if items.iter().any(|item| matches!(item, Value::Record(_))) => {
                for (at, item) in items.iter().enumerate().take(ELEMENTS) {
                    let after = match after {
                        Some(Value::List(after)) => after.get(at),
                        _ => None,
                    };
                    if let (Value::Record(inner), after) = (item, after) {
                        let after = match after {
                            Some(Value::Record(after)) => Some(after),
                            _ => None,
                        };
                        self.inner(&format!("{name}[{at}]."), inner, after);
                    }
                }
                if items.len() > ELEMENTS {
                    self.named
                        .notes
                        .push(format!("{} more elements of {name}", items.len() - ELEMENTS));
                }
            }
            value => {
                let after = after.filter(|after| *after != value).cloned();
                let field = Field { name, value: value.clone(), after, says: None };
                self.add(field, &member.ty);
            }
        }
    }
}

/// The last part of a path such as `params->a.b`.
pub(super) fn last_part(path: &str) -> &str {
    // By bytes: every field of every call comes by here.
    let before = path.bytes().rposition(|byte| matches!(byte, b'.' | b'>'));
    before.map_or(path, |at| &path[at + 1..])
}

pub(super) fn is_status(name: &str) -> bool {
    let last = last_part(name);
    last.eq_ignore_ascii_case("status") || last == "rmStatus"
}

/// What the driver says of a call: it is known only once the call has returned.
fn status(family: &Family, named: &Named) -> Option<Status> {
    // Of a call that the kernel refused, nothing is copied back.
    if named.result.is_none() || !family.tag.family().is_empty() {
        return None;
    }
    let own = |field: &&Field| {
        is_status(&field.name) && !field.name.trim_start_matches("ptr->").contains("->")
    };
    let field = named.fields.iter().find(own)?;
    let value = field.number()?;
    Some(Status { value, name: family.status(value).map(str::to_owned) })
}

/// What the resource manager's oldest call is asked for.
fn function(family: &Family, number: u32) -> Option<String> {
    const PREFIX: &str = "NVOS32_FUNCTION_";
    let constants = &family.facts.surfaces.get("rm")?.constants;
    let own = constants.range(PREFIX.to_owned()..).take_while(|(name, _)| name.starts_with(PREFIX));
    let mut named = own.filter(|(_, constant)| constant.value == i128::from(number));
    named.next().map(|(name, _)| name.clone())
}

/// A value in short.
pub(super) fn shown(value: &Value) -> String {
    /// Elements of an array that are shown.
    const FEW: usize = 8;
    match value {
        Value::Number(number) => hex(*number),
        Value::Named { name, .. } => name.clone(),
        Value::Text(text) => format!("{text:?}"),
        Value::Bytes(digits) => match digits.len() {
            0 => "none".to_owned(),
            1..=64 => format!("0x{digits}"),
            length => format!("0x{}… ({} bytes)", &digits[..64], length / 2),
        },
        Value::List(items) => {
            let used =
                items.iter().rposition(|item| *item != Value::Number(0)).map_or(0, |at| at + 1);
            let few: Vec<String> = items[..used].iter().take(FEW).map(shown).collect();
            let more = if used > FEW || used < items.len() { ", …" } else { "" };
            match used {
                0 => format!("[0; {}]", items.len()),
                _ => format!("[{}{more}; {}]", few.join(", "), items.len()),
            }
        }
        Value::Record(_) => String::new(),
    }
}
