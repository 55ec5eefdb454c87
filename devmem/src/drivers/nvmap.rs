//! Memory of a Jetson: made by nvmap, mapped by nvgpu.

use std::io;

use super::formats;
use super::nvidia::{self, Largest};
use crate::modifier::BlockLinear;
use crate::{
    Buffer, Capability, CapabilitySet, Constraint, ConstraintName, Description, Device, DeviceInfo,
    Driver, Error, ErrorKind, Hint, Image, Import, Listed, MODIFIER_LINEAR, Memory, Operation,
    Result, placement,
};
use nvabi::tegra;

const NODE: &str = "/dev/nvmap";
const PAGE: u64 = tegra::PAGE;

/// The GPU of a Jetson and its allocator, as `nvmap:gpu`.
pub(super) struct Nvmap;

impl Driver for Nvmap {
    fn name(&self) -> &str {
        "nvmap"
    }

    fn devices(&self) -> Result<Listed> {
        if !std::path::Path::new(NODE).exists() {
            return Ok(Vec::new());
        }
        let device = tegra::Device::open().map_err(|error| device_error("nvmap", &error))?;
        Ok(vec![Ok(Box::new(Gpu::new(device)))])
    }
}

struct Gpu {
    device: tegra::Device,
    info: DeviceInfo,
    /// How it lays out blocks, where that is known.
    blocks: Option<BlockLinear>,
    largest: Largest,
}

impl Gpu {
    fn new(device: tegra::Device) -> Self {
        let info = DeviceInfo {
            name: "nvmap:gpu".to_owned(),
            node: NODE.to_owned(),
            operations: nvidia::OPERATIONS.to_vec(),
            allocates: true,
            imports: true,
        };
        let chip = device.characteristics().chip();
        // The one chip of Maxwell's.
        let largest = match chip.as_str() {
            "gm20b" => Largest::BEFORE_PASCAL,
            _ => Largest::SINCE_PASCAL,
        };
        Self { device, info, blocks: blocks_of(&chip), largest }
    }

    /// The kind of pages with a layout.
    fn page_kind(&self, modifier: u64) -> Result<u8> {
        match self.blocks.filter(|blocks| blocks.has(modifier)) {
            _ if modifier == MODIFIER_LINEAR => Ok(0),
            Some(blocks) => Ok(blocks.page_kind),
            None => {
                let layout = Capability::modifier(modifier);
                Err(Error::unsupported(format!("{} has no {layout}", self.info.name)))
            }
        }
    }
}

/// The blocks of a chip: `drm_fourcc.h` has the order of sectors and the page kinds of each generation.
fn blocks_of(chip: &str) -> Option<BlockLinear> {
    Some(match chip {
        "gm20b" | "gp10b" => BlockLinear::TEGRA_X1,
        "gv11b" => BlockLinear::BEFORE_TURING,
        "ga10b" => BlockLinear::SINCE_TURING,
        _ => return None,
    })
}

/// Pages behind the SMMU: any of the system's, in one piece for what is behind it alone.
const MEMORY: Memory = Memory::PAGES;

impl Device for Gpu {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// In the blocks of the chip's generation, and in rows.
    fn sets(&self, image: &Image, operation: Operation) -> Result<Vec<CapabilitySet>> {
        if !self.largest.takes(image, operation) {
            return Ok(Vec::new());
        }
        let constraints = vec![
            Constraint::new(ConstraintName::SIZE_ALIGNMENT, PAGE),
            Constraint::new(ConstraintName::PLACEMENT, placement::SYSTEM | placement::CONTIGUOUS),
        ];
        let rows = [&constraints[..], &nvidia::rows(operation)].concat();
        let rows = CapabilitySet::new(rows, [Capability::pitch_linear()]);
        let blocks = self.blocks.into_iter().flat_map(|blocks| blocks.modifiers(image.height));
        let blocks = blocks.map(Capability::modifier);
        let blocks = blocks.map(|layout| CapabilitySet::new(constraints.clone(), [layout]));
        Ok(blocks.chain([rows]).collect())
    }

    fn hints(&self, operation: Operation) -> Result<Vec<Hint>> {
        let hint = |format| self.largest.hint(format, operation);
        Ok(formats(self, operation)?.into_iter().map(hint).collect())
    }

    /// On a Jetson all of its devices take nvmap's memory, and some no other.
    fn cost(&self, set: &CapabilitySet) -> u64 {
        7 - nvidia::bonus(set)
    }

    fn memory(&self) -> Option<Memory> {
        Some(MEMORY)
    }

    fn allocate(&self, description: &Description) -> Result<Buffer> {
        MEMORY.serves_of(Some(&self.info), description)?;
        self.page_kind(description.layout.modifier)?;
        let size = description.layout.size;
        let made = tegra::Memory::allocate(&self.device, size, tegra::Cache::Inner);
        let made = made.map_err(|error| device_error(&self.info.name, &error))?;
        let fd = made.dmabuf().try_clone_to_owned();
        let fd = fd.map_err(|error| Error::io(ErrorKind::Call, "dup of a buffer", error))?;
        Buffer::new(fd, description.clone())
    }

    fn request(&self, description: &Description) -> String {
        let size = description.layout.size;
        format!("NVMAP_IOC_CREATE and NVMAP_IOC_ALLOC of {size} bytes, cached inside, on {NODE}")
    }

    /// Maps the memory into an address space of its own, as pages of its layout's kind.
    fn import(&self, buffer: &Buffer) -> Result<Box<dyn Import>> {
        let refused = |error| device_error(&self.info.name, &error);
        let kind = self.page_kind(buffer.description().layout.modifier)?;
        let size = buffer.size().next_multiple_of(PAGE);
        let memory = tegra::Memory::from_dmabuf(buffer.export()?, size, tegra::Cache::Inner);
        let memory = memory.map_err(refused)?;
        let space = tegra::AddressSpace::new(&self.device).map_err(refused)?;
        Ok(Box::new(Mapped(space.map_with_kind(memory, kind).map_err(refused)?)))
    }
}

/// Memory that the GPU sees.
struct Mapped(tegra::Buffer);

impl Import for Mapped {
    /// Where the GPU sees it.
    fn handle(&self) -> u64 {
        self.0.gpu_address()
    }
}

fn device_error(name: &str, error: &tegra::Error) -> Error {
    let kind = match error.kind() {
        tegra::ErrorKind::Open => ErrorKind::Open,
        tegra::ErrorKind::Unsupported | tegra::ErrorKind::UnknownRelease => ErrorKind::Unsupported,
        tegra::ErrorKind::Invalid => ErrorKind::Invalid,
        _ => ErrorKind::Call,
    };
    match error.errno() {
        Some(errno) => Error::io(kind, name, io::Error::from_raw_os_error(errno)),
        None => Error::new(kind, format!("{name}: {error}")),
    }
}
