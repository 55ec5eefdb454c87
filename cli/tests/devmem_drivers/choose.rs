//! What devices need and do not say, and the memory that serves them all.

use std::os::fd::AsRawFd;

use nvabi_devmem::constraint::placement;
use nvabi_devmem::{
    Buffer, CapabilitySet, Constraint, ConstraintName, Description, Operation, Prober, Usage, Use,
    derive_all, solve,
};

use super::capture::capture;
use super::scanout::{Display, difference};
use super::{XRGB, description, device, devices, read, use_of};

const CONTIGUOUS: Constraint = Constraint::new(ConstraintName::CONTIGUOUS, 1);

#[test]
fn a_camera_that_takes_no_scattered_memory_is_found_out() {
    let (any, whole) = (device("camera"), device("contiguous-camera"));
    device("udmabuf");
    let (all, prober) = (devices(), Prober::default());
    let image = description(640, 480, Vec::new()).usage.image;
    let has = |camera: &dyn nvabi_devmem::Device| {
        // Neither says it.
        let said = camera.sets(&image, Operation::Capture).unwrap();
        assert!(said.iter().all(|set| !set.constraints.contains(&CONTIGUOUS)));
        let found = prober.sets(camera, &image, Operation::Capture, &all).unwrap();
        // Its own is in one piece, whoever knows it.
        let own = |set: &CapabilitySet| set.constraint(ConstraintName::MADE_BY).is_some();
        assert!(!own(&found[0]), "memory of others comes first");
        found.iter().all(|set| set.constraints.contains(&CONTIGUOUS) || own(set))
    };
    assert!(has(&*whole), "the camera takes memory in one piece alone");
    assert!(!has(&*any), "the camera takes any memory");
}

#[test]
fn an_answer_is_remembered() {
    let whole = device("contiguous-camera");
    device("udmabuf");
    let (all, prober) = (devices(), Prober::default());
    let image = description(640, 480, Vec::new()).usage.image;
    let needs =
        |description: &Description| prober.needs(&*whole, Operation::Capture, description, &all);
    let description = description(640, 480, vec![use_of(&*whole, Operation::Capture)]);
    assert_eq!(needs(&description).unwrap(), [CONTIGUOUS]);
    // While somebody captures, nothing could be tried.
    let own = whole.allocate(&description).unwrap();
    let held = whole.import(&own).unwrap();
    let fresh = Prober::default();
    let refused = fresh.needs(&*whole, Operation::Capture, &description, &all).unwrap_err();
    assert_eq!(refused.errno(), Some(libc::EBUSY), "{refused}");
    assert_eq!(needs(&description).unwrap(), [CONTIGUOUS]);
    drop(held);
    assert_eq!(fresh.needs(&*whole, Operation::Capture, &description, &all).unwrap(), [CONTIGUOUS]);
    assert_eq!(image.format, XRGB);
}

/// Camera, display and CPU: one buffer, which each of them is seen to use.
fn through(camera: &'static str, size: (u32, u32)) -> Description {
    let (camera, display) = (device(camera), device("vkms"));
    let (all, prober) = (devices(), Prober::default());
    let uses = vec![
        use_of(&*camera, Operation::Capture),
        use_of(&*display, Operation::Scanout),
        Use::new("cpu", Operation::CpuRead),
    ];
    let image = description(size.0, size.1, Vec::new()).usage.image;
    let sets: Vec<_> = uses
        .iter()
        .map(|each| {
            let device = all.iter().find(|device| device.info().name == each.device).unwrap();
            prober.sets(&**device, &image, each.operation, &all).unwrap()
        })
        .collect();
    let mut reasons = Vec::new();
    let buffer = derive_all(&sets).sets.into_iter().find_map(|set| {
        let (usage, layout) = (Usage::new(image, uses.clone()), solve(&image, &set).unwrap());
        let description = Description { usage, set, layout, metadata: vec![] };
        prober.allocate(&all, &description).map_err(|error| reasons.push(error)).ok()
    });
    let buffer = buffer.unwrap_or_else(|| panic!("{reasons:?}"));
    if size == (640, 480) {
        capture(&camera.info().node, &buffer);
        let shown = Display::open(&display.info().node).show(&buffer);
        assert_eq!(difference(&shown, &read(&buffer)[..shown.len()]), None);
    }
    buffer.description().clone()
}

#[test]
fn a_camera_and_a_display_share_scattered_memory() {
    let description = through("camera", (640, 480));
    assert!(!description.set.constraints.contains(&CONTIGUOUS));
}

#[test]
fn a_contiguous_camera_and_a_display_share_memory_in_one_piece() {
    // Where nobody else has memory in one piece, it is the camera's own.
    let description = through("contiguous-camera", (640, 480));
    let own = description.set.constraint(ConstraintName::MADE_BY);
    assert!(description.set.constraints.contains(&CONTIGUOUS) || own.is_some());
    // More than a large page.
    let description = through("contiguous-camera", (1280, 720));
    assert!(description.layout.size > 2 << 20);
}

/// Who made a dma-buf, as the kernel calls it.
fn exporter(buffer: &Buffer) -> String {
    let info = format!("/proc/self/fdinfo/{}", buffer.whole().unwrap().as_raw_fd());
    let info = std::fs::read_to_string(info).unwrap();
    let name = info.lines().find_map(|line| line.strip_prefix("exp_name:"));
    name.unwrap_or("none").trim().to_owned()
}

/// Which device's memory serves a constraint at the least cost.
fn is_taken(constraint: Constraint, wanted: &'static str, made_by: &str) {
    device(wanted);
    let mut description = description(640, 480, Vec::new());
    description.set.constraints = vec![constraint];
    let buffer = Prober::default().allocate(&devices(), &description).unwrap();
    assert_eq!(exporter(&buffer), made_by, "{constraint}");
}

#[test]
fn the_cheapest_memory_is_the_heaps() {
    is_taken(Constraint::new(ConstraintName::CONTIGUOUS, 0), "dma-heap:system", "system");
}

#[test]
fn the_cheapest_memory_of_large_pages_is_udmabufs() {
    is_taken(Constraint::new(ConstraintName::PAGE_SIZE, 2 << 20), "udmabuf:2M", "udmabuf");
}

#[test]
fn the_cheapest_memory_in_one_piece_is_reserved() {
    let constraint = Constraint::new(ConstraintName::PLACEMENT, placement::CONTIGUOUS);
    is_taken(constraint, "dma-heap:reserved", "reserved");
}

#[test]
fn memory_that_nobody_makes_is_refused_with_what_each_says() {
    let all = devices();
    let mut asked = description(640, 480, Vec::new());
    asked.set.constraints = vec![Constraint::new(ConstraintName::PLACEMENT, placement::PROTECTED)];
    let refused = Prober::default().allocate(&all, &asked).unwrap_err().to_string();
    assert!(refused.starts_with("no memory serves all: "), "{refused}");
    assert!(
        refused.contains("cpu: placement protected asked for, placement system offered"),
        "{refused}"
    );
    asked.usage.uses = vec![Use::new("gpu", Operation::Render)];
    let refused = Prober::default().allocate(&all, &asked).unwrap_err().to_string();
    assert_eq!(refused, "there is no device gpu");
}
