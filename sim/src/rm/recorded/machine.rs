//! A simulated driver with one GPU, which is asked what a recorded one was asked.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::Call;
use crate::client::{Client, Descriptor, Mapped, Pin, Work};
use crate::fault::Faults;
use crate::files::FileId;
use crate::log::{Log, RunId};
use crate::memory::{Access, Inode, Node as File, Pages};
use crate::profile::expr::Expr;
use crate::profile::{
    Case, Datum, Entry, Filled, ListUse, Node, Place, Profile, Scope, Value, each_expr, each_inner,
    evaluate,
};
use crate::rm::control::{Target, is_answered_in_code};
use crate::rm::failed::Failed;
use crate::rm::frontend::Caller;
use crate::rm::interface::{Interface, Params};
use crate::rm::server::ObjectKind;
use crate::rm::{Driver, NodeKind};
use crate::topology::Spots;
use crate::{Errno, Status};

/// How deep values may be made of each other.
const MAX_DEPTH: usize = 32;

/// A driver, whose profile can be changed.
pub(super) struct Machine {
    driver: Driver,
}

/// What it answers.
pub(super) struct Answer {
    /// `None` where it has no answer.
    pub(super) status: Option<Status>,
    pub(super) bytes: Vec<u8>,
    pub(super) buffers: Vec<(u64, Vec<u8>)>,
}

/// An entry of a list of the caller's.
pub(super) struct ListEntry {
    pub(super) index: u32,
    /// What the paths of its fields begin with.
    pub(super) prefix: String,
    pub(super) before: Params,
    pub(super) after: Params,
    /// The buffer that it is in, by its address, and where.
    pub(super) buffer: Option<(u64, usize)>,
}

impl Machine {
    pub(super) fn new(profile: &Profile, interface: &Arc<Interface>) -> Self {
        let gpus = [Arc::new(profile.clone())];
        let log = Log::new(Faults::default());
        let spots = Spots::apart(gpus.len());
        Self { driver: Driver::new(interface.clone(), interface.tag.clone(), &gpus, spots, log) }
    }

    pub(super) fn interface(&self) -> &Arc<Interface> {
        &self.driver.interface
    }

    /// The record of a command's parameters.
    pub(super) fn record(&self, command: u32) -> Option<String> {
        self.interface().command(command)?.params.clone()
    }

    /// A value of the profile that needs no caller.
    pub(super) fn own_value(&self, name: &str) -> Option<Datum> {
        evaluate(&self.node_of(name), &Alone(self), 0).ok()
    }

    /// A record that a program maps, as the profile fills it.
    pub(super) fn fill(&mut self, record: &str) -> Params {
        let mut params = self.params_of(record, &[]);
        self.driver.fill_shared(0, record, &mut params);
        params
    }

    pub(super) fn profile(&self) -> &Profile {
        &self.driver.gpus[0].profile
    }

    pub(super) fn into_profile(self) -> Profile {
        self.profile().clone()
    }

    /// Gives values to the profile.
    pub(super) fn set_all<'v>(&mut self, values: impl Iterator<Item = (&'v String, &'v Datum)>) {
        let Some(gpu) = self.driver.gpus.first_mut() else { return };
        let profile = Arc::make_mut(&mut gpu.profile);
        values.for_each(|(name, datum)| profile.set(name, datum.clone()));
    }

    /// What a profile calls a command.
    pub(super) fn name(&self, command: u32) -> String {
        name(self.interface(), command)
    }

    /// The profile's answers to a command; `None` where it has none, or a rule answers.
    pub(super) fn cases(&self, call: &Call) -> Option<&[Case]> {
        let name = self.name(call.command);
        let cases = self.profile().answers.get(&name).filter(|_| !is_answered_in_code(&name));
        cases.map(Vec::as_slice)
    }

    pub(super) fn params(&self, call: &Call, bytes: &[u8]) -> Params {
        let known = self.interface().command(call.command);
        self.params_of(known.and_then(|it| it.params.as_deref()).unwrap_or_default(), bytes)
    }

    pub(super) fn params_of(&self, record: &str, bytes: &[u8]) -> Params {
        Params::of(self.interface(), record, bytes.to_vec())
    }

    /// The record that objects of a class show, and its fields.
    pub(super) fn shown(&self, class: u32) -> Option<(String, Vec<Filled>)> {
        let class = self.interface().class(class)?;
        let record = self.profile().objects.get(&class.name)?.shared.clone()?;
        let fields = self.profile().shared.get(&record).map(|case| case.fields.clone());
        Some((record, fields.unwrap_or_default()))
    }

    /// Whether a program has set a value.
    pub(super) fn is_changed(&self, name: &str) -> bool {
        self.driver.gpus[0].state.contains_key(name)
    }

    pub(super) fn value(
        &self,
        name: &str,
        scope: &dyn Scope,
        depth: usize,
    ) -> Result<Datum, String> {
        self.driver.gpus[0].value_in(name, scope, depth)
    }

    pub(super) fn value_with(
        &self,
        name: &str,
        params: &Params,
        scope: &dyn Scope,
        depth: usize,
    ) -> Result<Datum, String> {
        if let Some(number) = self.driver.simulated(0, name, None) {
            return Ok(Datum::Number(number));
        }
        match name {
            "params.size" => Ok(Datum::Number(params.bytes.len() as i128)),
            "driver.version" => Ok(Datum::Text(self.interface().tag.clone())),
            _ => self.value(name, scope, depth),
        }
    }

    pub(super) fn field(&self, params: &Params, path: &str) -> Result<i128, String> {
        let range = params.range(path).ok_or_else(|| format!("there is no field `{path}`"))?;
        Ok(params.number_at(range).into())
    }

    pub(super) fn constant(&self, name: &str) -> Result<i128, String> {
        let found = self.interface().constant_of_profile(name);
        found.ok_or_else(|| format!("there is no constant {name}"))
    }

    /// A node that is a name, at no place.
    pub(super) fn node_of(&self, name: &str) -> Node {
        Node { place: self.place(), value: Value::Expr(Expr::Value(name.to_owned())) }
    }

    pub(super) fn place(&self) -> Place {
        Place::nowhere()
    }

    /// How a value is written in the profile.
    pub(super) fn written(&self, name: &str) -> Option<&Value> {
        self.profile().values.get(name).map(|node| &node.value)
    }

    /// The value that an expression is, if it is one that is made of no others.
    pub(super) fn own_name<'e>(&self, expr: &'e Expr) -> Option<&'e str> {
        let Expr::Value(name) = expr else { return None };
        (!is_of_simulator(name) && self.made_of(name).is_none()).then_some(name)
    }

    /// What an element of a list is made of, if it is of other values.
    pub(super) fn element(&self, name: &str, at: usize) -> Option<Expr> {
        let Some(Value::List(items)) = self.written(name) else { return None };
        match &items.get(at)?.value {
            Value::Expr(expr) => Some(expr.clone()),
            _ => None,
        }
    }

    /// What a value is made of, where that is other values: `24 * GiB` is none.
    pub(super) fn made_of(&self, name: &str) -> Option<&Expr> {
        let Some(Value::Expr(expr)) = self.written(name) else { return None };
        let mut is_made = false;
        each_inner(expr, &mut |inner| is_made |= matches!(inner, Expr::Value(_) | Expr::Field(_)));
        is_made.then_some(expr)
    }

    /// The values of the card that an expression is made of in the end.
    pub(super) fn leaves(&self, expr: &Expr, names: &mut BTreeSet<String>, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        each_inner(expr, &mut |inner| {
            let Expr::Value(name) = inner else { return };
            match self.made_of(name) {
                _ if name.starts_with("driver.") || name.starts_with("params.") => {}
                Some(made) if !self.is_changed(name) => self.leaves(made, names, depth + 1),
                _ => drop(names.insert(name.clone())),
            }
        });
    }

    /// How many values an expression is made of.
    pub(super) fn depth_of(&self, expr: &Expr) -> usize {
        let mut names = BTreeSet::new();
        self.leaves(expr, &mut names, 0);
        names.len()
    }

    pub(super) fn entry(&self, list: &str, index: u32) -> Option<&Entry> {
        self.driver.gpus[0].entry(list, index)
    }

    /// How a profile writes an index of a list.
    pub(super) fn index_key(&self, list: &str, index: u32) -> String {
        let prefix =
            self.profile().lists.get(list).map(|it| it.prefix.as_str()).unwrap_or_default();
        let name = self.driver.index_name(prefix, index);
        let key = name.as_deref().and_then(|name| name.strip_prefix(prefix)).map(str::to_owned);
        key.unwrap_or_else(|| format!("{index:#x}"))
    }

    /// The entries of a list of the caller's.
    pub(super) fn list_entries(
        &self,
        call: &Call,
        path: &str,
        list: &ListUse,
        before: &Params,
        after: &Params,
    ) -> Vec<ListEntry> {
        let count = before.get(&list.count_in).unwrap_or(0);
        let mut entries = Vec::new();
        let mut add = |prefix: String, before: &Params, after: &Params, buffer| {
            let index = before.word(&format!("{prefix}{}", list.key_in));
            if let Ok(index) = index {
                entries.push(ListEntry {
                    index,
                    prefix,
                    before: before.clone(),
                    after: after.clone(),
                    buffer,
                });
            }
        };
        match &list.entry_of {
            None => {
                for at in 0..count.min(before.count(path).unwrap_or(0) as u64) {
                    add(format!("{path}[{at}]."), before, after, None);
                }
            }
            Some(record) => {
                let size = self.interface().size(record).unwrap_or(0).max(1);
                let address = before.get(path).unwrap_or(0);
                let Some(buffer) = call.buffers.iter().find(|buffer| buffer.address == address)
                else {
                    return entries;
                };
                let pairs = buffer.before.chunks_exact(size).zip(buffer.after.chunks_exact(size));
                for (at, (before, after)) in pairs.enumerate().take(count as usize) {
                    let (before, after) =
                        (self.params_of(record, before), self.params_of(record, after));
                    add(String::new(), &before, &after, Some((address, at * size)));
                }
            }
        }
        entries
    }

    /// Asks a command, which may change the state of the GPU.
    pub(super) fn ask(&mut self, call: &Call) -> Answer {
        let name = self.name(call.command);
        let mut params = self.params(call, &call.before);
        let buffers = call.buffers.iter().map(|buffer| (buffer.address, buffer.before.clone()));
        let client = Recorded { buffers: RefCell::new(buffers.collect()) };
        let owner = FileId::default();
        let caller = Caller { client: &client, file: owner, node: NodeKind::Control, owner };
        let kind = if call.is_of_client { ObjectKind::Root } else { ObjectKind::Subdevice(0) };
        let target = Target { caller, client: 0, object: 0, kind };
        let status = match self.driver.answer_of_profile(&target, &name, &mut params) {
            Some(Ok(())) => Some(Status::OK),
            Some(Err(Failed::Status(status))) => Some(status),
            _ => None,
        };
        params.bytes.truncate(call.before.len());
        Answer { status, bytes: params.bytes, buffers: client.buffers.into_inner() }
    }

    /// The case that answers a call.
    pub(super) fn case(&self, call: &Call, before: &Params) -> Option<(usize, &Case)> {
        let mut cases = self.cases(call)?.iter().enumerate();
        cases.find(|(_, case)| self.driver.fits(case, 0, before) == Ok(true))
    }
}

/// What a profile calls a command: its name, or its number where the driver has none.
pub(super) fn name(interface: &Interface, command: u32) -> String {
    interface
        .command(command)
        .map_or_else(|| format!("{command:#010x}"), |known| known.name.clone())
}

/// Values that are the machine's, not the card's: `base` makes them up.
const OF_MACHINE: [&str; 4] =
    ["driver.version", "identity.interrupt", "bars.registers.base", "bars.window.base"];

/// A recording is taken for one of a GPU at rest: this is 0 in it.
const AT_REST: &str = "sim.is_busy";

/// Values that are not the card's.
pub(super) fn is_of_simulator(name: &str) -> bool {
    ["gpu.", "sim.", "driver.", "params."].iter().any(|begin| name.starts_with(begin))
}

/// Whether a value is made of what the simulator does, where the GPU is, or the time: no recording has it.
pub(super) fn is_simulated(profile: &Profile, node: &Node) -> bool {
    fn looks(profile: &Profile, node: &Node, depth: usize) -> bool {
        let mut does = false;
        each_expr(node, &mut |expr| {
            let Expr::Value(name) = expr else { return };
            let begins = ["gpu.", "sim."].iter().any(|begin| name.starts_with(begin));
            does |= begins && name != AT_REST;
            does |= OF_MACHINE.contains(&name.as_str());
            if let (Some(node), true) = (profile.values.get(name), depth < MAX_DEPTH) {
                does |= looks(profile, node, depth + 1);
            }
        });
        does
    }
    looks(profile, node, 0)
}

/// Names without a caller.
struct Alone<'m>(&'m Machine);

impl Scope for Alone<'_> {
    fn value(&self, name: &str, depth: usize) -> Result<Datum, String> {
        self.0.value(name, self, depth)
    }

    fn field(&self, path: &str) -> Result<i128, String> {
        Err(format!("there is no caller to have `{path}`"))
    }

    fn constant(&self, name: &str) -> Result<i128, String> {
        self.0.constant(name)
    }
}

/// The caller of a recorded command: its buffers are all that it has.
struct Recorded {
    buffers: RefCell<Vec<(u64, Vec<u8>)>>,
}

impl Recorded {
    /// Does something with the bytes at an address that there are.
    fn with(&self, address: u64, length: usize, then: impl FnOnce(&mut [u8])) -> usize {
        for (start, bytes) in self.buffers.borrow_mut().iter_mut() {
            let Some(at) = address.checked_sub(*start).and_then(|at| usize::try_from(at).ok())
            else {
                continue;
            };
            if at < bytes.len() {
                let end = at.saturating_add(length).min(bytes.len());
                then(&mut bytes[at..end]);
                return end - at;
            }
        }
        0
    }
}

impl Client for Recorded {
    fn process(&self) -> u32 {
        0
    }

    fn run(&self) -> RunId {
        0
    }

    fn read(&self, address: u64, into: &mut [u8]) -> usize {
        self.with(address, into.len(), |bytes| into[..bytes.len()].copy_from_slice(bytes))
    }

    fn write(&self, address: u64, from: &[u8]) -> usize {
        self.with(address, from.len(), |bytes| bytes.copy_from_slice(&from[..bytes.len()]))
    }

    fn pages(&self, _: u64, _: u64, _: Pin) -> Option<Pages> {
        None
    }

    fn descriptor(&self, _: i32) -> Descriptor {
        Descriptor::Closed
    }

    fn install(&self, _: &File, _: Access) -> Result<i32, Errno> {
        Err(Errno::EBADF)
    }

    fn has_room(&self) -> bool {
        false
    }

    fn mappings_of(&self, _: u32, _: Inode) -> Option<Vec<Range<u64>>> {
        Some(Vec::new())
    }

    fn mapping_from(&self, _: u64) -> Option<Option<Mapped>> {
        Some(None)
    }

    fn close(&self, _: i32) {}

    fn may_reschedule(&self) -> bool {
        false
    }

    fn delay(&self, _: Duration) {}

    fn go_on(&self, _: Work) {}
}
