//! Addresses of a GPU: spaces, ranges in them, and the older way to allocate.

use crate::channel::{WINDOW, map_dma, unmap_dma};
use crate::client::status::*;
use crate::client::*;
use crate::{rules, simulate};

/// FERMI_VASPACE_A and NV50_MEMORY_VIRTUAL.
const SPACE: u32 = 0x90f1;
const RANGE: u32 = 0x50a0;
/// NVOS32_ALLOC_FLAGS_VIRTUAL, _FIXED_ADDRESS_ALLOCATE, _MEMORY_HANDLE_PROVIDED; NVOS32_FUNCTION_ALLOC_SIZE.
const VIRTUAL: u64 = 0x0008_0000;
const FIXED: u64 = 0x10;
const HANDLE: u64 = 0x4000;
const ALLOC_SIZE: u64 = 2;
/// NVOS46_FLAGS_DMA_OFFSET_FIXED.
const DMA_FIXED: u64 = 1 << 15;

fn space(client: &Client, device: u32, base: u64, size: u64) -> (Result<u32, u32>, Struct) {
    let mut params =
        Struct::new("NV_VASPACE_ALLOCATION_PARAMETERS").with("vaBase", base).with("vaSize", size);
    (client.alloc(device, SPACE, Some(&mut params)), params)
}

/// A range in a space: at an address, or where there is room.
fn range(
    client: &Client,
    device: u32,
    space: u32,
    size: u64,
    at: Option<u64>,
) -> Result<(u32, u64), u32> {
    let mut params = memory_params(RANGE, size)
        .with("flags", if at.is_some() { VIRTUAL | FIXED } else { VIRTUAL })
        .with("hVASpace", space.into())
        .with("offset", at.unwrap_or(0));
    let made = client.alloc(device, RANGE, Some(&mut params))?;
    // Of whole pages: those of two mebibytes, where there are so many bytes, or of 64 kibibytes.
    let page = if size < 0x20_0000 { 0x1_0000 } else { 0x20_0000 };
    assert_eq!(params.get("size"), size.next_multiple_of(page));
    assert_eq!(params.get("limit"), params.get("size") - 1);
    Ok((made, params.get("offset")))
}

rules! {
    a_space_is_told_where_it_is {
        let (client, device, subdevice) = Client::with_device();
        let (made, params) = space(&client, device, 0, 0);
        assert!(made.is_ok());
        assert_eq!(params.get("vaBase") + params.get("vaSize"), 1 << 49);
        let (made, params) = space(&client, device, 0x500_0000, 0x1000_0000);
        assert!(made.is_ok());
        assert_eq!((params.get("vaBase"), params.get("vaSize")), (0x500_0000, 0x1000_0000));
        // Without a beginning the first pages are nobody's, and the end is where it is said to be.
        let (made, params) = space(&client, device, 0, 1 << 49);
        assert!(made.is_ok());
        assert_eq!(params.get("vaBase") + params.get("vaSize"), 1 << 49);
        assert_eq!(space(&client, device, 0, (1 << 49) + 0x1000).0, Err(INVALID_ARGUMENT));
        assert_eq!(space(&client, device, u64::MAX, 2).0, Err(INVALID_ARGUMENT));
        assert_eq!(space(&client, device, 0, u64::MAX - 0x1_0000).0, Err(INVALID_ARGUMENT));
        assert_eq!(space(&client, subdevice, 0, 0).0, Err(INVALID_OBJECT_PARENT));
    }

    ranges_of_a_space_do_not_overlap {
        let (client, device, _) = Client::with_device();
        let own = space(&client, device, 0x10_0000, 0x40_0000).0.unwrap();
        let (first, at) = range(&client, device, own, 0x20_0000, Some(0x20_0000)).unwrap();
        assert_eq!(at, 0x20_0000);
        let no_room = Err(INSUFFICIENT_RESOURCES);
        for (at, size) in [(0x20_0000, 0x1000), (0x1f_0000, 0x1_1000), (0x3f_0000, 0x1_1000)] {
            assert_eq!(range(&client, device, own, size, Some(at)), no_room, "{at:#x}");
        }
        assert_eq!(range(&client, device, own, 0x1000, Some(0x1f_f000)), no_room, "no page begins there");
        // What is behind the space, and what is larger than it.
        assert_eq!(range(&client, device, own, 0x1000, Some(0x50_0000)), no_room);
        assert_eq!(range(&client, device, own, 0x1000, Some(0xf_0000)), no_room, "before it");
        assert_eq!(range(&client, device, own, 0x41_0000, None), no_room);
        let (_, below) = range(&client, device, own, 0x10_0000, None).unwrap();
        let (_, above) = range(&client, device, own, 0x10_0000, None).unwrap();
        assert_eq!((below, above), (0x10_0000, 0x40_0000));
        assert_eq!(range(&client, device, own, 0x1_0000, None), no_room);
        // What is freed is there again, and another space has addresses of its own.
        assert_eq!(client.free(first), OK);
        assert_eq!(range(&client, device, own, 0x1_0000, None).unwrap().1, 0x20_0000);
        // What is freed hides nothing that begins before it.
        let low = range(&client, device, own, 0x1_0000, Some(0x40_0000)).err();
        assert_eq!(low, Some(INSUFFICIENT_RESOURCES));
        let other = space(&client, device, 0x10_0000, 0x40_0000).0.unwrap();
        let high = range(&client, device, other, 0x1_0000, Some(0x30_0000)).unwrap().0;
        let low = range(&client, device, other, 0x1_0000, Some(0x20_0000)).unwrap().0;
        assert_eq!(client.free(high), OK);
        assert_eq!(range(&client, device, other, 0x20_0000, Some(0x20_0000)), no_room);
        assert_eq!(client.free(low), OK);
        assert!(range(&client, device, other, 0x20_0000, Some(0x20_0000)).is_ok());
        let other = space(&client, device, 0x10_0000, 0x40_0000).0.unwrap();
        assert_eq!(range(&client, device, other, 0x1_0000, None).unwrap().1, 0x10_0000);
        assert_eq!(range(&client, device, device, 0x1000, None), Err(INVALID_OBJECT_HANDLE));
    }

    ranges_take_mappings_where_they_are_said_to_go {
        let (client, device, _) = Client::with_device();
        let own = space(&client, device, 0, 0).0.unwrap();
        let (range, base) = range(&client, device, own, 0x10_0000, None).unwrap();
        let memory = client.alloc(device, VIDEO_MEMORY, Some(&mut memory_params(VIDEO_MEMORY, 0x2_0000)));
        let pair = [range, memory.unwrap()];
        let map = |wish| map_dma(&client, device, pair, wish);
        assert_eq!(map([0, 0x1_0000, DMA_FIXED, base + 0x1_0000]), Ok(base + 0x1_0000));
        // Without the flag it is how far from the beginning.
        assert_eq!(map([0, 0x1_0000, 0, 0x3_0000]), Ok(base + 0x3_0000));
        assert_eq!(map([0x1_0000, 0x1_0000, DMA_FIXED, base + 0x1_0000]), Err(INVALID_ARGUMENT), "taken");
        assert_eq!(map([0, 0x2_0000, DMA_FIXED, base]), Err(INSERT_DUPLICATE_NAME), "its end is taken");
        // Where a byte within a page is said to be.
        assert_eq!(map([0x1234, 4, DMA_FIXED, base + 0x5_1234]), Ok(base + 0x5_1234));
        assert_eq!(map([0x1234, 4, DMA_FIXED, base + 0x6_0000]), Ok(base + 0x6_1234));
        assert_eq!(map([0x1234, 4, DMA_FIXED, base + 0x7_1000]), Err(INVALID_OFFSET));
        for at in [base - 0x1_0000, base + 0x10_0000] {
            assert_eq!(map([0, 0x1_0000, DMA_FIXED, at]), Err(INVALID_OFFSET), "{at:#x}");
        }
        assert_eq!(map([0, 0x2_0000, DMA_FIXED, base + 0xf_0000]), Err(INVALID_ARGUMENT), "beyond its end");
        assert_eq!(unmap_dma(&client, device, pair, base + 0x5_0000), OBJECT_NOT_FOUND);
        assert_eq!(unmap_dma(&client, device, pair, base + 0x5_1234), OK);
        // Nobody else maps there, wherever it is asked to.
        let mut params = Struct::new("NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS").with("hVASpace", own.into());
        let window = client.alloc(device, WINDOW, Some(&mut params)).unwrap();
        let pair = [window, pair[1]];
        let there = map_dma(&client, device, pair, [0, 0x1_0000, 0, 0]).unwrap();
        assert!(!(base..base + 0x10_0000).contains(&there), "{there:#x}");
        let fixed = |at| map_dma(&client, device, pair, [0, 0x1_0000, DMA_FIXED, at]);
        assert_eq!(fixed(base + 0x8_0000), Err(NO_MEMORY));
        assert_eq!(client.free(range), OK);
        assert_eq!(fixed(base + 0x8_0000), Ok(base + 0x8_0000));
    }

    the_older_way_allocates_all_three {
        let (client, device, _) = Client::with_device();
        let alloc = |attr: u64, flags: u64, handle: u64| {
            let mut args = Struct::new("NVOS32_PARAMETERS")
                .with("hRoot", client.handle.into())
                .with("hObjectParent", device.into())
                .with("function", ALLOC_SIZE)
                .with("status", 0xdead)
                .with("data.AllocSize.owner", client.handle.into())
                .with("data.AllocSize.hMemory", handle)
                .with("data.AllocSize.flags", flags)
                .with("data.AllocSize.attr", attr)
                .with("data.AllocSize.size", 0x1234);
            assert_eq!(escape(client.fd, 0x4a, &mut args), Ok(()));
            args
        };
        let made = alloc(0, HANDLE, 0x5c00_0001);
        assert_eq!(made.get("status") as u32, OK);
        assert_eq!(made.get("data.AllocSize.hMemory"), 0x5c00_0001);
        assert_eq!(made.get("data.AllocSize.size"), 0x1_0000);
        assert_eq!(made.get("data.AllocSize.limit"), 0xffff);
        // Without the flag the driver chooses the handle; of the system's memory, and of addresses.
        let system = alloc(1 << 25, 0, 0x5c00_0002);
        assert_eq!(system.get("status") as u32, OK);
        assert_eq!(system.get("data.AllocSize.size"), 0x2000);
        assert_ne!(system.get("data.AllocSize.hMemory"), 0x5c00_0002);
        assert_eq!(alloc(0, VIRTUAL, 0).get("status") as u32, OK);
        assert_eq!(alloc(0, HANDLE, 0x5c00_0001).get("status") as u32, INSERT_DUPLICATE_NAME);
        let mut other = Struct::new("NVOS32_PARAMETERS").with("function", 9);
        assert_eq!(escape(client.fd, 0x4a, &mut other), Ok(()));
        assert_eq!(other.get("status") as u32, NOT_SUPPORTED);
    }
}

/// Addresses of Hopper have 57 bits.
fn a_space_is_as_large_as_the_card_has_it() {
    let (client, device, _) = Client::with_device();
    let end = |base, size| {
        let (made, params) = space(&client, device, base, size);
        made.map(|_| params.get("vaBase") + params.get("vaSize"))
    };
    assert_eq!((end(0, 0), end(1 << 50, 0)), (Ok(1 << 57), Ok(1 << 57)));
    assert_eq!((end(0, 1 << 57), end(0, 1 << 58)), (Ok(1 << 57), Err(INVALID_ARGUMENT)));
}

#[test]
fn hopper_has_larger_spaces() {
    let name = "rm_sim::space::hopper_has_larger_spaces";
    simulate(name, "550.163.01", &["--gpu", "h100"], a_space_is_as_large_as_the_card_has_it);
}
