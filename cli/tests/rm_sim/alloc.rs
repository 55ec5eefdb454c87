//! Clients and their objects.

use libc::EINVAL;

use crate::client::status::*;
use crate::client::*;
use crate::rules;

fn free_on(fd: Fd, client: u32, object: u32) -> u32 {
    let mut args = Struct::new("NVOS00_PARAMETERS")
        .with("hRoot", client.into())
        .with("hObjectOld", object.into());
    assert_eq!(escape(fd, 0x29, &mut args), Ok(()));
    args.get("status") as u32
}

pub(crate) fn duplicate(client: &Client, parent: u32, from: (u32, u32)) -> (u32, u32) {
    let mut args = Struct::new("NVOS55_PARAMETERS")
        .with("hClient", client.handle.into())
        .with("hParent", parent.into())
        .with("hClientSrc", from.0.into())
        .with("hObjectSrc", from.1.into());
    assert_eq!(escape(client.fd, 0x34, &mut args), Ok(()));
    (args.get("status") as u32, args.get("hObject") as u32)
}

rules! {
    both_structs_make_the_same_client {
        let fd = control_file();
        for record in ["NVOS21_PARAMETERS", "NVOS64_PARAMETERS"] {
            for class in [0, 1, ROOT] {
                let (status, handle) = alloc_in(record, fd, [0, 0, 0, class], None).unwrap();
                assert_eq!((status, handle >> 16), (OK, 0xc1d0), "{record} {class}");
            }
        }
        assert_eq!(raw(fd, request(0x2b, 44), &mut [0; 44]), Err(EINVAL), "a third size");
    }

    a_client_may_choose_its_handle {
        let fd = control_file();
        assert_eq!(alloc_on(fd, [0x1234, 0, 0, ROOT], None), (OK, 0x1234));
        assert_eq!(alloc_on(fd, [0x1234, 0, 0, ROOT], None).0, INSERT_DUPLICATE_NAME);
    }

    clients_are_of_their_control_file {
        let client = Client::new();
        let other = control_file();
        assert_eq!(free_on(other, client.handle, client.handle), INVALID_CLIENT);
        let gpu = open("/dev/nvidia0").unwrap();
        let args = [client.handle, client.handle, 5, DEVICE];
        let params = &mut device_params(0);
        let refused = alloc_in("NVOS21_PARAMETERS", gpu, args, Some(params));
        assert_eq!(refused, Err(EINVAL), "no file but that makes devices");
        assert_eq!(alloc_on(other, args, Some(params)).0, INVALID_CLIENT);
    }

    a_gpu_is_there_while_its_file_is_open {
        let client = Client::new();
        let device = |instance| client.alloc(client.handle, DEVICE, Some(&mut device_params(instance)));
        // Older drivers look for the GPU later, and say otherwise.
        let (asleep, beyond) = match is_since(&[550, 40, 7]) {
            true => (INVALID_STATE, INVALID_ARGUMENT),
            false => (INVALID_CLASS, INVALID_CLASS),
        };
        assert_eq!((device(0), device(32)), (Err(asleep), Err(beyond)));
        let gpu = open("/dev/nvidia0").unwrap();
        assert!(device(0).is_ok());
        assert_eq!(device(1), Err(asleep), "there is one GPU");
        unsafe { libc::close(gpu) };
    }

    a_device_needs_parameters_since_550 {
        open("/dev/nvidia0").unwrap();
        let client = Client::new();
        let made = client.alloc(client.handle, DEVICE, None);
        assert_eq!(made.is_err(), is_since(&[550, 40, 7]));
        assert!(made.is_ok() || made == Err(INVALID_ARGUMENT));
    }

    a_client_has_each_device_once {
        let (client, device, _) = Client::with_device();
        let again = client.alloc(client.handle, DEVICE, Some(&mut device_params(0)));
        assert_eq!(again, Err(INSUFFICIENT_RESOURCES));
        assert_eq!(client.alloc(device, SUBDEVICE, None), Err(INSUFFICIENT_RESOURCES));
        assert!(Client::with_device().0.free(1) == OK, "another client has its own");
    }

    subdevices_have_instances {
        open("/dev/nvidia0").unwrap();
        let client = Client::new();
        let device = client.alloc(client.handle, DEVICE, Some(&mut device_params(0))).unwrap();
        let params = Struct::new("NV2080_ALLOC_PARAMETERS").with("subDeviceId", 1);
        assert_eq!(client.alloc(device, SUBDEVICE, Some(&mut params.clone())), Err(INVALID_CLASS));
        let params = params.with("subDeviceId", 0);
        assert!(client.alloc(device, SUBDEVICE, Some(&mut params.clone())).is_ok());
    }

    handles_are_used_once {
        let (client, device, _) = Client::with_device();
        let memory = || Some(memory_params(SYSTEM_MEMORY, 4096));
        let make = |handle| client.alloc_as(device, handle, SYSTEM_MEMORY, memory().as_mut());
        assert_eq!(make(7), Ok(7));
        assert_eq!(make(7), Err(INSERT_DUPLICATE_NAME));
        assert_eq!(make(device), Err(INSERT_DUPLICATE_NAME));
        assert_eq!(make(client.handle), Err(INVALID_OBJECT_PARENT), "the client's is a root's");
        assert_eq!(make(0xc9f0_0001), Err(INVALID_OBJECT_HANDLE), "kept for the firmware");
        let chosen = make(0).unwrap();
        assert_eq!(chosen >> 16, 0xcaf0);
        assert_ne!(make(0), Ok(chosen));
    }

    parents_must_be_there_and_fit {
        let (client, device, subdevice) = Client::with_device();
        let params = || memory_params(SYSTEM_MEMORY, 4096);
        assert_eq!(client.alloc(0x999, SYSTEM_MEMORY, Some(&mut params())), Err(OBJECT_NOT_FOUND));
        assert_eq!(client.alloc(0, SUBDEVICE, None), Err(OBJECT_NOT_FOUND));
        for (parent, class) in [(client.handle, SUBDEVICE), (subdevice, SUBDEVICE)] {
            assert_eq!(client.alloc(parent, class, None), Err(INVALID_OBJECT_PARENT));
        }
        let device_of_device = client.alloc(device, DEVICE, Some(&mut device_params(0)));
        assert_eq!(device_of_device, Err(INVALID_OBJECT_PARENT));
        let memory = client.alloc(subdevice, SYSTEM_MEMORY, Some(&mut params()));
        assert_eq!(memory, Err(INVALID_OBJECT_PARENT));
        let memory = client.alloc(subdevice, VIDEO_MEMORY, Some(&mut memory_params(VIDEO_MEMORY, 1)));
        assert!(memory.is_ok(), "a GPU's own memory may be below either");
    }

    classes_must_be_there_and_played {
        let client = Client::new();
        assert_eq!(client.alloc(client.handle, 0x1234, None), Err(INVALID_CLASS));
        // NV01_CONTEXT_DMA.
        let mut params = Struct::new("NV_CONTEXT_DMA_ALLOCATION_PARAMS");
        assert_eq!(client.alloc(client.handle, 0x2, Some(&mut params)), Err(NOT_SUPPORTED));
        assert_eq!(client.alloc(client.handle, 0x2, None), Err(INVALID_ARGUMENT));
    }

    clients_must_be_there {
        let client = Client::new();
        let alloc = |handle| alloc_on(client.fd, [handle, handle, 5, SUBDEVICE], None).0;
        // A list is searched up to the first that is greater.
        assert_eq!(alloc(client.handle + 0x400), INVALID_OBJECT_HANDLE);
        assert_eq!(alloc(client.handle & 0x3ff), INVALID_OBJECT);
        assert_eq!(free_on(client.fd, client.handle + 0x400, 1), INVALID_OBJECT_HANDLE);
    }

    parameters_must_be_readable {
        let client = Client::new();
        let mut args = Struct::new("NVOS21_PARAMETERS")
            .with("hRoot", client.handle.into())
            .with("hObjectParent", client.handle.into())
            .with("hObjectNew", 5)
            .with("hClass", DEVICE.into())
            .with("pAllocParms", 8);
        assert_eq!(escape(client.fd, 0x2b, &mut args), Ok(()));
        assert_eq!(args.get("status") as u32, INVALID_ADDRESS);
    }

    freeing_a_parent_frees_its_children {
        let (client, device, subdevice) = Client::with_device();
        let memory = client.alloc(device, SYSTEM_MEMORY, Some(&mut memory_params(SYSTEM_MEMORY, 1)));
        let memory = memory.unwrap();
        assert_eq!(client.free(device), OK);
        let mut params = Struct::new("NV2080_CTRL_MC_GET_ARCH_INFO_PARAMS");
        let arch = "NV2080_CTRL_CMD_MC_GET_ARCH_INFO";
        assert_eq!(client.control(subdevice, arch, &mut params), OBJECT_NOT_FOUND);
        assert_eq!(client.alloc_as(client.handle, memory, DEVICE, Some(&mut device_params(0))), Ok(memory));
    }

    freeing_what_is_not_there_is_fine {
        let client = Client::new();
        assert_eq!(client.free(0x999), OK);
        assert_eq!(client.free(client.handle), OK);
        assert_eq!(client.free(client.handle), INVALID_OBJECT_HANDLE);
    }

    memory_is_asked_for_as_the_driver_wants {
        let (client, device, _) = Client::with_device();
        let ask = |class, change: (&str, u64)| {
            let mut params = memory_params(class, 10_000).with(change.0, change.1);
            client.alloc(device, class, Some(&mut params)).map(|_| params)
        };
        let params = ask(SYSTEM_MEMORY, ("width", 1)).ok().unwrap();
        assert_eq!((params.get("size"), params.get("limit")), (12_288, 12_287), "whole pages");
        assert!(ask(VIDEO_MEMORY, ("width", 1)).is_ok());
        for (class, change, status) in [
            (SYSTEM_MEMORY, ("owner", 0), INVALID_OWNER),
            (SYSTEM_MEMORY, ("owner", 0xffff_ffff), INVALID_OWNER),
            (SYSTEM_MEMORY, ("attr", 0), INVALID_ARGUMENT),
            (VIDEO_MEMORY, ("attr", 1 << 25), INVALID_ARGUMENT),
            (SYSTEM_MEMORY, ("flags", 0x8_0000), INVALID_ARGUMENT),
            (SYSTEM_MEMORY, ("size", 0), INVALID_ARGUMENT),
            (VIDEO_MEMORY, ("size", 1 << 40), NO_MEMORY),
            (SYSTEM_MEMORY, ("size", u64::MAX), NO_MEMORY),
        ] {
            assert_eq!(ask(class, change).err(), Some(status), "{change:?}");
        }
        assert_eq!(client.alloc(device, SYSTEM_MEMORY, None), Err(INVALID_ARGUMENT));
    }

    memory_is_copied_and_nothing_else {
        let (client, device, subdevice) = Client::with_device();
        let memory = client.alloc(device, SYSTEM_MEMORY, Some(&mut memory_params(SYSTEM_MEMORY, 1)));
        let memory = memory.unwrap();
        let (other, own, _) = Client::with_device();
        let (status, copy) = duplicate(&other, own, (client.handle, memory));
        assert_eq!((status, copy >> 16), (OK, 0xcaf0));
        let from = client.handle;
        assert_eq!(duplicate(&other, own, (from, device)).0, INVALID_ARGUMENT);
        assert_eq!(duplicate(&other, own, (from, subdevice)).0, INVALID_ARGUMENT);
        assert_eq!(duplicate(&other, own, (from, 0x999)).0, OBJECT_NOT_FOUND);
        assert_eq!(duplicate(&other, 0x999, (from, memory)).0, OBJECT_NOT_FOUND);
        assert_eq!(duplicate(&other, other.handle, (from, memory)).0, INVALID_OBJECT_PARENT);
        assert_eq!(duplicate(&other, own, (from + 0x400, memory)).0, INVALID_OBJECT_HANDLE);
    }

    another_process_has_no_right_to_memory {
        let (client, device, _) = Client::with_device();
        let memory = client.alloc(device, SYSTEM_MEMORY, Some(&mut memory_params(SYSTEM_MEMORY, 1)));
        let memory = memory.unwrap();
        assert!(crate::passes_in_child(&|| {
            let (other, own, _) = Client::with_device();
            let (status, _) = duplicate(&other, own, (client.handle, memory));
            assert_eq!(status, INSUFFICIENT_PERMISSIONS);
        }));
    }

    a_right_is_given_and_taken {
        let (client, device, _) = Client::with_device();
        let memory = client.alloc(device, SYSTEM_MEMORY, Some(&mut memory_params(SYSTEM_MEMORY, 1)));
        let memory = memory.unwrap();
        let share = |object: u32, kind: u64, target: u32, action: u64| {
            let mut args = Struct::new("NVOS57_PARAMETERS")
                .with("hClient", client.handle.into())
                .with("hObject", object.into())
                .with("sharePolicy.target", target.into())
                .with("sharePolicy.accessMask.limbs", 1)
                .with("sharePolicy.type", kind)
                .with("sharePolicy.action", action)
                .with("status", 0xdead);
            assert_eq!(escape(client.fd, 0x35, &mut args), Ok(()));
            args.get("status") as u32
        };
        let others = |expected: u32| {
            crate::passes_in_child(&|| {
                let (other, own, _) = Client::with_device();
                assert_eq!(duplicate(&other, own, (client.handle, memory)).0, expected);
            })
        };
        let (all, process, revoke, compose) = (1, 4, 1, 4);
        assert_eq!(share(memory, all, 0, 0), OK);
        assert!(others(OK));
        assert_eq!(share(memory, all, 0, revoke | compose), OK);
        assert!(others(INSUFFICIENT_PERMISSIONS));
        assert_eq!(share(memory, process, std::process::id(), 0), OK);
        assert!(others(INSUFFICIENT_PERMISSIONS), "another process is meant");
        assert_eq!(share(memory, all, 0, compose), OK);
        assert!(others(OK));
        // Without that it is the one policy.
        assert_eq!(share(memory, process, 1, 0), OK);
        assert!(others(INSUFFICIENT_PERMISSIONS));
        assert_eq!(share(memory, 8, 0, 0), INVALID_ARGUMENT);
        assert_eq!(share(0x999, all, 0, 0), OBJECT_NOT_FOUND);
    }

    a_files_memory_is_no_others {
        let (client, device, _) = Client::with_device();
        let alloc = |size| client.alloc(device, VIDEO_MEMORY, Some(&mut memory_params(VIDEO_MEMORY, size)));
        // The largest power of two that the GPU has: there is none beside it.
        let fits = |size: &u64| alloc(*size).is_ok_and(|memory| client.free(memory) == OK);
        let size = (20..63).map(|bits| 1 << bits).take_while(fits).last().unwrap();
        let alloc = || alloc(size);
        let (memory, file) = (alloc().unwrap(), control_file());
        assert_eq!(alloc(), Err(NO_MEMORY));
        let mut params = Struct::new("NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS")
            .with("fd", file as u64)
            .with("object.type", 1)
            .with("object.data.rmObject.hDevice", device.into())
            .with("object.data.rmObject.hParent", device.into())
            .with("object.data.rmObject.hObject", memory.into());
        let name = "NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD";
        assert_eq!((client.control(client.handle, name, &mut params), client.free(memory)), (OK, OK));
        assert_eq!(alloc(), Err(NO_MEMORY), "the file has it");
        assert_eq!(unsafe { libc::close(file) }, 0);
        // That the file is released is seen a moment later.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while alloc().is_err() {
            assert!(std::time::Instant::now() < end, "it has been closed");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    a_file_stands_for_memory {
        let (client, device, _) = Client::with_device();
        let alloc = |class: u32, size: u64| {
            client.alloc(device, class, Some(&mut memory_params(class, size))).unwrap()
        };
        let (memory, other_memory) = (alloc(VIDEO_MEMORY, 0x3000), alloc(SYSTEM_MEMORY, 0x1000));
        let call = |client: &Client, name: &str, params: &mut Struct| {
            client.control(client.handle, &format!("NV0000_CTRL_CMD_OS_UNIX_{name}"), params)
        };
        let one = |name: &str, fd: Fd, parent: u32, object: u32| {
            let params = Struct::new(&format!("NV0000_CTRL_OS_UNIX_{name}_PARAMS"))
                .with("fd", fd as u64)
                .with("object.type", 1)
                .with("object.data.rmObject.hParent", parent.into())
                .with("object.data.rmObject.hObject", object.into());
            if name.starts_with("EX") { params.with("object.data.rmObject.hDevice", parent.into()) } else { params }
        };
        let export = |fd: Fd, device: u32, object: u32| {
            call(&client, "EXPORT_OBJECT_TO_FD", &mut one("EXPORT_OBJECT_TO_FD", fd, device, object))
        };
        let (file, several, gpu) = (control_file(), control_file(), open("/dev/nvidia0").unwrap());
        assert_eq!(export(gpu, device, memory), INVALID_PARAMETER, "a GPU's file");
        assert_eq!(export(file, device, 0x999), OBJECT_NOT_FOUND);
        assert_eq!(export(file, device, device), INVALID_ARGUMENT);
        let info = |client: &Client, fd: Fd| {
            let mut params = Struct::new("NV0000_CTRL_OS_UNIX_GET_EXPORT_OBJECT_INFO_PARAMS").with("fd", fd as u64);
            let status = call(client, "GET_EXPORT_OBJECT_INFO", &mut params);
            (status, params.get("maxObjects"), params.get("deviceInstance"))
        };
        assert_eq!(info(&client, file).0, INVALID_PARAMETER, "it stands for nothing yet");
        assert_eq!(export(file, device, memory), OK);
        assert_eq!(export(file, device, memory), STATE_IN_USE);
        let mut params = Struct::new("NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS")
            .with("fd", several as u64)
            .with("hDevice", device.into())
            .with("maxObjects", 3)
            .with("numObjects", 2)
            .with("index", 1);
        params.put("metadata", b"what it is");
        params.put("objects", &[memory.to_le_bytes(), other_memory.to_le_bytes()].concat());
        assert_eq!(call(&client, "EXPORT_OBJECTS_TO_FD", &mut params), OK);
        params.set("index", 2);
        assert_eq!(call(&client, "EXPORT_OBJECTS_TO_FD", &mut params), OUT_OF_RANGE);
        let bytes = crate::mapping::shown(&client, device, memory, 0x3000, "/dev/nvidia0");
        bytes[..8].copy_from_slice(b"exported");
        // Its owner frees it: the file still has it.
        assert_eq!(client.free(memory), OK);
        assert!(crate::passes_in_child(&|| {
            let (other, own, _) = Client::with_device();
            let import = |fd: Fd, parent: u32| {
                let mut params = one("IMPORT_OBJECT_FROM_FD", fd, parent, 0);
                let status = call(&other, "IMPORT_OBJECT_FROM_FD", &mut params);
                (status, params.get("object.data.rmObject.hObject") as u32)
            };
            assert_eq!((info(&other, file), info(&other, several)), ((OK, 1, 0), (OK, 3, 0)));
            let (status, memory) = import(file, own);
            assert_eq!(status, OK);
            assert_eq!(&crate::mapping::shown(&other, own, memory, 0x3000, "/dev/nvidia0")[..8], b"exported");
            assert_eq!(import(file, other.handle).0, INVALID_OBJECT_PARENT);
            assert_eq!(import(several, own).0, INVALID_PARAMETER, "several");
            assert_eq!(import(control_file(), own).0, INVALID_PARAMETER, "none");
            let mut params = Struct::new("NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS")
                .with("fd", several as u64)
                .with("hParent", own.into())
                .with("numObjects", 3);
            assert_eq!(call(&other, "IMPORT_OBJECTS_FROM_FD", &mut params), OK);
            assert_eq!(params.field("objectTypes")[..3], [0, 1, 2], "none, of the GPU, of the system");
            let handles: Vec<u32> =
                params.field("objects")[..12].chunks(4).map(|it| u32::from_le_bytes(it.try_into().unwrap())).collect();
            assert!(handles[0] == 0 && handles[1] != 0 && handles[2] != 0);
            assert_eq!(&crate::mapping::shown(&other, own, handles[1], 0x3000, "/dev/nvidia0")[..8], b"exported");
            params.set("numObjects", 4);
            assert_eq!(call(&other, "IMPORT_OBJECTS_FROM_FD", &mut params), OUT_OF_RANGE);
        }));
    }
}
