//! What a debugger asks of shader cores after a kernel went wrong (`kernel_sm_debugger_session_ctrl.c`).

use super::{Handler, Target};
use crate::gpu::Trap;
use crate::rm::Driver;
use crate::rm::failed::Result;
use crate::rm::interface::Params;
use crate::rm::server::ObjectKind;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES" => errors,
        "NV83DE_CTRL_CMD_DEBUG_CLEAR_ALL_SM_ERROR_STATES" => clear,
        _ => return None,
    })
}

/// The first core has the error, and the MMU that of an address.
fn errors(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    /// A breakpoint in the register of all warps' errors (nouveau: `gf100_mp_global_error`).
    const BPT_INT: u32 = 1 << 4;
    let trap = trap(driver, target, params)?.and_then(|trap| *trap);
    let (global, warp) = match trap {
        Some(Trap::Warp(error)) => (0, error),
        Some(Trap::Breakpoint | Trap::Assertion) => (BPT_INT, 0),
        Some(Trap::Address | Trap::Nothing) | None => (0, 0),
    };
    let cores = params.count("smErrorStateArray")?.min(params.word("numSMsToRead")? as usize);
    for core in 0..cores {
        let (global, warp) = if core == 0 { (global, warp) } else { (0, 0) };
        params.set(&format!("smErrorStateArray[{core}].hwwGlobalEsr"), global)?;
        params.set(&format!("smErrorStateArray[{core}].hwwWarpEsr"), warp)?;
    }
    params.set_if_any("mmuFault.valid", u32::from(trap == Some(Trap::Address)));
    Ok(())
}

fn clear(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    if let Some(trap) = trap(driver, target, params)? {
        *trap = None;
    }
    Ok(())
}

/// What cores keep of the channel that is asked for; nothing where it is none.
fn trap<'d>(
    driver: &'d mut Driver,
    target: &Target<'_>,
    params: &Params,
) -> Result<Option<&'d mut Option<Trap>>> {
    let client = driver.server.client(target.client, target.caller.owner)?;
    let object = client.object(params.word("hTargetChannel")?);
    let channel = match object.map(|object| &object.kind) {
        Ok(ObjectKind::Channel(channel)) => *channel,
        _ => return Ok(None),
    };
    Ok(driver.trap(channel))
}
