//! Making and freeing objects (R/alloc_free.c).

use std::sync::Arc;

use super::failed::{Failed, Result};
use super::frontend::Caller;
use super::interface::{Class, Params};
use super::memory::Of;
use super::server::{Object, ObjectKind, OtherObject};
use super::{Driver, NodeKind, counters};
use crate::Errno;
use crate::Status;
use crate::profile::unnamed_class;

/// Numbers of classes, the same in every driver.
const ROOTS: [u32; 3] = [0x0000, 0x0001, ROOT_CLIENT];
const ROOT_CLIENT: u32 = 0x0041;
pub(super) const EVENTS: [u32; 4] = [EVENT, 0x0078, OS_EVENT, 0x007e];
pub(super) const EVENT: u32 = 0x0005;
pub(super) const OS_EVENT: u32 = 0x0079;
pub(super) const SYSTEM_MEMORY: u32 = 0x003e;
pub(super) const VIDEO_MEMORY: u32 = 0x0040;
/// NV01_MEMORY_SYSTEM_OS_DESCRIPTOR.
pub(super) const OS_DESCRIPTOR: u32 = 0x0071;
const SPACE: u32 = 0x90f1;
const WINDOW: u32 = 0x0070;
const GROUP: u32 = 0xa06c;
const CONTEXT_SHARE: u32 = 0x9067;
/// Classes of channels end with this byte.
const GPFIFO: u32 = 0x6f;
pub(super) const VIRTUAL_MEMORY: u32 = 0x50a0;
/// AMPERE_SMC_PARTITION_REF, AMPERE_SMC_EXEC_PARTITION_REF.
const GPU_INSTANCE: u32 = 0xc637;
const COMPUTE_INSTANCE: u32 = 0xc638;
/// NV50_P2P.
const PEERS: u32 = 0x503b;
/// GT200_DEBUGGER.
const DEBUGGER: u32 = 0x83de;
const DEVICE: u32 = 0x0080;
const SUBDEVICE: u32 = 0x2080;

/// The most devices that there could be.
const MAX_DEVICES: u64 = 32;
/// The most that work together as one (NV2080_MAX_SUBDEVICES).
const MAX_SUBDEVICES: u64 = 8;

/// Which objects may be right above one of a class (R/resource_list.h).
fn is_parent(class: u32, parent: &ObjectKind) -> bool {
    match class {
        DEVICE | PEERS => *parent == ObjectKind::Root,
        SUBDEVICE | SYSTEM_MEMORY | SPACE | WINDOW | VIRTUAL_MEMORY | GROUP | DEBUGGER => {
            matches!(parent, ObjectKind::Device(_))
        }
        CONTEXT_SHARE => matches!(parent, ObjectKind::Group(_)),
        GPU_INSTANCE => matches!(parent, ObjectKind::Subdevice(_)),
        COMPUTE_INSTANCE => matches!(parent, ObjectKind::GpuInstance { .. }),
        _ if class & 0xff == GPFIFO => {
            matches!(parent, ObjectKind::Device(_) | ObjectKind::Group(_))
        }
        VIDEO_MEMORY => matches!(parent, ObjectKind::Device(_) | ObjectKind::Subdevice(_)),
        _ => EVENTS.contains(&class),
    }
}

/// Whether objects of a class are simulated.
fn is_simulated(class: u32) -> bool {
    let others = [
        DEVICE,
        SUBDEVICE,
        SYSTEM_MEMORY,
        VIDEO_MEMORY,
        SPACE,
        WINDOW,
        VIRTUAL_MEMORY,
        GROUP,
        CONTEXT_SHARE,
        GPU_INSTANCE,
        COMPUTE_INSTANCE,
        PEERS,
        DEBUGGER,
    ];
    others.contains(&class) || EVENTS.contains(&class)
}

impl Driver {
    /// NV_ESC_RM_ALLOC, which both files take, but for some classes.
    pub(super) fn alloc_call(&mut self, caller: Caller<'_>, args: &mut Params) -> Result {
        let class = args.word("hClass")?;
        if caller.node != NodeKind::Control && !EVENTS.contains(&class) {
            return Err(Errno::EINVAL.into());
        }
        if ROOTS.contains(&class) {
            args.set("hClass", ROOT_CLIENT)?;
        }
        self.alloc(caller, args)
    }

    /// S/rs_server.c: `serverAllocResource`, R/alloc_free.c: `serverAllocResourceUnderLock`.
    fn alloc(&mut self, caller: Caller<'_>, args: &mut Params) -> Result {
        let class = args.word("hClass")?;
        let known = self.interface.class(class).cloned();
        let Some(known) = known.or_else(|| self.unnamed_class(class)) else {
            return Err(Failed::Unknown(Status::INVALID_CLASS, format!("class {class:#06x}")));
        };
        let address = args.get("pAllocParms")?;
        let mut params = match &known.params {
            Some(_) if address == 0 && !known.is_optional => {
                return Err(Status::INVALID_ARGUMENT.into());
            }
            Some(record) if address != 0 => {
                let size = self.interface.size(record).unwrap_or(0);
                let read = self.read(caller.client, record, address, size);
                Some(read.map_err(|_| Status::INVALID_ADDRESS)?)
            }
            _ => None,
        };
        let wanted = args.word("hObjectNew")?;
        let handle = args.word("hRoot")?;
        let made = if ROOTS.contains(&class) {
            self.server.add_client(
                handle,
                caller.owner,
                (caller.client.process(), caller.client.run()),
            )?
        } else {
            let place = NewObject { client: handle, parent: args.word("hObjectParent")?, wanted };
            self.alloc_object(caller, class, &known.name, place, params.as_mut())?
        };
        args.set("hObjectNew", made)?;
        if let Some(params) = params {
            let written = caller.client.write(address, &params.bytes);
            if written < params.bytes.len() {
                return Err(Status::INVALID_ADDRESS.into());
            }
        }
        Ok(())
    }

    /// A class that no header names, where a card has objects of it.
    fn unnamed_class(&self, number: u32) -> Option<Class> {
        let name = unnamed_class(number);
        let is_known = self.gpus.iter().any(|gpu| gpu.profile.objects.contains_key(&name));
        is_known.then_some(Class { name, number, params: None, is_optional: true })
    }

    pub(super) fn alloc_object(
        &mut self,
        caller: Caller<'_>,
        class: u32,
        name: &str,
        mut place: NewObject,
        mut params: Option<&mut Params>,
    ) -> Result<u32> {
        self.server.client(place.client, caller.owner)?;
        let event = match EVENTS.contains(&class) {
            true => Some(self.wanted_event(class, &mut place, params.as_deref_mut())?),
            false => None,
        };
        let NewObject { client: handle, parent, wanted } = place;
        let client = self.server.client(handle, caller.owner)?;
        if wanted == handle {
            return Err(Status::INVALID_OBJECT_PARENT.into());
        }
        let above = client.object(parent)?.kind.clone();
        let is_channel = class & 0xff == GPFIFO && self.has_class(&above, name);
        let other = match is_simulated(class) || is_channel {
            true => None,
            false => Some(self.object_of_profile(caller, (class, name), place, &above)?),
        };
        if other.is_none() && !is_parent(class, &above) {
            return Err(Status::INVALID_OBJECT_PARENT.into());
        }
        self.need_gpu(above.gpu())?;
        let client = self.server.client(handle, caller.owner)?;
        let own = client.assign(handle, wanted)?;
        if let Some(kind) = other {
            client.add(own, Object::new(parent, kind));
            return Ok(own);
        }
        let kind = match (class, event) {
            (_, Some(event)) => self.event(handle, own, &event)?,
            (DEVICE, _) => self.device(handle, params.as_deref())?,
            (SUBDEVICE, _) => self.subdevice(handle, parent, &above, params.as_deref())?,
            _ => {
                let params = params.ok_or(Status::INVALID_ARGUMENT)?;
                match class {
                    GPU_INSTANCE => self.choose_instance(caller, &above, params)?,
                    COMPUTE_INSTANCE => self.choose_compute(caller, &above, params)?,
                    PEERS => self.peers(handle, params)?,
                    DEBUGGER => self.debugger(handle, &above, params)?,
                    SPACE => self.address_space(&above, params)?,
                    WINDOW => self.window(handle, parent, params)?,
                    VIRTUAL_MEMORY => self.address_range(handle, parent, params)?,
                    GROUP => self.group(handle, parent, &above, params)?,
                    CONTEXT_SHARE => self.context_share(handle, &above, params)?,
                    _ if is_channel => self.channel(class, place, own, params)?,
                    _ => self.memory(class, place.client, &above, params)?,
                }
            }
        };
        let client = self.server.client(handle, caller.owner)?;
        client.add(own, Object::new(parent, kind.clone()));
        self.account(handle, &kind);
        Ok(own)
    }

    /// An object that does nothing but answer or show, where the profile of its GPU has one.
    fn object_of_profile(
        &mut self,
        caller: Caller<'_>,
        (class, name): (u32, &str),
        place: NewObject,
        above: &ObjectKind,
    ) -> Result<ObjectKind> {
        let gpu = above.gpu();
        if let ObjectKind::Channel(_) = above {
            // What a channel has methods for: an engine's class, of those that the card has.
            return match self.has_class(above, name) {
                true => Ok(ObjectKind::Other(OtherObject { class, commands: class, gpu })),
                false => Err(Status::INVALID_CLASS.into()),
            };
        }
        let profile = self.gpus.get(gpu.unwrap_or(0)).map(|gpu| gpu.profile.clone());
        let rule = profile.as_ref().and_then(|profile| profile.objects.get(name));
        let Some(rule) = rule else {
            self.not_simulated(caller, format!("class {name}"))?;
            return Ok(ObjectKind::Other(OtherObject { class, commands: class, gpu }));
        };
        // What a card has not is no class of it.
        if rule.below.is_empty() {
            return Err(Status::INVALID_CLASS.into());
        }
        let word = match above {
            ObjectKind::Root => "client",
            ObjectKind::Device(_) => "device",
            ObjectKind::Subdevice(_) => "subdevice",
            _ => "",
        };
        if !rule.below.iter().any(|below| below == word) {
            return Err(Status::INVALID_OBJECT_PARENT.into());
        }
        if let (Some(record), Some(gpu)) = (&rule.shared, gpu) {
            return Ok(ObjectKind::Memory(self.show_record(gpu, record)?));
        }
        if let (counters::CLASS, Some(gpu)) = (name, gpu) {
            let client = self.server.find(place.client)?;
            if client.below(place.parent).any(|object| counters::is_of_counters(&object.kind)) {
                return Err(Status::STATE_IN_USE.into());
            }
            return Ok(ObjectKind::Memory(self.show_counters(gpu)?));
        }
        if let (Some(size), Some(gpu)) = (rule.registers, gpu) {
            return Ok(ObjectKind::Memory(Arc::new(self.buffer(size, gpu, Of::Registers)?)));
        }
        Ok(ObjectKind::Other(OtherObject { class, commands: rule.commands.unwrap_or(class), gpu }))
    }

    /// Whether a class is one of those that an object's card has.
    fn has_class(&self, object: &ObjectKind, name: &str) -> bool {
        let gpu = object.gpu().and_then(|gpu| self.gpus.get(gpu));
        gpu.is_some_and(|gpu| gpu.words("classes").iter().any(|class| class == name))
    }

    /// `resservResourceFactory` and `deviceConstruct_IMPL`.
    fn device(&self, client: u32, params: Option<&Params>) -> Result<ObjectKind> {
        let asks_first = self.is_since(&[550, 40, 7]);
        if params.is_none() && asks_first {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let instance = params.map_or(Ok(0), |params| params.get("deviceId"))?;
        let gpu = usize::try_from(instance).unwrap_or(usize::MAX);
        if !self.gpus.get(gpu).is_some_and(|gpu| gpu.is_attached()) {
            return Err(match (asks_first, instance < MAX_DEVICES) {
                (true, true) => Status::INVALID_STATE.into(),
                (true, false) => Status::INVALID_ARGUMENT.into(),
                (false, _) => Status::INVALID_CLASS.into(),
            });
        }
        if self.gpus[gpu].drains() {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let found = self.server.find(client)?;
        let kind = ObjectKind::Device(gpu);
        if found.children(client).any(|(_, object)| object.kind == kind) {
            return Err(Status::INSUFFICIENT_RESOURCES.into());
        }
        self.need_gpu(Some(gpu))?;
        Ok(kind)
    }

    /// `subdeviceConstruct_IMPL`.
    fn subdevice(
        &self,
        client: u32,
        parent: u32,
        above: &ObjectKind,
        params: Option<&Params>,
    ) -> Result<ObjectKind> {
        let ObjectKind::Device(gpu) = *above else {
            return Err(Status::INVALID_OBJECT_PARENT.into());
        };
        let instance = params.map_or(Ok(0), |params| params.get("subDeviceId"))?;
        // Each GPU is a device of its own.
        if instance >= MAX_SUBDEVICES || instance != 0 {
            return Err(Status::INVALID_CLASS.into());
        }
        let kind = ObjectKind::Subdevice(gpu);
        let found = self.server.find(client)?;
        if found.children(parent).any(|(_, object)| object.kind == kind) {
            return Err(Status::INSUFFICIENT_RESOURCES.into());
        }
        Ok(kind)
    }

    /// S/rs_server.c: `serverFreeResourceTree`. An object that is not there is as good as freed.
    pub(super) fn free(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let (handle, object) = (args.word("hRoot")?, args.word("hObjectOld")?);
        let client = self.server.client(handle, caller.owner)?;
        if client.object(object).is_ok_and(|it| it.kind.may_be_rung()) {
            self.take_last_doorbells();
        }
        if object == handle {
            self.server.remove(handle);
            self.free_events_of(handle);
        } else {
            self.server.client(handle, caller.owner)?.remove(object);
        }
        self.settle();
        Ok(())
    }

    /// Objects are gone: so is what others had by them.
    pub(super) fn settle(&mut self) {
        self.drop_channels();
        self.drop_reservations();
        self.drop_ticks();
        self.drop_registers();
        self.end_accounts();
    }
}

/// Where a new object is to be.
#[derive(Clone, Copy)]
pub(super) struct NewObject {
    pub(super) client: u32,
    pub(super) parent: u32,
    /// Its handle, or zero.
    pub(super) wanted: u32,
}

impl NewObject {
    /// As the older calls name it.
    pub(super) fn of(args: &Params) -> Result<Self> {
        Ok(Self {
            client: args.word("params.hRoot")?,
            parent: args.word("params.hObjectParent")?,
            wanted: args.word("params.hObjectNew")?,
        })
    }
}
