//! Events: what the driver tells a file that waits.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use super::client::{NodeName, RmClient};
use super::error::{Error, Result};
use super::escape;
use super::object::{Node, Object};
use crate::call::Kind;
use crate::ioctl;
use crate::{Handle, P64};

/// The class of a subscription, the same number in every driver.
const OS_EVENT: (u32, &str) = (0x79, "NV01_EVENT_OS_EVENT");

/// A file that becomes readable when something that was subscribed to happens
/// (`NV_ESC_ALLOC_OS_EVENT`).
///
/// Wait with `poll` on it ([`AsFd`]) or with [`wait`](Self::wait), then take what happened.
#[derive(Clone)]
pub struct OsEvent(Arc<Inner>);

struct Inner {
    fd: OwnedFd,
    root: Arc<Node>,
}

/// Something that the driver tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The subscription's handle.
    pub subscription: Handle,
    /// What happened, the index that was subscribed to.
    pub notify_index: u32,
    /// More of it.
    pub info32: u32,
    /// More of it.
    pub info16: u16,
    /// There is another one to be taken.
    pub more: bool,
}

/// Keeps an object's events coming; they end when it is dropped.
#[derive(Debug)]
pub struct Subscription {
    // Freed before the file goes that it names.
    object: Object,
    _event: OsEvent,
}

impl RmClient {
    /// Opens a node for events. Those of a GPU are told on its own node or on that of all.
    ///
    /// # Errors
    ///
    /// When the node may not be opened, and what the kernel or the resource manager says.
    pub fn os_event(&self, node: NodeName) -> Result<OsEvent> {
        let fd = node.open()?;
        self.register_fd(fd.as_fd())?;
        let number = fd.as_raw_fd() as u32;
        let mut params = escape::AllocOsEvent {
            client: self.client(),
            device: Handle(0),
            fd: number,
            status: 0,
        };
        // SAFETY: there are no addresses in the parameters.
        unsafe {
            escape::status_call(fd.as_fd(), escape::ALLOC_OS_EVENT, &mut params, |p| p.status)
        }
        .map_err(|failure| self.failed(escape::ALLOC_OS_EVENT, failure))?;
        Ok(OsEvent(Arc::new(Inner { fd, root: self.0.clone() })))
    }
}

impl OsEvent {
    /// Lets an object tell of one thing (`NV01_EVENT_OS_EVENT`). Most objects tell of it only once a
    /// command turns it on.
    ///
    /// # Errors
    ///
    /// What the kernel or the resource manager says.
    pub fn subscribe(&self, source: &Object, notify_index: u32) -> Result<Subscription> {
        let mut params = escape::EventParams {
            client: source.client(),
            source: source.handle(),
            class: OS_EVENT.0,
            notify_index,
            data: P64(self.0.fd.as_raw_fd() as u64),
        };
        let size = size_of::<escape::EventParams>() as u32;
        let at = ioctl::address(&mut params);
        // SAFETY: these are the class's parameters; what looks like an address is an fd.
        let object = unsafe { source.alloc_number(OS_EVENT, at, size, P64::NULL) };
        let call = escape::CallName { name: OS_EVENT.1, kind: Kind::Class, number: OS_EVENT.0 };
        let object = object.map_err(|kind| source.failed(call, kind))?;
        Ok(Subscription { object, _event: self.clone() })
    }

    /// Waits until something happened; `false` where nothing did in that time.
    ///
    /// # Errors
    ///
    /// What the kernel says; a GPU that is gone is `EPIPE`.
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        let mut poll = libc::pollfd {
            fd: self.0.fd.as_raw_fd(),
            events: libc::POLLIN | libc::POLLPRI,
            revents: 0,
        };
        let timeout = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one fd is polled, and the struct lives through the call.
        let ready = unsafe { libc::poll(&mut poll, 1, timeout) };
        let gone = poll.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0;
        match ready {
            -1 => Err(Error::errno_of(&std::io::Error::last_os_error())),
            _ if gone => Err(Error::errno_of(&std::io::Error::from_raw_os_error(libc::EPIPE))),
            ready => Ok(ready > 0),
        }
    }

    /// Takes what happened (`NV_ESC_RM_GET_EVENT_DATA`). What was subscribed to without data leaves
    /// nothing to be taken.
    ///
    /// # Errors
    ///
    /// What the kernel or the resource manager says: `NV_ERR_OPERATING_SYSTEM` where there is nothing.
    pub fn take(&self) -> Result<Event> {
        let mut event = escape::UnixEvent::default();
        let mut params =
            escape::GetEventData { event: ioctl::address(&mut event), more: 0, status: 0 };
        // SAFETY: the driver reads and writes the event, which lives through the call.
        unsafe {
            escape::status_call(self.as_fd(), escape::GET_EVENT_DATA, &mut params, |p| p.status)
        }
        .map_err(|failure| {
            Error::new(failure).call(escape::GET_EVENT_DATA).driver_is(&self.0.root.client.choice)
        })?;
        let escape::UnixEvent { object, notify_index, info32, info16, .. } = event;
        Ok(Event { subscription: object, notify_index, info32, info16, more: params.more != 0 })
    }
}

impl AsFd for OsEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

impl Subscription {
    /// The object that it is.
    pub fn object(&self) -> &Object {
        &self.object
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let number = self.fd.as_raw_fd() as u32;
        let client = self.root.client.handle;
        let mut params = escape::FreeOsEvent { client, device: Handle(0), fd: number, status: 0 };
        // SAFETY: there are no addresses in the parameters. Closing the fd does the same.
        _ = unsafe {
            escape::status_call(self.fd.as_fd(), escape::FREE_OS_EVENT, &mut params, |p| p.status)
        };
    }
}

impl std::fmt::Debug for OsEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OsEvent").field(&self.0.fd).finish()
    }
}
