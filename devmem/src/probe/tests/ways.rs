//! Devices that take memory in more ways than one, and their own memory.

use super::*;

fn own(device: &DeviceInfo) -> Constraint {
    Constraint::new(ConstraintName::MADE_BY, device.owner().unwrap())
}

fn whole_or_own(buffer: &Buffer) -> Result<()> {
    whole_alone(buffer).or_else(|_| own_alone(buffer))
}

/// It takes memory in one piece, or its own, which is in pages and near.
fn panel() -> Box<Fake> {
    let mut panel = display("panel", "/dev/null");
    panel.memory.placement = constraint::placement::LOCAL;
    panel.takes = whole_or_own;
    panel
}

/// A panel takes memory in one piece, or its own, which is in pages and near: what is freer is of no use where a GPU
/// asks for what is near, for nobody makes such in one piece.
#[test]
fn where_nobody_makes_what_a_freer_way_needs_the_next_is_taken() {
    let panel = panel();
    let own = own(&panel.info);
    let devices: Vec<Box<dyn Device>> = vec![fake("heap", any, u64::MAX), panel];
    let mut asked = description(&["panel"]);
    let (offer, _) =
        prober(9).offer(&*devices[1], &asked.usage.image, Operation::Capture, &devices).unwrap();
    let offered: Vec<&[Constraint]> = offer.sets.iter().map(|set| &set.constraints[..]).collect();
    assert_eq!(offered, [&[ONE_PIECE][..], &[own]]);
    let local = Constraint::new(ConstraintName::PLACEMENT, constraint::placement::LOCAL);
    asked.set.constraints = vec![local];
    let made = prober(9).make(&devices, &asked).unwrap();
    assert_eq!(
        (made.by.as_str(), &made.buffer.description().set.constraints[..]),
        ("panel", &[local, own][..])
    );
    // Where no way leads to memory, what came of each is told, however many uses there are.
    asked.set.constraints.push(Constraint::new(ConstraintName::PAGE_SIZE, 1 << 16));
    asked.usage.uses = vec![asked.usage.uses[0].clone(); 12];
    assert_eq!(
        prober(9).make(&devices, &asked).unwrap_err().to_string(),
        "where panel:capture needs contiguous 1: no memory serves all: \
         heap: placement local asked for, placement system offered; \
         panel: page-size 65536 asked for, page-size 4096 offered; \
         where panel:capture needs made-by 1:3: no memory serves all: \
         panel: page-size 65536 asked for, page-size 4096 offered"
    );
}

/// As a display whose rows are multiples of 128 bytes, and which shows nobody else's memory.
#[test]
fn rows_of_its_own_memory_are_as_far_apart_as_a_device_takes_them() {
    fn takes(buffer: &Buffer) -> Result<()> {
        own_alone(buffer).and_then(|()| steps::<128>(buffer))
    }
    let mut panel = display("gpu", "/dev/null");
    panel.takes = takes;
    let own = own(&panel.info);
    // Of steps that come to the same, the strictest.
    let steps = Constraint::new(ConstraintName::PITCH_ALIGNMENT, 256);
    let devices: Vec<Box<dyn Device>> = vec![fake("heap", any, u64::MAX), panel];
    let asked = of_width(1000, b"XR24");
    let needs = |prober: Prober| prober.needs(&*devices[1], Operation::Capture, &asked, &devices);
    assert_eq!(needs(prober(4)).unwrap(), [own, steps]);
    let made = prober(4).make(&devices, &asked).unwrap();
    assert_eq!(made.buffer.description().layout.planes[0].pitch, 4096);
    // So they are where others' is taken at another time.
    let mut full = display("gpu", "/dev/null");
    full.takes = |buffer| own_alone(buffer).or_else(|_| busy(buffer)).and_then(|()| takes(buffer));
    let needs_now = prober(4).needs(&*full, Operation::Capture, &asked, &devices);
    assert_eq!(needs_now.unwrap(), [own, steps]);
    // Where nobody else's memory can be had, it is believed that it takes it, in these rows.
    let mut alone = prober(4);
    alone.foreign.scatter = |_| Ok(None);
    assert_eq!(needs(alone).unwrap(), [steps]);
}

/// Of its own memory, a device shows by taking it that it takes that, and not that it is in one piece.
#[test]
fn own_memory_is_no_proof_that_it_is_in_one_piece() {
    let panel = carved("panel", "/dev/null", whole_or_own);
    let own = own(panel.info());
    let devices: Vec<Box<dyn Device>> = vec![panel, fake("heap", any, u64::MAX)];
    let mut asked = description(&["panel"]);
    let made = |asked: &Description| {
        let made = prober(9).make(&devices, asked).unwrap();
        (made.by, made.buffer.description().set.constraints.clone())
    };
    asked.set.constraints = vec![own];
    assert_eq!(made(&asked), ("panel".to_owned(), vec![own]));
    asked.set.constraints = vec![ONE_PIECE];
    assert_eq!(made(&asked), ("heap".to_owned(), vec![ONE_PIECE]));
    // Nor is it for another node of the same GPU.
    let mut node = display("panel", "/dev/null");
    (node.info.allocates, node.takes) = (false, whole_or_own);
    let gpu = carved("gpu", "/dev/null", any);
    let devices: Vec<Box<dyn Device>> = vec![gpu, node, fake("heap", any, u64::MAX)];
    asked.usage.uses = description(&["panel", "gpu"]).usage.uses;
    assert_eq!(prober(9).make(&devices, &asked).unwrap().by, "heap");
}

/// Others' memory in one piece is scarce: a device's own is asked for first where it costs less, or is preferred.
#[test]
fn of_ways_that_cost_the_same_the_maker_decides() {
    let camera = || {
        let mut camera = carved("camera", "/dev/null", whole_or_own);
        camera.0.cost = 40;
        camera
    };
    let heap = || {
        let mut heap = fake("heap", any, u64::MAX);
        heap.cost = 100;
        heap
    };
    let devices: Vec<Box<dyn Device>> = vec![heap(), camera()];
    let asked = description(&["camera"]);
    let by = |prober: Prober| {
        let served = prober.serve(&devices, &asked.usage, |_| true).unwrap().by;
        assert_eq!(prober.make(&devices, &asked).unwrap().by, served);
        served
    };
    assert_eq!(by(prober(9)), "camera");
    assert_eq!(by(prober(9).prefer(["heap".to_owned()])), "heap");
    // A panel that the camera's need proves its memory to, as it sees fit.
    let mut panel = carved("panel", "/dev/zero", any);
    panel.0.cost = 30;
    let devices: Vec<Box<dyn Device>> = vec![heap(), camera(), panel];
    let usage = description(&["camera", "panel"]).usage;
    let by = |prober: Prober| prober.serve(&devices, &usage, |_| true).unwrap().by;
    assert_eq!(by(prober(9)), "panel");
    assert_eq!(by(prober(9).prefer(["camera".to_owned()])), "camera");
}

/// That a heap is full says nothing of what was found out before, nor of the memory of others.
#[test]
fn what_was_found_out_serves_when_the_heap_is_full() {
    let mut panel = display("panel", "/dev/zero");
    (panel.info.allocates, panel.takes) = (false, whole_alone);
    let heap = Scarce(fake("heap", any, u64::MAX), AtomicUsize::new(0), |before| before < 1);
    let camera = carved("camera", "/dev/null", any);
    let devices: Vec<Box<dyn Device>> = vec![Box::new(heap), camera, panel];
    let (prober, mut asked) = (prober(9), description(&["camera", "panel"]));
    let needs = prober.needs(&*devices[2], Operation::Capture, &asked, &devices).unwrap();
    assert_eq!(needs, [ONE_PIECE]);
    asked.set.constraints = needs;
    assert_eq!(prober.make(&devices, &asked).unwrap().by, "camera");
}

/// That a device makes no memory is no refusal where nobody else's can be tried.
#[test]
fn who_makes_nothing_is_believed() {
    let mut panel = panel();
    panel.memory.max_size = 0;
    let mut alone = prober(9);
    alone.foreign.scatter = |_| Ok(None);
    let image = description(&[]).usage.image;
    let (offer, refusals) = alone.offer(&*panel, &image, Operation::Capture, &[]).unwrap();
    assert_eq!((offer.sets.len(), refusals), (1, Vec::new()));
}

#[test]
fn a_busy_device_is_told_as_that_and_asked_once() {
    let camera = fake("camera", busy, 0);
    let asked = camera.asked.clone();
    let devices: Vec<Box<dyn Device>> = vec![panel(), fake("heap", any, u64::MAX), camera];
    let error = prober(9).make(&devices, &description(&["panel", "camera"])).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EBUSY), "{error}");
    assert_eq!(asked.load(Ordering::Relaxed), 2, "scattered, and in one piece");
}

#[test]
fn a_busy_device_is_not_asked_for_other_rows() {
    let mut panel = display("gpu", "/dev/null");
    panel.takes = busy;
    let needs = prober(4).needs(&*panel, Operation::Capture, &of_width(1000, b"XR24"), &[]);
    assert_eq!(needs.unwrap_err().errno(), Some(libc::EBUSY));
    assert_eq!(panel.asked.load(Ordering::Relaxed), 2, "scattered, and its own");
}

/// As a processor that makes no memory of rows which it could not use.
struct Strict(Box<Fake>);

impl Device for Strict {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn sets(&self, image: &Image, operation: Operation) -> Result<Vec<CapabilitySet>> {
        self.0.sets(image, operation)
    }

    fn allocate(&self, description: &Description) -> Result<Buffer> {
        let memory = plain(description, false)?;
        steps::<64>(&memory).map(|()| memory)
    }

    fn import(&self, buffer: &Buffer) -> Result<Box<dyn Import>> {
        self.0.import(buffer)
    }
}

#[test]
fn rows_that_a_device_does_not_make_are_tried_further_apart() {
    let npu = Strict(display("gpu", "/dev/null"));
    let steps = Constraint::new(ConstraintName::PITCH_ALIGNMENT, 64);
    let asked = of_width(1001, b"XR24");
    let needs = prober(4).needs(&npu, Operation::Capture, &asked, &[]);
    assert_eq!(needs.unwrap(), [own(npu.info()), steps]);
    // None of others is there to try: that it makes none of these rows is no reason not to believe it.
    let mut alone = prober(4);
    alone.foreign.scatter = |_| Ok(None);
    assert_eq!(alone.needs(&npu, Operation::Capture, &asked, &[]).unwrap(), [steps]);
}

#[test]
fn what_was_found_without_memory_of_others_is_not_remembered() {
    let mut panel = display("panel", "/dev/null");
    panel.takes = |buffer| match own_alone(buffer) {
        Ok(()) => Err(errno("import", libc::EINVAL)),
        Err(_) => Ok(()),
    };
    let mut prober = prober(9);
    let needs = |prober: &Prober| prober.needs(&*panel, Operation::Capture, &description(&[]), &[]);
    let scatter = prober.foreign.scatter;
    prober.foreign.scatter = |_| Err(errno("open", libc::EMFILE));
    assert!(needs(&prober).is_err(), "its own is refused");
    prober.foreign.scatter = scatter;
    assert_eq!(needs(&prober).unwrap(), []);
}

/// A page is as large as it is: larger images are tried with fewer rows, which prove nothing of a device that takes
/// these scattered.
#[test]
fn large_images_are_tried_in_one_page() {
    let mut prober = prober(9);
    prober.foreign.one_piece = |description| {
        let fits = description.layout.size <= 2 << 20;
        fits.then(|| plain(description, true)).transpose()
    };
    let mut asked = description(&[]);
    asked.usage.image = Image::new(1024, 768, Fourcc::new(b"XR24"));
    asked.layout = solve(&asked.usage.image, &asked.set).unwrap();
    let needs = |name: &str, takes: fn(&Buffer) -> Result<()>| {
        let camera = fake(name, takes, 0);
        prober.needs(&*camera, Operation::Capture, &asked, &[])
    };
    assert_eq!(needs("bound", whole_alone).unwrap(), [ONE_PIECE]);
    let of_few_rows = |buffer: &Buffer| match buffer.description().usage.image.height {
        ..=512 => Ok(()),
        _ => Err(errno("import", libc::EINVAL)),
    };
    needs("low", of_few_rows).unwrap_err();
    let busy_in_few_rows = |buffer: &Buffer| match buffer.description().usage.image.height {
        ..=512 if !is_whole(buffer) => busy(buffer),
        _ => whole_alone(buffer),
    };
    assert_eq!(needs("busy", busy_in_few_rows).unwrap_err().errno(), Some(libc::EBUSY));
}

/// That one of two ways is not what it offers says nothing where the other is.
#[test]
fn what_is_offered_in_one_way_is_not_refused_in_another() {
    let elsewhere = Constraint::new(ConstraintName::MADE_BY, 999);
    let set = CapabilitySet::new([elsewhere], [Capability::pitch_linear()]);
    let mut panel = panel();
    panel.info.allocates = true;
    let devices: Vec<Box<dyn Device>> =
        vec![fake("heap", any, u64::MAX), Box::new(Offering(panel, vec![set]))];
    let image = description(&[]).usage.image;
    let (offer, refusals) =
        prober(9).offer(&*devices[1], &image, Operation::Capture, &devices).unwrap();
    let offered: Vec<&[Constraint]> = offer.sets.iter().map(|set| &set.constraints[..]).collect();
    assert_eq!(offered, [&[elsewhere, ONE_PIECE][..]]);
    let told: Vec<Tried> = refusals.iter().map(|refusal| refusal.tried).collect();
    assert_eq!(told, [Tried::Scattered]);
}

/// As a camera and a display without an IOMMU, where no heap makes memory in one piece and there are no large pages: what
/// the camera makes is in one piece, and the display alone can say so.
#[test]
fn memory_of_others_that_are_to_share_it_is_tried() {
    // One that plays no part, and would have to be set up.
    let mut other = making("other", 0, |other, description| {
        other.memory.serves_of(Some(&other.info), description)?;
        panic!("who takes no part is not to be asked")
    });
    (other.0.memory, other.0.info.node) = (Memory::UNKNOWN, "/dev/full".to_owned());
    let camera = carved("camera", "/dev/null", whole_alone);
    let panel = carved("panel", "/dev/zero", whole_alone);
    let count = panel.0.asked.clone();
    let devices: Vec<Box<dyn Device>> = vec![camera, panel, other];
    let (both, alone) = (description(&["camera", "panel"]), description(&["panel"]));
    let made_by = |at: usize| vec![own(devices[at].info())];
    let ways = |prober: &Prober, asked: &Description| {
        let of = asked.usage.uses.last().unwrap();
        prober.ways(&*devices[1], of, asked, &devices).unwrap()
    };
    // Alone it takes its own, which is no answer for where it has others; that one is for both.
    let prober = prober(9);
    assert_eq!(ways(&prober, &alone), [made_by(1)]);
    assert_eq!(ways(&prober, &both), [made_by(1), made_by(0)]);
    let tried = count.load(Ordering::Relaxed);
    for _ in 0..2 {
        assert_eq!(ways(&prober, &alone), [made_by(1)]);
        assert_eq!(ways(&prober, &both), [made_by(1), made_by(0)]);
    }
    assert_eq!(count.load(Ordering::Relaxed), tried);
    let rest = description(&["rest", "panel"]);
    assert_eq!(ways(&prober, &rest), [made_by(1)]);
    let tried = count.load(Ordering::Relaxed);
    for asked in [&both, &rest] {
        ways(&prober, asked);
    }
    assert_eq!(count.load(Ordering::Relaxed), tried);
    // Who takes any memory is asked once, whoever else does.
    let free = fake("free", any, 0);
    for asked in [description(&["free"]), description(&["free", "panel"])] {
        prober.needs(&*free, Operation::Capture, &asked, &devices).unwrap();
    }
    assert_eq!(free.asked.load(Ordering::Relaxed), 1);
    let both_alone = self::prober(9);
    assert_eq!(ways(&both_alone, &both), [made_by(1), made_by(0)]);
    let tried = count.load(Ordering::Relaxed);
    assert_eq!(ways(&both_alone, &alone), [made_by(1)]);
    assert_eq!(count.load(Ordering::Relaxed), tried);
    let made = prober.serve(&devices, &both.usage, |_| true).unwrap().by;
    assert_eq!((made.as_str(), prober.make(&devices, &both).unwrap().by), ("camera", made.clone()));
    let preferring = self::prober(9).prefer(["panel".to_owned()]);
    assert_eq!(preferring.serve(&devices, &both.usage, |_| true).unwrap().by, "panel");
    // A page in one piece says what it needs, whoever makes that.
    let mut page = self::prober(9);
    page.foreign.one_piece = |description| plain(description, true).map(Some);
    assert_eq!(ways(&page, &both), [vec![ONE_PIECE], made_by(1)]);
    assert_eq!(page.make(&devices, &both).unwrap().by, "camera");
    // What was used up may be there again.
    let mut full = self::prober(9);
    full.foreign.one_piece = |_| Err(errno("UDMABUF_CREATE", libc::ENOMEM));
    assert_eq!(ways(&full, &both), [made_by(1), made_by(0)]);
    full.foreign.one_piece = page.foreign.one_piece;
    assert_eq!(ways(&full, &both), [vec![ONE_PIECE], made_by(1)]);
    // Memory that is known not to be used is not tried.
    let mut apart = self::prober(9);
    apart.foreign.driver =
        |info| Some(if info.name == "camera" { "nvidia" } else { "i915" }.into());
    let texture = Use::new("panel", Operation::Texture);
    assert_eq!(apart.ways(&*devices[1], &texture, &both, &devices).unwrap(), [made_by(1)]);
    assert_eq!(self::prober(9).ways(&*devices[1], &texture, &both, &devices).unwrap().len(), 2);
}

/// What it makes depends on what it is for; what it refuses says nothing of others, and is told of it.
#[test]
fn others_make_memory_for_their_own_uses() {
    fn panels_alone(buffer: &Buffer) -> Result<()> {
        let own = Constraint::new(ConstraintName::MADE_BY, 0x105);
        let is_own = buffer.description().set.constraints.contains(&own);
        is_own.then_some(()).ok_or_else(|| errno("import", libc::EINVAL))
    }
    let camera = |needs: Operation| {
        let mut camera = making(
            "camera",
            0,
            match needs {
                Operation::Capture => |camera, description| {
                    camera.memory.serves_of(Some(&camera.info), description)?;
                    let is_own =
                        |of: &Use| (&*of.device, of.operation) == ("camera", Operation::Capture);
                    match description.usage.uses.iter().any(is_own) {
                        true => plain(description, true),
                        false => Err(errno("VIDIOC_S_FMT", libc::EINVAL)),
                    }
                },
                _ => |_, _| Err(errno("VIDIOC_S_FMT", libc::EINVAL)),
            },
        );
        (camera.0.memory, camera.0.info.node) = (Memory::UNKNOWN, "/dev/null".to_owned());
        camera
    };
    let heap = || fake("heap", any, u64::MAX);
    let asked = description(&["camera", "panel"]);
    let ways = |needs, takes| {
        let panel = carved("panel", "/dev/zero", takes);
        let devices: Vec<Box<dyn Device>> = vec![camera(needs), panel, heap()];
        let answer = prober(9).answer(&*devices[1], &asked.usage.uses[1], &asked, &devices);
        let answer = answer.unwrap();
        let told = answer.refusals.iter().map(Refusal::to_string).collect::<Vec<_>>();
        (answer.ways.len(), told.last().cloned().unwrap_or_default())
    };
    assert_eq!(ways(Operation::Capture, own_alone as fn(&Buffer) -> Result<()>).0, 2);
    assert_eq!(ways(Operation::Encode, own_alone).0, 1);
    let (count, told) = ways(Operation::Capture, panels_alone);
    assert_eq!(count, 1);
    assert!(told.contains("does not take memory of camera: import"), "{told}");
}

/// A camera's size changes by itself, and what a device makes depends on all of its uses.
#[test]
fn that_another_made_none_is_not_remembered() {
    static MAKES: AtomicUsize = AtomicUsize::new(0);
    let mut camera = making("camera", 0, |camera, description| {
        camera.memory.serves_of(Some(&camera.info), description)?;
        let captures = description.usage.uses.iter().filter(|of| of.device == "camera").count();
        match MAKES.load(Ordering::Relaxed) == captures {
            true => plain(description, true),
            false => Err(errno("VIDIOC_S_FMT", libc::EINVAL)),
        }
    });
    (camera.0.memory, camera.0.info.node) = (Memory::UNKNOWN, "/dev/null".to_owned());
    let panel = carved("panel", "/dev/zero", own_alone);
    let devices: Vec<Box<dyn Device>> = vec![camera, panel];
    let prober = prober(9);
    let (one, mut two) = (description(&["camera", "panel"]), description(&["camera", "panel"]));
    two.usage.uses.push(Use::new("camera", Operation::Encode));
    let count = |asked: &Description| {
        prober.ways(&*devices[1], &asked.usage.uses[1], asked, &devices).unwrap().len()
    };
    assert_eq!(count(&one), 1);
    MAKES.store(2, Ordering::Relaxed);
    assert_eq!([&one, &two, &one].map(count), [1, 2, 1]);
    MAKES.store(1, Ordering::Relaxed);
    assert_eq!((count(&one), count(&two)), (2, 2));
}

/// That memory to try rows further apart with could not be made is no answer.
#[test]
fn rows_that_were_not_tried_are_no_answer() {
    fn once_in_all(description: &Description) -> Result<Option<Buffer>> {
        match description.layout.planes[0].pitch % 64 {
            0 => Err(errno("memfd_create", libc::EMFILE)),
            _ => plain(description, false).map(Some),
        }
    }
    let mut panel = display("gpu", "/dev/null");
    panel.takes = |buffer| own_alone(buffer).or_else(|_| steps::<64>(buffer));
    let devices: Vec<Box<dyn Device>> = vec![panel];
    let asked = of_width(1001, b"XR24");
    let mut prober = prober(9);
    let needs =
        |prober: &Prober| prober.needs(&*devices[0], Operation::Capture, &asked, &devices).unwrap();
    prober.foreign.scatter = once_in_all;
    assert_eq!(needs(&prober), [own(devices[0].info())]);
    prober.foreign.scatter = |description| plain(description, false).map(Some);
    assert_eq!(needs(&prober), [Constraint::new(ConstraintName::PITCH_ALIGNMENT, 64)]);
}

/// What a device needs of a large image, it may not need of a smaller one of the same kind: within a limit.
#[test]
fn what_an_image_needs_is_remembered_for_larger_ones() {
    let mut panel = display("gpu", "/dev/null");
    panel.takes = |buffer| match buffer.description().usage.image.height {
        ..=600 => Ok(()),
        _ => own_alone(buffer),
    };
    let asked = |height| {
        let image = Image::new(1000, height, Fourcc::new(b"XR24"));
        let set = CapabilitySet::new(vec![], vec![Capability::pitch_linear()]);
        let layout = solve(&image, &set).unwrap();
        Description { usage: Usage::new(image, Vec::new()), set, layout, metadata: Vec::new() }
    };
    let own = own(&panel.info);
    let prober = prober(9);
    let count = panel.asked.clone();
    let devices: Vec<Box<dyn Device>> = vec![panel];
    let needs = |height| {
        let before = count.load(Ordering::Relaxed);
        let asked = asked(height);
        let needs = prober.needs(&*devices[0], Operation::Capture, &asked, &devices).unwrap();
        (needs, count.load(Ordering::Relaxed) > before)
    };
    assert_eq!(needs(800), (vec![own], true));
    assert_eq!(needs(1000), (vec![own], false));
    assert_eq!(needs(600), (vec![], true));
    assert_eq!(needs(700), (vec![], false));
    // A window that gets smaller drives no other answers out.
    let few = self::prober(2);
    let camera = fake("camera", any, 0);
    let of_camera = || few.needs(&*camera, Operation::Capture, &asked(600), &devices).unwrap();
    of_camera();
    for height in (700..800).rev() {
        few.needs(&*devices[0], Operation::Capture, &asked(height), &devices).unwrap();
    }
    of_camera();
    assert_eq!(camera.asked.load(Ordering::Relaxed), 1);
}
