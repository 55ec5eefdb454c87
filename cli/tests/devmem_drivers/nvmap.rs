//! nvmap on a simulated Jetson, through real system calls: this test starts itself there.

use nvabi_devmem::modifier::number;
use nvabi_devmem::{
    Constraint, ConstraintName, Description, Fourcc, Image, MODIFIER_LINEAR, Operation, Prober,
    Use, layout_of,
};
use nvabi_test::only_as_child;

use super::simulated::{INSIDE, simulated};
use super::{description, device, devices, pattern, read, use_of, write};

/// The program on the Jetson.
#[test]
fn client() {
    only_as_child(INSIDE);
    let gpu = device("nvmap:gpu");
    let uses = vec![use_of(&*gpu, Operation::Render), Use::new("cpu", Operation::CpuRead)];
    let description = description(640, 480, uses);
    let sets = gpu.sets(&description.usage.image, Operation::Render).unwrap();
    // Blocks of 2⁵ to 2⁰ GOBs, and rows.
    assert_eq!(sets.len(), 7);
    assert_eq!(*sets[6].capabilities, *description.set.capabilities);
    let costs: Vec<u64> = sets.iter().map(|set| gpu.cost(set)).collect();
    assert!(costs.windows(2).all(|two| two[0] < two[1]), "rows last: {costs:?}");

    // Rows are as far apart as the GPU steps, and formats those that it knows.
    let narrow = |format| Image::new(1001, 33, Fourcc::new(format));
    for (operation, pitch) in
        [(Operation::Texture, 4032), (Operation::Render, 4096), (Operation::Copy, 4004)]
    {
        let rows = gpu.sets(&narrow(b"XR24"), operation).unwrap().pop().unwrap();
        let layout = layout_of(&narrow(b"XR24"), &rows).unwrap();
        assert_eq!((layout.modifier, layout.planes[0].pitch), (MODIFIER_LINEAR, pitch));
    }
    assert_eq!(gpu.sets(&narrow(b"RG24"), Operation::Texture).unwrap(), []);
    let hints = gpu.hints(Operation::Texture).unwrap();
    assert!(hints.iter().all(|hint| hint.max_width == 32768), "{hints:?}");
    assert_eq!(gpu.sets(&description.usage.image, Operation::Scanout).unwrap(), []);

    let buffer = Prober::default().allocate(&devices(), &description).unwrap();
    let picture = pattern(9, description.layout.size as usize);
    write(&buffer, &picture);
    assert!(read(&buffer) == picture);
    let other = gpu.allocate(&description).unwrap();
    assert_ne!(other.identity(), buffer.identity());
    let mapped = gpu.import(&buffer).unwrap();
    assert_ne!(mapped.handle(), 0);
    drop(mapped);

    // Blocks of 2³ GOBs of 8 rows: pages of another kind for the GPU, the same bytes for the CPU.
    let tiled = &sets[2];
    assert_eq!(tiled.capabilities[0].to_string(), "modifier NVIDIA_BLOCK_LINEAR_2D(0, 1, 2, 6, 3)");
    let image = description.usage.image;
    let mut tiled = Description {
        layout: layout_of(&image, tiled).unwrap(),
        set: tiled.clone(),
        ..description.clone()
    };
    assert_eq!(tiled.layout.size, 2560 * 512);
    let blocks = Prober::default().allocate(&devices(), &tiled).unwrap();
    write(&blocks, &pattern(4, 2560 * 512));
    assert_ne!(gpu.import(&blocks).unwrap().handle(), 0);
    let before_turing = "NVIDIA_BLOCK_LINEAR_2D(0, 1, 0, 254, 3)";
    tiled.layout.modifier = number(before_turing).unwrap();
    let refused = gpu.allocate(&tiled).unwrap_err().to_string();
    assert_eq!(refused, format!("nvmap:gpu has no modifier {before_turing}"));

    // Memory that nvmap did not make, and what it does not make.
    let plain = device("cpu").allocate(&description).unwrap();
    let Err(refused) = gpu.import(&plain) else { panic!("taken") };
    println!("refused: {refused}");
    let mut contiguous = description;
    contiguous.set.constraints = vec![Constraint::new(ConstraintName::CONTIGUOUS, 1)];
    let refused = gpu.allocate(&contiguous).unwrap_err().to_string();
    assert_eq!(refused, "memory in one piece asked for, 4096 bytes in one piece offered");
    println!("the client is done");
}

#[test]
fn memory_of_nvmap_is_seen_by_gpu_and_cpu() {
    simulated(&["tegra", "sim"], "nvmap::client", &[]);
}
