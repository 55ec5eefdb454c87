//! Unified memory.

use libc::EINVAL;

use crate::client::status::*;
use crate::client::*;
use crate::rules;

pub(crate) const UUID: [u8; 16] = *b"nvabi-simulated\0";

fn uvm_file() -> Fd {
    open("/dev/nvidia-uvm").unwrap()
}

fn initialize(fd: Fd, flags: u64) -> u32 {
    uvm(fd, "UVM_INITIALIZE", &mut Struct::new("UVM_INITIALIZE_PARAMS").with("flags", flags))
}

pub(crate) fn space() -> Fd {
    let fd = uvm_file();
    assert_eq!(initialize(fd, 0), OK);
    fd
}

fn keep(fd: Fd, other: Fd) -> u32 {
    let mut args = Struct::new("UVM_MM_INITIALIZE_PARAMS").with("uvmFd", other as u64);
    uvm(fd, "UVM_MM_INITIALIZE", &mut args)
}

pub(crate) fn register(fd: Fd, uuid: [u8; 16]) -> u32 {
    let mut args = Struct::new("UVM_REGISTER_GPU_PARAMS");
    args.put("gpu_uuid", &uuid);
    uvm(fd, "UVM_REGISTER_GPU", &mut args)
}

pub(crate) fn unregister(fd: Fd, uuid: [u8; 16]) -> u32 {
    let mut args = Struct::new("UVM_UNREGISTER_GPU_PARAMS");
    args.put("gpu_uuid", &uuid);
    uvm(fd, "UVM_UNREGISTER_GPU", &mut args)
}

rules! {
    a_file_becomes_an_address_space {
        let fd = uvm_file();
        let mut access = Struct::new("UVM_PAGEABLE_MEM_ACCESS_PARAMS").with("pageableMemAccess", 9);
        assert_eq!(uvm(fd, "UVM_PAGEABLE_MEM_ACCESS", &mut access), ILLEGAL_ACTION);
        assert_eq!(initialize(fd, 1 << 60), INVALID_ARGUMENT);
        assert_eq!(initialize(fd, 0), OK);
        assert_eq!(initialize(fd, 0), OK, "the same again");
        assert_eq!(initialize(fd, 1), INVALID_ARGUMENT);
        assert_eq!(uvm(fd, "UVM_PAGEABLE_MEM_ACCESS", &mut access), OK);
        assert_eq!(access.get("pageableMemAccess"), 0);
    }

    an_address_space_is_kept_once {
        if driver().layout("UVM_MM_INITIALIZE_PARAMS").is_none() {
            // Older drivers have no such call: its number is 0x4b in all that have it.
            assert_eq!(raw(uvm_file(), 0x4b, &mut [0; 64]), Err(EINVAL));
            return;
        }
        let (fd, other) = (uvm_file(), space());
        assert_eq!(keep(fd, 999), INVALID_ARGUMENT);
        assert_eq!(keep(fd, control_file()), INVALID_ARGUMENT);
        assert_eq!(keep(fd, uvm_file()), INVALID_ARGUMENT, "it is none yet");
        assert_eq!(keep(other, other), IN_USE);
        assert_eq!(keep(fd, other), OK);
        assert_eq!(keep(fd, other), IN_USE);
        assert_eq!(keep(uvm_file(), other), INVALID_STATE);
        assert_eq!(initialize(fd, 0), INVALID_ARGUMENT);
        let shared = uvm_file();
        assert_eq!(initialize(shared, 2), OK);
        assert_eq!(keep(uvm_file(), shared), WARN_NOTHING_TO_DO);
    }

    gpus_are_registered_once {
        let fd = space();
        assert_eq!(register(fd, [1; 16]), GPU_UUID_NOT_FOUND);
        assert_eq!(unregister(fd, UUID), INVALID_DEVICE);
        assert_eq!(register(fd, UUID), OK);
        assert_eq!(register(fd, UUID), INVALID_DEVICE);
        let client = Client::new();
        let device = || client.alloc(client.handle, DEVICE, Some(&mut device_params(0)));
        assert!(device().is_ok(), "it is awake");
        assert_eq!(unregister(fd, UUID), OK);
        assert_eq!(unregister(fd, UUID), INVALID_DEVICE);
        assert_eq!(register(uvm_file(), UUID), ILLEGAL_ACTION);
    }

    groups_have_numbers {
        let fd = space();
        let create = || {
            let mut args = Struct::new("UVM_CREATE_RANGE_GROUP_PARAMS");
            assert_eq!(uvm(fd, "UVM_CREATE_RANGE_GROUP", &mut args), OK);
            args.get("rangeGroupId")
        };
        let destroy = |id| {
            let mut args = Struct::new("UVM_DESTROY_RANGE_GROUP_PARAMS").with("rangeGroupId", id);
            uvm(fd, "UVM_DESTROY_RANGE_GROUP", &mut args)
        };
        assert_eq!((create(), create()), (1, 2));
        assert_eq!((destroy(1), destroy(1), destroy(3)), (OK, OBJECT_NOT_FOUND, OBJECT_NOT_FOUND));
    }

    what_newer_drivers_have_is_answered {
        let fd = space();
        let has = |name: &str| driver().layout(name).is_some();
        if has("UVM_CLEAR_ALL_ACCESS_COUNTERS_PARAMS") {
            let mut args = Struct::new("UVM_CLEAR_ALL_ACCESS_COUNTERS_PARAMS").with("rmStatus", 9);
            assert_eq!(uvm(fd, "UVM_CLEAR_ALL_ACCESS_COUNTERS", &mut args), OK);
        }
        if has("UVM_ALLOC_DEVICE_P2P_PARAMS") {
            let mut args = Struct::new("UVM_ALLOC_DEVICE_P2P_PARAMS").with("base", 0x1000);
            let mut ask = |length, uuid: &[u8; 16]| {
                args.set("length", length);
                args.put("gpuUuid", uuid);
                uvm(fd, "UVM_ALLOC_DEVICE_P2P", &mut args)
            };
            assert_eq!((ask(1, &UUID), ask(0x1000, &UUID)), (INVALID_ARGUMENT, INVALID_DEVICE));
            assert_eq!(register(fd, UUID), OK);
            assert_eq!(ask(0x1000, &UUID), NOT_SUPPORTED);
        }
    }

    what_is_not_played_says_so {
        let fd = uvm_file();
        let mut args = Struct::new("UVM_PAGEABLE_MEM_ACCESS_ON_GPU_PARAMS");
        assert_eq!(uvm(fd, "UVM_PAGEABLE_MEM_ACCESS_ON_GPU", &mut args), ILLEGAL_ACTION);
        assert_eq!(initialize(fd, 0), OK);
        assert_eq!(uvm(fd, "UVM_PAGEABLE_MEM_ACCESS_ON_GPU", &mut args), NOT_SUPPORTED);
        assert_eq!(raw(fd, 0x7777, &mut [0; 64]), Err(EINVAL), "no such call");
        assert_eq!(raw(fd, 1, &mut [0; 64]), Err(EINVAL), "in the headers alone");
        assert_eq!(raw_at(fd, 0x3000_0002, 0), Ok(()), "UVM_DEINITIALIZE");
    }
}
