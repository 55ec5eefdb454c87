mod ways;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::libc;

use super::trial::{ONE_PIECE, Source};
use super::*;
use crate::buffer::page;
use crate::{Detail, Fourcc, Import, Memory, Plane};

/// A device that takes memory as a test says, and counts how often it is asked to.
struct Fake {
    info: DeviceInfo,
    takes: fn(&Buffer) -> Result<()>,
    memory: Memory,
    cost: u64,
    asked: Arc<AtomicUsize>,
}

struct Taken;

impl Import for Taken {}

impl Device for Fake {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn sets(&self, _: &Image, _: Operation) -> Result<Vec<CapabilitySet>> {
        Ok(vec![CapabilitySet::new(vec![], vec![Capability::pitch_linear()])])
    }

    fn memory(&self) -> Option<Memory> {
        Some(self.memory)
    }

    fn cost(&self, _: &CapabilitySet) -> u64 {
        self.cost
    }

    fn allocate(&self, description: &Description) -> Result<Buffer> {
        // Whose memory it is, the prober sees to.
        let mut asked = description.clone();
        asked.set.constraints.retain(|asked| asked.name != ConstraintName::MADE_BY);
        self.memory.serves(&asked)?;
        plain(description, self.memory.contiguous == u64::MAX)
    }

    fn import(&self, buffer: &Buffer) -> Result<Box<dyn Import>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        (self.takes)(buffer).map(|()| Box::new(Taken) as _)
    }
}

/// Memory that says of itself whether it is in one piece.
fn plain(description: &Description, whole: bool) -> Result<Buffer> {
    let file = tempfile::tempfile().unwrap();
    file.set_len(description.layout.size).unwrap();
    let mut description = description.clone();
    description.metadata = vec![("whole".to_owned(), vec![u8::from(whole)])];
    Buffer::new(file.into(), description)
}

fn errno(call: &str, number: i32) -> Error {
    Error::io(ErrorKind::Call, call, std::io::Error::from_raw_os_error(number))
}

fn is_whole(buffer: &Buffer) -> bool {
    buffer.description().metadata.first().is_some_and(|(_, value)| *value == [1])
}

fn whole_alone(buffer: &Buffer) -> Result<()> {
    is_whole(buffer).then_some(()).ok_or_else(|| errno("import", libc::EFAULT))
}

fn busy(_: &Buffer) -> Result<()> {
    Err(errno("import", libc::EBUSY))
}

fn any(_: &Buffer) -> Result<()> {
    Ok(())
}

fn fake(name: &str, takes: fn(&Buffer) -> Result<()>, contiguous: u64) -> Box<Fake> {
    let info = DeviceInfo {
        name: name.to_owned(),
        node: String::new(),
        operations: vec![Operation::Capture],
        allocates: contiguous > 0,
        imports: true,
    };
    let memory = Memory { contiguous, ..Memory::PAGES };
    Box::new(Fake { info, takes, memory, cost: 0, asked: Arc::default() })
}

type Makes = fn(&Fake, &Description) -> Result<Buffer>;

/// A heap of memory in one piece that makes it as a test says.
struct Making(Box<Fake>, Makes);

impl Device for Making {
    fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    fn sets(&self, _: &Image, _: Operation) -> Result<Vec<CapabilitySet>> {
        Ok(Vec::new())
    }

    fn memory(&self) -> Option<Memory> {
        self.0.memory()
    }

    fn cost(&self, set: &CapabilitySet) -> u64 {
        self.0.cost(set)
    }

    fn allocate(&self, description: &Description) -> Result<Buffer> {
        (self.1)(&self.0, description)
    }
}

fn making(name: &str, cost: u64, makes: Makes) -> Box<Making> {
    let mut heap = fake(name, any, u64::MAX);
    heap.cost = cost;
    Box::new(Making(heap, makes))
}

fn prober(capacity: usize) -> Prober {
    let mut prober = Prober::new(capacity);
    prober.foreign.scatter = |description| plain(description, false).map(Some);
    prober.foreign.one_piece = |_| Ok(None);
    prober
}

fn description(uses: &[&str]) -> Description {
    let image = Image::new(64, 64, Fourcc::new(b"XR24"));
    let set = CapabilitySet::new(vec![], vec![Capability::pitch_linear()]);
    let layout = solve(&image, &set).unwrap();
    let uses = uses.iter().map(|name| Use::new(*name, Operation::Capture)).collect();
    Description { usage: Usage::new(image, uses), set, layout, metadata: Vec::new() }
}

#[test]
fn what_is_found_out_is_asked_once() {
    let (camera, heap) = (fake("camera", whole_alone, 0), fake("heap", any, u64::MAX));
    let asked = camera.asked.clone();
    let devices: Vec<Box<dyn Device>> = vec![heap];
    let prober = prober(4);
    for _ in 0..3 {
        let needs = prober.needs(&*camera, Operation::Capture, &description(&[]), &devices);
        assert_eq!(needs.unwrap(), [ONE_PIECE]);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2, "scattered, and in one piece");
    // Another operation is another question.
    prober.needs(&*camera, Operation::Encode, &description(&[]), &devices).unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 4);
}

#[test]
fn no_more_is_remembered_than_was_said() {
    let cameras: Vec<Box<Fake>> =
        ["a", "b", "c"].map(|name| fake(name, any, 0)).into_iter().collect();
    let asked = |index: usize| cameras[index].asked.load(Ordering::Relaxed);
    let prober = prober(2);
    let ask = |index: usize| {
        let operation = Operation::Capture;
        prober.needs(&*cameras[index], operation, &description(&[]), &[]).unwrap()
    };
    // `a` is asked again and so stays; `b` has to go for `c`.
    for index in [0, 1, 0, 2, 0] {
        ask(index);
    }
    assert_eq!([asked(0), asked(1), asked(2)], [1, 1, 1]);
    ask(1);
    assert_eq!(asked(1), 2);
}

#[test]
fn what_passes_is_not_remembered() {
    let full = |_: &Buffer| Err(errno("import", libc::ENOSPC));
    let (gpu, camera) = (fake("gpu", full, 0), fake("camera", busy, 0));
    let prober = prober(4);
    for (device, error) in [(&gpu, libc::ENOSPC), (&camera, libc::EBUSY)] {
        for _ in 0..2 {
            let needs = prober.needs(&**device, Operation::Capture, &description(&[]), &[]);
            assert_eq!(needs.unwrap_err().errno(), Some(error));
        }
        assert_eq!(device.asked.load(Ordering::Relaxed), 2);
    }
    let image = description(&[]).usage.image;
    let (offer, refusals) = prober.offer(&*camera, &image, Operation::Capture, &[]).unwrap();
    assert_eq!((offer.sets.len(), refusals.len()), (0, 1));
    assert_eq!(
        refusals[0].to_string(),
        "camera:capture in rows of 256 bytes could not be tried with scattered memory: \
         import: Device or resource busy (os error 16)"
    );
}

#[test]
fn what_passes_is_told_of_rows_further_apart_too() {
    let busy_later = |buffer: &Buffer| match buffer.description().layout.planes[0].pitch {
        4004 => Err(errno("import", libc::EINVAL)),
        _ => busy(buffer),
    };
    let gpu = fake("gpu", busy_later, 0);
    let image = of_width(1001, b"XR24").usage.image;
    let (_, refusals) = prober(4).offer(&*gpu, &image, Operation::Capture, &[]).unwrap();
    let said: Vec<(u64, bool)> = refusals.iter().map(|it| (it.pitch, it.passing)).collect();
    assert_eq!(said, [(4004, false), (4032, true)]);
}

#[test]
fn several_files_are_several_requests() {
    let devices: Vec<Box<dyn Device>> = vec![fake("pages", any, 4096)];
    let request = |format: &[u8; 4], files| {
        let mut asked = description(&[]);
        asked.usage.image.format = Fourcc::new(format);
        asked.set.constraints.push(Constraint::new(ConstraintName::FILES, files));
        asked.layout = solve(&asked.usage.image, &asked.set).unwrap();
        prober(4).make(&devices, &asked).unwrap().request
    };
    assert_eq!(request(b"NV12", 1), "6144 bytes of pages");
    assert_eq!(request(b"YU24", 3), "3 times 4096 bytes of pages");
    let page = page();
    let bytes = |size: u64| format!("{} bytes of pages", size.next_multiple_of(page));
    // Files are whole pages.
    assert_eq!(request(b"NV24", 2), format!("{}; {}", bytes(4096), bytes(8192)));
}

#[test]
fn memory_is_what_all_users_take() {
    let devices: Vec<Box<dyn Device>> = vec![
        fake("camera", whole_alone, 0),
        fake("display", any, 0),
        fake("pages", any, 4096),
        fake("heap", any, u64::MAX),
    ];
    let buffer = prober(4).allocate(&devices, &description(&["display"])).unwrap();
    assert!(!is_whole(&buffer));
    let buffer = prober(4).allocate(&devices, &description(&["display", "camera"])).unwrap();
    assert!(is_whole(&buffer));
    assert_eq!(buffer.description().set.constraints, [ONE_PIECE]);
}

#[test]
fn who_is_preferred_is_asked_first() {
    let devices: Vec<Box<dyn Device>> =
        vec![fake("pages", any, 4096), fake("heap", any, u64::MAX), fake("other", any, 4096)];
    let by = |names: &[&str]| {
        let prober = prober(4).prefer(names.iter().map(|name| (*name).to_owned()));
        prober.make(&devices, &description(&["other"])).unwrap().by
    };
    assert_eq!(by(&[]), "pages");
    assert_eq!(by(&["absent", "other", "heap"]), "other");
    let mut asked = description(&["other"]);
    asked.set.constraints.push(ONE_PIECE);
    let prober = prober(4).prefer(["other".to_owned()]);
    assert_eq!(prober.make(&devices, &asked).unwrap().by, "heap", "who cannot is passed over");
}

#[test]
fn who_takes_neither_kind_of_memory_says_so() {
    let camera = fake("camera", |_| Err(Error::unsupported("no")), 0);
    let devices: Vec<Box<dyn Device>> = vec![fake("heap", any, u64::MAX)];
    let needs = prober(4).needs(&*camera, Operation::Capture, &description(&[]), &devices);
    assert_eq!(
        needs.unwrap_err().to_string(),
        "camera:capture in rows of 256 bytes does not take scattered memory: no; \
         camera:capture in rows of 256 bytes does not take memory in one piece: no"
    );
}

fn of_width(width: u32, format: &[u8; 4]) -> Description {
    let mut asked = description(&["gpu"]);
    asked.usage.image = Image::new(width, 64, Fourcc::new(format));
    asked.layout = solve(&asked.usage.image, &asked.set).unwrap();
    asked
}

/// A GPU that steps from row to row in units which it does not tell.
fn steps<const STEP: u64>(buffer: &Buffer) -> Result<()> {
    let mut planes = buffer.description().layout.planes.iter();
    match planes.all(|plane| plane.pitch % STEP == 0) {
        true => Ok(()),
        false => Err(errno("import", libc::EINVAL)),
    }
}

#[test]
fn rows_are_as_far_apart_as_a_device_takes_them() {
    type Takes = fn(&Buffer) -> Result<()>;
    let cases: [(Takes, u32, &[u8; 4], Option<u64>); 8] = [
        (steps::<4>, 1001, b"XR24", Some(0)),
        (steps::<4>, 1002, b"NV12", Some(256)),
        (steps::<64>, 1001, b"XR24", Some(64)),
        (steps::<64>, 1002, b"NV12", Some(256)),
        (steps::<256>, 1001, b"XR24", Some(256)),
        (steps::<256>, 900, b"XR24", Some(256)),
        (steps::<128>, 900, b"XR24", Some(128)),
        (steps::<1000>, 1001, b"XR24", None),
    ];
    for (takes, width, format, step) in cases {
        let devices: Vec<Box<dyn Device>> =
            vec![fake("heap", any, u64::MAX), fake("gpu", takes, 0)];
        let (asked, prober) = (of_width(width, format), prober(9));
        let offered = prober.offer(&*devices[1], &asked.usage.image, Operation::Capture, &devices);
        let (offer, refusals) = offered.unwrap();
        let step = step.map(|step| match step {
            0 => vec![],
            step => vec![Constraint::new(ConstraintName::PITCH_ALIGNMENT, step)],
        });
        let found = offer.sets.first().map(|set| set.constraints.clone());
        assert_eq!(found, step, "{width}: {refusals:?}");
        let pitch = asked.layout.planes[0].pitch;
        let told = format!("gpu:capture in rows of {pitch} bytes does not take scattered");
        let told = refusals.iter().filter(|it| it.to_string().starts_with(&told)).count();
        assert_eq!((told, refusals.len()), if found == Some(vec![]) { (0, 0) } else { (1, 2) });
        // What is asked for by hand is laid out anew.
        let made = prober.make(&devices, &asked).ok().map(|made| made.buffer);
        let made = made.map(|made| made.description().layout.planes[0].pitch);
        let steps = found.map(|found| found.first().map_or(1, |step| step.value));
        assert_eq!(made, steps.map(|step| pitch.next_multiple_of(step)));
    }
}

/// Who has no memory in one piece left says nothing about rows.
#[test]
fn rows_further_apart_are_tried_where_a_heap_is_empty() {
    let gpu = fake("gpu", steps::<64>, 0);
    let devices: Vec<Box<dyn Device>> =
        vec![making("heap", 0, |_, _| Err(errno("DMA_HEAP_IOCTL_ALLOC", libc::ENOMEM)))];
    let (asked, prober) = (of_width(1001, b"XR24"), prober(9));
    let needs = || prober.needs(&*gpu, Operation::Capture, &asked, &devices).unwrap();
    let further = [Constraint::new(ConstraintName::PITCH_ALIGNMENT, 64)];
    assert_eq!(needs(), further);
    let offered = prober.offer(&*gpu, &asked.usage.image, Operation::Capture, &devices);
    let told: Vec<bool> = offered.unwrap().1.iter().map(|refusal| refusal.passing).collect();
    assert_eq!(told, [false, true]);
    // In one piece, rows as they were may be taken when there is memory again.
    let tried = gpu.asked.load(Ordering::Relaxed);
    assert_eq!(needs(), further);
    assert!(gpu.asked.load(Ordering::Relaxed) > tried);
}

/// How far apart rows may be decides with which ones a device was tried.
#[test]
fn an_answer_for_one_constraint_is_none_for_others() {
    let gpu = fake("gpu", steps::<64>, 0);
    let (prober, free) = (prober(9), of_width(1001, b"XR24"));
    let mut bound = free.clone();
    bound.set.constraints.push(Constraint::new(ConstraintName::MAX_PITCH, 4004));
    let needs = |asked| prober.needs(&*gpu, Operation::Capture, asked, &[]);
    for _ in 0..2 {
        assert!(needs(&bound).is_err());
        let further = Constraint::new(ConstraintName::PITCH_ALIGNMENT, 64);
        assert_eq!(needs(&free).unwrap(), [further]);
    }
}

/// A device whose memory is in one piece, of which nobody knows.
struct Carved(Box<Fake>);

impl Device for Carved {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn sets(&self, image: &Image, operation: Operation) -> Result<Vec<CapabilitySet>> {
        self.0.sets(image, operation)
    }

    fn memory(&self) -> Option<Memory> {
        Some(Memory::UNKNOWN)
    }

    fn cost(&self, set: &CapabilitySet) -> u64 {
        self.0.cost(set)
    }

    fn allocate(&self, description: &Description) -> Result<Buffer> {
        Memory::UNKNOWN.serves_of(Some(self.info()), description)?;
        plain(description, true)
    }

    fn import(&self, buffer: &Buffer) -> Result<Box<dyn Import>> {
        self.0.import(buffer)
    }
}

fn carved(name: &str, node: &str, takes: fn(&Buffer) -> Result<()>) -> Box<Carved> {
    let mut device = fake(name, takes, 4096);
    device.info.node = node.to_owned();
    Box::new(Carved(device))
}

/// As a camera that needs one piece and a display that takes its own memory: what the display asks for is not in the
/// way of what the camera is tried with.
#[test]
fn what_others_ask_of_memory_is_no_part_of_a_question() {
    let devices: Vec<Box<dyn Device>> = vec![
        fake("heap", any, u64::MAX),
        carved("camera", "/dev/null", whole_alone),
        carved("panel", "/dev/zero", own_alone),
    ];
    let number = fs::metadata("/dev/zero").unwrap().rdev();
    let own = Constraint::new(ConstraintName::MADE_BY, number);
    for names in [["camera", "panel"], ["panel", "camera"]] {
        let prober = prober(9);
        let made = prober.serve(&devices, &description(&names).usage, |_| true).unwrap();
        let mut constraints = made.buffer.description().set.constraints.clone();
        constraints.sort_by_key(|constraint| constraint.name);
        assert_eq!((made.by.as_str(), constraints), ("panel", vec![ONE_PIECE, own]));
    }
}

/// In one piece and near.
fn near(description: &Description) -> Result<Buffer> {
    let mut near = description.clone();
    near.metadata = vec![("near".to_owned(), Vec::new())];
    let file = tempfile::tempfile().unwrap();
    file.set_len(near.layout.size).unwrap();
    Buffer::new(file.into(), near)
}

/// As a camera that cannot reach a GPU's memory, and can a heap's.
fn near_alone(buffer: &Buffer) -> Result<()> {
    match buffer.description().metadata.as_slice() {
        [(name, _)] if name == "near" => Ok(()),
        _ => Err(errno("import", libc::EFAULT)),
    }
}

#[test]
fn each_that_makes_memory_in_one_piece_is_tried() {
    let devices: Vec<Box<dyn Device>> = vec![
        fake("far", any, u64::MAX),
        making("near", 1000, |of, description| {
            // Once it has none left.
            if of.asked.fetch_add(1, Ordering::Relaxed) == 0 {
                return Err(errno("DMA_HEAP_IOCTL_ALLOC", libc::ENOMEM));
            }
            of.memory.serves(description)?;
            near(description)
        }),
        fake("camera", near_alone, 0),
    ];
    let camera = &*devices[2];
    let prober = prober(9);
    let image = description(&[]).usage.image;
    let offer = || prober.offer(camera, &image, Operation::Capture, &devices).unwrap();
    // That the far one is refused says nothing of the near one, nor that it is empty now.
    let (empty, refusals) = offer();
    let passing = refusals.iter().filter(|refusal| refusal.passing).count();
    assert_eq!((empty.sets.len(), passing), (0, 1), "{refusals:?}");
    for _ in 0..2 {
        let (offer, refusals) = offer();
        assert_eq!(offer.sets[0].constraints, [ONE_PIECE]);
        let tried: Vec<Tried> = refusals.iter().map(|refusal| refusal.tried).collect();
        assert_eq!(tried, [Tried::Scattered], "it does take one piece");
    }
    assert_eq!(prober.make(&devices, &description(&["camera"])).unwrap().by, "near");
}

/// A page in one piece is tried too, where others' memory was refused; of several the same is said once.
#[test]
fn a_page_is_tried_after_the_memory_of_others() {
    let mut prober = prober(9);
    let devices: Vec<Box<dyn Device>> =
        vec![fake("far", any, u64::MAX), fake("further", any, u64::MAX)];
    let camera = fake("camera", near_alone, 0);
    let needs =
        |prober: &Prober| prober.needs(&*camera, Operation::Capture, &description(&[]), &devices);
    let refused = needs(&prober).unwrap_err().to_string();
    assert_eq!(refused.matches("memory in one piece").count(), 1, "{refused}");
    prober = self::prober(9);
    prober.foreign.one_piece = |description| near(description).map(Some);
    assert_eq!(needs(&prober).unwrap(), [ONE_PIECE]);
}

/// Aligned memory is there for who asks for it; a device that does is tried with that.
#[test]
fn a_device_is_tried_with_what_it_asks_of_memory() {
    let aligned = Constraint::new(ConstraintName::ADDRESS_ALIGNMENT, 1 << 16);
    let set = CapabilitySet::new([aligned], [Capability::pitch_linear()]);
    let devices: Vec<Box<dyn Device>> = vec![
        making("heap", 0, |_, description| {
            let aligned = description.set.constraint(ConstraintName::ADDRESS_ALIGNMENT);
            plain(description, aligned.is_some())
        }),
        Box::new(Offering(fake("npu", whole_alone, 0), vec![set])),
    ];
    let image = description(&[]).usage.image;
    let offered = prober(9).offer(&*devices[1], &image, Operation::Capture, &devices);
    assert_eq!(offered.unwrap().0.sets[0].constraints, [aligned, ONE_PIECE]);
}

/// Memory in one piece that a device makes and takes is no proof that it takes that of others.
#[test]
fn its_own_memory_in_one_piece_is_its_own() {
    let mut npu = display("npu", "/dev/null");
    npu.memory.contiguous = u64::MAX;
    let own = Constraint::new(ConstraintName::MADE_BY, npu.info.number().unwrap());
    npu.takes = |buffer| match buffer.description().metadata.len() {
        1 => whole_alone(buffer),
        _ => Err(errno("import", libc::ENODEV)),
    };
    let marked = |_: &Fake, description: &Description| {
        let mut marked = description.clone();
        marked.metadata = vec![(String::new(), Vec::new()); 2];
        let file = tempfile::tempfile().unwrap();
        file.set_len(marked.layout.size).unwrap();
        Buffer::new(file.into(), marked)
    };
    let image = description(&[]).usage.image;
    let mut devices: Vec<Box<dyn Device>> = vec![npu];
    for heap in [Some(making("heap", 0, marked)), None] {
        devices.extend(heap.map(|heap| heap as Box<dyn Device>));
        let offered = prober(9).offer(&*devices[0], &image, Operation::Capture, &devices);
        assert_eq!(offered.unwrap().0.sets[0].constraints, [own]);
        devices.truncate(1);
    }
}

/// As a card that reaches others' memory in one piece alone, and makes its own of pages.
#[test]
fn a_device_that_asks_for_its_own_memory_needs_no_other() {
    let local = Constraint::new(ConstraintName::PLACEMENT, constraint::placement::LOCAL);
    let mut npu = display("npu", "/dev/null");
    npu.takes = |buffer| whole_alone(buffer).or_else(|_| own_alone(buffer));
    npu.memory.placement = constraint::placement::LOCAL;
    let set = CapabilitySet::new([local], [Capability::pitch_linear()]);
    let devices: Vec<Box<dyn Device>> =
        vec![fake("heap", any, u64::MAX), Box::new(Offering(npu, vec![set]))];
    let made = prober(9).serve(&devices, &description(&["npu"]).usage, |_| true);
    assert_eq!(made.unwrap().by, "npu");
}

/// No heap has what a GPU asks for; without that, a device is still tried with what it asks for itself.
#[test]
fn what_a_device_asks_of_memory_is_kept_where_others_ask_for_a_heap() {
    let set = |asked| CapabilitySet::new([asked], [Capability::pitch_linear()]);
    let local = Constraint::new(ConstraintName::PLACEMENT, constraint::placement::LOCAL);
    let aligned = Constraint::new(ConstraintName::ADDRESS_ALIGNMENT, 1 << 16);
    let mut gpu = fake("gpu", any, u64::MAX);
    gpu.memory.placement = constraint::placement::LOCAL;
    gpu.memory.page = 1 << 16;
    let devices: Vec<Box<dyn Device>> = vec![
        making("heap", 0, |of, description| {
            let mut asked = description.clone();
            let alignment = asked.set.constraint(ConstraintName::ADDRESS_ALIGNMENT);
            asked.set.constraints.retain(|it| it.name != ConstraintName::ADDRESS_ALIGNMENT);
            of.memory.serves(&asked)?;
            plain(description, alignment.is_some())
        }),
        Box::new(Offering(fake("npu", whole_alone, 0), vec![set(aligned)])),
        Box::new(Offering(gpu, vec![set(local)])),
    ];
    let made = prober(9).serve(&devices, &description(&["npu", "gpu"]).usage, |_| true);
    assert_eq!(made.unwrap().by, "gpu");
}

/// As a GPU that says by nothing but a refusal how large an image may be.
#[test]
fn what_is_too_large_says_nothing_of_smaller_images() {
    let gpu = fake(
        "gpu",
        |buffer| match buffer.description().usage.image.width <= 1920 {
            true => Ok(()),
            false => Err(errno("import", libc::EINVAL)),
        },
        0,
    );
    let (prober, asked) = (prober(9), || gpu.asked.load(Ordering::Relaxed));
    let sets = |width| {
        let image = Image::new(width, 1080, Fourcc::new(b"XR24"));
        prober.sets(&*gpu, &image, Operation::Capture, &[]).unwrap().len()
    };
    assert_eq!((sets(2048), sets(1920), sets(1600)), (0, 1, 1));
    let tried = asked();
    // All of it is remembered, also what was refused before.
    assert_eq!((sets(2048), sets(1920), sets(1600), asked()), (0, 1, 1, tried));
}

/// What a GPU asks for, no heap has; the camera takes memory in one piece all the same, which the GPU makes.
#[test]
fn where_nothing_keeps_to_what_others_ask_a_device_is_asked_without_it() {
    let local = Constraint::new(ConstraintName::PLACEMENT, constraint::placement::LOCAL);
    let owner = Constraint::new(ConstraintName::MADE_BY, 999);
    let camera = carved("camera", "/dev/null", whole_alone);
    let devices: Vec<Box<dyn Device>> = vec![fake("heap", any, u64::MAX)];
    let mut asked = description(&["camera"]);
    let of = asked.usage.uses[0].clone();
    for constraint in [local, owner] {
        asked.set.constraints = vec![constraint];
        let ways = prober(9).ways_among(&*camera, &of, &asked, &devices).unwrap();
        assert!(ways.contains(&vec![ONE_PIECE]), "{ways:?}");
    }
}

/// One that is turned needs other memory than one that is not, in whatever order they are named.
#[test]
fn each_use_of_a_device_is_tried() {
    let takes = |buffer: &Buffer| {
        let mut uses = buffer.description().usage.uses.iter();
        match uses.any(|of| !of.details.is_empty()) {
            true => own_alone(buffer),
            false => Ok(()),
        }
    };
    let mut panel = display("panel", "/dev/null");
    panel.takes = takes;
    let devices: Vec<Box<dyn Device>> = vec![fake("heap", any, u64::MAX), panel];
    let mut asked = description(&["panel", "panel"]);
    asked.usage.uses[1].details = vec![Detail::transform(2)];
    for _ in 0..2 {
        assert_eq!(prober(9).make(&devices, &asked).unwrap().by, "panel");
        asked.usage.uses.reverse();
    }
}

/// It would have to be set up: cameras are cheaper than memory of the CPU.
#[test]
fn who_takes_no_part_and_sees_fit_is_asked_last() {
    let cpu = fake("cpu", any, 4096);
    let devices: Vec<Box<dyn Device>> = vec![carved("camera", "/dev/null", any), cpu];
    let by = |names: &[&str]| prober(4).make(&devices, &description(names)).unwrap().by;
    assert_eq!(by(&["cpu"]), "cpu");
    assert_eq!(by(&["cpu", "camera"]), "camera");
}

/// What a display shows is asked of its use, also where a description does not name it.
#[test]
fn a_question_names_its_use() {
    struct Named(Box<Fake>);
    impl Device for Named {
        fn info(&self) -> &DeviceInfo {
            self.0.info()
        }

        fn sets(&self, _: &Image, _: Operation) -> Result<Vec<CapabilitySet>> {
            Ok(Vec::new())
        }

        fn allocate(&self, description: &Description) -> Result<Buffer> {
            self.0.allocate(description)
        }

        fn import(&self, buffer: &Buffer) -> Result<Box<dyn Import>> {
            let uses = &buffer.description().usage.uses;
            assert_eq!(*uses, [Use::new("panel", Operation::Scanout)]);
            Ok(Box::new(Taken))
        }
    }
    let panel = Named(fake("panel", any, 0));
    prober(4).needs(&panel, Operation::Scanout, &description(&[]), &[]).unwrap();
}

#[test]
fn sizes_are_of_any_width() {
    let gpu = fake("gpu", any, 0);
    let mut asked = description(&["gpu"]);
    for width in [1 << 31, (1 << 31) + 1, u32::MAX] {
        asked.usage.image = Image::new(width, 1, Fourcc::new(b"R8  "));
        asked.layout = solve(&asked.usage.image, &asked.set).unwrap();
        prober(4).needs(&*gpu, Operation::Capture, &asked, &[]).unwrap();
    }
}

/// Constraints are a set: their order asks nothing.
#[test]
fn an_answer_is_for_constraints_in_any_order() {
    let gpu = fake("gpu", any, 0);
    let (prober, mut asked) = (prober(9), of_width(1001, b"XR24"));
    asked.set.constraints = vec![Constraint::new(ConstraintName::MAX_PITCH, 8192), ONE_PIECE];
    for _ in 0..2 {
        prober.needs(&*gpu, Operation::Capture, &asked, &[]).unwrap();
        asked.set.constraints.reverse();
    }
    assert_eq!(gpu.asked.load(Ordering::Relaxed), 1);
}

#[test]
fn an_answer_for_one_size_is_none_for_others() {
    let narrow = |buffer: &Buffer| match buffer.description().usage.image.width {
        ..=512 => Ok(()),
        _ => Err(Error::unsupported("too wide")),
    };
    let sizes = [64, 1001, 500, 1024, 64];
    for sizes in [sizes.to_vec(), sizes.into_iter().rev().collect()] {
        let gpu = fake("gpu", narrow, 0);
        let prober = prober(9);
        for width in sizes {
            let asked = of_width(width, b"XR24");
            let needs = prober.needs(&*gpu, Operation::Capture, &asked, &[]);
            assert_eq!(needs.is_ok(), width <= 512, "{width}");
        }
    }
}

/// What was refused with some rows says nothing of others.
#[test]
fn an_answer_for_some_rows_is_none_for_others() {
    let takes = |buffer: &Buffer| match buffer.description().layout.planes[0].pitch {
        2032 => Ok(()),
        _ => Err(Error::unsupported("rows")),
    };
    let gpu = fake("gpu", takes, 0);
    let (prober, mut asked) = (prober(9), of_width(500, b"XR24"));
    for (pitch, is_taken) in [(2000, false), (2032, true), (2000, false)] {
        asked.layout.planes[0].pitch = pitch;
        let needs = prober.needs(&*gpu, Operation::Capture, &asked, &[]);
        assert_eq!(needs.is_ok(), is_taken, "{pitch}");
    }
}

/// As bochs and virtio-gpu: what others made cannot be imported.
fn own_alone(buffer: &Buffer) -> Result<()> {
    let own = buffer.description().set.constraint(ConstraintName::MADE_BY);
    own.map(drop).ok_or_else(|| errno("import", libc::ENODEV))
}

/// A display with a file of its own.
fn display(name: &str, node: &str) -> Box<Fake> {
    let mut display = fake(name, own_alone, 4096);
    display.info.node = node.to_owned();
    display
}

#[test]
fn a_device_that_takes_its_own_memory_alone_is_planned_with() {
    let devices: Vec<Box<dyn Device>> =
        vec![fake("heap", any, u64::MAX), display("panel", "/dev/null")];
    let number = fs::metadata("/dev/null").unwrap().rdev();
    let (prober, image) = (prober(4), description(&[]).usage.image);
    let panel = &*devices[1];
    let (offer, refusals) = prober.offer(panel, &image, Operation::Capture, &devices).unwrap();
    let own = Constraint::new(ConstraintName::MADE_BY, number);
    assert_eq!(offer.sets[0].constraints, [own]);
    assert_eq!(own.to_string(), "made-by 1:3");
    let refusals: Vec<String> = refusals.iter().map(Refusal::to_string).collect();
    assert_eq!(
        refusals,
        [
            "panel:capture in rows of 256 bytes does not take scattered memory: import: No such device (os error 19)",
            "panel:capture in rows of 256 bytes does not take memory in one piece: import: No such device (os error 19)",
        ]
    );
    let made = prober.make(&devices, &description(&["panel"])).unwrap();
    assert_eq!((made.by.as_str(), made.request.as_str()), ("panel", "16384 bytes of panel"));

    // Two such displays have no memory for both, and this is why.
    let second = display("second", "/dev/zero");
    let of_second = prober.offer(&*second, &image, Operation::Capture, &devices).unwrap();
    let why = crate::plan(&[offer, of_second.0]).unwrap_err().to_string();
    let first = why.lines().next().unwrap();
    assert_eq!(
        first,
        "no memory serves panel:capture and second:capture: made-by 1:3 and 1:5 are two devices"
    );
}

/// As a render node that makes what the display of the same GPU shows, which makes none itself.
#[test]
fn memory_of_another_node_of_the_same_gpu_is_tried_as_well() {
    let mut panel = display("panel", "/dev/null");
    panel.info.allocates = false;
    let devices: Vec<Box<dyn Device>> = vec![
        fake("heap", any, u64::MAX),
        display("stranger", "/dev/zero"),
        display("gpu", "/dev/null"),
        panel,
    ];
    let own = Constraint::new(ConstraintName::MADE_BY, devices[2].info().owner().unwrap());
    let (prober, asked) = (prober(4), description(&["panel", "gpu"]));
    let needs = |of: usize, devices: &[Box<dyn Device>]| {
        prober.needs(&*devices[of], Operation::Capture, &asked, devices)
    };
    assert_eq!(needs(3, &devices).unwrap(), [own]);
    assert_eq!(needs(2, &devices).unwrap(), [own]);
    assert_eq!(prober.make(&devices, &asked).unwrap().by, "gpu");
    let nobody = Prober { foreign: prober.foreign, ..Prober::new(4) };
    let alone = nobody.needs(&*devices[3], Operation::Capture, &asked, &devices[..2]);
    assert!(!alone.unwrap_err().to_string().contains("node of its GPU"));
}

/// A heap that has room for a piece where a test says so, by how many were asked for before.
struct Scarce(Box<Fake>, AtomicUsize, fn(usize) -> bool);

impl Device for Scarce {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn sets(&self, _: &Image, _: Operation) -> Result<Vec<CapabilitySet>> {
        Ok(Vec::new())
    }

    /// What is not in one piece answers for itself.
    fn memory(&self) -> Option<Memory> {
        Some(self.0.memory).filter(|memory| memory.contiguous == u64::MAX)
    }

    fn allocate(&self, description: &Description) -> Result<Buffer> {
        match (self.2)(self.1.fetch_add(1, Ordering::Relaxed)) {
            false => Err(errno("DMA_HEAP_IOCTL_ALLOC", libc::ENOMEM)),
            true => self.0.allocate(description),
        }
    }
}

#[test]
fn that_memory_to_try_with_is_used_up_is_not_remembered() {
    let camera = fake("camera", whole_alone, 0);
    let heap = Scarce(fake("heap", any, u64::MAX), AtomicUsize::new(0), |before| before > 0);
    let devices: Vec<Box<dyn Device>> = vec![Box::new(heap)];
    let (prober, asked) = (prober(4), description(&[]));
    let needs = || prober.needs(&*camera, Operation::Capture, &asked, &devices);
    assert_eq!(needs().unwrap_err().errno(), Some(libc::ENOMEM));
    assert_eq!(needs().unwrap(), [ONE_PIECE]);

    // The same of another node of its GPU.
    let mut panel = display("panel", "/dev/null");
    panel.info.allocates = false;
    let gpu = Scarce(display("gpu", "/dev/null"), AtomicUsize::new(0), |before| before > 0);
    let devices: Vec<Box<dyn Device>> = vec![Box::new(gpu)];
    let needs = || prober.needs(&*panel, Operation::Capture, &asked, &devices);
    assert_eq!(needs().unwrap_err().errno(), Some(libc::ENOMEM));
    assert_eq!(needs().unwrap()[0].name, ConstraintName::MADE_BY);
}

/// A display that shows what it takes.
struct Panel(Box<Fake>);

struct ShownHere;

impl Import for ShownHere {
    fn shown(&self) -> Option<Shown> {
        Some(Shown::Commit)
    }
}

impl Device for Panel {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn sets(&self, image: &Image, operation: Operation) -> Result<Vec<CapabilitySet>> {
        self.0.sets(image, operation)
    }

    /// Displays look for what is asked of them by their names.
    fn import(&self, buffer: &Buffer) -> Result<Box<dyn Import>> {
        let mut uses = buffer.description().usage.uses.iter();
        match uses.any(|of| of.operation == Operation::Scanout) {
            true => Err(Error::unsupported("the scan-out of another")),
            false => Ok(Box::new(ShownHere)),
        }
    }
}

#[test]
fn a_trial_is_of_one_use() {
    let panel = Panel(fake("panel", any, 0));
    let mut asked = description(&["panel", "panel"]);
    asked.usage.uses[1].operation = Operation::Scanout;
    let (prober, devices) = (prober(4), Vec::new());
    let needs = |operation| prober.needs(&panel, operation, &asked, &devices).is_ok();
    assert_eq!([Operation::Capture, Operation::Scanout].map(needs), [true, false]);
}

#[test]
fn an_answer_is_of_the_makers_that_there_were() {
    let camera = fake("camera", whole_alone, 0);
    let heap: Vec<Box<dyn Device>> = vec![fake("heap", any, u64::MAX)];
    let prober = prober(4);
    let needs = |devices: &[Box<dyn Device>]| {
        prober.needs(&*camera, Operation::Capture, &description(&[]), devices).ok()
    };
    let answers = [&[][..], &heap, &[]].map(needs);
    assert_eq!(answers, [None, Some(vec![ONE_PIECE]), None]);
}

#[test]
fn a_proof_is_of_the_use_that_was_tried() {
    let devices: Vec<Box<dyn Device>> =
        vec![fake("heap", any, u64::MAX), Box::new(Panel(fake("panel", any, 0)))];
    let mut asked = description(&["away", "heap", "panel", "panel"]);
    asked.usage.uses[3].operation = Operation::Scanout;
    let proofs = |elsewhere: &[usize]| {
        let made = prober(4).make_here(&devices, &asked, elsewhere).unwrap();
        assert_eq!(made.buffer.description().usage, asked.usage);
        made.proofs
    };
    let proof = Proof { of: asked.usage.uses[2].clone(), by: Shown::Commit };
    // What is elsewhere is not tried, although a device here has that name.
    assert_eq!(proofs(&[0, 3]), [proof]);
    assert_eq!(proofs(&[0, 2, 3]), []);
    assert!(prober(4).make_here(&devices, &asked, &[0, 2]).is_err());
}

/// Who makes memory as it sees fit cannot promise anything to those who are not here to be tried.
#[test]
fn what_is_not_known_of_memory_is_tried_or_refused() {
    let mut gpu = fake("gpu", any, 4096);
    gpu.memory = Memory::UNKNOWN;
    // Refuses what others made scattered, as a camera that needs one piece.
    let camera = fake("camera", whole_alone, 0);
    let mut devices: Vec<Box<dyn Device>> = vec![gpu, camera];
    let asked = |uses: &[&str], constraint| {
        let mut asked = description(uses);
        asked.set.constraints = vec![constraint];
        asked
    };
    let made = |devices: &[Box<dyn Device>], asked: &Description| {
        let uses = asked.usage.uses.iter().enumerate();
        let away: Vec<usize> =
            uses.filter(|(_, of)| of.device == "away").map(|(at, _)| at).collect();
        let made = prober(4).make_here(devices, asked, &away);
        made.map(|made| (made.by, made.buffer.description().clone())).map_err(|it| it.to_string())
    };
    // That a device takes it proves nothing where none is known to refuse what is in pieces.
    let refused = "no memory serves all: gpu: contiguous 1 asked for, and not known of this memory";
    for uses in [&["gpu"][..], &["gpu", "away"], &["away"], &[]] {
        assert_eq!(made(&devices, &asked(uses, ONE_PIECE)).unwrap_err(), refused, "{uses:?}");
    }
    assert!(prober(4).make(&devices, &asked(&["gpu", "away"], ONE_PIECE)).is_err());
    // No import shows that memory is hidden from the CPU.
    let of = |name, value| Constraint::new(name, value);
    let hidden = of(ConstraintName::PLACEMENT, constraint::placement::PROTECTED);
    let refused = made(&devices, &asked(&["gpu"], hidden)).unwrap_err();
    assert!(refused.ends_with("placement protected asked for, and not known of this memory"));
    let visible = of(ConstraintName::PLACEMENT, constraint::placement::VISIBLE);
    let mapped = |uses: &[&str]| {
        let mut asked = asked(uses, visible);
        asked.usage.uses[0].operation = Operation::CpuWrite;
        asked
    };
    assert!(made(&devices, &mapped(&["gpu"])).is_ok());
    assert!(made(&devices, &mapped(&["gpu", "away"])).is_err());
    assert!(made(&devices, &asked(&["gpu"], visible)).is_err(), "nobody has mapped it");
    let pages = of(ConstraintName::PAGE_SIZE, 1 << 16);
    assert!(made(&devices, &asked(&["gpu"], pages)).is_err());
    devices.push(fake("heap", any, u64::MAX));
    let (by, as_asked) = made(&devices, &asked(&["gpu", "away"], ONE_PIECE)).unwrap();
    assert_eq!((by.as_str(), as_asked.usage.uses.len()), ("heap", 2));
    // The camera tells one piece from many: what it takes is one. The GPU's is not, and the heap's is.
    let visible = asked(&["camera"], visible);
    let (by, as_made) = made(&devices, &visible).unwrap();
    assert_eq!(
        (by.as_str(), as_made.set.constraint(ConstraintName::CONTIGUOUS)),
        ("heap", Some(1))
    );
}

/// GPUs of other drivers import what NVIDIA's makes, and what they draw with it never ends.
#[test]
fn what_is_known_to_fail_is_not_tried() {
    let gpu = |name: &str, operation| {
        let mut gpu = fake(name, any, 4096);
        gpu.memory = Memory::UNKNOWN;
        gpu.info.operations = vec![operation];
        gpu
    };
    let cases = [
        ("nvidia", "amdgpu", Operation::Texture, "amdgpu"),
        ("nvidia", "nvidia", Operation::Texture, "nvidia:0"),
        ("nvidia", "amdgpu", Operation::Scanout, "nvidia:0"),
        ("amdgpu", "nvidia", Operation::Render, "amdgpu:0"),
    ];
    for (maker, user, operation, by) in cases {
        let name = format!("{maker}:0");
        let (maker, other) = (gpu(&name, operation), gpu(user, operation));
        let mut wanted = description(&[&name, user]);
        wanted.usage.uses.iter_mut().for_each(|of| of.operation = operation);
        let devices: Vec<Box<dyn Device>> = vec![maker, other];
        let mut prober = prober(4);
        prober.foreign.driver = |info| Some(info.name.trim_end_matches(":0").to_owned());
        assert_eq!(prober.make(&devices, &wanted).unwrap().by, by, "{operation}");
    }
    // Where nobody else makes any, it is told.
    let mut alone = gpu("amdgpu", Operation::Texture);
    alone.info.allocates = false;
    let devices: Vec<Box<dyn Device>> = vec![gpu("nvidia:0", Operation::Texture), alone];
    let mut wanted = description(&["amdgpu"]);
    wanted.usage.uses[0].operation = Operation::Texture;
    let mut prober = prober(4);
    prober.foreign.driver = |info| Some(info.name.trim_end_matches(":0").to_owned());
    let told = prober.make(&devices, &wanted).unwrap_err().to_string();
    assert!(told.ends_with("cannot use it (open-gpu-kernel-modules#1037)"), "{told}");
    // Nor in a trial, which would be the same harm.
    let maker = fake("nvidia:0", any, u64::MAX);
    let gpu = fake("amdgpu", whole_alone, 0);
    let devices: Vec<Box<dyn Device>> = vec![maker];
    let mut prober = self::prober(4);
    prober.foreign.driver = |info| Some(info.name.trim_end_matches(":0").to_owned());
    let needs = prober.needs(&*gpu, Operation::Texture, &wanted, &devices).unwrap_err();
    assert!(!needs.to_string().contains("one piece"), "{needs}");
}

/// As a device for whose translations of scattered memory no room is left.
#[test]
fn where_memory_of_others_passes_by_its_own_is_tried() {
    let mut camera = display("camera", "/dev/null");
    camera.takes = |buffer| own_alone(buffer).map_err(|_| errno("import", libc::ENOMEM));
    let asked = camera.asked.clone();
    let own = Constraint::new(ConstraintName::MADE_BY, camera.info.owner().unwrap());
    let (prober, image) = (prober(4), description(&[]).usage.image);
    for round in 1..=2 {
        let offered = prober.offer(&*camera, &image, Operation::Capture, &[]);
        let (offer, refusals) = offered.unwrap();
        assert_eq!(offer.sets[0].constraints, [own]);
        assert!(refusals.len() == 1 && refusals[0].passing, "{refusals:?}");
        // Another time it may take more: nothing is remembered.
        assert_eq!(asked.load(Ordering::Relaxed), 2 * round);
    }
}

/// As `/dev/udmabuf` is for users who may not open it, and kernels without its lists.
#[test]
fn what_the_trial_itself_lacks_is_no_refusal() {
    let camera = fake("camera", whole_alone, 4096);
    let devices: Vec<Box<dyn Device>> = vec![camera, fake("heap", any, u64::MAX)];
    let image = description(&[]).usage.image;
    for make in [
        (|_: &Description| Err(errno("open", libc::EACCES))) as Source,
        |_| Err(errno("UDMABUF_CREATE_LIST", libc::ENOTTY)),
        |_| Err(errno("memfd_create", libc::EMFILE)),
    ] {
        let mut prober = prober(4);
        let works = std::mem::replace(&mut prober.foreign.scatter, make);
        assert_eq!(prober.untried(), None);
        for device in &devices {
            let (offer, refusals) =
                prober.offer(&**device, &image, Operation::Capture, &devices).unwrap();
            assert_eq!((offer.sets.len(), refusals), (1, Vec::new()));
        }
        assert_eq!(prober.make(&devices, &description(&["heap"])).unwrap().by, "camera");
        let untried = prober.untried().unwrap();
        assert!(untried.contains("os error"), "{untried}");
        // It is tried again as soon as that works.
        prober.foreign.scatter = works;
        let needs = prober.needs(&*devices[0], Operation::Capture, &description(&[]), &devices);
        assert_eq!(needs.unwrap(), [ONE_PIECE]);
    }
}

/// As udmabuf, which makes 64 MiB at most.
#[test]
fn large_images_are_tried_with_fewer_rows() {
    let camera = fake("camera", whole_alone, 0);
    let devices: Vec<Box<dyn Device>> = vec![fake("heap", any, u64::MAX)];
    let needs = |format: &[u8; 4], width: u32| {
        let mut prober = prober(4);
        prober.foreign.most = || 64 << 10;
        prober.foreign.scatter = |asked| match asked.layout.size {
            ..=65536 => plain(asked, false).map(Some),
            _ => Err(errno("UDMABUF_CREATE_LIST", libc::EINVAL)),
        };
        let mut asked = description(&[]);
        asked.usage.image = Image::new(width, 1002, Fourcc::new(format));
        asked.layout = solve(&asked.usage.image, &asked.set).unwrap();
        let needs = prober.needs(&*camera, Operation::Capture, &asked, &devices).unwrap();
        assert_eq!(prober.untried(), None);
        needs
    };
    assert_eq!(needs(b"XR24", 1024), [ONE_PIECE]);
    assert_eq!(needs(b"NV12", 1024), [ONE_PIECE]);
    assert_eq!(needs(b"XR24", 1 << 20), [], "one row is too large to try it");
}

#[test]
fn where_nothing_can_be_tried_a_device_is_believed() {
    let mut prober = prober(4);
    prober.foreign.scatter = |_| Ok(None);
    let (cpu, broken) = (fake("cpu", any, 4096), display("panel", "/dev/null"));
    let image = description(&[]).usage.image;
    let sets = |device: &Fake| prober.sets(device, &image, Operation::Capture, &[]).unwrap();
    assert_eq!(sets(&cpu).len(), 1);
    assert_eq!(sets(&broken).len(), 1);
    let refuses = Fake { takes: |_| Err(Error::unsupported("no")), ..*broken };
    let (offer, refusals) = prober.offer(&refuses, &image, Operation::Encode, &[]).unwrap();
    assert_eq!(offer.sets, []);
    assert_eq!(
        refusals[0].to_string(),
        "panel:encode in rows of 256 bytes does not take its own memory: no"
    );
}

/// A device that offers what it does not keep to, and one set that it does.
struct Offering(Box<Fake>, Vec<CapabilitySet>);

impl Device for Offering {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn sets(&self, _: &Image, _: Operation) -> Result<Vec<CapabilitySet>> {
        Ok(self.1.clone())
    }

    fn allocate(&self, description: &Description) -> Result<Buffer> {
        self.0.allocate(description)
    }

    fn import(&self, buffer: &Buffer) -> Result<Box<dyn Import>> {
        self.0.import(buffer)
    }
}

#[test]
fn what_fits_no_format_rules_one_way_out() {
    let set = |constraints: &[Constraint]| {
        CapabilitySet::new(constraints, vec![Capability::pitch_linear()])
    };
    let (files, maker) = (ConstraintName::FILES, ConstraintName::MADE_BY);
    let sets =
        vec![set(&[Constraint::new(files, 5)]), set(&[Constraint::new(maker, 999)]), set(&[])];
    let mut panel = Offering(display("panel", "/dev/null"), sets);
    panel.0.takes = |buffer| {
        let of = buffer.description().set.constraint(ConstraintName::MADE_BY);
        let number = fs::metadata("/dev/null").unwrap().rdev();
        (of == Some(number)).then_some(()).ok_or_else(|| Error::unsupported("no"))
    };
    let image = description(&[]).usage.image;
    let devices: Vec<Box<dyn Device>> = vec![fake("heap", any, u64::MAX)];
    let (offer, refusals) = prober(9).offer(&panel, &image, Operation::Capture, &devices).unwrap();
    let number = fs::metadata("/dev/null").unwrap().rdev();
    assert_eq!(offer.sets, [set(&[Constraint::new(maker, number)])]);
    let refusals: Vec<String> = refusals.iter().map(Refusal::to_string).collect();
    assert!(refusals[0].ends_with("5 files for 1 planes"), "{refusals:?}");
    assert!(refusals.iter().any(|it| it.ends_with("are two devices")), "{refusals:?}");
}

/// As GBM: it makes memory in as many files as it likes.
#[test]
fn memory_in_other_files_than_were_asked_for_is_refused() {
    struct Splitter(DeviceInfo);
    impl Device for Splitter {
        fn info(&self) -> &DeviceInfo {
            &self.0
        }

        fn sets(&self, _: &Image, _: Operation) -> Result<Vec<CapabilitySet>> {
            Ok(Vec::new())
        }

        fn allocate(&self, description: &Description) -> Result<Buffer> {
            let file = |plane: &Plane| {
                let file = tempfile::tempfile().unwrap();
                file.set_len(plane.size).unwrap();
                file.into()
            };
            let files = description.layout.planes.iter().map(file).collect();
            Buffer::by_planes(files, description.clone())
        }

        fn import(&self, _: &Buffer) -> Result<Box<dyn Import>> {
            Ok(Box::new(Taken))
        }
    }
    let devices: Vec<Box<dyn Device>> = vec![Box::new(Splitter(fake("gpu", any, 4096).info))];
    let mut asked = description(&["gpu"]);
    asked.usage.image.format = Fourcc::new(b"NV12");
    asked.layout = solve(&asked.usage.image, &asked.set).unwrap();
    assert_eq!(prober(4).make(&devices, &asked).unwrap().buffer.pieces().len(), 2);
    asked.set.constraints.push(Constraint::new(ConstraintName::FILES, 1));
    let refused = prober(4).make(&devices, &asked).unwrap_err().to_string();
    assert!(refused.ends_with("gpu: memory in 2 files, and 1 are asked for"), "{refused}");
}

/// A GPU with tiles that only its driver knows, which says where it laid the pixels.
struct Tiler {
    info: DeviceInfo,
    pitch: u64,
}

const TILES: u64 = 0x0700_0000_0000_0001;

impl Device for Tiler {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn sets(&self, _: &Image, _: Operation) -> Result<Vec<CapabilitySet>> {
        let whole = Constraint::new(ConstraintName::PITCH_ALIGNMENT, 256);
        Ok(vec![CapabilitySet::new([whole], [Capability::modifier(TILES)])])
    }

    fn chooses_layouts(&self) -> bool {
        true
    }

    fn allocate(&self, description: &Description) -> Result<Buffer> {
        assert!(description.layout.is_open());
        let planes = vec![Plane { offset: 0, pitch: self.pitch, size: 65536 }];
        let layout = Layout { planes, size: 65536, ..description.layout };
        plain(&Description { layout, ..description.clone() }, false)
    }

    fn import(&self, _: &Buffer) -> Result<Box<dyn Import>> {
        Ok(Box::new(Taken))
    }
}

#[test]
fn what_only_a_driver_lays_out_it_makes() {
    let serve = |pitch| {
        let info = fake("gpu", any, 4096).info;
        let devices: Vec<Box<dyn Device>> =
            vec![fake("heap", any, u64::MAX), Box::new(Tiler { info, pitch })];
        prober(4).serve(&devices, &description(&["gpu"]).usage, |_| true)
    };
    let made = serve(512).unwrap();
    assert_eq!(made.by, "gpu");
    let layout = &made.buffer.description().layout;
    assert_eq!((layout.modifier, layout.planes[0].pitch), (TILES, 512));
    assert_eq!(
        serve(300).unwrap_err().to_string(),
        "no memory serves all: gpu: rows of plane 0 are 300 bytes apart"
    );
}

#[test]
fn answers_are_of_one_format() {
    let camera = fake("camera", any, 0);
    let prober = prober(4);
    for format in [b"XR24", b"XR24", b"AR24"] {
        let mut asked = description(&[]);
        asked.usage.image.format = Fourcc::new(format);
        prober.needs(&*camera, Operation::Capture, &asked, &[]).unwrap();
    }
    assert_eq!(camera.asked.load(Ordering::Relaxed), 2);
    let mut tiled = description(&[]);
    tiled.layout.modifier = 1 << 56 | 1;
    prober.needs(&*camera, Operation::Capture, &tiled, &[]).unwrap();
    assert_eq!(camera.asked.load(Ordering::Relaxed), 3);
}
