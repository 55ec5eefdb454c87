//! Commands that are answered by data: what the GPU's profile says (`crate::profile`).

use std::sync::Arc;

use super::Target;
use crate::Status;
use crate::profile::{Case, Datum, Entry, Filler, ListUse, Node, Scope, evaluate};
use crate::rm::Driver;
use crate::rm::failed::{Failed, Result};
use crate::rm::interface::{FieldRange, Params, offset_field};
use crate::rm::load::Shares;
use crate::rm::mig::Part;

/// The most entries that a list of a caller's may have.
const MAX_ENTRIES: u64 = 4096;

/// Where an expression of an answer stands.
struct Asked<'a> {
    driver: &'a Driver,
    view: View,
    params: &'a Params,
    /// How busy the GPU is, if it is not asked now.
    shares: Option<Shares>,
}

/// What a command is about: a GPU, or an instance of it that the client has chosen.
#[derive(Debug, Clone, Copy)]
pub(in crate::rm) struct View {
    pub(in crate::rm) gpu: usize,
    pub(in crate::rm) instance: Option<Part>,
}

impl From<usize> for View {
    fn from(gpu: usize) -> Self {
        Self { gpu, instance: None }
    }
}

impl Scope for Asked<'_> {
    fn value(&self, name: &str, depth: usize) -> Result<Datum, String> {
        let View { gpu, instance } = self.view;
        let of_instance = instance.and_then(|it| self.driver.value_of_instance(gpu, it, name));
        let simulated = || self.driver.simulated(gpu, name, self.shares).map(Datum::Number);
        if let Some(datum) = of_instance.or_else(simulated) {
            return Ok(datum);
        }
        if name == "params.size" {
            return Ok(Datum::Number(self.params.bytes.len() as i128));
        }
        if name == "driver.version" {
            return Ok(Datum::Text(self.driver.told_version.clone()));
        }
        let gpu = self.driver.gpus.get(gpu).ok_or_else(|| "there is no GPU".to_owned())?;
        gpu.value_in(name, self, depth)
    }

    fn field(&self, path: &str) -> Result<i128, String> {
        let range = offset_field(path).filter(|range| range.is_inside(self.params.bytes.len()));
        let number = match range {
            Some(range) => Ok(self.params.number_at(range)),
            None => self.params.get(path),
        };
        number.map(i128::from).map_err(|_| format!("the parameters have no field `{path}`"))
    }

    fn constant(&self, name: &str) -> Result<i128, String> {
        let found = self.driver.interface.constant_of_profile(name);
        found.ok_or_else(|| format!("there is no constant {name} in {}", self.driver.interface.tag))
    }
}

impl Driver {
    /// What happens in the simulator, by the names that profiles have for it.
    pub(in crate::rm) fn simulated(
        &self,
        gpu: usize,
        name: &str,
        shares: Option<Shares>,
    ) -> Option<i128> {
        let is_now = shares.is_none();
        let shares = || shares.unwrap_or_else(|| self.shares(gpu));
        Some(match name {
            // They are made of other values.
            "sim.energy" if is_now => i128::from(self.energy(gpu)),
            "sim.heat_time" if is_now => i128::from(self.heat_time(gpu)),
            "gpu.count" => self.gpus.len() as i128,
            "sim.memory_used" => i128::from(self.used_memory(gpu)),
            "sim.memory_free" => i128::from(self.free_memory(gpu)),
            "sim.window_free" => i128::from(self.free_window(gpu).all),
            "sim.window_largest" => i128::from(self.free_window(gpu).largest),
            "sim.bytes_read" => self.gpus.get(gpu).map_or(0, |gpu| gpu.traffic.read).into(),
            "sim.bytes_written" => self.gpus.get(gpu).map_or(0, |gpu| gpu.traffic.written).into(),
            "sim.instances" => self.gpus.get(gpu).map_or(0, |gpu| gpu.instances.0.len()) as i128,
            "sim.is_busy" => (shares() != Shares::default()).into(),
            "sim.memory_busy" => shares().memory.into(),
            "sim.graphics_busy" => shares().graphics.into(),
            "sim.microseconds" => i128::from(super::microseconds()),
            "driver.branch" => i128::from(self.version.first().copied().unwrap_or(0)),
            _ => return None,
        })
    }

    /// Whether the profile of a GPU has an answer to a command.
    pub(in crate::rm) fn has_answer(&self, target: &Target<'_>, command: &str) -> bool {
        let gpu = self.gpus.get(target.kind.gpu().unwrap_or(0));
        gpu.is_some_and(|gpu| gpu.profile.answers.contains_key(command))
    }

    /// The answer of a profile to a command, by its name or number; `None` where it has none.
    pub(in crate::rm) fn answer_of_profile(
        &mut self,
        target: &Target<'_>,
        command: &str,
        params: &mut Params,
    ) -> Option<Result> {
        let own = target.kind.gpu();
        // A command of the client's own is answered by the first GPU, unless it names another one.
        let profile = Arc::clone(&self.gpus.get(own.unwrap_or(0))?.profile);
        let cases = profile.answers.get(command)?;
        for case in cases {
            let view = match self.meant(case, target, params) {
                Ok(view) => view,
                Err(failed) => return Some(Err(failed)),
            };
            match self.fits(case, view, params) {
                Ok(true) => return Some(self.give(target, case, view, params)),
                Ok(false) => {}
                Err(failed) => return Some(Err(failed)),
            }
        }
        // Every case has a condition, and none is met.
        Some(Err(Failed::NotSimulated(
            Status::NOT_SUPPORTED,
            format!("{command} with these parameters"),
        )))
    }

    fn meant(&self, case: &Case, target: &Target<'_>, params: &Params) -> Result<View> {
        let Some((path, _)) = &case.of_gpu else {
            let gpu = target.kind.gpu().unwrap_or(0);
            return Ok(View { gpu, instance: self.chosen(target.client, gpu) });
        };
        let id = params.word(path)?;
        let found = self.gpus.iter().position(|gpu| gpu.id() == id && gpu.is_probed());
        match (found, &case.without_gpu) {
            (Some(gpu), _) => Ok(gpu.into()),
            (None, None) => Err(Status::INVALID_ARGUMENT.into()),
            (None, Some(node)) => {
                let number = self.value(node, 0.into(), params)?.number();
                Err(Status(number.unwrap_or_default() as u32).into())
            }
        }
    }

    fn value(&self, node: &Node, view: View, params: &Params) -> Result<Datum> {
        let asked = Asked { driver: self, view, params, shares: None };
        evaluate(node, &asked, 0).map_err(|message| Failed::Profile(place(node, &message)))
    }

    /// A number that the profile of a GPU has, or what programs made of it.
    pub(in crate::rm) fn number_of(&self, gpu: usize, name: &str) -> Option<i128> {
        self.number_at(gpu, name, None)
    }

    /// The same, when the GPU was so busy, if it is not asked now.
    pub(in crate::rm) fn number_at(
        &self,
        gpu: usize,
        name: &str,
        shares: Option<Shares>,
    ) -> Option<i128> {
        let params = Params::of(&self.interface, "", Vec::new());
        let asked = Asked { driver: self, view: gpu.into(), params: &params, shares };
        asked.value(name, 0).ok()?.number()
    }

    pub(in crate::rm) fn fits(
        &self,
        case: &Case,
        view: impl Into<View>,
        params: &Params,
    ) -> Result<bool> {
        let Some(node) = &case.only_if else { return Ok(true) };
        Ok(self.value(node, view.into(), params)?.number() != Some(0))
    }

    fn give(
        &mut self,
        target: &Target<'_>,
        case: &Case,
        view: View,
        params: &mut Params,
    ) -> Result {
        // All is read before anything is changed: a state's new value may be made of its old one.
        let mut changes = Vec::new();
        for (name, node) in &case.set_state {
            changes.push((name.clone(), self.value(node, view, params)?));
        }
        let status = match &case.fails_with {
            Some(node) => self.value(node, view, params)?.number(),
            None => None,
        };
        let asked = params.clone();
        if !changes.is_empty() {
            self.change(view.gpu, changes);
        }
        for filled in &case.fields {
            match &filled.with {
                Filler::Value(node) => {
                    let Some(range) = params.range(&filled.path) else {
                        if filled.is_optional {
                            continue;
                        }
                        let message = format!("the parameters have no `{}`", filled.path);
                        return Err(Failed::Profile(place(node, &message)));
                    };
                    let datum = self.value(node, view, &asked)?;
                    range.fits(&datum).map_err(|message| Failed::Profile(place(node, &message)))?;
                    params.write(range, &datum);
                }
                Filler::List(list) if params.has(&filled.path) => {
                    self.fill(target, list, &filled.path, view, params)?;
                }
                Filler::List(_) => {}
            }
        }
        match status {
            Some(number) if number != 0 => Err(Status(number as u32).into()),
            _ => Ok(()),
        }
    }

    /// Writes what the profile of a GPU says of a record that is mapped; what it has no value for is zero.
    pub(in crate::rm) fn fill_shared(&mut self, gpu: usize, record: &str, params: &mut Params) {
        let Some(profile) = self.gpus.get(gpu).map(|gpu| Arc::clone(&gpu.profile)) else { return };
        for filled in profile.shared.get(record).into_iter().flat_map(|case| &case.fields) {
            let (Filler::Value(node), Some(range)) = (&filled.with, params.range(&filled.path))
            else {
                continue;
            };
            match self.value(node, gpu.into(), params) {
                Ok(datum) if range.fits(&datum).is_ok() => params.write(range, &datum),
                Ok(_) => self.log.diagnose(0, "profile", place(node, "the value does not fit")),
                Err(Failed::Profile(text)) => self.log.diagnose(0, "profile", text),
                Err(_) => {}
            }
        }
    }

    /// Gives the entries of a list of the caller's the values of the indices that they name.
    fn fill(
        &mut self,
        target: &Target<'_>,
        list: &ListUse,
        path: &str,
        view: View,
        params: &mut Params,
    ) -> Result {
        let count = params.get(&list.count_in)?;
        match &list.entry_of {
            None => {
                if count == 0 || count > params.count(path)? as u64 {
                    return Err(Status::INVALID_ARGUMENT.into());
                }
                for entry in 0..count {
                    let index = params.word(&format!("{path}[{entry}].{}", list.key_in))?;
                    for (field, datum) in self.entry(target, list, view, index, params)? {
                        let range = params.range(&format!("{path}[{entry}].{field}"));
                        if let Some(range) = range {
                            params.write(range, &datum);
                        }
                    }
                }
                Ok(())
            }
            Some(record) => {
                let (address, size) = (params.get(path)?, self.interface.size(record).unwrap_or(0));
                if count == 0 || count > MAX_ENTRIES || address == 0 {
                    return Err(Status::INVALID_ARGUMENT.into());
                }
                for entry in 0..count {
                    let address = address.wrapping_add(entry * size as u64);
                    let read = self.read(target.caller.client, record, address, size);
                    let mut own = read.map_err(|_| Status::INVALID_ADDRESS)?;
                    let index = own.word(&list.key_in)?;
                    for (field, datum) in self.entry(target, list, view, index, &own)? {
                        if let Some(range) = own.range(&field) {
                            own.write(range, &datum);
                        }
                    }
                    if target.caller.client.write(address, &own.bytes) < size {
                        return Err(Status::INVALID_ADDRESS.into());
                    }
                }
                Ok(())
            }
        }
    }

    /// What an entry of a list is told. An index that the driver has and the profile does not know is zero,
    /// which is told; one that no header has is refused.
    fn entry(
        &mut self,
        target: &Target<'_>,
        list: &ListUse,
        view: View,
        index: u32,
        params: &Params,
    ) -> Result<Vec<(String, Datum)>> {
        let own = self.gpus.get(view.gpu).ok_or(Status::INVALID_DEVICE)?;
        if let Some(entry) = own.entry(&list.list, index).cloned() {
            return self.values_of(&entry, list, view, params);
        }
        let prefix =
            own.profile.lists.get(&list.list).map(|it| it.prefix.clone()).unwrap_or_default();
        let name = self.index_name(&prefix, index);
        if name.is_none() && !self.is_lenient {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let name = name.unwrap_or_else(|| format!("{prefix}{index:#x}"));
        let text = format!("{name} is unknown and was answered with 0");
        self.log.diagnose(target.caller.client.process(), "value-not-known", text);
        Ok(vec![(list.value_in.clone(), Datum::Number(0))])
    }

    fn values_of(
        &self,
        entry: &Entry,
        list: &ListUse,
        view: View,
        params: &Params,
    ) -> Result<Vec<(String, Datum)>> {
        let fields = entry.fields.iter().map(|(field, node)| {
            let field = if field.is_empty() { &list.value_in } else { field };
            Ok((field.clone(), self.value(node, view, params)?))
        });
        fields.collect()
    }

    /// The name of an index that the driver has: the values of an index have names that begin with its own.
    pub(in crate::rm) fn index_name(&self, prefix: &str, index: u32) -> Option<String> {
        let constants = &self.interface.constants;
        let is_value = |name: &str| {
            let ends = ["_NO", "_YES", "_ENABLED", "_DISABLED"];
            ends.iter()
                .any(|end| name.strip_suffix(end).is_some_and(|stem| constants.contains_key(stem)))
        };
        let named = constants.iter().filter(|(name, value)| {
            **value == u64::from(index)
                && name.strip_prefix(prefix).is_some_and(|rest| rest != "MAX")
                && !is_value(name)
        });
        named.map(|(name, _)| name.clone()).min()
    }
}

/// A complaint with the place of a value.
fn place(node: &Node, message: &str) -> String {
    format!("{}: {message}", node.place)
}

impl FieldRange {
    /// Whether a value has room in the field.
    pub(crate) fn fits(&self, datum: &Datum) -> Result<(), String> {
        let (size, count) = (self.size, self.count);
        match datum {
            Datum::Number(number) if size <= 8 => {
                let bits = size as u32 * 8;
                let range = -(1_i128 << (bits - 1))..(1_i128 << bits);
                match range.contains(number) {
                    true => Ok(()),
                    false => Err(format!("{number} does not fit {size} bytes")),
                }
            }
            Datum::Number(_) => Err(format!("a number does not fill {size} bytes")),
            Datum::Text(text) if size == 1 && text.len() < count.max(1) => Ok(()),
            Datum::Text(text) if size == 1 => Err(format!(
                "a text of {} letters and its end do not fit {count} bytes",
                text.len()
            )),
            Datum::Text(_) => Err("a text is no number".to_owned()),
            Datum::List(items) if items.len() > count => {
                Err(format!("{} elements do not fit an array of {count}", items.len()))
            }
            Datum::List(items) => {
                let one = FieldRange { count: 1, ..*self };
                items.iter().try_for_each(|item| one.fits(item))
            }
        }
    }
}

impl Params {
    /// The field of a path, or that at an offset.
    pub(in crate::rm) fn range(&self, path: &str) -> Option<FieldRange> {
        let range = match offset_field(path) {
            Some(range) => Some(range),
            None => self.place(path).ok(),
        };
        range.filter(|range| range.is_inside(self.bytes.len()))
    }

    /// Writes what fits.
    pub(in crate::rm) fn write(&mut self, range: FieldRange, datum: &Datum) {
        let FieldRange { offset, size, count } = range;
        let put = |bytes: &mut [u8], number: i128| {
            let number = number.to_le_bytes();
            for (byte, value) in bytes.iter_mut().zip(number) {
                *byte = value;
            }
        };
        let Some(bytes) = self.bytes.get_mut(offset..offset + size * count) else { return };
        match datum {
            Datum::Number(number) => put(&mut bytes[..size], *number),
            Datum::Text(text) => {
                bytes.fill(0);
                for (byte, letter) in bytes.iter_mut().zip(text.bytes()) {
                    *byte = letter;
                }
            }
            Datum::List(items) => {
                bytes.fill(0);
                for (element, item) in bytes.chunks_exact_mut(size.max(1)).zip(items) {
                    put(element, item.number().unwrap_or(0));
                }
            }
        }
    }
}
