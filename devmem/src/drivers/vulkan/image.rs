//! Images of Vulkan whose memory is a dma-buf.

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use ash::vk;

use super::{Library, NEEDED, refused};
use crate::{Description, Error, ErrorKind, Identity, Import, Layout, Plane, Result, uapi};

const DMA_BUF: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::DMA_BUF_EXT;

/// The planes of memory, by index.
const ASPECTS: [vk::ImageAspectFlags; 4] = [
    vk::ImageAspectFlags::MEMORY_PLANE_0_EXT,
    vk::ImageAspectFlags::MEMORY_PLANE_1_EXT,
    vk::ImageAspectFlags::MEMORY_PLANE_2_EXT,
    vk::ImageAspectFlags::MEMORY_PLANE_3_EXT,
];

/// A logical device.
pub(super) struct Opened {
    device: ash::Device,
    memory_fd: ash::khr::external_memory_fd::Device,
    // The device's functions are its.
    _library: Arc<Library>,
}

impl Opened {
    pub(super) fn new(library: Arc<Library>, physical: vk::PhysicalDevice) -> Result<Self> {
        let instance = &library.instance;
        let queues =
            [vk::DeviceQueueCreateInfo::default().queue_family_index(0).queue_priorities(&[0.0])];
        let extensions = NEEDED.map(|name| name.as_ptr());
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions);
        // SAFETY: the physical device is of this instance and has the extensions, whose names are constants; the
        // record and what it leads to live through the call.
        let device = unsafe { instance.create_device(physical, &info, None) };
        let device = device.map_err(|error| refused("vkCreateDevice", error))?;
        let memory_fd = ash::khr::external_memory_fd::Device::new(instance, &device);
        Ok(Self { device, memory_fd, _library: library })
    }

    /// Makes memory for an image, and says where its pixels are.
    pub(super) fn make(
        self: &Arc<Self>,
        description: &Description,
        format: vk::Format,
        usage: vk::ImageUsageFlags,
        planes: usize,
    ) -> Result<(OwnedFd, Layout)> {
        let modifier = description.layout.modifier;
        let modifiers = [modifier];
        let mut list =
            vk::ImageDrmFormatModifierListCreateInfoEXT::default().drm_format_modifiers(&modifiers);
        let image = self.image(description, format, usage, &mut list)?;
        let requirements = image.requirements();
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(DMA_BUF);
        let (types, size) = (requirements.memory_type_bits, requirements.size);
        let image = image.with_memory(types, size, &mut export, None)?;
        let fd = image.export()?;
        let planes = ASPECTS.iter().take(planes).map(|aspect| image.plane(*aspect)).collect();
        Ok((fd, Layout { modifier, planes, size }))
    }

    /// An image without memory; `layout` says which modifiers it may have, or where its planes are. That the GPU lists
    /// such an image with so many planes, the callers have seen to: with another one Vulkan may do anything.
    fn image(
        self: &Arc<Self>,
        description: &Description,
        format: vk::Format,
        usage: vk::ImageUsageFlags,
        layout: &mut impl vk::ExtendsImageCreateInfo,
    ) -> Result<Shared> {
        let image = description.usage.image;
        let mut external = vk::ExternalMemoryImageCreateInfo::default().handle_types(DMA_BUF);
        let info = vk::ImageCreateInfo::default()
            .image_type(vk::ImageType::TYPE_2D)
            .format(format)
            .extent(vk::Extent3D { width: image.width, height: image.height, depth: 1 })
            .mip_levels(1)
            .array_layers(1)
            .samples(vk::SampleCountFlags::TYPE_1)
            .tiling(vk::ImageTiling::DRM_FORMAT_MODIFIER_EXT)
            .usage(usage)
            .sharing_mode(vk::SharingMode::EXCLUSIVE)
            .initial_layout(vk::ImageLayout::UNDEFINED)
            .push_next(layout)
            .push_next(&mut external);
        // SAFETY: the device is alive; the record and what it leads to live through the call. `Gpu::listed` found
        // format, usage, modifier and size among those of the GPU, with as many planes as `layout` has.
        let made = unsafe { self.device.create_image(&info, None) };
        let image = made.map_err(|error| refused("vkCreateImage", error))?;
        Ok(Shared { opened: self.clone(), image, memory: vk::DeviceMemory::null() })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: each image of the device holds an `Arc` of this, and so is gone; nothing was submitted.
        unsafe { self.device.destroy_device(None) };
    }
}

/// An image, and its memory once it has some.
struct Shared {
    opened: Arc<Opened>,
    image: vk::Image,
    memory: vk::DeviceMemory,
}

impl Shared {
    fn requirements(&self) -> vk::MemoryRequirements {
        // SAFETY: the image is of this device and alive.
        unsafe { self.opened.device.get_image_memory_requirements(self.image) }
    }

    /// Gives it memory of its own, of the first of these types. `theirs` is what it is imported from.
    fn with_memory(
        mut self,
        types: u32,
        size: u64,
        from: &mut impl vk::ExtendsMemoryAllocateInfo,
        theirs: Option<OwnedFd>,
    ) -> Result<Self> {
        if types == 0 {
            return Err(Error::unsupported("the GPU has no type of memory for it"));
        }
        let mut dedicated = vk::MemoryDedicatedAllocateInfo::default().image(self.image);
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(size)
            .memory_type_index(types.trailing_zeros())
            .push_next(&mut dedicated)
            .push_next(from);
        let device = &self.opened.device;
        let identity = theirs.as_ref().and_then(|fd| identity(fd.as_raw_fd()));
        // SAFETY: the device and the image are alive, the type is one of the image's; the record and what it leads
        // to live through the call.
        let memory = unsafe { device.allocate_memory(&info, None) };
        if let Some(fd) = theirs {
            settle(fd, identity, memory.is_ok());
        }
        self.memory = memory.map_err(|error| refused("vkAllocateMemory", error))?;
        // SAFETY: both are of this device; the image has no memory yet.
        let bound = unsafe { device.bind_image_memory(self.image, self.memory, 0) };
        bound.map_err(|error| refused("vkBindImageMemory", error))?;
        Ok(self)
    }

    fn export(&self) -> Result<OwnedFd> {
        let info = vk::MemoryGetFdInfoKHR::default().memory(self.memory).handle_type(DMA_BUF);
        // SAFETY: the memory is of this device and was made to be exported so.
        let fd = unsafe { self.opened.memory_fd.get_memory_fd(&info) };
        let fd = fd.map_err(|error| refused("vkGetMemoryFdKHR", error))?;
        // SAFETY: the call has succeeded, and so made a descriptor that nobody else knows.
        unsafe { uapi::own(fd) }.map_err(|error| Error::call("vkGetMemoryFdKHR", error))
    }

    fn plane(&self, aspect: vk::ImageAspectFlags) -> Plane {
        let which = vk::ImageSubresource { aspect_mask: aspect, mip_level: 0, array_layer: 0 };
        // SAFETY: the image is of this device; its tiling is by modifier, which has this plane.
        let found = unsafe { self.opened.device.get_image_subresource_layout(self.image, which) };
        Plane { offset: found.offset, pitch: found.row_pitch, size: found.size }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: both are of this device and used by nothing that was submitted; null is no memory.
        unsafe {
            self.opened.device.destroy_image(self.image, None);
            self.opened.device.free_memory(self.memory, None);
        }
    }
}

/// Closes a descriptor that was offered to Vulkan, where that is not Vulkan's to do: what was imported is, and Mesa's
/// lavapipe closes what it could not import as well.
fn settle(fd: OwnedFd, before: Option<Identity>, imported: bool) {
    let number = fd.into_raw_fd();
    if !imported && before.is_some() && identity(number) == before {
        // SAFETY: it was an `OwnedFd` above, and is open still: nobody took it.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
}

/// Which file a descriptor is of.
fn identity(fd: RawFd) -> Option<Identity> {
    let file = std::fs::metadata(format!("/proc/self/fd/{fd}"));
    file.ok().map(|file| Identity::of(&file))
}

/// Memory of others as an image.
pub(super) struct Imported(#[expect(dead_code, reason = "the import lasts as long as it")] Shared);

impl Imported {
    pub(super) fn new(
        opened: Arc<Opened>,
        description: &Description,
        format: vk::Format,
        usage: vk::ImageUsageFlags,
        fd: OwnedFd,
        size: u64,
    ) -> Result<Self> {
        let layout = &description.layout;
        let plane = |plane: &Plane| vk::SubresourceLayout {
            offset: plane.offset,
            row_pitch: plane.pitch,
            ..vk::SubresourceLayout::default()
        };
        let planes: Vec<vk::SubresourceLayout> = layout.planes.iter().map(plane).collect();
        let mut explicit = vk::ImageDrmFormatModifierExplicitCreateInfoEXT::default()
            .drm_format_modifier(layout.modifier)
            .plane_layouts(&planes);
        let image = opened.image(description, format, usage, &mut explicit)?;
        let mut known = vk::MemoryFdPropertiesKHR::default();
        // SAFETY: the descriptor is open; the device has the extension.
        let asked = unsafe {
            opened.memory_fd.get_memory_fd_properties(DMA_BUF, fd.as_raw_fd(), &mut known)
        };
        asked.map_err(|error| refused("vkGetMemoryFdPropertiesKHR", error))?;
        let needed = image.requirements();
        if needed.size > size {
            let what = format!("the GPU needs {} bytes, but the buffer has {size}", needed.size);
            return Err(Error::new(ErrorKind::Mismatch, what));
        }
        let number = fd.as_raw_fd();
        let mut import = vk::ImportMemoryFdInfoKHR::default().handle_type(DMA_BUF).fd(number);
        let types = needed.memory_type_bits & known.memory_type_bits;
        image.with_memory(types, needed.size, &mut import, Some(fd)).map(Self)
    }
}

impl Import for Imported {}
