//! Commands of the client itself: the system, and which GPUs it has (R/client_resource.c,
//! `src/nvidia/src/kernel/gpu_mgr/gpu_mgr.c`).

use super::{Handler, Target};
use crate::Status;
use crate::rm::Driver;
use crate::rm::failed::Result;
use crate::rm::interface::Params;

/// No GPU has this number.
const NO_GPU: u32 = u32::MAX;
/// All that there are (NV0000_CTRL_GPU_ATTACH_ALL_PROBED_IDS).
const ALL_GPUS: u32 = 0x0000_ffff;
/// No node of memory (NV0000_CTRL_NO_NUMA_NODE).
const NO_NODE: u32 = u32::MAX;

/// What the driver says of its own build.
const BRANCH: &str = "nvabi";
const TITLE: &str = "NVIDIA UNIX";

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION" => build_version,
        "NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2" => build_version_v2,
        "NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS" => attached_ids,
        "NV0000_CTRL_CMD_GPU_GET_PROBED_IDS" => probed_ids,
        "NV0000_CTRL_CMD_GPU_ATTACH_IDS" => attach_ids,
        "NV0000_CTRL_CMD_GPU_DETACH_IDS" => detach_ids,
        "NV0000_CTRL_CMD_GPU_GET_INIT_STATUS" => init_status,
        "NV0000_CTRL_CMD_GPU_GET_ID_INFO" | "NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2" => id_info,
        "NV0000_CTRL_CMD_GPU_GET_PCI_INFO" => pci_info,
        "NV0000_CTRL_CMD_GPU_GET_DEVICE_IDS" => device_ids,
        "NV0000_CTRL_CMD_GPU_GET_UUID_FROM_GPU_ID" => uuid_from_id,
        "NV0000_CTRL_CMD_GPU_GET_UUID_INFO" => uuid_info,
        "NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO" => handle_info,
        _ => return None,
    })
}

/// `cliresCtrlCmdClientGetHandleInfo_IMPL`.
fn handle_info(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    /// NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_PARENT, _CLASSID.
    const PARENT: u32 = 1;
    const CLASS: u32 = 2;
    let handle = params.word("hObject")?;
    let object = driver.server.find(target.client)?.object(handle)?;
    match params.word("index")? {
        PARENT => Ok(params.set("data.hResult", object.parent)?),
        CLASS => match object.kind.class() {
            Some(class) => Ok(params.set("data.iResult", class)?),
            None => driver.not_simulated(target.caller, format!("the class of {handle:#x}")),
        },
        _ => Err(Status::INVALID_ARGUMENT.into()),
    }
}

/// `rmapi_deprecated_control.c`: texts go to three buffers of the caller's, or their length is told.
fn build_version(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let texts = [driver.told_version.as_str(), BRANCH, TITLE];
    let longest = texts.iter().map(|text| text.len() + 1).max().unwrap_or(0) as u32;
    let fields = ["pDriverVersionBuffer", "pVersionBuffer", "pTitleBuffer"];
    let mut buffers = [0; 3];
    for (buffer, field) in buffers.iter_mut().zip(fields) {
        *buffer = params.get(field)?;
    }
    if buffers.contains(&0) {
        params.set("sizeOfStrings", longest)?;
        return Ok(());
    }
    if params.word("sizeOfStrings")? < longest {
        return Err(Status::INVALID_PARAM_STRUCT.into());
    }
    for (text, buffer) in texts.iter().zip(buffers) {
        let text = [text.as_bytes(), &[0]].concat();
        if target.caller.client.write(buffer, &text) < text.len() {
            return Err(Status::INVALID_PARAM_STRUCT.into());
        }
    }
    params.set("changelistNumber", 0_u32)?;
    params.set("officialChangelistNumber", 0_u32)?;
    Ok(())
}

fn build_version_v2(driver: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    params.put_text("driverVersionBuffer", &driver.told_version)?;
    params.put_text("versionBuffer", BRANCH)?;
    params.put_text("titleBuffer", TITLE)?;
    if params.has("driverBranch") {
        params.put_text("driverBranch", BRANCH)?;
    }
    params.set("changelistNumber", 0_u32)?;
    params.set("officialChangelistNumber", 0_u32)?;
    Ok(())
}

fn attached_ids(driver: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    let attached = driver.gpus.iter().filter(|gpu| gpu.is_attached());
    let ids: Vec<u32> = attached.map(|gpu| gpu.id()).collect();
    Ok(params.fill("gpuIds", &ids, NO_GPU)?)
}

fn probed_ids(driver: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    let ids: Vec<u32> = driver.present().map(|gpu| gpu.id()).collect();
    params.fill("gpuIds", &ids, NO_GPU)?;
    if params.has("excludedGpuIds") {
        params.fill("excludedGpuIds", &[], NO_GPU)?;
    }
    Ok(())
}

/// Each must be one that there is; more is not done on Linux.
fn attach_ids(driver: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    for index in 0..params.count("gpuIds")? {
        let id = params.word(&format!("gpuIds[{index}]"))?;
        if index == 0 && id == ALL_GPUS || id == NO_GPU {
            break;
        }
        if !driver.present().any(|gpu| gpu.id() == id) {
            return Err(Status::INVALID_ARGUMENT.into());
        }
    }
    Ok(())
}

/// The driver looks at the first one alone.
fn detach_ids(driver: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    let id = params.word("gpuIds[0]")?;
    let is_there = driver.gpus.iter().any(|gpu| gpu.is_attached() && gpu.id() == id);
    match is_there || [ALL_GPUS, NO_GPU].contains(&id) {
        true => Ok(()),
        false => Err(Status::INVALID_ARGUMENT.into()),
    }
}

/// gpu_mgr.c: `gpumgrGetGpuInitStatus`. One that is lost or drains is not started at all, so that no start fails.
fn init_status(driver: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    let id = params.word("gpuId")?;
    let gpu = driver.present().find(|gpu| gpu.id() == id).ok_or(Status::INVALID_ARGUMENT)?;
    if !gpu.was_started {
        return Err(Status::INVALID_STATE.into());
    }
    Ok(params.set("status", Status::OK.0)?)
}

fn id_info(driver: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    let id = params.word("gpuId")?;
    let found = driver.gpus.iter().position(|gpu| gpu.is_attached() && gpu.id() == id);
    let index = found.ok_or(Status::INVALID_ARGUMENT)? as u32;
    let is_in_use = driver.server.objects().any(|object| object.kind.gpu() == found);
    params.set("gpuInstance", index)?;
    params.set("deviceInstance", index)?;
    params.set("subDeviceInstance", 0_u32)?;
    params.set("sliStatus", 0_u32)?;
    params.set("boardId", id)?;
    // NV0000_CTRL_GPU_ID_INFO_IN_USE.
    params.set("gpuFlags", u32::from(is_in_use))?;
    params.set_if_any("numaId", NO_NODE);
    Ok(())
}

fn pci_info(driver: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    let id = params.word("gpuId")?;
    let gpu = driver.present().find(|gpu| gpu.id() == id).ok_or(Status::OBJECT_NOT_FOUND)?;
    params.set("domain", 0_u32)?;
    params.set("bus", gpu.bus())?;
    params.set("slot", 0_u32)?;
    Ok(())
}

fn device_ids(driver: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    let attached = driver.gpus.iter().enumerate().filter(|(_, gpu)| gpu.is_attached());
    let mask = attached.fold(0_u32, |mask, (index, _)| mask | 1 << index);
    Ok(params.set("deviceIds", mask)?)
}

/// NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_BINARY; the other format is text.
pub(super) const BINARY: u32 = 2;

/// The identity as a caller wants it; that of the hash SHA-1, of bit 2, is the only one.
pub(super) fn identity(gpu: &crate::rm::gpu::Gpu, flags: u32) -> Vec<u8> {
    match flags & 3 == BINARY {
        true => gpu.uuid().to_vec(),
        false => [gpu.uuid_text().as_bytes(), &[0]].concat(),
    }
}

fn uuid_from_id(driver: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    let id = params.word("gpuId")?;
    let gpu = driver.present().find(|gpu| gpu.id() == id).ok_or(Status::OBJECT_NOT_FOUND)?;
    let uuid = identity(gpu, params.word("flags")?);
    params.put("gpuUuid", &uuid)?;
    params.set("uuidStrLen", uuid.len() as u32)?;
    Ok(())
}

fn uuid_info(driver: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    let flags = params.word("flags")?;
    let wanted = params.bytes_of("gpuUuid")?;
    let is_meant = |gpu: &crate::rm::gpu::Gpu| wanted.starts_with(&identity(gpu, flags));
    let found = driver.gpus.iter().position(|gpu| gpu.is_attached() && is_meant(gpu));
    let index = found.ok_or(Status::OBJECT_NOT_FOUND)?;
    params.set("gpuId", driver.gpus[index].id())?;
    params.set("deviceInstance", index as u32)?;
    params.set("subdeviceInstance", 0_u32)?;
    Ok(())
}
