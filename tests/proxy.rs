//! Calls that are carried from one memory to another: by their roles, bounded, and only as far as the
//! driver reads and writes them.
#![cfg(feature = "driver-550")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use nvabi::call::{
    Call, CallKind, Control, Direction, Expression, Factor, FdRole, Frontend, HandleMeaning, Info,
    Pointer, RoleField, RolePlace,
};
use nvabi::driver::{AnyDriver, PlainRecord, Record};
use nvabi::proxy::{Error, Limits, Memory, Message, Params, marshal, unmarshal};
use nvabi::r550::{
    self, NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS, NV0000_CTRL_SYSTEM_GET_P2P_CAPS_PARAMS,
    NV0005_ALLOC_PARAMETERS, NV0080_CTRL_FIFO_GET_CHANNELLIST_PARAMS, NVOS21_PARAMETERS,
    NVOS32_PARAMETERS, NVOS54_PARAMETERS, NVOS64_PARAMETERS, class, control, frontend,
    nv_ioctl_xfer_t, uvm,
};
use nvabi::{Handle, P64};
use nvabi_test::Random;

#[path = "../fuzz/proxy.rs"]
mod fuzz;

fn driver() -> &'static AnyDriver {
    AnyDriver::for_version("550.90.07").unwrap()
}

/// Pieces of memory, each at its address.
#[derive(Clone, Default)]
struct Pieces(BTreeMap<u64, Vec<u8>>);

impl Pieces {
    fn with(mut self, address: u64, bytes: &[u8]) -> Self {
        self.0.insert(address, bytes.to_vec());
        self
    }

    fn with_record<P: PlainRecord>(self, address: u64, record: &P) -> Self {
        self.with(address, record.bytes())
    }

    /// A part of one piece.
    fn at(&self, address: u64, length: usize) -> io::Result<(u64, usize)> {
        let fault = || io::Error::from_raw_os_error(libc::EFAULT);
        let (start, bytes) = self.0.range(..=address).next_back().ok_or_else(fault)?;
        let from = (address - start) as usize;
        (from + length <= bytes.len()).then_some((*start, from)).ok_or_else(fault)
    }
}

impl Memory for Pieces {
    fn read(&self, address: u64, to: &mut [u8]) -> io::Result<()> {
        let (piece, from) = self.at(address, to.len())?;
        to.copy_from_slice(&self.0[&piece][from..from + to.len()]);
        Ok(())
    }

    fn write(&mut self, address: u64, from: &[u8]) -> io::Result<()> {
        let (piece, at) = self.at(address, from.len())?;
        self.0.get_mut(&piece).unwrap()[at..at + from.len()].copy_from_slice(from);
        Ok(())
    }
}

/// The parameters of `NV_ESC_RM_VID_HEAP_CONTROL`, which hold a union.
fn heap_control(call: &mut NVOS32_PARAMETERS) -> Params<'_> {
    // SAFETY: the tests make it by `zeroed` and put nothing into its union.
    unsafe { Params::of_initialized::<frontend::NV_ESC_RM_VID_HEAP_CONTROL, _>(call) }
}

/// The record that lies at an address of this process.
fn record_at<P: Record>(address: u64) -> P {
    // SAFETY: the address is that of a message's part, which is at least as long.
    unsafe { (address as *const P).read_unaligned() }
}

fn carry<C: Call>(memory: &Pieces, address: u64, size: usize) -> Result<Message, Error> {
    marshal(driver(), C::INFO, address, size, memory, Limits::default())
}

/// The message as it arrives.
fn arrived(message: &Message) -> Message {
    unmarshal(driver(), &message.request(), Limits::default()).unwrap()
}

// --- One set of parameters --------------------------------------------------------------------

#[test]
fn fds_by_type_and_by_number() {
    let mut params = NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS { fd: 5, ..Record::zeroed() };
    type Export = control::NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD;
    let mut seen = Vec::new();
    Params::of::<Export, _>(&mut params).visit_fds(|fd| {
        seen.push((fd.role(), fd.get(), fd.opens()));
        fd.set(-1);
    });
    assert_eq!((seen, params.fd), (vec![("fd", Some(5), None)], -1));
    let mut bytes = params.bytes().to_vec();
    let mut by_number = Params::new(Export::INFO, &mut bytes).unwrap();
    by_number.visit_fds(|fd| assert_eq!(fd.get(), None, "-1 is none"));
}

#[test]
fn fds_in_pointers_are_none_where_they_are_null() {
    let mut params = NV0005_ALLOC_PARAMETERS::zeroed();
    let mut fds = |data: u64| {
        params.data = P64(data);
        let mut found = Vec::new();
        Params::of::<class::NV01_EVENT_OS_EVENT, _>(&mut params)
            .visit_fds(|fd| found.push(fd.get()));
        found
    };
    // The driver takes the lower half, so a number hides behind whatever the upper one holds.
    let hidden = fds(1 << 40 | 9);
    assert_eq!([fds(0), fds(9), fds(u64::MAX), hidden], [[None], [Some(9)], [None], [Some(9)]]);
}

#[test]
fn handles_and_what_they_mean() {
    let mut call = NVOS64_PARAMETERS {
        hRoot: Handle(1),
        hObjectParent: Handle(2),
        hObjectNew: Handle(3),
        hClass: 4,
        ..Record::zeroed()
    };
    let mut seen = Vec::new();
    Params::of::<frontend::NV_ESC_RM_ALLOC, _>(&mut call).visit_handles(|handle| {
        seen.push((handle.role(), handle.means(), handle.get().0));
        if handle.means() == HandleMeaning::Client {
            handle.set(Handle(100));
        }
    });
    let expected = [
        ("hRoot", HandleMeaning::Client, 1),
        ("hObjectParent", HandleMeaning::Parent, 2),
        ("hObjectNew", HandleMeaning::New, 3),
        ("hClass", HandleMeaning::Class, 4),
    ];
    assert_eq!((seen, call.hRoot), (expected.to_vec(), Handle(100)));
}

#[test]
fn of_a_union_the_member_that_holds() {
    let handles = |function: u32| {
        let mut call = NVOS32_PARAMETERS { function, ..Record::zeroed() };
        let mut seen = Vec::new();
        heap_control(&mut call).visit_handles(|handle| seen.push((handle.role(), handle.means())));
        seen
    };
    let common = [
        ("hRoot", HandleMeaning::Client),
        ("hObjectParent", HandleMeaning::Parent),
        ("hVASpace", HandleMeaning::Object),
    ];
    let with = |more| [&common[..], &[more]].concat();
    assert_eq!(
        handles(r550::NVOS32_FUNCTION_FREE),
        with(("data.Free.hMemory", HandleMeaning::Object))
    );
    let allocated = ("data.AllocSize.hMemory", HandleMeaning::New);
    assert_eq!(handles(r550::NVOS32_FUNCTION_ALLOC_SIZE), with(allocated));
    assert_eq!(handles(r550::NVOS32_FUNCTION_INFO), common);
}

#[test]
fn pointers_with_their_lengths() {
    let mut params = NV0000_CTRL_SYSTEM_GET_P2P_CAPS_PARAMS {
        gpuCount: 3,
        busPeerIds: P64(0x10),
        ..Record::zeroed()
    };
    type Caps = control::NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS;
    let mut seen = Vec::new();
    Params::of::<Caps, _>(&mut params).visit_pointers(|pointer| {
        seen.push((pointer.role().field.path, pointer.get(), pointer.len()));
        pointer.set(0);
    });
    assert_eq!(seen, [("busPeerIds", 0x10, Some(36)), ("busEgmPeerIds", 0, Some(36))]);
    assert_eq!(params.busPeerIds, P64(0));
}

#[test]
fn parameters_of_another_size_are_refused() {
    let mut short = [0; 31];
    let refused = Params::new(frontend::NV_ESC_RM_CONTROL::INFO, &mut short).unwrap_err();
    assert_eq!(refused.to_string(), "NV_ESC_RM_CONTROL does not take 31 bytes");
    // An array is as many as there are; two and a half are none.
    let cards = frontend::NV_ESC_CARD_INFO::INFO;
    assert!(Params::new(cards, &mut [0; 144]).is_ok());
    // What has no roles is copied whatever it is.
    assert!(Params::new(cards, &mut [0; 100]).is_ok());
    // But not where the driver copies as much as it knows, whatever is there.
    let info = uvm::UVM_CREATE_RANGE_GROUP::INFO;
    assert!(info.is_simple() && info.handles.is_empty());
    let refused = Params::new(info, &mut [0; 8]).unwrap_err();
    assert_eq!(refused.to_string(), "UVM_CREATE_RANGE_GROUP does not take 8 bytes");
    let memory = Pieces::default().with(CALL, &[0; 16]);
    assert!(carry::<uvm::UVM_CREATE_RANGE_GROUP>(&memory, CALL, 8).is_err());
    assert!(carry::<uvm::UVM_CREATE_RANGE_GROUP>(&memory, CALL, 16).is_ok());
}

// --- Calls with what they point to ------------------------------------------------------------

const CALL: u64 = 0x1000;
const INNER: u64 = 0x2000;

/// The ioctl of a control command whose parameters are at [`INNER`].
fn command<C: Control, P: PlainRecord>(params: &P) -> Pieces {
    let call = NVOS54_PARAMETERS {
        hClient: Handle(7),
        cmd: C::CMD,
        params: P64(INNER),
        paramsSize: size_of::<P>() as u32,
        ..Record::zeroed()
    };
    Pieces::default().with_record(CALL, &call).with_record(INNER, params)
}

fn carry_command(memory: &Pieces) -> Result<Message, Error> {
    carry::<frontend::NV_ESC_RM_CONTROL>(memory, CALL, size_of::<NVOS54_PARAMETERS>())
}

#[test]
fn what_is_only_written_comes_back_and_what_is_only_read_goes() {
    let params = NV0080_CTRL_FIFO_GET_CHANNELLIST_PARAMS {
        numChannels: 2,
        pChannelHandleList: P64(0x3000),
        pChannelList: P64(0x4000),
        ..Record::zeroed()
    };
    let mut memory = command::<control::NV0080_CTRL_CMD_FIFO_GET_CHANNELLIST, _>(&params)
        .with(0x3000, b"handles!")
        .with(0x4000, b"channels");
    let mut message = carry_command(&memory).unwrap();
    let mut handles = Vec::new();
    message.visit_handles(|handle| handles.push((handle.role(), handle.means(), handle.get().0)));
    assert_eq!(handles[0], ("hClient", HandleMeaning::Client, 7));
    let listed =
        [*b"hand", *b"les!"].map(|name| (".", HandleMeaning::Object, u32::from_le_bytes(name)));
    assert_eq!(handles[2..], listed, "what is behind pChannelHandleList");

    let mut there = arrived(&message);
    let status = there.call(|argument| {
        let call: NVOS54_PARAMETERS = record_at(argument as u64);
        let params: NV0080_CTRL_FIFO_GET_CHANNELLIST_PARAMS = record_at(call.params.0);
        assert_eq!(&record_at::<Eight>(params.pChannelHandleList.0).0, b"handles!");
        assert_eq!(&record_at::<Eight>(params.pChannelList.0).0, b"channels");
        // SAFETY: both lists lie in the message, eight bytes each.
        unsafe {
            (params.pChannelHandleList.0 as *mut [u8; 8]).write_unaligned(*b"xxxxxxxx");
            (params.pChannelList.0 as *mut [u8; 8]).write_unaligned(*b"answered");
        }
        17
    });
    assert_eq!(status, 17);
    message.take_reply(&there.reply()).unwrap();
    message.write_back(&mut memory).unwrap();
    assert_eq!(
        (&memory.0[&0x3000][..], &memory.0[&0x4000][..]),
        (&b"handles!"[..], &b"answered"[..])
    );
    // The pointers are the caller's again.
    assert_eq!(memory.0[&INNER], params.bytes());
}

/// Eight bytes somewhere.
#[derive(Clone, Copy)]
#[repr(C)]
struct Eight([u8; 8]);

// SAFETY: it is made of bytes.
unsafe impl Record for Eight {
    const LAYOUT: &'static nvabi::check::Layout = NVOS54_PARAMETERS::LAYOUT;
}

#[test]
fn what_is_only_written_does_not_go() {
    let params = NV0000_CTRL_SYSTEM_GET_P2P_CAPS_PARAMS {
        gpuCount: 2,
        busPeerIds: P64(0x3000),
        ..Record::zeroed()
    };
    let memory = command::<control::NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS, _>(&params);
    // Nothing can be read at 0x3000, and nothing has to be.
    let message = carry_command(&memory).unwrap();
    let params = size_of_val(&params);
    assert_eq!(message.request().len(), 16 + 32 + params);
    assert_eq!(message.reply().len(), 4 + 32 + params + 16);
    let refused = message.write_back(&mut memory.clone()).unwrap_err();
    assert!(matches!(refused, Error::Memory { address: 0x3000, bytes: 16, .. }), "{refused}");
}

#[test]
fn null_stays_null_and_empty_stays_a_pointer() {
    let params = NV0080_CTRL_FIFO_GET_CHANNELLIST_PARAMS {
        numChannels: 5,
        pChannelHandleList: P64(0),
        pChannelList: P64(0),
        ..Record::zeroed()
    };
    let mut there = arrived(
        &carry_command(&command::<control::NV0080_CTRL_CMD_FIFO_GET_CHANNELLIST, _>(&params))
            .unwrap(),
    );
    let inside = |argument: *mut u8| -> NV0080_CTRL_FIFO_GET_CHANNELLIST_PARAMS {
        record_at(record_at::<NVOS54_PARAMETERS>(argument as u64).params.0)
    };
    let seen = there.call(inside);
    assert_eq!((seen.pChannelList, seen.numChannels), (P64(0), 5));
    let params = NV0080_CTRL_FIFO_GET_CHANNELLIST_PARAMS {
        numChannels: 0,
        pChannelHandleList: P64(0x9999),
        pChannelList: P64(0),
        ..Record::zeroed()
    };
    let memory = command::<control::NV0080_CTRL_CMD_FIFO_GET_CHANNELLIST, _>(&params);
    let seen = arrived(&carry_command(&memory).unwrap()).call(inside);
    assert!(!seen.pChannelHandleList.is_null() && seen.pChannelList.is_null());
}

#[test]
fn the_class_tells_what_allocation_parameters_are() {
    let call = NVOS21_PARAMETERS {
        hClass: class::NV01_EVENT_OS_EVENT::INFO.number,
        pAllocParms: P64(INNER),
        ..Record::zeroed()
    };
    let params = NV0005_ALLOC_PARAMETERS { data: P64(11), ..Record::zeroed() };
    let memory = Pieces::default().with_record(CALL, &call).with_record(INNER, &params);
    let carried = carry::<frontend::NV_ESC_RM_ALLOC>(&memory, CALL, size_of_val(&call));
    let mut fds = Vec::new();
    let mut message = carried.unwrap();
    message.visit_fds(|fd| fds.push((fd.role(), fd.get())));
    assert_eq!(fds, [("data", Some(11))]);
    assert_eq!(message.request().len(), 16 + size_of_val(&call) + size_of_val(&params));
}

#[test]
fn a_call_in_a_call_in_a_call() {
    let inner = NVOS54_PARAMETERS {
        cmd: control::NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD::CMD,
        params: P64(0x3000),
        paramsSize: size_of::<NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS>() as u32,
        ..Record::zeroed()
    };
    let params = NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS { fd: 3, ..Record::zeroed() };
    let xfer = nv_ioctl_xfer_t {
        cmd: frontend::NV_ESC_RM_CONTROL::NR,
        size: size_of_val(&inner) as u32,
        ptr: P64(INNER),
    };
    let memory = Pieces::default()
        .with_record(CALL, &xfer)
        .with_record(INNER, &inner)
        .with_record(0x3000, &params);
    let mut message =
        carry::<frontend::NV_ESC_IOCTL_XFER_CMD>(&memory, CALL, size_of_val(&xfer)).unwrap();
    message.visit_fds(|fd| fd.set(40 + fd.get().unwrap()));
    let fd = arrived(&message).call(|argument| {
        let xfer: nv_ioctl_xfer_t = record_at(argument as u64);
        let call: NVOS54_PARAMETERS = record_at(xfer.ptr.0);
        record_at::<NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS>(call.params.0).fd
    });
    assert_eq!(fd, 43);
}

#[test]
fn what_cannot_be_carried_says_why() {
    let caps = |gpu_count: u32| {
        let params = NV0000_CTRL_SYSTEM_GET_P2P_CAPS_PARAMS {
            gpuCount: gpu_count,
            busPeerIds: P64(0x3000),
            ..Record::zeroed()
        };
        command::<control::NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS, _>(&params)
    };
    let told = |memory: &Pieces| carry_command(memory).unwrap_err().to_string();
    let name = "NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS";
    assert_eq!(told(&caps(u32::MAX)), format!("{name}: busPeerIds has no length that is one"));
    let too_large = told(&caps(1 << 16));
    assert!(too_large.ends_with("17179869392 bytes exceed the limits"), "{too_large}");
    let call = NVOS54_PARAMETERS { cmd: 0x1234_5678, params: P64(INNER), ..Record::zeroed() };
    let unknown = told(&Pieces::default().with_record(CALL, &call));
    let rest = "is unknown, and so is what it points to";
    assert_eq!(unknown, format!("control command 0x12345678 {rest}"));
    assert_eq!(
        told(&Pieces::default()),
        "cannot reach 32 bytes at 0x1000: Bad address (os error 14)"
    );
    let mut wrong = caps(1);
    wrong.0.get_mut(&CALL).unwrap()[24] = 8;
    assert_eq!(told(&wrong), format!("{name} does not take 8 bytes"));
}

#[test]
fn what_the_driver_would_take_for_its_callers_memory_is_refused() {
    let mut call = NVOS32_PARAMETERS {
        function: r550::NVOS32_FUNCTION_ALLOC_OS_DESCRIPTOR,
        ..Record::zeroed()
    };
    let info = frontend::NV_ESC_RM_VID_HEAP_CONTROL::INFO;
    heap_control(&mut call).visit_pointers(|pointer| pointer.set(0x40_0000));
    let memory = Pieces::default().with(CALL, heap_control(&mut call).bytes());
    let (size, opaque) = (size_of_val(&call), Limits { opaque: true, ..Limits::default() });
    let refused = carry::<frontend::NV_ESC_RM_VID_HEAP_CONTROL>(&memory, CALL, size).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "NV_ESC_RM_VID_HEAP_CONTROL: the driver may pin or read what data.AllocOsDesc.descriptor \
         points to, so it must be null"
    );
    // Whoever asks for them gets them, and can put others there.
    let sent = marshal(driver(), info, CALL, size, &memory, opaque).unwrap().request();
    let refused = unmarshal(driver(), &sent, Limits::default()).unwrap_err();
    assert!(matches!(refused, Error::Opaque { field: "data.AllocOsDesc.descriptor", .. }));
    let mut there = unmarshal(driver(), &sent, opaque).unwrap();
    let mut seen = Vec::new();
    there.visit_pointers(|pointer| {
        seen.push((pointer.role().field.path, pointer.get()));
        pointer.set(0);
    });
    assert_eq!(seen, [("data.AllocOsDesc.descriptor", 0x40_0000)]);
    assert!(unmarshal(driver(), &there.request(), Limits::default()).is_ok());
}

/// An address that only comes back does not go: there it would be one of the process that makes the call.
#[test]
fn what_only_comes_back_goes_as_null() {
    let mut call =
        NVOS32_PARAMETERS { function: r550::NVOS32_FUNCTION_ALLOC_SIZE, ..Record::zeroed() };
    let info = frontend::NV_ESC_RM_VID_HEAP_CONTROL::INFO;
    let set = |call: &mut NVOS32_PARAMETERS, address| {
        heap_control(call).visit_pointers(|pointer| pointer.set(address));
    };
    set(&mut call, 0x40_0000);
    let (size, opaque) = (size_of_val(&call), Limits { opaque: true, ..Limits::default() });
    let mut memory = Pieces::default().with(CALL, heap_control(&mut call).bytes());
    let mut message = carry::<frontend::NV_ESC_RM_VID_HEAP_CONTROL>(&memory, CALL, size).unwrap();
    let held = |message: &mut Message| {
        let mut seen = Vec::new();
        message.visit_pointers(|pointer| seen.push(pointer.get()));
        seen
    };
    assert_eq!(held(&mut message), [0]);
    // Nor does it where the sender has left it in.
    let sent = marshal(driver(), info, CALL, size, &memory, opaque).unwrap().request();
    assert_eq!(held(&mut unmarshal(driver(), &sent, opaque).unwrap()), [0x40_0000]);
    let mut there = unmarshal(driver(), &sent, Limits::default()).unwrap();
    assert_eq!(held(&mut there), [0]);
    there.call(|argument| {
        let mut answer: NVOS32_PARAMETERS = record_at(argument as u64);
        set(&mut answer, 0x7000);
        // SAFETY: the argument is as long as the parameters.
        unsafe { argument.cast::<NVOS32_PARAMETERS>().write_unaligned(answer) };
    });
    message.take_reply(&there.reply()).unwrap();
    message.write_back(&mut memory).unwrap();
    set(&mut call, 0x7000);
    assert_eq!(
        memory.0[&CALL],
        heap_control(&mut call).bytes(),
        "what the driver puts there comes back"
    );
}

/// A field that is in no array.
macro_rules! field {
    ($record:ident . $field:ident, $size:literal) => {
        RoleField {
            path: stringify!($field),
            places: &[Some(RolePlace {
                offset: std::mem::offset_of!($record, $field) as u32,
                size: $size,
                arrays: &[],
                is_pointer: $size == 8,
            })],
        }
    };
}

/// A length that is a field.
macro_rules! length {
    ($record:ident . $field:ident) => {
        Some(Expression {
            text: stringify!($field),
            terms: &[&[Factor::Field(field!($record.$field, 4))]],
        })
    };
}

/// A call whose list has elements with roles of their own, as no driver's has today.
static LISTED: Info = Info {
    name: "LISTED",
    kind: CallKind::Control,
    roles_known: true,
    number: 0,
    params: &["NV0080_CTRL_FIFO_GET_CHANNELLIST_PARAMS"],
    sizes: &[size_of::<NV0080_CTRL_FIFO_GET_CHANNELLIST_PARAMS>() as u32],
    array: false,
    fds: &[],
    handles: &[],
    pointers: &[Pointer {
        field: field!(NV0080_CTRL_FIFO_GET_CHANNELLIST_PARAMS.pChannelList, 8),
        len: length!(NV0080_CTRL_FIFO_GET_CHANNELLIST_PARAMS.numChannels),
        filled: None,
        of: Some("NVOS54_PARAMETERS"),
        unit: 32,
        call: None,
        fds: &[FdRole { field: field!(NVOS54_PARAMETERS.cmd, 4), opens: None }],
        handles: &[],
        pointers: &[Pointer {
            field: field!(NVOS54_PARAMETERS.params, 8),
            len: length!(NVOS54_PARAMETERS.paramsSize),
            filled: None,
            of: None,
            unit: 1,
            call: None,
            fds: &[],
            handles: &[],
            pointers: &[],
            direction: Some(Direction::InOut),
            opaque: false,
            when: None,
        }],
        direction: Some(Direction::In),
        opaque: false,
        when: None,
    }],
    caps: &[],
    node: "",
};

#[test]
fn elements_have_fds_and_pointers_of_their_own() {
    let params = NV0080_CTRL_FIFO_GET_CHANNELLIST_PARAMS {
        numChannels: 2,
        pChannelList: P64(0x3000),
        ..Record::zeroed()
    };
    let element = |cmd, params, size| NVOS54_PARAMETERS {
        cmd,
        params: P64(params),
        paramsSize: size,
        ..Record::zeroed()
    };
    let (one, two) = (element(5, 0x4000, 3), element(6, 0x5000, 4));
    let mut memory = Pieces::default()
        .with_record(CALL, &params)
        .with(0x3000, &[one.bytes(), two.bytes()].concat())
        .with(0x4000, b"abc")
        .with(0x5000, b"defg");
    let size = size_of_val(&params);
    let carry = |limits| marshal(driver(), &LISTED, CALL, size, &memory, limits);
    let mut message = carry(Limits::default()).unwrap();
    let mut fds = Vec::new();
    message.visit_fds(|fd| fds.push((fd.role(), fd.get())));
    assert_eq!(fds, [("cmd", Some(5)), ("cmd", Some(6))]);
    let mut pointers = Vec::new();
    message.visit_pointers(|pointer| pointers.push((pointer.get(), pointer.len())));
    assert_eq!(pointers, [(0x3000, Some(64)), (0x4000, Some(3)), (0x5000, Some(4))]);
    assert_eq!(message.request()[16 + size..], [one.bytes(), two.bytes(), b"abcdefg"].concat());
    message.call(|argument| {
        let params: NV0080_CTRL_FIFO_GET_CHANNELLIST_PARAMS = record_at(argument as u64);
        let second: NVOS54_PARAMETERS = record_at(params.pChannelList.0 + 32);
        // SAFETY: it points to as many bytes.
        unsafe { (second.params.0 as *mut [u8; 4]).write_unaligned(*b"DEFG") };
    });
    // More elements than there may be pieces are refused.
    let few = Limits { parts: 3, ..Limits::default() };
    assert!(matches!(carry(few), Err(Error::TooLarge { call: "LISTED", field: "params", .. })));
    message.write_back(&mut memory).unwrap();
    assert_eq!((&memory.0[&0x4000][..], &memory.0[&0x5000][..]), (&b"abc"[..], &b"DEFG"[..]));
}

#[test]
fn a_finn_message_is_refused_though_it_has_the_size_of_the_struct() {
    let params = NV0000_CTRL_SYSTEM_GET_P2P_CAPS_PARAMS::zeroed();
    let mut memory = command::<control::NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS, _>(&params);
    memory.0.get_mut(&CALL).unwrap()[12] = 4;
    let refused = carry_command(&memory).unwrap_err().to_string();
    assert_eq!(refused, "NV_ESC_RM_CONTROL: parameters in FINN's form are not carried");
}

#[test]
fn pointers_to_another_call_say_which() {
    let of =
        |info: &nvabi::call::Info| info.pointers[0].call.map(|call| (call.kind, call.number.text));
    assert_eq!(of(frontend::NV_ESC_RM_CONTROL::INFO), Some((CallKind::Control, "cmd")));
    assert_eq!(of(frontend::NV_ESC_RM_ALLOC::INFO), Some((CallKind::Class, "hClass")));
    assert_eq!(of(frontend::NV_ESC_IOCTL_XFER_CMD::INFO), Some((CallKind::Frontend, "cmd")));
}

#[test]
fn the_limits_hold_on_both_sides() {
    let params = NV0080_CTRL_FIFO_GET_CHANNELLIST_PARAMS {
        numChannels: 4,
        pChannelHandleList: P64(0x3000),
        pChannelList: P64(0x3000),
        ..Record::zeroed()
    };
    let memory =
        command::<control::NV0080_CTRL_CMD_FIFO_GET_CHANNELLIST, _>(&params).with(0x3000, &[1; 16]);
    let info = frontend::NV_ESC_RM_CONTROL::INFO;
    let within = |bytes, parts| {
        let limits = Limits { bytes, parts, opaque: false };
        let sent = marshal(driver(), info, CALL, 32, &memory, limits);
        let whole = carry_command(&memory).unwrap().request();
        let received = unmarshal(driver(), &whole, limits);
        assert_eq!(sent.is_ok(), received.is_ok(), "{bytes} bytes, {parts} parts");
        sent.is_ok()
    };
    let all = 32 + size_of_val(&params) + 16 + 16;
    assert_eq!([within(all, 4), within(all - 1, 4), within(all, 3)], [true, false, false]);
}

#[test]
fn bytes_that_are_no_request_say_where() {
    let params = NV0000_CTRL_SYSTEM_GET_P2P_CAPS_PARAMS::zeroed();
    let memory = command::<control::NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS, _>(&params);
    let good = carry_command(&memory).unwrap().request();
    let told =
        |bytes: &[u8]| unmarshal(driver(), bytes, Limits::default()).unwrap_err().to_string();
    assert_eq!(told(&good[..15]), "at byte 15 of the message: it ends before its head does");
    assert_eq!(told(&good[1..]), "at byte 0 of the message: it is no request");
    let cut = told(&good[..good.len() - 1]);
    assert_eq!(cut, "at byte 48 of the message: it ends before what it points to");
    let more = [&good[..], &[0]].concat();
    assert_eq!(told(&more), format!("at byte {} of the message: it goes on", good.len()));
    let mut kind = good.clone();
    kind[4] = 9;
    assert_eq!(told(&kind), "at byte 4 of the message: no such kind");
    let mut message = carry_command(&memory).unwrap();
    let before = message.reply();
    assert!(message.take_reply(&good).is_err() && message.take_reply(&before[..9]).is_err());
    assert!(message.take_reply(&[&before[..], &[0]].concat()).is_err());
    assert_eq!(message.reply(), before, "a reply that is refused changes nothing");
}

// --- Anything ---------------------------------------------------------------------------------

/// The same bytes but for one, and sometimes for those at the end.
fn near(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut near = bytes.to_vec();
    near[random.below(bytes.len())] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)];
    if random.one_in(4) {
        near.truncate(random.below(near.len() + 1));
    }
    near
}

#[test]
fn every_call_out_of_any_memory_is_carried_whole_or_refused() {
    let (mut carried, mut tried, mut near_good) = (0, 0, 0);
    let mut random = Random(1);
    for kind in 0..4 {
        for number in 0..300 {
            tried += 1;
            let requests = fuzz::call(driver(), kind, number, random.next());
            carried += usize::from(!requests.is_empty());
            for request in &requests {
                for _ in 0..4 {
                    near_good += usize::from(fuzz::request(driver(), &near(&mut random, request)));
                }
            }
        }
    }
    println!("{carried} of {tried} carried; near to them {near_good}");
    assert!(carried > tried / 2 && near_good > carried, "{carried} of {tried}, {near_good}");
}

#[test]
fn the_corpus_and_what_is_near_to_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/proxy");
    let (mut files, mut good, mut near_good) = (0, 0, 0);
    let mut random = Random(2);
    for entry in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        files += 1;
        good += usize::from(fuzz::request(driver(), &bytes));
        for _ in 0..256 {
            near_good += usize::from(fuzz::request(driver(), &near(&mut random, &bytes)));
        }
    }
    println!("{files} files, {good} good; near to them {near_good}");
    assert!(files > 10 && good > 5 && near_good > 100, "{files} files, {good} good, {near_good}");
}

// --- Calls that no spec names -------------------------------------------------------------------

/// A call as feature `full` has it, whose roles nobody knows.
fn unknown(info: &Info) -> &'static Info {
    let empty = Info { fds: &[], handles: &[], pointers: &[], ..*info };
    Box::leak(Box::new(Info { roles_known: false, ..empty }))
}

#[test]
fn a_call_of_unknown_roles_is_refused_by_name() {
    type Cmd = control::NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS;
    let info = unknown(Cmd::INFO);
    assert!(!info.is_simple(), "nobody knows whether it is");
    let size = size_of::<<Cmd as Call>::Params>();
    let memory = Pieces::default().with(0x1000, &vec![0; size]);
    let refused = marshal(driver(), info, 0x1000, size, &memory, Limits::default()).unwrap_err();
    let call = "NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS";
    assert!(matches!(refused, Error::RolesUnknown { call: named } if named == call), "{refused}");
    assert!(refused.to_string().starts_with(call), "{refused}");
    let mut bytes = vec![0; size];
    let refused = Params::new(info, &mut bytes).unwrap_err();
    assert!(matches!(refused, Error::RolesUnknown { .. }), "{refused}");
    // The same call with its roles is carried.
    assert!(marshal(driver(), Cmd::INFO, 0x1000, size, &memory, Limits::default()).is_ok());
}

/// A command that no header has is bytes where the driver hands it to the GSP, and nothing that can be carried elsewhere.
#[test]
fn commands_for_the_gsp_are_bytes() {
    const CALL: u64 = 0x1000;
    const PARAMS: u64 = 0x2000;
    let bytes: Vec<u8> = (1..=12).collect();
    let carried = |cmd| {
        let call = NVOS54_PARAMETERS {
            cmd,
            params: P64(PARAMS),
            paramsSize: bytes.len() as u32,
            ..Record::zeroed()
        };
        let memory = Pieces::default().with_record(CALL, &call).with(PARAMS, &bytes);
        let size = size_of::<NVOS54_PARAMETERS>();
        carry::<frontend::NV_ESC_RM_CONTROL>(&memory, CALL, size).map(|message| (message, memory))
    };
    // By the bit RM_GSS_LEGACY_MASK; by the classes NV2081_BINAPI and NV2082_BINAPI_PRIVILEGED.
    for cmd in [0x2080_8159, 0x0000_8000, 0x2081_0108, 0x2082_0001] {
        let (mut message, mut memory) =
            carried(cmd).unwrap_or_else(|error| panic!("{cmd:#x}: {error}"));
        let mut there = unmarshal(driver(), &message.request(), Limits::default()).unwrap();
        there.call(|argument| {
            let call: NVOS54_PARAMETERS = record_at(argument as u64);
            // SAFETY: the parameters are a part of the message, as long as the call says.
            let params = unsafe { std::slice::from_raw_parts_mut(call.params.0 as *mut u8, 12) };
            assert_eq!((call.cmd, &*params), (cmd, &bytes[..]));
            params.reverse();
        });
        message.take_reply(&there.reply()).unwrap();
        message.write_back(&mut memory).unwrap();
        let found: Vec<u8> = memory.0[&PARAMS].iter().rev().copied().collect();
        assert_eq!(found, bytes, "{cmd:#x}");
    }
    for cmd in [0x2080_7fff, 0x2083_0108, 0x2000_0001] {
        let refused = carried(cmd).map(|_| ()).unwrap_err();
        assert!(matches!(refused, Error::Unknown { number, .. } if number == cmd), "{refused}");
    }
}
