//! OpenGL ES: whether an image of EGL's can be drawn shows when a framebuffer is made of it. EGL makes others as well,
//! and of implicit layouts it does not say which.

use std::ffi::{CStr, c_char, c_void};
use std::{io, thread};

use khronos_egl as api;
use nix::libc;

use crate::{Error, ErrorKind, Image, Result};

type Egl = api::DynamicInstance<api::EGL1_5>;

/// `GL_EXTENSIONS`, of `glGetString`.
const EXTENSIONS: u32 = 0x1f03;
const MAX_TEXTURE_SIZE: u32 = 0x0d33;
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
    get_integer: "glGetIntegerv", fn(u32, *mut i32);
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

/// Whether a list of extensions has one.
pub(super) fn lists(extensions: &str, name: &str) -> bool {
    extensions.split(' ').any(|listed| listed == name)
}

/// A context without a window. It is current in no thread but those of [`in_a_thread`]: a program's keep their own.
pub(super) struct Gles {
    context: api::Context,
    call: Functions,
    /// The most pixels that an image has across or down; 0 where OpenGL does not say.
    most: u32,
}

impl Gles {
    /// `None` where EGL makes no such context, or no images can be bound in it: then nothing is known of what they are
    /// good for.
    ///
    /// # Errors
    ///
    /// When memory ran out, so that it may be made at another time.
    pub(super) fn new(egl: &Egl, display: api::Display, extensions: &str) -> Result<Option<Self>> {
        let needed = ["EGL_KHR_surfaceless_context", "EGL_KHR_no_config_context"];
        if !needed.iter().all(|name| lists(extensions, name)) {
            return Ok(None);
        }
        let Some(call) = Functions::load(egl) else { return Ok(None) };
        let made = in_a_thread(egl, || {
            // SAFETY: of no config there is no object.
            let config = unsafe { api::Config::from_ptr(std::ptr::null_mut()) };
            let attributes = [api::CONTEXT_CLIENT_VERSION, 2, api::NONE];
            egl.create_context(display, config, None, &attributes)
        });
        let Some(context) = known("eglCreateContext", made)? else { return Ok(None) };
        let mut made = Self { context, call, most: 0 };
        let binds = made.alone(egl, display, |made| {
            (lists(&made.extensions(), "GL_OES_EGL_image"), made.most_pixels())
        });
        if let Ok(Some((true, most))) = binds {
            made.most = most;
            return Ok(Some(made));
        }
        // Nobody is there to hear of it.
        let _ = egl.destroy_context(display, context);
        binds.map(|_| None)
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

    /// The same.
    fn most_pixels(&self) -> u32 {
        let mut most = 0;
        // SAFETY: it is one number.
        unsafe { (self.call.get_integer)(MAX_TEXTURE_SIZE, &raw mut most) };
        u32::try_from(most).unwrap_or_default()
    }

    /// Whether images may have so many pixels across and down.
    ///
    /// # Errors
    ///
    /// When they are too many.
    pub(super) fn fits(&self, image: &Image) -> Result<()> {
        match self.most {
            0 => Ok(()),
            most if image.width.max(image.height) <= most => Ok(()),
            most => Err(Error::unsupported(format!(
                "{image} is larger than GL_MAX_TEXTURE_SIZE, which is {most}"
            ))),
        }
    }

    /// Makes a framebuffer of an image.
    ///
    /// # Errors
    ///
    /// What OpenGL says where it cannot be drawn.
    pub(super) fn draw(&self, egl: &Egl, display: api::Display, image: &api::Image) -> Result<()> {
        let drawn = self.alone(egl, display, |made| made.draw_current(image.as_ptr()))?;
        drawn.unwrap_or(Ok(()))
    }

    /// Does something while the context is the current one; `None` where it cannot be, which says nothing of images.
    ///
    /// # Errors
    ///
    /// When memory ran out.
    fn alone<T>(
        &self,
        egl: &Egl,
        display: api::Display,
        what: impl FnOnce(&Self) -> T,
    ) -> Result<Option<T>> {
        let done = in_a_thread(egl, || {
            egl.make_current(display, None, None, Some(self.context))?;
            Ok(what(self))
        });
        known("eglMakeCurrent", done)
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

/// What came of a call of EGL's in a thread; `None` where that says nothing.
fn known<T>(call: &str, done: Option<std::result::Result<T, api::Error>>) -> Result<Option<T>> {
    match done {
        Some(Err(api::Error::BadAlloc)) => Err(out_of_memory(call)),
        Some(done) => Ok(done.ok()),
        // At another time there may be one.
        None => Err(ran_out("a thread for OpenGL", libc::EAGAIN)),
    }
}

/// Does something of EGL's in a thread of its own, and waits for it: what is current in the program's is not touched,
/// and what was made current goes. `None` where there is no such thread.
fn in_a_thread<T>(egl: &Egl, what: impl FnOnce() -> T) -> Option<T> {
    /// What goes to another thread and back.
    struct Lent<T>(T);
    // SAFETY: EGL's and OpenGL's objects may be used by any thread, and who lends them waits.
    unsafe impl<T> Send for Lent<T> {}

    impl<T, F: FnOnce() -> T> Lent<F> {
        fn run(self, egl: &Egl) -> Lent<T> {
            let done = (self.0)();
            // Nobody is there to hear of it.
            let _ = egl.bind_api(api::OPENGL_ES_API).and_then(|()| egl.release_thread());
            Lent(done)
        }
    }

    let lent = Lent(what);
    let done = thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, move || lent.run(egl));
        thread.ok()?.join().ok()
    });
    done.map(|done| done.0)
}

/// What OpenGL did not do. What ran out says nothing about the memory.
fn refused(call: &str, error: u32) -> Error {
    let name = match error {
        0x500 => "GL_INVALID_ENUM",
        0x501 => "GL_INVALID_VALUE",
        0x502 => "GL_INVALID_OPERATION",
        0x505 => return out_of_memory(call),
        0x8cd6 => "GL_FRAMEBUFFER_INCOMPLETE_ATTACHMENT",
        0x8cdd => "GL_FRAMEBUFFER_UNSUPPORTED",
        other => return Error::unsupported(format!("{call}: {other:#x}")),
    };
    Error::unsupported(format!("{call}: {name}"))
}

fn out_of_memory(call: &str) -> Error {
    ran_out(call, libc::ENOMEM)
}

fn ran_out(what: &str, errno: i32) -> Error {
    Error::io(ErrorKind::Call, what, io::Error::from_raw_os_error(errno))
}
