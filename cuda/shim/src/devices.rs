//! Several devices, of the driver and of the runtime: `NVABI_EMU_DEVICES` says how many, one without it, and
//! `CUDA_VISIBLE_DEVICES` which of them the program sees. They are alike, and differ in their memory and in whose memory
//! their kernels reach. Copies between them need no access.
#![allow(non_snake_case)]

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::LazyLock;

use crate::abi::{Out, Text, status_of};
use crate::driver::{calls, transfer, transfer_on, unchecked};
use crate::report::variable;
use crate::runtime::{answer, both, remembered, remembered_unchecked};
use crate::state::{
    ALREADY_ENABLED, Code, INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, NOT_ENABLED,
    Result, print_message, state,
};

type Handle = *mut c_void;

/// Most devices there are.
pub(crate) const MOST: usize = 8;

/// How many there are, whatever the program sees.
static ALL: LazyLock<usize> = LazyLock::new(|| {
    let Some(text) = variable("NVABI_EMU_DEVICES") else { return 1 };
    match text.parse() {
        Ok(count @ 1..=MOST) => count,
        _ => {
            print_message(&format!("NVABI_EMU_DEVICES: `{text}` is no number from 1 to {MOST}"));
            1
        }
    }
});

/// Those that the program sees, by their numbers among all, or the error of all calls where it sees none.
static VISIBLE: LazyLock<Result<Vec<usize>>> = LazyLock::new(|| {
    const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";
    let Some(text) = std::env::var_os(VARIABLE) else { return Ok((0..*ALL).collect()) };
    let text = text.to_string_lossy();
    let found = visible(&text, *ALL);
    match found {
        Err(NO_DEVICE) => {
            print_message(&format!("{VARIABLE}: `{text}` leaves none of {} devices", *ALL))
        }
        Err(_) => print_message(&format!("{VARIABLE}: `{text}` names a device twice")),
        Ok(_) => {}
    }
    found
});

/// The devices that a list names, by numbers or by ids: up to the first word that names none.
fn visible(list: &str, all: usize) -> Result<Vec<usize>> {
    let find = if list.starts_with("GPU-") { by_id } else { by_number };
    let mut found = Vec::new();
    for device in list.split(',').map_while(|word| find(word, all)) {
        if found.contains(&device) {
            return Err(INVALID_DEVICE);
        }
        found.push(device);
    }
    if found.is_empty() { Err(NO_DEVICE) } else { Ok(found) }
}

/// A number as C reads it (strtol(3)): what is behind its digits does not count.
fn by_number(word: &str, all: usize) -> Option<usize> {
    let word = word.trim_start();
    let word = word.strip_prefix('+').unwrap_or(word);
    let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    word[..end].parse().ok().filter(|device| *device < all)
}

/// The one device whose id begins so; hyphens do not count, nor what is behind the digits.
fn by_id(word: &str, all: usize) -> Option<usize> {
    let digits = word.strip_prefix("GPU-").filter(|digits| !digits.starts_with('-'))?;
    let digits = digits.chars().take_while(|c| c.is_ascii_hexdigit() || *c == '-');
    let digits: String = digits.filter(|c| *c != '-').take(32).collect();
    let id = |device: &usize| uuid_of(*device).map(|byte| format!("{byte:02x}")).concat();
    let mut found = (0..all).filter(|device| id(device).starts_with(&digits.to_ascii_lowercase()));
    let first = found.next()?;
    (!digits.is_empty() && found.next().is_none()).then_some(first)
}

/// How many the program sees.
pub(crate) fn count() -> usize {
    VISIBLE.as_ref().map_or(0, Vec::len)
}

/// The error of all calls where the program sees no device.
pub(crate) fn check_any() -> Result {
    VISIBLE.as_ref().map(|_| ()).map_err(|code| *code)
}

/// A device's number among all. That of the current one is asked for where there is none, too.
pub(crate) fn physical(device: usize) -> usize {
    VISIBLE.as_ref().ok().and_then(|seen| seen.get(device).copied()).unwrap_or(device)
}

/// The device with a number among all, if the program sees it.
pub(crate) fn of_physical(number: usize) -> Option<usize> {
    (0..count()).find(|device| physical(*device) == number)
}

/// The same by a number that another process gave: one that this does not see is as good as the current one.
pub(crate) fn seen_as(number: u64) -> usize {
    usize::try_from(number).ok().and_then(of_physical).unwrap_or_else(current)
}

/// A device that a program names.
pub(crate) fn check(device: c_int) -> Result<usize> {
    check_any()?;
    usize::try_from(device).ok().filter(|device| *device < count()).ok_or(INVALID_DEVICE)
}

/// A device's own id, which no other has.
pub(crate) fn uuid(device: usize) -> [u8; 16] {
    uuid_of(physical(device))
}

/// Ids differ from the first byte on, so that short ones name one.
fn uuid_of(number: usize) -> [u8; 16] {
    let mut uuid = *b"\0nvabi emulator\0";
    uuid[0] = number as u8;
    uuid
}

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    static BEFORE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The device that this thread uses.
pub(crate) fn current() -> usize {
    CURRENT.get()
}

pub(crate) fn set_current(device: usize) {
    CURRENT.set(device);
}

/// Uses a device until [`pop`].
pub(crate) fn push(device: usize) {
    BEFORE.with_borrow_mut(|before| before.push(CURRENT.replace(device)));
}

/// The device that was used until now.
pub(crate) fn pop() -> usize {
    let before = BEFORE.with_borrow_mut(Vec::pop);
    CURRENT.replace(before.unwrap_or(current()))
}

/// Whose memory the kernels of each device reach beside its own, as bits.
#[derive(Debug, Default)]
pub(crate) struct Peers([u64; MOST]);

impl Peers {
    /// Of a device, with its own.
    pub(crate) fn reached_by(&self, device: usize) -> u64 {
        self.0[device] | 1 << device
    }

    /// As if the program had asked for it.
    pub(crate) fn let_reach(&mut self, device: usize, peer: usize) {
        self.0[device] |= 1 << peer & !(1 << device);
    }

    fn enable(&mut self, device: usize, peer: usize) -> Result {
        let before = self.0[device];
        self.let_reach(device, peer);
        if self.0[device] == before { Err(ALREADY_ENABLED) } else { Ok(()) }
    }

    fn disable(&mut self, device: usize, peer: usize) -> Result {
        let before = self.0[device];
        self.0[device] &= !(1 << peer);
        if self.0[device] == before { Err(NOT_ENABLED) } else { Ok(()) }
    }

    /// Its context is gone.
    pub(crate) fn forget(&mut self, device: usize) {
        self.0[device] = 0;
        self.0.iter_mut().for_each(|reached| *reached &= !(1 << device));
    }
}

/// Another device than the current one.
fn peer(device: c_int) -> Result<usize> {
    let peer = check(device)?;
    if peer == current() { Err(INVALID_DEVICE) } else { Ok(peer) }
}

fn can_access(out: Out<c_int>, device: c_int, peer: c_int) -> Result {
    out.put((check(device)? != check(peer)?).into())
}

fn enable(peer: usize, flags: c_uint) -> Result {
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    state().peers.enable(current(), peer)
}

/// What two devices are to each other: how fast, whether they access memory, do atomics there, and read arrays.
fn attribute(out: Out<c_int>, attribute: c_int, from: c_int, to: c_int) -> Result {
    if check(from)? == check(to)? {
        return Err(INVALID_DEVICE);
    }
    match attribute {
        1 => out.put(0),
        2..=4 => out.put(1),
        _ => Err(INVALID_VALUE),
    }
}

/// The device of a context that a program names, none for null.
pub(crate) fn of_context(context: Handle) -> Result<Option<usize>> {
    if context.is_null() {
        return Ok(None);
    }
    (0..count())
        .find(|device| crate::state::context_of(*device) == context)
        .map(Some)
        .ok_or(INVALID_CONTEXT)
}

/// The device of another context than the current one.
fn peer_context(context: Handle) -> Result<usize> {
    of_context(context)?.filter(|device| *device != current()).ok_or(INVALID_CONTEXT)
}

fn both_contexts(to: Handle, from: Handle) -> Result<[usize; 2]> {
    let device = |context| of_context(context)?.ok_or(INVALID_CONTEXT);
    Ok([device(to)?, device(from)?])
}

/// Copies from one device to another, in turn with all that these and the current one are given.
///
/// # Safety
///
/// As [`transfer`], with both sides on devices.
unsafe fn copy_between(
    [to_device, from_device]: [usize; 2],
    to: u64,
    from: u64,
    size: usize,
) -> Result {
    let devices = [to_device, from_device, current()];
    state().default_waits(&devices);
    // SAFETY: this function's contract.
    unsafe { transfer(to, true, from, true, size)? };
    state().wait_for_default(&devices);
    Ok(())
}

/// Where a device is: the program knows it by that in another order.
fn bus_id(device: usize) -> std::ffi::CString {
    let bus = physical(device);
    std::ffi::CString::new(format!("0000:{bus:02x}:00.0")).unwrap_or_default()
}

/// The device at an address of domain, bus, device and function, in hexadecimal. Either the first or the last may be
/// missing.
fn at_bus_id(id: &str) -> Option<usize> {
    let number = |digits: &str| {
        let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_number.then(|| usize::from_str_radix(digits, 16).ok()).flatten()
    };
    let (bus, place) = id.rsplit_once(':')?;
    let (domain, bus) =
        bus.split_once(':').map_or((None, bus), |(domain, bus)| (Some(domain), bus));
    let (device, function) =
        place.split_once('.').map_or((place, None), |(device, function)| (device, Some(function)));
    domain.or(function)?;
    let rest = [domain.unwrap_or("0"), device, function.unwrap_or("0")];
    let is_ours = rest.into_iter().all(|digits| number(digits) == Some(0));
    number(bus).filter(|_| is_ours).and_then(of_physical)
}

both! {
    cuDeviceCanAccessPeer cudaDeviceCanAccessPeer(out: Out<c_int>, device: c_int, peer: c_int) {
        can_access(out, device, peer)
    }
    cuDeviceGetP2PAttribute cudaDeviceGetP2PAttribute(out: Out<c_int>, kind: c_int, from: c_int, to: c_int) {
        attribute(out, kind, from, to)
    }
    cuStreamGetDevice cudaStreamGetDevice(stream: Handle, out: Out<c_int>) {
        out.put(state().device_of(stream)? as c_int)
    }
    cuDeviceGetByPCIBusId cudaDeviceGetByPCIBusId(out: Out<c_int>, id: Text) {
        let found = id.get()?.to_str().ok().and_then(at_bus_id);
        out.put(found.ok_or(INVALID_DEVICE)? as c_int)
    }
}

remembered! {
    cudaDeviceEnablePeerAccess(device: c_int, flags: c_uint) { enable(peer(device)?, flags) }
    cudaDeviceDisablePeerAccess(device: c_int) {
        let peer = peer(device)?;
        state().peers.disable(current(), peer)
    }
}

calls! {
    cuCtxEnablePeerAccess(context: Handle, flags: c_uint) { enable(peer_context(context)?, flags) }
    cuCtxDisablePeerAccess(context: Handle) {
        let peer = peer_context(context)?;
        state().peers.disable(current(), peer)
    }
}

unchecked! {
    cuDeviceGetPCIBusId(out: Out<c_char>, length: c_int, device: c_int) {
        out.put_text(&bus_id(check(device)?), usize::try_from(length).unwrap_or(0))
    }
    cuMemcpyPeer(to: u64, to_context: Handle, from: u64, from_context: Handle, size: usize) {
        copy_between(both_contexts(to_context, from_context)?, to, from, size)
    }
    cuMemcpyPeerAsync(
        to: u64, to_context: Handle, from: u64, from_context: Handle, size: usize, stream: Handle
    ) {
        both_contexts(to_context, from_context)?;
        transfer_on(stream, (to, true), (from, true), size)
    }
}

remembered_unchecked! {
    cudaDeviceGetPCIBusId(out: Out<c_char>, length: c_int, device: c_int) {
        out.put_text(&bus_id(check(device)?), usize::try_from(length).unwrap_or(0))
    }
    cudaMemcpyPeer(to: u64, to_device: c_int, from: u64, from_device: c_int, size: usize) {
        copy_between([check(to_device)?, check(from_device)?], to, from, size)
    }
    cudaMemcpyPeerAsync(
        to: u64, to_device: c_int, from: u64, from_device: c_int, size: usize, stream: Handle
    ) {
        check(to_device)?;
        check(from_device)?;
        transfer_on(stream, (to, true), (from, true), size)
    }
}
