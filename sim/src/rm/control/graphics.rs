//! Commands of subdevices about the engine of graphics and compute, as far as its parts are counted: which GPCs it has
//! and which TPCs they have (`src/nvidia/src/kernel/gpu/gr/kernel_graphics.c`).

use super::gpu::gpu;
use super::{Handler, Target};
use crate::Status;
use crate::rm::Driver;
use crate::rm::failed::Result;
use crate::rm::interface::Params;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "NV2080_CTRL_CMD_GR_GET_GPC_MASK" => gpc_mask,
        "NV2080_CTRL_CMD_GR_GET_TPC_MASK" => tpc_mask,
        "NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER" => sm_order,
        "NV2080_CTRL_CMD_GRMGR_GET_GR_FS_INFO" => floor_sweeping,
        _ => return None,
    })
}

/// All since Volta.
pub(super) const SMS_PER_TPC: u32 = 2;

/// The TPCs of each GPC, of those that a card has, or the instance that a client has chosen.
fn tpcs(driver: &Driver, target: &Target<'_>) -> Result<Vec<u32>> {
    let own = gpu(driver, target)?;
    let index = target.kind.gpu().unwrap_or(0);
    let part = driver.chosen(target.client, index).and_then(|part| driver.tpcs_of(index, part));
    let counts = part.unwrap_or_else(|| own.counts("graphics.tpcs"));
    if counts.is_empty() { Err(Status::NOT_SUPPORTED.into()) } else { Ok(counts) }
}

/// The lowest bits.
fn mask(count: usize) -> u32 {
    u32::try_from((1_u64 << count.min(32)) - 1).unwrap_or(u32::MAX)
}

fn gpc_mask(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let tpcs = tpcs(driver, target)?;
    Ok(params.set("gpcMask", mask(tpcs.len()))?)
}

fn tpc_mask(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let tpcs = tpcs(driver, target)?;
    let count = tpcs.get(params.word("gpcId")? as usize).ok_or(Status::INVALID_ARGUMENT)?;
    Ok(params.set("tpcMask", mask(*count as usize))?)
}

/// `subdeviceCtrlCmdGrmgrGetGrFsInfo_IMPL`: many questions in one command, each with a status of its own. A GPC of a
/// simulated card has the same number everywhere.
fn floor_sweeping(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    /// NV2080_CTRL_GRMGR_GR_FS_INFO_QUERY_GPC_COUNT, _CHIPLET_GPC_MAP, _TPC_MASK.
    const GPC_COUNT: u64 = 1;
    const GPC_MAP: u64 = 2;
    const TPC_MASK: u64 = 3;
    let tpcs = tpcs(driver, target)?;
    let count = params.word("numQueries")? as usize;
    if count > params.count("queries")? {
        return Err(Status::INVALID_ARGUMENT.into());
    }
    for at in 0..count {
        let field = |name: &str| format!("queries[{at}].{name}");
        let data = |name: &str| field(&format!("queryData.{name}"));
        let answer = match params.get(&field("queryType"))? {
            GPC_COUNT => Some((data("gpcCountData.gpcCount"), tpcs.len() as u32)),
            GPC_MAP => {
                let gpc = params.word(&data("chipletGpcMapData.gpcId"))?;
                let is_there = (gpc as usize) < tpcs.len();
                is_there.then(|| (data("chipletGpcMapData.chipletGpcMap"), gpc))
            }
            TPC_MASK => {
                let gpc = params.word(&data("tpcMaskData.gpcId"))? as usize;
                let tpcs = tpcs.get(gpc).map(|count| mask(*count as usize));
                tpcs.map(|mask| (data("tpcMaskData.tpcMask"), mask))
            }
            _ => None,
        };
        let status = match answer {
            Some((name, value)) => {
                params.set(&name, value)?;
                Status::OK
            }
            None => Status::INVALID_ARGUMENT,
        };
        params.set(&field("status"), status.0)?;
    }
    Ok(())
}

/// SMs are numbered TPC by TPC, and TPCs in turns: the first of each GPC, then the second of each that has one.
fn sm_order(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let tpcs = tpcs(driver, target)?;
    let room = params.count("globalSmId")?;
    let most = tpcs.iter().copied().max().unwrap_or(0);
    let (mut sms, mut global_tpc) = (0, 0_u32);
    for local_tpc in 0..most {
        for (gpc, _) in tpcs.iter().enumerate().filter(|(_, count)| local_tpc < **count) {
            for local_sm in 0..SMS_PER_TPC {
                if sms == room {
                    return Err(Status::INSUFFICIENT_RESOURCES.into());
                }
                for (field, value) in [
                    ("gpcId", gpc as u32),
                    ("virtualGpcId", gpc as u32),
                    ("localTpcId", local_tpc),
                    ("localSmId", local_sm),
                    ("globalTpcId", global_tpc),
                    ("migratableTpcId", local_tpc),
                ] {
                    params.set(&format!("globalSmId[{sms}].{field}"), value)?;
                }
                sms += 1;
            }
            global_tpc += 1;
        }
    }
    params.set("numSm", sms as u32)?;
    Ok(params.set("numTpc", global_tpc)?)
}
