//! Calls of the driver as types: each carries its number and the type of its parameters.

use std::fmt;

use crate::driver::{AnyDriver, Table};

/// What is known of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// The name of its number in the driver's headers.
    pub name: &'static str,
    /// The table it is in.
    pub kind: CallKind,
    /// Its number: what [`CallKind`] says it is.
    pub number: u32,
    /// The driver's names of its parameter types; the size of the call says which is meant.
    pub params: &'static [&'static str],
    /// The size of each of `params`, in their order.
    pub sizes: &'static [u32],
    /// The parameters are an array that fills the size of the call.
    pub array: bool,
    /// Whether `fds`, `handles` and `pointers` are all that the parameters have of these. Without it
    /// they are empty because nobody has looked: feature `full` brings calls that no spec names.
    pub roles_known: bool,
    /// The fields that hold file descriptors.
    pub fds: &'static [FdRole],
    /// The fields that name objects.
    pub handles: &'static [HandleRole],
    /// The fields that hold addresses in the caller's memory.
    pub pointers: &'static [Pointer],
    /// Capability groups, as gVisor names them.
    pub caps: &'static [&'static str],
    /// What the ioctl is made on, as the spec names it; empty for other calls. Two nodes can know one
    /// request by different names.
    pub node: &'static str,
}

impl Info {
    /// Whether the parameters can be copied as they are: neither fds nor pointers, as far as it is
    /// known.
    pub const fn is_simple(&self) -> bool {
        self.roles_known && self.fds.is_empty() && self.pointers.is_empty()
    }

    /// The request, where the call's number is one.
    pub const fn request(&self) -> Option<Request> {
        match self.kind {
            CallKind::Ioctl => Some(Request(self.number)),
            _ => None,
        }
    }
}

/// An ioctl's request as Linux packs it on x86-64 and arm64 (include/uapi/asm-generic/ioctl.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request(pub u32);

impl Request {
    /// The driver's letter, bits 8 to 15.
    pub const fn magic(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// The command's number, bits 0 to 7.
    pub const fn nr(self) -> u8 {
        self.0 as u8
    }

    /// Size of the argument, bits 16 to 29.
    pub const fn size(self) -> u16 {
        (self.0 >> 16 & 0x3fff) as u16
    }

    /// Whether the driver reads the argument, bit 30.
    pub const fn is_read_by_driver(self) -> bool {
        self.0 & 1 << 30 != 0
    }

    /// Whether the driver writes the argument, bit 31.
    pub const fn is_written_by_driver(self) -> bool {
        self.0 & 1 << 31 != 0
    }

    /// Which way the argument goes; `None` where it is passed by value, or there is none.
    pub const fn direction(self) -> Option<Direction> {
        match (self.is_read_by_driver(), self.is_written_by_driver()) {
            (true, true) => Some(Direction::InOut),
            (true, false) => Some(Direction::In),
            (false, true) => Some(Direction::Out),
            (false, false) => None,
        }
    }
}

/// Which table of the driver a call is in, and so what its number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// An ioctl of `/dev/nvidiactl` or `/dev/nvidia*`: the ioctl's `nr`.
    Frontend,
    /// An ioctl of `/dev/nvidia-uvm`: the whole request.
    Uvm,
    /// `cmd` of `NV_ESC_RM_CONTROL`.
    Control,
    /// `hClass` of `NV_ESC_RM_ALLOC`.
    Class,
    /// An ioctl of another driver: the whole request.
    Ioctl,
}

/// What a driver without a resource manager has in the place of a class or a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Substitute {
    /// The x86 driver's name of it.
    pub name: &'static str,
    /// Its number.
    pub number: u32,
    /// What is done in its place.
    pub action: SubstituteAction,
}

/// What is done in the place of a class or a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubstituteAction {
    /// In the place of allocating a class.
    Alloc(AllocAction),
    /// In the place of a control command.
    Control(ControlAction),
}

/// What is done in the place of allocating a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocAction {
    /// Nothing: it holds what is below it.
    Container,
    /// An address space.
    AddressSpace,
    /// A channel group.
    Group,
    /// A subcontext of a group.
    Subcontext,
    /// A channel.
    Channel,
    /// Compute on a channel.
    Compute,
    /// Copies on a channel.
    Copy,
}

/// What is done in the place of a control command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlAction {
    /// Nothing.
    Nothing,
    /// The GPU's clock is raised, or let go.
    Boost,
    /// The work submit token of a channel.
    Token,
    /// Figures of the graphics engine.
    GrInfo,
    /// The list of classes.
    ClassList,
    /// The GPU's UUID.
    Uuid,
}

/// A field that a role names: its path, and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleField {
    /// `a.b`, `a[].b`; `.` where the parameters, or the element, are no record.
    pub path: &'static str,
    /// Where it is in each of the parameter types ([`Info::params`]), in their order; `None` in one that
    /// lacks it. In an element behind a pointer there is one type.
    pub places: &'static [Option<RolePlace>],
}

/// Where a field is in a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RolePlace {
    /// Its first byte; of an array that of the first element.
    pub offset: u32,
    /// Bytes of it, or of one element.
    pub size: u32,
    /// The arrays that it is in, the outermost first.
    pub arrays: &'static [RoleArray],
    /// Whether its type is a pointer.
    pub is_pointer: bool,
}

/// An array on the way to a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleArray {
    /// Bytes from one element to the next.
    pub stride: u32,
    /// Elements.
    pub count: u32,
}

impl fmt::Display for RoleField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path)
    }
}

/// A number that is computed from fields: a sum of products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expression {
    /// As the spec has it, with constants as numbers: `count * size + 1`.
    pub text: &'static str,
    /// What is added, each the product of its factors.
    pub terms: &'static [&'static [Factor]],
}

/// A factor of an [`Expression`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Factor {
    /// A number.
    Number(u64),
    /// The value of a field.
    Field(RoleField),
}

/// A field that holds a file descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FdRole {
    /// The field.
    pub field: RoleField,
    /// Where the call puts a new file descriptor there: the node that it is of.
    pub opens: Option<&'static str>,
}

/// A field that names an object, by a handle of the caller's client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandleRole {
    /// The field.
    pub field: RoleField,
    /// What it names.
    pub means: HandleMeaning,
    /// It is in a union, and names something under this condition alone.
    pub when: Option<When>,
}

/// What a handle names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HandleMeaning {
    /// A client, the root of a tree of objects.
    Client,
    /// The object that another is, or will be, below.
    Parent,
    /// An object that is there.
    Object,
    /// An object that the call makes. With 0 the driver chooses the name, which comes back.
    New,
    /// A class: a number that is the same for every client.
    Class,
}

/// A field has a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct When {
    /// The field.
    pub field: RoleField,
    /// The value.
    pub value: u64,
}

/// A pointer leads to the parameters of another call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InnerCall {
    /// The table that the call is in.
    pub kind: CallKind,
    /// Its number.
    pub number: Expression,
    /// Flags of which `NVOS54_FLAGS_FINN_SERIALIZED` says that the parameters are a FINN message.
    pub flags: Option<RoleField>,
}

/// A field that holds an address in the caller's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer {
    /// The field.
    pub field: RoleField,
    /// The length: how many elements of `unit` bytes.
    pub len: Option<Expression>,
    /// The same for how much the driver has filled when it is back, where `len` is but a limit.
    pub filled: Option<Expression>,
    /// The driver's name of the element type; without one the length counts bytes.
    pub of: Option<&'static str>,
    /// Bytes of an element.
    pub unit: u32,
    /// What is there are the parameters of another call. Those of a class are as long as the driver knows
    /// them to be, whatever `len` says.
    pub call: Option<InnerCall>,
    /// The fields of an element that hold file descriptors.
    pub fds: &'static [FdRole],
    /// The fields of an element that name objects.
    pub handles: &'static [HandleRole],
    /// The fields of an element that hold addresses in their turn.
    pub pointers: &'static [Pointer],
    /// Which way the data goes; of what is `opaque`, the address itself: [`Direction::Out`] where the driver
    /// does not look at what it is given and puts one there.
    pub direction: Option<Direction>,
    /// What is there is not carried: the driver gives the address back, keeps it, or may pin or read what
    /// is there in the process that makes the call.
    pub opaque: bool,
    /// It is in a union, and a pointer under this condition alone.
    pub when: Option<When>,
}

/// Which way the data behind a pointer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The driver reads it.
    In,
    /// The driver writes it.
    Out,
    /// Both.
    InOut,
}

/// Which drivers of a build have something: one bit for each interface that differs from the others.
#[derive(Clone, Copy)]
pub struct Views {
    /// The table whose interfaces the bits count: bits of another crate's table mean other drivers.
    table: &'static Table,
    words: &'static [u64],
    all: bool,
}

impl Views {
    /// Called by emitted code alone.
    #[doc(hidden)]
    pub const fn new(table: &'static Table, words: &'static [u64], all: bool) -> Self {
        Self { table, words, all }
    }

    /// Whether every driver of the build has it. It is known when the program is compiled, so what
    /// follows from it costs nothing.
    pub const fn are_all(self) -> bool {
        self.all
    }

    /// Whether a driver has it. A driver of another crate's table never has.
    pub fn contain(self, driver: &AnyDriver) -> bool {
        let view = driver.view() as usize;
        let word = view / 64;
        self.are_of(driver.table())
            && word < self.words.len()
            && self.words[word] >> (view % 64) & 1 != 0
    }

    /// Whether these are drivers of a table.
    #[inline]
    pub(crate) fn are_of(self, table: &'static Table) -> bool {
        std::ptr::eq(self.table, table)
    }
}

impl PartialEq for Views {
    fn eq(&self, other: &Self) -> bool {
        other.are_of(self.table) && (self.words, self.all) == (other.words, other.all)
    }
}

impl Eq for Views {}

impl fmt::Debug for Views {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Views").field("words", &self.words).field("all", &self.all).finish()
    }
}

// The traits below are unsafe: safe functions (`Object::alloc`, `Object::control`, `Uvm::call`) hand
// parameters to the driver on no other ground than them. They are not sealed, because another crate
// emits calls of its own (`nvabi_pipeline::build::Build`).

/// A call of the driver. The emitted code implements it.
///
/// # Safety
///
/// In each driver of [`VIEWS`](Self::VIEWS):
///
/// - The call in the table [`Info::kind`] with the number [`Info::number`] takes `Params`: through
///   the address of its parameters the driver reads and writes `size_of::<Params>()` bytes at most, or
///   whole `Params` one after the other where [`Info::array`] is set. Without parameters `Params` is
///   `()`.
/// - What the driver writes there is a value of `Params`.
/// - Where [`Info::roles_known`] is set, `fds`, `handles` and `pointers` of [`INFO`](Self::INFO) are
///   all that the parameters have of these.
///
/// `VIEWS` counts the drivers of the table that it was made with.
pub unsafe trait Call {
    /// Its parameters; where it accepts several types, the newest form. `()` when it has none.
    type Params;
    /// The drivers that have exactly this call: its number, its roles, and parameters of this layout.
    const VIEWS: Views;
    /// All that is known of it.
    const INFO: &'static Info;
}

/// The call accepts parameters of type `P`.
///
/// # Safety
///
/// `P` keeps what [`Call`] promises of `Params`, in a call whose size is that of `P`.
pub unsafe trait Accepts<P>: Call {
    /// Which of [`Info::params`] it is.
    const FORM: usize = 0;
}

/// The driver follows no pointer in the parameters, in this call or later: making it harms no memory of
/// the program, whatever they are. An address that only comes back is none that it follows.
///
/// The spec of a call says so. Of a call that no spec names it is certain where no field is 64 bits
/// wide or wider, in nested records, arrays and unions either: the driver's addresses are.
///
/// # Safety
///
/// Whatever bytes the parameters hold, no driver of [`Call::VIEWS`] reads or writes memory of the
/// program at an address that it takes from them, during the call or after it.
#[diagnostic::on_unimplemented(
    message = "the parameters of `{Self}` hold pointers that the driver follows, or may hold some",
    label = "takes pointers",
    note = "use the function of the same name that ends with `_with_pointers`, and see to them"
)]
pub unsafe trait PointerFree: Call {}

/// An ioctl of `/dev/nvidiactl` or `/dev/nvidia*`.
///
/// # Safety
///
/// [`Info::kind`] is [`CallKind::Frontend`], and `NR` is [`Info::number`].
pub unsafe trait Frontend: Call {
    /// The ioctl's `nr`; its type is `NV_IOCTL_MAGIC`.
    const NR: u32;
}

/// An ioctl of `/dev/nvidia-uvm`.
///
/// # Safety
///
/// [`Info::kind`] is [`CallKind::Uvm`], and `REQUEST` is [`Info::number`].
pub unsafe trait Uvm: Call {
    /// The whole request: it carries neither direction nor size.
    const REQUEST: u32;
}

/// A command of `NV_ESC_RM_CONTROL`.
///
/// # Safety
///
/// [`Info::kind`] is [`CallKind::Control`], and `CMD` is [`Info::number`].
pub unsafe trait Control: Call {
    /// The command's number.
    const CMD: u32;
}

/// A class of `NV_ESC_RM_ALLOC`.
///
/// # Safety
///
/// [`Info::kind`] is [`CallKind::Class`], and `CLASS` is [`Info::number`].
pub unsafe trait Class: Call {
    /// The class's number.
    const CLASS: u32;
}

/// An ioctl of another driver.
///
/// # Safety
///
/// [`Info::kind`] is [`CallKind::Ioctl`], and `REQUEST` is [`Info::number`].
pub unsafe trait Ioctl: Call {
    /// The whole request.
    const REQUEST: u32;
}
