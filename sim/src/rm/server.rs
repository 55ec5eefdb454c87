//! Clients and their objects: who may name what, and what goes with what (S, R/client.c).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::channel::{ChannelId, Group};
use super::counters;
use super::events::Notifier;
use super::handles::Handles;
use super::memory::{Buffer, Of};
use super::space::{Addresses, Space};
use super::window::Part;
use crate::Status;
use crate::files::FileId;
use crate::log::RunId;

/// Handles that the driver chooses for clients (S: RS_CLIENT_HANDLE_BASE); its own have the first ones.
const CLIENTS: Range<u32> = 0xc1d0_0001..0xc1e0_0000;
/// Clients whose handles agree in these bits are in one list (S: RS_CLIENT_HANDLE_BUCKET_MASK).
const BUCKET: u32 = 0x3ff;
/// Handles that the driver chooses for objects, and those that nobody may choose
/// (RS_UNIQUE_HANDLE_BASE, RS_FW_UNIQUE_HANDLE_BASE).
const OBJECTS: Range<u32> = 0xcaf0_0000..0xcaf8_0000;
const RESTRICTED: Range<u32> = 0xc9f0_0000..0xc9f8_0000;

/// All clients.
#[derive(Debug)]
pub(super) struct Server {
    clients: BTreeMap<u32, Client>,
    handles: Handles,
}

impl Default for Server {
    fn default() -> Self {
        Self { clients: BTreeMap::new(), handles: Handles::new(CLIENTS) }
    }
}

/// A process, and the run that it is of.
pub(super) type By = (u32, RunId);

/// A client: the root of a tree of objects.
#[derive(Debug)]
pub(super) struct Client {
    /// The control file that it was made on: on another one it does not exist.
    pub(super) owner: FileId,
    pub(super) process: u32,
    /// The run that the process is of.
    pub(super) run: RunId,
    objects: BTreeMap<u32, Object>,
    /// Spaces of addresses that devices have without asking.
    spaces: BTreeMap<u32, Arc<Space>>,
    /// What is right below what: parents, each with one of its children.
    below: BTreeSet<(u32, u32)>,
    handles: Handles,
}

/// An object.
#[derive(Debug, Clone)]
pub(super) struct Object {
    /// The client's own handle for what is right below it.
    pub(super) parent: u32,
    pub(super) kind: ObjectKind,
    /// Where it is mapped.
    pub(super) mappings: Vec<Shown>,
    /// Who is notified of what happens to it.
    pub(super) notifier: Notifier,
    /// Who else may copy it.
    pub(super) shares: Vec<Share>,
    /// No other object has it, whatever its handle.
    pub(super) serial: u64,
}

/// Memory that a process sees.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    /// Where the driver says that it is.
    pub(super) address: u64,
    /// What it takes of its GPU's window.
    pub(super) _part: Option<Arc<Part>>,
}

/// Whom an object is shared with (`RS_SHARE_POLICY`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// All programs; those of one user, as all of a simulated machine are.
    All,
    Client(u32),
    Process(u32),
    /// Nobody that there is here.
    Other(u16),
}

impl Share {
    /// Of the driver's kind and who is meant.
    pub(super) fn of(kind: u16, target: u32) -> Result<Self, Status> {
        match kind {
            1 | 2 => Ok(Self::All),
            3 => Ok(Self::Client(target)),
            4 => Ok(Self::Process(target)),
            0 | 5..8 => Ok(Self::Other(kind)),
            _ => Err(Status::INVALID_ARGUMENT),
        }
    }

    pub(super) fn is_with(self, client: u32, process: u32) -> bool {
        match self {
            Self::All => true,
            Self::Client(target) => target == client,
            Self::Process(target) => target == process,
            Self::Other(_) => false,
        }
    }
}

impl Object {
    pub(super) fn new(parent: u32, kind: ObjectKind) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let (mappings, shares) = (Vec::new(), Vec::new());
        let serial = LAST.fetch_add(1, Ordering::Relaxed);
        Self { parent, kind, mappings, notifier: Notifier::default(), shares, serial }
    }
}

/// What an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ObjectKind {
    /// The client itself.
    Root,
    /// A GPU, by its index.
    Device(usize),
    /// The same, as one of those that work together.
    Subdevice(usize),
    /// A GPU instance that a client is subscribed to, and a compute instance of it.
    GpuInstance {
        gpu: usize,
        number: u32,
    },
    ComputeInstance {
        gpu: usize,
        number: u32,
        compute: u32,
    },
    Memory(Arc<Buffer>),
    /// A space of a GPU's addresses, and a part of one.
    Space(Arc<Space>),
    Range(Arc<Addresses>),
    /// Addresses that memory may be mapped at.
    Window(Arc<Addresses>),
    /// Channels that run together, and what some of them share.
    Group(Arc<Group>),
    ContextShare(Arc<Space>),
    Channel(ChannelId),
    /// By its number: handles are given out again.
    Event(u64),
    /// GPUs that reach each other.
    Peers(Peers),
    /// Who asks what became of a channel's kernels.
    Debugger(Debugger),
    /// What does nothing but answer commands, as the profile has it.
    Other(OtherObject),
}

/// Two GPUs that reach each other's memory: gone when one of the subdevices is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peers {
    pub(super) subdevices: [u32; 2],
    pub(super) gpus: [usize; 2],
    /// What each calls the other.
    pub(super) ids: [u32; 2],
}

impl Peers {
    /// What each calls the other, by who calls whom.
    pub(super) fn names(&self) -> [((usize, usize), u32); 2] {
        let [one, other] = self.gpus;
        [((one, other), self.ids[0]), ((other, one), self.ids[1])]
    }
}

/// What a debugger looks at: gone when the object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Debugger {
    /// Whose object, its handle, and which of all that had it.
    pub(super) client: u32,
    pub(super) object: u32,
    pub(super) serial: u64,
    pub(super) channel: ChannelId,
}

/// An object that does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OtherObject {
    pub(super) class: u32,
    /// The upper half of the numbers of its commands.
    pub(super) commands: u32,
    pub(super) gpu: Option<usize>,
}

impl ObjectKind {
    /// Whether it takes the commands of a class: the upper halves of their numbers.
    pub(super) fn takes(&self, class: u32) -> bool {
        match self {
            Self::Root => class == 0x0000,
            Self::Device(_) => class == 0x0080,
            Self::Subdevice(_) => class == 0x2080,
            Self::GpuInstance { .. } => class == 0xc637,
            Self::ComputeInstance { .. } => class == 0xc638,
            Self::Memory(buffer) if buffer.of == Of::Counters => class == counters::COMMANDS,
            Self::Memory(_) | Self::Range(_) | Self::Window(_) => class == 0x0041,
            Self::Space(_) => class == 0x90f1,
            Self::Group(_) => class == 0xa06c,
            Self::ContextShare(_) => class == 0x9067,
            // What channels take has stayed since the class that it came with.
            Self::Channel(_) => [0x506f, 0x906f, 0xa06f, 0xb06f, 0xc36f, 0xc56f].contains(&class),
            Self::Event(_) => false,
            Self::Peers(_) => class == 0x503b,
            Self::Debugger(_) => class == 0x83de,
            Self::Other(object) => class == object.commands,
        }
    }

    /// The memory that it stands for, to be mapped and copied: counters are none.
    pub(super) fn memory(&self) -> Option<&Arc<Buffer>> {
        match self {
            Self::Memory(buffer) if buffer.of != Of::Counters => Some(buffer),
            _ => None,
        }
    }

    /// Whether channels, or the registers that they are rung by, may go with it.
    pub(super) fn may_be_rung(&self) -> bool {
        match self {
            Self::Memory(buffer) => buffer.of == Of::Registers,
            Self::Event(_) | Self::Range(_) | Self::Window(_) => false,
            Self::Peers(_) | Self::Debugger(_) => false,
            _ => true,
        }
    }

    /// The number of its class, of those that are of one class alone.
    pub(super) fn class(&self) -> Option<u32> {
        match self {
            Self::Root => Some(0x0041),
            Self::Device(_) => Some(0x0080),
            Self::Subdevice(_) => Some(0x2080),
            Self::GpuInstance { .. } => Some(0xc637),
            Self::ComputeInstance { .. } => Some(0xc638),
            Self::Space(_) => Some(0x90f1),
            Self::Group(_) => Some(0xa06c),
            Self::ContextShare(_) => Some(0x9067),
            Self::Peers(_) => Some(0x503b),
            Self::Debugger(_) => Some(0x83de),
            Self::Other(object) => Some(object.class),
            Self::Memory(_) | Self::Range(_) | Self::Window(_) => None,
            Self::Channel(_) | Self::Event(_) => None,
        }
    }

    /// The GPU that it is of.
    pub(super) fn gpu(&self) -> Option<usize> {
        match self {
            Self::Root | Self::Event(_) | Self::Peers(_) => None,
            Self::Device(gpu) | Self::Subdevice(gpu) => Some(*gpu),
            Self::GpuInstance { gpu, .. } | Self::ComputeInstance { gpu, .. } => Some(*gpu),
            Self::Memory(buffer) => Some(buffer.gpu),
            Self::Space(space) | Self::ContextShare(space) => Some(space.gpu),
            Self::Range(addresses) | Self::Window(addresses) => Some(addresses.space.gpu),
            Self::Group(group) => Some(group.gpu),
            Self::Channel(channel) => Some(channel.gpu),
            Self::Debugger(debugger) => Some(debugger.channel.gpu),
            Self::Other(object) => object.gpu,
        }
    }

    /// What a person calls it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Root => "RM client",
            Self::Device(_) => "RM device",
            Self::Subdevice(_) => "RM subdevice",
            Self::GpuInstance { .. } => "RM GPU instance",
            Self::ComputeInstance { .. } => "RM compute instance",
            Self::Memory(_) => "RM memory",
            Self::Space(_) => "RM address space",
            Self::Range(_) | Self::Window(_) => "RM range of addresses",
            Self::Group(_) => "RM channel group",
            Self::ContextShare(_) => "RM context share",
            Self::Channel(_) => "RM channel",
            Self::Event(_) => "RM event",
            Self::Peers(_) => "RM peers",
            Self::Debugger(_) => "RM debugger",
            Self::Other(_) => "RM object",
        }
    }
}

impl Server {
    /// A new client; the driver chooses the handle of one that has none.
    pub(super) fn add_client(&mut self, wanted: u32, owner: FileId, by: By) -> Result<u32, Status> {
        let handle = match wanted {
            0 => self.handles.choose()?,
            taken if self.clients.contains_key(&taken) => {
                return Err(Status::INSERT_DUPLICATE_NAME);
            }
            handle => handle,
        };
        self.handles.take(handle);
        self.clients.insert(handle, Client::new(handle, owner, by));
        Ok(handle)
    }

    /// A client by its handle (S/rs_server.c: `_serverFindClientEntry`).
    pub(super) fn find(&self, handle: u32) -> Result<&Client, Status> {
        self.clients.get(&handle).ok_or_else(|| self.not_found(handle))
    }

    /// The same, to be changed.
    pub(super) fn find_mut(&mut self, handle: u32) -> Result<&mut Client, Status> {
        let error = self.not_found(handle);
        self.clients.get_mut(&handle).ok_or(error)
    }

    /// The same, as the caller on a file may use it (R/client.c: `rmclientValidate_IMPL`).
    pub(super) fn client(&mut self, handle: u32, owner: FileId) -> Result<&mut Client, Status> {
        let error = self.not_found(handle);
        let client = self.clients.get_mut(&handle).ok_or(error)?;
        if client.owner == owner { Ok(client) } else { Err(Status::INVALID_CLIENT) }
    }

    /// In the list where it would be it is missed in the middle or at the end.
    fn not_found(&self, handle: u32) -> Status {
        let mut above = self.clients.range(handle..).map(|(other, _)| *other);
        match above.any(|other| other & BUCKET == handle & BUCKET) {
            true => Status::INVALID_OBJECT,
            false => Status::INVALID_OBJECT_HANDLE,
        }
    }

    /// Frees a client with all it has.
    pub(super) fn remove(&mut self, handle: u32) {
        self.clients.remove(&handle);
        self.handles.give_back(handle);
    }

    pub(super) fn has_clients_of(&self, owner: FileId) -> bool {
        self.clients.values().any(|client| client.owner == owner)
    }

    /// Frees the clients of a file that nobody has any more.
    pub(super) fn remove_all_of(&mut self, owner: FileId) {
        let all = self.clients.iter().filter(|(_, client)| client.owner == owner);
        let handles: Vec<u32> = all.map(|(handle, _)| *handle).collect();
        handles.into_iter().for_each(|handle| self.remove(handle));
    }

    /// What a process has, by kind.
    pub(super) fn held_by(&self, process: u32) -> Vec<(&'static str, usize)> {
        let mut held: BTreeMap<&'static str, usize> = BTreeMap::new();
        let clients = self.clients.values().filter(|client| client.process == process);
        for object in clients.flat_map(|client| client.objects.values()) {
            *held.entry(object.kind.name()).or_default() += 1;
        }
        held.into_iter().collect()
    }

    /// All clients by their handles.
    pub(super) fn clients(&self) -> impl Iterator<Item = (u32, &Client)> {
        self.clients.iter().map(|(handle, client)| (*handle, client))
    }

    /// All objects of some clients.
    pub(super) fn objects_of(
        &self,
        is_meant: impl Fn(&Client) -> bool,
    ) -> impl Iterator<Item = &Object> {
        let clients = self.clients.values().filter(move |client| is_meant(client));
        clients.flat_map(|client| client.objects.values())
    }

    /// All objects of all clients.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.clients.values().flat_map(|client| client.objects.values())
    }

    /// The same, with the process that has each.
    pub(super) fn objects_with_process(&self) -> impl Iterator<Item = (u32, &Object)> {
        let of = |client: &'_ Client| client.process;
        let clients = self.clients.values();
        clients.flat_map(move |client| client.objects.values().map(move |it| (of(client), it)))
    }

    /// All objects, to be changed.
    pub(super) fn objects_mut(&mut self) -> impl Iterator<Item = &mut Object> {
        self.clients.values_mut().flat_map(|client| client.objects.values_mut())
    }

    /// An object, whoever asks.
    pub(super) fn object(&self, client: u32, object: u32) -> Option<&Object> {
        self.clients.get(&client)?.objects.get(&object)
    }

    /// The same, to be changed.
    pub(super) fn object_mut(&mut self, client: u32, object: u32) -> Option<&mut Object> {
        self.clients.get_mut(&client)?.objects.get_mut(&object)
    }
}

impl Client {
    fn new(handle: u32, owner: FileId, (process, run): By) -> Self {
        let objects = BTreeMap::from([(handle, Object::new(0, ObjectKind::Root))]);
        let mut handles = Handles::new(OBJECTS);
        handles.take(handle);
        let (spaces, below) = (BTreeMap::new(), BTreeSet::new());
        Self { owner, process, run, objects, spaces, below, handles }
    }

    /// The space of addresses that a device has without asking.
    pub(super) fn space_of_device(&mut self, device: u32, gpu: usize) -> Arc<Space> {
        let space = self.spaces.entry(device).or_insert_with(|| Arc::new(Space::of_device(gpu)));
        space.clone()
    }

    pub(super) fn object(&self, handle: u32) -> Result<&Object, Status> {
        self.objects.get(&handle).ok_or(Status::OBJECT_NOT_FOUND)
    }

    pub(super) fn object_mut(&mut self, handle: u32) -> Result<&mut Object, Status> {
        self.objects.get_mut(&handle).ok_or(Status::OBJECT_NOT_FOUND)
    }

    /// Whether an object may be mapped by way of a device: of the client itself, what is right below it
    /// (R/mapping_cpu.c: `serverMap_Prologue`).
    pub(super) fn context(&self, client: u32, device: u32, object: u32) -> Result<(), Status> {
        let is_of_client = self.object(object)?.parent == client;
        if is_of_client != (device == client) {
            return Err(Status::INVALID_OBJECT_PARENT);
        }
        if device == client {
            return Ok(());
        }
        match self.object(device)?.kind {
            ObjectKind::Device(_) | ObjectKind::Subdevice(_) => Ok(()),
            _ => Err(Status::INVALID_OBJECT_PARENT),
        }
    }

    /// The objects right below one.
    pub(super) fn children(&self, parent: u32) -> impl Iterator<Item = (u32, &Object)> {
        let children = self.below.range((parent, 0)..=(parent, u32::MAX));
        children.filter_map(|(_, handle)| Some((*handle, self.objects.get(handle)?)))
    }

    /// All its objects.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.objects.values()
    }

    /// A handle that a new object may have, or one that the driver chooses
    /// (S/rs_client.c: `clientAssignResourceHandle_IMPL`).
    pub(super) fn assign(&mut self, client: u32, wanted: u32) -> Result<u32, Status> {
        match wanted {
            0 => self.handles.choose(),
            handle if handle == client || RESTRICTED.contains(&handle) => {
                Err(Status::INVALID_OBJECT_HANDLE)
            }
            taken if self.objects.contains_key(&taken) => Err(Status::INSERT_DUPLICATE_NAME),
            handle => Ok(handle),
        }
    }

    pub(super) fn add(&mut self, handle: u32, object: Object) {
        self.below.insert((object.parent, handle));
        self.handles.take(handle);
        self.objects.insert(handle, object);
    }

    /// The objects right below one.
    pub(super) fn below(&self, parent: u32) -> impl Iterator<Item = &Object> {
        let handles = self.below.range((parent, 0)..=(parent, u32::MAX));
        handles.filter_map(|(_, handle)| self.objects.get(handle))
    }

    /// The objects by which a GPU reaches others that go with a subdevice of it.
    fn peers_by(&self, subdevice: u32) -> Vec<u32> {
        let is_meant = |object: &Object| match &object.kind {
            ObjectKind::Peers(peers) => peers.subdevices.contains(&subdevice),
            _ => false,
        };
        let all = self.objects.iter().filter(|(_, object)| is_meant(object));
        all.map(|(handle, _)| *handle).collect()
    }

    /// Frees an object and all below it.
    pub(super) fn remove(&mut self, handle: u32) {
        let mut left = vec![handle];
        while let Some(handle) = left.pop() {
            left.extend(self.children(handle).map(|(child, _)| child));
            if matches!(self.object(handle), Ok(Object { kind: ObjectKind::Subdevice(_), .. })) {
                left.extend(self.peers_by(handle));
            }
            self.spaces.remove(&handle);
            if let Some(gone) = self.objects.remove(&handle) {
                self.below.remove(&(gone.parent, handle));
                self.handles.give_back(handle);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;
    use crate::memory::{Node, Signal};
    use std::sync::Arc;

    fn file() -> Option<FileId> {
        let node = Arc::new(Node::Signal(Signal::new().ok()?));
        Some(Files::default().add((), node))
    }

    #[test]
    fn freeing_a_parent_frees_what_is_below_it() {
        let Some(file) = file() else { return };
        let mut server = Server::default();
        let Ok(handle) = server.add_client(0, file, (1, 1)) else { panic!("no client") };
        let Ok(client) = server.client(handle, file) else { panic!("no client") };
        for (own, parent) in [(1, handle), (2, 1), (3, 2), (4, handle)] {
            client.add(own, Object::new(parent, ObjectKind::Device(0)));
        }
        client.remove(1);
        assert!([1, 2, 3].iter().all(|own| client.object(*own).is_err()));
        assert!(client.object(4).is_ok() && client.object(handle).is_ok());
    }

    #[test]
    fn handles_are_found_and_refused_as_the_server_does() {
        let Some(file) = file() else { return };
        let mut server = Server::default();
        assert_eq!(server.add_client(0, file, (1, 1)), Ok(0xc1d0_0001));
        assert_eq!(
            server.add_client(0xc1d0_0001, file, (1, 1)),
            Err(Status::INSERT_DUPLICATE_NAME)
        );
        assert_eq!(server.find(0xc1d0_0002).err(), Some(Status::INVALID_OBJECT_HANDLE));
        assert_eq!(server.find(0x0000_0001).err(), Some(Status::INVALID_OBJECT));
        let Ok(client) = server.client(0xc1d0_0001, file) else { panic!("no client") };
        assert_eq!(client.assign(0xc1d0_0001, 0), Ok(0xcaf0_0000));
        assert_eq!(client.assign(0xc1d0_0001, 7), Ok(7));
        client.add(7, Object::new(0xc1d0_0001, ObjectKind::Device(0)));
        assert_eq!(client.assign(0xc1d0_0001, 7), Err(Status::INSERT_DUPLICATE_NAME));
        for wrong in [0xc1d0_0001, 0xc9f0_0000] {
            assert_eq!(client.assign(0xc1d0_0001, wrong), Err(Status::INVALID_OBJECT_HANDLE));
        }
    }
}
