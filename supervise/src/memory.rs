//! Memory of other processes.

use std::io::{IoSlice, IoSliceMut};

use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

/// Smallest unit in which a process has memory or not.
const PAGE: u64 = 4096;
/// Pieces of one transfer.
const PIECES: usize = 64;

/// Copies from the memory of another process, up to the first page that is not there; says how many bytes.
pub fn read_memory(thread: u32, address: u64, into: &mut [u8]) -> usize {
    pagewise(address, into.len(), |at, len, pieces| {
        let local = into.get_mut(at..at + len).unwrap_or_default();
        process_vm_readv(pid(thread), &mut [IoSliceMut::new(local)], pieces)
    })
}

/// Copies into the memory of another process, up to the first page that is not there or cannot be written;
/// says how many bytes. Into the memory of this process nothing is copied: it is Rust's.
pub fn write_memory(thread: u32, address: u64, from: &[u8]) -> usize {
    if is_own(thread) {
        return 0;
    }
    pagewise(address, from.len(), |at, len, pieces| {
        let local = from.get(at..at + len).unwrap_or_default();
        process_vm_writev(pid(thread), &[IoSlice::new(local)], pieces)
    })
}

fn pid(thread: u32) -> Pid {
    Pid::from_raw(thread as i32)
}

/// Whether a thread is one of this process.
fn is_own(thread: u32) -> bool {
    // SAFETY: signal 0 is none: the kernel says whether the thread is of the process, and does nothing else.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) == 0 }
}

/// Copies `length` bytes by `copy`, which is given where they begin, how many they are and where they lie in
/// the other process, in pieces that end where pages do: the kernel copies whole pieces or stops.
fn pagewise(
    address: u64,
    length: usize,
    mut copy: impl FnMut(usize, usize, &[RemoteIoVec]) -> nix::Result<usize>,
) -> usize {
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
        let copied = copy(done, planned, &pieces[..count]).unwrap_or(0);
        done += copied;
        if planned == 0 || copied < planned {
            break;
        }
    }
    done
}

#[cfg(test)]
mod tests {
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
    fn the_memory_of_a_child_is_written() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let id = child.id();
        let maps = std::fs::read_to_string(format!("/proc/{id}/maps")).unwrap();
        let stack = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
        let start = u64::from_str_radix(stack.split('-').next().unwrap(), 16).unwrap();
        let mut read = [0; 3];
        let written = write_memory(id, start, b"abc");
        let known = read_memory(id, start, &mut read);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!((written, known, &read), (3, 3, b"abc"));
    }
}
