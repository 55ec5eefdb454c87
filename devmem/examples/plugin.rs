//! A plugin in Rust: a device "rust-camera" that captures into linear memory, which it makes and
//! takes. Its memory is the CPU's, as no hardware is behind it.
//!
//! `cargo build -p nvabi-devmem --example devmem_plugin` makes `libdevmem_plugin.so`.

use nvabi_devmem::drivers::memfd::Memfd;
use nvabi_devmem::{
    Buffer, Capability, CapabilitySet, Constraint, ConstraintName, Description, Detail, Device,
    DeviceInfo, Driver, Error, Image, Import, Listed, Operation, Result, Usage, Use, transform,
};

nvabi_devmem::devmem_plugin!(Cameras);

struct Cameras;

impl Driver for Cameras {
    fn name(&self) -> &str {
        "rust-camera"
    }

    fn devices(&self) -> Result<Listed> {
        let memory = Memfd.devices()?.pop().ok_or_else(|| Error::unsupported("no memory"))??;
        let info = DeviceInfo {
            name: "rust-camera".to_owned(),
            node: "/dev/null".to_owned(),
            operations: vec![Operation::Capture],
            allocates: true,
            imports: true,
        };
        Ok(vec![Ok(Box::new(Camera { info, memory }))])
    }
}

struct Camera {
    info: DeviceInfo,
    memory: Box<dyn Device>,
}

impl Device for Camera {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn sets(&self, image: &Image, operation: Operation) -> Result<Vec<CapabilitySet>> {
        if operation != Operation::Capture || image.width % 2 != 0 {
            return Ok(Vec::new());
        }
        let pitch = Constraint::new(ConstraintName::PITCH_ALIGNMENT, 48);
        Ok(vec![CapabilitySet::new([pitch], [Capability::pitch_linear().required()])])
    }

    /// It mirrors left and right.
    fn sets_for(&self, usage: &Usage, wanted: &Use) -> Result<Vec<CapabilitySet>> {
        let known = transform::ROTATE_0 | transform::REFLECT_X;
        let is_known =
            |detail: &Detail| detail.as_transform().is_some_and(|bits| bits & !known == 0);
        match usage.details.iter().chain(&wanted.details).find(|detail| !is_known(detail)) {
            None => self.sets(&usage.image, wanted.operation),
            Some(unknown) => Err(self.unknown(unknown)),
        }
    }

    fn cost(&self, set: &CapabilitySet) -> u64 {
        10 + set.constraints.len() as u64
    }

    fn allocate(&self, description: &Description) -> Result<Buffer> {
        self.memory.allocate(description)
    }

    fn import(&self, buffer: &Buffer) -> Result<Box<dyn Import>> {
        match buffer.description().layout.planes.len() {
            1 | 2 => self.memory.import(buffer),
            planes => Err(Error::invalid(format!("a camera writes no {planes} planes"))),
        }
    }
}
