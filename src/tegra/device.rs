//! A GPU: the nodes, what it is, and the doorbell.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::error::{Error, ErrorKind, Result};
use super::memory::Mapping;
use super::release::{self, Characteristics, Release};

/// The nodes of the GPU's control, the newer name first.
const CTRL: [&str; 2] = ["/dev/nvgpu/igpu0/ctrl", "/dev/nvhost-ctrl-gpu"];
const NVMAP: &str = "/dev/nvmap";
const FENCE: &str = "/dev/host1x-fence";

/// The registers that a program may reach, and the doorbell among them.
const USERMODE_SIZE: u64 = 0x1_0000;
const DOORBELL: usize = 0x90;

/// A GPU of a Jetson, open. Copies are the same GPU.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    ctrl: OwnedFd,
    nvmap: OwnedFd,
    fence: OnceLock<Option<OwnedFd>>,
    usermode: OnceLock<Mapping>,
    /// A file that is open once can be mapped once: one thread at a time tries.
    mapping: Mutex<()>,
    release: Release,
    characteristics: Characteristics,
}

impl Device {
    /// Opens the GPU and finds out of which release its driver is.
    ///
    /// # Errors
    ///
    /// When there is no such node, it may not be opened, or the release is not known.
    pub fn open() -> Result<Self> {
        let nvmap = open(&[NVMAP])?;
        let ctrl = open(&CTRL)?;
        let (release, characteristics) = release::read(ctrl.as_fd())?;
        Ok(Self(Arc::new(Inner {
            ctrl,
            nvmap,
            fence: OnceLock::new(),
            usermode: OnceLock::new(),
            mapping: Mutex::new(()),
            release,
            characteristics,
        })))
    }

    /// Which releases its driver can be of.
    pub fn release(&self) -> Release {
        self.0.release
    }

    /// What it is.
    pub fn characteristics(&self) -> &Characteristics {
        &self.0.characteristics
    }

    pub(super) fn ctrl(&self) -> BorrowedFd<'_> {
        self.0.ctrl.as_fd()
    }

    pub(super) fn nvmap(&self) -> BorrowedFd<'_> {
        self.0.nvmap.as_fd()
    }

    /// The node of fences, where the release has one.
    pub(super) fn fence(&self) -> Option<BorrowedFd<'_>> {
        let fence = self.0.fence.get_or_init(|| open(&[FENCE]).ok());
        fence.as_ref().map(OwnedFd::as_fd)
    }

    /// Tells the GPU that a channel has work. Everything written before is visible to it then.
    pub(super) fn ring(&self, token: u32) {
        if let Some(usermode) = self.0.usermode.get() {
            before_mmio();
            usermode.store(DOORBELL, token);
        }
    }

    /// Makes the doorbell reachable.
    pub(super) fn map_usermode(&self) -> Result<()> {
        // Nothing is left half done when a thread that holds this panics.
        let _alone = self.0.mapping.lock().unwrap_or_else(PoisonError::into_inner);
        if self.0.usermode.get().is_none() {
            let mapping = Mapping::new(self.ctrl(), USERMODE_SIZE, None)?;
            _ = self.0.usermode.set(mapping);
        }
        Ok(())
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chip = self.0.characteristics.chip();
        f.debug_struct("Device").field("chip", &chip).field("release", &self.0.release).finish()
    }
}

/// Opens the first of some nodes that is there.
fn open(paths: &[&str]) -> Result<OwnedFd> {
    let path = paths.iter().find(|path| Path::new(path).exists()).or(paths.first());
    let path = path.copied().unwrap_or_default();
    let file: std::io::Result<File> = OpenOptions::new().read(true).write(true).open(path);
    file.map(OwnedFd::from)
        .map_err(|error| Error::io(ErrorKind::Open, format!("cannot open {path}"), error))
}

/// Orders what is read from memory after a word that the GPU wrote last.
#[inline]
pub(super) fn after_wait() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: it only keeps later reads from being made earlier.
    unsafe {
        std::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "aarch64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
}

/// Orders writes to memory before a write to a register.
#[inline]
pub(super) fn before_mmio() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: it only waits for writes to be seen.
    unsafe {
        std::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it only waits for writes to be seen.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}
