//! A client's side: system calls, and structs in whatever layout the driver has that it finds.

use std::ffi::CString;
use std::sync::atomic::{AtomicU32, Ordering};

use nvabi::check::{Layout, Type};
use nvabi::driver::AnyDriver;

pub(crate) type Fd = i32;

/// A rule: its name, and a program.
pub(crate) type Rule = (&'static str, fn());

/// Rules, and a list of them.
#[macro_export]
macro_rules! rules {
    ($($name:ident $body:block)*) => {
        pub(crate) const RULES: &[$crate::client::Rule] = &[$((stringify!($name), $name)),*];
        $(fn $name() $body)*
    };
}

/// Statuses, by the driver's names.
pub(crate) mod status {
    pub(crate) const OK: u32 = 0;
    pub(crate) const GPU_UUID_NOT_FOUND: u32 = 0x12;
    pub(crate) const ILLEGAL_ACTION: u32 = 0x16;
    pub(crate) const IN_USE: u32 = 0x17;
    pub(crate) const INSERT_DUPLICATE_NAME: u32 = 0x19;
    pub(crate) const INSUFFICIENT_RESOURCES: u32 = 0x1a;
    pub(crate) const RESOURCE_LOST: u32 = 0x6e;
    pub(crate) const INSUFFICIENT_PERMISSIONS: u32 = 0x1b;
    pub(crate) const INVALID_ADDRESS: u32 = 0x1e;
    pub(crate) const INVALID_ARGUMENT: u32 = 0x1f;
    pub(crate) const INVALID_BASE: u32 = 0x20;
    pub(crate) const INVALID_CHANNEL: u32 = 0x21;
    pub(crate) const INVALID_CLASS: u32 = 0x22;
    pub(crate) const INVALID_CLIENT: u32 = 0x23;
    pub(crate) const INVALID_DEVICE: u32 = 0x26;
    pub(crate) const GENERIC: u32 = 0xffff;
    pub(crate) const INVALID_EVENT: u32 = 0x28;
    pub(crate) const INVALID_FLAGS: u32 = 0x29;
    pub(crate) const INVALID_LIMIT: u32 = 0x2e;
    pub(crate) const INVALID_OBJECT: u32 = 0x31;
    pub(crate) const INVALID_OBJECT_HANDLE: u32 = 0x33;
    pub(crate) const INVALID_OBJECT_PARENT: u32 = 0x36;
    pub(crate) const INVALID_OFFSET: u32 = 0x37;
    pub(crate) const INVALID_OWNER: u32 = 0x39;
    pub(crate) const INVALID_PARAM_STRUCT: u32 = 0x3a;
    pub(crate) const INVALID_PARAMETER: u32 = 0x3b;
    pub(crate) const INVALID_STATE: u32 = 0x40;
    pub(crate) const NO_MEMORY: u32 = 0x51;
    pub(crate) const NOT_SUPPORTED: u32 = 0x56;
    pub(crate) const OBJECT_NOT_FOUND: u32 = 0x57;
    pub(crate) const OPERATING_SYSTEM: u32 = 0x59;
    pub(crate) const OUT_OF_RANGE: u32 = 0x5b;
    pub(crate) const STATE_IN_USE: u32 = 0x63;
    pub(crate) const UVM_ADDRESS_IN_USE: u32 = 0x68;
    pub(crate) const WARN_NOTHING_TO_DO: u32 = 0x1_0006;
}

/// Classes.
/// A folder of this process's own. One that had its number may have left one.
pub(crate) fn scratch(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("nvabi-{name}-{}", std::process::id()));
    if folder.exists() {
        std::fs::remove_dir_all(&folder).unwrap();
    }
    std::fs::create_dir(&folder).unwrap();
    folder
}

pub(crate) const ROOT: u32 = 0x41;
pub(crate) const DEVICE: u32 = 0x80;
pub(crate) const SUBDEVICE: u32 = 0x2080;
pub(crate) const SYSTEM_MEMORY: u32 = 0x3e;
pub(crate) const VIDEO_MEMORY: u32 = 0x40;
pub(crate) const OS_EVENT: u32 = 0x79;
pub(crate) const CALLBACK_EVENT: u32 = 0x78;

/// The driver that this machine says it has.
pub(crate) fn driver() -> &'static AnyDriver {
    let version = std::fs::read_to_string("/sys/module/nvidia/version").unwrap();
    AnyDriver::for_version(&version).unwrap()
}

/// Whether it is at least this version.
pub(crate) fn is_since(version: &[u32]) -> bool {
    let ours: Vec<u32> = driver().tag().split('.').map(|part| part.parse().unwrap()).collect();
    ours.as_slice() >= version
}

/// A struct of the driver: its bytes, by the names of its fields.
#[derive(Clone)]
pub(crate) struct Struct {
    pub(crate) layout: &'static Layout,
    pub(crate) bytes: Vec<u8>,
}

impl Struct {
    pub(crate) fn new(name: &str) -> Self {
        let layout = driver().layout(name).unwrap_or_else(|| panic!("no {name}"));
        Self { layout, bytes: vec![0; layout.size as usize] }
    }

    pub(crate) fn with(mut self, path: &str, value: u64) -> Self {
        self.set(path, value);
        self
    }

    pub(crate) fn set(&mut self, path: &str, value: u64) {
        let (at, size) = self.place(path);
        self.bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
    }

    pub(crate) fn get(&self, path: &str) -> u64 {
        let (at, size) = self.place(path);
        let mut word = [0; 8];
        word[..size].copy_from_slice(&self.bytes[at..at + size]);
        u64::from_le_bytes(word)
    }

    /// Whether this driver has a field.
    pub(crate) fn has(&self, path: &str) -> bool {
        place(self.layout, path).is_some()
    }

    /// The bytes of a field.
    pub(crate) fn field(&self, path: &str) -> &[u8] {
        let (at, size) = place(self.layout, path).unwrap_or_else(|| panic!("no {path}"));
        &self.bytes[at..at + size]
    }

    /// The text of a field, up to its zero.
    pub(crate) fn text(&self, path: &str) -> String {
        let text = self.field(path).split(|byte| *byte == 0).next().unwrap();
        String::from_utf8(text.to_vec()).unwrap()
    }

    pub(crate) fn put(&mut self, path: &str, bytes: &[u8]) {
        let (at, _) = place(self.layout, path).unwrap_or_else(|| panic!("no {path}"));
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn place(&self, path: &str) -> (usize, usize) {
        let found = place(self.layout, path);
        found.filter(|(_, size)| *size <= 8).unwrap_or_else(|| {
            panic!("{} of {} has no number {path}", self.layout.name, driver().tag())
        })
    }

    pub(crate) fn address(&mut self) -> u64 {
        self.bytes.as_mut_ptr() as u64
    }
}

fn place(layout: &Layout, path: &str) -> Option<(usize, usize)> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(a, b)| (a, Some(b)));
    let (name, index) = match first.strip_suffix(']').and_then(|it| it.split_once('[')) {
        Some((name, index)) => (name, Some(index.parse::<usize>().ok()?)),
        None => (first, None),
    };
    let field = layout.fields.iter().find(|field| field.name == name)?;
    let mut at = field.offset as usize;
    let mut ty = &field.ty;
    if let (Some(index), Type::Array(element, _)) = (index, ty) {
        at += index * element.size() as usize;
        ty = element;
    }
    match (rest, ty) {
        (Some(rest), Type::Record(inner)) => {
            let (inside, size) = place(inner, rest)?;
            Some((at + inside, size))
        }
        (Some(_), _) => None,
        (None, ty) => Some((at, ty.size() as usize)),
    }
}

/// Opens a file as a program would.
pub(crate) fn open(path: &str) -> Result<Fd, i32> {
    let path = CString::new(path).unwrap();
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 { Err(errno()) } else { Ok(fd) }
}

pub(crate) fn control_file() -> Fd {
    open("/dev/nvidiactl").unwrap()
}

pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// An ioctl with an argument of some bytes.
pub(crate) fn raw(fd: Fd, request: u64, argument: &mut [u8]) -> Result<(), i32> {
    raw_at(fd, request, argument.as_mut_ptr() as u64)
}

pub(crate) fn raw_at(fd: Fd, request: u64, address: u64) -> Result<(), i32> {
    let result = unsafe { libc::ioctl(fd, request as _, address) };
    if result < 0 { Err(errno()) } else { Ok(()) }
}

/// A request of the resource manager.
pub(crate) fn request(number: u32, size: usize) -> u64 {
    u64::from(3_u32 << 30 | (size as u32) << 16 | u32::from(b'F') << 8 | number)
}

pub(crate) fn escape(fd: Fd, number: u32, args: &mut Struct) -> Result<(), i32> {
    let request = request(number, args.bytes.len());
    raw(fd, request, &mut args.bytes)
}

/// A UVM request; returns its status.
pub(crate) fn uvm(fd: Fd, name: &str, args: &mut Struct) -> u32 {
    let number = driver()
        .calls()
        .uvm
        .iter()
        .copied()
        .flatten()
        .find(|info| info.name == name)
        .unwrap_or_else(|| panic!("no {name}"))
        .number;
    args.set("rmStatus", 0xdead);
    assert_eq!(raw(fd, number.into(), &mut args.bytes), Ok(()), "{name}");
    args.get("rmStatus") as u32
}

/// A client of the resource manager with a control file of its own.
pub(crate) struct Client {
    pub(crate) fd: Fd,
    pub(crate) handle: u32,
}

/// What an allocation is given: parameters, or none.
pub(crate) type Params<'a> = Option<&'a mut Struct>;

impl Client {
    pub(crate) fn new() -> Self {
        let fd = control_file();
        let (status, handle) = alloc_on(fd, [0, 0, 0, ROOT], None);
        assert_eq!(status, status::OK);
        Self { fd, handle }
    }

    /// With a device, which keeps its GPU's file open, and a subdevice.
    pub(crate) fn with_device() -> (Self, u32, u32) {
        let client = Self::new();
        let (device, subdevice) = client.device(0);
        (client, device, subdevice)
    }

    /// The device of a GPU, whose file stays open, and its subdevice.
    pub(crate) fn device(&self, gpu: u32) -> (u32, u32) {
        open(&format!("/dev/nvidia{gpu}")).unwrap();
        let mut params = device_params(gpu.into());
        let device = self.alloc(self.handle, DEVICE, Some(&mut params)).unwrap();
        (device, self.alloc(device, SUBDEVICE, None).unwrap())
    }

    /// Allocates an object under a fresh handle.
    pub(crate) fn alloc(&self, parent: u32, class: u32, params: Params<'_>) -> Result<u32, u32> {
        static NEXT: AtomicU32 = AtomicU32::new(0x5000_0001);
        self.alloc_as(parent, NEXT.fetch_add(1, Ordering::Relaxed), class, params)
    }

    pub(crate) fn alloc_as(
        &self,
        parent: u32,
        handle: u32,
        class: u32,
        params: Params<'_>,
    ) -> Result<u32, u32> {
        let (status, made) = alloc_on(self.fd, [self.handle, parent, handle, class], params);
        if status == status::OK { Ok(made) } else { Err(status) }
    }

    pub(crate) fn free(&self, object: u32) -> u32 {
        let mut args = Struct::new("NVOS00_PARAMETERS")
            .with("hRoot", self.handle.into())
            .with("hObjectParent", self.handle.into())
            .with("hObjectOld", object.into())
            .with("status", 0xdead);
        assert_eq!(escape(self.fd, 0x29, &mut args), Ok(()));
        args.get("status") as u32
    }

    /// A command by its name; the parameters are those of its driver.
    pub(crate) fn control(&self, object: u32, name: &str, params: &mut Struct) -> u32 {
        let size = params.bytes.len();
        self.control_with(object, command(name), params.address(), size)
    }

    pub(crate) fn control_with(&self, object: u32, cmd: u32, address: u64, size: usize) -> u32 {
        control_on(self.fd, self.handle, object, cmd, address, size)
    }
}

pub(crate) fn control_on(
    fd: Fd,
    client: u32,
    object: u32,
    cmd: u32,
    address: u64,
    size: usize,
) -> u32 {
    let mut args = Struct::new("NVOS54_PARAMETERS")
        .with("hClient", client.into())
        .with("hObject", object.into())
        .with("cmd", cmd.into())
        .with("params", address)
        .with("paramsSize", size as u64)
        .with("status", 0xdead);
    assert_eq!(escape(fd, 0x2a, &mut args), Ok(()));
    args.get("status") as u32
}

/// The number of a command.
pub(crate) fn command(name: &str) -> u32 {
    let commands = driver().calls().control.iter().copied().flatten();
    commands.copied().find(|info| info.name == name).unwrap_or_else(|| panic!("no {name}")).number
}

/// NV_ESC_RM_ALLOC in the older struct: status, and the handle.
pub(crate) fn alloc_on(
    fd: Fd,
    [root, parent, handle, class]: [u32; 4],
    params: Params<'_>,
) -> (u32, u32) {
    alloc_in("NVOS21_PARAMETERS", fd, [root, parent, handle, class], params).unwrap()
}

pub(crate) fn alloc_in(
    record: &str,
    fd: Fd,
    [root, parent, handle, class]: [u32; 4],
    params: Params<'_>,
) -> Result<(u32, u32), i32> {
    let mut args = Struct::new(record)
        .with("hRoot", root.into())
        .with("hObjectParent", parent.into())
        .with("hObjectNew", handle.into())
        .with("hClass", class.into())
        .with("pAllocParms", params.map_or(0, Struct::address))
        .with("status", 0xdead);
    escape(fd, 0x2b, &mut args)?;
    Ok((args.get("status") as u32, args.get("hObjectNew") as u32))
}

pub(crate) fn device_params(instance: u64) -> Struct {
    Struct::new("NV0080_ALLOC_PARAMETERS").with("deviceId", instance)
}

/// Memory that a client asks for: NVOS32_ATTR_LOCATION says where.
pub(crate) fn memory_params(class: u32, size: u64) -> Struct {
    let location = if class == SYSTEM_MEMORY { 1 << 25 } else { 0 };
    Struct::new("NV_MEMORY_ALLOCATION_PARAMS")
        .with("owner", 0x636c_6e74)
        .with("attr", location)
        .with("size", size)
}

/// NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION.
pub(crate) const DISABLE: u64 = 0;
pub(crate) const SINGLE: u64 = 1;
pub(crate) const REPEAT: u64 = 2;

pub(crate) const ALLOC_OS_EVENT: u32 = 206;
pub(crate) const FREE_OS_EVENT: u32 = 207;

pub(crate) fn os_event(number: u32, client: &Client, fd: Fd) -> u32 {
    let record = match number {
        ALLOC_OS_EVENT => "nv_ioctl_alloc_os_event_t",
        _ => "nv_ioctl_free_os_event_t",
    };
    let mut args = Struct::new(record).with("hClient", client.handle.into()).with("fd", fd as u64);
    args.set("Status", 0xdead);
    assert_eq!(escape(fd, number, &mut args), Ok(()));
    args.get("Status") as u32
}

/// A file that a client is told by.
pub(crate) fn file_of(client: &Client) -> Fd {
    let fd = control_file();
    assert_eq!(os_event(ALLOC_OS_EVENT, client, fd), status::OK);
    fd
}

pub(crate) fn event_params(client: u32, index: u64, fd: Fd) -> Struct {
    Struct::new("NV0005_ALLOC_PARAMETERS")
        .with("hParentClient", client.into())
        .with("notifyIndex", index)
        .with("hClass", OS_EVENT.into())
        .with("data", fd as u64)
}

/// Lets a client's object tell a file of something.
pub(crate) fn listen(client: &Client, object: u32, index: u64, fd: Fd) -> Result<u32, u32> {
    client.alloc(object, OS_EVENT, Some(&mut event_params(client.handle, index, fd)))
}

/// Says whether a subdevice is to tell of something.
pub(crate) fn arm(client: &Client, subdevice: u32, event: u64, action: u64) -> u32 {
    let mut params = Struct::new("NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS")
        .with("event", event)
        .with("action", action);
    client.control(subdevice, "NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION", &mut params)
}

pub(crate) fn poll(fd: Fd, milliseconds: i32) -> Option<i16> {
    let mut entry = libc::pollfd { fd, events: libc::POLLIN | libc::POLLPRI, revents: 0 };
    let ready = unsafe { libc::poll(&mut entry, 1, milliseconds) };
    (ready == 1).then_some(entry.revents)
}

pub(crate) fn is_readable(fd: Fd) -> bool {
    poll(fd, 0).is_some_and(|found| found & libc::POLLIN != 0)
}

/// The next event that a file has, and whether there are more.
pub(crate) fn next_event(fd: Fd) -> Result<(Struct, bool), u32> {
    let mut event = Struct::new("NvUnixEvent").with("info32", 0xdead).with("info16", 0xdead);
    let mut args = Struct::new("NVOS41_PARAMETERS").with("pEvent", event.address());
    assert_eq!(escape(fd, 0x52, &mut args), Ok(()));
    match args.get("status") as u32 {
        status::OK => Ok((event, args.get("MoreEvents") != 0)),
        status => Err(status),
    }
}
