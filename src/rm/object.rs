//! Objects: what a client has made, each below another.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::alloc::{AllocRequest, Forms};
use super::error::{Error, ErrorKind, ObjectName, Result};
use super::escape::{self, CallName};
use super::handles::Handles;
use crate::call::{Call, Class, Control, PointerFree};
use crate::driver::{Choice, Record};
use crate::ioctl::{self, Failure};
use crate::{Handle, P64};

/// An object of the resource manager. It is freed when it is dropped, and what is below it before it: a
/// child keeps its parent.
///
/// It can be used from several threads at once.
pub struct Object(pub(super) Arc<Node>);

/// One object in the tree of a client.
pub(super) struct Node {
    pub(super) name: ObjectName,
    parent: Option<Arc<Node>>,
    pub(super) client: Arc<Client>,
    /// Not yet freed by hand.
    alive: bool,
}

/// What all objects of a client share.
pub(super) struct Client {
    pub(super) fd: OwnedFd,
    pub(super) choice: Choice,
    pub(super) handle: Handle,
    pub(super) forms: Forms,
    pub(super) handles: Handles,
}

impl Object {
    /// The root of a client's tree.
    pub(super) fn root(client: Arc<Client>, name: ObjectName) -> Self {
        Self(Arc::new(Node { name, parent: None, client, alive: true }))
    }

    /// Its handle.
    pub fn handle(&self) -> Handle {
        self.0.name.handle
    }

    /// Its handle and its class.
    pub fn name(&self) -> ObjectName {
        self.0.name
    }

    /// The handle of its client.
    pub fn client(&self) -> Handle {
        self.0.client.handle
    }

    /// The driver that it is of.
    pub fn driver(&self) -> &Choice {
        &self.0.client.choice
    }

    pub(super) fn shared(&self) -> &Arc<Client> {
        &self.0.client
    }

    /// The fd of `/dev/nvidiactl` that the client was made with.
    pub fn control_fd(&self) -> BorrowedFd<'_> {
        self.0.client.fd.as_fd()
    }

    /// Makes an object below this one.
    ///
    /// A class whose parameters point to memory is made by [`alloc_with_pointers`](Self::alloc_with_pointers);
    /// here it does not compile.
    ///
    /// # Errors
    ///
    /// [`NotInDriver`](ErrorKind::NotInDriver) where the machine's driver has no such class, or another
    /// under this name; and what the kernel or the resource manager says.
    pub fn alloc<C: Class + PointerFree>(&self, params: &mut C::Params) -> Result<Object> {
        // SAFETY: `PointerFree` promises that no address in the parameters is followed, whatever they hold.
        unsafe { self.alloc_with_pointers::<C>(params) }
    }

    /// Makes an object whose parameters hold addresses.
    ///
    /// # Errors
    ///
    /// As [`alloc`](Self::alloc).
    ///
    /// # Safety
    ///
    /// The addresses are those of memory that the driver may use as `C` says, for as long as it says.
    pub unsafe fn alloc_with_pointers<C: Class>(&self, params: &mut C::Params) -> Result<Object> {
        // SAFETY: the caller promises the addresses in `params`; null rights are not read
        // (alloc_free.c:153 of 550.90.07).
        unsafe { self.alloc_class::<C>(params, P64::NULL) }
    }

    /// Makes an object and asks for access rights to it (`pRightsRequested`), which is what
    /// `RS_ACCESS_MASK` of any driver holds: a bit for each right.
    ///
    /// # Errors
    ///
    /// As [`alloc`](Self::alloc).
    pub fn alloc_with_rights<C: Class + PointerFree>(
        &self,
        params: &mut C::Params,
        rights: u32,
    ) -> Result<Object> {
        let mut rights = AccessMask { limbs: [rights] };
        // SAFETY: `PointerFree` promises that no address in the parameters is followed. The driver copies the
        // mask before it allocates (alloc_free.c:164 of 550.90.07), `RS_ACCESS_MASK` of which the derive
        // checks `AccessMask` against, and `rights` lives through the call.
        unsafe { self.alloc_class::<C>(params, ioctl::address(&mut rights)) }
    }

    /// # Safety
    ///
    /// As `alloc_with_pointers`, for the rights too.
    unsafe fn alloc_class<C: Class>(&self, params: &mut C::Params, rights: P64) -> Result<Object> {
        self.knows::<C>()?;
        let name = (C::CLASS, C::INFO.name);
        let size = size_of::<C::Params>() as u32;
        // SAFETY: `knows` found the class in the machine's driver with `C::Params`, as `Call` promises, and the
        // address and size are those of `params`. The addresses in it and in `rights` are the caller's promise.
        let made = unsafe { self.alloc_number(name, ioctl::address(params), size, rights) };
        made.map_err(|error| self.failed(C::INFO.into(), error))
    }

    /// # Safety
    ///
    /// `params` and `rights` are what the class takes.
    pub(super) unsafe fn alloc_number(
        &self,
        (class, class_name): (u32, &'static str),
        params: P64,
        params_size: u32,
        rights: P64,
    ) -> std::result::Result<Object, ErrorKind> {
        let client = &self.0.client;
        let made = client.handles.with_new(|object| {
            let (client_handle, parent) = (client.handle, self.handle());
            let request = AllocRequest {
                client: client_handle,
                parent,
                object,
                class,
                params,
                params_size,
                rights,
            };
            // SAFETY: `forms` was chosen for the driver behind this fd when the client was made; `params` and
            // `rights` are what the class takes, as the caller promises.
            unsafe { client.forms.alloc(client.fd.as_fd(), &request) }.map(drop)
        })?;
        Ok(self.child(ObjectName { handle: made, class, class_name }))
    }

    /// Makes a second name of an object, of this client or another, below this one.
    ///
    /// # Errors
    ///
    /// What the kernel or the resource manager says.
    pub fn dup_object(&self, source: &Object, flags: u32) -> Result<Object> {
        let client = &self.0.client;
        let made = client.handles.with_new(|object| {
            let mut params = escape::DupObject {
                client: client.handle,
                parent: self.handle(),
                object,
                source_client: source.client(),
                source: source.handle(),
                flags,
                status: 0,
            };
            // SAFETY: the derive checks `DupObject` against every driver of the build: handles and integers,
            // no address.
            escape::made(unsafe {
                escape::status_call(client.fd.as_fd(), escape::DUP_OBJECT, &mut params, |p| {
                    p.status
                })
            })
        });
        let handle = made.map_err(|kind| source.failed(escape::DUP_OBJECT, kind))?;
        Ok(self.child(ObjectName { handle, ..source.name() }))
    }

    fn child(&self, name: ObjectName) -> Object {
        let (parent, client) = (Some(self.0.clone()), self.0.client.clone());
        Object(Arc::new(Node { name, parent, client, alive: true }))
    }

    /// Gives it a command.
    ///
    /// A command whose parameters point to memory is given by
    /// [`control_with_pointers`](Self::control_with_pointers); here it does not compile.
    ///
    /// # Errors
    ///
    /// [`NotInDriver`](ErrorKind::NotInDriver) where the machine's driver has no such command, or another
    /// under this name; and what the kernel or the resource manager says.
    #[inline]
    pub fn control<C: Control + PointerFree>(&self, params: &mut C::Params) -> Result<()> {
        // SAFETY: `PointerFree` promises that no address in the parameters is followed, whatever they hold.
        unsafe { self.control_with_pointers::<C>(params) }
    }

    /// Gives it a command whose parameters hold addresses.
    ///
    /// # Errors
    ///
    /// As [`control`](Self::control).
    ///
    /// # Safety
    ///
    /// The addresses are those of memory that the driver may read or write as `C` says.
    #[inline]
    pub unsafe fn control_with_pointers<C: Control>(&self, params: &mut C::Params) -> Result<()> {
        self.knows::<C>()?;
        let Node { name, client, .. } = &*self.0;
        loop {
            // SAFETY: `knows` found exactly this command in the driver behind the fd, which is of
            // `/dev/nvidiactl`; the addresses in `params` are the caller's promise.
            let done = unsafe {
                ioctl::control::<C>(client.fd.as_fd(), client.handle, name.handle, params)
            };
            match done {
                Ok(()) => return Ok(()),
                // A call that a signal broke off has changed nothing.
                Err(Failure::Errno(libc::EINTR)) => {}
                Err(failure) => return Err(self.failed(C::INFO.into(), failure)),
            }
        }
    }

    /// The parameters of a command, zero but for what `fill` sets, after it was given.
    ///
    /// # Errors
    ///
    /// As [`control`](Self::control).
    pub fn ask<C>(&self, fill: impl FnOnce(&mut C::Params)) -> Result<C::Params>
    where
        C: Control<Params: Record> + PointerFree,
    {
        let mut params = C::Params::zeroed();
        fill(&mut params);
        self.control::<C>(&mut params)?;
        Ok(params)
    }

    /// Frees it now, and returns what the driver replied.
    ///
    /// # Errors
    ///
    /// [`InUse`](ErrorKind::InUse) where it has children or mappings yet; it is freed after the last of
    /// them. Otherwise what the kernel or the resource manager says.
    pub fn free(self) -> Result<()> {
        let (name, choice) = (self.name(), self.driver().clone());
        let error =
            |kind: ErrorKind| Error::new(kind).call(escape::FREE).object(name).driver_is(&choice);
        match Arc::into_inner(self.0) {
            None => Err(error(ErrorKind::InUse)),
            Some(mut node) => {
                node.alive = false;
                node.free().map_err(|failure| error(failure.into()))
            }
        }
    }

    /// Whether the driver has exactly this call.
    #[inline]
    fn knows<C: Call>(&self) -> Result<()> {
        match self.driver().has::<C>() {
            true => Ok(()),
            false => Err(self.failed(C::INFO.into(), ErrorKind::NotInDriver)),
        }
    }

    #[cold]
    pub(super) fn failed(&self, call: CallName, kind: impl Into<ErrorKind>) -> Error {
        Error::new(kind).call(call).object(self.name()).driver_is(self.driver())
    }
}

/// `RS_ACCESS_MASK`.
#[derive(crate::NvProxy)]
#[nvproxy(name = "RS_ACCESS_MASK", crate = "crate")]
#[repr(C)]
struct AccessMask {
    limbs: [u32; 1],
}

impl Client {
    /// An ioctl on the client's fd that is none of an object.
    pub(super) fn failed(&self, call: CallName, error: &io::Error) -> Error {
        Error::errno_of(error).call(call).driver_is(&self.choice)
    }
}

impl Node {
    fn free(&self) -> std::result::Result<(), Failure> {
        let Self { name: ObjectName { handle, .. }, parent, client, .. } = self;
        let parent = parent.as_ref().map_or(Handle(0), |parent| parent.name.handle);
        let mut params = escape::Free { client: client.handle, parent, object: *handle, status: 0 };
        // SAFETY: the derive checks `Free` against every driver of the build: handles and an integer, no address.
        let freed = unsafe {
            escape::status_call(client.fd.as_fd(), escape::FREE, &mut params, |p| p.status)
        };
        // One that cannot be freed may be there yet: its handle is not given out again.
        if freed.is_ok() && *handle != client.handle {
            client.handles.give_back(*handle);
        }
        freed
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.alive {
            // Nobody is left to tell; closing the fd frees what stays.
            _ = self.free();
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Object").field(&self.name()).finish()
    }
}
