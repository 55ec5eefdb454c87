//! Commands of devices and subdevices.

use super::system::identity;
use super::{Handler, Target};
use crate::Status;
use crate::rm::failed::Result;
use crate::rm::gpu;
use crate::rm::interface::Params;
use crate::rm::{Driver, gpu::Gpu};

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "NV0080_CTRL_CMD_GPU_GET_NUM_SUBDEVICES" => subdevices,
        "NV2080_CTRL_CMD_GPU_GET_NAME_STRING" => name_string,
        "NV2080_CTRL_CMD_GPU_GET_SHORT_NAME_STRING" => short_name_string,
        "NV2080_CTRL_CMD_GPU_GET_GID_INFO" => gid_info,
        "NV2080_CTRL_CMD_BUS_GET_PCI_INFO" => pci_info,
        "NV2080_CTRL_CMD_MC_GET_ARCH_INFO" => arch_info,
        _ => return None,
    })
}

/// The GPU that a command is asked of.
fn gpu<'d>(driver: &'d Driver, target: &Target<'_>) -> Result<&'d Gpu> {
    let index = target.kind.gpu().ok_or(Status::INVALID_OBJECT)?;
    Ok(driver.gpus.get(index).ok_or(Status::INVALID_DEVICE)?)
}

fn subdevices(_: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    Ok(params.set("numSubDevices", 1_u32)?)
}

/// NV2080_CTRL_GPU_GET_NAME_STRING_FLAGS_TYPE: letters of one byte, or of two.
fn name_string(_: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    const ASCII: u32 = 0;
    const UNICODE: u32 = 1;
    match params.word("gpuNameStringFlags")? {
        ASCII => Ok(params.put_text("gpuNameString.ascii", gpu::NAME)?),
        // Since 595 there is no such form.
        UNICODE if params.has("gpuNameString.unicode") => {
            let letters = gpu::NAME.bytes().chain([0]);
            let text: Vec<u8> = letters.flat_map(|letter| [letter, 0]).collect();
            Ok(params.put("gpuNameString.unicode", &text)?)
        }
        _ => Err(Status::INVALID_ARGUMENT.into()),
    }
}

fn short_name_string(_: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    Ok(params.put_text("gpuShortNameString", gpu::SHORT_NAME)?)
}

fn gid_info(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let uuid = identity(gpu(driver, target)?, params.word("flags")?);
    params.put("data", &uuid)?;
    params.set("length", uuid.len() as u32)?;
    Ok(())
}

fn pci_info(_: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    params.set("pciDeviceId", u32::from(gpu::DEVICE) << 16 | u32::from(gpu::VENDOR))?;
    params.set("pciSubSystemId", gpu::SUBSYSTEM)?;
    params.set("pciRevisionId", gpu::REVISION)?;
    params.set("pciExtDeviceId", u32::from(gpu::DEVICE))?;
    Ok(())
}

fn arch_info(_: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    params.set("architecture", gpu::ARCHITECTURE)?;
    params.set("implementation", gpu::IMPLEMENTATION)?;
    params.set("revision", gpu::REVISION)?;
    params.set_if_any("subRevision", 0_u32);
    Ok(())
}
