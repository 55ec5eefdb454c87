//! Commands of devices and subdevices.

use super::system::identity;
use super::{Handler, Target};
use crate::Status;
use crate::rm::failed::Result;
use crate::rm::interface::Params;
use crate::rm::server::ObjectKind;
use crate::rm::{Driver, gpu::Gpu};

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "NV2080_CTRL_CMD_GPU_GET_NAME_STRING" => name_string,
        "NV2080_CTRL_CMD_GPU_GET_GID_INFO" => gid_info,
        "NV2080_CTRL_CMD_GPU_GET_PIDS" => process_ids,
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

/// `subdevice_ctrl_gpu_kernel.c`: the processes that have an object of a class, or anything of the GPU's where
/// the class is the subdevice's.
fn process_ids(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    /// NV2080_CTRL_GPU_GET_PIDS_ID_TYPE_CLASS.
    const BY_CLASS: u32 = 0;
    const SUBDEVICE: u32 = 0x2080;
    if params.word("idType")? != BY_CLASS {
        return Err(Status::INVALID_ARGUMENT.into());
    }
    let gpu = target.kind.gpu().ok_or(Status::INVALID_OBJECT)?;
    let class = params.word("id")?;
    let ids = driver.server.processes_of(gpu, |kind| match kind {
        ObjectKind::Other(object) => object.class == class,
        ObjectKind::Subdevice(_) => class == SUBDEVICE,
        _ => false,
    });
    let ids: Vec<u32> = ids.into_iter().take(params.count("pidTbl")?).collect();
    params.set("pidTblCount", ids.len() as u32)?;
    Ok(params.fill("pidTbl", &ids, 0)?)
}

fn gid_info(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let uuid = identity(gpu(driver, target)?, params.word("flags")?);
    params.put("data", &uuid)?;
    params.set("length", uuid.len() as u32)?;
    Ok(())
}
