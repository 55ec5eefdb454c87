//! What the driver's own tables say of a call, beside what the spec says: the resource list, the
//! tables of exported methods and FINN's message ids of its parameters, and the list of embedded
//! pointers of those.

use super::{Leaf, Linter, plain};
use crate::model::{CALLS, CallKind, CallParams, Embedded, ParamSource};
use crate::spec::{Direction, Item, ItemKind, Pointer};

impl<'a> Linter<'a> {
    pub(super) fn against_driver(&mut self, item: &Item, leaves: &[Leaf]) {
        let Some(takes) = self.call_params(item) else { return };
        self.parameters(item, takes);
        for pointer in &takes.pointers {
            self.embedded(item, pointer, leaves);
        }
    }

    /// What the driver's tables say of a command or class.
    fn call_params(&self, item: &Item) -> Option<&'a CallParams> {
        let kind = match item.kind {
            ItemKind::Control => CallKind::Command,
            ItemKind::Class => CallKind::Class,
            _ => return None,
        };
        let facts = self.facts;
        let call = facts.surfaces.get(CALLS)?.calls.get(&item.name)?;
        Some(&call.takes).filter(|takes| takes.kind == kind && takes.is_mapped())
    }

    fn parameters(&mut self, item: &Item, takes: &CallParams) {
        let resolved = |name: &str| match self.record(name) {
            Some((_, name, _)) => name.to_owned(),
            None => name.to_owned(),
        };
        let theirs = takes.params.as_deref().map(resolved);
        let fits = match &theirs {
            None => item.params.is_empty(),
            Some(theirs) => item.params.iter().any(|own| resolved(&own.name) == *theirs),
        };
        if !fits {
            let theirs = theirs.map_or("no parameters".to_owned(), |ty| format!("`{ty}`"));
            let how = match takes.how {
                ParamSource::List => "its resource list",
                ParamSource::Table => "its table of exported methods",
                ParamSource::Finn => "its number's message id",
                how => how.word(),
            };
            let message = format!("`{}` takes {theirs}, as the driver has it in {how}", item.name);
            let place = item.params.first().map_or(&item.place, |named| &named.place);
            self.complain("lint-parameters", message, place, self.source(item), None);
        }
    }

    fn source(&self, item: &Item) -> Option<String> {
        let call = self.facts.surfaces.get(CALLS)?.calls.get(&item.name)?;
        Some(call.source.to_string())
    }

    /// A pointer that the driver follows before anything else looks at the parameters.
    fn embedded(&mut self, item: &Item, pointer: &Embedded, leaves: &[Leaf]) {
        let (name, field) = (&item.name, &pointer.field);
        let own = item.pointers.iter().find(|own| plain(&own.field.name) == *field);
        let proposal = || Some(format!("pointers = [{}]", proposal(pointer)));
        let Some(own) = own.filter(|own| !own.opaque) else {
            let message = format!("`{name}`: the driver follows `{field}`, but the spec does not");
            self.complain("lint-pointer", message, &item.place, self.source(item), proposal());
            return;
        };
        let (ours, theirs) =
            (self.amount(own), (pointer.count.replace(' ', ""), pointer.unit.clone()));
        let theirs = (theirs.0, self.unit(&theirs.1));
        let comparable = pointer.count != "?" && theirs.1.is_some();
        let same = ours == theirs || total(&ours).zip(total(&theirs)).is_some_and(|(a, b)| a == b);
        if comparable && !same {
            let Embedded { count, unit, .. } = pointer;
            let message = format!("`{name}`: behind `{field}` the driver has {count} of {unit}");
            let place = &own.field.place;
            self.complain("lint-pointer-length", message, place, self.source(item), proposal());
        }
        let ours = own.dir.map(direction);
        let wide_enough = ours == Some("inout") || ours == Some(&pointer.direction);
        if !wide_enough && leaves.iter().any(|leaf| leaf.path == *field) {
            let ours = ours.unwrap_or("nothing");
            let message = format!(
                "`{name}`: `{field}` is copied {}, the spec says {ours}",
                pointer.direction
            );
            let place = &own.field.place;
            self.complain("lint-pointer-direction", message, place, self.source(item), proposal());
        }
    }

    /// How many, and of how many bytes, the spec says: constants as numbers.
    fn amount(&self, pointer: &Pointer) -> (String, Option<u64>) {
        let number = |term: &str| {
            let constant = self.surfaces().find_map(|surface| surface.constants.get(term));
            constant.map_or(term.to_owned(), |constant| constant.value.to_string())
        };
        let len = pointer.len.as_deref().unwrap_or_default();
        let terms: Vec<String> = len.split('*').map(|term| number(term.trim())).collect();
        let unit = pointer.of.as_ref().map_or(Some(1), |of| self.size(&of.name));
        (terms.join("*"), unit)
    }

    /// Bytes of a type, or what a number says.
    fn unit(&self, unit: &str) -> Option<u64> {
        unit.parse().ok().or_else(|| self.size(unit))
    }

    /// The role that the driver's list gives a field, or as much as can be said without it.
    pub(super) fn proposed(&self, item: &Item, path: &str, own: &str) -> String {
        let pointers = self.call_params(item).into_iter().flat_map(|takes| &takes.pointers);
        let known = pointers.filter(|pointer| pointer.field == path).map(proposal).next();
        known.unwrap_or_else(|| format!("{{ field = \"{own}\", len = …, dir = … }}"))
    }
}

/// Where it is a number: how many bytes in all.
fn total((count, unit): &(String, Option<u64>)) -> Option<u64> {
    count.parse::<u64>().ok()?.checked_mul((*unit)?)
}

fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::In => "in",
        Direction::Out => "out",
        Direction::InOut => "inout",
    }
}

/// As a spec would say it.
fn proposal(pointer: &Embedded) -> String {
    let Embedded { field, count, unit, direction } = pointer;
    let count = count.replace('*', " * ");
    let of = match unit.parse::<u64>() {
        Ok(_) => String::new(),
        Err(_) => format!(", of = \"{unit}\""),
    };
    format!("{{ field = \"{field}\", len = \"{count}\"{of}, dir = \"{direction}\" }}")
}
