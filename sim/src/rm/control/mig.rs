//! Commands about instances of a GPU (`src/nvidia/src/kernel/gpu/mig_mgr`: `kernel_mig_manager.c`,
//! `gpu_instance_subscription.c`, `compute_instance_subscription.c`).

use std::ops::Range;

use super::graphics::SMS_PER_TPC;
use super::{Handler, Target};
use crate::Status;
use crate::profile::Datum;
use crate::rm::Driver;
use crate::rm::events::Info;
use crate::rm::failed::{Failed, Result};
use crate::rm::frontend::Caller;
use crate::rm::gpu::uuid_words;
use crate::rm::interface::Params;
use crate::rm::memory::video_memory;
use crate::rm::mig::{
    AT_SPAN, COMPUTE_AT_SPAN, Compute, ComputeSize, Instance, Kind, Part, Span, compute_sizes,
    places,
};
use crate::rm::server::{Client, Object, ObjectKind};

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "NV2080_CTRL_CMD_GPU_GET_ACTIVE_PARTITION_IDS" => active,
        CAPACITY => capacity,
        "NV2080_CTRL_CMD_GPU_SET_PARTITIONS" => set,
        "NV2080_CTRL_CMD_GPU_GET_PARTITIONS" => get,
        "NV2080_CTRL_CMD_GPU_GET_COMPUTE_PROFILES" => sizes,
        "NVC637_CTRL_CMD_EXEC_PARTITIONS_CREATE" => create_compute,
        "NVC637_CTRL_CMD_EXEC_PARTITIONS_DELETE" => delete_compute,
        "NVC637_CTRL_CMD_EXEC_PARTITIONS_GET" => get_compute,
        "NVC637_CTRL_EXEC_PARTITIONS_GET_ACTIVE_IDS" => active_compute,
        "NVC637_CTRL_CMD_EXEC_PARTITIONS_GET_PROFILE_CAPACITY" => compute_capacity,
        "NVC637_CTRL_CMD_GET_UUID" => uuid_of_instance,
        "NVC638_CTRL_CMD_GET_UUID" => uuid_of_compute,
        _ => return None,
    })
}

/// What a program asks of a card that it does not divide: where it was recorded alone, it is answered as it was.
pub(super) const CAPACITY: &str = "NV2080_CTRL_CMD_GPU_GET_PARTITION_CAPACITY";

/// The most of anything that an instance has.
const MOST: u32 = 256;

/// NVC637_DEVICE_LEVEL_SWIZZID: the whole GPU, for who looks at it.
const WHOLE: u32 = 0xffff_fffe;

/// AMPERE_SMC_MONITOR_SESSION.
const MONITOR_SESSION: u32 = 0xc640;

/// Which clients somebody may know of.
#[derive(Debug, Clone, Copy)]
pub(in crate::rm) enum Seen {
    All,
    /// Those of an instance; of one of its compute instances, where that is chosen.
    Of(Part),
}

impl Seen {
    /// Whether a client is one of them, by the instance that it has chosen.
    pub(in crate::rm) fn has(self, part: Option<Part>) -> bool {
        let Self::Of(own) = self else { return true };
        part.is_some_and(|it| {
            it.number == own.number && (own.compute.is_none() || it.compute == own.compute)
        })
    }
}

/// Engines of a compute instance, as who makes it asks for them.
const ENGINES: [&str; 6] =
    ["ceCount", "nvEncCount", "nvDecCount", "nvJpgCount", "ofaCount", "sharedEngFlag"];

/// What each field of NV2080_CTRL_GPU_DESCRIBE_PARTITIONS_INFO and of NV2080_CTRL_GPU_GET_PARTITION_INFO is.
fn fields(kind: &Kind) -> [(&'static str, u32); 10] {
    [
        ("smCount", kind.sms),
        ("veidCount", kind.contexts),
        ("gpcCount", kind.gpcs),
        ("virtualGpcCount", kind.gpcs),
        ("ceCount", kind.copies),
        ("nvDecCount", kind.decoders),
        ("nvEncCount", kind.encoders),
        ("nvJpgCount", kind.jpegs),
        ("nvOfaCount", kind.optical),
        ("partitionFlag", kind.flag),
    ]
}

fn gpu_of(target: &Target<'_>) -> Result<usize> {
    Ok(target.kind.gpu().ok_or(Status::INVALID_OBJECT)?)
}

impl Driver {
    /// The kinds of instances that a card has: its profile's answer to the command that describes them.
    fn kinds(&mut self, target: &Target<'_>) -> Result<Vec<Kind>> {
        const DESCRIBE: &str = "NV2080_CTRL_CMD_GPU_DESCRIBE_PARTITIONS";
        let found = self.interface.commands.iter().find(|command| command.name == DESCRIBE);
        let record = found.and_then(|command| command.params.clone());
        let record = record.ok_or(Status::NOT_SUPPORTED)?;
        let mut params = Params::of(&self.interface, &record, Vec::new());
        let answer = self.answer_of_profile(target, DESCRIBE, &mut params);
        answer.unwrap_or(Err(Status::NOT_SUPPORTED.into()))?;
        let count = (params.word("descCount")? as usize).min(params.count("partitionDescs")?);
        let kinds = (0..count).map(|at| {
            let path = |field: &str| format!("partitionDescs[{at}].{field}");
            // No card has more, whatever a profile says.
            let count = |field: &str| Ok::<u32, Failed>(params.word(&path(field))?.min(MOST));
            // The oldest drivers have no optical flow to tell of.
            let if_any = |field: &str| count(field).unwrap_or(0);
            Ok(Kind {
                flag: params.word(&path("partitionFlag"))?,
                gpcs: count("gpcCount")?,
                sms: count("smCount")?,
                contexts: count("veidCount")?,
                copies: count("ceCount")?,
                decoders: count("nvDecCount")?,
                encoders: if_any("nvEncCount"),
                jpegs: if_any("nvJpgCount"),
                optical: if_any("nvOfaCount"),
                memory: params.get(&path("memorySize"))?,
            })
        });
        kinds.collect()
    }

    /// Whether the mode is in force.
    pub(in crate::rm) fn is_mig_enabled(&self, gpu: usize) -> bool {
        let enabled = self.interface.constant("NV2080_CTRL_GPU_INFO_GPU_SMC_MODE_ENABLED");
        enabled.is_some() && self.number_of(gpu, "state.mig") == enabled.map(i128::from)
    }

    fn is_mig_in_use(&self, gpu: usize) -> bool {
        self.gpus.get(gpu).is_some_and(|gpu| !gpu.instances.0.is_empty())
    }

    /// The instance that an object is of.
    fn instance(&mut self, target: &Target<'_>) -> Result<(usize, u32, &mut Instance)> {
        let (ObjectKind::GpuInstance { gpu, number }
        | ObjectKind::ComputeInstance { gpu, number, .. }) = target.kind
        else {
            return Err(Status::INVALID_OBJECT.into());
        };
        let instances = self.gpus.get_mut(gpu).map(|gpu| &mut gpu.instances.0);
        let found = instances.and_then(|instances| instances.get_mut(&number));
        Ok((gpu, number, found.ok_or(Status::INVALID_STATE)?))
    }

    /// The instance that a client has chosen for its device.
    pub(in crate::rm) fn chosen(&self, client: u32, gpu: usize) -> Option<Part> {
        if !self.is_mig_in_use(gpu) {
            return None;
        }
        let client = self.server.find(client).ok()?;
        let number = client.objects().find_map(|object| match object.kind {
            ObjectKind::GpuInstance { gpu: of, number } if of == gpu => Some(number),
            _ => None,
        })?;
        let compute = client.objects().find_map(|object| match object.kind {
            ObjectKind::ComputeInstance { gpu: of, number: own, compute }
                if (of, own) == (gpu, number) =>
            {
                Some(compute)
            }
            _ => None,
        });
        Some(Part { number, compute })
    }

    /// Of which clients a client may know what they have of a GPU: of all, or of those of its own instance where the
    /// GPU is divided and it has no AMPERE_SMC_MONITOR_SESSION (`subdeviceCtrlCmdGpuGetPids_IMPL`).
    pub(in crate::rm) fn seen_by(&self, client: u32, gpu: usize) -> Result<Seen> {
        let is_monitor = |object: &Object| object.kind.class() == Some(MONITOR_SESSION);
        if !self.is_mig_in_use(gpu) || self.server.find(client)?.objects().any(is_monitor) {
            return Ok(Seen::All);
        }
        let part = self.part_of_client(client, gpu).ok_or(Status::INSUFFICIENT_PERMISSIONS)?;
        Ok(Seen::Of(part))
    }

    /// The instance that a client has chosen to work with, not only to look at the whole GPU.
    pub(in crate::rm) fn part_of_client(&self, client: u32, gpu: usize) -> Option<Part> {
        self.chosen(client, gpu).filter(|part| part.number != WHOLE)
    }

    /// The clients of a process that work with a GPU, of those that are seen: where it is divided, with an instance.
    pub(in crate::rm) fn clients_of(
        &self,
        gpu: usize,
        process: u32,
        seen: Seen,
    ) -> impl Iterator<Item = (&Client, Option<Part>)> {
        let is_divided = self.is_mig_in_use(gpu);
        let of_process = self.server.clients().filter(move |(_, it)| it.process == process);
        let with_part =
            of_process.map(move |(handle, client)| (client, self.part_of_client(handle, gpu)));
        with_part.filter(move |(_, part)| seen.has(*part) && (part.is_some() || !is_divided))
    }

    /// Bytes that are left of the memory of the instance that a client has chosen.
    pub(in crate::rm) fn free_memory_of_instance(&self, client: u32, gpu: usize) -> Option<u64> {
        let part = self.chosen(client, gpu)?;
        let free = self.value_of_instance(gpu, part, "sim.memory_free")?.number()?;
        u64::try_from(free).ok()
    }

    /// The TPCs of each GPC of an instance: as many in each as there are.
    pub(in crate::rm) fn tpcs_of(&self, gpu: usize, part: Part) -> Option<Vec<u32>> {
        let instance = self.gpus.get(gpu)?.instances.0.get(&part.number)?;
        let compute = part.compute.and_then(|compute| instance.compute.get(&compute));
        let (gpcs, sms) = match compute {
            Some(Compute { size, .. }) => (size.gpcs, size.sms),
            None => (instance.kind.gpcs, instance.kind.sms),
        };
        let tpcs = sms / SMS_PER_TPC;
        let of_gpc = |gpc| tpcs / gpcs + u32::from(gpc < tpcs % gpcs);
        Some((0..gpcs).map(of_gpc).collect())
    }

    /// The part of a GPU's window that an instance has.
    pub(in crate::rm) fn window_of_instance(&self, gpu: usize, number: u32) -> Option<Range<u64>> {
        let own = self.gpus.get(gpu)?;
        let span = own.instances.0.get(&number)?.span;
        let whole = self.window_of_instances(gpu);
        let eighth = (whole.end - whole.start) / 8;
        let at = |part: u32| whole.start + eighth * u64::from(part);
        Some(at(span.start)..at(span.start + span.size))
    }

    /// What an instance has, by the names that a profile has for the whole GPU's: its part of the memory, of the window
    /// to it, and of the engine that computes.
    pub(in crate::rm) fn value_of_instance(
        &self,
        gpu: usize,
        part: Part,
        name: &str,
    ) -> Option<Datum> {
        let number = part.number;
        let own = self.gpus.get(gpu)?;
        let tpcs = || self.tpcs_of(gpu, part);
        let count = || Some(i128::from(tpcs()?.iter().sum::<u32>()));
        // Of what each SM has as many of.
        let share = || {
            let all = own.own_value("graphics.tpc_count", 0).ok()?.number()?;
            let of_all = own.own_value(name, 0).ok()?.number()?;
            (of_all * count()?).checked_div(all)
        };
        let instance = own.instances.0.get(&number)?;
        let is_user = |client: &Client| {
            let chosen = ObjectKind::GpuInstance { gpu, number };
            client.objects().any(|object| object.kind == chosen)
        };
        let used = || video_memory(self.server.objects_of(is_user));
        let window = || self.window_of_instance(gpu, number);
        let left_of_window = || Some(own.window.free(&window()?));
        let number = match name {
            "graphics.tpcs" => {
                let list = tpcs()?.into_iter().map(|count| Datum::Number(count.into()));
                return Some(Datum::List(list.collect()));
            }
            "graphics.tpc_count" => count()?,
            "compute.cores" | "compute.tensor_cores" => share()?,
            "memory.size" => instance.kind.memory.into(),
            "memory.reserved" => 0,
            "bars.window.size" => window().map(|window| window.end - window.start)?.into(),
            // The driver says whether there was one, and no number.
            "state.ecc_sram_uncorrected" if !instance.has_sram_error => 0,
            "sim.window_free" => left_of_window()?.all.into(),
            "sim.window_largest" => left_of_window()?.largest.into(),
            "sim.memory_used" => used().into(),
            "sim.memory_free" => instance.kind.memory.saturating_sub(used()).into(),
            _ => return None,
        };
        Some(Datum::Number(number))
    }

    /// `_kmigmgrProcessGPUInstanceEntry`, of one that goes.
    fn destroy(&mut self, gpu: usize, number: u32) -> Result {
        let is_used = self.server.objects().any(|object| match object.kind {
            ObjectKind::GpuInstance { gpu: of, number: own } => (of, own) == (gpu, number),
            _ => false,
        });
        let instances = &mut self.gpus[gpu].instances.0;
        let instance = instances.get(&number).ok_or(Status::INVALID_ARGUMENT)?;
        if is_used || !instance.compute.is_empty() {
            return Err(Status::STATE_IN_USE.into());
        }
        instances.remove(&number);
        Ok(())
    }
}

/// `subdeviceCtrlCmdGpuGetActivePartitionIds_IMPL`.
fn active(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let gpu = gpu_of(target)?;
    params.set("partitionCount", 0_u32)?;
    // A card without the mode has always been asked by libcuda, which takes either.
    if !driver.is_mig_enabled(gpu) {
        return Err(Status::NOT_SUPPORTED.into());
    }
    let own = driver.gpus[gpu].instances.0.keys().copied();
    let numbers: Vec<u32> = std::iter::once(WHOLE).chain(own).collect();
    params.set("partitionCount", numbers.len() as u32)?;
    Ok(params.fill("swizzId", &numbers, 0)?)
}

/// `subdeviceCtrlCmdGpuGetPartitionCapacity_IMPL`, of which the open driver has the part of virtual machines alone.
fn capacity(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let gpu = gpu_of(target)?;
    let kinds = driver.kinds(target)?;
    let flag = params.word("partitionFlag")?;
    let kind = kinds.iter().find(|kind| kind.flag == flag).ok_or(Status::INVALID_ARGUMENT)?;
    let none = crate::rm::mig::Instances::default();
    let (all, total) = (places(&kinds, kind), none.room(&kinds, kind).1);
    params.set("totalPartitionCount", total)?;
    put_spans(params, ["totalSpans", "totalSpansCount"], &all)?;
    let (left, count) = driver.gpus[gpu].instances.room(&kinds, kind);
    params.set("partitionCount", count)?;
    put_spans(params, ["availableSpans", "availableSpansCount"], &left)
}

fn put_spans(params: &mut Params, [list, count]: [&str; 2], spans: &[Span]) -> Result {
    for (at, span) in spans.iter().enumerate().take(params.count(list)?) {
        params.set(&format!("{list}[{at}].lo"), span.start)?;
        params.set(&format!("{list}[{at}].hi"), span.start + span.size - 1)?;
    }
    Ok(params.set(count, spans.len() as u32)?)
}

/// `subdeviceCtrlCmdGpuSetPartitions_IMPL`.
fn set(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let gpu = gpu_of(target)?;
    if !driver.is_mig_enabled(gpu) {
        return Err(Status::NOT_SUPPORTED.into());
    }
    let count = params.word("partitionCount")? as usize;
    if count > params.count("partitionInfo")? {
        return Err(Status::INVALID_ARGUMENT.into());
    }
    if count == 0 {
        return Err(Status::WARN_NOTHING_TO_DO.into());
    }
    let kinds = driver.kinds(target)?;
    let before = driver.gpus[gpu].instances.0.clone();
    let done = (0..count).try_for_each(|at| set_one(driver, gpu, &kinds, params, at));
    match done {
        Ok(()) => {
            driver.tell_of_instances(gpu);
        }
        Err(_) => driver.gpus[gpu].instances.0 = before,
    }
    done
}

fn set_one(
    driver: &mut Driver,
    gpu: usize,
    kinds: &[Kind],
    params: &mut Params,
    at: usize,
) -> Result {
    let path = |field: &str| format!("partitionInfo[{at}].{field}");
    if params.word(&path("bValid"))? == 0 {
        return driver.destroy(gpu, params.word(&path("swizzId"))?);
    }
    let flag = params.word(&path("partitionFlag"))?;
    let wanted = match flag & AT_SPAN {
        0 => None,
        _ => {
            let (low, high) =
                (params.get(&path("placement.lo"))?, params.get(&path("placement.hi"))?);
            let is_right = low <= high && high < 8;
            let size = is_right.then(|| (high - low + 1) as u32).ok_or(Status::INVALID_ARGUMENT)?;
            Some(Span { start: low as u32, size })
        }
    };
    let number = driver.gpus[gpu].instances.make(kinds, flag & !AT_SPAN, wanted)?;
    params.set(&path("swizzId"), number)?;
    if params.has(&path("uuid")) {
        params.put(&path("uuid"), &driver.uuid_of(gpu, number, None))?;
    }
    Ok(())
}

impl Driver {
    /// The UUID of a GPU instance, or of a compute instance of it.
    pub(in crate::rm) fn uuid_of(
        &self,
        gpu: usize,
        instance: u32,
        compute: Option<u32>,
    ) -> [u8; 16] {
        let mut uuid = *b"nvabi-simulat\0\0\0";
        uuid[13] = self.gpus.get(gpu).map_or(0, |gpu| gpu.minor as u8);
        uuid[14] = instance as u8;
        uuid[15] = compute.map_or(0, |number| number as u8 + 1);
        uuid
    }
}

/// `subdeviceCtrlCmdGpuGetPartitions_IMPL`.
fn get(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let gpu = gpu_of(target)?;
    // A card that cannot be divided has no kinds.
    driver.kinds(target)?;
    let numbers: Vec<u32> = match params.word("bGetAllPartitionInfo")? {
        0 => driver.chosen(target.client, gpu).map(|part| part.number).into_iter().collect(),
        _ => driver.gpus[gpu].instances.0.keys().copied().collect(),
    };
    let mut count = 0_u32;
    for number in numbers.into_iter().take(params.count("queryPartitionInfo")?) {
        let Some(instance) = driver.gpus[gpu].instances.0.get(&number) else { continue };
        let entry = format!("queryPartitionInfo[{count}]");
        // What is left of it is zero: a program asks with whatever was there.
        let size = params.bytes_of(&entry)?.len();
        params.put(&entry, &vec![0; size])?;
        let path = |field: &str| format!("{entry}.{field}");
        params.set(&path("swizzId"), number)?;
        for (field, value) in fields(&instance.kind) {
            params.set_if_any(&path(field), value);
        }
        params.set(&path("grEngCount"), 1_u32)?;
        params.set(&path("gpcsPerGr[0]"), instance.kind.gpcs)?;
        params.set_if_any(&path("virtualGpcsPerGr[0]"), instance.kind.gpcs);
        params.set(&path("veidsPerGr[0]"), instance.kind.contexts)?;
        params.set(&path("memSize"), instance.kind.memory)?;
        params.set_if_any(&path("span.lo"), instance.span.start);
        params.set_if_any(&path("span.hi"), instance.span.start + instance.span.size - 1);
        params.set(&path("bValid"), 1_u32)?;
        count += 1;
    }
    Ok(params.set("validPartitionCount", count)?)
}

/// `subdeviceCtrlCmdGpuGetComputeProfiles_IMPL`.
fn sizes(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let gpu = gpu_of(target)?;
    if !driver.is_mig_enabled(gpu) {
        return Err(Status::INVALID_STATE.into());
    }
    let chosen = driver.chosen(target.client, gpu).map(|part| part.number);
    let most = chosen.and_then(|number| driver.gpus[gpu].instances.0.get(&number));
    let most = most.map_or(u32::MAX, |instance| instance.kind.sms);
    let sizes = compute_sizes(&driver.kinds(target)?);
    let sizes: Vec<ComputeSize> = sizes.into_iter().filter(|size| size.sms <= most).collect();
    for (at, size) in sizes.iter().enumerate().take(params.count("profiles")?) {
        let path = |field: &str| format!("profiles[{at}].{field}");
        params.set(&path("computeSize"), size.number)?;
        params.set(&path("gpcCount"), size.gpcs)?;
        params.set(&path("smCount"), size.sms)?;
        params.set(&path("veidCount"), size.contexts)?;
    }
    Ok(params.set("profileCount", sizes.len() as u32)?)
}

/// `gisubscriptionCtrlCmdExecPartitionsCreate_IMPL`, `kmigmgrGetComputeProfileForRequest_IMPL`.
fn create_compute(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let count = params.word("execPartCount")? as usize;
    if count > params.count("execPartInfo")? {
        return Err(Status::INVALID_ARGUMENT.into());
    }
    if count == 0 {
        return Err(Status::WARN_NOTHING_TO_DO.into());
    }
    let is_placed = params.word("flags")? & COMPUTE_AT_SPAN != 0;
    let is_question = params.word("bQuery")? != 0;
    let sizes = compute_sizes(&driver.kinds(target)?);
    let (gpu, _, instance) = driver.instance(target)?;
    let before = instance.compute.clone();
    let done = (0..count).try_for_each(|at| -> Result {
        let path = |field: &str| format!("execPartInfo[{at}].{field}");
        let (sms, gpcs) = (params.word(&path("smCount"))?, params.word(&path("gpcCount"))?);
        let by_sms = sizes.iter().find(|size| size.sms == sms);
        let size = by_sms.or_else(|| sizes.iter().find(|size| size.gpcs == gpcs));
        let size = size.ok_or(Status::INVALID_ARGUMENT)?;
        let wanted = match is_placed {
            true => Some(params.word(&path("spanStart")).unwrap_or(0)),
            false => None,
        };
        let engine = |field| (field, params.word(&path(field)).unwrap_or(0));
        let engines = ENGINES.map(engine).to_vec();
        let own = instance.make_compute(*size, wanted, engines)?;
        let span = instance.compute.get(&own).map_or(0, |own| own.span.start);
        params.set_if_any(&path("spanStart"), span);
        Ok(params.set(&format!("execPartId[{at}]"), own)?)
    });
    if done.is_err() || is_question {
        instance.compute = before;
    } else {
        driver.tell_of_instances(gpu);
    }
    done
}

/// `gisubscriptionCtrlCmdExecPartitionsDelete_IMPL`.
fn delete_compute(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let count = params.word("execPartCount")? as usize;
    if count > params.count("execPartId")? {
        return Err(Status::INVALID_ARGUMENT.into());
    }
    if count == 0 {
        return Err(Status::WARN_NOTHING_TO_DO.into());
    }
    let mut numbers = Vec::new();
    for at in 0..count {
        numbers.push(params.word(&format!("execPartId[{at}]"))?);
    }
    let used: Vec<ObjectKind> = driver.server.objects().map(|object| object.kind.clone()).collect();
    let (gpu, number, instance) = driver.instance(target)?;
    if numbers.iter().any(|compute| !instance.compute.contains_key(compute)) {
        return Err(Status::INVALID_ARGUMENT.into());
    }
    for compute in numbers {
        if used.contains(&ObjectKind::ComputeInstance { gpu, number, compute }) {
            return Err(Status::STATE_IN_USE.into());
        }
        instance.compute.remove(&compute);
    }
    driver.tell_of_instances(gpu);
    Ok(())
}

/// `gisubscriptionCtrlCmdExecPartitionsGet_IMPL`, for who may see all.
fn get_compute(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let (_, _, instance) = driver.instance(target)?;
    let mut count = 0_u32;
    for (number, compute) in &instance.compute {
        let path = |field: &str| format!("execPartInfo[{count}].{field}");
        params.set(&format!("execPartId[{count}]"), *number)?;
        params.set(&path("gpcCount"), compute.size.gpcs)?;
        params.set_if_any(&path("smCount"), compute.size.sms);
        params.set(&path("veidCount"), compute.size.contexts)?;
        params.set_if_any(&path("computeSize"), compute.size.number);
        params.set_if_any(&path("spanStart"), compute.span.start);
        for (field, value) in &compute.engines {
            params.set_if_any(&path(field), *value);
        }
        count += 1;
    }
    Ok(params.set("execPartCount", count)?)
}

/// `gisubscriptionCtrlCmdExecPartitionsGetActiveIds_IMPL`.
fn active_compute(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let (gpu, number, instance) = driver.instance(target)?;
    let numbers: Vec<u32> = instance.compute.keys().copied().collect();
    for (at, compute) in numbers.iter().enumerate() {
        let uuid = driver.uuid_of(gpu, number, Some(*compute));
        params.set(&format!("execPartId[{at}]"), *compute)?;
        let path = format!("execPartUuid[{at}].str");
        params.put_text(&path, &format!("MIG-{}", uuid_words(uuid)))?;
    }
    Ok(params.set("execPartCount", numbers.len() as u32)?)
}

/// `gisubscriptionCtrlCmdExecPartitionsGetProfileCapacity_IMPL`.
fn compute_capacity(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let wanted = params.word("computeSize")?;
    let sizes = compute_sizes(&driver.kinds(target)?);
    let size = sizes.iter().find(|size| size.number == wanted).ok_or(Status::OBJECT_NOT_FOUND)?;
    let (_, _, instance) = driver.instance(target)?;
    let (all, left) = instance.compute_places(size);
    params.set("totalProfileCount", Instance::count(&all))?;
    put_spans(params, ["totalSpans", "totalSpansCount"], &all)?;
    params.set("profileCount", Instance::count(&left))?;
    put_spans(params, ["availableSpans", "availableSpansCount"], &left)
}

/// `gisubscriptionCtrlCmdGetUuid_IMPL`.
fn uuid_of_instance(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let (gpu, number, _) = driver.instance(target)?;
    let uuid = driver.uuid_of(gpu, number, None);
    params.put("uuid", &uuid)?;
    Ok(params.put_text("uuidStr", &format!("MGI-{}", uuid_words(uuid)))?)
}

/// `cisubscriptionCtrlCmdGetUuid_IMPL`.
fn uuid_of_compute(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let ObjectKind::ComputeInstance { gpu, number, compute } = target.kind else {
        return Err(Status::INVALID_OBJECT.into());
    };
    let uuid = driver.uuid_of(gpu, number, Some(compute));
    params.put("uuid", &uuid)?;
    Ok(params.put_text("uuidStr", &format!("MIG-{}", uuid_words(uuid)))?)
}

impl Driver {
    /// `gisubscriptionConstruct_IMPL`: what a client does with its device is of the instance from then on.
    pub(in crate::rm) fn choose_instance(
        &self,
        caller: Caller<'_>,
        above: &ObjectKind,
        params: &Params,
    ) -> Result<ObjectKind> {
        let gpu = above.gpu().ok_or(Status::INVALID_OBJECT_PARENT)?;
        if !self.is_mig_enabled(gpu) {
            return Err(Status::NOT_SUPPORTED.into());
        }
        let number = params.word("swizzId")?;
        if number != WHOLE {
            if !self.is_mig_in_use(gpu) {
                return Err(Status::NOT_SUPPORTED.into());
            }
            if !self.gpus[gpu].instances.0.contains_key(&number) {
                return Err(Status::INVALID_ARGUMENT.into());
            }
            self.need_capability(caller, params, (gpu, number, None))?;
        }
        Ok(ObjectKind::GpuInstance { gpu, number })
    }

    /// `cisubscriptionConstruct_IMPL`.
    pub(in crate::rm) fn choose_compute(
        &self,
        caller: Caller<'_>,
        above: &ObjectKind,
        params: &Params,
    ) -> Result<ObjectKind> {
        let ObjectKind::GpuInstance { gpu, number } = *above else {
            return Err(Status::INVALID_OBJECT_PARENT.into());
        };
        let compute = params.word("execPartitionId")?;
        let instance = self.gpus.get(gpu).and_then(|gpu| gpu.instances.0.get(&number));
        let instance = instance.ok_or(Status::INVALID_STATE)?;
        if !instance.compute.contains_key(&compute) {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        self.need_capability(caller, params, (gpu, number, Some(compute)))?;
        Ok(ObjectKind::ComputeInstance { gpu, number, compute })
    }

    fn need_capability(
        &self,
        caller: Caller<'_>,
        params: &Params,
        of: (usize, u32, Option<u32>),
    ) -> Result {
        match self.has_capability(caller.client, params.get("capDescriptor")?, of) {
            true => Ok(()),
            false => Err(Status::INSUFFICIENT_PERMISSIONS.into()),
        }
    }

    /// After instances were made or destroyed.
    fn tell_of_instances(&mut self, gpu: usize) {
        self.has_other_entries = true;
        self.notify_named(gpu, "SMC_CONFIG_UPDATE", Info::default());
    }
}
