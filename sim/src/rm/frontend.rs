//! `/dev/nvidiactl` and `/dev/nvidiaN`: from a request to its handler (N/nv.c: `nvidia_ioctl`,
//! A/escape.c: `RmIoctl`).

use super::failed::{Failed, Result};
use super::gpu::Gpu;
use super::interface::Params;
use super::{Driver, NodeKind};
use crate::Errno;
use crate::Status;
use crate::client::{Client, Descriptor};
use crate::files::FileId;
use crate::machine::Answer;

/// The most bytes that an argument may have behind NV_ESC_IOCTL_XFER_CMD.
const MAX_SIZE: usize = 16384;

/// A call, wherever its argument stands.
pub(super) struct Call {
    /// The driver's name of its number; `None` where it has none.
    pub(super) name: Option<String>,
    pub(super) number: u32,
    /// Where the argument is, and its bytes.
    pub(super) address: u64,
    pub(super) size: usize,
}

/// Who calls, on what.
#[derive(Clone, Copy)]
pub(super) struct Caller<'a> {
    pub(super) client: &'a dyn Client,
    pub(super) file: FileId,
    pub(super) node: NodeKind,
    /// The control file that its clients are of.
    pub(super) owner: FileId,
}

/// Calls that begin with a struct, and where their status stands in it.
const STRUCTS: [(&str, &str, &str); 21] = [
    ("NV_ESC_RM_ALLOC_MEMORY", "nv_ioctl_nvos02_parameters_with_fd", "params.status"),
    ("NV_ESC_RM_ALLOC_OBJECT", "NVOS05_PARAMETERS", "status"),
    ("NV_ESC_RM_FREE", "NVOS00_PARAMETERS", "status"),
    ("NV_ESC_RM_CONTROL", "NVOS54_PARAMETERS", "status"),
    ("NV_ESC_RM_DUP_OBJECT", "NVOS55_PARAMETERS", "status"),
    ("NV_ESC_RM_SHARE", "NVOS57_PARAMETERS", "status"),
    ("NV_ESC_RM_I2C_ACCESS", "NVOS_I2C_ACCESS_PARAMS", "status"),
    ("NV_ESC_RM_IDLE_CHANNELS", "NVOS30_PARAMETERS", "status"),
    ("NV_ESC_RM_VID_HEAP_CONTROL", "NVOS32_PARAMETERS", "status"),
    ("NV_ESC_RM_ACCESS_REGISTRY", "NVOS38_PARAMETERS", "status"),
    ("NV_ESC_RM_MAP_MEMORY", "nv_ioctl_nvos33_parameters_with_fd", "params.status"),
    ("NV_ESC_RM_UNMAP_MEMORY", "NVOS34_PARAMETERS", "status"),
    ("NV_ESC_RM_GET_EVENT_DATA", "NVOS41_PARAMETERS", "status"),
    ("NV_ESC_RM_ALLOC_CONTEXT_DMA2", "NVOS39_PARAMETERS", "status"),
    ("NV_ESC_RM_MAP_MEMORY_DMA", "NVOS46_PARAMETERS", "status"),
    ("NV_ESC_RM_UNMAP_MEMORY_DMA", "NVOS47_PARAMETERS", "status"),
    ("NV_ESC_RM_BIND_CONTEXT_DMA", "NVOS49_PARAMETERS", "status"),
    ("NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO", "NVOS56_PARAMETERS", "status"),
    ("NV_ESC_ALLOC_OS_EVENT", "nv_ioctl_alloc_os_event_t", "Status"),
    ("NV_ESC_FREE_OS_EVENT", "nv_ioctl_free_os_event_t", "Status"),
    ("NV_ESC_EXPORT_TO_DMABUF_FD", "nv_ioctl_export_to_dma_buf_fd_t", "status"),
];

/// Those that are for the device files of GPUs alone, and those that are for all files; others are for the
/// control file.
const OF_GPUS: [&str; 6] = [
    "NV_ESC_RM_ALLOC_MEMORY",
    "NV_ESC_RM_I2C_ACCESS",
    "NV_ESC_QUERY_DEVICE_INTR",
    "NV_ESC_NUMA_INFO",
    "NV_ESC_SET_NUMA_STATUS",
    "NV_ESC_EXPORT_TO_DMABUF_FD",
];
const OF_BOTH: [&str; 5] = [
    "NV_ESC_RM_ALLOC",
    "NV_ESC_ALLOC_OS_EVENT",
    "NV_ESC_FREE_OS_EVENT",
    "NV_ESC_RM_GET_EVENT_DATA",
    "NV_ESC_REGISTER_FD",
];

impl Driver {
    /// What a request asks for. NV_ESC_IOCTL_XFER_CMD has the true one in its argument.
    pub(super) fn call(&self, client: &dyn Client, request: u32, argument: u64) -> Result<Call> {
        let (number, size) = (request & 0xff, (request >> 16 & 0x3fff) as usize);
        let name = self.interface.ioctl(false, number).map(|call| call.name.clone());
        if name.as_deref() != Some("NV_ESC_IOCTL_XFER_CMD") {
            return Ok(Call { name, number, address: argument, size });
        }
        if Some(size) != self.interface.size("nv_ioctl_xfer_t") {
            return Err(Errno::EINVAL.into());
        }
        let inside = self.read(client, "nv_ioctl_xfer_t", argument, size)?;
        let (number, size) = (inside.word("cmd")?, inside.word("size")? as usize);
        if size > MAX_SIZE {
            return Err(Errno::EINVAL.into());
        }
        let name = self.interface.ioctl(false, number).map(|call| call.name.clone());
        Ok(Call { name, number, address: inside.get("ptr")?, size })
    }

    /// A struct in the caller's memory.
    pub(super) fn read(
        &self,
        client: &dyn Client,
        record: &str,
        address: u64,
        size: usize,
    ) -> Result<Params, Errno> {
        let mut bytes = vec![0; size];
        if client.read(address, &mut bytes) < size {
            return Err(Errno::EFAULT);
        }
        Ok(Params::of(&self.interface, record, bytes))
    }

    pub(super) fn frontend(&mut self, caller: Caller<'_>, request: u32, argument: u64) -> Answer {
        let call = match self.call(caller.client, request, argument) {
            Ok(call) => call,
            Err(failed) => return self.answer(caller.client, failed),
        };
        let record = self.record_of(&call);
        let read = self.read(caller.client, &record, call.address, call.size);
        let mut args = match read {
            Ok(args) => args,
            Err(errno) => return Err(errno).into(),
        };
        let done = self.escape(caller, &call, &mut args);
        let answer = self.conclude(caller.client, &call, &mut args, done);
        if answer.result == Err(Errno::EFAULT) {
            return answer;
        }
        // Whatever came of it, the argument goes back.
        if caller.client.write(call.address, &args.bytes[..call.size]) < call.size {
            return Err(Errno::EFAULT).into();
        }
        answer
    }

    /// What a call does that somebody asked to fail.
    pub(super) fn refuse_frontend(
        &mut self,
        client: &dyn Client,
        request: u32,
        argument: u64,
        status: Status,
    ) -> Answer {
        let read = self.call(client, request, argument).and_then(|call| {
            let record = self.record_of(&call);
            let args = self.read(client, &record, call.address, call.size)?;
            Ok((call, args))
        });
        let (call, mut args) = match read {
            Ok(read) => read,
            Err(failed) => return self.answer(client, failed),
        };
        let answer = self.conclude(client, &call, &mut args, Err(status.into()));
        if client.write(call.address, &args.bytes[..call.size]) < call.size {
            return Err(Errno::EFAULT).into();
        }
        answer
    }

    /// The struct that an argument begins with.
    fn record_of(&self, call: &Call) -> String {
        let name = call.name.as_deref().unwrap_or_default();
        let record = match name {
            "NV_ESC_RM_ALLOC" if Some(call.size) == self.interface.size("NVOS64_PARAMETERS") => {
                "NVOS64_PARAMETERS"
            }
            "NV_ESC_RM_ALLOC" => "NVOS21_PARAMETERS",
            "NV_ESC_CARD_INFO" => "nv_ioctl_card_info_t",
            "NV_ESC_CHECK_VERSION_STR" => "nv_ioctl_rm_api_version_t",
            "NV_ESC_REGISTER_FD" => "nv_ioctl_register_fd_t",
            "NV_ESC_SYS_PARAMS" => "nv_ioctl_sys_params_t",
            "NV_ESC_NUMA_INFO" => "nv_ioctl_numa_info_t",
            "NV_ESC_STATUS_CODE" => "nv_ioctl_status_code_t",
            "NV_ESC_WAIT_OPEN_COMPLETE" => "nv_ioctl_wait_open_complete_t",
            _ => {
                STRUCTS.iter().find(|(call, ..)| *call == name).map_or("", |(_, record, _)| record)
            }
        };
        record.to_owned()
    }

    /// Brings an outcome into the argument, where it has a status, or makes a number of it.
    fn conclude(
        &mut self,
        client: &dyn Client,
        call: &Call,
        args: &mut Params,
        done: Result,
    ) -> Answer {
        let name = call.name.as_deref().unwrap_or_default();
        let path = match name {
            "NV_ESC_RM_ALLOC" => Some("status"),
            _ => STRUCTS.iter().find(|(call, ..)| *call == name).map(|(.., path)| *path),
        };
        let status = match done {
            Ok(()) => Status::OK,
            Err(Failed::Errno(errno)) => return Err(errno).into(),
            Err(failed) => self.status_of(client, failed),
        };
        match path {
            Some(path) => args.set_if_any(path, status.0),
            // What has no room for a status fails (N/nv.c: `nvidia_ioctl`).
            None if !status.is_ok() => return Err(Errno::EINVAL).into(),
            None => {}
        }
        Answer { result: Ok(0), status: (!status.is_ok()).then(|| status.to_string()) }
    }

    /// The answer to a call of which nothing can be told in its argument.
    pub(super) fn answer(&mut self, client: &dyn Client, failed: Failed) -> Answer {
        match failed {
            Failed::Errno(errno) => Err(errno).into(),
            other => {
                self.status_of(client, other);
                Err(Errno::EINVAL).into()
            }
        }
    }

    /// The status of a failure; what is no fault of the client's is told to the person.
    pub(super) fn status_of(&mut self, client: &dyn Client, failed: Failed) -> Status {
        let process = client.process();
        match failed {
            Failed::Errno(errno) if errno == Errno::EFAULT => Status::INVALID_ADDRESS,
            Failed::Errno(_) => Status::OPERATING_SYSTEM,
            Failed::Status(status) => status,
            Failed::NotSimulated(status, what) => {
                self.log.diagnose(process, "not-simulated", format!("{what} is not simulated"));
                status
            }
            Failed::Unknown(status, what) => {
                let text = format!("{what} is unknown to {}", self.interface.tag);
                self.log.diagnose(process, "unknown-call", text);
                status
            }
            Failed::Profile(text) => {
                self.log.diagnose(process, "profile", text);
                Status::NOT_SUPPORTED
            }
            Failed::Missing(missing) => {
                let (record, field) = (&missing.record, &missing.field);
                let text = format!("{} has no {record}.{field}", self.interface.tag);
                self.log.diagnose(process, "other-layout", text);
                Status::NOT_SUPPORTED
            }
        }
    }

    /// Says that an argument has the size of another driver's.
    pub(super) fn diagnose_size(
        &mut self,
        client: &dyn Client,
        call: &str,
        passed: usize,
        right: Option<usize>,
    ) {
        let right = right.map_or_else(|| "none".to_owned(), |right| format!("{right} bytes"));
        let text = format!(
            "{call}: the caller passes {passed} bytes, {} has {right}: it is built for another driver",
            self.interface.tag
        );
        self.log.diagnose(client.process(), "other-size", text);
    }

    fn escape(&mut self, caller: Caller<'_>, call: &Call, args: &mut Params) -> Result {
        let Some(name) = call.name.as_deref() else {
            // A/escape.c: the end of `RmIoctl`.
            return Err(Failed::Unknown(Status::GENERIC, format!("escape {:#x}", call.number)));
        };
        if name == "NV_ESC_WAIT_OPEN_COMPLETE" {
            args.set("rc", 0_u32)?;
            args.set("adapterStatus", Status::OK.0)?;
            return Ok(());
        }
        let is_control = caller.node == NodeKind::Control;
        let is_right = match name {
            _ if OF_GPUS.contains(&name) => !is_control,
            _ if OF_BOTH.contains(&name) => true,
            _ => is_control,
        };
        if !is_right {
            return Err(Errno::EINVAL.into());
        }
        match name {
            "NV_ESC_CARD_INFO" => return self.card_info(args, call.size),
            "NV_ESC_ATTACH_GPUS_TO_FD" => return self.attach_gpus(caller, &args.bytes),
            "NV_ESC_RM_ALLOC" => {
                let is_either = ["NVOS21_PARAMETERS", "NVOS64_PARAMETERS"]
                    .iter()
                    .any(|record| self.interface.size(record) == Some(call.size));
                if !is_either {
                    let right = self.interface.size("NVOS64_PARAMETERS");
                    self.diagnose_size(caller.client, name, call.size, right);
                    return Err(Errno::EINVAL.into());
                }
                return self.alloc_call(caller, args);
            }
            _ => {}
        }
        let record = self.record_of(call);
        let right = self.interface.size(&record);
        if !record.is_empty() && right != Some(call.size) {
            self.diagnose_size(caller.client, name, call.size, right);
            return Err(Errno::EINVAL.into());
        }
        match name {
            "NV_ESC_CHECK_VERSION_STR" => self.check_version(caller.client, args),
            "NV_ESC_SYS_PARAMS" => self.system_parameters(args),
            "NV_ESC_REGISTER_FD" => self.register(caller, args),
            "NV_ESC_NUMA_INFO" => Self::numa_info(args),
            "NV_ESC_STATUS_CODE" => self.status_code(args),
            "NV_ESC_RM_FREE" => self.free(caller, args),
            "NV_ESC_RM_CONTROL" => self.control(caller, args),
            "NV_ESC_RM_ALLOC_MEMORY" => self.alloc_memory(caller, args),
            "NV_ESC_RM_VID_HEAP_CONTROL" => self.vid_heap_control(caller, args),
            "NV_ESC_RM_MAP_MEMORY" => self.map_memory(caller, args),
            "NV_ESC_RM_UNMAP_MEMORY" => self.unmap_memory(caller, args),
            "NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO" => self.update_mapping(caller, args),
            "NV_ESC_RM_MAP_MEMORY_DMA" => self.map_memory_dma(caller, args),
            "NV_ESC_RM_UNMAP_MEMORY_DMA" => self.unmap_memory_dma(caller, args),
            "NV_ESC_RM_DUP_OBJECT" => self.duplicate(caller, args),
            "NV_ESC_RM_SHARE" => self.share(caller, args),
            "NV_ESC_ALLOC_OS_EVENT" => self.alloc_os_event(caller, args),
            "NV_ESC_FREE_OS_EVENT" => self.free_os_event(args),
            "NV_ESC_RM_GET_EVENT_DATA" => self.event_data(caller, args),
            "NV_ESC_EXPORT_TO_DMABUF_FD" => self.export_dma_buf(caller, args),
            _ => Err(Failed::NotSimulated(Status::NOT_SUPPORTED, name.to_owned())),
        }
    }

    /// N/nv.c: `nvidia_read_card_info`.
    fn card_info(&mut self, args: &mut Params, size: usize) -> Result {
        let each = self.interface.size("nv_ioctl_card_info_t").unwrap_or(usize::MAX);
        let count = size / each;
        args.bytes[..count * each].fill(0);
        if count < self.gpus.len() {
            return Err(Errno::EINVAL.into());
        }
        for (index, card) in self.present().enumerate() {
            let facts = card.facts();
            let mut info = Params::of(&self.interface, "nv_ioctl_card_info_t", Vec::new());
            info.set("valid", 1_u32)?;
            info.set("pci_info.bus", card.bus())?;
            info.set("pci_info.vendor_id", facts.vendor)?;
            info.set("pci_info.device_id", facts.device)?;
            info.set("gpu_id", card.id())?;
            info.set("interrupt_line", facts.interrupt)?;
            info.set("reg_address", facts.registers.0)?;
            info.set("reg_size", facts.registers.1)?;
            info.set("fb_address", facts.window.0)?;
            info.set("fb_size", facts.window.1)?;
            info.set("minor_number", card.minor)?;
            args.bytes[index * each..(index + 1) * each].copy_from_slice(&info.bytes);
        }
        Ok(())
    }

    /// N/nv.c:2559: the memory of these GPUs is no node of the system's.
    fn numa_info(args: &mut Params) -> Result {
        args.bytes.fill(0);
        Ok(args.set("nid", u64::MAX)?)
    }

    /// Why a GPU could not be started: A/osinit.c: `RmInitAdapter`, `RmGetAdapterStatus`.
    fn status_code(&self, args: &mut Params) -> Result {
        let place = [args.word("domain")?, args.word("bus")?, args.word("slot")?];
        let is_meant = |gpu: &Gpu| gpu.is_probed() && place == [0, gpu.bus(), 0];
        let gpu = self.gpus.iter().position(is_meant).ok_or(Status::INVALID_ARGUMENT)?;
        let status = match self.refusal(gpu) {
            Some(Errno::EIO) => Status::OPERATING_SYSTEM,
            _ => Status::OK,
        };
        Ok(args.set("status", status.0)?)
    }

    /// N/nv.c:2476.
    fn attach_gpus(&mut self, caller: Caller<'_>, bytes: &[u8]) -> Result {
        let has_some =
            self.files.get(caller.file).is_some_and(|open| !open.file.attached.is_empty());
        if bytes.is_empty() || has_some || bytes.len() % 4 != 0 {
            return Err(Errno::EINVAL.into());
        }
        let mut found = Vec::new();
        for word in bytes.chunks_exact(4) {
            let id = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            if id == 0 {
                continue;
            }
            let gpu = self.gpus.iter().position(|gpu| gpu.id() == id).ok_or(Errno::EINVAL)?;
            if self.refusal(gpu).is_some() {
                return Err(Errno::EINVAL.into());
            }
            found.push(gpu);
        }
        for gpu in &found {
            self.gpus[*gpu].take();
        }
        if let Some(open) = self.files.get_mut(caller.file) {
            open.file.attached = found;
        }
        Ok(())
    }

    /// A/osapi.c: `RmPerformVersionCheck`. What does not match fails, with the driver's own version.
    fn check_version(&mut self, client: &dyn Client, args: &mut Params) -> Result {
        const RELAXED: u32 = b'1' as u32;
        const QUERY: u32 = b'2' as u32;
        const OVERRIDE: &str = "NV_RM_API_VERSION_CMD_OVERRIDE";
        args.set("reply", 1_u32)?;
        let command = args.word("cmd")?;
        // What asks newer drivers for their version asked older ones not to look at the client's.
        if command == QUERY && self.interface.constants.contains_key(OVERRIDE) {
            return Ok(());
        }
        let ours = self.told_version.clone();
        let theirs = args.bytes_of("versionString")?;
        let same = match command {
            QUERY => true,
            _ => is_version(theirs, &ours, command == RELAXED),
        };
        if !same {
            let end = theirs.iter().position(|byte| *byte == 0).unwrap_or(theirs.len());
            let theirs = String::from_utf8_lossy(&theirs[..end]).into_owned();
            let text = format!("the caller is of version {theirs:?}, the driver is {ours:?}");
            self.log.diagnose(client.process(), "other-version", text);
        }
        if !same || command == QUERY {
            // The rest of the client's string is left as it is.
            let text = [ours.as_bytes(), &[0]].concat();
            args.put("versionString", &text)?;
        }
        if same { Ok(()) } else { Err(Status::GENERIC.into()) }
    }

    /// N/nv.c:2533.
    fn system_parameters(&mut self, args: &Params) -> Result {
        let block = args.get("memblock_size")?;
        if self.memory_block == 0 {
            self.memory_block = block;
            return Ok(());
        }
        if self.memory_block == block { Ok(()) } else { Err(Errno::EBUSY.into()) }
    }

    /// A/escape.c: NV_ESC_REGISTER_FD.
    fn register(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let fd = args.word("ctl_fd")? as i32;
        let is_registered =
            |id: FileId| self.files.get(id).is_some_and(|open| open.file.control.is_some());
        if is_registered(caller.file) {
            return Err(Status::INVALID_STATE.into());
        }
        let control = self.descriptor(caller.client, fd);
        let control = control.filter(|id| {
            let node = self.files.get(*id).map(|open| open.file.node);
            node == Some(NodeKind::Control) && *id != caller.file && !is_registered(*id)
        });
        let control = control.ok_or(Status::INVALID_ARGUMENT)?;
        if let Some(open) = self.files.get_mut(caller.file) {
            open.file.control = Some(control);
        }
        Ok(())
    }

    /// The file of ours that a descriptor of the caller means.
    pub(super) fn descriptor(&self, client: &dyn Client, fd: i32) -> Option<FileId> {
        match client.descriptor(fd) {
            Descriptor::Open(inode, _) => self.files.of(inode),
            Descriptor::Closed => None,
        }
    }
}

/// Whether a client's version is the driver's, or agrees with it up to the first point.
fn is_version(theirs: &[u8], ours: &str, relaxed: bool) -> bool {
    let ours = ours.bytes().chain([0]);
    for (theirs, ours) in theirs.iter().zip(ours) {
        if *theirs != ours {
            return false;
        }
        if ours == 0 || relaxed && ours == b'.' {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::is_version;

    #[test]
    fn versions_are_compared_as_the_driver_does() {
        let theirs = |text: &str| [text.as_bytes(), &[0; 8]].concat();
        for (version, strict, relaxed) in [
            ("550.163.01", true, true),
            ("550.90.07", false, true),
            ("550.163.0", false, true),
            ("550", false, false),
            ("551.163.01", false, false),
            ("", false, false),
        ] {
            let theirs = theirs(version);
            assert_eq!(is_version(&theirs, "550.163.01", false), strict, "{version}");
            assert_eq!(is_version(&theirs, "550.163.01", true), relaxed, "{version}");
        }
    }
}
