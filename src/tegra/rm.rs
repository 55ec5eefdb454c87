//! The x86 driver's resource manager, as far as a Jetson has something in its place.
//!
//! Programs that are written for the x86 driver make objects by class and ask them by command. Which
//! class or command is what the spec lists ([`abi::SUBSTITUTES`](super::abi)); this file
//! says how each of those few actions is done. What the spec does not name is
//! [`ErrorKind::Unsupported`], with its number.

use std::collections::BTreeMap;
use std::ops::Range;

use super::abi::SUBSTITUTES;
use super::address_space::AddressSpace;
use super::channel::{Channel, ChannelOptions, Subcontext, Tsg};
use super::devfreq::Boost;
use super::device::Device;
use super::error::{Error, ErrorKind, Result};
use super::push::Subchannel;
use crate::call::{AllocAction, ControlAction, Substitute, SubstituteAction};
use crate::{Handle, P64};

/// Objects by handle, as clients of the x86 driver name them.
#[derive(Debug)]
pub struct Rm {
    device: Device,
    objects: BTreeMap<u32, Entry>,
    boost: Option<Boost>,
}

#[derive(Debug)]
struct Entry {
    parent: u32,
    object: Object,
}

#[derive(Debug)]
enum Object {
    /// Only there for what is below it.
    Container,
    Space(AddressSpace),
    Group(Tsg),
    Share(Subcontext),
    Channel(Box<Channel>),
}

/// What an object is made with, beyond its class.
#[derive(Debug, Clone, Default)]
pub struct AllocOptions {
    /// Of a context share: its address space; without this, the only one there is.
    pub space: Option<Handle>,
    /// Of a channel: its context share; without this, the only one in its group.
    pub share: Option<Handle>,
    /// Of a channel: entries of its ring.
    pub entries: Option<u32>,
    /// Of an address space: its addresses.
    pub range: Option<Range<u64>>,
}

impl Rm {
    /// No objects yet.
    pub fn new(device: &Device) -> Self {
        Self { device: device.clone(), objects: BTreeMap::new(), boost: None }
    }

    /// Makes an object (`NV_ESC_RM_ALLOC`). What has no parent hangs on [`Handle`] 0.
    ///
    /// # Errors
    ///
    /// When the handle is taken or the parent is not there, a Jetson has no such class, and what
    /// the kernel refuses.
    pub fn alloc(
        &mut self,
        parent: Handle,
        handle: Handle,
        class: u32,
        options: &AllocOptions,
    ) -> Result<()> {
        let action = alloc_action(class)?;
        if handle.0 == 0 || self.objects.contains_key(&handle.0) {
            return Err(Error::invalid(format!("handle {:#x} is taken", handle.0)));
        }
        if parent.0 != 0 && !self.objects.contains_key(&parent.0) {
            return Err(Error::invalid(format!("there is no object {:#x}", parent.0)));
        }
        let object = match action {
            AllocAction::Container => Object::Container,
            AllocAction::AddressSpace => Object::Space(self.space(options)?),
            AllocAction::Group => Object::Group(Tsg::new(&self.device)?),
            AllocAction::Subcontext => Object::Share(self.share(parent, options)?),
            AllocAction::Channel => Object::Channel(Box::new(self.new_channel(parent, options)?)),
            AllocAction::Compute => self.engine(parent, Subchannel::Compute, class)?,
            AllocAction::Copy => self.engine(parent, Subchannel::Copy, class)?,
        };
        self.objects.insert(handle.0, Entry { parent: parent.0, object });
        Ok(())
    }

    /// Frees an object and what is below it (`NV_ESC_RM_FREE`), the youngest first.
    ///
    /// # Errors
    ///
    /// When there is no such object.
    pub fn free(&mut self, handle: Handle) -> Result<()> {
        if !self.objects.contains_key(&handle.0) {
            return Err(Error::invalid(format!("there is no object {:#x}", handle.0)));
        }
        while let Some(child) = self.child_of(handle.0) {
            self.free(Handle(child))?;
        }
        self.objects.remove(&handle.0);
        Ok(())
    }

    fn child_of(&self, parent: u32) -> Option<u32> {
        let is_child = |entry: &Entry| entry.parent == parent;
        self.objects.iter().rev().find(|(_, entry)| is_child(entry)).map(|(handle, _)| *handle)
    }

    /// Asks an object (`NV_ESC_RM_CONTROL`); `params` are the bytes of the x86 driver's struct.
    ///
    /// # Errors
    ///
    /// When there is no such object, a Jetson has no such command, or the bytes are not as many as
    /// it takes.
    ///
    /// # Safety
    ///
    /// Addresses in the struct are those of memory that the x86 driver could write.
    pub unsafe fn control(&mut self, handle: Handle, cmd: u32, params: &mut [u8]) -> Result<()> {
        let (name, action) = control_action(cmd)?;
        if !self.objects.contains_key(&handle.0) {
            return Err(Error::invalid(format!("there is no object {:#x}", handle.0)));
        }
        match action {
            ControlAction::Nothing => Ok(()),
            ControlAction::Boost => self.boost(view(params, name)?),
            ControlAction::Token => {
                let asked: &mut TokenParams = view(params, name)?;
                asked.workSubmitToken = self.channel(handle)?.work_submit_token();
                Ok(())
            }
            // SAFETY: the caller promises that the driver could write the list in `params`.
            ControlAction::GrInfo => unsafe { self.gr_info(view(params, name)?) },
            // SAFETY: the caller promises that the driver could write the list in `params`.
            ControlAction::ClassList => unsafe { self.class_list(view(params, name)?) },
            ControlAction::Uuid => self.uuid(view(params, name)?),
        }
    }

    /// The address space of a handle, to allocate in.
    pub fn address_space(&self, handle: Handle) -> Option<&AddressSpace> {
        match &self.objects.get(&handle.0)?.object {
            Object::Space(space) => Some(space),
            _ => None,
        }
    }

    /// The channel of a handle, to send to.
    pub fn channel_mut(&mut self, handle: Handle) -> Option<&mut Channel> {
        match &mut self.objects.get_mut(&handle.0)?.object {
            Object::Channel(channel) => Some(channel),
            _ => None,
        }
    }

    fn channel(&self, handle: Handle) -> Result<&Channel> {
        match self.objects.get(&handle.0).map(|entry| &entry.object) {
            Some(Object::Channel(channel)) => Ok(channel),
            _ => Err(Error::invalid(format!("object {:#x} is no channel", handle.0))),
        }
    }

    fn space(&self, options: &AllocOptions) -> Result<AddressSpace> {
        match &options.range {
            Some(range) => AddressSpace::with_range(&self.device, range.clone()),
            None => AddressSpace::new(&self.device),
        }
    }

    fn share(&self, group: Handle, options: &AllocOptions) -> Result<Subcontext> {
        let Some(Object::Group(tsg)) = self.objects.get(&group.0).map(|entry| &entry.object) else {
            return Err(Error::invalid(format!("object {:#x} is no channel group", group.0)));
        };
        let space = self.only("address space", options.space, |_, object| match object {
            Object::Space(space) => Some(space),
            _ => None,
        })?;
        Ok(Subcontext::new(tsg, space))
    }

    fn new_channel(&self, group: Handle, options: &AllocOptions) -> Result<Channel> {
        let share = self.only("context share", options.share, |entry, object| match object {
            Object::Share(share) if entry.parent == group.0 => Some(share),
            _ => None,
        })?;
        let default = ChannelOptions::default();
        let entries = options.entries.unwrap_or(default.entries);
        // Its classes come as objects of their own.
        Channel::new(share, &ChannelOptions { entries, classes: Vec::new() })
    }

    fn engine(&mut self, channel: Handle, at: Subchannel, class: u32) -> Result<Object> {
        let Some(channel) = self.channel_mut(channel) else {
            return Err(Error::invalid(format!("object {:#x} is no channel", channel.0)));
        };
        channel.add_class(at, class)?;
        Ok(Object::Container)
    }

    /// The object that was named, or the only one there is.
    fn only<'s, T>(
        &'s self,
        what: &str,
        named: Option<Handle>,
        is: impl Fn(&'s Entry, &'s Object) -> Option<&'s T>,
    ) -> Result<&'s T> {
        let wanted = |handle: &u32| named.is_none_or(|named| named.0 == *handle);
        let mut found = (self.objects.iter())
            .filter(|(handle, _)| wanted(handle))
            .filter_map(|(_, entry)| is(entry, &entry.object));
        match (found.next(), found.next()) {
            (Some(only), None) => Ok(only),
            (None, _) => Err(Error::invalid(format!("there is no such {what}"))),
            (Some(_), Some(_)) => {
                Err(Error::invalid(format!("there is more than one {what}: name it")))
            }
        }
    }

    fn boost(&mut self, asked: &mut BoostParams) -> Result<()> {
        // Bits 1:0: clear, one level, to the highest. There is one level here.
        match asked.flags & 3 {
            0 => self.boost = None,
            _ if self.boost.is_none() => self.boost = Some(Boost::new()?),
            _ => {}
        }
        Ok(())
    }

    /// # Safety
    ///
    /// The list in `asked` may be written.
    unsafe fn gr_info(&self, asked: &mut GrInfoParams) -> Result<()> {
        for at in 0..asked.grInfoListSize as usize {
            let entry = (asked.grInfoList.0 as *mut GrInfo).wrapping_add(at);
            // SAFETY: the caller promises that the list may be written, so `grInfoListSize` entries of it
            // are mapped; entries need not be aligned.
            let GrInfo { index, .. } = unsafe { entry.read_unaligned() };
            let data = self.gr_value(index)?;
            // SAFETY: the same entry, which the caller promises may be written.
            unsafe { entry.write_unaligned(GrInfo { index, data }) };
        }
        Ok(())
    }

    /// `NV2080_CTRL_GR_INFO_INDEX_*` (ctrl2080gr.h), as far as the characteristics tell.
    fn gr_value(&self, index: u32) -> Result<u32> {
        let gpu = self.device.characteristics();
        Ok(match index {
            0x0c => gpu.sm_arch_sm_version,
            0x0d => gpu.sm_arch_warp_count,
            0x14 => gpu.num_gpc,
            0x17 => gpu.num_tpc_per_gpc,
            // So it is in every GPU since Volta.
            0x20 => 2,
            _ => {
                let message = format!("a Jetson does not tell graphics info {index:#x}");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        })
    }

    /// # Safety
    ///
    /// The list in `asked` may be written.
    unsafe fn class_list(&self, asked: &mut ClassListParams) -> Result<()> {
        let gpu = self.device.characteristics();
        let mut classes = vec![
            gpu.gpfifo_class,
            gpu.compute_class,
            gpu.dma_copy_class,
            gpu.inline_to_memory_class,
            gpu.twod_class,
            gpu.threed_class,
        ];
        classes.retain(|class| *class != 0);
        // Without a list only the number is asked.
        if asked.classList.0 != 0 {
            let room = asked.numClasses as usize;
            for (at, class) in classes.iter().take(room).enumerate() {
                let place = (asked.classList.0 as *mut u32).wrapping_add(at);
                // SAFETY: the caller promises that the list may be written, and `take` stops at its
                // `numClasses` entries; it need not be aligned.
                unsafe { place.write_unaligned(*class) };
            }
            asked.numClasses = classes.len().min(room) as u32;
        } else {
            asked.numClasses = classes.len() as u32;
        }
        Ok(())
    }

    /// A Jetson has no UUID: one is made of its chip's name and number.
    fn uuid(&self, asked: &mut GidParams) -> Result<()> {
        let gpu = self.device.characteristics();
        let mut uuid = [0; 16];
        uuid[0] = b'J';
        uuid[1..9].copy_from_slice(&gpu.chipname);
        uuid[9..13].copy_from_slice(&gpu.arch.to_le_bytes());
        uuid[13..15].copy_from_slice(&gpu.impl_.to_le_bytes()[..2]);
        // Bits 1:0 of the flags are 2 for bytes, 0 for text.
        let told = if asked.flags & 3 == 2 { uuid.to_vec() } else { spelled(&uuid) };
        asked.data[..told.len()].copy_from_slice(&told);
        asked.length = told.len() as u32;
        Ok(())
    }
}

impl Drop for Rm {
    fn drop(&mut self) {
        // What was made last goes first: channels before their groups.
        while let Some(handle) = self.child_of(0).or(self.objects.keys().next_back().copied()) {
            if self.free(Handle(handle)).is_err() {
                return;
            }
        }
    }
}

/// `GPU-4a…`, with a zero behind it.
fn spelled(uuid: &[u8; 16]) -> Vec<u8> {
    let mut text = String::from("GPU");
    for (at, byte) in uuid.iter().enumerate() {
        if [0, 4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text.push('\0');
    text.into_bytes()
}

/// What the spec has in the place of a class.
fn alloc_action(class: u32) -> Result<AllocAction> {
    let action = |one: &Substitute| match one.action {
        SubstituteAction::Alloc(action) if one.number == class => Some(action),
        _ => None,
    };
    SUBSTITUTES.iter().find_map(action).ok_or_else(|| unsupported("class", class))
}

/// What the spec has in the place of a command, and the command's name.
fn control_action(cmd: u32) -> Result<(&'static str, ControlAction)> {
    let action = |one: &Substitute| match one.action {
        SubstituteAction::Control(action) if one.number == cmd => Some((one.name, action)),
        _ => None,
    };
    SUBSTITUTES.iter().find_map(action).ok_or_else(|| unsupported("command", cmd))
}

fn unsupported(what: &str, number: u32) -> Error {
    let message = format!("a Jetson has nothing in the place of {what} {number:#x}");
    Error::new(ErrorKind::Unsupported, message)
}

/// The bytes as the struct that a command takes.
fn view<'p, T: Params>(params: &'p mut [u8], name: &str) -> Result<&'p mut T> {
    let count = params.len();
    let pointer = params.as_mut_ptr().cast::<T>();
    if count != size_of::<T>() || !pointer.is_aligned() {
        let size = size_of::<T>();
        return Err(Error::invalid(format!("{name} takes {size} aligned bytes, not {count}")));
    }
    // SAFETY: size and alignment were just compared, `Params` promises that any bytes are a value, and
    // the borrow of `params` is handed on.
    Ok(unsafe { &mut *pointer })
}

/// # Safety
///
/// Whatever bytes it holds are a value of it.
unsafe trait Params {}

/// The x86 driver's structs, each checked against the driver where its types are in the build.
macro_rules! params {
    ($($name:ident, $driver:literal { $($field:ident: $ty:ty),* })*) => {$(
        #[cfg_attr(feature = "driver-580", derive(crate::NvProxy))]
        #[cfg_attr(feature = "driver-580", nvproxy(name = $driver, driver = "580", crate = "crate"))]
        #[derive(Clone, Copy)]
        #[repr(C)]
        #[allow(non_snake_case)]
        struct $name { $($field: $ty),* }
        // SAFETY: its fields are integers, `P64`, which is one, and structs of these, of which any bytes are
        // a value.
        unsafe impl Params for $name {}
    )*};
}

params! {
    TokenParams, "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS" { workSubmitToken: u32 }
    BoostParams, "NV2080_CTRL_PERF_BOOST_PARAMS" { flags: u32, duration: u32 }
    GrInfo, "NVXXXX_CTRL_XXX_INFO" { index: u32, data: u32 }
    Route, "NV0080_CTRL_GR_ROUTE_INFO" { flags: u32, route: u64 }
    GrInfoParams, "NV2080_CTRL_GR_GET_INFO_PARAMS" {
        grInfoListSize: u32, grInfoList: P64, grRouteInfo: Route
    }
    ClassListParams, "NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS" { numClasses: u32, classList: P64 }
    GidParams, "NV2080_CTRL_GPU_GET_GID_INFO_PARAMS" {
        index: u32, flags: u32, length: u32, data: [u8; 256]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_the_spec_does_not_name_is_refused_by_number() {
        let error = alloc_action(0xcafe).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("class 0xcafe"), "{error}");
        // A command's number is not a class's.
        assert_eq!(alloc_action(0x80).unwrap(), AllocAction::Container);
        assert!(control_action(0x80).is_err());
    }

    #[test]
    fn a_uuid_is_spelled_as_usual() {
        let mut uuid = [0; 16];
        uuid[0] = b'J';
        let text = String::from_utf8(spelled(&uuid)).unwrap();
        assert_eq!(text, "GPU-4a000000-0000-0000-0000-000000000000\0");
    }

    #[test]
    fn bytes_that_are_too_few_are_refused() {
        let (name, action) = control_action(0x2080_200a).unwrap();
        assert_eq!(action, ControlAction::Boost);
        let mut bytes = [0_u64; 1];
        // SAFETY: they are bytes of an array of our own.
        let bytes = unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast::<u8>(), 7) };
        let refused = view::<BoostParams>(bytes, name).map(|_| ()).unwrap_err();
        assert!(refused.to_string().contains("takes 8 aligned bytes, not 7"), "{refused}");
    }
}
