//! A call and everything it points to, in one buffer.

use super::field::{self, FieldPlace, Form};
use super::visit::{self, Fd, HandleField, PointerField};
use super::{Error, Limits, Memory};
use crate::call::{CallKind, Direction, FdRole, HandleRole, Info, InnerCall, Pointer};
use crate::driver::AnyDriver;

/// What a request begins with; the number is that of the format.
const REQUEST: [u8; 4] = *b"nvq\x01";
const REPLY: [u8; 4] = *b"nvp\x01";

/// A request's head: what it begins with, kind, number and size of the parameters, 4 bytes each.
const HEAD: usize = 16;

/// `NVOS54_FLAGS_FINN_SERIALIZED`: the parameters are a FINN message, not the command's struct.
const FINN_SERIALIZED: u64 = 4;

/// Where parts begin: as the driver's own types would have it.
const ALIGN: usize = 8;

/// A call with its parameters and all that they point to.
///
/// The addresses in it are the caller's, except while [`Message::call`] runs.
#[derive(Debug, Clone)]
pub struct Message {
    info: &'static Info,
    bytes: Vec<u8>,
    /// The parameters first; what a part points to comes after it.
    parts: Vec<Part>,
}

/// A piece of the caller's memory.
#[derive(Debug, Clone)]
struct Part {
    /// In the caller's memory.
    address: u64,
    /// In the message.
    at: usize,
    len: usize,
    direction: Direction,
    /// Where in the message the pointer to it is; the parameters have none.
    pointer: Option<FieldPlace>,
    content: Content,
    /// How much of it comes back, where the driver says so.
    filled: Option<Filled>,
}

/// What a part is: the parameters of a call, or elements behind one of its pointers.
#[derive(Debug, Clone, Copy)]
struct Content {
    call: &'static Info,
    behind: Option<&'static Pointer>,
    /// None where there are no roles to look for.
    form: Option<Form>,
}

impl Content {
    fn fds(&self) -> &'static [FdRole] {
        self.behind.map_or(self.call.fds, |pointer| pointer.fds)
    }

    fn pointers(&self) -> &'static [Pointer] {
        self.behind.map_or(self.call.pointers, |pointer| pointer.pointers)
    }

    fn handles(&self) -> &'static [HandleRole] {
        self.behind.map_or(self.call.handles, |pointer| pointer.handles)
    }
}

/// Where the driver says how much of a part it has filled.
#[derive(Debug, Clone, Copy)]
struct Filled {
    role: &'static Pointer,
    /// The record that the pointer is in: its form, its place, and which of its places it is.
    form: Form,
    at: usize,
    index: (usize, usize),
}

impl Part {
    fn goes(&self) -> bool {
        self.direction != Direction::Out
    }

    fn comes_back(&self) -> bool {
        self.direction != Direction::In
    }

    fn range(&self) -> std::ops::Range<usize> {
        self.at..self.at + self.len
    }
}

/// Copies a call with everything it points to out of the caller's memory: `size` bytes of parameters
/// at `address`.
///
/// A null pointer stays one whatever its length says, and one that is not stays so where the length
/// is 0: what the driver makes of either, it answers itself.
///
/// # Errors
///
/// When the call or one inside of it is unknown or has parameters of another size or in FINN's form,
/// when it exceeds the limits, and when memory cannot be read.
pub fn marshal(
    driver: &AnyDriver,
    info: &'static Info,
    address: u64,
    size: usize,
    memory: &impl Memory,
    limits: Limits,
) -> Result<Message, Error> {
    collect(driver, info, (address, size), limits, &mut |address, to| {
        let bytes = to.len();
        memory.read(address, to).map_err(|source| Error::Memory { address, bytes, source })
    })
}

/// Makes a call of what [`Message::request`] gave, on the side that has the device. What the driver
/// writes alone is zero.
///
/// # Errors
///
/// As [`marshal`], and when the bytes are no request, or not exactly one.
pub fn unmarshal(driver: &AnyDriver, request: &[u8], limits: Limits) -> Result<Message, Error> {
    let (head, rest) = request
        .split_at_checked(HEAD)
        .ok_or(Error::Message { at: request.len(), why: "it ends before its head does" })?;
    let word = |i: usize| [head[4 * i], head[4 * i + 1], head[4 * i + 2], head[4 * i + 3]];
    let number = |i| u32::from_le_bytes(word(i));
    if word(0) != REQUEST {
        return Err(Error::Message { at: 0, why: "it is no request" });
    }
    let kind =
        *KINDS.get(number(1) as usize).ok_or(Error::Message { at: 4, why: "no such kind" })?;
    let info = find(driver, kind, number(2))?;
    let mut left = rest;
    let message = collect(driver, info, (0, number(3) as usize), limits, &mut |_, to| {
        let at = request.len() - left.len();
        let (now, later) = left
            .split_at_checked(to.len())
            .ok_or(Error::Message { at, why: "it ends before what it points to" })?;
        to.copy_from_slice(now);
        left = later;
        Ok(())
    })?;
    match left {
        [] => Ok(message),
        more => Err(Error::Message { at: request.len() - more.len(), why: "it goes on" }),
    }
}

/// The order of [`CallKind`] in a request.
const KINDS: [CallKind; 5] =
    [CallKind::Frontend, CallKind::Uvm, CallKind::Control, CallKind::Class, CallKind::Ioctl];

fn find(driver: &AnyDriver, kind: CallKind, number: u32) -> Result<&'static Info, Error> {
    driver.calls().find(kind, number).ok_or(Error::Unknown { kind, number })
}

/// A control command that no header has and that the driver hands on to the GPU's processor (GSP), which reaches no
/// memory of the caller's: its parameters are bytes, as many as the call says.
static FOR_GSP: Info = Info {
    name: "control command for the GSP",
    kind: CallKind::Control,
    number: 0,
    params: &[],
    sizes: &[],
    array: false,
    roles_known: true,
    fds: &[],
    handles: &[],
    pointers: &[],
    caps: &[],
    node: "",
};

/// Whether a command is one of these: those with the bit RM_GSS_LEGACY_MASK (`RmGssLegacyRpcCmd`), and those of the
/// classes NV2081_BINAPI and NV2082_BINAPI_PRIVILEGED (`binapiControl_IMPL`).
fn is_for_gsp(command: u32) -> bool {
    command & 0x8000 != 0 || [0x2081, 0x2082].contains(&(command >> 16))
}

/// Fills a part from its address in the caller's memory.
type Fill<'f> = dyn FnMut(u64, &mut [u8]) -> Result<(), Error> + 'f;

fn collect(
    driver: &AnyDriver,
    info: &'static Info,
    (address, size): (u64, usize),
    limits: Limits,
    fill: &mut Fill<'_>,
) -> Result<Message, Error> {
    let content = Content { call: info, behind: None, form: visit::form(info, size)? };
    let direction = info.request().and_then(|request| request.direction());
    let direction = direction.unwrap_or(Direction::InOut);
    let mut message = Message { info, bytes: Vec::new(), parts: Vec::new() };
    let root =
        Target { address, len: size as u64, direction, content, pointer: None, filled: None };
    message.push(root, ("", info.name), limits, fill)?;
    let mut next = 0;
    let mut targets = Vec::new();
    while let Some(part) = message.parts.get(next) {
        let content = part.content;
        if let Some(form) = content.form.filter(|_| !content.pointers().is_empty()) {
            if !limits.opaque {
                message.without_opaque(content, form, next)?;
            }
            message.targets(driver, content, form, next, limits, &mut targets)?;
            for (target, field) in targets.drain(..) {
                message.push(target, (field, content.call.name), limits, fill)?;
            }
        }
        next += 1;
    }
    Ok(message)
}

/// What a pointer points to, not yet looked at.
struct Target {
    address: u64,
    len: u64,
    direction: Direction,
    content: Content,
    pointer: Option<FieldPlace>,
    filled: Option<Filled>,
}

impl Message {
    /// Takes up a part, with its bytes where they go to the driver.
    fn push(
        &mut self,
        target: Target,
        (field, call): (&'static str, &'static str),
        limits: Limits,
        fill: &mut Fill<'_>,
    ) -> Result<(), Error> {
        let at = self.bytes.len().next_multiple_of(ALIGN);
        let bytes = target.len.saturating_add(at as u64);
        let end = usize::try_from(bytes).ok().filter(|end| *end <= limits.bytes);
        let Some(end) = end.filter(|_| self.parts.len() < limits.parts) else {
            return Err(Error::TooLarge { call, field, bytes });
        };
        self.bytes.resize(end, 0);
        let Target { address, direction, content, pointer, filled, .. } = target;
        let part = Part { address, at, len: end - at, direction, pointer, content, filled };
        // Where there is nothing to read, the address need not lead anywhere.
        if part.goes() && part.len > 0 {
            fill(address, &mut self.bytes[at..end])?;
        }
        self.parts.push(part);
        Ok(())
    }

    /// An opaque address would be taken for one of the process that makes the call. Where one only comes
    /// back, what is there before is none, and stays behind.
    fn without_opaque(&mut self, content: Content, form: Form, part: usize) -> Result<(), Error> {
        let mut given = None;
        let bytes = &mut self.bytes[self.parts[part].range()];
        visit::visit_pointers(content.pointers(), form, bytes, |pointer| {
            let role = pointer.role();
            match role.direction {
                _ if !role.opaque || pointer.get() == 0 => {}
                Some(Direction::Out) => pointer.set(0),
                _ => given = Some(role.field.path),
            }
        });
        match given {
            Some(field) => Err(Error::Opaque { call: content.call.name, field }),
            None => Ok(()),
        }
    }

    /// Finds what the pointers of one part point to; of more than there may be, enough to tell.
    fn targets(
        &self,
        driver: &AnyDriver,
        content: Content,
        form: Form,
        part: usize,
        limits: Limits,
        found: &mut Vec<(Target, &'static str)>,
    ) -> Result<(), Error> {
        let part = &self.parts[part];
        let size = form.size.max(1);
        for (record, bytes) in self.bytes[part.range()].chunks_exact(size).enumerate() {
            let at = part.at + record * size;
            if found.len() > limits.parts {
                break;
            }
            for role in content.pointers().iter().filter(|role| !role.opaque) {
                let places = field::places(form, &role.field);
                let count = places.len();
                for (i, place) in places.enumerate() {
                    let index = (i, count);
                    let address = field::get(bytes, place).unwrap_or(0);
                    if address == 0 || !field::holds(form, bytes, role.when.as_ref(), index) {
                        continue;
                    }
                    let (len, content) = behind(driver, content.call, role, (form, bytes, index))?;
                    let target = Target {
                        address,
                        len,
                        direction: role.direction.unwrap_or(Direction::InOut),
                        content,
                        pointer: Some(FieldPlace { at: at + place.at, ..place }),
                        filled: role.filled.map(|_| Filled { role, form, at, index }),
                    };
                    found.push((target, role.field.path));
                }
            }
        }
        Ok(())
    }

    /// The call.
    pub fn info(&self) -> &'static Info {
        self.info
    }

    /// Its parameters.
    pub fn params(&self) -> &[u8] {
        self.parts.first().map_or(&[], |part| &self.bytes[part.range()])
    }

    /// Visits every file descriptor, also those in what the parameters point to; always in the same order.
    pub fn visit_fds(&mut self, mut visit: impl FnMut(&mut Fd<'_>)) {
        for part in &self.parts {
            if let Some(form) = part.content.form {
                let bytes = &mut self.bytes[part.range()];
                visit::visit_fds(part.content.fds(), form, bytes, &mut visit);
            }
        }
    }

    /// Visits every address, also those in what the parameters point to; always in the same order.
    ///
    /// What is put into one that the driver follows is overwritten by [`Message::call`].
    pub fn visit_pointers(&mut self, mut visit: impl FnMut(&mut PointerField<'_>)) {
        for part in &self.parts {
            if let Some(form) = part.content.form {
                let bytes = &mut self.bytes[part.range()];
                visit::visit_pointers(part.content.pointers(), form, bytes, &mut visit);
            }
        }
    }

    /// Visits every field that names an object, also in what the parameters point to.
    pub fn visit_handles(&mut self, mut visit: impl FnMut(&mut HandleField<'_>)) {
        for part in &self.parts {
            if let Some(form) = part.content.form {
                let bytes = &mut self.bytes[part.range()];
                visit::visit_handles(part.content.handles(), form, bytes, &mut visit);
            }
        }
    }

    /// The bytes for [`unmarshal`]: head, parameters, and what goes to the driver besides.
    pub fn request(&self) -> Vec<u8> {
        let kind = KINDS.iter().position(|kind| *kind == self.info.kind).unwrap_or_default();
        let size = self.params().len() as u32;
        let mut request = REQUEST.to_vec();
        for word in [kind as u32, self.info.number, size] {
            request.extend(word.to_le_bytes());
        }
        for part in self.parts.iter().filter(|part| part.goes()) {
            request.extend_from_slice(&self.bytes[part.range()]);
        }
        request
    }

    /// Makes the call: while `call` runs, which gets the address of the parameters, the pointers lead
    /// to what the message holds.
    pub fn call<R>(&mut self, call: impl FnOnce(*mut u8) -> R) -> R {
        let base = self.bytes.as_mut_ptr() as u64;
        self.point(|part| base + part.at as u64);
        // Taken anew: a pointer from before would not outlive the borrows that `point` makes.
        let result = call(self.bytes.as_mut_ptr());
        self.point(|part| part.address);
        result
    }

    fn point(&mut self, to: impl Fn(&Part) -> u64) {
        for part in &self.parts {
            if let Some(pointer) = part.pointer {
                field::set(&mut self.bytes, pointer, to(part));
            }
        }
    }

    /// The bytes for [`Message::take_reply`]: parameters, and what comes back from the driver besides.
    pub fn reply(&self) -> Vec<u8> {
        let mut reply = REPLY.to_vec();
        for part in self.parts.iter().filter(|part| part.comes_back()) {
            reply.extend_from_slice(&self.bytes[part.range()]);
        }
        reply
    }

    /// Takes what came back. Addresses stay the caller's, whatever the reply has there.
    ///
    /// # Errors
    ///
    /// When the bytes are not the reply to this call; the message is then as it was.
    pub fn take_reply(&mut self, reply: &[u8]) -> Result<(), Error> {
        let body =
            reply.strip_prefix(&REPLY).ok_or(Error::Message { at: 0, why: "it is no reply" })?;
        let expected: usize =
            self.parts.iter().filter(|part| part.comes_back()).map(|part| part.len).sum();
        if body.len() != expected {
            let at = REPLY.len() + expected.min(body.len());
            return Err(Error::Message { at, why: "it is the reply to another call" });
        }
        let mut left = body;
        for part in self.parts.iter().filter(|part| part.comes_back()) {
            let (now, later) = left.split_at(part.len);
            self.bytes[part.range()].copy_from_slice(now);
            left = later;
        }
        self.point(|part| part.address);
        Ok(())
    }

    /// Writes what came back into the caller's memory, the parameters last.
    ///
    /// # Errors
    ///
    /// When memory cannot be written; what was written before stays.
    pub fn write_back(&self, memory: &mut impl Memory) -> Result<(), Error> {
        for part in self.parts.iter().rev().filter(|part| part.comes_back()) {
            let bytes = &self.bytes[part.range()];
            let bytes = &bytes[..self.filled(part).min(bytes.len())];
            if bytes.is_empty() {
                continue;
            }
            memory.write(part.address, bytes).map_err(|source| {
                let (address, bytes) = (part.address, bytes.len());
                Error::Memory { address, bytes, source }
            })?;
        }
        Ok(())
    }

    /// How much of a part the driver has filled, where it says so.
    fn filled(&self, part: &Part) -> usize {
        let filled = part.filled.and_then(|Filled { role, form, at, index }| {
            let bytes = self.bytes.get(at..)?;
            let count = field::evaluate(form, bytes, role.filled.as_ref()?, index)?;
            usize::try_from(count.checked_mul(role.unit.into())?).ok()
        });
        filled.unwrap_or(part.len)
    }
}

/// How much lies behind a pointer, and what it is.
fn behind(
    driver: &AnyDriver,
    info: &'static Info,
    role: &'static Pointer,
    (form, bytes, index): (Form, &[u8], (usize, usize)),
) -> Result<(u64, Content), Error> {
    let missing = || Error::Length { call: info.name, field: role.field.path };
    let evaluate = |what| field::evaluate(form, bytes, what, index).ok_or_else(missing);
    let len = |what| evaluate(what)?.checked_mul(role.unit.into()).ok_or_else(missing);
    let Some(InnerCall { kind, number, flags }) = role.call else {
        let has_roles =
            !(role.fds.is_empty() && role.handles.is_empty() && role.pointers.is_empty());
        let form = has_roles.then(|| Form::of_element(role.unit));
        let content = Content { call: info, behind: Some(role), form };
        return Ok((len(role.len.as_ref().ok_or_else(missing)?)?, content));
    };
    let value = |field| field::value(form, bytes, field, index).ok_or_else(missing);
    let flags = flags.as_ref().map(value).transpose()?;
    if flags.is_some_and(|flags| flags & FINN_SERIALIZED != 0) {
        return Err(Error::Serialized { call: info.name });
    }
    let number = u32::try_from(evaluate(&number)?).map_err(|_| missing())?;
    let inner = match find(driver, kind, number) {
        Err(Error::Unknown { .. }) if kind == CallKind::Control && is_for_gsp(number) => &FOR_GSP,
        found => found?,
    };
    let len = match &role.len {
        // Of a class the driver knows the size itself, and lets the caller's be 0.
        Some(text) if kind != CallKind::Class => len(text)?,
        _ => inner.sizes.first().map_or(0, |size| (*size).into()),
    };
    let size = usize::try_from(len).map_err(|_| missing())?;
    Ok((len, Content { call: inner, behind: None, form: visit::form(inner, size)? }))
}
