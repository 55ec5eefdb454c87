//! Displays that take no memory of others (bochs, virtio-gpu): a refusal rules one way out and no more. And the
//! firmware's framebuffer.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nvabi_devmem::{
    Buffer, Capability, CapabilitySet, Constraint, ConstraintName, Description, Detail, Device,
    DeviceInfo, Image, Import, Memory, Operation, Prober, Proof, Result, Shown, Tried, Usage, Use,
    transform,
};
use nvabi_test::{Need, skip};
use serde_json::Value;

use super::command::nvabi;
use super::{XRGB, description, device, devices, render_node, use_of};

fn takes_its_own_memory_alone(name: &'static str, errno: &str) {
    let display = device(name);
    device("udmabuf");
    let (all, prober) = (devices(), Prober::default());
    let info = display.info();
    let image = description(1280, 720, Vec::new()).usage.image;
    let (offer, refusals) = prober.offer(&*display, &image, Operation::Scanout, &all).unwrap();
    let own = Constraint::new(ConstraintName::MADE_BY, info.owner().unwrap());
    assert!(!offer.sets.is_empty(), "{refusals:?}");
    if !refusals.iter().any(|refusal| refusal.tried == Tried::Scattered) {
        skip(
            Need::Device("one that refuses"),
            format!("this kernel's {name} takes memory of others"),
        );
    }
    // What only its driver knows is its own anyway.
    let implicit = Capability::implicit(own.value);
    let is_own = |set: &CapabilitySet| {
        set.constraints.contains(&own) || set.capabilities.iter().any(|it| it.matches(&implicit))
    };
    assert!(offer.sets.iter().all(is_own), "{offer:?}");
    let foreign = refusals.iter().find(|refusal| refusal.tried == Tried::Scattered).unwrap();
    assert!(foreign.reason.contains(errno), "{foreign}");

    let asked = description(1280, 720, vec![use_of(&*display, Operation::Scanout)]);
    let made = prober.make(&all, &asked).unwrap();
    assert_eq!(made.by, info.name);

    let plan = planned(&["--use", &format!("{}:scanout", info.name), "1280x720", "XR24"]);
    assert_eq!(plan["allocator"]["device"], info.name.as_str());
    assert_eq!(plan["allocator"]["node"], info.node.as_str());
    let request = plan["allocator"]["request"].as_str().unwrap();
    assert!(request.starts_with("DRM_IOCTL_MODE_CREATE_DUMB 1280x720"), "{request}");
}

pub(crate) fn planned(arguments: &[&str]) -> Value {
    let output = nvabi().args(["alloc", "plan", "--json"]).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What says that a display shows it, in a plan.
fn proof(used: &str, size: &str) -> Value {
    let plan = planned(&["--use", used, size, "XR24"]);
    assert_eq!(plan["proofs"][0]["use"], plan["usage"]["uses"][0]);
    plan["proofs"][0]["by"].clone()
}

#[test]
fn a_plan_says_what_proves_that_an_image_is_shown() {
    let display = device("vkms");
    let used = format!("{}:scanout", display.info().name);
    assert_eq!(proof(&used, "640x480"), "commit");
    // No screen has such a mode.
    assert_eq!(proof(&used, "642x482"), "framebuffer");
    let output = nvabi().args(["alloc", "plan", "--use", &used, "640x480", "XR24"]).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(text.contains(&format!("\nproved             {used} by commit\n")), "{text}");
}

/// Turned by a quarter, an image fills a screen that is as wide as it is high; vkms scales nothing, so that no commit
/// passes that forgets to turn it.
#[test]
fn a_turned_image_is_committed_turned() {
    let display = device("vkms");
    let (all, prober) = (devices(), Prober::default());
    for (turned, width, height, by) in [
        ("rotate-0", 640, 480, Shown::Commit),
        ("rotate-90", 480, 640, Shown::Commit),
        ("rotate-270+reflect-x", 480, 640, Shown::Commit),
        ("rotate-180+reflect-y", 640, 480, Shown::Commit),
        ("rotate-90", 640, 480, Shown::Framebuffer),
        ("rotate-180", 480, 640, Shown::Framebuffer),
    ] {
        let of = use_of(&*display, Operation::Scanout).with(turned.parse().unwrap());
        let made = prober.make(&all, &description(width, height, vec![of.clone()])).unwrap();
        assert_eq!(made.proofs, [Proof { of, by }], "{width}x{height}");
    }
}

/// Many machines have a device of this name: what a file says of one is not tried on another.
#[test]
fn an_offer_of_a_file_is_of_no_device_here() {
    let name = device("bochs").info().name.clone();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("offer.json");
    let whole = serde_json::json!({
        "use": { "device": name, "operation": "scanout" },
        "sets": [{
            "constraints": [{ "name": "contiguous", "value": 1 }],
            "capabilities": ["LINEAR"],
        }],
    });
    fs::write(&file, whole.to_string()).unwrap();
    let used = format!("{name}:scanout");
    let uses = ["--use", &used, "--use", "cpu:cpu-write", "640x480", "XR24"];
    let plan =
        nvabi().args(["alloc", "plan", "--json"]).args(uses).arg("--offers").arg(file).output();
    let plan = plan.unwrap();
    let said = String::from_utf8_lossy(&plan.stderr);
    assert!(said.contains(&format!("Untried {used}: its offer is from a file")), "{said}");
    let told: Value = serde_json::from_slice(&plan.stdout).unwrap();
    match plan.status.code() {
        Some(0) => {
            assert_ne!(told["allocator"]["device"], name.as_str());
            assert_eq!(told["proofs"], serde_json::json!([]));
        }
        code => {
            assert_eq!(code, Some(1), "{said}");
            let refused = "contiguous 1 asked for, and not known of this memory";
            assert!(told["reasons"][0].as_str().unwrap().contains(refused), "{told}");
        }
    }
}

/// As the purpose is named, whichever display it is.
#[test]
fn a_display_is_planned_with() {
    device("bochs");
    let plan = planned(&["--use", "display:scanout", "1280x720", "XR24"]);
    let chosen = plan["usage"]["uses"][0]["device"].as_str().unwrap();
    assert!(chosen.starts_with("drm:card"), "{chosen}");
    assert!(
        ["commit", "framebuffer"].map(Value::from).contains(&plan["proofs"][0]["by"]),
        "{plan}"
    );
    let with_cpu = ["--use", "cpu:cpu-write", "--use", "display:scanout", "1280x720", "XR24"];
    assert_eq!(planned(&with_cpu)["layout"]["planes"][0]["pitch"], 5120);
}

#[test]
fn bochs_takes_its_own_memory_alone() {
    takes_its_own_memory_alone("bochs", "Invalid argument");
}

#[test]
fn virtio_gpu_takes_its_own_memory_alone() {
    takes_its_own_memory_alone("virtio-gpu", "No such device");
}

/// simpledrm copies to what the firmware left, so that any memory that the CPU reads will do.
#[test]
fn the_firmwares_framebuffer_shows_what_the_processor_writes() {
    let display = device("simpledrm");
    let scanout = format!("{}:scanout", display.info().name);
    let plan = planned(&["--use", &scanout, "--use", "cpu:cpu-write", "1024x768", "XR24"]);
    assert_eq!(plan["layout"]["planes"][0]["pitch"], 4096);
    let uses =
        vec![use_of(&*display, Operation::Scanout), use_of(&*device("cpu"), Operation::CpuWrite)];
    let (all, prober) = (devices(), Prober::default());
    let made = prober.make(&all, &description(1024, 768, uses)).unwrap();
    assert_eq!(made.by, plan["allocator"]["device"].as_str().unwrap());
}

/// A udmabuf has 64 MiB at most.
#[test]
fn an_image_that_no_udmabuf_holds_is_tried_with_fewer_rows() {
    let display = device("virtio-gpu");
    device("udmabuf");
    let (all, prober) = (devices(), Prober::default());
    let asked = description(5120, 4096, vec![use_of(&*display, Operation::Scanout)]);
    assert!(asked.layout.size > 64 << 20);
    let needs = prober.needs(&*display, Operation::Scanout, &asked, &all).unwrap();
    assert_eq!(needs[0].name, ConstraintName::MADE_BY);
    assert_eq!(prober.untried(), None);
    let cpu = device("cpu");
    assert_eq!(prober.needs(&*cpu, Operation::CpuRead, &asked, &all).unwrap(), []);
}

/// `/dev/udmabuf` is the administrator's on most machines.
#[test]
fn users_who_may_try_nothing_can_plan() {
    device("udmabuf");
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        skip(Need::Setuid, "only root runs programs as another user");
    }
    let uses = ["--use", "cpu:cpu-read", "--use", "cpu:cpu-write", "1920x1080", "NV12"];
    let output = nvabi().args(["alloc", "plan"]).args(uses).uid(65534).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let why = "Untried devices with memory of others: cannot open /dev/udmabuf: Permission denied";
    assert_eq!(said.matches(why).count(), 1, "{said}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("\nallocator          cpu\n"), "{text}");
}

#[test]
fn a_display_that_turns_nothing_says_so() {
    let display = device("bochs");
    let asked = description(1280, 720, Vec::new());
    let sets = |bits| {
        let wanted = use_of(&*display, Operation::Scanout).with(Detail::transform(bits));
        display.sets_for(&asked.usage, &wanted).unwrap()
    };
    assert!(!sets(transform::ROTATE_0).is_empty());
    assert_eq!(sets(transform::ROTATE_90), []);
    let hints = display.hints(Operation::Scanout).unwrap();
    let most = hints.iter().find(|hint| hint.format == XRGB).unwrap();
    let fits = |width, height| {
        let image = Image::new(width, height, XRGB);
        !display.sets(&image, Operation::Scanout).unwrap().is_empty()
    };
    assert!(fits(most.max_width, most.max_height) && !fits(most.max_width + 1, 1), "{most:?}");
    // And whose file it is.
    let file = fs::File::open(&display.info().node).unwrap();
    let all = devices();
    let of = nvabi_devmem::drivers::of_fd(&all, file.as_fd()).unwrap();
    assert_eq!(
        of.iter().map(|device| &device.info().name).collect::<Vec<_>>(),
        [&display.info().name]
    );
}

#[test]
fn a_part_goes_to_the_device_that_serves() {
    let (display, gpu) = (device("virtio-gpu"), device("llvmpipe"));
    // The first render node refuses what the CPU and the other node share.
    let refuses = format!("gl:{}", render_node(&display.info().name).unwrap());
    let serves = gpu.info().name.clone();
    let order: Vec<String> = devices().iter().map(|device| device.info().name.clone()).collect();
    let at = |wanted: &String| order.iter().position(|name| name == wanted).unwrap();
    let uses = ["--use", &format!("{refuses}:texture"), "--use", "cpu:cpu-write"];
    let alone = nvabi().args(["alloc", "plan"]).args(uses).args(["1280x720", "XR24"]).output();
    if at(&refuses) > at(&serves) || alone.unwrap().status.success() {
        skip(
            Need::Device("one that refuses"),
            "the first GPU serves, as this kernel has them".to_owned(),
        );
    }
    let plan = planned(&["--use", "gpu:texture", "--use", "cpu:cpu-write", "1280x720", "XR24"]);
    assert_eq!(plan["usage"]["uses"][0]["device"], serves.as_str());
}

/// EGL makes images of any size.
#[test]
fn what_is_too_large_to_be_sampled_is_refused() {
    let used = format!("{}:texture", device("llvmpipe").info().name);
    let output =
        nvabi().args(["alloc", "plan", "--use", &used, "70000x1", "XR24"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("70000x1 XR24 is larger than GL_MAX_TEXTURE_SIZE, which is "), "{said}");
    planned(&["--use", &used, "4096x1", "XR24"]);
}

/// A device, and how often one of all of them was to make memory or take it.
struct Counted(Box<dyn Device>, Arc<AtomicUsize>);

impl Counted {
    fn count(&self) -> &dyn Device {
        self.1.fetch_add(1, Ordering::Relaxed);
        &*self.0
    }
}

impl Device for Counted {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn sets(&self, image: &Image, operation: Operation) -> Result<Vec<CapabilitySet>> {
        self.0.sets(image, operation)
    }

    fn sets_for(&self, usage: &Usage, wanted: &Use) -> Result<Vec<CapabilitySet>> {
        self.0.sets_for(usage, wanted)
    }

    fn cost(&self, set: &CapabilitySet) -> u64 {
        self.0.cost(set)
    }

    fn allocate(&self, description: &Description) -> Result<Buffer> {
        self.count().allocate(description)
    }

    fn allocate_files(&self, description: &Description) -> Result<Buffer> {
        self.count().allocate_files(description)
    }

    fn chooses_layouts(&self) -> bool {
        self.0.chooses_layouts()
    }

    fn import(&self, buffer: &Buffer) -> Result<Box<dyn Import>> {
        self.count().import(buffer)
    }

    fn memory(&self) -> Option<Memory> {
        self.0.memory()
    }
}

/// How long it takes, `benches/devmem_probe.sh` reads: here it is counted what is asked again.
#[test]
fn what_was_tried_is_remembered() {
    device("bochs");
    let begun = Instant::now();
    let tried = Arc::new(AtomicUsize::new(0));
    let counted = |device| -> Box<dyn Device> { Box::new(Counted(device, tried.clone())) };
    let all: Vec<Box<dyn Device>> = devices().into_iter().map(counted).collect();
    let found = begun.elapsed();
    let prober = Prober::default();
    let image = description(640, 480, Vec::new()).usage.image;
    // How long each device took.
    let probe = || {
        let probed = all.iter().map(|device| {
            let begun = Instant::now();
            for operation in &device.info().operations {
                prober.offer(&**device, &image, *operation, &all).unwrap();
            }
            begun.elapsed()
        });
        probed.collect::<Vec<Duration>>()
    };
    let first = probe();
    let of_first = tried.swap(0, Ordering::Relaxed);
    let again = probe();
    let of_again = tried.load(Ordering::Relaxed);
    let (cold, warm): (Duration, Duration) = (first.iter().sum(), again.iter().sum());
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!("found in {:.1} ms", ms(found));
    println!("probe: {} devices, {:.1} ms, {:.1} ms remembered", all.len(), ms(cold), ms(warm));
    let slowest = first.iter().zip(&all).max_by_key(|(took, _)| **took).expect("a device");
    println!("slowest: {}, {:.1} ms", slowest.1.info().name, ms(*slowest.0));
    assert!(of_first > all.len(), "{of_first} trials of {} devices", all.len());
    assert_eq!(of_again, 0, "what was tried once is tried again, after {of_first} trials");
}
