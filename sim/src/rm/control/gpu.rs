//! Commands of devices and subdevices.

use super::system::identity;
use super::{Handler, Target};
use crate::Status;
use crate::rm::failed::Result;
use crate::rm::interface::Params;
use crate::rm::{Driver, gpu::Gpu};

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "NV2080_CTRL_CMD_GPU_GET_NAME_STRING" => name_string,
        "NV2080_CTRL_CMD_GPU_GET_GID_INFO" => gid_info,
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

fn gid_info(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let uuid = identity(gpu(driver, target)?, params.word("flags")?);
    params.put("data", &uuid)?;
    params.set("length", uuid.len() as u32)?;
    Ok(())
}
