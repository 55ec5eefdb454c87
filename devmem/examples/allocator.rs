//! The allocator of a compositor in Rust: a buffer for a size, a format and the modifiers that others take.
//!
//! The trait is that of smithay's `backend::allocator::Allocator`, repeated here with the types of the crate `drm`:
//! smithay itself is not compiled for an example.

use std::process::ExitCode;

use drm::buffer::{DrmFourcc, DrmModifier};
use nvabi_devmem::drivers::enumerate;
use nvabi_devmem::plugin::drivers;
use nvabi_devmem::{
    Buffer, Capability, CapabilitySet, Device, Error, Fourcc, Image, Operation, Prober, Use,
};

/// As smithay has it.
trait Allocator {
    type Buffer;
    type Error: std::error::Error;

    fn create_buffer(
        &mut self,
        width: u32,
        height: u32,
        fourcc: DrmFourcc,
        modifiers: &[DrmModifier],
    ) -> Result<Self::Buffer, Self::Error>;
}

/// Memory for those who use it.
struct ForUses {
    devices: Vec<Box<dyn Device>>,
    prober: Prober,
    uses: Vec<Use>,
}

impl Allocator for ForUses {
    type Buffer = Buffer;
    type Error = Error;

    fn create_buffer(
        &mut self,
        width: u32,
        height: u32,
        fourcc: DrmFourcc,
        modifiers: &[DrmModifier],
    ) -> Result<Buffer, Error> {
        let image = Image::new(width, height, Fourcc(fourcc as u32));
        let wanted = |set: &CapabilitySet| {
            let mut has = set.capabilities.iter().filter_map(Capability::as_modifier);
            has.any(|modifier| modifiers.contains(&DrmModifier::from(modifier)))
        };
        let made = self.prober.serve(&self.devices, &image, &self.uses, wanted)?;
        Ok(made.buffer)
    }
}

fn main() -> ExitCode {
    let devices = enumerate(&drivers().drivers).devices;
    let uses = vec![Use::new("cpu", Operation::CpuWrite)];
    let mut allocator = ForUses { devices, prober: Prober::default(), uses };
    for modifiers in [&[DrmModifier::Linear][..], &[DrmModifier::I915_x_tiled]] {
        match allocator.create_buffer(640, 480, DrmFourcc::Xrgb8888, modifiers) {
            Ok(buffer) => println!("{modifiers:?}: {:?}", buffer.description().layout.planes),
            Err(error) => println!("{modifiers:?}: {error}"),
        }
    }
    ExitCode::SUCCESS
}
