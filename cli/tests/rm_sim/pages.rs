//! Pages of memory, and the window by which processes see that of a GPU.

use crate::alloc::duplicate;
use crate::channel::{WINDOW, map_dma};
use crate::client::status::*;
use crate::client::*;
use crate::mapping::{map, unmap};
use crate::rules;
use crate::{diagnostics, simulate};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// NVOS32_ATTR_PAGE_SIZE, _PHYSICALITY; NVOS32_ATTR2_PAGE_SIZE_HUGE, _GPU_CACHEABLE.
const PAGE_SIZE: u64 = 23;
const PHYSICALITY: u64 = 27;
const HUGE: u64 = 20;
const CACHEABLE: u64 = 2;
/// NVOS32_ALLOC_FLAGS_ALIGNMENT_HINT, _FORCE.
const HINT: u64 = 0x80;
const FORCE: u64 = 0x100;

fn bits(word: u64, shift: u64) -> u64 {
    word >> shift & 3
}

/// Memory with a page size, as the attributes have it, and what the driver says of it.
fn alloc(
    (client, device): (&Client, u32),
    class: u32,
    size: u64,
    (page, huge): (u64, u64),
) -> Result<Struct, u32> {
    let mut params = memory_params(class, size).with("attr2", huge << HUGE);
    params.set("attr", params.get("attr") | page << PAGE_SIZE);
    client.alloc(device, class, Some(&mut params)).map(|_| params)
}

/// Counters of performance are of a subdevice, once, and nobody's memory.
fn counters_are_no_memory() {
    /// NV_COUNTER_COLLECTION_UNIT.
    const COUNTERS: u32 = 0xcbca;
    let (client, device, subdevice) = Client::with_device();
    let made = client.alloc(subdevice, COUNTERS, None).unwrap();
    assert_eq!(client.alloc(subdevice, COUNTERS, None), Err(STATE_IN_USE));
    let mut window = Struct::new("NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS");
    let window = client.alloc(device, WINDOW, Some(&mut window)).unwrap();
    let mapped = map_dma(&client, device, [window, made], [0, 0x1000, 0, 0]);
    assert_eq!(mapped, Err(INVALID_OBJECT_HANDLE));
    let copied = duplicate(&client, subdevice, (client.handle, made));
    assert_eq!(copied.0, INVALID_ARGUMENT);
    let mut export = Struct::new("NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS")
        .with("fd", control_file() as u64)
        .with("object.type", 1)
        .with("object.data.rmObject.hDevice", device.into())
        .with("object.data.rmObject.hParent", subdevice.into())
        .with("object.data.rmObject.hObject", made.into());
    let name = "NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD";
    assert_eq!(client.control(client.handle, name, &mut export), INVALID_ARGUMENT);
    assert_eq!(map(&client, (subdevice, made, 0, 0x4011, 0), gpu_file()).0, OK);
    assert_eq!(client.free(made), OK);
    assert!(client.alloc(subdevice, COUNTERS, None).is_ok());
}

#[test]
fn counters_are_had_once() {
    let name = "rm_sim::pages::counters_are_had_once";
    let report = simulate(name, "550.163.01", &["--gpu", "h100"], counters_are_no_memory);
    assert_eq!(diagnostics(&report), []);
}

/// Bytes of BAR1: all, those that nobody has, and the most in one piece.
fn window(client: &Client, subdevice: u32) -> [u64; 3] {
    let name = "NV2080_CTRL_FB_GET_INFO_V2_PARAMS";
    let mut params = Struct::new(name).with("fbInfoListSize", 3);
    // NV2080_CTRL_FB_INFO_INDEX_BAR1_SIZE, _AVAIL_SIZE, _MAX_CONTIGUOUS_AVAIL_SIZE.
    for (at, index) in [0x05, 0x1d, 0x1f].into_iter().enumerate() {
        params.set(&format!("fbInfoList[{at}].index"), index);
    }
    assert_eq!(client.control(subdevice, "NV2080_CTRL_CMD_FB_GET_INFO_V2", &mut params), OK);
    [0, 1, 2].map(|at| params.get(&format!("fbInfoList[{at}].data")) * KIB)
}

fn memory_of(client: &Client, device: u32, size: u64) -> u32 {
    client.alloc(device, VIDEO_MEMORY, Some(&mut memory_params(VIDEO_MEMORY, size))).unwrap()
}

fn gpu_file() -> Fd {
    open("/dev/nvidia0").unwrap()
}

rules! {
    memory_has_whole_pages {
        let (client, device, _) = Client::with_device();
        let of = (&client, device);
        // What is asked for, and what comes of it: bytes, page size.
        for (size, wish, bytes, told) in [
            (1, (0, 0), 64 * KIB, (2, 0)),
            (2 * MIB - 1, (0, 0), 2 * MIB, (2, 0)),
            (2 * MIB + 1, (0, 0), 4 * MIB, (3, 1)),
            (5000, (1, 0), 8 * KIB, (1, 0)),
            (3 * MIB, (1, 0), 3 * MIB, (1, 0)),
            (5000, (2, 0), 64 * KIB, (2, 0)),
            (5000, (3, 0), 2 * MIB, (3, 1)),
            (5000, (3, 1), 2 * MIB, (3, 1)),
            (5000, (3, 2), 512 * MIB, (3, 2)),
        ] {
            let made = alloc(of, VIDEO_MEMORY, size, wish).unwrap();
            let (attr, attr2) = (made.get("attr"), made.get("attr2"));
            let page = (bits(attr, PAGE_SIZE), bits(attr2, HUGE));
            let what = format!("{size} {wish:?}");
            assert_eq!((made.get("size"), made.get("limit"), page), (bytes, bytes - 1, told), "{what}");
            assert_eq!((bits(attr, PHYSICALITY), bits(attr2, CACHEABLE)), (2, 1), "{what}");
        }
        assert_eq!(alloc(of, VIDEO_MEMORY, 1, (3, 3)).err(), Some(INVALID_STATE), "no such page");
        // The system's has small ones alone.
        let made = alloc(of, SYSTEM_MEMORY, 2 * MIB + 1, (0, 0)).unwrap();
        let (attr, attr2) = (made.get("attr"), made.get("attr2"));
        assert_eq!(made.get("size"), 2 * MIB + 4 * KIB);
        assert_eq!((bits(attr, PAGE_SIZE), bits(attr, PHYSICALITY), bits(attr2, CACHEABLE)), (1, 1, 2));
        for (wish, bytes) in [((2, 0), 64 * KIB), ((3, 0), 2 * MIB), ((3, 2), 512 * MIB)] {
            let made = alloc(of, SYSTEM_MEMORY, 1, wish).map(|made| made.get("size"));
            let expected = if is_since(&[575, 51, 2]) { Ok(bytes) } else { Err(INVALID_STATE) };
            assert_eq!(made, expected, "{wish:?}");
        }
        if is_since(&[575, 51, 2]) {
            let made = alloc(of, SYSTEM_MEMORY, 1, (3, 0)).unwrap();
            assert_eq!(bits(made.get("attr"), PHYSICALITY), 1, "in pieces, without a wish");
        }
    }

    memory_begins_where_it_is_asked_to {
        let (client, device, _) = Client::with_device();
        let alloc = |flags: u64, alignment: u64, size: u64| {
            let params = memory_params(VIDEO_MEMORY, size);
            let mut params = params.with("flags", flags).with("alignment", alignment);
            client.alloc(device, VIDEO_MEMORY, Some(&mut params)).map(|_| params.get("offset"))
        };
        for _ in 0..3 {
            assert_eq!(alloc(0, 0, 1).unwrap() % (64 * KIB), 0);
            assert_eq!(alloc(FORCE, 16 * MIB, 1).unwrap() % (16 * MIB), 0);
            assert_eq!(alloc(HINT, 4 * MIB, 4 * MIB).unwrap() % (4 * MIB), 0);
            // A part of a page is no wish, and what is no multiple of one is one that may be passed over.
            assert_eq!(alloc(FORCE, 512, 1).unwrap() % (64 * KIB), 0);
            assert_eq!(alloc(HINT, 48 * KIB, 1).unwrap() % (64 * KIB), 0);
            assert_eq!(alloc(0, 48 * KIB, 1).unwrap() % (64 * KIB), 0);
        }
        assert_eq!(alloc(FORCE, 48 * KIB, 1), Err(INVALID_ARGUMENT));
        // What no part of a card's memory begins at.
        assert_eq!(alloc(FORCE, 192 * KIB, 1), Err(INVALID_ARGUMENT));
        assert_eq!(alloc(FORCE, 1 << 63, 1), Err(NO_MEMORY));
        for _ in 0..3 {
            assert_eq!(alloc(FORCE, 0_u64.wrapping_sub(64 * KIB), 1), Err(INVALID_ARGUMENT));
        }
    }

    what_is_for_addresses_is_no_wish_of_memory {
        let (client, device, _) = Client::with_device();
        let fixed = memory_params(SYSTEM_MEMORY, 1).with("flags", 0x10);
        let space = memory_params(SYSTEM_MEMORY, 1).with("hVASpace", 1);
        for mut params in [fixed, space] {
            let made = client.alloc(device, SYSTEM_MEMORY, Some(&mut params));
            assert_eq!(made, Err(INVALID_ARGUMENT));
        }
    }

    mappings_share_a_window {
        let (client, device, subdevice) = Client::with_device();
        let [all, free, largest] = window(&client, subdevice);
        let is_static = is_since(&[580]) && all > 24 << 30;
        if !is_static {
            assert_eq!((free, largest), (all - MIB, all - MIB), "the driver has some");
        }
        let memory = memory_of(&client, device, all - MIB);
        // A page, of which one byte is wanted.
        let (status, first) = map(&client, (device, memory, 4099, 1, 0), gpu_file());
        assert_eq!((status, first % (64 * KIB)), (OK, 4099));
        if is_static {
            // All of the memory is in it for good.
            let taken = all - 2 * MIB;
            return assert_eq!(window(&client, subdevice), [all, free - taken, largest]);
        }
        let page = free - window(&client, subdevice)[1];
        assert!([64 * KIB, 2 * MIB].contains(&page), "{page}");
        // What lacks a page less is too much.
        let most = (free - page) / page * page;
        let whole = (device, memory, 0, most, 0);
        let (status, second) = map(&client, whole, gpu_file());
        assert_eq!(status, OK);
        assert!(window(&client, subdevice)[1] < page);
        assert_eq!(map(&client, (device, memory, 0, MIB, 0), gpu_file()).0, NO_MEMORY);
        assert_eq!(unmap(&client, device, memory, second), OK);
        assert_eq!(window(&client, subdevice), [all, free - page, free - page]);
        assert_eq!(unmap(&client, device, memory, first), OK);
        assert_eq!(window(&client, subdevice), [all, free, free]);
        // With the memory its mappings go, and with a call that fails.
        assert_eq!(map(&client, whole, gpu_file()).0, OK);
        assert_eq!(client.free(memory), OK);
        assert_eq!(window(&client, subdevice)[1], free);
        let memory = memory_of(&client, device, all + MIB);
        assert_eq!(map(&client, (device, memory, 0, all + MIB, 0), gpu_file()).0, INVALID_ARGUMENT);
        assert_eq!(map(&client, (device, memory, 0, MIB, 0), open("/dev/nvidiactl").unwrap()).0, INVALID_ARGUMENT);
        assert_eq!(window(&client, subdevice)[1], free);
        // The system's memory is not seen by it, nor are registers.
        let system = client.alloc(device, SYSTEM_MEMORY, Some(&mut memory_params(SYSTEM_MEMORY, MIB))).unwrap();
        assert_eq!(map(&client, (device, system, 0, MIB, 0), open("/dev/nvidiactl").unwrap()).0, OK);
        assert_eq!(window(&client, subdevice)[1], free);
    }
}

/// Another program's mappings are gone with it.
fn a_window_is_the_machines() {
    let (client, _, subdevice) = Client::with_device();
    let [all, free, _] = window(&client, subdevice);
    assert!(crate::passes_in_child(&|| {
        let (client, device, subdevice) = Client::with_device();
        let memory = memory_of(&client, device, 16 * MIB);
        assert_eq!(map(&client, (device, memory, 0, 16 * MIB, 0), gpu_file()).0, OK);
        assert_eq!(window(&client, subdevice)[1], free - 16 * MIB);
    }));
    assert_eq!(window(&client, subdevice), [all, free, free]);
}

/// Since 580 a card's memory is in a window that is large enough, and mappings take nothing of it: memory does, as far as
/// that is told.
fn a_window_has_all_memory() {
    let (client, device, subdevice) = Client::with_device();
    let [all, free, largest] = window(&client, subdevice);
    assert_eq!((all, free, largest), (128 << 30, 128 << 30, 48 << 30));
    let memory = memory_of(&client, device, 16 * MIB);
    assert_eq!(window(&client, subdevice), [all, free - 16 * MIB, largest]);
    assert_eq!(map(&client, (device, memory, 0, 16 * MIB, 0), gpu_file()).0, OK);
    assert_eq!(window(&client, subdevice), [all, free - 16 * MIB, largest]);
    // A file keeps what it shows.
    assert_eq!(client.free(memory), OK);
    assert_eq!(window(&client, subdevice), [all, free - 16 * MIB, largest]);
    let other = memory_of(&client, device, 16 * MIB);
    assert_eq!(client.free(other), OK);
    assert_eq!(window(&client, subdevice), [all, free - 16 * MIB, largest]);
}

#[test]
fn a_large_window_is_static() {
    let name = "rm_sim::pages::a_large_window_is_static";
    let report = simulate(name, "580.65.06", &["--gpu", "a100"], a_window_has_all_memory);
    assert_eq!(diagnostics(&report), []);
}

#[test]
fn a_window_is_given_back() {
    let name = "rm_sim::pages::a_window_is_given_back";
    let report = simulate(name, "550.163.01", &["--gpu", "a100"], a_window_is_the_machines);
    assert_eq!(diagnostics(&report), []);
}
