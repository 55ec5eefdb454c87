//! The facts of a tag as the simulated driver takes them.

use nvabi_pipeline::diagnostic::Report;
use nvabi_pipeline::lock;
use nvabi_pipeline::model::{self, Facts, Record, Surface};
use nvabi_pipeline::spec::Spec;
use nvabi_pipeline::tag::Tag;
use nvabi_reports::list::{self, Listed};
use nvabi_sim::rm::{CONSTANTS, Class, Command, Field, Interface, Ioctl, Layout};

use crate::context::{Family, spec_of};

/// The surfaces that are simulated; what both name is the first one's.
const SURFACES: [&str; 2] = ["rm", "uvm"];

/// What the lock has of a tag.
pub(super) fn at(family: &Family, tag: &Tag) -> Result<Interface, Report> {
    let facts = lock::read_facts_with(&family.lock, tag, &CONSTANTS)?;
    Ok(of(&facts, spec_of(&family.specs, tag)?))
}

fn of(facts: &Facts, spec: &Spec) -> Interface {
    let mut interface = Interface { tag: facts.tag.to_string(), ..Interface::default() };
    for surface in SURFACES.iter().filter_map(|name| facts.surfaces.get(*name)) {
        add(&mut interface, surface);
    }
    interface.ioctls = list::ioctls(facts, spec).iter().filter_map(ioctl).collect();
    interface.commands = list::calls(facts, "command").into_iter().filter_map(command).collect();
    interface.classes = list::calls(facts, "class").into_iter().filter_map(class).collect();
    interface
}

fn add(interface: &mut Interface, surface: &Surface) {
    let named = surface.aliases.iter().filter_map(|(name, alias)| {
        let record = surface.records.get(&alias.ty)?;
        Some((name, record))
    });
    for (name, record) in surface.records.iter().chain(named) {
        let layout = || layout(surface, record);
        interface.records.entry(name.clone()).or_insert_with(layout);
    }
    for (name, constant) in &surface.constants {
        if let Ok(value) = u64::try_from(constant.value) {
            interface.constants.entry(name.clone()).or_insert(value);
        }
    }
}

fn layout(surface: &Surface, record: &Record) -> Layout {
    let fields = record.fields.iter().map(|field| {
        let (element, counts) = model::split_array(&field.canonical);
        let count = counts.iter().product::<u64>() as usize;
        Field {
            name: field.name.clone(),
            offset: field.offset as usize,
            size: field.size as usize / count.max(1),
            count,
            record: surface.records.contains_key(element).then(|| element.to_owned()),
        }
    });
    Layout { size: record.size as usize, fields: fields.collect() }
}

fn ioctl(listed: &Listed) -> Option<Ioctl> {
    let is_uvm = listed.surface == "uvm";
    let number = if is_uvm { listed.request? } else { listed.nr? };
    let is_simulated = is_uvm || listed.surface == "rm";
    let number = u32::try_from(number).ok().filter(|_| is_simulated)?;
    Some(Ioctl { name: listed.name.clone(), is_uvm, number })
}

/// What a driver has another name for is found by that one.
fn is_own(listed: &Listed) -> bool {
    listed.same_as.is_none()
}

fn command(listed: Listed) -> Option<Command> {
    let number = u32::try_from(listed.cmd?).ok().filter(|_| is_own(&listed))?;
    Some(Command { name: listed.name, number, params: listed.params.into_iter().next() })
}

fn class(listed: Listed) -> Option<Class> {
    let is_there = !listed.how.as_deref().unwrap_or_default().starts_with("no-");
    let number = u32::try_from(listed.class?).ok().filter(|_| is_own(&listed) && is_there)?;
    let params = listed.params.into_iter().next();
    Some(Class { name: listed.name, number, params, is_optional: listed.optional })
}
