//! Registers that the driver reads and writes for a program (`subdevice_ctrl_gpu_regops.c`), and the commands that
//! change what is in them.

use std::collections::BTreeMap;

use super::{Handler, Target};
use crate::Status;
use crate::rm::Driver;
use crate::rm::failed::{Failed, Result};
use crate::rm::gpu::Gpu;
use crate::rm::interface::Params;
use crate::rm::server::ObjectKind;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "NV2080_CTRL_CMD_GPU_EXEC_REG_OPS" => operations,
        "NV2080_CTRL_CMD_TIMER_SET_GR_TICK_FREQ" => tick,
        _ => return None,
    })
}

/// How often the clock of the shader cores ticks, NV_PTIMER_GR_TICK_FREQ: SELECT is _MAX or _DEFAULT (dev_timer.h).
const TICK: u32 = 0x9480;
const TICK_MAX: u32 = 0;
const TICK_DEFAULT: u32 = 5;

/// So many at once are looked at; what the driver takes has no bound of its own.
const MOST: u32 = 1 << 12;

/// What faults of shader cores do, which libcuda sets up where a context is to leave a dump of itself: it reads as 0 and
/// keeps what is written. Hopper has it elsewhere.
const ON_FAULTS: [u32; 2] = [0x41_88b0, 0x42_08b0];

/// NV2080_CTRL_GPU_REG_OP_READ_32 and _WRITE_32, and of what: _TYPE_GLOBAL, or a channel's _TYPE_GR_CTX.
const READ_32: u64 = 0;
const WRITE_32: u64 = 1;
const GLOBAL: u64 = 0;
const OF_CONTEXT: u64 = 1;
/// NV2080_CTRL_GPU_REG_OP_STATUS_INVALID_OFFSET.
const INVALID_OFFSET: u32 = 4;

fn operations(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    /// What is asked of one register.
    const OPERATION: &str = "NV2080_CTRL_GPU_REG_OP";
    let gpu = target.kind.gpu().ok_or(Status::INVALID_OBJECT)?;
    let (count, list) = (params.word("regOpCount")?, params.get("regOps")?);
    let is_client = params.word("hClientTarget")? != 0;
    let is_channel = params.word("hChannelTarget")? != 0;
    if count == 0 || list == 0 || is_client != is_channel {
        return Err(Status::INVALID_PARAM_STRUCT.into());
    }
    if count > MOST {
        let what = format!("{count} registers at once");
        return Err(Failed::NotSimulated(Status::INVALID_PARAM_STRUCT, what));
    }
    let goes_on = params.word("bNonTransactional")? != 0;
    let size = driver.interface.size(OPERATION).ok_or(Status::NOT_SUPPORTED)?;
    let client = target.caller.client;
    let address = |at: usize| list.wrapping_add((at * size) as u64);
    let read = |at: usize| driver.read(client, OPERATION, address(at), size);
    let mut all = (0..count as usize).map(read).collect::<std::result::Result<Vec<_>, _>>()?;
    let context = match (params.word("hClientTarget")?, params.word("hChannelTarget")?) {
        (0, _) => Context::All,
        // The status is that of GSP, which is not public.
        (client, channel) if !driver.is_context(client, channel, gpu) => {
            return Err(Status::INVALID_CHANNEL.into());
        }
        (client, channel) => Context::Of(client, channel),
    };
    let mut written = BTreeMap::new();
    let mut unknown = None;
    for (at, operation) in all.iter_mut().enumerate() {
        let register = operation.word("regOffset")?;
        let (how, of) = (operation.get("regOp")?, operation.get("regType")?);
        let key = (if of == OF_CONTEXT { context } else { Context::None }, register);
        let before = || {
            let before = written.get(&key).copied();
            before.unwrap_or_else(|| driver.gpus[gpu].register(key))
        };
        let value = match (how, of) {
            (READ_32, GLOBAL) if register == TICK => Some(driver.tick(gpu)),
            (READ_32, GLOBAL | OF_CONTEXT) if ON_FAULTS.contains(&register) => Some(before()),
            (WRITE_32, GLOBAL | OF_CONTEXT) if ON_FAULTS.contains(&register) => {
                let (value, mask) =
                    (operation.word("regValueLo")?, operation.word("regAndNMaskLo")?);
                let after = before() & !mask | value;
                written.insert(key, after);
                Some(value)
            }
            _ => None,
        };
        operation.set("regStatus", if value.is_some() { 0 } else { INVALID_OFFSET })?;
        match value {
            Some(value) => operation.set("regValueLo", value)?,
            None => {
                unknown.get_or_insert((at, register, how, of));
            }
        }
    }
    // All of them are done, or none: then the first that cannot be has its status.
    let told = match unknown {
        Some((first, ..)) if !goes_on => first..first + 1,
        _ => 0..all.len(),
    };
    for at in told {
        if client.write(address(at), &all[at].bytes) < size {
            return Err(Status::INVALID_ADDRESS.into());
        }
    }
    if unknown.is_none() || goes_on {
        driver.gpus[gpu].set_registers(written);
    }
    let Some((_, register, how, of)) = unknown else { return Ok(()) };
    let what = format!(
        "register {register:#x} of NV2080_CTRL_CMD_GPU_EXEC_REG_OPS (operation {how}, type {of})"
    );
    if !goes_on {
        return Err(Failed::NotSimulated(Status::INVALID_ARGUMENT, what));
    }
    driver.status_of(client, Failed::NotSimulated(Status::OK, what));
    Ok(())
}

/// Who asks for the highest frequency has it until all who did have taken that back, or are gone.
fn tick(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let gpu = target.kind.gpu().ok_or(Status::INVALID_OBJECT)?;
    let who = (target.client, target.object);
    match params.word("bSetMaxFreq")? {
        0 => drop(driver.gpus[gpu].fast_ticks.remove(&who)),
        _ => drop(driver.gpus[gpu].fast_ticks.insert(who)),
    }
    Ok(())
}

/// Whose a register is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::rm) enum Context {
    /// The GPU's.
    None,
    /// All channels', those as well that come later.
    All,
    /// That of a client's channel, or group of them.
    Of(u32, u32),
}

/// What was written, by whose register it is, and where.
pub(in crate::rm) type Registers = BTreeMap<(Context, u32), u32>;

impl Gpu {
    fn register(&self, (context, register): (Context, u32)) -> u32 {
        let own = self.registers.get(&(context, register));
        let of_all = || self.registers.get(&(Context::All, register));
        let is_general = context == Context::None;
        let found = if is_general { own } else { own.or_else(of_all) };
        found.copied().unwrap_or(0)
    }

    fn set_registers(&mut self, written: Registers) {
        for (context, register) in written.keys() {
            if *context == Context::All {
                let is_one = |of: &Context| matches!(of, Context::Of(..));
                self.registers.retain(|(of, at), _| !(is_one(of) && at == register));
            }
        }
        self.registers.extend(written);
    }
}

impl Driver {
    /// Whether a client has a channel of a GPU, or a group of them.
    fn is_context(&self, client: u32, object: u32, gpu: usize) -> bool {
        let found = self.server.find(client).and_then(|client| client.object(object));
        found.is_ok_and(|object| {
            let is_channel = matches!(object.kind, ObjectKind::Channel(_) | ObjectKind::Group(_));
            is_channel && object.kind.gpu() == Some(gpu)
        })
    }

    /// NV_PTIMER_GR_TICK_FREQ.
    fn tick(&self, gpu: usize) -> u32 {
        if self.gpus[gpu].fast_ticks.is_empty() { TICK_DEFAULT } else { TICK_MAX }
    }

    /// Contexts' registers end with their channels.
    pub(in crate::rm) fn drop_registers(&mut self) {
        for gpu in 0..self.gpus.len() {
            let mut registers = std::mem::take(&mut self.gpus[gpu].registers);
            registers.retain(|(context, _), _| match context {
                Context::Of(client, channel) => self.is_context(*client, *channel, gpu),
                Context::None | Context::All => true,
            });
            self.gpus[gpu].registers = registers;
        }
    }

    /// Wishes end with the subdevices that had them (`subdeviceDestruct_IMPL`).
    pub(in crate::rm) fn drop_ticks(&mut self) {
        for (index, gpu) in self.gpus.iter_mut().enumerate() {
            gpu.fast_ticks.retain(|(client, object)| {
                let found = self.server.find(*client).and_then(|client| client.object(*object));
                found.is_ok_and(|object| object.kind == ObjectKind::Subdevice(index))
            });
        }
    }
}
