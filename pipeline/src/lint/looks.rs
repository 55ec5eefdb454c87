//! Fields that look like more than they are said to be.

use std::collections::BTreeSet;

use super::{Leaf, Linter, Scope, plain};
use crate::model::{RecordKind, split_array};

/// What a field looks like, by its type or its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looks {
    Pointer,
    Fd,
    Handle,
}

impl Linter<'_> {
    /// Fields that look like pointers, file descriptors or handles have a role, or are said to be none.
    pub(super) fn lookalikes(&mut self, scope: &Scope<'_>, leaves: &[Leaf]) {
        let roles = (scope.fds.iter().chain(scope.plain))
            .chain(scope.pointers.iter().map(|pointer| &pointer.field))
            .chain(scope.handles.iter().map(|(field, _)| field));
        let roles: BTreeSet<String> = roles.map(|named| plain(&named.name)).collect();
        for leaf in leaves.iter().filter(|leaf| !roles.contains(&leaf.path)) {
            match looks_like(leaf) {
                Some(Looks::Handle) => self.handle(scope, leaf),
                Some(looks) => self.hidden(scope, leaf, looks),
                None => {}
            }
        }
    }

    fn hidden(&mut self, scope: &Scope<'_>, leaf: &Leaf, looks: Looks) {
        let Scope { item, prefix, .. } = scope;
        let (name, own) = (&item.name, &leaf.path);
        let path = scope.path(own);
        let (looks, role) = match looks {
            Looks::Fd => ("a file descriptor", format!("fds = [\"{own}\"]")),
            _ => ("a pointer", format!("pointers = [{}]", self.proposed(item, &path, own))),
        };
        let message = match item.is_simple() {
            true => {
                format!("`{name}` is declared simple, but its field `{path}` looks like {looks}")
            }
            false => {
                format!("`{name}` has a field `{path}` that looks like {looks} and has no role")
            }
        };
        let mut help = format!("give it one: {role}, or plain = [\"{own}\"] when it is none");
        if let Some(pointer) = prefix.strip_suffix("->") {
            help.push_str(&format!(", in the role of `{pointer}`"));
        }
        let source = leaf.source.clone();
        self.complain("lint-hidden-role", message, &item.place, source, Some(help));
    }

    fn handle(&mut self, scope: &Scope<'_>, leaf: &Leaf) {
        // A driver that tells nothing of handles has none.
        if self.spec.handles.is_empty() || self.spec.handles.contains_key(&leaf.name) {
            return;
        }
        let (name, path) = (&scope.item.name, scope.path(&leaf.path));
        let message = format!("`{name}` has a field `{path}` that names an object, who knows what");
        let help = "say what it is in [handles]: client, parent, object, new, class or none";
        let source = leaf.source.clone();
        self.complain("lint-handle", message, &scope.item.place, source, Some(help.to_owned()));
    }

    /// Which member of a union holds is known where one of them has a pointer or a handle.
    pub(super) fn unions(&mut self, scope: &Scope<'_>, leaves: &[Leaf]) {
        for leaf in leaves {
            let Some(union) = &leaf.union else { continue };
            if !matches!(looks_like(leaf), Some(Looks::Pointer | Looks::Handle)) {
                continue;
            }
            let said = self.spec.unions.get(&union.key);
            if said.is_some_and(|choice| choice.members.contains_key(&union.member)) {
                continue;
            }
            let (name, path, key) = (&scope.item.name, scope.path(&leaf.path), &union.key);
            let message = format!("`{name}`: no rule says when the union holds `{path}`");
            let help = format!("say so in [unions.\"{key}\"], for the member `{}`", union.member);
            let source = leaf.source.clone();
            self.complain("lint-union", message, &scope.item.place, source, Some(help));
        }
    }

    /// What [unions] names exists, for the records that the driver has.
    pub(super) fn choices(&mut self) {
        let spec = self.spec;
        for (key, choice) in &spec.unions {
            let Some((record, field)) = key.rsplit_once('.') else { continue };
            let Some((surface, _, record)) = self.record(record) else { continue };
            let union = record.fields.iter().find(|of| of.name == field);
            let union = union.and_then(|of| surface.records.get(split_array(&of.canonical).0));
            let Some(union) = union.filter(|union| union.kind == RecordKind::Union) else {
                let message = format!("`{key}` is no union, and so always holds");
                let help = Some("a condition is that of a union's member alone".to_owned());
                self.complain("lint-unknown-union", message, &choice.place, None, help);
                continue;
            };
            let by = &choice.by;
            if !record.fields.iter().any(|of| of.name == by.name) {
                let message = format!("`{key}` is chosen by `{}`, which is no field", by.name);
                self.complain("lint-unknown-field", message, &by.place, None, None);
            }
            for (member, number) in &choice.members {
                let there = union.fields.iter().any(|of| of.name == *member);
                let known = number.name.parse::<u64>().is_ok()
                    || self.surfaces().any(|surface| super::has_constant(surface, &number.name));
                if there && !known {
                    let message = format!("the driver has no constant `{}`", number.name);
                    self.complain("lint-unknown-item", message, &number.place, None, None);
                }
            }
        }
    }
}

/// Whether a field's name is that of a file descriptor: `fd`, `drmFd`, `fdHandle`, `sourceDescriptors`.
pub fn is_named_like_fd(name: &str) -> bool {
    prefixed(name, "fd") || ends(name, &["fd", "fds", "descriptor", "descriptors"])
}

/// `pName`, `hName`, `fdName`: a short word of its own, before a capital.
fn prefixed(name: &str, prefix: &str) -> bool {
    let rest = name.strip_prefix(prefix);
    rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
}

fn ends(name: &str, ends: &[&str]) -> bool {
    let name = name.to_ascii_lowercase();
    ends.iter().any(|end| name.ends_with(end))
}

fn looks_like(leaf: &Leaf) -> Option<Looks> {
    let name = leaf.name.as_str();
    let (declared, canonical) = (split_array(&leaf.declared).0, split_array(&leaf.canonical).0);
    let is_wide = canonical.contains("long");
    let pointer_by_name = prefixed(name, "p") || ends(name, &["ptr", "pointer", "buffer"]);
    if declared.ends_with("NvP64") || canonical.contains('*') || is_wide && pointer_by_name {
        Some(Looks::Pointer)
    } else if is_named_like_fd(name) {
        Some(Looks::Fd)
    } else if declared.ends_with("NvHandle") || prefixed(name, "h") && canonical.ends_with("int") {
        Some(Looks::Handle)
    } else {
        None
    }
}
