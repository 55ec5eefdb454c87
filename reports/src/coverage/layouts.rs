//! Whether another project's structs lie in memory as the driver's do.
//!
//! Its fields are laid out anew, by Go's rules, and compared leaf by leaf: offset, width, sign. Names differ
//! between the two; one that the driver has at another offset has moved. Arrays of bytes stand for anything.

use std::collections::{BTreeMap, BTreeSet};

use super::{Known, Table};
use nvabi_pipeline::model::{Record, Surface, split_array};
use nvabi_pipeline::plan::types::{self, Element, Named};

/// A field that is no struct.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Leaf {
    path: String,
    offset: u64,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Int {
        size: u64,
        signed: bool,
    },
    /// So many bytes of anything.
    Bytes(u64),
}

impl Kind {
    fn size(self) -> u64 {
        match self {
            Self::Int { size, .. } | Self::Bytes(size) => size,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Int { size, signed: true } => format!("int{}", size * 8),
            Self::Int { size, .. } => format!("uint{}", size * 8),
            Self::Bytes(size) => format!("{size} bytes"),
        }
    }
}

/// A struct of the project's, laid out.
struct Layout {
    size: u64,
    align: u64,
    leaves: Vec<Leaf>,
}

impl Known<'_> {
    /// How one of the project's structs differs from the driver's, each with the driver's place.
    pub(super) fn layout_differences(&self, table: &Table, go: &str, driver: &str) -> Vec<String> {
        let Some(theirs) = table.layout(go, 0) else {
            return vec![format!("the table has no fields of `{go}`")];
        };
        let Some((surface, record)) = self.record(driver) else {
            // A parameter that is one integer.
            let alias = self.surfaces().find_map(|surface| surface.aliases.get(driver));
            let size = alias.map(|alias| alias.size).filter(|size| *size != theirs.size);
            let text = |size| format!("`{go}` has {} bytes, `{driver}` has {size}", theirs.size);
            return size.map(text).into_iter().collect();
        };
        let mut ours = Vec::new();
        leaves(surface, record, "", 0, &mut ours);
        let mut found = table.contradictions(go, &theirs);
        if theirs.size != record.size {
            found.push(format!("`{go}` has {} bytes, `{driver}` has {}", theirs.size, record.size));
        }
        found.extend(differences(&theirs.leaves, &ours));
        let at = |what| format!("{what} ({go}; {})", record.source);
        found.into_iter().map(at).collect()
    }
}

/// What lies otherwise, of either side.
fn differences(theirs: &[Leaf], ours: &[Leaf]) -> Vec<String> {
    let mut at: BTreeMap<u64, Vec<&Leaf>> = BTreeMap::new();
    ours.iter().for_each(|leaf| at.entry(leaf.offset).or_default().push(leaf));
    let mut found = Vec::new();
    // Of an array, whose elements have one name, the first is told.
    let mut told = BTreeSet::new();
    for leaf in theirs {
        let here = at.get(&leaf.offset).map(Vec::as_slice).unwrap_or_default();
        // A member of a union may be anything, and bytes stand for anything.
        let fits = matches!(leaf.kind, Kind::Bytes(_))
            || here.iter().any(|own| own.kind == leaf.kind)
            || ours.iter().any(|own| covers(own, leaf));
        if !fits {
            let driver = match here.first() {
                Some(own) => format!("the driver `{}` as {}", own.path, own.kind.text()),
                None => "the driver nothing".to_owned(),
            };
            let (path, kind) = (&leaf.path, leaf.kind.text());
            found.push(format!("at {} the table has `{path}` as {kind}, {driver}", leaf.offset));
        } else if let Some(own) = padded_over(leaf, ours) {
            let (path, offset) = (&own.path, own.offset);
            let kind = own.kind.text();
            found.push(format!(
                "the table has padding at {offset}, where the driver has `{path}` as {kind}"
            ));
        } else if let Some(own) = moved(leaf, here, ours) {
            let (path, offset) = (&leaf.path, leaf.offset);
            if told.insert(path) {
                found.push(format!(
                    "the table has `{path}` at {offset}, the driver `{}` at {}",
                    own.path, own.offset
                ));
            }
        }
    }
    let touched = |own: &&Leaf| {
        theirs.iter().any(|leaf| {
            leaf.offset < own.offset + own.kind.size()
                && own.offset < leaf.offset + leaf.kind.size()
        })
    };
    for own in ours.iter().filter(|own| !touched(own)) {
        let (path, offset) = (&own.path, own.offset);
        found.push(format!("the table has nothing at {offset}, where the driver has `{path}`"));
    }
    found
}

/// Whether bytes of the driver's hold all of a field.
fn covers(own: &Leaf, leaf: &Leaf) -> bool {
    matches!(own.kind, Kind::Bytes(size) if own.offset <= leaf.offset
        && leaf.offset + leaf.kind.size() <= own.offset + size)
}

/// The driver's number that lies where a project has bytes without a name: a field that it forgot, or that a new driver
/// has put into what was padding.
fn padded_over<'l>(leaf: &Leaf, ours: &'l [Leaf]) -> Option<&'l Leaf> {
    let name = |path: &str| path.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    let is_padding = |path: &str| {
        let name = name(path);
        name == "_" || ["pad", "reserved", "rsvd", "unused"].iter().any(|word| name.contains(word))
    };
    if !(matches!(leaf.kind, Kind::Bytes(_)) && is_padding(&leaf.path)) {
        return None;
    }
    let inside =
        |own: &&Leaf| leaf.offset <= own.offset && own.offset < leaf.offset + leaf.kind.size();
    ours.iter()
        .filter(inside)
        .find(|own| matches!(own.kind, Kind::Int { .. }) && !is_padding(&own.path))
}

/// The driver's field of the same name, where it lies elsewhere and what lies here has another name.
fn moved<'l>(leaf: &Leaf, here: &[&Leaf], ours: &'l [Leaf]) -> Option<&'l Leaf> {
    let is_same = |own: &&Leaf| is_same(&own.path, &leaf.path);
    if here.iter().any(is_same) { None } else { ours.iter().find(is_same) }
}

/// Whether two paths are the same as two projects may write them: `hClient`, `HClient`, `Client`; `phClients`,
/// `Clients`.
fn is_same(own: &str, theirs: &str) -> bool {
    let plain = |path: &str| path.replace('_', "").to_lowercase();
    // The driver's names may begin with a letter or two for the type.
    let first = own.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(own.len());
    let rest = &own[first..];
    let has_letters =
        (1..=2).contains(&first) && rest.starts_with(|c: char| c.is_ascii_uppercase());
    let theirs = plain(theirs);
    plain(own) == theirs || has_letters && plain(rest) == theirs
}

/// The leaves of a record; every element of an array.
fn leaves(surface: &Surface, record: &Record, prefix: &str, base: u64, found: &mut Vec<Leaf>) {
    let named = |name: &str| match surface.enums.get(name) {
        _ if surface.records.contains_key(name) => Named::Record,
        Some(of) => Named::Enum(of.size),
        None => Named::Other,
    };
    for field in record.fields.iter().filter(|field| field.bits.is_none()) {
        let (element, dimensions) = types::element(&field.ty, &field.canonical, field.size, named);
        let count: u64 = dimensions.iter().product();
        let each = field.size.checked_div(count).unwrap_or(0);
        let kind = match &element {
            Element::Int { size: 1, .. } | Element::Char if count > 1 => {
                Some(Kind::Bytes(field.size))
            }
            Element::Int { size, signed } => Some(Kind::Int { size: *size, signed: *signed }),
            Element::Enum { size } => Some(Kind::Int { size: *size, signed: false }),
            Element::Handle => Some(Kind::Int { size: 4, signed: false }),
            Element::P64 => Some(Kind::Int { size: 8, signed: false }),
            Element::Char | Element::Float { .. } | Element::Bytes(_) => {
                Some(Kind::Bytes(field.size))
            }
            Element::Uuid => Some(Kind::Bytes(field.size)),
            Element::Record(_) => None,
        };
        let name = match (prefix, field.name.as_str()) {
            ("", name) => name.to_owned(),
            // What a struct of one field holds goes by the name of the struct.
            (prefix, _) if record.fields.len() == 1 => prefix.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, name) => format!("{prefix}.{name}"),
        };
        let bytes = matches!(kind, Some(Kind::Bytes(_)));
        for index in 0..if bytes { 1 } else { count } {
            let (offset, path) = (base + field.offset + index * each, name.clone());
            match (kind, surface.records.get(split_array(&field.canonical).0)) {
                (Some(kind), _) => found.push(Leaf { path, offset, kind }),
                (None, Some(inner)) => leaves(surface, inner, &path, offset, found),
                (None, None) => {}
            }
        }
    }
}

/// Bytes that no parameters reach.
const LARGEST: u64 = 1 << 24;

/// Deep enough for any table, and an end to structs that hold themselves.
const DEEPEST: usize = 16;

impl Table {
    /// Whether it gives its structs whole: one that has sizes is held to all of them.
    pub(super) fn has_layouts(&self) -> bool {
        self.structs.iter().any(|of| of.size.is_some())
    }

    /// A type of the project's by Go's rules; `None` where the table does not have it.
    fn layout(&self, ty: &str, depth: usize) -> Option<Layout> {
        if depth > DEEPEST {
            return None;
        }
        if let Some((count, element)) = ty.strip_prefix('[').and_then(|ty| ty.split_once(']')) {
            return self.array(count.parse().ok()?, element, depth);
        }
        let scalar = |size, signed| {
            let leaf = Leaf { path: String::new(), offset: 0, kind: Kind::Int { size, signed } };
            Some(Layout { size, align: size, leaves: vec![leaf] })
        };
        match ty {
            "uint8" | "byte" | "bool" => return scalar(1, false),
            "uint16" => return scalar(2, false),
            "uint32" => return scalar(4, false),
            "uint64" => return scalar(8, false),
            "int8" => return scalar(1, true),
            "int16" => return scalar(2, true),
            "int32" => return scalar(4, true),
            "int64" => return scalar(8, true),
            _ => {}
        }
        if let Some(other) = self.go_scalars.get(ty) {
            return self.layout(other, depth + 1);
        }
        let of = self.structs.iter().find(|of| of.go_name == ty)?;
        let (mut at, mut align, mut leaves) = (0_u64, 1, Vec::new());
        for (name, ty) in &of.fields {
            let inner = self.layout(ty, depth + 1)?;
            at = at.next_multiple_of(inner.align);
            align = align.max(inner.align);
            for leaf in inner.leaves {
                let path = match leaf.path.as_str() {
                    path if depth > 0 && of.fields.len() == 1 => path.to_owned(),
                    "" => name.clone(),
                    path => format!("{name}.{path}"),
                };
                // Padding is no field, whatever its type is.
                let is_padding = name == "_" || name.starts_with("Pad");
                let kind = if is_padding { Kind::Bytes(leaf.kind.size()) } else { leaf.kind };
                leaves.push(Leaf { path, offset: at + leaf.offset, kind });
            }
            at += inner.size;
        }
        Some(Layout { size: at.next_multiple_of(align), align, leaves })
    }

    /// Fills in the sizes and offsets of structs of which the fields alone are known.
    pub(super) fn lay_out(&mut self) {
        for index in 0..self.structs.len() {
            let (mut at, mut offsets) = (0_u64, Vec::new());
            for (_, ty) in &self.structs[index].fields {
                let Some(field) = self.layout(ty, 1) else { break };
                at = at.next_multiple_of(field.align);
                offsets.push(at);
                at += field.size;
            }
            let size = self.layout(&self.structs[index].go_name, 0).map(|layout| layout.size);
            let of = &mut self.structs[index];
            (of.size, of.offsets) = (size, offsets);
        }
    }

    fn array(&self, count: u64, element: &str, depth: usize) -> Option<Layout> {
        let inner = self.layout(element, depth + 1)?;
        let size = inner.size.checked_mul(count).filter(|size| *size <= LARGEST)?;
        if inner.size == 1 {
            let leaf = Leaf { path: String::new(), offset: 0, kind: Kind::Bytes(size) };
            return Some(Layout { size, align: 1, leaves: vec![leaf] });
        }
        let shifted = |index: u64| {
            inner
                .leaves
                .iter()
                .map(move |leaf| (index * inner.size, leaf))
                .map(|(by, leaf)| Leaf { offset: leaf.offset + by, ..leaf.clone() })
        };
        let leaves = (0..count).flat_map(shifted).collect();
        Some(Layout { size, align: inner.align, leaves })
    }

    /// Where what the table says of a struct is not what its fields make.
    fn contradictions(&self, go: &str, layout: &Layout) -> Vec<String> {
        let Some(of) = self.structs.iter().find(|of| of.go_name == go) else { return Vec::new() };
        let mut found = Vec::new();
        if of.size.is_some_and(|size| size != layout.size) {
            let stated = of.size.unwrap_or_default();
            found.push(format!(
                "the table says that `{go}` has {stated} bytes, its fields {}",
                layout.size
            ));
        }
        if of.offsets.len() != of.fields.len() {
            let (offsets, fields) = (of.offsets.len(), of.fields.len());
            found.push(format!("the table has {offsets} offsets of `{go}` and {fields} fields"));
        }
        let starts: BTreeSet<u64> = layout.leaves.iter().map(|leaf| leaf.offset).collect();
        for ((name, _), offset) in of.fields.iter().zip(&of.offsets) {
            if !starts.contains(offset) && *offset < layout.size {
                found.push(format!(
                    "the table says that `{go}.{name}` is at {offset}, its fields do not"
                ));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(path: &str, offset: u64, size: u64, signed: bool) -> Leaf {
        Leaf { path: path.to_owned(), offset, kind: Kind::Int { size, signed } }
    }

    #[test]
    fn each_kind_of_difference_is_found() {
        let ours =
            [leaf("hClient", 0, 4, false), leaf("hDevice", 4, 4, false), leaf("fd", 8, 4, true)];
        let same =
            [leaf("HClient", 0, 4, false), leaf("HDevice", 4, 4, false), leaf("FD", 8, 4, true)];
        assert_eq!(differences(&same, &ours), [""; 0]);

        let swapped = [leaf("HDevice", 0, 4, false), leaf("HClient", 4, 4, false), same[2].clone()];
        assert_eq!(
            differences(&swapped, &ours),
            [
                "the table has `HDevice` at 0, the driver `hDevice` at 4",
                "the table has `HClient` at 4, the driver `hClient` at 0",
            ]
        );
        let sign = [same[0].clone(), same[1].clone(), leaf("FD", 8, 4, false)];
        assert_eq!(
            differences(&sign, &ours),
            ["at 8 the table has `FD` as uint32, the driver `fd` as int32"]
        );
        let missing = [same[0].clone(), same[1].clone()];
        assert_eq!(
            differences(&missing, &ours),
            ["the table has nothing at 8, where the driver has `fd`"]
        );
        let wide = [leaf("HClient", 0, 8, false), same[2].clone()];
        assert_eq!(
            differences(&wide, &ours),
            ["at 0 the table has `HClient` as uint64, the driver `hClient` as uint32"]
        );
        // Arrays, of which each element has the name, and pointers.
        let array = |path: &str, at: u64| {
            (0..3).map(move |index| leaf(path, at + index * 4, 4, false)).collect::<Vec<_>>()
        };
        let ours_too =
            [array("offsets", 0), array("sizes", 12), vec![leaf("phList", 24, 8, false)]];
        let same_too = [array("Offsets", 0), array("Sizes", 12), vec![leaf("List", 24, 8, false)]];
        assert_eq!(differences(&same_too.concat(), &ours_too.concat()), [""; 0]);
        let swapped = [array("Sizes", 0), array("Offsets", 12), vec![leaf("List", 24, 8, false)]];
        assert_eq!(
            differences(&swapped.concat(), &ours_too.concat()),
            [
                "the table has `Sizes` at 0, the driver `sizes` at 12",
                "the table has `Offsets` at 12, the driver `offsets` at 0",
            ]
        );
        let pointers = [leaf("phClients", 0, 8, false), leaf("phDevices", 8, 8, false)];
        let swapped = [leaf("Devices", 0, 8, false), leaf("Clients", 8, 8, false)];
        assert_eq!(
            differences(&swapped, &pointers),
            [
                "the table has `Devices` at 0, the driver `phDevices` at 8",
                "the table has `Clients` at 8, the driver `phClients` at 0",
            ]
        );
        // Bytes stand for anything, on either side.
        let bytes = Leaf { path: "Params".to_owned(), offset: 0, kind: Kind::Bytes(12) };
        assert_eq!(differences(std::slice::from_ref(&bytes), &ours), [""; 0]);
        assert_eq!(differences(&same, &[bytes]), [""; 0]);
        // But not those that have no name.
        let padding = Leaf { path: "_".to_owned(), offset: 8, kind: Kind::Bytes(4) };
        assert_eq!(
            differences(&[same[0].clone(), same[1].clone(), padding.clone()], &ours),
            ["the table has padding at 8, where the driver has `fd` as int32"]
        );
        let reserved = [ours[0].clone(), ours[1].clone(), leaf("reserved0", 8, 4, false)];
        assert_eq!(differences(&[same[0].clone(), same[1].clone(), padding], &reserved), [""; 0]);
    }
}
