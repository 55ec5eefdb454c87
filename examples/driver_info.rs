//! What the machine's driver and its GPUs are, by calls of the resource manager: the version, and for
//! each GPU its name, UUID, place on the bus, classes and memory.
//!
//! `cargo run --features rm,all-drivers --example driver_info [-- --classes]`, on a machine with a GPU
//! or by `nvabi rm sim -- …/driver_info`. It works for all drivers of the build, and for those between
//! two of them that are alike in all that is used here.

use std::error::Error;
use std::process::ExitCode;

use nvabi::call::{Call, CallKind};
use nvabi::driver::{Compat, Record, Used};
// Those that all drivers have alike. What changes from driver to driver is named by `with_driver!`.
use nvabi::r595::class::{NV01_DEVICE_0, NV20_SUBDEVICE_0};
use nvabi::r595::control::{
    NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2,
    NV2080_CTRL_CMD_BUS_GET_PCI_INFO, NV2080_CTRL_CMD_GPU_GET_GID_INFO,
};
use nvabi::r595::{
    NV0000_CTRL_GPU_INVALID_ID, NV0080_ALLOC_PARAMETERS, NV2080_ALLOC_PARAMETERS,
    NV2080_CTRL_FB_INFO_INDEX_BUS_WIDTH, NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE,
    NV2080_CTRL_FB_INFO_INDEX_HEAP_SIZE, NV2080_CTRL_FB_INFO_INDEX_RAM_SIZE,
    NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_BINARY,
};
use nvabi::rm::{Card, ErrorKind, Object, RmClient};
use nvabi::{NvStatus, Uuid, with_driver};

/// What a driver between two must have as both do.
const USES: &[Used] = &[
    Used::call::<NV01_DEVICE_0>(),
    Used::call::<NV20_SUBDEVICE_0>(),
    Used::call::<NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS>(),
    Used::call::<NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2>(),
    Used::call::<NV2080_CTRL_CMD_BUS_GET_PCI_INFO>(),
    Used::call::<NV2080_CTRL_CMD_GPU_GET_GID_INFO>(),
];

fn main() -> ExitCode {
    let classes = std::env::args().any(|arg| arg == "--classes");
    match run(classes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

pub(crate) fn run(classes: bool) -> Result<(), Box<dyn Error>> {
    let client = RmClient::open_with(Compat::SameAbi(USES))?;
    let driver = client.driver();
    match driver.other() {
        None => println!("driver {}", driver.version()),
        Some(other) => {
            let below = driver.driver().tag();
            println!("driver {}, by what {below} and {} have alike", driver.version(), other.tag());
        }
    }
    let cards = client.cards()?;
    // A GPU is attached while its node is open.
    let nodes: Result<Vec<_>, _> = cards.iter().map(|card| client.open_gpu(card.minor)).collect();
    let nodes = nodes?;
    let attached = client.ask::<NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS>(|_| {})?.gpuIds;
    let attached: Vec<u32> =
        attached.into_iter().take_while(|id| *id != NV0000_CTRL_GPU_INVALID_ID).collect();
    println!("{} cards, {} attached", cards.len(), attached.len());
    for card in cards.iter().filter(|card| attached.contains(&card.gpu_id)) {
        gpu(&client, card, classes)?;
    }
    drop(nodes);
    Ok(())
}

fn gpu(client: &RmClient, card: &Card, classes: bool) -> Result<(), Box<dyn Error>> {
    let id = client.ask::<NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2>(|params| {
        params.gpuId = card.gpu_id;
    })?;
    let mut params = NV0080_ALLOC_PARAMETERS { deviceId: id.deviceInstance, ..Record::zeroed() };
    let device = client.alloc::<NV01_DEVICE_0>(&mut params)?;
    let mut params = NV2080_ALLOC_PARAMETERS { subDeviceId: id.subDeviceInstance };
    let subdevice = device.alloc::<NV20_SUBDEVICE_0>(&mut params)?;

    println!("GPU {:#x}: {}", card.gpu_id, or_not_known(name(&subdevice))?);
    println!("  node    /dev/nvidia{}", card.minor);
    println!("  uuid    GPU-{}", uuid(&subdevice)?);
    let pci = subdevice.ask::<NV2080_CTRL_CMD_BUS_GET_PCI_INFO>(|_| {})?;
    println!(
        "  pci     {} {:04x}:{:04x} revision {:02x}, subsystem {:08x}",
        card.pci,
        pci.pciDeviceId & 0xffff,
        pci.pciDeviceId >> 16,
        pci.pciRevisionId,
        pci.pciSubSystemId
    );
    println!("  memory  {}", or_not_known(memory(&subdevice))?);
    println!("  classes {}", or_not_known(class_list(&device, classes))?);
    device_is_freed_last(subdevice, device)
}

/// Frees what was made, the child first, to see that it worked; dropping does the same.
fn device_is_freed_last(subdevice: Object, device: Object) -> Result<(), Box<dyn Error>> {
    subdevice.free()?;
    device.free()?;
    Ok(())
}

/// A question that this driver or this GPU does not know is no reason to stop.
fn or_not_known(answer: nvabi::rm::Result<String>) -> nvabi::rm::Result<String> {
    match answer {
        Err(error) if matches!(error.kind(), ErrorKind::NotInDriver) => {
            Ok("not in this driver".to_owned())
        }
        Err(error) if error.status() == Some(NvStatus::NV_ERR_NOT_SUPPORTED) => {
            Ok("not supported".to_owned())
        }
        answer => answer,
    }
}

fn name(subdevice: &Object) -> nvabi::rm::Result<String> {
    with_driver!(subdevice.driver().driver(), abi => {
        let params = subdevice.ask::<abi::control::NV2080_CTRL_CMD_GPU_GET_NAME_STRING>(|_| {})?;
        // SAFETY: the name is in ASCII unless the flags ask otherwise.
        #[allow(unused_unsafe, reason = "a union in most drivers, a struct in others")]
        Ok(text(unsafe { &params.gpuNameString.ascii }))
    })
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn uuid(subdevice: &Object) -> Result<Uuid, Box<dyn Error>> {
    let params = subdevice.ask::<NV2080_CTRL_CMD_GPU_GET_GID_INFO>(|params| {
        params.flags = NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_BINARY;
    })?;
    let bytes = params.data.get(..params.length as usize).ok_or("the UUID is too long")?;
    Ok(Uuid(bytes.try_into()?))
}

fn memory(subdevice: &Object) -> nvabi::rm::Result<String> {
    let asked = [
        NV2080_CTRL_FB_INFO_INDEX_RAM_SIZE,
        NV2080_CTRL_FB_INFO_INDEX_HEAP_SIZE,
        NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE,
        NV2080_CTRL_FB_INFO_INDEX_BUS_WIDTH,
    ];
    let [ram, heap, free, width] = with_driver!(subdevice.driver().driver(), abi => {
        let params = subdevice.ask::<abi::control::NV2080_CTRL_CMD_FB_GET_INFO_V2>(|params| {
            params.fbInfoListSize = asked.len() as u32;
            for (info, index) in params.fbInfoList.iter_mut().zip(asked) {
                info.index = index;
            }
        })?;
        std::array::from_fn(|at| params.fbInfoList[at].data)
    });
    let mib = |kib: u32| kib / 1024;
    Ok(format!(
        "{} MiB, heap {} MiB of which {} MiB are free, {width} bits wide",
        mib(ram),
        mib(heap),
        mib(free)
    ))
}

fn class_list(device: &Object, all: bool) -> nvabi::rm::Result<String> {
    let driver = device.driver().driver();
    let numbers: Vec<u32> = with_driver!(driver, abi => {
        let params = device.ask::<abi::control::NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2>(|_| {})?;
        params.classList.iter().take(params.numClasses as usize).copied().collect()
    });
    let name = |number: &u32| match driver.calls().find(CallKind::Class, *number) {
        Some(info) => info.name.to_owned(),
        None => format!("{number:#x}"),
    };
    let known = numbers.iter().filter(|number| driver.class(**number).is_some()).count();
    let mut text = format!("{}, {known} of them by name", numbers.len());
    if all {
        numbers.iter().for_each(|number| text.push_str(&format!("\n    {}", name(number))));
    }
    Ok(text)
}

/// The compiler sees that nothing here is said of one driver alone.
const _: () = assert!(NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS::VIEWS.are_all());
