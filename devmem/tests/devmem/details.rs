//! What is asked of the image besides its size and format reaches every device that is to use it.

use std::sync::Mutex;

use nvabi_devmem::drivers::memfd::Memfd;
use nvabi_devmem::{
    Buffer, CapabilitySet, Description, Detail, Device, DeviceInfo, Driver, ErrorKind, Fourcc,
    Image, Import, Operation, Prober, Result, Usage, Use,
};

/// The CPU under another name, which knows one detail and keeps what it was asked for.
struct Knowing {
    info: DeviceInfo,
    memory: Box<dyn Device>,
    known: Detail,
    imported: &'static Mutex<Vec<Usage>>,
}

impl Device for Knowing {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn sets(&self, image: &Image, operation: Operation) -> Result<Vec<CapabilitySet>> {
        self.memory.sets(image, operation)
    }

    fn sets_for(&self, usage: &Usage, wanted: &Use) -> Result<Vec<CapabilitySet>> {
        match usage.details.iter().chain(&wanted.details).find(|detail| **detail != self.known) {
            None => self.sets(&usage.image, wanted.operation),
            Some(unknown) => Err(self.unknown(unknown)),
        }
    }

    fn allocate(&self, description: &Description) -> Result<Buffer> {
        self.memory.allocate(description)
    }

    fn import(&self, buffer: &Buffer) -> Result<Box<dyn Import>> {
        let usage = buffer.description().usage.clone();
        self.imported.lock().expect("no panic").push(usage);
        self.memory.import(buffer)
    }
}

#[test]
fn what_is_asked_of_the_image_is_asked_of_all() {
    static IMPORTED: Mutex<Vec<Usage>> = Mutex::new(Vec::new());
    let cpu = || Memfd.devices().expect("the CPU").remove(0).expect("the CPU");
    let known = Detail::vendor(0x10de, 3, vec![1]);
    let info =
        DeviceInfo { name: "knowing".to_owned(), node: String::new(), ..cpu().info().clone() };
    let knowing = Knowing { info, memory: cpu(), known: known.clone(), imported: &IMPORTED };
    let devices: [Box<dyn Device>; 2] = [Box::new(knowing), cpu()];
    let of = |device, detail: &Detail| {
        let image = Image::new(64, 64, Fourcc::new(b"XR24"));
        let uses = vec![Use::new(device, Operation::CpuRead)];
        Usage { details: vec![detail.clone()], ..Usage::new(image, uses) }
    };
    let prober = Prober::default();
    let made = prober.serve(&devices, &of("knowing", &known), |_| true).expect("memory");
    let all = std::slice::from_ref(&known);
    assert_eq!(made.buffer.description().usage.details, all);
    let imported = IMPORTED.lock().expect("no panic").clone();
    assert!(!imported.is_empty() && imported.iter().all(|it| it.details == all));

    let other = Detail::vendor(0x10de, 4, vec![1]);
    for (device, detail) in [("knowing", &other), ("cpu", &known)] {
        let refused = prober.sets_for(&devices, &of(device, detail)).expect_err("not known");
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert_eq!(refused.to_string(), format!("{device} does not know {detail}"));
    }
}
