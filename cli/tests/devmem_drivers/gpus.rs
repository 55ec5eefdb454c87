//! GPUs by the libraries that speak to them: Mesa's llvmpipe by EGL and GBM, and its lavapipe by Vulkan.

use khronos_egl as egl;
use nvabi_devmem::{
    Buffer, Capability, CapabilitySet, Constraint, ConstraintName, Description, Device, ErrorKind,
    Fourcc, Image, MODIFIER_INVALID, MODIFIER_LINEAR, Operation, Prober, Usage, format, solve,
};

use super::command::nvabi;
use super::own::planned;
use super::{description, device, devices, use_of};

/// What the device offers for an operation with an image.
fn sets(device: &dyn Device, image: Image, operation: Operation) -> Vec<CapabilitySet> {
    device.sets(&image, operation).unwrap()
}

fn samples_what_a_heap_made(name: &'static str) {
    let (gpu, heap) = (device(name), device("dma-heap:system"));
    let asked = description(640, 480, vec![use_of(&*gpu, Operation::Texture)]);
    let image = asked.usage.image;
    for operation in [Operation::Texture, Operation::Render] {
        let found = sets(&*gpu, image, operation);
        let linear =
            found.iter().filter(|set| set.capabilities.iter().any(|it| it.is_pitch_linear()));
        assert_eq!(linear.count(), 1, "{operation}: {found:?}");
    }
    assert_eq!(sets(&*gpu, image, Operation::Scanout), []);
    let unknown = Image { format: Fourcc::new(b"????"), ..image };
    assert_eq!(sets(&*gpu, unknown, Operation::Texture), []);

    let buffer = heap.allocate(&asked).unwrap();
    drop(gpu.import(&buffer).unwrap());
}

#[test]
fn llvmpipe_samples_what_a_heap_made() {
    samples_what_a_heap_made("llvmpipe");
}

#[test]
fn lavapipe_samples_what_a_heap_made() {
    samples_what_a_heap_made("lavapipe");
}

#[test]
fn a_render_node_takes_no_memory_that_is_no_dma_buf() {
    // lavapipe does: it maps what it is given.
    let gpu = device("llvmpipe");
    let asked = description(640, 480, vec![use_of(&*gpu, Operation::Texture)]);
    let Err(refused) = gpu.import(&device("cpu").allocate(&asked).unwrap()) else {
        panic!("taken")
    };
    assert!(refused.to_string().contains("eglCreateImage"), "{refused}");
}

#[test]
fn vulkan_says_how_large_an_image_may_be() {
    let gpu = device("lavapipe");
    let image = description(640, 480, Vec::new()).usage.image;
    let found = sets(&*gpu, image, Operation::Texture);
    assert!(
        found.iter().all(|set| set.constraint(ConstraintName::MAX_SIZE).is_some()),
        "{found:?}"
    );
    let hints = gpu.hints(Operation::Texture).unwrap();
    let most = hints.iter().find(|hint| hint.format == image.format).unwrap();
    let widest = Image { width: most.max_width, ..image };
    assert_eq!(sets(&*gpu, widest, Operation::Texture).len(), 1, "{most:?}");
    let wide = Image { width: most.max_width + 1, ..image };
    assert_eq!(sets(&*gpu, wide, Operation::Texture), []);
}

#[test]
fn vulkan_takes_no_memory_that_is_too_small() {
    let (gpu, heap) = (device("lavapipe"), device("dma-heap:system"));
    let small = heap.allocate(&description(64, 64, Vec::new())).unwrap();
    let asked = description(64, 64, vec![use_of(&*gpu, Operation::Texture)]);
    drop(gpu.import(&small).unwrap());
    // The same memory, said to be of rows that are longer.
    let mut longer = asked;
    longer.usage.image.height = 63;
    longer.layout.planes[0].pitch = 4096;
    longer.layout.planes[0].size = small.size();
    longer.layout.size = small.size();
    let buffer = Buffer::new(small.export().unwrap(), longer).unwrap();
    let Err(refused) = gpu.import(&buffer) else { panic!("taken") };
    assert!(refused.to_string().contains("but the buffer has 16384"), "{refused}");
}

/// Vulkan's functions may do anything with an image that the GPU does not list: it must not come to them.
#[test]
fn vulkan_is_not_asked_for_what_it_does_not_list() {
    let (gpu, heap) = (device("lavapipe"), device("dma-heap:system"));
    let asked = |format: &[u8; 4]| {
        let mut asked = description(64, 64, vec![use_of(&*gpu, Operation::Texture)]);
        asked.usage.image.format = Fourcc::new(format);
        asked.layout = solve(&asked.usage.image, &asked.set).unwrap();
        asked
    };
    let refused = |change: &dyn Fn(&mut Description), format| {
        let memory = heap.allocate(&asked(format)).unwrap();
        let mut changed = asked(format);
        change(&mut changed);
        let made = Buffer::new(memory.export().unwrap(), changed).and_then(|it| gpu.import(&it));
        made.map(drop).unwrap_err().to_string()
    };
    let planes = |count: usize| move |it: &mut Description| it.layout.planes.truncate(count);
    assert_eq!(refused(&planes(0), b"XR24"), "0 planes, where XR24 with pitch-linear has 1");
    let twice = |it: &mut Description| it.layout.planes.push(it.layout.planes[0]);
    assert_eq!(refused(&twice, b"XR24"), "2 planes, where XR24 with pitch-linear has 1");
    assert_eq!(refused(&planes(2), b"NV12"), "vulkan:0 has no pitch-linear for NV12");
    let tiled = |it: &mut Description| it.layout.modifier = 1 << 56 | 1;
    assert_eq!(refused(&tiled, b"XR24"), "vulkan:0 has no modifier I915_X_TILED for XR24");
    let wide = |width| move |it: &mut Description| it.usage.image.width = width;
    for width in [0, 1 << 20] {
        let told = refused(&wide(width), b"XR24");
        assert!(told.starts_with(&format!("vulkan:0 takes no {width}x64 XR24: ")), "{told}");
        let mut asked = asked(b"XR24");
        wide(width)(&mut asked);
        let told = gpu.allocate(&asked).unwrap_err().to_string();
        assert!(told.starts_with(&format!("vulkan:0 takes no {width}x64 XR24: ")), "{told}");
    }
}

/// Memory of a GPU, as the CPU and another GPU see it.
fn makes(name: &'static str, other: &'static str) {
    let (gpu, other) = (device(name), device(other));
    let uses = [&gpu, &other].map(|gpu| use_of(&**gpu, Operation::Texture));
    let asked = description(640, 480, uses.to_vec());
    let made = gpu.allocate(&asked).unwrap();
    let layout = made.description().layout.clone();
    assert_eq!((layout.modifier, layout.planes.len()), (MODIFIER_LINEAR, 1));
    assert!(layout.planes[0].pitch >= 2560 && layout.size >= 480 * layout.planes[0].pitch);

    let pixels: Vec<u8> = (0..2560_u32).map(|at| (at * 7) as u8).collect();
    let mut mapping = made.map().unwrap();
    mapping.write().unwrap().store(479 * layout.planes[0].pitch as usize, &pixels).unwrap();
    drop(mapping);
    drop(other.import(&made).unwrap());
    drop(gpu.import(&made).unwrap());
    let mut seen = vec![0; pixels.len()];
    let mapping = made.map().unwrap();
    mapping.read().unwrap().load(479 * layout.planes[0].pitch as usize, &mut seen).unwrap();
    assert_eq!(seen, pixels);

    let tiled = nvabi_devmem::Layout::open(1 << 56 | 1);
    let tiled = Description { layout: tiled, ..asked };
    assert!(gpu.allocate(&tiled).is_err(), "{name} has no Intel tiles");
}

#[test]
fn lavapipe_makes_what_llvmpipe_samples() {
    makes("lavapipe", "llvmpipe");
}

#[test]
fn a_render_node_that_makes_nothing_is_ruled_out() {
    // Dumb buffers, which Mesa's software makes memory of, are refused to render nodes.
    let gpu = device("llvmpipe");
    let all = devices();
    let asked = description(640, 480, vec![use_of(&*gpu, Operation::Texture)]);
    let Err(refused) = gpu.allocate(&asked) else { panic!("made") };
    assert!(
        refused.to_string().contains("gbm_bo_create_with_modifiers2: Permission denied"),
        "{refused}"
    );
    let made = Prober::default().prefer([gpu.info().name.clone()]).make(&all, &asked).unwrap();
    assert_eq!(made.by, "dma-heap:system");
}

#[test]
fn a_plan_for_a_gpu_was_tried() {
    let gpu = device("lavapipe");
    device("udmabuf");
    let image = description(640, 480, Vec::new()).usage.image;
    let (offer, refusals) =
        Prober::default().offer(&*gpu, &image, Operation::Texture, &devices()).unwrap();
    assert_eq!((offer.sets.len(), refusals.len()), (1, 0), "{refusals:?}");

    // A camera's format that the GPU samples by no modifier.
    let used = format!("{}:texture", gpu.info().name);
    let uses = ["--use", &used, "--use", "camera:capture", "640x480", "BG24"];
    let output = nvabi().args(["alloc", "plan"]).args(uses).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("vulkan:0 cannot texture such an image"), "{text}");
}

/// Each GPU and camera is tried, and what came of it is told: of the first all, of others a line.
#[test]
fn all_that_a_purpose_stands_for_are_tried() {
    let (gpu, camera) = (device("lavapipe"), device("camera"));
    let uses = ["--use", "gpu:texture", "--use", "camera:capture", "640x480", "BG24"];
    let output = nvabi().args(["alloc", "plan"]).args(uses).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!((output.status.code(), text.matches("no memory serves").count()), (Some(1), 1));
    let all = devices();
    let able = |operation| {
        all.iter().filter(|device| device.info().operations.contains(&operation)).count()
    };
    let choices = able(Operation::Texture) * able(Operation::Capture);
    assert_eq!(said.matches(" Failed with ").count(), choices - 1, "{said}");
    let last = format!("with {}:texture, {}:capture: ", gpu.info().name, camera.info().name);
    assert!(said.contains(&last) || text.contains(&gpu.info().name), "{last} in {said}{text}");
}

/// An image whose planes are in a file each, in a heap's memory.
fn in_three_files() -> Buffer {
    let image = Image::new(640, 480, Fourcc::new(b"YU12"));
    let files = Constraint::new(ConstraintName::FILES, 3);
    let set = CapabilitySet::new([files], [Capability::pitch_linear()]);
    let layout = solve(&image, &set).unwrap();
    let usage = Usage::new(image, Vec::new());
    let asked = Description { usage, set, layout, metadata: Vec::new() };
    let made = device("dma-heap:system").allocate_files(&asked).unwrap();
    assert_eq!(made.pieces().len(), 3);
    made
}

/// Mesa's llvmpipe lists formats of three planes and makes no image of them, wherever they are.
#[test]
fn llvmpipe_lists_formats_of_several_planes() {
    let gpu = device("llvmpipe");
    let hints = gpu.hints(Operation::Texture).unwrap();
    assert!(hints.iter().any(|hint| hint.format == Fourcc::new(b"YU12")), "{hints:?}");
    let planes = in_three_files();
    let asked =
        Description { set: description(1, 1, Vec::new()).set, ..planes.description().clone() };
    let whole = device("dma-heap:system").allocate(&asked).unwrap();
    let answers = [&planes, &whole].map(|buffer| gpu.import(buffer).map(drop).is_ok());
    assert_eq!(answers[0], answers[1], "one file for each plane, and one for all");
}

/// An image that EGL makes cannot always be drawn: its list says so.
#[test]
fn llvmpipe_tells_what_it_cannot_draw() {
    let (gpu, heap) = (device("llvmpipe"), device("dma-heap:system"));
    let taken = |format, operation| {
        let mut asked = description(64, 64, vec![use_of(&*gpu, operation)]);
        asked.usage.image.format = format;
        asked.layout = solve(&asked.usage.image, &asked.set).unwrap();
        gpu.import(&heap.allocate(&asked).unwrap()).map(drop).map_err(|it| it.to_string())
    };
    let (mut drawn, mut sampled_alone) = (0, 0);
    for format in format::known() {
        let image = Image::new(64, 64, format);
        if sets(&*gpu, image, Operation::Texture).is_empty() {
            continue;
        }
        // It lists more than it makes images of.
        if taken(format, Operation::Texture).is_err() {
            continue;
        }
        match (sets(&*gpu, image, Operation::Render).len(), taken(format, Operation::Render)) {
            (1.., Ok(())) => drawn += 1,
            (0, Err(refused)) if refused.ends_with("to be sampled alone") => sampled_alone += 1,
            (sets, taken) => panic!("{format}: {sets} sets, and {taken:?}"),
        }
    }
    println!("{drawn} formats are drawn, {sampled_alone} sampled alone");
    assert!(drawn > 0 && sampled_alone > 0, "{drawn} {sampled_alone}");
}

/// A program draws with a context of its own, which stays the current one of its thread.
#[test]
fn a_programs_own_context_stays_current() {
    const SURFACELESS: egl::Enum = 0x31dd;
    // Of implicit layouts EGL does not say whether they are drawn.
    let gpu = device("virgl");
    let own = Capability::implicit(gpu.info().owner().unwrap());
    let asked = Description {
        layout: nvabi_devmem::Layout::open(MODIFIER_INVALID),
        set: CapabilitySet::new([], [own]),
        ..description(64, 64, vec![use_of(&*gpu, Operation::Render)])
    };
    let buffer = gpu.allocate(&asked).unwrap();
    // SAFETY: the library is the system's, which the GPU under test has loaded too.
    let egl = unsafe {
        egl::DynamicInstance::<egl::EGL1_5>::load_required_from_filename("libEGL.so.1").unwrap()
    };
    let none = std::ptr::null_mut();
    // SAFETY: that platform has one display, which is asked for by null.
    let display = unsafe { egl.get_platform_display(SURFACELESS, none, &[egl::ATTRIB_NONE]) };
    let display = display.unwrap();
    egl.initialize(display).unwrap();
    egl.bind_api(egl::OPENGL_ES_API).unwrap();
    // SAFETY: of no config there is no object.
    let any = unsafe { egl::Config::from_ptr(none) };
    let version = [egl::CONTEXT_CLIENT_VERSION, 2, egl::NONE];
    let context = egl.create_context(display, any, None, &version).unwrap();
    for current in [Some(context), None] {
        egl.make_current(display, None, None, current).unwrap();
        drop(gpu.import(&buffer).unwrap());
        assert_eq!(egl.get_current_context(), current);
    }
    // One that is destroyed stays until another is current.
    egl.make_current(display, None, None, Some(context)).unwrap();
    egl.destroy_context(display, context).unwrap();
    drop(gpu.import(&buffer).unwrap());
    assert_eq!(egl.get_current_context(), Some(context));
    egl.terminate(display).unwrap();
}

#[test]
fn lavapipe_takes_planes_in_one_file_alone() {
    let Err(refused) = device("lavapipe").import(&in_three_files()) else { panic!("taken") };
    assert_eq!(refused.to_string(), "memory in one file is needed, not in 3");
}

/// VirGL's layouts are implicit: what it makes, nobody takes but the display of the same GPU.
#[test]
fn virgl_draws_what_its_own_display_shows() {
    let (gpu, display) = (device("virgl"), device("virtio-gpu"));
    let (name, shown_by) = (&gpu.info().name, &display.info().name);
    // Two nodes of one GPU are one maker.
    assert_ne!(gpu.info().number(), display.info().number());
    assert_eq!(gpu.info().owner(), display.info().owner());
    let used = [format!("{name}:render"), format!("{shown_by}:scanout")];
    let plan = planned(&["--use", &used[0], "--use", &used[1], "1280x720", "XR24"]);
    assert_eq!(plan["allocator"]["device"], name.as_str());
    assert_eq!(plan["layout"]["modifier"], "INVALID");
    assert!(plan["layout"]["planes"][0]["pitch"].as_u64() >= Some(5120), "{plan}");
    assert_eq!(plan["proofs"][0]["use"]["device"], shown_by.as_str());

    // The layout is said to be of this GPU, and no other makes it.
    let asked = Description {
        layout: nvabi_devmem::Layout::open(MODIFIER_INVALID),
        set: serde_json::from_value(plan["set"].clone()).unwrap(),
        ..description(1280, 720, vec![use_of(&*gpu, Operation::Render)])
    };
    for other in ["llvmpipe", "lavapipe"] {
        let Err(refused) = device(other).allocate(&asked) else { panic!("{other} made it") };
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    }
    drop(gpu.import(&gpu.allocate(&asked).unwrap()).unwrap());
}

#[test]
fn memory_of_virgl_serves_nobody_else() {
    let (gpu, bochs) = (device("virgl"), device("bochs"));
    for other in [format!("{}:scanout", bochs.info().name), "cpu:cpu-read".to_owned()] {
        let used = format!("{}:render", gpu.info().name);
        let uses = ["--use", &used, "--use", &other, "1280x720", "XR24"];
        let output = nvabi().args(["alloc", "plan"]).args(uses).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{text}");
        let apart = "no capability in common: implicit-modifier and pitch-linear";
        assert!(text.contains(apart), "{text}");
    }
}

/// A format that its driver samples and does not make.
#[test]
fn what_only_its_driver_can_make_and_does_not_is_not_planned() {
    let gpu = device("virgl");
    let image = Image::new(1280, 720, Fourcc::new(b"NV12"));
    assert_ne!(sets(&*gpu, image, Operation::Texture), []);
    assert_eq!(sets(&*gpu, image, Operation::Render), []);
    let used = format!("{}:texture", gpu.info().name);
    let output = nvabi().args(["alloc", "plan", "--use", &used, "1280x720", "NV12"]).output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("gbm_bo_create"), "{text}");
}
