//! Commands of subdevices that tell of events (`subdevice_ctrl_event_kernel.c`).

use super::{Handler, Target};
use crate::Status;
use crate::rm::Driver;
use crate::rm::events::Info;
use crate::rm::failed::Result;
use crate::rm::interface::Params;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION" => set_notification,
        "NV2080_CTRL_CMD_EVENT_SET_TRIGGER" => set_trigger,
        "NV2080_CTRL_CMD_EVENT_SET_TRIGGER_FIFO" => set_trigger_fifo,
        _ => return None,
    })
}

/// NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION.
const DISABLE: u32 = 0;
const SINGLE: u32 = 1;
const REPEAT: u32 = 2;

/// NV2080_NOTIFIERS: what a program can let happen, and what a timer tells in a way of its own.
const SOFTWARE: u32 = 0;
const TIMER: u32 = 11;

fn set_notification(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    if !driver.has_listener(target.client, target.object) {
        return Err(Status::INVALID_STATE.into());
    }
    let (event, action) = (params.word("event")?, params.word("action")?);
    let count = driver.interface.constant("NV2080_NOTIFIERS_MAXCOUNT").unwrap_or(0);
    if event >= count || event == TIMER {
        return Err(Status::INVALID_ARGUMENT.into());
    }
    let object = driver.server.object_mut(target.client, target.object);
    let actions = &mut object.ok_or(Status::OBJECT_NOT_FOUND)?.notifier.actions;
    match action {
        SINGLE | REPEAT if actions.contains_key(&event) => Err(Status::INVALID_STATE.into()),
        SINGLE | REPEAT => {
            actions.insert(event, action);
            Ok(())
        }
        DISABLE => {
            actions.remove(&event);
            Ok(())
        }
        _ => Err(Status::INVALID_ARGUMENT.into()),
    }
}

fn set_trigger(driver: &mut Driver, target: &Target<'_>, _: &mut Params) -> Result {
    driver.notify(target.kind.gpu().ok_or(Status::INVALID_OBJECT)?, SOFTWARE, Info::default());
    Ok(())
}

fn set_trigger_fifo(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let gpu = target.kind.gpu().ok_or(Status::INVALID_OBJECT)?;
    let host = driver.notifier("FIFO_EVENT_MTHD");
    driver.notify_of_engine(gpu, host.ok_or(Status::NOT_SUPPORTED)?, params.word("hEvent")?);
    Ok(())
}
