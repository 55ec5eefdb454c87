//! Events: what the driver reports to a file that waits.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client::{NodeName, RmClient};
use super::error::{Error, ErrorKind, Result};
use super::escape;
use super::object::{Node, Object};
use crate::call::CallKind;
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

/// Something that the driver reports.
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
    /// Opens a node for events. Those of a GPU arrive on its own node or on that of all.
    ///
    /// # Errors
    ///
    /// When the node may not be opened, and what the kernel or the resource manager says.
    pub fn os_event(&self, node: NodeName) -> Result<OsEvent> {
        let fd = self.shared().open(node)?;
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
        let call = escape::CallName { name: OS_EVENT.1, kind: CallKind::Class, number: OS_EVENT.0 };
        let object = object.map_err(|kind| source.failed(call, kind))?;
        Ok(Subscription { object, _event: self.clone() })
    }

    /// Waits until something happened; `false` where nothing did in that time.
    ///
    /// # Errors
    ///
    /// [`System`](ErrorKind::System) with what the kernel says; a GPU that is gone is `EPIPE`.
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        let error = |error| {
            Error::new(ErrorKind::System("poll", error)).driver_is(&self.0.root.client.choice)
        };
        becomes_readable(self.as_fd(), timeout).map_err(error)
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

/// Waits for a file, on after signals; `false` where the time is over.
fn becomes_readable(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
    let deadline = Instant::now().checked_add(timeout);
    loop {
        let left =
            deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
        let events = libc::POLLIN | libc::POLLPRI;
        let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
        // SAFETY: one fd is polled, and the struct lives through the call.
        match unsafe { libc::poll(&mut poll, 1, milliseconds(left)) } {
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            0 if left.is_zero() => return Ok(false),
            0 => {}
            _ if poll.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0 => {
                return Err(io::Error::from_raw_os_error(libc::EPIPE));
            }
            _ => return Ok(true),
        }
    }
}

/// As `poll` takes it: never less, or it would be asked again and again for the rest of one.
fn milliseconds(time: Duration) -> libc::c_int {
    i32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::os::unix::thread::JoinHandleExt as _;
    use std::thread;

    use super::*;

    #[test]
    fn parts_of_a_millisecond_are_waited_for() {
        let times = [0, 1, 1_000_000, 1_000_001].map(Duration::from_nanos).map(milliseconds);
        assert_eq!(times, [0, 1, 1, 2]);
        assert_eq!(milliseconds(Duration::MAX), i32::MAX);
    }

    #[test]
    fn signals_do_not_end_the_wait() -> io::Result<()> {
        const TIME: Duration = Duration::from_millis(100);
        extern "C" fn nothing(_: libc::c_int) {}
        let handler = nothing as extern "C" fn(libc::c_int);
        // SAFETY: the handler does nothing, and nobody else here uses this signal.
        unsafe { libc::signal(libc::SIGUSR2, handler as libc::sighandler_t) };
        let (reader, _writer) = UnixStream::pair()?;
        let waits = thread::spawn(move || {
            let start = Instant::now();
            (becomes_readable(reader.as_fd(), TIME).ok(), start.elapsed())
        });
        while !waits.is_finished() {
            // SAFETY: the thread is joined below, so its id is good until then.
            unsafe { libc::pthread_kill(waits.as_pthread_t(), libc::SIGUSR2) };
            thread::sleep(Duration::from_millis(10));
        }
        let (readable, time) = waits.join().unwrap_or_default();
        assert_eq!(readable, Some(false));
        assert!(time >= TIME, "{time:?}");
        Ok(())
    }

    #[test]
    fn a_file_whose_other_end_is_gone_is_an_error() -> io::Result<()> {
        let (reader, writer) = UnixStream::pair()?;
        drop(writer);
        let waited = becomes_readable(reader.as_fd(), Duration::MAX);
        assert_eq!(waited.map_err(|error| error.raw_os_error()), Err(Some(libc::EPIPE)));
        Ok(())
    }
}
