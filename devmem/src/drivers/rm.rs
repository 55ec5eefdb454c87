//! GPUs of NVIDIA's driver: their memory, allocated through the resource manager and exported as a dma-buf.
//!
//! The layouts are those that `nvidia-drm` lists for the GPU. Nothing of a GPU's imports is known here: the resource
//! manager takes no dma-buf from a program, so that a use of such a device asks for its own memory.

use std::os::fd::OwnedFd;
use std::path::Path;

use nvabi::driver::{Compat, Record, Used};
use nvabi::r595::class::{NV01_DEVICE_0, NV20_SUBDEVICE_0};
use nvabi::r595::control::{NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, NV2080_CTRL_CMD_MC_GET_ARCH_INFO};
use nvabi::r595::{NV0080_ALLOC_PARAMETERS, NV2080_ALLOC_PARAMETERS};
use nvabi::rm::{self, Card, Object, RmClient};
use nvabi::with_driver;

use super::nvidia::{self, Largest};
use super::{each, formats, found};
use crate::modifier::BlockLinear;
use crate::{
    Buffer, Capability, CapabilitySet, Constraint, ConstraintName, Description, Device, DeviceInfo,
    Driver, Error, ErrorKind, Hint, Image, Listed, MODIFIER_LINEAR, Memory, Operation, Result,
    coherency, format, placement,
};

const NODE: &str = "/dev/nvidiactl";
const PAGE: u64 = 4096;

/// What all drivers have alike, and one between two of the build must have too.
const USES: &[Used] = &[
    Used::call::<NV01_DEVICE_0>(),
    Used::call::<NV20_SUBDEVICE_0>(),
    Used::call::<NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2>(),
    Used::call::<NV2080_CTRL_CMD_MC_GET_ARCH_INFO>(),
];

/// Every GPU that the driver has: `rm:nvidia0`.
pub(super) struct Rm;

impl Driver for Rm {
    fn name(&self) -> &str {
        "rm"
    }

    fn devices(&self) -> Result<Listed> {
        if !Path::new(NODE).exists() {
            return Ok(Vec::new());
        }
        let Some(client) = found(client())? else { return Ok(Vec::new()) };
        let cards = client.cards().map_err(|error| rm_error("rm", &error))?;
        Ok(each(&cards, |card| Gpu::open(card).map(Some)))
    }
}

fn client() -> Result<RmClient> {
    RmClient::open_with(Compat::SameAbi(USES)).map_err(|error| rm_error("rm", &error))
}

struct Gpu {
    info: DeviceInfo,
    minor: u32,
    /// `NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE`.
    architecture: u32,
    device: Object,
    // The GPU is up while its node is open.
    _node: OwnedFd,
}

/// Memory of a GPU: in pages from anywhere, of which the CPU sees nothing by a dma-buf.
const MEMORY: Memory = Memory {
    placement: placement::LOCAL,
    coherency: coherency::UNCACHED,
    contiguous: PAGE,
    page: PAGE,
    max_size: u64::MAX,
};

impl Gpu {
    fn open(card: &Card) -> Result<Self> {
        let name = format!("rm:nvidia{}", card.minor);
        let info = DeviceInfo {
            node: format!("/dev/nvidia{}", card.minor),
            operations: nvidia::OPERATIONS.to_vec(),
            allocates: true,
            imports: false,
            name,
        };
        let refused = |error| rm_error(&info.name, &error);
        let client = client()?;
        let node = client.open_gpu(card.minor).map_err(refused)?;
        let (device, architecture) = device(&client, card).map_err(refused)?;
        Ok(Self { info, minor: card.minor, architecture, device, _node: node })
    }

    fn largest(&self) -> Largest {
        if self.architecture < PASCAL { Largest::BEFORE_PASCAL } else { Largest::SINCE_PASCAL }
    }

    /// How it lays out blocks with an image's format; `None` where that is not known.
    fn blocks(&self, image: &Image) -> Option<BlockLinear> {
        match self.architecture {
            MAXWELL..TURING => Some(BlockLinear::BEFORE_TURING),
            TURING..BLACKWELL_2 => Some(BlockLinear::SINCE_TURING),
            // Its sectors are others for 8 and 16 bits (James Jones's modifiers for GB20x).
            BLACKWELL_2..TEGRA => {
                let planes = format::planes(image.format)?;
                let is_wide = planes.iter().all(|plane| plane.bytes >= 4);
                is_wide.then_some(BlockLinear::SINCE_TURING)
            }
            _ => None,
        }
    }
}

/// The architectures of GM10x, GP10x, TU10x and GB20x.
const MAXWELL: u32 = 0x110;
const PASCAL: u32 = 0x130;
const TURING: u32 = 0x160;
const BLACKWELL_2: u32 = 0x1b0;
/// From here on they are numbers of systems on a chip.
const TEGRA: u32 = 0xe000_0000;

/// A GPU's device, and its architecture.
fn device(client: &RmClient, card: &Card) -> rm::Result<(Object, u32)> {
    let id =
        client.ask::<NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2>(|params| params.gpuId = card.gpu_id)?;
    let mut params = NV0080_ALLOC_PARAMETERS { deviceId: id.deviceInstance, ..Record::zeroed() };
    let device = client.alloc::<NV01_DEVICE_0>(&mut params)?;
    let mut params = NV2080_ALLOC_PARAMETERS { subDeviceId: id.subDeviceInstance };
    let subdevice = device.alloc::<NV20_SUBDEVICE_0>(&mut params)?;
    let known = subdevice.ask::<NV2080_CTRL_CMD_MC_GET_ARCH_INFO>(|_| {})?;
    Ok((device, known.architecture))
}

impl Device for Gpu {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// In the blocks of its generation; engines that copy know rows as well.
    fn sets(&self, image: &Image, operation: Operation) -> Result<Vec<CapabilitySet>> {
        if !self.largest().takes(image, operation) {
            return Ok(Vec::new());
        }
        let mut constraints = vec![
            Constraint::new(ConstraintName::SIZE_ALIGNMENT, PAGE),
            Constraint::new(ConstraintName::PLACEMENT, placement::LOCAL),
        ];
        let own = |number| Constraint::new(ConstraintName::MADE_BY, number);
        constraints.extend(self.info.owner().map(own));
        let blocks = self.blocks(image).into_iter();
        let blocks = blocks.flat_map(|blocks| blocks.modifiers(image.height));
        let rows = (operation == Operation::Copy).then(Capability::pitch_linear);
        let layouts = blocks.map(Capability::modifier).chain(rows);
        Ok(layouts.map(|layout| CapabilitySet::new(constraints.clone(), [layout])).collect())
    }

    fn hints(&self, operation: Operation) -> Result<Vec<Hint>> {
        let hint = |format| self.largest().hint(format, operation);
        Ok(formats(self, operation)?.into_iter().map(hint).collect())
    }

    fn cost(&self, set: &CapabilitySet) -> u64 {
        44 - nvidia::bonus(set)
    }

    fn memory(&self) -> Option<Memory> {
        Some(MEMORY)
    }

    fn allocate(&self, description: &Description) -> Result<Buffer> {
        MEMORY.serves_of(Some(&self.info), description)?;
        let modifier = description.layout.modifier;
        let blocks = self.blocks(&description.usage.image);
        let format = match modifier {
            MODIFIER_LINEAR => PITCH,
            _ if blocks.is_some_and(|blocks| blocks.has(modifier)) => BLOCK_LINEAR,
            _ => {
                let layout = Capability::modifier(modifier);
                return Err(Error::unsupported(format!("{} has no {layout}", self.info.name)));
            }
        };
        let size = description.layout.size.checked_next_multiple_of(PAGE);
        let size = size.ok_or_else(|| Error::invalid("the size ends beyond 2⁶⁴"))?;
        let fd = self.exported(format, size).map_err(|error| rm_error(&self.info.name, &error))?;
        Buffer::new(fd, description.clone())
    }

    fn request(&self, description: &Description) -> String {
        let layout = Capability::modifier(description.layout.modifier);
        let (size, node) = (description.layout.size, &self.info.node);
        format!(
            "NV01_MEMORY_LOCAL_USER of {size} bytes as {layout}, NV_ESC_EXPORT_TO_DMABUF_FD on {node}"
        )
    }
}

/// `NVOS32_ATTR_FORMAT` and `NVOS32_ATTR_PHYSICALITY`, as `nvidia-modeset` asks for surfaces that are not shown.
const PITCH: u32 = 0;
const BLOCK_LINEAR: u32 = 2 << 16;
const NONCONTIGUOUS: u32 = 1 << 27;
/// Who the memory is of, for those who look at a heap: any number that is not 0.
const OWNER: u32 = 0x6e76_6162;

impl Gpu {
    /// Memory that lives as long as its dma-buf.
    fn exported(&self, format: u32, size: u64) -> rm::Result<OwnedFd> {
        let memory = with_driver!(self.device.driver().driver(), abi => {
            let mut params = abi::NV_MEMORY_ALLOCATION_PARAMS {
                owner: OWNER,
                attr: format | NONCONTIGUOUS,
                size,
                ..Record::zeroed()
            };
            self.device.alloc::<abi::class::NV01_MEMORY_LOCAL_USER>(&mut params)?
        });
        memory.export_dma_buf(self.minor, 0, size)
    }
}

fn rm_error(name: &str, error: &rm::Error) -> Error {
    let (kind, number) = match error.kind() {
        rm::ErrorKind::Open(_, source) => (ErrorKind::Open, source.raw_os_error()),
        rm::ErrorKind::NotInDriver | rm::ErrorKind::UnknownDriver(_) => {
            (ErrorKind::Unsupported, None)
        }
        rm::ErrorKind::Errno(number) => (ErrorKind::Call, Some(*number)),
        _ => (ErrorKind::Call, None),
    };
    match number {
        Some(number) => Error::io(kind, name, std::io::Error::from_raw_os_error(number)),
        None => Error::new(kind, format!("{name}: {error}")),
    }
}
