//! Memory of other processes.

use std::fs::{self, File};
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt as _;

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

/// Smallest unit in which a process has memory or not.
const PAGE: u64 = 4096;
/// Pieces of one transfer.
const PIECES: usize = 64;

/// Copies from the memory of another process, up to the first page that is not there; says how many bytes.
pub fn read_memory(thread: u32, address: u64, into: &mut [u8]) -> usize {
    let copied = pagewise(address, into.len(), |at, len, pieces| {
        let local = into.get_mut(at..at + len).unwrap_or_default();
        process_vm_readv(pid(thread), &mut [IoSliceMut::new(local)], pieces)
    });
    copied.unwrap_or_else(|Forbidden| read_memory_at_once(thread, address, into))
}

/// Copies into the memory of another process, up to the first page that is not there or cannot be written;
/// says how many bytes. Into the memory of this process nothing is copied: it is Rust's.
pub fn write_memory(thread: u32, address: u64, from: &[u8]) -> usize {
    if is_own(thread) {
        return 0;
    }
    let copied = pagewise(address, from.len(), |at, len, pieces| {
        let local = from.get(at..at + len).unwrap_or_default();
        process_vm_writev(pid(thread), &[IoSlice::new(local)], pieces)
    });
    copied.unwrap_or_else(|Forbidden| write_memory_at_once(thread, address, from))
}

/// As [`read_memory`], and never waits: a process with `userfaultfd` can let whoever touches its memory wait for as
/// long as it likes. What it has to be asked for is taken as missing.
pub fn read_memory_at_once(thread: u32, address: u64, into: &mut [u8]) -> usize {
    let length = permitted(thread, address, into.len(), b'r');
    let Some(file) = memory_file(thread, false).filter(|_| length > 0) else { return 0 };
    let mut done = 0;
    while let Some(rest) = into.get_mut(done..length).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, address + done as u64) {
            Ok(count @ 1..) => done += count,
            _ => break,
        }
    }
    done
}

/// As [`write_memory`], and never waits.
pub fn write_memory_at_once(thread: u32, address: u64, from: &[u8]) -> usize {
    if is_own(thread) {
        return 0;
    }
    let length = permitted(thread, address, from.len(), b'w');
    let Some(file) = memory_file(thread, true).filter(|_| length > 0) else { return 0 };
    let mut done = 0;
    while let Some(rest) = from.get(done..length).filter(|rest| !rest.is_empty()) {
        match file.write_at(rest, address + done as u64) {
            Ok(count @ 1..) => done += count,
            _ => break,
        }
    }
    done
}

/// Which memory of a process a driver takes for its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pin {
    /// What the process itself may read and write.
    Permitted,
    /// To read alone, whatever is there: `FOLL_FORCE`.
    ForcedRead,
    /// What the process may write, and what is a copy of its own: `FOLL_FORCE` and `FOLL_WRITE`
    /// (`check_vma_flags` in `mm/gup.c`).
    ForcedWrite,
}

impl Pin {
    /// Whether it takes a mapping with these permissions, as `maps` has them.
    fn takes(self, permissions: &[u8]) -> bool {
        let has = |permission| permissions.contains(&permission);
        match self {
            Self::Permitted => has(b'r') && has(b'w'),
            Self::ForcedRead => true,
            Self::ForcedWrite => has(b'w') || has(b'p'),
        }
    }
}

/// The file that shows a process's memory, where all of a range is such as a driver takes. It stays that of the
/// same memory, whatever becomes of the process, and nobody who uses it waits.
pub fn open_memory(thread: u32, address: u64, length: usize, pin: Pin) -> Option<File> {
    let is_taken = |permissions: &[u8]| pin.takes(permissions);
    let is_there = !is_own(thread) && covered(thread, address, length, is_taken) == length;
    memory_file(thread, pin != Pin::ForcedRead).filter(|_| is_there)
}

/// The file that shows a process's memory. The kernel does not wait for answers to faults there: it may not
/// retry them (`__access_remote_vm` in `mm/memory.c`, `handle_userfault` in `fs/userfaultfd.c`).
fn memory_file(thread: u32, writes: bool) -> Option<File> {
    fs::OpenOptions::new().read(true).write(writes).open(format!("/proc/{thread}/mem")).ok()
}

/// How many bytes from an address on the process itself may read or write: its file of memory lets a debugger
/// do more.
fn permitted(thread: u32, address: u64, length: usize, permission: u8) -> usize {
    covered(thread, address, length, |permissions| permissions.contains(&permission))
}

/// How many bytes from an address on are in mappings of which each is taken by its permissions.
fn covered(thread: u32, address: u64, length: usize, is_taken: impl Fn(&[u8]) -> bool) -> usize {
    let maps = fs::read(format!("/proc/{thread}/maps")).unwrap_or_default();
    let mut end = address;
    for line in maps.split(|byte| *byte == b'\n') {
        let Some((range, permissions)) = mapping_of(line) else { continue };
        if range.contains(&end) && is_taken(permissions) {
            end = range.end;
        }
    }
    usize::try_from(end - address).unwrap_or(usize::MAX).min(length)
}

/// The addresses of a line of `maps`, and its permissions.
fn mapping_of(line: &[u8]) -> Option<(std::ops::Range<u64>, &[u8])> {
    // A path at its end need not be text.
    let mut words = line.split(|byte| *byte == b' ');
    let (range, permissions) = (std::str::from_utf8(words.next()?).ok()?, words.next()?);
    let (start, end) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(start)?..number(end)?, permissions))
}

fn pid(thread: u32) -> Pid {
    Pid::from_raw(thread as i32)
}

/// Whether a thread is one of this process.
fn is_own(thread: u32) -> bool {
    // SAFETY: signal 0 is none: the kernel says whether the thread is of the process, and does nothing else.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) == 0 }
}

/// The call itself may not be made, as in containers of Podman's without CAP_SYS_PTRACE: then the file that shows a
/// process's memory is used, which is slower.
struct Forbidden;

/// Copies `length` bytes by `copy`, which is given where they begin, how many they are and where they lie in
/// the other process, in pieces that end where pages do: the kernel copies whole pieces or stops.
fn pagewise(
    address: u64,
    length: usize,
    mut copy: impl FnMut(usize, usize, &[RemoteIoVec]) -> nix::Result<usize>,
) -> Result<usize, Forbidden> {
    let mut done = 0;
    while done < length {
        let mut pieces = [RemoteIoVec { base: 0, len: 0 }; PIECES];
        let (mut count, mut planned) = (0, 0);
        for piece in &mut pieces {
            let left = (length - done - planned) as u64;
            let Some(at) = address.checked_add((done + planned) as u64) else { break };
            if left == 0 {
                break;
            }
            let len = (PAGE - at % PAGE).min(left) as usize;
            *piece = RemoteIoVec { base: at as usize, len };
            count += 1;
            planned += len;
        }
        let copied = match copy(done, planned, &pieces[..count]) {
            Err(Errno::EPERM | Errno::ENOSYS) if done == 0 => return Err(Forbidden),
            copied => copied.unwrap_or(0),
        };
        done += copied;
        if planned == 0 || copied < planned {
            break;
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn memory_is_read_up_to_the_first_page_that_is_missing() {
        let page = PAGE as usize;
        // SAFETY: new memory, of which nothing is used after its last page is given back.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let start = libc::mmap(std::ptr::null_mut(), 101 * page, protection, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            libc::memset(start, 7, 100 * page);
            assert_eq!(libc::munmap(start.byte_add(100 * page), page), 0);
            start as u64
        };
        let mut bytes = vec![0; 200 * page];
        assert_eq!(read_memory(std::process::id(), start + 10, &mut bytes), 100 * page - 10);
        assert!(bytes[..100 * page - 10].iter().all(|byte| *byte == 7));
        assert_eq!(read_memory(std::process::id(), u64::MAX - 5, &mut bytes[..20]), 0);
    }

    #[test]
    fn the_memory_of_this_process_is_not_written() {
        let bytes = Box::new([1_u8; 16]);
        let address = bytes.as_ptr() as u64;
        // SAFETY: it says a number.
        let thread = unsafe { libc::gettid() } as u32;
        for own in [std::process::id(), thread] {
            assert_eq!(write_memory(own, address, &[9; 16]), 0);
        }
        assert_eq!(*bytes, [1; 16]);
    }

    #[test]
    fn memory_is_read_at_once_as_far_as_it_may_be() {
        let page = PAGE as usize;
        // SAFETY: new memory, of which only what may be read is read.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let start = libc::mmap(std::ptr::null_mut(), 4 * page, protection, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            libc::memset(start, 7, 4 * page);
            assert_eq!(libc::mprotect(start.byte_add(page), page, libc::PROT_READ), 0);
            assert_eq!(libc::mprotect(start.byte_add(3 * page), page, libc::PROT_NONE), 0);
            start as u64
        };
        let own = std::process::id();
        let mut bytes = vec![0; 5 * page];
        assert_eq!(read_memory_at_once(own, start + 10, &mut bytes), 3 * page - 10);
        assert!(bytes[..3 * page - 10].iter().all(|byte| *byte == 7));
        assert_eq!(read_memory_at_once(own, start + 3 * PAGE, &mut bytes), 0);
        assert_eq!(read_memory_at_once(own, u64::MAX - 5, &mut bytes[..20]), 0);
        assert_eq!(permitted(own, start + 8, 2 * page, b'w'), page - 8);
        assert_eq!(write_memory_at_once(own, start, &bytes), 0);
    }

    #[test]
    fn the_memory_of_a_child_is_written() {
        let mut command = Command::new("cat");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let id = child.id();
        // What it copies says that it runs, and has all of its memory.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let maps = std::fs::read_to_string(format!("/proc/{id}/maps")).unwrap();
        let stack = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
        let start = u64::from_str_radix(stack.split('-').next().unwrap(), 16).unwrap();
        let mut read = [0; 3];
        let written = write_memory(id, start, b"abc");
        let known = read_memory(id, start, &mut read);
        let text = maps.lines().find(|line| line.contains(" r-xp ")).unwrap();
        let text = u64::from_str_radix(text.split('-').next().unwrap(), 16).unwrap();
        assert_eq!(write_memory_at_once(id, text, b"def"), 0, "a debugger might");
        assert_eq!(write_memory_at_once(id, start + 3, b"def"), 3);
        let mut both = [0; 6];
        assert_eq!((read_memory_at_once(id, start, &mut both), &both), (6, b"abcdef"));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!((written, known, &read), (3, 3, b"abc"));
    }
}
