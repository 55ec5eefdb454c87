//! The allocator of a compositor on smithay: dma-bufs that the display, the GPU and whoever else take.
//!
//! ```no_run
//! use nvabi_devmem::{Operation, Use};
//! use smithay::backend::allocator::dmabuf::DmabufAllocator;
//! use smithay::backend::allocator::{Allocator, Fourcc, Modifier};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let uses = vec![Use::new("drm:card0", Operation::Scanout), Use::new("gl:renderD128", Operation::Render)];
//! let mut allocator = DmabufAllocator(nvabi_smithay::ForUses::new(uses));
//! let dmabuf = allocator.create_buffer(1920, 1080, Fourcc::Xrgb8888, &[Modifier::Linear])?;
//! # Ok(())
//! # }
//! ```

use nvabi_devmem::drivers::enumerate;
use nvabi_devmem::plugin::drivers;
use nvabi_devmem::{
    Buffer, CapabilitySet, Device, Error, ErrorKind, Fourcc, Image, Prober, Usage, Use,
};
use smithay::backend::allocator::dmabuf::{AsDmabuf, Dmabuf, DmabufFlags};
use smithay::backend::allocator::{self, Allocator, Format, Modifier};
use smithay::utils::{Buffer as BufferCoords, Size};

/// Memory for those who use it.
#[derive(Debug)]
pub struct ForUses {
    devices: Vec<Box<dyn Device>>,
    prober: Prober,
    uses: Vec<Use>,
}

impl ForUses {
    /// For these uses of devices of this machine.
    pub fn new(uses: Vec<Use>) -> Self {
        Self { devices: enumerate(&drivers().drivers).devices, prober: Prober::default(), uses }
    }
}

impl Allocator for ForUses {
    type Buffer = Memory;
    type Error = Error;

    fn create_buffer(
        &mut self,
        width: u32,
        height: u32,
        fourcc: allocator::Fourcc,
        modifiers: &[Modifier],
    ) -> Result<Memory, Error> {
        let side = |side: u32| {
            let wide = || Error::new(ErrorKind::Invalid, format!("{side} pixels on a side"));
            i32::try_from(side).map_err(|_| wide())
        };
        let size = Size::from((side(width)?, side(height)?));
        let image = Image::new(width, height, Fourcc(fourcc as u32));
        let usage = Usage::new(image, self.uses.clone());
        let wanted = |set: &CapabilitySet| {
            set.modifier().is_some_and(|modifier| modifiers.contains(&Modifier::from(modifier)))
        };
        let buffer = self.prober.serve(&self.devices, &usage, wanted)?.buffer;
        let modifier = Modifier::from(buffer.description().layout.modifier);
        Ok(Memory { buffer, size, format: Format { code: fourcc, modifier } })
    }
}

/// Memory that all take.
#[derive(Debug)]
pub struct Memory {
    buffer: Buffer,
    size: Size<i32, BufferCoords>,
    format: Format,
}

impl allocator::Buffer for Memory {
    fn size(&self) -> Size<i32, BufferCoords> {
        self.size
    }

    fn format(&self) -> Format {
        self.format
    }
}

impl AsDmabuf for Memory {
    type Error = Error;

    fn export(&self) -> Result<Dmabuf, Error> {
        let invalid = |what: &str| Error::new(ErrorKind::Invalid, what);
        let mut builder = Dmabuf::builder_from_buffer(self, DmabufFlags::empty());
        for index in 0..self.buffer.description().layout.planes.len() {
            let (fd, plane) = self.buffer.export_plane(index)?;
            let number = |bytes| u32::try_from(bytes).map_err(|_| invalid("a plane beyond 4 GiB"));
            if !builder.add_plane(fd, index as u32, number(plane.offset)?, number(plane.pitch)?) {
                return Err(invalid("an image of more than four planes"));
            }
        }
        builder.build().ok_or_else(|| invalid("an image without planes"))
    }
}

#[cfg(test)]
mod tests {
    use nvabi_devmem::{MODIFIER_LINEAR, Operation, Plane};
    use smithay::backend::allocator::dmabuf::DmabufAllocator;

    use super::*;

    /// What smithay knows of a plane is enough for others to find the pixels.
    fn taken(dmabuf: &Dmabuf, image: Image) -> Buffer {
        let places = dmabuf.offsets().zip(dmabuf.strides());
        let planes = dmabuf.handles().zip(places).map(|(fd, (offset, pitch))| {
            let size = u64::from(pitch) * u64::from(image.height);
            let plane = Plane { offset: offset.into(), pitch: pitch.into(), size };
            (fd.try_clone_to_owned().expect("a descriptor"), plane)
        });
        Buffer::of_planes(image, MODIFIER_LINEAR, planes.collect()).expect("room for the image")
    }

    #[test]
    fn what_smithay_allocates_is_written_and_read() {
        let uses = [Operation::CpuWrite, Operation::CpuRead].map(|does| Use::new("cpu", does));
        let mut allocator = DmabufAllocator(ForUses::new(uses.to_vec()));
        let mut create =
            |modifier| allocator.create_buffer(640, 480, allocator::Fourcc::Xrgb8888, &[modifier]);
        let dmabuf = create(Modifier::Linear).expect("memory that the CPU sees");
        assert_eq!((dmabuf.num_planes(), dmabuf.strides().next()), (1, Some(2560)));
        let image = Image::new(640, 480, Fourcc::new(b"XR24"));
        let (written, read) = (taken(&dmabuf, image), taken(&dmabuf, image));
        let mut mapping = written.map().expect("a mapping");
        let mut access = mapping.write().expect("an access");
        access.store(2560 * 479, b"last row").expect("inside");
        access.end().expect("the end of an access");
        let mut row = [0; 8];
        read.map()
            .expect("a mapping")
            .read()
            .expect("an access")
            .load(2560 * 479, &mut row)
            .expect("inside");
        assert_eq!(&row, b"last row");

        let refused = create(Modifier::I915_x_tiled).expect_err("no such tiles").to_string();
        assert!(refused.contains("none of the wanted modifiers"), "{refused}");
    }
}
