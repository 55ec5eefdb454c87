//! Which memory a call names, and what lies there.

use super::leaves;
use super::tables::{Family, KnownRequest, Tables};
use nvabi_pipeline::spec::{HandleMeaning, Item, ItemKind, Named, Pointer};

/// As many pieces of memory are followed in one call.
pub const MAX_PARTS: usize = 32;

/// Elements behind a pointer in which file descriptors are looked for.
const ELEMENTS: usize = 64;

/// Memory that a call names.
#[derive(Debug, Clone)]
pub struct Part<'t> {
    /// What its fields are written behind, such as `params->`; nothing for the argument itself.
    pub prefix: String,
    /// Where it lies.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// The type of one element; none where nobody knows.
    pub ty: Option<&'t str>,
    pub(super) roles: Roles<'t>,
}

/// What a spec says of the fields of a piece of memory.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Roles<'t> {
    /// Nothing.
    #[default]
    Unknown,
    /// The parameters of a call.
    Call(&'t Item),
    /// What a pointer of a call leads to.
    Element(&'t Pointer),
}

impl<'t> Roles<'t> {
    /// Fields that hold file descriptors.
    pub(super) fn fds(self) -> &'t [Named] {
        match self {
            Self::Unknown => &[],
            Self::Call(item) => &item.fds,
            Self::Element(pointer) => &pointer.fds,
        }
    }

    /// Whether a field holds a file descriptor.
    pub(super) fn is_fd(self, path: &str) -> bool {
        self.fds().iter().any(|fd| is_path(&fd.name, path))
    }

    /// Fields that hold addresses.
    pub(super) fn pointers(self) -> &'t [Pointer] {
        match self {
            Self::Unknown => &[],
            Self::Call(item) => &item.pointers,
            Self::Element(pointer) => &pointer.pointers,
        }
    }

    /// Fields that look like one of these and are none.
    pub(super) fn plain(self) -> &'t [Named] {
        match self {
            Self::Unknown => &[],
            Self::Call(item) => &item.plain,
            Self::Element(pointer) => &pointer.plain,
        }
    }

    /// The kind of handle that a field holds, where its name says another.
    pub(super) fn handle(self, path: &str) -> Option<HandleMeaning> {
        let Self::Call(item) = self else { return None };
        let mut own = item.handles.iter();
        own.find(|(field, _)| is_path(&field.name, path)).map(|(_, means)| *means)
    }

    /// Whether the call returns a new file descriptor there.
    pub(super) fn opens(self, path: &str) -> bool {
        let Self::Call(item) = self else { return false };
        item.opens.iter().any(|(field, _)| is_path(&field.name, path))
    }
}

/// Whether a spec means a field: its path has no `[]`.
pub(super) fn is_path(said: &str, path: &str) -> bool {
    said.split("[]").flat_map(str::bytes).eq(path.bytes())
}

/// All memory of a call.
#[derive(Debug, Default)]
pub struct Parts<'t> {
    /// The argument first.
    pub parts: Vec<Part<'t>>,
    /// File descriptors in it.
    pub fds: Vec<i32>,
    pub(super) details: Vec<Found<'t>>,
    pub(super) asked: Option<KnownRequest<'t>>,
    /// The request that the call carries.
    pub(super) carries: Option<u32>,
    /// The request that it carries if nobody knows that.
    pub(super) carries_unknown: Option<u32>,
}

/// A command or class that was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found<'t> {
    pub(super) kind: ItemKind,
    pub(super) number: u32,
    pub(super) name: Option<&'t str>,
    /// Bytes of the parameters: as the call has it, where it does.
    pub(super) length: Option<u64>,
    /// Bytes of the parameters: as the lock has it, where that is known.
    pub(super) size: Option<u64>,
    /// The type of the parameters.
    pub(super) ty: Option<&'t str>,
    /// Whether the parameters are in FINN's serialised form, which is no struct.
    pub(super) is_serialized: bool,
}

/// Follows a call through memory: from the argument to what its pointers lead to.
///
/// `memory` gives the bytes at an address, as many as there are up to a length.
pub fn parts<'t>(
    tables: &'t Tables,
    node: &str,
    request: u32,
    argument: u64,
    memory: &mut dyn FnMut(u64, u64) -> Vec<u8>,
) -> Parts<'t> {
    let mut walk = Walk { memory, found: Parts::default() };
    if let Some(asked) = tables.asked(node, request) {
        walk.found.asked = Some(asked);
        walk.call(tables, node, asked, request, argument, String::new());
    }
    walk.found
}

struct Walk<'t, 'm> {
    memory: &'m mut dyn FnMut(u64, u64) -> Vec<u8>,
    found: Parts<'t>,
}

impl<'t> Walk<'t, '_> {
    fn call(
        &mut self,
        tables: &'t Tables,
        node: &str,
        asked: KnownRequest<'t>,
        request: u32,
        argument: u64,
        prefix: String,
    ) {
        let ty = asked.params_of(request);
        let roles = asked.item.map_or(Roles::Unknown, Roles::Call);
        let part = Part { prefix, address: argument, length: asked.size(request), ty, roles };
        let prefix = part.prefix.clone();
        let bytes = self.follow(asked.family, part);
        let Some(ty) = ty else { return };
        let look = StructBytes { family: asked.family, ty, bytes: &bytes, prefix: &prefix };
        // A number that could not be read asks for nothing that is known.
        match asked.name {
            "NV_ESC_RM_CONTROL" => {
                let Some(number) = look.number("cmd") else { return };
                let length = look.number("paramsSize");
                self.numbered(look, ItemKind::Control, number as u32, "params", length);
            }
            "NV_ESC_RM_ALLOC" => {
                let Some(number) = look.number("hClass") else { return };
                // Older ones have no such field, and 0 is for the driver to know.
                let length = look.number("paramsSize").filter(|length| *length > 0);
                self.numbered(look, ItemKind::Class, number as u32, "pAllocParms", length);
            }
            "NVKMS_IOCTL_CMD" => {
                let Some(number) = look.number("cmd") else { return };
                let length = look.number("size");
                self.numbered(look, ItemKind::Ioctl, number as u32, "address", length);
            }
            "NV_ESC_IOCTL_XFER_CMD" if prefix.is_empty() => {
                let numbers = (look.number("cmd"), look.number("size"), look.number("ptr"));
                let (Some(cmd), Some(size), Some(address)) = numbers else { return };
                // The driver takes any size here, and the request holds 14 bits of it.
                let letter = request & 0xff00;
                let inner = 3 << 30 | ((size & 0x3fff) as u32) << 16 | letter | (cmd & 0xff) as u32;
                let Some(asked) = tables.asked(node, inner) else {
                    self.found.carries_unknown = Some(inner);
                    return;
                };
                (self.found.asked, self.found.carries) = (Some(asked), Some(inner));
                self.call(tables, node, asked, inner, address, "ptr->".to_owned());
            }
            _ => {}
        }
    }

    /// Takes in a piece of memory and what its pointers lead to.
    fn follow(&mut self, family: &'t Family, part: Part<'t>) -> Vec<u8> {
        if self.found.parts.len() >= MAX_PARTS || part.address == 0 || part.length == 0 {
            return Vec::new();
        }
        let bytes = (self.memory)(part.address, part.length);
        let (roles, ty, prefix) = (part.roles, part.ty, part.prefix.clone());
        self.found.parts.push(part);
        let Some(ty) = ty else { return bytes };
        self.fds(family, roles, ty, &bytes);
        // Pointers within elements are not followed.
        let Roles::Call(item) = roles else { return bytes };
        let look = StructBytes { family, ty, bytes: &bytes, prefix: &prefix };
        for pointer in item.pointers.iter().filter(|pointer| !pointer.opaque) {
            let field = &pointer.field.name;
            let (Some(address), Some(len)) = (look.number(field), &pointer.len) else { continue };
            let of = pointer.of.as_ref().map(|of| of.name.as_str());
            let of_known = of.filter(|of| family.size(of).is_some());
            let each = of_known.and_then(|of| family.size(of)).unwrap_or(1);
            // Followed by what the command says of it, below.
            if self.is_numbered(field) {
                continue;
            }
            let part = Part {
                prefix: format!("{prefix}{field}->"),
                address,
                length: look.length(len).saturating_mul(each),
                ty: of_known,
                roles: Roles::Element(pointer),
            };
            self.follow(family, part);
        }
        bytes
    }

    /// Takes in the file descriptors of a struct, or of each of a row of them.
    fn fds(&mut self, family: &'t Family, roles: Roles<'t>, ty: &str, bytes: &[u8]) {
        let size = family.size(ty).and_then(|size| usize::try_from(size).ok());
        let Some(size) = size.filter(|size| *size > 0 && !roles.fds().is_empty()) else { return };
        let leaves = family.leaves(ty);
        for element in bytes.chunks(size).take(ELEMENTS) {
            for leaf in leaves.iter().filter(|leaf| roles.is_fd(&leaf.path)) {
                // NvP64 and 64-bit fields hold descriptors too.
                let fds = leaf.numbers(element).into_iter().map(|(_, fd)| fd as i32);
                self.found.fds.extend(fds.filter(|fd| *fd >= 0));
            }
        }
    }

    fn is_numbered(&self, field: &str) -> bool {
        let name = self.found.asked.map(|asked| asked.name);
        match name {
            Some("NV_ESC_RM_CONTROL") => field == "params" && self.found.details.is_empty(),
            Some("NV_ESC_RM_ALLOC") => field == "pAllocParms" && self.found.details.is_empty(),
            Some("NV_ESC_IOCTL_XFER_CMD") => field == "ptr",
            _ => false,
        }
    }

    /// The parameters of a command or class: its number says what they are.
    fn numbered(
        &mut self,
        look: StructBytes<'t, '_>,
        kind: ItemKind,
        number: u32,
        field: &str,
        length: Option<u64>,
    ) {
        let known = look.family.numbered(kind, number);
        let name = known.map(|known| known.name.as_str());
        let ty = known.and_then(|known| known.params.as_deref());
        let own = ty.and_then(|ty| look.family.size(ty));
        let none = known.filter(|known| known.is_mapped && ty.is_none()).map(|_| 0);
        let is_serialized = kind == ItemKind::Control && look.is_serialized();
        let size = own.or(none);
        self.found.details.push(Found { kind, number, name, length, size, ty, is_serialized });
        // The driver knows how long the parameters of a class are, and believes what a command says.
        let length = if kind == ItemKind::Class { own.or(length) } else { length.or(own) };
        let (Some(address), Some(length)) = (look.number(field), length) else { return };
        let item = name.and_then(|name| look.family.item(kind, name));
        let prefix = format!("{}{field}->", look.prefix);
        let roles = item.map_or(Roles::Unknown, Roles::Call);
        self.follow(look.family, Part { prefix, address, length, ty, roles });
    }
}

/// The bytes of a struct.
#[derive(Clone, Copy)]
struct StructBytes<'t, 'b> {
    family: &'t Family,
    ty: &'t str,
    bytes: &'b [u8],
    prefix: &'b str,
}

impl StructBytes<'_, '_> {
    fn number(&self, field: &str) -> Option<u64> {
        let (at, size) = self.family.place(self.ty, field)?;
        leaves::number(self.bytes, at, size)
    }

    /// Whether the parameters of a command are a text of bytes instead of a struct.
    fn is_serialized(&self) -> bool {
        let bit = self.family.constant("NVOS54_FLAGS_FINN_SERIALIZED");
        let bit = bit.and_then(|bit| u64::try_from(bit).ok()).unwrap_or(0);
        self.number("flags").is_some_and(|flags| flags & bit != 0)
    }

    /// A length: numbers, fields and constants, joined by `*` and `+`.
    fn length(&self, said: &str) -> u64 {
        let product = |terms: &str| {
            let terms = terms.split('*').map(|term| self.term(term.trim()));
            terms.fold(1, u64::saturating_mul)
        };
        said.split('+').map(product).fold(0, u64::saturating_add)
    }

    fn term(&self, said: &str) -> u64 {
        let constant = || u64::try_from(self.family.constant(said)?).ok();
        said.parse().ok().or_else(|| self.number(said)).or_else(constant).unwrap_or(0)
    }
}
