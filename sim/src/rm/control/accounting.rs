//! Commands about the programs that computed on a GPU: `nvidia-smi -am`, `--query-accounted-apps` (`gpu_acct.c`).

use std::time::Duration;

use super::{Handler, Target, microseconds};
use crate::Status;
use crate::rm::Driver;
use crate::rm::failed::Result;
use crate::rm::interface::Params;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "NV0000_CTRL_CMD_GPUACCT_SET_ACCOUNTING_STATE" => set,
        "NV0000_CTRL_CMD_GPUACCT_GET_ACCOUNTING_PIDS" => processes,
        "NV0000_CTRL_CMD_GPUACCT_GET_PROC_ACCOUNTING_INFO" => process,
        "NV0000_CTRL_CMD_GPUACCT_CLEAR_ACCOUNTING_DATA" => clear,
        _ => return None,
    })
}

/// The GPU that a command names.
fn named(driver: &Driver, params: &Params) -> Result<usize> {
    let id = params.word("gpuId")?;
    Ok(driver.gpus.iter().position(|gpu| gpu.id() == id).ok_or(Status::INVALID_ARGUMENT)?)
}

/// `gpuacctEnableAccounting_IMPL`, `gpuacctDisableAccounting_IMPL`: a GPU that is divided has no accounts.
fn set(driver: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    /// NV0000_CTRL_GPU_ACCOUNTING_STATE_ENABLED, _DISABLED.
    const ENABLED: u32 = 0;
    const DISABLED: u32 = 1;
    let gpu = named(driver, params)?;
    let state = params.word("newState")?;
    match state {
        ENABLED if driver.is_mig_enabled(gpu) => return Err(Status::NOT_SUPPORTED.into()),
        ENABLED => {}
        DISABLED => driver.gpus[gpu].accounts.stop(),
        _ => return Err(Status::INVALID_ARGUMENT.into()),
    }
    driver.gpus[gpu].settle("state.accounting", state);
    Ok(())
}

/// `gpuacctGetAcctPids_IMPL`.
fn processes(driver: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    let mut processes = driver.gpus[named(driver, params)?].accounts.processes();
    processes.truncate(params.count("pidTbl")?);
    params.set("pidCount", processes.len() as u32)?;
    Ok(params.fill("pidTbl", &processes, 0)?)
}

/// `gpuacctGetProcAcctInfo_IMPL`: how busy a program kept the GPU is told of all its time, in percent.
fn process(driver: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    let accounts = &driver.gpus[named(driver, params)?].accounts;
    let account = accounts.of(params.word("pid")?).ok_or(Status::OBJECT_NOT_FOUND)?;
    let end = if account.ended == 0 { microseconds() } else { account.ended };
    let shares = account.busy.shares(Duration::from_micros(end.saturating_sub(account.began)));
    for (field, value) in [
        ("gpuUtil", u64::from(shares.graphics / 100)),
        ("fbUtil", u64::from(shares.memory / 100)),
        ("maxFbUsage", account.most_memory),
        ("startTime", account.began),
        ("endTime", account.ended),
    ] {
        params.set(field, value)?;
    }
    Ok(())
}

/// `gpuacctClearAccountingData_IMPL`.
fn clear(driver: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    let gpu = named(driver, params)?;
    driver.gpus[gpu].accounts.clear();
    Ok(())
}
