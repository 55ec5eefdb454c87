//! OpenGL ES: whether an image of EGL's can be drawn shows when a framebuffer is made of it. EGL makes others as well,
//! and of implicit layouts it does not say which.

use std::ffi::{CStr, c_char, c_void};

use khronos_egl as api;

use crate::{Error, Result};

type Egl = api::DynamicInstance<api::EGL1_5>;

/// `GL_EXTENSIONS`, of `glGetString`.
const EXTENSIONS: u32 = 0x1f03;
const RENDERBUFFER: u32 = 0x8d41;
const FRAMEBUFFER: u32 = 0x8d40;
const COLOR_ATTACHMENT0: u32 = 0x8ce0;
const FRAMEBUFFER_COMPLETE: u32 = 0x8cd5;

/// Functions by their names in `gl2.h` and `gl2ext.h`, with the types that they have there.
macro_rules! functions {
    ($($field:ident: $name:literal, fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        struct Functions {
            $($field: unsafe extern "system" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// `None` where one is missing.
            fn load(egl: &Egl) -> Option<Self> {
                type Any = extern "system" fn();
                Some(Self {$(
                    $field: {
                        let found: Any = egl.get_proc_address($name)?;
                        // SAFETY: it has this type where there is such a function.
                        unsafe {
                            std::mem::transmute::<
                                Any,
                                unsafe extern "system" fn($($argument),*) $(-> $result)?,
                            >(found)
                        }
                    },
                )*})
            }
        }
    };
}

functions! {
    get_string: "glGetString", fn(u32) -> *const c_char;
    get_error: "glGetError", fn() -> u32;
    new_renderbuffers: "glGenRenderbuffers", fn(i32, *mut u32);
    delete_renderbuffers: "glDeleteRenderbuffers", fn(i32, *const u32);
    bind_renderbuffer: "glBindRenderbuffer", fn(u32, u32);
    renderbuffer_of: "glEGLImageTargetRenderbufferStorageOES", fn(u32, *mut c_void);
    new_framebuffers: "glGenFramebuffers", fn(i32, *mut u32);
    delete_framebuffers: "glDeleteFramebuffers", fn(i32, *const u32);
    bind_framebuffer: "glBindFramebuffer", fn(u32, u32);
    attach: "glFramebufferRenderbuffer", fn(u32, u32, u32, u32);
    check: "glCheckFramebufferStatus", fn(u32) -> u32;
}

/// A context without a window.
pub(super) struct Gles {
    context: api::Context,
    call: Functions,
}

impl Gles {
    /// `None` where EGL makes no such context, or no images can be bound in it: then nothing is known of what they are
    /// good for.
    pub(super) fn new(egl: &Egl, display: api::Display, extensions: &str) -> Option<Self> {
        let has = |name| extensions.split(' ').any(|has| has == name);
        if !has("EGL_KHR_surfaceless_context") || !has("EGL_KHR_no_config_context") {
            return None;
        }
        let call = Functions::load(egl)?;
        let _before = Before::of(egl, display);
        egl.bind_api(api::OPENGL_ES_API).ok()?;
        // SAFETY: of no config there is no object.
        let config = unsafe { api::Config::from_ptr(std::ptr::null_mut()) };
        let attributes = [api::CONTEXT_CLIENT_VERSION, 2, api::NONE];
        let context = egl.create_context(display, config, None, &attributes).ok()?;
        let made = Self { context, call };
        let binds = egl.make_current(display, None, None, Some(context)).is_ok()
            && made.extensions().split(' ').any(|has| has == "GL_OES_EGL_image");
        if !binds {
            // Nobody is there to hear of it.
            let _ = egl.destroy_context(display, context);
            return None;
        }
        Some(made)
    }

    /// Of the context, which is the current one.
    fn extensions(&self) -> String {
        // SAFETY: the string is the context's, and stays.
        let text = unsafe {
            let text = (self.call.get_string)(EXTENSIONS);
            if text.is_null() { c"" } else { CStr::from_ptr(text) }
        };
        text.to_string_lossy().into_owned()
    }

    /// Makes a framebuffer of an image.
    ///
    /// # Errors
    ///
    /// What OpenGL says where it cannot be drawn.
    pub(super) fn draw(&self, egl: &Egl, display: api::Display, image: &api::Image) -> Result<()> {
        let _before = Before::of(egl, display);
        let current = egl
            .bind_api(api::OPENGL_ES_API)
            .and_then(|()| egl.make_current(display, None, None, Some(self.context)));
        match current {
            Ok(()) => self.draw_current(image.as_ptr()),
            // That says nothing of the image.
            Err(_) => Ok(()),
        }
    }

    fn draw_current(&self, image: *mut c_void) -> Result<()> {
        let (mut renderbuffer, mut framebuffer) = (0, 0);
        // SAFETY: the context is current, and the image alive.
        let (error, status) = unsafe {
            self.forget_errors();
            (self.call.new_renderbuffers)(1, &raw mut renderbuffer);
            (self.call.bind_renderbuffer)(RENDERBUFFER, renderbuffer);
            (self.call.renderbuffer_of)(RENDERBUFFER, image);
            let error = (self.call.get_error)();
            (self.call.new_framebuffers)(1, &raw mut framebuffer);
            (self.call.bind_framebuffer)(FRAMEBUFFER, framebuffer);
            (self.call.attach)(FRAMEBUFFER, COLOR_ATTACHMENT0, RENDERBUFFER, renderbuffer);
            let status = (self.call.check)(FRAMEBUFFER);
            (self.call.delete_framebuffers)(1, &raw const framebuffer);
            (self.call.delete_renderbuffers)(1, &raw const renderbuffer);
            (error, status)
        };
        match (error, status) {
            (0, FRAMEBUFFER_COMPLETE) => Ok(()),
            (0, status) => Err(refused("glCheckFramebufferStatus", status)),
            (error, _) => Err(refused("glEGLImageTargetRenderbufferStorageOES", error)),
        }
    }

    /// Errors are kept until they are asked for.
    ///
    /// # Safety
    ///
    /// The context is current.
    unsafe fn forget_errors(&self) {
        // A context that is lost gives them without end.
        for _ in 0..16 {
            // SAFETY: the caller's promise.
            if unsafe { (self.call.get_error)() } == 0 {
                break;
            }
        }
    }
}

fn refused(call: &str, error: u32) -> Error {
    let name = match error {
        0x500 => "GL_INVALID_ENUM",
        0x501 => "GL_INVALID_VALUE",
        0x502 => "GL_INVALID_OPERATION",
        0x505 => "GL_OUT_OF_MEMORY",
        0x8cd6 => "GL_FRAMEBUFFER_INCOMPLETE_ATTACHMENT",
        0x8cdd => "GL_FRAMEBUFFER_UNSUPPORTED",
        other => return Error::unsupported(format!("{call}: {other:#x}")),
    };
    Error::unsupported(format!("{call}: {name}"))
}

/// What was current in this thread, and is again afterwards: a program has contexts of its own.
struct Before<'e> {
    egl: &'e Egl,
    /// Of no display nothing was current.
    display: api::Display,
    api: api::Enum,
    surfaces: [Option<api::Surface>; 2],
    context: Option<api::Context>,
}

impl<'e> Before<'e> {
    fn of(egl: &'e Egl, ours: api::Display) -> Self {
        Self {
            egl,
            display: egl.get_current_display().unwrap_or(ours),
            api: egl.query_api(),
            surfaces: [api::DRAW, api::READ].map(|which| egl.get_current_surface(which)),
            context: egl.get_current_context(),
        }
    }
}

impl Drop for Before<'_> {
    fn drop(&mut self) {
        let [draw, read] = self.surfaces;
        // Nobody is there to hear of it.
        let _ = self.egl.make_current(self.display, draw, read, self.context);
        let _ = self.egl.bind_api(self.api);
    }
}
