//! `nvabi::rm` and `nvabi::uvm` on simulated drivers, through real system calls: this test starts itself
//! as the program that the driver is simulated for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

use std::fs;
use std::io::{Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use nvabi::call::{Call, CallKind};
use nvabi::driver::{AnyDriver, Compat, Record, Used};
use nvabi::r595::class::{NV01_DEVICE_0, NV01_MEMORY_SYSTEM, NV20_SUBDEVICE_0};
use nvabi::r595::control::{
    NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION,
    NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2, NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION,
    NV2080_CTRL_CMD_EVENT_SET_TRIGGER, NV2080_CTRL_CMD_GPU_GET_GID_INFO,
    NV2080_CTRL_CMD_GPU_QUERY_ECC_STATUS,
};
use nvabi::r595::frontend::{NV_ESC_ATTACH_GPUS_TO_FD, NV_ESC_CHECK_VERSION_STR};
use nvabi::r595::uvm::{
    UVM_DEINITIALIZE, UVM_DESTROY_RANGE_GROUP, UVM_DISCARD, UVM_PAGEABLE_MEM_ACCESS,
    UVM_UNREGISTER_CHANNEL, UVM_VALIDATE_VA_RANGE,
};
use nvabi::r595::{
    NV_MEMORY_ALLOCATION_PARAMS, NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_PARAMS,
    NV01_EVENT_WITHOUT_EVENT_DATA, NV0080_ALLOC_PARAMETERS, NV2080_ALLOC_PARAMETERS,
    NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION_DISABLE,
    NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION_REPEAT, NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS,
    NV2080_NOTIFIERS_SW, UVM_DESTROY_RANGE_GROUP_PARAMS, UVM_PAGEABLE_MEM_ACCESS_PARAMS,
    UVM_VALIDATE_VA_RANGE_PARAMS, nv_ioctl_rm_api_version_t,
};
use nvabi::rm::{Access, Error, ErrorKind, Event, NodeName, Object, OsEvent, RmClient};
use nvabi::uvm::{Uvm, UvmObject};
use nvabi::{NvStatus, P64, Uuid, ioctl, r515, with_driver};
use nvabi_test::{Need, only_as_child, skip};
use serde_json::Value;

#[path = "../../examples/driver_info.rs"]
#[allow(dead_code)]
mod driver_info;

test_main!();

const ROLE: &str = "NVABI_TEST_CLIENT";
const PARTS: usize = 11;

/// One tag of each form that the calls have had, and the oldest and the newest.
const TAGS: [&str; 5] = ["515.43.04", "535.43.02", "550.90.07", "570.124.06", "595.45.04"];

// --- The programs -----------------------------------------------------------------------------

type Part = fn() -> nvabi::rm::Result<()>;

/// The program: each part in turn, told on stderr.
#[test]
fn client() {
    only_as_child(ROLE);
    driver_info::run(true).unwrap_or_else(|error| panic!("info: {error}"));
    let parts: [(&str, Part); PARTS] = [
        ("calls", calls),
        ("transfers", transfers),
        ("objects", objects),
        ("threads", threads),
        ("errors", errors),
        ("memory", memory),
        ("dma-buf", dma_buf),
        ("events", events),
        ("unified", unified),
        ("absent", absent),
        ("between", between),
    ];
    for (name, part) in parts {
        part().unwrap_or_else(|error| panic!("{name}: {error}"));
        eprintln!("passed: {name}");
    }
    std::process::exit(0);
}

/// A device of the first GPU, while its node is open.
struct Device {
    client: RmClient,
    device: Object,
    _node: std::os::fd::OwnedFd,
}

fn open() -> nvabi::rm::Result<Device> {
    let client = RmClient::open()?;
    let card = client.cards()?[0];
    let node = client.open_gpu(card.minor)?;
    let id =
        client.ask::<NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2>(|params| params.gpuId = card.gpu_id)?;
    let device = client.alloc::<NV01_DEVICE_0>(&mut NV0080_ALLOC_PARAMETERS {
        deviceId: id.deviceInstance,
        ..Record::zeroed()
    })?;
    Ok(Device { client, device, _node: node })
}

fn subdevice(device: &Object) -> nvabi::rm::Result<Object> {
    device.alloc::<NV20_SUBDEVICE_0>(&mut NV2080_ALLOC_PARAMETERS { subDeviceId: 0 })
}

/// A client on an fd that was open, an ioctl that the module has nothing for, rights that are asked
/// for, and a command with pointers.
fn calls() -> nvabi::rm::Result<()> {
    let client = {
        // SAFETY: `control_node` has opened `/dev/nvidiactl`.
        unsafe { RmClient::from_fd(control_node().into(), Compat::Exact)? }
    };
    let mut query = nv_ioctl_rm_api_version_t::zeroed();
    let version = client.driver().version().to_owned();
    query.versionString[..version.len()].copy_from_slice(version.as_bytes());
    // SAFETY: there are no addresses in the parameters.
    unsafe { client.frontend::<NV_ESC_CHECK_VERSION_STR, _>(&mut query)? };
    assert_eq!(query.reply, 1);

    let (mut own, mut branch, mut title) = ([0_u8; 64], [0_u8; 64], [0_u8; 64]);
    let mut params = NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_PARAMS {
        sizeOfStrings: 64,
        pDriverVersionBuffer: P64(own.as_mut_ptr() as u64),
        pVersionBuffer: P64(branch.as_mut_ptr() as u64),
        pTitleBuffer: P64(title.as_mut_ptr() as u64),
        ..Record::zeroed()
    };
    // SAFETY: each of the three has as many bytes as it says.
    unsafe {
        client.control_with_pointers::<NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION>(&mut params)?;
    }
    let text = own.iter().chain(&branch).map(|byte| char::from(*byte)).collect::<String>();
    assert!(text.contains(&version), "{text:?} has no {version}");

    let Device { client: _client, device, _node } = open()?;
    let sub = device.alloc_with_rights::<NV20_SUBDEVICE_0>(
        &mut NV2080_ALLOC_PARAMETERS { subDeviceId: 0 },
        0,
    )?;
    sub.free()?;

    // A client is freed by hand as well.
    client.free()
}

fn control_node() -> fs::File {
    fs::OpenOptions::new().read(true).write(true).open("/dev/nvidiactl").unwrap()
}

/// Parameters that are too large for a request go by another ioctl, up to what the driver takes.
fn transfers() -> nvabi::rm::Result<()> {
    let gpu = RmClient::open()?.cards()?[0].gpu_id;
    let attach = |count: usize| {
        let node = control_node();
        let mut ids = vec![0_u32; count];
        ids[count - 1] = gpu;
        // SAFETY: the ioctl reads the ids, and `node` is of the machine's driver, which has it.
        let called = unsafe {
            ioctl::frontend_array::<NV_ESC_ATTACH_GPUS_TO_FD, u32>(node.as_fd(), &mut ids)
        };
        called.map_err(|error| error.raw_os_error())
    };
    assert_eq!(attach(1), Ok(()));
    assert_eq!(attach(4095), Ok(()));
    assert_eq!(attach(4096), Ok(()), "16 KiB is more than a request can say");
    assert_eq!(attach(4097), Err(Some(libc::EINVAL)));
    Ok(())
}

/// Children go before their parents, whoever lets go first.
fn objects() -> nvabi::rm::Result<()> {
    let Device { client, device, _node } = open()?;
    let sub = subdevice(&device)?;
    assert_eq!((device.name().class, sub.name().class_name), (0x80, "NV20_SUBDEVICE_0"));
    assert_eq!(sub.client(), client.handle());

    // The parent is let go of first, and is there as long as its child.
    let (device_handle, sub_handle) = (device.handle(), sub.handle());
    let error = device.free().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InUse), "{error}");
    let text = error.to_string();
    assert!(
        text.starts_with("NV_ESC_RM_FREE (ioctl 0x29) on 0x4e000001 (NV01_DEVICE_0)"),
        "{text}"
    );
    sub.ask::<NV2080_CTRL_CMD_GPU_GET_GID_INFO>(|params| params.flags = 2)?;
    sub.free()?;

    // Both are gone: a client has one device of a GPU, and their handles come back.
    let device = client.alloc::<NV01_DEVICE_0>(&mut Record::zeroed())?;
    let sub = subdevice(&device)?;
    let handles = [device.handle(), sub.handle()];
    assert!(handles.contains(&device_handle) && handles.contains(&sub_handle), "{handles:?}");

    // The client goes last, though it is dropped first.
    drop(client);
    sub.ask::<NV2080_CTRL_CMD_GPU_GET_GID_INFO>(|params| params.flags = 2)?;
    drop(device);
    sub.free()
}

/// Threads make and free objects of one client at once.
fn threads() -> nvabi::rm::Result<()> {
    const THREADS: usize = 4;
    let Device { client: _client, device, _node } = open()?;
    let (device, start) = (&device, &Barrier::new(THREADS));
    thread::scope(|scope| {
        let work = || -> nvabi::rm::Result<()> {
            start.wait();
            for round in 0..20 {
                let kept: Result<Vec<_>, _> =
                    (0..=round % 3).map(|_| buffer(device, 4096)).collect();
                let handles: Vec<_> = kept?.iter().map(Object::handle).collect();
                assert!(handles.windows(2).all(|pair| pair[0] != pair[1]));
            }
            Ok(())
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap())
    })
}

/// Memory of the system.
fn buffer(device: &Object, size: u64) -> nvabi::rm::Result<Object> {
    // NVOS32_ATTR_LOCATION_PCI.
    const IN_SYSTEM: u32 = 1 << 25;
    with_driver!(device.driver().driver(), abi => {
        let mut params = abi::NV_MEMORY_ALLOCATION_PARAMS {
            owner: 1,
            attr: IN_SYSTEM,
            size,
            ..Record::zeroed()
        };
        device.alloc::<abi::class::NV01_MEMORY_SYSTEM>(&mut params)
    })
}

/// The two ways to be refused, and what an error says.
fn errors() -> nvabi::rm::Result<()> {
    let Device { client, device, _node } = open()?;
    let version = client.driver().version().to_owned();

    // By the resource manager: a class below what it cannot be below, and a command of another class.
    let sub = subdevice(&device)?;
    let error = subdevice(&sub).unwrap_err();
    assert_eq!(error.status(), Some(NvStatus::NV_ERR_INVALID_OBJECT_PARENT));
    assert_eq!(error.errno(), None);
    let text = format!(
        "NV20_SUBDEVICE_0 (class 0x2080) below {} (NV20_SUBDEVICE_0): NV_ERR_INVALID_OBJECT_PARENT \
         (0x36) (driver {version})",
        sub.handle()
    );
    assert_eq!(error.to_string(), text);
    let call = error.call_name().unwrap();
    assert_eq!((call.name, call.kind, call.number), ("NV20_SUBDEVICE_0", CallKind::Class, 0x2080));
    assert_eq!(error.object_name(), Some(sub.name()));
    assert_eq!(error.driver().unwrap().version(), version);

    let error = device.ask::<NV2080_CTRL_CMD_GPU_GET_GID_INFO>(|_| {}).map(drop).unwrap_err();
    assert!(error.status().is_some() && error.errno().is_none(), "{error}");
    let text = format!(
        "NV2080_CTRL_CMD_GPU_GET_GID_INFO (command 0x2080014a) on {} (NV01_DEVICE_0): NV_ERR_",
        device.handle()
    );
    assert!(error.to_string().starts_with(&text), "{error}");

    // The handle of what was not made is given out again.
    let next = client.alloc::<NV01_DEVICE_0>(&mut Record::zeroed()).unwrap_err();
    assert!(next.status().is_some(), "{next}");
    drop(sub);
    assert!(subdevice(&device).is_ok());

    // By the kernel: an fd that is no control node's.
    let null = std::fs::File::open("/dev/null").unwrap();
    let error = client.register_fd(null.as_fd()).unwrap_err();
    assert_eq!((error.errno(), error.status()), (Some(libc::ENOTTY), None));
    let text = "NV_ESC_REGISTER_FD (ioctl 0xc9): Inappropriate ioctl for device (os error 25)";
    assert_eq!(error.to_string(), format!("{text} (driver {version})"));
    let error = client.register_fd(client.control_fd()).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EINVAL), "{error}");
    let error = client.open_gpu(77).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Open(path, _) if path == "/dev/nvidia77"), "{error}");
    assert!(error.to_string().ends_with(&format!(" (driver {version})")), "{error}");
    let error = client.os_event(NodeName::Gpu(77)).unwrap_err();
    assert_eq!(error.driver().map(|driver| driver.version()), Some(&*version), "{error}");
    let memory = buffer(&device, 4096)?;
    let node = NodeName::Gpu(77);
    let error = memory.map_memory(&device, node, 0, 4096, Access::ReadOnly).unwrap_err();
    assert_eq!(error.driver().map(|driver| driver.version()), Some(&*version), "{error}");
    Ok(())
}

/// Memory that the CPU sees, by two names.
fn memory() -> nvabi::rm::Result<()> {
    const SIZE: usize = 3 * 4096;
    let Device { client: _client, device, _node } = open()?;
    let memory = buffer(&device, SIZE as u64)?;
    let map = |memory: &Object, offset, length| {
        memory.map_memory(&device, NodeName::Control, offset, length, Access::ReadWrite)
    };
    let whole = map(&memory, 0, SIZE as u64)?;
    assert_eq!((whole.len(), whole.is_empty()), (SIZE, false));
    // SAFETY: nothing else is there, and nobody else writes it.
    unsafe { whole.as_ptr().add(4096).write_bytes(0x5a, 16) };
    let twin = device.dup_object(&memory, 0)?;
    assert_ne!(twin.handle(), memory.handle());
    let middle = map(&twin, 4096, 4096)?;
    // SAFETY: the mapping is 4096 bytes long, and nobody writes it while `seen` is borrowed.
    let seen = unsafe { std::slice::from_raw_parts(middle.as_ptr(), 17) };
    assert_eq!((seen[..16].to_vec(), seen[16]), (vec![0x5a; 16], 0));

    for (offset, length) in [(0, 0), (1, 4096), (4096, 100)] {
        let error = map(&memory, offset, length).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Invalid(_)), "{error}");
    }
    let error = map(&memory, SIZE as u64, 4096).unwrap_err();
    assert!(error.status().is_some(), "{error}");
    let text =
        format!("NV_ESC_RM_MAP_MEMORY (ioctl 0x4e) on {} (NV01_MEMORY_SYSTEM)", memory.handle());
    assert!(error.to_string().starts_with(&text), "{error}");

    // A mapping keeps its memory.
    let error = memory.free().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InUse), "{error}");
    drop(whole);
    drop(twin);
    drop(middle);
    let read_only = buffer(&device, 4096)?;
    read_only.map_memory(&device, NodeName::Control, 0, 4096, Access::ReadOnly)?;
    read_only.free()
}

/// Memory of a GPU that other devices can have.
fn dma_buf() -> nvabi::rm::Result<()> {
    let Device { client, device, _node } = open()?;
    let minor = client.cards()?[0].minor;
    let memory = with_driver!(device.driver().driver(), abi => {
        let size = 4 * 4096;
        let mut params =
            abi::NV_MEMORY_ALLOCATION_PARAMS { owner: 1, size, ..Record::zeroed() };
        device.alloc::<abi::class::NV01_MEMORY_LOCAL_USER>(&mut params)?
    });
    let whole = memory.export_dma_buf(minor, 0, 4 * 4096)?;
    let part = memory.export_dma_buf(minor, 4096, 4096)?;
    let size = |fd| fs::File::from(fd).seek(SeekFrom::End(0)).unwrap();
    assert_eq!((size(whole), size(part)), (4 * 4096, 4096));

    let error = memory.export_dma_buf(minor, 1, 4096).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Invalid(_)), "{error}");
    // The memory is a page of 64 KiB.
    let error = memory.export_dma_buf(minor, 4096, 64 << 10).unwrap_err();
    assert_eq!(error.status(), Some(NvStatus::NV_ERR_INVALID_ARGUMENT), "{error}");
    let text = format!(
        "NV_ESC_EXPORT_TO_DMABUF_FD (ioctl 0xd9) on {} (NV01_MEMORY_LOCAL_USER)",
        memory.handle()
    );
    assert!(error.to_string().starts_with(&text), "{error}");
    let error = memory.export_dma_buf(77, 0, 4096).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Open(..)), "{error}");
    let error = buffer(&device, 4096)?.export_dma_buf(minor, 0, 4096).unwrap_err();
    assert_eq!(error.status(), Some(NvStatus::NV_ERR_INVALID_ARGUMENT), "{error}");
    memory.free()
}

/// A subdevice tells files of what happens to it, as long as it is asked to.
fn events() -> nvabi::rm::Result<()> {
    let Device { client, device, _node } = open()?;
    let sub = subdevice(&device)?;
    for node in [NodeName::Control, NodeName::Gpu(0)] {
        let event = client.os_event(node)?;
        is_silent(&event)?;
        let subscription = event.subscribe(&sub, NV2080_NOTIFIERS_SW)?;
        assert_eq!(subscription.object().name().class_name, "NV01_EVENT_OS_EVENT");
        happens(&sub)?;
        is_silent(&event)?;

        arm(&sub, NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION_REPEAT)?;
        let told = |more| Event {
            subscription: subscription.object().handle(),
            notify_index: NV2080_NOTIFIERS_SW,
            info32: 0,
            info16: 0,
            more,
        };
        happens(&sub)?;
        happens(&sub)?;
        assert!(event.wait(Duration::ZERO)?);
        assert_eq!((event.take()?, event.take()?), (told(true), told(false)));
        is_silent(&event)?;
        thread::scope(|scope| {
            let waits = scope.spawn(|| event.wait(Duration::from_secs(10)));
            thread::sleep(Duration::from_millis(20));
            happens(&sub)?;
            assert!(waits.join().unwrap()?);
            assert_eq!(event.take()?, told(false));
            Ok::<_, Error>(())
        })?;

        arm(&sub, NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION_DISABLE)?;
        happens(&sub)?;
        is_silent(&event)?;
        arm(&sub, NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION_REPEAT)?;
        let error = arm(&sub, NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION_REPEAT).unwrap_err();
        assert_eq!(error.status(), Some(NvStatus::NV_ERR_INVALID_STATE), "{error}");
        drop(subscription);
        happens(&sub)?;
        is_silent(&event)?;

        let subscription =
            event.subscribe(&sub, NV2080_NOTIFIERS_SW | NV01_EVENT_WITHOUT_EVENT_DATA)?;
        happens(&sub)?;
        assert!(event.wait(Duration::ZERO)?, "of what has no data, a file tells no more than this");
        is_silent(&event)?;
        arm(&sub, NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION_DISABLE)?;
        drop(event);
        // The file is there as long as what names it.
        drop(subscription);
    }
    let error = arm(&sub, NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION_REPEAT).unwrap_err();
    assert_eq!(error.status(), Some(NvStatus::NV_ERR_INVALID_STATE), "nobody is told: {error}");
    sub.free()
}

fn arm(sub: &Object, action: u32) -> nvabi::rm::Result<()> {
    let event = NV2080_NOTIFIERS_SW;
    let params = |p: &mut NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS| {
        (p.event, p.action) = (event, action);
    };
    sub.ask::<NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION>(params).map(|_| ())
}

/// Something that programs can let happen.
fn happens(sub: &Object) -> nvabi::rm::Result<()> {
    sub.control::<NV2080_CTRL_CMD_EVENT_SET_TRIGGER>(&mut ())
}

fn is_silent(event: &OsEvent) -> nvabi::rm::Result<()> {
    assert!(!event.wait(Duration::from_millis(1))?);
    let error = event.take().unwrap_err();
    assert_eq!(error.status(), Some(NvStatus::NV_ERR_OPERATING_SYSTEM), "{error}");
    Ok(())
}

fn unified() -> nvabi::rm::Result<()> {
    let Device { client, device, _node } = open()?;
    let sub = subdevice(&device)?;
    let gid = sub.ask::<NV2080_CTRL_CMD_GPU_GET_GID_INFO>(|params| params.flags = 2)?;
    let uuid = Uuid(gid.data[..16].try_into().unwrap());
    let memory = Uvm::open(&client, 0)?;
    let mut params = UVM_PAGEABLE_MEM_ACCESS_PARAMS::zeroed();
    memory.call::<UVM_PAGEABLE_MEM_ACCESS>(&mut params)?;
    memory.register_gpu(&client, uuid)?;
    memory.unregister_gpu(uuid)?;
    let error = memory.unregister_gpu(uuid).unwrap_err();
    assert_eq!(error.status(), Some(NvStatus::NV_ERR_INVALID_DEVICE), "{error}");
    assert_eq!(error.uvm_object(), Some(UvmObject::Gpu(uuid)));
    let start = format!("UVM_UNREGISTER_GPU (UVM ioctl 0x26) on GPU-{uuid}: NV_ERR_INVALID_DEVICE");
    assert!(error.to_string().starts_with(&start), "{error}");
    unified_errors(&memory);
    // A call without parameters.
    memory.call::<UVM_DEINITIALIZE>(&mut ())
}

/// Each error says what the call was about.
fn unified_errors(memory: &Uvm) {
    let mut params = UVM_DESTROY_RANGE_GROUP_PARAMS { rangeGroupId: 77, ..Record::zeroed() };
    let error = memory.call::<UVM_DESTROY_RANGE_GROUP>(&mut params).unwrap_err();
    let start =
        "UVM_DESTROY_RANGE_GROUP (UVM ioctl 0x18) on range group 77: NV_ERR_OBJECT_NOT_FOUND";
    assert!(error.to_string().starts_with(start), "{error}");

    let mut params =
        UVM_VALIDATE_VA_RANGE_PARAMS { base: 0x7000_0000, length: 0x1000, ..Record::zeroed() };
    let error = memory.call::<UVM_VALIDATE_VA_RANGE>(&mut params).unwrap_err();
    let range = UvmObject::Range { base: 0x7000_0000, length: Some(0x1000) };
    assert_eq!(error.uvm_object(), Some(range), "{error}");
    assert!(
        error.to_string().contains(" on 0x1000 bytes at 0x70000000: NV_ERR_INVALID_ADDRESS"),
        "{error}"
    );
}

/// What the driver has otherwise, or not at all, is not asked of it.
fn absent() -> nvabi::rm::Result<()> {
    let Device { client, device, _node } = open()?;
    let is = |error: &Error| matches!(error.kind(), ErrorKind::NotInDriver);
    let driver = client.driver().clone();
    // The list has had five lengths.
    let listed = device.ask::<NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2>(|_| {});
    assert_eq!(listed.is_ok(), driver.has::<NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2>());
    if let Err(error) = listed {
        assert!(is(&error), "{error}");
        let text = "NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2 (command 0x800292) on ";
        assert!(error.to_string().starts_with(text), "{error}");
        assert!(error.to_string().contains(": the driver has no such call (driver "), "{error}");
    }
    let old = device.alloc::<r515::class::TURING_CHANNEL_GPFIFO_A>(&mut Record::zeroed());
    if !driver.has::<r515::class::TURING_CHANNEL_GPFIFO_A>() {
        assert!(is(&old.unwrap_err()));
    }
    // Unified memory has it since 580.
    let discarded = Uvm::open(&client, 0)?.call::<UVM_DISCARD>(&mut Record::zeroed());
    if !driver.has::<UVM_DISCARD>() {
        let error = discarded.unwrap_err();
        assert!(is(&error), "{error}");
        assert!(error.to_string().starts_with("UVM_DISCARD (UVM ioctl "), "{error}");
    }
    assert_eq!(NV01_MEMORY_SYSTEM::INFO.number, 0x3e);
    let mut params = NV_MEMORY_ALLOCATION_PARAMS::zeroed();
    let made = device.alloc::<NV01_MEMORY_SYSTEM>(&mut params);
    assert_eq!(is(&made.unwrap_err()), !driver.has::<NV01_MEMORY_SYSTEM>());
    Ok(())
}

/// On a driver that the build has, what it may be instead does not count.
fn between() -> nvabi::rm::Result<()> {
    const USES: &[Used] = &[Used::call::<r515::class::TURING_CHANNEL_GPFIFO_A>()];
    let client = RmClient::open_with(Compat::SameAbi(USES))?;
    assert!(client.driver().other().is_none());
    Ok(())
}

/// The program on a driver that the build does not have.
#[test]
fn client_of_another_version() {
    only_as_child(ROLE);
    let done = match nvabi::rm::installed().as_deref() {
        Some(BETWEEN) => in_between(),
        _ => outside(),
    };
    done.unwrap_or_else(|error| panic!("{error}"));
    std::process::exit(0);
}

/// Behind every tag that 580 will have.
const BETWEEN: &str = "580.9999.01";

/// The newest tag before it and the first behind it, which are not alike.
fn neighbours() -> (&'static str, &'static str) {
    let below = AnyDriver::all().iter().rfind(|driver| driver.branch() == "580").unwrap();
    let above = AnyDriver::all().iter().find(|driver| driver.branch() == "590").unwrap();
    (below.tag(), above.tag())
}

/// It is served as its neighbours have it, whichever of them it is.
fn in_between() -> nvabi::rm::Result<()> {
    let (below, above) = neighbours();
    const ALIKE: &[Used] = &[Used::call::<NV01_DEVICE_0>(), Used::call::<NV20_SUBDEVICE_0>()];
    const OTHERWISE: &[Used] =
        &[Used::call::<NV01_DEVICE_0>(), Used::call::<NV2080_CTRL_CMD_GPU_QUERY_ECC_STATUS>()];
    let error = RmClient::open().unwrap_err();
    let start = format!("driver {BETWEEN} is not in this build");
    assert!(error.to_string().starts_with(&start), "{error}");
    let error = RmClient::open_with(Compat::SameAbi(OTHERWISE)).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "driver {BETWEEN} is not in this build, and its neighbours {below} and {above} differ \
             in NV2080_CTRL_CMD_GPU_QUERY_ECC_STATUS"
        )
    );

    let client = RmClient::open_with(Compat::SameAbi(ALIKE))?;
    let driver = client.driver();
    let other = driver.other().map(|other| other.tag());
    let told = (driver.version(), driver.driver().tag(), other);
    assert_eq!(told, (BETWEEN, below, Some(above)));
    let node = client.open_gpu(0)?;
    let device = client.alloc::<NV01_DEVICE_0>(&mut Record::zeroed())?;
    let sub = subdevice(&device)?;
    sub.ask::<NV2080_CTRL_CMD_GPU_GET_GID_INFO>(|params| params.flags = 2)?;
    // What was not named is looked at when it is asked for.
    let error = sub.ask::<NV2080_CTRL_CMD_GPU_QUERY_ECC_STATUS>(|_| {}).map(|_| ()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotInDriver), "{error}");
    let text = error.to_string();
    let start = "NV2080_CTRL_CMD_GPU_QUERY_ECC_STATUS (command 0x2080012f) on ";
    let end = format!("(driver {BETWEEN})");
    assert!(text.starts_with(start) && text.ends_with(&end), "{text}");
    let memory = Uvm::open(&client, 0)?;
    memory.call::<UVM_PAGEABLE_MEM_ACCESS>(&mut Record::zeroed())?;
    let error = memory.call::<UVM_UNREGISTER_CHANNEL>(&mut Record::zeroed()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotInDriver), "{error}");
    drop(node);
    driver_info::run(true).unwrap_or_else(|error| panic!("info: {error}"));
    Ok(())
}

/// No two drivers of the build stand on both sides.
fn outside() -> nvabi::rm::Result<()> {
    let error = RmClient::open_with(Compat::SameAbi(&[])).unwrap_err();
    assert!(error.to_string().contains(" is not between two of this build: "), "{error}");
    Ok(())
}

// --- The test -----------------------------------------------------------------------------------

/// Runs a program on a simulated driver.
fn simulated(client: &str, args: &[&str], report: &Path) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_nvabi"))
        .args(["rm", "sim", "--gpus", "2", "--report"])
        .arg(report)
        .args(args)
        .arg("--")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", client, "--nocapture"])
        .env(ROLE, "1")
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("does not permit") {
        skip(Need::Supervise, stderr);
    }
    output
}

/// The example of a client, on this machine's own driver.
#[test]
fn a_gpu_of_this_machine_is_described() {
    // Programs of root make the node where there is no driver.
    if let Err(error) = fs::File::open("/dev/nvidiactl") {
        skip(Need::Gpu, format!("/dev/nvidiactl: {error}"));
    }
    let client = RmClient::open_with(Compat::SameAbi(&[])).unwrap();
    let loaded = fs::read_to_string("/proc/driver/nvidia/version").unwrap();
    assert!(loaded.contains(&client.driver().version().to_string()), "{loaded}");
    assert!(client.cards().unwrap().iter().any(|card| client.open_gpu(card.minor).is_ok()));
    drop(client);
    driver_info::run(true).unwrap();
}

/// What was made was freed, once each, and what was mapped was unmapped.
fn is_all_freed(report: &Value) {
    let calls = report["calls"].as_object().unwrap();
    let done = |name: &str| -> u64 {
        let call = &calls[name];
        let refused = call["errors"].as_object().unwrap().values().filter_map(Value::as_u64);
        call["total"].as_u64().unwrap() - refused.sum::<u64>()
    };
    let is_class = |name: &&String| ["NV01_", "NV20_"].iter().any(|start| name.starts_with(start));
    let made: u64 = calls.keys().filter(is_class).map(|name| done(name)).sum();
    assert!(made > 100, "{report:#}");
    assert_eq!(made + done("NV_ESC_RM_DUP_OBJECT"), done("NV_ESC_RM_FREE"), "{report:#}");
    assert_eq!(calls["NV_ESC_RM_FREE"]["total"], done("NV_ESC_RM_FREE"), "{report:#}");
    assert_eq!(done("NV_ESC_RM_MAP_MEMORY"), done("NV_ESC_RM_UNMAP_MEMORY"), "{report:#}");
}

/// One binary on drivers of every form: all is as it should be, and nothing is left behind.
#[test]
fn one_binary_calls_every_driver() {
    let folder = tempfile::tempdir().unwrap();
    for tag in TAGS {
        let report = folder.path().join(tag);
        let output = simulated("client", &["--tag", tag], &report);
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{tag}:\n{stderr}");
        assert_eq!(stderr.matches("passed: ").count(), PARTS, "{tag}:\n{stderr}");
        is_all_freed(&serde_json::from_slice(&fs::read(&report).unwrap()).unwrap());
        for text in [
            &format!("driver {tag}\n"),
            "2 cards, 2 attached\n",
            "GPU 0x100: NVIDIA ",
            "  node    /dev/nvidia1\n",
            "  uuid    GPU-6e76",
            "  pci     0000:01:00.0 10de:",
            " MiB are free, ",
            "    NV20_SUBDEVICE_0\n",
        ] {
            assert!(stdout.contains(text), "{tag} does not tell {text:?}:\n{stdout}");
        }
    }
}

/// One that lies between two of the build is served as both have it; others are refused.
#[test]
fn a_version_of_its_own_is_served_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = |tag, version| {
        let args = ["--tag", tag, "--version", version];
        let output = simulated("client_of_another_version", &args, &folder.path().join("report"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{version} as {tag}:\n{stderr}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (below, above) = neighbours();
    let first = format!("driver {BETWEEN}, by what {below} and {above} have alike\n");
    for tag in [below, above] {
        let stdout = run(tag, BETWEEN);
        for text in [&first, "2 cards, 2 attached\n", "GPU 0x200: NVIDIA "] {
            assert!(stdout.contains(text), "{tag} does not tell {text:?}:\n{stdout}");
        }
    }
    for version in ["999.1", "1.2.3"] {
        run("550.90.07", version);
    }
}
