//! Memory of NVIDIA's GPUs on a simulated driver, through real system calls: this test starts itself there.

use nvabi_devmem::modifier::number;
use nvabi_devmem::{
    CapabilitySet, Description, Device, Fourcc, Hint, Image, MODIFIER_LINEAR, Operation, Prober,
    Usage, layout_of,
};
use nvabi_test::only_as_child;

use super::simulated::{INSIDE, simulated};
use super::{XRGB, device, devices, use_of};

fn described(gpu: &dyn Device, image: Image, set: &CapabilitySet) -> Description {
    let usage = Usage::new(image, vec![use_of(gpu, Operation::Render)]);
    let layout = layout_of(&image, set).unwrap();
    Description { usage, set: set.clone(), layout, metadata: Vec::new() }
}

/// The modifier of a set, without what is the same of all NVIDIA's.
fn blocks(set: &CapabilitySet) -> String {
    set.capabilities[0].to_string().replace("modifier NVIDIA_BLOCK_LINEAR_2D", "")
}

/// The program on the simulated machine.
#[test]
fn client() {
    only_as_child(INSIDE);
    let gpu = device("rm:nvidia0");
    let image = Image::new(1920, 1080, XRGB);
    let sets = gpu.sets(&image, Operation::Render).unwrap();
    let listed: Vec<String> = sets.iter().map(blocks).collect();
    let all: Vec<String> = (0..=5).rev().map(|h| format!("(0, 1, 2, 6, {h})")).collect();
    assert_eq!(listed, all);
    assert_eq!(gpu.sets(&image, Operation::Copy).unwrap().len(), 7, "and rows");
    assert!(gpu.sets(&image, Operation::Scanout).unwrap().is_empty());

    let costs: Vec<u64> = sets.iter().map(|set| gpu.cost(set)).collect();
    assert!(costs.is_sorted(), "high blocks first: {costs:?}");

    // What engines do not draw or sample, and how large images are.
    for (format, operation, count) in [
        (b"RG24", Operation::Render, 0),
        (b"NV12", Operation::Render, 0),
        (b"YUYV", Operation::Texture, 0),
        (b"RG24", Operation::Copy, 1),
    ] {
        let image = Image { format: Fourcc::new(format), ..image };
        let sets = gpu.sets(&image, operation).unwrap();
        assert_eq!(sets.len().min(1), count, "{image} {operation}: {sets:?}");
    }
    let hints = gpu.hints(Operation::Render).unwrap();
    let largest = |hint: &Hint| (hint.max_width, hint.max_height) == (32768, 32768);
    assert!(!hints.is_empty() && hints.iter().all(largest), "{hints:?}");
    assert!(hints.iter().all(|hint| hint.format != Fourcc::new(b"C8  ")), "{hints:?}");

    // A block is 64 bytes wide and 2⁴ GOBs of 8 rows high.
    let set = &sets[1];
    let description = described(&*gpu, image, set);
    let plane = description.layout.planes[0];
    assert_eq!((plane.pitch, plane.size), (7680, 7680 * 1152));
    let made = Prober::default().make(&devices(), &description).unwrap();
    assert_eq!(made.by, "rm:nvidia0");
    assert_eq!(made.buffer.size(), 7680 * 1152);
    assert_eq!(made.buffer.description().layout.modifier, number("0x300000000606014").unwrap());
    let Err(unseen) = made.buffer.map() else { panic!("the CPU sees it") };
    assert_eq!(unseen.errno(), Some(524), "the kernel's own ENOTSUPP: {unseen}");

    // The other GPU has memory of its own, and does not know of this.
    let other = device("rm:nvidia1");
    assert_ne!(other.info().number(), gpu.info().number());
    let refused = other.allocate(&description).unwrap_err().to_string();
    assert!(refused.ends_with("asked for, memory of another device offered"), "{refused}");
    let mut linear = description.clone();
    linear.layout.modifier = MODIFIER_LINEAR;
    assert_eq!(gpu.allocate(&linear).unwrap().size(), made.buffer.size());
    for modifier in ["NVIDIA_BLOCK_LINEAR_2D(0, 1, 0, 254, 4)", "I915_Y_TILED"] {
        linear.layout.modifier = number(modifier).unwrap();
        let refused = gpu.allocate(&linear).unwrap_err().to_string();
        assert_eq!(refused, format!("rm:nvidia0 has no modifier {modifier}"));
    }
    let narrow = Image::new(64, 4, Fourcc::new(b"R8  "));
    let sets = gpu.sets(&narrow, Operation::Texture).unwrap();
    match std::env::var("NVABI_TEST_GPU").unwrap().as_str() {
        // Blackwell's blocks of 8 bits are not known.
        "rtxpro6000" => assert_eq!(sets, []),
        _ => assert_eq!(sets.iter().map(blocks).collect::<Vec<_>>(), ["(0, 1, 2, 6, 0)"]),
    }
    let large = Image::new(1 << 17, 1 << 19, XRGB);
    let refused = gpu.allocate(&described(&*gpu, large, set)).unwrap_err().to_string();
    assert!(refused.contains("NV_ERR_NO_MEMORY"), "{refused}");
    println!("the client is done");
}

#[test]
fn memory_of_a_gpu_is_block_linear() {
    for (gpu, tag) in [("rtx3090", "535.43.02"), ("h100", "570.86.15"), ("rtxpro6000", "595.45.04")]
    {
        let args = ["rm", "sim", "--gpu", gpu, "--gpus", "2", "--tag", tag];
        simulated(&args, "rm::client", &[("NVABI_TEST_GPU", gpu)]);
    }
}
