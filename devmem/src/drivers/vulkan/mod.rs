//! GPUs as Vulkan knows them: formats, modifiers, memory that is exported and imported as dma-buf.
//!
//! The library is loaded when devices are asked for. What a GPU can do comes from the GPU: which modifiers it
//! has for a format and an operation, up to which size, and, by an import, whether it takes a layout.

mod image;

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use ash::vk;

use crate::convert::vulkan::{self as convert, ModifierProperties};
use crate::{
    Buffer, Capability, CapabilitySet, Constraint, ConstraintName, Description, Device, DeviceInfo,
    Driver, Error, ErrorKind, Fourcc, Hint, Image, Import, Listed, Memory, Operation, Result,
    format,
};
use image::{Imported, Opened};

/// What a GPU must have to share images; all are extensions of devices.
const NEEDED: [&CStr; 3] = [
    ash::khr::external_memory_fd::NAME,
    ash::ext::external_memory_dma_buf::NAME,
    ash::ext::image_drm_format_modifier::NAME,
];

/// Every GPU that Vulkan shows: `vulkan:renderD128` by its render node; by its index where it has none.
pub(super) struct Vulkan;

impl Driver for Vulkan {
    fn name(&self) -> &str {
        "vulkan"
    }

    fn devices(&self) -> Result<Listed> {
        let library = Arc::new(Library::load()?);
        // SAFETY: the instance is alive.
        let found = unsafe { library.instance.enumerate_physical_devices() };
        let found = found.map_err(|error| refused("vkEnumeratePhysicalDevices", error))?;
        let gpu = |(index, physical)| {
            Gpu::new(&library, physical, index).map(|gpu| Box::new(gpu) as Box<dyn Device>)
        };
        Ok(found.into_iter().enumerate().map(gpu).collect())
    }
}

/// Vulkan's library and an instance of it.
struct Library {
    instance: ash::Instance,
    // The instance's functions are in it.
    _entry: ash::Entry,
}

impl Library {
    fn load() -> Result<Self> {
        let unloaded = |error: ash::LoadingError| Error::new(ErrorKind::Open, error.to_string());
        // SAFETY: libvulkan is the system's loader of Vulkan. What its initialisers do, and those of the drivers
        // that it loads, is the word of who installed them.
        let entry = unsafe { ash::Entry::load() }.map_err(unloaded)?;
        // SAFETY: the function is Vulkan's own.
        let version = unsafe { entry.try_enumerate_instance_version() };
        let version = version.ok().flatten().unwrap_or(vk::API_VERSION_1_0);
        if version < vk::API_VERSION_1_1 {
            return Err(Error::unsupported("Vulkan 1.0 shares no images between devices"));
        }
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_1);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: the record and what it leads to live through the call.
        let instance = unsafe { entry.create_instance(&info, None) };
        let instance = instance.map_err(|error| refused("vkCreateInstance", error))?;
        Ok(Self { instance, _entry: entry })
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: each device of the instance holds an `Arc` of this, and so is gone.
        unsafe { self.instance.destroy_instance(None) };
    }
}

/// One GPU.
struct Gpu {
    library: Arc<Library>,
    physical: vk::PhysicalDevice,
    info: DeviceInfo,
    /// A logical device: made when memory is made or taken, and kept while the GPU is known.
    opened: Mutex<Option<Arc<Opened>>>,
}

impl Gpu {
    /// # Errors
    ///
    /// When it cannot share images, with what it lacks.
    fn new(library: &Arc<Library>, physical: vk::PhysicalDevice, index: usize) -> Result<Self> {
        let instance = &library.instance;
        // SAFETY: the physical device is of this instance.
        let known = unsafe { instance.get_physical_device_properties(physical) };
        let version = known.api_version;
        let card = text(known.device_name_as_c_str().ok());
        // SAFETY: as above.
        let has = unsafe { instance.enumerate_device_extension_properties(physical) };
        let has = has.map_err(|error| refused("vkEnumerateDeviceExtensionProperties", error))?;
        let lacks = |name: &CStr| {
            !has.iter().any(|extension| extension.extension_name_as_c_str() == Ok(name))
        };
        let lacking = NEEDED.iter().filter(|name| lacks(name));
        let lacking: Vec<String> = lacking.map(|name| text(Some(name))).collect();
        if version < vk::API_VERSION_1_1 || !lacking.is_empty() {
            let lacking =
                if lacking.is_empty() { "Vulkan 1.1".to_owned() } else { lacking.join(", ") };
            return Err(Error::unsupported(format!("{card} shares no images: it lacks {lacking}")));
        }
        let mut drm = vk::PhysicalDeviceDrmPropertiesEXT::default();
        let mut asked = vk::PhysicalDeviceProperties2::default().push_next(&mut drm);
        // SAFETY: as above, and it has Vulkan 1.1; the record and what it leads to live through the call.
        unsafe { instance.get_physical_device_properties2(physical, &mut asked) };
        let node = (drm.has_render != 0).then(|| format!("renderD{}", drm.render_minor));
        let info = DeviceInfo {
            name: node.clone().map_or(format!("vulkan:{index}"), |node| format!("vulkan:{node}")),
            node: node.map_or(String::new(), |node| format!("/dev/dri/{node}")),
            operations: vec![Operation::Texture, Operation::Render, Operation::Copy],
            allocates: true,
            imports: true,
        };
        Ok(Self { library: library.clone(), physical, info, opened: Mutex::default() })
    }

    fn opened(&self) -> Result<Arc<Opened>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*opened {
            return Ok(known.clone());
        }
        let new = Arc::new(Opened::new(self.library.clone(), self.physical)?);
        Ok(opened.insert(new).clone())
    }

    /// The modifiers of a format, with what images of each can be used for.
    fn modifiers(&self, format: vk::Format) -> Vec<ModifierProperties> {
        let ask = |list: &mut vk::DrmFormatModifierPropertiesListEXT<'_>| {
            let mut asked = vk::FormatProperties2::default().push_next(list);
            // SAFETY: the physical device is of this instance; the list is empty, or has the room that it says.
            unsafe {
                let instance = &self.library.instance;
                instance.get_physical_device_format_properties2(self.physical, format, &mut asked);
            }
        };
        let mut count = vk::DrmFormatModifierPropertiesListEXT::default();
        ask(&mut count);
        let room = count.drm_format_modifier_count as usize;
        let mut found = vec![vk::DrmFormatModifierPropertiesEXT::default(); room];
        let mut list = vk::DrmFormatModifierPropertiesListEXT::default()
            .drm_format_modifier_properties(&mut found);
        ask(&mut list);
        let filled = (list.drm_format_modifier_count as usize).min(room);
        let plain = |found: &vk::DrmFormatModifierPropertiesEXT| ModifierProperties {
            modifier: found.drm_format_modifier,
            planes: found.drm_format_modifier_plane_count,
            features: found.drm_format_modifier_tiling_features.as_raw(),
        };
        found[..filled].iter().map(plain).collect()
    }

    /// What images with this modifier may be; `None` when it has none such.
    fn limits(
        &self,
        format: vk::Format,
        usage: vk::ImageUsageFlags,
        modifier: u64,
    ) -> Option<Limits> {
        let mut with = vk::PhysicalDeviceImageDrmFormatModifierInfoEXT::default()
            .drm_format_modifier(modifier)
            .sharing_mode(vk::SharingMode::EXCLUSIVE);
        let mut shared = vk::PhysicalDeviceExternalImageFormatInfo::default()
            .handle_type(vk::ExternalMemoryHandleTypeFlags::DMA_BUF_EXT);
        let asked = vk::PhysicalDeviceImageFormatInfo2::default()
            .format(format)
            .ty(vk::ImageType::TYPE_2D)
            .tiling(vk::ImageTiling::DRM_FORMAT_MODIFIER_EXT)
            .usage(usage)
            .push_next(&mut with)
            .push_next(&mut shared);
        let mut sharing = vk::ExternalImageFormatProperties::default();
        let mut found = vk::ImageFormatProperties2::default().push_next(&mut sharing);
        // SAFETY: the physical device is of this instance; both records and what they lead to live through the call.
        let answer = unsafe {
            let instance = &self.library.instance;
            instance.get_physical_device_image_format_properties2(self.physical, &asked, &mut found)
        };
        answer.ok()?;
        let vk::ImageFormatProperties { max_extent, max_resource_size, .. } =
            found.image_format_properties;
        let features = sharing.external_memory_properties.external_memory_features;
        Some(Limits {
            width: max_extent.width,
            height: max_extent.height,
            size: max_resource_size,
            imports: features.contains(vk::ExternalMemoryFeatureFlags::IMPORTABLE),
            exports: features.contains(vk::ExternalMemoryFeatureFlags::EXPORTABLE),
        })
    }

    /// Whether Vulkan may be asked for the image at all: what it does with one that it does not list is not defined.
    /// Gives how many planes the modifier has.
    fn listed(
        &self,
        description: &Description,
        format: vk::Format,
        may: impl Fn(&Limits) -> bool,
    ) -> Result<usize> {
        let (modifier, image) = (description.layout.modifier, &description.usage.image);
        let known = self.modifiers(format).into_iter().find(|known| known.modifier == modifier);
        let limits = self.limits(format, self.usage(description), modifier).filter(may);
        let name = &self.info.name;
        let (Some(known), Some(limits)) = (known, limits) else {
            let modifier = Capability::modifier(modifier);
            return Err(Error::unsupported(format!(
                "{name} has no {modifier} for {}",
                image.format
            )));
        };
        if image.width == 0 || image.height == 0 || !limits.fit(image) {
            let Limits { width, height, .. } = limits;
            let what = format!("{name} takes no {image}: 1x1 to {width}x{height}");
            return Err(Error::unsupported(what));
        }
        Ok(known.planes as usize)
    }
}

/// What images may be.
struct Limits {
    /// In pixels.
    width: u32,
    height: u32,
    /// In bytes.
    size: u64,
    /// Whether their memory may be a dma-buf of others.
    imports: bool,
    /// Whether it may become a dma-buf.
    exports: bool,
}

impl Limits {
    fn fit(&self, image: &Image) -> bool {
        self.width >= image.width && self.height >= image.height
    }
}

impl Device for Gpu {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn sets(&self, image: &Image, operation: Operation) -> Result<Vec<CapabilitySet>> {
        let (Some(usage), Some(format)) = (usage(operation), convert::format(image.format)) else {
            return Ok(Vec::new());
        };
        let format = vk::Format::from_raw(format as i32);
        let pairs = convert::read(image.format, &self.modifiers(format), features(operation));
        let set = |modifier: u64| {
            let limits = self.limits(format, usage, modifier).filter(|limits| limits.imports)?;
            let size = Constraint::new(ConstraintName::MAX_SIZE, limits.size);
            limits.fit(image).then(|| CapabilitySet::new([size], [Capability::modifier(modifier)]))
        };
        Ok(pairs.iter().filter_map(|pair| set(pair.modifier)).collect())
    }

    fn hints(&self, operation: Operation) -> Result<Vec<Hint>> {
        let Some(usage) = usage(operation) else { return Ok(Vec::new()) };
        let hint = |fourcc: Fourcc| {
            let format = vk::Format::from_raw(convert::format(fourcc)? as i32);
            let pairs = convert::read(fourcc, &self.modifiers(format), features(operation));
            let limits = pairs.iter().filter_map(|pair| self.limits(format, usage, pair.modifier));
            let limits = limits.filter(|limits| limits.imports);
            let most = limits.max_by_key(|most| u64::from(most.width) * u64::from(most.height))?;
            Some(Hint { format: fourcc, max_width: most.width, max_height: most.height })
        };
        Ok(format::known().filter_map(hint).collect())
    }

    fn cost(&self, _set: &CapabilitySet) -> u64 {
        35
    }

    fn chooses_layouts(&self) -> bool {
        true
    }

    fn memory(&self) -> Option<Memory> {
        self.info.allocates.then_some(Memory::UNKNOWN)
    }

    fn allocate(&self, description: &Description) -> Result<Buffer> {
        Memory::UNKNOWN.serves_of(Some(&self.info), description)?;
        let format = format_of(description)?;
        let planes = self.listed(description, format, |limits| limits.exports)?;
        let (fd, layout) =
            self.opened()?.make(description, format, self.usage(description), planes)?;
        Buffer::new(fd, Description { layout, ..description.clone() })
    }

    fn request(&self, description: &Description) -> String {
        let modifier = Capability::modifier(description.layout.modifier);
        format!(
            "vkCreateImage {} as {modifier}, vkAllocateMemory, vkGetMemoryFdKHR, on {}",
            description.usage.image, self.info.name
        )
    }

    /// Makes an image of the memory as it is described, and binds it.
    fn import(&self, buffer: &Buffer) -> Result<Box<dyn Import>> {
        let description = buffer.description();
        let fd: OwnedFd = buffer
            .whole()?
            .try_clone_to_owned()
            .map_err(|error| Error::io(ErrorKind::Call, "dup of a buffer", error))?;
        let format = format_of(description)?;
        let (planes, has) = (
            self.listed(description, format, |limits| limits.imports)?,
            description.layout.planes.len(),
        );
        if has != planes {
            let modifier = Capability::modifier(description.layout.modifier);
            let fourcc = description.usage.image.format;
            let what = format!("{has} planes, where {fourcc} with {modifier} has {planes}");
            return Err(Error::new(ErrorKind::Mismatch, what));
        }
        let usage = self.usage(description);
        let imported =
            Imported::new(self.opened()?, description, format, usage, fd, buffer.size())?;
        Ok(Box::new(imported))
    }
}

impl Gpu {
    /// What this GPU does with the image; where the description names it for nothing, it copies.
    fn usage(&self, description: &Description) -> vk::ImageUsageFlags {
        let own = description.usage.uses.iter().filter(|each| each.device == self.info.name);
        let used = own.filter_map(|each| usage(each.operation));
        let used = used.fold(vk::ImageUsageFlags::empty(), |all, each| all | each);
        if used.is_empty() { vk::ImageUsageFlags::TRANSFER_SRC } else { used }
    }
}

fn usage(operation: Operation) -> Option<vk::ImageUsageFlags> {
    match operation {
        Operation::Texture => Some(vk::ImageUsageFlags::SAMPLED),
        Operation::Render => Some(vk::ImageUsageFlags::COLOR_ATTACHMENT),
        Operation::Copy => {
            Some(vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST)
        }
        _ => None,
    }
}

/// The features that an operation needs.
fn features(operation: Operation) -> u32 {
    let features = match operation {
        Operation::Texture => vk::FormatFeatureFlags::SAMPLED_IMAGE,
        Operation::Render => vk::FormatFeatureFlags::COLOR_ATTACHMENT,
        _ => vk::FormatFeatureFlags::TRANSFER_SRC | vk::FormatFeatureFlags::TRANSFER_DST,
    };
    features.as_raw()
}

fn format_of(description: &Description) -> Result<vk::Format> {
    let fourcc = description.usage.image.format;
    let format = convert::format(fourcc)
        .ok_or_else(|| Error::unsupported(format!("Vulkan has no format {fourcc}")))?;
    Ok(vk::Format::from_raw(format as i32))
}

fn text(name: Option<&CStr>) -> String {
    name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// What Vulkan did not do. What ran out says nothing about the memory.
fn refused(call: &str, error: vk::Result) -> Error {
    use nix::libc;
    let errno = match error {
        vk::Result::ERROR_OUT_OF_HOST_MEMORY | vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => {
            libc::ENOMEM
        }
        vk::Result::ERROR_TOO_MANY_OBJECTS => libc::EMFILE,
        _ => return Error::new(ErrorKind::Call, format!("{call}: {error}")),
    };
    Error::io(ErrorKind::Call, call, std::io::Error::from_raw_os_error(errno))
}
