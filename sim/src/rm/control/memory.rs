//! What memory is (`src/nvidia/src/kernel/gpu/mem_mgr/mem_ctrl.c`, R/client_resource.c).

use super::{Handler, Target};
use crate::Status;
use crate::rm::Driver;
use crate::rm::failed::{Failed, Result};
use crate::rm::interface::Params;
use crate::rm::memory::{Of, PAGE};
use crate::rm::server::ObjectKind;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE" => address_space,
        "NV0041_CTRL_CMD_GET_SURFACE_INFO" => surface_info,
        _ => return None,
    })
}

/// Where the memory of an object is: a program asks before it maps it
/// (`cliresCtrlCmdClientGetAddrSpaceType_IMPL`).
fn address_space(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let object = driver.server.object(target.client, params.word("hObject")?);
    let number = space_type(driver, &object.ok_or(Status::INVALID_ARGUMENT)?.kind)?;
    Ok(params.set("addrSpaceType", number)?)
}

fn space_type(driver: &Driver, kind: &ObjectKind) -> Result<u32> {
    let space = match kind {
        ObjectKind::Memory(buffer) if buffer.of == Of::Video => "VIDMEM",
        ObjectKind::Memory(buffer) if buffer.of == Of::System => "SYSMEM",
        _ => "REGMEM",
    };
    let name = format!("NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE_{space}");
    driver.interface.constant(&name).ok_or_else(|| Status::NOT_SUPPORTED.into())
}

/// `memCtrlCmdGetSurfaceInfoLvm_IMPL`: values for the indices of a list of the caller's.
fn surface_info(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    /// More than there are indices.
    const MOST: u64 = 64;
    /// NV0041_CTRL_SURFACE_INFO_INDEX: _ATTRS and _COMPR_COVERAGE, which tell of compressed memory, _PHYS_SIZE in
    /// pages, _PHYS_ATTR, _ADDR_SPACE_TYPE.
    const ATTRIBUTES: u32 = 1;
    const COMPRESSED: u32 = 5;
    const SIZE: u32 = 7;
    const PHYSICAL: u32 = 8;
    const SPACE: u32 = 9;
    let ObjectKind::Memory(buffer) = &target.kind else {
        return Err(Status::INVALID_OBJECT.into());
    };
    let (count, address) = (params.get("surfaceInfoListSize")?, params.get("surfaceInfoList")?);
    if count > MOST {
        return Err(Status::INVALID_ARGUMENT.into());
    }
    let program = target.caller.client;
    let mut bytes = vec![0; count as usize * 8];
    if program.read(address, &mut bytes) < bytes.len() {
        return Err(Status::INVALID_ADDRESS.into());
    }
    for entry in bytes.chunks_exact_mut(8) {
        let index = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
        let data = match index {
            // No memory here is compressed.
            ATTRIBUTES | COMPRESSED => 0,
            SIZE => u32::try_from(buffer.size / PAGE).map_err(|_| Status::OUT_OF_RANGE)?,
            SPACE => space_type(driver, &target.kind)?,
            PHYSICAL => {
                let what = "NV0041_CTRL_SURFACE_INFO_INDEX_PHYS_ATTR".to_owned();
                return Err(Failed::NotSimulated(Status::NOT_SUPPORTED, what));
            }
            _ => return Err(Status::INVALID_ARGUMENT.into()),
        };
        entry[4..].copy_from_slice(&data.to_le_bytes());
    }
    match program.write(address, &bytes) < bytes.len() {
        true => Err(Status::INVALID_ADDRESS.into()),
        false => Ok(()),
    }
}
