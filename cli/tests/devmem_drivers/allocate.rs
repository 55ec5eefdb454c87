//! Each allocator: what it makes is as described, is seen by the CPU and by another process.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use nvabi_devmem::constraint::placement;
use nvabi_devmem::{Buffer, Constraint, ConstraintName, ErrorKind};
use nvabi_test::only_as_child;

use super::{description, device, pattern, read, write};

const CHILD: &str = "NVABI_TEST_RECEIVER";

/// The other process: it takes a buffer from its standard input, and inverts what is in it.
#[test]
fn receiver() {
    only_as_child(CHILD);
    let stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let buffer = Buffer::receive(&stream).unwrap();
    let inverted: Vec<u8> = read(&buffer).iter().map(|byte| !byte).collect();
    write(&buffer, &inverted);
    std::process::exit(0);
}

fn makes_memory(name: &'static str) {
    let device = device(name);
    let description = description(320, 180, Vec::new());
    let buffer = device.allocate(&description).unwrap();
    assert!(buffer.size() >= description.layout.size);
    let other = device.allocate(&description).unwrap();
    assert_ne!(buffer.identity(), other.identity());

    // What the CPU writes stays, and is this buffer's alone.
    let length = description.layout.size as usize;
    write(&other, &pattern(1, length));
    write(&buffer, &pattern(2, length));
    assert!(read(&buffer) == pattern(2, length) && read(&other) == pattern(1, length));

    // An exported file descriptor is the same memory.
    let (fd, identity) = (buffer.export().unwrap(), buffer.identity());
    let again = Buffer::identified(fd, description.clone(), identity).unwrap();
    assert!(read(&again) == pattern(2, length));
    let refused = Buffer::identified(other.export().unwrap(), description.clone(), identity);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Mismatch);
    let mut larger = description;
    larger.layout.size = buffer.size() + 1;
    let refused = Buffer::new(buffer.export().unwrap(), larger);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Mismatch);

    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "allocate::receiver"])
        .env(CHILD, "1")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    buffer.send(&ours).unwrap();
    assert!(child.wait().unwrap().success());
    let inverted: Vec<u8> = pattern(2, length).iter().map(|byte| !byte).collect();
    assert!(read(&buffer) == inverted);
}

#[test]
fn the_cpu_makes_memory() {
    makes_memory("cpu");
}

#[test]
fn udmabuf_makes_memory() {
    makes_memory("udmabuf");
}

#[test]
fn udmabuf_of_large_pages_makes_memory() {
    makes_memory("udmabuf:2M");
}

#[test]
fn the_system_heap_makes_memory() {
    makes_memory("dma-heap:system");
}

#[test]
fn the_contiguous_heap_makes_memory() {
    makes_memory("dma-heap:reserved");
}

#[test]
fn dumb_buffers_of_vgem_are_memory() {
    makes_memory("vgem");
}

#[test]
fn dumb_buffers_of_vkms_are_memory() {
    makes_memory("vkms");
}

#[test]
fn buffers_of_a_camera_are_memory() {
    makes_memory("camera");
}

#[test]
fn buffers_of_a_contiguous_camera_are_memory() {
    makes_memory("contiguous-camera");
}

/// Memory that is not as described.
fn refuses(name: &'static str) {
    let device = device(name);
    let mut description = description(320, 240, Vec::new());
    let refused = |description: &_| device.allocate(description).unwrap_err().to_string();
    let contiguous = Constraint::new(ConstraintName::CONTIGUOUS, 1);
    description.set.constraints = vec![contiguous];
    assert_eq!(
        refused(&description),
        "memory in one piece asked for, 4096 bytes in one piece offered"
    );
    let carveout = Constraint::new(ConstraintName::PLACEMENT, placement::CARVEOUT);
    description.set.constraints = vec![carveout];
    assert_eq!(refused(&description), "placement carveout asked for, placement system offered");
}

#[test]
fn memory_of_the_cpu_that_cannot_be_as_described_is_refused() {
    refuses("cpu");
}

#[test]
fn memory_of_udmabuf_that_cannot_be_as_described_is_refused() {
    refuses("udmabuf");
}

#[test]
fn memory_of_the_heap_that_cannot_be_as_described_is_refused() {
    refuses("dma-heap:system");
}
