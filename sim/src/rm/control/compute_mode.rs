//! Who may compute on a GPU: `nvidia-smi -c`. A context of CUDA begins with a reservation and ends with its release
//! (`subdevice_ctrl_gpu_kernel.c`: `subdeviceCtrlCmdGpuAcquireComputeModeReservation_IMPL`, `…Release…`). No header
//! names the two commands, which have no parameters.

use super::{Handler, Target};
use crate::Status;
use crate::rm::Driver;
use crate::rm::failed::Result;
use crate::rm::interface::Params;
use crate::rm::server::ObjectKind;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "0x20800145" => acquire,
        "0x20800146" => release,
        _ => return None,
    })
}

/// NV2080_CTRL_GPU_COMPUTE_MODE_RULES_NONE, _COMPUTE_PROHIBITED.
const ANYBODY: i128 = 0;
const NOBODY: i128 = 2;

/// The GPU that is asked of: one that is divided has no such mode.
fn whole_gpu(driver: &Driver, target: &Target<'_>) -> Result<usize> {
    let gpu = target.kind.gpu().ok_or(Status::INVALID_OBJECT)?;
    match driver.is_mig_enabled(gpu) {
        true => Err(Status::NOT_SUPPORTED.into()),
        false => Ok(gpu),
    }
}

fn acquire(driver: &mut Driver, target: &Target<'_>, _: &mut Params) -> Result {
    let gpu = whole_gpu(driver, target)?;
    let mode = driver.number_of(gpu, "state.compute_mode").unwrap_or(ANYBODY);
    let reservation = &mut driver.gpus[gpu].reservation;
    if mode == NOBODY || mode != ANYBODY && reservation.is_some() {
        return Err(Status::STATE_IN_USE.into());
    }
    *reservation = Some(target.client);
    Ok(())
}

fn release(driver: &mut Driver, target: &Target<'_>, _: &mut Params) -> Result {
    let gpu = whole_gpu(driver, target)?;
    let reservation = &mut driver.gpus[gpu].reservation;
    if *reservation != Some(target.client) {
        return Err(Status::STATE_IN_USE.into());
    }
    *reservation = None;
    Ok(())
}

impl Driver {
    /// A reservation ends with the subdevice of its client (`subdeviceReleaseComputeModeReservation_IMPL`).
    pub(in crate::rm) fn drop_reservations(&mut self) {
        for (index, gpu) in self.gpus.iter_mut().enumerate() {
            let Some(client) = gpu.reservation.and_then(|it| self.server.find(it).ok()) else {
                gpu.reservation = None;
                continue;
            };
            let subdevice = ObjectKind::Subdevice(index);
            if !client.objects().any(|object| object.kind == subdevice) {
                gpu.reservation = None;
            }
        }
    }
}
