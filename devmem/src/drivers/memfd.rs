//! The CPU: memory of memfd, which any Linux has.

use std::fs::File;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::buffer::{Buffer, Description};
use crate::capability::{Capability, CapabilitySet};
use crate::constraint::{Constraint, ConstraintName, coherency, placement};
use crate::driver::{Device, DeviceInfo, Driver, Import, Listed};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::Memory;
use crate::usage::{Image, Operation};

/// The driver of the CPU.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memfd;

impl Driver for Memfd {
    fn name(&self) -> &str {
        "memfd"
    }

    fn devices(&self) -> Result<Listed> {
        let info = DeviceInfo {
            name: "cpu".to_owned(),
            node: String::new(),
            operations: vec![Operation::CpuRead, Operation::CpuWrite],
            allocates: true,
            imports: true,
        };
        Ok(vec![Ok(Box::new(Cpu { info }))])
    }
}

#[derive(Debug)]
struct Cpu {
    info: DeviceInfo,
}

/// What is mapped is whole pages.
const PAGE: u64 = 4096;

impl Device for Cpu {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn sets(&self, _image: &Image, operation: Operation) -> Result<Vec<CapabilitySet>> {
        if !self.info.operations.contains(&operation) {
            return Ok(Vec::new());
        }
        let constraints = [
            Constraint::new(ConstraintName::SIZE_ALIGNMENT, PAGE),
            Constraint::new(ConstraintName::PLACEMENT, placement::VISIBLE),
            Constraint::new(ConstraintName::COHERENCY, coherency::ANY),
        ];
        Ok(vec![CapabilitySet::new(constraints, [Capability::pitch_linear()])])
    }

    /// Memory that only the CPU has is the last choice where others make some too.
    fn cost(&self, _set: &CapabilitySet) -> u64 {
        1000
    }

    fn memory(&self) -> Option<Memory> {
        Some(Memory::PAGES)
    }

    fn request(&self, description: &Description) -> String {
        let size = description.layout.size;
        let size = size.checked_next_multiple_of(PAGE).unwrap_or(size);
        format!("memfd_create, ftruncate to {size} bytes, F_SEAL_SHRINK")
    }

    fn allocate(&self, description: &Description) -> Result<Buffer> {
        Memory::PAGES.serves(description)?;
        let size = description.layout.size.checked_next_multiple_of(PAGE).filter(|size| *size > 0);
        let Some(size) = size else {
            let size = description.layout.size;
            return Err(Error::invalid(format!("there is no memory of {size} bytes")));
        };
        let refused =
            |call: &str, error| Error::io(ErrorKind::Call, format!("{call}, {size} bytes"), error);
        let fd = memfd_create(c"nvabi", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)
            .map_err(|errno| refused("memfd_create", errno.into()))?;
        let file = File::from(fd);
        file.set_len(size).map_err(|error| refused("ftruncate", error))?;
        // Nobody who maps it is left without pages; udmabuf asks for this as well.
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK))
            .map_err(|errno| refused("F_ADD_SEALS", errno.into()))?;
        Buffer::new(file.into(), description.clone())
    }

    /// Maps it once, as who uses it will: some drivers' memory cannot be mapped.
    fn import(&self, buffer: &Buffer) -> Result<Box<dyn Import>> {
        let mut uses =
            buffer.description().usage.uses.iter().filter(|of| of.device == self.info.name);
        let writes = uses.any(|of| of.operation == Operation::CpuWrite);
        let mut mapping = buffer.map()?;
        let access = if writes { mapping.write()? } else { mapping.read()? };
        access.end()?;
        Ok(Box::new(Taken))
    }
}

struct Taken;

impl Import for Taken {}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::{Fourcc, Layout, Usage, Use};

    #[test]
    fn what_cannot_be_mapped_is_not_taken() {
        let cpu = Memfd.devices().unwrap().remove(0).unwrap();
        let described = |operation| Description {
            usage: Usage::new(
                Image::new(16, 16, Fourcc::new(b"XR24")),
                vec![Use::new("cpu", operation)],
            ),
            set: CapabilitySet::new([], [Capability::pitch_linear()]),
            layout: Layout { modifier: 0, planes: Vec::new(), size: PAGE },
            metadata: Vec::new(),
        };
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let memory = File::from(memfd_create(c"nvabi", flags).unwrap());
        memory.set_len(PAGE).unwrap();
        let takes = |file: &File, operation| {
            let file = file.try_clone().unwrap();
            let buffer = Buffer::new(file.into(), described(operation)).unwrap();
            cpu.import(&buffer).is_ok()
        };
        assert!(takes(&memory, Operation::CpuRead) && takes(&memory, Operation::CpuWrite));
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        let to_write = File::options().write(true).open(path).unwrap();
        assert!(!takes(&to_write, Operation::CpuRead) && !takes(&to_write, Operation::CpuWrite));
        let sealed = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_FUTURE_WRITE;
        fcntl(&memory, FcntlArg::F_ADD_SEALS(sealed)).unwrap();
        assert!(takes(&memory, Operation::CpuRead) && !takes(&memory, Operation::CpuWrite));
    }
}
