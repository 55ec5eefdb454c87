//! What a debugger asks of shader cores after a kernel went wrong (`kernel_sm_debugger_session.c`,
//! `kernel_sm_debugger_session_ctrl.c`).

use super::{Handler, Target};
use crate::Status;
use crate::gpu::Trap;
use crate::rm::Driver;
use crate::rm::channel::{ChannelId, is_of_graphics};
use crate::rm::failed::Result;
use crate::rm::interface::Params;
use crate::rm::server::{Debugger, ObjectKind};

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES" => errors,
        "NV83DE_CTRL_CMD_DEBUG_CLEAR_ALL_SM_ERROR_STATES" => clear,
        "NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO" => refused,
        _ => return None,
    })
}

impl Driver {
    /// An object of GT200_DEBUGGER: `ksmdbgssnConstruct_IMPL`. It is of the channel that an object for kernels is of.
    pub(in crate::rm) fn debugger(
        &self,
        client: u32,
        above: &ObjectKind,
        params: &Params,
    ) -> Result<ObjectKind> {
        if params.word("hDebuggerClient_Obsolete")? != 0 {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let own = self.server.find(client)?;
        let client = match params.word("hAppClient")? {
            0 => client,
            handle => handle,
        };
        let (program, handle) = (self.server.find(client)?, params.word("hClass3dObject")?);
        let object = program.object(handle).map_err(|_| Status::INVALID_OBJECT_PARENT)?;
        if program.process != own.process {
            return Err(Status::INSUFFICIENT_PERMISSIONS.into());
        }
        let channel = match (&object.kind, program.object(object.parent).map(|it| &it.kind)) {
            (ObjectKind::Other(other), Ok(ObjectKind::Channel(channel)))
                if is_of_graphics(other.class) =>
            {
                *channel
            }
            _ => return Err(Status::INVALID_OBJECT.into()),
        };
        if above.gpu() != Some(channel.gpu) {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let serial = object.serial;
        Ok(ObjectKind::Debugger(Debugger { client, object: handle, serial, channel }))
    }

    /// What a debugger looks at must still be there (`dbgSessionRemoveDependency_IMPL`).
    pub(super) fn need_debugged(&self, kind: &ObjectKind) -> Result {
        let ObjectKind::Debugger(debugger) = kind else { return Ok(()) };
        let found = self.server.object(debugger.client, debugger.object);
        let is_there = found.is_some_and(|object| object.serial == debugger.serial);
        is_there.then_some(()).ok_or(Status::RESOURCE_LOST.into())
    }
}

/// The channel that a debugger looks at.
fn debugged(target: &Target<'_>) -> Result<ChannelId> {
    match &target.kind {
        ObjectKind::Debugger(debugger) => Ok(debugger.channel),
        _ => Err(Status::INVALID_OBJECT.into()),
    }
}

/// The first core has the error, and the MMU that of an address.
fn errors(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    /// A breakpoint in the register of all warps' errors (nouveau: `gf100_mp_global_error`).
    const BPT_INT: u32 = 1 << 4;
    let channel = channel(driver, target, params)?;
    let (trap, refused) = channel.map_or((None, None), |channel| driver.trap(channel));
    let (global, warp, pc) = match trap {
        Some(Trap::Warp { error, pc }) => (0, error, pc),
        Some(Trap::Breakpoint | Trap::Assertion) => (BPT_INT, 0, 0),
        Some(Trap::Address { .. } | Trap::Nothing) | None => (0, 0, 0),
    };
    let cores = params.count("smErrorStateArray")?.min(params.word("numSMsToRead")? as usize);
    for core in 0..cores {
        let (global, warp, pc) = if core == 0 { (global, warp, pc) } else { (0, 0, 0) };
        params.set(&format!("smErrorStateArray[{core}].hwwGlobalEsr"), global)?;
        params.set(&format!("smErrorStateArray[{core}].hwwWarpEsr"), warp)?;
        params.set(&format!("smErrorStateArray[{core}].hwwWarpEsrPc"), pc as u32)?;
        params.set_if_any(&format!("smErrorStateArray[{core}].hwwWarpEsrPc64"), pc);
    }
    let refused = refused.filter(|_| matches!(trap, Some(Trap::Address { .. })));
    params.set_if_any("mmuFault.valid", u32::from(refused.is_some()));
    let word = refused.map_or(0, |refused| refused.word());
    params.set_if_any("mmuFault.faultInfo", word);
    params.set_if_any("mmuFaultInfo", word);
    Ok(())
}

fn clear(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    if let Some(channel) = channel(driver, target, params)? {
        driver.clear_trap(channel);
    }
    Ok(())
}

/// What the MMU refused, which stays when cores' errors are cleared (`kgrctxClearMmuFault_IMPL`).
fn refused(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let (_, refused) = driver.trap(debugged(target)?);
    if let Some(refused) = refused {
        params.set("mmuFaultInfoList[0].faultAddress", refused.address)?;
        params.set("mmuFaultInfoList[0].faultType", refused.kind)?;
        params.set("mmuFaultInfoList[0].accessType", refused.access)?;
    }
    Ok(params.set("count", u32::from(refused.is_some()))?)
}

/// The channel that is asked for; none where it is another thing.
fn channel(driver: &Driver, target: &Target<'_>, params: &Params) -> Result<Option<ChannelId>> {
    let client = driver.server.find(target.client)?;
    let object = client.object(params.word("hTargetChannel")?);
    Ok(match object.map(|object| &object.kind) {
        Ok(ObjectKind::Channel(channel)) => Some(*channel),
        _ => None,
    })
}
