//! EGL on a device of GBM's: what can be sampled and drawn, and images of a dma-buf.

use std::cell::OnceCell;
use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use khronos_egl as api;

use super::gbm;
use super::gles::{Gles, lists};
use crate::{Buffer, Error, ErrorKind, Fourcc, Image, MODIFIER_INVALID, Result};

const LIBRARY: &str = "libEGL.so.1";

// Extensions of EGL, by `eglext.h`.
const PLATFORM_GBM: api::Enum = 0x31d7;
const LINUX_DMA_BUF: api::Enum = 0x3270;
const FOURCC: api::Attrib = 0x3271;
/// Of each plane: file descriptor, offset, pitch, and the halves of the modifier.
const PLANES: [[api::Attrib; 5]; 4] = [
    [0x3272, 0x3273, 0x3274, 0x3443, 0x3444],
    [0x3275, 0x3276, 0x3277, 0x3445, 0x3446],
    [0x3278, 0x3279, 0x327a, 0x3447, 0x3448],
    [0x3440, 0x3441, 0x3442, 0x3449, 0x344a],
];

const EXTENSION: &str = "EGL_EXT_image_dma_buf_import_modifiers";

/// So many pixels across or down are too many for no GPU that imports a dma-buf.
const ALWAYS: u32 = 2048;

type QueryFormats = unsafe extern "system" fn(
    api::EGLDisplay,
    api::Int,
    *mut api::Int,
    *mut api::Int,
) -> api::Boolean;
type QueryModifiers = unsafe extern "system" fn(
    api::EGLDisplay,
    api::Int,
    api::Int,
    *mut u64,
    *mut api::Boolean,
    *mut api::Int,
) -> api::Boolean;

/// EGL's library, and two functions of an extension.
pub(super) struct Egl {
    api: api::DynamicInstance<api::EGL1_5>,
    query_formats: QueryFormats,
    query_modifiers: QueryModifiers,
}

/// A modifier that can be sampled.
pub(super) struct Listed {
    pub(super) modifier: u64,
    /// Whether it can be drawn too; of the implicit one EGL does not say.
    pub(super) draws: bool,
}

impl Egl {
    /// # Errors
    ///
    /// When there is no such library, or none with these functions.
    pub(super) fn load() -> Result<Self> {
        let unloaded = |error: String| Error::new(ErrorKind::Open, format!("{LIBRARY}: {error}"));
        // SAFETY: libEGL is the system's; what its initialisers do, and those of the drivers that it loads, is the
        // word of who installed them.
        let api =
            unsafe { api::DynamicInstance::<api::EGL1_5>::load_required_from_filename(LIBRARY) };
        let api = api.map_err(|error| unloaded(error.to_string()))?;
        let function = |name: &str| {
            api.get_proc_address(name).ok_or_else(|| unloaded(format!("it has no {name}")))
        };
        let formats = function("eglQueryDmaBufFormatsEXT")?;
        let modifiers = function("eglQueryDmaBufModifiersEXT")?;
        // SAFETY: both types are what EGL's extension gives these functions.
        let (query_formats, query_modifiers) = unsafe {
            (
                std::mem::transmute::<extern "system" fn(), QueryFormats>(formats),
                std::mem::transmute::<extern "system" fn(), QueryModifiers>(modifiers),
            )
        };
        Ok(Self { api, query_formats, query_modifiers })
    }
}

/// EGL on a GPU.
pub(super) struct Display {
    egl: Arc<Egl>,
    display: api::Display,
    extensions: String,
    /// Made when it is first needed; `None` where there is none.
    gles: OnceCell<Option<Gles>>,
}

// SAFETY: EGL's displays may be used by any thread, and so may contexts that are current in none.
unsafe impl Send for Display {}

/// An image of EGL's.
pub(super) struct Picture(api::Image);

// SAFETY: EGL's images may be used by any thread.
unsafe impl Send for Picture {}

impl Display {
    pub(super) fn new(egl: Arc<Egl>, device: &gbm::Device) -> Result<Self> {
        let refused =
            |call: &str, error: api::Error| Error::new(ErrorKind::Call, format!("{call}: {error}"));
        // SAFETY: the device is alive; who owns both drops the display first.
        let display = unsafe {
            egl.api.get_platform_display(PLATFORM_GBM, device.as_ptr(), &[api::ATTRIB_NONE])
        };
        let display = display.map_err(|error| refused("eglGetPlatformDisplay", error))?;
        egl.api.initialize(display).map_err(|error| refused("eglInitialize", error))?;
        let mut made = Self { egl, display, extensions: String::new(), gles: OnceCell::new() };
        let has = made.egl.api.query_string(Some(made.display), api::EXTENSIONS);
        let has = has.map_err(|error| refused("eglQueryString", error))?;
        made.extensions = has.to_string_lossy().into_owned();
        match lists(&made.extensions, EXTENSION) {
            true => Ok(made),
            false => Err(Error::unsupported(format!("its EGL has no {EXTENSION}"))),
        }
    }

    /// The modifiers of a format; the implicit one where EGL lists the format without any.
    pub(super) fn modifiers(&self, format: Fourcc) -> Result<Vec<Listed>> {
        let formats: Vec<api::Int> = self.list("eglQueryDmaBufFormatsEXT", |room, count| {
            let (list, most) = room.map_or((std::ptr::null_mut(), 0), as_list);
            // SAFETY: the display is initialized, and the list has the room that is said.
            unsafe { (self.egl.query_formats)(self.display.as_ptr(), most, list, count) }
        })?;
        if !formats.contains(&(format.0 as api::Int)) {
            return Ok(Vec::new());
        }
        let mut external = Vec::new();
        let modifiers: Vec<u64> = self.list("eglQueryDmaBufModifiersEXT", |room, count| {
            let (list, most) = room.map_or((std::ptr::null_mut(), 0), as_list);
            external.resize(most as usize, api::FALSE);
            // Mesa fills it for formats that it converts, even where it is only asked how many there are.
            let externals = if most == 0 { std::ptr::null_mut() } else { external.as_mut_ptr() };
            let display = self.display.as_ptr();
            let of = format.0 as api::Int;
            // SAFETY: the display is initialized, and both lists have the room that is said.
            unsafe { (self.egl.query_modifiers)(display, of, most, list, externals, count) }
        })?;
        if modifiers.is_empty() {
            return Ok(vec![Listed { modifier: MODIFIER_INVALID, draws: false }]);
        }
        let draws = external.into_iter().map(|external| external == api::FALSE);
        Ok(modifiers
            .into_iter()
            .zip(draws)
            .map(|(modifier, draws)| Listed { modifier, draws })
            .collect())
    }

    /// Asks for how many there are, then for them.
    fn list<T: Clone + Default>(
        &self,
        call: &str,
        mut ask: impl FnMut(Option<&mut [T]>, &mut api::Int) -> api::Boolean,
    ) -> Result<Vec<T>> {
        let mut count = 0;
        let mut found = Vec::new();
        if ask(None, &mut count) == api::TRUE {
            found.resize(usize::try_from(count).unwrap_or(0), T::default());
            if ask(Some(&mut found), &mut count) == api::TRUE {
                found.truncate(usize::try_from(count).unwrap_or(0));
                return Ok(found);
            }
        }
        Err(self.refused(call))
    }

    /// Makes an image of memory as it is described.
    pub(super) fn import(&self, buffer: &Buffer) -> Result<Picture> {
        let description = buffer.description();
        let (image, layout) = (&description.usage.image, &description.layout);
        let mut attributes = vec![
            api::WIDTH as api::Attrib,
            image.width as api::Attrib,
            api::HEIGHT as api::Attrib,
            image.height as api::Attrib,
            FOURCC,
            image.format.0 as api::Attrib,
        ];
        if layout.planes.len() > PLANES.len() {
            return Err(Error::invalid("an image of EGL has four planes at most"));
        }
        let planes = (0..layout.planes.len()).filter_map(|index| buffer.plane(index));
        for ((piece, plane), names) in planes.zip(PLANES) {
            let number = |value: u64| {
                let wide = || Error::invalid(format!("{value} bytes are too many for EGL"));
                i32::try_from(value).map(|value| value as api::Attrib).map_err(|_| wide())
            };
            let values = [
                piece.as_fd().as_raw_fd() as api::Attrib,
                number(plane.offset)?,
                number(plane.pitch)?,
                (layout.modifier & u64::from(u32::MAX)) as api::Attrib,
                (layout.modifier >> 32) as api::Attrib,
            ];
            // An implicit modifier is told by leaving it out.
            let told = if layout.modifier == MODIFIER_INVALID { 3 } else { 5 };
            attributes.extend(
                names.into_iter().zip(values).take(told).flat_map(|(name, value)| [name, value]),
            );
        }
        attributes.push(api::ATTRIB_NONE);
        // SAFETY: EGL defines both as these constants, which are no objects.
        let (no_context, no_buffer) = unsafe {
            (
                api::Context::from_ptr(api::NO_CONTEXT),
                api::ClientBuffer::from_ptr(std::ptr::null_mut::<c_void>()),
            )
        };
        let made = self.egl.api.create_image(
            self.display,
            no_context,
            LINUX_DMA_BUF,
            no_buffer,
            &attributes,
        );
        made.map(Picture)
            .map_err(|error| Error::new(ErrorKind::Call, format!("eglCreateImage: {error}")))
    }

    /// Whether an image can be drawn, where OpenGL can be had.
    ///
    /// # Errors
    ///
    /// What OpenGL says where it cannot.
    pub(super) fn draw(&self, picture: &Picture) -> Result<()> {
        let gles = self.gles()?;
        gles.map_or(Ok(()), |gles| gles.draw(&self.egl.api, self.display, &picture.0))
    }

    /// Whether an image is not too large, where OpenGL can be had: EGL makes images of any size.
    ///
    /// # Errors
    ///
    /// When it is.
    pub(super) fn fits(&self, image: &Image) -> Result<()> {
        // A context takes its time.
        if image.width.max(image.height) <= ALWAYS {
            return Ok(());
        }
        self.gles()?.map_or(Ok(()), |gles| gles.fits(image))
    }

    fn gles(&self) -> Result<Option<&Gles>> {
        if let Some(known) = self.gles.get() {
            return Ok(known.as_ref());
        }
        let made = Gles::new(&self.egl.api, self.display, &self.extensions)?;
        Ok(self.gles.get_or_init(|| made).as_ref())
    }

    pub(super) fn forget(&self, picture: Picture) {
        // Nobody is there to hear of it.
        let _ = self.egl.api.destroy_image(self.display, picture.0);
    }

    fn refused(&self, call: &str) -> Error {
        let why = self
            .egl
            .api
            .get_error()
            .map_or("no reason given".to_owned(), |error| error.to_string());
        Error::new(ErrorKind::Call, format!("{call}: {why}"))
    }
}

/// As EGL takes a list: where it begins, and how many it has room for.
fn as_list<T>(room: &mut [T]) -> (*mut T, api::Int) {
    (room.as_mut_ptr(), api::Int::try_from(room.len()).unwrap_or(api::Int::MAX))
}

impl Drop for Display {
    fn drop(&mut self) {
        // Nobody is there to hear of it. Images are gone: each holds the node.
        let _ = self.egl.api.terminate(self.display);
    }
}
