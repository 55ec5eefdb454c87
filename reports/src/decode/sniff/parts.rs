//! Which memory a call names, and what lies there.

use super::tables::{Family, KnownRequest, Tables};
use nvabi_pipeline::spec::{Item, ItemKind};

/// As many pieces of memory are followed in one call.
pub const MAX_PARTS: usize = 32;

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
    pub(super) item: Option<&'t Item>,
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
}

/// A command or class that was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found<'t> {
    pub(super) kind: ItemKind,
    pub(super) number: u32,
    pub(super) name: Option<&'t str>,
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
        let part =
            Part { prefix, address: argument, length: asked.size(request), ty, item: asked.item };
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
                self.numbered(look, ItemKind::Class, number as u32, "pAllocParms", None);
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
                let Some(asked) = tables.asked(node, inner) else { return };
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
        let (item, ty, prefix) = (part.item, part.ty, part.prefix.clone());
        self.found.parts.push(part);
        let (Some(item), Some(ty)) = (item, ty) else { return bytes };
        let look = StructBytes { family, ty, bytes: &bytes, prefix: &prefix };
        for fd in &item.fds {
            // NvP64 and 64-bit fields hold descriptors too.
            let fd = look.number(&fd.name).map(|fd| fd as i32);
            self.found.fds.extend(fd.filter(|fd| *fd >= 0));
        }
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
                item: None,
            };
            self.follow(family, part);
        }
        bytes
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
        self.found.details.push(Found { kind, number, name });
        let ty = known.and_then(|known| known.params.as_deref());
        let own = ty.and_then(|ty| look.family.size(ty));
        let (Some(address), Some(length)) = (look.number(field), length.or(own)) else { return };
        let item = name.and_then(|name| look.family.item(kind, name));
        let prefix = format!("{}{field}->", look.prefix);
        self.follow(look.family, Part { prefix, address, length, ty, item });
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
        let bytes = self.bytes.get(at..at.checked_add(size)?)?;
        let mut wide = [0; 8];
        wide.get_mut(..size)?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(wide))
    }

    /// A length: a number, a field or a constant.
    fn length(&self, said: &str) -> u64 {
        let constant = || u64::try_from(self.family.constant(said)?).ok();
        said.parse().ok().or_else(|| self.number(said)).or_else(constant).unwrap_or(0)
    }
}
