//! Commands of devices and subdevices.

use std::collections::BTreeSet;

use super::system::identity;
use super::{Handler, Target};
use crate::Status;
use crate::rm::failed::Result;
use crate::rm::interface::Params;
use crate::rm::server::{Client, ObjectKind};
use crate::rm::{Driver, gpu::Gpu};

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "NV2080_CTRL_CMD_GPU_GET_NAME_STRING" => name_string,
        "NV2080_CTRL_CMD_GPU_GET_GID_INFO" => gid_info,
        "NV2080_CTRL_CMD_GPU_GET_PIDS" => process_ids,
        "NV_CONF_COMPUTE_CTRL_CMD_GPU_GET_VIDMEM_SIZE" => protected_memory,
        "NV2080_CTRL_CMD_GPU_GET_PID_INFO" => process_info,
        _ => return None,
    })
}

/// The GPU that a command is asked of.
pub(super) fn gpu<'d>(driver: &'d Driver, target: &Target<'_>) -> Result<&'d Gpu> {
    let index = target.kind.gpu().ok_or(Status::INVALID_OBJECT)?;
    Ok(driver.gpus.get(index).ok_or(Status::INVALID_DEVICE)?)
}

/// NV2080_CTRL_GPU_GET_NAME_STRING_FLAGS_TYPE: letters of one byte, or of two.
fn name_string(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    const ASCII: u32 = 0;
    const UNICODE: u32 = 1;
    let name = gpu(driver, target)?.text("identity.name");
    match params.word("gpuNameStringFlags")? {
        ASCII => Ok(params.put_text("gpuNameString.ascii", &name)?),
        // Since 595 there is no such form.
        UNICODE if params.has("gpuNameString.unicode") => {
            let letters = name.bytes().chain([0]);
            let text: Vec<u8> = letters.flat_map(|letter| [letter, 0]).collect();
            Ok(params.put("gpuNameString.unicode", &text)?)
        }
        _ => Err(Status::INVALID_ARGUMENT.into()),
    }
}

/// conf_compute_api.c: `confComputeApiCtrlCmdGpuGetVidmemSize_IMPL`. Nothing is protected while the feature is off.
fn protected_memory(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let subdevice = params.word("hSubDevice")?;
    let kind = &driver.server.find(target.client)?.object(subdevice)?.kind;
    let gpu = match kind {
        ObjectKind::Subdevice(gpu) => driver.gpus.get(*gpu).ok_or(Status::INVALID_DEVICE)?,
        _ => return Err(Status::INVALID_OBJECT_HANDLE.into()),
    };
    let facts = gpu.facts();
    params.set("protectedMemSizeInKb", 0_u64)?;
    Ok(params.set("unprotectedMemSizeInKb", facts.memory.saturating_sub(facts.reserved) >> 10)?)
}

/// `subdevice_ctrl_gpu_kernel.c`: the processes that have an object of a class, or anything of the GPU's where
/// the class is the subdevice's. Memory of the GPU stands for computing, so that programs without a channel are seen.
fn process_ids(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    /// NV2080_CTRL_GPU_GET_PIDS_ID_TYPE_CLASS.
    const BY_CLASS: u32 = 0;
    const SUBDEVICE: u32 = 0x2080;
    if params.word("idType")? != BY_CLASS {
        return Err(Status::INVALID_ARGUMENT.into());
    }
    let gpu = target.kind.gpu().ok_or(Status::INVALID_OBJECT)?;
    let seen = driver.seen_by(target.client, gpu)?;
    let class = params.word("id")?;
    let name = driver.interface.class(class).map(|class| class.name.as_str());
    let is_compute = name.is_some_and(|name| name.contains("_COMPUTE_"));
    let is_such = |kind: &ObjectKind| match kind {
        ObjectKind::Other(object) => object.class == class,
        ObjectKind::Subdevice(_) => class == SUBDEVICE,
        ObjectKind::Memory(buffer) => is_compute && buffer.is_video(),
        _ => false,
    };
    let has_such = |client: &Client| {
        client.objects().any(|object| object.kind.gpu() == Some(gpu) && is_such(&object.kind))
    };
    let ids = driver.server.clients().filter(|(handle, client)| {
        seen.has(driver.part_of_client(*handle, gpu)) && has_such(client)
    });
    let ids: BTreeSet<u32> = ids.map(|(_, client)| client.process).collect();
    let ids: Vec<u32> = ids.into_iter().take(params.count("pidTbl")?).collect();
    params.set("pidTblCount", ids.len() as u32)?;
    Ok(params.fill("pidTbl", &ids, 0)?)
}

/// `subdeviceCtrlCmdGpuGetPidInfo_IMPL`, `gpuFindClientInfoWithPidIterator_IMPL` and `_gpuCollectMemInfo`
/// (`gpu_rmapi.c`): the memory that processes have, and the instance that they are subscribed to.
fn process_info(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    /// NV2080_CTRL_GPU_PID_INFO_INDEX_VIDEO_MEMORY_USAGE, the only one.
    const MEMORY_USAGE: u32 = 0;
    /// PARTITIONID_INVALID.
    const NO_PARTITION: u32 = u32::MAX;
    let gpu = target.kind.gpu().ok_or(Status::INVALID_OBJECT)?;
    let count = params.word("pidInfoListCount")? as usize;
    if count == 0 || count > params.count("pidInfoList")? {
        return Err(Status::INVALID_ARGUMENT.into());
    }
    let seen = driver.seen_by(target.client, gpu)?;
    for entry in 0..count {
        let at = |field: &str| format!("pidInfoList[{entry}].{field}");
        let process = params.word(&at("pid"))?;
        let is_asked = params.word(&at("index"))? == MEMORY_USAGE && process != 0;
        // Of several the last.
        let part = driver.clients_of(gpu, process, seen).filter_map(|(_, part)| part).last();
        let part = part.filter(|_| is_asked);
        for (field, number) in [
            ("computeInstanceId", part.and_then(|part| part.compute)),
            ("gpuInstanceId", part.map(|part| part.number)),
        ] {
            let path = at(&format!("smcSubscription.{field}"));
            params.set_if_any(&path, number.unwrap_or(NO_PARTITION));
        }
        if !is_asked {
            params.set(&at("result"), Status::INVALID_ARGUMENT.0)?;
            continue;
        }
        let (own, shared) = driver.memory_used_by(gpu, process, seen);
        let size = params.bytes_of(&at("data"))?.len();
        params.put(&at("data"), &vec![0; size])?;
        params.set(&at("data.vidMemUsage.memPrivate"), own)?;
        params.set(&at("data.vidMemUsage.memSharedOwned"), shared)?;
        params.set(&at("result"), Status::OK.0)?;
    }
    Ok(())
}

fn gid_info(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let uuid = identity(gpu(driver, target)?, params.word("flags")?);
    params.put("data", &uuid)?;
    params.set("length", uuid.len() as u32)?;
    Ok(())
}
