//! Commands about counters of performance (`kernel_ccu_api.c`).

use super::{Handler, Target};
use crate::Status;
use crate::rm::Driver;
use crate::rm::counters::{BLOCK, BYTES, is_of_counters};
use crate::rm::failed::Result;
use crate::rm::interface::Params;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "NV_COUNTER_COLLECTION_UNIT_CTRL_CMD_SUBSCRIBE" => subscribe,
        "NV_COUNTER_COLLECTION_UNIT_CTRL_CMD_UNSUBSCRIBE" => unsubscribe,
        "NV_COUNTER_COLLECTION_UNIT_CTRL_CMD_GET_STREAM_STATE" => stream,
        "NV_COUNTER_COLLECTION_UNIT_CTRL_CMD_SET_STREAM_STATE" => set_stream,
        _ => return None,
    })
}

fn need_counters(target: &Target<'_>) -> Result {
    match is_of_counters(&target.kind) {
        true => Ok(()),
        false => Err(Status::NOT_SUPPORTED.into()),
    }
}

fn subscribe(_: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    need_counters(target)?;
    params.set("bufferSize", BYTES)?;
    Ok(params.set("counterBlockSize", BLOCK as u32)?)
}

/// It changes nothing, as in the driver.
fn unsubscribe(_: &mut Driver, target: &Target<'_>, _: &mut Params) -> Result {
    need_counters(target)
}

fn stream(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    need_counters(target)?;
    let is_on = target.kind.gpu().is_some_and(|gpu| driver.counters.streams(gpu));
    Ok(params.set("bStreamState", u32::from(is_on))?)
}

/// `kccuStreamStateSet_IMPL`.
fn set_stream(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    need_counters(target)?;
    let is_on = match params.get("bStreamState")? {
        0 => false,
        1 => true,
        _ => return Err(Status::INVALID_ARGUMENT.into()),
    };
    if let Some(gpu) = target.kind.gpu() {
        driver.counters.set_stream(gpu, is_on);
    }
    Ok(())
}
