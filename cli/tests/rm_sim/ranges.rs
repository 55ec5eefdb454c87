//! Ranges of UVM: memory that it shows to a GPU, pools of semaphores, and memory that it manages itself.

use crate::channel::{BASE, FROM, MMU_FAULT, Rig, SIZE, TO};
use crate::client::status::*;
use crate::client::*;
use crate::rules;

/// What UVM calls the processor.
const CPU: [u8; 16] = [
    0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73,
];

/// The identity of the first GPU, and of the second.
const UUID: [u8; 16] = *b"nvabi-simulated\0";
const OTHER: [u8; 16] = *b"nvabi-simulated\x01";

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
    crate::uvm::register(fd, UUID)
}

/// UVM_ENABLE_PEER_ACCESS, or UVM_DISABLE_PEER_ACCESS, of the first GPU and another.
fn peer_access(fd: Fd, name: &str, other: &[u8; 16]) -> u32 {
    let mut args = Struct::new(&format!("{name}_PARAMS"));
    args.put("gpuUuidA", &UUID);
    args.put("gpuUuidB", other);
    uvm(fd, name, &mut args)
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
    if ["UVM_UNMAP_EXTERNAL", "UVM_MAP_EXTERNAL_SPARSE"].contains(&name) {
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

/// A group of pages that move together.
fn new_group(fd: Fd) -> u64 {
    let mut args = Struct::new("UVM_CREATE_RANGE_GROUP_PARAMS");
    assert_eq!(uvm(fd, "UVM_CREATE_RANGE_GROUP", &mut args), OK);
    args.get("rangeGroupId")
}

fn join(fd: Fd, group: u64, [base, length]: [u64; 2]) -> u32 {
    let args = Struct::new("UVM_SET_RANGE_GROUP_PARAMS").with("rangeGroupId", group);
    let mut args = args.with("requestedBase", base).with("length", length);
    uvm(fd, "UVM_SET_RANGE_GROUP", &mut args)
}

fn migrate_group(fd: Fd, group: u64, to: &[u8; 16]) -> u32 {
    let mut args = Struct::new("UVM_MIGRATE_RANGE_GROUP_PARAMS").with("rangeGroupId", group);
    args.put("destinationUuid", to);
    uvm(fd, "UVM_MIGRATE_RANGE_GROUP", &mut args)
}

/// Migrations, faults of GPUs and replays of those.
const MOVES: u64 = 1 << 2 | 1 << 3 | 1 << 4;

/// Memory that a profiler reads events from (`UvmToolsEventControlData`, `UvmEventEntry` of the first version).
struct Told {
    entries: u64,
    control: u64,
    count: u64,
}

impl Told {
    fn of(count: u64) -> Self {
        Self { entries: addresses(0x1000), control: addresses(0x1000), count }
    }

    /// Where the reader is, and the writer.
    fn places(&self) -> [u32; 2] {
        [self.control, self.control + 8].map(|at| u32::from_le_bytes(*seen(at)))
    }

    fn is_empty(&self) -> bool {
        let [get, put] = self.places();
        get == put
    }

    /// The type of the next event, the three bytes behind that, and its next two words.
    fn next(&self) -> [u64; 6] {
        assert!(!self.is_empty(), "nothing has happened");
        let [get, _] = self.places();
        let at = self.entries + u64::from(get) * 64;
        let after = ((get + 1) % self.count as u32).to_le_bytes();
        (*seen(self.control), *seen(self.control + 4)) = (after, after);
        let bytes = seen::<4>(at).map(u64::from);
        let [first, second] = [at + 8, at + 16].map(|at| u64::from_le_bytes(*seen(at)));
        [bytes[0], bytes[1], bytes[2], bytes[3], first, second]
    }
}

/// Lets a file of the tools follow an address space: events, at an address and so many, or the counters of a processor
/// or of all.
fn follow(
    file: Fd,
    [queue, count, control]: [u64; 3],
    space: Fd,
    counted: Option<(&[u8; 16], bool)>,
) -> u32 {
    let name = "UVM_TOOLS_INIT_EVENT_TRACKER";
    let mut args = Struct::new(&format!("{name}_PARAMS"))
        .with("queueBuffer", queue)
        .with("queueBufferSize", count)
        .with("controlBuffer", control)
        .with("uvmFd", space as u64);
    if let Some((uuid, is_of_all)) = counted {
        args.put("processor", uuid);
        args.set("allProcessors", is_of_all.into());
    }
    if args.has("requestedVersion") {
        args.set("requestedVersion", 1);
    }
    uvm(file, name, &mut args)
}

/// UVM_ENABLE_PEER_ACCESS and UVM_DISABLE_PEER_ACCESS, on a machine of two GPUs that do not reach each other.
pub(crate) fn nobody_is_made_a_peer() {
    let fd = space();
    assert_eq!(crate::uvm::register(fd, OTHER), OK);
    assert_eq!(peer_access(fd, "UVM_ENABLE_PEER_ACCESS", &OTHER), NOT_SUPPORTED);
    for (name, other) in [
        ("UVM_ENABLE_PEER_ACCESS", UUID),
        ("UVM_DISABLE_PEER_ACCESS", UUID),
        ("UVM_DISABLE_PEER_ACCESS", OTHER),
    ] {
        assert_eq!(peer_access(fd, name, &other), INVALID_DEVICE, "{name}");
    }
}

/// On a machine of two GPUs that reach each other over PCIe.
pub(crate) fn what_peers_see_of_each_other_goes() {
    const LENGTH: usize = 0x20_0000;
    let fd = space();
    let peers = |name: &str| peer_access(fd, name, &OTHER);
    let ends: [&dyn Fn() -> u32; 2] =
        [&|| peers("UVM_DISABLE_PEER_ACCESS"), &|| crate::uvm::unregister(fd, OTHER)];
    for end in ends {
        let mut rig = Rig::new();
        let (device, _) = rig.client.device(1);
        let mut params = memory_params(VIDEO_MEMORY, LENGTH as u64);
        let theirs = rig.client.alloc(device, VIDEO_MEMORY, Some(&mut params)).unwrap();
        let own = std::mem::replace(&mut rig.memory, theirs);
        // The first end leaves it registered, the second one not.
        crate::uvm::register(fd, OTHER);
        assert_eq!(register_space(fd, &rig), OK);
        let base = addresses(LENGTH);
        let external = |name| range(fd, name, base, LENGTH as u64);
        assert_eq!(external("UVM_CREATE_EXTERNAL_RANGE"), OK);
        let shown = |rig: &Rig| show(fd, rig, [base, LENGTH as u64, 0], ("offset", 0));
        assert_eq!(shown(&rig), INVALID_DEVICE, "they are no peers");
        assert_eq!(peers("UVM_ENABLE_PEER_ACCESS"), OK);
        assert_eq!(peers("UVM_ENABLE_PEER_ACCESS"), INVALID_DEVICE, "they are already");
        assert_eq!(shown(&rig), OK);
        rig.bytes[FROM as usize..][..4].copy_from_slice(b"peer");
        rig.copy(BASE + FROM, base, 4);
        rig.copy(base, BASE + TO, 4);
        assert!(rig.is_done());
        assert_eq!(&rig.bytes[TO as usize..][..4], b"peer");
        assert_eq!(end(), OK);
        rig.copy(base, BASE + TO, 4);
        assert_eq!(rig.error(), MMU_FAULT);
        assert_eq!((shown(&rig), external("UVM_FREE")), (INVALID_DEVICE, OK));
        rig.memory = own;
        let mut own = Struct::new("UVM_UNREGISTER_GPU_VASPACE_PARAMS");
        own.put("gpuUuid", &UUID);
        assert_eq!(uvm(fd, "UVM_UNREGISTER_GPU_VASPACE", &mut own), OK);
    }
    assert_eq!(peers("UVM_DISABLE_PEER_ACCESS"), INVALID_DEVICE);
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

    sparse_addresses_have_zeros_and_lose_what_is_written {
        let mut rig = Rig::new();
        let (size, page) = (0x20_0000_u64, 0x1_0000);
        let base = addresses(size as usize).next_multiple_of(page);
        let fd = space();
        let sparse = |base, length| range(fd, "UVM_MAP_EXTERNAL_SPARSE", base, length);
        assert_eq!(range(fd, "UVM_CREATE_EXTERNAL_RANGE", base, 4 * page), OK);
        assert_eq!(sparse(base, 4 * page), INVALID_DEVICE, "the GPU has no addresses there yet");
        assert_eq!(register_space(fd, &rig), OK);
        assert_eq!(sparse(base, 4 * page), OK);
        assert_eq!(sparse(base + 0x1000, page), INVALID_ADDRESS, "no page of 64 KiB");
        assert_eq!(sparse(base, page + 0x1000), INVALID_ADDRESS);
        assert_eq!(sparse(base, 5 * page), INVALID_ADDRESS, "more than the range");
        rig.bytes[FROM as usize..][..6].copy_from_slice(b"sparse");
        rig.bytes[TO as usize..][..6].copy_from_slice(b"before");
        rig.copy(BASE + FROM, base + page, 6);
        rig.copy(base + page, BASE + TO, 6);
        assert!(rig.is_done());
        assert_eq!(rig.bytes[TO as usize..][..6], [0; 6]);
        // Memory takes their place, and they its.
        assert_eq!(show(fd, &rig, [base + page, page, FROM], ("offset", FROM)), OK);
        rig.copy(base + page, BASE + TO, 6);
        assert!(rig.is_done());
        assert_eq!(&rig.bytes[TO as usize..][..6], b"sparse");
        assert_eq!(sparse(base + page, page), OK);
        rig.copy(base + page, BASE + TO, 6);
        assert!(rig.is_done());
        assert_eq!(rig.bytes[TO as usize..][..6], [0; 6]);
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
        if driver().layout("UVM_DISCARD_PARAMS").is_some() {
            let discard = |base, length, flags| {
                let args = Struct::new("UVM_DISCARD_PARAMS").with("base", base).with("flags", flags);
                uvm(fd, "UVM_DISCARD", &mut args.with("length", length))
            };
            assert_eq!((discard(base, whole, 0), discard(base, 0x1000, 1)), (OK, OK));
            assert_eq!(discard(base, whole, 2), INVALID_ARGUMENT);
            assert_eq!(discard(base, whole + 0x1000, 0), INVALID_ADDRESS);
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
        let group = new_group(fd);
        let migrate_group = |group, to| migrate_group(fd, group, to);
        assert_eq!((migrate_group(group, &UUID), migrate_group(group, &CPU)), (OK, OK), "nothing is in it");
        assert_eq!(migrate_group(group + 1, &CPU), OBJECT_NOT_FOUND);
        assert_eq!(migrate_group(group, &nobody), INVALID_DEVICE);
        assert_eq!(join(fd, group + 1, [base, 0x1000]), OBJECT_NOT_FOUND);
        assert_eq!(join(fd, group, [base, whole + 0x1000]), INVALID_ADDRESS);
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

    profilers_are_told_what_moves {
        let mut rig = Rig::new();
        let fd = space();
        assert_eq!(register_space(fd, &rig), OK);
        let (size, page) = (0x20_0000_u64, 0x1000_u64);
        let base = addresses(2 * size as usize).next_multiple_of(size);
        assert_eq!(mapping_of(base, size as usize, fd), Ok(base));
        seen::<1>(base + 2 * page)[0] = 1;

        let tools = open("/dev/nvidia-uvm-tools").unwrap();
        let told = Told::of(64);
        let queue = |file, fd: Fd, at: u64, count| follow(file, [at, count, told.control], fd, None);
        assert_eq!(queue(tools, rig.client.fd, told.entries, 64), INSUFFICIENT_PERMISSIONS);
        assert_eq!(queue(tools, open("/dev/nvidia-uvm").unwrap(), told.entries, 64), ILLEGAL_ACTION);
        assert_eq!(queue(tools, fd, told.entries, 3), INVALID_ARGUMENT, "no power of 2");
        assert_eq!(queue(tools, fd, told.entries, 1), INVALID_ARGUMENT);
        assert_eq!(queue(tools, fd, told.entries + 8, 64), INVALID_ADDRESS, "no page");
        let nowhere = addresses(page as usize);
        unmap(nowhere, page as usize);
        assert_eq!(queue(tools, fd, nowhere, 64), INVALID_ARGUMENT, "nothing is there");
        let listen = |file, name: &str, field: &str, bits| {
            uvm(file, name, &mut Struct::new(&format!("{name}_PARAMS")).with(field, bits))
        };
        let enable = |bits| listen(tools, "UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS", "eventTypeFlags", bits);
        assert_eq!(enable(MOVES), INVALID_ARGUMENT, "no queue yet");
        assert_eq!(queue(tools, fd, told.entries, 64), OK);
        assert_eq!(queue(tools, fd, told.entries, 64), INVALID_ARGUMENT, "it has one");
        assert_eq!(enable(1), INVALID_ARGUMENT);
        assert_eq!(enable(1 << 62), INVALID_ARGUMENT, "the driver's own tests");
        assert_eq!(enable(MOVES), OK);
        let count = |bits| listen(tools, "UVM_TOOLS_ENABLE_COUNTERS", "counterTypeFlags", bits);
        assert_eq!(count(1), INVALID_ARGUMENT, "a queue counts nothing");
        // Of all GPUs, and of one that is not there.
        let counters = [(UUID, false), ([7; 16], true), ([7; 16], false)].map(|(uuid, all)| {
            let (file, values) = (open("/dev/nvidia-uvm-tools").unwrap(), addresses(page as usize));
            assert_eq!(follow(file, [0, 0, values], fd, Some((&uuid, all))), OK);
            assert_eq!(listen(file, "UVM_TOOLS_ENABLE_COUNTERS", "counterTypeFlags", 0x203), OK);
            values
        });

        let move_to = |to| migrate(fd, [base, size, 0], to, [0, 0]);
        assert_eq!(move_to(&UUID), OK);
        // One page was the process's, and all are on the GPU now.
        assert_eq!(told.next(), [2, 1, 0, 1, base + 2 * page, page]);
        assert_eq!(move_to(&UUID), OK);
        assert_eq!(move_to(&CPU), OK);
        assert_eq!(told.next(), [2, 1, 1, 0, base, size]);
        assert!(told.is_empty());
        // A group moves as one, but for the page that has left it.
        let group = new_group(fd);
        assert_eq!((join(fd, group, [base, size]), join(fd, 0, [base, page])), (OK, OK));
        for (to, [from, into]) in [(&UUID, [0, 1]), (&CPU, [1, 0])] {
            assert_eq!(migrate_group(fd, group, to), OK);
            assert_eq!(told.next(), [2, 1, from, into, base + page, size - page]);
        }
        assert!(told.is_empty());
        // A GPU that copies brings what it touches, with its neighbours, once.
        for (at, is_write) in [(base + 0x1_2000, false), (base + 0x1_3000, true), (base + 0x5_0000, true)] {
            match is_write {
                true => rig.copy(BASE + FROM, at, 8),
                false => rig.copy(at, BASE + TO, 8),
            }
            assert!(rig.is_done());
        }
        // The page itself, and before and behind it those that come along.
        let of_first = [(2, 3, 0x1_0000, 0x2000), (2, 2, 0x1_2000, 0x1000), (2, 3, 0x1_3000, 0xd000)];
        let of_second = [(2, 2, 0x5_0000, 0x1000), (2, 3, 0x5_1000, 0xf000)];
        for (at, access, moves) in [(0x1_2000, 1, &of_first[..]), (0x5_0000, 2, &of_second[..])] {
            assert_eq!(told.next()[..5], [3, 2, access, 1, base + at]);
            for (kind, cause, from, bytes) in moves {
                assert_eq!(told.next(), [*kind, *cause, 0, 1, base + from, *bytes]);
            }
            assert_eq!(told.next()[..2], [4, 1]);
        }
        assert!(told.is_empty());
        // What is to stay is seen from afar, once it was faulted on.
        let advise = |name: &str, field: &str| {
            let mut args = Struct::new(&format!("{name}_PARAMS"));
            args.set("requestedBase", base);
            args.set("length", size);
            args.put(field, &CPU);
            uvm(fd, name, &mut args)
        };
        assert_eq!(advise("UVM_SET_PREFERRED_LOCATION", "preferredLocation"), OK);
        for _ in 0..2 {
            rig.copy(base + 0x8_0000, BASE + TO, 8);
            assert!(rig.is_done());
        }
        assert_eq!(told.next()[..5], [3, 2, 1, 1, base + 0x8_0000]);
        assert_eq!(told.next()[..2], [4, 1]);
        assert!(told.is_empty());
        let into = 0x2_1000 + size - page;
        assert_eq!(counters.map(|at| *seen::<8>(at)).map(u64::from_le_bytes), [into, into, 0]);
        let out = 2 * size - page;
        assert_eq!(counters.map(|at| *seen::<8>(at + 8)).map(u64::from_le_bytes), [out, out, 0]);
        assert_eq!(counters.map(|at| *seen::<8>(at + 72)).map(u64::from_le_bytes), [3, 3, 0]);

        // Who waits is woken when there is as much as he wants.
        assert!(!is_readable(tools));
        let threshold = |count| {
            listen(tools, "UVM_TOOLS_SET_NOTIFICATION_THRESHOLD", "notificationThreshold", count)
        };
        assert_eq!(threshold(2), OK);
        assert_eq!(move_to(&CPU), OK);
        assert!(is_readable(tools), "two places were on the GPU");
        assert_eq!([told.next(), told.next()].map(|event| event[5]), [0x1_0000; 2]);
        assert!(!is_readable(tools));
        let disable = |bits| listen(tools, "UVM_TOOLS_EVENT_QUEUE_DISABLE_EVENTS", "eventTypeFlags", bits);
        assert_eq!(disable(MOVES), OK);
        assert_eq!(move_to(&UUID), OK);
        assert!(told.is_empty());

        // One entry stays free; what has no room is counted.
        let (tools, told) = (open("/dev/nvidia-uvm-tools").unwrap(), Told::of(2));
        assert_eq!(follow(tools, [told.entries, 2, told.control], fd, None), OK);
        assert_eq!(listen(tools, "UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS", "eventTypeFlags", MOVES), OK);
        assert_eq!((move_to(&CPU), move_to(&UUID)), (OK, OK));
        assert_eq!(told.next()[2..4], [1, 0]);
        assert!(told.is_empty());
        let lost = seen::<8>(told.control + 16 + 2 * 8);
        assert_eq!(u64::from_le_bytes(*lost), 1);
        // It is in memory that anybody may write.
        *lost = [0xff; 8];
        assert_eq!((move_to(&CPU), move_to(&UUID)), (OK, OK));
        assert_eq!((*lost, told.next()[2]), ([0; 8], 1));

        // A debugger reads and writes what is managed, and nothing else.
        let mut bytes = *b"managed!";
        let mut touch = |name: &str, target: u64, done: &str| {
            let mut args = Struct::new(&format!("{name}_PARAMS"))
                .with("buffer", bytes.as_mut_ptr() as u64)
                .with("size", 8)
                .with("targetVa", target);
            let status = uvm(fd, name, &mut args);
            (status, args.get(done), bytes)
        };
        let end = base + size;
        let write = ("UVM_TOOLS_WRITE_PROCESS_MEMORY", "bytesWritten");
        assert_eq!(touch(write.0, base + page - 4, write.1).1, 8);
        assert_eq!(seen(base + page - 4), b"managed!");
        assert_eq!(touch(write.0, end - 4, write.1), (INVALID_ADDRESS, 4, *b"managed!"));
        assert_eq!(seen(end - 4), b"mana");
        *seen(base + page - 4) = *b"anything";
        let read = ("UVM_TOOLS_READ_PROCESS_MEMORY", "bytesRead");
        assert_eq!(touch(read.0, base + page - 4, read.1), (OK, 8, *b"anything"));
        assert_eq!(touch(read.0, told.control, read.1).0, INVALID_ADDRESS);
        assert_eq!(touch(read.0, u64::MAX, read.1).0, INVALID_ADDRESS);
        assert_eq!(touch(read.0, u64::MAX - 4, read.1).0, INVALID_ADDRESS);
        // UVM's own memory is none to tell events in.
        let other = open("/dev/nvidia-uvm-tools").unwrap();
        assert!(is_readable(other), "it follows nothing");
        assert_eq!(follow(other, [base, 64, told.control], fd, None), INVALID_ARGUMENT);
        let mut table = [[9_u8; 16]; 40];
        let name = "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE";
        let mut args = Struct::new(&format!("{name}_PARAMS")).with("tablePtr", table.as_mut_ptr() as u64);
        assert_eq!(uvm(fd, name, &mut args), OK);
        assert_eq!(table[..2], [CPU, UUID]);
        assert_eq!(table[33], [9; 16]);
        // A GPU that is gone has no pages.
        let mut args = Struct::new("UVM_UNREGISTER_GPU_PARAMS");
        args.put("gpu_uuid", &UUID);
        assert_eq!(listen(tools, "UVM_TOOLS_EVENT_QUEUE_DISABLE_EVENTS", "eventTypeFlags", MOVES), OK);
        assert_eq!((move_to(&UUID), listen(tools, "UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS", "eventTypeFlags", MOVES)), (OK, OK));
        assert_eq!(uvm(fd, "UVM_UNREGISTER_GPU", &mut args), OK);
        assert_eq!(told.next(), [2, 4, 1, 0, base, size]);
    }
    the_second_version_numbers_parts_of_gpus {
        let second = ["UvmEventMigrationInfo_V2", "UvmEventEntry_V2"].map(|name| driver().layout(name));
        let [Some(_), Some(entry)] = second else { return };
        let (fd, size) = (space(), 0x20_0000_u64);
        let base = addresses(2 * size as usize).next_multiple_of(size);
        assert_eq!(mapping_of(base, size as usize, fd), Ok(base));
        assert_eq!(register_space(fd, &Rig::new()), OK);
        seen::<1>(base)[0] = 1;
        let (tools, told) = (open("/dev/nvidia-uvm-tools").unwrap(), Told::of(2));
        let is_field = Struct::new("UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS").has("requestedVersion");
        let name = if is_field { "UVM_TOOLS_INIT_EVENT_TRACKER" } else { "UVM_TOOLS_INIT_EVENT_TRACKER_V2" };
        let mut args = Struct::new("UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS")
            .with("queueBuffer", told.entries)
            .with("queueBufferSize", told.count)
            .with("controlBuffer", told.control)
            .with("uvmFd", fd as u64);
        if is_field {
            args.set("requestedVersion", 3);
            assert_eq!(uvm(tools, name, &mut args), INVALID_ARGUMENT);
            args.set("requestedVersion", 2);
        }
        assert_eq!(uvm(tools, name, &mut args), OK);
        assert!(!is_field || args.get("grantedVersion") == 2);
        let name = "UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS";
        let mut args = Struct::new(&format!("{name}_PARAMS")).with("eventTypeFlags", MOVES);
        assert_eq!(uvm(tools, name, &mut args), OK);
        for to in [&UUID, &CPU] {
            assert_eq!(migrate(fd, [base, size, 0], to, [0, 0]), OK);
        }
        assert_eq!(told.places(), [0, 1]);
        let mut told = Struct { bytes: seen::<256>(told.entries).to_vec(), ..Struct::new("UvmEventMigrationInfo_V2") };
        told.bytes.truncate(entry.size as usize);
        let fields = ["eventType", "migrationCause", "srcIndex", "dstIndex", "address", "migratedBytes"];
        assert_eq!(fields.map(|field| told.get(field)), [2, 1, 0, 1, base, 0x1000]);
    }
}
