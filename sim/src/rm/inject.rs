//! What happens to a GPU because somebody asked for it: errors, heat, and its loss.

use std::io;

use serde::{Deserialize, Serialize};

use super::Driver;
use super::events::Info;
use super::failed::Result;
use super::server::ObjectKind;
use crate::Status;
use crate::profile::Datum;

/// What can happen to a GPU of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Injection {
    /// The driver reports an error by this number.
    Xid(u32),
    /// Bits of a memory were wrong.
    Ecc {
        /// Which memory.
        memory: EccMemory,
        /// Whether they could not be corrected.
        is_uncorrected: bool,
        /// How many such errors are counted.
        count: u32,
    },
    /// It has this temperature from now on, in degrees Celsius.
    Temperature(u32),
    /// It has fallen off the bus.
    Lost,
}

/// A memory whose errors a GPU counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EccMemory {
    /// The DRAM beside the chip.
    Dram,
    /// The SRAM of its SMs, on a divided GPU those of an instance.
    Sram {
        /// The number of the GPU instance.
        instance: Option<u32>,
    },
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injected {
    /// What the GPU is called.
    pub gpu_name: String,
    /// How many event objects of programs were told; none where it is nothing that raises events.
    pub events: Option<usize>,
}

/// ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS (nverror.h).
const FALLEN_OFF: u32 = 79;

/// Commands that need no GPU (RMCTRL_FLAGS_NO_GPUS_ACCESS without ROUTE_TO_PHYSICAL in the tables of
/// `g_device_nvoc.c` and `g_subdevice_nvoc.c`), and since when.
const WITHOUT_GPU: [(&str, &[u32]); 12] = [
    ("NV0080_CTRL_CMD_GPU_GET_CLASSLIST", &[]),
    ("NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2", &[]),
    ("NV0080_CTRL_CMD_GPU_FIND_SUBDEVICE_HANDLE", &[]),
    ("NV0080_CTRL_CMD_GR_GET_CAPS", &[]),
    ("NV0080_CTRL_CMD_GR_GET_CAPS_V2", &[]),
    ("NV2080_CTRL_CMD_GPU_GET_ID", &[]),
    ("NV2080_CTRL_CMD_GPU_GET_SIMULATION_INFO", &[]),
    ("NV2080_CTRL_CMD_GPU_GET_COMPUTE_POLICY_CONFIG", &[]),
    ("NV2080_CTRL_CMD_GR_GET_CAPS_V2", &[]),
    ("NV2080_CTRL_CMD_MC_GET_ARCH_INFO", &[]),
    ("NV2080_CTRL_CMD_GPU_GET_NAME_STRING", &[550, 40, 7]),
    ("NV2080_CTRL_CMD_GPU_GET_SHORT_NAME_STRING", &[550, 40, 7]),
];

impl Driver {
    /// Lets something happen to a GPU, by its index.
    pub(super) fn happen(&mut self, gpu: usize, what: Injection) -> io::Result<Injected> {
        let count = self.gpus.len();
        let Some(own) = self.gpus.get(gpu) else {
            let last = count.saturating_sub(1);
            return Err(refusal(format!("there is no GPU {gpu}: the machine has GPU 0 to {last}")));
        };
        if own.is_lost {
            return Err(refusal(format!("GPU {gpu} is lost until the machine goes down")));
        }
        let gpu_name = own.text("identity.name");
        let events = match what {
            Injection::Xid(number) => Some(self.report_xid(gpu, number)),
            Injection::Ecc { memory, is_uncorrected, count } => {
                self.need_ecc(gpu, memory)?;
                Some(self.count_ecc_errors(gpu, memory, is_uncorrected, count)?)
            }
            Injection::Temperature(degrees) => {
                self.set_state(gpu, "state.temperature", degrees.into())?;
                let is_held = "state.temperature_is_held".to_owned();
                self.change(gpu, vec![(is_held, Datum::Number(1))]);
                None
            }
            Injection::Lost => Some(self.lose(gpu)),
        };
        Ok(Injected { gpu_name, events })
    }

    /// Whether there is such a memory, and its errors are counted.
    fn need_ecc(&self, gpu: usize, memory: EccMemory) -> io::Result<()> {
        if self.number(gpu, "state.ecc")? == 0 {
            let text = format!("GPU {gpu} has no ECC, or it is off: it counts no such errors");
            return Err(refusal(text));
        }
        let EccMemory::Sram { instance } = memory else { return Ok(()) };
        let instances = &self.gpus[gpu].instances.0;
        let list = instances.keys().map(u32::to_string).collect::<Vec<_>>().join(", ");
        match instance {
            None if instances.is_empty() => Ok(()),
            None => Err(refusal(format!(
                "GPU {gpu} is divided: name the instance whose SMs have the error, of {list}"
            ))),
            Some(number) if instances.contains_key(&number) => Ok(()),
            Some(number) if instances.is_empty() => {
                Err(refusal(format!("GPU {gpu} has no instance {number}: it is not divided")))
            }
            Some(number) => {
                Err(refusal(format!("GPU {gpu} has no instance {number}: it has {list}")))
            }
        }
    }

    /// Errors of a memory: since the driver was loaded, and in all.
    fn count_ecc_errors(
        &mut self,
        gpu: usize,
        memory: EccMemory,
        is_uncorrected: bool,
        count: u32,
    ) -> io::Result<usize> {
        let (kind, notifier) = match is_uncorrected {
            true => ("uncorrected", "ECC_DBE"),
            false => ("corrected", "ECC_SBE"),
        };
        let part = match memory {
            EccMemory::Dram => "",
            EccMemory::Sram { .. } => "sram_",
        };
        if let (EccMemory::Sram { instance: Some(number) }, true) = (memory, is_uncorrected) {
            self.mark_instance(gpu, number)?;
        }
        for name in ["", "_total"].map(|end| format!("state.ecc_{part}{kind}{end}")) {
            // The driver's counters have 64 bits.
            let number = self.number(gpu, &name)?.saturating_add(count.into());
            self.set_state(gpu, &name, number.min(u64::MAX.into()))?;
        }
        Ok(self.notify_named(gpu, notifier, Info::default()))
    }

    /// The SMs of an instance had an error. Those of before the counters were reset are forgotten.
    fn mark_instance(&mut self, gpu: usize, number: u32) -> io::Result<()> {
        let is_first = self.number(gpu, "state.ecc_sram_uncorrected")? == 0;
        for (own, instance) in &mut self.gpus[gpu].instances.0 {
            instance.has_sram_error = (instance.has_sram_error && !is_first) || *own == number;
        }
        Ok(())
    }

    /// A/osinit.c: `osHandleGpuLost`, and `kgspRcAndNotifyAllChannels_IMPL`, which tells subdevices once for each
    /// channel, of which the kernel has some; here they are told once.
    fn lose(&mut self, gpu: usize) -> usize {
        self.gpus[gpu].is_lost = true;
        self.end_channels_of(gpu, FALLEN_OFF);
        self.notify_named(gpu, "RC_ERROR", Info { info32: FALLEN_OFF, info16: 0 })
    }

    /// What an object of a GPU answers that has fallen off the bus.
    pub(super) fn need_gpu(&self, gpu: Option<usize>) -> Result {
        match gpu.and_then(|gpu| self.gpus.get(gpu)) {
            Some(gpu) if gpu.is_lost => Err(Status::GPU_IS_LOST.into()),
            _ => Ok(()),
        }
    }

    /// The same, of a command: R/control.c: `serverControl_ValidateCookie`.
    pub(super) fn need_gpu_for(&self, kind: &ObjectKind, command: &str) -> Result {
        let is_named = |(name, since): &(&str, &[u32])| *name == command && self.is_since(since);
        match WITHOUT_GPU.iter().any(is_named) {
            true => Ok(()),
            false => self.need_gpu(kind.gpu()),
        }
    }

    /// A number that a profile begins with and programs change.
    fn number(&self, gpu: usize, name: &str) -> io::Result<i128> {
        let found = self.gpus.get(gpu).and_then(|gpu| gpu.own_value(name, 0).ok()?.number());
        found.ok_or_else(|| refusal(format!("the profile of GPU {gpu} has no number `{name}`")))
    }

    fn set_state(&mut self, gpu: usize, name: &str, number: i128) -> io::Result<()> {
        // One that the profile lacks would be shown by nothing.
        self.number(gpu, name)?;
        self.change(gpu, vec![(name.to_owned(), Datum::Number(number))]);
        Ok(())
    }
}

fn refusal(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
