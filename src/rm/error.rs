//! What can go wrong with a driver, with the call, the object and the driver that it went wrong with.

use std::fmt;
use std::io;

use super::escape::CallName;
use crate::call::{CallKind, Info};
use crate::driver::{Choice, Refused};
use crate::ioctl::Failure;
use crate::uvm::UvmObject;
use crate::{Handle, NvStatus};

/// Why something did not work.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    call: Option<CallName>,
    object: Option<ObjectName>,
    uvm_object: Option<UvmObject>,
    driver: Option<Choice>,
}

/// What went wrong.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A node could not be opened: its path, and why.
    Open(String, io::Error),
    /// The kernel refused a call: its error number. The resource manager has not seen it.
    Errno(i32),
    /// The kernel refused a system call that is not one of the driver's, such as `mmap`: its name, and
    /// why.
    System(&'static str, io::Error),
    /// The resource manager refused a call.
    Status(NvStatus),
    /// The machine's driver does not have this call, or has another of this name; nothing was asked
    /// of it.
    NotInDriver,
    /// No driver of the build stands for the machine's.
    UnknownDriver(Refused),
    /// The node does not say what version it is.
    NoVersion,
    /// It still has children or mappings; it is freed after the last of them.
    InUse,
    /// What was asked for cannot be.
    Invalid(&'static str),
}

/// An object of the resource manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectName {
    /// Its handle.
    pub handle: Handle,
    /// The number of its class.
    pub class: u32,
    /// The name of its class.
    pub class_name: &'static str,
}

/// What this module's functions give.
pub type Result<T> = std::result::Result<T, Error>;

impl From<&Info> for CallName {
    fn from(info: &Info) -> Self {
        Self { name: info.name, kind: info.kind, number: info.number }
    }
}

impl From<Failure> for ErrorKind {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Errno(number) => ErrorKind::Errno(number),
            Failure::Status(status) => ErrorKind::Status(status),
        }
    }
}

impl Error {
    #[cold]
    pub(crate) fn new(kind: impl Into<ErrorKind>) -> Self {
        let kind = kind.into();
        Self(Box::new(Inner { kind, call: None, object: None, uvm_object: None, driver: None }))
    }

    pub(crate) fn call(mut self, call: CallName) -> Self {
        self.0.call = Some(call);
        self
    }

    pub(crate) fn object(mut self, object: ObjectName) -> Self {
        self.0.object = Some(object);
        self
    }

    pub(crate) fn uvm(mut self, object: Option<UvmObject>) -> Self {
        self.0.uvm_object = object;
        self
    }

    pub(crate) fn driver_is(mut self, driver: &Choice) -> Self {
        self.0.driver = Some(driver.clone());
        self
    }

    pub(crate) fn errno_of(error: &io::Error) -> Self {
        Self::new(ErrorKind::Errno(error.raw_os_error().unwrap_or_default()))
    }

    /// What went wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The resource manager's status, where it refused the call.
    pub fn status(&self) -> Option<NvStatus> {
        match self.0.kind {
            ErrorKind::Status(status) => Some(status),
            _ => None,
        }
    }

    /// The kernel's error number, where it refused the call, the node or another system call.
    pub fn errno(&self) -> Option<i32> {
        match &self.0.kind {
            ErrorKind::Errno(number) => Some(*number),
            ErrorKind::Open(_, error) | ErrorKind::System(_, error) => error.raw_os_error(),
            _ => None,
        }
    }

    /// The call that it went wrong in.
    pub fn call_name(&self) -> Option<CallName> {
        self.0.call
    }

    /// The object that it was made on; of an allocation, the parent.
    pub fn object_name(&self) -> Option<ObjectName> {
        self.0.object
    }

    /// What a UVM call was about.
    pub fn uvm_object(&self) -> Option<UvmObject> {
        self.0.uvm_object
    }

    /// The machine's driver.
    pub fn driver(&self) -> Option<&Choice> {
        self.0.driver.as_ref()
    }
}

impl fmt::Display for CallName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            CallKind::Frontend => "ioctl",
            CallKind::Uvm => "UVM ioctl",
            CallKind::Control => "command",
            CallKind::Class => "class",
            CallKind::Ioctl => "request",
        };
        write!(f, "{} ({kind} {:#x})", self.name, self.number)
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.handle, self.class_name)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, call, object, uvm_object, driver } = &*self.0;
        if let Some(call) = call {
            call.fmt(f)?;
        }
        if let Some(object) = object {
            let allocates = call.is_some_and(|call| call.kind == CallKind::Class);
            let before = if call.is_none() {
                ""
            } else if allocates {
                " below "
            } else {
                " on "
            };
            write!(f, "{before}{object}")?;
        }
        if let Some(object) = uvm_object {
            write!(f, " on {object}")?;
        }
        if call.is_some() || object.is_some() {
            f.write_str(": ")?;
        }
        match kind {
            ErrorKind::Open(path, error) => write!(f, "cannot open {path}: {error}")?,
            ErrorKind::Errno(number) => io::Error::from_raw_os_error(*number).fmt(f)?,
            ErrorKind::System(call, error) => write!(f, "{call}: {error}")?,
            ErrorKind::Status(status) => status.named_in(driver.as_ref()).fmt(f)?,
            ErrorKind::NotInDriver => f.write_str("the driver has no such call")?,
            ErrorKind::UnknownDriver(refused) => refused.fmt(f)?,
            ErrorKind::NoVersion => f.write_str("the node does not say which version it is")?,
            ErrorKind::InUse => f.write_str("it has children or mappings yet")?,
            ErrorKind::Invalid(why) => f.write_str(why)?,
        }
        match driver {
            Some(driver) => write!(f, " (driver {})", driver.version()),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.kind {
            ErrorKind::Open(_, error) | ErrorKind::System(_, error) => Some(error),
            ErrorKind::UnknownDriver(refused) => Some(refused),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_tells_the_call_and_the_object() {
        let call =
            CallName { name: "NV0080_CTRL_CMD_X", kind: CallKind::Control, number: 0x80_0201 };
        let object = ObjectName { handle: Handle(0x10), class: 0x80, class_name: "NV01_DEVICE_0" };
        let error = Error::new(ErrorKind::Errno(libc::EINVAL)).call(call).object(object);
        assert_eq!(
            error.to_string(),
            "NV0080_CTRL_CMD_X (command 0x800201) on 0x10 (NV01_DEVICE_0): \
             Invalid argument (os error 22)"
        );
        let call = CallName { name: "NV20_SUBDEVICE_0", kind: CallKind::Class, number: 0x2080 };
        let error = Error::new(ErrorKind::NotInDriver).call(call).object(object);
        let text = "NV20_SUBDEVICE_0 (class 0x2080) below 0x10 (NV01_DEVICE_0): the driver has no such call";
        assert_eq!(error.to_string(), text);
        assert_eq!((error.errno(), error.status()), (None, None));
    }

    #[test]
    fn a_system_call_is_not_told_as_one_of_the_driver() {
        let object = ObjectName { handle: Handle(0x10), class: 0x3e, class_name: "M" };
        let denied = io::Error::from_raw_os_error(libc::EPERM);
        let error = Error::new(ErrorKind::System("mmap", denied)).object(object);
        assert_eq!(error.to_string(), "0x10 (M): mmap: Operation not permitted (os error 1)");
        assert_eq!((error.errno(), error.call_name()), (Some(libc::EPERM), None));
    }
}
