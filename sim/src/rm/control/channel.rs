//! Commands of channels and of their groups (`src/nvidia/src/kernel/gpu/fifo/kernel_channel.c`,
//! `kernel_channel_group_api.c`).

use super::{Handler, Target};
use crate::Status;
use crate::rm::Driver;
use crate::rm::failed::Result;
use crate::rm::interface::Params;
use crate::rm::server::ObjectKind;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "NVA06C_CTRL_CMD_GPFIFO_SCHEDULE" | "NVA06F_CTRL_CMD_GPFIFO_SCHEDULE" => schedule,
        "NV906F_CTRL_CMD_RESET_CHANNEL" | "NVA06F_CTRL_CMD_RESET_CHANNEL" => reset,
        "NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS" => disable,
        "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN" => token,
        "NVC36F_CTRL_GET_CLASS_ENGINEID" | "NV906F_CTRL_GET_CLASS_ENGINEID" => class_engine,
        "NV0080_CTRL_CMD_FIFO_GET_CHANNELLIST" => numbers,
        // Each channel has the engine that it was made for, and all run in turns of the same time.
        "NVA06F_CTRL_CMD_BIND"
        | "NVA06C_CTRL_CMD_BIND"
        | "NVA06C_CTRL_CMD_SET_TIMESLICE"
        | "NVA06C_CTRL_CMD_PREEMPT"
        | "NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL" => nothing,
        _ => return None,
    })
}

fn schedule(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    driver.schedule(target.client, target.object, params.get("bEnable")? != 0);
    Ok(())
}

fn token(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let ObjectKind::Channel(channel) = target.kind else {
        return Err(Status::INVALID_OBJECT.into());
    };
    Ok(params.set("workSubmitToken", driver.work_submit_token(channel)?)?)
}

/// `subdeviceCtrlCmdFifoDisableChannels_IMPL`: channels or groups, by their handles.
fn disable(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    if params.get("pRunlistPreemptEvent")? != 0 {
        return Err(Status::INSUFFICIENT_PERMISSIONS.into());
    }
    let count = params.word("numChannels")? as usize;
    if count > params.count("hChannelList")? {
        return Err(Status::INVALID_ARGUMENT.into());
    }
    let is_enabled = params.get("bDisable")? == 0;
    for at in 0..count {
        let client = params.word(&format!("hClientList[{at}]"))?;
        let object = params.word(&format!("hChannelList[{at}]"))?;
        driver.server.client(client, target.caller.owner)?.object(object)?;
        driver.schedule(client, object, is_enabled);
    }
    Ok(())
}

/// `kchannelCtrlCmdResetChannel_IMPL`.
fn reset(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    /// NV906F_CTRL_CMD_RESET_CHANNEL_REASON_ENUM_MAX.
    const REASONS: u32 = 3;
    let ObjectKind::Channel(channel) = target.kind else {
        return Err(Status::INVALID_OBJECT.into());
    };
    if params.word("resetReason")? >= REASONS {
        return Err(Status::INVALID_PARAMETER.into());
    }
    driver.reset_channel(channel);
    Ok(())
}

fn nothing(_: &mut Driver, _: &Target<'_>, _: &mut Params) -> Result {
    Ok(())
}

/// `kchannelGetClassEngineID_GM107`: what a program writes to bind an object of a channel, and the engine behind it.
fn class_engine(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let ObjectKind::Channel(channel) = target.kind else {
        return Err(Status::INVALID_OBJECT.into());
    };
    let client = driver.server.client(target.client, target.caller.owner)?;
    let object = client.object(params.word("hObject")?)?;
    let class = match &object.kind {
        ObjectKind::Other(it) if object.parent == target.object => it.class,
        _ => return Err(Status::OBJECT_NOT_FOUND.into()),
    };
    let engine = driver.engine_type(channel, class)?;
    params.set("classEngineID", class)?;
    params.set("classID", class)?;
    Ok(params.set("engineID", engine)?)
}

/// `deviceCtrlCmdFifoGetChannelList_IMPL`: the hardware's numbers of channels.
fn numbers(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    /// More than a card has.
    const MOST: usize = 4096;
    let count = params.word("numChannels")? as usize;
    if count == 0 || count > MOST {
        return Err(Status::INVALID_ARGUMENT.into());
    }
    let program = target.caller.client;
    let mut bytes = vec![0; count * 4];
    if program.read(params.get("pChannelHandleList")?, &mut bytes) < bytes.len() {
        return Err(Status::INVALID_ADDRESS.into());
    }
    let client = driver.server.client(target.client, target.caller.owner)?;
    for word in bytes.chunks_exact_mut(4) {
        let handle = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let number = match client.object(handle).map(|object| &object.kind) {
            Ok(ObjectKind::Channel(channel)) => channel.number,
            // NV0080_CTRL_FIFO_GET_CHANNELLIST_INVALID_CHANNEL.
            _ => u32::MAX,
        };
        word.copy_from_slice(&number.to_le_bytes());
    }
    match program.write(params.get("pChannelList")?, &bytes) < bytes.len() {
        true => Err(Status::INVALID_ADDRESS.into()),
        false => Ok(()),
    }
}
