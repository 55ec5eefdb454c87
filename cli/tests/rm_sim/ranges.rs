//! Ranges of UVM: memory that it shows to a GPU, pools of semaphores, and memory that it manages itself.

use crate::channel::{BASE, FROM, MMU_FAULT, Rig, SIZE, TO};
use crate::client::status::*;
use crate::client::*;
use crate::rules;

/// What UVM calls the processor.
const CPU: [u8; 16] = [
    0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73,
];

/// The identity of the first GPU.
const UUID: [u8; 16] = *b"nvabi-simulated\0";

const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;
const FIXED: i32 = libc::MAP_SHARED | libc::MAP_FIXED;

/// `mmap`, at a place in the file.
fn map(
    at: u64,
    length: usize,
    [access, kind]: [i32; 2],
    (fd, offset): (Fd, u64),
) -> Result<u64, i32> {
    let (address, offset) = (at as *mut libc::c_void, offset as libc::off_t);
    let made = unsafe { libc::mmap(address, length, access, kind, fd, offset) };
    if made == libc::MAP_FAILED { Err(errno()) } else { Ok(made as u64) }
}

/// Maps what UVM has at an address in the place of what was there.
fn mapping_of(at: u64, length: usize, fd: Fd) -> Result<u64, i32> {
    map(at, length, [BOTH, FIXED], (fd, at))
}

fn unmap(at: u64, length: usize) {
    assert_eq!(unsafe { libc::munmap(at as *mut libc::c_void, length) }, 0);
}

/// Addresses of the process at which it has nothing that it needs.
fn addresses(length: usize) -> u64 {
    map(0, length, [BOTH, libc::MAP_SHARED | libc::MAP_ANONYMOUS], (-1, 0)).unwrap()
}

/// Bytes at an address.
fn seen<const N: usize>(at: u64) -> &'static mut [u8; N] {
    unsafe { &mut *(at as *mut [u8; N]) }
}

/// An address space with the first GPU in it.
fn space() -> Fd {
    let fd = open("/dev/nvidia-uvm").unwrap();
    assert_eq!(uvm(fd, "UVM_INITIALIZE", &mut Struct::new("UVM_INITIALIZE_PARAMS")), OK);
    assert_eq!(register(fd), OK);
    fd
}

fn register(fd: Fd) -> u32 {
    let mut args = Struct::new("UVM_REGISTER_GPU_PARAMS");
    args.put("gpu_uuid", &UUID);
    uvm(fd, "UVM_REGISTER_GPU", &mut args)
}

/// A call about the GPU and objects of a rig.
fn of_gpu(fd: Fd, rig: &Rig, name: &str, handles: &[(&str, u32)]) -> u32 {
    let mut args = Struct::new(&format!("{name}_PARAMS"))
        .with("rmCtrlFd", rig.client.fd as u64)
        .with("hClient", rig.client.handle.into());
    args.put("gpuUuid", &UUID);
    handles.iter().for_each(|(field, handle)| args.set(field, (*handle).into()));
    uvm(fd, name, &mut args)
}

fn register_space(fd: Fd, rig: &Rig) -> u32 {
    of_gpu(fd, rig, "UVM_REGISTER_GPU_VASPACE", &[("hVaSpace", rig.space)])
}

/// A pool of semaphores.
fn pool(fd: Fd, base: u64, length: usize) -> u32 {
    let mut args = Struct::new("UVM_ALLOC_SEMAPHORE_POOL_PARAMS")
        .with("base", base)
        .with("length", length as u64)
        .with("gpuAttributesCount", 1);
    args.put("perGpuAttributes[0].gpuUuid", &UUID);
    uvm(fd, "UVM_ALLOC_SEMAPHORE_POOL", &mut args)
}

/// A call about a range.
fn range(fd: Fd, name: &str, base: u64, length: u64) -> u32 {
    let mut args = Struct::new(&format!("{name}_PARAMS")).with("base", base);
    // Since 590 a range is freed by its base alone.
    if name != "UVM_FREE" || !is_since(&[590]) {
        args.set("length", length);
    }
    if name == "UVM_UNMAP_EXTERNAL" {
        args.put("gpuUuid", &UUID);
    }
    uvm(fd, name, &mut args)
}

/// Shows a part of the memory of a rig to the GPU.
fn show(fd: Fd, rig: &Rig, [base, length, offset]: [u64; 3], wish: (&str, u64)) -> u32 {
    let mut args = Struct::new("UVM_MAP_EXTERNAL_ALLOCATION_PARAMS")
        .with("base", base)
        .with("length", length)
        .with("offset", offset)
        .with("gpuAttributesCount", 1)
        .with("rmCtrlFd", rig.client.fd as u64)
        .with("hClient", rig.client.handle.into())
        .with("hMemory", rig.memory.into());
    args.put("perGpuAttributes[0].gpuUuid", &UUID);
    uvm(fd, "UVM_MAP_EXTERNAL_ALLOCATION", &mut args.with(wish.0, wish.1))
}

fn migrate(fd: Fd, [base, length, flags]: [u64; 3], to: &[u8; 16], semaphore: [u64; 2]) -> u32 {
    let mut args = Struct::new("UVM_MIGRATE_PARAMS")
        .with("base", base)
        .with("length", length)
        .with("flags", flags)
        .with("semaphoreAddress", semaphore[0])
        .with("semaphorePayload", semaphore[1]);
    args.put("destinationUuid", to);
    uvm(fd, "UVM_MIGRATE", &mut args)
}

rules! {
    pools_of_semaphores_are_where_the_gpu_has_them {
        let mut rig = Rig::new();
        let size = 0x20_0000_usize;
        let base = addresses(size);
        let fd = space();
        let pool = |length| pool(fd, base, length);
        assert_eq!(pool(size), OK);
        assert_eq!(pool(size), UVM_ADDRESS_IN_USE);
        // A GPU that comes later sees it as well.
        assert_eq!(register_space(fd, &rig), OK);
        assert_eq!(mapping_of(base, size / 2, fd), Err(libc::EADDRINUSE), "all of it or nothing");
        assert_eq!(mapping_of(base, size, fd), Ok(base));
        rig.bytes[FROM as usize..][..4].copy_from_slice(b"pool");
        rig.copy(BASE + FROM, base + 0x1000, 4);
        assert!(rig.is_done());
        assert_eq!(seen(base + 0x1000), b"pool");
        // The file is still that of the driver.
        assert_eq!(pool(size), UVM_ADDRESS_IN_USE);
        let free = || range(fd, "UVM_FREE", base, size as u64);
        assert_eq!(free(), INVALID_ARGUMENT, "the process has it mapped");
        unmap(base, size);
        assert_eq!(free(), OK);
        assert_eq!((pool(size), mapping_of(base, size, fd)), (OK, Ok(base)));
        assert_eq!(*seen(base + 0x1000), [0; 4], "nothing of another one is in it");
    }

    managed_memory_is_where_the_gpu_has_it {
        let mut rig = Rig::new();
        let size = 0x20_0000_usize;
        let base = addresses(2 * size);
        let fd = space();
        assert_eq!(mapping_of(base, size, fd), Ok(base));
        assert_eq!(register_space(fd, &rig), OK);
        // One more, that the GPU's space is there for.
        let other = base + size as u64;
        assert_eq!(mapping_of(other, size, fd), Ok(other));
        for at in [base + 0x1000, other + 0x1000] {
            *seen(at) = *b"managed!";
            rig.copy(at, BASE + TO, 8);
            rig.copy(BASE + TO, at + 0x2000, 8);
            assert!(rig.is_done());
            assert_eq!(seen(at + 0x2000), b"managed!");
        }
        let advice = |name: &str, base: u64, length: u64, processor: Option<(&str, &[u8; 16])>| {
            let mut args = Struct::new(&format!("{name}_PARAMS")).with("requestedBase", base).with("length", length);
            if let Some((field, uuid)) = processor {
                args.put(field, uuid);
            }
            uvm(fd, name, &mut args)
        };
        let nobody = [7; 16];
        let whole = 2 * size as u64;
        for (name, field) in [
            ("UVM_SET_PREFERRED_LOCATION", Some("preferredLocation")),
            ("UVM_UNSET_PREFERRED_LOCATION", None),
            ("UVM_SET_ACCESSED_BY", Some("accessedByUuid")),
            ("UVM_UNSET_ACCESSED_BY", Some("accessedByUuid")),
            ("UVM_ENABLE_READ_DUPLICATION", None),
            ("UVM_DISABLE_READ_DUPLICATION", None),
        ] {
            let of = |uuid| field.map(|field| (field, uuid));
            assert_eq!(advice(name, base, whole, of(&UUID)), OK, "{name}: two ranges side by side");
            assert_eq!(advice(name, base, whole, of(&CPU)), OK, "{name}");
            assert_eq!(advice(name, base, whole + 0x1000, of(&UUID)), INVALID_ADDRESS, "{name}");
            assert_eq!(advice(name, base + 8, 0x1000, of(&UUID)), INVALID_ADDRESS, "{name}");
            if field.is_some() {
                assert_eq!(advice(name, base, 0x1000, of(&nobody)), INVALID_DEVICE, "{name}");
            }
        }
        let migrate = |length, flags, to: &[u8; 16], semaphore, payload| {
            migrate(fd, [base, length, flags], to, [semaphore, payload])
        };
        assert_eq!(migrate(whole, 0, &UUID, 0, 0), OK);
        assert_eq!(migrate(whole, 0, &CPU, 0, 0), OK);
        assert_eq!(migrate(whole + 0x1000, 0, &CPU, 0, 0), INVALID_ADDRESS);
        assert_eq!(migrate(whole, 0, &nobody, 0, 0), INVALID_DEVICE);
        assert_eq!(migrate(whole, 8, &CPU, 0, 0), INVALID_ARGUMENT);
        assert_eq!(migrate(whole, 0, &CPU, base, 0), INVALID_ARGUMENT, "it would wait and tell");
        assert_eq!(migrate(whole, 1, &CPU, base, 5), INVALID_ADDRESS, "no pool of semaphores");
        assert_eq!(migrate(0, 1, &CPU, 0, 0), INVALID_ADDRESS);
        assert_eq!(seen(base + 0x1000), b"managed!");
        // Nothing else has room where it is mapped.
        let external = |at, length| range(fd, "UVM_CREATE_EXTERNAL_RANGE", at, length);
        assert_eq!(external(other + 0x1000, 0x1000), UVM_ADDRESS_IN_USE);
        // It is freed by unmapping it alone; what is mapped there then is new.
        assert_eq!(range(fd, "UVM_FREE", base, size as u64), INVALID_ADDRESS);
        assert_eq!(mapping_of(base, 0x2000, fd), Ok(base));
        assert_eq!((*seen(base + 0x1000), *seen(base + 0x3000)), ([0; 8], *b"managed!"));
        rig.copy(base + 0x3000, BASE + TO, 8);
        rig.copy(base + 0x1000, BASE + TO + 8, 8);
        assert!(rig.is_done());
        assert_eq!(&rig.bytes[TO as usize..][..16], b"managed!\0\0\0\0\0\0\0\0");
        unmap(other + 0x1000, 0x1000);
        assert_eq!(external(other + 0x1000, 0x2000), UVM_ADDRESS_IN_USE, "half of it is mapped");
        assert_eq!(external(other + 0x1000, 0x1000), OK);
        assert_eq!(external(other + 0x2000, 0x1000), UVM_ADDRESS_IN_USE);
    }

    ranges_of_uvm_show_memory_to_the_gpu {
        let mut rig = Rig::new();
        let fd = open("/dev/nvidia-uvm").unwrap();
        assert_eq!(uvm(fd, "UVM_INITIALIZE", &mut Struct::new("UVM_INITIALIZE_PARAMS")), OK);
        let range = |name: &str, base, length| range(fd, name, base, length);
        let show = |base, length, offset, memory: u32| {
            show(fd, &rig, [base, length, offset], ("hMemory", memory.into()))
        };
        let at = 0x20_0000_0000;
        assert_eq!(register_space(fd, &rig), INVALID_DEVICE);
        assert_eq!(register(fd), OK);
        let of_gpu = |name: &str, handles: &[(&str, u32)]| of_gpu(fd, &rig, name, handles);
        let wrong = of_gpu("UVM_REGISTER_GPU_VASPACE", &[("hVaSpace", rig.device)]);
        assert_eq!(wrong, INVALID_OBJECT_HANDLE);
        assert_eq!(range("UVM_CREATE_EXTERNAL_RANGE", at, 0x4000), OK);
        assert_eq!(show(at, 0x1000, 0, rig.memory), INVALID_DEVICE, "no space of addresses");
        assert_eq!(register_space(fd, &rig), OK);
        assert_eq!(register_space(fd, &rig), INVALID_DEVICE);
        let channel = [("hChannel", rig.channel)];
        assert_eq!(of_gpu("UVM_REGISTER_CHANNEL", &channel), OK);
        assert_eq!(of_gpu("UVM_REGISTER_CHANNEL", &[("hChannel", rig.device)]), INVALID_OBJECT_HANDLE);
        for (base, length, status) in [
            (at + 0x3000, 0x2000, UVM_ADDRESS_IN_USE),
            (at - 0x1000, 0x2000, UVM_ADDRESS_IN_USE),
            (at + 1, 0x1000, INVALID_ADDRESS),
            (0, 0x1000, INVALID_ADDRESS),
            (u64::MAX - 0xfff, 0x2000, INVALID_ADDRESS),
            (at + 0x4000, 0x1000, OK),
        ] {
            assert_eq!(range("UVM_CREATE_EXTERNAL_RANGE", base, length), status, "{base:#x}");
        }
        assert_eq!(show(at, 0x5000, 0, rig.memory), INVALID_ADDRESS, "two ranges");
        assert_eq!(show(at, 0x1000, 0, rig.device), INVALID_OBJECT_HANDLE);
        assert_eq!(show(at, 0x1000, SIZE as u64, rig.memory), INVALID_OFFSET);
        assert_eq!(show(at, 0x2000, FROM, rig.memory), OK);
        rig.bytes[FROM as usize..][..8].copy_from_slice(b"from uvm");
        rig.copy(at, BASE + TO, 8);
        assert!(rig.is_done());
        assert_eq!(&rig.bytes[TO as usize..][..8], b"from uvm");
        // Part of it is unmapped, the rest is there.
        assert_eq!(range("UVM_UNMAP_EXTERNAL", at, 0x1000), OK);
        rig.copy(at + 0x1000, BASE + TO, 8);
        assert!(rig.is_done());
        if !is_since(&[590]) {
            assert_eq!(range("UVM_FREE", at, 0x1000), INVALID_ADDRESS, "not all of it");
        }
        assert_eq!(range("UVM_FREE", at, 0x4000), OK);
        assert_eq!(range("UVM_FREE", at, 0x4000), INVALID_ADDRESS);
        rig.copy(at + 0x1000, BASE + TO, 8);
        assert_eq!(rig.error(), MMU_FAULT);
    }

    memory_is_mapped_only_as_the_driver_does_it {
        let (fd, size) = (space(), 0x4000_usize);
        let base = addresses(2 * size);
        assert_eq!(mapping_of(base, size, fd), Ok(base));
        seen::<8>(base).copy_from_slice(b"managed!");
        let other = base + size as u64;
        let exclusive = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
        let private = libc::MAP_PRIVATE | libc::MAP_FIXED;
        for (at, [access, kind], offset, error) in [
            (base, [BOTH, exclusive], base, libc::EEXIST),
            (base, [BOTH, libc::MAP_SHARED], base, libc::EINVAL),
            (other, [libc::PROT_READ, FIXED], other, libc::EINVAL),
            (other, [libc::PROT_WRITE, FIXED], other, libc::EINVAL),
            (other, [BOTH, private], other, libc::EINVAL),
            (other, [BOTH, FIXED], base, libc::EINVAL),
        ] {
            let made = map(at, size, [access, kind], (fd, offset));
            assert_eq!(made, Err(error), "{access} {kind:#x} at {at:#x} of {offset:#x}");
        }
        // Of another process nothing is mapped, although it has the file.
        assert!(crate::passes_in_child(&|| {
            assert_eq!(mapping_of(base, size, fd), Err(libc::EOPNOTSUPP));
        }));
        assert_eq!(seen(base), b"managed!", "nothing of that has changed it");
        let none = open("/dev/nvidia-uvm").unwrap();
        assert_eq!(mapping_of(other, size, none), Err(libc::EBADFD));
        // A wish that can be fulfilled, and a length that is no whole page.
        unmap(other, size);
        assert_eq!(map(other, 0x1001, [BOTH, libc::MAP_SHARED], (fd, other)), Ok(other));
        let mut rig = Rig::new();
        assert_eq!(register_space(fd, &rig), OK);
        seen::<8>(other + 0x1ff8).copy_from_slice(b"the last");
        rig.copy(other + 0x1ff8, BASE + TO, 8);
        assert!(rig.is_done());
        assert_eq!(&rig.bytes[TO as usize..][..8], b"the last");
        rig.copy(other + 0x2000, BASE + TO, 8);
        assert_eq!(rig.error(), MMU_FAULT);
    }

    what_no_process_maps_is_forgotten {
        let mut rig = Rig::new();
        let (fd, page) = (space(), 0x1000_usize);
        assert_eq!(register_space(fd, &rig), OK);
        let base = addresses(1000 * page);
        let place = |round: usize| base + (2 * round * page) as u64;
        for round in 0..300 {
            assert_eq!(mapping_of(place(round), page, fd), Ok(place(round)));
            seen::<8>(place(round)).copy_from_slice(b"managed!");
            if round != 1 {
                unmap(place(round), page);
            }
        }
        rig.copy(place(1), BASE + TO, 8);
        assert!(rig.is_done(), "this one is still there");
        assert_eq!(&rig.bytes[TO as usize..][..8], b"managed!");
        rig.copy(place(0), BASE + TO, 8);
        assert_eq!(rig.error(), MMU_FAULT);
    }

    a_gpu_that_leaves_takes_all_of_its_own {
        let mut rig = Rig::new();
        let (fd, size, at) = (space(), 0x4000, 0x20_0000_0000);
        assert_eq!(register_space(fd, &rig), OK);
        let channel = |rig: &Rig| of_gpu(fd, rig, "UVM_REGISTER_CHANNEL", &[("hChannel", rig.channel)]);
        let leave = |name: &str, field: &str| {
            let mut args = Struct::new(&format!("{name}_PARAMS"));
            args.put(field, &UUID);
            uvm(fd, name, &mut args)
        };
        assert_eq!(range(fd, "UVM_CREATE_EXTERNAL_RANGE", at, size), OK);
        assert_eq!(show(fd, &rig, [at, size, FROM], ("offset", FROM)), OK);
        assert_eq!((channel(&rig), channel(&rig)), (OK, INVALID_CHANNEL));
        assert_eq!(leave("UVM_UNREGISTER_GPU_VASPACE", "gpuUuid"), OK);
        assert_eq!((register_space(fd, &rig), channel(&rig)), (OK, OK));
        assert_eq!(leave("UVM_UNREGISTER_GPU", "gpu_uuid"), OK);
        assert_eq!(register_space(fd, &rig), INVALID_DEVICE);
        assert_eq!((register(fd), register_space(fd, &rig), channel(&rig)), (OK, OK, OK));
        rig.copy(at, BASE + TO, 8);
        assert_eq!(rig.error(), MMU_FAULT, "what was mapped is not any more");
    }

    attributes_of_mappings_come_first {
        let rig = Rig::new();
        let (fd, at) = (space(), 0x20_0000_0000);
        assert_eq!(range(fd, "UVM_CREATE_EXTERNAL_RANGE", at, 0x1000), OK);
        let show = |name: &str, value| {
            show(fd, &rig, [at, 0x1000, 0], (&format!("perGpuAttributes[0].{name}"), value))
        };
        for (name, last, refused) in [
            ("gpuMappingType", 3, 4),
            ("gpuCachingType", 2, 3),
            ("gpuFormatType", 1, 2),
            ("gpuElementBits", 6, 7),
            ("gpuElementBits", 4, 3),
            ("gpuCompressionType", 1, 2),
        ] {
            assert_eq!(show(name, refused), INVALID_ARGUMENT, "{name}");
            assert_eq!(show(name, last), INVALID_DEVICE, "{name}: the GPU has no space of addresses");
        }
        assert_eq!(register_space(fd, &rig), OK);
        assert_eq!(show("gpuMappingType", 3), OK);
    }

    a_migration_of_nothing_releases_its_semaphore {
        let rig = Rig::new();
        let (fd, size) = (space(), 0x1000_usize);
        assert_eq!(register_space(fd, &rig), OK);
        let base = addresses(size);
        assert_eq!((pool(fd, base, size), mapping_of(base, size, fd)), (OK, Ok(base)));
        for (at, payload) in [(0, 5_u32), (base, 6)] {
            assert_eq!(migrate(fd, [at, 0, 1], &UUID, [base + 8, payload.into()]), OK);
            assert_eq!(*seen(base + 8), payload.to_le_bytes());
        }
    }
}
