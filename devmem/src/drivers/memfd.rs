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
        let visible = placement::SYSTEM | placement::CONTIGUOUS | placement::CARVEOUT;
        let any = coherency::CACHED | coherency::WRITE_COMBINED | coherency::UNCACHED;
        let constraints = [
            Constraint::new(ConstraintName::SIZE_ALIGNMENT, PAGE),
            Constraint::new(ConstraintName::PLACEMENT, visible),
            Constraint::new(ConstraintName::COHERENCY, any),
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

    fn import(&self, _buffer: &Buffer) -> Result<Box<dyn Import>> {
        Ok(Box::new(Taken))
    }
}

struct Taken;

impl Import for Taken {}
