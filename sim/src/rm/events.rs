//! Events: an object tells a file of what happens to it, and who waits for the file takes it
//! (A/osapi.c, A/os.c, N/nv.c, R/event.c, R/event_notification.c).

use std::collections::{BTreeMap, VecDeque};

use super::Driver;
use super::alloc::{EVENT, EVENTS, NewObject, OS_EVENT};
use super::failed::Result;
use super::frontend::Caller;
use super::interface::Params;
use super::server::{Object, ObjectKind};
use crate::Status;
use crate::files::FileId;
use crate::memory::Node;

/// Functions of the kernel's, which no process can give.
const CALLBACKS: [u32; 2] = [0x78, 0x7e];

/// Flags of an index: NV01_EVENT_WITHOUT_EVENT_DATA, NV01_EVENT_NONSTALL_INTR; and the index without them
/// (NV0005_NOTIFY_INDEX_INDEX).
const WITHOUT_DATA: u32 = 0x1000_0000;
const OF_ENGINE: u32 = 0x0800_0000;
const INDEX: u32 = 0xffff;

/// What an Xid says of instances of MIG where there are none: `kmigmgrGetAttributionIdFromMIGReference_IMPL` makes it
/// of KMIGMGR_MAX_GPU_SWIZZID and KMIGMGR_MAX_COMPUTE_INSTANCES.
const NO_INSTANCE: u16 = 15 * 15 + 8;

/// A file that a client asked to be told by (`nv_event_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OsEvent {
    number: u64,
    client: u32,
    /// As the caller knows it.
    fd: u32,
    pub(super) file: FileId,
}

/// What a file has to tell.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Oldest first.
    events: VecDeque<Event>,
    /// Something without data has happened; whether a poll has begun since.
    bare: Option<bool>,
}

/// Something that has happened (`NvUnixEvent`).
#[derive(Debug, Clone, Copy)]
struct Event {
    object: u32,
    index: u32,
    info: Info,
}

/// What an event says besides that it has happened.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Info {
    pub(super) info32: u32,
    pub(super) info16: u16,
}

/// More events that nobody takes are lost, as they are in the driver when it has no memory for them.
const MOST_EVENTS: usize = 1 << 14;

/// Who is notified of what happens to an object.
#[derive(Debug, Clone, Default)]
pub(super) struct Notifier {
    /// Newest last.
    listeners: Vec<Listener>,
    /// What is to be told, and how often (NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION).
    pub(super) actions: BTreeMap<u32, u32>,
}

/// An event object that is told.
#[derive(Debug, Clone, Copy)]
struct Listener {
    client: u32,
    handle: u32,
    number: u64,
    os_event: u64,
    index: u32,
    has_data: bool,
    /// Told by an engine rather than by the object.
    is_of_engine: bool,
}

/// An event object that is asked for.
pub(super) struct Wanted {
    class: u32,
    /// What is to tell it: a client, and an object of it.
    source: (u32, u32),
    index: u32,
    fd: u32,
}

/// Whether a kind of object has something to tell (those that are a `Notifier`).
fn is_notifier(kind: &ObjectKind) -> bool {
    matches!(
        kind,
        ObjectKind::Root | ObjectKind::Subdevice(_) | ObjectKind::Channel(_) | ObjectKind::Other(_)
    )
}

impl Driver {
    /// NV_ESC_ALLOC_OS_EVENT. A client has one event by a descriptor; the driver looks at neither.
    pub(super) fn alloc_os_event(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let (client, fd) = (args.word("hClient")?, args.word("fd")?);
        if self.os_event(client, fd).is_some() {
            return Err(Status::INSUFFICIENT_RESOURCES.into());
        }
        let number = self.number_event();
        self.events.push(OsEvent { number, client, fd, file: caller.file });
        Ok(())
    }

    /// NV_ESC_FREE_OS_EVENT. What has happened can still be taken.
    pub(super) fn free_os_event(&mut self, args: &Params) -> Result {
        let (client, fd) = (args.word("hClient")?, args.word("fd")?);
        let found = self.os_event(client, fd).ok_or(Status::INVALID_EVENT)?;
        self.events.retain(|event| *event != found);
        Ok(())
    }

    /// The events of a client that is gone (A/escape.c: NV_ESC_RM_FREE).
    pub(super) fn free_events_of(&mut self, client: u32) {
        self.events.retain(|event| event.client != client);
    }

    fn os_event(&self, client: u32, fd: u32) -> Option<OsEvent> {
        self.events.iter().copied().find(|event| (event.client, event.fd) == (client, fd))
    }

    fn number_event(&mut self) -> u64 {
        self.last_event += 1;
        self.last_event
    }

    /// NV_ESC_RM_GET_EVENT_DATA: A/osapi.c: `RmGetEventData`, N/nv.c: `nv_get_event`. What cannot be
    /// written is lost.
    pub(super) fn event_data(&mut self, caller: Caller<'_>, args: &mut Params) -> Result {
        let open = self.files.get_mut(caller.file).ok_or(Status::OPERATING_SYSTEM)?;
        let event = open.file.events.events.pop_front().ok_or(Status::OPERATING_SYSTEM)?;
        args.set("MoreEvents", u32::from(!open.file.events.events.is_empty()))?;
        self.settle_readiness(caller.file);
        let (address, record) = (args.get("pEvent")?, "NvUnixEvent");
        let size = self.interface.size(record).unwrap_or(0);
        let read = self.read(caller.client, record, address, size);
        let mut told = read.map_err(|_| Status::OPERATING_SYSTEM)?;
        told.set("hObject", event.object)?;
        told.set("NotifyIndex", event.index)?;
        told.set("info32", event.info.info32)?;
        told.set("info16", event.info.info16)?;
        if caller.client.write(address, &told.bytes) < size {
            return Err(Status::OPERATING_SYSTEM.into());
        }
        Ok(())
    }

    /// A file is readable while it has something to tell.
    fn settle_readiness(&self, file: FileId) {
        let Some(open) = self.files.get(file) else { return };
        let queue = &open.file.events;
        if let (Node::Signal(signal), true) = (&*open.node, queue.is_empty()) {
            signal.lower();
        }
    }

    /// Whether there is something that a poll alone takes.
    pub(super) fn has_bare_event(&self) -> bool {
        self.files.iter().any(|(_, open)| open.file.events.bare.is_some())
    }

    /// N/nv.c: `nvidia_poll`: what has no data is gone once it was told. The real kernel tells it, so that
    /// it was told is known when the next poll begins.
    pub(super) fn take_bare_event(&mut self, file: FileId) {
        let Some(open) = self.files.get_mut(file) else { return };
        let bare = &mut open.file.events.bare;
        *bare = match bare {
            Some(false) => Some(true),
            Some(true) | None => None,
        };
        self.settle_readiness(file);
    }

    /// What the parameters of an event object ask for. The class may stand in them alone, and its parent
    /// is what tells it: of another client's object it is right below its own client, which is so of
    /// those that name no client as well (R/rmapi_specific.c: `rmapiFixupAllocParams`).
    pub(super) fn wanted_event(
        &self,
        class: u32,
        place: &mut NewObject,
        params: Option<&mut Params>,
    ) -> Result<Wanted> {
        let params = params.ok_or(Status::INVALID_ARGUMENT)?;
        let class = if class == EVENT { params.word("hClass")? } else { class };
        if !EVENTS.contains(&class) {
            return Err(Status::INVALID_CLASS.into());
        }
        let source = (params.word("hParentClient")?, place.parent);
        params.set("hSrcResource", place.parent)?;
        if source.0 != place.client {
            place.parent = place.client;
        }
        let source = match source {
            (0, object) if self.is_since(&[525]) => (place.client, object),
            other => other,
        };
        let (index, fd) = (params.word("notifyIndex")?, params.get("data")? as u32);
        Ok(Wanted { class, source, index, fd })
    }

    /// R/event.c: `eventConstruct_IMPL`, `eventInit_IMPL`.
    pub(super) fn event(
        &mut self,
        client: u32,
        handle: u32,
        wanted: &Wanted,
    ) -> Result<ObjectKind> {
        if CALLBACKS.contains(&wanted.class) {
            return Err(Status::ILLEGAL_ACTION.into());
        }
        if wanted.class != OS_EVENT {
            return Err(Status::INVALID_CLASS.into());
        }
        let source = self.server.find(wanted.source.0)?.object(wanted.source.1);
        let kind = source.map(|object| object.kind.clone()).ok();
        let kind = kind.filter(is_notifier);
        let kind = kind.ok_or(Status::INVALID_OBJECT)?;
        let os_event = self.os_event(client, wanted.fd).ok_or(Status::OBJECT_NOT_FOUND)?.number;
        let index = wanted.index & INDEX;
        let is_of_engine = wanted.index & OF_ENGINE != 0;
        if is_of_engine {
            let is_own =
                self.server.object(client, wanted.source.1).map(|it| &it.kind) == Some(&kind);
            if !is_own || !matches!(kind, ObjectKind::Subdevice(_)) {
                return Err(Status::INVALID_ARGUMENT.into());
            }
            if !self.is_told_by_engine(index) {
                return Err(Status::NOT_SUPPORTED.into());
            }
        }
        let number = self.number_event();
        let has_data = wanted.index & WITHOUT_DATA == 0;
        let listener = Listener { client, handle, number, os_event, index, has_data, is_of_engine };
        self.listen(wanted.source, listener);
        Ok(ObjectKind::Event(number))
    }

    fn listen(&mut self, (client, object): (u32, u32), listener: Listener) {
        let Some(source) = self.server.object_mut(client, object) else { return };
        let mut listeners = std::mem::take(&mut source.notifier.listeners);
        // Those that are gone are left out now and then.
        if listeners.len().is_power_of_two() {
            listeners.retain(|listener| self.is_alive(listener));
        }
        listeners.push(listener);
        if let Some(source) = self.server.object_mut(client, object) {
            source.notifier.listeners = listeners;
        }
    }

    /// R/event_notification.c: `eventGetEngineTypeFromSubNotifyIndex`.
    fn is_told_by_engine(&self, index: u32) -> bool {
        const ALONE: [&str; 5] = ["FIFO_EVENT_MTHD", "PPP", "PDEC", "MSENC", "SEC2"];
        const COUNTED: [&str; 6] = ["CE", "GR", "NVDEC", "NVENC", "NVJPEG", "OFA"];
        let is_engine = |name: &str| {
            let bare = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
            ALONE.contains(&name) || COUNTED.contains(&bare)
        };
        self.interface.constants.iter().any(|(name, value)| {
            let name = name.strip_prefix("NV2080_NOTIFIERS_");
            *value == u64::from(index) && name.is_some_and(is_engine)
        })
    }

    /// Whether an object has somebody to tell: an event object that is freed is told no more.
    pub(super) fn has_listener(&self, client: u32, object: u32) -> bool {
        let found = self.server.object(client, object);
        found.is_some_and(|object| object.notifier.listeners.iter().any(|it| self.is_alive(it)))
    }

    fn is_alive(&self, listener: &Listener) -> bool {
        let object = self.server.object(listener.client, listener.handle);
        object.is_some_and(|object| object.kind == ObjectKind::Event(listener.number))
    }

    /// `gpuNotifySubDeviceEvent_IMPL`: every subdevice of a GPU that has been asked to tells it. Returns how many event
    /// objects were told.
    pub(super) fn notify(&mut self, gpu: usize, index: u32, info: Info) -> usize {
        const SINGLE: u32 = 1;
        let mut told = Vec::new();
        for object in self.server.objects_mut().filter(|it| it.kind == ObjectKind::Subdevice(gpu)) {
            let Some(action) = object.notifier.actions.get(&index).copied() else { continue };
            let listeners = object.notifier.listeners.iter().rev();
            told.extend(listeners.filter(|listener| listener.index == index).copied());
            if action == SINGLE {
                object.notifier.actions.remove(&index);
            }
        }
        self.post_all(&told, info)
    }

    /// Whether a subdevice of a GPU was asked to tell of something.
    pub(super) fn is_armed(&self, gpu: usize, index: u32) -> bool {
        self.subdevices(gpu).any(|object| object.notifier.actions.contains_key(&index))
    }

    fn subdevices(&self, gpu: usize) -> impl Iterator<Item = &Object> {
        self.server.objects().filter(move |it| it.kind == ObjectKind::Subdevice(gpu))
    }

    /// Tells who listens to the objects of a channel that an assertion of a kernel has failed; whether anybody does. No
    /// header has the number: of the four that libcuda listens to this is the one at which it ends the channel itself.
    pub(super) fn tell_of_assertion(&mut self, client: u32, channel: u32) -> bool {
        const ASSERTION: u32 = 3;
        let Some(client) = self.server.find(client).ok() else { return false };
        let objects = client.objects().filter(|object| object.parent == channel);
        let listeners = objects.flat_map(|object| &object.notifier.listeners);
        let told: Vec<Listener> = listeners.filter(|it| it.index == ASSERTION).copied().collect();
        self.post_all(&told, Info::default()) > 0
    }

    /// Tells programs of an error (`krcErrorSendEventNotifications_KERNEL`).
    pub(super) fn report_xid(&mut self, gpu: usize, number: u32) -> usize {
        self.notify_named(gpu, "RC_ERROR", Info { info32: number, info16: NO_INSTANCE })
    }

    /// Tells of what a notifier of NV2080_NOTIFIERS is for, by its name; of nothing where the driver has none.
    pub(super) fn notify_named(&mut self, gpu: usize, name: &str, info: Info) -> usize {
        self.notifier(name).map_or(0, |index| self.notify(gpu, index, info))
    }

    /// The number of a notifier of NV2080_NOTIFIERS, where the driver has it.
    pub(super) fn notifier(&self, name: &str) -> Option<u32> {
        self.interface.constant(&format!("NV2080_NOTIFIERS_{name}"))
    }

    /// `engineNonStallIntrNotifyEvent`: an engine tells all that listen to it, or one by its handle.
    pub(super) fn notify_of_engine(&mut self, gpu: usize, index: u32, handle: u32) {
        let listeners = self.subdevices(gpu).flat_map(|object| &object.notifier.listeners);
        let mut told: Vec<Listener> = listeners
            .filter(|listener| listener.is_of_engine && listener.index == index)
            .filter(|listener| handle == 0 || listener.handle == handle)
            .copied()
            .collect();
        told.sort_by_key(|listener| std::cmp::Reverse(listener.number));
        self.post_all(&told, Info::default());
    }

    fn post_all(&mut self, told: &[Listener], info: Info) -> usize {
        told.iter().filter(|listener| self.is_alive(listener) && self.post(listener, info)).count()
    }

    /// A/os.c: `postEvent`, N/nv.c: `nv_post_event`. A file that was let go is told nothing.
    fn post(&mut self, listener: &Listener, info: Info) -> bool {
        let Some(event) = self.events.iter().find(|event| event.number == listener.os_event) else {
            return false;
        };
        let Some(open) = self.files.get_mut(event.file) else { return false };
        let queue = &mut open.file.events;
        let was_empty = queue.is_empty();
        if listener.has_data {
            if queue.events.len() >= MOST_EVENTS {
                return false;
            }
            let (object, index) = (listener.handle, listener.index);
            queue.events.push_back(Event { object, index, info });
        } else {
            queue.bare = Some(false);
        }
        if let (Node::Signal(signal), true) = (&*open.node, was_empty) {
            signal.raise();
        }
        true
    }
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.bare.is_none()
    }
}
