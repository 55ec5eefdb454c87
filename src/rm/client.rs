//! A client: the node, the driver behind it, and the root of a tree of objects.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::alloc::{AllocRequest, Forms};
use super::error::{Error, ErrorKind, ObjectName, Result};
use super::escape::{self, CallName};
use super::handles::Handles;
use super::object::{Client, Object};
use super::version;
use crate::call::{Accepts, CallKind, Frontend};
use crate::driver::{Choice, Compat};
use crate::ioctl;
use crate::{Handle, P64};

/// The class of a client, the same number in every driver.
const ROOT: (u32, &str) = (0x41, "NV01_ROOT_CLIENT");

/// The cards that the driver can have, `NV_MAX_DEVICES`.
const MOST_CARDS: usize = 32;

/// A node of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeName {
    /// `/dev/nvidiactl`.
    Control,
    /// `/dev/nvidiaN`, by [`Card::minor`].
    Gpu(u32),
}

impl NodeName {
    /// Opens it.
    pub(super) fn open(self) -> Result<OwnedFd> {
        let path = match self {
            NodeName::Control => "/dev/nvidiactl".to_owned(),
            NodeName::Gpu(minor) => format!("/dev/nvidia{minor}"),
        };
        open(&path)
    }
}

pub(crate) fn open(path: &str) -> Result<OwnedFd> {
    let file: io::Result<File> = OpenOptions::new().read(true).write(true).open(path);
    file.map(OwnedFd::from).map_err(|error| Error::new(ErrorKind::Open(path.to_owned(), error)))
}

/// A client of the resource manager: the root of its objects, and as such an [`Object`] itself.
///
/// Dropping it frees it after the last of its objects.
#[derive(Debug)]
pub struct RmClient {
    root: Object,
}

impl RmClient {
    /// Opens `/dev/nvidiactl`, finds out which driver it is of, and makes a client.
    ///
    /// # Errors
    ///
    /// When there is no such node or it may not be opened, the build does not have its driver, or the
    /// resource manager makes no client.
    pub fn open() -> Result<Self> {
        Self::open_with(Compat::Exact)
    }

    /// The same, with a say in which versions will do.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); where two neighbours differ in what the program uses, the error names it.
    pub fn open_with(compat: Compat<'_>) -> Result<Self> {
        let control = NodeName::Control.open()?;
        // SAFETY: `open` has opened that node.
        unsafe { Self::from_fd(control, compat) }
    }

    /// Makes a client on a node that is open: one that another process gave.
    ///
    /// # Safety
    ///
    /// `control` is `/dev/nvidiactl`, opened: another file may take the resource manager's requests for its own, and
    /// write where their arguments have other fields.
    ///
    /// # Errors
    ///
    /// As [`open_with`](Self::open_with).
    pub unsafe fn from_fd(control: OwnedFd, compat: Compat<'_>) -> Result<Self> {
        let version = version::of_node(control.as_fd())?;
        let choice = Choice::new(&version, compat)
            .map_err(|refused| Error::new(ErrorKind::UnknownDriver(refused)))?;
        let forms = forms(&choice)?;
        let request = AllocRequest {
            client: Handle(0),
            parent: Handle(0),
            object: Handle(0),
            class: ROOT.0,
            params: P64::NULL,
            params_size: 0,
            rights: P64::NULL,
        };
        // SAFETY: `request` has neither parameters nor rights, so no address but null, and `forms` was chosen for the
        // driver behind the fd.
        let handle = unsafe { forms.alloc(control.as_fd(), &request) }.map_err(|failure| {
            let call = CallName { name: ROOT.1, kind: CallKind::Class, number: ROOT.0 };
            Error::new(failure).call(call).driver_is(&choice)
        })?;
        let name = ObjectName { handle, class: ROOT.0, class_name: ROOT.1 };
        let client = Client { fd: control, choice, handle, forms, handles: Handles::new() };
        Ok(Self { root: Object::root(Arc::new(client), name) })
    }

    /// The GPUs that the driver knows (`NV_ESC_CARD_INFO`).
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn cards(&self) -> Result<Vec<Card>> {
        let mut cards = [escape::CardInfo::default(); MOST_CARDS];
        // SAFETY: the driver fills as many cards as the size of the request holds (nv.c:2451 of 550.90.07), which
        // is that of the array; no card has an address that it follows.
        let called = unsafe { escape::call(self.control_fd(), escape::CARD_INFO, &mut cards) };
        called.map_err(|error| self.shared().failed(escape::CARD_INFO, &error))?;
        Ok(cards.iter().filter(|card| card.valid != 0).map(Card::of).collect())
    }

    /// Opens the node of a GPU for this client, and with it the GPU: most requests to one need
    /// it to be open.
    ///
    /// # Errors
    ///
    /// When it may not be opened, and what the kernel says.
    pub fn open_gpu(&self, minor: u32) -> Result<OwnedFd> {
        let fd = self.shared().open(NodeName::Gpu(minor))?;
        self.register_fd(fd.as_fd())?;
        Ok(fd)
    }

    /// Says that an fd of another node of the driver belongs to this client (`NV_ESC_REGISTER_FD`), so
    /// that its calls may name the client's objects. It is said once.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn register_fd(&self, fd: BorrowedFd<'_>) -> Result<()> {
        self.shared().register_fd(fd)
    }

    /// Makes an ioctl on `/dev/nvidiactl` that this module has nothing for. Its status is not looked at.
    ///
    /// # Errors
    ///
    /// [`NotInDriver`](ErrorKind::NotInDriver), and what the kernel says.
    ///
    /// # Safety
    ///
    /// As [`ioctl::frontend`]; and objects of this client that it frees are not used any more.
    pub unsafe fn frontend<C, P>(&self, params: &mut P) -> Result<()>
    where
        C: Frontend + Accepts<P>,
    {
        let choice = self.driver();
        if !choice.has::<C>() {
            return Err(Error::new(ErrorKind::NotInDriver).call(C::INFO.into()).driver_is(choice));
        }
        // SAFETY: the driver behind the fd has exactly this call, which was just checked; the addresses in
        // `params` are the caller's promise.
        let called = unsafe { ioctl::frontend::<C, P>(self.control_fd(), params) };
        called.map_err(|error| self.shared().failed(C::INFO.into(), &error))
    }

    /// Frees it now, and returns what the driver replied.
    ///
    /// # Errors
    ///
    /// As [`Object::free`]: while it has objects yet, it is freed after the last of them.
    pub fn free(self) -> Result<()> {
        self.root.free()
    }

    pub(super) fn shared(&self) -> &Arc<Client> {
        self.root.shared()
    }
}

/// How objects are made, in all drivers that the machine's can be alike.
fn forms(choice: &Choice) -> Result<Forms> {
    let own = Forms::of(choice.driver());
    let same = choice.other().is_none_or(|other| Forms::of(other) == own);
    own.filter(|_| same)
        .ok_or_else(|| Error::new(ErrorKind::NotInDriver).call(escape::ALLOC).driver_is(choice))
}

impl Deref for RmClient {
    type Target = Object;

    fn deref(&self) -> &Object {
        &self.root
    }
}

impl Client {
    /// Opens a node of the same driver.
    pub(super) fn open(&self, node: NodeName) -> Result<OwnedFd> {
        node.open().map_err(|error| error.driver_is(&self.choice))
    }

    pub(super) fn register_fd(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let mut params = escape::RegisterFd { control: self.fd.as_raw_fd() };
        // SAFETY: the parameters are one fd, which the driver looks up (escape.c:877 of 550.90.07), and no address.
        let called = unsafe { escape::call(fd, escape::REGISTER_FD, &mut params) };
        called.map_err(|error| self.failed(escape::REGISTER_FD, &error))
    }
}

/// A GPU that the driver knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Card {
    /// What commands call it.
    pub gpu_id: u32,
    /// The number of its node: `/dev/nvidiaN`.
    pub minor: u32,
    /// Where it is on the PCI bus.
    pub pci: Pci,
    /// The interrupt line.
    pub interrupt_line: u16,
    /// Where the CPU sees its registers, and how many bytes of them.
    pub registers: (u64, u64),
    /// Where the CPU sees its memory, and how many bytes of it.
    pub framebuffer: (u64, u64),
}

/// A function of a PCI device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pci {
    /// The domain.
    pub domain: u32,
    /// The bus.
    pub bus: u8,
    /// The slot.
    pub slot: u8,
    /// The function.
    pub function: u8,
    /// The vendor's id.
    pub vendor: u16,
    /// The device's id.
    pub device: u16,
}

impl Card {
    fn of(card: &escape::CardInfo) -> Self {
        let escape::PciInfo { domain, bus, slot, function, vendor, device, .. } = card.pci;
        Self {
            gpu_id: card.gpu_id,
            minor: card.minor_number,
            pci: Pci { domain, bus, slot, function, vendor, device },
            interrupt_line: card.interrupt_line,
            registers: (card.reg_address, card.reg_size),
            framebuffer: (card.fb_address, card.fb_size),
        }
    }
}

impl std::fmt::Display for Pci {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{}", self.domain, self.bus, self.slot, self.function)
    }
}
