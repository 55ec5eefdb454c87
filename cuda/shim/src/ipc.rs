//! Memory and events that processes share, of the driver and of the runtime.
//!
//! A handle says where its process has a file with the memory open; who opens the handle opens that file by
//! `/proc/PID/fd`. So nothing is left of a process that is killed, and no thread has to answer. Another file of the
//! process has a byte for each of its handles, which is 1 as long as what the handle names is there.
//!
//! A call does its work before it returns, so that whatever an event was recorded behind is done: an event of another
//! process has nothing to wait for.
#![allow(non_snake_case)]

use std::collections::HashMap;
use std::ffi::{c_uint, c_void};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nvabi_emu::{DeviceError, SharedRange};

use crate::abi::{Out, status_of};
use crate::devices;
use crate::driver::calls;
use crate::host_work;
use crate::runtime::{answer, both, remembered};
use crate::state::{
    Code, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, MAP_FAILED, OUT_OF_MEMORY, Result, State,
    print_message, state,
};

type Handle = *mut c_void;

/// The first bytes of every handle, by what it names.
const MEMORY: [u8; 8] = *b"nvabimem";
const EVENT: [u8; 8] = *b"nvabievt";

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the one flag that there is, and must be given.
const LAZY_PEER_ACCESS: c_uint = 1;

/// `CUipcMemHandle`, `CUipcEventHandle` and the runtime's: 64 bytes whose meaning is the emulator's, at any alignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, packed)]
struct Name {
    magic: [u8; 8],
    pid: u32,
    /// The file with a byte for each handle: its descriptor, its number, and where the byte is.
    table: RawFd,
    inode: u64,
    at: u64,
    /// Of memory: the file where it lies.
    memory: Memory,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C, packed)]
struct Memory {
    inode: u64,
    offset: u64,
    size: u64,
    descriptor: RawFd,
    /// The number of the device that has it, among all.
    device: u32,
}

const _: () = assert!(size_of::<Name>() == 64);

/// What a process has given handles of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Thing {
    /// By its first byte.
    Memory(u64),
    /// By its number.
    Event(usize),
}

/// The handles that this process gave, and those that it opened.
#[derive(Debug, Default)]
pub(crate) struct Ipc {
    /// The process that gave: a child that is forked has given nothing.
    pid: u32,
    /// A byte for each handle that was ever given.
    table: Option<File>,
    count: u64,
    given: HashMap<Thing, Name>,
    /// By the address here.
    opened: HashMap<u64, Opened>,
}

/// Memory of another process.
#[derive(Debug)]
struct Opened {
    name: Name,
    /// How often it was opened.
    count: usize,
    /// The other process's, which stays readable when that has ended.
    table: Arc<File>,
}

impl Ipc {
    /// The handle of a thing, which is the same each time.
    fn give(&mut self, thing: Thing, magic: [u8; 8], memory: Memory) -> io::Result<Name> {
        self.forget_the_parents();
        if let Some(name) = self.given.get(&thing) {
            return Ok(*name);
        }
        let table = match &mut self.table {
            Some(table) => table,
            none => none.insert(new_table()?),
        };
        let (at, pid) = (self.count, self.pid);
        table.write_all_at(&[1], at)?;
        let (descriptor, inode) = (table.as_raw_fd(), table.metadata()?.ino());
        let name = Name { magic, pid, table: descriptor, inode, at, memory };
        self.count += 1;
        self.given.insert(thing, name);
        Ok(name)
    }

    /// What a process gave that forked this one stays that process's, and so does the table, which both have open.
    fn forget_the_parents(&mut self) {
        let pid = std::process::id();
        if self.pid != pid {
            (self.pid, self.table, self.count) = (pid, None, 0);
            self.given.clear();
        }
    }

    /// A thing is gone, and with it its handle.
    pub(crate) fn end(&mut self, thing: Thing) {
        self.forget_the_parents();
        let name = self.given.remove(&thing);
        if let (Some(name), Some(table)) = (name, &self.table) {
            // A byte that is there is written anew.
            let _ = table.write_all_at(&[0], name.at);
        }
    }

    /// Where the memory of a handle is that is opened already, once more now.
    fn open_again(&mut self, name: Name) -> Option<u64> {
        let (address, opened) = self.opened.iter_mut().find(|(_, opened)| opened.name == name)?;
        opened.count += 1;
        Some(*address)
    }

    /// Memory that its process freed while this one has it open: its first byte here, and that process.
    pub(crate) fn freed(&self) -> impl Iterator<Item = (u64, u32)> {
        let gone = self.opened.iter().filter(|(_, opened)| !opened.name.is_there(&opened.table));
        gone.map(|(address, opened)| (*address, opened.name.pid))
    }

    /// One file for all that is opened of a process.
    fn same_table(&self, name: &Name, table: File) -> Arc<File> {
        let is_same = |opened: &&Opened| opened.name.inode_of_process() == name.inode_of_process();
        let known = self.opened.values().find(is_same).map(|opened| opened.table.clone());
        known.unwrap_or_else(|| Arc::new(table))
    }

    /// Where memory of other processes is, by its first byte here.
    pub(crate) fn opened(&self) -> impl Iterator<Item = &u64> {
        self.opened.keys()
    }

    /// It is not used any more.
    pub(crate) fn close(&mut self, address: u64) {
        self.opened.remove(&address);
    }

    pub(crate) fn has_given_event(&self, event: usize) -> bool {
        self.given.contains_key(&Thing::Event(event))
    }

    /// Whether memory is another process's, by its first byte here.
    pub(crate) fn has_opened(&self, address: u64) -> bool {
        self.opened.contains_key(&address)
    }
}

fn new_table() -> io::Result<File> {
    Ok(File::from(memfd_create(c"nvabi-ipc", MFdFlags::MFD_CLOEXEC)?))
}

impl Name {
    fn inode_of_process(&self) -> (u32, u64) {
        (self.pid, self.inode)
    }

    /// Whether its process still has what it names.
    fn is_there(&self, table: &File) -> bool {
        let mut byte = [0];
        table.read_at(&mut byte, self.at).is_ok_and(|_| byte == [1])
    }

    /// Whether it is of the kind that a function takes, and another process's that still has what it names: that one's
    /// table.
    fn check(&self, magic: [u8; 8], function: &str) -> Result<File> {
        let (what, gone) = match magic {
            EVENT => ("event", "destroyed"),
            _ => ("memory", "freed"),
        };
        let refuse = |why: String, code| {
            print_message(&format!("{function}: {why}"));
            Err(code)
        };
        if self.magic != magic {
            return refuse(format!("this is no handle of {what}"), INVALID_HANDLE);
        }
        let pid = self.pid;
        if pid == std::process::id() {
            let why = format!("the handle is of this process, where the {what} is used as it is");
            return refuse(why, INVALID_CONTEXT);
        }
        match open(pid, self.table, self.inode) {
            Ok(table) if self.is_there(&table) => Ok(table),
            Ok(_) => refuse(format!("process {pid} has {gone} the {what}"), INVALID_HANDLE),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                refuse(format!("process {pid}, which has the {what}, has ended"), INVALID_HANDLE)
            }
            Err(error) => {
                refuse(format!("the files of process {pid} cannot be read: {error}"), MAP_FAILED)
            }
        }
    }
}

/// A file that another process has open. A process that ended is not found, nor is one with another file there.
fn open(pid: u32, descriptor: RawFd, inode: u64) -> io::Result<File> {
    let file =
        File::options().read(true).write(true).open(format!("/proc/{pid}/fd/{descriptor}"))?;
    if file.metadata()?.ino() == inode { Ok(file) } else { Err(ErrorKind::NotFound.into()) }
}

/// What the system refuses.
pub(crate) fn refused(what: &str, error: &io::Error) -> Code {
    print_message(&format!("{what}: {error}"));
    OUT_OF_MEMORY
}

impl State {
    fn share(&mut self, address: u64) -> Result<Name> {
        const FUNCTION: &str = "cuIpcGetMemHandle";
        self.check()?;
        let refuse = |what: &str| {
            print_message(&format!("{FUNCTION}: {address:#x} is {what}"));
            Err(INVALID_VALUE)
        };
        let start = self.device.allocation(address).map(|(start, _)| start);
        match start {
            Some(start) if self.pools.has(start) => return refuse("memory of a pool"),
            Some(start) if self.allocated.contains_key(&start) => {}
            _ => return refuse("no memory that cuMemAlloc gave"),
        }
        let (start, range) = self.device.share(address).map_err(|error| {
            let why = match error {
                DeviceError::NotShared(_) => {
                    format!("{address:#x} is memory that the program reaches as well")
                }
                _ => error.to_string(),
            };
            print_message(&format!("{FUNCTION}: {why}"));
            error
        })?;
        let SharedRange { descriptor, inode, offset, size } = range;
        let device = devices::physical(self.owner(start)) as u32;
        let memory = Memory { descriptor, inode, offset, size, device };
        let name = self.ipc.give(Thing::Memory(start), MEMORY, memory);
        name.map_err(|error| refused(FUNCTION, &error))
    }

    fn open_memory(&mut self, name: Name, flags: c_uint) -> Result<u64> {
        self.check()?;
        if flags != LAZY_PEER_ACCESS {
            return Err(INVALID_VALUE);
        }
        let table = name.check(MEMORY, "cuIpcOpenMemHandle")?;
        let address = match self.ipc.open_again(name) {
            Some(address) => address,
            None => self.map(name, table)?,
        };
        self.peers.let_reach(devices::current(), self.owner(address));
        Ok(address)
    }

    /// Memory of another process, which this one has not opened yet.
    fn map(&mut self, name: Name, table: File) -> Result<u64> {
        let Memory { descriptor, inode, offset, size, device } = name.memory;
        let current = devices::current();
        let owner = devices::seen_as(device.into());
        self.select(owner);
        let mapped =
            open(name.pid, descriptor, inode).map_err(|error| error.to_string()).and_then(|file| {
                self.device.map(&file, offset, size).map_err(|error| error.to_string())
            });
        self.select(current);
        let address = mapped.map_err(|error| {
            print_message(&format!("cuIpcOpenMemHandle: {error}"));
            MAP_FAILED
        })?;
        // Its process may have written any of it.
        self.device.mark_written(address, size);
        let table = self.ipc.same_table(&name, table);
        self.ipc.opened.insert(address, Opened { name, count: 1, table });
        Ok(address)
    }

    fn close_memory(&mut self, address: u64) -> Result {
        self.check()?;
        let opened = self.ipc.opened.get_mut(&address).ok_or(INVALID_VALUE)?;
        opened.count -= 1;
        if opened.count > 0 {
            return Ok(());
        }
        // As a free: it waits for all that may use it.
        self.wait_for_all()?;
        self.ipc.close(address);
        self.free_mapped(address)
    }

    fn share_event(&mut self, event: Handle) -> Result<Name> {
        let number = self.event_between_processes(event)?;
        let name = self.ipc.give(Thing::Event(number), EVENT, Memory::default());
        name.map_err(|error| refused("cuIpcGetEventHandle", &error))
    }

    fn open_event(&mut self, name: Name) -> Result<Handle> {
        self.check()?;
        name.check(EVENT, "cuIpcOpenEventHandle")?;
        Ok(self.event_of_other_process())
    }
}

both! {
    cuIpcGetMemHandle cudaIpcGetMemHandle(out: Out<Name>, address: u64) {
        out.put(host_work::without(|| state().share(address))?)
    }
    cuIpcCloseMemHandle cudaIpcCloseMemHandle(address: u64) { state().close_memory(address) }
    cuIpcGetEventHandle cudaIpcGetEventHandle(out: Out<Name>, event: Handle) {
        out.put(state().share_event(event)?)
    }
    cuIpcOpenEventHandle cudaIpcOpenEventHandle(out: Out<Handle>, name: Name) {
        out.put(state().open_event(name)?)
    }
    cuIpcOpenMemHandle_v2 cudaIpcOpenMemHandle(out: Out<u64>, name: Name, flags: c_uint) {
        out.put(state().open_memory(name, flags)?)
    }
}

calls! {
    cuIpcOpenMemHandle(out: Out<u64>, name: Name, flags: c_uint) { out.put(state().open_memory(name, flags)?) }
}
