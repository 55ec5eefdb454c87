//! `nvabi rm profile`: from a recording to what was asked of each GPU. `nvabi_sim::rm::recorded` makes a profile of it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_reports::decode::sniff::{DetailKind, Event, Ioctl, Named, Namer, What};
use nvabi_reports::decode::value::Value;
use nvabi_sim::rm::Interface;
use nvabi_sim::rm::recorded::{self, Call, Made, Memory, Recording, Shown, Unmade};

use super::{interface, profile};
use crate::Outcome;
use crate::args::RmProfile;
use crate::context::Context;
use crate::sniff;

/// Numbers of classes, the same in every driver.
const ROOTS: [u32; 3] = [0x0000, 0x0001, 0x0041];
const DEVICE: u32 = 0x0080;
const SUBDEVICE: u32 = 0x2080;
/// AMPERE_SMC_PARTITION_REF: a client that has one is answered for this GPU instance.
const GPU_INSTANCE: u32 = 0xc637;
/// Bytes of a mapped record that are written at once.
const WORD: usize = 8;

const HELP: &str = "record on the machine with the GPU: \
                    nvabi sniff --method ptrace --record gpu.rec -- nvidia-smi -q";

pub(crate) fn profile(context: &Context<'_>, args: &RmProfile) -> Result<Outcome, Report> {
    let path = args.file.display();
    let failed = |message: String| Diagnostic::error("profile-recording", message);
    let tags: Vec<_> = args.tag.iter().cloned().collect();
    let (mut recording, mut names) = sniff::Recording::open(context, &args.file, &tags)?;
    let (mut walk, mut namer) = (Walk::default(), Namer::default());
    while let Some(event) = recording.next() {
        names.learn(&event);
        let named = namer.name(names.tables(), &event);
        walk.take(&event, &named);
    }
    names.failed().map_or(Ok(()), Err)?;
    recording.whole(context)?;
    let tag = names.tables().tags().find(|tag| tag.family().is_empty()).cloned();
    if walk.calls > 0 && walk.answered == 0 {
        let message =
            format!("{path} has calls without their results: it was recorded with notify");
        return Err(failed(message).help(HELP).into());
    }
    let Some(tag) = tag.filter(|_| walk.calls > 0) else {
        return Err(failed(format!("{path} has no call of the x86 driver")).help(HELP).into());
    };
    names.said().iter().for_each(|said| context.status("Note", said));
    let family = context.family_of(&[&tag])?;
    let interface = Arc::new(interface::at(&family, &tag)?);
    let gpus = walk.gpus(&interface);
    if gpus.is_empty() {
        return Err(failed(format!("{path} has no answer of a GPU")).help(HELP).into());
    }
    let gpu = chosen(gpus, args.gpu.as_deref()).map_err(|message| {
        failed(format!("{path}: {message}"))
            .help("choose one: --gpu N, or --gpu with its place on the bus")
    })?;
    let name = recorded::recorded_name(&gpu, &interface).unwrap_or_else(|| "a GPU".to_owned());
    let title = [
        format!("{name}, as it was recorded with driver {tag}: made by `nvabi rm profile`."),
        String::new(),
        "Serial numbers and UUIDs are replaced; addresses, handles and processes are left out. Of what changed with"
            .to_owned(),
        "time, the first value is kept. Answers are those of this driver version.".to_owned(),
    ];
    let made = recorded::profile_of(&gpu, &interface, &title).map_err(|why| match why {
        Unmade::Missing(lines) => {
            let lacking = failed(format!("{path} lacks what a profile of {name} needs")).help(HELP);
            lines.into_iter().fold(lacking, Diagnostic::note).into()
        }
        Unmade::Wrong(problems) => profile::report(problems),
    })?;
    context.print(&made.text)?;
    made.notes.iter().for_each(|note| context.status("Note", note));
    let (compared, same) = (made.compared, made.same);
    context.status(
        "Made",
        &format!("{name}: {same} of {compared} answers are given as they were recorded"),
    );
    Ok(Outcome::Same)
}

/// What is known of the recorded machine by now.
#[derive(Default)]
struct Walk {
    /// Control commands, and those with their answers.
    calls: u64,
    answered: u64,
    cards: Vec<Card>,
    /// Numbers of GPUs by the instances of their devices.
    ids: HashMap<u32, u32>,
    /// By client and handle.
    objects: HashMap<(u32, u32), Object>,
    /// GPU instances that clients have chosen, by client and handle: the instance of the device, and theirs.
    instances: HashMap<(u32, u32), (u32, u32)>,
    /// Descriptors by process, and mappings by their addresses: which object they show.
    descriptors: HashMap<(u32, u64), (u32, u32)>,
    mappings: HashMap<(u32, u64), (u32, u32)>,
    /// By the instance of the device.
    gpus: BTreeMap<u32, Recording>,
    /// Commands of clients, and their numbers among all.
    of_clients: Vec<(u64, Call)>,
    /// The same of commands of GPUs, by the instance of the device.
    of_gpus: HashMap<u32, Vec<(u64, Call)>>,
}

/// A GPU as the driver lists it.
#[derive(Debug, Clone, Default)]
struct Card {
    id: u32,
    place: String,
    ids: (u16, u16),
    bars: (u64, u64),
}

#[derive(Debug, Clone)]
struct Object {
    class: u32,
    parent: u32,
    /// The instance of the device that it is below.
    gpu: Option<u32>,
}

impl Walk {
    fn take(&mut self, event: &Event, named: &Named) {
        match &event.what {
            What::Map { fd, .. } => {
                let shown = u64::try_from(*fd)
                    .ok()
                    .and_then(|fd| self.descriptors.get(&(event.process, fd)));
                if let (Some(object), Some(address)) =
                    (shown, named.result.and_then(|it| u64::try_from(it).ok()))
                {
                    self.mappings.insert((event.process, address), *object);
                }
            }
            What::Ioctl(ioctl) => {
                self.show(event.process, ioctl);
                self.ioctl(event, ioctl, named);
            }
            What::Open { .. } | What::Close { .. } => {}
        }
    }

    /// Memory of a mapped record: each word as it was seen first when it was written, for the driver writes them one by
    /// one.
    fn show(&mut self, process: u32, ioctl: &Ioctl) {
        for piece in &ioctl.pieces {
            let Some(key) = self.mappings.get(&(process, piece.address)) else { continue };
            let Some(Object { class, gpu: Some(gpu), .. }) = self.objects.get(key) else {
                continue;
            };
            let shown = &mut self.gpus.entry(*gpu).or_default().shown;
            match shown.iter_mut().find(|shown| shown.class == *class) {
                Some(known) => {
                    let words = known.bytes.chunks_mut(WORD).zip(piece.before.chunks(WORD));
                    for (known, seen) in words.filter(|(known, seen)| known.len() == seen.len()) {
                        if known.iter().all(|byte| *byte == 0) {
                            known.copy_from_slice(seen);
                        }
                    }
                }
                None => shown.push(Shown { class: *class, bytes: piece.before.clone() }),
            }
        }
    }

    fn ioctl(&mut self, event: &Event, ioctl: &Ioctl, named: &Named) {
        let fields = Fields(named);
        match named.name.as_deref() {
            Some("NV_ESC_RM_CONTROL") => self.control(event, ioctl, named),
            Some("NV_ESC_RM_ALLOC") => self.alloc(named),
            Some("NV_ESC_RM_DUP_OBJECT") if named.failure().is_none() => {
                let from = (fields.number("hClientSrc"), fields.number("hObjectSrc"));
                let to = (fields.number("hClient"), fields.number("hObject"));
                if let Some(object) = self.objects.get(&from).cloned() {
                    let parent = fields.number("hParent");
                    self.objects.insert(to, Object { parent, ..object });
                    if let Some(chosen) = self.instances.get(&from).copied() {
                        self.instances.insert(to, chosen);
                    }
                }
            }
            Some("NV_ESC_RM_FREE") if named.failure().is_none() => {
                self.free(fields.number("hRoot"), fields.number("hObjectOld"));
            }
            Some("NV_ESC_RM_MAP_MEMORY") if named.failure().is_none() => {
                let object = (fields.number("hClient"), fields.number("hMemory"));
                self.descriptors.insert((event.process, fields.wide("fd").unwrap_or(0)), object);
            }
            Some("NV_ESC_CARD_INFO") if named.failure().is_none() => self.cards(named),
            _ => {}
        }
    }

    fn cards(&mut self, named: &Named) {
        let fields = Fields(named);
        let mut cards = Vec::new();
        for at in 0.. {
            let number = |name: &str| fields.wide(&format!("[{at}].{name}"));
            let Some(is_valid) = number("valid") else { break };
            let word = |name: &str| number(name).unwrap_or(0);
            if is_valid != 0 {
                let (domain, bus) = (word("pci_info.domain"), word("pci_info.bus"));
                let (slot, function) = (word("pci_info.slot"), word("pci_info.function"));
                cards.push(Card {
                    id: word("gpu_id") as u32,
                    place: format!("{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"),
                    ids: (word("pci_info.vendor_id") as u16, word("pci_info.device_id") as u16),
                    bars: (word("reg_size"), word("fb_size")),
                });
            }
        }
        if self.cards.len() < cards.len() {
            self.cards = cards;
        }
    }

    fn alloc(&mut self, named: &Named) {
        let fields = Fields(named);
        let Some(status) = named.status.as_ref().map(|status| status.value) else { return };
        let (client, class) = (fields.number("hRoot"), fields.number("hClass"));
        let (new, parent) = (fields.number("hObjectNew"), fields.number("hObjectParent"));
        if ROOTS.contains(&class) {
            self.forget(new);
            let root = Object { class: ROOTS[2], parent: 0, gpu: None };
            self.objects.insert((new, new), root);
            return;
        }
        let above = self.objects.get(&(client, parent)).cloned();
        let gpu = match class {
            DEVICE => Some(fields.wide("pAllocParms->deviceId").unwrap_or(0) as u32),
            _ => above.as_ref().and_then(|above| above.gpu),
        };
        if let (Some(gpu), Some(below)) = (gpu, above.as_ref().and_then(|above| level(above.class)))
        {
            if class != SUBDEVICE && class != DEVICE {
                let objects = &mut self.gpus.entry(gpu).or_default().objects;
                if !objects.iter().any(|made| made.class == class) {
                    objects.push(Made { class, below, status, commands: None });
                }
            }
        }
        if status == 0 {
            if let (GPU_INSTANCE, Some(gpu)) = (class, gpu) {
                let number = fields.number("pAllocParms->swizzId");
                self.instances.insert((client, new), (gpu, number));
            }
            self.objects.insert((client, new), Object { class, parent, gpu });
        }
    }

    /// All of a client goes.
    fn forget(&mut self, client: u32) {
        self.objects.retain(|(owner, _), _| *owner != client);
        self.instances.retain(|(owner, _), _| *owner != client);
    }

    /// An object goes, with what is below it.
    fn free(&mut self, client: u32, handle: u32) {
        let Some(freed) = self.objects.remove(&(client, handle)) else { return };
        self.instances.remove(&(client, handle));
        if freed.class == ROOTS[2] {
            return self.forget(client);
        }
        let is_child = |((owner, _), object): &(&(u32, u32), &Object)| {
            (*owner, object.parent) == (client, handle)
        };
        let children: Vec<u32> =
            self.objects.iter().filter(is_child).map(|((_, child), _)| *child).collect();
        children.into_iter().for_each(|child| self.free(client, child));
    }

    /// The GPU instance that a client has chosen.
    fn chosen_instance(&self, client: u32, gpu: u32) -> Option<u32> {
        let own = self.instances.iter().filter(|((owner, _), _)| *owner == client);
        own.map(|(_, chosen)| chosen).find(|(of, _)| *of == gpu).map(|(_, number)| *number)
    }

    fn control(&mut self, event: &Event, ioctl: &Ioctl, named: &Named) {
        self.calls += 1;
        if event.result.is_none() {
            return;
        }
        self.answered += 1;
        let fields = Fields(named);
        let Some(status) = named.status.as_ref().map(|status| status.value) else { return };
        let Some(detail) =
            named.detail.as_ref().filter(|detail| detail.kind == DetailKind::Command)
        else {
            return;
        };
        let address = fields.wide("params").unwrap_or(0);
        let argument = ioctl.pieces.first().map(|piece| piece.address);
        let mut call = Call { command: detail.number, status, ..Call::default() };
        for piece in ioctl.pieces.iter().filter(|piece| Some(piece.address) != argument) {
            if self.mappings.contains_key(&(event.process, piece.address)) {
                continue;
            }
            let Some(after) = &piece.after else { continue };
            match piece.address == address {
                true => (call.before, call.after) = (piece.before.clone(), after.clone()),
                false => call.buffers.push(Memory {
                    address: piece.address,
                    before: piece.before.clone(),
                    after: after.clone(),
                }),
            }
        }
        if let (Some(id), Some(instance)) =
            (fields.wide("params->gpuId"), fields.wide("params->deviceInstance"))
        {
            self.ids.insert(instance as u32, id as u32);
        }
        let key = (fields.number("hClient"), fields.number("hObject"));
        match self.objects.get(&key) {
            Some(Object { class, gpu: Some(gpu), .. }) => {
                let instance = self.chosen_instance(key.0, *gpu);
                let own = self.gpus.entry(*gpu).or_default();
                if let Some(instance) = instance {
                    *own.instances.entry(instance).or_default() += 1;
                    return;
                }
                if let Some(made) = own.objects.iter_mut().find(|made| made.class == *class) {
                    made.commands.get_or_insert(call.command >> 16);
                }
                self.of_gpus.entry(*gpu).or_default().push((self.calls, call));
            }
            _ if call.command >> 16 == 0 => {
                call.is_of_client = true;
                self.of_clients.push((self.calls, call));
            }
            _ => {}
        }
    }

    /// All GPUs that were asked for something.
    fn gpus(mut self, interface: &Arc<Interface>) -> Vec<Gpu> {
        self.cards.sort_by_key(|card| card.id);
        let mut gpus = Vec::new();
        for (instance, mut gpu) in std::mem::take(&mut self.gpus) {
            let id = self.ids.get(&instance).copied();
            let card = match id {
                Some(id) => self.cards.iter().find(|card| card.id == id),
                None => self.cards.get(instance as usize),
            };
            gpu.gpu_id = id.or(card.map(|card| card.id));
            gpu.ids = card.map(|card| card.ids);
            gpu.bars = card.map(|card| card.bars);
            // A command of a client is about the system or about one GPU.
            let is_meant = |call: &Call| {
                let id = interface.number_in(call.command, "gpuId", &call.before);
                id.is_none() || id == gpu.gpu_id
            };
            let of_clients = self.of_clients.iter().filter(|(_, call)| is_meant(call)).cloned();
            let mut calls = self.of_gpus.remove(&instance).unwrap_or_default();
            calls.extend(of_clients);
            calls.sort_by_key(|(at, _)| *at);
            gpu.calls = calls.into_iter().map(|(_, call)| call).collect();
            let name =
                recorded::recorded_name(&gpu, interface).unwrap_or_else(|| "unknown".to_owned());
            let place = card.map(|card| card.place.clone()).unwrap_or_default();
            gpus.push(Gpu { place, name, recording: gpu });
        }
        gpus
    }
}

/// A recorded GPU.
struct Gpu {
    /// Where it is on the bus.
    place: String,
    name: String,
    recording: Recording,
}

/// The GPU that is meant: one that is named, else the only one, else the first of several that are alike.
fn chosen(mut gpus: Vec<Gpu>, wanted: Option<&str>) -> Result<Recording, String> {
    let all: Vec<String> = gpus
        .iter()
        .enumerate()
        .map(|(number, gpu)| format!("{number} {} {}", gpu.place, gpu.name))
        .collect();
    let is_alike = gpus
        .windows(2)
        .all(|pair| pair[0].name == pair[1].name && pair[0].recording.ids == pair[1].recording.ids);
    let at = match wanted.map(str::to_lowercase) {
        Some(wanted) => gpus.iter().enumerate().position(|(number, gpu)| {
            number.to_string() == wanted || wanted.contains(':') && gpu.place.ends_with(&wanted)
        }),
        None if is_alike => Some(0),
        None => return Err(format!("several GPUs that differ: {}", all.join(", "))),
    };
    match at {
        Some(at) => Ok(gpus.swap_remove(at).recording),
        None => Err(format!("there is no GPU {}: {}", wanted.unwrap_or_default(), all.join(", "))),
    }
}
/// What a class is to what is below it.
fn level(class: u32) -> Option<&'static str> {
    match class {
        DEVICE => Some("device"),
        SUBDEVICE => Some("subdevice"),
        _ => None,
    }
}

/// The fields of a call, wherever its argument stands.
struct Fields<'n>(&'n Named);

impl Fields<'_> {
    fn wide(&self, name: &str) -> Option<u64> {
        let begins = ["", "params.", "ptr->", "ptr->params."];
        let field = begins.iter().find_map(|begin| {
            self.0.fields.iter().find(|field| field.name.strip_prefix(begin) == Some(name))
        })?;
        match field.last() {
            Value::Number(number) | Value::Named { value: number, .. } => {
                u64::try_from(*number).ok()
            }
            _ => None,
        }
    }

    fn number(&self, name: &str) -> u32 {
        self.wide(name).unwrap_or(0) as u32
    }
}
