//! Control commands: which object takes which, and in which order they are refused (R/control.c,
//! S/rs_server.c: `serverControl`, S/rs_resource.c: `resControl_IMPL`).

mod accounting;
mod answers;
mod channel;
mod compute_mode;
mod counters;
mod debugger;
mod event;
mod export;
mod gpu;
mod graphics;
mod lists;
mod load;
mod memory;
mod mig;
mod nvlink;
pub(super) mod peers;
mod registers;
mod system;

use std::time::{SystemTime, UNIX_EPOCH};

pub(super) use mig::Seen;
pub(super) use registers::Registers;

use super::Driver;
use super::failed::{Failed, Result};
use super::frontend::Caller;
use super::interface::Params;
use super::server::ObjectKind;
use crate::Status;

/// Flags of a control that programs may not set (NVOS54_FLAGS_IRQL_RAISED, _LOCK_BYPASS).
const KERNEL_FLAGS: u32 = 3;
/// The most bytes of parameters.
const MAX_PARAMS: usize = 1 << 20;

/// What a command is asked of.
pub(super) struct Target<'a> {
    pub(super) caller: Caller<'a>,
    pub(super) client: u32,
    pub(super) object: u32,
    pub(super) kind: ObjectKind,
}

/// A command that is simulated.
type Handler = fn(&mut Driver, &Target<'_>, &mut Params) -> Result;

/// Whether a command is answered by code alone, not by a profile.
pub(crate) fn is_answered_in_code(name: &str) -> bool {
    handler(name).is_some() && ![mig::CAPACITY, nvlink::STATUS].contains(&name)
}

/// Microseconds since 1970.
pub(in crate::rm) fn microseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_micros() as u64
}

/// The handler of a command.
fn handler(name: &str) -> Option<Handler> {
    let own = system::handler(name).or_else(|| gpu::handler(name));
    let own = own.or_else(|| graphics::handler(name)).or_else(|| lists::handler(name));
    let own = own.or_else(|| event::handler(name)).or_else(|| channel::handler(name));
    let own = own.or_else(|| export::handler(name)).or_else(|| memory::handler(name));
    let own = own.or_else(|| mig::handler(name)).or_else(|| nvlink::handler(name));
    own.or_else(|| debugger::handler(name))
        .or_else(|| peers::handler(name))
        .or_else(|| compute_mode::handler(name))
        .or_else(|| accounting::handler(name))
        .or_else(|| load::handler(name))
        .or_else(|| registers::handler(name))
        .or_else(|| counters::handler(name))
}

impl Driver {
    pub(super) fn control(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        self.refresh_records();
        let (command, flags) = (args.word("cmd")?, args.word("flags")?);
        // R/control.c: that of no category does nothing, of whatever class.
        if command & 0xffff == 0 {
            return Ok(());
        }
        let (address, size) = (args.get("params")?, args.word("paramsSize")? as usize);
        let (client, object) = (args.word("hClient")?, args.word("hObject")?);
        if flags & KERNEL_FLAGS != 0 {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        self.server.find(client).map_err(|_| Status::INVALID_CLIENT)?;
        let known = self.interface.command(command).cloned();
        let record = known.as_ref().and_then(|known| known.params.clone()).unwrap_or_default();
        let is_right_size = match &known {
            Some(known) if known.params.is_some() => self.interface.size(&record) == Some(size),
            _ => true,
        };
        let tells_early = self.tells_sizes_early();
        if let Some(known) = known.as_ref().filter(|_| !is_right_size) {
            self.diagnose_size(caller.client, &known.name, size, self.interface.size(&record));
        }
        if (size == 0) != (address == 0) || size > MAX_PARAMS || !is_right_size && tells_early {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let read = self.read(caller.client, &record, address, size);
        let mut params = read.map_err(|_| Status::INVALID_ADDRESS)?;
        let kind = self.server.client(client, caller.owner)?.object(object)?.kind.clone();
        let target = Target { caller, client, object, kind };
        // `serverControl`: of an object that lost what it is for nothing is asked any more.
        self.need_debugged(&target.kind)?;
        let Some(known) = known else {
            return self.unnamed(&target, command, address, &mut params);
        };
        if !target.kind.takes(command >> 16) {
            return Err(Status::NOT_SUPPORTED.into());
        }
        if !is_right_size {
            return Err(Status::INVALID_PARAM_STRUCT.into());
        }
        self.need_gpu_for(&target.kind, &known.name)?;
        // A profile has answers to a command of code where it knows no more than them.
        let by_code = handler(&known.name).filter(|_| !self.has_answer(&target, &known.name));
        let done = match by_code {
            Some(handler) => handler(self, &target, &mut params),
            None => match self.answer_of_profile(&target, &known.name, &mut params) {
                Some(done) => done,
                None => return self.not_simulated(caller, known.name),
            },
        };
        // What was found goes back even when the command fails.
        if caller.client.write(address, &params.bytes[..size]) < size {
            return Err(Status::INVALID_ADDRESS.into());
        }
        done
    }

    /// A command that no header names: a profile may know it by its number.
    fn unnamed(
        &mut self,
        target: &Target<'_>,
        command: u32,
        address: u64,
        params: &mut Params,
    ) -> Result {
        let number = format!("{command:#010x}");
        if target.kind.takes(command >> 16) {
            self.need_gpu(target.kind.gpu())?;
            let by_code = handler(&number).filter(|_| !self.has_answer(target, &number));
            let done = match by_code {
                Some(handler) => Some(handler(self, target, params)),
                None => self.answer_of_profile(target, &number, params),
            };
            if let Some(done) = done {
                let size = params.bytes.len();
                if target.caller.client.write(address, &params.bytes) < size {
                    return Err(Status::INVALID_ADDRESS.into());
                }
                return done;
            }
        }
        let what = format!("command {number} of {} bytes", params.bytes.len());
        if self.is_lenient {
            return self.not_simulated(target.caller, what);
        }
        Err(Failed::Unknown(Status::NOT_SUPPORTED, what))
    }

    /// What a lenient machine says that it did.
    pub(in crate::rm) fn not_simulated(&mut self, caller: Caller<'_>, what: String) -> Result {
        if !self.is_lenient {
            return Err(Failed::NotSimulated(Status::NOT_SUPPORTED, what));
        }
        let text = format!("{what} is not simulated: it succeeded and changed nothing");
        self.log.diagnose(caller.client.process(), "not-simulated", text);
        Ok(())
    }

    /// Whether a size that does not fit is an argument that does not: it is so since these.
    fn tells_sizes_early(&self) -> bool {
        let is_535 = self.version.first() == Some(&535);
        is_535 && self.is_since(&[535, 161, 7]) || self.is_since(&[550, 40, 53])
    }
}
