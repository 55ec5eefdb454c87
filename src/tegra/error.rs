//! What can go wrong on a Jetson, with the call that it went wrong in.

use std::fmt;
use std::io;
use std::time::Duration;

/// Why something did not work. It names the ioctl, or what else was tried.
#[derive(Debug)]
pub struct Error(Box<Inner>);

/// What kind of thing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A device file could not be opened.
    Open,
    /// The kernel refused a call.
    Call,
    /// The kernel took the call, but could not copy its answer back.
    CopyBack,
    /// The layouts of this kernel are not among those that are known.
    UnknownRelease,
    /// What was asked for cannot be.
    Invalid,
    /// There is no such thing on a Jetson.
    Unsupported,
    /// The GPU did not finish in time.
    Timeout,
    /// The GPU stopped the channel.
    Fault,
}

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    what: String,
    source: Option<io::Error>,
}

/// What this module's functions give.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(super) fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, what: what.into(), source: None }))
    }

    pub(super) fn io(kind: ErrorKind, what: impl Into<String>, source: io::Error) -> Self {
        Self(Box::new(Inner { kind, what: what.into(), source: Some(source) }))
    }

    pub(super) fn invalid(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, what)
    }

    pub(super) fn timeout(after: Duration, notifier: Option<Notification>) -> Self {
        let told = match notifier {
            Some(notification) => format!("; the error notifier says {notification}"),
            None => "; the error notifier is empty".to_owned(),
        };
        Self::new(ErrorKind::Timeout, format!("the GPU did not finish in {after:?}{told}"))
    }

    pub(super) fn fault(notification: Notification) -> Self {
        Self::new(ErrorKind::Fault, format!("the GPU stopped the channel: {notification}"))
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The error number of a call that the kernel refused.
    pub fn errno(&self) -> Option<i32> {
        self.0.source.as_ref()?.raw_os_error()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.what)?;
        match &self.0.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source as _)
    }
}

/// What the driver writes when it stops a channel (`struct nvgpu_notification`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notification {
    /// What happened: `NVGPU_CHANNEL_*`.
    pub info32: u32,
    /// More of it.
    pub info16: u16,
    /// 0xffff when something happened.
    pub status: u16,
}

impl Notification {
    /// The name of what happened.
    pub fn name(self) -> &'static str {
        use super::r36;
        match self.info32 {
            r36::NVGPU_CHANNEL_FIFO_ERROR_IDLE_TIMEOUT => "FIFO_ERROR_IDLE_TIMEOUT",
            r36::NVGPU_CHANNEL_GR_ERROR_SW_METHOD => "GR_ERROR_SW_METHOD",
            r36::NVGPU_CHANNEL_GR_EXCEPTION => "GR_EXCEPTION",
            r36::NVGPU_CHANNEL_GR_SEMAPHORE_TIMEOUT => "GR_SEMAPHORE_TIMEOUT",
            r36::NVGPU_CHANNEL_GR_ILLEGAL_NOTIFY => "GR_ILLEGAL_NOTIFY",
            r36::NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT => "FIFO_ERROR_MMU_ERR_FLT",
            r36::NVGPU_CHANNEL_PBDMA_ERROR => "PBDMA_ERROR",
            r36::NVGPU_CHANNEL_FECS_ERR_UNIMP_FIRMWARE_METHOD => "FECS_ERR_UNIMP_FIRMWARE_METHOD",
            r36::NVGPU_CHANNEL_RESETCHANNEL_VERIF_ERROR => "RESETCHANNEL_VERIF_ERROR",
            r36::NVGPU_CHANNEL_PBDMA_PUSHBUFFER_CRC_MISMATCH => "PBDMA_PUSHBUFFER_CRC_MISMATCH",
            _ => "an error of no known name",
        }
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {:#x})", self.name(), self.info32, self.info16)
    }
}
