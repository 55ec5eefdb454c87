//! The GPUs of the machine: each has a profile, and a state that programs change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use super::Driver;
use super::accounts::Accounts;
use super::control::Registers;
use super::energy::Meter;
use super::interface::Interface;
use super::mig::Instances;
use super::window::Window;
use crate::Errno;
use crate::machine::Writer;
use crate::profile::{Datum, Entry, Profile, Scope, evaluate};
use crate::topology::Spot;

/// A GPU.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) minor: u32,
    /// Where it is on the bus, and the node of memory that is near.
    spot: Spot,
    /// How many keep it awake: the driver has no GPU of which it holds no file.
    users: usize,
    /// Whether it was to be removed when it was closed.
    is_leaving: bool,
    /// Whether the driver has started it since it found it.
    pub(super) was_started: bool,
    /// Whether the driver has it: the bus may have one that it was told to let go.
    is_bound: bool,
    /// Writes that do not return before nobody has it: one to `unbind`, and those behind it.
    rebinds: Vec<Rebind>,
    /// Whether it has fallen off the bus.
    pub(super) is_lost: bool,
    /// Whether the bus has it no more, until it is looked for.
    pub(super) is_removed: bool,
    /// Bytes of its memory that programs have.
    pub(super) used: Arc<AtomicU64>,
    /// By which processes see it.
    pub(super) window: Arc<Window>,
    pub(super) profile: Arc<Profile>,
    /// What programs changed, by name.
    pub(super) state: BTreeMap<String, Datum>,
    /// Programs that computed on it, while that is kept.
    pub(super) accounts: Accounts,
    /// What it has drawn.
    pub(super) meter: Meter,
    pub(super) traffic: Traffic,
    /// The client whose context has it, where only one may.
    pub(super) reservation: Option<u32>,
    /// Clients and subdevices that ask for a clock of the shader cores that ticks as often as can be.
    pub(super) fast_ticks: BTreeSet<(u32, u32)>,
    /// What programs wrote into registers.
    pub(super) registers: Registers,
    /// What it is divided into.
    pub(super) instances: Instances,
    /// Entries of the profile's lists by the numbers of their indices.
    lists: BTreeMap<String, BTreeMap<u32, Entry>>,
    facts: Facts,
}

/// Bytes of the system's memory that it read and wrote, over the bus.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) read: u64,
    pub(super) written: u64,
}

/// A write to `bind` or `unbind` that has not returned.
#[derive(Debug, PartialEq, Eq)]
struct Rebind {
    /// Who makes no call meanwhile; nobody where it was killed.
    thread: Option<u32>,
    binds: bool,
}

/// What is asked for often.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Facts {
    pub(super) vendor: u16,
    pub(super) device: u16,
    pub(super) subsystem: u32,
    pub(super) class: u32,
    pub(super) revision: u32,
    pub(super) interrupt: u16,
    /// Of its multiprocessors at work.
    pub(super) megahertz: u64,
    /// Bytes of its memory, and those of them that no program gets.
    pub(super) memory: u64,
    pub(super) reserved: u64,
    /// Registers and the window to its memory: where, and how many bytes.
    pub(super) registers: (u64, u64),
    pub(super) window: (u64, u64),
}

impl Gpu {
    pub(super) fn new(
        minor: u32,
        spot: Spot,
        profile: Arc<Profile>,
        interface: &Interface,
    ) -> Self {
        let lists = lists(&profile, interface);
        let (state, facts) = (BTreeMap::new(), Facts::default());
        let (users, is_lost, used, reservation) = (0, false, Arc::default(), None);
        let instances = Instances::default();
        let mut gpu = Self {
            minor,
            spot,
            users,
            is_leaving: false,
            was_started: false,
            is_bound: true,
            rebinds: Vec::new(),
            is_lost,
            is_removed: false,
            used,
            window: Window::new(0, 0),
            profile,
            state,
            reservation,
            fast_ticks: BTreeSet::new(),
            registers: Registers::new(),
            accounts: Accounts::default(),
            meter: Meter::new(Instant::now()),
            traffic: Traffic::default(),
            instances,
            lists,
            facts,
        };
        gpu.facts = gpu.read_facts();
        gpu.window = Window::new(gpu.facts.window.1, gpu.number("bars.window.driver"));
        gpu
    }

    /// What its profile says, which may be something else after a reset.
    fn read_facts(&self) -> Facts {
        let number = |name: &str| self.number(name);
        Facts {
            vendor: number("identity.vendor") as u16,
            device: number("identity.device") as u16,
            subsystem: number("identity.subsystem") as u32,
            class: number("identity.class") as u32,
            revision: number("identity.revision") as u32,
            interrupt: number("identity.interrupt") as u16,
            megahertz: number("clocks.graphics.rated").max(1),
            memory: number("memory.size"),
            reserved: number("memory.reserved"),
            registers: (number("bars.registers.base"), number("bars.registers.size")),
            window: (number("bars.window.base"), number("bars.window.size")),
        }
    }

    /// What its machine says of it, whatever its profile does.
    pub(super) fn settle(&mut self, name: &str, number: u32) {
        self.state.insert(name.to_owned(), Datum::Number(number.into()));
    }

    pub(super) fn facts(&self) -> Facts {
        self.facts
    }

    /// A number of its profile: loading checked that those which the simulator asks for are there.
    fn number(&self, name: &str) -> u64 {
        let number = self.own_value(name, 0).ok().and_then(|datum| datum.number());
        number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
    }

    /// A text of its profile.
    pub(super) fn text(&self, name: &str) -> String {
        match self.own_value(name, 0) {
            Ok(Datum::Text(text)) => text,
            _ => String::new(),
        }
    }

    /// A list of names of its profile.
    pub(super) fn words(&self, name: &str) -> Vec<String> {
        let Ok(Datum::List(items)) = self.own_value(name, 0) else { return Vec::new() };
        let text = |item| if let Datum::Text(text) = item { Some(text) } else { None };
        items.into_iter().filter_map(text).collect()
    }

    /// A list of numbers of its profile.
    pub(super) fn counts(&self, name: &str) -> Vec<u32> {
        let Ok(Datum::List(items)) = self.own_value(name, 0) else { return Vec::new() };
        items.iter().filter_map(|item| u32::try_from(item.number()?).ok()).collect()
    }

    /// The entry of a list by its index.
    pub(super) fn entry(&self, list: &str, index: u32) -> Option<&Entry> {
        self.lists.get(list)?.get(&index)
    }

    /// A value that needs no more than the GPU itself.
    pub(super) fn own_value(&self, name: &str, depth: usize) -> Result<Datum, String> {
        self.value_in(name, &Alone(self), depth)
    }

    /// The value of a name: what was changed, else what the profile says.
    pub(super) fn value_in(
        &self,
        name: &str,
        scope: &dyn Scope,
        depth: usize,
    ) -> Result<Datum, String> {
        if let Some(datum) = self.state.get(name) {
            return Ok(datum.clone());
        }
        let number = |number: u32| Ok(Datum::Number(i128::from(number)));
        match name {
            "gpu.minor" | "gpu.index" => number(self.minor),
            "gpu.bus" => number(self.bus()),
            // Each is alone on a bus of the first domain.
            "gpu.domain" | "gpu.slot" => number(0),
            "gpu.id" => number(self.id()),
            "gpu.attached" => number((self.is_attached() || self.persists()).into()),
            "gpu.uuid" => Ok(Datum::Text(self.uuid_text())),
            _ => match self.profile.values.get(name) {
                Some(node) => evaluate(node, scope, depth),
                None => Err(format!("there is no value `{name}`")),
            },
        }
    }

    /// Whether the resource manager has it.
    pub(super) fn is_attached(&self) -> bool {
        self.users > 0
    }

    /// Somebody begins to use it.
    pub(super) fn take(&mut self) {
        self.users += 1;
        self.was_started = true;
    }

    /// Somebody uses it no more. The last one takes it away that is to be removed (N/nv.c: `nvidia_close_callback`).
    pub(super) fn let_go(&mut self) {
        self.users -= 1;
        self.is_leaving = self.users == 0 && self.is_to_be_removed();
    }

    /// Whether the resource manager keeps it when nobody has it (A/osinit.c: `RmPartiallyDisableAdapter`).
    fn persists(&self) -> bool {
        /// NV0080_CTRL_GPU_SW_STATE_PERSISTENCE_ENABLED.
        const ENABLED: Datum = Datum::Number(0);
        self.was_started && self.own_value("state.persistence", 0) == Ok(ENABLED)
    }

    /// Whether the driver knows of it.
    pub(super) fn is_probed(&self) -> bool {
        !self.is_removed && self.is_bound
    }

    /// Whether Linux shows it with its driver, whose link goes before the driver is asked (drivers/base/dd.c:
    /// `__device_release_driver`).
    pub(super) fn shows_driver(&self) -> bool {
        self.is_probed() && self.rebinds.is_empty()
    }

    /// Why its file cannot be opened (N/nv.c: `nv_open_device`): one that is lost or drains is not started again, and
    /// one that drains takes no more users where somebody has it. Persistence keeps what it was told, but not it open
    /// (`nv_stop_device`).
    fn refusal(&self) -> Option<Errno> {
        match self.is_attached() {
            true => self.drains().then_some(Errno::EBUSY),
            false => (!self.is_probed() || self.is_lost || self.drains()).then_some(Errno::EIO),
        }
    }

    /// A write to `bind` or `unbind` waits. Whether it is another than the last one: that would change nothing.
    fn wait_for_rebind(&mut self, writer: Writer, binds: bool) -> bool {
        let rebind = Rebind { thread: Some(writer.thread), binds };
        let is_new = self.rebinds.last() != Some(&rebind);
        if is_new {
            self.rebinds.push(rebind);
        }
        is_new
    }

    /// Whether nobody may begin to use it: `nvidia-smi drain`.
    pub(super) fn drains(&self) -> bool {
        /// NV0000_CTRL_GPU_DRAIN_STATE_ENABLED.
        const ENABLED: u64 = 1;
        self.number("state.drain") == ENABLED
    }

    /// Whether it goes now, as it is to be removed and nobody has it: with persistence only when it was closed since
    /// (gpu_mgr.c: `gpumgrModifyGpuDrainState`).
    fn leaves(&self) -> bool {
        let is_idle = !self.is_attached() && (self.is_leaving || !self.persists());
        is_idle && self.is_to_be_removed() && !self.is_removed
    }

    fn is_to_be_removed(&self) -> bool {
        self.number("state.remove") != 0
    }

    /// Its bus: each has one of its own.
    pub(super) fn bus(&self) -> u32 {
        self.spot.bus
    }

    /// The node of memory that is near.
    pub(super) fn node(&self) -> Option<u32> {
        self.spot.node
    }

    /// Its number among all (R: made of domain, bus and slot).
    pub(super) fn id(&self) -> u32 {
        self.bus() << 8
    }

    /// Its identity, of sixteen bytes.
    pub(super) fn uuid(&self) -> [u8; 16] {
        let mut uuid = *b"nvabi-simulated\0";
        uuid[15] = self.minor as u8;
        uuid
    }

    /// The same, as people write it.
    pub(super) fn uuid_text(&self) -> String {
        format!("GPU-{}", uuid_words(self.uuid()))
    }

    /// Where it is on the bus, as people write it.
    pub(super) fn location(&self) -> String {
        self.spot.location()
    }

    /// Its folder among the devices of the machine.
    pub(super) fn folder(&self) -> String {
        self.spot.folder()
    }
}

impl Driver {
    /// A GPU begins anew, unless somebody has it: its profile says which state it then has, and it is divided no more.
    pub(super) fn reset(&mut self, gpu: usize) {
        if self.gpus[gpu].is_attached() {
            let text = format!("GPU {gpu} is in use: it was not reset");
            self.log.diagnose(0, "in-use", text);
            return;
        }
        let profile = Arc::clone(&self.gpus[gpu].profile);
        let names = profile.values.keys().filter_map(|name| name.strip_prefix("reset."));
        // All is read before anything is changed.
        let after = names.filter_map(|name| {
            let number = self.number_of(gpu, &format!("reset.{name}"))?;
            Some((format!("state.{name}"), Datum::Number(number)))
        });
        let after: Vec<_> = after.collect();
        self.gpus[gpu].instances = Instances::default();
        self.gpus[gpu].accounts = Accounts::default();
        self.counters.set_stream(gpu, false);
        self.has_other_entries = true;
        self.change(gpu, after);
        self.gpus[gpu].facts = self.gpus[gpu].read_facts();
    }

    /// Takes a GPU off the bus, unless somebody has it: the driver would wait for them (N/nv-pci.c: `nv_pci_remove`).
    pub(super) fn remove(&mut self, gpu: usize) {
        if self.gpus[gpu].is_attached() {
            let text = format!("GPU {gpu} is in use: it was not removed");
            self.log.diagnose(0, "in-use", text);
            return;
        }
        self.gpus[gpu].is_removed = true;
        self.has_other_entries = true;
    }

    /// Why a GPU takes no more users. One that is being let go takes none since 575 (N/nv-pci.c: `nv_pci_remove`).
    pub(super) fn refusal(&self, gpu: usize) -> Option<Errno> {
        let own = &self.gpus[gpu];
        let is_leaving = !own.rebinds.is_empty() && self.is_since(&[575]);
        if is_leaving { Some(Errno::ENODEV) } else { own.refusal() }
    }

    /// Lets the driver let go of a GPU. The write of it does not return while somebody has that (N/nv-pci.c:
    /// `nv_pci_remove`).
    pub(super) fn unbind(&mut self, gpu: usize, writer: Writer) {
        let own = &mut self.gpus[gpu];
        if !own.is_probed() {
            return;
        }
        let is_new = own.wait_for_rebind(writer, false);
        self.has_other_entries = true;
        if !self.gpus[gpu].is_attached() {
            self.rebind(gpu);
        } else if is_new {
            let text = format!("GPU {gpu} is in use: `unbind` waits until nobody has it open");
            self.log.diagnose(writer.process, "in-use", text);
        }
    }

    /// The driver takes a GPU of the bus that it has not. One that it is letting go it takes after that: Linux locks
    /// the device meanwhile (drivers/base/dd.c: `device_driver_attach`).
    pub(super) fn bind(&mut self, gpu: usize, writer: Writer) {
        let own = &mut self.gpus[gpu];
        if own.rebinds.is_empty() {
            own.is_bound = true;
            self.has_other_entries = true;
        } else {
            own.wait_for_rebind(writer, true);
        }
    }

    /// The driver has let go of a GPU, and what was written after that is done too.
    fn rebind(&mut self, gpu: usize) {
        let is_bound = self.gpus[gpu].rebinds.last().is_some_and(|last| last.binds);
        self.forget(gpu);
        self.gpus[gpu].is_bound = is_bound;
    }

    /// Threads that are in a write for as long as somebody has a GPU.
    pub(super) fn rebinders(&self) -> Vec<u32> {
        let rebinds = self.gpus.iter().flat_map(|gpu| &gpu.rebinds);
        rebinds.filter_map(|rebind| rebind.thread).collect()
    }

    /// Forgets the numbers of threads that were killed in a write, not what they wrote: others may get the numbers.
    pub(super) fn forget_rebinders(&mut self, is_gone: &dyn Fn(u32) -> bool) {
        for rebind in self.gpus.iter_mut().flat_map(|gpu| &mut gpu.rebinds) {
            rebind.thread = rebind.thread.filter(|thread| !is_gone(*thread));
        }
    }

    /// What the driver forgets of a GPU that it lets go: all but what the card keeps.
    fn forget(&mut self, gpu: usize) {
        const FORGOTTEN: [&str; 4] =
            ["state.persistence", "state.timeslice", "state.drain", "state.remove"];
        let own = &mut self.gpus[gpu];
        own.state.retain(|name, _| !FORGOTTEN.contains(&name.as_str()));
        own.instances = Instances::default();
        own.accounts = Accounts::default();
        own.registers.clear();
        own.rebinds.clear();
        own.is_leaving = false;
        own.was_started = false;
        self.counters.set_stream(gpu, false);
        self.has_other_entries = true;
    }

    /// Removes what was to be removed and is in use no more, and lets go of what the driver was to let go.
    pub(super) fn remove_idle(&mut self) {
        for gpu in 0..self.gpus.len() {
            if self.gpus[gpu].leaves() {
                self.remove(gpu);
            }
            if !self.gpus[gpu].is_attached() && !self.gpus[gpu].rebinds.is_empty() {
                self.rebind(gpu);
            }
        }
    }

    /// The bus finds what was removed, of which the driver has forgotten all (gpu_mgr.c: `gpumgrRegisterGpuId`).
    /// NVML has switched off the links of their ports; that this finds them is what its documentation says.
    pub(super) fn find_removed(&mut self) {
        self.spots.train_links();
        for gpu in 0..self.gpus.len() {
            if std::mem::take(&mut self.gpus[gpu].is_removed) {
                self.forget(gpu);
                self.gpus[gpu].is_bound = true;
                self.reset(gpu);
            }
        }
    }

    /// The GPUs that the driver has.
    pub(super) fn present(&self) -> impl Iterator<Item = &Gpu> {
        self.gpus.iter().filter(|gpu| gpu.is_probed())
    }

    /// Values of its state change.
    pub(super) fn change(&mut self, gpu: usize, values: Vec<(String, Datum)>) {
        self.read_meter(gpu);
        if let Some(own) = self.gpus.get_mut(gpu) {
            own.state.extend(values);
        }
        self.remove_idle();
        // Who is told of it then may look at once, without a call.
        self.rewrite_records();
    }
}

/// An identity as people write it, without what it is of.
pub(super) fn uuid_words(uuid: [u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    format!("{a}-{b}-{c}-{d}-{e}")
}

/// The entries of each list by number: those that the driver has.
fn lists(profile: &Profile, interface: &Interface) -> BTreeMap<String, BTreeMap<u32, Entry>> {
    let lists = profile.lists.iter().map(|(name, list)| {
        let entries = list.entries.iter().filter_map(|(key, entry)| {
            let number = match key.strip_prefix("0x") {
                Some(digits) => u32::from_str_radix(digits, 16).ok(),
                None => {
                    u32::try_from(interface.constant_of_profile(&format!("{}{key}", list.prefix))?)
                        .ok()
                }
            };
            Some((number?, entry.clone()))
        });
        (name.clone(), entries.collect())
    });
    lists.collect()
}

/// A GPU without a caller or a driver.
struct Alone<'a>(&'a Gpu);

impl Scope for Alone<'_> {
    fn value(&self, name: &str, depth: usize) -> Result<Datum, String> {
        self.0.value_in(name, self, depth)
    }

    fn field(&self, path: &str) -> Result<i128, String> {
        Err(format!("there is no caller to have `{path}`"))
    }

    fn constant(&self, name: &str) -> Result<i128, String> {
        Err(format!("there is no driver to have {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Spots;

    #[test]
    fn a_gpu_is_told_from_others() {
        let spots = Spots::apart(2);
        let gpu = |minor: u32| {
            let spot = spots.gpus[minor as usize].clone();
            Gpu::new(minor, spot, Arc::default(), &Interface::default())
        };
        let (first, second) = (gpu(0), gpu(1));
        assert_eq!((first.id(), second.id()), (0x100, 0x200));
        assert_eq!(first.uuid_text(), "GPU-6e766162-692d-7369-6d75-6c6174656400");
        assert_ne!(first.uuid(), second.uuid());
        assert_eq!(second.location(), "0000:02:00.0");
    }
}
