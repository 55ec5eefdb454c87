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
        "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN" => token,
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

fn nothing(_: &mut Driver, _: &Target<'_>, _: &mut Params) -> Result {
    Ok(())
}
