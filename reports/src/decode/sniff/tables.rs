//! What there is to name at the chosen tags: requests, commands, classes, status codes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use super::super::catalog::{Catalog, Known};
use super::super::value;
use super::leaves::{Leaf, leaves};
use crate::list;
use nvabi_pipeline::globs;
use nvabi_pipeline::model::{Facts, builtin, request_size, split_array};
use nvabi_pipeline::spec::{HandleMeaning, Item, ItemKind, Spec};
use nvabi_pipeline::tag::Tag;

/// Which files are devices: known from the specs alone, before a lock is read.
#[derive(Debug, Clone, Default)]
pub struct Nodes {
    catalog: Catalog,
    more: Vec<String>,
}

impl Nodes {
    /// The nodes of some specs, and files beside them that match globs.
    pub fn new<'s>(specs: impl IntoIterator<Item = &'s Spec>, more: &[String]) -> Self {
        let mut catalog = Catalog::default();
        specs.into_iter().for_each(|spec| catalog.add_nodes(spec));
        Self { catalog, more: more.to_vec() }
    }

    /// The node of a path; an empty name for a file that is of interest and no node.
    pub fn node_of(&self, path: &str) -> Option<&str> {
        match self.catalog.node_of_path(path.as_bytes()) {
            Some(id) => Some(&self.catalog.nodes[usize::from(id)].name),
            None => self.more.iter().any(|glob| globs::fits(glob, path)).then_some(""),
        }
    }
}

/// Everything that there is to name at one tag of each family.
#[derive(Debug, Default)]
pub struct Tables {
    catalog: Catalog,
    families: Vec<Family>,
}

/// The names of one tag.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) tag: Tag,
    pub(super) facts: Facts,
    items: HashMap<ItemKind, HashMap<String, Item>>,
    numbers: HashMap<(ItemKind, u32), Numbered>,
    statuses: HashMap<u32, String>,
    /// The kinds of handles by the names of fields.
    pub(super) handles: BTreeMap<String, HandleMeaning>,
    /// By the record and the field that is a union of it.
    choices: HashMap<String, Choice>,
    /// The fields of the types that were asked for: programs make the same calls again and again.
    leaves: Mutex<HashMap<String, Arc<[Leaf]>>>,
}

/// Which member of a union is valid.
#[derive(Debug)]
pub(super) struct Choice {
    /// The field that says so, beside the union.
    pub(super) by: String,
    /// Its value for each member.
    pub(super) members: BTreeMap<String, u64>,
}

/// A command or class.
#[derive(Debug)]
pub(super) struct Numbered {
    pub(super) name: String,
    pub(super) params: Option<String>,
    /// Whether it is known what it takes: without parameters, that it takes none.
    pub(super) is_mapped: bool,
}

/// A request that a node knows.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownRequest<'t> {
    pub(super) family: &'t Family,
    pub(super) name: &'t str,
    pub(super) params: &'t [String],
    pub(super) item: Option<&'t Item>,
}

impl Tables {
    /// Takes in one tag.
    pub fn add(&mut self, facts: Facts, spec: &Spec) {
        self.catalog.add(&facts, spec);
        let mut numbers = HashMap::new();
        for (kind, word) in [(ItemKind::Control, "command"), (ItemKind::Class, "class")] {
            for listed in list::calls(&facts, word) {
                let number = listed.cmd.or(listed.class).and_then(|n| u32::try_from(n).ok());
                let Some(number) = number else { continue };
                let is_other_name = listed.same_as.is_some();
                let is_mapped = !listed.how.as_deref().unwrap_or_default().starts_with("no-");
                let params = listed.params.into_iter().next();
                let new = Numbered { name: listed.name, params, is_mapped };
                match numbers.get(&(kind, number)) {
                    Some(_) if is_other_name => {}
                    _ => drop(numbers.insert((kind, number), new)),
                }
            }
        }
        numbers.extend(display(&facts, spec));
        let mut items: HashMap<_, HashMap<_, _>> = HashMap::new();
        for item in spec.items_at(&facts.tag) {
            items.entry(item.kind).or_default().insert(item.name.clone(), item.clone());
        }
        let statuses = statuses(&facts);
        let (tag, handles) = (facts.tag.clone(), spec.handles.clone());
        let (choices, leaves) = (HashMap::new(), Mutex::default());
        let mut family = Family { tag, facts, items, numbers, statuses, handles, choices, leaves };
        family.choices = choices_of(&family, spec);
        self.families.push(family);
    }

    /// The tags that names are taken from.
    pub fn tags(&self) -> impl Iterator<Item = &Tag> {
        self.families.iter().map(|family| &family.tag)
    }

    /// The names of the first tag.
    #[cfg(test)]
    pub(super) fn family(&self) -> &Family {
        &self.families[0]
    }

    /// The one node that knows a request.
    pub fn guess(&self, request: u32) -> Option<&str> {
        let id = self.catalog.only_node(request)?;
        Some(&self.catalog.nodes[usize::from(id)].name)
    }

    /// The nodes whose file descriptors a request returns, by the fields that hold them.
    pub fn opens(&self, node: &str, request: u32) -> Vec<(&str, &str)> {
        let item = self.asked(node, request).and_then(|asked| asked.item);
        let opens = item.into_iter().flat_map(|item| &item.opens);
        opens.map(|(field, node)| (field.name.as_str(), node.name.as_str())).collect()
    }

    /// Where the fields of a request's argument lie: offset and size in bytes.
    pub fn place(&self, node: &str, request: u32, field: &str) -> Option<(usize, usize)> {
        let asked = self.asked(node, request)?;
        let ty = asked.params_of(request)?;
        asked.family.place(ty, field)
    }

    /// What a node knows a request as, and how to say it in short.
    pub(super) fn asked(&self, node: &str, request: u32) -> Option<KnownRequest<'_>> {
        let known: &Known = self.catalog.known(self.catalog.named(node)?, request)?;
        let kinds = [ItemKind::Frontend, ItemKind::Uvm, ItemKind::Ioctl];
        let found = self.families.iter().find_map(|family| {
            let item = kinds.iter().find_map(|kind| family.item(*kind, &known.name))?;
            Some((family, Some(item)))
        });
        // Requests of display and direct rendering stand in no spec.
        let (family, item) = found.or_else(|| Some((self.families.first()?, None)))?;
        Some(KnownRequest { family, name: &known.name, params: &known.params, item })
    }

    /// The sizes in bytes that a request may have on a node where they do not distinguish requests.
    pub(super) fn sizes(&self, node: &str, request: u32) -> &[u64] {
        self.catalog.named(node).map_or(&[], |id| self.catalog.sizes(id, request))
    }

    /// The requests of a node that have type and number of one that it does not know, with their names.
    pub(super) fn alike(&self, node: &str, request: u32) -> Vec<(u32, &str)> {
        self.catalog.named(node).map_or_else(Vec::new, |id| self.catalog.alike(id, request))
    }

    /// What is odd about a request on a node.
    pub(super) fn notes(&self, node: &str, request: u32) -> Vec<String> {
        let Some(id) = self.catalog.named(node) else { return Vec::new() };
        self.catalog.sizes_noted(id, request)
    }
}

impl<'t> KnownRequest<'t> {
    /// The type of the argument: the size of the request tells which.
    pub(super) fn params_of(&self, request: u32) -> Option<&'t str> {
        let size = request_size(request.into());
        let fits = |ty: &&String| self.family.size(ty) == Some(size);
        let own = self.params.iter().find(fits).or(self.params.last());
        own.map(String::as_str)
    }

    /// Bytes of the argument.
    pub(super) fn size(&self, request: u32) -> u64 {
        // A number of UVM is no more than a number.
        let is_number = self.item.is_some_and(|item| item.kind == ItemKind::Uvm);
        match request_size(request.into()) {
            size if size == 0 || is_number => {
                self.params_of(request).and_then(|ty| self.family.size(ty)).unwrap_or(0)
            }
            size => size,
        }
    }
}

impl Family {
    /// An item of the spec.
    pub(super) fn item(&self, kind: ItemKind, name: &str) -> Option<&Item> {
        self.items.get(&kind)?.get(name)
    }

    /// A command or class by its number.
    pub(super) fn numbered(&self, kind: ItemKind, number: u32) -> Option<&Numbered> {
        self.numbers.get(&(kind, number))
    }

    /// Which member of a union is valid, by the record that has the union as a field.
    pub(super) fn choice(&self, record: &str, field: &str) -> Option<&Choice> {
        self.choices.get(&format!("{record}.{field}"))
    }

    /// The name of a status code.
    pub(super) fn status(&self, value: u32) -> Option<&str> {
        self.statuses.get(&value).map(String::as_str)
    }

    /// A constant of the headers.
    pub(super) fn constant(&self, name: &str) -> Option<i128> {
        self.facts.surfaces.values().find_map(|s| Some(s.constants.get(name)?.value))
    }

    /// Bytes of a type.
    pub(super) fn size(&self, ty: &str) -> Option<u64> {
        if let Some((_, _, record)) = value::record(&self.facts, ty) {
            return Some(record.size);
        }
        let alias = self.facts.surfaces.values().find_map(|s| Some(s.aliases.get(ty)?.size));
        alias.or_else(|| Some(builtin(ty)?.1))
    }

    /// The fields of a type.
    pub(super) fn leaves(&self, ty: &str) -> Arc<[Leaf]> {
        let mut known = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(ty) {
            Some(leaves) => leaves.clone(),
            None => known.entry(ty.to_owned()).or_insert(leaves(self, ty).into()).clone(),
        }
    }

    /// Offset and size of a field such as `params.pMemory`.
    pub(super) fn place(&self, ty: &str, path: &str) -> Option<(usize, usize)> {
        let (mut ty, mut offset, mut size) = (ty.to_owned(), 0, 0);
        for part in path.split('.') {
            let (_, _, record) = value::record(&self.facts, &ty)?;
            let field = record.fields.iter().find(|field| field.name == part)?;
            offset += field.offset;
            size = field.size;
            ty = split_array(&field.canonical).0.to_owned();
        }
        Some((usize::try_from(offset).ok()?, usize::try_from(size).ok()?))
    }
}

/// The rules of unions, with the numbers that their constants have here.
fn choices_of(family: &Family, spec: &Spec) -> HashMap<String, Choice> {
    let number =
        |text: &str| text.parse().ok().or_else(|| u64::try_from(family.constant(text)?).ok());
    let choices = spec.unions.iter().map(|(union, choice)| {
        let members = choice.members.iter();
        let members = members.filter_map(|(name, said)| Some((name.clone(), number(&said.name)?)));
        (union.clone(), Choice { by: choice.by.name.clone(), members: members.collect() })
    });
    choices.collect()
}

/// What the display driver is asked for stands in its one argument.
fn display(facts: &Facts, spec: &Spec) -> Vec<((ItemKind, u32), Numbered)> {
    let listed = list::ioctls(facts, spec).into_iter().filter(|l| l.surface == "modeset");
    let numbered = listed.filter_map(|listed| {
        let number = u32::try_from(listed.nr?).ok()?;
        let params = listed.params.into_iter().next();
        Some(((ItemKind::Ioctl, number), Numbered { name: listed.name, params, is_mapped: true }))
    });
    numbered.collect()
}

/// `NV_OK`, errors and warnings.
fn statuses(facts: &Facts) -> HashMap<u32, String> {
    let rm = facts.surfaces.get("rm");
    let constants = rm.into_iter().flat_map(|rm| &rm.constants);
    let own = constants.filter(|(name, constant)| {
        let is_code =
            *name == "NV_OK" || name.starts_with("NV_ERR_") || name.starts_with("NV_WARN_");
        is_code && constant.source.path.ends_with("nvstatus.h")
    });
    own.filter_map(|(name, c)| Some((u32::try_from(c.value).ok()?, name.clone()))).collect()
}
