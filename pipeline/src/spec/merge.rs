//! Inheritance: the tables of a spec and of its ancestors laid over each other.

use std::collections::{BTreeMap, HashSet};

use toml::Spanned;

use super::raw::{
    RawClass, RawCommand, RawConstants, RawDisputed, RawItem, RawItems, RawPointer, RawRm, RawSpec,
};
use super::{
    Choice, Disputed, File, Item, ItemKind, Named, Node, Pointer, Spec, SpecPlace, Substitute,
    SubstituteAction, Surface,
};
use crate::diagnostic::{Diagnostic, Report, nearest};
use crate::tag::Tag;

pub(super) type RawSpecs = BTreeMap<String, (File, RawSpec)>;

/// The spec and its ancestors, the oldest first.
pub(super) fn chain<'a>(name: &str, raw: &'a RawSpecs) -> Result<Vec<&'a (File, RawSpec)>, Report> {
    let mut chain: Vec<&(File, RawSpec)> = Vec::new();
    let mut seen = vec![name.to_owned()];
    let mut current = raw.get(name);
    while let Some(entry) = current {
        chain.push(entry);
        let Some(parent) = &entry.1.parent else { break };
        let place = || SpecPlace { file: entry.0.clone(), span: parent.span() }.place();
        let parent_name = parent.get_ref();
        if seen.contains(parent_name) {
            seen.push(parent_name.clone());
            return Err(Diagnostic::error(
                "spec-parent-cycle",
                "a spec cannot inherit from itself",
            )
            .at(place())
            .note(format!("the chain of parents is {}", seen.join(" → ")))
            .into());
        }
        current = raw.get(parent_name);
        if current.is_none() {
            let unknown = Diagnostic::error(
                "spec-unknown-parent",
                format!("there is no spec `{parent_name}`"),
            )
            .at(place());
            let others = raw.keys().filter(|other| !seen.contains(other));
            let near = nearest(parent_name, others.map(String::as_str));
            return Err(match near {
                Some(near) => unknown.help(format!("did you mean `{near}`?")),
                None => unknown,
            }
            .into());
        }
        seen.push(parent_name.clone());
    }
    chain.reverse();
    Ok(chain)
}

/// Lays the specs of a chain over each other: what a child says replaces what its parent said.
/// Of the items those that are wanted, and the constants where all items are.
pub(super) fn merge(
    name: &str,
    chain: &[&(File, RawSpec)],
    wanted: Option<&HashSet<&str>>,
) -> Result<Spec, Report> {
    let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted.contains(name));
    let Some((file, own)) = chain.last() else {
        return Err(Diagnostic::error("spec-unreadable", format!("no spec `{name}`")).into());
    };
    let mut report = Report::default();
    let mut spec = Spec {
        name: name.to_owned(),
        driver: own.driver.clone(),
        repository: None,
        trees: BTreeMap::new(),
        tags: BTreeMap::new(),
        nodes: Vec::new(),
        targets: Vec::new(),
        surfaces: Vec::new(),
        items: Vec::new(),
        substitutes: Vec::new(),
        handles: BTreeMap::new(),
        unions: BTreeMap::new(),
        disputed: Vec::new(),
        extra_types: Vec::new(),
        constants: Vec::new(),
        statuses: Vec::new(),
        file: file.clone(),
    };
    let mut items: BTreeMap<(ItemKind, String), Vec<Item>> = BTreeMap::new();
    for (file, raw) in chain {
        spec.repository = raw.repository.clone().or(spec.repository);
        if !raw.targets.is_empty() {
            spec.targets.clone_from(&raw.targets);
        }
        spec.trees
            .extend(raw.tree.iter().map(|(name, tree)| (name.clone(), tree.repository.clone())));
        merge_surfaces(&mut spec.surfaces, raw, file, &mut report);
        merge_nodes(&mut spec.nodes, raw, file);
        if let Some(rm) = &raw.rm {
            merge_substitutes(&mut spec.substitutes, rm);
        }
        for (means, names) in &raw.handles {
            spec.handles.extend(names.iter().map(|name| (name.clone(), *means)));
        }
        merge_unions(&mut spec.unions, raw, file, &mut report);
        merge_disputed(&mut spec.disputed, raw, file);
        for (kind, section) in raw.sections() {
            for (item_name, RawItems(alternatives)) in section {
                if !is_wanted(item_name.get_ref()) {
                    continue;
                }
                let key = (kind, item_name.get_ref().clone());
                items.remove(&key);
                let kept: Vec<Item> = alternatives
                    .iter()
                    .filter(|raw| !raw.removed)
                    .filter_map(|raw| item(kind, item_name, raw, file, &mut report))
                    .collect();
                if !kept.is_empty() {
                    items.insert(key, kept);
                }
            }
        }
        if let Some(types) = &raw.types {
            spec.extra_types.retain(|named| !types.removed.contains(&named.name));
            spec.extra_types.extend(types.extra.iter().map(|n| named(n, file)));
        }
        if let (Some(RawConstants { names, statuses }), None) = (&raw.constants, wanted) {
            spec.constants.extend(names.iter().chain(statuses).map(|n| named(n, file)));
            spec.statuses.extend(statuses.iter().map(|n| named(n, file)));
        }
    }
    spec.items = items.into_values().flatten().collect();
    default_nodes(&mut spec);
    spec.tags = tags(own, file, &mut report);
    known_trees(&spec, &mut report);
    known_nodes(&spec, &mut report);
    report.into_result(spec).map(|(spec, _)| spec)
}

fn merge_surfaces(surfaces: &mut Vec<Surface>, raw: &RawSpec, file: &File, report: &mut Report) {
    let mut own: Vec<_> = raw.surface.iter().collect();
    own.sort_by_key(|(_, surface)| surface.span().start);
    for (name, spanned) in own {
        let raw = spanned.get_ref();
        let place = SpecPlace { file: file.clone(), span: spanned.span() };
        let known = surfaces.iter().position(|s| s.name == *name);
        if raw.removed {
            match known {
                Some(at) => drop(surfaces.remove(at)),
                None => {
                    let message = format!("surface `{name}` is removed, but no parent has it");
                    report.push(Diagnostic::error("spec-parse", message).at(place.place()));
                }
            }
            continue;
        }
        let at = known.unwrap_or_else(|| {
            surfaces.push(Surface::empty(name, place.clone()));
            surfaces.len() - 1
        });
        let surface = &mut surfaces[at];
        surface.place = place;
        if let Some(tree) = &raw.tree {
            surface.tree = Some(named(tree, file));
        }
        if let Some(headers) = &raw.headers {
            surface.headers = headers.iter().map(|n| named(n, file)).collect();
        }
        if let Some(calls) = &raw.calls {
            surface.calls = calls.iter().map(|n| named(n, file)).collect();
        }
        replace(&mut surface.exclude, &raw.exclude);
        replace(&mut surface.include, &raw.include);
        replace(&mut surface.defines, &raw.defines);
        replace(&mut surface.prelude, &raw.prelude);
        replace(&mut surface.system, &raw.system);
        replace(&mut surface.language, &raw.language.as_ref().map(|l| l.name().to_owned()));
        surface.node = raw.node.as_ref().map(|n| named(n, file)).or_else(|| surface.node.take());
        surface.suffix = raw.suffix.clone().or_else(|| surface.suffix.take());
        if surface.headers.is_empty() {
            let message = format!("surface `{name}` has no `headers`");
            report.push(Diagnostic::error("spec-parse", message).at(surface.place.place()));
        }
    }
}

fn merge_nodes(nodes: &mut Vec<Node>, raw: &RawSpec, file: &File) {
    for (name, node) in &raw.node {
        let place = SpecPlace { file: file.clone(), span: name.span() };
        let own = Node {
            name: name.get_ref().clone(),
            paths: node.paths.clone(),
            note: node.note.clone(),
            place,
        };
        match nodes.iter_mut().find(|known| known.name == own.name) {
            Some(known) => *known = own,
            None => nodes.push(own),
        }
    }
}

fn merge_unions(
    unions: &mut BTreeMap<String, Choice>,
    raw: &RawSpec,
    file: &File,
    report: &mut Report,
) {
    for (union, raw) in &raw.unions {
        let Named { name, place } = named(union, file);
        if !name.contains('.') {
            let message = format!("`{name}` names no union");
            let bad = Diagnostic::error("spec-parse", message).at(place.place());
            report.push(bad.help("say which field of which record: \"RECORD.field\""));
        }
        let members = raw.members.iter();
        let members = members.map(|(member, number)| (member.clone(), named(number, file)));
        let members = members.collect();
        unions.insert(name, Choice { place, by: named(&raw.by, file), members });
    }
}

fn merge_disputed(disputed: &mut Vec<Disputed>, raw: &RawSpec, file: &File) {
    for (call, fields) in &raw.disputed {
        for (field, RawDisputed { theirs, evidence }) in fields {
            let (call, field) = (named(call, file), named(field, file));
            let same = |other: &Disputed| {
                (&other.call.name, &other.field.name) == (&call.name, &field.name)
            };
            disputed.retain(|other| !same(other));
            disputed.push(Disputed { call, field, theirs: *theirs, evidence: evidence.clone() });
        }
    }
}

fn merge_substitutes(substitutes: &mut Vec<Substitute>, raw: &RawRm) {
    let classes = raw.class.iter().map(|(name, RawClass { number, action })| {
        (name, *number, SubstituteAction::Alloc(*action))
    });
    let controls = raw.control.iter().map(|(name, RawCommand { number, action })| {
        (name, *number, SubstituteAction::Control(*action))
    });
    for (name, number, action) in classes.chain(controls) {
        let key = (action.kind(), name);
        substitutes.retain(|known| (known.action.kind(), &known.name) != key);
        substitutes.push(Substitute { name: name.clone(), number, action });
    }
}

/// The tags that a driver of several trees lists: its own, none of its parent's.
fn tags(
    own: &RawSpec,
    file: &File,
    report: &mut Report,
) -> BTreeMap<Tag, BTreeMap<String, String>> {
    let mut tags = BTreeMap::new();
    for (name, trees) in &own.tags {
        let complain = |why: String| {
            Diagnostic::error("spec-parse", why).at(SpecPlace {
                file: file.clone(),
                span: name.span(),
            }
            .place())
        };
        match name.get_ref().parse::<Tag>() {
            Ok(tag) if tag.branch() == own.driver => _ = tags.insert(tag, trees.clone()),
            Ok(tag) => report.push(complain(format!("{tag} is no tag of driver {}", own.driver))),
            Err(why) => report.push(complain(why)),
        }
    }
    tags
}

/// Surfaces and tags name trees that there are.
fn known_trees(spec: &Spec, report: &mut Report) {
    for tree in spec.surfaces.iter().filter_map(|surface| surface.tree.as_ref()) {
        if !spec.trees.contains_key(&tree.name) {
            report.push(unknown("tree", tree, spec.trees.keys().map(String::as_str)));
        }
    }
    for (tag, trees) in &spec.tags {
        for tree in trees.keys().filter(|tree| !spec.trees.contains_key(*tree)) {
            let message = format!("[tags] names a tree `{tree}` for {tag}, which there is not");
            report.push(Diagnostic::error("spec-parse", message).at(spec.place()));
        }
    }
}

/// What the ioctls of the x86 driver are made on, where an item does not say.
fn default_nodes(spec: &mut Spec) {
    for (kind, surface) in [(ItemKind::Frontend, "rm"), (ItemKind::Uvm, "uvm")] {
        let Some(node) = spec.surface_node(surface).cloned() else { continue };
        let items = spec.items.iter_mut().filter(|item| item.kind == kind);
        items.for_each(|item| _ = item.node.get_or_insert_with(|| node.clone()));
    }
}

/// Items name nodes that there are.
fn known_nodes(spec: &Spec, report: &mut Report) {
    let known = |node: &&Named| !spec.nodes.iter().any(|known| known.name == node.name);
    let named = spec
        .items
        .iter()
        .flat_map(|item| item.node.iter().chain(item.fd_nodes()))
        .chain(spec.surfaces.iter().filter_map(|surface| surface.node.as_ref()));
    for node in named.filter(known) {
        report.push(unknown("node", node, spec.nodes.iter().map(|node| node.name.as_str())));
    }
}

fn unknown<'a>(what: &str, named: &Named, known: impl Iterator<Item = &'a str>) -> Diagnostic {
    let name = &named.name;
    let diagnostic = Diagnostic::error("spec-parse", format!("there is no {what} `{name}`"))
        .at(named.place.place());
    match nearest(name, known) {
        Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
        None => diagnostic.help(format!("declare [{what}.{name}]")),
    }
}

/// What a child says replaces what its parent said.
fn replace<T: Clone>(inherited: &mut T, own: &Option<T>) {
    if let Some(own) = own {
        inherited.clone_from(own);
    }
}

fn named(name: &Spanned<String>, file: &File) -> Named {
    Named {
        name: name.get_ref().clone(),
        place: SpecPlace { file: file.clone(), span: name.span() },
    }
}

fn item(
    kind: ItemKind,
    name: &Spanned<String>,
    raw: &RawItem,
    file: &File,
    report: &mut Report,
) -> Option<Item> {
    let place = SpecPlace { file: file.clone(), span: name.span() };
    let mut tag = |text: &Option<Spanned<String>>| {
        let text = text.as_ref()?;
        match text.get_ref().parse::<Tag>() {
            Ok(tag) => Some(tag),
            Err(why) => {
                let place = SpecPlace { file: file.clone(), span: text.span() }.place();
                report.push(Diagnostic::error("spec-parse", why).at(place));
                None
            }
        }
    };
    let (since, until) = (tag(&raw.since), tag(&raw.until));
    let params = raw.params.iter().flat_map(|params| &params.0);
    let params: Vec<Named> = params.map(|n| named(n, file)).collect();
    if raw.parameterless && !params.is_empty() {
        let message = format!("`{}` cannot have `params` and be `parameterless`", name.get_ref());
        report.push(Diagnostic::error("spec-parse", message).at(place.place()));
        return None;
    }
    Some(Item {
        params,
        parameterless: raw.parameterless,
        array: raw.array,
        fds: raw.fds.iter().map(|n| named(n, file)).collect(),
        node: raw.node.as_ref().map(|n| named(n, file)),
        opens: (raw.opens.iter()).map(|(f, n)| (named(f, file), named(n, file))).collect(),
        files: (raw.files.iter()).map(|(f, n)| (named(f, file), named(n, file))).collect(),
        pointers: raw.pointers.iter().map(|p| pointer(p, file, report)).collect(),
        handles: raw.handles.iter().map(|(n, means)| (named(n, file), *means)).collect(),
        plain: raw.plain.iter().map(|n| named(n, file)).collect(),
        caps: raw.caps.clone(),
        number: raw.number,
        since,
        until,
        note: raw.note.clone(),
        ..Item::new(kind, name.get_ref().clone(), place)
    })
}

fn pointer(raw: &RawPointer, file: &File, report: &mut Report) -> Pointer {
    let calls = [
        (ItemKind::Frontend, &raw.frontend),
        (ItemKind::Control, &raw.control),
        (ItemKind::Class, &raw.class),
    ];
    let mut calls = calls.into_iter().filter_map(|(kind, by)| Some((kind, by.as_ref()?.0.clone())));
    let call = calls.next();
    if calls.next().is_some() || (call.is_some() && raw.of.is_some()) {
        let message = format!("`{}` points to one thing alone", raw.field.get_ref());
        report.push(
            Diagnostic::error("spec-parse", message)
                .at(named(&raw.field, file).place.place())
                .help("give one of `of`, `frontend`, `control` and `class`"),
        );
    }
    let has_inner = !(raw.fds.is_empty() && raw.pointers.is_empty() && raw.plain.is_empty());
    if has_inner && (raw.of.is_none() || raw.opaque) {
        let message = format!("`{}` has no elements that could have roles", raw.field.get_ref());
        report.push(
            Diagnostic::error("spec-parse", message)
                .at(named(&raw.field, file).place.place())
                .help("say in `of` what they are, and follow the pointer"),
        );
    }
    Pointer {
        field: named(&raw.field, file),
        len: raw.len.as_ref().map(|len| len.0.clone()),
        filled: raw.filled.as_ref().map(|len| len.0.clone()),
        call,
        of: raw.of.as_ref().map(|of| named(of, file)),
        dir: raw.dir,
        opaque: raw.opaque,
        fds: raw.fds.iter().map(|n| named(n, file)).collect(),
        pointers: raw.pointers.iter().map(|p| pointer(p, file, report)).collect(),
        plain: raw.plain.iter().map(|n| named(n, file)).collect(),
    }
}
